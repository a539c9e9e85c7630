/* The guest's clock: a preload library for the distribution's User Mode Linux.
 *
 * It gives the guest a virtual time V of its own. V runs while the guest computes, stands still
 * from a virtqueue kick to its acknowledgement, and jumps when the guest is idle to the earlier of
 * the guest's timer and the device's next completion. Or, if asked for, V is the host's time, and
 * completions come when they are due there. The library overrides the few C library
 * functions through which User Mode Linux reads clocks, arms its timer, idles, runs its user
 * processes and talks to the vhost-user backend.
 *
 * Everything here runs on the guest kernel's small stacks and inside its signal handlers: no
 * allocation, no stdio, no thread-local storage beyond errno, which is kept. The guest's kernel is
 * one host thread, so the only concurrency is that of its own signal handlers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim.h"

/* vhost-user specification: the in-band kick, and the flag that asks for its acknowledgement,
 * which is a header of 12 bytes and a payload of 8. */
#define VHOST_USER_VRING_KICK 35u
#define VHOST_USER_NEED_REPLY 8u
#define ACKNOWLEDGEMENT_BYTES 20

/* An idle guest whose descriptors stay ready is woken this often in a row before it may jump. */
#define WAKEUPS_MAX 64

struct chronodisk_page *page;
struct chronodisk_page *shared_page;
pid_t main_pid;
static int exchange_fd = -1;
/* Each device has a connection of its own: inherited until its driver connects. */
static struct {
	int inherited_fd;
	int fd;
} vhost[DEVICES_MAX];
static int kicked_fd = -1; /* whose acknowledgement is awaited */
static int epoll_fd = -1;
static int idle_signals_fd = -1; /* by which Linux 6.19 and newer wait for an interrupt */
static int serial_out_fd = -1;
static int line_is_open; /* the guest has opened its line to the launcher */
static int acknowledgement_left;
static uint64_t requests_before_kick;

static uint64_t guest_interval;
static int alarm_unanswered; /* the guest got its alarm and has not armed the timer since */
static int has_idled;
static volatile sig_atomic_t reads_from_backend;
static int alarm_repeated;   /* the idle loop asks for the alarm once more */
static void (*guest_alarm_handler)(int, siginfo_t *, void *);
static void (*guest_io_handler)(int, siginfo_t *, void *);
static void (*guest_fault_handler)(int, siginfo_t *, void *);

static int (*real_timer_create)(clockid_t, struct sigevent *, timer_t *);
static int (*real_timer_gettime)(timer_t, struct itimerspec *);
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*real_sigsuspend)(const sigset_t *);
static int (*real_connect)(int, const struct sockaddr *, socklen_t);
static int (*real_epoll_create)(int);
static int (*real_epoll_ctl)(int, int, int, struct epoll_event *);
static int (*real_poll)(struct pollfd *, nfds_t, int);
static int (*real_signalfd)(int, const sigset_t *, int);
static ssize_t (*real_read)(int, void *, size_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);

void *next_symbol(const char *name)
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

int is_kernel_process(void)
{
	/* Helpers of User Mode Linux share its memory but are processes of their own. */
	return shared_page && syscall(SYS_getpid) == main_pid;
}

int is_guest_kernel(void)
{
	return page && is_kernel_process();
}

/* Whether nothing of the host's may show in the guest's time: an exact clock on which computing takes none. */
int runs_repeat(void)
{
	return page && is_exact() && page->computing == CHRONODISK_COMPUTING_ZERO;
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

/* Asks with the clock stopped, and goes on from the instant in the answer. */
static struct chronodisk_answer ask_stopped(enum chronodisk_ask kind, uint64_t guest_timer)
{
	struct chronodisk_question question = {
		.ask = kind,
		.virtual_now = page->virtual_now,
		.guest_timer = guest_timer,
	};
	struct chronodisk_answer answer;
	disturb();
	transfer(1, &question, sizeof question);
	transfer(0, &answer, sizeof answer);
	disturb();
	start_clock(answer.virtual_now);
	account_for_requests(0, answer.completed, kind == CHRONODISK_ASK_IDLE && answer.completed);
	return answer;
}

/* Stops the clock and asks. Signals must be blocked. */
static struct chronodisk_answer ask(enum chronodisk_ask kind)
{
	stop_clock();
	return ask_stopped(kind, guest_deadline ? guest_deadline : CHRONODISK_NEVER);
}

/* The same for a kernel that has said at which instant it idles and until when. */
struct chronodisk_answer ask_idle(uint64_t virtual_now, uint64_t guest_timer)
{
	stop_clock();
	page->virtual_now = virtual_now;
	return ask_stopped(CHRONODISK_ASK_IDLE, guest_timer);
}

/* The completion bound has passed while the guest ran: fetch what is due, and stop the user
 * program, so that its kernel takes the interrupt now and not at its next tick. */
void take_completions(void)
{
	struct chronodisk_answer answer = ask(CHRONODISK_ASK_INTERRUPT);
	page->interrupts++;
	if (answer.completed && running_program())
		kill(running_program(), SIGALRM);
}

/* The same where the kernel looks by itself, between two stretches of a program: the interrupt is over when this
 * returns, and the program goes on unless there is something to do for it. */
void take_due_completions(void)
{
	sigset_t interrupts, old;
	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGIO);
	sigaddset(&interrupts, SIGALRM);
	sigprocmask(SIG_BLOCK, &interrupts, &old);
	ask(CHRONODISK_ASK_INTERRUPT);
	page->interrupts++;
	sigprocmask(SIG_SETMASK, &old, NULL);
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

/* A kernel that waits for an interrupt in a call that is not known here waits for ever: its clock does not jump, and
 * hardly moves while it computes nothing. Every kernel idles in the first moments of its boot. So one that has never
 * idled has not waited for so long either; on a busy host it gets its turn more often than at one in so many times. */
#define WAITED_UNKNOWN_NANOS 5000000000ull
#define WAITS_SHARE 100

static void look_for_idling(void)
{
	static uint64_t looked_at_host, looked_at_cpu, waited;
	if (has_idled || time_is_the_hosts())
		return;
	/* The backend may take long to begin, on a busy host. */
	if (reads_from_backend) {
		looked_at_host = 0;
		return;
	}
	struct timespec cpu_time;
	host_clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_time);
	uint64_t host = host_nanos(), cpu = nanos_of(&cpu_time);
	if (looked_at_host && cpu - looked_at_cpu < (host - looked_at_host) / WAITS_SHARE && !running_process())
		waited += host - looked_at_host;
	looked_at_host = host;
	looked_at_cpu = cpu;
	if (waited >= WAITED_UNKNOWN_NANOS)
		_exit(EXIT_NEVER_IDLES);
}

/* The host's timer may have fired for the guest's timer, for a completion, or early. */
static void on_alarm(int signal, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	disturb();
	page->alarms++;
	if (in_accounts)
		alarm_deferred = 1;
	if (stopped || in_accounts)
		return;
	if (is_exact()) {
		if (on_alarm_of_exact_kernel() && running_program())
			kill(running_program(), SIGALRM);
		errno = saved_errno;
		return;
	}
	if (page->completion_bound != CHRONODISK_NEVER && virtual_nanos() >= page->completion_bound)
		take_completions();
	look_for_idling();
	int expired = expire_guest_timer() || alarm_repeated;
	alarm_repeated = 0;
	arm_host_timer();
	errno = saved_errno;
	if (expired && guest_alarm_handler) {
		begin_handler();
		guest_alarm_handler(signal, info, context);
		end_handler();
	}
}

/* In the host's time a completion comes when it is due, whatever the guest does. Its kernel takes it here,
 * and a user program is stopped so that whoever waited for it need not wait for the next tick as well. */
static void on_io_in_real_time(int signal, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	guest_io_handler(signal, info, context);
	if (running_program()) {
		page->interrupts++;
		kill(running_program(), SIGALRM);
	}
	errno = saved_errno;
}

/* When the launcher reads what the guest has written, or writes, is the host's affair: a guest whose runs
 * repeat hears of it only when it idles and its calendar asks. What is ready stays so until then. */
static void on_io_in_exact_time(int signal, siginfo_t *info, void *context)
{
	if (!runs_repeat() || calendar_lets_handlers_run())
		guest_io_handler(signal, info, context);
}

/* A general protection fault may be a read of the time stamp counter; the kernel's own are page faults. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
	if (info->si_code != SI_KERNEL || !carry_out_counter_read(context))
		guest_fault_handler(signal, info, context);
}

int sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	void (**guests)(int, siginfo_t *, void *) = NULL;
	void (*ours)(int, siginfo_t *, void *) = NULL;
	if (signal == SIGALRM) {
		guests = &guest_alarm_handler;
		ours = on_alarm;
	} else if (signal == SIGSEGV) {
		guests = &guest_fault_handler;
		ours = on_fault;
	} else if (signal == SIGIO && page && (is_exact() || time_is_the_hosts())) {
		guests = &guest_io_handler;
		ours = is_exact() ? on_io_in_exact_time : on_io_in_real_time;
	}
	if (!ours || !is_guest_kernel())
		return real_sigaction(signal, action, old);
	void (*before)(int, siginfo_t *, void *) = *guests;
	struct sigaction replaced;
	if (action && (action->sa_flags & SA_SIGINFO)) {
		replaced = *action;
		*guests = action->sa_sigaction;
		replaced.sa_sigaction = ours;
		action = &replaced;
	}
	int result = real_sigaction(signal, action, old);
	/* Where the kernel only tries something out, it puts back what it found. */
	if (result == 0 && old && old->sa_sigaction == ours)
		old->sa_sigaction = before;
	if (result == 0 && guest_fault_handler)
		stop_reading_the_counter();
	return result;
}

int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	int result = real_timer_create(clock, event, timer);
	if (result == 0 && is_guest_kernel()) {
		host_timer = *timer;
		host_timer_exists = 1;
		look_for_idling();
	}
	return result;
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old)
{
	if (!is_guest_kernel())
		return real_timer_settime(timer, flags, value, old);
	disturb();
	uint64_t wait = nanos_of(&value->it_value);
	guest_interval = nanos_of(&value->it_interval);
	uint64_t now = wait ? virtual_nanos() : 0;
	guest_deadline = wait ? now + wait : 0;
	/* The launcher shows V and watches for guests that hang. Beside a program that only computes, the kernel sets its
	 * timer at least once a second. */
	if (wait)
		page->virtual_now = now;
	alarm_unanswered = 0;
	if (!stopped)
		arm_host_timer();
	return 0;
}

/* The guest's kernel asks this only to decide whether it may sleep. A zero would make it spin
 * while it waits for the device with no timer armed. */
int timer_gettime(timer_t timer, struct itimerspec *value)
{
	if (!is_guest_kernel())
		return real_timer_gettime(timer, value);
	disturb();
	uint64_t now = virtual_nanos();
	value->it_value = timespec_of(guest_deadline > now ? guest_deadline - now : 1);
	value->it_interval = timespec_of(guest_interval);
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (!page || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
		return host_clock_gettime(clock, time);
	uint64_t now = is_guest_kernel() ? virtual_nanos() : latest_virtual_nanos();
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

int descriptors_are_ready(void)
{
	struct pollfd descriptor = { .fd = epoll_fd, .events = POLLIN };
	struct timespec none = { 0, 0 };
	return epoll_fd >= 0 && syscall(SYS_ppoll, &descriptor, 1, &none, NULL, 0) > 0;
}

int interrupts_are_pending(void)
{
	sigset_t pending;
	sigpending(&pending);
	return sigismember(&pending, SIGIO) || sigismember(&pending, SIGALRM);
}

/* What the guest has written to the launcher and the launcher has not read. */
static int output_is_on_its_way(void)
{
	int unread_bytes = 0;
	return serial_out_fd >= 0 && ioctl(serial_out_fd, SIOCOUTQ, &unread_bytes) == 0 && unread_bytes > 0;
}

/* What the launcher has written and the guest has not read. */
static int input_has_come(void)
{
	struct pollfd line = { .fd = serial_out_fd, .events = POLLIN };
	struct timespec none = { 0, 0 };
	return syscall(SYS_ppoll, &line, 1, &none, NULL, 0) > 0;
}

/* The launcher takes on a debt before it reads what the guest has written, so this order misses none. */
static int is_unsettled(void)
{
	return output_is_on_its_way() || page->launcher_owes;
}

/* The launcher's speed is not the guest's affair: while something is on its way between them, an
 * idle guest's clock stands still. Returns whether an interrupt has come meanwhile.
 *
 * A guest whose runs repeat hears of everything at once, or the number of its interrupts would depend on that speed. */
int settle_with_launcher(void)
{
	if (time_is_the_hosts() || !line_is_open || !is_unsettled())
		return 0;
	static const struct timespec look_again = { 0, 50000 };
	stop_clock();
	while (is_unsettled()) {
		if (runs_repeat() ? !output_is_on_its_way() && input_has_come()
				  : interrupts_are_pending() || descriptors_are_ready())
			break;
		syscall(SYS_nanosleep, &look_again, NULL);
	}
	start_clock(page->virtual_now);
	return interrupts_are_pending() || descriptors_are_ready();
}

/* Whether idle time passes with the host's: somebody is expected to type. */
int follows_host(void)
{
	return page->idling != CHRONODISK_IDLING_JUMP || input_is_awaited();
}

/* Waits for something outside the guest: input, or under the host's pace the guest's timer. The
 * guest's interrupts are off, so its handlers only take note; they read no clock. */
static int wait_outside(const sigset_t *mask)
{
	int paced = follows_host();
	stop_clock();
	uint64_t since_host = host_nanos();
	if (paced && guest_deadline) {
		uint64_t wait = guest_deadline > page->virtual_now ? guest_deadline - page->virtual_now : 1;
		arm_host_timer_for(wait);
	}
	int result = real_sigsuspend(mask);
	int saved_errno = errno;
	start_clock(page->virtual_now + (paced ? host_nanos() - since_host : 0));
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
	has_idled = 1;
	disturb();

	sigset_t interrupts, old;
	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGIO);
	sigaddset(&interrupts, SIGALRM);
	sigprocmask(SIG_BLOCK, &interrupts, &old);
	account_for_idling();

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
	} else if (guest_deadline && !follows_host()) {
		wakeups = 0;
		jump_to(guest_deadline);
		kill(main_pid, SIGALRM);
	} else {
		wakeups = 0;
		outside = 1;
	}

	int result;
	disturb();
	if (outside)
		result = wait_outside(mask);
	else
		result = real_sigsuspend(mask);
	int saved_errno = errno;
	sigprocmask(SIG_SETMASK, &old, NULL);
	errno = saved_errno;
	return result;
}

/* The kernel of Linux 6.19 and newer waits in poll() for a descriptor of its timer's signal instead. */
int signalfd(int fd, const sigset_t *mask, int flags)
{
	int result = real_signalfd(fd, mask, flags);
	if (is_guest_kernel() && sigismember(mask, SIGALRM))
		idle_signals_fd = result;
	return result;
}

static int is_idle_wait(const struct pollfd *descriptors, nfds_t count, int timeout)
{
	return count == 1 && timeout < 0 && idle_signals_fd >= 0 && descriptors[0].fd == idle_signals_fd;
}

/* Its handlers only take note of a signal then, so it may as well come. */
static int idle_until_signal(void)
{
	sigset_t mask;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	sigdelset(&mask, SIGALRM);
	return sigsuspend(&mask);
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
	if (operation == EPOLL_CTL_ADD && fd == serial_out_fd)
		line_is_open = 1;
	if (operation == EPOLL_CTL_MOD && event)
		event->events |= EPOLLET;
	return real_epoll_ctl(epoll, operation, fd, event);
}

/* ---- The kick ---------------------------------------------------------------------------------- */

/* The guest connects to its devices by names of which no sockets exist, chronodisk-vda and on: it gets the inherited
 * ones. An exact kernel's calendar is in this process. */
int connect(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	static const char prefix[] = DEVICE_SOCKET_PREFIX "vd";
	const char *name = ((const struct sockaddr_un *)address)->sun_path;
	if (page && is_exact() && address->sa_family == AF_UNIX && strcmp(name, CALENDAR_SOCKET) == 0)
		return calendar_connect(fd);
	if (!shared_page || address->sa_family != AF_UNIX || strncmp(name, prefix, sizeof prefix - 1) != 0)
		return real_connect(fd, address, len_bytes);
	unsigned device = (unsigned)(name[sizeof prefix - 1] - 'a');
	if (device >= DEVICES_MAX || vhost[device].inherited_fd < 0)
		return real_connect(fd, address, len_bytes);
	if (syscall(SYS_dup3, vhost[device].inherited_fd, fd, O_CLOEXEC) < 0)
		return -1;
	close(vhost[device].inherited_fd);
	vhost[device].inherited_fd = -1;
	vhost[device].fd = fd;
	if (page)
		account_for_connection();
	return 0;
}

static int is_vhost(int fd)
{
	for (int device = 0; device < DEVICES_MAX; device++)
		if (fd >= 0 && vhost[device].fd == fd)
			return 1;
	return 0;
}

static int is_kick(int fd, const struct msghdr *message)
{
	if (!is_vhost(fd) || !message->msg_iovlen || message->msg_iov[0].iov_len < 12)
		return 0;
	uint32_t header[2];
	memcpy(header, message->msg_iov[0].iov_base, sizeof header);
	return header[0] == VHOST_USER_VRING_KICK && (header[1] & VHOST_USER_NEED_REPLY);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	if (page && is_kick(fd, message) && !stopped) {
		disturb();
		open_accounts();
		account_for_requests(1, 0, 0);
		stop_clock();
		close_accounts();
		account_for_first_use();
		requests_before_kick = page->requests;
		page->issuer = issuer_of_request();
		page->kicks++;
		acknowledgement_left = ACKNOWLEDGEMENT_BYTES;
		kicked_fd = fd;
		disturb();
	}
	return real_sendmsg(fd, message, flags);
}

/* The same where helpers of User Mode Linux come by as well. */
static void disturb_guest_kernel(void)
{
	if (page && page->disturbance_nanos_max && is_guest_kernel())
		disturb();
}

/* To a guest whose runs repeat the launcher is never too slow. */
static ssize_t write_to_launcher(const void *bytes, size_t len_bytes)
{
	for (;;) {
		ssize_t put = real_write(serial_out_fd, bytes, len_bytes);
		if (put >= 0 || errno != EAGAIN)
			return put;
		struct pollfd room = { .fd = serial_out_fd, .events = POLLOUT };
		syscall(SYS_ppoll, &room, 1, NULL, NULL, 0);
	}
}

ssize_t write(int fd, const void *bytes, size_t len_bytes)
{
	disturb_guest_kernel();
	if (calendar_owns(fd))
		return calendar_write(bytes, len_bytes);
	if (fd >= 0 && fd == serial_out_fd && runs_repeat())
		return write_to_launcher(bytes, len_bytes);
	return real_write(fd, bytes, len_bytes);
}

/* An exact kernel looks after its calendar's messages while it waits for an acknowledgement, of which
 * there are none then, and waits for the calendar alone. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" /* the C library declares its argument as written only */
int poll(struct pollfd *descriptors, nfds_t count, int timeout)
{
	if (is_idle_wait(descriptors, count, timeout) && is_guest_kernel())
		return idle_until_signal();
	if (!count || !calendar_owns(descriptors[count - 1].fd))
		return real_poll(descriptors, count, timeout);
	descriptors[count - 1].revents = 0;
	if (count > 1)
		return real_poll(descriptors, count - 1, timeout);
	calendar_poll();
	descriptors[0].revents = POLLIN;
	return 1;
}
#pragma GCC diagnostic pop

ssize_t read(int fd, void *buffer, size_t len_bytes)
{
	if (calendar_owns(fd))
		return calendar_read(buffer, len_bytes);
	reads_from_backend = is_vhost(fd);
	ssize_t got = real_read(fd, buffer, len_bytes);
	reads_from_backend = 0;
	if (acknowledgement_left == 0 || fd != kicked_fd)
		return got;
	if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
		_exit(EXIT_BACKEND_LOST);
	disturb();
	if (got > 0) {
		acknowledgement_left -= (int)got;
		if (acknowledgement_left <= 0) {
			int saved_errno = errno;
			acknowledgement_left = 0;
			start_clock(0);
			/* The first of the kick's requests counted before it. */
			if (page->requests > requests_before_kick)
				account_for_requests(page->requests - requests_before_kick - 1, 0, 0);
			errno = saved_errno;
		}
	}
	return got;
}

/* ---- Start -------------------------------------------------------------------------------------- */

/* Descriptors by device, with a comma between two. */
static void inherit_devices(const char *list)
{
	for (int device = 0; device < DEVICES_MAX; device++) {
		vhost[device].fd = -1;
		vhost[device].inherited_fd = list && *list ? atoi(list) : -1;
		list = list ? strchr(list, ',') : NULL;
		list = list ? list + 1 : NULL;
	}
}

static int devices_inherited(void)
{
	int count = 0;
	for (int device = 0; device < DEVICES_MAX; device++)
		count += vhost[device].inherited_fd >= 0;
	return count;
}

__attribute__((constructor)) static void start(void)
{
	real_timer_create = next_symbol("timer_create");
	real_timer_settime = next_symbol("timer_settime");
	real_timer_gettime = next_symbol("timer_gettime");
	real_sigaction = next_symbol("sigaction");
	real_sigsuspend = next_symbol("sigsuspend");
	real_connect = next_symbol("connect");
	real_epoll_create = next_symbol("epoll_create");
	real_epoll_ctl = next_symbol("epoll_ctl");
	real_poll = next_symbol("poll");
	real_signalfd = next_symbol("signalfd");
	real_read = next_symbol("read");
	real_write = next_symbol("write");
	real_sendmsg = next_symbol("sendmsg");
	start_processes();
	start_files();

	int page_fd = descriptor_from_environment(PAGE_VARIABLE);
	exchange_fd = descriptor_from_environment(EXCHANGE_VARIABLE);
	inherit_devices(getenv(VHOST_VARIABLE));
	if (getenv(FEED_VARIABLE))
		start_feed(descriptor_from_environment(FEED_VARIABLE));
	if (getenv(RECORDING_VARIABLE))
		start_recording(descriptor_from_environment(RECORDING_VARIABLE));
	serial_out_fd = descriptor_from_environment(SERIAL_OUT_VARIABLE);
	if (page_fd < 0)
		return;
	void *mapped = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, page_fd, 0);
	if (mapped == MAP_FAILED || ((struct chronodisk_page *)mapped)->magic != PAGE_MAGIC)
		_exit(EXIT_BACKEND_LOST);
	main_pid = (pid_t)syscall(SYS_getpid);
	shared_page = mapped;
	start_boot();
	/* A kernel with several processors is its own clock: kernel/processors.c. */
	if (shared_page->clock == CHRONODISK_CLOCK_SEVERAL)
		return;
	page = shared_page;
	watch_processes();
	start_time(devices_inherited());
}
