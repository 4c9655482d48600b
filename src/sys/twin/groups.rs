//! Multicast groups that ids are in.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};

use rdmacm_kernel_abi::ucma::{self, EventResp, EventType};
use rdmacm_kernel_abi::uverbs::{AhAttr, GlobalRoute};

use super::address::decode;
use super::cm::{Answer, Phase, record, take};
use super::files::{FileId, QueuedEvent};
use super::{Outcome, World};

/// The kernel's own number for what it does not support.
const ENOTSUPP: i32 = 524;
/// Number that all queue pairs of a group have besides their own.
const MULTICAST_QP: u32 = 0xff_ffff;
/// Key of the datagrams of the UDP port space.
pub(super) const UDP_QKEY: u32 = 0x0123_4567;

/// A membership.
#[derive(Debug)]
struct Group {
    id: u32,
    cookie: u64,
    /// Events that the program has read.
    reported: u32,
}

/// Memberships by their numbers, which are counted apart from ids.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<u32, Group>);

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Ends the memberships of an id.
    pub(super) fn remove_of(&mut self, id: u32) {
        self.0.retain(|_, group| group.id != id);
    }

    pub(super) fn count_reported(&mut self, handle: Option<u32>) {
        if let Some(group) = handle.and_then(|handle| self.0.get_mut(&handle)) {
            group.reported += 1;
        }
    }
}

impl World {
    pub(super) fn join(
        &mut self,
        file: FileId,
        request: &ucma::JoinMcast,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::JoinMcast, response))?;
        let address = decode(&request.addr, request.addr_size)?;
        let id = self.alive(file, request.id)?;
        let may_join = id.device.is_some()
            && id.is_datagram()
            && [Phase::Bound, Phase::AddressResolved].contains(&id.phase);
        if !may_join || request.join_flags > ucma::McJoinFlags::SENDONLY_FULLMEMBER.0 {
            return Err(libc::EINVAL);
        }
        let SocketAddr::V4(address) = address else {
            return Err(ENOTSUPP);
        };
        let is_free = |handle: &u32| !self.groups.0.contains_key(handle);
        let handle = (0..).find(is_free).expect("a test joins few groups");
        let group = Group {
            id: request.id,
            cookie: request.uid,
            reported: 0,
        };
        self.groups.0.insert(handle, group);
        let way = way_to(IpAddr::V4(*address.ip()), MULTICAST_QP);
        // On Ethernet there is nobody to ask.
        self.emit_for_group(handle, EventType::MULTICAST_JOIN, |event| {
            *event = record(
                event.uid,
                event.id,
                EventType::MULTICAST_JOIN,
                0,
                Some(&way),
            );
        });
        answer.put(&ucma::CreateIdResp { id: handle })
    }

    pub(super) fn leave(
        &mut self,
        file: FileId,
        request: &ucma::DestroyId,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::DestroyId, response))?;
        let group = self.groups.0.get(&request.id).ok_or(libc::ENOENT)?;
        let (id, events_reported) = (group.id, group.reported);
        self.ids.on_file(file, id)?;
        self.groups.0.remove(&request.id);
        // Nobody hears of it any more.
        take(self.files.events(file)?, |event| {
            event.group == Some(request.id)
        });
        answer.put(&ucma::DestroyIdResp { events_reported })
    }

    /// Queues an event of a group.
    pub(super) fn emit_for_group(
        &mut self,
        handle: u32,
        kind: EventType,
        change: impl FnOnce(&mut EventResp),
    ) {
        let group = self.groups.0.get(&handle).expect("the group is there");
        let (owner, cookie) = (group.id, group.cookie);
        let mut record = record(cookie, owner, kind, 0, None::<&ucma::UdParam>);
        change(&mut record);
        let file = self.ids.get(owner).expect("its id is there").file;
        let group = Some(handle);
        self.queue(
            file,
            QueuedEvent {
                owner,
                child: None,
                group,
                record,
            },
        );
    }
}

/// The way to an address, and to a queue pair there.
pub(super) fn way_to(ip: IpAddr, qp_num: u32) -> ucma::UdParam {
    let dgid = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    ucma::UdParam {
        qp_num,
        qkey: UDP_QKEY,
        ah_attr: AhAttr {
            grh: GlobalRoute {
                dgid,
                hop_limit: 64,
                ..Default::default()
            },
            is_global: 1,
            port_num: 1,
            ..Default::default()
        },
        ..Default::default()
    }
}
