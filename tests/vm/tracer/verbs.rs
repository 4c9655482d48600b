//! Commands to a verbs device, in any of their forms.

mod ioctl;
mod write;

use std::fmt;

use rdmacm_kernel_abi::uverbs::ioctl::object;
use rdmacm_kernel_abi::uverbs::{self, CMD_FLAG_EXTENDED};

/// What the answer to a command is, to be read when it is there.
pub enum Answer {
    /// The number of the new object, at this address; 0 if it is of no interest.
    At(u64),
    /// An attribute that carries the object's number in both directions, at this address.
    Attribute(u64),
}

/// A command to a verbs device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsCommand {
    /// How it was given.
    pub form: Form,
    /// The kind of object it is about, from [`object`].
    pub object: Option<u16>,
    /// What it does to the object.
    pub action: Action,
    /// The object's number; of a new object known after the command succeeded.
    pub handle: Option<u32>,
}

/// How a command is given, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By `write()`; the number has [`CMD_FLAG_EXTENDED`] set for extended commands.
    Write(u32),
    /// Such a command inside an `ioctl()`.
    InvokeWrite(u32),
    /// A method of an object by `ioctl()`.
    Method(u16, u16),
}

/// What a command does to its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes it.
    Create,
    /// Destroys it.
    Destroy,
    /// Anything else.
    Use,
}

impl VerbsCommand {
    /// Adds what the kernel answered.
    pub fn complete(&mut self, tid: i32, answer: Answer) {
        match answer {
            Answer::At(0) => {}
            Answer::At(address) => self.handle = super::remote::value(tid, address),
            Answer::Attribute(address) => self.handle = ioctl::handle_of(tid, address),
        }
    }

    /// Its name: `DESTROY_QP` and `EX_MODIFY_QP` for commands by `write()`, with `invoke ` before
    /// it inside an `ioctl()`, and `QP.DESTROY` for methods.
    pub fn name(&self) -> String {
        match self.form {
            Form::Write(number) => write_name(number),
            Form::InvokeWrite(number) => format!("invoke {}", write_name(number)),
            Form::Method(object, method) => ioctl::method_name(object, method),
        }
    }

    /// Whether it is this command among those by `write()`, whichever way it came.
    pub fn is(&self, command: uverbs::Command) -> bool {
        match self.form {
            Form::Write(number) | Form::InvokeWrite(number) => number == command.0,
            Form::Method(..) => false,
        }
    }
}

impl fmt::Display for VerbsCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let (Some(object), Some(handle)) = (self.object, self.handle) {
            let arrow = if self.action == Action::Create {
                " ->"
            } else {
                ""
            };
            write!(
                f,
                "{arrow} {} {handle}",
                ioctl::object_name(object).to_lowercase()
            )?;
        }
        Ok(())
    }
}

fn write_name(number: u32) -> String {
    if number & CMD_FLAG_EXTENDED == 0 {
        let name = uverbs::Command(number).name();
        return name.map_or_else(|| format!("COMMAND_{number}"), str::to_owned);
    }
    let number = number & !CMD_FLAG_EXTENDED;
    let name = uverbs::ExCommand(number).name();
    name.map_or_else(
        || format!("EX_COMMAND_{number}"),
        |name| format!("EX_{name}"),
    )
}
pub use ioctl::decode as decode_ioctl;
pub use write::decode as decode_write;
