//! Promises of the public interface that the compiler can hold.

use rdmacm::{
    AsyncEvents, Buffer, CmId, Completion, CompletionChannel, Connection, Connector, Context, Cq,
    Device, Error, Event, EventChannel, Incoming, Listener, Mr, Pd, PostError, Prepared, Qp,
    RecvHalf, Segment, SendHalf, Settings,
};

/// Handles can be given to other threads and shared with them.
#[test]
fn everything_is_send_and_sync() {
    fn check<T: Send + Sync + 'static>() -> usize {
        size_of::<T>()
    }
    let sizes = [
        check::<AsyncEvents>(),
        check::<Buffer>(),
        check::<CmId>(),
        check::<Completion>(),
        check::<CompletionChannel>(),
        check::<Connection>(),
        check::<Connector>(),
        check::<Context>(),
        check::<Cq>(),
        check::<Device>(),
        check::<Error>(),
        check::<Event>(),
        check::<EventChannel>(),
        check::<Incoming>(),
        check::<Listener>(),
        check::<Mr>(),
        check::<Pd>(),
        check::<PostError>(),
        check::<Prepared>(),
        check::<Qp>(),
        check::<RecvHalf>(),
        check::<Segment>(),
        check::<SendHalf>(),
        check::<Settings>(),
    ];
    assert!(sizes.iter().all(|size| *size > 0));
}

/// An error is cheap to pass on, and one of posting can be copied.
#[test]
fn errors_are_small() {
    fn is_copy<T: Copy>() {}
    is_copy::<PostError>();
    assert!(size_of::<PostError>() <= 24, "{}", size_of::<PostError>());
    assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
}
