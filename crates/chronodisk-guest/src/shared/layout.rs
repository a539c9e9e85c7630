//! The page shared by launcher, backend and the guest's clock, the messages of the exchange, and the clock's constants.
//!
//! The header of the C side, `shim/page.h`, is generated from this file and [`Work`], and a test fails if it is out of
//! date. The header asserts each offset of a structure, so a C compiler with another layout refuses it.
//!
//! Each word of the page has one writer, which is part of its type. On this side a word is written with its writer's
//! token, which does not exist for the guest's clock; in the header all words but the clock's own are constant.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::costs::Work;
use super::definitions::{shared_enum, shared_struct};

/// The launcher's token.
#[derive(Debug)]
pub(crate) struct Launcher;

/// The backend's token.
#[derive(Debug)]
pub(crate) struct Backend;

/// The guest's clock, which writes in C alone.
#[derive(Debug)]
pub(crate) enum Shim {}

/// A word written by the launcher before the guest starts, and constant afterwards.
#[repr(transparent)]
pub(crate) struct Setting(AtomicU64);

/// A word that `W` writes at any time.
#[repr(transparent)]
pub(crate) struct Word<W>(AtomicU64, PhantomData<W>);

impl Setting {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub fn set(&self, _writer: &Launcher, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

impl<W> Word<W> {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub fn set(&self, _writer: &W, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

shared_enum! {
    /// The guest's clock.
    pub(crate) enum Clock = "CHRONODISK_CLOCK" {
        /// It stops while the emulator works.
        Stopping = 0,
        /// The kernel keeps simulated time itself.
        Exact = 1,
        /// It is the host's, and never stops or jumps.
        Real = 2,
        /// The kernel keeps the time of several processors itself.
        Several = 3,
    }
}

shared_enum! {
    /// Time base while the guest computes.
    pub(crate) enum Computing = "CHRONODISK_COMPUTING" {
        /// The host's time.
        Wall = 0,
        /// The guest's own CPU time.
        Measured = 1,
        /// Nothing; of exact clocks only.
        Zero = 2,
    }
}

shared_enum! {
    /// Time base while the guest idles with nothing outstanding.
    pub(crate) enum Idling = "CHRONODISK_IDLING" {
        /// Nothing: the clock jumps to the next event.
        Jump = 0,
        /// The host's time.
        Host = 1,
    }
}

shared_enum! {
    /// Origin of a request in the guest's kernel.
    pub(crate) enum Issuer = "CHRONODISK_ISSUER" {
        /// An interrupt, or a kernel whose tasks are not known.
        Unknown = 0,
        /// A program, during its system call or page fault.
        Program = 1,
        /// The kernel itself: write-back, a journal, read-ahead of a file system's own.
        Kernel = 2,
    }
}

shared_enum! {
    /// Why the guest stands still and its clock asks the backend over the exchange socket.
    pub(crate) enum Ask = "CHRONODISK_ASK" {
        /// Nothing runs until the first completion or the guest's timer.
        Idle = 1,
        /// The completion bound has passed while the guest ran.
        Interrupt = 2,
    }
}

shared_struct! {
    /// Charge for a piece of work with CPU time c: added + scale * (c up to the bound, less the free part) + all of c
    /// beyond the bound, but at least WORK_NANOS_MIN and c / WORK_SHARE_MIN.
    pub(crate) struct Cost = "chronodisk_cost" {
        taken_off_nanos: Setting,
        added_nanos: Setting,
        scale_millionths: Setting,
        /// CPU time of a piece without additional work; NEVER if the scale applies to all.
        bound_nanos: Setting,
    }
}

shared_struct! {
    /// How much there was of a kind of work.
    pub(crate) struct WorkedWords = "chronodisk_worked" {
        count: Word<Shim>,
        /// Unscaled.
        cpu_nanos: Word<Shim>,
        /// Bytes that system calls have transferred, each without its first SMALL_COPY_BYTES.
        copied_bytes: Word<Shim>,
    }
}

shared_struct! {
    /// The page. Instants are virtual nanoseconds from the guest's start.
    pub(crate) struct Page = "chronodisk_page" {
        /// PAGE_MAGIC.
        magic: Setting,
        /// An enum chronodisk_clock.
        clock: Setting,
        /// An enum chronodisk_computing.
        computing: Setting,
        /// Share of the kernel's CPU time that counts where it is none of the kinds of work.
        kernel_scale_millionths: Setting,
        /// Its bound, as for a kind of work.
        other_bound_nanos: Setting,
        /// CPU time of copying a MiB that a system call transfers, which counts by a scale of its own.
        copy_nanos_per_mib: Setting,
        copy_scale_millionths: Setting,
        /// Prices of a request: its submission, its completion, and the end of an idle time that a completion brings.
        /// Each replaces CPU time up to the bound, which is 0 without prices.
        submission_nanos: Setting,
        completion_nanos: Setting,
        wake_up_nanos: Setting,
        request_bound_nanos: Setting,
        /// Speed of the guest's processor, against this host's.
        cpu_speed_millionths: Setting,
        /// By enum chronodisk_work.
        costs: [Cost; Work::COUNT],
        /// Taken off the CPU time of every return to the kernel, until the clock has measured it.
        trap_nanos_unmeasured: Setting,
        /// Taken off instead where an alarm interrupted user code.
        interrupt_nanos: Setting,
        /// Free part beyond a return's, if user code had a page fault.
        fault_extra_nanos: Setting,
        /// Free part beyond a return's, if user code read the time-stamp counter.
        tsc_extra_nanos: Setting,
        /// Rate of the emulated time stamp counter.
        tsc_hertz: Setting,
        /// CLOCK_REALTIME at virtual time zero, since 1970.
        realtime_start_nanos: Setting,
        /// CLOCK_MONOTONIC at virtual time zero, if the guest's time is the host's.
        host_origin_nanos: Setting,
        /// Seed of the random bytes that the kernel gets from its host.
        seed: Setting,
        /// A diagnostic: the clock sleeps up to so long at some of its entries.
        disturbance_nanos_max: Setting,
        /// Size of the guest's memory.
        memory_bytes: Setting,
        /// Processor of the host for the guest's programs, or CPU_ANY_OTHER or CPU_OF_KERNEL.
        program_cpu: Setting,
        /// How far a processor may be ahead of the slowest one, if the guest has several.
        quantum_nanos: Setting,

        /// An enum chronodisk_idling.
        idling: Word<Launcher>,
        /// The launcher has something for the guest, or the guest has not read it yet.
        launcher_owes: Word<Launcher>,
        /// The guest may have standard input, which is open and empty.
        input_awaited: Word<Launcher>,

        /// No completion is due before this; NEVER if none is.
        completion_bound: Word<Backend>,
        /// Requests that have not completed.
        outstanding: Word<Backend>,
        /// Requests that have arrived.
        requests: Word<Backend>,
        /// Bytes that they read and write.
        request_bytes: Word<Backend>,

        /// The clock when it last stopped or jumped, or when the guest last set its timer.
        virtual_now: Word<Shim>,
        /// Kicks during which the guest stood still.
        kicks: Word<Shim>,
        /// Origin of the kick, an enum chronodisk_issuer.
        issuer: Word<Shim>,
        /// Times that an idle guest waited for the device.
        idle_exchanges: Word<Shim>,
        /// Times that a running guest was interrupted for a completion.
        interrupts: Word<Shim>,
        jumps: Word<Shim>,
        jumped_nanos: Word<Shim>,
        /// Host time during which the clock stood still.
        stopped_host_nanos: Word<Shim>,
        /// Emulated reads of the time stamp counter.
        tsc_reads: Word<Shim>,
        /// Returns of user code to the kernel.
        traps: Word<Shim>,
        /// CPU time of the guest's kernel, unscaled.
        kernel_cpu_nanos: Word<Shim>,
        /// CPU time of the kernel's finished work, without the host's overhead of running programs,
        kernel_work_nanos: Word<Shim>,
        /// the virtual time counted for it,
        kernel_counted_nanos: Word<Shim>,
        /// and the part of it that counted in full.
        kernel_in_full_nanos: Word<Shim>,
        /// The same that counted at the prices of requests.
        kernel_requests_nanos: Word<Shim>,
        /// CPU time of the guest's programs, traps taken off.
        user_cpu_nanos: Word<Shim>,
        host_tree_read_bytes: Word<Shim>,
        host_tree_written_bytes: Word<Shim>,
        /// Alarms of the host's timer.
        alarms: Word<Shim>,
        /// Virtual time not charged after long stops.
        cold_nanos: Word<Shim>,
        /// Times that a program was seen to spin while computing took no time.
        spins: Word<Shim>,
        /// CPU time taken off where user code stopped.
        trap_overhead_nanos: Word<Shim>,
        /// The kernel's work, by enum chronodisk_work.
        worked: [WorkedWords; Work::COUNT],
        /// A process of the guest's that something outside has killed: the kernel ends with EXIT_PROCESS_LOST.
        lost_pid: Word<Shim>,
        /// The signal that killed it.
        lost_signal: Word<Shim>,
        /// The most that a processor has been ahead of the slowest one when it was about to run a program.
        lead_nanos_max: Word<Shim>,
        /// Times that a processor waited for a slower one.
        waits: Word<Shim>,
    }
}

shared_struct! {
    /// A question of the guest's clock; the guest stands still until the answer.
    pub(crate) struct QuestionWords = "chronodisk_question" {
        /// An enum chronodisk_ask.
        ask: u64,
        virtual_now: u64,
        /// NEVER if none is armed.
        guest_timer: u64,
    }
}

shared_struct! {
    /// The backend's answer.
    pub(crate) struct AnswerWords = "chronodisk_answer" {
        /// The clock goes on from here.
        virtual_now: u64,
        /// Completions that the guest was notified of.
        completed: u64,
    }
}

shared_enum! {
    /// How far a recording of system calls is.
    pub(crate) enum RecorderState = "CHRONODISK_RECORDER" {
        NotBegun = 0,
        Begun = 1,
        Ended = 2,
        /// Where the guest's kernel keeps a task's ids and page tables could not be found.
        Impossible = 3,
    }
}

shared_enum! {
    /// Events of a recording: words. The first one holds the kind and the number of words, the second the call's number
    /// in the order of entries.
    pub(crate) enum RecordedEvent = "CHRONODISK_EVENT" {
        /// A call: task and group, the call's number, entry, user CPU time since the task's last one, six arguments,
        /// two paths.
        Call = 1,
        /// Its return: instant, result, flags, pair of descriptors, two paths that could not be read at its entry.
        Return = 2,
        /// Kernel CPU time in it.
        KernelTime = 3,
        /// A page fault, which counts as a call: task and group, entry, return, user CPU time since the task's last
        /// call, address, and 1 if the program wrote.
        Fault = 4,
        /// Words in memory that an argument of a call points to: the argument's number, with RECORD_LATE if they were
        /// read after the call, and up to as many words as are listed.
        Words = 5,
    }
}

shared_enum! {
    /// A recorder's instructions for a call, in four bits each: an argument's number plus one, or 0 for none.
    pub(crate) enum Listed = "CHRONODISK_LISTED" {
        Path = 0,
        SecondPath = 4,
        /// It gets two descriptors.
        Pair = 8,
        /// It points to as many words as WORD_COUNT says.
        Words = 12,
        /// It points to one word.
        SecondWords = 16,
        /// The number of words itself.
        WordCount = 20,
        /// A replay can't make it.
        Unsupported = 24,
    }
}

shared_struct! {
    /// The beginning of a recording.
    pub(crate) struct RecordingWords = "chronodisk_recording" {
        /// By number of the system call, with an enum chronodisk_listed's four bits.
        calls: [Setting; RECORD_CALLS],
        /// An enum chronodisk_recorder.
        state: Word<Shim>,
        events_bytes: Word<Shim>,
        /// Events that are missing.
        lost: Word<Shim>,
        /// The number of the first call that succeeded although a replay can't make it, and one.
        unrecordable: Word<Shim>,
    }
}

/// The page's size in memory.
pub(crate) const PAGE_BYTES: usize = 4096;
/// "chrono" and the structure's size, so that two builds can't be mixed unnoticed.
pub(crate) const PAGE_MAGIC: u64 = 0x6368_726f_6e6f_0000 | size_of::<Page>() as u64;
/// The instant of nothing.
pub(crate) const NEVER: u64 = u64::MAX;

/// The status with which the guest's kernel ends when its backend is gone.
pub(crate) const EXIT_BACKEND_LOST: i32 = 79;
/// The same when something outside of the guest has killed one of its processes.
pub(crate) const EXIT_PROCESS_LOST: i32 = 80;
/// The same when the kernel does not idle in any way that the guest's clock knows.
pub(crate) const EXIT_NEVER_IDLES: i32 = 81;

/// First argument of the system calls that measure the cost of a stop: "chrono".
pub(crate) const PROBE_MARK: u64 = 0x6368_726f_6e6f;
/// Number of measurements.
pub(crate) const PROBES: u32 = 255;

/// First argument of the system calls by which a replayer asks for its feed: "replay".
pub(crate) const FEED_MARK: u64 = 0x7265_706c_6179;
/// The second argument, the request: a part of the feed, from the offset in the third, at the address in the fourth,
/// with the length in the fifth;
pub(crate) const FEED_PART: u64 = 1;
/// CPU time, whose nanoseconds are the third, and whose rest goes to the address in the fourth;
pub(crate) const FEED_CHARGE: u64 = 2;
/// that its report is taken, of as many bytes as the third says, from the address in the fourth.
pub(crate) const FEED_REPORT: u64 = 3;
/// Longest part: a task's look-ahead.
pub(crate) const FEED_PART_BYTES: usize = 16 << 10;
/// Where the report is in the feed.
pub(crate) const FEED_REPORT_OFFSET: usize = 64;
/// Bytes of the report.
pub(crate) const FEED_REPORT_BYTES: usize = 2048;

/// The guest's programs run on any processor of the host but their kernel's.
pub(crate) const CPU_ANY_OTHER: u64 = u64::MAX - 1;
/// The guest's programs run on their kernel's processor of the host.
pub(crate) const CPU_OF_KERNEL: u64 = u64::MAX;

/// The cost of a system call includes copying so much.
pub(crate) const SMALL_COPY_BYTES: u32 = 4 << 10;

/// First argument of the system calls by which the guest's first process reveals the kernel's structures, by the
/// second: "learn".
pub(crate) const LEARN_MARK: u64 = 0x6c65_6172_6e00;
/// The calling task has the ids in the third and fourth argument, its own and its group's.
pub(crate) const LEARN_IDS: u64 = 1;
/// The calling process has 256 bytes that are unlike others at the address in the third argument.
pub(crate) const LEARN_TABLES: u64 = 2;

/// First argument of the system calls by which the guest's first process tells the recorder, by the second: "record".
pub(crate) const RECORD_MARK: u64 = 0x7265_636f_7264;
/// To begin;
pub(crate) const RECORD_BEGIN: u64 = 1;
/// and to end.
pub(crate) const RECORD_END: u64 = 2;
/// Numbers of system calls are less.
pub(crate) const RECORD_CALLS: usize = 512;
/// Where the events begin.
pub(crate) const RECORD_EVENTS_OFFSET: usize = 8192;
/// In an event's first word, where the number of its words begins.
pub(crate) const RECORD_WORDS_SHIFT: u32 = 32;
/// The length of a path that is not there.
pub(crate) const RECORD_NO_PATH: u64 = u64::MAX;
/// Flags of a return: the call is made again;
pub(crate) const RECORD_RESTARTED: u64 = 1;
/// it does not count;
pub(crate) const RECORD_DROPPED: u64 = 2;
/// one of its paths could not be read;
pub(crate) const RECORD_UNREADABLE: u64 = 4;
/// it made two descriptors.
pub(crate) const RECORD_HAS_PAIR: u64 = 8;
/// In the first word of words: they were read after the call.
pub(crate) const RECORD_LATE: u64 = 1 << 8;

/// The environment of the guest's kernel names descriptors: of the page,
pub(crate) const PAGE_VARIABLE: &str = "CHRONODISK_PAGE_FD";
/// of the exchange socket,
pub(crate) const EXCHANGE_VARIABLE: &str = "CHRONODISK_EXCHANGE_FD";
/// of the devices' sockets, with commas between them,
pub(crate) const VHOST_VARIABLE: &str = "CHRONODISK_VHOST_FDS";
/// and of the line to the launcher.
pub(crate) const SERIAL_OUT_VARIABLE: &str = "CHRONODISK_SERIAL_OUT_FD";
/// Of a replayer's feed, if the guest has one.
pub(crate) const FEED_VARIABLE: &str = "CHRONODISK_FEED_FD";
/// Of a recording, if there is one.
pub(crate) const RECORDING_VARIABLE: &str = "CHRONODISK_RECORDING_FD";

/// The guest's kernel connects to the sockets of its devices, which have no names on the host, by this and the device's
/// name: chronodisk-vda and on.
pub(crate) const DEVICE_SOCKET_PREFIX: &str = "chronodisk-";
/// And to the calendar of an exact clock by this.
pub(crate) const CALENDAR_SOCKET: &str = "chronodisk-calendar";
