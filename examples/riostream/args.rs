//! The command line: the options of the C program.

use clap::Parser;

use crate::measured::{Options, TestOption};

/// Measures writes into the memory of a stream's peer. Without `-s` it is the server.
///
/// -S, -C and -I make one measurement, in which what is not told is 1000 bytes, 1000 transfers and 1
/// iteration. Without them there is a series of each, latency and bandwidth.
#[derive(Debug, Parser)]
#[command(
    name = "riostream",
    disable_version_flag = true,
    args_override_self = true
)]
pub struct Args {
    #[command(flatten)]
    pub options: Options,

    /// How to test: a|async (an event loop), b|blocking, n|nonblocking (the default), v|verify (check
    /// the data)
    #[arg(short = 'T', value_name = "OPTION", value_parser = parse)]
    pub test: Vec<TestOption>,
}

/// Takes what the C program takes.
fn parse(text: &str) -> Result<TestOption, String> {
    match TestOption::parse(text)? {
        TestOption::Socket | TestOption::Fork => {
            Err("memory is mapped over RDMA, not over TCP".into())
        }
        TestOption::Resolve => Err("no such test option".into()),
        option => Ok(option),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn some_test_options_are_those_of_rstream() {
        let parse = |option: &str| Args::try_parse_from(["riostream", "-T", option]);
        for option in ["a", "b", "n", "v", "verify"] {
            assert_eq!(parse(option).unwrap().test.len(), 1, "{option}");
        }
        for option in ["s", "f", "r", "fork"] {
            assert!(parse(option).is_err(), "{option}");
        }
    }
}
