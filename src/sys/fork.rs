//! Noticing that the process is a forked child.
//!
//! The kernel refuses `write()` commands from a child but carries out its ioctls, so that a child
//! which drops its copy of an object would destroy the parent's.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The largest number that a process has: as many children of children there cannot be.
const LAST: u32 = u32::MAX - 256;

/// The number of no process. All larger than this are free as well, for who marks something by them.
pub(crate) const NO_GENERATION: u32 = LAST + 1;

extern "C" fn in_child() {
    let generation = GENERATION.load(Ordering::Relaxed);
    GENERATION.store(generation.saturating_add(1).min(LAST), Ordering::Relaxed);
}

/// The number of this process. Cheap enough for the data path.
#[inline(always)]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether what was made when the number was `generation` belongs to a process that this one was
/// forked from. Cheap enough for the data path.
#[inline]
pub(crate) fn is_inherited(generation: u32) -> bool {
    GENERATION.load(Ordering::Relaxed) != generation
}

/// A number that differs between a process and the children it forks after the first call.
pub(crate) fn fork_generation() -> u32 {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec.
        // Without memory for the registration children stay unnoticed, as in the C library.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}
