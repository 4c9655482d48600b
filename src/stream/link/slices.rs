//! Several slices in one call.

use std::io;

/// Reads or writes slices, up to the first that is not done as a whole; `step` says how long a slice is,
/// and how much of it was done. What was done before an error is told first, and the next call tells of
/// that.
pub(super) fn one_after_the_other<S>(
    slices: impl IntoIterator<Item = S>,
    mut step: impl FnMut(S) -> (usize, io::Result<Option<usize>>),
) -> io::Result<Option<usize>> {
    let mut all = 0;
    for slice in slices {
        let (whole, outcome) = step(slice);
        let length = match outcome {
            Ok(Some(length)) => length,
            _ if all > 0 => break,
            other => return other,
        };
        all += length;
        if length < whole {
            break;
        }
    }
    Ok(Some(all))
}
