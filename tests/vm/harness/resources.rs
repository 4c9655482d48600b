//! What the process and the kernel hold at a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::netlink;

/// Counts of the kernel's RDMA objects (`rxe0 qp`) and of this process's open files
/// (`open /dev/infiniband/rdma_cm`).
///
/// The kernel counts a connection manager id once it is bound to a device. An id without a device
/// shows only in the file it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage(BTreeMap<String, u64>);

impl Usage {
    /// The counts now.
    pub fn now() -> io::Result<Self> {
        let mut counts = netlink::resource_counts()?;
        for name in open_files()? {
            *counts.entry(format!("open {name}")).or_default() += 1;
        }
        Ok(Self(counts))
    }

    /// One count, by a name such as `rxe0 qp`; 0 for what is not there.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Waits until the counts are these again, and says which are not when the time is over.
    pub fn wait_until_restored(&self, patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        loop {
            let now = Self::now().map_err(|error| format!("cannot count resources: {error}"))?;
            if now == *self {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "resources before and after: {}",
                    self.difference(&now)
                ));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn difference(&self, after: &Self) -> String {
        let names: BTreeSet<&String> = self.0.keys().chain(after.0.keys()).collect();
        let changed: Vec<String> = names
            .into_iter()
            .filter(|name| self.count(name) != after.count(name))
            .map(|name| format!("{name} {} -> {}", self.count(name), after.count(name)))
            .collect();
        changed.join(", ")
    }
}

/// What the descriptors of this process refer to, without the numbers of sockets and pipes.
fn open_files() -> io::Result<Vec<String>> {
    let own = fs::read_dir("/proc/self/fd")?;
    // A descriptor that is gone already is the one of the directory itself.
    let targets = own
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(targets
        .map(|target| without_number(&target.to_string_lossy()))
        .collect())
}

fn without_number(target: &str) -> String {
    match target.split_once(":[") {
        Some((kind @ ("socket" | "pipe"), _)) => kind.to_owned(),
        _ => target.to_owned(),
    }
}
