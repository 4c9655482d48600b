//! Queues: how they are made, connected, and read.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rdmacm_kernel_abi::mlx5::{self, Cqe64, CqeOpcode, ErrCqe};
use rdmacm_kernel_abi::uverbs::{self, Command, QpAttrMask as A, QpType};
use zerocopy::{FromBytes, IntoBytes};

use super::{Area, BLOCKS, PATIENCE, Program, RECEIVE_SHIFT, RECEIVES, SEND_START, receive};

pub struct Cq {
    pub handle: u32,
    pub number: u32,
    pub entries: u32,
    pub size: u32,
    pub area: Area,
    pub record: Area,
    pub next: u32,
    pub channel: OwnedFd,
    pub serial: u32,
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

impl Program {
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
