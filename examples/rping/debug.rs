//! What `-d` shows: each step, on the standard error.

use std::sync::atomic::{AtomicBool, Ordering};

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Switches the output of [`debug!`] on or off.
pub fn enable(on: bool) {
    ENABLED.store(on, Ordering::Relaxed);
}

/// Whether [`debug!`] writes anything.
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// As `eprintln!`, with `-d` only.
macro_rules! debug {
    ($($argument:tt)*) => {
        if crate::debug::enabled() {
            eprintln!("rping: debug: {}", format_args!($($argument)*));
        }
    };
}

pub(crate) use debug;
