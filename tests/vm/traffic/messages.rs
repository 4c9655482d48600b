//! What is sent, written or read arrives whole, and nothing else is touched.

use rdmacm::{Access, Buffer, Opcode, PostError, Result, Segment};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, Pair, Plan, assert_holds, pattern};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        sends_of_any_size,
        writes_of_any_size,
        reads_of_any_size,
        immediate_data,
        inline_up_to_the_limit,
        several_segments,
        messages_beyond_any_size_are_refused,
    ]
}

const MOST: usize = 1 << 20;

/// Bytes behind a message that must stay as they were.
const BEHIND: usize = 16;
const UNTOUCHED: [u8; BEHIND] = [0xee; BEHIND];

/// Sizes at which something begins or ends: nothing, packets, many packets.
fn sizes(end: &End) -> Result<[usize; 6]> {
    let mtu = end.id.context()?.port(end.id.port()?)?.active_mtu;
    let mtu = mtu.bytes() as usize;
    Ok([0, 1, mtu - 1, mtu, mtu + 1, MOST])
}

/// Wipes the bytes that a message is to fill, and those behind it.
fn wipe(buffer: &mut Buffer, length: usize) -> Result<()> {
    buffer.write(0, &vec![0; length])?;
    buffer.write(length, &UNTOUCHED)
}

fn assert_arrived(buffer: &Buffer, message: &[u8]) {
    assert_holds(buffer, 0, message);
    assert_holds(buffer, message.len(), &UNTOUCHED);
}

/// Takes the completion of a request and checks what it says.
fn assert_sent(end: &mut End, wr_id: u64, opcode: Opcode, length: usize) -> Result<()> {
    let sent = end.sent()?;
    let success = sent.result()?;
    assert_eq!(
        (sent.wr_id(), success.opcode(), success.byte_len() as usize),
        (wr_id, opcode, length)
    );
    assert_eq!(success.immediate(), None, "of its own message");
    Ok(())
}

/// As [`assert_sent`], for a message that came.
fn assert_received(
    end: &mut End,
    wr_id: u64,
    opcode: Opcode,
    length: usize,
    immediate: Option<u32>,
) -> Result<()> {
    let received = end.received()?;
    let success = received.result()?;
    assert_eq!(
        (
            received.wr_id(),
            success.opcode(),
            success.byte_len() as usize
        ),
        (wr_id, opcode, length)
    );
    assert_eq!(success.immediate(), immediate);
    Ok(())
}

fn sends_of_any_size() -> TestResult {
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let mut from = client.buffer(MOST)?;
    let mut to = server.buffer(MOST + BEHIND)?;
    for (number, length) in (100..).zip(sizes(&client)?) {
        let message = pattern(number, length);
        from.write(0, &message)?;
        wipe(&mut to, length)?;
        server.post_recv(number + 1, &to)?;
        let segment = from.slice(..length)?;
        client.post(|batch| batch.send(number).signaled().from(&[segment]))?;
        assert_sent(&mut client, number, Opcode::Send, length)?;
        assert_received(&mut server, number + 1, Opcode::Receive, length, None)?;
        assert_arrived(&to, &message);
    }
    Ok(Outcome::Pass)
}

fn writes_of_any_size() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let mut from = client.buffer(MOST)?;
    let mut to = server.buffer(MOST + BEHIND)?;
    for (number, length) in (200..).zip(sizes(&client)?) {
        let message = pattern(number, length);
        from.write(0, &message)?;
        wipe(&mut to, length)?;
        let (segment, remote) = (from.slice(..length)?, to.remote());
        client.post(|batch| batch.write(number, remote).signaled().from(&[segment]))?;
        assert_sent(&mut client, number, Opcode::Write, length)?;
        assert_arrived(&to, &message);
    }
    // Somewhere in the middle of the peer's memory.
    let (segment, remote) = (from.slice(..BEHIND)?, to.remote().at(1000));
    client.post(|batch| batch.write(1, remote).signaled().from(&[segment]))?;
    assert_sent(&mut client, 1, Opcode::Write, BEHIND)?;
    assert_holds(&to, 1000, &from.read_vec(0, BEHIND)?);
    Ok(Outcome::Pass)
}

fn reads_of_any_size() -> TestResult {
    let Pair { mut client, server } = Plan::default().connect()?;
    let mut from = server.buffer(MOST)?;
    let mut to = client.buffer(MOST + BEHIND)?;
    for (number, length) in (300..).zip(sizes(&client)?) {
        let message = pattern(number, length);
        from.write(0, &message)?;
        wipe(&mut to, length)?;
        let (segment, remote) = (to.slice(..length)?, from.remote());
        client.post(|batch| batch.read(number, remote).signaled().into(&[segment]))?;
        assert_sent(&mut client, number, Opcode::Read, length)?;
        assert_arrived(&to, &message);
    }
    Ok(Outcome::Pass)
}

/// F91, F120: the number comes out as it was put in, whatever the byte order on the wire.
fn immediate_data() -> TestResult {
    const NUMBER: u32 = 0x0102_0304;
    let Pair {
        mut client,
        mut server,
    } = Plan::default().connect()?;
    let from = client.buffer_of(&pattern(1, 100))?;
    let to = server.buffer(100)?;
    let (message, target) = (from.slice(..)?, to.remote());

    server.post_recv(10, &to)?;
    client.post(|batch| batch.send_immediate(1, NUMBER).signaled().from(&[message]))?;
    assert_sent(&mut client, 1, Opcode::Send, 100)?;
    assert_received(&mut server, 10, Opcode::Receive, 100, Some(NUMBER))?;
    assert_holds(&to, 0, &pattern(1, 100));

    // A write uses a receive up, but not its memory.
    let unused = server.buffer(1)?;
    for (wr_id, message) in [(2, &[message][..]), (3, &[])] {
        let length: usize = message.iter().map(Segment::len).sum();
        server.post_recv(wr_id + 10, &unused)?;
        client.post(|batch| {
            let write = batch.write_immediate(wr_id, target, !NUMBER);
            write.signaled().from(message)
        })?;
        assert_sent(&mut client, wr_id, Opcode::Write, length)?;
        let opcode = Opcode::ReceiveWriteImmediate;
        assert_received(&mut server, wr_id + 10, opcode, length, Some(!NUMBER))?;
    }
    assert_holds(&unused, 0, &[0]);
    Ok(Outcome::Pass)
}

/// F72, F73: what is granted can be used to the last byte; a byte more is refused and harms
/// neither the requests before nor those behind.
fn inline_up_to_the_limit() -> TestResult {
    let plan = Plan {
        inline: 100,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let limit = client.qp.capabilities().max_inline_data as usize;
    assert!(limit >= 100, "{limit} bytes granted");
    let to = server.buffer(limit + 1)?;
    let lengths = [0, 1, limit - 1, limit];
    for wr_id in 0..4 {
        server.post_recv(wr_id, &to)?;
    }
    client.post(|batch| {
        for (wr_id, length) in (0..).zip(lengths) {
            let mut message = pattern(wr_id, length);
            batch.send(wr_id).signaled().inline(&message)?;
            // It was copied.
            message.fill(0);
            let refused = batch.send(99).signaled().inline(&pattern(99, limit + 1));
            let (length, max) = (limit + 1, limit as u32);
            assert_eq!(refused, Err(PostError::InlineTooLong { length, max }));
        }
        Ok(())
    })?;
    for (wr_id, length) in (0..).zip(lengths) {
        assert_sent(&mut client, wr_id, Opcode::Send, length)?;
        assert_received(&mut server, wr_id, Opcode::Receive, length, None)?;
    }
    assert_holds(&to, 0, &pattern(3, limit));
    assert_holds(&to, limit, &[0]);
    Ok(Outcome::Pass)
}

/// F74: messages are put together from their segments and taken apart into those of the receive,
/// empty ones included.
fn several_segments() -> TestResult {
    let plan = Plan {
        segments: 4,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let message = pattern(5, 10 + 2000 + 33);
    let from = client.buffer_of(&message)?;
    let parts = [
        from.slice(..10)?,
        from.slice(10..2010)?,
        from.slice(10..10)?,
        from.slice(2010..)?,
    ];
    let (first, second) = (server.buffer(100)?, server.buffer(3000)?);
    let targets = [
        first.slice(..100)?,
        first.slice(50..50)?,
        second.slice(7..1000)?,
        second.slice(1000..)?,
    ];
    server.qp.recv_half().post(1, &targets)?;
    client.post(|batch| batch.send(2).signaled().from(&parts))?;
    assert_sent(&mut client, 2, Opcode::Send, message.len())?;
    assert_received(&mut server, 1, Opcode::Receive, message.len(), None)?;
    assert_holds(&first, 0, &message[..100]);
    assert_holds(&second, 0, &[0; 7]);
    assert_holds(&second, 7, &message[100..]);

    let remote = second.remote();
    client.post(|batch| batch.write(3, remote).signaled().from(&parts))?;
    assert_sent(&mut client, 3, Opcode::Write, message.len())?;
    assert_holds(&second, 0, &message);

    let max = client.qp.capabilities().max_send_sge;
    let too_many = vec![parts[0]; max as usize + 1];
    let segments = too_many.len();
    let refused = client.post(|batch| batch.send(4).from(&too_many));
    assert_eq!(refused, Err(PostError::TooManySegments { segments, max }));
    Ok(Outcome::Pass)
}

/// F73: lengths are added up with room enough, not modulo 2^32.
fn messages_beyond_any_size_are_refused() -> TestResult {
    let plan = Plan {
        segments: 2,
        ..Plan::default()
    };
    let mut client = plan.connect()?.client;
    let buffer = client.pd.alloc(1, Access::LOCAL_WRITE)?;
    // SAFETY: no request with this segment is ever posted: all of them are refused.
    let endless = unsafe { Segment::from_raw(0x1000, u32::MAX, 0) };
    let segments = [endless, buffer.slice(..)?];
    let refused = client.post(|batch| batch.send(1).from(&segments));
    assert_eq!(refused, Err(PostError::MessageTooLong));
    let refused = client.qp.recv_half().post(1, &segments);
    assert_eq!(refused, Err(PostError::MessageTooLong));
    Ok(Outcome::Pass)
}
