//! Connection ids.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rdmacm_kernel_abi::ucma;

use super::command::Request;
use super::conn_param::Offer;
use super::multicast::{self, Group};
use super::service::Lookup;
use super::{Address, Ece, EventChannel, PortSpace};
use crate::device::{Context, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::QpType;
use crate::qp_table::{self, QpEntry, QpKey};
use crate::slot_table::{Key, SlotTable};
use crate::verbs::Pd;

/// A connection id: one end of a connection, or a listener.
///
/// A cheap handle: clones and events refer to the same id. The id is destroyed by
/// [`CmId::destroy`], or when the last handle is dropped; its queue pair is always destroyed
/// before it.
///
/// All methods may be called from any thread; those that move the queue pair exclude each other.
/// An id makes one connection in its life: after a disconnect or a rejection make a new one.
#[doc(alias = "rdma_cm_id")]
#[derive(Clone)]
pub struct CmId(Arc<IdInner>);

struct IdInner {
    key: Key,
    handle: u32,
    port_space: PortSpace,
    qp_type: QpType,
    state: Mutex<State>,
}

/// What changes in an id's life. Held while a command is under way, so that commands of one id do
/// not overtake each other.
pub(super) struct State {
    alive: bool,
    pub(super) channel: EventChannel,
    /// Whether the id is the only one on its channel and has one owner, who may be asleep on it.
    pub(super) owns_channel: bool,
    pub(super) device: Option<DeviceBinding>,
    pub(super) local: Option<Address>,
    pub(super) peer: Option<Address>,
    /// The route is being resolved or is there.
    pub(super) route_resolved: bool,
    /// What the peer's request offers, on the passive side.
    pub(super) offer: Option<Offer>,
    pub(super) stage: Stage,
    /// The device was removed.
    pub(super) is_removed: bool,
    /// The queue pair, in the table's care.
    pub(super) qp: Option<QpKey>,
    /// Whether the id listens.
    pub(super) listening: bool,
    /// Channels that the id listened on before it was migrated.
    pub(super) former: Vec<EventChannel>,
    /// Vendor options: what this side offers, and the peer's.
    pub(super) local_ece: Option<Ece>,
    pub(super) remote_ece: Option<Ece>,
    /// The multicast groups that the id is in or about to be in.
    pub(super) groups: Vec<Group>,
    /// What is looked up for the id.
    pub(super) lookup: Lookup,
    /// Moving the queue pair failed: the kernel's later events of this connection are aftermath.
    pub(super) failed: bool,
}

/// How far an id's connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    New,
    /// Asked for or accepted.
    Asked,
    /// The peer has accepted, and the program has to finish ([`CmId::establish`]).
    Answered,
    Established,
    /// Ended, or never made. The event that says so was read.
    Over,
}

/// The device that the id's address leads to.
#[derive(Debug, Clone)]
pub(super) struct DeviceBinding {
    pub context: Context,
    pub port: u8,
}

/// All ids of the process by the cookie that the kernel's events carry.
static IDS: Mutex<SlotTable<Weak<IdInner>>> = Mutex::new(SlotTable::new());

fn ids() -> MutexGuard<'static, SlotTable<Weak<IdInner>>> {
    IDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The id that an event's cookie stands for, if it is still there.
pub(super) fn find(cookie: u64) -> Option<CmId> {
    ids().get(Key::from_cookie(cookie))?.upgrade().map(CmId)
}

impl CmId {
    pub(super) fn create(
        channel: &EventChannel,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Result<Self> {
        // No event can name the id before it has been given something to do.
        let key = ids().insert(Weak::new());
        let request = ucma::CreateId {
            uid: key.to_cookie(),
            ps: port_space.to_kernel().0,
            qp_type: qp_type.to_kernel().0,
            ..Default::default()
        };
        match channel.call(&request) {
            Ok(response) => Ok(Self::new(channel, key, response.id, port_space, qp_type)),
            Err(error) => {
                ids().remove(key);
                Err(Error::from_os("create_id", &error))
            }
        }
    }

    /// An id that the kernel made for a connection request; of the kind of its listener, if that
    /// is still there.
    pub(super) fn adopt(channel: &EventChannel, handle: u32, listener: Option<&Self>) -> Self {
        let key = ids().insert(Weak::new());
        let port_space = listener.map_or(PortSpace::Tcp, Self::port_space);
        let qp_type = listener.map_or(QpType::Rc, Self::qp_type);
        Self::new(channel, key, handle, port_space, qp_type)
    }

    fn new(
        channel: &EventChannel,
        key: Key,
        handle: u32,
        port_space: PortSpace,
        qp_type: QpType,
    ) -> Self {
        let state = State {
            alive: true,
            channel: channel.clone(),
            owns_channel: false,
            device: None,
            local: None,
            peer: None,
            route_resolved: false,
            local_ece: None,
            remote_ece: None,
            groups: Vec::new(),
            lookup: Lookup::default(),
            offer: None,
            stage: Stage::New,
            is_removed: false,
            qp: None,
            listening: false,
            former: Vec::new(),
            failed: false,
        };
        let inner = Arc::new(IdInner {
            key,
            handle,
            port_space,
            qp_type,
            state: Mutex::new(state),
        });
        ids().replace(key, Arc::downgrade(&inner));
        Self(inner)
    }

    /// The id's port space.
    pub fn port_space(&self) -> PortSpace {
        self.0.port_space
    }

    /// The kind of queue pair that the id is for.
    pub fn qp_type(&self) -> QpType {
        self.0.qp_type
    }

    /// Whether requests come for the id.
    pub(crate) fn is_listening(&self) -> bool {
        self.0.state().listening
    }

    /// Whether the connection is made, and its end was not read.
    pub(crate) fn is_connected(&self) -> bool {
        self.0.state().stage == Stage::Established
    }

    /// Whether the end of the connection, or of the attempt, was read.
    pub(crate) fn is_over(&self) -> bool {
        self.0.state().stage == Stage::Over
    }

    /// Whether the removal of the id's device was read.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.state().is_removed
    }

    /// Whether the id exchanges datagrams with its peers, and has no connections.
    pub(super) fn is_datagram(&self) -> bool {
        self.0.qp_type == QpType::Ud
    }

    /// The local IP address, once the id is bound or resolved. [`CmId::local_ib_addr`] has the GID
    /// behind it.
    #[doc(alias("rdma_get_local_addr", "rdma_get_src_port"))]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.0.state().local.and_then(|address| address.ip())
    }

    /// The peer's IP address, once the id is resolved or came with a request.
    #[doc(alias("rdma_get_peer_addr", "rdma_get_dst_port"))]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.state().peer.and_then(|address| address.ip())
    }

    /// The device that the id's address leads to, opened.
    ///
    /// # Errors
    ///
    /// Before the address is resolved (a listener on a wildcard address has no device).
    pub fn context(&self) -> Result<Context> {
        Ok(self.0.state().binding("context")?.context.clone())
    }

    /// The port of the device that the id's address leads to.
    ///
    /// # Errors
    ///
    /// As [`CmId::context`].
    pub fn port(&self) -> Result<u8> {
        Ok(self.0.state().binding("port")?.port)
    }

    /// The protection domain that all ids on the device share unless told otherwise, as in the C
    /// library: buffers can be used on all of them, and a remote key that one peer was told works
    /// over the connections of the others as well. [`Context::alloc_pd`] makes one apart.
    ///
    /// # Errors
    ///
    /// As [`CmId::context`], and when the device is out of protection domains.
    pub fn protection_domain(&self) -> Result<Pd> {
        self.context()?.default_pd()
    }

    /// Destroys the id now, its queue pair first. The peer of a connection is told. Other handles
    /// and events of the id stay valid. What they know they still tell ([`CmId::local_addr`],
    /// [`CmId::peer_addr`]), [`CmId::destroy_qp`] finds nothing to destroy, and calls that need the
    /// kernel fail with [`ErrorKind::Destroyed`].
    ///
    /// Never waits for events that were read or not read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Destroyed`] when it was destroyed before; the kernel's refusal, after which
    /// the id is as it was.
    #[doc(alias("rdma_destroy_id", "rdma_destroy_ep"))]
    pub fn destroy(&self) -> Result<()> {
        let mut state = self.0.state();
        state.check_alive("destroy_id")?;
        self.0.destroy(&mut state)
    }

    /// Says that the id is alone on its channel, and that whoever waits there waits for this id:
    /// its destruction ends the wait.
    pub(crate) fn own_channel(&self) {
        self.0.state().owns_channel = true;
    }

    pub(super) fn handle(&self) -> u32 {
        self.0.handle
    }

    pub(super) fn cookie(&self) -> u64 {
        self.0.key.to_cookie()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the state: whoever prints an id may hold its lock.
        f.debug_struct("CmId")
            .field("handle", &self.0.handle)
            .field("port_space", &self.0.port_space)
            .field("qp_type", &self.0.qp_type)
            .finish_non_exhaustive()
    }
}

/// The same id, not merely an equal one.
impl PartialEq for CmId {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for CmId {}

/// For finding a program's own state of an id in a map.
impl Hash for CmId {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.key.hash(hasher);
    }
}

impl State {
    pub(super) fn check_alive(&self, operation: &'static str) -> Result<()> {
        if self.alive {
            return Ok(());
        }
        Err(Error::new(
            operation,
            ErrorKind::Destroyed,
            "the id was destroyed",
        ))
    }

    pub(super) fn binding(&self, operation: &'static str) -> Result<&DeviceBinding> {
        self.check_alive(operation)?;
        self.device.as_ref().ok_or_else(|| {
            Error::new(
                operation,
                ErrorKind::InvalidState,
                "the id has no device yet: resolve an address first, or bind it to one that is \
                 not a wildcard",
            )
        })
    }

    /// The transport of the id's device, once it has one.
    pub(super) fn transport(&self) -> Option<Transport> {
        self.device
            .as_ref()
            .map(|binding| binding.context.device().transport())
    }

    /// The queue pair, while it is not destroyed.
    pub(super) fn qp_entry(&self) -> Option<Arc<QpEntry>> {
        self.qp.and_then(qp_table::get)
    }

    /// Sends a command about the id.
    pub(super) fn call<R: Request>(
        &self,
        operation: &'static str,
        request: &R,
    ) -> Result<R::Response> {
        self.check_alive(operation)?;
        self.channel
            .call(request)
            .map_err(|error| Error::from_os(operation, &error))
    }

    pub(super) fn destroy_qp(&mut self) -> Result<bool> {
        let Some(key) = self.qp else { return Ok(false) };
        let destroyed = qp_table::destroy(key)?;
        self.qp = None;
        if self.owns_channel {
            // Nothing completes any more.
            self.channel.interrupt();
        }
        Ok(destroyed)
    }
}

impl IdInner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue pair, then the id: never the other way round, and no id without its queue pair.
    fn destroy(&self, state: &mut State) -> Result<()> {
        state.destroy_qp()?;
        let request = ucma::DestroyId {
            id: self.handle,
            ..Default::default()
        };
        // The answer counts the events that were read. Nobody has to wait until they are
        // acknowledged, since they hold a cookie and no pointer.
        state.call("destroy_id", &request)?;
        state.alive = false;
        if state.owns_channel {
            state.channel.close();
        }
        // Handles and events of the id may be kept; they must not keep the device open.
        state.device = None;
        state.former.clear();
        multicast::forget(&mut state.groups);
        ids().remove(self.key);
        Ok(())
    }
}

impl Drop for IdInner {
    fn drop(&mut self) {
        let mut state = self.state();
        if !state.alive {
            return;
        }
        // There is nobody to tell. One more attempt covers a passing shortage or a signal; an id
        // that is still refused, or whose queue pair is, goes with its channel.
        if self.destroy(&mut state).is_err() && self.destroy(&mut state).is_err() {
            ids().remove(self.key);
            multicast::forget(&mut state.groups);
            if let Some(key) = state.qp.take() {
                qp_table::abandon(key);
            }
        }
    }
}
