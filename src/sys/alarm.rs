//! A moment that descriptors can be waited for until.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::Deadline;

/// The longest time; longer ones are not told from it.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A descriptor that becomes readable after a time, and stays so.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: TimerFd,
    deadline: Deadline,
}

impl Alarm {
    pub(crate) fn after(time: Duration) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // A time of zero would be none at all.
        let time = time.clamp(Duration::from_nanos(1), LONGEST);
        let once = Expiration::OneShot(TimeSpec::from_duration(time));
        // The deadline first: who is woken by the timer finds that it is over.
        let deadline = Deadline::after(Some(time));
        timer.set(once, TimerSetTimeFlags::empty())?;
        Ok(Self { timer, deadline })
    }

    /// Whether it has become readable.
    pub(crate) fn is_over(&self) -> bool {
        self.deadline.remaining() == Some(Duration::ZERO)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::sys::Readiness;

    #[test]
    fn an_alarm_is_readable_after_its_time_and_stays_so() {
        let readiness = Readiness::new().unwrap();
        let start = Instant::now();
        let alarm = Alarm::after(Duration::from_millis(20)).unwrap();
        readiness.watch(alarm.as_fd(), 3).unwrap();
        assert!(!readiness.look("test").unwrap().is_any() && !alarm.is_over());
        for _ in 0..2 {
            let patience = Deadline::after(Some(Duration::from_secs(10)));
            assert!(readiness.wait("test", patience).unwrap().has(3));
        }
        assert!(alarm.is_over());
        assert!(start.elapsed() >= Duration::from_millis(20));
        drop(alarm);
        assert!(!readiness.look("test").unwrap().is_any());
    }

    #[test]
    fn no_time_is_the_shortest_and_the_longest_is_not_refused() {
        let readiness = Readiness::new().unwrap();
        let never = Alarm::after(Duration::MAX).unwrap();
        readiness.watch(never.as_fd(), 1).unwrap();
        let at_once = Alarm::after(Duration::ZERO).unwrap();
        readiness.watch(at_once.as_fd(), 2).unwrap();
        let patience = Deadline::after(Some(Duration::from_secs(10)));
        let readable = readiness.wait("test", patience).unwrap();
        assert!(readable.has(2) && !readable.has(1));
    }
}
