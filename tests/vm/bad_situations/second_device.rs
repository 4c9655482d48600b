//! Machines with more than one RDMA device.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use rdmacm::{Context, Device, ErrorKind, EventChannel, PortSpace, QpAttr, Result};

use super::{Situation, check, resolved_id};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Plan, expect};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        objects_of_another_device,
        the_source_chooses_the_device,
        a_device_without_its_node_is_no_hindrance,
    ]
}

/// A second device, on the interface that has the address without a device, until it is dropped.
pub struct SecondDevice;

impl SecondDevice {
    pub const INTERFACE: &str = "dummy1";

    /// Its name, which is its driver's with a number.
    pub fn name() -> &'static str {
        match environment::device().starts_with("siw") {
            true => "siw1",
            false => "rxe1",
        }
    }

    pub fn add() -> io::Result<Self> {
        let name = Self::name();
        let kind = name.trim_end_matches('1');
        rdma_link(&["add", name, "type", kind, "netdev", Self::INTERFACE])?;
        Ok(Self)
    }

    fn device(&self) -> Device {
        let devices = rdmacm::devices().expect("the devices can be listed");
        let found = devices
            .into_iter()
            .find(|device| device.name() == Self::name());
        found.expect("it was added")
    }

    pub fn open(&self) -> Result<Context> {
        self.device().open()
    }
}

impl Drop for SecondDevice {
    fn drop(&mut self) {
        rdma_link(&["delete", Self::name()]).expect("the device can be removed");
    }
}

/// Runs `rdma link`.
pub fn rdma_link(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("rdma").arg("link").args(arguments).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}

fn second() -> SecondDevice {
    SecondDevice::add().expect("a second rxe device can be made")
}

/// F61.
const OF_ANOTHER_DEVICE: &[Situation] = &[
    Situation {
        name: "the id's queue pair in another device's protection domain",
        make: || {
            let second = second();
            let pd = second.open()?.default_pd()?;
            let cq = pd.context().completion_queue(4).build()?;
            let attr = QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
            resolved_id()?.create_qp(&attr).map(drop)
        },
        kind: ErrorKind::InvalidInput,
        words: &[
            "the protection domain is on rxe1, the id on rxe0",
            "bind the id to the address of the device",
        ],
    },
    Situation {
        name: "a queue pair that reports to another device's queue",
        make: || {
            let second = second();
            let cq = second.open()?.completion_queue(4).build()?;
            let pd = environment::context().default_pd()?;
            pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))
                .map(drop)
        },
        kind: ErrorKind::InvalidInput,
        words: &["the completion queue is of rxe1, the protection domain of rxe0"],
    },
    Situation {
        name: "a queue that reports to another device's channel",
        make: || {
            let second = second();
            let channel = second.open()?.completion_channel()?;
            let context = environment::context();
            context
                .completion_queue(4)
                .channel(&channel)
                .build()
                .map(drop)
        },
        kind: ErrorKind::InvalidInput,
        words: &["the channel belongs to another device"],
    },
];

fn objects_of_another_device() -> TestResult {
    check(OF_ANOTHER_DEVICE)
}

/// F137: and the address of the device that a program prepared for is how it gets an id there.
fn the_source_chooses_the_device() -> TestResult {
    let second = second();
    let channel = EventChannel::open()?;
    for (source, name) in [
        (environment::addr(), environment::device()),
        (environment::plain_addr(), second.device().name().to_owned()),
    ] {
        let id = channel.create_id(PortSpace::Tcp)?;
        id.resolve_addr(
            Some(SocketAddr::new(source, 0).into()),
            neighbour(source),
            PATIENCE,
        )?;
        expect(&channel, "ADDR_RESOLVED")?;
        assert_eq!(id.context()?.device().name(), name);
        assert_eq!(id.local_addr().map(|local| local.ip()), Some(source));
    }
    Ok(Outcome::Pass)
}

/// Another address of the network.
fn neighbour(ip: IpAddr) -> SocketAddr {
    let IpAddr::V4(ip) = ip else {
        panic!("{ip} is not an IPv4 address")
    };
    let [network @ .., _] = ip.octets();
    let [a, b, c] = network;
    ([a, b, c, 200], 7471).into()
}

/// F113: it is listed, says what is missing when it is opened, and the others work.
fn a_device_without_its_node_is_no_hindrance() -> TestResult {
    let second = second();
    let removed = RemovedNode::new("/dev/infiniband/uverbs1")?;
    let error = second.open().expect_err("the node is missing");
    assert_eq!(error.kind(), ErrorKind::NoDevice);
    for words in ["the kernel has rxe1", "/dev/infiniband/uverbs1 is missing"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    Plan::default().connect()?;
    drop(removed);
    second.open()?;
    Ok(Outcome::Pass)
}

/// A node that is out of its place until this is dropped.
pub struct RemovedNode {
    place: PathBuf,
}

impl RemovedNode {
    pub fn new(place: impl AsRef<Path>) -> io::Result<Self> {
        let place = place.as_ref().to_owned();
        fs::rename(&place, Self::elsewhere(&place))?;
        Ok(Self { place })
    }

    fn elsewhere(place: &Path) -> PathBuf {
        place.with_extension("away")
    }
}

impl Drop for RemovedNode {
    fn drop(&mut self) {
        fs::rename(Self::elsewhere(&self.place), &self.place).expect("the node can be put back");
    }
}
