//! Connecting, accepting, rejecting and disconnecting.

use rdmacm_kernel_abi::ucma;

use super::conn_param::{Offer, check_private_data};
use super::id::State;
use super::{CmId, ConnParam, explain};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{QpModify, QpState};

impl CmId {
    /// Asks the peer for a connection with the id's queue pair, and does not wait. The outcome is the
    /// event [`Established`](super::Event::Established), [`Rejected`](super::Event::Rejected),
    /// [`Unreachable`](super::Event::Unreachable) or
    /// [`ConnectError`](super::Event::ConnectError). There is no timeout: a peer that reads the
    /// request and never answers leaves it open.
    ///
    /// # Errors
    ///
    /// An id whose route is not resolved or that has connected before; no queue pair; private data
    /// or depths beyond the limits.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, param: &ConnParam) -> Result<()> {
        let operation = "connect";
        let mut state = self.state();
        state.check_alive(operation)?;
        let context = &state.binding(operation)?.context;
        let qp = state.qp_entry().ok_or_else(|| without_qp(operation))?;
        let request = ucma::Connect {
            conn_param: param.for_connect(context, qp.number())?,
            id: self.handle(),
            ..Default::default()
        };
        state.call(operation, &request).map_err(explain::connect)?;
        state.has_connected = true;
        Ok(())
    }

    /// Accepts the peer's request with the id's queue pair, and does not wait. The event
    /// [`Established`](super::Event::Established) follows when the peer has heard it.
    ///
    /// # Errors
    ///
    /// When the peer is gone or was answered before. A refusal by the kernel rejects the peer; no
    /// queue pair, private data or depths beyond the limits leave the request open.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, param: &ConnParam) -> Result<()> {
        let operation = "accept";
        let mut state = self.state();
        state.check_alive(operation)?;
        let offer = state.offer.ok_or_else(|| not_requested(operation))?;
        let context = &state.binding(operation)?.context;
        let qp = state.qp_entry().ok_or_else(|| without_qp(operation))?;
        let conn_param = param.for_accept(context, qp.number(), offer)?;
        let accepted = Offer {
            responder_resources: conn_param.responder_resources,
            initiator_depth: conn_param.initiator_depth,
        };
        let request = ucma::Accept {
            uid: self.cookie(),
            conn_param,
            id: self.handle(),
            ..Default::default()
        };
        let answered = match self.make_ready(&state, &qp, accepted) {
            // A refusal makes the kernel reject the peer.
            Ok(()) => state.call(operation, &request).map_err(explain::handshake),
            Err(error) => {
                let _ = self.send_reject(&state, &[]);
                Err(error)
            }
        };
        if answered.is_err() {
            // The first error is the one to tell.
            let _ = QpModify::to(QpState::Error).apply(&qp);
        }
        state.offer = None;
        state.has_connected = answered.is_ok();
        answered.map(drop)
    }

    /// Rejects the peer's request, with up to 148 bytes of private data. The id can then only be
    /// destroyed.
    ///
    /// # Errors
    ///
    /// When there is no request to answer, or too much private data.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        let operation = "reject";
        let mut state = self.state();
        state.check_alive(operation)?;
        if state.offer.is_none() {
            return Err(not_requested(operation));
        }
        check_private_data(
            operation,
            &state.binding(operation)?.context,
            private_data,
            148,
        )?;
        self.send_reject(&state, private_data)?;
        state.offer = None;
        Ok(())
    }

    fn send_reject(&self, state: &State, private_data: &[u8]) -> Result<()> {
        let mut request = ucma::Reject {
            id: self.handle(),
            private_data_len: private_data.len() as u8,
            ..Default::default()
        };
        request.private_data[..private_data.len()].copy_from_slice(private_data);
        state.call("reject", &request).map(drop)
    }

    /// Ends the connection: the queue pair goes to the error state, so that everything outstanding
    /// is flushed, and the peer is told. Both sides get the event
    /// [`Disconnected`](super::Event::Disconnected), this one only when the peer has disconnected
    /// as well. Harmless when done before, or after the peer did.
    ///
    /// # Errors
    ///
    /// An id that never connected.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        let operation = "disconnect";
        let state = self.state();
        state.check_alive(operation)?;
        if !state.has_connected {
            // The kernel would say so too, but only after the queue pair is in the error state.
            return Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "the id was never connected",
            ));
        }
        let transport = state.binding(operation)?.context.device().transport();
        if let Some(qp) = state.qp_entry() {
            QpModify::to(end_state(transport)).apply(&qp)?;
        }
        let request = ucma::Disconnect { id: self.handle() };
        state.call(operation, &request).map(drop)
    }
}

/// iWARP's own protocol ends the connection once the send queue has drained.
fn end_state(transport: Transport) -> QpState {
    match transport {
        Transport::Iwarp => QpState::Sqd,
        _ => QpState::Error,
    }
}

fn without_qp(operation: &'static str) -> Error {
    Error::new(
        operation,
        ErrorKind::InvalidState,
        "make a queue pair first (create_qp)",
    )
}

fn not_requested(operation: &'static str) -> Error {
    Error::new(
        operation,
        ErrorKind::InvalidState,
        "the id has no connection request that waits for an answer",
    )
}
