//! What is read of a failed request, for every status that there is.
//!
//! rxe gives some of them on a real kernel (`tests/vm/verbs/failures.rs`). For the others it has no
//! place: what it finds wrong with a message is an operation error or an invalid request, and an
//! answer of the wrong kind is a fatal error, but only somebody who forges packets sends one.

use rdmacm_kernel_abi::uverbs;
use zerocopy::{FromZeros, IntoBytes};

use super::Shared;
use crate::fastpath::rxe::CompletionQueue;
use crate::fastpath::{Completion, CompletionStatus, Failure};

/// The numbers of `enum ib_wc_status`.
const STATUSES: [(u32, CompletionStatus); 23] = {
    use CompletionStatus::*;
    [
        (1, LocalLength),
        (2, LocalQpOperation),
        (3, LocalEeContext),
        (4, LocalProtection),
        (5, Flushed),
        (6, MemoryWindowBind),
        (7, BadResponse),
        (8, LocalAccess),
        (9, RemoteInvalidRequest),
        (10, RemoteAccess),
        (11, RemoteOperation),
        (12, RetryExceeded),
        (13, RnrRetryExceeded),
        (14, LocalRdDomain),
        (15, RemoteInvalidRdRequest),
        (16, RemoteAborted),
        (17, InvalidEeContextNumber),
        (18, InvalidEeContextState),
        (19, Fatal),
        (20, ResponseTimeout),
        (21, General),
        (22, Unknown(22)),
        (u32::MAX, Unknown(u32::MAX)),
    ]
};

#[test]
fn every_status_of_the_ring_has_its_name() {
    let shared = Shared::new(1, 128);
    let mut queue = CompletionQueue::new(shared.mapping.clone()).unwrap();
    let mut texts = Vec::new();
    for (status, expected) in STATUSES {
        let entry = uverbs::Wc {
            wr_id: 7,
            qp_num: 17,
            status,
            vendor_err: 3,
            // Without meaning when a request fails.
            opcode: uverbs::WcOpcode::RECV.0,
            byte_len: 99,
            ..FromZeros::new_zeroed()
        };
        assert!(shared.put(entry.as_bytes()));
        let mut entries = [Completion::default()];
        assert_eq!(queue.poll(&mut entries).len(), 1);
        let failure = entries[0].result().unwrap_err();
        let whole = Failure {
            wr_id: 7,
            qp_num: 17,
            status: expected,
            vendor_error: 3,
        };
        assert_eq!(failure, whole, "{status}");
        assert_eq!(failure.is_flush(), status == 5);
        texts.push(failure.to_string());
    }
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), STATUSES.len(), "each says something else");
}
