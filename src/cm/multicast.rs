//! Multicast groups.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmacm_kernel_abi::ucma;

use super::event::{Event, IdEvent};
use super::id::{self, State};
use super::{Address, CmId, Status, address, command, explain};
use crate::device::Gid;
use crate::error::{Error, ErrorKind, Result};
use crate::qp_table::QpKey;
use crate::slot_table::{Key, SlotTable};

/// What a member of a multicast group does.
#[doc(alias("rdma_cm_join_mc_attr_ex", "rdma_cm_mc_join_flags"))]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Membership {
    /// Sends to the group and receives what others send.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    Full,
    /// Sends to the group. On InfiniBand such a member causes no traffic to its port; not every
    /// subnet manager knows it.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnly,
}

/// A group that an id is in or about to be in.
#[derive(Debug)]
pub(super) struct Group {
    key: Key,
    /// The kernel's number of the membership, which are counted apart from ids.
    handle: u32,
    address: Address,
    membership: Membership,
    /// The queue pair that was attached to the group, and the group's GID and LID.
    attached: Option<(QpKey, Gid, u16)>,
}

/// The cookies of the ids that are in groups, by the cookies that the groups' events carry.
static GROUPS: Mutex<SlotTable<u64>> = Mutex::new(SlotTable::new());

fn groups() -> MutexGuard<'static, SlotTable<u64>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a number is the cookie of a group that some id is in.
#[cfg(test)]
pub(super) fn is_known(cookie: u64) -> bool {
    groups().get(Key::from_cookie(cookie)).is_some()
}

/// Lets go of the groups of an id that is destroyed, which left them all.
pub(super) fn forget(left: &mut Vec<Group>) {
    let mut table = groups();
    for group in left.drain(..) {
        table.remove(group.key);
    }
}

impl CmId {
    /// Begins to join a multicast group. The outcome is the event
    /// [`MulticastJoined`](Event::MulticastJoined), with the way to the group, or
    /// [`MulticastError`](Event::MulticastError). When a full member has a queue pair by then, that
    /// is attached to the group; a queue pair that is made later, or that is not the id's, is
    /// attached with [`Qp::attach_multicast`](crate::Qp::attach_multicast).
    ///
    /// The port is of no meaning for the group, but [`CmId::leave_multicast`] wants it as it was
    /// given here. An id stays in its groups when its queue pair is destroyed; a new one is
    /// attached by hand.
    ///
    /// An id can be in several groups. It leaves them with [`CmId::leave_multicast`], or when it is
    /// destroyed. RoCE has groups of IPv4 addresses only.
    ///
    /// Receives need room for the [`GRH_LENGTH`](crate::GRH_LENGTH) bytes in front of each
    /// datagram.
    ///
    /// ```no_run
    /// # fn example(id: &rdmacm::CmId) -> rdmacm::Result<()> {
    /// use std::net::SocketAddr;
    /// use rdmacm::Membership;
    ///
    /// let group: SocketAddr = "239.1.2.3:0".parse().unwrap();
    /// id.join_multicast(group, Membership::Full)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Ids that are not for datagrams or have no device yet, addresses that are no group's, groups
    /// that the kernel cannot join.
    #[doc(alias("rdma_join_multicast", "rdma_join_multicast_ex"))]
    pub fn join_multicast(&self, group: impl Into<Address>, membership: Membership) -> Result<()> {
        let (operation, address) = ("join_multicast", group.into());
        if !self.is_datagram() {
            return Err(Error::invalid(
                operation,
                "only ids for datagrams join groups (PortSpace::Udp, PortSpace::Ipoib)",
            ));
        }
        check_group(operation, &address)?;
        let mut state = self.state();
        state.binding(operation)?;
        // The event can come before the answer; whoever reads it waits for the state.
        let key = groups().insert(self.cookie());
        let (addr, addr_size) = address::encode(&address);
        let request = ucma::JoinMcast {
            uid: key.to_cookie(),
            id: self.handle(),
            addr_size,
            join_flags: match membership {
                Membership::Full => ucma::McJoinFlags::FULLMEMBER.0,
                Membership::SendOnly => ucma::McJoinFlags::SENDONLY_FULLMEMBER.0,
            },
            addr,
            ..Default::default()
        };
        match state.call(operation, &request) {
            Ok(answer) => {
                state.groups.push(Group {
                    key,
                    handle: answer.id,
                    address,
                    membership,
                    attached: None,
                });
                Ok(())
            }
            Err(error) => {
                groups().remove(key);
                Err(explain::join_multicast(error, &address))
            }
        }
    }

    /// Leaves a multicast group, given as it was joined. False when the id is not in it. A queue
    /// pair that the join has attached is detached. Events of the group that wait are dropped; none
    /// has to be dealt with before. A group that was joined twice is left once.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; the id is then still in the group, though its queue pair may be
    /// detached.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: impl Into<Address>) -> Result<bool> {
        let address = group.into();
        let mut state = self.state();
        state.check_alive("leave_multicast")?;
        let earliest = state
            .groups
            .iter()
            .position(|group| group.address == address);
        match earliest {
            None => Ok(false),
            Some(at) => self.leave(&mut state, at).map(|()| true),
        }
    }

    /// Takes back the latest join of a group, which has failed. There is no use for a failure of
    /// that.
    pub(crate) fn unjoin(&self, address: &Address) {
        let mut state = self.state();
        let latest = state
            .groups
            .iter()
            .rposition(|group| group.address == *address);
        if let Some(at) = latest {
            let _ = self.leave(&mut state, at);
        }
    }

    fn leave(&self, state: &mut State, at: usize) -> Result<()> {
        let operation = "leave_multicast";
        state.detach(at)?;
        let request = command::LeaveMcast::of(state.groups[at].handle);
        state.call(operation, &request)?;
        let left = state.groups.remove(at);
        groups().remove(left.key);
        Ok(())
    }
}

impl State {
    /// Attaches the queue pair to the group, where it is to receive from it.
    fn attach(&mut self, at: usize, gid: Gid, lid: u16) -> Result<()> {
        let (key, qp) = (self.qp, self.qp_entry());
        let group = &mut self.groups[at];
        if let (Some(key), Some(qp), Membership::Full) = (key, qp, group.membership) {
            qp.attach(gid, lid)?;
            group.attached = Some((key, gid, lid));
        }
        Ok(())
    }

    /// Undoes [`State::attach`], unless another membership of the id leads to the same group.
    fn detach(&mut self, at: usize) -> Result<()> {
        let attached = self.groups[at].attached;
        let is_shared = self
            .groups
            .iter()
            .enumerate()
            .any(|(other, group)| other != at && group.attached == attached);
        if let (Some((key, gid, lid)), Some(qp), false) = (attached, self.qp_entry(), is_shared)
            && self.qp == Some(key)
        {
            qp.detach(gid, lid)?;
        }
        self.groups[at].attached = None;
        Ok(())
    }
}

/// Turns the kernel's record about a group into an event. `None` when the id has left it.
pub(super) fn receive(raw: &ucma::EventResp) -> Option<Event> {
    let key = Key::from_cookie(raw.uid);
    let cookie = *groups().get(key)?;
    let id = id::find(cookie)?;
    let mut state = id.state();
    let at = state.groups.iter().position(|group| group.key == key)?;
    let group = state.groups[at].address;
    let mut event = IdEvent::new(id.clone(), raw, true);
    let mut kind = raw.event_type();
    if let (ucma::EventType::MULTICAST_JOIN, Status::Success, Some(way)) =
        (kind, event.status, event.datagram)
        && let Err(error) = state.attach(at, way.path.gid, way.path.lid)
    {
        kind = event.fail(ucma::EventType::MULTICAST_ERROR, error);
    }
    drop(state);
    Some(match kind {
        ucma::EventType::MULTICAST_JOIN => Event::MulticastJoined { group, event },
        _ => Event::MulticastError { group, event },
    })
}

/// The kernel joins whatever it is given.
fn check_group(operation: &'static str, address: &Address) -> Result<()> {
    let is_group = match address {
        // The wildcard asks an InfiniBand subnet for a group of its choice.
        Address::Ip(address) => address.ip().is_multicast() || address.ip().is_unspecified(),
        Address::Ib(address) => address.gid.0[0] == 0xff || address.gid.0 == [0; 16],
    };
    if is_group {
        return Ok(());
    }
    Err(Error::new(
        operation,
        ErrorKind::InvalidInput,
        format!("{address} is not the address of a multicast group"),
    ))
}
