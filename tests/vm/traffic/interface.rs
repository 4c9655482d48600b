//! The network interface below the device under test.

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
        let address = environment::addr().to_string();
        let shown = ip(&["-o", "addr", "show", "to", &address])?;
        // "2: eth0    inet 10.10.0.1/24 ..."
        let found = shown.split_once(": ").and_then(|(index, rest)| {
            let name = rest.split_whitespace().next()?;
            Some((index.parse().ok()?, name.to_owned()))
        });
        let none = || io::Error::other(format!("no interface has {address}: {shown:?}"));
        let (index, name) = found.ok_or_else(none)?;
        Ok(Self {
            index,
            name,
            gids: environment::context().gids()?,
        })
    }

    /// Its link-local address.
    pub fn link_local(&self) -> io::Result<Ipv6Addr> {
        let mut ips = self.gids.iter().map(|entry| Ipv6Addr::from(entry.gid.0));
        ips.find(Ipv6Addr::is_unicast_link_local)
            .ok_or_else(|| io::Error::other(format!("{} has no link-local address", self.name)))
    }
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

fn change(what: &str, address: IpAddr, interface: &str) -> io::Result<()> {
    ip(&["addr", what, &format!("{address}/24"), "dev", interface]).map(drop)
}

/// What ip(8) prints.
fn ip(arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("ip").args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(io::Error::other(text(&output.stderr))),
    }
}
