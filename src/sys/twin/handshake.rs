//! Connections between two ids: who hears what of which step.

use std::mem::offset_of;

use rdmacm_kernel_abi::ucma::{self, ConnParam, EventType};
use rdmacm_kernel_abi::uverbs::{self, QpAttrMask, QpState};

use super::cm::{Answer, Phase, record};
use super::files::{FileId, QueuedEvent};
use super::{Outcome, World};

/// Reasons of a rejection.
const NOBODY_LISTENS: i32 = 8;
const CONSUMER_DEFINED: i32 = 28;

/// Private data arrives with the length of the message that carried it.
const IN_REQUEST: u8 = 56;
const IN_REPLY: u8 = 196;
const IN_REJECTION: u8 = 148;

impl World {
    pub(super) fn connect(&mut self, file: FileId, request: &ucma::Connect) -> Outcome {
        let param = &request.conn_param;
        let id = self.alive(file, request.id)?;
        let misfit = param.valid == 0 || param.private_data_len > IN_REQUEST;
        if id.phase != Phase::RouteResolved || misfit {
            return Err(libc::EINVAL);
        }
        id.phase = Phase::Connecting;
        id.qp_num = param.qp_num;
        let listener = self.listener_for(request.id)?;
        let Some(listener) = listener else {
            self.ids.get(request.id)?.phase = Phase::Closed;
            self.emit(request.id, EventType::REJECTED, NOBODY_LISTENS, None);
            return Ok(());
        };
        self.queue_request(listener, request.id, &seen_by_peer(param, IN_REQUEST))
    }

    /// The id that listens where `handle` wants to connect to.
    fn listener_for(&mut self, handle: u32) -> Outcome<Option<u32>> {
        let wanted = self.ids.get(handle)?.remote.ok_or(libc::EINVAL)?;
        let listens = |local: std::net::SocketAddr| {
            local.port() == wanted.port()
                && (local.ip() == wanted.ip() || local.ip().is_unspecified())
        };
        let found = self.ids.0.iter().find(|(_, id)| {
            id.phase == Phase::Listening && !id.is_device_gone && id.local.is_some_and(listens)
        });
        Ok(found.map(|(listener, _)| *listener))
    }

    /// Makes the new id that a request brings, and tells the listener.
    fn queue_request(&mut self, listener: u32, active: u32, param: &ConnParam) -> Outcome {
        let listening = self.ids.get(listener)?;
        let (file, cookie) = (listening.file, listening.cookie);
        let child = self.ids.insert(file, 0);
        let asking = self.ids.get(active)?;
        asking.peer = Some(child);
        let (local, remote, device) = (asking.remote, asking.local, asking.device);
        let new = self.ids.get(child)?;
        (new.local, new.remote, new.device) = (local, remote, device);
        (new.peer, new.phase) = (Some(active), Phase::Requested);
        new.depths = depths(param);
        let record = record(cookie, child, EventType::CONNECT_REQUEST, 0, Some(param));
        self.queue(
            file,
            QueuedEvent {
                owner: listener,
                child: Some(child),
                record,
            },
        );
        Ok(())
    }

    pub(super) fn accept(&mut self, file: FileId, request: &ucma::Accept) -> Outcome {
        match self.alive(file, request.id)?.phase {
            Phase::Requested => self.accept_request(request),
            Phase::Answered => self.complete_handshake(request),
            _ => Err(libc::EINVAL),
        }
    }

    /// The passive side's answer.
    fn accept_request(&mut self, request: &ucma::Accept) -> Outcome {
        let param = &request.conn_param;
        let id = self.ids.get(request.id)?;
        let active = id.peer.ok_or(libc::EINVAL)?;
        if param.valid == 0 || param.private_data_len > IN_REPLY {
            // A refused acceptance is a rejection.
            (id.phase, id.peer) = (Phase::Closed, None);
            self.hear_rejection(active, None);
            return Err(libc::EINVAL);
        }
        id.cookie = request.uid;
        id.qp_num = param.qp_num;
        id.phase = Phase::Accepted;
        id.depths = depths(param);
        let seen = seen_by_peer(param, IN_REPLY);
        let asking = self.ids.get(active)?;
        (asking.phase, asking.depths) = (Phase::Answered, depths(&seen));
        self.emit(active, EventType::CONNECT_RESPONSE, 0, Some(&seen));
        Ok(())
    }

    /// The active side's end of the handshake.
    fn complete_handshake(&mut self, request: &ucma::Accept) -> Outcome {
        let id = self.ids.get(request.id)?;
        let passive = id.peer.ok_or(libc::EINVAL)?;
        id.phase = Phase::Established;
        self.ids.get(passive)?.phase = Phase::Established;
        self.emit(passive, EventType::ESTABLISHED, 0, None);
        Ok(())
    }

    pub(super) fn reject(&mut self, file: FileId, request: &ucma::Reject) -> Outcome {
        let id = self.alive(file, request.id)?;
        if ![Phase::Requested, Phase::Answered].contains(&id.phase) {
            return Err(libc::EINVAL);
        }
        if request.private_data_len > IN_REJECTION {
            return Err(libc::EINVAL);
        }
        id.phase = Phase::Closed;
        let peer = id.peer.take().ok_or(libc::EINVAL)?;
        let param = ConnParam {
            private_data: request.private_data,
            private_data_len: IN_REJECTION,
            ..Default::default()
        };
        self.hear_rejection(peer, Some(&param));
        Ok(())
    }

    fn hear_rejection(&mut self, handle: u32, param: Option<&ConnParam>) {
        if let Ok(id) = self.ids.get(handle) {
            (id.phase, id.peer) = (Phase::Closed, None);
        }
        self.emit(handle, EventType::REJECTED, CONSUMER_DEFINED, param);
    }

    pub(super) fn disconnect(&mut self, file: FileId, request: &ucma::Disconnect) -> Outcome {
        let id = self.alive(file, request.id)?;
        match id.phase {
            Phase::Established => {
                id.phase = Phase::Disconnecting;
                self.tell_disconnected(request.id, Phase::PeerDisconnected);
            }
            Phase::PeerDisconnected => {
                id.phase = Phase::Closed;
                self.tell_disconnected(request.id, Phase::Closed);
            }
            Phase::Idle
            | Phase::Bound
            | Phase::Listening
            | Phase::AddressResolved
            | Phase::RouteResolved => return Err(libc::EINVAL),
            // Before the end of the handshake, or repeated: nothing happens.
            _ => {}
        }
        Ok(())
    }

    fn tell_disconnected(&mut self, handle: u32, phase: Phase) {
        let Ok(Some(peer)) = self.ids.get(handle).map(|id| id.peer) else {
            return;
        };
        if let Ok(id) = self.ids.get(peer) {
            id.phase = phase;
        }
        self.emit(peer, EventType::DISCONNECTED, 0, None);
    }

    /// What the other end hears when an id is destroyed.
    pub(super) fn leave_connection(&mut self, handle: u32) {
        let Ok(id) = self.ids.get(handle) else { return };
        let (phase, peer) = (id.phase, id.peer);
        let Some(peer) = peer else { return };
        match phase {
            Phase::Requested | Phase::Accepted | Phase::Answered => {
                self.hear_rejection(peer, None);
            }
            Phase::Established => self.tell_disconnected(handle, Phase::PeerDisconnected),
            Phase::PeerDisconnected => self.tell_disconnected(handle, Phase::Closed),
            // A request that nobody has answered: accepting it fails from now on.
            _ => {}
        }
        if let Ok(other) = self.ids.get(peer) {
            other.peer = None;
        }
    }

    pub(super) fn init_qp_attr(
        &mut self,
        file: FileId,
        request: &ucma::InitQpAttr,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::InitQpAttr, response))?;
        let id = self.alive(file, request.id)?;
        let (phase, peer, depths) = (id.phase, id.peer, id.depths);
        if id.device.is_none() {
            return Err(libc::EINVAL);
        }
        let has_peer = matches!(
            phase,
            Phase::Requested | Phase::Accepted | Phase::Answered | Phase::Established
        );
        let target = QpState(u8::try_from(request.qp_state).map_err(|_| libc::EINVAL)?);
        let mask = match target {
            QpState::INIT => 0x39,
            QpState::RTR if has_peer => 0x12_9181,
            QpState::RTS if has_peer => 0x1_2e01,
            _ => return Err(libc::EINVAL),
        };
        // The bits that kernels keep to themselves come along, and so does the state.
        let mut attr = uverbs::QpAttr {
            qp_attr_mask: mask | 0x00e0_0000,
            ..Default::default()
        };
        attr.qp_state = request.qp_state;
        (attr.port_num, attr.qp_access_flags, attr.path_mtu) = (1, 0xe, 3);
        (attr.max_dest_rd_atomic, attr.max_rd_atomic) = depths;
        if QpAttrMask::from_bits_retain(mask).contains(QpAttrMask::DEST_QPN) {
            let peer = peer.ok_or(libc::EINVAL)?;
            attr.dest_qp_num = self.ids.get(peer)?.qp_num;
        }
        answer.put(&attr)
    }

    /// What the program hears of a device that is removed.
    pub(super) fn remove_device_from_ids(&mut self, index: u32) {
        let with_device = self.ids.0.iter().filter(|(_, id)| id.device == Some(index));
        let handles: Vec<u32> = with_device.map(|(handle, _)| *handle).collect();
        for handle in handles {
            self.emit(handle, EventType::DEVICE_REMOVAL, 0, None);
            if let Ok(id) = self.ids.get(handle) {
                id.is_device_gone = true;
            }
        }
    }
}

/// Reads and atomics answered at a time, and under way at a time.
fn depths(param: &ConnParam) -> (u8, u8) {
    (param.responder_resources, param.initiator_depth)
}

/// Connection parameters as the other end finds them: the depths are already swapped.
fn seen_by_peer(param: &ConnParam, private_data_len: u8) -> ConnParam {
    ConnParam {
        private_data_len,
        responder_resources: param.initiator_depth,
        initiator_depth: param.responder_resources,
        ..*param
    }
}
