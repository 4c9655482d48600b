//! RDMA over netlink: finding devices, their character devices, and software links.
//!
//! Checked against `rdma/rdma_netlink.h`, `linux/netlink.h` of Linux 6.1, newer parts against the
//! copies in rdma-core of August 2026 (Linux 7.x).

pub use self::{base::*, nldev::*};

/// Netlink itself.
mod base {
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    const HEADER: &str = "linux/netlink.h";

    /// Start of a message.
    #[doc(alias = "nlmsghdr")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct NlMsgHdr {
        /// Bytes with this header.
        pub nlmsg_len: u32,
        /// Kind of message.
        pub nlmsg_type: u16,
        /// [`NlmFlags`].
        pub nlmsg_flags: u16,
        /// Number of the request, repeated in its answers.
        pub nlmsg_seq: u32,
        /// Port of the sender, 0 for the kernel.
        pub nlmsg_pid: u32,
    }
    layout!(NlMsgHdr, "struct nlmsghdr", 16, {
        nlmsg_len: 0, nlmsg_type: 4, nlmsg_flags: 6, nlmsg_seq: 8, nlmsg_pid: 12,
    });

    /// Start of an attribute; padded to 4 bytes.
    #[doc(alias = "nlattr")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct NlAttr {
        /// Bytes with this header, without padding.
        pub nla_len: u16,
        /// Number of the attribute, with [`NLA_F_NESTED`] if it holds attributes.
        pub nla_type: u16,
    }
    layout!(NlAttr, "struct nlattr", 4, { nla_len: 0, nla_type: 2 });

    /// Content of an [`NLMSG_ERROR`] message.
    #[doc(alias = "nlmsgerr")]
    #[derive(
        Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
    )]
    #[repr(C)]
    pub struct NlMsgErr {
        /// Negative errno, 0 for an acknowledgement.
        pub error: i32,
        /// Header of the request.
        pub msg: NlMsgHdr,
    }
    layout!(NlMsgErr, "struct nlmsgerr", 20, { error: 0, msg: 4 });

    constants! {
        PROTOCOLS: i32, "" {
            /// Protocol number for `socket()`.
            NETLINK_RDMA = 20,
        }
    }

    constants! {
        TYPES: u16, "" {
            /// Nothing.
            NLMSG_NOOP = 1,
            /// Outcome of a request.
            NLMSG_ERROR = 2,
            /// End of a dump.
            NLMSG_DONE = 3,
            /// Data was lost.
            NLMSG_OVERRUN = 4,
            /// The attribute holds attributes.
            NLA_F_NESTED = 1 << 15,
            /// The attribute is big-endian.
            NLA_F_NET_BYTEORDER = 1 << 14,
        }
    }

    flag_bits! {
        /// Flags of a message.
        pub struct NlmFlags: u16, "NLM_F_" {
            /// A request.
            REQUEST = 1,
            /// Part of a dump, which ends with [`NLMSG_DONE`].
            MULTI = 2,
            /// Answer with [`NLMSG_ERROR`] even on success.
            ACK = 4,
            /// All objects.
            DUMP = 0x300,
        }
    }
}

/// The RDMA family.
mod nldev {
    const HEADER: &str = "rdma/rdma_netlink.h";

    constants! {
        CLIENTS: u16, "" {
            /// The client that knows devices.
            RDMA_NL_NLDEV = 5,
        }
    }

    /// Type of a message: client in the upper 6 bits, command in the lower 10.
    pub const fn message_type(client: u16, command: u16) -> u16 {
        client << 10 | command
    }

    /// Type of a message of the device client.
    pub const fn nldev_type(command: NldevCommand) -> u16 {
        message_type(RDMA_NL_NLDEV, command.0)
    }

    open_enum! {
        /// Kind of a device.
        pub struct NodeType(u8), "RDMA_NODE_" {
            /// InfiniBand or RoCE adapter.
            IB_CA = 1,
            /// InfiniBand switch.
            IB_SWITCH = 2,
            /// InfiniBand router.
            IB_ROUTER = 3,
            /// iWARP adapter.
            RNIC = 4,
            /// Cisco.
            USNIC = 5,
            /// Cisco over UDP.
            USNIC_UDP = 6,
            /// Not specified.
            UNSPECIFIED = 7,
        }
    }

    open_enum! {
        /// Command of the device client.
        pub struct NldevCommand(u16), "RDMA_NLDEV_CMD_" {
            /// Devices; can dump.
            GET = 1,
            /// Renames a device, or moves it to a network namespace.
            SET = 2,
            /// Creates a software device.
            NEWLINK = 3,
            /// Deletes a software device.
            DELLINK = 4,
            /// Ports; can dump.
            PORT_GET = 5,
            /// Settings of the whole system.
            SYS_GET = 6,
            /// Changes settings of the whole system.
            SYS_SET = 7,
            /// Summary of resources; can dump.
            RES_GET = 9,
            /// Queue pairs; can dump.
            RES_QP_GET = 10,
            /// Connection manager ids; can dump.
            RES_CM_ID_GET = 11,
            /// Completion queues; can dump.
            RES_CQ_GET = 12,
            /// Memory regions; can dump.
            RES_MR_GET = 13,
            /// Protection domains; can dump.
            RES_PD_GET = 14,
            /// A character device.
            GET_CHARDEV = 15,
            /// Configures counters.
            STAT_SET = 16,
            /// Counters; can dump.
            STAT_GET = 17,
            /// Unbinds a counter.
            STAT_DEL = 18,
            /// Contexts; can dump.
            RES_CTX_GET = 22,
            /// Shared receive queues; can dump.
            RES_SRQ_GET = 23,
            /// Notifications of device changes. Newer than Linux 6.1.
            MONITOR = 28,
        }
    }

    open_enum! {
        /// Attribute of the device client.
        pub struct NldevAttr(u16), "RDMA_NLDEV_ATTR_" {
            /// Index of the device, `u32`.
            DEV_INDEX = 1,
            /// Name of the device, string.
            DEV_NAME = 2,
            /// Port, or number of ports in a list of devices, `u32`.
            PORT_INDEX = 3,
            /// Abilities of the device or port, `u64`.
            CAP_FLAGS = 4,
            /// Firmware version, string.
            FW_VERSION = 5,
            /// GUID of the device in the machine's byte order, `u64`.
            NODE_GUID = 6,
            /// GUID of the system image in the machine's byte order, `u64`.
            SYS_IMAGE_GUID = 7,
            /// Subnet prefix in the machine's byte order, `u64`.
            SUBNET_PREFIX = 8,
            /// LID of the port, `u32`.
            LID = 9,
            /// LID of the subnet manager, `u32`.
            SM_LID = 10,
            /// LID bits that vary, `u8`.
            LMC = 11,
            /// A [`PortState`](crate::uverbs::PortState), `u8`.
            PORT_STATE = 12,
            /// Physical state, 5 is up, `u8`.
            PORT_PHYS_STATE = 13,
            /// A [`NodeType`], `u8`.
            DEV_NODE_TYPE = 14,
            /// Summary of resources, nested.
            RES_SUMMARY = 15,
            /// One kind of resource, nested.
            RES_SUMMARY_ENTRY = 16,
            /// Its name, string.
            RES_SUMMARY_ENTRY_NAME = 17,
            /// Its present count, `u64`.
            RES_SUMMARY_ENTRY_CURR = 18,
            /// Queue pairs, nested.
            RES_QP = 19,
            /// One queue pair, nested.
            RES_QP_ENTRY = 20,
            /// Local queue pair number, `u32`.
            RES_LQPN = 21,
            /// The peer's queue pair number, `u32`.
            RES_RQPN = 22,
            /// Packet number expected, `u32`.
            RES_RQ_PSN = 23,
            /// Packet number sent next, `u32`.
            RES_SQ_PSN = 24,
            /// State of path migration, `u8`.
            RES_PATH_MIG_STATE = 25,
            /// Type of the queue pair, `u8`.
            RES_TYPE = 26,
            /// State of the queue pair or id, `u8`.
            RES_STATE = 27,
            /// Process that owns the object, `u32`.
            RES_PID = 28,
            /// Kernel module that owns the object, string.
            RES_KERN_NAME = 29,
            /// Connection manager ids, nested.
            RES_CM_ID = 30,
            /// One id, nested.
            RES_CM_ID_ENTRY = 31,
            /// Port space, `u32`.
            RES_PS = 32,
            /// Local address, [`SockaddrStorage`](crate::sockaddr::SockaddrStorage).
            RES_SRC_ADDR = 33,
            /// Address of the peer, [`SockaddrStorage`](crate::sockaddr::SockaddrStorage).
            RES_DST_ADDR = 34,
            /// Completion queues, nested.
            RES_CQ = 35,
            /// One completion queue, nested.
            RES_CQ_ENTRY = 36,
            /// Entries of a completion queue, `u32`.
            RES_CQE = 37,
            /// Users of the object, `u64`.
            RES_USECNT = 38,
            /// Memory regions, nested.
            RES_MR = 40,
            /// One memory region, nested.
            RES_MR_ENTRY = 41,
            /// Remote key, `u32`.
            RES_RKEY = 42,
            /// Local key, `u32`.
            RES_LKEY = 43,
            /// Address in work requests, `u64`.
            RES_IOVA = 44,
            /// Bytes of a region, `u64`.
            RES_MRLEN = 45,
            /// Protection domains, nested.
            RES_PD = 46,
            /// One protection domain, nested.
            RES_PD_ENTRY = 47,
            /// Index of the network interface, `u32`.
            NDEV_INDEX = 50,
            /// Name of the network interface, string.
            NDEV_NAME = 51,
            /// Number of a protection domain, `u32`.
            RES_PDN = 60,
            /// Number of a completion queue, `u32`.
            RES_CQN = 61,
            /// Number of a memory region, `u32`.
            RES_MRN = 62,
            /// Number of an id, `u32`.
            RES_CM_IDN = 63,
            /// Number of a context, `u32`.
            RES_CTXN = 64,
            /// Kind of software device, "rxe" or "siw", string.
            LINK_TYPE = 65,
            /// 1 if network namespaces share devices, `u8`.
            SYS_NETNS_MODE = 66 => "RDMA_NLDEV_SYS_ATTR_NETNS_MODE",
            /// Protocol such as "ib", "roce" or "iw", string.
            DEV_PROTOCOL = 67,
            /// Interface wanted, such as "uverbs" or "rdma_cm", string.
            CHARDEV_TYPE = 69,
            /// Name of the node below `/dev/infiniband`, string.
            CHARDEV_NAME = 70,
            /// Version of the interface, `u64`.
            CHARDEV_ABI = 71,
            /// Device number, `u64`.
            CHARDEV = 72,
            /// A [`DriverId`](crate::uverbs::DriverId), `u32`.
            UVERBS_DRIVER_ID = 73,
            /// Adaptive completion moderation, `u8`.
            DEV_DIM = 84,
            /// Contexts, nested.
            RES_CTX = 86,
            /// One context, nested.
            RES_CTX_ENTRY = 87,
            /// Shared receive queues, nested.
            RES_SRQ = 88,
            /// One shared receive queue, nested.
            RES_SRQ_ENTRY = 89,
            /// Number of a shared receive queue, `u32`.
            RES_SRQN = 90,
            /// 1 if forked children get copies of pinned pages, `u8`.
            SYS_COPY_ON_FORK = 93 => "RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK",
            /// 1 if unprivileged users may use controlled queue keys, `u8`. Newer than Linux 6.1.
            SYS_PRIVILEGED_QKEY_MODE = 96 => "RDMA_NLDEV_SYS_ATTR_PRIVILEGED_QKEY_MODE",
            /// Type of a driver's queue pair, string. Newer than Linux 6.1.
            RES_SUBTYPE = 98,
            /// Type of the device, `u8`. Newer than Linux 6.1.
            DEV_TYPE = 99,
            /// Device above, string. Newer than Linux 6.1.
            PARENT_NAME = 100,
            /// Who chose the name, `u8`. Newer than Linux 6.1.
            NAME_ASSIGN_TYPE = 101,
            /// What a notification is about, `u8`. Newer than Linux 6.1.
            EVENT_TYPE = 102,
            /// 1 if notifications are sent, `u8`. Newer than Linux 6.1.
            SYS_MONITOR_MODE = 103 => "RDMA_NLDEV_SYS_ATTR_MONITOR_MODE",
        }
    }
}

numbers![
    PROTOCOLS,
    TYPES,
    NlmFlags::NUMBERS,
    CLIENTS,
    NodeType::NUMBERS,
    NldevCommand::NUMBERS,
    NldevAttr::NUMBERS,
];

layouts![NlMsgHdr, NlAttr, NlMsgErr,];
