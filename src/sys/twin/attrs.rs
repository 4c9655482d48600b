//! Reading and answering the attributes of a uverbs ioctl.

use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Outcome;
use crate::sys::{Attr, Value};

/// What a command gives to the kernel.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'c, 'a>(pub &'c [Attr<'a>]);

impl<'c, 'a> Inputs<'c, 'a> {
    fn value(self, id: u16) -> Option<&'c Value<'a>> {
        self.0
            .iter()
            .find(|attr| attr.id == id)
            .map(|attr| &attr.value)
    }

    pub(super) fn input(self, id: u16) -> Outcome<&'c [u8]> {
        match self.value(id) {
            Some(Value::In(bytes)) => Ok(bytes),
            _ => Err(libc::EINVAL),
        }
    }

    /// An input of a certain type and exactly that size.
    pub(super) fn typed<T: FromBytes>(self, id: u16) -> Outcome<T> {
        T::read_from_bytes(self.input(id)?).map_err(|_| libc::EINVAL)
    }

    /// An input number of 4 or 8 bytes.
    pub(super) fn number(self, id: u16) -> Outcome<u64> {
        let bytes = self.input(id)?;
        match bytes.len() {
            4 => self.typed::<u32>(id).map(u64::from),
            _ => self.typed::<u64>(id),
        }
    }

    pub(super) fn handle(self, id: u16) -> Outcome<u32> {
        match self.value(id) {
            Some(Value::Handle(handle)) => Ok(*handle),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn fd(self, id: u16) -> Option<BorrowedFd<'a>> {
        match self.value(id) {
            Some(Value::Fd(fd)) => Some(*fd),
            _ => None,
        }
    }

    /// Whether a size does not fit the attribute's 16 bits on its way to the kernel.
    pub(super) fn is_too_long(self) -> bool {
        self.0.iter().any(|attr| match &attr.value {
            Value::In(bytes) => bytes.len() > usize::from(u16::MAX),
            Value::Out(bytes) => bytes.len() > usize::from(u16::MAX),
            _ => false,
        })
    }
}

/// What a command has room for.
pub(super) struct Answers<'c, 'a>(pub &'c mut [Attr<'a>]);

impl<'a> Answers<'_, 'a> {
    fn value_mut(&mut self, id: u16) -> Option<&mut Value<'a>> {
        self.0
            .iter_mut()
            .find(|attr| attr.id == id)
            .map(|attr| &mut attr.value)
    }

    /// Room for an answer.
    fn output(&mut self, id: u16) -> Outcome<&mut [u8]> {
        match self.value_mut(id) {
            Some(Value::Out(bytes) | Value::AddressOf(bytes)) => Ok(bytes),
            _ => Err(libc::EINVAL),
        }
    }

    /// Answers with a structure; room for less is an error.
    pub(super) fn put<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        id: u16,
        answer: &T,
    ) -> Outcome {
        let room = self.output(id)?;
        room.get_mut(..size_of_val(answer))
            .ok_or(libc::EINVAL)?
            .copy_from_slice(answer.as_bytes());
        Ok(())
    }

    pub(super) fn put_handle(&mut self, id: u16, handle: u32) -> Outcome {
        match self.value_mut(id) {
            Some(Value::NewHandle(place)) => **place = handle,
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }

    pub(super) fn put_fd(&mut self, id: u16, fd: OwnedFd) -> Outcome {
        match self.value_mut(id) {
            Some(Value::NewFd(place)) => **place = Some(fd),
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }
}
