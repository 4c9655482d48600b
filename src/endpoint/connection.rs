//! An established connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::ending::{closed_or, destroyed, ended_of_itself, refused_at_end};
use super::lateness::{ACKNOWLEDGED_LATE, TOLD_LATE};
use crate::cm::{CmId, Event, EventChannel};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{Completion, PostError, RemoteAddress, Segment};
use crate::sys::Deadline;
use crate::verbs::{Access, Batch, Buffer, Cq, Pd, Qp, QpCapabilities, RecvHalf, SendHalf};

/// A connection with its queue pair, completion queue and event channel.
///
/// Calls that wait do so until the timeout ([`Connection::set_timeout`]; none at first), and end
/// with [`ErrorKind::Disconnected`] when the peer disconnects or its process dies.
/// Dropping the connection disconnects.
///
/// A connection holds three file descriptors: its event channel, what wakes a waiting call, and its
/// completion channel. A program with many connections raises `ulimit -n`, or has them on one
/// [`EventChannel`] with completion queues that they share.
#[derive(Debug)]
pub struct Connection {
    id: CmId,
    channel: EventChannel,
    pd: Pd,
    pub(super) cq: Cq,
    send: SendHalf,
    pub(super) recv: RecvHalf,
    capabilities: QpCapabilities,
    /// Where [`Connection::send`] copies what does not fit inline.
    scratch: Option<Buffer>,
    /// Messages that the device may still read, by the number of their request: the one that
    /// [`Connection::send`] waits for, and those that it gave up waiting for.
    under_way: Vec<(u64, Buffer)>,
    private_data: Vec<u8>,
    /// Number of the request that a waiting call posted last.
    waited_for: u64,
    /// Completions that came while a call waited for another one.
    set_aside: SetAside,
    timeout: Option<Duration>,
    pub(super) spin: Duration,
    pub(super) ended: Option<Error>,
}

#[derive(Debug, Default)]
struct SetAside {
    sends: VecDeque<Completion>,
    recvs: VecDeque<Completion>,
}

/// Marks the numbers of receives: the one completion queue serves both directions, and a failed
/// completion does not tell which it is of.
const RECEIVE: u64 = 1 << 63;

/// Marks the numbers of requests that the waiting calls post.
const WAITED_FOR: u64 = 1 << 62;

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Receive,
    /// A request of the program's.
    Request,
    /// The request of a waiting call.
    Own(u64),
}

impl Connection {
    pub(super) fn new(
        channel: EventChannel,
        id: CmId,
        pd: Pd,
        cq: Cq,
        qp: Qp,
        spin: Duration,
    ) -> Self {
        let capabilities = qp.capabilities();
        let (send, recv) = qp.split();
        Self {
            id,
            channel,
            pd,
            cq,
            send,
            recv,
            capabilities,
            scratch: None,
            under_way: Vec::new(),
            private_data: Vec::new(),
            waited_for: 0,
            set_aside: SetAside::default(),
            timeout: None,
            spin,
            ended: None,
        }
    }

    /// The id of the connection.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    pub(super) fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// The private data that the peer sent when the connection was made: at least that, since
    /// InfiniBand and RoCE pad it with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    pub(super) fn set_private_data(&mut self, bytes: &[u8]) {
        self.private_data = bytes.to_vec();
    }

    /// The protection domain, for registering memory.
    pub fn protection_domain(&self) -> &Pd {
        &self.pd
    }

    /// The sizes of the queue pair.
    pub fn capabilities(&self) -> QpCapabilities {
        self.capabilities
    }

    /// How long each waiting call waits; `None`, as at first, for ever.
    ///
    /// A call that ends with [`ErrorKind::TimedOut`] has not taken its request back: that is still
    /// queued and may yet be carried out, and the device uses its memory until then. Keep the
    /// memory, or end the connection.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Allocates and registers a buffer for sends, receives and reads.
    ///
    /// # Errors
    ///
    /// As [`Pd::alloc`].
    pub fn alloc(&self, length: usize) -> Result<Buffer> {
        self.alloc_with(length, Access::LOCAL_WRITE)
    }

    /// Allocates and registers a buffer that the peer may use as `access` says.
    ///
    /// # Errors
    ///
    /// As [`Pd::alloc`].
    pub fn alloc_with(&self, length: usize, access: Access) -> Result<Buffer> {
        self.pd.alloc(length, access)
    }

    /// Posts a receive; `wr_id` (below 2^62) comes back with the message.
    ///
    /// # Errors
    ///
    /// A full receive queue, a number that is taken.
    pub fn post_recv(&mut self, wr_id: u64, segment: Segment) -> Result<(), PostError> {
        if wr_id >= WAITED_FOR {
            return Err(PostError::NumberTaken { wr_id });
        }
        self.recv.post(wr_id | RECEIVE, &[segment])
    }

    /// Waits for the next message. It is in the receive that was posted with the completion's
    /// `wr_id`.
    ///
    /// # Errors
    ///
    /// The end of the connection, the timeout, a message that did not fit.
    pub fn recv_completion(&mut self) -> Result<Completion> {
        self.wait_for(Wanted::Receive, "recv")
    }

    /// Sends a message and waits until the peer has it. The bytes are copied: inline when they
    /// fit, else through a buffer that the connection keeps.
    ///
    /// While the peer has no receive posted, the device repeats the message as often as the peer
    /// said ([`ConnParam::rnr_retry_count`](crate::ConnParam::rnr_retry_count)): with 7, the
    /// default, for ever, so that only the timeout ends the call.
    ///
    /// # Errors
    ///
    /// The end of the connection, the timeout, a peer that has no receive for it in all its
    /// retries.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.begin_send(message)?;
        self.wait_for_own("send")
    }

    /// Posts a message. What does not fit inline is kept until the device has read it, whoever waits
    /// for that.
    pub(super) fn begin_send(&mut self, message: &[u8]) -> Result<()> {
        if message.len() <= self.capabilities.max_inline_data as usize {
            return self.submit(|batch, wr_id| batch.send(wr_id).signaled().inline(message));
        }
        let mut buffer = match self.scratch.take() {
            Some(buffer) if buffer.len() >= message.len() => buffer,
            _ => self.alloc(message.len())?,
        };
        buffer.write(0, message)?;
        let segment = buffer.slice(..message.len())?;
        let posted = self.submit(|batch, wr_id| batch.send(wr_id).signaled().from(&[segment]));
        self.under_way.push((self.own_number(), buffer));
        posted
    }

    /// Sends a message out of registered memory and waits until the peer has it.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub fn send_from(&mut self, segments: &[Segment]) -> Result<()> {
        self.submit(|batch, wr_id| batch.send(wr_id).signaled().from(segments))?;
        self.wait_for_own("send")
    }

    /// Writes into the peer's memory and waits until it is there.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`], and a remote key that does not allow it.
    pub fn write(&mut self, to: RemoteAddress, segments: &[Segment]) -> Result<()> {
        self.submit(|batch, wr_id| batch.write(wr_id, to).signaled().from(segments))?;
        self.wait_for_own("write")
    }

    /// Reads from the peer's memory and waits until it is here.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`], and a remote key that does not allow it.
    pub fn read(&mut self, from: RemoteAddress, segments: &[Segment]) -> Result<()> {
        self.submit(|batch, wr_id| batch.read(wr_id, from).signaled().into(segments))?;
        self.wait_for_own("read")
    }

    /// Begins a batch of requests that nobody waits for yet; the completions of those that are
    /// signaled are fetched with [`Connection::send_completion`]. No more than
    /// [`Settings::send_depth`](super::Settings::send_depth) may be signaled and not fetched: the
    /// completions of further ones are lost. Numbers from 2^62 on are taken.
    pub fn batch(&mut self) -> Batch<'_> {
        self.send.batch().with_numbers_up_to(WAITED_FOR - 1)
    }

    /// Waits for the next completion of a batch's requests.
    ///
    /// # Errors
    ///
    /// The end of the connection, the timeout, a request that failed.
    pub fn send_completion(&mut self) -> Result<Completion> {
        self.wait_for(Wanted::Request, "send")
    }

    /// Ends the connection: destroys its queue pair, then its id, which tells the peer. What was
    /// sent and completed has reached the peer; receives that are still posted are given up.
    ///
    /// # Errors
    ///
    /// When the kernel refuses one of the steps.
    pub fn close(self) -> Result<()> {
        self.id.destroy()
    }

    pub(super) fn submit(
        &mut self,
        build: impl FnOnce(&mut Batch<'_>, u64) -> Result<(), PostError>,
    ) -> Result<()> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        self.waited_for = (self.waited_for + 1) % WAITED_FOR;
        let own = self.own_number();
        let mut batch = self.send.batch();
        build(&mut batch, own)?;
        batch.submit().map_err(|error| {
            // The request is in the queue, and would be carried out at some later doorbell though it
            // was reported as failed. So there is no later one.
            let described = match error {
                PostError::Doorbell {
                    errno: libc::ENOTCONN,
                } => refused_at_end(),
                _ => Error::from(error),
            };
            if let PostError::Doorbell { .. } = error {
                self.ended = Some(described.clone());
            }
            described
        })
    }

    /// Waits for the request that a waiting call has posted.
    fn wait_for_own(&mut self, operation: &'static str) -> Result<()> {
        self.wait_for(Wanted::Own(self.own_number()), operation)
            .map(drop)
    }

    /// Number of the request that a waiting call posted last, as the completion has it.
    pub(super) fn own_number(&self) -> u64 {
        self.waited_for | WAITED_FOR
    }

    fn wait_for(&mut self, wanted: Wanted, operation: &'static str) -> Result<Completion> {
        let deadline = Deadline::after(self.timeout);
        loop {
            if let Some(completion) = self.find(wanted)? {
                return self.judge(operation, completion, deadline);
            }
            if let Some(ended) = &self.ended {
                return Err(ended.clone());
            }
            if self.recv.is_destroyed() {
                return Err(destroyed(operation));
            }
            self.sleep(wanted, operation, deadline)?;
        }
    }

    /// The completion that is wanted, if it is there. If not, the queue is armed when this returns.
    pub(super) fn find(&mut self, wanted: Wanted) -> Result<Option<Completion>> {
        let before = match wanted {
            Wanted::Receive => self.set_aside.recvs.pop_front(),
            Wanted::Request => self.set_aside.sends.pop_front(),
            Wanted::Own(_) => None,
        };
        if before.is_some() {
            return Ok(before);
        }
        if let Some(completion) = self.poll(wanted) {
            return Ok(Some(completion));
        }
        if self.cq.event_due() {
            return Ok(None);
        }
        if let Some(completion) = self.spin(wanted) {
            return Ok(Some(completion));
        }
        self.cq.arm_for_event()?;
        // What came before the queue was armed gives no event.
        Ok(self.poll(wanted))
    }

    /// Polls for a while: an answer that is on its way costs less so than by a wake-up.
    fn spin(&mut self, wanted: Wanted) -> Option<Completion> {
        let start = Instant::now();
        while start.elapsed() < self.spin {
            std::hint::spin_loop();
            if let Some(completion) = self.poll(wanted) {
                return Some(completion);
            }
        }
        None
    }

    /// Empties the completion queue up to the completion that is wanted.
    fn poll(&mut self, wanted: Wanted) -> Option<Completion> {
        let mut entry = [Completion::default()];
        while let [completion] = self.cq.poll(&mut entry) {
            let mut completion = *completion;
            let number = completion.wr_id();
            let kind = match number {
                RECEIVE.. => Wanted::Receive,
                WAITED_FOR.. => Wanted::Own(number),
                _ => Wanted::Request,
            };
            completion.set_wr_id(number & !RECEIVE);
            self.note_failure(&completion);
            self.take_back(number);
            if kind == wanted {
                return Some(completion);
            }
            match kind {
                Wanted::Receive => self.set_aside.recvs.push_back(completion),
                Wanted::Request => self.set_aside.sends.push_back(completion),
                // Of a waiting call that ran out of time.
                Wanted::Own(_) => {}
            }
        }
        None
    }

    /// The device reads a message no more.
    fn take_back(&mut self, number: u64) {
        let mut under_way = self.under_way.iter();
        if let Some(at) = under_way.position(|(own, _)| *own == number) {
            self.scratch = Some(self.under_way.swap_remove(at).1);
        }
    }

    /// A failed request ends the connection: its queue pair does no more. The first one has the
    /// reason, whoever waits for it; what follows is flushed.
    fn note_failure(&mut self, completion: &Completion) {
        if let Err(failure) = completion.result()
            && !failure.is_flush()
        {
            self.ended.get_or_insert_with(|| Error::from(failure));
        }
    }

    /// A failure is an error. One that comes from the connection's end is told as that.
    fn judge(
        &mut self,
        operation: &'static str,
        completion: Completion,
        deadline: Deadline,
    ) -> Result<Completion> {
        let Err(failure) = completion.result() else {
            return Ok(completion);
        };
        self.take_events()?;
        if failure.is_flush() {
            self.hear_of_end(operation, deadline)?;
        }
        let ended = self.ended.get_or_insert_with(|| match failure.is_flush() {
            true => ended_of_itself(),
            false => Error::from(failure),
        });
        Err(ended.clone().in_operation(operation))
    }

    /// Waits a moment for the event that tells why the queue pair has ended: on iWARP the kernel
    /// ends it first.
    fn hear_of_end(&mut self, operation: &'static str, deadline: Deadline) -> Result<()> {
        let rest = deadline.remaining().unwrap_or(TOLD_LATE);
        let soon = Deadline::after(Some(rest.min(TOLD_LATE)));
        while self.ended.is_none() {
            match self.channel.wait(operation, None, soon) {
                Ok(_) => self.take_events()?,
                Err(error) if error.kind() == ErrorKind::TimedOut => break,
                Err(error) => return Err(closed_or(operation, error)),
            }
        }
        Ok(())
    }

    /// Waits until a completion or an event of the connection comes.
    fn sleep(&mut self, wanted: Wanted, operation: &'static str, deadline: Deadline) -> Result<()> {
        let completions = self.cq.require_channel()?.as_fd();
        match self.channel.wait(operation, Some(completions), deadline) {
            Ok(ready) => {
                if ready.event {
                    if wanted != Wanted::Receive && !ready.beside {
                        // The events may end the connection, and with it what is under way.
                        self.cq
                            .event_comes(Deadline::after(Some(ACKNOWLEDGED_LATE)))?;
                    }
                    self.take_events()?;
                }
                if ready.beside {
                    self.cq.take_event()?;
                }
                Ok(())
            }
            Err(error) => Err(closed_or(operation, error)),
        }
    }

    pub(super) fn take_events(&mut self) -> Result<()> {
        while let Some(event) = self.channel.try_next_event()? {
            match event {
                Event::Disconnected(_) => {
                    // Answers the peer and flushes what is outstanding. The connection is over
                    // whether that works or not.
                    let _ = self.id.disconnect();
                    self.ended = Some(event.into_error("connection"));
                }
                // The peer took its acceptance back, or ended before it heard that we have it.
                Event::Rejected(_) => {
                    let reason = event.into_error("connection");
                    let text = format!("the connection ended: {}", reason.explanation());
                    self.ended = Some(reason.of_kind(ErrorKind::Disconnected).because(text));
                }
                Event::DeviceRemoval(_) => self.ended = Some(event.into_error("connection")),
                // The others (a peer's new link address, for one) do not end the connection.
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Somebody may hold another handle of the id; the connection ends all the same.
        let _ = self.id.destroy();
    }
}
