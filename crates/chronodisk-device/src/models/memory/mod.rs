//! Directly writable memory, kind `memory`: 3D XPoint, phase-change memory, magnetoresistive RAM.
//!
//! Modelled as a series of first-come, first-served stations:
//! - The *controller* accepts a request (one each `command-interval`) and works on it for `read-overhead` or
//!   `write-overhead`, on any number of requests at once.
//! - The *link* moves data to the host and from the host, each direction at a rate of its own.
//! - The *units* hold the data: consecutive pieces of `interleave` bytes lie on consecutive units, so that a request
//!   that is longer than a piece, or not aligned to one, occupies several. A unit serves one access at a time. An
//!   access takes the latency of its direction, varied uniformly by at most the variation (drawn from a stream of its
//!   own), and the time of its bytes at the unit's rate. Nothing is erased or moved.
//! - With a *write buffer*, a write is complete once its data are in the buffer, which keeps them without power; they
//!   leave it when their unit has written them. Writes that find the buffer full wait in order of arrival.
//!
//! A read passes controller, units, link; each piece crosses the link as soon as its unit has it. A write passes
//! controller, link, buffer if there is one, units. Operations without data cost the controller's time alone: a flush
//! because completed writes are safe, a discard and a write-zeroes because they change a map, not the medium.
//!
//! Not modelled: wear levelling and its moves, error correction that fails, thermal throttling, a preference of reads
//! over writes, reads from the write buffer, limits of the host's queues. A request of more than 1,024 pieces is served
//! in larger ones that keep the units as busy, so that events per request are bounded.

mod device;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use crate::DeviceModel;
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::Blueprint;
use crate::quantity::{Bytes, Rate};
use device::Memory;

/// Most units that a device may have; some hundreds of dies are in the largest modules.
const MAX_UNITS: u32 = 4_096;

/// Costs of a direction.
#[derive(Clone, Debug)]
struct Direction {
    /// The controller's work on a request.
    overhead: Nanos,
    /// Time from the beginning of a unit's access to its first byte.
    latency: Nanos,
    /// Largest deviation of an access's latency.
    variation: Nanos,
    /// Rate at which a unit moves an access's bytes.
    bandwidth: Rate,
    /// Rate at which the link moves data.
    link: Rate,
}

/// The parameters, which never change.
#[derive(Clone, Debug)]
struct Parameters {
    units: u32,
    interleave_bytes: u64,
    command_interval: Nanos,
    read: Direction,
    write: Direction,
    /// Size of the write buffer; `None` without one.
    buffer_bytes: Option<u64>,
}

/// Parses kind `memory`. The keys are the fields of [`Parameters`], and the fields of [`Direction`] with the direction
/// as prefix.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let Bytes(interleave_bytes) = fields.positive("interleave")?;
    if !interleave_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(fields.error_at("interleave", "expected a multiple of 512 B"));
    }
    let buffer_bytes = match fields.has("write-buffer") {
        true => Some(fields.positive::<Bytes>("write-buffer")?.0),
        false => {
            fields.know("write-buffer");
            None
        }
    };
    if buffer_bytes.is_some_and(|bytes| bytes < interleave_bytes) {
        return Err(fields.error_at("write-buffer", "smaller than a piece; expected at least `interleave`"));
    }
    let parameters = Parameters {
        units: fields.count("units", 1..=MAX_UNITS)?,
        interleave_bytes,
        command_interval: fields.quantity_or("command-interval", Nanos::ZERO)?,
        read: direction(fields, &READ_KEYS)?,
        write: direction(fields, &WRITE_KEYS)?,
        buffer_bytes,
    };
    let parameters = Arc::new(parameters);
    let memory_bytes = footprint::DEVICE_BYTES + footprint::array_bytes::<Nanos>(parameters.units.into());
    let make = move |info, seed| -> Box<dyn DeviceModel> { Box::new(Memory::new(info, Arc::clone(&parameters), seed)) };
    Ok(Blueprint::new(move |_info| memory_bytes, make).with_discard())
}

/// The keys of a direction, in the order of [`Direction`]'s fields.
type Keys = [&'static str; 5];

const READ_KEYS: Keys =
    ["read-overhead", "read-latency", "read-variation", "unit-read-bandwidth", "link-read-bandwidth"];
const WRITE_KEYS: Keys =
    ["write-overhead", "write-latency", "write-variation", "unit-write-bandwidth", "link-write-bandwidth"];

fn direction(fields: &mut Fields<'_>, keys: &Keys) -> Result<Direction, ProfileError> {
    let direction = Direction {
        overhead: fields.positive(keys[0])?,
        latency: fields.quantity(keys[1])?,
        variation: fields.quantity_or(keys[2], Nanos::ZERO)?,
        bandwidth: fields.positive(keys[3])?,
        link: fields.positive(keys[4])?,
    };
    if direction.variation > direction.latency {
        return Err(fields.error_at(keys[2], format!("more than `{}` itself, {}", keys[1], direction.latency)));
    }
    Ok(direction)
}
