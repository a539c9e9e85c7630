//! Connections as the other threads see them.

use std::os::fd::OwnedFd;

use chronodisk_engine::{Departure, Gap, InheritingGuard, InheritingMutex, Pace};
use chronodisk_sim::Nanos;

use super::Shared;

/// A connection to which completions can be delivered from any thread.
pub(super) trait Peer: Send + Sync {
    /// Sends the completions at that moment, as far as the socket has room; the connection's own thread sends the rest.
    /// If another thread calls it (`foreign`), it does nothing if the connection's own thread holds the session's lock:
    /// that thread delivers them.
    fn deliver(&self, departures: &[Departure], moment: &mut Moment<'_>, foreign: bool, left: &mut Left);

    /// Wakes the connection's thread.
    fn nudge(&self);

    /// Ends the connection's input.
    fn end_input(&self);

    /// Cuts the connection at once, because its state may be inconsistent.
    fn abandon(&self);
}

/// Instant at which completions must leave: now, or so soon that they must be prepared.
pub(super) struct Moment<'a> {
    pub shared: &'a Shared,
    pub pace: &'a mut Pace,
    pub at: Nanos,
    /// Another program had the CPU then.
    pub gap: Option<Gap>,
}

impl Moment<'_> {
    /// Waits for the instant, if it is in the future. Returns the instant at which sending begins.
    pub fn wait(&mut self) -> Nanos {
        let mut now = self.shared.now();
        if now >= self.at {
            return self.at;
        }
        self.pace.worked();
        while now < self.at {
            std::hint::spin_loop();
            self.gap = self.pace.spun(now).or(self.gap);
            now = self.shared.now();
        }
        self.gap = self.pace.spun(now).or(self.gap);
        now
    }
}

/// A connection's state, used by one thread at a time, and completions handed to its own thread.
///
/// A thread that sends the completions of all connections must not wait for one of them, which may be copying many
/// bytes.
pub(super) struct Guarded<T> {
    state: InheritingMutex<T>,
    handed_over: InheritingMutex<Vec<(Departure, Nanos)>>,
}

impl<T> Guarded<T> {
    pub fn new(state: T) -> Self {
        Guarded { state: InheritingMutex::new(state), handed_over: InheritingMutex::new(Vec::new()) }
    }

    /// Waits for the state's lock.
    pub fn lock(&self) -> InheritingGuard<'_, T> {
        self.state.lock()
    }

    /// Sends completions with `send`. If another thread than the connection's own calls it (`foreign` is then the
    /// connection's event) and the state is locked, they are handed over: the connection's own thread checks for them
    /// before it waits.
    pub fn deliver(
        &self,
        departures: &[Departure],
        moment: &mut Moment<'_>,
        foreign: Option<&OwnedFd>,
        mut send: impl FnMut(&mut T, &[Departure], &mut Moment<'_>),
    ) {
        let Some(event) = foreign else { return send(&mut self.lock(), departures, moment) };
        if let Some(mut state) = self.state.try_lock() {
            return send(&mut state, departures, moment);
        }
        self.handed_over.lock().extend(departures.iter().map(|departure| (*departure, moment.at)));
        raise(event);
        // The lock's former holder may have checked just before, and now waits for another event.
        if let Some(mut state) = self.state.try_lock()
            && let Some((departures, at)) = self.take_handed_over()
        {
            moment.at = moment.at.max(at);
            send(&mut state, &departures, moment);
        }
    }

    /// The completions handed over, and the latest moment at which one must leave.
    pub fn take_handed_over(&self) -> Option<(Vec<Departure>, Nanos)> {
        let taken = std::mem::take(&mut *self.handed_over.lock());
        let at = taken.iter().map(|(_, at)| *at).max()?;
        Some((taken.into_iter().map(|(departure, _)| departure).collect(), at))
    }
}

/// Departures, until they are reported to the clock.
#[derive(Debug, Default)]
pub(super) struct Left {
    departures: Vec<Departure>,
    calls: Vec<Call>,
    gap: Option<Gap>,
}

/// Departures that left with one call.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The departure after the last of them.
    end: usize,
    begun: Nanos,
    /// [`Nanos::MAX`] if the client is gone.
    returned: Nanos,
    /// Whether a single system call sent exactly these.
    whole: bool,
}

impl Left {
    /// Notes that these departures, and nothing else, left with one system call.
    pub fn sent(&mut self, departures: &[Departure], begun: Nanos, returned: Nanos) {
        self.push(departures, Call { end: 0, begun, returned, whole: true });
    }

    /// Records departures at `at`, by any calls.
    pub fn seen(&mut self, departures: &[Departure], at: Nanos) {
        self.push(departures, Call { end: 0, begun: at, returned: at, whole: false });
    }

    /// Records departures without a receiver.
    pub fn dropped(&mut self, departures: &[Departure]) {
        self.seen(departures, Nanos::MAX);
    }

    /// Records a gap in the CPU's time at the departures.
    pub fn in_gap(&mut self, gap: Option<Gap>) {
        self.gap = gap.or(self.gap);
    }

    /// Instant of the last call's return, if departures were sent that the clock does not know yet.
    pub fn last_returned(&self) -> Option<Nanos> {
        self.calls.last().map(|call| call.returned).filter(|returned| *returned < Nanos::MAX)
    }

    /// Reports the departures to the clock.
    pub fn settle(&mut self, clock: &mut chronodisk_engine::RealClock) {
        if let Some(gap) = self.gap.take() {
            clock.note_gap(gap);
        }
        let mut start = 0;
        for call in self.calls.drain(..) {
            let departures = &self.departures[start..call.end];
            start = call.end;
            if call.whole {
                clock.sent(departures, call.begun, call.returned);
            } else {
                departures.iter().for_each(|departure| clock.seen(departure, call.returned));
            }
        }
        self.departures.clear();
    }

    fn push(&mut self, departures: &[Departure], call: Call) {
        if departures.is_empty() {
            return;
        }
        self.departures.extend_from_slice(departures);
        self.calls.push(Call { end: self.departures.len(), ..call });
    }
}

/// Makes an event descriptor readable.
pub(super) fn raise(event: &OwnedFd) {
    // It can fail only if the counter overflows, and then the event is readable already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Makes an event descriptor unreadable.
pub(super) fn lower(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
