//! Fuzz targets: the queues of siw, whose elements change hands one by one.

use std::mem::offset_of;

use rdmacm_kernel_abi::siw::{self, Cqe, Rqe, Sqe, WqeFlags};

use super::{Sent, Set};
use crate::device::fuzzing::{machine, open_device};
use crate::fastpath::{Completion, CompletionStatus, Opcode};
use crate::sys::hostile::{Discovery, Hostile};

/// An array in memory.
#[derive(Debug, Clone, Copy)]
struct Array {
    mapping: usize,
    size: usize,
    flags_at: usize,
    count: u32,
}

impl Array {
    /// Checks that what the library took over for a queue is one, with so many bytes behind it.
    fn new(kernel: &Hostile, layout: (usize, usize, usize), count: u32, behind: usize) -> Self {
        let (mapping, size, flags_at) = layout;
        assert!(count.is_power_of_two());
        assert!(count as usize * size + behind <= kernel.mapping_length(mapping));
        Self {
            mapping,
            size,
            flags_at,
            count,
        }
    }

    fn at(self, counter: u32) -> usize {
        (counter & (self.count - 1)) as usize * self.size
    }

    fn read<const N: usize>(self, kernel: &Hostile, counter: u32, at: usize) -> [u8; N] {
        kernel.peek(self.mapping, self.at(counter) + at)
    }

    fn is_valid(self, kernel: &Hostile, counter: u32) -> bool {
        let [flags] = self.read(kernel, counter, self.flags_at);
        u16::from(flags) & WqeFlags::VALID.bits() != 0
    }

    fn id(self, kernel: &Hostile, counter: u32) -> u64 {
        u64::from_ne_bytes(self.read(kernel, counter, 0))
    }

    /// Changes an element: its flags, or any four bytes.
    fn disturb(self, kernel: &Hostile, what: u8) {
        let number = kernel.number();
        let element = self.at(number >> 16);
        if what & 1 == 0 {
            let [low, ..] = number.to_le_bytes();
            return kernel.poke(self.mapping, element + self.flags_at, &[low]);
        }
        let at = usize::from(what >> 1) % (self.size / 4) * 4;
        kernel.poke(self.mapping, element + at, &number.to_ne_bytes());
    }
}

/// Completions in a queue whose elements are anything. Each is what its element has, in order, and
/// is given back.
pub fn siw_completions(input: &[u8]) {
    let kernel = machine(input, Discovery::Siw);
    let Some(context) = open_device() else { return };
    let Ok(mut cq) = context.completion_queue(8).build() else {
        assert_eq!(kernel.mappings(), 0);
        return;
    };
    let layout = (0, size_of::<Cqe>(), offset_of!(Cqe, flags));
    let queue = Array::new(&kernel, layout, cq.depth(), size_of::<siw::CqCtrl>());
    let mut next = 0u32;
    let mut entries = [Completion::default(); 32];
    for step in kernel.steps(64) {
        match step & 3 {
            0 => {
                let limit = usize::from(step >> 2) % (entries.len() + 1);
                let most = limit.min(queue.count as usize) as u32;
                let is_there = |number: &u32| queue.is_valid(&kernel, next.wrapping_add(*number));
                let waiting = (0..most).take_while(is_there).count();
                let elements: Vec<Cqe> = (0..waiting as u32)
                    .map(|number| {
                        queue.read::<{ size_of::<Cqe>() }>(&kernel, next.wrapping_add(number), 0)
                    })
                    .map(|bytes| zerocopy::transmute!(bytes))
                    .collect();
                let polled = cq.poll(&mut entries[..limit]);
                assert_eq!(polled.len(), waiting);
                for (completion, element) in polled.iter().zip(&elements) {
                    check_completion(completion, element);
                    assert!(!queue.is_valid(&kernel, next), "given back");
                    next = next.wrapping_add(1);
                }
            }
            1 => {
                let behind = queue.count as usize * queue.size;
                if cq.arm(step & 4 != 0).is_ok() {
                    assert_eq!(kernel.peek(0, behind), 3u32.to_ne_bytes());
                }
            }
            _ => queue.disturb(&kernel, step >> 2),
        }
    }
    drop((cq, context));
    assert_eq!(kernel.mappings(), 0);
}

/// What a completion tells is what the kernel wrote, and a failure tells nothing else.
fn check_completion(completion: &Completion, element: &Cqe) {
    /// Above the numbers that all drivers share.
    const OWN: u32 = 1 << 16;
    assert_eq!(completion.wr_id(), element.id);
    assert_eq!(u64::from(completion.qp_num()), element.qp_id & 0xffff_ffff);
    match completion.result() {
        Ok(success) => {
            assert_eq!(element.status, siw::WcStatus::SUCCESS.0);
            assert_eq!(success.byte_len(), element.bytes);
            assert_eq!((success.immediate(), success.has_grh()), (None, false));
            let expected = match element.opcode {
                0 => Opcode::Write,
                1 | 2 => Opcode::Read,
                3..=5 => Opcode::Send,
                8 => Opcode::Receive,
                other => Opcode::Other(OWN + u32::from(other)),
            };
            assert_eq!(success.opcode(), expected);
            let is_told = u16::from(element.flags) & WqeFlags::REM_INVAL.bits() != 0;
            let key = (is_told && expected == Opcode::Receive).then_some(element.imm_data as u32);
            assert_eq!(success.invalidated(), key);
        }
        Err(failure) => {
            assert_ne!(element.status, siw::WcStatus::SUCCESS.0);
            let is_known = element.status <= siw::WcStatus::GENERAL_ERR.0;
            match failure.status {
                CompletionStatus::Unknown(number) => {
                    assert!(!is_known && number == OWN + u32::from(element.status));
                }
                _ => assert!(is_known),
            }
            assert_eq!(
                failure.is_flush(),
                element.status == siw::WcStatus::WR_FLUSH_ERR.0
            );
            assert!(!failure.to_string().is_empty());
        }
    }
    assert!(!format!("{completion:?}").is_empty());
}

/// Posting to queues whose sizes and elements are anything. The kernel is given what was submitted
/// and nothing else.
pub fn siw_queues(input: &[u8]) {
    let kernel = machine(input, Discovery::Siw);
    let Some(mut set) = Set::new(&kernel) else {
        return;
    };
    let granted = set.qp.capabilities();
    let [send, recv] = Set::QUEUES;
    let send = (send, size_of::<Sqe>(), offset_of!(Sqe, flags));
    let send = Array::new(&kernel, send, granted.max_send_wr, 0);
    let recv = (recv, size_of::<Rqe>(), offset_of!(Rqe, flags));
    let recv = Array::new(&kernel, recv, granted.max_recv_wr, 0);
    let (mut sent, mut posted) = (0u32, 0u32);
    for step in kernel.steps(64) {
        match step & 3 {
            0 => send.disturb(&kernel, step >> 2),
            1 => recv.disturb(&kernel, step >> 2),
            2 => {
                let given = |at: u32| send.is_valid(&kernel, at);
                let before = (0..send.count).filter(|at| given(*at)).count();
                match set.send_batch(&kernel) {
                    Sent::Nothing => {
                        assert_eq!((0..send.count).filter(|at| given(*at)).count(), before);
                    }
                    Sent::Requests(count) => {
                        assert!(count <= send.count, "more than the queue holds");
                        for number in 0..count {
                            let at = sent.wrapping_add(number);
                            assert!(given(at) && send.id(&kernel, at) == u64::from(number));
                        }
                        sent = sent.wrapping_add(count);
                    }
                }
            }
            _ => {
                if let Some(wr_id) = set.post_receive(usize::from(step >> 2)) {
                    assert!(recv.is_valid(&kernel, posted) && recv.id(&kernel, posted) == wr_id);
                    posted = posted.wrapping_add(1);
                }
            }
        }
    }
    set.take_down(&kernel);
}
