//! Isolation of a command.

use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::cgroup::{Cgroup, Parent};
use crate::error::{Doing, NativeError};
use crate::helper::{WATCHDOG, has_ended};
use crate::watchdog::Watchdog;

/// A mount namespace that this process and all that it starts from now on are in, a cgroup for the command, and a
/// watchdog that ends the command when this process ends.
#[derive(Debug)]
pub struct CommandScope {
    /// Dropped first, so that it does not end the cgroup at the same time.
    pub(crate) watchdog: Watchdog,
    pub(crate) cgroup: Cgroup,
}

impl CommandScope {
    /// Makes one. Mounts of this host appear in the namespace, too; mounts made in it appear nowhere else.
    ///
    /// The process must have one thread: others would stay in their namespace. The cgroup's name is
    /// `chronodisk-PURPOSE.PID`. The watchdog is `executable`, which calls [`native_watchdog`](crate::native_watchdog).
    ///
    /// # Errors
    /// [`NativeError::HostLacks`] without `CAP_SYS_ADMIN`; [`NativeError::System`] if the kernel refuses another step.
    #[allow(unsafe_code)]
    pub fn make(purpose: &str, executable: &Path) -> Result<Self, NativeError> {
        let parent = Parent::find(purpose)?;
        const DOING: &str = "making a mount namespace";
        // SAFETY: the descriptors of this process stay as they are; only its mounts become its own.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.doing(DOING)?;
        let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", downstream).doing(DOING)?;
        // Inside the namespace, which so outlives this process: the last process in it unmounts the file systems, and
        // would wait for the device that it serves itself.
        let watchdog = Watchdog::start(&parent, executable)?;
        let cgroup = parent.make()?;
        Ok(CommandScope { watchdog, cgroup })
    }

    /// Readable when the helper process has ended, which it does not do by itself.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.watchdog.pidfd()
    }

    /// Name of the helper process if it has ended, which it does not do by itself.
    #[must_use]
    pub fn lost(&self) -> Option<&'static str> {
        has_ended(self.watchdog.pidfd()).then_some(WATCHDOG)
    }

    /// Kills all processes in it. Returns whether they are gone.
    pub fn end_all(&self) -> bool {
        self.cgroup.end()
    }
}
