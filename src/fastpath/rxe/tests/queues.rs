//! What stands in rxe's rings, byte by byte.

use std::sync::Mutex;

use proptest::prelude::*;
use rdmacm_kernel_abi::rxe::SendWqe;
use rdmacm_kernel_abi::uverbs;
use zerocopy::{FromZeros, IntoBytes};

use super::Shared;
use crate::device::Context;
use crate::error::ErrorKind;
use crate::fastpath::Doorbell;
use crate::fastpath::queues;
use crate::fastpath::rxe::{CompletionQueue, RecvQueue, SendQueue};
use crate::fastpath::{
    Completion, Datagram, Flush, FlushPlacement, Handle, Opcode, Operation, Payload, PostError,
    RemoteAddress, Request, Segment, SendFlags, WindowBind,
};
use crate::sys::twin::Twin;

/// Bytes before the payload of a send request.
const HEAD: usize = size_of::<SendWqe>();

/// A send queue whose doorbell nobody answers.
fn send_queue(entries: u32, segments: u32, inline: u32) -> (Shared, SendQueue) {
    let twin = Twin::new();
    let context = context(&twin);
    let payload = (segments * 16).max(inline) as usize;
    let shared = Shared::on(&twin, entries, HEAD + payload);
    let doorbell = Doorbell::new(&context, 77);
    let queue = SendQueue::new(shared.mapping.clone(), doorbell, segments, inline).unwrap();
    (shared, queue)
}

fn context(twin: &std::sync::Arc<Twin>) -> Context {
    twin.registry().context_of_index(0).unwrap()
}

/// Hands the requests over; the twin has no queue pair that would carry them out.
fn publish(queue: &mut SendQueue) {
    assert_eq!(
        queue.ring_doorbell(),
        Err(PostError::Doorbell {
            errno: libc::ENOENT
        })
    );
}

fn segment(address: u64, length: u32, lkey: u32) -> Segment {
    Segment::of_buffer(address, length, lkey)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

#[test]
fn a_write_of_three_segments() {
    let (shared, mut queue) = send_queue(4, 3, 0);
    let to = RemoteAddress {
        address: 0x1122_3344_5566_7788,
        rkey: 0x99aa,
    };
    let segments = [
        segment(0x1000, 10, 1),
        segment(0x2000, 20, 2),
        segment(0x3000, 0, 3),
    ];
    queue
        .push(&Request {
            wr_id: 0xabcd,
            operation: Operation::WriteImmediate(to, 0x0102_0304),
            flags: SendFlags::SIGNALED | SendFlags::SOLICITED | SendFlags::FENCE,
            payload: Payload::Segments(&segments),
        })
        .unwrap();
    publish(&mut queue);
    let wqe = shared.take().unwrap();
    assert_eq!(u64_at(&wqe, 0), 0xabcd, "wr_id");
    assert_eq!(u32_at(&wqe, 12), 1, "RDMA_WRITE_WITH_IMM");
    assert_eq!(u32_at(&wqe, 16), 7, "flags");
    assert_eq!(wqe[20..24], [1, 2, 3, 4], "immediate data is big-endian");
    assert_eq!((u64_at(&wqe, 24), u32_at(&wqe, 32)), (to.address, to.rkey));
    assert_eq!(
        (u32_at(&wqe, 144), u32_at(&wqe, 148)),
        (0, 0),
        "status, state"
    );
    assert_eq!(u64_at(&wqe, 152), to.address, "the address that is used");
    let dma: Vec<u32> = (184..208).step_by(4).map(|at| u32_at(&wqe, at)).collect();
    assert_eq!(
        dma,
        [30, 30, 0, 3, 0, 0],
        "length, resid, cur_sge, num_sge, sge_offset"
    );
    for (index, (address, length, lkey)) in [(0x1000, 10, 1), (0x2000, 20, 2), (0x3000, 0, 3)]
        .into_iter()
        .enumerate()
    {
        let at = 208 + 16 * index;
        assert_eq!((u64_at(&wqe, at), u32_at(&wqe, at + 8)), (address, length));
        assert_eq!(u32_at(&wqe, at + 12), lkey);
    }
}

#[test]
fn opcodes_and_flags_are_the_kernels() {
    let to = RemoteAddress {
        address: 8,
        rkey: 9,
    };
    let cases = [
        (Operation::Send, 2),
        (Operation::SendImmediate(5), 3),
        (Operation::Write(to), 0),
        (Operation::WriteImmediate(to, 5), 1),
        (Operation::Read(to), 4),
        (
            Operation::CompareSwap {
                at: to,
                compare: 1,
                swap: 2,
            },
            5,
        ),
        (Operation::FetchAdd { at: to, add: 1 }, 6),
        (Operation::AtomicWrite(to), 15),
        (Operation::Datagram(RECEIVER), 2),
        (Operation::DatagramImmediate(RECEIVER, 5), 3),
        (Operation::SendInvalidate(7), 9),
        (Operation::LocalInvalidate(7), 7),
        (Operation::BindWindow(WINDOW), 8),
        (Operation::Flush(FLUSH), 14),
    ];
    for (operation, opcode) in cases {
        let (shared, mut queue) = send_queue(4, 1, 0);
        let payload = Payload::Segments(&[]);
        queue
            .push(&Request {
                wr_id: 0,
                operation,
                flags: SendFlags::empty(),
                payload,
            })
            .unwrap();
        publish(&mut queue);
        let wqe = shared.take().unwrap();
        assert_eq!(
            (u32_at(&wqe, 12), u32_at(&wqe, 16)),
            (opcode, 0),
            "{operation:?}"
        );
        assert_eq!(
            (u32_at(&wqe, 184), u32_at(&wqe, 196)),
            (0, 0),
            "no bytes, no segments"
        );
    }
}

#[test]
fn atomics_have_their_operands_and_the_key_behind_them() {
    let at = RemoteAddress {
        address: 0x1122_3344_5566_7788,
        rkey: 0x99aa,
    };
    let (compare, swap, add) = (0xaaaa_bbbb_cccc_dddd, 0x0102_0304_0506_0708, u64::MAX);
    let cases = [
        (
            Operation::CompareSwap { at, compare, swap },
            (compare, swap),
        ),
        (Operation::FetchAdd { at, add }, (add, 0)),
    ];
    for (operation, operands) in cases {
        let (shared, mut queue) = send_queue(4, 1, 0);
        // SAFETY: as below, with slots of 256 bytes.
        unsafe { shared.mapping.address().add(384).write_bytes(0xff, 256) };
        let request = Request {
            operation,
            payload: Payload::Segments(&[segment(0x1000, 8, 3)]),
            ..inline(&[])
        };
        queue.push(&request).unwrap();
        publish(&mut queue);
        let wqe = shared.take().unwrap();
        assert_eq!(u64_at(&wqe, 24), at.address);
        assert_eq!((u64_at(&wqe, 32), u64_at(&wqe, 40)), operands);
        assert_eq!((u32_at(&wqe, 48), u32_at(&wqe, 52)), (at.rkey, 0));
        assert_eq!(u64_at(&wqe, 152), at.address, "the address that is used");
        assert_eq!(
            (u32_at(&wqe, 184), u32_at(&wqe, 196)),
            (8, 1),
            "length, segments"
        );
        assert_eq!((u64_at(&wqe, 208), u32_at(&wqe, 220)), (0x1000, 3));
    }
}

#[test]
fn the_value_of_an_atomic_write_lies_behind_the_request() {
    let to = RemoteAddress {
        address: 0x1122_3344_5566_7788,
        rkey: 0x99aa,
    };
    // Nothing was granted that would make room for it.
    let (shared, mut queue) = send_queue(4, 0, 0);
    let request = Request {
        operation: Operation::AtomicWrite(to),
        payload: Payload::Value(*b"12345678"),
        ..inline(&[])
    };
    queue.push(&request).unwrap();
    publish(&mut queue);
    let wqe = shared.take().unwrap();
    assert_eq!((u32_at(&wqe, 12), u32_at(&wqe, 16)), (15, 0), "no INLINE");
    assert_eq!((u64_at(&wqe, 24), u32_at(&wqe, 32)), (to.address, to.rkey));
    assert_eq!(u64_at(&wqe, 152), to.address, "the address that is used");
    let dma: Vec<u32> = (184..208).step_by(4).map(|at| u32_at(&wqe, at)).collect();
    assert_eq!(dma, [8, 8, 0, 0, 0, 0]);
    assert_eq!(wqe[HEAD..HEAD + 8], *b"12345678");
}

const WINDOW: WindowBind = WindowBind {
    address: 0x1122_3344_5566_7788,
    length: 0x1_0000_0008,
    lkey: 0x1111,
    old_rkey: 0x2201,
    new_rkey: 0x2202,
    access: 6,
    is_of_type_2: false,
};

const FLUSH: Flush = Flush {
    at: RemoteAddress {
        address: 0x1122_3344_5566_7788,
        rkey: 0x99aa,
    },
    length: Some(0x8000_0001),
    placement: FlushPlacement::Persistent,
};

/// One request without data of this side's, in a slot that an earlier lap left full of ones.
fn wqe_of(operation: Operation, payload: Payload<'_>) -> Vec<u8> {
    let (shared, mut queue) = send_queue(4, 1, 0);
    // SAFETY: the ring has slots of 256 bytes behind its header, and nobody uses it meanwhile.
    unsafe { shared.mapping.address().add(384).write_bytes(0xff, 256) };
    let request = Request {
        operation,
        payload,
        ..inline(&[])
    };
    queue.push(&request).unwrap();
    publish(&mut queue);
    let wqe = shared.take().unwrap();
    assert_eq!(u32_at(&wqe, 196), 0, "no segments");
    wqe
}

#[test]
fn a_bind_names_the_window_by_its_old_key() {
    let wqe = wqe_of(Operation::BindWindow(WINDOW), Payload::Segments(&[]));
    assert_eq!(
        (u64_at(&wqe, 24), u64_at(&wqe, 32)),
        (WINDOW.address, WINDOW.length)
    );
    assert_eq!(u32_at(&wqe, 40), WINDOW.lkey, "mr_lkey");
    assert_eq!(
        (u32_at(&wqe, 44), u32_at(&wqe, 48)),
        (WINDOW.old_rkey, WINDOW.new_rkey)
    );
    assert_eq!(u32_at(&wqe, 52), WINDOW.access);
    assert_eq!((u32_at(&wqe, 184), u32_at(&wqe, 188)), (0, 0));
}

#[test]
fn a_key_to_invalidate_is_where_immediate_data_is_but_not_big_endian() {
    let operations = [
        Operation::LocalInvalidate(0x0102_0304),
        Operation::SendInvalidate(0x0102_0304),
    ];
    for operation in operations {
        let wqe = wqe_of(operation, Payload::Segments(&[]));
        assert_eq!(u32_at(&wqe, 20), 0x0102_0304, "{operation:?}");
    }
}

#[test]
fn a_flush_has_its_length_twice_and_no_data() {
    let wqe = wqe_of(Operation::Flush(FLUSH), Payload::Remote(0x8000_0001));
    let at = FLUSH.at;
    assert_eq!((u64_at(&wqe, 24), u32_at(&wqe, 36)), (at.address, at.rkey));
    assert_eq!(u32_at(&wqe, 32), 0x8000_0001);
    assert_eq!(wqe[40..48], [2, 0, 0, 0, 0, 0, 0, 0], "persistent, a range");
    assert_eq!(u64_at(&wqe, 152), at.address, "the address that is used");
    assert_eq!(
        (u32_at(&wqe, 184), u32_at(&wqe, 188)),
        (0x8000_0001, 0x8000_0001)
    );
    let whole = Flush {
        length: None,
        placement: FlushPlacement::GlobalAndPersistent,
        ..FLUSH
    };
    let wqe = wqe_of(Operation::Flush(whole), Payload::Remote(0));
    assert_eq!(wqe[40..42], [3, 1], "both, the whole region");
    assert_eq!((u32_at(&wqe, 32), u32_at(&wqe, 184)), (0, 0));
}

const RECEIVER: Datagram<'static> = Datagram {
    handle: &Handle::Rxe(0x1234),
    qp_num: 0xab_cdef,
    qkey: 0x8765_4321,
};

#[test]
fn a_datagram_names_its_receiver_and_the_handle() {
    let (shared, mut queue) = send_queue(4, 1, 16);
    // What an earlier lap left behind must not be taken for part of the address.
    // SAFETY: the ring has slots of 256 bytes behind its header, and nobody uses it meanwhile.
    unsafe { shared.mapping.address().add(384).write_bytes(0xff, 256) };
    queue
        .push(&Request {
            operation: Operation::DatagramImmediate(RECEIVER, 0x0102_0304),
            ..inline(b"hello")
        })
        .unwrap();
    publish(&mut queue);
    let wqe = shared.take().unwrap();
    assert_eq!(wqe[20..24], [1, 2, 3, 4], "immediate data is big-endian");
    assert_eq!(u32_at(&wqe, 24), RECEIVER.qp_num);
    assert_eq!(u32_at(&wqe, 28), RECEIVER.qkey);
    assert_eq!(u32_at(&wqe, 32), 0, "index of the P_Key");
    assert_eq!(u32_at(&wqe, 36), RECEIVER.number());
    assert_eq!(u64_at(&wqe, 152), 0, "no address");
    assert_eq!(wqe[HEAD..HEAD + 5], *b"hello");
}

/// A handle for as long as the tests run. All are kept where the tools that look for lost memory
/// find them.
fn handle(number: u32) -> &'static Handle {
    static ALL: Mutex<Vec<&Handle>> = Mutex::new(Vec::new());
    let handle: &Handle = Box::leak(Box::new(Handle::Rxe(number)));
    ALL.lock().unwrap().push(handle);
    handle
}

fn operations() -> impl Strategy<Value = Operation<'static>> {
    let remote = any::<(u64, u32)>().prop_map(|(address, rkey)| RemoteAddress { address, rkey });
    let receiver = any::<(u32, u32, u32)>().prop_map(|(number, qp_num, qkey)| Datagram {
        handle: handle(number),
        qp_num,
        qkey,
    });
    prop_oneof![
        Just(Operation::Send),
        any::<u32>().prop_map(Operation::SendImmediate),
        remote.clone().prop_map(Operation::Write),
        (remote.clone(), any::<u32>()).prop_map(|(to, data)| Operation::WriteImmediate(to, data)),
        remote.clone().prop_map(Operation::Read),
        (remote.clone(), any::<(u64, u64)>())
            .prop_map(|(at, (compare, swap))| Operation::CompareSwap { at, compare, swap }),
        (remote, any::<u64>()).prop_map(|(at, add)| Operation::FetchAdd { at, add }),
        any::<u32>().prop_map(Operation::SendInvalidate),
        any::<u32>().prop_map(Operation::LocalInvalidate),
        any::<((u64, u64), [u32; 4])>().prop_map(
            |((address, length), [lkey, old_rkey, new_rkey, access])| {
                Operation::BindWindow(WindowBind {
                    address,
                    length,
                    lkey,
                    old_rkey,
                    new_rkey,
                    access,
                    is_of_type_2: false,
                })
            }
        ),
        receiver.clone().prop_map(Operation::Datagram),
        (receiver, any::<u32>()).prop_map(|(to, data)| Operation::DatagramImmediate(to, data)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever stood in a slot before, what is pushed can be read back from it.
    #[test]
    fn requests_are_read_back_as_they_were_pushed(
        before: u8,
        wr_id: u64,
        operation in operations(),
        flags in 0u32..8,
        lengths in prop::collection::vec(0u32..1 << 20, 0..4),
    ) {
        let (shared, mut queue) = send_queue(4, 3, 0);
        // SAFETY: as above; the ring has eight slots of 256 bytes.
        unsafe { shared.mapping.address().add(384).write_bytes(before, 8 * 256) };
        let segments: Vec<Segment> = (1..)
            .zip(&lengths)
            .map(|(number, length)| segment(number << 32, *length, number as u32))
            .collect();
        let request = Request {
            wr_id,
            operation,
            flags: SendFlags::from_bits_retain(flags),
            payload: Payload::Segments(&segments),
        };
        queue.push(&request).unwrap();
        publish(&mut queue);
        let wqe = shared.take().unwrap();
        let immediate = u32::from_be(u32_at(&wqe, 20));
        let remote = RemoteAddress { address: u64_at(&wqe, 152), rkey: u32_at(&wqe, 32) };
        let receiver = Datagram {
            qp_num: u32_at(&wqe, 24),
            qkey: u32_at(&wqe, 28),
            handle: handle(u32_at(&wqe, 36)),
        };
        let read_back = match (u32_at(&wqe, 12), operation) {
            (2, Operation::Datagram(_)) => Operation::Datagram(receiver),
            (3, Operation::DatagramImmediate(..)) => {
                Operation::DatagramImmediate(receiver, immediate)
            }
            (2, _) => Operation::Send,
            (3, _) => Operation::SendImmediate(immediate),
            (0, _) => Operation::Write(remote),
            (1, _) => Operation::WriteImmediate(remote, immediate),
            (4, _) => Operation::Read(remote),
            (5, _) => Operation::CompareSwap {
                at: RemoteAddress { rkey: u32_at(&wqe, 48), ..remote },
                compare: u64_at(&wqe, 32),
                swap: u64_at(&wqe, 40),
            },
            (6, _) => Operation::FetchAdd {
                at: RemoteAddress { rkey: u32_at(&wqe, 48), ..remote },
                add: u64_at(&wqe, 32),
            },
            (7, _) => Operation::LocalInvalidate(u32_at(&wqe, 20)),
            (9, _) => Operation::SendInvalidate(u32_at(&wqe, 20)),
            (8, _) => Operation::BindWindow(WindowBind {
                address: u64_at(&wqe, 24),
                length: u64_at(&wqe, 32),
                lkey: u32_at(&wqe, 40),
                old_rkey: u32_at(&wqe, 44),
                new_rkey: u32_at(&wqe, 48),
                access: u32_at(&wqe, 52),
                // The kernel knows.
                is_of_type_2: false,
            }),
            (other, _) => panic!("opcode {other}"),
        };
        prop_assert_eq!(read_back, operation);
        prop_assert_eq!((u64_at(&wqe, 0), u32_at(&wqe, 16)), (wr_id, flags));
        let total: u32 = lengths.iter().sum();
        let dma: Vec<u32> = (184..208).step_by(4).map(|at| u32_at(&wqe, at)).collect();
        prop_assert_eq!(dma, [total, total, 0, lengths.len() as u32, 0, 0]);
        for (index, segment) in segments.iter().enumerate() {
            let at = HEAD + 16 * index;
            prop_assert_eq!(u64_at(&wqe, at), segment.address);
            prop_assert_eq!((u32_at(&wqe, at + 8), u32_at(&wqe, at + 12)), (segment.length, segment.lkey));
        }
    }
}

#[test]
fn inline_bytes_lie_behind_the_request() {
    let (shared, mut queue) = send_queue(4, 1, 40);
    let bytes: Vec<u8> = (1..=40).collect();
    queue.push(&inline(&bytes)).unwrap();
    publish(&mut queue);
    let wqe = shared.take().unwrap();
    assert_eq!(u32_at(&wqe, 16), 8, "INLINE");
    assert_eq!((u32_at(&wqe, 184), u32_at(&wqe, 188)), (40, 40));
    assert_eq!(wqe[HEAD..HEAD + 40], bytes);
}

fn inline(bytes: &[u8]) -> Request<'_> {
    Request {
        wr_id: 1,
        operation: Operation::Send,
        flags: SendFlags::empty(),
        payload: Payload::Inline(bytes),
    }
}

#[test]
fn what_does_not_fit_leaves_the_ring_as_it_was() {
    let (shared, mut queue) = send_queue(4, 2, 40);
    let segments = [segment(0, 1, 0); 3];
    let long = [segment(0, u32::MAX, 0), segment(0, 1, 0)];
    let with = |payload| Request {
        payload,
        ..inline(&[])
    };
    assert_eq!(
        queue.push(&inline(&[0; 41])),
        Err(PostError::InlineTooLong {
            length: 41,
            max: 40
        })
    );
    assert_eq!(
        queue.push(&with(Payload::Segments(&segments))),
        Err(PostError::TooManySegments {
            segments: 3,
            max: 2
        })
    );
    assert_eq!(
        queue.push(&with(Payload::Segments(&long))),
        Err(PostError::MessageTooLong)
    );
    assert_eq!(
        queue.ring_doorbell(),
        Ok(()),
        "there is nothing to ring for"
    );
    assert_eq!(shared.take(), None);
    queue.push(&inline(b"fits")).unwrap();
    publish(&mut queue);
    assert_eq!(shared.take().unwrap()[HEAD..HEAD + 4], *b"fits");
    assert_eq!(shared.take(), None);
}

#[test]
fn a_full_queue_says_how_deep_it_is_and_goes_on_when_emptied() {
    for entries in [1, 2, 3, 4, 7, 8] {
        let (shared, mut queue) = send_queue(entries, 1, 16);
        let depth = queue.depth();
        for lap in 0..3u8 {
            for number in 0..depth as u8 {
                queue.push(&inline(&[lap, number])).unwrap();
            }
            assert_eq!(
                queue.push(&inline(b"x")),
                Err(PostError::QueueFull { depth })
            );
            publish(&mut queue);
            for number in 0..depth as u8 {
                assert_eq!(shared.take().unwrap()[HEAD..HEAD + 2], [lap, number]);
            }
            assert_eq!(shared.take(), None);
        }
    }
}

#[test]
fn discarded_requests_never_come() {
    let (shared, mut queue) = send_queue(4, 1, 16);
    queue.push(&inline(b"published")).unwrap();
    publish(&mut queue);
    queue.push(&inline(b"discarded")).unwrap();
    queue.discard();
    assert_eq!(queue.ring_doorbell(), Ok(()));
    queue.push(&inline(b"later")).unwrap();
    publish(&mut queue);
    assert_eq!(shared.take().unwrap()[HEAD..HEAD + 9], *b"published");
    assert_eq!(shared.take().unwrap()[HEAD..HEAD + 5], *b"later");
    assert_eq!(shared.take(), None);
}

#[test]
fn a_slot_that_is_used_again_has_no_stale_status() {
    let (shared, mut queue) = send_queue(1, 1, 16);
    // The kernel leaves its working fields behind.
    // SAFETY: the ring has two slots behind its header, and nobody uses it meanwhile.
    unsafe { shared.mapping.address().add(384).write_bytes(0xff, 2 * 256) };
    queue.push(&inline(b"")).unwrap();
    publish(&mut queue);
    let wqe = shared.take().unwrap();
    assert_eq!(
        (u32_at(&wqe, 144), u32_at(&wqe, 148)),
        (0, 0),
        "status, state"
    );
    assert_eq!(
        (u32_at(&wqe, 192), u32_at(&wqe, 200)),
        (0, 0),
        "cur_sge, sge_offset"
    );
}

fn receive_queue(shared: &Shared, segments: u32) -> queues::RecvQueue {
    queues::RecvQueue::Rxe(RecvQueue::new(shared.mapping.clone(), segments).unwrap())
}

#[test]
fn a_receive_of_two_segments() {
    let shared = Shared::new(2, 40 + 32);
    let mut queue = receive_queue(&shared, 2);
    queue
        .post(7, &[segment(0x1000, 10, 1), segment(0x2000, 20, 2)])
        .unwrap();
    let wqe = shared.take().unwrap();
    assert_eq!((u64_at(&wqe, 0), u64_at(&wqe, 8)), (7, 0));
    let dma: Vec<u32> = (16..40).step_by(4).map(|at| u32_at(&wqe, at)).collect();
    assert_eq!(dma, [30, 30, 0, 2, 0, 0]);
    assert_eq!(
        (u64_at(&wqe, 40), u32_at(&wqe, 48), u32_at(&wqe, 52)),
        (0x1000, 10, 1)
    );
    assert_eq!(
        (u64_at(&wqe, 56), u32_at(&wqe, 64), u32_at(&wqe, 68)),
        (0x2000, 20, 2)
    );
}

#[test]
fn receives_fill_the_queue_exactly() {
    let shared = Shared::new(3, 40 + 16);
    let mut queue = receive_queue(&shared, 1);
    for wr_id in 0..3 {
        queue.post(wr_id, &[]).unwrap();
    }
    assert_eq!(queue.post(3, &[]), Err(PostError::QueueFull { depth: 3 }));
    let too_many = [segment(0, 1, 0); 2];
    let refused = Err(PostError::TooManySegments {
        segments: 2,
        max: 1,
    });
    assert_eq!(queue.post(3, &too_many), refused);
    assert!(shared.take().is_some());
    queue.post(3, &[]).unwrap();
}

#[test]
fn completions_come_in_order_and_whole() {
    let shared = Shared::new(4, 128);
    let mut queue = CompletionQueue::new(shared.mapping.clone()).unwrap();
    let mut entries = [Completion::default(); 3];
    assert_eq!(queue.poll(&mut entries).len(), 0);
    for wr_id in 0..5 {
        assert!(shared.put(success(wr_id).as_bytes()));
    }
    assert_eq!(queue.poll(&mut []).len(), 0);
    assert_eq!(queue.poll(&mut entries).len(), 3);
    assert_eq!(entries.map(|entry| entry.wr_id()), [0, 1, 2]);
    assert_eq!(queue.poll(&mut entries).len(), 2);
    assert_eq!(
        entries.map(|entry| entry.wr_id()),
        [3, 4, 2],
        "the rest is left alone"
    );
    let done = entries[1].result().unwrap();
    assert_eq!((done.opcode(), done.byte_len()), (Opcode::Receive, 104));
    assert_eq!(done.immediate(), Some(0x0102_0304));
}

fn success(wr_id: u64) -> uverbs::Wc {
    uverbs::Wc {
        wr_id,
        opcode: uverbs::WcOpcode::RECV.0,
        byte_len: 100 + wr_id as u32,
        ex: 0x0102_0304u32.to_be(),
        wc_flags: uverbs::WcFlags::WITH_IMM.bits(),
        ..FromZeros::new_zeroed()
    }
}

#[test]
fn slots_too_small_for_what_was_granted_are_refused() {
    let twin = Twin::new();
    let context = context(&twin);
    let doorbell = || Doorbell::new(&context, 0);
    let shared = Shared::on(&twin, 3, 256);
    let new = |segments, inline| {
        SendQueue::new(shared.mapping.clone(), doorbell(), segments, inline).map(drop)
    };
    assert_eq!(new(3, 48), Ok(()));
    for (segments, inline) in [(4, 0), (0, 49), (u32::MAX, 0), (0, u32::MAX)] {
        assert_eq!(
            new(segments, inline).unwrap_err().kind(),
            ErrorKind::Protocol
        );
    }
    let receives = |segments| RecvQueue::new(shared.mapping.clone(), segments).map(drop);
    assert_eq!(receives(13), Ok(()));
    for segments in [14, u32::MAX] {
        assert_eq!(receives(segments).unwrap_err().kind(), ErrorKind::Protocol);
    }
}
