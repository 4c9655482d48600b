//! What stands in siw's arrays, and whose it is, against the kernel's end of them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rdmacm_kernel_abi::siw::{CqCtrl, Cqe, Rqe, Sqe, WqeFlags};
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;
use zerocopy::{FromBytes, IntoBytes};

use super::{CompletionQueue, RecvQueue, SendQueue};
use crate::error::{Error, ErrorKind};
use crate::fastpath::{
    Completion, CompletionStatus, Datagram, Doorbell, Handle, Opcode, Operation, Payload,
    PostError, RemoteAddress, Request, Segment, SendFlags,
};
use crate::sys::twin::Twin;
use crate::sys::{Kernel, MapFor, Mapping};

const VALID: u16 = WqeFlags::VALID.bits();

/// Memory of a queue, of which the test is the kernel's end.
struct Shared {
    twin: Arc<Twin>,
    _fd: OwnedFd,
    mapping: Arc<Mapping>,
}

impl Shared {
    fn new(length: usize) -> Self {
        let twin = Twin::new();
        let fd = twin.open(Path::new("/dev/infiniband/uverbs0")).unwrap();
        let offset = twin.new_pages(fd.as_fd(), length);
        let kernel: Arc<dyn Kernel> = twin.clone();
        let mapping = Arc::new(
            Mapping::new(
                &kernel,
                fd.as_fd(),
                length,
                offset,
                MapFor::ReadingAndWriting,
            )
            .unwrap(),
        );
        Self {
            twin,
            _fd: fd,
            mapping,
        }
    }

    fn read<T: FromBytes>(&self, offset: usize) -> T {
        assert!(offset + size_of::<T>() <= self.mapping.length());
        // SAFETY: in the mapping, of which this thread is the only user.
        unsafe {
            let from = self.mapping.address().add(offset).cast::<T>();
            from.read_unaligned()
        }
    }

    fn write<T: IntoBytes>(&self, offset: usize, value: T) {
        assert!(offset + size_of::<T>() <= self.mapping.length());
        // SAFETY: as for `read`.
        unsafe {
            let to = self.mapping.address().add(offset).cast::<T>();
            to.write_unaligned(value);
        }
    }

    /// The element that the kernel would take next, if it was given: the flag is cleared.
    fn take_send(&self, index: usize) -> Option<Sqe> {
        let offset = index * size_of::<Sqe>();
        let sqe: Sqe = self.read(offset);
        (sqe.flags & VALID != 0).then(|| {
            self.write(offset + 8, 0u16);
            sqe
        })
    }

    fn take_receive(&self, index: usize) -> Option<Rqe> {
        let offset = index * size_of::<Rqe>();
        let rqe: Rqe = self.read(offset);
        (rqe.flags & VALID != 0).then(|| {
            self.write(offset + 8, 0u16);
            rqe
        })
    }
}

fn send_queue(count: u32, segments: u32, signal_all: bool) -> (Shared, SendQueue) {
    let shared = Shared::new(count as usize * size_of::<Sqe>());
    let context = shared.twin.registry().context_of_index(0).unwrap();
    let cap = QpCap {
        max_send_sge: segments,
        max_inline_data: 80,
        ..Default::default()
    };
    let doorbell = Doorbell::new(&context, 77);
    let memory = shared.mapping.clone();
    let queue = SendQueue::new(memory, count, doorbell, &cap, signal_all).unwrap();
    (shared, queue)
}

/// Gives the requests to the kernel; the twin has no queue pair of that number to tell.
fn publish(queue: &mut SendQueue) -> bool {
    match queue.ring_doorbell() {
        Ok(()) => false,
        Err(PostError::Doorbell { errno }) => {
            assert_eq!(errno, libc::ENOENT);
            true
        }
        Err(other) => panic!("{other}"),
    }
}

fn request<'a>(wr_id: u64, operation: Operation<'a>, payload: Payload<'a>) -> Request<'a> {
    Request {
        wr_id,
        operation,
        flags: SendFlags::empty(),
        payload,
    }
}

fn segment(address: u64, length: u32, lkey: u32) -> Segment {
    Segment::of_buffer(address, length, lkey)
}

const REMOTE: RemoteAddress = RemoteAddress {
    address: 0x1122_3344_5566_7788,
    rkey: 0x99aa,
};

#[test]
fn a_write_of_three_segments_of_which_one_is_empty() {
    let (shared, mut queue) = send_queue(4, 3, false);
    let segments = [
        segment(0x1000, 10, 1),
        segment(0x2000, 0, 2),
        segment(0x3000, 30, 3),
    ];
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED | SendFlags::FENCE;
    queue
        .push(&Request {
            flags,
            ..request(7, Operation::Write(REMOTE), Payload::Segments(&segments))
        })
        .unwrap();
    assert!(shared.take_send(0).is_none(), "not given yet");
    assert!(publish(&mut queue));
    let sqe = shared.take_send(0).unwrap();
    assert_eq!((sqe.id, sqe.opcode, sqe.num_sge), (7, 0, 2));
    assert_eq!((sqe.raddr, sqe.rkey), (REMOTE.address, REMOTE.rkey));
    // VALID, SIGNALLED, SOLICITED, READ_FENCE.
    assert_eq!(sqe.flags, 1 | 4 | 8 | 16);
    let places = sqe.sge.map(|sge| (sge.laddr, sge.length, sge.lkey));
    assert_eq!(places[..2], [(0x1000, 10, 1), (0x3000, 30, 3)]);
}

#[test]
fn inline_data_stand_behind_the_first_segment() {
    let (shared, mut queue) = send_queue(2, 1, true);
    let bytes: Vec<u8> = (0..80).collect();
    let payload = Payload::Inline(&bytes);
    queue.push(&request(8, Operation::Send, payload)).unwrap();
    publish(&mut queue);
    let stored: [u8; 80] = shared.read(40);
    assert_eq!(stored.as_slice(), bytes);
    let sqe = shared.take_send(0).unwrap();
    assert_eq!((sqe.opcode, sqe.num_sge, sqe.sge[0].length), (3, 1, 80));
    // VALID, INLINE, and SIGNALLED since all are.
    assert_eq!(sqe.flags, 1 | 2 | 4);
    let longer = [0; 81];
    assert_eq!(
        queue.push(&request(9, Operation::Send, Payload::Inline(&longer))),
        Err(PostError::InlineTooLong {
            length: 81,
            max: 80
        })
    );
}

#[test]
fn a_read_has_one_segment_and_no_fence() {
    let (shared, mut queue) = send_queue(2, 6, false);
    let two = [segment(0x1000, 1, 1), segment(0x2000, 2, 2)];
    let read = Operation::Read(REMOTE);
    assert_eq!(
        queue.push(&request(1, read, Payload::Segments(&two))),
        Err(PostError::TooManySegments {
            segments: 2,
            max: 1
        })
    );
    let fenced = Request {
        flags: SendFlags::FENCE,
        ..request(1, read, Payload::Segments(&two[..1]))
    };
    assert!(matches!(
        queue.push(&fenced),
        Err(PostError::NotOnDevice { .. })
    ));
    // What an earlier request left behind is not read into.
    let write = request(2, Operation::Write(REMOTE), Payload::Segments(&two));
    queue.push(&write).unwrap();
    queue.discard();
    queue
        .push(&request(3, read, Payload::Segments(&[])))
        .unwrap();
    publish(&mut queue);
    let sqe = shared.take_send(0).unwrap();
    assert_eq!((sqe.id, sqe.opcode, sqe.num_sge), (3, 1, 0));
    assert_eq!((sqe.sge[0].laddr, sqe.sge[0].length), (0, 0));
}

#[test]
fn what_the_device_does_not_have_is_refused() {
    let (shared, mut queue) = send_queue(1, 1, false);
    let to = Datagram {
        handle: &Handle::Rxe(1),
        qp_num: 2,
        qkey: 3,
    };
    let at = REMOTE;
    for operation in [
        Operation::SendImmediate(1),
        Operation::WriteImmediate(at, 1),
        Operation::CompareSwap {
            at,
            compare: 1,
            swap: 2,
        },
        Operation::FetchAdd { at, add: 1 },
        Operation::AtomicWrite(at),
        Operation::Datagram(to),
        Operation::DatagramImmediate(to, 1),
    ] {
        let refused = queue.push(&request(1, operation, Payload::Segments(&[])));
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, PostError::NotOnDevice { .. }),
            "{operation:?}: {refused}"
        );
        assert_eq!(Error::from(refused).kind(), ErrorKind::NotSupported);
    }
    assert!(!publish(&mut queue), "there is nothing to tell of");
    assert!(shared.take_send(0).is_none());
}

#[test]
fn a_queue_of_one_is_full_until_the_kernel_took_the_request() {
    let (shared, mut queue) = send_queue(1, 1, false);
    let send = |wr_id| request(wr_id, Operation::Send, Payload::Segments(&[]));
    let full = Err(PostError::QueueFull { depth: 1 });
    queue.push(&send(1)).unwrap();
    assert_eq!(queue.push(&send(2)), full, "it is not even given");
    publish(&mut queue);
    assert_eq!(queue.push(&send(2)), full);
    assert_eq!(shared.take_send(0).unwrap().id, 1);
    queue.push(&send(2)).unwrap();
    publish(&mut queue);
    assert_eq!(shared.take_send(0).unwrap().id, 2);
}

#[test]
fn a_busy_kernel_is_not_told_again() {
    let (shared, mut queue) = send_queue(4, 1, false);
    let mut give = |wr_id| {
        let send = request(wr_id, Operation::Send, Payload::Segments(&[]));
        queue.push(&send).unwrap();
        publish(&mut queue)
    };
    assert!(give(1), "idle");
    assert!(give(2), "the first doorbell was refused");
    shared.take_send(0).unwrap();
    shared.take_send(1).unwrap();
    // As if the doorbell had been heard: there is no queue pair behind it here.
    queue.untold = false;
    let mut give = |wr_id| {
        let send = request(wr_id, Operation::Send, Payload::Segments(&[]));
        queue.push(&send).unwrap();
        let told = publish(&mut queue);
        queue.untold = false;
        told
    };
    assert!(give(3), "the kernel has taken all there was");
    assert!(!give(4), "it finds this one behind the third");
    assert_eq!(shared.take_send(2).unwrap().id, 3);
    assert_eq!(shared.take_send(3).unwrap().id, 4);
    assert!(give(5));
}

#[test]
fn a_receive_needs_a_segment() {
    let shared = Shared::new(2 * size_of::<Rqe>());
    let mut queue = RecvQueue::new(shared.mapping.clone(), 2, 2).unwrap();
    assert_eq!(queue.post(1, &[]), Err(PostError::NoSegments));
    let three = [segment(1, 1, 1); 3];
    assert!(matches!(
        queue.post(1, &three),
        Err(PostError::TooManySegments { .. })
    ));
    let two = [segment(0x1000, 10, 1), segment(0x2000, 20, 2)];
    queue.post(5, &two).unwrap();
    queue.post(6, &two[1..]).unwrap();
    assert_eq!(queue.post(7, &two), Err(PostError::QueueFull { depth: 2 }));
    let rqe = shared.take_receive(0).unwrap();
    assert_eq!((rqe.id, rqe.flags, rqe.num_sge), (5, VALID, 2));
    assert_eq!((rqe.opcode, rqe.unused), (8, 0));
    let second = rqe.sge[1];
    assert_eq!((second.laddr, second.length, second.lkey), (0x2000, 20, 2));
    queue.post(7, &two).unwrap();
    assert_eq!(shared.take_receive(1).unwrap().id, 6);
    assert_eq!(shared.take_receive(0).unwrap().id, 7);
}

fn completion_queue(count: u32) -> (Shared, CompletionQueue) {
    let shared = Shared::new(CompletionQueue::length(count));
    let queue = CompletionQueue::new(shared.mapping.clone(), count).unwrap();
    (shared, queue)
}

fn cqe(id: u64, opcode: u8, status: u16) -> Cqe {
    Cqe {
        id,
        flags: VALID as u8,
        opcode,
        status,
        bytes: 12,
        imm_data: 0,
        qp_id: 0x5_0000_0011,
    }
}

#[test]
fn completions_are_in_the_form_of_all_devices() {
    let (shared, mut queue) = completion_queue(4);
    let opcodes = [
        (0, Opcode::Write),
        (1, Opcode::Read),
        (3, Opcode::Send),
        (8, Opcode::Receive),
        (6, Opcode::Other(0x1_0006)),
    ];
    let mut entries = [Completion::default(); 2];
    for (index, (number, opcode)) in opcodes.into_iter().enumerate() {
        shared.write(index % 4 * 32, cqe(index as u64, number, 0));
        assert_eq!(queue.poll(&mut entries).len(), 1);
        let done = entries[0].result().unwrap();
        assert_eq!((done.opcode(), done.byte_len()), (opcode, 12));
        assert_eq!(entries[0].wr_id(), index as u64);
        assert_eq!(entries[0].qp_num(), 0x11);
    }
    assert_eq!(queue.poll(&mut entries).len(), 0);
}

#[test]
fn statuses_are_those_of_all_devices() {
    use CompletionStatus as S;
    let (shared, mut queue) = completion_queue(1);
    let statuses = [
        (1, S::LocalLength),
        (2, S::LocalProtection),
        (3, S::LocalQpOperation),
        (4, S::Flushed),
        (5, S::BadResponse),
        (6, S::LocalAccess),
        (7, S::RemoteAccess),
        (8, S::RemoteInvalidRequest),
        (9, S::General),
        (10, S::Unknown(0x1_000a)),
    ];
    let mut entries = [Completion::default(); 1];
    for (number, status) in statuses {
        shared.write(0, cqe(1, 3, number));
        assert_eq!(queue.poll(&mut entries).len(), 1);
        assert_eq!(entries[0].result().unwrap_err().status, status);
    }
}

#[test]
fn arming_writes_the_word_behind_the_completions() {
    let (shared, queue) = completion_queue(2);
    queue.arm();
    let control: CqCtrl = shared.read(64);
    assert_eq!((control.flags, control.pad), (3, 0));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let shared = Shared::new(4096);
    let memory = || shared.mapping.clone();
    for count in [0, 3, 37, 64, u32::MAX, 1 << 31] {
        let error = RecvQueue::new(memory(), count, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
    assert!(RecvQueue::new(memory(), 32, 1).is_ok());
    // 128 completions alone would fit.
    for count in [0, 128, 1 << 31] {
        assert!(CompletionQueue::new(memory(), count).is_err());
    }
    assert!(CompletionQueue::new(memory(), 64).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Requests come out as they went in, and the queue is full exactly at its depth.
    #[test]
    fn a_send_queue_is_a_queue(log in 0u32..4, steps in prop::collection::vec(0u8..6, 0..120)) {
        let depth = 1 << log;
        let (shared, mut queue) = send_queue(depth, 1, false);
        let (mut built, mut given) = (std::collections::VecDeque::new(), 0..0);
        for (number, step) in (0u64..).zip(steps) {
            match step {
                0..=2 => {
                    let send = request(number, Operation::Send, Payload::Segments(&[]));
                    let is_full = built.len() as u64 == u64::from(depth);
                    prop_assert_eq!(queue.push(&send).is_err(), is_full);
                    if !is_full {
                        built.push_back(number);
                    }
                }
                3 => {
                    publish(&mut queue);
                    given.end = given.start + built.len() as u64;
                }
                4 => {
                    queue.discard();
                    built.truncate((given.end - given.start) as usize);
                }
                _ => {
                    let index = (given.start % u64::from(depth)) as usize;
                    let taken = shared.take_send(index).map(|sqe| sqe.id);
                    if given.is_empty() {
                        prop_assert_eq!(taken, None);
                    } else {
                        prop_assert_eq!(taken, built.pop_front());
                        given.start += 1;
                    }
                }
            }
        }
    }

    /// Receives come out as they went in, each as soon as it is posted, and the queue is full exactly at
    /// its depth.
    #[test]
    fn a_receive_queue_is_a_queue(log in 0u32..4, steps in prop::collection::vec(0u8..5, 0..120)) {
        let depth = 1usize << log;
        let shared = Shared::new(depth * size_of::<Rqe>());
        let mut queue = RecvQueue::new(shared.mapping.clone(), depth as u32, 1).unwrap();
        let (mut posted, mut taken) = (std::collections::VecDeque::new(), 0);
        for (number, step) in (0u64..).zip(steps) {
            if step < 3 {
                let is_full = posted.len() == depth;
                let segment = [segment(number, 1, 1)];
                prop_assert_eq!(queue.post(number, &segment).is_err(), is_full);
                if !is_full {
                    posted.push_back(number);
                }
                continue;
            }
            let rqe = shared.take_receive(taken % depth);
            taken += usize::from(rqe.is_some());
            let found = rqe.map(|rqe| (rqe.id, rqe.sge[0].laddr));
            prop_assert_eq!(found, posted.pop_front().map(|number| (number, number)));
        }
    }

    /// Completions come out as the kernel put them in, however many are polled for at a time.
    #[test]
    fn a_completion_queue_is_a_queue(
        log in 0u32..4,
        steps in prop::collection::vec(prop_oneof![Just(None), (0usize..6).prop_map(Some)], 0..120),
    ) {
        let depth = 1usize << log;
        let (shared, mut queue) = completion_queue(depth as u32);
        let (mut there, mut put) = (std::collections::VecDeque::new(), 0);
        for (number, step) in (0u64..).zip(steps) {
            let Some(limit) = step else {
                // The kernel drops what finds no room.
                if there.len() < depth {
                    shared.write(put % depth * size_of::<Cqe>(), cqe(number, 3, 0));
                    there.push_back(number);
                    put += 1;
                }
                continue;
            };
            let mut entries = [Completion::default(); 6];
            let polled = queue.poll(&mut entries[..limit]);
            let found: Vec<u64> = polled.iter().map(Completion::wr_id).collect();
            let due = limit.min(there.len());
            prop_assert_eq!(found, there.drain(..due).collect::<Vec<_>>());
        }
    }

    /// Whatever the kernel puts there: no panic, and never more than there can be.
    #[test]
    fn any_completion_can_be_polled(bytes in prop::collection::vec(any::<u8>(), 4 * 32)) {
        let (shared, mut queue) = completion_queue(4);
        for (offset, byte) in bytes.iter().enumerate() {
            shared.write(offset, *byte);
        }
        let mut entries = [Completion::default(); 9];
        let leading = bytes.chunks(32).take_while(|cqe| cqe[8] & 1 != 0).count();
        prop_assert_eq!(queue.poll(&mut entries).len(), leading);
        for (entry, cqe) in entries.iter().zip(bytes.chunks(32)).take(leading) {
            let cqe = Cqe::read_from_bytes(cqe).unwrap();
            prop_assert_eq!(entry.wr_id(), cqe.id);
            prop_assert_eq!(entry.result().is_ok(), cqe.status == 0);
        }
        prop_assert_eq!(queue.poll(&mut entries).len(), 0);
    }
}
