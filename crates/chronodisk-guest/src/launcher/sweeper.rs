//! The launcher's side of the sweeper, the process that kills the leftovers of a guest; see [`crate::sweeper`].

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::host::own_process_group;

/// The launcher's handle of the sweeper. Dropping it kills the guest's leftovers.
pub(crate) struct Sweeper {
    child: Child,
    /// Readable when it has ended, which it does not do by itself.
    pub pidfd: OwnedFd,
    pipe: Option<ChildStdin>,
}

impl Sweeper {
    /// Starts one that has nothing to sweep yet.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("guest-sweeper").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // The terminal's Ctrl-C is not for it.
        own_process_group(&mut command);
        let mut child = command.spawn()?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let pipe = child.stdin.take();
        Ok(Sweeper { child, pidfd, pipe })
    }

    /// Exit status of the sweeper, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Tells it which kernel it is, once that has been started.
    pub fn watch(&mut self, kernel: u32, executable: &Path) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        writeln!(pipe, "{kernel}")?;
        pipe.write_all(executable.as_os_str().as_bytes())?;
        pipe.write_all(b"\n")
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.child.wait();
    }
}
