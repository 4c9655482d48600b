//! A command as the floors above describe it, with room for what is answered.

use std::io;
use std::os::fd::AsFd;

use rdmacm_kernel_abi::uverbs::ioctl;
use serde_json::Value as Json;

use super::carry_out;
use crate::sys::replay::vectors::{bytes, number};
use crate::sys::{Attr, IoctlCommand, Kernel, Value};

/// The command.
pub(super) struct Described {
    pub object: u16,
    pub method: u16,
    pub attributes: Vec<(u16, Slot)>,
}

/// What an attribute says, or room for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slot {
    In(Vec<u8>),
    Out(Vec<u8>),
    Handle(u32),
    Fd,
    New(u32),
}

impl Described {
    pub(super) fn new(object: u16, method: u16, attributes: &[(u16, Slot)]) -> Self {
        Self {
            object,
            method,
            attributes: attributes.to_vec(),
        }
    }

    /// The command of a recorded ioctl.
    pub(super) fn recorded(command: &Json) -> Self {
        let id = |field: &str| number(&command[field]) as u16;
        let attributes = command["attrs"].as_array().expect("attributes");
        let is_new = number(&command["method"]) == 0;
        let slots = attributes.iter().map(|attribute| {
            let id = number(&attribute["id"]) as u16;
            let slot = match attribute["kind"].as_str().expect("a kind") {
                "idr_or_const" if is_new && id == 0 => Slot::New(0),
                "idr_or_const" => Slot::Handle(number(&attribute["data"]) as u32),
                "in" => Slot::In(vec![0; 8]),
                "in_inline" | "in_ptr" => Slot::In(bytes(&attribute["data"])),
                "out_ptr" => Slot::Out(vec![0; number(&attribute["len"]) as usize]),
                "fd" => Slot::Fd,
                other => panic!("an attribute of the kind {other}"),
            };
            (id, slot)
        });
        Self {
            object: id("object"),
            method: id("method"),
            attributes: slots.collect(),
        }
    }

    /// Says something else in an attribute that is there.
    pub(super) fn set(&mut self, id: u16, slot: Slot) {
        let mut attributes = self.attributes.iter_mut();
        if let Some((_, old)) = attributes.find(|(known, _)| *known == id) {
            *old = slot;
        }
    }

    /// What is in an attribute's room.
    pub(super) fn get(&self, id: u16) -> &Slot {
        let mut attributes = self.attributes.iter();
        let found = attributes.find(|(known, _)| *known == id);
        &found.expect("the attribute").1
    }

    /// Gives the written form another driver's part than the ioctl has, which names other UARs.
    pub(super) fn set_driver_part(&mut self, written: &Json) {
        self.set(ioctl::UHW_IN, Slot::In(bytes(&written["uhw_in"])));
    }

    /// Has it carried out by `write()`.
    pub(super) fn carry_out(&mut self, kernel: &dyn Kernel) -> io::Result<()> {
        let file = std::fs::File::open("/dev/null")?;
        let attributes = self.attributes.iter_mut();
        let mut attrs: Vec<Attr<'_>> = attributes
            .map(|(id, slot)| {
                let value = match slot {
                    Slot::In(bytes) => Value::In(bytes),
                    Slot::Out(room) => Value::Out(room),
                    Slot::Handle(handle) => Value::Handle(*handle),
                    Slot::Fd => Value::Fd(file.as_fd()),
                    Slot::New(handle) => Value::NewHandle(handle),
                };
                Attr::new(*id, value)
            })
            .collect();
        let command = IoctlCommand {
            object: self.object,
            method: self.method,
            driver_id: 1,
            attrs: &mut attrs,
        };
        carry_out(kernel, file.as_fd(), command)
    }
}
