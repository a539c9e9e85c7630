//! Which kinds of model a profile can ask for: to add one, add its line here.

use super::{Blueprint, Fields, ProfileError};
use crate::models::{
    array, constant, disk, eager_writing, host_queue, memory, mems, nvram, shingled, simple_disk, ssd, table,
};

/// A kind of model: its name in `kind = ".."` and what reads its parameters.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) parse: fn(&mut Fields<'_>) -> Result<Blueprint, ProfileError>,
}

pub(super) const KINDS: &[Kind] = &[
    Kind { name: "null", parse: constant::parse_null },
    Kind { name: "constant", parse: constant::parse },
    Kind { name: "table", parse: table::parse },
    Kind { name: "nvram", parse: nvram::parse },
    Kind { name: "memory", parse: memory::parse },
    Kind { name: "simple-disk", parse: simple_disk::parse },
    Kind { name: "ssd", parse: ssd::toml::parse },
    Kind { name: "disk", parse: disk::toml::parse },
    Kind { name: "streaming-disk", parse: disk::streaming::parse },
    Kind { name: "array", parse: array::parse },
    Kind { name: "host-queue", parse: host_queue::parse },
    Kind { name: "mems", parse: mems::parse },
    Kind { name: "shingled-disk", parse: shingled::parse },
    Kind { name: "eager-writing", parse: eager_writing::parse },
];
