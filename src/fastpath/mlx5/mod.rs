//! mlx5, ConnectX-5 and later: queues in the process's own memory, which the device reads and writes
//! itself, and doorbells that are stores to its registers.
//!
//! The kernel is told where queues are ([`setup`]), and takes no part after that. [`card`] is what
//! the objects of an open device share: [`grant`] what the kernel granted, [`registers`] the doorbell
//! registers, [`record`] the doorbell records. [`send_queue`], [`recv_queue`] and
//! [`shared_recv_queue`] write requests ([`wqe`], [`umr`]); [`completion_queue`] reads completions
//! ([`cqe`], [`scatter`]) and finds in [`posted`] whose they are, by way of its [`directory`].
//! [`doorbell`] has the order of it all.

mod address;
mod bits;
mod card;
mod completion_queue;
mod cq_ring;
mod cqe;
mod directory;
mod doorbell;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod grant;
mod posted;
mod queue_memory;
mod record;
mod recv_queue;
mod register;
mod registers;
mod scatter;
mod send_entry;
mod send_queue;
mod setup;
mod shared_recv_queue;
mod sizes;
#[cfg(test)]
mod tests;
mod umr;
mod wqe;

pub(crate) use address::AhSetup;
pub(crate) use completion_queue::CompletionQueue;
pub(crate) use directory::{Directory, Held};
pub(crate) use recv_queue::RecvQueue;
pub(crate) use scatter::{RegionNote, note_region};
pub(crate) use send_queue::{Built, SendQueue};
pub(crate) use setup::{CqResize, CqSetup, QpSetup, SrqSetup};
pub(crate) use shared_recv_queue::SharedRecvQueue;
#[cfg(test)]
pub(crate) use tests::use_as_in;
