//! Reads the memory and the descriptors of a traced process.

use std::fs;
use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use zerocopy::{FromBytes, IntoBytes};

/// A path or message longer than this is cut off.
const MAX_LENGTH: usize = 4096;

/// The bytes at an address, fewer if the memory ends before.
pub fn bytes(tid: i32, address: u64, length: u64) -> Vec<u8> {
    let mut buffer = vec![0; (length as usize).min(MAX_LENGTH)];
    let read = read_into(tid, address, &mut buffer);
    buffer.truncate(read);
    buffer
}

/// A structure at an address.
pub fn value<T: FromBytes + IntoBytes>(tid: i32, address: u64) -> Option<T> {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    (read_into(tid, address, bytes) == bytes.len()).then_some(value)
}

/// An array at an address.
pub fn values<T: FromBytes + IntoBytes>(tid: i32, address: u64, count: usize) -> Vec<T> {
    let at = |index| address + (index * size_of::<T>()) as u64;
    (0..count)
        .map_while(|index| value(tid, at(index)))
        .collect()
}

/// The string at an address, which ends with a NUL.
pub fn text(tid: i32, address: u64) -> String {
    let bytes = bytes(tid, address, MAX_LENGTH as u64);
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// What a descriptor refers to, as in `/proc`.
pub fn link_of_fd(tid: i32, fd: i32) -> Option<String> {
    let link = fs::read_link(format!("/proc/{tid}/fd/{fd}")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The process that a thread belongs to.
pub fn process_of(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

/// Reads page by page, because the kernel gives nothing of a piece that is not wholly there.
fn read_into(tid: i32, address: u64, buffer: &mut [u8]) -> usize {
    const PAGE: usize = 4096;
    let mut done = 0;
    while done < buffer.len() {
        let base = address.wrapping_add(done as u64) as usize;
        let length = (PAGE - base % PAGE).min(buffer.len() - done);
        let local = &mut [IoSliceMut::new(&mut buffer[done..done + length])];
        let remote = [RemoteIoVec { base, len: length }];
        match process_vm_readv(Pid::from_raw(tid), local, &remote) {
            Ok(read) if read == length => done += read,
            _ => break,
        }
    }
    done
}
