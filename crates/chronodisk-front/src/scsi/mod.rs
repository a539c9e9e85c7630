//! SCSI block commands, the device's side: command descriptor blocks in, checked work, answers and sense data out.
//!
//! [`LogicalUnit`] is a disk with one command set (SBC-3): it decodes commands, refuses wrong ones with their sense
//! data, and answers those without an access to the medium. A transport brings the commands and the data.
//!
//! Not supported are protection information, reservations that outlive the unit, linked and bidirectional commands,
//! auto contingent allegiance, and several ranges in one `UNMAP`.
//!
//! ```
//! use chronodisk_front::scsi::{Command, LogicalUnit, Sense, UnitDescription};
//!
//! let unit = LogicalUnit::new(UnitDescription::new("disk", 1 << 20));
//! let read_two_blocks = [0x28, 0, 0, 0, 0, 8, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
//! let decoded = unit.decode(&read_two_blocks).unwrap();
//! let work = unit.work(&decoded, &[]).unwrap().unwrap();
//! assert_eq!((work.offset_bytes, work.len_bytes), (4096, 1024));
//! let beyond_the_end = [0x28, 0, 0, 0, 0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
//! assert_eq!(unit.decode(&beyond_the_end), Err(Sense::OUT_OF_RANGE));
//! ```

mod access;
mod answers;
mod command;
mod inquiry;
mod mode;
mod opcodes;
mod ports;
mod reservation_reports;
mod reservations;
mod sense;
mod table;
mod unit;
pub mod wire;
mod work;

pub use command::{ByteCheck, Command, Decoded, ModeSense, OpcodeReport, Range, ReserveOut};
pub use inquiry::NO_UNIT;
pub use reservations::{REGISTRATION_COUNT_MAX, Reserved};
pub use sense::{DESCRIPTOR_SENSE_BYTES, FIXED_SENSE_BYTES, Field, Sense, SenseKey};
pub use unit::{LogicalUnit, Nexus, UnitDescription};
pub use work::{MediumWork, StoreWork};

/// Most bytes of a read, of a write, and of a range that `WRITE SAME` fills.
pub const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// Most bytes of a range of `UNMAP`.
pub const UNMAP_BYTES_MAX: u32 = 512 << 20;
/// Most bytes of the parameters of a command.
pub const PARAMETER_BYTES_MAX: u32 = 4 << 10;
