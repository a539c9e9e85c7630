//! Throughput and longest wait of a device under closed loops: the figures that data sheets state.
//!
//! A closed loop keeps `depth` requests outstanding. Reads count from the end of the first eighth, when the drive
//! streams; writes count from the first arrival to the end of a flush, so that a write cache hides nothing. Where the
//! cache is not volatile, writes count as reads do.

mod check;
mod endless;
mod mixed;
mod together;

use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request, SECTOR_BYTES};

use crate::DeviceModel;
pub use crate::load::{Load, Summary};
pub use check::{AVERAGE_SEEK, Check, Figure, Row, Verdict, check, summarise};
pub use endless::{Barrier, GIVEN_UP, Pace, Waited, Writer, measure_barrier};
pub use mixed::{NOISE_PERCENT, SLACK, Wait, slower_without_order};
pub use together::{Loop, Ops, Pattern, measure_together};

/// Effort of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// All loads, with enough requests for a steady state.
    Whole,
    /// The loads that a published figure or a rule needs at 128 KiB, with an eighth of the requests.
    Short,
}

/// Measurements of a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Bytes per second of the counted part.
    pub bytes_per_second: u64,
    /// Requests per second of the counted part, in thousandths.
    pub requests_per_kilosecond: u64,
    /// The longest time from an arrival to its completion.
    pub longest_wait: Nanos,
}

/// Runs a closed loop of requests from `first_sector` on, on a new device.
///
/// # Panics
/// If there is no room for a request after `first_sector`, or the device breaks the contract of [`DeviceModel`].
pub fn measure(device: &mut dyn DeviceModel, load: Load, first_sector: u64, seed: u64) -> Measured {
    let requests = load.requests(device.info().rotational);
    measure_requests(device, load, requests, first_sector, seed)
}

/// Like [`measure`], with another number of requests.
///
/// # Panics
/// Like [`measure`].
pub fn measure_requests(
    device: &mut dyn DeviceModel,
    load: Load,
    requests: u64,
    first_sector: u64,
    seed: u64,
) -> Measured {
    let sectors = load.bytes / SECTOR_BYTES as u32;
    let room = (device.info().capacity_sectors - first_sector) / u64::from(sectors);
    assert!(room > 0, "a request of {} B does not fit behind sector {first_sector}", load.bytes);
    let mut stream = RandomStream::new(seed, "rates", "positions");
    let mut place = |id: u64| {
        let index = if load.sequential { id % room } else { stream.below(room) };
        first_sector + index * u64::from(sectors)
    };
    let op = if load.write { Op::Write } else { Op::Read };
    let (mut arrivals, mut completed): (Vec<Nanos>, Vec<Completion>) = (Vec::new(), Vec::new());
    let (mut done, mut longest, mut from, mut last) = (0, Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    // A non-volatile buffer needs no flush: the requests that fill it are not counted.
    let keeps = !device.info().volatile_cache && !device.info().rotational;
    let warm = if load.write && !keeps { 0 } else { requests / 8 };
    while done < requests {
        while u64::from(device.outstanding()) < u64::from(load.depth) && (arrivals.len() as u64) < requests {
            let id = arrivals.len() as u64;
            device.submit(Request::new(id, op, place(id), sectors));
            arrivals.push(device.now());
        }
        step(device, &mut completed);
        for completion in completed.drain(..) {
            done += 1;
            longest = longest.max(completion.at - arrivals[completion.id.0 as usize]);
            last = completion.at;
            if done == warm {
                from = completion.at;
            }
        }
    }
    if load.write {
        device.submit(Request::new(requests, Op::Flush, 0, 0));
        while completed.is_empty() {
            step(device, &mut completed);
        }
        last = completed[0].at;
    }
    let (counted, elapsed) = (u128::from(requests - warm), u128::from((last - from).as_nanos().max(1)));
    let rate = |amount: u128, per_nanos: u128| (amount * per_nanos / elapsed) as u64;
    Measured {
        bytes_per_second: rate(counted * u128::from(load.bytes), 1_000_000_000),
        requests_per_kilosecond: rate(counted, 1_000_000_000_000),
        longest_wait: longest,
    }
}

fn step(device: &mut dyn DeviceModel, completed: &mut Vec<Completion>) {
    let next = device.next_event().expect("an outstanding request has an event before it");
    device.step(next, completed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::testing::build;

    #[test]
    fn a_device_of_fixed_time_has_the_rate_of_its_depth() {
        for depth in [1, 4, 32] {
            for (sequential, write) in [(true, false), (true, true), (false, false), (false, true)] {
                let load = Load { sequential, write, bytes: 4096, depth };
                let measured = measure(build("constant-1ms", 0).as_mut(), load, 0, 1);
                assert_eq!(measured.longest_wait, Nanos::from_millis(1));
                let expected = u64::from(depth) * 1_000_000;
                let off = measured.requests_per_kilosecond.abs_diff(expected);
                assert!(off * 20 <= expected, "{load:?}: {measured:?}");
            }
        }
    }

    #[test]
    fn a_write_cache_hides_no_write() {
        let load = Load { sequential: false, write: true, bytes: 4096, depth: 4 };
        let measured = measure(build("nearline-20tb", 0).as_mut(), load, 0, 1);
        assert!(measured.requests_per_kilosecond < 2_000_000, "no arm moves so fast: {measured:?}");
    }
}
