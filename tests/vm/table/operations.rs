//! Requests that bring something back, or do something else than carrying bytes.

use std::error::Error;

use rdmacm::{
    Access, Buffer, Data, Destination, FlushPlacement, Mw, MwType, Opcode, PostError, SendFlags,
    SendRequest, Work,
};

use super::line::{self, Line, Service, lacks};
use super::{flags, layouts};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{assert_holds, pattern};
use crate::verbs::{QKEY, own_path};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        reads: 240 s,
        atomics,
        atomic_writes,
        flushes,
        windows,
        invalidating_sends: 240 s,
        what_a_service_does_not_have,
    ]
}

type Checked = Result<(), Box<dyn Error>>;

fn reliable() -> Result<Line, Box<dyn Error>> {
    Ok(Line::new(Service::Reliable)??)
}

/// Posts a request that the peer does not notice, with a marker behind it.
fn carry(line: &mut Line, flags: SendFlags, opcode: Opcode, work: Work<'_>) -> Checked {
    line.far.expect(false, 0)?;
    line.near.post(SendRequest {
        wr_id: line::REQUEST,
        flags,
        work,
    })?;
    line.mark()?;
    line.near.check_sent(opcode, flags)?;
    line.far.received(line::MARKER)?.result()?;
    Ok(())
}

/// Posts a request that cannot be.
fn refused(line: &mut Line, flags: SendFlags, work: Work<'_>, expected: PostError) {
    let posted = line.near.post(SendRequest {
        wr_id: line::REQUEST,
        flags,
        work,
    });
    assert_eq!(posted, Err(expected), "{flags:?}");
}

fn reads() -> TestResult {
    let mut line = reliable()?;
    let mut seed = 100;
    for flags in flags() {
        for layout in layouts(&line) {
            seed += 1;
            println!("{flags:?}, segments of {layout:?}");
            let bytes = pattern(seed, layout.iter().sum());
            line.far.target.write(0, &bytes)?;
            let from = line.far.target.remote();
            let blank = vec![0; bytes.len() + 8];
            let into = line.near.place(&blank, &[&layout[..], &[8]].concat())?;
            let into = &into[..layout.len()];
            let work = Work::Read { from, into };
            if line.is_siw && flags.contains(SendFlags::FENCE) {
                refused(&mut line, flags, work, lacks("fenced reads"));
                continue;
            }
            if line.is_siw && layout.len() > 1 {
                let segments = layout.len();
                let expected = PostError::TooManySegments { segments, max: 1 };
                refused(&mut line, flags, work, expected);
                continue;
            }
            carry(&mut line, flags, Opcode::Read, work)?;
            assert_holds(&line.near.outbox, 0, &bytes);
            assert_holds(&line.near.outbox, bytes.len(), &[0; 8]);
        }
    }
    Ok(Outcome::Pass)
}

fn atomics() -> TestResult {
    let mut line = reliable()?;
    for flags in flags() {
        for (before, operand) in [(5u64, 7u64), (u64::MAX, 2), (0, 0)] {
            line.far.target.write(64, &before.to_ne_bytes())?;
            let at = line.far.target.remote().at(64);
            let into = line.near.place(&[0; 8], &[8])?[0];
            let add = Work::FetchAdd {
                at,
                add: operand,
                into,
            };
            if line.is_siw {
                refused(&mut line, flags, add, lacks("atomics"));
                continue;
            }
            carry(&mut line, flags, Opcode::FetchAdd, add)?;
            let sum = before.wrapping_add(operand);
            assert_holds(&line.far.target, 64, &sum.to_ne_bytes());
            assert_holds(&line.near.outbox, 0, &before.to_ne_bytes());
            let swap = Work::CompareSwap {
                at,
                compare: sum,
                swap: !sum,
                into,
            };
            carry(&mut line, flags, Opcode::CompareSwap, swap)?;
            assert_holds(&line.far.target, 64, &(!sum).to_ne_bytes());
            assert_holds(&line.near.outbox, 0, &sum.to_ne_bytes());
        }
    }
    Ok(Outcome::Pass)
}

fn atomic_writes() -> TestResult {
    let mut line = reliable()?;
    let has_it = environment::context().attr()?.has_atomic_write();
    for flags in flags() {
        let to = line.far.target.remote().at(8);
        let bytes = *b"8 bytes!";
        let work = Work::AtomicWrite { to, bytes };
        if !has_it {
            refused(&mut line, flags, work, PostError::NoAtomicWrite);
            continue;
        }
        line.far.target.write(8, &[0; 8])?;
        carry(&mut line, flags, Opcode::AtomicWrite, work)?;
        assert_holds(&line.far.target, 8, &bytes);
    }
    Ok(match has_it {
        true => Outcome::Pass,
        false => environment::skip("no atomic write: refused"),
    })
}

fn flushes() -> TestResult {
    use FlushPlacement::{Global, GlobalAndPersistent, Persistent};
    let mut line = reliable()?;
    let has_it = environment::context().attr()?.has_flush_global();
    let access = line::ANY_ACCESS | Access::FLUSH_GLOBAL;
    let memory = has_it
        .then(|| line.far.pd.alloc(8192, access))
        .transpose()?;
    let at = memory.as_ref().unwrap_or(&line.far.target).remote();
    for flags in flags() {
        // The guest has no persistent memory, whose regions alone take the others.
        let placements: &[FlushPlacement] = match has_it {
            true => &[Global],
            false => &[Global, Persistent, GlobalAndPersistent],
        };
        for placement in placements.iter().copied() {
            for length in [Some(0), Some(1), Some(8192), None] {
                let work = Work::Flush {
                    at,
                    length,
                    placement,
                };
                match has_it {
                    true => carry(&mut line, flags, Opcode::Flush, work)?,
                    false => refused(&mut line, flags, work, PostError::NoFlush),
                }
            }
        }
    }
    Ok(match has_it {
        true => Outcome::Pass,
        false => environment::skip("no flush: refused"),
    })
}

/// Windows are opened and closed with every flag, over every service that has them.
fn windows() -> TestResult {
    for service in [Service::Reliable, Service::Unreliable] {
        let mut line = match Line::new(service)? {
            Ok(line) => line,
            Err(reason) => return Ok(Outcome::Skip(reason)),
        };
        if line.is_siw {
            return Ok(Outcome::Skip("siw has no memory windows".into()));
        }
        let access = line::ANY_ACCESS | Access::MW_BIND;
        let region = line.near.pd.alloc(8192, access)?;
        for flags in flags() {
            for mw_type in [MwType::One, MwType::Two] {
                open_and_close(&mut line, flags, service, mw_type, &region)?;
            }
        }
    }
    Ok(Outcome::Pass)
}

/// An unreliable connection opens windows, but closes none.
fn open_and_close(
    line: &mut Line,
    flags: SendFlags,
    service: Service,
    mw_type: MwType,
    region: &Buffer,
) -> Checked {
    let mut window = line.near.pd.alloc_mw(mw_type)?;
    for range in [0..1, 17..8192, 0..8192] {
        let opening = Work::BindWindow {
            window: &mut window,
            region: region.as_ref(),
            range,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        };
        carry(line, flags, Opcode::BindWindow, opening)?;
        match (mw_type, service) {
            (MwType::Two, Service::Reliable) => {
                let closing = Work::Invalidate { window: &window };
                carry(line, flags, Opcode::LocalInvalidate, closing)?;
            }
            // What is open is not opened.
            (MwType::Two, _) => window = line.near.pd.alloc_mw(mw_type)?,
            (MwType::One, _) => {}
        }
    }
    Ok(())
}

/// A message takes a key of the peer's away: that of a window, and on siw that of a region.
fn invalidating_sends() -> TestResult {
    let mut line = reliable()?;
    let region = line
        .far
        .pd
        .alloc(4096, line::ANY_ACCESS | line.window_access())?;
    let mut window = match line.is_siw {
        true => None,
        false => Some(line.far.pd.alloc_mw(MwType::Two)?),
    };
    let mut seed = 500;
    for flags in flags() {
        for layout in layouts(&line) {
            seed += 1;
            println!("{flags:?}, segments of {layout:?}");
            let bytes = pattern(seed, layout.iter().sum());
            let segments = line.near.place(&bytes, &layout)?;
            let data = Data::Segments(&segments);
            invalidate(&mut line, &region, window.as_mut(), flags, data, &bytes)?;
        }
        for length in [0, 1, line.inline, line.inline + 1] {
            seed += 1;
            println!("{flags:?}, {length} bytes inline");
            let bytes = pattern(seed, length);
            let data = Data::Inline(&bytes);
            invalidate(&mut line, &region, window.as_mut(), flags, data, &bytes)?;
        }
    }
    Ok(Outcome::Pass)
}

/// Sends one message that takes a key away, or checks that it is refused.
fn invalidate(
    line: &mut Line,
    region: &Buffer,
    window: Option<&mut Mw>,
    flags: SendFlags,
    data: Data<'_>,
    bytes: &[u8],
) -> Checked {
    let expected = match data {
        Data::Inline(_) if line.is_siw => Some(lacks("inline sends with invalidation")),
        Data::Inline(_) if bytes.len() > line.inline => Some(PostError::InlineTooLong {
            length: bytes.len(),
            max: line.inline as u32,
        }),
        _ => None,
    };
    if let Some(expected) = expected {
        let rkey = region.remote().rkey;
        let work = Work::SendInvalidate { data, rkey };
        refused(line, flags, work, expected);
        return Ok(());
    }
    let expendable = line.far.pd.alloc(64, line::ANY_ACCESS)?;
    let rkey = match window {
        Some(window) => line.open_at_the_peer(window, region)?,
        None => expendable.remote().rkey,
    };
    line.far.clear(bytes.len())?;
    line.far.expect(true, bytes.len())?;
    line.near.post(SendRequest {
        wr_id: line::REQUEST,
        flags,
        work: Work::SendInvalidate { data, rkey },
    })?;
    line.mark()?;
    line.near.check_sent(Opcode::Send, flags)?;
    let received = line.far.received(line::REQUEST)?;
    // siw does not tell a program which.
    let told = (!line.is_siw).then_some(rkey);
    assert_eq!(received.result()?.invalidated(), told);
    line.far.received(line::MARKER)?.result()?;
    line.far.check(false, 0, bytes);
    Ok(())
}

/// What a service does not carry out is refused before it is posted.
fn what_a_service_does_not_have() -> TestResult {
    for service in [Service::Unreliable, Service::Datagram, Service::Reliable] {
        let mut line = match Line::new(service)? {
            Ok(line) => line,
            Err(reason) => return Ok(Outcome::Skip(reason)),
        };
        for flags in flags() {
            refuse_all(&mut line, service, flags)?;
        }
        // Nothing of it is in the queue.
        line.far.expect(false, 0)?;
        line.mark()?;
        line.near.check_sent(Opcode::Send, SendFlags::empty())?;
        line.far.received(line::MARKER)?.result()?;
    }
    Ok(Outcome::Pass)
}

/// Tries each kind of request that the service does not have.
fn refuse_all(line: &mut Line, service: Service, flags: SendFlags) -> Checked {
    let (at, rkey) = (line.far.target.remote(), line.far.target.remote().rkey);
    let into = line.near.place(&[0; 8], &[8])?;
    let qp_type = service.qp_type();
    let pd = line.near.pd.clone();
    let handle = pd.address_handle(&own_path(pd.context())?)?;
    let region = pd.alloc(64, Access::LOCAL_WRITE | Access::MW_BIND)?;
    let (mut opening, closing) = (pd.alloc_mw(MwType::Two)?, pd.alloc_mw(MwType::Two)?);
    let to = Destination {
        handle: &handle,
        qp_num: line.far.qp.number(),
        qkey: QKEY,
    };
    let (data, immediate) = (Data::Segments(&[]), 1);
    let datagrams = [
        Work::SendDatagram { to, data },
        Work::SendDatagramImmediate {
            to,
            data,
            immediate,
        },
    ];
    let reliable_only = [
        Work::Read {
            from: at,
            into: &into,
        },
        Work::CompareSwap {
            at,
            compare: 0,
            swap: 1,
            into: into[0],
        },
        Work::FetchAdd {
            at,
            add: 1,
            into: into[0],
        },
        Work::AtomicWrite {
            to: at,
            bytes: [0; 8],
        },
        Work::Flush {
            at,
            length: None,
            placement: FlushPlacement::Global,
        },
        Work::SendInvalidate { data, rkey },
        Work::Invalidate { window: &closing },
    ];
    let connected_only = [
        Work::Send(data),
        Work::SendImmediate { data, immediate },
        Work::Write { to: at, data },
        Work::WriteImmediate {
            to: at,
            data,
            immediate,
        },
        Work::BindWindow {
            window: &mut opening,
            region: region.as_ref(),
            range: 0..8,
            access: Access::REMOTE_READ,
        },
    ];
    let works: Vec<Work<'_>> = match service {
        Service::Reliable => datagrams.into(),
        Service::Unreliable => datagrams.into_iter().chain(reliable_only).collect(),
        Service::Datagram => reliable_only.into_iter().chain(connected_only).collect(),
    };
    for (number, work) in works.into_iter().enumerate() {
        println!("{service:?}, {flags:?}, number {number}");
        refused(line, flags, work, PostError::WrongQpType { qp_type });
    }
    Ok(())
}
