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
 *  - A processor that another wakes begins at the v of the other. A completion wakes it at the completion's instant.
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
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <kern_util.h>
#include <smp.h>
#include "internal.h"
#include "processors_internal.h"

int virtual_clock_on;
struct chronodisk_page *clock_page;
s64 trap_nanos;
static struct processor processors[CONFIG_NR_CPUS];
static int exchange_fd = -1;
static int line_fd = -1;	/* the guest's line to its launcher */
static int line_is_open;

static int running;
static int frozen;		/* processors that wait for the emulator's answer to a kick */
static s64 completed_at;	/* instant of completions whose interrupt is on its way; 0: none */
static s64 completed_on_host;	/* the host's time then */
static s64 shown;		/* the most that has been read */
static s64 asked_until;		/* the emulator has been told of this instant */
static int lock;
static int kick_lock;

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

/* ---- The time of a processor ---- */

struct processor *own_processor(void)
{
	return &processors[uml_curr_cpu()];
}

/*
 * v of a processor now; for another processor, at least its last known v. Unfinished work counts by the scale of work
 * without a kind.
 */
static s64 look_at(struct processor *c, int is_own)
{
	unsigned int seq = __atomic_load_n(&c->seq, __ATOMIC_ACQUIRE);
	s64 known = __atomic_load_n(&c->v, __ATOMIC_RELAXED);
	s64 computed = c->user + c->charged;
	s64 v;
	int stub = __atomic_load_n(&c->stub, __ATOMIC_ACQUIRE);

	computed += millionths(larger(kernel_cpu(c, is_own) - c->piece_from, 0), clock_page->kernel_scale_millionths);
	if (stub)
		computed += larger(clock_of(CLOCK_OF_PROCESS(stub)) - c->stub_from - trap_nanos, 0);
	v = c->base + (s64)((__int128)computed * 1000000 / (s64)clock_page->cpu_speed_millionths);
	if (!is_own && (seq & 1 || seq != __atomic_load_n(&c->seq, __ATOMIC_ACQUIRE)))
		return known;
	return larger(v, known);
}

static s64 own_v(void)
{
	struct processor *c = own_processor();
	s64 v = look_at(c, 1);

	__atomic_store_n(&c->v, v, __ATOMIC_RELAXED);
	return v;
}

static void set_v(struct processor *c, s64 v)
{
	s64 now = look_at(c, c == own_processor());

	if (v > now)
		c->base += v - now;
	else
		v = now;
	c->v = v;
}

/* The clock's own work takes no virtual time. An alarm may come while a processor waits in it. */
static void begin_own_work(void)
{
	struct processor *c = own_processor();

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

/* v of the slowest running processor but this one, perhaps without blocked ones; -1 if none runs. */
static s64 floor_of(const struct processor *except, int without_blocked)
{
	s64 least = -1;
	int i;

	for (i = 0; i < CONFIG_NR_CPUS; i++) {
		s64 v;

		if (&processors[i] == except || __atomic_load_n(&processors[i].state, __ATOMIC_ACQUIRE) != RUNNING)
			continue;
		if (without_blocked && __atomic_load_n(&processors[i].blocked, __ATOMIC_ACQUIRE))
			continue;
		v = look_at(&processors[i], 0);
		if (least < 0 || v < least)
			least = v;
	}
	return least;
}

static s64 floor_of_others(const struct processor *except)
{
	return floor_of(except, 0);
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
	return own_processor()->state == OFF ? shown : show(own_v());
}

unsigned long long virtual_clock_realtime(void)
{
	return clock_page->realtime_start_nanos + virtual_clock_read();
}

/* The time-stamp counter. Its reads trap (kernel/trap.c), and only the read itself takes time. */
unsigned long long virtual_clock_counter(void)
{
	struct processor *c = own_processor();

	count(&clock_page->tsc_reads, 1);
	c->owed += counter_nanos() - trap_nanos - (s64)clock_page->fault_extra_nanos;
	c->is_free = 1;
	return (u64)((unsigned __int128)virtual_clock_read() * clock_page->tsc_hertz / UM_NSEC_PER_SEC);
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
	return (s64)clock_page->quantum_nanos;
}

/* Host time in which v moves by so much at most: v is CPU time, scaled by the processor's speed. */
static s64 host_wait(s64 nanos)
{
	u64 speed = clock_page->cpu_speed_millionths;

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
	if (!frozen && clock_page->completion_bound != CHRONODISK_NEVER && c->state == RUNNING) {
		s64 due = (s64)clock_page->completion_bound - c->v;

		/* It waits for slower processors then. */
		due = due <= 0 && running > 1 ? quantum() / 2 : host_wait(due);
		/* A program's v begins to move after the host's part of its stop. */
		due = c->stub ? larger(due + trap_nanos, least) : larger(due, KERNEL_ALARM_NANOS_MIN);
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

	clock_page->virtual_now = question.virtual_now;
	transfer(1, &question, sizeof(question));
	transfer(0, &answer, sizeof(answer));
	asked_until = larger((s64)answer.virtual_now, (s64)question.virtual_now);
	clock_page->virtual_now = (u64)asked_until;
	return answer;
}

static void wake_at(struct processor *c, s64 v);

/*
 * Takes the interrupt for completed requests. The host sends SIGIO to the first processor, and its kernel passes each
 * request to the submitting processor. An idle processor resumes at the instant of the completion; the v of the first
 * processor has no effect on it. Under the lock.
 */
static void interrupt(const struct chronodisk_answer *answer)
{
	struct processor *first = &processors[0];

	if (!answer->completed)
		return;
	count(&clock_page->interrupts, 1);
	completed_on_host = clock_of(CLOCK_MONOTONIC);
	__atomic_store_n(&completed_at, larger((s64)answer->virtual_now, 1), __ATOMIC_RELEASE);
	if (first->state == IDLE)
		wake_at(first, (s64)answer->virtual_now);
	if (first->stub)
		os_alarm_process(first->stub);
}

/* Longest wait for an interrupt, in host time. */
#define INTERRUPT_NANOS_MAX 2000000

/* Whether the kernel has not yet handled the last interrupt. */
static int interrupt_is_on_its_way(void)
{
	return __atomic_load_n(&completed_at, __ATOMIC_ACQUIRE) &&
	       clock_of(CLOCK_MONOTONIC) - completed_on_host < INTERRUPT_NANOS_MAX;
}

/* Begin and end of the interrupt handler in drivers/block/virtio_blk.c. */
void virtual_clock_begin_interrupt(void)
{
	if (virtual_clock_on)
		own_processor()->in_interrupt = 1;
}

void virtual_clock_end_interrupt(void)
{
	if (!virtual_clock_on)
		return;
	own_processor()->in_interrupt = 0;
	__atomic_store_n(&completed_at, 0, __ATOMIC_RELEASE);
}

/* A request has completed. Runs on the submitting processor. */
void virtual_clock_completed(void)
{
	struct processor *c = own_processor();

	if (!virtual_clock_on)
		return;
	price(c, (s64)(clock_page->completion_nanos + (c->was_idle ? clock_page->wake_up_nanos : 0)));
	c->was_idle = 0;
}

/* Completions are delivered one instant at a time: their processors may submit requests before the next instant. */
static int is_due(s64 instant)
{
	return !frozen && clock_page->completion_bound != CHRONODISK_NEVER &&
	       (s64)clock_page->completion_bound <= instant && !interrupt_is_on_its_way();
}

/* Delivers the first completion. All running processors have reached its instant. Under the lock. */
static void deliver(void)
{
	struct chronodisk_answer answer = ask(CHRONODISK_ASK_INTERRUPT, (s64)clock_page->completion_bound, 0);

	interrupt(&answer);
}

/* While the emulator works on a kick it would answer late, and all would wait. */
static void deliver_due(s64 until)
{
	sigset_t old;

	if (!is_due(until))
		return;
	take(&old);
	if (is_due(until))
		deliver();
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
		if (c == own_processor() || c->state != RUNNING)
			continue;
		c->frozen_kernel = kernel_cpu(c, 0);
		/* A program that is ahead of the kick pauses at once. */
		if (c->stub && look_at(c, 0) > own_processor()->v)
			os_alarm_process(c->stub);
	}
}

static void thaw_others(void)
{
	int i;

	for (i = 0; i < CONFIG_NR_CPUS; i++) {
		struct processor *c = &processors[i];
		s64 spun;

		if (c == own_processor() || c->state == OFF || c->frozen_kernel < 0)
			continue;
		spun = kernel_cpu(c, 0) - c->frozen_kernel - SPIN_NANOS_MAX;
		if (spun <= 0)
			continue;
		count(&clock_page->spins, 1);
		__atomic_fetch_add(&c->own, spun, __ATOMIC_RELAXED);
	}
}

static int try_kick_lock(void *word)
{
	return !__atomic_exchange_n((int *)word, 1, __ATOMIC_ACQUIRE);
}

/* Host time after which a kick no longer waits for its turn. */
#define ORDER_NANOS_MAX 5000000

/*
 * Requests arrive in the order of virtual time. A processor that is ahead lets the others catch up before its kick,
 * and before it holds a lock. Idle processors first get their earlier completions. A blocked processor can't catch up,
 * and is left out.
 */
void virtual_clock_wait_for_order(void)
{
	struct processor *c = own_processor();
	s64 until;

	if (!virtual_clock_on)
		return;
	begin_own_work();
	until = clock_of(CLOCK_MONOTONIC) + ORDER_NANOS_MAX;
	while (clock_of(CLOCK_MONOTONIC) < until) {
		s64 least = floor_of(c, 1), v = own_v();

		if (least < 0 || least >= v) {
			deliver_due(v);
			least = floor_of(c, 1);
			if (!interrupt_is_on_its_way() && (least < 0 || least >= v))
				break;
		}
		nap(10000);
	}
	end_own_work(c);
}

/* Kicks of several devices come one after the other: the page has one instant. */
void virtual_clock_before_kick(void)
{
	struct processor *c = own_processor();
	sigset_t old;
	s64 v;

	virtual_clock_wait_for_lock(try_kick_lock, &kick_lock);
	price(c, (s64)clock_page->submission_nanos);
	begin_own_work();
	take(&old);
	own_v();
	__atomic_add_fetch(&frozen, 1, __ATOMIC_ACQ_REL);
	freeze_others();
	v = larger(own_v(), asked_until);
	asked_until = v;
	clock_page->virtual_now = (u64)v;
	clock_page->issuer = c->work == CHRONODISK_WORK_OTHER ? CHRONODISK_ISSUER_UNKNOWN : CHRONODISK_ISSUER_PROGRAM;
	count(&clock_page->kicks, 1);
	release(&old);
}

void virtual_clock_after_kick(int failed)
{
	if (failed)
		_exit(EXIT_BACKEND_LOST);
	thaw_others();
	__atomic_sub_fetch(&frozen, 1, __ATOMIC_ACQ_REL);
	if (clock_page->completion_bound != CHRONODISK_NEVER)
		arm(uml_curr_cpu());
	end_own_work(own_processor());
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
	count(&clock_page->alarms, 1);
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

/* A program is about to run: an alarm must stop it when a completion is due. */
void look_for_completions(void)
{
	struct processor *c = own_processor();

	if (clock_page->completion_bound == CHRONODISK_NEVER)
		return;
	begin_own_work();
	own_v();
	deliver_due(floor_with(c));
	c->futile_alarms = 0;
	arm(uml_curr_cpu());
	end_own_work(c);
}

/* ---- Idling ---- */

/* Under the lock. */
static void wake_at(struct processor *c, s64 v)
{
	int i;

	set_v(c, v);
	c->was_idle = 1;
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
	return (ioctl(line_fd, SIOCOUTQ, &unread) == 0 && unread > 0) || clock_page->launcher_owes;
}

/* Whether idle time passes with the host's: somebody is expected to type. */
static int follows_host(void)
{
	return clock_page->idling != CHRONODISK_IDLING_JUMP || clock_page->input_awaited;
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

	while (is_due(shown)) {
		deliver();
		if (running)
			return;
	}
	if (clock_page->outstanding) {
		struct chronodisk_answer answer = ask(CHRONODISK_ASK_IDLE, shown, first ? first->deadline : 0);

		count(&clock_page->idle_exchanges, 1);
		interrupt(&answer);
		to = (s64)answer.virtual_now;
	} else if (first) {
		to = first->deadline;
	} else {
		return;		/* only the host can wake it now */
	}
	count(&clock_page->jumps, 1);
	if (to > from)
		count(&clock_page->jumped_nanos, (u64)(to - from));
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
	if (clock_page->completion_bound != CHRONODISK_NEVER && (!next || (s64)clock_page->completion_bound < next))
		next = (s64)clock_page->completion_bound;
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
		deliver();
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
	/* The sender of an interprocessor interrupt holds the lock. */
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
		wake_at(c, own_processor()->in_interrupt && completed_at ? completed_at : own_v());
	err = send(cpu, vector);
	release(&old);
	end_own_work(own_processor());
	return err;
}

/* Lets slower processors catch up before a program runs. Returns whether it has waited. */
int virtual_clock_throttle(void)
{
	struct processor *c = own_processor();
	int has_waited = 0;

	if (!virtual_clock_on || running < 2)
		return 0;
	begin_own_work();
	while (__atomic_load_n(&running, __ATOMIC_RELAXED) > 1) {
		s64 least = floor_of_others(c), v = own_v();

		if (least >= 0 && v - least > (s64)clock_page->lead_nanos_max)
			clock_page->lead_nanos_max = (u64)(v - least);
		if (least < 0 || v <= least + (frozen ? 0 : quantum()))
			break;
		if (!has_waited)
			count(&clock_page->waits, 1);
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
	own_processor()->blocked++;
	nap(50000);
	own_processor()->blocked--;
	end_own_work(own_processor());
}

/* Waits for a lock that another processor holds while it waits for the host. */
void virtual_clock_wait_for_lock(int (*try)(void *), void *lock_to_take)
{
	begin_own_work();
	own_processor()->blocked++;
	while (!try(lock_to_take))
		nap(20000);
	own_processor()->blocked--;
	end_own_work(own_processor());
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
	clock_page = mapped;
	exchange_fd = descriptor_in(EXCHANGE_VARIABLE);
	line_fd = descriptor_in(SERIAL_OUT_VARIABLE);
	trap_nanos = (s64)clock_page->trap_nanos_unmeasured;
	virtual_clock_on = 1;
}

/*
 * A stop of a program is cheapest on the CPU of its kernel thread. So each processor of the guest has one of the
 * launcher's host CPUs, and its programs run there, too. Returns the CPU's number plus one; 0 without a CPU of its own.
 */
static int settle_on_host_cpu(int cpu)
{
	cpu_set_t allowed, only;
	int of = 0, i;

	if (syscall(__NR_sched_getaffinity, 0, sizeof(allowed), &allowed) <= 0)
		return 0;
	for (i = 0; i < CPU_SETSIZE; i++)
		of += !!CPU_ISSET(i, &allowed);
	cpu %= larger(of, 1);
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &allowed) && !cpu--)
			break;
	if (i == CPU_SETSIZE)
		return 0;
	CPU_ZERO(&only);
	CPU_SET(i, &only);
	return syscall(__NR_sched_setaffinity, 0, sizeof(only), &only) ? 0 : i + 1;
}

/* Host CPU of the programs on this processor, plus one; 0: any. */
int virtual_clock_host_cpu(void)
{
	return virtual_clock_on ? own_processor()->host_cpu : 0;
}

void virtual_clock_start_cpu(int cpu)
{
	struct processor *c = &processors[cpu];
	sigset_t old;

	c->host_cpu = clock_page->program_cpu == CPU_OF_KERNEL ? settle_on_host_cpu(cpu) : 0;
	take(&old);
	c->tid = (int)syscall(__NR_gettid);
	c->work = CHRONODISK_WORK_OTHER;
	c->piece_from = kernel_cpu(c, 1);
	c->state = RUNNING;
	set_v(c, shown);
	running++;
	release(&old);
}
