//! Requests that fail, and what both ends read of it.
//!
//! rxe makes fewer differences than the InfiniBand specification, and they change from kernel to
//! kernel: on Linux 6.1 a request that its own side cannot carry out tells why; 6.12 moves the queue
//! pair to ERROR first, so that the request comes back flushed like all others. Some statuses no rxe
//! gives: there is no local length error (a message that does not fit a receive is an operation
//! error on both sides), no local access error (the receive of a forbidden write tells the sender's
//! status) and no bad response (answers that fit nothing are dropped, and asked for again). How
//! those are read is tested without a device, in `src/fastpath/rxe/tests`. mlx5 keeps to the
//! specification.

use CompletionStatus::{
    Flushed, LocalLength, LocalProtection, LocalQpOperation, MemoryWindowBind, RemoteAccess,
    RemoteInvalidRequest, RemoteOperation, RetryExceeded, RnrRetryExceeded, Success,
};
use rdmacm::{
    Access, Buffer, Completion, CompletionStatus, Cq, Destination, Mw, MwType, Pd, Qp, QpAttr,
    QpModify, QpState, QpType, RemoteAddress, Result, Segment, Srq, SrqAttr,
};

use super::{QKEY, connect_for, datagram_qp, own_path, queue};
use crate::environment::{self, kernel};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::mlx5;
use crate::pair::{ANY_ACCESS, PATIENCE, QUIET};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![reliable_connections, unreliable_connections, datagrams,]
}

/// Two queue pairs that are connected to each other.
pub struct Ends {
    pub pd: Pd,
    pub near: Qp,
    pub near_cq: Cq,
    pub far: Qp,
    pub far_cq: Cq,
    pub srq: Option<Srq>,
    /// For everything that is not to fail, at either end.
    pub memory: Buffer,
}

/// Bytes of a message: more than a completion of mlx5 holds.
pub const LENGTH: usize = 128;

impl Ends {
    /// Connects two ends. The peer may do to the far one what `access` says.
    pub fn new(qp_type: QpType, access: Access, is_shared: bool) -> Result<Self> {
        let pd = environment::context().alloc_pd()?;
        let (near_cq, far_cq) = (queue(pd.context(), 64)?, queue(pd.context(), 64)?);
        let srq = is_shared
            .then(|| pd.create_srq(&SrqAttr::default()))
            .transpose()?;
        let attr = QpAttr::new(&pd).qp_type(qp_type);
        let near = pd.create_qp(&attr.clone().send_cq(&near_cq).recv_cq(&near_cq))?;
        let attr = match &srq {
            Some(srq) => attr.srq(srq),
            None => attr,
        };
        let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
        let path = own_path(pd.context())?;
        connect_for(&near, &far, path, ANY_ACCESS)?;
        connect_for(&far, &near, path, access)?;
        let memory = pd.alloc(LENGTH, ANY_ACCESS)?;
        Ok(Self {
            pd,
            near,
            near_cq,
            far,
            far_cq,
            srq,
            memory,
        })
    }

    fn receive(&mut self, segment: Segment) -> Result<()> {
        match &mut self.srq {
            Some(srq) => srq.post(RECEIVE, &[segment])?,
            None => self.far.recv_half().post(RECEIVE, &[segment])?,
        }
        Ok(())
    }

    /// Sends all the memory.
    fn send(&mut self) -> Result<()> {
        let all = self.memory.slice(..)?;
        self.send_from(all)
    }

    fn send_from(&mut self, segment: Segment) -> Result<()> {
        let mut batch = self.near.send_half().batch();
        batch.send(REQUEST).signaled().from(&[segment])?;
        Ok(batch.submit()?)
    }

    fn write(&mut self, remote: RemoteAddress) -> Result<()> {
        let mut batch = self.near.send_half().batch();
        let request = batch.write(REQUEST, remote).signaled();
        request.from(&[self.memory.slice(..)?])?;
        Ok(batch.submit()?)
    }

    fn write_immediate(&mut self, remote: RemoteAddress) -> Result<()> {
        let mut batch = self.near.send_half().batch();
        let request = batch.write_immediate(REQUEST, remote, 7).signaled();
        request.from(&[self.memory.slice(..)?])?;
        Ok(batch.submit()?)
    }

    fn read_into(&mut self, segment: Segment) -> Result<()> {
        let mut batch = self.near.send_half().batch();
        let request = batch.read(REQUEST, self.memory.remote()).signaled();
        request.into(&[segment])?;
        Ok(batch.submit()?)
    }

    /// A window and what it may be bound to.
    fn window(&self) -> Result<(Buffer, Mw)> {
        let access = ANY_ACCESS.union(Access::MW_BIND);
        Ok((
            self.pd.alloc(LENGTH, access)?,
            self.pd.alloc_mw(MwType::Two)?,
        ))
    }

    /// What may be written to locally, and by nobody else.
    pub fn private(&self) -> Result<Buffer> {
        self.pd.alloc(LENGTH, Access::LOCAL_WRITE)
    }
}

/// The numbers of the requests here.
const REQUEST: u64 = 1;
const RECEIVE: u64 = 2;

/// Whether the kernel is of the kind of 6.1.
fn is_old() -> bool {
    kernel() < (6, 12)
}

/// How a request ended; None when nothing was heard of it.
type Ending = Option<CompletionStatus>;

/// How the one request of this number ended, which must be the only one of the queue.
fn ending(cq: &mut Cq, wr_id: u64, qp_num: u32, expected: Ending) -> Result<Ending> {
    let patience = match expected {
        Some(_) => PATIENCE,
        None => QUIET,
    };
    let mut entries = [Completion::default(); 2];
    let Ok([completion]) = cq.wait(&mut entries, Some(patience)) else {
        return Ok(None);
    };
    assert_eq!((completion.wr_id(), completion.qp_num()), (wr_id, qp_num));
    let status = completion
        .result()
        .map_or_else(|failure| failure.status, |_| CompletionStatus::Success);
    Ok(Some(status))
}

/// Something that goes wrong.
struct Case {
    name: &'static str,
    /// What the peer may do to the far queue pair.
    access: Access,
    /// Whether the far end has a shared receive queue.
    is_shared: bool,
    /// Posts a request, and perhaps a receive for it.
    provoke: fn(&mut Ends) -> Result<()>,
    /// How the request ends.
    near: Ending,
    /// How it ends on Linux 6.1, where that is another matter.
    near_old: Ending,
    /// How the receive ends.
    far: Ending,
    /// The states after that.
    states: [QpState; 2],
    /// All of it on mlx5, where that is another matter.
    on_mlx5: Option<(Ending, Ending, [QpState; 2])>,
}

impl Case {
    const PLAIN: Self = Self {
        name: "",
        access: ANY_ACCESS,
        is_shared: false,
        provoke: |_| Ok(()),
        near: None,
        near_old: None,
        far: None,
        states: [QpState::Error, QpState::Error],
        on_mlx5: None,
    };

    /// What is not as it should be.
    fn complaint(&self, qp_type: QpType) -> Result<Option<String>> {
        let mut ends = Ends::new(qp_type, self.access, self.is_shared)?;
        (self.provoke)(&mut ends)?;
        let expected = self.expected();
        let near = ending(&mut ends.near_cq, REQUEST, ends.near.number(), expected.0)?;
        let far = ending(&mut ends.far_cq, RECEIVE, ends.far.number(), expected.1)?;
        let states = match ends.far.query_state() {
            Ok(state) => [ends.near.query_state()?, state],
            // It was destroyed on purpose.
            Err(_) => [ends.near.query_state()?, expected.2[1]],
        };
        let found = (near, far, states);
        let name = self.name;
        Ok((found != expected).then(|| format!("{name}: {found:?} instead of {expected:?}")))
    }

    /// How the request and the receive end on the device under test, and the states after that.
    fn expected(&self) -> (Ending, Ending, [QpState; 2]) {
        let on_rxe = match is_old() {
            true => self.near_old.or(self.near),
            false => self.near,
        };
        let on_mlx5 = self.on_mlx5.filter(|_| mlx5::is_under_test());
        on_mlx5.unwrap_or((on_rxe, self.far, self.states))
    }
}

fn check(qp_type: QpType, cases: &[Case]) -> TestResult {
    let mut complaints = Vec::new();
    for case in cases {
        complaints.extend(case.complaint(qp_type)?);
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    Ok(Outcome::Pass)
}

/// The device finds it before anything is sent, whatever the service.
const SEND_FROM_GONE: Case = Case {
    name: "a send from memory that is gone",
    provoke: |ends| {
        let gone = ends.private()?.slice(..)?;
        ends.send_from(gone)
    },
    near: Some(Flushed),
    near_old: Some(LocalQpOperation),
    states: [QpState::Error, QpState::Rts],
    on_mlx5: Some((Some(LocalProtection), None, [QpState::Error, QpState::Rts])),
    ..Case::PLAIN
};

const RELIABLE: &[Case] = &[
    Case {
        name: "a read into memory that nobody may write to",
        provoke: |ends| {
            let constant = ends.pd.alloc(LENGTH, Access::REMOTE_READ)?;
            ends.read_into(constant.slice(..)?)?;
            // Not given back before the answer.
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(LocalProtection),
        states: [QpState::Error, QpState::Rts],
        ..Case::PLAIN
    },
    Case {
        name: "a read into memory that is gone",
        provoke: |ends| {
            let gone = ends.private()?.slice(..)?;
            ends.read_into(gone)
        },
        near: Some(LocalProtection),
        states: [QpState::Error, QpState::Rts],
        ..Case::PLAIN
    },
    SEND_FROM_GONE,
    Case {
        name: "a receive into memory that nobody may write to",
        provoke: |ends| {
            let constant = ends.pd.alloc(LENGTH, Access::REMOTE_READ)?;
            ends.receive(constant.slice(..)?)?;
            ends.send()?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(RemoteOperation),
        far: Some(LocalQpOperation),
        on_mlx5: Some((
            Some(RemoteOperation),
            Some(LocalProtection),
            [QpState::Error, QpState::Error],
        )),
        ..Case::PLAIN
    },
    Case {
        name: "a message longer than its receive",
        provoke: |ends| {
            let shorter = ends.memory.slice(..LENGTH - 1)?;
            ends.receive(shorter)?;
            ends.send()
        },
        near: Some(RemoteOperation),
        far: Some(LocalQpOperation),
        on_mlx5: Some((
            Some(RemoteInvalidRequest),
            Some(LocalLength),
            [QpState::Error, QpState::Error],
        )),
        ..Case::PLAIN
    },
    Case {
        name: "a message longer than its receive of a shared queue",
        is_shared: true,
        provoke: |ends| {
            let shorter = ends.memory.slice(..LENGTH - 1)?;
            ends.receive(shorter)?;
            ends.send()
        },
        near: Some(RemoteOperation),
        far: Some(LocalQpOperation),
        on_mlx5: Some((
            Some(RemoteInvalidRequest),
            Some(LocalLength),
            [QpState::Error, QpState::Error],
        )),
        ..Case::PLAIN
    },
    Case {
        name: "a write to a queue pair that may not be written through",
        access: Access::REMOTE_READ,
        provoke: |ends| ends.write(ends.memory.remote()),
        near: Some(RemoteInvalidRequest),
        ..Case::PLAIN
    },
    Case {
        name: "a read through a queue pair that may only be written through",
        access: Access::REMOTE_WRITE,
        provoke: |ends| ends.read_into(ends.memory.slice(..)?),
        near: Some(RemoteInvalidRequest),
        ..Case::PLAIN
    },
    Case {
        name: "an atomic through a queue pair that allows none",
        access: Access::REMOTE_WRITE.union(Access::REMOTE_READ),
        provoke: |ends| {
            let mut batch = ends.near.send_half().batch();
            let request = batch.fetch_add(REQUEST, ends.memory.remote(), 1);
            request.signaled().into(ends.memory.slice(..8)?)?;
            Ok(batch.submit()?)
        },
        near: Some(RemoteInvalidRequest),
        ..Case::PLAIN
    },
    Case {
        name: "a write to memory that allows none",
        provoke: |ends| {
            let private = ends.private()?;
            ends.write(private.remote())?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(RemoteAccess),
        ..Case::PLAIN
    },
    Case {
        name: "a write with a number to memory that allows none",
        provoke: |ends| {
            let private = ends.private()?;
            ends.receive(ends.memory.slice(..)?)?;
            ends.write_immediate(private.remote())?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(RemoteAccess),
        // What a specification would call a local access error here.
        far: Some(RemoteAccess),
        on_mlx5: Some((
            Some(RemoteAccess),
            Some(Flushed),
            [QpState::Error, QpState::Error],
        )),
        ..Case::PLAIN
    },
    Case {
        name: "a window that is bound by a key that it does not have",
        provoke: |ends| {
            let (region, mut window) = ends.window()?;
            window.set_rkey(window.rkey() ^ 0x55)?;
            let mut batch = ends.near.send_half().batch();
            let bind = batch.bind_window(REQUEST, &mut window).signaled();
            bind.to(&region, 0..LENGTH, Access::REMOTE_READ)?;
            batch.submit()?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(Flushed),
        near_old: Some(MemoryWindowBind),
        states: [QpState::Error, QpState::Rts],
        on_mlx5: Some((Some(Success), None, [QpState::Rts, QpState::Rts])),
        ..Case::PLAIN
    },
    Case {
        name: "a write through a window that is not open",
        provoke: |ends| {
            let (region, window) = ends.window()?;
            let rkey = window.rkey();
            ends.write(RemoteAddress {
                rkey,
                ..region.remote()
            })?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(RemoteAccess),
        ..Case::PLAIN
    },
    Case {
        name: "a window that the peer closes by a key that it does not have",
        provoke: |ends| {
            let (_region, window) = ends.window()?;
            ends.receive(ends.memory.slice(..)?)?;
            let mut batch = ends.near.send_half().batch();
            let request = batch.send_invalidate(REQUEST, window.rkey() ^ 0x55);
            request.signaled().from(&[])?;
            batch.submit()?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(Success),
        far: Some(RemoteInvalidRequest),
        states: [QpState::Rts, QpState::Error],
        on_mlx5: Some((
            Some(RemoteAccess),
            Some(Flushed),
            [QpState::Error, QpState::Error],
        )),
        ..Case::PLAIN
    },
    Case {
        name: "a peer that is not there",
        provoke: |ends| {
            ends.far.destroy()?;
            ends.send()
        },
        near: Some(RetryExceeded),
        ..Case::PLAIN
    },
    Case {
        name: "a peer without a receive",
        provoke: Ends::send,
        near: Some(RnrRetryExceeded),
        states: [QpState::Error, QpState::Rts],
        ..Case::PLAIN
    },
    Case {
        name: "a queue pair that failed before",
        provoke: |ends| {
            ends.near.modify(&QpModify::to(QpState::Error))?;
            ends.far.modify(&QpModify::to(QpState::Error))?;
            ends.send()
        },
        near: Some(Flushed),
        ..Case::PLAIN
    },
];

fn reliable_connections() -> TestResult {
    check(QpType::Rc, RELIABLE)
}

/// The sender of an unreliable connection hears nothing of the other end.
const UNRELIABLE: &[Case] = &[
    Case {
        name: "no receive",
        provoke: Ends::send,
        near: Some(Success),
        states: [QpState::Rts, QpState::Rts],
        ..Case::PLAIN
    },
    Case {
        name: "a message longer than its receive",
        provoke: |ends| {
            let shorter = ends.memory.slice(..LENGTH - 1)?;
            ends.receive(shorter)?;
            ends.send()
        },
        near: Some(Success),
        far: Some(LocalQpOperation),
        states: [QpState::Rts, QpState::Error],
        on_mlx5: Some((
            Some(Success),
            Some(LocalLength),
            [QpState::Rts, QpState::Error],
        )),
        ..Case::PLAIN
    },
    Case {
        name: "a write to a queue pair that may not be written through",
        access: Access::empty(),
        provoke: |ends| ends.write(ends.memory.remote()),
        near: Some(Success),
        states: [QpState::Rts, QpState::Rts],
        ..Case::PLAIN
    },
    Case {
        name: "a write with a number to memory that allows none",
        provoke: |ends| {
            let private = ends.private()?;
            ends.receive(ends.memory.slice(..)?)?;
            ends.write_immediate(private.remote())?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(Success),
        states: [QpState::Rts, QpState::Rts],
        ..Case::PLAIN
    },
    Case {
        name: "the same into a shared queue, whose receive is used up",
        is_shared: true,
        provoke: |ends| {
            let private = ends.private()?;
            ends.receive(ends.memory.slice(..)?)?;
            ends.write_immediate(private.remote())?;
            std::thread::sleep(QUIET);
            Ok(())
        },
        near: Some(Success),
        far: Some(RemoteAccess),
        states: [QpState::Rts, QpState::Rts],
        on_mlx5: Some((Some(Success), None, [QpState::Rts, QpState::Rts])),
        ..Case::PLAIN
    },
    Case {
        on_mlx5: Some((Some(LocalProtection), None, [QpState::Sqe, QpState::Rts])),
        ..SEND_FROM_GONE
    },
];

fn unreliable_connections() -> TestResult {
    check(QpType::Uc, UNRELIABLE)
}

fn datagrams() -> TestResult {
    // A request of mlx5 holds the address itself.
    if !mlx5::is_under_test() {
        an_address_handle_that_is_gone()?;
    }
    a_datagram_too_long_for_a_shared_queue()?;
    Ok(Outcome::Pass)
}

/// It is the sender's own fault.
fn an_address_handle_that_is_gone() -> Result<()> {
    let pd = environment::context().alloc_pd()?;
    let (mut qp, mut cq) = datagram_qp(&pd)?;
    let handle = pd.address_handle(&own_path(pd.context())?)?;
    let qp_num = qp.number();
    let mut batch = qp.send_half().batch();
    let to = Destination {
        handle: &handle,
        qp_num,
        qkey: QKEY,
    };
    batch.send_datagram(REQUEST, to).signaled().from(&[])?;
    handle.destroy()?;
    batch.submit()?;
    let expected = match is_old() {
        true => Some(LocalQpOperation),
        false => Some(Flushed),
    };
    assert_eq!(ending(&mut cq, REQUEST, qp_num, expected)?, expected);
    assert_eq!(qp.query_state()?, QpState::Error);
    Ok(())
}

/// Of a queue of its own the receive stays, and nobody hears anything.
fn a_datagram_too_long_for_a_shared_queue() -> Result<()> {
    let pd = environment::context().alloc_pd()?;
    let (mut near, _near_cq) = datagram_qp(&pd)?;
    let mut srq = pd.create_srq(&SrqAttr::default())?;
    let mut far_cq = queue(pd.context(), 4)?;
    let attr = QpAttr::new(&pd).qp_type(QpType::Ud).srq(&srq);
    let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
    far.modify(&QpModify::to(QpState::Init).port(1).pkey_index(0).qkey(QKEY))?;
    far.modify(&QpModify::to(QpState::Rtr))?;
    const SHORT: usize = 64;
    let inbox = pd.alloc(SHORT, Access::LOCAL_WRITE)?;
    srq.post(RECEIVE, &[inbox.slice(..)?])?;
    let handle = pd.address_handle(&own_path(pd.context())?)?;
    let mut batch = near.send_half().batch();
    let to = Destination {
        handle: &handle,
        qp_num: far.number(),
        qkey: QKEY,
    };
    batch.send_datagram(REQUEST, to).inline(&[7; SHORT])?;
    batch.submit()?;
    let (expected, state) = match is_old() {
        _ if mlx5::is_under_test() => (Some(LocalLength), QpState::Error),
        true => (Some(LocalQpOperation), QpState::Error),
        false => (Some(RemoteInvalidRequest), QpState::Rtr),
    };
    let found = ending(&mut far_cq, RECEIVE, far.number(), expected)?;
    assert_eq!((found, far.query_state()?), (expected, state));
    Ok(())
}
