//! Queue pairs that are connected without a connection manager.
//!
//! What to learn here: the states that a queue pair goes through, and what it has to know in each.
//! An RC queue pair has to know besides how patient to be, since it repeats what is lost; one of
//! type UC sends and forgets.

use rdmacm::{Access, Mtu, Qp, QpModify, QpState, QpType};

use crate::args::number;
use crate::port::Port;
use crate::report::Result;
use crate::wire::Address;

/// No router is passed.
const HOP_LIMIT: u8 = 1;

/// A peer without a receive is told to wait for 0.64 ms.
const RNR_TIMER: u8 = 12;

/// To wait for an answer for 67 ms, and to ask again as often as can be said.
const TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;

/// The options that concern connections.
#[derive(Debug, clap::Args)]
pub struct ConnectionOptions {
    /// Path MTU: payload bytes of a packet
    #[arg(short, long, default_value = "1024", value_parser = mtu)]
    pub mtu: Mtu,
}

fn mtu(text: &str) -> std::result::Result<Mtu, String> {
    let bytes = number::<u32>(256..=4096)(text)?;
    Mtu::from_bytes(bytes).ok_or_else(|| "256, 512, 1024, 2048 and 4096 are possible".to_owned())
}

/// Takes a new queue pair to INIT, where it takes receives. Peers may send to it, and do nothing
/// else.
pub fn prepare(qp: &Qp, port: &Port) -> Result<()> {
    let change = QpModify::to(QpState::Init)
        .port(port.number())
        .pkey_index(0)
        .access(Access::empty());
    Ok(qp.modify(&change)?)
}

/// Takes it on to RTR, where it receives from its peer, and to RTS, where it sends as well.
pub fn connect(qp: &Qp, port: &Port, mtu: Mtu, own: &Address, peer: &Address) -> Result<()> {
    let most = port.attr().active_mtu;
    if mtu > most {
        return Err(format!(
            "the path MTU is to be {}; the port does {}: use -m {1} on both sides",
            mtu.bytes(),
            most.bytes()
        )
        .into());
    }
    let mut receiving = QpModify::to(QpState::Rtr)
        .path(port.path_to(peer, HOP_LIMIT)?)
        .path_mtu(mtu)
        .remote_qp_num(peer.qp_num)
        .receive_psn(peer.psn);
    let mut sending = QpModify::to(QpState::Rts).send_psn(own.psn);
    if qp.qp_type() == QpType::Rc {
        receiving = receiving.responder_resources(1).min_rnr_timer(RNR_TIMER);
        sending = sending
            .initiator_depth(1)
            .timeout(TIMEOUT)
            .retry_count(RETRIES)
            .rnr_retry_count(RETRIES);
    }
    qp.modify(&receiving)?;
    Ok(qp.modify(&sending)?)
}

#[cfg(test)]
mod tests {
    use super::mtu;

    #[test]
    fn an_mtu_is_one_of_five() {
        assert_eq!(mtu("1024").map(|mtu| mtu.bytes()), Ok(1024));
        assert_eq!(mtu("0x1000").map(|mtu| mtu.bytes()), Ok(4096));
        for wrong in ["1500", "0", "8192", "-1"] {
            assert!(mtu(wrong).is_err(), "{wrong}");
        }
    }
}
