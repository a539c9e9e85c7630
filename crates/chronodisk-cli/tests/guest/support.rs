//! Runs the command, and examines its results.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use super::command::{chronodisk, has_guest, succeeds};
pub use super::command::{has, long, text};

/// The command, with a folder for its results that goes away with the test.
pub struct Chronodisk {
    pub results: TempDir,
}

impl Chronodisk {
    /// Where there is no guest kernel, prints that and returns `None`.
    pub fn new() -> Option<Self> {
        has_guest().then(|| Chronodisk { results: tempfile::tempdir().unwrap() })
    }

    /// The same with the kernel of `kernel build NAME`. Where it is not there, prints that and returns `None`.
    pub fn with_kernel(name: &str) -> Option<Self> {
        let chronodisk = Chronodisk::new()?;
        let answer = chronodisk.command(&["kernel", "path", name]).output().unwrap();
        if !answer.status.success() {
            println!("SKIPPED: {}", text(&answer.stderr).lines().next().unwrap_or_default());
            return None;
        }
        Some(chronodisk)
    }

    /// `chronodisk ARGUMENTS`, without standard input.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = chronodisk(arguments);
        command.env("XDG_STATE_HOME", self.results.path());
        // A user's calibration would change the guest's time.
        command.env("CHRONODISK_CALIBRATION", self.calibration());
        die_with_the_test(&mut command);
        command
    }

    /// `chronodisk run --device DEVICE FLAGS -- PROGRAM`.
    pub fn run(&self, device: &str, flags: &[&str], program: &[&str]) -> Output {
        let arguments = [&["run", "--device", device], flags, &["--"], program].concat();
        self.command(&arguments).output().unwrap()
    }

    /// Like [`run`](Self::run), with `--json`. The command must succeed, without a refused system call of the guest's
    /// kernel. Returns the result.
    pub fn run_json(&self, device: &str, flags: &[&str], program: &[&str]) -> Value {
        let arguments = [&["run", "--device", device], flags, &["--json", "--"], program].concat();
        let output = succeeds(&mut self.command(&arguments));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        for rep in result["reps"].as_array().unwrap() {
            let refused = rep["refused_calls"].as_object().filter(|refused| !refused.is_empty());
            assert!(refused.is_none(), "the guest's kernel made calls that are not in the list: {refused:?}");
        }
        result
    }

    /// Path of a test's calibration.
    pub fn calibration(&self) -> PathBuf {
        self.path("calibration.json")
    }

    /// A path for the test's own files, outside the guest's overlay.
    pub fn path(&self, name: &str) -> PathBuf {
        self.results.path().join(name)
    }
}

/// No guest of a test computes for so long; one whose clock stands still would, and the tests would never end.
const CPU_SECONDS_MAX: libc::rlim_t = 600;

/// Whether the tests run as root, who alone is root in a guest: mounts, makes arrays and asks the kernel for a panic.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIPPED: only root is root in the guest");
    }
    root
}

/// Kills the child when the thread that spawns it ends, so that a test run that was interrupted
/// leaves no guests, or when it or one of its processes computes for too long. A test's thread outlives its children,
/// because it waits for them.
pub fn die_with_the_test(command: &mut Command) {
    let test = std::process::id() as libc::pid_t;
    let ask = move || {
        let most = libc::rlimit { rlim_cur: CPU_SECONDS_MAX, rlim_max: CPU_SECONDS_MAX };
        // SAFETY: a system call that only reads its argument.
        if unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const most) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a system call without pointers.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: as above.
        if unsafe { libc::getppid() } != test {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes three system calls, and does not allocate.
    unsafe { command.pre_exec(ask) };
}

/// A program of this package's examples, which cargo builds with the tests.
pub fn example(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(Path::parent).unwrap();
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "{} is missing; `cargo test` without --test builds it", program.display());
    program.to_str().unwrap().to_owned()
}

/// A Python program that reads the time stamp counter for so many of its ticks.
pub fn counter_reader(ticks: u64) -> String {
    format!(
        "import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex('0f31 48c1e220 4809d0 c3'))  # rdtsc; shl $32, %rdx; or %rdx, %rax; ret
read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
end = read() + {ticks}
while read() < end: pass"
    )
}

/// Processes whose command line or environment carries `mark`, but for this one.
pub fn processes_with(mark: &str) -> Vec<u32> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let holds = |file: &str| std::fs::read(entry.path().join(file)).is_ok_and(|bytes| text(&bytes).contains(mark));
        if pid != own && (holds("cmdline") || holds("environ")) {
            found.push(pid);
        }
    }
    found
}
