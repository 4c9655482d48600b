//! Finds out what a system call is about.

use std::collections::HashMap;

use rdmacm_kernel_abi::uverbs::ioctl::VERBS_IOCTL;
use zerocopy::{FromBytes, IntoBytes};

use super::cm::{self, CmCommand};
use super::event::{Event, Kind};
use super::remote;
use super::syscalls;
use super::target::Target;
use super::verbs;

/// More descriptors than this are not looked at in one `poll()`.
const MAX_POLLED: u64 = 64;

/// What is to be read when a system call has returned.
pub enum Answer {
    /// Nothing.
    None,
    /// The answer to a command to the connection manager.
    Cm(cm::Answer),
    /// The answer to a verbs command.
    Verbs(verbs::Answer),
    /// The descriptor of a new netlink socket of this protocol.
    NetlinkSocket(i32),
}

/// Decodes system calls; remembers which sockets are netlink's.
#[derive(Default)]
pub struct Decoder {
    /// Protocol by the socket's name in `/proc`.
    netlink: HashMap<String, i32>,
}

/// `struct pollfd`.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: i16,
    revents: i16,
}

impl Decoder {
    /// What the call that a thread is about to make is about.
    pub fn enter(&self, tid: i32, syscall: i64, args: [u64; 6]) -> (Kind, Answer) {
        if syscall == libc::SYS_socket && args[0] as i32 == libc::AF_NETLINK {
            let protocol = args[2] as i32;
            return (
                Kind::Device(Target::Netlink(protocol)),
                Answer::NetlinkSocket(protocol),
            );
        }
        let Some(target) = self.target(tid, syscall, args) else {
            return (Kind::Other, Answer::None);
        };
        decode_command(tid, syscall, args, &target).unwrap_or((Kind::Device(target), Answer::None))
    }

    /// Adds to a call that succeeded what the kernel answered.
    pub fn leave(&mut self, event: &mut Event, answer: Answer) {
        match (&mut event.kind, answer) {
            (Kind::Cm(command), Answer::Cm(answer)) => command.complete(event.tid, answer),
            (Kind::Verbs(command), Answer::Verbs(answer)) => command.complete(event.tid, answer),
            (_, Answer::NetlinkSocket(protocol)) => {
                let fd = event.result.and_then(Result::ok).unwrap_or(-1);
                let link = remote::link_of_fd(event.tid, fd as i32);
                self.netlink.extend(link.map(|link| (link, protocol)));
            }
            _ => {}
        }
    }

    /// What the call reaches.
    fn target(&self, tid: i32, syscall: i64, args: [u64; 6]) -> Option<Target> {
        if let Some(index) = syscalls::path_argument(syscall) {
            return Target::from_path(&remote::text(tid, args[index]))
                .or_else(|| self.target_of_stat(tid, syscall, args));
        }
        if syscall == libc::SYS_fcntl && args[1] as i32 == libc::F_GETFD {
            // Rust's library asks this before it closes a file, in builds with debug assertions.
            return None;
        }
        if let Some(index) = syscalls::fd_argument(syscall) {
            return self.target_of_fd(tid, args[index] as i32);
        }
        match syscall {
            libc::SYS_poll | libc::SYS_ppoll => {
                let count = args[1].min(MAX_POLLED) as usize;
                let polled: Vec<PollFd> = remote::values(tid, args[0], count);
                polled
                    .iter()
                    .find_map(|polled| self.target_of_fd(tid, polled.fd))
            }
            _ => None,
        }
    }

    /// `fstat()` is `newfstatat()` with an empty path in newer C libraries.
    fn target_of_stat(&self, tid: i32, syscall: i64, args: [u64; 6]) -> Option<Target> {
        let by_fd = syscall == libc::SYS_newfstatat && args[3] as i32 & libc::AT_EMPTY_PATH != 0;
        by_fd.then(|| self.target_of_fd(tid, args[0] as i32))?
    }

    fn target_of_fd(&self, tid: i32, fd: i32) -> Option<Target> {
        let link = remote::link_of_fd(tid, fd)?;
        let netlink = self
            .netlink
            .get(&link)
            .map(|protocol| Target::Netlink(*protocol));
        netlink.or_else(|| Target::from_path(&link))
    }
}

/// The command in a call to a device node.
fn decode_command(
    tid: i32,
    syscall: i64,
    args: [u64; 6],
    target: &Target,
) -> Option<(Kind, Answer)> {
    let [_, second, third, ..] = args;
    match (target, syscall) {
        (Target::RdmaCm, libc::SYS_write) => {
            let (command, answer) = CmCommand::decode(tid, second, third)?;
            Some((Kind::Cm(command), Answer::Cm(answer)))
        }
        (Target::Uverbs, libc::SYS_write) => {
            let (command, answer) = verbs::decode_write(tid, second, third)?;
            Some((Kind::Verbs(command), Answer::Verbs(answer)))
        }
        (Target::Uverbs, libc::SYS_ioctl) if second as u32 == VERBS_IOCTL => {
            let (command, answer) = verbs::decode_ioctl(tid, third)?;
            Some((Kind::Verbs(command), Answer::Verbs(answer)))
        }
        _ => None,
    }
}
