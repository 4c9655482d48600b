//! What the guest tells the tests about itself, in environment variables that `ci/vm` sets.

use std::env;
use std::fs;
use std::net::IpAddr;

use rdmacm::Context;

use crate::harness::Outcome;

const DEVICE: &str = "RDMACM_TEST_DEVICE";
const ADDR: &str = "RDMACM_TEST_ADDR";
const ADDR6: &str = "RDMACM_TEST_ADDR6";
const PLAIN_ADDR: &str = "RDMACM_TEST_PLAIN_ADDR";
const PEER_ADDR: &str = "RDMACM_PEER_ADDR";
const PEER_ADDR6: &str = "RDMACM_PEER_ADDR6";
const HOST_NAME: &str = "VM_NAME";
const FULL: &str = "RDMACM_TEST_FULL";

/// Whether this is a guest with an RDMA device.
pub fn is_guest() -> bool {
    are_set(&[DEVICE, ADDR])
}

/// Whether this is one of two guests on one wire.
pub fn is_one_of_two() -> bool {
    are_set(&[PEER_ADDR, HOST_NAME])
}

fn are_set(names: &[&str]) -> bool {
    names
        .iter()
        .all(|name| env::var(name).is_ok_and(|value| !value.is_empty()))
}

/// Whether the long tests are to run in their full length.
pub fn is_full_run() -> bool {
    env::var_os(FULL).is_some()
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

/// Skips a test for what the device under test has, or has not: "no atomic write".
pub fn skip(what: &str) -> Outcome {
    let driver = context().device().driver();
    Outcome::Skip(format!("{driver} here has {what}"))
}

/// Address of the network device below the RDMA device.
pub fn addr() -> IpAddr {
    address(ADDR)
}

/// IPv6 address of the network device below the RDMA device.
pub fn addr6() -> IpAddr {
    address(ADDR6)
}

/// The addresses under test: an IPv6 one where there is one.
pub fn addresses() -> Vec<IpAddr> {
    match are_set(&[ADDR6]) {
        true => vec![addr(), addr6()],
        false => vec![addr()],
    }
}

/// An address of this machine that no RDMA device has.
pub fn plain_addr() -> IpAddr {
    address(PLAIN_ADDR)
}

/// Of two guests, the other one's address.
pub fn peer_addr() -> IpAddr {
    address(PEER_ADDR)
}

/// Of two guests, the other one's IPv6 address.
pub fn peer_addr6() -> IpAddr {
    address(PEER_ADDR6)
}

/// Of two guests, this one's name: A or B.
pub fn host_name() -> String {
    variable(HOST_NAME)
}

/// The running kernel's version.
pub fn kernel() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel tells it");
    let mut numbers = text.split(['.', '-']).map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    next()
        .zip(next())
        .unwrap_or_else(|| panic!("no version: {text}"))
}

fn address(name: &str) -> IpAddr {
    let text = variable(name);
    text.parse()
        .unwrap_or_else(|error| panic!("{name}={text} is not an IP address: {error}"))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: the tests run in ci/vm"))
}
