//! The objects of a device.

use std::collections::BTreeMap;

use rdmacm_kernel_abi::uverbs::{AhAttr, QpState, QpType, QueryQpResp};

use super::Outcome;
use super::files::FileId;
use super::memory::PagesId;
use super::ring::Ring;

/// Names an object: handles count from 0 upward on each file, and are used again.
pub(super) type ObjectId = (FileId, u32);

#[derive(Debug)]
pub(super) enum Object {
    Pd,
    Mr(Mr),
    Mw(Mw),
    Ah(Ah),
    Cq(Cq),
    Srq(Srq),
    Qp(Box<Qp>),
    Xrcd,
}

/// Whom asynchronous events of an object are about, and where they go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reporter {
    pub file: Option<FileId>,
    pub token: u64,
}

impl Object {
    /// Those of whom there are asynchronous events.
    pub(super) fn reporter(&self) -> Option<Reporter> {
        match self {
            Self::Cq(cq) => Some(cq.reporter),
            Self::Srq(srq) => Some(srq.reporter),
            Self::Qp(qp) => Some(qp.reporter),
            Self::Pd | Self::Mr(_) | Self::Mw(_) | Self::Ah(_) | Self::Xrcd => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Mr {
    pub pd: ObjectId,
    pub start: u64,
    pub length: u64,
    pub key: u32,
    pub access: u32,
    /// The memory it lies in, where that is the twin's.
    pub pages: Option<PagesId>,
}

#[derive(Debug)]
pub(super) struct Mw {
    pub pd: ObjectId,
    pub is_type_2: bool,
    pub rkey: u32,
    /// What it opens; nothing while it is closed.
    pub binding: Option<Binding>,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub region: ObjectId,
    pub start: u64,
    pub length: u64,
    pub access: u32,
    /// The queue pair through which peers can use it; any where there is none.
    pub only_for: Option<ObjectId>,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub ring: Ring,
    pub channel: Option<FileId>,
    pub reporter: Reporter,
    pub armed: Option<Armed>,
    pub events: u32,
    /// Completions, and microseconds, that an event waits for.
    pub moderation: (u16, u16),
}

/// Which completion gives an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    Any,
    Solicited,
}

#[derive(Debug)]
pub(super) struct Ah {
    pub pd: ObjectId,
    /// What requests name it by.
    pub number: u32,
    pub attr: AhAttr,
}

#[derive(Debug)]
pub(super) struct Srq {
    pub pd: ObjectId,
    /// Those of an XRC domain have one, and a completion queue.
    pub xrc: Option<[ObjectId; 2]>,
    pub ring: Ring,
    pub max_sge: u32,
    pub limit: u32,
    pub reporter: Reporter,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub kind: QpType,
    pub reporter: Reporter,
    /// None where it belongs to an XRC domain.
    pub pd: Option<ObjectId>,
    pub send_cq: Option<ObjectId>,
    pub recv_cq: Option<ObjectId>,
    pub srq: Option<ObjectId>,
    pub xrcd: Option<ObjectId>,
    pub send_ring: Option<Ring>,
    pub recv_ring: Option<Ring>,
    /// Multicast groups, GID and LID.
    pub groups: Vec<([u8; 16], u16)>,
    /// What was set of it.
    pub attr: QueryQpResp,
    pub number: u32,
    pub state: QpState,
    /// Number of the peer's queue pair.
    pub peer: u32,
    pub signals_all: bool,
    /// The doorbell was rung, and requests may be left.
    pub is_kicked: bool,
}

#[derive(Debug, Default)]
pub(super) struct Objects {
    pub all: BTreeMap<ObjectId, Object>,
    made: u32,
}

impl Objects {
    pub(super) fn insert(&mut self, file: FileId, object: Object) -> u32 {
        let is_free = |handle: &u32| !self.all.contains_key(&(file, *handle));
        let handle = (0..).find(is_free).expect("a test makes few objects");
        self.all.insert((file, handle), object);
        handle
    }

    /// A number that no other queue pair and no key has.
    pub(super) fn next_number(&mut self) -> u32 {
        self.made += 1;
        0x10 + self.made
    }

    pub(super) fn check_pd(&self, pd: ObjectId) -> Outcome {
        matches!(self.all.get(&pd), Some(Object::Pd))
            .then_some(())
            .ok_or(libc::ENOENT)
    }

    pub(super) fn cq(&mut self, id: ObjectId) -> Outcome<&mut Cq> {
        match self.all.get_mut(&id) {
            Some(Object::Cq(cq)) => Ok(cq),
            _ => Err(libc::ENOENT),
        }
    }

    pub(super) fn srq(&mut self, id: ObjectId) -> Outcome<&mut Srq> {
        match self.all.get_mut(&id) {
            Some(Object::Srq(srq)) => Ok(srq),
            _ => Err(libc::ENOENT),
        }
    }

    pub(super) fn mr(&mut self, id: ObjectId) -> Outcome<&mut Mr> {
        match self.all.get_mut(&id) {
            Some(Object::Mr(mr)) => Ok(mr),
            _ => Err(libc::ENOENT),
        }
    }

    pub(super) fn check_xrcd(&self, xrcd: ObjectId) -> Outcome {
        matches!(self.all.get(&xrcd), Some(Object::Xrcd))
            .then_some(())
            .ok_or(libc::ENOENT)
    }

    pub(super) fn qp(&mut self, id: ObjectId) -> Outcome<&mut Qp> {
        match self.all.get_mut(&id) {
            Some(Object::Qp(qp)) => Ok(qp),
            _ => Err(libc::ENOENT),
        }
    }

    pub(super) fn qps(&self) -> impl Iterator<Item = (ObjectId, &Qp)> {
        self.all.iter().filter_map(|(id, object)| match object {
            Object::Qp(qp) => Some((*id, &**qp)),
            _ => None,
        })
    }

    /// The address handle that requests name by a number.
    pub(super) fn ah_of_number(&self, number: u32) -> Option<&Ah> {
        self.all.values().find_map(|object| match object {
            Object::Ah(ah) if ah.number == number => Some(ah),
            _ => None,
        })
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = (ObjectId, &Mr)> {
        self.all.iter().filter_map(|(id, object)| match object {
            Object::Mr(mr) => Some((*id, mr)),
            _ => None,
        })
    }

    pub(super) fn region(&self, id: ObjectId) -> Option<&Mr> {
        match self.all.get(&id) {
            Some(Object::Mr(mr)) => Some(mr),
            _ => None,
        }
    }

    /// The memory window that has a key now.
    pub(super) fn window(&self, key: u32) -> Option<(ObjectId, &Mw)> {
        self.all.iter().find_map(|(id, object)| match object {
            Object::Mw(window) if window.rkey == key => Some((*id, window)),
            _ => None,
        })
    }

    /// Whether a memory window is open through a queue pair.
    pub(super) fn is_used_by_windows(&self, qp: ObjectId) -> bool {
        self.all.values().any(|object| match object {
            Object::Mw(window) => {
                matches!(&window.binding, Some(bound) if bound.only_for == Some(qp))
            }
            _ => false,
        })
    }

    /// Whether a memory window is bound to a region.
    pub(super) fn has_windows(&self, region: ObjectId) -> bool {
        self.all.values().any(|object| match object {
            Object::Mw(window) => matches!(&window.binding, Some(bound) if bound.region == region),
            _ => false,
        })
    }

    /// Whether another object needs this one, or it needs to leave a group first.
    pub(super) fn is_busy(&self, id: ObjectId) -> bool {
        let is_needed = self.all.values().any(|object| match object {
            Object::Mr(mr) => mr.pd == id,
            Object::Mw(window) => window.pd == id,
            Object::Ah(ah) => ah.pd == id,
            Object::Srq(srq) => srq.pd == id || srq.xrc.is_some_and(|xrc| xrc.contains(&id)),
            Object::Qp(qp) => [qp.pd, qp.send_cq, qp.recv_cq, qp.srq, qp.xrcd].contains(&Some(id)),
            Object::Pd | Object::Cq(_) | Object::Xrcd => false,
        });
        let is_attached =
            matches!(self.all.get(&id), Some(Object::Qp(qp)) if !qp.groups.is_empty());
        is_needed || is_attached
    }
}
