//! Predicts a program's run time on a device that is R times as fast, from its events on the present device.
//!
//! While the device is busy with a request of the program, the program gets 1/R of the time. Two estimates of its
//! virtual time are computed from the same events:
//!
//! - *By debt.* Virtual time follows real time while the device is idle. While the device is busy and a thread is
//!   runnable, virtual time also follows real time, and debt grows by the work that the faster device would have done.
//!   While the device is busy and no thread is runnable, debt is paid first: virtual time stands still. Afterwards time
//!   counts 1/R. Debt left when the device becomes idle is dropped and reported as unpaid: the faster device would have
//!   finished its requests earlier, unnoticed. The exception is a thread that the last completion woke. It waited for
//!   that request and would have continued earlier, so its excess wait is owed and becomes debt when the device is next
//!   busy.
//! - *By request.* While the device is busy and no thread is runnable, virtual time stands still. A completion that may
//!   end the program's wait lifts virtual time to the request's issue plus 1/R of its latency.
//!
//! A wait that no completion ended, such as a sleep, counts in full in both estimates. The cause is known only when the
//! wait ends, so both ways of counting are followed until then. A thread that waits for events also runs briefly at its
//! timer's ticks, although it waits for the device. When a completion wakes such a thread, the device's gain is taken
//! back from that thread's waits that counted in full. Sleeps of other threads stay in full: a dependence of the
//! program on them is not known.
//!
//! The band around the estimates subtracts the unpaid debt at its lower end. Its upper end counts every sleep in full.
//! A margin at both ends covers the time in which the device was busy beside other activity.
//!
//! Kernel threads that work for the program, such as write-back, can't be frozen. Their computing counts as the
//! program's while the program waits, but ends no wait. While the program is frozen it counts only for the upper end of
//! the band: a later wait for it is not known.
//!
//! While the program is frozen, virtual time stands still. If the device is busy then, debt falls, below zero if
//! necessary. The same holds while the supervisor occupies the processors of all runnable threads. Such a credit is
//! returned at the next wait or when the device becomes idle.
//! [`Dilation::wish`] tells when to freeze and when to thaw, which keeps the debt small.
//!
//! Freezing and observing are not part of this module. Events carry their times in integer nanoseconds. Sums are kept
//! in 2^-32 ns, so that rounding errors do not add up.

use std::collections::{HashMap, VecDeque};

use chronodisk_sim::Nanos;

use crate::real::median::RunningQuantile;

/// Speed-up factor of a device, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speedup {
    /// 1/R, in units of 2^-32.
    inverse: i64,
}

/// A nanosecond in the unit of all sums.
const NANO: i64 = 1 << 32;

impl Speedup {
    /// No change of speed.
    pub const NONE: Speedup = Speedup { inverse: NANO };
    /// Requests take no time.
    pub const INFINITE: Speedup = Speedup { inverse: 0 };

    /// Makes a speed from a factor, which may be infinite; `None` if it is below 1 or no number.
    #[must_use]
    pub fn from_factor(factor: f64) -> Option<Speedup> {
        (factor >= 1.0).then(|| Speedup { inverse: (NANO as f64 / factor).round() as i64 })
    }

    /// The factor.
    #[must_use]
    pub fn factor(self) -> f64 {
        NANO as f64 / self.inverse as f64
    }
}

/// Direction of a request's data. Requests without data count as writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The data go from the device to the program.
    Read,
    /// The data go from the program to the device.
    Write,
}

/// Cause of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A request of the program's has completed.
    Completion,
    /// Any other cause, such as a timer or another process.
    Other,
}

/// An event of the program or of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The device received a request of the program.
    Issued {
        /// Distinguishes it from other requests in flight.
        id: u64,
        /// Direction of its data.
        direction: Direction,
    },
    /// The device has completed it.
    Completed {
        /// Id under which the request was issued.
        id: u64,
    },
    /// At least one of the program's threads runs or waits only for a processor; before, none did.
    Runnable(Wake),
    /// A thread that was blocked since `since` continues. No completion ended its wait.
    Slept {
        /// Instant at which it blocked.
        since: Nanos,
    },
    /// A thread continues because its timer ticked, and nothing else runs. It also waits for other events and may block
    /// again at once.
    Ticked,
    /// A completion woke a thread that was blocked since `since`. Other threads may have been runnable.
    Woken {
        /// Instant at which it blocked.
        since: Nanos,
    },
    /// A completion woke a thread that had already waited for it before it last blocked: timers only let it run briefly
    /// in between.
    KeptWaiting {
        /// Instant at which it began to wait.
        since: Nanos,
        /// Instant at which it last blocked.
        blocked: Nanos,
    },
    /// No thread of the program runs or waits for a processor any more. Also sent when the program was frozen.
    Blocked,
    /// The program was told to stop.
    Frozen,
    /// The program was told to go on.
    Thawed,
    /// The supervisor has taken the processors of all runnable threads.
    Preempted,
    /// A runnable thread has a processor again, or waits for a processor that another program uses.
    Resumed,
    /// A kernel thread that works for the program runs, or waits only for a processor.
    Helped,
    /// No kernel thread computes for the program any more.
    Unhelped,
}

/// Options of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DilationOptions {
    /// Factor for reads.
    pub reads: Speedup,
    /// Factor for writes.
    pub writes: Speedup,
    /// Whether [`Dilation::wish`] ever asks to freeze.
    pub freezes: bool,
    /// Debt at which the program is frozen, at most.
    pub quantum_max: Nanos,
    /// Upper bound of a thawed program's delay before it runs, which is not its own time. The allowance ends when a
    /// thread becomes runnable.
    pub thaw_cost: Nanos,
}

impl Default for DilationOptions {
    /// No faster, never frozen.
    fn default() -> Self {
        DilationOptions {
            reads: Speedup::NONE,
            writes: Speedup::NONE,
            freezes: false,
            quantum_max: QUANTUM_MAX,
            thaw_cost: Nanos::ZERO,
        }
    }
}

/// Lower limit for a quarter of the median gain per request: below it, freezing costs more than it corrects. Each
/// freeze and thaw moves virtual time by 0.1 to 0.2 ms. On two processors, R = 2, a computing thread beside a reader of
/// 1 ms was 22 % off with freezing at a quarter of 1 ms and 5 % without; four requests of 80 us at a time were 197 %
/// off with freezing at 20 us.
pub const QUANTUM_MIN: Nanos = Nanos::from_micros(500);

/// Default of [`DilationOptions::quantum_max`]. Each freeze and thaw costs the program's threads 0.05 to 0.1 ms that a
/// faster device would not, so few long freezes are more accurate than many short ones. On two processors, a computing
/// thread beside a reader, R = 2, requests of 10 ms: 2.2 % off at 2 ms, and 5.5 to 7.6 % at 1 ms. Longer quanta change
/// the order of more threads: four event loops on one channel of 5 ms, R = 5, without any cost of freezing, are 0.7 %
/// off at 2 ms and 2.5 % at 4 ms (`tests/dilation_programs.rs`).
pub const QUANTUM_MAX: Nanos = Nanos::from_millis(2);

/// Quantum for devices with short requests: at least this much, otherwise a quarter of the median latency. At 1.75
/// times the latency, four synthetic threads were 27 % off.
const QUANTUM_OF_SHORT: Nanos = Nanos::from_millis(1);

/// Longest run of a thread after a timer's tick that does not count as work. In a virtual machine under QEMU, half of
/// the ticks took 0.14 ms, and one in ten more than 0.23 ms.
const TICK_MAX: Nanos = Nanos::from_micros(400);

/// Margin of the band, as a share of the virtual time in which the device was busy beside other activity: on a faster
/// device, several threads run in another order. Found with synthetic programs (`tests/dilation_programs.rs`).
const MARGIN_PER_CENT: i128 = 3;

/// Next action of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// No change. Ask again at this instant if no event comes before.
    Nothing(Option<Nanos>),
    /// Freeze the program.
    Freeze,
    /// Thaw the program.
    Thaw,
}

/// Result of a prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Real time, from the beginning.
    pub elapsed: Nanos,
    /// Virtual time by debt.
    pub by_debt: Nanos,
    /// Virtual time by request.
    pub by_request: Nanos,
    /// Debt that was dropped, in virtual time.
    pub unpaid: Nanos,
    /// Lower end of the band: the lesser estimate, without the unpaid debt.
    pub low: Nanos,
    /// Upper end: the greater estimate, or virtual time with every sleep in full if that is more.
    pub high: Nanos,
    /// Real time in which the device was busy with a request of the program's.
    pub busy: Nanos,
    /// Real time for which the program was frozen.
    pub frozen: Nanos,
    /// Number of freezes.
    pub freezes: u64,
    /// Real time in which the supervisor occupied the processors of all runnable threads.
    pub preempted: Nanos,
    /// Real time in which kernel threads computed for the program while it waited and the device was busy.
    pub helped: Nanos,
    /// Requests that completed.
    pub requests: u64,
    /// Waits that no completion ended while the device was busy.
    pub other_waits: u64,
    /// Real time of the other waits.
    pub other_wait_time: Nanos,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    issued: Nanos,
    direction: Direction,
    /// Virtual time by request at its issue, in either way of counting the present wait.
    by_request: [i128; 2],
    /// Most virtual time at its issue.
    ceiling: i128,
}

/// The last request before the device became idle, and the debt then.
#[derive(Clone, Copy, Debug)]
struct Last {
    issued: Nanos,
    completed: Nanos,
    inverse: i64,
}

/// Both estimates, in 2^-32 ns.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    by_debt: i128,
    by_request: i128,
    /// Virtual time by which the device lags. Negative for a credit.
    debt: i128,
    unpaid: i128,
    /// Start of the last busy period, virtual time by debt at that instant, and debt carried over.
    busy_from: (Nanos, i128, i128),
    /// Debt that was left when the device last became idle.
    left: i128,
    /// Real minus virtual time of the last busy period.
    saved: i128,
    /// Part of `left` that is carried into the next busy period.
    owed: i128,
    /// The last request's latency, less the virtual time by request that it took.
    saved_by_request: i128,
    /// Waits in full during the last busy period: their debt, their time, and the parts taken back from both estimates.
    full_debt: i128,
    full_time: i128,
    refunded: i128,
    refunded_by_request: i128,
}

impl Account {
    /// Time passes for the program in full.
    fn run(&mut self, time: i128, busy: Option<i128>) {
        self.by_debt += time * i128::from(NANO);
        self.by_request += time * i128::from(NANO);
        if let Some(inverse) = busy {
            self.debt += time * (i128::from(NANO) - inverse);
        }
    }

    /// Time passes in a wait for something other than a completion.
    fn wait_in_full(&mut self, time: i128, busy: Option<i128>) {
        self.run(time, busy);
        if let Some(inverse) = busy {
            self.full_debt += time * (i128::from(NANO) - inverse);
            self.full_time += time * i128::from(NANO);
        }
    }

    /// Time passes in a wait while a kernel thread computes for the program. A credit is returned here, as in any wait.
    fn help(&mut self, time: i128, busy: Option<i128>) {
        self.by_debt -= self.debt.min(0);
        self.debt = self.debt.max(0);
        self.run(time, busy);
    }

    /// Lets time pass while the program is stopped from outside.
    fn stand(&mut self, time: i128, busy: Option<i128>) {
        if let Some(inverse) = busy {
            self.debt -= time * inverse;
        }
    }

    /// Time passes in a wait that a completion is expected to end.
    fn wait(&mut self, time: i128, busy: Option<i128>) {
        let Some(inverse) = busy else { return self.run(time, None) };
        let paid = (time * inverse).min(self.debt.max(0));
        // A credit is returned here.
        self.by_debt += time * inverse - paid - self.debt.min(0);
        self.debt = self.debt.max(0) - paid;
    }

    /// Begins a busy period of the device.
    fn begin_busy(&mut self, now: Nanos) {
        let owed = std::mem::take(&mut self.owed);
        self.debt += owed;
        self.busy_from = (now, self.by_debt, owed);
        (self.full_debt, self.full_time) = (0, 0);
        (self.refunded, self.refunded_by_request) = (0, 0);
    }

    /// Ends a busy period of the device. Owed time that was not paid stays owed.
    fn settle(&mut self, now: Nanos) {
        self.left = self.debt.max(0);
        self.unpaid += self.left;
        self.by_debt -= self.debt.min(0);
        self.debt = 0;
        let (from, by_debt, _) = self.busy_from;
        let busy = i128::from(now.saturating_sub(from).as_nanos()) * i128::from(NANO);
        self.saved = busy - (self.by_debt - by_debt);
        self.owed = self.too_long(0);
        self.unpaid -= self.owed;
    }

    /// Excess of virtual time over the last busy period, for a thread whose wait would have been shorter by `sooner`.
    /// At most the debt that was left.
    fn too_long(&self, sooner: i128) -> i128 {
        let (.., before) = self.busy_from;
        (before + sooner - self.saved).clamp(0, self.left)
    }

    /// Accounts for a thread that the last completion woke, and that would have waited less by `sooner`. The difference
    /// is taken back from waits in full, up to `most_back`, and the rest is owed.
    fn owe(&mut self, sooner: i128, most_back: i128) {
        let more = (self.too_long(sooner) - self.owed - self.refunded).max(0);
        let refund = more.min((self.full_debt.min(most_back) - self.refunded).max(0));
        self.by_debt -= refund;
        self.refunded += refund;
        self.owed += more - refund;
        self.unpaid -= more;
    }

    /// Like [`owe`](Self::owe), by request: the rest is not owed.
    fn take_back_by_request(&mut self, sooner: i128, most_back: i128) {
        let left = self.full_time.min(most_back) - self.refunded_by_request;
        let refund = (sooner - self.saved_by_request - self.refunded_by_request).min(left).max(0);
        self.by_request -= refund;
        self.refunded_by_request += refund;
    }
}

/// Upper bound of virtual time: by request, but every sleep counts in full, regardless of other activity.
#[derive(Clone, Debug, Default)]
struct Ceiling {
    value: i128,
    /// Virtual time at recent instants, and whether it counted from there on.
    history: VecDeque<(Nanos, i128, bool)>,
}

impl Ceiling {
    /// Instants that are remembered. Of a longer sleep only the end counts.
    const HISTORY_MAX: usize = 1 << 16;

    /// From `now` on, `time` passes and counts or does not.
    fn pass(&mut self, now: Nanos, time: i128, counts: bool) {
        if self.history.len() == Ceiling::HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back((now, self.value, counts));
        self.value += if counts { time * i128::from(NANO) } else { 0 };
    }

    fn slept(&mut self, since: Nanos, now: Nanos) {
        let after = self.history.partition_point(|&(at, ..)| at <= since);
        let Some(&(at, value, counts)) = self.history.get(after.saturating_sub(1)) else { return };
        let span = |from: Nanos, to: Nanos| i128::from(to.saturating_sub(from).as_nanos()) * i128::from(NANO);
        let since = since.clamp(at, now);
        let value_then = value + if counts { span(at, since) } else { 0 };
        self.value = self.value.max(value_then + span(since, now));
    }
}

/// Follows a program's events and predicts its run time.
#[derive(Clone, Debug)]
pub struct Dilation {
    options: DilationOptions,
    began: Nanos,
    now: Nanos,
    runnable: bool,
    /// Start of the present run, if it may be only a timer's tick.
    ticks_since: Option<Nanos>,
    frozen: bool,
    preempted: bool,
    helped: bool,
    /// Rest of `thaw_cost` since the last thaw.
    thawing: Nanos,
    in_flight: HashMap<u64, InFlight>,
    in_flight_by_direction: [u64; 2],
    /// The last request, while the device is idle.
    last: Option<Last>,
    account: Account,
    ceiling: Ceiling,
    /// Real time in which the device was busy beside other activity, so that the order of events may differ.
    overlapped: Nanos,
    /// The account in which the present wait counts in full, and the real time of that wait in which the device was
    /// busy.
    waiting: Option<(Account, Nanos)>,
    /// Running median of (R - 1) times the latency, over requests that the faster device shortens: a lower bound of
    /// their gain.
    gain: RunningQuantile,
    /// Running median of their latency.
    latency: RunningQuantile,
    prediction: Prediction,
}

impl Dilation {
    /// A prediction for a program that begins at this instant, with no runnable thread yet.
    #[must_use]
    pub fn new(options: DilationOptions, now: Nanos) -> Self {
        let mut dilation = Dilation {
            options,
            began: now,
            now,
            runnable: false,
            ticks_since: None,
            frozen: false,
            preempted: false,
            helped: false,
            thawing: Nanos::ZERO,
            in_flight: HashMap::with_capacity(1024),
            in_flight_by_direction: [0; 2],
            last: None,
            account: Account::default(),
            ceiling: Ceiling::default(),
            overlapped: Nanos::ZERO,
            waiting: None,
            gain: RunningQuantile::median(Nanos::MAX),
            latency: RunningQuantile::median(Nanos::ZERO),
            prediction: Prediction::default(),
        };
        dilation.begin_wait();
        dilation
    }

    /// Handles an event. Instants never decrease: an earlier one counts as the last one, since events of several
    /// processors may overtake each other.
    pub fn event(&mut self, at: Nanos, event: Event) {
        self.tick(at);
        match event {
            Event::Issued { id, direction } => self.issued(id, direction),
            Event::Completed { id } => self.completed(id),
            Event::Runnable(wake) if !self.runnable => {
                self.runnable = true;
                self.ticks_since = None;
                self.thawing = Nanos::ZERO;
                self.end_wait(wake);
            }
            Event::Slept { since } => {
                self.ticks_since = None;
                self.ceiling.slept(since, self.now);
            }
            Event::Ticked => self.ticks_since = Some(self.now),
            Event::Woken { since } => self.woken(since, since),
            Event::KeptWaiting { since, blocked } => self.woken(since, blocked),
            Event::Blocked if self.runnable => {
                self.runnable = false;
                self.begin_wait();
            }
            Event::Frozen if !self.frozen => {
                self.frozen = true;
                self.prediction.freezes += 1;
                // The end of this wait is not observed while the program is frozen.
                self.end_wait(Wake::Completion);
            }
            Event::Thawed if self.frozen => {
                self.frozen = false;
                self.thawing = self.options.thaw_cost;
                self.begin_wait();
            }
            Event::Preempted => self.preempted = true,
            Event::Resumed => self.preempted = false,
            Event::Helped => self.helped = true,
            Event::Unhelped => self.helped = false,
            Event::Runnable(_) | Event::Blocked | Event::Frozen | Event::Thawed => {}
        }
    }

    /// Advances time to this instant.
    pub fn tick(&mut self, at: Nanos) {
        let thawed = at.min(self.now + self.thawing);
        if !self.runnable && thawed > self.now {
            self.thawing = self.thawing.saturating_sub(thawed.saturating_sub(self.now));
            self.pass(thawed, true);
        }
        if at > self.now {
            self.pass(at, self.frozen && !self.runnable);
        }
    }

    fn pass(&mut self, at: Nanos, stands: bool) {
        let passed = at.saturating_sub(self.now);
        let (time, busy) = (i128::from(passed.as_nanos()), self.inverse_in_flight());
        if busy.is_some() {
            self.prediction.busy += passed;
        }
        if self.frozen {
            self.prediction.frozen += passed;
        }
        let helped = self.helped && !self.runnable;
        if busy.is_some() && (self.runnable || self.frozen || helped || self.in_flight.len() > 1) {
            self.overlapped += passed;
        }
        if busy.is_some() && helped {
            self.prediction.helped += passed;
        }
        let preempted = self.runnable && self.preempted;
        if preempted {
            self.prediction.preempted += passed;
        }
        let counts = self.runnable && !preempted || (!stands && !self.runnable && busy.is_none()) || helped;
        self.ceiling.pass(self.now, time, counts);
        self.now = at;
        match (self.runnable, stands) {
            (true, _) if preempted => self.account.stand(time, busy),
            (true, _) => self.account.run(time, busy),
            (false, true) => {
                self.account.stand(time, busy);
                if let Some((full, _)) = &mut self.waiting {
                    full.stand(time, busy);
                }
            }
            (false, false) => {
                if helped {
                    self.account.help(time, busy);
                } else {
                    self.account.wait(time, busy);
                }
                if let Some((full, busy_time)) = &mut self.waiting {
                    if helped {
                        full.help(time, busy);
                    } else {
                        full.wait_in_full(time, busy);
                    }
                    *busy_time += if busy.is_some() { passed } else { Nanos::ZERO };
                }
            }
        }
    }

    fn issued(&mut self, id: u64, direction: Direction) {
        if self.in_flight.is_empty() {
            self.last = None;
            let now = self.now;
            self.accounts().for_each(|account| account.begin_busy(now));
        }
        let by_request = [self.account.by_request, self.waiting.map_or(0, |(full, _)| full.by_request)];
        // A request that is issued again is still the same.
        self.in_flight.entry(id).or_insert_with(|| {
            self.in_flight_by_direction[direction as usize] += 1;
            InFlight { issued: self.now, direction, by_request, ceiling: self.ceiling.value }
        });
    }

    fn completed(&mut self, id: u64) {
        // Requests issued before the program began are not its own.
        let Some(request) = self.in_flight.remove(&id) else { return };
        self.in_flight_by_direction[request.direction as usize] -= 1;
        self.prediction.requests += 1;
        let latency = self.now.saturating_sub(request.issued);
        let speedup = self.speedup(request.direction);
        if speedup != Speedup::NONE {
            self.gain.add(gain(latency, speedup));
            self.latency.add(latency);
        }
        if !self.runnable && !self.frozen {
            let virtual_latency = i128::from(latency.as_nanos()) * i128::from(speedup.inverse);
            self.ceiling.value = self.ceiling.value.max(request.ceiling + virtual_latency);
            let lift = |account: &mut Account, issued: i128| {
                account.by_request = account.by_request.max(issued + virtual_latency);
            };
            lift(&mut self.account, request.by_request[0]);
            if let Some((full, _)) = &mut self.waiting {
                lift(full, request.by_request[1]);
            }
        }
        if self.in_flight.is_empty() {
            let completed = self.now;
            let latency = i128::from(latency.as_nanos()) * i128::from(NANO);
            for (account, issued) in self.accounts().zip(request.by_request) {
                account.settle(completed);
                account.saved_by_request = latency - (account.by_request - issued);
            }
            self.last = Some(Last { issued: request.issued, completed, inverse: speedup.inverse });
        }
    }

    /// Both accounts of the current wait; none without a wait.
    fn accounts(&mut self) -> impl Iterator<Item = &mut Account> {
        [Some(&mut self.account), self.waiting.as_mut().map(|(full, _)| full)].into_iter().flatten()
    }

    /// A faster device would have shortened this thread's wait by the request's gain, at most by the whole wait.
    fn woken(&mut self, since: Nanos, blocked: Nanos) {
        let Some(Last { issued, completed, inverse }) = self.last else { return };
        let nanos = |from: Nanos| i128::from(completed.saturating_sub(from).as_nanos());
        let sooner = (nanos(since.max(issued)) * i128::from(NANO)).min(nanos(issued) * i128::from(NANO - inverse));
        // Waits before the thread last blocked, which its timers ended.
        let ticked = i128::from(blocked.saturating_sub(since.max(issued)).as_nanos());
        self.accounts().for_each(|account| {
            account.owe(sooner, ticked * i128::from(NANO - inverse));
            account.take_back_by_request(sooner, ticked * i128::from(NANO));
        });
    }

    /// Starts to follow both ways of counting, unless the program is frozen.
    fn begin_wait(&mut self) {
        if self.runnable || self.frozen {
            return;
        }
        self.waiting = Some((self.account, Nanos::ZERO));
        for request in self.in_flight.values_mut() {
            request.by_request[1] = request.by_request[0];
        }
    }

    fn end_wait(&mut self, wake: Wake) {
        let Some((full, busy_time)) = self.waiting.take() else { return };
        if wake == Wake::Completion {
            return;
        }
        self.account = full;
        for request in self.in_flight.values_mut() {
            request.by_request[0] = request.by_request[1];
        }
        if busy_time > Nanos::ZERO {
            self.prediction.other_waits += 1;
            self.prediction.other_wait_time += busy_time;
        }
    }

    fn speedup(&self, direction: Direction) -> Speedup {
        match direction {
            Direction::Read => self.options.reads,
            Direction::Write => self.options.writes,
        }
    }

    /// Mean of 1/R over the requests in flight, so that the factor is their harmonic mean. `None` if there are none.
    fn inverse_in_flight(&self) -> Option<i128> {
        let [reads, writes] = self.in_flight_by_direction.map(i128::from);
        let sum = reads * i128::from(self.options.reads.inverse) + writes * i128::from(self.options.writes.inverse);
        (reads + writes > 0).then(|| sum / (reads + writes))
    }

    /// The debt at which the program is frozen, in real time of the device; `None` if freezing is not worth its cost,
    /// so that time is only accounted for.
    #[must_use]
    pub fn quantum(&self) -> Option<Nanos> {
        let quarter = |of: Nanos| Nanos::from_nanos(of.as_nanos() / 4);
        let gained = quarter(self.gain.value());
        let most = quarter(self.latency.value()).max(QUANTUM_OF_SHORT).min(self.options.quantum_max);
        (self.options.freezes && gained >= QUANTUM_MIN).then(|| gained.min(most))
    }

    /// Returns the next action of the supervisor.
    #[must_use]
    pub fn wish(&self) -> Wish {
        let Some(inverse) = self.inverse_in_flight() else {
            return if self.frozen { Wish::Thaw } else { Wish::Nothing(None) };
        };
        let debt = self.account.debt;
        let at = |real: i128| Some(self.now + Nanos::from_nanos(u64::try_from(real.max(1)).unwrap_or(1 << 40)));
        if self.frozen {
            return match inverse {
                _ if debt <= 0 && inverse > 0 => Wish::Thaw,
                0 => Wish::Nothing(None),
                _ => Wish::Nothing(at(div_ceil(debt, inverse))),
            };
        }
        let Some(quantum) = self.quantum().filter(|_| self.runnable && inverse < i128::from(NANO)) else {
            return Wish::Nothing(None);
        };
        let limit = i128::from(quantum.as_nanos()) * inverse;
        // Each look by the supervisor occupies a processor, and debt falls meanwhile. One more look would cost more
        // than the rest of the quantum.
        let enough = if self.preempted { limit - limit / 8 } else { limit };
        if debt >= enough {
            // The wait before the tick has made the debt, which is taken back if a completion ends the rest of that
            // wait. Freezing would only keep the thread from that completion.
            let ticks_until = self.ticks_since.map(|since| since + TICK_MAX).filter(|&until| self.now < until);
            return ticks_until.map_or(Wish::Freeze, |until| Wish::Nothing(Some(until)));
        }
        Wish::Nothing(at(div_ceil(limit - debt, i128::from(NANO) - inverse)))
    }

    /// The requests in flight, in no order: as issued, and when.
    pub fn in_flight(&self) -> impl Iterator<Item = (u64, Nanos)> {
        self.in_flight.iter().map(|(&id, request)| (id, request.issued))
    }

    /// Whether the program was last told to stop.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Prediction up to now. A wait in progress counts as a wait for a completion.
    #[must_use]
    pub fn prediction(&self) -> Prediction {
        let Account { by_debt, by_request, debt, unpaid, owed, .. } = self.account;
        let (by_debt, unpaid) = (by_debt - debt.min(0), unpaid + debt.max(0) + owed);
        let elapsed = self.now.saturating_sub(self.began);
        let share = [self.overlapped, elapsed].map(|time| i128::from(time.as_nanos()));
        let margin = by_debt * MARGIN_PER_CENT / 100 * share[0] / share[1].max(1);
        Prediction {
            elapsed,
            by_debt: nanos(by_debt),
            by_request: nanos(by_request),
            unpaid: nanos(unpaid),
            low: nanos(by_request.min(by_debt - unpaid) - margin),
            high: nanos(by_request.max(by_debt).max(self.ceiling.value) + margin),
            ..self.prediction
        }
    }
}

/// Division rounded up, for a numerator of any sign and a positive denominator.
fn div_ceil(numerator: i128, denominator: i128) -> i128 {
    -(-numerator).div_euclid(denominator)
}

/// Rounds to the nearest nanosecond; negative sums become zero.
fn nanos(sum: i128) -> Nanos {
    let rounded = (sum + i128::from(NANO / 2)).div_euclid(i128::from(NANO));
    Nanos::from_nanos(u64::try_from(rounded.max(0)).unwrap_or(u64::MAX))
}

/// Time that the program would have gained if the request had taken 1/R of its latency.
fn gain(latency: Nanos, speedup: Speedup) -> Nanos {
    let (inverse, latency) = (i128::from(speedup.inverse), i128::from(latency.as_nanos()));
    match inverse {
        0 => Nanos::MAX,
        _ => Nanos::from_nanos(u64::try_from(latency * (i128::from(NANO) - inverse) / inverse).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests;
