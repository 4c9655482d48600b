//! `vm trace`: shows or counts the system calls of any program, as the tests see them.

use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;

use crate::tracer::{Event, Kind, Trace, Tracer};

const USAGE: &str = "\
usage: vm trace [--inject N:ERRNO[:NAME]] [--summary|--full] [--timeout SEC] -- COMMAND [ARG...]

Prints the RDMA calls of the command and its children when it has ended, and exits as it did.

  --inject N:ERRNO         the N-th RDMA call fails, with an errno such as ENOMEM
  --inject N:ERRNO:NAME    the N-th call of that name, such as CREATE_ID, QP.CREATE or mmap
  --summary                counts instead of calls
  --full                   all system calls
  --timeout SEC            then kill it (default 60)";

/// The largest errno there is.
const MAX_ERRNO: i32 = 133;

/// Exit code for a wrong command line.
const EXIT_USAGE: u8 = 64;

/// What to print.
enum Form {
    Device,
    Full,
    Summary,
}

struct Options {
    tracer: Tracer,
    form: Form,
}

/// Runs the subcommand.
pub fn run(args: &[String]) -> ExitCode {
    let Some(options) = parse(args) else {
        eprintln!("{USAGE}");
        return EXIT_USAGE.into();
    };
    match options.tracer.show_output().run() {
        Ok(trace) => {
            print(&trace, &options.form);
            exit_code(&trace)
        }
        Err(error) => {
            eprintln!("vm trace: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: &[String]) -> Option<Options> {
    let end = args.iter().position(|arg| arg == "--")?;
    let (program, program_args) = args[end + 1..].split_first()?;
    let mut tracer = Tracer::new(program)
        .args(program_args)
        .timeout(Duration::from_secs(60));
    let mut form = Form::Device;
    let mut options = args[..end].iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--summary" => form = Form::Summary,
            "--full" => form = Form::Full,
            "--inject" => tracer = inject(tracer, options.next()?)?,
            "--timeout" => {
                tracer = tracer.timeout(Duration::from_secs(options.next()?.parse().ok()?));
            }
            _ => return None,
        }
    }
    Some(Options { tracer, form })
}

/// Adds the rule that `N:ERRNO[:NAME]` describes.
fn inject(tracer: Tracer, text: &str) -> Option<Tracer> {
    let mut parts = text.splitn(3, ':');
    let (n, errno) = (parts.next()?.parse().ok()?, errno_by_name(parts.next()?)?);
    Some(match parts.next().map(str::to_owned) {
        Some(name) => tracer.inject(n, errno, move |event| event.name() == name),
        None => tracer.inject(n, errno, Event::is_device),
    })
}

fn errno_by_name(name: &str) -> Option<i32> {
    (1..=MAX_ERRNO).find(|number| format!("{:?}", Errno::from_raw(*number)) == name)
}

fn print(trace: &Trace, form: &Form) {
    match form {
        Form::Summary => print!("{}", trace.summary()),
        Form::Full => trace.events.iter().for_each(|event| println!("{event}")),
        Form::Device => {
            let device = trace
                .events
                .iter()
                .filter(|event| event.kind != Kind::Other);
            device.for_each(|event| println!("{event}"));
        }
    }
    println!("{}", trace.status);
}

/// The command's exit code; a command that a signal ended has none.
fn exit_code(trace: &Trace) -> ExitCode {
    trace
        .status
        .code()
        .map_or(ExitCode::FAILURE, |code| (code as u8).into())
}
