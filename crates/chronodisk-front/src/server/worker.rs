//! The loop of every connection's thread: brings arrivals to the clock, takes leaving completions, and waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use chronodisk_engine::{Departure, Found, Linger, Pace, Transfer, TransportIndex, Wait, real_host};
use chronodisk_sim::{Nanos, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Shared;
use super::peer::{Guarded, Left, Moment, Peer, lower};
use super::rehearsal::Way;

/// A connection's thread.
pub(super) struct Worker {
    pub shared: Arc<Shared>,
    pub connection: u32,
    pub transport: TransportIndex,
    pace: Pace,
    linger: Linger,
    scheduling: real_host::Scheduling,
    arrivals: Vec<(Request, Transfer, Option<Seen>)>,
    leaving: Vec<Departure>,
    group: Vec<Departure>,
    left: Left,
    /// Instant at which the next completion must leave, if this thread is the pacer.
    wake_at: Option<Nanos>,
    /// Begin of that wait: the last arrival or departure.
    waits_since: Nanos,
    /// Time before `wake_at` at which completions are prepared.
    ahead: Nanos,
    /// Instant at which the wait ended, if no descriptor ended it.
    looked: Option<Nanos>,
    /// Whether the last check found no idle processor.
    crowded: bool,
    /// The socket for its replies, if sending is rehearsed.
    rehearses: Option<Way>,
    /// Time from one rehearsal to the next.
    rehearsal_pause: Nanos,
}

/// The reception of a client's input: instant and kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub at: Nanos,
    pub found: Found,
}

/// Cause of a wait's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// A completion must leave, or another thread needs this one.
    Look,
    /// A descriptor is ready.
    Ready(Found),
}

/// Longest sleep of a thread that waits for an instant. A thread that was alone notices a second connection within this
/// time.
pub(super) const ATTENTION: Nanos = Nanos::from_millis(100);
/// A write reaches the device with its first bytes, not with the last of its data. If the data take longer than this,
/// their client is slow, which is no part of a service time.
const TRANSFER_MAX: Nanos = Nanos::from_micros(500);
/// Closer to an instant than this, no system call is begun, because it could take longer.
const SPIN_ALONE: Nanos = Nanos::from_micros(2);
/// Time to prepare replies with cold caches, before they must leave. The model runs ahead by as much, which delays a
/// request that arrives meanwhile. So the time is at most this part of the wait.
const PREPARATION: Nanos = Nanos::from_micros(12);
const PREPARATION_PART: u64 = 64;
/// Bounds of the time between rehearsals of a reply, and from the last one until another reply must be prepared; within
/// them it is twice the last rehearsal's duration.
const REHEARSAL_MIN: Nanos = Nanos::from_micros(8);
const REHEARSAL_MAX: Nanos = Nanos::from_micros(50);
/// Number of connections whose threads are woken at the end of the pacer's connection. If one of them ends as well, it
/// wakes others.
const HEIRS: usize = 4;
/// Longest wait of an attached device that is spent spinning if a processor is idle.
///
/// The client's program runs on this host, and its computing after a wait is slower if all processors idled. SQLite's
/// computing between its requests took 77 ms of a second longer after waits of 0.5 ms, with this thread asleep for half
/// of them, than after waits of 0.25 ms, which it spun through. It took 21 ms longer if the thread spun through both,
/// 38 ms if it slept in both. At 5 and 2.5 ms it was 0.5 % of the run time longer.
const SPIN_THROUGH_MAX: Nanos = Nanos::from_millis(5);
/// Interval of the checks for an idle processor. Two checks must find none: the request's own client may still be
/// running.
const IDLE_LOOK: Nanos = Nanos::from_micros(50);
/// Duration of the sleep before the next check. With 200 µs, reads of 1 ms beside two computing programs on two
/// processors ended 5 % later.
const CROWDED_SLEEP: Nanos = Nanos::from_millis(1);
/// A call that returns faster than this has not slept.
pub(super) const ASLEEP_MIN: Nanos = Nanos::from_micros(3);

impl Worker {
    pub fn new(shared: Arc<Shared>, connection: u32, transport: TransportIndex) -> Self {
        real_host::precise_timers();
        if let Some(cpu) = shared.options.cpu {
            // The server has tried it at its start.
            let _ = real_host::pin_to_cpu(cpu);
        }
        let now = shared.now();
        Worker {
            shared,
            connection,
            transport,
            pace: Pace::new(now),
            linger: Linger::new(),
            scheduling: real_host::Scheduling::default(),
            arrivals: Vec::new(),
            leaving: Vec::new(),
            group: Vec::new(),
            left: Left::default(),
            wake_at: None,
            looked: None,
            crowded: false,
            rehearses: None,
            rehearsal_pause: REHEARSAL_MIN,
            waits_since: now,
            ahead: Nanos::ZERO,
        }
    }

    /// Adds a request, which arrives with the next [`turn`](Self::turn). If it came in pieces, it arrives as of
    /// `begun`, the reception of its first bytes.
    pub fn arrived(&mut self, request: Request, bytes: Transfer, begun: Option<Seen>) {
        self.arrivals.push((request, bytes, begun));
    }

    /// Departures to report with the next [`turn`](Self::turn).
    pub fn left(&mut self) -> &mut Left {
        &mut self.left
    }

    /// Reports arrivals and departures to the clock, and sends leaving completions of any connection.
    pub fn turn(&mut self, own: &dyn Peer, seen: Seen) {
        self.pace.worked();
        let came = !self.arrivals.is_empty();
        let looked = self.looked.take().filter(|_| !came);
        if came {
            self.linger.received(seen.at);
        }
        let shared = &*self.shared;
        let ahead = if looked.is_some() { self.ahead } else { Nanos::ZERO };
        let mut leave_at;
        {
            let mut core = shared.core();
            self.left.settle(&mut core.clock);
            for (request, bytes, begun) in self.arrivals.drain(..) {
                let Seen { at, found } = begun.unwrap_or(seen);
                let at = at.max(seen.at.saturating_sub(TRANSFER_MAX));
                core.clock.arrive(at, found, shared.device, request, bytes);
            }
            let noticed = shared.now();
            // Taking requests in is work, and may take its time.
            if let Some(gap) = looked.and_then(|looked| self.pace.turned(looked, noticed)) {
                core.clock.note_gap(gap);
            }
            leave_at = core.clock.take(noticed, ahead, &mut self.leaving);
            if shared.skipping.is_on() && self.leaving.is_empty() {
                leave_at = shared.skip_to_next(&mut core, &mut self.leaving);
            }
            let wake_at = core.clock.wake_at();
            shared.set_wake_at(wake_at);
            // This also runs with nothing to wait for: another thread must not rely on this one then.
            let mine = core.settle(self.connection, wake_at);
            self.wake_at = wake_at.filter(|_| mine);
            // A new wait begins. The rest of a wait that a sleep has interrupted does not count as a new one.
            if came || !self.leaving.is_empty() {
                self.waits_since = leave_at;
            }
            let wait = self.wake_at.map_or(Nanos::ZERO, |wake_at| wake_at.saturating_sub(self.waits_since));
            self.ahead = Nanos::from_nanos(wait.as_nanos() / PREPARATION_PART).min(PREPARATION);
        }
        if self.leaving.is_empty() {
            return;
        }
        let mut moment = Moment { shared, pace: &mut self.pace, at: leave_at, gap: None };
        if self.leaving.iter().all(|departure| departure.id.connection == self.connection) {
            own.deliver(&self.leaving, &mut moment, false, &mut self.left);
            self.left.in_gap(moment.gap);
            self.note_reply();
            self.leaving.clear();
        } else {
            self.deliver_to_all(Some(own), leave_at);
        }
    }

    /// Sends leaving completions of any connection; this connection's own only if it continues.
    fn deliver_to_all(&mut self, own: Option<&dyn Peer>, leave_at: Nanos) {
        while let Some(first) = self.leaving.first() {
            let connection = first.id.connection;
            self.group.clear();
            self.group.extend(self.leaving.iter().filter(|departure| departure.id.connection == connection));
            self.leaving.retain(|departure| departure.id.connection != connection);
            let mut moment = Moment { shared: &self.shared, pace: &mut self.pace, at: leave_at, gap: None };
            if let Some(own) = own.filter(|_| connection == self.connection) {
                own.deliver(&self.group, &mut moment, false, &mut self.left);
                self.left.in_gap(moment.gap);
                self.note_reply();
                continue;
            }
            let peer = self.shared.peers().get(&connection).cloned();
            match peer {
                Some(peer) => {
                    let deliver = || peer.deliver(&self.group, &mut moment, true, &mut self.left);
                    // A panic belongs to that connection, not to this one.
                    if self.shared.catch(|| format!("replying on connection {connection}"), deliver).is_none() {
                        self.left.dropped(&self.group);
                        peer.abandon();
                    }
                    self.left.in_gap(moment.gap);
                }
                None => {
                    self.shared.totals().dropped_completions += self.group.len() as u64;
                    self.left.dropped(&self.group);
                }
            }
        }
        self.group.clear();
    }

    /// Sends completions that other threads handed to the connection's own thread.
    pub fn deliver_handed_over<T>(&mut self, own: &dyn Peer, state: &Guarded<T>) {
        let Some((departures, at)) = state.take_handed_over() else { return };
        let mut moment = Moment { shared: &self.shared, pace: &mut self.pace, at, gap: None };
        own.deliver(&departures, &mut moment, false, &mut self.left);
        self.left.in_gap(moment.gap);
        self.note_reply();
    }

    fn note_reply(&mut self) {
        if let Some(returned) = self.left.last_returned() {
            self.linger.replied(returned);
        }
    }

    /// Replies leave this way.
    pub fn rehearse(&mut self, way: Way) {
        self.rehearses = self.shared.options.realtime.then_some(way);
        if self.rehearses.is_some() {
            // The first time takes longer.
            self.shared.rehearsal.send(way);
        }
    }

    /// Whether the thread waits only for the client.
    pub fn waits_for_client_only(&self) -> bool {
        self.wake_at.is_none()
    }

    /// Waits for a descriptor, for the next completion if this thread is the pacer, or for another thread's request. An
    /// impatient thread waits at most [`ATTENTION`].
    pub fn wait(&mut self, event: &OwnedFd, descriptors: &[(BorrowedFd<'_>, PollFlags)], impatient: bool) -> Woken {
        let woken = self.wait_as_planned(event, descriptors, impatient);
        self.looked = (woken == Woken::Look).then(|| self.shared.now());
        woken
    }

    fn wait_as_planned(
        &mut self,
        event: &OwnedFd,
        descriptors: &[(BorrowedFd<'_>, PollFlags)],
        impatient: bool,
    ) -> Woken {
        let now = self.shared.now();
        if self.shared.is_attached() {
            self.scheduling.leave_fifo();
        }
        if self.wake_at.is_some() && self.shared.skipping.is_on() {
            return self.look_once(descriptors);
        }
        let plan = self.pace.plan(now, self.wake_at.map(|wake_at| wake_at.saturating_sub(self.ahead)));
        if let Wait::Forever | Wait::Sleep { .. } = plan
            && let Some(lingering) = self.begin_linger(now)
        {
            return self.look_for_requests(&lingering, event, descriptors);
        }
        match plan {
            Wait::Now => Woken::Look,
            Wait::Forever => self.sleep(now, impatient.then(|| now.saturating_add(ATTENTION)), event, descriptors),
            Wait::Sleep { .. } if self.may_spin_through(now) => {
                self.crowded = false;
                self.spin(descriptors, SPIN_THROUGH_MAX)
            }
            Wait::Sleep { until } => {
                let until = if self.spins_through(now) { until.min(now.saturating_add(CROWDED_SLEEP)) } else { until };
                self.prepare_for_time(now);
                if !self.shared.core().pacer_sleeps(self.connection, until) {
                    self.wake_at = None;
                    return Woken::Look;
                }
                self.sleep(now, Some(until), event, descriptors)
            }
            Wait::Spin { .. } => {
                self.prepare_for_time(now);
                self.spin(descriptors, self.pace.margin())
            }
        }
    }

    /// Returns whether to spin although there is time to sleep: an idle processor exists, and a program of this host
    /// waits.
    fn may_spin_through(&self, now: Nanos) -> bool {
        self.spins_through(now) && (!self.crowded || self.shared.has_idle_processor())
    }

    /// Whether that is worth it.
    fn spins_through(&self, now: Nanos) -> bool {
        let is_short = self.wake_at.is_some_and(|wake_at| wake_at <= now.saturating_add(SPIN_THROUGH_MAX));
        is_short && self.shared.is_attached()
    }

    /// Whether to look for the client's next request before sleeping, and until when: not if
    /// another thread does so.
    pub fn begin_linger(&mut self, now: Nanos) -> Option<Lingering> {
        let until = self.linger.until().filter(|until| self.shared.may_linger && *until > now)?;
        if self.shared.lingering.swap(true, Ordering::Relaxed) {
            return None;
        }
        if self.pace.owes_sleep(now) {
            // Others get the CPU then as it suits the scheduler.
            self.scheduling.leave_fifo();
        }
        Some(Lingering { shared: self.shared.clone(), until })
    }

    /// Leaves a busy CPU after a look in vain for a request: the client may be waiting for this very CPU.
    pub fn end_linger(&self) {
        self.shared.leave_busy_cpu();
    }

    /// Polls the descriptors until a request is expected, a completion is near, or another thread needs this one.
    fn look_for_requests(
        &mut self,
        lingering: &Lingering,
        event: &OwnedFd,
        descriptors: &[(BorrowedFd<'_>, PollFlags)],
    ) -> Woken {
        let shared = self.shared.clone();
        let mut waits = poll_set(event, descriptors);
        let waits = &mut waits[..=descriptors.len()];
        let mut last_look = shared.now();
        loop {
            let ready = poll(waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0);
            let now = shared.now();
            if let Some(gap) = self.pace.spun(now) {
                shared.core().clock.note_gap(gap);
            }
            if ready {
                let (own, others) = waits.split_at(descriptors.len());
                if !others[0].revents().is_empty() {
                    lower(event);
                }
                let found = Found::Polled { since: now.saturating_sub(last_look) };
                let is_own = own.iter().any(|wait| !wait.revents().is_empty());
                return if is_own { Woken::Ready(found) } else { Woken::Look };
            }
            let near = self.wake_at.is_some() && shared.wake_at() <= now.saturating_add(self.pace.margin());
            if near {
                return Woken::Look;
            }
            if now >= lingering.until {
                self.end_linger();
                return Woken::Look;
            }
            last_look = now;
        }
    }

    /// The thread slept outside of [`wait`](Self::wait).
    pub fn slept(&mut self, from: Nanos, woke: Nanos) {
        self.pace.slept(from, woke, None);
    }

    fn sleep(
        &mut self,
        now: Nanos,
        until: Option<Nanos>,
        event: &OwnedFd,
        descriptors: &[(BorrowedFd<'_>, PollFlags)],
    ) -> Woken {
        let mut waits: [PollFd<'_>; DESCRIPTORS_MAX + 1] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN));
        for (wait, (descriptor, flags)) in waits[1..].iter_mut().zip(descriptors) {
            *wait = PollFd::from_borrowed_fd(*descriptor, *flags);
        }
        let length = until.map(|until| until.saturating_sub(now).min(ATTENTION));
        let timeout = length.map(|length| Timespec { tv_sec: 0, tv_nsec: length.as_nanos() as i64 });
        let waits = &mut waits[..=descriptors.len()];
        let polled = poll(waits, timeout.as_ref());
        let woke = self.shared.now();
        self.shared.leave_busy_cpu();
        let timer = length.map(|length| now.saturating_add(length));
        self.pace.slept(now, woke, timer);
        if let Some(timer) = timer.filter(|timer| *timer <= woke) {
            let late = woke.saturating_sub(timer);
            let gap = self.pace.last_gap();
            let mut core = self.shared.core();
            core.clock.woken_late(self.transport, late);
            if gap.to == woke {
                core.clock.note_gap(gap);
            }
        }
        if let Ok(1..) | Err(Errno::INTR) = polled
            && waits[0].revents().contains(PollFlags::IN)
        {
            lower(event);
        }
        let ready = polled.is_ok_and(|_| waits[1..].iter().any(|wait| !wait.revents().is_empty()));
        let asleep = woke.saturating_sub(now);
        match (ready, asleep > ASLEEP_MIN) {
            (false, _) => Woken::Look,
            (true, true) => Woken::Ready(Found::Woken { asleep }),
            (true, false) => Woken::Ready(Found::Busy),
        }
    }

    /// Takes received requests before time is skipped: the model sees them together with the outstanding ones.
    fn look_once(&mut self, descriptors: &[(BorrowedFd<'_>, PollFlags)]) -> Woken {
        self.pace.worked();
        let mut waits = poll_set(&self.shared.stop, descriptors);
        let waits = &mut waits[..descriptors.len()];
        match poll(waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) => Woken::Look,
            _ => Woken::Ready(Found::Busy),
        }
    }

    /// Polls the clock, and the descriptors as long as that can't miss the instant. The instant is at most `length_max`
    /// away. While it is further away than the pace's margin, the thread spins only if a processor is idle.
    fn spin(&mut self, descriptors: &[(BorrowedFd<'_>, PollFlags)], length_max: Nanos) -> Woken {
        let shared = self.shared.clone();
        let mut waits = poll_set(&shared.stop, descriptors);
        let waits = &mut waits[..descriptors.len()];
        let mut last_look = self.shared.now();
        let mut rehearsed = Nanos::ZERO;
        let mut idle_looked = last_look;
        loop {
            let now = self.shared.now();
            if let Some(gap) = self.pace.spun(now) {
                self.shared.core().clock.note_gap(gap);
            }
            let wake_at = self.shared.wake_at().saturating_sub(self.ahead);
            if wake_at <= now {
                return Woken::Look;
            }
            let left = wake_at - now;
            let pause = self.rehearsal_pause;
            if let Some(way) = self.rehearses.filter(|_| left > pause && rehearsed.saturating_add(pause) < now) {
                shared.rehearsal.send(way);
                let took = self.shared.now().saturating_sub(now);
                self.rehearsal_pause = took.saturating_add(took).max(REHEARSAL_MIN).min(REHEARSAL_MAX);
                self.pace.worked();
                rehearsed = now;
                continue;
            }
            if left < SPIN_ALONE {
                std::hint::spin_loop();
                continue;
            }
            // Other threads took all awaited completions, or the next is far away again.
            if left > length_max.saturating_add(ATTENTION) {
                return Woken::Look;
            }
            if left > self.pace.margin() && idle_looked.saturating_add(IDLE_LOOK) < now {
                let was_crowded = self.crowded;
                self.crowded = !self.shared.has_idle_processor();
                if was_crowded && self.crowded {
                    return Woken::Look;
                }
                idle_looked = now;
            }
            if poll(waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0) {
                return Woken::Ready(Found::Polled { since: self.shared.now().saturating_sub(last_look) });
            }
            last_look = now;
        }
    }

    /// Prepares for waiting for an instant: the thread needs priority, and CPUs that are awake.
    fn prepare_for_time(&mut self, now: Nanos) {
        if !self.shared.options.realtime {
            return;
        }
        self.shared.keep_awake();
        if self.pace.owes_sleep(now) || self.shared.is_attached() {
            self.scheduling.leave_fifo();
        } else {
            self.scheduling.enter_fifo();
        }
    }

    /// Ends the connection: leaves its completions to the other threads, and its counters to the totals. It may have
    /// panicked at any point.
    pub fn finish(mut self) {
        let (shared, place) = (self.shared.clone(), || "the end of a connection".to_owned());
        // The thread was delivering its own completions when it panicked.
        self.group.retain(|departure| departure.id.connection == self.connection);
        self.left.dropped(&self.group);
        if !self.leaving.is_empty() {
            // Other clients wait for these, and no other thread has them.
            shared.catch(place, || self.deliver_to_all(None, shared.now()));
        }
        shared.catch(place, || self.left.settle(&mut shared.core().clock));
        let hand_over = shared.core().resign(self.connection);
        if hand_over {
            // The first thread to wake takes over. Waking a thousand threads would take milliseconds.
            shared.peers().values().take(HEIRS).for_each(|peer| peer.nudge());
        }
        let mut totals = shared.totals();
        totals.pace.add(&self.pace.statistics());
        totals.realtime |= self.scheduling.is_fifo();
    }
}

/// A thread looks for a request instead of sleeping.
pub(super) struct Lingering {
    shared: Arc<Shared>,
    /// Instant of the end of the wait.
    pub until: Nanos,
}

impl Lingering {
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.shared.lingering.store(false, Ordering::Relaxed);
    }
}

/// Descriptors to poll, padded with `filler`.
fn poll_set<'a>(filler: &'a OwnedFd, descriptors: &[(BorrowedFd<'a>, PollFlags)]) -> [PollFd<'a>; DESCRIPTORS_MAX + 1] {
    let mut waits = std::array::from_fn(|_| PollFd::from_borrowed_fd(filler.as_fd(), PollFlags::IN));
    for (wait, (descriptor, flags)) in waits.iter_mut().zip(descriptors) {
        *wait = PollFd::from_borrowed_fd(*descriptor, *flags);
    }
    waits
}

/// Most descriptors of a connection.
const DESCRIPTORS_MAX: usize = 4;
