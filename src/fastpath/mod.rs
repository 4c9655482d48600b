//! The data path: queues that the process and the device share in memory.
//!
//! Requests are written into a mapped ring and completions are read out of one; the kernel is
//! entered only to ring a doorbell, and only where the device has no doorbell of its own. Nothing
//! here locks or allocates after a queue is made.
//!
//! [`request`] says what can be posted, [`completion`] what comes back. [`queues`] are the queues,
//! whoever's they are; [`setup`] makes them as the driver of the device wants them: [`rxe`], [`siw`]
//! and [`mlx5`]. [`provider`] says what a driver does not have.

mod completion;
mod copy;
mod doorbell;
mod known;
mod mlx5;
mod provider;
mod qp_type;
mod queues;
mod request;
mod resize;
mod rxe;
mod setup;
mod siw;

pub use completion::{Completion, CompletionStatus, Failure, GRH_LENGTH, Opcode, Success};
use doorbell::Doorbell;
pub(crate) use known::Known;
#[cfg(any(test, fuzzing))]
pub use mlx5::fuzzing::mlx5_completions;
#[cfg(test)]
pub(crate) use mlx5::use_as_in;
pub(crate) use provider::{Provider, RegionNote};
pub use qp_type::{QpFlags, QpType};
pub(crate) use queues::{Building, CompletionQueue, RecvQueue, SendQueue, Unfinished};
pub(crate) use request::{Datagram, Flush, Handle, Operation, Payload, Request, WindowBind};
pub use request::{FlushPlacement, PostError, RemoteAddress, Segment, SendFlags};
pub(crate) use resize::{CqResize, SrqResize};
pub(crate) use setup::{AhSetup, CqSetup, QpMade, QpQueues, QpSetup, QpWish, SrqSetup, SrqSize};
