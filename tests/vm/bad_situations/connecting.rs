//! Calls that do not fit what was done with the id before.

use rdmacm::{CmId, ConnParam, ErrorKind, EventChannel, PortSpace, QpAttr, Result};

use super::{Situation, bound_id, check, fresh_id, listening_id, ready_client, resolved_id};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{End, PATIENCE, Pair, Plan, any_port, expect, listen, request};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        steps_in_the_wrong_order,
        steps_taken_twice,
        disconnecting_what_is_not_connected,
        a_refused_disconnect_changes_nothing,
    ]
}

fn resolve_addr(id: &CmId) -> Result<()> {
    id.resolve_addr(None, any_port(), PATIENCE)
}

/// A client whose peer has accepted.
fn connected() -> Result<End> {
    Ok(Plan::default().connect()?.client)
}

/// A client whose peer has rejected it.
fn rejected() -> Result<End> {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = Plan::default().ask(listener.local_addr().expect("it listens"))?;
    request(&channel)?.into_id().reject(&[])?;
    expect(&client.channel, "REJECTED")?;
    Ok(client)
}

/// The id of a request that was not answered yet, with what keeps the client asking.
fn asked() -> Result<(CmId, End)> {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client = Plan::default().ask(listener.local_addr().expect("it listens"))?;
    Ok((request(&channel)?.into_id(), client))
}

const WRONG_ORDER: &[Situation] = &[
    Situation {
        name: "make a queue pair on an id without a device",
        make: || {
            let pd = crate::environment::context().default_pd()?;
            fresh_id()?.create_qp(&QpAttr::new(&pd)).map(drop)
        },
        kind: ErrorKind::InvalidState,
        words: &["create_qp", "no device yet", "resolve an address first"],
    },
    Situation {
        name: "resolve the route before the address",
        make: || fresh_id()?.resolve_route(PATIENCE),
        kind: ErrorKind::Kernel,
        words: &["the address is not resolved yet"],
    },
    Situation {
        name: "connect before the address is resolved",
        make: || fresh_id()?.connect(&ConnParam::new()),
        kind: ErrorKind::InvalidState,
        words: &["connect", "no device yet", "resolve an address first"],
    },
    Situation {
        name: "connect before the route is resolved",
        make: || {
            let channel = EventChannel::open()?;
            let id = channel.create_id(PortSpace::Tcp)?;
            resolve_addr(&id)?;
            expect(&channel, "ADDR_RESOLVED")?;
            let client = Plan::default().end(id, channel)?;
            client.id.connect(&ConnParam::new())
        },
        kind: ErrorKind::Kernel,
        words: &["the route is not resolved"],
    },
    Situation {
        name: "connect without a queue pair",
        make: || resolved_id()?.connect(&ConnParam::new()),
        kind: ErrorKind::InvalidState,
        words: &["connect", "make a queue pair first (create_qp)"],
    },
    Situation {
        name: "accept without a queue pair",
        make: || asked()?.0.accept(&ConnParam::new()),
        kind: ErrorKind::InvalidState,
        words: &["accept", "make a queue pair first (create_qp)"],
    },
    Situation {
        name: "accept on an id that asks itself",
        make: || ready_client()?.id.accept(&ConnParam::new()),
        kind: ErrorKind::InvalidState,
        words: &["no connection request that waits for an answer"],
    },
    Situation {
        name: "reject on an id that listens",
        make: || listening_id()?.reject(&[]),
        kind: ErrorKind::InvalidState,
        words: &["no connection request that waits for an answer"],
    },
    Situation {
        name: "listen on an id that connects",
        make: || resolved_id()?.listen(0),
        kind: ErrorKind::Kernel,
        words: &["is used to connect"],
    },
];

fn steps_in_the_wrong_order() -> TestResult {
    check(WRONG_ORDER)
}

/// F83: an id makes one connection.
const TWICE: &[Situation] = &[
    Situation {
        name: "bind twice",
        make: || bound_id()?.bind_addr(any_port()),
        kind: ErrorKind::Kernel,
        words: &["the id is bound already"],
    },
    Situation {
        name: "resolve the address twice",
        make: || resolve_addr(&resolved_id()?),
        kind: ErrorKind::Kernel,
        words: &["the address is resolved already"],
    },
    Situation {
        name: "resolve the route twice",
        make: || resolved_id()?.resolve_route(PATIENCE),
        kind: ErrorKind::Kernel,
        words: &["the route is resolved already"],
    },
    Situation {
        name: "listen twice",
        make: || listening_id()?.listen(0),
        kind: ErrorKind::Kernel,
        words: &["listens already"],
    },
    Situation {
        name: "make a second queue pair",
        make: || {
            let End {
                id, pd, send_cq, ..
            } = ready_client()?;
            let attr = QpAttr::new(&pd).send_cq(&send_cq).recv_cq(&send_cq);
            id.create_qp(&attr).map(drop)
        },
        kind: ErrorKind::InvalidState,
        words: &["the id has a queue pair already"],
    },
    Situation {
        name: "connect while connected",
        make: || connected()?.id.connect(&ConnParam::new()),
        kind: ErrorKind::Kernel,
        words: &["make a new id for each attempt"],
    },
    Situation {
        name: "connect again after a rejection",
        make: || rejected()?.id.connect(&ConnParam::new()),
        kind: ErrorKind::Kernel,
        words: &["make a new id for each attempt"],
    },
    Situation {
        name: "accept twice",
        make: || {
            Plan::default()
                .connect()?
                .server
                .id
                .accept(&ConnParam::new())
        },
        kind: ErrorKind::InvalidState,
        words: &["no connection request that waits for an answer"],
    },
    Situation {
        name: "reject twice",
        make: || {
            let (id, _client) = asked()?;
            id.reject(&[])?;
            id.reject(&[])
        },
        kind: ErrorKind::InvalidState,
        words: &["no connection request that waits for an answer"],
    },
    Situation {
        name: "destroy twice",
        make: || {
            let id = bound_id()?;
            id.destroy()?;
            id.destroy()
        },
        kind: ErrorKind::Destroyed,
        words: &["the id was destroyed"],
    },
    Situation {
        name: "use an id after destroying it",
        make: || {
            let id = resolved_id()?;
            id.destroy()?;
            id.connect(&ConnParam::new())
        },
        kind: ErrorKind::Destroyed,
        words: &["connect", "the id was destroyed"],
    },
];

fn steps_taken_twice() -> TestResult {
    check(TWICE)
}

/// F81.
const NOT_CONNECTED: &[Situation] = &[
    Situation {
        name: "disconnect a new id",
        make: || fresh_id()?.disconnect(),
        kind: ErrorKind::InvalidState,
        words: &["the id was never connected"],
    },
    Situation {
        name: "disconnect a bound id",
        make: || bound_id()?.disconnect(),
        kind: ErrorKind::InvalidState,
        words: &["the id was never connected"],
    },
    Situation {
        name: "disconnect a listener",
        make: || listening_id()?.disconnect(),
        kind: ErrorKind::InvalidState,
        words: &["the id was never connected"],
    },
    Situation {
        name: "disconnect a resolved id",
        make: || resolved_id()?.disconnect(),
        kind: ErrorKind::InvalidState,
        words: &["the id was never connected"],
    },
    Situation {
        name: "disconnect a request instead of rejecting it",
        make: || asked()?.0.disconnect(),
        kind: ErrorKind::InvalidState,
        words: &["the id was never connected"],
    },
];

fn disconnecting_what_is_not_connected() -> TestResult {
    check(NOT_CONNECTED)
}

/// A client that disconnects too early can still connect.
fn a_refused_disconnect_changes_nothing() -> TestResult {
    let plan = Plan::default();
    let listening = EventChannel::open()?;
    let listener = listen(&listening, plan.address)?;
    let channel = EventChannel::open()?;
    let peer = listener.local_addr().expect("it listens");
    let client = plan.end(crate::pair::resolve(&channel, peer)?, channel)?;
    let early = client.id.disconnect();
    assert!(early.is_err());
    client.id.connect(&plan.asked)?;
    let server = plan.end(request(&listening)?.into_id(), listening)?;
    server.id.accept(&plan.answered)?;
    expect(&client.channel, "ESTABLISHED")?;
    let mut pair = Pair { client, server };
    let target = pair.server.buffer(1)?.remote();
    pair.client
        .post(|batch| batch.write(1, target).signaled().from(&[]))?;
    pair.client.sent()?.result()?;
    Ok(Outcome::Pass)
}
