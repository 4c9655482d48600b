//! Giving objects back.

use std::io;

use rdmacm_kernel_abi::uverbs::{self, Command, ioctl};

use super::Destination;
use super::attributes::Attributes;

// The attributes have the same numbers in all methods that destroy.
use ioctl::qp::destroy as id;

/// The command that destroys an object of a kind and answers nothing.
pub(super) fn command_without_answer(object: u16, method: u16) -> Option<Command> {
    use ioctl::object;
    match (object, method) {
        (object::PD, ioctl::pd::DESTROY) => Some(Command::DEALLOC_PD),
        (object::MR, ioctl::mr::DESTROY) => Some(Command::DEREG_MR),
        (object::MW, ioctl::mw::DESTROY) => Some(Command::DEALLOC_MW),
        (object::AH, ioctl::ah::DESTROY) => Some(Command::DESTROY_AH),
        (object::XRCD, ioctl::xrcd::DESTROY) => Some(Command::CLOSE_XRCD),
        _ => None,
    }
}

/// Destroys an object whose command is its handle and nothing else.
pub(super) fn without_answer(
    to: Destination<'_>,
    mut attributes: Attributes<'_, '_>,
    command: Command,
) -> io::Result<()> {
    let handle = handle_of(&attributes)?;
    let []: [u8; 0] = attributes.send(to, command, &handle)?;
    Ok(())
}

pub(super) fn cq(to: Destination<'_>, mut attributes: Attributes<'_, '_>) -> io::Result<()> {
    let request = uverbs::DestroyCq {
        cq_handle: handle_of(&attributes)?,
        ..Default::default()
    };
    let counts: uverbs::DestroyCqResp = attributes.send(to, Command::DESTROY_CQ, &request)?;
    attributes.put(id::RESP, &counts);
    Ok(())
}

pub(super) fn qp(to: Destination<'_>, mut attributes: Attributes<'_, '_>) -> io::Result<()> {
    let request = uverbs::DestroyQp {
        qp_handle: handle_of(&attributes)?,
        ..Default::default()
    };
    let count: uverbs::DestroyQpResp = attributes.send(to, Command::DESTROY_QP, &request)?;
    attributes.put(id::RESP, &count);
    Ok(())
}

pub(super) fn srq(to: Destination<'_>, mut attributes: Attributes<'_, '_>) -> io::Result<()> {
    let request = uverbs::DestroySrq {
        srq_handle: handle_of(&attributes)?,
        ..Default::default()
    };
    let count: uverbs::DestroySrqResp = attributes.send(to, Command::DESTROY_SRQ, &request)?;
    attributes.put(id::RESP, &count);
    Ok(())
}

fn handle_of(attributes: &Attributes<'_, '_>) -> io::Result<u32> {
    attributes.allow(&[id::HANDLE, id::RESP])?;
    let handle = attributes.handle(id::HANDLE);
    handle.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}
