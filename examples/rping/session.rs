//! One connection: its id, its queues, and what the protocol does with them.
//!
//! What to learn here:
//!
//! * What a connection is made of ([`Session::new`]): a protection domain, which ties memory and
//!   queue pair together; a completion queue with a channel to wait on; a queue pair with its two
//!   halves; and a receive that is posted before the peer can send.
//! * How requests are posted and how their completions come back: the number given to a request
//!   returns with its completion.
//! * How to wait without hanging ([`Session::wait`]): a peer that dies causes no completion. So the
//!   wait listens to the completion channel *and* the event channel, and has a time limit for peers
//!   whose whole machine vanished.

use std::time::Duration;

use rdmacm::{
    Access, CmId, Completion, ConnParam, Cq, ErrorKind, Event, EventChannel, Pd, QpAttr, RecvHalf,
    RemoteAddress, Segment, SendHalf, Wake,
};

use crate::Result;
use crate::debug::debug;
use crate::wire::{MESSAGE_LENGTH, Message};

/// Send requests that can be outstanding. The protocol needs two or three: a completion may come
/// later than the peer's answer.
const SEND_DEPTH: u32 = 16;

/// Receives that can be outstanding.
const RECV_DEPTH: u32 = 2;

/// How long the end of a connection waits for the peer to agree.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a request is for. Its number is the request's `wr_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Receive,
    Send,
    Read,
    Write,
}

impl Work {
    const ALL: [Self; 4] = [Self::Receive, Self::Send, Self::Read, Self::Write];

    fn id(self) -> u64 {
        self as u64
    }

    fn of(completion: &Completion) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|work| work.id() == completion.wr_id())
    }
}

/// A connection that is being made, works, or is being ended.
///
/// The fields can be dropped in any order: the crate destroys the queue pair before the id, and
/// each object after those that use it.
pub struct Session {
    id: CmId,
    channel: EventChannel,
    pd: Pd,
    cq: Cq,
    send: SendHalf,
    recv: RecvHalf,
    inbox: rdmacm::Buffer,
    peer_ended: bool,
    timeout: Option<Duration>,
}

impl Session {
    /// Makes what a connection needs, on an id that has a device. Events of the id, and of no
    /// other, come through `channel`.
    pub fn new(id: CmId, channel: EventChannel, timeout: Option<Duration>) -> Result<Self> {
        let context = id.context()?;
        // Not `id.protection_domain()`, which all connections share: with a domain of its own, a
        // key that was told to one peer is of no use to another.
        let pd = context.alloc_pd()?;
        let completions = context.completion_channel()?;
        // Devices may round the depths of a queue pair up, to less than twice the value. The
        // completion queue must have room for all that can be outstanding.
        let room = 2 * (SEND_DEPTH + RECV_DEPTH);
        let cq = context
            .completion_queue(room)
            .channel(&completions)
            .build()?;
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(SEND_DEPTH)
                .max_recv_wr(RECV_DEPTH)
                .max_inline_data(MESSAGE_LENGTH as u32),
        )?;
        debug!("queue pair {} on {}", qp.number(), context.device().name());
        let (send, recv) = qp.split();
        let inbox = pd.alloc(MESSAGE_LENGTH, Access::LOCAL_WRITE)?;
        let mut session = Self {
            id,
            channel,
            pd,
            cq,
            send,
            recv,
            inbox,
            peer_ended: false,
            timeout,
        };
        // Before the handshake: the peer may send as soon as it is over.
        session.post_receive()?;
        Ok(session)
    }

    /// Where memory for this connection has to be registered.
    pub fn protection_domain(&self) -> &Pd {
        &self.pd
    }

    /// The client's side of the handshake.
    pub fn connect(&mut self) -> Result<()> {
        self.id.connect(&parameters())?;
        self.wait_until_established("connect")
    }

    /// The server's side.
    pub fn accept(&mut self) -> Result<()> {
        self.id.accept(&parameters())?;
        self.wait_until_established("accept")
    }

    fn wait_until_established(&mut self, operation: &'static str) -> Result<()> {
        let established = |event: &Event| matches!(event, Event::Established(_));
        self.channel.expect(operation, self.timeout, established)?;
        Ok(())
    }

    /// Sends a message. Its bytes travel inline, in the request itself: they need no registered
    /// memory and may change as soon as the call returns. Nobody waits for the completion here;
    /// it is taken out on the way by the next wait.
    pub fn send(&mut self, message: &Message) -> Result<()> {
        let mut batch = self.send.batch();
        batch.send(Work::Send.id()).signaled().inline(message)?;
        batch.submit()?;
        Ok(())
    }

    /// Waits for the peer's next message. `None` when it has ended the connection instead.
    pub fn receive(&mut self) -> Result<Option<Message>> {
        let Some(completion) = self.wait(Work::Receive)? else {
            return Ok(None);
        };
        // Only a successful completion has a length.
        let length = completion.result()?.byte_len();
        if length as usize != MESSAGE_LENGTH {
            return Err(
                format!("a message of {length} bytes came, not of {MESSAGE_LENGTH}").into(),
            );
        }
        let mut message = [0; MESSAGE_LENGTH];
        self.inbox.read(0, &mut message)?;
        // The message is copied out. Its place is free for the next one, which the peer sends when
        // it has our answer to this one.
        self.post_receive()?;
        Ok(Some(message))
    }

    fn post_receive(&mut self) -> Result<()> {
        Ok(self
            .recv
            .post(Work::Receive.id(), &[self.inbox.slice(..)?])?)
    }

    /// Reads from the peer's memory and waits until the data is here.
    pub fn read(&mut self, from: RemoteAddress, into: Segment) -> Result<()> {
        let mut batch = self.send.batch();
        batch.read(Work::Read.id(), from).signaled().into(&[into])?;
        batch.submit()?;
        self.finish(Work::Read)
    }

    /// Writes to the peer's memory and waits until the data is there.
    pub fn write(&mut self, from: Segment, to: RemoteAddress) -> Result<()> {
        let mut batch = self.send.batch();
        batch.write(Work::Write.id(), to).signaled().from(&[from])?;
        batch.submit()?;
        self.finish(Work::Write)
    }

    fn finish(&mut self, work: Work) -> Result<()> {
        match self.wait(work)? {
            Some(_) => Ok(()),
            None => Err(format!("the peer ended the connection during the {work:?}").into()),
        }
    }

    /// Ends the connection, after the peer or before it.
    pub fn close(self) -> Result<()> {
        self.id.disconnect()?;
        if !self.peer_ended {
            // As long as the id exists, the kernel repeats a goodbye that was lost on its way. A
            // peer that never answers changes nothing for us.
            let agreed = |event: &Event| matches!(event, Event::Disconnected(_));
            let _ = self.channel.expect("disconnect", Some(FAREWELL), agreed);
        }
        // Dropping the session would do the same, but could not tell of a failure.
        self.id.destroy()?;
        debug!("closed");
        Ok(())
    }

    /// Waits until the request `wanted` has completed; takes the completions of sends out on the
    /// way. `None` when the peer ended the connection.
    fn wait(&mut self, wanted: Work) -> Result<Option<Completion>> {
        let mut entry = [Completion::default()];
        loop {
            // What the peer sent before it left counts: the queue is emptied once more.
            let patience = if self.peer_ended {
                Some(Duration::ZERO)
            } else {
                self.timeout
            };
            let completion = match self.channel.wait_with(&mut self.cq, &mut entry, patience) {
                Ok(Wake::Completions(completions)) => completions[0],
                Ok(Wake::Event) => {
                    self.take_event()?;
                    continue;
                }
                Err(_) if self.peer_ended => return Ok(None),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    return Err("the peer is silent; giving up".into());
                }
                Err(error) => return Err(error.into()),
            };
            match carried_out(&completion)? {
                Some(work) if work == wanted => return Ok(Some(completion)),
                Some(Work::Send) | None => {}
                Some(other) => {
                    return Err(format!("out of turn: {other:?} instead of {wanted:?}").into());
                }
            }
        }
    }

    /// Takes note of an event of the connection.
    fn take_event(&mut self) -> Result<()> {
        let Some(event) = self.channel.try_next_event()? else {
            return Ok(());
        };
        debug!("event {}", event.name());
        match event {
            Event::Disconnected(_) => self.peer_ended = true,
            Event::DeviceRemoval(_) => return Err(event.into_error("rping").into()),
            // The others (a changed link address, for one) do not end the connection.
            _ => {}
        }
        Ok(())
    }
}

/// The work that was carried out. `None` when it was flushed: the connection has ended, one way or
/// the other, and the reason is told by another completion or an event.
fn carried_out(completion: &Completion) -> Result<Option<Work>> {
    let Some(work) = Work::of(completion) else {
        return Err(format!("a completion that nobody asked for: {completion:?}").into());
    };
    match completion.result() {
        Ok(_) => {
            debug!("{work:?} is done");
            Ok(Some(work))
        }
        Err(failure) if failure.is_flush() => Ok(None),
        Err(failure) => Err(format!("{work:?} failed: {}", failure.status).into()),
    }
}

/// What both sides ask for: one RDMA read at a time in each direction.
fn parameters() -> ConnParam {
    ConnParam::new().responder_resources(1).initiator_depth(1)
}
