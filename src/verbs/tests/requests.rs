//! Requests between two queue pairs.

use super::{ALL, End, context, ends};
use crate::fastpath::{Completion, CompletionStatus, Opcode, PostError, RemoteAddress, SendFlags};
use crate::sys::twin::{Call, Twin, TwinDevice};
use crate::verbs::{Access, AtomicBuilder, Batch, QpModify, QpState};

#[test]
fn a_message_arrives_and_both_sides_hear_of_it() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(7, 16);
    one.send(8, b"hello").unwrap();
    let sent = one.completion();
    assert_eq!((sent.wr_id(), sent.qp_num()), (8, one.qp.number()));
    assert_eq!(sent.result().unwrap().opcode(), Opcode::Send);
    let received = other.completion();
    let result = received.result().unwrap();
    assert_eq!(
        (received.wr_id(), received.qp_num()),
        (7, other.qp.number())
    );
    assert_eq!((result.opcode(), result.byte_len()), (Opcode::Receive, 5));
    assert_eq!(
        (result.immediate(), other.buffer.read_vec(0, 5).unwrap()),
        (None, b"hello".into())
    );
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn immediate_data_arrives_as_it_was_posted() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(1, 16);
    other.post_receive(2, 0);
    let to = other.buffer.remote().at(100);
    let from = one.buffer.slice(..3).unwrap();
    one.buffer.write(0, b"abc").unwrap();
    let mut batch = one.qp.send_half().batch();
    batch.send_immediate(1, 0x0102_0304).inline(b"x").unwrap();
    batch
        .write_immediate(2, to, 0xdead_beef)
        .from(&[from])
        .unwrap();
    batch.submit().unwrap();
    let mut entries = [Completion::default(); 4];
    let received = other.cq.poll(&mut entries);
    let results: Vec<_> = received
        .iter()
        .map(|entry| entry.result().unwrap())
        .collect();
    assert_eq!(results[0].immediate(), Some(0x0102_0304));
    assert_eq!(results[1].immediate(), Some(0xdead_beef));
    assert_eq!(results[0].immediate_bytes(), Some([1, 2, 3, 4]));
    assert_eq!(results[1].opcode(), Opcode::ReceiveWriteImmediate);
    assert_eq!(other.buffer.read_vec(100, 3).unwrap(), b"abc");
}

#[test]
fn only_signaled_requests_complete_unless_they_fail() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    for wr_id in 0..2 {
        other.post_receive(wr_id, 16);
    }
    let nowhere = RemoteAddress {
        address: 0,
        rkey: 0,
    };
    let mut batch = one.qp.send_half().batch();
    batch.send(1).inline(b"a").unwrap();
    batch.send(2).signaled().inline(b"b").unwrap();
    batch.write(3, nowhere).inline(b"c").unwrap();
    batch.submit().unwrap();
    let mut entries = [Completion::default(); 8];
    let done: Vec<_> = one
        .cq
        .poll(&mut entries)
        .iter()
        .map(Completion::wr_id)
        .collect();
    assert_eq!(done, [2, 3]);
    let failure = entries[1].result().unwrap_err();
    assert_eq!(failure.status, CompletionStatus::RemoteAccess);
    assert_eq!(one.qp.query_state().unwrap(), QpState::Error);
}

#[test]
fn a_batch_that_is_dropped_starts_nothing() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(1, 16);
    twin.forget_calls();
    let mut batch = one.qp.send_half().batch();
    batch.send(1).signaled().inline(b"never").unwrap();
    drop(batch);
    one.qp.send_half().batch().submit().unwrap();
    assert_eq!(twin.calls(), [], "no doorbell");
    one.send(2, b"later").unwrap();
    assert_eq!(one.completion().wr_id(), 2);
    assert_eq!(other.buffer.read_vec(0, 5).unwrap(), b"later");
}

#[test]
fn nothing_is_queued_before_the_queue_pair_can_send() {
    let twin = Twin::new();
    let context = context(&twin);
    let (mut one, mut other) = (End::new(&context).unwrap(), End::new(&context).unwrap());
    assert_eq!(one.send(1, b"reset"), Err(PostError::NotConnected));
    one.raise(&other, QpState::Init).unwrap();
    assert_eq!(one.send(2, b"init"), Err(PostError::NotConnected));
    // Receives may be posted from the start.
    other.post_receive(9, 16);
    let (mut one, _) = {
        drop(one);
        let again = End::new(&context).unwrap();
        again.raise(&other, QpState::Rts).unwrap();
        other.raise(&again, QpState::Rts).unwrap();
        (again, ())
    };
    one.send(3, b"rts").unwrap();
    assert_eq!(one.completion().wr_id(), 3);
    assert_eq!(other.completion().wr_id(), 9);
}

#[test]
fn a_refused_doorbell_keeps_the_requests_for_the_next() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    for wr_id in 0..2 {
        other.post_receive(wr_id, 16);
    }
    twin.fail(0, libc::ENOMEM, |call| matches!(call, Call::Doorbell(_)));
    assert_eq!(
        one.send(1, b"a"),
        Err(PostError::Doorbell {
            errno: libc::ENOMEM
        })
    );
    one.send(2, b"b").unwrap();
    let mut entries = [Completion::default(); 4];
    let done: Vec<_> = one
        .cq
        .poll(&mut entries)
        .iter()
        .map(Completion::wr_id)
        .collect();
    assert_eq!(done, [1, 2]);
}

#[test]
fn an_interrupted_doorbell_is_rung_again() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(0, 16);
    twin.fail(0, libc::EINTR, |call| matches!(call, Call::Doorbell(_)));
    one.send(1, b"a").unwrap();
    assert_eq!(one.status(), CompletionStatus::Success);
}

#[test]
fn outstanding_requests_are_flushed_by_the_error_state() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(5, 16);
    one.send(1, b"no receive").unwrap();
    one.send(2, b"for two").unwrap();
    other.completion();
    assert_eq!(one.completion().wr_id(), 1);
    one.post_receive(3, 16);
    one.qp.modify(&QpModify::to(QpState::Error)).unwrap();
    let mut entries = [Completion::default(); 4];
    let flushed: Vec<_> = one
        .cq
        .poll(&mut entries)
        .iter()
        .map(|entry| (entry.wr_id(), entry.result().unwrap_err().status))
        .collect();
    assert_eq!(
        flushed,
        [
            (3, CompletionStatus::Flushed),
            (2, CompletionStatus::Flushed)
        ]
    );
}

/// Where the answers of atomics go, in the own buffer.
const ANSWER: usize = 64;

impl End {
    /// Carries out an atomic and returns what it answered.
    fn atomic(
        &mut self,
        opcode: Opcode,
        build: impl for<'b, 'q> FnOnce(&'b mut Batch<'q>) -> AtomicBuilder<'b, 'q>,
    ) -> u64 {
        let place = self.buffer.slice(ANSWER..ANSWER + 8).unwrap();
        let mut batch = self.qp.send_half().batch();
        build(&mut batch).signaled().into(place).unwrap();
        batch.submit().unwrap();
        let done = self.completion();
        let done = done.result().unwrap();
        assert_eq!((done.opcode(), done.byte_len()), (opcode, 8));
        self.number_at(ANSWER)
    }

    fn number_at(&self, offset: usize) -> u64 {
        let bytes = self.buffer.read_vec(offset, 8).unwrap();
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }
}

#[test]
fn atomics_answer_with_what_was_there_before() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.buffer.write(8, &7u64.to_ne_bytes()).unwrap();
    let at = other.buffer.remote().at(8);
    let swap = Opcode::CompareSwap;
    assert_eq!(
        one.atomic(swap, |batch| batch.compare_swap(1, at, 7, 1 << 40)),
        7
    );
    assert_eq!(other.number_at(8), 1 << 40);
    assert_eq!(
        one.atomic(swap, |batch| batch.compare_swap(2, at, 7, 9)),
        1 << 40
    );
    assert_eq!(other.number_at(8), 1 << 40, "not equal, not swapped");
    let add = Opcode::FetchAdd;
    assert_eq!(
        one.atomic(add, |batch| batch.fetch_add(3, at, u64::MAX)),
        1 << 40
    );
    assert_eq!(
        other.number_at(8),
        (1 << 40) - 1,
        "the sum begins again at 0"
    );
    assert_eq!(
        (other.number_at(0), other.number_at(16)),
        (0, 0),
        "its neighbours"
    );
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn an_atomic_needs_the_access_of_its_own() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let memory = other.pd.alloc(64, ALL - Access::REMOTE_ATOMIC).unwrap();
    let place = one.buffer.slice(..8).unwrap();
    let mut batch = one.qp.send_half().batch();
    batch.fetch_add(1, memory.remote(), 1).into(place).unwrap();
    batch.submit().unwrap();
    assert_eq!(one.status(), CompletionStatus::RemoteAccess);
    assert_eq!(memory.read_vec(0, 8).unwrap(), [0; 8]);
}

#[test]
fn atomics_that_no_device_takes_are_refused_and_the_batch_goes_on() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let at = other.buffer.remote();
    let lengths = [0, 4, 9, 16];
    let short = lengths.map(|length| one.buffer.slice(..length).unwrap());
    let place = one.buffer.slice(8..16).unwrap();
    let mut batch = one.qp.send_half().batch();
    for (segment, length) in short.into_iter().zip(lengths) {
        let refused = batch.fetch_add(1, at, 1).into(segment);
        assert_eq!(refused, Err(PostError::AtomicLength { length }));
    }
    for offset in 1..8 {
        let address = at.address + offset;
        let refused = batch.compare_swap(2, at.at(offset), 0, 1).into(place);
        assert_eq!(refused, Err(PostError::AtomicUnaligned { address }));
    }
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    batch.fetch_add(3, at, 5).flags(flags).into(place).unwrap();
    batch.submit().unwrap();
    assert_eq!(one.completion().wr_id(), 3);
    assert_eq!(other.number_at(0), 5);
}

#[test]
fn no_atomics_where_no_depth_was_agreed_on() {
    let twin = Twin::new();
    let context = context(&twin);
    let (mut one, other) = (End::new(&context).unwrap(), End::new(&context).unwrap());
    one.raise(&other, QpState::Rtr).unwrap();
    let rts = QpModify::to(QpState::Rts).send_psn(0).timeout(14);
    let rts = rts.retry_count(6).rnr_retry_count(7).initiator_depth(0);
    one.qp.modify(&rts).unwrap();
    let (at, place) = (other.buffer.remote(), one.buffer.slice(..8).unwrap());
    let mut batch = one.qp.send_half().batch();
    assert_eq!(
        batch.fetch_add(1, at, 1).into(place),
        Err(PostError::NoReads)
    );
    assert_eq!(
        batch.compare_swap(2, at, 0, 1).into(place),
        Err(PostError::NoReads)
    );
}

#[test]
fn an_atomic_write_puts_eight_bytes_in_place() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.buffer.write(0, &[0xee; 24]).unwrap();
    let to = other.buffer.remote();
    let mut batch = one.qp.send_half().batch();
    let unaligned = batch.atomic_write(1, to.at(4)).bytes([0; 8]);
    let address = to.address + 4;
    assert_eq!(unaligned, Err(PostError::AtomicUnaligned { address }));
    let write = batch.atomic_write(2, to.at(8)).signaled();
    write.bytes(*b"12345678").unwrap();
    batch.submit().unwrap();
    let done = one.completion();
    let done = done.result().unwrap();
    assert_eq!((done.opcode(), done.byte_len()), (Opcode::AtomicWrite, 8));
    let expected = [&[0xee; 8][..], b"12345678", &[0xee; 8]].concat();
    assert_eq!(other.buffer.read_vec(0, 24).unwrap(), expected);
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn a_device_without_atomic_writes_is_not_given_one() {
    let device = TwinDevice {
        capabilities: TwinDevice::RXE_6_1,
        ..TwinDevice::rxe(0, std::net::Ipv4Addr::LOCALHOST.into())
    };
    let twin = Twin::with_devices(vec![device]);
    let (mut one, other) = ends(&twin);
    assert!(!one.context.attr().unwrap().has_atomic_write());
    twin.forget_calls();
    let mut batch = one.qp.send_half().batch();
    let refused = batch.atomic_write(1, other.buffer.remote()).bytes([0; 8]);
    assert_eq!(refused, Err(PostError::NoAtomicWrite));
    batch.submit().unwrap();
    assert_eq!(twin.calls(), [], "the kernel was asked");
}
