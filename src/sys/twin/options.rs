//! Options of ids, and what a program tells the kernel of a connection.

use std::mem::offset_of;

use rdmacm_kernel_abi::ucma::{self, EventType, IbOption, IdOption, OptionLevel, PathData};
use rdmacm_kernel_abi::uverbs::AsyncEventType;
use zerocopy::FromBytes;

use super::cm::Phase;
use super::files::FileId;
use super::{Outcome, World};

/// What was set of an id.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Options {
    pub type_of_service: u8,
    pub is_reused: bool,
    pub is_family_only: bool,
    pub ack_timeout: Option<u8>,
    /// The path that the program gave.
    pub path: Option<PathData>,
}

/// The flags of a path that is used for a connection.
const PRIMARY_BOTH_WAYS: u32 = 0x2b;

impl World {
    pub(super) fn set_option(
        &mut self,
        file: FileId,
        request: &ucma::SetOption,
        value: Option<(usize, &[u8])>,
    ) -> Outcome {
        let expected = size_of::<ucma::CommandHeader>() + offset_of!(ucma::SetOption, optval);
        let value = match value {
            Some((at, value)) if at == expected => value,
            _ => return Err(libc::EFAULT),
        };
        if value.len() != request.optlen as usize {
            return Err(libc::EFAULT);
        }
        let is_ib_path = request.optname == IbOption::PATH.0;
        let id = self.alive(file, request.id)?;
        match OptionLevel(request.level) {
            OptionLevel::ID => {
                let is_datagram = id.is_datagram();
                id.options
                    .set(IdOption(request.optname), value, is_datagram)
            }
            OptionLevel::IB if is_ib_path => {
                let path = usable_path(value)?;
                if id.device.is_none() || id.phase != Phase::AddressResolved {
                    return Err(libc::EINVAL);
                }
                (id.options.path, id.phase) = (Some(path), Phase::RouteResolved);
                self.emit(request.id, EventType::ROUTE_RESOLVED, 0, None);
                Ok(())
            }
            _ => Err(libc::ENOSYS),
        }
    }

    /// A message has come to an accepted connection before the peer's word for it.
    pub(super) fn note_message(&mut self, file: FileId, request: &ucma::Notify) -> Outcome {
        let id = self.alive(file, request.id)?;
        if id.device.is_none() || request.event != AsyncEventType::COMM_EST.0 {
            return Err(libc::EINVAL);
        }
        match id.phase {
            _ if id.is_datagram() => return Err(libc::EINVAL),
            Phase::Accepted => id.phase = Phase::Established,
            Phase::Established => return Err(libc::EISCONN),
            _ => return Err(libc::EINVAL),
        }
        self.emit(request.id, EventType::ESTABLISHED, 0, None);
        Ok(())
    }
}

impl Options {
    fn set(&mut self, option: IdOption, value: &[u8], is_datagram: bool) -> Outcome {
        match option {
            IdOption::TOS => self.type_of_service = number(value)?,
            IdOption::REUSEADDR => self.is_reused = number::<i32>(value)? != 0,
            IdOption::AFONLY => self.is_family_only = number::<i32>(value)? != 0,
            IdOption::ACK_TIMEOUT if is_datagram => return Err(libc::EINVAL),
            IdOption::ACK_TIMEOUT => self.ack_timeout = Some(number(value)?),
            _ => return Err(libc::ENOSYS),
        }
        Ok(())
    }
}

fn number<T: FromBytes>(value: &[u8]) -> Outcome<T> {
    T::read_from_bytes(value).map_err(|_| libc::EINVAL)
}

/// The first record that leads both ways.
fn usable_path(value: &[u8]) -> Outcome<PathData> {
    let records = value.chunks(size_of::<PathData>());
    let records: Outcome<Vec<PathData>> = records.map(number).collect();
    let mut usable = records?.into_iter();
    usable
        .find(|record| record.flags == PRIMARY_BOTH_WAYS)
        .ok_or(libc::EINVAL)
}
