//! Asynchronous events, and completion queues that change.

mod program;

use std::time::Duration;

use program::{Area, Program, Request, async_event};
use rdmacm_kernel_abi::mlx5::{self, CqeOpcode, Opcode};
use rdmacm_kernel_abi::uverbs::{self, AsyncEventType, Command, QpAttrMask, QpType};
use rdmacm_mlx5_device::Config;
use zerocopy::IntoBytes;

const LONG: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(30);

#[test]
fn few_receives_are_told_once() {
    let program = Program::new(Config::default());
    let events = program.async_events();
    let mut cq = program.cq(16, 64);
    let mut srq = program.srq();
    let shared = |asked: &mut uverbs::CreateQp, own: &mut mlx5::CreateQp| {
        (asked.is_srq, asked.srq_handle) = (1, srq.handle);
        own.rq_wqe_count = 0;
    };
    let mut qp = program.qp(QpType::RC, &cq, shared).unwrap();
    program.connect(QpType::RC, &qp, qp.number);
    for _ in 0..3 {
        srq.post(&[(8, program.key, program.data.address)]);
    }
    let limit = |limit: u32| {
        let asked = uverbs::ModifySrq {
            srq_handle: srq.handle,
            attr_mask: 2,
            srq_limit: limit,
            ..Default::default()
        };
        program.command(Command::MODIFY_SRQ, &asked, &[], 0, 0)
    };
    assert!(limit(4).is_err());
    limit(2).unwrap();
    for left in [2, 1, 0] {
        program.post(&mut qp, Request::new(Opcode::SEND).flags(0).inline(b"x"));
        cq.poll();
        let told = async_event(&events, if left == 1 { LONG } else { QUIET });
        let told = told.map(|event| (event.element, AsyncEventType(event.event_type)));
        let expected = (0x5000, AsyncEventType::SRQ_LIMIT_REACHED);
        assert_eq!(told, (left == 1).then_some(expected), "{left} left");
    }
    program
        .modify(&qp, QpAttrMask::STATE, |to| to.qp_state = 6)
        .unwrap();
    let last = async_event(&events, LONG).unwrap();
    let kind = AsyncEventType(last.event_type);
    assert_eq!(kind, AsyncEventType::QP_LAST_WQE_REACHED);
    assert_eq!(last.element, 0x9000 + u64::from(qp.index));
    program.assert_clean();
}

#[test]
fn events_of_a_queue_pair_that_is_gone_are_taken_back() {
    let program = Program::new(Config::default());
    let events = program.async_events();
    let cq = program.cq(16, 64);
    let mut qp = program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
    program.connect(QpType::RC, &qp, qp.number);
    // A key that there is not: the responder hears of it.
    program.post(
        &mut qp,
        Request::new(Opcode::RDMA_WRITE).remote(0, 1).inline(b"x"),
    );
    while async_event(&events, LONG).is_none() {}
    program
        .modify(&qp, QpAttrMask::STATE, |to| to.qp_state = 0)
        .unwrap();
    qp.record.put_be32(4, 0);
    qp.posted = 0;
    program.connect(QpType::RC, &qp, qp.number);
    program.post(
        &mut qp,
        Request::new(Opcode::RDMA_WRITE).remote(0, 1).inline(b"x"),
    );
    std::thread::sleep(QUIET);
    let asked = uverbs::DestroyQp {
        qp_handle: qp.handle,
        ..Default::default()
    };
    let counted = program.command(Command::DESTROY_QP, &asked, &[], 4, 0);
    assert_eq!(counted.unwrap().0, 1u32.to_ne_bytes());
    assert!(async_event(&events, QUIET).is_none());
    program.assert_clean();
}

#[test]
fn a_resized_queue_goes_on_in_its_new_memory() {
    let program = Program::new(Config::default());
    let mut cq = program.cq(4, 64);
    let mut qp = program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
    program.connect(QpType::RC, &qp, qp.number);
    for _ in 0..5 {
        program.post(&mut qp, Request::new(Opcode::NOP));
        cq.poll();
    }
    program.post(&mut qp, Request::new(Opcode::NOP));
    let area = Area::new(8 * 64);
    (0..8).for_each(|index| area.put(index * 64 + 63, &[0xf0]));
    let asked = uverbs::ResizeCq {
        cq_handle: cq.handle,
        cqe: 7,
        ..Default::default()
    };
    let own = mlx5::ResizeCq {
        buf_addr: area.address,
        cqe_size: 64,
        ..Default::default()
    };
    while cq.area.get(64 + 63, 1) != [1] {}
    let answer = program.command(Command::RESIZE_CQ, &asked, own.as_bytes(), 8, 0);
    assert_eq!(answer.unwrap().0[..4], 7u32.to_ne_bytes());
    assert_eq!(cq.poll().op_own >> 4, CqeOpcode::REQ.0);
    assert_eq!(cq.poll().op_own >> 4, CqeOpcode::RESIZE_CQ.0);
    (cq.area, cq.entries) = (area, 8);
    for _ in 0..20 {
        program.post(&mut qp, Request::new(Opcode::NOP));
        assert_eq!(cq.poll().op_own >> 4, CqeOpcode::REQ.0);
    }
    program.assert_clean();
}
