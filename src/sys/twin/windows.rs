//! Memory windows, as rxe has them.

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, MwType, WcStatus};

use super::files::FileId;
use super::objects::{Binding, Mw, Object, ObjectId};
use super::verbs::Answer;
use super::work::Verdict;
use super::{Outcome, World};

/// Kept out of the way of the keys of regions.
const FIRST_KEY: u32 = 0x4000_0000;

impl World {
    pub(super) fn alloc_mw(
        &mut self,
        file: FileId,
        request: &uverbs::AllocMw,
        answer: &mut Answer,
    ) -> Outcome {
        let pd = (file, request.pd_handle);
        self.objects.check_pd(pd)?;
        let kind = MwType(request.mw_type);
        if ![MwType::TYPE_1, MwType::TYPE_2].contains(&kind) {
            return Err(libc::EINVAL);
        }
        let rkey = FIRST_KEY | self.objects.next_number() << 8;
        let window = Mw {
            pd,
            is_type_2: kind == MwType::TYPE_2,
            rkey,
            binding: None,
        };
        let mw_handle = self.objects.insert(file, Object::Mw(window));
        answer.put(&uverbs::AllocMwResp { mw_handle, rkey })
    }

    /// Carries out a bind that was posted to a queue pair.
    pub(super) fn bind_window(&mut self, id: ObjectId, bind: &rxe::SendWrMw) -> Verdict {
        match self.new_binding(id, bind) {
            Some((window, binding)) => {
                if let Some(Object::Mw(window)) = self.objects.all.get_mut(&window) {
                    window.binding = binding;
                    window.rkey = window.rkey & !0xff | bind.rkey & 0xff;
                }
                Verdict::Done(0)
            }
            None => Verdict::Failed(WcStatus::MW_BIND_ERR),
        }
    }

    fn new_binding(
        &mut self,
        id: ObjectId,
        bind: &rxe::SendWrMw,
    ) -> Option<(ObjectId, Option<Binding>)> {
        let pd = self.objects.qp(id).ok()?.pd?;
        let (window_id, window) = self.objects.window(bind.mw_rkey)?;
        if window.pd != pd || window.is_type_2 && window.binding.is_some() {
            return None;
        }
        if bind.length == 0 {
            return (!window.is_type_2).then_some((window_id, None));
        }
        let only_for = window.is_type_2.then_some(id);
        let (region, mr) = self
            .objects
            .regions()
            .find(|(_, mr)| mr.key == bind.mr_lkey)?;
        let offset = bind.addr.checked_sub(mr.start)?;
        let fits = offset <= mr.length && bind.length <= mr.length - offset;
        let may_bind = mr.access & uverbs::AccessFlags::MW_BIND.bits() != 0;
        let writes = uverbs::AccessFlags::REMOTE_WRITE | uverbs::AccessFlags::REMOTE_ATOMIC;
        let may_write = mr.access & uverbs::AccessFlags::LOCAL_WRITE.bits() != 0;
        if !fits || !may_bind || bind.access & writes.bits() != 0 && !may_write {
            return None;
        }
        let binding = Binding {
            region,
            start: bind.addr,
            length: bind.length,
            access: bind.access,
            only_for,
        };
        Some((window_id, Some(binding)))
    }

    /// Closes a window of type 2 by its key. False when there is none.
    pub(super) fn invalidate(&mut self, key: u32) -> bool {
        let Some((id, _)) = self.objects.window(key).filter(|(_, mw)| mw.is_type_2) else {
            return false;
        };
        let is_open = match self.objects.all.get_mut(&id) {
            Some(Object::Mw(window)) => window.binding.take().is_some(),
            _ => true,
        };
        if !is_open {
            self.violation("a window that is not open is invalidated, which crashes rxe's kernel");
        }
        true
    }

    /// The region that an open window leads to, where the access is one that the window allows.
    pub(super) fn through_window(
        &self,
        id: ObjectId,
        pd: ObjectId,
        segment: &rxe::Sge,
        access: u32,
    ) -> Option<ObjectId> {
        let (_, window) = self.objects.window(segment.lkey)?;
        let binding = window.binding.as_ref()?;
        let offset = segment.addr.checked_sub(binding.start)?;
        let fits = offset <= binding.length && u64::from(segment.length) <= binding.length - offset;
        let is_for = binding.only_for.is_none_or(|qp| qp == id);
        let is_allowed = window.pd == pd && is_for && fits && binding.access & access == access;
        is_allowed.then_some(binding.region)
    }
}
