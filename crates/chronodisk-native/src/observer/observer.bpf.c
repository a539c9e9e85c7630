// What the observer sees in the kernel: requests of one block device, and the threads of one cgroup, and those of the
// kernel that write for it, as they become runnable and block. Each event goes to user space through a ring buffer,
// whose order is that of the reservations; `tracker.rs` counts.
//
// The object beside this file is made from it by
//   clang -O2 -g -target bpf -mcpu=v3 -fdebug-compilation-dir=. -c observer.bpf.c -o observer.bpf.o
//   && llvm-strip -g observer.bpf.o
// with the clang that `observer.bpf.clang` names; a test makes it anew and compares. Fields of kernel structures are
// found by the running kernel's BTF.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef s32 __s32;
typedef u64 __u64;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef u64 __be64;
typedef _Bool bool;

// Of <linux/bpf.h>, which is the kernel's interface to user space and never changes.
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define KERNEL __attribute__((preserve_access_index))

struct kernfs_node { u64 id; } KERNEL;
struct cgroup { struct kernfs_node *kn; } KERNEL;
struct css_set { struct cgroup *dfl_cgrp; } KERNEL;
struct task_struct { u32 flags; int pid; struct css_set *cgroups; } KERNEL;
struct gendisk { int major; int first_minor; } KERNEL;
struct request_queue { struct gendisk *disk; } KERNEL;
// Of x86-64: the number of the system call.
struct pt_regs___x86 { u64 orig_ax; } KERNEL;
enum bpf_func_id___since_5_15 { BPF_FUNC_task_pt_regs___since_5_15 = 175 };
struct request { struct request_queue *q; u32 cmd_flags; u32 __data_len; } KERNEL;
struct block_device { struct gendisk *bd_disk; } KERNEL;
struct bio { struct block_device *bi_bdev; } KERNEL;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Set before the programs are loaded.
const volatile u64 cgroup_id = 0;
const volatile u32 disk_major = 0;
const volatile u32 disk_minor = 0;
// The process that serves the device, whose threads complete requests in system calls of their own.
const volatile u32 server = 0;

enum kind { ISSUED = 1, COMPLETED = 2, RUNNABLE = 3, BLOCKED = 4, PREEMPTED = 5, RESUMED = 6, HELPS = 7, RESTS = 8 };

// Bits of a request, in its event and in the map of those in flight.
enum { WRITES = 1, BY_OTHERS = 2, REQUEUED = 4 };

// What made a thread runnable.
enum cause { STARTED = 0, COMPLETION = 1, TIMER = 2, KERNEL_THREAD = 3, PROGRAM = 4, OTHER = 5 };

// A bit beside the cause: the thread waited for other events than a time, too.
enum { WAITED_FOR_EVENTS = 0x80 };

// As `Record` in observer.rs reads it.
struct event {
    u64 at_ns;
    // A request's address, or since when the thread was blocked.
    u64 value;
    // Of a request. Of a thread that a request woke: nanoseconds for which it had waited before it blocked, but for
    // moments.
    u32 amount;
    u8 kind;
    // Of a request: its bits. Of a thread: the cause, with what it waited for.
    u8 detail;
    u16 unused;
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 23);
} events SEC(".maps");

// Requests in flight, by address, with their bits.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, u64);
    __type(value, u8);
} requests SEC(".maps");

struct thread {
    u64 blocked_since_ns;
    // Before that it may have waited, too, and gone on for a moment only.
    u64 waits_since_ns;
    u64 woken_ns;
    u32 is_runnable;
    // By the supervisor.
    u32 is_preempted;
    u8 woken_by;
    u8 is_asleep;
    u16 unused[3];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 16);
    __type(key, u32);
    __type(value, struct thread);
} threads SEC(".maps");

// Threads of the kernel that work for the program, such as write-back's and a journal's, with whether they are
// runnable. One is known once it gives the disk something to do: a worker until its piece of work is done, another one
// for ever.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1 << 12);
    __type(key, u32);
    __type(value, u32);
} helpers SEC(".maps");

// What a processor is doing, to tell what a wake-up comes from.
struct processor {
    u64 completed_ns;
    // The thread that was interrupted by the completion, or made it.
    u32 completed_in;
    u32 in_timer;
    // When the supervisor was last woken by this processor; 0: never.
    u64 woken_ns;
    // The thread that it has preempted; 0: none.
    u32 preempted;
    u32 unused;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct processor);
} processors SEC(".maps");

// When user space wants to be woken; bits of `control[0]`.
enum { WHEN_IDLE = 1, WHEN_BUSY_AND_RUNNABLE = 2 };

// Element 0: see above. Element 1: events that were lost. Element 2: the supervisor's thread, if it preempts others.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 3);
    __type(key, u32);
    __type(value, u32);
} control SEC(".maps");

// Requests in flight, and threads that are runnable: only to know when to wake user space.
s32 in_flight = 0;
s32 running = 0;

// Of <linux/sched.h>.
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000
#define PF_NO_SETAFFINITY 0x04000000
#define TASK_DEAD 0x80

// A wake-up this soon after a completion, on the same processor and in the same thread, comes from it: the callbacks
// of a completed request run at once.
#define COMPLETION_NS 200000

// A thread that waits for events, and goes on for less than this as a timeout is over or another thread wakes it, still
// waits for them.
#define MOMENT_NS 200000
// The longest wait that an event can hold.
#define LONGEST_NS 0xffffffff

static __always_inline struct processor *processor(void) {
    u32 zero = 0;
    return bpf_map_lookup_elem(&processors, &zero);
}

static __always_inline bool wanted(u32 bit) {
    u32 zero = 0;
    u32 *bits = bpf_map_lookup_elem(&control, &zero);
    return bits && (*bits & bit);
}

static __always_inline void count_lost(void) {
    u32 one = 1;
    u32 *lost = bpf_map_lookup_elem(&control, &one);
    if (lost)
        __sync_fetch_and_add(lost, 1);
}

static __always_inline void send(enum kind kind, u8 detail, u64 at_ns, u64 value, u32 amount, u64 wake) {
    struct event *event = bpf_ringbuf_reserve(&events, sizeof *event, 0);
    if (!event) {
        count_lost();
        return;
    }
    event->at_ns = at_ns;
    event->value = value;
    event->amount = amount;
    event->kind = kind;
    event->detail = detail;
    event->unused = 0;
    bpf_ringbuf_submit(event, wake);
}

static __always_inline bool is_ours(struct task_struct *task) {
    return task->cgroups->dfl_cgrp->kn->id == cgroup_id;
}

static __always_inline bool is_the_disk(struct gendisk *disk) {
    return disk && disk->major == disk_major && disk->first_minor == disk_minor;
}

static __always_inline bool is_on_disk(struct request *request) {
    return is_the_disk(request->q->disk);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *request) {
    if (!is_on_disk(request))
        return 0;
    u64 key = (u64)request;
    struct task_struct *current = bpf_get_current_task_btf();
    bool others = !(current->flags & PF_KTHREAD) && !is_ours(current) && bpf_get_current_pid_tgid() >> 32 != server;
    u8 detail = ((request->cmd_flags & 0xff) != 0 ? WRITES : 0) | (others ? BY_OTHERS : 0);
    u64 now = bpf_ktime_get_ns();
    if (bpf_map_update_elem(&requests, &key, &detail, BPF_NOEXIST)) {
        u8 *known = bpf_map_lookup_elem(&requests, &key);
        if (!known)
            return 0;
        bool is_same = *known & REQUEUED;
        *known = detail;
        if (is_same)
            return 0;
        // Another request at the same address: the first one has completed unseen, at some time before.
        count_lost();
        send(COMPLETED, 0, now, key, 0, BPF_RB_NO_WAKEUP);
        send(ISSUED, detail, now, key, request->__data_len, BPF_RB_NO_WAKEUP);
        return 0;
    }
    bool first = __sync_fetch_and_add(&in_flight, 1) == 0;
    bool wake = first && running > 0 && wanted(WHEN_BUSY_AND_RUNNABLE);
    send(ISSUED, detail, now, key, request->__data_len, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
    return 0;
}

// The driver could not take it yet; it will be issued again.
SEC("tp_btf/block_rq_requeue")
int BPF_PROG(on_requeue, struct request *request) {
    if (!is_on_disk(request))
        return 0;
    u64 key = (u64)request;
    u8 *known = bpf_map_lookup_elem(&requests, &key);
    if (known)
        *known |= REQUEUED;
    return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *request, u8 error, u32 bytes) {
    if (!is_on_disk(request) || bytes < request->__data_len)
        return 0;
    u64 key = (u64)request;
    if (bpf_map_delete_elem(&requests, &key))
        return 0;
    u64 now = bpf_ktime_get_ns();
    struct processor *here = processor();
    if (here) {
        here->completed_ns = now;
        here->completed_in = (u32)bpf_get_current_pid_tgid();
    }
    bool last = __sync_fetch_and_add(&in_flight, -1) == 1;
    bool wake = last && wanted(WHEN_IDLE);
    send(COMPLETED, 0, now, key, 0, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
    return 0;
}

// Whether it waits for a time only: what it waits for besides is not told by a request that wakes it later. True if that
// can't be known.
static __always_inline bool is_asleep(struct task_struct *task) {
    enum { NANOSLEEP = 35, CLOCK_NANOSLEEP = 230 };
    struct pt_regs___x86 *registers = 0;
    if (!bpf_core_enum_value_exists(enum bpf_func_id___since_5_15, BPF_FUNC_task_pt_regs___since_5_15) ||
        !bpf_core_field_exists(registers->orig_ax))
        return 1;
    registers = (struct pt_regs___x86 *)bpf_task_pt_regs(task);
    u64 call = BPF_CORE_READ(registers, orig_ax);
    return call == NANOSLEEP || call == CLOCK_NANOSLEEP;
}

static __always_inline void runnable(struct task_struct *task, enum cause cause) {
    u32 id = task->pid;
    u64 since = 0, now = bpf_ktime_get_ns();
    u32 waited = 0;
    u8 waited_for = 0;
    struct thread *thread = bpf_map_lookup_elem(&threads, &id);
    if (thread) {
        if (thread->is_runnable)
            return;
        thread->is_runnable = 1;
        thread->woken_ns = now;
        thread->woken_by = cause;
        waited_for = thread->is_asleep ? 0 : WAITED_FOR_EVENTS;
        since = thread->blocked_since_ns;
        u64 before = since - thread->waits_since_ns;
        if (cause == COMPLETION || cause == KERNEL_THREAD)
            waited = before < LONGEST_NS ? before : LONGEST_NS;
    } else {
        struct thread fresh = {.woken_ns = now, .is_runnable = 1, .woken_by = STARTED, .is_asleep = 1};
        if (bpf_map_update_elem(&threads, &id, &fresh, BPF_NOEXIST))
            return;
        cause = STARTED;
    }
    bool first = __sync_fetch_and_add(&running, 1) == 0;
    bool wake = first && in_flight > 0 && wanted(WHEN_BUSY_AND_RUNNABLE);
    send(RUNNABLE, cause | waited_for, now, since, waited, wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline void blocked(struct task_struct *task, bool dead) {
    u32 id = task->pid;
    struct thread *thread = bpf_map_lookup_elem(&threads, &id);
    if (!thread)
        return;
    u64 now = bpf_ktime_get_ns();
    bool was = thread->is_runnable;
    bool for_a_moment = now - thread->woken_ns < MOMENT_NS && !thread->is_asleep &&
                        (thread->woken_by == TIMER || thread->woken_by == PROGRAM);
    if (!for_a_moment)
        thread->waits_since_ns = now;
    thread->is_asleep = is_asleep(task);
    thread->is_runnable = 0;
    thread->blocked_since_ns = now;
    if (dead)
        bpf_map_delete_elem(&threads, &id);
    if (was) {
        __sync_fetch_and_add(&running, -1);
        send(BLOCKED, 0, now, 0, 0, BPF_RB_NO_WAKEUP);
    }
}

static __always_inline u32 supervisor(void) {
    u32 two = 2;
    u32 *thread = bpf_map_lookup_elem(&control, &two);
    return thread ? *thread : 0;
}

// The supervisor takes a thread's processor: what it takes is not the program's time, from the interrupt on that wakes
// it.
static __always_inline void preempted_by_supervisor(u32 id) {
    struct thread *thread = bpf_map_lookup_elem(&threads, &id);
    struct processor *here = processor();
    if (!thread || !thread->is_runnable || !here)
        return;
    here->preempted = id;
    u64 now = bpf_ktime_get_ns(), woken = here->woken_ns;
    u64 from = now - woken < MOMENT_NS && woken > thread->woken_ns ? woken : now;
    if (!__sync_lock_test_and_set(&thread->is_preempted, 1))
        send(PREEMPTED, 0, from, 0, 0, BPF_RB_NO_WAKEUP);
}

// The supervisor leaves the processor, or the thread has got another one before that.
static __always_inline void resumed(u32 id) {
    struct thread *thread = bpf_map_lookup_elem(&threads, &id);
    if (thread && thread->is_preempted && __sync_lock_test_and_set(&thread->is_preempted, 0))
        send(RESUMED, 0, bpf_ktime_get_ns(), 0, 0, BPF_RB_NO_WAKEUP);
}

// In the context of who wakes.
static __always_inline enum cause cause(void) {
    struct processor *here = processor();
    u64 now = bpf_ktime_get_ns();
    u32 thread = (u32)bpf_get_current_pid_tgid();
    if (here && here->in_timer)
        return TIMER;
    if (here && here->completed_in == thread && now - here->completed_ns < COMPLETION_NS)
        return COMPLETION;
    struct task_struct *current = bpf_get_current_task_btf();
    // An idle processor has a thread, too, and does nothing but take interrupts.
    if (current->flags & PF_KTHREAD)
        return thread ? KERNEL_THREAD : OTHER;
    return is_ours(current) ? PROGRAM : OTHER;
}

// An idle processor has a thread, too, which works for nobody.
static __always_inline bool is_kernels(struct task_struct *task) {
    return (task->flags & PF_KTHREAD) && task->pid;
}

static __always_inline void helps(struct task_struct *task) {
    u32 id = task->pid;
    u32 *is_runnable = bpf_map_lookup_elem(&helpers, &id);
    if (is_runnable && !__sync_lock_test_and_set(is_runnable, 1))
        send(HELPS, 0, bpf_ktime_get_ns(), 0, 0, BPF_RB_NO_WAKEUP);
}

static __always_inline void rests(struct task_struct *task, bool is_done) {
    u32 id = task->pid;
    u32 *is_runnable = bpf_map_lookup_elem(&helpers, &id);
    if (!is_runnable)
        return;
    if (__sync_lock_test_and_set(is_runnable, 0))
        send(RESTS, 0, bpf_ktime_get_ns(), 0, 0, BPF_RB_NO_WAKEUP);
    if (is_done)
        bpf_map_delete_elem(&helpers, &id);
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(on_bio, struct bio *bio) {
    struct task_struct *current = bpf_get_current_task_btf();
    if (!is_kernels(current) || !is_the_disk(bio->bi_bdev->bd_disk))
        return 0;
    // A completion may issue the next request in the thread that each processor has for its interrupts, which works for
    // everybody.
    bool is_processors = (current->flags & PF_NO_SETAFFINITY) && !(current->flags & PF_WQ_WORKER);
    u32 id = current->pid, runs = 1;
    if (!is_processors && !bpf_map_update_elem(&helpers, &id, &runs, BPF_NOEXIST))
        send(HELPS, 0, bpf_ktime_get_ns(), 0, 0, BPF_RB_NO_WAKEUP);
    return 0;
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(after_work) {
    rests(bpf_get_current_task_btf(), 1);
    return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempted, struct task_struct *from, struct task_struct *to, u32 state) {
    u32 watcher = supervisor();
    if (watcher && from->pid == watcher) {
        struct processor *here = processor();
        if (here && here->preempted) {
            resumed(here->preempted);
            here->preempted = 0;
        }
    }
    if (is_ours(from)) {
        if (state != 0 && !preempted)
            blocked(from, state & TASK_DEAD);
        else if (watcher && to->pid == watcher)
            preempted_by_supervisor(from->pid);
    }
    if (is_ours(to)) {
        resumed(to->pid);
        runnable(to, STARTED);
    }
    if (is_kernels(from) && state != 0 && !preempted)
        rests(from, state & TASK_DEAD);
    if (is_kernels(to))
        helps(to);
    return 0;
}

// In the context of who wakes, which tells the cause. Whom the supervisor lets go on counts when it gets a processor:
// what that takes is not its own time. So does a thread that was still on its way to sleep when it was woken.
SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task) {
    if (!is_ours(task)) {
        if (is_kernels(task))
            helps(task);
        u32 watcher = supervisor();
        struct processor *here = processor();
        if (watcher && task->pid == watcher && here)
            here->woken_ns = bpf_ktime_get_ns();
        return 0;
    }
    enum cause why = cause();
    if (why != OTHER || bpf_get_current_pid_tgid() >> 32 != server)
        runnable(task, why);
    return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_new, struct task_struct *task) {
    if (is_ours(task))
        runnable(task, STARTED);
    return 0;
}

static __always_inline int in_timer(u32 is_in) {
    struct processor *here = processor();
    if (here)
        here->in_timer = is_in;
    return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_hrtimer) {
    return in_timer(1);
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(after_hrtimer) {
    return in_timer(0);
}

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(on_timer) {
    return in_timer(1);
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(after_timer) {
    return in_timer(0);
}
