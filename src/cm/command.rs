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
    Listen;
    Connect;
    Accept;
    Reject;
    Disconnect;
    InitQpAttr => uverbs::QpAttr;
    GetEvent => ucma::EventResp;
    Notify;
    JoinMcast => ucma::CreateIdResp;
    ResolveIbService;
    WriteCmEvent;
}

/// Leaves a multicast group: a destruction with the number of a group in place of an id's.
#[derive(IntoBytes, Immutable)]
#[repr(transparent)]
pub(super) struct LeaveMcast(ucma::DestroyId);

impl LeaveMcast {
    pub(super) fn of(group: u32) -> Self {
        Self(ucma::DestroyId {
            id: group,
            ..Default::default()
        })
    }
}

impl Request for LeaveMcast {
    const COMMAND: ucma::Command = ucma::Command::LeaveMcast;
    const RESPONSE_AT: Option<usize> = Some(offset_of!(ucma::DestroyId, response));
    type Response = ucma::DestroyIdResp;
}

/// A query for one thing: the same command has answers of different kinds.
macro_rules! queries {
    ($($(#[$meta:meta])* $name:ident($option:ident) => $response:ty;)*) => {
        $(
            $(#[$meta])*
            #[derive(IntoBytes, Immutable)]
            #[repr(transparent)]
            pub(super) struct $name(ucma::Query);

            impl $name {
                pub(super) fn of(id: u32) -> Self {
                    Self(ucma::Query {
                        id,
                        option: ucma::QueryOption::$option.0,
                        ..Default::default()
                    })
                }
            }

            impl Request for $name {
                const COMMAND: ucma::Command = ucma::Command::Query;
                const RESPONSE_AT: Option<usize> = Some(offset_of!(ucma::Query, response));
                type Response = $response;
            }
        )*
    };
}

queries! {
    /// The addresses that the program gave or was given.
    QueryAddr(ADDR) => ucma::QueryAddrResp;
    /// The GIDs and service ids behind them.
    QueryGid(GID) => ucma::QueryAddrResp;
    /// The route.
    QueryPath(PATH) => PathAnswer;
}

/// More paths than a route has, which are a primary and an alternate one, and one to spare: old
/// kernels want room for it.
#[derive(FromBytes, IntoBytes)]
#[repr(C)]
pub(super) struct PathAnswer {
    pub head: ucma::QueryPathResp,
    pub records: [ucma::PathData; 7],
}

const HEAD: usize = size_of::<ucma::QueryIbServiceResp>();
const RECORD: usize = size_of::<ucma::IbUserServiceRec>();
/// A command says in 16 bits how much room its answer has.
pub(super) const MOST_SERVICES: usize = (u16::MAX as usize - HEAD) / RECORD;

/// The services that were found for an id: `room` of them at most, and how many there are.
pub(super) fn query_services(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    id: u32,
    room: usize,
) -> io::Result<(Vec<ucma::IbUserServiceRec>, usize)> {
    let request = ucma::Query {
        id,
        option: ucma::QueryOption::IB_SERVICE.0,
        ..Default::default()
    };
    let mut answer = vec![0; HEAD + room * RECORD];
    let response = (offset_of!(ucma::Query, response), answer.as_mut_slice());
    let command = ucma::Command::Query;
    send(
        kernel,
        fd,
        command,
        request.as_bytes(),
        Some(response),
        None,
    )?;
    let (head, records) = answer.split_at(HEAD);
    let head = ucma::QueryIbServiceResp::read_from_bytes(head).unwrap_or_default();
    let records = records
        .chunks_exact(RECORD)
        .take(head.num_service_recs as usize)
        .filter_map(|record| ucma::IbUserServiceRec::read_from_bytes(record).ok())
        .collect();
    Ok((records, head.num_service_recs as usize))
}

const HEADER: usize = size_of::<ucma::CommandHeader>();
/// No command of the connection manager is longer.
const LONGEST: usize = 512;

/// Sends a command to the channel behind `fd` and returns the answer.
pub(super) fn call<R: Request>(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    request: &R,
) -> io::Result<R::Response> {
    const { assert!(HEADER + size_of::<R>() <= LONGEST) };
    let mut answer = R::Response::new_zeroed();
    let response = R::RESPONSE_AT.map(|at| (at, answer.as_mut_bytes()));
    send(kernel, fd, R::COMMAND, request.as_bytes(), response, None)?;
    Ok(answer)
}

/// Sets an option.
pub(super) fn set_option(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    request: &ucma::SetOption,
    value: &[u8],
) -> io::Result<()> {
    let indirect = (offset_of!(ucma::SetOption, optval), value);
    let command = ucma::Command::SetOption;
    send(
        kernel,
        fd,
        command,
        request.as_bytes(),
        None,
        Some(indirect),
    )
}

/// Sends a command. The offsets of the answer's and the further input's addresses are those in the
/// body.
fn send(
    kernel: &dyn Kernel,
    fd: BorrowedFd<'_>,
    command: ucma::Command,
    body: &[u8],
    response: Option<(usize, &mut [u8])>,
    indirect: Option<(usize, &[u8])>,
) -> io::Result<()> {
    let header = ucma::CommandHeader {
        cmd: command as u32,
        in_: body.len() as u16,
        out: response.as_ref().map_or(0, |(_, room)| room.len()) as u16,
    };
    let mut buffer = [0; LONGEST];
    let record = &mut buffer[..HEADER + body.len()];
    record[..HEADER].copy_from_slice(header.as_bytes());
    record[HEADER..].copy_from_slice(body);
    kernel.write_command(
        fd,
        WriteCommand {
            request: record,
            response: response.map(|(at, room)| (HEADER + at, room)),
            indirect: indirect.map(|(at, input)| (HEADER + at, input)),
            new_fd: None,
        },
    )
}
