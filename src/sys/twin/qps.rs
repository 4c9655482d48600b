//! Queue pairs, as rxe makes and changes them.

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, QpAttrMask, QpState, QpType, ioctl};

use super::attrs::{Answers, Inputs};
use super::discovery::TwinDevice;
use super::files::FileId;
use super::objects::{Object, ObjectId, Qp};
use super::verbs::Answer;
use super::{Outcome, World};
use crate::sys::Attr;

impl World {
    pub(super) fn create_qp(
        &mut self,
        file: FileId,
        device: &TwinDevice,
        attrs: &mut [Attr<'_>],
    ) -> Outcome {
        use ioctl::qp::create as attr;
        let inputs = Inputs(attrs);
        let parents = Parents::read(file, inputs);
        let kind = QpType(inputs.number(attr::TYPE)? as u8);
        self.check_parents(kind, device, &parents)?;
        let reporter = self.reporter(file, inputs, attr::USER_HANDLE, attr::EVENT_FD)?;
        let flags: u32 = inputs.typed(attr::FLAGS).unwrap_or(0);
        let asked: ioctl::QpCap = inputs.typed(attr::CAP)?;
        if !receives(kind) && asked.max_recv_wr != 0 || !sends(kind) && asked.max_send_wr != 0 {
            return Err(libc::EINVAL);
        }
        let mut cap = grant(device, asked)?;
        let mut driver = rxe::CreateQpResp::default();
        let mut send_ring = None;
        if sends(kind) {
            let (ring, mi) = self.new_ring(file, cap.max_send_wr, send_element(&cap))?;
            cap.max_send_wr = ring.depth();
            (send_ring, driver.sq_mi) = (Some(ring), mi);
        }
        let mut recv_ring = None;
        if receives(kind) && parents.srq.is_none() {
            let (ring, mi) = self.new_ring(file, cap.max_recv_wr, recv_element(&cap))?;
            cap.max_recv_wr = ring.depth();
            (recv_ring, driver.rq_mi) = (Some(ring), mi);
        }
        let number = self.objects.next_number();
        let qp = Qp {
            kind,
            reporter,
            pd: parents.pd,
            send_cq: parents.send_cq,
            recv_cq: parents.recv_cq,
            srq: parents.srq,
            xrcd: parents.xrcd,
            send_ring,
            recv_ring,
            groups: Vec::new(),
            attr: sizes(&cap),
            number,
            state: QpState::RESET,
            peer: 0,
            signals_all: flags & uverbs::QpCreateFlags::SQ_SIG_ALL.bits() != 0,
            is_kicked: false,
        };
        let handle = self.objects.insert(file, Object::Qp(Box::new(qp)));
        let mut answers = Answers(attrs);
        answers.put(attr::RESP_CAP, &cap)?;
        answers.put(attr::RESP_QP_NUM, &number)?;
        answers.put(ioctl::UHW_OUT, &driver)?;
        answers.put_handle(attr::HANDLE, handle)
    }

    /// Whether a queue pair of a type can be made of these objects, as the kernel sees it.
    fn check_parents(&mut self, kind: QpType, device: &TwinDevice, parents: &Parents) -> Outcome {
        let is_there = matches!(kind, QpType::RC | QpType::UC | QpType::UD)
            || matches!(kind, QpType::XRC_INI | QpType::XRC_TGT) && device.has_xrc;
        if !is_there {
            return Err(libc::EOPNOTSUPP);
        }
        let (sends, receives) = (sends(kind), receives(kind));
        let fits = (parents.pd.is_some(), parents.xrcd.is_some()) == (sends, !sends)
            && (parents.send_cq.is_some(), parents.recv_cq.is_some()) == (sends, receives)
            && (receives || parents.srq.is_none());
        if !fits {
            return Err(libc::EINVAL);
        }
        parents.pd.map_or(Ok(()), |pd| self.objects.check_pd(pd))?;
        parents
            .xrcd
            .map_or(Ok(()), |xrcd| self.objects.check_xrcd(xrcd))?;
        for cq in [parents.send_cq, parents.recv_cq].into_iter().flatten() {
            self.objects.cq(cq)?;
        }
        match parents.srq {
            Some(srq) if self.objects.srq(srq)?.xrc.is_some() => Err(libc::EINVAL),
            _ => Ok(()),
        }
    }

    pub(super) fn modify_qp(&mut self, file: FileId, request: &uverbs::ModifyQp) -> Outcome {
        let ports = self.device_of(file)?.ports;
        let qp = self.objects.qp((file, request.qp_handle))?;
        let mask = QpAttrMask::from_bits_retain(request.attr_mask);
        let target = QpState(request.qp_state);
        let needed = needed(qp.kind, qp.state, target).ok_or(libc::EINVAL)?;
        // A queue pair for datagrams has no peer of its own.
        // The sides of an extended reliable connection have what that side needs.
        let superfluous = match qp.kind {
            QpType::UD => QpAttrMask::AV | QpAttrMask::DEST_QPN | QpAttrMask::ACCESS_FLAGS,
            QpType::XRC_INI => QpAttrMask::QKEY | QpAttrMask::MAX_DEST_RD_ATOMIC,
            QpType::XRC_TGT => {
                QpAttrMask::QKEY
                    | QpAttrMask::MAX_QP_RD_ATOMIC
                    | QpAttrMask::RETRY_CNT
                    | QpAttrMask::RNR_RETRY
            }
            _ => QpAttrMask::QKEY,
        };
        if !mask.contains(needed | QpAttrMask::STATE) || mask.intersects(superfluous) {
            return Err(libc::EINVAL);
        }
        if mask.contains(QpAttrMask::PORT) && !(1..=ports).contains(&request.port_num) {
            return Err(libc::EINVAL);
        }
        if mask.contains(QpAttrMask::DEST_QPN) {
            qp.peer = request.dest_qp_num;
        }
        note_attributes(&mut qp.attr, mask, request);
        qp.state = target;
        if target == QpState::ERR {
            self.flush_receives((file, request.qp_handle));
            self.kick((file, request.qp_handle));
        }
        Ok(())
    }

    pub(super) fn query_qp(
        &mut self,
        file: FileId,
        request: &uverbs::QueryQp,
        answer: &mut Answer,
    ) -> Outcome {
        let qp = self.objects.qp((file, request.qp_handle))?;
        let (state, mut response) = (qp.state, qp.attr);
        (response.qp_state, response.cur_qp_state) = (state.0, state.0);
        answer.put(&response)
    }

    pub(super) fn attach(&mut self, file: FileId, request: &uverbs::AttachMcast) -> Outcome {
        let qp = self.objects.qp((file, request.qp_handle))?;
        let group = (request.gid, request.mlid);
        if qp.kind != QpType::UD || !is_multicast(&request.gid) {
            return Err(libc::EINVAL);
        }
        if !qp.groups.contains(&group) {
            qp.groups.push(group);
        }
        Ok(())
    }

    pub(super) fn detach(&mut self, file: FileId, request: &uverbs::DetachMcast) -> Outcome {
        let qp = self.objects.qp((file, request.qp_handle))?;
        let group = (request.gid, request.mlid);
        let at = qp.groups.iter().position(|known| *known == group);
        qp.groups.swap_remove(at.ok_or(libc::EINVAL)?);
        Ok(())
    }
}

/// The objects that a queue pair is to be made of.
struct Parents {
    pd: Option<ObjectId>,
    xrcd: Option<ObjectId>,
    send_cq: Option<ObjectId>,
    recv_cq: Option<ObjectId>,
    srq: Option<ObjectId>,
}

impl Parents {
    fn read(file: FileId, inputs: Inputs<'_, '_>) -> Self {
        use ioctl::qp::create as attr;
        let id_of = |attr| inputs.handle(attr).ok().map(|handle| (file, handle));
        Self {
            pd: id_of(attr::PD_HANDLE),
            xrcd: id_of(attr::XRCD_HANDLE),
            send_cq: id_of(attr::SEND_CQ_HANDLE),
            recv_cq: id_of(attr::RECV_CQ_HANDLE),
            srq: id_of(attr::SRQ_HANDLE),
        }
    }
}

fn sends(kind: QpType) -> bool {
    kind != QpType::XRC_TGT
}

/// Whether messages come through the queue pair itself.
fn receives(kind: QpType) -> bool {
    !matches!(kind, QpType::XRC_INI | QpType::XRC_TGT)
}

/// The attributes of a new queue pair.
fn sizes(cap: &ioctl::QpCap) -> uverbs::QueryQpResp {
    uverbs::QueryQpResp {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
        ..Default::default()
    }
}

/// The attributes that a transition needs; `None` where there is no transition.
fn needed(kind: QpType, from: QpState, to: QpState) -> Option<QpAttrMask> {
    use QpAttrMask as A;
    use QpState as S;
    let mut init = A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS;
    let mut rtr = A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
    let mut rts = A::SQ_PSN;
    if matches!(kind, QpType::RC | QpType::XRC_TGT) {
        rtr |= A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
        rts |= A::TIMEOUT;
    }
    if matches!(kind, QpType::RC | QpType::XRC_INI) {
        rts |= A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC;
    }
    if kind == QpType::UD {
        (init, rtr) = (A::PKEY_INDEX | A::PORT | A::QKEY, A::empty());
    }
    match (from, to) {
        (_, S::RESET | S::ERR) | (S::INIT, S::INIT) | (S::RTS, S::RTS) => Some(A::empty()),
        (S::RESET, S::INIT) => Some(init),
        (S::INIT, S::RTR) => Some(rtr),
        (S::RTR, S::RTS) => Some(rts),
        _ => None,
    }
}

/// Keeps those attributes that a change sets.
fn note_attributes(kept: &mut uverbs::QueryQpResp, mask: QpAttrMask, set: &uverbs::ModifyQp) {
    use QpAttrMask as A;
    let mut note = |bit, keep: &mut dyn FnMut(&mut uverbs::QueryQpResp)| {
        if mask.contains(bit) {
            keep(kept);
        }
    };
    note(A::ACCESS_FLAGS, &mut |kept| {
        kept.qp_access_flags = set.qp_access_flags
    });
    note(A::PKEY_INDEX, &mut |kept| kept.pkey_index = set.pkey_index);
    note(A::PORT, &mut |kept| kept.port_num = set.port_num);
    note(A::QKEY, &mut |kept| kept.qkey = set.qkey);
    note(A::AV, &mut |kept| kept.dest = set.dest);
    note(A::PATH_MTU, &mut |kept| kept.path_mtu = set.path_mtu);
    note(A::DEST_QPN, &mut |kept| kept.dest_qp_num = set.dest_qp_num);
    note(A::RQ_PSN, &mut |kept| kept.rq_psn = set.rq_psn);
    note(A::SQ_PSN, &mut |kept| kept.sq_psn = set.sq_psn);
    note(A::TIMEOUT, &mut |kept| kept.timeout = set.timeout);
    note(A::RETRY_CNT, &mut |kept| kept.retry_cnt = set.retry_cnt);
    note(A::RNR_RETRY, &mut |kept| kept.rnr_retry = set.rnr_retry);
    note(A::MIN_RNR_TIMER, &mut |kept| {
        kept.min_rnr_timer = set.min_rnr_timer
    });
    note(A::MAX_QP_RD_ATOMIC, &mut |kept| {
        kept.max_rd_atomic = set.max_rd_atomic
    });
    note(A::MAX_DEST_RD_ATOMIC, &mut |kept| {
        kept.max_dest_rd_atomic = set.max_dest_rd_atomic;
    });
}

fn is_multicast(gid: &[u8; 16]) -> bool {
    std::net::Ipv6Addr::from(*gid).to_canonical().is_multicast()
}

/// What rxe makes of the sizes that were asked for.
fn grant(device: &TwinDevice, mut cap: ioctl::QpCap) -> Outcome<ioctl::QpCap> {
    let limits = device.attributes();
    let too_much = cap.max_send_wr > limits.max_qp_wr
        || cap.max_recv_wr > limits.max_qp_wr
        || cap.max_send_sge > limits.max_sge
        || cap.max_recv_sge > limits.max_sge
        || cap.max_inline_data > 512;
    if too_much {
        return Err(libc::EINVAL);
    }
    let (sge, inline) = (cap.max_send_sge, cap.max_inline_data);
    cap.max_send_sge = sge.max(inline / 16);
    cap.max_inline_data = inline.max(sge * 16);
    Ok(cap)
}

fn send_element(cap: &ioctl::QpCap) -> usize {
    size_of::<rxe::SendWqe>() + cap.max_inline_data.max(cap.max_send_sge * 16) as usize
}

fn recv_element(cap: &ioctl::QpCap) -> usize {
    size_of::<rxe::RecvWqe>() + cap.max_recv_sge as usize * 16
}
