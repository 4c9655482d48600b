//! Carrying out posted requests: bytes move between the two queue pairs of a connection at the
//! doorbell, and completions appear.

use std::ptr::{self, NonNull};

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{
    self, AsyncEventType, QpState, QpType, WcFlags, WcOpcode, WcStatus, WrOpcode,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::objects::{Mr, ObjectId};
use super::ring::Pushed;

use super::{Outcome, World};

/// A request of the program's, read out of the send ring.
pub(super) struct Request {
    wr_id: u64,
    opcode: WrOpcode,
    flags: uverbs::SendFlags,
    /// Immediate data, or a key.
    extra: u32,
    remote: u64,
    rkey: u32,
    /// The operands, if it is an atomic.
    atomic: rxe::SendWrAtomic,
    /// Where it goes, if it is a datagram.
    pub datagram: rxe::SendWrUd,
    /// What to open, if it binds a window.
    window: rxe::SendWrMw,
    flush: rxe::SendWrFlush,
    /// Number of the queue pair that it was posted to.
    sender: u32,
    data: Data,
}

enum Data {
    Inline(Vec<u8>),
    Segments(Vec<rxe::Sge>),
    /// None of this side's.
    Remote(u32),
}

/// A receive of the program's.
pub(super) struct Receive {
    pub wr_id: u64,
    pub segments: Vec<rxe::Sge>,
}

/// How a request ended.
pub(super) enum Verdict {
    Done(u32),
    /// The peer is not ready; the request stays where it is.
    Wait,
    Failed(WcStatus),
}

/// What an access needs.
#[derive(Clone, Copy)]
enum Access {
    LocalRead = 0,
    LocalWrite = 1,
    RemoteWrite = 2,
    RemoteRead = 4,
    RemoteAtomic = 8,
}

impl World {
    pub(super) fn doorbell(&mut self, id: ObjectId) -> Outcome {
        if self.objects.qp(id)?.state.0 < QpState::RTS.0 {
            return Err(libc::EINVAL);
        }
        self.kick(id);
        Ok(())
    }

    /// Has a send queue looked at.
    pub(super) fn kick(&mut self, id: ObjectId) {
        if let Ok(qp) = self.objects.qp(id) {
            qp.is_kicked = true;
        }
    }

    /// Carries out whatever can be.
    pub(super) fn progress(&mut self) {
        loop {
            let kicked: Vec<_> = self
                .objects
                .qps()
                .filter(|(_, qp)| qp.is_kicked)
                .map(|(id, _)| id)
                .collect();
            // Any() stops at the first that moved, which is enough: the loop comes round.
            if !kicked.into_iter().any(|id| self.step(id)) {
                return;
            }
        }
    }

    /// Carries out the first request of a send queue. False when there is none, or it must wait.
    fn step(&mut self, id: ObjectId) -> bool {
        let Ok(qp) = self.objects.qp(id) else {
            return false;
        };
        let ring = qp.send_ring.as_ref();
        let next = ring.and_then(|ring| Some((ring.peek(&self.memory)?, ring.slot_size())));
        let Some((slot, slot_size)) = next else {
            qp.is_kicked = false;
            return false;
        };
        let state = qp.state;
        let (request, flaw) = Request::read(slot, slot_size, qp.kind, qp.number);
        if let Some(flaw) = flaw {
            self.violation(flaw);
        }
        let verdict = match state {
            QpState::ERR => Verdict::Failed(WcStatus::WR_FLUSH_ERR),
            QpState::RTS => self.carry_out(id, &request),
            _ => Verdict::Wait,
        };
        match verdict {
            Verdict::Wait => return false,
            Verdict::Done(length) => self.finish_send(id, &request, WcStatus::SUCCESS, length),
            Verdict::Failed(status) => {
                self.finish_send(id, &request, status, 0);
                self.fail_qp(id);
            }
        }
        true
    }

    fn carry_out(&mut self, id: ObjectId, request: &Request) -> Verdict {
        if self.objects.qp(id).is_ok_and(|qp| qp.kind == QpType::UD) {
            return self.send_datagram(id, request);
        }
        let Some(peer) = self.peer_of(id) else {
            return Verdict::Wait;
        };
        let length = request.length();
        match request.opcode {
            WrOpcode::SEND | WrOpcode::SEND_WITH_IMM | WrOpcode::SEND_WITH_INV => {
                self.send(id, peer, request)
            }
            WrOpcode::BIND_MW => self.bind_window(id, &request.window),
            WrOpcode::LOCAL_INV => match self.invalidate(request.extra) {
                true => Verdict::Done(0),
                false => Verdict::Failed(WcStatus::LOC_QP_OP_ERR),
            },
            WrOpcode::FLUSH => self.flush(peer, request),
            WrOpcode::RDMA_WRITE | WrOpcode::ATOMIC_WRITE => self.write(id, peer, request),
            WrOpcode::RDMA_WRITE_WITH_IMM => {
                let Some(receive) = self.take_receive(peer) else {
                    return Verdict::Wait;
                };
                let verdict = self.write(id, peer, request);
                if matches!(verdict, Verdict::Done(_)) {
                    let opcode = WcOpcode::RECV_RDMA_WITH_IMM;
                    self.finish_receive(peer, request, receive.wr_id, opcode, length);
                }
                verdict
            }
            WrOpcode::RDMA_READ => self.read(id, peer, request),
            WrOpcode::ATOMIC_CMP_AND_SWP | WrOpcode::ATOMIC_FETCH_AND_ADD => {
                self.atomic(id, peer, request)
            }
            _ => Verdict::Failed(WcStatus::LOC_QP_OP_ERR),
        }
    }

    /// The queue pair at the other end, if it can receive.
    fn peer_of(&mut self, id: ObjectId) -> Option<ObjectId> {
        let number = self.objects.qp(id).ok()?.peer;
        let receives = [QpState::RTR, QpState::RTS];
        let mut qps = self.objects.qps();
        qps.find(|(_, qp)| qp.number == number && receives.contains(&qp.state))
            .map(|(id, _)| id)
    }

    fn send(&mut self, id: ObjectId, peer: ObjectId, request: &Request) -> Verdict {
        let Some(bytes) = self.gather(id, request) else {
            return Verdict::Failed(WcStatus::LOC_PROT_ERR);
        };
        let Some(receive) = self.take_receive(peer) else {
            return Verdict::Wait;
        };
        if !self.scatter(peer, &receive.segments, &bytes) {
            self.finish_failed_receive(peer, receive.wr_id, WcStatus::LOC_QP_OP_ERR);
            self.fail_qp(peer);
            return Verdict::Failed(WcStatus::REM_OP_ERR);
        }
        if request.opcode == WrOpcode::SEND_WITH_INV && !self.invalidate(request.extra) {
            // The sender has its acknowledgement by then.
            self.finish_failed_receive(peer, receive.wr_id, WcStatus::REM_INV_REQ_ERR);
            self.fail_qp(peer);
            return Verdict::Done(bytes.len() as u32);
        }
        let length = bytes.len() as u32;
        self.finish_receive(peer, request, receive.wr_id, WcOpcode::RECV, length);
        Verdict::Done(length)
    }

    fn flush(&mut self, peer: ObjectId, request: &Request) -> Verdict {
        let flush = &request.flush;
        let length = match uverbs::FlushSelectivity(flush.level) {
            uverbs::FlushSelectivity::RANGE => flush.length,
            // Any byte of it stands for the whole region.
            _ => 1,
        };
        let place = rxe::Sge {
            addr: flush.remote_addr,
            length,
            lkey: flush.rkey,
        };
        let access = u32::from(flush.type_) << 8;
        if flush.type_ == 0 || !self.allows_all(peer, &place, access) {
            self.fail_qp(peer);
            return Verdict::Failed(WcStatus::REM_ACCESS_ERR);
        }
        Verdict::Done(request.length())
    }

    fn write(&mut self, id: ObjectId, peer: ObjectId, request: &Request) -> Verdict {
        let Some(bytes) = self.gather(id, request) else {
            return Verdict::Failed(WcStatus::LOC_PROT_ERR);
        };
        let target = request.remote_segment(bytes.len() as u32);
        if !self.allows(peer, &target, Access::RemoteWrite) {
            self.fail_qp(peer);
            return Verdict::Failed(WcStatus::REM_ACCESS_ERR);
        }
        store(target.addr, &bytes);
        Verdict::Done(target.length)
    }

    fn read(&mut self, id: ObjectId, peer: ObjectId, request: &Request) -> Verdict {
        let source = request.remote_segment(request.length());
        if !self.allows(peer, &source, Access::RemoteRead) {
            self.fail_qp(peer);
            return Verdict::Failed(WcStatus::REM_ACCESS_ERR);
        }
        let bytes = load(source.addr, source.length);
        match &request.data {
            Data::Segments(segments) if self.scatter(id, segments, &bytes) => {
                Verdict::Done(source.length)
            }
            _ => Verdict::Failed(WcStatus::LOC_PROT_ERR),
        }
    }

    fn atomic(&mut self, id: ObjectId, peer: ObjectId, request: &Request) -> Verdict {
        let place = request.remote_segment(size_of::<u64>() as u32);
        if !self.allows(peer, &place, Access::RemoteAtomic) {
            self.fail_qp(peer);
            return Verdict::Failed(WcStatus::REM_ACCESS_ERR);
        }
        let before = load(place.addr, place.length);
        let old = u64::from_ne_bytes(before.as_slice().try_into().unwrap_or_default());
        let operands = &request.atomic;
        let new = match request.opcode {
            WrOpcode::ATOMIC_FETCH_AND_ADD => old.wrapping_add(operands.compare_add),
            _ if old == operands.compare_add => operands.swap,
            _ => old,
        };
        store(place.addr, &new.to_ne_bytes());
        match &request.data {
            Data::Segments(segments) if self.scatter(id, segments, &before) => {
                Verdict::Done(place.length)
            }
            _ => Verdict::Failed(WcStatus::LOC_PROT_ERR),
        }
    }

    /// The bytes of a request, if the queue pair may read them.
    pub(super) fn gather(&mut self, id: ObjectId, request: &Request) -> Option<Vec<u8>> {
        let segments = match &request.data {
            Data::Inline(bytes) => return Some(bytes.clone()),
            Data::Segments(segments) => segments,
            Data::Remote(_) => return None,
        };
        let mut bytes = Vec::new();
        for segment in segments {
            if !self.allows(id, segment, Access::LocalRead) {
                return None;
            }
            bytes.extend(load(segment.addr, segment.length));
        }
        Some(bytes)
    }

    /// Puts bytes into segments. False when they do not fit or may not be written.
    pub(super) fn scatter(
        &mut self,
        id: ObjectId,
        segments: &[rxe::Sge],
        mut bytes: &[u8],
    ) -> bool {
        for segment in segments {
            let (now, later) = bytes.split_at(bytes.len().min(segment.length as usize));
            if !now.is_empty() && !self.allows(id, segment, Access::LocalWrite) {
                return false;
            }
            store(segment.addr, now);
            bytes = later;
        }
        bytes.is_empty()
    }

    /// Whether memory may be used through a queue pair.
    fn allows(&mut self, id: ObjectId, segment: &rxe::Sge, access: Access) -> bool {
        self.allows_all(id, segment, access as u32)
    }

    /// Whether memory may be used through a queue pair in all these ways.
    fn allows_all(&mut self, id: ObjectId, segment: &rxe::Sge, access: u32) -> bool {
        let Ok(Some(pd)) = self.objects.qp(id).map(|qp| qp.pd) else {
            return false;
        };
        if segment.length == 0 {
            return true;
        }
        let mut regions = self.objects.regions();
        let by_key = regions.find(|(_, mr)| mr.pd == pd && mr.key == segment.lkey);
        let mr = match by_key {
            Some((_, mr)) if covers(mr, segment) && mr.access & access == access => Some(mr),
            Some(_) => None,
            None => self
                .through_window(id, pd, segment, access)
                .and_then(|region| self.objects.region(region)),
        };
        drop(regions);
        let Some(mr) = mr else {
            return false;
        };
        let is_mapped = mr
            .pages
            .is_none_or(|pages| self.memory.address(pages).is_some());
        if !is_mapped {
            self.violation("a device reached memory that is registered but unmapped");
        }
        is_mapped
    }

    pub(super) fn take_receive(&mut self, id: ObjectId) -> Option<Receive> {
        let qp = self.objects.qp(id).ok()?;
        let shared = qp.srq;
        let ring = match shared {
            Some(srq) => &mut self.objects.srq(srq).ok()?.ring,
            None => qp.recv_ring.as_mut()?,
        };
        let slot = ring.peek(&self.memory)?;
        let (receive, flaw) = Receive::read(slot, ring.slot_size());
        ring.advance(&self.memory);
        if let Some(flaw) = flaw {
            self.violation(flaw);
        }
        if let Some(srq) = shared {
            self.check_limit(srq);
        }
        Some(receive)
    }

    pub(super) fn flush_receives(&mut self, id: ObjectId) {
        let Ok(qp) = self.objects.qp(id) else { return };
        if qp.srq.is_some() {
            // Other queue pairs go on using them.
            let reporter = qp.reporter;
            self.report(reporter, AsyncEventType::QP_LAST_WQE_REACHED);
            return;
        }
        while let Some(receive) = self.take_receive(id) {
            self.finish_failed_receive(id, receive.wr_id, WcStatus::WR_FLUSH_ERR);
        }
    }

    pub(super) fn fail_qp(&mut self, id: ObjectId) {
        if let Ok(qp) = self.objects.qp(id) {
            qp.state = QpState::ERR;
        }
        self.flush_receives(id);
        self.kick(id);
    }

    fn finish_send(&mut self, id: ObjectId, request: &Request, status: WcStatus, length: u32) {
        let Ok(qp) = self.objects.qp(id) else { return };
        if let Some(ring) = &mut qp.send_ring {
            ring.advance(&self.memory);
        }
        let is_signaled = qp.signals_all || request.flags.contains(uverbs::SendFlags::SIGNALED);
        let (cq, number) = (qp.send_cq, qp.number);
        let mut wc = completion(request.wr_id, number, status);
        if status == WcStatus::SUCCESS {
            wc.opcode = request.completed_opcode().0;
            wc.byte_len = length;
        }
        // Failures are reported, asked for or not.
        if is_signaled || status != WcStatus::SUCCESS {
            self.complete(cq, &wc, status != WcStatus::SUCCESS);
        }
    }

    pub(super) fn finish_receive(
        &mut self,
        id: ObjectId,
        request: &Request,
        wr_id: u64,
        opcode: WcOpcode,
        length: u32,
    ) {
        let Ok(qp) = self.objects.qp(id) else { return };
        let (cq, number) = (qp.recv_cq, qp.number);
        let mut wc = completion(wr_id, number, WcStatus::SUCCESS);
        (wc.opcode, wc.byte_len) = (opcode.0, length);
        (wc.wc_flags, wc.src_qp) = (WcFlags::GRH.bits(), request.sender);
        if request.has_immediate() {
            wc.wc_flags |= WcFlags::WITH_IMM.bits();
            wc.ex = request.extra;
        }
        if request.opcode == WrOpcode::SEND_WITH_INV {
            wc.wc_flags |= WcFlags::WITH_INVALIDATE.bits();
            wc.ex = request.extra;
        }
        self.complete(
            cq,
            &wc,
            request.flags.contains(uverbs::SendFlags::SOLICITED),
        );
    }

    pub(super) fn finish_failed_receive(&mut self, id: ObjectId, wr_id: u64, status: WcStatus) {
        let Ok(qp) = self.objects.qp(id) else { return };
        let (cq, number) = (qp.recv_cq, qp.number);
        self.complete(cq, &completion(wr_id, number, status), true);
    }

    fn complete(&mut self, id: Option<ObjectId>, wc: &uverbs::Wc, is_solicited: bool) {
        let Some(id) = id else { return };
        let Ok(cq) = self.objects.cq(id) else { return };
        match cq.ring.push(&self.memory, wc.as_bytes()) {
            Pushed::Done => self.notify(id, is_solicited),
            Pushed::Full => {
                let reporter = cq.reporter;
                self.report(reporter, AsyncEventType::CQ_ERR);
                self.violation("a completion queue overflowed");
            }
            Pushed::Unmapped => {}
        }
    }
}

impl Request {
    /// Reads a request, and says what is wrong with its working fields.
    fn read(
        slot: NonNull<u8>,
        slot_size: usize,
        kind: QpType,
        sender: u32,
    ) -> (Self, Option<&'static str>) {
        // SAFETY: the slot is at least as long as the structure, aligned, and the program has
        // handed it over.
        let wqe = unsafe { slot.cast::<rxe::SendWqe>().read() };
        let flags = uverbs::SendFlags::from_bits_retain(wqe.wr.send_flags);
        let behind = size_of::<rxe::SendWqe>();
        let room = slot_size - behind;
        let is_value = wqe.wr.opcode == WrOpcode::ATOMIC_WRITE.0;
        let data = if wqe.wr.opcode == WrOpcode::FLUSH.0 {
            Data::Remote(wqe.dma.length)
        } else if is_value || flags.contains(uverbs::SendFlags::INLINE) {
            let length = room.min(wqe.dma.length as usize);
            // SAFETY: the bytes are within the slot.
            Data::Inline(unsafe { copy_out(slot.add(behind), length) })
        } else {
            // SAFETY: the segments are within the slot.
            Data::Segments(unsafe { read_segments(slot.add(behind), room, wqe.dma.num_sge) })
        };
        let request = Self {
            wr_id: wqe.wr.wr_id,
            opcode: WrOpcode(wqe.wr.opcode),
            flags,
            extra: wqe.wr.ex,
            remote: wqe.iova,
            rkey: wqe.wr.wr[1] as u32,
            atomic: front_of(&wqe.wr),
            datagram: zerocopy::transmute!(wqe.wr.wr),
            window: front_of(&wqe.wr),
            flush: front_of(&wqe.wr),
            sender,
            data,
        };
        let flaw = if wqe.status != 0 || wqe.state != 0 {
            Some("a send request has a stale status or state")
        } else if !is_new(&wqe.dma, request.length()) {
            Some("a send request has working fields that are not those of a new one")
        } else if request.is_remote() && wqe.wr.wr[0] != wqe.iova {
            Some("a send request has two remote addresses")
        } else if kind == QpType::UD && request.is_remote() {
            Some("a queue pair for datagrams was given something else")
        } else if (is_value || request.is_atomic())
            && (request.length() != 8 || !request.remote.is_multiple_of(8))
        {
            Some("an atomic of another length or alignment than 8")
        } else {
            None
        };
        (request, flaw)
    }

    fn length(&self) -> u32 {
        match &self.data {
            Data::Inline(bytes) => bytes.len() as u32,
            Data::Segments(segments) => segments.iter().map(|segment| segment.length).sum(),
            Data::Remote(length) => *length,
        }
    }

    fn is_remote(&self) -> bool {
        !matches!(
            self.opcode,
            WrOpcode::SEND
                | WrOpcode::SEND_WITH_IMM
                | WrOpcode::SEND_WITH_INV
                | WrOpcode::LOCAL_INV
                | WrOpcode::BIND_MW
        )
    }

    fn is_atomic(&self) -> bool {
        matches!(
            self.opcode,
            WrOpcode::ATOMIC_CMP_AND_SWP | WrOpcode::ATOMIC_FETCH_AND_ADD
        )
    }

    fn has_immediate(&self) -> bool {
        matches!(
            self.opcode,
            WrOpcode::SEND_WITH_IMM | WrOpcode::RDMA_WRITE_WITH_IMM
        )
    }

    fn remote_segment(&self, length: u32) -> rxe::Sge {
        let lkey = match self.is_atomic() {
            true => self.atomic.rkey,
            false => self.rkey,
        };
        rxe::Sge {
            addr: self.remote,
            length,
            lkey,
        }
    }

    fn completed_opcode(&self) -> WcOpcode {
        match self.opcode {
            WrOpcode::RDMA_WRITE | WrOpcode::RDMA_WRITE_WITH_IMM => WcOpcode::RDMA_WRITE,
            WrOpcode::RDMA_READ => WcOpcode::RDMA_READ,
            WrOpcode::ATOMIC_CMP_AND_SWP => WcOpcode::COMP_SWAP,
            WrOpcode::ATOMIC_FETCH_AND_ADD => WcOpcode::FETCH_ADD,
            WrOpcode::ATOMIC_WRITE => WcOpcode::ATOMIC_WRITE,
            WrOpcode::BIND_MW => WcOpcode::BIND_MW,
            WrOpcode::LOCAL_INV => WcOpcode::LOCAL_INV,
            WrOpcode::FLUSH => WcOpcode::FLUSH,
            _ => WcOpcode::SEND,
        }
    }
}

impl Receive {
    fn read(slot: NonNull<u8>, slot_size: usize) -> (Self, Option<&'static str>) {
        // SAFETY: the slot is at least as long as the structure, aligned, and the program has
        // handed it over.
        let wqe = unsafe { slot.cast::<rxe::RecvWqe>().read() };
        let behind = size_of::<rxe::RecvWqe>();
        // SAFETY: the segments are within the slot.
        let segments =
            unsafe { read_segments(slot.add(behind), slot_size - behind, wqe.dma.num_sge) };
        let length = segments.iter().map(|segment| segment.length).sum();
        let flaw = (!is_new(&wqe.dma, length))
            .then_some("a receive has working fields that are not those of a new one");
        (
            Self {
                wr_id: wqe.wr_id,
                segments,
            },
            flaw,
        )
    }
}

/// The part of a request that depends on its kind.
fn front_of<T: FromBytes>(wr: &rxe::SendWr) -> T {
    let (part, _) = T::read_from_prefix(wr.wr.as_bytes()).expect("it has room for each kind");
    part
}

/// Whether the fields that the kernel counts in are those of a request not yet begun.
fn is_new(dma: &rxe::DmaInfo, length: u32) -> bool {
    (dma.length, dma.resid, dma.cur_sge, dma.sge_offset) == (length, length, 0, 0)
}

fn completion(wr_id: u64, qp_num: u32, status: WcStatus) -> uverbs::Wc {
    uverbs::Wc {
        wr_id,
        qp_num,
        status: status.0,
        ..FromZeros::new_zeroed()
    }
}

fn covers(mr: &Mr, segment: &rxe::Sge) -> bool {
    let offset = segment.addr.wrapping_sub(mr.start);
    offset <= mr.length && u64::from(segment.length) <= mr.length - offset
}

/// # Safety
///
/// `from` must be readable for `room` bytes and aligned to 8.
unsafe fn read_segments(from: NonNull<u8>, room: usize, count: u32) -> Vec<rxe::Sge> {
    let most = room / size_of::<rxe::Sge>();
    let from = from.cast::<rxe::Sge>();
    // SAFETY: no more segments than there is room for, which the caller vouches for.
    (0..most.min(count as usize))
        .map(|index| unsafe { from.add(index).read() })
        .collect()
}

/// # Safety
///
/// `from` must be readable for `length` bytes.
unsafe fn copy_out(from: NonNull<u8>, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // SAFETY: the caller vouches for the source; the target is ours.
    unsafe { from.copy_to_nonoverlapping(NonNull::from(bytes.as_mut_slice()).cast(), length) };
    bytes
}

/// Reads registered memory, as a device does.
fn load(address: u64, length: u32) -> Vec<u8> {
    let from = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    match NonNull::new(from) {
        // SAFETY: the callers have checked that the range is registered, which the program may do
        // only with memory that stays mapped until it takes the registration back.
        Some(from) => unsafe { copy_out(from, length as usize) },
        None => Vec::new(),
    }
}

/// Writes registered memory, as a device does.
fn store(address: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let to = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: as for `load`; the program holds no reference to memory that a device may write.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}
