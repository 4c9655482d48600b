//! Fuzz targets: queues in memory, and the headers of datagrams.

use std::net::Ipv4Addr;

use rdmacm_kernel_abi::rxe::QueueHeader;
use rdmacm_kernel_abi::uverbs::{Wc, WcFlags, WcOpcode, WcStatus};

use super::reply::{Route, way_back};
use super::{Access, Qp, QpAttr, QpModify, QpState};
use crate::device::fuzzing::{machine, open_device};
use crate::device::{Gid, GidEntry, GidType};
use crate::fastpath::{Completion, CompletionStatus, GRH_LENGTH, Opcode, PostError, Segment};
use crate::sys::hostile::{Discovery, HEADER, Hostile};

const SLOTS: usize = size_of::<QueueHeader>();

/// A queue in memory as its header describes it, read without the library's help.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    mapping: usize,
    slot_size: usize,
    mask: u32,
}

impl Geometry {
    /// Checks that what the library took over for a queue is one: it lies within its mapping, and
    /// its slots hold an element.
    fn of(kernel: &Hostile, mapping: usize, element: usize) -> Self {
        let [log2_slot_size, mask] = [HEADER[0], HEADER[1]].map(|at| word(kernel, mapping, at));
        assert!(log2_slot_size < 32, "{log2_slot_size}");
        let (slot_size, slots) = (1usize << log2_slot_size, mask as usize + 1);
        assert!(element <= slot_size && slots.is_power_of_two());
        assert!(SLOTS + slots * slot_size <= kernel.mapping_length(mapping));
        Self {
            mapping,
            slot_size,
            mask,
        }
    }

    fn slot(self, index: u32) -> usize {
        SLOTS + (index & self.mask) as usize * self.slot_size
    }

    /// Changes an index or a slot as no kernel would.
    fn disturb(self, kernel: &Hostile, what: u8) {
        let number = kernel.number();
        let at = match what & 3 {
            0 => HEADER[2],
            1 => HEADER[3],
            // Numbers that are read once: nobody looks at them again.
            2 => HEADER[usize::from(what >> 2 & 1)],
            _ => self.slot(number) + usize::from(what >> 2) % (self.slot_size / 4) * 4,
        };
        kernel.poke(self.mapping, at, &number.to_ne_bytes());
    }
}

fn word(kernel: &Hostile, mapping: usize, at: usize) -> u32 {
    u32::from_ne_bytes(kernel.peek(mapping, at))
}

/// Completions in a queue whose header, indices and slots are anything. Each is what its slot has,
/// in order, and never more than the queue holds.
pub fn completions(input: &[u8]) {
    let kernel = machine(input, Discovery::Fixed);
    let Some(context) = open_device() else { return };
    let Ok(mut cq) = context.completion_queue(8).build() else {
        assert_eq!(kernel.mappings(), 0);
        return;
    };
    let queue = Geometry::of(&kernel, 0, size_of::<Wc>());
    assert_eq!(cq.depth(), queue.mask);
    let mut next = word(&kernel, 0, HEADER[3]) & queue.mask;
    let mut entries = [Completion::default(); 32];
    while let Some(step) = kernel.next_step() {
        if step & 3 != 0 {
            queue.disturb(&kernel, step >> 2);
            continue;
        }
        let limit = usize::from(step >> 2) % (entries.len() + 1);
        let waiting = word(&kernel, 0, HEADER[2]).wrapping_sub(next) & queue.mask;
        let polled = cq.poll(&mut entries[..limit]);
        assert_eq!(polled.len(), limit.min(waiting as usize));
        for completion in polled {
            let slot: [u8; size_of::<Wc>()] = kernel.peek(0, queue.slot(next));
            check_completion(completion, &zerocopy::transmute!(slot));
            next = (next + 1) & queue.mask;
        }
        if !polled.is_empty() {
            assert_eq!(word(&kernel, 0, HEADER[3]), next);
        }
    }
    drop((cq, context));
    assert_eq!(kernel.mappings(), 0);
}

/// What a completion tells is what the kernel wrote, and a failure tells nothing else.
fn check_completion(completion: &Completion, wc: &Wc) {
    assert_eq!(
        (completion.wr_id(), completion.qp_num()),
        (wc.wr_id, wc.qp_num)
    );
    let has = |flag: WcFlags| wc.wc_flags & flag.bits() != 0;
    match completion.result() {
        Ok(success) => {
            assert_eq!(wc.status, WcStatus::SUCCESS.0);
            let (length, header) = (wc.byte_len, GRH_LENGTH as u32);
            assert_eq!(
                (success.byte_len(), success.source_qp()),
                (length, wc.src_qp)
            );
            assert_eq!(
                success.datagram_len(),
                if length < header { 0 } else { length - header }
            );
            assert_eq!(success.has_grh(), has(WcFlags::GRH));
            let receives = [WcOpcode::RECV.0, WcOpcode::RECV_RDMA_WITH_IMM.0];
            let immediate = receives.contains(&wc.opcode) && has(WcFlags::WITH_IMM);
            assert_eq!(success.immediate(), immediate.then(|| wc.ex.swap_bytes()));
            if let Opcode::Other(number) = success.opcode() {
                assert!(number == wc.opcode && !receives.contains(&number));
            }
        }
        Err(failure) => {
            assert_ne!(wc.status, WcStatus::SUCCESS.0);
            assert_eq!(
                (failure.wr_id, failure.vendor_error),
                (wc.wr_id, wc.vendor_err)
            );
            assert_eq!(failure.is_flush(), wc.status == WcStatus::WR_FLUSH_ERR.0);
            match failure.status {
                CompletionStatus::Unknown(number) => {
                    assert!(number == wc.status && number > WcStatus::GENERAL_ERR.0);
                }
                _ => assert!(wc.status <= WcStatus::GENERAL_ERR.0),
            }
            assert!(!failure.to_string().is_empty());
        }
    }
    assert!(!format!("{completion:?}").is_empty());
}

/// Posting to queues whose sizes and indices are anything. Requests stay within their slots, and the
/// kernel is told of those that were submitted.
pub fn queues(input: &[u8]) {
    let kernel = machine(input, Discovery::Fixed);
    let Some(context) = open_device() else { return };
    let Ok(pd) = context.alloc_pd() else { return };
    kernel.make_queues_plain(true);
    let cq = context.completion_queue(8).build();
    kernel.make_queues_plain(false);
    let (Ok(cq), Ok(buffer)) = (cq, pd.alloc(4096, Access::empty())) else {
        return;
    };
    let Ok(mut qp) = pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq)) else {
        assert_eq!(kernel.mappings(), 2);
        return;
    };
    // After those of the completion queue and of the buffer.
    let [send, recv] = [2, 3].map(|mapping| Geometry::of(&kernel, mapping, 0));
    let granted = qp.capabilities();
    assert_eq!(
        (granted.max_send_wr, granted.max_recv_wr),
        (send.mask, recv.mask)
    );
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let _ = qp.modify(&QpModify::to(state));
    }
    let segments: Vec<Segment> = (0..40)
        .map(|at| buffer.slice(at..at * 2).expect("within"))
        .collect();
    while let Some(step) = kernel.next_step() {
        match step & 3 {
            0 => send.disturb(&kernel, step >> 2),
            1 => recv.disturb(&kernel, step >> 2),
            2 => send_batch(&kernel, &mut qp, send, &segments),
            _ => post_receive(
                &kernel,
                &mut qp,
                recv,
                &segments[..usize::from(step >> 2) % 40],
            ),
        }
    }
    drop((qp, cq, buffer, pd, context));
    assert_eq!(kernel.mappings(), 0);
}

/// Builds requests until the input says that it is enough.
fn send_batch(kernel: &Hostile, qp: &mut Qp, queue: Geometry, segments: &[Segment]) {
    let granted = qp.capabilities();
    let before = word(kernel, queue.mapping, HEADER[2]);
    let mut batch = qp.send_half().batch();
    let mut built = 0;
    while let Some(step) = kernel.next_step().filter(|step| *step != 0) {
        let size = usize::from(step >> 1);
        let wr_id = u64::from(built);
        let (outcome, is_too_much) = if step & 1 == 0 {
            let segments = &segments[..size % segments.len()];
            (
                batch.send(wr_id).from(segments),
                segments.len() > granted.max_send_sge as usize,
            )
        } else {
            let bytes = [step; 1024];
            let bytes = &bytes[..size * 8];
            (
                batch.send(wr_id).inline(bytes),
                bytes.len() > granted.max_inline_data as usize,
            )
        };
        match outcome {
            Ok(()) => built += 1,
            Err(PostError::QueueFull { depth }) => assert_eq!(depth, queue.mask),
            Err(PostError::TooManySegments { .. } | PostError::InlineTooLong { .. }) => {
                assert!(is_too_much);
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(built <= queue.mask, "more than the queue holds");
    }
    let is_told = built > 0 && kernel.next_step().is_some_and(|step| step & 1 == 0);
    if !is_told {
        drop(batch);
        assert_eq!(
            word(kernel, queue.mapping, HEADER[2]),
            before,
            "nothing was submitted"
        );
        return;
    }
    match batch.submit() {
        // The kernel is told before it refuses to look.
        Ok(()) | Err(PostError::Doorbell { .. }) => {
            let end = word(kernel, queue.mapping, HEADER[2]);
            assert!(end <= queue.mask);
            for number in 0..built {
                let slot = queue.slot(end.wrapping_sub(built - number));
                let wr_id: [u8; 8] = kernel.peek(queue.mapping, slot);
                assert_eq!(u64::from_ne_bytes(wr_id), u64::from(number));
            }
        }
        // It refused one of the transitions.
        Err(other) => assert_eq!(other, PostError::NotConnected),
    }
}

fn post_receive(kernel: &Hostile, qp: &mut Qp, queue: Geometry, segments: &[Segment]) {
    let wr_id = u64::MAX - segments.len() as u64;
    let is_too_much = segments.len() > qp.capabilities().max_recv_sge as usize;
    match qp.recv_half().post(wr_id, segments) {
        Ok(()) => {
            let end = word(kernel, queue.mapping, HEADER[2]);
            assert!(end <= queue.mask && !is_too_much);
            let slot = queue.slot(end.wrapping_sub(1));
            let written: [u8; 8] = kernel.peek(queue.mapping, slot);
            assert_eq!(u64::from_ne_bytes(written), wr_id);
        }
        Err(PostError::QueueFull { depth }) => assert!(depth == queue.mask && !is_too_much),
        Err(other) => assert!(is_too_much, "{other:?}"),
    }
}

/// The way back to the sender of a datagram, out of the header before it and a table of GIDs.
pub fn reply_path(input: &[u8]) {
    let Some((grh, rest)) = input.split_first_chunk::<GRH_LENGTH>() else {
        return;
    };
    let Some(([flags, port, level, lid], rest)) = rest.split_first_chunk() else {
        return;
    };
    let wc = Wc {
        wc_flags: (*flags).into(),
        sl: *level,
        slid: (*lid).into(),
        ..Default::default()
    };
    let completion = Completion::of_kernel(wc);
    let received = completion.result().expect("the status is 0");

    let of_ipv4 = |at: usize| {
        let octets: [u8; 4] = std::array::from_fn(|byte| grh[at + byte]);
        Gid(Ipv4Addr::from(octets).to_ipv6_mapped().octets())
    };
    let of_ipv6 = |at: usize| Gid(std::array::from_fn(|byte| grh[at + byte]));
    // Most entries of the table are an address in the header.
    let entry = |bytes: &[u8; 4]| GidEntry {
        gid: match bytes[0] & 3 {
            0 => of_ipv6(24),
            1 => of_ipv4(36),
            2 => of_ipv6(8),
            _ => Gid([bytes[1]; 16]),
        },
        index: u32::from(bytes[1]) << (bytes[0] >> 4),
        port: bytes[2],
        kind: GidType::RoceV2,
        interface: 0,
    };
    let (chunks, _) = rest.as_chunks::<4>();
    let gids: Vec<GidEntry> = chunks.iter().map(entry).collect();

    let path =
        Route::all_of(&received, grh).and_then(|routes| way_back(&received, &routes, &gids, *port));
    let is_own = |gid: Gid| {
        let mut entries = gids
            .iter()
            .filter(|entry| entry.port == *port && entry.gid == gid);
        entries.any(|entry| entry.index <= 255)
    };
    let ways = [
        (grh[20] == 0x45 && is_own(of_ipv4(36)), of_ipv4(32)),
        (grh[0] >> 4 == 6 && is_own(of_ipv6(24)), of_ipv6(8)),
    ];
    let expected = ways
        .into_iter()
        .find(|(is_one, _)| *is_one && received.has_grh());
    assert_eq!(
        path.as_ref().ok().map(|path| path.gid),
        expected.map(|(_, gid)| gid)
    );
    match path {
        Ok(path) => {
            let is_entry = |entry: &&GidEntry| {
                entry.port == path.port && entry.index == u32::from(path.source_gid_index)
            };
            assert!(gids.iter().any(|entry| is_entry(&entry)) && path.flow_label < 1 << 20);
            assert_eq!((path.service_level, path.lid), (*level, u16::from(*lid)));
        }
        Err(error) => assert!(error.to_string().len() > 10),
    }
}
