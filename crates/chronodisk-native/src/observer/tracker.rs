//! Turns the kernel's records into events of [`Dilation`]: counts runnable threads, separates the program's requests
//! from others', and finds the causes of waits' ends. No clock, no I/O.
//!
//! Several predictions follow one program. Only the first may ask to freeze.

use std::collections::HashSet;

use chronodisk_engine::dilation::{Dilation, DilationOptions, Direction, Event, Prediction, Wake, Wish};
use chronodisk_sim::Nanos;

use super::{Cause, Record, Seen};

/// Counts beside the predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Requests that processes outside of the program issued.
    pub other_requests: u64,
    /// Waits interrupted by freezing. Most system calls restart by themselves; some return EINTR.
    pub interrupted_waits: u64,
}

/// Follows a program.
#[derive(Debug)]
pub(crate) struct Tracker {
    dilations: Vec<Dilation>,
    /// Threads that run or wait for a processor only.
    runnable: u64,
    /// Runnable threads whose processor the supervisor uses.
    preempted: u64,
    /// Whether this applies to all runnable threads.
    is_preempted: bool,
    /// Threads of the kernel that work for the program, and run or wait for a processor only.
    helping: u64,
    /// Requests of others in flight.
    others: HashSet<u64>,
    /// Requests that have ended unseen.
    ended_unseen: HashSet<u64>,
    is_frozen: bool,
    /// The last instant at which the program was frozen.
    frozen_at: Option<Nanos>,
    counts: Counts,
}

impl Tracker {
    /// A program that begins at this instant.
    pub fn new(options: &[DilationOptions], began: Nanos) -> Self {
        Tracker {
            dilations: options.iter().map(|options| Dilation::new(*options, began)).collect(),
            runnable: 0,
            preempted: 0,
            is_preempted: false,
            helping: 0,
            others: HashSet::new(),
            ended_unseen: HashSet::new(),
            is_frozen: false,
            frozen_at: None,
            counts: Counts::default(),
        }
    }

    /// Takes an event of the kernel.
    pub fn record(&mut self, record: Record) {
        let at = Nanos::from_nanos(record.at_ns);
        match record.seen {
            Seen::Issued { id, by_others: true, .. } => {
                self.counts.other_requests += 1;
                self.others.insert(id);
            }
            Seen::Issued { id, writes, by_others: false } => {
                let direction = if writes { Direction::Write } else { Direction::Read };
                self.event(at, Event::Issued { id, direction });
            }
            Seen::Completed { id } => {
                // The observer reports the end, too, once another request uses the same entry.
                self.ended_unseen.remove(&id);
                if !self.others.remove(&id) {
                    self.event(at, Event::Completed { id });
                }
            }
            Seen::Runnable { cause, since_ns, waited_before_ns, only_slept } => {
                self.runnable(at, cause, Nanos::from_nanos(since_ns), Nanos::from_nanos(waited_before_ns.into()));
                if cause == Cause::Timer && !only_slept && self.runnable == 1 {
                    self.event(at, Event::Ticked);
                }
            }
            Seen::Blocked => {
                // A thread that was runnable before it was observed was never counted.
                self.runnable = self.runnable.saturating_sub(1);
                if self.runnable == 0 {
                    self.event(at, Event::Blocked);
                }
                self.look_at_preemption(at);
            }
            Seen::Preempted => {
                self.preempted += 1;
                self.look_at_preemption(at);
            }
            Seen::Resumed => {
                self.preempted = self.preempted.saturating_sub(1);
                self.look_at_preemption(at);
            }
            Seen::Helps => {
                self.helping += 1;
                self.event(at, Event::Helped);
            }
            Seen::Rests => {
                self.helping = self.helping.saturating_sub(1);
                if self.helping == 0 {
                    self.event(at, Event::Unhelped);
                }
            }
        }
    }

    fn look_at_preemption(&mut self, at: Nanos) {
        let is_preempted = self.runnable > 0 && self.preempted >= self.runnable;
        if is_preempted != self.is_preempted {
            self.is_preempted = is_preempted;
            self.event(at, if is_preempted { Event::Preempted } else { Event::Resumed });
        }
    }

    fn runnable(&mut self, at: Nanos, cause: Cause, since: Nanos, waited_before: Nanos) {
        // The supervisor wakes all that wait in a system call, to stop them or to let them go on.
        let by_somebody = cause == Cause::Other || cause == Cause::Started && since > Nanos::ZERO;
        let by_supervisor = by_somebody && (self.is_frozen || self.frozen_at.is_some_and(|at| since >= at));
        if by_supervisor && self.is_frozen {
            self.counts.interrupted_waits += 1;
        }
        let slept = matches!(cause, Cause::Timer | Cause::Other) && !by_supervisor && since > Nanos::ZERO;
        if slept {
            self.event(at, Event::Slept { since });
        }
        let was_woken = matches!(cause, Cause::Completion | Cause::KernelThread) && since > Nanos::ZERO;
        self.runnable += 1;
        self.look_at_preemption(at);
        if self.runnable == 1 {
            let by_completion = matches!(cause, Cause::Completion | Cause::KernelThread) || by_supervisor;
            self.event(at, Event::Runnable(if by_completion { Wake::Completion } else { Wake::Other }));
        }
        if was_woken {
            self.event(at, Event::Woken { since });
            if waited_before > Nanos::ZERO {
                self.event(at, Event::KeptWaiting { since: since.saturating_sub(waited_before), blocked: since });
            }
        }
    }

    /// Issue instant of the oldest request in flight.
    pub fn oldest_request(&self) -> Option<Nanos> {
        self.in_flight().map(|(_, issued)| issued).min()
    }

    /// The program's requests, which all predictions follow alike.
    fn in_flight(&self) -> impl Iterator<Item = (u64, Nanos)> {
        self.dilations.first().into_iter().flat_map(Dilation::in_flight)
    }

    /// Notes that the device was idle at this instant: all earlier requests have ended.
    pub fn device_was_idle(&mut self, at: Nanos) {
        let mut ended: Vec<u64> = self.in_flight().filter(|&(_, issued)| issued < at).map(|(id, _)| id).collect();
        ended.sort_unstable();
        for id in ended {
            self.ended_unseen.insert(id);
            self.event(at, Event::Completed { id });
        }
    }

    /// Requests that ended without an observed completion.
    pub fn ended_unseen(&self) -> u64 {
        self.ended_unseen.len() as u64
    }

    /// Notes that the program was frozen.
    pub fn froze(&mut self, at: Nanos) {
        (self.is_frozen, self.frozen_at) = (true, Some(at));
        self.event(at, Event::Frozen);
    }

    /// Notes that the program was thawed.
    pub fn thawed(&mut self, at: Nanos) {
        self.is_frozen = false;
        self.event(at, Event::Thawed);
    }

    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    fn event(&mut self, at: Nanos, event: Event) {
        for dilation in &mut self.dilations {
            dilation.event(at, event);
        }
    }

    /// Action due now.
    pub fn wish(&mut self, now: Nanos) -> Wish {
        let Some(first) = self.dilations.first_mut() else { return Wish::Nothing(None) };
        match first.wish() {
            Wish::Nothing(Some(at)) if at <= now => {
                first.tick(now);
                first.wish()
            }
            wish => wish,
        }
    }

    /// Whether the first prediction would ever freeze, judging by its requests so far.
    pub fn freezes(&self) -> bool {
        self.dilations.first().is_some_and(|dilation| dilation.quantum().is_some())
    }

    /// Ends the predictions at the instant of the program's end.
    pub fn finish(&mut self, at: Nanos) -> (Vec<Prediction>, Counts) {
        for dilation in &mut self.dilations {
            dilation.tick(at);
        }
        (self.dilations.iter().map(Dilation::prediction).collect(), self.counts)
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_engine::dilation::Speedup;

    use super::*;

    fn twice(freezes: bool) -> DilationOptions {
        let factor = Speedup::from_factor(2.0).unwrap();
        DilationOptions {
            reads: factor,
            writes: factor,
            freezes,
            quantum_max: micros(1_000),
            ..DilationOptions::default()
        }
    }

    fn micros(micros: u64) -> Nanos {
        Nanos::from_micros(micros)
    }

    fn at(micros: u64, seen: Seen) -> Record {
        Record { at_ns: micros * 1_000, seen }
    }

    fn runs(cause: Cause, since: u64) -> Seen {
        Seen::Runnable { cause, since_ns: since * 1_000, waited_before_ns: 0, only_slept: true }
    }

    const READ: Seen = Seen::Issued { id: 1, writes: false, by_others: false };

    fn play(records: &[Record], until: u64) -> (Prediction, Counts) {
        let mut tracker = Tracker::new(&[twice(true)], Nanos::ZERO);
        records.iter().for_each(|record| tracker.record(*record));
        let (predictions, counts) = tracker.finish(micros(until));
        (predictions[0], counts)
    }

    #[test]
    fn a_synchronous_read_takes_half_of_its_time() {
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(100, READ),
            at(100, Seen::Blocked),
            at(1_100, Seen::Completed { id: 1 }),
            at(1_100, runs(Cause::Completion, 100)),
            at(1_200, Seen::Blocked),
        ];
        let (prediction, counts) = play(&records, 1_200);
        assert_eq!((prediction.by_debt, prediction.by_request), (micros(700), micros(700)));
        assert_eq!(counts, Counts::default());
    }

    #[test]
    fn threads_are_counted_and_only_the_last_one_to_block_blocks_the_program() {
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(0, runs(Cause::Started, 0)),
            at(0, READ),
            at(100, Seen::Blocked),
            // The other one computes until 400 us.
            at(400, Seen::Blocked),
            at(1_000, Seen::Completed { id: 1 }),
            at(1_000, runs(Cause::Completion, 100)),
        ];
        // 1 ms of the device is 500 us, during 400 us of the computation.
        assert_eq!(play(&records, 1_000).0.by_debt, micros(500));
    }

    #[test]
    fn threads_of_the_kernel_that_write_for_the_program_compute_beside_their_requests() {
        let write = |id| Seen::Issued { id, writes: true, by_others: false };
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(0, Seen::Blocked),
            at(0, Seen::Helps),
            at(0, write(1)),
            at(100, Seen::Helps),
            at(500, Seen::Rests),
            at(700, Seen::Rests),
            at(700, write(2)),
            at(1_700, Seen::Completed { id: 1 }),
            at(1_700, Seen::Completed { id: 2 }),
            at(1_700, runs(Cause::KernelThread, 0)),
        ];
        let (prediction, _) = play(&records, 1_700);
        // A device that does one at a time is busy for 1.7 ms; one that does both at once takes 1 ms for the second.
        assert_eq!((prediction.by_debt, prediction.by_request), (micros(850), micros(1_200)));
    }

    #[test]
    fn a_sleep_beside_requests_of_writeback_counts_in_full() {
        let write = Seen::Issued { id: 2, writes: true, by_others: false };
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(10, Seen::Blocked),
            at(20, write),
            at(900, Seen::Completed { id: 2 }),
            at(1_000, runs(Cause::Timer, 10)),
        ];
        let (prediction, _) = play(&records, 1_000);
        assert_eq!((prediction.by_debt, prediction.by_request), (micros(1_000), micros(1_000)));
        assert_eq!(prediction.other_waits, 1);
    }

    #[test]
    fn a_loop_of_events_whose_timer_ticks_waits_for_its_request() {
        let woken = Seen::Runnable {
            cause: Cause::Completion,
            since_ns: 900_000,
            waited_before_ns: 800_000,
            only_slept: false,
        };
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(100, READ),
            at(100, Seen::Blocked),
            at(900, runs(Cause::Timer, 100)),
            at(900, Seen::Blocked),
            at(1_100, Seen::Completed { id: 1 }),
            at(1_100, woken),
        ];
        let (prediction, _) = play(&records, 1_100);
        assert_eq!((prediction.by_debt, prediction.by_request), (micros(600), micros(600)));
    }

    #[test]
    fn requests_of_others_are_counted_and_left_alone() {
        let others = Seen::Issued { id: 3, writes: true, by_others: true };
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(0, others),
            at(0, Seen::Blocked),
            at(500, Seen::Completed { id: 3 }),
            at(800, runs(Cause::Timer, 0)),
        ];
        let (prediction, counts) = play(&records, 800);
        assert_eq!((prediction.by_debt, prediction.busy, prediction.requests), (micros(800), Nanos::ZERO, 0));
        assert_eq!(counts.other_requests, 1);
    }

    #[test]
    fn a_computation_beside_a_request_is_frozen_and_thawed_in_turn() {
        let mut tracker = Tracker::new(&[twice(true)], Nanos::ZERO);
        tracker.record(at(0, runs(Cause::Started, 0)));
        tracker.record(at(0, READ));
        assert_eq!(tracker.wish(micros(10)), Wish::Nothing(Some(micros(1_000))));
        assert_eq!(tracker.wish(micros(1_000)), Wish::Freeze);
        tracker.froze(micros(1_000));
        tracker.record(at(1_004, Seen::Blocked));
        let Wish::Nothing(Some(thaw_at)) = tracker.wish(micros(1_004)) else { panic!("it thaws at once") };
        assert_eq!(tracker.wish(thaw_at), Wish::Thaw);
        tracker.thawed(thaw_at);
        // The supervisor's own wake-up is no sleep.
        tracker.record(Record { at_ns: thaw_at.as_nanos() + 5_000, seen: runs(Cause::Other, 1_004) });
        let (predictions, counts) = tracker.finish(thaw_at + micros(5));
        assert_eq!(predictions[0].freezes, 1);
        assert_eq!(predictions[0].other_waits, 0);
        assert!(predictions[0].by_debt < micros(1_020), "{predictions:?}");
        assert_eq!(counts.interrupted_waits, 0);
    }

    /// A freeze at the tick would keep the thread from its completion.
    #[test]
    fn a_loop_of_events_is_not_frozen_for_its_timers_tick() {
        let tick = |only_slept| Seen::Runnable { cause: Cause::Timer, since_ns: 0, waited_before_ns: 0, only_slept };
        let wish = |only_slept, micros_later: u64| {
            let mut tracker = Tracker::new(&[twice(true)], Nanos::ZERO);
            // The median gain of requests shows that freezing pays.
            for seen in [runs(Cause::Started, 0), READ, Seen::Blocked] {
                tracker.record(at(0, seen));
            }
            tracker.record(Record { at_ns: 9_000_000, seen: tick(only_slept) });
            tracker.wish(micros(9_000 + micros_later))
        };
        assert_eq!(wish(true, 0), Wish::Freeze);
        assert_eq!(wish(false, 0), Wish::Nothing(Some(micros(9_400))));
        // A longer run is no tick.
        assert_eq!(wish(false, 500), Wish::Freeze);
    }

    #[test]
    fn what_the_supervisor_takes_is_not_the_programs_time() {
        let records = [
            at(0, runs(Cause::Started, 0)),
            at(0, READ),
            at(100, Seen::Preempted),
            at(150, Seen::Resumed),
            // Another thread continues meanwhile.
            at(200, runs(Cause::Started, 0)),
            at(300, Seen::Preempted),
            at(330, Seen::Blocked),
            at(370, Seen::Resumed),
            at(1_000, Seen::Completed { id: 1 }),
        ];
        let (prediction, _) = play(&records, 1_000);
        assert_eq!(prediction.preempted, micros(50 + 40));
        // The debt at the end is dropped.
        assert_eq!(prediction.by_debt, micros(1_000 - 90));
    }

    #[test]
    fn waits_that_a_freeze_interrupts_are_counted() {
        let mut tracker = Tracker::new(&[twice(true)], Nanos::ZERO);
        tracker.record(at(0, runs(Cause::Started, 0)));
        tracker.record(at(0, READ));
        tracker.froze(micros(100));
        // A thread in epoll_wait wakes to stop.
        tracker.record(at(101, runs(Cause::Other, 50)));
        tracker.record(at(102, Seen::Blocked));
        assert_eq!(tracker.finish(micros(102)).1.interrupted_waits, 1);
    }

    #[test]
    fn a_request_whose_completion_went_unseen_ends_once_the_device_is_idle() {
        let mut tracker = Tracker::new(&[twice(true)], Nanos::ZERO);
        tracker.record(at(0, runs(Cause::Started, 0)));
        tracker.record(at(0, READ));
        tracker.record(at(0, Seen::Blocked));
        assert_eq!(tracker.oldest_request(), Some(Nanos::ZERO));
        // The program continues, and issues another request after the check of the device.
        tracker.record(at(1_000, runs(Cause::Started, 0)));
        tracker.record(at(3_000, Seen::Issued { id: 2, writes: false, by_others: false }));
        tracker.device_was_idle(micros(2_000));
        assert_eq!((tracker.oldest_request(), tracker.ended_unseen()), (Some(micros(3_000)), 1));
        // The observer sees another request in the place of the first one, and counts that itself.
        tracker.record(at(4_000, Seen::Completed { id: 1 }));
        tracker.record(at(4_000, READ));
        assert_eq!(tracker.ended_unseen(), 0);
        tracker.record(at(5_000, Seen::Completed { id: 1 }));
        tracker.record(at(5_000, Seen::Completed { id: 2 }));
        let (predictions, _) = tracker.finish(micros(5_000));
        assert_eq!((predictions[0].requests, predictions[0].busy), (3, micros(5_000)));
    }

    #[test]
    fn a_thread_that_blocks_without_having_been_seen_is_not_counted() {
        let records = [at(0, Seen::Blocked), at(10, runs(Cause::Started, 0)), at(20, READ), at(20, Seen::Blocked)];
        assert_eq!(play(&[&records[..], &[at(220, Seen::Completed { id: 1 })]].concat(), 220).0.by_debt, micros(120));
    }
}
