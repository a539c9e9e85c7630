//! Keeps the guest's kernel process from changing the host's files.
//!
//! Root in the guest can mount the host's tree writable, and can load a module of its own into the kernel, which is a
//! process of the user's on the host. So what the guest's writes may reach is not the guest's kernel's to decide but
//! the host's. Three of its means work together, and none of them needs a privilege:
//!
//! - *Landlock* (Linux 5.13, with truncation from 6.2, and signals to other processes from 6.12): no file is opened for
//!   writing, made, removed or renamed, but for `/dev/null`; nothing is mounted; no other process is traced.
//! - A *filter of system calls* (seccomp): what Landlock leaves, changes of a file's owner, mode, times and attributes;
//!   connections to other programs' sockets; io_uring, which would go around the filter.
//! - *Capabilities*, which only root has, are dropped, but for reading every file.
//!
//! Not kept from the guest: reading all that the user may read, and the host's memory and CPU time.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// Lets `command` begin confined, for good and with all its children; false where the host's kernel has no Landlock,
/// and the guest's root may write to the user's files.
///
/// If it `writes_programs`, the guest's clock may write to the memory of the guest's programs, and of no other:
/// Landlock keeps it from processes that are not its own.
///
/// # Errors
/// When the host's kernel refuses what it claims to have.
pub(crate) fn confine(command: &mut Command, writes_programs: bool) -> io::Result<bool> {
    let ruleset = ruleset().map_err(io::Error::other)?;
    let filter = filter(writes_programs).map_err(io::Error::other)?;
    let has_landlock = ruleset.is_some();
    // SAFETY: only system calls that are safe between fork and exec; the data were made before.
    unsafe {
        command.pre_exec(move || {
            drop_capabilities()?;
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            if let Some(ruleset) = &ruleset {
                restrict_self(ruleset.as_raw_fd())?;
            }
            // Its errors hold no memory of their own.
            seccompiler::apply_filter(&filter).map_err(|_| io::Error::last_os_error())
        });
    }
    Ok(has_landlock)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The newest interface that is used; of an older kernel's, what it has.
const INTERFACE: ABI = ABI::V6;

/// Denies each change of the host's files; `None` without Landlock.
fn ruleset() -> Result<Option<OwnedFd>, RulesetError> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_write(INTERFACE))?
        .handle_access(AccessNet::from_all(INTERFACE))?
        .scope(Scope::from_all(INTERFACE))?
        .create()?;
    let ruleset = match PathFd::new("/dev/null") {
        Ok(null) => ruleset.add_rule(PathBeneath::new(null, AccessFs::WriteFile))?,
        Err(_) => ruleset,
    };
    Ok(ruleset.into())
}

fn restrict_self(ruleset: RawFd) -> io::Result<()> {
    // SAFETY: a system call without pointers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) })
}

/// Calls that the guest's kernel has no use for.
const DENIED: [libc::c_long; 46] = [
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    // Landlock knows it from Linux 6.2 on.
    libc::SYS_truncate,
    libc::SYS_open_by_handle_at,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_io_uring_setup,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
];

/// `asm/unistd_64.h`; the C library's bindings don't have these yet.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// `linux/fs.h`: a file's flags, such as that it can't be changed, and its project.
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
/// `linux/net.h`: the bits of a socket's type that are not flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

fn filter(writes_programs: bool) -> Result<BpfProgram, seccompiler::BackendError> {
    let is_denied = |call: &libc::c_long| !(writes_programs && *call == libc::SYS_process_vm_writev);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.into_iter().filter(is_denied).map(|call| (call, Vec::new())).collect();
    let argument = |index, operator, value| {
        let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    // Between the kernel and its helpers there are pairs of streams; a datagram could be sent to anybody's socket.
    let unix = libc::AF_UNIX as u64;
    let not_a_stream = SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK);
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        let mut denied = vec![argument(0, SeccompCmpOp::Ne, unix)?];
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            denied.push(argument(1, not_a_stream.clone(), kind as u64)?);
        }
        rules.insert(call, denied);
    }
    let attributes = [FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR].map(|request| argument(1, SeccompCmpOp::Eq, request));
    rules.insert(libc::SYS_ioctl, attributes.into_iter().collect::<Result<_, _>>()?);
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, denied, TargetArch::x86_64)?.try_into()
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
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Stdio;

    use super::*;

    /// What a confined shell does to a file of ours: whether it succeeded.
    fn confined(script: &str, file: &std::path::Path) -> bool {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(confine(&mut command, false).unwrap(), "this kernel has no Landlock");
        command.status().unwrap().success()
    }

    fn has_landlock() -> bool {
        let has = ruleset().unwrap().is_some();
        if !has {
            println!("SKIPPED: the kernel has no Landlock");
        }
        has
    }

    #[test]
    fn files_are_read_and_never_changed() {
        if !has_landlock() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "before").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(confined("cat \"$1\" && echo > /dev/null", &file));
        for script in [
            "echo after > \"$1\"",
            "echo after >> \"$1\"",
            ": > \"$1.new\"",
            "rm -f \"$1\"",
            "mv \"$1\" \"$1.moved\"",
            "ln \"$1\" \"$1.linked\"",
            "ln -s \"$1\" \"$1.symbolic\"",
            "mkdir \"$1.folder\"",
            "mkfifo \"$1.pipe\"",
            "truncate -s 0 \"$1\"",
            "chmod 777 \"$1\"",
            "chown 12345 \"$1\"",
            "touch -d 1999-01-01 \"$1\"",
            "mount -t tmpfs none \"${1%/*}\"",
            "kill -0 $PPID",
        ] {
            assert!(!confined(script, &file), "{script}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o644);
        assert!(metadata.modified().unwrap().elapsed().unwrap().as_secs() < 3600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_child_of_root_has_no_capability_but_to_read() {
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        confine(&mut command, false).unwrap();
        let status = String::from_utf8(command.output().unwrap().stdout).unwrap();
        for set in ["CapPrm", "CapEff", "CapInh"] {
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:"))).unwrap();
            let set = u64::from_str_radix(line.trim(), 16).unwrap();
            assert_eq!(set & !(1 << CAP_DAC_READ_SEARCH), 0, "{line}");
        }
    }
}
