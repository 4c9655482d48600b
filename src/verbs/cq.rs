//! Completion queues.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::comp_channel::ChannelMember;
use super::{CompletionChannel, Completions};
use crate::device::{Context, CqToken, KernelObject, ObjectKind};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::{Completion, CompletionQueue, CqSetup, Known};
use crate::sys::{Attr, Deadline, Value, generation, is_inherited, wait_readable};

/// A completion queue: where finished work requests are reported.
///
/// There is one poller: polling takes `&mut self` and no lock. The kernel's queue lives as long as
/// this handle or a queue pair that reports to it.
#[doc(alias = "ibv_cq")]
#[derive(Debug)]
pub struct Cq {
    pub(super) queue: Known<CompletionQueue>,
    object: Arc<KernelObject>,
    channel: Option<ChannelMember>,
    token: CqToken,
    /// Which process made the queue.
    generation: u32,
    /// Set while the queue has asked for an event that it has not read yet: how many events the
    /// program had read of the channel until then.
    armed_at: Option<u64>,
}

/// How a completion queue is to be made.
#[derive(Debug)]
pub struct CqBuilder<'a> {
    context: &'a Context,
    entries: u32,
    channel: Option<&'a CompletionChannel>,
    vector: u32,
}

impl Context {
    /// Begins a completion queue with room for `entries` completions.
    ///
    /// It must hold the completions of all requests that were posted and not yet polled, of all
    /// queue pairs that report to it: completions beyond its room are lost. A slot of a send or
    /// receive queue is free again before its completion is polled, and devices round the depths of
    /// queues up (to less than twice what was asked for).
    #[doc(alias("ibv_create_cq", "ibv_create_cq_ex"))]
    pub fn completion_queue(&self, entries: u32) -> CqBuilder<'_> {
        CqBuilder {
            context: self,
            entries,
            channel: None,
            vector: 0,
        }
    }
}

impl<'a> CqBuilder<'a> {
    /// Reports events on a channel, when armed.
    pub fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Chooses the completion vector: which of the device's interrupts, and so which processor,
    /// works for the queue. Below [`Context::completion_vectors`]; 0 by default.
    #[doc(alias = "comp_vector")]
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// No entries, or more than the device allows; a vector that the device does not have; a channel
    /// of another device; too little memory.
    pub fn build(self) -> Result<Cq> {
        let operation = "create_cq";
        let Self {
            context,
            entries,
            channel,
            vector,
        } = self;
        check_entries(operation, context, entries)?;
        let vectors = context.completion_vectors();
        if vector >= vectors {
            let name = context.device().name();
            let text = format!("vector {vector} of {name}, which has {vectors}, from 0 on");
            return Err(Error::invalid(operation, text));
        }
        if channel.is_some_and(|channel| !channel.context().same_as(context)) {
            return Err(Error::invalid(
                operation,
                "the channel belongs to another device",
            ));
        }
        let token = CqToken::new();
        let mut answer = Answer {
            handle: 0,
            driver: CqSetup::new(context, entries)?,
        };
        create(context, channel, vector, token, &mut answer)
            .map_err(|error| Error::from_os(operation, &error))?;
        let object = KernelObject::new(
            ObjectKind::CompletionQueue,
            context,
            answer.handle,
            Vec::new(),
        );
        let object = Arc::new(object.keeping(answer.driver.kept()));
        let queue = answer.driver.queue(context)?;
        let member = channel.map(|channel| channel.join(token, queue.events()));
        Ok(Cq {
            queue: Known::new(queue, context.generation()),
            object,
            channel: member,
            token,
            generation: context.generation(),
            armed_at: None,
        })
    }
}

/// Refuses a size that the device would refuse without a reason.
pub(super) fn check_entries(
    operation: &'static str,
    context: &Context,
    entries: u32,
) -> Result<()> {
    let most = context.attr()?.max_cqe();
    if (1..=most).contains(&entries) {
        return Ok(());
    }
    let name = context.device().name();
    let text = format!("{entries} entries asked for; {name} allows 1 to {most}");
    Err(Error::invalid(operation, text))
}

/// Room for the completions of work queues of these depths. Devices round depths up to a power of
/// two, less one at most.
pub(crate) fn completion_room(context: &Context, depths: &[u32]) -> Result<u32> {
    let granted = |depth: u32| (u64::from(depth) + 1).next_power_of_two() - 1;
    let room: u64 = depths.iter().map(|depth| granted(*depth)).sum();
    let most = context.attr()?.max_cqe();
    if room <= u64::from(most) {
        return Ok(room as u32);
    }
    Err(Error::invalid(
        "create_cq",
        format!(
            "work queues of the depths {depths:?} need a completion queue of {room} entries, but {} \
             allows {most}; ask for less depth",
            context.device().name()
        ),
    ))
}

/// What the kernel says of a new completion queue.
struct Answer {
    handle: u32,
    driver: CqSetup,
}

fn create(
    context: &Context,
    channel: Option<&CompletionChannel>,
    vector: u32,
    token: CqToken,
    answer: &mut Answer,
) -> io::Result<()> {
    use ioctl::cq::create as attr;
    let (mut granted, entries) = (0u32, answer.driver.entries());
    let (request, response) = answer.driver.parts();
    let token = token.to_kernel();
    let events = context.event_file();
    let mut attrs = vec![
        Attr::new(attr::HANDLE, Value::NewHandle(&mut answer.handle)),
        Attr::new(attr::CQE, Value::In(entries.as_bytes())),
        Attr::new(attr::USER_HANDLE, Value::In(token.as_bytes())),
        Attr::new(attr::COMP_VECTOR, Value::In(vector.as_bytes())),
        Attr::new(attr::RESP_CQE, Value::Out(granted.as_mut_bytes())),
        Attr::new(ioctl::UHW_OUT, Value::Out(response)),
    ];
    if !request.is_empty() {
        attrs.push(Attr::new(ioctl::UHW_IN, Value::In(request)));
    }
    if let Some(channel) = channel {
        attrs.push(Attr::new(attr::COMP_CHANNEL, Value::Fd(channel.as_fd())));
    }
    if let Some(events) = &events {
        attrs.push(Attr::new(attr::EVENT_FD, Value::Fd(events.as_fd())));
    }
    context.method(ioctl::object::CQ, ioctl::cq::CREATE, &mut attrs)
}

impl Cq {
    /// Takes out as many completions as there are, up to the length of `entries`, and returns
    /// them. Does not block and does not enter the kernel.
    ///
    /// ```no_run
    /// # fn example(cq: &mut rdmacm::Cq) {
    /// use rdmacm::Completion;
    ///
    /// let mut entries = [Completion::default(); 16];
    /// for completion in cq.poll(&mut entries) {
    ///     match completion.result() {
    ///         Ok(success) => println!("{}: {} bytes", completion.wr_id(), success.byte_len()),
    ///         Err(failure) => eprintln!("{failure}"),
    ///     }
    /// }
    /// # }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        let now = generation();
        if let Some(queue) = self.queue.mlx5(now) {
            return queue.poll(entries);
        }
        if let Some(queue) = self.queue.rxe(now) {
            return queue.poll(entries);
        }
        self.poll_elsewhere(entries)
    }

    /// The completions that there are now, one by one, as a program without an array for them takes
    /// them. None is lost or held back: those that are not asked for stay in the queue, and the
    /// places of the others go back to the device when the iterator is dropped. Keep it no longer
    /// than needed: until then no new completion finds room there. Does not block and does not
    /// enter the kernel.
    ///
    /// ```no_run
    /// # fn example(cq: &mut rdmacm::Cq) {
    /// for completion in cq.completions() {
    ///     if let Err(failure) = completion.result() {
    ///         eprintln!("{failure}");
    ///         break; // the next call goes on behind it
    ///     }
    /// }
    /// # }
    /// ```
    #[doc(alias("ibv_start_poll", "ibv_next_poll"))]
    #[inline]
    pub fn completions(&mut self) -> Completions<'_> {
        Completions::of(&mut self.queue, self.generation)
    }

    #[inline(never)]
    fn poll_elsewhere<'e>(&mut self, entries: &'e mut [Completion]) -> &'e [Completion] {
        match is_inherited(self.generation) {
            // The completions are the parent's.
            true => &[],
            false => self.queue.change(|queue| queue.poll(entries)),
        }
    }

    /// Asks for one event on the channel at the next completion, or the next solicited one.
    ///
    /// Completions that are there already give no event: poll once more after arming, and wait
    /// only when that finds nothing. siw does not tell solicited completions apart; there any
    /// completion gives the event.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, solicited_only: bool) -> Result<()> {
        let context = self.object.context();
        let refused = |error| Error::from_os("req_notify_cq", &error);
        context.check_own().map_err(refused)?;
        if self.queue.any().arm(solicited_only) {
            return Ok(());
        }
        let request = uverbs::ReqNotifyCq {
            cq_handle: self.object.handle(),
            solicited_only: u32::from(solicited_only),
        };
        context
            .command_without_answer(uverbs::Command::REQ_NOTIFY_CQ, &request)
            .map_err(refused)
    }

    /// As [`Cq::poll`], but waits for at least one completion, for ever with `None`. For a queue
    /// with a channel of its own.
    ///
    /// A peer that goes away causes no completion: connected programs wait with
    /// [`EventChannel::wait_with`](crate::EventChannel::wait_with).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time,
    /// [`ErrorKind::InvalidState`](crate::ErrorKind::InvalidState) without a channel, and while other
    /// queues are on it.
    #[doc(alias("rdma_get_send_comp", "rdma_get_recv_comp"))]
    pub fn wait<'e>(
        &mut self,
        entries: &'e mut [Completion],
        timeout: Option<Duration>,
    ) -> Result<&'e [Completion]> {
        let deadline = Deadline::after(timeout);
        if entries.is_empty() {
            return Ok(entries);
        }
        self.require_channel()?;
        loop {
            let taken = self.poll_or_arm(entries)?;
            if taken > 0 {
                return Ok(&entries[..taken]);
            }
            self.require_member()?.wait("wait", deadline)?;
            self.take_event()?;
        }
    }

    /// Polls; arms the queue when nothing is there, and polls again, since what came before the
    /// arming gives no event. Returns how many completions were taken.
    pub(crate) fn poll_or_arm(&mut self, entries: &mut [Completion]) -> Result<usize> {
        let taken = self.poll(entries).len();
        if taken > 0 || self.event_due() {
            return Ok(taken);
        }
        self.arm_for_event()?;
        Ok(self.poll(entries).len())
    }

    /// Whether the queue was armed and its event not read yet. Where the program has read an event
    /// of the channel itself, that may have been the one.
    pub(crate) fn event_due(&self) -> bool {
        self.armed_at.is_some() && self.armed_at == self.reads()
    }

    /// How many events the program has read of the channel.
    fn reads(&self) -> Option<u64> {
        self.channel().map(CompletionChannel::reads)
    }

    /// Arms the queue, and remembers it until [`Cq::take_event`].
    pub(crate) fn arm_for_event(&mut self) -> Result<()> {
        let reads = self.reads();
        self.arm(false)?;
        self.armed_at = reads;
        Ok(())
    }

    /// Reads the event that the queue was armed for, when the channel is readable. One of a queue
    /// that is gone is for nobody.
    pub(crate) fn take_event(&mut self) -> Result<()> {
        if self.require_member()?.try_next_event()? == Some(self.token) {
            self.armed_at = None;
        }
        Ok(())
    }

    /// Waits for the event that the queue was armed for. False when none came in time.
    pub(crate) fn event_comes(&mut self, deadline: Deadline) -> Result<bool> {
        let kernel = &**self.context().kernel();
        let channel = self.require_channel()?.as_fd();
        match wait_readable(kernel, "wait", [channel], deadline) {
            Ok(_) => self.take_event().map(|()| true),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The channel to wait at, which must be the queue's alone.
    pub(crate) fn require_channel(&self) -> Result<&CompletionChannel> {
        let member = self.require_member()?;
        member.require_alone()?;
        Ok(member.channel())
    }

    fn require_member(&self) -> Result<&ChannelMember> {
        self.channel.as_ref().ok_or_else(|| {
            Error::new(
                "wait",
                ErrorKind::InvalidState,
                "the queue has no completion channel",
            )
        })
    }

    /// How many completions the queue holds.
    pub fn depth(&self) -> u32 {
        self.queue.any().depth()
    }

    /// What the events of this queue say, those of its channel
    /// ([`CompletionChannel::next_event`]) and those of its device
    /// ([`AsyncEvent`](crate::AsyncEvent)).
    pub fn token(&self) -> CqToken {
        self.token
    }

    /// The channel that was given at creation.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.channel.as_ref().map(ChannelMember::channel)
    }

    /// The device of the queue.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Destroys the queue now.
    ///
    /// # Errors
    ///
    /// `EBUSY` while a queue pair reports to it; it is then destroyed after the last of them.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn destroy(self) -> Result<()> {
        self.object.destroy().map(drop)
    }

    pub(super) fn object(&self) -> &Arc<KernelObject> {
        &self.object
    }
}
