//! Targets for a hostile kernel, and a check that they are unharmed. Tests of two crates use them.

use std::collections::BTreeMap;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tempfile::TempDir;

/// Debian's user without any files or privileges.
pub const NOBODY: u32 = 65534;

/// A process, System V objects, a POSIX queue, a file and sockets of the user of the kernel.
pub struct Victims {
    pub folder: TempDir,
    process: Child,
    shared_memory: libc::c_int,
    semaphores: libc::c_int,
    queue: libc::c_int,
    mqueue: String,
    _sockets: [UnixListener; 2],
}

impl Victims {
    /// The victims of `user`, which may be another user if this is root.
    pub fn of(user: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("file"), "before").unwrap();
        let process = Command::new("sleep").arg("600").uid(user).process_group(0).spawn().unwrap();
        let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mqueue = format!("/{}", name.trim_start_matches('.'));
        let c_name = std::ffi::CString::new(mqueue.clone()).unwrap();
        // SAFETY: system calls without pointers but to a string that lives on.
        let (shared_memory, semaphores, queue) = unsafe {
            let opened = libc::mq_open(c_name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o666, 0usize);
            assert!(opened >= 0, "mq_open: {}", std::io::Error::last_os_error());
            libc::close(opened);
            let private = libc::IPC_PRIVATE;
            (libc::shmget(private, 4096, 0o666), libc::semget(private, 1, 0o666), libc::msgget(private, 0o666))
        };
        assert!(shared_memory >= 0 && semaphores >= 0 && queue >= 0);
        let socket = folder.path().join("socket");
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [UnixListener::bind(&socket).unwrap(), UnixListener::bind_addr(&abstract_name).unwrap()];
        for path in [folder.path(), &folder.path().join("file"), &socket] {
            if rustix::process::geteuid().is_root() {
                chown(path, Some(user), Some(user)).unwrap();
            }
        }
        let victims = Victims { folder, process, shared_memory, semaphores, queue, mqueue, _sockets: sockets };
        let path = |name: &str| victims.folder.path().join(name).display().to_string();
        let words = [
            victims.process.id().to_string(),
            shared_memory.to_string(),
            semaphores.to_string(),
            queue.to_string(),
            path(""),
            path("file"),
            path("socket"),
            victims.mqueue.clone(),
            name,
        ];
        std::fs::write(victims.folder.path().join("victims"), words.join("\n")).unwrap();
        victims
    }

    /// Compiles the hostile kernel that attacks them; `None` without a compiler for static programs.
    pub fn kernel(&self) -> Option<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chronodisk-guest/tests/hostile/kernel.c");
        let kernel = self.folder.path().join("hostile");
        let list = format!("-DVICTIMS=\"{}\"", self.folder.path().join("victims").display());
        let compiler = Command::new("cc").args(["-static", "-O1", "-w", &list, "-o"]).arg(&kernel).arg(source).output();
        match compiler {
            Ok(output) if output.status.success() => Some(kernel),
            other => {
                println!("SKIPPED: no compiler for static programs (Debian: apt-get install gcc libc6-dev): {other:?}");
                None
            }
        }
    }

    /// Panics unless they are unchanged.
    pub fn assert_unharmed(&mut self) {
        assert_eq!(self.process.try_wait().unwrap(), None, "the process ended");
        let pid = self.process.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = |text: &str, key: &str| text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        assert_eq!(line(&status, "Cpus_allowed:"), line(&own, "Cpus_allowed:"));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let field =
            |stat: &str, at: usize| stat.rsplit_once(')').unwrap().1.split_whitespace().nth(at).unwrap().to_owned();
        // proc_pid_stat(5): niceness and scheduling policy, counted from the state.
        assert_eq!((field(&stat, 16), field(&stat, 38)), (field(&own, 16), field(&own, 38)));
        let path = self.folder.path().join("file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        let names = ["file", "hostile", "socket", "victims"].map(str::to_owned);
        let mut found: Vec<String> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, names);
        // SAFETY: the calls write the structures, and the memory is not used after it is unmapped.
        unsafe {
            let memory = libc::shmat(self.shared_memory, std::ptr::null(), libc::SHM_RDONLY);
            assert_ne!(memory as isize, -1, "the shared memory is gone");
            assert_eq!(*memory.cast::<u8>(), 0, "the shared memory was written");
            libc::shmdt(memory);
            assert_eq!(libc::semctl(self.semaphores, 0, libc::GETVAL), 0);
            let mut queue: libc::msqid_ds = std::mem::zeroed();
            assert_eq!(libc::msgctl(self.queue, libc::IPC_STAT, &raw mut queue), 0);
            assert_eq!(queue.msg_qnum, 0);
            let name = std::ffi::CString::new(self.mqueue.clone()).unwrap();
            let opened = libc::mq_open(name.as_ptr(), libc::O_RDONLY);
            assert!(opened >= 0, "the queue is gone");
            libc::close(opened);
        }
    }
}

impl Drop for Victims {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let name = std::ffi::CString::new(self.mqueue.clone()).unwrap();
        // SAFETY: system calls without pointers but to a string that lives on.
        unsafe {
            libc::shmctl(self.shared_memory, libc::IPC_RMID, std::ptr::null_mut());
            libc::semctl(self.semaphores, 0, libc::IPC_RMID);
            libc::msgctl(self.queue, libc::IPC_RMID, std::ptr::null_mut());
            libc::mq_unlink(name.as_ptr());
        }
    }
}

/// The error of each attempt, as printed by the hostile kernel; 0 for success.
///
/// # Panics
/// If the kernel did not run to its end.
pub fn attempts(said: &str) -> BTreeMap<String, i32> {
    let of_line = |line: &str| {
        let mut words = line.split_once("attempt ")?.1.split(' ');
        Some((words.next()?.to_owned(), words.next()?.trim().parse().ok()?))
    };
    assert!(said.lines().any(|line| line.trim().ends_with("end")), "{said}");
    said.lines().filter_map(of_line).collect()
}

/// Attempts that were not refused: the host's kernel executed them, or would have with other arguments.
pub fn not_refused(attempts: &BTreeMap<String, i32>) -> Vec<&str> {
    let refusals = [libc::EPERM, libc::EACCES, libc::ENOSYS];
    let reached = attempts.iter().filter(|(name, error)| !name.starts_with("allowed") && !refusals.contains(error));
    reached.map(|(name, _)| name.as_str()).collect()
}

/// Calls of an ordinary kernel that failed.
pub fn wrongly_refused(attempts: &BTreeMap<String, i32>) -> Vec<&str> {
    let failed = attempts.iter().filter(|(name, error)| name.starts_with("allowed") && **error != 0);
    failed.map(|(name, _)| name.as_str()).collect()
}
