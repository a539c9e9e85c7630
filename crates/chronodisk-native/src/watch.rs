//! Watches a command while it runs, predicts how long it would take on a faster device, and freezes it meanwhile so
//! that it gets no further than it would there.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use chronodisk_engine::dilation::{DilationOptions, Prediction, Wish};
use chronodisk_sim::Nanos;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fs::{fstat, major, minor, stat};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime, timerfd_create,
    timerfd_settime,
};

use crate::error::{Doing, NativeError};
use crate::observer::tracker::Tracker;
use crate::observer::{Observer, WakeUp};
use crate::scope::CommandScope;

/// Longest interval between two reads of the ring of events, so that it never becomes full.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest freeze; then the command runs for a moment regardless of its debt: a slow request must not stop it for long.
const FROZEN_MAX: Nanos = Nanos::from_millis(500);
/// Minimum length of that moment: with a shorter one the command would make no progress.
const GOES_ON: Nanos = Nanos::from_millis(20);
/// Time after which a request in flight may have completed unseen. On Linux 6.18, the BPF program is not run for one
/// completion in some thousands, without a count of skipped runs (`recursion_misses`); the cause is unknown.
const MAYBE_UNSEEN: Nanos = Nanos::from_millis(20);
/// Part of the smallest quantum for the supervisor's own work.
const PAUSE_MIN: Duration = Duration::from_micros(5);

/// Observes the command from its first instruction on.
pub struct Watch {
    observer: Observer,
    options: Vec<DilationOptions>,
    freezer: Freezer,
    in_flight: PathBuf,
}

/// A watch over a command that runs.
#[derive(Debug)]
pub struct Watching {
    stop: OwnedFd,
    supervisor: JoinHandle<Supervisor>,
}

/// Result of an observation.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// One prediction for each of the options, in their order.
    pub predictions: Vec<Prediction>,
    /// Whether the first prediction's command could be frozen: its requests were long enough for that.
    pub freezes: bool,
    /// Requests of processes outside of the command on the same device.
    pub other_requests: u64,
    /// Waits that freezing interrupted.
    pub interrupted_waits: u64,
    /// Freezes that were cut short since they had lasted for half a second.
    pub cut_freezes: u64,
    /// Events that were lost: with any, the predictions are not to be believed.
    pub lost_events: u64,
    /// CPU time of the thread that froze the command.
    pub supervisor_cpu: Duration,
}

impl CommandScope {
    /// Checks that commands of this scope can be watched, before any has begun.
    ///
    /// # Errors
    /// As for [`CommandScope::watch`].
    pub fn expect_watchable(&self) -> Result<(), NativeError> {
        self.watch(Path::new("/dev/null"), Vec::new()).map(drop)
    }

    /// Prepares to watch the next command of this scope on the block device `device`.
    ///
    /// Only the first of the options may freeze it.
    ///
    /// # Errors
    /// [`NativeError::HostLacks`] without BTF, CAP_BPF, CAP_PERFMON, or the right to freeze the cgroup.
    pub fn watch(&self, device: &Path, options: Vec<DilationOptions>) -> Result<Watch, NativeError> {
        let directory = self.cgroup.directory();
        let cgroup = fstat(directory).doing("asking for the cgroup's number")?.st_ino;
        let disk = stat(device).doing(format!("asking for the number of {}", device.display()))?.st_rdev;
        let freezer = Freezer(self.cgroup.freezer()?);
        let observer = Observer::attach(cgroup, (major(disk), minor(disk)))?;
        let in_flight = PathBuf::from(format!("/sys/dev/block/{}:{}/inflight", major(disk), minor(disk)));
        Ok(Watch { observer, options, freezer, in_flight })
    }
}

impl Watch {
    /// The command began at this instant of the host's monotonic clock, not before this watch was made.
    ///
    /// # Errors
    /// If the system refuses a thread or a descriptor.
    pub fn begin(self, began: Duration) -> Result<Watching, NativeError> {
        const DOING: &str = "starting the supervisor";
        let stop = eventfd(0, EventfdFlags::CLOEXEC).doing(DOING)?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).doing(DOING)?;
        epoll::add(&events, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN).doing(DOING)?;
        // Edge-triggered: the ring is ready while it has events, but only a wake-up by the kernel counts.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&events, &self.observer, epoll::EventData::new_u64(RING), edges).doing(DOING)?;
        // epoll's own timeout counts whole milliseconds on older kernels, longer than a whole request may take.
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).doing(DOING)?;
        epoll::add(&events, &timer, epoll::EventData::new_u64(TIMER), edges).doing(DOING)?;
        let supervisor = Supervisor {
            tracker: Tracker::new(&self.options, nanos(began)),
            may_freeze: self.options.first().is_some_and(|options| options.freezes),
            observer: self.observer,
            in_flight: self.in_flight,
            looked_at: Nanos::ZERO,
            freezer: self.freezer,
            events,
            timer,
            frozen_at: Nanos::ZERO,
            goes_on_until: Nanos::ZERO,
            cut_freezes: 0,
            could_freeze: false,
            cpu: Duration::ZERO,
        };
        let thread = std::thread::Builder::new().name("supervisor".to_owned());
        let supervisor = thread.spawn(move || supervisor.run()).doing(DOING)?;
        Ok(Watching { stop, supervisor })
    }
}

impl Watching {
    /// The command has ended at this instant.
    ///
    /// # Errors
    /// If the supervisor failed.
    pub fn end(self, until: Duration) -> Result<Observation, NativeError> {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        let mut supervisor = self.supervisor.join().map_err(|_| NativeError::System {
            doing: "supervising the command".to_owned(),
            source: std::io::Error::other("the supervisor panicked"),
        })?;
        supervisor.drain();
        let (predictions, counts) = supervisor.tracker.finish(nanos(until));
        Ok(Observation {
            predictions,
            freezes: supervisor.could_freeze,
            other_requests: counts.other_requests,
            interrupted_waits: counts.interrupted_waits,
            cut_freezes: supervisor.cut_freezes,
            lost_events: supervisor.observer.lost() + supervisor.tracker.ended_unseen(),
            supervisor_cpu: supervisor.cpu,
        })
    }
}

const STOP: u64 = 0;
const RING: u64 = 1;
const TIMER: u64 = 2;

/// The file `cgroup.freeze`. The cgroup is thawed when this is dropped.
#[derive(Debug)]
struct Freezer(OwnedFd);

impl Freezer {
    fn set(&self, frozen: bool) -> bool {
        rustix::io::write(&self.0, if frozen { b"1" } else { b"0" }).is_ok()
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.set(false);
    }
}

struct Supervisor {
    tracker: Tracker,
    observer: Observer,
    /// The kernel's file with the number of the device's requests in flight.
    in_flight: PathBuf,
    looked_at: Nanos,
    freezer: Freezer,
    events: OwnedFd,
    /// Ends a pause.
    timer: OwnedFd,
    may_freeze: bool,
    frozen_at: Nanos,
    /// Instant until which the command is not frozen again, after a freeze that was cut short.
    goes_on_until: Nanos,
    cut_freezes: u64,
    could_freeze: bool,
    cpu: Duration,
}

impl Supervisor {
    fn run(mut self) -> Self {
        if self.may_freeze {
            be_prompt();
            self.observer.tell_of_preemption();
        }
        loop {
            self.drain();
            self.look_for_unseen();
            let (wake_up, pause) = if self.may_freeze { self.act() } else { (WakeUp::Never, LOOK_EVERY) };
            // Do not wait before events from before the switch were read.
            let pause = if self.observer.set_wake_up(wake_up) { Duration::ZERO } else { pause };
            if self.wait(pause) {
                break;
            }
        }
        if self.tracker.is_frozen() {
            self.thaw();
        }
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        self.cpu = Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32);
        self
    }

    fn drain(&mut self) {
        while let Some(record) = self.observer.next() {
            self.tracker.record(record);
        }
    }

    /// Ends requests whose completion was not seen, since they would make the device seem busy.
    fn look_for_unseen(&mut self) {
        let now = nanos(monotonic());
        let is_old = self.tracker.oldest_request().is_some_and(|issued| now.saturating_sub(issued) >= MAYBE_UNSEEN);
        if !is_old || now.saturating_sub(self.looked_at) < MAYBE_UNSEEN {
            return;
        }
        self.looked_at = now;
        // Reads and writes, in flight.
        let is_idle = std::fs::read_to_string(&self.in_flight)
            .is_ok_and(|text| text.split_whitespace().all(|count| count == "0") && !text.trim().is_empty());
        if is_idle {
            // Events reported by then.
            self.drain();
            self.tracker.device_was_idle(now);
        }
    }

    /// Freezes or thaws. Returns when to be woken, and when to check again at the latest.
    fn act(&mut self) -> (WakeUp, Duration) {
        let now = nanos(monotonic());
        let mut wish = self.tracker.wish(now);
        if self.tracker.is_frozen() && now.saturating_sub(self.frozen_at) >= FROZEN_MAX {
            self.cut_freezes += 1;
            self.goes_on_until = now + GOES_ON;
            wish = Wish::Thaw;
        }
        if matches!(wish, Wish::Freeze) && now < self.goes_on_until {
            wish = Wish::Nothing(Some(self.goes_on_until));
        }
        match wish {
            Wish::Freeze => {
                self.could_freeze = true;
                self.frozen_at = now;
                self.tracker.froze(now);
                self.freezer.set(true);
                (WakeUp::WhenIdle, Duration::ZERO)
            }
            Wish::Thaw => {
                self.thaw();
                (WakeUp::WhenBusyAndRunnable, Duration::ZERO)
            }
            Wish::Nothing(at) => {
                self.could_freeze |= self.tracker.freezes();
                let frozen = self.tracker.is_frozen();
                let wake_up = match (frozen, at) {
                    (true, _) => WakeUp::WhenIdle,
                    (false, None) => WakeUp::WhenBusyAndRunnable,
                    (false, Some(_)) => WakeUp::Never,
                };
                let pause = at.map_or(LOOK_EVERY, |at| Duration::from_nanos(at.saturating_sub(now).as_nanos()));
                (wake_up, pause.clamp(PAUSE_MIN, LOOK_EVERY))
            }
        }
    }

    fn thaw(&mut self) {
        self.freezer.set(false);
        self.tracker.thawed(nanos(monotonic()));
    }

    /// Waits for this time. Returns whether to stop.
    fn wait(&self, pause: Duration) -> bool {
        let timespec =
            |pause: Duration| Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
        // Without the timer, the timeout still applies. A zero timer would never fire.
        if !pause.is_zero() {
            let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(pause) };
            let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
        }
        let mut events = Vec::with_capacity(3);
        match epoll::wait(&self.events, spare_capacity(&mut events), Some(&timespec(pause))) {
            Ok(_) => events.iter().any(|event: &epoll::Event| event.data.u64() == STOP),
            Err(_) => false,
        }
    }
}

/// Gives this thread priority over others: after a late freeze the command would be too far ahead. The thread sleeps
/// most of the time. Without the permission, freezing is only less accurate.
#[allow(unsafe_code)]
fn be_prompt() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: both calls change this thread's scheduling only; the structure lives until the first one returns.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
    }
}

fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
