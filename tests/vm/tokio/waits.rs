//! Event channels and completion queues that tasks wait for.

use std::error::Error;
use std::time::Duration;

use ::tokio::time::{sleep, timeout};
use ::tokio::{select, spawn};
use rdmacm::tokio::{CompletionChannel, Cq, EventChannel};
use rdmacm::{Completion, ErrorKind, Event, PortSpace, QpAttr};

use super::runtime;
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{Pair, Plan, any_port};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        every_step_of_a_connection,
        a_dropped_wait_takes_no_event_along,
        closing_a_channel_ends_the_wait,
        completions_end_the_wait_and_are_not_lost,
        a_channel_names_its_queues,
        a_queue_without_a_channel_is_refused,
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);

/// A connection by the steps of the connection manager, both sides in tasks; then completions.
fn every_step_of_a_connection() -> TestResult {
    runtime()?.block_on(async {
        let mut passive = EventChannel::open()?;
        let listener = passive.get_ref().create_id(PortSpace::Tcp)?;
        listener.bind_addr(any_port())?;
        listener.listen(0)?;
        let address = listener.local_addr().expect("it is bound");
        let server = spawn(async move {
            let event = passive.next_event().await?;
            let Event::ConnectRequest(request) = event else {
                return Err(format!("{event:?}").into());
            };
            let id = request.into_id();
            let mut ends = End::of(&id)?;
            let inbox = ends.pd.alloc(64, rdmacm::Access::LOCAL_WRITE)?;
            ends.recv.post(5, &[inbox.slice(..)?])?;
            id.accept(&rdmacm::ConnParam::new())?;
            passive
                .expect("accept", |event| matches!(event, Event::Established(_)))
                .await?;
            let mut entries = [Completion::default(); 4];
            let received = ends.cq.wait(&mut entries).await?;
            assert_eq!(received.len(), 1);
            let success = received[0].result().expect("it was received");
            assert_eq!((received[0].wr_id(), success.byte_len()), (5, 3));
            passive
                .expect("end", |event| matches!(event, Event::Disconnected(_)))
                .await?;
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
        let mut channel = EventChannel::open()?;
        let id = channel.get_ref().create_id(PortSpace::Tcp)?;
        id.resolve_addr(None, address, PATIENCE)?;
        channel
            .expect("resolve_addr", |event| {
                matches!(event, Event::AddressResolved(_))
            })
            .await?;
        id.resolve_route(PATIENCE)?;
        channel
            .expect("resolve_route", |event| {
                matches!(event, Event::RouteResolved(_))
            })
            .await?;
        let mut ends = End::of(&id)?;
        id.connect(&rdmacm::ConnParam::new())?;
        channel
            .expect("connect", |event| matches!(event, Event::Established(_)))
            .await?;
        let mut batch = ends.send.batch();
        batch.send(7).signaled().inline(b"abc")?;
        batch.submit()?;
        let mut entries = [Completion::default(); 4];
        let sent = timeout(PATIENCE, ends.cq.wait(&mut entries)).await??;
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].wr_id(), 7);
        id.disconnect()?;
        let ended = timeout(PATIENCE, server).await??;
        ended.map_err(|error| error as Box<dyn Error>)?;
        Ok(Outcome::Pass)
    })
}

struct End {
    pd: rdmacm::Pd,
    cq: Cq,
    send: rdmacm::SendHalf,
    recv: rdmacm::RecvHalf,
}

impl End {
    fn of(id: &rdmacm::CmId) -> rdmacm::Result<Self> {
        let pd = id.protection_domain()?;
        let channel = pd.context().completion_channel()?;
        let cq = pd.context().completion_queue(16).channel(&channel);
        let cq = Cq::new(cq.build()?)?;
        let queues = QpAttr::new(&pd).send_cq(cq.get_ref()).recv_cq(cq.get_ref());
        let qp = id.create_qp(&queues.max_send_wr(4).max_recv_wr(4).max_inline_data(16))?;
        let (send, recv) = qp.split();
        Ok(Self { pd, cq, send, recv })
    }
}

fn a_dropped_wait_takes_no_event_along() -> TestResult {
    runtime()?.block_on(async {
        let mut channel = EventChannel::open()?;
        for _ in 0..20 {
            let id = channel.get_ref().create_id(PortSpace::Tcp)?;
            id.resolve_addr(None, any_port(), PATIENCE)?;
            let mut dropped = 0;
            let event = loop {
                select! {
                    biased;
                    event = channel.next_event() => break event?,
                    () = ::tokio::task::yield_now() => dropped += 1,
                }
                assert!(dropped < 1_000_000, "no event");
            };
            assert!(matches!(event, Event::AddressResolved(_)), "{event:?}");
        }
        // Two channels of the same kind get each event once.
        let mut other = EventChannel::from(channel.get_ref().clone());
        let ids: Vec<_> = (0..2)
            .map(|_| channel.get_ref().create_id(PortSpace::Tcp))
            .collect::<Result<_, _>>()?;
        let waiting = spawn(async move { other.next_event().await.map(|event| (event, other)) });
        sleep(Duration::from_millis(10)).await;
        for id in &ids {
            id.resolve_addr(None, any_port(), PATIENCE)?;
        }
        let (event, _other) = timeout(PATIENCE, waiting).await???;
        assert!(matches!(event, Event::AddressResolved(_)), "{event:?}");
        let event = timeout(PATIENCE, channel.next_event()).await??;
        assert!(matches!(event, Event::AddressResolved(_)), "{event:?}");
        Ok(Outcome::Pass)
    })
}

fn closing_a_channel_ends_the_wait() -> TestResult {
    runtime()?.block_on(async {
        let mut channel = EventChannel::open()?;
        let handle = channel.get_ref().clone();
        let waiting = spawn(async move { channel.next_event().await });
        sleep(Duration::from_millis(20)).await;
        assert!(!waiting.is_finished());
        handle.close();
        let error = timeout(PATIENCE, waiting)
            .await??
            .expect_err("it was closed");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        Ok(Outcome::Pass)
    })
}

fn completions_end_the_wait_and_are_not_lost() -> TestResult {
    runtime()?.block_on(async {
        let plan = Plan {
            inline: 16,
            ..Plan::default()
        };
        let Pair { mut client, server } = plan.connect()?;
        let inbox = server.buffer(16)?;
        let (mut cq, mut qp) = (Cq::new(server.recv_cq)?, server.qp);
        let mut entries = [Completion::default(); 3];
        for number in 0..50 {
            if number % 2 == 0 {
                let waited = timeout(Duration::from_millis(1), cq.wait(&mut entries)).await;
                assert!(waited.is_err(), "{waited:?}");
            }
            qp.recv_half().post(number, &[inbox.slice(..)?])?;
            client.post(|batch| batch.send(1).signaled().inline(b"x"))?;
            let mut dropped = 0;
            let count = loop {
                select! {
                    biased;
                    taken = cq.wait(&mut entries) => break taken?.len(),
                    () = ::tokio::task::yield_now() => dropped += 1,
                }
                assert!(dropped < 1_000_000, "no completion");
            };
            assert_eq!((count, entries[0].wr_id()), (1, number));
            client.sent()?;
        }
        drop(qp);
        server.id.destroy()?;
        Ok(Outcome::Pass)
    })
}

fn a_channel_names_its_queues() -> TestResult {
    runtime()?.block_on(async {
        let plan = Plan {
            inline: 16,
            one_channel: true,
            ..Plan::default()
        };
        let Pair {
            mut client,
            mut server,
        } = plan.connect()?;
        let (inbox, other) = (server.buffer(16)?, client.buffer(16)?);
        let shared = server.recv_cq.channel().expect("made with a channel");
        let mut channel = CompletionChannel::from(shared.clone());
        for round in 0..10 {
            let is_receive = round % 2 == 0;
            let cq = match is_receive {
                true => &server.recv_cq,
                false => &server.send_cq,
            };
            cq.arm(false)?;
            let expected = cq.token();
            let waited = timeout(Duration::from_millis(1), channel.next_event()).await;
            assert!(waited.is_err(), "{waited:?}");
            if is_receive {
                server.post_recv(1, &inbox)?;
                client.post(|batch| batch.send(1).inline(b"x"))?;
            } else {
                client.post_recv(1, &other)?;
                server.post(|batch| batch.send(1).signaled().inline(b"x"))?;
            }
            let token = timeout(PATIENCE, channel.next_event()).await??;
            assert_eq!(token, expected);
            let cq = match is_receive {
                true => &mut server.recv_cq,
                false => &mut server.send_cq,
            };
            assert_eq!(cq.poll(&mut [Completion::default(); 2]).len(), 1);
        }
        Ok(Outcome::Pass)
    })
}

fn a_queue_without_a_channel_is_refused() -> TestResult {
    let cq = environment::context().completion_queue(4).build()?;
    let error = Cq::new(cq).expect_err("there is nothing to wait for");
    assert_eq!(error.kind(), ErrorKind::InvalidState, "{error}");
    Ok(Outcome::Pass)
}
