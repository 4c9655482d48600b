//! The steps of the completion queue: what the device writes, what is polled, and arming.

use rdmacm_kernel_abi::uverbs::{WcFlags, WcStatus};
use serde_json::Value;

use super::compare::{Difference, Outcome, Tally};
use super::posting::{ARM_UAR, compare_stores};
use super::stores::record_bytes;
use super::vectors::{bytes, list, number, word};
use super::world::World;
use crate::fastpath::Completion;

const LOST: &str = "completions before one of nobody, which C loses";

/// Writes a completion as the device does.
pub(super) fn write_completion(world: &World, step: &Value) -> Outcome {
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

pub(super) fn poll(world: &mut World, step: &Value, tally: &mut Tally) -> Outcome {
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

pub(super) fn compare_cq_record(
    field: &'static str,
    world: &World,
    theirs: &Value,
    tally: &mut Tally,
) -> Outcome {
    let ours = record_bytes(world.directory.record());
    tally.bytes(field, &ours, &bytes(theirs))
}

pub(super) fn arm(world: &World, step: &Value, tally: &mut Tally) -> Outcome {
    world.stores.watch_completions(&world.directory);
    world.cq.arm(number(&step["solicited_only"]) != 0);
    tally.number("req_notify_cq.ret", 0u32, number(&step["ret"]))?;
    compare_cq_record("req_notify_cq.cq_dbrec", world, &step["cq_dbrec"], tally)?;
    let (runs, at_first) = (world.stores.runs(), world.stores.record_at_first());
    compare_stores(&ARM_UAR, (&runs, at_first), list(&step["uar"]), None, tally)
}
