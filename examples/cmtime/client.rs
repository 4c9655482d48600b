//! The client: takes each step for all connections, and measures it.
//!
//! What to learn here: the calls only begin things, and one channel brings the outcome of all of
//! them in any order. So hundreds of connections are made at the same time without a thread.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rdmacm::{CmId, ConnParam, Event, EventChannel, PortSpace, Status};

use crate::Result;
use crate::args::{Args, resolve};
use crate::cpu::Cpu;
use crate::progress::Progress;
use crate::queues::Queues;
use crate::step::Step;
use crate::timing::{self, Timing};

/// How long nothing may happen. The kernel gives a connection attempt up after a little more than
/// a minute; only a server that reads requests and does not answer them takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes and ends the connections, and prints the table.
pub fn run(args: &Args, server: &str) -> Result<()> {
    let mut client = Client::new(args, server)?;
    client.take(Step::CreateId)?;
    if client.source.is_some() {
        client.take(Step::BindAddr)?;
    }
    for step in [
        Step::ResolveAddr,
        Step::ResolveRoute,
        Step::CreateQp,
        Step::Connect,
        Step::Disconnect,
        Step::Destroy,
    ] {
        client.take(step)?;
    }
    client.print_table()?;
    match client.nodes.iter().filter(|node| node.failed).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} connections failed", args.connections).into()),
    }
}

struct Client<'a> {
    args: &'a Args,
    peer: SocketAddr,
    source: Option<SocketAddr>,
    param: ConnParam,
    channel: EventChannel,
    queues: Queues,
    nodes: Vec<Node>,
    /// Which node an id belongs to.
    index: HashMap<CmId, usize>,
    timings: Vec<Timing>,
}

/// A connection.
struct Node {
    id: Option<CmId>,
    /// When the current step began, and how long it took if it is over.
    began: Instant,
    took: Option<Duration>,
    retries: u8,
    failed: bool,
    /// The server has ended the connection.
    ended: bool,
}

impl<'a> Client<'a> {
    fn new(args: &'a Args, server: &str) -> Result<Self> {
        let source = args.bind.as_deref().map(|host| resolve(host, 0));
        let node = || Node {
            id: None,
            began: Instant::now(),
            took: None,
            retries: 0,
            failed: false,
            ended: false,
        };
        Ok(Self {
            args,
            peer: resolve(server, args.port)?,
            source: source.transpose()?,
            param: ConnParam::new()
                .responder_resources(1)
                .initiator_depth(1)
                .retry_count(args.retries)
                .rnr_retry_count(0),
            channel: EventChannel::open()?,
            queues: Queues::new(args.own_cqs),
            nodes: std::iter::repeat_with(node)
                .take(args.connections as usize)
                .collect(),
            index: HashMap::new(),
            timings: Vec::new(),
        })
    }

    /// Takes a step for all connections that got as far.
    fn take(&mut self, step: Step) -> Result<()> {
        writeln!(stdout(), "{}", step.announcement())?;
        let progress = Progress::new(step.announcement(), self.nodes.len());
        let cpu = self.args.cpu.then(Cpu::of_this_process).transpose()?;
        let began = Instant::now();

        let mut outstanding = 0;
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            node.took = None;
            node.retries = self.args.retries;
            // All ids are destroyed, what became of them may be what it will.
            if node.failed && step != Step::Destroy {
                continue;
            }
            node.began = Instant::now();
            match self.begin(step, number) {
                Ok(()) if step.ends_with_event() && !self.is_over(step, number) => outstanding += 1,
                Ok(()) => self.nodes[number].finish(&progress),
                Err(error) => self.fail(number, &error),
            }
        }
        while outstanding > 0 {
            // Events come in bursts: waiting before each would cost a call that finds one there.
            let event = match self.channel.try_next_event()? {
                Some(event) => event,
                None => self.channel.next_event(Some(PATIENCE))?,
            };
            if self.handle(step, event, &progress)? {
                outstanding -= 1;
            }
        }

        let total = began.elapsed();
        let cpu = match cpu {
            Some(before) => Some(Cpu::of_this_process()?.since(before)),
            None => None,
        };
        self.timings.push(Timing {
            step,
            total,
            each: self.nodes.iter().filter_map(|node| node.took).collect(),
            cpu,
        });
        Ok(())
    }

    /// The call with which the step begins.
    fn begin(&mut self, step: Step, number: usize) -> rdmacm::Result<()> {
        if step == Step::CreateId {
            let id = self.channel.create_id(PortSpace::Tcp)?;
            self.index.insert(id.clone(), number);
            self.nodes[number].id = Some(id);
            return Ok(());
        }
        // There is none when it could not even be created.
        let Some(id) = &self.nodes[number].id else {
            return Ok(());
        };
        let (source, timeout) = (self.source.map(Into::into), self.args.timeout());
        match step {
            Step::CreateId => Ok(()),
            Step::BindAddr => self.source.map_or(Ok(()), |source| id.bind_addr(source)),
            Step::ResolveAddr => id.resolve_addr(source, self.peer, timeout),
            Step::ResolveRoute => id.resolve_route(timeout),
            Step::CreateQp => self.queues.create_qp(id),
            Step::Connect => id.connect(&self.param),
            Step::Disconnect => {
                // In this order the library need not move the queue pair to the error state.
                id.destroy_qp()?;
                id.disconnect()
            }
            Step::Destroy => id.destroy(),
        }
    }

    /// Whether the event that ends the step came before the step began.
    fn is_over(&self, step: Step, number: usize) -> bool {
        step == Step::Disconnect && self.nodes[number].ended
    }

    /// Takes an event in. True when the step is over for the connection that it is about.
    fn handle(&mut self, step: Step, event: Event, progress: &Progress) -> Result<bool> {
        let Some(&number) = self.index.get(event.id()) else {
            return Ok(false);
        };
        let node = &mut self.nodes[number];
        if step.is_ended_by(&event) {
            node.finish(progress);
            return Ok(true);
        }
        match event {
            Event::Disconnected(_) => {
                node.ended = true;
                Ok(false)
            }
            Event::AddressChange(_) | Event::TimewaitExit(_) => Ok(false),
            _ if step.may_be_retried_after(&event) && node.retries > 0 => {
                node.retries -= 1;
                let again = self.begin(step, number);
                if let Err(error) = &again {
                    self.fail(number, error);
                }
                Ok(again.is_err())
            }
            event @ Event::DeviceRemoval(_) => Err(event.into_error("cmtime").into()),
            event => {
                print_event(&event)?;
                let is_waited_for = node.took.is_none() && !node.failed;
                let error = event.into_error(step.name());
                self.fail(number, &error);
                Ok(is_waited_for)
            }
        }
    }

    /// Leaves a connection out of what follows.
    fn fail(&mut self, number: usize, error: &rdmacm::Error) {
        eprintln!("cmtime: {error}");
        self.nodes[number].failed = true;
    }

    fn print_table(&self) -> Result<()> {
        let mut out = stdout().lock();
        writeln!(out, "{}", timing::heading(self.args.cpu))?;
        for timing in &self.timings {
            writeln!(out, "{}", timing.line(self.args.connections))?;
        }
        Ok(())
    }
}

impl Node {
    fn finish(&mut self, progress: &Progress) {
        self.took = Some(self.began.elapsed());
        progress.advance();
    }
}

fn print_event(event: &Event) -> Result<()> {
    let status = match event.status() {
        Status::Rejected(reason) => reason.0.cast_signed(),
        Status::Errno(errno) => -errno,
        _ => 0,
    };
    let name = event.name();
    Ok(writeln!(
        stdout(),
        "event: RDMA_CM_EVENT_{name}, error: {status}"
    )?)
}
