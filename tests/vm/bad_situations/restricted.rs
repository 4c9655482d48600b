//! Processes that may not do or have everything: as another user, with nodes that are closed to
//! it, with low limits. Each situation is made in a process of its own.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Uid, setuid};
use rdmacm::{Access, ErrorKind, EventChannel, Listener, PortSpace};

use super::second_device::RemovedNode;
use super::{Situation, fresh_id, namespaces};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, any_port};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![limits, without_privileges, closed_nodes, missing_nodes]
}

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Sets a limit of this process.
fn limit(resource: Resource, most: u64) {
    setrlimit(resource, most, most).expect("limits can be lowered");
}

/// F77, F80: root may lock as much as there is, so this is done as another user.
const LIMITS: &[Situation] = &[
    Situation {
        name: "more locked memory than allowed",
        make: || {
            limit(Resource::RLIMIT_MEMLOCK, 1 << 16);
            let pd = environment::context().default_pd()?;
            pd.alloc(1 << 20, Access::LOCAL_WRITE).map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &[
            "reg_mr: ",
            "1048576 bytes cannot be locked",
            "the limit of locked memory is 65536 bytes",
            "ulimit -l",
            "LimitMEMLOCK",
        ],
    },
    Situation {
        name: "a channel more than descriptors",
        make: || {
            limit(Resource::RLIMIT_NOFILE, 3);
            EventChannel::open().map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &[
            "open_event_channel: ",
            "out of file descriptors",
            "ulimit -n",
        ],
    },
    Situation {
        name: "a completion channel more than descriptors",
        make: || {
            let context = environment::context();
            limit(Resource::RLIMIT_NOFILE, 0);
            context.completion_channel().map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &[
            "create_comp_channel: ",
            "out of file descriptors",
            "ulimit -n",
        ],
    },
    Situation {
        name: "an event stream more than descriptors",
        make: || {
            let context = environment::context();
            limit(Resource::RLIMIT_NOFILE, 0);
            context.async_events().map(drop)
        },
        kind: ErrorKind::Kernel,
        words: &["async_events: ", "out of file descriptors", "ulimit -n"],
    },
];

fn limits() -> TestResult {
    check_as(NOBODY, LIMITS)
}

/// F59, F100.
const WITHOUT_PRIVILEGES: &[Situation] = &[Situation {
    name: "a port below 1024",
    make: || fresh_id()?.bind_addr((environment::addr(), 80)),
    kind: ErrorKind::PermissionDenied,
    words: &[
        "bind_addr: ",
        "port 80 needs the privilege CAP_NET_BIND_SERVICE",
    ],
}];

const AFTER_GIVING_THEM_UP: &[Situation] = &[Situation {
    name: "a channel that was opened as another user",
    make: || {
        let id = fresh_id()?;
        setuid(Uid::from_raw(NOBODY)).expect("root may become nobody");
        id.resolve_addr(None, any_port(), PATIENCE)
    },
    kind: ErrorKind::PermissionDenied,
    words: &["resolve_addr: ", "a change of credentials (open a new one)"],
}];

fn without_privileges() -> TestResult {
    check_as(NOBODY, WITHOUT_PRIVILEGES)?;
    check_as(0, AFTER_GIVING_THEM_UP)
}

/// F112: nodes that belong to others.
const CLOSED_NODES: &[Situation] = &[
    Situation {
        name: "no permission on the connection manager's node",
        make: || EventChannel::open().map(drop),
        kind: ErrorKind::PermissionDenied,
        words: &["no permission on /dev/infiniband/rdma_cm", "the group rdma"],
    },
    Situation {
        name: "no permission on the device's node",
        make: || {
            let device = rdmacm::devices()?.remove(0);
            device.open().map(drop)
        },
        kind: ErrorKind::PermissionDenied,
        words: &["no permission on /dev/infiniband/uverbs0", "the group rdma"],
    },
];

/// The same with the connection manager's node open.
const CLOSED_DEVICE: &[Situation] = &[Situation {
    name: "listening without permission on the device's node",
    make: || Listener::bind(any_port()).map(drop),
    kind: ErrorKind::PermissionDenied,
    words: &["no permission on /dev/infiniband/uverbs0", "the group rdma"],
}];

fn closed_nodes() -> TestResult {
    let cm = ClosedNode::new("rdma_cm")?;
    let _device = ClosedNode::new("uverbs0")?;
    check_as(NOBODY, CLOSED_NODES)?;
    drop(cm);
    check_as(NOBODY, CLOSED_DEVICE)
}

/// F112, F141: nodes that a container was not given.
const WITHOUT_CM_NODE: &[Situation] = &[Situation {
    name: "no node of the connection manager",
    make: || EventChannel::open().map(drop),
    kind: ErrorKind::NoDevice,
    words: &[
        "the kernel has a connection manager",
        "the node /dev/infiniband/rdma_cm is missing",
        "in a container",
    ],
}];

const WITHOUT_DEVICE_NODE: &[Situation] = &[Situation {
    name: "resolving to a device without its node",
    make: || {
        let channel = EventChannel::open()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        id.bind_addr(any_port())
    },
    kind: ErrorKind::NoDevice,
    words: &[
        "the kernel has rxe0",
        "/dev/infiniband/uverbs0 is missing",
        "in a container",
    ],
}];

fn missing_nodes() -> TestResult {
    let cm = RemovedNode::new("/dev/infiniband/rdma_cm")?;
    check_as(0, WITHOUT_CM_NODE)?;
    drop(cm);
    let _device = RemovedNode::new("/dev/infiniband/uverbs0")?;
    check_as(0, WITHOUT_DEVICE_NODE)
}

/// A node that only root may use, until this is dropped.
struct ClosedNode {
    path: PathBuf,
    before: fs::Permissions,
}

impl ClosedNode {
    fn new(name: &str) -> io::Result<Self> {
        let path = PathBuf::from("/dev/infiniband").join(name);
        let before = fs::metadata(&path)?.permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { path, before })
    }
}

impl Drop for ClosedNode {
    fn drop(&mut self) {
        fs::set_permissions(&self.path, self.before.clone()).expect("the mode can be set back");
    }
}

/// As [`check`](super::check), with a process of a user's for each situation.
pub(super) fn check_as(user: u32, table: &[Situation]) -> TestResult {
    let mut complaints = String::new();
    for row in table {
        let output = Command::new("/proc/self/exe")
            .args(["situation", row.name])
            .uid(user)
            .gid(user)
            .output()?;
        if !output.status.success() {
            let printed = [output.stdout, output.stderr].concat();
            complaints += &format!("\n{}: {}", row.name, String::from_utf8_lossy(&printed));
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
    Ok(Outcome::Pass)
}

/// Makes one situation and prints what is wrong with its error: `vm situation NAME`.
pub fn run(args: &[String]) -> ExitCode {
    let tables = [
        LIMITS,
        WITHOUT_PRIVILEGES,
        AFTER_GIVING_THEM_UP,
        CLOSED_NODES,
        CLOSED_DEVICE,
        WITHOUT_CM_NODE,
        WITHOUT_DEVICE_NODE,
        namespaces::SHARED,
        namespaces::EXCLUSIVE,
    ];
    let rows = tables.into_iter().flatten();
    let Some(row) = rows
        .into_iter()
        .find(|row| args.first().is_some_and(|name| name == row.name))
    else {
        eprintln!("usage: vm situation NAME");
        return ExitCode::FAILURE;
    };
    match row.complaint() {
        None => ExitCode::SUCCESS,
        Some(complaint) => {
            println!("{complaint}");
            ExitCode::FAILURE
        }
    }
}
