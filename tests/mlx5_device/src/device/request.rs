//! Requests as they lie in a send queue.

use rdmacm_kernel_abi::mlx5::{self, CqeSyndrome, CtrlFlags, CtrlSeg, DataSeg, Opcode};
use rdmacm_kernel_abi::uverbs::AccessFlags;
use zerocopy::FromBytes;

use crate::memory;
use crate::world::{Qp, World};

/// A request, taken apart as far as all have it in common.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) index: u16,
    pub(super) blocks: u16,
    pub(super) opcode: Opcode,
    pub(super) flags: CtrlFlags,
    /// Immediate data or a key, as in memory.
    pub(super) word: [u8; 4],
    /// What follows the control segment.
    pub(super) body: Vec<u8>,
}

/// Data of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Inline(Vec<u8>),
    Memory { key: u32, address: u64, length: u32 },
}

impl Qp {
    /// So many bytes of the send queue from a block on, past its end if need be.
    pub(super) fn ring_bytes(&self, index: u16, length: usize) -> Vec<u8> {
        let size = self.send.length as usize;
        let start = u64::from(u32::from(index) & (self.send_count - 1)) * 64;
        let mut bytes = vec![0; length.min(size)];
        let first = bytes.len().min(size - start as usize);
        self.send.read(start, &mut bytes[..first]);
        self.send.read(0, &mut bytes[first..]);
        bytes
    }

    /// The next request, if there is one. The error says what is wrong with it.
    pub(super) fn next_request(&self) -> Result<Option<Request>, String> {
        if self.send_count == 0 {
            return Ok(None);
        }
        let index = self.send_next;
        let posted = (self.record.be32(4) as u16).wrapping_sub(index);
        if posted == 0 {
            return Ok(None);
        }
        if u32::from(posted) > self.send_count {
            return Err(format!(
                "{posted} blocks are posted, the queue has {}",
                self.send_count
            ));
        }
        let header = Header::parse(&self.ring_bytes(index, 16), index, self.number)?;
        if header.blocks > posted {
            return Err(format!(
                "request {index} has {} blocks, {posted} are posted",
                header.blocks
            ));
        }
        Ok(Some(Request {
            index,
            blocks: header.blocks,
            opcode: header.opcode,
            flags: header.flags,
            word: header.word,
            body: self.ring_bytes(index, header.length).split_off(16),
        }))
    }
}

/// What a control segment says.
struct Header {
    length: usize,
    blocks: u16,
    opcode: Opcode,
    flags: CtrlFlags,
    word: [u8; 4],
}

impl Header {
    /// Of the request at a block of a queue pair's send queue. The error says what is wrong with it.
    fn parse(bytes: &[u8], index: u16, number: u32) -> Result<Self, String> {
        let (ctrl, _) = segment::<CtrlSeg>(bytes)?;
        let (first, second) = (ctrl.opmod_idx_opcode.get(), ctrl.qpn_ds.get());
        let named = (first >> 8) as u16;
        if named != index {
            return Err(format!("the request at block {index} says it is {named}"));
        }
        if second >> 8 != number {
            let other = second >> 8;
            return Err(format!("a request of queue pair {other:#x} is in it"));
        }
        let length = (second & 0x3f) as usize * 16;
        let flags = CtrlFlags::from_bits_retain(ctrl.fm_ce_se);
        let known = CtrlFlags::SOLICITED
            | CtrlFlags::CQ_UPDATE
            | CtrlFlags::INITIATOR_SMALL_FENCE
            | CtrlFlags::FENCE;
        if first >> 24 != 0
            || second & 0xc0 != 0
            || ctrl.signature != 0
            || ctrl.dci_stream_channel_id.get() != 0
            || !(flags - known).is_empty()
        {
            return Err(format!("reserved bits in request {index}: {bytes:02x?}"));
        }
        if length == 0 {
            return Err(format!("request {index} has no length"));
        }
        Ok(Self {
            length,
            blocks: length.div_ceil(64) as u16,
            opcode: Opcode(first as u8),
            flags,
            word: ctrl.imm.to_bytes(),
        })
    }
}

/// A segment at the start of a request's body, and the rest of that.
pub(super) fn segment<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8]), String> {
    T::read_from_prefix(body).map_err(|_| format!("the request is too short: {body:02x?}"))
}

/// The data that ends a request.
pub(super) fn pieces(mut body: &[u8]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    while !body.is_empty() {
        let (data, rest) = segment::<DataSeg>(body)?;
        let count = data.byte_count.get();
        if count & mlx5::INLINE_SEG != 0 {
            let length = (count & !mlx5::INLINE_SEG) as usize;
            let whole = (4 + length).next_multiple_of(16);
            if length == 0 || whole > body.len() {
                return Err(format!("{length} bytes inline, there are {}", body.len()));
            }
            pieces.push(Piece::Inline(body[4..4 + length].to_vec()));
            body = &body[whole..];
        } else if count == 0 {
            return Err("a segment of 0 bytes, which means 2 GiB".to_owned());
        } else {
            pieces.push(Piece::Memory {
                key: data.lkey.get(),
                address: data.addr.get(),
                length: count,
            });
            body = rest;
        }
    }
    Ok(pieces)
}

/// How many bytes there are.
pub(super) fn total(pieces: &[Piece]) -> u64 {
    let length = |piece: &Piece| match piece {
        Piece::Inline(bytes) => bytes.len() as u64,
        Piece::Memory { length, .. } => u64::from(*length),
    };
    pieces.iter().map(length).sum()
}

impl World {
    /// Collects what is to be sent.
    pub(super) fn gather(&self, pd: u32, pieces: &[Piece]) -> Result<Vec<u8>, CqeSyndrome> {
        if total(pieces) > 1 << 30 {
            return Err(CqeSyndrome::LOCAL_LENGTH_ERR);
        }
        let mut bytes = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Inline(data) => bytes.extend(data),
                Piece::Memory {
                    key,
                    address,
                    length,
                } => {
                    let none = AccessFlags::empty();
                    let at = self.local(pd, *key, *address, u64::from(*length), none);
                    let at = at.ok_or(CqeSyndrome::LOCAL_PROT_ERR)?;
                    let start = bytes.len();
                    bytes.resize(start + *length as usize, 0);
                    memory::read(at, &mut bytes[start..]);
                }
            }
        }
        Ok(bytes)
    }

    /// Puts what arrived into pieces of memory, of which there must be enough. The error is that a
    /// piece may not be written to.
    pub(super) fn scatter(&self, pd: u32, pieces: &[Piece], mut bytes: &[u8]) -> Result<(), ()> {
        for piece in pieces {
            if bytes.is_empty() {
                break;
            }
            let Piece::Memory {
                key,
                address,
                length,
            } = piece
            else {
                return Err(());
            };
            let (now, later) = bytes.split_at(bytes.len().min(*length as usize));
            let write = AccessFlags::LOCAL_WRITE;
            let at = self.local(pd, *key, *address, u64::from(*length), write);
            memory::write(at.ok_or(())?, now);
            bytes = later;
        }
        Ok(())
    }
}
