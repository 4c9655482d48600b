//! Memory regions, as rxe of Linux 6.12 makes them.

use rdmacm_kernel_abi::uverbs::{self, AccessFlags, ReregMrFlags, ioctl};

use super::attrs::{Answers, Inputs};
use super::files::FileId;
use super::objects::{Mr, Object, ObjectId};
use super::verbs::Answer;
use super::{Outcome, World};
use crate::sys::Attr;

impl World {
    pub(super) fn reg_mr(
        &mut self,
        file: FileId,
        request: uverbs::RegMr,
        answer: &mut Answer,
    ) -> Outcome {
        let pd = (file, request.pd_handle);
        self.objects.check_pd(pd)?;
        if request.length == 0 || (request.start ^ request.hca_va) & 0xfff != 0 {
            return Err(libc::EINVAL);
        }
        let (mr_handle, key) = self.add_region(pd, request.access_flags, |key, pages| Mr {
            pd,
            start: request.start,
            length: request.length,
            key,
            access: request.access_flags,
            pages: pages.containing(request.start),
        })?;
        answer.put(&uverbs::RegMrResp {
            mr_handle,
            lkey: key,
            rkey: key,
        })
    }

    /// Whatever the file is; its memory is not the twin's.
    pub(super) fn reg_dmabuf(&mut self, file: FileId, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::mr::reg_dmabuf as id;
        let inputs = Inputs(attrs);
        let pd = (file, inputs.handle(id::PD_HANDLE)?);
        self.objects.check_pd(pd)?;
        inputs.typed::<u32>(id::FD)?;
        let offset: u64 = inputs.typed(id::OFFSET)?;
        let (start, length) = (inputs.typed(id::IOVA)?, inputs.typed(id::LENGTH)?);
        let access = inputs.typed(id::ACCESS_FLAGS)?;
        if length == 0 || (offset ^ start) & 0xfff != 0 {
            return Err(libc::EINVAL);
        }
        let (handle, key) = self.add_region(pd, access, |key, _| Mr {
            pd,
            start,
            length,
            key,
            access,
            pages: None,
        })?;
        let mut answers = Answers(attrs);
        answers.put(id::RESP_LKEY, &key)?;
        answers.put(id::RESP_RKEY, &key)?;
        answers.put_handle(id::HANDLE, handle)
    }

    fn add_region(
        &mut self,
        pd: ObjectId,
        access: u32,
        make: impl FnOnce(u32, &super::memory::Memory) -> Mr,
    ) -> Outcome<(u32, u32)> {
        self.check_access(pd.0, access)?;
        let key = self.objects.next_number();
        let mr = make(key, &self.memory);
        Ok((self.objects.insert(pd.0, Object::Mr(mr)), key))
    }

    /// Access and protection domain can change, and the keys stay.
    pub(super) fn rereg_mr(
        &mut self,
        file: FileId,
        request: &uverbs::ReregMr,
        answer: &mut Answer,
    ) -> Outcome {
        let flags = ReregMrFlags::from_bits_retain(request.flags);
        if flags.is_empty() {
            return Err(libc::EINVAL);
        }
        if flags.intersects(!(ReregMrFlags::ACCESS | ReregMrFlags::PD)) {
            return Err(libc::EOPNOTSUPP);
        }
        let pd = (file, request.pd_handle);
        if flags.contains(ReregMrFlags::PD) {
            self.objects.check_pd(pd)?;
        }
        if flags.contains(ReregMrFlags::ACCESS) {
            self.check_access(file, request.access_flags)?;
        }
        let mr = self.objects.mr((file, request.mr_handle))?;
        if flags.contains(ReregMrFlags::PD) {
            mr.pd = pd;
        }
        if flags.contains(ReregMrFlags::ACCESS) {
            mr.access = request.access_flags;
        }
        let key = mr.key;
        answer.put(&uverbs::ReregMrResp {
            lkey: key,
            rkey: key,
        })
    }

    fn check_access(&self, file: FileId, access: u32) -> Outcome {
        let device = self.device_of(file)?;
        let access = AccessFlags::from_bits_retain(access);
        let remote_write = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        if access.intersects(remote_write) && !access.contains(AccessFlags::LOCAL_WRITE) {
            return Err(libc::EINVAL);
        }
        let optional = match device.core_support & 1 {
            0 => AccessFlags::empty(),
            _ => AccessFlags::OPTIONAL_RANGE,
        };
        let mut known = AccessFlags::LOCAL_WRITE
            | remote_write
            | AccessFlags::REMOTE_READ
            | AccessFlags::MW_BIND
            | optional;
        let flush = uverbs::DeviceCapFlags::FLUSH_GLOBAL;
        known.set(
            AccessFlags::FLUSH_GLOBAL,
            device.capabilities.contains(flush),
        );
        known.set(AccessFlags::ON_DEMAND, device.has_paging);
        match known.contains(access) {
            true => Ok(()),
            // Its memory is not persistent.
            false if access.contains(AccessFlags::FLUSH_PERSISTENT) => Err(libc::EINVAL),
            false => Err(libc::EOPNOTSUPP),
        }
    }
}
