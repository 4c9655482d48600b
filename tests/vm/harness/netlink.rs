//! Asks the kernel over RDMA netlink how many objects each device has.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType};
use nix::sys::socket::{recv, send, socket};
use rdmacm_kernel_abi::netlink::{
    NLMSG_DONE, NLMSG_ERROR, NlAttr, NlMsgErr, NlMsgHdr, NldevAttr, NldevCommand, NlmFlags,
    nldev_type,
};
use zerocopy::{FromBytes, IntoBytes};

/// Counts of all devices, as `rxe0 qp`; what has no objects is there as well, with 0. Nothing where
/// the kernel's RDMA modules are not loaded.
pub fn resource_counts() -> io::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    let answer = dump(NldevCommand::RES_GET, |device| {
        let name = text(find(device, NldevAttr::DEV_NAME));
        let summary = find(device, NldevAttr::RES_SUMMARY);
        for (_, entry) in attributes(summary) {
            let kind = text(find(entry, NldevAttr::RES_SUMMARY_ENTRY_NAME));
            let count = find(entry, NldevAttr::RES_SUMMARY_ENTRY_CURR);
            let count = u64::read_from_bytes(count).unwrap_or_default();
            counts.insert(format!("{name} {kind}"), count);
        }
    });
    match answer {
        Err(error) if error.raw_os_error() != Some(libc::EPROTONOSUPPORT) => Err(error),
        _ => Ok(counts),
    }
}

/// Sends a request for all objects and hands the attributes of each answer to `each`.
fn dump(command: NldevCommand, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRDMA,
    )?;
    let request = NlMsgHdr {
        nlmsg_len: size_of::<NlMsgHdr>() as u32,
        nlmsg_type: nldev_type(command),
        nlmsg_flags: (NlmFlags::REQUEST | NlmFlags::DUMP).bits(),
        ..Default::default()
    };
    send(socket.as_raw_fd(), request.as_bytes(), MsgFlags::empty())?;
    while receive(&socket, &mut each)? {}
    Ok(())
}

/// Handles the messages of one datagram; false after the last one of the dump.
fn receive(socket: &OwnedFd, each: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    let mut rest = &buffer[..length];
    while let Ok((header, _)) = NlMsgHdr::read_from_prefix(rest) {
        let length = header.nlmsg_len as usize;
        let payload = rest
            .get(size_of::<NlMsgHdr>()..length)
            .ok_or(io::ErrorKind::InvalidData)?;
        match header.nlmsg_type {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => return Err(error_of(payload)),
            _ => each(payload),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

fn error_of(payload: &[u8]) -> io::Error {
    match NlMsgErr::read_from_prefix(payload) {
        Ok((message, _)) => io::Error::from_raw_os_error(-message.error),
        Err(_) => io::ErrorKind::InvalidData.into(),
    }
}

/// The value of an attribute, empty if it is missing.
fn find(list: &[u8], wanted: NldevAttr) -> &[u8] {
    attributes(list)
        .find(|(kind, _)| *kind == wanted)
        .map_or(&[], |(_, value)| value)
}

/// The attributes of a message or of a nested attribute.
fn attributes(mut list: &[u8]) -> impl Iterator<Item = (NldevAttr, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = NlAttr::read_from_prefix(list).ok()?;
        let length = usize::from(header.nla_len);
        let value = list.get(size_of::<NlAttr>()..length)?;
        list = list.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The two upper bits say how the value is encoded.
        Some((NldevAttr(header.nla_type & 0x3fff), value))
    })
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}
