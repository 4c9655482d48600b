//! Asking a peer for its queue pair for datagrams (service id resolution): one question, one
//! answer, and no connection.

use rdmacm_kernel_abi::ucma::{self, ConnParam, EventType, UdParam};

use super::cm::{Phase, record};
use super::files::QueuedEvent;
use super::groups::way_to;
use super::{Outcome, World};

/// Answers.
const NOBODY_LISTENS: i32 = 1;
const REJECTED: i32 = 2;

/// Private data arrives with the length of the message that carried it.
pub(super) const IN_QUESTION: u8 = 180;
pub(super) const IN_ANSWER: u8 = 136;

impl World {
    /// Makes the new id that a question brings, and tells the listener. An id that has asked waits
    /// for an answer, or hears at once that nobody listens.
    pub(super) fn ask(
        &mut self,
        listener: Option<u32>,
        active: u32,
        param: &ConnParam,
        ece: ucma::Ece,
    ) -> Outcome {
        let Some(listener) = listener else {
            self.answer(
                active,
                EventType::UNREACHABLE,
                NOBODY_LISTENS,
                UdParam::default(),
            );
            return Ok(());
        };
        let question = UdParam {
            private_data: param.private_data,
            private_data_len: IN_QUESTION,
            ..Default::default()
        };
        let (file, cookie, child) = self.new_child(listener, active)?;
        let mut record = record(
            cookie,
            child,
            EventType::CONNECT_REQUEST,
            0,
            Some(&question),
        );
        record.ece = ece;
        self.queue(
            file,
            QueuedEvent {
                owner: listener,
                child: Some(child),
                group: None,
                record,
            },
        );
        Ok(())
    }

    /// Accepts a question. Whether whoever asked is still there does not matter.
    pub(super) fn accept_question(&mut self, request: &ucma::Accept) -> Outcome {
        let param = &request.conn_param;
        if param.valid == 0 || param.private_data_len > IN_ANSWER {
            self.refuse_question(request.id);
            return Err(libc::EINVAL);
        }
        let id = self.ids.get(request.id)?;
        (id.cookie, id.qp_num, id.phase) = (request.uid, param.qp_num, Phase::Established);
        let (active, local) = (id.peer.take(), id.local.ok_or(libc::EINVAL)?);
        let answer = UdParam {
            private_data: param.private_data,
            ..way_to(local.ip(), param.qp_num)
        };
        if let Some(active) = active {
            self.answer(active, EventType::ESTABLISHED, 0, answer);
        }
        Ok(())
    }

    /// Answers that there is no queue pair for whoever asked.
    pub(super) fn refuse_question(&mut self, child: u32) {
        let Ok(id) = self.ids.get(child) else { return };
        id.phase = Phase::Closed;
        if let Some(active) = id.peer.take() {
            self.answer(active, EventType::UNREACHABLE, REJECTED, UdParam::default());
        }
    }

    fn answer(&mut self, active: u32, kind: EventType, status: i32, mut answer: UdParam) {
        let Ok(id) = self.ids.get(active) else { return };
        (id.phase, id.peer) = (Phase::Closed, None);
        answer.private_data_len = IN_ANSWER;
        let record = record(id.cookie, active, kind, status, Some(&answer));
        self.emit_record(active, record);
    }
}
