//! Delivering datagrams.

use std::net::Ipv6Addr;

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, QpState, QpType, WcOpcode, WcStatus};

use super::World;
use super::objects::{ObjectId, Qp};
use super::work::{Request, Verdict};

impl World {
    /// Delivers a datagram to whoever can take it; it is sent in any case.
    pub(super) fn send_datagram(&mut self, id: ObjectId, request: &Request) -> Verdict {
        let Some(bytes) = self.gather(id, request) else {
            return Verdict::Failed(WcStatus::LOC_PROT_ERR);
        };
        let pd = self.objects.qp(id).ok().and_then(|qp| qp.pd);
        let handle = self.objects.ah_of_number(request.datagram.ah_num);
        let Some(attr) = handle.filter(|ah| Some(ah.pd) == pd).map(|ah| ah.attr) else {
            self.violation("a datagram names an address handle that is not there");
            return Verdict::Failed(WcStatus::LOC_QP_OP_ERR);
        };
        let length = bytes.len() as u32;
        let from = self.device_of(id.0).map(|device| device.gids());
        let from = from.unwrap_or_default();
        let from = from.get(usize::from(attr.grh.sgid_index));
        let grh = header(
            &attr,
            from.map_or([0; 16], |own| zerocopy::transmute!(own.gid)),
        );
        let message = [grh.as_slice(), &bytes].concat();
        for receiver in self.receivers(&request.datagram, &attr) {
            let Some(receive) = self.take_receive(receiver) else {
                continue;
            };
            if self.scatter(receiver, &receive.segments, &message) {
                let opcode = WcOpcode::RECV;
                self.finish_receive(receiver, request, receive.wr_id, opcode, length + 40);
            } else {
                self.finish_failed_receive(receiver, receive.wr_id, WcStatus::LOC_LEN_ERR);
            }
        }
        Verdict::Done(length)
    }

    /// The queue pairs that take a datagram: the one that is named, or those in its group.
    fn receivers(&self, to: &rxe::SendWrUd, attr: &uverbs::AhAttr) -> Vec<ObjectId> {
        let takes = |qp: &Qp| {
            let is_named = match to.remote_qpn {
                MULTICAST_QP => qp.groups.iter().any(|(gid, _)| *gid == attr.grh.dgid),
                number => qp.number == number,
            };
            let receives = [QpState::RTR, QpState::RTS].contains(&qp.state);
            is_named && receives && qp.kind == QpType::UD && qp.attr.qkey == to.remote_qkey
        };
        let qps = self.objects.qps();
        qps.filter(|(_, qp)| takes(qp)).map(|(id, _)| id).collect()
    }
}

/// The number that all queue pairs of a multicast group have besides their own.
const MULTICAST_QP: u32 = 0xff_ffff;

/// What the packets of RoCE v2 go over.
const UDP: u8 = 17;

/// What rxe puts in front of a datagram: the IPv6 header, or an IPv4 one behind nothing.
fn header(attr: &uverbs::AhAttr, from: [u8; 16]) -> [u8; 40] {
    let to = attr.grh.dgid;
    let mut header = [0; 40];
    if Ipv6Addr::from(to).to_ipv4_mapped().is_some() {
        header[20..22].copy_from_slice(&[0x45, attr.grh.traffic_class]);
        header[29] = UDP;
        header[32..36].copy_from_slice(&from[12..]);
        header[36..].copy_from_slice(&to[12..]);
    } else {
        let class = u32::from(attr.grh.traffic_class) << 20;
        let first = 6 << 28 | class | attr.grh.flow_label;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[6] = UDP;
        header[8..24].copy_from_slice(&from);
        header[24..].copy_from_slice(&to);
    }
    header
}
