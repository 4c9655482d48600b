//! What events name queues by.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the type of the tokens of one kind of object. The kernel keeps the number with the object
/// and puts it into each event; no two objects of the process ever have the same.
macro_rules! token {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(u64);

        impl $name {
            /// One that nothing else has.
            pub(crate) fn new() -> Self {
                Self(NEXT.fetch_add(1, Ordering::Relaxed))
            }

            pub(crate) fn from_kernel(number: u64) -> Self {
                Self(number)
            }

            pub(crate) fn to_kernel(self) -> u64 {
                self.0
            }
        }
    };
}

static NEXT: AtomicU64 = AtomicU64::new(1);

token! {
    /// Names a completion queue in events: those of its channel, and those of its device. Compare
    /// it with [`Cq::token`](crate::Cq::token).
    CqToken
}

token! {
    /// Names a queue pair in the events of its device. Compare it with
    /// [`Qp::token`](crate::Qp::token).
    QpToken
}

token! {
    /// Names a shared receive queue in the events of its device. Compare it with
    /// [`Srq::token`](crate::Srq::token).
    SrqToken
}
