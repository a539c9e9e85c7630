//! Whether to look for the next request for a while before sleeping, decided on instants alone.

use chronodisk_sim::Nanos;

use super::median::RunningQuantile;

/// Decides how long a thread polls for its client's next request after a reply, before it sleeps.
///
/// A client that waits for each reply sends its next request a few microseconds after the reply if it spins, and a few
/// tens if it must be woken. A sleeping server would add a wake-up of about the same, unknown, length; a polling one
/// sees the request within a microsecond. So the thread polls for twice the median time from a reply to the next
/// request, as long as that is short.
///
/// ```
/// use chronodisk_engine::Linger;
/// use chronodisk_sim::Nanos;
///
/// let mut linger = Linger::new();
/// let mut now = Nanos::ZERO;
/// for _ in 0..100 {
///     linger.replied(now);
///     now += Nanos::from_micros(40);
///     linger.received(now);
/// }
/// linger.replied(now);
/// assert_eq!(linger.until(), Some(now + Nanos::from_micros(90)));
/// ```
#[derive(Clone, Debug)]
pub struct Linger {
    turnaround: RunningQuantile,
    replied: Option<Nanos>,
}

/// Added to twice the turn-around.
const SLACK: Nanos = Nanos::from_micros(10);
/// Beyond this a sleep is worth its price.
const LINGER_MAX: Nanos = Nanos::from_micros(250);
/// A client that blocks on a virtual machine, until it was measured.
const TURNAROUND_INITIAL: Nanos = Nanos::from_micros(40);

impl Linger {
    /// The state of a thread that has not replied to any request.
    #[must_use]
    pub fn new() -> Self {
        Linger { turnaround: RunningQuantile::median(TURNAROUND_INITIAL), replied: None }
    }

    /// A reply left at `at`.
    pub fn replied(&mut self, at: Nanos) {
        self.replied = Some(at);
    }

    /// Notes a request that was received at `at`.
    pub fn received(&mut self, at: Nanos) {
        let Some(replied) = self.replied.take() else { return };
        self.turnaround.add(at.saturating_sub(replied));
    }

    /// Instant until which polling is worthwhile; `None` if it is not, or if no reply was sent since the last request.
    #[must_use]
    pub fn until(&self) -> Option<Nanos> {
        let replied = self.replied?;
        let usual = self.turnaround.value();
        let length = usual.saturating_add(usual).saturating_add(SLACK);
        (length <= LINGER_MAX).then(|| replied.saturating_add(length))
    }
}

impl Default for Linger {
    fn default() -> Self {
        Linger::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(count: u64) -> Nanos {
        Nanos::from_micros(count)
    }

    fn with_turnaround(us: u64) -> Linger {
        let mut linger = Linger::new();
        for round in 0..200 {
            linger.replied(micros(round * 10_000));
            linger.received(micros(round * 10_000 + us));
        }
        linger
    }

    #[test]
    fn it_looks_for_clients_that_come_back_soon_and_sleeps_for_the_others() {
        let mut soon = with_turnaround(3);
        soon.replied(micros(1));
        assert_eq!(soon.until(), Some(micros(17)));
        let mut late = with_turnaround(2_000);
        late.replied(micros(1));
        assert_eq!(late.until(), None);
    }

    #[test]
    fn nothing_is_looked_for_but_after_a_reply() {
        let mut linger = with_turnaround(3);
        assert_eq!(linger.until(), None);
        linger.replied(micros(5));
        linger.received(micros(6));
        linger.received(micros(7));
        assert_eq!(linger.until(), None);
    }

    #[test]
    fn a_client_that_changes_its_mind_is_looked_for_again() {
        let mut linger = with_turnaround(2_000);
        for round in 1_000..1_200 {
            linger.replied(micros(round * 10_000));
            linger.received(micros(round * 10_000 + 20));
        }
        linger.replied(micros(0));
        assert_eq!(linger.until(), Some(micros(50)));
    }
}
