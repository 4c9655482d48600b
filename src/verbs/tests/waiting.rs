//! Waiting for completions.

use std::thread;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs;

use super::{context, ends};
use crate::device::CqToken;
use crate::error::ErrorKind;
use crate::fastpath::Completion;
use crate::sys::twin::{Call, Twin};
use crate::verbs::CompletionChannel;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

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

/// A wait that ran out of time leaves the queue armed. Whoever reads the event then, the next wait
/// is not without one.
#[test]
fn an_event_that_the_program_reads_itself_is_no_loss() {
    const SOON: Option<Duration> = Some(Duration::from_millis(1));
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    let mut entries = [Completion::default(); 4];
    let reads: [fn(&CompletionChannel) -> CqToken; 2] = [
        |channel| channel.next_event(AT_ONCE).unwrap(),
        |channel| channel.try_next_event().unwrap().unwrap(),
    ];
    for read in reads {
        let error = other.cq.wait(&mut entries, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        other.post_receive(1, 16);
        other.post_receive(2, 16);
        one.send(1, b"to the program").unwrap();
        assert_eq!(read(&other.completions), other.cq.token());
        assert_eq!(other.cq.poll(&mut entries).len(), 1);

        let armed = twin.calls().len();
        let error = other.cq.wait(&mut entries, SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let arms = |call: &Call| call.is_write(uverbs::Command::REQ_NOTIFY_CQ);
        assert!(twin.calls()[armed..].iter().any(arms));
        one.send(2, b"to the wait").unwrap();
        assert_eq!(other.cq.wait(&mut entries, AT_ONCE).unwrap().len(), 1);
        // The event of that is unread, as after any completion that was there first.
        assert!(read(&other.completions) == other.cq.token());
    }
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
