//! The order in which the device sees what the processor stores, and the stores to its registers.
//!
//! A request goes to the device in three steps, each of which must be seen before the next: the
//! request in memory, the doorbell record in memory that says how far requests go, and the store to
//! a register that makes the device look. The register's page is mapped write-combining where the
//! kernel can do that: the processor keeps such stores in a buffer and lets them go when it likes,
//! in any order with stores to ordinary memory.

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// What was stored to memory before is seen by the device before what is stored to memory after: a
/// request before its doorbell record.
///
/// x86-64 makes a processor's stores to ordinary memory visible in program order, and PCI Express
/// devices take part in its cache coherence: only the compiler must keep the order. aarch64 needs a
/// barrier between the stores, and one that holds for the outer shareable domain, where the device
/// is: `dmb oshst`. A fence of Rust's orders the inner shareable domain only.
#[inline(always)]
pub(super) fn order_memory() {
    fence(Ordering::Release);
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no memory and no register.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// What was loaded from memory before was loaded before the device sees what is stored after: emptied
/// completions before the consumer counter.
///
/// x86-64 lets no store pass an earlier load. aarch64 does, and `dmb oshst` orders stores only: this
/// takes `dmb osh`.
#[inline(always)]
pub(super) fn order_reads_before() {
    fence(Ordering::Release);
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no memory and no register.
    unsafe {
        std::arch::asm!("dmb osh", options(nostack, preserves_flags));
    }
}

/// What was loaded from memory before was loaded before what is loaded after: the owner of a
/// completion before the rest of it.
///
/// x86-64 keeps loads from ordinary memory in program order: only the compiler must, too. On aarch64
/// the acquire load of the owner orders the loads behind it in the inner shareable domain, in which
/// a coherent device's writes appear to the processors; `dmb oshld` says it for the outer domain as
/// well, in the processor's eyes the device's own.
#[inline(always)]
pub(super) fn order_loads() {
    fence(Ordering::Acquire);
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
}

/// What was stored before, to memory or to a register, has left this processor before what is stored
/// after: the doorbell record before the register, and the stores to one half of a register before
/// those to the other half and before the lock of a shared register is let go.
///
/// Write-combining stores wait in buffers that nothing but a fence is sure to empty. On x86-64 that
/// is `sfence`. On aarch64 the mapping is of type Normal-NC, whose stores may be gathered and
/// delayed; `dsb st` returns when they are done.
#[inline(always)]
pub(super) fn flush() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a barrier touches no memory and no register; sfence is in every x86-64.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    // Of other processors this crate knows no more than their strongest fence.
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fence(Ordering::SeqCst);
}

/// Stores 8 bytes, given as they are to stand there, with one store of the processor's. The device
/// takes a doorbell as a whole.
///
/// # Safety
///
/// The register must be mapped for writing, and 8-aligned.
#[inline(always)]
pub(super) unsafe fn store(register: NonNull<u64>, bytes: u64) {
    // SAFETY: by the caller. Volatile: the store is made, once, and is neither torn nor merged. On
    // 64-bit processors it is one instruction.
    unsafe { register.as_ptr().write_volatile(bytes) };
    #[cfg(test)]
    observer::stored(register.as_ptr() as usize, bytes);
}

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a doorbell is one store of 8 bytes, which 32-bit processors do not have");

/// Stores 64 bytes of a request, from the first to the last, 8 at a time: the device takes a request
/// out of a register in that order, which a copy routine would not promise.
///
/// # Safety
///
/// `from` must be valid for reads of 64 bytes and 8-aligned, and the register be mapped for writing
/// so far, and 8-aligned.
#[inline(always)]
pub(super) unsafe fn store_block(register: NonNull<u64>, from: NonNull<u64>) {
    for at in 0..8 {
        // SAFETY: by the caller, for eight times 8 bytes.
        unsafe { store(register.add(at), from.add(at).read()) };
    }
}

/// Tests see each store to a register as it is made.
#[cfg(test)]
pub(super) mod observer {
    use std::cell::RefCell;

    /// Told the address and the bytes of a store.
    type Observer = Box<dyn FnMut(usize, u64)>;

    thread_local! {
        static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
    }

    /// Has the stores of this thread told to `observer` from now on.
    pub(in crate::fastpath::mlx5) fn observe(observer: impl FnMut(usize, u64) + 'static) {
        OBSERVER.set(Some(Box::new(observer)));
    }

    pub(super) fn stored(address: usize, bytes: u64) {
        OBSERVER.with_borrow_mut(|observer| {
            if let Some(observer) = observer {
                observer(address, bytes);
            }
        });
    }
}
