//! In the launcher: confines the guest's kernel process to the calls that a guest needs from the host.
//!
//! Root in the guest can mount the host's tree writable, and can load a module of its own into the kernel, which is a
//! process of the user on the host. The kernel may also be a program of the user's own. So the host must restrict its
//! calls. Four means of the host work together; all but the last need no privilege:
//!
//! - A *filter of system calls* (seccomp) lists the allowed calls and arguments of a guest's kernel. Every other call
//!   is refused. The launcher receives refused calls and counts them.
//! - *Landlock* (Linux 5.13) keeps it from writing files and from tracing processes other than its own; with 6.12 also
//!   from sending signals to them. Rights of later versions of Landlock are used if the host has them.
//! - *Capabilities*, which only root has, are dropped, except for reading every file.
//! - A *namespace* of its own for shared memory, semaphores and queues, if the launcher may make one.
//!
//! There is no namespace of processes: the kernel would be its first process, for which signals have other meanings,
//! and its process ids would not be the host's. There is no namespace of users, because files of other users would have
//! no owners in it.
//!
//! Not restricted: reading all files that the user may read, and the host's memory and CPU time.

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
use crate::shared::descriptors;

/// Access that the guest's clock needs to the memory of the guest's programs, besides tracing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    pub reads_programs: bool,
    pub writes_programs: bool,
}

/// A command's confinement.
pub(crate) struct Confinement {
    /// Receives the listener for refused calls from the child.
    listener: UnixStream,
}

impl Confinement {
    /// Begins to receive the child's refused calls. The child must be running, and its command dropped.
    pub fn listen(&self, child: u32) -> io::Result<Option<Refusals>> {
        Refusals::listen(&self.listener, child)
    }
}

/// Makes `command` start confined, permanently and with all its children, as the leader of a session.
///
/// # Errors
/// If the host's kernel refuses a feature that it claims to have.
pub(crate) fn confine(command: &mut Command, needs: Needs) -> io::Result<Confinement> {
    confine_with(command, needs, landlock_version())
}

/// Like [`confine`], with at most this version of Landlock; 0 for none.
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
            // Only root may make the namespace.
            let _ = libc::unshare(libc::CLONE_NEWIPC);
            // The process may lead a session already.
            let _ = libc::setsid();
            drop_capabilities()?;
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            if let Some(ruleset) = &ruleset {
                restrict_self(ruleset.as_raw_fd())?;
            }
            // On kernels that support it, no signal interrupts a call that the launcher has begun to answer.
            let listens = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
            match heard.apply(listens | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).or_else(|_| heard.apply(listens))
            {
                Ok(listener) => {
                    // If the launcher does not receive the listener, it is closed here, and the kernel answers refused
                    // calls itself.
                    let _ = refusals::send(theirs.as_raw_fd(), listener);
                    Ok(())
                }
                // The host's kernel has no listeners, or another process listens to this one already.
                Err(_) => unheard.apply(0).map(|_| ()),
            }
        });
    }
    Ok(Confinement { listener })
}

/// Whether a listener may let a call continue: from Linux 5.5 on.
fn calls_go_on() -> bool {
    let system = rustix::system::uname();
    let mut numbers =
        system.release().to_str().unwrap_or_default().split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(5), Some(5))
}

/// Moves a descriptor above the numbers reserved for a child's descriptors.
fn out_of_the_way(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, descriptors::HIGHEST + 1)?)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// First version of Landlock that restricts signals.
const SIGNALS_SINCE: u32 = 6;

/// Version of the host's Landlock; 0 without it.
fn landlock_version() -> u32 {
    const VERSION: libc::c_uint = 1;
    let nothing = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no attributes.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Denies changes of the host's files, connections, and signals to processes outside the guest, as far as this version
/// of Landlock can; `None` without Landlock.
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

/// `linux/capability.h`: permits reading every file and entering every folder.
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAPABILITIES_MAX: libc::c_ulong = 64;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Drops all other capabilities for this process and for the programs that it executes.
fn drop_capabilities() -> io::Result<()> {
    for capability in 0..CAPABILITIES_MAX {
        if capability != libc::c_ulong::from(CAP_DAC_READ_SEARCH) {
            // A process that may not drop them has no capabilities to pass on.
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
    // SAFETY: version 3 has two words in each set, and both pointers refer to as many.
    unsafe {
        check(libc::syscall(libc::SYS_capget, &raw mut header, now.as_mut_ptr()))?;
        let kept = now[0].permitted & (1 << CAP_DAC_READ_SEARCH);
        let kept = [Sets { effective: kept, permitted: kept, inheritable: 0 }, Sets::default()];
        check(libc::syscall(libc::SYS_capset, &raw mut header, kept.as_ptr()))
    }
}

#[cfg(test)]
mod tests;
