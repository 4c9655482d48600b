//! Moving ids from one channel to another.

use std::os::fd::{AsFd, AsRawFd};

use rdmacm_kernel_abi::ucma;

use super::{CmId, EventChannel};
use crate::error::{Error, ErrorKind, Result};

impl CmId {
    /// Moves the id to another channel: its events are read there from now on, those included
    /// that wait in the old channel. Does not wait for events that somebody still holds.
    ///
    /// # Errors
    ///
    /// When the id was destroyed or the kernel refuses; for the id of a
    /// [`SyncId`](crate::SyncId) ([`SyncId::into_id`](crate::SyncId::into_id) moves that) or of a
    /// [`Connection`](crate::Connection), which wait for its events.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        let operation = "migrate_id";
        let is_waited_for = {
            let state = self.state();
            state.check_alive(operation)?;
            state.owns_channel
        };
        if is_waited_for {
            return Err(Error::new(
                operation,
                ErrorKind::InvalidState,
                "somebody waits for the id's events: move a SyncId with into_id; a Connection stays",
            ));
        }
        self.move_to(channel)
    }

    /// As [`CmId::migrate`], on behalf of the one that waits.
    pub(crate) fn move_to(&self, channel: &EventChannel) -> Result<()> {
        let operation = "migrate_id";
        let mut state = self.state();
        state.check_alive(operation)?;
        let request = self.migration_from(&state.channel);
        channel
            .call(&request)
            .map_err(|error| Error::from_os(operation, &error))?;
        let former = std::mem::replace(&mut state.channel, channel.clone());
        state.owns_channel = false;
        if state.listening && !state.former.contains(&former) {
            state.former.push(former);
        }
        Ok(())
    }

    /// Brings the new id of a request over to `channel`. The kernel leaves it on the channel that
    /// its listener was on when the request came, though the event moves with the listener.
    pub(super) fn bring_over(&self, new: &Self, channel: &EventChannel) -> Result<()> {
        for former in &self.state().former {
            match channel.call(&new.migration_from(former)) {
                Ok(_) => return Ok(()),
                // The id is not there.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                }
                Err(error) => {
                    // It stays there, where it can be destroyed.
                    new.state().channel = former.clone();
                    return Err(Error::from_os("next_event", &error));
                }
            }
        }
        Ok(())
    }

    fn migration_from(&self, channel: &EventChannel) -> ucma::MigrateId {
        let fd = channel.as_fd().as_raw_fd().cast_unsigned();
        ucma::MigrateId {
            id: self.handle(),
            fd,
            ..Default::default()
        }
    }
}
