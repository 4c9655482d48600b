//! Queue pairs.

use rdmacm_kernel_abi::mlx5::{self, QpFlags};
use rdmacm_kernel_abi::uverbs::{self, QpCreateFlags, QpState, QpType, ioctl};
use zerocopy::IntoBytes;

use super::Driver;
use super::command::answer;
use super::context::{MAX_QUEUE, MAX_RECV_BYTES};
use super::packet::Attrs;
use crate::memory::Memory;
use crate::world::{FileId, Object, Outcome, Qp, World};

struct Asked {
    kind: QpType,
    pd: u32,
    send_cq: u32,
    recv_cq: u32,
    srq: Option<u32>,
    user_handle: u64,
    cap: ioctl::QpCap,
    signals_all: bool,
    async_channel: Option<u32>,
}

struct Made {
    handle: u32,
    number: u32,
    cap: ioctl::QpCap,
}

impl World {
    pub(super) fn create_qp_method(&mut self, file: FileId, attrs: &mut Attrs) -> Outcome {
        use ioctl::qp::create as id;
        let known = [
            id::HANDLE,
            id::PD_HANDLE,
            id::SRQ_HANDLE,
            id::SEND_CQ_HANDLE,
            id::RECV_CQ_HANDLE,
            id::USER_HANDLE,
            id::CAP,
            id::TYPE,
            id::FLAGS,
            id::EVENT_FD,
            id::RESP_CAP,
            id::RESP_QP_NUM,
            id::XRCD_HANDLE,
            ioctl::UHW_IN,
            ioctl::UHW_OUT,
        ];
        attrs.check_known(&known)?;
        let kind = QpType(attrs.typed::<u64>(id::TYPE)? as u8);
        check_kind(kind)?;
        let flags: u32 = attrs.optional(id::FLAGS)?.unwrap_or(0);
        let flags = QpCreateFlags::from_bits_retain(flags);
        let known = QpCreateFlags::SQ_SIG_ALL | QpCreateFlags::BLOCK_MULTICAST_LOOPBACK;
        if !(flags - known).is_empty() || attrs.has(id::XRCD_HANDLE) {
            return Err(libc::EINVAL);
        }
        let srq = attrs
            .has(id::SRQ_HANDLE)
            .then(|| attrs.handle(id::SRQ_HANDLE));
        let srq = srq.transpose()?.map(|handle| self.srq_number(file, handle));
        let event_fd = attrs.has(id::EVENT_FD).then(|| attrs.handle(id::EVENT_FD));
        let asked = Asked {
            kind,
            pd: self.pd(file, attrs.handle(id::PD_HANDLE)?)?,
            send_cq: self.cq_number(file, attrs.handle(id::SEND_CQ_HANDLE)?)?,
            recv_cq: self.cq_number(file, attrs.handle(id::RECV_CQ_HANDLE)?)?,
            srq: srq.transpose()?,
            user_handle: attrs.typed(id::USER_HANDLE)?,
            cap: attrs.typed(id::CAP)?,
            signals_all: flags.contains(QpCreateFlags::SQ_SIG_ALL),
            async_channel: self.async_channel(file, event_fd.transpose()?)?,
        };
        let mut driver = attrs.driver();
        let made = self.create_qp(file, &asked, &mut driver)?;
        attrs.put(id::RESP_CAP, &made.cap)?;
        attrs.put(id::RESP_QP_NUM, &made.number)?;
        attrs.put_some(ioctl::UHW_OUT, &driver.answer)?;
        attrs.put_handle(id::HANDLE, made.handle)
    }

    pub(super) fn create_qp_command(
        &mut self,
        file: FileId,
        asked: &uverbs::CreateQp,
        driver: &mut Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        check_kind(QpType(asked.qp_type))?;
        let srq = match asked.is_srq {
            0 => None,
            _ => Some(self.srq_number(file, asked.srq_handle)?),
        };
        let asked = Asked {
            kind: QpType(asked.qp_type),
            pd: self.pd(file, asked.pd_handle)?,
            send_cq: self.cq_number(file, asked.send_cq_handle)?,
            recv_cq: self.cq_number(file, asked.recv_cq_handle)?,
            srq,
            user_handle: asked.user_handle,
            cap: ioctl::QpCap {
                max_send_wr: asked.max_send_wr,
                max_recv_wr: asked.max_recv_wr,
                max_send_sge: asked.max_send_sge,
                max_recv_sge: asked.max_recv_sge,
                max_inline_data: asked.max_inline_data,
            },
            signals_all: asked.sq_sig_all != 0,
            async_channel: self.async_channel(file, None)?,
        };
        let made = self.create_qp(file, &asked, driver)?;
        answer(&uverbs::CreateQpResp {
            qp_handle: made.handle,
            qpn: made.number,
            max_send_wr: made.cap.max_send_wr,
            max_recv_wr: made.cap.max_recv_wr,
            max_send_sge: made.cap.max_send_sge,
            max_recv_sge: made.cap.max_recv_sge,
            max_inline_data: made.cap.max_inline_data,
            reserved: 0,
        })
    }

    fn create_qp(&mut self, file: FileId, asked: &Asked, driver: &mut Driver<'_>) -> Outcome<Made> {
        let own: mlx5::CreateQp = driver.parse(28)?;
        let flags = check_flags(&own)?;
        self.check_index(own.uidx)?;
        check_sizes(&own, asked)?;
        self.check_index_is_free(file, own.uidx);
        let recv_bytes = u64::from(own.rq_wqe_count) << own.rq_wqe_shift;
        let send_bytes = u64::from(own.sq_wqe_count) * u64::from(mlx5::SEND_WQE_BB);
        let all = self.pin("a queue pair", own.buf_addr, recv_bytes + send_bytes, 64)?;
        let record = self.pin_record(own.db_addr)?;
        if (record.be32(0), record.be32(4)) != (0, 0) {
            self.violation("the record of a new queue pair is not zero".to_owned());
        }
        let (uar, register) = match flags.contains(QpFlags::UAR_PAGE_INDEX) {
            true => (own.bfreg_index, None),
            false => self.choose_register(file)?,
        };
        self.check_uar(file, uar)?;
        let number = self.next_number(0x100);
        let (max_inline_answer, max_inline_receive) = self.inline_limits(asked, flags);
        let mut cap = asked.cap;
        if asked.srq.is_some() {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let qp = Qp {
            file,
            number,
            kind: asked.kind,
            pd: asked.pd,
            user_handle: asked.user_handle,
            send_cq: asked.send_cq,
            recv_cq: asked.recv_cq,
            srq: asked.srq,
            async_channel: asked.async_channel,
            recv: Memory::new(all.address, recv_bytes),
            recv_count: own.rq_wqe_count,
            recv_shift: own.rq_wqe_shift,
            send: Memory::new(all.address + recv_bytes, send_bytes),
            send_count: own.sq_wqe_count,
            record,
            uar,
            register,
            index: own.uidx,
            max_inline_answer,
            max_inline_receive,
            attr: uverbs::QueryQpResp {
                max_send_wr: cap.max_send_wr,
                max_recv_wr: cap.max_recv_wr,
                max_send_sge: cap.max_send_sge,
                max_recv_sge: cap.max_recv_sge,
                max_inline_data: cap.max_inline_data,
                sq_sig_all: u8::from(asked.signals_all),
                ..Default::default()
            },
            state: QpState::RESET,
            groups: Vec::new(),
            events: 0,
            send_next: 0,
            recv_next: 0,
            is_rung: false,
            wait: None,
            is_stopped: false,
            is_last_reported: false,
            is_known: false,
        };
        self.qps.insert(number, qp);
        let answer = mlx5::CreateQpResp {
            bfreg_index: register.map_or(1 << 31, |at| (at / 2 * 4 + at % 2) as u32),
            ece_options: own.ece_options,
            ..Default::default()
        };
        driver.answer = answer.as_bytes().to_vec();
        Ok(Made {
            handle: self.insert(file, Object::Qp(number)),
            number,
            cap,
        })
    }

    /// How long data may be that lands in completions: answers to reads and atomics, and receives.
    fn inline_limits(&self, asked: &Asked, flags: QpFlags) -> (u32, u32) {
        let is_connected = asked.kind != QpType::UD;
        if !flags.contains(QpFlags::SCATTER_CQE) || !is_connected {
            return (0, 0);
        }
        let limit = |cq: u32| {
            if self.cqs[&cq].entry_size == 128 {
                64
            } else {
                32
            }
        };
        let takes_answers = asked.kind == QpType::RC
            && (asked.signals_all || flags.contains(QpFlags::ALLOW_SCATTER_CQE));
        let answers = if takes_answers {
            limit(asked.send_cq)
        } else {
            0
        };
        (answers, limit(asked.recv_cq))
    }

    pub(super) fn query_qp(&self, file: FileId, asked: &uverbs::QueryQp) -> Outcome<Vec<u8>> {
        let qp = &self.qps[&self.qp_number(file, asked.qp_handle)?];
        answer(&uverbs::QueryQpResp {
            qp_state: qp.state.0,
            cur_qp_state: qp.state.0,
            ..qp.attr
        })
    }

    pub(super) fn attach(&mut self, file: FileId, asked: &uverbs::AttachMcast) -> Outcome<Vec<u8>> {
        let number = self.qp_number(file, asked.qp_handle)?;
        let qp = self.qps.get_mut(&number).expect("it was found");
        if qp.kind != QpType::UD || !is_multicast(&asked.gid) {
            return Err(libc::EINVAL);
        }
        if !qp.groups.contains(&asked.gid) {
            qp.groups.push(asked.gid);
        }
        Ok(Vec::new())
    }

    pub(super) fn detach(&mut self, file: FileId, asked: &uverbs::DetachMcast) -> Outcome<Vec<u8>> {
        let number = self.qp_number(file, asked.qp_handle)?;
        let qp = self.qps.get_mut(&number).expect("it was found");
        let at = qp.groups.iter().position(|gid| *gid == asked.gid);
        qp.groups.swap_remove(at.ok_or(libc::EINVAL)?);
        Ok(Vec::new())
    }
}

fn check_kind(kind: QpType) -> Outcome {
    match kind {
        QpType::RC | QpType::UC | QpType::UD => Ok(()),
        _ => Err(libc::EOPNOTSUPP),
    }
}

fn check_flags(own: &mlx5::CreateQp) -> Outcome<QpFlags> {
    let flags = QpFlags::from_bits_retain(own.flags);
    let known = QpFlags::SCATTER_CQE
        | QpFlags::ALLOW_SCATTER_CQE
        | QpFlags::UAR_PAGE_INDEX
        | QpFlags::PACKET_BASED_CREDIT_MODE;
    let is_clean = own.reserved == 0 && own.sq_buf_addr == 0;
    match (flags - known).is_empty() && is_clean {
        true => Ok(flags),
        false => Err(libc::EINVAL),
    }
}

fn check_sizes(own: &mlx5::CreateQp, asked: &Asked) -> Outcome {
    let is_size = |count: u32| count == 0 || count.is_power_of_two() && count <= MAX_QUEUE;
    if !is_size(own.sq_wqe_count) || !is_size(own.rq_wqe_count) || own.rq_wqe_shift > 31 {
        return Err(libc::EINVAL);
    }
    if asked.cap.max_recv_wr > MAX_QUEUE || asked.cap.max_send_wr > MAX_QUEUE {
        return Err(libc::EINVAL);
    }
    let has_receives = own.rq_wqe_count != 0;
    if has_receives {
        let size = 1u32 << own.rq_wqe_shift;
        if asked.srq.is_some() || !(16..=MAX_RECV_BYTES).contains(&size) {
            return Err(libc::EINVAL);
        }
    }
    Ok(())
}

pub(crate) fn is_multicast(gid: &[u8; 16]) -> bool {
    std::net::Ipv6Addr::from(*gid).to_canonical().is_multicast()
}
