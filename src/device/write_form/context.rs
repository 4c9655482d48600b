//! Making the kernel's side of a context, and what a port is.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;

use rdmacm_kernel_abi::uverbs::{self, Command, ioctl};
use zerocopy::{FromZeros, IntoBytes};

use super::attributes::Attributes;
use super::{Destination, Message, cannot_be_written};
use crate::device::DriverPart;

/// Makes the kernel's side of a context. Answers the number of completion vectors, and the
/// descriptor of the one stream of asynchronous events that there will be.
pub(in crate::device) fn get_context(
    to: Destination<'_>,
    driver: DriverPart<'_>,
) -> io::Result<(u32, OwnedFd)> {
    let request = uverbs::GetContext::default();
    let mut answer = uverbs::GetContextResp::default();
    let mut events = None;
    let message = Message {
        command: Command::GET_CONTEXT,
        request: request.as_bytes(),
        answer: answer.as_mut_bytes(),
        driver,
    };
    let fd_at = offset_of!(uverbs::GetContextResp, async_fd);
    message.send_for_descriptor(to, Some((fd_at, &mut events)))?;
    let events = events.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    Ok((answer.num_comp_vectors, events))
}

pub(super) fn query_port(
    to: Destination<'_>,
    mut attributes: Attributes<'_, '_>,
) -> io::Result<()> {
    use ioctl::device::query_port as id;
    attributes.allow(&[id::PORT_NUM, id::RESP])?;
    let number: u64 = attributes.input(id::PORT_NUM)?;
    let request = uverbs::QueryPort {
        port_num: u8::try_from(number).map_err(|_| cannot_be_written())?,
        ..Default::default()
    };
    let legacy_resp: uverbs::QueryPortResp = attributes.send(to, Command::QUERY_PORT, &request)?;
    let port = ioctl::QueryPortRespEx {
        legacy_resp,
        ..FromZeros::new_zeroed()
    };
    attributes.put(id::RESP, &port);
    Ok(())
}
