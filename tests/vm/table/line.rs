//! Two ends, one of which sends what the other receives.

use rdmacm::{
    Access, AddressHandle, Buffer, CmId, Completion, Cq, Destination, Mw, Opcode, Pd, PostError,
    Qp, QpAttr, QpType, RemoteAddress, Result, Segment, SendFlags, SendRequest,
};

use crate::environment;
pub use crate::pair::ANY_ACCESS;
use crate::pair::{End, Pair, Plan, assert_holds, next_completion};
use crate::siw;
use crate::verbs;

/// The number of the request that is tested.
pub const REQUEST: u64 = 1;
/// The number of the empty message behind it.
pub const MARKER: u64 = 2;

/// Bytes of the longest message.
pub const LARGEST: usize = 1 << 20;
/// Segments that a request may have.
const SEGMENTS: u32 = 4;
/// Bytes behind a message that must stay as they were.
const GUARD: usize = 32;
const UNTOUCHED: u8 = 0xee;

/// How the two ends are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Reliable,
    Unreliable,
    Datagram,
}

impl Service {
    pub fn qp_type(self) -> QpType {
        match self {
            Self::Reliable => QpType::Rc,
            Self::Unreliable => QpType::Uc,
            Self::Datagram => QpType::Ud,
        }
    }
}

pub struct Line {
    pub near: Side,
    pub far: Side,
    /// Of a line for datagrams.
    pub receiver: Option<Receiver>,
    /// Bytes that fit inline.
    pub inline: usize,
    /// Bytes of a packet.
    pub mtu: usize,
    /// Bytes of the longest message.
    pub longest: usize,
    pub is_siw: bool,
}

/// Whom datagrams are sent to.
pub struct Receiver {
    handle: AddressHandle,
    qp_num: u32,
}

impl Receiver {
    pub fn destination(&self) -> Destination<'_> {
        Destination {
            handle: &self.handle,
            qp_num: self.qp_num,
            qkey: verbs::QKEY,
        }
    }
}

impl Line {
    /// Connects two ends, or says why the device cannot.
    pub fn new(service: Service) -> Result<std::result::Result<Self, String>> {
        match (siw::is_under_test(), service) {
            (true, Service::Reliable) => Self::by_handshake().map(Ok),
            (true, _) => Ok(Err(format!(
                "siw has no queue pairs of type {:?}",
                service.qp_type()
            ))),
            (false, _) => Self::by_hand(service).map(Ok),
        }
    }

    /// With the connection manager: siw knows no other way.
    fn by_handshake() -> Result<Self> {
        let inline = 80;
        let plan = Plan {
            segments: SEGMENTS,
            inline,
            ..Plan::default()
        };
        let Pair { client, server } = plan.connect()?;
        Ok(Self {
            near: Side::of(client)?,
            far: Side::of(server)?,
            receiver: None,
            inline: inline as usize,
            mtu: 1024,
            longest: usize::MAX,
            is_siw: true,
        })
    }

    fn by_hand(service: Service) -> Result<Self> {
        let inline = 512;
        let context = environment::context();
        let pd = context.alloc_pd()?;
        let side = || -> Result<Side> {
            let (send_cq, recv_cq) = (verbs::queue(&context, 32)?, verbs::queue(&context, 32)?);
            let attr = QpAttr::new(&pd)
                .qp_type(service.qp_type())
                .max_send_sge(SEGMENTS)
                .max_recv_sge(SEGMENTS)
                .max_inline_data(inline)
                .send_cq(&send_cq)
                .recv_cq(&recv_cq);
            let qp = pd.create_qp(&attr)?;
            Side::new(pd.clone(), qp, send_cq, recv_cq, None)
        };
        let (near, far) = (side()?, side()?);
        // Some devices grant more.
        let inline = near.qp.capabilities().max_inline_data;
        let path = verbs::own_path(&context)?;
        let mut line = Self {
            near,
            far,
            receiver: None,
            inline: inline as usize,
            mtu: 1024,
            longest: usize::MAX,
            is_siw: false,
        };
        match service {
            Service::Datagram => {
                verbs::bring_up_datagram(&line.near.qp)?;
                verbs::bring_up_datagram(&line.far.qp)?;
                line.longest = context.port(1)?.active_mtu.bytes() as usize;
                line.mtu = line.longest;
                line.receiver = Some(Receiver {
                    handle: pd.address_handle(&path)?,
                    qp_num: line.far.qp.number(),
                });
            }
            _ => {
                let mut access = ANY_ACCESS;
                access.set(
                    Access::FLUSH_GLOBAL,
                    service == Service::Reliable && context.attr()?.has_flush_global(),
                );
                verbs::connect_for(&line.near.qp, &line.far.qp, path, access)?;
                verbs::connect_for(&line.far.qp, &line.near.qp, path, access)?;
            }
        }
        Ok(line)
    }

    /// Bytes in front of a received message.
    pub fn header(&self) -> usize {
        match self.receiver {
            Some(_) => rdmacm::GRH_LENGTH,
            None => 0,
        }
    }

    /// Sends the empty message that ends a row of the table.
    pub fn mark(&mut self) -> std::result::Result<(), PostError> {
        let mut batch = self.near.qp.send_half().batch();
        match &self.receiver {
            Some(receiver) => batch.send_datagram(MARKER, receiver.destination()),
            // siw would report it before a read that was posted earlier.
            None => batch.send(MARKER).fence(),
        }
        .signaled()
        .from(&[])?;
        batch.submit()
    }
}

impl Line {
    /// What memory needs to be opened to a window.
    pub fn window_access(&self) -> Access {
        match self.is_siw {
            true => Access::empty(),
            false => Access::MW_BIND,
        }
    }

    /// Opens a window of the far side's, and returns its key.
    pub fn open_at_the_peer(&mut self, window: &mut Mw, region: &Buffer) -> Result<u32> {
        let mut batch = self.far.qp.send_half().batch();
        let opened = batch.bind_window(REQUEST, window).signaled().to(
            region,
            0..64,
            Access::REMOTE_WRITE,
        )?;
        batch.submit()?;
        next_completion(&mut self.far.send_cq)?.result()?;
        Ok(opened.rkey)
    }
}

/// One end, with memory to send from and to receive into.
pub struct Side {
    pub pd: Pd,
    pub qp: Qp,
    send_cq: Cq,
    recv_cq: Cq,
    /// What is sent, and what a read brings.
    pub outbox: Buffer,
    /// What is received.
    inbox: Buffer,
    /// What the peer writes to and reads from.
    pub target: Buffer,
    _id: Option<CmId>,
}

impl Side {
    fn new(pd: Pd, qp: Qp, send_cq: Cq, recv_cq: Cq, id: Option<CmId>) -> Result<Self> {
        let length = LARGEST + 8192;
        Ok(Self {
            outbox: pd.alloc(length, ANY_ACCESS)?,
            inbox: pd.alloc(length, ANY_ACCESS)?,
            target: pd.alloc(length, ANY_ACCESS)?,
            pd,
            qp,
            send_cq,
            recv_cq,
            _id: id,
        })
    }

    fn of(end: End) -> Result<Self> {
        let End {
            id,
            pd,
            send_cq,
            recv_cq,
            qp,
            ..
        } = end;
        Self::new(pd, qp, send_cq, recv_cq, Some(id))
    }

    /// Puts the bytes into the outbox, in segments of these lengths.
    pub fn place(&mut self, bytes: &[u8], lengths: &[usize]) -> Result<Vec<Segment>> {
        self.outbox.write(0, bytes)?;
        let mut start = 0;
        lengths
            .iter()
            .map(|length| {
                start += length;
                self.outbox.slice(start - length..start)
            })
            .collect()
    }

    /// Clears what a message of this length could reach. Returns where the peer can write it to.
    pub fn clear(&mut self, length: usize) -> Result<RemoteAddress> {
        let clean = vec![UNTOUCHED; rdmacm::GRH_LENGTH + length + GUARD];
        self.inbox.write(0, &clean)?;
        self.target.write(0, &clean)?;
        Ok(self.target.remote())
    }

    /// Posts the receives for a request, if it needs one, and for the marker.
    pub fn expect(&mut self, is_received: bool, length: usize) -> Result<()> {
        let whole = rdmacm::GRH_LENGTH + length;
        let cut = whole / 3;
        let segments = [
            self.inbox.slice(..cut)?,
            self.inbox.slice(cut..cut)?,
            self.inbox.slice(cut..whole)?,
        ];
        if is_received {
            self.qp.recv_half().post(REQUEST, &segments)?;
        }
        // Behind all that is looked at; some devices want a segment, datagrams want room.
        let place = self.inbox.slice(LARGEST + 4096..LARGEST + 4160)?;
        Ok(self.qp.recv_half().post(MARKER, &[place])?)
    }

    pub fn post(&mut self, request: SendRequest<'_>) -> std::result::Result<(), PostError> {
        let posted = self.qp.send_half().post_list([request]);
        posted.map_err(|error| error.source)
    }

    /// Checks the completions of a request and the marker behind it.
    pub fn check_sent(&mut self, opcode: Opcode, flags: SendFlags) -> Result<()> {
        if flags.contains(SendFlags::SIGNALED) {
            let sent = next_completion(&mut self.send_cq)?;
            assert_eq!((sent.wr_id(), sent.result()?.opcode()), (REQUEST, opcode));
        }
        let marked = next_completion(&mut self.send_cq)?;
        assert_eq!(
            (marked.wr_id(), marked.result()?.opcode()),
            (MARKER, Opcode::Send)
        );
        Ok(())
    }

    /// The completion of this receive, which must be the next.
    pub fn received(&mut self, wr_id: u64) -> Result<Completion> {
        let received = next_completion(&mut self.recv_cq)?;
        assert_eq!(received.wr_id(), wr_id, "{received:?}");
        Ok(received)
    }

    /// Checks that the bytes came, and nothing behind them.
    pub fn check(&self, is_write: bool, start: usize, bytes: &[u8]) {
        let place = if is_write { &self.target } else { &self.inbox };
        assert_holds(place, start, bytes);
        assert_holds(place, start + bytes.len(), &[UNTOUCHED; GUARD]);
    }
}

/// The refusal of what siw does not have.
pub fn lacks(what: &'static str) -> PostError {
    PostError::NotOnDevice { what }
}
