//! Runs tests one after the other, each under a watchdog and between two counts of what the
//! process and the kernel hold.

mod duration;
mod netlink;
mod resources;
mod watchdog;

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

pub use resources::Usage;
pub use watchdog::EXIT_HUNG;

/// How long a test may take if it does not say otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the kernel may take to clean up behind a test.
pub const CLEANUP_TIME: Duration = Duration::from_secs(3);

/// How a test that did not fail ended.
pub enum Outcome {
    /// Everything was as it should be.
    Pass,
    /// The guest cannot do what the test needs, for this reason.
    Skip(String),
}

/// What a test returns; an assertion that panics counts as a failure as well.
pub type TestResult = Result<Outcome, Box<dyn Error>>;

/// One test.
pub struct Test {
    name: String,
    run: fn() -> TestResult,
    timeout: Duration,
    /// Why it is not run.
    left_out: Option<&'static str>,
}

impl Test {
    /// A test with the default timeout. [`tests!`](crate::harness::tests) makes the name.
    pub fn new(name: &str, run: fn() -> TestResult) -> Self {
        let name = name.strip_prefix("vm::").unwrap_or(name).to_owned();
        Self {
            name,
            run,
            timeout: DEFAULT_TIMEOUT,
            left_out: None,
        }
    }

    /// Its name, with that of its module in front.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the test more or less time than [`DEFAULT_TIMEOUT`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Has the test reported as skipped, for this reason.
    pub fn left_out(mut self, reason: &'static str) -> Self {
        self.left_out = Some(reason);
        self
    }
}

/// The named functions as a list of tests, called after their module. Seconds behind a name are
/// the test's timeout: `tests![first, second: 120 s]`.
macro_rules! tests {
    ($($name:ident $(: $seconds:literal s)?),* $(,)?) => {
        vec![$(
            $crate::harness::Test::new(concat!(module_path!(), "::", stringify!($name)), $name)
                $(.timeout(std::time::Duration::from_secs($seconds)))?
        ),*]
    };
}
pub(crate) use tests;

/// Runs the tests that the arguments select and prints what became of them. Where they `can_run`
/// is false, all are reported as ignored.
pub fn run(mut args: Arguments, tests: Vec<Test>, can_run: bool) -> ExitCode {
    // The counts are those of the whole machine: two tests at a time would see each other.
    args.test_threads = Some(1);
    if !can_run && !args.list {
        println!("vm: no RDMA guest here, all tests are ignored; ci/test boots one and runs them");
    }
    let trials = tests
        .into_iter()
        .map(|test| trial(test).with_ignored_flag(!can_run));
    let conclusion = libtest_mimic::run(&args, trials.collect());
    if !args.list {
        duration::print_longest();
        let (passed, failed) = (conclusion.num_passed, conclusion.num_failed);
        println!(
            "{passed} passed, {failed} failed, {} skipped",
            conclusion.num_ignored
        );
    }
    conclusion.exit_code()
}

fn trial(test: Test) -> Trial {
    Trial::ignorable_test(test.name.clone(), move || run_guarded(&test))
}

/// Runs one test. Its own failure comes first in the message, then what it left behind.
fn run_guarded(test: &Test) -> Result<Completion, Failed> {
    if let Some(reason) = test.left_out {
        return Ok(Completion::ignored_with(reason));
    }
    let _watchdog = watchdog::watch(&test.name, test.timeout);
    let _duration = duration::measure(&test.name);
    let before = Usage::now()?;
    let outcome = catch_unwind(AssertUnwindSafe(test.run));
    let left_behind = before.wait_until_restored(CLEANUP_TIME).err();
    let failure = match outcome {
        Ok(Ok(outcome)) if left_behind.is_none() => return Ok(outcome.into()),
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(with_sources(&*error)),
        Err(panic) => Some(panic_message(&*panic)),
    };
    Err(failure
        .into_iter()
        .chain(left_behind)
        .collect::<Vec<_>>()
        .join("\n")
        .into())
}

impl From<Outcome> for Completion {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Pass => Self::Completed,
            Outcome::Skip(reason) => Self::ignored_with(reason),
        }
    }
}

fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    format!(
        "panicked: {}",
        text.unwrap_or("with something that is not a text")
    )
}
