//! Limits of resources that clients share: memory, processor time for long calls, and thread priority.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, Nanos};
use rustix::time::{ClockId, clock_gettime};

use crate::real::host::take_only_spare_time;
use crate::step::checked_step;

/// Memory that several parts of a server take from, up to a limit.
#[derive(Debug)]
pub struct MemoryPool {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

impl MemoryPool {
    /// A pool of this many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<MemoryPool> {
        Arc::new(MemoryPool { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    /// Size of the pool in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Takes bytes from the pool, if there are enough.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit_bytes);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Counts bytes that were reserved before.
    pub(super) fn add(&self, bytes: u64) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Reserves bytes until the result is dropped. `None` if too few are free.
    #[must_use]
    pub fn hold(self: &Arc<Self>, bytes: u64) -> Option<Held> {
        self.take(bytes).then(|| Held { pool: Arc::clone(self), bytes })
    }
}

/// Bytes taken from a pool.
#[derive(Debug)]
pub struct Held {
    pool: Arc<MemoryPool>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.give_back(self.bytes);
    }
}

/// Limit of the work per call, and lanes that keep long calls from occupying all processors.
///
/// After `SHORT_CALL` of work a call needs one of a few lanes, one fewer than there are processors. Short calls of
/// other sessions so find a processor free. The wait for a lane counts as work.
#[derive(Debug)]
pub struct Workshop {
    call_limit: Duration,
    lanes_free: Mutex<usize>,
    lane_left: Condvar,
    stopping: AtomicBool,
}

/// A call that works no longer than this is served at once.
const SHORT_CALL: Duration = Duration::from_millis(5);
/// Interval at which a call that waits for a lane checks whether the server stops.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bounded work waits no longer for a lane.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between these a piece of work is neither lengthened nor shortened.
const PIECE_MIN: Duration = Duration::from_micros(200);
const PIECE_MAX: Duration = Duration::from_millis(2);

impl Workshop {
    /// Makes a workshop in which no call works longer than `call_limit` of processor time.
    #[must_use]
    pub fn new(call_limit: Duration) -> Arc<Workshop> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Workshop {
            call_limit,
            lanes_free: Mutex::new(processors.saturating_sub(1).max(1)),
            lane_left: Condvar::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Ends every call at its next check.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.lane_left.notify_all();
    }

    /// Begins a call on the present thread.
    pub(super) fn call(&self) -> Call<'_> {
        Call { shop: self, worked_before: worked(), waited: Duration::ZERO, lane: None }
    }
}

/// Processor time of the present thread so far.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Lowers a session's thread to idle priority once it uses more than half a CPU, so that sessions with short calls need
/// not wait for it. It stays so until the connection ends: raising it again needs a privilege on some hosts.
#[derive(Debug)]
pub(super) struct PriorityLimit {
    window_began: Instant,
    worked_before: Duration,
    is_lowered: bool,
}

/// Duration over which the share of a processor is measured.
const WINDOW: Duration = Duration::from_millis(250);

impl PriorityLimit {
    /// Begins to measure the calling thread.
    pub fn new() -> Self {
        PriorityLimit { window_began: Instant::now(), worked_before: worked(), is_lowered: false }
    }

    /// Called between two calls of the same thread: evaluates its share at the end of a window.
    pub fn check(&mut self) {
        let elapsed = self.window_began.elapsed();
        if self.is_lowered || elapsed < WINDOW {
            return;
        }
        let worked_by_now = worked();
        self.judge(worked_by_now - self.worked_before, elapsed);
        (self.window_began, self.worked_before) = (Instant::now(), worked_by_now);
    }

    /// Lowers the calling thread's priority if it has worked for more than half of this time.
    fn judge(&mut self, worked: Duration, elapsed: Duration) {
        if worked > elapsed / 2 {
            // A host that refuses it serves as before.
            self.is_lowered = take_only_spare_time().is_ok();
        }
    }
}

/// Reason for ending a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// It has worked, or waited for a lane, for longer than its limit.
    TooLong(Duration),
    /// The server ends.
    Stopping,
}

/// A command that is being executed.
pub(super) struct Call<'a> {
    shop: &'a Workshop,
    worked_before: Duration,
    waited: Duration,
    lane: Option<Lane<'a>>,
}

struct Lane<'a>(&'a Workshop);

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        *self.0.lanes_free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.lane_left.notify_one();
    }
}

impl Call<'_> {
    /// Called between two pieces of work: checks whether the call may continue.
    pub fn check(&mut self) -> Result<(), Halt> {
        if self.shop.stopping.load(Ordering::Relaxed) {
            return Err(Halt::Stopping);
        }
        let worked = worked().saturating_sub(self.worked_before);
        let left = self.left(worked)?;
        if worked > SHORT_CALL { self.enter_lane(left) } else { Ok(()) }
    }

    /// Continues in a lane.
    pub fn enter_lane_in_time(&mut self) -> Result<(), Halt> {
        let left = self.left(Duration::ZERO)?;
        self.enter_lane(left)
    }

    /// Whether the call has worked so long that it needs a lane.
    pub fn is_long(&self) -> bool {
        worked().saturating_sub(self.worked_before) > SHORT_CALL
    }

    /// Called before a long but bounded piece of work that can't be interrupted: enters a lane, if one is free soon.
    pub fn begin_long(&mut self) {
        let _ = self.enter_lane(PATIENCE);
    }

    fn left(&self, worked: Duration) -> Result<Duration, Halt> {
        let limit = self.shop.call_limit;
        limit.checked_sub(worked + self.waited).ok_or(Halt::TooLong(limit))
    }

    fn enter_lane(&mut self, patience: Duration) -> Result<(), Halt> {
        if self.lane.is_some() {
            return Ok(());
        }
        let begun = Instant::now();
        let mut free = self.shop.lanes_free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            if self.shop.stopping.load(Ordering::Relaxed) {
                return Err(Halt::Stopping);
            }
            if begun.elapsed() > patience {
                return Err(Halt::TooLong(self.shop.call_limit));
            }
            let waited = self.shop.lane_left.wait_timeout(free, LOOK_EVERY);
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        self.lane = Some(Lane(self.shop));
        self.waited += begun.elapsed();
        Ok(())
    }
}

/// Step of a model between two looks at the clock, adapted to the time that steps take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces(Nanos);

impl Default for Pieces {
    fn default() -> Self {
        Pieces(Nanos::from_millis(1))
    }
}

impl Pieces {
    /// Like [`checked_step`], but in pieces: to the first instant with a completion, or to `limit`.
    ///
    /// Stepping in pieces gives the same completions (the third rule of the models).
    ///
    /// # Panics
    /// If the model breaks its contract.
    pub fn step(
        &mut self,
        model: &mut dyn DeviceModel,
        limit: Nanos,
        completed: &mut Vec<Completion>,
        call: &mut Call<'_>,
    ) -> Result<(), Halt> {
        let first_new = completed.len();
        loop {
            let until = limit.min(model.now().saturating_add(self.0));
            let begun = Instant::now();
            checked_step(model, until, completed);
            if completed.len() > first_new || until == limit {
                return Ok(());
            }
            let took = begun.elapsed();
            if took < PIECE_MIN {
                self.0 = Nanos::from_nanos(self.0.as_nanos().saturating_mul(4));
            } else if took > PIECE_MAX {
                self.0 = Nanos::from_nanos((self.0.as_nanos() / 4).max(1_000));
            }
            call.check()?;
        }
    }

    /// [`checked_advance`](crate::step::checked_advance) in pieces, for a model that is not beyond `until`.
    ///
    /// # Panics
    /// If the model breaks its contract.
    pub fn advance(
        &mut self,
        model: &mut dyn DeviceModel,
        until: Nanos,
        completed: &mut Vec<Completion>,
        call: &mut Call<'_>,
    ) -> Result<(), Halt> {
        let first_new = completed.len();
        let outstanding = model.outstanding() as usize;
        loop {
            let before_step = completed.len();
            self.step(model, until, completed, call)?;
            if completed.len() == before_step {
                return Ok(());
            }
            assert!(
                completed.len() - first_new <= outstanding,
                "model {}: {} completions by {until}, but only {outstanding} requests were outstanding",
                model.info().name,
                completed.len() - first_new,
            );
        }
    }

    /// [`step_to_completion`](crate::step::step_to_completion) in pieces.
    ///
    /// # Panics
    /// If the model breaks its contract.
    pub fn step_to_completion(
        &mut self,
        model: &mut dyn DeviceModel,
        completed: &mut Vec<Completion>,
        call: &mut Call<'_>,
    ) -> Result<(), Halt> {
        let first_new = completed.len();
        self.step(model, Nanos::MAX, completed, call)?;
        assert!(
            completed.len() > first_new,
            "model {}: {} requests never complete",
            model.info().name,
            model.outstanding()
        );
        let now = model.now();
        self.advance(model, now, completed, call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::host::takes_only_spare_time;

    #[test]
    fn the_priority_of_a_thread_with_short_calls_is_not_lowered() {
        let serve = || {
            let (mut limit, begun) = (PriorityLimit::new(), Instant::now());
            while begun.elapsed() < Duration::from_millis(600) {
                let worked_before = worked();
                while worked() - worked_before < Duration::from_micros(100) {}
                thread::sleep(Duration::from_millis(10));
                limit.check();
            }
            takes_only_spare_time()
        };
        assert!(!thread::spawn(serve).join().unwrap());
    }

    /// Whether the priority of a thread is lowered after this work in a window. The test sets the share, since a busy
    /// host may give its threads less.
    fn is_lowered_after(worked: Duration) -> bool {
        let judge = move || {
            PriorityLimit::new().judge(worked, WINDOW);
            takes_only_spare_time()
        };
        thread::spawn(judge).join().unwrap()
    }

    #[test]
    fn the_priority_is_lowered_of_a_thread_that_takes_more_than_half_of_a_processor() {
        assert!(!is_lowered_after(WINDOW / 2));
        assert!(is_lowered_after(WINDOW / 2 + Duration::from_millis(1)));
    }

    #[test]
    fn what_a_thread_has_worked_is_measured() {
        let serve = || {
            let (mut limit, worked_before, begun) = (PriorityLimit::new(), worked(), Instant::now());
            while begun.elapsed() < WINDOW {}
            let share = (worked() - worked_before).as_secs_f64() / begun.elapsed().as_secs_f64();
            limit.check();
            (share, takes_only_spare_time())
        };
        // A busy host may give the thread any share, which changes slightly between two readings of the clocks.
        let (share, is_lowered) = thread::spawn(serve).join().unwrap();
        assert!(is_lowered == (share > 0.5) || (share - 0.5).abs() < 0.05, "{share}, {is_lowered}");
    }
}
