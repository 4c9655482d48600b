//! How large a completion queue has to be, and how long its last completions may take.

use std::time::Duration;

use crate::device::Context;
use crate::error::{Error, Result};

/// How long a peer's acknowledgement of what it has received may come after its goodbye: the two go
/// separate ways, and a peer that has what it wants ends the connection at once.
pub(super) const ACKNOWLEDGED_LATE: Duration = Duration::from_millis(200);

/// How long the event of a connection's end may come after the end of its queue pair.
pub(super) const TOLD_LATE: Duration = Duration::from_millis(200);

/// Room for the completions of work queues of these depths. Devices round depths up to a power of
/// two, less one at most.
pub(super) fn completion_room(context: &Context, depths: &[u32]) -> Result<u32> {
    let granted = |depth: u32| (u64::from(depth) + 1).next_power_of_two() - 1;
    let room: u64 = depths.iter().map(|depth| granted(*depth)).sum();
    let most = context.attr()?.max_cqe();
    if room <= u64::from(most) {
        return Ok(room as u32);
    }
    Err(Error::invalid(
        "create_cq",
        format!(
            "work queues of the depths {depths:?} need a completion queue of {room} entries, but {} \
             allows {most}; ask for less depth",
            context.device().name()
        ),
    ))
}
