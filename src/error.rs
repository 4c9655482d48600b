//! The one error type of the crate.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::time::Duration;

/// The result of every fallible call that is not on the data path.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in one word that a program can act on.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The kernel refused the operation; [`Error::errno`] has its number.
    Kernel,
    /// An argument was refused before the kernel was asked.
    InvalidInput,
    /// The time given to the call ran out.
    TimedOut,
    /// Nothing is ready and the call was told not to wait.
    WouldBlock,
    /// The machine has no RDMA device that could serve the call, or the kernel module is missing.
    NoDevice,
    /// The caller may not use the device node.
    PermissionDenied,
    /// The peer, or the kernel for want of a listener, rejected the connection.
    Rejected,
    /// The peer did not answer.
    Unreachable,
    /// The connection ended.
    Disconnected,
    /// The RDMA device went away under the object.
    DeviceRemoved,
    /// The object was destroyed earlier.
    Destroyed,
    /// The event channel was closed, possibly while the call waited on it.
    Closed,
    /// The call does not fit the state the object is in.
    InvalidState,
    /// The work queue has no free slot.
    QueueFull,
    /// A work request ended with an error completion.
    WorkFailed,
    /// The kernel or the device lacks what the call needs.
    NotSupported,
    /// The kernel answered something that contradicts its own interface.
    Protocol,
    /// The system's name resolver found nothing; [`Error::resolver_code`] has its number.
    Resolver,
}

/// An operation that failed: which one, the kernel's errno if the kernel was asked, and what that
/// means here.
///
/// ```
/// use rdmacm::{ConnParam, ErrorKind};
///
/// let error = ConnParam::new().private_data(&[0; 300]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// println!("{error}");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    operation: &'static str,
    kind: ErrorKind,
    errno: Option<i32>,
    resolver_code: Option<i32>,
    explanation: Cow<'static, str>,
}

impl Error {
    /// An error of `kind` found by this library itself.
    pub(crate) fn new(
        operation: &'static str,
        kind: ErrorKind,
        explanation: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            operation,
            kind,
            errno: None,
            resolver_code: None,
            explanation: explanation.into(),
        }
    }

    /// An argument that is refused before the kernel is asked.
    pub(crate) fn invalid(
        operation: &'static str,
        explanation: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(operation, ErrorKind::InvalidInput, explanation)
    }

    /// A wait that ran out of time.
    pub(crate) fn timed_out(operation: &'static str, after: Duration) -> Self {
        Self::new(
            operation,
            ErrorKind::TimedOut,
            format!("nothing happened within {after:?}"),
        )
    }

    /// The kernel's refusal, with the explanation its errno has in general. Call
    /// [`Error::because`] where the operation knows better.
    pub(crate) fn from_os(operation: &'static str, source: &io::Error) -> Self {
        let Some(errno) = source.raw_os_error() else {
            let kind = match source.kind() {
                io::ErrorKind::Unsupported => ErrorKind::NotSupported,
                _ => ErrorKind::Protocol,
            };
            return Self::new(operation, kind, source.to_string());
        };
        Self::from_errno(operation, errno)
    }

    /// As [`Error::from_os`], from a positive errno.
    pub(crate) fn from_errno(operation: &'static str, errno: i32) -> Self {
        let (kind, explanation) = general_meaning(errno);
        Self {
            operation,
            kind,
            errno: Some(errno),
            resolver_code: None,
            explanation: Cow::Borrowed(explanation),
        }
    }

    /// The resolver's refusal: its number, and an errno where the operating system caused it.
    pub(crate) fn from_resolver(
        operation: &'static str,
        code: i32,
        errno: Option<i32>,
        explanation: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            errno,
            resolver_code: Some(code),
            ..Self::new(operation, ErrorKind::Resolver, explanation)
        }
    }

    /// Replaces the general explanation by one that fits the operation.
    pub(crate) fn because(mut self, explanation: impl Into<Cow<'static, str>>) -> Self {
        self.explanation = explanation.into();
        self
    }

    /// The same failure as that of the operation it was a step of.
    pub(crate) fn within(self, operation: &'static str) -> Self {
        let explanation = format!("{}: {}", self.operation, self.explanation);
        Self { operation, ..self }.because(explanation)
    }

    /// Names the operation that the error is told of, where that is not where it arose.
    pub(crate) fn in_operation(mut self, operation: &'static str) -> Self {
        self.operation = operation;
        self
    }

    /// Replaces the kind that the errno has in general.
    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// The operation that failed: mostly the name of the C function without its prefix
    /// (`resolve_addr`, `create_qp`, `reg_mr`). For messages: programs decide by
    /// [`Error::kind`].
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// What went wrong, in one word.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The kernel's error number, positive, if the kernel reported one.
    #[doc(alias = "rdma_seterrno")]
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// The resolver's error number (`EAI_NONAME` and so on, of netdb.h), if the name resolver
    /// failed. These numbers are not errnos.
    pub fn resolver_code(&self) -> Option<i32> {
        self.resolver_code
    }

    /// What the failure means here and what to do about it.
    pub fn explanation(&self) -> &str {
        &self.explanation
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.operation)?;
        if let Some(errno) = self.errno {
            write!(f, "{} (errno {errno}): ", name(errno))?;
        }
        f.write_str(&self.explanation)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::WouldBlock | ErrorKind::QueueFull => io::ErrorKind::WouldBlock,
            ErrorKind::NoDevice => io::ErrorKind::NotFound,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::Rejected => io::ErrorKind::ConnectionRefused,
            ErrorKind::Unreachable => io::ErrorKind::HostUnreachable,
            ErrorKind::Disconnected => io::ErrorKind::ConnectionReset,
            ErrorKind::DeviceRemoved => io::ErrorKind::NetworkDown,
            ErrorKind::NotSupported => io::ErrorKind::Unsupported,
            ErrorKind::Protocol => io::ErrorKind::InvalidData,
            ErrorKind::Kernel => error.errno.map_or(io::ErrorKind::Other, |errno| {
                io::Error::from_raw_os_error(errno).kind()
            }),
            ErrorKind::Destroyed
            | ErrorKind::Closed
            | ErrorKind::InvalidState
            | ErrorKind::WorkFailed
            | ErrorKind::Resolver => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// The kernel's own number for what it does not support, which the C library has no name for. It
/// gets out by mistake.
pub(crate) const ENOTSUPP: i32 = 524;

/// An errno in the words of the C library.
fn name(errno: i32) -> &'static str {
    match errno {
        ENOTSUPP => "Operation not supported by the kernel",
        errno => nix::errno::Errno::from_raw(errno).desc(),
    }
}

/// What an errno means when the operation has nothing more exact to say.
fn general_meaning(errno: i32) -> (ErrorKind, &'static str) {
    match errno {
        libc::EACCES => (
            ErrorKind::PermissionDenied,
            "the kernel refuses commands from this process: it may not use the object, or the \
             file was opened before a fork, an exec or a change of credentials (open a new one)",
        ),
        libc::EPERM => (
            ErrorKind::PermissionDenied,
            "the process lacks the privilege for this",
        ),
        libc::ENODEV => (ErrorKind::NoDevice, "no RDMA device serves this"),
        libc::ENXIO | libc::EIO => (
            ErrorKind::DeviceRemoved,
            "the RDMA device is gone; destroy the object",
        ),
        libc::EAGAIN => (ErrorKind::WouldBlock, "nothing is ready"),
        libc::ETIMEDOUT => (
            ErrorKind::TimedOut,
            "the kernel gave up waiting for the peer",
        ),
        libc::EOPNOTSUPP | libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOTTY | ENOTSUPP => (
            ErrorKind::NotSupported,
            "the kernel or the device does not support this",
        ),
        libc::ECONNREFUSED => (ErrorKind::Rejected, "nobody accepts the connection"),
        libc::ENETUNREACH | libc::EHOSTUNREACH => {
            (ErrorKind::Unreachable, "no route leads to the address")
        }
        libc::ECONNRESET => (ErrorKind::Disconnected, "the peer ended the connection"),
        libc::ENOMEM => (
            ErrorKind::Kernel,
            "out of memory, or of memory this process may lock (ulimit -l, RLIMIT_MEMLOCK)",
        ),
        libc::EMFILE | libc::ENFILE => (
            ErrorKind::Kernel,
            "out of file descriptors (ulimit -n, RLIMIT_NOFILE)",
        ),
        libc::EINTR => (
            ErrorKind::Kernel,
            "a signal interrupted the call; it may be repeated",
        ),
        libc::EBUSY => (ErrorKind::Kernel, "another object still uses this one"),
        libc::EADDRINUSE => (ErrorKind::Kernel, "the address and port are in use"),
        libc::EADDRNOTAVAIL => (
            ErrorKind::Kernel,
            "the address is not one of this machine's, or is in use",
        ),
        libc::ENOENT => (ErrorKind::Kernel, "the kernel does not know the object"),
        libc::EINVAL => (
            ErrorKind::Kernel,
            "the kernel found an argument or the state wrong",
        ),
        _ => (ErrorKind::Kernel, "the kernel refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_operation_errno_and_meaning() {
        let error = Error::from_errno("create_qp", libc::ENOMEM).because("lower max_send_wr");
        assert_eq!(
            error.to_string(),
            "create_qp: Out of memory (errno 12): lower max_send_wr"
        );
        assert_eq!(error.errno(), Some(12));
    }

    #[test]
    fn a_step_keeps_its_name_within_the_whole() {
        let step = Error::from_errno("open_device", libc::EACCES).because("no permission on it");
        let whole = step.within("resolve_addr");
        assert_eq!(
            whole.to_string(),
            "resolve_addr: Permission denied (errno 13): open_device: no permission on it"
        );
        assert_eq!(whole.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn io_error_keeps_the_kind_and_the_text() {
        let error = io::Error::from(Error::from_errno("connect", libc::ECONNREFUSED));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("nobody accepts"));
        let error = io::Error::from(Error::from_errno("bind_addr", libc::EADDRINUSE));
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
