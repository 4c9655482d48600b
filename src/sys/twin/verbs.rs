//! The commands about a device's objects, as rxe carries them out.

use rdmacm_kernel_abi::rxe::{self, MmapInfo};
use rdmacm_kernel_abi::uverbs::{self, QpAttrMask, QpState, ioctl};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::attrs::{Answers, Inputs};
use super::discovery::TwinDevice;
use super::files::{FileId, Kind};
use super::objects::{Ah, Armed, Cq, Mr, Object, ObjectId, Qp, Srq};
use super::ring::Ring;
use super::{Outcome, World};
use crate::sys::{Attr, IoctlCommand};

impl World {
    /// Carries a uverbs ioctl out.
    pub(super) fn verbs(&mut self, file: FileId, command: &mut IoctlCommand<'_, '_>) -> Outcome {
        let device = self.device_of(file)?;
        if Inputs(command.attrs).is_too_long() {
            self.violation("an attribute of more than 65535 bytes does not fit its record");
            return Err(libc::EINVAL);
        }
        if command.driver_id != device.driver.0 {
            return Err(libc::EINVAL);
        }
        use ioctl::object as o;
        let method = (command.object, command.method);
        if device.is_gone && !is_allowed_after_removal(method) {
            return Err(libc::EIO);
        }
        let is_context = method == (o::DEVICE, ioctl::device::GET_CONTEXT);
        if self.has_context(file) == is_context {
            return Err(libc::EINVAL);
        }
        let attrs = &mut *command.attrs;
        match method {
            (o::DEVICE, ioctl::device::GET_CONTEXT) => self.get_context(file, attrs),
            (o::DEVICE, ioctl::device::INVOKE_WRITE) => self.invoke_write(file, attrs),
            (o::DEVICE, ioctl::device::QUERY_PORT) => query_port(&device, attrs),
            (o::DEVICE, ioctl::device::QUERY_GID_TABLE) => query_gids(&device, attrs),
            (o::CQ, ioctl::cq::CREATE) => self.create_cq(file, &device, attrs),
            (o::SRQ, ioctl::srq::CREATE) => self.create_srq(file, &device, attrs),
            (o::QP, ioctl::qp::CREATE) => self.create_qp(file, &device, attrs),
            (o::ASYNC_EVENT, ioctl::async_event::ALLOC) => {
                let (_, fd) = self.open_file(Kind::AsyncEvents)?;
                Answers(attrs).put_fd(ioctl::async_event::alloc::FD_HANDLE, fd)
            }
            // The handle is attribute 0 and the answer 1, whatever is destroyed.
            (o::PD | o::MR | o::AH | o::CQ | o::SRQ | o::QP | o::XRCD, _) => {
                self.destroy(file, command.object, attrs)
            }
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }

    fn has_context(&self, file: FileId) -> bool {
        matches!(
            self.files.kind(file),
            Kind::Uverbs {
                has_context: true,
                ..
            }
        )
    }

    fn get_context(&mut self, file: FileId, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::device::get_context as attr;
        let mut answers = Answers(attrs);
        answers.put(attr::NUM_COMP_VECTORS, &1u32)?;
        answers.put(attr::CORE_SUPPORT, &1u64)?;
        if let Kind::Uverbs { has_context, .. } = self.files.kind_mut(file) {
            *has_context = true;
        }
        Ok(())
    }

    /// A write command that is wrapped in an ioctl.
    fn invoke_write(&mut self, file: FileId, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::device::invoke_write as attr;
        let number = Inputs(attrs).number(attr::WRITE_CMD)?;
        let request = Inputs(attrs).input(attr::CORE_IN)?.to_vec();
        let mut answer = Answer(Vec::new());
        use uverbs::Command as C;
        match C(number as u32) {
            C::ALLOC_PD => self.alloc_pd(file, &mut answer),
            C::REG_MR => self.reg_mr(file, parse(&request)?, &mut answer),
            C::CREATE_COMP_CHANNEL => {
                let (_, fd) = self.open_file(Kind::Completions(Default::default()))?;
                use std::os::fd::IntoRawFd;
                answer.put(&uverbs::CreateCompChannelResp {
                    fd: fd.into_raw_fd() as u32,
                })
            }
            C::REQ_NOTIFY_CQ => self.req_notify(file, &parse(&request)?),
            C::CREATE_AH => {
                let number = self.create_ah(file, &parse(&request)?, &mut answer)?;
                // The reserved word is not written.
                Answers(attrs).put(ioctl::UHW_OUT, &number)
            }
            C::OPEN_XRCD => self.open_xrcd(file, &parse(&request)?, &mut answer),
            C::MODIFY_SRQ => {
                Inputs(attrs).typed::<rxe::ModifySrqCmd>(ioctl::UHW_IN)?;
                self.modify_srq(file, &parse(&request)?)
            }
            C::QUERY_SRQ => self.query_srq(file, &parse(&request)?, &mut answer),
            C::ATTACH_MCAST => self.attach(file, &parse(&request)?),
            C::DETACH_MCAST => self.detach(file, &parse(&request)?),
            C::MODIFY_QP => self.modify_qp(file, &parse(&request)?),
            C::QUERY_QP => self.query_qp(file, &parse(&request)?, &mut answer),
            C(extended) if extended == QUERY_DEVICE_EX => {
                let device = self.device_of(file)?;
                answer.put(&uverbs::ExQueryDeviceResp {
                    base: device.attributes(),
                    ..FromZeros::new_zeroed()
                })
            }
            _ => Err(libc::EOPNOTSUPP),
        }?;
        match answer.0.as_slice() {
            [] => Ok(()),
            bytes => Answers(attrs).put(attr::CORE_OUT, bytes),
        }
    }

    fn alloc_pd(&mut self, file: FileId, answer: &mut Answer) -> Outcome {
        let pd_handle = self.objects.insert(file, Object::Pd);
        answer.put(&uverbs::AllocPdResp { pd_handle })
    }

    fn reg_mr(&mut self, file: FileId, request: uverbs::RegMr, answer: &mut Answer) -> Outcome {
        let pd = (file, request.pd_handle);
        self.objects.check_pd(pd)?;
        let remote_write = request.access_flags & (2 | 8) != 0;
        let local_write = request.access_flags & 1 != 0;
        if request.length == 0 || remote_write && !local_write {
            return Err(libc::EINVAL);
        }
        let key = self.objects.next_number();
        let mr_handle = self.objects.insert(
            file,
            Object::Mr(Mr {
                pd,
                start: request.start,
                length: request.length,
                key,
                access: request.access_flags,
                pages: self.memory.containing(request.start),
            }),
        );
        answer.put(&uverbs::RegMrResp {
            mr_handle,
            lkey: key,
            rkey: key,
        })
    }

    fn req_notify(&mut self, file: FileId, request: &uverbs::ReqNotifyCq) -> Outcome {
        let cq = self.objects.cq((file, request.cq_handle))?;
        cq.armed = match (request.solicited_only, cq.armed) {
            (0, _) | (_, Some(Armed::Any)) => Some(Armed::Any),
            _ => Some(Armed::Solicited),
        };
        Ok(())
    }

    fn create_cq(&mut self, file: FileId, device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::cq::create as attr;
        let inputs = Inputs(attrs);
        let entries: u32 = inputs.typed(attr::CQE)?;
        let token: u64 = inputs.typed(attr::USER_HANDLE)?;
        let vector: u32 = inputs.typed(attr::COMP_VECTOR)?;
        if entries == 0 || entries > device.attributes().max_cqe || vector > 0 {
            return Err(libc::EINVAL);
        }
        let channel = match inputs.fd(attr::COMP_CHANNEL) {
            Some(fd) => Some(self.completion_file(fd)?),
            None => None,
        };
        // As rxe: 128 bytes for the 48 of a completion.
        let (ring, mi) = Ring::new(&mut self.memory, &mut self.script, file, entries, 128)?;
        let depth = ring.depth();
        let cq = Cq {
            ring,
            channel,
            token,
            armed: None,
            events: 0,
        };
        let handle = self.objects.insert(file, Object::Cq(cq));
        let mut answers = Answers(attrs);
        answers.put(attr::RESP_CQE, &depth)?;
        answers.put(ioctl::UHW_OUT, &rxe::CreateCqResp { mi })?;
        answers.put_handle(attr::HANDLE, handle)
    }

    fn completion_file(&self, fd: std::os::fd::BorrowedFd<'_>) -> Outcome<FileId> {
        let file = self.files.find(fd)?;
        match self.files.kind(file) {
            Kind::Completions(_) => Ok(file),
            _ => Err(libc::EBADF),
        }
    }

    fn create_ah(
        &mut self,
        file: FileId,
        request: &uverbs::CreateAh,
        answer: &mut Answer,
    ) -> Outcome<u32> {
        let pd = (file, request.pd_handle);
        self.objects.check_pd(pd)?;
        let device = self.device_of(file)?;
        let attr = request.attr;
        let is_port = (1..=device.ports).contains(&attr.port_num);
        let has_gid = usize::from(attr.grh.sgid_index) < device.gids().len();
        if attr.is_global != 1 || !is_port || !has_gid {
            return Err(libc::EINVAL);
        }
        let number = self.objects.next_number();
        let ah = Ah { pd, number, attr };
        let ah_handle = self.objects.insert(file, Object::Ah(ah));
        answer.put(&uverbs::CreateAhResp { ah_handle })?;
        Ok(number)
    }

    fn open_xrcd(
        &mut self,
        file: FileId,
        request: &uverbs::OpenXrcd,
        answer: &mut Answer,
    ) -> Outcome {
        if !self.device_of(file)?.has_xrc {
            return Err(libc::EOPNOTSUPP);
        }
        if (request.fd, request.oflags) != (u32::MAX, libc::O_CREAT as u32) {
            return Err(libc::EINVAL);
        }
        let xrcd_handle = self.objects.insert(file, Object::Xrcd);
        answer.put(&uverbs::OpenXrcdResp { xrcd_handle })
    }

    fn create_srq(&mut self, file: FileId, device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::srq::create as attr;
        let inputs = Inputs(attrs);
        let pd = (file, inputs.handle(attr::PD_HANDLE)?);
        self.objects.check_pd(pd)?;
        inputs.typed::<u64>(attr::USER_HANDLE)?;
        let (max_wr, max_sge): (u32, u32) =
            (inputs.typed(attr::MAX_WR)?, inputs.typed(attr::MAX_SGE)?);
        let limit: u32 = inputs.typed(attr::LIMIT)?;
        let limits = device.attributes();
        if max_wr == 0 || max_wr > limits.max_srq_wr || max_sge > limits.max_srq_sge {
            return Err(libc::EINVAL);
        }
        let xrc = match uverbs::SrqType(inputs.number(attr::TYPE)? as u32) {
            uverbs::SrqType::BASIC => None,
            uverbs::SrqType::XRC if device.has_xrc => {
                let xrcd = (file, inputs.handle(attr::XRCD_HANDLE)?);
                let cq = (file, inputs.handle(attr::CQ_HANDLE)?);
                self.objects.check_xrcd(xrcd)?;
                self.objects.cq(cq)?;
                Some([xrcd, cq])
            }
            _ => return Err(libc::EOPNOTSUPP),
        };
        let element = size_of::<rxe::RecvWqe>() + max_sge as usize * 16;
        let (ring, mi) = self.new_ring(file, max_wr, element)?;
        let srq_num = self.objects.next_number();
        let depth = ring.depth();
        let has_number = xrc.is_some();
        let srq = Srq {
            pd,
            xrc,
            ring,
            max_sge,
            limit,
        };
        let handle = self.objects.insert(file, Object::Srq(srq));
        let mut answers = Answers(attrs);
        answers.put(attr::RESP_MAX_WR, &depth)?;
        answers.put(attr::RESP_MAX_SGE, &max_sge)?;
        if has_number {
            answers.put(attr::RESP_SRQ_NUM, &srq_num)?;
        }
        let driver = rxe::CreateSrqResp {
            mi,
            srq_num,
            reserved: 0,
        };
        answers.put(ioctl::UHW_OUT, &driver)?;
        answers.put_handle(attr::HANDLE, handle)
    }

    fn modify_srq(&mut self, file: FileId, request: &uverbs::ModifySrq) -> Outcome {
        let srq = self.objects.srq((file, request.srq_handle))?;
        if request.attr_mask != uverbs::SrqAttrMask::LIMIT.bits()
            || request.srq_limit > srq.ring.depth()
        {
            return Err(libc::EINVAL);
        }
        srq.limit = request.srq_limit;
        Ok(())
    }

    fn query_srq(
        &mut self,
        file: FileId,
        request: &uverbs::QuerySrq,
        answer: &mut Answer,
    ) -> Outcome {
        let srq = self.objects.srq((file, request.srq_handle))?;
        answer.put(&uverbs::QuerySrqResp {
            max_wr: srq.ring.depth(),
            max_sge: srq.max_sge,
            srq_limit: srq.limit,
            reserved: 0,
        })
    }

    fn attach(&mut self, file: FileId, request: &uverbs::AttachMcast) -> Outcome {
        let qp = self.objects.qp((file, request.qp_handle))?;
        let group = (request.gid, request.mlid);
        if qp.kind != uverbs::QpType::UD || !is_multicast(&request.gid) {
            return Err(libc::EINVAL);
        }
        if !qp.groups.contains(&group) {
            qp.groups.push(group);
        }
        Ok(())
    }

    fn detach(&mut self, file: FileId, request: &uverbs::DetachMcast) -> Outcome {
        let qp = self.objects.qp((file, request.qp_handle))?;
        let group = (request.gid, request.mlid);
        let at = qp.groups.iter().position(|known| *known == group);
        qp.groups.swap_remove(at.ok_or(libc::EINVAL)?);
        Ok(())
    }

    fn create_qp(&mut self, file: FileId, device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::qp::create as attr;
        use uverbs::QpType as T;
        let inputs = Inputs(attrs);
        let kind = T(inputs.number(attr::TYPE)? as u8);
        let is_xrc = matches!(kind, T::XRC_INI | T::XRC_TGT);
        let is_there = matches!(kind, T::RC | T::UC | T::UD) || is_xrc && device.has_xrc;
        if !is_there {
            return Err(libc::EOPNOTSUPP);
        }
        let id_of = |attr| inputs.handle_if_any(attr).map(|handle| (file, handle));
        let (pd, xrcd) = (id_of(attr::PD_HANDLE), id_of(attr::XRCD_HANDLE));
        let (send_cq, recv_cq) = (id_of(attr::SEND_CQ_HANDLE), id_of(attr::RECV_CQ_HANDLE));
        let srq = id_of(attr::SRQ_HANDLE);
        let sends = kind != T::XRC_TGT;
        let receives = !is_xrc;
        let fits = (pd.is_some(), xrcd.is_some()) == (sends, !sends)
            && (send_cq.is_some(), recv_cq.is_some()) == (sends, receives)
            && (receives || srq.is_none());
        if !fits {
            return Err(libc::EINVAL);
        }
        pd.map_or(Ok(()), |pd| self.objects.check_pd(pd))?;
        xrcd.map_or(Ok(()), |xrcd| self.objects.check_xrcd(xrcd))?;
        for cq in [send_cq, recv_cq].into_iter().flatten() {
            self.objects.cq(cq)?;
        }
        if let Some(srq) = srq
            && self.objects.srq(srq)?.xrc.is_some()
        {
            return Err(libc::EINVAL);
        }
        let flags: u32 = inputs.typed(attr::FLAGS)?;
        let asked: ioctl::QpCap = inputs.typed(attr::CAP)?;
        if !receives && asked.max_recv_wr != 0 || !sends && asked.max_send_wr != 0 {
            return Err(libc::EINVAL);
        }
        let mut cap = grant(device, asked)?;
        let mut driver = rxe::CreateQpResp::default();
        let mut send_ring = None;
        if sends {
            let (ring, mi) = self.new_ring(file, cap.max_send_wr, send_element(&cap))?;
            cap.max_send_wr = ring.depth();
            (send_ring, driver.sq_mi) = (Some(ring), mi);
        }
        let mut recv_ring = None;
        if receives && srq.is_none() {
            let (ring, mi) = self.new_ring(file, cap.max_recv_wr, recv_element(&cap))?;
            cap.max_recv_wr = ring.depth();
            (recv_ring, driver.rq_mi) = (Some(ring), mi);
        }
        let number = self.objects.next_number();
        let attr_set = uverbs::QueryQpResp {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
            ..Default::default()
        };
        let qp = Qp {
            kind,
            pd,
            send_cq,
            recv_cq,
            srq,
            xrcd,
            send_ring,
            recv_ring,
            groups: Vec::new(),
            attr: attr_set,
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

    fn new_ring(
        &mut self,
        file: FileId,
        entries: u32,
        element: usize,
    ) -> Outcome<(Ring, MmapInfo)> {
        Ring::new(&mut self.memory, &mut self.script, file, entries, element)
    }

    fn modify_qp(&mut self, file: FileId, request: &uverbs::ModifyQp) -> Outcome {
        let ports = self.device_of(file)?.ports;
        let qp = self.objects.qp((file, request.qp_handle))?;
        let mask = QpAttrMask::from_bits_retain(request.attr_mask);
        let target = QpState(request.qp_state);
        let needed = needed(qp.kind, qp.state, target).ok_or(libc::EINVAL)?;
        // A queue pair for datagrams has no peer of its own.
        let superfluous = match qp.kind {
            uverbs::QpType::UD => QpAttrMask::AV | QpAttrMask::DEST_QPN | QpAttrMask::ACCESS_FLAGS,
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

    fn query_qp(
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

    fn destroy(&mut self, file: FileId, object: u16, attrs: &mut [Attr<'_>]) -> Outcome {
        let id = (file, Inputs(attrs).handle(0)?);
        let found = self.objects.all.get(&id).ok_or(libc::ENOENT)?;
        let events = match (object, found) {
            (ioctl::object::PD, Object::Pd)
            | (ioctl::object::MR, Object::Mr(_))
            | (ioctl::object::AH, Object::Ah(_))
            | (ioctl::object::XRCD, Object::Xrcd) => None,
            (ioctl::object::CQ, Object::Cq(cq)) => Some(u64::from(cq.events).to_ne_bytes()),
            (ioctl::object::QP, Object::Qp(_)) | (ioctl::object::SRQ, Object::Srq(_)) => {
                Some([0; 8])
            }
            _ => return Err(libc::EINVAL),
        };
        if self.objects.is_busy(id) {
            return Err(libc::EBUSY);
        }
        self.remove_object(id);
        match (events, object) {
            (Some(counts), ioctl::object::CQ) => Answers(attrs).put(1, &counts),
            (Some(counts), _) => Answers(attrs).put(1, &counts[..4]),
            (None, _) => Ok(()),
        }
    }

    fn remove_object(&mut self, id: ObjectId) {
        match self.objects.all.remove(&id) {
            Some(Object::Cq(cq)) => cq.ring.destroy(&mut self.memory),
            Some(Object::Srq(srq)) => srq.ring.destroy(&mut self.memory),
            Some(Object::Qp(qp)) => {
                for ring in [qp.send_ring, qp.recv_ring].into_iter().flatten() {
                    ring.destroy(&mut self.memory);
                }
            }
            Some(Object::Pd | Object::Mr(_) | Object::Ah(_) | Object::Xrcd) | None => {}
        }
    }

    /// A device's file was closed: the kernel takes back what is left.
    pub(super) fn close_uverbs(&mut self, file: FileId) {
        let left: Vec<_> = self
            .objects
            .all
            .keys()
            .filter(|id| id.0 == file)
            .copied()
            .collect();
        // The library leaves its default protection domain to the kernel.
        let is_pd = |id: &&ObjectId| matches!(self.objects.all[*id], Object::Pd);
        let default = left.iter().find(is_pd).copied();
        for id in left {
            if Some(id) != default {
                let text = format!("a file was closed with {:?}", self.objects.all[&id]);
                self.reclaimed.push(text);
            }
            self.remove_object(id);
        }
    }

    /// Puts an event on a completion queue's channel, if the queue is armed for it.
    pub(super) fn notify(&mut self, id: ObjectId, is_solicited: bool) {
        let Ok(cq) = self.objects.cq(id) else { return };
        let wanted = match cq.armed {
            Some(Armed::Any) => true,
            Some(Armed::Solicited) => is_solicited,
            None => false,
        };
        let Some(channel) = cq.channel.filter(|_| wanted) else {
            return;
        };
        cq.armed = None;
        cq.events += 1;
        let token = cq.token;
        if let Kind::Completions(tokens) = self.files.kind_mut(channel) {
            tokens.push_back(token);
            self.files.signal(channel);
        }
    }
}

const QUERY_DEVICE_EX: u32 = uverbs::ExCommand::QUERY_DEVICE.0 | uverbs::CMD_FLAG_EXTENDED;

/// The bytes of an answer to a write command.
struct Answer(Vec<u8>);

impl Answer {
    fn put<T: IntoBytes + Immutable>(&mut self, answer: &T) -> Outcome {
        self.0.extend(answer.as_bytes());
        Ok(())
    }
}

/// A request shorter than its structure has no room for what the kernel reads.
fn parse<T: FromBytes>(request: &[u8]) -> Outcome<T> {
    T::read_from_bytes(request).map_err(|_| libc::ENOSPC)
}

fn is_allowed_after_removal((object, method): (u16, u16)) -> bool {
    // DESTROY is 0 where there is no CREATE, else 1.
    match object {
        ioctl::object::PD | ioctl::object::AH | ioctl::object::XRCD => method == 0,
        ioctl::object::MR | ioctl::object::CQ | ioctl::object::SRQ | ioctl::object::QP => {
            method == 1
        }
        _ => false,
    }
}

/// The attributes that a transition needs; `None` where there is no transition.
fn needed(kind: uverbs::QpType, from: QpState, to: QpState) -> Option<QpAttrMask> {
    use QpAttrMask as A;
    use QpState as S;
    let is_reliable = !matches!(kind, uverbs::QpType::UC | uverbs::QpType::UD);
    let mut init = A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS;
    let mut rtr = A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
    let mut rts = A::SQ_PSN;
    if is_reliable {
        rtr |= A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
        rts |= A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC;
    }
    if kind == uverbs::QpType::UD {
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

fn query_port(device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
    use ioctl::device::query_port as attr;
    let port: u64 = Inputs(attrs).typed(attr::PORT_NUM)?;
    if !(1..=u64::from(device.ports)).contains(&port) {
        return Err(libc::EINVAL);
    }
    let legacy_resp = uverbs::QueryPortResp {
        max_msg_sz: 0x8000_0000,
        gid_tbl_len: device.gid_table_length,
        pkey_tbl_len: 1,
        state: 4,
        max_mtu: 5,
        active_mtu: 3,
        link_layer: 2,
        ..FromZeros::new_zeroed()
    };
    Answers(attrs).put(
        attr::RESP,
        &ioctl::QueryPortRespEx {
            legacy_resp,
            ..Default::default()
        },
    )
}

fn query_gids(device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
    use ioctl::device::query_gid_table as attr;
    if Inputs(attrs).typed::<u64>(attr::ENTRY_SIZE)? != size_of::<ioctl::GidEntry>() as u64 {
        return Err(libc::EINVAL);
    }
    let entries = device.gids();
    let mut answers = Answers(attrs);
    answers.put(attr::RESP_ENTRIES, entries.as_slice())?;
    answers.put(attr::RESP_NUM_ENTRIES, &(entries.len() as u64))
}
