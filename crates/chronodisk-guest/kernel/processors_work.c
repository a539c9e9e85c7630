// SPDX-License-Identifier: GPL-2.0
/*
 * Charges for the kernel's work, and the CPU time of programs, by which a processor's time passes; see processors.c.
 */
#include <signal.h>
#include <sysdep/ptrace.h>
#include "processors_internal.h"

/* A moving mean. */
struct mean {
	s64 nanos;
	int samples;
};

static s64 probed[PROBES];
static int probes;
static s64 probed_mean;		/* of the probes */
static s64 sampled_at_probes;	/* the samples' mean then */
static struct mean sampled;	/* and now */
static struct mean counter_sampled;	/* of stops at reads of the time-stamp counter */

/* ---- The kernel's work ---- */

static u64 bound_of(int work)
{
	return work == CHRONODISK_WORK_OTHER ? clock_page->other_bound_nanos : clock_page->costs[work].bound_nanos;
}

/* CPU time of copying the bytes of its system call. */
static s64 cpu_of_copying(const struct processor *c)
{
	return (s64)((unsigned __int128)c->copied * clock_page->copy_nanos_per_mib >> 20);
}

/*
 * Charge for a piece of work of so much CPU time, as in the preload library (accounts.c): copying counts by a scale of
 * its own, other CPU time up to the bound of its kind by another, the rest in full. Requests have prices.
 */
static s64 charge_for(const struct processor *c, s64 cpu, int priced_events)
{
	u64 bound = bound_of(c->work);
	s64 within, copying, in_full, charge, least = cpu / (s64)WORK_SHARE_MIN;

	cpu = larger(cpu - priced_events * (s64)clock_page->request_bound_nanos, 0);
	copying = bound == CHRONODISK_NEVER ? 0 : smaller(cpu, cpu_of_copying(c));
	within = bound == CHRONODISK_NEVER ? cpu : smaller(cpu - copying, (s64)bound);
	in_full = cpu - copying - within;
	count(&clock_page->kernel_in_full_nanos, (u64)in_full);
	charge = in_full + millionths(copying, clock_page->copy_scale_millionths);
	if (c->work == CHRONODISK_WORK_OTHER) {
		charge += millionths(within, clock_page->kernel_scale_millionths);
	} else {
		const struct chronodisk_cost *cost = &clock_page->costs[c->work];

		charge += (s64)cost->added_nanos +
			  millionths(larger(within - (s64)cost->taken_off_nanos, 0), cost->scale_millionths);
		least = larger(least, (s64)WORK_NANOS_MIN);
	}
	return larger(charge, least);
}

/* The present piece of its own processor's work has ended. Only within begin_change() and end_change(). */
void end_piece(struct processor *c)
{
	s64 kernel = kernel_cpu(c, 1);
	s64 cpu = larger(kernel - c->piece_from, 0);
	int events = __atomic_exchange_n(&c->priced_events, 0, __ATOMIC_ACQ_REL);
	s64 priced = __atomic_exchange_n(&c->priced, 0, __ATOMIC_ACQ_REL);
	s64 charge = c->is_free ? 0 : charge_for(c, cpu, events) + priced;

	c->charged += charge;
	count(&clock_page->kernel_cpu_nanos, cpu);
	count(&clock_page->kernel_work_nanos, cpu);
	count(&clock_page->kernel_counted_nanos, charge);
	count(&clock_page->kernel_requests_nanos, priced);
	if (c->work != CHRONODISK_WORK_OTHER) {
		count(&clock_page->worked[c->work].count, 1);
		count(&clock_page->worked[c->work].cpu_nanos, cpu);
		count(&clock_page->worked[c->work].copied_bytes, c->copied);
	}
	c->piece_from = kernel;
	c->work = CHRONODISK_WORK_OTHER;
	c->is_free = 0;
	c->transferred = c->copied = 0;
}

/* By its own thread, or under the lock by one that brings it an interrupt. */
void price(struct processor *c, s64 nanos)
{
	__atomic_fetch_add(&c->priced, nanos, __ATOMIC_ACQ_REL);
	__atomic_fetch_add(&c->priced_events, 1, __ATOMIC_ACQ_REL);
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

void virtual_clock_enter_user(int pid, long result)
{
	struct processor *c = own_processor();

	if (!virtual_clock_on)
		return;
	/* Of another program's call, nothing is known. */
	c->copied = pid == c->last_stub ? larger(smaller(result, c->transferred) - SMALL_COPY_BYTES, 0) : 0;
	begin_change(c);
	if (pid != c->last_stub && (c->work == CHRONODISK_WORK_CALL || c->work == CHRONODISK_WORK_COPY))
		c->work = CHRONODISK_WORK_SWITCH;
	end_piece(c);
	c->stub_from = clock_of(CLOCK_OF_PROCESS(pid));
	__atomic_store_n(&c->stub, pid, __ATOMIC_RELEASE);
	end_change(c);
	c->last_stub = pid;
	c->was_idle = 0;
	look_for_completions();
}

/*
 * The guest's first process makes system calls without effect (src/inside/trap_probe.rs), so that each run measures the
 * time of a stop. The longest met an interrupt of the host.
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
	trap_nanos = probed_mean = sum / (PROBES - PROBES_INTERRUPTED);
	sampled_at_probes = sampled.nanos;
}

/*
 * The host's other load, and the other processors, change the cost of a stop. So at one stop in so many the program
 * is sent back to its system call and stops there again, at no cost but the stop's; as in the preload library.
 */
#define STOPS_PER_SAMPLE 16
#define STOPS_PER_SAMPLE_OF_PROBES 4
#define SAMPLES_OF_MEAN 32
/* A sample counts at most so many times the mean: longer ones met an interrupt. */
#define SAMPLE_MEANS_MAX 2

/* Of the instruction `syscall`. */
#define SYSCALL_BYTES 2

static void note_sample(struct mean *mean, s64 ran)
{
	if (mean->samples)
		ran = smaller(ran, SAMPLE_MEANS_MAX * mean->nanos);
	if (mean->samples < SAMPLES_OF_MEAN)
		mean->samples++;
	mean->nanos = (mean->nanos * (mean->samples - 1) + ran) / mean->samples;
	if (sampled_at_probes)
		trap_nanos = probed_mean * sampled.nanos / sampled_at_probes;
}

/* CPU time of a stop at a read of the time-stamp counter. */
s64 counter_nanos(void)
{
	if (!counter_sampled.samples || !sampled_at_probes)
		return trap_nanos + (s64)clock_page->tsc_extra_nanos;
	return probed_mean * counter_sampled.nanos / sampled_at_probes;
}

/* Counts a stop of the program. Some of them begin a sample: the program then stops again at once, by this signal. */
static int begins_sample(struct processor *c, int sig, unsigned int *stops, unsigned int stops_per_sample)
{
	if (c->sample_sig) {
		c->sample_sig = 0;
		return 0;
	}
	if (++*stops % stops_per_sample)
		return 0;
	c->sample_sig = sig;
	c->is_free = 1;
	return 1;
}

/* A program has stopped for a system call. Returns whether it is to make the call again. */
int virtual_clock_repeats_call(unsigned long *regs)
{
	struct processor *c = own_processor();
	int is_probing = probes > 0 && probes < PROBES;

	if (!virtual_clock_on ||
	    !begins_sample(c, SIGSYS, &c->stops, is_probing ? STOPS_PER_SAMPLE_OF_PROBES : STOPS_PER_SAMPLE))
		return 0;
	regs[HOST_IP] -= SYSCALL_BYTES;
	regs[HOST_AX] = regs[HOST_ORIG_AX];
	return 1;
}

/* A program has stopped at a read of the time-stamp counter. Returns whether the program repeats the read. */
int virtual_clock_repeats_counter_read(void)
{
	struct processor *c = own_processor();

	return begins_sample(c, SIGSEGV, &c->counter_stops, STOPS_PER_SAMPLE);
}

/* A program that waits for time to pass must see it pass: no stretch counts less. */
#define STRETCH_NANOS_MIN 20
/* Stops that may be owed. */
#define STOPS_OWED_MAX 16

/* A program has stopped, by this signal to its stub. */
void virtual_clock_leave_user(int sig)
{
	struct processor *c = own_processor();
	s64 ran, part;

	if (!virtual_clock_on)
		return;
	ran = larger(clock_of(CLOCK_OF_PROCESS(c->stub)) - c->stub_from, 0);
	if (c->sample_sig && sig == c->sample_sig) {
		/* Of the last stretch nothing is counted, and its length stays. */
		begin_change(c);
		__atomic_store_n(&c->stub, 0, __ATOMIC_RELEASE);
		c->piece_from = kernel_cpu(c, 1);
		end_change(c);
		note_sample(sig == SIGSYS ? &sampled : &counter_sampled, ran);
		count(&clock_page->trap_overhead_nanos, (u64)ran);
		return;
	}
	c->sample_sig = 0;
	c->ran = ran;
	begin_change(c);
	c->owed += trap_nanos + (sig == SIGSEGV ? (s64)clock_page->fault_extra_nanos : 0);
	part = smaller(larger(ran - STRETCH_NANOS_MIN, 0), c->owed);
	c->user += ran - part;
	c->owed = smaller(c->owed - part, STOPS_OWED_MAX * trap_nanos);
	__atomic_store_n(&c->stub, 0, __ATOMIC_RELEASE);
	c->piece_from = kernel_cpu(c, 1);
	c->work = sig == SIGSEGV ? CHRONODISK_WORK_FAULT : CHRONODISK_WORK_OTHER;
	end_change(c);
	count(&clock_page->traps, 1);
	count(&clock_page->user_cpu_nanos, (u64)(ran - part));
	count(&clock_page->trap_overhead_nanos, (u64)part);
}

/* The page fault for which it has stopped is none natively: the guest's page tables allow the access. */
void virtual_clock_note_spurious_fault(void)
{
	struct processor *c = own_processor();

	if (virtual_clock_on && c->work == CHRONODISK_WORK_FAULT)
		c->work = CHRONODISK_WORK_SPURIOUS_FAULT;
}

/* It has stopped for a system call. */
void virtual_clock_note_call(const unsigned long *regs)
{
	struct processor *c = own_processor();

	if (!virtual_clock_on)
		return;
	c->work = work_of_call((long)regs[HOST_ORIG_AX]);
	c->transferred = transfer_of(regs);
	if (regs[HOST_DI] == PROBE_MARK)
		note_probe(c->ran);
}
