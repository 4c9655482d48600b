//! From an address to the end of the last measurement.

use std::net::SocketAddr;
use std::thread;

use crate::Result;
use crate::args::Args;
use crate::exchange::Exchange;
use crate::measured::{self, Manner, Purpose, Series, Verification};
use crate::stream::{Listener, Settings, Stream};

/// Runs the program.
pub fn run(args: &Args) -> Result<()> {
    match args.server()? {
        Some(server) => run_client(args, server),
        None => run_server(args),
    }
}

fn run_client(args: &Args, server: SocketAddr) -> Result<()> {
    let source = args.source()?;
    let mut verification = args.verifies().then(Verification::default);
    println!("{}", measured::heading());
    for series in args.options.plan().series() {
        let settings = Settings {
            source,
            ..settings(args, series.purpose)
        };
        tell_keepalive(&settings);
        let connected = Stream::connect(server, &settings);
        let stream = connected.map_err(|error| format!("connecting to {server}: {error}"))?;
        measure(args, &stream, &series, verification.as_mut())?;
        stream.end();
    }
    Ok(())
}

fn run_server(args: &Args) -> Result<()> {
    let plan = args.options.plan().series();
    let address = args.listen_on()?;
    let mut verification = args.verifies().then(Verification::default);
    let settings = settings(args, plan[0].purpose);
    let bound = Listener::bind(address, &settings);
    let listener = bound.map_err(|error| format!("listening on {address}: {error}"))?;
    println!("{}", measured::heading());
    for series in &plan {
        tell_keepalive(&settings);
        let accepted = listener.accept(&settings);
        let stream = accepted.map_err(|error| format!("accepting: {error}"))?;
        let mut serve = || {
            tell_keepalive(&settings);
            measure(args, &stream, series, verification.as_mut())
        };
        if args.forks() {
            let served = thread::scope(|scope| scope.spawn(serve).join());
            served.map_err(|_| "the thread of a connection panicked")??;
        } else {
            serve()?;
        }
        stream.end();
    }
    Ok(())
}

/// How the streams are made that are for this purpose.
fn settings(args: &Args, purpose: Purpose) -> Settings {
    Settings {
        uses_tcp: args.uses_tcp(),
        is_nonblocking: args.manner() != Manner::Blocking,
        buffer_size: args.options.buffer_size,
        keepalive: args.keepalive(),
        max_inline: args.options.max_inline(purpose),
        source: None,
    }
}

/// The C program says so of each socket that it sets it for, listeners among them.
fn tell_keepalive(settings: &Settings) {
    if let Some(idle) = settings.keepalive {
        println!("Keepalive: ON\n  time: {}", idle.as_secs());
    }
}

fn measure(
    args: &Args,
    stream: &Stream,
    series: &Series,
    verification: Option<&mut Verification>,
) -> Result<()> {
    let mut exchange = Exchange {
        stream,
        manner: args.manner(),
        is_client: args.options.server.is_some(),
        verification,
    };
    for measurement in &series.measurements {
        let took = exchange.measure(measurement)?;
        println!("{}", measured::line(measurement, took));
    }
    // The C program's event loop takes an end for a loss, even if there is something to be read
    // before. So the end of its client comes first.
    match exchange.is_client {
        true => Ok(()),
        false => exchange.await_end(),
    }
}
