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
#[derive(Debug)]
pub(crate) struct Mechanics {
    pub(crate) access: Access,
    seek: Seek,
    head_switch: Ticks,
    write_settle: i64,
    spindle: Spindle,
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

    /// Time from one angle to the next passage of another.
    pub(crate) fn time_between(&self, from: u64, to: u64) -> Ticks {
        let parts = if to >= from { to - from } else { to + self.turn - from };
        parts / self.speed
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
        Mechanics {
            access,
            seek: Seek::new(&parameters.seek, cylinders),
            head_switch: duration(parameters.head_switch),
            write_settle: signed_duration(parameters.write_settle),
            spindle,
        }
    }

    /// Whether accesses take a fixed time.
    pub(crate) fn is_constant(&self) -> bool {
        matches!(self.access, Access::Constant(_))
    }

    pub(crate) fn spindle(&self) -> &Spindle {
        &self.spindle
    }

    /// Time to move the arm over so many cylinders.
    pub(crate) fn seek_time(&self, cylinders: u32) -> Ticks {
        self.seek.time(cylinders)
    }

    /// Time from one track to another: seek and head switch overlap, a write settles longer.
    pub(crate) fn positioning(&self, from: Track, to: Track, write: bool) -> Ticks {
        let seek = self.seek.time(from.cylinder.abs_diff(to.cylinder));
        let switch = if from.head == to.head { 0 } else { self.head_switch };
        match seek.max(switch) {
            0 => 0,
            moved if write => moved.saturating_add_signed(self.write_settle),
            moved => moved,
        }
    }
}

/// A seek curve in ticks.
#[derive(Debug)]
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
    /// Distances and times from (0, 0) on.
    Extracted(Vec<(u32, Ticks)>),
}

#[derive(Debug)]
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
                let origin = std::iter::once((0, 0));
                Seek::Extracted(origin.chain(points.iter().map(|p| (p.cylinders, duration(p.time)))).collect())
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
            Seek::Extracted(points) => extracted(points, distance),
        }
    }
}

/// On the straight line through the two points around `distance`, or the last two.
fn extracted(points: &[(u32, Ticks)], distance: u32) -> Ticks {
    let above = points.partition_point(|&(d, _)| d < distance).min(points.len() - 1);
    let ((d1, t1), (d2, t2)) = (points[above - 1], points[above]);
    if d2 == distance {
        return t2;
    }
    let (run, rise) = (u64::from(d2 - d1), u64::from(distance - d1));
    match t2 >= t1 {
        true => t1 + mul_div(t2 - t1, rise, run),
        false => t1.saturating_sub(mul_div(t1 - t2, rise, run)),
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

    fn time(&self, distance: u32) -> Ticks {
        match self.single {
            Some(single) if distance == 1 => single,
            _ if distance < self.threshold => self.root.0 + mul_div(root(distance), self.root.1, FRACTION as u64),
            _ => self.line.0 + self.line.1 * u64::from(distance),
        }
    }
}
