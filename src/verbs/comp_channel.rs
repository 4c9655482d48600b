//! Completion channels: waiting for completions instead of polling for them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdmacm_kernel_abi::uverbs;

use crate::device::{Context, CqToken, EventFile};
use crate::error::{Error, ErrorKind, Result};
use crate::sys::{Deadline, adopt_fd};

/// A descriptor that tells which completion queues have something new.
///
/// A cheap handle. Its descriptor is readable when an event waits, and fits any event loop.
#[doc(alias = "ibv_comp_channel")]
#[derive(Debug, Clone)]
pub struct CompletionChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    file: EventFile,
    /// How many completion queues the program has on the channel. Held while a queue that is alone
    /// reads: an event of another one that came meanwhile would be lost.
    members: Mutex<Members>,
    /// How many events the program has read, not a queue that waits by itself.
    reads: AtomicU64,
}

/// The queues that raise events on a channel.
#[derive(Debug, Default)]
struct Members {
    count: usize,
    /// The counters of those whose device wants to know how many events were read.
    counters: Vec<(CqToken, Arc<AtomicU32>)>,
}

impl Members {
    fn count_event(&self, event: Option<CqToken>) {
        let is_of = |(token, _): &&(CqToken, Arc<AtomicU32>)| Some(*token) == event;
        if let Some((_, counter)) = self.counters.iter().find(is_of) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Context {
    /// Makes a completion channel.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left or the device is gone.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn completion_channel(&self) -> Result<CompletionChannel> {
        let channel = self.private_completion_channel()?;
        // Another thread may take the event that a wait was told of.
        self.kernel()
            .set_nonblocking(channel.as_fd())
            .map_err(|error| Error::from_os("create_comp_channel", &error))?;
        Ok(channel)
    }

    /// A completion channel whose one user reads it only when it is readable.
    pub(crate) fn private_completion_channel(&self) -> Result<CompletionChannel> {
        let response: uverbs::CreateCompChannelResp = self
            .command(
                uverbs::Command::CREATE_COMP_CHANNEL,
                &uverbs::CreateCompChannel::default(),
            )
            .map_err(|error| Error::from_os("create_comp_channel", &error))?;
        // SAFETY: the answer to this command is a descriptor that the kernel made for us just now.
        let fd = unsafe { adopt_fd(u64::from(response.fd)) }
            .map_err(|error| Error::from_os("create_comp_channel", &error))?;
        Ok(CompletionChannel(Arc::new(ChannelInner {
            file: EventFile::new(fd, self.clone()),
            members: Mutex::default(),
            reads: AtomicU64::new(0),
        })))
    }
}

const NEXT_EVENT: &str = "next_cq_event";

impl CompletionChannel {
    /// Waits for the next event and tells which queue it is of. With `None` it waits for ever.
    /// The queue must have been armed ([`Cq::arm`](super::Cq::arm)), and gives one event per arm.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when none came in time.
    #[doc(alias("ibv_get_cq_event", "ibv_ack_cq_events"))]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<CqToken> {
        let record = self.0.file.next(NEXT_EVENT, timeout)?;
        let event = token(record);
        self.note_read(event);
        Ok(event)
    }

    /// The next event if one waits. Does not block.
    ///
    /// # Errors
    ///
    /// When the device is gone.
    pub fn try_next_event(&self) -> Result<Option<CqToken>> {
        let event = self.read_event()?;
        if let Some(event) = event {
            self.note_read(event);
        }
        Ok(event)
    }

    fn read_event(&self) -> Result<Option<CqToken>> {
        let record = self.0.file.try_next(NEXT_EVENT)?;
        Ok(record.map(token))
    }

    /// Relaxed: a queue that waits by itself looks at it between its own waits, and does not learn
    /// of a thread that reads meanwhile.
    fn note_read(&self, event: CqToken) {
        self.members().count_event(Some(event));
        self.0.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How many events the program has read.
    pub(super) fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Relaxed)
    }

    pub(super) fn context(&self) -> &Context {
        self.0.file.context()
    }

    /// Takes a completion queue in, for as long as the result lives.
    pub(super) fn join(&self, token: CqToken, events: Option<&Arc<AtomicU32>>) -> ChannelMember {
        let mut members = self.members();
        members.count += 1;
        members
            .counters
            .extend(events.map(|events| (token, Arc::clone(events))));
        drop(members);
        ChannelMember(self.clone(), token)
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        let members = self.0.members.lock();
        members.unwrap_or_else(PoisonError::into_inner)
    }
}

fn token(record: uverbs::CompEventDesc) -> CqToken {
    CqToken::from_kernel(record.cq_handle)
}

/// A completion queue's place on its channel.
#[derive(Debug)]
pub(super) struct ChannelMember(CompletionChannel, CqToken);

impl ChannelMember {
    pub(super) fn channel(&self) -> &CompletionChannel {
        &self.0
    }

    /// Refuses a queue that shares the channel: it would take the others' events.
    pub(super) fn require_alone(&self) -> Result<()> {
        require_one(self.0.members().count)
    }

    /// Waits until the channel is readable.
    pub(super) fn wait(&self, operation: &'static str, deadline: Deadline) -> Result<()> {
        self.0.0.file.wait(operation, deadline)
    }

    /// Reads an event of a queue that is alone on the channel, if one waits.
    pub(super) fn try_next_event(&self) -> Result<Option<CqToken>> {
        let members = self.0.members();
        require_one(members.count)?;
        let event = self.0.read_event()?;
        members.count_event(event);
        Ok(event)
    }
}

fn require_one(members: usize) -> Result<()> {
    match members {
        ..=1 => Ok(()),
        _ => Err(Error::new(
            "wait",
            ErrorKind::InvalidState,
            format!(
                "the completion channel has {members} queues, and this would take the events of \
                 all; wait with CompletionChannel::next_event and poll the queue it names"
            ),
        )),
    }
}

impl Drop for ChannelMember {
    fn drop(&mut self) {
        let mut members = self.0.members();
        members.count -= 1;
        members.counters.retain(|(token, _)| *token != self.1);
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}
