/* Virtual time and the accounts that it is made of. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

/* Where V is CPU time, it reaches an instant no earlier than the host's clock does; the host's timer
 * is armed again for the rest, but never for less than this. */
#define REARM_MINIMUM_NANOS 3000ull
/* If V did not move from one alarm to the next, its process has stopped already, and the guest's kernel was interrupted
 * before it could take note. On a slow host the alarm could come again before it gets to do so, each time, for ever: so
 * each such alarm doubles the least wait, up to this many times. */
#define FUTILE_ALARMS_MAX 9
/* An alarm that is set while the guest's kernel runs is late by at most this if user code takes over
 * and runs on, which moves V faster. */
#define LATENESS_MAXIMUM_NANOS 100000ull
/* User code that has lately been back within a quarter of the time left gets no alarm of its own. */
#define STRETCHES_AHEAD 4
/* A host timer is never armed for longer than this: ten seconds. */
#define ARM_MAXIMUM_NANOS 10000000000ull

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

int (*real_timer_settime)(timer_t, int, const struct itimerspec *, struct itimerspec *);

int booted;
volatile sig_atomic_t stopped;
volatile sig_atomic_t in_accounts;
volatile sig_atomic_t alarm_deferred;

/* V = base() + offset while the clock runs, page->virtual_now while it stands still. */
static int64_t offset_nanos;
static uint64_t latest_nanos;
static uint64_t stopped_since_host;

timer_t host_timer;
int host_timer_exists;
uint64_t guest_deadline;
static uint64_t armed_until_host;

/* The user process that runs now, and the CPU times already counted. */
volatile pid_t running_pid;
volatile int running_user_code;
static uint64_t running_since_cpu;
static uint64_t user_cpu_nanos;
static uint64_t stub_kernel_cpu_nanos;
static uint64_t last_stretch_nanos;    /* of any process, with what its stop took */
static uint64_t longest_stretch_nanos; /* of user code, fading with each that is shorter */
/* What is left of the correction after a long stop, in CPU time, and where the kernel's stretch began. */
static int cold_stretches;
static uint64_t cold_user_nanos;
static uint64_t cold_kernel_nanos;
static uint64_t cold_kernel_total_nanos;
static uint64_t kernel_since_cpu;
static uint64_t usual_stretch_nanos; /* of user code, when warm */
/* What the host's part of stops has been more than the stretches that it was to be taken off, which
 * vary: the next ones give it back, or a mean taken off short stretches would leave too much. */
static uint64_t overhead_owed_nanos;
#define OVERHEAD_OWED_STOPS 16
/* CPU time of the guest's kernel that its host took to run the guest's programs, which natively is
 * nothing: between resuming a process and hearing that it stopped, and in reading and setting its
 * registers. Handlers of the guest's that ran in between are the kernel's own work. */
static uint64_t host_part_nanos;
static uint64_t resumed_kernel_cpu;
static uint64_t handled_nanos;
static uint64_t handler_since_cpu;
static int handler_depth;
/* Of an exact kernel: what its V holds of base(), and what it did not hold when the clock stopped. */
static uint64_t charged_nanos;
static uint64_t uncharged_at_stop;
static uint64_t yields;

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
	return (clockid_t)((~(clockid_t)pid << 3) | 2);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t less(uint64_t cpu, uint64_t overhead)
{
	return cpu > overhead ? cpu - overhead : 0;
}

static uint64_t millionths(uint64_t of, uint64_t share)
{
	return (uint64_t)((unsigned __int128)of * share / 1000000u);
}

/* The kernel's CPU time is charged by the work that it does, from one return of a program to the next,
 * because each kind takes another multiple of what it takes a native kernel. */
static enum chronodisk_work work = CHRONODISK_WORK_OTHER;
static uint64_t work_since_cpu;      /* the kernel's CPU time when this work began */
static uint64_t charged_work_nanos;  /* for all work before */
static pid_t returned_pid;           /* the program that returned last */

static uint64_t scale_of_work(void)
{
	if (!booted)
		return 1000000u;
	return work == CHRONODISK_WORK_OTHER ? page->kernel_scale_millionths : page->costs[work].scale_millionths;
}

/* Whatever is taken off, a program that waits for time to pass must see it pass: no kernel carries out a system
 * call, and no processor reads its time stamp counter, in less. */
#define WORK_MINIMUM_NANOS 50ull
#define TSC_READ_NANOS 20ull

/* So must a kernel that computes until its next tick, in one piece of work: at least this share of it counts. */
#define WORK_SHARE 256

static uint64_t charge_for_work(uint64_t cpu)
{
	uint64_t least = cpu / WORK_SHARE;
	uint64_t charge;
	if (!booted || work == CHRONODISK_WORK_OTHER) {
		charge = millionths(cpu, scale_of_work());
	} else {
		const struct chronodisk_cost *cost = &page->costs[work];
		charge = cost->added_nanos + millionths(less(cpu, cost->taken_off_nanos), cost->scale_millionths);
		least = least > WORK_MINIMUM_NANOS ? least : WORK_MINIMUM_NANOS;
	}
	return charge > least ? charge : least;
}

/* How much of a stretch after a long stop is due to cold caches, if so much may be. */
static uint64_t cold_part(uint64_t ran, uint64_t usual, uint64_t most)
{
	return cold_stretches ? smaller(less(ran, usual), most) : 0;
}

static uint64_t cold_part_of_kernel(uint64_t kernel_cpu)
{
	return cold_part(kernel_cpu - kernel_since_cpu, USUAL_KERNEL_NANOS, cold_kernel_nanos);
}

static uint64_t cold_part_of_user(uint64_t ran)
{
	return cold_part(ran, usual_stretch_nanos, cold_user_nanos);
}

/* A call of the host takes microseconds; what takes longer was interrupted or made to wait. */
#define HOST_CALL_MAXIMUM_NANOS 20000ull

/* What reading the host's clock and one of CPU time takes, found when the guest starts. */
static uint64_t clock_read_nanos;
static uint64_t cpu_clock_read_nanos;

static void account_for_host_part(uint64_t nanos)
{
	if (!running_pid)
		host_part_nanos += nanos;
}

/* The host's part is an estimate: what it takes to read a clock changes with the processor's other load. Where
 * it came to more than all CPU time, as it did by 1 % in a kernel that read its clock until a tick came, V stood
 * still for ever. So of all CPU time between two looks at it at least this share is the kernel's own. */
#define OWN_SHARE 16
static uint64_t looked_at_cpu;
static uint64_t looked_at_host_part;

static void look_at_host_part(uint64_t cpu)
{
	looked_at_cpu = cpu;
	looked_at_host_part = host_part_nanos;
}

static void bound_host_part(uint64_t cpu)
{
	uint64_t passed = less(cpu, looked_at_cpu);
	host_part_nanos = smaller(host_part_nanos, looked_at_host_part + passed - passed / OWN_SHARE);
	look_at_host_part(cpu);
}

/* The kernel has called its host, since then, for what a native kernel need not do. */
void account_for_host_call(uint64_t since_host)
{
	account_for_host_part(smaller(host_nanos() - since_host, HOST_CALL_MAXIMUM_NANOS) + clock_read_nanos);
}

/* Reading a clock of CPU time is such a call, too. */
static uint64_t cpu_nanos(clockid_t clock, uint64_t if_gone)
{
	struct timespec time;
	int gone = host_clock_gettime(clock, &time);
	account_for_host_part(cpu_clock_read_nanos);
	return gone ? if_gone : nanos_of(&time);
}

static uint64_t process_cpu(void)
{
	uint64_t cpu = cpu_nanos(CLOCK_PROCESS_CPUTIME_ID, 0);
	if (!running_pid)
		bound_host_part(cpu);
	return cpu;
}

static uint64_t kernel_cpu(void)
{
	uint64_t cpu;
	if (!running_pid)
		cpu = process_cpu();
	else
		cpu = resumed_kernel_cpu + handled_nanos + (handler_depth ? process_cpu() - handler_since_cpu : 0);
	return cpu - host_part_nanos - cold_kernel_total_nanos;
}

/* A handler of the guest's begins, and ends. */
void begin_handler(void)
{
	if (handler_depth++ == 0)
		handler_since_cpu = process_cpu();
}

void end_handler(void)
{
	if (handler_depth == 1 && running_pid)
		handled_nanos += process_cpu() - handler_since_cpu;
	handler_depth--;
}

/* While computing takes no time, programs that wait for time to pass must see it pass: a read of the
 * time stamp counter takes as long as a processor needs for one, a yield what it costs natively. A
 * program that spins on memory is given a tick of the guest's scheduler for each alarm. */
#define YIELD_NANOS 500ull
#define SPIN_NANOS 10000000ull
/* A program that has computed for so long without coming back is taken to spin. */
#define SPIN_CPU_NANOS 2000000000ull

/* So is one that makes this many system calls while V stands still, waiting in a loop for another program, for
 * example: about a second of them, but counted, so that runs repeat. */
#define SPIN_CALLS 65536u

static void look_for_spinning(void)
{
	static uint64_t still_at;
	static unsigned calls;
	if (!runs_repeat() || !kernel_now)
		return;
	if (*kernel_now != still_at) {
		still_at = *kernel_now;
		calls = 0;
	}
	if (++calls < SPIN_CALLS)
		return;
	calls = 0;
	page->spins++;
}

static uint64_t base_of_free_computing(void)
{
	return page->tsc_reads * TSC_READ_NANOS + yields * YIELD_NANOS + page->spins * SPIN_NANOS;
}

/* All CPU time of the guest's kernel so far. */
static uint64_t kernel_in_all(void)
{
	uint64_t kernel = kernel_cpu();
	if (running_pid && !running_user_code)
		kernel += cpu_nanos(cpu_clock_of(running_pid), running_since_cpu) - running_since_cpu;
	else if (!running_pid)
		kernel -= cold_part_of_kernel(kernel);
	return kernel + stub_kernel_cpu_nanos;
}

static void begin_work(enum chronodisk_work next)
{
	uint64_t kernel = kernel_in_all();
	uint64_t cpu = less(kernel, work_since_cpu);
	charged_work_nanos += charge_for_work(cpu);
	if (work != CHRONODISK_WORK_OTHER) {
		page->worked[work].count++;
		page->worked[work].cpu_nanos += cpu;
	}
	work = next;
	work_since_cpu = kernel;
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
void account_for_call(const struct user_regs_struct *registers)
{
	look_for_spinning();
	switch ((long)registers->orig_rax) {
	case SYS_read: case SYS_write: case SYS_pread64: case SYS_pwrite64:
	case SYS_readv: case SYS_writev: case SYS_preadv: case SYS_pwritev:
	case SYS_sendto: case SYS_recvfrom: case SYS_sendmsg: case SYS_recvmsg:
	case SYS_sendfile: case SYS_copy_file_range:
		work = CHRONODISK_WORK_COPY;
		break;
	case SYS_mmap: case SYS_munmap: case SYS_mprotect: case SYS_mremap: case SYS_brk: case SYS_madvise:
		work = CHRONODISK_WORK_MAP;
		break;
	case SYS_clone: case SYS_clone3: case SYS_fork: case SYS_vfork: case SYS_execve: case SYS_execveat:
	case SYS_exit: case SYS_exit_group: case SYS_wait4: case SYS_waitid:
		work = CHRONODISK_WORK_PROCESS;
		break;
	default:
		if (only_looks_up(registers))
			work = CHRONODISK_WORK_LOOK_UP;
		break;
	}
}

/* What comes after an idle time is not the work of whoever idled. */
void account_for_idling(void)
{
	begin_work(CHRONODISK_WORK_OTHER);
}

/* Host nanoseconds, or the guest's CPU time on its processor: programs in full, the kernel's by its work. */
static uint64_t base(void)
{
	if (page->computing == CHRONODISK_COMPUTING_WALL)
		return host_nanos();
	if (page->computing == CHRONODISK_COMPUTING_ZERO)
		return base_of_free_computing();
	uint64_t user = user_cpu_nanos;
	if (running_pid && running_user_code) {
		uint64_t ran = cpu_nanos(cpu_clock_of(running_pid), running_since_cpu) - running_since_cpu;
		user += less(ran - cold_part_of_user(ran), page->trap_nanos + overhead_owed_nanos);
	}
	uint64_t spent = user + charged_work_nanos + charge_for_work(less(kernel_in_all(), work_since_cpu));
	/* A slower clock would make the boot, which waits for ticks, last as many times as long. */
	if (!booted || page->cpu_speed_millionths == 1000000u)
		return spent;
	return (uint64_t)((unsigned __int128)spent * 1000000u / page->cpu_speed_millionths);
}

static uint64_t exact_nanos(void)
{
	return kernel_now ? *kernel_now + uncharged_nanos() : 0;
}

uint64_t virtual_nanos(void)
{
	if (stopped)
		return page->virtual_now;
	uint64_t now = is_exact() ? exact_nanos() : base() + (uint64_t)offset_nanos;
	/* A signal handler may have read the clock in between; V never steps back. */
	uint64_t latest = __atomic_load_n(&latest_nanos, __ATOMIC_RELAXED);
	while ((int64_t)(now - latest) > 0)
		if (__atomic_compare_exchange_n(&latest_nanos, &latest, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return now;
	return latest;
}

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

/* Arms the host's timer for the next interrupt, as if the guest went on doing what it does now:
 * kernel code moves V on more slowly than the host's clock if its CPU time is scaled down. */
void arm_host_timer(void)
{
	if (!host_timer_exists)
		return;
	uint64_t target = next_interrupt();
	if (target == CHRONODISK_NEVER) {
		disarm_host_timer();
		return;
	}
	uint64_t now = virtual_nanos();
	uint64_t wait = target > now ? target - now : 0;
	if (wait && page->computing == CHRONODISK_COMPUTING_MEASURED) {
		uint64_t scale = scale_of_work();
		if (booted)
			wait = millionths(wait, page->cpu_speed_millionths);
		if (booted && !(running_pid && running_user_code) && scale && scale < 1000000u)
			wait = smaller((uint64_t)((unsigned __int128)wait * 1000000u / scale), wait + LATENESS_MAXIMUM_NANOS);
		static uint64_t armed_at;
		static unsigned futile_alarms;
		if (now != armed_at)
			futile_alarms = 0;
		else if (futile_alarms < FUTILE_ALARMS_MAX)
			futile_alarms++;
		armed_at = now;
		if (wait < REARM_MINIMUM_NANOS << futile_alarms)
			wait = REARM_MINIMUM_NANOS << futile_alarms;
	}
	arm_host_timer_for(wait ? wait : 1);
}

static void begin_cold_stretches(uint64_t stopped_nanos)
{
	cold_stretches = 0;
	if (!booted || page->computing != CHRONODISK_COMPUTING_MEASURED || stopped_nanos < COLD_STOP_MINIMUM_NANOS)
		return;
	uint64_t share = smaller(stopped_nanos, COLD_STOP_NANOS);
	cold_stretches = COLD_STRETCHES;
	cold_user_nanos = COLD_USER_NANOS * share / COLD_STOP_NANOS;
	cold_kernel_nanos = COLD_KERNEL_NANOS * share / COLD_STOP_NANOS;
}

static void begin_kernel_stretch(void)
{
	if (cold_stretches)
		kernel_since_cpu = kernel_cpu();
}

static void end_kernel_stretch(void)
{
	if (!cold_stretches || running_pid)
		return;
	uint64_t part = cold_part_of_kernel(kernel_cpu());
	cold_kernel_nanos -= part;
	cold_kernel_total_nanos += part;
	page->cold_nanos += millionths(part, scale_of_work());
}

/* The first quartile of the warm stretches, approached in small steps: three down weigh as one up. */
static void note_usual_stretch(uint64_t ran)
{
	uint64_t step = usual_stretch_nanos / 256 + 1;
	if (ran > usual_stretch_nanos)
		usual_stretch_nanos += step;
	else
		usual_stretch_nanos = less(usual_stretch_nanos, 3 * step);
}

void stop_clock(void)
{
	end_kernel_stretch();
	page->virtual_now = virtual_nanos();
	uncharged_at_stop = is_exact() ? uncharged_nanos() : 0;
	page->kernel_cpu_nanos = process_cpu() + stub_kernel_cpu_nanos;
	page->user_cpu_nanos = user_cpu_nanos;
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
		begin_cold_stretches(stopped_nanos);
		begin_kernel_stretch();
		charge_later(uncharged_at_stop);
		return;
	}
	if (time_is_the_hosts()) {
		stopped = 0;
		arm_host_timer();
		return;
	}
	if (latest_nanos > page->virtual_now)
		page->virtual_now = latest_nanos;
	offset_nanos = (int64_t)(page->virtual_now - base());
	latest_nanos = page->virtual_now;
	stopped = 0;
	begin_cold_stretches(stopped_nanos);
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
	if (instant <= now)
		return;
	offset_nanos += (int64_t)(instant - now);
	page->jumps++;
	page->jumped_nanos += instant - now;
}

/* What the library does for the processor, which would do it in no time, begins now... */
uint64_t instant_of_host_work(void)
{
	return base();
}

/* ...and ends now: V has stood still, unless it is the host's. */
void forget_host_work_since(uint64_t instant)
{
	if (time_is_the_hosts())
		return;
	if (is_exact())
		charged_nanos += base() - instant;
	else
		offset_nanos -= (int64_t)(base() - instant);
}

/* ---- Exact kernels ------------------------------------------------------------------------------ */

/* What has been computed and is not yet in the kernel's V. */
uint64_t uncharged_nanos(void)
{
	return less(base(), charged_nanos);
}

/* Of all that has been computed so far, only this is still to be charged. */
void charge_later(uint64_t nanos)
{
	charged_nanos = base() - nanos;
}

/* The kernel asks this after each stretch of user code, and lets V pass by the answer. */
unsigned long long chronodisk_clock_spent(void)
{
	uint64_t spent = uncharged_nanos();
	charged_nanos += spent;
	return spent;
}

void account_for_yield(void)
{
	yields++;
}

/* Whether the program that runs must go back to its kernel. */
int on_alarm_of_exact_kernel(void)
{
	armed_until_host = CHRONODISK_NEVER;
	if (!running_pid || !running_user_code)
		return 0;
	if (page->computing != CHRONODISK_COMPUTING_ZERO) {
		if (virtual_nanos() >= next_interrupt())
			return 1;
		arm_host_timer();
		return 0;
	}
	arm_host_timer_for(SPIN_CPU_NANOS);
	/* By its CPU time: on a busy host it may just have waited for its turn. */
	uint64_t ran = cpu_nanos(cpu_clock_of(running_pid), running_since_cpu) - running_since_cpu;
	int spins = ran >= SPIN_CPU_NANOS;
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
	uint64_t now = virtual_nanos();
	uint64_t wait = target > now + REARM_MINIMUM_NANOS ? target - now : REARM_MINIMUM_NANOS;
	if (!armed || (wait < STRETCHES_AHEAD * longest_stretch_nanos && armed_until_host > host + wait))
		arm_host_timer_for(wait);
}

uint64_t latest_virtual_nanos(void)
{
	return latest_nanos;
}

/* What a stop takes of a process's CPU time depends on the host, and is measured in each run: the guest's
 * first process makes system calls that do nothing (`src/trap_probe.rs`), this often. The longest of
 * them met an interrupt. */
#define PROBES 255
#define PROBES_INTERRUPTED 5
static uint64_t probed[PROBES]; /* in order */
static int probe_count;
static uint64_t probed_mean_nanos;
static uint64_t probed_quartile_nanos;
static uint64_t quartile_nanos;

void note_probe(void)
{
	if (probe_count == PROBES)
		return;
	int at = probe_count++;
	for (; at > 0 && probed[at - 1] > last_stretch_nanos; at--)
		probed[at] = probed[at - 1];
	probed[at] = last_stretch_nanos;
	if (probe_count < PROBES)
		return;
	uint64_t sum = 0;
	for (at = 0; at < PROBES - PROBES_INTERRUPTED; at++)
		sum += probed[at];
	probed_mean_nanos = sum / (PROBES - PROBES_INTERRUPTED);
	probed_quartile_nanos = quartile_nanos = probed[PROBES / 4] + 1;
	page->trap_nanos = probed_mean_nanos;
}

/* The host's other load makes stops cheaper and dearer from one second to the next, by up to a quarter. The shorter
 * ones of a program's stretches are hardly more than the stop, so their first quartile is followed so far and no
 * further: of a program that computes for a microsecond at a time none is, and what it computes must count. One that
 * computes for long at a time has none that are short either, and for it the stops hardly matter. */
#define STOPS_VARY_BY 4

static void follow_stops(uint64_t ran)
{
	if (!probed_quartile_nanos)
		return;
	uint64_t step = quartile_nanos / 256 + 1;
	uint64_t next = ran > quartile_nanos ? quartile_nanos + step : less(quartile_nanos, 3 * step);
	if (next < probed_quartile_nanos - probed_quartile_nanos / STOPS_VARY_BY ||
	    next > probed_quartile_nanos + probed_quartile_nanos / STOPS_VARY_BY)
		return;
	quartile_nanos = next;
	page->trap_nanos = quartile_nanos * probed_mean_nanos / probed_quartile_nanos;
}

/* The user process is about to run: its program if user_code, else what the kernel has it do. */
void account_for_resume(pid_t pid, int user_code)
{
	open_accounts();
	end_kernel_stretch();
	if (user_code && pid != returned_pid && (work == CHRONODISK_WORK_CALL || work == CHRONODISK_WORK_COPY))
		work = CHRONODISK_WORK_SWITCH;
	/* An alarm that comes from here on, before it is known who runs, is set again when the accounts are closed: a
	 * program that spins would wait for it for ever. */
	uint64_t target = next_interrupt();
	if (is_exact()) {
		if (user_code && !stopped && host_timer_exists)
			arm_for_exact_kernel();
	} else if (user_code && booted && !stopped && target != CHRONODISK_NEVER && page->computing == CHRONODISK_COMPUTING_MEASURED) {
		/* The host's timer was armed for kernel code; user code gets there sooner. */
		uint64_t now = virtual_nanos();
		uint64_t wait = target > now + REARM_MINIMUM_NANOS ? target - now : REARM_MINIMUM_NANOS;
		if (wait < STRETCHES_AHEAD * longest_stretch_nanos && armed_until_host > host_nanos() + wait)
			arm_host_timer_for(wait);
	}
	running_since_cpu = cpu_nanos(cpu_clock_of(pid), 0);
	running_user_code = user_code;
	handled_nanos = 0;
	resumed_kernel_cpu = process_cpu();
	running_pid = pid;
	close_accounts();
}

/* The user process has stopped; the host's part of that, which is not the guest's, takes
 * overhead_nanos of CPU time. The kernel now does what it stopped for. */
void account_for_stop(pid_t pid, uint64_t overhead_nanos, enum chronodisk_work next)
{
	if (pid != running_pid)
		return;
	uint64_t ran = cpu_nanos(cpu_clock_of(pid), running_since_cpu) - running_since_cpu;
	int user_code = running_user_code;
	uint64_t kernel = process_cpu();
	host_part_nanos += less(kernel, resumed_kernel_cpu + handled_nanos);
	look_at_host_part(kernel);
	running_pid = 0;
	page->traps += (uint64_t)user_code;
	last_stretch_nanos = ran;
	longest_stretch_nanos -= longest_stretch_nanos / 16;
	if (user_code && ran > longest_stretch_nanos)
		longest_stretch_nanos = ran;
	if (user_code) {
		if (cold_stretches) {
			uint64_t part = cold_part_of_user(ran);
			cold_user_nanos -= part;
			page->cold_nanos += part;
			ran -= part;
			cold_stretches--;
		} else {
			note_usual_stretch(ran);
			if (next == CHRONODISK_WORK_CALL)
				follow_stops(ran);
		}
		uint64_t owed = overhead_owed_nanos + overhead_nanos;
		uint64_t part = smaller(less(ran, TSC_READ_NANOS), owed);
		user_cpu_nanos += ran - part;
		page->trap_overhead_nanos += part;
		overhead_owed_nanos = smaller(owed - part, OVERHEAD_OWED_STOPS * page->trap_nanos);
	} else {
		stub_kernel_cpu_nanos += less(ran, page->trap_nanos);
	}
	begin_kernel_stretch();
	if (user_code) {
		page->user_cpu_nanos = user_cpu_nanos;
		begin_work(next);
		returned_pid = pid;
	}
}

#define CLOCK_READS 64
#define CLOCK_ROUNDS 8

/* CPU time of the quickest of some rounds: the others were interrupted. */
static uint64_t time_of_reading(clockid_t clock)
{
	uint64_t least = HOST_CALL_MAXIMUM_NANOS * CLOCK_READS;
	for (int round = 0; round < CLOCK_ROUNDS; round++) {
		uint64_t since = process_cpu();
		struct timespec time;
		for (int read = 0; read < CLOCK_READS; read++)
			host_clock_gettime(clock, &time);
		least = smaller(least, process_cpu() - since);
	}
	return least / CLOCK_READS;
}

void start_time(void)
{
	clock_read_nanos = time_of_reading(CLOCK_MONOTONIC);
	cpu_clock_read_nanos = time_of_reading(CLOCK_PROCESS_CPUTIME_ID);
	offset_nanos = -(int64_t)(time_is_the_hosts() ? page->host_origin_nanos : base());
	charged_nanos = base();
}
