//! The page shared by the launcher, the backend and the guest's clock, and the messages of the exchange.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};

use chronodisk_sim::Nanos;
use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::costs::{KernelCosts, RequestCosts, TRAP_NANOS_UNMEASURED, Work, Worked};
use super::layout::{
    AnswerWords, Ask, Backend, CPU_ANY_OTHER, CPU_OF_KERNEL, Clock, Computing, Idling, Issuer, Launcher, NEVER,
    PAGE_BYTES, PAGE_MAGIC, Page, QuestionWords,
};
use super::time::{CPU_SPEED_DEFAULT, ExactCpu, GuestTime, IdlePace, MeasuredCpu, StoppingCpu};

/// Options of the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockOptions {
    /// Mode of the guest's time.
    pub time: GuestTime,
    /// Deduction instead, if an alarm interrupted user code.
    pub interrupt_nanos: u64,
    /// `CLOCK_REALTIME` in the guest at virtual time zero, in nanoseconds since 1970.
    pub realtime_start_nanos: u64,
    /// Rate of the time stamp counter as guest programs see it, in hertz.
    pub tsc_hertz: u64,
    /// Seed of the random bytes that the guest's kernel gets from its host.
    pub seed: u64,
    /// Size of the guest's memory.
    pub memory_bytes: u64,
    /// Diagnostic: longest random sleep of the clock at one in eight of its entries.
    pub disturbance_max: Nanos,
}

/// The host's CPU for a guest's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramCpu {
    /// Their kernel's CPU.
    Kernels,
    /// This CPU.
    Only(usize),
    /// Any but their kernel's CPU.
    Another,
}

/// Subtracted from the CPU time of a stretch of user code that an alarm interrupted: a timer's interrupt, two switches
/// and a signal. 10 to 11 µs on the same machine, measured as the CPU time that 2,500 interruptions added to a loop,
/// less 1 to 2 µs that any interrupt costs the program's caches.
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
    /// CPU nanoseconds of the work of the guest's kernel, without the host's overhead of running programs,
    #[serde(default)]
    pub kernel_work_nanos: u64,
    /// the virtual nanoseconds counted for it,
    #[serde(default)]
    pub kernel_counted_nanos: u64,
    /// and the part counted in full, because it was beyond the emulation's share of a call.
    #[serde(default)]
    pub kernel_in_full_nanos: u64,
    /// Virtual nanoseconds charged by the prices of requests, included in those charged.
    #[serde(default)]
    pub kernel_requests_nanos: u64,
    /// CPU nanoseconds of the guest's programs, without their stops.
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
    /// CPU nanoseconds of the guest's programs that were deducted for their stops.
    #[serde(default)]
    pub trap_overhead_nanos: u64,
    /// Times that a program was seen to spin while computing takes no time ([`ExactCpu::Zero`]), and was charged 10 ms
    /// for it.
    #[serde(default)]
    pub spins: u64,
    /// Virtual nanoseconds by which a processor of several was ahead of the slowest one at most, when it was about to
    /// run a program.
    #[serde(default)]
    pub lead_nanos_max: u64,
    /// Times that a processor of several waited for a slower one.
    #[serde(default)]
    pub waits: u64,
}

/// An end of the shared page, which writes as `W`.
pub struct ClockPage<W> {
    fd: OwnedFd,
    map: MmapRaw,
    writer: W,
}

/// Activity of a guest's devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that have arrived.
    pub requests: u64,
    /// Bytes that they read and write.
    pub bytes: u64,
    /// Requests that have not completed.
    pub outstanding: u64,
}

impl ClockPage<Launcher> {
    /// Makes a page for a guest.
    ///
    /// # Errors
    /// When the host has no memory or descriptors left.
    pub fn create(options: &ClockOptions) -> io::Result<Self> {
        let fd = memfd_create("chronodisk-clock", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, PAGE_BYTES as u64)?;
        let page = ClockPage::map(fd, Launcher)?;
        let (words, launcher) = (page.words(), &page.writer);
        let (clock, computing, idling) = encoded(&options.time);
        words.clock.set(launcher, clock as u64);
        words.computing.set(launcher, computing as u64);
        words.idling.set(launcher, idling as u64);
        let cpu = options.time.measured_cpu();
        let MeasuredCpu { costs, speed } =
            cpu.unwrap_or_else(|| MeasuredCpu { costs: KernelCosts::default(), speed: CPU_SPEED_DEFAULT });
        words.kernel_scale_millionths.set(launcher, millionths(costs.other_scale));
        words.cpu_speed_millionths.set(launcher, millionths(speed).max(1));
        for (words, cost) in words.costs.iter().zip(&costs.works) {
            words.taken_off_nanos.set(launcher, cost.taken_off_nanos);
            words.added_nanos.set(launcher, cost.added_nanos);
            words.scale_millionths.set(launcher, millionths(cost.scale));
            words.bound_nanos.set(launcher, cost.bound_nanos.unwrap_or(NEVER));
        }
        words.other_bound_nanos.set(launcher, costs.other_bound_nanos.unwrap_or(NEVER));
        words.copy_nanos_per_mib.set(launcher, costs.copy_nanos_per_mib);
        words.copy_scale_millionths.set(launcher, millionths(costs.copy_scale));
        // An exact kernel's completions are events of its own, which the clock doesn't see.
        let requests = costs.requests.filter(|_| clock != Clock::Real).unwrap_or(RequestCosts::NONE);
        words.submission_nanos.set(launcher, requests.submission_nanos);
        words.completion_nanos.set(launcher, requests.completion_nanos);
        words.wake_up_nanos.set(launcher, requests.wake_up_nanos);
        words.request_bound_nanos.set(launcher, requests.bound_nanos);
        words.trap_nanos_unmeasured.set(launcher, TRAP_NANOS_UNMEASURED);
        words.interrupt_nanos.set(launcher, options.interrupt_nanos);
        words.fault_extra_nanos.set(launcher, costs.fault_extra_nanos);
        words.tsc_extra_nanos.set(launcher, costs.tsc_extra_nanos);
        words.tsc_hertz.set(launcher, options.tsc_hertz);
        words.realtime_start_nanos.set(launcher, options.realtime_start_nanos);
        words.host_origin_nanos.set(launcher, monotonic().as_nanos());
        words.seed.set(launcher, options.seed);
        words.disturbance_nanos_max.set(launcher, options.disturbance_max.as_nanos());
        words.memory_bytes.set(launcher, options.memory_bytes);
        words.program_cpu.set(launcher, CPU_OF_KERNEL);
        if let GuestTime::Several { quantum, .. } = options.time {
            words.quantum_nanos.set(launcher, quantum.as_nanos());
        }
        words.magic.set(launcher, PAGE_MAGIC);
        Ok(page)
    }

    /// Lets idle time pass with the host's from now on.
    pub fn follow_host(&self) {
        self.words().idling.set(&self.writer, Idling::Host as u64);
    }

    /// Sets the rate of the time stamp counter, before the guest starts.
    pub fn set_tsc_hertz(&self, hertz: u64) {
        self.words().tsc_hertz.set(&self.writer, hertz);
    }

    /// Sets the host's CPU on which the guest's programs run, before the guest starts.
    pub(crate) fn set_program_cpu(&self, cpu: ProgramCpu) {
        let word = match cpu {
            ProgramCpu::Kernels => CPU_OF_KERNEL,
            ProgramCpu::Only(cpu) => cpu as u64,
            ProgramCpu::Another => CPU_ANY_OTHER,
        };
        self.words().program_cpu.set(&self.writer, word);
    }

    /// Sets whether data are in transit between launcher and guest. Meanwhile an idle guest's clock stands still, so
    /// that the launcher's speed never shows.
    pub fn set_launcher_owes(&self, owes: bool) {
        self.words().launcher_owes.set(&self.writer, owes.into());
    }

    /// Sets whether the guest would get standard input as soon as it arrives. A guest that reads it while idle then
    /// follows the host's time.
    pub fn set_input_awaited(&self, awaited: bool) {
        self.words().input_awaited.set(&self.writer, awaited.into());
    }

    /// The clock's counters.
    #[must_use]
    pub fn counters(&self) -> ClockCounters {
        let words = self.words();
        ClockCounters {
            virtual_nanos: words.virtual_now.get(),
            kicks: words.kicks.get(),
            idle_exchanges: words.idle_exchanges.get(),
            interrupts: words.interrupts.get(),
            jumps: words.jumps.get(),
            jumped_nanos: words.jumped_nanos.get(),
            stopped_host_nanos: words.stopped_host_nanos.get(),
            tsc_reads: words.tsc_reads.get(),
            traps: words.traps.get(),
            kernel_cpu_nanos: words.kernel_cpu_nanos.get(),
            kernel_work_nanos: words.kernel_work_nanos.get(),
            kernel_counted_nanos: words.kernel_counted_nanos.get(),
            kernel_in_full_nanos: words.kernel_in_full_nanos.get(),
            kernel_requests_nanos: words.kernel_requests_nanos.get(),
            user_cpu_nanos: words.user_cpu_nanos.get(),
            host_tree_read_bytes: words.host_tree_read_bytes.get(),
            host_tree_written_bytes: words.host_tree_written_bytes.get(),
            alarms: words.alarms.get(),
            cold_nanos: words.cold_nanos.get(),
            trap_overhead_nanos: words.trap_overhead_nanos.get(),
            spins: words.spins.get(),
            lead_nanos_max: words.lead_nanos_max.get(),
            waits: words.waits.get(),
        }
    }

    /// Work of the guest's kernel, in the order of [`Work::ALL`].
    #[must_use]
    pub fn worked(&self) -> [Worked; Work::COUNT] {
        let worked = &self.words().worked;
        std::array::from_fn(|index| Worked {
            count: worked[index].count.get(),
            cpu_nanos: worked[index].cpu_nanos.get(),
            copied_bytes: worked[index].copied_bytes.get(),
        })
    }

    /// Activity of the devices so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let words = self.words();
        Traffic {
            requests: words.requests.get(),
            bytes: words.request_bytes.get(),
            outstanding: words.outstanding.get(),
        }
    }

    /// The process of the guest that was killed from outside, and the signal's number.
    #[must_use]
    pub fn lost_process(&self) -> Option<(u64, i32)> {
        let words = self.words();
        let pid = words.lost_pid.get();
        (pid != 0).then(|| (pid, words.lost_signal.get() as i32))
    }
}

impl ClockPage<Backend> {
    /// Maps the page inherited as `fd`, and marks it as without outstanding requests.
    ///
    /// # Errors
    /// If `fd` is no such page.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let page = ClockPage::map(fd, Backend)?;
        page.publish(None, 0);
        Ok(page)
    }

    /// The guest's clock.
    ///
    /// # Errors
    /// If the page names no known clock.
    pub(crate) fn clock(&self) -> io::Result<Clock> {
        let found = self.words().clock.get();
        let known = [Clock::Stopping, Clock::Exact, Clock::Real, Clock::Several]
            .into_iter()
            .find(|clock| *clock as u64 == found);
        known.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the clock's page names no clock"))
    }

    /// The guest's clock as of when it last stopped.
    #[must_use]
    pub fn virtual_now(&self) -> Nanos {
        Nanos::from_nanos(self.words().virtual_now.get())
    }

    /// Origin of the requests of the last kick: their [`RequestRecord::issuer`].
    #[must_use]
    pub fn issuer(&self) -> u32 {
        let said = self.words().issuer.get();
        let known = [Issuer::Program, Issuer::Kernel].into_iter().find(|issuer| *issuer as u64 == said);
        known.unwrap_or(Issuer::Unknown) as u32
    }

    /// The guest's clock now, if its time is the host's ([`GuestTime::Real`]): the time since the page was made.
    #[must_use]
    pub fn host_now(&self) -> Nanos {
        monotonic().saturating_sub(Nanos::from_nanos(self.words().host_origin_nanos.get()))
    }

    /// Counts a request that has arrived.
    pub fn count_request(&self, bytes: u64) {
        let words = self.words();
        words.requests.set(&self.writer, words.requests.get() + 1);
        words.request_bytes.set(&self.writer, words.request_bytes.get().saturating_add(bytes));
    }

    /// Publishes when the device next needs the guest. Only while the guest stands still.
    pub fn publish(&self, completion_bound: Option<Nanos>, outstanding: u64) {
        self.words().completion_bound.set(&self.writer, completion_bound.map_or(NEVER, Nanos::as_nanos));
        self.words().outstanding.set(&self.writer, outstanding);
    }
}

impl<W> ClockPage<W> {
    fn map(fd: OwnedFd, writer: W) -> io::Result<Self> {
        let map = MmapRaw::map_raw(&File::from(fd.try_clone()?))?;
        if map.len() != PAGE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the clock's page has the wrong size"));
        }
        Ok(ClockPage { fd, map, writer })
    }

    /// The descriptor to hand to the guest and the backend.
    pub fn fd(&self) -> impl AsFd + '_ {
        &self.fd
    }

    fn words(&self) -> &Page {
        const { assert!(size_of::<Page>() <= PAGE_BYTES) };
        // SAFETY: the map is page-aligned, PAGE_BYTES long and lives as long as self; the structure is made of aligned
        // 64-bit atomics alone, and every party accesses it in such words.
        unsafe { &*self.map.as_ptr().cast::<Page>() }
    }
}

/// The guest's time in the form of the page.
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
        GuestTime::Several { idle, .. } => (Clock::Several, Computing::Measured, idling(idle)),
    }
}

/// A factor in the unit that the shim uses.
fn millionths(factor: f64) -> u64 {
    (factor * 1e6).round() as u64
}

/// `CLOCK_MONOTONIC`, which all processes of the host share.
fn monotonic() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// A question of the guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub ask: Ask,
    pub virtual_now: Nanos,
    pub guest_timer: Option<Nanos>,
}

pub(crate) const QUESTION_BYTES: usize = size_of::<QuestionWords>();
const ANSWER_BYTES: usize = size_of::<AnswerWords>();

impl Question {
    pub fn decode(bytes: &[u8; QUESTION_BYTES]) -> Option<Self> {
        let word = |offset: usize| u64::from_ne_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"));
        let asked = word(offset_of!(QuestionWords, ask));
        let ask = [Ask::Idle, Ask::Interrupt].into_iter().find(|ask| *ask as u64 == asked)?;
        let virtual_now = Nanos::from_nanos(word(offset_of!(QuestionWords, virtual_now)));
        let guest_timer = word(offset_of!(QuestionWords, guest_timer));
        let guest_timer = (guest_timer != NEVER).then(|| Nanos::from_nanos(guest_timer));
        Some(Question { ask, virtual_now, guest_timer })
    }
}

/// Encodes the answer to a [`Question`].
pub(crate) fn encode_answer(virtual_now: Nanos, completed: u64) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    for (offset, word) in [
        (offset_of!(AnswerWords, virtual_now), virtual_now.as_nanos()),
        (offset_of!(AnswerWords, completed), completed),
    ] {
        bytes[offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
    }
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
                        requests: Some(RequestCosts { completion_nanos: 19, bound_nanos: 23, ..RequestCosts::NONE }),
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
            memory_bytes: 14,
            disturbance_max: Nanos::from_nanos(13),
        };
        let ours = ClockPage::create(&options).unwrap();
        let theirs = ClockPage::open(ours.fd.try_clone().unwrap()).unwrap();
        let words = theirs.words();
        assert_eq!(words.kernel_scale_millionths.get(), 125_000);
        assert_eq!((words.fault_extra_nanos.get(), words.cpu_speed_millionths.get()), (7, 2_000_000));
        assert_eq!(words.costs[Work::Queue as usize].scale_millionths.get(), 125_000);
        assert_eq!((words.disturbance_nanos_max.get(), words.memory_bytes.get()), (13, 14));
        assert_eq!((words.completion_nanos.get(), words.request_bound_nanos.get()), (19, 23));
        assert_eq!(ours.worked(), [Worked::default(); Work::COUNT]);
        assert_eq!((words.clock.get(), words.computing.get(), words.idling.get()), (0, 1, 1));
        assert_eq!(words.completion_bound.get(), NEVER);
        theirs.publish(Some(Nanos::from_nanos(5)), 2);
        assert_eq!((ours.words().completion_bound.get(), ours.words().outstanding.get()), (5, 2));
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
            memory_bytes: 0,
            disturbance_max: Nanos::ZERO,
        };
        let ours = ClockPage::create(&options).unwrap();
        let theirs = ClockPage::open(ours.fd.try_clone().unwrap()).unwrap();
        assert_eq!(theirs.clock().unwrap(), Clock::Real);
        ours.words().clock.set(&Launcher, 4);
        assert_eq!(theirs.clock().unwrap_err().kind(), io::ErrorKind::InvalidData);
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
