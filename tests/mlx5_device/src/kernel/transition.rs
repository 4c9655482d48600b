//! The states of queue pairs, and what goes with each change.

use rdmacm_kernel_abi::uverbs::{self, QpAttrMask, QpState, QpType};

use crate::world::{FileId, Outcome, World};

impl World {
    pub(super) fn modify_qp(&mut self, file: FileId, asked: &uverbs::ModifyQp) -> Outcome {
        let number = self.qp_number(file, asked.qp_handle)?;
        // What was rung before.
        self.look_at_pages();
        let mask = QpAttrMask::from_bits_retain(asked.attr_mask);
        let qp = &self.qps[&number];
        let from = match mask.contains(QpAttrMask::CUR_STATE) {
            true => QpState(asked.cur_qp_state),
            false => qp.state,
        };
        let to = match mask.contains(QpAttrMask::STATE) {
            true => QpState(asked.qp_state),
            false => from,
        };
        if asked.reserved != [0; 2] || from != qp.state {
            return Err(libc::EINVAL);
        }
        let (needed, allowed) = attributes(qp.kind, from, to).ok_or(libc::EINVAL)?;
        let rest = mask - needed - allowed - QpAttrMask::STATE;
        if !mask.contains(needed) || !rest.is_empty() {
            return Err(libc::EINVAL);
        }
        if mask.contains(QpAttrMask::PORT) && asked.port_num != 1 {
            return Err(libc::EINVAL);
        }
        if mask.contains(QpAttrMask::PKEY_INDEX) && asked.pkey_index != 0 {
            return Err(libc::EINVAL);
        }
        if mask.contains(QpAttrMask::AV) {
            let dest = &asked.dest;
            // The port of a path to a peer is the queue pair's own, whatever it says.
            self.check_address(1, dest.is_global, dest.sgid_index)?;
        }
        if mask.contains(QpAttrMask::PATH_MTU) && !(1..=5).contains(&asked.path_mtu) {
            return Err(libc::EINVAL);
        }
        let depths = asked.max_rd_atomic.max(asked.max_dest_rd_atomic);
        if mask.intersects(QpAttrMask::MAX_QP_RD_ATOMIC | QpAttrMask::MAX_DEST_RD_ATOMIC)
            && depths > 16
        {
            return Err(libc::EINVAL);
        }
        let qp = self.qps.get_mut(&number).expect("it was found");
        note_attributes(&mut qp.attr, mask, asked);
        self.enter_state(number, from, to);
        Ok(())
    }

    fn enter_state(&mut self, number: u32, from: QpState, to: QpState) {
        let qp = self.qps.get_mut(&number).expect("it was found");
        if to == QpState::ERR {
            if from != QpState::ERR {
                self.fail_qp(number);
            }
            return;
        }
        qp.state = to;
        if to == QpState::RESET {
            (qp.send_next, qp.recv_next) = (0, 0);
            (qp.is_rung, qp.wait) = (false, None);
            (qp.is_last_reported, qp.is_known) = (false, false);
            // A queue pair that the card stopped at can be used again.
            qp.is_stopped = false;
        }
        if (from, to) == (QpState::RESET, QpState::INIT) && qp.record.be32(4) != 0 {
            let counter = qp.record.be32(4);
            self.violation(format!(
                "queue pair {number:#x} leaves RESET with a send counter of {counter}"
            ));
        }
    }
}

/// The attributes that a change of state needs, and those that it may have; `None` where there is
/// no such change.
fn attributes(kind: QpType, from: QpState, to: QpState) -> Option<(QpAttrMask, QpAttrMask)> {
    use QpAttrMask as A;
    use QpState as S;
    let (is_rc, is_ud) = (kind == QpType::RC, kind == QpType::UD);
    let none = A::empty();
    let path = A::ALT_PATH | A::ACCESS_FLAGS | A::PATH_MIG_STATE;
    let start = match is_ud {
        true => A::PKEY_INDEX | A::PORT | A::QKEY,
        false => A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS,
    };
    let running = match (is_ud, is_rc) {
        (true, _) => A::CUR_STATE | A::QKEY,
        (_, true) => A::CUR_STATE | A::MIN_RNR_TIMER | path,
        _ => A::CUR_STATE | path,
    };
    Some(match (from, to) {
        (S::RESET, S::RESET) => (none, none),
        (S::RESET, S::INIT) => (start, none),
        (S::INIT, S::INIT) => (none, start),
        (S::INIT, S::RTR) if is_ud => (none, A::PKEY_INDEX | A::QKEY),
        (S::INIT, S::RTR) => {
            let needed = A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
            let more = A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
            let allowed = A::ALT_PATH | A::ACCESS_FLAGS | A::PKEY_INDEX;
            (if is_rc { needed | more } else { needed }, allowed)
        }
        (S::RTR, S::RTS) => {
            let more = A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC;
            (if is_rc { A::SQ_PSN | more } else { A::SQ_PSN }, running)
        }
        (S::RTS | S::SQD, S::RTS) => (none, running),
        (S::RTS, S::SQD) => (none, A::EN_SQD_ASYNC_NOTIFY),
        (S::SQE, S::RTS) if !is_rc => (none, A::CUR_STATE | A::QKEY | A::ACCESS_FLAGS),
        (S::SQD, S::SQD) => (
            none,
            running | A::PKEY_INDEX | A::AV | A::TIMEOUT | A::RETRY_CNT,
        ),
        (S::RESET, S::ERR) => return None,
        (_, S::RESET | S::ERR) => (none, none),
        _ => return None,
    })
}

/// Keeps the attributes that a change sets.
fn note_attributes(kept: &mut uverbs::QueryQpResp, mask: QpAttrMask, set: &uverbs::ModifyQp) {
    macro_rules! note {
        ($($bit:ident: $field:ident),* $(,)?) => {
            $(if mask.contains(QpAttrMask::$bit) {
                kept.$field = set.$field;
            })*
        };
    }
    note! {
        ACCESS_FLAGS: qp_access_flags,
        PKEY_INDEX: pkey_index,
        PORT: port_num,
        QKEY: qkey,
        AV: dest,
        PATH_MTU: path_mtu,
        TIMEOUT: timeout,
        RETRY_CNT: retry_cnt,
        RNR_RETRY: rnr_retry,
        RQ_PSN: rq_psn,
        MAX_QP_RD_ATOMIC: max_rd_atomic,
        ALT_PATH: alt_dest,
        MIN_RNR_TIMER: min_rnr_timer,
        SQ_PSN: sq_psn,
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        PATH_MIG_STATE: path_mig_state,
        DEST_QPN: dest_qp_num,
    }
}
