//! mlx5 devices: what the twin itself does not know is left to a card made of software.
//!
//! The commands go there in the bytes of the real system call, and the card works in a thread of
//! its own, as hardware does. The twin still records the calls, refuses what a test wants refused and
//! changes answers.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs::DriverId;
use rdmacm_mlx5_device::{Card, Config, File};

use super::files::Kind;
use super::{Call, Twin, TwinDevice};
use crate::sys::linux::IoctlPacket;
use crate::sys::{IoctlCommand, Value, WriteCommand};

impl TwinDevice {
    /// An mlx5 device at the address that the card has.
    fn mlx5(config: &Config) -> Self {
        let is_infiniband = config.is_infiniband;
        Self {
            name: "mlx5_0".to_owned(),
            driver: DriverId::MLX5,
            protocol: if is_infiniband { "ib" } else { "roce" },
            ..Self::rxe(7, IpAddr::V4(config.address))
        }
    }
}

impl Twin {
    /// A kernel with one mlx5 card.
    pub(crate) fn with_card(config: Config) -> Arc<Self> {
        let twin = Self::with_devices(vec![TwinDevice::mlx5(&config)]);
        twin.world().card = Some(Card::new(config));
        twin
    }

    /// Takes the card out, once nothing of it is open: its thread ends.
    pub(crate) fn remove_card(&self) {
        let mut world = self.world();
        world.notice_closed();
        world.card = None;
    }

    /// The card.
    pub(crate) fn card(&self) -> Card {
        let world = self.world();
        world.card.clone().expect("a kernel with a card")
    }

    /// The open file of the card behind a descriptor.
    pub(super) fn card_file(&self, fd: BorrowedFd<'_>) -> Option<Arc<File>> {
        let world = self.world();
        match world.files.kind(world.files.find(fd).ok()?) {
            Kind::Card { file, .. } => Some(Arc::clone(file)),
            _ => None,
        }
    }

    /// Whether a descriptor was made by the card: a channel or a stream of events.
    pub(super) fn is_of_card(&self, fd: BorrowedFd<'_>) -> bool {
        let world = self.world();
        world.card.is_some() && world.files.find(fd).is_err()
    }

    /// Carries an ioctl out on the card.
    pub(super) fn card_ioctl(
        &self,
        file: &File,
        mut command: IoctlCommand<'_, '_>,
    ) -> io::Result<()> {
        let call = Call::of_ioctl(&command);
        self.enter(&call, |_| Ok(()))?;
        let mut packet = IoctlPacket::encode(&mut command);
        // SAFETY: the packet is as for the real call, and its pointers are those of the command.
        unsafe { file.ioctl(NonNull::from(&mut packet).cast()) }?;
        packet.decode(command.attrs)?;
        let mut world = self.world();
        for attr in command.attrs.iter_mut() {
            if let Value::Out(answer) = &mut attr.value {
                world.script.change(&call, attr.id, answer);
            }
        }
        Ok(())
    }

    /// Carries a written command out on the card.
    pub(super) fn card_write(&self, file: &File, mut command: WriteCommand<'_>) -> io::Result<()> {
        let call = Call::of_verbs_write(&command);
        self.enter(&call, |_| Ok(()))?;
        command.fill_in();
        // SAFETY: the pointers in the command were just put in, and are those of its slices.
        unsafe { file.write(command.request) }?;
        if let Some((_, answer)) = &mut command.response {
            self.world().script.change(&call, 0, answer);
        }
        // SAFETY: the card has carried the command out just now.
        unsafe { command.adopt() }
    }
}
