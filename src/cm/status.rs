//! How the steps that events report ended.

use std::fmt;

/// How the step that an event reports ended.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Well.
    Success,
    /// With this errno (positive).
    Errno(i32),
    /// With a reason that came over the wire. For datagrams ([`PortSpace::Udp`](super::PortSpace))
    /// the numbers are those of service id resolution: 1 is that nobody listens, 2 a rejection.
    Rejected(RejectReason),
}

impl Status {
    /// The kernel gives negative errnos and positive reasons in one number.
    pub(super) fn from_kernel(status: u32) -> Self {
        match status.cast_signed() {
            0 => Self::Success,
            errno @ i32::MIN..0 => Self::Errno(errno.saturating_neg()),
            reason => Self::Rejected(RejectReason(reason.cast_unsigned())),
        }
    }
}

/// Why a connection was rejected, as the InfiniBand specification numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u32);

impl RejectReason {
    /// Nobody listens on the port.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The peer still has a connection with this queue pair number.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The peer's program rejected, or ended before it answered.
    pub const CONSUMER_DEFINED: Self = Self(28);
    /// The vendor options of the two sides do not fit.
    pub const VENDOR_OPTION_NOT_SUPPORTED: Self = Self(35);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INVALID_SERVICE_ID => f.write_str("nobody listens on that port"),
            Self::STALE_CONNECTION => f.write_str("the peer still holds an earlier connection"),
            Self::CONSUMER_DEFINED => {
                f.write_str("the peer's program rejected the connection or ended")
            }
            Self::VENDOR_OPTION_NOT_SUPPORTED => f.write_str("vendor option not supported"),
            Self(reason) => write!(f, "reason {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_normalised_once() {
        assert_eq!(Status::from_kernel(0), Status::Success);
        assert_eq!(Status::from_kernel((-110i32) as u32), Status::Errno(110));
        assert_eq!(
            Status::from_kernel(28),
            Status::Rejected(RejectReason::CONSUMER_DEFINED)
        );
        assert_eq!(
            Status::from_kernel(i32::MIN as u32),
            Status::Errno(i32::MAX)
        );
    }
}
