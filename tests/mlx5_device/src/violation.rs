//! What no real card or kernel would forgive.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;

/// The process is about to end. What is unmapped from now on interests nobody, and comes from the
/// thread that holds the lock.
pub(crate) static IS_ABORTING: AtomicBool = AtomicBool::new(false);

/// The violations so far.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    texts: Vec<String>,
    is_loud: bool,
    aborts: bool,
}

/// More than this are of no use to anybody.
const MOST: usize = 100;

impl Violations {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            texts: Vec::new(),
            is_loud: config.is_loud,
            aborts: config.aborts,
        }
    }

    pub(crate) fn add(&mut self, text: String) {
        if self.aborts {
            IS_ABORTING.store(true, Ordering::Release);
            // Of use where it is a command that is wrong.
            let place = std::backtrace::Backtrace::force_capture();
            eprintln!("mlx5 device: VIOLATION: {text}\n{place}");
            std::process::abort();
        }
        if self.texts.len() < MOST {
            if self.is_loud {
                eprintln!("mlx5 device: VIOLATION: {text}");
            }
            self.texts.push(text);
        }
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.clone()
    }
}
