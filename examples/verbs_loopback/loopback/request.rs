//! What a round consists of: requests, receives, and the messages that come out of them.

use std::collections::VecDeque;
use std::ops::Range;

use rdmacm::{Opcode, SendFlags};

/// A part of a side's buffer, in bytes from its beginning.
pub type Place = Range<usize>;

/// Where a message comes from.
#[derive(Debug, Clone)]
pub enum Data {
    Inline(Vec<u8>),
    Segments(Vec<Place>),
}

impl Data {
    fn places(&self) -> Vec<Place> {
        match self {
            Self::Inline(_) => Vec::new(),
            Self::Segments(places) => places.clone(),
        }
    }
}

/// A place at the peer.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub at: usize,
    /// The peer's window whose key is used, instead of that of the buffer.
    pub window: Option<usize>,
}

/// What a request does.
#[derive(Debug, Clone)]
pub enum Action {
    Send {
        data: Data,
        immediate: Option<u32>,
        /// The peer's window that it closes.
        closes: Option<usize>,
    },
    Write {
        to: Target,
        data: Data,
        immediate: Option<u32>,
    },
    Read {
        from: Target,
        into: Vec<Place>,
    },
    CompareSwap {
        at: Target,
        compare: u64,
        swap: u64,
        into: Place,
    },
    FetchAdd {
        at: Target,
        add: u64,
        into: Place,
    },
    AtomicWrite {
        to: Target,
        bytes: [u8; 8],
    },
    Flush {
        at: usize,
        length: u32,
    },
    /// Opens an own window.
    Bind {
        window: usize,
        place: Place,
    },
    /// Closes an own window.
    Invalidate {
        window: usize,
    },
}

/// A request of one side.
#[derive(Debug, Clone)]
pub struct Request {
    pub flags: SendFlags,
    pub action: Action,
    /// Bytes that it moves.
    pub length: usize,
}

impl Request {
    /// What the report calls it, and what its completion does.
    pub fn kind(&self) -> (&'static str, Opcode) {
        match &self.action {
            Action::Send {
                closes: Some(_), ..
            } => ("send with invalidate", Opcode::Send),
            Action::Send {
                immediate: Some(_), ..
            } => ("send with immediate", Opcode::Send),
            Action::Send { .. } => ("send", Opcode::Send),
            Action::Write {
                immediate: Some(_), ..
            } => ("write with immediate", Opcode::Write),
            Action::Write { .. } => ("write", Opcode::Write),
            Action::Read { .. } => ("read", Opcode::Read),
            Action::CompareSwap { .. } => ("compare and swap", Opcode::CompareSwap),
            Action::FetchAdd { .. } => ("fetch and add", Opcode::FetchAdd),
            Action::AtomicWrite { .. } => ("atomic write", Opcode::AtomicWrite),
            Action::Flush { .. } => ("flush", Opcode::Flush),
            Action::Bind { .. } => ("bind window", Opcode::BindWindow),
            Action::Invalidate { .. } => ("invalidate window", Opcode::LocalInvalidate),
        }
    }

    /// The places that it uses in the memory of its own side, and of its peer.
    pub fn places(&self) -> [Vec<Place>; 2] {
        let there = |target: &Target| -> Vec<Place> {
            let place = target.at..target.at + self.length;
            Vec::from([place])
        };
        match &self.action {
            Action::Send { data, .. } => [data.places(), Vec::new()],
            Action::Write { to, data, .. } => [data.places(), there(to)],
            Action::Read { from, into } => [into.clone(), there(from)],
            Action::CompareSwap { at, into, .. } | Action::FetchAdd { at, into, .. } => {
                [vec![into.clone()], there(at)]
            }
            Action::AtomicWrite { to, .. } => [Vec::new(), there(to)],
            _ => Default::default(),
        }
    }

    /// Whether it uses up a receive of the peer's.
    pub fn is_message(&self) -> bool {
        match &self.action {
            Action::Send { .. } => true,
            Action::Write { immediate, .. } => immediate.is_some(),
            _ => false,
        }
    }
}

/// A receive that one side's memory is for.
#[derive(Debug, Clone)]
pub struct Receive {
    pub side: usize,
    pub places: Vec<Place>,
}

/// What a side is to hear of a request of its peer.
#[derive(Debug, Clone)]
pub struct Message {
    /// Nothing where the bytes went elsewhere.
    pub bytes: Vec<u8>,
    /// What the completion says.
    pub length: usize,
    pub opcode: Opcode,
    pub immediate: Option<u32>,
    /// The window that it closed.
    pub closed: Option<usize>,
}

/// What of a round uses a byte of a side's memory, in words.
pub fn users(
    requests: &[Vec<Request>; 2],
    receives: &[Vec<Receive>; 2],
    side: usize,
    at: usize,
) -> Vec<String> {
    let has = |places: &[Place]| places.iter().any(|place| place.contains(&at));
    let mut users = Vec::new();
    for (whose, requests) in requests.iter().enumerate() {
        for (index, request) in requests.iter().enumerate() {
            let [own, peers] = request.places();
            let uses = if whose == side {
                has(&own)
            } else {
                has(&peers)
            };
            if uses {
                let (kind, _) = request.kind();
                users.push(format!(
                    "request {index} of side {whose}: {kind} of {} bytes",
                    request.length
                ));
            }
        }
    }
    let receives = receives.iter().flatten();
    for receive in receives.filter(|receive| receive.side == side && has(&receive.places)) {
        users.push(format!(
            "a receive of side {side}, into {:?}",
            receive.places
        ));
    }
    users
}

/// Requests that are under way together, and all that goes with them.
#[derive(Debug, Default)]
pub struct Round {
    /// Bytes that the program puts into a side's memory beforehand.
    pub fills: Vec<(usize, usize, Vec<u8>)>,
    /// By the side whose queue they go to.
    pub receives: [Vec<Receive>; 2],
    pub requests: [Vec<Request>; 2],
    /// What each side is to hear, in order.
    pub messages: [VecDeque<Message>; 2],
}
