/* The accounts of the guest's clock on clocks of our own. `accounts.rs` compiles and runs this under sanitizers. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "accounts.h"

#define EXPECT(found, expected)                                                                                       \
	do {                                                                                                          \
		uint64_t found_ = (uint64_t)(found), expected_ = (uint64_t)(expected);                                \
		if (found_ != expected_) {                                                                            \
			fprintf(stderr, "%s:%d: %s is %" PRIu64 ", not %" PRIu64 "\n", __func__, __LINE__, #found,    \
				found_, expected_);                                                                   \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

/* The launcher's part of the page, which is constant for the clock. */
#define SET(field, value) (*(uint64_t *)(uintptr_t)&page->field = (value))

#define TRAP_NANOS 1000
#define PROGRAM 7
#define ANOTHER 8

static uint64_t memory[PAGE_BYTES / sizeof(uint64_t)];
static struct chronodisk_page *const page = (struct chronodisk_page *)memory;
static struct accounts accounts;

/* A guest that has booted on the measured clock, where the kernel's time counts a tenth. */
static void begin(void)
{
	memset(memory, 0, sizeof memory);
	SET(computing, CHRONODISK_COMPUTING_MEASURED);
	SET(kernel_scale_millionths, 100000);
	SET(cpu_speed_millionths, 1000000);
	SET(trap_nanos_unmeasured, TRAP_NANOS);
	for (int work = 0; work < CHRONODISK_WORKS; work++) {
		SET(costs[work].scale_millionths, 100000);
		SET(costs[work].bound_nanos, CHRONODISK_NEVER);
	}
	SET(other_bound_nanos, CHRONODISK_NEVER);
	accounts_begin(&accounts, page, 1);
	accounts.booted = 1;
}

static struct cpu_reading reading(uint64_t kernel, uint64_t running)
{
	return (struct cpu_reading){ .kernel = kernel, .running = running };
}

/* A stretch of a program that the kernel begins and ends at these readings. */
static void run(uint64_t kernel, uint64_t since, uint64_t until)
{
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(kernel, since));
	accounts_end_stretch(&accounts, reading(kernel, until), accounts.call_stop.nanos);
}

static void programs_count_in_full_but_for_their_stops(void)
{
	begin();
	run(0, 500, 500 + 50000);
	EXPECT(accounts.user_cpu_nanos, 50000 - TRAP_NANOS);
	EXPECT(page->trap_overhead_nanos, TRAP_NANOS);
	EXPECT(page->traps, 1);
	EXPECT(accounts_measured_base(&accounts, reading(0, 0)), 50000 - TRAP_NANOS);
	/* One that runs counts already. */
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(0, 50500));
	EXPECT(accounts_measured_base(&accounts, reading(0, 50500 + 3000)), 50000 - TRAP_NANOS + 2000);
}

static void a_faster_processor_takes_less(void)
{
	begin();
	SET(cpu_speed_millionths, 2000000);
	run(0, 0, 50000 + TRAP_NANOS);
	EXPECT(accounts_measured_base(&accounts, reading(0, 0)), 25000);
}

/* CPU time of a boot, as it counts. */
static uint64_t boot_of(int devices, uint64_t cpu)
{
	accounts_begin(&accounts, page, devices);
	run(0, 0, cpu + TRAP_NANOS);
	return accounts_measured_base(&accounts, reading(0, 0));
}

static void a_boot_on_a_stopping_clock_is_soon_over(void)
{
	begin();
	SET(cpu_speed_millionths, 2000000);
	EXPECT(boot_of(2, 50000), 50000 * BOOT_SPEED_FOR_ARRAYS);
	EXPECT(boot_of(1, 50000), 50000 * BOOT_SPEED);
	EXPECT(accounts_alarm_wait(&accounts, 0, 10000000), 10000000 / BOOT_SPEED);
	accounts.boot_speed = 1; /* connected, and not booted */
	EXPECT(accounts_measured_base(&accounts, reading(0, 0)), 50000);
	SET(clock, CHRONODISK_CLOCK_EXACT);
	EXPECT(boot_of(1, 50000), 50000);
}

static void what_a_short_stretch_can_not_give_the_next_one_owes(void)
{
	begin();
	run(0, 0, 420);
	EXPECT(accounts.user_cpu_nanos, 20); /* a program that looks at the clock sees it move */
	EXPECT(accounts.overhead_owed_nanos, TRAP_NANOS - 400);
	run(0, 420, 420 + 5000);
	EXPECT(accounts.user_cpu_nanos, 20 + 5000 - TRAP_NANOS - 600);
	EXPECT(accounts.overhead_owed_nanos, 0);
	for (int stop = 0; stop < 100; stop++)
		run(0, 0, 20);
	EXPECT(accounts.overhead_owed_nanos, 16 * TRAP_NANOS);
}

static void work_counts_by_its_kind(void)
{
	begin();
	SET(costs[CHRONODISK_WORK_COPY].taken_off_nanos, 10000);
	SET(costs[CHRONODISK_WORK_COPY].added_nanos, 700);
	SET(costs[CHRONODISK_WORK_COPY].scale_millionths, 500000);
	accounts_begin_work(&accounts, reading(40000, 0), CHRONODISK_WORK_COPY);
	EXPECT(accounts.charged_work_nanos, 4000);
	accounts_begin_work(&accounts, reading(40000 + 16000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, 4000 + 700 + 3000);
	EXPECT(page->worked[CHRONODISK_WORK_COPY].count, 1);
	EXPECT(page->worked[CHRONODISK_WORK_COPY].cpu_nanos, 16000);
}

/* A piece of work of this kind that takes so much. */
static void work(uint64_t *kernel, enum chronodisk_work kind, uint64_t cpu_nanos)
{
	accounts_begin_work(&accounts, reading(*kernel, 0), kind);
	*kernel += cpu_nanos;
	accounts_begin_work(&accounts, reading(*kernel, 0), CHRONODISK_WORK_OTHER);
}

static void work_beyond_the_bound_counts_in_full(void)
{
	uint64_t kernel = 0;
	begin();
	SET(costs[CHRONODISK_WORK_CALL].bound_nanos, 10000);
	work(&kernel, CHRONODISK_WORK_CALL, 8000);
	EXPECT(accounts.charged_work_nanos, 800);
	EXPECT(page->kernel_in_full_nanos, 0);
	/* The first has left 2000 of its bound. */
	work(&kernel, CHRONODISK_WORK_CALL, 1000000);
	EXPECT(accounts.charged_work_nanos, 800 + 1200 + 988000);
	EXPECT(page->kernel_in_full_nanos, 988000);
	EXPECT(page->kernel_counted_nanos, accounts.charged_work_nanos);
	EXPECT(page->kernel_work_nanos, kernel);
	/* Kinds without a bound count by their scale. */
	work(&kernel, CHRONODISK_WORK_FAULT, 1000000);
	EXPECT(page->kernel_in_full_nanos, 988000);
	/* What was spare is bounded itself. */
	for (int piece = 0; piece < 1000; piece++)
		work(&kernel, CHRONODISK_WORK_CALL, 0);
	uint64_t charged = accounts.charged_work_nanos;
	work(&kernel, CHRONODISK_WORK_CALL, 1170000);
	EXPECT(accounts.charged_work_nanos - charged, 17000 + 1000000);
	/* Time that runs counts in the same way, and goes on at its end. */
	accounts_begin_work(&accounts, reading(kernel, 0), CHRONODISK_WORK_CALL);
	uint64_t before = accounts_measured_base(&accounts, reading(kernel, 0));
	EXPECT(accounts_measured_base(&accounts, reading(kernel + 30000, 0)) - before, 1000 + 20000 - WORK_NANOS_MIN);
}

static void a_stop_of_the_clock_has_a_bound_of_its_own(void)
{
	begin();
	SET(costs[CHRONODISK_WORK_CALL].bound_nanos, 10000);
	SET(other_bound_nanos, 50000);
	accounts_begin_work(&accounts, reading(0, 0), CHRONODISK_WORK_CALL);
	accounts_begin_stop(&accounts, 20000);
	accounts_end_stop(&accounts, 20000);
	accounts_begin_work(&accounts, reading(100000, 0), CHRONODISK_WORK_CALL);
	EXPECT(accounts.charged_work_nanos, 6000 + 40000);
	accounts_begin_work(&accounts, reading(200000, 0), CHRONODISK_WORK_CALL);
	EXPECT(accounts.charged_work_nanos, 46000 + 1000 + 90000);
}

static void requests_have_prices(void)
{
	begin();
	SET(submission_nanos, 2000);
	SET(completion_nanos, 1500);
	SET(wake_up_nanos, 3000);
	accounts_note_requests(&accounts, 1, 1, 1); /* without a bound there are none */
	EXPECT(accounts.priced_nanos, 0);
	SET(request_bound_nanos, 60000);
	accounts_begin_work(&accounts, reading(0, 0), CHRONODISK_WORK_CALL);
	accounts_note_requests(&accounts, 2, 1, 0);
	EXPECT(accounts_measured_base(&accounts, reading(100, 0)), 5500 + WORK_NANOS_MIN);
	/* What they take up to their bounds counts nothing else. */
	accounts_begin_work(&accounts, reading(190000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, 5500 + 1000);
	EXPECT(page->kernel_requests_nanos, 5500);
	accounts_note_requests(&accounts, 0, 1, 1);
	accounts_begin_work(&accounts, reading(190000 + 50000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, 6500 + 4500 + 50000 / WORK_SHARE_MIN);
	EXPECT(page->kernel_requests_nanos, 10000);
	accounts.booted = 0;
	accounts_note_requests(&accounts, 1, 1, 1);
	EXPECT(accounts.priced_events, 0);
}

static void copying_counts_by_a_scale_of_its_own(void)
{
	struct user_regs_struct registers = { .orig_rax = SYS_read, .rdx = 1 << 20 };
	begin();
	SET(costs[CHRONODISK_WORK_COPY].bound_nanos, 10000);
	SET(copy_nanos_per_mib, 200000);
	SET(copy_scale_millionths, 500000);
	accounts.returned_pid = PROGRAM;
	accounts_begin_work(&accounts, reading(0, 0), CHRONODISK_WORK_CALL);
	accounts_note_call(&accounts, &registers);
	registers.rdx += SMALL_COPY_BYTES;
	accounts_note_call(&accounts, &registers);
	accounts_note_result(&accounts, PROGRAM, (1 << 20) + SMALL_COPY_BYTES);
	accounts_begin_work(&accounts, reading(510000, 0), CHRONODISK_WORK_OTHER);
	/* Copying, the bound, and the rest. */
	EXPECT(accounts.charged_work_nanos, 100000 + 1000 + 300000);
	EXPECT(page->worked[CHRONODISK_WORK_COPY].copied_bytes, 1 << 20);
	/* Only what was copied counts so: not what was asked for. */
	accounts_begin_work(&accounts, reading(510000, 0), CHRONODISK_WORK_CALL);
	accounts_note_call(&accounts, &registers);
	accounts_note_result(&accounts, PROGRAM, SMALL_COPY_BYTES + (1 << 10));
	accounts_begin_work(&accounts, reading(520000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, 401000 + 97 + 980);
	accounts_begin_work(&accounts, reading(520000, 0), CHRONODISK_WORK_CALL);
	accounts_note_call(&accounts, &registers);
	accounts_note_result(&accounts, PROGRAM, -11);
	accounts_begin_work(&accounts, reading(530000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, 402077 + 1000);
	/* A call whose program waited is copied for by the work after the wait. */
	SET(other_bound_nanos, 10000);
	accounts_begin_work(&accounts, reading(530000, 0), CHRONODISK_WORK_CALL);
	accounts_note_call(&accounts, &registers);
	accounts_begin_work(&accounts, reading(530000, 0), CHRONODISK_WORK_OTHER);
	uint64_t charged = accounts.charged_work_nanos;
	accounts_note_result(&accounts, PROGRAM, (1 << 20) + SMALL_COPY_BYTES);
	accounts_begin_work(&accounts, reading(530000 + 210000, 0), CHRONODISK_WORK_CALL);
	EXPECT(accounts.charged_work_nanos - charged, 100000 + 1000);
}

static void what_the_kernel_does_while_its_clock_stands_still_is_the_hosts(void)
{
	begin();
	accounts_begin_stop(&accounts, 10000);
	accounts_note_host_call(&accounts, 700); /* is part of it */
	accounts_end_stop(&accounts, 10000 + 160000);
	EXPECT(accounts.host_part_nanos, 150000);
	accounts_look(&accounts, 170000);
	EXPECT(accounts.host_part_nanos, 150000);
	accounts_begin_work(&accounts, reading(190000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, 4000);
}

static void work_counts_something_whatever_is_taken_off(void)
{
	begin();
	SET(costs[CHRONODISK_WORK_CALL].taken_off_nanos, UINT64_MAX);
	SET(costs[CHRONODISK_WORK_CALL].scale_millionths, 0);
	accounts_begin_work(&accounts, reading(0, 0), CHRONODISK_WORK_CALL);
	accounts_begin_work(&accounts, reading(100, 0), CHRONODISK_WORK_CALL);
	EXPECT(accounts.charged_work_nanos, WORK_NANOS_MIN);
	accounts_begin_work(&accounts, reading(100 + 256000000, 0), CHRONODISK_WORK_OTHER);
	EXPECT(accounts.charged_work_nanos, WORK_NANOS_MIN + 256000000 / WORK_SHARE_MIN);
}

static void a_fault_that_is_none_natively_counts_by_a_kind_of_its_own(void)
{
	begin();
	accounts.work = CHRONODISK_WORK_FAULT;
	accounts_note_spurious_fault(&accounts);
	EXPECT(accounts.work, CHRONODISK_WORK_SPURIOUS_FAULT);
	accounts.work = CHRONODISK_WORK_CALL;
	accounts_note_spurious_fault(&accounts);
	EXPECT(accounts.work, CHRONODISK_WORK_CALL);
}

static enum chronodisk_work work_of(unsigned long long call, unsigned long long second, unsigned long long third)
{
	begin();
	accounts.work = CHRONODISK_WORK_CALL;
	struct user_regs_struct registers = { .orig_rax = call, .rsi = second, .rdx = third };
	accounts_note_call(&accounts, &registers);
	return accounts.work;
}

static void calls_are_told_apart(void)
{
	EXPECT(work_of(SYS_getppid, 0, 0), CHRONODISK_WORK_CALL);
	EXPECT(work_of(SYS_pread64, 0, 0), CHRONODISK_WORK_COPY);
	EXPECT(work_of(SYS_munmap, 0, 0), CHRONODISK_WORK_MAP);
	EXPECT(work_of(SYS_execve, 0, 0), CHRONODISK_WORK_PROCESS);
	EXPECT(work_of(SYS_io_submit, 0, 0), CHRONODISK_WORK_QUEUE);
	EXPECT(work_of(SYS_io_uring_enter, 0, 0), CHRONODISK_WORK_QUEUE);
	EXPECT(work_of(SYS_stat, 0, 0), CHRONODISK_WORK_LOOK_UP);
	EXPECT(work_of(SYS_open, O_RDONLY, 0), CHRONODISK_WORK_LOOK_UP);
	EXPECT(work_of(SYS_openat, 0, O_RDONLY | O_DIRECTORY), CHRONODISK_WORK_LOOK_UP);
	EXPECT(work_of(SYS_openat, 0, O_WRONLY | O_CREAT), CHRONODISK_WORK_CALL);
	EXPECT(work_of(SYS_openat, 0, O_RDWR | O_TMPFILE), CHRONODISK_WORK_CALL);
	EXPECT(work_of(~0ull, 0, 0), CHRONODISK_WORK_CALL);
}

static void another_program_makes_a_call_a_switch(void)
{
	begin();
	accounts.returned_pid = PROGRAM;
	accounts.work = CHRONODISK_WORK_COPY;
	accounts_note_switch(&accounts, PROGRAM, 1);
	EXPECT(accounts.work, CHRONODISK_WORK_COPY);
	accounts_note_switch(&accounts, ANOTHER, 0);
	EXPECT(accounts.work, CHRONODISK_WORK_COPY);
	accounts_note_switch(&accounts, ANOTHER, 1);
	EXPECT(accounts.work, CHRONODISK_WORK_SWITCH);
	accounts.work = CHRONODISK_WORK_FAULT;
	accounts_note_switch(&accounts, ANOTHER, 1);
	EXPECT(accounts.work, CHRONODISK_WORK_FAULT);
}

static void what_the_host_takes_of_the_kernel_is_bounded(void)
{
	begin();
	accounts_look(&accounts, 1000);
	for (int call = 0; call < 10; call++)
		accounts_note_host_call(&accounts, UINT64_MAX);
	accounts_look(&accounts, 1000 + 16000);
	EXPECT(accounts.host_part_nanos, 15000);
	/* While a program runs, the kernel's process only waits. */
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(17000, 0));
	accounts_note_host_call(&accounts, 5000);
	EXPECT(accounts.host_part_nanos, 15000);
	accounts_end_stretch(&accounts, reading(17000 + 3000, 100), 0);
	EXPECT(accounts.host_part_nanos, 18000);
}

static void calls_of_the_host_that_are_not_timed_count_the_mean(void)
{
	begin();
	accounts_look(&accounts, 0);
	struct host_call_cost cost = { 0 };
	for (int call = 0; call < HOST_CALLS_TIMED; call++) {
		EXPECT(accounts_want_time_of_host_call(&cost), 1);
		accounts_note_timed_host_call(&accounts, &cost, 700);
	}
	uint64_t timed = accounts.host_part_nanos;
	EXPECT(timed, 700 * HOST_CALLS_TIMED);
	int wanted = 0;
	for (int call = 0; call < 10 * HOST_CALLS_PER_TIMED; call++) {
		if (accounts_want_time_of_host_call(&cost)) {
			wanted++;
			accounts_note_timed_host_call(&accounts, &cost, 700);
		} else {
			accounts_note_untimed_host_call(&accounts, &cost);
		}
	}
	EXPECT(wanted, 10);
	EXPECT(accounts.host_part_nanos, timed + 700 * 10 * HOST_CALLS_PER_TIMED);
	/* A call that was interrupted moves the mean by a bounded step, and the mean follows a lasting change. */
	accounts_note_timed_host_call(&accounts, &cost, UINT64_MAX);
	EXPECT(cost.mean_nanos, (700 * (HOST_CALLS_TIMED - 1) + HOST_CALL_MAXIMUM_NANOS) / HOST_CALLS_TIMED);
	for (int call = 0; call < 20 * HOST_CALLS_TIMED; call++)
		accounts_note_timed_host_call(&accounts, &cost, 1400);
	EXPECT(cost.mean_nanos, 1400);
}

static void what_a_recorder_does_uses_up_no_bound(void)
{
	uint64_t charged[2];
	for (int records = 0; records < 2; records++) {
		uint64_t own = records ? 9000 : 0;
		begin();
		SET(costs[CHRONODISK_WORK_CALL].bound_nanos, 10000);
		accounts_begin_work(&accounts, reading(0, 0), CHRONODISK_WORK_CALL);
		accounts_begin_own_work(&accounts, 0);
		accounts_note_host_call(&accounts, 500);
		accounts_end_own_work(&accounts, own);
		EXPECT(accounts_measured_base(&accounts, reading(own, 0)), WORK_NANOS_MIN);
		accounts_begin_work(&accounts, reading(own + 8000, 0), CHRONODISK_WORK_OTHER);
		charged[records] = accounts.charged_work_nanos;
	}
	EXPECT(charged[0], 800);
	EXPECT(charged[1], 800);
}

/* A call of the clock by a replayer: 2,000 ns of the kernel's CPU time, which count 200, and 500 of its own. */
static void call_of_the_clock(uint64_t *kernel, uint64_t *user)
{
	run(*kernel, *user, *user + 500 + TRAP_NANOS);
	accounts_begin_work(&accounts, reading(*kernel, 0), CHRONODISK_WORK_CALL);
	*user += 500 + TRAP_NANOS;
}

static void what_a_replayer_takes_is_part_of_what_it_is_granted(void)
{
	for (uint64_t speed = 1; speed <= 2; speed++) {
		begin();
		SET(cpu_speed_millionths, speed * 1000000);
		uint64_t kernel = 10000, user = 0;
		call_of_the_clock(&kernel, &user);
		EXPECT(accounts_grant(&accounts, 5000, 0, 1000000), 0);
		EXPECT(accounts.granted_nanos, 5000);
		accounts_note_replayers_call(&accounts);
		kernel += 2000;
		call_of_the_clock(&kernel, &user);
		/* The kernel's 200 and the 500 from the call to the next one. */
		EXPECT(accounts_grant(&accounts, 5000, 0, 1000000), 0);
		EXPECT(accounts.granted_nanos, 10000 - 700 / speed);
		/* A call of the program's is none of the clock's. */
		kernel += 2000;
		call_of_the_clock(&kernel, &user);
		EXPECT(accounts_grant(&accounts, 5000, 0, 1000000), 0);
		EXPECT(accounts.granted_nanos, 15000 - 1200 / speed);
		/* Nor is it the clock's alone if another program goes on after it. */
		accounts_note_replayers_call(&accounts);
		accounts_note_switch(&accounts, ANOTHER, 1);
		kernel += 2000;
		call_of_the_clock(&kernel, &user);
		EXPECT(accounts_grant(&accounts, 5000, 0, 1000000), 0);
		EXPECT(accounts.granted_nanos, 20000 - 1700 / speed);
	}
}

static void handlers_are_the_kernels_own_work(void)
{
	begin();
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(1000, 0));
	EXPECT(accounts_need_kernel_cpu(&accounts), 0);
	EXPECT(accounts_enter_handler(&accounts), 1);
	accounts_begin_handler(&accounts, 2000);
	EXPECT(accounts_enter_handler(&accounts), 0);
	EXPECT(accounts_need_kernel_cpu(&accounts), 1);
	EXPECT(accounts_handler_counts(&accounts), 0);
	accounts_leave_handler(&accounts, 0);
	EXPECT(accounts_handler_counts(&accounts), 1);
	accounts_leave_handler(&accounts, 6000);
	EXPECT(accounts.handled_nanos, 4000);
	accounts_end_stretch(&accounts, reading(6500, TRAP_NANOS), TRAP_NANOS);
	EXPECT(accounts.host_part_nanos, 1500);
}

static void time_never_steps_back(void)
{
	begin();
	EXPECT(accounts_never_back(&accounts, 500), 500);
	EXPECT(accounts_never_back(&accounts, 400), 500);
	page->virtual_now = 900;
	accounts_go_on(&accounts, 1300);
	EXPECT(accounts.offset_nanos, -400);
	EXPECT(accounts_never_back(&accounts, 899), 900);
	accounts_jump(&accounts, 50);
	EXPECT(accounts.offset_nanos, -350);
	EXPECT(page->jumps, 1);
	EXPECT(page->jumped_nanos, 50);
	accounts_forget(&accounts, 30);
	EXPECT(accounts.offset_nanos, -380);
	SET(clock, CHRONODISK_CLOCK_EXACT);
	accounts_forget(&accounts, 30);
	EXPECT(accounts.charged_nanos, 30);
	EXPECT(accounts_uncharged(&accounts, 100), 70);
	EXPECT(accounts_uncharged(&accounts, 10), 0);
}

static void whoever_waits_for_free_time_sees_it_pass(void)
{
	begin();
	page->tsc_reads = 3;
	accounts.yields = 2;
	page->spins = 1;
	EXPECT(accounts_free_base(&accounts), 3 * 20 + 2 * 500 + 10000000);
	for (int call = 1; call < 65536; call++)
		EXPECT(accounts_spin_of_calls(&accounts, 5), 0);
	EXPECT(accounts_spin_of_calls(&accounts, 5), 1);
	EXPECT(accounts_spin_of_calls(&accounts, 5), 0);
}

static void an_alarm_waits_for_what_runs(void)
{
	begin();
	/* A tenth of the kernel's time counts, and it looks by itself before a program goes on. */
	EXPECT(accounts_alarm_wait(&accounts, 100, 100 + 20000), 120000);
	EXPECT(accounts_alarm_wait(&accounts, 150, 150 + 5000), KERNEL_ALARM_MINIMUM_NANOS);
	EXPECT(accounts_alarm_wait(&accounts, 160, 160), KERNEL_ALARM_MINIMUM_NANOS);
	EXPECT(accounts_alarm_wait(&accounts, 200, 200 + 500000), 600000);
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(0, 0));
	EXPECT(accounts_alarm_wait(&accounts, 300, 300 + 5000), 5000);
	EXPECT(accounts_alarm_wait(&accounts, 300, 300), 1);
	SET(computing, CHRONODISK_COMPUTING_WALL);
	EXPECT(accounts_alarm_wait(&accounts, 300, 302), 2);
	EXPECT(accounts_user_alarm_wait(&accounts, 10, 11), REARM_MINIMUM_NANOS);
	EXPECT(accounts_user_alarm_wait(&accounts, 10, 10000), 9990);
}

static void a_program_of_short_stretches_is_only_guarded(void)
{
	begin();
	run(0, 0, SHORT_STRETCH_NANOS + TRAP_NANOS - 1);
	EXPECT(accounts_user_alarm_wait(&accounts, 10, 11), GUARD_NANOS);
	EXPECT(accounts_user_alarm_wait(&accounts, 10, 11 + GUARD_NANOS), GUARD_NANOS + 1 + TRAP_NANOS);
	/* One that computes is interrupted when V gets there, after the host's part of its stop. */
	run(0, 0, SHORT_STRETCH_NANOS + TRAP_NANOS);
	EXPECT(accounts_user_alarm_wait(&accounts, 10, 5010), 5000 + TRAP_NANOS);
	accounts.overhead_owed_nanos = 700;
	EXPECT(accounts_user_alarm_wait(&accounts, 10, 5010), 5000 + TRAP_NANOS + 700);
}

static void alarms_that_come_to_nothing_come_more_rarely(void)
{
	begin();
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(0, 0));
	for (unsigned alarm = 0; alarm < 20; alarm++)
		EXPECT(accounts_alarm_wait(&accounts, 70, 71), REARM_MINIMUM_NANOS << (alarm < 9 ? alarm : 9));
	EXPECT(accounts_alarm_wait(&accounts, 71, 72), REARM_MINIMUM_NANOS);
}

static void cold_caches_are_not_the_guests(void)
{
	begin();
	accounts.usual_stretch_nanos = 3000;
	accounts_begin_cold_stretches(&accounts, 499999);
	EXPECT(accounts_kernel_stretch_is_cold(&accounts), 0);
	accounts_begin_cold_stretches(&accounts, 50000000);
	EXPECT(accounts_kernel_stretch_is_cold(&accounts), 1);
	accounts_begin_kernel_stretch(&accounts, reading(1000, 0));
	accounts_end_kernel_stretch(&accounts, reading(1000 + 168000, 0));
	EXPECT(accounts.cold_kernel_total_nanos, 168000 - 15000);
	EXPECT(page->cold_nanos, (168000 - 15000) / 10);
	run(200000, 0, 31000);
	EXPECT(accounts.user_cpu_nanos, 3000 - TRAP_NANOS);
	/* What is longer than cold caches could make it counts. */
	run(200000, 0, 31000);
	EXPECT(accounts.user_cpu_nanos, 3000 - TRAP_NANOS + 31000 - (40000 - 28000) - TRAP_NANOS);
}

static void what_a_stop_takes_is_measured_and_followed(void)
{
	struct stop_cost *cost = &accounts.call_stop;
	uint64_t running = 0;
	begin();
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(0, 0));
	for (unsigned probe = 0; probe < PROBES; probe++) {
		accounts.last_stretch_nanos = 1000 + 10 * (probe * 7 % PROBES);
		accounts_note_probe(&accounts);
		if (accounts_want_sample(cost))
			accounts_note_sample(&accounts, cost, running += 1500);
	}
	EXPECT(cost->nanos, 2245); /* without the longest five */
	EXPECT(cost->samples, 32);
	accounts_note_probe(&accounts); /* one too many changes nothing */
	EXPECT(cost->nanos, 2245);
	uint64_t wanted = 0;
	for (int stop = 0; stop < 16000; stop++)
		wanted += (uint64_t)accounts_want_sample(cost);
	EXPECT(wanted, 1000);
	/* Samples that take half as long again. One meets an interrupt. */
	for (int sample = 0; sample < 1000; sample++)
		accounts_note_sample(&accounts, cost, running += 2250);
	EXPECT(cost->nanos > 3300 && cost->nanos <= 2245 * 3 / 2, 1);
	uint64_t before = cost->nanos;
	accounts_note_sample(&accounts, cost, running += 1000000000);
	EXPECT(cost->nanos > before && cost->nanos < before + before / 16, 1);
	/* None of them counts, and the program's stretch has not ended. */
	EXPECT(accounts.user_cpu_nanos, 0);
	EXPECT(page->trap_overhead_nanos, running);
	accounts_end_stretch(&accounts, reading(0, running), TRAP_NANOS);
	EXPECT(page->traps, 0);
}

static void reads_of_the_counter_are_stretches_of_one_run(void)
{
	begin();
	SET(tsc_extra_nanos, 300);
	accounts_begin(&accounts, page, 1);
	accounts.booted = 1;
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(5000, 100));
	accounts_pass_stop(&accounts, &accounts.read_stop, 100 + 2000);
	EXPECT(accounts.user_cpu_nanos, 2000 - TRAP_NANOS - 300);
	EXPECT(accounts_measured_base(&accounts, reading(0, 100 + 2000)), 700 + 500);
	accounts_pass_stop(&accounts, &accounts.read_stop, 2100 + 1500);
	EXPECT(accounts.user_cpu_nanos, 900);
	EXPECT(page->traps, 2);
	/* What the clock did meanwhile is the host's. */
	accounts_end_stretch(&accounts, reading(9000, 3600 + 1400), TRAP_NANOS);
	EXPECT(accounts.user_cpu_nanos, 1300);
	EXPECT(accounts.host_part_nanos, 4000);
	EXPECT(accounts_measured_base(&accounts, reading(9000, 0)), 1300 + 500);
}

static void the_cost_of_a_read_is_measured_after_the_calls(void)
{
	uint64_t running = 0;
	begin();
	accounts_begin_stretch(&accounts, PROGRAM, 1, reading(0, 0));
	accounts_pass_stop(&accounts, &accounts.read_stop, running += 9000);
	EXPECT(accounts.read_stop.probe_count, 0);
	accounts.last_stretch_nanos = 1000;
	for (unsigned probe = 0; probe < PROBES; probe++)
		accounts_note_probe(&accounts);
	for (unsigned probe = 0; probe < PROBES; probe++)
		accounts_pass_stop(&accounts, &accounts.read_stop, running += 1800);
	EXPECT(accounts.read_stop.probed_mean_nanos, 1800);
	EXPECT(accounts.call_stop.nanos, 1000);
}

static void usual_stretches_are_the_first_quartile(void)
{
	begin();
	accounts.usual_stretch_nanos = 2560;
	run(0, 0, 2561);
	EXPECT(accounts.usual_stretch_nanos, 2571);
	run(0, 0, 100);
	EXPECT(accounts.usual_stretch_nanos, 2571 - 3 * 11);
}

static uint64_t state = 1;

/* Xorshift (Marsaglia 2003). */
static uint64_t drawn(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % below;
}

/* What the clocks of a drawn history show. */
struct history {
	uint64_t kernel;
	uint64_t program;
	uint64_t latest;
};

static void run_drawn(struct history *now, uint64_t nanos)
{
	if (accounts_kernel_stretch_is_cold(&accounts))
		accounts_end_kernel_stretch(&accounts, reading(now->kernel, 0));
	accounts_begin_stretch(&accounts, PROGRAM, drawn(8) != 0, reading(now->kernel, now->program));
	for (uint64_t reads = accounts.running_user_code ? drawn(3) : 0; reads > 0; reads--)
		accounts_pass_stop(&accounts, &accounts.read_stop, now->program += drawn(3000));
	now->program += nanos;
	now->kernel += drawn(5000);
	accounts_end_stretch(&accounts, reading(now->kernel, now->program), accounts.call_stop.nanos + drawn(2000));
	accounts_begin_kernel_stretch(&accounts, reading(now->kernel, 0));
}

static void do_something(struct history *now)
{
	uint64_t nanos = drawn(100) < 5 ? drawn(30000000) : drawn(20000);
	accounts_look(&accounts, now->kernel);
	switch (drawn(9)) {
	case 8:
		accounts_note_requests(&accounts, drawn(2), drawn(2), drawn(2));
		break;
	case 0:
		accounts_note_host_call(&accounts, nanos);
		break;
	case 1:
		now->kernel += nanos;
		break;
	case 2:
		accounts_begin_work(&accounts, reading(now->kernel, 0),
				    (enum chronodisk_work)drawn(CHRONODISK_WORKS + 1));
		break;
	case 3:
		accounts_begin_cold_stretches(&accounts, nanos);
		accounts_begin_kernel_stretch(&accounts, reading(now->kernel, 0));
		break;
	case 4:
		accounts_alarm_wait(&accounts, now->latest, now->latest + nanos);
		break;
	case 5:
		accounts_note_probe(&accounts);
		break;
	default:
		run_drawn(now, nanos);
		break;
	}
}

/* Whatever clocks show, nothing overflows, V goes on, and no more counts than passed. */
static void drawn_histories_stay_within_bounds(void)
{
	enum { HISTORIES = 200, STEPS = 2000 };
	for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
		begin();
		state = seed * 0x9e3779b97f4a7c15ull;
		struct history now = { 0, 0, 0 };
		for (int step = 0; step < STEPS; step++) {
			do_something(&now);
			accounts_look(&accounts, now.kernel);
			uint64_t base = accounts_measured_base(&accounts, reading(now.kernel, now.program));
			uint64_t latest = accounts_never_back(&accounts, base);
			EXPECT(latest >= now.latest, 1);
			EXPECT(accounts.user_cpu_nanos <= now.program, 1);
			EXPECT(accounts.host_part_nanos <= now.kernel, 1);
			EXPECT(base <= now.program + now.kernel + STEPS * WORK_NANOS_MIN, 1);
			now.latest = latest;
		}
	}
}

int main(void)
{
	programs_count_in_full_but_for_their_stops();
	a_faster_processor_takes_less();
	a_boot_on_a_stopping_clock_is_soon_over();
	what_a_short_stretch_can_not_give_the_next_one_owes();
	work_counts_by_its_kind();
	work_counts_something_whatever_is_taken_off();
	work_beyond_the_bound_counts_in_full();
	a_stop_of_the_clock_has_a_bound_of_its_own();
	requests_have_prices();
	copying_counts_by_a_scale_of_its_own();
	what_the_kernel_does_while_its_clock_stands_still_is_the_hosts();
	a_fault_that_is_none_natively_counts_by_a_kind_of_its_own();
	calls_are_told_apart();
	another_program_makes_a_call_a_switch();
	what_the_host_takes_of_the_kernel_is_bounded();
	calls_of_the_host_that_are_not_timed_count_the_mean();
	what_a_recorder_does_uses_up_no_bound();
	what_a_replayer_takes_is_part_of_what_it_is_granted();
	handlers_are_the_kernels_own_work();
	time_never_steps_back();
	whoever_waits_for_free_time_sees_it_pass();
	an_alarm_waits_for_what_runs();
	a_program_of_short_stretches_is_only_guarded();
	alarms_that_come_to_nothing_come_more_rarely();
	cold_caches_are_not_the_guests();
	what_a_stop_takes_is_measured_and_followed();
	reads_of_the_counter_are_stretches_of_one_run();
	the_cost_of_a_read_is_measured_after_the_calls();
	usual_stretches_are_the_first_quartile();
	drawn_histories_stay_within_bounds();
	return 0;
}
