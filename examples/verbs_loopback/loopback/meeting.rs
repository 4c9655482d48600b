//! How queue pairs of an iWARP device come together: through the connection manager, which nothing
//! there does without.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use rdmacm::{CmId, ConnParam, Context, Event, EventChannel, PortSpace, Qp, QpAttr};

use super::Result;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a queue pair is made.
pub type Create<'a> = &'a dyn Fn(&QpAttr<'_>) -> rdmacm::Result<Qp>;

/// The ids of both ends, which live as long as their connection.
pub struct Meeting {
    _ids: [CmId; 2],
    _channels: [EventChannel; 2],
}

/// Connects the device with itself. `make` makes each side, the one that connects first.
pub fn meet<S>(
    context: &Context,
    make: impl Fn(usize, Create<'_>) -> Result<S>,
) -> Result<(Meeting, [S; 2])> {
    let address = own_address(context)?;
    let channels = [EventChannel::open()?, EventChannel::open()?];
    let listener = channels[1].create_id(PortSpace::Tcp)?;
    listener.bind_addr(SocketAddr::new(address, 0))?;
    listener.listen(1)?;
    let to = listener.local_addr().ok_or("the listener has no address")?;

    let active = channels[0].create_id(PortSpace::Tcp)?;
    active.resolve_addr(None, to, PATIENCE)?;
    channels[0].expect("resolve_addr", Some(PATIENCE), |event| {
        matches!(event, Event::AddressResolved(_))
    })?;
    active.resolve_route(PATIENCE)?;
    channels[0].expect("resolve_route", Some(PATIENCE), |event| {
        matches!(event, Event::RouteResolved(_))
    })?;
    let first = make(0, &|attr| active.create_qp(attr))?;
    active.connect(&ConnParam::new())?;

    let passive = match channels[1].next_event(Some(PATIENCE))? {
        Event::ConnectRequest(request) => request.into_id(),
        other => return Err(other.into_error("get_request").into()),
    };
    let second = make(1, &|attr| passive.create_qp(attr))?;
    passive.accept(&ConnParam::new())?;
    for channel in &channels {
        channel.expect("connect", Some(PATIENCE), |event| {
            matches!(event, Event::Established(_))
        })?;
    }
    let meeting = Meeting {
        _ids: [active, passive],
        _channels: channels,
    };
    Ok((meeting, [first, second]))
}

/// An address of this machine that leads to the device.
fn own_address(context: &Context) -> Result<IpAddr> {
    let channel = EventChannel::open()?;
    for interface in getifaddrs()? {
        let Some(address) = interface.address.as_ref().and_then(to_ip) else {
            continue;
        };
        let id = channel.create_id(PortSpace::Tcp)?;
        let is_bound = id.bind_addr(SocketAddr::new(address, 0)).is_ok();
        if is_bound && id.context().is_ok_and(|found| found.same_as(context)) {
            return Ok(address);
        }
    }
    let name = context.device().name();
    Err(
        format!("no address of this machine leads to {name}: has its network interface one?")
            .into(),
    )
}

/// Addresses of one link only are left out.
fn to_ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(v4.ip().into());
    }
    let v6 = address.as_sockaddr_in6()?.ip();
    (!v6.is_unicast_link_local()).then_some(v6.into())
}
