//! Two queue pairs of one process, connected to each other, and random requests between them.
//!
//! The way of the data: `plan` makes up a round of requests and notes in `memory` what they are to
//! make of the buffers; `round` posts them, takes the completions and compares; `phase` makes the
//! queue pairs of one service and runs rounds; `mishap` has requests fail and resets the queue pairs.
//!
//! This folder knows nothing of the program around it: `run` takes an open device.

mod draft;
mod memory;
mod mishap;
mod phase;
mod plan;
mod random;
mod report;
mod request;
mod round;
mod side;
mod way;

#[cfg(test)]
mod tests;

use rdmacm::{Context, QpType, Transport};

pub use report::Report;

use phase::Phase;
use random::Random;

/// Errors are only shown, never told apart, so one type holds them all.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of all that can fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// Port of the device.
    pub port: u8,
    /// Which GID of the port; without it the one that leads furthest, on InfiniBand none.
    pub gid_index: Option<u32>,
    /// What all that is random follows from.
    pub seed: u64,
    /// Requests in all.
    pub operations: usize,
    /// Sleep until there are completions, instead of polling for them.
    pub events: bool,
    /// Receives come from a queue that both queue pairs share.
    pub srq: bool,
    /// One service, or all that the device has.
    pub service: Option<QpType>,
    /// Requests of a queue pair that may be outstanding, from 2 on.
    pub depth: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            seed: 1,
            operations: 2000,
            events: false,
            srq: false,
            service: None,
            depth: 32,
        }
    }
}

/// Runs the operations, and says what was done when all of it was right.
pub fn run(context: Context, options: &Options) -> Result<Report> {
    let device = context.device().clone();
    if device.transport() == Transport::Iwarp {
        return Err(format!(
            "{} is an iWARP device: its queue pairs are connected by the connection manager and \
             nobody else, which this program does without",
            device.name()
        )
        .into());
    }
    let mut report = Report::new(device.name(), options.seed);
    let mut random = Random::new(options.seed);
    // A reliable connection can do most, and gets half of the operations.
    let services = match options.service {
        Some(service) => vec![(service, options.operations)],
        None => {
            let quarter = options.operations / 4;
            let rest = options.operations - 2 * quarter;
            vec![
                (QpType::Rc, rest),
                (QpType::Uc, quarter),
                (QpType::Ud, quarter),
            ]
        }
    };
    for (service, operations) in services {
        let seed = random.next();
        let phase = Phase::new(&context, options, service, Random::new(seed), &mut report);
        let ran = phase.and_then(|mut phase| phase.run(operations));
        ran.map_err(|error| format!("{}, seed {}: {error}", name(service), options.seed))?;
    }
    Ok(report)
}

/// What the report calls a service.
fn name(service: QpType) -> &'static str {
    match service {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        _ => "other",
    }
}
