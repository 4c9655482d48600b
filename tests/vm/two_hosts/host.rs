//! This host, and what is done to its network.

use std::error::Error;
use std::process::Command;

use crate::environment;
use crate::traffic::interface::Interface;

/// One of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    A,
    B,
}

impl Host {
    /// This one.
    pub fn own() -> Self {
        match environment::host_name().as_str() {
            "A" => Self::A,
            _ => Self::B,
        }
    }
}

/// A wrong link address for the other host, until it is dropped.
pub struct WrongNeighbour {
    interface: String,
}

impl WrongNeighbour {
    pub fn set() -> Result<Self, Box<dyn Error>> {
        let interface = Interface::under_test()?.name;
        let peer = environment::peer_addr().to_string();
        let nobody = "02:00:00:00:00:99";
        ip(&[
            "neigh",
            "replace",
            &peer,
            "lladdr",
            nobody,
            "dev",
            &interface,
            "nud",
            "permanent",
        ])?;
        Ok(Self { interface })
    }
}

impl Drop for WrongNeighbour {
    fn drop(&mut self) {
        let peer = environment::peer_addr().to_string();
        ip(&["neigh", "del", &peer, "dev", &self.interface]).expect("the neighbour is forgotten");
    }
}

/// This host loses some of what it sends, until it is dropped. It goes on receiving.
pub struct Loss {
    interface: String,
}

impl Loss {
    /// Loses so many percent of the packets.
    pub fn begin(percent: u8) -> Result<Self, Box<dyn Error>> {
        let interface = Interface::under_test()?.name;
        let percent = format!("{percent}%");
        run(
            "tc",
            &[
                "qdisc", "replace", "dev", &interface, "root", "netem", "loss", &percent,
            ],
        )?;
        Ok(Self { interface })
    }

    /// Loses all.
    pub fn of_everything() -> Result<Self, Box<dyn Error>> {
        Self::begin(100)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        run("tc", &["qdisc", "del", "dev", &self.interface, "root"]).expect("it sends again");
    }
}

/// Runs ip(8).
pub fn ip(args: &[&str]) -> Result<(), Box<dyn Error>> {
    run("ip", args)
}

fn run(program: &str, args: &[&str]) -> Result<(), Box<dyn Error>> {
    let output = Command::new(program).args(args).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {args:?}: {errors}").into())
        }
    }
}
