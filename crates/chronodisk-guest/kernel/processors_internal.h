/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the two parts of the clock of several processors: processors.c and processors_work.c. */
#ifndef __UM_PROCESSORS_INTERNAL_H
#define __UM_PROCESSORS_INTERNAL_H

#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <os.h>
#include <chronodisk_page.h>
#include <processors.h>

typedef unsigned long long u64;
typedef long long s64;

enum state { OFF, RUNNING, IDLE };

struct processor {
	enum state state;
	int tid;
	int host_cpu;		/* of the host, plus one; 0: any */
	unsigned int seq;	/* odd while its own thread changes what follows */
	s64 base;
	s64 user;		/* CPU time of finished stretches of programs */
	s64 charged;		/* virtual time of finished pieces of the kernel's work */
	s64 own;		/* CPU time of the clock's work, which isn't the guest's */
	s64 piece_from;		/* the kernel's CPU time at the beginning of the present piece */
	int work;		/* its kind, an enum chronodisk_work */
	int is_free;	/* none of it counts: a trapped read of the counter, or a repeated stop */
	int priced_events;	/* requests and completions in it */
	s64 priced;
	s64 transferred;	/* bytes that its system call asks for, */
	s64 copied;		/* and those that it has returned, beyond a small copy */
	int stub;		/* process of the program that runs, or 0 */
	int last_stub;
	s64 stub_from;		/* its CPU time then */
	s64 ran;		/* CPU time of the last stretch of a program, unadjusted */
	unsigned int stops;	/* of programs, for system calls */
	unsigned int counter_stops;	/* and to read the time-stamp counter */
	int sample_sig;		/* its program stops again for a sample, by this signal; 0: it does not */
	s64 owed;		/* of stops, still to be taken off programs */
	s64 v;			/* last known */
	int futile_alarms;	/* in a row */
	s64 alarm_v;		/* v at the last alarm */
	s64 deadline;		/* of its timer; 0: none */
	s64 interval;
	int was_idle;		/* and has had no completion and run no program since */
	int in_interrupt;	/* of the device */
	int blocked;		/* its own thread waits for another processor; v stands still */
	int own_depth;		/* the clock's own work is under way */
	s64 own_begun;		/* its thread's CPU time then */
	s64 frozen_kernel;	/* its kernel's CPU time at another's kick; -1: none */
};

/* The page that guest, launcher and emulator share. */
extern struct chronodisk_page *clock_page;
extern s64 trap_nanos;		/* CPU time of a stop of a program */

/* processors.c */
struct processor *own_processor(void);
void look_for_completions(void);

/* processors_work.c */
void end_piece(struct processor *c);
void price(struct processor *c, s64 nanos);
s64 counter_nanos(void);

static inline s64 clock_of(clockid_t clock)
{
	struct timespec ts;

	if (syscall(__NR_clock_gettime, clock, &ts))
		return -1;
	return (s64)ts.tv_sec * UM_NSEC_PER_SEC + ts.tv_nsec;
}

/* How Linux encodes the CPU time of another process or thread in a clock's name. */
#define CLOCK_OF_PROCESS(pid) ((~(clockid_t)(pid) << 3) | 2)
#define CLOCK_OF_THREAD(tid) ((~(clockid_t)(tid) << 3) | 6)

static inline s64 millionths(s64 of, u64 share)
{
	return (s64)((unsigned __int128)of * share / 1000000u);
}

static inline s64 smaller(s64 value, s64 most)
{
	return value < most ? value : most;
}

static inline s64 larger(s64 value, s64 least)
{
	return value > least ? value : least;
}

static inline void count(volatile uint64_t *word, u64 more)
{
	__atomic_fetch_add(word, more, __ATOMIC_RELAXED);
}

/* CPU time of its kernel without the clock's own work, past or present. */
static inline s64 kernel_cpu(const struct processor *c, int is_own)
{
	if (__atomic_load_n(&c->own_depth, __ATOMIC_ACQUIRE))
		return c->own_begun - c->own;
	return clock_of(is_own ? CLOCK_THREAD_CPUTIME_ID : CLOCK_OF_THREAD(c->tid)) - c->own;
}

static inline void begin_change(struct processor *c)
{
	__atomic_store_n(&c->seq, c->seq + 1, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
}

static inline void end_change(struct processor *c)
{
	__asm__ volatile("" ::: "memory");
	__atomic_store_n(&c->seq, c->seq + 1, __ATOMIC_RELEASE);
}

#endif
