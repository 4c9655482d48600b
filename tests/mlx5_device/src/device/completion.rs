//! Completions and the events they raise.

use std::time::{Duration, Instant};

use rdmacm_kernel_abi::mlx5::{self, Cqe64, CqeOpcode, ErrCqe};
use rdmacm_kernel_abi::uverbs::{self, AsyncEventType};
use zerocopy::{FromBytes, IntoBytes};

use crate::world::{Armed, Cq, World};

impl World {
    /// Writes a completion. `data` goes into it, behind or before it as its length says.
    pub(crate) fn write_entry(&mut self, number: u32, entry: &Cqe64, data: Option<&[u8]>) {
        let Some(cq) = self.cqs.get_mut(&number) else {
            return;
        };
        if cq.is_broken {
            return;
        }
        let consumed = cq.record.be32(0) & 0xff_ffff;
        let waiting = cq.produced.wrapping_sub(consumed) & 0xff_ffff;
        if waiting >= cq.entries {
            cq.is_broken = true;
            let text = format!(
                "completion queue {number:#x} of {} entries overruns: {} were written, the record \
                 says {consumed} were read",
                cq.entries, cq.produced
            );
            let (channel, name) = (cq.async_channel, cq.user_handle);
            self.send_async(channel, name, AsyncEventType::CQ_ERR);
            return self.violation(text);
        }
        let mut bytes = [0u8; 64];
        bytes.copy_from_slice(entry.as_bytes());
        let size = u64::from(cq.entry_size);
        let at = u64::from(cq.produced & (cq.entries - 1)) * size;
        match data {
            Some(data) if data.len() <= 32 => {
                bytes[..data.len()].copy_from_slice(data);
                bytes[63] |= mlx5::INLINE_SCATTER_32;
            }
            Some(data) => {
                cq.memory.write(at, data);
                bytes[63] |= mlx5::INLINE_SCATTER_64;
            }
            None => {}
        }
        bytes[63] |= u8::from(cq.produced & cq.entries != 0);
        cq.memory.write(at + size - 64, &bytes[..63]);
        cq.memory.publish(at + size - 1, bytes[63]);
        cq.produced = cq.produced.wrapping_add(1);
        let kind = CqeOpcode(bytes[63] >> 4);
        let wakes = bytes[63] & 2 != 0 || [CqeOpcode::REQ_ERR, CqeOpcode::RESP_ERR].contains(&kind);
        if wakes {
            cq.solicited = cq.produced;
        }
        match cq.armed {
            Some(Armed::Any) => self.raise(number),
            Some(Armed::Solicited) if wakes => self.raise(number),
            _ => {}
        }
    }

    /// Writes a completion of failure.
    pub(super) fn write_error(&mut self, number: u32, entry: &ErrCqe) {
        let entry = Cqe64::read_from_bytes(entry.as_bytes()).expect("of the same size");
        self.write_entry(number, &entry, None);
    }

    fn raise(&mut self, number: u32) {
        let cq = self.cqs.get_mut(&number).expect("it was found");
        cq.armed = None;
        cq.events = cq.events.wrapping_add(1);
        let name = cq.user_handle.to_ne_bytes();
        if let Some(channel) = cq.channel.and_then(|id| self.channels.get_mut(&id)) {
            channel.send(&name);
        }
    }

    /// The register of completion queues was stored to.
    pub(super) fn arm_rang(&mut self, uar: u32, value: u64) {
        let (word, number) = ((value >> 32) as u32, value as u32);
        match self.cqs.get(&number) {
            None => {
                let text = format!("completion queue {number:#x} is armed, which there is not");
                return self.violation(text);
            }
            Some(cq) if cq.uar != uar => {
                let text = format!("completion queue {number:#x} is armed through page {uar}");
                return self.violation(text);
            }
            Some(cq) => {
                let record = cq.record.be32(4);
                if record != word && cq.last_arm == record {
                    let text = format!(
                        "completion queue {number:#x} is armed by {word:#x}, its record says \
                         {record:#x}: it must be stored first"
                    );
                    return self.violation(text);
                }
            }
        }
        // Others may have been armed meanwhile, over this.
        let is_new = |(other, cq): (&u32, &Cq)| {
            let word = cq.record.be32(4);
            let is_other = cq.uar == uar && word != cq.last_arm;
            (*other == number || is_other).then_some((*other, word))
        };
        let armed: Vec<_> = self.cqs.iter().filter_map(is_new).collect();
        armed.into_iter().for_each(|(cq, word)| self.arm(cq, word));
    }

    fn arm(&mut self, number: u32, word: u32) {
        let cq = self.cqs.get_mut(&number).expect("it was found");
        cq.last_arm = word;
        let (serial, consumed) = (word >> 28 & 3, word & 0xff_ffff);
        let wants = match word >> 24 & 0xf {
            0 => Armed::Any,
            1 => Armed::Solicited,
            other => {
                let text = format!("completion queue {number:#x} is armed by command {other}");
                return self.violation(text);
            }
        };
        if word >> 30 != 0 {
            let text = format!("completion queue {number:#x}: reserved bits in {word:#x}");
            return self.violation(text);
        }
        let expected = cq.events & 3;
        if serial == expected.wrapping_sub(1) & 3 && cq.events != 0 {
            // Its event is on the way, or is being read: it counts only then, and is asked for anew.
            let channel = cq.channel.and_then(|id| self.channels.get(&id));
            let is_read = channel.is_some_and(|channel| channel.is_empty());
            cq.stale_since = is_read.then(Instant::now);
            return;
        }
        if serial != expected {
            let text = format!(
                "completion queue {number:#x} is armed with serial {serial}, after {} events",
                cq.events
            );
            return self.violation(text);
        }
        let is_due = match wants {
            Armed::Any => cq.produced & 0xff_ffff != consumed,
            Armed::Solicited => {
                let behind = cq.solicited.wrapping_sub(consumed) & 0xff_ffff;
                behind != 0 && behind <= cq.entries
            }
        };
        (cq.armed, cq.stale_since) = (Some(wants), None);
        if is_due {
            self.raise(number);
        }
    }

    /// Looks for queues that were armed with an old serial for good.
    pub(super) fn look_for_stale_arms(&mut self) {
        let mut texts = Vec::new();
        for (number, cq) in &mut self.cqs {
            let is_late = |since: Instant| since.elapsed() > Duration::from_secs(1);
            if cq.stale_since.take_if(|since| is_late(*since)).is_some() {
                texts.push(format!(
                    "completion queue {number:#x} is armed with a serial whose event was read \
                     before, after {} events",
                    cq.events
                ));
            }
        }
        texts.into_iter().for_each(|text| self.violation(text));
    }

    pub(super) fn send_async(&mut self, channel: Option<u32>, element: u64, kind: AsyncEventType) {
        if let Some(channel) = channel.and_then(|id| self.channels.get_mut(&id)) {
            let event = uverbs::AsyncEventDesc {
                element,
                event_type: kind.0,
                reserved: 0,
            };
            channel.send(event.as_bytes());
        }
    }

    /// An event of a queue pair.
    pub(super) fn tell_of_qp(&mut self, number: u32, kind: AsyncEventType) {
        if let Some(qp) = self.qps.get_mut(&number) {
            let (channel, name) = (qp.async_channel, qp.user_handle);
            qp.events += u32::from(channel.is_some());
            self.send_async(channel, name, kind);
        }
    }
}
