//! The choice between sleeping and spinning; a pure function of instants.

use chronodisk_sim::Nanos;

use super::median::RunningQuantile;

/// Decides how a thread waits for an instant, and detects gaps in which it lost its CPU.
///
/// A timer wakes a thread 15 to 90 µs late; a spinning thread sees its instant within 0.1 µs. So a thread sleeps until
/// a *margin* before the instant, and spins for the rest. The margin is the 99th percentile of this thread's wake-up
/// delays, plus time to warm the caches, within bounds.
///
/// The kernel's fair server cuts off a real-time thread that never sleeps for 35 to 54 ms in every second.
/// [`owes_sleep`](Self::owes_sleep) tells when less than [`ASLEEP_SHARE_PERCENT`] of the recent past was sleep; the
/// thread's owner then gives its real-time priority up until it has slept.
///
/// ```
/// use chronodisk_engine::{Pace, Wait};
/// use chronodisk_sim::Nanos;
///
/// let mut pace = Pace::new(Nanos::ZERO);
/// let (now, due) = (Nanos::ZERO, Nanos::from_millis(10));
/// let Wait::Sleep { until } = pace.plan(now, Some(due)) else { panic!("10 ms are worth a sleep") };
/// assert!(until < due);
/// // It woke up 140 µs late, by a timer, and spins for the rest.
/// let woke = until + Nanos::from_micros(140);
/// pace.slept(now, woke, Some(until));
/// assert_eq!(pace.plan(woke, Some(due)), Wait::Spin { until: due });
/// assert_eq!(pace.plan(due, Some(due)), Wait::Now);
/// ```
#[derive(Clone, Debug)]
pub struct Pace {
    oversleep: RunningQuantile,
    oversleep_median: RunningQuantile,
    window_begun: Nanos,
    window_asleep: Nanos,
    last_spin: Option<Nanos>,
    gap: Gap,
    statistics: PaceStatistics,
}

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waits for an external event.
    Forever,
    /// Sleeps until a timer, or an external event before.
    Sleep {
        /// Instant of the timer.
        until: Nanos,
    },
    /// Read the clock and poll for input.
    Spin {
        /// The instant waited for.
        until: Nanos,
    },
    /// The instant is there.
    Now,
}

/// An interval in which the host ran another thread on this thread's CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The last instant before it at which the thread ran.
    pub from: Nanos,
    /// The end of the gap; equal to `from` if there was none.
    pub to: Nanos,
}

impl Gap {
    /// Whether the instant fell into it.
    #[must_use]
    pub fn contains(&self, at: Nanos) -> bool {
        self.from < at && at <= self.to
    }
}

/// Time of a thread, asleep and awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceStatistics {
    /// Time asleep.
    pub asleep: Nanos,
    /// Time spent spinning, including stolen time.
    pub spinning: Nanos,
    /// Gaps in the spin loop and between it and sending, and wake-ups later than the margin.
    pub gaps: u64,
    /// Total length of the gaps.
    pub stolen: Nanos,
    /// The longest gap.
    pub gap_max: Nanos,
}

impl PaceStatistics {
    /// Adds another thread's.
    pub fn add(&mut self, other: &PaceStatistics) {
        self.asleep += other.asleep;
        self.spinning += other.spinning;
        self.gaps += other.gaps;
        self.stolen += other.stolen;
        self.gap_max = self.gap_max.max(other.gap_max);
    }
}

/// Share of its time that a real-time thread must sleep, in per cent: Linux gives other threads a
/// twentieth of a CPU that real-time threads fill (`sched_rt_runtime_us`; the fair server since
/// 6.12).
pub const ASLEEP_SHARE_PERCENT: u64 = 5;

/// Time over which the share is watched; well below the second that the kernel takes.
const WINDOW: Nanos = Nanos::from_millis(200);
/// Lateness of wake-ups before there are measurements.
const OVERSLEEP_INITIAL: Nanos = Nanos::from_micros(150);
/// Time for which a thread that has slept must spin until replies leave as fast as from warm caches.
const WARM_UP: Nanos = Nanos::from_micros(100);
/// Bounds of the margin. With 100 µs instead of 250 as the lower one, the 99th percentile of
/// lateness at 1 and 10 ms was half as long again to twice as long; 500 and 1,000 µs changed nothing.
const MARGIN_MIN: Nanos = Nanos::from_micros(250);
const MARGIN_MAX: Nanos = Nanos::from_micros(400);
/// A shorter sleep is not worth two switches of context.
const SLEEP_MIN: Nanos = Nanos::from_micros(20);
/// A turn of the spin loop, which reads a clock and polls a socket, takes 0.5 to 2 µs, and a tick of the kernel's clock
/// about as long. A longer turn means that another program had the CPU.
const GAP_MIN: Nanos = Nanos::from_micros(8);
/// Taking a lock, a step of a model and the system call of a reply take a few microseconds each with warm caches and
/// some tens with cold ones. An excess of this length means that another program had the CPU.
pub(super) const WORK_GAP_MIN: Nanos = Nanos::from_micros(100);

impl Pace {
    /// The pace of a thread that begins at `now`.
    #[must_use]
    pub fn new(now: Nanos) -> Self {
        Pace {
            oversleep: RunningQuantile::new(990, OVERSLEEP_INITIAL),
            oversleep_median: RunningQuantile::median(Nanos::ZERO),
            window_begun: now,
            window_asleep: Nanos::ZERO,
            last_spin: None,
            gap: Gap::default(),
            statistics: PaceStatistics::default(),
        }
    }

    /// The way to wait from `now` for `wake_at`; `None` to wait for external events only.
    #[must_use]
    pub fn plan(&self, now: Nanos, wake_at: Option<Nanos>) -> Wait {
        let Some(wake_at) = wake_at else { return Wait::Forever };
        if wake_at <= now {
            return Wait::Now;
        }
        let until = wake_at.saturating_sub(self.margin());
        if until.saturating_sub(now) >= SLEEP_MIN { Wait::Sleep { until } } else { Wait::Spin { until: wake_at } }
    }

    /// Time before an instant at which a sleep must end, so that the instant is not missed.
    #[must_use]
    pub fn margin(&self) -> Nanos {
        self.oversleep.value().saturating_add(WARM_UP).max(MARGIN_MIN).min(MARGIN_MAX)
    }

    /// Median delay of this thread's timer wake-ups: about the delay of any event that occurs while it sleeps.
    #[must_use]
    pub fn wake_latency(&self) -> Nanos {
        self.oversleep_median.value()
    }

    /// Records a sleep; `timer` is the latest instant at which a timer would have ended it, if one was set. A wake-up
    /// after that instant is a gap, for any cause.
    pub fn slept(&mut self, from: Nanos, woke: Nanos, timer: Option<Nanos>) {
        let asleep = woke.saturating_sub(from);
        self.statistics.asleep += asleep;
        self.roll(woke);
        self.window_asleep += asleep.min(WINDOW);
        self.last_spin = None;
        let Some(timer) = timer.filter(|timer| *timer <= woke) else { return };
        let late = woke.saturating_sub(timer);
        if late > self.margin() {
            self.note_gap(Gap { from: timer, to: woke });
        }
        self.oversleep.add(late);
        self.oversleep_median.add(late);
    }

    /// Records a turn of the spin loop at `now`. Returns the gap if another program had the CPU since the last turn.
    pub fn spun(&mut self, now: Nanos) -> Option<Gap> {
        let last = self.last_spin.replace(now)?;
        let turn = now.saturating_sub(last);
        self.statistics.spinning += turn;
        self.roll(now);
        if turn < GAP_MIN {
            return None;
        }
        let gap = Gap { from: last, to: now };
        self.note_gap(gap);
        Some(gap)
    }

    /// Notes that the thread did other work than waiting; the next turn of the spin loop counts as the first.
    pub fn worked(&mut self) {
        self.last_spin = None;
    }

    /// Records a wait that ended at `from` and a look for due completions at `to`, without other work in between.
    /// Returns the gap if another program had the CPU meanwhile.
    pub fn turned(&mut self, from: Nanos, to: Nanos) -> Option<Gap> {
        if to.saturating_sub(from) < WORK_GAP_MIN {
            return None;
        }
        let gap = Gap { from, to };
        self.note_gap(gap);
        Some(gap)
    }

    /// The last period in which another program had the CPU.
    #[must_use]
    pub fn last_gap(&self) -> Gap {
        self.gap
    }

    /// Whether less than [`ASLEEP_SHARE_PERCENT`] of the recent past was sleep.
    #[must_use]
    pub fn owes_sleep(&self, now: Nanos) -> bool {
        let elapsed = now.saturating_sub(self.window_begun);
        // A fresh window has not had the time to sleep.
        elapsed >= Nanos::from_nanos(WINDOW.as_nanos() / 2)
            && self.window_asleep.as_nanos() * 100 < elapsed.as_nanos() * ASLEEP_SHARE_PERCENT
    }

    /// Statistics about the thread's time so far.
    #[must_use]
    pub fn statistics(&self) -> PaceStatistics {
        self.statistics
    }

    /// Halves the weight of the past at the end of a window.
    fn roll(&mut self, now: Nanos) {
        let elapsed = now.saturating_sub(self.window_begun);
        if elapsed < WINDOW {
            return;
        }
        let half = Nanos::from_nanos(WINDOW.as_nanos() / 2);
        let fade = elapsed < WINDOW.saturating_add(half);
        self.window_begun = now.saturating_sub(if fade { half } else { Nanos::ZERO });
        let kept = if fade { self.window_asleep.as_nanos() / 2 } else { 0 };
        self.window_asleep = Nanos::from_nanos(kept);
    }

    fn note_gap(&mut self, gap: Gap) {
        self.gap = gap;
        let length = gap.to - gap.from;
        self.statistics.gaps += 1;
        self.statistics.stolen += length;
        self.statistics.gap_max = self.statistics.gap_max.max(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(count: u64) -> Nanos {
        Nanos::from_micros(count)
    }

    #[test]
    fn short_waits_are_spun_and_long_ones_mostly_slept() {
        let pace = Pace::new(Nanos::ZERO);
        assert_eq!(pace.plan(micros(5), None), Wait::Forever);
        assert_eq!(pace.plan(micros(5), Some(micros(5))), Wait::Now);
        assert_eq!(pace.plan(micros(5), Some(micros(105))), Wait::Spin { until: micros(105) });
        assert_eq!(pace.plan(micros(0), Some(micros(1_000))), Wait::Sleep { until: micros(750) });
    }

    #[test]
    fn the_margin_follows_how_late_wake_ups_are_within_bounds() {
        let mut pace = Pace::new(Nanos::ZERO);
        let mut sleep = |late: u64| {
            for round in 0..200 {
                let timer = micros(1_000 * round);
                pace.slept(timer.saturating_sub(micros(500)), timer + micros(late), Some(timer));
            }
            (pace.margin(), pace.wake_latency())
        };
        assert_eq!(sleep(160), (micros(260), micros(160)));
        assert_eq!(sleep(3), (MARGIN_MIN, micros(3)));
        assert_eq!(sleep(5_000), (MARGIN_MAX, micros(5_000)));
    }

    #[test]
    fn gaps_are_found_where_the_loop_spins_and_nowhere_else() {
        let mut pace = Pace::new(Nanos::ZERO);
        assert_eq!(pace.spun(micros(10)), None);
        assert_eq!(pace.spun(micros(12)), None);
        assert_eq!(pace.spun(micros(1_012)), Some(Gap { from: micros(12), to: micros(1_012) }));
        pace.worked();
        assert_eq!(pace.spun(micros(3_000)), None, "it was at work, not away");
        let statistics = pace.statistics();
        assert_eq!((statistics.gaps, statistics.stolen), (1, micros(1_000)));
        assert!(pace.last_gap().contains(micros(1_012)) && !pace.last_gap().contains(micros(12)));
    }

    #[test]
    fn a_wake_up_beyond_the_margin_is_a_gap() {
        let mut pace = Pace::new(Nanos::ZERO);
        pace.slept(micros(0), micros(900), Some(micros(800)));
        assert_eq!(pace.statistics().gaps, 0);
        pace.slept(micros(1_000), micros(9_000), Some(micros(2_000)));
        assert_eq!(pace.last_gap(), Gap { from: micros(2_000), to: micros(9_000) });
    }

    #[test]
    fn whatever_woke_it_a_thread_that_wakes_after_its_timer_was_kept_from_its_cpu() {
        let mut pace = Pace::new(Nanos::ZERO);
        // A request woke the thread before the timer: nothing is learnt.
        pace.slept(micros(0), micros(500), Some(micros(800)));
        assert_eq!((pace.statistics().gaps, pace.wake_latency()), (0, Nanos::ZERO));
        // Both a request and the timer came long before the thread ran again.
        pace.slept(micros(1_000), micros(6_000), Some(micros(2_000)));
        assert_eq!(pace.last_gap(), Gap { from: micros(2_000), to: micros(6_000) });
        assert_eq!(pace.statistics().stolen, micros(4_000));
    }

    #[test]
    fn a_gap_between_waiting_and_sending_counts_and_work_does_not() {
        let mut pace = Pace::new(Nanos::ZERO);
        assert_eq!(pace.turned(micros(10), micros(70)), None, "cold caches");
        assert_eq!(pace.turned(micros(100), micros(2_100)), Some(Gap { from: micros(100), to: micros(2_100) }));
        assert_eq!((pace.statistics().gaps, pace.statistics().stolen), (1, micros(2_000)));
    }

    #[test]
    fn who_never_sleeps_owes_sleep_and_who_sleeps_a_tenth_does_not() {
        let spin = |asleep_every_ms: u64| {
            let mut pace = Pace::new(Nanos::ZERO);
            let mut now = Nanos::ZERO;
            let mut owed = 0;
            for _ in 0..1_000 {
                pace.spun(now);
                now += micros(1_000);
                if asleep_every_ms > 0 {
                    let woke = now + micros(asleep_every_ms);
                    pace.slept(now, woke, None);
                    now = woke;
                }
                owed += u64::from(pace.owes_sleep(now));
            }
            owed
        };
        assert!(spin(0) > 500);
        assert_eq!(spin(100), 0);
    }

    #[test]
    fn a_long_sleep_does_not_pay_for_ever() {
        let mut pace = Pace::new(Nanos::ZERO);
        pace.slept(Nanos::ZERO, Nanos::from_secs(10), None);
        let mut now = Nanos::from_secs(10);
        for _ in 0..2_000 {
            now += micros(1_000);
            pace.spun(now);
        }
        assert!(pace.owes_sleep(now));
    }
}
