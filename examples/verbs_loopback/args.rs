//! The command line.

use clap::{Parser, ValueEnum, value_parser};
use rdmacm::QpType;

use crate::loopback::Options;

/// Connects two queue pairs of one process to each other, has them carry out random requests of all
/// kinds, and checks every byte.
#[derive(Debug, Parser)]
#[command(
    name = "verbs_loopback",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Device [default: the first]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Port of the device
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = value_parser!(u8).range(1..))]
    port: u8,

    /// Which GID of the port to use [default: one of an IPv4 address, or none on InfiniBand]
    #[arg(long, value_name = "INDEX", value_parser = value_parser!(u32).range(..=255))]
    gid_index: Option<u32>,

    /// What all that is random follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Requests in all
    #[arg(long, value_name = "COUNT", default_value_t = 2000, value_parser = value_parser!(u32).range(1..))]
    operations: u32,

    /// Sleep until there are completions, instead of polling for them
    #[arg(long)]
    events: bool,

    /// Have both queue pairs receive from one shared queue
    #[arg(long)]
    srq: bool,

    /// Service of the queue pairs
    #[arg(long = "type", value_name = "SERVICE", default_value = "all")]
    service: Service,

    /// Requests of a queue pair that may be outstanding
    #[arg(long, value_name = "REQUESTS", default_value_t = 32, value_parser = value_parser!(u32).range(2..=4096))]
    depth: u32,

    /// Print the last line only
    #[arg(long)]
    pub quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Service {
    Rc,
    Uc,
    Ud,
    All,
}

impl Args {
    pub fn options(&self) -> Options {
        Options {
            port: self.port,
            gid_index: self.gid_index,
            seed: self.seed,
            operations: self.operations as usize,
            events: self.events,
            srq: self.srq,
            service: match self.service {
                Service::Rc => Some(QpType::Rc),
                Service::Uc => Some(QpType::Uc),
                Service::Ud => Some(QpType::Ud),
                Service::All => None,
            },
            depth: self.depth,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Args> {
        let words = std::iter::once("verbs_loopback").chain(line.split_whitespace());
        Args::try_parse_from(words).ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn options_are_taken_over() {
        let line = "--device rxe0 --port 2 --gid-index 3 --seed 4 --operations 5 --events --srq \
                    --type ud --depth 6 --quiet";
        let args = parse(line).expect("all options");
        let options = args.options();
        assert_eq!(args.device.as_deref(), Some("rxe0"));
        assert_eq!((options.port, options.gid_index), (2, Some(3)));
        assert_eq!((options.seed, options.operations), (4, 5));
        assert_eq!(
            (options.events, options.srq, args.quiet),
            (true, true, true)
        );
        assert_eq!((options.service, options.depth), (Some(QpType::Ud), 6));
        assert_eq!(parse("").expect("none").options().service, None);
        for wrong in [
            "--type xrc",
            "--depth 1",
            "--operations 0",
            "--gid-index 256",
        ] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}
