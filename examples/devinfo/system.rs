//! What the system tells beside the RDMA interfaces: versions and names of network interfaces.

use std::fs;
use std::path::Path;

use nix::net::if_::if_nameindex;

/// The version of the connection manager's kernel interface.
pub fn connection_manager_abi() -> String {
    abi(Path::new("/sys/class/misc/rdma_cm/abi_version"))
}

/// The version of the device's kernel interface, which is its driver's own.
pub fn device_abi(device: &str) -> String {
    let nodes = fs::read_dir("/sys/class/infiniband_verbs");
    let of_device = nodes.into_iter().flatten().flatten().find(|node| {
        fs::read_to_string(node.path().join("ibdev")).is_ok_and(|name| name.trim() == device)
    });
    match of_device {
        Some(node) => abi(&node.path().join("abi_version")),
        None => "kernel interface unknown".to_owned(),
    }
}

fn abi(file: &Path) -> String {
    match fs::read_to_string(file) {
        Ok(version) => format!("kernel interface version {}", version.trim()),
        Err(_) => "kernel interface unknown".to_owned(),
    }
}

/// The name of a network interface; `None` for 0, which is none.
pub fn interface_name(index: u32) -> Option<String> {
    if index == 0 {
        return None;
    }
    let interfaces = if_nameindex();
    let found = interfaces
        .iter()
        .flat_map(|all| all.iter())
        .find(|found| found.index() == index);
    // One of another network namespace has no name here.
    let name = found.map(|interface| interface.name().to_string_lossy().into_owned());
    Some(name.unwrap_or_else(|| format!("interface {index}")))
}
