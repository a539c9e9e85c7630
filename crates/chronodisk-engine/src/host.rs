//! The host's clock, passed in so that everything else is deterministic.

use std::time::Instant;

use chronodisk_sim::Nanos;

/// The host's time, as the engine uses it: to measure the cost of model calls, and to raise it for an experiment.
pub trait HostClock: Send {
    /// Time since an origin of the clock's own; never steps back.
    fn now(&self) -> Nanos;

    /// Returns after `duration` or more.
    fn sleep(&self, duration: Nanos);
}

/// The operating system's monotonic clock, with its origin at the creation of this value.
#[derive(Clone, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock that reads zero now.
    #[must_use]
    pub fn new() -> Self {
        MonotonicClock { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        MonotonicClock::new()
    }
}

impl HostClock for MonotonicClock {
    fn now(&self) -> Nanos {
        let elapsed_ns = self.origin.elapsed().as_nanos();
        Nanos::from_nanos(u64::try_from(elapsed_ns).unwrap_or(u64::MAX))
    }

    fn sleep(&self, duration: Nanos) {
        // The CPU stays awake, as it would under a model that computes: after sleep its caches are cold, which would
        // charge the guest. Other threads may still use it.
        let end = self.now() + duration;
        while self.now() < end {
            std::thread::yield_now();
        }
    }
}
