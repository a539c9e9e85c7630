//! The steps of the check of one state.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use chronodisk_sim::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::shared::device_names::{DEVICE, DEVICE_VARIABLE, device_name};
use crate::shared::filesystem::FileSystem;
use crate::shared::states::{Caller, StateStep, StatesOptions};

/// Bytes of a step's output that a report has.
const OUTPUT_BYTES_MAX: usize = 2048;

/// One state, on its device.
pub(super) struct State<'a> {
    pub options: &'a StatesOptions,
    pub caller: &'a Caller,
    pub device: usize,
    /// Called at the begin of each step.
    pub begins: &'a mut dyn FnMut(StateStep),
}

/// A failed step.
pub(super) struct Failed {
    pub step: StateStep,
    pub output: String,
    /// A process of it stays in the kernel, and holds the device or the mount point.
    pub is_stuck: bool,
}

type Step = Result<(), Failed>;

impl Failed {
    fn new(step: StateStep, output: impl Into<String>) -> Self {
        Failed { step, output: output.into(), is_stuck: false }
    }
}

impl State<'_> {
    /// Takes the state through all steps.
    ///
    /// The output names the first device, so that it does not depend on the place of the state in its guest.
    pub fn check(&mut self) -> Step {
        let device = self.device();
        self.take_steps().map_err(|failed| Failed { output: failed.output.replace(&device, DEVICE), ..failed })
    }

    fn take_steps(&mut self) -> Step {
        self.copy_acknowledged()
            .map_err(|error| Failed::new(StateStep::Check, format!("the acknowledged lines can't be read: {error}")))?;
        if self.options.file_system == FileSystem::None {
            return self.run_check();
        }
        self.repair_without_journal();
        self.mount(StateStep::Mount)?;
        self.unmount()?;
        self.check_file_system()?;
        self.mount(StateStep::Remount)?;
        let checked = self.run_check();
        if checked.as_ref().is_err_and(|failed| failed.is_stuck) {
            return checked;
        }
        let unmounted = self.unmount();
        checked.and(unmounted)
    }

    fn device(&self) -> String {
        format!("/dev/{}", device_name(self.device))
    }

    /// ext2 has no journal: its checker is its recovery.
    fn repair_without_journal(&mut self) {
        if self.options.file_system == FileSystem::Ext2 {
            (self.begins)(StateStep::Mount);
            let _ = output_of(Command::new("e2fsck").args(["-f", "-y", &self.device()]), self.options.check_timeout);
        }
    }

    fn mount(&mut self, step: StateStep) -> Step {
        (self.begins)(step);
        let options = self.options;
        fs::create_dir_all(&options.mount_point).map_err(|error| Failed::new(step, error.to_string()))?;
        let kind = options.mount_type.as_deref().unwrap_or(options.file_system.name());
        let mut command = Command::new("mount");
        command.args(["-t", kind]);
        if let Some(given) = &options.mount_options {
            command.args(["-o", given]);
        }
        self.expect_success(step, command.arg(self.device()).arg(&options.mount_point))
    }

    fn unmount(&mut self) -> Step {
        (self.begins)(StateStep::Unmount);
        let at = self.options.mount_point.as_str();
        for _ in 0..100 {
            match unmount(at, UnmountFlags::empty()) {
                Ok(()) => {
                    self.forget();
                    return Ok(());
                }
                Err(rustix::io::Errno::BUSY) => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(Failed::new(StateStep::Unmount, format!("{at}: {error}"))),
            }
        }
        // The next state needs the mount point.
        let _ = unmount(at, UnmountFlags::DETACH);
        Err(Failed::new(StateStep::Unmount, format!("{at} stayed busy")))
    }

    /// btrfs remembers a device by its UUID, which all states have.
    fn forget(&self) {
        if self.options.file_system == FileSystem::Btrfs {
            let words = ["device", "scan", "--forget"];
            let _ = output_of(Command::new("btrfs").args(words), self.options.check_timeout);
        }
    }

    fn check_file_system(&mut self) -> Step {
        let Some(words) = self.options.file_system.checker(&self.device()) else { return Ok(()) };
        (self.begins)(StateStep::FileSystem);
        self.expect_success(StateStep::FileSystem, Command::new(&words[0]).args(&words[1..]))
    }

    /// Copies the acknowledged lines to the kernel's own file system of devices, because a mount may hide the host's
    /// file.
    fn copy_acknowledged(&self) -> io::Result<()> {
        fs::copy(&self.options.acknowledged[self.device], self.acknowledged())?;
        fs::set_permissions(self.acknowledged(), fs::Permissions::from_mode(0o444))
    }

    fn acknowledged(&self) -> String {
        format!("/dev/chronodisk-acknowledged-{}", self.device)
    }

    fn run_check(&mut self) -> Step {
        (self.begins)(StateStep::Check);
        let mut command = Command::new("sh");
        command.args(["-c", &self.options.check]);
        command.env("CHRONODISK_ACK", self.acknowledged());
        command.env(DEVICE_VARIABLE, self.device());
        let Caller { uid, gid, groups } = self.caller.clone();
        if self.options.file_system != FileSystem::None {
            command.current_dir(&self.options.mount_point);
        } else {
            own(Path::new(&self.device()), uid, gid)
                .map_err(|error| Failed::new(StateStep::Check, error.to_string()))?;
        }
        // SAFETY: only system calls between fork and exec; the data were made before.
        unsafe {
            command.pre_exec(move || {
                let done = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
                done(libc::setgroups(groups.len(), groups.as_ptr()))?;
                done(libc::setgid(gid))?;
                done(libc::setuid(uid))
            });
        }
        self.expect_success(StateStep::Check, &mut command)
    }

    fn expect_success(&self, step: StateStep, command: &mut Command) -> Step {
        let timeout = self.options.check_timeout;
        match output_of(command, timeout) {
            Ok((Ended::InTime(status), _)) if status.success() => Ok(()),
            Ok((ended, output)) => {
                let is_stuck = matches!(ended, Ended::Stuck);
                let ended = match ended {
                    Ended::InTime(status) if output.is_empty() => status.to_string(),
                    Ended::InTime(_) => String::new(),
                    Ended::Killed => format!("it had not ended after {timeout}, and was killed"),
                    Ended::Stuck => {
                        format!("it had not ended after {timeout}, and can't be killed: it waits in the kernel")
                    }
                };
                Err(Failed { step, output: [output, ended].join("\n").trim().to_owned(), is_stuck })
            }
            Err(error) => Err(Failed::new(step, format!("{}: {error}", command.get_program().display()))),
        }
    }
}

fn own(device: &Path, uid: u32, gid: u32) -> io::Result<()> {
    std::os::unix::fs::chown(device, Some(uid), Some(gid))
}

/// The end of a command.
enum Ended {
    InTime(ExitStatus),
    /// The timeout had passed.
    Killed,
    /// It can't be killed either.
    Stuck,
}

/// Longest time on the guest's clock for a killed command to end, unless it waits in the kernel.
const KILLED_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Runs a command to its end, or until a timeout on the guest's clock, and kills all processes that it leaves behind.
/// Its output goes to a file, which needs no reader meanwhile.
fn output_of(command: &mut Command, timeout: Nanos) -> io::Result<(Ended, String)> {
    let mut file = File::from(rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC)?);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let in_time = wait_for(pid, Duration::from_nanos(timeout.as_nanos()));
    // They would keep the file system busy. This process and the guest's first one are spared, and there are no others.
    // SAFETY: the call takes no pointer.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    let status = if wait_for(pid, KILLED_ENDS_WITHIN)? { Some(child.wait()?) } else { None };
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let ended = match (in_time?, status) {
        (true, Some(status)) => Ended::InTime(status),
        (false, Some(_)) => Ended::Killed,
        (_, None) => Ended::Stuck,
    };
    Ok((ended, String::from_utf8_lossy(&bytes).trim().to_owned()))
}

/// Waits for the end of a child, which stays to be waited for. Returns whether it came before the timeout.
fn wait_for(child: Pid, timeout: Duration) -> io::Result<bool> {
    let held = pidfd_open(child, PidfdFlags::empty())?;
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&held, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
