//! Two sides that connect, exchange data and part, step by step in one thread.
//!
//! In one thread the order of the calls is always the same, so that a test can refuse the n-th.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rdmacm_kernel_abi::ucma::Command;

use crate::cm::{CmId, ConnParam, Event, EventChannel, PortSpace};
use crate::device::Registry;
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::Completion;
use crate::sys::twin::{ADDRESS, Twin};
use crate::verbs::{Access, Buffer, CompletionChannel, Cq, Pd, QpAttr, RecvHalf, SendHalf};

/// The twin answers at once or never.
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// How long a kernel that is told so would wait.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const PORT: u16 = 7471;

pub(super) fn address() -> SocketAddr {
    SocketAddr::new(ADDRESS, PORT)
}

/// An id that listens.
pub(super) struct Listening {
    pub id: CmId,
    pub channel: EventChannel,
}

/// A side that has all that a connection needs.
pub(super) struct Side {
    pub id: CmId,
    pub channel: EventChannel,
    pub pd: Pd,
    pub completions: CompletionChannel,
    pub cq: Cq,
    pub send: SendHalf,
    pub recv: RecvHalf,
    pub buffer: Buffer,
}

/// Both sides of a connection, and the listener it came through.
pub(super) struct Pair {
    pub listening: Listening,
    pub active: Side,
    pub passive: Side,
}

pub(super) fn listen(registry: &'static Registry) -> Result<Listening> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.bind_addr(address())?;
    id.listen(4)?;
    Ok(Listening { id, channel })
}

/// An id whose route to the listener is resolved.
pub(super) fn resolve(registry: &'static Registry) -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, address(), TIMEOUT)?;
    expect(&channel, "ADDR_RESOLVED")?;
    id.resolve_route(TIMEOUT)?;
    expect(&channel, "ROUTE_RESOLVED")?;
    Ok((channel, id))
}

/// Makes what a connection needs, and posts a receive into the first half of the buffer.
pub(super) fn furnish(twin: &Arc<Twin>, channel: EventChannel, id: CmId) -> Result<Side> {
    let pd = id.protection_domain()?;
    let context = id.context()?;
    let completions = context.completion_channel()?;
    let cq = context.completion_queue(16).channel(&completions).build()?;
    let attr = QpAttr::new(&pd)
        .send_cq(&cq)
        .recv_cq(&cq)
        .max_inline_data(32);
    let (send, mut recv) = id.create_qp(&attr)?.split();
    twin.note_owner(id.handle(), send.qp_num());
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let buffer = pd.alloc(64, access)?;
    recv.post(RECEIVE, &[buffer.slice(..32)?])?;
    Ok(Side {
        id,
        channel,
        pd,
        completions,
        cq,
        send,
        recv,
        buffer,
    })
}

/// The request that waits at a listener, taken over to a channel of its own.
pub(super) fn fetch(
    registry: &'static Registry,
    listening: &Listening,
) -> Result<(EventChannel, CmId)> {
    let request = match expect(&listening.channel, "CONNECT_REQUEST")? {
        Event::ConnectRequest(request) => request,
        other => return Err(other.into_error("accept")),
    };
    let channel = EventChannel::open_on(registry)?;
    let id = request.into_id();
    id.migrate(&channel)?;
    Ok((channel, id))
}

/// Connects two sides.
pub(super) fn connect(twin: &Arc<Twin>, registry: &'static Registry) -> Result<Pair> {
    let listening = listen(registry)?;
    let (channel, id) = resolve(registry)?;
    let active = furnish(twin, channel, id)?;
    active.id.connect(&ConnParam::new())?;
    let (channel, id) = fetch(registry, &listening)?;
    let passive = furnish(twin, channel, id)?;
    passive.id.accept(&ConnParam::new())?;
    expect(&active.channel, "ESTABLISHED")?;
    expect(&passive.channel, "ESTABLISHED")?;
    Ok(Pair {
        listening,
        active,
        passive,
    })
}

/// Makes a call that the kernel refuses first, with one errno after the other: each is told, and
/// leaves all as it was, so that the call succeeds in the end.
#[track_caller]
pub(super) fn refused_first<T>(
    twin: &Twin,
    command: Command,
    mut call: impl FnMut() -> Result<T>,
) -> T {
    let before = twin.census();
    for errno in [libc::ENOMEM, libc::EINTR, libc::EINVAL, libc::ENXIO] {
        twin.fail(0, errno, move |call| call.is_cm(command));
        let error = call().map(drop).expect_err("the kernel refused");
        assert_eq!(error.errno(), Some(errno), "{command:?}: {error}");
        assert_eq!(twin.census(), before, "{command:?} left something");
    }
    call().unwrap()
}

/// Waits for a certain event; any other is an error.
pub(super) fn expect(channel: &EventChannel, name: &'static str) -> Result<Event> {
    let event = channel.next_event(AT_ONCE)?;
    if event.name() == name {
        Ok(event)
    } else {
        Err(event.into_error(name))
    }
}

const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

/// A message in each direction, then a write and a read.
pub(super) fn exchange(pair: &mut Pair) -> Result<()> {
    let Pair {
        active, passive, ..
    } = pair;
    passive.cq.arm(false)?;
    active.send_inline(b"ping")?;
    assert_eq!(passive.completions.next_event(AT_ONCE)?, passive.cq.token());
    passive.wait_for(&[RECEIVE])?;
    assert_eq!(passive.buffer.read_vec(0, 4)?, b"ping");
    active.wait_for(&[REQUEST])?;

    passive.buffer.write(32, b"pong")?;
    let mut batch = passive.send.batch();
    batch
        .send(REQUEST)
        .signaled()
        .from(&[passive.buffer.slice(32..36)?])?;
    batch.submit()?;
    active.wait_for(&[RECEIVE])?;
    assert_eq!(active.buffer.read_vec(0, 4)?, b"pong");
    passive.wait_for(&[REQUEST])?;

    write_and_read_back(active, passive)
}

fn write_and_read_back(active: &mut Side, passive: &Side) -> Result<()> {
    active.buffer.write(32, b"data")?;
    let remote = passive.buffer.remote().at(8);
    let mut batch = active.send.batch();
    batch
        .write(REQUEST, remote)
        .from(&[active.buffer.slice(32..36)?])?;
    batch
        .read(REQUEST, remote)
        .signaled()
        .into(&[active.buffer.slice(48..52)?])?;
    batch.submit()?;
    active.wait_for(&[REQUEST])?;
    assert_eq!(passive.buffer.read_vec(8, 4)?, b"data");
    assert_eq!(active.buffer.read_vec(48, 4)?, b"data");
    Ok(())
}

impl Side {
    pub(super) fn send_inline(&mut self, message: &[u8]) -> Result<()> {
        let mut batch = self.send.batch();
        batch.send(REQUEST).signaled().inline(message)?;
        Ok(batch.submit()?)
    }

    /// Waits for the completions of these requests, in order.
    pub(super) fn wait_for(&mut self, wr_ids: &[u64]) -> Result<()> {
        for wr_id in wr_ids {
            let mut entries = [Completion::default()];
            let [completion] = self.cq.wait(&mut entries, AT_ONCE)? else {
                return Err(Error::new("wait", ErrorKind::Protocol, "an empty wait"));
            };
            completion.result()?;
            assert_eq!(completion.wr_id(), *wr_id);
        }
        Ok(())
    }
}

/// Both sides disconnect and hear of it, and drop what they have.
pub(super) fn part(pair: Pair) -> Result<()> {
    let Pair {
        active, passive, ..
    } = &pair;
    active.id.disconnect()?;
    expect(&passive.channel, "DISCONNECTED")?;
    passive.id.disconnect()?;
    expect(&active.channel, "DISCONNECTED").map(drop)
}

/// A whole connection's life.
pub(super) fn live(twin: &Arc<Twin>, registry: &'static Registry) -> Result<()> {
    let mut pair = connect(twin, registry)?;
    exchange(&mut pair)?;
    part(pair)
}
