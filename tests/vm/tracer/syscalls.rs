//! System calls by number.

use std::borrow::Cow;

/// Name of a system call, or `syscall_N` for one that is not known here.
pub fn name(number: i64) -> Cow<'static, str> {
    match known_name(number) {
        Some(name) => Cow::Borrowed(name.trim_start_matches("SYS_")),
        None => Cow::Owned(format!("syscall_{number}")),
    }
}

macro_rules! known {
    ($($name:ident)*) => {
        fn known_name(number: i64) -> Option<&'static str> {
            match number {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

known! {
    SYS_accept SYS_accept4 SYS_access SYS_alarm SYS_arch_prctl SYS_bind SYS_brk SYS_chdir
    SYS_clock_gettime SYS_clock_nanosleep SYS_clone SYS_clone3 SYS_close SYS_close_range
    SYS_connect SYS_creat SYS_dup SYS_dup2 SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl
    SYS_epoll_pwait SYS_epoll_wait SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group SYS_faccessat
    SYS_faccessat2 SYS_fcntl SYS_fork SYS_fstat SYS_fstatfs SYS_ftruncate SYS_futex SYS_getcwd
    SYS_getdents64 SYS_getegid SYS_geteuid SYS_getgid SYS_getpeername SYS_getpid SYS_getppid
    SYS_getrandom SYS_getrlimit SYS_getrusage SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_inotify_add_watch SYS_inotify_init1 SYS_ioctl SYS_kill
    SYS_listen SYS_lseek SYS_lstat SYS_madvise SYS_membarrier SYS_memfd_create SYS_mkdir
    SYS_mlock SYS_mmap SYS_mprotect SYS_mremap SYS_munlock SYS_munmap SYS_nanosleep
    SYS_newfstatat SYS_open SYS_openat SYS_pipe SYS_pipe2 SYS_poll SYS_ppoll SYS_prctl
    SYS_pread64 SYS_prlimit64 SYS_pselect6 SYS_pwrite64 SYS_read SYS_readlink SYS_readlinkat
    SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_restart_syscall SYS_rseq SYS_rt_sigaction
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_yield SYS_select SYS_sendmmsg
    SYS_sendmsg SYS_sendto SYS_set_robust_list SYS_set_tid_address SYS_setpgid SYS_setsid
    SYS_setsockopt SYS_setuid SYS_shutdown SYS_sigaltstack SYS_socket SYS_socketpair SYS_stat
    SYS_statfs SYS_statx SYS_sysinfo SYS_tgkill SYS_timerfd_create SYS_timerfd_settime SYS_umask
    SYS_uname SYS_unlink SYS_vfork SYS_wait4 SYS_waitid SYS_write SYS_writev
}

/// Which argument of a system call is a descriptor that it works on.
pub fn fd_argument(number: i64) -> Option<usize> {
    match number {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_close
        | libc::SYS_ioctl
        | libc::SYS_fcntl
        | libc::SYS_fstat
        | libc::SYS_dup
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_getdents64
        | libc::SYS_bind
        | libc::SYS_connect
        | libc::SYS_setsockopt
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg => Some(0),
        libc::SYS_epoll_ctl => Some(2),
        libc::SYS_mmap => Some(4),
        _ => None,
    }
}

/// Which argument of a system call is the path of a file to open or to look at.
pub fn path_argument(number: i64) -> Option<usize> {
    match number {
        libc::SYS_open | libc::SYS_creat | libc::SYS_stat | libc::SYS_lstat | libc::SYS_access => {
            Some(0)
        }
        libc::SYS_openat | libc::SYS_newfstatat | libc::SYS_statx => Some(1),
        _ => None,
    }
}
