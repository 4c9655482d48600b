//! What the programs print, and how they end.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use crate::wire::Address;

/// Errors are only shown here, never told apart, so one type holds them all.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Prints where one of our queue pairs is. `before_gid` is what the C program prints there.
pub fn local(address: &Address, before_gid: &str) {
    say(line("local address: ", address, before_gid));
}

/// Prints where one of the peer's queue pairs is.
pub fn remote(address: &Address) {
    say(line("remote address:", address, ","));
}

fn line(whose: &str, address: &Address, before_gid: &str) -> String {
    let Address {
        lid,
        qp_num,
        psn,
        gid,
    } = address;
    format!("  {whose} LID {lid:#06x}, QPN {qp_num:#08x}, PSN {psn:#08x}{before_gid} GID {gid}")
}

/// Prints how fast messages went to and fro.
pub fn speed(size: usize, count: u32, elapsed: Duration) {
    for line in speeds(size, count, elapsed) {
        say(line);
    }
}

fn speeds(size: usize, count: u32, elapsed: Duration) -> [String; 2] {
    let bytes = size as u64 * u64::from(count) * 2;
    let seconds = elapsed.as_secs_f64();
    let megabits = bytes as f64 * 8.0 / (seconds * 1e6);
    let microseconds = seconds * 1e6 / f64::from(count);
    [
        format!("{bytes} bytes in {seconds:.2} seconds = {megabits:.2} Mbit/sec"),
        format!("{count} iters in {seconds:.2} seconds = {microseconds:.2} usec/iter"),
    ]
}

/// Prints the pages whose mark is missing, and fails when there are any.
pub fn pages_without_mark(pages: &[usize]) -> Result<()> {
    for page in pages {
        say(format_args!("invalid data in page {page}"));
    }
    match pages {
        [] => Ok(()),
        _ => Err("the data is not what the client sends with -c".into()),
    }
}

/// Tells a failure, and makes an exit code of the outcome.
pub fn end(program: &str, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. Nobody has to read it.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use rdmacm::Gid;

    use super::*;

    #[test]
    fn the_lines_are_those_of_the_c_programs() {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, 10, 0, 1]);
        let address = Address {
            lid: 0,
            qp_num: 0x11,
            psn: 0x2_abcd,
            gid: Gid(gid),
        };
        assert_eq!(
            line("local address: ", &address, ","),
            "  local address:  LID 0x0000, QPN 0x000011, PSN 0x02abcd, GID ::ffff:10.10.0.1"
        );
        assert_eq!(
            line("remote address:", &Address::NONE, ","),
            "  remote address: LID 0x0000, QPN 0x000000, PSN 0x000000, GID ::"
        );
        assert_eq!(
            speeds(4096, 1000, Duration::from_millis(250)),
            [
                "8192000 bytes in 0.25 seconds = 262.14 Mbit/sec",
                "1000 iters in 0.25 seconds = 250.00 usec/iter"
            ]
        );
    }
}
