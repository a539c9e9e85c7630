//! Requests to the operating system for punctuality: real-time priority, CPU placement, locked memory, CPUs that stay
//! awake. The host may refuse each of them.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use chronodisk_sim::Nanos;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Priority of a thread that waits for completions, the lowest of a real-time thread's: above all
/// others, below the kernel's own real-time threads.
const FIFO_PRIORITY: i32 = 1;

/// The calling thread's scheduling, to be changed and changed back.
#[derive(Debug, Default)]
pub struct Scheduling {
    fifo: bool,
    refused: bool,
}

impl Scheduling {
    /// Makes the calling thread a real-time thread (`SCHED_FIFO`) if permitted, and returns whether it is one. Asks
    /// once: a refusal is final.
    pub fn enter_fifo(&mut self) -> bool {
        if !self.fifo && !self.refused {
            self.fifo = set_policy(libc::SCHED_FIFO, FIFO_PRIORITY).is_ok();
            self.refused = !self.fifo;
        }
        self.fifo
    }

    /// Makes the calling thread an ordinary one again.
    pub fn leave_fifo(&mut self) {
        if std::mem::take(&mut self.fifo) {
            // A thread may always lower its priority.
            let _ = set_policy(libc::SCHED_OTHER, 0);
        }
    }

    /// Whether the thread is a real-time thread.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.fifo
    }
}

/// Lets timers wake the calling thread when they expire and not up to 50 µs later.
pub fn precise_timers() {
    // Always permitted; a kernel without it has coarser timers.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Binds the calling thread to a CPU, counted from 0.
///
/// # Errors
/// If this process may not use that CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(None, &cpus)?)
}

/// Moves the calling thread to one of these CPUs, if it may run there. Afterwards it may run on all its former CPUs
/// again.
fn move_to(cpus: CpuSet) -> bool {
    let Ok(allowed) = sched_getaffinity(None) else { return false };
    // Restoring an allowed set can't be refused.
    sched_setaffinity(None, &cpus).is_ok() && sched_setaffinity(None, &allowed).is_ok()
}

/// CPUs that this process may use, in order.
#[must_use]
pub fn usable_cpus() -> Vec<usize> {
    let Ok(cpus) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)).collect()
}

/// CPUs of a list of the host, such as `0-3,8`; `None` if it is none.
#[must_use]
pub fn listed_cpus(list: &str) -> Option<Vec<usize>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then(|| first.into()..=last.into())
    };
    let ranges: Vec<_> = list.trim().split(',').map(range).collect::<Option<_>>()?;
    Some(ranges.into_iter().flatten().collect())
}

/// Keeps all memory of this process, present and future, from being paged out.
///
/// # Errors
/// If the limit on locked memory forbids it.
pub fn lock_memory() -> io::Result<()> {
    use rustix::mm::MlockAllFlags;
    Ok(rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}

/// Locks the touched and to-be-touched pages of this process in memory. Untouched pages take no memory, so sparse
/// mappings stay sparse.
///
/// # Errors
/// If a limit applies to locked memory: later allocations would fail.
pub fn lock_touched_memory() -> io::Result<()> {
    use rustix::mm::MlockAllFlags;
    use rustix::process::{Resource, getrlimit};
    use rustix::thread::{CapabilitySet, capabilities};
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    if !is_unlimited && !capabilities(None)?.effective.contains(CapabilitySet::IPC_LOCK) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    Ok(rustix::mm::mlockall(flags)?)
}

/// Threads of the lowest priority (`SCHED_IDLE`), one per CPU, that keep CPUs awake on demand. They yield to every
/// other thread and end with this value.
///
/// Waking an idle CPU takes tens of microseconds. An idle virtual CPU may also wait for milliseconds until its host
/// schedules it.
#[derive(Debug)]
pub struct KeepAwake {
    shared: Arc<KeepAwakeShared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct KeepAwakeShared {
    origin: Instant,
    /// Instant until which they are wanted, in nanoseconds since `origin`.
    until: AtomicU64,
    watches: Vec<Watch>,
    ended: Mutex<bool>,
    changed: Condvar,
}

/// State of one CPU. Aligned to a cache line of its own, since each is written continuously.
#[derive(Debug)]
#[repr(align(64))]
struct Watch {
    cpu: usize,
    /// Last instant at which the CPU was otherwise idle, in nanoseconds since the origin; zero if never.
    idle_at: AtomicU64,
}

/// Enough for a server and its clients. More spinning CPUs would heat a large machine and slow down hyper-threads that
/// share a core.
const CPUS_MAX: usize = 4;
/// Longer than the pause of a client that waits for its replies, so that it finds the CPUs awake.
const AWAKE: Nanos = Nanos::from_millis(200);
/// A CPU that idled so short a while ago does so still, or would if we had not woken up on it.
const IDLE_RECENTLY: Nanos = Nanos::from_micros(60);

impl KeepAwake {
    /// Starts one thread on each of these CPUs, at most four. They rest until they are woken.
    ///
    /// # Errors
    /// If the threads can't be started.
    pub fn start(cpus: &[usize]) -> io::Result<Self> {
        let cpus = &cpus[..cpus.len().min(CPUS_MAX)];
        let watches = cpus.iter().map(|cpu| Watch { cpu: *cpu, idle_at: AtomicU64::new(0) });
        let shared = Arc::new(KeepAwakeShared {
            origin: Instant::now(),
            until: AtomicU64::new(0),
            watches: watches.collect(),
            ended: Mutex::new(false),
            changed: Condvar::new(),
        });
        let mut keep_awake = KeepAwake { shared: shared.clone(), threads: Vec::new() };
        for (index, cpu) in cpus.iter().enumerate() {
            let shared = shared.clone();
            let builder = std::thread::Builder::new().name(format!("keep-awake-{cpu}")).stack_size(64 << 10);
            keep_awake.threads.push(builder.spawn(move || stay_awake(index, &shared))?);
        }
        Ok(keep_awake)
    }

    /// Moves the calling thread to an idle CPU, if there is one and its own was busy just now. Returns whether it
    /// moved.
    ///
    /// A real-time thread wakes on the CPU where it slept, and places the threads that it wakes on theirs, even if
    /// these are busy. It may so preempt the client that it serves.
    pub fn leave_busy_cpu(&self) -> bool {
        let idle = self.shared.idle_instead_of(rustix::thread::sched_getcpu());
        idle.is_some_and(move_to)
    }

    /// The CPUs shall stay awake for a while from now.
    pub fn want(&self) {
        let now = self.shared.now();
        let before = self.shared.until.fetch_max(now.saturating_add(AWAKE).as_nanos(), Ordering::Relaxed);
        if before <= now.as_nanos() {
            // Under the lock, so that no thread is between its look and its rest.
            let _ended = self.shared.ended.lock();
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for KeepAwake {
    fn drop(&mut self) {
        self.shared.until.store(0, Ordering::Relaxed);
        if let Ok(mut ended) = self.shared.ended.lock() {
            *ended = true;
        }
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl KeepAwakeShared {
    /// The CPUs that are idle, if this one is not.
    fn idle_instead_of(&self, cpu: usize) -> Option<CpuSet> {
        let now = self.now();
        let mut idle = CpuSet::new();
        for watch in &self.watches {
            let idle_at = Nanos::from_nanos(watch.idle_at.load(Ordering::Relaxed));
            if idle_at > Nanos::ZERO && now < idle_at.saturating_add(IDLE_RECENTLY) {
                idle.set(watch.cpu);
            }
        }
        (idle.count() > 0 && !idle.is_set(cpu)).then_some(idle)
    }

    fn now(&self) -> Nanos {
        Nanos::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    fn are_wanted(&self) -> bool {
        self.are_wanted_at(self.now())
    }

    fn are_wanted_at(&self, now: Nanos) -> bool {
        now.as_nanos() < self.until.load(Ordering::Relaxed)
    }
}

/// Detects idle processors of this host.
#[derive(Debug)]
pub struct IdleProcessors {
    load: File,
    /// CPUs that this process may use fully.
    processors: usize,
}

/// Three averages, and how many threads are runnable (proc_loadavg(5)).
const LOAD: &str = "/proc/loadavg";

impl IdleProcessors {
    /// A watch over this host's processors.
    ///
    /// # Errors
    /// Without `/proc`.
    pub fn watch() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(IdleProcessors { load: File::open(LOAD)?, processors })
    }

    /// Whether a processor other than the calling thread's is idle. The call takes about two microseconds.
    #[must_use]
    pub fn has_another(&self) -> bool {
        let mut text = [0; 128];
        let read = self.load.read_at(&mut text, 0).unwrap_or(0);
        runnable(&text[..read]).is_some_and(|runnable| runnable < self.processors)
    }
}

/// Number of runnable threads, including the calling one, according to the text of [`LOAD`].
fn runnable(load: &[u8]) -> Option<usize> {
    let field = std::str::from_utf8(load).ok()?.split(' ').nth(3)?;
    field.split('/').next()?.parse().ok()
}

/// Turns of some 40 ns that a thread which keeps its CPU awake takes at a time.
const SPINS: u32 = 200;

fn stay_awake(index: usize, shared: &KeepAwakeShared) {
    let watch = &shared.watches[index];
    // At any higher priority the thread would take time from other threads.
    if take_only_spare_time().is_err() || pin_to_cpu(watch.cpu).is_err() {
        return;
    }
    loop {
        loop {
            let now = shared.now();
            if !shared.are_wanted_at(now) {
                break;
            }
            watch.idle_at.store(now.as_nanos(), Ordering::Relaxed);
            for _ in 0..SPINS {
                std::hint::spin_loop();
            }
            // The kernel gives even the lowest priority whole ticks now and then, although other threads need the CPU.
            rustix::thread::sched_yield();
        }
        let Ok(mut ended) = shared.ended.lock() else { return };
        while !*ended && !shared.are_wanted() {
            let Ok(woken) = shared.changed.wait(ended) else { return };
            ended = woken;
        }
        if *ended {
            return;
        }
    }
}

/// Restricts the calling thread to idle CPU time (`SCHED_IDLE`). Any other thread that wakes up preempts it at once,
/// which it would not do at nice 19.
///
/// # Errors
/// Returns the host's refusal.
pub fn take_only_spare_time() -> io::Result<()> {
    set_policy(libc::SCHED_IDLE, 0)
}

/// Returns whether the calling thread is restricted to idle CPU time.
#[must_use]
pub fn takes_only_spare_time() -> bool {
    // SAFETY: it takes a number and gives one; thread 0 is the calling one.
    unsafe { libc::sched_getscheduler(0) == libc::SCHED_IDLE }
}

fn set_policy(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: the structure is plain data, for which zero is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the pointer is to a structure that outlives the call; thread 0 is the calling one.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runnable_threads_are_read_from_the_load() {
        assert_eq!(runnable(b"0.64 2.39 2.56 3/123 4711\n"), Some(3));
        for other in [&b""[..], b"0.64 2.39 2.56", b"0.64 2.39 2.56 x/123 4711", b"\xff\xff"] {
            assert_eq!(runnable(other), None);
        }
    }

    #[test]
    fn no_processor_is_idle_where_there_is_but_one_or_all_are_taken() {
        let mut idle = IdleProcessors::watch().unwrap();
        idle.processors = 1;
        assert!(!idle.has_another(), "this thread runs");
        // More than can be runnable.
        idle.processors = usize::MAX;
        assert!(idle.has_another());
    }

    #[test]
    fn lists_of_cpus_have_ranges_and_single_ones() {
        assert_eq!(listed_cpus("0\n").unwrap(), [0]);
        assert_eq!(listed_cpus("1,3-5,7").unwrap(), [1, 3, 4, 5, 7]);
        for wrong in ["", "x", "3-1", "0-65536", "0-"] {
            assert_eq!(listed_cpus(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_thread_can_be_pinned_to_a_cpu_that_it_may_use() {
        let cpus = usable_cpus();
        let first = *cpus.first().expect("this test runs on some CPU");
        std::thread::spawn(move || {
            pin_to_cpu(first).unwrap();
            assert_eq!(usable_cpus(), [first]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn threads_that_keep_cpus_awake_rest_wake_and_end() {
        let keep_awake = KeepAwake::start(&usable_cpus()).unwrap();
        keep_awake.want();
        keep_awake.want();
        assert_eq!(keep_awake.threads.len(), usable_cpus().len().min(CPUS_MAX));
        let until = keep_awake.shared.until.load(Ordering::Relaxed);
        assert!(!keep_awake.shared.are_wanted_at(Nanos::from_nanos(until)));
        assert!(keep_awake.shared.are_wanted_at(Nanos::from_nanos(until - 1)));
        drop(keep_awake);
    }

    #[test]
    fn a_cpu_that_is_wanted_is_left_for_one_that_idles_and_for_no_other() {
        let cpus = usable_cpus();
        let keep_awake = KeepAwake::start(&cpus).unwrap();
        let idle_instead_of = |cpu: usize| keep_awake.shared.idle_instead_of(cpu);
        assert_eq!(idle_instead_of(cpus[0]), None, "none is known to idle");
        for watch in &keep_awake.shared.watches {
            // Far from now, so that the host may take as long as it likes.
            watch.idle_at.store(if watch.cpu == cpus[0] { u64::MAX / 2 } else { 0 }, Ordering::Relaxed);
        }
        assert_eq!(idle_instead_of(cpus[0]), None);
        let idle = idle_instead_of(cpus[0] + 1).filter(|idle| idle.count() == 1).unwrap();
        assert!(idle.is_set(cpus[0]));
        std::thread::spawn(move || {
            assert!(move_to(idle));
            assert_eq!(usable_cpus(), cpus, "it is as free as it was");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn priority_is_given_or_refused_and_given_back() {
        std::thread::spawn(|| {
            let mut scheduling = Scheduling::default();
            let fifo = scheduling.enter_fifo();
            assert_eq!(scheduling.is_fifo(), fifo);
            scheduling.leave_fifo();
            assert!(!scheduling.is_fifo());
        })
        .join()
        .unwrap();
    }
}
