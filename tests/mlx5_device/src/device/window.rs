//! Requests that change a memory key: binding windows, closing them.

use rdmacm_kernel_abi::mlx5::{
    self, CqeSyndrome, MkeyAccess, MkeyContextSeg, MkeyMask, UmrCtrlSeg, UmrFlags, UmrKlmSeg,
};
use rdmacm_kernel_abi::uverbs::AccessFlags;
use zerocopy::IntoBytes;

use super::request::{Request, segment};
use super::send::Ending;
use crate::world::{Bound, Key, KeyKind, World};

/// What stands for no queue pair.
const ANY: u32 = 0xff_ffff;

impl World {
    pub(super) fn change_key(&mut self, number: u32, request: &Request) -> Result<Ending, String> {
        let (control, rest) = segment::<UmrCtrlSeg>(&request.body)?;
        let (context, rest) = segment::<MkeyContextSeg>(rest)?;
        check_reserved(&control, &context)?;
        let key = u32::from_be_bytes(request.word);
        let mask = MkeyMask::from_bits_retain(control.mkey_mask.get());
        if !mask.contains(MkeyMask::FREE) {
            return Err(format!(
                "a key changes, and it is not said whether it is free: {mask:?}"
            ));
        }
        let is_done = match context.free & mlx5::MKEY_CONTEXT_FREE {
            0 => {
                let (piece, _) = segment::<UmrKlmSeg>(rest)?;
                self.bind(number, key, &control, &context, &piece)
            }
            _ if !rest.is_empty() => return Err("a key is freed with a translation".to_owned()),
            _ => self.invalidate(number, key, &control, &context),
        };
        Ok(match is_done {
            true => Ending::DONE,
            false => CqeSyndrome::MW_BIND_ERR.into(),
        })
    }

    fn bind(
        &mut self,
        number: u32,
        key: u32,
        control: &UmrCtrlSeg,
        context: &MkeyContextSeg,
        piece: &UmrKlmSeg,
    ) -> bool {
        let pd = self.qps[&number].pd;
        let flags = UmrFlags::from_bits_retain(control.flags);
        let named = context.qpn_mkey.get() >> 8;
        let access = access(MkeyAccess::from_bits_retain(context.access_flags));
        // What the region must allow.
        let mut needed = AccessFlags::MW_BIND;
        if access.intersects(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC) {
            needed |= AccessFlags::LOCAL_WRITE;
        }
        let (region, address) = (piece.mkey.get(), piece.address.get());
        let length = context.len.get();
        if u64::from(piece.byte_count.get()) != length
            || self.local(pd, region, address, length, needed).is_none()
        {
            return false;
        }
        let Some(found) = self.window(pd, key) else {
            return false;
        };
        let KeyKind::Window { is_type_2, bound } = &mut found.kind else {
            return false;
        };
        // A window of type 2 is one queue pair's, and is not bound over.
        let fits = match *is_type_2 {
            true => named == number && flags.contains(UmrFlags::CHECK_FREE) && bound.is_none(),
            false => named == ANY,
        };
        if !fits {
            return false;
        }
        *bound = Some(Bound {
            qp: is_type_2.then_some(number),
            start: context.start_addr.get(),
            length,
            access,
            region,
            address,
        });
        found.tag = context.qpn_mkey.get() as u8;
        true
    }

    fn invalidate(
        &mut self,
        number: u32,
        key: u32,
        control: &UmrCtrlSeg,
        context: &MkeyContextSeg,
    ) -> bool {
        let flags = UmrFlags::from_bits_retain(control.flags);
        let pd = self.qps[&number].pd;
        let Some(found) = self.window(pd, key) else {
            return false;
        };
        let KeyKind::Window { is_type_2, bound } = &mut found.kind else {
            return false;
        };
        let is_own = bound.as_ref().is_some_and(|bound| bound.qp == Some(number));
        // Of type 1 it is a bind of no length.
        if *is_type_2 && !(is_own && flags.contains(UmrFlags::CHECK_QPN)) {
            return false;
        }
        *bound = None;
        found.tag = context.qpn_mkey.get() as u8;
        true
    }

    /// The key that changes. Its low byte is not looked at: the kernel's own registrations name a key
    /// by the byte that it is to have, and the C library a window by the one that it had before it
    /// was invalidated.
    fn window(&mut self, pd: u32, key: u32) -> Option<&mut Key> {
        let found = self.keys.get_mut(&(key >> 8))?;
        (found.pd == pd).then_some(found)
    }
}

fn check_reserved(control: &UmrCtrlSeg, context: &MkeyContextSeg) -> Result<(), String> {
    let is_clean = control.rsvd0 == [0; 3]
        && control.rsvd1 == [0; 32]
        && context.reserved1 == 0
        && context.sf == 0
        && context.reserved2.get() == 0
        && context.bsf_octword_size.get() == 0
        && context.reserved3.as_bytes() == [0; 16]
        && context.reserved4 == [0; 3]
        && context.reserved.get() == 0;
    match is_clean {
        true => Ok(()),
        false => Err(format!("reserved bits: {control:x?} {context:x?}")),
    }
}

fn access(flags: MkeyAccess) -> AccessFlags {
    [
        (MkeyAccess::REMOTE_READ, AccessFlags::REMOTE_READ),
        (MkeyAccess::REMOTE_WRITE, AccessFlags::REMOTE_WRITE),
        (MkeyAccess::ATOMIC, AccessFlags::REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .fold(AccessFlags::empty(), |all, (_, access)| all | access)
}
