//! Commands that have no ioctl method of their own.
//!
//! The ioctl INVOKE_WRITE carries any of the older write commands. It is used instead of `write()`
//! because the kernel checks the caller's credentials against the opener's on `write()` only, and
//! because the driver's part of the answer gets a buffer of its own. Every kernel since 5.0 has it;
//! where there is none, the command is written after all.

use std::io;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Context;
use super::write_form::Message;
use crate::sys::{Attr, Value};

impl Context {
    /// Sends a write command that has an answer.
    pub(crate) fn command<Request, Response>(
        &self,
        command: uverbs::Command,
        request: &Request,
    ) -> io::Result<Response>
    where
        Request: IntoBytes + Immutable,
        Response: FromBytes + IntoBytes,
    {
        self.command_with_driver(command, request, DriverPart::None)
    }

    /// Sends a write command that has an answer, and of which the driver has a part.
    pub(crate) fn command_with_driver<Request, Response>(
        &self,
        command: uverbs::Command,
        request: &Request,
        driver: DriverPart<'_>,
    ) -> io::Result<Response>
    where
        Request: IntoBytes + Immutable,
        Response: FromBytes + IntoBytes,
    {
        let mut response = Response::new_zeroed();
        self.invoke_write(command, request.as_bytes(), response.as_mut_bytes(), driver)?;
        Ok(response)
    }

    /// Sends a write command that is only carried out.
    pub(crate) fn command_without_answer<Request>(
        &self,
        command: uverbs::Command,
        request: &Request,
    ) -> io::Result<()>
    where
        Request: IntoBytes + Immutable,
    {
        self.invoke_write(command, request.as_bytes(), &mut [], DriverPart::None)
    }

    fn invoke_write(
        &self,
        command: uverbs::Command,
        request: &[u8],
        response: &mut [u8],
        driver: DriverPart<'_>,
    ) -> io::Result<()> {
        use ioctl::device::invoke_write as id;
        if self.is_written() {
            return self.write(Message {
                command,
                request,
                answer: response,
                driver,
            });
        }
        let number = u64::from(command.0).to_ne_bytes();
        let mut attrs = Vec::with_capacity(5);
        attrs.push(Attr::new(id::WRITE_CMD, Value::In(&number)));
        attrs.push(Attr::new(id::CORE_IN, Value::In(request)));
        if !response.is_empty() {
            attrs.push(Attr::new(id::CORE_OUT, Value::Out(response)));
        }
        match driver {
            DriverPart::None => {}
            DriverPart::Exchange { request, response } => {
                if !request.is_empty() {
                    attrs.push(Attr::new(ioctl::UHW_IN, Value::In(request)));
                }
                if !response.is_empty() {
                    attrs.push(Attr::new(ioctl::UHW_OUT, Value::Out(response)));
                }
            }
            DriverPart::Address(response) => {
                attrs.push(Attr::new(ioctl::UHW_IN, Value::AddressOf(response)));
            }
        }
        self.method(
            ioctl::object::DEVICE,
            ioctl::device::INVOKE_WRITE,
            &mut attrs,
        )
    }
}

/// What a command says to the driver of the device, and room for what that answers.
#[derive(Debug)]
pub(crate) enum DriverPart<'a> {
    /// The driver has no part of the command.
    None,
    /// Bytes that go to the driver, and room for its answer. Empty where there is nothing.
    Exchange {
        request: &'a [u8],
        response: &'a mut [u8],
    },
    /// The address of the room for its answer is all that goes to the driver.
    Address(&'a mut [u8]),
}
