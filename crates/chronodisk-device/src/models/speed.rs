//! A device with all durations of its profile divided by a factor.
//!
//! Modelled: the inner model has a time of its own, which passes `speed` times as fast as the device's. An arrival at
//! `t` reaches it at `floor(t × speed)`, and its event at `τ` happens at `ceil(τ / speed)`, the first nanosecond at
//! which its own time has reached `τ`. The factor is a fraction of integers, so both conversions are exact, and one is
//! the other's inverse in the sense that `ceil(τ / speed) ≤ t` exactly if `τ ≤ floor(t × speed)`. So a completion
//! follows its arrival, no event is seen before it happens, and a step to an instant handles everything due there.
//!
//! The whole device is faster: transfers, waits, the drive's own work in idle times. Not modelled: a device with single
//! faster parts, for which the profile is edited.
//!
//! An inner model has [`LATEST_ARRIVAL`] as any other, which a fast one reaches sooner: after a week at 1,000 times.
//! From then on its time passes only while something is outstanding.

use std::ops::Range;

use chronodisk_sim::{Completion, Nanos, Request};

use crate::{DeviceInfo, DeviceModel, LATEST_ARRIVAL, Probe, ZoneReport, advance};

/// Speed of a device relative to its profile, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    millionths: u64,
}

/// Unit of a factor.
const ONE: u64 = 1_000_000;

impl Speed {
    /// The speed of the profile.
    pub const AS_IT_IS: Speed = Speed { millionths: ONE };
    /// Least factor.
    pub const MIN: f64 = 0.001;
    /// Greatest factor.
    pub const MAX: f64 = 1_000.0;

    /// The factor, rounded to millionths; `None` outside of [`MIN`](Self::MIN) to [`MAX`](Self::MAX).
    #[must_use]
    pub fn from_factor(factor: f64) -> Option<Speed> {
        let in_range = (Speed::MIN..=Speed::MAX).contains(&factor);
        in_range.then(|| Speed { millionths: (factor * ONE as f64).round() as u64 })
    }

    /// The factor as a number.
    #[must_use]
    pub fn factor(self) -> f64 {
        self.millionths as f64 / ONE as f64
    }

    /// The device at this speed; at speed 1, the model itself.
    ///
    /// The model must be at instant zero without outstanding requests.
    ///
    /// # Panics
    /// If the model is not at instant zero, or has outstanding requests.
    #[must_use]
    pub fn apply(self, model: Box<dyn DeviceModel>) -> Box<dyn DeviceModel> {
        assert!(model.now() == Nanos::ZERO && model.outstanding() == 0, "a device gets its speed at its start");
        match self {
            Speed::AS_IT_IS => model,
            speed => {
                Box::new(AtSpeed { inner: model, rate: speed.rate(), anchor: Anchor::default(), now: Nanos::ZERO })
            }
        }
    }

    fn rate(self) -> Rate {
        let divisor = greatest_common_divisor(self.millionths, ONE);
        Rate { inner: self.millionths / divisor, outer: ONE / divisor }
    }
}

impl Default for Speed {
    fn default() -> Self {
        Speed::AS_IT_IS
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Ratio of the inner to the outer time.
#[derive(Clone, Copy, Debug)]
struct Rate {
    inner: u64,
    outer: u64,
}

/// A pair of equal instants in both times, from which on they are converted.
#[derive(Clone, Copy, Debug, Default)]
struct Anchor {
    inner: Nanos,
    outer: Nanos,
}

/// The model inside a faster or slower device.
struct AtSpeed {
    inner: Box<dyn DeviceModel>,
    rate: Rate,
    anchor: Anchor,
    now: Nanos,
}

impl AtSpeed {
    /// The inner time at an instant.
    fn inward(&self, at: Nanos) -> Nanos {
        // `Nanos::MAX` means never on both sides.
        if at == Nanos::MAX {
            return Nanos::MAX;
        }
        let passed = u128::from(at.saturating_sub(self.anchor.outer).as_nanos());
        self.anchor.inner.saturating_add(narrow(passed * u128::from(self.rate.inner) / u128::from(self.rate.outer)))
    }

    /// The first instant at which the inner time has reached `at`, but not before now.
    fn outward(&self, at: Nanos) -> Nanos {
        let passed = u128::from(at.saturating_sub(self.anchor.inner).as_nanos());
        let outside = (passed * u128::from(self.rate.outer)).div_ceil(u128::from(self.rate.inner));
        self.anchor.outer.saturating_add(narrow(outside)).max(self.now)
    }

    /// The inner time reached by `limit` if no request arrives or completes.
    fn reached_at(&self, limit: Nanos) -> Nanos {
        let reached = self.inward(limit).max(self.inner.now());
        match self.inner.outstanding() {
            0 => reached.min(self.inner.now().max(LATEST_ARRIVAL)),
            _ => reached,
        }
    }
}

/// A duration of the outer time, saturated.
fn narrow(nanos: u128) -> Nanos {
    Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl DeviceModel for AtSpeed {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding()
    }

    fn submit(&mut self, request: Request) {
        // The inner time stood still; it continues from here.
        if self.inner.now() < self.inward(self.now) {
            self.anchor = Anchor { inner: self.inner.now(), outer: self.now };
        }
        self.inner.submit(request);
    }

    fn next_event(&self) -> Option<Nanos> {
        let next = self.inner.next_event()?;
        (next <= self.reached_at(Nanos::MAX)).then(|| self.outward(next))
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.inner.completion_bound().map(|bound| self.outward(bound))
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let first = completed.len();
        self.inner.step(self.reached_at(limit), completed);
        self.now = match completed.len() > first {
            // Several inner instants may be one outer instant; all their events happen.
            true => {
                let at = self.outward(self.inner.now());
                let whole = self.inward(at);
                advance(self.inner.as_mut(), whole, completed);
                at
            }
            false => self.now.max(limit),
        };
        for completion in &mut completed[first..] {
            completion.at = self.now;
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(AtSpeed { inner: self.inner.fork(), ..*self })
    }

    fn begin_with_zones(&mut self, zones: &[ZoneReport]) -> bool {
        self.inner.begin_with_zones(zones)
    }

    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        self.inner.volatile()
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.inner.probe(&mut Outward { sink, rate: self.rate });
    }
}

/// Passes statistics on, durations divided by the factor.
struct Outward<'a> {
    sink: &'a mut dyn Probe,
    rate: Rate,
}

impl Probe for Outward<'_> {
    fn counter(&mut self, name: &str, value: u64) {
        let is_time = name.ends_with("-ns") || name.ends_with("-nanoseconds");
        let scaled =
            || narrow(u128::from(value) * u128::from(self.rate.outer) / u128::from(self.rate.inner)).as_nanos();
        self.sink.counter(name, if is_time { scaled() } else { value });
    }

    fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        let is_time = ["ns", "us", "ms", "s"].contains(&unit);
        let scaled = value * self.rate.outer as f64 / self.rate.inner as f64;
        self.sink.gauge(name, unit, if is_time { scaled } else { value });
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Nanos, Op, Request};
    use proptest::prelude::*;

    use super::*;
    use crate::contract;
    use crate::models::testing::{build, closed_loop, complete, counter};

    fn at(factor: f64, name: &str, seed: u64) -> Box<dyn DeviceModel> {
        Speed::from_factor(factor).unwrap().apply(build(name, seed))
    }

    #[test]
    fn every_kind_keeps_the_contract_at_every_speed() {
        let profiles = [
            "null",
            "constant-100us",
            "battery-backed-ram",
            "first-disk",
            "barracuda",
            "mems-g2",
            "raid5-eight-disks",
            "queued-disk",
            "nearline-20tb-smr",
            "wd-zn540",
        ];
        for (index, name) in profiles.into_iter().enumerate() {
            for factor in [[1.98, 0.001], [0.7, 50.0]][index % 2] {
                let title = format!("{name} at {factor} times its speed");
                contract::check(&title, contract::cases(8), &|seed| at(factor, name, seed));
            }
        }
    }

    #[test]
    fn the_contract_holds_for_a_queue_at_fractions_that_do_not_divide() {
        for factor in [0.333_333, 0.999_999, 1.000_001, 1.5, 3.0, 7.3, 333.333_333, 1_000.0] {
            let title = format!("constant at {factor}");
            contract::check(&title, contract::cases(128), &|seed| at(factor, "constant-50us", seed));
            contract::check(&title, contract::cases(128), &|seed| at(factor, "battery-backed-ram", seed));
        }
    }

    #[test]
    fn a_request_takes_the_profiles_time_divided_by_the_factor() {
        let read = |factor: f64| complete(at(factor, "constant-10ms", 0).as_mut(), Request::new(1, Op::Read, 0, 8));
        assert_eq!([2.0, 0.5, 1.0, 10.0].map(read), [5, 20, 10, 1].map(Nanos::from_millis));
        // 10 ms / 3 is no whole number of nanoseconds; the completion is at the first one that is not too early.
        assert_eq!(read(3.0), Nanos::from_nanos(3_333_334));
        // A nanosecond at the least, however fast.
        let null = complete(at(1_000.0, "null", 0).as_mut(), Request::new(1, Op::Read, 0, 8));
        assert_eq!(null, Nanos::from_nanos(1));
    }

    #[test]
    fn a_disk_under_load_is_faster_as_a_whole() {
        let load = |model: Box<dyn DeviceModel>| {
            let mut model = model;
            let capacity = model.info().capacity_sectors / 8;
            closed_loop(model.as_mut(), 1, 500, |id| Request::new(id, Op::Read, id * 7_919 % capacity * 8, 8)).last
        };
        let (as_it_is, faster) = (load(build("first-disk", 1)), load(at(4.0, "first-disk", 1)));
        let ratio = as_it_is.as_secs_f64() / faster.as_secs_f64();
        // Each arrival follows a completion, so only roundings of a nanosecond differ.
        assert!((ratio - 4.0).abs() < 1e-6, "{ratio}");
    }

    #[test]
    fn statistics_are_in_the_devices_time() {
        let mut device = at(2.0, "constant-10ms", 0);
        complete(device.as_mut(), Request::new(1, Op::Read, 0, 8));
        assert_eq!(counter(device.as_ref(), "busy-time-ns"), 5_000_000);
        assert_eq!(counter(device.as_ref(), "read-requests"), 1);
    }

    #[test]
    fn the_speed_of_the_profile_is_the_model_itself_and_others_have_bounds() {
        assert_eq!(Speed::from_factor(1.0), Some(Speed::AS_IT_IS));
        assert_eq!(Speed::from_factor(1.98).unwrap().factor(), 1.98);
        assert!(
            [0.0, -1.0, 0.000_9, 1_000.1, f64::NAN, f64::INFINITY].into_iter().all(|f| Speed::from_factor(f).is_none())
        );
    }

    #[test]
    fn time_beyond_what_a_model_holds_stands_still_between_requests() {
        let mut device = at(1_000.0, "first-disk", 1);
        let mut completed = Vec::new();
        for year in 1..=18 {
            let arrival = Nanos::from_secs(year * 365 * 24 * 3_600);
            advance(device.as_mut(), arrival, &mut completed);
            assert_eq!(device.now(), arrival);
            let took = complete(device.as_mut(), Request::new(year, Op::Read, year * 100_000, 8));
            assert!(took < Nanos::from_micros(100), "{took}");
        }
    }

    proptest! {
        #[test]
        fn conversions_are_monotone_and_belong_together(
            millionths in 1_000u64..=1_000_000_000,
            at in 0u64..1 << 59,
            further in 0u64..1 << 40,
        ) {
            let speed = Speed { millionths };
            let device = AtSpeed {
                inner: build("null", 0),
                rate: speed.rate(),
                anchor: Anchor::default(),
                now: Nanos::ZERO,
            };
            let (at, later) = (Nanos::from_nanos(at), Nanos::from_nanos(at + further));
            prop_assert!(device.inward(at) <= device.inward(later));
            prop_assert!(device.outward(at) <= device.outward(later));
            // An instant outside is the first at which the inner time has come so far.
            let seen = device.outward(at);
            if seen < Nanos::MAX {
                prop_assert!(device.inward(seen) >= at);
                prop_assert!(seen == Nanos::ZERO || device.inward(seen.saturating_sub(Nanos::from_nanos(1))) < at);
            }
            // An inner event a nanosecond after an arrival is at least a nanosecond after it outside.
            let inside = device.inward(at);
            if inside < Nanos::MAX {
                prop_assert!(device.outward(inside.saturating_add(Nanos::from_nanos(1))) > at);
            }
        }
    }
}
