/* Virtual time: reads the host's clocks for the accounts (accounts.c), stops and starts V, sets the host's timer. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "accounts.h"
#include "shim.h"

/* A host timer is never armed for longer than this: ten seconds. */
#define ARM_MAXIMUM_NANOS 10000000000ull

int (*real_timer_settime)(timer_t, int, const struct itimerspec *, struct itimerspec *);

volatile sig_atomic_t stopped;
volatile sig_atomic_t in_accounts;
volatile sig_atomic_t alarm_deferred;

timer_t host_timer;
int host_timer_exists;
uint64_t guest_deadline;

static struct accounts accounts;
static struct host_call_cost host_calls[HOST_CALLS];
static uint64_t stopped_since_host;
static uint64_t armed_until_host;

uint64_t nanos_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * NANOS_PER_SECOND + (uint64_t)time->tv_nsec;
}

struct timespec timespec_of(uint64_t nanos)
{
	return (struct timespec){ .tv_sec = (time_t)(nanos / NANOS_PER_SECOND), .tv_nsec = (long)(nanos % NANOS_PER_SECOND) };
}

/* Whether V is what has passed on the host: stopping the clock then only takes note of the instant. */
int time_is_the_hosts(void)
{
	return page->clock == CHRONODISK_CLOCK_REAL;
}

/* A diagnostic: the host may take the processor away anywhere, and nothing in the guest may depend on where. So one
 * in eight entries sleeps for a random while, by xorshift (Marsaglia 2003); the host's signals come meanwhile. */
void disturb(void)
{
	static uint64_t state;
	if (!page || !page->disturbance_nanos_max)
		return;
	if (!state)
		state = page->seed | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	if (state & 7)
		return;
	int saved_errno = errno;
	struct timespec pause = timespec_of((state >> 3) % page->disturbance_nanos_max);
	syscall(SYS_nanosleep, &pause, NULL);
	errno = saved_errno;
}

/* ---- Reading clocks ------------------------------------------------------------------------------ */

/* Without the C library, which would read the time stamp counter: see stop_reading_the_counter(). */
int host_clock_gettime(clockid_t clock, struct timespec *time)
{
	return (int)syscall(SYS_clock_gettime, clock, time);
}

uint64_t host_nanos(void)
{
	struct timespec time;
	host_clock_gettime(CLOCK_MONOTONIC, &time);
	return nanos_of(&time);
}

/* The clock of another process's CPU time, as the kernel encodes it in a clockid_t. */
static clockid_t cpu_clock_of(pid_t pid)
{
	return (clockid_t)((~(uint32_t)pid << 3) | 2);
}

static uint64_t cpu_nanos(clockid_t clock, uint64_t if_gone)
{
	struct timespec time;
	int gone = host_clock_gettime(clock, &time);
	accounts_note_cpu_clock_read(&accounts);
	return gone ? if_gone : nanos_of(&time);
}

static uint64_t kernel_cpu_nanos(void)
{
	uint64_t cpu = cpu_nanos(CLOCK_PROCESS_CPUTIME_ID, 0);
	accounts_look(&accounts, cpu);
	return cpu;
}

static uint64_t running_cpu_nanos(void)
{
	return cpu_nanos(cpu_clock_of(accounts.running_pid), accounts.running_since_cpu);
}

/* What the accounts need to say what the kernel has computed in its own process... */
static struct cpu_reading kernel_reading(void)
{
	return (struct cpu_reading){ .kernel = accounts_need_kernel_cpu(&accounts) ? kernel_cpu_nanos() : 0 };
}

/* ...and what has been computed in all. */
static struct cpu_reading cpu_reading(void)
{
	uint64_t running = accounts.running_pid ? running_cpu_nanos() : 0;
	struct cpu_reading now = kernel_reading();
	now.running = running;
	return now;
}

/* Host nanoseconds, or what counts of the guest's computing... */
static uint64_t computed(void)
{
	if (page->computing == CHRONODISK_COMPUTING_WALL)
		return host_nanos();
	if (page->computing == CHRONODISK_COMPUTING_ZERO)
		return accounts_free_base(&accounts);
	return accounts_measured_base(&accounts, cpu_reading());
}

/* ...and that of programs that are replayed. */
static uint64_t base(void)
{
	return computed() + accounts.granted_nanos;
}

static uint64_t exact_nanos(void)
{
	return kernel_now ? *kernel_now + uncharged_nanos() : 0;
}

uint64_t virtual_nanos(void)
{
	if (stopped)
		return page->virtual_now;
	return accounts_never_back(&accounts, is_exact() ? exact_nanos() : base() + (uint64_t)accounts.offset_nanos);
}

uint64_t latest_virtual_nanos(void)
{
	return accounts.latest_nanos;
}

/* V by a reading of the clocks that its caller has made. */
static uint64_t virtual_nanos_at(struct cpu_reading reading)
{
	if (stopped)
		return page->virtual_now;
	uint64_t base = accounts_measured_base(&accounts, reading) + accounts.granted_nanos;
	uint64_t now = base + (uint64_t)accounts.offset_nanos;
	if (is_exact())
		now = kernel_now ? *kernel_now + accounts_uncharged(&accounts, base) : 0;
	return accounts_never_back(&accounts, now);
}

/* The present instant. Where V is CPU time, one reading of a clock shows both. */
struct instant present_instant(void)
{
	if (!stops_pass() || accounts.running_pid)
		return (struct instant){ .virtual_nanos = virtual_nanos(), .kernel_cpu_nanos = kernel_cpu_nanos() };
	struct cpu_reading reading = { .kernel = kernel_cpu_nanos() };
	return (struct instant){ .virtual_nanos = virtual_nanos_at(reading), .kernel_cpu_nanos = reading.kernel };
}

/* ---- The host's timer ---------------------------------------------------------------------------- */

static void disarm_host_timer(void)
{
	static const struct itimerspec disarmed;
	armed_until_host = CHRONODISK_NEVER;
	if (host_timer_exists)
		real_timer_settime(host_timer, 0, &disarmed, NULL);
}

/* The virtual instant at which the guest must be interrupted. */
uint64_t next_interrupt(void)
{
	uint64_t bound = page->completion_bound;
	if (is_exact())
		return kernel_next_event && *kernel_next_event < bound ? *kernel_next_event : bound;
	return guest_deadline && guest_deadline < bound ? guest_deadline : bound;
}

void arm_host_timer_for(uint64_t wait_nanos)
{
	wait_nanos = smaller(wait_nanos, ARM_MAXIMUM_NANOS);
	armed_until_host = host_nanos() + wait_nanos;
	struct itimerspec armed = { .it_value = timespec_of(wait_nanos) };
	real_timer_settime(host_timer, 0, &armed, NULL);
}

/* Arms the host's timer for the next interrupt. */
void arm_host_timer(void)
{
	if (!host_timer_exists)
		return;
	uint64_t target = next_interrupt();
	if (target == CHRONODISK_NEVER) {
		disarm_host_timer();
		return;
	}
	arm_host_timer_for(accounts_alarm_wait(&accounts, virtual_nanos(), target));
}

/* ---- Stopping and starting ----------------------------------------------------------------------- */

static void begin_kernel_stretch(void)
{
	if (accounts_kernel_stretch_is_cold(&accounts))
		accounts_begin_kernel_stretch(&accounts, kernel_reading());
}

static void end_kernel_stretch(void)
{
	if (accounts_kernel_stretch_is_cold(&accounts) && !accounts.running_pid)
		accounts_end_kernel_stretch(&accounts, kernel_reading());
}

void stop_clock(void)
{
	end_kernel_stretch();
	page->virtual_now = virtual_nanos();
	accounts.uncharged_at_stop_nanos = is_exact() ? uncharged_nanos() : 0;
	uint64_t kernel_cpu = kernel_cpu_nanos();
	page->kernel_cpu_nanos = kernel_cpu + accounts.stub_kernel_cpu_nanos;
	accounts_begin_stop(&accounts, kernel_cpu);
	page->user_cpu_nanos = accounts.user_cpu_nanos;
	stopped_since_host = host_nanos();
	stopped = 1;
	/* The alarm that looks for spinning programs stays. */
	if (page->computing != CHRONODISK_COMPUTING_ZERO)
		disarm_host_timer();
}

void start_clock(uint64_t from)
{
	if (from > page->virtual_now)
		page->virtual_now = from;
	uint64_t stopped_nanos = host_nanos() - stopped_since_host;
	page->stopped_host_nanos += stopped_nanos;
	if (is_exact()) {
		stopped = 0;
		accounts_begin_cold_stretches(&accounts, stopped_nanos);
		begin_kernel_stretch();
		charge_later(accounts.uncharged_at_stop_nanos);
		return;
	}
	if (time_is_the_hosts()) {
		stopped = 0;
		arm_host_timer();
		return;
	}
	if (accounts.latest_nanos > page->virtual_now)
		page->virtual_now = accounts.latest_nanos;
	if (page->computing == CHRONODISK_COMPUTING_MEASURED)
		accounts_end_stop(&accounts, kernel_cpu_nanos());
	accounts_go_on(&accounts, base());
	stopped = 0;
	accounts_begin_cold_stretches(&accounts, stopped_nanos);
	begin_kernel_stretch();
	arm_host_timer();
}

void open_accounts(void)
{
	in_accounts = 1;
	__asm__ volatile("" ::: "memory");
}

void close_accounts(void)
{
	__asm__ volatile("" ::: "memory");
	in_accounts = 0;
	if (alarm_deferred) {
		alarm_deferred = 0;
		if (!stopped)
			arm_host_timer();
	}
}

void jump_to(uint64_t instant)
{
	uint64_t now = virtual_nanos();
	if (instant > now)
		accounts_jump(&accounts, instant - now);
	page->virtual_now = instant > now ? instant : now;
}

/* What the library does for the processor, which would do it in no time, begins now... */
uint64_t instant_of_host_work(void)
{
	return base();
}

/* ...and ends now: V has stood still, unless it is the host's. */
void forget_host_work_since(uint64_t instant)
{
	if (!time_is_the_hosts())
		accounts_forget(&accounts, base() - instant);
}

/* Where computing is measured, the CPU time of what a recorder does is taken off what the kernel has used. */
int own_work_is_the_hosts(void)
{
	return page->computing == CHRONODISK_COMPUTING_MEASURED && !accounts.running_pid && !accounts.handler_depth;
}

void begin_own_work(void)
{
	accounts_begin_own_work(&accounts, kernel_cpu_nanos());
}

void end_own_work(void)
{
	accounts_end_own_work(&accounts, kernel_cpu_nanos());
}

/* ---- Exact kernels ------------------------------------------------------------------------------ */

uint64_t uncharged_nanos(void)
{
	return accounts_uncharged(&accounts, base());
}

/* Of all that has been computed so far, only this is still to be charged. */
void charge_later(uint64_t nanos)
{
	accounts.charged_nanos = base() - nanos;
}

/* The kernel asks this after each stretch of user code, and lets V pass by the answer. */
unsigned long long chronodisk_clock_spent(void)
{
	uint64_t spent = uncharged_nanos();
	accounts.charged_nanos += spent;
	return spent;
}

/* Whether the program that runs must go back to its kernel. */
int on_alarm_of_exact_kernel(void)
{
	armed_until_host = CHRONODISK_NEVER;
	if (!running_program())
		return 0;
	if (page->computing != CHRONODISK_COMPUTING_ZERO) {
		if (virtual_nanos() >= next_interrupt())
			return 1;
		arm_host_timer();
		return 0;
	}
	arm_host_timer_for(SPIN_CPU_NANOS);
	/* By its CPU time: on a busy host it may just have waited for its turn. */
	int spins = running_cpu_nanos() - accounts.running_since_cpu >= SPIN_CPU_NANOS;
	page->spins += (uint64_t)spins;
	return spins;
}

static void arm_for_exact_kernel(void)
{
	uint64_t host = host_nanos();
	int armed = armed_until_host != CHRONODISK_NEVER && armed_until_host > host;
	if (page->computing == CHRONODISK_COMPUTING_ZERO) {
		if (!armed)
			arm_host_timer_for(SPIN_CPU_NANOS);
		return;
	}
	uint64_t target = next_interrupt();
	if (target == CHRONODISK_NEVER || target > INT64_MAX - 1)
		return;
	uint64_t wait = accounts_user_alarm_wait(&accounts, virtual_nanos(), target);
	if (!armed || armed_until_host > host + wait)
		arm_host_timer_for(wait);
}

/* ---- What the accounts are told ------------------------------------------------------------------ */

pid_t running_process(void)
{
	return accounts.running_pid;
}

pid_t running_program(void)
{
	return accounts.running_user_code ? accounts.running_pid : 0;
}

uint64_t nanos_of_trap(void)
{
	return accounts.call_stop.nanos;
}

/* V goes on from where it is, at its usual speed. */
void account_for_connection(void)
{
	if (accounts.boot_speed == 1)
		return;
	open_accounts();
	page->virtual_now = virtual_nanos();
	accounts.boot_speed = 1;
	accounts_go_on(&accounts, base());
	close_accounts();
}

void account_for_requests(uint64_t submitted, uint64_t completed, uint64_t woken)
{
	accounts_note_requests(&accounts, submitted, completed, woken);
}

void account_for_first_use(void)
{
	accounts.booted = 1;
}

void account_for_host_call(uint64_t since_host)
{
	accounts_note_host_call(&accounts, host_nanos() - since_host);
}

int host_call_is_timed(enum host_call call)
{
	return accounts_want_time_of_host_call(&host_calls[call]);
}

void account_for_timed_host_call(enum host_call call, uint64_t since_host)
{
	accounts_note_timed_host_call(&accounts, &host_calls[call], host_nanos() - since_host);
}

void account_for_untimed_host_call(enum host_call call)
{
	accounts_note_untimed_host_call(&accounts, &host_calls[call]);
}

void account_for_call(const struct user_regs_struct *registers)
{
	if (runs_repeat() && kernel_now)
		page->spins += (uint64_t)accounts_spin_of_calls(&accounts, *kernel_now);
	accounts_note_call(&accounts, registers);
}

void account_for_result(pid_t pid, int64_t result)
{
	accounts_note_result(&accounts, pid, result);
}

void account_for_spurious_fault(void)
{
	accounts_note_spurious_fault(&accounts);
}

void account_for_yield(void)
{
	accounts.yields++;
}

/* Lets V pass as if the program had computed, up to the next interrupt; returns what is left. The alarm for that
 * interrupt is set when the program goes on: here, in the middle of what the guest's kernel does about a stop, an alarm
 * has led to programs that never ran again. */
uint64_t charge_program(uint64_t nanos)
{
	if (stopped || time_is_the_hosts())
		return 0;
	uint64_t left = accounts_grant(&accounts, nanos, virtual_nanos(), next_interrupt());
	/* With something left an interrupt is due, whose work is none of the replayer's. */
	if (!left)
		accounts_note_replayers_call(&accounts);
	return left;
}

void account_for_part_of_feed(void)
{
	accounts_note_replayers_call(&accounts);
}

void account_for_probe(void)
{
	accounts_note_probe(&accounts);
}

/* So much CPU time as it counts. */
static uint64_t counted(uint64_t nanos)
{
	if (page->computing == CHRONODISK_COMPUTING_ZERO)
		return 0;
	return (uint64_t)((unsigned __int128)nanos * 1000000u / page->cpu_speed_millionths);
}

/* Prices of requests so far, as they count. */
uint64_t nanos_of_requests(void)
{
	return counted(page->kernel_requests_nanos + accounts.priced_nanos);
}

/* What programs have computed, as it counts. */
uint64_t nanos_of_programs(void)
{
	return page->computing == CHRONODISK_COMPUTING_ZERO ? accounts_free_base(&accounts)
							    : counted(accounts.user_cpu_nanos);
}

static void begin_work(struct cpu_reading now, enum chronodisk_work next)
{
	enum chronodisk_work work = accounts.work;
	uint64_t charged_nanos = accounts.charged_work_nanos;
	accounts_begin_work(&accounts, now, next);
	record_work(work, counted(accounts.charged_work_nanos - charged_nanos));
}

/* What comes after an idle time is not the work of whoever idled. */
void account_for_idling(void)
{
	begin_work(cpu_reading(), CHRONODISK_WORK_OTHER);
}

void begin_handler(void)
{
	if (accounts_enter_handler(&accounts))
		accounts_begin_handler(&accounts, kernel_cpu_nanos());
}

void end_handler(void)
{
	accounts_leave_handler(&accounts, accounts_handler_counts(&accounts) ? kernel_cpu_nanos() : 0);
}

/* Arms the host's timer for a program that is about to run, if it was armed for later: for kernel code, for instance,
 * which moves V more slowly. */
static void arm_for_program(uint64_t virtual_now)
{
	uint64_t target = next_interrupt();
	if (!accounts.booted || target == CHRONODISK_NEVER || page->computing != CHRONODISK_COMPUTING_MEASURED)
		return;
	uint64_t wait = accounts_user_alarm_wait(&accounts, virtual_now, target);
	if (armed_until_host > host_nanos() + wait)
		arm_host_timer_for(wait);
}

/* The user process is about to run from this instant on: its program if user_code, else what the kernel has it do. */
void account_for_resume(pid_t pid, int user_code, struct instant at)
{
	open_accounts();
	end_kernel_stretch();
	accounts_note_switch(&accounts, pid, user_code);
	/* An alarm that comes from here on, before it is known who runs, is set again when the accounts are closed: a
	 * program that spins would wait for it for ever. */
	if (is_exact()) {
		if (user_code && !stopped && host_timer_exists)
			arm_for_exact_kernel();
	} else if (user_code && !stopped) {
		arm_for_program(at.virtual_nanos);
	}
	struct cpu_reading now = { .kernel = at.kernel_cpu_nanos, .running = cpu_nanos(cpu_clock_of(pid), 0) };
	accounts_begin_stretch(&accounts, pid, user_code, now);
	close_accounts();
}

/* Whether a stop of a program may be dealt with by the program's account alone. */
int stops_pass(void)
{
	return page->computing == CHRONODISK_COMPUTING_MEASURED;
}

static struct stop_cost *cost_of(enum stop stop)
{
	return stop == STOP_AT_READ ? &accounts.read_stop : &accounts.call_stop;
}

/* The program that runs has stopped. Returns whether it is to stop there once more, for a sample. */
int account_for_passed_stop(enum stop stop)
{
	accounts_pass_stop(&accounts, cost_of(stop), running_cpu_nanos());
	return accounts_want_sample(cost_of(stop));
}

/* It has. */
void account_for_sample(enum stop stop)
{
	accounts_note_sample(&accounts, cost_of(stop), running_cpu_nanos());
}

/* V at the program's stop that was accounted for last, for which no clock is read again. */
uint64_t virtual_nanos_of_passed_stop(void)
{
	return virtual_nanos_at((struct cpu_reading){ .running = accounts.running_since_cpu });
}

/* A program of short stretches has come back in time. */
void put_off_alarm(uint64_t virtual_now)
{
	if (!stopped && armed_until_host != CHRONODISK_NEVER && armed_until_host < host_nanos() + GUARD_LEFT_NANOS)
		arm_host_timer_for(accounts_user_alarm_wait(&accounts, virtual_now, next_interrupt()));
}

/* The alarm that guards a program would come too early for its kernel, which looks before the program goes on. */
static void put_off_alarm_of_program(void)
{
	if (stopped || is_exact() || !accounts.booted || !stops_pass() || armed_until_host == CHRONODISK_NEVER)
		return;
	if (armed_until_host < host_nanos() + KERNEL_ALARM_MINIMUM_NANOS)
		arm_host_timer();
}

/* The user process has stopped; the host's part of that, which is not the guest's, takes
 * overhead_nanos of CPU time. The kernel now does what it stopped for. Returns V at the stop. */
uint64_t account_for_stop(pid_t pid, uint64_t overhead_nanos, enum chronodisk_work next)
{
	if (pid != accounts.running_pid)
		return virtual_nanos();
	int user_code = accounts.running_user_code;
	struct cpu_reading now;
	now.running = running_cpu_nanos();
	now.kernel = kernel_cpu_nanos();
	accounts_end_stretch(&accounts, now, overhead_nanos);
	if (user_code) {
		page->user_cpu_nanos = accounts.user_cpu_nanos;
		begin_work(now, next);
		accounts.returned_pid = pid;
	}
	begin_kernel_stretch();
	if (user_code)
		put_off_alarm_of_program();
	return stops_pass() ? virtual_nanos_at((struct cpu_reading){ .kernel = now.kernel }) : virtual_nanos();
}

/* ---- Start ---------------------------------------------------------------------------------------- */

#define CLOCK_READS 64
#define CLOCK_ROUNDS 8

/* CPU time of the quickest of some rounds: the others were interrupted. */
static uint64_t time_of_reading(clockid_t clock)
{
	uint64_t least = HOST_CALL_MAXIMUM_NANOS * CLOCK_READS;
	for (int round = 0; round < CLOCK_ROUNDS; round++) {
		uint64_t since = kernel_cpu_nanos();
		struct timespec time;
		for (int read = 0; read < CLOCK_READS; read++)
			host_clock_gettime(clock, &time);
		least = smaller(least, kernel_cpu_nanos() - since);
	}
	return least / CLOCK_READS;
}

void start_time(int devices)
{
	accounts_begin(&accounts, page, devices);
	accounts.clock_read_nanos = time_of_reading(CLOCK_MONOTONIC);
	accounts.cpu_clock_read_nanos = time_of_reading(CLOCK_PROCESS_CPUTIME_ID);
	accounts.offset_nanos = -(int64_t)(time_is_the_hosts() ? page->host_origin_nanos : base());
	accounts.charged_nanos = base();
}
