//! The two sides of a ring in every order in which their steps can follow each other, and with
//! every value that the memory model lets them read.
//!
//! The cursors are those that the queues use; the memory is the model checker's. A slot that one
//! side touches while the other may is an error of its own.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::fastpath::rxe::cursor::{ConsumerCursor, Index, ProducerCursor};

impl Index for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value, order);
    }
}

/// A ring in memory of the model checker's.
struct Ring {
    producer: AtomicU32,
    consumer: AtomicU32,
    slots: Vec<UnsafeCell<u32>>,
}

impl Ring {
    /// With the indices at `start`, so that they wrap soon.
    fn new(slots: u32, start: u32) -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(start),
            consumer: AtomicU32::new(start),
            slots: (0..slots).map(|_| UnsafeCell::new(u32::MAX)).collect(),
        })
    }

    fn mask(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    fn producer(&self) -> ProducerCursor {
        ProducerCursor::new(self.mask(), &self.producer, &self.consumer)
    }

    fn consumer(&self) -> ConsumerCursor {
        ConsumerCursor::new(self.mask(), &self.consumer)
    }

    /// Waits for a free slot and fills it. The other side is not told.
    #[expect(unsafe_code, reason = "a cell of the model checker's")]
    fn fill(&self, cursor: &mut ProducerCursor, value: u32) {
        let slot = loop {
            match cursor.free(&self.consumer) {
                Some(slot) => break slot,
                None => thread::yield_now(),
            }
        };
        // SAFETY: whether anybody else is there is what the model checker finds out.
        self.slots[slot.index() as usize].with_mut(|place| unsafe { *place = value });
        cursor.advance(slot);
    }

    /// What is there, at most `limit` elements.
    #[expect(unsafe_code, reason = "a cell of the model checker's")]
    fn take(&self, cursor: &mut ConsumerCursor, limit: usize) -> Vec<u32> {
        let count = limit.min(cursor.full(&self.producer)) as u32;
        let values = (0..count).map(|number| {
            let slot = (cursor.next() + number) & self.mask();
            // SAFETY: as for `fill`.
            self.slots[slot as usize].with(|place| unsafe { *place })
        });
        let values = values.collect();
        if count > 0 {
            cursor.skip(count);
            cursor.give_back(&self.consumer);
        }
        values
    }

    /// Takes until there were `count` elements, which must come in order.
    fn take_in_order(&self, count: u32, limit: usize) {
        let (mut cursor, mut next) = (self.consumer(), 0);
        while next < count {
            let values = self.take(&mut cursor, limit);
            if values.is_empty() {
                thread::yield_now();
            }
            for value in values {
                assert_eq!(value, next);
                next += 1;
            }
        }
    }
}

/// Goes through the orders. More than three preemptions find nothing that fewer do not, and take
/// long.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn elements_arrive_whole_and_in_order() {
    const COUNT: u32 = 4;
    // Of one element, and of three.
    for (slots, start) in [(2, 1), (4, 2)] {
        check(move || {
            let ring = Ring::new(slots, start);
            let filling = thread::spawn({
                let ring = ring.clone();
                move || {
                    let mut cursor = ring.producer();
                    for value in 0..COUNT {
                        ring.fill(&mut cursor, value);
                        cursor.publish(&ring.producer);
                    }
                }
            });
            ring.take_in_order(COUNT, 2);
            filling.join().unwrap();
        });
    }
}

#[test]
fn a_batch_arrives_whole_or_not_yet() {
    check(|| {
        let ring = Ring::new(4, 3);
        let filling = thread::spawn({
            let ring = ring.clone();
            move || {
                let mut cursor = ring.producer();
                for value in 0..3 {
                    ring.fill(&mut cursor, value);
                }
                cursor.publish(&ring.producer);
                assert!(!cursor.has_unpublished());
            }
        });
        let mut cursor = ring.consumer();
        let first = ring.take(&mut cursor, usize::MAX);
        assert!(first.is_empty() || first == [0, 1, 2], "{first:?}");
        filling.join().unwrap();
    });
}

#[test]
fn what_is_discarded_never_arrives() {
    check(|| {
        let ring = Ring::new(4, 0);
        let filling = thread::spawn({
            let ring = ring.clone();
            move || {
                let mut cursor = ring.producer();
                ring.fill(&mut cursor, 0);
                cursor.publish(&ring.producer);
                ring.fill(&mut cursor, 77);
                ring.fill(&mut cursor, 78);
                cursor.discard();
                ring.fill(&mut cursor, 1);
                cursor.publish(&ring.producer);
            }
        });
        ring.take_in_order(2, usize::MAX);
        filling.join().unwrap();
        assert!(ring.take(&mut ring.consumer(), 1).is_empty());
    });
}

/// A side that is handed on, as a queue may be to another thread, begins where it was.
#[test]
fn indices_tell_where_to_go_on() {
    check(|| {
        let ring = Ring::new(2, 0);
        let filling = thread::spawn({
            let ring = ring.clone();
            move || {
                for value in 0..3 {
                    let mut cursor = ring.producer();
                    ring.fill(&mut cursor, value);
                    cursor.publish(&ring.producer);
                }
            }
        });
        ring.take_in_order(3, 1);
        filling.join().unwrap();
    });
}
