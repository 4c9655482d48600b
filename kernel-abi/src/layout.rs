//! The registry of structure layouts, for comparing this crate with C headers.

/// Where one field of a structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in this crate.
    pub rust: &'static str,
    /// Name in C, `None` where C has no such field (spelled-out padding).
    pub c: Option<&'static str>,
    /// Distance from the start of the structure in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// The layout of one structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name in this crate, with its module.
    pub rust_name: &'static str,
    /// The C type, `None` if no C header declares one.
    pub c_name: Option<&'static str>,
    /// For a member of a C union without a name of its own: its path inside `c_name`.
    pub c_member: Option<&'static str>,
    /// The header that declares it, or the source it was checked against.
    pub header: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// All fields, in order.
    pub fields: &'static [Field],
}

/// A structure with a registered layout.
pub trait Described {
    /// Its layout.
    const LAYOUT: Layout;
}

/// Size of the field a projection selects.
pub(crate) const fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// All registered layouts.
pub fn all() -> impl Iterator<Item = &'static Layout> {
    [
        crate::mlx5::LAYOUTS,
        crate::netlink::LAYOUTS,
        crate::rxe::LAYOUTS,
        crate::siw::LAYOUTS,
        crate::sockaddr::LAYOUTS,
        crate::ucma::LAYOUTS,
        crate::uverbs::LAYOUTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
