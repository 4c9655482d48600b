//! Comparing commands with those of a recording.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::IntoRawFd;

use rdmacm_kernel_abi::uverbs::{CMD_FLAG_EXTENDED, CmdHeader, Command, ExCmdHeader, ioctl};
use serde_json::Value as Json;
use zerocopy::FromBytes;

use super::vectors::{bytes, number};
use super::{State, some_descriptor};
use crate::sys::{Attr, Value};

/// The bytes of one of the command's fields, those that are masked as zeros.
fn mask(mut field: Vec<u8>, name: &str, masked: &Json) -> Vec<u8> {
    for range in masked.as_array().into_iter().flatten() {
        if range["in"].as_str().is_none_or(|of| of == name) {
            let (at, length) = (number(&range["offset"]), number(&range["len"]));
            for byte in field.iter_mut().skip(at as usize).take(length as usize) {
                *byte = 0;
            }
        }
    }
    field
}

impl State {
    fn compare(
        &mut self,
        command: &Json,
        field: &str,
        ours: Vec<u8>,
        theirs: Vec<u8>,
        mask_of: &Json,
    ) {
        let (ours, theirs) = (mask(ours, field, mask_of), mask(theirs, field, mask_of));
        if ours != theirs {
            let text = format!(
                "{} {field}:\n  {ours:02x?}, not\n  {theirs:02x?}",
                command["name"]
            );
            self.differences.push(text);
        }
    }

    /// Compares a command that is written, on its own or inside an ioctl.
    pub(super) fn compare_written(&mut self, command: &Json, sent: &Written<'_>) -> io::Result<()> {
        if u64::from(sent.command.0) != number(&command["cmd"]) {
            let text = format!("{} was expected, not {:?}", command["name"], sent.command);
            return Err(self.differ(text));
        }
        let masked = &command["masked"];
        let (core, driver) = (bytes(&command["core_in"]), bytes(&command["uhw_in"]));
        self.compare(command, "core_in", sent.request.to_vec(), core, masked);
        self.compare(
            command,
            "uhw_in",
            sent.driver_request.to_vec(),
            driver,
            masked,
        );
        let name = command["name"].as_str().unwrap_or("");
        let rooms = [
            ("core_out_len", sent.answer),
            ("uhw_out_len", sent.driver_answer),
        ];
        for (field, ours) in rooms {
            if ours as u64 != number(&command[field]) {
                let text = format!("{name} {field}: {ours}, not {}", command[field]);
                self.differences.push(text);
            }
        }
        refusal(command)
    }

    /// A written command inside an ioctl.
    pub(super) fn invoke_write(&mut self, attrs: &mut [Attr<'_>]) -> io::Result<()> {
        use ioctl::device::invoke_write as id;
        let mut sent = Written::default();
        let (mut core, mut driver) = (&mut [][..], &mut [][..]);
        for attr in attrs.iter_mut() {
            match (attr.id, &mut attr.value) {
                (id::WRITE_CMD, Value::In(bytes)) => {
                    let number = u64::read_from_bytes(bytes).expect("eight bytes");
                    sent.command = Command(number as u32);
                }
                (id::CORE_IN, Value::In(bytes)) => sent.request = bytes,
                (ioctl::UHW_IN, Value::In(bytes)) => sent.driver_request = bytes,
                (id::CORE_OUT, Value::Out(room)) => core = room,
                (ioctl::UHW_OUT, Value::Out(room)) => driver = room,
                (id, _) => panic!("attribute {id} of INVOKE_WRITE"),
            }
        }
        (sent.answer, sent.driver_answer) = (core.len(), driver.len());
        let what = format!("{:?} in an ioctl", sent.command);
        let recorded = self.next(&what, |next| next["via"] == "ioctl_invoke_write")?;
        self.compare_written(&recorded, &sent)?;
        fill(driver, &recorded["uhw_out"]);
        answer_core(sent.command, core, &recorded);
        Ok(())
    }

    /// Compares the attributes of a command, in any order.
    pub(super) fn compare_attributes(&mut self, command: &Json, attrs: &[Attr<'_>]) {
        let recorded = command["attrs"].as_array().expect("attributes");
        let ids = |ids: &mut dyn Iterator<Item = u64>| ids.collect::<BTreeSet<u64>>();
        let ours = ids(&mut attrs.iter().map(|attr| attr.id.into()));
        let theirs = ids(&mut recorded.iter().map(|attr| number(&attr["id"])));
        if ours != theirs {
            let text = format!("{} has {ours:?}, not {theirs:?}", command["name"]);
            self.differences.push(text);
        }
        for attr in attrs {
            let Some(recorded) = recorded.iter().find(|one| one["id"] == attr.id) else {
                continue;
            };
            let field = format!("attribute {}", attr.id);
            let is_as_recorded = match &attr.value {
                Value::In(_) if recorded["data"] == "USER_HANDLE" => true,
                Value::In(input) => {
                    let theirs = bytes(&recorded["data"]);
                    self.compare(command, &field, input.to_vec(), theirs, &recorded["masked"]);
                    true
                }
                Value::Out(room) => room.len() as u64 == number(&recorded["len"]),
                Value::Handle(handle) => recorded["data"] == *handle,
                Value::Fd(_) => recorded["kind"] == "fd",
                Value::NewHandle(_) | Value::NewFd(_) => recorded["kind"] == "idr_or_const",
                Value::AddressOf(_) => false,
            };
            if !is_as_recorded {
                let text = format!("{} {field} is not {recorded}", command["name"]);
                self.differences.push(text);
            }
        }
    }
}

/// A written command in parts; the lengths of the room for answers.
#[derive(Default)]
pub(super) struct Written<'a> {
    pub command: Command,
    pub request: &'a [u8],
    pub driver_request: &'a [u8],
    pub answer: usize,
    pub driver_answer: usize,
}

impl<'a> Written<'a> {
    /// Takes a command apart. The recording says how long its structures are, which the headers of
    /// older commands do not. `None` when the counts do not add up.
    pub(super) fn parse(bytes: &'a [u8], room: usize, recorded: &Json) -> Option<Self> {
        let (header, rest) = CmdHeader::read_from_prefix(bytes).ok()?;
        let (in_words, out_words) = (usize::from(header.in_words), usize::from(header.out_words));
        let command = Command(header.command);
        if header.command & CMD_FLAG_EXTENDED != 0 {
            let (ex, rest) = ExCmdHeader::read_from_prefix(rest).ok()?;
            let (request, driver_request) = rest.split_at_checked(in_words * 8)?;
            let driver_answer = usize::from(ex.provider_out_words) * 8;
            let adds_up = driver_request.len() == usize::from(ex.provider_in_words) * 8
                && room == out_words * 8 + driver_answer;
            return adds_up.then_some(Self {
                command,
                request,
                driver_request,
                answer: out_words * 8,
                driver_answer,
            });
        }
        let (request, driver_request) = rest.split_at_checked(bytes_of(recorded, "core_in"))?;
        let answer = room.min(number(&recorded["core_out_len"]) as usize);
        let adds_up = in_words * 4 == bytes.len() && out_words * 4 == room;
        adds_up.then_some(Self {
            command,
            request,
            driver_request,
            answer,
            driver_answer: room - answer,
        })
    }
}

fn bytes_of(recorded: &Json, field: &str) -> usize {
    recorded[field].as_str().unwrap_or("").len() / 2
}

/// The errno with which the command was refused.
pub(super) fn refusal(command: &Json) -> io::Result<()> {
    match command["rc"].as_i64() {
        None | Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno as i32)),
    }
}

pub(super) fn fill(room: &mut [u8], recorded: &Json) {
    let answer = bytes(recorded);
    let length = room.len().min(answer.len());
    room[..length].copy_from_slice(&answer[..length]);
}

/// Puts the core's answer into its room. Descriptors, which no recording can keep, are new ones.
pub(super) fn answer_core(command: Command, room: &mut [u8], recorded: &Json) {
    fill(room, &recorded["core_out"]);
    match command {
        // The first number goes another way.
        Command::GET_CONTEXT => room[4..8].copy_from_slice(&8u32.to_ne_bytes()),
        Command::CREATE_COMP_CHANNEL => {
            let fd = some_descriptor().into_raw_fd();
            room[..4].copy_from_slice(&fd.to_ne_bytes());
        }
        _ => {}
    }
}

/// Answers the attributes as they were answered in the recording.
pub(super) fn answer_attributes(command: &Json, attrs: &mut [Attr<'_>]) {
    let recorded = command["attrs"].as_array().expect("attributes");
    for attr in attrs {
        let Some(recorded) = recorded.iter().find(|one| one["id"] == attr.id) else {
            continue;
        };
        match &mut attr.value {
            Value::Out(room) => fill(room, &recorded["answer"]),
            Value::NewHandle(handle) => **handle = number(&recorded["data"]) as u32,
            Value::NewFd(fd) => **fd = Some(some_descriptor()),
            _ => {}
        }
    }
}
