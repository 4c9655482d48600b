//! The steps that post: what is in the queue then, in the doorbell record, and what was stored to
//! registers, in which order.

use std::ops::Range;

use serde_json::Value;

use super::compare::{Difference, Outcome, Tally};
use super::post::{self, Refusal};
use super::stores::{Run, record_bytes};
use super::vectors::{bytes, list, number, word};
use super::world::{Pair, World};
use crate::fastpath::mlx5::posted::Incoming;
use crate::fastpath::mlx5::sizes::{BLOCK, SEGMENT};

pub(super) const IGNORED: &str = "bytes that the device does not read, which C leaves as they were";

const STALE: &str = "bytes of a BlueFlame store behind the request";

const QUIRK: &str =
    "doorbells after an error in a list, which C rings with the request that failed";

/// The memory of a send queue.
pub(super) fn send_memory(pair: &Pair) -> Vec<u8> {
    let sends = pair.pair.sends.as_ref().expect("the queue pair can send");
    // SAFETY: only this thread writes to it.
    unsafe { sends.memory.bytes() }
}

/// `length` bytes of a ring from a place on.
fn around(ring: &[u8], from: usize, length: usize) -> Vec<u8> {
    let to_end = length.min(ring.len() - from);
    [&ring[from..from + to_end], &ring[..length - to_end]].concat()
}

pub(super) fn post_send(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
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
pub(super) struct StoreFields {
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

pub(super) const ARM_UAR: StoreFields = StoreFields {
    map_offset: "req_notify_cq.uar.map_offset",
    page_off: "req_notify_cq.uar.page_off",
    store_widths: "req_notify_cq.uar.store_widths",
    hex: "req_notify_cq.uar.hex",
    at_first: "req_notify_cq.uar.dbrec_at_first_store",
};

/// `read` is how much of a store the device reads, and what of that it does not look at.
pub(super) fn compare_stores(
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

pub(super) fn post_recv(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
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

pub(super) fn shared(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
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
