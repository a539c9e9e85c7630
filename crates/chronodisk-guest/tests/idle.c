/* A program that idles as the guest's kernel does, under the guest's clock: `idle.rs` compiles and runs it.
 *
 * idle CLOCK HOW: preloads the library CLOCK, arms a timer of 1,000 seconds, waits for it in the way HOW, and prints how
 * many seconds have passed. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "page.h"

#define SECONDS 1000

/* The launcher's part of the page, which is constant for the clock. */
#define SET(field, value) (*(uint64_t *)(uintptr_t)&page->field = (value))

static volatile sig_atomic_t alarms;

static void on_alarm(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)information;
	(void)context;
	alarms++;
}

/* Becomes itself under the clock. */
static int preload(const char *clock, char **arguments)
{
	char descriptor[16];
	int fd = memfd_create("page", 0);
	if (fd < 0 || ftruncate(fd, PAGE_BYTES) != 0)
		return 2;
	struct chronodisk_page *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return 2;
	SET(magic, PAGE_MAGIC);
	SET(clock, CHRONODISK_CLOCK_STOPPING);
	SET(computing, CHRONODISK_COMPUTING_MEASURED);
	SET(cpu_speed_millionths, 1000000);
	SET(completion_bound, CHRONODISK_NEVER);
	snprintf(descriptor, sizeof descriptor, "%d", fd);
	setenv(PAGE_VARIABLE, descriptor, 1);
	setenv("LD_PRELOAD", clock, 1);
	execv("/proc/self/exe", arguments);
	return 2;
}

/* Linux 6.1 to 6.18. */
static void idle_by_signal_mask(void)
{
	sigset_t none;
	sigemptyset(&none);
	sigsuspend(&none);
}

/* Linux 6.19 and newer. */
static void idle_by_descriptor(void)
{
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	struct pollfd wake = { .fd = signalfd(-1, &alarm, SFD_CLOEXEC), .events = POLLIN };
	poll(&wake, 1, -1);
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
}

/* No kernel. */
static void idle_otherwise(void)
{
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
	while (!alarms)
		pause();
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!getenv(PAGE_VARIABLE))
		return preload(argv[1], argv);
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	struct sigaction action = { .sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO };
	sigaction(SIGALRM, &action, NULL);
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct itimerspec wait = { .it_value = { .tv_sec = SECONDS } };
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &wait, NULL) != 0)
		return 2;
	if (strcmp(argv[2], "mask") == 0)
		idle_by_signal_mask();
	else if (strcmp(argv[2], "descriptor") == 0)
		idle_by_descriptor();
	else
		idle_otherwise();
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	printf("%ld seconds, %d alarm\n", (long)now.tv_sec, (int)alarms);
	return 0;
}
