//! The two processes of a run, as held by the launcher: the device's backend, and the guest's kernel.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::host::{self, own_process_group};
use super::outcome::{Doing, RunError};
use super::run_options::RunOptions;
use super::signals::Signals;
use super::sweeper::Sweeper;
use crate::confinement::{self, Needs, Refusals};
use crate::kernel::installed::UserModeLinux;
use crate::kernel::programs::HostLacks;
use crate::shared::control::{self, BackendReport, BackendSpec, LastWord, Readiness};
use crate::shared::descriptors;
use crate::shared::device_names::device_name;
use crate::shared::filesystem::FileSystem;
use crate::shared::layout::{
    CALENDAR_SOCKET, DEVICE_SOCKET_PREFIX, EXCHANGE_VARIABLE, FEED_VARIABLE, PAGE_VARIABLE, RECORDING_VARIABLE,
    SERIAL_OUT_VARIABLE, VHOST_VARIABLE,
};
use crate::shared::signals::asks_to_end;
use crate::shared::time::GuestTime;

/// Console text kept for crash reports.
const CONSOLE_BYTES_MAX: usize = 64 << 10;

/// The backend process, which is ended when this is dropped.
pub(crate) struct Backend {
    child: Child,
    pub pidfd: OwnedFd,
    control: UnixStream,
    /// The file system to be mounted on the first device.
    pub file_system: FileSystem,
    /// Whether each device is rotational.
    pub rotational: Vec<bool>,
    /// Its last message, once that was read.
    last_word: Option<io::Result<LastWord>>,
}

impl Backend {
    pub fn start(
        options: &RunOptions,
        cpu: usize,
        page: OwnedFd,
        exchange: OwnedFd,
        vhost: Vec<OwnedFd>,
        log: OwnedFd,
        signals: &Signals,
    ) -> Result<Self, RunError> {
        let (mut control, theirs) = UnixStream::pair().doing("making a socket pair")?;
        let mut command = Command::new(&options.executable);
        command.arg("guest-backend").stdin(Stdio::null()).stdout(Stdio::null());
        own_process_group(&mut command);
        let mut bequest = vec![
            (page, descriptors::PAGE),
            (exchange, descriptors::EXCHANGE),
            (log, descriptors::LOG),
            (theirs.into(), descriptors::CONTROL),
        ];
        bequest.extend(by_device(vhost));
        // A thread that waits for the host's time must not occupy the guest's CPU.
        // Several processors are several threads.
        let shares_a_cpu = options.time != GuestTime::Real && options.time.processors() == 1;
        let cpu = shares_a_cpu.then_some(cpu);
        descriptors::bequeath(&mut command, cpu.as_slice(), bequest);
        let child = command.spawn().doing("starting the backend process")?;
        drop(command);
        let pidfd = host::pidfd_of(&child).doing("watching the backend process")?;
        let control_again = control.try_clone().doing("sharing a socket")?;
        let file_system = options.file_system;
        let rotational = Vec::new();
        let mut backend = Backend { child, pidfd, control: control_again, file_system, rotational, last_word: None };
        let spec = BackendSpec {
            devices: options.devices.clone(),
            seed: options.seed,
            file_system,
            overwrite: options.overwrite,
            model_delay: options.model_delay.clone().into_inner(),
            patience: (options.answer_patience, options.reconnect_patience),
            sample_every: options.sample_every,
        };
        control::send(&mut control, &spec).doing("telling the backend what to be")?;
        // The model may be read from a large file, or be remote.
        while !backend.speaks_or(signals)? {
            if let Some(signal) = signals.take().into_iter().find(|signal| asks_to_end(*signal)) {
                return Err(RunError::Interrupted { signal });
            }
        }
        match control::receive(&control) {
            Ok(Readiness::Ready { file_system, rotational }) => {
                (backend.file_system, backend.rotational) = (file_system, rotational);
                Ok(backend)
            }
            Ok(Readiness::Refused(message)) => Err(RunError::Device(message)),
            Ok(Readiness::ModelLost(message)) => Err(RunError::ModelLost(message)),
            Err(_) => {
                let status = backend.child.wait().doing("waiting for the backend")?;
                Err(RunError::BackendDied { how: describe(status) })
            }
        }
    }

    pub fn ended(&mut self) -> Result<Option<ExitStatus>, RunError> {
        self.child.try_wait().doing("waiting for the backend")
    }

    /// Waits until it has sent a message or ended, a signal has come, or some time has passed. Returns whether it has
    /// sent a message or ended.
    pub fn speaks_or(&self, signals: &Signals) -> Result<bool, RunError> {
        let mut waits = [
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::new(&self.pidfd, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
        ];
        match poll(&mut waits, Some(&PROGRESS_TIME)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing("waiting for the backend"),
        }
        Ok(waits[..2].iter().any(|wait| !wait.revents().is_empty()))
    }

    /// Its report at the end of the guest.
    pub fn report(&mut self) -> Result<BackendReport, RunError> {
        self.hear_last_word();
        let status = self.child.wait().doing("waiting for the backend")?;
        match self.last_word.take() {
            Some(Ok(LastWord::Report(report))) => Ok(report),
            Some(Ok(LastWord::ModelLost(what))) => Err(model_lost(&what)),
            Some(Err(_)) | None => Err(RunError::BackendDied { how: describe(status) }),
        }
    }

    /// Its report about the stores after a failed run. The guest is ended, so the backend closes them. If `is_urgent`,
    /// the user waits for the end of the run.
    pub fn notices_after(mut self, guest: Guest, is_urgent: bool) -> Vec<String> {
        drop(guest);
        let patience = if is_urgent { CLOSING_MAX } else { 5 * CLOSING_MAX };
        let _ = self.control.set_read_timeout(Some(patience));
        match self.hear_last_word() {
            Ok(LastWord::Report(report)) => report.store_notices.clone(),
            _ => Vec::new(),
        }
    }

    /// Whether it ended because a model was lost. Call only after its end.
    pub fn lost_its_model(&mut self) -> bool {
        matches!(self.hear_last_word(), Ok(LastWord::ModelLost(_)))
    }

    /// Reason for an unexpected end.
    pub fn why_it_ended(&mut self, status: ExitStatus) -> RunError {
        match self.hear_last_word() {
            Ok(LastWord::ModelLost(what)) => model_lost(what),
            _ => RunError::BackendDied { how: describe(status) },
        }
    }

    fn hear_last_word(&mut self) -> &io::Result<LastWord> {
        self.last_word.get_or_insert_with(|| control::receive(&self.control))
    }
}

fn model_lost(what: &str) -> RunError {
    RunError::ModelLost(format!("{what}; the guest was ended"))
}

/// Each device's connection, with its descriptor number.
fn by_device(vhost: Vec<OwnedFd>) -> impl Iterator<Item = (OwnedFd, RawFd)> {
    vhost.into_iter().enumerate().map(|(index, fd)| (fd, descriptors::vhost(index)))
}

impl Drop for Backend {
    fn drop(&mut self) {
        // The guest is gone, so the backend closes its stores and ends.
        let mut end = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let _ = poll(&mut end, Some(&Timespec { tv_sec: CLOSING_MAX.as_secs() as i64, tv_nsec: 0 }));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Interval at which a wait returns for other work.
const PROGRESS_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// Longest time for a backend to close its stores after a failed run. Acknowledged data are durable before.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// The guest's kernel process. It and all of its processes are killed when this is dropped.
pub(crate) struct Guest {
    pub child: Child,
    pub pidfd: OwnedFd,
    pub line: UnixStream,
    pub console: File,
    console_tail: Vec<u8>,
    pub started: Instant,
    /// Receives the system calls refused to it.
    refusals: Option<Refusals>,
    /// The sweeper, dropped last.
    pub sweeper: Sweeper,
}

/// Descriptors inherited by the guest's kernel.
pub(crate) struct Inheritance {
    pub page: OwnedFd,
    pub exchange: OwnedFd,
    /// Connection of each device.
    pub vhost: Vec<OwnedFd>,
    /// The feed of a replay.
    pub feed: Option<OwnedFd>,
    /// File for recorded system calls.
    pub recording: Option<OwnedFd>,
}

impl Guest {
    pub fn start(
        options: &RunOptions,
        cpus: &[usize],
        kernel: &UserModeLinux,
        inherited: Inheritance,
    ) -> Result<Self, RunError> {
        let Inheritance { page, exchange, vhost, feed, recording } = inherited;
        let (line, theirs) = UnixStream::pair().doing("making a socket pair")?;
        let also_theirs = theirs.try_clone().doing("sharing a socket")?;
        line.set_nonblocking(true).doing("preparing the guest's line")?;
        let (console, console_writer) = io::pipe().doing("making a pipe")?;
        rustix::io::ioctl_fionbio(&console, true).doing("preparing the guest's console")?;
        let library = memfd_create("chronodisk-clock.so", MemfdFlags::CLOEXEC).doing("placing the guest's clock")?;
        File::from(library.try_clone().doing("placing the guest's clock")?)
            .write_all(clock_library()?)
            .doing("placing the guest's clock")?;

        let mut command = kernel_command(options, kernel, vhost.len())?;
        let output = console_writer.try_clone().doing("sharing a pipe")?;
        command.stdout(output.try_clone().doing("sharing a pipe")?).stderr(output);
        let mut bequest = vec![
            (page, descriptors::PAGE),
            (exchange, descriptors::EXCHANGE),
            (theirs.into(), descriptors::SERIAL_IN),
            (also_theirs.into(), descriptors::SERIAL_OUT),
            (console_writer.into(), descriptors::CONSOLE),
            (library, descriptors::CLOCK_LIBRARY),
            (path_of(&options.executable).doing("finding this executable")?, descriptors::EXECUTABLE),
        ];
        bequest.extend(by_device(vhost));
        let needs = Needs { reads_programs: feed.is_some() || recording.is_some(), writes_programs: feed.is_some() };
        if let Some(feed) = feed {
            command.env(FEED_VARIABLE, descriptors::FEED.to_string());
            bequest.push((feed, descriptors::FEED));
        }
        if let Some(recording) = recording {
            command.env(RECORDING_VARIABLE, descriptors::RECORDING.to_string());
            bequest.push((recording, descriptors::RECORDING));
        }
        descriptors::bequeath(&mut command, cpus, bequest);
        place_by_no_chance(&mut command);
        let confinement = (!options.host_writes).then(|| confinement::confine(&mut command, needs)).transpose();
        let confinement = confinement.doing("confining the guest")?;
        let mut sweeper = Sweeper::start(&options.executable).doing("starting the process that clears up")?;
        let started = Instant::now();
        let child = command.spawn().doing("starting the guest's kernel")?;
        drop(command);
        sweeper.watch(child.id(), &kernel.executable).doing("telling the process that clears up")?;
        let refusals = confinement.map(|confinement| confinement.listen(child.id())).transpose();
        let refusals = refusals.doing("listening for refused system calls")?.flatten();
        let pidfd = host::pidfd_of(&child).doing("watching the guest's kernel")?;
        let console = File::from(OwnedFd::from(console));
        let console_tail = Vec::new();
        Ok(Guest { child, pidfd, line, console, console_tail, started, refusals, sweeper })
    }

    /// Its exit status once it has ended. Processes that it left are killed first, while its process id still names
    /// their group.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, RunError> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), options), Ok(Some(_))) {
            // SAFETY: a system call without pointers; the kernel has not been waited for.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        }
        self.child.try_wait().doing("waiting for the guest")
    }

    /// Reads available output. Returns whether more may come.
    pub fn read_console(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        let has_ended = loop {
            match self.console.read(&mut bytes) {
                Ok(got @ 1..) => self.console_tail.extend_from_slice(&bytes[..got]),
                Ok(0) => break true,
                Err(_) => break false,
            }
        };
        let excess = self.console_tail.len().saturating_sub(CONSOLE_BYTES_MAX);
        self.console_tail.drain(..excess);
        !has_ended
    }

    /// Number of refusals of each system call, by name; `None` if refusals were not received.
    pub fn refused_calls(&self) -> Option<BTreeMap<String, u64>> {
        self.refusals.as_ref().map(Refusals::counts)
    }

    pub fn console_text(&self) -> String {
        String::from_utf8_lossy(&self.console_tail).trim().to_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The kernel made a session of its own, so its group holds all of its processes. Traced processes outside
            // the group are killed by the host, because the guest's kernel traces them.
            // SAFETY: the child has not been waited for, so its number is still its own.
            unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The guest's kernel with its command line and environment.
fn kernel_command(options: &RunOptions, kernel: &UserModeLinux, devices: usize) -> Result<Command, RunError> {
    let vhost_numbers: Vec<String> = (0..devices).map(|index| descriptors::vhost(index).to_string()).collect();
    let keeps_time = matches!(options.time, GuestTime::Exact { .. });
    let processors = options.time.processors();
    let mut command = Command::new(&kernel.executable);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LD_BIND_NOW", "1")
        .env("LD_PRELOAD", format!("/proc/self/fd/{}", descriptors::CLOCK_LIBRARY))
        .env(PAGE_VARIABLE, descriptors::PAGE.to_string())
        .env(EXCHANGE_VARIABLE, descriptors::EXCHANGE.to_string())
        .env(VHOST_VARIABLE, vhost_numbers.join(","))
        .env(SERIAL_OUT_VARIABLE, descriptors::SERIAL_OUT.to_string())
        .arg(format!("mem={}K", options.memory_bytes >> 10))
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", if options.host_writes { "rw" } else { "ro" }])
        // Each connects to a name known to the clock library; the number is virtio-blk's.
        .args((0..devices).map(|index| format!("virtio_uml.device={DEVICE_SOCKET_PREFIX}{}:2", device_name(index))))
        // The delay loop is not calibrated, because that would take ten ticks, which are seconds of the host.
        .arg("lpj=20000000")
        // Creating the 512 device nodes of BSD's pseudo-terminals takes two thirds of the boot.
        .arg("pty.legacy_count=0")
        .args(keeps_time.then(|| format!("time-travel=ext:{CALENDAR_SOCKET}")))
        // Several processors need programs that are not traced.
        .args((processors > 1).then(|| format!("ncpus={processors}")))
        .args((processors > 1).then_some("seccomp=on"))
        .args(["con=null", "ssl=null", "quiet", "noreboot", "panic=-1"])
        .arg(format!("con0=null,fd:{}", descriptors::CONSOLE))
        .arg(format!("ssl0=fd:{},fd:{}", descriptors::SERIAL_IN, descriptors::SERIAL_OUT))
        // No file can be created there, so the guest's kernel leaves no files or sockets of its own.
        .arg("uml_dir=/proc/self/")
        // Uses the link, because the kernel's command line can't contain a path with a space. The kernel can't read
        // other processes' links; see `confinement`.
        .arg(format!("init=/proc/self/fd/{}", descriptors::EXECUTABLE))
        // Identifies the guest of a run. The kernel ignores parameters of unknown modules.
        .arg(format!("chronodisk.launcher={}", std::process::id()))
        .args(["--", "guest-init"])
        .current_dir("/")
        // For reading and writing, because the kernel may open no file for writing, not even this one.
        .stdin(File::options().read(true).write(true).open("/dev/null").doing("opening /dev/null")?);
    Ok(command)
}

/// A descriptor that only names the executable.
fn path_of(executable: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(executable, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// Gives the guest's kernel equal addresses in each run.
///
/// User Mode Linux uses the memory between its program break and the end of its memory for the guest. A random break
/// would give each run up to 32 MiB less, and other thresholds for writing dirty pages.
fn place_by_no_chance(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: a system call that is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // A sandbox may forbid it. The guest still works, but runs may differ.
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            Ok(())
        });
    }
}

/// The preload library with the guest's clock.
const CLOCK_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.so"));
/// The clock with traps for undefined behaviour, which end the guest. Debug builds contain it for the tests.
#[cfg(trapping_clock)]
const TRAPPING_CLOCK_LIBRARY: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/clock-trapping.so")));
#[cfg(not(trapping_clock))]
const TRAPPING_CLOCK_LIBRARY: Option<&[u8]> = None;
/// Environment variable that runs guests on the trapping clock.
const TRAPPING_VARIABLE: &str = "CHRONODISK_TRAPPING_CLOCK";

fn clock_library() -> Result<&'static [u8], HostLacks> {
    if std::env::var_os(TRAPPING_VARIABLE).is_none() {
        return Ok(CLOCK_LIBRARY);
    }
    TRAPPING_CLOCK_LIBRARY.ok_or_else(|| HostLacks {
        what: format!("this build carries no clock that traps, for which {TRAPPING_VARIABLE} asks"),
        help: "build for debugging, with a C compiler that has -fsanitize=undefined".into(),
    })
}

/// An exit status in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "no exit status".into(),
    }
}

/// Reason of a panic of the guest's kernel, in words, from the end of its console.
pub(crate) fn panic_reason(console: &str) -> Option<String> {
    const BEGINNING: &str = "Kernel panic - not syncing: ";
    let (_, reason) = console.lines().rev().find_map(|line| line.split_once(BEGINNING))?;
    Some(format!("panic: {}", reason.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panics_reason_is_found_between_other_lines() {
        let console = "[    1.2] Kernel panic - not syncing: sysrq triggered crash\r\nCPU: 0 PID: 27\n---[ end";
        assert_eq!(panic_reason(console).as_deref(), Some("panic: sysrq triggered crash"));
        assert_eq!(panic_reason("Kernel command line: panic=1"), None);
    }
}
