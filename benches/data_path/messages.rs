//! Sends and writes as perftest's `ib_send_lat`, `ib_send_bw` and `ib_write_bw` do them, for
//! `benches/messages` to compare: the same numbers of requests under way, signaled, and polled for
//! at a time, one doorbell a message. Prints microseconds a message, of latency half a round trip.

mod own_path;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Access, Buffer, Completion, Cq, Path, Qp, QpAttr, QpModify, QpState, RemoteAddress};

use own_path::own_path;

/// perftest's values.
const SEND_DEPTH: u32 = 128;
const RECV_DEPTH: u32 = 512;
const SIGNAL_EVERY: usize = 100;
const POLL: usize = 16;
const MAX_INLINE: u32 = 236;

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
    let mut end = End::new(address, size.parse()?, rest == ["-e"])?;
    end.connect(&mut wire)?;
    let time = match (&test[..], is_client) {
        ("send_lat", _) => end.ping_pong(count, is_client)?,
        ("send_bw", true) => end.stream(count, false)?,
        ("send_bw", false) => end.receive(count)?,
        ("write_bw", true) => end.stream(count, true)?,
        ("write_bw", false) => Duration::ZERO,
        _ => return Err(USAGE.into()),
    };
    keep_step(&mut wire)?;
    if is_client {
        println!("{:.3}", time.as_secs_f64() * 1e6 / count as f64);
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
    /// Whether to sleep until a completion comes.
    sleeps: bool,
}

impl End {
    fn new(address: IpAddr, size: usize, sleeps: bool) -> Outcome<Self> {
        let devices = rdmacm::devices()?;
        let context = devices.first().ok_or("there is no RDMA device")?.open()?;
        let pd = context.alloc_pd()?;
        let queue = |entries| {
            let channel = context.completion_channel()?;
            context.completion_queue(entries).channel(&channel).build()
        };
        let (send_cq, recv_cq) = (queue(2 * SEND_DEPTH)?, queue(2 * RECV_DEPTH)?);
        let attr = QpAttr::new(&pd).send_cq(&send_cq).recv_cq(&recv_cq);
        let attr = attr.max_send_wr(SEND_DEPTH).max_recv_wr(RECV_DEPTH);
        let qp = pd.create_qp(&attr.max_inline_data(MAX_INLINE))?;
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
            sleeps,
        })
    }

    /// Tells the peer the queue pair and the buffer, moves the queue pair through its states, and
    /// posts all receives.
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

    fn post_recv(&mut self) -> Outcome<()> {
        let segment = self.buffer.slice(..)?;
        Ok(self.qp.recv_half().post(0, &[segment])?)
    }

    /// Messages there and back. Returns the time of all of one side.
    fn ping_pong(&mut self, count: usize, is_client: bool) -> Outcome<Duration> {
        let size = self.buffer.len();
        let bytes = vec![0; size];
        let segment = self.buffer.slice(..)?;
        let start = Instant::now();
        for number in 0..count {
            if number > 0 || !is_client {
                poll(&mut self.recv_cq, 1, self.sleeps)?;
                self.post_recv()?;
            }
            let is_signaled = (number + 1) % SIGNAL_EVERY == 0 || number + 1 == count;
            let mut batch = self.qp.send_half().batch();
            let mut request = batch.send(0);
            if is_signaled {
                request = request.signaled();
            }
            match size <= MAX_INLINE as usize {
                true => request.inline(&bytes)?,
                false => request.from(&[segment])?,
            }
            batch.submit()?;
            if is_signaled {
                poll(&mut self.send_cq, 1, self.sleeps)?;
            }
        }
        if is_client {
            poll(&mut self.recv_cq, 1, self.sleeps)?;
        }
        Ok(start.elapsed() / 2)
    }

    /// Messages or writes, as many at a time as the queue holds.
    fn stream(&mut self, count: usize, writes: bool) -> Outcome<Duration> {
        let segment = self.buffer.slice(..)?;
        let (mut posted, mut done) = (0, 0);
        let start = Instant::now();
        while done < count {
            while posted < count && posted < done + SEND_DEPTH as usize {
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
        Ok(start.elapsed())
    }

    fn receive(&mut self, count: usize) -> Outcome<Duration> {
        let start = Instant::now();
        let mut received = 0;
        while received < count {
            let taken = poll(&mut self.recv_cq, POLL, self.sleeps)?;
            received += taken;
            for _ in 0..taken {
                self.post_recv()?;
            }
        }
        Ok(start.elapsed())
    }
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
