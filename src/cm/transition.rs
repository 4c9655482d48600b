//! What the connection manager does to an id's queue pair.
//!
//! The kernel keeps the protocol and proposes attributes; moving the queue pair is user space's
//! part. The events ADDR_RESOLVED, CONNECT_RESPONSE and REJECTED have such a part.
//! Joining a group has one too, in `multicast`.

use std::sync::Arc;

use rdmacm_kernel_abi::ucma;
use rdmacm_kernel_abi::uverbs::{self, QpAttrMask};

use super::conn_param::Offer;
use super::event::{Event, IdEvent};
use super::id::{Stage, State};
use super::peer_data::ConnectionData;
use super::{CmId, Status, explain};
use crate::device::{Context, Transport};
use crate::error::{Error, Result};
use crate::qp_table::QpEntry;
use crate::verbs::{Access, QpModify, QpState};

impl IdEvent {
    /// Does what goes with the event, and says what to report: possibly another event than came,
    /// or nothing.
    pub(super) fn carry_out(mut self, kind: ucma::EventType) -> Option<Event> {
        use ucma::EventType as E;
        let id = self.id.clone();
        let mut state = id.state();
        // Another thread was faster: as if the event had found no id.
        state.check_alive("next_event").ok()?;
        let kind = match kind {
            E::ADDR_RESOLVED => match id.attach_device(&mut state) {
                Ok(()) => kind,
                Err(error) => self.fail(E::ADDR_ERROR, error),
            },
            E::ROUTE_ERROR => {
                state.route_resolved = false;
                kind
            }
            E::CONNECT_RESPONSE => match state.qp_entry() {
                None => {
                    state.remote_ece = self.ece;
                    kind
                }
                Some(qp) => match id.complete_connection(&state, &qp) {
                    Ok(()) => E::ESTABLISHED,
                    Err(error) => {
                        state.failed = true;
                        let _ = QpModify::to(QpState::Error).apply(&qp);
                        self.fail(E::CONNECT_ERROR, error)
                    }
                },
            },
            E::ESTABLISHED => {
                id.follow_kernel(&state, &mut self.connection);
                kind
            }
            // The connection that the kernel still believed in was reported as failed.
            E::REJECTED | E::DISCONNECTED if state.failed => return None,
            E::REJECTED => {
                if let Some(qp) = state.qp_entry() {
                    let _ = QpModify::to(QpState::Error).apply(&qp);
                }
                kind
            }
            E::DISCONNECTED if state.transport() == Some(Transport::Iwarp) => {
                // The kernel has moved it, unless a request of this side failed: siw then closes the
                // connection and leaves the queue pair, with all that is posted, as it was.
                if let Some(qp) = state.qp_entry() {
                    let _ = QpModify::to(QpState::Error).apply(&qp);
                    qp.set_state(QpState::Error.to_kernel());
                }
                kind
            }
            E::ADDRINFO_RESOLVED | E::ADDRINFO_ERROR | E::INTERNAL => {
                match id.looked_up(&mut state, kind, self.argument) {
                    // Somebody else's, to be kept as it is.
                    None => kind,
                    Some(Ok(())) => E::ADDRINFO_RESOLVED,
                    Some(Err(error)) => self.fail(E::ADDRINFO_ERROR, error),
                }
            }
            _ => kind,
        };
        state.note(kind);
        Some(Event::new(kind, self))
    }

    pub(super) fn fail(&mut self, kind: ucma::EventType, cause: Error) -> ucma::EventType {
        self.set_cause(cause);
        kind
    }

    /// Says what failed on this side.
    pub(super) fn set_cause(&mut self, cause: Error) {
        self.status = Status::Errno(cause.errno().unwrap_or(libc::EIO));
        self.cause = Some(cause);
    }
}

impl State {
    /// Keeps how far the connection is after an event.
    fn note(&mut self, kind: ucma::EventType) {
        use ucma::EventType as E;
        self.stage = match kind {
            E::CONNECT_RESPONSE => Stage::Answered,
            E::ESTABLISHED => Stage::Established,
            E::REJECTED | E::CONNECT_ERROR | E::DISCONNECTED | E::DEVICE_REMOVAL => Stage::Over,
            // On a connection that is made it tells of a new link address.
            E::UNREACHABLE if self.stage < Stage::Established => Stage::Over,
            _ => return,
        };
        self.is_removed |= kind == E::DEVICE_REMOVAL;
    }
}

impl CmId {
    /// The active side's end of the handshake: the queue pair must be able to receive before the
    /// peer learns that the connection is made.
    fn complete_connection(&self, state: &State, qp: &QpEntry) -> Result<()> {
        self.handshake_proposal(state, QpState::Rtr)?.apply(qp)?;
        self.handshake_proposal(state, QpState::Rts)?.apply(qp)?;
        self.finish_handshake("accept", state)
    }

    /// Tells the peer that the queue pair is ready, in answer to its acceptance.
    pub(super) fn finish_handshake(&self, operation: &'static str, state: &State) -> Result<()> {
        let request = ucma::Accept {
            uid: self.cookie(),
            id: self.handle(),
            ..Default::default()
        };
        state
            .call(operation, &request)
            .map_err(explain::handshake)
            .map(drop)
    }

    /// The passive side's: it must be able to send as well, since the peer's first message can
    /// come before the event that says the connection is made.
    pub(super) fn make_ready(&self, state: &State, qp: &QpEntry, accepted: Offer) -> Result<()> {
        if state.transport() == Some(Transport::Iwarp) {
            // The kernel moves it when it accepts.
            qp.set_initiator_depth(accepted.initiator_depth);
            qp.set_state(QpState::Rts.to_kernel());
            return Ok(());
        }
        let mut rtr = self.handshake_proposal(state, QpState::Rtr)?;
        // Not every type has both depths, and the kernel refuses what a type does not have.
        if rtr.sets(QpAttrMask::MAX_DEST_RD_ATOMIC) {
            rtr = rtr.responder_resources(accepted.responder_resources);
        }
        rtr.apply(qp)?;
        let mut rts = self.handshake_proposal(state, QpState::Rts)?;
        if rts.sets(QpAttrMask::MAX_QP_RD_ATOMIC) {
            rts = rts.initiator_depth(accepted.initiator_depth);
        }
        rts.apply(qp)
    }

    /// Makes a new queue pair of use: one for connections takes receives (INIT), one for datagrams
    /// sends as well (RTS).
    pub(super) fn bring_up(&self, state: &State, qp: &QpEntry) -> Result<()> {
        if self.is_datagram() {
            self.proposal(state, QpState::Init)?.apply(qp)?;
            datagram_step(QpState::Rtr).apply(qp)?;
            return datagram_step(QpState::Rts).apply(qp);
        }
        let binding = state.binding("create_qp")?;
        if binding.context.device().transport() != Transport::Roce {
            return self.proposal(state, QpState::Init)?.apply(qp);
        }
        // On RoCE the kernel's proposal is known beforehand: there is one partition.
        QpModify::to(QpState::Init)
            .port(binding.port)
            .pkey_index(0)
            .access(peers_access(&binding.context)?)
            .apply(qp)
    }

    /// Takes note that the kernel has moved the queue pair of an iWARP connection, on the active side.
    fn follow_kernel(&self, state: &State, agreed: &mut ConnectionData) {
        if state.transport() != Some(Transport::Iwarp) {
            return;
        }
        // Here, and only here, the kernel tells the depths as the peer sees them.
        std::mem::swap(&mut agreed.responder_resources, &mut agreed.initiator_depth);
        // That of the passive side was noted when it accepted.
        let is_news = |qp: &Arc<QpEntry>| qp.state() == QpState::Init.to_kernel();
        if let Some(qp) = state.qp_entry().filter(is_news) {
            qp.set_initiator_depth(agreed.initiator_depth);
            qp.set_state(QpState::Rts.to_kernel());
        }
    }

    /// The attributes for a step of the handshake. The kernel has none to propose when there is
    /// nobody to connect with.
    fn handshake_proposal(&self, state: &State, target: QpState) -> Result<QpModify> {
        self.proposal(state, target).map_err(explain::handshake)
    }

    /// The attributes that the connection manager wants for a state.
    pub(super) fn proposal(&self, state: &State, target: QpState) -> Result<QpModify> {
        let request = ucma::InitQpAttr {
            id: self.handle(),
            qp_state: u32::from(target.to_kernel()),
            ..Default::default()
        };
        let attr: uverbs::QpAttr = state.call("init_qp_attr", &request)?;
        Ok(QpModify::from_kernel(target, attr))
    }
}

/// Datagrams have no peer to speak of: from INIT on there is nothing to propose. The kernel proposes
/// what INIT needs, which is not allowed any more.
pub(super) fn datagram_step(state: QpState) -> QpModify {
    let step = QpModify::to(state);
    match state {
        QpState::Rts => step.send_psn(0),
        _ => step,
    }
}

/// All that peers may do through a queue pair, where the memory allows it.
fn peers_access(context: &Context) -> Result<Access> {
    let attr = context.attr()?;
    let mut access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    access.set(Access::FLUSH_GLOBAL, attr.has_flush_global());
    access.set(Access::FLUSH_PERSISTENT, attr.has_flush_persistent());
    Ok(access)
}
