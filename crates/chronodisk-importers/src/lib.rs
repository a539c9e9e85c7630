//! Reads other simulators' descriptions of devices.
//!
//! An importer is pure: a closure of the caller provides the bytes of every file, so that the same text gives the same
//! device on any file system. Unknown input is refused with file, line and the nearest known name; nothing is skipped
//! silently.
#![forbid(unsafe_code)]

pub mod disksim;
