//! What the card executes, and how it tells.

mod program;

use std::time::Duration;

use program::{Cq, Program, Qp, Request, SIGNALED, SOLICITED};
use rdmacm_kernel_abi::mlx5::{self, AtomicSeg, CqeOpcode, CqeSyndrome, Opcode};
use rdmacm_kernel_abi::uverbs::{QpAttrMask, QpType};
use rdmacm_mlx5_device::Config;

/// Two queue pairs that are connected to each other.
struct Pair {
    program: Program,
    cq: Cq,
    near: Qp,
    far: Qp,
}

impl Pair {
    fn new(kind: QpType, config: Config) -> Self {
        Self::with(kind, config, 64, |_| {})
    }

    fn with(
        kind: QpType,
        config: Config,
        entry_size: u32,
        change: impl Fn(&mut mlx5::CreateQp),
    ) -> Self {
        let program = Program::new(config);
        let cq = program.cq(16, entry_size);
        let near = program.qp(kind, &cq, |_, own| change(own)).unwrap();
        let far = program.qp(kind, &cq, |_, own| change(own)).unwrap();
        program.connect(kind, &near, far.number);
        program.connect(kind, &far, near.number);
        Self {
            program,
            cq,
            near,
            far,
        }
    }

    fn at(&self, offset: u64) -> u64 {
        self.program.data.address + offset
    }

    fn post(&mut self, request: Request) {
        self.program.post(&mut self.near, request);
    }

    fn expect_near(&mut self, opcode: Opcode, index: u16) -> u32 {
        let entry = self.cq.poll();
        assert_eq!(entry.op_own >> 4, CqeOpcode::REQ.0, "{entry:?}");
        let what = entry.sop_drop_qpn.get();
        assert_eq!(what, u32::from(opcode.0) << 24 | self.near.number);
        assert_eq!(entry.wqe_counter.get(), index);
        assert_eq!(entry.srqn_uidx.get(), self.near.index);
        entry.byte_cnt.get()
    }

    fn expect_error(&mut self, syndrome: CqeSyndrome) {
        let error = self.cq.poll_error();
        assert_eq!(CqeSyndrome(error.syndrome), syndrome, "{error:?}");
    }
}

const COPY: [u8; 8] = *b"software";

#[test]
fn sends_of_all_kinds_arrive() {
    for kind in [QpType::RC, QpType::UC] {
        let mut pair = Pair::new(kind, Config::default());
        let (key, from, to) = (pair.program.key, pair.at(0), pair.at(4096));
        pair.program.data.put(0, &COPY);
        for (opcode, expected) in [
            (Opcode::SEND, CqeOpcode::RESP_SEND),
            (Opcode::SEND_IMM, CqeOpcode::RESP_SEND_IMM),
        ] {
            pair.program.data.put(4096, &[0; 16]);
            let number = pair.near.posted;
            let received = pair.far.received;
            let halves = [(3, key, to), (100, key, to + 8)];
            pair.program.post_receive(&mut pair.far, &halves);
            let word = if opcode == Opcode::SEND {
                0
            } else {
                0x0102_0304
            };
            let request = Request::new(opcode).word(word).flags(SIGNALED | SOLICITED);
            pair.post(request.data(8, key, from));
            let entry = pair.cq.poll();
            assert_eq!(CqeOpcode(entry.op_own >> 4), expected);
            assert_eq!(entry.op_own & 2, 2);
            assert_eq!(entry.byte_cnt.get(), 8);
            assert_eq!(entry.wqe_counter.get(), received);
            assert_eq!(entry.imm_inval_pkey.get(), word);
            assert_eq!(entry.sop_drop_qpn.get(), pair.far.number);
            pair.expect_near(opcode, number);
            assert_eq!(pair.program.data.get(4096, 3), &COPY[..3]);
            assert_eq!(pair.program.data.get(4104, 5), &COPY[3..]);
        }
        pair.program.assert_clean();
    }
}

#[test]
fn writes_reads_and_atomics_reach_memory() {
    for config in ["default", "static_uars", "write_abi", "no_bf", "ib_link"] {
        let mut pair = Pair::new(QpType::RC, Config::from_words(config).unwrap());
        let (key, near, far) = (pair.program.key, pair.at(0), pair.at(8192));
        let write = Request::new(Opcode::RDMA_WRITE).remote(far, key);
        pair.post(write.inline(b"written through a register"));
        pair.expect_near(Opcode::RDMA_WRITE, 0);
        assert_eq!(pair.program.data.get(8192, 7), b"written");
        let read = Request::new(Opcode::RDMA_READ).remote(far, key);
        let index = pair.near.posted;
        pair.post(read.data(4, key, near).data(3, key, near + 64));
        assert_eq!(pair.expect_near(Opcode::RDMA_READ, index), 7, "{config}");
        assert_eq!(pair.program.data.get(0, 4), b"writ");
        assert_eq!(pair.program.data.get(64, 3), b"ten");
        pair.program.data.put(8192, &7u64.to_ne_bytes());
        for (opcode, operands, found, then) in [
            (Opcode::ATOMIC_FA, (5, 0), 7u64, 12u64),
            (Opcode::ATOMIC_CS, (100, 12), 12, 100),
            (Opcode::ATOMIC_CS, (1, 2), 100, 100),
        ] {
            let index = pair.near.posted;
            let operands = AtomicSeg {
                swap_add: operands.0.into(),
                compare: operands.1.into(),
            };
            let request = Request::new(opcode).remote(far, key).segment(&operands);
            pair.post(request.data(8, key, near));
            assert_eq!(pair.expect_near(opcode, index), 8);
            assert_eq!(pair.program.data.get(0, 8), found.to_ne_bytes());
            assert_eq!(pair.program.data.get(8192, 8), then.to_ne_bytes());
        }
        pair.program.assert_clean();
    }
}

#[test]
fn a_queue_goes_round_and_so_do_its_completions() {
    let mut pair = Pair::new(QpType::RC, Config::default());
    let (key, far) = (pair.program.key, pair.at(8192));
    for turn in 0..100u8 {
        let index = pair.near.posted;
        // Of two blocks: every eighth crosses the end of the ring.
        let inline = [turn; 60];
        let write = Request::new(Opcode::RDMA_WRITE).remote(far, key);
        pair.post(write.inline(&inline));
        pair.expect_near(Opcode::RDMA_WRITE, index);
        assert_eq!(pair.program.data.get(8192, 60), inline);
        pair.post(Request::new(Opcode::NOP).flags(0));
    }
    pair.program.assert_clean();
}

#[test]
fn a_write_with_immediate_consumes_a_receive() {
    let mut pair = Pair::new(QpType::RC, Config::default());
    let (key, far) = (pair.program.key, pair.at(8192));
    pair.program.post_receive(&mut pair.far, &[]);
    let write = Request::new(Opcode::RDMA_WRITE_IMM).word(9);
    pair.post(write.remote(far, key).inline(b"abc"));
    let entry = pair.cq.poll();
    assert_eq!(CqeOpcode(entry.op_own >> 4), CqeOpcode::RESP_WR_IMM);
    assert_eq!((entry.byte_cnt.get(), entry.imm_inval_pkey.get()), (3, 9));
    pair.expect_near(Opcode::RDMA_WRITE_IMM, 0);
    pair.program.assert_clean();
}

#[test]
fn a_request_without_a_receive_is_tried_again_and_given_up() {
    let mut pair = Pair::new(QpType::RC, Config::default());
    let key = pair.program.key;
    let (from, to) = (pair.at(0), pair.at(4096));
    pair.post(Request::new(Opcode::SEND).data(8, key, from).flags(0));
    pair.expect_error(CqeSyndrome::RNR_RETRY_EXC_ERR);
    // What follows is flushed, at both ends when the other is moved to ERROR.
    pair.post(Request::new(Opcode::SEND).data(8, key, from).flags(0));
    pair.expect_error(CqeSyndrome::WR_FLUSH_ERR);
    pair.program.post_receive(&mut pair.far, &[(8, key, to)]);
    let to_error = QpAttrMask::STATE;
    let program = &pair.program;
    program
        .modify(&pair.far, to_error, |to| to.qp_state = 6)
        .unwrap();
    pair.expect_error(CqeSyndrome::WR_FLUSH_ERR);
    pair.program.assert_clean();
}

#[test]
fn failures_have_their_syndromes() {
    type Provoke = fn(&mut Pair);
    let cases: [(&str, Provoke, &[CqeSyndrome]); 9] = [
        (
            "a wrong local key",
            |pair| {
                let at = pair.at(0);
                pair.post(Request::new(Opcode::SEND).data(8, 0x7777, at));
            },
            &[CqeSyndrome::LOCAL_PROT_ERR],
        ),
        (
            "a range past the end",
            |pair| {
                let (key, at) = (pair.program.key, pair.at(65530));
                pair.post(Request::new(Opcode::SEND).data(8, key, at));
            },
            &[CqeSyndrome::LOCAL_PROT_ERR],
        ),
        (
            "a wrong remote key",
            |pair| {
                let at = pair.at(0);
                pair.post(Request::new(Opcode::RDMA_WRITE).remote(at, 1).inline(b"x"));
            },
            &[CqeSyndrome::REMOTE_ACCESS_ERR],
        ),
        (
            "a message that is too long",
            |pair| {
                let (key, at) = (pair.program.key, pair.at(0));
                pair.program.post_receive(&mut pair.far, &[(4, key, at)]);
                pair.post(Request::new(Opcode::SEND).inline(b"12345"));
            },
            &[
                CqeSyndrome::LOCAL_LENGTH_ERR,
                CqeSyndrome::REMOTE_INVAL_REQ_ERR,
            ],
        ),
        (
            "a receive that may not be written to",
            |pair| {
                let at = pair.at(0);
                pair.program.post_receive(&mut pair.far, &[(8, 0x7777, at)]);
                pair.post(Request::new(Opcode::SEND).inline(b"12345"));
            },
            &[CqeSyndrome::LOCAL_PROT_ERR, CqeSyndrome::REMOTE_OP_ERR],
        ),
        (
            "an atomic at an odd address",
            |pair| {
                let (key, at) = (pair.program.key, pair.at(0));
                let request = Request::new(Opcode::ATOMIC_FA).remote(at + 4, key);
                let request = request.segment(&AtomicSeg::default());
                pair.post(request.data(8, key, at));
            },
            &[CqeSyndrome::REMOTE_INVAL_REQ_ERR],
        ),
        (
            "an operation that there is not",
            |pair| pair.post(Request::new(Opcode::TSO)),
            &[CqeSyndrome::LOCAL_QP_OP_ERR],
        ),
        (
            "a peer that does not answer",
            |pair| {
                let reset = QpAttrMask::STATE;
                let program = &pair.program;
                program
                    .modify(&pair.far, reset, |to| to.qp_state = 0)
                    .unwrap();
                pair.post(Request::new(Opcode::SEND).inline(b"12345"));
            },
            &[CqeSyndrome::TRANSPORT_RETRY_EXC_ERR],
        ),
        (
            "a key that is no window's",
            |pair| {
                let (key, at) = (pair.program.key, pair.at(0));
                pair.program.post_receive(&mut pair.far, &[(8, key, at)]);
                pair.post(Request::new(Opcode::SEND_INVAL).word(key).inline(b"1"));
            },
            // The receive is not consumed by it, and comes back.
            &[CqeSyndrome::REMOTE_ACCESS_ERR, CqeSyndrome::WR_FLUSH_ERR],
        ),
    ];
    for (name, provoke, expected) in cases {
        let mut pair = Pair::new(QpType::RC, Config::default());
        provoke(&mut pair);
        println!("{name}");
        for syndrome in expected {
            pair.expect_error(*syndrome);
        }
        pair.program.assert_clean();
    }
}

#[test]
fn short_data_lands_in_completions() {
    for (size, length) in [(64u32, 32usize), (128, 64)] {
        // SCATTER_CQE, and for answers too.
        let scatter = |own: &mut mlx5::CreateQp| own.flags |= 0x102;
        let mut pair = Pair::with(QpType::RC, Config::default(), size, scatter);
        let key = pair.program.key;
        let (near, far) = (pair.at(0), pair.at(4096));
        let bytes: Vec<u8> = (0..length as u8).collect();
        let format = if size == 64 { 4 } else { 8 };
        pair.program.post_receive(&mut pair.far, &[(64, key, far)]);
        pair.program.data.put(0, &bytes);
        pair.post(
            Request::new(Opcode::SEND)
                .data(length as u32, key, near)
                .flags(0),
        );
        let place = (pair.cq.next * size) as usize;
        let entry = pair.cq.poll();
        assert_eq!(entry.op_own & 0xfe, CqeOpcode::RESP_SEND.0 << 4 | format);
        assert_eq!(pair.cq.area.get(place, length), bytes);
        assert_eq!(pair.program.data.get(4096, length), vec![0; length]);
        pair.program.data.put(4096, b"ABCDEFGH");
        let read = Request::new(Opcode::RDMA_READ).remote(far, key);
        pair.post(read.data(8, key, near + 100));
        let place = (pair.cq.next * size) as usize;
        let entry = pair.cq.poll();
        // Eight bytes fit the shorter form.
        assert_eq!(entry.op_own & 0xfe, 4);
        let offset = place + size as usize - 64;
        assert_eq!(pair.cq.area.get(offset, 8), b"ABCDEFGH");
        pair.program.assert_clean();
    }
}

#[test]
fn events_come_once_for_each_arm() {
    let mut pair = Pair::new(QpType::RC, Config::default());
    let (key, far) = (pair.program.key, pair.at(8192));
    let quiet = Duration::from_millis(30);
    let long = Duration::from_secs(5);
    let write = Request::new(Opcode::RDMA_WRITE)
        .remote(far, key)
        .inline(b"x");
    for _ in 0..9 {
        pair.program.arm(&mut pair.cq, false);
        assert!(!pair.cq.take_event(quiet));
        pair.post(write.clone());
        assert!(pair.cq.take_event(long));
        pair.post(write.clone());
        assert!(!pair.cq.take_event(quiet));
        // What is there already is told at once.
        pair.program.arm(&mut pair.cq, false);
        assert!(pair.cq.take_event(long));
        pair.cq.poll();
        pair.cq.poll();
    }
    // What nobody asked to be told of is not.
    pair.program.arm(&mut pair.cq, true);
    pair.post(write);
    assert!(!pair.cq.take_event(quiet));
    pair.program.post_receive(&mut pair.far, &[(8, key, far)]);
    let send = Request::new(Opcode::SEND).flags(SOLICITED).inline(b"x");
    pair.post(send);
    assert!(pair.cq.take_event(long));
    pair.program.assert_clean();
}

#[test]
fn shared_receives_follow_their_list() {
    let program = Program::new(Config::default());
    let mut cq = program.cq(16, 64);
    let mut srq = program.srq();
    let shared = |asked: &mut rdmacm_kernel_abi::uverbs::CreateQp, own: &mut mlx5::CreateQp| {
        (asked.is_srq, asked.srq_handle) = (1, srq.handle);
        own.rq_wqe_count = 0;
    };
    let mut near = program.qp(QpType::RC, &cq, shared).unwrap();
    let far = program.qp(QpType::RC, &cq, shared).unwrap();
    program.connect(QpType::RC, &near, far.number);
    program.connect(QpType::RC, &far, near.number);
    let (key, to) = (program.key, program.data.address);
    for turn in 0..3u16 {
        srq.post(&[(8, key, to + u64::from(turn) * 8)]);
        program.post(
            &mut near,
            Request::new(Opcode::SEND).inline(&[turn as u8; 3]).flags(0),
        );
        let entry = cq.poll();
        assert_eq!(CqeOpcode(entry.op_own >> 4), CqeOpcode::RESP_SEND);
        assert_eq!(
            (entry.wqe_counter.get(), entry.srqn_uidx.get()),
            (turn, far.index)
        );
        assert_eq!(program.data.get(usize::from(turn) * 8, 3), [turn as u8; 3]);
    }
    program.assert_clean();
}

#[test]
fn a_datagram_has_a_header() {
    for config in ["default", "ib_link", "cqe_v0"] {
        let config = Config::from_words(config).unwrap();
        let program = Program::new(config.clone());
        let mut cq = program.cq(16, 64);
        let mut near = program.qp(QpType::UD, &cq, |_, _| {}).unwrap();
        let mut far = program.qp(QpType::UD, &cq, |_, _| {}).unwrap();
        program.connect(QpType::UD, &near, 0);
        program.connect(QpType::UD, &far, 0);
        let (key, to) = (program.key, program.data.address);
        program.post_receive(&mut far, &[(100, key, to)]);
        let mut av = mlx5::WqeAv {
            qkey: 0x1234.into(),
            dqp_dct: (mlx5::EXTENDED_UD_AV | far.number).into(),
            rlid: 0x11.into(),
            ..Default::default()
        };
        if !config.is_infiniband {
            av.rlid = 0xc123.into();
            av.rmac = [2, 0, 10, 9, 0, 1];
            av.hop_limit = 64;
            av.grh_gid_fl = (2 << 20).into();
            av.rgid = config.address.to_ipv6_mapped().octets();
        }
        let request = Request::new(Opcode::SEND_IMM).word(5).segment(&av);
        program.post(&mut near, request.inline(b"datagram"));
        let entry = cq.poll();
        assert_eq!(entry.byte_cnt.get(), 48);
        let route = u32::from(!config.is_infiniband) << 28;
        assert_eq!(entry.flags_rqpn.get(), route | near.number);
        assert_eq!(program.data.get(40, 8), b"datagram");
        if !config.is_infiniband {
            assert_eq!(program.data.get(20, 1), [0x45]);
            assert_eq!(program.data.get(32, 4), config.address.octets());
        }
        let index = if config.cqe_version == 0 {
            0
        } else {
            far.index
        };
        assert_eq!(entry.srqn_uidx.get(), index);
        assert_eq!(cq.poll().op_own >> 4, CqeOpcode::REQ.0);
        program.assert_clean();
    }
}
