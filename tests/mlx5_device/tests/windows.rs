//! Memory windows: bound, used, closed.

mod program;

use program::{Cq, Program, Qp, Request};
use rdmacm_kernel_abi::mlx5::{
    CqeOpcode, CqeSyndrome, ErrCqe, MkeyContextSeg, Opcode, UmrCtrlSeg, UmrKlmSeg,
};
use rdmacm_kernel_abi::uverbs::QpType;
use rdmacm_mlx5_device::Config;
use zerocopy::{FromBytes, IntoBytes};

/// A queue pair that is connected to itself, with a completion queue for all of it.
fn start() -> (Program, Cq, Qp) {
    let program = Program::new(Config::default());
    let cq = program.cq(16, 64);
    let qp = program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
    program.connect(QpType::RC, &qp, qp.number);
    (program, cq, qp)
}

/// Bits of what the C library says that it changes.
const FREE_AND_KEY: u64 = 1 << 29 | 1 << 13;
const QUEUE_PAIR: u64 = 1 << 14;
const RANGE_AND_ACCESS: u64 = 0x3d_0041;
/// TRANSLATION_OFFSET and INLINE.
const FLAGS: u8 = 0x90;

/// The request that binds a window, as the C library makes it.
fn bind(program: &Program, qp: &Qp, key: u32, new_byte: u8, is_type_2: bool) -> Request {
    let (mask, flags, to) = match is_type_2 {
        true => (QUEUE_PAIR, 0x20, qp.number),
        false => (0, 0, 0xff_ffff),
    };
    let start = program.data.address + 100;
    let control = UmrCtrlSeg {
        flags: FLAGS | flags,
        klm_octowords: 4.into(),
        mkey_mask: (FREE_AND_KEY | RANGE_AND_ACCESS | mask).into(),
        ..Default::default()
    };
    let context = MkeyContextSeg {
        // Remote write.
        access_flags: 0x20,
        qpn_mkey: (to << 8 | u32::from(new_byte)).into(),
        start_addr: start.into(),
        len: 50.into(),
        ..Default::default()
    };
    let piece = UmrKlmSeg {
        byte_count: 50.into(),
        mkey: program.key.into(),
        address: start.into(),
    };
    Request::new(Opcode::UMR)
        .word(key)
        .segment(&control)
        .segment(&context)
        .segment(&piece)
        .segment(&[0u8; 48])
}

/// The request that closes a window of type 2.
fn invalidate(key: u32) -> Request {
    let control = UmrCtrlSeg {
        flags: FLAGS | 8,
        mkey_mask: (FREE_AND_KEY | QUEUE_PAIR).into(),
        ..Default::default()
    };
    let context = MkeyContextSeg {
        free: 0x40,
        qpn_mkey: 0xffff_ff00.into(),
        ..Default::default()
    };
    Request::new(Opcode::UMR)
        .word(key)
        .segment(&control)
        .segment(&context)
}

fn write(program: &Program, key: u32, offset: u64) -> Request {
    let to = program.data.address + offset;
    Request::new(Opcode::RDMA_WRITE)
        .remote(to, key)
        .inline(b"through a window")
}

/// How the next request ended.
fn ending(cq: &mut Cq) -> Option<CqeSyndrome> {
    let entry = cq.poll();
    match CqeOpcode(entry.op_own >> 4) {
        CqeOpcode::REQ => None,
        CqeOpcode::REQ_ERR => {
            let error = ErrCqe::read_from_bytes(entry.as_bytes()).unwrap();
            Some(CqeSyndrome(error.syndrome))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_window_opens_and_closes() {
    for is_type_2 in [false, true] {
        let (program, mut cq, mut qp) = start();
        let key = program.window(1 + u8::from(is_type_2));
        let new_key = key & !0xff | 0x5a;
        let request = bind(&program, &qp, key, 0x5a, is_type_2);
        program.post(&mut qp, request);
        assert_eq!(ending(&mut cq), None);
        program.post(&mut qp, write(&program, new_key, 120));
        assert_eq!(ending(&mut cq), None);
        assert_eq!(program.data.get(120, 7), b"through");
        if is_type_2 {
            program.post(&mut qp, invalidate(new_key));
            assert_eq!(ending(&mut cq), None);
            program.post(&mut qp, write(&program, new_key, 120));
            assert_eq!(ending(&mut cq), Some(CqeSyndrome::REMOTE_ACCESS_ERR));
        }
        program.assert_clean();
    }
}

#[test]
fn what_a_window_does_not_show_is_refused() {
    // The last byte, a byte too far, one too early.
    for (offset, expected) in [
        (134, None),
        (135, Some(CqeSyndrome::REMOTE_ACCESS_ERR)),
        (99, Some(CqeSyndrome::REMOTE_ACCESS_ERR)),
    ] {
        let (program, mut cq, mut qp) = start();
        let key = program.window(2);
        let request = bind(&program, &qp, key, 1, true);
        program.post(&mut qp, request);
        assert_eq!(ending(&mut cq), None);
        program.post(&mut qp, write(&program, key & !0xff | 1, offset));
        assert_eq!(ending(&mut cq), expected);
        program.assert_clean();
    }
}

#[test]
fn binds_that_cannot_be_fail() {
    // Bound already; closed before it was bound; a region's key.
    for case in 0..3 {
        let (program, mut cq, mut qp) = start();
        let key = program.window(2);
        let request = match case {
            0 => {
                let request = bind(&program, &qp, key, 1, true);
                program.post(&mut qp, request.clone());
                assert_eq!(ending(&mut cq), None);
                request
            }
            1 => invalidate(key),
            _ => bind(&program, &qp, program.key, 1, true),
        };
        program.post(&mut qp, request);
        assert_eq!(ending(&mut cq), Some(CqeSyndrome::MW_BIND_ERR), "{case}");
        program.assert_clean();
    }
}

#[test]
fn the_peer_closes_a_window() {
    let (program, mut cq, mut qp) = start();
    let key = program.window(2);
    let request = bind(&program, &qp, key, 9, true);
    program.post(&mut qp, request);
    assert_eq!(ending(&mut cq), None);
    program.post_receive(&mut qp, &[]);
    let new_key = key & !0xff | 9;
    program.post(&mut qp, Request::new(Opcode::SEND_INVAL).word(new_key));
    let entry = cq.poll();
    assert_eq!(CqeOpcode(entry.op_own >> 4), CqeOpcode::RESP_SEND_INV);
    assert_eq!(entry.imm_inval_pkey.get(), new_key);
    assert_eq!(ending(&mut cq), None);
    program.post(&mut qp, write(&program, new_key, 120));
    assert_eq!(ending(&mut cq), Some(CqeSyndrome::REMOTE_ACCESS_ERR));
    program.assert_clean();
}
