//! Work requests, as the recordings have them and as this crate does.

use serde_json::Value;

use super::compare::{Difference, Outcome};
use super::vectors::{bytes, list, number, text, word};
use super::world::{Data, Pair};
use crate::fastpath::mlx5::recv_queue::RecvQueue;
use crate::fastpath::mlx5::shared_recv_queue::SharedRecvQueue;
use crate::fastpath::{
    Datagram, Handle, Operation, Payload, PostError, QpType, RemoteAddress, Request, Segment,
    SendFlags,
};

const ENOMEM: u64 = 12;
const EINVAL: u64 = 22;
/// States of a queue pair, as the kernel counts them.
const INIT: u64 = 1;
const RTS: u64 = 3;
/// Flag of a request that is inline.
const INLINE: u32 = 1 << 3;

/// Posts one send request.
///
/// # Errors
///
/// The error number with which C refuses what was refused here.
pub(super) fn send(
    pair: &mut Pair,
    request: &Value,
    data: &Data,
    handles: &[Handle],
) -> Outcome<Result<(), Refusal>> {
    // The verbs look at the state and at what the type can do, before they ask the queue.
    if pair.state < RTS {
        return Ok(Err(Refusal::Before(ENOMEM)));
    }
    let Some(operation) = operation(request, pair.qp_type, handles)? else {
        return Ok(Err(Refusal::Before(EINVAL)));
    };
    let flags = word(&request["send_flags"]);
    let segments = segments(request);
    let is_inline = flags & INLINE != 0;
    let max_segments = pair.send_size.map_or(0, |size| size.max_segments);
    if is_inline && segments.len() > max_segments as usize {
        // Here inline bytes are one slice, whose pieces nobody counts; C refuses such a list.
        return Ok(Err(Refusal::Before(ENOMEM)));
    }
    let inline: Vec<u8> = match is_inline {
        false => Vec::new(),
        true => list(&request["sge"])
            .iter()
            .filter(|sge| number(&sge[1]) > 0)
            .flat_map(|sge| data.read(number(&sge[0]), number(&sge[1]) as usize))
            .collect(),
    };
    if is_inline && inline != bytes(&request["inline_data"]) {
        return Err(Difference::new(
            "the inline bytes are not those of the buffer".into(),
        ));
    }
    let request = Request {
        wr_id: number(&request["wr_id"]),
        operation,
        flags: SendFlags::from_bits_truncate(flags),
        payload: match is_inline {
            true => Payload::Inline(&inline),
            false => Payload::Segments(&segments),
        },
    };
    let send = pair.send.as_mut().expect("the queue pair can send");
    match send.push(&request) {
        Ok(()) => Ok(Ok(())),
        Err(error) => {
            let errno = match error {
                PostError::QueueFull { .. }
                | PostError::TooManySegments { .. }
                | PostError::InlineTooLong { .. } => ENOMEM,
                other => return Err(Difference::new(format!("{other:?} is not C's"))),
            };
            Ok(Err(Refusal::By { errno, error }))
        }
    }
}

/// Why a request was not posted.
pub(super) enum Refusal {
    /// Not asked.
    Before(u64),
    /// The queue refused it.
    By { errno: u64, error: PostError },
}

impl Refusal {
    pub(super) fn errno(&self) -> u64 {
        match self {
            Self::Before(errno) | Self::By { errno, .. } => *errno,
        }
    }

    /// Whether C had begun to write the request.
    pub(super) fn is_late_in_c(&self) -> bool {
        let too_long = |error: &PostError| matches!(error, PostError::InlineTooLong { .. });
        matches!(self, Self::By { error, .. } if too_long(error))
    }
}

/// What a request is to do; `None` for what the types of this crate cannot say.
fn operation<'h>(
    request: &Value,
    qp_type: QpType,
    handles: &'h [Handle],
) -> Outcome<Option<Operation<'h>>> {
    let at = || RemoteAddress {
        address: number(&request["remote_addr"]),
        rkey: word(&request["rkey"]),
    };
    let immediate = || {
        let wire = bytes(&request["imm_be"]);
        u32::from_be_bytes(wire.try_into().expect("four bytes"))
    };
    let receiver = || Datagram {
        handle: &handles[number(&request["ah"]) as usize],
        qp_num: word(&request["remote_qpn"]),
        qkey: word(&request["remote_qkey"]),
    };
    let key = || word(&request["invalidate_rkey"]);
    let operation = match (text(&request["opcode"]), qp_type) {
        ("SEND", QpType::Ud) => Operation::Datagram(receiver()),
        ("SEND_WITH_IMM", QpType::Ud) => Operation::DatagramImmediate(receiver(), immediate()),
        ("SEND", _) => Operation::Send,
        ("SEND_WITH_IMM", _) => Operation::SendImmediate(immediate()),
        ("SEND_WITH_INV", _) => Operation::SendInvalidate(key()),
        ("RDMA_WRITE", _) => Operation::Write(at()),
        ("RDMA_WRITE_WITH_IMM", _) => Operation::WriteImmediate(at(), immediate()),
        ("RDMA_READ", _) => Operation::Read(at()),
        ("ATOMIC_CMP_AND_SWP", _) => Operation::CompareSwap {
            at: at(),
            compare: number(&request["compare_add"]),
            swap: number(&request["swap"]),
        },
        ("ATOMIC_FETCH_AND_ADD", _) => Operation::FetchAdd {
            at: at(),
            add: number(&request["compare_add"]),
        },
        ("LOCAL_INV", _) => Operation::LocalInvalidate(key()),
        ("INVALID", _) => return Ok(None),
        (other, _) => {
            let text = format!("the opcode {other} is not known to the replay");
            return Err(Difference::new(text));
        }
    };
    if !qp_type.can(&operation) {
        let text = format!("a queue pair of type {qp_type:?} cannot do {operation:?}");
        return Err(Difference::new(text));
    }
    Ok(Some(operation))
}

pub(super) fn segments(request: &Value) -> Vec<Segment> {
    let segments = list(&request["sge"]).iter();
    segments
        .map(|sge| Segment::of_buffer(number(&sge[0]), word(&sge[1]), word(&sge[2])))
        .collect()
}

/// A queue that takes receives.
pub(super) trait Receiving {
    fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError>;
    fn publish(&mut self);
}

impl Receiving for RecvQueue {
    fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        self.push(wr_id, segments)
    }

    fn publish(&mut self) {
        self.publish();
    }
}

impl Receiving for SharedRecvQueue {
    fn push(&mut self, wr_id: u64, segments: &[Segment]) -> Result<(), PostError> {
        self.push(wr_id, segments)
    }

    fn publish(&mut self) {
        self.publish();
    }
}

/// Posts a list of receives to a queue pair in a state, or to a shared queue. Returns the error number
/// with which C refuses the list, and the first that was refused.
pub(super) fn receives(
    queue: &mut dyn Receiving,
    state: u64,
    requests: &[Value],
) -> Outcome<(u64, Option<usize>)> {
    for (index, request) in requests.iter().enumerate() {
        // The verbs look at the state, before they ask the queue.
        if state < INIT {
            return Ok((EINVAL, Some(index)));
        }
        let errno = match queue.push(number(&request["wr_id"]), &segments(request)) {
            Ok(()) => continue,
            Err(PostError::QueueFull { .. }) => ENOMEM,
            Err(PostError::TooManySegments { .. }) => EINVAL,
            Err(other) => return Err(Difference::new(format!("{other:?} is not C's"))),
        };
        queue.publish();
        return Ok((errno, Some(index)));
    }
    queue.publish();
    Ok((0, None))
}

/// An index as the recordings have it: -1 for none.
pub(super) fn index(index: Option<usize>) -> u64 {
    index.map_or(u64::MAX, |index| index as u64)
}
