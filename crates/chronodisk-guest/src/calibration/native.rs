//! Programs on this host itself, in memory.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::thread::{CpuSet, UnshareFlags, sched_getcpu, sched_setaffinity, unshare_unsafe};

use crate::filesystem::FileSystem;

/// A folder in memory that goes with its owner.
///
/// Where this process may mount, it is an ext4 in a file in memory, because a guest's programs work in an ext4 as well,
/// and tmpfs does with half the CPU time. What such a file system does after a program (writing back, its journal) is
/// not in the program's CPU time.
#[derive(Debug)]
pub struct NativeFolder {
    path: PathBuf,
    file_system: FileSystem,
}

impl NativeFolder {
    /// Makes one. The calling thread's mounts are its own from then on, so that nothing of it outlives this process.
    ///
    /// # Errors
    /// When there can't be a folder in memory.
    pub fn make() -> io::Result<Self> {
        let path = PathBuf::from(format!("/dev/shm/chronodisk-native-{}", std::process::id()));
        fs::create_dir(&path)?;
        let mut folder = NativeFolder { path, file_system: FileSystem::None };
        if folder.mount().is_ok() {
            folder.file_system = FileSystem::Ext4;
        }
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is on: [`FileSystem::Ext4`], or [`FileSystem::None`] for the host's tmpfs.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    fn mount(&self) -> io::Result<()> {
        // SAFETY: descriptors stay shared; only the mounts become this thread's own.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        let image = self.path.with_extension("image");
        let made = self.mount_image(&image);
        // A mounted file lives on without its name.
        if let Err(error) = fs::remove_file(&image)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        made
    }

    fn mount_image(&self, image: &Path) -> io::Result<()> {
        fs::File::create_new(image)?.set_len(IMAGE_BYTES)?;
        quietly(Command::new("mount").args(["--make-rprivate", "/"]))?;
        quietly(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))?;
        quietly(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(&self.path))
    }
}

/// As large as the device of a guest that it is compared with.
const IMAGE_BYTES: u64 = 1 << 30;

fn quietly(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("not permitted on this host")) }
}

impl Drop for NativeFolder {
    fn drop(&mut self) {
        // What fails here leaves at worst an empty folder in memory: the mount goes with this process.
        if self.file_system == FileSystem::Ext4 {
            let _ = quietly(Command::new("umount").arg(&self.path));
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What a program took on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeRun {
    /// CPU time of its own code and its children's. The host tells it from the kernel's by where its ticks find the
    /// program, so a run of less than a second is divided roughly; the sum is right.
    pub user: Duration,
    /// CPU time of the kernel for them.
    pub system: Duration,
    /// Page faults that read nothing from a disk.
    pub faults: u64,
    /// From its begin to its end.
    pub wall: Duration,
}

impl NativeRun {
    /// CPU time in all.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// Those that a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// One, as in a guest: waking a program on another processor costs both of them CPU time.
    One,
    /// All that this process may use.
    All,
}

/// Runs a program to its end.
///
/// # Errors
/// When it can't be started, or ends with another status than 0.
pub fn native_run(command: &mut Command, processors: Processors) -> io::Result<NativeRun> {
    if processors == Processors::One {
        let mut only = CpuSet::new();
        only.set(sched_getcpu());
        // SAFETY: one system call, which is safe between fork and exec.
        unsafe { command.pre_exec(move || Ok(sched_setaffinity(None, &only)?)) };
    }
    let begun = std::time::Instant::now();
    let child = command.spawn()?;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zeros are fine.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of the right types that outlive the call.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let wall = begun.elapsed();
    if !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0) {
        return Err(io::Error::other(format!("{} failed", command.get_program().display())));
    }
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let (user, system) = (duration(usage.ru_utime), duration(usage.ru_stime));
    Ok(NativeRun { user, system, faults: usage.ru_minflt.unsigned_abs(), wall })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_native_run_counts_the_children_too() {
        let mut busy = Command::new("sh");
        busy.args(["-c", "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'; true"]);
        let took = native_run(&mut busy, Processors::All).unwrap();
        assert!(took.cpu() >= Duration::from_millis(2) && took.wall > Duration::ZERO, "{took:?}");
        assert!(took.faults > 0, "{took:?}");
        assert!(native_run(&mut Command::new("false"), Processors::One).is_err());
    }

    #[test]
    fn a_folder_goes_with_its_owner() {
        let folder = NativeFolder::make().unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join("file"), b"in memory").unwrap();
        let is_mounted = || fs::read_to_string("/proc/thread-self/mounts").unwrap().contains(path.to_str().unwrap());
        assert_eq!(is_mounted(), folder.file_system() == FileSystem::Ext4);
        drop(folder);
        assert!(!path.exists() && !is_mounted());
    }
}
