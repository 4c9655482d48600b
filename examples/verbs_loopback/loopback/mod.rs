//! Two queue pairs of one process, connected to each other, and random requests between them.
//!
//! On iWARP, where queue pairs are connected by the connection manager and nobody else, `meeting` does
//! that, over an address of the device.
//!
//! The way of the data: `plan` makes up a round of requests and notes in `memory` what they are to
//! make of the buffers; `round` posts them, takes the completions and compares; `phase` makes the
//! queue pairs of one service and runs rounds; `mishap` has requests fail and resets the queue pairs.
//!
//! This folder knows nothing of the program around it: `run` takes an open device.

mod draft;
mod meeting;
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
    let mut report = Report::new(device.name(), options.seed);
    let mut random = Random::new(options.seed);
    let services = services(&context, options)?;
    for (service, operations) in services {
        let seed = random.next();
        let phase = Phase::new(&context, options, service, Random::new(seed), &mut report);
        let ran = phase.and_then(|mut phase| phase.run(operations));
        ran.map_err(|error| format!("{}, seed {}: {error}", name(service), options.seed))?;
    }
    Ok(report)
}

/// The services that are tried, and how many operations each gets.
fn services(context: &Context, options: &Options) -> Result<Vec<(QpType, usize)>> {
    let all = options.operations;
    let is_iwarp = context.device().transport() == Transport::Iwarp;
    Ok(match options.service {
        Some(service) if is_iwarp && service != QpType::Rc => {
            let (device, service) = (context.device().name(), name(service));
            return Err(format!("{device} is an iWARP device, which has no {service}").into());
        }
        Some(service) => vec![(service, all)],
        None if is_iwarp => vec![(QpType::Rc, all)],
        // A reliable connection can do most, and gets half of them.
        None => vec![
            (QpType::Rc, all - 2 * (all / 4)),
            (QpType::Uc, all / 4),
            (QpType::Ud, all / 4),
        ],
    })
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
