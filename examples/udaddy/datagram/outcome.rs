//! How a program ends.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use rdmacm::{Event, Status};

pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a program ends early.
#[derive(Debug)]
pub struct Failure {
    /// What the C program prints then on its standard output; where it has nothing to say, nothing.
    line: Option<String>,
    /// What this one has to say on its standard error.
    reason: String,
    /// What the C program returns then: the status of an event, or −1.
    status: i32,
}

impl Failure {
    /// An option that cannot be carried out on the device.
    pub fn invalid(line: String) -> Self {
        Self {
            line: Some(line),
            reason: "use smaller messages, or a larger MTU".to_owned(),
            status: -22, // EINVAL
        }
    }

    /// An event that ends the program.
    pub fn of_event(event: Event) -> Self {
        let name = event.name();
        let status = c_status(&event);
        Self {
            line: Some(format!("event: RDMA_CM_EVENT_{name}, error: {status}")),
            reason: event.into_error("wait").explanation().to_owned(),
            // A program that has failed must not look well.
            status: if status == 0 { -1 } else { status },
        }
    }

    /// The same failure, with the step that failed.
    pub fn during(self, step: &str) -> Self {
        let reason = format!("{step}: {}", self.reason);
        Self { reason, ..self }
    }
}

/// Errors of the crate, completions that failed, and texts.
impl<E: Into<Box<dyn std::error::Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            line: None,
            reason: error.into().to_string(),
            status: -1,
        }
    }
}

/// The status of an event as C programs see it: errnos are negative.
pub fn c_status(event: &Event) -> i32 {
    match event.status() {
        Status::Errno(errno) => -errno,
        Status::Rejected(reason) => reason.0.cast_signed(),
        _ => 0,
    }
}

/// Prints a line. Nobody has to read it.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints what the C program prints at its end, and makes an exit code of its return value.
pub fn report(program: &str, outcome: Result<()>) -> ExitCode {
    let status = match outcome {
        Ok(()) => 0,
        Err(failure) => {
            if let Some(line) = failure.line {
                say(format_args!("{program}: {line}"));
            }
            eprintln!("{program}: {}", failure.reason);
            failure.status
        }
    };
    say("test complete");
    say(format_args!("return status {status}"));
    match status {
        0 => ExitCode::SUCCESS,
        // An exit code has 8 bits, as in C; but that of a failure is never 0.
        status => ExitCode::from((status as u8).max(1)),
    }
}
