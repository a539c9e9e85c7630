//! The state of a fault: the time in which it is on, its choice of requests, its bad sectors.

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Nanos, RandomStream, RangeSet, Request};

use super::parameters::{Effect, Fault, MILLION, MOST_BAD_SECTORS, Selection};

/// The state of one fault.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The time in which the fault is on; `None` before a beginning that is not known yet.
    period: Option<Range<Nanos>>,
    /// Requests so far that it could have hit.
    candidates: u64,
    stream: RandomStream,
    bad: Bad,
    /// Requests hit.
    pub(super) hits: u64,
}

/// Requests and bytes of writes that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    pub(super) requests: u64,
    pub(super) written_bytes: u64,
}

/// The bad sectors of a latent fault.
#[derive(Clone, Debug)]
struct Bad {
    /// Drawn sectors in ascending order; `None` if all sectors of the region are bad.
    drawn: Option<Arc<[u64]>>,
    healed: RangeSet,
}

impl State {
    /// The state at instant zero of the fault with this number on a device of this capacity.
    pub(super) fn new(fault: &Fault, number: usize, capacity_sectors: u64, seed: u64) -> State {
        let mut stream = RandomStream::new(seed, "faults", &number.to_string());
        let begin = fault.period.from;
        let period = fault.period.is_timed().then(|| begin..begin.saturating_add(fault.period.duration));
        let drawn = match fault.effect {
            Effect::Latent { share: Some(share), .. } => {
                let region = fault.region.start..fault.region.end.min(capacity_sectors);
                Some(draw(region, share, &mut stream))
            }
            _ => None,
        };
        State { period, candidates: 0, stream, bad: Bad { drawn, healed: RangeSet::new() }, hits: 0 }
    }

    /// Whether the fault is on.
    pub(super) fn is_on(&self, now: Nanos) -> bool {
        self.period.as_ref().is_some_and(|period| period.contains(&now))
    }

    /// The next instant after `now` at which the fault begins or ends.
    pub(super) fn next_boundary(&self, now: Nanos) -> Option<Nanos> {
        let period = self.period.as_ref()?;
        [period.start, period.end].into_iter().find(|&at| at > now && at < Nanos::MAX)
    }

    /// Begins a period that waited for arrivals, before the request that arrives now.
    pub(super) fn begin(&mut self, fault: &Fault, arrived: &Arrived, now: Nanos) {
        let period = &fault.period;
        let is_due = arrived.requests >= period.after_requests
            && arrived.written_bytes >= period.after_written
            && now >= period.from;
        if self.period.is_none() && is_due {
            self.period = Some(now..now.saturating_add(period.duration));
        }
    }

    /// Whether the fault hits a request that it may hit.
    pub(super) fn chooses(&mut self, fault: &Fault) -> bool {
        self.candidates += 1;
        match fault.selection {
            Selection::All => true,
            Selection::Every(every) => self.candidates.is_multiple_of(every),
            Selection::Rate(rate) => self.stream.below(MILLION) < rate,
        }
    }

    /// Whether the request covers a bad sector.
    pub(super) fn is_bad(&self, fault: &Fault, request: &Request) -> bool {
        let start = request.lba.0.max(fault.region.start);
        let end = request.end().0.min(fault.region.end);
        if start >= end {
            return false;
        }
        match &self.bad.drawn {
            None => self.bad.healed.gaps(start..end).next().is_some(),
            Some(drawn) => {
                let first = drawn.partition_point(|&sector| sector < start);
                let inside = drawn[first..].iter().take_while(|&&sector| sector < end);
                inside.into_iter().any(|&sector| !self.bad.healed.contains(sector))
            }
        }
    }

    /// The request has given its sectors new contents.
    pub(super) fn heal(&mut self, fault: &Fault, request: &Request) {
        let start = request.lba.0.max(fault.region.start);
        let end = request.end().0.min(fault.region.end);
        match &self.bad.drawn {
            None if start < end => self.bad.healed.insert(start..end),
            None => {}
            // Only bad sectors, so that memory does not grow with the writes.
            Some(drawn) => {
                let first = drawn.partition_point(|&sector| sector < start);
                for &sector in drawn[first..].iter().take_while(|&&sector| sector < end) {
                    self.bad.healed.insert(sector..sector + 1);
                }
            }
        }
    }
}

/// Bad sectors: the region is divided into as many parts, and one sector of each is bad.
fn draw(region: Range<u64>, share: u64, stream: &mut RandomStream) -> Arc<[u64]> {
    let sectors = region.end.saturating_sub(region.start);
    let count = (u128::from(sectors) * u128::from(share)).div_ceil(u128::from(MILLION)) as u64;
    let count = count.min(MOST_BAD_SECTORS);
    let begin = |part: u64| region.start + (u128::from(sectors) * u128::from(part) / u128::from(count)) as u64;
    (0..count).map(|part| begin(part) + stream.below(begin(part + 1) - begin(part))).collect()
}
