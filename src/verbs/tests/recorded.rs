//! What is asked of the kernel for a device of mlx5, which must be what the C provider asks.
//!
//! The recordings in `tests/mlx5_vectors` were made in both forms of the commands. Some things the
//! library asks at another time than the C provider, so that the order is given here.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::{self, ModifyQp};
use serde_json::{Value as Json, json};
use zerocopy::FromBytes;

use crate::device::{AsyncEvents, Context, Driver, GidType, LinkLayer, Registry, devices};
use crate::fastpath::{CqSetup, QpType, use_as_in};
use crate::sys::replay::Replay;
use crate::sys::replay::vectors::{bytes, commands, files};
use crate::verbs::path::from_qp_dest;
use crate::verbs::{Access, Cq, Pd, Qp, QpAttr, QpCapabilities, QpModify, QpState, SrqAttr};

/// A device whose kernel follows a recording.
struct Machine {
    kernel: Arc<Replay>,
    /// The recorded commands that were not expected yet.
    left: Vec<Json>,
    is_written: bool,
}

impl Machine {
    /// With the commands of a configuration: those of opening the device, then these.
    fn new(config: &str, commands: &[Json]) -> Self {
        let kernel = Replay::new([]);
        kernel.add_device(
            "mlx5_0",
            match config {
                "ib_link" => "InfiniBand",
                _ => "Ethernet",
            },
        );
        Registry::of_stand_in(kernel.clone()).stand_in();
        use_as_in(config);
        let mut left = opening(config);
        left.extend(commands.iter().cloned());
        Self {
            kernel,
            left,
            is_written: config.starts_with("write_abi"),
        }
    }

    /// Has the kernel expect the next commands of these names, in this order.
    fn expect(&mut self, names: &[&str]) {
        for name in names {
            let found = self.left.iter().position(|left| left["name"] == *name);
            let at = found.unwrap_or_else(|| panic!("no {name} is left"));
            self.kernel.expect([self.left.remove(at)]);
        }
    }

    /// Opens the device and asks what a program asks first.
    fn open(&mut self) -> (Context, Pd, AsyncEvents) {
        self.expect(&["get_context"]);
        let listed = devices().unwrap();
        assert_eq!(listed[0].driver(), Driver::Mlx5);
        let context = listed[0].open().unwrap();
        self.leave_out_driver_answer("query_device_ex");
        self.expect(&["query_device_ex"]);
        assert_eq!(context.attr().unwrap().ports(), 1);
        self.expect_query_port();
        let port = context.port(1).unwrap();
        let mtu = match port.link_layer {
            LinkLayer::InfiniBand => 4096,
            _ => 1024,
        };
        assert_eq!(port.active_mtu.bytes(), mtu);
        self.expect(&["alloc_pd"]);
        let pd = context.alloc_pd().unwrap();
        if !self.is_written {
            self.expect(&["async_event_alloc"]);
        }
        let events = context.async_events().unwrap();
        (context, pd, events)
    }

    /// The C provider asks for more than the library has a use for.
    fn leave_out_driver_answer(&mut self, name: &str) {
        let mut commands = self.left.iter_mut();
        let command = commands.find(|left| left["name"] == name).unwrap();
        command["uhw_out_len"] = json!(0);
    }

    /// What is asked of a queue pair was the recorded program's choice: the library asks for all.
    fn leave_out_query_mask(&mut self) {
        let mut commands = self.left.iter_mut();
        let command = commands.find(|left| left["name"] == "query_qp").unwrap();
        let mask = json!({ "in": "core_in", "offset": 12, "len": 4 });
        command["masked"].as_array_mut().unwrap().push(mask);
    }

    fn expect_query_port(&mut self) {
        let name = match self.is_written {
            true => "query_port",
            false => "query_port_ioctl",
        };
        // The library asks oftener.
        let mut commands = self.left.iter();
        let command = commands.find(|left| left["name"] == name).unwrap();
        self.kernel.expect([command.clone()]);
    }

    /// The doorbell pages of the device: all that came with the context, or one that is asked for.
    fn expect_doorbell_pages(&mut self) {
        // Those that only the C provider maps tell the time.
        self.left
            .retain(|left| left["name"] != "mmap" || !is_clock(left));
        match self.is_written {
            true => self.expect(&["mmap"; 8]),
            false => self.expect(&["uar_alloc", "mmap"]),
        }
    }
}

/// The commands with which a device of a configuration is opened: those of its own recording, or
/// those of most.
fn opening(config: &str) -> Vec<Json> {
    let opened = all("open_device");
    let of = |config: &str| opened.iter().find(|line| line["config"] == config);
    commands(of(config).or_else(|| of("default")).unwrap())
}

/// All recordings of a kind: of the sources, and of the folder that the environment names.
fn all(kind: &str) -> Vec<Json> {
    let recordings = files().iter().flatten();
    let of_kind = recordings.filter(|line| line["kind"] == kind);
    of_kind.cloned().collect()
}

fn configuration(recording: &Json) -> &str {
    recording["config"].as_str().unwrap()
}

fn is_clock(mapping: &Json) -> bool {
    mapping["command"] == 5 || mapping["command"] == 7
}

/// The change that a recorded command carries out.
fn change(command: &Json) -> QpModify {
    let recorded = ModifyQp::read_from_bytes(&bytes(&command["core_in"])).unwrap();
    let attr = uverbs::QpAttr {
        qp_attr_mask: recorded.attr_mask,
        qp_state: recorded.qp_state.into(),
        path_mtu: recorded.path_mtu.into(),
        qkey: recorded.qkey,
        rq_psn: recorded.rq_psn,
        sq_psn: recorded.sq_psn,
        dest_qp_num: recorded.dest_qp_num,
        qp_access_flags: recorded.qp_access_flags,
        ah_attr: from_qp_dest(&recorded.dest),
        pkey_index: recorded.pkey_index,
        max_rd_atomic: recorded.max_rd_atomic,
        max_dest_rd_atomic: recorded.max_dest_rd_atomic,
        min_rnr_timer: recorded.min_rnr_timer,
        port_num: recorded.port_num,
        timeout: recorded.timeout,
        retry_cnt: recorded.retry_cnt,
        rnr_retry: recorded.rnr_retry,
        ..Default::default()
    };
    QpModify::from_kernel(QpState::from_kernel(recorded.qp_state), attr)
}

/// Moves a queue pair through its states as recorded, and destroys it.
fn live(machine: &mut Machine, qp: &Qp, is_datagram: bool) {
    for step in ["INIT", "RTR", "RTS", "query", "ERR", "RESET"] {
        if step == "query" {
            machine.leave_out_query_mask();
            machine.expect(&["query_qp"]);
            qp.query().unwrap();
            continue;
        }
        let mut commands = machine.left.iter();
        let next = commands.find(|left| left["name"] == "modify_qp").unwrap();
        let change = change(next);
        machine.expect(&["modify_qp"]);
        if is_datagram && step == "INIT" {
            // For the longest datagram.
            machine.expect_query_port();
        }
        qp.modify(&change).unwrap();
    }
    machine.expect(&["destroy_qp"]);
    qp.destroy().unwrap();
}

/// Does what was recorded of working with a device.
fn work(mut machine: Machine) {
    let (context, pd, _events) = machine.open();
    machine.expect(&["reg_mr"]);
    machine.expect_doorbell_pages();
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let buffer = pd.alloc(8192, access).unwrap();
    machine.expect_query_port();
    context.port(1).unwrap();
    if !machine.is_written {
        machine.expect(&["query_gid_entry"]);
        let gid = context.gid(1, 0).unwrap().unwrap();
        assert_eq!(gid.kind, GidType::RoceV2);
    }
    machine.expect(&["create_cq"]);
    let cq: Cq = context.completion_queue(15).build().unwrap();
    for (count, kind) in [QpType::Rc, QpType::Uc, QpType::Ud].into_iter().enumerate() {
        if count == 0 && !machine.is_written {
            machine.expect_doorbell_pages();
        }
        machine.expect(&["create_qp"]);
        let attr = QpAttr::new(&pd).qp_type(kind).send_cq(&cq).recv_cq(&cq);
        let attr = attr.max_send_wr(4).max_recv_wr(4);
        let attr = attr.max_send_sge(1).max_recv_sge(1).max_inline_data(0);
        let qp = pd.create_qp(&attr).unwrap();
        live(&mut machine, &qp, kind == QpType::Ud);
    }
    machine.expect(&["create_srq"]);
    let attr = SrqAttr {
        max_wr: 4,
        max_sge: 1,
    };
    let srq = pd.create_srq(&attr).unwrap();
    machine.expect(&["modify_srq"]);
    srq.arm_limit(2).unwrap();
    machine.expect(&["destroy_srq"]);
    srq.destroy().unwrap();
    machine.expect(&["destroy_cq"]);
    cq.destroy().unwrap();
    machine.expect(&["dereg_mr"]);
    drop(buffer);
    machine.kernel.finish();
    let left: Vec<&Json> = machine.left.iter().map(|left| &left["name"]).collect();
    let unused = match machine.is_written {
        true => vec!["query_device"],
        // Which commands there are, and what only the C provider has a use for.
        false => vec!["query_device", "unsupported_ioctl", "query_device"],
    };
    let ports = left
        .iter()
        .filter(|name| name.as_str().unwrap().starts_with("query_port"));
    assert_eq!(ports.count(), 2);
    let others = left
        .iter()
        .filter(|name| !name.as_str().unwrap().starts_with("query_port"));
    assert!(others.eq(unused.iter()), "{left:?}");
}

#[test]
fn devices_are_worked_with_as_recorded() {
    let recordings = all("control_sequence");
    assert!(recordings.len() >= 3);
    for recording in &recordings {
        work(Machine::new(configuration(recording), &commands(recording)));
    }
}

#[test]
fn devices_are_opened_as_recorded() {
    let recordings = all("open_device");
    assert!(recordings.len() >= 5);
    for recording in &recordings {
        let mut machine = Machine::new(configuration(recording), &[]);
        machine.left = commands(recording);
        let (context, _pd, _events) = machine.open();
        // The pages are mapped when the first queue is made.
        machine.expect_doorbell_pages();
        CqSetup::new(&context, 1).unwrap();
        machine.kernel.finish();
        let unused = ["query_device", "unsupported_ioctl"];
        for command in &machine.left {
            let name = command["name"].as_str().unwrap();
            assert!(
                unused.contains(&name) || name.starts_with("query_port"),
                "{name}"
            );
        }
    }
}

/// Makes each queue that was recorded. What the C provider refuses, the library must refuse as well,
/// and neither asks the kernel.
fn make(mut machine: Machine, recorded: &[Json]) -> (usize, usize) {
    let (context, pd, _events) = machine.open();
    machine.kernel.ignore_destroys();
    machine.expect_doorbell_pages();
    let kernel = Arc::clone(&machine.kernel);
    // Those that all queue pairs have.
    let [cq_handle, srq_handle] = match machine.is_written {
        true => [20, 21],
        false => [21, 22],
    };
    let of_kind = |kind: &str| {
        let found = recorded.iter().find(|line| line["kind"] == kind);
        found.unwrap()["cmd"].clone()
    };
    kernel.expect([with_handle(of_kind("create_cq"), cq_handle)]);
    let cq = context.completion_queue(1).build().unwrap();
    kernel.expect([with_handle(of_kind("create_srq"), srq_handle)]);
    let one = SrqAttr {
        max_wr: 1,
        max_sge: 1,
    };
    let srq = pd.create_srq(&one).unwrap();
    let mut has_pages = machine.is_written;
    let (mut refused, mut without_segments) = (0, 0);
    for line in recorded {
        if line["kind"] == "create_qp" && !has_pages {
            machine.expect_doorbell_pages();
            has_pages = true;
        }
        // The library makes no request without room for a segment.
        let has_room = !asks_for_nothing(line);
        if has_room {
            kernel.expect(line.get("comp_channel_cmd").cloned());
            kernel.expect(line.get("cmd").cloned());
        }
        let number = |value: &Json| value.as_u64().unwrap() as u32;
        match line["kind"].as_str().unwrap() {
            "create_cq" => {
                let has_channel = line.get("comp_channel_cmd").is_some();
                let channel = has_channel.then(|| context.completion_channel().unwrap());
                let mut builder = context.completion_queue(number(&line["requested_cqe"]));
                if let Some(channel) = &channel {
                    builder = builder.channel(channel);
                }
                let cq = builder.build().unwrap();
                assert_eq!(cq.depth(), number(&line["returned_cqe"]), "{line}");
            }
            "create_srq" => {
                let [requested, returned] =
                    ["requested", "returned"].map(|which| &line["srq"][which]);
                let attr = SrqAttr {
                    max_wr: number(&requested["max_wr"]),
                    max_sge: number(&requested["max_sge"]),
                };
                match pd.create_srq(&attr) {
                    Ok(srq) => assert_eq!(srq.depth(), number(&returned["max_wr"]), "{line}"),
                    Err(_) if !has_room => without_segments += 1,
                    Err(error) => panic!("{error}: {line}"),
                }
            }
            _ => {
                let of_qp = line.get("qp").unwrap_or(line);
                let [requested, returned] =
                    ["cap_requested", "cap_returned"].map(|which| capabilities(&of_qp[which]));
                let mut attr = QpAttr::new(&pd)
                    .qp_type(match of_qp["type"].as_str().unwrap() {
                        "RC" => QpType::Rc,
                        "UC" => QpType::Uc,
                        _ => QpType::Ud,
                    })
                    .send_cq(&cq)
                    .recv_cq(&cq)
                    .signal_all(of_qp["sq_sig_all"] == 1)
                    .max_send_wr(requested.max_send_wr)
                    .max_recv_wr(requested.max_recv_wr)
                    .max_send_sge(requested.max_send_sge)
                    .max_recv_sge(requested.max_recv_sge)
                    .max_inline_data(requested.max_inline_data);
                if of_qp["srq"] == true {
                    attr = attr.srq(&srq);
                }
                match pd.create_qp(&attr) {
                    Ok(qp) => assert_eq!(qp.capabilities(), returned, "{line}"),
                    Err(_) if line.get("errno").is_some() => refused += 1,
                    Err(_) if !has_room => without_segments += 1,
                    Err(error) => panic!("{error}: {line}"),
                }
            }
        }
    }
    kernel.finish();
    (refused, without_segments)
}

/// A command whose new object has this handle.
fn with_handle(mut command: Json, handle: u32) -> Json {
    match command.get_mut("attrs") {
        Some(attrs) => {
            let mut attrs = attrs.as_array_mut().unwrap().iter_mut();
            let new = attrs.find(|attr| attr["id"] == 0).unwrap();
            new["data"] = json!(handle);
        }
        None => {
            let rest = command["core_out"].as_str().unwrap()[8..].to_owned();
            command["core_out"] = json!(format!("{:08x}{rest}", handle.swap_bytes()));
        }
    }
    command
}

/// Whether a queue is asked for whose requests have no segments.
fn asks_for_nothing(line: &Json) -> bool {
    let (sizes, queues) = match line["kind"] == "create_srq" {
        true => (&line["srq"]["requested"], &[("max_wr", "max_sge")][..]),
        false => (
            &line["qp"]["cap_requested"],
            &[
                ("max_send_wr", "max_send_sge"),
                ("max_recv_wr", "max_recv_sge"),
            ][..],
        ),
    };
    let mut queues = queues.iter();
    queues.any(|(requests, segments)| sizes[requests] != 0 && sizes[segments] == 0)
}

fn capabilities(recorded: &Json) -> QpCapabilities {
    let number = |field: &str| recorded[field].as_u64().unwrap_or(0) as u32;
    QpCapabilities {
        max_send_wr: number("max_send_wr"),
        max_recv_wr: number("max_recv_wr"),
        max_send_sge: number("max_send_sge"),
        max_recv_sge: number("max_recv_sge"),
        // The C provider takes a size of nothing at all for a very large one.
        max_inline_data: match number("max_inline_data") {
            0xffff_fffc => 0,
            bytes => bytes,
        },
    }
}

#[test]
fn queues_are_made_as_recorded() {
    let control = all("control_sequence");
    let of_queues = files()
        .iter()
        .filter(|lines| lines[0]["kind"].as_str().unwrap().starts_with("create_"));
    let mut made = Vec::new();
    for recorded in of_queues {
        let config = configuration(&recorded[0]);
        // How a doorbell page is asked for.
        let control = control.iter().find(|line| line["config"] == "default");
        let machine = Machine::new(config, &commands(control.unwrap()));
        made.push(make(machine, recorded));
    }
    // By ioctl and by write(); then what the environment names.
    assert_eq!(made[..2], [(20, 60), (20, 60)]);
}
