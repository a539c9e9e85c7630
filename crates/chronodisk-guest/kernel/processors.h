/* SPDX-License-Identifier: GPL-2.0 */
/* One virtual time for all processors of a guest; see os-Linux/processors.c. */
#ifndef __UM_SHARED_PROCESSORS_H
#define __UM_SHARED_PROCESSORS_H

/* Whether the guest has this clock. Without it the kernel is an ordinary one. */
extern int virtual_clock_on;

void virtual_clock_init(void);
void virtual_clock_start_cpu(int cpu);
unsigned long long virtual_clock_read(void);
unsigned long long virtual_clock_realtime(void);
unsigned long long virtual_clock_counter(void);
void virtual_clock_set_timer(int cpu, unsigned long long nsecs, unsigned long long interval);
int virtual_clock_alarm(void);
void virtual_clock_idle(int wake_fd);
int virtual_clock_send_ipi(int cpu, int (*send)(int, int), int vector);
int virtual_clock_throttle(void);
int virtual_clock_host_cpu(void);
void virtual_clock_enter_user(int pid, long result);
void virtual_clock_leave_user(int sig);
int virtual_clock_repeats_call(unsigned long *regs);
int virtual_clock_repeats_counter_read(void);
void virtual_clock_note_spurious_fault(void);
void virtual_clock_note_call(const unsigned long *regs);
void virtual_clock_wait_for_lock(int (*try)(void *), void *lock_to_take);
void virtual_clock_wait_turn(void);
void virtual_clock_wait_for_order(void);
void virtual_clock_before_kick(void);
void virtual_clock_after_kick(int failed);
void virtual_clock_begin_interrupt(void);
void virtual_clock_end_interrupt(void);
void virtual_clock_completed(void);
void virtual_clock_watches(int fd);

/* Of the host's timers, for the clock alone; 0 disarms. */
void os_host_timer(int cpu, unsigned long long nsecs);
int os_interrupts_pending(void);

#endif
