//! A kernel that plays a recording back.
//!
//! It stands behind [`Kernel`] in place of the running one and expects the commands of a recording
//! in their order. Each is compared byte for byte, except for the addresses that the recording
//! masks, and answered with what was answered then. [`Replay::finish`] tells every difference.

mod compare;
pub(crate) mod vectors;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::PollFd;
use rdmacm_kernel_abi::uverbs::{CmdHeader, Command, ioctl};
use serde_json::Value as Json;
use zerocopy::FromBytes;

use super::{
    DOORBELL_LENGTH, DoorbellCommand, IoctlCommand, Kernel, Linux, LocalService, MapFor, Question,
    WriteCommand,
};
use compare::{Written, answer_attributes, answer_core, fill, refusal};
use vectors::number;

/// The kernel.
#[derive(Debug, Default)]
pub(crate) struct Replay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    expected: VecDeque<Json>,
    differences: Vec<String>,
    /// The files of sysfs.
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    /// Queues are destroyed as the library likes.
    ignores_destroys: bool,
}

impl Replay {
    /// A kernel that expects these commands.
    pub(crate) fn new(commands: impl IntoIterator<Item = Json>) -> Arc<Self> {
        let kernel = Self::default();
        kernel.expect(commands);
        Arc::new(kernel)
    }

    /// Expects further commands behind those that are left.
    pub(crate) fn expect(&self, commands: impl IntoIterator<Item = Json>) {
        self.state().expected.extend(commands);
    }

    /// Has queues destroyed at any time, which the recordings of many do not tell.
    pub(crate) fn ignore_destroys(&self) {
        self.state().ignores_destroys = true;
    }

    /// Adds a file of sysfs.
    pub(crate) fn add_file(&self, path: &str, text: &str) {
        let mut state = self.state();
        state.files.insert(path.to_owned(), text.to_owned());
    }

    /// Adds a symbolic link of sysfs.
    pub(crate) fn add_link(&self, path: &str, target: &str) {
        let mut state = self.state();
        state.links.insert(path.to_owned(), target.to_owned());
    }

    /// Adds the files of a device at uverbs0, which netlink does not tell of.
    pub(crate) fn add_device(&self, name: &str, link_layer: &str) {
        let node = "/sys/class/infiniband_verbs/uverbs0";
        let device = format!("/sys/class/infiniband/{name}");
        self.add_file(&format!("{node}/ibdev"), name);
        self.add_file(&format!("{node}/dev"), "231:192");
        self.add_file(&format!("{device}/node_type"), "1: CA");
        self.add_file(&format!("{device}/node_guid"), "babe:ef00:0000:0001");
        self.add_file(&format!("{device}/ports/1/link_layer"), link_layer);
    }

    /// What was sent that was not expected, and what was expected and not sent.
    pub(crate) fn differences(&self) -> Vec<String> {
        let state = self.state();
        let left = state.expected.iter();
        let left = left.map(|command| format!("not sent: {}", command["name"]));
        state.differences.iter().cloned().chain(left).collect()
    }

    /// Fails unless the recording was followed to its end.
    #[track_caller]
    pub(crate) fn finish(&self) {
        let differences = self.differences();
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A descriptor that is good for nothing but being closed.
fn some_descriptor() -> OwnedFd {
    File::open("/dev/null").expect("a descriptor").into()
}

/// Whether a command destroys a queue.
fn is_written_destroy(request: &[u8]) -> bool {
    let command = CmdHeader::read_from_prefix(request).map(|(header, _)| Command(header.command));
    matches!(
        command,
        Ok(Command::DESTROY_CQ | Command::DESTROY_QP | Command::DESTROY_SRQ)
    )
}

fn is_destroy((object, method): (u16, u16)) -> bool {
    matches!(
        (object, method),
        (ioctl::object::CQ, ioctl::cq::DESTROY)
            | (ioctl::object::QP, ioctl::qp::DESTROY)
            | (ioctl::object::SRQ, ioctl::srq::DESTROY)
    )
}

impl State {
    /// The next command of the recording, which must be one of this kind.
    fn next(&mut self, what: &str, is_it: impl Fn(&Json) -> bool) -> io::Result<Json> {
        match self.expected.pop_front() {
            Some(next) if is_it(&next) => Ok(next),
            Some(next) => {
                let error = self.differ(format!("{} was expected, not {what}", next["name"]));
                self.expected.push_front(next);
                Err(error)
            }
            None => Err(self.differ(format!("nothing more was expected, not {what}"))),
        }
    }

    fn differ(&mut self, text: String) -> io::Error {
        self.differences.push(text);
        io::Error::from_raw_os_error(libc::EINVAL)
    }
}

impl Kernel for Replay {
    fn open(&self, _path: &Path) -> io::Result<OwnedFd> {
        Ok(some_descriptor())
    }

    fn device_number(&self, _fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        Ok(Some(libc::makedev(231, 192)))
    }

    fn write_command(&self, _fd: BorrowedFd<'_>, command: WriteCommand<'_>) -> io::Result<()> {
        let mut state = self.state();
        if state.ignores_destroys && is_written_destroy(command.request) {
            return Ok(());
        }
        let number = CmdHeader::read_from_prefix(command.request).map(|(header, _)| header.command);
        let what = format!("the written command {number:?}");
        let recorded = state.next(&what, |next| next["via"] == "write")?;
        let mut none = [];
        let (address_at, room) = command.response.unwrap_or((0, &mut none));
        let Some(sent) = Written::parse(command.request, room.len(), &recorded) else {
            return Err(state.differ(format!("{}: the counts do not add up", recorded["name"])));
        };
        // The older commands begin with the address, the newer ones have it in their header.
        if !room.is_empty() && address_at != size_of::<CmdHeader>() {
            let text = format!("{}: the answer's address at {address_at}", recorded["name"]);
            state.differ(text);
        }
        let (number, length) = (sent.command, sent.answer);
        state.compare_written(&recorded, &sent)?;
        let (core, driver) = room.split_at_mut(length);
        fill(driver, &recorded["uhw_out"]);
        answer_core(number, core, &recorded);
        if let Some((_, fd)) = command.new_fd {
            *fd = Some(some_descriptor());
        }
        Ok(())
    }

    fn doorbell(
        self: Arc<Self>,
        _request: [u8; DOORBELL_LENGTH],
        _answer_at: usize,
    ) -> Box<dyn DoorbellCommand> {
        unreachable!("no recorded device has a doorbell that is a command")
    }

    fn ioctl_command(&self, _fd: BorrowedFd<'_>, command: IoctlCommand<'_, '_>) -> io::Result<()> {
        let mut state = self.state();
        let this = (command.object, command.method);
        if state.ignores_destroys && is_destroy(this) {
            return Ok(());
        }
        // A kernel of written commands does not know the ioctl.
        if state
            .expected
            .front()
            .is_some_and(|next| next["via"] == "write")
        {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        if this == (ioctl::object::DEVICE, ioctl::device::INVOKE_WRITE) {
            return state.invoke_write(command.attrs);
        }
        let recorded = state.next(&format!("the ioctl {this:?}"), |next| {
            (&next["object"], &next["method"]) == (&Json::from(this.0), &Json::from(this.1))
        })?;
        state.compare_attributes(&recorded, command.attrs);
        refusal(&recorded)?;
        answer_attributes(&recorded, command.attrs);
        Ok(())
    }

    fn read(&self, _fd: BorrowedFd<'_>, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    fn set_nonblocking(&self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Nothing ever comes: no test waits.
    fn poll(&self, _fds: &mut [PollFd<'_>], _timeout: Option<Duration>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Memory of the process's own in place of the device's.
    fn map_device(
        &self,
        _fd: BorrowedFd<'_>,
        length: usize,
        offset: u64,
        purpose: MapFor,
    ) -> io::Result<NonNull<u8>> {
        let mut state = self.state();
        let protection = match purpose {
            MapFor::ReadingAndWriting => libc::PROT_READ | libc::PROT_WRITE,
            MapFor::Writing => libc::PROT_WRITE,
        };
        let ours = [length as u64, protection as u64, offset];
        state.next(&format!("a mapping {ours:#x?}"), |next| {
            let fields = ["length", "prot", "offset"];
            next["name"] == "mmap" && fields.map(|field| number(&next[field])) == ours
        })?;
        Linux.map_memory(length)
    }

    fn map_memory(&self, length: usize) -> io::Result<NonNull<u8>> {
        Linux.map_memory(length)
    }

    unsafe fn unmap(&self, address: NonNull<u8>, length: usize) {
        // SAFETY: every mapping is one of the running kernel's, and the caller is done with it.
        unsafe { Linux.unmap(address, length) };
    }

    fn netlink(
        &self,
        _requests: &[u8],
        _count: usize,
        _each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPROTONOSUPPORT))
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        let state = self.state();
        let text = path.to_str().and_then(|path| state.files.get(path));
        text.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        let state = self.state();
        let target = path.to_str().and_then(|path| state.links.get(path));
        let target = target.ok_or(io::ErrorKind::NotFound)?;
        Ok(target.into())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        let files = state.files.keys();
        let below = files.filter_map(|file| Path::new(file).strip_prefix(path).ok());
        let names = below.filter_map(|rest| rest.iter().next());
        let names: BTreeSet<String> = names.map(|name| name.to_string_lossy().into()).collect();
        match names.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(names.into_iter().collect()),
        }
    }

    fn ask_service(
        &self,
        _service: LocalService<'_>,
        _question: &Question<'_>,
    ) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn locked_memory_limit(&self) -> Option<u64> {
        None
    }
}
