//! Fuzz targets: the queues of rxe, whose header has two indices.

use rdmacm_kernel_abi::rxe::QueueHeader;
use rdmacm_kernel_abi::uverbs::Wc;

use super::{Sent, Set, check_completion};
use crate::device::fuzzing::{machine, open_device};
use crate::fastpath::Completion;
use crate::sys::hostile::{Discovery, HEADER, Hostile};

const SLOTS: usize = size_of::<QueueHeader>();

/// A queue in memory as its header describes it, read without the library's help.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    mapping: usize,
    slot_size: usize,
    mask: u32,
}

impl Geometry {
    /// Checks that what the library took over for a queue is one: it lies within its mapping, and
    /// its slots hold an element.
    fn of(kernel: &Hostile, mapping: usize, element: usize) -> Self {
        let [log2_slot_size, mask] = [HEADER[0], HEADER[1]].map(|at| word(kernel, mapping, at));
        assert!(log2_slot_size < 32, "{log2_slot_size}");
        let (slot_size, slots) = (1usize << log2_slot_size, mask as usize + 1);
        assert!(element <= slot_size && slots.is_power_of_two());
        assert!(SLOTS + slots * slot_size <= kernel.mapping_length(mapping));
        Self {
            mapping,
            slot_size,
            mask,
        }
    }

    fn slot(self, index: u32) -> usize {
        SLOTS + (index & self.mask) as usize * self.slot_size
    }

    /// Changes an index or a slot as no kernel would.
    fn disturb(self, kernel: &Hostile, what: u8) {
        let number = kernel.number();
        let at = match what & 3 {
            0 => HEADER[2],
            1 => HEADER[3],
            // Numbers that are read once: nobody looks at them again.
            2 => HEADER[usize::from(what >> 2 & 1)],
            _ => self.slot(number) + usize::from(what >> 2) % (self.slot_size / 4) * 4,
        };
        kernel.poke(self.mapping, at, &number.to_ne_bytes());
    }
}

fn word(kernel: &Hostile, mapping: usize, at: usize) -> u32 {
    u32::from_ne_bytes(kernel.peek(mapping, at))
}

/// Completions in a queue whose header, indices and slots are anything. Each is what its slot has,
/// in order, and never more than the queue holds.
pub fn rxe_completions(input: &[u8]) {
    let kernel = machine(input, Discovery::Rxe);
    let Some(context) = open_device() else { return };
    let Ok(mut cq) = context.completion_queue(8).build() else {
        assert_eq!(kernel.mappings(), 0);
        return;
    };
    let queue = Geometry::of(&kernel, 0, size_of::<Wc>());
    assert_eq!(cq.depth(), queue.mask);
    let mut next = word(&kernel, 0, HEADER[3]) & queue.mask;
    let mut entries = [Completion::default(); 32];
    for step in kernel.steps(64) {
        if step & 3 != 0 {
            queue.disturb(&kernel, step >> 2);
            continue;
        }
        let limit = usize::from(step >> 2) % (entries.len() + 1);
        let waiting = word(&kernel, 0, HEADER[2]).wrapping_sub(next) & queue.mask;
        let polled = cq.poll(&mut entries[..limit]);
        assert_eq!(polled.len(), limit.min(waiting as usize));
        for completion in polled {
            let slot: [u8; size_of::<Wc>()] = kernel.peek(0, queue.slot(next));
            check_completion(completion, &zerocopy::transmute!(slot));
            next = (next + 1) & queue.mask;
        }
        if !polled.is_empty() {
            assert_eq!(word(&kernel, 0, HEADER[3]), next);
        }
    }
    drop((cq, context));
    assert_eq!(kernel.mappings(), 0);
}

/// Posting to queues whose sizes and indices are anything. Requests stay within their slots, and the
/// kernel is told of those that were submitted.
pub fn rxe_queues(input: &[u8]) {
    let kernel = machine(input, Discovery::Rxe);
    let Some(mut set) = Set::new(&kernel) else {
        return;
    };
    let [send, recv] = Set::QUEUES.map(|mapping| Geometry::of(&kernel, mapping, 0));
    let granted = set.qp.capabilities();
    assert_eq!(
        (granted.max_send_wr, granted.max_recv_wr),
        (send.mask, recv.mask)
    );
    for step in kernel.steps(64) {
        match step & 3 {
            0 => send.disturb(&kernel, step >> 2),
            1 => recv.disturb(&kernel, step >> 2),
            2 => send_batch(&kernel, &mut set, send),
            _ => post_receive(&kernel, &mut set, recv, usize::from(step >> 2)),
        }
    }
    set.take_down(&kernel);
}

fn send_batch(kernel: &Hostile, set: &mut Set, queue: Geometry) {
    let before = word(kernel, queue.mapping, HEADER[2]);
    match set.send_batch(kernel) {
        Sent::Nothing => assert_eq!(word(kernel, queue.mapping, HEADER[2]), before),
        Sent::Requests(count) => {
            assert!(count <= queue.mask, "more than the queue holds");
            let end = word(kernel, queue.mapping, HEADER[2]);
            assert!(end <= queue.mask);
            for number in 0..count {
                let slot = queue.slot(end.wrapping_sub(count - number));
                let wr_id: [u8; 8] = kernel.peek(queue.mapping, slot);
                assert_eq!(u64::from_ne_bytes(wr_id), u64::from(number));
            }
        }
    }
}

fn post_receive(kernel: &Hostile, set: &mut Set, queue: Geometry, segments: usize) {
    if let Some(wr_id) = set.post_receive(segments) {
        let end = word(kernel, queue.mapping, HEADER[2]);
        assert!(end <= queue.mask);
        let written: [u8; 8] = kernel.peek(queue.mapping, queue.slot(end.wrapping_sub(1)));
        assert_eq!(u64::from_ne_bytes(written), wr_id);
    }
}
