//! A device that is removed under everything that uses it, and comes back.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rdmacm::{
    Address, CmId, ConnParam, Connection, Connector, ErrorKind, Event, EventChannel, Listener,
    Membership, PortSpace, QpState, Result, SyncId,
};

use super::sync;
use crate::bad_situations::second_device::{SecondDevice, rdma_link};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, PATIENCE, Plan, QUIET, listen, request, resolve};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        what_nobody_is_told_of_can_be_dropped,
        every_id_is_told,
        waits_end,
        a_wildcard_listener_outlives_its_devices,
    ]
}

/// The address of the device that goes, with a port of the kernel's choice.
fn its_address() -> SocketAddr {
    (environment::plain_addr(), 0).into()
}

/// Makes rdma_cm the first to hear of a removal, as it is where it was loaded after ib_uverbs.
///
/// The kernel tells its modules in the reverse order of their loading. Before Linux 7, rxe has
/// ib_uverbs wait until all contexts of the device are closed; if that comes first, the ids, which
/// keep a context open, are never told.
fn tell_ids_first() -> io::Result<()> {
    for command in ["rmmod rdma_ucm", "rmmod rdma_cm", "modprobe rdma_ucm"] {
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new(words[0]).args(&words[1..]).output()?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("{command}: {printed}")));
        }
    }
    Ok(())
}

/// A removal that is under way. Kernels before 7 finish it when the last context of the device is
/// closed.
pub struct Removal(Receiver<io::Result<()>>);

impl Removal {
    pub fn of(device: SecondDevice) -> Self {
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let removed = rdma_link(&["delete", SecondDevice::name()]);
            // There is nothing left to remove when it is dropped.
            std::mem::forget(device);
            let _ = end.send(removed);
        });
        Self(ended)
    }

    pub fn wait(self) -> TestResult {
        let removed = self.0.recv_timeout(PATIENCE);
        removed.map_err(|_| "the device is not removed: who has it open?")??;
        Ok(Outcome::Pass)
    }
}

/// An id in some state, and its channel.
struct Subject {
    state: &'static str,
    id: CmId,
    channel: EventChannel,
}

impl Subject {
    fn new(state: &'static str, channel: &EventChannel, id: &CmId) -> Self {
        let (id, channel) = (id.clone(), channel.clone());
        Self { state, id, channel }
    }

    fn of(state: &'static str, end: &End) -> Self {
        Self::new(state, &end.channel, &end.id)
    }

    /// Reads up to the news of the removal. The end of a connection may come first.
    fn await_removal(&self) {
        loop {
            let event = self
                .channel
                .next_event(Some(PATIENCE))
                .unwrap_or_else(|error| panic!("{}: {error}", self.state));
            match event {
                Event::DeviceRemoval(event) => {
                    assert_eq!(event.id(), &self.id, "{}", self.state);
                    return;
                }
                Event::Disconnected(_) | Event::Rejected(_) | Event::TimewaitExit(_) => {}
                other => panic!("{}: {other:?}", self.state),
            }
        }
    }

    /// What is wrong with the answers of the id's calls.
    fn complaints(&self) -> Vec<String> {
        let answers = CALLS.iter().map(|(name, call)| (*name, call(&self.id)));
        answers
            .filter_map(|(name, answer)| match answer {
                Err(error) if is_clear(&error) => None,
                answer => Some(format!("{}, {name}: {answer:?}", self.state)),
            })
            .collect()
    }
}

/// An error that tells of the device, or of a mistake that is none of the device's.
fn is_clear(error: &rdmacm::Error) -> bool {
    match error.kind() {
        ErrorKind::DeviceRemoved => error.to_string().contains("device is gone"),
        ErrorKind::InvalidState | ErrorKind::InvalidInput => true,
        _ => false,
    }
}

/// A call and its name.
type Call = (&'static str, fn(&CmId) -> Result<()>);

/// All that asks the kernel about an id.
const CALLS: &[Call] = &[
    ("bind_addr", |id| id.bind_addr(its_address())),
    ("resolve_addr", |id| {
        id.resolve_addr(None, its_address(), PATIENCE)
    }),
    ("resolve_route", |id| id.resolve_route(PATIENCE)),
    ("listen", |id| id.listen(1)),
    ("connect", |id| id.connect(&ConnParam::new())),
    ("accept", |id| id.accept(&ConnParam::new())),
    ("reject", |id| id.reject(b"")),
    ("establish", CmId::establish),
    ("notify_established", CmId::notify_established),
    ("disconnect", CmId::disconnect),
    ("join_multicast", |id| {
        id.join_multicast(group(), Membership::Full)
    }),
    ("set_type_of_service", |id| id.set_type_of_service(1)),
    ("set_reuse_addr", |id| id.set_reuse_addr(true)),
    ("set_ack_timeout", |id| id.set_ack_timeout(1)),
    ("init_qp_attr", |id| {
        id.init_qp_attr(QpState::Init).map(drop)
    }),
    ("migrate", |id| id.migrate(&EventChannel::open()?)),
];

fn group() -> Address {
    SocketAddr::from(([239, 1, 2, 3], 0)).into()
}

/// Whether a program hears of the removal before its contexts are closed depends on the machine. It
/// must be able to let go in any case.
fn what_nobody_is_told_of_can_be_dropped() -> TestResult {
    let device = SecondDevice::add()?;
    let plan = Plan {
        address: its_address(),
        ..Plan::default()
    };
    let pair = plan.connect()?;
    let (client, server) = connect_over(its_address())?;
    let removal = Removal::of(device);
    thread::sleep(QUIET);
    drop((pair, client));
    server.close()?;
    removal.wait()
}

fn every_id_is_told() -> TestResult {
    tell_ids_first()?;
    let device = SecondDevice::add()?;
    let open = EventChannel::open;

    let channels = [open()?, open()?, open()?, open()?, open()?];
    let [bound_on, listening_on, resolved_on, routed_on, group_on] = &channels;
    let bound = bound_on.create_id(PortSpace::Tcp)?;
    bound.bind_addr(its_address())?;
    let listening = listen(listening_on, its_address())?;
    let resolved = resolved_on.create_id(PortSpace::Tcp)?;
    resolved.resolve_addr(None, its_address(), PATIENCE)?;
    crate::pair::expect(resolved_on, "ADDR_RESOLVED")?;
    let routed = resolve(routed_on, its_address())?;
    let member = group_on.create_id(PortSpace::Udp)?;
    member.bind_addr(its_address())?;
    member.join_multicast(group(), Membership::Full)?;
    crate::pair::expect(group_on, "MULTICAST_JOIN")?;
    let plan = Plan {
        address: its_address(),
        ..Plan::default()
    };
    let asking = plan.ask(listening.local_addr().expect("it listens"))?;
    let asked = request(listening_on)?.into_id();
    let pair = plan.connect()?;
    let other = Plan::default().connect()?;

    let subjects = [
        Subject::new("bound", bound_on, &bound),
        Subject::new("listening", listening_on, &listening),
        Subject::new("resolved", resolved_on, &resolved),
        Subject::new("routed", routed_on, &routed),
        Subject::new("in a group", group_on, &member),
        Subject::of("asking", &asking),
        Subject::of("connected client", &pair.client),
        Subject::of("connected server", &pair.server),
    ];
    let removal = Removal::of(device);
    subjects.iter().for_each(Subject::await_removal);
    // A request that was not answered gets no events, only refusals.
    let asked = Subject::new("asked", listening_on, &{ asked });
    let complaints: Vec<String> = subjects
        .iter()
        .chain([&asked])
        .flat_map(Subject::complaints)
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    // What is on another device is not concerned.
    let quiet = other.client.channel.next_event(Some(QUIET));
    assert_eq!(quiet.expect_err("it goes on").kind(), ErrorKind::TimedOut);

    // Each is destroyed as ever: some by call, the others by being dropped.
    bound.destroy()?;
    pair.client.id.destroy()?;
    pair.server.qp.destroy()?;
    pair.server.id.destroy()?;
    drop((subjects, asked, asking, pair));
    drop((listening, resolved, routed, member, bound));
    drop((other, channels));
    removal.wait()
}

/// Every call that waits says why it ended.
fn waits_end() -> TestResult {
    use ErrorKind::{DeviceRemoved, Disconnected, Rejected};
    tell_ids_first()?;
    let device = SecondDevice::add()?;
    let (mut client, mut server) = connect_over(its_address())?;
    let (mut sync_client, mut sync_server) = sync::connect_over(its_address())?;
    let listener = Listener::bind(its_address())?;
    let sync_listener = SyncId::create(PortSpace::Tcp)?;
    sync_listener.bind_addr(its_address())?;
    sync_listener.listen(0)?;
    // Nobody fetches the request.
    let deaf = EventChannel::open()?;
    let silent = listen(&deaf, its_address())?;
    let peer = silent.local_addr().expect("it listens");
    let mut asking = sync::client(peer)?;
    let mut idle = sync::client(peer)?;

    let (removal, ends) = thread::scope(|scope| {
        // The other end may be told first, and end the connection.
        let ended = &[DeviceRemoved, Disconnected][..];
        let waits = [
            (ended, scope.spawn(|| client.recv_completion().map(drop))),
            (ended, scope.spawn(|| server.send_completion().map(drop))),
            (
                ended,
                scope.spawn(|| sync_client.recv_completion().map(drop)),
            ),
            (
                &[DeviceRemoved, Rejected],
                scope.spawn(|| asking.connect(&ConnParam::new())),
            ),
            (
                &[DeviceRemoved],
                scope.spawn(|| idle.recv_completion().map(drop)),
            ),
            (
                &[DeviceRemoved],
                scope.spawn(|| listener.incoming(None).map(drop)),
            ),
            (
                &[DeviceRemoved],
                scope.spawn(|| sync_listener.get_request().map(drop)),
            ),
        ];
        let disconnecting = scope.spawn(|| sync_server.disconnect());
        thread::sleep(QUIET);
        let removal = Removal::of(device);
        let ends = waits.map(|(kinds, wait)| (kinds, wait.join().expect("no thread panics")));
        // The other end's removal is an answer.
        if let Err(error) = disconnecting.join().expect("no thread panics") {
            assert_eq!(error.kind(), DeviceRemoved, "{error}");
        }
        (removal, ends)
    });
    for (number, (kinds, end)) in ends.into_iter().enumerate() {
        let error = end.expect_err("there is nothing to wait for");
        assert!(kinds.contains(&error.kind()), "wait {number}: {error}");
    }
    drop((client, server, sync_client, sync_server));
    drop((listener, sync_listener, asking, idle, silent, deaf));
    removal.wait()
}

fn connect_over(address: SocketAddr) -> Result<(Connection, Connection)> {
    let listener = Listener::bind(address)?;
    let peer = listener.local_addr().expect("it listens");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.incoming(Some(PATIENCE))?.prepare()?.establish());
        let connected = Connector::new().connect(peer);
        let accepted = accepting.join().expect("the server does not panic");
        Ok((connected?, accepted?))
    })
}

/// It listens on every device that there is at the moment.
fn a_wildcard_listener_outlives_its_devices() -> TestResult {
    tell_ids_first()?;
    let listener = Listener::bind(("0.0.0.0", 0))?;
    let port = listener.local_addr().expect("it listens").port();
    for _ in 0..3 {
        let device = SecondDevice::add()?;
        let peer = SocketAddr::new(environment::plain_addr(), port);
        let (client, server) = thread::scope(|scope| {
            let accepting =
                scope.spawn(|| listener.incoming(Some(PATIENCE))?.prepare()?.establish());
            let connected = Connector::new().connect(peer);
            let accepted = accepting.join().expect("the server does not panic");
            Ok::<_, rdmacm::Error>((connected?, accepted?))
        })?;
        let context = server.id().context()?;
        assert_eq!(context.device().name(), SecondDevice::name());
        let removal = Removal::of(device);
        for mut end in [client, server] {
            end.set_timeout(Some(PATIENCE));
            let error = end.recv_completion().expect_err("the device goes");
            let kinds = [ErrorKind::DeviceRemoved, ErrorKind::Disconnected];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
        // The context is what the removal may wait for.
        drop(context);
        removal.wait()?;
        let nothing = listener.incoming(Some(Duration::from_millis(1)));
        assert_eq!(
            nothing.expect_err("nobody asks").kind(),
            ErrorKind::TimedOut
        );
    }
    Ok(Outcome::Pass)
}
