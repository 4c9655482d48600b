//! The functions that are interposed, as the C library has them.

/// `real!(name(arg: type, ...) -> type)` calls the C library's function.
macro_rules! real {
    ($name:ident($($arg:expr => $type:ty),*) -> $answer:ty) => {{
        static ADDRESS: std::sync::atomic::AtomicPtr<libc::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let mut address = ADDRESS.load(std::sync::atomic::Ordering::Relaxed);
        if address.is_null() {
            let name = concat!(stringify!($name), "\0").as_ptr().cast();
            // SAFETY: the name ends with a zero.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
            assert!(!address.is_null(), concat!("the C library has ", stringify!($name)));
            ADDRESS.store(address, std::sync::atomic::Ordering::Relaxed);
        }
        // SAFETY: it is the function of this name, which has this type; what is passed on is what
        // the program passed.
        unsafe {
            let function: unsafe extern "C" fn($($type),*) -> $answer = std::mem::transmute(address);
            function($($arg),*)
        }
    }};
}

pub(crate) use real;

/// Tells the program what went wrong.
pub(crate) fn fail(error: &std::io::Error) {
    // SAFETY: the place of the thread's error number.
    unsafe { *libc::__errno_location() = error.raw_os_error().unwrap_or(libc::EIO) };
}
