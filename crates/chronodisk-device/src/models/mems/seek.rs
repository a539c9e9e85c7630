//! Seek times of the sled.
//!
//! In X the sled starts and ends at rest; in Y it starts and ends at the access speed. The actuators push with a
//! constant force, first with the movement, then against it. The springs pull to the middle with a force that grows to
//! the share `spring` of the actuators' at the ends. A sled that ends in the other direction, or that has passed its
//! target, turns round at constant force (Griffin et al., "Modeling and Performance of MEMS-Based Storage Devices",
//! SIGMETRICS 2000, section 3).
//!
//! The movement between is solved as in that paper's simulator, so that results can be compared. Each of the two phases
//! is cut into eight chunks of constant force, and eight switch points are tried, each four to five per cent of the
//! distance from the previous one towards the slower phase. The one at which both phases have the most similar speeds
//! wins. Three peculiarities of the simulator are part of its published figures and are kept: eight tries do not
//! converge; a chunk over the middle takes the springs as in its larger half for either push of the actuators; and the
//! second phase's chunks have the force of the previous chunk.
//!
//! Floating point here uses additions, subtractions, multiplications, divisions and square roots only. IEEE 754 defines
//! their rounding, and Rust neither fuses nor reorders them, so the results are the same on every machine.

use super::geometry::RowSegment;

/// Femtoseconds, the model's inner unit of time.
pub(super) type Femtos = u128;

/// Femtoseconds in a nanosecond.
pub(super) const FEMTOS_PER_NANO: Femtos = 1_000_000;

/// Forces along one axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// Acceleration by the actuators alone, in nm/s².
    pub(super) acceleration: f64,
    /// The springs' largest force as a share of the actuators', below one.
    pub(super) spring: f64,
    /// Half of the travel in nm.
    pub(super) half_travel: f64,
    /// The springs' acceleration per nm of displacement, in 1/s².
    pub(super) stiffness: f64,
}

/// Parameters of a seek.
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

/// Position of a sled and direction of its movement.
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
    /// Position at the beginning of the servo burst.
    pub(super) arrival: Position,
}

impl Mechanics {
    /// The seek that begins the row at `place` soonest; downwards if both ways take as long.
    pub(super) fn seek(&self, from: Position, place: &RowSegment) -> Seek {
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
        // A sled turns at its position if it moves away from the target, and at the target if it arrives backwards.
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
const CHUNKS: usize = 8;
const CHUNKS_F: f64 = CHUNKS as f64;

/// Share of the distance by which the switch point moves after each try: 5 % − 1/(100·(9 − try)).
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
    /// An axis on which the springs have at most the share `spring` of the actuators' force.
    pub(super) fn new(acceleration: f64, spring: f64, half_travel: f64) -> Self {
        Axis { acceleration, spring, half_travel, stiffness: acceleration * spring / half_travel }
    }

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
            let ratio = self.speed_ratio(start, switch, end, speed);
            let difference = (ratio - 1.0).abs();
            if difference < best_difference {
                (best, best_difference) = (switch, difference);
            }
            switch += if ratio > 1.0 { -shift * distance } else { shift * distance };
        }
        self.phases_time(start, best, end, speed)
    }

    /// The ratio of the speeds at the switch point as the first and as the second phase has them.
    ///
    /// Work over a stretch is the integral of a force that is linear in the place, so that the sum over chunks is a
    /// closed form but for the chunk over the middle.
    fn speed_ratio(&self, start: f64, switch: f64, end: f64, speed: f64) -> f64 {
        let (a, k) = (self.acceleration, self.stiffness);
        let (first, second) = ((switch - start) / CHUNKS_F, (end - switch) / CHUNKS_F);
        let mut sum_first = 8.0 * a - 4.0 * k * (start + switch);
        if let Some((low, high)) = chunk_over_middle(start, first, CHUNKS) {
            sum_first += if -low > high { k * high } else { k * low };
        }
        let mut sum_second = self.pushed(switch - first, switch) + 7.0 * a + 3.5 * k * (2.0 * switch + 7.0 * second);
        if let Some((low, high)) = chunk_over_middle(switch, second, CHUNKS - 1) {
            sum_second -= if -low > high { k * low } else { k * high };
        }
        let square = speed * speed;
        ((square + 2.0 * first * sum_first) / (square + 2.0 * second * sum_second)).sqrt()
    }

    /// The time through all chunks with that switch point.
    fn phases_time(&self, start: f64, switch: f64, end: f64, speed: f64) -> f64 {
        let (first, second) = ((switch - start) / CHUNKS_F, (end - switch) / CHUNKS_F);
        let pushed = self.chunk_forces(start, first, -self.stiffness, Axis::pushed);
        let braked = self.chunk_forces(switch, second, self.stiffness, Axis::braked);
        // The second phase is followed backwards from its end.
        let lagging = braked[..CHUNKS - 1].iter().rev().chain(&pushed[CHUNKS - 1..]);
        pass(speed, first, pushed.iter()) + pass(speed, second, lagging)
    }

    /// The accelerations of a phase's chunks, which grow by `slope` a nanometre where the middle is not crossed.
    fn chunk_forces(&self, start: f64, chunk: f64, slope: f64, mean: impl Fn(&Axis, f64, f64) -> f64) -> [f64; CHUNKS] {
        let mut forces = [0.0; CHUNKS];
        if chunk_over_middle(start, chunk, CHUNKS).is_none() {
            let first = self.acceleration + slope * (start + chunk / 2.0);
            for (index, force) in forces.iter_mut().enumerate() {
                *force = first + slope * chunk * index as f64;
            }
            return forces;
        }
        let mut low = start;
        for force in &mut forces {
            let high = low + chunk;
            *force = mean(self, low, high);
            low = high;
        }
        forces
    }

    /// Mean acceleration over a chunk in which the actuators push upwards.
    fn pushed(&self, low: f64, high: f64) -> f64 {
        match is_over_middle(low, high) {
            true => self.over_middle(low, high),
            false => self.acceleration - self.stiffness * (low + high) / 2.0,
        }
    }

    /// Mean deceleration over a chunk of an upward movement in which the actuators push downwards.
    fn braked(&self, low: f64, high: f64) -> f64 {
        match is_over_middle(low, high) {
            true => self.over_middle(low, high),
            false => self.acceleration + self.stiffness * (low + high) / 2.0,
        }
    }

    /// In a chunk across the middle, the springs count as helping if the lower half is the larger one.
    fn over_middle(&self, low: f64, high: f64) -> f64 {
        let mean = self.stiffness * (high - low) / 2.0;
        if -low > high { self.acceleration + mean } else { self.acceleration - mean }
    }
}

/// The time through chunks of this length, from `speed` on.
fn pass<'a>(speed: f64, chunk: f64, forces: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut time, mut v, mut square) = (0.0, speed, speed * speed);
    for force in forces {
        square += 2.0 * force * chunk;
        let after = square.sqrt();
        time += (after - v) / force;
        v = after;
    }
    time
}

fn is_over_middle(low: f64, high: f64) -> bool {
    low < 0.0 && high > 0.0
}

/// The chunk with the middle strictly inside, among `count` chunks from `start`.
fn chunk_over_middle(start: f64, chunk: f64, count: usize) -> Option<(f64, f64)> {
    // Chunks are laid end to end below, which may end a rounding error further; hence the ninth.
    if start >= 0.0 || start + CHUNKS_F * chunk + chunk <= 0.0 {
        return None;
    }
    let mut low = start;
    for _ in 0..count {
        let high = low + chunk;
        if high >= 0.0 {
            return (high > 0.0).then_some((low, high));
        }
        low = high;
    }
    None
}
