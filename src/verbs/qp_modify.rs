//! The states of a queue pair and the way from one to the next.

use rdmacm_kernel_abi::uverbs::{self, QpAttrMask};

use super::path::to_qp_dest;
use super::qp_transition::explain;
use super::{Access, Path};
use crate::device::Mtu;
use crate::error::{Error, Result};
use crate::qp_table::QpEntry;

/// The state of a queue pair.
#[doc(alias = "ibv_qp_state")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// New, or emptied.
    Reset,
    /// Takes receives.
    Init,
    /// Receives messages (ready to receive).
    Rtr,
    /// Sends as well (ready to send).
    Rts,
    /// Finishes the sends that are under way, begins no new ones.
    Sqd,
    /// A send failed; receives go on.
    Sqe,
    /// Everything outstanding is flushed.
    Error,
    /// Destroyed.
    Destroyed,
    /// A state of a newer kernel.
    Other(u8),
}

impl QpState {
    pub(crate) fn from_kernel(state: u8) -> Self {
        use uverbs::QpState as K;
        match K(state) {
            K::RESET => Self::Reset,
            K::INIT => Self::Init,
            K::RTR => Self::Rtr,
            K::RTS => Self::Rts,
            K::SQD => Self::Sqd,
            K::SQE => Self::Sqe,
            K::ERR => Self::Error,
            K(QpEntry::DESTROYED) => Self::Destroyed,
            K(other) => Self::Other(other),
        }
    }

    pub(crate) fn to_kernel(self) -> u8 {
        use uverbs::QpState as K;
        let state = match self {
            Self::Reset => K::RESET,
            Self::Init => K::INIT,
            Self::Rtr => K::RTR,
            Self::Rts => K::RTS,
            Self::Sqd => K::SQD,
            Self::Sqe => K::SQE,
            Self::Error => K::ERR,
            Self::Destroyed => K(QpEntry::DESTROYED),
            Self::Other(other) => K(other),
        };
        state.0
    }
}

/// A change to a queue pair: attributes that are set are changed, others stay.
///
/// Which attributes a transition needs depends on the two states; a refusal names what was missing
/// or superfluous.
///
/// ```no_run
/// # fn example(qp: &rdmacm::Qp) -> rdmacm::Result<()> {
/// use rdmacm::{Access, QpModify, QpState};
///
/// qp.modify(
///     &QpModify::to(QpState::Init)
///         .port(1)
///         .pkey_index(0)
///         .access(Access::REMOTE_WRITE | Access::REMOTE_READ),
/// )?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Debug, Clone)]
pub struct QpModify {
    state: QpState,
    mask: QpAttrMask,
    attr: uverbs::QpAttr,
}

macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident($field:ident: $type:ty) = $mask:ident;)*) => {
        $(
            $(#[$meta])*
            pub fn $name(mut self, $name: $type) -> Self {
                self.attr.$field = $name;
                self.mask |= QpAttrMask::$mask;
                self
            }
        )*
    };
}

impl QpModify {
    /// Begins a transition.
    pub fn to(state: QpState) -> Self {
        let attr = uverbs::QpAttr {
            qp_state: u32::from(state.to_kernel()),
            ..Default::default()
        };
        Self {
            state,
            mask: QpAttrMask::STATE,
            attr,
        }
    }

    /// The transition that the connection manager proposes. On iWARP, where the kernel moves a queue
    /// pair through its later states itself, it proposes to stay where it is, or nothing.
    pub(crate) fn from_kernel(state: QpState, attr: uverbs::QpAttr) -> Self {
        // Bits 21 to 23 speak of MAC addresses and VLANs, and are between the kernel's parts.
        let mask = QpAttrMask::from_bits_retain(attr.qp_attr_mask & !0x00e0_0000);
        Self { state, mask, attr }
    }

    /// Whether the change sets these attributes.
    pub(crate) fn sets(&self, attributes: QpAttrMask) -> bool {
        self.mask.contains(attributes)
    }

    setters! {
        /// The port to use.
        port(port_num: u8) = PORT;
        /// The partition, as an index of the port's P_Key table.
        pkey_index(pkey_index: u16) = PKEY_INDEX;
        /// The queue key: a UD queue pair receives only datagrams that carry it.
        qkey(qkey: u32) = QKEY;
        /// Number of the peer's queue pair.
        remote_qp_num(dest_qp_num: u32) = DEST_QPN;
        /// First packet sequence number expected from the peer (24 bits).
        receive_psn(rq_psn: u32) = RQ_PSN;
        /// First packet sequence number sent (24 bits).
        send_psn(sq_psn: u32) = SQ_PSN;
        /// Reads and atomics of the peer answered at a time (responder resources).
        responder_resources(max_dest_rd_atomic: u8) = MAX_DEST_RD_ATOMIC;
        /// Reads and atomics under way at a time (initiator depth).
        initiator_depth(max_rd_atomic: u8) = MAX_QP_RD_ATOMIC;
        /// How long a peer without a receive is told to wait: a code, 12 is 0.64 ms, 0 is 655 ms.
        min_rnr_timer(min_rnr_timer: u8) = MIN_RNR_TIMER;
        /// How long to wait for an answer: 4.096 µs · 2^timeout; 0 waits for ever.
        timeout(timeout: u8) = TIMEOUT;
        /// How often to repeat without an answer, 0 to 7. rxe repeats for ever at 7.
        retry_count(retry_cnt: u8) = RETRY_CNT;
        /// How often to repeat when the peer has no receive, 0 to 7; 7 is for ever.
        rnr_retry_count(rnr_retry: u8) = RNR_RETRY;
    }

    /// What the peer may do to memory regions through this queue pair.
    pub fn access(mut self, access: Access) -> Self {
        self.attr.qp_access_flags = access.bits();
        self.mask |= QpAttrMask::ACCESS_FLAGS;
        self
    }

    /// Payload bytes of one packet; the same at both ends.
    pub fn path_mtu(mut self, mtu: Mtu) -> Self {
        self.attr.path_mtu = u32::from(mtu.code());
        self.mask |= QpAttrMask::PATH_MTU;
        self
    }

    /// The way to the peer.
    pub fn path(mut self, path: Path) -> Self {
        self.attr.ah_attr = path.to_kernel();
        self.mask |= QpAttrMask::AV;
        self
    }

    /// Carries the change out.
    pub(crate) fn apply(&self, qp: &QpEntry) -> Result<()> {
        if matches!(self.state, QpState::Destroyed | QpState::Other(_)) {
            let explanation = format!("{:?} is no state to move to", self.state);
            return Err(Error::invalid("modify_qp", explanation));
        }
        let before = QpState::from_kernel(qp.state());
        qp.with_handle("modify_qp", |handle| {
            qp.context()
                .command_without_answer(uverbs::Command::MODIFY_QP, &self.request(handle))
                .map_err(|error| explain(qp.kind(), before, self.state, self.mask, &error))
        })?;
        // Before anything else can fail: the queue pair has been moved.
        qp.set_state(self.state.to_kernel());
        if self.mask.contains(QpAttrMask::MAX_QP_RD_ATOMIC) {
            qp.set_initiator_depth(self.attr.max_rd_atomic);
        }
        if qp.kind() == uverbs::QpType::UD && self.mask.contains(QpAttrMask::PORT) {
            // Longer datagrams would be dropped by the device, and reported as sent.
            let mtu = qp.context().port(self.attr.port_num)?.active_mtu;
            qp.set_max_datagram(mtu.bytes());
        }
        Ok(())
    }

    fn request(&self, qp_handle: u32) -> uverbs::ModifyQp {
        let attr = &self.attr;
        uverbs::ModifyQp {
            dest: to_qp_dest(&attr.ah_attr),
            alt_dest: to_qp_dest(&attr.alt_ah_attr),
            qp_handle,
            attr_mask: self.mask.bits(),
            qkey: attr.qkey,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            dest_qp_num: attr.dest_qp_num,
            qp_access_flags: attr.qp_access_flags,
            pkey_index: attr.pkey_index,
            alt_pkey_index: attr.alt_pkey_index,
            qp_state: attr.qp_state as u8,
            cur_qp_state: attr.cur_qp_state as u8,
            path_mtu: attr.path_mtu as u8,
            path_mig_state: attr.path_mig_state as u8,
            en_sqd_async_notify: attr.en_sqd_async_notify,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            port_num: attr.port_num,
            timeout: attr.timeout,
            retry_cnt: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            alt_port_num: attr.alt_port_num,
            alt_timeout: attr.alt_timeout,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_keeps_unknown_bits_except_the_kernels_own() {
        let attr = uverbs::QpAttr {
            qp_attr_mask: 0x40e0_0001,
            qp_state: 2,
            ..Default::default()
        };
        let change = QpModify::from_kernel(QpState::Rtr, attr);
        let request = change.request(5);
        assert_eq!(
            (request.attr_mask, request.qp_state, request.qp_handle),
            (0x4000_0001, 2, 5)
        );
    }

    #[test]
    fn the_two_path_records_are_not_mixed_up() {
        let mut ah = uverbs::AhAttr::default();
        ah.grh.dgid = [9; 16];
        (ah.dlid, ah.sl, ah.is_global, ah.port_num) = (0x1234, 5, 1, 2);
        (ah.grh.sgid_index, ah.grh.hop_limit) = (3, 64);
        let dest = to_qp_dest(&ah);
        assert_eq!(
            (dest.dlid, dest.sl, dest.is_global, dest.port_num),
            (0x1234, 5, 1, 2)
        );
        assert_eq!(
            (dest.dgid, dest.sgid_index, dest.hop_limit),
            ([9; 16], 3, 64)
        );
    }
}
