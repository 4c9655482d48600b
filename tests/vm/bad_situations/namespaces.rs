//! Processes in a network namespace of their own, as containers have one.

use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use rdmacm::{ErrorKind, Listener};

use super::restricted::check_as;
use super::{Situation, fresh_id};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![devices_of_all_namespaces, devices_of_one_namespace]
}

/// Gives this process a network namespace, in which there is nothing but a loopback interface.
fn enter_namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("root may make a network namespace");
}

/// As [`enter_namespace`], with an interface, which no RDMA device belongs to.
fn enter_with_interface() {
    enter_namespace();
    for command in [
        "link add dummy9 type dummy",
        "addr add 10.90.0.1/24 dev dummy9",
        "link set dummy9 up",
    ] {
        run("ip", command).expect("the interface can be made");
    }
}

fn run(program: &str, arguments: &str) -> io::Result<()> {
    let output = Command::new(program).args(arguments.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

/// F114: all namespaces see the devices, which is how the kernel begins. Addresses are a namespace's own.
pub(super) const SHARED: &[Situation] = &[
    Situation {
        name: "to an address that another namespace leads to",
        make: || {
            enter_namespace();
            assert_eq!(rdmacm::devices()?.len(), 1);
            fresh_id()?.resolve_addr(None, any_port(), PATIENCE)
        },
        kind: ErrorKind::Unreachable,
        words: &["no route leads to 10.10.0.1"],
    },
    Situation {
        name: "at an address of another namespace",
        make: || {
            enter_namespace();
            Listener::bind(any_port()).map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &["10.10.0.1 is not an address of this machine"],
    },
    Situation {
        name: "at an address of a namespace without a device",
        make: || {
            enter_with_interface();
            Listener::bind(("10.90.0.1", 0)).map(drop)
        },
        kind: ErrorKind::NoDevice,
        words: &["10.90.0.1"],
    },
];

fn devices_of_all_namespaces() -> TestResult {
    check_as(0, SHARED)
}

/// F114: each namespace sees its own devices. That of the tests has the only one.
pub(super) const EXCLUSIVE: &[Situation] = &[
    Situation {
        name: "where a namespace has no device",
        make: || {
            enter_with_interface();
            assert!(rdmacm::devices()?.is_empty());
            Listener::bind(("10.90.0.1", 0)).map(drop)
        },
        kind: ErrorKind::NoDevice,
        words: &["10.90.0.1"],
    },
    Situation {
        name: "a device that was listed before its namespace was left",
        make: || {
            let device = rdmacm::devices()?.remove(0);
            enter_namespace();
            device.open().map(drop)
        },
        kind: ErrorKind::PermissionDenied,
        words: &["is of another network namespace", "rdma system"],
    },
];

/// While this is held, devices are of one namespace.
struct Exclusive;

impl Exclusive {
    /// The kernel takes a while to remove namespaces, and refuses while there is one.
    fn new() -> io::Result<Self> {
        let start = Instant::now();
        loop {
            match run("rdma", "system set netns exclusive") {
                Err(_) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(50)),
                outcome => return outcome.map(|()| Self),
            }
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let start = Instant::now();
        while let Err(error) = run("rdma", "system set netns shared") {
            if start.elapsed() > PATIENCE {
                println!("namespaces keep their devices: {error}");
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn devices_of_one_namespace() -> TestResult {
    let _exclusive = Exclusive::new()?;
    check_as(0, EXCLUSIVE)?;
    // The tests' own namespace has it as before.
    assert_eq!(rdmacm::devices()?.len(), 1);
    environment::context().default_pd()?;
    Listener::bind(any_port())?;
    Ok(Outcome::Pass)
}
