/* The page that the clock shim (in the guest's kernel process), the backend and the launcher share.
 *
 * The Rust side is `src/page.rs`; a test there compares offsets and sizes. Every field has one
 * writer, named below. Instants are virtual nanoseconds from the guest's start. */
#ifndef CHRONODISK_PAGE_H
#define CHRONODISK_PAGE_H

#include <stdint.h>

/* "chrono" and the page's size, so that two builds can't be mixed unnoticed. */
#define CHRONODISK_PAGE_MAGIC (0x6368726f6e6f0000ull | sizeof(struct chronodisk_page))
#define CHRONODISK_NEVER UINT64_MAX

enum chronodisk_clock {
	CHRONODISK_CLOCK_STOPPING = 0, /* it stops while the emulator works */
	CHRONODISK_CLOCK_EXACT = 1,    /* the kernel keeps simulated time itself */
	CHRONODISK_CLOCK_REAL = 2,     /* it is the host's, and never stops or jumps */
};

enum chronodisk_computing {
	CHRONODISK_COMPUTING_WALL = 0,     /* the host's time passes while the guest computes */
	CHRONODISK_COMPUTING_MEASURED = 1, /* the guest's own CPU time */
	CHRONODISK_COMPUTING_ZERO = 2,     /* nothing; of exact clocks only */
};

enum chronodisk_idling {
	CHRONODISK_IDLING_JUMP = 0, /* an idle guest jumps to its next event */
	CHRONODISK_IDLING_HOST = 1, /* with nothing outstanding, an idle guest waits in the host's time */
};

/* What the guest's kernel works on from one return of a program to the next; `src/costs.rs` has the
 * same order. The rest is at kernel_scale_millionths. */
enum chronodisk_work {
	CHRONODISK_WORK_CALL = 0,    /* a system call that is none of the following */
	CHRONODISK_WORK_COPY = 1,    /* one that reads or writes */
	CHRONODISK_WORK_FAULT = 2,   /* a page fault */
	CHRONODISK_WORK_MAP = 3,     /* one that changes the program's memory */
	CHRONODISK_WORK_PROCESS = 4, /* one that begins or ends processes */
	CHRONODISK_WORK_SWITCH = 5,  /* one after which another program runs */
	CHRONODISK_WORK_LOOK_UP = 6, /* one that looks a name up and changes nothing */
	CHRONODISK_WORKS = 7,
	CHRONODISK_WORK_OTHER = 7,
};

/* What work of CPU time c costs: added + scale * (c less what is taken off), at least WORK_MINIMUM_NANOS of `time.c`. */
struct chronodisk_cost {
	uint64_t taken_off_nanos;
	uint64_t added_nanos;
	uint64_t scale_millionths;
};

struct chronodisk_worked {
	volatile uint64_t count;
	volatile uint64_t cpu_nanos; /* unscaled */
};

struct chronodisk_page {
	/* Written by the launcher before the guest starts. */
	uint64_t magic;
	uint64_t clock;
	uint64_t computing;
	uint64_t kernel_scale_millionths; /* share of the kernel's CPU time that counts */
	volatile uint64_t trap_nanos;     /* taken off the CPU time of every return to user code, until the shim has measured it */
	uint64_t interrupt_nanos;         /* taken off where an alarm interrupted user code */
	uint64_t fault_extra_nanos;       /* the same beyond that where user code met a page fault */
	uint64_t tsc_extra_nanos;         /* and where it read the time stamp counter */
	uint64_t tsc_hertz;               /* rate of the emulated time stamp counter */
	uint64_t realtime_start_nanos;    /* CLOCK_REALTIME at virtual time zero, since 1970 */
	volatile uint64_t idling;         /* the launcher may change it */
	uint64_t seed;                    /* of the random bytes that the kernel gets from its host */
	uint64_t host_origin_nanos;       /* CLOCK_MONOTONIC at virtual time zero, if the guest's time is the host's */

	/* Written by the launcher at any time. */
	volatile uint64_t launcher_owes; /* it has something for the guest, or the guest has not read it yet */
	volatile uint64_t input_awaited; /* the guest may have standard input, which is open and empty */

	/* Written by the backend while the guest stands still. */
	volatile uint64_t completion_bound; /* no completion is due before this; NEVER if none is */
	volatile uint64_t outstanding;      /* requests that have not completed */

	/* Written by the shim. */
	volatile uint64_t virtual_now; /* the clock when it last stopped */
	volatile uint64_t kicks;
	volatile uint64_t idle_exchanges;
	volatile uint64_t interrupts;
	volatile uint64_t jumps;
	volatile uint64_t jumped_nanos;
	volatile uint64_t stopped_host_nanos;
	volatile uint64_t tsc_reads;
	volatile uint64_t traps;
	volatile uint64_t kernel_cpu_nanos; /* unscaled, of the guest's kernel */
	volatile uint64_t user_cpu_nanos;   /* of the guest's programs, traps taken off */
	volatile uint64_t host_tree_read_bytes;
	volatile uint64_t host_tree_written_bytes;
	volatile uint64_t alarms; /* of the host's timer */
	volatile uint64_t cold_nanos; /* virtual time not charged after long stops */
	volatile uint64_t spins;      /* times that a program was seen to spin while computing took no time */
	volatile uint64_t trap_overhead_nanos; /* CPU time taken off where user code stopped */
	struct chronodisk_worked worked[CHRONODISK_WORKS];

	/* Written by the launcher before the guest starts. */
	uint64_t cpu_speed_millionths; /* of the guest's processor, against this host's */
	struct chronodisk_cost costs[CHRONODISK_WORKS];
	uint64_t new_fault_extra_nanos; /* taken off as well at the first page faults of a new address space */
	uint64_t disturbance_nanos_max; /* of a diagnostic: the shim sleeps up to so long at some of its entries */

	/* Written by the shim. */
	volatile uint64_t new_faults; /* first page faults of new address spaces */
	volatile uint64_t lost_pid;    /* a process of the guest's that somebody else has killed, and */
	volatile uint64_t lost_signal; /* the signal: the kernel ends with EXIT_PROCESS_LOST right after */
};

_Static_assert(sizeof(struct chronodisk_page) == 600, "src/page.rs has the same layout");

/* What the shim asks over the exchange socket; the guest stands still until the answer. */
enum chronodisk_ask {
	CHRONODISK_ASK_IDLE = 1,      /* nothing runs until the first completion or the guest's timer */
	CHRONODISK_ASK_INTERRUPT = 2, /* the completion bound has passed while the guest ran */
};

struct chronodisk_question {
	uint64_t ask;
	uint64_t virtual_now;
	uint64_t guest_timer; /* NEVER if none is armed */
};

struct chronodisk_answer {
	uint64_t virtual_now; /* the clock goes on from here */
	uint64_t completed;   /* completions that the guest was notified of */
};

#endif
