//! The launcher: boots a guest with a backend, relays the command's input and output, and collects
//! what happened. Whatever dies, the rest is ended and nothing stays behind: the guest's files,
//! sockets and memory have no names, and every process dies with the one that started it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chronodisk_sim::{Nanos, RequestRecord};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::control::{self, BackendReport, BackendSpec, Readiness};
use crate::descriptors;
use crate::filesystem::FileSystem;
use crate::frames::{self, Decoder, Kind};
use crate::host::{self, HostCpu, HostLacks, UserModeLinux};
use crate::page::{ClockCounters, ClockOptions, ClockPage, CpuBase, INTERRUPT_NANOS_DEFAULT, IdlePace};
use crate::signals::{Signals, TerminalGuard};
use crate::spec::{CheckResult, Ending, GuestSpec, Mark, Stage};

/// What to run, and on what.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Text of the device's profile.
    pub profile: String,
    /// Name under which errors mention the profile.
    pub profile_label: String,
    /// Capacity in bytes instead of the profile's.
    pub capacity_bytes: Option<u64>,
    /// Where the device's bytes are kept.
    pub store: StoreChoice,
    /// Bounds of what is slept in every call of the model, uniformly; the guest must not notice.
    pub model_delay: RangeInclusive<Nanos>,
    /// Seed of everything that is random.
    pub seed: u64,
    /// File system to make and mount.
    pub file_system: FileSystem,
    /// Further words for mkfs.
    pub mkfs_options: Vec<String>,
    /// For `mount -o`.
    pub mount_options: Option<String>,
    /// Absolute path of the mount point in the guest.
    pub mount_point: String,
    /// The guest's I/O scheduler; its kernel's default if `None`.
    pub scheduler: Option<String>,
    /// The guest's memory in bytes.
    pub memory_bytes: u64,
    /// What the guest's time is made of.
    pub cpu_base: CpuBase,
    /// Share of the guest kernel's CPU time that counts.
    pub kernel_scale: f64,
    /// Taken off every stretch of user code.
    pub trap_nanos: u64,
    /// How idle time passes; `None` for jumps until somebody types, and at the host's pace from then on.
    pub idle_pace: Option<IdlePace>,
    /// The guest's clock at its start; `None` for the host's present time.
    pub start_time: Option<Duration>,
    /// Whether the guest writes to the host's tree itself.
    pub host_writes: bool,
    /// Whether to check the file system after it was unmounted.
    pub check: bool,
    /// Command and arguments.
    pub command: Vec<OsString>,
    /// Whether the command's standard output goes to our standard error.
    pub stdout_to_stderr: bool,
}

/// Where the device's bytes are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreChoice {
    /// In memory, at most so many bytes.
    Ram {
        /// Bytes that may be kept.
        budget_bytes: u64,
    },
    /// In a file, made if it does not exist.
    File {
        /// Its path.
        path: PathBuf,
    },
}

/// What happened in a run whose command was run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The command's exit status as a shell gives it.
    pub exit_status: i32,
    /// When each stage of the guest's life ended, in its own time.
    pub stages: BTreeMap<Stage, Nanos>,
    /// When the command began and ended, in the guest's time.
    pub command: (Nanos, Nanos),
    /// The host's time from the guest's start to its end.
    pub host_total: Duration,
    /// The host's time between the command's begin and end.
    pub host_command: Duration,
    /// Every request, in order of arrival.
    pub records: Vec<RequestRecord>,
    /// The guest's clock as it was set.
    pub clock: ClockOptions,
    /// What it counted from boot to power-off.
    pub counters: ClockCounters,
    /// The same up to the command's begin and its end.
    pub counters_at: (ClockCounters, ClockCounters),
    /// What the backend reported.
    pub backend: BackendReport,
    /// The guest kernel's release.
    pub kernel_release: String,
    /// What the file system's checker said, if asked for.
    pub check: Option<CheckResult>,
    /// The host's CPU on which the guest and its device ran.
    pub host_cpu: usize,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The host lacks something.
    #[error(transparent)]
    HostLacks(#[from] HostLacks),
    /// The device could not be made as asked.
    #[error("{0}")]
    Device(String),
    /// A stage of the guest failed.
    #[error("the guest failed at {stage:?}: {message}", stage = .0, message = .1)]
    Stage(Stage, String),
    /// The guest's kernel ended without a word.
    #[error("the guest's kernel died ({how})")]
    GuestDied {
        /// Its exit status.
        how: String,
        /// The last it printed.
        console: String,
    },
    /// The backend ended before the guest.
    #[error("the device's backend process died ({how}); the guest was ended")]
    BackendDied {
        /// Its exit status.
        how: String,
    },
    /// The user ended it.
    #[error("interrupted")]
    Interrupted {
        /// By this signal.
        signal: i32,
    },
    /// Something went wrong on the host.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the host said.
        source: io::Error,
    },
}

/// Says what was being done when the host refused.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, RunError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, RunError> {
        self.map_err(|source| RunError::Io { doing, source: source.into() })
    }
}

/// Runs the command in a guest on the emulated device.
///
/// `on_stage` is told as each stage of the guest's life ends. Call it from the process's main
/// thread: the guest dies with the thread that started it.
///
/// # Errors
/// When the host lacks something, the device can't be made, or the guest fails outside the command.
pub fn run(options: &RunOptions, on_stage: &mut dyn FnMut(Stage)) -> Result<RunOutcome, RunError> {
    let kernel = UserModeLinux::find()?;
    if let Some((program, package)) = options.file_system.maker() {
        host::require_program(program, package)?;
    }
    let signals = Signals::catch().doing("catching signals")?;
    let clock = clock_options(options);
    let page = ClockPage::create(&clock).doing("making the clock's page")?;
    let (exchange_guest, exchange_backend) = UnixStream::pair().doing("making a socket pair")?;
    let (vhost_guest, vhost_backend) = UnixStream::pair().doing("making a socket pair")?;
    let log = File::from(memfd_create("chronodisk-log", MemfdFlags::CLOEXEC).doing("making the request log")?);
    let page_fd = || page.fd().as_fd().try_clone_to_owned().doing("sharing the clock's page");

    let log_fd = log.as_fd().try_clone_to_owned().doing("sharing the request log")?;
    // The guest has one CPU, and it and its device never run at once: on one CPU of the host the
    // cost of switching between them is lowest and, above all, steady under load.
    let host_cpu = HostCpu::claim();
    let cpu = host_cpu.number;
    let backend = Backend::start(options, cpu, page_fd()?, exchange_backend.into(), vhost_backend.into(), log_fd)?;
    let guest = Guest::start(options, cpu, &kernel, page_fd()?, exchange_guest.into(), vhost_guest.into())?;
    let mut run = Run {
        options,
        page,
        log,
        backend,
        guest,
        signals,
        clock,
        relay: Relay::default(),
        terminal: None,
        stages: BTreeMap::new(),
        command_began: None,
        command_ended: None,
        ending: None,
        host_cpu,
    };
    run.say_hello(&kernel)?;
    run.relay_until_end(on_stage)?;
    run.collect()
}

fn clock_options(options: &RunOptions) -> ClockOptions {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at_a_shell = host::terminals()[0] && is_shell(&options.command);
    let idle_pace = options.idle_pace.unwrap_or(if at_a_shell { IdlePace::Host } else { IdlePace::Jump });
    ClockOptions {
        cpu_base: options.cpu_base,
        idle_pace,
        kernel_scale: options.kernel_scale,
        trap_nanos: options.trap_nanos,
        interrupt_nanos: INTERRUPT_NANOS_DEFAULT,
        realtime_start_nanos: options.start_time.unwrap_or_else(now).as_nanos() as u64,
        tsc_hertz: host::time_stamp_counter_hertz(),
    }
}

/// Whether the command is a shell that a person will type into.
fn is_shell(command: &[OsString]) -> bool {
    let name = command.first().and_then(|program| std::path::Path::new(program).file_name());
    command.len() == 1 && name.is_some_and(|name| SHELLS.iter().any(|&shell| name == shell))
}

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

struct Run<'a> {
    options: &'a RunOptions,
    page: ClockPage,
    log: File,
    backend: Backend,
    guest: Guest,
    signals: Signals,
    clock: ClockOptions,
    relay: Relay,
    terminal: Option<TerminalGuard>,
    stages: BTreeMap<Stage, Nanos>,
    command_began: Option<Edge>,
    command_ended: Option<Edge>,
    ending: Option<Ending>,
    host_cpu: HostCpu,
}

#[derive(Clone, Copy)]
struct Edge {
    guest: Nanos,
    host: Instant,
    counters: ClockCounters,
}

/// What waits to be relayed.
#[derive(Default)]
struct Relay {
    decoder: Decoder,
    to_guest: Vec<u8>,
    /// Sent to the guest and not yet read there.
    unread_bytes: usize,
    credit_bytes: usize,
    stdin_ended: bool,
    interrupts: u32,
}

impl Run<'_> {
    fn say_hello(&mut self, kernel: &UserModeLinux) -> Result<(), RunError> {
        let options = self.options;
        let identity = host::identity();
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let spec = GuestSpec {
            command: options.command.iter().map(bytes).collect(),
            environment: std::env::vars_os()
                .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
                .collect(),
            working_directory: std::env::current_dir()
                .doing("finding the working directory")?
                .as_os_str()
                .as_bytes()
                .to_vec(),
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups,
            umask: identity.umask,
            terminals: host::terminals(),
            window_size: host::window_size(),
            file_system: options.file_system,
            mkfs_options: options.mkfs_options.clone(),
            mount_options: options.mount_options.clone(),
            mount_point: options.mount_point.clone(),
            scheduler: options.scheduler.clone(),
            seed: options.seed,
            host_writes: options.host_writes,
            check: options.check,
            modules: kernel.modules.to_string_lossy().into_owned(),
        };
        let json = serde_json::to_vec(&spec).expect("plain data");
        frames::encode(Kind::Hello, &json, &mut self.relay.to_guest);
        Ok(())
    }

    fn relay_until_end(&mut self, on_stage: &mut dyn FnMut(Stage)) -> Result<(), RunError> {
        loop {
            let ready = self.wait()?;
            if ready.signals {
                for signal in self.signals.take() {
                    self.take_signal(signal)?;
                }
            }
            if ready.console {
                self.guest.read_console();
            }
            if ready.guest_line {
                self.read_guest(on_stage)?;
            }
            if ready.stdin {
                self.read_stdin();
            }
            self.write_guest()?;
            if let Some(status) = self.guest.child.try_wait().doing("waiting for the guest")? {
                self.read_guest(on_stage)?;
                self.guest.read_console();
                if self.ending.is_some() {
                    return Ok(());
                }
                return Err(self.why_guest_ended(status));
            }
            if let Some(status) = self.backend.ended()?
                && self.ending.is_none()
            {
                return Err(RunError::BackendDied { how: describe(status) });
            }
        }
    }

    fn wait(&self) -> Result<Ready, RunError> {
        let line = PollFlags::IN | if self.relay.may_send() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        let stdin = io::stdin();
        let takes_stdin = self.relay.credit_bytes > 0 && !self.relay.stdin_ended && host::owns_terminal();
        let stdin_flags = if takes_stdin { PollFlags::IN } else { PollFlags::empty() };
        let mut waits = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.guest.console, PollFlags::IN),
            PollFd::new(&self.guest.line, line),
            PollFd::new(&self.guest.pidfd, PollFlags::IN),
            PollFd::new(&self.backend.pidfd, PollFlags::IN),
        ];
        if takes_stdin {
            waits.push(PollFd::new(&stdin, stdin_flags));
        }
        // Standard input of a job in the background becomes ours without an event.
        let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut waits, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).doing("waiting for the guest"),
        }
        let ready = |index: usize| waits.get(index).is_some_and(|wait| !wait.revents().is_empty());
        Ok(Ready { signals: ready(0), console: ready(1), guest_line: ready(2), stdin: ready(5) })
    }

    fn read_guest(&mut self, on_stage: &mut dyn FnMut(Stage)) -> Result<(), RunError> {
        let mut bytes = [0; 64 << 10];
        loop {
            match self.guest.line.read(&mut bytes) {
                Ok(0) => break,
                Ok(got) => self.relay.decoder.feed(&bytes[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error).doing("reading from the guest"),
            }
        }
        loop {
            match self.relay.decoder.next() {
                Ok(Some((kind, payload))) => self.take_frame(kind, &payload, on_stage)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(RunError::Stage(Stage::Command, error.to_string())),
            }
        }
    }

    fn take_frame(&mut self, kind: Kind, payload: &[u8], on_stage: &mut dyn FnMut(Stage)) -> Result<(), RunError> {
        let unreadable = |error: serde_json::Error| RunError::Stage(Stage::Boot, error.to_string());
        match kind {
            Kind::Stdout => self.write_out(payload, !self.options.stdout_to_stderr),
            Kind::Stderr => self.write_out(payload, false),
            Kind::Credit => {
                let credit: [u8; 4] = payload.try_into().unwrap_or_default();
                self.relay.credit_bytes += u32::from_le_bytes(credit) as usize;
            }
            Kind::Taken => {
                let taken: [u8; 4] = payload.try_into().unwrap_or_default();
                let taken = u32::from_le_bytes(taken) as usize;
                self.relay.unread_bytes = self.relay.unread_bytes.saturating_sub(taken);
            }
            Kind::Mark => {
                let mark: Mark = serde_json::from_slice(payload).map_err(unreadable)?;
                self.take_mark(&mark);
                on_stage(mark.stage);
            }
            Kind::Ending => self.ending = Some(serde_json::from_slice(payload).map_err(unreadable)?),
            Kind::Hello | Kind::Stdin | Kind::StdinEnd | Kind::Signal | Kind::WindowSize => {}
        }
        Ok(())
    }

    fn take_mark(&mut self, mark: &Mark) {
        let nanos = u128::from(mark.time_stamp_counter) * 1_000_000_000 / u128::from(self.clock.tsc_hertz);
        let guest = Nanos::from_nanos(nanos as u64);
        self.stages.insert(mark.stage, guest);
        let edge = Edge { guest, host: Instant::now(), counters: self.page.counters() };
        match (mark.stage, self.command_began) {
            (Stage::Command, None) => {
                self.command_began = Some(edge);
                if host::terminals()[0] && host::owns_terminal() {
                    self.terminal = TerminalGuard::raw();
                }
            }
            (Stage::Command, Some(_)) => {
                self.command_ended = Some(edge);
                self.terminal = None;
            }
            _ => {}
        }
    }

    fn write_out(&mut self, bytes: &[u8], to_stdout: bool) {
        let result = if to_stdout {
            io::stdout().write_all(bytes).and_then(|()| io::stdout().flush())
        } else {
            io::stderr().write_all(bytes)
        };
        if result.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            // The reader is gone: the command learns it as it would without us.
            frames::encode(Kind::Signal, &[libc::SIGPIPE as u8], &mut self.relay.to_guest);
        }
    }

    fn read_stdin(&mut self) {
        let mut bytes = [0; 32 << 10];
        let most = self.relay.credit_bytes.min(bytes.len());
        match rustix::io::read(io::stdin(), &mut bytes[..most]) {
            Ok(0) => {
                self.relay.stdin_ended = true;
                frames::encode(Kind::StdinEnd, &[], &mut self.relay.to_guest);
            }
            Ok(got) => {
                self.relay.credit_bytes -= got;
                // Whoever types lives in the host's time, and so must the program between the keys.
                if host::terminals()[0] && self.options.idle_pace.is_none() {
                    self.page.set_idle_pace(IdlePace::Host);
                }
                frames::encode(Kind::Stdin, &bytes[..got], &mut self.relay.to_guest);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => {
                self.relay.stdin_ended = true;
                frames::encode(Kind::StdinEnd, &[], &mut self.relay.to_guest);
            }
        }
    }

    fn write_guest(&mut self) -> Result<(), RunError> {
        while self.relay.may_send() > 0 {
            match self.guest.line.write(&self.relay.to_guest[..self.relay.may_send()]) {
                Ok(put) => {
                    self.relay.to_guest.drain(..put);
                    self.relay.unread_bytes += put;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The guest is gone; the wait for its end says how.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.relay.to_guest.clear(),
                Err(error) => return Err(error).doing("writing to the guest"),
            }
        }
        Ok(())
    }

    /// The command's own signals go to the command; before it runs, and when the user insists,
    /// they end the guest.
    fn take_signal(&mut self, signal: i32) -> Result<(), RunError> {
        match signal {
            libc::SIGWINCH => {
                if let Some((rows, columns)) = host::window_size() {
                    let payload = [rows.to_le_bytes(), columns.to_le_bytes()].concat();
                    frames::encode(Kind::WindowSize, &payload, &mut self.relay.to_guest);
                }
                return Ok(());
            }
            libc::SIGCHLD => return Ok(()),
            _ => {}
        }
        let ends = matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT);
        self.relay.interrupts += u32::from(ends);
        let runs = self.command_began.is_some() && self.command_ended.is_none();
        if ends && (!runs || self.relay.interrupts >= INTERRUPTS_TO_INSIST) {
            return Err(RunError::Interrupted { signal });
        }
        if runs {
            frames::encode(Kind::Signal, &[signal as u8], &mut self.relay.to_guest);
        }
        Ok(())
    }

    fn why_guest_ended(&mut self, status: ExitStatus) -> RunError {
        // The guest ends at once when its backend does; give the backend the same chance to be seen.
        for _ in 0..20 {
            if status.code() != Some(EXIT_BACKEND_LOST) {
                break;
            }
            if let Ok(Some(backend)) = self.backend.ended() {
                return RunError::BackendDied { how: describe(backend) };
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        RunError::GuestDied { how: describe(status), console: self.guest.console_text() }
    }

    fn collect(mut self) -> Result<RunOutcome, RunError> {
        let host_total = self.guest.started.elapsed();
        let counters = self.page.counters();
        let (status, kernel_release, check) = match self.ending.take() {
            Some(Ending::Exited { status, kernel_release, check }) => (status, kernel_release, check),
            Some(Ending::Failed { stage, message }) => return Err(RunError::Stage(stage, message)),
            None => unreachable!("the relay ends without error only with an ending"),
        };
        let backend = self.backend.report()?;
        let records = crate::records::read(&mut self.log).doing("reading the request log")?;
        let (Some(began), Some(ended)) = (self.command_began, self.command_ended) else {
            return Err(RunError::Stage(Stage::Command, "the guest did not say when the command ran".into()));
        };
        Ok(RunOutcome {
            exit_status: status,
            stages: self.stages.clone(),
            command: (began.guest, ended.guest),
            host_total,
            host_command: ended.host - began.host,
            records,
            clock: self.clock,
            counters,
            counters_at: (began.counters, ended.counters),
            backend,
            kernel_release,
            check,
            host_cpu: self.host_cpu.number,
        })
    }
}

impl Relay {
    /// How many bytes the guest's line takes now.
    fn may_send(&self) -> usize {
        self.to_guest.len().min(frames::LINE_WINDOW_BYTES.saturating_sub(self.unread_bytes))
    }
}

struct Ready {
    signals: bool,
    console: bool,
    guest_line: bool,
    stdin: bool,
}

/// So many Ctrl-C end the guest even if the command ignores them.
const INTERRUPTS_TO_INSIST: u32 = 3;
/// The status with which the guest's kernel ends when its backend is gone; see `shim/clock.c`.
const EXIT_BACKEND_LOST: i32 = 79;
