//! From an address to the end of the last measurement.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;

use nix::poll::PollFlags;
use rdmacm::{RdmaListener, RdmaStream, StreamSettings};

use crate::Result;
use crate::args::Args;
use crate::exchange::Exchange;
use crate::measured::{self, Manner, Purpose, Series, TestOption, Verification, wait_for};

/// Pieces of memory that each side maps at a time.
const MAPPINGS: u16 = 1;

/// Runs the program.
pub fn run(args: &Args) -> Result<()> {
    match args.options.server(&args.test)? {
        Some(server) => run_client(args, server),
        None => run_server(args),
    }
}

fn run_client(args: &Args, server: SocketAddr) -> Result<()> {
    let source = args.options.source(&args.test)?;
    let mut verification = verification(args);
    println!("{}", measured::heading());
    for series in args.options.plan().series() {
        let mut settings = settings(args, series.purpose);
        if let Some(source) = source {
            settings = settings.source(source);
        }
        let connected = connect(server, &settings, Manner::of(&args.test));
        let stream = connected.map_err(|error| format!("connecting to {server}: {error}"))?;
        measure(args, &stream, &series, &mut verification)?;
    }
    Ok(())
}

fn run_server(args: &Args) -> Result<()> {
    let manner = Manner::of(&args.test);
    let plan = args.options.plan().series();
    let address = args.options.listen_on(&args.test)?;
    let mut verification = verification(args);
    let settings = settings(args, plan[0].purpose);
    let listener = RdmaListener::bind_with(address, &settings)
        .map_err(|error| format!("listening on {address}: {error}"))?;
    listener.set_nonblocking(manner != Manner::Blocking)?;
    println!("{}", measured::heading());
    for series in &plan {
        let accepted = accept(&listener, manner);
        let stream = accepted.map_err(|error| format!("accepting: {error}"))?;
        measure(args, &stream, series, &mut verification)?;
    }
    Ok(())
}

fn verification(args: &Args) -> Option<Verification> {
    let is_wanted = args.test.contains(&TestOption::Verify);
    is_wanted.then(Verification::default)
}

/// How the streams are made that are for this purpose.
fn settings(args: &Args, purpose: Purpose) -> StreamSettings {
    let settings = StreamSettings::new()
        .send_buffer(args.options.buffer_size)
        .receive_buffer(args.options.buffer_size)
        .mappings(MAPPINGS);
    match args.options.max_inline(purpose) {
        Some(max_inline) => settings.max_inline(max_inline),
        None => settings,
    }
}

fn connect(
    server: SocketAddr,
    settings: &StreamSettings,
    manner: Manner,
) -> io::Result<RdmaStream> {
    if manner == Manner::Blocking {
        return RdmaStream::connect_with(server, settings);
    }
    let stream = RdmaStream::connect_nonblocking(&server, settings)?;
    wait_for(stream.as_fd(), PollFlags::POLLIN, None)?;
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

fn accept(listener: &RdmaListener, manner: Manner) -> io::Result<RdmaStream> {
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(listener.as_fd(), PollFlags::POLLIN, None)?;
            }
            accepted => {
                let (stream, _) = accepted?;
                stream.set_nonblocking(manner != Manner::Blocking)?;
                return Ok(stream);
            }
        }
    }
}

/// Makes all measurements of a connection, and ends it.
fn measure(
    args: &Args,
    stream: &RdmaStream,
    series: &Series,
    verification: &mut Option<Verification>,
) -> Result<()> {
    let mut exchange = Exchange {
        stream,
        manner: Manner::of(&args.test),
        is_client: args.options.server.is_some(),
        verification: verification.as_mut(),
    };
    for measurement in &series.measurements {
        let took = exchange.measure(measurement)?;
        println!("{}", measured::line(measurement, took));
    }
    // A peer that was faster has ended the stream already.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}
