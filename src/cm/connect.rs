//! Connecting, accepting, rejecting and disconnecting.

use rdmacm_kernel_abi::{ucma, uverbs};

use super::conn_param::{Offer, QpNumber};
use super::id::{Stage, State};
use super::private_data::Message;
use super::{Address, CmId, ConnParam, Ece, Step, explain};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};
use crate::verbs::{QpModify, QpState};

impl CmId {
    /// Asks the peer for a connection with the id's queue pair, and does not wait. The outcome is
    /// the event [`Established`](super::Event::Established), [`Rejected`](super::Event::Rejected),
    /// [`Unreachable`](super::Event::Unreachable) or [`ConnectError`](super::Event::ConnectError).
    /// There is no timeout: a peer that reads the request and never answers leaves it open.
    ///
    /// On iWARP the kernel makes the TCP connection within the call, which waits for it: for more than
    /// two minutes where a host does not answer at all.
    ///
    /// An id without a queue pair connects the one that `param` names ([`ConnParam::own_qp`]); its
    /// event is [`ConnectResponse`](super::Event::ConnectResponse). An id for datagrams asks for
    /// the peer's queue pair, and is never connected.
    ///
    /// # Errors
    ///
    /// An id whose route is not resolved or that has connected before; no queue pair; private data
    /// or depths beyond the limits. On iWARP [`ErrorKind::Rejected`] (`ECONNREFUSED`) where nobody
    /// listens.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, param: &ConnParam) -> Result<()> {
        let operation = "connect";
        let mut state = self.state();
        state.check_alive(operation)?;
        let message = self.message(&state, Step::Connect);
        let context = &state.binding(operation)?.context;
        let number = self.qp_number(operation, message.step, &state, param)?;
        let request = ucma::Connect {
            conn_param: param.for_connect(context, message, number)?,
            id: self.handle(),
            ece: Ece::to_kernel(state.local_ece.filter(|_| state.qp_entry().is_none())),
            ..Default::default()
        };
        state.call(operation, &request).map_err(explain::connect)?;
        state.stage = Stage::Asked;
        Ok(())
    }

    /// Accepts the peer's request with the id's queue pair, or with the one that `param` names, and
    /// does not wait. The event [`Established`](super::Event::Established) follows when the peer
    /// has heard it. A peer that asked for datagrams causes no such event: it may send at once.
    ///
    /// On iWARP the side that connects speaks first: wait for a message of the peer before sending,
    /// writing or reading. What comes to the peer's siw before it has read the acceptance may end the
    /// connection there (`EINVAL`).
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
        let message = self.message(&state, Step::Accept);
        let context = &state.binding(operation)?.context;
        let number = self.qp_number(operation, message.step, &state, param)?;
        let conn_param = param.for_accept(context, message, number, offer)?;
        let accepted = Offer {
            responder_resources: conn_param.responder_resources,
            initiator_depth: conn_param.initiator_depth,
        };
        let qp = state.qp_entry();
        let ece = Ece::answer(state.local_ece, state.remote_ece).filter(|_| qp.is_none());
        let request = ucma::Accept {
            uid: self.cookie(),
            conn_param,
            id: self.handle(),
            ece: Ece::to_kernel(ece),
            ..Default::default()
        };
        let ready = match &qp {
            // One for datagrams was brought up when it was made; the program's own is the
            // program's.
            Some(qp) if !self.is_datagram() => self.make_ready(&state, qp, accepted),
            _ => Ok(()),
        };
        let answered = match ready {
            // A refusal makes the kernel reject the peer.
            Ok(()) => state.call(operation, &request).map_err(explain::handshake),
            Err(error) => {
                let _ = self.send_reject(&state, RejectCode::Consumer, &[]);
                Err(error)
            }
        };
        if let (Err(_), Some(qp)) = (&answered, &qp) {
            // The first error is the one to tell.
            let _ = QpModify::to(QpState::Error).apply(qp);
        }
        state.offer = None;
        if answered.is_ok() {
            state.stage = Stage::Asked;
        }
        answered.map(drop)
    }

    /// Finishes the connection of an id without a queue pair of its own, after
    /// [`ConnectResponse`](super::Event::ConnectResponse): the program has moved its queue pair to
    /// RTS. There is no further event on this side; the peer's is
    /// [`Established`](super::Event::Established).
    ///
    /// # Errors
    ///
    /// An id with a queue pair, whose connection needs no finishing; no answer from the peer to
    /// finish.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<()> {
        let operation = "establish";
        let mut state = self.state();
        state.check_alive(operation)?;
        state.check_without_qp(operation)?;
        if state.stage != Stage::Answered {
            return Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "there is no answer of the peer's to finish (CONNECT_RESPONSE)",
            ));
        }
        self.finish_handshake(operation, &state)?;
        state.stage = Stage::Established;
        Ok(())
    }

    /// Tells the connection manager that a message has come through the queue pair of an accepted
    /// connection that is not reported as established yet: the peer is ready, only its word for it
    /// is late or lost. The event [`Established`](super::Event::Established) follows.
    ///
    /// # Errors
    ///
    /// `EISCONN` when the connection is established already; an id that has not accepted.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<()> {
        let operation = "notify";
        let state = self.state();
        state.binding(operation)?;
        let request = ucma::Notify {
            id: self.handle(),
            event: uverbs::AsyncEventType::COMM_EST.0,
        };
        state
            .call(operation, &request)
            .map_err(explain::notify)
            .map(drop)
    }

    /// Number of the queue pair that a message tells the peer.
    fn qp_number(
        &self,
        operation: &'static str,
        step: Step,
        state: &State,
        param: &ConnParam,
    ) -> Result<QpNumber> {
        match state.qp_entry() {
            Some(qp) => Ok(QpNumber {
                number: qp.number(),
                has_srq: qp.has_srq(),
            }),
            None => match param.named_qp() {
                Some(number) => Ok(number),
                // An active side may ask for the way to a peer without having a queue pair yet.
                None if self.is_datagram() && step == Step::Connect => Ok(QpNumber::default()),
                None => Err(Error::new(
                    operation,
                    ErrorKind::InvalidState,
                    "make a queue pair first (create_qp), or name one of your own \
                     (ConnParam::own_qp)",
                )),
            },
        }
    }

    /// How many bytes of private data a message of the id can carry. Before the id has a device it
    /// is the least that any has.
    #[doc(alias("RDMA_MAX_PRIVATE_DATA"))]
    pub fn max_private_data(&self, step: Step) -> usize {
        self.message(&self.state(), step).capacity()
    }

    fn message(&self, state: &State, step: Step) -> Message {
        Message {
            step,
            is_datagram: self.is_datagram(),
            is_ib_address: matches!(state.local, Some(Address::Ib(_))),
            transport: state.transport(),
        }
    }

    /// Rejects the peer's request, with up to 148 bytes of private data (136 for datagrams; a peer
    /// that asked for datagrams does not hear more than that it was rejected). The id can then
    /// only be destroyed.
    ///
    /// # Errors
    ///
    /// When there is no request to answer, or too much private data.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.reject_as(RejectCode::Consumer, private_data)
    }

    /// As [`CmId::reject`], for the reason that the peer's vendor options are not acceptable
    /// ([`RejectReason::VENDOR_OPTION_NOT_SUPPORTED`](super::RejectReason)).
    ///
    /// # Errors
    ///
    /// As [`CmId::reject`].
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<()> {
        self.reject_as(RejectCode::VendorOption, private_data)
    }

    fn reject_as(&self, code: RejectCode, private_data: &[u8]) -> Result<()> {
        let operation = "reject";
        let mut state = self.state();
        state.check_alive(operation)?;
        if state.offer.is_none() {
            return Err(not_requested(operation));
        }
        self.message(&state, Step::Reject)
            .check(operation, private_data)?;
        self.send_reject(&state, code, private_data)?;
        state.offer = None;
        Ok(())
    }

    fn send_reject(&self, state: &State, code: RejectCode, private_data: &[u8]) -> Result<()> {
        let mut request = ucma::Reject {
            id: self.handle(),
            private_data_len: private_data.len() as u8,
            reason: code as u8,
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
    /// A queue pair of the program's own ([`ConnParam::own_qp`]) is left as it is: what is
    /// outstanding on it is flushed when the program moves it to the error state
    /// (`QpModify::to(QpState::Error)`).
    ///
    /// # Errors
    ///
    /// An id that never connected.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        let operation = "disconnect";
        let state = self.state();
        state.check_alive(operation)?;
        if state.stage == Stage::New {
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

/// The reasons that the kernel lets a program give.
#[derive(Debug, Clone, Copy)]
enum RejectCode {
    /// The kernel's 0 becomes 28 on the wire.
    Consumer = 0,
    VendorOption = 35,
}

fn not_requested(operation: &'static str) -> Error {
    Error::new(
        operation,
        ErrorKind::InvalidState,
        "the id has no connection request that waits for an answer",
    )
}
