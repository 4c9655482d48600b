//! What the library asked of the kernel, decoded.

use std::path::PathBuf;

use rdmacm_kernel_abi::ucma::{self, Command};
use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::FromBytes;

use super::attrs::Inputs;
use crate::sys::{IoctlCommand, WriteCommand};

/// One call into the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Open(PathBuf),
    DeviceNumber,
    /// A command of the connection manager, with the id or the group that it is about.
    Cm(Command, Option<u32>),
    /// A uverbs ioctl, with the object that it is about.
    Method {
        object: u16,
        method: u16,
        handle: Option<u32>,
    },
    /// A uverbs write command inside an ioctl, with the object that it is about.
    Write(uverbs::Command, Option<u32>),
    /// The doorbell of a queue pair.
    Doorbell(u32),
    Read,
    SetNonblocking,
    Poll,
    MapDevice,
    MapMemory,
    Unmap,
    Netlink,
    ReadFile(PathBuf),
    ListDir(PathBuf),
}

impl Call {
    /// A written command: of the connection manager, or the doorbell, the one command that is
    /// written to a uverbs file. `None` for one that this crate does not send.
    pub(super) fn of_write(command: &WriteCommand<'_>) -> Option<Self> {
        let (header, body) = ucma::CommandHeader::read_from_prefix(command.request).ok()?;
        if header.cmd == uverbs::Command::POST_SEND.0 {
            return Some(Self::Doorbell(word(body, 8)?));
        }
        let command = *COMMANDS.iter().find(|known| **known as u32 == header.cmd)?;
        let id_at = match command {
            Command::CreateId | Command::GetEvent => None,
            Command::Bind | Command::ResolveAddr | Command::ResolveRoute => Some(0),
            Command::Listen | Command::Disconnect | Command::Reject | Command::Notify => Some(0),
            Command::ResolveIbService | Command::WriteCmEvent => Some(0),
            Command::JoinMcast => Some(16),
            Command::Connect => Some(272),
            Command::Accept => Some(280),
            // Those that are answered or have more input begin with an address. In LEAVE_MCAST the
            // number is a group's.
            _ => Some(8),
        };
        Some(Self::Cm(command, id_at.and_then(|at| word(body, at))))
    }

    /// A command that is written to a card's file.
    pub(super) fn of_verbs_write(command: &WriteCommand<'_>) -> Self {
        let number = word(command.request, 0).unwrap_or(0);
        Self::Write(uverbs::Command(number & 0xffff), None)
    }

    pub(super) fn of_ioctl(command: &IoctlCommand<'_, '_>) -> Self {
        let (object, method) = (command.object, command.method);
        let attrs = Inputs(command.attrs);
        if (object, method) != (ioctl::object::DEVICE, ioctl::device::INVOKE_WRITE) {
            // A destroy names its object in attribute 0; other methods name none there.
            return Self::Method {
                object,
                method,
                handle: attrs.handle(0).ok(),
            };
        }
        let number = attrs
            .number(ioctl::device::invoke_write::WRITE_CMD)
            .unwrap_or(0);
        let body = attrs
            .input(ioctl::device::invoke_write::CORE_IN)
            .unwrap_or(&[]);
        let command = uverbs::Command(number as u32);
        let handle_at = match command {
            uverbs::Command::MODIFY_QP => Some(64),
            uverbs::Command::QUERY_QP | uverbs::Command::QUERY_SRQ => Some(8),
            uverbs::Command::REREG_MR | uverbs::Command::RESIZE_CQ => Some(8),
            uverbs::Command::ATTACH_MCAST | uverbs::Command::DETACH_MCAST => Some(16),
            uverbs::Command::REQ_NOTIFY_CQ | uverbs::Command::MODIFY_SRQ => Some(0),
            _ => None,
        };
        Self::Write(command, handle_at.and_then(|at| word(body, at)))
    }

    /// Whether this is a certain command of the connection manager.
    pub(crate) fn is_cm(&self, wanted: Command) -> bool {
        matches!(self, Self::Cm(command, _) if *command == wanted)
    }

    /// Whether this is a certain uverbs ioctl.
    pub(crate) fn is_method(&self, wanted: (u16, u16)) -> bool {
        matches!(self, Self::Method { object, method, .. } if (*object, *method) == wanted)
    }

    /// Whether this is a certain uverbs write command.
    pub(crate) fn is_write(&self, wanted: uverbs::Command) -> bool {
        matches!(self, Self::Write(command, _) if *command == wanted)
    }

    /// Whether this is about an object that must be there.
    pub(super) fn names_an_object(&self) -> bool {
        matches!(
            self,
            Self::Cm(..) | Self::Method { .. } | Self::Write(..) | Self::Doorbell(_)
        )
    }

    /// Whether this gives an object of a device back.
    pub(crate) fn is_verbs_destroy(&self) -> bool {
        let destroys = [
            DESTROY_QP,
            DESTROY_SRQ,
            DESTROY_CQ,
            DESTROY_AH,
            DESTROY_MR,
            DESTROY_MW,
            DESTROY_XRCD,
            DESTROY_PD,
        ];
        destroys.iter().any(|method| self.is_method(*method))
    }

    /// Whether this gives an object back.
    pub(crate) fn is_destroy(&self) -> bool {
        self.is_cm(Command::DestroyId) || self.is_verbs_destroy()
    }
}

pub(crate) const CREATE_QP: (u16, u16) = (ioctl::object::QP, ioctl::qp::CREATE);
pub(crate) const CREATE_CQ: (u16, u16) = (ioctl::object::CQ, ioctl::cq::CREATE);
const DESTROY_SRQ: (u16, u16) = (ioctl::object::SRQ, ioctl::srq::DESTROY);
const DESTROY_MW: (u16, u16) = (ioctl::object::MW, ioctl::mw::DESTROY);
const DESTROY_AH: (u16, u16) = (ioctl::object::AH, ioctl::ah::DESTROY);
const DESTROY_XRCD: (u16, u16) = (ioctl::object::XRCD, ioctl::xrcd::DESTROY);
pub(crate) const DESTROY_QP: (u16, u16) = (ioctl::object::QP, ioctl::qp::DESTROY);
pub(crate) const DESTROY_CQ: (u16, u16) = (ioctl::object::CQ, ioctl::cq::DESTROY);
pub(crate) const DESTROY_MR: (u16, u16) = (ioctl::object::MR, ioctl::mr::DESTROY);
pub(crate) const DESTROY_PD: (u16, u16) = (ioctl::object::PD, ioctl::pd::DESTROY);
pub(crate) const GET_CONTEXT: (u16, u16) = (ioctl::object::DEVICE, ioctl::device::GET_CONTEXT);

/// The commands that the twin carries out.
const COMMANDS: [Command; 20] = [
    Command::CreateId,
    Command::DestroyId,
    Command::Bind,
    Command::ResolveAddr,
    Command::ResolveRoute,
    Command::Query,
    Command::Listen,
    Command::Connect,
    Command::Accept,
    Command::Reject,
    Command::Disconnect,
    Command::InitQpAttr,
    Command::GetEvent,
    Command::MigrateId,
    Command::JoinMcast,
    Command::LeaveMcast,
    Command::SetOption,
    Command::Notify,
    Command::ResolveIbService,
    Command::WriteCmEvent,
];

fn word(body: &[u8], at: usize) -> Option<u32> {
    let (word, _) = u32::read_from_prefix(body.get(at..)?).ok()?;
    Some(word)
}
