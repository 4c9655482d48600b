//! What was done, and how it ended.

use std::collections::BTreeMap;
use std::fmt;

/// What was carried out and checked.
#[derive(Debug, Clone)]
pub struct Report {
    pub device: String,
    pub seed: u64,
    /// Requests by service and kind.
    kinds: BTreeMap<(&'static str, &'static str), Tally>,
    /// Completions that were taken.
    pub completions: u64,
    /// Comparisons of completions and of whole buffers with what they were to be.
    pub checks: u64,
    /// Requests that were made to fail, and those that were flushed behind them.
    pub provoked: u64,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    operations: u64,
    bytes: u64,
}

impl Report {
    pub fn new(device: &str, seed: u64) -> Self {
        Self {
            device: device.to_owned(),
            seed,
            kinds: BTreeMap::new(),
            completions: 0,
            checks: 0,
            provoked: 0,
            notes: Vec::new(),
        }
    }

    pub fn count(&mut self, service: &'static str, kind: &'static str, bytes: usize) {
        let tally = self.kinds.entry((service, kind)).or_default();
        tally.operations += 1;
        tally.bytes += bytes as u64;
    }

    /// Requests that were carried out, but those that were made to fail.
    pub fn operations(&self) -> u64 {
        self.kinds.values().map(|tally| tally.operations).sum()
    }

    /// All but the last line.
    pub fn table(&self) -> String {
        use fmt::Write;
        let mut text = format!(
            "{:<8}{:<24}{:>12}{:>14}\n",
            "service", "kind", "operations", "bytes"
        );
        for ((service, kind), Tally { operations, bytes }) in &self.kinds {
            let _ = writeln!(text, "{service:<8}{kind:<24}{operations:>12}{bytes:>14}");
        }
        let (completions, provoked) = (self.completions, self.provoked);
        let _ = writeln!(
            text,
            "completions: {completions}; errors: {provoked} provoked, 0 others"
        );
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

/// The line that scripts look for.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "verbs_loopback: OK device={} seed={} operations={} checks={}",
            self.device,
            self.seed,
            self.operations(),
            self.checks
        )
    }
}
