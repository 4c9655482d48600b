//! The one interface over the providers: which driver's queues a device has is decided here, when
//! a queue is made, and what a driver does not have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rdmacm_kernel_abi::{mlx5 as mlx5_abi, rxe as rxe_abi, siw as siw_abi};
use zerocopy::IntoBytes;

use super::{QpFlags, QpType, mlx5, rxe, siw};
use crate::device::{Context, Driver};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::Mapping;
pub(crate) use mlx5::RegionNote;

/// A driver whose queues this crate works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    Rxe,
    Siw,
    Mlx5,
}

impl Provider {
    /// The provider of an open device.
    ///
    /// # Errors
    ///
    /// For a driver without one; such a device is not opened.
    pub(crate) fn of(context: &Context) -> Result<Self> {
        match context.device().driver() {
            Driver::Rxe => Ok(Self::Rxe),
            Driver::Siw => Ok(Self::Siw),
            Driver::Mlx5 => Ok(Self::Mlx5),
            other => Err(Error::new(
                "open_device",
                ErrorKind::NotSupported,
                format!("the queues of {other} are not known to this crate"),
            )),
        }
    }

    /// The most bytes that one request can carry inline.
    pub(crate) fn max_inline(self) -> u32 {
        match self {
            Self::Rxe => rxe::MAX_INLINE,
            Self::Siw => siw::MAX_INLINE,
            // It depends on the other sizes; the setup says.
            Self::Mlx5 => u32::MAX,
        }
    }

    /// The most segments of a receive, on a device that allows so many in general.
    pub(crate) fn most_receive_segments(self, in_general: u32) -> u32 {
        match self {
            Self::Rxe | Self::Siw => in_general,
            // A receive has more room than a request; the setup says.
            Self::Mlx5 => u32::MAX,
        }
    }

    /// Whether the driver can have queue pairs of the type; the kernel may know better.
    pub(crate) fn has_qp_type(self, qp_type: QpType) -> bool {
        match self {
            Self::Rxe => true,
            Self::Siw => qp_type == QpType::Rc,
            Self::Mlx5 => matches!(qp_type, QpType::Rc | QpType::Uc | QpType::Ud),
        }
    }

    /// Whether the kernel is told the sizes that were asked for also of queues that a queue pair does
    /// not have. It takes no notice of them, but the C provider does it.
    pub(crate) fn is_told_all_sizes(self) -> bool {
        self == Self::Mlx5
    }

    /// The fewest requests that the queue of a queue pair which can send is made for.
    pub(crate) fn least_sends(self) -> u32 {
        match self {
            Self::Rxe | Self::Mlx5 => 0,
            Self::Siw => 1,
        }
    }

    /// What can be special about queue pairs of the driver.
    pub(crate) fn qp_flags(self) -> QpFlags {
        match self {
            Self::Rxe | Self::Siw => QpFlags::empty(),
            Self::Mlx5 => QpFlags::BLOCK_SELF_MCAST_LB,
        }
    }

    /// Bytes of the driver's answer to making a protection domain: mlx5 insists on telling the device's
    /// number, which nothing asks for.
    pub(crate) fn pd_answer_length(self) -> usize {
        match self {
            Self::Rxe | Self::Siw => 0,
            Self::Mlx5 => size_of::<mlx5_abi::AllocPdResp>(),
        }
    }

    /// The driver's part of a registration.
    pub(crate) fn registration(self) -> Registration {
        match self {
            Self::Rxe | Self::Mlx5 => Registration::None,
            Self::Siw => Registration::Siw {
                request: siw_abi::UreqRegMr {
                    stag_key: next_key(),
                    ..Default::default()
                },
                answer: siw_abi::UrespRegMr::default(),
            },
        }
    }

    /// Notes memory that a peer or a receive may write, where the library may have to do it in the
    /// device's place: `length` bytes from `address` on, which requests name by `iova`. The note is
    /// to be dropped after the registration ends and before the memory is given back.
    pub(crate) fn note_region(
        self,
        context: &Context,
        lkey: u32,
        (iova, address, length): (u64, u64, u64),
    ) -> Result<Option<RegionNote>> {
        match self {
            Self::Rxe | Self::Siw => Ok(None),
            Self::Mlx5 => mlx5::note_region(context, lkey, (iova, address, length)).map(Some),
        }
    }

    /// The driver's part of a change of a shared receive queue that does not touch its size.
    pub(crate) fn srq_change(self) -> &'static [u8] {
        // rxe wants the bytes though it does not read them.
        const RXE: [u8; size_of::<rxe_abi::ModifySrqCmd>()] = [0; _];
        match self {
            Self::Rxe => &RXE,
            Self::Siw | Self::Mlx5 => &[],
        }
    }
}

/// The low byte of the next key: another one each time, so that a key which is used after its
/// region is gone leads nowhere.
fn next_key() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The driver's part of a registration of memory.
#[derive(Debug)]
pub(crate) enum Registration {
    None,
    Siw {
        request: siw_abi::UreqRegMr,
        answer: siw_abi::UrespRegMr,
    },
}

impl Registration {
    /// What goes to the driver, and room for its answer.
    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        match self {
            Self::None => (&[], &mut []),
            Self::Siw { request, answer } => (request.as_bytes(), answer.as_mut_bytes()),
        }
    }
}

/// Maps a queue of a device.
pub(super) fn map(context: &Context, length: usize, offset: u64) -> Result<Arc<Mapping>> {
    context
        .map(length, offset)
        .map(Arc::new)
        .map_err(|error| Error::from_os("map_queue", &error))
}

/// The error for a queue that the kernel describes and that cannot be so.
pub(super) fn bad_queue(text: String) -> Error {
    Error::new("map_queue", ErrorKind::Protocol, text)
}
