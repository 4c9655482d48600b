//! The same for mlx5, on the host: over the device made of software, next to what the C provider was
//! counted to take over a faked kernel (libmlx5 65.0).

use std::error::Error;
use std::process::Command;

use super::marks_of;
use super::split::Sources;
use crate::tracer::steps;

/// A call: what the program calls it, what it is, how many requests or completions it has, what the
/// C provider takes for each, and the most that ours is to take: a third of that.
struct Row {
    mark: &'static str,
    call: &'static str,
    count: u64,
    theirs: u64,
    limit: u64,
}

const fn row(mark: &'static str, call: &'static str, count: u64, theirs: u64, limit: u64) -> Row {
    Row {
        mark,
        call,
        count,
        theirs,
        limit,
    }
}

const ROWS: [Row; 7] = [
    row(
        "send of 64 bytes inline",
        "send of 64 bytes inline, signaled (128 bytes to the register)",
        1,
        355,
        118,
    ),
    row(
        "write of 1 segment",
        "write of one segment (64 bytes to the register)",
        1,
        318,
        106,
    ),
    row("a list of 8 sends", "list of 8 sends, each", 8, 187, 62),
    row("receive into 1 segment", "receive", 1, 134, 45),
    row("poll of 1 completion", "poll of one completion", 1, 185, 62),
    row(
        "poll of 16 completions",
        "poll of 16 completions, each",
        16,
        107,
        36,
    ),
    row("poll of nothing", "poll of nothing", 1, 91, 15),
];

/// The address of the device made of software.
const ADDRESS: &str = "10.9.0.1";

/// Prints the table, and below it what the instructions of each call do. False where ours takes more
/// than it is to.
pub fn print_table(program: &str, library: &str) -> Result<bool, Box<dyn Error>> {
    let mut command = Command::new(program);
    command.arg(ADDRESS).env("LD_PRELOAD", library);
    let calls = steps::count(command).map_err(|error| format!("{program}: {error}"))?;
    let marks = marks_of(&calls)?;
    println!(
        "instructions in user space of one call on mlx5; there are no system calls\n\
         {:>8} {:>8} {:>8} {:>8}",
        "C", "limit", "rdmacm", "ratio"
    );
    let mut is_within = true;
    for row in ROWS {
        let steps = calls.steps.get(row.mark).ok_or("a call was not made")?;
        if steps.syscalls > 0 {
            return Err(format!("{} system calls of a {}", steps.syscalls, row.call).into());
        }
        let instructions = (steps.addresses.len() - marks.addresses.len()) as u64;
        let ours = instructions.div_ceil(row.count);
        is_within &= ours <= row.limit;
        println!(
            "{:>8} {:>8} {ours:>8} {:>8.2}  {}{}",
            row.theirs,
            row.limit,
            ours as f64 / row.theirs as f64,
            row.call,
            if ours > row.limit { " (over)" } else { "" }
        );
    }
    println!("\nwhat they do, by the functions of ours that they were compiled from");
    let mut sources = Sources::of(&calls.maps)?;
    for row in ROWS {
        println!("\n{}", row.call);
        let split = sources.split(&calls.steps[row.mark], marks)?;
        split.print(row.count);
    }
    Ok(is_within)
}
