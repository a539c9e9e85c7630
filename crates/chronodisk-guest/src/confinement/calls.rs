//! The system calls that a guest's kernel may make, and the rules for their arguments.
//!
//! `calls.txt` lists the calls that guests were seen to make; `scripts/guest-calls` writes it. This file adds the calls
//! of other versions of User Mode Linux. Every other call is refused.

use std::io;

use super::filter::Condition::{self, Clear, In, Masked, Own};
use super::filter::{Action, Rule};
use crate::recording::names;
use crate::shared::descriptors::RECORDING;

/// The calls that were seen: a name, and the values of the argument that [`rule`] compares.
const SEEN: &str = include_str!("calls.txt");

/// Calls of User Mode Linux that the kernels used for the list do not make: of 6.12 (programs start from an executable
/// in memory), of 7.2 (fixed addresses), of its mode without tracing (`seccomp=on`: futexes and messages between kernel
/// and program), with several processors (threads), and of other versions of the C library.
const OF_OTHER_VERSIONS: &str = "\
    read write readv writev pread64 pwrite64 preadv pwritev close close_range lseek dup dup2 dup3 pipe pipe2 \
    open openat access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs readlink readlinkat \
    getdents getdents64 getcwd fsync fdatasync \
    mmap munmap mremap mprotect madvise brk mincore msync mseal map_shadow_stack memfd_create fallocate \
    clone fork vfork execve execveat exit exit_group wait4 waitid set_tid_address set_robust_list rseq \
    getpid getppid gettid getpgrp getpgid getsid getuid geteuid getgid getegid getresuid getresgid getgroups \
    futex sched_yield membarrier getcpu sched_getaffinity sched_setaffinity prlimit64 getrlimit setrlimit getrusage \
    times uname sysinfo umask getrandom arch_prctl prctl personality seccomp \
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigpending rt_sigtimedwait sigaltstack restart_syscall \
    kill tgkill rt_tgsigqueueinfo signalfd4 \
    poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 \
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time \
    timer_create timer_settime timer_gettime timer_getoverrun timer_delete setitimer getitimer alarm pause \
    timerfd_create timerfd_settime timerfd_gettime \
    ioctl fcntl ptrace socket socketpair sendto sendmsg recvfrom recvmsg shutdown getsockopt setsockopt getsockname \
    getpeername";

/// Calls that are refused without a report, since kernels and the C library try them and have an alternative. The
/// arguments of the first two are in memory, which a filter can't read. The guest's processes are identified by their
/// session, which is created before the kernel starts and which none of them may leave.
const PROBED: [(&str, libc::c_int); 4] =
    [("clone3", libc::ENOSYS), ("openat2", libc::ENOSYS), ("setsid", libc::EPERM), ("setpgid", libc::EPERM)];

/// Facts on which some rules depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Circumstances {
    /// Landlock keeps the guest from tracing processes that are not its own.
    pub landlock_traces: bool,
    /// Landlock keeps the guest's signals from processes that are not its own.
    pub landlock_signals: bool,
    /// Whether the launcher receives refused calls.
    pub launcher_listens: bool,
    /// The launcher sends the guest's signals to processes of the guest, if it listens.
    pub launcher_signals: bool,
    /// The guest's clock reads the memory of the guest's programs.
    pub reads_programs: bool,
    /// The guest's clock writes to the memory of the guest's programs.
    pub writes_programs: bool,
}

impl Circumstances {
    /// The action for a call that is not allowed.
    pub fn refusal(self) -> Action {
        if self.launcher_listens { Action::Notify } else { Action::Fail(libc::EPERM) }
    }

    /// Whether the filter need not look at the receivers of signals, or can't.
    fn signals_pass(self) -> bool {
        self.landlock_signals || !(self.launcher_listens && self.launcher_signals)
    }
}

/// The calls that were seen, the most frequent first, each with the values of the argument that its rule compares.
fn seen() -> impl Iterator<Item = (&'static str, Vec<u32>)> {
    SEEN.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, values) = line.split_once(' ').unwrap_or((line, ""));
        (name, values.split(' ').filter_map(|value| value.parse().ok()).collect())
    })
}

/// The rules of all calls that are allowed, or refused in silence, the most frequent first.
///
/// # Errors
/// When a list names a call that does not exist.
pub(super) fn rules(circumstances: Circumstances) -> io::Result<Vec<Rule>> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut add = |name: &str, allowed: Vec<Vec<Condition>>, otherwise: Action| {
        let number = names::number(name).ok_or_else(|| io::Error::other(format!("no system call is named {name}")))?;
        let call = number as u32;
        if !rules.iter().any(|rule| rule.call == call) {
            rules.push(Rule { call, allowed, otherwise });
        }
        io::Result::Ok(())
    };
    for (name, values) in seen() {
        if !PROBED.iter().any(|(probed, _)| *probed == name) {
            add(name, allowed(name, &values, circumstances), circumstances.refusal())?;
        }
    }
    for name in OF_OTHER_VERSIONS.split_whitespace() {
        add(name, allowed(name, &[], circumstances), circumstances.refusal())?;
    }
    for (name, is_needed) in [
        ("process_vm_readv", circumstances.reads_programs || circumstances.landlock_traces),
        ("process_vm_writev", circumstances.writes_programs),
    ] {
        if is_needed {
            add(name, always(), circumstances.refusal())?;
        }
    }
    for (name, errno) in PROBED {
        add(name, Vec::new(), Action::Fail(errno))?;
    }
    Ok(rules)
}

/// Allows a call with any arguments.
fn always() -> Vec<Vec<Condition>> {
    vec![Vec::new()]
}

/// Conditions under which a call is allowed. `seen` are the recorded values of the argument that selects the operation
/// of ioctl, fcntl, prctl, arch_prctl and ptrace.
fn allowed(name: &str, seen: &[u32], circumstances: Circumstances) -> Vec<Vec<Condition>> {
    let also = |values: &[u32]| [seen, values].concat();
    match name {
        "ptrace" if circumstances.landlock_traces => always(),
        "ptrace" => vec![vec![In(0, also(&REQUESTS_OF_TRACERS))]],
        "kill" | "tgkill" if circumstances.signals_pass() => always(),
        // The launcher sends the others, to processes of the guest.
        "kill" | "tgkill" => vec![vec![Own(0)]],
        "rt_tgsigqueueinfo" => vec![vec![Own(0)]],
        "ioctl" => vec![vec![In(1, also(&IOCTLS))]],
        "prctl" => vec![
            vec![In(0, also(&PRCTLS).into_iter().filter(|option| *option != PDEATHSIG).collect())],
            vec![In(0, vec![PDEATHSIG]), In(1, vec![libc::SIGKILL as u32])],
        ],
        "arch_prctl" => vec![vec![In(0, also(&ARCH_PRCTLS))]],
        // The second asks for the present one.
        "personality" => vec![vec![In(0, vec![libc::ADDR_NO_RANDOMIZE as u32, u32::MAX])]],
        "fcntl" => vec![
            vec![In(1, also(&FCNTLS).into_iter().filter(|command| !TO_OTHERS.contains(command)).collect())],
            vec![In(1, vec![libc::F_SETOWN as u32]), Own(2)],
            vec![In(1, vec![F_SETSIG]), In(2, vec![0, libc::SIGIO as u32])],
        ],
        // Programs make their children the kernel's (CLONE_PARENT); the kernel may make its own the launcher's, too.
        "clone" => vec![vec![Clear(0, NAMESPACES)]],
        "open" => vec![vec![Clear(1, WRITES)]],
        "openat" => vec![vec![Clear(2, WRITES)]],
        // The kernel and its helpers use socket pairs. A datagram socket could send to any other socket.
        "socket" | "socketpair" => {
            vec![vec![In(0, vec![libc::AF_UNIX as u32]), Masked(1, SOCKET_TYPE, libc::SOCK_STREAM as u32)]]
        }
        "prlimit64" | "sched_setaffinity" | "sched_getaffinity" | "getpgid" | "getsid" => vec![vec![Own(0)]],
        "memfd_create" => vec![vec![Clear(1, libc::MFD_HUGETLB)]],
        // Only for the recording: pages of other files are freed by madvise.
        "fallocate" => vec![vec![In(0, vec![RECORDING as u32])]],
        // A listener of its own could answer calls, but only allowed ones.
        "seccomp" => vec![vec![In(0, vec![libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_GET_ACTION_AVAIL])]],
        _ => always(),
    }
}

/// `linux/fcntl.h`: makes an unnamed file; one bit of `O_TMPFILE`. Its other bit is `O_DIRECTORY`.
const TMPFILE: libc::c_int = 0o20_000_000;
/// Flags that open a file for writing, or make one.
const WRITES: u32 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | TMPFILE) as u32;
/// `linux/net.h`: the bits of a socket's type that are not flags.
const SOCKET_TYPE: u32 = 0xf;
/// Flags of clone(2) for namespaces of its own.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;

/// Looks at terminals and lines; no request changes a file, a device or a terminal.
const IOCTLS: [u32; 5] =
    [libc::TCGETS as u32, libc::TIOCGWINSZ as u32, libc::TIOCOUTQ as u32, libc::FIONREAD as u32, libc::FIONBIO as u32];

const F_SETSIG: u32 = 10;
/// Let a file's events send signals, which may go to other processes.
const TO_OTHERS: [u32; 2] = [libc::F_SETOWN as u32, F_SETSIG];
/// Neither locks, leases nor notices of changes in folders.
const FCNTLS: [u32; 10] = [
    libc::F_DUPFD as u32,
    libc::F_DUPFD_CLOEXEC as u32,
    libc::F_GETFD as u32,
    libc::F_SETFD as u32,
    libc::F_GETFL as u32,
    libc::F_SETFL as u32,
    libc::F_GETOWN as u32,
    libc::F_GETPIPE_SZ as u32,
    libc::F_ADD_SEALS as u32,
    libc::F_GET_SEALS as u32,
];

const PDEATHSIG: u32 = libc::PR_SET_PDEATHSIG as u32;
const PRCTLS: [u32; 9] = [
    libc::PR_GET_PDEATHSIG as u32,
    libc::PR_SET_NAME as u32,
    libc::PR_GET_NAME as u32,
    libc::PR_SET_DUMPABLE as u32,
    libc::PR_GET_DUMPABLE as u32,
    libc::PR_SET_TSC as u32,
    libc::PR_GET_TSC as u32,
    libc::PR_SET_NO_NEW_PRIVS as u32,
    libc::PR_SET_VMA as u32,
];

/// `asm/prctl.h`: the bases of the segments, and the processor's features.
const ARCH_PRCTLS: [u32; 10] = [0x1001, 0x1002, 0x1003, 0x1004, 0x1011, 0x1012, 0x1021, 0x1022, 0x1024, 0x3001];

/// All requests except attaching to a process; tracees request the tracing themselves.
const REQUESTS_OF_TRACERS: [u32; 29] = [
    libc::PTRACE_SYSEMU,
    libc::PTRACE_GETREGS,
    libc::PTRACE_SETREGS,
    libc::PTRACE_GETFPREGS,
    libc::PTRACE_SETFPREGS,
    libc::PTRACE_GETREGSET,
    libc::PTRACE_SETREGSET,
    libc::PTRACE_GETSIGINFO,
    libc::PTRACE_CONT,
    libc::PTRACE_SYSEMU_SINGLESTEP,
    libc::PTRACE_TRACEME,
    libc::PTRACE_PEEKTEXT,
    libc::PTRACE_PEEKDATA,
    libc::PTRACE_PEEKUSER,
    libc::PTRACE_POKETEXT,
    libc::PTRACE_POKEDATA,
    libc::PTRACE_POKEUSER,
    libc::PTRACE_KILL,
    libc::PTRACE_SINGLESTEP,
    libc::PTRACE_DETACH,
    libc::PTRACE_SYSCALL,
    libc::PTRACE_SETOPTIONS,
    libc::PTRACE_GETEVENTMSG,
    libc::PTRACE_SETSIGINFO,
    libc::PTRACE_GETSIGMASK,
    libc::PTRACE_SETSIGMASK,
    // `PTRACE_OLDSETOPTIONS`.
    21,
    // `PTRACE_ARCH_PRCTL`.
    30,
    // `PTRACE_GET_SYSCALL_INFO`.
    0x420e,
];

#[cfg(test)]
mod tests {
    use super::super::filter::{AUDIT_ARCH_X86_64, Program};
    use super::*;

    fn every_circumstance() -> impl Iterator<Item = Circumstances> {
        (0..64).map(|bits: u32| Circumstances {
            landlock_traces: bits & 1 != 0,
            landlock_signals: bits & 2 != 0,
            launcher_listens: bits & 4 != 0,
            reads_programs: bits & 8 != 0,
            writes_programs: bits & 16 != 0,
            launcher_signals: bits & 32 != 0,
        })
    }

    /// The argument whose values are in the list; `scripts/guest-calls.c` has the same table.
    fn selector(name: &str) -> usize {
        match name {
            "openat" => 2,
            "ioctl" | "fcntl" | "open" | "socket" | "socketpair" | "memfd_create" => 1,
            _ => 0,
        }
    }

    #[test]
    fn every_call_that_was_seen_is_allowed() {
        for circumstances in every_circumstance() {
            let program = Program::new(&rules(circumstances).unwrap(), circumstances.refusal()).unwrap();
            for (name, values) in seen() {
                if PROBED.iter().any(|(probed, _)| *probed == name) {
                    continue;
                }
                for value in if values.is_empty() { vec![0] } else { values } {
                    let mut arguments = [0; 6];
                    match name {
                        "socket" | "socketpair" => arguments[0] = libc::AF_UNIX as u64,
                        "prctl" => arguments[1] = libc::SIGKILL as u64,
                        _ => {}
                    }
                    arguments[selector(name)] = u64::from(value);
                    let number = names::number(name).unwrap() as u32;
                    let decided = program.decide(AUDIT_ARCH_X86_64, number, arguments);
                    assert_eq!(decided, libc::SECCOMP_RET_ALLOW, "{name} {value:#x}");
                }
            }
        }
    }

    #[test]
    fn the_most_frequent_calls_are_compared_first() {
        let rules = rules(Circumstances::default()).unwrap();
        let first: Vec<&str> = rules.iter().filter_map(|rule| names::name(rule.call as usize)).collect();
        assert!(first.iter().position(|name| *name == "ptrace").unwrap() < 4, "{first:?}");
    }

    #[test]
    fn memory_of_other_processes_needs_landlock_or_a_reason() {
        let has = |circumstances: Circumstances, name: &str| {
            let number = names::number(name).unwrap() as u32;
            rules(circumstances).unwrap().iter().any(|rule| rule.call == number)
        };
        for circumstances in every_circumstance() {
            let reads = circumstances.reads_programs || circumstances.landlock_traces;
            assert_eq!(has(circumstances, "process_vm_readv"), reads);
            assert_eq!(has(circumstances, "process_vm_writev"), circumstances.writes_programs);
        }
    }
}
