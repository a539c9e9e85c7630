//! The contract between a device model and everything that drives one.

use std::ops::Range;

use chronodisk_sim::{Completion, Lba, Nanos, Request};

use crate::{Background, ZoneReport};

/// Latest arrival: 18 years.
///
/// It is half the range of the finest clock of a model: a disk counts sixteenths of a nanosecond in 64 bits (36 years).
/// So the last arrivals have as long to complete.
pub const LATEST_ARRIVAL: Nanos = Nanos::from_nanos(1 << 59);

/// Properties of a device that a host can query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the profile that made it.
    pub name: String,
    /// Capacity in sectors of 512 bytes; at least one.
    pub capacity_sectors: u64,
    /// Smallest addressable unit in bytes, a power of two from 512.
    pub logical_block_bytes: u32,
    /// Unit that the medium writes without a read-modify-write, in bytes.
    pub physical_block_bytes: u32,
    /// Whether a completed write may be lost without a flush.
    pub volatile_cache: bool,
    /// Unit of discard in sectors; `None` if the device does not support discard.
    pub discard_unit_sectors: Option<u32>,
    /// Whether the medium turns.
    pub rotational: bool,
    /// Layout of its zones, if it must be written in zones. Only then may it receive [zone
    /// operations](chronodisk_sim::Op::is_for_zones).
    pub zones: Option<ZoneLayout>,
    /// Sectors at the beginning of a write that are on the medium although the write ended as a media error. `Some`
    /// means that requests can fail: a front end then moves bytes at the completion, not at the arrival.
    pub torn_write_sectors: Option<u32>,
}

/// Zones of equal size, each written from its beginning on and reset as a whole, after the conventional ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLayout {
    /// Distance between the beginnings of neighbouring zones, in sectors of 512 bytes.
    pub size_sectors: u64,
    /// Sectors of a zone that can be written, from its beginning on.
    pub capacity_sectors: u64,
    /// Zones that can be open at a time; zero without a limit.
    pub most_open: u32,
    /// Zones that can be open or closed, that is neither empty nor full, at a time; zero without a limit.
    pub most_active: u32,
    /// Conventional zones, at the beginning of the device. They are written anywhere, and their whole size can be
    /// written.
    pub conventional: u32,
}

impl ZoneLayout {
    /// Sectors of the conventional zones, which precede all others.
    #[must_use]
    pub fn conventional_sectors(&self) -> u64 {
        u64::from(self.conventional) * self.size_sectors
    }
}

/// A device: it receives requests and returns their completions.
///
/// A device that serves in order of arrival needs only a [`Service`](crate::Service) and is a
/// [`QueuedDevice`](crate::QueuedDevice).
///
/// Pure and infallible: requests are validated before they get here. Every implementation keeps the rules of the
/// project's design, checked by the module `contract` (a feature of that name):
///
/// 1. *Arrival.* A request arrives at [`now`](Self::now), after all events already due there; several at one instant
///    arrive in submission order.
/// 2. *Non-anticipation.* Histories with equal arrivals before t have equal completions up to and including t.
/// 3. *Stepping changes nothing.* Any sequence of steps gives the same completions.
/// 4. *Conservation.* Every request gets exactly one completion, at least 1 ns after its arrival, within a bounded
///    number of events.
/// 5. *Bounds.* [`next_event`](Self::next_event) is never in the past, and is in the future after a step to now;
///    nothing completes before [`completion_bound`](Self::completion_bound).
/// 6. *Drained* means nothing outstanding; background work may go on for ever, at bounded cost.
/// 7. *Determinism.* Equal profile, seed and arrivals give equal completions.
/// 8. *Fork.* Fork, speculate and drop leaves no trace.
/// 9. *Durability.* [`volatile`](Self::volatile) is ascending and inside the capacity. A write that has just arrived is
///    volatile. A completed write is durable without a volatile cache, with FUA, or after a flush that arrived later
///    has completed. A durable sector stays durable until its next write or discard arrives.
pub trait DeviceModel: Send {
    /// Capacity and properties; they never change.
    fn info(&self) -> &DeviceInfo;

    /// The instant at which the model is.
    fn now(&self) -> Nanos;

    /// Requests submitted and not yet completed.
    fn outstanding(&self) -> u32;

    /// The request arrives at `now()`, after everything already due there. Immediate consequences happen in this call.
    /// The instant is at most [`LATEST_ARRIVAL`].
    fn submit(&mut self, request: Request);

    /// A write to any of these places arrives at `now()`. The model chooses the place, which is returned; from then on
    /// it is an ordinary write to this place. All places have room for `request.sectors` inside the device, and there
    /// are 1 to [`PLACES_MAX`](crate::PLACES_MAX) of them. `request.lba` is ignored.
    ///
    /// # Panics
    /// Without a place.
    fn submit_anywhere(&mut self, request: Request, places: &[Lba]) -> Lba {
        let place = places[self.soonest(&request, places)];
        self.submit(Request { lba: place, ..request });
        place
    }

    /// The index of the place where a write that arrives now would be on the medium soonest, as far as the model knows:
    /// of equal ones the first. A model for which all places are equal answers 0.
    fn soonest(&self, _request: &Request, _places: &[Lba]) -> usize {
        0
    }

    /// Background requests, if the model can serve them in the gaps of others.
    fn background(&mut self) -> Option<&mut dyn Background> {
        None
    }

    /// Next internal instant if no request arrives; with background work it may never be `None`.
    fn next_event(&self) -> Option<Nanos>;

    /// No completion comes before this instant if no request arrives: may be early, never late. `None` if no request is
    /// outstanding. After a step to now it is in the future, so that a waiting caller makes progress.
    fn completion_bound(&self) -> Option<Nanos>;

    /// Runs events in (time, sequence) order; stops at the first instant that completes
    /// something, or at `limit` (never before `now()`), and `now()` is that instant afterwards.
    /// Completions are appended to `completed`.
    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>);

    /// Behaves independently from here on; may share unchanged pages.
    fn fork(&self) -> Box<dyn DeviceModel>;

    /// The zones of a new device at instant zero begin so, as after a loss of power: closed zones with the write
    /// pointers of these, and full ones. Returns false, with the device unchanged, if it has no zones that could.
    fn begin_with_zones(&mut self, _zones: &[ZoneReport]) -> bool {
        false
    }

    /// The sectors whose newest content a loss of power at `now()` would lose, as ranges in ascending order that do not
    /// touch. The newest content of a sector is that of the last write or discard of it that has arrived, completed or
    /// not. Zone operations are not among them. `None` if the model does not know, as models of other programs.
    ///
    /// An outstanding write counts until its data are on the medium or in a protected buffer, at the latest until it
    /// completes. A sector counts as long as any of its outstanding writes does, as their order is not defined.
    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Reports statistics by name.
    fn probe(&self, _sink: &mut dyn Probe) {}
}

/// Receives a model's statistics.
pub trait Probe {
    /// A number that only grows.
    fn counter(&mut self, name: &str, value: u64);
    /// A reading in `unit`.
    fn gauge(&mut self, name: &str, unit: &str, value: f64);
}

/// Collects the output of `probe`, in order; the name of a gauge ends with its unit in brackets.
pub fn probed(probe: impl FnOnce(&mut dyn Probe)) -> Vec<(String, f64)> {
    let mut collected = Collected::default();
    probe(&mut collected);
    collected.0
}

#[derive(Default)]
struct Collected(Vec<(String, f64)>);

impl Probe for Collected {
    fn counter(&mut self, name: &str, value: u64) {
        self.0.push((name.to_owned(), value as f64));
    }

    fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        self.0.push((format!("{name} [{unit}]"), value));
    }
}

/// Repeats [`DeviceModel::step`] until `until` is reached.
pub fn advance(model: &mut dyn DeviceModel, until: Nanos, completed: &mut Vec<Completion>) {
    while model.now() < until {
        model.step(until, completed);
    }
    // Events of the present instant may still wait if the model was already there.
    model.step(until, completed);
}
