//! Requests to a device, and its answers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Nanos;

/// Bytes in a sector, the unit of [`Lba`] and of a request's length. Independent of the device's block size.
pub const SECTOR_BYTES: u64 = 512;

/// Address of a sector of [`SECTOR_BYTES`] on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lba(pub u64);

impl Lba {
    /// The byte at which this sector begins.
    #[must_use]
    pub const fn offset_bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }

    /// The address `sectors` further on.
    #[must_use]
    pub const fn plus(self, sectors: u64) -> Lba {
        Lba(self.0 + sectors)
    }
}

impl fmt::Display for Lba {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a request while it is outstanding on one device. The submitter chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
    /// Makes completed writes durable; carries no address.
    Flush,
    /// The range's contents are no longer needed.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
    /// Data to a zone that the address begins, put where its write pointer is.
    ZoneAppend,
    /// Empties the zone at the address.
    ZoneReset,
    /// Opens the zone at the address until it is closed.
    ZoneOpen,
    /// The zone that the address begins is closed; it can be written on later.
    ZoneClose,
    /// Makes the zone at the address full.
    ZoneFinish,
}

impl Op {
    /// All kinds, in the order of their codes.
    pub const ALL: [Op; 10] = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::Discard,
        Op::WriteZeroes,
        Op::ZoneAppend,
        Op::ZoneReset,
        Op::ZoneOpen,
        Op::ZoneClose,
        Op::ZoneFinish,
    ];

    /// Operations of any device; the others are of zoned devices.
    pub const COMMON: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

    /// The name used in logs, traces and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write-zeroes",
            Op::ZoneAppend => "zone-append",
            Op::ZoneReset => "zone-reset",
            Op::ZoneOpen => "zone-open",
            Op::ZoneClose => "zone-close",
            Op::ZoneFinish => "zone-finish",
        }
    }

    /// Whether the request carries data between host and device.
    #[must_use]
    pub const fn moves_data(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::ZoneAppend)
    }

    /// Whether only devices with zones know it.
    #[must_use]
    pub const fn is_for_zones(self) -> bool {
        self as usize >= Op::COMMON.len()
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Op::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Op::ALL.iter().map(|op| op.name()).collect();
            format!("unknown operation '{name}'; expected one of {}", names.join(", "))
        })
    }
}

/// Urgency of a request as its issuer sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Served when no other request waits.
    Idle,
    /// The usual priority.
    #[default]
    Normal,
    /// Served first where the device knows priorities.
    High,
}

impl Priority {
    /// All priorities, lowest first.
    pub const ALL: [Priority; 3] = [Priority::Idle, Priority::Normal, Priority::High];

    /// The name used in logs, traces and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Idle => "idle",
            Priority::Normal => "normal",
            Priority::High => "high",
        }
    }
}

impl FromStr for Priority {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Priority::ALL
            .into_iter()
            .find(|priority| priority.name() == name)
            .ok_or_else(|| format!("unknown priority '{name}'; expected idle, normal or high"))
    }
}

/// A request as it reaches a device model: validated, its range inside the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Unique among the device's outstanding requests.
    pub id: RequestId,
    /// The operation.
    pub op: Op,
    /// First sector; zero for a flush.
    pub lba: Lba,
    /// Length in sectors of [`SECTOR_BYTES`]; zero for a flush, at least one otherwise.
    pub sectors: u32,
    /// Force unit access: a write that is durable before it completes.
    pub fua: bool,
    /// Urgency.
    pub priority: Priority,
    /// Hardware queue of the request.
    pub queue: u16,
    /// Process, stream or client that issued it; 0 where unknown.
    pub issuer: u32,
}

impl Request {
    /// A request of normal priority on queue 0 by an unknown issuer.
    #[must_use]
    pub const fn new(id: u64, op: Op, lba: u64, sectors: u32) -> Self {
        Request {
            id: RequestId(id),
            op,
            lba: Lba(lba),
            sectors,
            fua: false,
            priority: Priority::Normal,
            queue: 0,
            issuer: 0,
        }
    }

    /// The sector after the last one touched.
    #[must_use]
    pub const fn end(&self) -> Lba {
        self.lba.plus(self.sectors as u64)
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.sectors as u64 * SECTOR_BYTES
    }
}

/// Status of a completed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Done.
    #[default]
    Ok,
    /// The medium failed.
    MediaError,
    /// Given up before it was done.
    Aborted,
    /// The device does not know this operation.
    Unsupported,
    /// An address that begins no zone, for an operation on a zone.
    InvalidField,
    /// A write exceeds the zone's capacity.
    ZoneBoundary,
    /// A write to a zone that is full.
    ZoneFull,
    /// A write that does not begin at the zone's write pointer.
    ZoneInvalidWrite,
    /// The device has as many zones in use as it can.
    TooManyActiveZones,
    /// The device has as many zones open as it can.
    TooManyOpenZones,
    /// The zone's state does not allow the requested transition.
    ZoneInvalidTransition,
}

impl Status {
    /// All statuses, in the order of their codes.
    pub const ALL: [Status; 11] = [
        Status::Ok,
        Status::MediaError,
        Status::Aborted,
        Status::Unsupported,
        Status::InvalidField,
        Status::ZoneBoundary,
        Status::ZoneFull,
        Status::ZoneInvalidWrite,
        Status::TooManyActiveZones,
        Status::TooManyOpenZones,
        Status::ZoneInvalidTransition,
    ];

    /// Statuses of any device; the others are of zoned devices.
    pub const COMMON: [Status; 4] = [Status::Ok, Status::MediaError, Status::Aborted, Status::Unsupported];

    /// The name used in logs, traces and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::MediaError => "media-error",
            Status::Aborted => "aborted",
            Status::Unsupported => "unsupported",
            Status::InvalidField => "invalid-field",
            Status::ZoneBoundary => "zone-boundary-error",
            Status::ZoneFull => "zone-is-full",
            Status::ZoneInvalidWrite => "zone-invalid-write",
            Status::TooManyActiveZones => "too-many-active-zones",
            Status::TooManyOpenZones => "too-many-open-zones",
            Status::ZoneInvalidTransition => "invalid-zone-state-transition",
        }
    }
}

impl FromStr for Status {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Status::ALL.into_iter().find(|status| status.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Status::ALL.iter().map(|status| status.name()).collect();
            format!("unknown status '{name}'; expected one of {}", names.join(", "))
        })
    }
}

/// A device's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request answered.
    pub id: RequestId,
    /// The instant at which the host must see it.
    pub at: Nanos,
    /// Status of the completion.
    pub status: Status,
}
