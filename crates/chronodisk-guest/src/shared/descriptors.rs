//! Descriptors that a child process inherits under fixed numbers.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The clock's page, in the guest's kernel and the backend.
pub(crate) const PAGE: RawFd = 30;
/// Questions of the guest's clock, in both.
pub(crate) const EXCHANGE: RawFd = 31;
/// The vhost-user socket of the first device, in both.
const VHOST_FIRST: RawFd = 32;
/// The guest's serial line, its two directions; distinct numbers, because User Mode Linux watches
/// a descriptor for one direction only.
pub(crate) const SERIAL_IN: RawFd = 33;
pub(crate) const SERIAL_OUT: RawFd = 34;
/// Console of the guest's kernel.
pub(crate) const CONSOLE: RawFd = 35;
/// The preload library.
pub(crate) const CLOCK_LIBRARY: RawFd = 36;
/// Between launcher and backend.
pub(crate) const CONTROL: RawFd = 37;
/// File for the request log.
pub(crate) const LOG: RawFd = 38;
/// This executable, which is also the guest's first process.
pub(crate) const EXECUTABLE: RawFd = 39;
/// The vhost-user sockets of the further devices, in both.
const VHOST_FURTHER: RawFd = 40;
/// Feed of a replayer in the guest.
pub(crate) const FEED: RawFd = VHOST_FURTHER + DEVICES_MAX as RawFd;
/// Memory for recorded system calls.
pub(crate) const RECORDING: RawFd = FEED + 1;
/// The highest of these numbers.
pub(crate) const HIGHEST: RawFd = RECORDING;

/// Most devices of a guest; the guest's clock has a table of as many.
pub const DEVICES_MAX: usize = 8;

/// The vhost-user socket of a device, counted from 0.
pub(crate) const fn vhost(device: usize) -> RawFd {
    if device == 0 { VHOST_FIRST } else { VHOST_FURTHER + device as RawFd - 1 }
}

/// Takes over a descriptor that was inherited under `number`.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the numbers above have no other use, and each is taken once.
    let fd = unsafe {
        if libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(number)
    };
    Ok(fd)
}

/// Lets `command` inherit each descriptor at its number, run only on these CPUs if any are given, and die with this
/// thread's process.
pub(crate) fn bequeath(command: &mut Command, cpus: &[usize], descriptors: Vec<(OwnedFd, RawFd)>) {
    let parent = std::process::id();
    let only = (!cpus.is_empty()).then(|| {
        let mut only = rustix::thread::CpuSet::new();
        cpus.iter().for_each(|&cpu| only.set(cpu));
        only
    });
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if libc::getppid() as u32 != parent {
                // The parent died before the call above.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if let Some(only) = &only {
                // Without the permission, the command is only less steady.
                let _ = rustix::thread::sched_setaffinity(None, only);
            }
            // The launcher waits for its signals through a descriptor; others must not inherit that.
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            check(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))?;
            // A crashed kernel must not leave a core file in the caller's folder.
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            check(libc::setrlimit(libc::RLIMIT_CORE, &none))?;
            // The guest's kernel holds a descriptor for every known file of the host's tree.
            let mut files = none;
            if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
                files.rlim_cur = files.rlim_max;
                let _ = libc::setrlimit(libc::RLIMIT_NOFILE, &files);
            }
            // First out of the way of all targets, then into place.
            let mut moved = [-1; (HIGHEST + 1) as usize];
            for (fd, target) in &descriptors {
                moved[*target as usize] = check(libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGHEST + 1))?;
            }
            for (_, target) in &descriptors {
                check(libc::dup2(moved[*target as usize], *target))?;
            }
            Ok(())
        });
    }
}
