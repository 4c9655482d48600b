//! The options that the programs share: those of the C programs, and `--timeout`.

#[path = "../udaddy/datagram/c_number.rs"]
mod c_number;

use std::ops::RangeInclusive;
use std::time::Duration;

use c_number::c_number;

/// The most that C's `int` holds.
const INT_MAX: u32 = i32::MAX as u32;

/// What to exchange, with whom, and over what.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Where the server is; without it, be the server
    #[arg(value_name = "HOST")]
    pub server: Option<String>,

    /// TCP port at which the two sides meet first
    #[arg(short, long, default_value = "18515", value_parser = number::<u16>(0..=65535))]
    pub port: u16,

    /// Device [default: the first]
    #[arg(short = 'd', long = "ib-dev", value_name = "DEVICE")]
    pub device: Option<String>,

    /// Port of the device
    #[arg(short = 'i', long = "ib-port", value_name = "NUMBER", default_value = "1", value_parser = number::<u8>(1..=255))]
    pub device_port: u8,

    /// Bytes of a message [default: 4096; of ud_pingpong 1024, and a packet is the most]
    #[arg(short, long, value_parser = number::<u32>(1..=INT_MAX))]
    pub size: Option<u32>,

    /// Receives that are posted at a time
    #[arg(short = 'r', long = "rx-depth", value_name = "RECEIVES", default_value = "500", value_parser = number::<u32>(1..=INT_MAX))]
    pub depth: u32,

    /// Messages in each direction; of srq_pingpong, those of all queue pairs together
    #[arg(short = 'n', long = "iters", value_name = "COUNT", default_value = "1000", value_parser = number::<u32>(1..=INT_MAX))]
    pub count: u32,

    /// Service level
    #[arg(short = 'l', long = "sl", value_name = "LEVEL", default_value = "0", value_parser = number::<u8>(0..=15))]
    pub service_level: u8,

    /// Sleep until there are completions, instead of polling for them
    #[arg(short = 'e', long = "events")]
    pub sleep: bool,

    /// Which GID of the port to use; needed on Ethernet
    #[arg(short = 'g', long = "gid-idx", value_name = "INDEX", value_parser = number::<u8>(0..=255))]
    pub gid_index: Option<u8>,

    /// Check the data: the client marks each page of the message, the server looks for the marks
    #[arg(short = 'c', long = "chk")]
    pub validate: bool,

    /// Give up when the peer is silent for so many seconds; 0 is never
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = number::<u32>(0..=24 * 60 * 60))]
    timeout: u32,
}

impl Options {
    /// How long a peer may be silent.
    pub fn patience(&self) -> Option<Duration> {
        (self.timeout > 0).then(|| Duration::from_secs(self.timeout.into()))
    }
}

/// Takes numbers of a range, in any form that C knows.
pub fn number<T: TryFrom<u32>>(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = c_number(text)?;
        let within = range.contains(&number).then_some(number);
        within
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("{} to {} are possible", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(args_override_self = true, infer_long_args = true)]
    struct Program {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Option<Options> {
        let words = std::iter::once("pingpong").chain(line.split_whitespace());
        Program::try_parse_from(words).ok().map(|args| args.options)
    }

    #[test]
    fn a_server_has_the_defaults_of_the_c_programs() {
        let options = parse("").expect("a server");
        assert_eq!((options.server, options.port), (None, 18515));
        assert_eq!((options.device, options.device_port), (None, 1));
        assert_eq!(
            (options.size, options.depth, options.count),
            (None, 500, 1000)
        );
        assert_eq!((options.service_level, options.gid_index), (0, None));
        assert!(!options.sleep && !options.validate);
    }

    #[test]
    fn options_may_come_in_any_order_and_form() {
        let options = parse("-ec -g1 10.10.0.1 --size=0x100 --rx-depth 20 --iter 7 --timeout 0");
        let options = options.expect("a client");
        assert_eq!(options.server.as_deref(), Some("10.10.0.1"));
        assert_eq!(
            (options.size, options.depth, options.count),
            (Some(256), 20, 7)
        );
        assert!(options.sleep && options.validate);
        assert_eq!((options.gid_index, options.patience()), (Some(1), None));
    }

    #[test]
    fn numbers_out_of_range_and_a_second_host_are_refused() {
        for line in [
            "-p 65536", "-i 0", "-s 0", "-r 0", "-n 0", "-g 256", "-l 16", "-n ten", "one two",
        ] {
            assert!(parse(line).is_none(), "{line}");
        }
    }
}
