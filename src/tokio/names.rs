//! The addresses that a name has.

use std::io;
use std::net::SocketAddr;

use ::tokio::net::{ToSocketAddrs, lookup_host};

use crate::error::{Error, Result};

/// Binds to the first address that can be had.
///
/// # Errors
///
/// That of the last address.
pub(super) async fn first_bound<T>(
    address: impl ToSocketAddrs,
    bind: impl Fn(SocketAddr) -> Result<T>,
) -> io::Result<T> {
    let mut outcome = Err(no_address("bind"));
    for address in lookup_host(address).await? {
        outcome = bind(address);
        if outcome.is_ok() {
            break;
        }
    }
    Ok(outcome?)
}

/// That a name has none.
pub(super) fn no_address(operation: &'static str) -> Error {
    Error::invalid(operation, "the name has no address")
}
