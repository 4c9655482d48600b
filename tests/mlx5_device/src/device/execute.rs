//! What each kind of request does.

use rdmacm_kernel_abi::mlx5::{AtomicSeg, CqeSyndrome, CtrlFlags, Opcode, RaddrSeg};
use rdmacm_kernel_abi::uverbs::{AccessFlags, AsyncEventType, QpState, QpType};

use super::receive::{Message, Way};
use super::request::{Piece, Request, pieces, segment, total};
use super::send::Ending;
use crate::kernel::LID;
use crate::memory;
use crate::world::{Qp, World};

impl World {
    pub(super) fn execute(&mut self, number: u32, request: &Request) -> Ending {
        let ending = match (self.qps[&number].kind, request.opcode) {
            (_, Opcode::NOP) => Ok(Ending::DONE),
            (QpType::UD, Opcode::SEND | Opcode::SEND_IMM) => self.send_datagram(number, request),
            (QpType::UD, _) => Ok(CqeSyndrome::LOCAL_QP_OP_ERR.into()),
            (_, Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVAL) => {
                self.send_message(number, request)
            }
            (_, Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMM) => self.rdma_write(number, request),
            (QpType::RC, Opcode::RDMA_READ) => self.rdma_read(number, request),
            (QpType::RC, Opcode::ATOMIC_CS | Opcode::ATOMIC_FA) => self.atomic(number, request),
            (_, Opcode::UMR) => self.change_key(number, request),
            _ => Ok(CqeSyndrome::LOCAL_QP_OP_ERR.into()),
        };
        ending.unwrap_or_else(Ending::Forbidden)
    }

    /// The peer of a connection, if it can answer.
    fn peer(&self, number: u32) -> Option<u32> {
        let qp = &self.qps[&number];
        let dest = &qp.attr.dest;
        let is_here = match dest.is_global {
            0 => dest.dlid == LID,
            _ => self.gids().iter().any(|(gid, _)| *gid == dest.dgid),
        };
        let peer = self.qps.get(&qp.attr.dest_qp_num)?;
        let answers = [QpState::RTR, QpState::RTS, QpState::SQD, QpState::SQE];
        let is_peer = is_here
            && peer.kind == qp.kind
            && peer.attr.dest_qp_num == number
            && answers.contains(&peer.state)
            && !peer.is_stopped;
        is_peer.then_some(peer.number)
    }

    /// How a request ends that reaches nobody.
    fn unheard(&self, qp: &Qp) -> Ending {
        match qp.kind {
            QpType::RC => Ending::NoAnswer,
            _ => Ending::DONE,
        }
    }

    /// The far end found something wrong with a request.
    fn refuse(&mut self, number: u32, peer: u32, syndrome: CqeSyndrome) -> Ending {
        if self.qps[&number].kind != QpType::RC {
            return Ending::DONE;
        }
        let kind = match syndrome {
            CqeSyndrome::REMOTE_ACCESS_ERR => AsyncEventType::QP_ACCESS_ERR,
            _ => AsyncEventType::QP_REQ_ERR,
        };
        self.fail_qp(peer);
        self.tell_of_qp(peer, kind);
        Ending::Failed(syndrome)
    }

    fn send_message(&mut self, number: u32, request: &Request) -> Result<Ending, String> {
        let qp = &self.qps[&number];
        let pieces = pieces(&request.body)?;
        if request.opcode == Opcode::SEND && request.word != [0; 4] {
            return Err(format!("a send with a word that it has not: {request:?}"));
        }
        let bytes = match self.gather(qp.pd, &pieces) {
            Ok(bytes) => bytes,
            Err(syndrome) => return Ok(syndrome.into()),
        };
        let Some(peer) = self.peer(number) else {
            return Ok(self.unheard(qp));
        };
        let way = match request.opcode {
            Opcode::SEND_IMM => Way::SendImmediate(request.word),
            Opcode::SEND_INVAL => Way::SendInvalidate(u32::from_be_bytes(request.word)),
            _ => Way::Send,
        };
        let message = Message {
            way,
            bytes,
            ..Message::from(number, request)
        };
        Ok(self.receive(peer, message))
    }

    fn rdma_write(&mut self, number: u32, request: &Request) -> Result<Ending, String> {
        let (remote, rest) = remote_segment(&request.body)?;
        let pieces = pieces(rest)?;
        let qp = &self.qps[&number];
        let bytes = match self.gather(qp.pd, &pieces) {
            Ok(bytes) => bytes,
            Err(syndrome) => return Ok(syndrome.into()),
        };
        let Some(peer) = self.peer(number) else {
            return Ok(self.unheard(qp));
        };
        let has_immediate = request.opcode == Opcode::RDMA_WRITE_IMM;
        if has_immediate && !self.has_receive(peer) {
            return Ok(self.without_receive(number, peer));
        }
        let access = AccessFlags::REMOTE_WRITE;
        if !self.allows(peer, access) {
            return Ok(self.refuse(number, peer, CqeSyndrome::REMOTE_INVAL_REQ_ERR));
        }
        // A key that is not needed is not looked at.
        if !bytes.is_empty() {
            let (key, address) = (remote.rkey.get(), remote.raddr.get());
            match self.remote(peer, key, address, bytes.len() as u64, access) {
                Some(at) => memory::write(at, &bytes),
                None => return Ok(self.refuse(number, peer, CqeSyndrome::REMOTE_ACCESS_ERR)),
            }
        }
        self.note_contact(peer);
        if !has_immediate {
            return Ok(Ending::DONE);
        }
        let message = Message {
            way: Way::Write(request.word, bytes.len() as u32),
            ..Message::from(number, request)
        };
        Ok(self.receive(peer, message))
    }

    fn rdma_read(&mut self, number: u32, request: &Request) -> Result<Ending, String> {
        let (remote, rest) = remote_segment(&request.body)?;
        let pieces = pieces(rest)?;
        let length = total(&pieces);
        if let Some(syndrome) = self.check_room(number, &pieces) {
            return Ok(syndrome.into());
        }
        let Some(peer) = self.peer(number) else {
            return Ok(Ending::NoAnswer);
        };
        let access = AccessFlags::REMOTE_READ;
        if !self.allows(peer, access) {
            return Ok(self.refuse(number, peer, CqeSyndrome::REMOTE_INVAL_REQ_ERR));
        }
        let mut bytes = vec![0; length as usize];
        if length != 0 {
            let (key, address) = (remote.rkey.get(), remote.raddr.get());
            match self.remote(peer, key, address, length, access) {
                Some(at) => memory::read(at, &mut bytes),
                None => return Ok(self.refuse(number, peer, CqeSyndrome::REMOTE_ACCESS_ERR)),
            }
        }
        self.note_contact(peer);
        Ok(self.answered(number, &pieces, bytes))
    }

    fn atomic(&mut self, number: u32, request: &Request) -> Result<Ending, String> {
        let (remote, rest) = remote_segment(&request.body)?;
        let (operands, rest) = segment::<AtomicSeg>(rest)?;
        let pieces = pieces(rest)?;
        if total(&pieces) != 8 {
            return Ok(CqeSyndrome::LOCAL_LENGTH_ERR.into());
        }
        if let Some(syndrome) = self.check_room(number, &pieces) {
            return Ok(syndrome.into());
        }
        let Some(peer) = self.peer(number) else {
            return Ok(Ending::NoAnswer);
        };
        let access = AccessFlags::REMOTE_ATOMIC;
        let address = remote.raddr.get();
        if !self.allows(peer, access) || !address.is_multiple_of(8) {
            return Ok(self.refuse(number, peer, CqeSyndrome::REMOTE_INVAL_REQ_ERR));
        }
        let at = self.remote(peer, remote.rkey.get(), address, 8, access);
        let Some(at) = at.filter(|at| at.is_multiple_of(8)) else {
            return Ok(self.refuse(number, peer, CqeSyndrome::REMOTE_ACCESS_ERR));
        };
        let (swap, compare) = (operands.swap_add.get(), operands.compare.get());
        let found = match request.opcode {
            Opcode::ATOMIC_CS => memory::compare_swap(at, compare, swap),
            _ => memory::fetch_add(at, swap),
        };
        self.note_contact(peer);
        Ok(self.answered(number, &pieces, found.to_ne_bytes().to_vec()))
    }

    /// What is wrong with memory that an answer is to go to.
    fn check_room(&self, number: u32, pieces: &[Piece]) -> Option<CqeSyndrome> {
        let pd = self.qps[&number].pd;
        let is_bad = |piece: &Piece| match piece {
            Piece::Inline(_) => true,
            Piece::Memory {
                key,
                address,
                length,
            } => {
                let write = AccessFlags::LOCAL_WRITE;
                let at = self.local(pd, *key, *address, u64::from(*length), write);
                at.is_none()
            }
        };
        if total(pieces) > 1 << 30 {
            return Some(CqeSyndrome::LOCAL_LENGTH_ERR);
        }
        let is_bad = pieces.iter().any(is_bad);
        is_bad.then_some(CqeSyndrome::LOCAL_PROT_ERR)
    }

    /// An answer arrived: it goes to memory, or into the completion where it is short.
    fn answered(&mut self, number: u32, pieces: &[Piece], bytes: Vec<u8>) -> Ending {
        let qp = &self.qps[&number];
        let length = bytes.len() as u32;
        if (1..=qp.max_inline_answer).contains(&length) {
            return Ending::Done {
                bytes: length,
                data: Some(bytes),
            };
        }
        match self.scatter(qp.pd, pieces, &bytes) {
            Ok(()) => Ending::Done {
                bytes: length,
                data: None,
            },
            Err(()) => CqeSyndrome::LOCAL_PROT_ERR.into(),
        }
    }

    /// Whether peers may do this to a queue pair.
    fn allows(&self, peer: u32, access: AccessFlags) -> bool {
        let granted = AccessFlags::from_bits_retain(self.qps[&peer].attr.qp_access_flags);
        granted.contains(access)
    }

    /// How a request ends that finds no receive.
    pub(super) fn without_receive(&self, number: u32, peer: u32) -> Ending {
        match self.qps[&number].kind {
            QpType::RC => Ending::NoReceive(self.qps[&peer].attr.min_rnr_timer),
            _ => Ending::DONE,
        }
    }
}

impl Message {
    fn from(number: u32, request: &Request) -> Self {
        Self {
            from: number,
            is_solicited: request.flags.contains(CtrlFlags::SOLICITED),
            way: Way::Send,
            bytes: Vec::new(),
            has_route: false,
        }
    }
}

fn remote_segment(body: &[u8]) -> Result<(RaddrSeg, &[u8]), String> {
    let (remote, rest) = segment::<RaddrSeg>(body)?;
    match remote.reserved.get() {
        0 => Ok((remote, rest)),
        other => Err(format!(
            "{other:#x} in a reserved word of the remote address"
        )),
    }
}
