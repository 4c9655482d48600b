//! A forked child has copies of everything, and all of it is the parent's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::pair::{self, Pair, connect, exchange};
use crate::cm::PortSpace;
use crate::error::ErrorKind;
use crate::fastpath::{Completion, PostError};
use crate::sys::twin::{Call, Twin};
use crate::verbs::Access;

/// Runs `checks` in a forked child. False when one of them fails there.
#[expect(unsafe_code, reason = "fork")]
fn hold_in_child(checks: impl FnOnce()) -> bool {
    // SAFETY: the child has this thread only, so that locks of other threads may stay locked for
    // ever. It takes none of theirs: those of this test's twin are free, the heap's are in order
    // after a fork, and it ends without running anything of the process's.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let outcome = catch_unwind(AssertUnwindSafe(checks));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(outcome.is_err())) }
        }
        ForkResult::Parent { child } => {
            matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0)))
        }
    }
}

#[test]
fn a_child_that_drops_everything_destroys_nothing() {
    let twin = Twin::new();
    let mut pair = connect(&twin, twin.registry()).unwrap();
    twin.forget_calls();
    let mut copy = Some(pair);
    let held = hold_in_child(|| {
        let before = twin.census();
        drop(copy.take());
        let after = twin.census();
        assert_eq!((after.ids, after.qps, after.mrs, after.cqs), (3, 2, 2, 2));
        assert_eq!(before.qps, after.qps);
        assert!(!twin.calls().iter().any(Call::is_verbs_destroy));
    });
    assert!(held, "see the child's output above");
    pair = copy.take().unwrap();
    exchange(&mut pair).unwrap();
    pair::part(pair).unwrap();
    twin.assert_clean();
}

#[test]
fn a_child_is_refused_in_every_way() {
    let twin = Twin::new();
    let mut pair = connect(&twin, twin.registry()).unwrap();
    twin.forget_calls();
    let held = hold_in_child(|| {
        let Pair {
            active,
            passive,
            listening,
        } = &mut pair;
        let segment = active.buffer.slice(..4).unwrap();
        assert_eq!(active.recv.post(5, &[segment]), Err(PostError::Inherited));
        let posted = active.send_inline(b"child").unwrap_err();
        assert_eq!(posted.kind(), ErrorKind::PermissionDenied);
        assert!(passive.cq.poll(&mut [Completion::default(); 4]).is_empty());
        let refused = [
            listening.channel.create_id(PortSpace::Tcp).map(drop),
            listening.channel.try_next_event().map(drop),
            active.id.disconnect(),
            active.id.destroy(),
            active.pd.alloc(64, Access::empty()).map(drop),
            active.cq.arm(false),
            active.completions.try_next_event().map(drop),
            active.id.destroy_qp().map(drop),
        ];
        for outcome in refused {
            assert_eq!(outcome.unwrap_err().errno(), Some(libc::EACCES));
        }
        assert_eq!(twin.census().qps, 2);
    });
    assert!(held, "see the child's output above");
    exchange(&mut pair).unwrap();
    pair::part(pair).unwrap();
    twin.assert_clean();
}

/// The places in a completion queue are the parent's to give back, also those that it took before.
#[test]
fn a_child_gives_no_places_back() {
    let twin = Twin::new();
    let mut pair = connect(&twin, twin.registry()).unwrap();
    pair.active.send_inline(b"data").unwrap();
    let waiting = twin.completions();
    let mut taken = Some(pair.active.cq.completions());
    assert!(taken.as_mut().unwrap().next().is_some());
    let held = hold_in_child(|| {
        drop(taken.take());
        assert_eq!(twin.completions(), waiting);
    });
    assert!(held, "see the child's output above");
    std::mem::forget(taken);
    let held = hold_in_child(|| {
        let error = pair.active.cq.resize(64).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EACCES), "{error}");
        assert_eq!(twin.completions(), waiting);
    });
    assert!(held, "see the child's output above");
    pair.active.cq.resize(64).unwrap();
    assert_eq!(twin.completions(), waiting - 1);
    pair::part(pair).unwrap();
    twin.assert_clean();
}

/// rxe has none of them, so that no test on a real kernel does this.
#[test]
fn a_child_that_closes_an_xrc_domain_is_refused() {
    let twin = Twin::new();
    twin.change_device(0, |device| device.has_xrc = true);
    let context = twin.registry().context_of_index(0).unwrap();
    let mut xrcd = Some(context.open_xrcd().unwrap());
    let held = hold_in_child(|| {
        let error = xrcd.take().unwrap().close().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert_eq!(context.open_xrcd().unwrap_err().kind(), error.kind());
        assert_eq!(twin.census().xrcds, 1);
    });
    assert!(held, "see the child's output above");
    xrcd.take().unwrap().close().unwrap();
    drop(context);
    twin.assert_clean();
}
