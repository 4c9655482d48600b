//! A program that works the card by hand: it sends commands as bytes and writes requests itself.

#![allow(dead_code, unused_imports, reason = "not every test needs all of it")]

mod area;
mod queues;
mod request;

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdmacm_kernel_abi::mlx5;
use rdmacm_kernel_abi::uverbs::{self, CmdHeader, Command, ioctl};
use rdmacm_mlx5_device::{Card, Config, File};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use area::Area;
pub use queues::{Cq, Qp};
pub use request::{Request, SIGNALED, SOLICITED, data_segment, receive};

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

    /// A descriptor for asynchronous events.
    pub fn async_events(&self) -> OwnedFd {
        use ioctl::async_event::alloc::FD_HANDLE;
        let made = self.method(
            ioctl::object::ASYNC_EVENT,
            ioctl::async_event::ALLOC,
            [(FD_HANDLE, Arg::Word(0))],
        );
        // SAFETY: it was made just now for us.
        unsafe { OwnedFd::from_raw_fd(made.unwrap()[0] as i32) }
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

/// The next asynchronous event, if it comes soon.
pub fn async_event(fd: &OwnedFd, patience: Duration) -> Option<uverbs::AsyncEventDesc> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one record.
    let ready = unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as i32) };
    let mut event = uverbs::AsyncEventDesc::default();
    if ready == 0 {
        return None;
    }
    let room = event.as_mut_bytes();
    // SAFETY: room for so many bytes.
    let read = unsafe { libc::read(fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
    assert_eq!(read, 16);
    Some(event)
}
