//! One object of each kind, none of which belongs to an id, and all that can be asked of them.

use std::net::{IpAddr, SocketAddr};

use rdmacm::{
    Access, AddressHandle, AsyncEvents, Buffer, Completion, CompletionChannel, Context, Cq,
    Destination, Gid, Mr, Mw, MwType, Path, Pd, Qp, QpAttr, QpModify, QpState, QpType, Result, Srq,
    SrqAttr,
};

use super::{QKEY, connect, next_success, path_of};
use crate::pair::{QUIET, assert_holds, pattern};

/// Everything that a program can make of a device without the connection manager.
pub struct OneOfEach {
    pub context: Context,
    pub events: AsyncEvents,
    pub pd: Pd,
    path: Path,
    pub buffer: Buffer,
    pub region: Mr,
    pub window: Mw,
    pub channel: CompletionChannel,
    pub cq: Cq,
    pub srq: Srq,
    /// Connected with `far`, which takes its receives from the shared queue.
    pub near: Qp,
    pub far: Qp,
    pub datagrams: Qp,
    pub handle: AddressHandle,
    /// What `region` is registered on: bytes of the heap.
    heap: Box<[u8]>,
}

const LENGTH: usize = 512;
/// What the datagrams are received into, with room for the header.
const DATAGRAMS: std::ops::Range<usize> = 128..256;
/// Of the far queue pair.
const INBOX: std::ops::Range<usize> = 256..320;

impl OneOfEach {
    /// On the device that has this address.
    pub fn new(context: &Context, address: IpAddr) -> Result<Self> {
        let events = context.async_events()?;
        let pd = context.alloc_pd()?;
        let path = path_of(context, address)?;
        let channel = context.completion_channel()?;
        let cq = context.completion_queue(64).channel(&channel).build()?;
        let srq = pd.create_srq(&SrqAttr::default())?;
        let attr = QpAttr::new(&pd)
            .send_cq(&cq)
            .recv_cq(&cq)
            .max_inline_data(64);
        let near = pd.create_qp(&attr)?;
        let far = pd.create_qp(&attr.clone().srq(&srq))?;
        connect(&near, &far, path)?;
        connect(&far, &near, path)?;
        let datagrams = pd.create_qp(&attr.qp_type(QpType::Ud))?;
        let init = QpModify::to(QpState::Init).port(path.port);
        datagrams.modify(&init.pkey_index(0).qkey(QKEY))?;
        datagrams.modify(&QpModify::to(QpState::Rtr))?;
        datagrams.modify(&QpModify::to(QpState::Rts).send_psn(0))?;
        let heap = vec![7; LENGTH].into_boxed_slice();
        // SAFETY: the bytes are there for as long as the region, and nothing is posted with it.
        let region =
            unsafe { pd.register_raw(heap.as_ptr().cast_mut(), LENGTH, Access::LOCAL_WRITE)? };
        Ok(Self {
            buffer: pd.alloc(LENGTH, Access::LOCAL_WRITE)?,
            window: pd.alloc_mw(MwType::Two)?,
            handle: pd.address_handle(&path)?,
            context: context.clone(),
            events,
            pd,
            path,
            region,
            channel,
            cq,
            srq,
            near,
            far,
            datagrams,
            heap,
        })
    }

    /// Sends a message and a datagram, and waits for both.
    pub fn exercise(&mut self, seed: u64) -> Result<()> {
        self.send_message(seed)?;
        self.send_datagram()
    }

    fn send_message(&mut self, seed: u64) -> Result<()> {
        let message = pattern(seed, INBOX.len());
        self.buffer.write(0, &message)?;
        self.buffer.write(INBOX.start, &[0; 64])?;
        self.srq.post(1, &[self.buffer.slice(INBOX)?])?;
        let segment = self.buffer.slice(..message.len())?;
        let mut batch = self.near.send_half().batch();
        batch.send(2).signaled().from(&[segment])?;
        batch.submit()?;
        self.await_all(&[1, 2])?;
        assert_holds(&self.buffer, INBOX.start, &message);
        Ok(())
    }

    /// Sends a datagram and waits for it.
    pub fn send_datagram(&mut self) -> Result<()> {
        self.post_to_itself()?;
        self.await_all(&Self::TO_ITSELF)
    }

    /// The numbers of what [`OneOfEach::post_to_itself`] posts.
    pub const TO_ITSELF: [u64; 2] = [3, 4];

    /// Sends a datagram, and posts the receive for it.
    pub fn post_to_itself(&mut self) -> Result<()> {
        let segment = self.buffer.slice(DATAGRAMS)?;
        let [receive, request] = Self::TO_ITSELF;
        self.datagrams.recv_half().post(receive, &[segment])?;
        self.post_datagram(request)
    }

    /// Waits for completions of success with these numbers, and no others.
    pub fn await_all(&mut self, wr_ids: &[u64]) -> Result<()> {
        let mut found = Vec::new();
        for _ in wr_ids {
            found.push(next_success(&mut self.cq)?.wr_id());
        }
        found.sort_unstable();
        assert_eq!(found, wr_ids);
        Ok(())
    }

    fn post_datagram(&mut self, wr_id: u64) -> Result<()> {
        let qp_num = self.datagrams.number();
        let mut batch = self.datagrams.send_half().batch();
        let to = Destination {
            handle: &self.handle,
            qp_num,
            qkey: QKEY,
        };
        batch
            .send_datagram(wr_id, to)
            .signaled()
            .inline(b"datagram")?;
        Ok(batch.submit()?)
    }

    /// What every call answers that leaves the objects as they are.
    pub fn ask(&mut self) -> Vec<(&'static str, Result<()>)> {
        CALLS
            .iter()
            .map(|(name, call)| (*name, call(self)))
            .collect()
    }

    /// Destroys each, in an order in which none is in use any more.
    pub fn destroy(self) -> Vec<(&'static str, Result<()>)> {
        vec![
            ("destroy near", self.near.destroy().map(drop)),
            ("destroy far", self.far.destroy().map(drop)),
            ("destroy datagrams", self.datagrams.destroy().map(drop)),
            ("destroy handle", self.handle.destroy()),
            ("destroy srq", self.srq.destroy()),
            ("destroy cq", self.cq.destroy()),
            ("dealloc window", self.window.dealloc()),
            ("deregister", self.region.deregister()),
            ("dealloc pd", {
                drop(self.buffer);
                self.pd.dealloc()
            }),
        ]
    }

    /// Touches every byte of the heap that is registered, and of memory that is made now.
    pub fn use_heap(&mut self) {
        for byte in &mut self.heap {
            *byte = byte.wrapping_add(1);
        }
        let more: Vec<Vec<u8>> = (1..200).map(|size| vec![size as u8; 100 * size]).collect();
        for (size, bytes) in (1..).zip(&more) {
            assert_eq!(bytes.last(), Some(&(size as u8)));
        }
    }
}

/// A call and its name.
type Call = (&'static str, fn(&mut OneOfEach) -> Result<()>);

const CALLS: &[Call] = &[
    ("alloc_pd", |all| all.context.alloc_pd().map(drop)),
    ("async_events", |all| all.context.async_events().map(drop)),
    ("completion_channel", |all| {
        all.context.completion_channel().map(drop)
    }),
    ("completion_queue", |all| {
        all.context.completion_queue(1).build().map(drop)
    }),
    ("port", |all| all.context.port(1).map(drop)),
    ("gids", |all| all.context.gids().map(drop)),
    ("alloc", |all| {
        all.pd.alloc(1, Access::LOCAL_WRITE).map(drop)
    }),
    ("register_raw", |all| {
        let start = all.heap.as_mut_ptr();
        // SAFETY: the region is given back at once.
        unsafe { all.pd.register_raw(start, 1, Access::LOCAL_WRITE) }.map(drop)
    }),
    ("alloc_mw", |all| all.pd.alloc_mw(MwType::Two).map(drop)),
    ("create_srq", |all| {
        all.pd.create_srq(&SrqAttr::default()).map(drop)
    }),
    ("create_qp", |all| {
        let attr = QpAttr::new(&all.pd).send_cq(&all.cq).recv_cq(&all.cq);
        all.pd.create_qp(&attr).map(drop)
    }),
    ("address_handle", |all| {
        all.pd.address_handle(&all.path).map(drop)
    }),
    ("query_state", |all| all.near.query_state().map(drop)),
    ("query", |all| all.near.query().map(drop)),
    ("modify", |all| {
        all.near
            .modify(&QpModify::to(QpState::Rts).min_rnr_timer(1))
    }),
    ("attach_multicast", |all| {
        all.datagrams.attach_multicast(group(), 0)
    }),
    ("query_srq", |all| all.srq.query().map(drop)),
    ("arm_limit", |all| all.srq.arm_limit(0)),
    ("arm", |all| all.cq.arm(false)),
    ("wait", |all| {
        let mut entry = [Completion::default()];
        all.cq.wait(&mut entry, Some(QUIET)).map(drop)
    }),
    ("send", |all| {
        let mut batch = all.near.send_half().batch();
        batch.send(66).inline(b"")?;
        Ok(batch.submit()?)
    }),
    ("datagram", |all| all.post_datagram(66)),
    ("recv", |all| Ok(all.near.recv_half().post(66, &[])?)),
    ("srq_recv", |all| Ok(all.srq.post(66, &[])?)),
    ("next_cq_event", |all| {
        all.channel.next_event(Some(QUIET)).map(drop)
    }),
    ("try_next_cq_event", |all| {
        all.channel.try_next_event().map(drop)
    }),
    ("next_async_event", |all| {
        all.events.next_event(Some(QUIET)).map(drop)
    }),
    ("try_next_async_event", |all| {
        all.events.try_next_event().map(drop)
    }),
];

fn group() -> Gid {
    let group = SocketAddr::from(([239, 1, 2, 3], 0));
    match group.ip() {
        IpAddr::V4(ip) => Gid(ip.to_ipv6_mapped().octets()),
        IpAddr::V6(ip) => Gid(ip.octets()),
    }
}
