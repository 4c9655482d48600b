//! An mlx5 device made of software: what stands in for the kernel and the card in tests.
//!
//! A [`Card`] has a thread that watches the doorbell pages and executes what is in the queues, in
//! the memory of this process. A [`File`] is an open device file of it: commands come as the bytes
//! that a program gives the kernel, and are answered or refused as the kernel does. Requests run
//! between the queue pairs of the card.
//!
//! The card knows `kernel-abi` and nothing else of the library: what it expects was written down
//! from the kernel's and the C provider's sources, independently of the provider under test. What
//! no real card would forgive it notes as a violation ([`Card::violations`]).

mod channel;
mod config;
mod device;
mod kernel;
mod memory;
mod violation;
mod world;

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub use config::Config;
use rdmacm_kernel_abi::uverbs::GidType;

use world::World;

/// A card with its kernel driver.
#[derive(Debug, Clone)]
pub struct Card(Arc<Shared>);

struct Shared {
    world: Mutex<World>,
    /// How many commands wait for their turn.
    waiting: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// The world, for a command.
    fn enter(&self) -> MutexGuard<'_, World> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        world
    }
}

impl Card {
    /// A card that works until the last handle is gone, and the last file of it.
    pub fn new(config: Config) -> Self {
        let card = Self(Arc::new(Shared {
            world: Mutex::new(World::new(config)),
            waiting: AtomicUsize::new(0),
        }));
        let shared = Arc::downgrade(&card.0);
        thread::Builder::new()
            .name("mlx5 device".to_owned())
            .spawn(move || device::watch(&shared))
            .expect("a thread can be had");
        card
    }

    /// Opens the device file.
    pub fn open(&self) -> File {
        let mut world = self.0.enter();
        let id = world.next_number(0);
        world.files.insert(id, Default::default());
        File {
            card: self.clone(),
            id,
        }
    }

    /// What kind of card it is.
    pub fn config(&self) -> Config {
        self.0.enter().config.clone()
    }

    /// The GIDs of the port, with what sysfs calls their types.
    pub fn gids(&self) -> Vec<([u8; 16], &'static str)> {
        let name = |(gid, kind)| match kind {
            GidType::ROCE_V2 => (gid, "RoCE v2"),
            _ => (gid, "IB/RoCE v1"),
        };
        self.0.enter().gids().into_iter().map(name).collect()
    }

    /// What the program did that no real card or kernel would forgive, in order.
    pub fn violations(&self) -> Vec<String> {
        let mut world = self.0.enter();
        world.look_for_strays();
        world.violations.texts()
    }

    /// The program is about to unmap memory. True where it is a doorbell page of [`File::map`],
    /// which goes back to the card and must not be unmapped.
    pub fn note_unmap(&self, address: u64, length: u64) -> bool {
        let is_over = violation::IS_ABORTING.load(Ordering::Acquire);
        !is_over && self.0.enter().note_unmap(address, length)
    }
}

/// An open device file. Dropping it closes the file: the kernel takes back what is left.
#[derive(Debug)]
pub struct File {
    card: Card,
    id: u32,
}

impl File {
    /// Carries an `ioctl()` of the request `RDMA_VERBS_IOCTL` out.
    ///
    /// # Errors
    ///
    /// As the kernel's.
    ///
    /// # Safety
    ///
    /// The command must be complete, header and attributes, and the pointers in it valid, as for
    /// the real call.
    pub unsafe fn ioctl(&self, command: NonNull<u8>) -> io::Result<()> {
        let mut world = self.card.0.enter();
        // SAFETY: the caller's promise.
        let done = unsafe { world.ioctl(self.id, command) };
        done.map_err(io::Error::from_raw_os_error)
    }

    /// Carries a `write()` out.
    ///
    /// # Errors
    ///
    /// As the kernel's.
    ///
    /// # Safety
    ///
    /// The pointers in the command must be valid, as for the real call.
    pub unsafe fn write(&self, command: &[u8]) -> io::Result<usize> {
        let mut world = self.card.0.enter();
        // SAFETY: the caller's promise.
        let done = unsafe { world.write(self.id, command) };
        done.map_err(io::Error::from_raw_os_error)?;
        Ok(command.len())
    }

    /// Maps a page of the device. [`Card::note_unmap`] gives it back.
    ///
    /// # Errors
    ///
    /// As the kernel's.
    pub fn map(&self, length: usize, offset: u64) -> io::Result<NonNull<u8>> {
        let page = self.card.0.enter().map(self.id, length, offset);
        let page = page.map_err(io::Error::from_raw_os_error)?;
        Ok(NonNull::new(page as *mut u8).expect("mapped memory is not at 0"))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.card.0.enter().close(self.id);
    }
}
