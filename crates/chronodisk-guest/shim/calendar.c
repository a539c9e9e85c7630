/* The calendar of an exact kernel.
 *
 * Such a kernel is built with simulated time of its own (UML_TIME_TRAVEL_SUPPORT). It knows the
 * instant V to the nanosecond, computes in no time but what it is told to charge, and asks a
 * calendar before it lets V pass an instant at which something may happen. The protocol is that of
 * the kernel's include/uapi/linux/um_timetravel.h; the calendar is this library, in the kernel's own
 * process, so that a question costs a function call. The patch in kernel/ shows us the kernel's V.
 *
 * The kernel says when it next wants to run (REQUEST) and waits (WAIT). We then
 *
 * - let it run at that instant, if the device completes nothing before;
 * - or have the backend deliver what is due earlier: the kernel's handler asks for the instant (GET),
 *   requests to run at it, and does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

enum operation {
	ACK = 0,
	START = 1,
	REQUEST = 2,
	WAIT = 3,
	GET = 4,
	UPDATE = 5,
	RUN = 6,
	FREE_UNTIL = 7,
	GET_TOD = 8,
};

struct message {
	uint32_t operation;
	uint32_t sequence;
	uint64_t time;
};

/* The kernel's handlers ask while an answer of ours may still be unread, one in another. */
#define ANSWERS_MAX 16
/* What the kernel requests when it has nothing to do: the latest instant that it can express. */
#define FOREVER ((uint64_t)INT64_MAX)

const volatile unsigned long long *kernel_now;
const volatile unsigned long long *kernel_next_event;
static const volatile int *kernel_idles;

static int calendar_fd = -1;
static struct message answers[ANSWERS_MAX];
static unsigned answers_count;
static uint64_t request = CHRONODISK_NEVER; /* the instant at which the kernel next wants to run */
static int waiting;
static int may_run;                         /* at its request */
static uint64_t granted;                    /* V as far as the calendar lets a waiting kernel see it */
static uint64_t computed_until;             /* V when the wait began, with what the kernel has not been charged */
static uint64_t requests_until_nanos;       /* prices of requests when the wait began */
static uint64_t idled_nanos;               /* of V, in waits of an idle kernel that are over */
static uint64_t outside_since_host;         /* the host's clock when the wait for something outside began, or 0 */
static volatile sig_atomic_t lets_handlers_run;

void chronodisk_clock_attach(const unsigned long long *now, const unsigned long long *next_event, const int *idle)
{
	kernel_now = now;
	kernel_next_event = next_event;
	kernel_idles = idle;
}

int calendar_connect(int fd)
{
	int events = eventfd(0, EFD_CLOEXEC);
	if (events < 0 || syscall(SYS_dup3, events, fd, O_CLOEXEC) < 0)
		return -1;
	close(events);
	calendar_fd = fd;
	return 0;
}

/* What V has passed by while the kernel did not idle. It is not waiting. */
uint64_t nanos_of_computing(void)
{
	return virtual_nanos() - idled_nanos;
}

int calendar_owns(int fd)
{
	return fd >= 0 && fd == calendar_fd;
}

static void calendar_wait(void);

static void answer(uint32_t sequence, uint64_t time)
{
	if (answers_count == ANSWERS_MAX)
		_exit(EXIT_BACKEND_LOST);
	answers[answers_count++] = (struct message){ .operation = ACK, .sequence = sequence, .time = time };
}

static uint64_t instant_for_a_handler(void)
{
	if (outside_since_host) {
		uint64_t passed = host_nanos() - outside_since_host;
		uint64_t now = granted + (follows_host() ? passed : 0);
		return now < request ? now : request;
	}
	return granted;
}

ssize_t calendar_write(const void *bytes, size_t len_bytes)
{
	struct message message;
	if (len_bytes != sizeof message) {
		errno = EINVAL;
		return -1;
	}
	memcpy(&message, bytes, sizeof message);
	switch (message.operation) {
	case ACK: /* of our RUN */
		break;
	case REQUEST:
		request = message.time;
		answer(message.sequence, 0);
		break;
	case WAIT:
		waiting = 1;
		may_run = 0;
		granted = *kernel_now;
		answer(message.sequence, 0);
		break;
	case GET:
		if (waiting) {
			granted = instant_for_a_handler();
			outside_since_host = 0;
		}
		answer(message.sequence, waiting ? granted : *kernel_now);
		break;
	case GET_TOD:
		answer(message.sequence, page->realtime_start_nanos + *kernel_now);
		break;
	default:
		answer(message.sequence, 0);
	}
	return (ssize_t)len_bytes;
}

/* Returns once there is something for the kernel to read. */
void calendar_poll(void)
{
	if (!answers_count && !may_run)
		calendar_wait();
}

ssize_t calendar_read(void *buffer, size_t len_bytes)
{
	struct message message;
	if (len_bytes < sizeof message) {
		errno = EINVAL;
		return -1;
	}
	if (answers_count) {
		message = answers[0];
		answers_count--;
		memmove(answers, answers + 1, answers_count * sizeof answers[0]);
	} else {
		calendar_poll();
		message = (struct message){ .operation = RUN, .time = request };
		waiting = 0;
		may_run = 0;
		if (*kernel_idles && request > computed_until)
			idled_nanos += request - computed_until;
		/* CPU time in the wait is the emulation's. Prices of completions are the kernel's. */
		charge_later((computed_until > request ? computed_until - request : 0) + nanos_of_requests() -
			     requests_until_nanos);
		request = CHRONODISK_NEVER;
	}
	memcpy(buffer, &message, sizeof message);
	return sizeof message;
}

/* ---- Waiting ------------------------------------------------------------------------------------ */

/* Lets the kernel's handlers run, which take what the backend has sent; they have if the kernel now
 * wants to run at the instant granted. */
static void let_handlers_run(const sigset_t *allowed)
{
	sigset_t blocked;
	lets_handlers_run = 1;
	sigprocmask(SIG_SETMASK, allowed, &blocked);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	lets_handlers_run = 0;
}

int calendar_lets_handlers_run(void)
{
	return lets_handlers_run;
}

/* The signal of a descriptor that was ready may have been passed over. */
static void take_what_is_ready(const sigset_t *allowed)
{
	kill(main_pid, SIGIO);
	let_handlers_run(allowed);
}

/* Nothing is outstanding and no timer may be jumped to: only the world outside can wake the guest. */
static void wait_for_outside(const sigset_t *allowed)
{
	stop_clock();
	outside_since_host = host_nanos();
	struct timespec timeout = { 1, 0 };
	int paced = follows_host() && request < FOREVER;
	if (paced) {
		uint64_t wait = request > granted ? request - granted : 1;
		timeout = timespec_of(wait < NANOS_PER_SECOND ? wait : NANOS_PER_SECOND);
	}
	lets_handlers_run = 1;
	syscall(SYS_ppoll, NULL, 0, &timeout, allowed, sizeof(uint64_t));
	lets_handlers_run = 0;
	if (outside_since_host) {
		granted = instant_for_a_handler();
		outside_since_host = 0;
	}
	start_clock(0);
}

/* One look at what comes next; the kernel's interrupts are blocked. */
static void look(const sigset_t *allowed)
{
	if (request <= granted) {
		may_run = 1;
	} else if (!*kernel_idles && (!page->outstanding || page->completion_bound > request)) {
		/* The kernel computes, and nothing is due before it has. */
		may_run = 1;
	} else if (*kernel_idles && settle_with_launcher()) {
		take_what_is_ready(allowed);
	} else if (interrupts_are_pending()) {
		let_handlers_run(allowed);
	} else if (*kernel_idles && descriptors_are_ready()) {
		take_what_is_ready(allowed);
	} else if (page->outstanding) {
		uint64_t before = granted;
		struct chronodisk_answer got = ask_idle(granted, request < FOREVER ? request : CHRONODISK_NEVER);
		page->idle_exchanges++;
		page->jumps++;
		granted = got.virtual_now;
		page->jumped_nanos += granted - before;
		if (got.completed)
			let_handlers_run(allowed);
		else if (request >= FOREVER)
			wait_for_outside(allowed);
	} else if (request < FOREVER && !follows_host()) {
		page->jumps++;
		page->jumped_nanos += request - granted;
		may_run = 1;
	} else {
		wait_for_outside(allowed);
	}
}

static void calendar_wait(void)
{
	int saved_errno = errno;
	sigset_t interrupts, allowed;
	sigemptyset(&interrupts);
	sigaddset(&interrupts, SIGIO);
	sigaddset(&interrupts, SIGALRM);
	sigprocmask(SIG_BLOCK, &interrupts, &allowed);
	if (*kernel_idles)
		account_for_idling();
	computed_until = virtual_nanos();
	requests_until_nanos = nanos_of_requests();
	if (request > computed_until)
		granted = computed_until;
	else
		may_run = 1;
	while (!may_run)
		look(&allowed);
	sigprocmask(SIG_SETMASK, &allowed, NULL);
	errno = saved_errno;
}
