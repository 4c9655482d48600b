//! Macros that declare or describe an item and register it in one step.
//!
//! All of them expect a constant `HEADER` in the scope of the call: the C header the item comes
//! from.

/// Asserts the layout of a structure at compile time and registers it.
///
/// `layout!(Name, "struct c_name", size, { field: offset, ... })`. A field named differently in C
/// is written `field = "c name": offset`, one that C does not have `field = -: offset`. The C type
/// is `-` if no C header declares one; `"struct c_name" . "path"` names a member of it that has no
/// type name of its own.
macro_rules! layout {
    ($name:ident, $c:tt $(. $member:literal)?, $size:literal, {
        $($field:ident $(= $c_field:tt)? : $offset:literal),* $(,)?
    }) => {
        impl $crate::layout::Described for $name {
            const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                rust_name: concat!(module_path!(), "::", stringify!($name)),
                c_name: c_name!($c),
                c_member: layout!(@member $($member)?),
                header: HEADER,
                size: size_of::<$name>(),
                fields: &[$($crate::layout::Field {
                    rust: stringify!($field),
                    c: c_name!(@field $field $($c_field)?),
                    offset: core::mem::offset_of!($name, $field),
                    size: $crate::layout::field_size(|s: &$name| &s.$field),
                }),*],
            };
        }
        const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            $(assert!(
                core::mem::offset_of!($name, $field) == $offset,
                concat!("offset of ", stringify!($name), ".", stringify!($field)),
            );)*
            let mut sum = 0;
            $(sum += $crate::layout::field_size(|s: &$name| &s.$field);)*
            assert!(sum == $size, concat!("field missing in layout of ", stringify!($name)));
        };
    };
    (@member) => { None };
    (@member $member:literal) => { Some($member) };
}

/// The optional C name in a [`layout!`].
macro_rules! c_name {
    (-) => {
        None
    };
    ($c:literal) => {
        Some($c)
    };
    (@field $field:ident) => {
        Some(stringify!($field))
    };
    (@field $field:ident $c:tt) => {
        c_name!($c)
    };
}

/// The list of layouts of a module.
macro_rules! layouts {
    ($($name:path),* $(,)?) => {
        /// Layouts of the structures of this module.
        pub const LAYOUTS: &[&$crate::layout::Layout] =
            &[$(&<$name as $crate::layout::Described>::LAYOUT),*];
    };
}

/// The list of number tables of a module.
macro_rules! numbers {
    ($($table:expr),* $(,)?) => {
        /// Tables of the numeric constants of this module.
        pub const NUMBERS: &[&[$crate::number::Number]] = &[$($table),*];
    };
}

/// `Default` as all zeros, for structures whose arrays are too long for the derive.
macro_rules! zeroed_default {
    ($($name:ident),* $(,)?) => {
        $(impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        })*
    };
}

/// The C name of a constant: the prefix with its Rust name, unless one is given.
macro_rules! c_const {
    ($prefix:literal, $name:ident) => {
        concat!($prefix, stringify!($name))
    };
    ($prefix:literal, $name:ident, $c:literal) => {
        $c
    };
}

/// The header of a constant: the one in scope, unless another is named.
macro_rules! header {
    () => {
        HEADER
    };
    ($header:ident) => {
        $header
    };
}

/// Declares constants and a table of them: `TABLE: type, "C_PREFIX_" { NAME = value, ... }`.
///
/// The C name is the prefix followed by the Rust name unless `NAME = value => "C_NAME"` says
/// otherwise.
macro_rules! constants {
    ($table:ident: $type:ty, $prefix:literal {
        $($(#[$meta:meta])* $name:ident = $value:expr $(=> $c:literal)?),* $(,)?
    }) => {
        $(
            #[doc = concat!("`", c_const!($prefix, $name $(, $c)?), "`.")]
            #[doc = ""]
            $(#[$meta])*
            pub const $name: $type = $value;
        )*
        /// The constants above with their C names.
        pub(crate) const $table: &[$crate::number::Number] = &[$($crate::number::Number {
            rust: concat!(module_path!(), "::", stringify!($name)),
            c: c_const!($prefix, $name $(, $c)?),
            header: HEADER,
            value: $name as u64,
        }),*];
    };
}

/// Declares a number the kernel may extend at any time: a newtype with associated constants, so
/// that unknown values remain representable. `NAME = value => "C_NAME" in CONSTANT` takes the
/// header from another constant than `HEADER`.
macro_rules! open_enum {
    ($(#[$outer:meta])* pub struct $type:ident($repr:ty), $prefix:literal {
        $(
            $(#[$meta:meta])*
            $name:ident = $value:expr $(=> $c:literal $(in $header:ident)?)?
        ),* $(,)?
    }) => {
        $(#[$outer])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $type(
            /// The kernel's number.
            pub $repr,
        );

        impl $type {
            $(
                #[doc = concat!("`", c_const!($prefix, $name $(, $c)?), "`.")]
                #[doc = ""]
                $(#[$meta])*
                pub const $name: Self = Self($value);
            )*
            /// The known values with their C names.
            pub const NUMBERS: &'static [$crate::number::Number] = &[$($crate::number::Number {
                rust: concat!(module_path!(), "::", stringify!($type), "::", stringify!($name)),
                c: c_const!($prefix, $name $(, $c)?),
                header: header!($($($header)?)?),
                value: Self::$name.0 as u64,
            }),*];

            /// Name of a known value, without the C prefix.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($type), "({})"), self.0),
                }
            }
        }
    };
}

/// Declares a set of flag bits that keeps bits it does not know.
macro_rules! flag_bits {
    ($(#[$($outer:tt)*])* pub struct $type:ident: $repr:ty, $prefix:literal {
        $($(#[$($meta:tt)*])* $name:ident = $value:expr $(=> $c:literal)?),* $(,)?
    }) => {
        $(#[$($outer)*])*
        #[derive(
            Clone, Copy, PartialEq, Eq, Hash, Default,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(transparent)]
        pub struct $type($repr);

        bitflags::bitflags! {
            impl $type: $repr {
                $(
                    #[doc = concat!("`", c_const!($prefix, $name $(, $c)?), "`.")]
                    #[doc = ""]
                    $(#[$($meta)*])*
                    const $name = $value;
                )*
                // Bits of newer kernels are kept rather than dropped.
                const _ = !0;
            }
        }

        impl $type {
            /// The known bits with their C names.
            pub const NUMBERS: &'static [$crate::number::Number] = &[$($crate::number::Number {
                rust: concat!(module_path!(), "::", stringify!($type), "::", stringify!($name)),
                c: c_const!($prefix, $name $(, $c)?),
                header: HEADER,
                value: Self::$name.bits() as u64,
            }),*];
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($type), "("))?;
                bitflags::parser::to_writer(self, &mut *f)?;
                f.write_str(")")
            }
        }
    };
}

/// Registers the variants of an enumeration: `Type, "C_PREFIX_" { C_NAME = Variant, ... }`.
macro_rules! enum_numbers {
    ($type:ident, $prefix:literal { $($c:ident = $variant:ident),* $(,)? }) => {
        impl $type {
            /// The variants with their C names.
            pub const NUMBERS: &'static [$crate::number::Number] = &[$($crate::number::Number {
                rust: concat!(module_path!(), "::", stringify!($type), "::", stringify!($variant)),
                c: concat!($prefix, stringify!($c)),
                header: HEADER,
                value: Self::$variant as u64,
            }),*];
        }
    };
}
