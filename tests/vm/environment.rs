//! What the guest tells the tests about itself, in environment variables that `ci/vm` sets.

use std::env;
use std::net::IpAddr;

use rdmacm::Context;

const DEVICE: &str = "RDMACM_TEST_DEVICE";
const ADDR: &str = "RDMACM_TEST_ADDR";
const ADDR6: &str = "RDMACM_TEST_ADDR6";
const PLAIN_ADDR: &str = "RDMACM_TEST_PLAIN_ADDR";

/// Whether this is a guest with an RDMA device.
pub fn is_guest() -> bool {
    [DEVICE, ADDR]
        .iter()
        .all(|name| env::var(name).is_ok_and(|value| !value.is_empty()))
}

/// Name of the RDMA device under test.
pub fn device() -> String {
    variable(DEVICE)
}

/// The RDMA device under test, opened.
pub fn context() -> Context {
    let name = device();
    let devices = rdmacm::devices().expect("the devices can be listed");
    let found = devices.into_iter().find(|device| device.name() == name);
    let device = found.unwrap_or_else(|| panic!("there is no device {name}"));
    device
        .open()
        .unwrap_or_else(|error| panic!("{name} does not open: {error}"))
}

/// Address of the network device below the RDMA device.
pub fn addr() -> IpAddr {
    address(ADDR)
}

/// IPv6 address of the network device below the RDMA device.
pub fn addr6() -> IpAddr {
    address(ADDR6)
}

/// An address of this machine that no RDMA device has.
pub fn plain_addr() -> IpAddr {
    address(PLAIN_ADDR)
}

fn address(name: &str) -> IpAddr {
    let text = variable(name);
    text.parse()
        .unwrap_or_else(|error| panic!("{name}={text} is not an IP address: {error}"))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: the tests run in ci/vm"))
}
