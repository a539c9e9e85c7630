//! A token bucket: a sustained rate, credits, and a rate while there are credits.
//!
//! With rate `r` and credits `C`, the bucket holds at most `C` tokens, is full at first and gains `r` tokens a second.
//! A request takes its cost in tokens; the one that empties the bucket still passes. After an idle time a load of unit
//! requests above `r` so passes `C + r·t` (at least one) of them within `t`. While there are credits, requests pass at
//! most at the rate `burst`; at `burst` the credits last `C / (burst - r)`.
//!
//! Virtual scheduling (ITU-T I.371, annex A): instead of tokens, each rate keeps the instant at which its bucket is
//! full again. A request of cost `c` passes from `full - C/r` on, and delays the instant by `c/r`. Instants are kept in
//! parts of a nanosecond, so that the rounding of one request is below 2^-20 ns.

use chronodisk_sim::Nanos;

/// Parts of a nanosecond.
const PARTS: u32 = 20;

/// The state of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    sustained: Pace,
    burst: Option<Pace>,
}

/// The bucket of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// Tokens per second; at least one.
    rate: u64,
    /// Time before `full` at which a request may pass, in parts of a nanosecond.
    tolerance: u128,
    /// Instant at which the bucket is full again, in parts of a nanosecond.
    full: u128,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rate: u64, credits: u64, burst: Option<u64>) -> Self {
        Bucket { sustained: Pace::new(rate, credits), burst: burst.map(|rate| Pace::new(rate, 0)) }
    }

    /// The first instant at which the next request may pass.
    pub(super) fn opens_at(&self) -> Nanos {
        let burst = self.burst.as_ref().map_or(Nanos::ZERO, Pace::opens_at);
        self.sustained.opens_at().max(burst)
    }

    /// Takes the tokens of a request that passes at `now`.
    pub(super) fn take(&mut self, now: Nanos, tokens: u64) {
        self.sustained.take(now, tokens);
        if let Some(burst) = &mut self.burst {
            burst.take(now, tokens);
        }
    }
}

impl Pace {
    fn new(rate: u64, credits: u64) -> Self {
        Pace { rate, tolerance: time_of(credits, rate), full: 0 }
    }

    fn opens_at(&self) -> Nanos {
        let parts = self.full.saturating_sub(self.tolerance);
        Nanos::from_nanos(u64::try_from(parts.div_ceil(1 << PARTS)).unwrap_or(u64::MAX))
    }

    fn take(&mut self, now: Nanos, tokens: u64) {
        let now = u128::from(now.as_nanos()) << PARTS;
        // A request that waited passes at the next whole nanosecond; that part of one must not slow the next.
        let is_waiting = self.full + (1 << PARTS) > now;
        self.full = if is_waiting { self.full } else { now } + time_of(tokens, self.rate);
    }
}

/// The time in which this number of tokens is gained, in parts of a nanosecond.
fn time_of(tokens: u64, rate: u64) -> u128 {
    // Below 2^64 · 2^30 · 2^20 = 2^114.
    ((u128::from(tokens) * 1_000_000_000) << PARTS) / u128::from(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of requests that pass within a time, if a request is always waiting.
    fn passed(bucket: &mut Bucket, begin: Nanos, time: Nanos, tokens: u64) -> u64 {
        let (mut count, mut now) = (0, begin);
        loop {
            now = now.max(bucket.opens_at());
            if now >= begin + time {
                return count;
            }
            bucket.take(now, tokens);
            count += 1;
        }
    }

    /// Within one request.
    fn near(found: u64, expected: u64) {
        assert!(found.abs_diff(expected) <= 1, "{found} {expected}");
    }

    #[test]
    fn without_credits_requests_pass_at_the_rate() {
        let mut bucket = Bucket::new(3_000, 0, None);
        near(passed(&mut bucket, Nanos::ZERO, Nanos::from_secs(60), 1), 180_000);
        // 3,000 is no divisor of a second; the rate still holds for an hour.
        near(passed(&mut bucket, Nanos::from_secs(60), Nanos::from_secs(3_600), 1), 10_800_000);
    }

    #[test]
    fn credits_pass_at_once_and_come_back_at_the_rate() {
        let mut bucket = Bucket::new(100, 1_000, None);
        near(passed(&mut bucket, Nanos::ZERO, Nanos::from_nanos(1), 1), 1_001);
        near(passed(&mut bucket, Nanos::from_nanos(1), Nanos::from_secs(1), 1), 100);
        // Half of the credits are back after five seconds without requests.
        near(passed(&mut bucket, Nanos::from_secs(6), Nanos::from_millis(1), 1), 501);
    }

    #[test]
    fn a_burst_lasts_as_long_as_published() {
        // gp2 of 100 GiB: 300 requests a second, 3,000 in a burst; 5.4 million credits last 2,000 s.
        let mut bucket = Bucket::new(300, 5_400_000, Some(3_000));
        near(passed(&mut bucket, Nanos::ZERO, Nanos::from_secs(2_000), 1), 6_000_000);
        near(passed(&mut bucket, Nanos::from_secs(2_000), Nanos::from_secs(100), 1), 30_001);
    }

    #[test]
    fn costs_are_bytes_too() {
        let mut bucket = Bucket::new(125 << 20, 0, None);
        near(passed(&mut bucket, Nanos::ZERO, Nanos::from_secs(10), 1 << 20), 1_250);
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let mut bucket = Bucket::new(1, u64::MAX, Some(u64::MAX));
        bucket.take(Nanos::MAX, u64::MAX);
        bucket.take(Nanos::MAX, u64::MAX);
        assert!(bucket.opens_at() >= Nanos::MAX);
    }
}
