/* The guest's clock: a preload library for the distribution's User Mode Linux.
 *
 * It gives the guest a virtual time V of its own. V runs while the guest computes, stands still
 * from a virtqueue kick to its acknowledgement, and jumps when the guest is idle to the earlier of
 * the guest's timer and the device's next completion. The library overrides the few C library
 * functions through which User Mode Linux reads clocks, arms its timer, idles, runs its user
 * processes and talks to the vhost-user backend.
 *
 * Everything here runs on the guest kernel's small stacks and inside its signal handlers: no
 * allocation, no stdio, no thread-local storage beyond errno, which is kept. The guest's kernel is
 * one host thread, so the only concurrency is that of its own signal handlers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <linux/sockios.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "page.h"

#define NANOS_PER_SECOND 1000000000ull

/* vhost-user specification: the in-band kick, and the flag that asks for its acknowledgement,
 * which is a header of 12 bytes and a payload of 8. */
#define VHOST_USER_VRING_KICK 35u
#define VHOST_USER_NEED_REPLY 8u
#define ACKNOWLEDGEMENT_BYTES 20

/* The guest's kernel process ends with this status when the backend is gone. */
#define EXIT_BACKEND_LOST 79

/* Where V is CPU time, it reaches an instant no earlier than the host's clock does; the host's timer
 * is armed again for the rest, but never for less than this. */
#define REARM_MINIMUM_NANOS 3000ull
/* An alarm that is set while the guest's kernel runs is late by at most this if user code takes over
 * and runs on, which moves V faster. */
#define LATENESS_MAXIMUM_NANOS 100000ull
/* User code that has lately been back within a quarter of the time left gets no alarm of its own. */
#define STRETCHES_AHEAD 4
/* A host timer is never armed for longer than this: ten seconds. */
#define ARM_MAXIMUM_NANOS 10000000000ull

/* An idle guest whose descriptors stay ready is woken this often in a row before it may jump. */
#define WAKEUPS_MAX 64

static struct chronodisk_page *page;
static int exchange_fd = -1;
static int vhost_inherited_fd = -1;
static int vhost_fd = -1;
static int epoll_fd = -1;
static int serial_out_fd = -1;
static pid_t main_pid;

/* Until the device is first used the guest's kernel boots, and measures itself in loops that end
 * after so many ticks; its CPU time counts in full, or these loops would last many times as long. */
static int booted;

/* V = base() + offset while the clock runs, page->virtual_now while it stands still. */
static int64_t offset_nanos;
static uint64_t latest_nanos;
static volatile sig_atomic_t stopped;
/* While the accounts are being changed an alarm only notes that it came. */
static volatile sig_atomic_t in_accounts;
static volatile sig_atomic_t alarm_deferred;
static uint64_t stopped_since_host;
static int acknowledgement_left;

/* The guest's only timer, in virtual time. */
static timer_t host_timer;
static int host_timer_exists;
static uint64_t armed_until_host;
static uint64_t guest_deadline; /* 0: not armed */
static uint64_t guest_interval;
static int alarm_unanswered; /* the guest got its alarm and has not armed the timer since */
static int alarm_repeated;   /* the idle loop asks for the alarm once more */
static void (*guest_alarm_handler)(int, siginfo_t *, void *);

/* The user process that runs now, and the CPU times already counted. */
static volatile pid_t running_pid;
static volatile int running_user_code;
static uint64_t running_since_cpu;
static uint64_t user_cpu_nanos;
static uint64_t stub_kernel_cpu_nanos;
static uint64_t longest_stretch_nanos; /* of user code, fading with each that is shorter */
static long last_resume = PTRACE_CONT;
static pid_t stopped_at_call_pid; /* the process whose last stop was a system call */

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_timer_create)(clockid_t, struct sigevent *, timer_t *);
static int (*real_timer_settime)(timer_t, int, const struct itimerspec *, struct itimerspec *);
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*real_sigsuspend)(const sigset_t *);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_epoll_create)(int);
static int (*real_epoll_ctl)(int, int, int, struct epoll_event *);
static int (*real_open)(const char *, int, ...);
static int (*real_open64)(const char *, int, ...);
static int (*real_mkstemp64)(char *);
static int (*real_unlink)(const char *);
static int (*real_clone)(int (*)(void *), void *, int, void *, ...);
static long (*real_ptrace)(int, ...);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_pread64)(int, void *, size_t, off64_t);
static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);

static void *next_symbol(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);
	if (!symbol) {
		static const char message[] = "chronodisk: the C library lacks a function that the guest's clock needs\n";
		if (write(2, message, sizeof message - 1) < 0)
			_exit(EXIT_BACKEND_LOST);
		_exit(EXIT_BACKEND_LOST);
	}
	return symbol;
}

static int descriptor_from_environment(const char *name)
{
	const char *text = getenv(name);
	return text ? atoi(text) : -1;
}

static int is_guest_kernel(void)
{
	/* Helpers of User Mode Linux share its memory but are processes of their own. */
	return page && syscall(SYS_getpid) == main_pid;
}

/* ---- Virtual time ---------------------------------------------------------------------------- */

static uint64_t nanos_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * NANOS_PER_SECOND + (uint64_t)time->tv_nsec;
}

static struct timespec timespec_of(uint64_t nanos)
{
	return (struct timespec){ .tv_sec = (time_t)(nanos / NANOS_PER_SECOND), .tv_nsec = (long)(nanos % NANOS_PER_SECOND) };
}

static uint64_t host_nanos(void)
{
	struct timespec time;
	real_clock_gettime(CLOCK_MONOTONIC, &time);
	return nanos_of(&time);
}

static uint64_t cpu_nanos(clockid_t clock, uint64_t if_gone)
{
	struct timespec time;
	return real_clock_gettime(clock, &time) ? if_gone : nanos_of(&time);
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

/* Host nanoseconds, or the guest's CPU time: programs in full, the kernel's part scaled. */
static uint64_t base(void)
{
	if (page->cpu_base == CHRONODISK_CPU_WALL)
		return host_nanos();
	uint64_t kernel = cpu_nanos(CLOCK_PROCESS_CPUTIME_ID, 0) + stub_kernel_cpu_nanos;
	uint64_t user = user_cpu_nanos;
	if (running_pid) {
		uint64_t ran = cpu_nanos(cpu_clock_of(running_pid), running_since_cpu) - running_since_cpu;
		if (running_user_code)
			user += less(ran, page->trap_nanos);
		else
			kernel += ran;
	}
	if (!booted)
		return user + kernel;
	return user + (uint64_t)((unsigned __int128)kernel * page->kernel_scale_millionths / 1000000u);
}

static uint64_t virtual_nanos(void)
{
	if (stopped)
		return page->virtual_now;
	uint64_t now = base() + (uint64_t)offset_nanos;
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
static uint64_t next_interrupt(void)
{
	uint64_t bound = page->completion_bound;
	return guest_deadline && guest_deadline < bound ? guest_deadline : bound;
}

static void arm_host_timer_for(uint64_t wait)
{
	if (wait > ARM_MAXIMUM_NANOS)
		wait = ARM_MAXIMUM_NANOS;
	armed_until_host = host_nanos() + wait;
	struct itimerspec armed = { .it_value = timespec_of(wait) };
	real_timer_settime(host_timer, 0, &armed, NULL);
}

/* Arms the host's timer for the next interrupt, as if the guest went on doing what it does now:
 * kernel code moves V on more slowly than the host's clock if its CPU time is scaled down. */
static void arm_host_timer(void)
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
	if (wait && page->cpu_base == CHRONODISK_CPU_MEASURED) {
		uint64_t scale = page->kernel_scale_millionths;
		if (booted && !(running_pid && running_user_code) && scale && scale < 1000000u)
			wait = smaller((uint64_t)((unsigned __int128)wait * 1000000u / scale), wait + LATENESS_MAXIMUM_NANOS);
		if (wait < REARM_MINIMUM_NANOS)
			wait = REARM_MINIMUM_NANOS;
	}
	arm_host_timer_for(wait ? wait : 1);
}

static void stop_clock(void)
{
	page->virtual_now = virtual_nanos();
	page->kernel_cpu_nanos = cpu_nanos(CLOCK_PROCESS_CPUTIME_ID, 0) + stub_kernel_cpu_nanos;
	page->user_cpu_nanos = user_cpu_nanos;
	stopped_since_host = host_nanos();
	stopped = 1;
	disarm_host_timer();
}

static void start_clock(uint64_t from)
{
	if (from > page->virtual_now)
		page->virtual_now = from;
	page->stopped_host_nanos += host_nanos() - stopped_since_host;
	if (latest_nanos > page->virtual_now)
		page->virtual_now = latest_nanos;
	offset_nanos = (int64_t)(page->virtual_now - base());
	latest_nanos = page->virtual_now;
	stopped = 0;
	arm_host_timer();
}

static void open_accounts(void)
{
	in_accounts = 1;
	__asm__ volatile("" ::: "memory");
}

static void close_accounts(void)
{
	__asm__ volatile("" ::: "memory");
	in_accounts = 0;
	if (alarm_deferred) {
		alarm_deferred = 0;
		if (!stopped)
			arm_host_timer();
	}
}

/* ---- Asking the backend ----------------------------------------------------------------------- */

static void transfer(int writes, void *bytes, size_t len_bytes)
{
	char *at = bytes;
	while (len_bytes) {
		ssize_t moved = writes ? syscall(SYS_sendto, exchange_fd, at, len_bytes, MSG_NOSIGNAL, NULL, 0)
				       : syscall(SYS_read, exchange_fd, at, len_bytes);
		if (moved < 0 && errno == EINTR)
			continue;
		if (moved <= 0)
			_exit(EXIT_BACKEND_LOST);
		at += moved;
		len_bytes -= (size_t)moved;
	}
}

/* Stops the clock, asks, and goes on from the instant in the answer. Signals must be blocked. */
static struct chronodisk_answer ask(enum chronodisk_ask kind)
{
	stop_clock();
	struct chronodisk_question question = {
		.ask = kind,
		.virtual_now = page->virtual_now,
		.guest_timer = guest_deadline ? guest_deadline : CHRONODISK_NEVER,
	};
	struct chronodisk_answer answer;
	transfer(1, &question, sizeof question);
	transfer(0, &answer, sizeof answer);
	start_clock(answer.virtual_now);
	return answer;
}

/* The completion bound has passed while the guest ran: fetch what is due, and stop the user
 * program, so that its kernel takes the interrupt now and not at its next tick. */
static void take_completions(void)
{
	struct chronodisk_answer answer = ask(CHRONODISK_ASK_INTERRUPT);
	page->interrupts++;
	if (answer.completed && running_pid && running_user_code)
		kill(running_pid, SIGALRM);
}

/* ---- The guest's timer ------------------------------------------------------------------------ */

/* Whether the guest's timer has expired; if so it is set to its next period, or disarmed. */
static int expire_guest_timer(void)
{
	uint64_t now = guest_deadline ? virtual_nanos() : 0;
	if (!guest_deadline || now < guest_deadline)
		return 0;
	if (guest_interval)
		guest_deadline += ((now - guest_deadline) / guest_interval + 1) * guest_interval;
	else
		guest_deadline = 0;
	alarm_unanswered = 1;
	return 1;
}

/* The host's timer may have fired for the guest's timer, for a completion, or early. */
static void on_alarm(int signal, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	page->alarms++;
	if (in_accounts)
		alarm_deferred = 1;
	if (stopped || in_accounts)
		return;
	if (page->completion_bound != CHRONODISK_NEVER && virtual_nanos() >= page->completion_bound)
		take_completions();
	int expired = expire_guest_timer() || alarm_repeated;
	alarm_repeated = 0;
	arm_host_timer();
	errno = saved_errno;
	if (expired && guest_alarm_handler)
		guest_alarm_handler(signal, info, context);
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	if (signal != SIGALRM || !action || !(action->sa_flags & SA_SIGINFO) || !is_guest_kernel())
		return real_sigaction(signal, action, old);
	guest_alarm_handler = action->sa_sigaction;
	struct sigaction ours = *action;
	ours.sa_sigaction = on_alarm;
	return real_sigaction(signal, &ours, old);
}

int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	int result = real_timer_create(clock, event, timer);
	if (result == 0 && is_guest_kernel()) {
		host_timer = *timer;
		host_timer_exists = 1;
	}
	return result;
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old)
{
	if (!is_guest_kernel())
		return real_timer_settime(timer, flags, value, old);
	uint64_t wait = nanos_of(&value->it_value);
	guest_interval = nanos_of(&value->it_interval);
	guest_deadline = wait ? virtual_nanos() + wait : 0;
	alarm_unanswered = 0;
	if (!stopped)
		arm_host_timer();
	return 0;
}

/* The guest's kernel asks this only to decide whether it may sleep. A zero would make it spin
 * while it waits for the device with no timer armed. */
int timer_gettime(timer_t timer, struct itimerspec *value)
{
	(void)timer;
	uint64_t now = virtual_nanos();
	value->it_value = timespec_of(guest_deadline > now ? guest_deadline - now : 1);
	value->it_interval = timespec_of(guest_interval);
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (!page || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
		return real_clock_gettime(clock, time);
	uint64_t now = is_guest_kernel() ? virtual_nanos() : latest_nanos;
	*time = timespec_of(clock == CLOCK_REALTIME ? page->realtime_start_nanos + now : now);
	return 0;
}

int gettimeofday(struct timeval *time, void *zone)
{
	(void)zone;
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	*time = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
	return 0;
}

/* ---- Idling ------------------------------------------------------------------------------------ */

static int descriptors_are_ready(void)
{
	struct pollfd descriptor = { .fd = epoll_fd, .events = POLLIN };
	struct timespec none = { 0, 0 };
	return epoll_fd >= 0 && syscall(SYS_ppoll, &descriptor, 1, &none, NULL, 0) > 0;
}

static int interrupts_are_pending(void)
{
	sigset_t pending;
	sigpending(&pending);
	return sigismember(&pending, SIGIO) || sigismember(&pending, SIGALRM);
}

static void jump_to(uint64_t instant)
{
	uint64_t now = virtual_nanos();
	if (instant <= now)
		return;
	offset_nanos += (int64_t)(instant - now);
	page->jumps++;
	page->jumped_nanos += instant - now;
}

/* What the guest has written to the launcher and the launcher has not read. */
static int output_is_on_its_way(void)
{
	int unread_bytes = 0;
	return serial_out_fd >= 0 && ioctl(serial_out_fd, SIOCOUTQ, &unread_bytes) == 0 && unread_bytes > 0;
}

/* The launcher's speed is not the guest's affair: while something is on its way between them, an
 * idle guest's clock stands still. Returns whether an interrupt has come meanwhile. */
static int settle_with_launcher(void)
{
	if (!page->launcher_owes && !output_is_on_its_way())
		return 0;
	static const struct timespec look_again = { 0, 50000 };
	stop_clock();
	while (page->launcher_owes || output_is_on_its_way()) {
		if (interrupts_are_pending() || descriptors_are_ready())
			break;
		syscall(SYS_nanosleep, &look_again, NULL);
	}
	start_clock(page->virtual_now);
	return interrupts_are_pending() || descriptors_are_ready();
}

/* User processes that are in a read of descriptor 0. */
#define READERS_MAX 64
static pid_t readers[READERS_MAX];

static void forget_reader(pid_t pid)
{
	if (readers[pid % READERS_MAX] == pid)
		readers[pid % READERS_MAX] = 0;
}

static void note_reader(pid_t pid, const struct user_regs_struct *registers)
{
	if (registers->orig_rax == SYS_read && registers->rdi == 0)
		readers[pid % READERS_MAX] = pid;
}

/* Whether the program waits for standard input that is open and empty. */
static int input_is_awaited(void)
{
	if (!page->input_awaited)
		return 0;
	for (unsigned index = 0; index < READERS_MAX; index++)
		if (readers[index] && kill(readers[index], 0) == 0)
			return 1;
	return 0;
}

/* Waits for something outside the guest: input, or under the host's pace the guest's timer. The
 * guest's interrupts are off, so its handlers only take note; they read no clock. */
static int wait_outside(const sigset_t *mask)
{
	int follows_host = page->idle_pace == CHRONODISK_IDLE_HOST || input_is_awaited();
	stop_clock();
	uint64_t since_host = host_nanos();
	if (follows_host && guest_deadline) {
		uint64_t wait = guest_deadline > page->virtual_now ? guest_deadline - page->virtual_now : 1;
		arm_host_timer_for(wait);
	}
	int result = real_sigsuspend(mask);
	int saved_errno = errno;
	start_clock(page->virtual_now + (follows_host ? host_nanos() - since_host : 0));
	if (guest_deadline && virtual_nanos() >= guest_deadline)
		kill(main_pid, SIGALRM);
	errno = saved_errno;
	return result;
}

/* The guest's kernel idles here, with its timer's signal blocked, until an interrupt comes. */
int sigsuspend(const sigset_t *mask)
{
	static unsigned wakeups;
	if (!is_guest_kernel() || !host_timer_exists)
		return real_sigsuspend(mask);

	sigset_t interrupts, old;
	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGIO);
	sigaddset(&interrupts, SIGALRM);
	sigprocmask(SIG_BLOCK, &interrupts, &old);

	int outside = 0;
	if (interrupts_are_pending()) {
		/* Served below. */
	} else if (wakeups < WAKEUPS_MAX && descriptors_are_ready()) {
		/* An interrupt came between the kernel's last look and this call; never jump past it. */
		wakeups++;
		kill(main_pid, SIGIO);
	} else if (alarm_unanswered && !guest_deadline) {
		/* The alarm may have been lost in the same way; a spurious one is harmless. */
		alarm_unanswered = 0;
		alarm_repeated = 1;
		kill(main_pid, SIGALRM);
	} else if (settle_with_launcher()) {
		/* Served below, or by the next call. */
		if (!interrupts_are_pending())
			kill(main_pid, SIGIO);
	} else if (page->outstanding) {
		wakeups = 0;
		uint64_t before = virtual_nanos();
		struct chronodisk_answer answer = ask(CHRONODISK_ASK_IDLE);
		page->idle_exchanges++;
		page->jumps++;
		page->jumped_nanos += page->virtual_now - before;
		if (guest_deadline && virtual_nanos() >= guest_deadline)
			kill(main_pid, SIGALRM);
		else if (!answer.completed)
			outside = 1;
	} else if (guest_deadline && page->idle_pace == CHRONODISK_IDLE_JUMP && !input_is_awaited()) {
		wakeups = 0;
		jump_to(guest_deadline);
		kill(main_pid, SIGALRM);
	} else {
		wakeups = 0;
		outside = 1;
	}

	int result;
	if (outside)
		result = wait_outside(mask);
	else
		result = real_sigsuspend(mask);
	int saved_errno = errno;
	sigprocmask(SIG_SETMASK, &old, NULL);
	errno = saved_errno;
	return result;
}

int epoll_create(int size)
{
	int fd = real_epoll_create(size);
	if (is_guest_kernel() && epoll_fd < 0)
		epoll_fd = fd;
	return fd;
}

/* User Mode Linux adds descriptors edge-triggered but modifies them to level-triggered, which would
 * leave a writable console ready for ever and so forbid every jump. */
int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	if (operation == EPOLL_CTL_MOD && event)
		event->events |= EPOLLET;
	return real_epoll_ctl(epoll, operation, fd, event);
}

/* ---- The kick ---------------------------------------------------------------------------------- */

/* The guest connects to its device by a name of which no socket exists: it gets the inherited one. */
int connect(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	static const char name[] = "chronodisk-vda";
	const struct sockaddr_un *unix_address = (const struct sockaddr_un *)address;
	if (vhost_inherited_fd < 0 || address->sa_family != AF_UNIX ||
	    strcmp(unix_address->sun_path, name) != 0)
		return real_connect(fd, address, len_bytes);
	if (syscall(SYS_dup3, vhost_inherited_fd, fd, O_CLOEXEC) < 0)
		return -1;
	close(vhost_inherited_fd);
	vhost_inherited_fd = -1;
	vhost_fd = fd;
	return 0;
}

static int is_kick(int fd, const struct msghdr *message)
{
	if (fd != vhost_fd || fd < 0 || !message->msg_iovlen || message->msg_iov[0].iov_len < 12)
		return 0;
	uint32_t header[2];
	memcpy(header, message->msg_iov[0].iov_base, sizeof header);
	return header[0] == VHOST_USER_VRING_KICK && (header[1] & VHOST_USER_NEED_REPLY);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (is_kick(fd, message) && !stopped) {
		open_accounts();
		stop_clock();
		close_accounts();
		booted = 1;
		page->kicks++;
		acknowledgement_left = ACKNOWLEDGEMENT_BYTES;
	}
	return real_sendmsg(fd, message, flags);
}

ssize_t read(int fd, void *buffer, size_t len_bytes)
{
	ssize_t got = real_read(fd, buffer, len_bytes);
	if (fd != vhost_fd || fd < 0 || acknowledgement_left == 0)
		return got;
	if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
		_exit(EXIT_BACKEND_LOST);
	if (got > 0) {
		acknowledgement_left -= (int)got;
		if (acknowledgement_left <= 0) {
			int saved_errno = errno;
			acknowledgement_left = 0;
			start_clock(0);
			errno = saved_errno;
		}
	}
	return got;
}

/* ---- User processes ----------------------------------------------------------------------------- */

struct start {
	int (*function)(void *);
	void *argument;
};

/* First instructions of every process that the guest's kernel makes. */
static int start_process(void *argument)
{
	struct start start = *(struct start *)argument;
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	return start.function(start.argument);
}

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
	va_list rest;
	va_start(rest, argument);
	pid_t *parent_tid = va_arg(rest, pid_t *);
	void *tls = va_arg(rest, void *);
	pid_t *child_tid = va_arg(rest, pid_t *);
	va_end(rest);
	if (!page || !stack)
		return real_clone(function, stack, flags, argument, parent_tid, tls, child_tid);
	/* On the child's own stack, because a child that shares our memory may read it late. */
	struct start *start = (struct start *)(((uintptr_t)stack - sizeof *start) & ~(uintptr_t)15);
	*start = (struct start){ function, argument };
	return real_clone(start_process, start, flags, start, parent_tid, tls, child_tid);
}

static void note_resume(long request, pid_t pid)
{
	last_resume = request;
	int user_code = request == PTRACE_SYSEMU || request == PTRACE_SYSEMU_SINGLESTEP || request == PTRACE_SYSCALL;
	uint64_t target = next_interrupt();
	if (user_code && booted && !stopped && target != CHRONODISK_NEVER && page->cpu_base == CHRONODISK_CPU_MEASURED) {
		/* The host's timer was armed for kernel code; user code gets there sooner. */
		uint64_t now = virtual_nanos();
		uint64_t wait = target > now + REARM_MINIMUM_NANOS ? target - now : REARM_MINIMUM_NANOS;
		if (wait < STRETCHES_AHEAD * longest_stretch_nanos && armed_until_host > host_nanos() + wait)
			arm_host_timer_for(wait);
	}
	open_accounts();
	running_since_cpu = cpu_nanos(cpu_clock_of(pid), 0);
	running_user_code = user_code;
	running_pid = pid;
	close_accounts();
}

static void note_stop(pid_t pid, int was_interrupted)
{
	if (pid != running_pid)
		return;
	uint64_t ran = cpu_nanos(cpu_clock_of(pid), running_since_cpu) - running_since_cpu;
	int user_code = running_user_code;
	running_pid = 0;
	page->traps++;
	longest_stretch_nanos -= longest_stretch_nanos / 16;
	if (user_code && ran > longest_stretch_nanos)
		longest_stretch_nanos = ran;
	if (user_code)
		user_cpu_nanos += less(ran, was_interrupted ? page->interrupt_nanos : page->trap_nanos);
	else
		stub_kernel_cpu_nanos += ran;
}

/* User Mode Linux 6.1 keeps 2696 bytes of extended register state, enough up to AVX-512 and PKU. A
 * host whose processor has more (AMX) takes only a whole state: it gets one, with the rest in its
 * initial configuration, which is where it always is, because guests can't ask leave to use AMX.
 * Intel SDM volume 1, 13.4: the header at byte 512 begins with XSTATE_BV, one bit a component. */
#define XSTATE_HEADER_OFFSET 512
#define XSTATE_COMPONENTS_KEPT 0x3ffull
#define XSTATE_BYTES_MAX 16384

static long set_extended_registers(pid_t pid, const struct iovec *given)
{
	static char whole[XSTATE_BYTES_MAX] __attribute__((aligned(64)));
	static size_t whole_bytes;
	if (!whole_bytes) {
		struct iovec all = { .iov_base = whole, .iov_len = sizeof whole };
		if (real_ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &all) < 0)
			return -1;
		whole_bytes = all.iov_len;
		memset(whole, 0, sizeof whole);
	}
	if (whole_bytes <= given->iov_len)
		return real_ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, (void *)given);
	memcpy(whole, given->iov_base, given->iov_len);
	uint64_t components;
	memcpy(&components, whole + XSTATE_HEADER_OFFSET, sizeof components);
	components &= XSTATE_COMPONENTS_KEPT;
	memcpy(whole + XSTATE_HEADER_OFFSET, &components, sizeof components);
	struct iovec all = { .iov_base = whole, .iov_len = whole_bytes };
	return real_ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	va_start(rest, request);
	pid_t pid = va_arg(rest, pid_t);
	void *address = va_arg(rest, void *);
	void *data = va_arg(rest, void *);
	va_end(rest);
	switch (page ? (int)request : -1) {
	case PTRACE_SYSEMU:
	case PTRACE_SYSEMU_SINGLESTEP:
	case PTRACE_SYSCALL:
	case PTRACE_CONT:
		if (request != PTRACE_CONT)
			forget_reader(pid);
		note_resume(request, pid);
		break;
	case PTRACE_GETREGS: {
		long result = real_ptrace(request, pid, address, data);
		if (result == 0 && stopped_at_call_pid == pid)
			note_reader(pid, data);
		return result;
	}
	case 21: /* PTRACE_OLDSETOPTIONS */
	case PTRACE_SETOPTIONS:
		/* The guest's programs must never outlive its kernel: they would run on as host programs. */
		return real_ptrace(PTRACE_SETOPTIONS, pid, address, (void *)((uintptr_t)data | PTRACE_O_EXITKILL));
	case PTRACE_SETREGSET:
		if ((uintptr_t)address == NT_X86_XSTATE)
			return set_extended_registers(pid, data);
		break;
	default:
		break;
	}
	return real_ptrace(request, pid, address, data);
}

/* The bytes at an address of the process, as far as they can be read; the word that holds the first
 * never reaches into the next page. */
static uint32_t code_at(pid_t pid, uint64_t address)
{
	unsigned offset = address & 7;
	uint64_t words[2] = { 0, 0 };
	errno = 0;
	words[0] = (uint64_t)real_ptrace(PTRACE_PEEKTEXT, pid, (void *)(address - offset), NULL);
	if (errno)
		return 0;
	if (offset > 5)
		words[1] = (uint64_t)real_ptrace(PTRACE_PEEKTEXT, pid, (void *)(address - offset + 8), NULL);
	uint32_t code;
	memcpy(&code, (char *)words + offset, sizeof code);
	return code;
}

/* Whether the process stopped at RDTSC or RDTSCP, which then has been carried out in V. */
static int emulate_tsc_read(pid_t pid)
{
	siginfo_t information;
	if (real_ptrace(PTRACE_GETSIGINFO, pid, NULL, &information) < 0 || information.si_code != SI_KERNEL)
		return 0; /* a page fault, which is by far the most frequent */
	struct user_regs_struct registers;
	if (real_ptrace(PTRACE_GETREGS, pid, NULL, &registers) < 0)
		return 0;
	uint32_t code = code_at(pid, registers.rip);
	if ((code & 0xffff) == 0x310f) {
		registers.rip += 2;
	} else if ((code & 0xffffff) == 0xf9010f) {
		registers.rip += 3;
		registers.rcx = 0;
	} else {
		return 0;
	}
	uint64_t ticks = (uint64_t)((unsigned __int128)virtual_nanos() * page->tsc_hertz / NANOS_PER_SECOND);
	registers.rax = ticks & 0xffffffffu;
	registers.rdx = ticks >> 32;
	page->tsc_reads++;
	return real_ptrace(PTRACE_SETREGS, pid, NULL, &registers) == 0;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	int ignored;
	if (!status)
		status = &ignored;
	for (;;) {
		pid_t stopped_pid = (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
		if (stopped_pid <= 0 || !page)
			return stopped_pid;
		int saved_errno = errno;
		int was_user_code = stopped_pid == running_pid && running_user_code;
		int at_call = WIFSTOPPED(*status) && WSTOPSIG(*status) == (SIGTRAP | 0x80);
		stopped_at_call_pid = at_call ? stopped_pid : 0;
		open_accounts();
		note_stop(stopped_pid, WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGALRM);
		close_accounts();
		if (was_user_code && WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGSEGV && emulate_tsc_read(stopped_pid)) {
			note_resume(last_resume, stopped_pid);
			real_ptrace((int)last_resume, stopped_pid, NULL, NULL);
			errno = saved_errno;
			continue;
		}
		if (!stopped && page->completion_bound != CHRONODISK_NEVER) {
			sigset_t interrupts, old;
			sigemptyset(&interrupts);
			sigaddset(&interrupts, SIGIO);
			sigaddset(&interrupts, SIGALRM);
			sigprocmask(SIG_BLOCK, &interrupts, &old);
			if (virtual_nanos() >= page->completion_bound)
				take_completions();
			sigprocmask(SIG_SETMASK, &old, NULL);
		}
		errno = saved_errno;
		return stopped_pid;
	}
}

/* ---- The host's tree and the guest's memory ----------------------------------------------------- */

ssize_t pread64(int fd, void *buffer, size_t len_bytes, off64_t at)
{
	ssize_t got = real_pread64(fd, buffer, len_bytes, at);
	if (got > 0 && page)
		page->host_tree_read_bytes += (uint64_t)got;
	return got;
}

ssize_t pwrite64(int fd, const void *buffer, size_t len_bytes, off64_t at)
{
	ssize_t put = real_pwrite64(fd, buffer, len_bytes, at);
	if (put > 0 && page)
		page->host_tree_written_bytes += (uint64_t)put;
	return put;
}

/* The guest's memory has no name in any file system, so nothing is left behind, and a small or
 * unexecutable /dev/shm does no harm. */
static int memory_file(void)
{
	return (int)syscall(SYS_memfd_create, "chronodisk-guest-memory", MFD_CLOEXEC);
}

/* User Mode Linux asks for a file without a name where the host can make one... */
static int open_as(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode)
{
	return (flags & O_TMPFILE) == O_TMPFILE && is_guest_kernel() ? memory_file() : real(path, flags, mode);
}

static mode_t mode_among(int flags, va_list rest)
{
	return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = mode_among(flags, rest);
	va_end(rest);
	return open_as(real_open, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = mode_among(flags, rest);
	va_end(rest);
	return open_as(real_open64, path, flags, mode);
}

/* ...and else for one with a name, which it removes at once. */
static char memory_name[64];

int mkstemp64(char *template)
{
	if (!is_guest_kernel())
		return real_mkstemp64(template);
	int fd = memory_file();
	size_t len_bytes = strlen(template);
	if (fd >= 0 && len_bytes < sizeof memory_name)
		memcpy(memory_name, template, len_bytes + 1);
	return fd;
}

int unlink(const char *path)
{
	if (memory_name[0] && strcmp(path, memory_name) == 0) {
		memory_name[0] = 0;
		return 0;
	}
	return real_unlink(path);
}

/* ---- Start -------------------------------------------------------------------------------------- */

__attribute__((constructor)) static void start(void)
{
	real_clock_gettime = next_symbol("clock_gettime");
	real_timer_create = next_symbol("timer_create");
	real_timer_settime = next_symbol("timer_settime");
	real_sigaction = next_symbol("sigaction");
	real_sigsuspend = next_symbol("sigsuspend");
	real_connect = next_symbol("connect");
	real_epoll_create = next_symbol("epoll_create");
	real_epoll_ctl = next_symbol("epoll_ctl");
	real_open = next_symbol("open");
	real_open64 = next_symbol("open64");
	real_mkstemp64 = next_symbol("mkstemp64");
	real_unlink = next_symbol("unlink");
	real_clone = next_symbol("clone");
	real_ptrace = next_symbol("ptrace");
	real_read = next_symbol("read");
	real_sendmsg = next_symbol("sendmsg");
	real_pread64 = next_symbol("pread64");
	real_pwrite64 = next_symbol("pwrite64");

	int page_fd = descriptor_from_environment("CHRONODISK_PAGE_FD");
	exchange_fd = descriptor_from_environment("CHRONODISK_EXCHANGE_FD");
	vhost_inherited_fd = descriptor_from_environment("CHRONODISK_VHOST_FD");
	serial_out_fd = descriptor_from_environment("CHRONODISK_SERIAL_OUT_FD");
	if (page_fd < 0)
		return;
	void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (mapped == MAP_FAILED || ((struct chronodisk_page *)mapped)->magic != CHRONODISK_PAGE_MAGIC)
		_exit(EXIT_BACKEND_LOST);
	main_pid = (pid_t)syscall(SYS_getpid);
	page = mapped;
	offset_nanos = -(int64_t)base();
}
