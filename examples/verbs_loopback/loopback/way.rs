//! The port, the way from it to itself, and the states of a queue pair.

use rdmacm::{
    Access, Context, Gid, GidType, LinkLayer, Mtu, Path, PortState, Qp, QpModify, QpState, QpType,
    Transport,
};

use super::Result;

/// The queue key of the datagrams.
pub const QUEUE_KEY: u32 = 0x1234_5678;

/// Reads and atomics under way at a time, and answered at a time.
const READS: u8 = 4;

/// How long an acknowledgement may take before the requests are sent again: 4.096 µs * 2^18, a second.
/// Here nothing is lost, so what is sent again was only slow, and rxe does not get over that where
/// there are fences: a read or atomic keeps its place among those under way, and what is fenced,
/// itself even, waits until all places are free. The queue stands still then, without an error.
const ACK_TIMEOUT: u8 = 18;

/// A port and the way from it to itself.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub path: Path,
    pub mtu: Mtu,
    reads: u8,
}

impl Way {
    pub fn find(context: &Context, port: u8, gid_index: Option<u32>) -> Result<Self> {
        let name = context.device().name().to_owned();
        let attr = context.port(port)?;
        if attr.state != PortState::Active {
            return Err(format!("port {port} of {name} is not active: {:?}", attr.state).into());
        }
        let is_iwarp = context.device().transport() == Transport::Iwarp;
        let needs_gid = attr.link_layer == LinkLayer::Ethernet && !is_iwarp;
        let (gid, index) = match needs_gid || gid_index.is_some() {
            true => own_gid(context, port, gid_index)?,
            // By the LID alone.
            false => (Gid([0; 16]), 0),
        };
        let device = context.attr()?;
        let reads = device.max_responder_resources().min(READS);
        Ok(Self {
            path: Path {
                gid,
                source_gid_index: u8::try_from(index)?,
                port,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                service_level: 0,
                lid: attr.lid,
            },
            mtu: attr.active_mtu,
            reads: reads.min(device.max_initiator_depth()),
        })
    }

    /// Takes a queue pair that is new or reset to where it sends. The two numbers are those of the
    /// first packets, of the peer and of its own.
    pub fn bring_up(&self, qp: &Qp, peer: u32, psns: [u32; 2], access: Access) -> Result<()> {
        let init = QpModify::to(QpState::Init)
            .port(self.path.port)
            .pkey_index(0);
        if qp.qp_type() == QpType::Ud {
            qp.modify(&init.qkey(QUEUE_KEY))?;
            qp.modify(&QpModify::to(QpState::Rtr))?;
            return Ok(qp.modify(&QpModify::to(QpState::Rts).send_psn(psns[1]))?);
        }
        let mut receiving = QpModify::to(QpState::Rtr)
            .path(self.path)
            .path_mtu(self.mtu)
            .remote_qp_num(peer)
            .receive_psn(psns[0]);
        let mut sending = QpModify::to(QpState::Rts).send_psn(psns[1]);
        if qp.qp_type() == QpType::Rc {
            receiving = receiving.responder_resources(self.reads).min_rnr_timer(12);
            sending = sending
                .initiator_depth(self.reads)
                .timeout(ACK_TIMEOUT)
                .retry_count(6)
                .rnr_retry_count(6);
        }
        qp.modify(&init.access(access))?;
        qp.modify(&receiving)?;
        Ok(qp.modify(&sending)?)
    }
}

/// The GID of an index, or the one that leads furthest.
fn own_gid(context: &Context, port: u8, index: Option<u32>) -> Result<(Gid, u32)> {
    let gids = context.gids()?;
    let mut own: Vec<_> = gids.iter().filter(|entry| entry.port == port).collect();
    // First RoCE v2 with IPv4, then RoCE v2, then any.
    own.sort_by_key(|entry| {
        let is_v2 = entry.kind == GidType::RoceV2;
        (!is_v2, !(is_v2 && entry.gid.to_ip().is_ipv4()), entry.index)
    });
    let found = own
        .iter()
        .find(|entry| index.is_none_or(|index| entry.index == index));
    found.map(|entry| (entry.gid, entry.index)).ok_or_else(|| {
        let used: Vec<String> = own
            .iter()
            .map(|entry| format!("{} ({})", entry.index, entry.gid))
            .collect();
        match index {
            Some(index) => format!(
                "port {port} has no GID of the index {index}; it has {}",
                used.join(", ")
            ),
            None => format!("port {port} has no GID: is its network interface up?"),
        }
        .into()
    })
}
