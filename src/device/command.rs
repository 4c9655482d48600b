//! Commands that have no ioctl method of their own.
//!
//! The ioctl INVOKE_WRITE carries any of the older write commands. It is used instead of `write()`
//! because the kernel checks the caller's credentials against the opener's on `write()` only, and
//! because the driver's part of the answer gets a buffer of its own. Every kernel since 5.0 has it.

use std::io;

use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Context;
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
        let (response, _): (_, [u8; 0]) = self.command_with_driver_answer(command, request)?;
        Ok(response)
    }

    /// Sends a write command that the driver answers as well.
    pub(crate) fn command_with_driver_answer<Request, Response, DriverResponse>(
        &self,
        command: uverbs::Command,
        request: &Request,
    ) -> io::Result<(Response, DriverResponse)>
    where
        Request: IntoBytes + Immutable,
        Response: FromBytes + IntoBytes,
        DriverResponse: FromBytes + IntoBytes,
    {
        let mut response = Response::new_zeroed();
        let mut driver = DriverResponse::new_zeroed();
        let buffers = Buffers {
            request: request.as_bytes(),
            response: response.as_mut_bytes(),
            driver_request: &[],
            driver_response: driver.as_mut_bytes(),
        };
        self.invoke_write(command, buffers)?;
        Ok((response, driver))
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
        self.command_with_driver_request(command, request, &[0u8; 0])
    }

    /// Sends a write command that is only carried out, with something for the driver.
    pub(crate) fn command_with_driver_request<Request, DriverRequest>(
        &self,
        command: uverbs::Command,
        request: &Request,
        driver: &DriverRequest,
    ) -> io::Result<()>
    where
        Request: IntoBytes + Immutable,
        DriverRequest: IntoBytes + Immutable,
    {
        let buffers = Buffers {
            request: request.as_bytes(),
            response: &mut [],
            driver_request: driver.as_bytes(),
            driver_response: &mut [],
        };
        self.invoke_write(command, buffers)
    }

    fn invoke_write(&self, command: uverbs::Command, buffers: Buffers<'_>) -> io::Result<()> {
        use ioctl::device::invoke_write as id;
        let number = u64::from(command.0).to_ne_bytes();
        let mut attrs = Vec::with_capacity(5);
        attrs.push(Attr::new(id::WRITE_CMD, Value::In(&number)));
        attrs.push(Attr::new(id::CORE_IN, Value::In(buffers.request)));
        if !buffers.response.is_empty() {
            attrs.push(Attr::new(id::CORE_OUT, Value::Out(buffers.response)));
        }
        if !buffers.driver_request.is_empty() {
            attrs.push(Attr::new(ioctl::UHW_IN, Value::In(buffers.driver_request)));
        }
        if !buffers.driver_response.is_empty() {
            attrs.push(Attr::new(
                ioctl::UHW_OUT,
                Value::Out(buffers.driver_response),
            ));
        }
        self.method(
            ioctl::object::DEVICE,
            ioctl::device::INVOKE_WRITE,
            &mut attrs,
        )
    }
}

/// What goes to the kernel and to the driver in it, and room for what they answer. Empty where
/// there is nothing.
struct Buffers<'a> {
    request: &'a [u8],
    response: &'a mut [u8],
    driver_request: &'a [u8],
    driver_response: &'a mut [u8],
}
