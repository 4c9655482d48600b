//! The driver's part of changing the depth of a queue that exists.
//!
//! What is in the queue goes to new memory. rxe's kernel moves it, and tells what to map in place of
//! the old; of mlx5 the library allocates the new memory and moves it itself.

use rdmacm_kernel_abi::rxe as rxe_abi;
use zerocopy::IntoBytes;

use super::provider::Provider;
use super::queues::{CompletionQueue, RecvQueue};
use super::{mlx5, rxe};
use crate::device::{Context, DriverPart};
use crate::error::{Error, ErrorKind, Result};

/// The driver's part of resizing a completion queue.
#[derive(Debug)]
pub(crate) enum CqResize {
    Rxe(u32, rxe_abi::ResizeCqResp),
    Mlx5(Box<mlx5::CqResize>),
}

impl CqResize {
    /// # Errors
    ///
    /// For a driver whose queues stay as they are, and when there is no memory.
    pub(crate) fn new(context: &Context, entries: u32) -> Result<Self> {
        match Provider::of(context)? {
            Provider::Rxe => Ok(Self::Rxe(entries, Default::default())),
            Provider::Mlx5 => {
                let resize = mlx5::CqResize::new(context, entries)?;
                Ok(Self::Mlx5(Box::new(resize)))
            }
            Provider::Siw => Err(fixed("resize_cq")),
        }
    }

    /// Whether the queue would be another. Where it would not, mlx5's kernel does nothing and leaves
    /// the queue in its old memory.
    pub(crate) fn changes(&self, queue: &CompletionQueue) -> bool {
        match (self, queue) {
            (Self::Mlx5(resize), CompletionQueue::Mlx5(queue)) => resize.entries() != queue.depth(),
            _ => true,
        }
    }

    /// How many entries the kernel is asked for.
    pub(crate) fn entries(&self) -> u32 {
        match self {
            Self::Rxe(entries, _) => *entries,
            Self::Mlx5(resize) => resize.entries(),
        }
    }

    pub(crate) fn part(&mut self) -> DriverPart<'_> {
        match self {
            Self::Rxe(_, answer) => DriverPart::Exchange {
                request: &[],
                response: answer.as_mut_bytes(),
            },
            Self::Mlx5(resize) => resize.part(),
        }
    }

    /// Moves the queue to its new memory, after the kernel has made the change. `held` is what the
    /// queue was held by before it.
    ///
    /// # Errors
    ///
    /// When the memory cannot be mapped; what is left of the completions in the old is not to be polled
    /// a second time.
    pub(crate) fn finish(
        self,
        context: &Context,
        queue: &mut CompletionQueue,
        held: Option<mlx5::Held<'_>>,
    ) -> Result<()> {
        match (self, queue, held) {
            (Self::Rxe(_, answer), queue, _) => {
                *queue = CompletionQueue::Unmapped;
                *queue = CompletionQueue::Rxe(rxe::map_cq(answer.mi, context)?);
                Ok(())
            }
            (Self::Mlx5(resize), CompletionQueue::Mlx5(queue), Some(held)) => {
                resize.move_queue(queue, held)
            }
            (Self::Mlx5(_), ..) => Ok(()),
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
            Provider::Siw | Provider::Mlx5 => Err(fixed("modify_srq")),
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
