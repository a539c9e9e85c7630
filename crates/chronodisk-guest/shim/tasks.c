/* For whom the guest's kernel works when it makes a request: for a program, or for itself.
 *
 * The kernel runs on the stack of a task, or on one of its own during an interrupt, into which it copies the same
 * structure thread_info (arch/um/include/asm/thread_info.h): its first word is the task's struct task_struct. That
 * begins with its state, the address of its stack, a count and its flags (include/linux/sched.h). It has done so since
 * Linux 5.14. After 6.12 thread_info is in the structure, which current.c finds. Of a kernel that has them elsewhere
 * the stack is not found to be the task's, and nothing is said. */
#define _GNU_SOURCE
#include <string.h>

#include "shim.h"

/* CONFIG_KERNEL_STACK_ORDER is 1 or 2. */
#define STACK_BYTES_MIN 8192u
#define STACK_BYTES_MAX 16384u
/* Of struct task_struct. */
#define TASK_STACK_OFFSET 8
#define TASK_FLAGS_OFFSET 20
#define FLAGS_AFTER_STACK (TASK_FLAGS_OFFSET - TASK_STACK_OFFSET)
#define PF_KTHREAD 0x00200000u

static uint64_t word_at(uintptr_t address)
{
	uint64_t word;
	memcpy(&word, (const void *)address, sizeof word);
	return word;
}

/* The stack that the kernel runs on, if it is a task's; else 0. */
static uintptr_t task_stack(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	for (uintptr_t stack_bytes = STACK_BYTES_MIN; stack_bytes <= STACK_BYTES_MAX; stack_bytes *= 2) {
		uintptr_t stack = here & ~(stack_bytes - 1);
		if (!is_mapped(stack, sizeof(uint64_t)))
			continue;
		uintptr_t task = word_at(stack);
		if (!(task & 7) && is_mapped(task, TASK_FLAGS_OFFSET + sizeof(uint32_t)) &&
		    word_at(task + TASK_STACK_OFFSET) == stack)
			return stack;
	}
	return 0;
}

enum chronodisk_issuer issuer_of_request(void)
{
	uintptr_t stack = task_stack();
	int stack_offset = TASK_STACK_OFFSET;
	uint64_t task = stack ? word_at(stack) : task_by_data(&stack_offset);
	if (!task)
		return CHRONODISK_ISSUER_UNKNOWN;
	uint32_t flags;
	memcpy(&flags, (const void *)(task + (unsigned)stack_offset + FLAGS_AFTER_STACK), sizeof flags);
	return flags & PF_KTHREAD ? CHRONODISK_ISSUER_KERNEL : CHRONODISK_ISSUER_PROGRAM;
}

/* Of struct thread_info, after the task; and the flags for which the kernel does something before a program goes on
 * (interrupt_end() in arch/um/kernel/process.c): a signal, another program's turn, work that is queued. */
#define THREAD_FLAGS_OFFSET 8
#define THREAD_FLAGS_OF_WORK (1u << 1 | 1u << 2 | 1u << 3 | 1u << 8)

/* Whether the program whose task the kernel runs for has to go back to its kernel after an interrupt. */
int task_must_stop(void)
{
	uintptr_t stack = task_stack();
	return !stack || (word_at(stack + THREAD_FLAGS_OFFSET) & THREAD_FLAGS_OF_WORK);
}
