//! Completions: none is missed, none comes twice, and all come back at the end.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use rdmacm::{Buffer, Completion, CompletionStatus, Cq, ErrorKind, Opcode, Result};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, PATIENCE, Pair, Plan, QUIET, expect};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        arming_loses_no_wake_up: 120 s,
        an_event_is_due_only_after_arming,
        events_name_their_queue,
        solicited_events_only,
        an_event_that_the_program_reads_is_no_loss,
        an_unread_event_holds_no_queue,
        no_completion_comes_twice,
        everything_comes_back_at_a_disconnect,
    ]
}

/// One channel for both queues of an end, as an event loop would have it.
fn one_channel() -> Plan {
    Plan {
        one_channel: true,
        ..Plan::default()
    }
}

/// F34: two ends echo each other's messages and sleep whenever there is nothing to do. A wake-up
/// that gets lost leaves both asleep.
fn arming_loses_no_wake_up() -> TestResult {
    const ROUNDS: u64 = 500;
    let Pair { client, server } = one_channel().connect()?;
    let (mut client, mut server) = (Sleeper::new(client)?, Sleeper::new(server)?);
    server.post_recv()?;
    thread::scope(|scope| {
        let echoing = scope.spawn(|| {
            for round in 0..ROUNDS {
                server.sleep_until(round, round + 1)?;
                server.post_recv()?;
                server.send()?;
            }
            server.sleep_until(ROUNDS, ROUNDS)
        });
        for round in 1..=ROUNDS {
            client.post_recv()?;
            client.send()?;
            client.sleep_until(round, round)?;
        }
        echoing.join().expect("the server does not panic")
    })?;
    Ok(Outcome::Pass)
}

/// An end that waits for completions on one channel.
struct Sleeper {
    end: End,
    inbox: Buffer,
    sent: u64,
    received: u64,
}

impl Sleeper {
    /// A wake-up that takes longer is taken for lost.
    const LOST: Duration = Duration::from_secs(5);

    fn new(end: End) -> Result<Self> {
        let inbox = end.buffer(8)?;
        Ok(Self {
            end,
            inbox,
            sent: 0,
            received: 0,
        })
    }

    fn post_recv(&mut self) -> Result<()> {
        self.end.post_recv(1, &self.inbox)
    }

    fn send(&mut self) -> Result<()> {
        Ok(self.end.post(|batch| batch.send(1).signaled().from(&[]))?)
    }

    /// Arms, polls once more, and only then sleeps.
    fn sleep_until(&mut self, sent: u64, received: u64) -> Result<()> {
        loop {
            self.take()?;
            if self.sent >= sent && self.received >= received {
                return Ok(());
            }
            self.end.send_cq.arm(false)?;
            self.end.recv_cq.arm(false)?;
            let before = (self.sent, self.received);
            self.take()?;
            if before == (self.sent, self.received) {
                let channel = self.end.send_cq.channel().expect("made with a channel");
                channel.next_event(Some(Self::LOST))?;
            }
        }
    }

    fn take(&mut self) -> Result<()> {
        self.sent += count(&mut self.end.send_cq)?;
        self.received += count(&mut self.end.recv_cq)?;
        Ok(())
    }
}

/// Takes out what there is; all of it must have succeeded.
fn count(cq: &mut Cq) -> Result<u64> {
    let mut entries = [Completion::default(); 4];
    let taken = cq.poll(&mut entries);
    for completion in taken {
        completion.result()?;
    }
    Ok(taken.len() as u64)
}

/// Sends a message without bytes and waits until it has arrived.
fn send_through(client: &mut End, is_solicited: bool) -> Result<()> {
    client.post(|batch| {
        let request = batch.send(1).signaled();
        let request = match is_solicited {
            true => request.solicited(),
            false => request,
        };
        request.from(&[])
    })?;
    client.sent()?.result()?;
    Ok(())
}

fn assert_no_event(end: &End) {
    let channel = end.recv_cq.channel().expect("made with a channel");
    let waited = channel.next_event(Some(QUIET));
    assert_eq!(
        waited.map_err(|error| error.kind()),
        Err(ErrorKind::TimedOut)
    );
}

/// What arrived between the last poll and the arming gives no event: it takes one more poll.
fn an_event_is_due_only_after_arming() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let inbox = server.buffer(1)?;
    server.post_recv(1, &inbox)?;
    server.post_recv(2, &inbox)?;
    assert_eq!(count(&mut server.recv_cq)?, 0);
    send_through(&mut client, false)?;
    server.recv_cq.arm(false)?;
    assert_no_event(&server);
    assert_eq!(
        count(&mut server.recv_cq)?,
        1,
        "the poll after arming finds it"
    );

    send_through(&mut client, false)?;
    let channel = server.recv_cq.channel().expect("made with a channel");
    assert_eq!(channel.next_event(Some(PATIENCE))?, server.recv_cq.token());
    assert_no_event(&server);
    Ok(Outcome::Pass)
}

fn events_name_their_queue() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = one_channel().connect()?;
    let inbox = client.buffer(1)?;
    client.post_recv(1, &inbox)?;
    let (of_sends, of_receives) = (client.send_cq.token(), client.recv_cq.token());
    assert_ne!(of_sends, of_receives);
    client.send_cq.arm(false)?;
    client.recv_cq.arm(false)?;
    let channel = client
        .recv_cq
        .channel()
        .expect("made with a channel")
        .clone();

    server.post(|batch| batch.send(1).signaled().from(&[]))?;
    assert_eq!(channel.next_event(Some(PATIENCE))?, of_receives);
    let remote = server.buffer(1)?.remote();
    client.post(|batch| batch.write(1, remote).signaled().from(&[]))?;
    assert_eq!(channel.next_event(Some(PATIENCE))?, of_sends);
    assert_no_event(&client);

    // It would take the event of the other.
    let mut entries = [Completion::default()];
    let refused = client.recv_cq.wait(&mut entries, Some(QUIET));
    let refused = refused.expect_err("the channel has two queues");
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    Ok(Outcome::Pass)
}

/// F50: a queue that waits for solicited messages stays asleep at others.
fn solicited_events_only() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let inbox = server.buffer(1)?;
    server.post_recv(1, &inbox)?;
    server.post_recv(2, &inbox)?;
    server.recv_cq.arm(true)?;
    send_through(&mut client, false)?;
    assert_no_event(&server);
    send_through(&mut client, true)?;
    let channel = server.recv_cq.channel().expect("made with a channel");
    assert_eq!(channel.next_event(Some(PATIENCE))?, server.recv_cq.token());
    assert_eq!(count(&mut server.recv_cq)?, 2);
    Ok(Outcome::Pass)
}

/// A wait that ran out of time leaves the queue armed, and the program may read the event itself.
fn an_event_that_the_program_reads_is_no_loss() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let inbox = server.buffer(1)?;
    let mut entries = [Completion::default(); 2];
    for _ in 0..3 {
        server.post_recv(1, &inbox)?;
        server.post_recv(2, &inbox)?;
        let early = server.recv_cq.wait(&mut entries, Some(QUIET));
        assert_eq!(early.unwrap_err().kind(), ErrorKind::TimedOut);
        send_through(&mut client, false)?;
        let channel = server.recv_cq.channel().expect("made with a channel");
        assert_eq!(channel.next_event(Some(PATIENCE))?, server.recv_cq.token());
        assert_eq!(count(&mut server.recv_cq)?, 1);
        // Were the queue not armed again, this would sleep until the time is over.
        let waited = thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut entry = [Completion::default()];
                let taken = server.recv_cq.wait(&mut entry, Some(PATIENCE))?;
                Ok::<_, rdmacm::Error>(taken.len())
            });
            thread::sleep(QUIET);
            send_through(&mut client, false)?;
            waiting.join().expect("it does not panic")
        })?;
        assert_eq!(waited, 1);
    }
    Ok(Outcome::Pass)
}

/// F35: destroying a queue does not wait for somebody to read its event.
fn an_unread_event_holds_no_queue() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let inbox = server.buffer(1)?;
    server.post_recv(1, &inbox)?;
    server.recv_cq.arm(false)?;
    send_through(&mut client, false)?;
    let End {
        id, qp, recv_cq, ..
    } = server;
    let channel = recv_cq.channel().expect("made with a channel").clone();
    let token = recv_cq.token();
    id.destroy_qp()?;
    drop(qp);
    recv_cq.destroy()?;
    // The kernel takes the event back, or it still names the queue that is gone.
    let unread = channel.try_next_event()?;
    assert!(unread.is_none_or(|event| event == token), "{unread:?}");
    Ok(Outcome::Pass)
}

/// F48, F140: whatever the number of requests and the room to poll into, also none, each
/// completion is taken once.
fn no_completion_comes_twice() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let remote = server.buffer(1)?.remote();
    let mut next = 0;
    let mut expected = 0;
    for round in 0..300 {
        let more = [0, 1, 5][round % 3];
        client.post(|batch| {
            for wr_id in next..next + more {
                batch.write(wr_id, remote).signaled().from(&[])?;
            }
            Ok(())
        })?;
        next += more;
        while expected < next {
            let mut entries = [Completion::default(); 5];
            let room = [0, 1, 3, 5][round % 4];
            let taken = client.send_cq.poll(&mut entries[..room]);
            for completion in taken {
                assert_eq!(completion.wr_id(), expected);
                assert_eq!(completion.result()?.opcode(), Opcode::Write);
                expected += 1;
            }
            if taken.is_empty() {
                assert_eq!(client.sent()?.wr_id(), expected);
                expected += 1;
            }
        }
        assert_eq!(count(&mut client.send_cq)?, 0, "round {round}");
    }
    Ok(Outcome::Pass)
}

/// F119, F90: at a disconnect every request comes back once, whether it was posted before or is
/// posted after, and says that it was flushed.
fn everything_comes_back_at_a_disconnect() -> TestResult {
    let plan = Plan {
        send_depth: 9,
        ..Plan::default()
    };
    let Pair { mut client, server } = plan.connect()?;
    let inbox = client.buffer(8)?;
    for wr_id in 100..116 {
        client.post_recv(wr_id, &inbox)?;
    }
    // Without its queue pair the server answers nothing: all stays outstanding.
    server.id.destroy_qp()?;
    client.post(|batch| (0..8).try_for_each(|wr_id| batch.send(wr_id).signaled().from(&[])))?;
    client.id.disconnect()?;
    client.post(|batch| batch.send(8).signaled().from(&[]))?;
    assert_flushed(&mut client.send_cq, client.qp.number(), 0..9)?;
    assert_flushed(&mut client.recv_cq, client.qp.number(), 100..116)?;
    expect(&server.channel, "DISCONNECTED")?;
    Ok(Outcome::Pass)
}

/// Checks that each of the requests comes back once and flushed, and nothing else does.
fn assert_flushed(cq: &mut Cq, qp_num: u32, wr_ids: std::ops::Range<u64>) -> Result<()> {
    let mut times = BTreeMap::new();
    let mut entries = [Completion::default(); 4];
    for _ in wr_ids.clone() {
        let taken = cq.wait(&mut entries[..1], Some(PATIENCE))?;
        let failure = taken[0].result().expect_err("nothing was carried out");
        assert_eq!(
            (failure.status, failure.qp_num),
            (CompletionStatus::Flushed, qp_num)
        );
        *times.entry(failure.wr_id).or_insert(0) += 1;
    }
    assert_eq!(times, wr_ids.map(|wr_id| (wr_id, 1)).collect());
    let more = cq.wait(&mut entries, Some(QUIET));
    assert!(more.is_err(), "{more:?}");
    Ok(())
}
