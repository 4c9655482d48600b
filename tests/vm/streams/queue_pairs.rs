//! Queue pairs that fail by themselves: no event tells of it, and still all calls that wait end soon.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Instant;

use rdmacm::{RdmaStream, StreamSettings};
use rdmacm_kernel_abi::uverbs::{CmdHeader, Command, ModifyQp, QpAttrMask, QpState};
use zerocopy::IntoBytes;

use super::basics::listen;
use super::hand_made::{HandMade, Key};
use super::killed::{Role, connected_with, end_during, read_when_polled, some, when_polled};
use crate::harness::{Outcome, Test, TestResult, tests};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        while_reading,
        while_writing,
        while_polled,
        while_polled_for_room,
        by_what_the_peer_writes,
        by_where_this_side_writes,
    ]
}

fn while_reading() -> TestResult {
    fail_during(read)
}

fn while_writing() -> TestResult {
    fail_during(write)
}

fn while_polled() -> TestResult {
    fail_during(read_when_polled)
}

fn while_polled_for_room() -> TestResult {
    fail_during(|stream| when_polled(stream, write))
}

fn read(mut stream: &RdmaStream) -> io::Result<()> {
    some(io::Read::read(&mut stream, &mut [0]))
}

fn write(mut stream: &RdmaStream) -> io::Result<()> {
    stream.write(&[1; 10_000]).map(drop)
}

/// Does something over and over until the queue pair fails, with a peer that does nothing.
fn fail_during(act: impl FnMut(&RdmaStream) -> io::Result<()> + Send) -> TestResult {
    let (_peer, stream) = connected_with(Role::Idle)?;
    end_during(&stream, act, fail_all)?;
    Ok(Outcome::Pass)
}

/// Has all queue pairs of this process fail, by commands that the library knows nothing of. Says when.
pub fn fail_all() -> io::Result<Instant> {
    let now = Instant::now();
    let mut failed = 0;
    for device in open_devices()? {
        // SAFETY: The stream under test keeps the device open, and so this descriptor.
        let device = unsafe { BorrowedFd::borrow_raw(device) };
        // The kernel numbers a file's objects from 0 on, and refuses what is no queue pair.
        for handle in 0..100 {
            let command = ModifyQp {
                qp_handle: handle,
                attr_mask: QpAttrMask::STATE.bits(),
                qp_state: QpState::ERR.0,
                ..Default::default()
            };
            let header = CmdHeader {
                command: Command::MODIFY_QP.0,
                in_words: ((size_of::<CmdHeader>() + size_of::<ModifyQp>()) / 4) as u16,
                out_words: 0,
            };
            let message = [header.as_bytes(), command.as_bytes()].concat();
            failed += usize::from(nix::unistd::write(device, &message).is_ok());
        }
    }
    match failed {
        0 => Err(io::Error::other("there is no queue pair")),
        _ => Ok(now),
    }
}

/// The descriptors of this process that are an open RDMA device.
fn open_devices() -> io::Result<Vec<RawFd>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = fs::read_link(entry.path());
        let is_device = |path: &std::path::Path| {
            path.starts_with("/dev/infiniband") && {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().starts_with("uverbs")
            }
        };
        if target.is_ok_and(|path| is_device(&path)) {
            let number = entry.file_name().to_string_lossy().parse();
            found.push(number.map_err(io::Error::other)?);
        }
    }
    Ok(found)
}

/// The device refuses what the peer does, and gives the connection up.
fn by_what_the_peer_writes() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    for act in [read, read_when_polled] {
        let (mut peer, stream) = HandMade::connect(&listener, address, Key::True)?;
        end_during(&stream, act, || peer.write_anywhere())?;
    }
    Ok(Outcome::Pass)
}

/// The peer's device refuses what this side does, since the peer told a wrong key.
fn by_where_this_side_writes() -> TestResult {
    let (listener, address) = listen(&StreamSettings::new())?;
    for act in [read, read_when_polled] {
        let (_peer, stream) = HandMade::connect(&listener, address, Key::False)?;
        end_during(&stream, act, || {
            let now = Instant::now();
            (&stream).write_all(b"x")?;
            Ok(now)
        })?;
    }
    Ok(Outcome::Pass)
}
