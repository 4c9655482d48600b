//! Which devices the kernel has: netlink first, then what sysfs alone tells of.

mod sysfs;

use std::io;

use rdmacm_kernel_abi::netlink::{NlAttr, NlMsgHdr, NldevAttr, NldevCommand, NlmFlags, nldev_type};
use zerocopy::{FromBytes, IntoBytes};

use super::{Device, Driver, Registry, Transport};
use crate::error::{Error, ErrorKind, Result};

const OPERATION: &str = "devices";

/// All devices, those that netlink tells of first.
pub(super) fn list(registry: &'static Registry) -> Result<Vec<Device>> {
    let (mut devices, refusal) = match list_by_netlink(registry) {
        Ok(devices) => (devices, None),
        Err(error) if is_shortage(&error) => return Err(Error::from_os(OPERATION, &error)),
        Err(error) => (Vec::new(), Some(error)),
    };
    let known: Vec<&str> = devices.iter().map(|device| &*device.node).collect();
    match (sysfs::list(registry, &known), refusal) {
        // The folder may be that of another namespace, whose devices this process may not open.
        (Ok(others), None) if !others.is_empty() && are_of_one_namespace(registry)? => {}
        (Ok(others), _) => devices.extend(others),
        (Err(error), Some(refusal)) if is_unavailable(&refusal) => match error.kind() {
            // No module is loaded that could have a device.
            io::ErrorKind::NotFound => {}
            _ => {
                return Err(Error::from_os(OPERATION, &error)
                    .because("neither RDMA netlink nor /sys/class/infiniband_verbs can be read"));
            }
        },
        (Err(_), Some(refusal)) => return Err(Error::from_os(OPERATION, &refusal)),
        // The list is that of netlink.
        (Err(_), None) => {}
    }
    Ok(devices)
}

/// The device with this index.
pub(super) fn find(registry: &'static Registry, index: u32) -> Result<Device> {
    let device = match Properties::ask(registry, index) {
        Ok(properties) => properties.into_device(registry),
        Err(error) if is_answer(&error) => None,
        // The list from sysfs has no indices to find it by, except when it is the only one.
        Err(error) if is_unavailable(&error) => {
            let mut list = sysfs::list(registry, &[]).unwrap_or_default();
            if list.len() == 1 { list.pop() } else { None }
        }
        Err(error) => return Err(Error::from_os(OPERATION, &error)),
    };
    device.ok_or_else(|| {
        Error::new(
            OPERATION,
            ErrorKind::NoDevice,
            format!("the device with index {index} is gone, or has no verbs interface"),
        )
    })
}

/// Whether netlink is there and says that the device, or its verbs interface, is not.
fn is_answer(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENODEV | libc::EOPNOTSUPP)
    )
}

/// Whether this process cannot use RDMA netlink at all.
fn is_unavailable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EAFNOSUPPORT
                | libc::EPROTONOSUPPORT
                | libc::EPERM
                | libc::EACCES
                | libc::ECONNREFUSED
                | libc::EAGAIN
        )
    )
}

/// Whether netlink may answer the next time.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EINTR)
    )
}

fn list_by_netlink(registry: &'static Registry) -> io::Result<Vec<Device>> {
    let mut indices = Vec::new();
    let dump = request(NldevCommand::GET, NlmFlags::DUMP, &[]);
    registry.kernel().netlink(&dump, 1, &mut |_, payload| {
        let index = attributes(payload).find(|(kind, _)| *kind == NldevAttr::DEV_INDEX);
        indices.extend(index.and_then(|(_, value)| number::<u32>(value)));
    })?;
    let mut devices = Vec::new();
    for index in indices {
        match Properties::ask(registry, index) {
            Ok(properties) => devices.extend(properties.into_device(registry)),
            // Without verbs, or removed meanwhile: it has no character device.
            Err(error) if is_answer(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(devices)
}

/// Whether each network namespace has its own devices: then netlink tells of all that are to be seen here.
fn are_of_one_namespace(registry: &'static Registry) -> Result<bool> {
    let mut are_shared = None;
    let question = request(NldevCommand::SYS_GET, NlmFlags::empty(), &[]);
    let asked = registry.kernel().netlink(&question, 1, &mut |_, payload| {
        let found = attributes(payload).find(|(kind, _)| *kind == NldevAttr::SYS_NETNS_MODE);
        are_shared = found.and_then(|(_, value)| value.first().map(|shared| *shared != 0));
    });
    match asked {
        Err(error) if is_shortage(&error) => Err(Error::from_os(OPERATION, &error)),
        // A kernel that does not know has no such devices.
        _ => Ok(are_shared == Some(false)),
    }
}

/// What netlink says of a device and its character device.
#[derive(Default)]
struct Properties {
    index: Option<u32>,
    name: Option<String>,
    node_guid: u64,
    node_type: u8,
    protocol: Option<String>,
    node: Option<String>,
    node_number: Option<u64>,
    driver: Option<u32>,
}

impl Properties {
    fn ask(registry: &'static Registry, index: u32) -> io::Result<Self> {
        let mut requests = request(
            NldevCommand::GET,
            NlmFlags::empty(),
            &[(NldevAttr::DEV_INDEX, index.as_bytes())],
        );
        requests.extend(request(
            NldevCommand::GET_CHARDEV,
            NlmFlags::empty(),
            &[
                (NldevAttr::CHARDEV_TYPE, b"uverbs\0"),
                (NldevAttr::DEV_INDEX, index.as_bytes()),
            ],
        ));
        let mut found = Self::default();
        registry
            .kernel()
            .netlink(&requests, 2, &mut |_, payload| found.add(payload))?;
        Ok(found)
    }

    fn add(&mut self, payload: &[u8]) {
        for (kind, value) in attributes(payload) {
            match kind {
                NldevAttr::DEV_INDEX => self.index = number(value),
                NldevAttr::DEV_NAME => self.name = text(value),
                NldevAttr::NODE_GUID => self.node_guid = number(value).unwrap_or(0),
                NldevAttr::DEV_NODE_TYPE => self.node_type = value.first().copied().unwrap_or(0),
                NldevAttr::DEV_PROTOCOL => self.protocol = text(value),
                NldevAttr::CHARDEV_NAME => self.node = text(value),
                NldevAttr::CHARDEV => self.node_number = number(value).map(device_number),
                NldevAttr::UVERBS_DRIVER_ID => self.driver = number(value),
                _ => {}
            }
        }
    }

    fn into_device(self, registry: &'static Registry) -> Option<Device> {
        let is_ethernet = self.protocol.as_deref() == Some("roce");
        Some(Device {
            registry,
            index: Some(self.index?),
            name: self.name?,
            node_guid: self.node_guid,
            transport: Transport::new(self.node_type, is_ethernet),
            node: self.node?,
            node_number: self.node_number,
            driver: Driver::from_id(self.driver?),
        })
    }
}

/// The kernel's encoding of a device number, in the C library's.
fn device_number(encoded: u64) -> u64 {
    let major = encoded >> 8 & 0xfff;
    let minor = encoded & 0xff | encoded >> 12 & 0xfff00;
    libc::makedev(major as u32, minor as u32)
}

fn request(command: NldevCommand, flags: NlmFlags, attributes: &[(NldevAttr, &[u8])]) -> Vec<u8> {
    let mut message = NlMsgHdr {
        nlmsg_type: nldev_type(command),
        nlmsg_flags: (NlmFlags::REQUEST | flags).bits(),
        ..Default::default()
    }
    .as_bytes()
    .to_vec();
    for (kind, value) in attributes {
        let nla_len = (size_of::<NlAttr>() + value.len()) as u16;
        message.extend(
            NlAttr {
                nla_len,
                nla_type: kind.0,
            }
            .as_bytes(),
        );
        message.extend(*value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message
}

/// The attributes of a message; ends at the first malformed one.
fn attributes(mut payload: &[u8]) -> impl Iterator<Item = (NldevAttr, &[u8])> {
    std::iter::from_fn(move || {
        let (header, _) = NlAttr::read_from_prefix(payload).ok()?;
        let length = usize::from(header.nla_len);
        let value = payload.get(size_of::<NlAttr>()..length)?;
        payload = payload.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        // The upper two bits say how the value is encoded; none of ours uses them.
        Some((NldevAttr(header.nla_type & 0x3fff), value))
    })
}

fn number<T: FromBytes>(value: &[u8]) -> Option<T> {
    T::read_from_prefix(value).ok().map(|(number, _)| number)
}

fn text(value: &[u8]) -> Option<String> {
    let end = value
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(value.len());
    String::from_utf8(value[..end].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_device_numbers_with_large_minors() {
        assert_eq!(device_number(0x0a7c), libc::makedev(10, 124));
        assert_eq!(device_number(0x10_0a04), libc::makedev(10, 260));
        assert_eq!(device_number(0xe7c0), libc::makedev(231, 192));
    }

    #[test]
    fn requests_are_padded_and_counted() {
        let message = request(
            NldevCommand::GET_CHARDEV,
            NlmFlags::empty(),
            &[(NldevAttr::CHARDEV_TYPE, b"uverbs\0")],
        );
        assert_eq!(message.len(), 16 + 4 + 8);
        assert_eq!(message[..4], 28u32.to_ne_bytes());
        let parsed: Vec<_> = attributes(&message[16..]).collect();
        assert_eq!(parsed, [(NldevAttr::CHARDEV_TYPE, &b"uverbs\0"[..])]);
    }

    #[test]
    fn malformed_attributes_end_the_list() {
        for garbage in [
            &[][..],
            &[1],
            &[0, 0, 1, 0],
            &[3, 0, 1, 0],
            &[200, 0, 1, 0, 9],
        ] {
            assert_eq!(attributes(garbage).count(), 0, "{garbage:?}");
        }
    }
}
