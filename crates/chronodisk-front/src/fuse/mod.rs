//! The device as the one file of a FUSE file system, to which a loop device makes a native block device.

mod file;

pub use file::{FILE_ROOT_MODE, FuseFile, REQUEST_BYTES_MAX};
