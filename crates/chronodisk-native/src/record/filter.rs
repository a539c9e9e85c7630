//! The seccomp filter: stops at the calls that traces have.

use chronodisk_trace::calls::{call_number, watched_calls};
use libc::{c_ulong, sock_filter, sock_fprog};

/// From `<linux/audit.h>`.
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Calls of the ABI with 32-bit pointers have this bit.
const X32_BIT: u32 = 0x4000_0000;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENT_3: u32 = 16 + 3 * 8;
const MAP_ANONYMOUS: u32 = 0x20;

/// Message of a stop at a call of another architecture.
pub const FOREIGN: u32 = 1;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const TRACE: u32 = libc::SECCOMP_RET_TRACE;

const fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The filter's program.
pub fn program() -> Vec<sock_filter> {
    let map = call_number("mmap");
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        jump(JUMP_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        statement(RETURN, TRACE | FOREIGN),
        statement(LOAD, NUMBER),
        jump(JUMP_AT_LEAST, X32_BIT, 0, 1),
        statement(RETURN, TRACE | FOREIGN),
    ];
    for call in watched_calls() {
        if Some(call.number) == map {
            // Mappings without a file are frequent and need not be recorded.
            program.extend([
                jump(JUMP_EQUAL, call.number, 0, 4),
                statement(LOAD, ARGUMENT_3),
                jump(JUMP_ANY_BIT, MAP_ANONYMOUS, 0, 1),
                statement(RETURN, ALLOW),
                statement(RETURN, TRACE),
            ]);
        } else {
            program.extend([jump(JUMP_EQUAL, call.number, 0, 1), statement(RETURN, TRACE)]);
        }
    }
    program.push(statement(RETURN, ALLOW));
    program
}

/// Installs the filter in the calling process, which has just been forked: no allocation. Returns the error's number.
///
/// Without a privilege, programs that it executes get no new ones from now on.
#[allow(unsafe_code)]
pub fn install(program: &[sock_filter]) -> Result<(), i32> {
    // The kernel does not write to it.
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the filter and the program that it points to live during the call.
    let set = || unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, c_ulong::from(libc::SECCOMP_MODE_FILTER), &raw const filter, 0, 0)
    };
    if set() == 0 {
        return Ok(());
    }
    // SAFETY: takes numbers only.
    let without = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as c_ulong, 0, 0, 0) };
    if without == 0 && set() == 0 {
        return Ok(());
    }
    Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).map_or(0, rustix::io::Errno::raw_os_error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes a filter on a call.
    fn verdict(program: &[sock_filter], architecture: u32, number: u32, argument_3: u32) -> u32 {
        let (mut at, mut register) = (0, 0);
        loop {
            let step = program[at];
            let taken = |condition: bool| usize::from(if condition { step.jt } else { step.jf });
            at += 1;
            match step.code {
                LOAD if step.k == ARCHITECTURE => register = architecture,
                LOAD if step.k == NUMBER => register = number,
                LOAD if step.k == ARGUMENT_3 => register = argument_3,
                JUMP_EQUAL => at += taken(register == step.k),
                JUMP_AT_LEAST => at += taken(register >= step.k),
                JUMP_ANY_BIT => at += taken(register & step.k != 0),
                RETURN => return step.k,
                code => panic!("code {code:#x} with {:#x}", step.k),
            }
        }
    }

    #[test]
    fn only_calls_of_traces_stop() {
        let program = program();
        let of = |name, argument| verdict(&program, AUDIT_ARCH_X86_64, call_number(name).unwrap(), argument);
        for name in ["read", "openat", "execve", "exit_group", "rt_sigreturn", "writev", "futex"] {
            assert_eq!(of(name, 0), TRACE, "{name}");
        }
        for name in ["getpid", "brk", "munmap", "rt_sigaction", "clock_gettime"] {
            assert_eq!(of(name, 0), ALLOW, "{name}");
        }
        assert_eq!((of("mmap", 2), of("mmap", 0x22)), (TRACE, ALLOW));
        assert_eq!(verdict(&program, 0x4000_0003, 3, 0), TRACE | FOREIGN, "i386");
        assert_eq!(verdict(&program, AUDIT_ARCH_X86_64, X32_BIT, 0), TRACE | FOREIGN);
    }
}
