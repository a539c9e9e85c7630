//! Common part of `mount` and `whatif`: a program on this host, on an emulated block device.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chronodisk_engine::dilation::DilationOptions;
use chronodisk_engine::ending::{EndRequests, signal_name, status_of};
use chronodisk_engine::{Engine, MonotonicClock};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Server, ServerOptions, ServerOutcome};
use chronodisk_guest::FileSystem;
use chronodisk_native::{
    self as native, Attachment, CommandScope, Ended, NativeError, Observation, Program, Start, WayChoice,
};
use chronodisk_report::{NativeResult, Phase, PhaseName};
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use chronodisk_store::RamStore;
use clap::Args;

use crate::arguments::DeviceOptions;
use crate::device::Device;
use crate::failure::{Failure, command_began, status};
use crate::memory::host_memory_bytes;
use crate::notes::note;
use crate::quantity;
use crate::result::{server_failure, settings_of};
use crate::signals::{EndSignals, Keyboard};

/// Options of the block device and its file system, without the device's name.
#[derive(Debug, Args)]
#[command(mut_arg("seed", |seed| {
    seed.help("Seeds all random numbers but the UUIDs of XFS and btrfs, which differ in each run")
}))]
pub struct DeviceArguments {
    /// Capacity, state, speed and limits of the device, and the seed.
    #[command(flatten)]
    pub device: DeviceOptions,

    /// Makes this file system on the device and mounts it; none leaves the device empty
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = file_system_parser())]
    pub fs: FileSystem,

    /// Mounts the file system at this existing directory, for CMD alone
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    pub mount: PathBuf,

    /// Passes these options to mkfs; several are separated by spaces and quoted together
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub mkfs_options: Option<String>,

    /// Passes these options to mount -o, such as noatime,commit=30
    #[arg(long, value_name = "OPTIONS")]
    pub mount_options: Option<String>,

    /// Sets the block device's I/O scheduler
    #[arg(long, value_name = "NAME", default_value = "none")]
    pub scheduler: String,

    /// Runs these shell commands on the mounted file system before CMD. The file system is then mounted anew, so that
    /// nothing of it is cached
    #[arg(long, value_name = "SH")]
    pub setup: Option<OsString>,

    /// Limits the host memory for the device's bytes (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub ram_budget: Option<u64>,
}

fn file_system_parser() -> impl clap::builder::TypedValueParser<Value = FileSystem> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(FileSystem::NATIVE.map(FileSystem::name)).try_map(|name| name.parse::<FileSystem>())
}

/// Longest time for a step before or after CMD to end.
const STEP_ENDING_MAX: Duration = Duration::from_secs(1);

impl DeviceArguments {
    /// The device with this name, if a native program can run on it.
    pub fn load(&self, name: &str) -> Result<Device, Failure> {
        let device = self.device.load(name)?.without_zones()?;
        if device.has_host_queue() {
            return Err(Failure::usage(format_args!("{} includes a host's request queue", device.name())).help(
                "this host's kernel has its own queue, so requests would wait twice; use a profile without a host queue",
            ));
        }
        let has_options = self.mkfs_options.is_some() || self.mount_options.is_some();
        if self.fs == FileSystem::None && has_options {
            return Err(Failure::usage(
                "--mkfs-options and --mount-options can't be used with --fs none, which makes no file system",
            ));
        }
        if self.fs != FileSystem::None && !(self.mount.is_absolute() && self.mount.is_dir()) {
            let path = self.mount.display();
            return Err(Failure::usage(format!("--mount {path}: expected the absolute path of a directory")));
        }
        Ok(device)
    }
}

/// The signals that ask this process to end.
pub struct Interruption(EndSignals);

impl Interruption {
    /// Catches signals from now on.
    pub fn watch() -> Result<Self, Failure> {
        EndSignals::catch(Keyboard::IsThePrograms).map(Interruption)
    }

    /// Runs a step before or after CMD. `break_off` is called in parallel, if the step continues for a second after a
    /// signal, if a second signal comes, or if a helper process has ended.
    pub fn step<T>(&self, helpers: &[OwnedFd], break_off: impl FnOnce() + Send, step: impl FnOnce() -> T) -> T {
        // Without the pair, signals do not interrupt the step.
        let Ok((done, tell_done)) = UnixStream::pair() else { return step() };
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut asked: Option<Instant> = None;
                loop {
                    let left = asked.map(|at| STEP_ENDING_MAX.saturating_sub(at.elapsed()));
                    let ended = [done.as_fd()].into_iter().chain(helpers.iter().map(AsFd::as_fd)).collect::<Vec<_>>();
                    match self.0.wait(&ended, left) {
                        None => {}
                        Some(0) => return,
                        Some(_) => return break_off(),
                    }
                    if self.came() {
                        let at = *asked.get_or_insert_with(Instant::now);
                        let insists = self.0.request().is_some_and(|request| request.insists);
                        if insists || at.elapsed() >= STEP_ENDING_MAX {
                            return break_off();
                        }
                    }
                }
            });
            let result = step();
            drop(tell_done);
            result
        })
    }

    /// Whether it was asked to end.
    pub fn came(&self) -> bool {
        self.0.signal().is_some()
    }

    /// The exit status of a process that the signal ended, as shells have it.
    pub fn status(&self) -> u8 {
        status_of(self.0.signal().unwrap_or_default())
    }

    /// The signal's name.
    pub fn name(&self) -> &'static str {
        signal_name(self.0.signal().unwrap_or_default())
    }
}

/// A program and its scope.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    pub command: &'a [OsString],
    /// Standard output is for the result.
    pub stdout_to_stderr: bool,
    pub scope: &'a CommandScope,
    /// The program of the helper processes.
    pub executable: &'a Path,
    pub interruption: &'a Interruption,
}

/// A program on an emulated device.
pub struct NativeRun<'a> {
    pub arguments: &'a DeviceArguments,
    pub device: &'a Device,
    /// The drivers that may make the block device.
    pub way: WayChoice,
    pub launch: Launch<'a>,
}

/// The command's part of a repetition.
pub struct Ran {
    pub status: u8,
    /// The host's monotonic clock at its beginning and end.
    pub from: Duration,
    pub until: Duration,
    /// The failure that ended it, if the command did not end itself.
    pub failure: Option<Failure>,
    pub asked_to_end: bool,
    /// The observation, if one was requested.
    pub observation: Option<Observation>,
    /// Total time of its device's requests, if the kernel accounts for it.
    pub request_time: Option<Duration>,
}

impl Ran {
    /// A run that began at this instant, without further results.
    fn began(from: Duration) -> Ran {
        Ran {
            status: status::OWN_FAILURE,
            from,
            until: from,
            failure: None,
            asked_to_end: false,
            observation: None,
            request_time: None,
        }
    }
}

/// Reason why a run whose command has ended is a failure of Chronodisk itself, according to the server. A command that
/// got an error instead of its bytes counts, too.
pub fn native_own_failure(outcome: &ServerOutcome) -> Option<Failure> {
    let statistics = &outcome.statistics;
    let first = statistics.first_store_error.as_deref().unwrap_or("no reason was given");
    let store = (statistics.store_errors > 0)
        .then(|| format!("the store failed {} requests of the device: {first}", statistics.store_errors));
    // The store is in memory, so only its budget can be exceeded.
    let help = "give a larger --ram-budget; `chronodisk serve --attach auto --store overflow:FILE --run 'SH'` keeps what \
                memory has no room for in a file";
    let store = store.map(|failed| Failure::host(failed).help(help));
    server_failure(outcome).map(Failure::host).or(store)
}

/// A server of a fresh device.
pub fn serve_native(arguments: &DeviceArguments, device: &Device, seed: u64) -> Result<Server, Failure> {
    let info = device.info();
    let size_bytes = info.capacity_sectors * SECTOR_BYTES;
    let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
    let offer = ServerOffer::new(vec![Export::new("", size_bytes)], Tls::Off).map_err(Failure::usage)?;
    let clock = MonotonicClock::new();
    let mut engine = Engine::new();
    engine.set_host_clock(Box::new(clock.clone()));
    let index = engine.attach(device.model_with_seed(seed)?);
    let store = Box::new(RamStore::new(size_bytes, budget_bytes));
    // The attachment keeps processors awake. Server threads that did so would keep the loop driver's worker from an
    // idle processor: it would wait behind computing programs for milliseconds.
    let options = ServerOptions { realtime: false, ..ServerOptions::default() };
    Server::new(engine, index, store, offer, clock, options).map_err(cant_serve)
}

impl NativeRun<'_> {
    /// A server of a fresh device.
    pub fn server(&self, seed: u64) -> Result<Server, Failure> {
        serve_native(self.arguments, self.device, seed)
    }

    /// Runs everything that needs the block device, which is detached afterwards. An error means that the command has
    /// not begun.
    ///
    /// With any `predictions` the command is observed; the first of them may freeze it.
    pub fn on_device(&self, server: &mut Server, predictions: Vec<DilationOptions>) -> Result<Done, Failure> {
        let info = self.device.info();
        server.skip_waits();
        let (scheduler, executable) = (&self.arguments.scheduler, self.launch.executable);
        let attached = native::attach(server, info, false, self.way, scheduler, executable);
        let mut attachment = attached.map_err(native_failure)?;
        let native = settings_of(&attachment);
        note(format_args!("block device: {}", native.line()));
        let phases = Phases { server, phases: Vec::new() };
        let done = self.on_attachment(&mut attachment, phases, native, predictions);
        // Dirty data are written now.
        let disconnector = attachment.disconnector();
        self.launch.interruption.step(&[], || disconnector.disconnect(), || drop(attachment));
        done
    }

    fn on_attachment(
        &self,
        attachment: &mut Attachment,
        mut phases: Phases<'_>,
        native: NativeResult,
        predictions: Vec<DilationOptions>,
    ) -> Result<Done, Failure> {
        let Launch { scope, interruption, .. } = self.launch;
        let disconnector = attachment.disconnector();
        let helpers: Vec<OwnedFd> =
            [attachment.pidfd(), scope.pidfd()].iter().filter_map(|fd| fd.try_clone_to_owned().ok()).collect();
        let break_off = || {
            disconnector.disconnect();
            scope.end_all();
        };
        let mounted = interruption.step(&helpers, break_off, || self.prepare(attachment, &mut phases));
        // The failure of a step is then only a consequence.
        if let Some(failure) = helper_lost(attachment, scope) {
            interruption.step(&helpers, break_off, || drop(mounted));
            return Err(failure);
        }
        let mounted = mounted?;
        if interruption.came() {
            interruption.step(&helpers, break_off, || drop(mounted));
            return Err(Failure::host("interrupted"));
        }
        let is_raw = self.arguments.fs == FileSystem::None;
        if is_raw {
            // Like a disk opened by CMD alone: its dirty data are written when it closes the device.
            attachment.leave().map_err(native_failure)?;
        }
        phases.server.stop_skipping();
        let mut ran = self.launch.command(attachment.path(), Some(attachment), predictions)?;
        let throttles_write_back = attachment.throttles_write_back();
        let server = phases.server;
        let (server_now, host_now) = (server.now(), monotonic());
        let [from, until] =
            [ran.from, ran.until].map(|at| server_now.saturating_sub(nanos(host_now.saturating_sub(at))));
        phases.push(PhaseName::Command, from, until, None);
        // The run time has ended.
        server.skip_waits();
        if is_raw && let Err(error) = interruption.step(&helpers, break_off, || attachment.take()) {
            ran.failure.get_or_insert(native_failure(error));
        }
        if let Some(mounted) = mounted {
            let (begin, host_began) = (server.now(), Instant::now());
            let unmounted = interruption.step(&helpers, break_off, || mounted.unmount());
            if let Err(error) = unmounted
                && !interruption.came()
            {
                ran.failure.get_or_insert(native_failure(error));
            }
            phases.push(PhaseName::Unmount, begin, server.now(), Some(host_began.elapsed()));
        }
        if let Some(lost) = helper_lost(attachment, scope) {
            ran.failure = Some(lost);
        }
        Ok(Done { ran, window: from..until, phases: phases.phases, native, throttles_write_back })
    }

    /// Makes and mounts the file system, cold.
    fn prepare(&self, attachment: &mut Attachment, phases: &mut Phases<'_>) -> Result<Option<Mounted<'_>>, Failure> {
        let (arguments, device) = (self.arguments, attachment.path().to_owned());
        let device = device.as_path();
        let setup = |phases: &mut Phases<'_>| match &arguments.setup {
            Some(commands) => phases.time(PhaseName::Setup, || native::run_setup(self.launch.scope, commands, device)),
            None => Ok(()),
        };
        let Some((maker, package)) = arguments.fs.maker() else {
            setup(phases)?;
            attachment.flush_cache().map_err(native_failure)?;
            return Ok(None);
        };
        let extra: Vec<String> =
            arguments.mkfs_options.iter().flat_map(|options| options.split_whitespace()).map(str::to_owned).collect();
        let capacity_bytes = self.device.info().capacity_sectors * SECTOR_BYTES;
        // Two runs share one kernel. ext4 takes the same UUID twice, and its directory hash depends on it.
        let seed = if arguments.fs.has_unique_uuid() { unique() } else { arguments.device.seed };
        let words = arguments.fs.maker_arguments(seed, &device.to_string_lossy(), capacity_bytes, &extra);
        phases.time(PhaseName::Mkfs, || native::make(maker, package, &words))?;
        let options = [arguments.fs.mount_options(capacity_bytes), arguments.mount_options.as_deref()];
        let options: Vec<&str> = options.into_iter().flatten().collect();
        let (kind, options, directory) = (arguments.fs.name(), options.join(","), arguments.mount.as_path());
        let mut mount = |phases: &mut Phases<'_>| {
            attachment.flush_cache().map_err(native_failure)?;
            phases.time(PhaseName::Mount, || native::mount(device, kind, &options, directory))?;
            Ok::<_, Failure>(Mounted { directory, is_mounted: true })
        };
        let mounted = mount(phases)?;
        if arguments.setup.is_none() {
            return Ok(Some(mounted));
        }
        setup(phases)?;
        mounted.unmount().map_err(native_failure)?;
        mount(phases).map(Some)
    }
}

impl Launch<'_> {
    /// Runs the command until it and all of its processes have ended. An emulated device has an attachment.
    pub fn command(
        &self,
        device: &Path,
        attachment: Option<&Attachment>,
        predictions: Vec<DilationOptions>,
    ) -> Result<Ran, Failure> {
        let helper = attachment.map(Attachment::pidfd);
        let watch = match predictions.is_empty() {
            true => None,
            false => Some(self.scope.watch(device, predictions).map_err(native_failure)?),
        };
        let request_time = native::request_time(device);
        let started = Program::start(self.scope, self.command, device, self.stdout_to_stderr);
        let mut program = match started.map_err(native_failure)? {
            Start::Runs(program) => program,
            Start::Refused { status, reason } => {
                note(format_args!("{}: {reason}", self.command[0].to_string_lossy()));
                let now = monotonic();
                return Ok(Ran { status, ..Ran::began(now) });
            }
        };
        command_began();
        let mut ran = Ran::began(program.began());
        let watching = watch.map(|watch| watch.begin(program.began())).transpose();
        let watching = watching.unwrap_or_else(|error| {
            ran.failure = Some(native_failure(error));
            None
        });
        self.wait_for_end(&mut program, helper, &mut ran);
        if ran.until == ran.from {
            ran.until = monotonic();
        }
        let until = native::request_time(device);
        ran.request_time = request_time.zip(until).and_then(|(from, until)| until.checked_sub(from));
        match watching.map(|watching| watching.end(ran.until)).transpose() {
            Ok(observation) => ran.observation = observation,
            Err(error) => ran.failure = ran.failure.or(Some(native_failure(error))),
        }
        ran.asked_to_end |= self.interruption.came();
        end_processes(&mut program, attachment, &mut ran);
        Ok(ran)
    }

    /// Waits until the command has ended, or must be ended.
    fn wait_for_end(&self, program: &mut Program<'_>, helper: Option<BorrowedFd<'_>>, ran: &mut Ran) {
        let mut passed_on = false;
        loop {
            if let Some(request) = self.interruption.0.request() {
                ran.asked_to_end = true;
                if !std::mem::replace(&mut passed_on, true) {
                    program.ask_to_end(request.signal);
                }
                if Instant::now() >= request.kills_at() {
                    ran.status = request.status();
                    break;
                }
            }
            let kills_at = self.interruption.0.request().map(|request| request.kills_at());
            let left = kills_at.map(|at| at.saturating_duration_since(Instant::now()));
            match program.wait(helper, self.interruption.0.news(), left) {
                Ok(Some(Ended::Command { status, at })) => {
                    (ran.status, ran.until) = (status, at);
                    break;
                }
                Ok(Some(Ended::Helper(which))) => {
                    ran.failure = Some(Failure::host(format!("{which} died; the command was ended")));
                    break;
                }
                Ok(Some(Ended::Readable) | None) => {}
                Err(error) => {
                    ran.failure = Some(native_failure(error));
                    break;
                }
            }
        }
    }
}

/// Ends the processes that the command left behind.
fn end_processes(program: &mut Program<'_>, attachment: Option<&Attachment>, ran: &mut Ran) {
    let mut have_ended = program.end_all();
    if !have_ended && let Some(attachment) = attachment {
        // They wait for the device, which may take any time.
        attachment.disconnector().disconnect();
        have_ended = program.end_all();
        if have_ended && !ran.asked_to_end {
            let what = "processes that the command left behind waited for the device, and their requests failed";
            ran.failure.get_or_insert_with(|| Failure::host(what));
        }
    }
    if !have_ended {
        ran.failure.get_or_insert_with(|| Failure::host("processes of the command could not be ended"));
    }
}

/// Result of a repetition, after its device was removed.
pub struct Done {
    pub ran: Ran,
    /// The command's run in the server's clock.
    pub window: Range<Nanos>,
    pub phases: Vec<Phase>,
    pub native: NativeResult,
    /// Whether the kernel throttles write-back to the device.
    pub throttles_write_back: bool,
}

/// The failure for a helper process that has ended, which it never does by itself.
fn helper_lost(attachment: &Attachment, scope: &CommandScope) -> Option<Failure> {
    let lost = attachment.lost().or(scope.lost())?;
    Some(Failure::host(format!("{lost} died; the command was ended")))
}

/// A mounted file system, unmounted at the latest when this is dropped.
struct Mounted<'a> {
    directory: &'a Path,
    is_mounted: bool,
}

impl Mounted<'_> {
    fn unmount(mut self) -> Result<(), NativeError> {
        self.is_mounted = false;
        native::unmount(self.directory)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = native::unmount(self.directory);
        }
    }
}

/// Phases of a run, by the server's clock.
struct Phases<'a> {
    server: &'a Server,
    phases: Vec<Phase>,
}

impl Phases<'_> {
    /// Adds a phase. `took` is the host's time, if the device's clock was ahead of it.
    fn push(&mut self, name: PhaseName, start_ns: Nanos, end_ns: Nanos, took: Option<Duration>) {
        self.phases.push(Phase { name, start_ns, end_ns, host_time_ns: took.map(nanos) });
    }

    fn time(&mut self, name: PhaseName, run: impl FnOnce() -> Result<(), NativeError>) -> Result<(), Failure> {
        let (begin, host_began) = (self.server.now(), Instant::now());
        run().map_err(native_failure)?;
        self.push(name, begin, self.server.now(), Some(host_began.elapsed()));
        Ok(())
    }
}

/// The failure if a server can't be made.
pub fn cant_serve(error: std::io::Error) -> Failure {
    Failure::host(format!("can't start a server: {error}"))
}

/// A number that no other process has, from the host's random numbers.
fn unique() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The host's monotonic clock.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn nanos(duration: Duration) -> Nanos {
    Nanos::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// A failure of the native attachment as the user sees it.
pub fn native_failure(error: NativeError) -> Failure {
    match error {
        NativeError::Unsuitable { what, help } => Failure::usage(what).help(help),
        NativeError::HostLacks { what, help } => Failure::host(what).help(help),
        error => Failure::host(error),
    }
}
