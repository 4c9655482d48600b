//! The driver's part of changing the depth of a queue that exists.
//!
//! The kernel moves what is in the queue to new memory, which is to be mapped in place of the old.

use rdmacm_kernel_abi::rxe as rxe_abi;
use zerocopy::IntoBytes;

use super::provider::Provider;
use super::queues::{CompletionQueue, RecvQueue};
use super::rxe;
use crate::device::{Context, DriverPart};
use crate::error::{Error, ErrorKind, Result};

/// The driver's part of resizing a completion queue.
#[derive(Debug)]
pub(crate) enum CqResize {
    Rxe(rxe_abi::ResizeCqResp),
}

impl CqResize {
    /// # Errors
    ///
    /// For a driver whose queues stay as they are.
    pub(crate) fn new(provider: Provider) -> Result<Self> {
        match provider {
            Provider::Rxe => Ok(Self::Rxe(Default::default())),
            Provider::Siw => Err(fixed("resize_cq")),
        }
    }

    pub(crate) fn part(&mut self) -> DriverPart<'_> {
        match self {
            Self::Rxe(answer) => DriverPart::Exchange {
                request: &[],
                response: answer.as_mut_bytes(),
            },
        }
    }

    /// Maps the queue's new memory.
    pub(crate) fn queue(&self, context: &Context) -> Result<CompletionQueue> {
        match self {
            Self::Rxe(answer) => rxe::map_cq(answer.mi, context).map(CompletionQueue::Rxe),
        }
    }
}

/// The driver's part of resizing a shared receive queue.
#[derive(Debug)]
pub(crate) enum SrqResize {
    Rxe(rxe_abi::MmapInfo),
}

impl SrqResize {
    /// # Errors
    ///
    /// For a driver whose queues stay as they are.
    pub(crate) fn new(provider: Provider) -> Result<Self> {
        match provider {
            Provider::Rxe => Ok(Self::Rxe(Default::default())),
            Provider::Siw => Err(fixed("modify_srq")),
        }
    }

    pub(crate) fn part(&mut self) -> DriverPart<'_> {
        match self {
            Self::Rxe(answer) => DriverPart::Address(answer.as_mut_bytes()),
        }
    }

    /// Maps the queue's new memory; its receives have up to `max_segments` segments.
    pub(crate) fn queue(&self, context: &Context, max_segments: u32) -> Result<RecvQueue> {
        match self {
            Self::Rxe(info) => rxe::map_srq(*info, context, max_segments).map(RecvQueue::Rxe),
        }
    }
}

fn fixed(operation: &'static str) -> Error {
    Error::new(
        operation,
        ErrorKind::NotSupported,
        "the queues of the device keep the depth that they were made with",
    )
}
