/* What a replayer of system calls in the guest asks of the clock, by marked calls of getppid: parts of the feed, CPU
 * time, and that its report is taken. None of it takes virtual time but the CPU time asked for.
 *
 * The feed is a file of the launcher's. It never is in the guest's memory as a whole, nor on any device of the guest. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "accounts.h"
#include "shim.h"

static char *feed;
static uint64_t feed_bytes;

static ssize_t write_program(pid_t pid, uint64_t address, void *bytes, size_t count)
{
	struct iovec here = { bytes, count }, there = { (void *)(uintptr_t)address, count };
	return syscall(SYS_process_vm_writev, pid, &here, 1, &there, 1, 0);
}

/* The count of bytes goes to the first word, after the bytes themselves: a part that could not be written whole
 * leaves the word as it was, and the replayer asks again. */
static void give_part(pid_t pid, uint64_t address, uint64_t offset, uint64_t count)
{
	uint64_t got = offset < feed_bytes ? smaller(count, feed_bytes - offset) : 0;
	got = smaller(got, FEED_PART_BYTES);
	if (got && write_program(pid, address + sizeof got, feed + offset, got) != (ssize_t)got)
		return;
	write_program(pid, address, &got, sizeof got);
}

static void take_report(pid_t pid, uint64_t address, uint64_t count)
{
	if (count > FEED_REPORT_BYTES)
		return;
	struct iovec here = { feed + FEED_REPORT_OFFSET, count }, there = { (void *)(uintptr_t)address, count };
	syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
}

int is_feed_call(const struct user_regs_struct *registers)
{
	return feed && registers->orig_rax == SYS_getppid && registers->rdi == FEED_MARK;
}

void answer_feed_call(pid_t pid, const struct user_regs_struct *registers)
{
	uint64_t since = instant_of_host_work();
	uint64_t address = registers->r10;
	switch (registers->rsi) {
	case FEED_PART:
		give_part(pid, address, registers->rdx, registers->r8);
		account_for_part_of_feed();
		break;
	case FEED_CHARGE: {
		forget_host_work_since(since);
		uint64_t left = charge_program(registers->rdx);
		since = instant_of_host_work();
		write_program(pid, address, &left, sizeof left);
		break;
	}
	case FEED_REPORT:
		take_report(pid, address, registers->rdx);
		break;
	default:
		break;
	}
	forget_host_work_since(since);
}

void start_feed(int fd)
{
	struct stat status;
	if (fd < 0 || fstat(fd, &status) != 0 || status.st_size < FEED_REPORT_OFFSET + FEED_REPORT_BYTES)
		return;
	void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		return;
	feed = mapped;
	feed_bytes = (uint64_t)status.st_size;
}
