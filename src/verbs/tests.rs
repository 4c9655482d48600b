//! Verbs on the scripted kernel: objects, their lifetimes, and requests between two queue pairs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs;

use super::{Access, Buffer, CompletionChannel, Cq, Path, Pd, Qp, QpAttr, QpModify, QpState};
use crate::device::{Context, Gid};
use crate::error::{ErrorKind, Result};
use crate::fastpath::{Completion, CompletionStatus, Opcode, PostError, RemoteAddress};
use crate::sys::twin::{CREATE_CQ, Call, DESTROY_CQ, DESTROY_MR, DESTROY_PD, Twin, TwinDevice};

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
const ALL: Access = Access::all();

fn context(twin: &Arc<Twin>) -> Context {
    twin.registry().context_of_index(0).unwrap()
}

/// A queue pair with a completion queue and a buffer of its own.
struct End {
    context: Context,
    qp: Qp,
    cq: Cq,
    completions: CompletionChannel,
    buffer: Buffer,
}

impl End {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let completions = context.completion_channel()?;
        let cq = context.completion_queue(64).channel(&completions).build()?;
        let qp = pd.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_sge(2)
                .max_inline_data(32),
        )?;
        let buffer = pd.alloc(4096, ALL)?;
        Ok(Self {
            context: context.clone(),
            qp,
            cq,
            completions,
            buffer,
        })
    }

    /// Moves the queue pair up to a state.
    fn raise(&self, peer: &Self, target: QpState) -> Result<()> {
        let path = Path {
            gid: Gid([0; 16]),
            source_gid_index: 0,
            port: 1,
            hop_limit: 1,
            traffic_class: 0,
            service_level: 0,
            lid: 0,
        };
        let steps = [
            QpModify::to(QpState::Init)
                .port(1)
                .pkey_index(0)
                .access(ALL),
            QpModify::to(QpState::Rtr)
                .path(path)
                .path_mtu(self.context.port(1)?.active_mtu)
                .remote_qp_num(peer.qp.number())
                .receive_psn(0)
                .responder_resources(4)
                .min_rnr_timer(12),
            QpModify::to(QpState::Rts)
                .send_psn(0)
                .timeout(14)
                .retry_count(6)
                .rnr_retry_count(7)
                .initiator_depth(4),
        ];
        let states = [QpState::Init, QpState::Rtr, QpState::Rts];
        for (step, state) in steps.iter().zip(states) {
            self.qp.modify(step)?;
            if state == target {
                break;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self, wr_id: u64, length: usize) {
        let segment = self.buffer.slice(..length).unwrap();
        self.qp.recv_half().post(wr_id, &[segment]).unwrap();
    }

    fn send(&mut self, wr_id: u64, bytes: &[u8]) -> Result<(), PostError> {
        let mut batch = self.qp.send_half().batch();
        batch.send(wr_id).signaled().inline(bytes)?;
        batch.submit()
    }

    /// The one completion that there is.
    fn completion(&mut self) -> Completion {
        let mut entries = [Completion::default(); 2];
        let [completion] = self.cq.poll(&mut entries) else {
            panic!("not one completion")
        };
        *completion
    }

    fn status(&mut self) -> CompletionStatus {
        self.completion()
            .result()
            .map_or_else(|failed| failed.status, |_| CompletionStatus::Success)
    }
}

/// Two queue pairs that are connected to each other.
fn ends(twin: &Arc<Twin>) -> (End, End) {
    let context = context(twin);
    let (one, other) = (End::new(&context).unwrap(), End::new(&context).unwrap());
    one.raise(&other, QpState::Rts).unwrap();
    other.raise(&one, QpState::Rts).unwrap();
    (one, other)
}

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

#[test]
fn a_device_never_reaches_a_buffer_that_is_gone() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(1, 16);
    // The segment outlives the buffer; the registration does not.
    let pd = context(&twin).alloc_pd().unwrap();
    other.buffer = pd.alloc(16, ALL).unwrap();
    one.send(2, b"too late").unwrap();
    assert_eq!(one.status(), CompletionStatus::RemoteOperation);
    drop((one, other, pd));
    twin.assert_clean();
}

#[test]
fn a_transition_that_lacks_something_is_explained() {
    let twin = Twin::new();
    let end = End::new(&context(&twin)).unwrap();
    let error = end
        .qp
        .modify(&QpModify::to(QpState::Init).port(1))
        .unwrap_err();
    assert!(error.to_string().contains("PKEY_INDEX"), "{error}");
    let error = end.qp.modify(&QpModify::to(QpState::Rts)).unwrap_err();
    assert!(error.to_string().contains("no transition"), "{error}");
    let wrong_port = QpModify::to(QpState::Init)
        .port(9)
        .pkey_index(0)
        .access(ALL);
    let error = end.qp.modify(&wrong_port).unwrap_err();
    assert!(
        error.to_string().contains("out of the device's range"),
        "{error}"
    );
    assert_eq!(end.qp.query_state().unwrap(), QpState::Reset);
}

#[test]
fn a_destroyed_queue_pair_says_so() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let attr = QpModify::to(QpState::Error);
    assert!(one.qp.destroy().unwrap());
    assert!(!one.qp.destroy().unwrap());
    twin.forget_calls();
    assert_eq!(
        one.qp.query_state().unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    assert_eq!(
        one.qp.modify(&attr).unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    assert_eq!(one.send(1, b""), Err(PostError::Destroyed));
    assert_eq!(one.qp.recv_half().post(1, &[]), Err(PostError::Destroyed));
    assert_eq!(twin.calls(), [], "the kernel was asked");
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn a_freed_protection_domain_says_so() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let clone = pd.clone();
    pd.dealloc().unwrap();
    // Its handle may be another object's by now.
    twin.forget_calls();
    let error = clone.alloc(64, ALL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Destroyed, "{error}");
    let attr = QpAttr::new(&clone).send_cq(&cq).recv_cq(&cq);
    assert_eq!(
        clone.create_qp(&attr).unwrap_err().kind(),
        ErrorKind::Destroyed
    );
    clone.clone().dealloc().unwrap();
    let commands = twin
        .calls()
        .into_iter()
        .filter(|call| matches!(call, Call::Write(..)))
        .count();
    assert_eq!(commands, 0, "the kernel was asked");
    drop((clone, cq));
    drop(context);
    twin.assert_clean();
}

#[test]
fn what_is_in_use_is_destroyed_after_its_last_user() {
    let twin = Twin::new();
    let context = context(&twin);
    let pd = context.alloc_pd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let qp = pd
        .create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
        .unwrap();
    let buffer = pd.alloc(64, ALL).unwrap();
    assert_eq!(cq.destroy().unwrap_err().errno(), Some(libc::EBUSY));
    assert_eq!(pd.dealloc().unwrap_err().errno(), Some(libc::EBUSY));
    drop(buffer);
    drop(qp);
    let census = twin.census();
    assert_eq!(
        (census.pds, census.cqs, census.qps, census.mrs),
        (0, 0, 0, 0)
    );
    drop(context);
    twin.assert_clean();
}

#[test]
#[expect(
    unsafe_code,
    reason = "regions that can be taken back explicitly are of raw memory"
)]
fn an_explicit_destroy_that_is_refused_is_told_and_made_good_by_the_drop() {
    let twin = Twin::new();
    let context = context(&twin);
    let refuse = |method| twin.fail(0, libc::ENOMEM, move |call| call.is_method(method));
    let pd = context.alloc_pd().unwrap();

    let cq = context.completion_queue(4).build().unwrap();
    refuse(DESTROY_CQ);
    assert_eq!(cq.destroy().unwrap_err().errno(), Some(libc::ENOMEM));

    let mut bytes = vec![0; 64];
    // SAFETY: the bytes live until after the region, and nobody posts anything.
    let mr = unsafe { pd.register_raw(bytes.as_mut_ptr(), bytes.len(), ALL) }.unwrap();
    refuse(DESTROY_MR);
    assert_eq!(mr.deregister().unwrap_err().errno(), Some(libc::ENOMEM));

    refuse(DESTROY_PD);
    assert_eq!(pd.dealloc().unwrap_err().errno(), Some(libc::ENOMEM));
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_queue_that_cannot_be_mapped_is_destroyed() {
    let twin = Twin::new();
    let context = context(&twin);
    twin.fail(0, libc::ENOMEM, |call| *call == Call::MapDevice);
    let error = context.completion_queue(4).build().unwrap_err();
    assert_eq!(
        (error.operation(), error.errno()),
        ("map_queue", Some(libc::ENOMEM))
    );
    // The second ring of a queue pair, too.
    twin.fail(2, libc::ENOMEM, |call| *call == Call::MapDevice);
    End::new(&context).map(drop).unwrap_err();
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_ring_that_makes_no_sense_is_refused() {
    // The first is the completion queue's, the second and third the queue pair's.
    for broken in 0..3 {
        let twin = Twin::new();
        let context = context(&twin);
        let mut number = 0;
        twin.tamper_rings(move |header| {
            if number == broken {
                header.log2_elem_size = 40;
            }
            number += 1;
        });
        let error = End::new(&context).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        drop(context);
        twin.assert_clean();
    }
}

#[test]
fn a_mapping_smaller_than_its_ring_is_refused() {
    let twin = Twin::new();
    let context = context(&twin);
    twin.tamper(|call, attr, answer| {
        if call.is_method(CREATE_CQ) && attr == uverbs::ioctl::UHW_OUT {
            answer[8..12].copy_from_slice(&512u32.to_ne_bytes());
        }
    });
    let error = context.completion_queue(64).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    drop(context);
    twin.assert_clean();
}

#[test]
fn refused_registration_names_the_limit() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    for errno in [libc::ENOMEM, libc::EPERM] {
        twin.fail(0, errno, |call| call.is_write(uverbs::Command::REG_MR));
        let error = pd.alloc(4096, ALL).unwrap_err();
        assert!(error.to_string().contains("8388608 bytes"), "{error}");
    }
    drop(pd);
    twin.assert_clean();
}

#[test]
fn contradictions_are_found_before_the_kernel_is_asked() {
    let twin = Twin::with_devices(vec![
        TwinDevice::rxe(0, [10, 0, 0, 1].into()),
        TwinDevice::rxe(1, [10, 0, 0, 2].into()),
    ]);
    let registry = twin.registry();
    let [one, other] = [0, 1].map(|index| registry.context_of_index(index).unwrap());
    let pd = one.alloc_pd().unwrap();
    let cq = one.completion_queue(4).build().unwrap();
    let (foreign_cq, foreign_channel) = (
        other.completion_queue(4).build().unwrap(),
        other.completion_channel().unwrap(),
    );
    let attr = || QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    let refused: Vec<(&str, Result<()>)> = vec![
        ("no entries", one.completion_queue(0).build().map(drop)),
        ("32768", one.completion_queue(32_768).build().map(drop)),
        (
            "channel",
            one.completion_queue(4)
                .channel(&foreign_channel)
                .build()
                .map(drop),
        ),
        (
            "completion queue",
            pd.create_qp(&QpAttr::new(&pd)).map(drop),
        ),
        ("rxe1", pd.create_qp(&attr().recv_cq(&foreign_cq)).map(drop)),
        (
            "max_send_wr",
            pd.create_qp(&attr().max_send_wr(0)).map(drop),
        ),
        (
            "max_recv_wr",
            pd.create_qp(&attr().max_recv_wr(1 << 21)).map(drop),
        ),
        (
            "max_send_sge",
            pd.create_qp(&attr().max_send_sge(33)).map(drop),
        ),
        (
            "max_recv_sge",
            pd.create_qp(&attr().max_recv_sge(0)).map(drop),
        ),
        (
            "max_inline_data",
            pd.create_qp(&attr().max_inline_data(513)).map(drop),
        ),
        ("one byte", pd.alloc(0, ALL).map(drop)),
        ("LOCAL_WRITE", pd.alloc(1, Access::REMOTE_WRITE).map(drop)),
    ];
    for (text, outcome) in refused {
        let error = outcome.expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        assert!(
            text == "no entries" || error.to_string().contains(text),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_buffer_guards_its_ends() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let mut buffer = pd.alloc(100, ALL).unwrap();
    assert_eq!(buffer.len(), 100);
    buffer.write(97, b"end").unwrap();
    assert_eq!(buffer.read_vec(97, 3).unwrap(), b"end");
    assert_eq!(buffer.slice(..).unwrap().len(), 100);
    assert!(buffer.slice(100..).unwrap().is_empty());
    buffer.write(100, b"").unwrap();
    let beyond = [
        buffer.write(98, b"end").unwrap_err(),
        buffer.read_vec(0, 101).unwrap_err(),
        buffer.read_vec(usize::MAX, 2).unwrap_err(),
        buffer.slice(..=100).unwrap_err(),
        buffer.slice(101..).unwrap_err(),
        buffer.slice(..=usize::MAX).unwrap_err(),
        buffer
            .slice((
                std::ops::Bound::Excluded(usize::MAX),
                std::ops::Bound::Unbounded,
            ))
            .unwrap_err(),
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        buffer.slice(5..4).unwrap_err(),
    ];
    for error in beyond {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

#[test]
fn waiting_without_a_channel_is_refused_and_with_one_times_out() {
    let twin = Twin::new();
    let context = context(&twin);
    let mut silent = context.completion_queue(4).build().unwrap();
    let mut entries = [Completion::default()];
    let error = silent.wait(&mut entries, AT_ONCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidState);
    let channel = context.completion_channel().unwrap();
    let mut cq = context
        .completion_queue(4)
        .channel(&channel)
        .build()
        .unwrap();
    for _ in 0..2 {
        let error = cq
            .wait(&mut entries, Some(Duration::from_millis(1)))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    assert_eq!(cq.wait(&mut [], AT_ONCE).unwrap().len(), 0);
}

#[test]
fn a_wait_ends_with_a_completion_from_another_thread() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    other.post_receive(1, 16);
    let waiting = thread::spawn(move || {
        let mut entries = [Completion::default(); 4];
        let first = other
            .cq
            .wait(&mut entries, Some(Duration::from_secs(20)))
            .unwrap()
            .len();
        (first, other)
    });
    one.send(1, b"wake up").unwrap();
    let (completions, other) = waiting.join().unwrap();
    assert_eq!(completions, 1);
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn an_event_comes_once_per_arming_and_for_solicited_messages_only_if_asked() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    for wr_id in 0..3 {
        other.post_receive(wr_id, 16);
    }
    other.cq.arm(true).unwrap();
    one.send(1, b"quiet").unwrap();
    assert_eq!(other.completions.try_next_event().unwrap(), None);
    let mut batch = one.qp.send_half().batch();
    batch.send(2).solicited().inline(b"loud").unwrap();
    batch.submit().unwrap();
    assert_eq!(
        other.completions.next_event(AT_ONCE).unwrap(),
        other.cq.token()
    );
    one.send(3, b"after").unwrap();
    assert_eq!(other.completions.try_next_event().unwrap(), None);
}

/// A protection domain made elsewhere is kept by what is made in it.
#[test]
fn children_keep_their_parents() {
    let twin = Twin::new();
    let pd: Pd = context(&twin).alloc_pd().unwrap();
    let buffer = pd.alloc(64, ALL).unwrap();
    drop(pd);
    let census = twin.census();
    assert_eq!((census.pds, census.mrs, census.files), (1, 1, 1));
    drop(buffer);
    twin.assert_clean();
}
