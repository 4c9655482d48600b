//! What programs that exchange datagrams have in common, for `udaddy` and `mckey`.
//!
//! * `c_number`: numbers as C programs take them.
//! * `node`: an id with the queue pair, completion queue and buffer that it needs.
//! * `options`: the options that the programs share.
//! * `outcome`: how a program ends, and how its end is told.

pub mod c_number;
pub mod node;
pub mod options;
pub mod outcome;
