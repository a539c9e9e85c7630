//! A disk that seeks and turns, kind `simple-disk`.
//!
//! Modelled, one request at a time in order of arrival:
//! 1. The controller takes `controller-overhead`.
//! 2. The arm moves over d cylinders in `seek(d)`: none for d = 0 (a change of head alone costs `head-switch`), else
//!    the three-point curve of Lee and Katz, "An Analytic Performance Model of Disk Arrays" (SIGMETRICS 1993),
//!    `seek(d) = single + a·√x + b·x`, x = (d − 1)/(N − 1) with N the longest distance,
//!    a = (−10·single + 15·average − 5·full)/3, b = (7·single − 15·average + 8·full)/3;
//!    it passes through `single-track-seek` and `full-stroke-seek`, and its mean over random pairs of cylinders is
//!    `average-seek`. Before a write, an arm that moved or a head that changed settles for `write-settle` longer.
//! 3. The platter turns until the first sector is under the head: an exact fraction of a turn, see `spiral.rs`.
//! 4. The medium passes, with `head-switch` and `cylinder-switch` between tracks, which the skew just covers.
//! 5. The interface moves data at `interface-rate` beside the medium: a read ends when the medium's last sector has
//!    crossed and not before all its bytes could; a write's medium does not overtake its data.
//!
//! A flush costs the controller's overhead. A write-zeroes writes the range without data from the host. With
//! `read-ahead`, the disk reads on after a read into a buffer of that size; a read that begins in it, or just where the
//! heads are, needs no positioning; anything else ends the reading on, and the arm is where it got to. Without that key
//! nothing is ever kept in a buffer.
//!
//! Not modelled: a write cache (completed writes are on the medium), reordering, defects, thermal recalibration,
//! segments of the buffer. The platter's phase at instant zero is drawn from the run's seed.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, RandomStream, Request, SECTOR_BYTES};

use super::spiral::{Spiral, Track, Zone};
use crate::Probe;
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::Blueprint;
use crate::quantity::{Bytes, Rate};
use crate::queued::{QueuedDevice, Service};

/// The mechanism and its position.
#[derive(Clone, Debug)]
pub struct SimpleDisk {
    parts: Arc<Parts>,
    /// Angle at instant zero, in positions.
    phase: u128,
    arm: Track,
    reading_on: Option<ReadingOn>,
    statistics: SimpleDiskStatistics,
}

/// Immutable parts.
#[derive(Debug)]
struct Parts {
    spiral: Spiral,
    seek: SeekCurve,
    overhead: Nanos,
    head_switch: Nanos,
    write_settle: Nanos,
    interface: Rate,
    read_ahead_sectors: u64,
}

/// The disk fills its buffer: at `passed` positions the heads were at the beginning of sector `at`.
#[derive(Clone, Copy, Debug)]
struct ReadingOn {
    passed: u128,
    at: u64,
    /// First sector kept in the buffer.
    kept: u64,
    /// Sector at which the buffer is full.
    stop: u64,
}

#[derive(Clone, Debug, Default)]
struct SimpleDiskStatistics {
    seeks: u64,
    seek_cylinders: u64,
    seek_time: Nanos,
    rotation_wait: Nanos,
    buffer_hits: u64,
}

impl Service for SimpleDisk {
    fn end(&mut self, request: &Request, start: Nanos, _others: u32) -> Nanos {
        let commanded = start.saturating_add(self.parts.overhead);
        match request.op {
            Op::Read => match self.read_on(request, start, commanded) {
                Some(end) => end,
                None => self.access(request, commanded),
            },
            Op::Write | Op::WriteZeroes => self.access(request, commanded),
            _ => commanded,
        }
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("seeks", self.statistics.seeks);
        sink.counter("seek-cylinders", self.statistics.seek_cylinders);
        sink.counter("seek-time-ns", self.statistics.seek_time.as_nanos());
        sink.counter("rotation-wait-ns", self.statistics.rotation_wait.as_nanos());
        sink.counter("buffer-hits", self.statistics.buffer_hits);
    }
}

impl SimpleDisk {
    fn new(parts: Arc<Parts>, seed: u64) -> Self {
        let turn = u64::try_from(parts.spiral.turn()).expect("a turn has 6·10¹³ positions");
        let phase = u128::from(RandomStream::new(seed, "simple-disk", "phase").below(turn));
        let arm = Track { cylinder: 0, head: 0 };
        SimpleDisk { parts, phase, arm, reading_on: None, statistics: SimpleDiskStatistics::default() }
    }

    /// Positions the arm, waits for the platter, moves the data.
    fn access(&mut self, request: &Request, commanded: Nanos) -> Nanos {
        let parts = Arc::clone(&self.parts);
        let spiral = &parts.spiral;
        self.stop_reading_on(commanded);
        let moved = self.position(request, spiral.track(request.lba.0));
        let place = spiral.begin(request.lba.0);
        let length = spiral.end(request.end().0) - place;

        let on_track = commanded.saturating_add(moved);
        let mut ready = spiral.passed(on_track, self.phase);
        let bus = if request.op.moves_data() { parts.interface.time_for(request.len_bytes()) } else { Nanos::ZERO };
        let bus_sector = parts.interface.time_for(SECTOR_BYTES).min(bus);
        if request.op == Op::Write {
            let first = spiral.passed(commanded.saturating_add(bus_sector), self.phase);
            let last = spiral.passed(commanded.saturating_add(bus), self.phase).saturating_sub(length);
            ready = ready.max(first).max(last);
        }
        let begin = ready + spiral.wait(ready, place);
        let end = begin + length;
        let (begun, ended) = (spiral.instant(begin, self.phase), spiral.instant(end, self.phase));
        self.statistics.rotation_wait = self.statistics.rotation_wait.saturating_add(begun.saturating_sub(on_track));
        self.arm = spiral.track(request.end().0 - 1);
        if request.op != Op::Read {
            return ended;
        }
        self.start_reading_on(request, end);
        ended.saturating_add(bus_sector).max(begun.saturating_add(bus))
    }

    /// The time until the arm is over `target` and its head selected.
    fn position(&mut self, request: &Request, target: Track) -> Nanos {
        let cylinders = target.cylinder.abs_diff(self.arm.cylinder);
        let switch = if target.head == self.arm.head { Nanos::ZERO } else { self.parts.head_switch };
        if cylinders == 0 && switch == Nanos::ZERO {
            return Nanos::ZERO;
        }
        let seek = if cylinders == 0 { Nanos::ZERO } else { self.parts.seek.time(cylinders) };
        self.statistics.seeks += u64::from(cylinders > 0);
        self.statistics.seek_cylinders += cylinders;
        self.statistics.seek_time = self.statistics.seek_time.saturating_add(seek);
        let settle = if request.op == Op::Read { Nanos::ZERO } else { self.parts.write_settle };
        seek.max(switch).saturating_add(settle)
    }

    /// Serves a read from the buffer and from the sectors passing the head; `None` if it needs positioning.
    fn read_on(&mut self, request: &Request, start: Nanos, commanded: Nanos) -> Option<Nanos> {
        let reading = self.reading_on?;
        let parts = Arc::clone(&self.parts);
        let spiral = &parts.spiral;
        let passed = spiral.passed(start, self.phase);
        let reached = self.reached(reading, passed);
        let wanted = request.lba.0..request.end().0;
        // A buffer that filled up before this request made the disk stop, and its next sector has passed by.
        let paused = reached == reading.stop;
        if wanted.start < reading.kept || wanted.start > reached || (paused && wanted.end > reading.stop) {
            return None;
        }
        self.statistics.buffer_hits += 1;
        let ready = match wanted.end.checked_sub(reading.at) {
            Some(1..) => reading.passed + (spiral.end(wanted.end) - spiral.begin(reading.at)),
            _ => 0,
        };
        let stop = self.buffer_end(wanted.end).max(reading.stop);
        self.reading_on = Some(match paused && stop > reading.stop {
            // There is room again: the disk continues when the sector at which it stopped comes round.
            true => {
                let passed = passed + spiral.wait(passed, spiral.begin(reading.stop));
                ReadingOn { passed, at: reading.stop, kept: wanted.start, stop }
            }
            false => ReadingOn { kept: wanted.start, stop, ..reading },
        });
        let bus = parts.interface.time_for(request.len_bytes());
        let last = spiral.instant(ready, self.phase).saturating_add(parts.interface.time_for(SECTOR_BYTES));
        Some(last.max(commanded.saturating_add(bus)))
    }

    fn start_reading_on(&mut self, request: &Request, passed: u128) {
        let at = request.end().0;
        let stop = self.buffer_end(at);
        self.reading_on = (stop > at).then_some(ReadingOn { passed, at, kept: request.lba.0, stop });
    }

    /// The arm stays where reading on has brought it.
    fn stop_reading_on(&mut self, at: Nanos) {
        if let Some(reading) = self.reading_on.take() {
            let reached = self.reached(reading, self.parts.spiral.passed(at, self.phase));
            self.arm = self.parts.spiral.track(reached.min(self.parts.spiral.sectors() - 1));
        }
    }

    /// The sector reached by reading ahead when `passed` positions have passed.
    fn reached(&self, reading: ReadingOn, passed: u128) -> u64 {
        let spiral = &self.parts.spiral;
        let further = passed.saturating_sub(reading.passed);
        if spiral.end(reading.stop) - spiral.begin(reading.at) <= further {
            return reading.stop;
        }
        spiral.sector_at(spiral.begin(reading.at) + further).max(reading.at)
    }

    fn buffer_end(&self, sector: u64) -> u64 {
        (sector + self.parts.read_ahead_sectors).min(self.parts.spiral.sectors())
    }
}

/// The three-point curve, in integer arithmetic.
#[derive(Clone, Copy, Debug)]
struct SeekCurve {
    single: Nanos,
    /// Three times the coefficients of the root and of the distance, in nanoseconds.
    root: i128,
    linear: i128,
    /// The longest distance minus one, at least one.
    span: u64,
}

impl SeekCurve {
    /// The curve over distances from 1 to `longest`.
    fn new(single: Nanos, average: Nanos, full: Nanos, longest: u64) -> Result<Self, String> {
        let [s, a, f] = [single, average, full].map(|time| i128::from(time.as_nanos()));
        let (root, linear) = (-10 * s + 15 * a - 5 * f, 7 * s - 15 * a + 8 * f);
        // The slope, root/(2√x) + linear, is smallest at one end. If the curve grows there, it grows everywhere.
        if root < 0 || root + 2 * linear < 0 {
            return Err(format!(
                "no growing three-point curve passes through single-track-seek {single}, average-seek {average} and \
                 full-stroke-seek {full}"
            ));
        }
        Ok(SeekCurve { single, root, linear, span: longest.saturating_sub(1).max(1) })
    }

    /// The time over `cylinders`, at least one.
    fn time(&self, cylinders: u64) -> Nanos {
        let distance = u128::from(cylinders - 1);
        // The root of a fraction with 62 binary places has 31 of them.
        let root = (((distance << 62) / u128::from(self.span)) as u64).isqrt();
        let curved = (self.root * i128::from(root)) >> 31;
        let straight = self.linear * distance as i128 / i128::from(self.span);
        let beyond = u64::try_from((curved + straight) / 3).unwrap_or(0);
        self.single.saturating_add(Nanos::from_nanos(beyond))
    }
}

/// Kind `simple-disk`: geometry, times and rates as the module describes them, and one `[[zone]]` from the outside in.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let rotation = fields.positive("rotation")?;
    let heads = u64::from(fields.count("heads", 1..=64)?);
    let single = fields.positive("single-track-seek")?;
    let average = fields.positive("average-seek")?;
    let full = fields.positive("full-stroke-seek")?;
    let head_switch = fields.quantity("head-switch")?;
    let cylinder_switch = fields.quantity("cylinder-switch")?;
    let write_settle = fields.quantity("write-settle")?;
    let overhead = fields.quantity("controller-overhead")?;
    let interface: Rate = fields.positive("interface-rate")?;
    let Bytes(read_ahead) = fields.quantity_or("read-ahead", Bytes(0))?;
    if read_ahead > MAX_READ_AHEAD_BYTES {
        return Err(fields.error_at("read-ahead", format!("expected at most {}", Bytes(MAX_READ_AHEAD_BYTES))));
    }
    let mut zones = Vec::new();
    for mut zone in fields.tables("zone", 256)? {
        zones.push(Zone {
            cylinders: u64::from(zone.count("cylinders", 1..=10_000_000)?),
            sectors_per_track: u64::from(zone.count("sectors-per-track", 1..=100_000)?),
        });
        zone.finish()?;
    }
    let spiral = Spiral::new(&zones, heads, rotation, head_switch, cylinder_switch);
    let seek = SeekCurve::new(single, average, full, spiral.cylinders() - 1)
        .map_err(|problem| fields.error_at("average-seek", problem))?;
    let capacity_bytes = spiral.sectors() * SECTOR_BYTES;
    let read_ahead_sectors = read_ahead / SECTOR_BYTES;
    let parts = Arc::new(Parts { spiral, seek, overhead, head_switch, write_settle, interface, read_ahead_sectors });
    let make = move |info, seed| -> Box<dyn crate::DeviceModel> {
        Box::new(QueuedDevice::new(info, Some(1), SimpleDisk::new(Arc::clone(&parts), seed)))
    };
    Ok(Blueprint::new(|_info| footprint::DEVICE_BYTES, make).turning().at_most(capacity_bytes))
}

/// More than any drive's buffer.
const MAX_READ_AHEAD_BYTES: u64 = 1 << 30;

#[cfg(test)]
#[path = "simple_disk_tests.rs"]
mod tests;
