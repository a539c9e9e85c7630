//! Threads and system calls without the C library.

use core::arch::asm;

use libc::c_long;

/// Makes a system call and returns the kernel's result: a negative error, or a value.
///
/// # Safety
/// The call's own conditions.
pub(super) unsafe fn call(number: c_long, arguments: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the registers that the kernel changes are named; the rest is the caller's.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Arguments of `clone3` as Linux 5.5 has them (`struct clone_args`).
#[repr(C)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
}

/// Resources shared by all threads of the replayer.
const SHARED: u64 = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_SYSVSEM) as u64;

/// Starts a thread on `stack` with the id, and with the further flags. The word is set to its id, and to zero once its
/// stack is free again. Returns the id, or a negative error.
///
/// # Safety
/// No other code uses the stack, `entry` never returns and needs no thread-local storage, and `word` stays valid.
pub(super) unsafe fn start(
    id: u32,
    flags: u64,
    stack: (*mut u8, usize),
    word: *const core::sync::atomic::AtomicU32,
    entry: extern "C" fn(u64) -> !,
    argument: u64,
) -> i64 {
    let id = i64::from(id) as i32;
    let arguments = CloneArguments {
        flags: SHARED | flags | (libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_CLEARTID) as u64,
        pidfd: 0,
        child_tid: word as u64,
        parent_tid: word as u64,
        exit_signal: 0,
        stack: stack.0 as u64,
        stack_size: stack.1 as u64,
        tls: 0,
        set_tid: &raw const id as u64,
        set_tid_size: 1,
    };
    let result: i64;
    // SAFETY: the child has a stack of its own, on which it only calls `entry`; the parent continues here.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") &raw const arguments,
            in("rsi") size_of::<CloneArguments>(),
            in("r12") argument,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Ends this thread, or the process.
pub(super) fn exit(number: c_long, status: u64) -> ! {
    loop {
        // SAFETY: the thread's memory is not used after the call.
        unsafe { call(number, [status, 0, 0, 0, 0, 0]) };
    }
}
