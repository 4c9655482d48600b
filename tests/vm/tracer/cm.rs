//! Commands to the connection manager.

use std::fmt;
use std::mem::offset_of;

use rdmacm_kernel_abi::ucma::{self, Command};
use zerocopy::FromBytes;

use super::remote;

/// A command written to `/dev/infiniband/rdma_cm`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmCommand {
    /// The command's number.
    pub number: u32,
    /// The id it names; of a multicast group, the group's number.
    pub id: Option<u32>,
    /// The id or group it made, known after it succeeded.
    pub created: Option<u32>,
    /// The event it fetched.
    pub event: Option<CmEvent>,
}

/// An event as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// What happened.
    pub kind: ucma::EventType,
    /// The id; of a connection request, the new one.
    pub id: u32,
    /// Its status.
    pub status: i32,
}

/// The address of a command's answer, 0 if it has none.
pub struct Answer(u64);

impl CmCommand {
    /// Decodes what is about to be written.
    pub fn decode(tid: i32, address: u64, length: u64) -> Option<(Self, Answer)> {
        let message = remote::bytes(tid, address, length);
        let (header, body) = ucma::CommandHeader::read_from_prefix(&message).ok()?;
        let command = Self {
            number: header.cmd,
            id: id_offset(header.cmd).and_then(|offset| field(body, offset)),
            created: None,
            event: None,
        };
        let response = response_offset(header.cmd).and_then(|offset| field(body, offset));
        Some((command, Answer(response.unwrap_or(0))))
    }

    /// Adds what the kernel answered.
    pub fn complete(&mut self, tid: i32, answer: Answer) {
        if self.is(Command::GetEvent) {
            self.event = CmEvent::read(tid, answer.0);
        } else {
            self.created = remote::value(tid, answer.0);
        }
    }

    /// Whether it is this command.
    pub fn is(&self, command: Command) -> bool {
        self.number == command as u32
    }

    /// Its name, such as `CREATE_ID`.
    pub fn name(&self) -> String {
        const PREFIX: &str = "RDMA_USER_CM_CMD_";
        let known = Command::NUMBERS
            .iter()
            .find(|known| known.value == u64::from(self.number));
        known
            .and_then(|known| known.c.strip_prefix(PREFIX))
            .map_or_else(|| format!("CM_COMMAND_{}", self.number), str::to_owned)
    }
}

impl CmEvent {
    fn read(tid: i32, address: u64) -> Option<Self> {
        // Older programs have room for less than the whole structure.
        let at = |offset: usize| address + offset as u64;
        Some(Self {
            kind: ucma::EventType(remote::value(tid, at(offset_of!(ucma::EventResp, event)))?),
            id: remote::value(tid, at(offset_of!(ucma::EventResp, id)))?,
            status: remote::value(tid, at(offset_of!(ucma::EventResp, status)))?,
        })
    }
}

impl fmt::Display for CmCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(id) = self.id {
            write!(f, " id {id}")?;
        }
        if let Some(created) = self.created {
            write!(f, " -> id {created}")?;
        }
        if let Some(CmEvent { kind, id, status }) = &self.event {
            write!(f, " -> {kind:?} id {id} status {status}")?;
        }
        Ok(())
    }
}

/// Where a command's id is, behind the header.
fn id_offset(number: u32) -> Option<usize> {
    macro_rules! table {
        ($($command:ident: $type:ident),* $(,)?) => {
            match number {
                $(n if n == Command::$command as u32 => Some(offset_of!(ucma::$type, id)),)*
                _ => None,
            }
        };
    }
    table! {
        DestroyId: DestroyId, BindIp: BindIp, ResolveIp: ResolveIp, ResolveRoute: ResolveRoute,
        QueryRoute: Query, Connect: Connect, Listen: Listen, Accept: Accept, Reject: Reject,
        Disconnect: Disconnect, InitQpAttr: InitQpAttr, SetOption: SetOption, Notify: Notify,
        JoinIpMcast: JoinIpMcast, LeaveMcast: DestroyId, MigrateId: MigrateId, Query: Query,
        Bind: Bind, ResolveAddr: ResolveAddr, JoinMcast: JoinMcast,
        ResolveIbService: ResolveIbService, WriteCmEvent: WriteCmEvent,
    }
}

/// Where the address of an answer that is of interest is, behind the header.
fn response_offset(number: u32) -> Option<usize> {
    match number {
        n if n == Command::CreateId as u32 => Some(offset_of!(ucma::CreateId, response)),
        n if n == Command::GetEvent as u32 => Some(offset_of!(ucma::GetEvent, response)),
        n if n == Command::JoinIpMcast as u32 => Some(offset_of!(ucma::JoinIpMcast, response)),
        n if n == Command::JoinMcast as u32 => Some(offset_of!(ucma::JoinMcast, response)),
        _ => None,
    }
}

fn field<T: FromBytes>(body: &[u8], offset: usize) -> Option<T> {
    T::read_from_prefix(body.get(offset..)?)
        .ok()
        .map(|(value, _)| value)
}
