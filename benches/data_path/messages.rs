//! Sends and writes as perftest's `ib_send_lat`, `ib_send_bw` and `ib_write_bw` do them, for
//! `benches/messages` to compare: the same numbers of requests under way, signaled, received and
//! polled for at a time, one doorbell a message. Prints microseconds a message, of latency half a
//! round trip.

mod own_path;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Access, Buffer, Completion, Cq, Path, Qp, QpAttr, QpModify, QpState, RemoteAddress};

use own_path::own_path;

/// perftest's values. Of latency, one request is under way and so each is signaled. Nothing is sent
/// inline, which perftest does only by devices it knows; rxe is none.
const SEND_DEPTH: usize = 128;
const RECV_DEPTH: usize = 512;
const SIGNAL_EVERY: usize = 100;
const POLL: usize = 16;

const PORT: u16 = 18600;

const USAGE: &str = "usage: messages server|client ADDRESS send_lat|send_bw|write_bw SIZE COUNT [-e] \
                     (benches/messages runs it)";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` says something else.
    let [side, address, test, size, count, rest @ ..] = &args[..] else {
        println!("{USAGE}");
        return Ok(());
    };
    let (address, count) = (address.parse()?, count.parse()?);
    let is_client = side == "client";
    let mut wire = meet(is_client, address)?;
    let mut end = End::new(address, size.parse()?, count, rest == ["-e"])?;
    end.connect(&mut wire)?;
    let time = match (&test[..], is_client) {
        ("send_lat", _) => end.ping_pong(is_client)?,
        ("send_bw", true) => end.stream(false)?,
        ("send_bw", false) => end.receive()?,
        ("write_bw", true) => end.stream(true)?,
        ("write_bw", false) => 0.0,
        _ => return Err(USAGE.into()),
    };
    keep_step(&mut wire)?;
    if is_client {
        println!("{time:.3}");
    }
    Ok(())
}

/// A TCP connection between the two sides, as perftest has.
fn meet(is_client: bool, address: IpAddr) -> Outcome<TcpStream> {
    if !is_client {
        return Ok(TcpListener::bind((address, PORT))?.accept()?.0);
    }
    for _ in 0..100 {
        if let Ok(wire) = TcpStream::connect((address, PORT)) {
            return Ok(wire);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err("there is no server".into())
}

/// Waits until the other side is here as well.
fn keep_step(wire: &mut TcpStream) -> Outcome<()> {
    wire.write_all(&[0])?;
    Ok(wire.read_exact(&mut [0])?)
}

struct End {
    qp: Qp,
    send_cq: Cq,
    recv_cq: Cq,
    buffer: Buffer,
    peer: RemoteAddress,
    path: Path,
    /// The number of messages.
    count: usize,
    /// How many receives have been posted.
    receives: usize,
    /// Whether to sleep until a completion comes.
    sleeps: bool,
}

impl End {
    fn new(address: IpAddr, size: usize, count: usize, sleeps: bool) -> Outcome<Self> {
        let devices = rdmacm::devices()?;
        let context = devices.first().ok_or("there is no RDMA device")?.open()?;
        let pd = context.alloc_pd()?;
        let queue = |entries| {
            let channel = context.completion_channel()?;
            context.completion_queue(entries).channel(&channel).build()
        };
        let (send_depth, recv_depth) = (SEND_DEPTH as u32, RECV_DEPTH as u32);
        let (send_cq, recv_cq) = (queue(send_depth)?, queue(recv_depth)?);
        let attr = QpAttr::new(&pd).send_cq(&send_cq).recv_cq(&recv_cq);
        let qp = pd.create_qp(&attr.max_send_wr(send_depth).max_recv_wr(recv_depth))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            qp,
            send_cq,
            recv_cq,
            buffer: pd.alloc(size, access)?,
            peer: RemoteAddress {
                address: 0,
                rkey: 0,
            },
            path: own_path(&pd, address)?,
            count,
            receives: 0,
            sleeps,
        })
    }

    /// Tells the peer the queue pair and the buffer, moves the queue pair through its states, and
    /// posts receives.
    fn connect(&mut self, wire: &mut TcpStream) -> Outcome<()> {
        let own = self.buffer.remote();
        let mut record = [0; 16];
        record[..4].copy_from_slice(&self.qp.number().to_be_bytes());
        record[4..8].copy_from_slice(&own.rkey.to_be_bytes());
        record[8..].copy_from_slice(&own.address.to_be_bytes());
        wire.write_all(&record)?;
        wire.read_exact(&mut record)?;
        let word = |at: usize| record[at..at + 4].try_into().map(u32::from_be_bytes);
        let (number, rkey) = (word(0)?, word(4)?);
        let address = u64::from_be_bytes(record[8..].try_into()?);
        self.peer = RemoteAddress { address, rkey };
        let context = self.send_cq.context();
        let init = QpModify::to(QpState::Init)
            .port(self.path.port)
            .pkey_index(0);
        self.qp.modify(&init.access(Access::REMOTE_WRITE))?;
        let rtr = QpModify::to(QpState::Rtr)
            .path(self.path)
            .path_mtu(context.port(self.path.port)?.active_mtu)
            .remote_qp_num(number)
            .receive_psn(1)
            .responder_resources(1)
            .min_rnr_timer(12);
        self.qp.modify(&rtr)?;
        let rts = QpModify::to(QpState::Rts).send_psn(1).timeout(14);
        self.qp
            .modify(&rts.retry_count(7).rnr_retry_count(7).initiator_depth(1))?;
        for _ in 0..RECV_DEPTH {
            self.post_recv()?;
        }
        keep_step(wire)
    }

    /// Posts a receive, if there are messages still to come that have none.
    fn post_recv(&mut self) -> Outcome<()> {
        if self.receives == self.count {
            return Ok(());
        }
        self.receives += 1;
        let segment = self.buffer.slice(..)?;
        Ok(self.qp.recv_half().post(0, &[segment])?)
    }

    /// Messages there and back. Returns microseconds of half a round trip.
    fn ping_pong(&mut self, is_client: bool) -> Outcome<f64> {
        let segment = self.buffer.slice(..)?;
        let mut posted = Vec::with_capacity(self.count);
        for number in 0..self.count {
            if number > 0 || !is_client {
                poll(&mut self.recv_cq, 1, self.sleeps)?;
                self.post_recv()?;
            }
            posted.push(Instant::now());
            let mut batch = self.qp.send_half().batch();
            batch.send(0).signaled().from(&[segment])?;
            batch.submit()?;
            poll(&mut self.send_cq, 1, self.sleeps)?;
        }
        if is_client {
            poll(&mut self.recv_cq, 1, self.sleeps)?;
        }
        Ok(half_round_trip(&posted))
    }

    /// Messages or writes, as many at a time as the queue holds. Returns microseconds of each.
    fn stream(&mut self, writes: bool) -> Outcome<f64> {
        let count = self.count;
        let segment = self.buffer.slice(..)?;
        let (mut posted, mut done) = (0, 0);
        let start = Instant::now();
        while done < count {
            while posted < count && posted < done + SEND_DEPTH {
                let mut batch = self.qp.send_half().batch();
                let mut request = match writes {
                    true => batch.write(0, self.peer),
                    false => batch.send(0),
                };
                posted += 1;
                if posted % SIGNAL_EVERY == 0 || posted == count {
                    request = request.signaled();
                }
                request.from(&[segment])?;
                batch.submit()?;
            }
            let taken = poll(&mut self.send_cq, POLL, self.sleeps)?;
            done = count.min(done + taken * SIGNAL_EVERY);
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
    }

    /// The other end of [`stream`](Self::stream), which alone is timed.
    fn receive(&mut self) -> Outcome<f64> {
        let mut received = 0;
        while received < self.count {
            let taken = poll(&mut self.recv_cq, POLL, self.sleeps)?;
            received += taken;
            for _ in 0..taken {
                self.post_recv()?;
            }
        }
        Ok(0.0)
    }
}

/// Microseconds from a post to the next, halved: as perftest has it, their mean without the two
/// longest.
fn half_round_trip(posted: &[Instant]) -> f64 {
    let mut gaps: Vec<Duration> = posted.windows(2).map(|two| two[1] - two[0]).collect();
    gaps.sort();
    gaps.truncate(gaps.len().saturating_sub(2));
    gaps.iter().sum::<Duration>().as_secs_f64() * 1e6 / gaps.len() as f64 / 2.0
}

/// Waits for completions, which must be of success; returns how many there were.
fn poll(cq: &mut Cq, limit: usize, sleeps: bool) -> Outcome<usize> {
    let mut entries = [Completion::default(); POLL];
    let entries = &mut entries[..limit];
    let count = match sleeps {
        true => cq.wait(entries, None)?.len(),
        false => loop {
            match cq.poll(entries).len() {
                0 => {}
                count => break count,
            }
        },
    };
    for completion in &entries[..count] {
        completion.result()?;
    }
    Ok(count)
}
