//! The data path: queues that the process and the device share in memory.
//!
//! Requests are written into a mapped ring and completions are read out of one; the kernel is
//! entered only to ring a doorbell, and only where the device has no doorbell of its own. Nothing
//! here locks or allocates after a queue is made.
//!
//! [`request`] says what can be posted, [`completion`] what comes back. [`ring`] is the ring that
//! rxe shares with the kernel, [`rxe`] what it keeps in it.

mod completion;
mod qp_type;
mod request;
mod ring;
pub(crate) mod rxe;

#[cfg(test)]
mod tests;

pub use completion::{Completion, CompletionStatus, Failure, GRH_LENGTH, Opcode, Success};
pub use qp_type::QpType;
pub(crate) use request::{Datagram, Flush, Operation, Payload, Request, WindowBind};
pub use request::{FlushPlacement, PostError, RemoteAddress, Segment, SendFlags};
