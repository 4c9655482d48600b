//! Memory that cannot be registered, and places outside of it.

use std::ptr;

use rdmacm::{Access, Buffer, ErrorKind, Mr, Pd, Result};

use super::{Situation, check};
use crate::environment;
use crate::harness::{Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![registrations, places_in_buffers]
}

fn pd() -> Result<Pd> {
    environment::context().default_pd()
}

/// Registers a page that is not mapped, or a part of it.
fn register(length: usize, access: Access) -> Result<Mr> {
    let nowhere = ptr::without_provenance_mut(0x1000);
    // SAFETY: the lowest pages are never mapped, so that the kernel refuses what is not refused
    // before.
    unsafe { pd()?.register_raw(nowhere, length, access) }
}

/// F78.
const REGISTRATIONS: &[Situation] = &[
    Situation {
        name: "a buffer without bytes",
        make: || pd()?.alloc(0, Access::LOCAL_WRITE).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["alloc", "at least one byte"],
    },
    Situation {
        name: "a buffer larger than the address space",
        make: || pd()?.alloc(1 << 60, Access::LOCAL_WRITE).map(drop),
        kind: ErrorKind::Kernel,
        words: &["alloc", "out of memory"],
    },
    Situation {
        name: "a buffer that wraps around",
        make: || pd()?.alloc(usize::MAX, Access::LOCAL_WRITE).map(drop),
        kind: ErrorKind::Kernel,
        words: &["alloc", "out of memory"],
    },
    Situation {
        name: "a region without bytes",
        make: || register(0, Access::LOCAL_WRITE).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["reg_mr", "at least one byte"],
    },
    Situation {
        name: "memory that is not there",
        make: || register(4096, Access::LOCAL_WRITE).map(drop),
        kind: ErrorKind::Kernel,
        words: &["reg_mr", "the range is not mapped"],
    },
    Situation {
        name: "memory that peers may write to and this side may not",
        make: || register(4096, Access::REMOTE_WRITE).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["needs LOCAL_WRITE as well"],
    },
];

fn registrations() -> TestResult {
    check(REGISTRATIONS)
}

fn buffer() -> Result<Buffer> {
    pd()?.alloc(100, Access::LOCAL_WRITE)
}

const PLACES: &[Situation] = &[
    Situation {
        name: "a segment behind the end",
        make: || buffer()?.slice(50..101).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["51 bytes from 50 on", "not in a buffer of 100"],
    },
    Situation {
        name: "a segment that ends before it begins",
        make: || buffer()?.slice(ends_first()).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["not in a buffer of 100"],
    },
    Situation {
        name: "a segment at the end of the address space",
        make: || buffer()?.slice(usize::MAX..).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["not in a buffer of 100"],
    },
    Situation {
        name: "writing behind the end",
        make: || buffer()?.write(99, &[0; 2]),
        kind: ErrorKind::InvalidInput,
        words: &["2 bytes from 99 on", "not in a buffer of 100"],
    },
    Situation {
        name: "reading from where addresses wrap around",
        make: || buffer()?.read(usize::MAX, &mut [0; 2]),
        kind: ErrorKind::InvalidInput,
        words: &["not in a buffer of 100"],
    },
    Situation {
        name: "reading more than there is",
        make: || buffer()?.read_vec(0, usize::MAX).map(drop),
        kind: ErrorKind::InvalidInput,
        words: &["not in a buffer of 100"],
    },
];

fn ends_first() -> std::ops::Range<usize> {
    let (start, end) = (60, 50);
    start..end
}

fn places_in_buffers() -> TestResult {
    check(PLACES)
}
