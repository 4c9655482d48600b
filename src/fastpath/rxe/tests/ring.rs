//! Producer and consumer against a queue that is obviously right.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use super::Shared;
use crate::fastpath::rxe::cursor::FreeSlot;
use crate::fastpath::rxe::ring::{BadRing, Consumer, Producer};
use crate::sys::twin::Twin;

const ELEMENT: usize = 64;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Fills a slot, if there is one.
    Fill,
    Publish,
    Discard,
    /// The kernel takes an element, if there is one.
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Fill),
        2 => Just(Step::Publish),
        1 => Just(Step::Discard),
        3 => Just(Step::Take),
    ];
    prop::collection::vec(step, 0..120)
}

/// Fewer cases under Miri, which is slow.
fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 8 } else { 256 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Takes what is there, at most `limit` elements.
fn drain(consumer: &mut Consumer, limit: usize, take: impl FnMut(usize, NonNull<u8>)) -> usize {
    let count = consumer.full().min(limit);
    consumer.take(count, take);
    count
}

/// Fills a slot, which counts from then on.
fn fill(producer: &mut Producer, slot: FreeSlot, value: u64) {
    // SAFETY: the producer's free slot has 64 bytes, aligned to 8, and is ours.
    unsafe { producer.address(&slot).cast::<u64>().write(value) };
    producer.advance(slot);
}

/// Fills the next slot, which must be free.
fn fill_next(producer: &mut Producer, value: u64) {
    let slot = producer.free_slot().expect("a free slot");
    fill(producer, slot, value);
}

fn read(slot: NonNull<u8>) -> u64 {
    // SAFETY: a slot has 64 bytes, aligned to 8, and the kernel does not touch a full one.
    unsafe { slot.cast::<u64>().read() }
}

fn value_of(element: &[u8]) -> u64 {
    u64::from_ne_bytes(element[..8].try_into().unwrap())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_producer_is_a_queue(entries in 1u32..20, steps in steps()) {
        let shared = Shared::new(entries, ELEMENT);
        let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
        let depth = producer.depth() as usize;
        prop_assert!(depth >= entries as usize && (depth + 1).is_power_of_two());
        let (mut filled, mut published) = (VecDeque::new(), VecDeque::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Fill => {
                    let slot = producer.free_slot();
                    let is_full = filled.len() + published.len() == depth;
                    prop_assert_eq!(slot.is_none(), is_full);
                    if let Some(slot) = slot {
                        fill(&mut producer, slot, number as u64);
                        filled.push_back(number as u64);
                    }
                }
                Step::Publish => {
                    prop_assert_eq!(producer.has_unpublished(), !filled.is_empty());
                    producer.publish();
                    published.append(&mut filled);
                }
                Step::Discard => {
                    producer.discard();
                    filled.clear();
                }
                Step::Take => {
                    let taken = shared.take().map(|element| value_of(&element));
                    prop_assert_eq!(taken, published.pop_front());
                }
            }
        }
    }

    #[test]
    fn a_consumer_is_a_queue(
        entries in 1u32..20,
        steps in prop::collection::vec(prop_oneof![Just(None), (0usize..6).prop_map(Some)], 0..120),
    ) {
        let shared = Shared::new(entries, ELEMENT);
        let mut consumer = Consumer::new(shared.mapping.clone(), ELEMENT).unwrap();
        let depth = consumer.depth() as usize;
        let mut model = VecDeque::new();
        for (number, step) in steps.into_iter().enumerate() {
            let Some(limit) = step else {
                let has_room = shared.put(&(number as u64).to_ne_bytes());
                prop_assert_eq!(has_room, model.len() < depth);
                if has_room {
                    model.push_back(number as u64);
                }
                continue;
            };
            prop_assert_eq!(consumer.full(), model.len());
            let mut drained = Vec::new();
            let count = if number % 2 == 0 {
                drain(&mut consumer, limit, |index, slot| {
                    assert_eq!(index, drained.len());
                    drained.push(read(slot));
                })
            } else {
                let end = consumer.produced();
                let one_by_one = std::iter::from_fn(|| consumer.next_before(end));
                drained.extend(one_by_one.take(limit).map(read));
                consumer.give_back();
                drained.len()
            };
            prop_assert_eq!(count, limit.min(model.len()));
            prop_assert_eq!(drained, model.drain(..count).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn no_index_leads_outside_the_ring(indices in prop::collection::vec(any::<u32>(), 1..20)) {
        let shared = Shared::new(3, ELEMENT);
        let mut consumer = Consumer::new(shared.mapping.clone(), ELEMENT).unwrap();
        let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
        for index in indices {
            set_index(&shared, 128, index);
            let taken = drain(&mut consumer, usize::MAX, |_, slot| _ = read(slot));
            prop_assert!(taken <= 3);
            set_index(&shared, 256, index);
            for _ in 0..4 {
                if let Some(slot) = producer.free_slot() {
                    fill(&mut producer, slot, 1);
                }
            }
            producer.publish();
        }
    }
}

/// Writes an index as no kernel would.
fn set_index(shared: &Shared, offset: usize, index: u32) {
    // SAFETY: the header is mapped and longer than that, and the offset is a multiple of 4.
    let index_at = unsafe { shared.mapping.address().add(offset).cast::<u32>() };
    // SAFETY: as above; nobody else uses the ring meanwhile.
    unsafe { index_at.write(index) };
}

/// What was not published cannot be taken: an index that says so makes no room.
#[test]
fn an_index_ahead_of_what_was_published_frees_nothing() {
    let shared = Shared::new(7, ELEMENT);
    let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
    for value in 0..7 {
        fill_next(&mut producer, value);
    }
    for index in 1..8 {
        set_index(&shared, 256, index);
        assert!(producer.free_slot().is_none(), "{index}");
    }
    producer.publish();
    set_index(&shared, 256, 7);
    assert!(producer.free_slot().is_some());
}

#[test]
fn indices_in_memory_stay_masked() {
    let shared = Shared::new(1, ELEMENT);
    let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
    for value in 0..5 {
        fill_next(&mut producer, value);
        assert!(producer.free_slot().is_none(), "one fits");
        producer.publish();
        // SAFETY: the header is mapped; nobody writes it meanwhile.
        let index = unsafe { shared.mapping.address().add(128).cast::<u32>().read() };
        assert_eq!(u64::from(index), (value + 1) % 2);
        assert_eq!(shared.take().map(|element| value_of(&element)), Some(value));
    }
}

#[test]
fn indices_count_modulo_the_ring() {
    let shared = Shared::new(3, ELEMENT);
    // A consumer's index of 8, of 4 slots, is 0.
    set_index(&shared, 256, 8);
    let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
    for value in 0..3 {
        fill_next(&mut producer, value);
    }
    assert!(producer.free_slot().is_none());
    producer.publish();
    set_index(&shared, 256, 9);
    assert!(producer.free_slot().is_some());
}

#[test]
fn nothing_is_visible_before_it_is_published() {
    let shared = Shared::new(4, ELEMENT);
    let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
    fill_next(&mut producer, 1);
    assert_eq!(shared.take(), None);
    producer.publish();
    assert!(shared.take().is_some());
}

#[test]
fn a_header_that_lies_is_refused() {
    // The slot's size as a power of two, and the mask; the ring has 8 slots of 64 bytes.
    let lies = [
        (5, 7),
        (7, 7),
        (6, 63),
        (6, 6),
        (6, u32::MAX),
        (31, 7),
        (32, 7),
        (63, 7),
        (64, 7),
        (u32::MAX, u32::MAX),
        (0, 0),
    ];
    for (log2_elem_size, index_mask) in lies {
        let twin = Twin::new();
        twin.tamper_rings(move |header| {
            (header.log2_elem_size, header.index_mask) = (log2_elem_size, index_mask);
        });
        let shared = Shared::on(&twin, 7, ELEMENT);
        // The mapping has a whole page: of a ring that is too long for itself but not for the page
        // nobody can tell.
        let fits = 384 + ((u64::from(index_mask) + 1) << log2_elem_size.min(31)) <= 4096;
        let refused = [
            Producer::new(shared.mapping.clone(), ELEMENT).err(),
            Consumer::new(shared.mapping.clone(), ELEMENT).err(),
        ];
        let is_plausible = fits && log2_elem_size == 7 && index_mask == 7;
        for refusal in refused {
            assert_eq!(
                refusal.is_none(),
                is_plausible,
                "{log2_elem_size} {index_mask}"
            );
            if let Some(BadRing(text)) = refusal {
                assert!(text.contains("does not fit"), "{text}");
            }
        }
    }
}

#[test]
fn a_ring_of_one_slot_holds_nothing() {
    let shared = Shared::new(0, ELEMENT);
    let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
    assert_eq!(producer.depth(), 0);
    assert!(producer.free_slot().is_none());
}

#[test]
fn the_memory_lives_as_long_as_a_ring_on_it() {
    let twin = Twin::new();
    let shared = Shared::on(&twin, 3, ELEMENT);
    let mut producer = Producer::new(shared.mapping.clone(), ELEMENT).unwrap();
    drop(shared);
    fill_next(&mut producer, 1);
    assert_eq!(twin.census().mappings, 1);
    drop(producer);
    twin.assert_clean();
}

#[test]
fn elements_cross_threads_whole() {
    const COUNT: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let shared = Arc::new(Shared::new(7, ELEMENT));
    let mut consumer = Consumer::new(shared.mapping.clone(), ELEMENT).unwrap();
    let kernel = thread::spawn({
        let shared = shared.clone();
        move || {
            for value in 0..COUNT {
                while !shared.put(&[value.to_ne_bytes(), (!value).to_ne_bytes()].concat()) {
                    thread::yield_now();
                }
            }
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        let taken = drain(&mut consumer, 3, |_, slot| {
            // SAFETY: as for `read`; the second half is 8 bytes on.
            let second = read(unsafe { slot.add(8) });
            assert_eq!((read(slot), second), (expected, !expected));
            expected += 1;
        });
        if taken == 0 {
            thread::yield_now();
        }
    }
    kernel.join().unwrap();
}
