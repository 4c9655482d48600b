//! Headers and numbers of commands by `write()`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::HEADER;

constants! {
    CONSTANTS: u32, "IB_USER_VERBS_" {
        /// Version of this interface.
        ABI_VERSION = 6,
        /// Bit of [`CmdHeader::command`] for extended commands.
        CMD_FLAG_EXTENDED = 0x8000_0000,
    }
}

open_enum! {
    /// Number of a command.
    pub struct Command(u32), "IB_USER_VERBS_CMD_" {
        /// [`GetContext`](super::GetContext).
        GET_CONTEXT = 0,
        /// [`QueryDevice`](super::QueryDevice).
        QUERY_DEVICE = 1,
        /// [`QueryPort`](super::QueryPort).
        QUERY_PORT = 2,
        /// [`AllocPd`](super::AllocPd).
        ALLOC_PD = 3,
        /// [`DeallocPd`](super::DeallocPd).
        DEALLOC_PD = 4,
        /// [`CreateAh`](super::CreateAh).
        CREATE_AH = 5,
        /// [`DestroyAh`](super::DestroyAh).
        DESTROY_AH = 8,
        /// [`RegMr`](super::RegMr).
        REG_MR = 9,
        /// [`ReregMr`](super::ReregMr).
        REREG_MR = 11,
        /// [`DeregMr`](super::DeregMr).
        DEREG_MR = 13,
        /// [`AllocMw`](super::AllocMw).
        ALLOC_MW = 14,
        /// [`DeallocMw`](super::DeallocMw).
        DEALLOC_MW = 16,
        /// [`CreateCompChannel`](super::CreateCompChannel).
        CREATE_COMP_CHANNEL = 17,
        /// [`CreateCq`](super::CreateCq).
        CREATE_CQ = 18,
        /// [`ResizeCq`](super::ResizeCq).
        RESIZE_CQ = 19,
        /// [`DestroyCq`](super::DestroyCq).
        DESTROY_CQ = 20,
        /// [`PollCq`](super::PollCq).
        POLL_CQ = 21,
        /// [`ReqNotifyCq`](super::ReqNotifyCq).
        REQ_NOTIFY_CQ = 23,
        /// [`CreateQp`](super::CreateQp).
        CREATE_QP = 24,
        /// [`QueryQp`](super::QueryQp).
        QUERY_QP = 25,
        /// [`ModifyQp`](super::ModifyQp).
        MODIFY_QP = 26,
        /// [`DestroyQp`](super::DestroyQp).
        DESTROY_QP = 27,
        /// [`PostSend`](super::PostSend).
        POST_SEND = 28,
        /// [`PostRecv`](super::PostRecv).
        POST_RECV = 29,
        /// [`AttachMcast`](super::AttachMcast).
        ATTACH_MCAST = 30,
        /// [`DetachMcast`](super::DetachMcast).
        DETACH_MCAST = 31,
        /// [`CreateSrq`](super::CreateSrq).
        CREATE_SRQ = 32,
        /// [`ModifySrq`](super::ModifySrq).
        MODIFY_SRQ = 33,
        /// [`QuerySrq`](super::QuerySrq).
        QUERY_SRQ = 34,
        /// [`DestroySrq`](super::DestroySrq).
        DESTROY_SRQ = 35,
        /// [`PostSrqRecv`](super::PostSrqRecv).
        POST_SRQ_RECV = 36,
        /// [`OpenXrcd`](super::OpenXrcd).
        OPEN_XRCD = 37,
        /// [`CloseXrcd`](super::CloseXrcd).
        CLOSE_XRCD = 38,
        /// [`CreateXsrq`](super::CreateXsrq).
        CREATE_XSRQ = 39,
        /// [`OpenQp`](super::OpenQp).
        OPEN_QP = 40,
    }
}

open_enum! {
    /// Number of an extended command, without [`CMD_FLAG_EXTENDED`].
    pub struct ExCommand(u32), "IB_USER_VERBS_EX_CMD_" {
        /// [`ExQueryDevice`](super::ExQueryDevice).
        QUERY_DEVICE = 1,
        /// [`ExCreateCq`](super::ExCreateCq).
        CREATE_CQ = 18,
        /// [`ExCreateQp`](super::ExCreateQp).
        CREATE_QP = 24,
        /// [`ExModifyQp`](super::ExModifyQp).
        MODIFY_QP = 26,
        /// [`CreateFlow`](super::CreateFlow).
        CREATE_FLOW = 50,
        /// [`DestroyFlow`](super::DestroyFlow).
        DESTROY_FLOW = 51,
        /// Creates a work queue.
        CREATE_WQ = 52,
        /// Modifies a work queue.
        MODIFY_WQ = 53,
        /// Destroys a work queue.
        DESTROY_WQ = 54,
        /// Creates an indirection table of receive work queues.
        CREATE_RWQ_IND_TBL = 55,
        /// Destroys an indirection table.
        DESTROY_RWQ_IND_TBL = 56,
        /// [`ExModifyCq`](super::ExModifyCq).
        MODIFY_CQ = 57,
    }
}

/// The start of every command.
#[doc(alias = "ib_uverbs_cmd_hdr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CmdHeader {
    /// A [`Command`], or an [`ExCommand`] with [`CMD_FLAG_EXTENDED`].
    pub command: u32,
    /// Length of the whole write in words of 4 bytes; of an extended command its core structure in
    /// units of 8.
    pub in_words: u16,
    /// Length of the core answer's buffer, in the same units.
    pub out_words: u16,
}
layout!(CmdHeader, "struct ib_uverbs_cmd_hdr", 8, { command: 0, in_words: 4, out_words: 6 });

/// Follows [`CmdHeader`] in an extended command.
#[doc(alias = "ib_uverbs_ex_cmd_hdr")]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct ExCmdHeader {
    /// Address of the buffer for the answer, 0 if and only if both lengths are 0.
    pub response: u64,
    /// Length of the driver's request in units of 8 bytes.
    pub provider_in_words: u16,
    /// Length of the driver's answer in units of 8 bytes.
    pub provider_out_words: u16,
    /// Must be 0.
    pub cmd_hdr_reserved: u32,
}
layout!(ExCmdHeader, "struct ib_uverbs_ex_cmd_hdr", 16, {
    response: 0, provider_in_words: 8, provider_out_words: 10, cmd_hdr_reserved: 12,
});
