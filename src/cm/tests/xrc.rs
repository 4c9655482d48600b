//! Ids for extended reliable connections, of which rxe has none: one side sends, the other receives
//! into shared queues.

use std::sync::Arc;

use super::pair::{self, TIMEOUT, address, expect};
use crate::cm::{CmId, ConnParam, Event, EventChannel, PortSpace};
use crate::device::Registry;
use crate::error::{ErrorKind, Result};
use crate::fastpath::QpType;
use crate::sys::twin::{ADDRESS, Twin, TwinDevice};
use crate::verbs::{Qp, QpAttr, QpState, SrqAttr, Xrcd};

/// A kernel with a device that has XRC.
pub(super) fn twin_with_xrc() -> Arc<Twin> {
    Twin::with_devices(vec![TwinDevice {
        has_xrc: true,
        ..TwinDevice::rxe(0, ADDRESS)
    }])
}

fn new_id(registry: &'static Registry, qp_type: QpType) -> Result<(EventChannel, CmId)> {
    let channel = EventChannel::open_on(registry)?;
    let id = channel.create_id_for(PortSpace::Ib, qp_type)?;
    Ok((channel, id))
}

/// The sending side.
fn sender(twin: &Twin, id: &CmId) -> Result<Qp> {
    let pd = id.protection_domain()?;
    let cq = pd.context().completion_queue(4).build()?;
    let qp = id.create_qp(&QpAttr::new(&pd).send_cq(&cq))?;
    twin.note_owner(id.handle(), qp.number());
    Ok(qp)
}

/// A connection's life: the sender learns the number of the receiver's shared queue from the
/// private data, and everything ends in the order in which programs destroy it.
pub(super) fn live(twin: &Arc<Twin>, registry: &'static Registry) -> Result<()> {
    let (listening, listener) = new_id(registry, QpType::XrcRecv)?;
    listener.bind_addr(address())?;
    listener.listen(1)?;
    let (channel, active) = new_id(registry, QpType::XrcSend)?;
    active.resolve_addr(None, address(), TIMEOUT)?;
    expect(&channel, "ADDR_RESOLVED")?;
    active.resolve_route(TIMEOUT)?;
    expect(&channel, "ROUTE_RESOLVED")?;
    let sender = sender(twin, &active)?;
    active.connect(&ConnParam::new())?;

    let Event::ConnectRequest(request) = expect(&listening, "CONNECT_REQUEST")? else {
        unreachable!("the name was checked")
    };
    let passive = request.into_id();
    assert_eq!(passive.qp_type(), QpType::XrcRecv);
    let pd = passive.protection_domain()?;
    let context = passive.context()?;
    let xrcd = context.open_xrcd()?;
    let cq = context.completion_queue(4).build()?;
    let srq = pd.create_xrc_srq(&SrqAttr::default(), &xrcd, &cq)?;
    let receiver = passive.create_qp(&QpAttr::new(&pd).xrcd(&xrcd))?;
    twin.note_owner(passive.handle(), receiver.number());
    let number = srq.number().unwrap_or_default().to_be_bytes();
    passive.accept(&ConnParam::new().private_data(&number)?)?;
    let event = expect(&channel, "ESTABLISHED")?;
    let told = event.content().unwrap().connection();
    assert_eq!(told.private_data[..4], number);
    assert_eq!(told.qp_num, receiver.number());
    expect(&listening, "ESTABLISHED")?;
    for qp in [&sender, &receiver] {
        assert_eq!(qp.query()?.state, QpState::Rts);
    }
    active.disconnect()?;
    expect(&listening, "DISCONNECTED").map(drop)
}

#[test]
fn a_life_leaves_nothing() {
    let twin = twin_with_xrc();
    live(&twin, twin.registry()).unwrap();
    twin.assert_clean();
}

#[test]
fn what_is_destroyed_too_early_is_refused_and_goes_in_the_end() -> Result<()> {
    let twin = twin_with_xrc();
    let (channel, id) = new_id(twin.registry(), QpType::XrcRecv)?;
    id.bind_addr(address())?;
    let pd = id.protection_domain()?;
    let [early, late] = [pd.context().open_xrcd()?, pd.context().open_xrcd()?];
    let receiver = |xrcd: &Xrcd| id.create_qp(&QpAttr::new(&pd).xrcd(xrcd));
    let qp = receiver(&early)?;
    twin.note_owner(id.handle(), qp.number());
    assert_eq!(early.close().unwrap_err().errno(), Some(libc::EBUSY));
    assert_eq!(twin.census().xrcds, 2, "the queue pair needs it");
    id.destroy_qp()?;
    drop(qp);
    assert_eq!(twin.census().xrcds, 1);
    let qp = receiver(&late)?;
    twin.note_owner(id.handle(), qp.number());
    id.destroy()?;
    late.close()?;
    drop((channel, id, pd, qp));
    twin.assert_clean();
    Ok(())
}

/// What the receiving side is made of.
fn receiving(twin: &Twin, registry: &'static Registry) -> Vec<Box<dyn std::any::Any>> {
    let (channel, id) = new_id(registry, QpType::XrcRecv).unwrap();
    id.bind_addr(address()).unwrap();
    let pd = id.protection_domain().unwrap();
    let context = id.context().unwrap();
    let xrcd = context.open_xrcd().unwrap();
    let cq = context.completion_queue(4).build().unwrap();
    let srq = pd.create_xrc_srq(&SrqAttr::default(), &xrcd, &cq).unwrap();
    let qp = id.create_qp(&QpAttr::new(&pd).xrcd(&xrcd)).unwrap();
    twin.note_owner(id.handle(), qp.number());
    vec![
        Box::new((channel, id)),
        Box::new((pd, context)),
        Box::new(xrcd),
        Box::new(cq),
        Box::new(srq),
        Box::new(qp),
    ]
}

#[test]
fn any_order_of_drops_is_a_right_one() {
    let mut order: Vec<usize> = (0..6).collect();
    super::teardown::for_each_permutation(&mut order, 0, &mut |order| {
        let twin = twin_with_xrc();
        let mut pieces = receiving(&twin, twin.registry());
        for piece in order {
            pieces[*piece] = Box::new(());
        }
        twin.assert_clean();
    });
}

#[test]
fn the_queues_of_the_other_side_are_refused() {
    let twin = twin_with_xrc();
    let (channel, id) = new_id(twin.registry(), QpType::XrcSend).unwrap();
    id.bind_addr(address()).unwrap();
    let pd = id.protection_domain().unwrap();
    let xrcd = pd.context().open_xrcd().unwrap();
    let cq = pd.context().completion_queue(4).build().unwrap();
    pd.context().attr().unwrap();
    twin.forget_calls();
    let attr = QpAttr::new(&pd).send_cq(&cq);
    for refused in [
        attr.clone().xrcd(&xrcd),
        attr.clone().qp_type(QpType::XrcRecv),
        attr.clone().qp_type(QpType::Rc),
        QpAttr::new(&pd),
    ] {
        let error = id.create_qp(&refused).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
    drop((channel, id, pd, xrcd, cq));
    twin.assert_clean();
}

#[test]
fn a_queue_pair_of_the_programs_own_tells_of_its_shared_queue() {
    let twin = twin_with_xrc();
    let registry = twin.registry();
    let listening = pair::listen(registry).unwrap();
    let (channel, id) = pair::resolve(registry).unwrap();
    id.connect(&ConnParam::new().own_qp(0x77, true)).unwrap();
    let event = expect(&listening.channel, "CONNECT_REQUEST").unwrap();
    let Event::ConnectRequest(request) = &event else {
        unreachable!("the name was checked")
    };
    assert!(request.connection().has_srq);
    assert_eq!(request.connection().qp_num, 0x77);
    drop((listening, channel, id, event));
    twin.assert_clean();
}
