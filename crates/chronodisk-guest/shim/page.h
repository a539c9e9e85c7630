/* What the guest's clock shares with the launcher and the backend: the page, messages and constants.
 *
 * Made from src/shared/layout.rs; CONTRIBUTING.md says how. Don't change it by hand.
 *
 * Each word of the page has one writer. What the clock does not write is constant here. */
#ifndef CHRONODISK_PAGE_H
#define CHRONODISK_PAGE_H

#include <stddef.h>
#include <stdint.h>

/* The page's size in memory. */
#define PAGE_BYTES 4096

/* "chrono" and the size of struct chronodisk_page, so that two builds can't be mixed unnoticed. */
#define PAGE_MAGIC 0x6368726f6e6f03c0ull

/* The instant of nothing. */
#define CHRONODISK_NEVER 0xffffffffffffffffull

/* Kinds of work, without CHRONODISK_WORK_OTHER. */
#define CHRONODISK_WORKS 9

/* What a piece of work counts at least, and one part in so many of its CPU time: a program that waits for time to
 * pass must see it pass, and so must a kernel that computes until its next tick. */
#define WORK_NANOS_MIN 50ull
#define WORK_SHARE_MIN 256ull

/* Devices of a guest. */
#define DEVICES_MAX 8

/* The guest's kernel ends with these statuses when the backend is gone, when something outside of the guest has
 * killed one of its processes, and when it idles in a way that its clock does not know. */
#define EXIT_BACKEND_LOST 79
#define EXIT_PROCESS_LOST 80
#define EXIT_NEVER_IDLES 81

/* First argument of the system calls that measure what a stop takes, and how many are measured. */
#define PROBE_MARK 0x6368726f6e6full
#define PROBES 255

/* First argument of the system calls by which a replayer asks for its feed, the second, most bytes of a part, and
 * the place of the report in the feed. */
#define FEED_MARK 0x7265706c6179ull
#define FEED_PART 1
#define FEED_CHARGE 2
#define FEED_REPORT 3
#define FEED_PART_BYTES 16384
#define FEED_REPORT_OFFSET 64
#define FEED_REPORT_BYTES 2048

/* The guest's programs run on any processor of the host but their kernel's, or on their kernel's. */
#define CPU_ANY_OTHER 0xfffffffffffffffeull
#define CPU_OF_KERNEL 0xffffffffffffffffull

/* The cost of a system call includes copying so much. */
#define SMALL_COPY_BYTES 4096

/* First argument of the system calls by which the guest's first process reveals the kernel's structures, and the
 * second. */
#define LEARN_MARK 0x6c6561726e00ull
#define LEARN_IDS 1
#define LEARN_TABLES 2

/* First argument of the system calls that are for the recorder, and the second. */
#define RECORD_MARK 0x7265636f7264ull
#define RECORD_BEGIN 1
#define RECORD_END 2

/* A recording: numbers of system calls are less than the first; its events begin at the second; the third is the
 * number of words in an event's first; the fourth the length of a path that is not there; the others are flags of a
 * return. */
#define RECORD_CALLS 512
#define RECORD_EVENTS_OFFSET 8192
#define RECORD_WORDS_SHIFT 32
#define RECORD_NO_PATH 0xffffffffffffffffull
#define RECORD_RESTARTED 1
#define RECORD_DROPPED 2
#define RECORD_UNREADABLE 4
#define RECORD_HAS_PAIR 8
#define RECORD_LATE 256

/* Variables of the environment that name descriptors. */
#define PAGE_VARIABLE "CHRONODISK_PAGE_FD"
#define EXCHANGE_VARIABLE "CHRONODISK_EXCHANGE_FD"
#define VHOST_VARIABLE "CHRONODISK_VHOST_FDS"
#define SERIAL_OUT_VARIABLE "CHRONODISK_SERIAL_OUT_FD"
#define FEED_VARIABLE "CHRONODISK_FEED_FD"
#define RECORDING_VARIABLE "CHRONODISK_RECORDING_FD"

/* Names by which the guest's kernel connects to its devices, before the device's own, and to the calendar. */
#define DEVICE_SOCKET_PREFIX "chronodisk-"
#define CALENDAR_SOCKET "chronodisk-calendar"

/* The guest's clock. */
enum chronodisk_clock {
	CHRONODISK_CLOCK_STOPPING = 0, /* It stops while the emulator works. */
	CHRONODISK_CLOCK_EXACT = 1, /* The kernel keeps simulated time itself. */
	CHRONODISK_CLOCK_REAL = 2, /* It is the host's, and never stops or jumps. */
	CHRONODISK_CLOCK_SEVERAL = 3, /* The kernel keeps the time of several processors itself. */
};

/* Time base while the guest computes. */
enum chronodisk_computing {
	CHRONODISK_COMPUTING_WALL = 0, /* The host's time. */
	CHRONODISK_COMPUTING_MEASURED = 1, /* The guest's own CPU time. */
	CHRONODISK_COMPUTING_ZERO = 2, /* Nothing; of exact clocks only. */
};

/* Time base while the guest idles with nothing outstanding. */
enum chronodisk_idling {
	CHRONODISK_IDLING_JUMP = 0, /* Nothing: the clock jumps to the next event. */
	CHRONODISK_IDLING_HOST = 1, /* The host's time. */
};

/* Cause of a program's return to its kernel. */
enum chronodisk_work {
	CHRONODISK_WORK_CALL = 0, /* A system call of no other kind. */
	CHRONODISK_WORK_COPY = 1, /* A system call that reads or writes. */
	CHRONODISK_WORK_FAULT = 2, /* A page fault. */
	CHRONODISK_WORK_MAP = 3, /* A system call that changes the program's memory. */
	CHRONODISK_WORK_PROCESS = 4, /* A system call that begins or ends processes, or executes a program. */
	CHRONODISK_WORK_SWITCH = 5, /* A system call after which another program runs. */
	/* A system call that looks a name up without a change: `stat`, `access`, `readlink`, `open` of an existing
	 * file. */
	CHRONODISK_WORK_LOOK_UP = 6,
	/* A system call of asynchronous I/O: `io_submit`, `io_getevents`, `io_uring_enter`. */
	CHRONODISK_WORK_QUEUE = 7,
	/* A page fault on a page that the guest's page tables have. Natively there is none. */
	CHRONODISK_WORK_SPURIOUS_FAULT = 8,
	CHRONODISK_WORK_OTHER = 9, /* Any other, as after an idle time. */
};

/* Origin of a request in the guest's kernel. */
enum chronodisk_issuer {
	CHRONODISK_ISSUER_UNKNOWN = 0, /* An interrupt, or a kernel whose tasks are not known. */
	CHRONODISK_ISSUER_PROGRAM = 1, /* A program, during its system call or page fault. */
	/* The kernel itself: write-back, a journal, read-ahead of a file system's own. */
	CHRONODISK_ISSUER_KERNEL = 2,
};

/* Why the guest stands still and its clock asks the backend over the exchange socket. */
enum chronodisk_ask {
	CHRONODISK_ASK_IDLE = 1, /* Nothing runs until the first completion or the guest's timer. */
	CHRONODISK_ASK_INTERRUPT = 2, /* The completion bound has passed while the guest ran. */
};

/* Charge for a piece of work with CPU time c: added + scale * (c up to the bound, less the free part) + all of c
 * beyond the bound, but at least WORK_NANOS_MIN and c / WORK_SHARE_MIN. */
struct chronodisk_cost {
	const uint64_t taken_off_nanos;
	const uint64_t added_nanos;
	const uint64_t scale_millionths;
	/* CPU time of a piece without additional work; NEVER if the scale applies to all. */
	const uint64_t bound_nanos;
};

_Static_assert(offsetof(struct chronodisk_cost, taken_off_nanos) == 0, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_cost, added_nanos) == 8, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_cost, scale_millionths) == 16, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_cost, bound_nanos) == 24, "src/shared/layout.rs");
_Static_assert(sizeof(struct chronodisk_cost) == 32, "src/shared/layout.rs");

/* How much there was of a kind of work. */
struct chronodisk_worked {
	volatile uint64_t count;
	volatile uint64_t cpu_nanos; /* Unscaled. */
	/* Bytes that system calls have transferred, each without its first SMALL_COPY_BYTES. */
	volatile uint64_t copied_bytes;
};

_Static_assert(offsetof(struct chronodisk_worked, count) == 0, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_worked, cpu_nanos) == 8, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_worked, copied_bytes) == 16, "src/shared/layout.rs");
_Static_assert(sizeof(struct chronodisk_worked) == 24, "src/shared/layout.rs");

/* The page. Instants are virtual nanoseconds from the guest's start. */
struct chronodisk_page {
	/* Written by the launcher before the guest starts. */
	const uint64_t magic; /* PAGE_MAGIC. */
	const uint64_t clock; /* An enum chronodisk_clock. */
	const uint64_t computing; /* An enum chronodisk_computing. */
	/* Share of the kernel's CPU time that counts where it is none of the kinds of work. */
	const uint64_t kernel_scale_millionths;
	const uint64_t other_bound_nanos; /* Its bound, as for a kind of work. */
	/* CPU time of copying a MiB that a system call transfers, which counts by a scale of its own. */
	const uint64_t copy_nanos_per_mib;
	const uint64_t copy_scale_millionths;
	/* Prices of a request: its submission, its completion, and the end of an idle time that a completion brings.
	 * Each replaces CPU time up to the bound, which is 0 without prices. */
	const uint64_t submission_nanos;
	const uint64_t completion_nanos;
	const uint64_t wake_up_nanos;
	const uint64_t request_bound_nanos;
	const uint64_t cpu_speed_millionths; /* Speed of the guest's processor, against this host's. */
	struct chronodisk_cost costs[9]; /* By enum chronodisk_work. */
	/* Taken off the CPU time of every return to the kernel, until the clock has measured it. */
	const uint64_t trap_nanos_unmeasured;
	const uint64_t interrupt_nanos; /* Taken off instead where an alarm interrupted user code. */
	const uint64_t fault_extra_nanos; /* Free part beyond a return's, if user code had a page fault. */
	const uint64_t tsc_extra_nanos; /* Free part beyond a return's, if user code read the time-stamp counter. */
	const uint64_t tsc_hertz; /* Rate of the emulated time stamp counter. */
	const uint64_t realtime_start_nanos; /* CLOCK_REALTIME at virtual time zero, since 1970. */
	/* CLOCK_MONOTONIC at virtual time zero, if the guest's time is the host's. */
	const uint64_t host_origin_nanos;
	const uint64_t seed; /* Seed of the random bytes that the kernel gets from its host. */
	/* A diagnostic: the clock sleeps up to so long at some of its entries. */
	const uint64_t disturbance_nanos_max;
	const uint64_t memory_bytes; /* Size of the guest's memory. */
	/* Processor of the host for the guest's programs, or CPU_ANY_OTHER or CPU_OF_KERNEL. */
	const uint64_t program_cpu;
	/* How far a processor may be ahead of the slowest one, if the guest has several. */
	const uint64_t quantum_nanos;

	/* Written by the launcher at any time. */
	const volatile uint64_t idling; /* An enum chronodisk_idling. */
	/* The launcher has something for the guest, or the guest has not read it yet. */
	const volatile uint64_t launcher_owes;
	const volatile uint64_t input_awaited; /* The guest may have standard input, which is open and empty. */

	/* Written by the backend while the guest stands still. */
	const volatile uint64_t completion_bound; /* No completion is due before this; NEVER if none is. */
	const volatile uint64_t outstanding; /* Requests that have not completed. */
	const volatile uint64_t requests; /* Requests that have arrived. */
	const volatile uint64_t request_bytes; /* Bytes that they read and write. */

	/* Written by the guest's clock. */
	/* The clock when it last stopped or jumped, or when the guest last set its timer. */
	volatile uint64_t virtual_now;
	volatile uint64_t kicks; /* Kicks during which the guest stood still. */
	volatile uint64_t issuer; /* Origin of the kick, an enum chronodisk_issuer. */
	volatile uint64_t idle_exchanges; /* Times that an idle guest waited for the device. */
	volatile uint64_t interrupts; /* Times that a running guest was interrupted for a completion. */
	volatile uint64_t jumps;
	volatile uint64_t jumped_nanos;
	volatile uint64_t stopped_host_nanos; /* Host time during which the clock stood still. */
	volatile uint64_t tsc_reads; /* Emulated reads of the time stamp counter. */
	volatile uint64_t traps; /* Returns of user code to the kernel. */
	volatile uint64_t kernel_cpu_nanos; /* CPU time of the guest's kernel, unscaled. */
	/* CPU time of the kernel's finished work, without the host's overhead of running programs, */
	volatile uint64_t kernel_work_nanos;
	volatile uint64_t kernel_counted_nanos; /* the virtual time counted for it, */
	volatile uint64_t kernel_in_full_nanos; /* and the part of it that counted in full. */
	volatile uint64_t kernel_requests_nanos; /* The same that counted at the prices of requests. */
	volatile uint64_t user_cpu_nanos; /* CPU time of the guest's programs, traps taken off. */
	volatile uint64_t host_tree_read_bytes;
	volatile uint64_t host_tree_written_bytes;
	volatile uint64_t alarms; /* Alarms of the host's timer. */
	volatile uint64_t cold_nanos; /* Virtual time not charged after long stops. */
	volatile uint64_t spins; /* Times that a program was seen to spin while computing took no time. */
	volatile uint64_t trap_overhead_nanos; /* CPU time taken off where user code stopped. */
	struct chronodisk_worked worked[9]; /* The kernel's work, by enum chronodisk_work. */
	/* A process of the guest's that something outside has killed: the kernel ends with EXIT_PROCESS_LOST. */
	volatile uint64_t lost_pid;
	volatile uint64_t lost_signal; /* The signal that killed it. */
	/* The most that a processor has been ahead of the slowest one when it was about to run a program. */
	volatile uint64_t lead_nanos_max;
	volatile uint64_t waits; /* Times that a processor waited for a slower one. */
};

_Static_assert(offsetof(struct chronodisk_page, magic) == 0, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, clock) == 8, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, computing) == 16, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kernel_scale_millionths) == 24, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, other_bound_nanos) == 32, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, copy_nanos_per_mib) == 40, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, copy_scale_millionths) == 48, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, submission_nanos) == 56, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, completion_nanos) == 64, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, wake_up_nanos) == 72, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, request_bound_nanos) == 80, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, cpu_speed_millionths) == 88, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, costs) == 96, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, trap_nanos_unmeasured) == 384, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, interrupt_nanos) == 392, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, fault_extra_nanos) == 400, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, tsc_extra_nanos) == 408, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, tsc_hertz) == 416, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, realtime_start_nanos) == 424, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, host_origin_nanos) == 432, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, seed) == 440, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, disturbance_nanos_max) == 448, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, memory_bytes) == 456, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, program_cpu) == 464, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, quantum_nanos) == 472, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, idling) == 480, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, launcher_owes) == 488, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, input_awaited) == 496, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, completion_bound) == 504, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, outstanding) == 512, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, requests) == 520, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, request_bytes) == 528, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, virtual_now) == 536, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kicks) == 544, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, issuer) == 552, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, idle_exchanges) == 560, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, interrupts) == 568, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, jumps) == 576, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, jumped_nanos) == 584, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, stopped_host_nanos) == 592, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, tsc_reads) == 600, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, traps) == 608, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kernel_cpu_nanos) == 616, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kernel_work_nanos) == 624, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kernel_counted_nanos) == 632, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kernel_in_full_nanos) == 640, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, kernel_requests_nanos) == 648, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, user_cpu_nanos) == 656, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, host_tree_read_bytes) == 664, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, host_tree_written_bytes) == 672, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, alarms) == 680, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, cold_nanos) == 688, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, spins) == 696, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, trap_overhead_nanos) == 704, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, worked) == 712, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, lost_pid) == 928, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, lost_signal) == 936, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, lead_nanos_max) == 944, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_page, waits) == 952, "src/shared/layout.rs");
_Static_assert(sizeof(struct chronodisk_page) == 960, "src/shared/layout.rs");

/* A question of the guest's clock; the guest stands still until the answer. */
struct chronodisk_question {
	uint64_t ask; /* An enum chronodisk_ask. */
	uint64_t virtual_now;
	uint64_t guest_timer; /* NEVER if none is armed. */
};

_Static_assert(offsetof(struct chronodisk_question, ask) == 0, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_question, virtual_now) == 8, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_question, guest_timer) == 16, "src/shared/layout.rs");
_Static_assert(sizeof(struct chronodisk_question) == 24, "src/shared/layout.rs");

/* The backend's answer. */
struct chronodisk_answer {
	uint64_t virtual_now; /* The clock goes on from here. */
	uint64_t completed; /* Completions that the guest was notified of. */
};

_Static_assert(offsetof(struct chronodisk_answer, virtual_now) == 0, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_answer, completed) == 8, "src/shared/layout.rs");
_Static_assert(sizeof(struct chronodisk_answer) == 16, "src/shared/layout.rs");

/* How far a recording of system calls is. */
enum chronodisk_recorder {
	CHRONODISK_RECORDER_NOT_BEGUN = 0,
	CHRONODISK_RECORDER_BEGUN = 1,
	CHRONODISK_RECORDER_ENDED = 2,
	/* Where the guest's kernel keeps a task's ids and page tables could not be found. */
	CHRONODISK_RECORDER_IMPOSSIBLE = 3,
};

/* Events of a recording: words. The first one holds the kind and the number of words, the second the call's number
 * in the order of entries. */
enum chronodisk_event {
	/* A call: task and group, the call's number, entry, user CPU time since the task's last one, six arguments,
	 * two paths. */
	CHRONODISK_EVENT_CALL = 1,
	/* Its return: instant, result, flags, pair of descriptors, two paths that could not be read at its entry. */
	CHRONODISK_EVENT_RETURN = 2,
	CHRONODISK_EVENT_KERNEL_TIME = 3, /* Kernel CPU time in it. */
	/* A page fault, which counts as a call: task and group, entry, return, user CPU time since the task's last
	 * call, address, and 1 if the program wrote. */
	CHRONODISK_EVENT_FAULT = 4,
	/* Words in memory that an argument of a call points to: the argument's number, with RECORD_LATE if they were
	 * read after the call, and up to as many words as are listed. */
	CHRONODISK_EVENT_WORDS = 5,
};

/* A recorder's instructions for a call, in four bits each: an argument's number plus one, or 0 for none. */
enum chronodisk_listed {
	CHRONODISK_LISTED_PATH = 0,
	CHRONODISK_LISTED_SECOND_PATH = 4,
	CHRONODISK_LISTED_PAIR = 8, /* It gets two descriptors. */
	CHRONODISK_LISTED_WORDS = 12, /* It points to as many words as WORD_COUNT says. */
	CHRONODISK_LISTED_SECOND_WORDS = 16, /* It points to one word. */
	CHRONODISK_LISTED_WORD_COUNT = 20, /* The number of words itself. */
	CHRONODISK_LISTED_UNSUPPORTED = 24, /* A replay can't make it. */
};

/* The beginning of a recording. */
struct chronodisk_recording {
	const uint64_t calls[512]; /* By number of the system call, with an enum chronodisk_listed's four bits. */
	volatile uint64_t state; /* An enum chronodisk_recorder. */
	volatile uint64_t events_bytes;
	volatile uint64_t lost; /* Events that are missing. */
	/* The number of the first call that succeeded although a replay can't make it, and one. */
	volatile uint64_t unrecordable;
};

_Static_assert(offsetof(struct chronodisk_recording, calls) == 0, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_recording, state) == 4096, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_recording, events_bytes) == 4104, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_recording, lost) == 4112, "src/shared/layout.rs");
_Static_assert(offsetof(struct chronodisk_recording, unrecordable) == 4120, "src/shared/layout.rs");
_Static_assert(sizeof(struct chronodisk_recording) == 4128, "src/shared/layout.rs");

#endif
