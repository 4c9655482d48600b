//! Ends the process when a test does not end.

use std::fs;
use std::process;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Exit code of a run that was given up, as that of `timeout`.
pub const EXIT_HUNG: i32 = 124;

/// Watches a test until it is dropped.
pub struct Watchdog {
    /// Closing the channel is the message.
    _end: Sender<()>,
}

/// Starts to watch a test.
pub fn watch(name: &str, timeout: Duration) -> Watchdog {
    let (end, ended) = mpsc::channel();
    let name = name.to_owned();
    let wait = move || {
        if ended.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            give_up(&name, timeout);
        }
    };
    thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(wait)
        .expect("a thread starts");
    Watchdog { _end: end }
}

fn give_up(name: &str, timeout: Duration) -> ! {
    eprintln!(
        "\ntest {name} hangs: no result after {} s, giving up",
        timeout.as_secs()
    );
    print_threads();
    process::exit(EXIT_HUNG)
}

/// Says where in the kernel the process's threads are, which is readable for root only.
fn print_threads() {
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        eprintln!(
            "thread {} in system call {}",
            read("comm").trim(),
            read("syscall").trim()
        );
        eprint!("{}", read("stack"));
    }
}
