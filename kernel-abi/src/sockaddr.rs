//! Socket addresses as the kernel takes them inside command structures.
//!
//! Checked against `linux/in.h`, `linux/in6.h` and `linux/socket.h` of Linux 6.1; `sockaddr_ib`
//! against `librdmacm/ib.h` of rdma-core of August 2026.

pub use self::{ib::*, ipv4::*, ipv6::*, storage::*};

mod ipv4 {
    use zerocopy::byteorder::big_endian;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    const HEADER: &str = "linux/in.h";

    /// An IPv4 address.
    #[doc(alias = "sockaddr_in")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C, align(4))]
    pub struct SockaddrIn {
        /// 2, `AF_INET`.
        pub family: u16,
        /// Port.
        pub port: big_endian::U16,
        /// Address.
        pub addr: [u8; 4],
        /// Must be 0.
        pub zero: [u8; 8],
    }
    layout!(SockaddrIn, "struct sockaddr_in", 16, {
        family = "sin_family": 0, port = "sin_port": 2, addr = "sin_addr": 4, zero = "sin_zero": 8,
    });
}

mod ipv6 {
    use zerocopy::byteorder::big_endian;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    const HEADER: &str = "linux/in6.h";

    /// An IPv6 address; where the kernel says so, also room for an IPv4 one.
    #[doc(alias = "sockaddr_in6")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct SockaddrIn6 {
        /// 10, `AF_INET6`.
        pub family: u16,
        /// Port.
        pub port: big_endian::U16,
        /// Flow label and traffic class.
        pub flowinfo: big_endian::U32,
        /// Address.
        pub addr: [u8; 16],
        /// Index of the interface of a link-local address.
        pub scope_id: u32,
    }
    layout!(SockaddrIn6, "struct sockaddr_in6", 28, {
        family = "sin6_family": 0, port = "sin6_port": 2, flowinfo = "sin6_flowinfo": 4,
        addr = "sin6_addr": 8, scope_id = "sin6_scope_id": 24,
    });
}

mod ib {
    use zerocopy::byteorder::big_endian;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    const HEADER: &str = "infiniband/ib.h";

    constants! {
        CONSTANTS: u16, "" {
            /// Address family of [`SockaddrIb`].
            AF_IB = 27,
        }
    }

    /// An InfiniBand address.
    #[doc(alias = "sockaddr_ib")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C, align(8))]
    pub struct SockaddrIb {
        /// [`AF_IB`].
        pub family: u16,
        /// Partition key.
        pub pkey: big_endian::U16,
        /// Flow label and traffic class.
        pub flowinfo: big_endian::U32,
        /// GID.
        pub addr: [u8; 16],
        /// Service id; its low half holds port space and port.
        pub sid: big_endian::U64,
        /// Bits of `sid` that count.
        pub sid_mask: big_endian::U64,
        /// Index of the interface of a link-local address.
        pub scope_id: u64,
    }
    layout!(SockaddrIb, "struct sockaddr_ib", 48, {
        family = "sib_family": 0, pkey = "sib_pkey": 2, flowinfo = "sib_flowinfo": 4,
        addr = "sib_addr": 8, sid = "sib_sid": 24, sid_mask = "sib_sid_mask": 32,
        scope_id = "sib_scope_id": 40,
    });
}

mod storage {
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    const HEADER: &str = "linux/socket.h";

    /// Room for an address of any family.
    #[doc(alias = "__kernel_sockaddr_storage")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C, align(8))]
    pub struct SockaddrStorage {
        /// Address family.
        pub family: u16,
        /// The rest of the address.
        pub data: [u8; 126],
    }
    layout!(SockaddrStorage, "struct __kernel_sockaddr_storage", 128, {
        family = "ss_family": 0, data = "__data": 2,
    });
}

numbers![ib::CONSTANTS];

layouts![SockaddrIn, SockaddrIn6, SockaddrIb, SockaddrStorage,];

zeroed_default!(SockaddrStorage);
