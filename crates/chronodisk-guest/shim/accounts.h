/* What the guest's virtual time V is made of while its clock runs.
 *
 * The accounts are a state and functions of it. None of them calls the host: what its clocks show comes in as an
 * argument, and time.c reads them. So the tests play whatever clocks they like.
 *
 * V = base + offset, where base is the CPU time that counts: that of programs in full, less what their stops take of
 * it; that of the kernel by what it works on. An exact kernel has a V of its own, which is told what to add. */
#ifndef CHRONODISK_ACCOUNTS_H
#define CHRONODISK_ACCOUNTS_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

#include "page.h"

#pragma GCC visibility push(hidden)

/* Where V is CPU time, it reaches an instant no earlier than the host's clock does; the host's timer
 * is armed again for the rest, but never for less than this. */
#define REARM_MINIMUM_NANOS 3000ull
/* A call of the host takes microseconds; what takes longer was interrupted or made to wait. */
#define HOST_CALL_MAXIMUM_NANOS 20000ull
/* A program that has computed for so long without coming back is taken to spin. */
#define SPIN_CPU_NANOS 2000000000ull
/* The kernel looks at each stop of a program whether a completion is due. So a program all of whose last stretches were
 * shorter than this, without their stops, is guarded only against one that lasts longer: the alarm waits for at least
 * GUARD_NANOS, and is put off at a stop when less than GUARD_LEFT_NANOS are left. A host may need half of the first to
 * wake a program's processor. */
#define SHORT_STRETCH_NANOS 15000ull
#define GUARD_NANOS 80000ull
#define GUARD_LEFT_NANOS 30000ull
/* The same for the kernel, which looks before a program goes on. */
#define KERNEL_ALARM_MINIMUM_NANOS 100000ull

/* How much faster V runs while the distribution's kernel compares ways of computing RAID 6: see `boot_speed`. If it
 * were much more, a tick would be over before its interrupt is, on a slow host. */
#define BOOT_SPEED 64u
/* The same where there are devices for an array: four times as careful a choice. */
#define BOOT_SPEED_FOR_ARRAYS 16u

/* Calls of the host that read or set a stopped program's registers. Timing a call reads a clock twice, which takes about
 * as long as the call. So the first HOST_CALLS_TIMED of each kind are timed, and one in HOST_CALLS_PER_TIMED later; the
 * others count the mean of the last timed ones. */
#define HOST_CALLS_TIMED 16
#define HOST_CALLS_PER_TIMED 8

struct host_call_cost {
	uint64_t calls;
	uint64_t mean_nanos;
};

/* Programs whose system call transfers bytes, at once. */
#define TRANSFERS_MAX 64

/* What clocks of CPU time show. */
struct cpu_reading {
	uint64_t kernel;  /* of the guest's kernel, if accounts_need_kernel_cpu() */
	uint64_t running; /* of the user process that runs, if one does */
};

/* CPU time of a program that a stop of one kind takes, and how that is measured. */
struct stop_cost {
	uint64_t nanos;
	uint64_t probed[PROBES]; /* in order */
	int probe_count;
	uint64_t probed_mean_nanos;
	/* Of stops that are made again at once, for the measurement alone: their number, their mean over the last
	 * SAMPLES_OF_MEAN, and that when the probes had been made. */
	uint64_t stops;
	uint64_t samples;
	uint64_t sampled_nanos;
	uint64_t sampled_at_probes_nanos;
};

struct accounts {
	struct chronodisk_page *page; /* the terms, and the counters */

	/* Until the device is first used the guest's kernel boots, and its CPU time counts in full. */
	int booted;
	/* Until the device's driver has connected to it, the distribution's kernel compares ways of computing RAID 6,
	 * for 85 ticks in all. On a stopping clock its CPU time counts so many times, so that they are soon over; more
	 * ticks than that would only interrupt what has to be done. */
	uint64_t boot_speed;

	/* V = base + offset_nanos while the clock runs. */
	int64_t offset_nanos;
	uint64_t latest_nanos; /* that anyone has seen */
	/* Of an exact kernel: what its V holds of the base, and what it did not hold when the clock stopped. */
	uint64_t charged_nanos;
	uint64_t uncharged_at_stop_nanos;
	uint64_t yields;
	/* CPU time of programs that a replayer stands for, and its own and that of its calls of the clock, which are
	 * part of that. */
	uint64_t granted_nanos;
	uint64_t granted_until_user_nanos;
	uint64_t replayer_nanos;
	int is_replayers_call; /* this piece of work */
	uint64_t still_at_nanos; /* V at the last system call, and */
	unsigned still_calls;    /* how many there were at that instant */

	/* The user process that runs, if one does: its program, or what the kernel has it do. And what the
	 * clocks showed when it was resumed. */
	volatile pid_t running_pid;
	volatile int running_user_code;
	uint64_t running_since_cpu;
	uint64_t resumed_kernel_cpu;
	/* Handlers of the guest's that ran since, and one that runs. */
	uint64_t handled_nanos;
	uint64_t handler_since_cpu;
	int handler_depth;

	uint64_t user_cpu_nanos;        /* of programs, which counts */
	uint64_t stub_kernel_cpu_nanos; /* of what the kernel had their processes do */

	uint64_t last_stretch_nanos;    /* of any process, with what its stop took */
	uint64_t longest_stretch_nanos; /* of user code, fading with each that is shorter */
	uint64_t usual_stretch_nanos;   /* of user code, when warm */

	/* What is left of the correction after a long stop, in CPU time, and where the kernel's stretch began. */
	int cold_stretches;
	uint64_t cold_user_nanos;
	/* The same for the program's next stretch after a short stop, in which the device's process ran. */
	uint64_t cooled_nanos;
	uint64_t cold_kernel_nanos;
	uint64_t cold_kernel_total_nanos;
	uint64_t kernel_since_cpu;

	/* CPU time of the guest's kernel that its host took to run the guest's programs, which natively is
	 * nothing: between resuming a process and hearing that it stopped, and in reading and setting its
	 * registers. Handlers of the guest's that ran in between are the kernel's own work. */
	uint64_t host_part_nanos;
	uint64_t looked_at_cpu;
	uint64_t looked_at_host_part;
	uint64_t stopped_at_cpu; /* when the clock stopped last */
	uint64_t stopped_at_host_part;
	uint64_t own_since_cpu; /* when a recorder began its own work last */
	uint64_t own_since_host_part;
	uint64_t clock_read_nanos;     /* what reading the host's clock takes, and */
	uint64_t cpu_clock_read_nanos; /* one of CPU time */

	/* The kernel's CPU time is charged by the work that it does, from one return of a program to the next,
	 * because each kind takes another multiple of what it takes a native kernel. */
	enum chronodisk_work work;
	uint64_t work_since_cpu;     /* the kernel's CPU time when this work began */
	uint64_t charged_work_nanos; /* for all work before */
	pid_t returned_pid;          /* the program that returned last */
	/* What pieces of each kind have left of their bounds, for later ones. */
	uint64_t spare_nanos[CHRONODISK_WORKS + 1];
	uint64_t stops; /* of the clock in this piece of work, but for requests with prices */
	/* Events with prices in this piece of work: the sum of these, and how many. */
	uint64_t priced_nanos;
	uint64_t priced_events;
	/* Bytes that a system call has transferred in this piece of work, without its first, and by process those that its
	 * last call is to transfer. */
	uint64_t copied_bytes;
	struct {
		pid_t pid;
		uint64_t bytes;
	} transfers[TRANSFERS_MAX];

	/* CPU time of a program that a stop takes: at a system call, and at a read of the time stamp counter. */
	struct stop_cost call_stop;
	struct stop_cost read_stop;
	/* What the host's part of stops has been more than the stretches that it was to be taken off, which
	 * vary: the next ones give it back, or a mean taken off short stretches would leave too much. */
	uint64_t overhead_owed_nanos;

	/* V at the last alarm that was set, and how many came at that instant. */
	uint64_t armed_at_nanos;
	unsigned futile_alarms;
};

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void accounts_begin(struct accounts *a, struct chronodisk_page *page, int devices);

/* Readings. */
int accounts_need_kernel_cpu(const struct accounts *a);
void accounts_note_host_call(struct accounts *a, uint64_t took_nanos);
int accounts_want_time_of_host_call(struct host_call_cost *cost);
void accounts_note_timed_host_call(struct accounts *a, struct host_call_cost *cost, uint64_t took_nanos);
void accounts_note_untimed_host_call(struct accounts *a, const struct host_call_cost *cost);
void accounts_note_cpu_clock_read(struct accounts *a);
void accounts_look(struct accounts *a, uint64_t kernel_cpu);
void accounts_begin_stop(struct accounts *a, uint64_t kernel_cpu);
void accounts_end_stop(struct accounts *a, uint64_t kernel_cpu);
void accounts_begin_own_work(struct accounts *a, uint64_t kernel_cpu);
void accounts_end_own_work(struct accounts *a, uint64_t kernel_cpu);

/* V. */
uint64_t accounts_measured_base(const struct accounts *a, struct cpu_reading now);
uint64_t accounts_free_base(const struct accounts *a);
uint64_t accounts_never_back(struct accounts *a, uint64_t virtual_nanos);
void accounts_go_on(struct accounts *a, uint64_t base);
void accounts_jump(struct accounts *a, uint64_t nanos);
void accounts_forget(struct accounts *a, uint64_t nanos);
uint64_t accounts_grant(struct accounts *a, uint64_t nanos, uint64_t now, uint64_t target);
void accounts_note_replayers_call(struct accounts *a);
uint64_t accounts_uncharged(const struct accounts *a, uint64_t base);

/* Alarms. */
uint64_t accounts_alarm_wait(struct accounts *a, uint64_t now, uint64_t target);
uint64_t accounts_user_alarm_wait(const struct accounts *a, uint64_t now, uint64_t target);

/* Who runs. */
int accounts_enter_handler(struct accounts *a);
void accounts_begin_handler(struct accounts *a, uint64_t kernel_cpu);
int accounts_handler_counts(const struct accounts *a);
void accounts_leave_handler(struct accounts *a, uint64_t kernel_cpu);
void accounts_note_switch(struct accounts *a, pid_t pid, int user_code);
void accounts_begin_stretch(struct accounts *a, pid_t pid, int user_code, struct cpu_reading now);
void accounts_end_stretch(struct accounts *a, struct cpu_reading now, uint64_t overhead_nanos);
void accounts_pass_stop(struct accounts *a, struct stop_cost *cost, uint64_t running);

/* The kernel's work. */
void accounts_begin_work(struct accounts *a, struct cpu_reading now, enum chronodisk_work next);
void accounts_note_call(struct accounts *a, const struct user_regs_struct *registers);
void accounts_note_spurious_fault(struct accounts *a);
void accounts_note_result(struct accounts *a, pid_t pid, int64_t result);
void accounts_note_requests(struct accounts *a, uint64_t submitted, uint64_t completed, uint64_t woken);
int accounts_spin_of_calls(struct accounts *a, uint64_t virtual_nanos);

/* Cold caches. */
void accounts_begin_cold_stretches(struct accounts *a, uint64_t stopped_nanos);
int accounts_kernel_stretch_is_cold(const struct accounts *a);
void accounts_begin_kernel_stretch(struct accounts *a, struct cpu_reading now);
void accounts_end_kernel_stretch(struct accounts *a, struct cpu_reading now);

/* What a stop takes. */
void accounts_note_probe(struct accounts *a);
int accounts_want_sample(struct stop_cost *cost);
void accounts_note_sample(struct accounts *a, struct stop_cost *cost, uint64_t running);

#pragma GCC visibility pop

#endif
