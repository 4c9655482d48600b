//! The registry of numeric constants, for comparing this crate with C headers.

/// One numeric constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Name in this crate.
    pub rust: &'static str,
    /// Name in C.
    pub c: &'static str,
    /// The header that declares it, or the source it was checked against.
    pub header: &'static str,
    /// Its value.
    pub value: u64,
}

/// All registered constants.
pub fn all() -> impl Iterator<Item = &'static Number> {
    [
        crate::mlx5::NUMBERS,
        crate::netlink::NUMBERS,
        crate::rxe::NUMBERS,
        crate::siw::NUMBERS,
        crate::sockaddr::NUMBERS,
        crate::ucma::NUMBERS,
        crate::uverbs::NUMBERS,
        crate::uverbs::ioctl::NUMBERS,
    ]
    .into_iter()
    .flatten()
    .flat_map(|table| table.iter())
}
