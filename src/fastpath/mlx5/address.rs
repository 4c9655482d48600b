//! Address handles: where a datagram goes, as it stands in the request.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::mem::offset_of;

use rdmacm_kernel_abi::mlx5::{
    AV_FLOW_LABEL_MASK, AV_HAS_GRH, AV_SGID_INDEX_SHIFT, AV_STAT_RATE_SHIFT, CreateAhResp,
    EXTENDED_UD_AV, STAT_RATES, WqeAv,
};
use rdmacm_kernel_abi::uverbs::AhAttr;
use zerocopy::IntoBytes;

use super::card::Card;
use crate::device::{Context, GidType, LinkLayer};
use crate::error::{Error, ErrorKind, Result};

/// The driver's part of making an address handle.
#[derive(Debug)]
pub(crate) struct AhSetup {
    vector: WqeAv,
    is_ethernet: bool,
    answer: CreateAhResp,
}

impl AhSetup {
    pub(crate) fn new(context: &Context, attr: &AhAttr) -> Result<Self> {
        let operation = "create_ah";
        let card = Card::of(context)?;
        let port = context.port(attr.port_num)?;
        let is_ethernet = port.link_layer == LinkLayer::Ethernet;
        if is_ethernet && attr.is_global == 0 {
            let text = "a path on Ethernet needs the GID of its end";
            return Err(Error::invalid(operation, text));
        }
        if is_ethernet && !card.grant.tells_mac {
            return Err(Error::new(
                operation,
                ErrorKind::NotSupported,
                "the kernel does not tell the MAC address of the next hop, as kernels before 4.9 do \
                 not; this crate needs 6.1 or newer",
            ));
        }
        let network = match is_ethernet {
            false => Network::InfiniBand,
            true => {
                let entry = context.gid(attr.port_num, u32::from(attr.grh.sgid_index))?;
                match entry.is_some_and(|entry| entry.kind == GidType::RoceV2) {
                    false => Network::RoceV1,
                    true => Network::RoceV2,
                }
            }
        };
        Ok(Self {
            vector: vector(attr, network),
            is_ethernet,
            answer: CreateAhResp::default(),
        })
    }

    /// Room for the driver's answer: on Ethernet the MAC address of the next hop.
    pub(crate) fn answer(&mut self) -> &mut [u8] {
        match self.is_ethernet {
            true => self.answer.as_mut_bytes(),
            false => &mut [],
        }
    }

    /// What goes into each request.
    ///
    /// # Errors
    ///
    /// When the kernel has not told the MAC address.
    pub(crate) fn vector(&self) -> Result<WqeAv> {
        let mut vector = self.vector;
        if self.is_ethernet {
            let end = offset_of!(CreateAhResp, dmac) + size_of_val(&self.answer.dmac);
            let is_told = self.answer.response_length as usize >= end;
            if !is_told || self.answer.dmac == [0; 6] {
                return Err(Error::new(
                    "create_ah",
                    ErrorKind::Protocol,
                    "the kernel did not tell the MAC address of the next hop",
                ));
            }
            vector.rmac = self.answer.dmac;
        }
        Ok(vector)
    }
}

/// What a packet travels in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    InfiniBand,
    /// Ethernet frames.
    RoceV1,
    /// UDP.
    RoceV2,
}

/// What of a path goes into each request, but for the MAC address of the next hop.
pub(super) fn vector(attr: &AhAttr, network: Network) -> WqeAv {
    let mut vector = WqeAv {
        dqp_dct: EXTENDED_UD_AV.into(),
        ..Default::default()
    };
    let rate = STAT_RATES.get(usize::from(attr.static_rate));
    let rate = rate.map_or(0, |rate| rate << AV_STAT_RATE_SHIFT);
    if network == Network::InfiniBand {
        vector.stat_rate_sl = rate | attr.sl & 0xf;
        vector.fl_mlid = attr.src_path_bits & 0x7f;
        vector.rlid = attr.dlid.into();
    } else {
        vector.stat_rate_sl = rate | (attr.sl & 7) << 1;
    }
    if network == Network::RoceV2 {
        vector.rlid = source_port(attr.grh.flow_label).into();
    }
    if attr.is_global != 0 {
        let grh = attr.grh;
        let route = match network {
            Network::InfiniBand => AV_HAS_GRH,
            Network::RoceV1 | Network::RoceV2 => 0,
        };
        let gid = u32::from(grh.sgid_index) << AV_SGID_INDEX_SHIFT;
        vector.grh_gid_fl = (route | gid | grh.flow_label & AV_FLOW_LABEL_MASK).into();
        vector.tclass = grh.traffic_class;
        vector.hop_limit = grh.hop_limit;
        vector.rgid = grh.dgid;
    }
    vector
}

/// The UDP source port of RoCE version 2, by which the ways of the network are shared out: folded out
/// of the flow label, or any.
fn source_port(flow_label: u32) -> u16 {
    const FIRST: u16 = 0xc000;
    let folded = match flow_label & AV_FLOW_LABEL_MASK {
        0 => RandomState::new().build_hasher().finish() as u16,
        label => (label ^ label >> 14) as u16,
    };
    FIRST | folded & 0x3fff
}
