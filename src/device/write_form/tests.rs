//! Commands in bytes.
//!
//! The same operations were recorded from the C provider in both forms: what is described as the
//! ioctl has it must be written as the C provider writes it.

mod described;
mod opened;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rdmacm_kernel_abi::uverbs::{
    Command, CreateXsrq, ExCommand, ExCreateQp, QpCreateFlags, QpType, SrqType, ioctl,
};
use serde_json::{Value as Json, json};
use zerocopy::IntoBytes;

use super::{Destination, Message, carry_out, extended, get_context};
use crate::device::DriverPart;
use crate::sys::replay::Replay;
use crate::sys::replay::vectors::{self, bytes, commands, number};
use described::{Described, Slot};

/// A written command as the recordings have it.
fn written(name: &str, command: Command, request: &[u8], answer: &[u8]) -> Json {
    json!({
        "name": name, "via": "write", "cmd": command.0,
        "core_in": hex(request), "uhw_in": "",
        "core_out_len": answer.len(), "uhw_out_len": 0, "core_out": hex(answer),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A number of four bytes in one of a command's fields.
fn word(command: &Json, field: &str, at: usize) -> u32 {
    let bytes = bytes(&command[field]);
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The objects of one recording have other handles in the other, since others were made before
/// them.
fn take_handles(described: &mut Described, written: &Json) {
    use ioctl::{cq, mr, object, qp, srq};
    let places: &[(u16, usize)] = match (described.object, described.method) {
        (object::QP, qp::CREATE) => &[
            (qp::create::PD_HANDLE, 16),
            (qp::create::SEND_CQ_HANDLE, 20),
            (qp::create::RECV_CQ_HANDLE, 24),
            (qp::create::SRQ_HANDLE, 28),
        ],
        (object::SRQ, srq::CREATE) => &[(srq::create::PD_HANDLE, 16)],
        (object::QP, qp::DESTROY) => &[(qp::destroy::HANDLE, 8)],
        (object::SRQ, srq::DESTROY) => &[(srq::destroy::HANDLE, 8)],
        (object::CQ, cq::DESTROY) => &[(cq::destroy::HANDLE, 8)],
        (object::MR, mr::DESTROY) => &[(mr::destroy::HANDLE, 0)],
        _ => &[],
    };
    for (id, at) in places {
        described.set(*id, Slot::Handle(word(written, "core_in", *at)));
    }
}

/// Carries a recorded ioctl out by `write()`, which is to be as it was recorded. The answers must
/// be those of the ioctl.
fn replay(ioctl: &Json, written: &Json) {
    let mut described = Described::recorded(ioctl);
    take_handles(&mut described, written);
    described.set_driver_part(written);
    let kernel = Replay::new([written.clone()]);
    described.carry_out(&*kernel).unwrap();
    kernel.finish();
    for attribute in ioctl["attrs"].as_array().unwrap() {
        let id = number(&attribute["id"]) as u16;
        match described.get(id) {
            Slot::New(handle) => assert_eq!(*handle, word(written, "core_out", 0)),
            Slot::Out(driver) if id == ioctl::UHW_OUT => {
                assert_eq!(*driver, bytes(&written["uhw_out"]))
            }
            Slot::Out(answer) => assert_eq!(*answer, bytes(&attribute["answer"]), "{ioctl}"),
            _ => {}
        }
    }
}

#[test]
fn queues_are_made_as_recorded() {
    let ioctls = vectors::lines("create");
    let writes = vectors::lines("write_abi_create");
    assert_eq!((ioctls.len(), writes.len()), (777, 777));
    let mut made = 0;
    for (ioctl, write) in ioctls.iter().zip(&writes) {
        if write["cmd"].is_object() {
            replay(&ioctl["cmd"], &write["cmd"]);
            made += 1;
        }
    }
    assert_eq!(made, 757);
}

#[test]
fn a_device_is_worked_with_as_recorded() {
    let [ioctls, writes] = ["control", "write_abi_control"].map(|name| {
        let mut lines = vectors::lines(name);
        commands(&lines.remove(0))
    });
    // The older kernel has neither, and reads the GID from sysfs.
    let only_ioctl = |command: &&Json| {
        matches!(
            command["name"].as_str(),
            Some("uar_alloc" | "mmap" | "query_gid_entry" | "uar_destroy")
        )
    };
    let ioctls: Vec<&Json> = ioctls.iter().filter(|one| !only_ioctl(one)).collect();
    assert_eq!(ioctls.len(), writes.len());
    for (ioctl, write) in ioctls.iter().zip(&writes) {
        if ioctl["via"] == "ioctl" {
            replay(ioctl, write);
        } else {
            write_as_recorded(write);
        }
    }
}

/// Sends a command that is a written one in either form.
fn write_as_recorded(recorded: &Json) {
    let kernel = Replay::new([recorded.clone()]);
    write_to(&kernel, recorded);
    kernel.finish();
}

/// Sends a recorded command to a kernel that may expect another.
fn write_to(kernel: &Replay, recorded: &Json) {
    let (core, uhw) = (bytes(&recorded["core_in"]), bytes(&recorded["uhw_in"]));
    let mut answer = vec![0; number(&recorded["core_out_len"]) as usize];
    let mut driver_answer = vec![0; number(&recorded["uhw_out_len"]) as usize];
    let message = Message {
        command: Command(number(&recorded["cmd"]) as u32),
        request: &core,
        answer: &mut answer,
        driver: DriverPart::Exchange {
            request: &uhw,
            response: &mut driver_answer,
        },
    };
    let file = File::open("/dev/null").unwrap();
    let fd = file.as_fd();
    let sent = message.send(Destination { kernel, fd });
    sent.unwrap();
    assert_eq!(answer, bytes(&recorded["core_out"]), "{recorded}");
    assert_eq!(driver_answer, bytes(&recorded["uhw_out"]), "{recorded}");
}

#[test]
fn a_device_is_opened_as_recorded() {
    let recorded = commands(&vectors::lines("write_abi_open")[0]);
    let (get, rest) = recorded.split_first().unwrap();
    let kernel = Replay::new([get.clone()]);
    let file = File::open("/dev/null").unwrap();
    let (request, mut response) = (bytes(&get["uhw_in"]), [0; 72]);
    let driver = DriverPart::Exchange {
        request: &request,
        response: &mut response,
    };
    let to = Destination {
        kernel: &*kernel,
        fd: file.as_fd(),
    };
    let (vectors, _events) = get_context(to, driver).unwrap();
    kernel.finish();
    assert_eq!(vectors, 8);
    assert_eq!(response.as_slice(), bytes(&get["uhw_out"]));
    for command in rest.iter().filter(|one| one["via"] == "write") {
        write_as_recorded(command);
    }
}

#[test]
fn the_objects_that_have_no_counts_are_named_and_no_more() {
    use ioctl::object;
    for (object, method, command) in [
        (object::PD, ioctl::pd::DESTROY, Command::DEALLOC_PD),
        (object::MR, ioctl::mr::DESTROY, Command::DEREG_MR),
        (object::MW, ioctl::mw::DESTROY, Command::DEALLOC_MW),
        (object::AH, ioctl::ah::DESTROY, Command::DESTROY_AH),
        (object::XRCD, ioctl::xrcd::DESTROY, Command::CLOSE_XRCD),
    ] {
        let handle = (ioctl::pd::destroy::HANDLE, Slot::Handle(7));
        let mut destroy = Described::new(object, method, &[handle]);
        let kernel = Replay::new([written("destroy", command, &7u32.to_ne_bytes(), &[])]);
        destroy.carry_out(&*kernel).unwrap();
        kernel.finish();
    }
}

/// What every queue pair says.
fn queue_pair(kind: QpType, flags: QpCreateFlags) -> Described {
    use ioctl::qp::create as id;
    let kind = u64::from(kind.0).to_ne_bytes();
    Described::new(
        ioctl::object::QP,
        ioctl::qp::CREATE,
        &[
            (id::HANDLE, Slot::New(0)),
            (id::PD_HANDLE, Slot::Handle(1)),
            (id::SEND_CQ_HANDLE, Slot::Handle(2)),
            (id::RECV_CQ_HANDLE, Slot::Handle(3)),
            (id::USER_HANDLE, Slot::In(vec![4; 8])),
            (id::CAP, Slot::In(vec![5; 20])),
            (id::TYPE, Slot::In(kind.to_vec())),
            (id::FLAGS, Slot::In(flags.bits().to_ne_bytes().to_vec())),
            (id::RESP_QP_NUM, Slot::Out(vec![0; 4])),
        ],
    )
}

#[test]
fn flags_of_a_queue_pair_take_the_extended_command() {
    let flag = QpCreateFlags::CVLAN_STRIPPING;
    let mut create = queue_pair(QpType::UD, flag | QpCreateFlags::SQ_SIG_ALL);
    let request = ExCreateQp {
        user_handle: 0x0404_0404_0404_0404,
        pd_handle: 1,
        send_cq_handle: 2,
        recv_cq_handle: 3,
        max_send_wr: 0x0505_0505,
        max_recv_wr: 0x0505_0505,
        max_send_sge: 0x0505_0505,
        max_recv_sge: 0x0505_0505,
        max_inline_data: 0x0505_0505,
        sq_sig_all: 1,
        qp_type: 4,
        create_flags: flag.bits(),
        ..Default::default()
    };
    let mut answer = [0; 40];
    answer[..8].copy_from_slice(&[9, 0, 0, 0, 8, 0, 0, 0]);
    let command = extended(ExCommand::CREATE_QP);
    let kernel = Replay::new([written("create_qp", command, request.as_bytes(), &answer)]);
    create.carry_out(&*kernel).unwrap();
    kernel.finish();
    assert_eq!(*create.get(ioctl::qp::create::HANDLE), Slot::New(9));
    let number = create.get(ioctl::qp::create::RESP_QP_NUM);
    assert_eq!(*number, Slot::Out(vec![8, 0, 0, 0]));
}

#[test]
fn the_target_of_xrc_belongs_to_its_domain() {
    use ioctl::qp::create as id;
    let mut create = queue_pair(QpType::XRC_TGT, QpCreateFlags::empty());
    let of_domain = |(kind, _): &(u16, Slot)| *kind != id::PD_HANDLE;
    create.attributes.retain(of_domain);
    create.attributes.push((id::XRCD_HANDLE, Slot::Handle(6)));
    let mut request = [0; 56];
    request[8..16].fill(4);
    request[16..28].copy_from_slice(&[6, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    request[32..52].fill(5);
    request[53] = 10;
    let kernel = Replay::new([written("create_qp", Command::CREATE_QP, &request, &[0; 32])]);
    create.carry_out(&*kernel).unwrap();
    kernel.finish();
}

#[test]
fn a_shared_receive_queue_of_xrc_has_a_command_of_its_own() {
    use ioctl::srq::create as id;
    let kind = u64::from(SrqType::XRC.0).to_ne_bytes();
    let number = |number: u32| Slot::In(number.to_ne_bytes().to_vec());
    let mut create = Described::new(
        ioctl::object::SRQ,
        ioctl::srq::CREATE,
        &[
            (id::HANDLE, Slot::New(0)),
            (id::PD_HANDLE, Slot::Handle(1)),
            (id::XRCD_HANDLE, Slot::Handle(2)),
            (id::CQ_HANDLE, Slot::Handle(3)),
            (id::USER_HANDLE, Slot::In(vec![4; 8])),
            (id::MAX_WR, number(5)),
            (id::MAX_SGE, number(6)),
            (id::LIMIT, number(7)),
            (id::TYPE, Slot::In(kind.to_vec())),
            (id::RESP_SRQ_NUM, Slot::Out(vec![0; 4])),
        ],
    );
    let request = CreateXsrq {
        user_handle: 0x0404_0404_0404_0404,
        srq_type: SrqType::XRC.0,
        pd_handle: 1,
        max_wr: 5,
        max_sge: 6,
        srq_limit: 7,
        xrcd_handle: 2,
        cq_handle: 3,
        ..Default::default()
    };
    let mut answer = [0; 16];
    answer[12] = 11;
    let command = Command::CREATE_XSRQ;
    let kernel = Replay::new([written("create_xsrq", command, request.as_bytes(), &answer)]);
    create.carry_out(&*kernel).unwrap();
    kernel.finish();
    let number = create.get(id::RESP_SRQ_NUM);
    assert_eq!(*number, Slot::Out(vec![11, 0, 0, 0]));
}

#[test]
fn what_cannot_be_written_is_refused_and_nothing_is_sent() {
    let kernel = Replay::new([]);
    let flags = (ioctl::cq::create::FLAGS, Slot::In(vec![1, 0, 0, 0]));
    for mut refused in [
        Described::new(ioctl::object::MR, ioctl::mr::REG_DMABUF, &[]),
        Described::new(ioctl::object::ASYNC_EVENT, ioctl::async_event::ALLOC, &[]),
        Described::new(ioctl::object::DEVICE, ioctl::device::QUERY_GID_TABLE, &[]),
        Described::new(ioctl::object::CQ, ioctl::cq::CREATE, &[flags]),
    ] {
        let error = refused.carry_out(&*kernel).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
    kernel.finish();
}

#[test]
fn answers_are_cut_to_their_room() {
    let port = (
        ioctl::device::query_port::PORT_NUM,
        Slot::In(vec![1, 0, 0, 0, 0, 0, 0, 0]),
    );
    let room = (ioctl::device::query_port::RESP, Slot::Out(vec![7; 3]));
    let (object, method) = (ioctl::object::DEVICE, ioctl::device::QUERY_PORT);
    let mut query = Described::new(object, method, &[port, room]);
    let mut request = [0; 16];
    request[8] = 1;
    let kernel = Replay::new([written(
        "query_port",
        Command::QUERY_PORT,
        &request,
        &[9; 40],
    )]);
    query.carry_out(&*kernel).unwrap();
    assert_eq!(
        *query.get(ioctl::device::query_port::RESP),
        Slot::Out(vec![9; 3])
    );
}

/// What the tests above find equal is compared: any bit of a request that is not an address.
#[test]
fn every_changed_bit_is_noticed() {
    let recorded = &vectors::lines("write_abi_create")[30]["cmd"];
    let mut flips = 0;
    for field in ["core_in", "uhw_in"] {
        // Where the addresses end in either.
        for bit in 16 * 8..bytes(&recorded[field]).len() * 8 {
            let mut changed = recorded.clone();
            let mut flipped = bytes(&recorded[field]);
            flipped[bit / 8] ^= 1 << (bit % 8);
            changed[field] = hex(&flipped).into();
            let kernel = Replay::new([changed]);
            write_to(&kernel, recorded);
            assert!(!kernel.differences().is_empty(), "bit {bit} of {field}");
            flips += 1;
        }
    }
    assert!(flips > 400, "{flips}");
}
