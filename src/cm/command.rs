//! Commands of the connection manager, sent with `write()`.

use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;

use rdmacm_kernel_abi::{ucma, uverbs};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::sys::{Kernel, WriteCommand};

/// A command's body, with what the kernel answers to it.
pub(super) trait Request: IntoBytes + Immutable {
    /// The command's number.
    const COMMAND: ucma::Command;
    /// Where in the body the address of the answer goes, if there is one.
    const RESPONSE_AT: Option<usize>;
    /// The answer.
    type Response: FromBytes + IntoBytes;
}

macro_rules! requests {
    ($($request:ident $(=> $response:ty)?;)*) => {
        $(impl Request for ucma::$request {
            const COMMAND: ucma::Command = ucma::Command::$request;
            const RESPONSE_AT: Option<usize> = requests!(@at $request $($response)?);
            type Response = requests!(@type $($response)?);
        })*
    };
    (@at $request:ident) => { None };
    (@at $request:ident $response:ty) => { Some(offset_of!(ucma::$request, response)) };
    (@type) => { [u8; 0] };
    (@type $response:ty) => { $response };
}

requests! {
    CreateId => ucma::CreateIdResp;
    DestroyId => ucma::DestroyIdResp;
    MigrateId => ucma::MigrateResp;
    Bind;
    ResolveAddr;
    ResolveRoute;
    // The only query that is made; each option has an answer of its own.
    Query => ucma::QueryAddrResp;
    Listen;
    Connect;
    Accept;
    Reject;
    Disconnect;
    InitQpAttr => uverbs::QpAttr;
    GetEvent => ucma::EventResp;
}

/// No command of the connection manager is longer.
const LONGEST: usize = 512;

/// Sends a command to the channel behind `fd` and returns the answer.
pub(super) fn call<R: Request>(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    request: &R,
) -> io::Result<R::Response> {
    const HEADER: usize = size_of::<ucma::CommandHeader>();
    const { assert!(HEADER + size_of::<R>() <= LONGEST) };
    let mut response = R::Response::new_zeroed();
    let header = ucma::CommandHeader {
        cmd: R::COMMAND as u32,
        in_: size_of::<R>() as u16,
        out: size_of::<R::Response>() as u16,
    };
    let mut buffer = [0; LONGEST];
    let record = &mut buffer[..HEADER + size_of::<R>()];
    record[..HEADER].copy_from_slice(header.as_bytes());
    record[HEADER..].copy_from_slice(request.as_bytes());
    let answer = R::RESPONSE_AT.map(|at| (HEADER + at, response.as_mut_bytes()));
    kernel.write_command(
        fd,
        WriteCommand {
            request: record,
            response: answer,
            indirect: None,
        },
    )?;
    Ok(response)
}
