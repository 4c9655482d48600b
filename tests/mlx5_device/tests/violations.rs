//! What no card would forgive is found, each once.

mod program;

use std::time::Duration;

use program::{Area, Cq, Program, Qp, Request, SIGNALED};
use rdmacm_kernel_abi::mlx5::Opcode;
use rdmacm_kernel_abi::uverbs::{self, Command, QpAttrMask, QpType};
use rdmacm_mlx5_device::Config;
use zerocopy::IntoBytes;

/// A queue pair that is connected to itself.
struct Loop {
    program: Program,
    cq: Cq,
    qp: Qp,
}

impl Loop {
    fn new() -> Self {
        Self::of(Config::default())
    }

    fn of(config: Config) -> Self {
        let program = Program::new(config);
        let cq = program.cq(4, 64);
        let qp = program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
        program.connect(QpType::RC, &qp, qp.number);
        Self { program, cq, qp }
    }

    fn write(&self) -> Request {
        let (key, to) = (self.program.key, self.program.data.address);
        Request::new(Opcode::RDMA_WRITE)
            .remote(to, key)
            .inline(b"12345678901234567890")
    }

    fn post(&mut self, request: Request) {
        self.program.post(&mut self.qp, request);
    }

    /// The card complains, with these words, and does not execute what it complains about.
    fn expect(mut self, words: &str) {
        let text = self.program.violation();
        assert!(text.contains(words), "{text:?} instead of {words:?}");
        assert!(self.cq.try_poll(Duration::from_millis(20)).is_none());
    }
}

/// A request whose bytes are changed before it is posted.
fn changed(change: fn(&mut Vec<u8>), words: &str) {
    let mut all = Loop::new();
    let request = all.write().change(change);
    all.post(request);
    all.expect(words);
}

#[test]
fn a_wrong_index() {
    changed(|bytes| bytes[1..3].fill(0xff), "says it is 65535");
}

#[test]
fn a_wrong_queue_pair_in_the_request() {
    let mut all = Loop::new();
    let mut bytes = all.write().bytes(&all.qp);
    let right = bytes.clone();
    bytes[6] ^= 1;
    all.program.put_request(&mut all.qp, &bytes);
    all.program.ring_for(&all.qp, &right, false);
    all.expect("is not the start of request");
}

#[test]
fn a_doorbell_of_nobody() {
    changed(|bytes| bytes[4] = 9, "there never was");
}

#[test]
fn reserved_bits_of_the_control_segment() {
    changed(|bytes| bytes[8] = 1, "reserved bits");
    changed(|bytes| bytes[9] = 1, "reserved bits");
    changed(|bytes| bytes[11] |= 1, "reserved bits");
    changed(|bytes| bytes[0] = 1, "reserved bits");
}

#[test]
fn reserved_bits_of_the_remote_address() {
    changed(|bytes| bytes[31] = 1, "reserved word");
}

#[test]
fn a_length_of_nothing() {
    changed(|bytes| bytes[7] = 0, "without a length");
}

#[test]
fn a_length_past_what_is_posted() {
    changed(|bytes| bytes[7] = 60, "it must be stored first");
}

#[test]
fn a_segment_of_nothing() {
    let mut all = Loop::new();
    let request = Request::new(Opcode::SEND).data(0, all.program.key, 0);
    all.post(request);
    all.expect("2 GiB");
}

#[test]
fn a_receive_that_is_not_ended() {
    let mut all = Loop::new();
    let key = all.program.key;
    all.program
        .post_receive(&mut all.qp, &[(0, key, all.program.data.address)]);
    all.post(Request::new(Opcode::SEND).inline(b"x"));
    all.expect("2 GiB");
}

#[test]
fn a_doorbell_before_its_record() {
    let mut all = Loop::new();
    let bytes = all.write().bytes(&all.qp);
    all.program.put_request(&mut all.qp, &bytes);
    all.qp.record.put_be32(4, 0);
    all.program.ring_for(&all.qp, &bytes, false);
    all.expect("it must be stored first");
}

#[test]
fn more_than_the_queue_holds() {
    let mut all = Loop::new();
    let bytes = all.write().bytes(&all.qp);
    all.program.put_request(&mut all.qp, &bytes);
    all.qp.record.put_be32(4, 17);
    all.program.ring_for(&all.qp, &bytes, false);
    all.expect("the queue has 16");
}

#[test]
fn a_register_that_is_not_its_own() {
    let mut all = Loop::of(Config::from_words("static_uars").unwrap());
    let bytes = all.write().bytes(&all.qp);
    all.program.put_request(&mut all.qp, &bytes);
    all.qp.register ^= 0x200;
    all.program.ring_for(&all.qp, &bytes, false);
    all.expect("not its own");
}

#[test]
fn a_copy_that_is_not_the_request() {
    let mut all = Loop::new();
    let bytes = all.write().bytes(&all.qp);
    all.program.put_request(&mut all.qp, &bytes);
    let mut copy = bytes.clone();
    copy[40] ^= 1;
    all.program.ring_for(&all.qp, &copy, true);
    let text = all.program.violation();
    assert!(text.contains("the copy in half 0"), "{text}");
}

#[test]
fn a_copy_that_is_right_is_no_violation() {
    let mut all = Loop::new();
    for _ in 0..20 {
        let bytes = all.write().bytes(&all.qp);
        all.program.put_request(&mut all.qp, &bytes);
        all.program.ring_for(&all.qp, &bytes, true);
        all.cq.poll();
        // An ordinary doorbell finds the old copy there.
        let request = all.write().flags(SIGNALED | 2);
        all.post(request);
        all.cq.poll();
    }
    std::thread::sleep(Duration::from_millis(2100));
    all.program.assert_clean();
}

#[test]
fn completions_that_nobody_reads() {
    let mut all = Loop::new();
    for _ in 0..5 {
        let request = Request::new(Opcode::NOP);
        all.post(request);
    }
    let text = all.program.violation();
    assert!(text.contains("overruns"), "{text}");
}

#[test]
fn a_wrong_serial() {
    let all = Loop::new();
    let word = 2 << 28;
    all.program.arm_by(&all.cq, word, word);
    let text = all.program.violation();
    assert!(text.contains("with serial 2"), "{text}");
}

#[test]
fn an_old_serial() {
    let mut all = Loop::new();
    all.program.arm(&mut all.cq, false);
    all.post(Request::new(Opcode::NOP));
    assert!(all.cq.take_event(Duration::from_secs(5)));
    all.cq.poll();
    all.program.arm_by(&all.cq, 1, 1);
    all.expect("whose event was read before");
}

#[test]
fn an_arm_whose_record_is_not_stored() {
    let all = Loop::new();
    all.program.arm_by(&all.cq, 0, 0);
    all.program.arm_by(&all.cq, 0, 1 << 24);
    all.expect("it must be stored first");
}

#[test]
fn an_arm_of_a_queue_that_there_is_not() {
    let mut all = Loop::new();
    all.cq.number = 0x7777;
    all.program.arm_by(&all.cq, 0, 0);
    all.expect("which there is not");
}

#[test]
fn a_doorbell_after_destroy() {
    let mut all = Loop::new();
    let asked = uverbs::DestroyQp {
        qp_handle: all.qp.handle,
        ..Default::default()
    };
    let destroyed = all.program.command(Command::DESTROY_QP, &asked, &[], 4, 0);
    assert_eq!(destroyed.unwrap().0, [0; 4]);
    let request = all.write();
    all.post(request);
    all.expect("that was destroyed");
}

#[test]
fn a_store_beside_the_registers() {
    let all = Loop::new();
    let page = all.qp.register & !0xfff;
    all.program.ring(page + 0x28, 1, false);
    all.expect("a store to 0x2");
}

#[test]
fn memory_that_is_unmapped_while_it_is_used() {
    let all = Loop::new();
    let area = all.qp.area;
    all.program.card.note_unmap(area.address, 4096);
    assert!(all.program.violation().contains("was unmapped"));
    let data = all.program.data;
    all.program.card.note_unmap(data.address + 4096, 1);
    let last = all.program.card.violations().pop().unwrap();
    assert!(last.contains("unmapped while registered"), "{last}");
}

#[test]
fn a_queue_with_entries_that_look_like_completions() {
    let program = Program::new(Config::default());
    let (area, record) = (Area::new(256), Area::new(8));
    let asked = uverbs::CreateCq {
        cqe: 3,
        comp_channel: -1,
        ..Default::default()
    };
    let driver = program.cq_request(area, record, 64);
    let made = program.command(Command::CREATE_CQ, &asked, driver.as_bytes(), 8, 8);
    made.unwrap();
    assert!(program.violation().contains("not marked as invalid"));
}

#[test]
fn a_record_that_is_not_cleared_at_reset() {
    let mut all = Loop::new();
    let request = all.write();
    all.post(request);
    all.cq.poll();
    let state = QpAttrMask::STATE;
    all.program
        .modify(&all.qp, state, |to| to.qp_state = 0)
        .unwrap();
    all.program.connect(QpType::RC, &all.qp, all.qp.number);
    all.expect("leaves RESET");
}
