//! mlx5: the whole way, over a card made of software.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdmacm_mlx5_device::Config;

use crate::sys::twin::Twin;
use crate::{
    Access, Buffer, Completion, Context, Cq, Mtu, Path, Pd, Qp, QpAttr, QpModify, QpState,
};

/// Two connected queue pairs of one card, with memory that both may use.
pub(super) struct Line {
    pub(super) near: Qp,
    pub(super) far: Qp,
    pub(super) near_cq: Cq,
    pub(super) far_cq: Cq,
    pub(super) memory: Buffer,
}

pub(super) fn open(config: Config) -> (Arc<Twin>, Context) {
    let twin = Twin::with_card(config);
    let context = twin.registry().context_of_index(7).unwrap();
    (twin, context)
}

pub(super) fn path_to_itself(context: &Context) -> Path {
    let entry = context.gids().unwrap().remove(0);
    let lid = context.port(1).unwrap().lid;
    Path {
        gid: entry.gid,
        source_gid_index: entry.index as u8,
        port: 1,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 1,
        service_level: 0,
        lid,
    }
}

pub(super) fn connect(qp: &Qp, peer: &Qp, path: Path) {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let init = QpModify::to(QpState::Init).port(1).pkey_index(0);
    qp.modify(&init.access(access)).unwrap();
    let rtr = QpModify::to(QpState::Rtr)
        .path(path)
        .path_mtu(Mtu::from_bytes(1024).unwrap())
        .remote_qp_num(peer.number())
        .receive_psn(1)
        .responder_resources(4)
        .min_rnr_timer(12);
    qp.modify(&rtr).unwrap();
    let rts = QpModify::to(QpState::Rts)
        .send_psn(1)
        .timeout(14)
        .retry_count(7)
        .rnr_retry_count(7)
        .initiator_depth(4);
    qp.modify(&rts).unwrap();
}

impl Line {
    pub(super) fn new(context: &Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let cq = || context.completion_queue(64).build().unwrap();
        let (near_cq, far_cq) = (cq(), cq());
        let qp = |cq: &Cq, pd: &Pd| {
            let attr = QpAttr::new(pd).max_send_sge(2).max_inline_data(64);
            pd.create_qp(&attr.send_cq(cq).recv_cq(cq)).unwrap()
        };
        let (near, far) = (qp(&near_cq, &pd), qp(&far_cq, &pd));
        let path = path_to_itself(context);
        connect(&near, &far, path);
        connect(&far, &near, path);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = pd.alloc(8192, access).unwrap();
        Self {
            near,
            far,
            near_cq,
            far_cq,
            memory,
        }
    }
}

pub(super) fn next(cq: &mut Cq) -> Completion {
    let mut entry = [Completion::default()];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        if let [completion] = cq.poll(&mut entry) {
            return *completion;
        }
        std::thread::yield_now();
    }
    panic!("no completion came");
}

#[test]
fn a_message_and_a_write_and_a_read() {
    let (twin, context) = open(Config::default());
    let mut line = Line::new(&context);
    line.memory.write(0, b"a message in two pieces").unwrap();
    let receive = line.memory.slice(4096..4196).unwrap();
    line.far.recv_half().post(1, &[receive]).unwrap();
    let pieces = [
        line.memory.slice(..10).unwrap(),
        line.memory.slice(10..23).unwrap(),
    ];
    let mut batch = line.near.send_half().batch();
    batch.send(2).signaled().from(&pieces).unwrap();
    batch.submit().unwrap();
    let received = next(&mut line.far_cq);
    assert_eq!(
        (received.wr_id(), received.result().unwrap().byte_len()),
        (1, 23)
    );
    assert_eq!(
        line.memory.read_vec(4096, 23).unwrap(),
        b"a message in two pieces"
    );
    assert_eq!(next(&mut line.near_cq).wr_id(), 2);

    let to = line.memory.remote().at(5000);
    let mut batch = line.near.send_half().batch();
    batch.write(3, to).signaled().inline(&[7; 64]).unwrap();
    batch
        .read(4, to)
        .signaled()
        .into(&[line.memory.slice(6000..6064).unwrap()])
        .unwrap();
    batch.submit().unwrap();
    for wr_id in [3, 4] {
        let done = next(&mut line.near_cq);
        done.result().unwrap();
        assert_eq!(done.wr_id(), wr_id);
    }
    assert_eq!(line.memory.read_vec(6000, 64).unwrap(), [7; 64]);
    drop(line);
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_completion_queue_of_the_size_that_it_has_already_keeps_its_memory() {
    let (twin, context) = open(Config::default());
    let mut line = Line::new(&context);
    let to = line.memory.remote();
    for size in [line.near_cq.depth(), line.near_cq.depth() - 1, 200, 200] {
        let mut batch = line.near.send_half().batch();
        batch.write(9, to).signaled().from(&[]).unwrap();
        batch.submit().unwrap();
        line.near_cq.resize(size).unwrap();
        assert_eq!(next(&mut line.near_cq).wr_id(), 9);
    }
    assert_eq!(twin.card().violations(), [""; 0]);
}
