//! Devices with a fixed time per request: `constant`, and `null` for a negligible time.
//!
//! Modelled: each request, of any kind and size, leaves the device exactly `time` after it got its channel. Without
//! `channels` there is one for every request, so that requests overlap entirely; with `channels = N` at most N are
//! served at once and the others wait in order of arrival. Intentionally nothing else is modelled. These devices are
//! rulers: time beyond `time` seen by a program is the emulator's or the host's.

use chronodisk_sim::{Nanos, Request};

use crate::fields::{Fields, MAX_CHANNELS, ProfileError};
use crate::models::blueprint::Blueprint;
use crate::queued::Service;

/// A service with equal times for all requests.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Time from getting a channel to leaving the device; at least 1 ns.
    pub time: Nanos,
}

impl Service for Constant {
    fn end(&mut self, _request: &Request, start: Nanos, _others: u32) -> Nanos {
        start.saturating_add(self.time)
    }
}

/// Parses kind `constant`: `time`, and `channels` if there is a limit.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let service = Constant { time: fields.positive("time")? };
    let channels = fields.optional_count("channels", 1..=MAX_CHANNELS)?;
    Ok(Blueprint::queued(channels, service).with_discard())
}

/// Kind `null`: no parameters.
pub(crate) fn parse_null(_fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    Ok(Blueprint::queued(None, Constant { time: Nanos::from_nanos(1) }).with_discard())
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};

    use crate::models::testing::{build, closed_loop, complete};
    use crate::{advance, contract};

    #[test]
    fn contracts() {
        for name in ["null", "constant-10ms", "constant-1ms", "constant-100us", "constant-50us"] {
            contract::check(name, contract::cases(256), &|seed| build(name, seed));
        }
        contract::check("constant, three channels", contract::cases(256), &|_| three_channels());
    }

    #[test]
    fn every_request_takes_exactly_its_time_and_all_overlap() {
        let mut device = build("constant-10ms", 0);
        for id in 0..100 {
            device.submit(Request::new(id, Op::ALL[id as usize % 5], 0, 8));
        }
        let mut completed = Vec::new();
        advance(device.as_mut(), Nanos::from_secs(1), &mut completed);
        let expected: Vec<Completion> = (0..100)
            .map(|id| Completion { id: RequestId(id), at: Nanos::from_millis(10), status: Status::Ok })
            .collect();
        assert_eq!(completed, expected);
    }

    #[test]
    fn null_takes_a_nanosecond() {
        let mut device = build("null", 0);
        assert_eq!(complete(device.as_mut(), Request::new(1, Op::Write, 0, 2048)), Nanos::from_nanos(1));
    }

    #[test]
    fn saturation_gives_channels_over_service_time_and_littles_law_holds() {
        // Closed loop of 12 on 3 channels of 2 ms: 1,500 a second, each resident for 12 / 1,500 s = 8 ms.
        let outcome = closed_loop(three_channels().as_mut(), 12, 3_000, |id| Request::new(id, Op::Read, 0, 8));
        assert_eq!(outcome.last, Nanos::from_millis(2_000));
        // All but the first three rounds find the queue full.
        assert!(outcome.response_times[12..].iter().all(|&time| time == Nanos::from_millis(8)));
    }

    fn three_channels() -> Box<dyn crate::DeviceModel> {
        let text = "name = \"c\"\nkind = \"constant\"\ndescription = \"d\"\nsource = \"s\"\n\
                    validation = \"unvalidated\"\ncapacity = \"1 GiB\"\ntime = \"2 ms\"\nchannels = 3\n";
        crate::models::testing::build_text(text, 0)
    }
}
