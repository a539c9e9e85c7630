//! A storage device with a spring-mounted sled as its medium over an array of probe tips, kind `mems`: Griffin,
//! Schlosser, Ganger and Nagle, "Modeling and Performance of MEMS-Based Storage Devices" (SIGMETRICS 2000) and
//! "Operating System Management of MEMS-Based Storage Devices" (OSDI 2000).
//!
//! Modelled, one request at a time for each sled, in order of arrival:
//! 1. Each request spends `command-overhead` in the controller, concurrently with everything else.
//! 2. The sled seeks in X and Y at the same time: accelerates, brakes, settles in X, turns round in Y where it must,
//!    with or against its springs (`seek.rs`). A bidirectional device reads a row from the side that it reaches first.
//! 3. The tips pass a servo burst and the sectors of one row of blocks at the access speed (`geometry.rs`); a row that
//!    follows in the same direction needs no seek.
//! 4. Blocks cross the bus in `bus-time-per-block` each, one request at a time. Blocks that were read cross while the
//!    sled continues. A write starts its seek at once. On each pass over a row it writes the blocks that had arrived
//!    when the sled set out for it, at least the first.
//! 5. A write completes `write-acknowledgement` after its last row, a read when its last block has crossed.
//!
//! An idle sled keeps sweeping. After `park-after` it is parked in the middle, and the next request waits for
//! `startup`; so does the first. `idle-sweep` sets the position of a sweeping sled:
//! - `"end-to-end"`: computed from the access speed and the turns at both ends.
//! - `"scattered"`: as in DiskSim 4.0, which computes the duration of a sweep by adding seconds to an integer quotient
//!   that is mostly zero, and compares it with milliseconds. A sweep takes some tens of nanoseconds, so the sled is
//!   practically at a random position. Published figures for G1 and G2 contain this.
//!
//! `buffer-segments` ranges of read or written blocks stay in the device; a read inside one of them only crosses the
//! bus. A flush costs the overhead, since completed writes are on the medium.
//!
//! Not modelled: prefetching (DiskSim 4.0 has the parameter and ignores it), reordering of requests, energy, bad tips.
//! Seeks are computed in floating point, in a way that gives the same results on every machine (see `seek.rs`);
//! internal time is in femtoseconds. A completion is reported at the nearest nanosecond. The rounding error is carried
//! over to later arrivals, so that a closed loop keeps the internal time.

mod buffer;
mod device;
mod geometry;
mod seek;
mod statistics;
mod units;

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::Blueprint;
use crate::quantity::Bytes;
use device::{IdleSweep, Mems, PERIOD_SCALE, Parts};
use geometry::{Geometry, Layout};
use seek::{Axis, FEMTOS_PER_NANO, Femtos, Mechanics, femtos};
use units::{Acceleration, BitRate, Frequency, Length, Share, TimeConstants};

/// Kind `mems`: the keys as the module describes them.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let medium = Medium::read(fields)?;
    let motion = Motion::read(fields)?;
    let overhead = nanos(fields.quantity("command-overhead")?);
    let bus_block = nanos(fields.quantity("bus-time-per-block")?);
    let write_acknowledgement = nanos(fields.quantity_or("write-acknowledgement", Nanos::ZERO)?);
    let park_after = nanos(fields.quantity("park-after")?);
    let startup = nanos(fields.quantity("startup")?);
    let buffer_segments = fields.optional_count("buffer-segments", 0..=MOST_SEGMENTS)?.unwrap_or(0);
    let Bytes(segment) = fields.quantity_or("buffer-segment", Bytes(0))?;
    if (segment == 0) != (buffer_segments == 0) || !segment.is_multiple_of(SECTOR_BYTES) {
        return Err(fields.error_at(
            "buffer-segment",
            "expected a multiple of 512 B together with `buffer-segments`, nothing without",
        ));
    }
    let mechanics = motion.mechanics(&medium);
    let parts = Parts {
        idle_sweep: motion.idle_sweep(&mechanics, &medium),
        sleds: medium.sleds,
        travel_bits: (medium.travel_y / medium.bit) as i32,
        overhead,
        write_acknowledgement,
        bus_block,
        servo: motion.pass(medium.geometry.servo_bits),
        row: motion.pass(medium.geometry.sector_bits),
        park_after,
        startup,
        buffer_segments,
        buffer_segment_blocks: segment / SECTOR_BYTES,
        geometry: medium.geometry,
        mechanics,
    };
    let capacity_bytes = parts.geometry.blocks() * u64::from(parts.sleds) * SECTOR_BYTES;
    let (parts, sleds) = (Arc::new(parts), medium.sleds);
    let make = move |info, _seed| -> Box<dyn crate::DeviceModel> { Box::new(Mems::new(info, Arc::clone(&parts))) };
    let segments_bytes = footprint::array_bytes::<[u64; 4]>(buffer_segments.into());
    let memory_bytes =
        footprint::DEVICE_BYTES + footprint::allocations_bytes(sleds.into(), SLED_BYTES) + segments_bytes;
    Ok(Blueprint::new(move |_info| memory_bytes, make).at_most(capacity_bytes))
}

/// State per sled, in bytes.
const SLED_BYTES: u64 = 512;

/// More segments than any device has; each read searches all of them.
const MOST_SEGMENTS: u32 = 1_024;

fn nanos(time: Nanos) -> Femtos {
    Femtos::from(time.as_nanos()) * FEMTOS_PER_NANO
}

/// The sleds and their layout.
struct Medium {
    sleds: u32,
    /// Lengths in nm.
    travel_x: u64,
    travel_y: u64,
    bit: u64,
    geometry: Geometry,
}

impl Medium {
    fn read(fields: &mut Fields<'_>) -> Result<Self, ProfileError> {
        let sleds = fields.optional_count("sleds", 1..=16)?.unwrap_or(1);
        let Length(travel_x) = fields.positive("sled-travel-x")?;
        let Length(travel_y) = fields.positive("sled-travel-y")?;
        let Length(bit) = fields.positive("bit-length")?;
        let sector_bits = fields.count("tip-sector-bits", 1..=1_000_000)?;
        let servo_bits = fields.count("servo-burst-bits", 0..=1_000_000)?;
        let tips_per_block = fields.count("tips-per-block", 1..=1_000_000)?;
        let usable_tips = fields.count("usable-tips", 1..=1_000_000)?;
        let active_tips = fields.count("active-tips", 1..=1_000_000)?;
        let layout = fields.choice("layout", &[("streaming", Layout::Streaming), ("simple", Layout::Simple)])?;
        let (columns, blocks_per_row) = (usable_tips / active_tips, active_tips / tips_per_block);
        if columns == 0 {
            return Err(fields.error_at("active-tips", "more than there are usable tips"));
        }
        if blocks_per_row == 0 {
            return Err(fields.error_at("active-tips", "fewer than one block is striped over"));
        }
        let (cylinders, bits) = (travel_x / bit, travel_y / bit);
        if !(2..=MOST_BITS).contains(&cylinders) {
            return Err(
                fields.error_at("bit-length", format!("the travel in X has {cylinders} bits; expected 2 to 10⁷"))
            );
        }
        let rows = bits.saturating_sub(u64::from(servo_bits)) / u64::from(servo_bits + sector_bits);
        if rows == 0 || bits > MOST_BITS {
            return Err(fields.error_at(
                "tip-sector-bits",
                format!("the travel in Y has {bits} bits; expected at most 10⁷, and room for a row between two bursts"),
            ));
        }
        let geometry = Geometry {
            layout,
            cylinders: cylinders as u32,
            columns,
            rows: rows as u32,
            blocks_per_row,
            servo_bits: servo_bits as i32,
            sector_bits: sector_bits as i32,
        };
        Ok(Medium { sleds, travel_x, travel_y, bit, geometry })
    }
}

/// Keeps positions far from the limits of 32 bits.
const MOST_BITS: u64 = 10_000_000;

/// The sleds' actuators and springs.
struct Motion {
    acceleration_x: Acceleration,
    acceleration_y: Acceleration,
    tip_rate: u64,
    /// Settling in seconds.
    settling: f64,
    springs: Share,
    bidirectional: bool,
    end_to_end: bool,
}

impl Motion {
    fn read(fields: &mut Fields<'_>) -> Result<Self, ProfileError> {
        let acceleration_x = fields.positive("acceleration-x")?;
        let acceleration_y = fields.positive("acceleration-y")?;
        let BitRate(tip_rate) = fields.positive("tip-rate")?;
        let Frequency(millihertz) = fields.positive("resonant-frequency")?;
        let TimeConstants(constants) = fields.quantity("settling")?;
        let springs = fields.quantity("springs")?;
        if springs >= Share(1_000_000) {
            return Err(fields.error_at("springs", "as strong as the actuators, which then hold no sled at an end"));
        }
        let bidirectional = fields.choice("access", &[("bidirectional", true), ("one-way", false)])?;
        let end_to_end = fields.choice("idle-sweep", &[("end-to-end", true), ("scattered", false)])?;
        // A time constant of an oscillation at f is 1/(2π f).
        let settling = constants as f64 / 1e3 / (TWO_PI * (millihertz as f64 / 1e3));
        Ok(Motion { acceleration_x, acceleration_y, tip_rate, settling, springs, bidirectional, end_to_end })
    }

    fn mechanics(&self, medium: &Medium) -> Mechanics {
        let axis = |Acceleration(micrometres): Acceleration, travel: u64| {
            Axis::new(micrometres as f64 * 1e3, self.springs.0 as f64 / 1e6, travel as f64 / 2.0)
        };
        Mechanics {
            x: axis(self.acceleration_x, medium.travel_x),
            y: axis(self.acceleration_y, medium.travel_y),
            bit: medium.bit as f64,
            speed: self.tip_rate as f64 * medium.bit as f64,
            settling: self.settling,
            bidirectional: self.bidirectional,
            servo_bits: medium.geometry.servo_bits,
        }
    }

    fn idle_sweep(&self, mechanics: &Mechanics, medium: &Medium) -> IdleSweep {
        let turn = mechanics.y.turnaround(mechanics.y.half_travel, true, mechanics.speed);
        if self.end_to_end {
            return IdleSweep::EndToEnd { bit: self.pass(1).max(1), turn: femtos(turn) };
        }
        // The simulator turns with the acceleration in X, divides integers, and takes the sum to be in milliseconds.
        let turn = mechanics.x.turnaround(mechanics.x.half_travel, true, mechanics.speed);
        let sum = turn + (medium.travel_y / self.tip_rate * medium.bit) as f64;
        let period = ((sum * 1e12 * PERIOD_SCALE as f64) as u128).max(1);
        IdleSweep::Scattered { period, bit_nm: medium.bit as i64, travel_nm: medium.travel_y as i64 }
    }

    /// Time to pass this number of bits at the access speed, to the nearest femtosecond.
    fn pass(&self, bits: i32) -> Femtos {
        let rate = Femtos::from(self.tip_rate);
        (bits as Femtos * 1_000_000_000_000_000 + rate / 2) / rate
    }
}

/// 2π to the eight digits that the reference simulator has: its outputs can be followed to the picosecond.
const TWO_PI: f64 = 62_831_853.0 / 1e7;

#[cfg(test)]
mod tests;
