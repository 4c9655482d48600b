//! Doorbell pages that are shorter than what should be in them.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::fastpath::mlx5::register::{ArmRegister, Register, Use};
use crate::sys::hostile::Hostile;
use crate::sys::{Kernel, MapFor, Mapping};

/// A mapping of so many bytes, in which a kernel that looks at them sees the stores.
fn page(length: usize) -> (Arc<Hostile>, Arc<Mapping>) {
    let hostile = Hostile::new();
    let kernel: Arc<dyn Kernel> = hostile.clone();
    let null = File::open("/dev/null").unwrap();
    let page = Mapping::new(&kernel, null.as_fd(), length, 0, MapFor::Writing);
    (hostile, Arc::new(page.unwrap()))
}

/// The page, the register and the bytes of a half are refused or not.
fn is_there(length: usize, (uar, number, half): (usize, u32, u32)) -> bool {
    let (_, page) = page(length);
    Register::new(&page, uar, number, half, Use::Alone, 0).is_some()
}

#[test]
fn a_register_lies_in_its_page_as_a_whole() {
    // What is asked for, and where its last byte ends.
    for (register, end) in [
        ((0, 0, 0), 0x808),
        ((0, 0, 64), 0x880),
        ((0, 1, 64), 0x900),
        ((0, 0, 256), 0xa00),
        ((0, 1, 256), 0xc00),
        ((4096, 1, 256), 0x1c00),
    ] {
        assert!(is_there(end, register), "{register:?} in {end}");
        assert!(!is_there(end - 1, register), "{register:?} in {}", end - 1);
        assert!(!is_there(8, register), "{register:?} in 8");
    }
}

#[test]
fn a_register_does_not_reach_into_the_next_page() {
    assert!(is_there(8192, (0, 3, 256)));
    assert!(!is_there(8192, (0, 4, 256)));
    assert!(!is_there(8192, (0, 1, 1024)));
    assert!(!is_there(8192, (0, u32::MAX, 256)));
    assert!(!is_there(8192, (usize::MAX, 0, 256)));
}

#[test]
fn a_half_that_is_no_number_of_blocks_is_refused() {
    for half in [1, 32, 96, 192] {
        assert!(!is_there(4096, (0, 0, half)), "{half}");
    }
}

#[test]
fn completion_queues_are_armed_in_whole_pages_only() {
    for length in [8, 0x20, 0x28, 4095] {
        assert!(ArmRegister::new(&page(length).1, 0).is_none(), "{length}");
    }
    let (kernel, page) = page(4096);
    ArmRegister::new(&page, 0)
        .unwrap()
        .arm(0x0102_0304_0506_0708);
    assert_eq!(kernel.peek(0, 0x20), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn both_halves_are_rung_in_turn() {
    let (kernel, page) = page(0xc00);
    let register = Register::new(&page, 0, 1, 256, Use::Shared, 0).unwrap();
    for (ring, at) in [(1u64, 0xa00), (2, 0xb00), (3, 0xa00)] {
        register.ring(ring);
        assert_eq!(kernel.peek(0, at), ring.to_ne_bytes());
    }
    assert_eq!(kernel.peek(0, 0xb00), 2u64.to_ne_bytes());
}
