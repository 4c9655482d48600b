//! An open device.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rdmacm_kernel_abi::mlx5::AllocUcontextResp;
use rdmacm_kernel_abi::uverbs::{CoreSupport, ioctl};
use zerocopy::IntoBytes;

use super::driver_context::{DriverContext, DriverState};
use super::write_form::{self, Destination, Message};
use super::{Device, DeviceAttr, DriverPart, EventFile};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{
    Attr, IoctlCommand, Kernel, MapFor, Mapping, Value, fork_generation, is_inherited,
};

/// An open RDMA device: the parent of protection domains, completion queues and all that is made
/// of them.
///
/// A cheap handle. The device is closed when the last handle and the last object made through it
/// are gone. Some kernels (6.1 and 6.12 with rxe) finish the removal of a device only then.
#[doc(alias = "ibv_context")]
#[derive(Debug, Clone)]
pub struct Context(Arc<ContextInner>);

#[derive(Debug)]
pub(super) struct ContextInner {
    device: Device,
    /// With mappings of the device: goes before the descriptor.
    driver_state: DriverState,
    fd: OwnedFd,
    attr: OnceLock<DeviceAttr>,
    support: Support,
    /// What the driver said.
    driver: DriverContext,
    /// The protection domain that everybody shares; the kernel frees it with the context.
    default_pd: Mutex<Option<u32>>,
    /// The streams of asynchronous events, the oldest first.
    event_files: Mutex<Vec<Weak<EventFile>>>,
    /// Which process opened the device.
    generation: u32,
}

impl Context {
    pub(super) fn open(device: &Device) -> Result<Self> {
        let mut driver = DriverContext::new(device)?;
        let kernel = device.registry.kernel();
        let path = Path::new("/dev/infiniband").join(&device.node);
        let fd = kernel
            .open(&path)
            .map_err(|error| explain_open(&path, device, &error))?;
        check_node(&**kernel, fd.as_fd(), &path, device)?;
        let driver_id = device.driver.id();
        let mut support = get_context(&**kernel, fd.as_fd(), driver_id, &mut driver);
        if support.is_err() && driver.ask_for_less() {
            support = get_context(&**kernel, fd.as_fd(), driver_id, &mut driver);
        }
        let support = support.map_err(|error| {
            Error::from_os("open_device", &error)
                .because(format!("the kernel gave no context on {}", path.display()))
        })?;
        Ok(Self(Arc::new(ContextInner {
            device: device.clone(),
            driver_state: DriverState::default(),
            driver,
            fd,
            attr: OnceLock::new(),
            support,
            default_pd: Mutex::new(None),
            event_files: Mutex::new(Vec::new()),
            generation: fork_generation(),
        })))
    }

    pub(super) fn from_inner(inner: Arc<ContextInner>) -> Self {
        Self(inner)
    }

    pub(super) fn downgrade(&self) -> Weak<ContextInner> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn is_of(&self, device: &Device) -> bool {
        let own = self.device();
        !self.is_inherited()
            && match (own.index, device.index) {
                // An index is never used twice; a name can change.
                (Some(own), Some(other)) => own == other,
                // A device that was removed and made again may be known by the same.
                _ => {
                    own.node == device.node
                        && own.node_guid == device.node_guid
                        && !self.is_disconnected()
                }
            }
    }

    /// The device that is open.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// What the device can do. The kernel is asked once.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    #[doc(alias("ibv_query_device", "ibv_query_device_ex"))]
    pub fn attr(&self) -> Result<&DeviceAttr> {
        if let Some(attr) = self.0.attr.get() {
            return Ok(attr);
        }
        let attr = DeviceAttr::query(self)?;
        Ok(self.0.attr.get_or_init(|| attr))
    }

    /// How many completion vectors the device has: the processors, or interrupts, that completion
    /// queues can be spread over ([`CqBuilder::vector`](crate::CqBuilder::vector)). They count from
    /// 0.
    #[doc(alias = "num_comp_vectors")]
    pub fn completion_vectors(&self) -> u32 {
        self.0.support.completion_vectors
    }

    /// Whether the kernel ignores optional access that it does not know, instead of refusing.
    pub(crate) fn takes_optional_access(&self) -> bool {
        let core = CoreSupport::from_bits_retain(self.0.support.core);
        core.contains(CoreSupport::OPTIONAL_MR_ACCESS)
    }

    /// The handle of the shared protection domain, made by `alloc` at first use.
    pub(crate) fn default_pd_handle(&self, alloc: impl FnOnce() -> Result<u32>) -> Result<u32> {
        // Held while making it, so that two threads at first use get the same.
        let mut default = self
            .0
            .default_pd
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match *default {
            Some(handle) => Ok(handle),
            None => Ok(*default.insert(alloc()?)),
        }
    }

    /// Remembers a new stream of asynchronous events.
    ///
    /// # Errors
    ///
    /// When the kernel has one only and somebody reads it: each would miss what the other takes.
    pub(super) fn note_event_file(&self, file: &Arc<EventFile>) -> Result<()> {
        let files = self.0.event_files.lock();
        let mut files = files.unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        if self.is_written() && !files.is_empty() {
            return Err(Error::new(
                "async_events",
                ErrorKind::InvalidState,
                "the kernel has one stream of events for each open device, and it is in use",
            ));
        }
        files.push(Arc::downgrade(file));
        Ok(())
    }

    /// Where the events of a new object are to go. The kernel is told: of itself it takes the first
    /// stream there ever was, also when that is closed.
    pub(crate) fn event_file(&self) -> Option<Arc<EventFile>> {
        let files = self.0.event_files.lock();
        let files = files.unwrap_or_else(PoisonError::into_inner);
        files.iter().find_map(Weak::upgrade)
    }

    /// Whether the device was removed: every command is then refused with `EIO`.
    pub(crate) fn is_disconnected(&self) -> bool {
        matches!(DeviceAttr::query(self), Err(error) if error.errno() == Some(libc::EIO))
    }

    /// Whether two handles are of the same open device.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether this process is a forked child of the one that opened the device. Its objects are
    /// the parent's.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        is_inherited(self.0.generation)
    }

    /// Which process opened the device, for objects that ask [`is_inherited`] on the data path.
    pub(crate) fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Refuses a forked child as the kernel does when it is sent a command in the `write()` form.
    /// Whatever else the child does with the descriptor would happen to the parent's objects.
    pub(crate) fn check_own(&self) -> io::Result<()> {
        match self.is_inherited() {
            true => Err(io::Error::from_raw_os_error(libc::EACCES)),
            false => Ok(()),
        }
    }

    pub(crate) fn kernel(&self) -> &Arc<dyn Kernel> {
        self.0.device.registry.kernel()
    }

    #[inline]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Maps a queue of the device.
    pub(crate) fn map(&self, length: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::new(
            self.kernel(),
            self.fd(),
            length,
            offset,
            MapFor::ReadingAndWriting,
        )
    }

    /// Maps registers of the device.
    pub(crate) fn map_registers(&self, length: usize, offset: u64) -> io::Result<Mapping> {
        Mapping::new(self.kernel(), self.fd(), length, offset, MapFor::Writing)
    }

    /// What the queues of an mlx5 device share, made at first use of what the kernel granted with the
    /// context.
    pub(crate) fn driver_state<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce(&AllocUcontextResp) -> Result<T>,
    ) -> Result<Arc<T>> {
        let answer = self.0.driver.mlx5().ok_or_else(|| {
            let text = "the device is of another driver";
            Error::new("open_device", ErrorKind::NotSupported, text)
        })?;
        self.0.driver_state.get_or_make(|| make(answer))
    }

    /// Sends a command that has a method of its own.
    pub(crate) fn method(
        &self,
        object: u16,
        method: u16,
        attrs: &mut [Attr<'_>],
    ) -> io::Result<()> {
        self.check_own()?;
        let command = IoctlCommand {
            object,
            method,
            driver_id: self.0.device.driver.id(),
            attrs,
        };
        match self.0.support.form {
            Form::Ioctl => self.kernel().ioctl_command(self.fd(), command),
            Form::Write { .. } => write_form::carry_out(&**self.kernel(), self.fd(), command),
        }
    }

    /// Whether the kernel takes commands by `write()` only.
    pub(super) fn is_written(&self) -> bool {
        matches!(self.0.support.form, Form::Write { .. })
    }

    /// Sends a command by `write()`.
    pub(super) fn write(&self, message: Message<'_>) -> io::Result<()> {
        self.check_own()?;
        let to = Destination {
            kernel: &**self.kernel(),
            fd: self.fd(),
        };
        message.send(to)
    }

    /// The descriptor that the kernel made for asynchronous events together with the context. There
    /// is none where each stream is made by a command of its own.
    pub(super) fn only_events(&self) -> Option<&Arc<OwnedFd>> {
        match &self.0.support.form {
            Form::Ioctl => None,
            Form::Write { events } => Some(events),
        }
    }
}

/// How the kernel takes commands.
#[derive(Debug)]
enum Form {
    Ioctl,
    /// By `write()`. The one descriptor for asynchronous events is there from the beginning.
    Write {
        events: Arc<OwnedFd>,
    },
}

/// What the kernel says when it makes its side of a context.
#[derive(Debug)]
struct Support {
    completion_vectors: u32,
    /// [`CoreSupport`].
    core: u64,
    form: Form,
}

/// Makes the kernel's side of a context, with the driver's request and room for its answer.
fn get_context(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    driver_id: u32,
    driver: &mut DriverContext,
) -> io::Result<Support> {
    let (request, answer) = driver.parts();
    let made = get_context_by_ioctl(kernel, fd, driver_id, request, answer);
    match made {
        Err(error) if is_older_kernel(&error) => {
            let to = Destination { kernel, fd };
            let response = answer;
            let driver = DriverPart::Exchange { request, response };
            let (completion_vectors, events) = write_form::get_context(to, driver)?;
            let events = Arc::new(events);
            Ok(Support {
                completion_vectors,
                core: CoreSupport::empty().bits(),
                form: Form::Write { events },
            })
        }
        made => made,
    }
}

/// Whether the kernel knows nothing of the ioctl, or not this command of it: then it has the others
/// neither.
fn is_older_kernel(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTTY | libc::EPROTONOSUPPORT)
    )
}

/// Without a descriptor for asynchronous events, which is made when somebody wants to read them.
fn get_context_by_ioctl(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    driver_id: u32,
    request: &[u8],
    answer: &mut [u8],
) -> io::Result<Support> {
    use ioctl::device::get_context as attr;
    let (mut completion_vectors, mut core) = (0u32, 0u64);
    let vectors = completion_vectors.as_mut_bytes();
    let mut attrs = vec![
        Attr::new(attr::NUM_COMP_VECTORS, Value::Out(vectors)),
        Attr::new(attr::CORE_SUPPORT, Value::Out(core.as_mut_bytes())),
    ];
    if !request.is_empty() {
        attrs.push(Attr::new(ioctl::UHW_IN, Value::In(request)));
    }
    if !answer.is_empty() {
        attrs.push(Attr::new(ioctl::UHW_OUT, Value::Out(answer)));
    }
    kernel.ioctl_command(
        fd,
        IoctlCommand {
            object: ioctl::object::DEVICE,
            method: ioctl::device::GET_CONTEXT,
            driver_id,
            attrs: &mut attrs,
        },
    )?;
    Ok(Support {
        completion_vectors,
        core,
        form: Form::Ioctl,
    })
}

/// A node that was replaced while we looked is not the device we were asked for.
fn check_node(kernel: &dyn Kernel, fd: BorrowedFd<'_>, path: &Path, device: &Device) -> Result<()> {
    let found = kernel
        .device_number(fd)
        .map_err(|e| Error::from_os("open_device", &e))?;
    let right = match (found, device.node_number) {
        (None, _) => false,
        (Some(found), Some(expected)) => found == expected,
        (Some(_), None) => true,
    };
    if right {
        return Ok(());
    }
    Err(Error::new(
        "open_device",
        ErrorKind::NoDevice,
        format!(
            "{} is not the character device of {}; list the devices again",
            path.display(),
            device.name
        ),
    ))
}

fn explain_open(path: &Path, device: &Device, error: &io::Error) -> Error {
    let name = &device.name;
    let text = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => format!(
            "the kernel has {name} but {} is missing or dead: in a container, pass the node in; \
             elsewhere, check udev",
            path.display()
        ),
        Some(libc::EACCES) => format!(
            "no permission on {}: open it to the user or the group rdma",
            path.display()
        ),
        // The mode of the node is not what is wrong.
        Some(libc::EPERM) => format!(
            "{} is kept from this process: {name} is of another network namespace (`rdma system` shows \
             whether devices are), or the container's rules for devices leave it out",
            path.display()
        ),
        _ => format!("{} cannot be opened", path.display()),
    };
    let described = Error::from_os("open_device", error).because(text);
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO) => described.of_kind(ErrorKind::NoDevice),
        _ => described,
    }
}
