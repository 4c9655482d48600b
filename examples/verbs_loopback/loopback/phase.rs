//! The queue pairs of one service, from their making to their end.

use rdmacm::{
    Access, AtomicCapability, Context, Cq, Driver, ErrorKind, GRH_LENGTH, MwType, Pd, QpAttr,
    QpType, Srq, SrqAttr, Transport,
};

use super::meeting::{Create, Meeting, meet};
use super::memory::LENGTH;
use super::plan::{Abilities, Planner};
use super::random::Random;
use super::report::Report;
use super::round::Books;
use super::side::Side;
use super::way::Way;
use super::{Options, Result, name};

/// Windows of each side, where the device has them.
const WINDOWS: [MwType; 3] = [MwType::One, MwType::Two, MwType::Two];

/// Two queue pairs that are connected to each other, and what they work with.
pub struct Phase<'r> {
    /// What the connection manager has of them, where it has connected them.
    pub meeting: Option<Meeting>,
    pub pd: Pd,
    pub sides: [Side; 2],
    pub srq: Option<Srq>,
    pub cqs: Vec<Cq>,
    pub planner: Planner,
    /// Numbers for what is no part of the plan. How often they are asked for may depend on the time.
    pub chance: Random,
    pub books: Books,
    pub report: &'r mut Report,
    pub service: &'static str,
    pub way: Way,
    pub access: Access,
    pub events: bool,
    /// Entries that each completion queue needs, and whether it can get others.
    pub entries: u32,
    pub can_resize: bool,
}

impl<'r> Phase<'r> {
    pub fn new(
        context: &Context,
        options: &Options,
        service: QpType,
        mut random: Random,
        report: &'r mut Report,
    ) -> Result<Self> {
        let way = Way::find(context, options.port, options.gid_index)?;
        let device = context.attr()?;
        let pd = context.alloc_pd()?;
        let depth = options.depth.max(2);
        // All that both queue pairs can have outstanding, for they may share one.
        let entries = 4 * depth + 8;
        let count = random.pick(&[1, 2, 4]);
        let cqs: Vec<Cq> = (0..count)
            .map(|_| make_cq(context, entries, options.events))
            .collect::<Result<_>>()?;
        let segments = random.pick(&[2, 3, 4]).min(device.max_sge());
        let shared = SrqAttr {
            max_wr: 2 * depth,
            max_sge: segments.min(device.max_srq_sge()),
        };
        let srq = match options.srq {
            true => Some(pd.create_srq(&shared)?),
            false => None,
        };
        let inline = random.pick(&[0, 28, 60, 76]);
        let access = access(context, service)?;
        let make_side = |index: usize, create: Create<'_>| -> Result<Side> {
            let queues = [(2 * index) % count, (2 * index + 1) % count];
            let queues = match count {
                2 => [index, index],
                _ => queues,
            };
            let mut attr = QpAttr::new(&pd)
                .qp_type(service)
                .send_cq(&cqs[queues[0]])
                .recv_cq(&cqs[queues[1]])
                .max_send_wr(depth)
                .max_recv_wr(depth)
                .max_send_sge(segments)
                .max_recv_sge(segments)
                .max_inline_data(inline);
            if let Some(srq) = &srq {
                attr = attr.srq(srq);
            }
            Ok(Side {
                qp: create(&attr)?,
                buffer: pd.alloc(LENGTH, access | Access::LOCAL_WRITE)?,
                windows: Vec::new(),
                handle: None,
                queues,
            })
        };
        let is_iwarp = context.device().transport() == Transport::Iwarp;
        let (meeting, sides) = if is_iwarp {
            let (meeting, sides) = meet(context, make_side)?;
            (Some(meeting), sides)
        } else {
            let create = |attr: &QpAttr<'_>| pd.create_qp(attr);
            (None, [make_side(0, &create)?, make_side(1, &create)?])
        };
        let granted = sides[0].qp.capabilities();
        let abilities = Abilities {
            inline: granted.max_inline_data as usize,
            send_segments: segments as usize,
            read_segments: match is_iwarp {
                true => 1,
                false => segments.min(device.max_sge_rd().max(1)) as usize,
            },
            receive_segments: match options.srq {
                true => shared.max_sge as usize,
                false => segments as usize,
            },
            mtu: way.mtu.bytes() as usize,
            depth: depth as usize,
            shares_receives: options.srq,
            ..abilities(context, service)?
        };
        let chance = Random::new(random.next());
        let mut phase = Self {
            planner: Planner::new(random, abilities),
            meeting,
            pd,
            sides,
            srq,
            cqs,
            chance,
            books: Books::default(),
            report,
            service: name(service),
            way,
            access,
            events: options.events,
            entries,
            can_resize: true,
        };
        phase.make_windows()?;
        for (side, end) in phase.sides.iter_mut().enumerate() {
            end.buffer.write(0, phase.planner.memory.of(side))?;
        }
        if phase.meeting.is_none() {
            phase.bring_up()?;
            return Ok(phase);
        }
        // On iWARP the side that connects speaks first.
        let hello = phase.planner.hello();
        phase.carry_out(hello)?;
        Ok(phase)
    }

    /// Runs rounds until there were so many operations. A connection is reset now and then, mostly
    /// after a mishap.
    pub fn run(&mut self, operations: usize) -> Result<()> {
        let mut left = operations;
        let mut rounds = 0;
        let mut until_mishap = self.rounds_until_mishap();
        while left > 0 {
            rounds += 1;
            let at = |error| format!("round {rounds}: {error}");
            let done = self.round(left).map_err(at)?;
            left = left.saturating_sub(done);
            until_mishap -= 1;
            if until_mishap == 0 || left == 0 {
                self.mishap().map_err(at)?;
                until_mishap = self.rounds_until_mishap();
            }
            self.resize_some_queue().map_err(at)?;
        }
        // Once more, behind the last mishap.
        self.round(1)?;
        Ok(())
    }

    fn rounds_until_mishap(&mut self) -> usize {
        1 + self.planner.random.below(60)
    }

    /// Makes the windows anew, all of them closed.
    pub fn make_windows(&mut self) -> Result<()> {
        let types = self.planner.abilities.windows.clone();
        for (side, end) in self.sides.iter_mut().enumerate() {
            end.windows.clear();
            for mw_type in &types {
                end.windows.push(self.pd.alloc_mw(*mw_type)?);
            }
            self.planner.windows[side] = vec![None; types.len()];
        }
        Ok(())
    }

    /// Connects the queue pairs, which are new or reset, to each other.
    pub fn bring_up(&mut self) -> Result<()> {
        // Sometimes the numbers of packets begin again soon.
        let mut psn = || match self.planner.random.once_in(3) {
            true => 0xff_ffff - self.planner.random.below(100) as u32,
            false => self.planner.random.next() as u32 & 0xff_ffff,
        };
        let psns = [psn(), psn()];
        for side in 0..2 {
            let peer = self.sides[1 - side].qp.number();
            let own = &self.sides[side].qp;
            let order = [psns[1 - side], psns[side]];
            let access = self.access;
            self.way.bring_up(own, peer, order, access)?;
            if own.qp_type() == QpType::Ud && self.sides[side].handle.is_none() {
                self.sides[side].handle = Some(self.pd.address_handle(&self.way.path)?);
            }
        }
        Ok(())
    }

    /// Gives a completion queue another depth, where the device can.
    fn resize_some_queue(&mut self) -> Result<()> {
        if !self.can_resize || !self.planner.random.once_in(16) {
            return Ok(());
        }
        let queue = self.planner.random.below(self.cqs.len());
        let entries = self.entries + self.planner.random.below(64) as u32;
        match self.cqs[queue].resize(entries) {
            Err(error) if error.kind() == ErrorKind::NotSupported => {
                self.can_resize = false;
                let note = "completion queues keep their depth".to_owned();
                if !self.report.notes.contains(&note) {
                    self.report.notes.push(note);
                }
                Ok(())
            }
            resized => Ok(resized?),
        }
    }
}

fn make_cq(context: &Context, entries: u32, events: bool) -> Result<Cq> {
    let builder = context.completion_queue(entries);
    Ok(match events {
        true => builder.channel(&context.completion_channel()?).build()?,
        false => builder.build()?,
    })
}

/// What the peer may do.
fn access(context: &Context, service: QpType) -> Result<Access> {
    let abilities = abilities(context, service)?;
    let mut access = match service {
        QpType::Rc => Access::REMOTE_WRITE | Access::REMOTE_READ,
        QpType::Uc => Access::REMOTE_WRITE,
        _ => return Ok(Access::empty()),
    };
    access.set(Access::REMOTE_ATOMIC, abilities.has_atomics);
    access.set(Access::FLUSH_GLOBAL, abilities.has_flush);
    access.set(Access::MW_BIND, !abilities.windows.is_empty());
    Ok(access)
}

/// What the device and the service have, without sizes.
fn abilities(context: &Context, service: QpType) -> Result<Abilities> {
    let device = context.attr()?;
    let is_iwarp = context.device().transport() == Transport::Iwarp;
    let is_rc = service == QpType::Rc;
    let is_ib_rc = is_rc && !is_iwarp;
    let has_window = |mw_type: &MwType| match mw_type {
        MwType::One => service != QpType::Ud && !is_iwarp && device.has_windows_of_type_1(),
        // Only a reliable connection can close one.
        MwType::Two => is_ib_rc && device.has_windows_of_type_2(),
    };
    Ok(Abilities {
        service,
        has_immediate: !is_iwarp,
        has_atomics: is_ib_rc && device.atomic_capability() != AtomicCapability::None,
        has_atomic_write: is_ib_rc && device.has_atomic_write(),
        has_flush: is_ib_rc && device.has_flush_global(),
        has_fence: is_ib_rc,
        has_fenced_reads: is_ib_rc,
        completes_in_order: !is_iwarp,
        // Not on siw of Linux 6.12: see `is_short_and_crosses`. Nor does it get over reads of no bytes
        // among others, and now and then over fences: two runs of 20 stood still with requests of both
        // sides outstanding. What waits at a fence keeps siw from answering the peer's reads, so both
        // sides seem to wait for each other.
        crosses_pages: !is_iwarp,
        least_read: usize::from(is_iwarp),
        windows: WINDOWS.iter().copied().filter(has_window).collect(),
        // Of rxe, whose peer writes to memory before it answers; in general a completion says that
        // the peer has it, and not yet that its processors see it. Each datagram tells.
        tells_arrival: service == QpType::Ud || is_rc && context.device().driver() == Driver::Rxe,
        shares_receives: false,
        header: match service {
            QpType::Ud => GRH_LENGTH,
            _ => 0,
        },
        inline: 0,
        send_segments: 1,
        read_segments: 1,
        receive_segments: 1,
        mtu: 0,
        depth: 0,
    })
}
