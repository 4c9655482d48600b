//! The functions of the C library that are interposed.
//!
//! Those that take a varying number of arguments are declared with all they may take, which is the
//! same to a caller on the machines that this runs on.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::ptr::NonNull;

use crate::device::Device;
use crate::paths::target;
use crate::real::{fail, real};

const NOTHING: &CStr = c"";

/// A path, and where it leads; of a wrong one nowhere.
macro_rules! lead {
    ($path:ident) => {
        lead!($path, _is_device)
    };
    ($path:ident, $is_device:ident) => {
        // SAFETY: the program's path, as it would give it to the C library.
        let led = unsafe { target($path) };
        let $path = led
            .as_ref()
            .map_or(NOTHING.as_ptr(), |led| led.path.as_ptr());
        let $is_device = led.as_ref().is_some_and(|led| led.is_device);
    };
}

macro_rules! opens {
    ($($name:ident),*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
                lead!(path, is_device);
                let fd = real!($name(
                    path => *const c_char, flags => c_int, mode => c_int
                ) -> c_int);
                note_open(fd, is_device)
            }
        )*
    };
}
opens!(open, open64);

macro_rules! opens_at {
    ($($name:ident),*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                folder: c_int, path: *const c_char, flags: c_int, mode: c_int,
            ) -> c_int {
                lead!(path, is_device);
                let fd = real!($name(
                    folder => c_int, path => *const c_char, flags => c_int, mode => c_int
                ) -> c_int);
                note_open(fd, is_device)
            }
        )*
    };
}
opens_at!(openat, openat64);

fn note_open(fd: c_int, is_device: bool) -> c_int {
    if is_device && fd >= 0 {
        Device::get().note_open(fd);
    }
    fd
}

/// Functions that only look at a path.
macro_rules! looks {
    ($($name:ident([$($before:ident: $before_type:ty),*] path $(, $arg:ident: $type:ty)*) -> $answer:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                $($before: $before_type,)* path: *const c_char $(, $arg: $type)*
            ) -> $answer {
                lead!(path);
                real!($name(
                    $($before => $before_type,)* path => *const c_char $(, $arg => $type)*
                ) -> $answer)
            }
        )*
    };
}
looks! {
    stat([] path, answer: *mut c_void) -> c_int;
    stat64([] path, answer: *mut c_void) -> c_int;
    lstat([] path, answer: *mut c_void) -> c_int;
    lstat64([] path, answer: *mut c_void) -> c_int;
    fstatat([folder: c_int] path, answer: *mut c_void, flags: c_int) -> c_int;
    fstatat64([folder: c_int] path, answer: *mut c_void, flags: c_int) -> c_int;
    access([] path, mode: c_int) -> c_int;
    faccessat([folder: c_int] path, mode: c_int, flags: c_int) -> c_int;
    opendir([] path) -> *mut c_void;
}

/// Also of a descriptor: with an empty path, or none.
#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: u32,
    answer: *mut c_void,
) -> c_int {
    let given = path;
    lead!(path);
    // The C library's users try whether the call is there by passing nothing.
    let path = if given.is_null() { given } else { path };
    real!(statx(
        folder => c_int, path => *const c_char, flags => c_int, mask => u32, answer => *mut c_void
    ) -> c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let Some(file) = Device::file(fd) else {
        return real!(ioctl(fd => c_int, request => c_ulong, argument => *mut c_void) -> c_int);
    };
    let wrong = |errno| Err(std::io::Error::from_raw_os_error(errno));
    // The number of `RDMA_VERBS_IOCTL`, of which the kernel looks at 32 bits.
    let done = match (request as u32, NonNull::new(argument.cast())) {
        (0xc018_1b01, Some(command)) => {
            // SAFETY: the program promises the kernel a whole command.
            unsafe { file.ioctl(command) }
        }
        (0xc018_1b01, None) => wrong(libc::EFAULT),
        _ => wrong(libc::ENOTTY),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            fail(&error);
            -1
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, length: usize) -> isize {
    let Some(file) = Device::file(fd) else {
        return real!(write(fd => c_int, bytes => *const c_void, length => usize) -> isize);
    };
    // SAFETY: the program promises the kernel so many bytes.
    let command = unsafe { std::slice::from_raw_parts(bytes.cast(), length) };
    // SAFETY: and that the addresses in them are right.
    match unsafe { file.write(command) } {
        Ok(written) => written as isize,
        Err(error) => {
            fail(&error);
            -1
        }
    }
}

macro_rules! maps {
    ($($name:ident),*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(
                place: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int,
                offset: i64,
            ) -> *mut c_void {
                let Some(file) = Device::file(fd) else {
                    return real!($name(
                        place => *mut c_void, length => usize, protection => c_int, flags => c_int,
                        fd => c_int, offset => i64
                    ) -> *mut c_void);
                };
                let mapped = match flags & libc::MAP_SHARED {
                    0 => Err(std::io::Error::from_raw_os_error(libc::EINVAL)),
                    _ => file.map(length, offset as u64),
                };
                match mapped {
                    Ok(page) => page.as_ptr().cast(),
                    Err(error) => {
                        fail(&error);
                        libc::MAP_FAILED
                    }
                }
            }
        )*
    };
}
maps!(mmap, mmap64);

#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(place: *mut c_void, length: usize) -> c_int {
    match Device::note_unmap(place as u64, length as u64) {
        true => 0,
        false => real!(munmap(place => *mut c_void, length => usize) -> c_int),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    Device::note_close(fd);
    real!(close(fd => c_int) -> c_int)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    note_duplicate(old, real!(dup(old => c_int) -> c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    note_duplicate(old, real!(dup2(old => c_int, new => c_int) -> c_int))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    let fd = real!(dup3(old => c_int, new => c_int, flags => c_int) -> c_int);
    note_duplicate(old, fd)
}

macro_rules! controls {
    ($($name:ident),*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
                let answer = real!($name(
                    fd => c_int, command => c_int, argument => *mut c_void
                ) -> c_int);
                match [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&command) {
                    true => note_duplicate(fd, answer),
                    false => answer,
                }
            }
        )*
    };
}
controls!(fcntl, fcntl64);

fn note_duplicate(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old {
        Device::note_duplicate(old, new);
    }
    new
}

/// There is no RDMA netlink, so that the program looks into sysfs.
#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    const NETLINK_RDMA: c_int = 20;
    if (domain, protocol) == (libc::AF_NETLINK, NETLINK_RDMA) {
        fail(&std::io::Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        return -1;
    }
    real!(socket(domain => c_int, kind => c_int, protocol => c_int) -> c_int)
}
