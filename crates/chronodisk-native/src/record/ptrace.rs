//! The kernel's interface for tracing, as plain values.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::{c_uint, c_void, pid_t, sock_filter};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::filter;

/// Reason of a task's stop, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At the entry of a call that the filter selects.
    Entry {
        /// Number of the call.
        number: u32,
        /// Arguments of the call.
        arguments: [u64; 6],
    },
    /// At a call of another architecture.
    Foreign,
    /// At the return of a call.
    Return(i64),
    /// The task has made this child.
    Made(u32),
    /// The task has executed a program; this was its id before.
    Executed(u32),
    /// The task is about to end.
    Ending,
    /// A signal for job control stopped the task.
    Group,
    /// A signal is about to be delivered.
    Signal(i32),
    /// The task has just begun, or the stop has another cause.
    Other,
    /// The task has ended; exit status as in a shell.
    Gone(u8),
}

/// A way to continue a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Continues to the next call that the filter selects.
    Freely,
    /// Continues to the return of its call.
    ToReturn,
    /// Keeps it stopped until it is continued.
    Listening,
}

const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    // The calls of a program without its tracer would fail.
    | libc::PTRACE_O_EXITKILL;
const EVENT_STOP: i32 = 128;
const RETURN_SIGNAL: i32 = libc::SIGTRAP | 0x80;

#[allow(unsafe_code)]
fn request(request: c_uint, task: u32, address: usize, data: usize) -> Result<i64, Errno> {
    // SAFETY: the callers give addresses that the kernel may use for this request.
    let result = unsafe { libc::ptrace(request, task as pid_t, address as *mut c_void, data as *mut c_void) };
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Continues a stopped task, with a signal or none. A task that was killed meanwhile is no error.
pub fn resume(task: u32, how: Resume, signal: i32) -> Result<(), Errno> {
    let how = match how {
        Resume::Freely => libc::PTRACE_CONT,
        Resume::ToReturn => libc::PTRACE_SYSCALL,
        Resume::Listening => libc::PTRACE_LISTEN,
    };
    match request(how, task, 0, signal as usize) {
        Ok(_) | Err(Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A task has stopped or ended.
    Stopped(u32, Stop),
    /// A signal interrupted the wait.
    Interrupted,
    /// This thread traces no task.
    NoTask,
}

/// Kills a task and its process.
#[allow(unsafe_code)]
pub fn kill(task: u32) {
    // SAFETY: a number and a signal. The task is traced by this thread, which has not waited for its end.
    unsafe { libc::kill(task as pid_t, libc::SIGKILL) };
}

/// Waits for the next stop or end of any task traced by this thread; `None` if there are no more.
pub fn next() -> Result<Option<(u32, Stop)>, Errno> {
    loop {
        match wait()? {
            Waited::Stopped(task, stop) => return Ok(Some((task, stop))),
            Waited::Interrupted => {}
            Waited::NoTask => return Ok(None),
        }
    }
}

/// Waits for the next stop or end of any task that this thread traces, or for a signal.
#[allow(unsafe_code)]
pub fn wait() -> Result<Waited, Errno> {
    loop {
        let mut status = 0;
        // SAFETY: the kernel writes the status to a place that lives during the call.
        let task = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if task < 0 {
            match last_error() {
                Errno::INTR => return Ok(Waited::Interrupted),
                Errno::CHILD => return Ok(Waited::NoTask),
                errno => return Err(errno),
            }
        }
        let task = task as u32;
        match reason(task, status) {
            Ok(stop) => return Ok(Waited::Stopped(task, stop)),
            // The task was killed between its stop and the query; its end follows.
            Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn reason(task: u32, status: i32) -> Result<Stop, Errno> {
    if libc::WIFEXITED(status) {
        return Ok(Stop::Gone(libc::WEXITSTATUS(status) as u8));
    }
    if libc::WIFSIGNALED(status) {
        return Ok(Stop::Gone(128u8.wrapping_add(libc::WTERMSIG(status) as u8)));
    }
    let signal = libc::WSTOPSIG(status);
    Ok(match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP | 0 if status >> 16 != 0 || signal == RETURN_SIGNAL => call(task)?,
        0 => Stop::Signal(signal),
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => Stop::Made(message(task)?),
        libc::PTRACE_EVENT_EXEC => Stop::Executed(message(task)?),
        libc::PTRACE_EVENT_EXIT => Stop::Ending,
        EVENT_STOP if signal != libc::SIGTRAP => Stop::Group,
        _ => Stop::Other,
    })
}

fn message(task: u32) -> Result<u32, Errno> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, task, 0, &raw mut message as usize)?;
    Ok(message as u32)
}

#[allow(unsafe_code)]
fn call(task: u32) -> Result<Stop, Errno> {
    // SAFETY: numbers only, for which zero is a value.
    let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GET_SYSCALL_INFO, task, size_of_val(&info), &raw mut info as usize)?;
    // SAFETY: the operation determines the union's member that the kernel has filled; all of them are numbers.
    Ok(unsafe {
        match info.op {
            libc::PTRACE_SYSCALL_INFO_SECCOMP if info.u.seccomp.ret_data & filter::FOREIGN != 0 => Stop::Foreign,
            libc::PTRACE_SYSCALL_INFO_SECCOMP => {
                Stop::Entry { number: info.u.seccomp.nr as u32, arguments: info.u.seccomp.args }
            }
            libc::PTRACE_SYSCALL_INFO_EXIT => Stop::Return(info.u.exit.sval),
            _ => Stop::Other,
        }
    })
}

/// A child process that waits until it is traced before it begins.
#[derive(Debug)]
pub struct Forked {
    /// Id of the process.
    pub task: u32,
    go: OwnedFd,
    error: OwnedFd,
}

/// Action of the new process.
#[derive(Debug)]
pub enum Does<'a> {
    /// Executes this program with these words.
    Executes {
        /// The file.
        program: &'a CStr,
        /// Arguments of the program, beginning with its name.
        words: &'a [CString],
        /// Whether its standard output is this process's standard error.
        stdout_to_stderr: bool,
    },
    /// Makes this number of calls without effect at which the filter stops, and ends.
    Calls(u32),
}

/// Forks a process that installs the filter once it is traced.
///
/// # Errors
/// If the host refuses the process.
#[allow(unsafe_code)]
pub fn fork(does: &Does<'_>, filter: &[sock_filter]) -> io::Result<Forked> {
    let (begin, go) = pipe_with(PipeFlags::CLOEXEC)?;
    let (error, tell_error) = pipe_with(PipeFlags::CLOEXEC)?;
    let words: Vec<*const libc::c_char> = match does {
        Does::Executes { words, .. } => words.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect(),
        Does::Calls(_) => Vec::new(),
    };
    let (begin_fd, go_fd, error_fd) = (begin.as_raw_fd(), go.as_raw_fd(), tell_error.as_raw_fd());
    // SAFETY: between fork and exec the child makes system calls only, and allocates nothing.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; the buffers are the child's own, and `words` ends with a null pointer.
            unsafe {
                // Otherwise the child would wait for ever after its parent's death.
                libc::close(go_fd);
                let mut byte = 0u8;
                if libc::read(begin_fd, (&raw mut byte).cast(), 1) != 1 {
                    libc::_exit(OWN_FAILURE);
                }
                // Rust's runtime ignores it.
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                let failed = match (filter::install(filter), does) {
                    (Err(errno), _) => [FILTER, errno],
                    (Ok(()), Does::Executes { program, stdout_to_stderr, .. }) => {
                        if *stdout_to_stderr {
                            libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO);
                        }
                        libc::execv(program.as_ptr(), words.as_ptr());
                        [EXECUTE, *libc::__errno_location()]
                    }
                    (Ok(()), Does::Calls(count)) => {
                        for _ in 0..*count {
                            libc::fcntl(-1, libc::F_GETFD);
                        }
                        libc::_exit(0);
                    }
                };
                libc::write(error_fd, failed.as_ptr().cast(), size_of_val(&failed));
                libc::_exit(OWN_FAILURE);
            }
        }
        task => Ok(Forked { task: task as u32, go, error }),
    }
}

const OWN_FAILURE: i32 = 125;
const FILTER: i32 = 1;
const EXECUTE: i32 = 2;

/// Reason why a process did not execute its program.
#[derive(Debug)]
pub enum NotBegun {
    /// The filter was refused.
    Filter(io::Error),
    /// The program was refused.
    Program(io::Error),
}

impl Forked {
    /// Begins to trace it.
    ///
    /// # Errors
    /// If the host does not permit it; the process is then ended.
    #[allow(unsafe_code)]
    pub fn trace(self) -> Result<Traced, Errno> {
        if let Err(errno) = request(libc::PTRACE_SEIZE, self.task, 0, OPTIONS as usize) {
            // SAFETY: it is this process's child, and not reaped yet.
            unsafe {
                libc::kill(self.task as pid_t, libc::SIGKILL);
                libc::waitpid(self.task as pid_t, std::ptr::null_mut(), 0);
            }
            return Err(errno);
        }
        let _ = rustix::io::write(&self.go, &[1]);
        Ok(Traced { task: self.task, error: self.error })
    }
}

/// A process that is traced from its beginning.
#[derive(Debug)]
pub struct Traced {
    /// Id of the process.
    pub task: u32,
    error: OwnedFd,
}

impl Traced {
    /// Reason why it ended before it executed its program; `None` if it did execute it.
    pub fn not_begun(&self) -> Option<NotBegun> {
        let mut bytes = [0; 8];
        if rustix::io::read(&self.error, &mut bytes).ok()? != bytes.len() {
            return None;
        }
        let word = |at: usize| i32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let error = io::Error::from_raw_os_error(word(4));
        Some(if word(0) == FILTER { NotBegun::Filter(error) } else { NotBegun::Program(error) })
    }

    /// Kills it; its children die with their tracer.
    #[allow(unsafe_code)]
    pub fn kill(&self) {
        // SAFETY: a child that only this thread reaps.
        unsafe { libc::kill(self.task as pid_t, libc::SIGKILL) };
    }
}
