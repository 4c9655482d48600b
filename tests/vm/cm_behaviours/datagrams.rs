//! Datagrams: the UDP port space.

use rdmacm::{
    CmId, ConnParam, Cq, DatagramPeer, Destination, ErrorKind, EventChannel, GRH_LENGTH, Pd,
    PortSpace, Qp, QpAttr, Result, Status, Step,
};

use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{
    ANY_ACCESS, PATIENCE, any_port, assert_holds, expect, next_completion, pattern, request,
};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        datagrams_pass_and_are_answered,
        nobody_listening_and_a_rejection_are_told,
        private_data_limits_of_datagrams_are_exact,
        ipoib_is_refused_with_a_reason_on_roce,
        a_disconnect_ends_nothing,
    ]
}

struct Node {
    id: CmId,
    channel: EventChannel,
    pd: Pd,
    cq: Cq,
    qp: Qp,
}

impl Node {
    fn new(id: CmId, channel: EventChannel) -> Result<Self> {
        let pd = id.protection_domain()?;
        let context = pd.context();
        let completions = context.completion_channel()?;
        let cq = context.completion_queue(64).channel(&completions).build()?;
        let qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        Ok(Self {
            id,
            channel,
            pd,
            cq,
            qp,
        })
    }

    fn send(&mut self, to: &DatagramPeer, message: &[u8]) -> Result<()> {
        let mut buffer = self.pd.alloc(message.len(), ANY_ACCESS)?;
        buffer.write(0, message)?;
        let handle = self.pd.address_handle(&to.path)?;
        let destination = Destination {
            handle: &handle,
            qp_num: to.qp_num,
            qkey: to.qkey,
        };
        let mut batch = self.qp.send_half().batch();
        batch
            .send_datagram_immediate(1, destination, 0x0102_0304)
            .signaled()
            .from(&[buffer.slice(..)?])?;
        batch.submit()?;
        next_completion(&mut self.cq)?.result()?;
        Ok(())
    }
}

fn listen() -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open()?;
    let listener = channel.create_id(PortSpace::Udp)?;
    listener.bind_addr(any_port())?;
    listener.listen(0)?;
    Ok((channel, listener))
}

fn resolve(port: u16) -> Result<Node> {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Udp)?;
    id.resolve_addr(None, (environment::addr(), port), PATIENCE)?;
    expect(&channel, "ADDR_RESOLVED")?;
    id.resolve_route(PATIENCE)?;
    expect(&channel, "ROUTE_RESOLVED")?;
    Node::new(id, channel)
}

fn port(listener: &CmId) -> u16 {
    listener.local_addr().expect("it listens").port()
}

fn datagrams_pass_and_are_answered() -> TestResult {
    let (channel, listener) = listen()?;
    let mut client = resolve(port(&listener))?;
    client
        .id
        .connect(&ConnParam::new().private_data(b"hello")?)?;
    let asked = request(&channel)?;
    assert_eq!(asked.connection().trimmed(), b"hello");
    assert_eq!(asked.connection().private_data.len(), 180);
    let mut server = Node::new(asked.into_id(), channel)?;
    let inbox = server.pd.alloc(GRH_LENGTH + 1000, ANY_ACCESS)?;
    server.qp.recv_half().post(1, &[inbox.slice(..)?])?;
    server.id.accept(&ConnParam::new())?;
    let event = expect(&client.channel, "ESTABLISHED")?;
    let peer = *event
        .content()
        .unwrap()
        .datagram()
        .expect("the way to the server");
    assert_eq!(peer.qp_num, server.qp.number());
    // The server hears no event of its own: it has said all there is to say.
    client.send(&peer, &pattern(1, 1000))?;
    let completion = next_completion(&mut server.cq)?;
    let received = completion.result()?;
    assert_eq!(received.byte_len() as usize, GRH_LENGTH + 1000);
    assert_eq!(received.immediate(), Some(0x0102_0304));
    assert!(received.has_grh());
    assert_eq!(received.source_qp(), client.qp.number());
    assert_holds(&inbox, GRH_LENGTH, &pattern(1, 1000));

    // Back to where it came from.
    let answer_box = client.pd.alloc(GRH_LENGTH + 10, ANY_ACCESS)?;
    client.qp.recv_half().post(2, &[answer_box.slice(..)?])?;
    let grh: [u8; GRH_LENGTH] = inbox.read_vec(0, GRH_LENGTH)?.try_into().unwrap();
    let mut back = peer;
    back.path = server
        .id
        .context()?
        .reply_path(&received, &grh, server.id.port()?)?;
    back.qp_num = received.source_qp();
    server.send(&back, b"answer")?;
    let completion = next_completion(&mut client.cq)?;
    assert_eq!(completion.result()?.byte_len() as usize, GRH_LENGTH + 6);
    assert_holds(&answer_box, GRH_LENGTH, b"answer");
    Ok(Outcome::Pass)
}

fn nobody_listening_and_a_rejection_are_told() -> TestResult {
    let (channel, listener) = listen()?;
    let client = resolve(port(&listener))?;
    client.id.connect(&ConnParam::new())?;
    request(&channel)?.into_id().reject(b"no")?;
    let event = expect(&client.channel, "UNREACHABLE")?;
    assert!(
        matches!(event.status(), Status::Rejected(reason) if reason.0 == 2),
        "{event:?}"
    );
    let port = port(&listener);
    drop(listener);
    let client = resolve(port)?;
    client.id.connect(&ConnParam::new())?;
    let event = expect(&client.channel, "UNREACHABLE")?;
    assert!(
        matches!(event.status(), Status::Rejected(reason) if reason.0 == 1),
        "{event:?}"
    );
    assert_eq!(event.into_error("connect").kind(), ErrorKind::Rejected);
    Ok(Outcome::Pass)
}

fn private_data_limits_of_datagrams_are_exact() -> TestResult {
    let (channel, listener) = listen()?;
    let client = resolve(port(&listener))?;
    let of = |length: usize| ConnParam::new().private_data(&vec![5; length]);
    assert_eq!(client.id.max_private_data(Step::Connect), 180);
    assert_eq!(client.id.connect(&of(181)?).unwrap_err().errno(), None);
    client.id.connect(&of(180)?)?;
    let asked = request(&channel)?;
    assert_eq!(asked.connection().private_data, [5; 180]);
    let server = Node::new(asked.into_id(), channel)?;
    assert_eq!(server.id.accept(&of(137)?).unwrap_err().errno(), None);
    server.id.accept(&of(136)?)?;
    let event = expect(&client.channel, "ESTABLISHED")?;
    assert_eq!(event.content().unwrap().connection().private_data, [5; 136]);
    Ok(Outcome::Pass)
}

fn ipoib_is_refused_with_a_reason_on_roce() -> TestResult {
    let channel = EventChannel::open()?;
    let id = channel.create_id(PortSpace::Ipoib)?;
    let refused = id.bind_addr(any_port()).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::EINVAL));
    assert!(refused.explanation().contains("InfiniBand"), "{refused}");
    Ok(Outcome::Pass)
}

fn a_disconnect_ends_nothing() -> TestResult {
    let (channel, listener) = listen()?;
    let client = resolve(port(&listener))?;
    client.id.connect(&ConnParam::new())?;
    let server = Node::new(request(&channel)?.into_id(), channel)?;
    server.id.accept(&ConnParam::new())?;
    expect(&client.channel, "ESTABLISHED")?;
    client.id.disconnect()?;
    let quiet = server
        .channel
        .next_event(Some(crate::pair::QUIET))
        .unwrap_err();
    assert_eq!(quiet.kind(), ErrorKind::TimedOut);
    Ok(Outcome::Pass)
}
