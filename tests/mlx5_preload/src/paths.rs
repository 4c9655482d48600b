//! Paths that lead elsewhere.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;

use crate::device::Device;
use crate::sysfs::NODE;

/// Where a path leads.
pub(crate) struct Target<'a> {
    pub(crate) path: Cow<'a, CStr>,
    /// To the device.
    pub(crate) is_device: bool,
}

/// Where a path of the program's leads.
///
/// # Safety
///
/// It must end with a zero, as for any function of the C library.
pub(crate) unsafe fn target<'a>(path: *const c_char) -> Option<Target<'a>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let bytes = path.to_bytes();
    if bytes == b"/dev/infiniband/uverbs0" {
        return Some(Target {
            path: NODE.into(),
            is_device: true,
        });
    }
    let is_there = |class: &[u8]| {
        let rest = bytes.strip_prefix(class);
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let path = match is_there(b"/sys/class/infiniband") || is_there(b"/sys/class/infiniband_verbs")
    {
        true => {
            let mut other = Device::get().root.as_os_str().as_bytes().to_vec();
            other.extend(bytes);
            CString::new(other).expect("there is no zero in it").into()
        }
        false => path.into(),
    };
    Some(Target {
        path,
        is_device: false,
    })
}
