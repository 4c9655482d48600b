//! Queue pairs that the program itself moves from state to state, without an id.

use std::time::Instant;

use rdmacm::{
    Access, AsyncEvent, Completion, CompletionStatus, Context, Cq, ErrorKind, Pd, PostError, Qp,
    QpAttr, QpModify, QpState, Result,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{ANY_ACCESS, PATIENCE, QUIET, assert_holds, next_completion, pattern};
use crate::verbs::own_path;

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_queue_pair_connected_to_itself,
        a_queue_pair_is_used_again_after_a_reset,
        refusals_name_the_attribute,
        a_queue_pair_that_is_drained_begins_no_requests,
        posting_depends_on_the_state,
        changing_after_destroy_is_refused,
    ]
}

/// A queue pair without an id, whose peer is itself.
struct Loop {
    qp: Qp,
    cq: Cq,
    pd: Pd,
}

impl Loop {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let channel = context.completion_channel()?;
        let cq = context.completion_queue(32).channel(&channel).build()?;
        let qp = pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        Ok(Self { qp, cq, pd })
    }

    /// The queue pair in one of the states on [`Loop::WAY`].
    fn in_state(context: &Context, state: QpState) -> Result<Self> {
        let looped = Self::new(context)?;
        looped.move_to(state)?;
        Ok(looped)
    }

    /// The states in the order in which they follow each other.
    const WAY: [QpState; 6] = [
        QpState::Reset,
        QpState::Init,
        QpState::Rtr,
        QpState::Rts,
        QpState::Sqd,
        QpState::Error,
    ];

    /// Goes on to a later state.
    fn move_to(&self, target: QpState) -> Result<()> {
        let now = self.qp.query_state()?;
        let rest = Self::WAY.iter().skip_while(|state| **state != now).skip(1);
        for state in rest.take_while(|_| self.qp.query_state() != Ok(target)) {
            self.qp.modify(&match state {
                QpState::Init => self.to_init(),
                QpState::Rtr => self.to_rtr()?,
                QpState::Rts => to_rts(),
                other => QpModify::to(*other),
            })?;
        }
        assert_eq!(self.qp.query_state()?, target);
        Ok(())
    }

    fn to_init(&self) -> QpModify {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        QpModify::to(QpState::Init)
            .port(1)
            .pkey_index(0)
            .access(access)
    }

    fn to_rtr(&self) -> Result<QpModify> {
        Ok(self
            .to_rtr_without_path()?
            .path(own_path(self.pd.context())?))
    }

    fn to_rtr_without_path(&self) -> Result<QpModify> {
        let mtu = self.pd.context().port(1)?.active_mtu;
        Ok(QpModify::to(QpState::Rtr)
            .path_mtu(mtu)
            .remote_qp_num(self.qp.number())
            .receive_psn(100)
            .responder_resources(1)
            .min_rnr_timer(12))
    }

    fn send_to_itself(&mut self, seed: u64) -> Result<()> {
        let message = pattern(seed, 5000);
        let mut outbox = self.pd.alloc(5000, Access::LOCAL_WRITE)?;
        outbox.write(0, &message)?;
        let inbox = self.pd.alloc(5000, Access::LOCAL_WRITE)?;
        self.qp.recv_half().post(1, &[inbox.slice(..)?])?;
        let mut batch = self.qp.send_half().batch();
        batch.send(2).signaled().from(&[outbox.slice(..)?])?;
        batch.submit()?;
        let mut wr_ids = [self.next_success()?, self.next_success()?];
        wr_ids.sort_unstable();
        assert_eq!(wr_ids, [1, 2]);
        assert_holds(&inbox, 0, &message);
        Ok(())
    }

    fn next_success(&mut self) -> Result<u64> {
        let completion = next_completion(&mut self.cq)?;
        completion.result()?;
        Ok(completion.wr_id())
    }
}

fn to_rts() -> QpModify {
    to_rts_without_retries().retry_count(6)
}

fn to_rts_without_retries() -> QpModify {
    QpModify::to(QpState::Rts)
        .send_psn(100)
        .timeout(14)
        .rnr_retry_count(6)
        .initiator_depth(1)
}

fn a_queue_pair_connected_to_itself() -> TestResult {
    Loop::in_state(&environment::context(), QpState::Rts)?.send_to_itself(1)?;
    Ok(Outcome::Pass)
}

fn a_queue_pair_is_used_again_after_a_reset() -> TestResult {
    let mut looped = Loop::in_state(&environment::context(), QpState::Rts)?;
    for seed in 0..3 {
        looped.send_to_itself(seed)?;
        looped.qp.modify(&QpModify::to(QpState::Error))?;
        looped.qp.modify(&QpModify::to(QpState::Reset))?;
        looped.move_to(QpState::Rts)?;
    }
    looped.send_to_itself(9)?;
    Ok(Outcome::Pass)
}

/// A change that the kernel refuses, and what the refusal must say.
struct Refusal {
    from: QpState,
    change: fn(&Loop) -> Result<QpModify>,
    words: &'static [&'static str],
}

const REFUSALS: [Refusal; 13] = [
    Refusal {
        from: QpState::Reset,
        change: |_| Ok(QpModify::to(QpState::Error)),
        words: &["Reset to Error", "no transition"],
    },
    Refusal {
        from: QpState::Reset,
        change: |_| Ok(QpModify::to(QpState::Init).port(1).pkey_index(0)),
        words: &["Reset to Init", "needs", "ACCESS_FLAGS"],
    },
    Refusal {
        from: QpState::Reset,
        change: |looped| Ok(looped.to_init().timeout(3)),
        words: &["Reset to Init", "does not allow", "TIMEOUT"],
    },
    Refusal {
        from: QpState::Reset,
        change: |looped| Ok(looped.to_init().port(9)),
        words: &["Reset to Init", "out of the device's range"],
    },
    Refusal {
        from: QpState::Reset,
        change: |_| Ok(to_rts()),
        words: &["Reset to Rts", "no transition"],
    },
    Refusal {
        from: QpState::Init,
        change: Loop::to_rtr_without_path,
        words: &["Init to Rtr", "needs", "AV"],
    },
    Refusal {
        from: QpState::Init,
        change: |looped| Ok(looped.to_rtr()?.retry_count(1)),
        words: &["Init to Rtr", "does not allow", "RETRY_CNT"],
    },
    Refusal {
        from: QpState::Rtr,
        change: |_| Ok(to_rts_without_retries()),
        words: &["Rtr to Rts", "needs", "RETRY_CNT"],
    },
    Refusal {
        from: QpState::Rts,
        change: |looped| Ok(looped.to_init()),
        words: &["Rts to Init", "no transition"],
    },
    Refusal {
        from: QpState::Rts,
        change: |_| Ok(QpModify::to(QpState::Sqd).timeout(3)),
        words: &["Rts to Sqd", "does not allow", "TIMEOUT"],
    },
    Refusal {
        from: QpState::Sqd,
        change: |_| Ok(QpModify::to(QpState::Sqd).qkey(3)),
        words: &["Sqd to Sqd", "does not allow", "QKEY"],
    },
    Refusal {
        from: QpState::Sqd,
        change: |looped| Ok(looped.to_init()),
        words: &["Sqd to Init", "no transition"],
    },
    Refusal {
        from: QpState::Error,
        change: |looped| looped.to_rtr(),
        words: &["Error to Rtr", "no transition"],
    },
];

fn refusals_name_the_attribute() -> TestResult {
    let context = environment::context();
    for Refusal {
        from,
        change,
        words,
    } in REFUSALS
    {
        let looped = Loop::in_state(&context, from)?;
        let refused = looped.qp.modify(&change(&looped)?);
        let error = refused.expect_err(words[0]);
        assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
        for word in words {
            assert!(
                error.to_string().contains(word),
                "{error}, without {word:?}"
            );
        }
        assert_eq!(looped.qp.query_state()?, from, "as before");
    }
    Ok(Outcome::Pass)
}

/// It says when it is drained, takes requests and keeps them until it may send again.
fn a_queue_pair_that_is_drained_begins_no_requests() -> TestResult {
    let context = environment::context();
    let events = context.async_events()?;
    let mut looped = Loop::in_state(&context, QpState::Rts)?;
    looped.send_to_itself(1)?;
    looped.qp.modify(&QpModify::to(QpState::Sqd))?;
    let drained = AsyncEvent::SendQueueDrained(looped.qp.token());
    assert_eq!(events.next_event(Some(PATIENCE))?, drained);
    assert_eq!(looped.qp.query_state()?, QpState::Sqd);
    let target = looped.pd.alloc(8, ANY_ACCESS)?;
    let write = |qp: &mut Qp, wr_id| {
        let mut batch = qp.send_half().batch();
        batch.write(wr_id, target.remote()).signaled().from(&[])?;
        batch.submit()
    };
    write(&mut looped.qp, 1)?;
    let mut entry = [Completion::default()];
    let waited = looped.cq.wait(&mut entry, Some(QUIET));
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
    // What is known of the peer may change meanwhile.
    let patience = QpModify::to(QpState::Sqd).retry_count(3);
    looped.qp.modify(&patience.timeout(15))?;
    let info = looped.qp.query()?;
    assert_eq!((info.retry_count, info.timeout), (3, 15));
    // Some kernels drain once more at each change.
    let begin = Instant::now();
    while let Err(error) = looped.qp.modify(&QpModify::to(QpState::Rts)) {
        assert!(error.to_string().contains("not drained yet"), "{error}");
        assert!(begin.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(QUIET);
    }
    // rxe looks for requests when it is told of one.
    write(&mut looped.qp, 2)?;
    assert_eq!([looped.next_success()?, looped.next_success()?], [1, 2]);
    looped.send_to_itself(2)?;
    Ok(Outcome::Pass)
}

/// F84: receives are taken in every state, sends from RTS on; in the error state a send comes
/// back flushed.
fn posting_depends_on_the_state() -> TestResult {
    let context = environment::context();
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        let mut looped = Loop::in_state(&context, state)?;
        let inbox = looped.pd.alloc(8, Access::LOCAL_WRITE)?;
        looped.qp.recv_half().post(1, &[inbox.slice(..)?])?;
        let mut batch = looped.qp.send_half().batch();
        batch.send(2).signaled().from(&[])?;
        assert_eq!(batch.submit(), Err(PostError::NotConnected), "{state:?}");

        // The refused request must not be carried out by the next doorbell.
        looped.move_to(QpState::Rts)?;
        let mut batch = looped.qp.send_half().batch();
        batch.send(3).signaled().from(&[])?;
        batch.submit()?;
        let mut wr_ids = [looped.next_success()?, looped.next_success()?];
        wr_ids.sort_unstable();
        assert_eq!(wr_ids, [1, 3], "{state:?}");
    }
    let mut looped = Loop::in_state(&context, QpState::Error)?;
    let mut batch = looped.qp.send_half().batch();
    batch.send(2).signaled().from(&[])?;
    batch.submit()?;
    let flushed = next_completion(&mut looped.cq)?;
    let failure = flushed.result().expect_err("it is flushed");
    assert_eq!(
        (failure.wr_id, failure.status),
        (2, CompletionStatus::Flushed)
    );
    Ok(Outcome::Pass)
}

fn changing_after_destroy_is_refused() -> TestResult {
    let looped = Loop::in_state(&environment::context(), QpState::Init)?;
    assert!(looped.qp.destroy()?);
    assert!(!looped.qp.destroy()?, "it is destroyed once");
    let refused = looped.qp.modify(&looped.to_init());
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(ErrorKind::Destroyed)
    );
    let refused = looped.qp.query_state();
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(ErrorKind::Destroyed)
    );
    Ok(Outcome::Pass)
}
