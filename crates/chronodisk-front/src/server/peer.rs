//! Connections as the other threads see them.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use chronodisk_engine::{Departure, Gap, Pace};
use chronodisk_sim::Nanos;

use super::Shared;

/// A connection to which completions can be delivered from any thread.
pub(super) trait Peer: Send + Sync {
    /// Sends the completions at that moment, as far as the socket takes them at once; the
    /// connection's own thread sends the rest. `foreign` says that this is another thread, which
    /// leaves all of them to a connection whose own thread has the session in hand.
    fn deliver(&self, departures: &[Departure], moment: &mut Moment<'_>, foreign: bool, left: &mut Left);

    /// Wakes the connection's thread.
    fn nudge(&self);

    /// Nothing more shall be received.
    fn end_input(&self);
}

/// When completions must leave: now, or so soon that there was just the time to prepare them.
pub(super) struct Moment<'a> {
    pub shared: &'a Shared,
    pub pace: &'a mut Pace,
    pub at: Nanos,
    /// The CPU was somebody else's then.
    pub gap: Option<Gap>,
}

impl Moment<'_> {
    /// Waits for it if it is not there yet. Returns the instant at which sending begins.
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

/// What one thread at a time works with, and what others leave for whoever does.
///
/// A thread that sends everybody's completions must not wait for one of them, who may be at a long
/// copy.
pub(super) struct Desk<T> {
    work: Mutex<T>,
    left: Mutex<Vec<(Departure, Nanos)>>,
}

impl<T> Desk<T> {
    pub fn new(work: T) -> Self {
        Desk { work: Mutex::new(work), left: Mutex::default() }
    }

    /// Waits until nobody else is at it. A thread that panicked there has ended its own connection.
    pub fn sit(&self) -> MutexGuard<'_, T> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `send` send the completions, at the desk. Another thread than the connection's own leaves
    /// them there if somebody is at it, raises the connection's event, and goes; the connection's own
    /// looks for them before it waits.
    pub fn deliver(
        &self,
        departures: &[Departure],
        moment: &mut Moment<'_>,
        foreign: Option<&OwnedFd>,
        mut send: impl FnMut(&mut T, &[Departure], &mut Moment<'_>),
    ) {
        let Some(event) = foreign else { return send(&mut self.sit(), departures, moment) };
        if let Some(mut work) = self.sit_if_free() {
            return send(&mut work, departures, moment);
        }
        self.lock_left().extend(departures.iter().map(|departure| (*departure, moment.at)));
        raise(event);
        // Who was there may have looked just before, and waits for something else now.
        if let Some(mut work) = self.sit_if_free()
            && let Some((departures, at)) = self.take_left()
        {
            moment.at = moment.at.max(at);
            send(&mut work, &departures, moment);
        }
    }

    /// What lies there, and the latest of the moments at which it must leave.
    pub fn take_left(&self) -> Option<(Vec<Departure>, Nanos)> {
        let left = std::mem::take(&mut *self.lock_left());
        let at = left.iter().map(|(_, at)| *at).max()?;
        Some((left.into_iter().map(|(departure, _)| departure).collect(), at))
    }

    fn sit_if_free(&self) -> Option<MutexGuard<'_, T>> {
        match self.work.try_lock() {
            Ok(work) => Some(work),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock_left(&self) -> MutexGuard<'_, Vec<(Departure, Nanos)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has left, until the clock is told.
#[derive(Debug, Default)]
pub(super) struct Left {
    departures: Vec<Departure>,
    calls: Vec<Call>,
    gap: Option<Gap>,
}

/// How some of the departures left.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// The departure after the last of them.
    end: usize,
    begun: Nanos,
    /// [`Nanos::MAX`] if the client is gone.
    returned: Nanos,
    /// One system call sent them and nothing else.
    whole: bool,
}

impl Left {
    /// They left with one system call and nothing else did.
    pub fn sent(&mut self, departures: &[Departure], begun: Nanos, returned: Nanos) {
        self.push(departures, Call { end: 0, begun, returned, whole: true });
    }

    /// They had left at `at`, by whatever calls.
    pub fn seen(&mut self, departures: &[Departure], at: Nanos) {
        self.push(departures, Call { end: 0, begun: at, returned: at, whole: false });
    }

    /// Nobody is there to see them.
    pub fn dropped(&mut self, departures: &[Departure]) {
        self.seen(departures, Nanos::MAX);
    }

    /// The CPU was somebody else's when they should have left.
    pub fn in_gap(&mut self, gap: Option<Gap>) {
        self.gap = gap.or(self.gap);
    }

    /// When the last call returned, if some completions left since the clock was told.
    pub fn last_returned(&self) -> Option<Nanos> {
        self.calls.last().map(|call| call.returned).filter(|returned| *returned < Nanos::MAX)
    }

    /// Tells the clock.
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
    // It fails only if it is readable already, a great many times over.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Makes an event descriptor unreadable.
pub(super) fn lower(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
