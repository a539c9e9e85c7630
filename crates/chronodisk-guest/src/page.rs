//! The page shared by the launcher, the backend and the guest's clock; its C twin is `shim/page.h`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use chronodisk_sim::Nanos;
use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::costs::{KernelCosts, TRAP_NANOS_UNMEASURED, Work, Worked};
use crate::time::{CPU_SPEED_DEFAULT, ExactCpu, GuestTime, IdlePace, MeasuredCpu, StoppingCpu};

/// What the launcher decides about the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockOptions {
    /// How time passes.
    pub time: GuestTime,
    /// Taken off instead where an alarm interrupted the user code.
    pub interrupt_nanos: u64,
    /// `CLOCK_REALTIME` in the guest at virtual time zero, in nanoseconds since 1970.
    pub realtime_start_nanos: u64,
    /// Rate of the time stamp counter as guest programs see it, in hertz.
    pub tsc_hertz: u64,
    /// Seed of the random bytes that the guest's kernel gets from its host.
    pub seed: u64,
    /// Diagnostic: the clock sleeps up to so long, at random, at one in eight of its entries.
    pub disturbance_max: Nanos,
}

/// Taken off the CPU time of a stretch of user code that an alarm interrupted, which is a timer's interrupt, two
/// switches and a signal more: 10 to 11 µs on the same machine, measured as what 2,500 interruptions
/// added to the CPU time of a loop, less 1 to 2 µs that any interrupt costs the program's caches.
pub const INTERRUPT_NANOS_DEFAULT: u64 = 9_000;

/// Counters of the guest's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockCounters {
    /// Virtual time when the clock last stopped, in nanoseconds.
    pub virtual_nanos: u64,
    /// Kicks during which the guest stood still.
    pub kicks: u64,
    /// Times that an idle guest waited for the device.
    pub idle_exchanges: u64,
    /// Times that a running guest was interrupted for a completion.
    pub interrupts: u64,
    /// Jumps of the clock.
    pub jumps: u64,
    /// Virtual nanoseconds jumped over.
    pub jumped_nanos: u64,
    /// Host nanoseconds during which the clock stood still.
    pub stopped_host_nanos: u64,
    /// Time stamp counter reads emulated.
    pub tsc_reads: u64,
    /// Returns of user code to the guest's kernel.
    pub traps: u64,
    /// CPU nanoseconds of the guest's kernel, unscaled.
    pub kernel_cpu_nanos: u64,
    /// CPU nanoseconds of the guest's programs, traps taken off.
    pub user_cpu_nanos: u64,
    /// Bytes that the guest read from the host's tree, untimed.
    pub host_tree_read_bytes: u64,
    /// Bytes that the guest wrote to the host's tree, untimed.
    pub host_tree_written_bytes: u64,
    /// Alarms of the host's timer.
    pub alarms: u64,
    /// Virtual nanoseconds of the first stretches after long stops that were not charged, because
    /// cold caches cost them and not the guest.
    pub cold_nanos: u64,
    /// CPU nanoseconds of the guest's programs that their stops took, which were taken off.
    #[serde(default)]
    pub trap_overhead_nanos: u64,
    /// Times that a program was seen to spin while computing takes no time ([`ExactCpu::Zero`]), and was charged 10 ms for it.
    #[serde(default)]
    pub spins: u64,
    /// First page faults of new address spaces.
    #[serde(default)]
    pub new_faults: u64,
}

/// Our end of the shared page.
pub struct ClockPage {
    fd: OwnedFd,
    map: MmapRaw,
}

impl ClockPage {
    /// Makes a page for a guest.
    ///
    /// # Errors
    /// When the host has no memory or descriptors left.
    pub fn create(options: &ClockOptions) -> io::Result<Self> {
        let fd = memfd_create("chronodisk-clock", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, PAGE_BYTES as u64)?;
        let page = ClockPage::open(fd)?;
        let (clock, computing, idling) = encoded(&options.time);
        page.set(field::CLOCK, clock as u64);
        page.set(field::COMPUTING, computing as u64);
        page.set(field::IDLING, idling as u64);
        let cpu = options.time.measured_cpu();
        let MeasuredCpu { costs, speed } =
            cpu.unwrap_or_else(|| MeasuredCpu { costs: KernelCosts::default(), speed: CPU_SPEED_DEFAULT });
        page.set(field::KERNEL_SCALE_MILLIONTHS, millionths(costs.other_scale));
        page.set(field::TRAP_NANOS, TRAP_NANOS_UNMEASURED);
        page.set(field::CPU_SPEED_MILLIONTHS, millionths(speed).max(1));
        for (index, cost) in costs.works.iter().enumerate() {
            let at = field::COSTS + 3 * index;
            page.set(at, cost.taken_off_nanos);
            page.set(at + 1, cost.added_nanos);
            page.set(at + 2, millionths(cost.scale));
        }
        page.set(field::INTERRUPT_NANOS, options.interrupt_nanos);
        page.set(field::FAULT_EXTRA_NANOS, costs.fault_extra_nanos);
        page.set(field::NEW_FAULT_EXTRA_NANOS, costs.new_fault_extra_nanos);
        page.set(field::DISTURBANCE_NANOS_MAX, options.disturbance_max.as_nanos());
        page.set(field::TSC_EXTRA_NANOS, costs.tsc_extra_nanos);
        page.set(field::TSC_HERTZ, options.tsc_hertz);
        page.set(field::REALTIME_START_NANOS, options.realtime_start_nanos);
        page.set(field::SEED, options.seed);
        page.set(field::HOST_ORIGIN_NANOS, monotonic().as_nanos());
        page.set(field::COMPLETION_BOUND, NEVER);
        page.set(field::MAGIC, MAGIC);
        Ok(page)
    }

    /// Maps the page that was inherited as `fd`.
    ///
    /// # Errors
    /// When `fd` is no such page.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let map = MmapRaw::map_raw(&File::from(fd.try_clone()?))?;
        if map.len() != PAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the clock's page has the wrong size"));
        }
        Ok(ClockPage { fd, map })
    }

    /// The descriptor to hand to the guest and the backend.
    pub fn fd(&self) -> impl AsFd + '_ {
        &self.fd
    }

    /// The guest's clock.
    ///
    /// # Errors
    /// When the page names none.
    pub(crate) fn clock(&self) -> io::Result<Clock> {
        let found = self.get(field::CLOCK);
        let all = [Clock::Stopping, Clock::Exact, Clock::Real];
        let known = all.into_iter().find(|clock| *clock as u64 == found);
        known.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the clock's page names no clock"))
    }

    /// Lets idle time pass with the host's from now on.
    pub fn follow_host(&self) {
        self.set(field::IDLING, Idling::Host as u64);
    }

    /// Sets the rate of the time stamp counter, before the guest starts.
    pub fn set_tsc_hertz(&self, hertz: u64) {
        self.set(field::TSC_HERTZ, hertz);
    }

    /// Says whether something is on its way between launcher and guest: an idle guest's clock stands
    /// still meanwhile, so that the launcher's speed never shows.
    pub fn set_launcher_owes(&self, owes: bool) {
        self.set(field::LAUNCHER_OWES, owes.into());
    }

    /// Says whether the guest would get standard input if there were any: a guest that reads it and
    /// idles then lives at the host's pace.
    pub fn set_input_awaited(&self, awaited: bool) {
        self.set(field::INPUT_AWAITED, awaited.into());
    }

    /// The guest's clock as of when it last stopped.
    #[must_use]
    pub fn virtual_now(&self) -> Nanos {
        Nanos::from_nanos(self.get(field::VIRTUAL_NOW))
    }

    /// The guest's clock now, if its time is the host's ([`GuestTime::Real`]): what has passed since
    /// the page was made.
    #[must_use]
    pub fn host_now(&self) -> Nanos {
        monotonic().saturating_sub(Nanos::from_nanos(self.get(field::HOST_ORIGIN_NANOS)))
    }

    /// Says when the device next needs the guest. Only while the guest stands still.
    pub fn publish(&self, completion_bound: Option<Nanos>, outstanding: u64) {
        self.set(field::COMPLETION_BOUND, completion_bound.map_or(NEVER, Nanos::as_nanos));
        self.set(field::OUTSTANDING, outstanding);
    }

    /// The clock's counters.
    #[must_use]
    pub fn counters(&self) -> ClockCounters {
        ClockCounters {
            virtual_nanos: self.get(field::VIRTUAL_NOW),
            kicks: self.get(field::KICKS),
            idle_exchanges: self.get(field::IDLE_EXCHANGES),
            interrupts: self.get(field::INTERRUPTS),
            jumps: self.get(field::JUMPS),
            jumped_nanos: self.get(field::JUMPED_NANOS),
            stopped_host_nanos: self.get(field::STOPPED_HOST_NANOS),
            tsc_reads: self.get(field::TSC_READS),
            traps: self.get(field::TRAPS),
            kernel_cpu_nanos: self.get(field::KERNEL_CPU_NANOS),
            user_cpu_nanos: self.get(field::USER_CPU_NANOS),
            host_tree_read_bytes: self.get(field::HOST_TREE_READ_BYTES),
            host_tree_written_bytes: self.get(field::HOST_TREE_WRITTEN_BYTES),
            alarms: self.get(field::ALARMS),
            cold_nanos: self.get(field::COLD_NANOS),
            trap_overhead_nanos: self.get(field::TRAP_OVERHEAD_NANOS),
            spins: self.get(field::SPINS),
            new_faults: self.get(field::NEW_FAULTS),
        }
    }

    /// What the guest's kernel has worked on, in the order of [`Work::ALL`].
    #[must_use]
    pub fn worked(&self) -> [Worked; Work::COUNT] {
        std::array::from_fn(|index| {
            let at = field::WORKED + 2 * index;
            Worked { count: self.get(at), cpu_nanos: self.get(at + 1) }
        })
    }

    /// The process of the guest that something outside of it has killed, and the signal's number, if one was.
    #[must_use]
    pub fn lost_process(&self) -> Option<(u64, i32)> {
        let pid = self.get(field::LOST_PID);
        (pid != 0).then(|| (pid, self.get(field::LOST_SIGNAL) as i32))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < field::COUNT);
        // SAFETY: the map is page-aligned, PAGE_BYTES long and lives as long as self; every party
        // accesses it in aligned 64-bit words.
        unsafe { &*self.map.as_ptr().cast::<AtomicU64>().add(index) }
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }
}

/// The guest's clock, `enum chronodisk_clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// It stops while the emulator works.
    Stopping = 0,
    /// The kernel keeps simulated time itself.
    Exact = 1,
    /// It is the host's, and never stops or jumps.
    Real = 2,
}

/// What passes while the guest computes, `enum chronodisk_computing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Computing {
    /// The host's time.
    Wall = 0,
    /// The guest's own CPU time.
    Measured = 1,
    /// Nothing; of exact clocks only.
    Zero = 2,
}

/// What passes while the guest idles with nothing outstanding, `enum chronodisk_idling`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idling {
    /// Nothing: the clock jumps to the next event.
    Jump = 0,
    /// The host's time.
    Host = 1,
}

/// The guest's time as the page has it, which only this makes.
fn encoded(time: &GuestTime) -> (Clock, Computing, Idling) {
    let idling = |idle: IdlePace| match idle {
        IdlePace::Jump | IdlePace::JumpUntilTyping => Idling::Jump,
        IdlePace::Host => Idling::Host,
    };
    match *time {
        GuestTime::Stopping { cpu: StoppingCpu::Measured(_), idle } => {
            (Clock::Stopping, Computing::Measured, idling(idle))
        }
        GuestTime::Stopping { cpu: StoppingCpu::Wall, idle } => (Clock::Stopping, Computing::Wall, idling(idle)),
        GuestTime::Exact { cpu: ExactCpu::Measured(_), idle } => (Clock::Exact, Computing::Measured, idling(idle)),
        GuestTime::Exact { cpu: ExactCpu::Zero, idle } => (Clock::Exact, Computing::Zero, idling(idle)),
        GuestTime::Real => (Clock::Real, Computing::Wall, Idling::Host),
    }
}

/// A factor as the shim calculates with it.
fn millionths(factor: f64) -> u64 {
    (factor * 1e6).round() as u64
}

/// `CLOCK_MONOTONIC`, which all processes of the host share.
fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The instant of nothing, on the page and in messages.
pub(crate) const NEVER: u64 = u64::MAX;

const PAGE_BYTES: usize = 4096;
/// "chrono" and the structure's size, so that two builds can't be mixed unnoticed.
const MAGIC: u64 = 0x6368_726f_6e6f_0000 | (8 * field::COUNT) as u64;

/// Positions in 64-bit words, in the order of `struct chronodisk_page`.
mod field {
    pub const MAGIC: usize = 0;
    pub const CLOCK: usize = 1;
    pub const COMPUTING: usize = 2;
    pub const KERNEL_SCALE_MILLIONTHS: usize = 3;
    pub const TRAP_NANOS: usize = 4;
    pub const INTERRUPT_NANOS: usize = 5;
    pub const FAULT_EXTRA_NANOS: usize = 6;
    pub const TSC_EXTRA_NANOS: usize = 7;
    pub const TSC_HERTZ: usize = 8;
    pub const REALTIME_START_NANOS: usize = 9;
    pub const IDLING: usize = 10;
    pub const SEED: usize = 11;
    pub const HOST_ORIGIN_NANOS: usize = 12;
    pub const LAUNCHER_OWES: usize = 13;
    pub const INPUT_AWAITED: usize = 14;
    pub const COMPLETION_BOUND: usize = 15;
    pub const OUTSTANDING: usize = 16;
    pub const VIRTUAL_NOW: usize = 17;
    pub const KICKS: usize = 18;
    pub const IDLE_EXCHANGES: usize = 19;
    pub const INTERRUPTS: usize = 20;
    pub const JUMPS: usize = 21;
    pub const JUMPED_NANOS: usize = 22;
    pub const STOPPED_HOST_NANOS: usize = 23;
    pub const TSC_READS: usize = 24;
    pub const TRAPS: usize = 25;
    pub const KERNEL_CPU_NANOS: usize = 26;
    pub const USER_CPU_NANOS: usize = 27;
    pub const HOST_TREE_READ_BYTES: usize = 28;
    pub const HOST_TREE_WRITTEN_BYTES: usize = 29;
    pub const ALARMS: usize = 30;
    pub const COLD_NANOS: usize = 31;
    pub const SPINS: usize = 32;
    pub const TRAP_OVERHEAD_NANOS: usize = 33;
    pub const WORKED: usize = 34;
    pub const CPU_SPEED_MILLIONTHS: usize = WORKED + 2 * super::Work::COUNT;
    pub const COSTS: usize = CPU_SPEED_MILLIONTHS + 1;
    pub const NEW_FAULT_EXTRA_NANOS: usize = COSTS + 3 * super::Work::COUNT;
    pub const DISTURBANCE_NANOS_MAX: usize = NEW_FAULT_EXTRA_NANOS + 1;
    pub const NEW_FAULTS: usize = DISTURBANCE_NANOS_MAX + 1;
    pub const LOST_PID: usize = NEW_FAULTS + 1;
    pub const LOST_SIGNAL: usize = LOST_PID + 1;
    /// `shim/page.h` asserts 8 × this as the size of the structure.
    pub const COUNT: usize = LOST_SIGNAL + 1;
}

/// A question of the guest's clock, `struct chronodisk_question`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub ask: Ask,
    pub virtual_now: Nanos,
    pub guest_timer: Option<Nanos>,
}

/// Why the guest stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Nothing runs until the first completion or the guest's timer.
    Idle,
    /// The completion bound has passed while the guest ran.
    Interrupt,
}

pub(crate) const QUESTION_BYTES: usize = 24;

impl Question {
    pub fn decode(bytes: &[u8; QUESTION_BYTES]) -> Option<Self> {
        let word = |index: usize| u64::from_ne_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"));
        let ask = match word(0) {
            1 => Ask::Idle,
            2 => Ask::Interrupt,
            _ => return None,
        };
        let guest_timer = (word(2) != NEVER).then(|| Nanos::from_nanos(word(2)));
        Some(Question { ask, virtual_now: Nanos::from_nanos(word(1)), guest_timer })
    }
}

/// Encodes the answer to a [`Question`], `struct chronodisk_answer`.
pub(crate) fn encode_answer(virtual_now: Nanos, completed: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&virtual_now.as_nanos().to_ne_bytes());
    bytes[8..].copy_from_slice(&completed.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_shared_through_its_descriptor() {
        let options = ClockOptions {
            time: GuestTime::Stopping {
                cpu: StoppingCpu::Measured(MeasuredCpu {
                    costs: KernelCosts {
                        fault_extra_nanos: 7,
                        new_fault_extra_nanos: 17,
                        ..KernelCosts::uniform(0.125)
                    },
                    speed: 2.0,
                }),
                idle: IdlePace::Host,
            },
            interrupt_nanos: 8,
            realtime_start_nanos: 9,
            tsc_hertz: 11,
            seed: 12,
            disturbance_max: Nanos::from_nanos(13),
        };
        let ours = ClockPage::create(&options).unwrap();
        let theirs = ClockPage::open(ours.fd.try_clone().unwrap()).unwrap();
        assert_eq!(theirs.get(field::KERNEL_SCALE_MILLIONTHS), 125_000);
        assert_eq!((theirs.get(field::FAULT_EXTRA_NANOS), theirs.get(field::CPU_SPEED_MILLIONTHS)), (7, 2_000_000));
        assert_eq!(theirs.get(field::NEW_FAULT_EXTRA_NANOS - 1), 125_000, "the last work's scale");
        assert_eq!((theirs.get(field::NEW_FAULT_EXTRA_NANOS), theirs.get(field::DISTURBANCE_NANOS_MAX)), (17, 13));
        assert_eq!(theirs.worked(), [Worked::default(); Work::COUNT]);
        assert_eq!((theirs.get(field::CLOCK), theirs.get(field::COMPUTING), theirs.get(field::IDLING)), (0, 1, 1));
        assert_eq!(theirs.get(field::COMPLETION_BOUND), NEVER);
        ours.publish(Some(Nanos::from_nanos(5)), 2);
        assert_eq!((theirs.get(field::COMPLETION_BOUND), theirs.get(field::OUTSTANDING)), (5, 2));
    }

    #[test]
    fn each_guest_time_is_told_apart_on_the_page() {
        let measured = MeasuredCpu { costs: KernelCosts::default(), speed: CPU_SPEED_DEFAULT };
        let idle = IdlePace::JumpUntilTyping;
        for (time, words) in [
            (GuestTime::Stopping { cpu: StoppingCpu::Measured(measured), idle }, (0, 1, 0)),
            (GuestTime::Stopping { cpu: StoppingCpu::Wall, idle: IdlePace::Host }, (0, 0, 1)),
            (GuestTime::Exact { cpu: ExactCpu::Measured(measured), idle: IdlePace::Host }, (1, 1, 1)),
            (GuestTime::Exact { cpu: ExactCpu::Zero, idle: IdlePace::Jump }, (1, 2, 0)),
            (GuestTime::Real, (2, 0, 1)),
        ] {
            let (clock, computing, idling) = encoded(&time);
            assert_eq!((clock as u64, computing as u64, idling as u64), words, "{time:?}");
        }
    }

    #[test]
    fn a_page_that_names_no_clock_is_refused() {
        let options = ClockOptions {
            time: GuestTime::Real,
            interrupt_nanos: 0,
            realtime_start_nanos: 0,
            tsc_hertz: 0,
            seed: 0,
            disturbance_max: Nanos::ZERO,
        };
        let page = ClockPage::create(&options).unwrap();
        assert_eq!(page.clock().unwrap(), Clock::Real);
        page.set(field::CLOCK, 3);
        assert_eq!(page.clock().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_question_of_an_unknown_kind_is_refused() {
        let mut bytes = [0; QUESTION_BYTES];
        assert_eq!(Question::decode(&bytes), None);
        bytes[0] = 1;
        bytes[16..].fill(0xff);
        let question = Question::decode(&bytes).unwrap();
        assert_eq!((question.ask, question.guest_timer), (Ask::Idle, None));
    }
}
