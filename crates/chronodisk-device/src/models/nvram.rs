//! A battery-backed RAM disk, kind `nvram`: memory behind a bus, with several requests under way at once.
//!
//! Modelled: a request gets one of `channels` slots in order of arrival, spends `latency` in the controller, then its
//! bytes cross the one bus at `bandwidth`, in the same order. Not modelled: refresh, wear, loss of power. Operations
//! without data (flush, discard, write-zeroes) cost the latency only, since the contents are safe once they are in RAM
//! and zeroing is the controller's own business.

use chronodisk_sim::{Nanos, Request};

use crate::fields::{Fields, MAX_CHANNELS, ProfileError};
use crate::models::blueprint::Blueprint;
use crate::quantity::Rate;
use crate::queued::Service;

/// The parameters and the one thing that the device remembers between requests.
#[derive(Clone, Debug)]
pub struct Nvram {
    latency: Nanos,
    bandwidth: Rate,
    bus_free: Nanos,
}

impl Service for Nvram {
    fn end(&mut self, request: &Request, start: Nanos, _others: u32) -> Nanos {
        let ready = start.saturating_add(self.latency);
        if !request.op.moves_data() {
            return ready;
        }
        self.bus_free = ready.max(self.bus_free).saturating_add(self.bandwidth.time_for(request.len_bytes()));
        self.bus_free
    }
}

/// Kind `nvram`: `latency`, `bandwidth`, `channels`.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let (latency, bandwidth) = (fields.quantity("latency")?, fields.positive("bandwidth")?);
    let channels = fields.count("channels", 1..=MAX_CHANNELS)?;
    let service = Nvram { latency, bandwidth, bus_free: Nanos::ZERO };
    Ok(Blueprint::queued(Some(channels), service).with_discard())
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Nanos, Op, Request};

    use crate::contract;
    use crate::models::testing::{build, closed_loop, complete};

    // The profile: 10 µs latency, 2 GB/s, 8 channels; 4 KiB cross the bus in 2,048 ns.

    #[test]
    fn keeps_the_contract() {
        contract::check("battery-backed-ram", contract::cases(256), &|seed| build("battery-backed-ram", seed));
    }

    #[test]
    fn without_load_a_request_costs_latency_and_transfer() {
        let mut device = build("battery-backed-ram", 0);
        assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 0, 8)), Nanos::from_nanos(12_048));
        assert_eq!(complete(device.as_mut(), Request::new(2, Op::Flush, 0, 0)), Nanos::from_nanos(10_000));
    }

    #[test]
    fn saturated_it_moves_its_bandwidth() {
        // Large requests: the bus is the bottleneck; after the first latency it never rests.
        let outcome =
            closed_loop(build("battery-backed-ram", 0).as_mut(), 8, 1_000, |id| Request::new(id, Op::Write, 0, 256));
        assert_eq!(outcome.last, Nanos::from_nanos(10_000 + 1_000 * 65_536));
        // Little's law: 8 requests in the system at one per 65,536 ns stay 8 × 65,536 ns each.
        assert_eq!(outcome.response_times[500], Nanos::from_nanos(8 * 65_536));
    }
}
