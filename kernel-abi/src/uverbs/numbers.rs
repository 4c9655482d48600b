//! Numbers and flags that both interfaces share.

mod ioctl_verbs;
mod library;
mod verbs;

pub use ioctl_verbs::*;
pub use library::*;
pub use verbs::*;
