//! Doorbell pages: who rang.

use std::time::Instant;

use rdmacm_kernel_abi::mlx5::{self, BF_OFFSET};
use rdmacm_kernel_abi::uverbs::QpState;

use super::HALF;
use crate::kernel::copy_deadline;
use crate::memory::{self, PAGE};
use crate::world::{Copy, World};

/// The register of completion queues.
const ARM: u64 = mlx5::CQ_DOORBELL as u64;

impl World {
    /// Takes what was stored to the registers. False where there was nothing.
    pub(crate) fn look_at_pages(&mut self) -> bool {
        let mapped = |(number, uar): (&u32, &crate::world::Uar)| Some((*number, uar.page?));
        let pages: Vec<_> = self.uars.iter().filter_map(mapped).collect();
        let halves = if self.config.bf_reg_size == 0 { 1 } else { 4 };
        let mut is_rung = false;
        for (number, page) in pages {
            let arm = memory::take(page + ARM);
            if arm != 0 {
                self.arm_rang(number, arm);
                is_rung = true;
            }
            for half in 0..halves {
                let value = memory::take(register(page, half));
                if value != 0 {
                    self.rang(number, half, value);
                    is_rung = true;
                }
            }
        }
        is_rung
    }

    /// The doorbell of a send queue.
    fn rang(&mut self, uar: u32, half: usize, value: u64) {
        let (index, qpn) = ((value >> 40) as u16, (value >> 8) as u32 & 0xff_ffff);
        let length = (value & 0x3f) as usize * 16;
        // Whoever uses the page may have rung meanwhile, over this.
        for qp in self.qps.values_mut().filter(|qp| qp.uar == uar) {
            qp.is_rung |= qp.record.be32(4) as u16 != qp.send_next;
        }
        let Some(qp) = self.qps.get_mut(&qpn) else {
            let state = match self.buried.contains(&qpn) {
                true => "that was destroyed",
                false => "that there never was",
            };
            let text = format!("a doorbell of queue pair {qpn:#x} {state}: {value:#018x}");
            return self.violation(text);
        };
        if qp.is_stopped {
            return;
        }
        if qp.uar != uar || qp.register.is_some_and(|own| own % 2 != half / 2) {
            let granted = (qp.uar, qp.register);
            return self.stop(
                qpn,
                format!("rung in half {half} of page {uar}, which is not its own: {granted:?}"),
            );
        }
        if length == 0 {
            return self.stop(qpn, format!("a doorbell without a length: {value:#018x}"));
        }
        let blocks = length.div_ceil(64) as u16;
        let posted = qp.record.be32(4) as u16;
        let end = index.wrapping_add(blocks);
        if (posted.wrapping_sub(end) as i16) < 0 {
            return self.stop(
                qpn,
                format!(
                    "the doorbell says {end} blocks, the record {posted}: it must be stored first"
                ),
            );
        }
        if qp.state == QpState::RESET {
            return self.stop(qpn, "a doorbell in state RESET".to_owned());
        }
        qp.is_rung = true;
        // What was executed already may have been overwritten.
        if (index.wrapping_sub(qp.send_next) as i16) < 0 {
            return self.note_copy(uar, half, None);
        }
        let expected = qp.ring_bytes(index, length);
        if expected[..8] != value.to_be_bytes() {
            return self.stop(
                qpn,
                format!(
                    "the doorbell {value:#018x} is not the start of request {index}: {:02x?}",
                    &expected[..8]
                ),
            );
        }
        self.note_copy(uar, half, Some((qpn, expected)));
    }

    /// The rest of the request may follow: then it must be as it is in memory, where that is known.
    fn note_copy(&mut self, uar: u32, half: usize, request: Option<(u32, Vec<u8>)>) {
        let uar = self.uars.get_mut(&uar).expect("it was rung");
        let before = uar.copies.len();
        uar.copies.retain(|copy| copy.half != half);
        let is_unseen = uar.copies.len() != before;
        match request {
            Some((qp, expected)) if uar.is_write_combining && expected.len() <= HALF => {
                uar.copies.push(Copy {
                    half,
                    expected,
                    until: copy_deadline(),
                    qp,
                });
                if is_unseen {
                    // What was to be seen there was not, and now it is too late.
                    uar.seen[half] = None;
                }
            }
            _ => uar.seen[half] = None,
        }
    }

    /// Compares copies of requests with the requests.
    pub(super) fn compare_copies(&mut self) {
        let mut wrong = Vec::new();
        for uar in self.uars.values_mut() {
            let Some(page) = uar.page else {
                uar.copies.clear();
                continue;
            };
            let seen = &mut uar.seen;
            uar.copies.retain(|copy| {
                let Some(ending) = look_at_copy(page, copy, seen) else {
                    return true;
                };
                if let Err(text) = ending {
                    wrong.push((copy.qp, text));
                }
                false
            });
        }
        wrong.into_iter().for_each(|(qp, text)| self.stop(qp, text));
    }

    /// Looks for stores to what is no register, and to pages that were given back.
    pub(crate) fn look_for_strays(&mut self) {
        let mapped: Vec<_> = self.uars.values().filter_map(|uar| uar.page).collect();
        let registers = BF_OFFSET..BF_OFFSET + 4 * HALF;
        let mut strays = Vec::new();
        for (page, is_mapped) in mapped
            .iter()
            .map(|page| (*page, true))
            .chain(self.spare_pages.iter().map(|page| (*page, false)))
        {
            let mut bytes = vec![0; PAGE as usize];
            memory::read(page, &mut bytes);
            let is_register =
                |at: &usize| is_mapped && (registers.contains(at) || (0x20..0x28).contains(at));
            let stray = (0..bytes.len()).find(|at| bytes[*at] != 0 && !is_register(at));
            if is_mapped {
                strays.extend(stray.map(|at| format!("a store to {at:#x} of a doorbell page")));
            }
        }
        strays.into_iter().for_each(|text| self.violation(text));
    }
}

/// What has become of a copy; `None` while that is not known.
fn look_at_copy(
    page: u64,
    copy: &Copy,
    seen: &mut [Option<Vec<u8>>; 4],
) -> Option<Result<(), String>> {
    let mut now = vec![0; HALF];
    memory::read(register(page, copy.half), &mut now);
    let used = 8..copy.expected.len();
    // Looked at last: a copy begins there.
    let mut first = [0; 8];
    memory::read(register(page, copy.half), &mut first);
    if first != [0; 8] {
        // The next one is being stored.
        return Some(Ok(())).inspect(|_| seen[copy.half] = None);
    }
    let is_right = now[used.clone()] == copy.expected[used.clone()];
    if !is_right && Instant::now() < copy.until {
        return None;
    }
    let before = seen[copy.half].take();
    // An ordinary doorbell leaves there what was there. Of an earlier copy only so much is known as
    // its request is long: the rest of its last block may have come later.
    let is_old = before.as_ref().is_none_or(|before| {
        let known = 8..used.end.min(before.len());
        before[known.clone()] == now[known]
    });
    seen[copy.half] = match is_right {
        true => Some(now[..used.end].to_vec()),
        false => before,
    };
    Some(match is_right || is_old {
        true => Ok(()),
        false => Err(format!(
            "the copy in half {} is not the request: {now:02x?}, it is {:02x?}",
            copy.half, copy.expected
        )),
    })
}

fn register(page: u64, half: usize) -> u64 {
    page + (BF_OFFSET + half * HALF) as u64
}
