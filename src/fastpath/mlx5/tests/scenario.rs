//! Scenarios: work on queues, step by step.

use std::ops::Range;
use std::sync::atomic::Ordering;

use rdmacm_kernel_abi::uverbs::{WcFlags, WcStatus};
use serde_json::Value;

use super::compare::{Difference, Outcome, Tally};
use super::post::{self, Receiving, Refusal};
use super::vectors::{bytes, list, number, text, word};
use super::world::{Pair, Plan, Run, World, pairs_of, record_bytes};
use crate::fastpath::Completion;
use crate::fastpath::mlx5::posted::Incoming;
use crate::fastpath::mlx5::sizes::{BLOCK, SEGMENT};

const IGNORED: &str = "bytes that the device does not read, which C leaves as they were";
const STALE: &str = "bytes of a BlueFlame store behind the request";
const QUIRK: &str =
    "doorbells after an error in a list, which C rings with the request that failed";
const LOST: &str = "completions before one of nobody, which C loses";

/// Replays a scenario.
pub(super) fn replay(scenario: &Value, plan: &Plan, tally: &mut Tally) -> Outcome {
    let mut world = World::new(scenario, plan);
    compare_sizes(scenario, &world, tally)?;
    if let Some(precondition) = scenario.get("precondition") {
        run_to(&mut world, precondition)?;
    }
    for (index, step) in list(&scenario["steps"]).iter().enumerate() {
        let op = text(&step["op"]);
        let outcome = match op {
            "post_send" => post_send(&mut world, step, tally),
            "post_recv" => post_recv(&mut world, step, tally),
            "post_srq_recv" | "srq_state" => shared(&mut world, step, tally),
            "hw_cqe" => write_completion(&world, step),
            "poll_cq" => poll(&mut world, step, tally),
            "req_notify_cq" => arm(&world, step, tally),
            "cq_event" => {
                world.cq.events().fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            "set_state" => set_state(&mut world, step, tally),
            "destroy_qp" => destroy(&mut world, step, tally),
            "fill_memory" => {
                let byte = number(&step["byte"]) as u8;
                let fill = vec![byte; number(&step["len"]) as usize];
                world.data.write(number(&step["addr"]), &fill);
                Ok(())
            }
            "expect_memory" => {
                let theirs = bytes(&step["hex"]);
                let ours = world.data.read(number(&step["addr"]), theirs.len());
                tally.bytes("expect_memory.hex", &ours, &theirs)
            }
            "setup" => set_up(&mut world, text(&step["doc"])),
            other => Err(Difference::new(format!(
                "{other} is not known to the replay"
            ))),
        };
        outcome.map_err(|difference| difference.at(format_args!("step {index}, {op}")))?;
    }
    if let Some(theirs) = scenario.get("sq_final") {
        let pair = world.pairs.values().next().expect("a queue pair");
        let unknown: Vec<_> = (0..pair.unknown.len())
            .filter(|at| pair.unknown[*at])
            .map(|at| at..at + 1)
            .collect();
        tally.bytes_except(
            "sq_final",
            &send_memory(pair),
            &bytes(theirs),
            &unknown,
            IGNORED,
        )?;
    }
    Ok(())
}

/// What the library decides when queues are made.
fn compare_sizes(scenario: &Value, world: &World, tally: &mut Tally) -> Outcome {
    for (_, qp) in pairs_of(scenario) {
        let pair = &world.pairs[&word(&qp["qpn"])];
        let (send, recv) = (pair.send_size, pair.recv_size);
        let cap = &qp["cap_returned"];
        for (field, ours, theirs) in [
            (
                "qp.cap_returned.max_send_wr",
                send.map_or(0, |s| s.depth),
                &cap["max_send_wr"],
            ),
            (
                "qp.cap_returned.max_send_sge",
                send.map_or(0, |s| s.max_segments),
                &cap["max_send_sge"],
            ),
            (
                "qp.cap_returned.max_inline_data",
                send.map_or(0, |s| s.max_inline),
                &cap["max_inline_data"],
            ),
            (
                "qp.cap_returned.max_recv_wr",
                recv.map_or(0, |r| r.depth),
                &cap["max_recv_wr"],
            ),
            (
                "qp.cap_returned.max_recv_sge",
                recv.map_or(0, |r| r.max_segments),
                &cap["max_recv_sge"],
            ),
            (
                "qp.sq_wqe_cnt",
                send.map_or(0, |s| s.blocks),
                &qp["sq_wqe_cnt"],
            ),
            (
                "qp.rq_wqe_cnt",
                recv.map_or(0, |r| r.depth),
                &qp["rq_wqe_cnt"],
            ),
            (
                "qp.rq_wqe_shift",
                recv.map_or(0, |r| r.shift),
                &qp["rq_wqe_shift"],
            ),
            (
                "qp.sq_offset",
                recv.map_or(0, |r| r.bytes() as u32),
                &qp["sq_offset"],
            ),
            ("qp.rq_offset", 0, &qp["rq_offset"]),
        ] {
            tally.number(field, ours, number(theirs))?;
        }
    }
    if let (Some(srq), Some(shared)) = (scenario.get("srq"), &world.shared) {
        let size = shared.size;
        let returned = &srq["returned"];
        tally.number(
            "srq.returned.max_wr",
            shared.queue.depth(),
            number(&returned["max_wr"]),
        )?;
        tally.number(
            "srq.returned.max_sge",
            size.max_segments,
            number(&returned["max_sge"]),
        )?;
        tally.number("srq.slots", size.places, number(&srq["slots"]))?;
        tally.number(
            "srq.wqe_stride",
            1u32 << size.shift,
            number(&srq["wqe_stride"]),
        )?;
        if let Some(theirs) = scenario.get("srq_buf_initial") {
            tally.bytes("srq_buf_initial", &shared.queue.bytes(), &bytes(theirs))?;
        }
    }
    Ok(())
}

/// The memory of a send queue.
fn send_memory(pair: &Pair) -> Vec<u8> {
    let sends = pair.pair.sends.as_ref().expect("the queue pair can send");
    // SAFETY: only this thread writes to it.
    unsafe { sends.memory.bytes() }
}

/// `length` bytes of a ring from a place on.
fn around(ring: &[u8], from: usize, length: usize) -> Vec<u8> {
    let to_end = length.min(ring.len() - from);
    [&ring[from..from + to_end], &ring[..length - to_end]].concat()
}

fn post_send(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    let pair = world
        .pairs
        .get_mut(&word(&step["qpn"]))
        .expect("a queue pair");
    world.stores.watch_pair(&pair.record);
    let position = |pair: &Pair| pair.send.as_ref().expect("it can send").position();
    let mut begins = Vec::new();
    let mut refused = None;
    for (index, request) in list(&step["wrs"]).iter().enumerate() {
        let begin = position(pair);
        match post::send(pair, request, &world.data, &world.handles)? {
            // A reset is noticed by the first request behind it.
            Ok(()) => begins.push(match begin > position(pair) {
                true => 0,
                false => begin,
            }),
            Err(refusal) => {
                refused = Some((index, refusal));
                break;
            }
        }
    }
    let send = pair.send.as_mut().expect("the queue pair can send");
    send.ring_doorbell();
    let errno = refused.as_ref().map_or(0, |(_, refusal)| refusal.errno());
    tally.number("post_send.ret", errno, number(&step["ret"]))?;
    let bad = post::index(refused.as_ref().map(|(index, _)| *index));
    tally.number("post_send.bad_index", bad, number(&step["bad_index"]))?;
    if !begins.is_empty() || pair.state >= 3 {
        tally.number(
            "post_send.cur_post",
            position(pair),
            number(&step["cur_post"]),
        )?;
    } else {
        // The counters begin anew with the first request after a reset.
        tally.number("post_send.cur_post", 0u32, number(&step["cur_post"]))?;
    }
    tally.bytes(
        "post_send.dbrec",
        &record_bytes(&pair.record),
        &bytes(&step["dbrec"]),
    )?;
    compare_requests(pair, &begins, list(&step["wqes"]), tally)?;
    if refused.is_some_and(|(_, refusal)| Refusal::is_late_in_c(&refusal)) {
        let size = pair.send_size.expect("it can send");
        let from = (position(pair) % size.blocks * BLOCK) as usize;
        // One block more: C looks at the length of the queue when a piece is written.
        let bytes = ((size.blocks_per_request + 1) * BLOCK) as usize;
        for at in from..from + bytes {
            let at = at % pair.unknown.len();
            pair.unknown[at] = true;
        }
    }
    let runs = world.stores.runs();
    let at_first = world.stores.record_at_first();
    if step.get("quirk").is_some() {
        // C rings with the control segment of the request that failed; here with the last good one.
        tally.leave_out(QUIRK, 1);
        let begin = *begins.last().expect("a request before the one that failed") as usize;
        let memory = send_memory(pair);
        let right = around(&memory, begin * BLOCK as usize % memory.len(), 8);
        let is_right = matches!(&*runs, [run] if run.bytes[..8] == right[..]);
        return match is_right && at_first == Some(record_bytes(&pair.record)) {
            true => Ok(()),
            false => Err(Difference::new(
                "the doorbell is not of the last request".into(),
            )),
        };
    }
    let read = list(&step["wqes"]).last().map(|wqe| {
        let mut ignored = ignored(wqe);
        let length = number(&wqe["ds"]) as usize * SEGMENT as usize;
        ignored.retain(|range| range.start < length);
        (length, ignored)
    });
    compare_stores(
        &POST_SEND_UAR,
        (&runs, at_first),
        list(&step["uar"]),
        read,
        tally,
    )
}

/// What of a request the device does not look at.
fn ignored(wqe: &Value) -> Vec<Range<usize>> {
    let numbers: Vec<usize> = list(&wqe["ignore"])
        .iter()
        .map(|value| number(value) as usize)
        .collect();
    let pairs = numbers.chunks_exact(2);
    pairs.map(|pair| pair[0]..pair[0] + pair[1]).collect()
}

fn compare_requests(
    pair: &mut Pair,
    begins: &[u32],
    theirs: &[Value],
    tally: &mut Tally,
) -> Outcome {
    if begins.len() != theirs.len() {
        let text = format!(
            "{} requests were written, by C {}",
            begins.len(),
            theirs.len()
        );
        return Err(Difference::new(text));
    }
    if begins.is_empty() {
        return Ok(());
    }
    let memory = send_memory(pair);
    let blocks = memory.len() / BLOCK as usize;
    for (begin, wqe) in begins.iter().zip(theirs) {
        let block = *begin as usize % blocks;
        let from = block * BLOCK as usize;
        tally.number(
            "post_send.wqes.wqe_index",
            block as u64,
            number(&wqe["wqe_index"]),
        )?;
        let length = memory[from + 7] & 0x3f;
        tally.number("post_send.wqes.ds", length, number(&wqe["ds"]))?;
        let length = usize::from(length) * SEGMENT as usize;
        let ours = around(&memory, from, length);
        let ignored = ignored(wqe);
        tally.bytes_except(
            "post_send.wqes.hex",
            &ours,
            &bytes(&wqe["hex"]),
            &ignored,
            IGNORED,
        )?;
        for at in 0..length {
            let is_ignored = ignored.iter().any(|range| range.contains(&at));
            pair.unknown[(from + at) % memory.len()] = is_ignored;
        }
    }
    Ok(())
}

/// The names of the fields of a store.
struct StoreFields {
    map_offset: &'static str,
    page_off: &'static str,
    store_widths: &'static str,
    hex: &'static str,
    at_first: &'static str,
}

const POST_SEND_UAR: StoreFields = StoreFields {
    map_offset: "post_send.uar.map_offset",
    page_off: "post_send.uar.page_off",
    store_widths: "post_send.uar.store_widths",
    hex: "post_send.uar.hex",
    at_first: "post_send.uar.dbrec_at_first_store",
};

const ARM_UAR: StoreFields = StoreFields {
    map_offset: "req_notify_cq.uar.map_offset",
    page_off: "req_notify_cq.uar.page_off",
    store_widths: "req_notify_cq.uar.store_widths",
    hex: "req_notify_cq.uar.hex",
    at_first: "req_notify_cq.uar.dbrec_at_first_store",
};

/// `read` is how much of a store the device reads, and what of that it does not look at.
fn compare_stores(
    fields: &StoreFields,
    (ours, at_first): (&[Run], Option<[u8; 8]>),
    theirs: &[Value],
    read: Option<(usize, Vec<Range<usize>>)>,
    tally: &mut Tally,
) -> Outcome {
    if ours.len() != theirs.len() {
        let text = format!("{} runs of stores, by C {}", ours.len(), theirs.len());
        return Err(Difference::new(text));
    }
    for (ours, theirs) in ours.iter().zip(theirs) {
        tally.number(
            fields.map_offset,
            ours.map_offset,
            number(&theirs["map_offset"]),
        )?;
        tally.number(fields.page_off, ours.page_off, number(&theirs["page_off"]))?;
        let widths: Vec<u8> = list(&theirs["store_widths"])
            .iter()
            .map(|width| number(width) as u8)
            .collect();
        tally.bytes(fields.store_widths, &vec![8; ours.count], &widths)?;
        let (length, ignored) = read.clone().unwrap_or((ours.bytes.len(), Vec::new()));
        let (now, later) = ours.bytes.split_at(length.min(ours.bytes.len()));
        let recorded = bytes(&theirs["hex"]);
        if recorded.len() != ours.bytes.len() {
            let text = format!(
                "{}: {} bytes, C {}",
                fields.hex,
                ours.bytes.len(),
                recorded.len()
            );
            return Err(Difference::new(text));
        }
        tally.bytes_except(fields.hex, now, &recorded[..now.len()], &ignored, IGNORED)?;
        if !later.is_empty() {
            tally.leave_out(STALE, later.len());
        }
        let at_first = at_first.expect("there was a store");
        tally.bytes(
            fields.at_first,
            &at_first,
            &bytes(&theirs["dbrec_at_first_store"]),
        )?;
    }
    Ok(())
}

fn post_recv(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    let pair = world
        .pairs
        .get_mut(&word(&step["qpn"]))
        .expect("a queue pair");
    world.stores.watch_pair(&pair.record);
    let recv = pair
        .recv
        .as_mut()
        .expect("the queue pair has a receive queue");
    let (errno, bad) = post::receives(recv, pair.state, list(&step["wrs"]))?;
    tally.number("post_recv.ret", errno, number(&step["ret"]))?;
    tally.number(
        "post_recv.bad_index",
        post::index(bad),
        number(&step["bad_index"]),
    )?;
    tally.bytes(
        "post_recv.dbrec",
        &record_bytes(&pair.record),
        &bytes(&step["dbrec"]),
    )?;
    let posted = bad.unwrap_or(list(&step["wrs"]).len());
    if posted != list(&step["wqes"]).len() || !list(&step["uar"]).is_empty() {
        return Err(Difference::new(format!("{posted} receives were posted")));
    }
    let Incoming::Own(receives) = &pair.pair.incoming else {
        unreachable!("the queue pair has a receive queue");
    };
    // SAFETY: only this thread writes to it.
    let memory = unsafe { receives.memory.bytes() };
    let counter = u32::from_be_bytes(record_bytes(&pair.record)[..4].try_into().expect("four"));
    for (number_of, wqe) in list(&step["wqes"]).iter().enumerate() {
        let place = counter
            .wrapping_sub(posted as u32)
            .wrapping_add(number_of as u32);
        let place = receives.memory.index(place);
        tally.number(
            "post_recv.wqes.wqe_index",
            place as u64,
            number(&wqe["wqe_index"]),
        )?;
        let theirs = bytes(&wqe["hex"]);
        let from = place * receives.memory.stride();
        let ours = around(&memory, from, theirs.len());
        tally.bytes("post_recv.wqes.hex", &ours, &theirs)?;
    }
    match world.stores.runs().is_empty() {
        true => Ok(()),
        false => Err(Difference::new("a receive rang a doorbell".into())),
    }
}

fn shared(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    let shared = world.shared.as_mut().expect("a shared receive queue");
    let is_post = step["op"] == "post_srq_recv";
    if is_post {
        let ready = 3;
        let (errno, bad) = post::receives(&mut shared.queue, ready, list(&step["wrs"]))?;
        tally.number("post_srq_recv.ret", errno, number(&step["ret"]))?;
        tally.number(
            "post_srq_recv.bad_index",
            post::index(bad),
            number(&step["bad_index"]),
        )?;
    }
    let (buffer, record) = match is_post {
        true => ("post_srq_recv.srq_buf", "post_srq_recv.dbrec"),
        false => ("srq_state.srq_buf", "srq_state.dbrec"),
    };
    tally.bytes(buffer, &shared.queue.bytes(), &bytes(&step["srq_buf"]))?;
    match step.get("dbrec") {
        None => Ok(()),
        Some(theirs) => tally.bytes(record, &record_bytes(&shared.record)[..4], &bytes(theirs)),
    }
}

/// Writes a completion as the device does.
fn write_completion(world: &World, step: &Value) -> Outcome {
    let ring = world.cq.ring();
    let index = word(&step["cqe_index"]);
    if index != word(&step["prod"]) & (ring.count() - 1) {
        return Err(Difference::new(
            "the completion is not in the place of its number".into(),
        ));
    }
    ring.put(index, &bytes(&step["hex"]));
    Ok(())
}

fn poll(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    let mut entries = vec![Completion::default(); number(&step["num_entries"]) as usize];
    if number(&step["ret"]) as i64 == -2 {
        return poll_of_nobody(world, step, tally);
    }
    let taken = world.cq.poll(&mut entries);
    tally.number("poll_cq.ret", taken.len() as u64, number(&step["ret"]))?;
    for (ours, theirs) in taken.iter().zip(list(&step["wc"])) {
        compare_completion(ours, theirs, tally)?;
    }
    compare_cq_record("poll_cq.cq_dbrec", world, &step["cq_dbrec"], tally)
}

/// C returns a negative number for a completion of a queue pair that there is not, and with it loses
/// the completions before. Here it is reported as one that failed, after those before.
fn poll_of_nobody(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    for _ in 0..number(&step["num_entries"]) {
        let mut entry = [Completion::default()];
        let [completion] = world.cq.poll(&mut entry) else {
            break;
        };
        if completion.0.wr_id == u64::MAX && completion.0.status == WcStatus::FATAL_ERR.0 {
            tally.leave_out(LOST, 1);
            return compare_cq_record("poll_cq.cq_dbrec", world, &step["cq_dbrec"], tally);
        }
    }
    Err(Difference::new(
        "nobody's completion was not reported".into(),
    ))
}

fn compare_completion(ours: &Completion, theirs: &Value, tally: &mut Tally) -> Outcome {
    let wc = &ours.0;
    let immediate = wc.ex.to_ne_bytes();
    for (name, field, ours) in [
        ("wr_id", "poll_cq.wc.wr_id", wc.wr_id),
        ("status", "poll_cq.wc.status", wc.status.into()),
        ("opcode", "poll_cq.wc.opcode", wc.opcode.into()),
        ("vendor_err", "poll_cq.wc.vendor_err", wc.vendor_err.into()),
        ("byte_len", "poll_cq.wc.byte_len", wc.byte_len.into()),
        ("qp_num", "poll_cq.wc.qp_num", wc.qp_num.into()),
        ("src_qp", "poll_cq.wc.src_qp", wc.src_qp.into()),
        ("wc_flags", "poll_cq.wc.wc_flags", flags_in_c(wc.wc_flags)),
        ("pkey_index", "poll_cq.wc.pkey_index", wc.pkey_index.into()),
        ("slid", "poll_cq.wc.slid", wc.slid.into()),
        ("sl", "poll_cq.wc.sl", wc.sl.into()),
        (
            "dlid_path_bits",
            "poll_cq.wc.dlid_path_bits",
            wc.dlid_path_bits.into(),
        ),
    ] {
        if !theirs[name].is_null() {
            tally.number(field, ours, number(&theirs[name]))?;
        }
    }
    match &theirs["imm_data_raw"] {
        Value::Null => Ok(()),
        theirs => tally.bytes("poll_cq.wc.imm_data_raw", &immediate, &bytes(theirs)),
    }
}

/// The bits that C has for the kernel's, which are others.
fn flags_in_c(flags: u32) -> u64 {
    let flags = WcFlags::from_bits_retain(flags);
    [
        (WcFlags::GRH, 1),
        (WcFlags::WITH_IMM, 1 << 1),
        (WcFlags::WITH_INVALIDATE, 1 << 3),
    ]
    .into_iter()
    .filter(|(flag, _)| flags.contains(*flag))
    .map(|(_, bit)| bit)
    .sum()
}

fn compare_cq_record(
    field: &'static str,
    world: &World,
    theirs: &Value,
    tally: &mut Tally,
) -> Outcome {
    let ours = record_bytes(world.directory.record());
    tally.bytes(field, &ours, &bytes(theirs))
}

fn arm(world: &World, step: &Value, tally: &mut Tally) -> Outcome {
    world.stores.watch_completions(&world.directory);
    world.cq.arm(number(&step["solicited_only"]) != 0);
    tally.number("req_notify_cq.ret", 0u32, number(&step["ret"]))?;
    compare_cq_record("req_notify_cq.cq_dbrec", world, &step["cq_dbrec"], tally)?;
    let (runs, at_first) = (world.stores.runs(), world.stores.record_at_first());
    compare_stores(&ARM_UAR, (&runs, at_first), list(&step["uar"]), None, tally)
}

fn set_state(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    let pair = world.pairs.values_mut().next().expect("a queue pair");
    pair.state = number(&step["state"]);
    if pair.state == 0 {
        world.directory.clean(&pair.pair);
        pair.record.reset();
        pair.pair.reset();
        // What it left is taken out when somebody polls next; C does it now.
        world.cq.catch_up();
    }
    tally.bytes(
        "set_state.dbrec",
        &record_bytes(&pair.record),
        &bytes(&step["dbrec"]),
    )?;
    match step.get("cq_dbrec") {
        None => Ok(()),
        Some(theirs) => compare_cq_record("set_state.cq_dbrec", world, theirs, tally),
    }
}

fn destroy(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
    let pair = world
        .pairs
        .remove(&word(&step["qpn"]))
        .expect("a queue pair");
    world.directory.remove(&pair.pair);
    world.cq.catch_up();
    compare_cq_record("destroy_qp.cq_dbrec", world, &step["cq_dbrec"], tally)?;
    let ours = world.cq.ring().bytes();
    tally.bytes("destroy_qp.cq_buf", &ours, &bytes(&step["cq_buf"]))
}

/// Posts what a recording says was posted before it begins.
fn set_up(world: &mut World, text: &str) -> Outcome {
    let words: Vec<&str> = text.split([' ', ',']).collect();
    let unclear = || Difference::new(format!("{text:?} is not clear to the replay"));
    let count: u64 = words[0].parse().map_err(|_| unclear())?;
    let first = words.iter().find_map(|word| word.strip_suffix("+i"));
    let first: u64 = first
        .and_then(|word| word.parse().ok())
        .ok_or_else(unclear)?;
    let pair = world.pairs.values_mut().next().expect("a queue pair");
    let queue: &mut dyn Receiving = match (&mut pair.recv, &mut world.shared) {
        _ if text.contains("signaled RC sends") => {
            for number in 0..count {
                signaled_send(pair, first + number)?;
            }
            return Ok(());
        }
        _ if !text.contains("receives") => return Err(unclear()),
        (Some(recv), _) => recv,
        (None, Some(shared)) => &mut shared.queue,
        (None, None) => return Err(unclear()),
    };
    for number in 0..count {
        let pushed = queue.push(first + number, &[]);
        pushed.map_err(|error| Difference::new(error.to_string()))?;
    }
    queue.publish();
    Ok(())
}

fn signaled_send(pair: &mut Pair, wr_id: u64) -> Outcome {
    use crate::fastpath::{Operation, Payload, Request, SendFlags};
    let send = pair.send.as_mut().expect("the queue pair can send");
    let request = Request {
        wr_id,
        operation: Operation::Send,
        flags: SendFlags::SIGNALED,
        payload: Payload::Segments(&[]),
    };
    let pushed = send.push(&request);
    pushed.map_err(|error| Difference::new(error.to_string()))?;
    send.ring_doorbell();
    Ok(())
}

/// Brings the counters of the first queue pair and of the completion queue to a place.
fn run_to(world: &mut World, precondition: &Value) -> Outcome {
    let target = word(&precondition["cur_post"]);
    if word(&precondition["cq_cons_index"]) != target {
        return Err(Difference::new("the counters are to be apart".into()));
    }
    let mut entry = [Completion::default()];
    for counter in 0..target {
        let pair = world.pairs.values_mut().next().expect("a queue pair");
        signaled_send(pair, 0)?;
        let ring = world.cq.ring();
        let mut cqe = [0; 64];
        cqe[32..36].copy_from_slice(&pair.pair.key.to_be_bytes());
        cqe[56] = 0x0a;
        cqe[60..62].copy_from_slice(&(counter as u16).to_be_bytes());
        cqe[63] = u8::from(counter & ring.count() != 0);
        ring.put(counter & (ring.count() - 1), &cqe);
        if world.cq.poll(&mut entry).len() != 1 {
            return Err(Difference::new(format!(
                "completion {counter} does not come"
            )));
        }
    }
    let pair = world.pairs.values_mut().next().expect("a queue pair");
    // What was posted so far is not that of the recording.
    pair.unknown.fill(true);
    Ok(())
}
