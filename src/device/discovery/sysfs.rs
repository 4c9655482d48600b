//! The devices as sysfs tells of them: without their indices, and the driver only by signs.

use std::io;
use std::path::Path;

use rdmacm_kernel_abi::mlx5;

use crate::device::{Device, Driver, Registry, Transport};

/// The devices whose nodes are not `known` yet.
pub(super) fn list(registry: &'static Registry, known: &[&str]) -> io::Result<Vec<Device>> {
    let folder = Path::new("/sys/class/infiniband_verbs");
    let mut nodes = registry.kernel().list_dir(folder)?;
    nodes.retain(|node| node.starts_with("uverbs") && !known.contains(&node.as_str()));
    nodes.sort();
    let devices = nodes
        .into_iter()
        .filter_map(|node| device(registry, folder, node));
    Ok(devices.collect())
}

/// One device; `None` when it goes away while its files are read.
fn device(registry: &'static Registry, folder: &Path, node: String) -> Option<Device> {
    let read = |path: &Path| registry.kernel().read_file(path).ok();
    let own = folder.join(&node);
    let name = read(&own.join("ibdev"))?;
    let device = Path::new("/sys/class/infiniband").join(&name);
    let node_type = read(&device.join("node_type"))?;
    let is_ethernet = read(&device.join("ports/1/link_layer")).as_deref() == Some("Ethernet");
    let guid = read(&device.join("node_guid"))?.replace(':', "");
    let (major, minor) = read(&own.join("dev")).and_then(|dev| {
        let (major, minor) = dev.split_once(':')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    })?;
    Some(Device {
        registry,
        index: None,
        node_guid: u64::from_str_radix(&guid, 16).ok()?,
        transport: Transport::new(
            node_type.split(':').next()?.trim().parse().ok()?,
            is_ethernet,
        ),
        driver: driver(registry, &name, &device.join("device")),
        name,
        node,
        node_number: Some(libc::makedev(major, minor)),
    })
}

/// The driver of a device of this name; `parent` is the device below it. A wrong guess is refused
/// by the kernel at the first command.
fn driver(registry: &'static Registry, name: &str, parent: &Path) -> Driver {
    // Below a device of software is the network card that it sends through, perhaps one of mlx5.
    if let Some(driver) = by_name(&[("rxe", Driver::Rxe), ("siw", Driver::Siw)], name) {
        return driver;
    }
    let link = registry.kernel().read_link(&parent.join("driver"));
    let driver = link.unwrap_or_default();
    let driver = driver.file_name().and_then(|name| name.to_str());
    // A part of a card that is a device of its own has a driver of a longer name.
    if driver.is_some_and(|name| name.starts_with("mlx5_core")) || is_mlx5(registry, parent) {
        return Driver::Mlx5;
    }
    by_name(&[("mlx5", Driver::Mlx5)], name).unwrap_or(Driver::Other(0))
}

fn by_name(known: &[(&str, Driver)], name: &str) -> Option<Driver> {
    let found = known.iter().find(|(prefix, _)| name.starts_with(prefix));
    found.map(|(_, driver)| *driver)
}

/// Whether the device on the PCI bus is one of those that mlx5 drives.
fn is_mlx5(registry: &'static Registry, parent: &Path) -> bool {
    let read = |file: &str| registry.kernel().read_file(&parent.join(file)).ok();
    let numbers = || {
        let number = |file: &str| {
            let text = read(file)?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        Some((number("vendor")?, number("device")?))
    };
    let alias = || pci_numbers(&read("modalias")?);
    numbers().or_else(alias).is_some_and(|(vendor, device)| {
        vendor == u32::from(mlx5::PCI_VENDOR)
            && mlx5::PCI_DEVICES
                .iter()
                .any(|known| u32::from(*known) == device)
    })
}

/// The vendor and the device of an alias like `pci:v000015B3d00001017sv...`.
fn pci_numbers(alias: &str) -> Option<(u32, u32)> {
    let (vendor, rest) = alias.strip_prefix("pci:v")?.split_at_checked(8)?;
    let device = rest.strip_prefix('d')?.get(..8)?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    Some((number(vendor)?, number(device)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::discovery;
    use crate::sys::replay::Replay;

    /// The one device of a machine with these files below the device's folder.
    fn listed(name: &str, files: &[(&str, &str)], links: &[(&str, &str)]) -> Device {
        let kernel = Replay::new([]);
        kernel.add_device(name, "Ethernet");
        let parent = format!("/sys/class/infiniband/{name}/device");
        for (file, text) in files {
            kernel.add_file(&format!("{parent}/{file}"), text);
        }
        for (link, target) in links {
            kernel.add_link(&format!("{parent}/{link}"), target);
        }
        let registry = Registry::of_stand_in(kernel);
        let mut devices = discovery::list(registry).unwrap();
        assert_eq!(devices.len(), 1);
        devices.remove(0)
    }

    #[test]
    fn mlx5_is_known_by_its_driver_its_numbers_or_its_name() {
        let driver = |target| [("driver", target)];
        let card = driver("../../../bus/pci/drivers/mlx5_core");
        let part = driver("../../../../bus/auxiliary/drivers/mlx5_core.sf");
        let alias = [(
            "modalias",
            "pci:v000015B3d0000A2DCsv000015B3sd00000001bc02sc00i00",
        )];
        let numbers = [("vendor", "0x15b3"), ("device", "0x1017")];
        for (name, files, links) in [
            ("net0", &[][..], &card[..]),
            ("net0", &[], &part),
            ("net0", &alias, &[]),
            ("net0", &numbers, &[]),
            ("mlx5_0", &[], &[]),
        ] {
            assert_eq!(listed(name, files, links).driver(), Driver::Mlx5);
        }
    }

    #[test]
    fn other_devices_are_not_taken_for_mlx5() {
        // The vendor's older cards have another driver.
        let older = [("vendor", "0x15b3"), ("device", "0x1003")];
        let other = [("modalias", "pci:v00008086d00001017sv0sd0bc02sc00i00")];
        let broken = [("modalias", "pci:v000015B3d0000é"), ("vendor", "no number")];
        for files in [&older[..], &other, &broken] {
            assert_eq!(listed("net0", files, &[]).driver(), Driver::Other(0));
        }
        let below = [("driver", "../bus/pci/drivers/mlx5_core")];
        assert_eq!(listed("rxe0", &[], &below).driver(), Driver::Rxe);
        assert_eq!(listed("siw0", &[], &below).driver(), Driver::Siw);
    }
}
