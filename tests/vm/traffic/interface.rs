//! The network interface below the device under test.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;

use rdmacm::GidEntry;

use crate::environment;

/// A network interface.
pub struct Interface {
    pub index: u32,
    pub name: String,
    gids: Vec<GidEntry>,
}

impl Interface {
    /// The interface that has the address under test.
    pub fn under_test() -> io::Result<Self> {
        let gids = environment::context().gids()?;
        let own = gids
            .iter()
            .find(|entry| entry.gid.to_ip() == environment::addr());
        let index = own.expect("the address under test has a GID").interface;
        Ok(Self {
            index,
            name: name(index)?,
            gids,
        })
    }

    /// Its link-local address.
    pub fn link_local(&self) -> io::Result<Ipv6Addr> {
        let mut ips = self.gids.iter().map(|entry| Ipv6Addr::from(entry.gid.0));
        ips.find(Ipv6Addr::is_unicast_link_local)
            .ok_or_else(|| io::Error::other(format!("{} has no link-local address", self.name)))
    }
}

fn name(index: u32) -> io::Result<String> {
    for entry in fs::read_dir("/sys/class/net")? {
        let entry = entry?;
        let found = fs::read_to_string(entry.path().join("ifindex"))?;
        if found.trim() == index.to_string() {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Err(io::Error::other(format!(
        "no network interface has the index {index}"
    )))
}

/// One more address of the interface under test, until it is dropped.
pub struct SecondAddress {
    ip: IpAddr,
    interface: String,
}

impl SecondAddress {
    /// Adds an address in the network of the first one.
    pub fn add(ip: &str) -> io::Result<Self> {
        let interface = Interface::under_test()?.name;
        let ip = ip.parse().map_err(io::Error::other)?;
        change("add", ip, &interface)?;
        Ok(Self { ip, interface })
    }

    pub fn ip(&self) -> IpAddr {
        self.ip
    }
}

impl Drop for SecondAddress {
    fn drop(&mut self) {
        change("del", self.ip, &self.interface).expect("the address can be taken back");
    }
}

fn change(what: &str, ip: IpAddr, interface: &str) -> io::Result<()> {
    let arguments = ["addr", what, &format!("{ip}/24"), "dev", interface];
    let output = Command::new("ip").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}
