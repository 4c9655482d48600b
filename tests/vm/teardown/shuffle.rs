//! Everything is let go in any order: connected, half connected and never connected ids, with
//! events held, by dropping, by explicit calls, and while the stack unwinds.

use std::env;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::Duration;

use super::kit::{Kit, Part, Plan, Stopped, Then, Way};
use super::order::{self, Checked};
use crate::harness::{CLEANUP_TIME, Outcome, Test, TestResult, Usage, tests};
use crate::tracer::Tracer;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![lets_go_in_any_order: 300 s]
}

/// Orders that are tried.
const CASES: u64 = 200;

/// More steps than building a connection has; the longer ones are complete.
const MOST_STEPS: u64 = 45;

/// Another seed than the usual one can be given in this variable.
const SEED: &str = "RDMACM_TEST_SEED";

fn lets_go_in_any_order() -> TestResult {
    let seed = env::var(SEED).map_or(Ok(1), |text| text.parse::<u64>())?;
    let trace = Tracer::own("shuffle")
        .args([seed.to_string(), CASES.to_string()])
        .timeout(Duration::from_secs(290))
        .run()?;
    // The last line tells the case that went wrong; `vm shuffle SEED 1` repeats it.
    order::assert_success(&trace);
    let checked = order::assert_orderly(&trace);
    let last = trace.output.lines().last();
    assert_eq!(last, Some(summary(checked).as_str()));
    assert!(checked.qps as u64 > CASES / 2, "{checked:?}");
    Ok(Outcome::Pass)
}

/// What the program says in the end.
fn summary(made: Checked) -> String {
    format!("{} ids, {} queue pairs", made.ids, made.qps)
}

/// The program: `shuffle SEED CASES`. Each case has the next seed.
pub fn run(args: &[String]) -> ExitCode {
    let number = |index: usize| args.get(index).and_then(|text| text.parse::<u64>().ok());
    let (Some(seed), Some(cases)) = (number(0), number(1)) else {
        return ExitCode::from(64);
    };
    let mut made = Checked::default();
    let before = Usage::now().expect("the counts");
    for seed in seed..seed + cases {
        run_case(seed, &mut made);
        if let Err(left) = before.wait_until_restored(CLEANUP_TIME) {
            panic!("seed {seed}: {left}");
        }
    }
    println!("{}", summary(made));
    ExitCode::SUCCESS
}

fn run_case(seed: u64, made: &mut Checked) {
    let mut random = Random(seed);
    let plan = Plan {
        steps: 1 + random.below(MOST_STEPS) as usize,
        then: Then::Return,
        rejects: random.below(4) == 0,
        migrates: random.below(2) == 0,
    };
    let mut kit = Kit::new(plan, made);
    if let Err(Stopped::Failed(error)) = kit.build() {
        panic!("seed {seed}, {plan:?}: {error}");
    }
    let mut parts: Vec<(Way, Part)> = kit
        .parts
        .into_iter()
        .map(|part| (random.way(), part))
        .collect();
    random.shuffle(&mut parts);
    let unwinds = random.below(3) == 0;
    println!("seed {seed}, {plan:?}, {}", describe(&parts, unwinds));
    match unwinds {
        true => unwind_with(parts),
        false => let_go(parts),
    }
}

fn describe(parts: &[(Way, Part)], unwinds: bool) -> String {
    let step = |(way, part): &(Way, Part)| match way {
        Way::Drop => part.name().to_owned(),
        way => format!("{way:?} {}", part.name()),
    };
    let steps: Vec<String> = parts.iter().map(step).collect();
    let how = if unwinds { "unwinds" } else { "lets go" };
    format!("{how}: {}", steps.join(", "))
}

/// The parts are dropped in their order while the stack unwinds.
fn unwind_with(parts: Vec<(Way, Part)>) {
    let unwound = panic::catch_unwind(AssertUnwindSafe(|| {
        let _parts = parts;
        // As `panic!`, without a message.
        panic::resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
}

fn let_go(parts: Vec<(Way, Part)>) {
    for (way, part) in parts {
        let name = part.name();
        if let Err(error) = part.let_go(way) {
            panic!("{way:?} {name}: {error}");
        }
    }
}

/// Random numbers that are the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Dropping as often as all else together.
    fn way(&mut self) -> Way {
        match self.below(6) {
            0 => Way::Destroy,
            1 => Way::DestroyQp,
            2 => Way::Disconnect,
            _ => Way::Drop,
        }
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}
