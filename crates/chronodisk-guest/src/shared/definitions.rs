//! Structures and enumerations that the guest's clock, a library in C (`shim`), shares with this crate. The macros keep
//! their declarations for the generated header; see [`super::layout`].

/// A C structure with its description in a header.
#[cfg(test)]
pub(crate) trait SharedStruct {
    const NAME: &'static str;
    const DOCS: &'static [&'static str];
    fn fields() -> Vec<Field>;
}

/// A field of a [`SharedStruct`].
#[cfg(test)]
pub(crate) struct Field {
    pub name: &'static str,
    pub docs: &'static [&'static str],
    pub declaration: String,
    pub offset_bytes: usize,
    pub writer: &'static str,
}

/// A type that a field of a [`SharedStruct`] can have.
#[cfg(test)]
pub(crate) trait InC {
    /// Name of its writer.
    const WRITER: &'static str;
    /// The declaration in C of a field with this type.
    fn declaration(name: &str) -> String;
}

/// An enumeration of C.
#[cfg(test)]
pub(crate) trait SharedEnum {
    /// Prefix of each constant's name; in lower case it is the enumeration's name.
    const PREFIX: &'static str;
    const DOCS: &'static [&'static str];
    const CONSTANTS: &'static [Constant];
}

/// A constant of a [`SharedEnum`].
#[cfg(test)]
pub(crate) struct Constant {
    /// In Rust.
    pub name: &'static str,
    pub docs: &'static [&'static str],
    pub value: u64,
}

/// Defines a structure with C's layout, and describes it for the header.
macro_rules! shared_struct {
    (
        $(#[doc = $docs:literal])*
        $vis:vis struct $name:ident = $name_in_c:literal {
            $($(#[doc = $field_docs:literal])* $field:ident: $type:ty,)*
        }
    ) => {
        $(#[doc = $docs])*
        #[repr(C)]
        $vis struct $name {
            $($(#[doc = $field_docs])* pub $field: $type,)*
        }

        #[cfg(test)]
        impl $crate::shared::definitions::SharedStruct for $name {
            const NAME: &'static str = $name_in_c;
            const DOCS: &'static [&'static str] = &[$($docs),*];

            fn fields() -> Vec<$crate::shared::definitions::Field> {
                vec![$($crate::shared::definitions::Field {
                    name: stringify!($field),
                    docs: &[$($field_docs),*],
                    declaration: <$type as $crate::shared::definitions::InC>::declaration(stringify!($field)),
                    offset_bytes: std::mem::offset_of!($name, $field),
                    writer: <$type as $crate::shared::definitions::InC>::WRITER,
                }),*]
            }
        }
    };
}

/// Defines an enumeration whose values are stored in shared words, and describes it for the header.
macro_rules! shared_enum {
    (
        $(#[doc = $docs:literal])*
        $vis:vis enum $name:ident = $prefix:literal {
            $($(#[doc = $constant_docs:literal])* $constant:ident = $value:literal,)*
        }
    ) => {
        $(#[doc = $docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u64)]
        $vis enum $name {
            $($(#[doc = $constant_docs])* $constant = $value,)*
        }

        #[cfg(test)]
        impl $crate::shared::definitions::SharedEnum for $name {
            const PREFIX: &'static str = $prefix;
            const DOCS: &'static [&'static str] = &[$($docs),*];
            const CONSTANTS: &'static [$crate::shared::definitions::Constant] = &[
                $($crate::shared::definitions::Constant {
                    name: stringify!($constant),
                    docs: &[$($constant_docs),*],
                    value: $value,
                }),*
            ];
        }
    };
}

pub(crate) use {shared_enum, shared_struct};
