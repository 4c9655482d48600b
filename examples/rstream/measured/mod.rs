//! What `rstream` and `riostream` have in common: options, sizes and counts, the table, the bytes of
//! `-T v`.

mod measurement;
mod options;
mod short;
mod table;
mod verification;
mod wait;

pub use measurement::{Measurement, Purpose, Series};
pub use options::{Manner, Options, TestOption};
pub use table::{heading, line};
pub use verification::Verification;
pub use wait::wait_for;
