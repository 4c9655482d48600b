//! Devices of a kernel that knows no ioctl.

use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{Command, ExCommand};
use serde_json::{Value as Json, json};
use zerocopy::IntoBytes;

use super::{extended, hex, written};
use crate::Access;
use crate::device::{Context, GidType, Registry, discovery};
use crate::error::{Error, ErrorKind};
use crate::sys::replay::Replay;

/// Opens the rxe device of a kernel that takes written commands only.
fn open() -> (Arc<Replay>, Context) {
    let kernel = Replay::new([written(
        "get_context",
        Command::GET_CONTEXT,
        &[0; 8],
        &[0; 8],
    )]);
    kernel.add_device("rxe0", "Ethernet");
    let devices = discovery::list(Registry::of_stand_in(kernel.clone())).unwrap();
    let context = devices[0].open().unwrap();
    kernel.finish();
    (kernel, context)
}

/// The question what the device can do, answered with one port.
fn query_device() -> Json {
    let mut answer = [0; 304];
    answer[171] = 1;
    let command = extended(ExCommand::QUERY_DEVICE);
    written("query_device", command, &[0; 8], &answer)
}

/// The question about port 1, answered with a table of so many GIDs.
fn query_port(gids: u32) -> Json {
    let mut request = [0; 16];
    request[8] = 1;
    let mut answer = [0; 40];
    answer[16..20].copy_from_slice(gids.as_bytes());
    answer[37] = 2;
    written("query_port", Command::QUERY_PORT, &request, &answer)
}

#[test]
fn there_is_one_stream_of_events_at_a_time() {
    let (kernel, context) = open();
    assert_eq!(context.completion_vectors(), 8);
    let events = context.async_events().unwrap();
    let refused = context.async_events().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidState);
    assert!(refused.to_string().contains("one stream"), "{refused}");
    drop(events);
    let events = context.async_events().unwrap();
    assert_eq!(events.try_next_event().unwrap(), None);
    kernel.finish();
}

#[test]
fn gids_come_from_sysfs() {
    let (kernel, context) = open();
    let port = "/sys/class/infiniband/rxe0/ports/1";
    for (file, text) in [
        ("gids/0", "fe80:0000:0000:0000:5054:00ff:fe00:0001"),
        ("gid_attrs/types/0", "IB/RoCE v1"),
        ("gids/1", "0000:0000:0000:0000:0000:ffff:0a0a:0001"),
        ("gid_attrs/types/1", "RoCE v2"),
        ("gid_attrs/ndevs/1", "eth7"),
        ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
    ] {
        kernel.add_file(&format!("{port}/{file}"), text);
    }
    kernel.add_file("/sys/class/net/eth7/ifindex", "3");
    kernel.expect([query_device(), query_port(1024)]);
    let gids = context.gids().unwrap();
    let kinds: Vec<GidType> = gids.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [GidType::RoceV1, GidType::RoceV2]);
    assert_eq!(gids[1].gid.to_ip(), IpAddr::from([10, 10, 0, 1]));
    assert_eq!((gids[1].index, gids[1].port, gids[1].interface), (1, 1, 3));

    kernel.expect([query_port(1024), query_port(1024), query_port(1024)]);
    assert_eq!(context.gid(1, 1).unwrap(), Some(gids[1]));
    assert_eq!(context.gid(1, 2).unwrap(), None);
    let error = context.gid(1, 3).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
    // A table that says it is shorter than its folder.
    kernel.expect([query_port(1)]);
    assert_eq!(context.gids().unwrap().len(), 1);
    kernel.add_file(&format!("{port}/gids/0"), "no GID");
    kernel.expect([query_port(1024)]);
    let error = context.gids().unwrap_err();
    assert!(error.to_string().contains("\"no GID\""), "{error}");
    kernel.finish();
}

#[test]
fn a_dma_buffer_has_no_written_form() {
    let (kernel, context) = open();
    let pd = written("alloc_pd", Command::ALLOC_PD, &[0; 8], &[5, 0, 0, 0]);
    let dealloc = written("dealloc_pd", Command::DEALLOC_PD, &[5, 0, 0, 0], &[]);
    kernel.expect([pd, query_device(), dealloc]);
    let pd = context.alloc_pd().unwrap();
    context.attr().unwrap();
    let file = File::open("/dev/null").unwrap();
    let refused = pd.register_dmabuf(&file, 0, 4096, 0, Access::LOCAL_WRITE);
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported);
    assert!(refused.to_string().contains("write()"), "{refused}");
    pd.dealloc().unwrap();
    kernel.finish();
}

#[test]
fn where_the_extended_question_is_unknown_the_basic_limits_are_asked() {
    let (kernel, context) = open();
    let mut refused = query_device();
    refused["rc"] = libc::EOPNOTSUPP.into();
    let mut answer = [0; 176];
    answer[171] = 3;
    let command = Command::QUERY_DEVICE;
    kernel.expect([refused, written("query_device", command, &[0; 8], &answer)]);
    let attr = context.attr().unwrap();
    assert_eq!((attr.ports(), attr.max_moderation().0), (3, 0));
    kernel.finish();
}

/// A completion queue for four entries, which the kernel answers with these bytes all over.
fn queue_answered_with(byte: u8) -> Error {
    let (kernel, context) = open();
    let mut device = [0; 304];
    device[76..80].copy_from_slice(&100u32.to_ne_bytes());
    let command = extended(ExCommand::QUERY_DEVICE);
    let query = written("query_device", command, &[0; 8], &device);
    let mut request = [0; 32];
    request[16] = 4;
    request[24..28].fill(0xff);
    let mut create = written("create_cq", Command::CREATE_CQ, &request, &[byte; 8]);
    create["masked"] = json!([{ "in": "core_in", "offset": 8, "len": 8 }]);
    create["uhw_out_len"] = json!(16);
    create["uhw_out"] = json!(hex(&[byte; 16]));
    kernel.expect([query, create]);
    kernel.ignore_destroys();
    let refused = context.completion_queue(4).build().unwrap_err();
    // No mapping was expected.
    let differences = kernel.differences();
    let others = differences.iter().find(|text| !text.contains("a mapping"));
    assert_eq!(others, None);
    refused
}

#[test]
fn answers_of_nothing_and_of_far_too_much_are_errors() {
    for byte in [0, 0xff] {
        let refused = queue_answered_with(byte);
        assert_eq!(refused.operation(), "map_queue", "{refused}");
    }
}

#[test]
fn a_port_beyond_any_size_is_told_as_it_is() {
    let (kernel, context) = open();
    let mut port = query_port(0);
    port["core_out"] = json!(hex(&[0xff; 40]));
    kernel.expect([port]);
    assert_eq!(context.port(1).unwrap().gid_table_length, u32::MAX);
    kernel.finish();
}
