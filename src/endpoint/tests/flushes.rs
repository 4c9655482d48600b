//! Queue pairs that end before any event says so: siw's kernel flushes first and tells afterwards.

use std::sync::Arc;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::EventType;

use super::super::Connection;
use super::connections::connected;
use super::{PATIENCE, SHORT, on_twin};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{RemoteAddress, Segment};
use crate::sys::twin::{Call, Twin};

/// A call that waits, given memory here and there.
type Waiting = fn(&mut Connection, Segment, RemoteAddress) -> Result<()>;

const CALLS: [Waiting; 8] = [
    |end, _, _| end.send(b"inline"),
    |end, _, _| end.send(&[7; 4000]),
    |end, from, _| end.send_from(&[from]),
    |end, from, to| end.write(to, &[from]),
    |end, into, from| end.read(from, &[into]),
    |end, _, _| end.recv_completion().map(drop),
    |end, into, at| {
        let mut batch = end.batch();
        batch.fetch_add(2, at, 1).signaled().into(into)?;
        batch.submit()?;
        end.send_completion().map(drop)
    },
    |end, into, at| {
        let mut batch = end.batch();
        batch.compare_swap(3, at, 0, 1).signaled().into(into)?;
        batch.submit()?;
        end.send_completion().map(drop)
    },
];

/// The kernel's handle of the active id: the listener's is 0.
const ACTIVE: u32 = 1;

/// What a call says of a queue pair that has ended, where `event` comes a moment later, if any does.
/// Then what the next call says.
fn told_of_end(call: Waiting, timeout: Duration, event: Option<EventType>) -> [Error; 2] {
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    let memory = active.alloc(8).unwrap();
    let there = passive.alloc(8).unwrap().remote();
    active.set_timeout(Some(timeout));
    let segment = memory.slice(..).unwrap();
    active.post_recv(1, segment).unwrap();
    twin.fail_qp_of(ACTIVE);
    let telling = event.map(|event| {
        let twin = Arc::clone(&twin);
        on_twin(twin.registry(), move || {
            std::thread::sleep(SHORT);
            twin.inject(ACTIVE, event, |_| ());
        })
    });
    let ended = call(&mut active, segment, there).unwrap_err();
    if let Some(telling) = telling {
        telling.join().unwrap();
    }
    let afterwards = active.send(b"later").unwrap_err();
    drop((active, passive));
    [ended, afterwards]
}

#[test]
fn a_flush_is_told_as_what_the_event_says() {
    for (event, kind) in [
        (EventType::DISCONNECTED, ErrorKind::Disconnected),
        (EventType::DEVICE_REMOVAL, ErrorKind::DeviceRemoved),
    ] {
        for call in CALLS {
            for error in told_of_end(call, PATIENCE, Some(event)) {
                assert_eq!(error.kind(), kind, "{error}");
            }
        }
    }
}

/// Neither a call that has no time left nor one that hears nothing takes the flush for the reason.
#[test]
fn a_flush_without_an_event_is_the_end_of_the_connection() {
    for call in CALLS {
        for timeout in [SHORT, PATIENCE] {
            for error in told_of_end(call, timeout, None) {
                assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
                assert!(
                    error.to_string().contains("the connection ended"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn a_doorbell_that_is_refused_at_the_end_tells_the_end() {
    let twin = Twin::new();
    let (mut active, passive) = connected(&twin);
    twin.fail(0, libc::ENOTCONN, |call| matches!(call, Call::Doorbell(_)));
    for _ in 0..2 {
        let error = active.send(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    }
    drop((active, passive));
    twin.assert_clean();
}
