//! Memory windows: what peers can do through them, and until when.

use std::ops::Range;
use std::time::{Duration, Instant};

use rdmacm::{
    Access, Buffer, CompletionStatus, Cq, ErrorKind, Mw, MwType, Opcode, Pd, PostError, Qp, QpAttr,
    QpType, RemoteAddress, Result, SendHalf,
};

use super::{connect_for, next_success, own_path, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::mlx5;
use crate::pair::{ANY_ACCESS, Pair, Plan, assert_holds, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_window_of_type_2_opens_a_range_to_the_peer,
        a_window_of_type_1_has_another_key_after_each_bind,
        a_window_of_type_2_is_open_to_one_queue_pair,
        what_a_window_does_not_allow_is_refused,
        an_invalidated_window_is_closed,
        the_peer_closes_a_window_with_its_message,
        a_key_that_is_no_windows_cannot_be_invalidated_by_the_peer,
        a_window_keeps_its_region,
        a_queue_pair_takes_the_windows_that_are_open_through_it,
        rxe_keeps_peers_to_the_region_of_a_window_and_not_to_its_range,
        windows_over_a_connection_of_the_connection_manager,
        an_unreliable_connection_binds_windows,
        binds_that_no_device_takes_are_refused_and_the_queue_pair_goes_on,
        a_window_that_no_bind_opened_is_not_closed,
    ]
}

/// A queue pair with what goes with it.
struct Side {
    qp: Qp,
    cq: Cq,
    buffer: Buffer,
}

/// A queue pair that uses memory, and one whose side has the memory and the windows.
struct Two {
    near: Side,
    far: Side,
}

const LENGTH: usize = 16384;

impl Two {
    fn new(pd: &Pd) -> Result<Self> {
        Self::of_type(pd, QpType::Rc)
    }

    fn of_type(pd: &Pd, qp_type: QpType) -> Result<Self> {
        let side = || -> Result<Side> {
            let cq = queue(pd.context(), 64)?;
            let attr = QpAttr::new(pd).qp_type(qp_type).max_inline_data(16);
            let qp = pd.create_qp(&attr.send_cq(&cq).recv_cq(&cq))?;
            let buffer = pd.alloc(LENGTH, Access::LOCAL_WRITE | Access::MW_BIND)?;
            Ok(Side { qp, cq, buffer })
        };
        let (near, far) = (side()?, side()?);
        let path = own_path(pd.context())?;
        let access = ANY_ACCESS - Access::LOCAL_WRITE;
        connect_for(&near.qp, &far.qp, path, access)?;
        connect_for(&far.qp, &near.qp, path, access)?;
        Ok(Self { near, far })
    }

    /// The near side writes so many bytes.
    fn write(&mut self, to: RemoteAddress, bytes: &[u8]) -> Result<CompletionStatus> {
        let mut batch = self.near.qp.send_half().batch();
        batch.write(1, to).signaled().inline(bytes)?;
        batch.submit()?;
        self.near.status()
    }

    /// The near side reads so many bytes to the start of its memory.
    fn read(&mut self, from: RemoteAddress, length: usize) -> Result<CompletionStatus> {
        let into = self.near.buffer.slice(..length)?;
        let mut batch = self.near.qp.send_half().batch();
        batch.read(1, from).signaled().into(&[into])?;
        batch.submit()?;
        self.near.status()
    }
}

impl Side {
    /// How the next request ended.
    fn status(&mut self) -> Result<CompletionStatus> {
        let ended = next_completion(&mut self.cq)?.result().map(drop);
        Ok(ended.map_or_else(|failure| failure.status, |()| CompletionStatus::Success))
    }

    /// Opens a window for a part of the memory, and waits until it is open.
    fn open(
        &mut self,
        window: &mut Mw,
        range: Range<usize>,
        access: Access,
    ) -> Result<RemoteAddress> {
        let mut batch = self.qp.send_half().batch();
        let bind = batch.bind_window(7, window).signaled();
        let opened = bind.to(&self.buffer, range, access)?;
        batch.submit()?;
        let done = next_success(&mut self.cq)?;
        assert_eq!(
            (done.wr_id(), done.result()?.opcode()),
            (7, Opcode::BindWindow)
        );
        assert_eq!(window.rkey(), opened.rkey);
        Ok(opened)
    }

    /// Closes a window of type 2.
    fn close(&mut self, window: &Mw) -> Result<()> {
        let mut batch = self.qp.send_half().batch();
        batch.invalidate(8, window).signaled().add()?;
        batch.submit()?;
        let done = next_success(&mut self.cq)?;
        assert_eq!(done.result()?.opcode(), Opcode::LocalInvalidate);
        Ok(())
    }
}

fn a_window_of_type_2_opens_a_range_to_the_peer() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut two = Two::new(&pd)?;
    let mut window = pd.alloc_mw(MwType::Two)?;
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    for range in [0..1, 4095..4097, 100..LENGTH, 0..LENGTH] {
        two.far.buffer.write(0, &[0xee; LENGTH])?;
        let last = RemoteAddress {
            address: 0,
            rkey: window.rkey(),
        };
        let opened = two.far.open(&mut window, range.clone(), access)?;
        assert_ne!(opened.rkey, last.rkey);
        assert_eq!(
            opened.address,
            two.far.buffer.remote().address + range.start as u64
        );
        let end = opened.at(range.len() as u64 - 1);
        assert_eq!(two.write(opened, b"a")?, CompletionStatus::Success);
        assert_eq!(two.write(end, b"b")?, CompletionStatus::Success);
        assert_holds(&two.far.buffer, range.end - 1, b"b");
        assert_eq!(two.read(opened, range.len())?, CompletionStatus::Success);
        let there = two.far.buffer.read_vec(range.start, range.len())?;
        assert_holds(&two.near.buffer, 0, &there);
        two.far.close(&window)?;
    }
    // The last byte of the key is the program's.
    for byte in [0, 0x5a, 0xff] {
        let mut batch = two.far.qp.send_half().batch();
        let bind = batch.bind_window(1, &mut window).key_byte(byte);
        let opened = bind.to(&two.far.buffer, 8..16, Access::REMOTE_WRITE)?;
        batch.submit()?;
        assert_eq!(opened.rkey & 0xff, u32::from(byte));
        // Of the same queue pair a bind is not awaited: what is announced later comes later. Here
        // nothing is announced, so the invalidation is waited for.
        two.far.close(&window)?;
        let opened = two.far.open(&mut window, 8..16, Access::REMOTE_WRITE)?;
        assert_eq!(opened.rkey & 0xff, u32::from(byte.wrapping_add(1)));
        assert_eq!(two.write(opened, b"12345678")?, CompletionStatus::Success);
        two.far.close(&window)?;
    }
    Ok(Outcome::Pass)
}

fn a_window_of_type_1_has_another_key_after_each_bind() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut window = pd.alloc_mw(MwType::One)?;
    let mut two = Two::new(&pd)?;
    let first = two.far.open(&mut window, 0..8, Access::REMOTE_WRITE)?;
    assert_eq!(two.write(first, b"first")?, CompletionStatus::Success);
    let second = two.far.open(&mut window, 8..16, Access::REMOTE_WRITE)?;
    assert_eq!(second.rkey & 0xff, (first.rkey + 1) & 0xff);
    assert_eq!(two.write(second, b"second")?, CompletionStatus::Success);
    assert_holds(&two.far.buffer, 0, b"first\0\0\0second\0\0");
    // The region behind the old key is closed.
    assert_eq!(two.write(first, b"x")?, CompletionStatus::RemoteAccess);

    // Any queue pair of the domain can be used, also one that came later; until it is unbound.
    let mut other = Two::new(&pd)?;
    let to = second;
    assert_eq!(other.write(to, b"other")?, CompletionStatus::Success);
    let mut batch = other.far.qp.send_half().batch();
    batch.bind_window(9, &mut window).signaled().unbind()?;
    batch.submit()?;
    assert_eq!(next_success(&mut other.far.cq)?.wr_id(), 9);
    for key in [to.rkey, window.rkey()] {
        let mut other = Two::new(&pd)?;
        let to = RemoteAddress { rkey: key, ..to };
        assert_eq!(other.write(to, b"x")?, CompletionStatus::RemoteAccess);
    }
    assert_holds(&two.far.buffer, 0, b"first\0\0\0otherd\0\0");
    Ok(Outcome::Pass)
}

fn a_window_of_type_2_is_open_to_one_queue_pair() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut window = pd.alloc_mw(MwType::Two)?;
    let (mut two, mut others) = (Two::new(&pd)?, Two::new(&pd)?);
    let opened = two.far.open(&mut window, 0..8, Access::REMOTE_WRITE)?;
    assert_eq!(others.write(opened, b"x")?, CompletionStatus::RemoteAccess);
    assert_eq!(two.write(opened, b"y")?, CompletionStatus::Success);
    assert_holds(&two.far.buffer, 0, b"y\0");
    Ok(Outcome::Pass)
}

/// Each in windows of both types, and with queue pairs of its own, which the refusal ends.
fn what_a_window_does_not_allow_is_refused() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    type Attempt = fn(&mut Two, RemoteAddress) -> Result<CompletionStatus>;
    let writable = Access::REMOTE_WRITE;
    // rxe keeps peers to the region of a window, not to its range.
    let attempts: [(Access, Attempt); 7] = [
        (writable, |two, window| {
            two.write(window.at(LENGTH as u64 - 8), b"x")
        }),
        (writable, |two, window| {
            two.write(window.at(LENGTH as u64 - 9), b"xy")
        }),
        (writable, |two, window| {
            two.write(window.at(9u64.wrapping_neg()), b"x")
        }),
        (writable, |two, window| {
            let rkey = window.rkey ^ 1;
            two.write(RemoteAddress { rkey, ..window }, b"x")
        }),
        (writable, |two, window| two.read(window, 1)),
        (Access::REMOTE_READ, |two, window| two.write(window, b"x")),
        (Access::REMOTE_READ, |two, window| {
            two.read(window.at(LENGTH as u64 - 16), 9)
        }),
    ];
    for mw_type in [MwType::One, MwType::Two] {
        for (number, (access, attempt)) in attempts.iter().enumerate() {
            let mut window = pd.alloc_mw(mw_type)?;
            let mut two = Two::new(&pd)?;
            let opened = two.far.open(&mut window, 8..16, *access)?;
            let status = attempt(&mut two, opened)?;
            assert_eq!(
                status,
                CompletionStatus::RemoteAccess,
                "{mw_type:?}, {number}"
            );
            assert_holds(&two.far.buffer, 0, &[0; 32]);
        }
        // Before it was bound at all.
        let window = pd.alloc_mw(mw_type)?;
        let mut two = Two::new(&pd)?;
        let to = RemoteAddress {
            rkey: window.rkey(),
            ..two.far.buffer.remote()
        };
        assert_eq!(two.write(to, b"x")?, CompletionStatus::RemoteAccess);
    }
    Ok(Outcome::Pass)
}

fn an_invalidated_window_is_closed() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut window = pd.alloc_mw(MwType::Two)?;
    let mut two = Two::new(&pd)?;
    let opened = two.far.open(&mut window, 0..8, Access::REMOTE_WRITE)?;
    assert_eq!(two.write(opened, b"open")?, CompletionStatus::Success);
    two.far.close(&window)?;
    assert_eq!(two.write(opened, b"shut")?, CompletionStatus::RemoteAccess);
    assert_holds(&two.far.buffer, 0, b"open");
    // It can be opened again, through another queue pair.
    let mut two = Two::new(&pd)?;
    let opened = two.far.open(&mut window, 0..8, Access::REMOTE_WRITE)?;
    assert_eq!(two.write(opened, b"again")?, CompletionStatus::Success);
    Ok(Outcome::Pass)
}

fn the_peer_closes_a_window_with_its_message() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut window = pd.alloc_mw(MwType::Two)?;
    let mut two = Two::new(&pd)?;
    for inline in [false, true] {
        let opened = two.far.open(&mut window, 0..64, Access::REMOTE_WRITE)?;
        let inbox = two.far.buffer.slice(64..128)?;
        two.far.qp.recv_half().post(5, &[inbox])?;
        let done = two.near.buffer.slice(..4)?;
        two.near.buffer.write(0, b"done")?;
        let mut batch = two.near.qp.send_half().batch();
        batch.write(1, opened).inline(b"result")?;
        let message = batch.send_invalidate(2, opened.rkey).signaled().solicited();
        match inline {
            true => message.inline(b"done")?,
            false => message.from(&[done])?,
        }
        batch.submit()?;
        let received = next_success(&mut two.far.cq)?;
        let result = received.result()?;
        assert_eq!((received.wr_id(), result.opcode()), (5, Opcode::Receive));
        assert_eq!(result.invalidated(), Some(opened.rkey));
        assert_eq!((result.immediate(), result.byte_len()), (None, 4));
        assert_holds(&two.far.buffer, 0, b"result");
        assert_holds(&two.far.buffer, 64, b"done");
        let sent = next_success(&mut two.near.cq)?;
        assert_eq!(sent.result()?.opcode(), Opcode::Send);
        assert_eq!(sent.result()?.invalidated(), None, "that of a receive only");
    }
    let to = RemoteAddress {
        rkey: window.rkey(),
        ..two.far.buffer.remote()
    };
    assert_eq!(two.write(to, b"late")?, CompletionStatus::RemoteAccess);
    assert_holds(&two.far.buffer, 0, b"result");
    Ok(Outcome::Pass)
}

fn a_key_that_is_no_windows_cannot_be_invalidated_by_the_peer() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let memory = pd.alloc(64, ANY_ACCESS | Access::MW_BIND)?;
    let mut of_type_1 = pd.alloc_mw(MwType::One)?;
    let mut two = Two::new(&pd)?;
    let opened = two.far.open(&mut of_type_1, 0..8, Access::REMOTE_WRITE)?;
    for rkey in [memory.remote().rkey, opened.rkey, 0] {
        let mut two = Two::new(&pd)?;
        let inbox = two.far.buffer.slice(64..128)?;
        two.far.qp.recv_half().post(5, &[inbox])?;
        let mut batch = two.near.qp.send_half().batch();
        batch.send_invalidate(2, rkey).signaled().inline(b"x")?;
        batch.submit()?;
        let (failed, sent) = (two.far.status()?, two.near.status()?);
        // On rxe the sender has its acknowledgement by then.
        let expected = match mlx5::is_under_test() {
            true => (CompletionStatus::Flushed, CompletionStatus::RemoteAccess),
            false => (
                CompletionStatus::RemoteInvalidRequest,
                CompletionStatus::Success,
            ),
        };
        assert_eq!((failed, sent), expected, "{rkey:#x}");
    }
    // What the keys open is still open.
    assert_eq!(two.write(opened, b"a")?, CompletionStatus::Success);
    let mut two = Two::new(&pd)?;
    assert_eq!(two.write(memory.remote(), b"b")?, CompletionStatus::Success);
    Ok(Outcome::Pass)
}

/// The harness counts the regions that are left at the end.
fn a_window_keeps_its_region() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let mut two = Two::new(&pd)?;
    for mw_type in [MwType::One, MwType::Two] {
        // Dropped while it is open: it stays until the window goes.
        let mut window = pd.alloc_mw(mw_type)?;
        let memory = pd.alloc(4096, access)?;
        let opened = bind(&mut two.far, &mut window, &memory)?;
        drop(memory);
        assert_eq!(two.write(opened, b"x")?, CompletionStatus::Success);
        window.dealloc()?;

        // Bound to one region after the other.
        let mut window = pd.alloc_mw(mw_type)?;
        for _ in 0..4 {
            let memory = pd.alloc(4096, access)?;
            bind(&mut two.far, &mut window, &memory)?;
            drop(memory);
            if mw_type == MwType::Two {
                two.far.close(&window)?;
            }
        }
        drop(window);
    }

    // A region of the program's. Whether a card refuses, nobody has seen.
    if mlx5::is_under_test() {
        return Ok(Outcome::Pass);
    }
    let mut bytes = vec![0u8; 4096];
    let mut window = pd.alloc_mw(MwType::Two)?;
    // SAFETY: the memory stays until the window is gone, and nobody looks at it.
    let region = unsafe { pd.register_raw(bytes.as_mut_ptr(), bytes.len(), access)? };
    let mut batch = two.far.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window).signaled();
    bind.to(&region, 0..8, Access::REMOTE_READ)?;
    batch.submit()?;
    next_success(&mut two.far.cq)?;
    let refused = region.deregister().expect_err("a window is bound");
    assert_eq!(refused.errno(), Some(libc::EINVAL));
    assert!(
        refused.to_string().contains("memory windows are bound"),
        "{refused}"
    );
    window.dealloc()?;
    drop(bytes);
    Ok(Outcome::Pass)
}

/// rxe would otherwise wait for the windows for most of a minute, and its kernel complain.
fn a_queue_pair_takes_the_windows_that_are_open_through_it() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut windows = [pd.alloc_mw(MwType::Two)?, pd.alloc_mw(MwType::Two)?];
    let mut of_type_1 = pd.alloc_mw(MwType::One)?;
    let began = Instant::now();
    let mut two = Two::new(&pd)?;
    for window in &mut windows {
        two.far.open(window, 0..8, Access::REMOTE_WRITE)?;
    }
    let still_open = two.far.open(&mut of_type_1, 0..8, Access::REMOTE_WRITE)?;
    // This one moves on to another queue pair.
    let mut other = Two::new(&pd)?;
    two.far.close(&windows[1])?;
    let moved = other
        .far
        .open(&mut windows[1], 0..8, Access::REMOTE_WRITE)?;
    two.far.qp.destroy()?;
    assert_eq!(other.write(still_open, b"1")?, CompletionStatus::Success);
    assert_eq!(other.write(moved, b"2")?, CompletionStatus::Success);
    let mut batch = other.far.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut windows[0]);
    let refused = bind.to(&two.far.buffer, 0..8, Access::REMOTE_READ);
    assert_eq!(refused, Err(PostError::WindowDestroyed));
    let refused = batch.invalidate(1, &windows[0]).add();
    assert_eq!(refused, Err(PostError::WindowDestroyed));
    drop(batch);
    // The same by dropping, and of ids.
    drop(other);
    let Pair { client, mut server } = Plan::default().connect()?;
    let memory = server.pd.alloc(64, Access::MW_BIND)?;
    let mut window = server.pd.alloc_mw(MwType::Two)?;
    bind_for(
        server.qp.send_half(),
        &mut window,
        &memory,
        Access::REMOTE_READ,
    )?;
    drop((server, client));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
    Ok(Outcome::Pass)
}

/// As the documentation says. A kernel that does better fails this.
fn rxe_keeps_peers_to_the_region_of_a_window_and_not_to_its_range() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    for mw_type in [MwType::One, MwType::Two] {
        let mut window = pd.alloc_mw(mw_type)?;
        let mut two = Two::new(&pd)?;
        let opened = two.far.open(&mut window, 8..16, Access::REMOTE_WRITE)?;
        assert_eq!(two.write(opened.at(8), b"x")?, CompletionStatus::Success);
        assert_holds(&two.far.buffer, 16, b"x");
    }
    Ok(Outcome::Pass)
}

/// Opens a window to all of the memory, and waits until it is open.
fn bind(side: &mut Side, window: &mut Mw, memory: &Buffer) -> Result<RemoteAddress> {
    let send = side.qp.send_half();
    let opened = bind_for(send, window, memory, Access::REMOTE_WRITE)?;
    next_success(&mut side.cq)?;
    Ok(opened)
}

fn bind_for(
    send: &mut SendHalf,
    window: &mut Mw,
    memory: &Buffer,
    access: Access,
) -> Result<RemoteAddress> {
    let mut batch = send.batch();
    let bind = batch.bind_window(1, window).signaled();
    let opened = bind.to(memory, 0..memory.len(), access)?;
    batch.submit()?;
    Ok(opened)
}

fn windows_over_a_connection_of_the_connection_manager() -> TestResult {
    let plan = Plan {
        inline: 16,
        ..Plan::default()
    };
    let Pair {
        mut client,
        mut server,
    } = plan.connect()?;
    let memory = server.pd.alloc(64, Access::LOCAL_WRITE | Access::MW_BIND)?;
    let inbox = server.buffer(8)?;
    server.post_recv(3, &inbox)?;
    let mut window = server.pd.alloc_mw(MwType::Two)?;
    let mut batch = server.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window).signaled();
    let opened = bind.to(&memory, 16..32, Access::REMOTE_WRITE)?;
    batch.submit()?;
    assert_eq!(server.sent()?.result()?.opcode(), Opcode::BindWindow);
    client.post(|batch| {
        batch.write(1, opened).inline(b"written")?;
        batch.send_invalidate(2, opened.rkey).inline(b"")
    })?;
    let received = server.received()?;
    assert_eq!(received.result()?.invalidated(), Some(opened.rkey));
    assert_holds(&memory, 16, b"written");
    Ok(Outcome::Pass)
}

fn an_unreliable_connection_binds_windows() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut two = Two::of_type(&pd, QpType::Uc)?;
    let mut window = pd.alloc_mw(MwType::Two)?;
    let opened = two.far.open(&mut window, 0..8, Access::REMOTE_WRITE)?;
    let qp_type = QpType::Uc;
    let mut batch = two.far.qp.send_half().batch();
    assert_eq!(
        batch.invalidate(1, &window).add(),
        Err(PostError::WrongQpType { qp_type })
    );
    drop(batch);
    // Its arrival is told by immediate data.
    two.far.qp.recv_half().post(5, &[])?;
    let mut batch = two.near.qp.send_half().batch();
    batch.write_immediate(1, opened, 1).inline(b"uc")?;
    batch.submit()?;
    next_success(&mut two.far.cq)?;
    assert_holds(&two.far.buffer, 0, b"uc");
    Ok(Outcome::Pass)
}

fn binds_that_no_device_takes_are_refused_and_the_queue_pair_goes_on() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let other_pd = environment::context().alloc_pd()?;
    let mut two = Two::new(&pd)?;
    let readable = pd.alloc(4096, Access::MW_BIND)?;
    let closed = pd.alloc(4096, Access::LOCAL_WRITE)?;
    let foreign = other_pd.alloc(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
    let (mut one, mut other) = (pd.alloc_mw(MwType::One)?, pd.alloc_mw(MwType::Two)?);
    let mut foreign_window = other_pd.alloc_mw(MwType::Two)?;
    let keys = [one.rkey(), other.rkey()];
    let read = Access::REMOTE_READ;
    let mut batch = two.far.qp.send_half().batch();
    let bound = batch.bind_window(1, &mut other).to(&closed, 0..1, read);
    assert_eq!(bound, Err(PostError::NoWindowsInRegion));
    for access in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC | read,
        Access::LOCAL_WRITE,
        Access::MW_BIND | read,
    ] {
        let bound = batch.bind_window(1, &mut other).to(&readable, 0..1, access);
        assert_eq!(bound, Err(PostError::WindowAccess), "{access:?}");
    }
    #[allow(clippy::reversed_empty_ranges)]
    for (offset, length) in [(0, 0), (4096, 0), (4095, 2), (0, 4097), (5000, 1)] {
        let range = offset..offset + length;
        let bound = batch.bind_window(1, &mut one).to(&readable, range, read);
        let expected = PostError::WindowRange { offset, length };
        assert_eq!(bound, Err(expected));
    }
    let bound = batch.bind_window(1, &mut other).to(&foreign, 0..1, read);
    assert_eq!(bound, Err(PostError::ForeignWindow));
    let bound = batch
        .bind_window(1, &mut foreign_window)
        .to(&readable, 0..1, read);
    assert_eq!(bound, Err(PostError::ForeignWindow));
    assert_eq!(
        batch.invalidate(1, &foreign_window).add(),
        Err(PostError::ForeignWindow)
    );
    assert_eq!(
        batch.invalidate(1, &one).add(),
        Err(PostError::WindowOfType1)
    );
    assert_eq!(
        batch.bind_window(1, &mut other).unbind(),
        Err(PostError::WindowOfType2)
    );
    let chosen = batch
        .bind_window(1, &mut one)
        .key_byte(1)
        .to(&readable, 0..1, read);
    assert_eq!(chosen, Err(PostError::WindowOfType1));
    batch.submit()?;
    assert_eq!([one.rkey(), other.rkey()], keys);

    // A key that the window had before its last bind says that the bind was not carried out.
    let right = other.rkey();
    let wrong = other.set_rkey(right ^ 0x100).expect_err("another window's");
    assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
    two.far.open(&mut other, 0..8, read)?;
    other.set_rkey(right)?;
    let mut batch = two.far.qp.send_half().batch();
    assert_eq!(
        batch.invalidate(1, &other).add(),
        Err(PostError::WindowClosed)
    );
    Ok(Outcome::Pass)
}

/// The kernel would crash: the key is the window's, and the window is closed.
fn a_window_that_no_bind_opened_is_not_closed() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let (mut two, mut other) = (Two::new(&pd)?, Two::new(&pd)?);
    let mut window = pd.alloc_mw(MwType::Two)?;
    let key = window.rkey();
    let mut batch = two.far.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window).key_byte(key as u8);
    bind.to(&two.far.buffer, 0..8, Access::REMOTE_WRITE)?;
    drop(batch);
    assert_closed(&mut two.far, &window);
    // A bind that fails, by a key that the window does not have.
    window.set_rkey(key ^ 1)?;
    let mut batch = two.far.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window).key_byte(key as u8);
    bind.to(&two.far.buffer, 0..8, Access::REMOTE_WRITE)?;
    batch.submit()?;
    assert_ne!(two.far.status()?, CompletionStatus::Success);
    assert_eq!(window.rkey(), key);
    assert_closed(&mut other.far, &window);
    // One of a batch that is dropped changes nothing of a window that is open.
    let opened = other.far.open(&mut window, 0..8, Access::REMOTE_WRITE)?;
    let mut batch = other.far.qp.send_half().batch();
    batch.invalidate(1, &window).add()?;
    let bind = batch.bind_window(1, &mut window);
    bind.to(&other.far.buffer, 8..16, Access::REMOTE_READ)?;
    drop(batch);
    assert_eq!(window.rkey(), opened.rkey);
    assert_eq!(other.write(opened, b"12345678")?, CompletionStatus::Success);
    other.far.close(&window)?;
    Ok(Outcome::Pass)
}

fn assert_closed(side: &mut Side, window: &Mw) {
    let mut batch = side.qp.send_half().batch();
    let refused = batch.invalidate(8, window).add();
    assert_eq!(refused, Err(PostError::WindowClosed));
}
