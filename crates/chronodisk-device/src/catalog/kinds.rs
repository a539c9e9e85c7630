//! Kinds of models for profiles. To add a kind, add its line here.

use crate::fields::{Fields, ProfileError};
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::models::{
    array, constant, disk, eager_writing, host_queue, memory, mems, nvram, shingled, simple_disk, ssd, table,
};

/// A kind of model: its name in `kind = ".."` and the reader of its parameters.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) reader: Reader,
}

/// Reader of a kind's parameters.
#[derive(Clone, Copy)]
pub(super) enum Reader {
    /// A device without members.
    Alone(fn(&mut Fields<'_>) -> Result<Blueprint, ProfileError>),
    /// A device made of other devices.
    OverMembers(fn(&mut Fields<'_>, &mut dyn FindMembers) -> Result<Blueprint, ProfileError>),
}

use Reader::{Alone, OverMembers};

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "null", reader: Alone(constant::parse_null) },
    Kind { name: "constant", reader: Alone(constant::parse) },
    Kind { name: "table", reader: Alone(table::parse) },
    Kind { name: "nvram", reader: Alone(nvram::parse) },
    Kind { name: "memory", reader: Alone(memory::parse) },
    Kind { name: "simple-disk", reader: Alone(simple_disk::parse) },
    Kind { name: "ssd", reader: Alone(ssd::toml::parse) },
    Kind { name: "disk", reader: OverMembers(disk::toml::parse) },
    Kind { name: "array", reader: OverMembers(array::parse) },
    Kind { name: "host-queue", reader: OverMembers(host_queue::parse) },
    Kind { name: "mems", reader: Alone(mems::parse) },
    Kind { name: "shingled-disk", reader: OverMembers(shingled::parse) },
    Kind { name: "eager-writing", reader: OverMembers(eager_writing::parse) },
];
