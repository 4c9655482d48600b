//! Ids without a queue pair: the program makes its own and moves it by hand.

use rdmacm::{
    CmId, Completion, ConnParam, Cq, Ece, ErrorKind, EventChannel, Pd, Qp, QpAttr, QpModify,
    QpState, Result,
};

use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{
    ANY_ACCESS, QUIET, any_port, assert_holds, expect, listen, next_completion, pattern, request,
    resolve,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        a_queue_pair_of_the_programs_own_is_connected_and_carries_data,
        a_disconnect_leaves_a_queue_pair_of_the_programs_own_alone,
        vendor_options_reach_the_other_side,
        calls_for_the_other_kind_of_id_are_refused,
        a_message_before_the_last_word_can_be_notified,
    ]
}

/// A queue pair that no id knows, with the queue for its completions.
struct Own {
    qp: Qp,
    cq: Cq,
    pd: Pd,
}

impl Own {
    fn new(id: &CmId) -> Result<Self> {
        let pd = id.protection_domain()?;
        let context = pd.context();
        let channel = context.completion_channel()?;
        let cq = context.completion_queue(64).channel(&channel).build()?;
        let qp = pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        qp.modify(&id.init_qp_attr(QpState::Init)?)?;
        Ok(Self { qp, cq, pd })
    }

    /// To RTS, as the connection manager proposes.
    fn make_ready(&self, id: &CmId) -> Result<()> {
        self.qp.modify(&id.init_qp_attr(QpState::Rtr)?)?;
        self.qp.modify(&id.init_qp_attr(QpState::Rts)?)
    }

    fn param(&self) -> ConnParam {
        ConnParam::new().own_qp(self.qp.number(), false)
    }
}

/// The client has the peer's answer, the server has accepted.
fn half_connected(
    set: impl Fn(&CmId, Option<&CmId>) -> Result<()>,
) -> Result<[(EventChannel, CmId, Own); 2]> {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client_channel = EventChannel::open()?;
    let client = resolve(&client_channel, listener.local_addr().unwrap())?;
    set(&client, None)?;
    let own = Own::new(&client)?;
    client.connect(&own.param())?;
    let asked = request(&channel)?;
    assert_eq!(asked.connection().qp_num, own.qp.number());
    let server = asked.into_id();
    set(&server, Some(&client))?;
    let servers_own = Own::new(&server)?;
    servers_own.make_ready(&server)?;
    server.accept(&servers_own.param())?;
    let event = expect(&client_channel, "CONNECT_RESPONSE")?;
    let answer = event.content().unwrap().connection();
    assert_eq!(answer.qp_num, servers_own.qp.number());
    own.make_ready(&client)?;
    Ok([
        (client_channel, client, own),
        (channel, server, servers_own),
    ])
}

fn a_queue_pair_of_the_programs_own_is_connected_and_carries_data() -> TestResult {
    let [
        (channel, client, mut own),
        (server_channel, server, mut servers_own),
    ] = half_connected(|_, _| Ok(()))?;
    client.establish()?;
    expect(&server_channel, "ESTABLISHED")?;
    let inbox = servers_own.pd.alloc(3000, ANY_ACCESS)?;
    servers_own.qp.recv_half().post(1, &[inbox.slice(..)?])?;
    let mut outbox = own.pd.alloc(3000, ANY_ACCESS)?;
    outbox.write(0, &pattern(5, 3000))?;
    let mut batch = own.qp.send_half().batch();
    batch.send(2).signaled().from(&[outbox.slice(..)?])?;
    batch.submit()?;
    next_completion(&mut own.cq)?.result()?;
    next_completion(&mut servers_own.cq)?.result()?;
    assert_holds(&inbox, 0, &pattern(5, 3000));
    client.disconnect()?;
    expect(&server_channel, "DISCONNECTED")?;
    server.disconnect()?;
    expect(&channel, "DISCONNECTED")?;
    Ok(Outcome::Pass)
}

/// F118: its receives come back when the program moves it to the error state.
fn a_disconnect_leaves_a_queue_pair_of_the_programs_own_alone() -> TestResult {
    let [(_, client, _own), (channel, server, mut own)] = half_connected(|_, _| Ok(()))?;
    client.establish()?;
    expect(&channel, "ESTABLISHED")?;
    let inbox = own.pd.alloc(64, ANY_ACCESS)?;
    own.qp.recv_half().post(1, &[inbox.slice(..)?])?;
    client.disconnect()?;
    expect(&channel, "DISCONNECTED")?;
    server.disconnect()?;
    std::thread::sleep(QUIET);
    let mut entry = [Completion::default()];
    assert!(own.cq.poll(&mut entry).is_empty(), "{entry:?}");
    own.qp.modify(&QpModify::to(QpState::Error))?;
    let flushed = next_completion(&mut own.cq)?;
    let failure = flushed.result().expect_err("nothing was received");
    assert!(failure.is_flush(), "{failure:?}");
    Ok(Outcome::Pass)
}

fn vendor_options_reach_the_other_side() -> TestResult {
    let ece = |vendor_id, options| Ece { vendor_id, options };
    let [(_, client, _), _] = half_connected(|id, asking| {
        if asking.is_none() {
            return id.set_local_ece(ece(0x15b3, 0x30));
        }
        assert_eq!(id.remote_ece()?, Some(ece(0x15b3, 0x30)));
        id.set_local_ece(ece(0x15b3, 0x10))
    })?;
    assert_eq!(client.remote_ece()?, Some(ece(0x15b3, 0x10)));
    Ok(Outcome::Pass)
}

fn calls_for_the_other_kind_of_id_are_refused() -> TestResult {
    let channel = EventChannel::open()?;
    let listener = listen(&channel, any_port())?;
    let client_channel = EventChannel::open()?;
    let client = resolve(&client_channel, listener.local_addr().unwrap())?;
    for state in [QpState::Rtr, QpState::Rts] {
        let early = client.init_qp_attr(state).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::InvalidState, "{early}");
    }
    assert!(client.init_qp_attr(QpState::Error).is_err());
    assert!(client.establish().is_err(), "there is no answer to finish");
    assert!(
        client.connect(&ConnParam::new()).is_err(),
        "no queue pair is named"
    );
    let zero = Ece {
        vendor_id: 0,
        options: 1,
    };
    assert_eq!(
        client.set_local_ece(zero).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let pair = crate::pair::Plan::default().connect()?;
    for refused in [
        pair.client.id.establish(),
        pair.client.id.set_local_ece(Ece {
            vendor_id: 1,
            options: 1,
        }),
        pair.client.id.remote_ece().map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidState);
    }
    Ok(Outcome::Pass)
}

fn a_message_before_the_last_word_can_be_notified() -> TestResult {
    let [(_channel, client, _own), (server_channel, server, _)] = half_connected(|_, _| Ok(()))?;
    server.notify_established()?;
    expect(&server_channel, "ESTABLISHED")?;
    assert_eq!(
        server.notify_established().unwrap_err().errno(),
        Some(libc::EISCONN)
    );
    client.establish()?;
    let listener = listen(&server_channel, any_port())?;
    assert!(listener.notify_established().is_err());
    Ok(Outcome::Pass)
}
