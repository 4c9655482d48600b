//! Processor time.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::Result;

/// Time in the program itself and in the kernel on its behalf. What interrupts and the kernel's own
/// threads do for it is in neither.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu {
    pub user: Duration,
    pub kernel: Duration,
}

impl Cpu {
    /// Of this process so far.
    pub fn of_this_process() -> Result<Self> {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// Of all processes that this one has started and that have ended.
    pub fn of_ended_children() -> Result<Self> {
        Self::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(who: UsageWho) -> Result<Self> {
        let usage = getrusage(who)?;
        Ok(Self {
            user: duration(usage.user_time()),
            kernel: duration(usage.system_time()),
        })
    }

    /// What was added since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            kernel: self.kernel.saturating_sub(before.kernel),
        }
    }
}

fn duration(time: TimeVal) -> Duration {
    let micros = i128::from(time.tv_sec()) * 1_000_000 + i128::from(time.tv_usec());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
