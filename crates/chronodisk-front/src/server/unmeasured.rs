//! Unmeasured phases, such as making a file system: requests take the model's time on the device's clock, and
//! next to none on the host's.
//!
//! The device's clock is the host's, and the time that was skipped. While waits are skipped, a thread that would wait
//! for the next completion adds that wait instead. The model sees arrivals and instants as in any other phase, so a log
//! of such a phase can be verified. Only the times between requests are shorter, since the program did not wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chronodisk_engine::Departure;
use chronodisk_sim::Nanos;

use super::core::Core;
use super::{Server, Shared};

/// Longest device time for the model's background work at the end of such a phase. Random writes of a full cache of 256
/// MiB take longer, and a garbage collection may never end.
const REST_MAX: Nanos = Nanos::from_secs(10);
/// Longest wait for outstanding requests at the end of such a phase.
const DRAIN_MAX: Duration = Duration::from_secs(1);
const DRAIN_LOOK: Duration = Duration::from_micros(200);

/// Whether waits are skipped, and how much was.
#[derive(Debug, Default)]
pub(super) struct Skipping {
    is_on: AtomicBool,
    skipped_ns: AtomicU64,
}

impl Skipping {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub fn skipped(&self) -> Nanos {
        Nanos::from_nanos(self.skipped_ns.load(Ordering::Acquire))
    }
}

impl Server {
    /// Begins an unmeasured phase: from now on each request is answered at once, and the device's clock
    /// advances by its service time.
    pub fn skip_waits(&self) {
        self.shared.skipping.is_on.store(true, Ordering::Relaxed);
        // Threads that sleep until a completion must leave.
        self.shared.peers().values().for_each(|peer| peer.nudge());
    }

    /// Ends such a phase. If no request is under way, the model first finishes its background work, within 10 s of the
    /// device's time: the device is then as after a pause.
    pub fn stop_skipping(&self) {
        let shared = &self.shared;
        let give_up = std::time::Instant::now() + DRAIN_MAX;
        while shared.core().clock.outstanding() > 0 && std::time::Instant::now() < give_up {
            std::thread::sleep(DRAIN_LOOK);
        }
        let mut core = shared.core();
        let now = shared.now();
        let rested = core.clock.finish_background_work(now, now.saturating_add(REST_MAX));
        shared.skip_to(rested);
        shared.skipping.is_on.store(false, Ordering::Relaxed);
    }
}

impl Shared {
    /// Sets the device's clock to this instant, unless it is beyond it. The caller holds the core's lock.
    fn skip_to(&self, at: Nanos) {
        let ahead = at.saturating_sub(self.now());
        self.skipping.skipped_ns.fetch_add(ahead.as_nanos(), Ordering::Release);
    }

    /// Skips the waits until a completion leaves. Returns the instant at which to send.
    pub(super) fn skip_to_next(&self, core: &mut Core, leaving: &mut Vec<Departure>) -> Nanos {
        while leaving.is_empty()
            && core.clock.engine().fault().is_none()
            && let Some(wake_at) = core.clock.wake_at()
        {
            self.skip_to(wake_at);
            core.clock.take(self.now(), Nanos::ZERO, leaving);
        }
        self.now()
    }
}
