//! Queues that are made: the driver's part of the requests, the sizes that the kernel is told, and
//! what is in memory before the device sees it.

use std::sync::Arc;

use serde_json::Value;

use super::compare::{Difference, Outcome, Tally};
use super::use_as_in;
use super::vectors::{Recording, bytes, list, number, text, word};
use super::world::cap;
use crate::device::{Context, Registry, devices};
use crate::fastpath::mlx5::register::Register;
use crate::fastpath::mlx5::{CqSetup, QpSetup, SharedRecvQueue, SrqSetup};
use crate::fastpath::setup::{QpMade, QpWish};
use crate::fastpath::{QpType, queues};
use crate::sys::page_size;
use crate::sys::replay::Replay;

const QUIRK: &str =
    "the room for inline bytes of requests of nothing, of which C has a very large idea";
/// What C makes of no inline bytes in requests of nothing.
const NO_INLINE_IN_C: u32 = 0xffff_fffc;
const EINVAL: u64 = 22;
/// Bytes from one doorbell record to the next.
const RECORD_ALIGN: u64 = 64;

/// An open device, whose kernel answers as that of the recordings.
pub(super) struct Machine {
    kernel: Arc<Replay>,
    context: Context,
    cq: queues::CompletionQueue,
    srq: queues::RecvQueue,
    has_page: bool,
    own: Vec<Value>,
}

impl Machine {
    /// For recordings of a configuration; `own` are those of the sources, which tell how the device
    /// is opened.
    pub(super) fn new(config: &str, own: &[Recording]) -> Self {
        use_as_in(config);
        let of = |config: &str, kind: &str| {
            let found = own
                .iter()
                .find(|recording| recording.kind() == kind && recording.value["config"] == config);
            found.map(|recording| list(&recording.value["cmds"]).to_vec())
        };
        let opened = of(config, "open_device").or_else(|| of("default", "open_device"));
        let opened = opened.expect("a recording of a device that is opened");
        let named = |commands: &[Value], name: &str| -> Vec<Value> {
            let found = commands.iter().filter(|command| command["name"] == name);
            let is_clock = |command: &&Value| matches!(word_of(command, "command"), 5 | 7);
            found
                .filter(|command| !is_clock(command))
                .cloned()
                .collect()
        };
        let kernel = Replay::new(named(&opened, "get_context"));
        let link = if config == "ib_link" {
            "InfiniBand"
        } else {
            "Ethernet"
        };
        kernel.add_device("mlx5_0", link);
        Registry::of_stand_in(kernel.clone()).stand_in();
        let context = devices().expect("a device")[0].open().expect("a context");
        kernel.expect(named(&opened, "uar_alloc"));
        kernel.expect(named(&opened, "mmap"));
        let cq = CqSetup::new(&context, 1)
            .expect("a completion queue")
            .queue();
        let srq = SrqSetup::new(&context, 1, 1).expect("a queue").queue();
        kernel.finish();
        Self {
            kernel,
            context,
            cq: queues::CompletionQueue::Mlx5(cq),
            srq: queues::RecvQueue::Mlx5Shared(srq),
            has_page: config == "write_abi" || config == "shut_up_bf",
            own: of("default", "control_sequence").expect("a recording of work"),
        }
    }

    /// Replays a recording of a queue that is made.
    pub(super) fn replay(&mut self, recording: &Value, tally: &mut Tally) -> Outcome {
        match text(&recording["kind"]) {
            "create_cq" => self.create_cq(recording, tally),
            "create_srq" => self.create_srq(recording, tally),
            "create_qp" => self.create_qp(recording, tally),
            other => Err(Difference::new(format!(
                "{other} is not known to the replay"
            ))),
        }?;
        match &*self.kernel.differences() {
            [] => Ok(()),
            differences => Err(Difference::new(differences.join("\n"))),
        }
    }

    fn create_cq(&self, recording: &Value, tally: &mut Tally) -> Outcome {
        let cmd = &recording["cmd"];
        let setup = CqSetup::new(&self.context, word(&recording["requested_cqe"]));
        let Some(mut setup) = made(setup, recording, tally)? else {
            return Ok(());
        };
        let entries = setup.entries();
        tally.number("returned_cqe", entries, number(&recording["returned_cqe"]))?;
        tally.number("cq.ncqe", entries + 1, number(&recording["cq"]["ncqe"]))?;
        compare_size(cmd, (1, 0), 16, &entries.to_ne_bytes(), tally)?;
        let (request, answer) = setup.parts();
        compare_driver_part(cmd, request, answer, tally)?;
        let (memory, record) = addresses(request);
        let size = u32::from_ne_bytes(request[16..20].try_into().expect("four bytes"));
        tally.number("cq.cqe_size", size, number(&recording["cq"]["cqe_size"]))?;
        if let Some(theirs) = recording.get("ncqe") {
            tally.number("ncqe", entries + 1, number(theirs))?;
        }
        if let Some(theirs) = recording.get("initial_op_own") {
            let own = (1..=u64::from(entries) + 1).map(|end| {
                // SAFETY: the setup keeps so many entries, which begin at the address that it tells.
                let last = unsafe { read(memory + end * u64::from(size) - 1, 1) };
                last[0]
            });
            let own: Vec<u8> = own.collect();
            // Those of the first and the last entry were recorded.
            let ends = [own[0], own[own.len() - 1]];
            tally.bytes("initial_op_own", &ends, &bytes(theirs))?;
            if own.iter().any(|byte| *byte != own[0]) {
                return Err(Difference::new("not all entries are the device's".into()));
            }
        }
        if let Some(theirs) = recording.get("initial_dbrec") {
            // SAFETY: the setup keeps the record, which has eight bytes.
            let ours = unsafe { read(record, 8) };
            tally.bytes("initial_dbrec", &ours, &bytes(theirs))?;
        }
        for (field, address, ours) in [
            ("buf_align", memory, page_size() as u64),
            ("db_align", record, RECORD_ALIGN),
        ] {
            if let Some(theirs) = recording.get(field) {
                tally.number(field, ours, number(theirs))?;
                if address % ours != 0 {
                    return Err(Difference::new(format!("{field}: {address:#x}")));
                }
            }
        }
        Ok(())
    }

    fn create_srq(&self, recording: &Value, tally: &mut Tally) -> Outcome {
        let (cmd, srq) = (&recording["cmd"], &recording["srq"]);
        let wish = &srq["requested"];
        let setup = SrqSetup::new(&self.context, word(&wish["max_wr"]), word(&wish["max_sge"]));
        let Some(mut setup) = made(setup, recording, tally)? else {
            return Ok(());
        };
        let (max_wr, max_sge) = (setup.max_wr(), setup.max_sge());
        compare_size(cmd, (5, 0), 20, &max_wr.to_ne_bytes(), tally)?;
        compare_size(cmd, (6, 0), 24, &max_sge.to_ne_bytes(), tally)?;
        let (request, answer) = setup.parts();
        compare_driver_part(cmd, request, answer, tally)?;
        let (_, record) = addresses(request);
        if let Some(theirs) = recording.get("initial_dbrec") {
            // SAFETY: the setup keeps the record, which has more than four bytes.
            let ours = unsafe { read(record, 4) };
            tally.bytes("initial_dbrec", &ours, &bytes(theirs))?;
        }
        let queue: SharedRecvQueue = setup.queue();
        let memory = queue.bytes();
        let slots = max_wr + 1;
        let stride = memory.len() / slots as usize;
        let returned = &srq["returned"];
        tally.number(
            "srq.returned.max_wr",
            queue.depth(),
            number(&returned["max_wr"]),
        )?;
        tally.number(
            "srq.returned.max_sge",
            max_sge,
            number(&returned["max_sge"]),
        )?;
        tally.number("srq.slots", slots, number(&srq["slots"]))?;
        tally.number("srq.wqe_stride", stride as u64, number(&srq["wqe_stride"]))?;
        if let Some(theirs) = recording.get("initial_buf") {
            tally.bytes("initial_buf", &memory, &bytes(theirs))?;
        }
        for link in list(&recording["initial_next_index"]) {
            let [slot, theirs] = list(link) else {
                return Err(Difference::new(format!("{link} is no link")));
            };
            let at = number(slot) as usize * stride + 2;
            let Some(ours) = memory.get(at..at + 2) else {
                return Err(Difference::new(format!("{link} leads out of the queue")));
            };
            let ours = u16::from_be_bytes(ours.try_into().expect("two bytes"));
            tally.number("initial_next_index", ours, number(theirs))?;
        }
        Ok(())
    }

    fn create_qp(&mut self, recording: &Value, tally: &mut Tally) -> Outcome {
        let cmd = &recording["cmd"];
        let qp = recording.get("qp").unwrap_or(recording);
        let qp_type = match text(&qp["type"]) {
            "RC" => QpType::Rc,
            "UC" => QpType::Uc,
            "UD" => QpType::Ud,
            other => return Err(Difference::new(format!("the type {other} is not known"))),
        };
        let wish = QpWish {
            qp_type,
            cap: cap(&qp["cap_requested"]),
            send_cq: Some(&self.cq),
            recv_cq: Some(&self.cq),
            srq: (qp["srq"] == true).then_some(&self.srq),
            signal_all: qp["sq_sig_all"] != 0,
        };
        if !self.has_page && recording.get("errno").is_none() {
            let of_page = ["uar_alloc", "mmap"];
            let named = |command: &&Value| of_page.contains(&text(&command["name"]));
            self.kernel.expect(self.own.iter().filter(named).cloned());
            self.has_page = true;
        }
        let Some(mut setup) = made(QpSetup::new(&self.context, wish), recording, tally)? else {
            return Ok(());
        };
        self.compare_cap(cmd, &setup, qp, tally)?;
        let (request, answer) = setup.parts();
        compare_driver_part(cmd, request, answer, tally)?;
        let field = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four"));
        let (blocks, receives, shift) = (field(16), field(20), field(24));
        let send_bytes = blocks * 64;
        let recv_bytes = if receives == 0 { 0 } else { receives << shift };
        for (name, ours, theirs) in [
            ("qp.sq_wqe_cnt", blocks, &qp["sq_wqe_cnt"]),
            ("qp.rq_wqe_cnt", receives, &qp["rq_wqe_cnt"]),
            ("qp.rq_wqe_shift", shift, &qp["rq_wqe_shift"]),
            ("qp.sq_offset", recv_bytes, &qp["sq_offset"]),
            ("qp.rq_offset", 0, &qp["rq_offset"]),
            (
                "buf_bytes",
                send_bytes + recv_bytes,
                &recording["buf_bytes"],
            ),
            ("dv.sq_wqe_cnt", blocks, &recording["dv"]["sq_wqe_cnt"]),
            ("dv.rq_wqe_cnt", receives, &recording["dv"]["rq_wqe_cnt"]),
            // C has elements of one byte where there is no queue.
            (
                "dv.sq_stride",
                if blocks == 0 { 1 } else { 64 },
                &recording["dv"]["sq_stride"],
            ),
            ("dv.rq_stride", 1 << shift, &recording["dv"]["rq_stride"]),
        ] {
            tally.number(name, ours, number(theirs))?;
        }
        let register: Arc<Register> = setup
            .register()
            .map_err(|error| Difference::new(error.to_string()))?;
        let dv = &recording["dv"];
        tally.number("dv.bf_size", register.half(), number(&dv["bf_size"]))?;
        tally.number(
            "dv.bf_page_off",
            register.offset() as u64,
            number(&dv["bf_page_off"]),
        )?;
        drop(register);
        let asked = setup.cap();
        let queues = setup.queues(&QpMade {
            context: &self.context,
            handle: 0,
            number: word(&qp["qpn"]),
            cap: &asked,
            has_send_queue: asked.max_send_wr > 0,
            has_own_receive_queue: receives > 0,
            signal_all: wish.signal_all,
        });
        let cap = queues
            .map_err(|error| Difference::new(error.to_string()))?
            .cap;
        let returned = &qp["cap_returned"];
        let inline = inline_of_c(qp, word(&returned["max_inline_data"]), tally);
        for (name, ours, theirs) in [
            (
                "qp.cap_returned.max_send_wr",
                cap.max_send_wr,
                word(&returned["max_send_wr"]),
            ),
            (
                "qp.cap_returned.max_recv_wr",
                cap.max_recv_wr,
                word(&returned["max_recv_wr"]),
            ),
            (
                "qp.cap_returned.max_send_sge",
                cap.max_send_sge,
                word(&returned["max_send_sge"]),
            ),
            (
                "qp.cap_returned.max_recv_sge",
                cap.max_recv_sge,
                word(&returned["max_recv_sge"]),
            ),
            (
                "qp.cap_returned.max_inline_data",
                cap.max_inline_data,
                inline,
            ),
        ] {
            tally.number(name, ours, theirs)?;
        }
        Ok(())
    }

    /// The sizes that the core is told.
    fn compare_cap(&self, cmd: &Value, setup: &QpSetup, qp: &Value, tally: &mut Tally) -> Outcome {
        let cap = setup.cap();
        let sizes = [
            cap.max_send_wr,
            cap.max_recv_wr,
            cap.max_send_sge,
            cap.max_recv_sge,
        ];
        for (index, size) in sizes.iter().enumerate() {
            compare_size(
                cmd,
                (8, 4 * index),
                32 + 4 * index,
                &size.to_ne_bytes(),
                tally,
            )?;
        }
        let theirs = size_bytes(cmd, (8, 16), 48, 4)?;
        let theirs = u32::from_ne_bytes(theirs.try_into().expect("four bytes"));
        let theirs = inline_of_c(qp, theirs, tally);
        tally.number(size_field(cmd), cap.max_inline_data, theirs)
    }
}

fn word_of(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or(0)
}

/// A setup, where C makes the queue. Refused must be what C refuses.
fn made<S>(
    setup: crate::error::Result<S>,
    recording: &Value,
    tally: &mut Tally,
) -> Outcome<Option<S>> {
    match (setup, recording.get("errno")) {
        (Ok(setup), None) => Ok(Some(setup)),
        (Err(_), Some(errno)) => tally.number("errno", EINVAL, number(errno)).map(|()| None),
        (Ok(_), Some(_)) => Err(Difference::new("C refuses to make the queue".into())),
        (Err(error), None) => Err(Difference::new(error.to_string())),
    }
}

/// The inline bytes that C means: its idea of requests of nothing is a very large one.
fn inline_of_c(qp: &Value, inline: u32, tally: &mut Tally) -> u32 {
    let wish = cap(&qp["cap_requested"]);
    let is_of_nothing = wish.max_send_sge == 0 && wish.max_inline_data == 0;
    match is_of_nothing && inline == NO_INLINE_IN_C {
        true => {
            tally.leave_out(QUIRK, 1);
            0
        }
        false => inline,
    }
}

fn attribute(cmd: &Value, id: u64) -> Outcome<&Value> {
    let attributes = list(&cmd["attrs"]).iter();
    let mut of_id = attributes.filter(|attribute| number(&attribute["id"]) == id);
    let missing = || Difference::new(format!("{} has no attribute {id}", cmd["name"]));
    of_id.next().ok_or_else(missing)
}

/// The field that holds sizes: of an ioctl or of a written command.
fn size_field(cmd: &Value) -> &'static str {
    match cmd["via"] == "write" {
        true => "cmd.core_in",
        false => "cmd.attrs",
    }
}

/// Bytes of the core's request: in an attribute, or at a place in a written command.
fn size_bytes(
    cmd: &Value,
    (id, at): (u64, usize),
    written_at: usize,
    length: usize,
) -> Outcome<Vec<u8>> {
    let (field, at) = match cmd["via"] == "write" {
        true => (bytes(&cmd["core_in"]), written_at),
        false => (bytes(&attribute(cmd, id)?["data"]), at),
    };
    let found = field.get(at..at + length);
    found
        .map(<[u8]>::to_vec)
        .ok_or_else(|| Difference::new("the request is short".into()))
}

fn compare_size(
    cmd: &Value,
    attribute: (u64, usize),
    written_at: usize,
    ours: &[u8],
    tally: &mut Tally,
) -> Outcome {
    let theirs = size_bytes(cmd, attribute, written_at, ours.len())?;
    tally.bytes(size_field(cmd), ours, &theirs)
}

/// Compares what the driver is told, except the addresses of the queue and of its record, and answers.
fn compare_driver_part(
    cmd: &Value,
    request: &[u8],
    answer: &mut [u8],
    tally: &mut Tally,
) -> Outcome {
    let (field, theirs, told) = match cmd["via"] == "write" {
        true => ("cmd.uhw_in", &cmd["uhw_in"], &cmd["uhw_out"]),
        false => (
            "cmd.attrs",
            &attribute(cmd, 4096)?["data"],
            &attribute(cmd, 4097)?["answer"],
        ),
    };
    let theirs = bytes(theirs);
    if theirs.len() != request.len() {
        return Err(Difference::new(format!(
            "{} bytes, C {}",
            request.len(),
            theirs.len()
        )));
    }
    tally.bytes(field, &request[16..], &theirs[16..])?;
    let told = bytes(told);
    if told.len() != answer.len() {
        let text = format!(
            "{} bytes of room for the answer, C {}",
            answer.len(),
            told.len()
        );
        return Err(Difference::new(text));
    }
    answer.copy_from_slice(&told);
    Ok(())
}

/// Where a queue and its record are, as the driver is told.
fn addresses(request: &[u8]) -> (u64, u64) {
    let address = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("eight"));
    (address(0), address(8))
}

/// # Safety
///
/// So many bytes must be there, and nobody write to them.
unsafe fn read(address: u64, length: usize) -> Vec<u8> {
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(address as *const u8, length) }.to_vec()
}
