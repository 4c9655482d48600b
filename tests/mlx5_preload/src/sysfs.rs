//! Files that stand for those of sysfs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

use rdmacm_mlx5_device::Card;

/// The file that stands for the device node: a real character device, so that its numbers can be
/// had, which `dev` repeats.
pub(crate) const NODE: &std::ffi::CStr = c"/dev/null";
const NODE_NUMBERS: &str = "1:3";

/// Makes them, and returns the folder that they are in.
pub(crate) fn make(card: &Card) -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("mlx5-device-{}-{count}", std::process::id());
    let root = std::env::temp_dir().join(name);
    let class = root.join("sys/class");
    let put = |path: String, text: &str| {
        let path = class.join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        fs::write(path, format!("{text}\n"))
    };
    let is_infiniband = card.config().is_infiniband;
    let verbs = "infiniband_verbs";
    put(format!("{verbs}/abi_version"), "6")?;
    put(format!("{verbs}/uverbs0/ibdev"), "mlx5_0")?;
    put(format!("{verbs}/uverbs0/dev"), NODE_NUMBERS)?;
    put(format!("{verbs}/uverbs0/abi_version"), "1")?;
    let device = "infiniband/mlx5_0";
    put(format!("{device}/node_type"), "1: CA")?;
    put(format!("{device}/node_guid"), "babe:ef00:0000:0001")?;
    put(format!("{device}/sys_image_guid"), "babe:ef00:0000:0001")?;
    put(format!("{device}/fw_ver"), "16.35.1012")?;
    let modalias = "pci:v000015B3d00001017sv000015B3sd00000001bc02sc00i00";
    put(format!("{device}/device/modalias"), modalias)?;
    let port = format!("{device}/ports/1");
    let link = if is_infiniband {
        "InfiniBand"
    } else {
        "Ethernet"
    };
    put(format!("{port}/link_layer"), link)?;
    put(format!("{port}/state"), "4: ACTIVE")?;
    put(format!("{port}/phys_state"), "5: LinkUp")?;
    put(format!("{port}/pkeys/0"), "0xffff")?;
    for (index, (gid, kind)) in card.gids().into_iter().enumerate() {
        let pair = |pair: &[u8]| format!("{:02x}{:02x}", pair[0], pair[1]);
        let text: Vec<_> = gid.chunks(2).map(pair).collect();
        put(format!("{port}/gids/{index}"), &text.join(":"))?;
        put(format!("{port}/gid_attrs/types/{index}"), kind)?;
        put(format!("{port}/gid_attrs/ndevs/{index}"), "lo")?;
    }
    Ok(root)
}

/// Removes them.
pub(crate) fn remove(root: &Path) {
    // There is nobody to tell.
    let _ = fs::remove_dir_all(root);
}
