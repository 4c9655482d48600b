//! What kind of card and kernel there is.

use std::net::Ipv4Addr;

/// Properties of the card and of the kernel in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The kernel grants doorbell pages with the context, as kernels without the ioctl object do,
    /// whatever the program can handle.
    pub has_static_uars: bool,
    /// The kernel knows `write()` only: each ioctl is `ENOTTY`. Doorbell pages are static then.
    pub has_write_abi_only: bool,
    /// Bytes of a BlueFlame register, both halves; 0 for none.
    pub bf_reg_size: u32,
    /// Completion format, 0 or 1.
    pub cqe_version: u8,
    /// The port is InfiniBand, not Ethernet.
    pub is_infiniband: bool,
    /// The address of the port, where it is Ethernet.
    pub address: Ipv4Addr,
    /// Violations are told on stderr when they happen.
    pub is_loud: bool,
    /// The first violation ends the process, with its text on stderr.
    pub aborts: bool,
    /// Each request that is executed is told on stderr, with how it ended.
    pub traces: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            has_static_uars: false,
            has_write_abi_only: false,
            bf_reg_size: 512,
            cqe_version: 1,
            is_infiniband: false,
            address: Ipv4Addr::new(10, 9, 0, 1),
            is_loud: false,
            aborts: false,
            traces: false,
        }
    }
}

impl Config {
    /// Reads a list of words that are separated by commas: `static_uars`, `write_abi`, `no_bf`,
    /// `cqe_v0`, `ib_link`, `abort`, `trace`; and `default`, `no_scatter`, `cqe128`, `events`, `srq`, which
    /// are the program's business and change nothing here.
    ///
    /// # Errors
    ///
    /// For any other word, which is the error.
    pub fn from_words(words: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for word in words.split(',').map(str::trim) {
            match word {
                "" | "default" | "no_scatter" | "cqe128" | "events" | "srq" => {}
                "static_uars" => config.has_static_uars = true,
                "write_abi" => {
                    (config.has_write_abi_only, config.has_static_uars) = (true, true);
                }
                "no_bf" => config.bf_reg_size = 0,
                "cqe_v0" => config.cqe_version = 0,
                "ib_link" => config.is_infiniband = true,
                "abort" => config.aborts = true,
                "trace" => config.traces = true,
                unknown => return Err(unknown.to_owned()),
            }
        }
        Ok(config)
    }
}
