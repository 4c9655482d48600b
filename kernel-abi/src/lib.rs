//! Structures and numbers of the Linux RDMA user interface.
//!
//! Everything user space exchanges with the kernel's RDMA code is described here, and nowhere
//! else in the project: the connection manager ([`ucma`]), verbs by `write()` and by `ioctl()`
//! ([`uverbs`]), device discovery ([`netlink`]), socket addresses ([`sockaddr`]), and the memory
//! shared with three drivers ([`rxe`], [`siw`], [`mlx5`]).
//!
//! # Rules
//!
//! * A structure is named after the kernel's, without the prefix its module stands for; fields
//!   keep the kernel's names, with `_` appended to Rust keywords.
//! * Structures have no implicit padding and accept every bit pattern, so they can be viewed as
//!   bytes and back without `unsafe`.
//! * A C union is an array of words, and each of its members is a structure of its own.
//! * Big-endian fields use the types of [`zerocopy::byteorder::big_endian`]; every other integer
//!   has the machine's byte order. A word that is big-endian only in some cases (a union with
//!   immediate data) is a plain integer and its documentation says so.
//! * 64-bit fields make their structure 8-aligned on 32-bit machines too, as the kernel's
//!   `__aligned_u64` does.
//! * Sizes and offsets are asserted at compile time beside each structure, and the test `headers`
//!   compares them with the C headers of the machine.

#![no_std]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

#[macro_use]
mod macros;

pub mod layout;
pub mod mlx5;
pub mod netlink;
pub mod number;
pub mod rxe;
pub mod siw;
pub mod sockaddr;
pub mod ucma;
pub mod uverbs;
