//! XRC domains.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;

use crate::device::{Context, KernelObject, ObjectKind};
use crate::error::{Error, ErrorKind, Result};

/// An XRC domain: queue pairs of type [`QpType::XrcRecv`](crate::QpType::XrcRecv) receive into any
/// shared receive queue of their domain.
///
/// This one is private to the process. It lives as long as this handle or an object made in it.
#[doc(alias = "ibv_xrcd")]
#[derive(Debug)]
pub struct Xrcd {
    object: Arc<KernelObject>,
}

impl Context {
    /// Makes an XRC domain.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotSupported`] on a device without XRC, as rxe is.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self) -> Result<Xrcd> {
        let request = uverbs::OpenXrcd {
            response: 0,
            // Of no file, so that nobody else can open it.
            fd: u32::MAX,
            oflags: libc::O_CREAT as u32,
        };
        let response: uverbs::OpenXrcdResp = self
            .command(uverbs::Command::OPEN_XRCD, &request)
            .map_err(|error| {
                let error = Error::from_os("open_xrcd", &error);
                match error.kind() {
                    ErrorKind::NotSupported => {
                        let name = self.device().name();
                        error.because(format!("{name} has no extended reliable connections (XRC)"))
                    }
                    _ => error,
                }
            })?;
        let kind = ObjectKind::XrcDomain;
        let object = KernelObject::new(kind, self, response.xrcd_handle, Vec::new());
        Ok(Xrcd {
            object: Arc::new(object),
        })
    }
}

impl Xrcd {
    /// The device of the domain.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Closes the domain now.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a queue pair or shared receive queue uses it; it is then closed after the last
    /// of them.
    #[doc(alias = "ibv_close_xrcd")]
    pub fn close(self) -> Result<()> {
        self.object.destroy().map(drop)
    }

    pub(super) fn object(&self) -> &Arc<KernelObject> {
        &self.object
    }
}
