//! A connection before its handshake.

use super::{Connection, Settings};
use crate::cm::{CmId, Event, EventChannel};
use crate::error::Result;
use crate::fastpath::{PostError, Segment};
use crate::sys::Deadline;
use crate::verbs::{Access, Buffer, QpAttr, completion_room};

/// A connection that is ready for its handshake. Post receives now: the peer's first message can
/// come at once.
#[derive(Debug)]
pub struct Prepared {
    connection: Connection,
    settings: Settings,
    side: Side,
    deadline: Deadline,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Active,
    Passive,
}

impl Prepared {
    /// Makes what a connection on a resolved id needs. Events of the id come through `channel`.
    pub(super) fn new(
        channel: EventChannel,
        id: CmId,
        settings: &Settings,
        side: Side,
        deadline: Deadline,
    ) -> Result<Self> {
        id.own_channel();
        let pd = id.protection_domain()?;
        let context = pd.context();
        let completions = context.private_completion_channel()?;
        let room = completion_room(context, &[settings.send_depth, settings.recv_depth])?;
        let cq = context
            .completion_queue(room)
            .channel(&completions)
            .build()?;
        let qp = id.create_qp(
            &QpAttr::new(&pd)
                .send_cq(&cq)
                .recv_cq(&cq)
                .max_send_wr(settings.send_depth)
                .max_recv_wr(settings.recv_depth)
                .max_send_sge(settings.segments)
                .max_recv_sge(settings.segments)
                .max_inline_data(settings.max_inline),
        )?;
        let connection = Connection::new(channel, id, pd, cq, qp, settings.spin);
        Ok(Self {
            connection,
            settings: settings.clone(),
            side,
            deadline,
        })
    }

    pub(super) fn set_private_data(&mut self, bytes: &[u8]) {
        self.connection.set_private_data(bytes);
    }

    /// As [`Connection::alloc`].
    ///
    /// # Errors
    ///
    /// As [`Connection::alloc`].
    pub fn alloc(&self, length: usize) -> Result<Buffer> {
        self.connection.alloc(length)
    }

    /// As [`Connection::alloc_with`].
    ///
    /// # Errors
    ///
    /// As [`Connection::alloc_with`].
    pub fn alloc_with(&self, length: usize, access: Access) -> Result<Buffer> {
        self.connection.alloc_with(length, access)
    }

    /// As [`Connection::post_recv`].
    ///
    /// # Errors
    ///
    /// As [`Connection::post_recv`].
    pub fn post_recv(&mut self, wr_id: u64, segment: Segment) -> Result<(), PostError> {
        self.connection.post_recv(wr_id, segment)
    }

    /// Makes the handshake and waits for its end.
    ///
    /// # Errors
    ///
    /// Rejection, no answer in time, and what [`CmId::connect`] and [`CmId::accept`] refuse.
    pub fn establish(self) -> Result<Connection> {
        let operation = self.begin()?;
        let wanted = |event: &Event| matches!(event, Event::Established(_));
        let channel = self.connection.channel();
        let event = channel.expect_by(operation, self.deadline, wanted)?;
        Ok(self.finish(&event))
    }

    /// Begins the handshake, and says what it is called.
    pub(super) fn begin(&self) -> Result<&'static str> {
        let id = self.connection.id();
        match self.side {
            Side::Active => id.connect(&self.settings.param).map(|()| "connect"),
            Side::Passive => id.accept(&self.settings.param).map(|()| "accept"),
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn channel(&self) -> &EventChannel {
        self.connection.channel()
    }

    #[cfg(feature = "tokio")]
    pub(super) fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// The connection, after the event that ends the handshake.
    pub(super) fn finish(mut self, event: &Event) -> Connection {
        if let (Side::Active, Some(answer)) = (self.side, event.content()) {
            self.connection
                .set_private_data(&answer.connection().private_data);
        }
        self.connection
    }
}
