//! Machines without RDMA. Each needs a guest of its own, in which the subcommand is the test:
//!
//! ```text
//! ci/vm --device none  --file VM:/opt/vm -- /opt/vm without device
//! ci/vm --modules none --file VM:/opt/vm -- /opt/vm without modules
//! ```

use std::process::ExitCode;

use rdmacm::{Connector, ErrorKind, EventChannel, Listener};

use super::Situation;
use crate::pair::any_port;

/// F112, F141: the modules are there, a device is not.
const WITHOUT_DEVICE: &[Situation] = &[
    Situation {
        name: "listen without a device",
        make: || Listener::bind(any_port()).map(drop),
        kind: ErrorKind::NoDevice,
        words: &["no RDMA device serves", "this machine has no RDMA device"],
    },
    Situation {
        name: "connect without a device",
        make: || Connector::new().connect((any_port().ip(), 7471)).map(drop),
        kind: ErrorKind::NoDevice,
        words: &[
            "is not reached through an RDMA device",
            "this machine has no RDMA device",
        ],
    },
];

/// F112, F141: nor are the modules.
const WITHOUT_MODULES: &[Situation] = &[
    Situation {
        name: "open a channel without the connection manager",
        make: || EventChannel::open().map(drop),
        kind: ErrorKind::NoDevice,
        words: &[
            "the kernel has no RDMA connection manager",
            "modprobe rdma_ucm",
        ],
    },
    Situation {
        name: "listen without the connection manager",
        make: || Listener::bind(any_port()).map(drop),
        kind: ErrorKind::NoDevice,
        words: &[
            "the kernel has no RDMA connection manager",
            "modprobe rdma_ucm",
        ],
    },
    Situation {
        name: "connect without the connection manager",
        make: || Connector::new().connect((any_port().ip(), 7471)).map(drop),
        kind: ErrorKind::NoDevice,
        words: &[
            "the kernel has no RDMA connection manager",
            "modprobe rdma_ucm",
        ],
    },
];

/// Makes the situations of a guest: `vm without device|modules`.
pub fn run(args: &[String]) -> ExitCode {
    let table = match args.first().map(String::as_str) {
        Some("device") => WITHOUT_DEVICE,
        Some("modules") => WITHOUT_MODULES,
        _ => {
            eprintln!("usage: vm without device|modules");
            return ExitCode::FAILURE;
        }
    };
    let devices = rdmacm::devices().map(|devices| devices.len());
    println!("devices: {devices:?}");
    let mut is_right = devices == Ok(0);
    for row in table {
        let complaint = row.complaint();
        is_right &= complaint.is_none();
        println!("{}: {}", row.name, complaint.as_deref().unwrap_or("ok"));
    }
    match is_right {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
