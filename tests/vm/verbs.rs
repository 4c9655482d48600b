//! Verbs without the connection manager, on the kernel's own rxe.

mod async_events;
mod datagrams;
mod depths;
mod failures;
mod flushes;
mod lists;
mod memory;
mod memory_flush;
mod multicast;
pub mod one_of_each;
mod queries;
mod removal;
mod requests;
mod rings;
mod shared_queues;
mod windows;

use std::net::IpAddr;

use rdmacm::{
    Access, Completion, Context, Cq, Gid, LinkLayer, Path, Pd, Qp, QpAttr, QpModify, QpState,
    QpType, Result,
};

use crate::environment;
use crate::harness::Test;
use crate::pair::next_completion;

/// The tests of these modules.
pub fn tests() -> Vec<Test> {
    [
        async_events::tests(),
        datagrams::tests(),
        depths::tests(),
        failures::tests(),
        flushes::tests(),
        lists::tests(),
        memory_flush::tests(),
        memory::tests(),
        multicast::tests(),
        queries::tests(),
        removal::tests(),
        requests::tests(),
        rings::tests(),
        shared_queues::tests(),
        windows::tests(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The way from the address under test to itself.
pub fn own_path(context: &Context) -> Result<Path> {
    path_of(context, environment::addr())
}

/// The way from an own address to itself. F66: its GID, whatever index that has. On InfiniBand it is
/// the port's LID, whatever the address.
fn path_of(context: &Context, address: IpAddr) -> Result<Path> {
    let port = context.port(1)?;
    let (gid, index) = match port.link_layer {
        LinkLayer::InfiniBand => (Gid([0; 16]), 0),
        _ => {
            let gids = context.gids()?;
            let own = gids.iter().find(|entry| entry.gid.to_ip() == address);
            let own = own.expect("the address under test has a GID");
            (own.gid, own.index)
        }
    };
    Ok(Path {
        gid,
        source_gid_index: index as u8,
        port: 1,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        service_level: 0,
        lid: port.lid,
    })
}

/// A completion queue of its own channel, to wait at.
pub fn queue(context: &Context, entries: u32) -> Result<Cq> {
    let channel = context.completion_channel()?;
    context.completion_queue(entries).channel(&channel).build()
}

/// The next completion, which must be one of success.
fn next_success(cq: &mut Cq) -> Result<Completion> {
    let completion = next_completion(cq)?;
    completion.result()?;
    Ok(completion)
}

/// The queue key of the datagrams here.
pub const QKEY: u32 = 0x1234_5678;

/// A queue pair for datagrams that can send, with a completion queue of its own.
fn datagram_qp(pd: &Pd) -> Result<(Qp, Cq)> {
    let cq = queue(pd.context(), 64)?;
    let attr = QpAttr::new(pd).qp_type(QpType::Ud).max_inline_data(64);
    let qp = pd.create_qp(&attr.send_cq(&cq).recv_cq(&cq))?;
    bring_up_datagram(&qp)?;
    Ok((qp, cq))
}

/// Moves a queue pair for datagrams to RTS.
pub fn bring_up_datagram(qp: &Qp) -> Result<()> {
    qp.modify(&QpModify::to(QpState::Init).port(1).pkey_index(0).qkey(QKEY))?;
    qp.modify(&QpModify::to(QpState::Rtr))?;
    qp.modify(&QpModify::to(QpState::Rts).send_psn(0))
}

/// A queue pair that can send, with a peer that only answers.
struct OneWay {
    near: Qp,
    cq: Cq,
    _far: Qp,
    _far_cq: Cq,
}

impl OneWay {
    /// `inline` bytes fit a request; `access` is what the far queue pair lets its peer do.
    fn new(pd: &Pd, inline: u32, access: Access) -> Result<Self> {
        let (cq, far_cq) = (queue(pd.context(), 64)?, queue(pd.context(), 64)?);
        let attr = QpAttr::new(pd).max_inline_data(inline);
        let near = pd.create_qp(&attr.clone().send_cq(&cq).recv_cq(&cq))?;
        let far = pd.create_qp(&attr.send_cq(&far_cq).recv_cq(&far_cq))?;
        let path = own_path(pd.context())?;
        connect_for(&near, &far, path, Access::empty())?;
        connect_for(&far, &near, path, access)?;
        Ok(Self {
            near,
            cq,
            _far: far,
            _far_cq: far_cq,
        })
    }
}

/// Connects a queue pair of type RC or UC with another on the same device.
fn connect(qp: &Qp, peer: &Qp, path: Path) -> Result<()> {
    connect_for(qp, peer, path, Access::REMOTE_WRITE | Access::REMOTE_READ)
}

/// As [`connect`], with what the peer may do through the queue pair.
pub fn connect_for(qp: &Qp, peer: &Qp, path: Path, access: Access) -> Result<()> {
    let is_reliable = qp.qp_type() == QpType::Rc;
    let init = QpModify::to(QpState::Init).port(path.port);
    qp.modify(&init.pkey_index(0).access(access))?;
    let mut rtr = QpModify::to(QpState::Rtr)
        .path(path)
        .path_mtu(rdmacm::Mtu::from_bytes(1024).expect("there is such an MTU"))
        .remote_qp_num(peer.number())
        .receive_psn(1);
    let mut rts = QpModify::to(QpState::Rts).send_psn(1);
    if is_reliable {
        rtr = rtr.responder_resources(3).min_rnr_timer(12);
        rts = rts
            .timeout(14)
            .retry_count(6)
            .rnr_retry_count(5)
            .initiator_depth(2);
    }
    qp.modify(&rtr)?;
    qp.modify(&rts)
}
