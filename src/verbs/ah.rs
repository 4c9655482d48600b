//! Address handles: where datagrams go.

use rdmacm_kernel_abi::uverbs;

use super::{Path, Pd};
use crate::device::{DriverPart, KernelObject, ObjectKind};
use crate::error::{Error, Result};
use crate::fastpath::{AhSetup, Datagram, Handle};

/// A way to a port, made known to the device: datagrams name it instead of the way itself.
///
/// Keep it until the datagrams that were sent with it are completed. One that the device reaches
/// later moves the queue pair to the error state.
#[doc(alias = "ibv_ah")]
#[derive(Debug)]
pub struct AddressHandle {
    object: KernelObject,
    pd: Pd,
    handle: Handle,
}

/// Who receives a datagram.
#[derive(Debug, Clone, Copy)]
pub struct Destination<'a> {
    /// The way to the receiver's port.
    pub handle: &'a AddressHandle,
    /// Number of the receiver's queue pair; `0xff_ffff` for a multicast group.
    pub qp_num: u32,
    /// The queue key that the receiver's queue pair has
    /// ([`QpModify::qkey`](crate::QpModify::qkey)). The side that asked for the peer finds it in
    /// [`DatagramPeer`](crate::DatagramPeer). The side that was asked hears of none: among ids of a
    /// port space it is that of its own queue pair, [`QpInfo::qkey`](crate::QpInfo::qkey).
    pub qkey: u32,
}

impl Pd {
    /// Makes a way to a port known to the device. Whether anybody is there is not checked.
    ///
    /// ```no_run
    /// # use rdmacm::{Path, Pd, Qp, Result};
    /// # fn example(pd: &Pd, path: &Path, qp: &mut Qp) -> Result<()> {
    /// use rdmacm::Destination;
    ///
    /// let handle = pd.address_handle(path)?;
    /// let to = Destination { handle: &handle, qp_num: 17, qkey: 0x1234_5678 };
    /// let mut batch = qp.send_half().batch();
    /// batch.send_datagram(1, to).signaled().inline(b"hello")?;
    /// batch.submit()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When the port does not exist or its GID table has no such entry, and when the device has no
    /// room for more; on a device without datagrams (iWARP).
    #[doc(alias = "ibv_create_ah")]
    pub fn address_handle(&self, path: &Path) -> Result<AddressHandle> {
        let operation = "create_ah";
        let context = self.context();
        let attr = path.to_kernel();
        let mut setup = AhSetup::new(context, &attr)?;
        let response: uverbs::CreateAhResp = self.with_handle(operation, |pd_handle| {
            let request = uverbs::CreateAh {
                pd_handle,
                attr,
                ..Default::default()
            };
            let driver = DriverPart::Exchange {
                request: &[],
                response: setup.answer(),
            };
            context
                .command_with_driver(uverbs::Command::CREATE_AH, &request, driver)
                .map_err(|error| explain(path, &error))
        })?;
        let kind = ObjectKind::AddressHandle;
        let object = KernelObject::new(kind, context, response.ah_handle, self.parents());
        Ok(AddressHandle {
            object,
            pd: self.clone(),
            handle: setup.handle()?,
        })
    }
}

impl AddressHandle {
    /// Gives the handle back now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "ibv_destroy_ah")]
    pub fn destroy(self) -> Result<()> {
        self.object.destroy().map(drop)
    }

    /// The protection domain that it was made in.
    pub fn pd(&self) -> &Pd {
        &self.pd
    }
}

impl<'a> Destination<'a> {
    pub(super) fn to_request(self) -> Datagram<'a> {
        Datagram {
            handle: &self.handle.handle,
            qp_num: self.qp_num,
            qkey: self.qkey,
        }
    }
}

fn explain(path: &Path, error: &std::io::Error) -> Error {
    let described = Error::from_os("create_ah", error);
    match error.raw_os_error() {
        Some(libc::EINVAL) => described.because(format!(
            "there is no port {} with an entry {} in its GID table, or no way from there to {}",
            path.port, path.source_gid_index, path.gid
        )),
        _ => described,
    }
}
