//! What an id knows, what is looked up for it, and events that the program writes.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};

use rdmacm_kernel_abi::sockaddr::{AF_IB, SockaddrIb, SockaddrStorage};
use rdmacm_kernel_abi::ucma::{self, EventType, IbServiceFlags, QueryOption};
use zerocopy::IntoBytes;

use super::address::encode;
use super::cm::{Answer, Phase, record};
use super::files::FileId;
use super::{Outcome, World};

impl World {
    pub(super) fn query(
        &mut self,
        file: FileId,
        request: &ucma::Query,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::Query, response))?;
        self.alive(file, request.id)?;
        match QueryOption(request.option) {
            QueryOption::ADDR => self.query_addr(request.id, answer),
            QueryOption::GID => self.query_gid(request.id, answer),
            QueryOption::PATH => self.query_path(request.id, answer),
            QueryOption::IB_SERVICE if !self.is_old => self.query_service(request.id, answer),
            _ => Err(libc::ENOSYS),
        }
    }

    fn query_addr(&mut self, handle: u32, answer: &mut Answer<'_>) -> Outcome {
        let id = self.ids.get(handle)?;
        let mut response = ucma::QueryAddrResp::default();
        if let Some(local) = id.local {
            (response.src_addr, response.src_size) = encode(local);
        }
        if let Some(remote) = id.remote {
            (response.dst_addr, response.dst_size) = encode(remote);
        }
        self.add_device(handle, &mut response)?;
        answer.put(&response)
    }

    fn query_gid(&mut self, handle: u32, answer: &mut Answer<'_>) -> Outcome {
        let id = self.ids.get(handle)?;
        let space = id.space;
        let mut response = ucma::QueryAddrResp::default();
        if let Some(local) = id.local {
            (response.src_addr, response.src_size) = ib_form(space, local);
        }
        if let Some(remote) = id.remote {
            (response.dst_addr, response.dst_size) = ib_form(space, remote);
        }
        self.add_device(handle, &mut response)?;
        answer.put(&response)
    }

    /// Without a device the index is 0, which is also a device's.
    fn add_device(&mut self, handle: u32, response: &mut ucma::QueryAddrResp) -> Outcome {
        if let Some(index) = self.ids.get(handle)?.device {
            let device = self.device(index)?;
            response.node_guid = device.guid.into();
            response.port_num = 1;
            response.ibdev_index = index;
        }
        Ok(())
    }

    /// One path, once the route is resolved. Records for which there is no room are left out.
    fn query_path(&mut self, handle: u32, answer: &mut Answer<'_>) -> Outcome {
        let id = self.ids.get(handle)?;
        let has_route = ![Phase::Idle, Phase::Bound, Phase::AddressResolved].contains(&id.phase);
        let (true, Some(local), Some(remote)) = (has_route, id.local, id.remote) else {
            return answer.put(&ucma::QueryPathResp::default());
        };
        let made_up = ucma::PathData {
            flags: 0x2b,
            reserved: 0,
            path_rec: ucma::PathRecord {
                sgid: gid_of(local.ip()),
                dgid: gid_of(remote.ip()),
                tclass: id.options.type_of_service,
                pkey: 0xffff.into(),
                mtu: 0x83,
                ..Default::default()
            },
        };
        let record = id.options.path.unwrap_or(made_up);
        let head = ucma::QueryPathResp {
            num_paths: 1,
            reserved: 0,
        };
        let whole = [head.as_bytes(), record.as_bytes()].concat();
        answer.put(&whole[..whole.len().min(answer.room())])
    }

    /// How many services there are, and as many of them as there is room for.
    fn query_service(&mut self, handle: u32, answer: &mut Answer<'_>) -> Outcome {
        let services = self
            .ids
            .get(handle)?
            .services
            .as_ref()
            .ok_or(libc::ENODATA)?;
        let head = ucma::QueryIbServiceResp {
            num_service_recs: services.len() as u32,
            reserved: 0,
        };
        let (head, record) = (head.as_bytes(), size_of::<ucma::IbUserServiceRec>());
        let that_fit = answer.room().checked_sub(head.len()).ok_or(libc::ENOSPC)? / record;
        let services = &services[..services.len().min(that_fit)];
        answer.put([head, services.as_bytes()].concat().as_slice())
    }

    pub(super) fn resolve_service(
        &mut self,
        file: FileId,
        request: &ucma::ResolveIbService,
    ) -> Outcome {
        let id = self.alive(file, request.id)?;
        let (Some(device), Phase::Bound) = (id.device, id.phase) else {
            return Err(libc::EINVAL);
        };
        if self.device(device)?.protocol != "ib" {
            return Err(libc::EOPNOTSUPP);
        }
        let wanted = &request.ibs;
        let flags = IbServiceFlags::from_bits_retain(wanted.flags);
        if flags.is_empty() || !IbServiceFlags::all().contains(flags) {
            return Err(libc::EINVAL);
        }
        let mut found = self.services.clone();
        found.retain(|service| {
            (!flags.contains(IbServiceFlags::ID) || service.id.get() == wanted.service_id)
                && (!flags.contains(IbServiceFlags::NAME) || service.name == wanted.service_name)
        });
        if found.is_empty() {
            let failed = EventType::ADDRINFO_ERROR;
            self.emit(request.id, failed, -libc::ENODATA, None);
        } else {
            self.ids.get(request.id)?.services = Some(found);
            self.emit(request.id, EventType::ADDRINFO_RESOLVED, 0, None);
        }
        Ok(())
    }

    pub(super) fn write_event(&mut self, file: FileId, request: &ucma::WriteCmEvent) -> Outcome {
        let cookie = self.alive(file, request.id)?.cookie;
        let kind = EventType(request.event);
        if ![EventType::USER, EventType::INTERNAL].contains(&kind) {
            return Err(libc::EINVAL);
        }
        let argument = &request.param[..2];
        let argument: [u32; 2] = argument.try_into().map_err(|_| libc::EINVAL)?;
        let status = request.status.cast_signed();
        self.emit_record(
            request.id,
            record(cookie, request.id, kind, status, Some(&argument)),
        );
        Ok(())
    }
}

fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// An address as InfiniBand has it.
fn ib_form(space: ucma::PortSpace, address: SocketAddr) -> (SockaddrStorage, u16) {
    let encoded = SockaddrIb {
        family: AF_IB,
        pkey: 0xffff.into(),
        flowinfo: 0.into(),
        addr: gid_of(address.ip()),
        sid: (u64::from(space.0) << 16 | u64::from(address.port())).into(),
        sid_mask: u64::MAX.into(),
        scope_id: 0,
    };
    let mut storage = SockaddrStorage::default();
    let encoded = encoded.as_bytes();
    storage.as_mut_bytes()[..encoded.len()].copy_from_slice(encoded);
    (storage, encoded.len() as u16)
}
