/* Reads the memory of the guest's programs, and their page tables.
 *
 * The host's process of a program has the pages that the program has touched. An argument of a call is often in another
 * one: a constant that only the kernel reads, or memory that a child has got by fork. The guest's page tables have every
 * page that the guest's kernel has read. Their root is in the task's struct mm_struct. The offsets of both differ from
 * kernel to kernel, so a call of a process with known memory reveals them.
 *
 * The tables are those of User Mode Linux (arch/um/include/asm/pgtable.h): 512 entries of 64 bits in each, physical
 * addresses, the lowest bit for present pages. The kernel has its physical memory at its own first address. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "accounts.h"
#include "shim.h"

#define TABLE_BITS 9
#define PAGE_BITS 12
#define WHOLE_PAGES (~(uint64_t)(PAGE_BYTES - 1))
#define ENTRY_PRESENT 0x01ull
#define ENTRY_WRITABLE 0x20ull
/* User Mode Linux has three levels, and four from Linux 6.13 on. */
#define LEVELS_MIN 3u
#define LEVELS_MAX 4u
/* Bytes of a struct task_struct and of a struct mm_struct that are searched. */
#define TASK_BYTES_MAX 16384u
#define MM_BYTES_MAX 1024u
/* A kernel's addresses, from its first one on. The host's libraries are far behind them. */
#define KERNEL_BYTES_MAX (1ull << 40)
/* Bytes of the known memory. */
#define SAMPLE_BYTES 256u

static uint64_t mm_offset, root_offset;
static unsigned levels; /* 0 until the tables are found */

static uint64_t physical_memory(void)
{
	static uint64_t begin;
	if (!begin)
		begin = getauxval(AT_PHDR) & WHOLE_PAGES;
	return begin;
}

static int is_in_memory(uint64_t address, size_t count)
{
	uint64_t offset = address - physical_memory();
	return address >= physical_memory() && offset < shared_page->memory_bytes &&
	       count <= shared_page->memory_bytes - offset;
}

/* Whether so many bytes, which are few, can be read. */
int is_mapped(uint64_t address, size_t count)
{
	unsigned char in_core[4];
	uint64_t first = address & WHOLE_PAGES, len_bytes = address + count - first;
	return address && len_bytes <= sizeof in_core * PAGE_BYTES &&
	       syscall(SYS_mincore, first, len_bytes, in_core) == 0;
}

/* The kernel's memory is this process's. What looks like an address may be none: returns whether it could be read. Some
 * kernels have their stacks in virtual memory behind the physical memory. */
int read_own(uint64_t address, void *to, size_t count)
{
	int may_be_kernels = address >= physical_memory() && address - physical_memory() < KERNEL_BYTES_MAX;
	if (!may_be_kernels || !is_mapped(address, count))
		return 0;
	memcpy(to, (const void *)(uintptr_t)address, count);
	return 1;
}

/* A word of a structure, or of a table, whose place is known; 0 outside of the memory. */
static uint64_t word_at(uint64_t address)
{
	return is_in_memory(address, sizeof(uint64_t)) ? *(const volatile uint64_t *)(uintptr_t)address : 0;
}

/* Before the tables are known, what looks like one may be none. */
static uint64_t entry_at(uint64_t address)
{
	uint64_t entry;
	if (levels)
		return word_at(address);
	return read_own(address, &entry, sizeof entry) ? entry : 0;
}

/* The entry of a program's page in the tables; 0 without one. */
static uint64_t entry_of(uint64_t root, unsigned levels_of_tables, uint64_t address)
{
	uint64_t table = root, entry = 0;
	if (address >> (PAGE_BITS + TABLE_BITS * levels_of_tables))
		return 0;
	for (unsigned level = levels_of_tables; level-- > 0;) {
		uint64_t index = address >> (PAGE_BITS + TABLE_BITS * level) & ((1u << TABLE_BITS) - 1);
		entry = entry_at(table + index * sizeof entry);
		if (!(entry & ENTRY_PRESENT))
			return 0;
		table = physical_memory() + (entry & WHOLE_PAGES);
	}
	return entry;
}

/* Where this process has the byte at a program's address, or 0. */
static uint64_t own_address(uint64_t root, unsigned levels_of_tables, uint64_t address)
{
	uint64_t entry = entry_of(root, levels_of_tables, address);
	return entry ? physical_memory() + (entry & WHOLE_PAGES) + (address & ~WHOLE_PAGES) : 0;
}

/* Whether the tables at this root have the sample at the address; returns the number of their levels, or 0. */
static unsigned levels_of(uint64_t root, uint64_t address, const char *sample)
{
	char found[SAMPLE_BYTES];
	if (!root || root & ~WHOLE_PAGES)
		return 0;
	for (unsigned count = LEVELS_MIN; count <= LEVELS_MAX; count++) {
		uint64_t own = own_address(root, count, address);
		if (own && read_own(own, found, sizeof found) && memcmp(found, sample, sizeof found) == 0)
			return count;
	}
	return 0;
}

/* The present task, whose struct task_struct is given, has filled the memory at the address. */
static void find_tables(pid_t pid, uint64_t task, uint64_t address)
{
	char sample[SAMPLE_BYTES];
	if ((address & ~WHOLE_PAGES) > PAGE_BYTES - SAMPLE_BYTES || !peek(pid, address, sample, sizeof sample))
		return;
	for (uint64_t at = 0; at < TASK_BYTES_MAX; at += sizeof(uint64_t)) {
		uint64_t mm, words[MM_BYTES_MAX / sizeof(uint64_t)];
		if (!read_own(task + at, &mm, sizeof mm) || !read_own(mm, words, sizeof words))
			continue;
		for (size_t word = 0; word < sizeof words / sizeof *words; word++) {
			levels = levels_of(words[word], address, sample);
			if (!levels)
				continue;
			mm_offset = at;
			root_offset = word * sizeof *words;
			return;
		}
	}
}

int tables_are_known(void)
{
	return levels != 0;
}

int is_learn_call(const struct user_regs_struct *registers)
{
	return registers->orig_rax == SYS_getppid && registers->rdi == LEARN_MARK;
}

/* The guest's first process and the command's, before it executes the command, reveal the kernel's structures. V stands
 * still meanwhile. Programs could make such calls, too, but the tables are looked for only once. */
void learn_from_call(pid_t pid, const struct user_regs_struct *registers)
{
	static int is_over;
	if (is_over)
		return;
	uint64_t since = instant_of_host_work();
	if (registers->rsi == LEARN_IDS) {
		learn_ids((uint32_t)registers->rdx, (uint32_t)registers->r10);
	} else if (registers->rsi == LEARN_TABLES) {
		is_over = 1;
		if (find_ids())
			find_tables(pid, current_task(), registers->rdx);
	}
	forget_host_work_since(since);
}

/* The root of a task's page tables, or 0. */
static uint64_t root_of(uint64_t task)
{
	uint64_t mm = levels ? word_at(task + mm_offset) : 0;
	return mm ? word_at(mm + root_offset) : 0;
}

enum access page_access(uint64_t address)
{
	uint64_t root = levels ? root_of(current_task()) : 0;
	uint64_t entry = root ? entry_of(root, levels, address) : 0;
	if (!entry)
		return ACCESS_NONE;
	return entry & ENTRY_WRITABLE ? ACCESS_WRITE : ACCESS_READ;
}

static int read_process(pid_t pid, uint64_t address, void *to, size_t count)
{
	struct iovec here = { to, count }, there = { (void *)(uintptr_t)address, count };
	return syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0) == (long)count;
}

/* The part of a page that begins at the address, of a task's program. */
static int read_part(pid_t pid, uint64_t task, uint64_t address, char *to, size_t count)
{
	if (read_process(pid, address, to, count))
		return 1;
	uint64_t root = root_of(task), own = root ? own_address(root, levels, address) : 0;
	return own && read_own(own, to, count);
}

/* Reads the memory of a program, for a recording. Returns whether all could be read. */
int read_program(pid_t pid, uint64_t task, uint64_t address, void *to, size_t count)
{
	for (size_t got = 0; got < count;) {
		size_t part = smaller(PAGE_BYTES - ((address + got) & ~WHOLE_PAGES), count - got);
		if (!read_part(pid, task, address + got, (char *)to + got, part))
			return 0;
		got += part;
	}
	return 1;
}
