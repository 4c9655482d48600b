//! The device, and the program's descriptors of it.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rdmacm_mlx5_device::{Card, Config, File};

use crate::sysfs;

/// The device of this process.
pub(crate) struct Device {
    card: Card,
    /// Where the files are that stand for those of sysfs.
    pub(crate) root: PathBuf,
    files: Mutex<HashMap<RawFd, Arc<File>>>,
}

static DEVICE: OnceLock<Device> = OnceLock::new();

/// Which descriptors are of the device, for looking up without a lock.
static IS_OURS: [AtomicBool; 65536] = [const { AtomicBool::new(false) }; 65536];

impl Device {
    /// The device, made at first use.
    pub(crate) fn get() -> &'static Self {
        DEVICE.get_or_init(|| {
            let words = std::env::var("MLX5_FAKE").unwrap_or_default();
            let mut config = Config::from_words(&words)
                .unwrap_or_else(|word| panic!("MLX5_FAKE: there is no {word:?}"));
            config.is_loud = true;
            let card = Card::new(config);
            let root = sysfs::make(&card).expect("a temporary folder can be made");
            // SAFETY: the function touches what is never freed.
            unsafe { libc::atexit(end) };
            Self {
                card,
                root,
                files: Mutex::default(),
            }
        })
    }

    /// The program is about to unmap memory. True where it is a page of the device.
    pub(crate) fn note_unmap(address: u64, length: u64) -> bool {
        DEVICE
            .get()
            .is_some_and(|device| device.card.note_unmap(address, length))
    }

    /// The open file behind a descriptor.
    pub(crate) fn file(fd: RawFd) -> Option<Arc<File>> {
        if !is_ours(fd)?.load(Ordering::Acquire) {
            return None;
        }
        Self::get().lock().get(&fd).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RawFd, Arc<File>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor was opened for the device.
    pub(crate) fn note_open(&self, fd: RawFd) {
        self.insert(fd, Arc::new(self.card.open()));
    }

    /// A descriptor was duplicated.
    pub(crate) fn note_duplicate(old: RawFd, new: RawFd) {
        Self::note_close(new);
        if let Some(file) = Self::file(old) {
            Self::get().insert(new, file);
        }
    }

    fn insert(&self, fd: RawFd, file: Arc<File>) {
        let is_ours = is_ours(fd).expect("descriptors are small numbers");
        self.lock().insert(fd, file);
        is_ours.store(true, Ordering::Release);
    }

    /// A descriptor is about to be closed.
    pub(crate) fn note_close(fd: RawFd) {
        if is_ours(fd).is_some_and(|is_ours| is_ours.swap(false, Ordering::AcqRel)) {
            let file = Self::get().lock().remove(&fd);
            drop(file);
        }
    }
}

fn is_ours(fd: RawFd) -> Option<&'static AtomicBool> {
    IS_OURS.get(usize::try_from(fd).ok()?)
}

/// The process ends.
extern "C" fn end() {
    let Some(device) = DEVICE.get() else { return };
    sysfs::remove(&device.root);
    if !device.card.violations().is_empty() {
        // SAFETY: ends the process; what was to be written has been.
        unsafe { libc::_exit(99) };
    }
}
