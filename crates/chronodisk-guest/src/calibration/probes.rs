//! Small programs that do one thing often, natively and in a guest. Files are made in a folder of the same file system,
//! or in tmpfs.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::shared::costs::Work;
use crate::shared::layout::SMALL_COPY_BYTES;

/// A probe's action, and its number of repetitions.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Name on the command line and in results.
    pub name: &'static str,
    /// The action.
    pub title: &'static str,
    /// Class of most of its kernel time.
    pub work: Work,
    /// Repetitions.
    pub times: u32,
    /// Does it so often, in a folder.
    act: fn(u32, &Path) -> io::Result<()>,
}

/// The probe that only begins and ends; its cost is subtracted from the others'.
pub(crate) const NOTHING: Probe =
    Probe { name: "nothing", title: "begins and ends", work: Work::Process, times: 1, act: |_, _| Ok(()) };

/// All probes except the empty one.
pub const PROBES: [Probe; 13] = [
    Probe { name: "time-stamp", title: "time stamp counter read", work: Work::Call, times: 20_000, act: time_stamps },
    Probe { name: "empty-call", title: "system call without work", work: Work::Call, times: 30_000, act: empty_calls },
    Probe { name: "create-unlink", title: "create, close, unlink", work: Work::Call, times: 6_000, act: creations },
    Probe {
        name: "create-unlink-tmpfs",
        title: "the same in tmpfs",
        work: Work::Call,
        times: 6_000,
        act: |times, _| creations(times, Path::new(IN_MEMORY)),
    },
    Probe { name: "look-up", title: "stat of a file", work: Work::LookUp, times: 10_000, act: look_ups },
    Probe {
        name: "look-up-path",
        title: "stat and open a program, stat a missing one",
        work: Work::LookUp,
        times: 4_000,
        act: path_look_ups,
    },
    Probe { name: "copy-4k", title: "pread and pwrite of 4 KiB", work: Work::Copy, times: 8_000, act: small_copies },
    Probe { name: "copy-256k", title: "pread and pwrite of 256 KiB", work: Work::Copy, times: 400, act: large_copies },
    Probe { name: "fault", title: "4 MiB mapped, touched, unmapped", work: Work::Fault, times: 24, act: faults },
    Probe { name: "map", title: "one page mapped, touched, unmapped", work: Work::Map, times: 6_000, act: maps },
    Probe { name: "fork", title: "fork, exit, wait", work: Work::Process, times: 240, act: forks },
    Probe { name: "exec", title: "fork, exec, exit, wait", work: Work::Process, times: 120, act: executions },
    Probe {
        name: "switch",
        title: "a byte to another process and back",
        work: Work::Switch,
        times: 4_000,
        act: switches,
    },
];

/// The words after the executable that make it this probe in a folder.
pub(crate) fn words(probe: &Probe, folder: &Path) -> [OsString; 3] {
    [WORD.into(), probe.name.into(), folder.into()]
}

/// First word of the command line that makes the executable a probe.
pub(crate) const WORD: &str = "guest-probe";

/// Runs as the probe that the second word of the command line names, in the folder that the third names.
#[must_use]
pub fn run_as_probe() -> ExitCode {
    let mut words = std::env::args_os().skip(2);
    let (name, folder) = (words.next().unwrap_or_default(), PathBuf::from(words.next().unwrap_or_default()));
    let Some(probe) = std::iter::once(&NOTHING).chain(&PROBES).find(|probe| name == probe.name) else {
        eprintln!("chronodisk: there is no probe {}", name.display());
        return ExitCode::from(2);
    };
    match (probe.act)(probe.times, &folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chronodisk: probe {}: {error}", probe.name);
            ExitCode::FAILURE
        }
    }
}

/// A tmpfs, here and in the guest.
pub(super) const IN_MEMORY: &str = "/dev/shm";

/// A temporary file of the probe.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new(folder: &Path, len_bytes: usize) -> io::Result<Self> {
        let path = folder.join(format!("chronodisk-probe-{}", std::process::id()));
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        file.write_all(&vec![1; len_bytes])?;
        Ok(Scratch { path, file })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Its name contains this process's id: at worst it stays in memory until the next boot.
        let _ = fs::remove_file(&self.path);
    }
}

fn time_stamps(times: u32, _: &Path) -> io::Result<()> {
    for _ in 0..times {
        // SAFETY: the instruction has no effect but its result.
        std::hint::black_box(unsafe { core::arch::x86_64::_rdtsc() });
    }
    Ok(())
}

fn empty_calls(times: u32, _: &Path) -> io::Result<()> {
    for _ in 0..times {
        std::hint::black_box(rustix::process::getppid());
    }
    Ok(())
}

fn creations(times: u32, folder: &Path) -> io::Result<()> {
    let path = folder.join(format!("chronodisk-probe-{}", std::process::id()));
    for _ in 0..times {
        drop(File::create_new(&path)?);
        fs::remove_file(&path)?;
    }
    Ok(())
}

fn look_ups(times: u32, folder: &Path) -> io::Result<()> {
    let scratch = Scratch::new(folder, 1)?;
    for _ in 0..times {
        std::hint::black_box(fs::metadata(&scratch.path)?);
    }
    Ok(())
}

/// In the tree of the host, where a guest's kernel asks that for each name.
fn path_look_ups(times: u32, _: &Path) -> io::Result<()> {
    for _ in 0..times {
        std::hint::black_box(fs::metadata(EXECUTED)?);
        drop(File::open(EXECUTED)?);
        if fs::exists(MISSING)? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{MISSING} is there")));
        }
    }
    Ok(())
}

pub(super) const LARGE_COPY_BYTES: u32 = 256 << 10;

fn small_copies(times: u32, _: &Path) -> io::Result<()> {
    copies(times, SMALL_COPY_BYTES as usize)
}

fn large_copies(times: u32, _: &Path) -> io::Result<()> {
    copies(times, LARGE_COPY_BYTES as usize)
}

/// In tmpfs: kernels differ in how they keep an ext4's pages.
fn copies(times: u32, len_bytes: usize) -> io::Result<()> {
    let scratch = Scratch::new(Path::new(IN_MEMORY), len_bytes)?;
    let mut bytes = vec![0; len_bytes];
    for _ in 0..times {
        scratch.file.read_exact_at(&mut bytes, 0)?;
        scratch.file.write_all_at(&bytes, 0)?;
    }
    Ok(())
}

fn faults(times: u32, _: &Path) -> io::Result<()> {
    (0..times).try_for_each(|_| touch(4 << 20))
}

fn maps(times: u32, _: &Path) -> io::Result<()> {
    (0..times).try_for_each(|_| touch(PAGE_BYTES))
}

const PAGE_BYTES: usize = 4_096;

/// Maps memory, writes to each of its pages, and unmaps it.
fn touch(len_bytes: usize) -> io::Result<()> {
    let mut map = memmap2::MmapMut::map_anon(len_bytes)?;
    map.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
    Ok(())
}

fn forks(times: u32, _: &Path) -> io::Result<()> {
    for _ in 0..times {
        // SAFETY: this process has a single thread, and the child only ends.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            // SAFETY: as above.
            0 => unsafe { libc::_exit(0) },
            child => rustix::process::Pid::from_raw(child),
        };
        // By id: a wait for any child would reap other children of this process.
        rustix::process::waitpid(child, rustix::process::WaitOptions::empty())?;
    }
    Ok(())
}

fn executions(times: u32, _: &Path) -> io::Result<()> {
    for _ in 0..times {
        Command::new(EXECUTED).status()?;
    }
    Ok(())
}

/// A small program of the system.
const EXECUTED: &str = "/bin/true";
/// Beside it, and not there.
const MISSING: &str = "/bin/chronodisk-missing";

/// Sends a byte to a process that returns it.
fn switches(times: u32, _: &Path) -> io::Result<()> {
    let mut echo = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut there), Some(mut back)) = (echo.stdin.take(), echo.stdout.take()) else {
        return Err(io::Error::other("a child without pipes"));
    };
    let mut byte = [7];
    for _ in 0..times {
        there.write_all(&byte)?;
        back.read_exact(&mut byte)?;
    }
    drop(there);
    echo.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_does_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        for probe in PROBES {
            (probe.act)(2, folder.path()).unwrap_or_else(|error| panic!("{}: {error}", probe.name));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a probe's file stayed");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = PROBES.iter().map(|probe| probe.name).chain([NOTHING.name]).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROBES.len() + 1);
    }
}
