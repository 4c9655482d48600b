//! Commands by `ioctl()`: a header and attributes.

use rdmacm_kernel_abi::number::Number;
use rdmacm_kernel_abi::uverbs::ioctl::{self, Attr, Header, device, object};

use super::{Action, Answer, Form, VerbsCommand, write};
use crate::tracer::remote;

/// Commands of the kernel have fewer attributes.
const MAX_ATTRS: usize = 64;

/// The longest request of a command by `write()`.
const MAX_REQUEST: u64 = 512;

/// Decodes what is about to be sent.
pub fn decode(tid: i32, address: u64) -> Option<(VerbsCommand, Answer)> {
    let header: Header = remote::value(tid, address)?;
    let attrs_at = address + size_of::<Header>() as u64;
    let count = usize::from(header.num_attrs).min(MAX_ATTRS);
    let attrs: Vec<Attr> = remote::values(tid, attrs_at, count);
    if (header.object_id, header.method_id) == (object::DEVICE, device::INVOKE_WRITE) {
        return invoke_write(tid, &attrs);
    }
    let form = Form::Method(header.object_id, header.method_id);
    let mut command = VerbsCommand {
        form,
        object: None,
        action: Action::Use,
        handle: None,
    };
    // In every method of an object, attribute 0 names the object: as a handle or as a file, which
    // have no length.
    let own = attrs
        .iter()
        .position(|attr| attr.attr_id == 0 && attr.len == 0);
    let Some(index) = own.filter(|_| header.object_id != object::DEVICE) else {
        return Some((command, Answer::At(0)));
    };
    command.object = Some(header.object_id);
    command.action = action(header.object_id, header.method_id);
    if command.action != Action::Create {
        command.handle = Some(attrs[index].data as u32);
        return Some((command, Answer::At(0)));
    }
    let attr_at = attrs_at + (index * size_of::<Attr>()) as u64;
    Some((command, Answer::Attribute(attr_at)))
}

/// The handle in an attribute, after the kernel filled it in.
pub fn handle_of(tid: i32, address: u64) -> Option<u32> {
    remote::value::<Attr>(tid, address).map(|attr| attr.data as u32)
}

/// A command by `write()` inside an `ioctl()`.
fn invoke_write(tid: i32, attrs: &[Attr]) -> Option<(VerbsCommand, Answer)> {
    let attr = |id| attrs.iter().find(|attr| attr.attr_id == id);
    let number = attr(device::invoke_write::WRITE_CMD)?.data as u32;
    let request = attr(device::invoke_write::CORE_IN).map_or_else(Vec::new, |attr| data(tid, attr));
    let response = attr(device::invoke_write::CORE_OUT).map_or(0, |attr| attr.data);
    Some(write::command(
        Form::InvokeWrite(number),
        number,
        &request,
        response,
    ))
}

/// The data of an input attribute: up to 8 bytes are in the attribute itself.
fn data(tid: i32, attr: &Attr) -> Vec<u8> {
    let length = usize::from(attr.len);
    match length <= size_of_val(&attr.data) {
        true => attr.data.to_ne_bytes()[..length].to_vec(),
        false => remote::bytes(tid, attr.data, u64::from(attr.len).min(MAX_REQUEST)),
    }
}

fn action(object: u16, method: u16) -> Action {
    match method_constant(object, method) {
        Some("CREATE" | "ALLOC" | "REG" | "REG_DMABUF" | "DM_MR_REG") => Action::Create,
        Some("DESTROY" | "FREE") => Action::Destroy,
        _ => Action::Use,
    }
}

/// Name of a method, such as `QP.CREATE`.
pub fn method_name(object: u16, method: u16) -> String {
    let known = method_constant(object, method);
    let method = known.map_or_else(|| format!("METHOD_{method:#x}"), str::to_owned);
    format!("{}.{method}", object_name(object))
}

/// Name of a kind of object, such as `QP`.
pub fn object_name(object: u16) -> String {
    let known = constant("object", "UVERBS_OBJECT_", object);
    known.map_or_else(|| format!("OBJECT_{object:#x}"), str::to_owned)
}

fn method_constant(object: u16, method: u16) -> Option<&'static str> {
    let module = constant("object", "UVERBS_OBJECT_", object)?.to_lowercase();
    constant(&module, "UVERBS_METHOD_", method)
}

/// The Rust name of a constant, by its module, the start of its C name, and its value.
fn constant(module: &str, c_prefix: &str, value: u16) -> Option<&'static str> {
    let is_wanted = |number: &&Number| {
        number.value == u64::from(value)
            && number.c.starts_with(c_prefix)
            && number.rust.rsplit("::").nth(1) == Some(module)
    };
    let found = ioctl::NUMBERS
        .iter()
        .flat_map(|table| table.iter())
        .find(is_wanted)?;
    found.rust.rsplit("::").next()
}
