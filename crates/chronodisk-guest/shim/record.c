/* Records the system calls of the guest's programs for the launcher, into a file of its. V stands still meanwhile.
 *
 * A call is noted when its program has stopped for it, and what came of it when the program is resumed: the registers
 * that the kernel has set last hold the result. The kernel's structure of the present task has its ids.
 *
 * The file begins with a header, of which the launcher fills in the table of calls; events of whole words follow. It is
 * mapped, so what has happened is there for the launcher even if this process is killed. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#include "accounts.h"
#include "shim.h"

/* An address without a path. */
#define RECORD_PATH_NONE (-2)
/* A window of the file, which moves on when it is full. */
#define WINDOW_BYTES (1ull << 20)
#define PATH_BYTES 4096

static struct chronodisk_recording *header;
static int recording_fd;
static char *window;
static uint64_t window_offset = RECORD_EVENTS_OFFSET - WINDOW_BYTES; /* the first is full, and before the events */
static uint64_t window_used_bytes = WINDOW_BYTES;
static int is_recording;

/* ---- Tasks ---------------------------------------------------------------------------------------- */

/* A task of the guest: what it does, and the CPU time that it has not been charged with yet. */
#define TASKS_MAX 16384
struct task {
	uint64_t address; /* of its structure; 0 if the place is free */
	uint32_t id, group;
	int is_in_call;
	long number;
	uint64_t arguments[6];
	uint64_t sequence;
	uint64_t return_address;
	int unread_paths, unread_words; /* bits */
	int is_in_fault;
	struct fault {
		uint64_t entry_nanos, user_nanos, address, writes;
	} fault;
	uint64_t user_nanos;
	uint64_t kernel_nanos;
};
static struct task tasks[TASKS_MAX];

/* Whose work the kernel does; 0 if nobody's. */
static uint64_t working_for;
/* What programs had computed when it was last looked at, and what recording has taken of the present work. */
static uint64_t programs_were_at_nanos;
static uint64_t own_nanos;
/* Of a kernel that computes in no time: what V had passed by but for idling and programs when work began. */
static uint64_t constants_were_at_nanos;

/* The task's entry, or null if it has none. One whose ids are others is of a task that is gone. */
static struct task *task_at(uint64_t address)
{
	uint64_t hash = (address >> 6) * 0x9e3779b97f4a7c15ull >> 32;
	for (unsigned step = 0; step < TASKS_MAX; step++) {
		struct task *task = &tasks[(hash + step) % TASKS_MAX];
		if (task->address && task->address != address)
			continue;
		const uint32_t *ids = ids_of(address);
		if (!task->address || task->id != ids[0])
			*task = (struct task){ .address = address, .id = ids[0], .group = ids[1] };
		task->group = ids[1];
		return task;
	}
	return NULL;
}

/* The first process of the guest is not the command's. */
#define FIRST_PROCESS 1u

static struct task *present_task(void)
{
	struct task *task = task_at(current_task());
	if (!task)
		header->lost++;
	return task && task->group != FIRST_PROCESS && task->id ? task : NULL;
}

/* ---- Events --------------------------------------------------------------------------------------- */

static int move_window(void)
{
	uint64_t next = window_offset + (window_used_bytes & ~(uint64_t)(PAGE_BYTES - 1));
	int flags = MAP_SHARED | (window ? MAP_FIXED : 0);
	if (syscall(SYS_fallocate, recording_fd, 0, next, WINDOW_BYTES) != 0)
		return 0;
	void *mapped = mmap(window, WINDOW_BYTES, PROT_READ | PROT_WRITE, flags, recording_fd, (off_t)next);
	if (mapped == MAP_FAILED)
		return 0;
	window = mapped;
	window_offset = next;
	window_used_bytes &= PAGE_BYTES - 1;
	return 1;
}

/* An event, as far as it is written. */
struct event {
	uint64_t words[20 + 2 * PATH_BYTES / 8];
	size_t count;
};
static struct event event;

static void put(uint64_t word)
{
	event.words[event.count++] = word;
}

static void begin_event(enum chronodisk_event kind, uint64_t sequence)
{
	event.count = 0;
	put(kind);
	put(sequence);
}

static void end_event(void)
{
	size_t bytes = event.count * sizeof *event.words;
	event.words[0] |= event.count << RECORD_WORDS_SHIFT;
	if (window_used_bytes + bytes > WINDOW_BYTES && !move_window()) {
		header->lost++;
		return;
	}
	memcpy(window + window_used_bytes, event.words, bytes);
	window_used_bytes += bytes;
	header->events_bytes = window_offset + window_used_bytes - RECORD_EVENTS_OFFSET;
}

/* Reads a path page by page, since the next page may not be there. Returns its length, or -1. */
static int read_path(pid_t pid, const struct task *task, uint64_t address, char *to)
{
	for (size_t got = 0; got < PATH_BYTES;) {
		size_t wanted = smaller(PAGE_BYTES - ((address + got) & (PAGE_BYTES - 1)), PATH_BYTES - got);
		if (!read_program(pid, task->address, address + got, to + got, wanted))
			return -1;
		const char *end = memchr(to + got, 0, wanted);
		if (end)
			return (int)(end - to);
		got += wanted;
	}
	return -1;
}

/* The path of a Unix socket's address, with no zero byte behind it if it fills the address; -1 as above. Other addresses
 * and names without a file have none. */
static int read_socket_path(pid_t pid, const struct task *task, char *to)
{
	struct sockaddr_un address = { 0 };
	size_t given = smaller((size_t)task->arguments[2], sizeof address);
	if (!read_program(pid, task->address, task->arguments[1], &address, given))
		return -1;
	if (given <= sizeof address.sun_family || address.sun_family != AF_UNIX || !address.sun_path[0])
		return RECORD_PATH_NONE;
	size_t length = strnlen(address.sun_path, given - sizeof address.sun_family);
	memcpy(to, address.sun_path, length);
	return (int)length;
}

/* An argument's number in the table of calls, or -1. */
static int listed(long number, enum chronodisk_listed what)
{
	if (number < 0 || number >= RECORD_CALLS)
		return -1;
	return (int)(header->calls[number] >> what & 0xf) - 1;
}

static const enum chronodisk_listed path_lists[2] = { CHRONODISK_LISTED_PATH, CHRONODISK_LISTED_SECOND_PATH };

/* Puts the paths that `wanted` has a bit for, each behind a word with its length; returns those that can't be read. */
static int put_paths(pid_t pid, const struct task *task, int wanted)
{
	int unread = 0;
	for (int which = 0; which < 2; which++) {
		int argument = listed(task->number, path_lists[which]);
		uint64_t address = argument >= 0 ? task->arguments[argument] : 0;
		if (!(wanted & 1 << which) || !address) {
			put(RECORD_NO_PATH);
			continue;
		}
		size_t length_at = event.count++;
		char *to = (char *)&event.words[event.count];
		int length = task->number == SYS_bind ? read_socket_path(pid, task, to) : read_path(pid, task, address, to);
		if (length < 0) {
			event.words[length_at] = RECORD_NO_PATH;
			unread |= (length != RECORD_PATH_NONE) << which;
			continue;
		}
		event.words[length_at] = (uint64_t)length;
		event.count += ((size_t)length + 7) / 8;
	}
	return unread;
}

/* ---- Whose CPU time it is ------------------------------------------------------------------------- */

/* What programs have computed since the last look was the present task's. */
static void charge_present_task(void)
{
	uint64_t now = nanos_of_programs();
	struct task *task = present_task();
	if (task)
		task->user_nanos += less(now, programs_were_at_nanos);
	programs_were_at_nanos = now;
}

/* Where computing takes no time, V still passes by constants: clocks that are read, calls that fail. Programs see that,
 * so it stands for the kernel's CPU time. */
static uint64_t nanos_of_constants(void)
{
	return runs_repeat() ? less(nanos_of_computing(), nanos_of_programs()) : 0;
}

static uint64_t take_constants(void)
{
	uint64_t before = constants_were_at_nanos;
	constants_were_at_nanos = nanos_of_constants();
	return less(constants_were_at_nanos, before);
}

/* The kernel's last piece of work counted so much. What interrupts take is nobody's. */
void record_work(enum chronodisk_work work, uint64_t counted_nanos)
{
	if (!is_recording)
		return;
	uint64_t nanos = less(counted_nanos, own_nanos) + take_constants();
	own_nanos = 0;
	charge_present_task();
	struct task *task = working_for ? task_at(working_for) : NULL;
	if (task && task->sequence && work != CHRONODISK_WORK_OTHER)
		task->kernel_nanos += nanos;
	working_for = current_task();
}

/* ---- Calls ---------------------------------------------------------------------------------------- */

static int is_mark(const struct user_regs_struct *registers)
{
	return registers->orig_rax == SYS_getppid &&
	       (registers->rdi == RECORD_MARK || registers->rdi == PROBE_MARK || registers->rdi == FEED_MARK ||
		registers->rdi == LEARN_MARK);
}

/* Words that arguments of a call point to. */
#define WORDS_MAX 8

/* Puts an event for each argument that `wanted` has a bit for and that points to words, as far as they can be read.
 * Returns the bits of those of which none can be read. `late` says that the call may have changed them. */
static int put_words(pid_t pid, const struct task *task, int wanted, int late)
{
	static const enum chronodisk_listed lists[2] = { CHRONODISK_LISTED_WORDS, CHRONODISK_LISTED_SECOND_WORDS };
	int unread = 0;
	for (int which = 0; which < 2; which++) {
		int argument = listed(task->number, lists[which]);
		if (argument < 0 || !(wanted & 1 << which) || !task->arguments[argument])
			continue;
		uint64_t words[WORDS_MAX];
		int count = 0, most = which ? 1 : listed(task->number, CHRONODISK_LISTED_WORD_COUNT);
		/* A structure may end where memory ends. */
		while (count < most && read_program(pid, task->address, task->arguments[argument] + (uint64_t)count * 8,
						    &words[count], sizeof *words))
			count++;
		if (!count) {
			unread |= 1 << which;
			continue;
		}
		begin_event(CHRONODISK_EVENT_WORDS, task->sequence);
		put((uint64_t)argument | (late ? RECORD_LATE : 0));
		for (int word = 0; word < count; word++)
			put(words[word]);
		end_event();
	}
	return unread;
}

static void put_kernel_time(struct task *task)
{
	if (!task->sequence || !task->kernel_nanos)
		return;
	begin_event(CHRONODISK_EVENT_KERNEL_TIME, task->sequence);
	put(task->kernel_nanos);
	end_event();
	task->kernel_nanos = 0;
}

static uint64_t sequence;

/* Words of a new program's stack that are searched for its name: arguments, environment and auxiliary vector. */
#define STACK_WORDS_MAX 16384u

/* The call that executes a program may have its name where nothing is any more once it returns. The new program's stack
 * has it as well: the auxiliary vector, behind arguments and environment, says where. */
static uint64_t address_of_name(pid_t pid, const struct task *task, uint64_t stack)
{
	static uint64_t words[PAGE_BYTES / 8];
	unsigned ends = 0;
	int is_name = 0, is_value = 0;
	/* The first word is the number of arguments. */
	for (unsigned word = 1; word < STACK_WORDS_MAX; word++) {
		uint64_t address = stack + word * sizeof *words, first = address & ~(uint64_t)(PAGE_BYTES - 1);
		if ((word == 1 || address == first) && !read_program(pid, task->address, first, words, sizeof words))
			return 0;
		uint64_t value = words[(address - first) / sizeof *words];
		if (ends < 2) {
			ends += value == 0;
			continue;
		}
		if (is_name)
			return value;
		is_name = !is_value && value == AT_EXECFN;
		if (!is_value && value == AT_NULL)
			return 0;
		is_value = !is_value;
	}
	return 0;
}

/* Puts the first path of a call that executed a program, and that it has no second one. Returns whether it was read. */
static int put_name(pid_t pid, const struct task *task, uint64_t stack)
{
	uint64_t address = address_of_name(pid, task, stack);
	size_t length_at = event.count++;
	int length = address ? read_path(pid, task, address, (char *)&event.words[event.count]) : -1;
	event.words[length_at] = length < 0 ? RECORD_NO_PATH : (uint64_t)length;
	event.count += length < 0 ? 0 : ((size_t)length + 7) / 8;
	put(RECORD_NO_PATH);
	return length >= 0;
}

static void note_call(pid_t pid, const struct user_regs_struct *registers, struct task *task)
{
	long number = (long)registers->orig_rax;
	const uint64_t arguments[6] = { registers->rdi, registers->rsi, registers->rdx,
					registers->r10, registers->r8,	registers->r9 };
	put_kernel_time(task);
	task->is_in_call = 1;
	task->is_in_fault = 0;
	task->number = number;
	task->sequence = ++sequence;
	task->return_address = registers->rip;
	task->kernel_nanos = 0;
	memcpy(task->arguments, arguments, sizeof arguments);
	begin_event(CHRONODISK_EVENT_CALL, sequence);
	put((uint64_t)task->id | (uint64_t)task->group << 32);
	put((uint64_t)number);
	put(virtual_nanos());
	put(task->user_nanos);
	for (int argument = 0; argument < 6; argument++)
		put(arguments[argument]);
	task->unread_paths = put_paths(pid, task, 3);
	end_event();
	task->unread_words = put_words(pid, task, 3, 0);
	task->user_nanos = 0;
}

/* What the launcher is told by the guest's first process. */
static void take_mark(const struct user_regs_struct *registers)
{
	switch (registers->rsi) {
	case RECORD_BEGIN:
		header->state = tables_are_known() ? CHRONODISK_RECORDER_BEGUN : CHRONODISK_RECORDER_IMPOSSIBLE;
		is_recording = header->state == CHRONODISK_RECORDER_BEGUN;
		programs_were_at_nanos = nanos_of_programs();
		take_constants();
		break;
	case RECORD_END:
		if (is_recording)
			for (unsigned place = 0; place < TASKS_MAX; place++)
				put_kernel_time(&tasks[place]);
		header->state = is_recording ? CHRONODISK_RECORDER_ENDED : header->state;
		is_recording = 0;
		break;
	default:
		break;
	}
}

static uint64_t instant_of_own_work(void)
{
	if (own_work_is_the_hosts())
		begin_own_work();
	return instant_of_host_work();
}

static void forget_own_work_since(uint64_t since)
{
	if (own_work_is_the_hosts()) {
		end_own_work();
		return;
	}
	own_nanos += less(instant_of_host_work(), since);
	forget_host_work_since(since);
}

/* The process has stopped for a system call. */
void record_call(pid_t pid, const struct user_regs_struct *registers)
{
	if (!header)
		return;
	int mark = is_mark(registers);
	if (!is_recording && !mark)
		return;
	uint64_t since = instant_of_own_work();
	if (mark && registers->rdi == RECORD_MARK)
		take_mark(registers);
	if (is_recording && !mark) {
		charge_present_task();
		struct task *task = present_task();
		/* While a call waits, the kernel looks at its registers again and again. */
		if (task && !task->is_in_call)
			note_call(pid, registers, task);
	}
	forget_own_work_since(since);
}

#define SYSCALL_BYTES 2

/* Where a handler of a signal begins, what the call returned and where the program goes on is in the handler's frame
 * (struct rt_sigframe: the address that it returns to, then the context). Returns whether it could be read. */
static int read_frame(pid_t pid, const struct user_regs_struct *registers, const struct task *task, uint64_t *result,
		      uint64_t *address)
{
	uint64_t saved = registers->rsp + sizeof(uint64_t) + offsetof(ucontext_t, uc_mcontext.gregs);
	return read_program(pid, task->address, saved + REG_RAX * sizeof(greg_t), result, sizeof *result) &&
	       read_program(pid, task->address, saved + REG_RIP * sizeof(greg_t), address, sizeof *address);
}

static int executes(const struct task *task)
{
	return task->number == SYS_execve || task->number == SYS_execveat;
}

static uint64_t result_of(pid_t pid, const struct user_regs_struct *registers, const struct task *task, uint64_t *flags)
{
	uint64_t result = registers->rax, goes_on_at = registers->rip;
	if (task->number == SYS_rt_sigreturn) {
		*flags = RECORD_DROPPED;
		return 0;
	}
	if (executes(task) && result == 0)
		return result;
	int is_elsewhere = goes_on_at != task->return_address && goes_on_at != task->return_address - SYSCALL_BYTES;
	if (is_elsewhere && !read_frame(pid, registers, task, &result, &goes_on_at)) {
		header->lost++;
		*flags = RECORD_DROPPED;
	}
	if (goes_on_at == task->return_address - SYSCALL_BYTES)
		*flags = RECORD_RESTARTED;
	return result;
}

static int is_error(uint64_t result)
{
	return result >= (uint64_t)-4095;
}

/* ---- Page faults ---------------------------------------------------------------------------------- */

int is_recorded(void)
{
	return is_recording;
}

/* The process has stopped for a page fault. */
void record_fault(uint64_t address)
{
	if (!is_recording)
		return;
	uint64_t since = instant_of_own_work();
	charge_present_task();
	struct task *task = present_task();
	if (task) {
		put_kernel_time(task);
		task->is_in_fault = 1;
		task->sequence = ++sequence;
		task->kernel_nanos = 0;
		task->fault = (struct fault){ virtual_nanos(), task->user_nanos, address, 0 };
		task->user_nanos = 0;
	}
	forget_own_work_since(since);
}

/* The fault at the address is known to be a write, or not. */
void record_fault_answer(uint64_t address, int writes)
{
	struct task *task = is_recording ? present_task() : NULL;
	if (task && task->is_in_fault && task->fault.address == address)
		task->fault.writes = (uint64_t)writes;
}

static void put_fault(struct task *task)
{
	uint64_t since = instant_of_own_work();
	task->is_in_fault = 0;
	begin_event(CHRONODISK_EVENT_FAULT, task->sequence);
	put((uint64_t)task->id | (uint64_t)task->group << 32);
	put(task->fault.entry_nanos);
	put(virtual_nanos());
	put(task->fault.user_nanos);
	put(task->fault.address);
	put(task->fault.writes);
	end_event();
	forget_own_work_since(since);
}

/* ---- Going on ------------------------------------------------------------------------------------- */

/* The program goes on with these registers. */
void record_return(pid_t pid, const struct user_regs_struct *registers)
{
	if (!is_recording)
		return;
	struct task *task = present_task();
	if (task && task->is_in_fault)
		put_fault(task);
	if (!task || !task->is_in_call)
		return;
	uint64_t since = instant_of_own_work();
	uint64_t flags = 0, pair = 0;
	uint64_t result = result_of(pid, registers, task, &flags);
	int pair_argument = listed(task->number, CHRONODISK_LISTED_PAIR);
	if (pair_argument >= 0 && result == 0 &&
	    read_program(pid, task->address, task->arguments[pair_argument], &pair, sizeof pair))
		flags |= RECORD_HAS_PAIR;
	if (!is_error(result) && !executes(task))
		put_words(pid, task, task->unread_words, 1);
	if (!is_error(result) && !header->unrecordable && listed(task->number, CHRONODISK_LISTED_UNSUPPORTED) >= 0)
		header->unrecordable = (uint64_t)task->number + 1;
	task->is_in_call = 0;
	begin_event(CHRONODISK_EVENT_RETURN, task->sequence);
	put(virtual_nanos());
	put(result);
	size_t flags_at = event.count++;
	put(pair);
	/* A path that the kernel has read is there by now; without it a call can only fail. */
	int is_read = (task->unread_paths & 1) && executes(task) && result == 0 ?
			      put_name(pid, task, registers->rsp) :
			      put_paths(pid, task, task->unread_paths) == 0;
	if (!is_read && !is_error(result))
		flags |= RECORD_UNREADABLE;
	event.words[flags_at] = flags;
	end_event();
	forget_own_work_since(since);
}

void start_recording(int fd)
{
	void *mapped = mmap(NULL, RECORD_EVENTS_OFFSET, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || mapped == MAP_FAILED)
		return;
	recording_fd = fd;
	header = mapped;
}
