//! What comes back from a completion queue.

use std::fmt;

use rdmacm_kernel_abi::uverbs::{self, WcOpcode, WcStatus};
use zerocopy::FromZeros;

use crate::error::{Error, ErrorKind};

/// The completion of one work request.
///
/// A failed request has a status and nothing else to tell; [`Completion::result`] hides the
/// fields that have no meaning for it.
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy)]
pub struct Completion(pub(super) uverbs::Wc);

impl Default for Completion {
    fn default() -> Self {
        Self(uverbs::Wc::new_zeroed())
    }
}

impl Completion {
    /// The number that the request was posted with.
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// A completion as the kernel wrote it.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_kernel(wc: uverbs::Wc) -> Self {
        Self(wc)
    }

    /// Changes the number, for a layer that marks numbers.
    pub(crate) fn set_wr_id(&mut self, wr_id: u64) {
        self.0.wr_id = wr_id;
    }

    /// Number of the queue pair that the request was posted to.
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// What became of the request.
    ///
    /// # Errors
    ///
    /// The failure, when the request was not carried out.
    pub fn result(&self) -> Result<Success<'_>, Failure> {
        match CompletionStatus::from_kernel(self.0.status) {
            CompletionStatus::Success => Ok(Success(&self.0)),
            status => Err(Failure {
                wr_id: self.0.wr_id,
                qp_num: self.0.qp_num,
                status,
                vendor_error: self.0.vendor_err,
            }),
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("wr_id", &self.wr_id())
            .field("qp_num", &self.qp_num())
            .field("result", &self.result())
            .finish()
    }
}

/// A request that was carried out.
#[derive(Clone, Copy)]
pub struct Success<'a>(&'a uverbs::Wc);

impl Success<'_> {
    /// What was carried out.
    pub fn opcode(&self) -> Opcode {
        Opcode::from_kernel(self.0.opcode)
    }

    /// Number of bytes that were received or read; for other requests the size of the message.
    pub fn byte_len(&self) -> u32 {
        self.0.byte_len
    }

    /// The immediate data that came with a received message, as the number the peer posted.
    pub fn immediate(&self) -> Option<u32> {
        self.immediate_bytes().map(u32::from_be_bytes)
    }

    /// The immediate data that came with a received message, as the bytes that the peer's program
    /// had in memory: C hands them over without looking at them, and programs that put a number
    /// there have it in big-endian order (`htonl`), which [`Success::immediate`] takes for granted.
    #[doc(alias = "imm_data")]
    pub fn immediate_bytes(&self) -> Option<[u8; 4]> {
        let received = matches!(
            self.opcode(),
            Opcode::Receive | Opcode::ReceiveWriteImmediate
        );
        let flagged = self.0.wc_flags & uverbs::WcFlags::WITH_IMM.bits() != 0;
        (received && flagged).then(|| self.0.ex.to_ne_bytes())
    }

    /// The key that the peer invalidated with a received message
    /// ([`Batch::send_invalidate`](crate::Batch::send_invalidate)): the memory window that had it is
    /// closed.
    #[doc(alias("invalidated_rkey", "IBV_WC_WITH_INV"))]
    pub fn invalidated(&self) -> Option<u32> {
        let flagged = self.0.wc_flags & uverbs::WcFlags::WITH_INVALIDATE.bits() != 0;
        (self.opcode() == Opcode::Receive && flagged).then_some(self.0.ex)
    }

    /// Number of the queue pair that sent a received datagram. Other requests have none.
    pub fn source_qp(&self) -> u32 {
        self.0.src_qp
    }

    /// Whether the [`GRH_LENGTH`] bytes in front of a received datagram tell its way. They are
    /// there in any case.
    pub fn has_grh(&self) -> bool {
        self.0.wc_flags & uverbs::WcFlags::GRH.bits() != 0
    }

    /// Number of bytes of a received datagram, without the [`GRH_LENGTH`] bytes in front of it,
    /// which [`Success::byte_len`] counts.
    pub fn datagram_len(&self) -> u32 {
        self.0.byte_len.saturating_sub(GRH_LENGTH as u32)
    }

    /// The LID that a received datagram came from; 0 on Ethernet.
    pub(crate) fn source_lid(&self) -> u16 {
        self.0.slid
    }

    /// The service level of a received datagram.
    pub(crate) fn service_level(&self) -> u8 {
        self.0.sl
    }
}

/// Bytes that a UD queue pair puts in front of each datagram that it receives: the global route
/// header, which tells where the datagram came from ([`Context::reply_path`]).
///
/// A receive must have room for them: a datagram that does not fit together with them is lost.
///
/// [`Context::reply_path`]: crate::Context::reply_path
#[doc(alias = "ibv_grh")]
pub const GRH_LENGTH: usize = 40;

impl fmt::Debug for Success<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Success")
            .field("opcode", &self.opcode())
            .field("byte_len", &self.byte_len())
            .field("immediate", &self.immediate())
            .field("invalidated", &self.invalidated())
            .finish()
    }
}

/// A request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The number that the request was posted with.
    pub wr_id: u64,
    /// Number of the queue pair.
    pub qp_num: u32,
    /// Why it failed.
    pub status: CompletionStatus,
    /// The device's own code for the failure; 0 when it has none.
    pub vendor_error: u32,
}

impl Failure {
    /// Whether the request was given up because the queue pair is in the error state. The reason
    /// is elsewhere: in an earlier failure, or in the connection's end.
    pub fn is_flush(&self) -> bool {
        self.status == CompletionStatus::Flushed
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {} failed: {}", self.wr_id, self.status)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::new("completion", ErrorKind::WorkFailed, failure.to_string())
    }
}

/// What was carried out.
#[doc(alias = "ibv_wc_opcode")]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A send, with or without immediate data.
    Send,
    /// An RDMA write, with or without immediate data.
    Write,
    /// An RDMA read.
    Read,
    /// An atomic compare and swap. Whether it swapped tells the value that was there.
    #[doc(alias = "IBV_WC_COMP_SWAP")]
    CompareSwap,
    /// An atomic addition.
    #[doc(alias = "IBV_WC_FETCH_ADD")]
    FetchAdd,
    /// An atomic write.
    #[doc(alias = "IBV_WC_ATOMIC_WRITE")]
    AtomicWrite,
    /// A memory window was bound.
    #[doc(alias = "IBV_WC_BIND_MW")]
    BindWindow,
    /// A memory window was closed by invalidating its key.
    #[doc(alias = "IBV_WC_LOCAL_INV")]
    LocalInvalidate,
    /// The peer flushed its memory.
    #[doc(alias = "IBV_WC_FLUSH")]
    Flush,
    /// A message was received.
    Receive,
    /// The peer wrote into registered memory and sent immediate data.
    ReceiveWriteImmediate,
    /// Anything else, with the kernel's number.
    Other(u32),
}

impl Opcode {
    fn from_kernel(opcode: u32) -> Self {
        match WcOpcode(opcode) {
            WcOpcode::SEND => Self::Send,
            WcOpcode::RDMA_WRITE => Self::Write,
            WcOpcode::RDMA_READ => Self::Read,
            WcOpcode::COMP_SWAP => Self::CompareSwap,
            WcOpcode::FETCH_ADD => Self::FetchAdd,
            WcOpcode::ATOMIC_WRITE => Self::AtomicWrite,
            WcOpcode::BIND_MW => Self::BindWindow,
            WcOpcode::LOCAL_INV => Self::LocalInvalidate,
            WcOpcode::FLUSH => Self::Flush,
            WcOpcode::RECV => Self::Receive,
            WcOpcode::RECV_RDMA_WITH_IMM => Self::ReceiveWriteImmediate,
            WcOpcode(other) => Self::Other(other),
        }
    }
}

macro_rules! statuses {
    ($($(#[$meta:meta])* $name:ident = $number:ident, $text:literal;)*) => {
        /// How a request ended.
        #[doc(alias = "ibv_wc_status")]
        #[non_exhaustive]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum CompletionStatus {
            $($(#[$meta])* $name,)*
            /// A status that this crate does not know, with the kernel's number.
            Unknown(u32),
        }

        impl CompletionStatus {
            pub(crate) fn from_kernel(status: u32) -> Self {
                match WcStatus(status) {
                    $(WcStatus::$number => Self::$name,)*
                    WcStatus(other) => Self::Unknown(other),
                }
            }
        }

        impl fmt::Display for CompletionStatus {
            #[doc(alias = "ibv_wc_status_str")]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Unknown(status) => write!(f, "unknown status {status}"),
                }
            }
        }
    };
}

statuses! {
    /// Carried out.
    Success = SUCCESS, "success";
    /// A message did not fit: longer than the receive, or than a message can be.
    LocalLength = LOC_LEN_ERR, "local length error: the message does not fit the buffer";
    /// The request itself is malformed.
    LocalQpOperation = LOC_QP_OP_ERR, "local queue pair operation error: malformed request";
    /// Of reliable datagrams, a service that no device offers.
    LocalEeContext = LOC_EEC_OP_ERR, "local EE context operation error";
    /// A local segment is not registered memory, or lacks the access.
    LocalProtection = LOC_PROT_ERR, "local protection error: wrong lkey, range or access";
    /// Not carried out because the queue pair is in the error state.
    Flushed = WR_FLUSH_ERR, "flushed: the queue pair is in the error state";
    /// Binding a memory window failed.
    MemoryWindowBind = MW_BIND_ERR, "memory window bind error";
    /// The peer's answer made no sense.
    BadResponse = BAD_RESP_ERR, "bad response from the peer";
    /// The peer wrote to memory that does not allow it.
    LocalAccess = LOC_ACCESS_ERR, "local access error: the memory does not allow what the peer asked";
    /// The peer found the request invalid.
    RemoteInvalidRequest = REM_INV_REQ_ERR, "the peer found the request invalid";
    /// The peer's memory does not allow the access.
    RemoteAccess = REM_ACCESS_ERR, "remote access error: wrong rkey, range or access";
    /// The peer could not carry the request out.
    RemoteOperation = REM_OP_ERR, "the peer failed to carry out the request";
    /// The peer does not answer.
    RetryExceeded = RETRY_EXC_ERR, "retries exceeded: the peer does not answer";
    /// The peer has no receive posted.
    RnrRetryExceeded = RNR_RETRY_EXC_ERR, "receiver-not-ready retries exceeded: the peer has no receive posted";
    /// Of reliable datagrams, a service that no device offers.
    LocalRdDomain = LOC_RDD_VIOL_ERR, "local RDD violation";
    /// Of reliable datagrams, a service that no device offers.
    RemoteInvalidRdRequest = REM_INV_RD_REQ_ERR, "remote invalid RD request";
    /// The peer aborted the operation.
    RemoteAborted = REM_ABORT_ERR, "the peer aborted the operation";
    /// Of reliable datagrams, a service that no device offers.
    InvalidEeContextNumber = INV_EECN_ERR, "invalid EE context number";
    /// Of reliable datagrams, a service that no device offers.
    InvalidEeContextState = INV_EEC_STATE_ERR, "invalid EE context state";
    /// The transport failed.
    Fatal = FATAL_ERR, "fatal transport error";
    /// No answer in time.
    ResponseTimeout = RESP_TIMEOUT_ERR, "response timeout";
    /// Anything else.
    General = GENERAL_ERR, "general error";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(status: u32, opcode: u32) -> Completion {
        let mut wc = uverbs::Wc::new_zeroed();
        (wc.wr_id, wc.qp_num, wc.status, wc.opcode) = (7, 17, status, opcode);
        Completion(wc)
    }

    #[test]
    fn a_failure_tells_the_status_and_not_the_opcode() {
        let failure = completion(12, WcOpcode::RECV.0).result().unwrap_err();
        assert_eq!(failure.status, CompletionStatus::RetryExceeded);
        assert_eq!((failure.wr_id, failure.qp_num), (7, 17));
        assert!(!format!("{failure:?}").contains("Receive"));
    }

    #[test]
    fn unknown_numbers_are_kept() {
        let failure = completion(99, 0).result().unwrap_err();
        assert_eq!(failure.status, CompletionStatus::Unknown(99));
        let odd = completion(0, 77);
        assert_eq!(odd.result().unwrap().opcode(), Opcode::Other(77));
    }

    #[test]
    fn opcodes_are_the_kernels() {
        let known = [
            (0, Opcode::Send),
            (1, Opcode::Write),
            (2, Opcode::Read),
            (3, Opcode::CompareSwap),
            (4, Opcode::FetchAdd),
            (9, Opcode::AtomicWrite),
            (5, Opcode::BindWindow),
            (6, Opcode::LocalInvalidate),
            (8, Opcode::Flush),
            (128, Opcode::Receive),
            (129, Opcode::ReceiveWriteImmediate),
        ];
        for (number, opcode) in known {
            let done = completion(0, number);
            assert_eq!(done.result().unwrap().opcode(), opcode);
        }
    }

    #[test]
    fn immediate_data_is_the_number_the_peer_posted_and_only_on_receives() {
        let mut wc = completion(0, WcOpcode::RECV.0);
        wc.0.ex = 0x0102_0304u32.to_be();
        assert_eq!(wc.result().unwrap().immediate(), None);
        wc.0.wc_flags = uverbs::WcFlags::WITH_IMM.bits();
        assert_eq!(wc.result().unwrap().immediate(), Some(0x0102_0304));
        wc.0.opcode = WcOpcode::SEND.0;
        assert_eq!(
            wc.result().unwrap().immediate(),
            None,
            "the sender's own completion"
        );
    }

    #[test]
    fn an_invalidated_key_is_told_by_the_kernels_bit_and_is_no_immediate_data() {
        let mut wc = completion(0, WcOpcode::RECV.0);
        wc.0.ex = 0x0102_0304;
        for (flags, key) in [(1, None), (1 << 2, Some(0x0102_0304)), (1 << 3, None)] {
            wc.0.wc_flags = flags;
            let result = wc.result().unwrap();
            assert_eq!((result.invalidated(), result.immediate()), (key, None));
        }
        (wc.0.wc_flags, wc.0.opcode) = (1 << 2, WcOpcode::SEND.0);
        assert_eq!(wc.result().unwrap().invalidated(), None, "the sender's own");
    }
}
