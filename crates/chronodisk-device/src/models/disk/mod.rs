//! A disk drive: geometry, mechanics, controller.
//!
//! [`DiskParameters`] describes the drive as plain data; [`Drive`] is made of it once and shared; [`Disk`] is the
//! model. Geometry and mechanics follow DiskSim 4.0 (Bucy, Schindler, Schlosser, Ganger, CMU-PDL-08-101); the
//! controller is compared with its outputs, and with the traces of drives, request by request.

mod controller;
mod drive;
mod geometry;
mod mechanics;
mod nonvolatile;
mod parameters;
pub(crate) mod toml;
mod validate;

pub use controller::Disk;
pub use drive::Drive;
pub use parameters::*;
#[cfg(any(test, feature = "test-utils"))]
pub use toml::read_parameters;
pub use toml::{ProfileHeading, write_profile};

#[cfg(test)]
mod extension_tests;
#[cfg(test)]
mod tests;
