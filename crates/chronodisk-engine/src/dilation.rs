//! How long a program would have taken if its device were some times as fast, from what it did on the device as it is.
//!
//! While the device is busy with a request of the program's, the program gets 1/R of the time. Two estimates of its
//! virtual time are kept beside each other, from the same events:
//!
//! - *By debt.* Virtual time advances with real time, except while the device is busy. Then, while something is
//!   runnable, it advances and debt grows by what the device should have done meanwhile; while nothing is runnable,
//!   debt is paid with virtual time still, and afterwards time counts 1/R. Debt that is left when the device has
//!   nothing to do any more is dropped, and reported as unpaid: its requests would have been done before, and nobody
//!   would have noticed. But a thread that the last completion woke has waited for it, and would have gone on sooner.
//!   What it has waited too long is owed to it, and is debt again as soon as the device is busy.
//! - *By request.* While the device is busy and nothing is runnable, virtual time stands still, and each completion
//!   that the program may have waited for lifts it to that of the request's issue and 1/R of its latency.
//!
//! A wait that no completion ended, such as a sleep, counts in full in both. That is known at its end only, so both
//! ways of counting are followed until then. A thread that waits for events goes on for a moment when its timer ticks,
//! and has waited for the device all the same. So what the device would have been faster by is taken back when the
//! completion wakes the thread, as far as waits of that thread counted in full. A sleep of another thread stays in
//! full: whether the program has waited for that thread is not known.
//!
//! The band around them has the unpaid debt below, above what it would be if every sleep had been in full, and a margin
//! for the time in which the device was busy beside something else.
//!
//! Threads of the kernel that work for the program, such as write-back's, can't be frozen. What they compute while the
//! program waits counts as if the program computed, but ends no wait of the program's. While the program is frozen, it
//! counts for the upper end of the band only: whether the program waits for it later is not known.
//!
//! While the program is frozen, virtual time stands still; while the device is busy, debt falls then, below zero if
//! need be. So it is while whoever freezes it has the processors of all threads that would run. Such a credit is given
//! back at the next wait or when the device has nothing to do any more.
//! [`Dilation::wish`] says when to freeze and when to thaw, which keeps the debt small.
//!
//! What is deliberately absent: who freezes, and who observes. Times come with the events, integers of nanoseconds;
//! sums are kept in 2^-32 ns, so that rounding does not add up.

use std::collections::{HashMap, VecDeque};

use chronodisk_sim::Nanos;

use crate::real::median::RunningQuantile;

/// How many times as fast a device would be, at least once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speedup {
    /// What is left of a nanosecond, in 2^-32 ns.
    inverse: i64,
}

/// A nanosecond in the unit of all sums.
const NANO: i64 = 1 << 32;

impl Speedup {
    /// As it is.
    pub const NONE: Speedup = Speedup { inverse: NANO };
    /// Requests take no time.
    pub const INFINITE: Speedup = Speedup { inverse: 0 };

    /// From a factor, which may be infinite; `None` if it is below 1 or no number.
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

/// Which way a request's data go; what moves none counts as a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// Why something is runnable again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A request of the program's has completed.
    Completion,
    /// A timer, another process, or whatever else the device has nothing to do with.
    Other,
}

/// What has happened to the program or to its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The device has got a request of the program's.
    Issued {
        /// Tells it apart from the others in flight.
        id: u64,
        /// Which way its data go.
        direction: Direction,
    },
    /// The device has completed it.
    Completed {
        /// As issued.
        id: u64,
    },
    /// Something of the program runs or waits for a processor only, where nothing did.
    Runnable(Wake),
    /// A thread goes on that was blocked since that instant, and no completion ended its wait.
    Slept {
        /// When it blocked.
        since: Nanos,
    },
    /// A thread goes on because its timer ticked, and nothing else runs. It also waits for other events, and may do so
    /// again at once.
    Ticked,
    /// A completion has woken a thread that was blocked since that instant, whatever else was runnable.
    Woken {
        /// When it blocked.
        since: Nanos,
    },
    /// A completion has woken a thread that had waited for it before it last blocked, too: timers only made it go on
    /// for moments.
    KeptWaiting {
        /// When it began to wait.
        since: Nanos,
        /// When it last blocked.
        blocked: Nanos,
    },
    /// Nothing of the program runs or waits for a processor any more; also because it was frozen.
    Blocked,
    /// The program was told to stop.
    Frozen,
    /// The program was told to go on.
    Thawed,
    /// Whoever freezes and thaws has taken the processors of all threads that are runnable.
    Preempted,
    /// A thread that is runnable has a processor again, or waits for one that somebody else has.
    Resumed,
    /// A thread of the kernel that works for the program runs or waits for a processor only.
    Helped,
    /// None does any more.
    Unhelped,
}

/// What a prediction is made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DilationOptions {
    /// Factor for reads.
    pub reads: Speedup,
    /// Factor for writes.
    pub writes: Speedup,
    /// Whether [`Dilation::wish`] ever asks to freeze.
    pub freezes: bool,
    /// Most debt before the program is frozen.
    pub quantum_max: Nanos,
    /// What a program takes to go on after it was thawed, which is not its time; at most so much, and only until
    /// something is runnable.
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

/// Freezing is worth its cost only if a quarter of what half of the requests gain is at least this. Each freeze
/// and thaw moves virtual time by 0.1 to 0.2 ms. On two processors, R = 2, a computing thread beside a reader of
/// 1 ms was 22 % off with freezing at a quarter of 1 ms and 5 % without; four requests of 80 us at a time were
/// 197 % off with freezing at 20 us.
pub const QUANTUM_MIN: Nanos = Nanos::from_micros(500);

/// Most debt before the program is frozen, unless the user says otherwise. Each freeze and thaw costs the program's
/// threads 0.05 to 0.1 ms that a faster device would not, so few long ones are nearer the truth than many short ones.
/// On two processors, a computing thread beside a reader, R = 2, requests of 10 ms: 2.2 % off at 2 ms, and 5.5 to
/// 7.6 % at 1 ms. Longer ones bring more threads into another order: four event loops on one channel of 5 ms, R = 5,
/// without any cost of freezing, are 0.7 % off at 2 ms and 2.5 % at 4 ms (`tests/dilation_programs.rs`).
pub const QUANTUM_MAX: Nanos = Nanos::from_millis(2);

/// The same where requests are short: at least so much of it is used, and otherwise a quarter of the latency of half of
/// the requests. At 1.75 times the latency, four synthetic threads were 27 % off.
const QUANTUM_OF_SHORT: Nanos = Nanos::from_millis(1);

/// What goes on when a timer ticks is over sooner than this, and what lasts longer is work: in a virtual machine under
/// QEMU, half of the ticks took 0.14 ms, and one in ten more than 0.23 ms.
const TICK_MAX: Nanos = Nanos::from_micros(400);

/// By how much of the virtual time low and high are moved apart where the device is busy beside something else: on a
/// faster device, what several threads do happens in another order. Found with synthetic programs
/// (`tests/dilation_programs.rs`).
const MARGIN_PER_CENT: i128 = 3;

/// What the supervisor is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing, but look again at this instant, if nothing happens before.
    Nothing(Option<Nanos>),
    /// Freeze the program.
    Freeze,
    /// Let it go on.
    Thaw,
}

/// What has been found.
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
    /// Upper end: the greater estimate, or what it would be if all sleeps had been in full.
    pub high: Nanos,
    /// Real time in which the device was busy with a request of the program's.
    pub busy: Nanos,
    /// Real time for which the program was frozen.
    pub frozen: Nanos,
    /// How often it was.
    pub freezes: u64,
    /// Real time in which who freezes and thaws had the processors of all threads that were runnable.
    pub preempted: Nanos,
    /// Real time for which threads of the kernel computed for the program while it waited and the device was busy.
    pub helped: Nanos,
    /// Requests that completed.
    pub requests: u64,
    /// Waits that no completion ended while the device was busy.
    pub other_waits: u64,
    /// Real time of those.
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

/// The request after which the device had nothing to do.
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
    /// Virtual time by which the device is behind; below zero for a credit.
    debt: i128,
    unpaid: i128,
    /// When the device last began to be busy, virtual time by debt then, and debt that came from before.
    busy_from: (Nanos, i128, i128),
    /// When the device last had nothing to do: debt that was left, by how much less than real time virtual time had
    /// advanced while it was busy, and what of the debt is owed.
    left: i128,
    saved: i128,
    owed: i128,
    /// By how much less than the last request's latency virtual time by request had advanced when it completed.
    saved_by_request: i128,
    /// Of waits in full while the device was last busy: debt from them, their time, and what of both estimates was
    /// taken back.
    full_debt: i128,
    full_time: i128,
    refunded: i128,
    refunded_by_request: i128,
}

impl Account {
    /// The program's time passes in full.
    fn run(&mut self, time: i128, busy: Option<i128>) {
        self.by_debt += time * i128::from(NANO);
        self.by_request += time * i128::from(NANO);
        if let Some(inverse) = busy {
            self.debt += time * (i128::from(NANO) - inverse);
        }
    }

    /// The program waits, and not for a completion.
    fn wait_in_full(&mut self, time: i128, busy: Option<i128>) {
        self.run(time, busy);
        if let Some(inverse) = busy {
            self.full_debt += time * (i128::from(NANO) - inverse);
            self.full_time += time * i128::from(NANO);
        }
    }

    /// The program waits, and a thread of the kernel computes for it. A credit comes back here, as in any wait.
    fn help(&mut self, time: i128, busy: Option<i128>) {
        self.by_debt -= self.debt.min(0);
        self.debt = self.debt.max(0);
        self.run(time, busy);
    }

    /// The program stands still, and not by itself.
    fn stand(&mut self, time: i128, busy: Option<i128>) {
        if let Some(inverse) = busy {
            self.debt -= time * inverse;
        }
    }

    /// The program waits, for a completion as it seems.
    fn wait(&mut self, time: i128, busy: Option<i128>) {
        let Some(inverse) = busy else { return self.run(time, None) };
        let paid = (time * inverse).min(self.debt.max(0));
        // A credit comes back here.
        self.by_debt += time * inverse - paid - self.debt.min(0);
        self.debt = self.debt.max(0) - paid;
    }

    /// The device has something to do again.
    fn begin_busy(&mut self, now: Nanos) {
        let owed = std::mem::take(&mut self.owed);
        self.debt += owed;
        self.busy_from = (now, self.by_debt, owed);
        (self.full_debt, self.full_time) = (0, 0);
        (self.refunded, self.refunded_by_request) = (0, 0);
    }

    /// The device has nothing to do any more. What was owed before still is, as far as it was not paid.
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

    /// By how much virtual time has advanced too far while the device was last busy, for a thread whose wait would have
    /// been shorter by this. It is no more than the debt that was left.
    fn too_long(&self, sooner: i128) -> i128 {
        let (.., before) = self.busy_from;
        (before + sooner - self.saved).clamp(0, self.left)
    }

    /// A thread that the last completion woke would have waited so much less. That is taken back from waits in full, up
    /// to `most_back`, and the rest is owed.
    fn owe(&mut self, sooner: i128, most_back: i128) {
        let more = (self.too_long(sooner) - self.owed - self.refunded).max(0);
        let refund = more.min((self.full_debt.min(most_back) - self.refunded).max(0));
        self.by_debt -= refund;
        self.refunded += refund;
        self.owed += more - refund;
        self.unpaid -= more;
    }

    /// The same by request, where nothing is owed.
    fn take_back_by_request(&mut self, sooner: i128, most_back: i128) {
        let left = self.full_time.min(most_back) - self.refunded_by_request;
        let refund = (sooner - self.saved_by_request - self.refunded_by_request).min(left).max(0);
        self.by_request -= refund;
        self.refunded_by_request += refund;
    }
}

/// Most virtual time: as by request, but whoever slept has slept in full, whatever else went on.
#[derive(Clone, Debug, Default)]
struct Ceiling {
    value: i128,
    /// Its value at instants of late, and whether time counted from there on.
    history: VecDeque<(Nanos, i128, bool)>,
}

impl Ceiling {
    /// Instants that are remembered. Of a longer sleep only the end counts.
    const HISTORY_MAX: usize = 1 << 16;

    /// From `now` on, so much time passes, which counts or does not.
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

/// Follows a program.
#[derive(Clone, Debug)]
pub struct Dilation {
    options: DilationOptions,
    began: Nanos,
    now: Nanos,
    runnable: bool,
    /// Since when, if a timer's tick may be all that goes on.
    ticks_since: Option<Nanos>,
    frozen: bool,
    preempted: bool,
    helped: bool,
    /// What is left of the time in which a thawed program goes on.
    thawing: Nanos,
    in_flight: HashMap<u64, InFlight>,
    in_flight_by_direction: [u64; 2],
    /// As long as the device has nothing to do.
    last: Option<Last>,
    account: Account,
    ceiling: Ceiling,
    /// Real time in which the device was busy and something else went on, so that the order of things may be another.
    overlapped: Nanos,
    /// The account in which the present wait counts in full, with the real time of the wait in which the device was
    /// busy.
    waiting: Option<(Account, Nanos)>,
    /// What half of the requests of late would at least be sooner: (R - 1) times their latency, of those that would be.
    gain: RunningQuantile,
    /// The latency of half of them.
    latency: RunningQuantile,
    prediction: Prediction,
}

impl Dilation {
    /// A program that begins at this instant: nothing of it is runnable yet.
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

    /// Something happens. An instant before the last one counts as that one: events of several processors may overtake
    /// each other.
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
                // Whatever ends the wait now, it is not seen.
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

    /// Time passes until this instant.
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
        // What was issued before the program began is none of its requests.
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

    /// Of both ways of counting the present wait, if there is one.
    fn accounts(&mut self) -> impl Iterator<Item = &mut Account> {
        [Some(&mut self.account), self.waiting.as_mut().map(|(full, _)| full)].into_iter().flatten()
    }

    /// Had the device been faster, the thread would have waited less: by what its request would have been sooner, but
    /// not by more than it has waited.
    fn woken(&mut self, since: Nanos, blocked: Nanos) {
        let Some(Last { issued, completed, inverse }) = self.last else { return };
        let nanos = |from: Nanos| i128::from(completed.saturating_sub(from).as_nanos());
        let sooner = (nanos(since.max(issued)) * i128::from(NANO)).min(nanos(issued) * i128::from(NANO - inverse));
        // Waits before it last blocked, which its timers ended.
        let ticked = i128::from(blocked.saturating_sub(since.max(issued)).as_nanos());
        self.accounts().for_each(|account| {
            account.owe(sooner, ticked * i128::from(NANO - inverse));
            account.take_back_by_request(sooner, ticked * i128::from(NANO));
        });
    }

    /// From here on both ways of counting are followed, unless the program is frozen.
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

    /// What is left of a nanosecond while the device is busy: the mean over the requests in flight, so that the factor
    /// is their harmonic mean. `None` if there are none.
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

    /// What the supervisor is to do now.
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
        // Whoever asks takes a processor at each look, and debt falls meanwhile: a look more would cost more than what
        // is left to the quantum.
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

    /// What has been found by now. A wait that goes on counts as one for a completion.
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

/// For a numerator of any sign and a positive denominator.
fn div_ceil(numerator: i128, denominator: i128) -> i128 {
    -(-numerator).div_euclid(denominator)
}

/// To the nearest nanosecond; nothing is below zero.
fn nanos(sum: i128) -> Nanos {
    let rounded = (sum + i128::from(NANO / 2)).div_euclid(i128::from(NANO));
    Nanos::from_nanos(u64::try_from(rounded.max(0)).unwrap_or(u64::MAX))
}

/// What the program would be further if the request had taken 1/R.
fn gain(latency: Nanos, speedup: Speedup) -> Nanos {
    let (inverse, latency) = (i128::from(speedup.inverse), i128::from(latency.as_nanos()));
    match inverse {
        0 => Nanos::MAX,
        _ => Nanos::from_nanos(u64::try_from(latency * (i128::from(NANO) - inverse) / inverse).unwrap_or(u64::MAX)),
    }
}

#[cfg(test)]
mod tests;
