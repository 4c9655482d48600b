//! The driver's part of the commands that make queues.
//!
//! A setup is that part: it goes to the kernel with the command, comes back filled in, and becomes
//! the queues.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::AhAttr;
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;
use rdmacm_kernel_abi::{rxe as rxe_abi, siw as siw_abi};
use zerocopy::IntoBytes;

use super::provider::Provider;
use super::queues::{CompletionQueue, RecvQueue, SendQueue};
use super::request::Handle;
use super::{QpType, mlx5, rxe, siw};
use crate::device::{Context, Kept};
use crate::error::{Error, ErrorKind, Result};
use crate::qp_table::QueuePairMemory;

/// What a new queue pair is to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QpWish<'a> {
    pub qp_type: QpType,
    pub cap: QpCap,
    pub send_cq: Option<&'a CompletionQueue>,
    pub recv_cq: Option<&'a CompletionQueue>,
    pub srq: Option<&'a RecvQueue>,
    /// Whether each request completes visibly, asked for or not.
    pub signal_all: bool,
}

/// What the kernel granted a queue pair, for making its queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QpMade<'a> {
    pub context: &'a Context,
    pub handle: u32,
    pub number: u32,
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
    /// What a request may have.
    pub cap: QpCap,
    /// The memory behind them.
    pub memory: Arc<dyn QueuePairMemory>,
}

/// The driver's part of making a queue pair.
#[derive(Debug)]
pub(crate) enum QpSetup {
    Rxe(QpCap, rxe_abi::CreateQpResp),
    Siw(QpCap, siw_abi::UrespCreateQp),
    Mlx5(Box<mlx5::QpSetup>),
}

impl QpSetup {
    /// # Errors
    ///
    /// Where the driver decides on the sizes of queues: for queues that the device does not have.
    pub(crate) fn new(context: &Context, wish: QpWish<'_>) -> Result<Self> {
        match Provider::of(context)? {
            Provider::Rxe => Ok(Self::Rxe(wish.cap, Default::default())),
            Provider::Siw => Ok(Self::Siw(wish.cap, Default::default())),
            Provider::Mlx5 => {
                let setup = mlx5::QpSetup::new(context, wish)?;
                Ok(Self::Mlx5(Box::new(setup)))
            }
        }
    }

    /// The sizes that the kernel is asked for.
    pub(crate) fn cap(&self) -> QpCap {
        match self {
            Self::Rxe(cap, _) | Self::Siw(cap, _) => *cap,
            Self::Mlx5(setup) => setup.cap(),
        }
    }

    /// The memory that the device uses for as long as the object is there.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        match self {
            Self::Rxe(..) | Self::Siw(..) => Vec::new(),
            Self::Mlx5(setup) => setup.kept(),
        }
    }

    /// What goes to the driver, and room for its answer.
    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        match self {
            Self::Rxe(_, answer) => (&[], answer.as_mut_bytes()),
            Self::Siw(_, answer) => (&[], answer.as_mut_bytes()),
            Self::Mlx5(setup) => setup.parts(),
        }
    }

    /// The queues of the new queue pair.
    pub(crate) fn queues(self, made: &QpMade<'_>) -> Result<QpQueues> {
        match self {
            Self::Rxe(_, answer) => rxe::map_qp(&answer, made),
            Self::Siw(_, answer) => siw::map_qp(&answer, made),
            Self::Mlx5(setup) => setup.queues(made),
        }
    }
}

/// The driver's part of making a completion queue.
#[derive(Debug)]
pub(crate) enum CqSetup {
    Rxe(u32, rxe_abi::CreateCqResp),
    Siw(u32, siw_abi::UrespCreateCq),
    Mlx5(Box<mlx5::CqSetup>),
}

impl CqSetup {
    /// # Errors
    ///
    /// Where the driver allocates queues: when there is no memory.
    pub(crate) fn new(context: &Context, entries: u32) -> Result<Self> {
        match Provider::of(context)? {
            Provider::Rxe => Ok(Self::Rxe(entries, Default::default())),
            Provider::Siw => Ok(Self::Siw(entries, Default::default())),
            Provider::Mlx5 => {
                let setup = mlx5::CqSetup::new(context, entries)?;
                Ok(Self::Mlx5(Box::new(setup)))
            }
        }
    }

    /// How many entries the kernel is asked for.
    pub(crate) fn entries(&self) -> u32 {
        match self {
            Self::Rxe(entries, _) | Self::Siw(entries, _) => *entries,
            Self::Mlx5(setup) => setup.entries(),
        }
    }

    /// The memory that the device uses for as long as the object is there.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        match self {
            Self::Rxe(..) | Self::Siw(..) => Vec::new(),
            Self::Mlx5(setup) => setup.kept(),
        }
    }

    /// What goes to the driver, and room for its answer.
    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        match self {
            Self::Rxe(_, answer) => (&[], answer.as_mut_bytes()),
            Self::Siw(_, answer) => (&[], answer.as_mut_bytes()),
            Self::Mlx5(setup) => setup.parts(),
        }
    }

    /// The new completion queue.
    pub(crate) fn queue(self, context: &Context) -> Result<CompletionQueue> {
        match self {
            Self::Rxe(_, answer) => rxe::map_cq(answer.mi, context).map(CompletionQueue::Rxe),
            Self::Siw(_, answer) => siw::map_cq(&answer, context).map(CompletionQueue::Siw),
            Self::Mlx5(setup) => Ok(CompletionQueue::Mlx5(setup.queue())),
        }
    }
}

/// The driver's part of making a shared receive queue.
#[derive(Debug)]
pub(crate) enum SrqSetup {
    Rxe(SrqSize, rxe_abi::CreateSrqResp),
    Siw(SrqSize, siw_abi::UrespCreateSrq),
    Mlx5(Box<mlx5::SrqSetup>),
}

/// How many receives, of how many segments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SrqSize {
    pub max_wr: u32,
    pub max_sge: u32,
}

impl SrqSetup {
    /// # Errors
    ///
    /// Where the driver decides on the sizes of queues: for queues that the device does not have.
    pub(crate) fn new(context: &Context, size: SrqSize) -> Result<Self> {
        match Provider::of(context)? {
            Provider::Rxe => Ok(Self::Rxe(size, Default::default())),
            Provider::Siw => Ok(Self::Siw(size, Default::default())),
            Provider::Mlx5 => {
                let setup = mlx5::SrqSetup::new(context, size.max_wr, size.max_sge)?;
                Ok(Self::Mlx5(Box::new(setup)))
            }
        }
    }

    /// The sizes that the kernel is asked for.
    pub(crate) fn size(&self) -> SrqSize {
        match self {
            Self::Rxe(size, _) | Self::Siw(size, _) => *size,
            Self::Mlx5(setup) => SrqSize {
                max_wr: setup.max_wr(),
                max_sge: setup.max_sge(),
            },
        }
    }

    /// The memory that the device uses for as long as the object is there.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        match self {
            Self::Rxe(..) | Self::Siw(..) => Vec::new(),
            Self::Mlx5(setup) => setup.kept(),
        }
    }

    /// What goes to the driver, and room for its answer.
    pub(crate) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        match self {
            Self::Rxe(_, answer) => (&[], answer.as_mut_bytes()),
            Self::Siw(_, answer) => (&[], answer.as_mut_bytes()),
            Self::Mlx5(setup) => setup.parts(),
        }
    }

    /// The new shared receive queue, whose receives have up to `max_segments` segments.
    pub(crate) fn queue(self, context: &Context, max_segments: u32) -> Result<RecvQueue> {
        match self {
            Self::Rxe(_, answer) => {
                rxe::map_srq(answer.mi, context, max_segments).map(RecvQueue::Rxe)
            }
            Self::Siw(_, answer) => {
                siw::map_srq(&answer, context, max_segments).map(RecvQueue::Siw)
            }
            Self::Mlx5(setup) => Ok(RecvQueue::Mlx5Shared(setup.queue())),
        }
    }
}

/// The driver's part of making an address handle.
#[derive(Debug)]
pub(crate) enum AhSetup {
    Rxe(rxe_abi::CreateAhResp),
    Mlx5(Box<mlx5::AhSetup>),
}

impl AhSetup {
    /// # Errors
    ///
    /// For a driver without datagrams, and where the driver has to look at the path.
    pub(crate) fn new(context: &Context, attr: &AhAttr) -> Result<Self> {
        match Provider::of(context)? {
            Provider::Rxe => Ok(Self::Rxe(Default::default())),
            Provider::Mlx5 => {
                let setup = mlx5::AhSetup::new(context, attr)?;
                Ok(Self::Mlx5(Box::new(setup)))
            }
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
            Self::Mlx5(setup) => setup.answer(),
        }
    }

    /// What requests name the handle by.
    pub(crate) fn handle(&self) -> Result<Handle> {
        match self {
            Self::Rxe(answer) if answer.ah_num == 0 => Err(Error::new(
                "create_ah",
                ErrorKind::NotSupported,
                "the kernel gave the handle no number, as kernels before 5.16 do; this crate needs \
                 6.1 or newer",
            )),
            Self::Rxe(answer) => Ok(Handle::Rxe(answer.ah_num)),
            Self::Mlx5(setup) => setup.vector().map(Handle::Mlx5),
        }
    }
}
