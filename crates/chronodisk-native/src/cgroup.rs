//! A cgroup (version 2) for the command's processes: it covers all their children, and can be killed as a whole.
//!
//! The hierarchy is mounted without a mount point, so that it does not depend on the host's mounts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Doing, NativeError};

/// Prefix of the cgroup's name; its purpose and the creator's pid follow.
const NAME: &str = "chronodisk-";
/// Longest wait for the end of killed processes.
pub(crate) const ENDING_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// This process's own cgroup, in which there may be another one for its command.
#[derive(Debug)]
pub(crate) struct Parent {
    directory: OwnedFd,
    /// Name of the command's cgroup.
    name: String,
}

impl Parent {
    /// Finds the hierarchy, and removes leftovers of killed processes. The cgroup's name contains `purpose`.
    pub fn find(purpose: &str) -> Result<Self, NativeError> {
        const DOING: &str = "mounting the hierarchy of cgroup v2";
        let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC).doing(DOING)?;
        fsconfig_create(context.as_fd()).doing(DOING)?;
        let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).doing(DOING)?;
        let own = own_path();
        let directory = open_in(root.as_fd(), &own).doing(format!("opening this process's cgroup {own}"))?;
        end_leftovers(directory.as_fd());
        Ok(Parent { directory, name: format!("{NAME}{purpose}.{}", std::process::id()) })
    }

    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes the cgroup for the command.
    pub fn make(self) -> Result<Cgroup, NativeError> {
        let Parent { directory: parent, name } = self;
        match mkdirat(&parent, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).doing(format!("making the cgroup {name}")),
        }
        let directory = open_in(parent.as_fd(), &name).doing(format!("opening the cgroup {name}"))?;
        Ok(Cgroup { parent, directory, name })
    }
}

/// A cgroup. Its processes are killed and it is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// The parent cgroup.
    parent: OwnedFd,
    directory: OwnedFd,
    name: String,
}

impl Cgroup {
    /// The list of its processes. A process adds itself by writing 0.
    pub fn processes(&self) -> Result<OwnedFd, NativeError> {
        openat(&self.directory, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .doing("opening the list of the cgroup's processes")
    }

    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The switch that stops all of its processes.
    pub fn freezer(&self) -> Result<OwnedFd, NativeError> {
        openat(&self.directory, "cgroup.freeze", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .doing("opening the cgroup's freezer")
    }

    /// Kills all of its processes. Returns whether they are gone.
    pub fn end(&self) -> bool {
        end(self.directory.as_fd())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.end();
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Thaws and kills the processes, and waits until all have ended, at most [`ENDING_MAX`].
pub(crate) fn end(directory: BorrowedFd<'_>) -> bool {
    let give_up = Instant::now() + ENDING_MAX;
    loop {
        let _ = write(directory, "cgroup.freeze", b"0");
        let _ = write(directory, "cgroup.kill", b"1");
        if !has(directory, "populated 1") {
            return true;
        }
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether its state (`cgroup.events`) has this line.
pub(crate) fn has(directory: BorrowedFd<'_>, line: &str) -> bool {
    let Ok(events) = openat(directory, "cgroup.events", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut bytes = [0; 256];
    let count = rustix::io::read(&events, &mut bytes).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..count]).lines().any(|other| other == line)
}

pub(crate) fn write(directory: BorrowedFd<'_>, file: &str, value: &[u8]) -> Result<(), Errno> {
    let file = openat(directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value).map(|_| ())
}

/// Path of this process's cgroup in the hierarchy of version 2, without a slash before it.
fn own_path() -> String {
    let lists = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = lists.lines().find_map(|line| line.strip_prefix("0::/"));
    match own {
        Some(path) if !path.is_empty() && !path.starts_with("..") => path.to_owned(),
        _ => ".".to_owned(),
    }
}

pub(crate) fn open_in(parent: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    openat(parent, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Ends and removes the cgroups of dead creators.
fn end_leftovers(parent: BorrowedFd<'_>) {
    let Ok(entries) = Dir::read_from(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((_, number)) = name.strip_prefix(NAME).and_then(|rest| rest.rsplit_once('.')) else { continue };
        if number.parse::<u32>().is_err() || Path::new("/proc").join(number).exists() {
            continue;
        }
        if let Ok(directory) = open_in(parent, &name) {
            end(directory.as_fd());
            let _ = unlinkat(parent, &name, AtFlags::REMOVEDIR);
        }
    }
}
