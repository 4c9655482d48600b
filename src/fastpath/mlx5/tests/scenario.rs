//! Scenarios: work on queues, step by step.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::compare::{Difference, Outcome, Tally};
use super::polling::{self, compare_cq_record};
use super::post::Receiving;
use super::posting::{self, IGNORED, send_memory};
use super::stores::record_bytes;
use super::vectors::{bytes, list, number, text, word};
use super::world::{Pair, Plan, World, pairs_of};
use crate::fastpath::Completion;

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
            "post_send" => posting::post_send(&mut world, step, tally),
            "post_recv" => posting::post_recv(&mut world, step, tally),
            "post_srq_recv" | "srq_state" => posting::shared(&mut world, step, tally),
            "hw_cqe" => polling::write_completion(&world, step),
            "poll_cq" => polling::poll(&mut world, step, tally),
            "req_notify_cq" => polling::arm(&world, step, tally),
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
