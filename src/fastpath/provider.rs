//! The one interface over the providers: which driver's queues a device has is decided here, when
//! a queue is made.
//!
//! A driver has a part of its own in the commands that make queues. A setup is that part: it goes
//! to the kernel with the command, comes back filled in, and becomes the queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rdmacm_kernel_abi::uverbs::ioctl::QpCap;
use rdmacm_kernel_abi::{rxe as rxe_abi, siw as siw_abi};
use zerocopy::{FromBytes, IntoBytes};

use super::queues::{CompletionQueue, RecvQueue, SendQueue};
use super::{QpFlags, QpType, rxe, siw};
use crate::device::{Context, Driver};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::Mapping;

/// A driver whose queues this crate works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    Rxe,
    Siw,
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
        }
    }

    /// Whether the driver can have queue pairs of the type; the kernel may know better.
    pub(crate) fn has_qp_type(self, qp_type: QpType) -> bool {
        match self {
            Self::Rxe => true,
            Self::Siw => qp_type == QpType::Rc,
        }
    }

    /// The fewest requests that the queue of a queue pair which can send is made for.
    pub(crate) fn least_sends(self) -> u32 {
        match self {
            Self::Rxe => 0,
            Self::Siw => 1,
        }
    }

    /// What can be special about queue pairs of the driver.
    pub(crate) fn qp_flags(self) -> QpFlags {
        match self {
            Self::Rxe | Self::Siw => QpFlags::empty(),
        }
    }

    /// The driver's part of a registration.
    pub(crate) fn registration(self) -> Registration {
        match self {
            Self::Rxe => Registration::None,
            Self::Siw => Registration::Siw {
                request: siw_abi::UreqRegMr {
                    stag_key: next_key(),
                    ..Default::default()
                },
                answer: siw_abi::UrespRegMr::default(),
            },
        }
    }

    /// The driver's part of a change of a shared receive queue that does not touch its size.
    pub(crate) fn srq_change(self) -> &'static [u8] {
        // rxe wants the bytes though it does not read them.
        const RXE: [u8; size_of::<rxe_abi::ModifySrqCmd>()] = [0; _];
        match self {
            Self::Rxe => &RXE,
            Self::Siw => &[],
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

/// What the kernel granted a queue pair, for making its queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QpMade<'a> {
    pub context: &'a Context,
    pub handle: u32,
    pub cap: &'a QpCap,
    pub has_send_queue: bool,
    pub has_own_receive_queue: bool,
    /// Whether each request completes visibly, asked for or not.
    pub signal_all: bool,
}

/// The queues that a queue pair has of its own.
#[derive(Debug)]
pub(crate) struct QpQueues {
    pub send: Option<SendQueue>,
    pub recv: Option<RecvQueue>,
    /// The memory behind them.
    pub memory: Vec<Arc<Mapping>>,
}

/// What a driver answers to the command that makes a queue.
#[derive(Debug)]
pub(crate) enum Setup<Rxe, Siw> {
    Rxe(Rxe),
    Siw(Siw),
}

impl<Rxe, Siw> Setup<Rxe, Siw>
where
    Rxe: Default + FromBytes + IntoBytes,
    Siw: Default + FromBytes + IntoBytes,
{
    pub(crate) fn new(provider: Provider) -> Self {
        match provider {
            Provider::Rxe => Self::Rxe(Rxe::default()),
            Provider::Siw => Self::Siw(Siw::default()),
        }
    }

    /// Room for the driver's answer.
    pub(crate) fn answer(&mut self) -> &mut [u8] {
        match self {
            Self::Rxe(answer) => answer.as_mut_bytes(),
            Self::Siw(answer) => answer.as_mut_bytes(),
        }
    }
}

pub(crate) type QpSetup = Setup<rxe_abi::CreateQpResp, siw_abi::UrespCreateQp>;
pub(crate) type CqSetup = Setup<rxe_abi::CreateCqResp, siw_abi::UrespCreateCq>;
pub(crate) type SrqSetup = Setup<rxe_abi::CreateSrqResp, siw_abi::UrespCreateSrq>;

impl QpSetup {
    /// Maps the queues of the new queue pair.
    pub(crate) fn queues(&self, made: &QpMade<'_>) -> Result<QpQueues> {
        match self {
            Self::Rxe(answer) => rxe::map_qp(answer, made),
            Self::Siw(answer) => siw::map_qp(answer, made),
        }
    }
}

impl CqSetup {
    /// Maps the new completion queue.
    pub(crate) fn queue(&self, context: &Context) -> Result<CompletionQueue> {
        match self {
            Self::Rxe(answer) => rxe::map_cq(answer.mi, context).map(CompletionQueue::Rxe),
            Self::Siw(answer) => siw::map_cq(answer, context).map(CompletionQueue::Siw),
        }
    }
}

impl SrqSetup {
    /// Maps the new shared receive queue, whose receives have up to `max_segments` segments.
    pub(crate) fn queue(&self, context: &Context, max_segments: u32) -> Result<RecvQueue> {
        match self {
            Self::Rxe(answer) => rxe::map_srq(answer.mi, context, max_segments).map(RecvQueue::Rxe),
            Self::Siw(answer) => siw::map_srq(answer, context, max_segments).map(RecvQueue::Siw),
        }
    }
}

/// The driver's part of making an address handle.
#[derive(Debug)]
pub(crate) enum AhSetup {
    Rxe(rxe_abi::CreateAhResp),
}

impl AhSetup {
    /// # Errors
    ///
    /// For a driver without datagrams.
    pub(crate) fn new(provider: Provider) -> Result<Self> {
        match provider {
            Provider::Rxe => Ok(Self::Rxe(Default::default())),
            Provider::Siw => Err(Error::new(
                "create_ah",
                ErrorKind::NotSupported,
                "the device sends no datagrams, and has no address handles",
            )),
        }
    }

    /// Room for the driver's answer.
    pub(crate) fn answer(&mut self) -> &mut [u8] {
        match self {
            Self::Rxe(answer) => answer.as_mut_bytes(),
        }
    }

    /// The number by which a request names the handle.
    pub(crate) fn number(&self) -> Result<u32> {
        match self {
            Self::Rxe(answer) if answer.ah_num == 0 => Err(Error::new(
                "create_ah",
                ErrorKind::NotSupported,
                "the kernel gave the handle no number, as kernels before 5.16 do; this crate needs \
                 6.1 or newer",
            )),
            Self::Rxe(answer) => Ok(answer.ah_num),
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
