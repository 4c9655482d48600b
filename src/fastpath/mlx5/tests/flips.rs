//! Shows that the replay sees what it compares: single bits of recorded outputs are flipped, and each
//! flip must be noticed.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::compare::Tally;
use super::create::Machine;
use super::fields::{self, Role};
use super::scenario;
use super::vectors::{Recording, all_in, list, number, own_folder, text};
use super::world::Plan;

/// Of each field so many are flipped, of those that more have.
const PER_FIELD: usize = 12;

/// A recorded output: the field, and where it is.
struct Output {
    path: String,
    pointer: String,
    /// Bits of it that count: of bytes those that the device reads, of numbers 16.
    bits: Range<usize>,
    /// Bits among them that do not.
    except: Range<usize>,
}

impl Output {
    fn bit_count(&self) -> usize {
        self.bits.len() - self.except.len()
    }

    fn bit(&self, number: usize) -> usize {
        let bit = self.bits.start + number;
        match bit < self.except.start {
            true => bit,
            false => bit + self.except.len(),
        }
    }
}

/// The outputs of a recording that are compared.
fn outputs(recording: &Value) -> Vec<Output> {
    let mut outputs = Vec::new();
    fields::each(recording, &mut |path, pointer, role| {
        let value = recording.pointer(pointer).expect("the field is there");
        if path == "cmd.attrs" {
            outputs.extend(outputs_of_ioctl(recording, pointer, list(value)));
        } else if role == Role::Output && !value.is_null() && !is_excepted(recording, path, pointer)
        {
            let bits = bits(recording, path, value);
            let (bits, except) = match request_of(recording, path, pointer) {
                Some(wqe) => within(bits, wqe),
                None => (bits, 0..0),
            };
            outputs.push(Output {
                path: path.to_owned(),
                pointer: pointer.to_owned(),
                bits,
                except,
            });
        }
    })
    .expect("all fields are known");
    outputs
}

/// Of an ioctl that makes a queue: what the driver is told behind the addresses, and the sizes.
fn outputs_of_ioctl(recording: &Value, pointer: &str, attributes: &[Value]) -> Vec<Output> {
    const TO_DRIVER: u64 = 4096;
    let sizes: &[u64] = match text(&recording["kind"]) {
        "create_cq" => &[1],
        "create_srq" => &[5, 6],
        _ => &[8],
    };
    let compared = attributes
        .iter()
        .enumerate()
        .filter_map(|(index, attribute)| {
            let (from, name) = match number(&attribute["id"]) {
                TO_DRIVER => (16, "to the driver"),
                id if sizes.contains(&id) => (0, "sizes"),
                _ => return None,
            };
            let end = text(&attribute["data"]).len() / 2;
            Some(Output {
                path: format!("{} of an ioctl, {name}", text(&recording["kind"])),
                pointer: format!("{pointer}/{index}/data"),
                bits: from * 8..end * 8,
                except: 0..0,
            })
        });
    compared.collect()
}

/// The step that a field is in.
fn step_of<'s>(scenario: &'s Value, pointer: &str) -> &'s Value {
    let mut names = pointer.split('/').skip(1);
    match (names.next(), names.next()) {
        (Some("steps"), Some(index)) => {
            &scenario["steps"][index.parse::<usize>().expect("an index")]
        }
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
fn bits(recording: &Value, path: &str, value: &Value) -> Range<usize> {
    let to_core = match text(&recording["kind"]) {
        "create_cq" => 16..20,
        "create_srq" => 20..28,
        _ => 32..52,
    };
    match (path, value) {
        // The sizes in a written command, and what the driver is told behind the addresses.
        ("cmd.core_in", _) => to_core.start * 8..to_core.end * 8,
        ("cmd.uhw_in", _) => 16 * 8..text(value).len() * 4,
        (_, Value::String(text)) if !text.starts_with("0x") => 0..text.len() * 4,
        // Widths of stores, or links of a list.
        (_, Value::Array(list)) => 0..list.len() * 8,
        _ => 0..16,
    }
}

/// The request whose bytes an output has.
fn request_of<'s>(scenario: &'s Value, path: &str, pointer: &str) -> Option<&'s Value> {
    let requests = list(&step_of(scenario, pointer)["wqes"]);
    match path {
        "post_send.wqes.hex" => {
            let index = pointer.rsplit('/').nth(1)?;
            requests.get(index.parse::<usize>().ok()?)
        }
        "post_send.uar.hex" => requests.last(),
        _ => None,
    }
}

/// What of the bits are of a request, and what of them the device does not look at.
fn within(bits: Range<usize>, wqe: &Value) -> (Range<usize>, Range<usize>) {
    let end = bits.end.min(text(&wqe["hex"]).len() * 4);
    let except = match list(&wqe["ignore"]) {
        [from, bytes] => {
            let from = number(from) as usize * 8;
            from.min(end)..(from + number(bytes) as usize * 8).min(end)
        }
        _ => 0..0,
    };
    (bits.start..end, except)
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
            let element = match &mut list[bit / 8] {
                // A place of a list and the next: that is what was made.
                Value::Array(link) => &mut link[1],
                element => element,
            };
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
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }
}

/// Flips bits of each field of recordings of a kind, and has each noticed.
fn flip_all(
    is_of_kind: impl Fn(&Recording) -> bool,
    mut is_noticed: impl FnMut(&Recording, &Value) -> bool,
) -> usize {
    let recordings = all_in(&own_folder());
    let mut all: BTreeMap<String, Vec<(&Recording, Output)>> = BTreeMap::new();
    for recording in recordings.iter().filter(|recording| is_of_kind(recording)) {
        for output in outputs(&recording.value) {
            if output.bit_count() > 0 {
                let of_field = all.entry(output.path.clone()).or_default();
                of_field.push((recording, output));
            }
        }
    }
    let mut numbers = Numbers(5);
    for of_field in all.values() {
        for _ in 0..PER_FIELD {
            let (recording, output) = &of_field[numbers.below(of_field.len())];
            let bit = output.bit(numbers.below(output.bit_count()));
            let mut changed = recording.value.clone();
            flip(
                changed
                    .pointer_mut(&output.pointer)
                    .expect("the field is there"),
                bit,
            );
            assert!(
                is_noticed(recording, &changed),
                "bit {bit} of {} was flipped in {} {}, and nobody noticed",
                output.pointer,
                recording.place,
                text(&recording.value["name"])
            );
        }
    }
    all.len() * PER_FIELD
}

#[test]
#[cfg_attr(miri, ignore = "its pages are of files")]
fn each_flipped_bit_of_work_is_noticed() {
    let flipped = flip_all(
        |recording| recording.kind() == "scenario",
        |recording, changed| {
            let plan = Plan::of(&recording.value);
            scenario::replay(changed, &plan, &mut Tally::default()).is_err()
        },
    );
    assert!(flipped >= 400, "{flipped} flips are few");
}

#[test]
#[cfg_attr(miri, ignore = "its pages are of files")]
fn each_flipped_bit_of_a_new_queue_is_noticed() {
    let own = all_in(&own_folder());
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    let flipped = flip_all(
        |recording| recording.kind().starts_with("create_"),
        |recording, changed| {
            let config = text(&recording.value["config"]);
            let machine = machines.entry(config.to_owned());
            let machine = machine.or_insert_with(|| Machine::new(config, &own));
            let mut replay = |value| machine.replay(value, &mut Tally::default());
            // Two registers are used in turn: the flipped recording gets the one that the recording
            // itself was content with.
            if replay(&recording.value).is_err() {
                let unchanged = replay(&recording.value);
                assert_eq!(unchanged, Ok(()), "{}", recording.place);
            }
            let _other_register = replay(&recording.value);
            replay(changed).is_err()
        },
    );
    assert!(flipped >= 400, "{flipped} flips are few");
}
