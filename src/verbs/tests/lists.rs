//! Lists of requests.

use super::ends;
use crate::fastpath::{Completion, PostError, SendFlags};
use crate::sys::twin::{Call, Twin};
use crate::verbs::{Data, ListError, RecvRequest, SendRequest, SrqAttr, Work};

fn send(wr_id: u64, bytes: &[u8]) -> SendRequest<'_> {
    SendRequest {
        wr_id,
        flags: SendFlags::SIGNALED,
        work: Work::Send(Data::Inline(bytes)),
    }
}

fn numbers(entries: &[Completion]) -> Vec<u64> {
    entries.iter().map(Completion::wr_id).collect()
}

#[test]
fn a_list_has_one_doorbell_and_stops_at_what_is_refused() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    for wr_id in 0..4 {
        other.post_receive(wr_id, 16);
    }
    twin.forget_calls();
    let mut asked_for = 0;
    let list = [
        send(1, b"a"),
        send(2, b"b"),
        send(3, &[0; 100]),
        send(4, b"d"),
    ];
    let list = list.into_iter().inspect(|_| asked_for += 1);
    let refused = one.qp.send_half().post_list(list).unwrap_err();
    let source = PostError::InlineTooLong {
        length: 100,
        max: one.qp.capabilities().max_inline_data,
    };
    assert_eq!(refused, ListError { index: 2, source });
    assert!(
        refused
            .to_string()
            .contains("request 2 of the list: 100 bytes")
    );
    assert_eq!(asked_for, 3, "those behind are not looked at");
    let doorbells = twin.calls();
    assert!(
        matches!(doorbells[..], [Call::Doorbell(_)]),
        "{doorbells:?}"
    );
    let mut entries = [Completion::default(); 8];
    assert_eq!(numbers(one.cq.poll(&mut entries)), [1, 2]);
    assert_eq!(numbers(other.cq.poll(&mut entries)), [0, 1]);
    one.qp.send_half().post_list([send(5, b"e")]).unwrap();
    assert_eq!(one.completion().wr_id(), 5);
    drop((one, other));
    twin.assert_clean();
}

#[test]
fn a_list_for_a_queue_pair_that_cannot_send_is_not_begun() {
    let twin = Twin::new();
    let mut end = super::End::new(&super::context(&twin)).unwrap();
    let untouched = std::iter::once_with(|| -> SendRequest<'_> { panic!("it was looked at") });
    let refused = end.qp.send_half().post_list(untouched).unwrap_err();
    let source = PostError::NotConnected;
    assert_eq!(refused, ListError { index: 0, source });
}

#[test]
fn a_refused_doorbell_tells_what_is_in_the_queue() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    for wr_id in 0..2 {
        other.post_receive(wr_id, 16);
    }
    twin.fail(0, libc::ENOMEM, |call| matches!(call, Call::Doorbell(_)));
    let list = [send(1, b"a"), send(2, b"b"), send(3, &[0; 100])];
    let refused = one.qp.send_half().post_list(list).unwrap_err();
    let errno = libc::ENOMEM;
    let source = PostError::Doorbell { errno };
    assert_eq!(refused, ListError { index: 2, source });
    // The next doorbell starts them.
    let refused = one.qp.send_half().post_list([send(4, &[0; 100])]);
    assert_eq!(refused.unwrap_err().index, 0);
    one.qp.send_half().post_list([send(5, b"c")]).unwrap();
    let mut entries = [Completion::default(); 8];
    assert_eq!(numbers(one.cq.poll(&mut entries)), [1, 2]);
}

#[test]
fn receives_are_posted_up_to_the_refused_one() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    let fits = [other.buffer.slice(..16).unwrap()];
    let max = other.qp.capabilities().max_recv_sge;
    let too_many = vec![fits[0]; max as usize + 1];
    let lists = [&fits[..], &[], &too_many, &fits];
    let receives = (10..)
        .zip(lists)
        .map(|(wr_id, segments)| RecvRequest { wr_id, segments });
    twin.forget_calls();
    let refused = other.qp.recv_half().post_list(receives).unwrap_err();
    let segments = too_many.len();
    let source = PostError::TooManySegments { segments, max };
    assert_eq!(refused, ListError { index: 2, source });
    assert_eq!(twin.calls(), []);
    one.qp
        .send_half()
        .post_list([send(1, b"a"), send(2, b"")])
        .unwrap();
    let mut entries = [Completion::default(); 8];
    assert_eq!(numbers(other.cq.poll(&mut entries)), [10, 11]);
}

#[test]
fn receives_before_a_panic_are_posted() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    let list = (0..).map(|wr_id| match wr_id {
        2 => panic!("the program's own"),
        _ => RecvRequest {
            wr_id,
            segments: &[],
        },
    });
    let recv = other.qp.recv_half();
    let panics = std::panic::AssertUnwindSafe(|| recv.post_list(list));
    std::panic::catch_unwind(panics).unwrap_err();
    one.qp
        .send_half()
        .post_list([send(1, b""), send(2, b"")])
        .unwrap();
    let mut entries = [Completion::default(); 8];
    assert_eq!(numbers(other.cq.poll(&mut entries)), [0, 1]);
}

#[test]
fn a_shared_queue_is_filled_to_its_depth() {
    let twin = Twin::new();
    let pd = super::context(&twin).alloc_pd().unwrap();
    let attr = SrqAttr {
        max_wr: 3,
        max_sge: 1,
    };
    let mut srq = pd.create_srq(&attr).unwrap();
    let depth = srq.depth();
    let endless = (0..).map(|wr_id| RecvRequest {
        wr_id,
        segments: &[],
    });
    let refused = srq.post_list(endless).unwrap_err();
    let source = PostError::QueueFull { depth };
    assert_eq!(
        refused,
        ListError {
            index: depth as usize,
            source
        }
    );
}
