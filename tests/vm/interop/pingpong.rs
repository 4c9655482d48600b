//! Programs of verbs alone, whose two sides meet over TCP.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use super::matrix::{Maker, PAIRS};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::programs::{Ended, Program};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        rc_pingpong_polling: 200 s,
        rc_pingpong_sleeping: 200 s,
        rc_pingpong_of_a_small_message: 200 s,
        uc_pingpong_polling: 200 s,
        uc_pingpong_sleeping: 200 s,
        ud_pingpong_polling: 200 s,
        ud_pingpong_sleeping: 200 s,
        srq_pingpong_polling: 200 s,
        srq_pingpong_sleeping: 200 s,
        rc_pingpong_with_memory_on_demand: 200 s,
        srq_pingpong_with_memory_on_demand: 200 s,
        memory_on_demand_is_refused_where_there_is_none: 60 s,
        data_that_was_not_marked_is_noticed: 60 s,
        a_peer_without_a_gid_is_told_so: 60 s,
        other_numbers_of_queue_pairs_are_noticed: 60 s,
    ]
}

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// Messages in each direction.
const COUNT: &str = "100";

/// A game, between all pairs of makers.
struct Game {
    program: &'static str,
    port: u16,
    /// What both sides are told.
    args: &'static [&'static str],
    /// Bytes of a message.
    size: u32,
    queue_pairs: usize,
}

impl Game {
    fn run(&self) -> TestResult {
        let mut failures = String::new();
        for (server, client) in PAIRS {
            if let Err(error) = self.run_pair(server, client) {
                let _ = write!(failures, "\n{server:?} server, {client:?} client: {error}");
            }
        }
        assert!(failures.is_empty(), "{failures}");
        Ok(Outcome::Pass)
    }

    fn run_pair(&self, server: Maker, client: Maker) -> Result<(), Box<dyn Error>> {
        let addr = environment::addr().to_string();
        let args = [self.args, &["-g", "1", "-c", "-n", COUNT]].concat();
        let path = |maker| path(maker, self.program);
        let mut server = Program::serve(&path(server), self.port, &args)?;
        let port = self.port.to_string();
        let args = [&args[..], &["-p", &port, &addr]].concat();
        let client = Program::start(&path(client), &args)?.wait(PATIENCE)?;
        self.check(&client)?;
        self.check(&server.wait(PATIENCE)?)
    }

    /// What is printed is the same for both makers, but for the numbers.
    fn check(&self, ended: &Ended) -> Result<(), Box<dyn Error>> {
        let count: u32 = COUNT.parse()?;
        let bytes = format!("{} bytes in ", 2 * count * self.size);
        let is_right = ended.status.success()
            && without_numbers(&ended.output) == self.lines()
            && ended.output.contains(&bytes)
            && ended.output.contains(&format!("{count} iters in "));
        match is_right {
            true => Ok(()),
            false => Err(format!("{ended}expected {bytes}and:\n{}", self.lines()).into()),
        }
    }

    fn lines(&self) -> String {
        // The C program has a colon where the others have a comma.
        let before_gid = if self.program == "ud_pingpong" {
            ':'
        } else {
            ','
        };
        let local = format!("  local address:  LID #, QPN #, PSN #{before_gid} GID ::ffff:#\n");
        let remote = "  remote address: LID #, QPN #, PSN #, GID ::ffff:#\n";
        [
            &local.repeat(self.queue_pairs),
            &remote.repeat(self.queue_pairs),
            "# bytes in # seconds = # Mbit/sec\n",
            "# iters in # seconds = # usec/iter\n",
        ]
        .concat()
    }
}

/// Ours are called as in C, but for the beginning.
fn path(maker: Maker, program: &str) -> String {
    match maker {
        Maker::C => maker.path(&format!("ibv_{program}")),
        Maker::Rust => maker.path(program),
    }
}

/// Puts a `#` in the place of each word that begins with a digit, up to the sign after it.
fn without_numbers(text: &str) -> String {
    let mut shape = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        shape += &rest[..at];
        shape.push('#');
        let is_of_number = |letter: char| letter.is_ascii_alphanumeric() || letter == '.';
        rest = rest[at..].trim_start_matches(is_of_number);
    }
    shape + rest
}

fn rc_pingpong_polling() -> TestResult {
    let game = Game {
        program: "rc_pingpong",
        port: 18601,
        args: &[],
        size: 4096,
        queue_pairs: 1,
    };
    game.run()
}

fn rc_pingpong_sleeping() -> TestResult {
    let game = Game {
        program: "rc_pingpong",
        port: 18602,
        args: &["-e", "-s", "20000", "-r", "7", "-m", "512"],
        size: 20000,
        queue_pairs: 1,
    };
    game.run()
}

/// So small that it goes inline.
fn rc_pingpong_of_a_small_message() -> TestResult {
    let game = Game {
        program: "rc_pingpong",
        port: 18603,
        args: &["-e", "-s", "16", "-r", "1"],
        size: 16,
        queue_pairs: 1,
    };
    game.run()
}

fn uc_pingpong_polling() -> TestResult {
    let game = Game {
        program: "uc_pingpong",
        port: 18604,
        args: &[],
        size: 4096,
        queue_pairs: 1,
    };
    game.run()
}

fn uc_pingpong_sleeping() -> TestResult {
    let game = Game {
        program: "uc_pingpong",
        port: 18605,
        args: &["-e", "-s", "9000"],
        size: 9000,
        queue_pairs: 1,
    };
    game.run()
}

fn ud_pingpong_polling() -> TestResult {
    let game = Game {
        program: "ud_pingpong",
        port: 18606,
        args: &[],
        size: 1024,
        queue_pairs: 1,
    };
    game.run()
}

fn ud_pingpong_sleeping() -> TestResult {
    let game = Game {
        program: "ud_pingpong",
        port: 18607,
        args: &["-e", "-s", "1000", "-r", "10"],
        size: 1000,
        queue_pairs: 1,
    };
    game.run()
}

fn srq_pingpong_polling() -> TestResult {
    let game = Game {
        program: "srq_pingpong",
        port: 18608,
        args: &[],
        size: 4096,
        queue_pairs: 16,
    };
    game.run()
}

fn srq_pingpong_sleeping() -> TestResult {
    let game = Game {
        program: "srq_pingpong",
        port: 18609,
        args: &["-e", "-q", "5", "-r", "6", "-s", "5000"],
        size: 5000,
        queue_pairs: 5,
    };
    game.run()
}

fn has_memory_on_demand() -> Result<bool, Box<dyn Error>> {
    let device = rdmacm::devices()?.into_iter().next().ok_or("no device")?;
    Ok(device.open()?.attr()?.on_demand_paging().is_supported)
}

/// Runs a game with memory on demand, where there is such.
fn run_on_demand(game: &Game) -> TestResult {
    match has_memory_on_demand()? {
        true => game.run(),
        false => Ok(Outcome::Skip("rxe of this kernel has none".to_owned())),
    }
}

fn rc_pingpong_with_memory_on_demand() -> TestResult {
    run_on_demand(&Game {
        program: "rc_pingpong",
        port: 18613,
        args: &["-o", "-e", "-s", "20000"],
        size: 20000,
        queue_pairs: 1,
    })
}

fn srq_pingpong_with_memory_on_demand() -> TestResult {
    run_on_demand(&Game {
        program: "srq_pingpong",
        port: 18614,
        args: &["-o", "-e"],
        size: 4096,
        queue_pairs: 16,
    })
}

fn memory_on_demand_is_refused_where_there_is_none() -> TestResult {
    if has_memory_on_demand()? {
        return Ok(Outcome::Skip("rxe of this kernel has it".to_owned()));
    }
    for program in ["rc_pingpong", "srq_pingpong"] {
        let path = path(Maker::Rust, program);
        let ended = Program::start(&path, &["-o", "-g", "1"])?.wait(PATIENCE)?;
        assert!(!ended.status.success(), "{ended}");
        assert!(ended.errors.contains("-o: rxe0"), "{ended}");
    }
    Ok(Outcome::Pass)
}

/// Runs our program on both sides, with other options on each. Returns how server and client ended.
fn run_ours(
    program: &str,
    port: u16,
    server: &[&str],
    client: &[&str],
) -> Result<(Ended, Ended), Box<dyn Error>> {
    let addr = environment::addr().to_string();
    let path = path(Maker::Rust, program);
    let mut server = Program::serve(&path, port, server)?;
    let port = port.to_string();
    let args = [client, &["-p", &port, &addr]].concat();
    let client = Program::start(&path, &args)?.wait(PATIENCE)?;
    Ok((server.wait(PATIENCE)?, client))
}

fn data_that_was_not_marked_is_noticed() -> TestResult {
    for program in ["rc_pingpong", "ud_pingpong"] {
        let size = if program == "ud_pingpong" {
            "1024"
        } else {
            "5000"
        };
        let args = ["-g", "1", "-e", "-n", "10", "-s", size];
        let server = [&args[..], &["-c"]].concat();
        let (server, client) = run_ours(program, 18611, &server, &args)?;
        assert!(client.status.success(), "{client}");
        assert!(!server.status.success(), "{server}");
        assert!(server.output.contains("invalid data in page 0"), "{server}");
    }
    Ok(Outcome::Pass)
}

fn a_peer_without_a_gid_is_told_so() -> TestResult {
    let path = path(Maker::Rust, "rc_pingpong");
    let ended = Program::start(&path, &[])?.wait(PATIENCE)?;
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.errors.contains("-g"), "{ended}");
    Ok(Outcome::Pass)
}

fn other_numbers_of_queue_pairs_are_noticed() -> TestResult {
    let server = ["-g", "1", "-e", "-q", "3"];
    let client = ["-g", "1", "-e", "-q", "4"];
    let (server, client) = run_ours("srq_pingpong", 18612, &server, &client)?;
    assert!(server.errors.contains("has 4 queue pairs"), "{server}");
    assert!(!client.status.success(), "{client}");
    Ok(Outcome::Pass)
}
