//! Memory keys: which memory a request means, and whether it may.

use rdmacm_kernel_abi::uverbs::AccessFlags;

use crate::world::{Bound, Key, KeyKind, World};

impl World {
    fn key(&self, key: u32) -> Option<&Key> {
        let found = self.keys.get(&(key >> 8))?;
        (u32::from(found.tag) == key & 0xff).then_some(found)
    }

    /// Where memory is that a request of the own side names.
    pub(super) fn local(
        &self,
        pd: u32,
        key: u32,
        address: u64,
        length: u64,
        access: AccessFlags,
    ) -> Option<u64> {
        let found = self.key(key).filter(|key| key.pd == pd)?;
        let KeyKind::Region {
            memory,
            start,
            access: granted,
        } = &found.kind
        else {
            return None;
        };
        let offset = address.checked_sub(*start)?;
        let fits = offset.checked_add(length)? <= memory.length;
        (fits && granted.contains(access)).then_some(memory.address + offset)
    }

    /// Where memory is that a peer names in a request to a queue pair.
    pub(super) fn remote(
        &self,
        qp: u32,
        key: u32,
        address: u64,
        length: u64,
        access: AccessFlags,
    ) -> Option<u64> {
        let pd = self.qps.get(&qp)?.pd;
        let found = self.key(key).filter(|key| key.pd == pd)?;
        let KeyKind::Window { bound, .. } = &found.kind else {
            return self.local(pd, key, address, length, access);
        };
        let bound: &Bound = bound.as_ref()?;
        let offset = address.checked_sub(bound.start)?;
        let is_open = bound.qp.is_none_or(|open_to| open_to == qp)
            && bound.access.contains(access)
            && offset.checked_add(length)? <= bound.length;
        // What the window allows was compared with the region when it was bound.
        let below = bound.address + offset;
        is_open
            .then(|| self.local(pd, bound.region, below, length, AccessFlags::empty()))
            .flatten()
    }

    /// Closes a window of type 2 that is open to a queue pair. False where the key is not that.
    pub(super) fn close_window(&mut self, qp: u32, key: u32) -> bool {
        let Some(pd) = self.qps.get(&qp).map(|qp| qp.pd) else {
            return false;
        };
        if self.key(key).is_none_or(|key| key.pd != pd) {
            return false;
        }
        let found = self.keys.get_mut(&(key >> 8)).expect("it was found");
        match &mut found.kind {
            KeyKind::Window {
                is_type_2: true,
                bound,
            } if bound.as_ref().is_some_and(|bound| bound.qp == Some(qp)) => {
                *bound = None;
                true
            }
            _ => false,
        }
    }
}
