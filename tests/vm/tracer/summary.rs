//! System calls counted by kind, to compare programs.

use std::collections::BTreeMap;
use std::fmt;

use super::event::{Event, Kind};
use super::syscalls;
use super::target::Target;

/// How often each kind of call was made, failed ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// All system calls.
    pub total: usize,
    /// Calls that concern RDMA: first by system call and target, then by command.
    pub device: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Summary {
    pub(super) fn new(events: &[Event]) -> Self {
        let mut device: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for event in events {
            let Some((target, command)) = target_and_command(event) else {
                continue;
            };
            let group = format!("{} {target}", syscalls::name(event.syscall));
            *device.entry(group).or_default().entry(command).or_default() += 1;
        }
        Self {
            total: events.len(),
            device,
        }
    }
}

/// What a call reached and the command it carried; sysfs is one target, not one for each file.
fn target_and_command(event: &Event) -> Option<(String, String)> {
    match &event.kind {
        Kind::Cm(command) => Some((Target::RdmaCm.to_string(), command.name())),
        Kind::Verbs(command) => Some((Target::Uverbs.to_string(), command.name())),
        Kind::Device(Target::Sysfs(_)) => Some(("sysfs".to_owned(), String::new())),
        Kind::Device(target) => Some((target.to_string(), String::new())),
        Kind::Other => None,
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>6} system calls", self.total)?;
        for (group, commands) in &self.device {
            writeln!(f, "{:>6} {group}", commands.values().sum::<usize>())?;
            for (command, count) in commands.iter().filter(|(command, _)| !command.is_empty()) {
                writeln!(f, "{count:>10} {command}")?;
            }
        }
        Ok(())
    }
}
