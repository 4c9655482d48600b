//! A transfer after the other between two tasks, as the program `rstream` makes one measurement: its
//! protocol, and as much of its command line as `benches/streams` needs.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use clap::Parser;
use rdmacm::StreamSettings;
use rdmacm::tokio::{RdmaListener, RdmaStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes that both send before the measurement.
const GREETING: usize = 16;

/// The buffers of `rstream`.
const BUFFER: u32 = 1 << 19;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Measures streams of tasks, without -s as the server. Prints microseconds a transfer.
#[derive(Parser)]
#[command(disable_version_flag = true)]
struct Args {
    /// The server's address, for a client
    #[arg(short)]
    server: Option<IpAddr>,
    #[arg(short, default_value_t = 7471)]
    port: u16,
    /// Bytes of a transfer
    #[arg(short = 'S', default_value_t = 1000)]
    size: usize,
    /// Transfers to one side before it answers
    #[arg(short = 'C', default_value_t = 1000)]
    transfers: usize,
    #[arg(short = 'I', default_value_t = 1)]
    iterations: usize,
    /// Only makes so many system calls, one after the other
    #[arg(long)]
    calls: Option<usize>,
    /// What `cargo bench` says; `cargo test --benches` says nothing
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    if args.bench || std::env::args().len() == 1 {
        println!("benches/streams runs it");
        return Ok(());
    }
    if let Some(calls) = args.calls {
        for _ in 0..calls {
            nix::unistd::getppid();
        }
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(run(&args))
}

async fn run(args: &Args) -> Outcome<()> {
    let settings = StreamSettings::new()
        .send_buffer(BUFFER)
        .receive_buffer(BUFFER);
    let Some(server) = args.server else {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
        let listener = RdmaListener::bind_with(any, &settings).await?;
        let (mut stream, _) = listener.accept().await?;
        measure(args, &mut stream).await?;
        // The client ends the stream.
        let more = stream.read(&mut [0]).await?;
        return match more {
            0 => Ok(()),
            _ => Err("the client sends more than it was to".into()),
        };
    };
    let server = SocketAddr::from((server, args.port));
    let mut stream = RdmaStream::connect_with(server, &settings).await?;
    let took = measure(args, &mut stream).await?;
    stream.shutdown().await?;
    let transfers = 2 * args.transfers * args.iterations;
    println!("{:.2}", took.as_secs_f64() * 1e6 / transfers as f64);
    Ok(())
}

async fn measure(args: &Args, stream: &mut RdmaStream) -> Outcome<Duration> {
    let is_client = args.server.is_some();
    let mut bytes = vec![0; args.size.max(GREETING)];
    both_ways(stream, is_client, &mut bytes[..GREETING], 1).await?;
    let start = Instant::now();
    for _ in 0..args.iterations {
        both_ways(stream, is_client, &mut bytes[..args.size], args.transfers).await?;
    }
    Ok(start.elapsed())
}

async fn both_ways(
    stream: &mut RdmaStream,
    is_client: bool,
    bytes: &mut [u8],
    transfers: usize,
) -> Outcome<()> {
    for sends in [is_client, !is_client] {
        for _ in 0..transfers {
            match sends {
                true => stream.write_all(bytes).await?,
                false => {
                    stream.read_exact(bytes).await?;
                }
            }
        }
    }
    Ok(())
}
