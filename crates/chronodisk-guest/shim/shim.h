/* What the parts of the guest's clock share; nothing of it is visible outside of the library.
 *
 * clock.c  idling, the guest's timer, the kick: what the guest's kernel asks of its host
 * calendar.c  the same for a kernel that has simulated time of its own
 * time.c   virtual time: clocks and the host's timer
 * accounts.c  what virtual time is made of, as functions that call nothing; see accounts.h
 * processes.c  the guest's programs, which are the host's traced processes
 * faults.c  their page faults
 * tasks.c  for whom the guest's kernel works
 * feed.c  what a replayer in the guest asks for
 * current.c  finds the present task
 * memory.c  reads the programs' memory and page tables
 * record.c  records the programs' system calls
 * files.c  the host's tree and the guest's memory */
#ifndef CHRONODISK_SHIM_H
#define CHRONODISK_SHIM_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>
#include <time.h>

#include "page.h"

#pragma GCC visibility push(hidden)

#define NANOS_PER_SECOND 1000000000ull

/* Null in a process that is no guest's, and in a kernel that is its own clock. */
extern struct chronodisk_page *page;
/* Null in a process that is no guest's. */
extern struct chronodisk_page *shared_page;
extern pid_t main_pid;               /* the guest's kernel */

/* Whether the guest's kernel keeps simulated time itself. */
static inline int is_exact(void)
{
	return page->clock == CHRONODISK_CLOCK_EXACT;
}

/* While the clock is stopped V is page->virtual_now. */
extern volatile sig_atomic_t stopped;
/* While the accounts are being changed an alarm only notes that it came. */
extern volatile sig_atomic_t in_accounts;
extern volatile sig_atomic_t alarm_deferred;

/* The guest's only timer. */
extern timer_t host_timer;
extern int host_timer_exists;
extern uint64_t guest_deadline; /* virtual; 0: not armed */

/* clock.c */
void *next_symbol(const char *name);
int is_kernel_process(void);
int is_guest_kernel(void); /* the same, of a kernel whose clock this is */
int runs_repeat(void);
void take_completions(void);
void take_due_completions(void);
int interrupts_are_pending(void);
int descriptors_are_ready(void);
int settle_with_launcher(void);
int follows_host(void);
struct chronodisk_answer ask_idle(uint64_t virtual_now, uint64_t guest_timer);

/* calendar.c */
extern const volatile unsigned long long *kernel_now; /* V of an exact kernel; null otherwise */
extern const volatile unsigned long long *kernel_next_event;
int calendar_connect(int fd);
int calendar_owns(int fd);
void calendar_poll(void);
int calendar_lets_handlers_run(void);
uint64_t nanos_of_computing(void);
ssize_t calendar_write(const void *bytes, size_t len_bytes);
ssize_t calendar_read(void *buffer, size_t len_bytes);

/* time.c */
extern int (*real_timer_settime)(timer_t, int, const struct itimerspec *, struct itimerspec *);
uint64_t nanos_of(const struct timespec *time);
void disturb(void);
struct timespec timespec_of(uint64_t nanos);
int host_clock_gettime(clockid_t clock, struct timespec *time);
uint64_t host_nanos(void);
int time_is_the_hosts(void);
uint64_t virtual_nanos(void);
uint64_t latest_virtual_nanos(void);
uint64_t next_interrupt(void);
void arm_host_timer_for(uint64_t wait_nanos);
void arm_host_timer(void);
void stop_clock(void);
void start_clock(uint64_t from);
void jump_to(uint64_t instant);
uint64_t instant_of_host_work(void);
void forget_host_work_since(uint64_t instant);
int own_work_is_the_hosts(void);
void begin_own_work(void);
void end_own_work(void);
void open_accounts(void);
void close_accounts(void);
/* V, and the CPU time of the guest's kernel. */
struct instant {
	uint64_t virtual_nanos;
	uint64_t kernel_cpu_nanos;
};
struct instant present_instant(void);
void account_for_resume(pid_t pid, int user_code, struct instant at);
uint64_t account_for_stop(pid_t pid, uint64_t overhead_nanos, enum chronodisk_work work);
/* Stops of programs whose cost is measured. */
enum stop { STOP_AT_CALL, STOP_AT_READ };
int stops_pass(void);
int account_for_passed_stop(enum stop stop);
void account_for_sample(enum stop stop);
uint64_t virtual_nanos_of_passed_stop(void);
void put_off_alarm(uint64_t virtual_now);
void account_for_call(const struct user_regs_struct *registers);
void account_for_yield(void);
void account_for_result(pid_t pid, int64_t result); /* of the call after which the program goes on */
void account_for_spurious_fault(void); /* the fault that the kernel works at is one */
uint64_t charge_program(uint64_t nanos);
void account_for_part_of_feed(void);
void account_for_host_call(uint64_t since_host);
/* Calls on a stopped program, by kind. */
enum host_call { GET_REGISTERS, SET_REGISTERS, GET_STATE, SET_STATE, OTHER_HOST_CALL, HOST_CALLS };
int host_call_is_timed(enum host_call call);
void account_for_timed_host_call(enum host_call call, uint64_t since_host);
void account_for_untimed_host_call(enum host_call call);
void begin_handler(void);
void end_handler(void);
void account_for_probe(void);
void account_for_connection(void);
void account_for_first_use(void);
void account_for_requests(uint64_t submitted, uint64_t completed, uint64_t woken);
void account_for_idling(void);
/* The user process that runs, or 0; and the same unless it does what the kernel has it do. */
pid_t running_process(void);
pid_t running_program(void);
/* What a stop takes of a program's CPU time. */
uint64_t nanos_of_trap(void);
uint64_t uncharged_nanos(void);
uint64_t nanos_of_programs(void);
uint64_t nanos_of_requests(void);
void charge_later(uint64_t nanos);
int on_alarm_of_exact_kernel(void);
void start_time(int devices);

/* processes.c */
void watch_processes(void);
void stop_reading_the_counter(void);
int carry_out_counter_read(void *context);
int input_is_awaited(void);
uint64_t stack_of_process(pid_t pid);
int peek(pid_t pid, uint64_t address, void *to, size_t count);
void start_processes(void);

/* faults.c */
enum chronodisk_work work_of_fault(pid_t pid, uint64_t address);
void note_fault_question(pid_t pid);
void note_fault_answer(pid_t pid);

/* tasks.c */
enum chronodisk_issuer issuer_of_request(void);
int task_must_stop(void);

/* feed.c */
int is_feed_call(const struct user_regs_struct *registers);
void answer_feed_call(pid_t pid, const struct user_regs_struct *registers);
void start_feed(int fd);

/* current.c */
void learn_ids(uint32_t id, uint32_t group); /* the present task has them */
int find_ids(void); /* whether the ids of every task can be found from now on */
uint64_t current_task(void); /* address of its struct task_struct */
const uint32_t *ids_of(uint64_t task); /* its own and its group's */
/* The structure by a pointer in the kernel's data, and the offset of the stack's address in it; 0 if it is not found. */
uint64_t task_by_data(int *stack_offset);

/* memory.c */
int is_mapped(uint64_t address, size_t count);
int read_own(uint64_t address, void *to, size_t count);
int is_learn_call(const struct user_regs_struct *registers);
void learn_from_call(pid_t pid, const struct user_regs_struct *registers);
int tables_are_known(void); /* and the present task, and the ids of every task */
/* What the present program may do with the page at an address by the guest's page tables; nothing if they are not
 * known. */
enum access { ACCESS_NONE, ACCESS_READ, ACCESS_WRITE };
enum access page_access(uint64_t address);
int read_program(pid_t pid, uint64_t task, uint64_t address, void *to, size_t count);

/* record.c */
void record_call(pid_t pid, const struct user_regs_struct *registers);
void record_return(pid_t pid, const struct user_regs_struct *registers);
void record_fault(uint64_t address);
void record_fault_answer(uint64_t address, int writes);
int is_recorded(void);
void record_work(enum chronodisk_work work, uint64_t counted_nanos);
void start_recording(int fd);

/* boot.c */
void start_boot(void);

/* files.c */
void start_files(void);

#pragma GCC visibility pop

#endif
