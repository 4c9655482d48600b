//! How long tests take: a suite stays short only while one sees which of its tests are long.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many tests are worth naming.
const NAMED: usize = 12;

static MEASURED: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// A test that runs; its time is noted when this is dropped.
pub struct Running {
    name: String,
    start: Instant,
}

/// Begins to measure a test.
pub fn measure(name: &str) -> Running {
    Running {
        name: name.to_owned(),
        start: Instant::now(),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let entry = (self.start.elapsed(), std::mem::take(&mut self.name));
        let measured = MEASURED.lock();
        measured.unwrap_or_else(PoisonError::into_inner).push(entry);
    }
}

/// Prints the tests that took longest, and what they took together.
pub fn print_longest() {
    let measured = MEASURED.lock();
    let mut measured = measured.unwrap_or_else(PoisonError::into_inner);
    if measured.is_empty() {
        return;
    }
    measured.sort_by(|one, other| other.cmp(one));
    let sum = |tests: &[(Duration, String)]| -> f64 {
        tests.iter().map(|(time, _)| time.as_secs_f64()).sum()
    };
    let longest = &measured[..NAMED.min(measured.len())];
    println!(
        "the longest {} of {} tests: {:.0} of {:.0} s",
        longest.len(),
        measured.len(),
        sum(longest),
        sum(&measured)
    );
    for (time, name) in longest {
        println!("{:7.1} s  {name}", time.as_secs_f64());
    }
}
