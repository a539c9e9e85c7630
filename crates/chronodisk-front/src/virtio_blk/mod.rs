//! The virtio block device: its features, its configuration space, its requests.
//!
//! Virtual I/O Device (VIRTIO) 1.2, section 5.2, "Block Device", and 1.3 for zoned devices. Parsing is split from doing:
//! [`BlkRequest::parse`] turns a descriptor chain into a checked request or a [`BadRequest`] that
//! says how to answer it; moving the bytes is another step.

mod config;
mod execute;
mod file_list;
mod report;
mod request;

pub use config::{BlkConfig, ConfigError, SEG_MAX_DEFAULT, SEG_MAX_LIMIT};
pub(crate) use execute::{Bounce, answer_identify, execute, gather};
pub use file_list::FILE_DATA_FEATURE;
pub(crate) use report::{answer_report, write_sector};
pub use request::{BadRequest, BadRequestKind, BlkRequest, Limits, Operation, REQUEST_BYTES_MAX, Segment};

/// The byte that tells the driver how a request ended. Section 5.2.6, "Device Operation".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlkStatus {
    /// `VIRTIO_BLK_S_OK`.
    Ok = 0,
    /// `VIRTIO_BLK_S_IOERR`.
    IoError = 1,
    /// `VIRTIO_BLK_S_UNSUPP`.
    Unsupported = 2,
    /// `VIRTIO_BLK_S_ZONE_INVALID_CMD`.
    ZoneInvalidCommand = 3,
    /// `VIRTIO_BLK_S_ZONE_UNALIGNED_WP`.
    ZoneUnalignedWritePointer = 4,
    /// `VIRTIO_BLK_S_ZONE_OPEN_RESOURCE`.
    ZoneOpenResource = 5,
    /// `VIRTIO_BLK_S_ZONE_ACTIVE_RESOURCE`.
    ZoneActiveResource = 6,
}

impl From<chronodisk_sim::Status> for BlkStatus {
    fn from(status: chronodisk_sim::Status) -> Self {
        use chronodisk_sim::Status;
        match status {
            Status::Ok => BlkStatus::Ok,
            Status::MediaError | Status::Aborted => BlkStatus::IoError,
            Status::Unsupported => BlkStatus::Unsupported,
            Status::InvalidField | Status::ZoneBoundary | Status::ZoneFull | Status::ZoneInvalidTransition => {
                BlkStatus::ZoneInvalidCommand
            }
            Status::ZoneInvalidWrite => BlkStatus::ZoneUnalignedWritePointer,
            Status::TooManyOpenZones => BlkStatus::ZoneOpenResource,
            Status::TooManyActiveZones => BlkStatus::ZoneActiveResource,
        }
    }
}
