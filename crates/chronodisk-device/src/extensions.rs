//! Interface extensions: requests that no drive's interface has today.
//!
//! Griffin, Schindler, Schlosser, Bucy and Ganger, "Timing-accurate Storage Emulation" (FAST 2002), section 6.3, name
//! two of them:
//!
//! - *Freeblock requests* ([`Background`]): reads of background work, served in the rotational latency of other
//!   requests without a delay of these. Lumb, Schindler, Ganger, Nagle and Riedel, "Towards Higher Disk Head
//!   Utilization" (OSDI 2000).
//! - *Host-directed eager writing* ([`DeviceModel::submit_anywhere`](crate::DeviceModel::submit_anywhere)): a write to
//!   any of several places; the device chooses one and returns it. Its mechanism is from Wang, Anderson and Patterson,
//!   "Virtual Log Based File Systems for a Programmable Disk" (OSDI 1999).

use std::ops::Range;

use chronodisk_sim::{Lba, Nanos};

/// Most places of a [write to any of them](crate::DeviceModel::submit_anywhere).
pub const PLACES_MAX: usize = 4_096;

/// A background request: sectors that the host wants to read, in any order and at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundRead {
    /// The wanted sectors. Those that are wanted already change nothing.
    pub ranges: Vec<Range<u64>>,
    /// When the device may read them.
    pub when: BackgroundTime,
}

impl BackgroundRead {
    /// A scan of a device with so many sectors.
    #[must_use]
    pub fn whole(capacity_sectors: u64, when: BackgroundTime) -> Self {
        BackgroundRead { ranges: std::iter::once(0..capacity_sectors).collect(), when }
    }
}

/// When a device serves background requests. Neither setting delays a foreground request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackgroundTime {
    /// In the rotational latency of foreground requests.
    #[default]
    Gaps,
    /// Also while the arm rests: the wanted sectors of the track under the heads.
    GapsAndRest,
}

/// Consecutive sectors that a background request has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundDone {
    /// The first sector.
    pub lba: Lba,
    /// Number of sectors, at least one.
    pub sectors: u32,
    /// The instant at which the last sector has passed the head.
    pub at: Nanos,
}

/// Background requests of a device that serves them in the gaps of foreground requests.
///
/// The completions of foreground requests are the same with and without background requests, to the nanosecond. Each
/// wanted sector is read once; it can then be wanted again.
pub trait Background {
    /// A background request arrives now. Sectors beyond the capacity are ignored. The last request decides
    /// [when](BackgroundTime) all wanted sectors are read.
    fn want(&mut self, request: &BackgroundRead);

    /// Withdraws sectors. Those of a gap that has begun are read nevertheless.
    fn forget(&mut self, ranges: &[Range<u64>]);

    /// Sectors that are still wanted. It leaves out the sectors of the gap under way.
    fn wanted(&self) -> u64;

    /// Appends the sectors that have been read since the last call, up to the present instant, in order of time. The
    /// instants and sectors do not depend on how often this is called.
    fn take(&mut self, done: &mut Vec<BackgroundDone>);

    /// Bytes per second that pass a head that is always over data, on average over all tracks.
    fn media_bytes_per_s(&self) -> f64;
}
