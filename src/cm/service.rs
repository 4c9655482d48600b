//! Names and services that are looked up for an id, and events that a program writes itself.

use std::io;

use rdmacm_kernel_abi::ucma::{self, EventType};
use rdmacm_kernel_abi::uverbs;
use zerocopy::IntoBytes;

use super::id::State;
use super::{AddrInfo, AddrInfoQuery, CmId, EventChannel, IbAddress, PortSpace, explain};
use crate::device::Gid;
use crate::error::{Error, ErrorKind, Result};

/// The argument of the internal event that ends a lookup of names, as in the C library.
const NAMES_ARE_RESOLVED: u64 = EventType::ADDRINFO_RESOLVED.0 as u64;

/// A service of an InfiniBand subnet, as its administrator has it on record.
#[doc(alias = "rdma_ucm_ib_service")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service<'a> {
    /// By its number.
    Id(u64),
    /// By its name, of up to 63 bytes.
    Name(&'a str),
}

/// How far a lookup for an id has come.
#[derive(Debug, Default)]
pub(super) enum Lookup {
    #[default]
    None,
    /// The kernel asks the subnet's administrator.
    Service,
    /// Names have been resolved, and the event that says so is on its way.
    Names(Vec<AddrInfo>),
    /// To be taken by the program.
    Done(Vec<AddrInfo>),
}

impl CmId {
    /// Looks names up, as [`AddrInfoQuery::resolve`] does, within the call: it blocks for as long
    /// as the system's resolver takes. The outcome is the event
    /// [`AddrInfoResolved`](super::Event::AddrInfoResolved), and [`CmId::query_addrinfo`] has what
    /// was found. Linux 6.18 or newer.
    ///
    /// # Errors
    ///
    /// Names that do not resolve, another lookup under way, an older kernel.
    #[doc(alias("rdma_resolve_addrinfo", "RAI_DNS"))]
    pub fn resolve_addrinfo(&self, query: &AddrInfoQuery) -> Result<()> {
        let operation = "resolve_addrinfo";
        let registry = {
            let state = self.state();
            state.begin_lookup(operation)?;
            check_kernel(operation, &state.channel)?;
            state.channel.registry()
        };
        // Outside the lock: the resolver may ask the network.
        let found = query.resolve_on(registry)?;
        let mut state = self.state();
        state.begin_lookup(operation)?;
        self.write_event(&state, operation, EventType::INTERNAL, NAMES_ARE_RESOLVED)?;
        state.lookup = Lookup::Names(found);
        Ok(())
    }

    /// Begins to look a service up at the administrator of the InfiniBand subnet that the id is
    /// bound to. The outcome is the event [`AddrInfoResolved`](super::Event::AddrInfoResolved), and
    /// [`CmId::query_addrinfo`] has where the service is, or
    /// [`AddrInfoError`](super::Event::AddrInfoError). Linux 6.18 or newer, and InfiniBand.
    ///
    /// # Errors
    ///
    /// An id without a device, another lookup under way, names that are too long, an older kernel,
    /// RoCE and iWARP.
    #[doc(alias("rdma_resolve_addrinfo", "RAI_SA"))]
    pub fn resolve_service(&self, service: Service<'_>) -> Result<()> {
        let operation = "resolve_service";
        let mut state = self.state();
        state.binding(operation)?;
        state.begin_lookup(operation)?;
        let request = ucma::ResolveIbService {
            id: self.handle(),
            ibs: encode(operation, service)?,
            ..Default::default()
        };
        check_kernel(operation, &state.channel)?;
        state
            .call(operation, &request)
            .map_err(explain::resolve_service)?;
        state.lookup = Lookup::Service;
        Ok(())
    }

    /// Takes what was looked up for the id.
    ///
    /// # Errors
    ///
    /// When nothing was looked up, or it is not there yet.
    #[doc(alias = "rdma_query_addrinfo")]
    pub fn query_addrinfo(&self) -> Result<Vec<AddrInfo>> {
        let operation = "query_addrinfo";
        let mut state = self.state();
        state.check_alive(operation)?;
        match std::mem::take(&mut state.lookup) {
            Lookup::Done(found) => Ok(found),
            other => {
                state.lookup = other;
                Err(Error::new(
                    operation,
                    ErrorKind::InvalidState,
                    "nothing was looked up for the id, or the event is not read yet",
                ))
            }
        }
    }

    /// Puts an event of the program's own among those of the id: [`User`](super::Event::User) with
    /// this argument. Linux 6.18 or newer.
    ///
    /// # Errors
    ///
    /// An older kernel.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_user_event(&self, argument: u64) -> Result<()> {
        let operation = "write_cm_event";
        let state = self.state();
        state.check_alive(operation)?;
        check_kernel(operation, &state.channel)?;
        self.write_event(&state, operation, EventType::USER, argument)
    }

    fn write_event(
        &self,
        state: &State,
        operation: &'static str,
        kind: EventType,
        argument: u64,
    ) -> Result<()> {
        let mut request = ucma::WriteCmEvent {
            id: self.handle(),
            event: kind.0,
            ..Default::default()
        };
        // First in the union.
        request.param.as_mut_bytes()[..8].copy_from_slice(&argument.to_ne_bytes());
        state.call(operation, &request).map(drop)
    }

    /// What an event about a lookup comes to; `None` when it is about none.
    pub(super) fn looked_up(
        &self,
        state: &mut State,
        kind: EventType,
        argument: u64,
    ) -> Option<Result<()>> {
        match (kind, std::mem::take(&mut state.lookup)) {
            (EventType::INTERNAL, Lookup::Names(found)) if argument == NAMES_ARE_RESOLVED => {
                state.lookup = Lookup::Done(found);
                Some(Ok(()))
            }
            (EventType::ADDRINFO_RESOLVED, Lookup::Service) => {
                let services = state.channel.services(self.handle());
                let found = services.map_err(|error| Error::from_os("query_addrinfo", &error));
                Some(found.map(|services| {
                    let infos = services.iter().map(|service| self.at_service(service));
                    state.lookup = Lookup::Done(infos.collect());
                }))
            }
            (EventType::ADDRINFO_ERROR, Lookup::Service) => None,
            (_, other) => {
                state.lookup = other;
                None
            }
        }
    }

    /// Where a service is, as what an id is resolved with.
    fn at_service(&self, record: &ucma::IbUserServiceRec) -> AddrInfo {
        let address = IbAddress {
            pkey: record.pkey.get(),
            service_id: record.id.get(),
            service_id_mask: u64::MAX,
            ..IbAddress::for_port(PortSpace::Ib, 0, Gid(record.gid))
        };
        AddrInfo::of_service(self.port_space(), self.qp_type(), address)
    }
}

/// Refuses kernels that do not know the commands. To them an unknown command is EINVAL, as wrong
/// arguments and states are: so they are asked with a command in which nothing can be wrong.
fn check_kernel(operation: &'static str, channel: &EventChannel) -> Result<()> {
    let asked = || channel.knows_lookups();
    match channel.registry().knows_lookups(asked) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::from_errno(operation, libc::EINVAL)
            .of_kind(ErrorKind::NotSupported)
            .because("the kernel does not know this; it takes Linux 6.18 or newer")),
        Err(error) => Err(Error::from_os(operation, &error)),
    }
}

impl EventChannel {
    /// Writes an event for an id that is made for it and destroyed at once, the event with it.
    fn knows_lookups(&self) -> io::Result<bool> {
        let id = self
            .call(&ucma::CreateId {
                // Ids without a cookie have no events. This one stands for nothing.
                uid: u64::MAX,
                ps: ucma::PortSpace::TCP.0,
                qp_type: uverbs::QpType::RC.0,
                ..Default::default()
            })?
            .id;
        let written = self.call(&ucma::WriteCmEvent {
            id,
            event: EventType::USER.0,
            ..Default::default()
        });
        let request = ucma::DestroyId {
            id,
            ..Default::default()
        };
        // As when an id is dropped: what is still refused goes with the channel.
        let _ = self.call(&request).or_else(|_| self.call(&request));
        match written {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl State {
    fn begin_lookup(&self, operation: &'static str) -> Result<()> {
        self.check_alive(operation)?;
        match self.lookup {
            Lookup::None | Lookup::Done(_) => Ok(()),
            Lookup::Service | Lookup::Names(_) => Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "another lookup is under way for the id",
            )),
        }
    }
}

fn encode(operation: &'static str, service: Service<'_>) -> Result<ucma::IbService> {
    let mut request = ucma::IbService::default();
    match service {
        Service::Id(number) => {
            request.service_id = number;
            request.flags = ucma::IbServiceFlags::ID.bits();
        }
        Service::Name(name) => {
            // One byte is for the end.
            let room = request.service_name.len() - 1;
            if name.is_empty() || name.len() > room || name.contains('\0') {
                return Err(Error::invalid(
                    operation,
                    format!("a service name has 1 to {room} bytes, none of them zero"),
                ));
            }
            request.service_name[..name.len()].copy_from_slice(name.as_bytes());
            request.flags = ucma::IbServiceFlags::NAME.bits();
        }
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_within_the_record() {
        let longest = "s".repeat(63);
        let request = encode("test", Service::Name(&longest)).unwrap();
        assert_eq!(request.service_name[62..], *b"s\0");
        assert_eq!(request.flags, 2);
        for name in ["", "a\0b", &"s".repeat(64)] {
            assert!(encode("test", Service::Name(name)).is_err(), "{name:?}");
        }
        let request = encode("test", Service::Id(7)).unwrap();
        assert_eq!((request.service_id, request.flags), (7, 1));
    }
}
