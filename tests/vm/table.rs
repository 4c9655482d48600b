//! Every kind of request with every flag, at the edges of every size, over every service: what
//! arrives is what was sent, and what cannot be is refused before it is posted.

mod line;
mod operations;

use rdmacm::{
    Data, Destination, Opcode, PostError, RemoteAddress, Segment, SendFlags, SendRequest, Work,
};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::pattern;
use line::{LARGEST, Line, Service};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    let mut all = tests![
        reliable_sends: 240 s,
        reliable_writes: 240 s,
        unreliable_sends: 240 s,
        unreliable_writes: 240 s,
        datagrams: 240 s,
    ];
    all.extend(operations::tests());
    all
}

fn reliable_sends() -> TestResult {
    run(Service::Reliable, &[Kind::Send, Kind::SendImmediate])
}

fn reliable_writes() -> TestResult {
    run(Service::Reliable, &[Kind::Write, Kind::WriteImmediate])
}

fn unreliable_sends() -> TestResult {
    run(Service::Unreliable, &[Kind::Send, Kind::SendImmediate])
}

fn unreliable_writes() -> TestResult {
    run(Service::Unreliable, &[Kind::Write, Kind::WriteImmediate])
}

fn datagrams() -> TestResult {
    run(
        Service::Datagram,
        &[Kind::Datagram, Kind::DatagramImmediate],
    )
}

/// What carries bytes to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    SendImmediate,
    Write,
    WriteImmediate,
    Datagram,
    DatagramImmediate,
}

/// The number that goes with a message; no two of its bytes are alike.
const IMMEDIATE: u32 = 0x0102_f3f4;

impl Kind {
    fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteImmediate)
    }

    fn immediate(self) -> Option<u32> {
        let has_one = matches!(
            self,
            Self::SendImmediate | Self::WriteImmediate | Self::DatagramImmediate
        );
        has_one.then_some(IMMEDIATE)
    }

    /// What the peer's receive says, if it uses one up.
    fn received(self) -> Option<Opcode> {
        match self {
            Self::Write => None,
            Self::WriteImmediate => Some(Opcode::ReceiveWriteImmediate),
            _ => Some(Opcode::Receive),
        }
    }

    fn work<'a>(
        self,
        data: Data<'a>,
        remote: RemoteAddress,
        receiver: Option<Destination<'a>>,
    ) -> Work<'a> {
        let immediate = IMMEDIATE;
        let receiver = || receiver.expect("a line for datagrams has a receiver");
        match self {
            Self::Send => Work::Send(data),
            Self::SendImmediate => Work::SendImmediate { data, immediate },
            Self::Write => Work::Write { to: remote, data },
            Self::WriteImmediate => Work::WriteImmediate {
                to: remote,
                data,
                immediate,
            },
            Self::Datagram => Work::SendDatagram {
                to: receiver(),
                data,
            },
            Self::DatagramImmediate => Work::SendDatagramImmediate {
                to: receiver(),
                data,
                immediate,
            },
        }
    }
}

/// Every set of flags.
fn flags() -> impl Iterator<Item = SendFlags> {
    (0..=SendFlags::all().bits()).filter_map(SendFlags::from_bits)
}

/// The lengths of a message's segments.
fn layouts(line: &Line) -> Vec<Vec<usize>> {
    let (inline, mtu) = (line.inline, line.mtu);
    let edges = [0, 1, inline, inline + 1, mtu - 1, mtu, mtu + 1, LARGEST];
    let mut layouts: Vec<Vec<usize>> = edges.into_iter().map(|length| vec![length]).collect();
    layouts.push(vec![]);
    layouts.push(vec![700, 0, mtu, 1]);
    layouts
}

/// Runs the kinds over a service with all flags and sizes.
fn run(service: Service, kinds: &[Kind]) -> TestResult {
    let mut line = match Line::new(service)? {
        Ok(line) => line,
        Err(reason) => return Ok(Outcome::Skip(reason)),
    };
    let mut seed = 0;
    for kind in kinds {
        for flags in flags() {
            for layout in layouts(&line) {
                seed += 1;
                let bytes = pattern(seed, layout.iter().sum());
                let segments = line.near.place(&bytes, &layout)?;
                println!("{kind:?}, {flags:?}, segments of {layout:?}");
                carry(&mut line, *kind, flags, Data::Segments(&segments), &bytes)?;
            }
            for length in [0, 1, line.inline, line.inline + 1] {
                seed += 1;
                let bytes = pattern(seed, length);
                println!("{kind:?}, {flags:?}, {length} bytes inline");
                carry(&mut line, *kind, flags, Data::Inline(&bytes), &bytes)?;
            }
        }
    }
    Ok(Outcome::Pass)
}

/// Posts one request, with a marker behind it, and checks what comes of both on either side.
fn carry(
    line: &mut Line,
    kind: Kind,
    flags: SendFlags,
    data: Data<'_>,
    bytes: &[u8],
) -> Result<(), Box<dyn std::error::Error>> {
    let target = line.far.clear(bytes.len())?;
    let expected = refusal(line, kind, data);
    if expected.is_none() {
        line.far.expect(kind.received().is_some(), bytes.len())?;
    }
    let receiver = line
        .receiver
        .as_ref()
        .map(|receiver| receiver.destination());
    let work = kind.work(data, target, receiver);
    let posted = line.near.post(SendRequest {
        wr_id: line::REQUEST,
        flags,
        work,
    });
    if let Some(expected) = expected {
        assert_eq!(posted, Err(expected));
        return Ok(());
    }
    posted?;
    line.mark()?;
    let sent = match kind.is_write() {
        true => Opcode::Write,
        false => Opcode::Send,
    };
    line.near.check_sent(sent, flags)?;
    let header = line.header();
    if let Some(opcode) = kind.received() {
        let received = line.far.received(line::REQUEST)?;
        let done = received.result()?;
        assert_eq!(
            (done.opcode(), done.immediate()),
            (opcode, kind.immediate())
        );
        assert_eq!(done.byte_len() as usize, header + bytes.len());
    }
    line.far.received(line::MARKER)?.result()?;
    let start = if kind.is_write() { 0 } else { header };
    line.far.check(kind.is_write(), start, bytes);
    Ok(())
}

/// Why a request is refused, if it is.
fn refusal(line: &Line, kind: Kind, data: Data<'_>) -> Option<PostError> {
    let (length, longest) = match data {
        Data::Segments(segments) => (segments.iter().map(Segment::len).sum(), usize::MAX),
        Data::Inline(bytes) => (bytes.len(), line.inline),
    };
    if kind.immediate().is_some() && line.is_siw {
        return Some(line::lacks("immediate data"));
    }
    if length > line.longest {
        let max = line.longest as u32;
        return Some(PostError::DatagramTooLong { length, max });
    }
    (length > longest).then_some(PostError::InlineTooLong {
        length,
        max: longest as u32,
    })
}
