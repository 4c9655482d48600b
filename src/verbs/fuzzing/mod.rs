//! Fuzz targets: queues in memory, and the headers of datagrams.

mod mlx5;
mod reply;
mod rxe;
mod siw;

use rdmacm_kernel_abi::uverbs::{Wc, WcFlags, WcOpcode, WcStatus};

pub use mlx5::mlx5_device;
pub use reply::reply_path;
pub use rxe::{rxe_completions, rxe_queues};
pub use siw::{siw_completions, siw_queues};

use super::{Access, Buffer, Cq, Pd, Qp, QpAttr, QpModify, QpState};
use crate::device::fuzzing::open_device;
use crate::fastpath::{Completion, CompletionStatus, GRH_LENGTH, Opcode, PostError, Segment};
use crate::sys::hostile::Hostile;

/// What a completion tells is what the kernel wrote, and a failure tells nothing else.
fn check_completion(completion: &Completion, wc: &Wc) {
    assert_eq!(
        (completion.wr_id(), completion.qp_num()),
        (wc.wr_id, wc.qp_num)
    );
    let has = |flag: WcFlags| wc.wc_flags & flag.bits() != 0;
    match completion.result() {
        Ok(success) => {
            assert_eq!(wc.status, WcStatus::SUCCESS.0);
            let (length, header) = (wc.byte_len, GRH_LENGTH as u32);
            assert_eq!(
                (success.byte_len(), success.source_qp()),
                (length, wc.src_qp)
            );
            assert_eq!(success.datagram_len(), length.max(header) - header);
            assert_eq!(success.has_grh(), has(WcFlags::GRH));
            let receives = [WcOpcode::RECV.0, WcOpcode::RECV_RDMA_WITH_IMM.0];
            let immediate = receives.contains(&wc.opcode) && has(WcFlags::WITH_IMM);
            assert_eq!(success.immediate(), immediate.then(|| wc.ex.swap_bytes()));
            if let Opcode::Other(number) = success.opcode() {
                assert!(number == wc.opcode && !receives.contains(&number));
            }
        }
        Err(failure) => {
            assert_ne!(wc.status, WcStatus::SUCCESS.0);
            assert_eq!(
                (failure.wr_id, failure.vendor_error),
                (wc.wr_id, wc.vendor_err)
            );
            assert_eq!(failure.is_flush(), wc.status == WcStatus::WR_FLUSH_ERR.0);
            match failure.status {
                CompletionStatus::Unknown(number) => {
                    assert!(number == wc.status && number > WcStatus::GENERAL_ERR.0);
                }
                _ => assert!(wc.status <= WcStatus::GENERAL_ERR.0),
            }
            assert!(!failure.to_string().is_empty());
        }
    }
    assert!(!format!("{completion:?}").is_empty());
}

/// A queue pair on queues that the input makes up, and what goes with it.
struct Set {
    qp: Qp,
    segments: Vec<Segment>,
    _cq: Cq,
    _buffer: Buffer,
    _pd: Pd,
}

/// What became of a batch.
enum Sent {
    Nothing,
    /// So many requests, numbered from 0 on.
    Requests(u32),
}

impl Set {
    /// Which mappings are those of its queues. The first two are of the completion queue and of the
    /// buffer.
    const QUEUES: [usize; 2] = [2, 3];

    /// `None` when the library or the kernel refuses something; then nothing stays mapped.
    fn new(kernel: &Hostile) -> Option<Self> {
        let set = Self::make(kernel);
        assert!(set.is_some() || kernel.mappings() == 0);
        set
    }

    fn make(kernel: &Hostile) -> Option<Self> {
        let context = open_device()?;
        let pd = context.alloc_pd().ok()?;
        kernel.make_queues_plain(true);
        let cq = context.completion_queue(8).build();
        kernel.make_queues_plain(false);
        let cq = cq.ok()?;
        let buffer = pd.alloc(4096, Access::empty()).ok()?;
        let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
        let qp = pd.create_qp(&attr).ok()?;
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let _ = qp.modify(&QpModify::to(state));
        }
        let segment = |at: usize| buffer.slice(at..at * 2).expect("within the buffer");
        Some(Self {
            qp,
            segments: (0..64).map(segment).collect(),
            _cq: cq,
            _buffer: buffer,
            _pd: pd,
        })
    }

    /// Builds requests until the input says that it is enough, and submits them unless the input
    /// says otherwise.
    fn send_batch(&mut self, kernel: &Hostile) -> Sent {
        let granted = self.qp.capabilities();
        let mut batch = self.qp.send_half().batch();
        let mut count = 0;
        for step in kernel.steps(32).take_while(|step| *step != 0) {
            let size = usize::from(step >> 1);
            let wr_id = u64::from(count);
            let outcome = if step & 1 == 0 {
                batch
                    .send(wr_id)
                    .from(&self.segments[..size % self.segments.len()])
            } else {
                batch.send(wr_id).inline(&[step; 1024][..size * 8])
            };
            match outcome {
                Ok(()) => count += 1,
                Err(PostError::QueueFull { depth }) => assert_eq!(depth, granted.max_send_wr),
                Err(PostError::TooManySegments { segments, max }) => {
                    assert!(segments > max as usize && max <= granted.max_send_sge);
                }
                Err(PostError::InlineTooLong { length, max }) => {
                    assert!(length > max as usize && max <= granted.max_inline_data);
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        if count == 0 || kernel.next_step().is_none_or(|step| step & 1 != 0) {
            return Sent::Nothing;
        }
        match batch.submit() {
            // The kernel is told before it refuses to look.
            Ok(()) | Err(PostError::Doorbell { .. }) => Sent::Requests(count),
            Err(other) => {
                assert_eq!(other, PostError::NotConnected, "it refused a transition");
                Sent::Nothing
            }
        }
    }

    /// Posts a receive of so many segments. Returns its number, unless it is refused.
    fn post_receive(&mut self, segments: usize) -> Option<u64> {
        let granted = self.qp.capabilities();
        let wr_id = u64::MAX - segments as u64;
        match self.qp.recv_half().post(wr_id, &self.segments[..segments]) {
            Ok(()) => return Some(wr_id),
            Err(PostError::QueueFull { depth }) => assert_eq!(depth, granted.max_recv_wr),
            Err(PostError::TooManySegments { segments, max }) => {
                assert!(segments > max as usize && max <= granted.max_recv_sge);
            }
            Err(other) => assert_eq!(other, PostError::NoSegments),
        }
        None
    }

    fn take_down(self, kernel: &Hostile) {
        drop(self);
        assert_eq!(kernel.mappings(), 0);
    }
}
