/* See accounts.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "accounts.h"

static uint64_t millionths(uint64_t of, uint64_t share)
{
	return (uint64_t)((unsigned __int128)of * share / 1000000u);
}

static uint64_t boot_speed(const struct chronodisk_page *page, int devices)
{
	if (page->clock != CHRONODISK_CLOCK_STOPPING)
		return 1;
	return devices > 1 ? BOOT_SPEED_FOR_ARRAYS : BOOT_SPEED;
}

void accounts_begin(struct accounts *a, struct chronodisk_page *page, int devices)
{
	memset(a, 0, sizeof *a);
	a->page = page;
	a->work = CHRONODISK_WORK_OTHER;
	a->call_stop.nanos = page->trap_nanos_unmeasured;
	a->read_stop.nanos = page->trap_nanos_unmeasured + page->tsc_extra_nanos;
	a->boot_speed = boot_speed(page, devices);
}

/* ---- What the host takes of the kernel's CPU time ------------------------------------------------ */

/* The host's part is an estimate: what it takes to read a clock changes with the processor's other load. Where
 * it came to more than all CPU time, as it did by 1 % in a kernel that read its clock until a tick came, V stood
 * still for ever. So of all CPU time between two looks at it at least this share is the kernel's own. */
#define OWN_SHARE 16

static void note_host_part(struct accounts *a, uint64_t nanos)
{
	if (!a->running_pid)
		a->host_part_nanos += nanos;
}

static void look_at_host_part(struct accounts *a, uint64_t kernel_cpu)
{
	a->looked_at_cpu = kernel_cpu;
	a->looked_at_host_part = a->host_part_nanos;
}

/* The kernel has called its host for what a native kernel need not do. */
void accounts_note_host_call(struct accounts *a, uint64_t took_nanos)
{
	note_host_part(a, smaller(took_nanos, HOST_CALL_MAXIMUM_NANOS) + a->clock_read_nanos);
}

/* Whether the next call of this kind is to be timed. */
int accounts_want_time_of_host_call(struct host_call_cost *cost)
{
	uint64_t before = cost->calls++;
	return before < HOST_CALLS_TIMED || before % HOST_CALLS_PER_TIMED == 0;
}

void accounts_note_timed_host_call(struct accounts *a, struct host_call_cost *cost, uint64_t took_nanos)
{
	uint64_t timed = cost->calls < HOST_CALLS_TIMED ? cost->calls : HOST_CALLS_TIMED;
	cost->mean_nanos = (cost->mean_nanos * (timed - 1) + smaller(took_nanos, HOST_CALL_MAXIMUM_NANOS)) / timed;
	accounts_note_host_call(a, took_nanos);
}

void accounts_note_untimed_host_call(struct accounts *a, const struct host_call_cost *cost)
{
	note_host_part(a, cost->mean_nanos);
}

/* Reading a clock of CPU time is such a call, too. */
void accounts_note_cpu_clock_read(struct accounts *a)
{
	note_host_part(a, a->cpu_clock_read_nanos);
}

/* The clock of the kernel's CPU time was read. */
void accounts_look(struct accounts *a, uint64_t kernel_cpu)
{
	if (a->running_pid)
		return;
	uint64_t passed = less(kernel_cpu, a->looked_at_cpu);
	a->host_part_nanos = smaller(a->host_part_nanos, a->looked_at_host_part + passed - passed / OWN_SHARE);
	look_at_host_part(a, kernel_cpu);
}

/* What the kernel computes while its clock stands still is the emulation's work, and so the host's part: nearly all of
 * it, whatever calls were noted meanwhile. */
void accounts_begin_stop(struct accounts *a, uint64_t kernel_cpu)
{
	a->stopped_at_cpu = kernel_cpu;
	a->stopped_at_host_part = a->host_part_nanos;
}

void accounts_end_stop(struct accounts *a, uint64_t kernel_cpu)
{
	if (a->running_pid)
		return;
	uint64_t passed = less(kernel_cpu, a->stopped_at_cpu);
	a->host_part_nanos = a->stopped_at_host_part + passed - passed / OWN_SHARE;
	look_at_host_part(a, kernel_cpu);
	if (a->page->other_bound_nanos != CHRONODISK_NEVER)
		a->stops++;
}

/* What a recorder does in the kernel's process is none of the kernel's work. Were it counted and forgotten afterwards,
 * it would use up the bound below of the piece of work that it falls into, and what the kernel does then would count
 * in full. */
void accounts_begin_own_work(struct accounts *a, uint64_t kernel_cpu)
{
	a->own_since_cpu = kernel_cpu;
	a->own_since_host_part = a->host_part_nanos;
}

void accounts_end_own_work(struct accounts *a, uint64_t kernel_cpu)
{
	a->host_part_nanos = a->own_since_host_part + less(kernel_cpu, a->own_since_cpu);
	look_at_host_part(a, kernel_cpu);
}

/* ---- What work counts ----------------------------------------------------------------------------- */

/* No processor reads its time stamp counter in less. */
#define TSC_READ_NANOS 20ull

static uint64_t scale_of_work(const struct accounts *a)
{
	if (!a->booted)
		return 1000000u;
	return a->work == CHRONODISK_WORK_OTHER ? a->page->kernel_scale_millionths
						: a->page->costs[a->work].scale_millionths;
}

/* Entering and leaving a User Mode Linux takes a multiple of what it takes natively; the work in between, compressing
 * or drawing random numbers, takes as long, because it is the same code. So CPU time counts by the scale of its kind up
 * to a bound, and in full beyond. What pieces take varies with the host's caches and its other load, by several times
 * their mean in one of a hundred: what a piece leaves of its bound is spare for later ones of its kind, up to so many
 * bounds. */
#define SPARE_BOUNDS 16

static uint64_t bound_of_work(const struct accounts *a)
{
	return a->work == CHRONODISK_WORK_OTHER ? a->page->other_bound_nanos : a->page->costs[a->work].bound_nanos;
}

/* A stop of the clock for a request or a completion is an entry of its own: the host's signals and sockets are around
 * it, and the device's process has had the processor's caches. */
static uint64_t bound_of_piece(const struct accounts *a)
{
	return bound_of_work(a) + a->stops * a->page->other_bound_nanos;
}

/* CPU time of copying the bytes that system calls have transferred. */
static uint64_t cpu_of_copying(const struct accounts *a)
{
	return (uint64_t)((unsigned __int128)a->copied_bytes * a->page->copy_nanos_per_mib >> 20);
}

/* CPU time of requests, completions and ends of idle times, for which the prices of a native kernel are charged. */
static uint64_t cpu_of_priced_events(const struct accounts *a)
{
	return a->priced_events * a->page->request_bound_nanos;
}

void accounts_note_requests(struct accounts *a, uint64_t submitted, uint64_t completed, uint64_t woken)
{
	if (!a->booted || !a->page->request_bound_nanos)
		return;
	a->priced_nanos += submitted * a->page->submission_nanos + completed * a->page->completion_nanos +
			   woken * a->page->wake_up_nanos;
	a->priced_events += submitted + completed + woken;
}

/* How the CPU time of a piece of work is divided, without the part that the prices of events replace. */
struct division {
	uint64_t copying;
	uint64_t within; /* the bound and its unused parts of earlier pieces */
	uint64_t in_full;
};

static struct division division_of(const struct accounts *a, uint64_t cpu)
{
	cpu = less(cpu, cpu_of_priced_events(a));
	if (!a->booted || bound_of_work(a) == CHRONODISK_NEVER)
		return (struct division){ .within = cpu };
	uint64_t copying = smaller(cpu, cpu_of_copying(a));
	uint64_t within = smaller(cpu - copying, bound_of_piece(a) + a->spare_nanos[a->work]);
	return (struct division){ copying, within, cpu - copying - within };
}

/* Takes note of what is spare after a piece of work. */
static void note_spare(struct accounts *a, uint64_t within)
{
	uint64_t bound = bound_of_work(a);
	if (a->booted && bound != CHRONODISK_NEVER)
		a->spare_nanos[a->work] =
			smaller(bound_of_piece(a) + a->spare_nanos[a->work] - within, SPARE_BOUNDS * bound);
}

static uint64_t charge_for_work(const struct accounts *a, uint64_t cpu)
{
	uint64_t least = cpu / WORK_SHARE_MIN;
	struct division parts = division_of(a, cpu);
	uint64_t charge = parts.in_full + millionths(parts.copying, a->page->copy_scale_millionths);
	if (!a->booted || a->work == CHRONODISK_WORK_OTHER) {
		charge += millionths(parts.within, scale_of_work(a));
	} else {
		const struct chronodisk_cost *cost = &a->page->costs[a->work];
		charge += cost->added_nanos +
			  millionths(less(parts.within, cost->taken_off_nanos), cost->scale_millionths);
		least = least > WORK_NANOS_MIN ? least : WORK_NANOS_MIN;
	}
	return (charge > least ? charge : least) + a->priced_nanos;
}

/* ---- Cold caches ---------------------------------------------------------------------------------- */

/* After a long stop the guest's next steps run with cold caches, which a guest whose clock never
 * stopped would not have: with stops of 50 ms the kernel's way through a completion took 168 us of CPU
 * time instead of 14, and a program's first stretch 31 us instead of 3. So the next stretches count
 * what is usual, and the rest only when it exceeds what cold caches cost altogether; that is less in
 * proportion after stops of less than COLD_STOP_NANOS, and nothing below the minimum. A stretch of the
 * kernel's that copies a megabyte takes 270 us instead of 170, and a larger bound would take off its work. */
#define COLD_STOP_NANOS 5000000ull
#define COLD_STOP_MINIMUM_NANOS 500000ull
#define COLD_STRETCHES 16
#define COLD_USER_NANOS 40000ull
#define COLD_KERNEL_NANOS 200000ull
/* The kernel's way from an interrupt to user code or to idling takes 5 to 25 us of CPU time when warm. */
#define USUAL_KERNEL_NANOS 15000ull

/* Any stop in which the device's process had the processor costs the program's next stretch up to this. */
#define COOLED_NANOS 1000ull

/* How much of a stretch after a long stop is due to cold caches, if so much may be. */
static uint64_t cold_part(const struct accounts *a, uint64_t ran, uint64_t usual, uint64_t most)
{
	return a->cold_stretches ? smaller(less(ran, usual), most) : 0;
}

static uint64_t cold_part_of_kernel(const struct accounts *a, uint64_t kernel_cpu)
{
	return cold_part(a, kernel_cpu - a->kernel_since_cpu, USUAL_KERNEL_NANOS, a->cold_kernel_nanos);
}

static uint64_t cold_part_of_user(const struct accounts *a, uint64_t ran)
{
	if (a->cooled_nanos && !a->cold_stretches)
		return smaller(less(ran, a->usual_stretch_nanos), a->cooled_nanos);
	return cold_part(a, ran, a->usual_stretch_nanos, a->cold_user_nanos);
}

void accounts_begin_cold_stretches(struct accounts *a, uint64_t stopped_nanos)
{
	a->cold_stretches = 0;
	int corrects = a->booted && a->page->computing == CHRONODISK_COMPUTING_MEASURED;
	a->cooled_nanos = corrects && !a->running_pid ? COOLED_NANOS : 0;
	if (!corrects || stopped_nanos < COLD_STOP_MINIMUM_NANOS)
		return;
	uint64_t share = smaller(stopped_nanos, COLD_STOP_NANOS);
	a->cold_stretches = COLD_STRETCHES;
	a->cold_user_nanos = COLD_USER_NANOS * share / COLD_STOP_NANOS;
	a->cold_kernel_nanos = COLD_KERNEL_NANOS * share / COLD_STOP_NANOS;
}

/* ---- The base ------------------------------------------------------------------------------------- */

/* Whether a reading needs the CPU time of the guest's kernel. */
int accounts_need_kernel_cpu(const struct accounts *a)
{
	return !a->running_pid || a->handler_depth;
}

/* The kernel's own CPU time in its process. */
static uint64_t kernel_cpu(const struct accounts *a, struct cpu_reading now)
{
	uint64_t cpu;
	if (!a->running_pid)
		cpu = now.kernel;
	else
		cpu = a->resumed_kernel_cpu + a->handled_nanos +
		      (a->handler_depth ? now.kernel - a->handler_since_cpu : 0);
	return cpu - a->host_part_nanos - a->cold_kernel_total_nanos;
}

/* All CPU time of the guest's kernel so far. */
static uint64_t kernel_in_all(const struct accounts *a, struct cpu_reading now)
{
	uint64_t kernel = kernel_cpu(a, now);
	if (a->running_pid && !a->running_user_code)
		kernel += now.running - a->running_since_cpu;
	else if (!a->running_pid)
		kernel -= cold_part_of_kernel(a, kernel);
	return kernel + a->stub_kernel_cpu_nanos;
}

/* The guest's CPU time on its processor: programs in full, the kernel's by its work. */
uint64_t accounts_measured_base(const struct accounts *a, struct cpu_reading now)
{
	uint64_t user = a->user_cpu_nanos;
	if (a->running_pid && a->running_user_code) {
		uint64_t ran = now.running - a->running_since_cpu;
		user += less(ran - cold_part_of_user(a, ran), a->call_stop.nanos + a->overhead_owed_nanos);
	}
	uint64_t work = charge_for_work(a, less(kernel_in_all(a, now), a->work_since_cpu));
	uint64_t spent = user + a->charged_work_nanos + work;
	/* A slower clock would make the boot, which waits for ticks, last as many times as long. */
	if (!a->booted)
		return spent * a->boot_speed;
	if (a->page->cpu_speed_millionths == 1000000u)
		return spent;
	return (uint64_t)((unsigned __int128)spent * 1000000u / a->page->cpu_speed_millionths);
}

/* While computing takes no time, programs that wait for time to pass must see it pass: a read of the
 * time stamp counter takes as long as a processor needs for one, a yield what it costs natively. A
 * program that spins on memory is given a tick of the guest's scheduler for each alarm. */
#define YIELD_NANOS 500ull
#define SPIN_NANOS 10000000ull

uint64_t accounts_free_base(const struct accounts *a)
{
	return a->page->tsc_reads * TSC_READ_NANOS + a->yields * YIELD_NANOS + a->page->spins * SPIN_NANOS;
}

/* ---- V -------------------------------------------------------------------------------------------- */

/* A signal handler may have read the clock in between; V never steps back. */
uint64_t accounts_never_back(struct accounts *a, uint64_t virtual_nanos)
{
	uint64_t latest = __atomic_load_n(&a->latest_nanos, __ATOMIC_RELAXED);
	while ((int64_t)(virtual_nanos - latest) > 0)
		if (__atomic_compare_exchange_n(&a->latest_nanos, &latest, virtual_nanos, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return virtual_nanos;
	return latest;
}

/* The clock goes on from where it stopped. */
void accounts_go_on(struct accounts *a, uint64_t base)
{
	a->offset_nanos = (int64_t)(a->page->virtual_now - base);
	a->latest_nanos = a->page->virtual_now;
}

void accounts_jump(struct accounts *a, uint64_t nanos)
{
	a->offset_nanos += (int64_t)nanos;
	a->page->jumps++;
	a->page->jumped_nanos += nanos;
}

/* So much of the base does not count. */
void accounts_forget(struct accounts *a, uint64_t nanos)
{
	if (a->page->clock == CHRONODISK_CLOCK_EXACT)
		a->charged_nanos += nanos;
	else
		a->offset_nanos -= (int64_t)nanos;
}

/* Least time that passes at a grant whose interrupt is due, so that a replayer that asks for the rest gets on. */
#define GRANT_NANOS_MIN 1000ull

/* CPU time of the replayer, which counts by the processor's speed like all. */
static void note_replayer(struct accounts *a, uint64_t cpu)
{
	a->replayer_nanos += (uint64_t)((unsigned __int128)cpu * 1000000u / a->page->cpu_speed_millionths);
}

/* The system call that the kernel does now is one to the clock, and of no program. */
void accounts_note_replayers_call(struct accounts *a)
{
	a->is_replayers_call = a->page->computing == CHRONODISK_COMPUTING_MEASURED;
}

/* CPU time of a program that is not there, but no further than the next interrupt. The replayer's own is part of it.
 * Returns what is left. */
uint64_t accounts_grant(struct accounts *a, uint64_t nanos, uint64_t now, uint64_t target)
{
	if (a->page->computing == CHRONODISK_COMPUTING_MEASURED) {
		if (a->granted_until_user_nanos)
			note_replayer(a, less(a->user_cpu_nanos, a->granted_until_user_nanos));
		a->granted_until_user_nanos = a->user_cpu_nanos;
		uint64_t own = smaller(a->replayer_nanos, nanos);
		a->replayer_nanos -= own;
		nanos -= own;
	}
	uint64_t part = smaller(nanos, target > now ? target - now : GRANT_NANOS_MIN);
	a->granted_nanos += part;
	return nanos - part;
}

/* What has been computed and is not yet in the V of an exact kernel. */
uint64_t accounts_uncharged(const struct accounts *a, uint64_t base)
{
	return less(base, a->charged_nanos);
}

/* ---- Alarms --------------------------------------------------------------------------------------- */

/* If V did not move from one alarm to the next, its process has stopped already, and the guest's kernel was interrupted
 * before it could take note. On a slow host the alarm could come again before it gets to do so, each time, for ever: so
 * each such alarm doubles the least wait, up to this many times. */
#define FUTILE_ALARMS_MAX 9
/* An alarm that is set while the guest's kernel runs is late by at most this if user code takes over
 * and runs on, which moves V faster. */
#define LATENESS_MAXIMUM_NANOS 100000ull
/* How long the host's timer is to wait for V, which is now, to reach target, as if the guest went on doing what it
 * does: kernel code moves V on more slowly than the host's clock if its CPU time is scaled down. */
uint64_t accounts_alarm_wait(struct accounts *a, uint64_t now, uint64_t target)
{
	uint64_t wait = less(target, now);
	if (a->page->computing != CHRONODISK_COMPUTING_MEASURED)
		return wait ? wait : 1;
	int runs_program = a->running_pid && a->running_user_code;
	if (!wait && (runs_program || !a->booted))
		return 1;
	uint64_t scale = scale_of_work(a);
	wait = a->booted ? millionths(wait, a->page->cpu_speed_millionths) : wait / a->boot_speed;
	if (a->booted && !runs_program) {
		if (scale && scale < 1000000u)
			wait = smaller((uint64_t)((unsigned __int128)wait * 1000000u / scale),
				       wait + LATENESS_MAXIMUM_NANOS);
		wait = wait > KERNEL_ALARM_MINIMUM_NANOS ? wait : KERNEL_ALARM_MINIMUM_NANOS;
	}
	if (now != a->armed_at_nanos)
		a->futile_alarms = 0;
	else if (a->futile_alarms < FUTILE_ALARMS_MAX)
		a->futile_alarms++;
	a->armed_at_nanos = now;
	return wait > REARM_MINIMUM_NANOS << a->futile_alarms ? wait : REARM_MINIMUM_NANOS << a->futile_alarms;
}

/* The same if user code is about to run. V moves when the host has done its part of the program's first stop. */
uint64_t accounts_user_alarm_wait(const struct accounts *a, uint64_t now, uint64_t target)
{
	uint64_t wait = less(target, now);
	if (a->page->computing == CHRONODISK_COMPUTING_MEASURED) {
		wait = millionths(wait, a->page->cpu_speed_millionths) + a->call_stop.nanos + a->overhead_owed_nanos;
		if (a->longest_stretch_nanos < SHORT_STRETCH_NANOS + a->call_stop.nanos && wait < GUARD_NANOS)
			wait = GUARD_NANOS;
	}
	return wait > REARM_MINIMUM_NANOS ? wait : REARM_MINIMUM_NANOS;
}

/* ---- Who runs ------------------------------------------------------------------------------------- */

/* A handler of the guest's begins; whether it is the first, which then says so with the kernel's CPU time. */
int accounts_enter_handler(struct accounts *a)
{
	return a->handler_depth++ == 0;
}

void accounts_begin_handler(struct accounts *a, uint64_t kernel_cpu)
{
	a->handler_since_cpu = kernel_cpu;
}

/* Whether the end of a handler needs the kernel's CPU time. */
int accounts_handler_counts(const struct accounts *a)
{
	return a->handler_depth == 1 && a->running_pid;
}

void accounts_leave_handler(struct accounts *a, uint64_t kernel_cpu)
{
	if (accounts_handler_counts(a))
		a->handled_nanos += kernel_cpu - a->handler_since_cpu;
	a->handler_depth--;
}

/* A process is about to run; the kernel may have turned to another program than the one that returned. */
void accounts_note_switch(struct accounts *a, pid_t pid, int user_code)
{
	if (user_code && pid != a->returned_pid && (a->work == CHRONODISK_WORK_CALL || a->work == CHRONODISK_WORK_COPY))
		a->work = CHRONODISK_WORK_SWITCH;
}

/* The user process is about to run: its program if user_code, else what the kernel has it do. */
void accounts_begin_stretch(struct accounts *a, pid_t pid, int user_code, struct cpu_reading now)
{
	a->running_since_cpu = now.running;
	a->running_user_code = user_code;
	a->handled_nanos = 0;
	a->resumed_kernel_cpu = now.kernel;
	a->running_pid = pid;
}

/* The first quartile of the warm stretches, approached in small steps: three down weigh as one up. */
static void note_usual_stretch(struct accounts *a, uint64_t ran)
{
	uint64_t step = a->usual_stretch_nanos / 256 + 1;
	if (ran > a->usual_stretch_nanos)
		a->usual_stretch_nanos += step;
	else
		a->usual_stretch_nanos = less(a->usual_stretch_nanos, 3 * step);
}

/* Stops that may owe something. */
#define OVERHEAD_OWED_STOPS 16

/* A program has run for so long; its stop takes overhead_nanos of that. */
static void end_stretch_of_program(struct accounts *a, uint64_t ran, uint64_t overhead_nanos)
{
	a->page->traps++;
	a->longest_stretch_nanos -= a->longest_stretch_nanos / 16;
	if (ran > a->longest_stretch_nanos)
		a->longest_stretch_nanos = ran;
	if (a->cold_stretches) {
		uint64_t part = cold_part_of_user(a, ran);
		a->cold_user_nanos -= part;
		a->page->cold_nanos += part;
		ran -= part;
		a->cold_stretches--;
	} else {
		note_usual_stretch(a, ran);
		uint64_t part = cold_part_of_user(a, ran);
		a->page->cold_nanos += part;
		ran -= part;
	}
	a->cooled_nanos = 0;
	/* Whatever is taken off, a program that waits for time to pass must see it pass. */
	uint64_t owed = a->overhead_owed_nanos + overhead_nanos;
	uint64_t part = smaller(less(ran, TSC_READ_NANOS), owed);
	a->user_cpu_nanos += ran - part;
	a->page->trap_overhead_nanos += part;
	a->overhead_owed_nanos = smaller(owed - part, OVERHEAD_OWED_STOPS * a->call_stop.nanos);
}

/* The user process that runs has stopped; the host's part of that, which is not the guest's, takes
 * overhead_nanos of CPU time. The kernel then does what it stopped for. */
void accounts_end_stretch(struct accounts *a, struct cpu_reading now, uint64_t overhead_nanos)
{
	uint64_t ran = now.running - a->running_since_cpu;
	int user_code = a->running_user_code;
	a->host_part_nanos += less(now.kernel, a->resumed_kernel_cpu + a->handled_nanos);
	look_at_host_part(a, now.kernel);
	a->running_pid = 0;
	/* Of a stop that was made twice nothing is left. */
	if (!ran)
		return;
	a->last_stretch_nanos = ran;
	if (user_code)
		end_stretch_of_program(a, ran, overhead_nanos);
	else
		a->stub_kernel_cpu_nanos += less(ran, a->call_stop.nanos);
}

static void note_probe(struct stop_cost *cost, uint64_t ran);

/* The program that runs has stopped at this cost, and goes on at once. The kernel has no part in it, and the clock's own
 * work for it is the host's, like waiting for the program. */
void accounts_pass_stop(struct accounts *a, struct stop_cost *cost, uint64_t running)
{
	uint64_t ran = running - a->running_since_cpu;
	a->running_since_cpu = running;
	a->last_stretch_nanos = ran;
	/* The first process reads the counter after its calls without effect. */
	if (cost == &a->read_stop && a->call_stop.probe_count == PROBES)
		note_probe(cost, ran);
	end_stretch_of_program(a, ran, cost->nanos);
}

/* ---- The kernel's work ---------------------------------------------------------------------------- */

void accounts_begin_work(struct accounts *a, struct cpu_reading now, enum chronodisk_work next)
{
	uint64_t kernel = kernel_in_all(a, now);
	uint64_t cpu = less(kernel, a->work_since_cpu);
	struct division parts = division_of(a, cpu);
	uint64_t charge = charge_for_work(a, cpu);
	a->charged_work_nanos += charge;
	/* If the kernel turned to another program, what it did was not for the call alone. */
	if (a->is_replayers_call && a->work == CHRONODISK_WORK_CALL)
		note_replayer(a, charge);
	a->is_replayers_call = 0;
	a->page->kernel_in_full_nanos += a->booted ? parts.in_full : 0;
	note_spare(a, parts.within);
	a->page->kernel_work_nanos = kernel;
	a->page->kernel_counted_nanos = a->charged_work_nanos;
	a->page->kernel_requests_nanos += a->priced_nanos;
	if (a->work != CHRONODISK_WORK_OTHER) {
		a->page->worked[a->work].count++;
		a->page->worked[a->work].cpu_nanos += cpu;
		a->page->worked[a->work].copied_bytes += a->copied_bytes;
	}
	a->work = next;
	a->work_since_cpu = kernel;
	a->copied_bytes = 0;
	a->stops = 0;
	a->priced_nanos = 0;
	a->priced_events = 0;
}

void accounts_note_spurious_fault(struct accounts *a)
{
	if (a->work == CHRONODISK_WORK_FAULT)
		a->work = CHRONODISK_WORK_SPURIOUS_FAULT;
}

/* No call transfers more. */
#define TRANSFER_BYTES_MAX 0x7ffff000ull

/* Bytes that a system call is to transfer; the most that one can where it does not say it in a register. */
static uint64_t bytes_to_transfer(const struct user_regs_struct *registers)
{
	switch ((long)registers->orig_rax) {
	case SYS_read: case SYS_write: case SYS_pread64: case SYS_pwrite64: case SYS_sendto: case SYS_recvfrom:
		return smaller(registers->rdx, TRANSFER_BYTES_MAX);
	case SYS_sendfile:
		return smaller(registers->r10, TRANSFER_BYTES_MAX);
	case SYS_copy_file_range:
		return smaller(registers->r8, TRANSFER_BYTES_MAX);
	default:
		return TRANSFER_BYTES_MAX;
	}
}

static void note_transfer(struct accounts *a, const struct user_regs_struct *registers)
{
	a->transfers[a->returned_pid % TRANSFERS_MAX].pid = a->returned_pid;
	a->transfers[a->returned_pid % TRANSFERS_MAX].bytes = bytes_to_transfer(registers);
}

/* A program goes on with the result of its call. Its bytes are copied by the work that ends now, also if others ran or
 * the kernel idled since the call. */
void accounts_note_result(struct accounts *a, pid_t pid, int64_t result)
{
	if (a->transfers[pid % TRANSFERS_MAX].pid != pid)
		return;
	a->transfers[pid % TRANSFERS_MAX].pid = 0;
	uint64_t bytes = result > 0 ? smaller((uint64_t)result, a->transfers[pid % TRANSFERS_MAX].bytes) : 0;
	a->copied_bytes = less(bytes, SMALL_COPY_BYTES);
}

/* An open that makes or empties a file. */
#define OPENS_ANEW (O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))

/* Natively a look-up takes a third of what creating a file does; in a guest, as long. */
static int only_looks_up(const struct user_regs_struct *registers)
{
	switch ((long)registers->orig_rax) {
	case SYS_stat: case SYS_lstat: case SYS_statx: case SYS_access: case SYS_faccessat: case SYS_faccessat2:
	case SYS_readlink: case SYS_readlinkat:
		return 1;
	case SYS_newfstatat: /* of an open file, as the C library does it, there is no name */
		return !(registers->r10 & AT_EMPTY_PATH);
	case SYS_open:
		return !(registers->rsi & OPENS_ANEW);
	case SYS_openat:
		return !(registers->rdx & OPENS_ANEW);
	default:
		return 0;
	}
}

/* The program is back for a system call (asm/unistd_64.h has the numbers). */
void accounts_note_call(struct accounts *a, const struct user_regs_struct *registers)
{
	switch ((long)registers->orig_rax) {
	case SYS_read: case SYS_write: case SYS_pread64: case SYS_pwrite64:
	case SYS_readv: case SYS_writev: case SYS_preadv: case SYS_pwritev:
	case SYS_sendto: case SYS_recvfrom: case SYS_sendmsg: case SYS_recvmsg:
	case SYS_sendfile: case SYS_copy_file_range:
		a->work = CHRONODISK_WORK_COPY;
		note_transfer(a, registers);
		break;
	case SYS_mmap: case SYS_munmap: case SYS_mprotect: case SYS_mremap: case SYS_brk: case SYS_madvise:
		a->work = CHRONODISK_WORK_MAP;
		break;
	case SYS_clone: case SYS_clone3: case SYS_fork: case SYS_vfork: case SYS_execve: case SYS_execveat:
	case SYS_exit: case SYS_exit_group: case SYS_wait4: case SYS_waitid:
		a->work = CHRONODISK_WORK_PROCESS;
		break;
	case SYS_io_submit: case SYS_io_getevents: case SYS_io_pgetevents: case SYS_io_uring_enter:
		a->work = CHRONODISK_WORK_QUEUE;
		break;
	default:
		if (only_looks_up(registers))
			a->work = CHRONODISK_WORK_LOOK_UP;
		break;
	}
}

/* While computing takes no time, a program spins that makes this many system calls while V stands still, waiting in a
 * loop for another program, for example: about a second of them, but counted, so that runs repeat. */
#define SPIN_CALLS 65536u

/* A program has made a system call at this instant; whether that makes it spin. */
int accounts_spin_of_calls(struct accounts *a, uint64_t virtual_nanos)
{
	if (virtual_nanos != a->still_at_nanos) {
		a->still_at_nanos = virtual_nanos;
		a->still_calls = 0;
	}
	if (++a->still_calls < SPIN_CALLS)
		return 0;
	a->still_calls = 0;
	return 1;
}

/* ---- Stretches of the kernel ---------------------------------------------------------------------- */

/* Whether there is something to correct in the kernel's stretch. */
int accounts_kernel_stretch_is_cold(const struct accounts *a)
{
	return a->cold_stretches > 0;
}

void accounts_begin_kernel_stretch(struct accounts *a, struct cpu_reading now)
{
	a->kernel_since_cpu = kernel_cpu(a, now);
}

void accounts_end_kernel_stretch(struct accounts *a, struct cpu_reading now)
{
	uint64_t part = cold_part_of_kernel(a, kernel_cpu(a, now));
	a->cold_kernel_nanos -= part;
	a->cold_kernel_total_nanos += part;
	a->page->cold_nanos += millionths(part, scale_of_work(a));
}

/* ---- What a stop takes ---------------------------------------------------------------------------- */

/* The CPU time of a process that a stop takes depends on the host, and is measured in each run: the guest's
 * first process makes system calls that do nothing, and then reads the time stamp counter
 * (`src/inside/trap_probe.rs`), PROBES of each. The longest met an interrupt. */
#define PROBES_INTERRUPTED 5
/* The host's other load changes the cost of a stop from one second to the next, by half. So at one stop in
 * STOPS_PER_SAMPLE the program is sent back to its instruction and stops there again, at no cost but the stop's. Its
 * caches are warm, so it is quicker than other stops. The cost of other stops is the cost of the probes, changed in
 * proportion to these samples. */
#define STOPS_PER_SAMPLE 16
#define STOPS_PER_SAMPLE_OF_PROBES 4
#define SAMPLES_OF_MEAN 32
/* A sample counts at most so many times the mean: longer ones met an interrupt. */
#define SAMPLE_MEANS_MAX 2

static void note_probe(struct stop_cost *cost, uint64_t ran)
{
	if (cost->probe_count == PROBES)
		return;
	int at = cost->probe_count++;
	for (; at > 0 && cost->probed[at - 1] > ran; at--)
		cost->probed[at] = cost->probed[at - 1];
	cost->probed[at] = ran;
	if (cost->probe_count < PROBES)
		return;
	uint64_t sum = 0;
	for (at = 0; at < PROBES - PROBES_INTERRUPTED; at++)
		sum += cost->probed[at];
	cost->nanos = cost->probed_mean_nanos = sum / (PROBES - PROBES_INTERRUPTED);
	cost->sampled_at_probes_nanos = cost->sampled_nanos;
}

void accounts_note_probe(struct accounts *a)
{
	note_probe(&a->call_stop, a->last_stretch_nanos);
}

/* Whether the stop that a program has just made is to be made again. */
int accounts_want_sample(struct stop_cost *cost)
{
	int is_probing = cost->probe_count > 0 && cost->probe_count < PROBES;
	return ++cost->stops % (is_probing ? STOPS_PER_SAMPLE_OF_PROBES : STOPS_PER_SAMPLE) == 0;
}

/* It has been made again. */
void accounts_note_sample(struct accounts *a, struct stop_cost *cost, uint64_t running)
{
	uint64_t ran = running - a->running_since_cpu;
	a->running_since_cpu = running;
	a->page->trap_overhead_nanos += ran;
	if (cost->samples)
		ran = smaller(ran, SAMPLE_MEANS_MAX * cost->sampled_nanos);
	if (cost->samples < SAMPLES_OF_MEAN)
		cost->samples++;
	cost->sampled_nanos = (cost->sampled_nanos * (cost->samples - 1) + ran) / cost->samples;
	if (cost->sampled_at_probes_nanos)
		cost->nanos = cost->probed_mean_nanos * cost->sampled_nanos / cost->sampled_at_probes_nanos;
}
