//! How long the sled needs to get somewhere.
//!
//! In X the sled starts and ends at rest; in Y it starts and ends at the speed at which the tips read. The actuators
//! push with a constant force, first with the movement, then against it; the springs pull to the middle with a force
//! that grows to the share `spring` of the actuators' at the ends. A sled that ends in the other direction, or that has
//! passed its target, turns round, for which the force is taken as constant (Griffin et al., "Modeling and Performance
//! of MEMS-Based Storage Devices", SIGMETRICS 2000, section 3).
//!
//! The movement between is solved as that paper's simulator does, so that results can be compared: each of the two
//! phases is cut into eight chunks of constant force, and eight switch points are tried, each four to five per cent of
//! the distance from the one before towards the phase with less speed; the one at which both phases have the most alike
//! speeds wins. Three peculiarities of the simulator belong to its published figures and are kept: eight tries do not
//! converge, a chunk over the middle takes the springs to act as in its larger half whichever way the actuators push,
//! and the second phase's chunks have the force of the chunk before.
//!
//! Floating point here is additions, subtractions, multiplications, divisions and square roots only, which IEEE 754
//! rounds in one way, and Rust neither fuses nor reorders them: the results are the same on every machine.

use super::geometry::Place;

/// Femtoseconds, the model's inner unit of time.
pub(super) type Femtos = u128;

/// What moves the sled along one axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// Acceleration by the actuators alone, in nm/s².
    pub(super) acceleration: f64,
    /// The springs' largest force as a share of the actuators', below one.
    pub(super) spring: f64,
    /// Half of the travel in nm.
    pub(super) half_travel: f64,
}

/// All that a seek depends on.
#[derive(Clone, Debug)]
pub(super) struct Mechanics {
    pub(super) x: Axis,
    pub(super) y: Axis,
    /// Length of a bit in nm.
    pub(super) bit: f64,
    /// Speed of access in nm/s.
    pub(super) speed: f64,
    /// Settling after a movement in X, in seconds.
    pub(super) settling: f64,
    pub(super) bidirectional: bool,
    /// Length of the servo burst before a row's data, in bits.
    pub(super) servo_bits: i32,
}

/// Where a sled is and which way it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) up: bool,
}

/// A seek that was chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seek {
    pub(super) time: Femtos,
    pub(super) time_x: Femtos,
    pub(super) time_y: Femtos,
    pub(super) turns: u32,
    /// At the beginning of the servo burst.
    pub(super) arrival: Position,
}

impl Mechanics {
    /// The seek that begins the row at `place` soonest; downwards if both ways take as long.
    pub(super) fn seek(&self, from: Position, place: &Place) -> Seek {
        let up = Position { x: place.x, y: place.low - self.servo_bits, up: true };
        let down = Position { x: place.x, y: place.high + self.servo_bits, up: false };
        if from == up || (self.bidirectional && from == down) {
            return Seek::new(0.0, (0.0, 0), from);
        }
        let time_x = match place.x == from.x {
            true => 0.0,
            false => self.x.travel(self.nm(from.x), self.nm(place.x), 0.0) + self.settling,
        };
        let chosen = self.along_y(from, up);
        if self.bidirectional {
            let other = self.along_y(from, down);
            if other.0.max(time_x) <= chosen.0.max(time_x) {
                return Seek::new(time_x, other, down);
            }
        }
        Seek::new(time_x, chosen, up)
    }

    /// The time of the movement in Y in seconds, and how often the sled turns.
    fn along_y(&self, from: Position, to: Position) -> (f64, u32) {
        let above = to.y > from.y;
        // A sled turns where it is if it moves away from the target, and at the target if it gets there backwards.
        let (turn_here, turn_there) = (from.up != above, to.up != above);
        let mut time = self.y.travel(self.nm(from.y), self.nm(to.y), self.speed);
        if turn_here {
            time += self.y.turnaround(self.nm(from.y), from.up, self.speed);
        }
        if turn_there {
            time += self.y.turnaround(self.nm(to.y), to.up, self.speed);
        }
        (time, u32::from(turn_here) + u32::from(turn_there))
    }

    fn nm(&self, bits: i32) -> f64 {
        f64::from(bits) * self.bit
    }
}

impl Seek {
    fn new(time_x: f64, (time_y, turns): (f64, u32), arrival: Position) -> Self {
        let (time_x, time_y) = (femtos(time_x), femtos(time_y));
        Seek { time: time_x.max(time_y), time_x, time_y, turns, arrival }
    }
}

/// A time in seconds, which is not negative.
pub(super) fn femtos(seconds: f64) -> Femtos {
    (seconds * 1e15 + 0.5) as Femtos
}

/// Chunks to a phase.
const CHUNKS: u32 = 8;

/// By which share of the distance the switch point moves after each try: 5 % − 1/(100·(9 − try)).
const SHIFTS: [f64; 8] = [
    0.05 - 1.0 / 800.0,
    0.05 - 1.0 / 700.0,
    0.05 - 1.0 / 600.0,
    0.05 - 1.0 / 500.0,
    0.05 - 1.0 / 400.0,
    0.05 - 1.0 / 300.0,
    0.05 - 1.0 / 200.0,
    0.05 - 1.0 / 100.0,
];

impl Axis {
    /// The time to reverse at `offset` nm, in seconds: v = 0 is reached and left with the force that acts there.
    ///
    /// A sled that moves outwards is helped by the springs.
    pub(super) fn turnaround(&self, offset: f64, up: bool, speed: f64) -> f64 {
        let spring = self.acceleration * (self.spring * (offset.abs() / self.half_travel));
        let inwards = if up { offset < 0.0 } else { offset > 0.0 };
        2.0 * speed / (self.acceleration + if inwards { -spring } else { spring })
    }

    /// The time from `start` to `end` (nm), both at `speed` (nm/s), in seconds.
    pub(super) fn travel(&self, start: f64, end: f64, speed: f64) -> f64 {
        if start == end {
            return 0.0;
        }
        // The problem is symmetrical: a movement downwards is one upwards seen in a mirror.
        let (start, end) = if end < start { (-start, -end) } else { (start, end) };
        let distance = end - start;
        let mut switch = start + distance / 2.0;
        if self.spring == 0.0 {
            return self.phases_time(start, switch, end, speed);
        }
        let (mut best, mut best_difference) = (switch, f64::INFINITY);
        for shift in SHIFTS {
            let (first, second) = self.speeds_at_switch(start, switch, end, speed);
            let difference = (first / second - 1.0).abs();
            if difference < best_difference {
                (best, best_difference) = (switch, difference);
            }
            switch += if first > second { -shift * distance } else { shift * distance };
        }
        self.phases_time(start, best, end, speed)
    }

    /// The speeds at the switch point as the first and as the second phase has them.
    ///
    /// Work over a stretch is the integral of a force that is linear in the place, so that the sum over chunks is a
    /// closed form but for the chunk over the middle.
    fn speeds_at_switch(&self, start: f64, switch: f64, end: f64, speed: f64) -> (f64, f64) {
        let (a, k) = (self.acceleration, self.acceleration * self.spring / self.half_travel);
        let (first, second) = ((switch - start) / f64::from(CHUNKS), (end - switch) / f64::from(CHUNKS));
        let mut sum_first = 8.0 * a - 4.0 * k * (start + switch);
        if let Some((low, high)) = chunk_over_middle(start, first, CHUNKS - 1, switch) {
            sum_first += if -low > high { k * high } else { k * low };
        }
        let last_low = start + 7.0 * first;
        let last_high = (1..CHUNKS).fold(switch, |place, _| place + second);
        let mut sum_second = self.pushed(last_low, switch) + 7.0 * a + 3.5 * k * (switch + last_high);
        if let Some((low, high)) = chunk_over_middle(switch, second, CHUNKS - 2, last_high) {
            sum_second -= if -low > high { k * low } else { k * high };
        }
        let square = speed * speed;
        ((square + 2.0 * first * sum_first).sqrt(), (square + 2.0 * second * sum_second).sqrt())
    }

    /// The time through all chunks with that switch point.
    fn phases_time(&self, start: f64, switch: f64, end: f64, speed: f64) -> f64 {
        let (first, second) = ((switch - start) / f64::from(CHUNKS), (end - switch) / f64::from(CHUNKS));
        let (mut time, mut v, mut low, mut force) = (0.0, speed, start, 0.0);
        for chunk in 1..=CHUNKS {
            let high = if chunk == CHUNKS { switch } else { low + first };
            force = self.pushed(low, high);
            v = pass(v, force, high - low, &mut time);
            low = high;
        }
        // The second phase is followed backwards from its end, so its forces are wanted in reverse.
        let mut forces = [force; CHUNKS as usize];
        let mut places = [switch; CHUNKS as usize + 1];
        for chunk in 1..CHUNKS as usize {
            places[chunk] = places[chunk - 1] + second;
            forces[chunk] = self.braked(places[chunk - 1], places[chunk]);
        }
        places[CHUNKS as usize] = places[CHUNKS as usize - 1] + second;
        v = speed;
        for chunk in (0..CHUNKS as usize).rev() {
            v = pass(v, forces[chunk], places[chunk + 1] - places[chunk], &mut time);
        }
        time
    }

    /// Mean acceleration over a chunk in which the actuators push upwards.
    fn pushed(&self, low: f64, high: f64) -> f64 {
        self.with_springs(low, high, low <= 0.0 && high <= 0.0)
    }

    /// Mean deceleration over a chunk of an upward movement in which the actuators push downwards.
    fn braked(&self, low: f64, high: f64) -> f64 {
        self.with_springs(low, high, low >= 0.0 && high >= 0.0 && high > 0.0)
    }

    /// The mean of the accelerations at both ends; over the middle, the springs help if the lower half is the larger.
    fn with_springs(&self, low: f64, high: f64, helped: bool) -> f64 {
        let helped = if low < 0.0 && high > 0.0 { -low > high } else { helped };
        let mean = self.acceleration * (self.spring * ((low.abs() + high.abs()) / (2.0 * self.half_travel)));
        if helped { self.acceleration + mean } else { self.acceleration - mean }
    }
}

/// Passes a chunk from speed `v` and returns the speed after it.
fn pass(v: f64, force: f64, length: f64, time: &mut f64) -> f64 {
    let after = (v * v + 2.0 * force * length).sqrt();
    *time += (after - v) / force;
    after
}

/// The chunk with the middle strictly inside among `inner` + 1 chunks from `start`, the last of which ends at `end`.
fn chunk_over_middle(start: f64, chunk: f64, inner: u32, end: f64) -> Option<(f64, f64)> {
    if start >= 0.0 || end <= 0.0 {
        return None;
    }
    let mut low = start;
    for _ in 0..inner {
        let high = low + chunk;
        if high >= 0.0 {
            return (high > 0.0).then_some((low, high));
        }
        low = high;
    }
    Some((low, end))
}
