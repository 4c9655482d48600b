//! How long the last completions and the end of a connection may take.

use std::time::Duration;

/// How long a peer's acknowledgement of what it has received may come after its goodbye: the two go
/// separate ways, and a peer that has what it wants ends the connection at once.
pub(super) const ACKNOWLEDGED_LATE: Duration = Duration::from_millis(200);

/// How long the event of a connection's end may come after the end of its queue pair.
pub(super) const TOLD_LATE: Duration = Duration::from_millis(200);
