// SPDX-License-Identifier: GPL-2.0
/*
 * The clock of a guest with several processors.
 *
 * Each processor has a virtual time v of its own: a charge for its kernel's work, and the CPU time of the programs
 * that run for it. They are the processes of a conservative parallel simulation (Chandy and Misra 1979).
 *
 *  - A processor that waits for the host, as for the device's emulator, uses no CPU time. Its v stands still, and no
 *    other gets more than a quantum past it. So the whole guest pauses without being stopped.
 *  - An idle processor has no v. Its timer and the next completion are due when the slowest running processor (the
 *    floor) reaches them. When all are idle, time jumps to the first of both.
 *  - A processor that another wakes begins at the v of the other.
 *  - A program reads the largest v that any processor has read, so time never steps back. It is at most a quantum past
 *    the floor.
 *
 * Each processor's record has one writer: its own thread, or under the lock the thread that wakes it.
 *
 * With the emulator it speaks as the preload library of guests with one processor does: the page (chronodisk_page.h),
 * and questions over the exchange socket.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <kern_util.h>
#include <os.h>
#include <smp.h>
#include <sysdep/ptrace.h>
#include <chronodisk_page.h>
#include <processors.h>
#include "internal.h"

typedef unsigned long long u64;
typedef long long s64;

enum state { OFF, RUNNING, IDLE };

int virtual_clock_on;
static struct chronodisk_page *page;
static int exchange_fd = -1;
static int line_fd = -1;	/* the guest's line to its launcher */
static int line_is_open;

static struct processor {
	enum state state;
	int tid;
	unsigned int seq;	/* odd while its own thread changes what follows */
	s64 base;
	s64 user;		/* CPU time of finished stretches of programs */
	s64 charged;		/* virtual time of finished pieces of the kernel's work */
	s64 own;		/* CPU time of the clock's work, which isn't the guest's */
	s64 piece_from;		/* the kernel's CPU time at the beginning of the present piece */
	int work;		/* its kind, an enum chronodisk_work */
	int is_counter_read;	/* it is a trapped read of the time-stamp counter */
	int priced_events;	/* requests and completions in it */
	s64 priced;
	s64 transferred;	/* bytes that its system call asks for */
	int stub;		/* process of the program that runs, or 0 */
	int last_stub;
	s64 stub_from;		/* its CPU time then */
	s64 ran;		/* CPU time of the last stretch of a program, unadjusted */
	s64 owed;		/* of stops, still to be taken off programs */
	s64 v;			/* last known */
	int futile_alarms;	/* in a row */
	s64 alarm_v;		/* v at the last alarm */
	s64 deadline;		/* of its timer; 0: none */
	s64 interval;
	int own_depth;		/* the clock's own work is under way */
	s64 own_begun;		/* its thread's CPU time then */
	s64 frozen_kernel;	/* its kernel's CPU time at another's kick; -1: none */
} processors[CONFIG_NR_CPUS];

static int running;
static int frozen;		/* processors that wait for the emulator's answer to a kick */
static s64 shown;		/* the most that has been read */
static s64 asked_until;		/* the emulator has been told of this instant */
static int lock;
static int kick_lock;

static s64 trap_nanos;		/* CPU time of a stop of a program */
static s64 probed[PROBES];
static int probes;

/* ---- Host ---- */

static s64 clock_of(clockid_t clock)
{
	struct timespec ts;

	if (syscall(__NR_clock_gettime, clock, &ts))
		return -1;
	return (s64)ts.tv_sec * UM_NSEC_PER_SEC + ts.tv_nsec;
}

/* How Linux encodes the CPU time of another process or thread in a clock's name. */
#define CLOCK_OF_PROCESS(pid) ((~(clockid_t)(pid) << 3) | 2)
#define CLOCK_OF_THREAD(tid) ((~(clockid_t)(tid) << 3) | 6)

static s64 millionths(s64 of, u64 share)
{
	return (s64)((unsigned __int128)of * share / 1000000u);
}

static s64 smaller(s64 value, s64 most)
{
	return value < most ? value : most;
}

static s64 larger(s64 value, s64 least)
{
	return value > least ? value : least;
}

static void nap(long nanos)
{
	const struct timespec wait = { .tv_nsec = nanos };

	syscall(__NR_nanosleep, &wait, NULL);
}

static void take(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigprocmask(SIG_BLOCK, &all, old);
	while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void release(const sigset_t *old)
{
	__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
	sigprocmask(SIG_SETMASK, old, NULL);
}

static void count(volatile uint64_t *word, u64 more)
{
	__atomic_fetch_add(word, more, __ATOMIC_RELAXED);
}

/* ---- The kernel's work ---- */

static u64 bound_of(int work)
{
	return work == CHRONODISK_WORK_OTHER ? page->other_bound_nanos : page->costs[work].bound_nanos;
}

/*
 * Charge for a piece of work of so much CPU time, as in the preload library (accounts.c): CPU time up to the bound of
 * its kind counts by a scale, copying beyond it by another, the rest in full. Requests have prices.
 */
static s64 charge_for(const struct processor *c, s64 cpu, int priced_events)
{
	u64 bound = bound_of(c->work);
	s64 within, copying, in_full, charge, least = cpu / (s64)WORK_SHARE_MIN;

	cpu = larger(cpu - priced_events * (s64)page->request_bound_nanos, 0);
	within = bound == CHRONODISK_NEVER ? cpu : smaller(cpu, (s64)bound);
	copying = smaller(cpu - within, (s64)((unsigned __int128)c->transferred * page->copy_nanos_per_mib >> 20));
	in_full = cpu - within - copying;
	charge = in_full + millionths(copying, page->copy_scale_millionths);
	if (c->work == CHRONODISK_WORK_OTHER) {
		charge += millionths(within, page->kernel_scale_millionths);
	} else {
		const struct chronodisk_cost *cost = &page->costs[c->work];

		charge += (s64)cost->added_nanos +
			  millionths(larger(within - (s64)cost->taken_off_nanos, 0), cost->scale_millionths);
		least = larger(least, (s64)WORK_NANOS_MIN);
	}
	return larger(charge, least);
}

/* CPU time of its kernel without the clock's own work, past or present. */
static s64 kernel_cpu(const struct processor *c, int is_own)
{
	if (__atomic_load_n(&c->own_depth, __ATOMIC_ACQUIRE))
		return c->own_begun - c->own;
	return clock_of(is_own ? CLOCK_THREAD_CPUTIME_ID : CLOCK_OF_THREAD(c->tid)) - c->own;
}

static void begin_change(struct processor *c)
{
	__atomic_store_n(&c->seq, c->seq + 1, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
}

static void end_change(struct processor *c)
{
	__asm__ volatile("" ::: "memory");
	__atomic_store_n(&c->seq, c->seq + 1, __ATOMIC_RELEASE);
}

/* The present piece of its own processor's work has ended. Only within begin_change() and end_change(). */
static void end_piece(struct processor *c)
{
	s64 kernel = kernel_cpu(c, 1);
	s64 cpu = larger(kernel - c->piece_from, 0);
	int events = __atomic_exchange_n(&c->priced_events, 0, __ATOMIC_ACQ_REL);
	s64 priced = __atomic_exchange_n(&c->priced, 0, __ATOMIC_ACQ_REL);
	s64 charge = c->is_counter_read ? 0 : charge_for(c, cpu, events) + priced;

	c->charged += charge;
	count(&page->kernel_cpu_nanos, cpu);
	count(&page->kernel_work_nanos, cpu);
	count(&page->kernel_counted_nanos, charge);
	count(&page->kernel_requests_nanos, priced);
	if (c->work != CHRONODISK_WORK_OTHER) {
		count(&page->worked[c->work].count, 1);
		count(&page->worked[c->work].cpu_nanos, cpu);
	}
	c->piece_from = kernel;
	c->work = CHRONODISK_WORK_OTHER;
	c->is_counter_read = 0;
	c->transferred = 0;
}

/* By its own thread, or under the lock by one that brings it an interrupt. */
static void price(struct processor *c, s64 nanos)
{
	__atomic_fetch_add(&c->priced, nanos, __ATOMIC_ACQ_REL);
	__atomic_fetch_add(&c->priced_events, 1, __ATOMIC_ACQ_REL);
}

/* ---- The time of a processor ---- */

static struct processor *own(void)
{
	return &processors[uml_curr_cpu()];
}

/*
 * v of a processor now; of another one at least what it is known to have reached. A piece of work that has not ended
 * counts by the scale of work without a kind.
 */
static s64 look_at(struct processor *c, int is_own)
{
	unsigned int seq = __atomic_load_n(&c->seq, __ATOMIC_ACQUIRE);
	s64 known = __atomic_load_n(&c->v, __ATOMIC_RELAXED);
	s64 computed = c->user + c->charged;
	s64 v;
	int stub = __atomic_load_n(&c->stub, __ATOMIC_ACQUIRE);

	computed += millionths(larger(kernel_cpu(c, is_own) - c->piece_from, 0), page->kernel_scale_millionths);
	if (stub)
		computed += larger(clock_of(CLOCK_OF_PROCESS(stub)) - c->stub_from - trap_nanos, 0);
	v = c->base + (s64)((__int128)computed * 1000000 / (s64)page->cpu_speed_millionths);
	if (!is_own && (seq & 1 || seq != __atomic_load_n(&c->seq, __ATOMIC_ACQUIRE)))
		return known;
	return larger(v, known);
}

static s64 own_v(void)
{
	struct processor *c = own();
	s64 v = look_at(c, 1);

	__atomic_store_n(&c->v, v, __ATOMIC_RELAXED);
	return v;
}

static void set_v(struct processor *c, s64 v)
{
	s64 now = look_at(c, c == own());

	if (v > now)
		c->base += v - now;
	else
		v = now;
	c->v = v;
}

/* The clock's own work takes no virtual time. An alarm may come while a processor waits in it. */
static void begin_own_work(void)
{
	struct processor *c = own();

	if (!c->own_depth)
		c->own_begun = clock_of(CLOCK_THREAD_CPUTIME_ID);
	__atomic_add_fetch(&c->own_depth, 1, __ATOMIC_ACQ_REL);
}

static void end_own_work(struct processor *c)
{
	if (c->own_depth > 1) {
		c->own_depth--;
		return;
	}
	begin_change(c);
	__atomic_fetch_add(&c->own, clock_of(CLOCK_THREAD_CPUTIME_ID) - c->own_begun, __ATOMIC_RELAXED);
	__atomic_store_n(&c->own_depth, 0, __ATOMIC_RELEASE);
	end_change(c);
}

/* v of the slowest running processor but this one; -1 if none runs. */
static s64 floor_of_others(const struct processor *except)
{
	s64 least = -1;
	int i;

	for (i = 0; i < CONFIG_NR_CPUS; i++) {
		s64 v;

		if (&processors[i] == except || __atomic_load_n(&processors[i].state, __ATOMIC_ACQUIRE) != RUNNING)
			continue;
		v = look_at(&processors[i], 0);
		if (least < 0 || v < least)
			least = v;
	}
	return least;
}

static s64 floor_with(struct processor *c)
{
	s64 others = running > 1 ? floor_of_others(c) : -1;

	return others >= 0 && others < c->v ? others : c->v;
}

static s64 show(s64 v)
{
	s64 old = __atomic_load_n(&shown, __ATOMIC_RELAXED);

	while (v > old && !__atomic_compare_exchange_n(&shown, &old, v, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	return larger(v, old);
}

unsigned long long virtual_clock_read(void)
{
	return own()->state == OFF ? shown : show(own_v());
}

unsigned long long virtual_clock_realtime(void)
{
	return page->realtime_start_nanos + virtual_clock_read();
}

/* The time-stamp counter, of which reads trap (kernel/trap.c). Only the read itself takes time. */
unsigned long long virtual_clock_counter(void)
{
	struct processor *c = own();

	count(&page->tsc_reads, 1);
	c->owed += (s64)page->tsc_extra_nanos - (s64)page->fault_extra_nanos;
	c->is_counter_read = 1;
	return (u64)((unsigned __int128)virtual_clock_read() * page->tsc_hertz / UM_NSEC_PER_SEC);
}

/* ---- Timers ---- */

/*
 * No alarm of the host comes sooner: at less, a processor would only take alarms. The kernel itself looks for
 * completions when it turns to a program or idles. Each alarm at which v has not moved doubles the next wait: an
 * alarm may interrupt the clock's own work, during which v stands still.
 */
#define ALARM_NANOS_MIN 5000
#define KERNEL_ALARM_NANOS_MIN 200000
#define FUTILE_ALARMS_MAX 6

static s64 quantum(void)
{
	return (s64)page->quantum_nanos;
}

/* Host time in which v moves by so much at most: v is CPU time, scaled by the processor's speed. */
static s64 host_wait(s64 nanos)
{
	u64 speed = page->cpu_speed_millionths;

	return speed < 1000000u ? millionths(nanos, speed) : nanos;
}

/* The host's alarm is a reason to look again. */
static void arm(int cpu)
{
	struct processor *c = &processors[cpu];
	s64 least = (s64)ALARM_NANOS_MIN << c->futile_alarms;
	s64 wait = -1;

	if (c->deadline)
		wait = larger(host_wait(c->deadline - larger(c->v, shown)), least);
	if (!frozen && page->completion_bound != CHRONODISK_NEVER && c->state == RUNNING) {
		s64 due = (s64)page->completion_bound - c->v;

		/* It waits for slower processors then. */
		due = due <= 0 && running > 1 ? quantum() / 2 : host_wait(due);
		due = larger(due, c->stub ? least : KERNEL_ALARM_NANOS_MIN);
		wait = wait < 0 ? due : smaller(wait, due);
	}
	if (running > 1 && c->state == RUNNING)
		wait = wait < 0 ? quantum() / 2 : smaller(wait, quantum() / 2);
	os_host_timer(cpu, wait < 0 ? 0 : wait);
}

void virtual_clock_set_timer(int cpu, unsigned long long nsecs, unsigned long long interval)
{
	struct processor *c = &processors[cpu];

	c->deadline = nsecs ? (s64)(virtual_clock_read() + nsecs) : 0;
	c->interval = interval;
	arm(cpu);
}

/* ---- The emulator ---- */

static void transfer(int writes, void *bytes, size_t len_bytes)
{
	char *at = bytes;

	while (len_bytes) {
		ssize_t moved = writes ? sendto(exchange_fd, at, len_bytes, MSG_NOSIGNAL, NULL, 0)
				       : syscall(__NR_read, exchange_fd, at, len_bytes);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved <= 0)
			_exit(EXIT_BACKEND_LOST);
		at += moved;
		len_bytes -= (size_t)moved;
	}
}

/* Under the lock. */
static struct chronodisk_answer ask(enum chronodisk_ask kind, s64 at, s64 guest_timer)
{
	struct chronodisk_question question = {
		.ask = kind,
		.virtual_now = (u64)larger(at, asked_until),
		.guest_timer = guest_timer ? (u64)guest_timer : CHRONODISK_NEVER,
	};
	struct chronodisk_answer answer;

	page->virtual_now = question.virtual_now;
	transfer(1, &question, sizeof(question));
	transfer(0, &answer, sizeof(answer));
	asked_until = larger((s64)answer.virtual_now, (s64)question.virtual_now);
	page->virtual_now = (u64)asked_until;
	return answer;
}

static void wake_at(struct processor *c, s64 v);

/* The emulator has completed requests: its interrupt comes to the first processor, by SIGIO. Under the lock. */
static void interrupt(const struct chronodisk_answer *answer, int ended_idling)
{
	struct processor *first = &processors[0];

	if (!answer->completed)
		return;
	count(&page->interrupts, 1);
	if (first->state == IDLE)
		wake_at(first, (s64)answer->virtual_now);
	price(first, (s64)(answer->completed * page->completion_nanos + (ended_idling ? page->wake_up_nanos : 0)));
	if (first->stub)
		os_alarm_process(first->stub);
}

static int is_due(s64 instant)
{
	return !frozen && page->completion_bound != CHRONODISK_NEVER && (s64)page->completion_bound <= instant;
}

static void deliver(s64 until)
{
	struct chronodisk_answer answer = ask(CHRONODISK_ASK_INTERRUPT, until, 0);

	interrupt(&answer, 0);
}

/* While the emulator works on a kick it would answer late, and all would wait. */
static void deliver_due(s64 until)
{
	sigset_t old;

	if (!is_due(until))
		return;
	take(&old);
	if (is_due(until))
		deliver(until);
	release(&old);
}

/* ---- The kick ---- */

/*
 * While a processor's kick is being answered, kernels of others may spin for a lock or an interprocessor interrupt
 * of it, for as long as the host takes. Beyond an allowance that does not count.
 */
#define SPIN_NANOS_MAX 2000

static void freeze_others(void)
{
	int i;

	for (i = 0; i < CONFIG_NR_CPUS; i++) {
		struct processor *c = &processors[i];

		c->frozen_kernel = -1;
		if (c == own() || c->state != RUNNING)
			continue;
		c->frozen_kernel = kernel_cpu(c, 0);
		/* A program that is ahead of the kick pauses at once. */
		if (c->stub && look_at(c, 0) > own()->v)
			os_alarm_process(c->stub);
	}
}

static void thaw_others(void)
{
	int i;

	for (i = 0; i < CONFIG_NR_CPUS; i++) {
		struct processor *c = &processors[i];
		s64 spun;

		if (c == own() || c->state == OFF || c->frozen_kernel < 0)
			continue;
		spun = kernel_cpu(c, 0) - c->frozen_kernel - SPIN_NANOS_MAX;
		if (spun <= 0)
			continue;
		count(&page->spins, 1);
		__atomic_fetch_add(&c->own, spun, __ATOMIC_RELAXED);
	}
}

static int try_kick_lock(void *word)
{
	return !__atomic_exchange_n((int *)word, 1, __ATOMIC_ACQUIRE);
}

/* Kicks of several devices come one after the other: the page has one instant. */
void virtual_clock_before_kick(void)
{
	struct processor *c = own();
	sigset_t old;
	s64 v;

	virtual_clock_wait_for_lock(try_kick_lock, &kick_lock);
	price(c, (s64)page->submission_nanos);
	begin_own_work();
	take(&old);
	own_v();
	__atomic_add_fetch(&frozen, 1, __ATOMIC_ACQ_REL);
	freeze_others();
	v = larger(own_v(), asked_until);
	asked_until = v;
	page->virtual_now = (u64)v;
	page->issuer = c->work == CHRONODISK_WORK_OTHER ? CHRONODISK_ISSUER_UNKNOWN : CHRONODISK_ISSUER_PROGRAM;
	count(&page->kicks, 1);
	release(&old);
}

void virtual_clock_after_kick(int failed)
{
	if (failed)
		_exit(EXIT_BACKEND_LOST);
	thaw_others();
	__atomic_sub_fetch(&frozen, 1, __ATOMIC_ACQ_REL);
	if (page->completion_bound != CHRONODISK_NEVER)
		arm(uml_curr_cpu());
	end_own_work(own());
	__atomic_store_n(&kick_lock, 0, __ATOMIC_RELEASE);
}

/* ---- Alarms ---- */

/* The host's timer has sent its signal. Returns whether the guest's timer is due. */
int virtual_clock_alarm(void)
{
	int cpu = uml_curr_cpu();
	struct processor *c = &processors[cpu];
	s64 now, least;

	if (c->state == OFF)
		return 1;
	begin_own_work();
	now = virtual_clock_read();
	count(&page->alarms, 1);
	if (c->v - c->alarm_v >= ALARM_NANOS_MIN)
		c->futile_alarms = 0;
	else if (c->futile_alarms < FUTILE_ALARMS_MAX)
		c->futile_alarms++;
	c->alarm_v = c->v;
	if (c->deadline && now >= c->deadline) {
		if (c->interval)
			c->deadline += ((now - c->deadline) / c->interval + 1) * c->interval;
		else
			c->deadline = 0;
		arm(cpu);
		end_own_work(c);
		return 1;
	}
	least = floor_with(c);
	deliver_due(least);
	if (c->stub && running > 1 && c->v > least + quantum())
		os_alarm_process(c->stub);
	arm(cpu);
	end_own_work(c);
	return 0;
}

/* ---- Idling ---- */

/* Under the lock. */
static void wake_at(struct processor *c, s64 v)
{
	int i;

	set_v(c, v);
	__atomic_store_n(&c->state, RUNNING, __ATOMIC_RELEASE);
	/* Its kernel may spin until the next tick, and has no other alarm. */
	arm((int)(c - processors));
	if (++running != 2)
		return;
	for (i = 0; i < CONFIG_NR_CPUS; i++)
		if (processors[i].state == RUNNING)
			arm(i);
}

static void ring(struct processor *c)
{
	syscall(__NR_tgkill, getpid(), c->tid, SIGALRM);
}

/* A processor that opens the guest's line to its launcher. */
void virtual_clock_watches(int fd)
{
	if (fd == line_fd)
		line_is_open = 1;
}

/* Whether data are on their way between guest and launcher, whose speed must not show. */
static int is_unsettled(void)
{
	int unread = 0;

	if (!line_is_open)
		return 0;
	return (ioctl(line_fd, SIOCOUTQ, &unread) == 0 && unread > 0) || page->launcher_owes;
}

/* Whether idle time passes with the host's: somebody is expected to type. */
static int follows_host(void)
{
	return page->idling != CHRONODISK_IDLING_JUMP || page->input_awaited;
}

static struct processor *first_timer(void)
{
	struct processor *first = NULL;
	int i;

	for (i = 0; i < CONFIG_NR_CPUS; i++)
		if (processors[i].state == IDLE && processors[i].deadline &&
		    (!first || processors[i].deadline < first->deadline))
			first = &processors[i];
	return first;
}

/* All processors are idle: time goes on at the first timer or completion. Under the lock. */
static void jump(void)
{
	struct processor *first = first_timer();
	s64 from = shown, to;

	if (page->outstanding) {
		struct chronodisk_answer answer = ask(CHRONODISK_ASK_IDLE, shown, first ? first->deadline : 0);

		count(&page->idle_exchanges, 1);
		interrupt(&answer, 1);
		to = (s64)answer.virtual_now;
	} else if (first) {
		to = first->deadline;
	} else {
		return;		/* only the host can wake it now */
	}
	count(&page->jumps, 1);
	if (to > from)
		count(&page->jumped_nanos, (u64)(to - from));
	if (first && first->state == IDLE && to >= first->deadline) {
		wake_at(first, first->deadline);
		ring(first);
	}
}

#define LOOK_AGAIN_NANOS 20000
#define LOOK_AGAIN_NANOS_MAX 1000000
#define SETTLE_NANOS 50000

/* How long an idle processor waits before it looks again; 0: until a signal. */
static s64 idle_wait(struct processor *c, s64 *patience, s64 *last_floor)
{
	s64 next = c->deadline, least;

	if (!running && is_unsettled())
		return SETTLE_NANOS;
	if (page->completion_bound != CHRONODISK_NEVER && (!next || (s64)page->completion_bound < next))
		next = (s64)page->completion_bound;
	if (!next)
		return 0;
	if (!running)
		return follows_host() ? larger(next - shown, LOOK_AGAIN_NANOS) : 0;
	least = floor_of_others(c);
	/* A floor that stands still waits for the host. */
	*patience = least == *last_floor ? smaller(*patience * 2, LOOK_AGAIN_NANOS_MAX) : LOOK_AGAIN_NANOS;
	*last_floor = least;
	return larger(host_wait(next - least), *patience);
}

/* So much of the host's time has passed while all processors idled. */
static void pass(const struct processor *c, s64 nanos)
{
	s64 to = shown + nanos;

	show(c->deadline ? smaller(to, c->deadline) : to);
}

/* Decides what an idle processor does after a wait; whether it still idles. Under the lock. */
static int goes_on_idling(struct processor *c, int woken)
{
	s64 least;

	if (c->state != IDLE)
		return 0;
	if (!running && !is_unsettled() && (!woken || !follows_host()))
		jump();
	if (c->state != IDLE)
		return 0;
	least = floor_of_others(c);
	if (least >= 0 && is_due(least))
		deliver(least);
	if (c->state != IDLE)
		return 0;
	if (woken) {
		if (least >= 0 && c->deadline)
			least = smaller(least, c->deadline);
		wake_at(c, least >= 0 ? least : shown);
		return 0;
	}
	if (c->deadline && least >= c->deadline) {
		wake_at(c, c->deadline);
		ring(c);
		return 0;
	}
	return 1;
}

/* Waits for an interrupt. SIGALRM and interprocessor interrupts are blocked and come from wake_fd; SIGIO ends it. */
void virtual_clock_idle(int wake_fd)
{
	int cpu = uml_curr_cpu();
	struct processor *c = &processors[cpu];
	struct pollfd wake = { .fd = wake_fd, .events = POLLIN };
	s64 last_floor = -1, patience = LOOK_AGAIN_NANOS, since_host;
	sigset_t old;
	int woken;

	begin_own_work();
	take(&old);
	own_v();
	/* Who sends an interprocessor interrupt holds the lock. */
	if (os_interrupts_pending() || poll(&wake, 1, 0) > 0) {
		release(&old);
		end_own_work(c);
		return;
	}
	begin_change(c);
	end_piece(c);
	end_change(c);
	show(own_v());
	__atomic_store_n(&c->state, IDLE, __ATOMIC_RELEASE);
	running--;
	os_host_timer(cpu, 0);
	if (!running && !is_unsettled() && !follows_host())
		jump();
	do {
		s64 nanos = c->state == IDLE ? idle_wait(c, &patience, &last_floor) : 0;
		struct timespec wait = { .tv_sec = nanos / UM_NSEC_PER_SEC, .tv_nsec = nanos % UM_NSEC_PER_SEC };

		since_host = clock_of(CLOCK_MONOTONIC);
		__atomic_store_n(&lock, 0, __ATOMIC_RELEASE);
		woken = syscall(__NR_ppoll, &wake, 1, nanos ? &wait : NULL, &old, 8);
		while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE))
			sched_yield();
		if (!running && follows_host())
			pass(c, clock_of(CLOCK_MONOTONIC) - since_host);
	} while (goes_on_idling(c, woken));
	release(&old);
	end_own_work(c);
}

/* ---- Between processors ---- */

/* Under one lock with the change of the receiver's state, so that no jump passes a wake-up on its way. */
int virtual_clock_send_ipi(int cpu, int (*send)(int, int), int vector)
{
	struct processor *c = &processors[cpu];
	sigset_t old;
	int err;

	begin_own_work();
	take(&old);
	if (c->state == IDLE)
		wake_at(c, own_v());
	err = send(cpu, vector);
	release(&old);
	end_own_work(own());
	return err;
}

/* Lets slower processors catch up before a program runs. Returns whether it has waited. */
int virtual_clock_throttle(void)
{
	struct processor *c = own();
	int has_waited = 0;

	if (!virtual_clock_on || running < 2)
		return 0;
	begin_own_work();
	while (__atomic_load_n(&running, __ATOMIC_RELAXED) > 1) {
		s64 least = floor_of_others(c), v = own_v();

		if (least >= 0 && v - least > (s64)page->lead_nanos_max)
			page->lead_nanos_max = (u64)(v - least);
		if (least < 0 || v <= least + (frozen ? 0 : quantum()))
			break;
		if (!has_waited)
			count(&page->waits, 1);
		has_waited = 1;
		nap(50000);
		if (uml_need_resched())
			break;	/* an interrupt has come */
	}
	end_own_work(c);
	return has_waited;
}

/*
 * Only one thread of a program can be in its stub at a time. A processor that waits for another uses no CPU time, so
 * its v stands still and the other gets at most a quantum ahead: in virtual time they run at once.
 */
void virtual_clock_wait_turn(void)
{
	begin_own_work();
	nap(50000);
	end_own_work(own());
}

/* Waits for a lock that another processor holds while it waits for the host. */
void virtual_clock_wait_for_lock(int (*try)(void *), void *lock_to_take)
{
	begin_own_work();
	while (!try(lock_to_take))
		nap(20000);
	end_own_work(own());
}

/* ---- Programs ---- */

static int work_of_call(long number)
{
	switch (number) {
	case __NR_read: case __NR_write: case __NR_pread64: case __NR_pwrite64:
	case __NR_readv: case __NR_writev: case __NR_preadv: case __NR_pwritev:
	case __NR_sendto: case __NR_recvfrom: case __NR_sendmsg: case __NR_recvmsg:
	case __NR_sendfile: case __NR_copy_file_range:
		return CHRONODISK_WORK_COPY;
	case __NR_mmap: case __NR_munmap: case __NR_mprotect: case __NR_mremap: case __NR_brk: case __NR_madvise:
		return CHRONODISK_WORK_MAP;
	case __NR_clone: case __NR_clone3: case __NR_fork: case __NR_vfork: case __NR_execve: case __NR_execveat:
	case __NR_exit: case __NR_exit_group: case __NR_wait4: case __NR_waitid:
		return CHRONODISK_WORK_PROCESS;
	case __NR_io_submit: case __NR_io_getevents: case __NR_io_pgetevents: case __NR_io_uring_enter:
		return CHRONODISK_WORK_QUEUE;
	case __NR_stat: case __NR_lstat: case __NR_statx: case __NR_access: case __NR_faccessat: case __NR_faccessat2:
	case __NR_readlink: case __NR_readlinkat:
		return CHRONODISK_WORK_LOOK_UP;
	default:
		return CHRONODISK_WORK_CALL;
	}
}

/* Longest transfer of a call that is counted as copying: the largest of Linux. */
#define TRANSFER_BYTES_MAX 0x7ffff000

static s64 transfer_of(const unsigned long *regs)
{
	switch (regs[HOST_ORIG_AX]) {
	case __NR_read: case __NR_write: case __NR_pread64: case __NR_pwrite64:
	case __NR_sendto: case __NR_recvfrom:
		return smaller((s64)(regs[HOST_DX] & 0x7fffffff), TRANSFER_BYTES_MAX);
	default:
		return 0;
	}
}

void virtual_clock_enter_user(int pid)
{
	struct processor *c = own();

	if (!virtual_clock_on)
		return;
	begin_change(c);
	if (pid != c->last_stub && (c->work == CHRONODISK_WORK_CALL || c->work == CHRONODISK_WORK_COPY))
		c->work = CHRONODISK_WORK_SWITCH;
	end_piece(c);
	c->stub_from = clock_of(CLOCK_OF_PROCESS(pid));
	__atomic_store_n(&c->stub, pid, __ATOMIC_RELEASE);
	end_change(c);
	c->last_stub = pid;
	if (page->completion_bound == CHRONODISK_NEVER)
		return;
	begin_own_work();
	own_v();
	deliver_due(floor_with(c));
	c->futile_alarms = 0;
	arm(uml_curr_cpu());
	end_own_work(c);
}

/*
 * The guest's first process makes system calls without effect (src/trap_probe.rs), so that each run measures what a
 * stop takes. The longest met an interrupt of the host.
 */
#define PROBES_INTERRUPTED 5

static void note_probe(s64 ran)
{
	int at = probes;
	s64 sum = 0;

	if (probes == PROBES)
		return;
	for (probes++; at > 0 && probed[at - 1] > ran; at--)
		probed[at] = probed[at - 1];
	probed[at] = ran;
	if (probes < PROBES)
		return;
	for (at = 0; at < PROBES - PROBES_INTERRUPTED; at++)
		sum += probed[at];
	trap_nanos = sum / (PROBES - PROBES_INTERRUPTED);
}

/* A program that waits for time to pass must see it pass: no stretch counts less. */
#define STRETCH_NANOS_MIN 20
/* Stops that may be owed. */
#define STOPS_OWED_MAX 16

/* A program has stopped, by this signal to its stub. */
void virtual_clock_leave_user(int sig)
{
	struct processor *c = own();
	s64 ran, part;

	if (!virtual_clock_on)
		return;
	c->ran = ran = larger(clock_of(CLOCK_OF_PROCESS(c->stub)) - c->stub_from, 0);
	begin_change(c);
	c->owed += trap_nanos + (sig == SIGSEGV ? (s64)page->fault_extra_nanos : 0);
	part = smaller(larger(ran - STRETCH_NANOS_MIN, 0), c->owed);
	c->user += ran - part;
	c->owed = smaller(c->owed - part, STOPS_OWED_MAX * trap_nanos);
	__atomic_store_n(&c->stub, 0, __ATOMIC_RELEASE);
	c->piece_from = kernel_cpu(c, 1);
	c->work = sig == SIGSEGV ? CHRONODISK_WORK_FAULT : CHRONODISK_WORK_OTHER;
	end_change(c);
	count(&page->traps, 1);
	count(&page->user_cpu_nanos, (u64)(ran - part));
	count(&page->trap_overhead_nanos, (u64)part);
}

/* It has stopped for a system call. */
void virtual_clock_note_call(const unsigned long *regs)
{
	struct processor *c = own();

	if (!virtual_clock_on)
		return;
	c->work = work_of_call((long)regs[HOST_ORIG_AX]);
	c->transferred = transfer_of(regs);
	if (regs[HOST_DI] == PROBE_MARK)
		note_probe(c->ran);
}

/* ---- Start ---- */

static int descriptor_in(const char *variable)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : -1;
}

void virtual_clock_init(void)
{
	int fd = descriptor_in(PAGE_VARIABLE);
	struct chronodisk_page *mapped;

	if (fd < 0)
		return;
	mapped = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED || mapped->magic != PAGE_MAGIC)
		_exit(EXIT_BACKEND_LOST);
	if (mapped->clock != CHRONODISK_CLOCK_SEVERAL)
		return;
	page = mapped;
	exchange_fd = descriptor_in(EXCHANGE_VARIABLE);
	line_fd = descriptor_in(SERIAL_OUT_VARIABLE);
	trap_nanos = (s64)page->trap_nanos_unmeasured;
	virtual_clock_on = 1;
}

void virtual_clock_start_cpu(int cpu)
{
	struct processor *c = &processors[cpu];
	sigset_t old;

	take(&old);
	c->tid = (int)syscall(__NR_gettid);
	c->work = CHRONODISK_WORK_OTHER;
	c->piece_from = kernel_cpu(c, 1);
	c->state = RUNNING;
	set_v(c, shown);
	running++;
	release(&old);
}
