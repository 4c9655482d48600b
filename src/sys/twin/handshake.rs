//! Connections between two ids: who hears what of which step.

use std::mem::offset_of;

use rdmacm_kernel_abi::ucma::{self, ConnParam, EventType};
use rdmacm_kernel_abi::uverbs::{self, QpAttrMask, QpState, QpType};

use super::cm::{Answer, Phase, record};
use super::files::{FileId, QueuedEvent};
use super::groups::UDP_QKEY;
use super::sidr::{IN_ANSWER, IN_QUESTION};
use super::{Outcome, World};

/// Reasons of a rejection.
const NOBODY_LISTENS: i32 = 8;
const CONSUMER_DEFINED: i32 = 28;
const VENDOR_OPTION: i32 = 35;

/// Private data arrives with the length of the message that carried it.
const IN_REQUEST: u8 = 56;
const IN_REPLY: u8 = 196;
const IN_REJECTION: u8 = 148;

impl World {
    pub(super) fn connect(&mut self, file: FileId, request: &ucma::Connect) -> Outcome {
        let param = &request.conn_param;
        let id = self.alive(file, request.id)?;
        let (is_datagram, room) = match id.is_datagram() {
            true => (true, IN_QUESTION),
            false => (false, IN_REQUEST),
        };
        let misfit = param.valid == 0 || param.private_data_len > room;
        if id.phase != Phase::RouteResolved || misfit {
            return Err(libc::EINVAL);
        }
        id.phase = Phase::Connecting;
        id.qp_num = param.qp_num & 0xff_ffff;
        let listener = self.listener_for(request.id)?;
        if is_datagram {
            return self.ask(listener, request.id, param, request.ece);
        }
        let Some(listener) = listener else {
            self.ids.get(request.id)?.phase = Phase::Closed;
            self.emit(request.id, EventType::REJECTED, NOBODY_LISTENS, None);
            return Ok(());
        };
        let seen = seen_by_peer(param, IN_REQUEST);
        self.queue_request(listener, request.id, &seen, request.ece)
    }

    /// The id that listens where `handle` wants to connect to.
    fn listener_for(&mut self, handle: u32) -> Outcome<Option<u32>> {
        let asking = self.ids.get(handle)?;
        let (wanted, space) = (asking.remote.ok_or(libc::EINVAL)?, asking.space);
        let listens = |local: std::net::SocketAddr| {
            local.port() == wanted.port()
                && (local.ip() == wanted.ip() || local.ip().is_unspecified())
        };
        let found = self.ids.0.iter().find(|(_, id)| {
            id.phase == Phase::Listening
                && id.space == space
                && !id.is_device_gone
                && id.local.is_some_and(listens)
        });
        Ok(found.map(|(listener, _)| *listener))
    }

    /// Makes the new id that a request brings. Returns the listener's channel and cookie as well.
    pub(super) fn new_child(&mut self, listener: u32, active: u32) -> Outcome<(FileId, u64, u32)> {
        let listening = self.ids.get(listener)?;
        let (file, cookie, space) = (listening.file, listening.cookie, listening.space);
        // The request says what the peer's queue pair is.
        let qp_type = match self.ids.get(active)?.qp_type {
            QpType::XRC_INI => QpType::XRC_TGT,
            QpType::XRC_TGT => QpType::XRC_INI,
            other => other,
        };
        let child = self.ids.insert(file, 0, space, qp_type);
        let asking = self.ids.get(active)?;
        asking.peer = Some(child);
        let (local, remote, device) = (asking.remote, asking.local, asking.device);
        let new = self.ids.get(child)?;
        (new.local, new.remote, new.device) = (local, remote, device);
        (new.peer, new.phase) = (Some(active), Phase::Requested);
        Ok((file, cookie, child))
    }

    /// Brings a request to a listener.
    fn queue_request(
        &mut self,
        listener: u32,
        active: u32,
        param: &ConnParam,
        ece: ucma::Ece,
    ) -> Outcome {
        let (file, cookie, child) = self.new_child(listener, active)?;
        self.ids.get(child)?.depths = depths(param);
        let mut record = record(cookie, child, EventType::CONNECT_REQUEST, 0, Some(param));
        record.ece = ece;
        self.queue(
            file,
            QueuedEvent {
                owner: listener,
                child: Some(child),
                group: None,
                record,
            },
        );
        Ok(())
    }

    pub(super) fn accept(&mut self, file: FileId, request: &ucma::Accept) -> Outcome {
        let id = self.alive(file, request.id)?;
        match id.phase {
            Phase::Requested if id.is_datagram() => self.accept_question(request),
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
            self.hear_rejection(active, CONSUMER_DEFINED, None);
            return Err(libc::EINVAL);
        }
        id.cookie = request.uid;
        id.qp_num = param.qp_num;
        id.phase = Phase::Accepted;
        id.depths = depths(param);
        let seen = seen_by_peer(param, IN_REPLY);
        let asking = self.ids.get(active)?;
        (asking.phase, asking.depths) = (Phase::Answered, depths(&seen));
        let kind = EventType::CONNECT_RESPONSE;
        let mut response = record(asking.cookie, active, kind, 0, Some(&seen));
        response.ece = request.ece;
        self.emit_record(active, response);
        Ok(())
    }

    /// The active side's end of the handshake.
    fn complete_handshake(&mut self, request: &ucma::Accept) -> Outcome {
        let id = self.ids.get(request.id)?;
        let passive = id.peer.ok_or(libc::EINVAL)?;
        id.phase = Phase::Established;
        let answered = self.ids.get(passive)?;
        // The program may have told the kernel already.
        if answered.phase == Phase::Accepted {
            answered.phase = Phase::Established;
            self.emit(passive, EventType::ESTABLISHED, 0, None);
        }
        Ok(())
    }

    pub(super) fn reject(&mut self, file: FileId, request: &ucma::Reject) -> Outcome {
        let id = self.alive(file, request.id)?;
        let room = match id.is_datagram() {
            true => IN_ANSWER,
            false => IN_REJECTION,
        };
        let reason = match i32::from(request.reason) {
            0 => CONSUMER_DEFINED,
            known @ (CONSUMER_DEFINED | VENDOR_OPTION) => known,
            _ => return Err(libc::EINVAL),
        };
        if ![Phase::Requested, Phase::Answered].contains(&id.phase)
            || request.private_data_len > room
        {
            return Err(libc::EINVAL);
        }
        if id.is_datagram() {
            self.refuse_question(request.id);
            return Ok(());
        }
        id.phase = Phase::Closed;
        let peer = id.peer.take().ok_or(libc::EINVAL)?;
        let param = ConnParam {
            private_data: request.private_data,
            private_data_len: IN_REJECTION,
            ..Default::default()
        };
        self.hear_rejection(peer, reason, Some(&param));
        Ok(())
    }

    fn hear_rejection(&mut self, handle: u32, reason: i32, param: Option<&ConnParam>) {
        if let Ok(id) = self.ids.get(handle) {
            (id.phase, id.peer) = (Phase::Closed, None);
        }
        self.emit(handle, EventType::REJECTED, reason, param);
    }

    pub(super) fn disconnect(&mut self, file: FileId, request: &ucma::Disconnect) -> Outcome {
        let id = self.alive(file, request.id)?;
        match id.phase {
            Phase::Established | Phase::Closed if id.is_datagram() => {}
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
            Phase::Requested if id.is_datagram() => self.refuse_question(handle),
            Phase::Requested | Phase::Accepted | Phase::Answered => {
                self.hear_rejection(peer, CONSUMER_DEFINED, None);
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
        let (phase, kind, peer, depths) = (id.phase, id.qp_type, id.peer, id.depths);
        let timeout = id.options.ack_timeout;
        if id.device.is_none() {
            return Err(libc::EINVAL);
        }
        let has_peer = matches!(
            phase,
            Phase::Requested | Phase::Accepted | Phase::Answered | Phase::Established
        );
        let target = QpState(u8::try_from(request.qp_state).map_err(|_| libc::EINVAL)?);
        let mask = match target {
            QpState::INIT | QpState::RTR | QpState::RTS if kind == QpType::UD => 0x71,
            QpState::INIT => 0x39,
            QpState::RTR if has_peer => match kind {
                QpType::XRC_INI => 0x10_1181,
                _ => 0x12_9181,
            },
            QpState::RTS if has_peer => match kind {
                QpType::XRC_TGT => 0x1_0201,
                _ => 0x1_2e01,
            },
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
        (attr.qkey, attr.timeout) = (UDP_QKEY, timeout.unwrap_or(17));
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
