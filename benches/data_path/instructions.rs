//! Posts and polls with a mark around each call, for `vm instructions` to count what happens in
//! between: a write to the descriptor −1, of the call's name before it and of nothing after it.
//! `instructions.c` is the same with the C library, case by case.

mod own_path;

use std::error::Error;
use std::hint::black_box;
use std::net::IpAddr;
use std::slice;
use std::sync::atomic::{Ordering, compiler_fence};
use std::thread;
use std::time::Duration;

use rdmacm::{
    Access, Buffer, Completion, Cq, Mtu, Path, Pd, PostError, Qp, QpAttr, QpModify, QpState,
    RecvHalf, RemoteAddress, Segment, SendHalf,
};

use own_path::own_path;

const DEPTH: u32 = 64;
const SEGMENTS: usize = 4;
const INLINE: usize = 64;
const LIST: usize = 32;
const SHORT_LIST: usize = 8;
const MANY: usize = 16;
const ROUNDS: usize = 4;

const USAGE: &str =
    "usage: instructions ADDRESS (of an RDMA device; benches/instructions and benches/mlx5 run it)";

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` names no address.
    let Some(address) = std::env::args().nth(1).and_then(|arg| arg.parse().ok()) else {
        println!("{USAGE}");
        return Ok(());
    };
    let mut line = Line::new(address)?;
    for _ in 0..ROUNDS {
        line.round_of_all()?;
    }
    Ok(())
}

#[inline(never)]
fn mark(name: &str) {
    // SAFETY: the bytes are those of a string; the descriptor is none, so nothing is written.
    unsafe { libc::write(-1, name.as_ptr().cast(), name.len()) };
}

/// What the call returns, or what it leaves with.
#[inline(always)]
fn within<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Functions that make a call with a mark on both sides. Each stands for itself, with the arguments
/// that a program has at run time.
macro_rules! marked {
    ($($name:literal fn $function:ident($($arg:ident: $type:ty),*) -> $result:ty $call:block)*) => {$(
        #[inline(never)]
        fn $function($($arg: $type),*) -> $result {
            mark($name);
            let result = within(move || $call);
            mark("");
            // Or the last mark would be made behind the end of the function.
            compiler_fence(Ordering::SeqCst);
            result
        }
    )*};
}

type Posted = Result<(), PostError>;

marked! {
    "nothing"
    fn nothing() -> () {}

    "send of 64 bytes inline"
    fn send_inline(half: &mut SendHalf, wr_id: u64, bytes: &[u8]) -> Posted {
        let mut batch = half.batch();
        batch.send(wr_id).signaled().inline(bytes)?;
        batch.submit()
    }

    "send of 1 segment"
    fn send(half: &mut SendHalf, wr_id: u64, segments: &[Segment]) -> Posted {
        let mut batch = half.batch();
        batch.send(wr_id).signaled().from(segments)?;
        batch.submit()
    }

    "send of 4 segments"
    fn send_four(half: &mut SendHalf, wr_id: u64, segments: &[Segment]) -> Posted {
        let mut batch = half.batch();
        batch.send(wr_id).signaled().from(segments)?;
        batch.submit()
    }

    "write of 1 segment"
    fn write(half: &mut SendHalf, wr_id: u64, to: RemoteAddress, segments: &[Segment]) -> Posted {
        let mut batch = half.batch();
        batch.write(wr_id, to).signaled().from(segments)?;
        batch.submit()
    }

    "read into 1 segment"
    fn read(half: &mut SendHalf, wr_id: u64, from: RemoteAddress, segments: &[Segment]) -> Posted {
        let mut batch = half.batch();
        batch.read(wr_id, from).signaled().into(segments)?;
        batch.submit()
    }

    "a list of 32 sends"
    fn send_list(half: &mut SendHalf, list: &[(u64, Segment)]) -> Posted {
        post_list(half, list)
    }

    "a list of 8 sends"
    fn send_short_list(half: &mut SendHalf, list: &[(u64, Segment)]) -> Posted {
        post_list(half, list)
    }

    "receive into 1 segment"
    fn receive(half: &mut RecvHalf, wr_id: u64, segments: &[Segment]) -> Posted {
        half.post(wr_id, segments)
    }

    "poll of 1 completion"
    fn poll_one(cq: &mut Cq, entries: &mut [Completion]) -> usize {
        cq.poll(entries).len()
    }

    "poll of 16 completions"
    fn poll_many(cq: &mut Cq, entries: &mut [Completion]) -> usize {
        cq.poll(entries).len()
    }

    "poll of nothing"
    fn poll_none(cq: &mut Cq, entries: &mut [Completion]) -> usize {
        cq.poll(entries).len()
    }
}

#[inline(always)]
fn post_list(half: &mut SendHalf, list: &[(u64, Segment)]) -> Posted {
    let mut batch = half.batch();
    let Some(((last_id, last), others)) = list.split_last() else {
        return Ok(());
    };
    for (wr_id, segment) in others {
        batch.send(*wr_id).from(slice::from_ref(segment))?;
    }
    batch
        .send(*last_id)
        .signaled()
        .from(slice::from_ref(last))?;
    batch.submit()
}

/// Two queue pairs of one device, connected.
struct Line {
    near: Qp,
    cq: Cq,
    far: Qp,
    far_cq: Cq,
    segments: [Segment; SEGMENTS],
    remote: RemoteAddress,
    _memory: Buffer,
}

impl Line {
    fn new(address: IpAddr) -> Result<Self, Box<dyn Error>> {
        let context = rdmacm::devices()?
            .first()
            .ok_or("there is no RDMA device")?
            .open()?;
        let pd = context.alloc_pd()?;
        let cq = context.completion_queue(4 * DEPTH).build()?;
        let far_cq = context.completion_queue(4 * DEPTH).build()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = pd.alloc(4096, access)?;
        let mut segments = [memory.slice(..INLINE)?; SEGMENTS];
        for (index, segment) in segments.iter_mut().enumerate() {
            *segment = memory.slice(index * INLINE..(index + 1) * INLINE)?;
        }
        let (near, mut far) = (create_qp(&pd, &cq)?, create_qp(&pd, &far_cq)?);
        let path = own_path(&pd, address)?;
        connect(&near, &far, path)?;
        connect(&far, &near, path)?;
        for _ in 0..DEPTH - 1 {
            far.recv_half().post(0, &segments)?;
        }
        Ok(Self {
            near,
            cq,
            far,
            far_cq,
            segments,
            remote: memory.remote().at(2048),
            _memory: memory,
        })
    }

    fn round_of_all(&mut self) -> Result<(), Box<dyn Error>> {
        let (segments, remote) = (self.segments, black_box(self.remote));
        let (one, all) = (black_box(&segments[..1]), black_box(&segments[..]));
        let bytes = black_box(&[7; INLINE][..]);
        let list = [(7, segments[0]); LIST];
        let list = black_box(&list[..]);
        let wr_id = black_box(7);
        nothing();
        send_inline(self.half(), wr_id, bytes)?;
        self.clean_up()?;
        send(self.half(), wr_id, one)?;
        self.clean_up()?;
        send_four(self.half(), wr_id, all)?;
        self.clean_up()?;
        write(self.half(), wr_id, remote, one)?;
        self.clean_up()?;
        read(self.half(), wr_id, remote, one)?;
        self.clean_up()?;
        send_list(self.half(), list)?;
        self.clean_up()?;
        send_short_list(self.half(), &list[..SHORT_LIST])?;
        self.clean_up()?;
        receive(self.near.recv_half(), wr_id, one)?;
        self.poll_after(poll_one, 1, 1)?;
        self.poll_after(poll_many, MANY, MANY)?;
        self.poll_after(poll_none, 0, MANY)
    }

    fn half(&mut self) -> &mut SendHalf {
        self.near.send_half()
    }

    /// Polls when the completions of so many requests are there.
    fn poll_after(
        &mut self,
        poll: fn(&mut Cq, &mut [Completion]) -> usize,
        requests: usize,
        room: usize,
    ) -> Result<(), Box<dyn Error>> {
        let mut entries = [Completion::default(); MANY];
        let entries = black_box(&mut entries[..room]);
        loop {
            for _ in 0..requests {
                let mut batch = self.near.send_half().batch();
                batch
                    .write(7, self.remote)
                    .signaled()
                    .from(&self.segments[..1])?;
                batch.submit()?;
            }
            let_complete();
            let count = poll(&mut self.cq, entries);
            self.clean_up()?;
            if count == requests {
                return Ok(());
            }
        }
    }

    /// Takes away all completions there are, and gives the far side its receives again.
    fn clean_up(&mut self) -> Result<(), Box<dyn Error>> {
        let mut entries = [Completion::default()];
        let_complete();
        while let [completion] = self.cq.poll(&mut entries) {
            completion.result()?;
        }
        while let [completion] = self.far_cq.poll(&mut entries) {
            completion.result()?;
            self.far.recv_half().post(0, &self.segments)?;
        }
        Ok(())
    }
}

/// Waits until the completions of what was posted are in the queue. There is no call that says so.
fn let_complete() {
    thread::sleep(Duration::from_millis(20));
}

fn create_qp(pd: &Pd, cq: &Cq) -> rdmacm::Result<Qp> {
    pd.create_qp(
        &QpAttr::new(pd)
            .send_cq(cq)
            .recv_cq(cq)
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH)
            .max_send_sge(SEGMENTS as u32)
            .max_recv_sge(SEGMENTS as u32)
            .max_inline_data(INLINE as u32),
    )
}

fn connect(qp: &Qp, peer: &Qp, path: Path) -> Result<(), Box<dyn Error>> {
    let init = QpModify::to(QpState::Init).port(path.port).pkey_index(0);
    qp.modify(&init.access(Access::REMOTE_WRITE | Access::REMOTE_READ))?;
    let rtr = QpModify::to(QpState::Rtr)
        .path(path)
        .path_mtu(Mtu::from_bytes(1024).ok_or("there is no such MTU")?)
        .remote_qp_num(peer.number())
        .receive_psn(1)
        .responder_resources(4)
        .min_rnr_timer(12);
    qp.modify(&rtr)?;
    let rts = QpModify::to(QpState::Rts)
        .send_psn(1)
        .timeout(14)
        .retry_count(7)
        .rnr_retry_count(7)
        .initiator_depth(4);
    qp.modify(&rts)?;
    Ok(())
}
