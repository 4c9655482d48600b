//! Reading and answering the attributes of a command.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rdmacm_kernel_abi::uverbs::{Command, ioctl};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Destination, Message, cannot_be_written};
use crate::device::DriverPart;
use crate::sys::{Attr, Value};

/// The attributes of a command.
pub(super) struct Attributes<'c, 'a>(&'c mut [Attr<'a>]);

impl<'c, 'a> Attributes<'c, 'a> {
    pub(super) fn new(attributes: &'c mut [Attr<'a>]) -> Self {
        Self(attributes)
    }

    /// Refuses attributes for which the written command has no place.
    pub(super) fn allow(&self, known: &[u16]) -> io::Result<()> {
        let mut ids = self.0.iter().map(|attribute| attribute.id);
        match ids.all(|id| known.contains(&id)) {
            true => Ok(()),
            false => Err(cannot_be_written()),
        }
    }

    fn value(&self, id: u16) -> Option<&Value<'a>> {
        let mut attributes = self.0.iter();
        let found = attributes.find(|attribute| attribute.id == id)?;
        Some(&found.value)
    }

    /// An input, zero where it is left out.
    pub(super) fn input<T: FromBytes>(&self, id: u16) -> io::Result<T> {
        match self.value(id) {
            None => Ok(T::new_zeroed()),
            Some(Value::In(bytes)) => T::read_from_bytes(bytes).map_err(|_| malformed()),
            Some(_) => Err(malformed()),
        }
    }

    /// An object, if the attribute is there.
    pub(super) fn handle(&self, id: u16) -> Option<u32> {
        match self.value(id)? {
            Value::Handle(handle) => Some(*handle),
            _ => None,
        }
    }

    /// The number of a descriptor, -1 for none.
    pub(super) fn fd(&self, id: u16) -> i32 {
        match self.value(id) {
            Some(Value::Fd(fd)) => BorrowedFd::as_raw_fd(fd),
            _ => -1,
        }
    }

    /// Sends the written command with the driver's part that the attributes have.
    pub(super) fn send<Request, Answer>(
        &mut self,
        to: Destination<'_>,
        command: Command,
        request: &Request,
    ) -> io::Result<Answer>
    where
        Request: IntoBytes + Immutable,
        Answer: FromBytes + IntoBytes,
    {
        let mut answer = Answer::new_zeroed();
        let (mut driver_request, mut driver_answer) = (&[][..], &mut [][..]);
        for attribute in self.0.iter_mut() {
            match (attribute.id, &mut attribute.value) {
                (ioctl::UHW_IN, Value::In(bytes)) => driver_request = bytes,
                (ioctl::UHW_OUT, Value::Out(room)) => driver_answer = room,
                _ => {}
            }
        }
        Message {
            command,
            request: request.as_bytes(),
            answer: answer.as_mut_bytes(),
            driver: DriverPart::Exchange {
                request: driver_request,
                response: driver_answer,
            },
        }
        .send(to)?;
        Ok(answer)
    }

    /// Puts the handle of the new object into its attribute.
    pub(super) fn put_handle(&mut self, id: u16, new: u32) {
        for attribute in self.0.iter_mut() {
            if let (true, Value::NewHandle(handle)) = (attribute.id == id, &mut attribute.value) {
                **handle = new;
            }
        }
    }

    /// Puts an output into its attribute, if that is there; what it has no room for is left out.
    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, id: u16, output: &T) {
        for attribute in self.0.iter_mut() {
            if let (true, Value::Out(room)) = (attribute.id == id, &mut attribute.value) {
                let bytes = output.as_bytes();
                let length = bytes.len().min(room.len());
                room[..length].copy_from_slice(&bytes[..length]);
            }
        }
    }
}

/// What the kernel answers to an attribute that is not as it should be.
fn malformed() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}
