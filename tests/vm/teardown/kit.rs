//! A connection of the process with itself, built step by step. All it is made of lies open as
//! parts, so that a test can stop anywhere and let the parts go in any order.

use std::any::Any;
use std::net::SocketAddr;
use std::panic;
use std::time::Duration;

use rdmacm::{
    Access, CmId, ConnParam, Cq, Error, ErrorKind, Event, EventChannel, Pd, PortSpace, Qp, QpAttr,
};

use super::order::Checked;
use crate::environment;

/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a connection is to be built.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// The steps to take; there may be fewer.
    pub steps: usize,
    /// What happens instead of the next step.
    pub then: Then,
    /// Whether the passive side rejects.
    pub rejects: bool,
    /// Whether the passive side's id gets an event channel of its own.
    pub migrates: bool,
}

/// How building stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// It returns early.
    #[default]
    Return,
    /// It unwinds.
    Panic,
}

/// Why building ended before the connection was complete.
#[derive(Debug)]
pub enum Stopped {
    /// The plan said so.
    Planned,
    /// Something failed.
    Failed(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Something that a program holds and lets go.
pub enum Part {
    Id(CmId),
    Event(Event),
    Pd(Pd),
    Cq(Cq),
    Qp(Qp),
    /// Something that can only be dropped.
    Plain {
        name: &'static str,
        _held: Box<dyn Any>,
    },
}

/// How a part is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Dropped.
    Drop,
    /// Destroyed with its own call, then dropped.
    Destroy,
    /// Of an id: its queue pair is destroyed, then it is dropped.
    DestroyQp,
    /// Of an id: disconnected, then dropped.
    Disconnect,
}

impl Part {
    fn plain(name: &'static str, thing: impl Any) -> Self {
        Self::Plain {
            name,
            _held: Box::new(thing),
        }
    }

    /// What it is.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Id(_) => "id",
            Self::Event(_) => "event",
            Self::Pd(_) => "pd",
            Self::Cq(_) => "cq",
            Self::Qp(_) => "qp",
            Self::Plain { name, .. } => name,
        }
    }

    /// Lets it go. A way that this part does not know is dropping it.
    ///
    /// # Errors
    ///
    /// An answer that no order of teardown explains.
    pub fn let_go(self, way: Way) -> Result<(), Error> {
        match (self, way) {
            (Self::Id(id), Way::Destroy) => tolerate(id.destroy(), |error| {
                // Another handle of the same id was faster.
                error.kind() == ErrorKind::Destroyed
            }),
            (Self::Id(id), Way::DestroyQp) => id.destroy_qp().map(drop),
            // An id that did not get far, or is destroyed, has nothing to disconnect.
            (Self::Id(id), Way::Disconnect) => tolerate(id.disconnect(), |error| {
                let kinds = [ErrorKind::InvalidState, ErrorKind::Destroyed];
                kinds.contains(&error.kind()) || error.errno() == Some(libc::EINVAL)
            }),
            (Self::Qp(qp), Way::Destroy) => qp.destroy().map(drop),
            (Self::Cq(cq), Way::Destroy) => tolerate(cq.destroy(), is_busy),
            (Self::Pd(pd), Way::Destroy) => tolerate(pd.dealloc(), is_busy),
            _ => Ok(()),
        }
    }
}

/// The kernel's word for objects that others still use. They go with the last of those.
fn is_busy(error: &Error) -> bool {
    error.errno() == Some(libc::EBUSY)
}

fn tolerate(result: Result<(), Error>, expected: impl Fn(&Error) -> bool) -> Result<(), Error> {
    result.or_else(|error| if expected(&error) { Ok(()) } else { Err(error) })
}

/// What was built so far.
pub struct Kit<'m> {
    plan: Plan,
    /// The parts, in the order in which they were made.
    pub parts: Vec<Part>,
    /// The steps that were taken.
    steps: usize,
    /// Counts the ids and queue pairs that are made.
    made: &'m mut Checked,
}

impl<'m> Kit<'m> {
    /// Nothing yet.
    pub fn new(plan: Plan, made: &'m mut Checked) -> Self {
        Self {
            plan,
            parts: Vec::new(),
            steps: 0,
            made,
        }
    }

    /// Builds a connection, sends a message through it, and disconnects.
    ///
    /// # Errors
    ///
    /// When the plan stops it, or something fails.
    pub fn build(&mut self) -> Result<(), Stopped> {
        let listening = self.channel()?;
        let server = self.listener(&listening)?;
        let channel = self.channel()?;
        let id = self.id(&channel)?;
        self.resolve(&channel, &id, server)?;
        self.end(&id)?;
        id.connect(&ConnParam::new())?;
        self.step()?;
        let accepted = self.request(&listening)?;
        if self.plan.rejects {
            accepted.reject(b"no")?;
            self.step()?;
            return self.event(&channel, "REJECTED");
        }
        let mut accepting = listening;
        if self.plan.migrates {
            accepting = self.channel()?;
            accepted.migrate(&accepting)?;
            self.step()?;
        }
        self.end(&accepted)?;
        accepted.accept(&ConnParam::new())?;
        self.step()?;
        self.event(&channel, "ESTABLISHED")?;
        self.event(&accepting, "ESTABLISHED")?;
        self.send()?;
        id.disconnect()?;
        self.step()?;
        self.event(&accepting, "DISCONNECTED")
    }

    /// A whole connection, ended by the active side.
    pub fn complete(made: &'m mut Checked) -> Result<Self, Error> {
        let plan = Plan {
            steps: usize::MAX,
            ..Plan::default()
        };
        let mut kit = Self::new(plan, made);
        match kit.build() {
            Ok(()) => Ok(kit),
            Err(Stopped::Failed(error)) => Err(error),
            Err(Stopped::Planned) => unreachable!("the plan has no end"),
        }
    }

    /// Takes the active side's id and queue pair out; other handles of the id stay.
    pub fn take_active(&mut self) -> (CmId, Qp) {
        let place = self
            .parts
            .iter()
            .position(|part| matches!(part, Part::Qp(_)));
        let place = place.expect("a queue pair");
        let mut taken = self.parts.drain(place - 1..=place);
        match (taken.next(), taken.next()) {
            (Some(Part::Id(id)), Some(Part::Qp(qp))) => (id, qp),
            _ => panic!("an id comes before its queue pair"),
        }
    }

    fn channel(&mut self) -> Result<EventChannel, Stopped> {
        let channel = EventChannel::open()?;
        self.add(Part::plain("channel", channel.clone()))?;
        Ok(channel)
    }

    fn id(&mut self, channel: &EventChannel) -> Result<CmId, Stopped> {
        let id = channel.create_id(PortSpace::Tcp)?;
        self.made.ids += 1;
        self.add(Part::Id(id.clone()))?;
        Ok(id)
    }

    fn listener(&mut self, channel: &EventChannel) -> Result<SocketAddr, Stopped> {
        let id = self.id(channel)?;
        id.bind_addr((environment::addr(), 0))?;
        self.step()?;
        id.listen(1)?;
        self.step()?;
        Ok(id.local_addr().expect("a listener has an address"))
    }

    fn resolve(
        &mut self,
        channel: &EventChannel,
        id: &CmId,
        server: SocketAddr,
    ) -> Result<(), Stopped> {
        id.resolve_addr(None, server, PATIENCE)?;
        self.step()?;
        self.event(channel, "ADDR_RESOLVED")?;
        id.resolve_route(PATIENCE)?;
        self.step()?;
        self.event(channel, "ROUTE_RESOLVED")
    }

    /// What an id needs to connect, down to a posted receive.
    fn end(&mut self, id: &CmId) -> Result<(), Stopped> {
        let context = id.context()?;
        let pd = context.alloc_pd()?;
        self.add(Part::Pd(pd.clone()))?;
        let completions = context.completion_channel()?;
        self.add(Part::plain("completion channel", completions.clone()))?;
        let cq = context.completion_queue(8).channel(&completions).build()?;
        cq.arm(false)?;
        let mut qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        self.made.qps += 1;
        self.add(Part::Cq(cq))?;
        let memory = pd.alloc(64, Access::LOCAL_WRITE)?;
        qp.recv_half()
            .post(1, &[memory.slice(..)?])
            .map_err(Error::from)?;
        self.add(Part::plain("memory", memory))?;
        // A second handle of the id, as a program with several threads has.
        self.add(Part::Id(id.clone()))?;
        self.add(Part::Qp(qp))
    }

    fn request(&mut self, listening: &EventChannel) -> Result<CmId, Stopped> {
        let event = listening.next_event(Some(PATIENCE))?;
        let Event::ConnectRequest(request) = &event else {
            panic!("{event:?} instead of a request");
        };
        let id = request.id().clone();
        self.made.ids += 1;
        self.add(Part::Event(event))?;
        Ok(id)
    }

    /// Waits for an event, and keeps it.
    fn event(&mut self, channel: &EventChannel, name: &str) -> Result<(), Stopped> {
        let event = channel.next_event(Some(PATIENCE))?;
        assert_eq!(event.name(), name, "{event:?}");
        self.add(Part::Event(event))
    }

    /// Sends a message from the active side, and does not wait for its end.
    fn send(&mut self) -> Result<(), Stopped> {
        let mut qps = self.parts.iter_mut().filter_map(|part| match part {
            Part::Qp(qp) => Some(qp),
            _ => None,
        });
        let qp = qps.next().expect("the active side's queue pair");
        let mut batch = qp.send_half().batch();
        batch.send(2).signaled().from(&[]).map_err(Error::from)?;
        batch.submit().map_err(Error::from)?;
        self.step()
    }

    fn add(&mut self, part: Part) -> Result<(), Stopped> {
        self.parts.push(part);
        self.step()
    }

    /// A step is taken: goes on or stops, as planned.
    fn step(&mut self) -> Result<(), Stopped> {
        self.steps += 1;
        if self.steps < self.plan.steps {
            return Ok(());
        }
        match self.plan.then {
            Then::Return => Err(Stopped::Planned),
            // As `panic!`, without a message.
            Then::Panic => panic::resume_unwind(Box::new(Stopped::Planned)),
        }
    }
}
