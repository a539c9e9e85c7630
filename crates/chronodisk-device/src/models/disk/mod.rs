//! A disk drive in full: geometry, mechanics, controller, segmented buffer, queue.
//!
//! [`DiskParameters`] describes the drive as plain data; [`Drive`] is made of it once and shared; [`Disk`] is the
//! model. The behaviour is that of DiskSim 4.0 (Bucy, Schindler, Schlosser, Ganger, CMU-PDL-08-101), whose drives it
//! matches request by request, and of the drives that it was fitted to.
//!
//! Not modelled: prepending a write to one that waits in a segment; giving a segment that only waits for its completion
//! to another request; gaps that slipped blocks leave within a run of blocks on a track (as in the reference);
//! priorities; errors of the medium.

mod arm;
mod buffer;
mod controller;
mod drive;
mod geometry;
mod link;
mod mechanics;
mod medium;
mod nonvolatile;
mod parameters;
mod scheduler;
mod statistics;
pub(crate) mod streaming;
pub(crate) mod toml;
mod validate;

pub use controller::{Disk, Position};
pub use drive::Drive;
pub use parameters::*;
#[cfg(any(test, feature = "test-utils"))]
pub use toml::read_parameters;
pub use toml::{ProfileHeading, write_profile};

use std::sync::Arc;

use crate::{DeviceInfo, DeviceModel};

/// A model of a drive at instant zero, with its non-volatile write cache if it has one.
#[must_use]
pub fn model(info: DeviceInfo, drive: Arc<Drive>, seed: u64) -> Box<dyn DeviceModel> {
    let nonvolatile = drive.nonvolatile;
    let disk = Disk::new(info, drive, seed);
    match nonvolatile {
        Some(memory) => Box::new(nonvolatile::NonvolatileDisk::new(disk, memory)),
        None => Box::new(disk),
    }
}

#[cfg(test)]
mod tests;
