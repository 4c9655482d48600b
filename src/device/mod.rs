//! RDMA devices: finding, opening and asking them.
//!
//! [`devices`] lists what the kernel has now. [`Device::open`] gives the [`Context`] through which
//! everything else is made; a process has one context per device, however many parts of it ask.

mod async_event;
mod caps;
mod command;
mod context;
mod discovery;
mod driver_context;
mod event_file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gid;
mod object;
mod port;
mod query;
mod registry;
mod token;
mod write_form;

#[cfg(test)]
mod tests;

use std::fmt;

pub use async_event::{AsyncEvent, AsyncEvents};
pub use caps::{AtomicCapability, DeviceCaps, OdpCaps, OdpOperations};
pub(crate) use command::DriverPart;
pub use context::Context;
pub(crate) use driver_context::{DOORBELL_REGISTERS, UNSHARED_DOORBELL_REGISTERS};
pub(crate) use event_file::EventFile;
pub use gid::{Gid, GidEntry, GidType};
pub(crate) use object::{Kept, KernelObject, ObjectKind};
pub use port::{LinkLayer, Mtu, PhysicalState, PortAttr, PortCaps, PortState};
pub use query::DeviceAttr;
pub(crate) use registry::Registry;
pub use token::{CqToken, QpToken, SrqToken};

use crate::error::{ErrorKind, Result};

/// The RDMA devices that this process can see, in the kernel's order.
///
/// The list is made anew at each call; devices come and go. Devices of all drivers are listed; see
/// [`Device::open`] for those that can be used. A device without its character device (common in
/// containers) is listed and fails to open with an error that says so. Does not block.
///
/// # Errors
///
/// When neither netlink nor sysfs can be asked. No device at all is an empty list.
///
/// ```no_run
/// for device in rdmacm::devices()? {
///     println!("{} ({})", device.name(), device.driver());
/// }
/// # Ok::<(), rdmacm::Error>(())
/// ```
#[doc(alias("rdma_get_devices", "ibv_get_device_list", "rdma_free_devices"))]
pub fn devices() -> Result<Vec<Device>> {
    discovery::list(Registry::of_this_machine())
}

/// Names of the devices with the addresses they serve, for error texts. `None` without a device.
pub(crate) fn served_addresses(registry: &'static Registry) -> Option<String> {
    let devices = discovery::list(registry).unwrap_or_default();
    let described = devices.iter().map(|device| {
        let addresses = match device.open().and_then(|context| context.gids()) {
            Ok(gids) => {
                let ips = gids.iter().filter(|entry| entry.kind == GidType::RoceV2);
                let texts: Vec<String> = ips.map(|entry| entry.gid.to_ip().to_string()).collect();
                texts.join(", ")
            }
            Err(error) if error.kind() == ErrorKind::NotSupported => "not supported yet".to_owned(),
            Err(_) => "cannot be opened".to_owned(),
        };
        format!("{} ({addresses})", device.name())
    });
    let list: Vec<String> = described.collect();
    (!list.is_empty()).then(|| list.join(", "))
}

/// An RDMA device, as it was when it was listed.
#[doc(alias = "ibv_device")]
#[derive(Debug, Clone)]
pub struct Device {
    registry: &'static Registry,
    index: Option<u32>,
    name: String,
    node_guid: u64,
    transport: Transport,
    /// Name of the character device below `/dev/infiniband`, e.g. "uverbs0".
    node: String,
    /// Its device number, when known.
    node_number: Option<u64>,
    driver: Driver,
}

impl Device {
    /// The device's name, e.g. "mlx5_0" or "rxe0".
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's number for the device, which is never used twice; unknown where the kernel
    /// offers no RDMA netlink.
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        self.index
    }

    /// The GUID of the node. Software devices may share one: identify a device by its index.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn node_guid(&self) -> u64 {
        self.node_guid
    }

    /// Which wire protocol family the device speaks.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The kernel driver behind the device.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Opens the device, or joins the context this process already has for it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotSupported`] for every driver but [`Driver::Rxe`] and [`Driver::Siw`]. A missing
    /// node, a lack of permission and a device that is gone each have their own text.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        self.registry.context(self)
    }
}

/// The family of wire protocols of a device.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// InfiniBand.
    InfiniBand,
    /// RoCE: InfiniBand's transport over Ethernet.
    Roce,
    /// iWARP (RDMA over TCP).
    Iwarp,
    /// Anything else, with the kernel's node type.
    Other(u8),
}

impl Transport {
    fn new(node_type: u8, is_ethernet: bool) -> Self {
        use rdmacm_kernel_abi::netlink::NodeType;
        match NodeType(node_type) {
            NodeType::IB_CA | NodeType::IB_SWITCH | NodeType::IB_ROUTER => match is_ethernet {
                true => Self::Roce,
                false => Self::InfiniBand,
            },
            NodeType::RNIC => Self::Iwarp,
            NodeType(other) => Self::Other(other),
        }
    }
}

/// The kernel driver of a device. This crate works with [`Driver::Rxe`] and [`Driver::Siw`] so far.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Driver {
    /// NVIDIA ConnectX (mlx5_ib).
    Mlx5,
    /// Software RoCE.
    Rxe,
    /// Software iWARP.
    Siw,
    /// Any other, with the kernel's driver id.
    Other(u32),
}

impl Driver {
    /// The kernel's number for the driver.
    pub fn id(self) -> u32 {
        use rdmacm_kernel_abi::uverbs::DriverId;
        match self {
            Self::Mlx5 => DriverId::MLX5.0,
            Self::Rxe => DriverId::RXE.0,
            Self::Siw => DriverId::SIW.0,
            Self::Other(id) => id,
        }
    }

    fn from_id(id: u32) -> Self {
        use rdmacm_kernel_abi::uverbs::DriverId;
        match DriverId(id) {
            DriverId::MLX5 => Self::Mlx5,
            DriverId::RXE => Self::Rxe,
            DriverId::SIW => Self::Siw,
            DriverId(other) => Self::Other(other),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mlx5 => f.write_str("mlx5"),
            Self::Rxe => f.write_str("rxe"),
            Self::Siw => f.write_str("siw"),
            Self::Other(id) => write!(f, "driver {id}"),
        }
    }
}
