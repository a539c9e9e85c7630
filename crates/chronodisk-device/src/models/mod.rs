//! The models, one file each. `catalog::kinds` lists them by the `kind` of a profile.

pub(crate) mod array;
pub(crate) mod blueprint;
pub(crate) mod bus;
pub(crate) mod constant;
pub mod disk;
pub(crate) mod eager_writing;
pub(crate) mod faults;
pub(crate) mod host_queue;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod mems;
pub(crate) mod nvram;
pub(crate) mod placing_host;
pub(crate) mod shingled;
pub(crate) mod simple_disk;
pub(crate) mod speed;
mod spiral;
pub(crate) mod ssd;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod testing;
