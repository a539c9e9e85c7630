//! The driver of a block device.

use chronodisk_native::WayChoice;
use clap::ValueEnum;

/// The way in which a block device is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attach {
    /// ublk if this host's kernel has it, else fuse
    Auto,
    /// The kernel's ublk driver, from Linux 6.5 on
    Ublk,
    /// A file of FUSE, and a loop device of it
    Fuse,
}

impl Attach {
    /// The drivers that may be used.
    pub(crate) fn choice(self) -> WayChoice {
        match self {
            Attach::Auto => WayChoice::Auto,
            Attach::Ublk => WayChoice::Ublk,
            Attach::Fuse => WayChoice::Fuse,
        }
    }
}
