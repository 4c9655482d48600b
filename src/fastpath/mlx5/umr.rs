//! Changes of memory keys: binding a memory window and closing one are requests that the device
//! carries out like others. They say which fields of the key change, and to what.

use rdmacm_kernel_abi::mlx5::{
    ANY_QPN, KLM_MAX_BYTES, MKEY_CONTEXT_FREE, MkeyAccess, MkeyContextSeg, MkeyMask, UmrCtrlSeg,
    UmrFlags, UmrKlmSeg,
};
use rdmacm_kernel_abi::uverbs::AccessFlags;
use zerocopy::byteorder::big_endian::U32;

use super::sizes::TRANSLATION;
use super::wqe::Writer;
use crate::fastpath::request::WindowBind;

/// The longest window: it is one piece of the translation.
pub(super) const LONGEST_WINDOW: u64 = KLM_MAX_BYTES;

/// Binds a memory window, or closes one where the range has no bytes.
///
/// # Safety
///
/// There must be room.
pub(super) unsafe fn write_bind(to: &mut Writer, bind: &WindowBind, qp_num: u32) {
    let is_bound_to_qp = bind.is_of_type_2;
    let opens = bind.length > 0;
    let mut control = UmrCtrlSeg::default();
    let mut mask = MkeyMask::FREE | MkeyMask::MKEY;
    mask.set(MkeyMask::QPN, is_bound_to_qp);
    let mut key = MkeyContextSeg {
        qpn_mkey: qpn_mkey(
            bind.new_rkey,
            match is_bound_to_qp && opens {
                true => qp_num,
                false => ANY_QPN,
            },
        ),
        ..Default::default()
    };
    let mut flags = UmrFlags::TRNSLATION_OFFSET | UmrFlags::INLINE;
    if opens {
        // A window of type 2 that is open must be closed first; the device checks.
        flags.set(UmrFlags::CHECK_FREE, is_bound_to_qp);
        mask |= MkeyMask::LEN
            | MkeyMask::START_ADDR
            | MkeyMask::ACCESS_LOCAL_WRITE
            | MkeyMask::ACCESS_REMOTE_READ
            | MkeyMask::ACCESS_REMOTE_WRITE
            | MkeyMask::ACCESS_ATOMIC;
        control.klm_octowords = octowords_of(1).into();
        key.access_flags = access(AccessFlags::from_bits_retain(bind.access)).bits();
        key.start_addr = bind.address.into();
        key.len = bind.length.into();
    } else {
        flags.set(UmrFlags::CHECK_QPN, is_bound_to_qp);
        key.free = MKEY_CONTEXT_FREE;
    }
    control.flags = flags.bits();
    control.mkey_mask = mask.bits().into();
    // SAFETY: by the caller.
    unsafe {
        to.put(control);
        to.put(key);
        if opens {
            let piece = UmrKlmSeg {
                byte_count: (bind.length as u32).into(),
                mkey: bind.lkey.into(),
                address: bind.address.into(),
            };
            to.put(piece);
            to.put([0u64; (TRANSLATION as usize - size_of::<UmrKlmSeg>()) / 8]);
        }
    }
}

/// Closes a memory window of type 2.
///
/// # Safety
///
/// There must be room.
pub(super) unsafe fn write_invalidate(to: &mut Writer) {
    let closed = WindowBind {
        is_of_type_2: true,
        ..Default::default()
    };
    // SAFETY: by the caller.
    unsafe { write_bind(to, &closed, ANY_QPN) };
}

fn qpn_mkey(key: u32, qp_num: u32) -> U32 {
    (qp_num << 8 | key & 0xff).into()
}

/// The length of a translation of so many pieces, in units of 16 bytes. It is a multiple of four
/// pieces.
fn octowords_of(pieces: u16) -> u16 {
    pieces.next_multiple_of(8) / 2
}

/// What peers may do. Local reading is a matter of the kernel's.
fn access(flags: AccessFlags) -> MkeyAccess {
    let mut bits = MkeyAccess::empty();
    for (flag, bit) in [
        (AccessFlags::LOCAL_WRITE, MkeyAccess::LOCAL_WRITE),
        (AccessFlags::REMOTE_WRITE, MkeyAccess::REMOTE_WRITE),
        (AccessFlags::REMOTE_READ, MkeyAccess::REMOTE_READ),
        (AccessFlags::REMOTE_ATOMIC, MkeyAccess::ATOMIC),
    ] {
        bits.set(bit, flags.contains(flag));
    }
    bits
}
