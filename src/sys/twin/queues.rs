//! Completion queues and shared receive queues, as rxe makes them.

use rdmacm_kernel_abi::rxe::{self, MmapInfo};
use rdmacm_kernel_abi::uverbs::{self, ioctl};

use super::attrs::{Answers, Inputs};
use super::discovery::TwinDevice;
use super::files::{FileId, Kind};
use super::objects::{Armed, Cq, Object, ObjectId, Srq};
use super::ring::Ring;
use super::verbs::Answer;
use super::{Outcome, World};
use crate::sys::Attr;

impl World {
    pub(super) fn create_cq(
        &mut self,
        file: FileId,
        device: &TwinDevice,
        attrs: &mut [Attr<'_>],
    ) -> Outcome {
        use ioctl::cq::create as attr;
        let inputs = Inputs(attrs);
        let entries: u32 = inputs.typed(attr::CQE)?;
        let reporter = self.reporter(file, inputs, attr::USER_HANDLE, attr::EVENT_FD)?;
        let vector: u32 = inputs.typed(attr::COMP_VECTOR)?;
        if entries == 0
            || entries > device.attributes().max_cqe
            || vector >= device.completion_vectors
        {
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
            reporter,
            armed: None,
            events: 0,
            moderation: (0, 0),
        };
        let handle = self.objects.insert(file, Object::Cq(cq));
        let mut answers = Answers(attrs);
        answers.put(attr::RESP_CQE, &depth)?;
        answers.put(ioctl::UHW_OUT, &rxe::CreateCqResp { mi })?;
        answers.put_handle(attr::HANDLE, handle)
    }

    pub(super) fn resize_cq(
        &mut self,
        file: FileId,
        request: &uverbs::ResizeCq,
        answer: &mut Answer,
    ) -> Outcome<rxe::ResizeCqResp> {
        let most = self.device_of(file)?.attributes().max_cqe;
        if request.cqe == 0 || request.cqe > most {
            return Err(libc::EINVAL);
        }
        let cq = self.objects.cq((file, request.cq_handle))?;
        let (memory, script) = (&mut self.memory, &mut self.script);
        let mi = cq.ring.resize(memory, script, file, request.cqe, true)?;
        let cqe = cq.ring.depth();
        answer.put(&uverbs::ResizeCqResp { cqe, reserved: 0 })?;
        Ok(rxe::ResizeCqResp { mi })
    }

    /// Where the device has moderation; what was set is remembered.
    pub(super) fn modify_cq(&mut self, file: FileId, request: &uverbs::ExModifyCq) -> Outcome {
        if self.device_of(file)?.moderation == (0, 0) {
            return Err(libc::EOPNOTSUPP);
        }
        if request.attr_mask != 1 || request.reserved != 0 {
            return Err(libc::EINVAL);
        }
        let cq = self.objects.cq((file, request.cq_handle))?;
        cq.moderation = (request.attr.cq_count, request.attr.cq_period);
        Ok(())
    }

    pub(super) fn completion_file(&self, fd: std::os::fd::BorrowedFd<'_>) -> Outcome<FileId> {
        let file = self.files.find(fd)?;
        match self.files.kind(file) {
            Kind::Completions(_) => Ok(file),
            _ => Err(libc::EBADF),
        }
    }

    pub(super) fn req_notify(&mut self, file: FileId, request: &uverbs::ReqNotifyCq) -> Outcome {
        let cq = self.objects.cq((file, request.cq_handle))?;
        cq.armed = match (request.solicited_only, cq.armed) {
            (0, _) | (_, Some(Armed::Any)) => Some(Armed::Any),
            _ => Some(Armed::Solicited),
        };
        Ok(())
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
        let token = cq.reporter.token;
        if let Kind::Completions(tokens) = self.files.kind_mut(channel) {
            tokens.push_back(token);
            self.files.signal(channel);
        }
    }

    pub(super) fn create_srq(
        &mut self,
        file: FileId,
        device: &TwinDevice,
        attrs: &mut [Attr<'_>],
    ) -> Outcome {
        use ioctl::srq::create as attr;
        let inputs = Inputs(attrs);
        let pd = (file, inputs.handle(attr::PD_HANDLE)?);
        self.objects.check_pd(pd)?;
        let reporter = self.reporter(file, inputs, attr::USER_HANDLE, attr::EVENT_FD)?;
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
            reporter,
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

    /// Answers with the ring's new memory where that changes.
    pub(super) fn modify_srq(
        &mut self,
        file: FileId,
        request: &uverbs::ModifySrq,
    ) -> Outcome<Option<MmapInfo>> {
        let most = self.device_of(file)?.attributes().max_srq_wr;
        let srq = self.objects.srq((file, request.srq_handle))?;
        let limit = uverbs::SrqAttrMask::LIMIT.bits();
        let max_wr = uverbs::SrqAttrMask::MAX_WR.bits();
        if request.attr_mask == limit && request.srq_limit <= srq.ring.depth() {
            srq.limit = request.srq_limit;
            return Ok(None);
        }
        let asked = request.max_wr;
        if request.attr_mask != max_wr || asked == 0 || asked > most || asked < srq.limit {
            return Err(libc::EINVAL);
        }
        let (memory, script) = (&mut self.memory, &mut self.script);
        srq.ring
            .resize(memory, script, file, asked, false)
            .map(Some)
    }

    pub(super) fn query_srq(
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

    pub(super) fn new_ring(
        &mut self,
        file: FileId,
        entries: u32,
        element: usize,
    ) -> Outcome<(Ring, MmapInfo)> {
        Ring::new(&mut self.memory, &mut self.script, file, entries, element)
    }
}
