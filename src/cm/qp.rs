//! The queue pair of an id.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::QpAttrMask;

use super::transition::datagram_step;
use super::{CmId, explain};
use crate::device::Transport;
use crate::error::{Error, ErrorKind, Result};
use crate::qp_table;
use crate::verbs::{Qp, QpAttr, QpModify, QpState};

impl CmId {
    /// Makes the id's queue pair, of the id's kind, and moves it to INIT, so that receives can be
    /// posted; one for datagrams to RTS, so that it can send. The id owns it: it is destroyed by
    /// [`CmId::destroy_qp`], or before the id.
    ///
    /// # Errors
    ///
    /// Before the address is resolved, for a second queue pair, for objects of another device than
    /// the id's, for another kind of queue pair, and for sizes beyond the device's.
    #[doc(alias("rdma_create_qp", "rdma_create_qp_ex"))]
    pub fn create_qp(&self, attr: &QpAttr<'_>) -> Result<Qp> {
        let operation = "create_qp";
        let mut state = self.state();
        state.check_alive(operation)?;
        let binding = state.binding(operation)?;
        if state.qp_entry().is_some() {
            return Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "the id has a queue pair already",
            ));
        }
        let pd = match attr.pd() {
            Some(pd) => pd.clone(),
            None => binding.context.default_pd()?,
        };
        if !pd.context().same_as(&binding.context) {
            return Err(Error::invalid(
                operation,
                format!(
                    "the protection domain is on {}, the id on {}; bind the id to the address of \
                     the device that is wanted",
                    pd.context().device().name(),
                    binding.context.device().name()
                ),
            ));
        }
        let qp_type = attr.qp_type_or(self.qp_type());
        if qp_type != self.qp_type() {
            return Err(Error::invalid(
                operation,
                format!(
                    "a queue pair of type {qp_type:?} for an id of type {:?}",
                    self.qp_type()
                ),
            ));
        }
        let qp = Qp::create(&pd, qp_type, attr)?;
        self.bring_up(&state, qp.entry())?;
        // One that was destroyed through its own handle may still be in the table.
        state.destroy_qp()?;
        state.qp = Some(qp_table::insert(Arc::clone(qp.entry())));
        Ok(qp)
    }

    /// Destroys the id's queue pair. False when there is none (any more). Handles to it stop
    /// working, and what was posted completes no more. After an error it is as it was.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_qp(&self) -> Result<bool> {
        self.state().destroy_qp()
    }

    /// The attributes with which a queue pair of the program's own gets to INIT, RTR or RTS on behalf
    /// of the id. RTR and RTS are known when the peer's request or its answer is there.
    ///
    /// # Errors
    ///
    /// Other states, an id without a device, a peer that has not spoken yet.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init_qp_attr(&self, state: QpState) -> Result<QpModify> {
        let operation = "init_qp_attr";
        if !matches!(state, QpState::Init | QpState::Rtr | QpState::Rts) {
            return Err(Error::invalid(
                operation,
                format!("the states are Init, Rtr and Rts, not {state:?}"),
            ));
        }
        let id = self.state();
        let transport = id.binding(operation)?.context.device().transport();
        if self.is_datagram() && state != QpState::Init {
            return Ok(datagram_step(state));
        }
        let proposal = self.proposal(&id, state).map_err(explain::init_qp_attr)?;
        // Before the id has asked, the kernel proposes what INIT needs, for any state.
        let speaks_of_the_peer = match state {
            QpState::Rtr => proposal.sets(QpAttrMask::DEST_QPN),
            QpState::Rts => proposal.sets(QpAttrMask::SQ_PSN),
            _ => true,
        };
        // iWARP devices learn of the peer without the program.
        if speaks_of_the_peer || transport == Transport::Iwarp {
            return Ok(proposal);
        }
        Err(Error::new(
            operation,
            ErrorKind::InvalidState,
            explain::PEER_UNKNOWN,
        ))
    }
}
