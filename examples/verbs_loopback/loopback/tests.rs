//! The plan, without a device.

use rdmacm::{MwType, QpType};

use super::memory::LENGTH;
use super::plan::{Abilities, Planner};
use super::random::Random;
use super::request::{Action, Data, Round};

fn abilities(service: QpType) -> Abilities {
    let is_rc = service == QpType::Rc;
    Abilities {
        service,
        has_immediate: true,
        has_atomics: is_rc,
        has_atomic_write: is_rc,
        has_flush: is_rc,
        has_fence: is_rc,
        has_fenced_reads: is_rc,
        completes_in_order: true,
        least_read: 0,
        crosses_pages: true,
        windows: match service {
            QpType::Rc => vec![MwType::One, MwType::Two, MwType::Two],
            QpType::Uc => vec![MwType::One],
            _ => Vec::new(),
        },
        tells_arrival: is_rc,
        shares_receives: false,
        header: if service == QpType::Ud { 40 } else { 0 },
        inline: 60,
        send_segments: 3,
        read_segments: 3,
        receive_segments: 4,
        mtu: 1024,
        depth: 16,
    }
}

const SERVICES: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];

fn rounds(service: QpType, seed: u64, count: usize) -> Vec<Round> {
    let mut planner = Planner::new(Random::new(seed), abilities(service));
    (0..count).map(|_| planner.round(100)).collect()
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    for service in SERVICES {
        let [one, same, other] = [7, 7, 8].map(|seed| format!("{:?}", rounds(service, seed, 50)));
        assert_eq!(one, same);
        assert_ne!(one, other);
    }
}

#[test]
fn each_message_has_a_receive_with_room_for_it() {
    for shares_receives in [false, true] {
        for service in SERVICES {
            let abilities = Abilities {
                shares_receives,
                ..abilities(service)
            };
            let mut planner = Planner::new(Random::new(3), abilities);
            for _ in 0..300 {
                let round = planner.round(100);
                let messages = |side: usize| {
                    let requests = round.requests[side].iter();
                    requests.filter(|request| request.is_message()).count()
                };
                assert_eq!(
                    [messages(1), messages(0)],
                    [0, 1].map(|side| round.messages[side].len())
                );
                let receives = round.receives.concat();
                let heard = round.messages.concat_len();
                assert_eq!(receives.len(), heard);
                let room = |index: usize| -> usize {
                    receives[index]
                        .places
                        .iter()
                        .map(std::ops::Range::len)
                        .sum()
                };
                for (index, message) in round.messages.iter().flatten().enumerate() {
                    let header = planner.abilities.header;
                    assert!(room(index) >= message.bytes.len() + header);
                }
            }
        }
    }
}

trait Lengths {
    fn concat_len(&self) -> usize;
}

impl<T> Lengths for [std::collections::VecDeque<T>; 2] {
    fn concat_len(&self) -> usize {
        self[0].len() + self[1].len()
    }
}

#[test]
fn all_kinds_and_forms_come_up() {
    let mut kinds = std::collections::BTreeSet::new();
    let (mut inline, mut empty, mut through_window, mut fenced) = (0, 0, 0, 0);
    for round in rounds(QpType::Rc, 5, 500) {
        for request in round.requests.iter().flatten() {
            kinds.insert(request.kind().0);
            fenced += usize::from(request.flags.contains(rdmacm::SendFlags::FENCE));
            match &request.action {
                Action::Send { data, .. } | Action::Write { data, .. } => match data {
                    Data::Inline(_) => inline += 1,
                    Data::Segments(places) => {
                        empty += places.iter().filter(|place| place.is_empty()).count();
                    }
                },
                Action::Read { from, .. } => {
                    through_window += usize::from(from.window.is_some());
                }
                _ => {}
            }
        }
    }
    assert_eq!(kinds.len(), 12, "{kinds:?}");
    for count in [inline, empty, through_window, fenced] {
        assert!(count > 20, "{count}");
    }
}

/// Nothing reaches beyond a buffer, and the last request of each side is signaled.
#[test]
fn a_round_ends_with_a_completion_of_each_side() {
    for service in SERVICES {
        for round in rounds(service, 11, 300) {
            for requests in &round.requests {
                let last = requests.last();
                assert!(
                    last.is_none_or(|last| { last.flags.contains(rdmacm::SendFlags::SIGNALED) })
                );
                assert!(requests.len() <= 16);
            }
            for (_, at, bytes) in &round.fills {
                assert!(at + bytes.len() <= LENGTH);
            }
        }
    }
}
