//! Confines the guest's kernel process to the calls that a guest needs of the host.
//!
//! Root in the guest can mount the host's tree writable, and can load a module of its own into the kernel, which is a
//! process of the user's on the host; the kernel may be a program of the user's own. So the host
//! decides on its calls. Four means of the host work together; all but the last need no privilege:
//!
//! - A *filter of system calls* (seccomp) lists what a guest's kernel may call, with which arguments. Every other call
//!   is refused. The launcher hears of refused calls and counts them.
//! - *Landlock* (Linux 5.13) keeps it from writing files, from tracing processes that are not its own (with 6.12 also
//!   from sending them signals). Rights of later versions of Landlock are used where the host has them.
//! - *Capabilities*, which only root has, are dropped, but for reading every file.
//! - A *namespace* of its own for shared memory, semaphores and queues, where the launcher may make one.
//!
//! There is no namespace of processes: the kernel would be its first process, for which signals mean other things, and
//! its numbers would not be the host's. There is none of users, in which files of other users would have no owners.
//!
//! Not kept from the guest: reading all that the user may read, and the host's memory and CPU time.

mod calls;
mod filter;
mod refusals;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, Scope};

use self::calls::Circumstances;
use self::filter::Program;
pub(crate) use self::refusals::Refusals;
use crate::descriptors;

/// Access of the guest's clock to the memory of the guest's programs, besides tracing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    pub reads_programs: bool,
    pub writes_programs: bool,
}

/// How a command will be confined.
pub(crate) struct Confinement {
    /// The listener for refused calls comes out of it.
    listener: UnixStream,
}

impl Confinement {
    /// Listens for calls that are refused to the child, which was spawned; its command must be gone.
    pub fn listen(&self, child: u32) -> io::Result<Option<Refusals>> {
        Refusals::listen(&self.listener, child)
    }
}

/// Lets `command` begin confined, for good and with all its children, as the leader of a session.
///
/// # Errors
/// When the host's kernel refuses what it claims to have.
pub(crate) fn confine(command: &mut Command, needs: Needs) -> io::Result<Confinement> {
    confine_with(command, needs, landlock_version())
}

/// The same with no newer Landlock than this version; 0 for none.
fn confine_with(command: &mut Command, needs: Needs, landlock: u32) -> io::Result<Confinement> {
    let ruleset = if landlock > 0 { ruleset(landlock).map_err(io::Error::other)? } else { None };
    let ruleset = ruleset.map(out_of_the_way).transpose()?;
    let has_landlock = ruleset.is_some();
    let circumstances = Circumstances {
        landlock_traces: has_landlock,
        landlock_signals: has_landlock && landlock >= SIGNALS_SINCE,
        launcher_listens: true,
        launcher_signals: calls_go_on(),
        reads_programs: needs.reads_programs,
        writes_programs: needs.writes_programs,
    };
    let program = |circumstances: Circumstances| Program::new(&calls::rules(circumstances)?, circumstances.refusal());
    let mut heard = program(circumstances)?;
    let mut unheard = program(Circumstances { launcher_listens: false, ..circumstances })?;
    let (listener, theirs) = UnixStream::pair()?;
    let theirs = out_of_the_way(theirs.into())?;
    // SAFETY: only system calls that are safe between fork and exec; the data were made before.
    unsafe {
        command.pre_exec(move || {
            // Only root may.
            let _ = libc::unshare(libc::CLONE_NEWIPC);
            // It may lead one already.
            let _ = libc::setsid();
            drop_capabilities()?;
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            if let Some(ruleset) = &ruleset {
                restrict_self(ruleset.as_raw_fd())?;
            }
            // A call that the launcher has begun to answer is interrupted by no signal, where the kernel knows that.
            let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
            match heard.apply(listens | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).or_else(|_| heard.apply(listens))
            {
                Ok(listener) => {
                    // If no listener takes it, it ends here, and the kernel answers by itself.
                    let _ = refusals::send(theirs.as_raw_fd(), listener);
                    Ok(())
                }
                // The host's kernel has no listeners, or another process listens to us already.
                Err(_) => unheard.apply(0).map(|_| ()),
            }
        });
    }
    Ok(Confinement { listener })
}

/// Whether a listener may let a call go on: from Linux 5.5 on.
fn calls_go_on() -> bool {
    let system = rustix::system::uname();
    let mut numbers =
        system.release().to_str().unwrap_or_default().split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(5), Some(5))
}

/// Moves it above the numbers that a child finds its descriptors under.
fn out_of_the_way(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, descriptors::HIGHEST + 1)?)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The first version of Landlock that keeps signals from other processes.
const SIGNALS_SINCE: u32 = 6;

/// The version of the host's Landlock; 0 without.
fn landlock_version() -> u32 {
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no attributes.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Denies each change of the host's files, connections, and signals to processes outside of the guest, as far as this
/// version of Landlock can; `None` without Landlock.
fn ruleset(version: u32) -> Result<Option<OwnedFd>, RulesetError> {
    let version = ABI::from(version as i32);
    let mut ruleset = Ruleset::default().handle_access(AccessFs::from_write(version))?;
    let (connections, scopes) = (AccessNet::from_all(version), Scope::from_all(version));
    if !connections.is_empty() {
        ruleset = ruleset.handle_access(connections)?;
    }
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    Ok(ruleset.create()?.into())
}

fn restrict_self(ruleset: RawFd) -> io::Result<()> {
    // SAFETY: a system call without pointers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })
}

/// `linux/capability.h`: reads every file and enters every folder.
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAPABILITIES_MAX: libc::c_ulong = 64;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Drops them for this process and for what it executes.
fn drop_capabilities() -> io::Result<()> {
    for capability in 0..CAPABILITIES_MAX {
        if capability != libc::c_ulong::from(CAP_DAC_READ_SEARCH) {
            // Who may not do this has no capabilities to pass on.
            // SAFETY: a system call without pointers.
            let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        }
    }
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    #[derive(Clone, Copy, Default)]
    #[repr(C)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let mut header = Header { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut now = [Sets::default(); 2];
    // SAFETY: version 3 has two words of each set, which both calls find behind these pointers.
    unsafe {
        check(libc::syscall(libc::SYS_capget, &raw mut header, now.as_mut_ptr()))?;
        let kept = now[0].permitted & (1 << CAP_DAC_READ_SEARCH);
        let kept = [Sets { effective: kept, permitted: kept, inheritable: 0 }, Sets::default()];
        check(libc::syscall(libc::SYS_capset, &raw mut header, kept.as_ptr()))
    }
}

#[cfg(test)]
mod tests;
