//! Programs on this host itself, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_getcpu, sched_setaffinity, unshare_unsafe};

use crate::launcher::outcome::{Doing, RunError};
use crate::launcher::signals::Signals;
use crate::shared::filesystem::FileSystem;
use crate::shared::signals::asks_to_end;

/// Holds back signals to end until the next run, natively or in a guest, which they then end. Otherwise folders and
/// mounts could be left behind between runs.
pub struct HeldSignals {
    _signals: Signals,
}

impl HeldSignals {
    /// Blocks the calling thread's signals.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn hold() -> io::Result<Self> {
        Ok(HeldSignals { _signals: Signals::catch()? })
    }
}

/// A temporary folder in memory.
///
/// If this process may mount, it is an ext4 on a file in memory, because a guest's programs work on an ext4 as well,
/// and tmpfs takes half the CPU time. The file system's work after a program (write-back, journal) is not part of the
/// program's CPU time.
#[derive(Debug)]
pub struct NativeFolder {
    path: PathBuf,
    file_system: FileSystem,
}

impl NativeFolder {
    /// Makes a folder. The calling thread's mounts are private from then on, so that they end with this process.
    /// # Errors
    /// If no folder can be made in memory.
    pub fn make() -> io::Result<Self> {
        NativeFolder::make_with(FileSystem::Ext4, &[], None)
    }

    /// Makes a folder on another file system, with these options for mkfs and mount.
    ///
    /// # Errors
    /// If no folder can be made in memory.
    pub fn make_with(file_system: FileSystem, mkfs_options: &[&str], mount_options: Option<&str>) -> io::Result<Self> {
        // Number of folders made, for unique names.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/chronodisk-native-{}-{made}", std::process::id()));
        fs::create_dir(&path)?;
        let mut folder = NativeFolder { path, file_system: FileSystem::None };
        if folder.mount(file_system, mkfs_options, mount_options).is_ok() {
            folder.file_system = file_system;
        }
        Ok(folder)
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file system: the requested one, or [`FileSystem::None`] for the host's tmpfs.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    fn mount(&self, file_system: FileSystem, mkfs_options: &[&str], mount_options: Option<&str>) -> io::Result<()> {
        // SAFETY: descriptors stay shared; only the mounts become this thread's own.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        let image = self.path.with_extension("image");
        let made = self.mount_image(&image, file_system, mkfs_options, mount_options);
        // A mounted file lives on without its name.
        if let Err(error) = fs::remove_file(&image)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        made
    }

    fn mount_image(
        &self,
        image: &Path,
        file_system: FileSystem,
        mkfs_options: &[&str],
        mount_options: Option<&str>,
    ) -> io::Result<()> {
        let (maker, _) = file_system.maker().ok_or(io::ErrorKind::Unsupported)?;
        // mkfs.ext4 asks before it takes a file, unless forced.
        let force = if file_system == FileSystem::Ext4 { "-F" } else { "-f" };
        let options = ["loop"].into_iter().chain(mount_options).collect::<Vec<_>>().join(",");
        fs::File::create_new(image)?.set_len(IMAGE_BYTES)?;
        quietly(Command::new("mount").args(["--make-rprivate", "/"]))?;
        quietly(Command::new(maker).args(["-q", force]).args(mkfs_options).arg(image))?;
        quietly(Command::new("mount").args(["-t", file_system.name(), "-o", &options]).arg(image).arg(&self.path))
    }
}

/// Size of the file system, equal to the device of a guest that is compared with it.
const IMAGE_BYTES: u64 = 1 << 30;

fn quietly(command: &mut Command) -> io::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("not permitted on this host")) }
}

impl Drop for NativeFolder {
    fn drop(&mut self) {
        // A failure at worst leaves an empty folder in memory, because the mount ends with this process.
        if self.file_system != FileSystem::None {
            // Lazily, because a killed program's processes may not be gone yet.
            let _ = quietly(Command::new("umount").arg("-l").arg(&self.path));
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// CPU time so far of the host kernel's threads for file systems: write-back, journals, compression, and the loop
/// device. A worker's name changes with its work, so threads are identified by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelThreads(BTreeMap<u32, Duration>);

impl KernelThreads {
    /// The present times.
    ///
    /// # Errors
    /// If /proc is unreadable.
    pub fn now() -> io::Result<Self> {
        const NAMES: [&str; 5] = ["kworker", "btrfs", "jbd2", "xfs", "loop"];
        let mut threads = BTreeMap::new();
        for process in fs::read_dir("/proc")? {
            let path = process?.path();
            let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let Some(number) = number else { continue };
            let read = |file: &str| fs::read_to_string(path.join(file));
            // A thread that ends meanwhile has no files.
            let (Ok(name), Ok(times)) = (read("comm"), read("schedstat")) else { continue };
            let is_kernels = fs::read(path.join("cmdline")).is_ok_and(|words| words.is_empty());
            if is_kernels && NAMES.iter().any(|prefix| name.starts_with(prefix)) {
                let nanos = times.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
                threads.insert(number, Duration::from_nanos(nanos));
            }
        }
        Ok(KernelThreads(threads))
    }

    /// CPU time since `before`. A thread that has ended meanwhile counts zero.
    #[must_use]
    pub fn since(&self, before: &KernelThreads) -> Duration {
        let used = |(number, now): (&u32, &Duration)| match before.0.get(number) {
            Some(before) => now.saturating_sub(*before),
            None => *now,
        };
        self.0.iter().map(used).sum()
    }
}

/// Cost of a program on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeRun {
    /// CPU time of its own code and its children's. The host samples at its ticks whether the program or the kernel
    /// runs, so the division is rough for runs of less than a second; the sum is exact.
    pub user: Duration,
    /// CPU time of the kernel for them.
    pub system: Duration,
    /// Page faults without a read from a disk.
    pub faults: u64,
    /// Time from its beginning to its end.
    pub wall: Duration,
}

impl NativeRun {
    /// CPU time in all.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// Processors of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processors {
    /// As many as a guest has; with one, none of the program's processes wakes another processor, which costs CPU time.
    Only(usize),
    /// All processors that this process may use.
    All,
}

/// Runs a program to its end, or until a signal requests the end, which also ends its processes.
///
/// # Errors
/// If it can't be started, ends with another status than 0, or is interrupted.
pub fn native_run(command: &mut Command, processors: Processors) -> Result<NativeRun, RunError> {
    let signals = Signals::catch().doing("catching signals")?;
    let only = match processors {
        Processors::Only(count) => Some(first_processors(count).doing("choosing processors")?),
        Processors::All => None,
    };
    let prepare = move || {
        // SAFETY: the set is initialised before use, and only this function's memory is touched.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
        if let Some(only) = &only { Ok(sched_setaffinity(None, only)?) } else { Ok(()) }
    };
    // SAFETY: system calls only, which are safe between fork and exec.
    unsafe { command.pre_exec(prepare) };
    // In its own process group, so that all of its processes can be killed at once.
    command.process_group(0);
    let begun = std::time::Instant::now();
    let name = command.get_program().display().to_string();
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
    let child = command.spawn().map_err(failed).doing("running a program")?;
    let pid = child.id() as libc::pid_t;
    let interrupted_by = end_or_signal(pid, &signals).doing("waiting for a program")?;
    if interrupted_by.is_some() {
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zeros are fine.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of the right types that outlive the call.
    while unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error).doing("waiting for a program");
        }
    }
    if let Some(signal) = interrupted_by {
        return Err(RunError::Interrupted { signal });
    }
    let wall = begun.elapsed();
    if !(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0) {
        return Err(io::Error::other(format!("{name} failed"))).doing("running a program");
    }
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let (user, system) = (duration(usage.ru_utime), duration(usage.ru_stime));
    Ok(NativeRun { user, system, faults: usage.ru_minflt.unsigned_abs(), wall })
}

/// The processor on which this thread runs, and others that it may use.
fn first_processors(count: usize) -> io::Result<CpuSet> {
    let (mut only, allowed, here) = (CpuSet::new(), sched_getaffinity(None)?, sched_getcpu());
    let others = (0..CpuSet::MAX_CPU).filter(|&processor| processor != here && allowed.is_set(processor));
    std::iter::once(here).chain(others).take(count).for_each(|processor| only.set(processor));
    match only.count() as usize {
        found if found < count => {
            Err(io::Error::other(format!("this process may use {found} processors of this host, of {count} requested")))
        }
        _ => Ok(only),
    }
}

/// Waits until a process has ended, or a signal asks to end.
fn end_or_signal(pid: libc::pid_t, signals: &Signals) -> io::Result<Option<i32>> {
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    loop {
        let mut waits =
            [PollFd::new(&process, PollFlags::IN), PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = !waits[0].revents().is_empty();
        let signal = signals.take().into_iter().find(|&signal| asks_to_end(signal));
        if ended || signal.is_some() {
            return Ok(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_and_go_add_only_what_they_use() {
        let threads = |of: &[(u32, u64)]| {
            KernelThreads(of.iter().map(|(number, ms)| (*number, Duration::from_millis(*ms))).collect())
        };
        let (before, after) = (threads(&[(1, 3000), (2, 100), (3, 7)]), threads(&[(2, 130), (3, 7), (4, 5)]));
        assert_eq!(after.since(&before), Duration::from_millis(35));
        KernelThreads::now().unwrap();
    }

    #[test]
    fn a_native_run_counts_the_children_too() {
        let mut busy = Command::new("sh");
        busy.args(["-c", "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'; true"]);
        let took = native_run(&mut busy, Processors::All).unwrap();
        assert!(took.cpu() >= Duration::from_millis(2) && took.wall > Duration::ZERO, "{took:?}");
        assert!(took.faults > 0, "{took:?}");
        assert!(native_run(&mut Command::new("false"), Processors::Only(1)).is_err());
    }

    #[test]
    fn a_native_run_has_the_processors_that_were_asked_for() {
        let has =
            |count| native_run(Command::new("sh").args(["-c", "test $(nproc) = $0"]).arg(count), Processors::Only(1));
        has("1").unwrap();
        assert!(has("2").is_err());
        let error = native_run(&mut Command::new("true"), Processors::Only(CpuSet::MAX_CPU + 1)).unwrap_err();
        assert!(error.to_string().contains("1025 requested"), "{error}");
    }

    #[test]
    fn a_signal_ends_a_native_run_with_all_that_it_began() {
        let folder = tempfile::tempdir().unwrap();
        let began = folder.path().join("began");
        let mut endless = Command::new("sh");
        endless.args(["-c", "sleep 1000 & echo $! > $0.part; mv $0.part $0; wait"]).arg(&began);
        let held = HeldSignals::hold().unwrap();
        let runner = rustix::thread::gettid();
        let (ended, sleeper) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                while !began.exists() {
                    std::thread::yield_now();
                }
                // SAFETY: a system call without pointers; the thread outlives the scope.
                unsafe {
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), runner.as_raw_nonzero().get(), libc::SIGTERM)
                };
                fs::read_to_string(&began).unwrap().trim().parse::<u32>().unwrap()
            });
            (native_run(&mut endless, Processors::All), sender.join().unwrap())
        });
        drop(held);
        assert!(matches!(ended, Err(RunError::Interrupted { signal: libc::SIGTERM })), "{ended:?}");
        // A killed process dies when it is scheduled next, and may stay a zombie until its new parent reaps it. Without
        // the kill it would sleep for a quarter of an hour.
        let lives = || {
            let stat = fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            !(state.is_empty() || state.starts_with(['Z', 'X']))
        };
        let looks = (0..1_000).take_while(|_| lives()).map(|_| std::thread::sleep(Duration::from_millis(20)));
        assert!(looks.count() < 1_000, "{sleeper} lives");
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
