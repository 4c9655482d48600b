//! Datagrams: to whom, and what the receiver finds before the data.

use rdmacm_kernel_abi::mlx5::{self, CqeSyndrome, CtrlFlags, DatagramSeg, Opcode, WqeAv};
use rdmacm_kernel_abi::uverbs::{GidType, QpState, QpType};

use super::receive::{Message, Way};
use super::request::{Request, pieces, segment};
use super::send::Ending;
use crate::kernel::{LID, is_multicast, mac_of};
use crate::world::World;

/// Bytes before the data of a datagram.
const HEADER: usize = 40;
/// The number of all queue pairs that are in a group.
const ALL: u32 = 0xff_ffff;
/// The longest datagram.
const LONGEST: usize = 4096;
/// Bit of a queue key that stands for the sender's own.
const OWN_KEY: u32 = 1 << 31;

impl World {
    pub(super) fn send_datagram(
        &mut self,
        number: u32,
        request: &Request,
    ) -> Result<Ending, String> {
        let (DatagramSeg { av }, rest) = segment::<DatagramSeg>(&request.body)?;
        self.check_av(&av)?;
        let qp = &self.qps[&number];
        let bytes = match self.gather(qp.pd, &pieces(rest)?) {
            Ok(bytes) if bytes.len() > LONGEST => return Ok(CqeSyndrome::LOCAL_LENGTH_ERR.into()),
            Ok(bytes) => bytes,
            Err(syndrome) => return Ok(syndrome.into()),
        };
        let queue_key = match av.qkey.get() {
            key if key & OWN_KEY != 0 => qp.attr.qkey,
            key => key,
        };
        let (mut message, has_route) = (self.header(&av, bytes.len())?, self.has_route(&av));
        message.extend(&bytes);
        for peer in self.receivers(number, &av, queue_key) {
            let message = Message {
                from: number,
                is_solicited: request.flags.contains(CtrlFlags::SOLICITED),
                way: match request.opcode {
                    Opcode::SEND_IMM => Way::SendImmediate(request.word),
                    _ => Way::Send,
                },
                bytes: message.clone(),
                has_route,
            };
            // Whether it arrives the sender does not hear.
            self.receive(peer, message);
        }
        Ok(Ending::DONE)
    }

    fn has_route(&self, av: &WqeAv) -> bool {
        !self.config.is_infiniband || av.grh_gid_fl.get() & 1 << 30 != 0
    }

    fn check_av(&self, av: &WqeAv) -> Result<(), String> {
        if av.dqp_dct.get() & mlx5::EXTENDED_UD_AV == 0 {
            return Err(format!("an address of the short form: {av:x?}"));
        }
        if av.reserved.get() != 0 || av.reserved0 != [0; 4] {
            return Err(format!("reserved bits in an address: {av:x?}"));
        }
        if self.config.is_infiniband {
            return Ok(());
        }
        let place = (av.grh_gid_fl.get() >> 20 & 0xff) as usize;
        let gids = self.gids();
        let (_, kind) = gids
            .get(place)
            .ok_or_else(|| format!("an address with the GID index {place}"))?;
        let port = av.rlid.get();
        if *kind == GidType::ROCE_V2 && port < 0xc000 {
            return Err(format!("a datagram from UDP port {port:#x}: {av:x?}"));
        }
        let right = mac_of(&av.rgid);
        if av.rmac != right {
            return Err(format!("a datagram to {:x?}, not {right:x?}", av.rmac));
        }
        Ok(())
    }

    /// The queue pairs that a datagram reaches.
    fn receivers(&self, from: u32, av: &WqeAv, queue_key: u32) -> Vec<u32> {
        let target = av.dqp_dct.get() & !mlx5::EXTENDED_UD_AV;
        let is_group = target == ALL && is_multicast(&av.rgid);
        let is_here = match self.has_route(av) {
            true => self.gids().iter().any(|(gid, _)| *gid == av.rgid),
            false => av.rlid.get() == LID,
        };
        let mut found = Vec::new();
        for (number, qp) in &self.qps {
            let is_meant = match is_group {
                true => qp.groups.contains(&av.rgid) && *number != from,
                false => is_here && *number == target,
            };
            let receives = [QpState::RTR, QpState::RTS, QpState::SQD, QpState::SQE];
            let takes = qp.kind == QpType::UD
                && qp.attr.qkey == queue_key
                && receives.contains(&qp.state)
                && !qp.is_stopped;
            if is_meant && takes {
                found.push(*number);
            }
        }
        found
    }

    /// What is before the data: an IP header behind 20 bytes, or that of a global route.
    fn header(&self, av: &WqeAv, length: usize) -> Result<Vec<u8>, String> {
        if !self.has_route(av) {
            return Ok(vec![0; HEADER]);
        }
        let route = av.grh_gid_fl.get();
        let gids = self.gids();
        let (own, kind) = gids
            .get((route >> 20 & 0xff) as usize)
            .ok_or_else(|| format!("an address with an unknown GID index: {av:x?}"))?;
        let to = std::net::Ipv6Addr::from(av.rgid).to_ipv4_mapped();
        let from = std::net::Ipv6Addr::from(*own).to_ipv4_mapped();
        let mut header = Vec::with_capacity(HEADER);
        match (kind, from, to) {
            (&GidType::ROCE_V2, Some(from), Some(to)) => {
                header.resize(20, 0);
                let mut ip = vec![0x45, av.tclass];
                ip.extend(((20 + 8 + 12 + 8 + length + 4) as u16).to_be_bytes());
                ip.extend([0, 0, 0x40, 0, av.hop_limit, 17, 0, 0]);
                ip.extend(from.octets());
                ip.extend(to.octets());
                let sum = checksum(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                header.extend(ip);
            }
            _ => {
                let first = 6 << 28 | u32::from(av.tclass) << 20 | route & 0xf_ffff;
                header.extend(first.to_be_bytes());
                header.extend(((12 + 8 + length + 4) as u16).to_be_bytes());
                let next = if *kind == GidType::ROCE_V2 { 17 } else { 27 };
                header.extend([next, av.hop_limit]);
                header.extend(own);
                header.extend(av.rgid);
            }
        }
        Ok(header)
    }
}

/// Of an IP header.
fn checksum(header: &[u8]) -> u16 {
    let pair = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    let sum: u32 = header.chunks_exact(2).map(pair).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}
