/* The guest's programs: the host's processes, traced by the guest's kernel. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "shim.h"

static int (*real_clone)(int (*)(void *), void *, int, void *, ...);
static long (*real_ptrace)(int, ...);

static long last_resume = PTRACE_CONT;
static pid_t stopped_at_call_pid; /* the process whose last stop was a system call */
static struct user_regs_struct registers_set; /* last */

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
	account_for_call(registers);
	if (registers->orig_rax == SYS_sched_yield)
		account_for_yield();
	if (registers->orig_rax == SYS_getppid && registers->rdi == PROBE_MARK)
		account_for_probe();
	if (is_learn_call(registers))
		learn_from_call(pid, registers);
	if (is_feed_call(registers))
		answer_feed_call(pid, registers);
	record_call(pid, registers);
}

/* Whether the program waits for standard input that is open and empty. */
int input_is_awaited(void)
{
	if (!page->input_awaited)
		return 0;
	for (unsigned index = 0; index < READERS_MAX; index++)
		if (readers[index] && kill(readers[index], 0) == 0)
			return 1;
	return 0;
}

struct start {
	int (*function)(void *);
	void *argument;
	int is_program;
};

static void note_live_process(pid_t pid);

/* Programs' reads of the time stamp counter are trapped, for which the host changes a control register whenever it
 * switches between a process that may read it and one that may not. In a virtual machine on an AMD processor the
 * hypervisor carries that out, so that every stop of a program took 6 us more, and the kernel's way back to it as much
 * again. So the kernel's process may not read the counter either. It has no need to: clocks are read by system calls. */
void stop_reading_the_counter(void)
{
	static int stopped_reading;
	if (stopped_reading)
		return;
	stopped_reading = 1;
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
}

#define RDTSC 0x310fu
#define RDTSC_BYTES 2
#define RDTSCP 0xf9010fu
#define RDTSCP_BYTES 3

/* Should the C library read the counter in the kernel's process after all, it gets the host's. Returns whether that is
 * what it did. */
int carry_out_counter_read(void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const unsigned char *code = (const unsigned char *)registers[REG_RIP];
	int is_read = code[0] == (RDTSC & 0xff) && code[1] == RDTSC >> 8;
	int is_read_with_processor = !is_read && code[0] == (RDTSCP & 0xff) && code[1] == (RDTSCP >> 8 & 0xff) &&
				     code[2] == RDTSCP >> 16;
	if (!is_read && !is_read_with_processor)
		return 0;
	prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
	uint64_t ticks = __builtin_ia32_rdtsc();
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	registers[REG_RAX] = (greg_t)(ticks & 0xffffffffu);
	registers[REG_RDX] = (greg_t)(ticks >> 32);
	if (is_read_with_processor)
		registers[REG_RCX] = 0;
	registers[REG_RIP] += is_read ? RDTSC_BYTES : RDTSCP_BYTES;
	return 1;
}

/* ---- Processes that something outside of the guest kills ----------------------------------------
 *
 * The guest's kernel ends a program by killing its process. Nothing else may: to the kernel, a process that is gone
 * looks like a fault of its program, which would go on as if the program had failed; a process that was to begin others
 * leaves it spinning; and without one of its helpers it may wait for ever. So the run ends, and says why. */

/* Processes that the kernel has killed and whose numbers no other process of the guest has got since. */
#define KILLED_MAX 1024
static pid_t killed[KILLED_MAX];

/* The kernel panics: it ends all processes of its group, and itself by SIGABRT. */
static int kernel_panics;

int kill(pid_t pid, int signal)
{
	if (page && signal == SIGKILL && pid > 0)
		killed[pid % KILLED_MAX] = pid;
	if (pid == 0 && signal == SIGTERM)
		kernel_panics = 1;
	return (int)syscall(SYS_kill, pid, signal);
}

static int was_killed_by_kernel(pid_t pid)
{
	return killed[pid % KILLED_MAX] == pid;
}

static void note_live_process(pid_t pid)
{
	if (pid > 0 && was_killed_by_kernel(pid))
		killed[pid % KILLED_MAX] = 0;
}

static void lose_process(pid_t pid, int signal)
{
	page->lost_signal = (uint64_t)signal;
	page->lost_pid = (uint64_t)pid;
	_exit(EXIT_PROCESS_LOST);
}

static void look_at_end(const siginfo_t *end)
{
	int ended_by_signal = end->si_code == CLD_KILLED || end->si_code == CLD_DUMPED;
	if (end->si_pid > 0 && ended_by_signal && !kernel_panics && !was_killed_by_kernel(end->si_pid))
		lose_process(end->si_pid, end->si_status);
}

static void on_child(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)context;
	if (!is_guest_kernel())
		return;
	look_at_end(information);
	/* While one signal of the kind waits, the host drops others. Helpers come first among the children. */
	int saved_errno = errno;
	siginfo_t other = { 0 };
	if (syscall(SYS_waitid, P_ALL, 0, &other, WEXITED | WNOHANG | WNOWAIT | __WALL, NULL) == 0)
		look_at_end(&other);
	errno = saved_errno;
}

/* Hears of the end of each process, also of those that the kernel does not wait for. Their stops, which are far more
 * frequent, make no signal. */
void watch_processes(void)
{
	struct sigaction action = { .sa_sigaction = on_child,
				    .sa_flags = SA_SIGINFO | SA_NOCLDSTOP | SA_RESTART | SA_ONSTACK };
	sigfillset(&action.sa_mask);
	sigaction(SIGCHLD, &action, NULL);
}

/* The host says that a traced process is gone: if it is being killed, its end is a matter of moments. */
static void expect_process(pid_t pid)
{
	static const struct timespec look_again = { 0, 1000000 };
	if (was_killed_by_kernel(pid) || !is_guest_kernel())
		return;
	int saved_errno = errno;
	for (int looks = 0; looks < 1000; looks++) {
		siginfo_t end = { 0 };
		if (syscall(SYS_waitid, P_PID, pid, &end, WEXITED | WNOHANG | WNOWAIT | __WALL, NULL) < 0)
			break;
		look_at_end(&end);
		if (end.si_pid == pid)
			break;
		syscall(SYS_nanosleep, &look_again, NULL);
	}
	errno = saved_errno;
}

/* Signals with which a program's process stops in the guest: its own faults and system calls, the kernel's
 * interrupts. Any other came from outside and asks the process to end, as does a fault that somebody has sent. */
static int is_guests(int signal)
{
	switch (signal & ~0x80) {
	case SIGTRAP:
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGALRM:
	case SIGIO:
	case SIGWINCH:
		return 1;
	default:
		return 0;
	}
}

/* Kernel and programs take turns. On a host whose processor empties its translation buffers at each switch between
 * them, programs have a CPU of their own: a native kernel leaves the buffers mostly as they are. If the host refuses,
 * all goes on as before. */
static void move_to_programs_processor(void)
{
	cpu_set_t cpus;
	unsigned kernels = 0;
	CPU_ZERO(&cpus);
	if (page->program_cpu < CPU_SETSIZE) {
		CPU_SET(page->program_cpu, &cpus);
	} else if (page->program_cpu == CPU_ANY_OTHER && syscall(SYS_getcpu, &kernels, NULL, NULL) == 0) {
		for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (cpu != kernels)
				CPU_SET(cpu, &cpus);
	} else {
		return;
	}
	syscall(SYS_sched_setaffinity, 0, sizeof cpus, &cpus);
}

/* First instructions of every process that the guest's kernel makes. */
static int start_process(void *argument)
{
	struct start start = *(struct start *)argument;
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	if (start.is_program)
		move_to_programs_processor();
	return start.function(start.argument);
}

/* Whether the process that is made with these flags will run programs; those that share the kernel's memory are its
 * helpers. From Linux 6.12 on, a program's process shares it until it executes a program of its own. */
static int will_run_programs(int flags)
{
	return !(flags & CLONE_VM) || (flags & CLONE_VFORK);
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
	*start = (struct start){ function, argument, will_run_programs(flags) };
	/* The kernel does not ask to hear of the end of its helpers. */
	if (!(flags & CSIGNAL))
		flags |= SIGCHLD;
	pid_t made = real_clone(start_process, start, flags, start, parent_tid, tls, child_tid);
	note_live_process(made);
	return made;
}

static enum host_call kind_of(int request)
{
	switch (request) {
	case PTRACE_GETREGS:
		return GET_REGISTERS;
	case PTRACE_SETREGS:
		return SET_REGISTERS;
	case PTRACE_GETREGSET:
		return GET_STATE;
	case PTRACE_SETREGSET:
		return SET_STATE;
	default:
		return OTHER_HOST_CALL;
	}
}

/* A call on a process that is stopped. */
static long host_ptrace(int request, pid_t pid, void *address, void *data)
{
	enum host_call kind = kind_of(request);
	if (!host_call_is_timed(kind)) {
		long result = real_ptrace(request, pid, address, data);
		account_for_untimed_host_call(kind);
		return result;
	}
	uint64_t since = host_nanos();
	long result = real_ptrace(request, pid, address, data);
	account_for_timed_host_call(kind, since);
	return result;
}

/* ---- Extended register state -------------------------------------------------------------------
 *
 * The kernel reads this state at each stop of a program and sets it before the program goes on, though a system call
 * seldom changes it. Setting it is the dearest of these calls, so a state that the process has already is not set.
 *
 * User Mode Linux 6.1 keeps 2696 bytes of extended register state, enough up to AVX-512 and PKU. A
 * host whose processor has more (AMX) takes only a whole state: it gets one, with the rest in its
 * initial configuration, which is where it always is, because guests can't ask leave to use AMX.
 * Intel SDM volume 1, 13.4: the header at byte 512 begins with XSTATE_BV, one bit a component. */
#define XSTATE_HEADER_OFFSET 512
#define XSTATE_COMPONENTS_KEPT 0x3ffull
#define XSTATE_BYTES_MAX 16384

static struct {
	pid_t pid; /* the stopped process, or 0 */
	size_t len_bytes;
	char bytes[XSTATE_BYTES_MAX];
} state_read __attribute__((aligned(64)));

static long get_extended_registers(pid_t pid, void *address, struct iovec *into)
{
	state_read.pid = 0;
	long result = host_ptrace(PTRACE_GETREGSET, pid, address, into);
	if (result < 0 || into->iov_len > sizeof state_read.bytes)
		return result;
	memcpy(state_read.bytes, into->iov_base, into->iov_len);
	state_read.len_bytes = into->iov_len;
	state_read.pid = pid;
	return result;
}

static int has_extended_registers(pid_t pid, const struct iovec *given)
{
	return state_read.pid == pid && state_read.len_bytes == given->iov_len &&
	       memcmp(state_read.bytes, given->iov_base, given->iov_len) == 0;
}

static long set_extended_registers(pid_t pid, const struct iovec *given)
{
	static char whole[XSTATE_BYTES_MAX] __attribute__((aligned(64)));
	static size_t whole_bytes;
	if (has_extended_registers(pid, given))
		return 0;
	state_read.pid = 0;
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

/* Whether a completion is due that the kernel can take while no program runs. */
static int completion_is_due(uint64_t virtual_now)
{
	return !stopped && !is_exact() && page->completion_bound != CHRONODISK_NEVER &&
	       virtual_now >= page->completion_bound;
}

static pid_t stops_at_once_pid; /* the process that a signal of ours stops before it goes on */

/* A completion that has become due during the kernel's work interrupts it now, before a program goes on. Returns the
 * instant from which the program runs. */
static struct instant interrupt_before_resume(pid_t pid)
{
	struct instant at = present_instant();
	if (!completion_is_due(at.virtual_nanos))
		return at;
	take_due_completions();
	if (task_must_stop()) {
		stops_at_once_pid = pid;
		kill(pid, SIGALRM);
	}
	return present_instant();
}

static long trace(int request, pid_t pid, void *address, void *data)
{
	switch (request) {
	case PTRACE_SYSEMU:
	case PTRACE_SYSEMU_SINGLESTEP:
	case PTRACE_SYSCALL:
	case PTRACE_CONT:
		if (request != PTRACE_CONT) {
			forget_reader(pid);
			account_for_result(pid, (int64_t)registers_set.rax);
			record_return(pid, &registers_set);
		} else if ((uintptr_t)data == SIGSEGV) {
			note_fault_question(pid);
		}
		last_resume = request;
		state_read.pid = 0;
		disturb();
		account_for_resume(pid, request != PTRACE_CONT,
				   request != PTRACE_CONT ? interrupt_before_resume(pid) : present_instant());
		return real_ptrace(request, pid, address, data);
	case PTRACE_GETREGS: {
		long result = host_ptrace(request, pid, address, data);
		/* Once for each stop. The kernel also reads the registers when it turns to another thread of the same
		 * address space, whose last call is in them then. */
		if (result == 0 && stopped_at_call_pid == pid) {
			stopped_at_call_pid = 0;
			note_reader(pid, data);
		}
		return result;
	}
	case 21: /* PTRACE_OLDSETOPTIONS */
	case PTRACE_SETOPTIONS:
		/* Once for each address space, whether the kernel has made its process or another one's has. */
		note_live_process(pid);
		/* The guest's programs must never outlive its kernel: they would run on as host programs. */
		return real_ptrace(PTRACE_SETOPTIONS, pid, address, (void *)((uintptr_t)data | PTRACE_O_EXITKILL));
	case PTRACE_SETREGS:
		registers_set = *(const struct user_regs_struct *)data;
		break;
	case PTRACE_GETREGSET:
		if ((uintptr_t)address == NT_X86_XSTATE)
			return get_extended_registers(pid, address, data);
		break;
	case PTRACE_SETREGSET:
		if ((uintptr_t)address == NT_X86_XSTATE)
			return set_extended_registers(pid, data);
		break;
	default:
		break;
	}
	return host_ptrace(request, pid, address, data);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list rest;
	va_start(rest, request);
	pid_t pid = va_arg(rest, pid_t);
	void *address = va_arg(rest, void *);
	void *data = va_arg(rest, void *);
	va_end(rest);
	/* A process that asks to be traced is the kernel's child, which can't read the counter. */
	if (!page || request == PTRACE_TRACEME)
		return real_ptrace(request, pid, address, data);
	long result = trace((int)request, pid, address, data);
	if (result < 0 && errno == ESRCH)
		expect_process(pid);
	return result;
}

/* The stack pointer of a process that is stopped, or 0. */
uint64_t stack_of_process(pid_t pid)
{
	struct user_regs_struct registers;
	return real_ptrace(PTRACE_GETREGS, pid, NULL, &registers) == 0 ? registers.rsp : 0;
}

/* Reads memory of a process that is stopped, by whole words. Returns whether all could be read. */
int peek(pid_t pid, uint64_t address, void *to, size_t count)
{
	for (size_t at = 0; at < count; at += sizeof(long)) {
		errno = 0;
		long word = real_ptrace(PTRACE_PEEKDATA, pid, (void *)(uintptr_t)(address + at), NULL);
		if (errno)
			return 0;
		memcpy((char *)to + at, &word, sizeof word);
	}
	return 1;
}

/* The bytes at an address of the process, as far as they can be read; the word that holds the first
 * never reaches into the next page. */
static uint32_t code_at(pid_t pid, uint64_t address)
{
	unsigned offset = address & 7;
	uint64_t words[2] = { 0, 0 };
	if (!peek(pid, address - offset, words, sizeof *words))
		return 0;
	if (offset > 5)
		peek(pid, address - offset + sizeof *words, &words[1], sizeof *words);
	uint32_t code;
	memcpy(&code, (char *)words + offset, sizeof code);
	return code;
}

/* Whether the process, whose registers are read, stopped at RDTSC or RDTSCP; the registers are then those after it, with
 * no result. */
static int is_counter_read(pid_t pid, const siginfo_t *information, struct user_regs_struct *registers)
{
	if (information->si_code != SI_KERNEL)
		return 0; /* a page fault, which is by far the most frequent */
	if (real_ptrace(PTRACE_GETREGS, pid, NULL, registers) < 0)
		return 0;
	uint32_t code = code_at(pid, registers->rip);
	if ((code & 0xffff) == RDTSC) {
		registers->rip += RDTSC_BYTES;
	} else if ((code & 0xffffff) == RDTSCP) {
		registers->rip += RDTSCP_BYTES;
		registers->rcx = 0;
	} else {
		return 0;
	}
	return 1;
}

static int answer_counter_read(pid_t pid, struct user_regs_struct *registers, uint64_t virtual_now)
{
	uint64_t ticks = (uint64_t)((unsigned __int128)virtual_now * page->tsc_hertz / NANOS_PER_SECOND);
	registers->rax = ticks & 0xffffffffu;
	registers->rdx = ticks >> 32;
	return real_ptrace(PTRACE_SETREGS, pid, NULL, registers) == 0;
}

/* Whether the process stopped at a read of the counter, which then has been carried out. The processor does
 * that in no time, so V stands still meanwhile, and only the user code before the stop is charged. */
static int emulate_tsc_read(pid_t pid, const siginfo_t *information)
{
	struct user_regs_struct registers;
	if (information->si_code != SI_KERNEL)
		return 0;
	uint64_t since = instant_of_host_work();
	if (!is_counter_read(pid, information, &registers) || !answer_counter_read(pid, &registers, virtual_nanos()))
		return 0;
	forget_host_work_since(since);
	/* Where computing is free, V passes by this alone. */
	page->tsc_reads++;
	return 1;
}

/* The process that has been sent back to the instruction at which it stopped, to stop there again: see accounts.c. If
 * another stop comes first, nothing has been lost: the instruction has not been carried out. */
static pid_t sent_back_pid;

static int is_sample(pid_t pid)
{
	int is = sent_back_pid == pid;
	sent_back_pid = 0;
	return is;
}

enum passed { NOT_A_READ, SENT_BACK, READ };

/* The same for clocks that count CPU time. Only the program's accounts change. */
static enum passed pass_counter_read(pid_t pid, const siginfo_t *information, uint64_t *virtual_now)
{
	struct user_regs_struct registers;
	if (!stops_pass() || !is_counter_read(pid, information, &registers))
		return NOT_A_READ;
	if (is_sample(pid)) {
		account_for_sample(STOP_AT_READ);
	} else if (account_for_passed_stop(STOP_AT_READ)) {
		sent_back_pid = pid;
		return SENT_BACK;
	}
	*virtual_now = virtual_nanos_of_passed_stop();
	if (!answer_counter_read(pid, &registers, *virtual_now))
		return NOT_A_READ;
	page->tsc_reads++;
	put_off_alarm(*virtual_now);
	return READ;
}

#define SYSCALL 0x050fu
#define SYSCALL_BYTES 2

/* Whether the process, which has stopped at a system call, has been sent back to it. */
static int send_back_to_call(pid_t pid)
{
	struct user_regs_struct registers;
	if (!stops_pass() || last_resume != PTRACE_SYSEMU)
		return 0;
	if (is_sample(pid)) {
		account_for_sample(STOP_AT_CALL);
		return 0;
	}
	if (!account_for_passed_stop(STOP_AT_CALL) || real_ptrace(PTRACE_GETREGS, pid, NULL, &registers) < 0 ||
	    (code_at(pid, registers.rip - SYSCALL_BYTES) & 0xffff) != SYSCALL)
		return 0;
	registers.rip -= SYSCALL_BYTES;
	registers.rax = registers.orig_rax;
	registers.orig_rax = ~0ull; /* in no call, which the host would begin anew after a signal */
	if (real_ptrace(PTRACE_SETREGS, pid, NULL, &registers) != 0)
		return 0;
	sent_back_pid = pid;
	return 1;
}

/* A program has read the counter and a completion is due: the kernel's interrupt, between two stretches of the program.
 * Returns whether the kernel has something to do before the program goes on. */
static int interrupt_after_read(pid_t pid)
{
	account_for_stop(pid, 0, CHRONODISK_WORK_OTHER);
	close_accounts();
	take_due_completions();
	return task_must_stop();
}

/* Somebody on the host may stop a whole run and let it go on. Signals of the guest's own never reach a process as the
 * host's, so the signals of job control of one that runs are from out there; the guest's kernel would take them for a
 * fault and end the program. With its tracer stopped, the process stands still until the tracer goes on. */
static int is_job_control(int signal)
{
	return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU || signal == SIGCONT;
}

/* Whether somebody outside asks a process that runs to end. */
static int asks_to_end(pid_t pid, int signal)
{
	siginfo_t information;
	if (is_job_control(signal))
		return 0;
	if (!is_guests(signal))
		return 1;
	int is_fault = signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
	return is_fault && real_ptrace(PTRACE_GETSIGINFO, pid, NULL, &information) == 0 && information.si_code <= 0;
}

/* Stopping a process that begins: it has not been resumed by the kernel, which waits until it stops itself. */
static int begins_after_hosts_stop(pid_t pid, int signal)
{
	siginfo_t information;
	if (pid == running_process() || !is_job_control(signal))
		return 0;
	if (real_ptrace(PTRACE_GETSIGINFO, pid, NULL, &information) != 0)
		return kill(pid, SIGCONT) == 0; /* not traced yet */
	if (signal == SIGSTOP && information.si_pid == pid)
		return 0;
	return real_ptrace(PTRACE_CONT, pid, NULL, NULL) == 0;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	int ignored;
	if (!status)
		status = &ignored;
	/* Its helpers end with a signal after all; see clone(). */
	if (options & __WCLONE)
		options = (options & ~__WCLONE) | __WALL;
	for (;;) {
		pid_t stopped_pid = (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
		if (stopped_pid <= 0 || !page || kernel_panics)
			return stopped_pid;
		int saved_errno = errno;
		if (WIFSTOPPED(*status) && begins_after_hosts_stop(stopped_pid, WSTOPSIG(*status))) {
			errno = saved_errno;
			continue;
		}
		if (WIFSIGNALED(*status) && !was_killed_by_kernel(stopped_pid) && is_guest_kernel())
			lose_process(stopped_pid, WTERMSIG(*status));
		if (WIFSTOPPED(*status) && stopped_pid == running_process() && asks_to_end(stopped_pid, WSTOPSIG(*status)))
			lose_process(stopped_pid, WSTOPSIG(*status));
		disturb();
		int was_user_code = stopped_pid == running_program();
		int at_call = WIFSTOPPED(*status) && WSTOPSIG(*status) == (SIGTRAP | 0x80);
		stopped_at_call_pid = at_call ? stopped_pid : 0;
		int signal = WIFSTOPPED(*status) ? WSTOPSIG(*status) : 0;
		int hosts_job_control = stopped_pid == running_process() && is_job_control(signal);
		open_accounts();
		siginfo_t information = { 0 };
		int faulted = was_user_code && signal == SIGSEGV &&
			      real_ptrace(PTRACE_GETSIGINFO, stopped_pid, NULL, &information) == 0;
		if (faulted && information.si_code <= 0)
			lose_process(stopped_pid, signal);
		uint64_t virtual_now;
		enum passed passed = faulted ? pass_counter_read(stopped_pid, &information, &virtual_now) : NOT_A_READ;
		if (passed == SENT_BACK || (at_call && was_user_code && send_back_to_call(stopped_pid))) {
			close_accounts();
			real_ptrace((int)last_resume, stopped_pid, NULL, NULL);
			errno = saved_errno;
			continue;
		}
		sent_back_pid = 0;
		if (passed == READ) {
			int must_stop = 0;
			if (completion_is_due(virtual_now)) {
				must_stop = interrupt_after_read(stopped_pid);
				if (!must_stop)
					account_for_resume(stopped_pid, 1, present_instant());
			} else {
				close_accounts();
			}
			if (!must_stop)
				real_ptrace((int)last_resume, stopped_pid, NULL, NULL);
			errno = saved_errno;
			if (!must_stop)
				continue;
			/* To the kernel, an alarm has interrupted the program after the read. */
			*status = SIGALRM << 8 | 0x7f;
			return stopped_pid;
		}
		int read_tsc = faulted && emulate_tsc_read(stopped_pid, &information);
		int fault = signal == SIGSEGV && !read_tsc;
		uint64_t extra_nanos = read_tsc ? page->tsc_extra_nanos : fault ? page->fault_extra_nanos : 0;
		enum chronodisk_work work = CHRONODISK_WORK_OTHER;
		if (at_call)
			work = CHRONODISK_WORK_CALL;
		else if (faulted && !read_tsc)
			work = work_of_fault(stopped_pid, (uintptr_t)information.si_addr);
		if (signal == SIGTRAP)
			note_fault_answer(stopped_pid);
		int stopped_at_once = stopped_pid == stops_at_once_pid;
		stops_at_once_pid = 0;
		uint64_t overhead_nanos = signal == SIGALRM && !stopped_at_once ? page->interrupt_nanos
										: nanos_of_trap() + extra_nanos;
		uint64_t stopped_at = account_for_stop(stopped_pid, overhead_nanos, work);
		close_accounts();
		if (faulted && !read_tsc)
			record_fault((uintptr_t)information.si_addr);
		if (hosts_job_control) {
			account_for_resume(stopped_pid, was_user_code, present_instant());
			real_ptrace((int)last_resume, stopped_pid, NULL, NULL);
			errno = saved_errno;
			continue;
		}
		if (read_tsc) {
			/* It may wait for another program, which the kernel lets run when its next tick is due. */
			if (runs_repeat() && virtual_nanos() >= next_interrupt())
				kill(stopped_pid, SIGALRM);
			account_for_resume(stopped_pid, 1, present_instant());
			real_ptrace((int)last_resume, stopped_pid, NULL, NULL);
			errno = saved_errno;
			continue;
		}
		if (completion_is_due(stopped_at))
			take_due_completions();
		errno = saved_errno;
		return stopped_pid;
	}
}

void start_processes(void)
{
	real_clone = next_symbol("clone");
	real_ptrace = next_symbol("ptrace");
}
