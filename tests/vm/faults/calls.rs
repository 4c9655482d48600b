//! The system calls of a connection, and what is to come of their failure.

use rdmacm_kernel_abi::ucma;

use crate::tracer::{Event, Kind, Trace};

/// The errnos with which calls fail: a signal, a shortage, a wrong state, a removed device, a
/// missing permission.
pub const ERRNOS: [i32; 5] = [
    libc::EINTR,
    libc::ENOMEM,
    libc::EINVAL,
    libc::EIO,
    libc::EACCES,
];

/// A side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connects.
    Client,
    /// The one that listens and accepts.
    Server,
    /// The client in its sleep for the answer.
    SleepingClient,
    /// The server in its sleep for the message.
    SleepingServer,
}

/// What comes of a call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An error that names one of these operations, and the errno.
    Failure(&'static [&'static str]),
    /// An error with this text.
    Text(&'static str),
    /// The work is done all the same, for this reason.
    Success(&'static str),
}

/// A line of the table.
struct Call {
    name: &'static str,
    sides: &'static [Side],
    /// What comes of it, except with some errnos.
    outcome: Outcome,
    exceptions: &'static [(i32, Outcome)],
}

const BOTH: &[Side] = &[Side::Client, Side::Server];
const CLIENT: &[Side] = &[Side::Client];
const SERVER: &[Side] = &[Side::Server];
const SLEEPING: &[Side] = &[Side::SleepingClient, Side::SleepingServer];

/// A call whose failure is an error of one of these operations.
const fn fatal(
    name: &'static str,
    sides: &'static [Side],
    operations: &'static [&'static str],
) -> Call {
    Call {
        name,
        sides,
        outcome: Outcome::Failure(operations),
        exceptions: &[],
    }
}

/// A call whose failure has no consequence.
const fn harmless(name: &'static str, sides: &'static [Side], why: &'static str) -> Call {
    Call {
        name,
        sides,
        outcome: Outcome::Success(why),
        exceptions: &[],
    }
}

impl Call {
    const fn except(mut self, exceptions: &'static [(i32, Outcome)]) -> Self {
        self.exceptions = exceptions;
        self
    }
}

/// Interrupted by a signal, the call is made again.
const REPEATED: &[(i32, Outcome)] = &[(libc::EINTR, AGAIN)];
const AGAIN: Outcome = Outcome::Success("it is repeated");

/// Without permission sysfs is asked. EINVAL is how the kernel denies that there is a device.
const DISCOVERY: &[(i32, Outcome)] = &[(libc::EACCES, SYSFS), (libc::EINVAL, NO_DEVICE)];
const DISCOVERY_REPEATED: &[(i32, Outcome)] = &[
    (libc::EACCES, SYSFS),
    (libc::EINVAL, NO_DEVICE),
    (libc::EINTR, AGAIN),
];
const SYSFS: Outcome = Outcome::Success("sysfs is asked instead");
const NO_DEVICE: Outcome = Outcome::Text("the device with index");

const TWICE: &str = "a drop tries twice";
const OVER: &str = "the connection is over anyway";

/// All calls of all sides.
const CALLS: &[Call] = &[
    fatal("openat rdma_cm", BOTH, &["open_event_channel"]).except(REPEATED),
    fatal("CREATE_ID", BOTH, &["create_id"]),
    fatal("BIND", SERVER, &["bind_addr"]),
    fatal("LISTEN", SERVER, &["listen"]),
    fatal("RESOLVE_ADDR", CLIENT, &["resolve_addr"]),
    fatal("RESOLVE_ROUTE", CLIENT, &["resolve_route"]),
    fatal("QUERY", BOTH, &["query"]),
    fatal("MIGRATE_ID", SERVER, &["migrate_id"]),
    fatal("poll rdma_cm", BOTH, &["next_event"]).except(REPEATED),
    fatal("GET_EVENT", BOTH, &["next_event"]).except(REPEATED),
    fatal("socket netlink rdma", BOTH, &["devices"]).except(DISCOVERY),
    fatal("sendto netlink rdma", BOTH, &["devices"]).except(DISCOVERY),
    fatal("recvmmsg netlink rdma", BOTH, &["devices"]).except(DISCOVERY_REPEATED),
    fatal("openat uverbs", BOTH, &["open_device"]).except(REPEATED),
    fatal("newfstatat uverbs", BOTH, &["open_device"]),
    fatal("DEVICE.GET_CONTEXT", BOTH, &["open_device"]),
    fatal("invoke EX_QUERY_DEVICE", BOTH, &["query_device"]),
    fatal("invoke ALLOC_PD", BOTH, &["alloc_pd"]),
    fatal("invoke CREATE_COMP_CHANNEL", BOTH, &["create_comp_channel"]),
    fatal("CQ.CREATE", BOTH, &["create_cq"]),
    fatal("QP.CREATE", BOTH, &["create_qp"]),
    fatal("mmap uverbs", BOTH, &["map_queue"]),
    fatal("invoke REG_MR", BOTH, &["reg_mr"]),
    fatal("CONNECT", CLIENT, &["connect"]),
    fatal("INIT_QP_ATTR", BOTH, &["init_qp_attr"]),
    fatal("invoke MODIFY_QP", BOTH, &["modify_qp"]),
    fatal("ACCEPT", BOTH, &["accept"]),
    fatal("POST_SEND", BOTH, &["post"]).except(REPEATED),
    fatal("invoke REQ_NOTIFY_CQ", SLEEPING, &["req_notify_cq"]),
    fatal("poll events", SLEEPING, &["recv", "send"]).except(REPEATED),
    fatal("read events", SLEEPING, &["next_cq_event"]).except(REPEATED),
    fatal("DISCONNECT", CLIENT, &["disconnect"]),
    fatal("QP.DESTROY", CLIENT, &["destroy_qp"]),
    harmless("CQ.DESTROY", CLIENT, TWICE),
    harmless("MR.DESTROY", CLIENT, TWICE),
    fatal("DESTROY_ID", BOTH, &["destroy_id"]),
    harmless("DESTROY_ID of a listener", SERVER, TWICE),
    fatal("GET_EVENT at the end", SERVER, &["next_event"]).except(REPEATED),
    harmless("invoke MODIFY_QP at the end", SERVER, OVER),
    harmless("DISCONNECT at the end", SERVER, OVER),
    fatal("QP.DESTROY at the end", SERVER, &["destroy_qp"]),
    harmless("CQ.DESTROY at the end", SERVER, TWICE),
    harmless("MR.DESTROY at the end", SERVER, TWICE),
];

/// The calls of a side, by their names in the table.
pub fn all_of(side: Side) -> impl Iterator<Item = &'static str> {
    let calls = CALLS.iter().filter(move |call| call.sides.contains(&side));
    calls.map(|call| call.name)
}

/// Whether the calls with a name are to fail, seen alone: those of the table, and for a whole side
/// also those that should be in it.
pub fn is_to_fail(side: Side, name: &str) -> bool {
    BOTH.contains(&side) || all_of(side).any(|call| call == name)
}

/// What comes of the failure of a call.
///
/// # Errors
///
/// A call that is not in the table.
pub fn outcome(name: &str, errno: i32) -> Result<Outcome, String> {
    let call = CALLS.iter().find(|call| call.name == name);
    let call = call.ok_or(format!("{name} is not in the table"))?;
    let exception = call.exceptions.iter().find(|(of, _)| *of == errno);
    Ok(exception.map_or(call.outcome, |(_, outcome)| *outcome))
}

/// What a call is, seen alone.
pub fn name(event: &Event) -> String {
    match &event.kind {
        Kind::Device(target) => format!("{} {target}", event.name()),
        _ => event.name(),
    }
}

/// The name of a call in the table, which tells apart what the same call is used for.
pub fn name_in_table(trace: &Trace, event: &Event) -> String {
    let name = name(event);
    let mut before = trace
        .events
        .iter()
        .take_while(|other| other.seq < event.seq);
    if event.is_cm(ucma::Command::DestroyId) {
        let is_listener =
            before.any(|other| other.is_cm(ucma::Command::Listen) && of_same_id(other, event));
        return if is_listener {
            format!("{name} of a listener")
        } else {
            name
        };
    }
    let tells_uses_apart = !matches!(event.kind, Kind::Device(_));
    if tells_uses_apart && before.any(is_end) {
        return format!("{name} at the end");
    }
    name
}

fn of_same_id(event: &Event, other: &Event) -> bool {
    event.cm().map(|command| command.id) == other.cm().map(|command| command.id)
}

/// Whether it reports that the peer has disconnected.
fn is_end(event: &Event) -> bool {
    let reported = event.cm().and_then(|command| command.event.as_ref());
    reported.is_some_and(|event| event.kind == ucma::EventType::DISCONNECTED)
}
