//! Reads other simulators' descriptions of devices.
//!
//! An importer is pure: the bytes of every file come from a closure that its caller hands in, so that the same text
//! gives the same device whatever file system it lies in. What an importer does not understand it refuses with file,
//! line and the nearest name that it knows; nothing is skipped in silence.
#![forbid(unsafe_code)]

pub mod disksim;
