//! Which descriptors and paths lead to the RDMA part of the kernel.

use std::fmt;

/// What a system call reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// `/dev/infiniband/rdma_cm`.
    RdmaCm,
    /// `/dev/infiniband/uverbsN`.
    Uverbs,
    /// Another node below `/dev/infiniband`.
    Node(String),
    /// A file of completions or of asynchronous events.
    Events,
    /// A file of the RDMA devices below `/sys`.
    Sysfs(String),
    /// A netlink socket of this protocol.
    Netlink(i32),
}

impl Target {
    /// From a path, or from what `/proc` says of a descriptor; not for sockets.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.trim_end_matches(" (deleted)");
        match path.strip_prefix("/dev/infiniband/") {
            Some("rdma_cm") => return Some(Self::RdmaCm),
            Some(name) if name.starts_with("uverbs") => return Some(Self::Uverbs),
            Some(name) => return Some(Self::Node(name.to_owned())),
            None => {}
        }
        if path.starts_with("anon_inode:[infiniband") {
            return Some(Self::Events);
        }
        let sysfs = path.starts_with("/sys/") && path.contains("/infiniband");
        sysfs.then(|| Self::Sysfs(path.to_owned()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RdmaCm => f.write_str("rdma_cm"),
            Self::Uverbs => f.write_str("uverbs"),
            Self::Node(name) => f.write_str(name),
            Self::Events => f.write_str("events"),
            Self::Sysfs(path) => f.write_str(path),
            Self::Netlink(libc::NETLINK_RDMA) => f.write_str("netlink rdma"),
            Self::Netlink(protocol) => write!(f, "netlink {protocol}"),
        }
    }
}
