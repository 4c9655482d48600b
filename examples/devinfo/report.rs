//! The table of one device.

use std::net::IpAddr;

use rdmacm::{
    Context, Device, DeviceAttr, GidEntry, GidType, LinkLayer, PortAttr, PortState, Result,
    Transport,
};

use crate::{probe, system};

/// Prints all about a device; what cannot be found out is said in its place.
pub fn device(device: &Device, verbose: bool) {
    println!("{}", device.name());
    let driver = format!("{}, {}", device.driver(), system::device_abi(device.name()));
    line("driver", &driver);
    line("transport", &transport(device.transport()));
    line("node GUID", &format!("{:016x}", device.node_guid()));
    let context = match device.open() {
        Ok(context) => context,
        Err(error) => return line("supported", &format!("no: {error}")),
    };
    line("supported", "yes");
    if let Err(error) = opened(&context, verbose) {
        line("asking failed", &error.to_string());
    }
}

fn opened(context: &Context, verbose: bool) -> Result<()> {
    let attr = context.attr()?;
    limits(attr, verbose);
    let gids = context.gids()?;
    for number in 1..=attr.ports() {
        port(number, &context.port(number)?, &gids, verbose);
    }
    let address = gids
        .iter()
        .find(|entry| is_routable(entry))
        .map(|entry| entry.gid.to_ip());
    println!("    what works");
    for finding in probe::all(context, address) {
        let outcome = match finding.outcome {
            Ok(detail) if detail.is_empty() => "yes".to_owned(),
            Ok(detail) => format!("yes: {detail}"),
            Err(reason) => format!("no: {reason}"),
        };
        println!("        {:<24} {outcome}", finding.feature);
    }
    Ok(())
}

fn line(what: &str, text: &str) {
    println!("    {what:<20} {text}");
}

fn limits(attr: &DeviceAttr, verbose: bool) {
    let outstanding = format!("{} requests in a queue", attr.max_qp_wr());
    line(
        "queue pairs",
        &format!(
            "{}, {outstanding}, {} segments in one",
            attr.max_qp(),
            attr.max_sge()
        ),
    );
    line("completion queue", &format!("{} entries", attr.max_cqe()));
    let shared = match attr.max_srq_wr() {
        0 => "none".to_owned(),
        receives => format!(
            "{receives} receives, {} segments in one",
            attr.max_srq_sge()
        ),
    };
    line("shared receive queue", &shared);
    let depths = (attr.max_responder_resources(), attr.max_initiator_depth());
    line(
        "reads at a time",
        &format!("{} answered, {} begun", depths.0, depths.1),
    );
    if verbose {
        line("memory region", &format!("{} bytes", attr.max_mr_size()));
        let (vendor, part) = attr.vendor();
        line("vendor, part", &format!("{vendor:#x}, {part:#x}"));
        line("firmware", &format!("{:#x}", attr.firmware_version()));
    }
}

fn port(number: u8, port: &PortAttr, gids: &[GidEntry], verbose: bool) {
    println!("    port {number}");
    let inner = |what: &str, text: &str| println!("        {what:<16} {text}");
    inner("state", &state(port.state));
    inner("link layer", &link_layer(port.link_layer));
    let (active, max) = (port.active_mtu.bytes(), port.max_mtu.bytes());
    inner("MTU", &format!("{active} bytes, {max} at most"));
    if port.link_layer == LinkLayer::InfiniBand {
        inner("LID", &port.lid.to_string());
    }
    let own: Vec<&GidEntry> = gids.iter().filter(|entry| entry.port == number).collect();
    inner("interface", &interfaces(&own));
    inner("addresses", &addresses(&own));
    if verbose {
        inner(
            "largest message",
            &format!("{} bytes", port.max_message_size),
        );
        inner("P_Keys", &format!("{} slots", port.pkey_table_length));
        inner(
            "GIDs",
            &format!("{} of {} slots", own.len(), port.gid_table_length),
        );
        for entry in own {
            println!(
                "            {:>3}  {}  {}",
                entry.index,
                entry.gid,
                gid_type(entry.kind)
            );
        }
    }
}

/// The network interfaces below a port, each once.
fn interfaces(gids: &[&GidEntry]) -> String {
    let mut names: Vec<String> = gids
        .iter()
        .filter_map(|entry| system::interface_name(entry.interface))
        .collect();
    names.sort();
    names.dedup();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// What a peer can connect to.
fn addresses(gids: &[&GidEntry]) -> String {
    let usable = gids.iter().filter(|entry| entry.kind == GidType::RoceV2);
    let texts: Vec<String> = usable.map(|entry| entry.gid.to_ip().to_string()).collect();
    match texts.is_empty() {
        true => "none: give the network interface an IP address".to_owned(),
        false => texts.join(", "),
    }
}

/// A link-local address would need its interface.
fn is_routable(entry: &GidEntry) -> bool {
    entry.kind == GidType::RoceV2
        && match entry.gid.to_ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        }
}

fn transport(transport: Transport) -> String {
    match transport {
        Transport::InfiniBand => "InfiniBand".to_owned(),
        Transport::Roce => "RoCE".to_owned(),
        Transport::Iwarp => "iWARP".to_owned(),
        other => format!("{other:?}"),
    }
}

fn state(state: PortState) -> String {
    match state {
        PortState::Down => "down: set the link up, or connect the cable".to_owned(),
        PortState::Init => "link, no subnet manager has configured it".to_owned(),
        PortState::Armed => "configured, not in use yet".to_owned(),
        PortState::Active => "active".to_owned(),
        other => format!("{other:?}"),
    }
}

fn link_layer(layer: LinkLayer) -> String {
    match layer {
        LinkLayer::InfiniBand => "InfiniBand".to_owned(),
        LinkLayer::Ethernet => "Ethernet".to_owned(),
        other => format!("{other:?}"),
    }
}

fn gid_type(kind: GidType) -> String {
    match kind {
        GidType::InfiniBand => "InfiniBand".to_owned(),
        GidType::RoceV1 => "RoCE v1".to_owned(),
        GidType::RoceV2 => "RoCE v2".to_owned(),
        other => format!("{other:?}"),
    }
}
