//! What each end of a stream is made of: the queue pair with its completion queue, and the memory.

use std::os::fd::AsFd;

use super::protocol::{
    CONTROLS, HELLO_LENGTH, Hello, MAPPING_LENGTH, Mapping, Own, Place, SLOT_LENGTH, SLOTS,
};
use super::settings::{Sizes, StreamSettings};
use crate::cm::{CmId, ConnParam, EventChannel};
use crate::device::{Context, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::Segment;
use crate::sys::Readiness;
use crate::verbs::{Access, Buffer, Cq, Inbox, QpAttr, RecvHalf, SendHalf, completion_room};

/// Under which numbers the descriptors of a stream are watched.
pub(super) mod watched {
    /// Events of the connection manager.
    pub(in crate::stream) const EVENT: u8 = 0;
    /// Completions.
    pub(in crate::stream) const COMPLETION: u8 = 1;
    /// Another thread has something to say.
    pub(in crate::stream) const WAKE: u8 = 2;
    /// Packets over UDP.
    pub(in crate::stream) const UDP: u8 = 3;
    /// The time of a task that waits is over.
    #[cfg(feature = "tokio")]
    pub(in crate::stream) const ALARM: u8 = 4;
    /// The peer could have said something.
    pub(in crate::stream) const FIRST_WORD: u8 = 5;
}

/// The numbers of receives begin here.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Bytes of a message that comes in a receive, where writes cannot carry it.
pub(super) const MESSAGE_LENGTH: usize = 4;

/// One end of a stream: the parts that exist before the peer is known.
#[derive(Debug)]
pub(super) struct Queues {
    pub id: CmId,
    pub channel: EventChannel,
    pub cq: Cq,
    pub send: SendHalf,
    pub recv: RecvHalf,
    /// What the peer writes.
    pub inbox: Inbox,
    /// What is under way to the peer.
    pub outbox: Buffer,
    /// What is under way to the peer's slots, where it cannot be in the request.
    notes: Buffer,
    /// What the peer says of its room and of memory that it mapped, and behind that messages that
    /// come in receives.
    pub board: Buffer,
    pub own: Own,
    pub send_depth: u32,
    pub max_inline: usize,
    /// Whether messages go in sends of their own, since the device has no writes that carry them.
    pub sends_messages: bool,
    /// Whether this side connected.
    pub is_active: bool,
    /// Which of the places for slots that are under way is next.
    note: u32,
}

impl Queues {
    /// Makes the queues of a stream on an id with a device, and posts its receives. The completion
    /// channel is watched together with what is watched already.
    pub(super) fn new(
        channel: EventChannel,
        id: CmId,
        settings: &StreamSettings,
        readiness: &Readiness,
        is_active: bool,
    ) -> Result<Self> {
        let pd = id.protection_domain()?;
        let context = pd.context();
        let sends_messages = context.device().transport() == Transport::Iwarp;
        let sizes = fitting(settings.sizes, context, sends_messages)?;
        let (sends, receives) = (sizes.send_depth.into(), sizes.receive_depth.into());
        let completions = context.completion_channel()?;
        let room = completion_room(context, &[sends, receives])?;
        let cq = context
            .completion_queue(room)
            .channel(&completions)
            .build()?;
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(sends)
                .max_recv_wr(receives)
                .max_send_sge(2)
                .max_recv_sge(1)
                .max_inline_data(sizes.max_inline.into()),
        )?;
        let max_inline = qp.capabilities().max_inline_data as usize;
        if sends_messages && max_inline < MESSAGE_LENGTH {
            return Err(Error::new(
                "stream",
                ErrorKind::NotSupported,
                "the device sends nothing inline, which streams over iWARP need",
            ));
        }
        let half = sizes.receive_buffer / 2;
        let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let messages = match sends_messages {
            true => receives as usize * MESSAGE_LENGTH,
            false => 0,
        };
        let board = board_length(sizes.mappings) + messages;
        readiness
            .watch(completions.as_fd(), watched::COMPLETION)
            .map_err(|error| Error::from_os("stream", &error))?;
        let (send, recv) = qp.split();
        let mut queues = Self {
            inbox: Inbox::new(&pd, 2 * half as usize)?,
            outbox: pd.alloc(sizes.send_buffer as usize, Access::LOCAL_WRITE)?,
            notes: pd.alloc(CONTROLS as usize * SLOT_LENGTH, Access::LOCAL_WRITE)?,
            board: pd.alloc(board, remote)?,
            id,
            channel,
            cq,
            send,
            recv,
            own: Own {
                half,
                credits: sizes.receive_depth,
                mappings: sizes.mappings,
            },
            send_depth: sends,
            max_inline: max_inline.min(sizes.max_inline.max(MESSAGE_LENGTH as u16).into()),
            sends_messages,
            is_active,
            note: 0,
        };
        for index in 0..receives {
            queues.post_receive(index)?;
        }
        Ok(queues)
    }

    /// Posts a receive: of no bytes where messages come with writes.
    pub(super) fn post_receive(&mut self, index: u32) -> Result<()> {
        let number = RECEIVE | u64::from(index);
        let posted = match self.sends_messages {
            false => self.recv.post(number, &[]),
            true => {
                let at = self.message_at(index);
                let segment = self.board.slice(at..at + MESSAGE_LENGTH)?;
                self.recv.post(number, &[segment])
            }
        };
        Ok(posted?)
    }

    /// The message that came in a receive. The peer wrote it in the order of its own machine.
    pub(super) fn message(&self, index: u32) -> Result<[u8; MESSAGE_LENGTH]> {
        let mut bytes = [0; MESSAGE_LENGTH];
        self.board.read(self.message_at(index), &mut bytes)?;
        Ok(bytes)
    }

    fn message_at(&self, index: u32) -> usize {
        board_length(self.own.mappings) + index as usize * MESSAGE_LENGTH
    }

    /// What the peer says in a slot. It is emptied, so that it is known when the peer has filled it
    /// again.
    pub(super) fn take_slot(&mut self, slot: u32) -> Result<Place> {
        let at = slot as usize * SLOT_LENGTH;
        let mut bytes = [0; SLOT_LENGTH];
        self.board.read(at, &mut bytes)?;
        let place = Place::from_slot(bytes);
        if place.length > 0 {
            self.board.write(at, &[0; SLOT_LENGTH])?;
        }
        Ok(place)
    }

    /// Memory that the peer has mapped, by its place in the table; it may write there at any time.
    pub(super) fn mapping(&self, index: u16) -> Result<Mapping> {
        let at = SLOTS as usize * SLOT_LENGTH + usize::from(index) * MAPPING_LENGTH;
        let mut bytes = [0; MAPPING_LENGTH];
        self.board.read(at, &mut bytes)?;
        Ok(Mapping::from_entry(bytes))
    }

    /// Keeps what is to be written to a slot of the peer's until it is there.
    pub(super) fn note_slot(&mut self, slot: &[u8; SLOT_LENGTH]) -> Result<Segment> {
        // No more control messages are under way than there are places.
        let at = self.note as usize * SLOT_LENGTH;
        self.note = (self.note + 1) % CONTROLS;
        self.notes.write(at, slot)?;
        self.notes.slice(at..at + SLOT_LENGTH)
    }

    /// What the peer is told when the connection is made.
    pub(super) fn hello(&self) -> Hello {
        let board = self.board.remote();
        Hello {
            is_big_endian: cfg!(target_endian = "big"),
            credits: self.own.credits,
            mappings: self.own.mappings,
            slots: Place {
                address: board.address,
                rkey: board.rkey,
                length: SLOTS,
            },
            buffer: self.half(0),
        }
    }

    /// A half of the inbox that begins at an offset, as the peer is told of it.
    pub(super) fn half(&self, offset: u32) -> Place {
        let inbox = self.inbox.remote().at(offset.into());
        Place {
            address: inbox.address,
            rkey: inbox.rkey,
            length: self.own.half,
        }
    }

    /// The parameters of the handshake.
    pub(super) fn conn_param(&self, settings: &StreamSettings) -> Result<ConnParam> {
        let hello: [u8; HELLO_LENGTH] = self.hello().to_bytes();
        ConnParam::new()
            .flow_control(true)
            .retry_count(settings.retry_count)
            .rnr_retry_count(7)
            .responder_resources(0)
            .initiator_depth(u8::from(self.sends_messages))
            .private_data(&hello)
    }
}

/// Bytes of slots and of the table of mapped memory.
fn board_length(mappings: u16) -> usize {
    SLOTS as usize * SLOT_LENGTH + usize::from(mappings) * MAPPING_LENGTH
}

/// Sizes that the device has.
fn fitting(sizes: Sizes, context: &Context, sends_messages: bool) -> Result<Sizes> {
    let most = context.attr()?.max_qp_wr().min(0xfffe) as u16;
    Ok(Sizes {
        send_depth: sizes.send_depth.min(most),
        receive_depth: sizes.receive_depth.min(most),
        max_inline: match sends_messages {
            true => sizes.max_inline.max(MESSAGE_LENGTH as u16),
            false => sizes.max_inline,
        },
        ..sizes
    })
}
