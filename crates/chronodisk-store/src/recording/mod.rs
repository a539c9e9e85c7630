//! A recording of a device: every request with its instants, and every change of the bytes.
//!
//! `chronodisk run --record-store FILE` writes one; [`Recording`] reads it. Numbers are little-endian. The file begins
//! with a header of 32 bytes: the magic [`MAGIC`], the version as 32 bits, the size of a logical block in bytes as 32
//! bits, and the capacity in bytes as 64 bits. Entries follow. Each has its kind as a byte, the length of its payload
//! as 32 bits, the CRC-32C of kind, length and payload as 32 bits, and the payload:
//!
//! | kind | entry | payload |
//! |---|---|---|
//! | 1 | write | offset (64 bits), the bytes |
//! | 2 | write zeroes | offset and length (64 bits each) |
//! | 3 | write zeroes and reserve their space | offset and length (64 bits each) |
//! | 4 | discard | offset and length (64 bits each) |
//! | 5 | flush | none |
//! | 6 | arrival | id, instant in ns, first sector (64 bits each), sectors, issuer (32 bits each), |
//! | | | queue (16 bits), operation, priority, FUA, failure of the store (8 bits each) |
//! | 7 | completion | id, instant in ns (64 bits each), status (8 bits) |
//! | 8 | end | number of the entries before it (64 bits) |
//!
//! The changes of a request precede its arrival, because bytes move before the model sees the request. Entries are in
//! the order in which the device saw them. A recording without its end was cut off.

mod format;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

use chronodisk_sim::{Nanos, Request, RequestId, Status};

use crate::{Store, StoreError};

pub use self::format::{MAGIC, VERSION};
pub use self::reader::{Recording, RecordingError};
pub use self::writer::{Recorder, RecordingStore};

/// A change of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Bytes were written at an offset.
    Write(u64, Vec<u8>),
    /// Zeros were written: offset and length.
    WriteZeroes(u64, u64),
    /// Zeroes a range and reserves its space.
    ReserveZeroes(u64, u64),
    /// A range was given back.
    Discard(u64, u64),
    /// Makes all earlier changes durable.
    Flush,
}

impl Change {
    /// Applies the change to a store.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn apply(&self, store: &mut dyn Store) -> Result<(), StoreError> {
        match self {
            Change::Write(offset_bytes, bytes) => store.write(*offset_bytes, bytes),
            Change::WriteZeroes(offset_bytes, len_bytes) => store.write_zeroes(*offset_bytes, *len_bytes),
            Change::ReserveZeroes(offset_bytes, len_bytes) => store.reserve_zeroes(*offset_bytes, *len_bytes),
            Change::Discard(offset_bytes, len_bytes) => store.discard(*offset_bytes, *len_bytes),
            Change::Flush => store.flush(),
        }
    }
}

/// Properties of the recorded device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedDevice {
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Size of a logical block in bytes.
    pub logical_block_bytes: u32,
}

/// An entry of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedEntry {
    /// A change of the bytes.
    Change(Change),
    /// A request arrived. Its changes are the entries between the previous arrival or completion and this one.
    Arrival {
        /// The request.
        request: Request,
        /// Instant of the arrival.
        at: Nanos,
        /// Whether the store failed. The guest then got an I/O error.
        failed: bool,
    },
    /// A request completed.
    Completion {
        /// Id of the request, unique among the outstanding ones.
        id: RequestId,
        /// Instant of the completion.
        at: Nanos,
        /// Status of the model.
        status: Status,
    },
}
