//! Receives: what arrives at a queue pair.

use rdmacm_kernel_abi::mlx5::{self, Cqe64, CqeOpcode, CqeSyndrome, DataSeg, ErrCqe, SrqNextSeg};
use rdmacm_kernel_abi::uverbs::{AsyncEventType, QpState, QpType};
use zerocopy::{FromBytes, IntoBytes};

use super::request::{Piece, total};
use super::send::Ending;
use crate::world::World;

/// What arrives.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) from: u32,
    pub(super) is_solicited: bool,
    pub(super) way: Way,
    pub(super) bytes: Vec<u8>,
    /// Of datagrams: there is a header before the data.
    pub(super) has_route: bool,
}

/// How it arrives. Immediate data is as in memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    Send,
    SendImmediate([u8; 4]),
    SendInvalidate(u32),
    /// So many bytes were written.
    Write([u8; 4], u32),
}

/// A posted receive.
#[derive(Debug)]
struct Receive {
    /// By which completions name it.
    counter: u16,
    pieces: Vec<Piece>,
}

impl World {
    /// A message arrives: it consumes a receive.
    pub(super) fn receive(&mut self, number: u32, message: Message) -> Ending {
        if !self.has_receive(number) {
            return self.without_receive(message.from, number);
        }
        if let Way::SendInvalidate(key) = message.way
            && !self.close_window(number, key)
        {
            return self.refuse_receive(number, &message, CqeSyndrome::REMOTE_ACCESS_ERR);
        }
        let Some(receive) = self.take_receive(number) else {
            return self.without_receive(message.from, number);
        };
        self.note_contact(number);
        let qp = &self.qps[&number];
        let length = message.bytes.len() as u64;
        if length > total(&receive.pieces) {
            self.fail_receive(number, &receive, CqeSyndrome::LOCAL_LENGTH_ERR);
            return self.refuse_receive(number, &message, CqeSyndrome::REMOTE_INVAL_REQ_ERR);
        }
        let is_short = (1..=u64::from(qp.max_inline_receive)).contains(&length);
        let is_written = matches!(message.way, Way::Write(..));
        let data = (is_short && !is_written).then_some(message.bytes.as_slice());
        if data.is_none()
            && self
                .scatter(qp.pd, &receive.pieces, &message.bytes)
                .is_err()
        {
            self.fail_receive(number, &receive, CqeSyndrome::LOCAL_PROT_ERR);
            return self.refuse_receive(number, &message, CqeSyndrome::REMOTE_OP_ERR);
        }
        let entry = self.receive_entry(number, &receive, &message);
        self.write_entry(self.qps[&number].recv_cq, &entry, data);
        Ending::DONE
    }

    fn receive_entry(&self, number: u32, receive: &Receive, message: &Message) -> Cqe64 {
        let qp = &self.qps[&number];
        let (kind, word, length) = match message.way {
            Way::Send => (CqeOpcode::RESP_SEND, [0; 4], message.bytes.len() as u32),
            Way::SendImmediate(word) => {
                (CqeOpcode::RESP_SEND_IMM, word, message.bytes.len() as u32)
            }
            Way::SendInvalidate(key) => (
                CqeOpcode::RESP_SEND_INV,
                key.to_be_bytes(),
                message.bytes.len() as u32,
            ),
            Way::Write(word, length) => (CqeOpcode::RESP_WR_IMM, word, length),
        };
        let route = u32::from(message.has_route) << 28;
        Cqe64 {
            flags_rqpn: (route | message.from).into(),
            srqn_uidx: self.index_of(number, qp.srq).into(),
            imm_inval_pkey: u32::from_be_bytes(word).into(),
            byte_cnt: length.into(),
            sop_drop_qpn: number.into(),
            wqe_counter: receive.counter.into(),
            op_own: kind.0 << 4 | u8::from(message.is_solicited) << 1,
            ..Default::default()
        }
    }

    /// The message cannot be received: the receiver is in error, and tells the sender why if that
    /// listens.
    fn refuse_receive(&mut self, number: u32, message: &Message, reason: CqeSyndrome) -> Ending {
        let is_reliable = self.qps[&number].kind == QpType::RC;
        if self.qps[&number].state != QpState::ERR {
            self.fail_qp(number);
        }
        if is_reliable && reason == CqeSyndrome::REMOTE_ACCESS_ERR {
            self.tell_of_qp(number, AsyncEventType::QP_ACCESS_ERR);
        }
        match is_reliable && self.qps.contains_key(&message.from) {
            true => Ending::Failed(reason),
            false => Ending::DONE,
        }
    }

    fn fail_receive(&mut self, number: u32, receive: &Receive, reason: CqeSyndrome) {
        let qp = &self.qps[&number];
        let entry = ErrCqe {
            srqn: self.index_of(number, qp.srq).into(),
            vendor_err_synd: 0x70 + reason.0,
            syndrome: reason.0,
            s_wqe_opcode_qpn: number.into(),
            wqe_counter: receive.counter.into(),
            op_own: CqeOpcode::RESP_ERR.0 << 4,
            ..Default::default()
        };
        self.write_error(qp.recv_cq, &entry);
    }

    /// The first message tells the program that the peer is connected.
    pub(super) fn note_contact(&mut self, number: u32) {
        if self.qps[&number].state == QpState::RTR && self.qps[&number].kind != QpType::UD {
            let qp = self.qps.get_mut(&number).expect("it was found");
            if !std::mem::replace(&mut qp.is_known, true) {
                self.tell_of_qp(number, AsyncEventType::COMM_EST);
            }
        }
    }

    pub(super) fn has_receive(&self, number: u32) -> bool {
        let qp = &self.qps[&number];
        match qp.srq.and_then(|srq| self.srqs.get(&srq)) {
            Some(srq) => srq.record.be32(0) as u16 != srq.consumed && !srq.is_stopped,
            None => qp.recv_count != 0 && qp.record.be32(0) as u16 != qp.recv_next,
        }
    }

    fn take_receive(&mut self, number: u32) -> Option<Receive> {
        match self.qps[&number].srq {
            Some(srq) => self.take_shared(srq),
            None => self.take_own(number),
        }
    }

    fn take_own(&mut self, number: u32) -> Option<Receive> {
        let qp = self.qps.get_mut(&number)?;
        let counter = qp.recv_next;
        let posted = (qp.record.be32(0) as u16).wrapping_sub(counter);
        if u32::from(posted) > qp.recv_count {
            let text = format!(
                "{posted} receives are posted, the queue has {}",
                qp.recv_count
            );
            self.stop(number, text);
            return None;
        }
        if posted == 0 {
            return None;
        }
        qp.recv_next = counter.wrapping_add(1);
        let mut bytes = vec![0; 1 << qp.recv_shift];
        let place = u64::from(u32::from(counter) & (qp.recv_count - 1));
        qp.recv.read(place << qp.recv_shift, &mut bytes);
        match receive_pieces(&bytes) {
            Ok(pieces) => Some(Receive { counter, pieces }),
            Err(text) => {
                self.stop(number, format!("receive {counter}: {text}"));
                None
            }
        }
    }

    fn take_shared(&mut self, number: u32) -> Option<Receive> {
        let srq = self.srqs.get_mut(&number)?;
        let posted = (srq.record.be32(0) as u16).wrapping_sub(srq.consumed);
        if posted == 0 || srq.is_stopped {
            return None;
        }
        let counter = srq.head;
        let mut bytes = vec![0; srq.stride as usize];
        let complaint = if u32::from(posted) > srq.entries - 1 {
            Err(format!(
                "{posted} receives are posted, the queue has {}",
                srq.entries - 1
            ))
        } else {
            srq.memory
                .read(u64::from(u32::from(counter) * srq.stride), &mut bytes);
            let (next, rest) = SrqNextSeg::read_from_prefix(&bytes).expect("it is long enough");
            srq.consumed = srq.consumed.wrapping_add(1);
            srq.head = next.next_wqe_index.get();
            match u32::from(srq.head) < srq.entries {
                true => receive_pieces(rest),
                false => Err(format!("receive {counter} is followed by {}", srq.head)),
            }
        };
        match complaint {
            Ok(pieces) => {
                self.check_limit(number);
                Some(Receive { counter, pieces })
            }
            Err(text) => {
                srq.is_stopped = true;
                self.violation(format!("shared receive queue {number:#x}: {text}"));
                None
            }
        }
    }

    /// Tells the program when few receives are left, once.
    pub(crate) fn check_limit(&mut self, number: u32) {
        let srq = self.srqs.get_mut(&number).expect("it was found");
        let left = (srq.record.be32(0) as u16).wrapping_sub(srq.consumed);
        if u32::from(left) < srq.limit {
            srq.limit = 0;
            srq.events += u32::from(srq.async_channel.is_some());
            let (channel, name) = (srq.async_channel, srq.user_handle);
            self.send_async(channel, name, AsyncEventType::SRQ_LIMIT_REACHED);
        }
    }

    /// Receives of a queue pair in error come back. Those of a shared queue stay there.
    pub(super) fn flush_receives(&mut self, number: u32) -> bool {
        let mut is_busy = false;
        while self.qps[&number].srq.is_none()
            && !self.qps[&number].is_stopped
            && self.has_receive(number)
        {
            is_busy = true;
            if let Some(receive) = self.take_receive(number) {
                self.fail_receive(number, &receive, CqeSyndrome::WR_FLUSH_ERR);
            }
        }
        is_busy
    }
}

/// The segments of a receive, up to the one that ends the list.
fn receive_pieces(bytes: &[u8]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    for chunk in bytes.chunks_exact(size_of::<DataSeg>()) {
        let data = DataSeg::read_from_bytes(chunk).expect("it is as long");
        let (length, key) = (data.byte_count.get(), data.lkey.get());
        if length == 0 {
            return match key == mlx5::INVALID_LKEY {
                true => Ok(pieces),
                false => Err(format!(
                    "a segment of 0 bytes, which means 2 GiB: {:02x?}",
                    data.as_bytes()
                )),
            };
        }
        pieces.push(Piece::Memory {
            key,
            address: data.addr.get(),
            length,
        });
    }
    Ok(pieces)
}
