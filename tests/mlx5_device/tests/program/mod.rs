//! A program that works the card by hand: it sends commands as bytes and writes requests itself.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rdmacm_kernel_abi::mlx5::{self, Cqe64, CqeOpcode, ErrCqe};
use rdmacm_kernel_abi::uverbs::{self, CmdHeader, Command, QpAttrMask as A, QpType, ioctl};
use rdmacm_mlx5_device::{Card, Config, File};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Memory that is never given back, so that the card may look at it at any time.
#[derive(Debug, Clone, Copy)]
pub struct Area {
    pub address: u64,
    pub length: usize,
}

impl Area {
    pub fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.next_multiple_of(4096), 4096).unwrap();
        // SAFETY: the size is not zero.
        let address = unsafe { alloc_zeroed(layout) } as u64;
        Self { address, length }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.length);
        // SAFETY: it is in our memory, which is never given back.
        unsafe { AtomicU8::from_ptr((self.address + at as u64) as *mut u8) }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        for (index, value) in bytes.iter().enumerate() {
            self.byte(at + index).store(*value, Ordering::Relaxed);
        }
    }

    pub fn get(&self, at: usize, length: usize) -> Vec<u8> {
        fence(Ordering::Acquire);
        let read = |at| self.byte(at).load(Ordering::Relaxed);
        (at..at + length).map(read).collect()
    }

    /// Stores a word in big-endian order, after all that was stored before.
    pub fn put_be32(&self, at: usize, value: u32) {
        assert!(at.is_multiple_of(4) && at + 4 <= self.length);
        // SAFETY: as above, and it is aligned.
        let word = unsafe { AtomicU32::from_ptr((self.address + at as u64) as *mut u32) };
        word.store(value.to_be(), Ordering::Release);
    }
}

/// A value of an attribute.
pub enum Arg<'a> {
    In(&'a [u8]),
    Out(&'a mut [u8]),
    /// A handle, of an object that is or is to be.
    Word(u64),
}

pub struct Program {
    pub card: Card,
    pub file: File,
    pub pd: u32,
    pub uar: u32,
    /// The pages that came with the context, or the one that was allocated.
    pages: Vec<u64>,
    pub data: Area,
    pub key: u32,
    pub mr: u32,
}

pub struct Cq {
    pub handle: u32,
    pub number: u32,
    pub entries: u32,
    pub size: u32,
    pub area: Area,
    pub record: Area,
    pub next: u32,
    pub channel: OwnedFd,
    serial: u32,
}

pub struct Qp {
    pub handle: u32,
    pub number: u32,
    pub index: u32,
    pub area: Area,
    pub record: Area,
    pub posted: u16,
    pub received: u16,
    /// Where its send queue begins.
    pub sends: usize,
    /// Its register.
    pub register: u64,
}

pub struct Srq {
    pub handle: u32,
    pub area: Area,
    pub record: Area,
    pub posted: u16,
}

pub const BLOCKS: u16 = 16;
pub const RECEIVES: u16 = 8;
const RECEIVE_SHIFT: u32 = 5;
const SEND_START: usize = (RECEIVES as usize) << RECEIVE_SHIFT;
pub const ALL_ACCESS: u32 = 0x1f;

impl Program {
    pub fn new(config: Config) -> Self {
        let card = Card::new(config.clone());
        let file = card.open();
        let mut program = Self {
            card,
            file,
            pd: 0,
            uar: 0,
            pages: Vec::new(),
            data: Area::new(65536),
            key: 0,
            mr: 0,
        };
        program.open(&config);
        let (core, _) = program
            .command(Command::ALLOC_PD, &uverbs::AllocPd::default(), &[], 4, 4)
            .unwrap();
        program.pd = u32::from_ne_bytes(core[..4].try_into().unwrap());
        (program.mr, program.key) = program.register(program.data, ALL_ACCESS).unwrap();
        program
    }

    fn open(&mut self, config: &Config) {
        let request = mlx5::AllocUcontextReqV2 {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            max_cqe_version: 1,
            lib_caps: 3,
            ..Default::default()
        };
        let is_static = config.has_static_uars;
        if config.has_write_abi_only {
            let asked = uverbs::GetContext::default();
            let request = request.as_bytes();
            self.command(Command::GET_CONTEXT, &asked, request, 8, 72)
                .unwrap();
        } else {
            let mut answer = mlx5::AllocUcontextResp::default();
            let attrs = [
                (ioctl::UHW_IN, Arg::In(request.as_bytes())),
                (ioctl::UHW_OUT, Arg::Out(answer.as_mut_bytes())),
            ];
            self.method(0, ioctl::device::GET_CONTEXT, attrs).unwrap();
            assert_eq!(answer.tot_bfregs, if is_static { 16 } else { 0 });
        }
        let offsets: Vec<u64> = match is_static {
            true => (0..8).map(|page| page * 4096).collect(),
            false => vec![self.alloc_uar()],
        };
        let map = |offset| self.file.map(4096, offset).unwrap().as_ptr() as u64;
        self.pages = offsets.into_iter().map(map).collect();
        if is_static {
            self.uar = u32::MAX;
        }
    }

    fn alloc_uar(&mut self) -> u64 {
        use mlx5::uar_ids as id;
        let (kind, mut offset, mut length, mut number) = (0u64, 0u64, 0u32, 0u32);
        let attrs = [
            (id::ALLOC_HANDLE, Arg::Word(0)),
            (id::ALLOC_TYPE, Arg::In(kind.as_bytes())),
            (id::ALLOC_MMAP_OFFSET, Arg::Out(offset.as_mut_bytes())),
            (id::ALLOC_MMAP_LENGTH, Arg::Out(length.as_mut_bytes())),
            (id::ALLOC_PAGE_ID, Arg::Out(number.as_mut_bytes())),
        ];
        self.method(id::OBJECT_UAR, id::ALLOC, attrs).unwrap();
        assert_eq!(length, 4096);
        self.uar = number;
        offset
    }

    /// Sends a command in the form of `write()`. The answers are the core's and the driver's.
    pub fn command<T: IntoBytes + Immutable>(
        &self,
        command: Command,
        request: &T,
        driver: &[u8],
        room: usize,
        driver_room: usize,
    ) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut answer = vec![0u8; room + driver_room];
        let mut body = request.as_bytes().to_vec();
        if !answer.is_empty() {
            body[..8].copy_from_slice(&(answer.as_mut_ptr() as u64).to_ne_bytes());
        }
        body.extend(driver);
        let header = CmdHeader {
            command: command.0,
            in_words: ((8 + body.len()) / 4) as u16,
            out_words: (answer.len() / 4) as u16,
        };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(body);
        // SAFETY: the one pointer is to the answer.
        unsafe { self.file.write(&bytes) }?;
        let driver = answer.split_off(room);
        Ok((answer, driver))
    }

    /// Sends a command in the form of the ioctl.
    pub fn method<const N: usize>(
        &self,
        object: u16,
        method: u16,
        attrs: [(u16, Arg<'_>); N],
    ) -> io::Result<[u64; N]> {
        let mut packet = vec![0u64; 3 + 2 * N];
        let header = ioctl::Header {
            length: (24 + 16 * N) as u16,
            object_id: object,
            method_id: method,
            num_attrs: N as u16,
            driver_id: 1,
            ..Default::default()
        };
        packet[..3]
            .as_mut_bytes()
            .copy_from_slice(header.as_bytes());
        for (place, (id, arg)) in packet[3..].chunks_exact_mut(2).zip(attrs) {
            let (len, data) = match arg {
                Arg::In(bytes) if bytes.len() <= 8 => {
                    let mut inline = [0; 8];
                    inline[..bytes.len()].copy_from_slice(bytes);
                    (bytes.len(), u64::from_ne_bytes(inline))
                }
                Arg::In(bytes) => (bytes.len(), bytes.as_ptr() as u64),
                Arg::Out(bytes) => (bytes.len(), bytes.as_mut_ptr() as u64),
                Arg::Word(word) => (0, word),
            };
            let attr = ioctl::Attr {
                attr_id: id,
                len: len as u16,
                flags: 1,
                attr_data: 0,
                data,
            };
            place.as_mut_bytes().copy_from_slice(attr.as_bytes());
        }
        let command = NonNull::new(packet.as_mut_ptr().cast()).unwrap();
        // SAFETY: all pointers are to what the caller lent.
        unsafe { self.file.ioctl(command) }?;
        Ok(std::array::from_fn(|index| packet[4 + 2 * index]))
    }

    pub fn register(&self, area: Area, access: u32) -> io::Result<(u32, u32)> {
        let asked = uverbs::RegMr {
            start: area.address,
            length: area.length as u64,
            hca_va: area.address,
            pd_handle: self.pd,
            access_flags: access,
            ..Default::default()
        };
        let (core, _) = self.command(Command::REG_MR, &asked, &[], 12, 0)?;
        let made = uverbs::RegMrResp::read_from_bytes(&core).unwrap();
        Ok((made.mr_handle, made.lkey))
    }

    pub fn window(&self, kind: u8) -> u32 {
        let asked = uverbs::AllocMw {
            pd_handle: self.pd,
            mw_type: kind,
            ..Default::default()
        };
        let (core, _) = self.command(Command::ALLOC_MW, &asked, &[], 8, 0).unwrap();
        uverbs::AllocMwResp::read_from_bytes(&core).unwrap().rkey
    }

    pub fn cq_request(&self, area: Area, record: Area, size: u32) -> mlx5::CreateCq {
        mlx5::CreateCq {
            buf_addr: area.address,
            db_addr: record.address,
            cqe_size: size,
            flags: if self.uar == u32::MAX { 0 } else { 2 },
            uar_page_index: if self.uar == u32::MAX {
                0
            } else {
                self.uar as u16
            },
            ..Default::default()
        }
    }

    pub fn cq(&self, entries: u32, size: u32) -> Cq {
        let area = Area::new((entries * size) as usize);
        for index in 0..entries {
            area.put((index * size + size - 1) as usize, &[0xf0]);
        }
        let record = Area::new(8);
        let asked = uverbs::CreateCompChannel::default();
        let (fd, _) = self
            .command(Command::CREATE_COMP_CHANNEL, &asked, &[], 4, 0)
            .unwrap();
        let fd = i32::from_ne_bytes(fd[..4].try_into().unwrap());
        // SAFETY: it was made just now for us.
        let channel = unsafe { OwnedFd::from_raw_fd(fd) };
        let asked = uverbs::CreateCq {
            cqe: entries - 1,
            user_handle: 0xc0de,
            comp_channel: fd,
            ..Default::default()
        };
        let driver = self.cq_request(area, record, size);
        let driver = driver.as_bytes();
        let (core, own) = self
            .command(Command::CREATE_CQ, &asked, driver, 8, 8)
            .unwrap();
        let made = uverbs::CreateCqResp::read_from_bytes(&core).unwrap();
        assert_eq!(made.cqe, entries - 1);
        Cq {
            handle: made.cq_handle,
            number: mlx5::CreateCqResp::read_from_bytes(&own).unwrap().cqn,
            entries,
            size,
            area,
            record,
            next: 0,
            channel,
            serial: 0,
        }
    }

    pub fn arm(&self, cq: &mut Cq, solicited: bool) {
        let word = cq.serial << 28 | u32::from(solicited) << 24 | cq.next & 0xff_ffff;
        self.arm_by(cq, word, word);
    }

    pub fn arm_by(&self, cq: &Cq, record: u32, word: u32) {
        cq.record.put_be32(4, record);
        let value = u64::from(word) << 32 | u64::from(cq.number);
        self.ring(self.pages[0] + 0x20, value, true);
    }

    /// What the kernel is asked for a queue pair.
    pub fn qp_request(&self, area: Area, record: Area, index: u32) -> mlx5::CreateQp {
        let is_dynamic = self.uar != u32::MAX;
        mlx5::CreateQp {
            buf_addr: area.address,
            db_addr: record.address,
            sq_wqe_count: BLOCKS.into(),
            rq_wqe_count: RECEIVES.into(),
            rq_wqe_shift: RECEIVE_SHIFT,
            flags: if is_dynamic { 0x400 } else { 0 },
            uidx: index,
            bfreg_index: if is_dynamic { self.uar } else { 0 },
            ..Default::default()
        }
    }

    pub fn qp(
        &self,
        kind: QpType,
        cq: &Cq,
        change: impl FnOnce(&mut uverbs::CreateQp, &mut mlx5::CreateQp),
    ) -> io::Result<Qp> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let index = match self.card.config().cqe_version {
            0 => 0xff_ffff,
            _ => NEXT.fetch_add(1, Ordering::Relaxed),
        };
        let area = Area::new(SEND_START + usize::from(BLOCKS) * 64);
        let record = Area::new(8);
        let mut asked = uverbs::CreateQp {
            user_handle: 0x9000 + u64::from(index),
            pd_handle: self.pd,
            send_cq_handle: cq.handle,
            recv_cq_handle: cq.handle,
            max_send_wr: BLOCKS.into(),
            max_recv_wr: RECEIVES.into(),
            max_send_sge: 2,
            max_recv_sge: 2,
            qp_type: kind.0,
            ..Default::default()
        };
        let mut driver = self.qp_request(area, record, index);
        change(&mut asked, &mut driver);
        let sends = (driver.rq_wqe_count as usize) << driver.rq_wqe_shift;
        let driver = driver.as_bytes();
        let (core, own) = self.command(Command::CREATE_QP, &asked, driver, 32, 40)?;
        let own = mlx5::CreateQpResp::read_from_bytes(&own).unwrap();
        let (page, half) = match own.bfreg_index {
            0x8000_0000 => (0, 0),
            // Four for each page, of which two are there.
            number => (number / 4, number % 4 * 2),
        };
        let made = uverbs::CreateQpResp::read_from_bytes(&core).unwrap();
        Ok(Qp {
            handle: made.qp_handle,
            number: made.qpn,
            index,
            area,
            record,
            posted: 0,
            received: 0,
            sends,
            register: self.pages[page as usize] + 0x800 + u64::from(half) * 256,
        })
    }

    pub fn modify(
        &self,
        qp: &Qp,
        mask: A,
        change: impl FnOnce(&mut uverbs::ModifyQp),
    ) -> io::Result<()> {
        let mut asked = uverbs::ModifyQp {
            qp_handle: qp.handle,
            attr_mask: mask.bits(),
            ..Default::default()
        };
        change(&mut asked);
        self.command(Command::MODIFY_QP, &asked, &[], 0, 0)
            .map(drop)
    }

    /// Moves a queue pair through all states.
    pub fn connect(&self, kind: QpType, qp: &Qp, peer: u32) {
        let is_rc = kind == QpType::RC;
        let third = if kind == QpType::UD {
            A::QKEY
        } else {
            A::ACCESS_FLAGS
        };
        self.modify(qp, A::STATE | A::PKEY_INDEX | A::PORT | third, |to| {
            (to.qp_state, to.port_num, to.qkey) = (1, 1, 0x1234);
            to.qp_access_flags = 0xf;
        })
        .unwrap();
        let mut mask = A::STATE;
        if kind != QpType::UD {
            mask |= A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
        }
        if is_rc {
            mask |= A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
        }
        self.modify(qp, mask, |to| {
            (to.qp_state, to.path_mtu, to.dest_qp_num) = (2, 5, peer);
            (to.max_dest_rd_atomic, to.min_rnr_timer) = (4, 1);
            to.dest = self.path();
        })
        .unwrap();
        let mut mask = A::STATE | A::SQ_PSN;
        if is_rc {
            mask |= A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC;
        }
        self.modify(qp, mask, |to| {
            (to.qp_state, to.timeout, to.retry_cnt) = (3, 8, 3);
            (to.rnr_retry, to.max_rd_atomic) = (2, 4);
        })
        .unwrap();
    }

    /// The way to the own port.
    pub fn path(&self) -> uverbs::QpDest {
        let config = self.card.config();
        match config.is_infiniband {
            true => uverbs::QpDest {
                dlid: 0x11,
                ..Default::default()
            },
            false => uverbs::QpDest {
                dgid: config.address.to_ipv6_mapped().octets(),
                sgid_index: 2,
                hop_limit: 64,
                is_global: 1,
                ..Default::default()
            },
        }
    }

    pub fn srq(&self) -> Srq {
        let area = Area::new(4 * 32);
        for index in 0..4u16 {
            area.put(
                usize::from(index) * 32 + 2,
                &((index + 1) % 4).to_be_bytes(),
            );
        }
        let record = Area::new(8);
        let asked = uverbs::CreateSrq {
            user_handle: 0x5000,
            pd_handle: self.pd,
            max_wr: 3,
            max_sge: 1,
            ..Default::default()
        };
        let driver = mlx5::CreateSrq {
            buf_addr: area.address,
            db_addr: record.address,
            ..Default::default()
        };
        let (core, _) = self
            .command(Command::CREATE_SRQ, &asked, driver.as_bytes(), 16, 8)
            .unwrap();
        let made = uverbs::CreateSrqResp::read_from_bytes(&core).unwrap();
        assert_eq!((made.max_wr, made.max_sge), (3, 1));
        Srq {
            handle: made.srq_handle,
            area,
            record,
            posted: 0,
        }
    }

    /// Writes a request, its control segment first, and rings.
    pub fn post(&self, qp: &mut Qp, request: Request) {
        let bytes = request.bytes(qp);
        self.put_request(qp, &bytes);
        self.ring_for(qp, &bytes, false);
    }

    pub fn put_request(&self, qp: &mut Qp, bytes: &[u8]) {
        for (number, chunk) in bytes.chunks(64).enumerate() {
            let block = usize::from(qp.posted + number as u16) % usize::from(BLOCKS);
            qp.area.put(qp.sends + block * 64, chunk);
        }
        qp.posted = qp.posted.wrapping_add(bytes.len().div_ceil(64) as u16);
        qp.record.put_be32(4, qp.posted.into());
    }

    pub fn ring_for(&self, qp: &Qp, bytes: &[u8], copies: bool) {
        for (at, chunk) in bytes.chunks(8).enumerate().skip(1) {
            if copies {
                let value = u64::from_be_bytes(chunk.try_into().unwrap());
                self.ring(qp.register + at as u64 * 8, value, false);
            }
        }
        let value = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        self.ring(qp.register, value, true);
    }

    /// Stores to a doorbell page, and waits until the card has seen it if the next store may be to
    /// the same place.
    pub fn ring(&self, register: u64, value: u64, waits: bool) {
        // SAFETY: the card mapped the page.
        let register = unsafe { AtomicU64::from_ptr(register as *mut u64) };
        register.store(value.to_be(), Ordering::SeqCst);
        let end = Instant::now() + PATIENCE;
        while waits && register.load(Ordering::SeqCst) != 0 {
            assert!(Instant::now() < end, "the card does not look");
            std::thread::yield_now();
        }
    }

    pub fn post_receive(&self, qp: &mut Qp, segments: &[(u32, u32, u64)]) {
        let place = usize::from(qp.received % RECEIVES) << RECEIVE_SHIFT;
        qp.area.put(place, &receive(segments, 2));
        qp.received = qp.received.wrapping_add(1);
        qp.record.put_be32(0, qp.received.into());
    }

    /// The first violation, which must come soon.
    pub fn violation(&self) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(text) = self.card.violations().first() {
                return text.clone();
            }
            assert!(Instant::now() < end, "the card does not complain");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn assert_clean(&self) {
        assert_eq!(self.card.violations(), [""; 0]);
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes of a receive with room for so many segments.
pub fn receive(segments: &[(u32, u32, u64)], room: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (length, key, address) in segments {
        bytes.extend(data_segment(*length, *key, *address));
    }
    if segments.len() < room {
        bytes.extend(data_segment(0, 0x100, 0));
    }
    bytes
}

pub fn data_segment(length: u32, key: u32, address: u64) -> Vec<u8> {
    let segment = mlx5::DataSeg {
        byte_count: length.into(),
        lkey: key.into(),
        addr: address.into(),
    };
    segment.as_bytes().to_vec()
}

impl Srq {
    /// The next request is the one behind the last, which is true while none was put back.
    pub fn post(&mut self, segments: &[(u32, u32, u64)]) {
        let place = usize::from(self.posted % 4) * 32 + 16;
        self.area.put(place, &receive(segments, 1));
        self.posted += 1;
        self.record.put_be32(0, self.posted.into());
    }
}

impl Cq {
    /// The next completion, if it comes soon.
    pub fn poll(&mut self) -> Cqe64 {
        self.try_poll(PATIENCE).expect("a completion comes")
    }

    pub fn try_poll(&mut self, patience: Duration) -> Option<Cqe64> {
        let at = (self.next % self.entries * self.size) as usize;
        let last = at + self.size as usize - 1;
        let end = Instant::now() + patience;
        let lap = u8::from(self.next & self.entries != 0);
        loop {
            let owner = self.area.byte(last).load(Ordering::Acquire);
            if owner >> 4 != CqeOpcode::INVALID.0 && owner & 1 == lap {
                break;
            }
            if Instant::now() >= end {
                return None;
            }
            std::thread::yield_now();
        }
        let bytes = self.area.get(last - 63, 64);
        self.next += 1;
        self.record.put_be32(0, self.next & 0xff_ffff);
        Some(Cqe64::read_from_bytes(&bytes).unwrap())
    }

    /// The next completion, of a failure.
    pub fn poll_error(&mut self) -> ErrCqe {
        let entry = self.poll();
        let error = ErrCqe::read_from_bytes(entry.as_bytes()).unwrap();
        let kind = CqeOpcode(error.op_own >> 4);
        let is_error = [CqeOpcode::REQ_ERR, CqeOpcode::RESP_ERR].contains(&kind);
        assert!(is_error, "{entry:?}");
        error
    }

    /// Whether an event is there, which is read.
    pub fn take_event(&mut self, patience: Duration) -> bool {
        let fd = self.channel.as_raw_fd();
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one record.
        let ready = unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as i32) };
        if ready == 0 {
            return false;
        }
        let mut name = 0u64;
        // SAFETY: room for eight bytes.
        let read = unsafe { libc::read(fd, (&raw mut name).cast(), 8) };
        assert_eq!((read, name), (8, 0xc0de));
        self.serial = (self.serial + 1) & 3;
        true
    }
}

/// A request under construction.
#[derive(Clone)]
pub struct Request {
    pub opcode: u8,
    pub flags: u8,
    pub word: u32,
    pub body: Vec<u8>,
    pub change: fn(&mut Vec<u8>),
}

pub const SIGNALED: u8 = 8;
pub const SOLICITED: u8 = 2;

impl Request {
    pub fn new(opcode: mlx5::Opcode) -> Self {
        Self {
            opcode: opcode.0,
            flags: SIGNALED,
            word: 0,
            body: Vec::new(),
            change: |_| {},
        }
    }

    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    pub fn word(mut self, word: u32) -> Self {
        self.word = word;
        self
    }

    pub fn remote(mut self, address: u64, key: u32) -> Self {
        let segment = mlx5::RaddrSeg {
            raddr: address.into(),
            rkey: key.into(),
            reserved: 0.into(),
        };
        self.body.extend(segment.as_bytes());
        self
    }

    pub fn data(mut self, length: u32, key: u32, address: u64) -> Self {
        self.body.extend(data_segment(length, key, address));
        self
    }

    pub fn inline(mut self, bytes: &[u8]) -> Self {
        self.body
            .extend((bytes.len() as u32 | mlx5::INLINE_SEG).to_be_bytes());
        self.body.extend(bytes);
        self.body.resize(self.body.len().next_multiple_of(16), 0);
        self
    }

    pub fn segment<T: IntoBytes + Immutable>(mut self, segment: &T) -> Self {
        self.body.extend(segment.as_bytes());
        self
    }

    /// The bytes as they will be in the queue, changed at last.
    pub fn change(mut self, change: fn(&mut Vec<u8>)) -> Self {
        self.change = change;
        self
    }

    pub fn bytes(self, qp: &Qp) -> Vec<u8> {
        let length = (16 + self.body.len()) as u32 / 16;
        let mut bytes = Vec::new();
        bytes.extend((u32::from(qp.posted) << 8 | u32::from(self.opcode)).to_be_bytes());
        bytes.extend((qp.number << 8 | length).to_be_bytes());
        bytes.extend([0, 0, 0, self.flags]);
        bytes.extend(self.word.to_be_bytes());
        bytes.extend(self.body);
        (self.change)(&mut bytes);
        bytes
    }
}
