//! Arm and platter: how long positioning takes, and where the platter is, in integers.
//!
//! Time inside a disk is counted in [`Ticks`] of 1/16 ns. A turn has `turn` parts such that the platter passes a whole
//! number of parts in a tick, so the platter's angle at an instant is exact for any speed, for ever; only durations are
//! rounded down to a tick, which never accumulates.

use chronodisk_sim::Nanos;

use super::geometry::{Track, mul_div};
use super::parameters::{AccessTime, HplCurve, MechanicsParameters, Picos, Rpm, SeekCurve, ThreePoints};

/// An instant or a duration in 1/16 ns; 64 bits hold 36 years, twice [`LATEST_ARRIVAL`](crate::LATEST_ARRIVAL).
pub(crate) type Ticks = u64;

const TICKS_PER_NANO: u64 = 16;

/// The first tick of an instant.
pub(crate) fn ticks(at: Nanos) -> Ticks {
    at.as_nanos().saturating_mul(TICKS_PER_NANO)
}

/// The first whole nanosecond that is not before `at`.
pub(crate) fn nanos(at: Ticks) -> Nanos {
    Nanos::from_nanos(at.div_ceil(TICKS_PER_NANO))
}

/// A duration that is not negative, to the nearest tick.
pub(crate) fn duration(time: Picos) -> Ticks {
    debug_assert!(time.0 >= 0);
    (time.0 as u64 * TICKS_PER_NANO + 500) / 1_000
}

fn signed_duration(time: Picos) -> i64 {
    duration(Picos(time.0.abs())) as i64 * time.0.signum()
}

/// Seeks, head switches and rotation of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Mechanics {
    pub(crate) access: Access,
    seek: Seek,
    /// Lower bounds of the positioning time by distance, in units of `1 << least_shift` cylinders.
    least_to_read: Vec<LeastTicks>,
    least_to_write: Vec<LeastTicks>,
    least_shift: u32,
    head_switch: Ticks,
    write_settle: i64,
    spindle: Spindle,
}

/// Lower bounds of positioning times. Measured seek curves fall here and there, so that a longer seek may end sooner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeastTicks {
    /// Over this distance.
    pub(crate) there: Ticks,
    /// Over this distance or a longer one.
    pub(crate) there_or_beyond: Ticks,
}

/// How an access is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Full,
    /// Half a turn instead of the platter's angle.
    HalfTurn(Ticks),
    /// A fixed time to the first block.
    Constant(Ticks),
}

/// The platter's rotation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spindle {
    /// Parts of a turn; also the ticks in which the platter turns `speed` times.
    pub(crate) turn: u64,
    /// Parts that pass in a tick.
    speed: u64,
}

impl Spindle {
    pub(crate) fn new(rotation: Rpm) -> Spindle {
        const TICKS_PER_MINUTE: u64 = 60_000_000_000 * TICKS_PER_NANO;
        let Rpm { numerator, denominator } = rotation.reduced();
        Spindle { turn: TICKS_PER_MINUTE * u64::from(denominator), speed: u64::from(numerator) }
    }

    /// Part of the turn that has passed at an instant, if it was at 0 at instant zero.
    pub(crate) fn angle(&self, at: Ticks) -> u64 {
        let at = at % self.turn;
        match at.checked_mul(self.speed) {
            Some(parts) => parts % self.turn,
            None => (u128::from(at) * u128::from(self.speed) % u128::from(self.turn)) as u64,
        }
    }

    /// The angle some time after another one.
    #[inline]
    pub(crate) fn angle_after(&self, angle: u64, elapsed: Ticks) -> u64 {
        match elapsed.checked_mul(self.speed).and_then(|parts| parts.checked_add(angle)) {
            Some(parts) => parts % self.turn,
            None => (self.angle(elapsed) + angle) % self.turn,
        }
    }

    /// Time from one angle to the next passage of another.
    #[inline]
    pub(crate) fn time_between(&self, from: u64, to: u64) -> Ticks {
        let parts = if to >= from { to - from } else { to + self.turn - from };
        parts / self.speed
    }

    /// Whether an angle passes after `from` ticks and before `limit` ticks, if the platter is at angle `now`. This is
    /// `from + time_between(angle_after(now, from), angle) < limit`, mostly without a division.
    #[inline]
    pub(crate) fn passes_before(&self, now: u64, angle: u64, from: Ticks, limit: Ticks) -> bool {
        let ahead = if angle >= now { angle - now } else { angle + self.turn - now };
        match from.checked_mul(self.speed) {
            Some(passed) if passed <= ahead => ahead < limit.saturating_mul(self.speed),
            Some(passed) if passed <= u64::MAX / 2 => {
                let turns = (passed - ahead).div_ceil(self.turn);
                ahead + turns * self.turn < limit.saturating_mul(self.speed)
            }
            _ => from + self.time_between(self.angle_after(now, from), angle) < limit,
        }
    }

    /// A whole turn.
    pub(crate) fn period(&self) -> Ticks {
        self.turn / self.speed
    }

    /// Time in which `count` of `per_track` blocks pass.
    pub(crate) fn blocks(&self, count: u64, per_track: u32) -> Ticks {
        mul_div(count, self.turn, u64::from(per_track) * self.speed)
    }

    /// Blocks that have passed wholly after `elapsed`.
    pub(crate) fn passed(&self, elapsed: Ticks, per_track: u32) -> u64 {
        let estimate = mul_div(elapsed, u64::from(per_track) * self.speed, self.turn);
        // `blocks` rounds down, so a block may be complete a tick before its share of the turn.
        if self.blocks(estimate + 1, per_track) <= elapsed { estimate + 1 } else { estimate }
    }
}

impl Mechanics {
    /// Prepares validated parameters of a drive with so many cylinders.
    pub(crate) fn new(parameters: &MechanicsParameters, cylinders: u32) -> Mechanics {
        let spindle = Spindle::new(parameters.rotation);
        let access = match parameters.access {
            AccessTime::Full => Access::Full,
            AccessTime::AverageRotation => Access::HalfTurn(spindle.period() / 2),
            AccessTime::Constant(time) => Access::Constant(duration(time)),
        };
        let seek = Seek::new(&parameters.seek, cylinders);
        let least_shift = coarse_shift(cylinders);
        let least = |index: u32| seek.least_within(index << least_shift, ((index + 1) << least_shift) - 1);
        let mut least_to_read = vec![LeastTicks::default(); (cylinders >> least_shift) as usize + 1];
        let mut there_or_beyond = Ticks::MAX;
        for (index, bounds) in least_to_read.iter_mut().enumerate().rev() {
            let there = least(index as u32);
            there_or_beyond = there_or_beyond.min(there);
            *bounds = LeastTicks { there, there_or_beyond };
        }
        let mut mechanics = Mechanics {
            access,
            least_to_read,
            least_to_write: Vec::new(),
            least_shift,
            seek,
            head_switch: duration(parameters.head_switch),
            write_settle: signed_duration(parameters.write_settle),
            spindle,
        };
        let to_write = |&LeastTicks { there, there_or_beyond }: &LeastTicks| {
            let [there, there_or_beyond] = [there, there_or_beyond].map(|moved| mechanics.settled(moved, true));
            LeastTicks { there, there_or_beyond }
        };
        mechanics.least_to_write = mechanics.least_to_read.iter().map(to_write).collect();
        mechanics
    }

    pub(crate) fn spindle(&self) -> &Spindle {
        &self.spindle
    }

    /// Time to move the arm over so many cylinders.
    pub(crate) fn seek_time(&self, cylinders: u32) -> Ticks {
        self.seek.time(cylinders)
    }

    /// Lower bounds of [`positioning`](Self::positioning) over so many cylinders, soon computed.
    #[inline]
    pub(crate) fn least_positioning(&self, cylinders: u32, write: bool) -> LeastTicks {
        let least = if write { &self.least_to_write } else { &self.least_to_read };
        least.get((cylinders >> self.least_shift) as usize).copied().unwrap_or_default()
    }

    fn settled(&self, moved: Ticks, write: bool) -> Ticks {
        if write && moved > 0 { moved.saturating_add_signed(self.write_settle) } else { moved }
    }

    /// Time from one track to another: seek and head switch overlap, a write settles longer.
    pub(crate) fn positioning(&self, from: Track, to: Track, write: bool) -> Ticks {
        let seek = self.seek.time(from.cylinder.abs_diff(to.cylinder));
        let switch = if from.head == to.head { 0 } else { self.head_switch };
        self.settled(seek.max(switch), write)
    }
}

/// So many low bits of a distance are left out in tables by distance, which have 128 to 256 entries.
fn coarse_shift(cylinders: u32) -> u32 {
    (u32::BITS - cylinders.leading_zeros()).saturating_sub(8)
}

/// A seek curve in ticks.
#[derive(Clone, Debug)]
enum Seek {
    Constant(Ticks),
    Linear {
        points: [Ticks; 3],
        cylinders: u64,
    },
    /// c + b(d − 1) + a√(d − 1), the last two in parts of [`FRACTION`].
    Lee {
        constant: i64,
        line: i64,
        root: i64,
    },
    Hpl(Hpl),
    HplPlus10([Ticks; 10], Hpl),
    Extracted(Extracted),
}

/// Straight lines between points.
#[derive(Clone, Debug)]
struct Extracted {
    /// Distances and times from (0, 0) on.
    points: Vec<(u32, Ticks)>,
    /// By distance: the first point at the first of `1 << shift` distances or behind it.
    starts: Vec<u32>,
    shift: u32,
}

#[derive(Clone, Debug)]
struct Hpl {
    threshold: u32,
    root: (Ticks, Ticks),
    line: (Ticks, Ticks),
    single: Option<Ticks>,
}

/// Denominator of roots and slopes.
const FRACTION: i64 = 1 << 16;

/// √n in parts of [`FRACTION`].
fn root(n: u32) -> u64 {
    (u64::from(n) << 32).isqrt()
}

impl Seek {
    fn new(curve: &SeekCurve, cylinders: u32) -> Seek {
        match curve {
            SeekCurve::Constant(time) => Seek::Constant(duration(*time)),
            SeekCurve::Linear(points) => {
                let points = [points.single, points.average, points.full].map(duration);
                Seek::Linear { points, cylinders: u64::from(cylinders) }
            }
            SeekCurve::Lee(points) => Seek::lee(points, cylinders),
            SeekCurve::Hpl(curve) => Seek::Hpl(Hpl::new(curve)),
            SeekCurve::HplPlus10 { first_ten, rest } => Seek::HplPlus10(first_ten.map(duration), Hpl::new(rest)),
            SeekCurve::Extracted(points) => {
                let points = points.iter().map(|point| (point.cylinders, duration(point.time)));
                Seek::Extracted(Extracted::new(std::iter::once((0, 0)).chain(points).collect(), cylinders))
            }
        }
    }

    /// Lee's coefficients: a = (−10·min + 15·avg − 5·max)/(3√N), b = (7·min − 15·avg + 8·max)/(3N), c = min.
    fn lee(points: &ThreePoints, cylinders: u32) -> Seek {
        let [single, average, full] = [points.single, points.average, points.full].map(|time| duration(time) as i128);
        let fraction = i128::from(FRACTION);
        let cylinders = cylinders.max(1);
        let root_of = (-10 * single + 15 * average - 5 * full) * fraction * fraction / (3 * root(cylinders) as i128);
        let line = (7 * single - 15 * average + 8 * full) * fraction / (3 * i128::from(cylinders));
        Seek::Lee { constant: single as i64, line: line as i64, root: root_of as i64 }
    }

    fn time(&self, distance: u32) -> Ticks {
        if distance == 0 {
            return 0;
        }
        match self {
            Seek::Constant(time) => *time,
            &Seek::Linear { points: [single, average, full], cylinders } => {
                let distance = u64::from(distance);
                if distance <= cylinders / 3 {
                    single + mul_div(average - single, 3 * (distance - 1), cylinders)
                } else {
                    average + mul_div(full - average, (3 * distance).saturating_sub(cylinders), 2 * cylinders)
                }
            }
            &Seek::Lee { constant, line, root: root_factor } => {
                let n = distance - 1;
                let curved = i128::from(root_factor) * i128::from(root(n)) / i128::from(FRACTION);
                let time = i128::from(constant) + (i128::from(line) * i128::from(n) + curved) / i128::from(FRACTION);
                time.max(0) as Ticks
            }
            Seek::Hpl(curve) => curve.time(distance),
            Seek::HplPlus10(first_ten, _) if distance <= 10 => first_ten[distance as usize - 1],
            Seek::HplPlus10(_, rest) => rest.time(distance),
            Seek::Extracted(points) => points.time(distance),
        }
    }
}

impl Seek {
    /// A lower bound of the times of seeks over `first` to `last` cylinders.
    fn least_within(&self, first: u32, last: u32) -> Ticks {
        if first == 0 {
            return 0;
        }
        match self {
            Seek::Constant(_) | Seek::Linear { .. } => self.time(first),
            Seek::Lee { line, root, .. } if *line >= 0 && *root >= 0 => self.time(first),
            Seek::Lee { .. } => 0,
            Seek::Hpl(curve) => curve.least_within(first, last),
            Seek::HplPlus10(first_ten, rest) => {
                let short = first_ten.iter().skip(first as usize - 1).copied();
                short.chain([rest.least_within(first.max(11), last.max(11))]).min().unwrap_or(0)
            }
            Seek::Extracted(points) => points.least_within(first, last),
        }
    }
}

impl Extracted {
    fn new(points: Vec<(u32, Ticks)>, cylinders: u32) -> Extracted {
        let shift = coarse_shift(cylinders);
        let last = cylinders >> shift;
        let start = |index: u32| points.partition_point(|&(distance, _)| distance < index << shift) as u32;
        // The last entry is the end of the points.
        let starts = (0..=last).map(start).chain([points.len() as u32]).collect();
        Extracted { points, starts, shift }
    }

    /// On the straight line through the two points around `distance`, or the last two.
    fn time(&self, distance: u32) -> Ticks {
        let index = (distance >> self.shift) as usize;
        let index = index.min(self.starts.len() - 2);
        let (start, end) = (self.starts[index] as usize, self.starts[index + 1] as usize);
        let above = start + self.points[start..end].partition_point(|&(d, _)| d < distance);
        let above = above.min(self.points.len() - 1);
        let ((d1, t1), (d2, t2)) = (self.points[above - 1], self.points[above]);
        if d2 == distance {
            return t2;
        }
        let (run, rise) = (u64::from(d2 - d1), u64::from(distance - d1));
        match t2 >= t1 {
            true => t1 + mul_div(t2 - t1, rise, run),
            false => t1.saturating_sub(mul_div(t1 - t2, rise, run)),
        }
    }

    /// Between two points and behind the last one the time is on a straight line.
    fn least_within(&self, first: u32, last: u32) -> Ticks {
        let within = self.points.iter().filter(|&&(distance, _)| (first..=last).contains(&distance));
        within.map(|&(_, time)| time).chain([self.time(first), self.time(last)]).min().unwrap_or(0)
    }
}

impl Hpl {
    fn new(curve: &HplCurve) -> Hpl {
        Hpl {
            threshold: curve.threshold_cylinders,
            root: (duration(curve.root_constant), duration(curve.root_factor)),
            line: (duration(curve.line_constant), duration(curve.line_factor)),
            single: curve.single.map(duration),
        }
    }

    /// Both lines rise, but may not meet, and a single cylinder has a time of its own.
    fn least_within(&self, first: u32, last: u32) -> Ticks {
        let corners = [first, 2, self.threshold];
        let within = corners.iter().filter(|corner| (first..=last).contains(corner));
        within.map(|&corner| self.time(corner)).min().unwrap_or(0)
    }

    fn time(&self, distance: u32) -> Ticks {
        match self.single {
            Some(single) if distance == 1 => single,
            _ if distance < self.threshold => self.root.0 + mul_div(root(distance), self.root.1, FRACTION as u64),
            _ => self.line.0 + self.line.1 * u64::from(distance),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::models::disk::tests::small;
    use crate::models::disk::{SeekPoint, ThreePoints};

    const CYLINDERS: u32 = 3_000;

    fn micros() -> impl Strategy<Value = Picos> {
        (0_i64..20_000).prop_map(Picos::from_micros)
    }

    fn three() -> impl Strategy<Value = ThreePoints> {
        // Lee's coefficients may have either sign.
        (1_i64..3_000, 0_i64..6_000, 0_i64..9_000).prop_map(|(single, more, most)| ThreePoints {
            single: Picos::from_micros(single),
            average: Picos::from_micros(single + more),
            full: Picos::from_micros(single + more + most),
        })
    }

    fn hpl() -> impl Strategy<Value = HplCurve> {
        let lines = (micros(), 0_i64..200, micros(), 0_i64..20);
        (1_u32..CYLINDERS, lines, prop::option::of(micros())).prop_map(
            |(threshold_cylinders, (root_constant, root, line_constant, line), single)| HplCurve {
                threshold_cylinders,
                root_constant,
                root_factor: Picos::from_micros(root),
                line_constant,
                line_factor: Picos::from_micros(line),
                single,
            },
        )
    }

    fn curves() -> impl Strategy<Value = SeekCurve> {
        let points = prop::collection::btree_map(1_u32..CYLINDERS, micros(), 2..40);
        prop_oneof![
            micros().prop_map(SeekCurve::Constant),
            three().prop_map(SeekCurve::Linear),
            three().prop_map(SeekCurve::Lee),
            hpl().prop_map(SeekCurve::Hpl),
            (prop::array::uniform10(micros()), hpl())
                .prop_map(|(first_ten, rest)| SeekCurve::HplPlus10 { first_ten, rest }),
            points.prop_map(|points| {
                let point = |(cylinders, time)| SeekPoint { cylinders, time };
                SeekCurve::Extracted(points.into_iter().map(point).collect())
            }),
        ]
    }

    fn mechanics(seek: SeekCurve, settle_micros: i64, cylinders: u32) -> Mechanics {
        let write_settle = Picos::from_micros(settle_micros);
        Mechanics::new(&MechanicsParameters { seek, write_settle, ..small().mechanics }, cylinders)
    }

    proptest! {
        #[test]
        fn no_seek_takes_less_than_its_bounds(
            curve in curves(),
            settle in -2_000_i64..2_000,
            cylinders in 1_u32..CYLINDERS,
        ) {
            let mechanics = mechanics(curve, settle, cylinders);
            for write in [false, true] {
                let mut beyond = Ticks::MAX;
                for distance in (0..cylinders).rev() {
                    let to = Track { cylinder: distance, head: 0 };
                    let time = mechanics.positioning(Track::default(), to, write);
                    let bounds = mechanics.least_positioning(distance, write);
                    beyond = beyond.min(time);
                    prop_assert!(bounds.there <= time, "{bounds:?} over {distance} cylinders, which take {time}");
                    prop_assert!(bounds.there_or_beyond <= beyond, "{bounds:?} over {distance} cylinders: {beyond}");
                }
            }
        }

        #[test]
        fn an_angle_some_time_after_another_is_that_of_the_sum(
            rpm in 1_u32..40_000,
            at in 0_u64..1 << 62,
            elapsed in 0_u64..1 << 62,
        ) {
            let spindle = Spindle::new(Rpm { numerator: rpm, denominator: 1 });
            prop_assert_eq!(spindle.angle_after(spindle.angle(at), elapsed), spindle.angle(at + elapsed));
        }
    }

    proptest! {
        #[test]
        fn an_angle_passes_before_its_time_and_no_other(
            (numerator, denominator) in (1_u32..40_000, 1_u32..1_000),
            now in 0_u64..1 << 62,
            angle in 0_u64..1 << 62,
            from in prop_oneof![0_u64..1_000_000_000, 0_u64..1 << 62],
            limit in prop_oneof![0_u64..1_000_000_000, 0_u64..1 << 62],
        ) {
            let spindle = Spindle::new(Rpm { numerator, denominator });
            let (now, angle) = (spindle.angle(now), spindle.angle(angle));
            let time = from + spindle.time_between(spindle.angle_after(now, from), angle);
            for limit in [limit, time.saturating_sub(1), time, time + 1] {
                prop_assert_eq!(spindle.passes_before(now, angle, from, limit), time < limit, "{} {}", time, limit);
            }
        }
    }

    #[test]
    fn times_between_extracted_points_are_on_straight_lines() {
        let points = [(1, 1_000), (2, 3_000), (700, 2_302), (1_500, 10_302)];
        let points = points.map(|(cylinders, micros)| SeekPoint { cylinders, time: Picos::from_micros(micros) });
        let mechanics = mechanics(SeekCurve::Extracted(points.to_vec()), 0, 2_000);
        let micros = |distance| mechanics.seek_time(distance) / (1_000 * TICKS_PER_NANO);
        let distances = [0, 1, 2, 3, 699, 700, 701, 1_499, 1_500, 1_501, 1_999];
        let times = [0, 1_000, 3_000, 2_999, 2_303, 2_302, 2_312, 10_292, 10_302, 10_312, 15_292];
        assert_eq!(distances.map(micros), times);
    }
}
