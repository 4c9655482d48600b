//! All recordings of a folder.

use std::collections::BTreeSet;

use super::compare::{Difference, Tally};
use super::create::Machine;
use super::fields::{self, Role};
use super::scenario;
use super::vectors::{Recording, all_in, other_folder, own_folder, text};
use super::world::Plan;

/// Replays all recordings, and tells all that differ. Each field that is an output in one of them must
/// have been compared.
fn replay_all(recordings: &[Recording], own: &[Recording]) {
    let mut tally = Tally::default();
    let mut outputs = BTreeSet::new();
    let mut differences = Vec::new();
    let mut machine: Option<(&str, Machine)> = None;
    for recording in recordings {
        let value = &recording.value;
        if matches!(recording.kind(), "open_device" | "control_sequence") {
            // Requests to the kernel and nothing else: replayed in the tests of the verbs.
            continue;
        }
        let listed = fields::each(value, &mut |path, _, role| {
            if role == Role::Output && !outputs.contains(path) {
                outputs.insert(path.to_owned());
            }
        });
        let replayed = listed.and_then(|()| match recording.kind() {
            "scenario" => scenario::replay(value, &Plan::of(value), &mut tally),
            "create_cq" | "create_srq" | "create_qp" => {
                // Registers are used in turn, from one queue pair to the next.
                if machine
                    .as_ref()
                    .is_none_or(|(file, _)| *file != recording.file())
                {
                    let new = Machine::new(text(&value["config"]), own);
                    machine = Some((recording.file(), new));
                }
                let (_, machine) = machine.as_mut().expect("it was just made");
                machine.replay(value, &mut tally)
            }
            other => Err(Difference::new(format!(
                "{other} is not known to the replay"
            ))),
        });
        if let Err(difference) = replayed {
            let place = format_args!("{} {}", recording.place, text(&value["name"]));
            differences.push(difference.at(place).to_string());
        }
    }
    let count = differences.len();
    assert!(
        count == 0,
        "{count} recordings differ:\n{}",
        differences.join("\n")
    );
    for field in outputs {
        assert!(
            tally.compared.contains_key(&*field),
            "{field} was not compared"
        );
    }
    println!("{} recordings: {tally:#?}", recordings.len());
}

#[test]
#[cfg_attr(miri, ignore = "its pages are of files")]
fn queues_are_made_and_worked_as_the_c_provider_does() {
    let own = all_in(&own_folder());
    replay_all(&own, &own);
    if let Some(folder) = other_folder() {
        replay_all(&all_in(&folder), &own);
    }
}
