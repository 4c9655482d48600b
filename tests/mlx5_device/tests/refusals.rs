//! Commands that the kernel refuses.

mod program;

use program::{ALL_ACCESS, Area, Program};
use rdmacm_kernel_abi::mlx5;
use rdmacm_kernel_abi::uverbs::{self, Command, QpAttrMask as A, QpType};
use rdmacm_mlx5_device::Config;
use zerocopy::IntoBytes;

fn errno<T: std::fmt::Debug>(done: std::io::Result<T>) -> i32 {
    done.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn queue_pairs_that_cannot_be() {
    type Change = fn(&mut uverbs::CreateQp, &mut mlx5::CreateQp);
    let cases: [(&str, Change, i32); 11] = [
        (
            "no power of two",
            |_, own| own.sq_wqe_count = 12,
            libc::EINVAL,
        ),
        (
            "no power of two",
            |_, own| own.rq_wqe_count = 12,
            libc::EINVAL,
        ),
        (
            "the index that means none",
            |_, own| own.uidx = 0xff_ffff,
            libc::EINVAL,
        ),
        (
            "an index of 25 bits",
            |_, own| own.uidx = 1 << 24,
            libc::EINVAL,
        ),
        (
            "an unknown flag",
            |_, own| own.flags |= 1 << 20,
            libc::EINVAL,
        ),
        (
            "a flag of another type",
            |_, own| own.flags |= 0x10,
            libc::EINVAL,
        ),
        ("a reserved word", |_, own| own.reserved = 1, libc::EINVAL),
        (
            "no page of its own",
            |_, own| own.bfreg_index += 100,
            libc::EINVAL,
        ),
        ("no page at all", |_, own| own.flags = 0, libc::EINVAL),
        (
            "a queue that is not aligned",
            |_, own| own.buf_addr += 32,
            libc::EINVAL,
        ),
        (
            "a queue that is not mapped",
            |_, own| own.buf_addr = 4096 * 5,
            libc::EFAULT,
        ),
    ];
    for (name, change, expected) in cases {
        let program = Program::new(Config::default());
        let cq = program.cq(4, 64);
        let made = program.qp(QpType::RC, &cq, change);
        assert_eq!(errno(made.map(|qp| qp.number)), expected, "{name}");
    }
}

#[test]
fn the_index_depends_on_the_completion_format() {
    let program = Program::new(Config::from_words("cqe_v0").unwrap());
    let cq = program.cq(4, 64);
    let made = program.qp(QpType::RC, &cq, |_, own| own.uidx = 5);
    assert_eq!(errno(made.map(|qp| qp.number)), libc::EINVAL);
    program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
    program.assert_clean();
}

#[test]
fn a_record_that_is_not_aligned() {
    let program = Program::new(Config::default());
    let cq = program.cq(4, 64);
    let made = program.qp(QpType::RC, &cq, |_, own| own.db_addr += 4);
    assert_eq!(errno(made.map(|qp| qp.number)), libc::EINVAL);
    assert!(program.violation().contains("not aligned to 8"));
}

#[test]
fn completion_queues_that_cannot_be() {
    type Change = fn(&mut uverbs::CreateCq, &mut mlx5::CreateCq);
    let cases: [(&str, Change); 7] = [
        ("no entries", |asked, _| asked.cqe = 0),
        ("too many entries", |asked, _| asked.cqe = 1 << 24),
        ("a vector that there is not", |asked, _| {
            asked.comp_vector = 8
        }),
        ("entries of another size", |_, own| own.cqe_size = 96),
        ("an unknown flag", |_, own| own.flags |= 0x80),
        ("a reserved word", |_, own| own.reserved1 = 1),
        ("no page at all", |_, own| own.flags = 0),
    ];
    for (name, change) in cases {
        let program = Program::new(Config::default());
        let (area, record) = (Area::new(4 * 64), Area::new(8));
        let mut asked = uverbs::CreateCq {
            cqe: 3,
            comp_channel: -1,
            ..Default::default()
        };
        let mut own = program.cq_request(area, record, 64);
        change(&mut asked, &mut own);
        let made = program.command(Command::CREATE_CQ, &asked, own.as_bytes(), 8, 8);
        assert_eq!(errno(made), libc::EINVAL, "{name}");
    }
}

#[test]
fn commands_that_are_too_short_or_in_the_wrong_order() {
    let program = Program::new(Config::default());
    let file = program.card.open();
    let header = uverbs::CmdHeader {
        command: Command::ALLOC_PD.0,
        in_words: 4,
        out_words: 2,
    };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend([0; 8]);
    // SAFETY: it is refused before its pointer is used.
    let refused = unsafe { file.write(&bytes) };
    assert_eq!(errno(refused), libc::EINVAL, "without a context");
    let asked = uverbs::AllocPd::default();
    let refused = program.command(Command::ALLOC_PD, &asked, &[], 0, 0);
    assert_eq!(errno(refused), libc::ENOSPC, "without room for the answer");
    let refused = program.command(Command::ALLOC_PD, &asked, &[], 4, 0);
    assert_eq!(
        errno(refused),
        libc::EINVAL,
        "without room for the driver's"
    );
    let refused = program.command(Command::REG_MR, &asked, &[], 12, 0);
    assert_eq!(errno(refused), libc::ENOSPC, "too short");
    let refused = program.command(Command::POST_SEND, &asked, &[], 4, 0);
    assert_eq!(errno(refused), libc::EOPNOTSUPP);
    let refused = program.method(4, 77, []);
    assert_eq!(errno(refused), libc::EPROTONOSUPPORT);
}

#[test]
fn memory_that_cannot_be_registered() {
    let program = Program::new(Config::default());
    let unmapped = Area {
        address: 4096 * 3,
        length: 4096,
    };
    assert_eq!(errno(program.register(unmapped, ALL_ACCESS)), libc::EFAULT);
    let empty = Area {
        length: 0,
        ..program.data
    };
    assert_eq!(errno(program.register(empty, ALL_ACCESS)), libc::EINVAL);
    // What peers may write the program may write.
    assert_eq!(errno(program.register(program.data, 2)), libc::EINVAL);
    assert_eq!(errno(program.register(program.data, 1 << 15)), libc::EINVAL);
}

#[test]
fn objects_that_are_in_use_stay() {
    let program = Program::new(Config::default());
    let cq = program.cq(4, 64);
    let qp = program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
    let destroy_cq = uverbs::DestroyCq {
        cq_handle: cq.handle,
        ..Default::default()
    };
    let busy = program.command(Command::DESTROY_CQ, &destroy_cq, &[], 8, 0);
    assert_eq!(errno(busy), libc::EBUSY);
    let dealloc = uverbs::DeallocPd {
        pd_handle: program.pd,
    };
    let busy = program.command(Command::DEALLOC_PD, &dealloc, &[], 0, 0);
    assert_eq!(errno(busy), libc::EBUSY);
    let destroy_qp = uverbs::DestroyQp {
        qp_handle: qp.handle,
        ..Default::default()
    };
    let gone = program.command(Command::DESTROY_QP, &destroy_qp, &[], 4, 0);
    assert_eq!(gone.unwrap().0, [0; 4]);
    let gone = program.command(Command::DESTROY_QP, &destroy_qp, &[], 4, 0);
    assert_eq!(errno(gone), libc::ENOENT);
    let gone = program.command(Command::DESTROY_CQ, &destroy_cq, &[], 8, 0);
    assert_eq!(gone.unwrap().0, [0; 8]);
}

#[test]
fn states_follow_each_other() {
    let program = Program::new(Config::default());
    let cq = program.cq(4, 64);
    let qp = program.qp(QpType::RC, &cq, |_, _| {}).unwrap();
    let to = |mask: A, state: u8| {
        program.modify(&qp, mask, |to| {
            (to.qp_state, to.port_num) = (state, 1);
        })
    };
    assert_eq!(errno(to(A::STATE, 3)), libc::EINVAL, "RESET to RTS");
    assert_eq!(errno(to(A::STATE, 1)), libc::EINVAL, "without attributes");
    let init = A::STATE | A::PKEY_INDEX | A::PORT | A::ACCESS_FLAGS;
    let refused = to(init | A::QKEY, 1);
    assert_eq!(errno(refused), libc::EINVAL, "a key of datagrams");
    to(init, 1).unwrap();
    assert_eq!(errno(to(A::STATE, 2)), libc::EINVAL, "without a peer");
    to(A::STATE, 6).unwrap();
    assert_eq!(errno(to(init, 1)), libc::EINVAL, "ERROR to INIT");
    to(A::STATE, 0).unwrap();
    to(init, 1).unwrap();
}

#[test]
fn only_write_is_known_where_the_kernel_is_old() {
    let program = Program::new(Config::from_words("write_abi").unwrap());
    assert_eq!(errno(program.method(0, 2, [])), libc::ENOTTY);
}
