//! Connection manager ids made with plain writes, to check the harness without the library.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddrV4, SocketAddrV6};

use rdmacm_kernel_abi::sockaddr::{SockaddrIn, SockaddrIn6};
use rdmacm_kernel_abi::{ucma, uverbs};
use zerocopy::{Immutable, IntoBytes};

/// An id with the channel it lives in.
pub struct Id {
    channel: File,
    id: u32,
}

impl Id {
    /// Makes an id and binds it to an address with a free port, which ties it to the device that
    /// has the address.
    pub fn bound_to(addr: IpAddr) -> io::Result<Self> {
        let id = Self::new()?;
        let mut command = ucma::Bind {
            id: id.id,
            ..Default::default()
        };
        let length = match addr {
            IpAddr::V4(ip) => fill(&mut command, &ipv4(SocketAddrV4::new(ip, 0))),
            IpAddr::V6(ip) => fill(&mut command, &ipv6(SocketAddrV6::new(ip, 0, 0, 0))),
        };
        command.addr_size = length;
        id.send(ucma::Command::Bind, &command, 0)?;
        Ok(id)
    }

    fn new() -> io::Result<Self> {
        let channel = File::options()
            .read(true)
            .write(true)
            .open("/dev/infiniband/rdma_cm")?;
        let mut response = ucma::CreateIdResp::default();
        let command = ucma::CreateId {
            response: (&raw mut response).expose_provenance() as u64,
            ps: ucma::PortSpace::TCP.0,
            qp_type: uverbs::QpType::RC.0,
            ..Default::default()
        };
        let mut id = Self { channel, id: 0 };
        id.send(ucma::Command::CreateId, &command, size_of_val(&response))?;
        id.id = response.id;
        Ok(id)
    }

    /// Destroys the id and leaves the channel open.
    pub fn destroy(self) -> io::Result<File> {
        let mut response = ucma::DestroyIdResp::default();
        let command = ucma::DestroyId {
            response: (&raw mut response).expose_provenance() as u64,
            id: self.id,
            ..Default::default()
        };
        self.send(ucma::Command::DestroyId, &command, size_of_val(&response))?;
        Ok(self.channel)
    }

    fn send(
        &self,
        number: ucma::Command,
        command: &(impl IntoBytes + Immutable),
        answer: usize,
    ) -> io::Result<()> {
        let header = ucma::CommandHeader {
            cmd: number as u32,
            in_: size_of_val(command) as u16,
            out: answer as u16,
        };
        let message = [header.as_bytes(), command.as_bytes()].concat();
        (&self.channel).write_all(&message)
    }
}

/// Puts an address into a command and returns its length.
fn fill(command: &mut ucma::Bind, addr: &(impl IntoBytes + Immutable)) -> u16 {
    let bytes = addr.as_bytes();
    command.addr.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    bytes.len() as u16
}

fn ipv4(addr: SocketAddrV4) -> SockaddrIn {
    SockaddrIn {
        family: libc::AF_INET as u16,
        port: addr.port().into(),
        addr: addr.ip().octets(),
        ..Default::default()
    }
}

fn ipv6(addr: SocketAddrV6) -> SockaddrIn6 {
    SockaddrIn6 {
        family: libc::AF_INET6 as u16,
        port: addr.port().into(),
        addr: addr.ip().octets(),
        ..Default::default()
    }
}
