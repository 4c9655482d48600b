//! Shows that the replay sees what it compares: single bits of recorded outputs are flipped, and each
//! flip must be noticed.

use std::ops::Range;

use serde_json::Value;

use super::compare::Tally;
use super::fields::{self, Role};
use super::scenario;
use super::vectors::{Recording, all_in, bytes, list, number, own_folder, text};
use super::world::Plan;

/// Of each field so many are flipped, of those that more have.
const PER_FIELD: usize = 12;

/// A recorded output: the field, and where it is.
struct Output {
    path: String,
    pointer: String,
    /// Bits of it that count: of bytes those that the device reads, of numbers 16.
    bits: Vec<Range<usize>>,
}

/// The outputs of a scenario that are compared.
fn outputs(scenario: &Value) -> Vec<Output> {
    let mut outputs = Vec::new();
    fields::each(scenario, &mut |path, pointer, role| {
        let value = scenario.pointer(pointer).expect("the field is there");
        if role == Role::Output && !value.is_null() && !is_excepted(scenario, path, pointer) {
            outputs.push(Output {
                bits: bits(scenario, path, pointer, value),
                path: path.to_owned(),
                pointer: pointer.to_owned(),
            });
        }
    })
    .expect("all fields are known");
    outputs
}

/// The step that a field is in.
fn step_of<'s>(scenario: &'s Value, pointer: &str) -> &'s Value {
    let mut names = pointer.split('/').skip(1);
    match (names.next(), names.next()) {
        (Some("steps"), Some(index)) => &scenario["steps"][index.parse::<usize>().expect("an index")],
        _ => &Value::Null,
    }
}

/// What the replay leaves out: doorbells where C rings with the wrong request, and what C returns for
/// the completion of nobody.
fn is_excepted(scenario: &Value, path: &str, pointer: &str) -> bool {
    let step = step_of(scenario, pointer);
    let is_quirk = !step["quirk"].is_null() && path.starts_with("post_send.uar.");
    let is_of_nobody = path == "poll_cq.ret" && number(&step["ret"]) as i64 == -2;
    is_quirk || is_of_nobody || (path == "sq_final" && has_stale_bytes(scenario))
}

/// Whether bytes of the send queue are left as they were, or written by a request that fails.
fn has_stale_bytes(scenario: &Value) -> bool {
    let is_stale = |step: &Value| {
        let wqes = list(&step["wqes"]);
        wqes.iter().any(|wqe| !wqe["ignore"].is_null())
            || (step["op"] == "post_send" && number(&step["ret"]) != 0)
    };
    !scenario["precondition"].is_null() || list(&scenario["steps"]).iter().any(is_stale)
}

/// The bits of an output that count.
fn bits(scenario: &Value, path: &str, pointer: &str, value: &Value) -> Vec<Range<usize>> {
    let length = match value {
        Value::String(text) if !text.starts_with("0x") => text.len() * 4,
        // A list of widths.
        Value::Array(list) => return vec![0..list.len() * 8],
        _ => return vec![0..16],
    };
    let step = step_of(scenario, pointer);
    let wqes = list(&step["wqes"]);
    let wqe = match path {
        "post_send.wqes.hex" => {
            let index = pointer.rsplit('/').nth(1).and_then(|index| index.parse().ok());
            wqes.get::<usize>(index.expect("an index"))
        }
        "post_send.uar.hex" => wqes.last(),
        _ => None,
    };
    let Some(wqe) = wqe else {
        return vec![0..length];
    };
    let length = length.min(bytes(&wqe["hex"]).len() * 8);
    match list(&wqe["ignore"]) {
        [from, bytes] => {
            let from = number(from) as usize * 8;
            let to = from + number(bytes) as usize * 8;
            vec![0..from.min(length), to.min(length)..length]
        }
        _ => vec![0..length],
    }
}

/// Flips one bit.
fn flip(value: &mut Value, bit: usize) {
    match value {
        Value::String(text) if text.starts_with("0x") => {
            *text = format!("{:#x}", number(&Value::String(text.clone())) ^ 1 << bit);
        }
        Value::String(text) => {
            let at = bit / 4;
            let digit = super::vectors::digit(text.as_bytes()[at]) ^ 1 << (bit % 4);
            text.replace_range(at..=at, &format!("{digit:x}"));
        }
        Value::Array(list) => {
            let element = &mut list[bit / 8];
            *element = (number(element) ^ 1 << (bit % 8)).into();
        }
        number_of => *number_of = (number(number_of) as i64 ^ 1 << bit).into(),
    }
}

/// Numbers that look random, the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        // The generator of Knuth's MMIX.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn each_flipped_bit_of_a_scenario_is_noticed() {
    let recordings = all_in(&own_folder());
    let scenarios: Vec<&Recording> = recordings
        .iter()
        .filter(|recording| recording.kind() == "scenario")
        .collect();
    let mut all: Vec<(usize, Output)> = Vec::new();
    for (index, recording) in scenarios.iter().enumerate() {
        all.extend(outputs(&recording.value).into_iter().map(|output| (index, output)));
    }
    let mut fields: Vec<String> = all.iter().map(|(_, output)| output.path.clone()).collect();
    fields.sort();
    fields.dedup();
    let mut numbers = Numbers(5);
    let mut flipped = 0;
    for field in &fields {
        let of_field: Vec<&(usize, Output)> = all
            .iter()
            .filter(|(_, output)| output.path == *field && output.bits.iter().any(|bits| !bits.is_empty()))
            .collect();
        for _ in 0..PER_FIELD {
            let (index, output) = of_field[numbers.below(of_field.len())];
            let ranges = output.bits.iter().filter(|range| !range.is_empty());
            let count: usize = ranges.clone().map(|range| range.len()).sum();
            let bit = ranges.flat_map(Clone::clone).nth(numbers.below(count)).expect("a bit");
            let recording = scenarios[*index];
            let plan = Plan::of(&recording.value);
            let mut changed = recording.value.clone();
            flip(changed.pointer_mut(&output.pointer).expect("the field is there"), bit);
            let outcome = scenario::replay(&changed, &plan, &mut Tally::default());
            let name = text(&recording.value["name"]);
            assert!(
                outcome.is_err(),
                "bit {bit} of {} was flipped in {} {name}, and nobody noticed",
                output.pointer,
                recording.place
            );
            flipped += 1;
        }
    }
    assert!(flipped >= 400, "{flipped} flips are few");
}
