/* Finds the present task's struct task_struct, and the task's ids in it.
 *
 * Up to Linux 6.12 the base of the kernel's stack points to the structure. Later kernels have CONFIG_THREAD_INFO_IN_TASK
 * and keep the pointer in their data (cpu_tasks in arch/um/kernel/process.c, and other copies). The structure has the
 * stack's address in its first words. Kernels differ in the places of the pointer and of the ids. Marked calls of tasks
 * that know their ids reveal both places. */
#define _GNU_SOURCE
#include <elf.h>
#include <string.h>
#include <sys/auxv.h>

#include "shim.h"

/* A kernel's stack is of one of these sizes, and is aligned to it. */
#define STACKS 4
static const uint64_t stack_bytes[STACKS] = { 8192, 16384, 32768, 65536 };
/* Ways to the structure: from the base of a stack of each size, and from the kernel's data. */
#define WAYS (STACKS + 1)
#define FROM_DATA STACKS
/* A task's structure is searched so far for both of its ids, one after the other. */
#define TASK_WORDS 4096
/* Alignment of the structure, and its bytes that are searched for the stack's address. */
#define TASK_ALIGNMENT 64u
#define STACK_WITHIN_BYTES 256u
/* Copies of the pointer that are considered. */
#define COPIES_MAX 64u

static uint8_t is_ruled_out[WAYS][TASK_WORDS];
static int has_learnt;
static uint64_t stack_mask;
static unsigned id_word;
static uint64_t copies[COPIES_MAX]; /* addresses in the kernel's data */
static unsigned copy_count;
static int is_from_data;

static uint64_t stack_base(uint64_t mask)
{
	return (uintptr_t)__builtin_frame_address(0) & mask;
}

uint64_t current_task(void)
{
	return *(const uint64_t *)(is_from_data ? copies[0] : stack_base(stack_mask));
}

const uint32_t *ids_of(uint64_t task)
{
	return (const uint32_t *)(uintptr_t)task + id_word;
}

/* Offset of the present stack's address in the structure of its task; -1 for another address. */
static int stack_offset_in(uint64_t task)
{
	uint64_t words[STACK_WITHIN_BYTES / sizeof(uint64_t)];
	if (task % TASK_ALIGNMENT || !read_own(task, words, sizeof words))
		return -1;
	for (size_t word = 0; word < sizeof words / sizeof *words; word++)
		for (int stack = 0; stack < STACKS; stack++)
			if (words[word] == stack_base(~(stack_bytes[stack] - 1)))
				return (int)(word * sizeof *words);
	return -1;
}

static int is_current(uint64_t task)
{
	return stack_offset_in(task) >= 0;
}

static void add_copies(uint64_t begin, uint64_t end)
{
	uint64_t words[512], wrong = 0;
	for (uint64_t at = begin; at + sizeof words <= end; at += sizeof words) {
		if (!read_own(at, words, sizeof words))
			continue;
		for (size_t word = 0; word < sizeof words / sizeof *words && copy_count < COPIES_MAX; word++) {
			if (!words[word] || words[word] == wrong)
				continue;
			if (is_current(words[word]))
				copies[copy_count++] = at + word * sizeof *words;
			else
				wrong = words[word];
		}
	}
}

/* Finds pointers to the present task in the kernel's data. An interrupt may have a stack of its own, so a look without
 * result is repeated, some times at most. */
static void find_copies(void)
{
	static int looks_left = 8;
	const Elf64_Phdr *part = (const Elf64_Phdr *)getauxval(AT_PHDR);
	if (copy_count || !looks_left)
		return;
	looks_left--;
	for (uint64_t left = getauxval(AT_PHNUM); part && left; left--, part++)
		if (part->p_type == PT_LOAD && part->p_flags & PF_W)
			add_copies(part->p_vaddr & ~7ull, part->p_vaddr + part->p_memsz);
}

/* Drops copies that are not the present task's now, such as another processor's or an old one. */
static void keep_right_copies(void)
{
	unsigned kept = 0;
	for (unsigned copy = 0; copy < copy_count; copy++)
		if (is_current(*(const uint64_t *)copies[copy]))
			copies[kept++] = copies[copy];
	copy_count = kept;
}

uint64_t task_by_data(int *stack_offset)
{
	find_copies();
	for (unsigned copy = 0; copy < copy_count; copy++) {
		uint64_t task = *(const uint64_t *)copies[copy];
		*stack_offset = stack_offset_in(task);
		if (*stack_offset >= 0)
			return task;
	}
	return 0;
}

/* The structure by a way, or 0. */
static uint64_t task_by(int way)
{
	uint64_t task = 0;
	if (way == FROM_DATA)
		return copy_count ? *(const uint64_t *)copies[0] : 0;
	return read_own(stack_base(~(stack_bytes[way] - 1)), &task, sizeof task) ? task : 0;
}

void learn_ids(uint32_t id, uint32_t group)
{
	static uint32_t words[TASK_WORDS + 1];
	find_copies();
	keep_right_copies();
	has_learnt = 1;
	for (int way = 0; way < WAYS; way++) {
		uint64_t task = task_by(way);
		/* The last words may be in memory that is not there. */
		memset(words, 0, sizeof words);
		for (size_t at = 0; task && at < sizeof words - 4; at += 1024)
			if (!read_own(task + at, (char *)words + at, 1024))
				break;
		for (unsigned word = 0; word < TASK_WORDS; word++)
			if (!task || words[word] != id || words[word + 1] != group)
				is_ruled_out[way][word] = 1;
	}
}

/* Of sizes of the stack that fit the least is the kernel's: greater ones fit if the stacks of all tasks that were looked
 * at are aligned by chance. */
int find_ids(void)
{
	for (int way = 0; has_learnt && way < WAYS; way++) {
		unsigned places = 0;
		for (unsigned word = 0; word < TASK_WORDS; word++) {
			if (is_ruled_out[way][word])
				continue;
			places++;
			id_word = word;
		}
		is_from_data = way == FROM_DATA;
		stack_mask = is_from_data ? 0 : ~(stack_bytes[way] - 1);
		if (places)
			return places == 1;
	}
	return 0;
}
