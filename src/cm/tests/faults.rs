//! Every call of a connection's life refused: once, or from some call on for good.

use std::sync::Arc;

use super::{datagrams, lookups, options, own_qp, pair, xrc};
use crate::device::Registry;
use crate::error::Result;
use crate::sys::twin::{Call, Twin};

/// One call in so many is refused: each, except under Miri, which is slow.
const STRIDE: usize = if cfg!(miri) { 40 } else { 1 };

const ERRNOS: &[i32] = if cfg!(miri) {
    &[libc::ENOMEM]
} else {
    &[
        libc::ENOMEM,
        libc::EINVAL,
        libc::EINTR,
        libc::EIO,
        libc::EACCES,
    ]
};

/// A life of which each call is refused.
struct Life {
    /// The kernel that it is lived on.
    twin: fn() -> Arc<Twin>,
    live: fn(&Arc<Twin>, &'static Registry) -> Result<()>,
    /// It has at least as many calls.
    calls: usize,
}

const LIVES: [Life; 6] = [
    Life {
        twin: Twin::new,
        live: pair::live,
        calls: 80,
    },
    Life {
        twin: Twin::new,
        live: own_qp::live,
        calls: 60,
    },
    Life {
        twin: Twin::new,
        live: datagrams::live,
        calls: 60,
    },
    Life {
        twin: Twin::new,
        live: options::live,
        calls: 30,
    },
    Life {
        twin: lookups::small_subnet,
        live: |_, registry| lookups::live_on_a_subnet(registry),
        calls: 15,
    },
    Life {
        twin: xrc::twin_with_xrc,
        live: xrc::live,
        calls: 60,
    },
];

/// What a refused call leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The caller gets an error that names the errno.
    Surfaces,
    /// The caller gets an error that says it better than the errno does.
    Explained,
    /// The call is made again, and the caller notices nothing.
    Repeated,
    /// The caller notices nothing, and the call is not made again.
    Passed,
}

/// What is right for each call. Whatever is not named here has to surface.
fn right_outcome(call: &Call, errno: i32) -> Outcome {
    use rdmacm_kernel_abi::ucma::Command::GetEvent;
    match (call, errno) {
        // Waiting goes on after a signal, and so does what ends it.
        (Call::Poll | Call::Read | Call::Cm(GetEvent, _), libc::EINTR) => Outcome::Repeated,
        // The requests are in the queue already: the doorbell must not be lost.
        (Call::Doorbell(_), libc::EINTR) => Outcome::Repeated,
        // Netlink's word for a device that is gone.
        (Call::Netlink, libc::EINVAL) => Outcome::Explained,
        // No netlink for this process: sysfs tells the same.
        (Call::Netlink, libc::EACCES) => Outcome::Passed,
        // By a drop, which has nobody to tell.
        (call, _) if call.is_destroy() => Outcome::Repeated,
        _ => Outcome::Surfaces,
    }
}

#[test]
fn a_connections_life_leaves_nothing_behind() {
    let twin = Twin::new();
    pair::live(&twin, twin.registry()).unwrap();
    twin.assert_clean();
}

#[test]
fn each_call_refused_once() {
    let each = |life| ERRNOS.iter().map(move |errno| (life, *errno));
    for (life, errno) in LIVES.iter().flat_map(each) {
        let calls = (0..)
            .step_by(STRIDE)
            .take_while(|skip| refuse_one(life, *skip, errno))
            .count();
        assert!(calls > life.calls / STRIDE, "{calls} calls were refused");
    }
}

/// Refuses one call of a connection's life. False when the life has fewer calls.
fn refuse_one(life: &Life, skip: usize, errno: i32) -> bool {
    let twin = (life.twin)();
    twin.fail(skip, errno, |_| true);
    let outcome = (life.live)(&twin, twin.registry());
    let [call] = &*twin.refused() else {
        return false;
    };
    let made_again = twin
        .calls()
        .iter()
        .skip(skip)
        .filter(|later| *later == call)
        .count()
        > 1;
    let told = outcome
        .as_ref()
        .err()
        .map(|error| (error.errno(), error.to_string().len() > 20));
    match right_outcome(call, errno) {
        Outcome::Surfaces => assert_eq!(told, Some((Some(errno), true)), "{call:?}: {outcome:?}"),
        Outcome::Explained => assert_eq!(told, Some((None, true)), "{call:?}: {outcome:?}"),
        Outcome::Repeated => assert!(outcome.is_ok() && made_again, "{call:?}: {outcome:?}"),
        Outcome::Passed => assert!(outcome.is_ok(), "{call:?}: {outcome:?}"),
    }
    twin.assert_clean();
    true
}

#[test]
fn everything_refused_from_some_call_on() {
    let each = |life| ERRNOS.iter().map(move |errno| (life, *errno));
    for (life, errno) in LIVES.iter().flat_map(each) {
        let calls = (0..)
            .step_by(STRIDE)
            .take_while(|skip| refuse_from(life, *skip, errno))
            .count();
        assert!(calls > life.calls / STRIDE, "{calls} calls were the first");
    }
}

/// Refuses all calls from one on. What cannot be destroyed has to go with its file.
fn refuse_from(life: &Life, skip: usize, errno: i32) -> bool {
    let twin = (life.twin)();
    let mut to_come = skip;
    twin.fail_from(0, errno, move |call| {
        let is_late = to_come == 0;
        to_come = to_come.saturating_sub(1);
        // Signals without end keep a wait for ever, and rightly so.
        is_late && !is_repeated_for_ever(call, errno)
    });
    let outcome = (life.live)(&twin, twin.registry());
    let refused = twin.refused();
    let Some(first) = refused.first() else {
        return false;
    };
    if right_outcome(first, errno) == Outcome::Surfaces {
        assert!(outcome.is_err(), "{first:?}");
    }
    drop(outcome);
    twin.assert_nothing_left();
    true
}

fn is_repeated_for_ever(call: &Call, errno: i32) -> bool {
    right_outcome(call, errno) == Outcome::Repeated && !call.is_destroy()
}
