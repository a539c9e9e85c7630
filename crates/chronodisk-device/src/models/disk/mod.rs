//! A disk drive in full: geometry, mechanics, controller, segmented cache, queue.
//!
//! [`DiskParameters`] says what the drive is, as plain data; [`Drive`] is made of it once and shared; [`Disk`] is the
//! model.

#![allow(dead_code)]

mod arm;
mod buffer;
mod controller;
mod drive;
mod geometry;
mod link;
mod mechanics;
mod parameters;
mod scheduler;
mod statistics;
pub(crate) mod toml;
mod validate;

#[allow(unused_imports)]
pub use controller::Disk;
#[allow(unused_imports)]
pub use drive::Drive;
pub(crate) use mechanics::{Access, nanos};
#[allow(unused_imports)]
pub use parameters::*;
