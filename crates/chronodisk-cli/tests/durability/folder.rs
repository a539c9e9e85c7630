//! A folder with a server in it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct TestFolder(tempfile::TempDir);

impl TestFolder {
    pub fn new() -> Self {
        TestFolder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `chronodisk ARGUMENTS`, in a process group of its own.
    pub fn chronodisk(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&program());
        command.args(arguments);
        command
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("XDG_STATE_HOME", self.0.path()).current_dir(self.0.path());
        command.env("CHRONODISK_CALIBRATION", self.path("calibration.json"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command
    }

    /// Serves a device over NBD and vhost-user, and waits until clients can connect.
    pub fn serve(&self, device: &str, store: &[&str]) -> Serving {
        self.begin(self.chronodisk(&serve_arguments(device, store)))
            .unwrap_or_else(|errors| panic!("no server of {store:?}: {errors}"))
    }

    /// Like [`serve`](Self::serve), with a file system of 1 MiB in the folder `small`; `small/disk` is copied to `copy`
    /// at the end. Where this user can't mount one, prints that and returns `None`.
    pub fn serve_on_small_disk(&self, device: &str, store: &[&str]) -> Option<Serving> {
        std::fs::create_dir(self.path("small")).unwrap();
        let script = "mount -t tmpfs -o size=1M small small || exit 77
            \"$@\"; status=$?
            cp small/disk copy; exit $status";
        let mut command = self.command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
        command.arg(program()).args(serve_arguments(device, store));
        self.begin(command).inspect_err(|errors| println!("SKIPPED: no mount in a namespace of its own: {errors}")).ok()
    }

    /// Like [`serve`](Self::serve), under strace. It makes calls for the file `disk` and those beside it fail, as the
    /// `inject` expression says. Where nothing can be traced, prints that and returns `None`.
    pub fn serve_with_fault(&self, device: &str, store: &[&str], inject: &str) -> Option<Serving> {
        let can_trace = self.command("strace").args(["-f", "-o", "strace.log", "true"]).output();
        if !can_trace.is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: no strace (Debian: apt-get install strace), or ptrace is forbidden");
            return None;
        }
        let mut command = self.command("strace");
        command.args(["-f", "-qq", "-o", "strace.log", "-e", &format!("inject={inject}")]);
        for file in ["disk", "disk.map", "disk.sums"] {
            // strace compares with the kernel's name of the file.
            let path = self.0.path().canonicalize().unwrap().join(file);
            command.arg("-P").arg(path);
        }
        command.arg(program()).args(serve_arguments(device, store));
        Some(self.begin(command).unwrap_or_else(|errors| panic!("no server of {store:?} under strace: {errors}")))
    }

    /// Starts a server, and waits until it has written its number.
    fn begin(&self, mut command: Command) -> Result<Serving, String> {
        let pidfile = self.path("pid");
        let _ = std::fs::remove_file(&pidfile);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let number = std::fs::read_to_string(&pidfile).ok().and_then(|text| text.trim().parse().ok());
            if let Some(pid) = number {
                return Ok(Serving { child: Some(child), pid, gone: Arc::default() });
            }
            if child.try_wait().unwrap().is_some() || Instant::now() > give_up {
                signal(-(child.id() as i32), libc::SIGKILL);
                let output = child.wait_with_output().unwrap();
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The command that is tested: that of this build, or of another one by the variable `CD`.
pub fn program() -> String {
    std::env::var("CD").unwrap_or_else(|_| env!("CARGO_BIN_EXE_chronodisk").to_owned())
}

fn serve_arguments<'a>(device: &'a str, store: &[&'a str]) -> Vec<&'a str> {
    let place = ["--nbd", "unix:nbd.sock", "--vhost-user", "vhost.sock", "--pidfile", "pid", "--no-realtime"];
    [&["serve", "--device", device, "--capacity", "16MiB"], &place[..], store].concat()
}

pub struct Serving {
    /// None once it was waited for.
    child: Option<Child>,
    /// The server's own number; the child may be a shell around it.
    pid: i32,
    gone: Arc<AtomicBool>,
}

impl Serving {
    /// True from its end on.
    pub fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Kills its process group in a while.
    pub fn kill_after(self, delay: Duration) -> JoinHandle<()> {
        std::thread::spawn(move || {
            std::thread::sleep(delay);
            let gone = self.gone();
            drop(self);
            gone.store(true, Ordering::SeqCst);
        })
    }

    /// Ends it in order.
    pub fn end(self) {
        let (status, errors) = self.end_somehow();
        assert_eq!(status, Some(0), "{errors}");
    }

    /// Sends SIGTERM; returns the status and the output.
    pub fn end_somehow(mut self) -> (Option<i32>, String) {
        signal(self.pid, libc::SIGTERM);
        let output: Output = self.child.take().unwrap().wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Limits the process from now on: it can't write beyond this offset of any file.
    pub fn limit_files(&self, len_bytes: u64) {
        let limit = libc::rlimit { rlim_cur: len_bytes, rlim_max: len_bytes };
        // SAFETY: the limit is read, nothing is written; the process is our own child.
        let set = unsafe { libc::prlimit(self.pid, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
        assert_eq!(set, 0);
    }
}

/// A test that fails leaves no server behind.
impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal(-(child.id() as i32), libc::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Signals a process, or a group if the number is negative.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: no memory is involved; the process is a child that was not waited for, or one of its children.
    unsafe { libc::kill(pid, signal) };
}
