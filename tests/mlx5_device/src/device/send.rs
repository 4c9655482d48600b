//! Send queues: one request after the other.

use std::time::{Duration, Instant};

use rdmacm_kernel_abi::mlx5::{Cqe64, CqeOpcode, CqeSyndrome, CtrlFlags, ErrCqe};
use rdmacm_kernel_abi::uverbs::{AsyncEventType, QpState, QpType};

use super::request::Request;
use crate::world::{Wait, WaitReason, World, rnr_delay};

/// How a request ended, or not yet.
#[derive(Debug)]
pub(super) enum Ending {
    /// Of so many bytes, if that is told. What was read, if it is to land in the completion.
    Done { bytes: u32, data: Option<Vec<u8>> },
    /// It could not be carried out; both ends know.
    Failed(CqeSyndrome),
    /// The peer has no receive for it, and wants to be left alone for the time of this code.
    NoReceive(u8),
    /// Nobody answers.
    NoAnswer,
    /// No card would execute it.
    Forbidden(String),
}

impl Ending {
    pub(super) const DONE: Self = Self::Done {
        bytes: 0,
        data: None,
    };
}

impl From<CqeSyndrome> for Ending {
    fn from(syndrome: CqeSyndrome) -> Self {
        Self::Failed(syndrome)
    }
}

/// Requests of one queue pair before the next has its turn.
const TURN: u32 = 16;

impl World {
    /// Gives each queue pair its turn. False where none had anything to do.
    pub(super) fn run(&mut self) -> bool {
        let numbers: Vec<u32> = self.qps.keys().copied().collect();
        let mut is_busy = false;
        for number in numbers {
            let qp = &self.qps[&number];
            if qp.is_stopped {
                continue;
            }
            match qp.state {
                QpState::RTS if qp.is_rung => is_busy |= self.run_sends(number),
                QpState::ERR => {
                    is_busy |= self.flush_sends(number);
                    is_busy |= self.flush_receives(number);
                }
                QpState::SQE => is_busy |= self.flush_sends(number),
                _ => {}
            }
        }
        is_busy
    }

    fn run_sends(&mut self, number: u32) -> bool {
        for _ in 0..TURN {
            let Some(qp) = self.qps.get_mut(&number) else {
                return true;
            };
            if qp.state != QpState::RTS || qp.is_stopped {
                return true;
            }
            if qp.wait.is_some_and(|wait| Instant::now() < wait.next) {
                return false;
            }
            let request = match qp.next_request() {
                Ok(Some(request)) => request,
                Ok(None) => {
                    qp.is_rung = false;
                    return true;
                }
                Err(text) => {
                    self.stop(number, text);
                    return true;
                }
            };
            let ending = self.execute(number, &request);
            if self.config.traces {
                eprintln!("mlx5 device: {number:#x}: {request:x?}: {ending:x?}");
            }
            if !self.finish(number, &request, ending) {
                return false;
            }
        }
        true
    }

    /// False where the request must wait.
    fn finish(&mut self, number: u32, request: &Request, ending: Ending) -> bool {
        match ending {
            Ending::Done { bytes, data } => {
                self.leave_behind(number, request);
                if request.flags.contains(CtrlFlags::CQ_UPDATE) {
                    self.complete(number, request, bytes, data.as_deref());
                }
                true
            }
            Ending::Failed(syndrome) => {
                self.leave_behind(number, request);
                self.fail_send(number, request, syndrome);
                true
            }
            Ending::NoReceive(code) => self.wait_for_receive(number, request, code),
            Ending::NoAnswer => self.wait_for_answer(number, request),
            Ending::Forbidden(text) => {
                self.stop(number, format!("request {}: {text}", request.index));
                true
            }
        }
    }

    fn leave_behind(&mut self, number: u32, request: &Request) {
        let qp = self.qps.get_mut(&number).expect("it ran");
        qp.send_next = qp.send_next.wrapping_add(request.blocks);
        qp.wait = None;
    }

    fn wait_for_receive(&mut self, number: u32, request: &Request, code: u8) -> bool {
        let qp = self.qps.get_mut(&number).expect("it ran");
        let left = match qp.wait.map(|wait| wait.reason) {
            Some(WaitReason::NoReceive { left }) => left.map(|left| left.saturating_sub(1)),
            _ if qp.attr.rnr_retry == 7 => None,
            _ => Some(qp.attr.rnr_retry),
        };
        if left == Some(0) {
            let given_up = Ending::Failed(CqeSyndrome::RNR_RETRY_EXC_ERR);
            return self.finish(number, request, given_up);
        }
        qp.wait = Some(Wait {
            next: Instant::now() + rnr_delay(code),
            reason: WaitReason::NoReceive { left },
        });
        false
    }

    fn wait_for_answer(&mut self, number: u32, request: &Request) -> bool {
        let qp = self.qps.get_mut(&number).expect("it ran");
        let now = Instant::now();
        let until = match qp.wait.map(|wait| wait.reason) {
            Some(WaitReason::NoAnswer { until }) => until,
            _ => (qp.attr.timeout != 0).then(|| {
                let timeout = Duration::from_nanos(4096 << (qp.attr.timeout & 31));
                now + timeout * (u32::from(qp.attr.retry_cnt) + 1)
            }),
        };
        if until.is_some_and(|until| now >= until) {
            let given_up = Ending::Failed(CqeSyndrome::TRANSPORT_RETRY_EXC_ERR);
            return self.finish(number, request, given_up);
        }
        qp.wait = Some(Wait {
            next: now + Duration::from_millis(1),
            reason: WaitReason::NoAnswer { until },
        });
        false
    }

    fn complete(&mut self, number: u32, request: &Request, bytes: u32, data: Option<&[u8]>) {
        let qp = &self.qps[&number];
        let opcode = u32::from(request.opcode.0) << 24;
        let entry = Cqe64 {
            srqn_uidx: self.index_of(number, None).into(),
            byte_cnt: bytes.into(),
            sop_drop_qpn: (opcode | number).into(),
            wqe_counter: request.index.into(),
            op_own: CqeOpcode::REQ.0 << 4,
            ..Default::default()
        };
        self.write_entry(qp.send_cq, &entry, data);
    }

    /// The number by which a completion names its queue pair.
    pub(super) fn index_of(&self, number: u32, srq: Option<u32>) -> u32 {
        match self.config.cqe_version {
            0 => srq.unwrap_or(0),
            _ => self.qps[&number].index,
        }
    }

    fn fail_send(&mut self, number: u32, request: &Request, syndrome: CqeSyndrome) {
        self.write_send_error(number, request, syndrome);
        let qp = self.qps.get_mut(&number).expect("it ran");
        match qp.kind {
            // The other half goes on.
            QpType::UD | QpType::UC => qp.state = QpState::SQE,
            _ => self.fail_qp(number),
        }
    }

    fn write_send_error(&mut self, number: u32, request: &Request, syndrome: CqeSyndrome) {
        let opcode = u32::from(request.opcode.0) << 24;
        let entry = ErrCqe {
            srqn: self.index_of(number, None).into(),
            vendor_err_synd: 0x50 + syndrome.0,
            syndrome: syndrome.0,
            s_wqe_opcode_qpn: (opcode | number).into(),
            wqe_counter: request.index.into(),
            op_own: CqeOpcode::REQ_ERR.0 << 4,
            ..Default::default()
        };
        self.write_error(self.qps[&number].send_cq, &entry);
    }

    /// The queue pair goes to ERROR. What is posted comes back when it has its turn.
    pub(crate) fn fail_qp(&mut self, number: u32) {
        let qp = self.qps.get_mut(&number).expect("it was found");
        qp.state = QpState::ERR;
        qp.wait = None;
        if qp.srq.is_some() && !qp.is_last_reported {
            qp.is_last_reported = true;
            self.tell_of_qp(number, AsyncEventType::QP_LAST_WQE_REACHED);
        }
    }

    fn flush_sends(&mut self, number: u32) -> bool {
        let mut is_busy = false;
        loop {
            let qp = &self.qps[&number];
            let request = match qp.next_request() {
                Ok(Some(request)) => request,
                Ok(None) => return is_busy,
                Err(text) => {
                    self.stop(number, text);
                    return true;
                }
            };
            is_busy = true;
            self.leave_behind(number, &request);
            self.write_send_error(number, &request, CqeSyndrome::WR_FLUSH_ERR);
        }
    }
}
