//! What the objects of one open device share.

use std::sync::{Arc, Mutex, PoisonError};

use rdmacm_kernel_abi::mlx5::{AllocUcontextResp, NO_USER_INDEX, NUMBER_MASK};

use super::grant::{Grant, Settings};
use super::record::{Record, Records};
use super::registers::Registers;
use super::scatter::Regions;
use crate::device::Context;
use crate::error::Result;

/// An open device.
#[derive(Debug)]
pub(super) struct Card {
    pub(super) grant: Grant,
    pub(super) settings: Settings,
    pub(super) registers: Arc<Registers>,
    pub(super) regions: Arc<Regions>,
    records: Arc<Records>,
    numbers: Arc<Numbers>,
}

impl Card {
    /// That of a context. Made at first use, when doorbell pages are mapped.
    pub(super) fn of(context: &Context) -> Result<Arc<Self>> {
        context.driver_state(|answer| Self::new(context, answer))
    }

    fn new(context: &Context, answer: &AllocUcontextResp) -> Result<Self> {
        let grant = Grant::new(answer)?;
        let settings = Settings::from_environment()?;
        Ok(Self {
            grant,
            settings,
            registers: Arc::new(Registers::new(context, &grant, settings)?),
            regions: Arc::default(),
            records: Arc::default(),
            numbers: Arc::default(),
        })
    }

    /// A doorbell record of zeros.
    pub(super) fn record(&self, context: &Context) -> Result<Record> {
        self.records.take(context.kernel())
    }

    /// A number for a new queue pair, where completions name it by one of ours.
    pub(super) fn user_index(&self) -> UserIndex {
        match self.grant.has_user_index {
            true => UserIndex::lowest(&self.numbers),
            false => UserIndex {
                number: NO_USER_INDEX,
                home: None,
            },
        }
    }
}

/// The numbers in use.
#[derive(Debug, Default)]
struct Numbers(Mutex<Vec<bool>>);

/// A number that completions name a queue pair by. Free again when dropped.
#[derive(Debug)]
pub(super) struct UserIndex {
    number: u32,
    home: Option<Arc<Numbers>>,
}

impl UserIndex {
    /// The lowest that is free, so that lists by number stay short.
    fn lowest(numbers: &Arc<Numbers>) -> Self {
        let mut used = numbers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = used.iter().position(|used| !used);
        let number = free.unwrap_or_else(|| {
            used.push(false);
            used.len() - 1
        });
        used[number] = true;
        Self {
            number: number as u32,
            home: Some(Arc::clone(numbers)),
        }
    }

    /// What the kernel is told.
    pub(super) fn to_kernel(&self) -> u32 {
        self.number
    }

    /// What completions name a queue pair by that has this number from the device.
    pub(super) fn key(&self, qp_num: u32) -> u32 {
        match self.home {
            Some(_) => self.number,
            None => qp_num & NUMBER_MASK,
        }
    }
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let mut used = home.0.lock().unwrap_or_else(PoisonError::into_inner);
            used[self.number as usize] = false;
        }
    }
}
