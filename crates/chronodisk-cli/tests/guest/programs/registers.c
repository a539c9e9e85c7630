/* Threads and processes whose vector registers differ, and a signal handler that clears them: each finds its own again
 * after each system call. Ends with status 1 if one does not. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 2000
#define THREADS 3
#define PROCESSES 2

static volatile int signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
	__asm__ volatile("pxor %%xmm0, %%xmm0\n pxor %%xmm7, %%xmm7\n pxor %%xmm15, %%xmm15" ::: "xmm0", "xmm7", "xmm15");
}

/* The three registers after a call, added up, if they held these before. */
static uint64_t sum_after_call(uint64_t value, long call)
{
	uint64_t low, middle, high;
	__asm__ volatile("movq %[value], %%xmm0\n"
			 "movq %[value], %%xmm7\n"
			 "movq %[value], %%xmm15\n"
			 "syscall\n"
			 "movq %%xmm0, %[low]\n"
			 "movq %%xmm7, %[middle]\n"
			 "movq %%xmm15, %[high]\n"
			 : [low] "=&r"(low), [middle] "=&r"(middle), [high] "=&r"(high), "+a"(call)
			 : [value] "r"(value)
			 : "rcx", "r11", "memory", "xmm0", "xmm7", "xmm15");
	return low + middle + high;
}

static void *compute(void *argument)
{
	uint64_t mine = (uintptr_t)argument;
	for (uint64_t round = 0; round < ROUNDS; round++) {
		uint64_t value = mine << 32 | round;
		long call = round % 3 ? SYS_sched_yield : SYS_getppid;
		/* Also the same value twice in a row, which needs no setting. */
		if (sum_after_call(value, call) != 3 * value || sum_after_call(value, call) != 3 * value) {
			fprintf(stderr, "the registers of %d are another's in round %d\n", (int)mine, (int)round);
			_exit(1);
		}
	}
	return NULL;
}

int main(void)
{
	signal(SIGALRM, on_signal);
	struct itimerval often = { { 0, 500 }, { 0, 500 } };
	int processes = 0, status, failed = 0;
	while (processes < PROCESSES && fork() != 0)
		processes++;
	setitimer(ITIMER_REAL, &often, NULL);
	pthread_t threads[THREADS];
	for (int index = 0; index < THREADS; index++)
		pthread_create(&threads[index], NULL, compute, (void *)(uintptr_t)(16 * processes + index + 1));
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
	if (processes < PROCESSES)
		_exit(0);
	while (wait(&status) > 0)
		failed |= status;
	printf("signals: %d\n", signals);
	return failed != 0 || signals == 0;
}
