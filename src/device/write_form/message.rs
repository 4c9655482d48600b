//! A written command in bytes: headers, structure, the driver's request.

use std::io;
use std::os::fd::OwnedFd;

use rdmacm_kernel_abi::uverbs::{CMD_FLAG_EXTENDED, CmdHeader, Command, ExCmdHeader};
use zerocopy::IntoBytes;

use super::Destination;
use crate::device::DriverPart;
use crate::sys::WriteCommand;

/// A command with the room for its answer.
pub(in crate::device) struct Message<'a> {
    pub command: Command,
    /// The command's structure. Where it has an answer and is no extended command, it begins with
    /// eight bytes for the answer's address.
    pub request: &'a [u8],
    /// Room for the answer; empty where there is none.
    pub answer: &'a mut [u8],
    pub driver: DriverPart<'a>,
}

impl Message<'_> {
    pub(in crate::device) fn send(self, to: Destination<'_>) -> io::Result<()> {
        self.send_for_descriptor(to, None)
    }

    /// Sends a command that makes a descriptor, whose number is at an offset of the answer.
    pub(super) fn send_for_descriptor(
        self,
        to: Destination<'_>,
        new_fd: Option<(usize, &mut Option<OwnedFd>)>,
    ) -> io::Result<()> {
        let (driver_request, driver_answer, addressed) = match self.driver {
            DriverPart::None => (&[][..], &mut [][..], None),
            DriverPart::Exchange { request, response } => (request, response, None),
            DriverPart::Address(response) => (&[0; 8][..], &mut [][..], Some(response)),
        };
        let is_extended = self.command.0 & CMD_FLAG_EXTENDED != 0;
        let unit = if is_extended { 8 } else { 4 };
        let padded = |length: usize| length.next_multiple_of(unit);

        let structure_at = match is_extended {
            true => size_of::<CmdHeader>() + size_of::<ExCmdHeader>(),
            false => size_of::<CmdHeader>(),
        };
        let driver_at = structure_at + padded(self.request.len());
        let mut bytes = vec![0; driver_at + padded(driver_request.len())];
        bytes[structure_at..][..self.request.len()].copy_from_slice(self.request);
        bytes[driver_at..][..driver_request.len()].copy_from_slice(driver_request);
        // The driver's answer follows at once, wherever the other one ends.
        let driver_answer_at = padded(self.answer.len());
        let mut answers = vec![0; driver_answer_at + padded(driver_answer.len())];

        let words = |length: usize| {
            let words = u16::try_from(length / unit);
            words.map_err(|_| io::Error::from_raw_os_error(libc::EMSGSIZE))
        };
        let (in_bytes, out_bytes) = match is_extended {
            true => (driver_at - structure_at, driver_answer_at),
            false => (bytes.len(), answers.len()),
        };
        let header = CmdHeader {
            command: self.command.0,
            in_words: words(in_bytes)?,
            out_words: words(out_bytes)?,
        };
        let (head, rest) = bytes.split_at_mut(size_of::<CmdHeader>());
        head.copy_from_slice(header.as_bytes());
        let mut address_at = structure_at;
        if is_extended {
            let header = ExCmdHeader {
                provider_in_words: words(padded(driver_request.len()))?,
                provider_out_words: words(padded(driver_answer.len()))?,
                ..Default::default()
            };
            rest[..size_of_val(&header)].copy_from_slice(header.as_bytes());
            address_at = size_of::<CmdHeader>();
        }

        let response = match addressed {
            // No command with such a part has another answer.
            Some(room) => Some((driver_at, room)),
            None if answers.is_empty() => None,
            None => Some((address_at, &mut answers[..])),
        };
        to.kernel.write_command(
            to.fd,
            WriteCommand {
                request: &mut bytes,
                response,
                indirect: None,
                new_fd,
            },
        )?;
        let (answer, from_driver) = answers.split_at(driver_answer_at);
        self.answer.copy_from_slice(&answer[..self.answer.len()]);
        driver_answer.copy_from_slice(&from_driver[..driver_answer.len()]);
        Ok(())
    }
}
