//! A disk drive in full: geometry, mechanics, controller, segmented cache, queue.
//!
//! [`DiskParameters`] says what the drive is, as plain data.

#![allow(dead_code)]

mod parameters;
mod validate;

#[allow(unused_imports)]
pub use parameters::*;
