//! Where a command runs.

use std::os::fd::BorrowedFd;

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
    /// Dropped first, so that nobody ends what is being ended.
    pub(crate) watchdog: Watchdog,
    pub(crate) cgroup: Cgroup,
}

impl CommandScope {
    /// Makes one. Mounts of this host appear in the namespace, too; what is mounted in it appears nowhere else.
    ///
    /// It is for a process with one thread: others would stay in the namespace that they are in. The cgroup's name is
    /// `chronodisk-PURPOSE.PID`.
    ///
    /// # Errors
    /// [`NativeError::HostLacks`] without `CAP_SYS_ADMIN`; [`NativeError::System`] if the kernel refuses something
    /// else.
    #[allow(unsafe_code)]
    pub fn make(purpose: &str) -> Result<Self, NativeError> {
        let parent = Parent::find(purpose)?;
        const DOING: &str = "making a mount namespace";
        // SAFETY: the descriptors of this process stay as they are; only its mounts become its own.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.doing(DOING)?;
        let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", downstream).doing(DOING)?;
        // In the namespace, which so lives longer than this process: whoever is the last in it unmounts what is
        // mounted, and would wait for the device that he serves himself.
        let watchdog = Watchdog::start(&parent)?;
        let cgroup = parent.make()?;
        Ok(CommandScope { watchdog, cgroup })
    }

    /// Readable when the process that helps has ended, which it does not do by itself.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.watchdog.pidfd()
    }

    /// The process that helps, if it has ended, which it does not do by itself.
    #[must_use]
    pub fn lost(&self) -> Option<&'static str> {
        has_ended(self.watchdog.pidfd()).then_some(WATCHDOG)
    }

    /// Ends all processes in it. Says whether they have gone.
    pub fn end_all(&self) -> bool {
        self.cgroup.end()
    }
}
