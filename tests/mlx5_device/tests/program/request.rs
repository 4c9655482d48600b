//! Requests, byte by byte.

use rdmacm_kernel_abi::mlx5;
use zerocopy::{Immutable, IntoBytes};

use super::Qp;

/// A request under construction.
#[derive(Clone)]
pub struct Request {
    pub opcode: u8,
    pub flags: u8,
    pub word: u32,
    pub body: Vec<u8>,
    pub change: fn(&mut Vec<u8>),
}

pub const SIGNALED: u8 = 8;
pub const SOLICITED: u8 = 2;

impl Request {
    pub fn new(opcode: mlx5::Opcode) -> Self {
        Self {
            opcode: opcode.0,
            flags: SIGNALED,
            word: 0,
            body: Vec::new(),
            change: |_| {},
        }
    }

    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    pub fn word(mut self, word: u32) -> Self {
        self.word = word;
        self
    }

    pub fn remote(mut self, address: u64, key: u32) -> Self {
        let segment = mlx5::RaddrSeg {
            raddr: address.into(),
            rkey: key.into(),
            reserved: 0.into(),
        };
        self.body.extend(segment.as_bytes());
        self
    }

    pub fn data(mut self, length: u32, key: u32, address: u64) -> Self {
        self.body.extend(data_segment(length, key, address));
        self
    }

    pub fn inline(mut self, bytes: &[u8]) -> Self {
        self.body
            .extend((bytes.len() as u32 | mlx5::INLINE_SEG).to_be_bytes());
        self.body.extend(bytes);
        self.body.resize(self.body.len().next_multiple_of(16), 0);
        self
    }

    pub fn segment<T: IntoBytes + Immutable>(mut self, segment: &T) -> Self {
        self.body.extend(segment.as_bytes());
        self
    }

    /// The bytes as they will be in the queue, changed at last.
    pub fn change(mut self, change: fn(&mut Vec<u8>)) -> Self {
        self.change = change;
        self
    }

    pub fn bytes(self, qp: &Qp) -> Vec<u8> {
        let length = (16 + self.body.len()) as u32 / 16;
        let mut bytes = Vec::new();
        bytes.extend((u32::from(qp.posted) << 8 | u32::from(self.opcode)).to_be_bytes());
        bytes.extend((qp.number << 8 | length).to_be_bytes());
        bytes.extend([0, 0, 0, self.flags]);
        bytes.extend(self.word.to_be_bytes());
        bytes.extend(self.body);
        (self.change)(&mut bytes);
        bytes
    }
}

/// The bytes of a receive with room for so many segments.
pub fn receive(segments: &[(u32, u32, u64)], room: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (length, key, address) in segments {
        bytes.extend(data_segment(*length, *key, *address));
    }
    if segments.len() < room {
        bytes.extend(data_segment(0, 0x100, 0));
    }
    bytes
}

pub fn data_segment(length: u32, key: u32, address: u64) -> Vec<u8> {
    let segment = mlx5::DataSeg {
        byte_count: length.into(),
        lkey: key.into(),
        addr: address.into(),
    };
    segment.as_bytes().to_vec()
}
