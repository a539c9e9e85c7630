//! Timing of a thread's requests.

use chronodisk_sim::{Nanos, RandomStream};

use super::{Direction, FioJob, Rate};

/// The rates of a thread, one for each direction.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    rates: [Option<Rate>; 3],
    is_poisson: bool,
    begun: Nanos,
    /// Due time of each direction's next request, in nanoseconds after the beginning.
    due_ns: [f64; 3],
    random: RandomStream,
}

impl Pace {
    pub fn new(job: &FioJob, random: RandomStream) -> Self {
        Pace { rates: job.rates, is_poisson: job.is_poisson, begun: Nanos::ZERO, due_ns: [0.0; 3], random }
    }

    pub fn begin(&mut self, now: Nanos) {
        self.begun = now;
    }

    /// The direction of the next request: if this one is ahead of its rate, and the other one is due sooner, the other.
    pub fn direction(&self, now: Nanos, drawn: Direction) -> Direction {
        let other = match drawn {
            Direction::Read => Direction::Write,
            _ => Direction::Read,
        };
        let (due, other_due) = (self.due(drawn), self.due(other));
        if due > now && other_due < due { other } else { drawn }
    }

    /// Instant at which the next request of this direction may be issued.
    pub fn due(&self, direction: Direction) -> Nanos {
        self.begun.saturating_add(Nanos::from_nanos(self.due_ns[direction as usize] as u64))
    }

    /// Notes that a request of this length is issued.
    pub fn issued(&mut self, direction: Direction, bytes: u64) {
        let index = direction as usize;
        let gap_ns = match self.rates[index] {
            None => return,
            Some(Rate::Requests(per_s)) => 1e9 / per_s,
            Some(Rate::Bytes(per_s)) => bytes as f64 * 1e9 / per_s,
        };
        let factor = if self.is_poisson { -(1.0 - self.random.unit()).ln() } else { 1.0 };
        self.due_ns[index] += gap_ns * factor;
    }
}
