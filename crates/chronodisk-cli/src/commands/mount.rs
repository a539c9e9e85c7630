//! `chronodisk mount`: a program on this host itself, on an emulated block device.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use chronodisk_device::Speed;
use chronodisk_engine::{Engine, MonotonicClock};
use chronodisk_front::fuse::FuseFile;
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Server, ServerOptions};
use chronodisk_guest::FileSystem;
use chronodisk_native::{self as native, Attachment, Ended, NativeError, Place, Program, Start};
use chronodisk_report::{EndedBy, NativeResult, Phase, PhaseName, RunResult, read_log, render_run_summary};
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use chronodisk_store::RamStore;
use clap::Args;
use serde_json::{Value, json};

use super::serve::recording::Gathered;
use crate::device::{self, Device};
use crate::failure::{Failure, Outcome, status};
use crate::labels::LabelArguments;
use crate::native_result::{NativeRep, NativeSetting, native_repetition, native_result, settings_of};
use crate::reps::Reps;
use crate::run_result::host_memory_bytes;
use crate::{output, quantity, runs, stored};

/// Runs a program natively on an emulated device
///
/// Makes a block device of this host from the emulated device, makes and mounts a file system on it, and runs CMD on
/// this host's kernel with all processors. The device works in real time: each request takes the time that the model
/// says. CMD finds the block device in $CHRONODISK_DEVICE. Only CMD sees the mount. It needs root.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: CMD's own; 127 if there is no CMD, 128+n if signal n ended it.\n\
    125 if the emulation failed after CMD had started.\n\
    Before CMD starts: 2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk mount --device first-disk --setup 'cp -r /usr/include /mnt' -- tar cf /dev/null /mnt")]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    device: String,

    /// Sets the speed of the device relative to its profile, such as 2x or 0.5x (default: 1x)
    #[arg(long, value_name = "FACTOR", value_parser = quantity::device_speed)]
    device_speed: Option<Speed>,

    /// Sets the capacity of the device, such as 8GiB (default: the profile's). If it exceeds the drive's, several
    /// drives are concatenated
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Starts the device in the state in this file, made by `chronodisk age` (default: a new device)
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Seeds all random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Makes this file system on the device and mounts it; none leaves the device empty
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = file_system_parser())]
    fs: FileSystem,

    /// Mounts the file system at this existing directory, for CMD alone
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    mount: PathBuf,

    /// Passes these options to mkfs; several are separated by spaces and quoted together
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    mkfs_options: Option<String>,

    /// Passes these options to mount -o, such as noatime,commit=30
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,

    /// Sets the block device's I/O scheduler
    #[arg(long, value_name = "NAME", default_value = "none")]
    scheduler: String,

    /// Runs these shell commands on the mounted file system before CMD. The file system is then mounted anew, so that
    /// nothing of it is cached
    #[arg(long, value_name = "SH")]
    setup: Option<OsString>,

    /// Repeats the run N times, each on a fresh device and with the next seed. With auto, repeats at least 10 times
    /// and until the 95 % confidence interval of the run time is within 5 % of its mean
    #[arg(long, value_name = "N|auto", default_value = "1")]
    reps: Reps,

    /// Limits the host memory for the device's bytes (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    #[command(flatten)]
    labels: LabelArguments,

    /// Writes the result to this directory (default: a new one in ~/.local/state/chronodisk/runs)
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Prints the result as JSON on standard output; CMD's output goes to standard error
    #[arg(long)]
    json: bool,

    /// Runs this program with these arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
}

fn file_system_parser() -> impl clap::builder::TypedValueParser<Value = FileSystem> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    let made = FileSystem::ALL.into_iter().filter(|file_system| *file_system != FileSystem::Existing);
    PossibleValuesParser::new(made.map(FileSystem::name)).try_map(|name| name.parse::<FileSystem>())
}

/// How long CMD may take to end after it was asked to.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Runs the command as often as asked, and keeps the result.
pub fn execute(arguments: Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    let device = load(&arguments)?;
    let directory = runs::plan(arguments.output.as_deref(), device.name())?;
    runs::expect_place(&directory)?;
    let interruption = Interruption::watch()?;
    // Before any thread exists: they would stay in this host's mount namespace.
    let place = Place::make().map_err(failure)?;
    let all = all_options(&arguments);
    let options_given = all.iter().filter(|(name, _)| given(name)).map(|(name, value)| (name.clone(), value.clone()));
    let mut result = native_result(&NativeSetting {
        directory: &directory,
        device: &device,
        command: &arguments.command,
        options_given: options_given.collect(),
        options: all,
        file_system: arguments.fs,
        mkfs_options: arguments.mkfs_options.as_deref().unwrap_or_default(),
        mount_options: arguments.mount_options.as_deref().unwrap_or_default(),
        scheduler: &arguments.scheduler,
    });
    result.labels = arguments.labels.labels();
    let run = Run { arguments: &arguments, device: &device, directory: &directory, place, interruption };
    let (status, failure) = run.repeat(&mut result);
    if result.reps.is_empty() {
        return failure.map_or(Ok(status), Err);
    }
    output::note(render_run_summary(&result).trim_end());
    runs::remember(&directory);
    output::note(format_args!("result: {}", directory.display()));
    if arguments.json {
        output::data(&result.to_json()).map_err(Failure::after_start)?;
    }
    failure.map_or(Ok(status), |failure| Err(failure.after_start()))
}

fn load(arguments: &Arguments) -> Result<Device, Failure> {
    let device = device::load(&arguments.device, arguments.capacity, arguments.seed)?
        .without_zones()?
        .begin_in(arguments.state.as_deref())?
        .with_speed(arguments.device_speed);
    if device.has_host_queue() {
        return Err(Failure::usage(format_args!("{} includes a host's request queue", device.name())).help(
            "this host's kernel has its own queue, so requests would wait twice; use a profile without a host queue",
        ));
    }
    let has_options = arguments.mkfs_options.is_some() || arguments.mount_options.is_some();
    if arguments.fs == FileSystem::None && has_options {
        return Err(Failure::usage(
            "--mkfs-options and --mount-options can't be used with --fs none, which makes no file system",
        ));
    }
    if arguments.fs != FileSystem::None && !(arguments.mount.is_absolute() && arguments.mount.is_dir()) {
        let path = arguments.mount.display();
        return Err(Failure::usage(format!("--mount {path}: expected the absolute path of a directory")));
    }
    Ok(device)
}

/// What asks this process to end.
struct Interruption {
    /// Gets a byte for each request to end that CMD does not get by itself.
    requests: UnixStream,
    /// Also Ctrl-C, which goes to CMD, too.
    asked: Arc<AtomicBool>,
}

impl Interruption {
    fn watch() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
        let failed = |error: std::io::Error| Failure::host(format!("can't catch signals: {error}"));
        let (requests, tell) = UnixStream::pair().map_err(failed)?;
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, asked.clone()).map_err(failed)?;
        }
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, tell.try_clone().map_err(failed)?).map_err(failed)?;
        }
        Ok(Interruption { requests, asked })
    }

    fn came(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

/// What all repetitions have in common.
struct Run<'a> {
    arguments: &'a Arguments,
    device: &'a Device,
    directory: &'a Path,
    place: Place,
    interruption: Interruption,
}

/// The command's part of a repetition.
struct Ran {
    status: u8,
    /// The host's monotonic clock at its beginning and end.
    from: Duration,
    until: Duration,
    /// What ended it, if it was not the command itself.
    failure: Option<Failure>,
    asked_to_end: bool,
}

impl Run<'_> {
    /// Repeats until done, interrupted, or something fails; what was done until then counts.
    fn repeat(&self, result: &mut RunResult) -> (u8, Option<Failure>) {
        let mut status = status::FINE;
        for index in 0.. {
            if !self.arguments.reps.wants_more(result) {
                break;
            }
            if self.arguments.reps != Reps::Fixed(1) {
                output::note(self.arguments.reps.of(index));
            }
            let fails = |result: &mut RunResult, failure: Failure| {
                result.ended_by = EndedBy::Chronodisk;
                result.failure = Some(failure.to_string());
                Some(failure)
            };
            match self.repetition(index, result) {
                Ok(ran) => {
                    status = ran.status;
                    result.warnings.extend(self.arguments.reps.warning(result));
                    let mut failure = ran.failure.and_then(|failure| fails(result, failure));
                    if ran.asked_to_end {
                        result.ended_by = EndedBy::Signal;
                    }
                    // After every repetition, so that whatever ends this process leaves a whole result.
                    if let Err(error) = stored::write_run(self.directory, result) {
                        failure = fails(result, error);
                    }
                    if status != status::FINE || failure.is_some() || ran.asked_to_end {
                        return (status, failure);
                    }
                }
                Err(_) if self.interruption.came() => return (status::INTERRUPTED, None),
                Err(failure) => return (status, fails(result, failure)),
            }
        }
        (status, None)
    }

    /// One repetition, on a fresh device. An error means that the command has not begun.
    fn repetition(&self, index: u32, result: &mut RunResult) -> Result<Ran, Failure> {
        let seed = self.arguments.seed.wrapping_add(u64::from(index));
        let log = NewLog::make(self.directory, index)?;
        let gathered = Gathered::new(&log.path)?;
        let host_began = Instant::now();
        let mut server = self.server(seed)?;
        server.record_to(gathered.recorder()).map_err(cant_serve)?;
        let done = self.on_device(&mut server);
        let outcome = server.stop();
        let logged = gathered.finish_log();
        let Done { mut ran, window, phases, native } = done?;
        let path = log.keep();
        let records = match logged.and_then(|()| read_log(&path).map_err(Failure::host)) {
            Ok(records) => records,
            Err(failure) => {
                ran.failure = Some(failure);
                return Ok(ran);
            }
        };
        if outcome.statistics.panics > 0 || outcome.close_error.is_some() {
            ran.failure.get_or_insert_with(|| Failure::host("the device failed; the warnings say how"));
        }
        native_repetition(
            result,
            NativeRep {
                index,
                seed,
                status: ran.status,
                window,
                phases,
                host_time: host_began.elapsed(),
                outcome: &outcome,
                records: &records,
                native,
            },
        );
        Ok(ran)
    }

    fn server(&self, seed: u64) -> Result<Server, Failure> {
        let info = self.device.info();
        let size_bytes = info.capacity_sectors * SECTOR_BYTES;
        let budget_bytes = self.arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        let offer = ServerOffer::new(vec![Export::new("", size_bytes)], Tls::Off).map_err(Failure::usage)?;
        let clock = MonotonicClock::new();
        let mut engine = Engine::new();
        engine.set_host_clock(Box::new(clock.clone()));
        let index = engine.attach(self.device.model_with_seed(seed)?);
        let store = Box::new(RamStore::new(size_bytes, budget_bytes));
        Server::new(engine, index, store, offer, clock, ServerOptions::default()).map_err(cant_serve)
    }

    /// Everything that needs the block device, which is gone afterwards. An error means that the command has not begun.
    fn on_device(&self, server: &mut Server) -> Result<Done, Failure> {
        let info = self.device.info();
        let mut attachment =
            native::attach(server, info, FuseFile::of(info), &self.arguments.scheduler).map_err(failure)?;
        let native = settings_of(&attachment);
        output::note(format_args!("block device: {}", native.line()));
        let mut phases = Phases { server, phases: Vec::new() };
        let mounted = self.prepare(&mut attachment, &mut phases)?;
        if self.interruption.came() {
            return Err(Failure::host("interrupted"));
        }
        let mut ran = self.command(&attachment)?;
        let offset = monotonic().saturating_sub(Duration::from_nanos(server.now().as_nanos()));
        let [from, until] = [ran.from, ran.until].map(|at| nanos(at.saturating_sub(offset)));
        phases.push(PhaseName::Command, from, until);
        if let Some(mounted) = mounted {
            let begin = server.now();
            if let Err(error) = mounted.unmount() {
                ran.failure.get_or_insert(failure(error));
            }
            phases.push(PhaseName::Unmount, begin, server.now());
        }
        Ok(Done { ran, window: from..until, phases: phases.phases, native })
    }

    /// Makes and mounts the file system, cold.
    fn prepare(&self, attachment: &mut Attachment, phases: &mut Phases<'_>) -> Result<Option<Mounted<'_>>, Failure> {
        let (arguments, device) = (self.arguments, attachment.path().to_owned());
        let device = device.as_path();
        let setup = |phases: &mut Phases<'_>| match &arguments.setup {
            Some(commands) => phases.time(PhaseName::Setup, || native::run_setup(commands, device)),
            None => Ok(()),
        };
        let Some((maker, package)) = arguments.fs.maker() else {
            setup(phases)?;
            attachment.flush_cache().map_err(failure)?;
            return Ok(None);
        };
        let extra: Vec<String> =
            arguments.mkfs_options.iter().flat_map(|options| options.split_whitespace()).map(str::to_owned).collect();
        let capacity_bytes = self.device.info().capacity_sectors * SECTOR_BYTES;
        let words = arguments.fs.maker_arguments(arguments.seed, &device.to_string_lossy(), capacity_bytes, &extra);
        phases.time(PhaseName::Mkfs, || native::make(maker, package, &words))?;
        let options = [arguments.fs.mount_options(capacity_bytes), arguments.mount_options.as_deref()];
        let options: Vec<&str> = options.into_iter().flatten().collect();
        let (kind, options, directory) = (arguments.fs.name(), options.join(","), arguments.mount.as_path());
        let mut mount = |phases: &mut Phases<'_>| {
            attachment.flush_cache().map_err(failure)?;
            phases.time(PhaseName::Mount, || native::mount(device, kind, &options, directory))?;
            Ok::<_, Failure>(Mounted { directory, is_mounted: true })
        };
        let mounted = mount(phases)?;
        if arguments.setup.is_none() {
            return Ok(Some(mounted));
        }
        setup(phases)?;
        mounted.unmount().map_err(failure)?;
        mount(phases).map(Some)
    }

    /// Runs the command until it and all of its processes have ended.
    fn command(&self, attachment: &Attachment) -> Result<Ran, Failure> {
        let arguments = self.arguments;
        let started = Program::start(&self.place, &arguments.command, attachment.path(), arguments.json);
        let mut program = match started.map_err(failure)? {
            Start::Runs(program) => program,
            Start::Refused { status, reason } => {
                output::note(format_args!("{}: {reason}", arguments.command[0].to_string_lossy()));
                let now = monotonic();
                return Ok(Ran { status, from: now, until: now, failure: None, asked_to_end: false });
            }
        };
        let mut ran = Ran {
            status: status::OWN_FAILURE,
            from: program.began(),
            until: program.began(),
            failure: None,
            asked_to_end: false,
        };
        let mut give_up: Option<Instant> = None;
        loop {
            let left = give_up.map(|at| at.saturating_duration_since(Instant::now()));
            match program.wait(attachment, self.interruption.requests.as_fd(), left) {
                Ok(Some(Ended::Command { status, at })) => {
                    (ran.status, ran.until) = (status, at);
                    break;
                }
                Ok(Some(Ended::Helper)) => {
                    let what = "a process of chronodisk that helps this run was killed; the command was ended";
                    ran.failure = Some(Failure::host(what));
                    break;
                }
                Ok(Some(Ended::Readable)) => {
                    let _ = (&self.interruption.requests).read(&mut [0; 64]);
                    ran.asked_to_end = true;
                    program.signal(rustix::process::Signal::TERM);
                    give_up.get_or_insert_with(|| Instant::now() + ENDING_MAX);
                }
                Ok(None) if give_up.is_some_and(|at| Instant::now() >= at) => {
                    ran.status = 128 + rustix::process::Signal::KILL.as_raw() as u8;
                    break;
                }
                Ok(None) => {}
                Err(error) => {
                    ran.failure = Some(failure(error));
                    break;
                }
            }
        }
        if ran.until == ran.from {
            ran.until = monotonic();
        }
        ran.asked_to_end |= self.interruption.came();
        if !program.end_all() {
            ran.failure.get_or_insert_with(|| Failure::host("processes of the command could not be ended"));
        }
        Ok(ran)
    }
}

/// What a repetition leaves, once its device has gone.
struct Done {
    ran: Ran,
    window: Range<Nanos>,
    phases: Vec<Phase>,
    native: NativeResult,
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

/// What was done when, by the server's clock.
struct Phases<'a> {
    server: &'a Server,
    phases: Vec<Phase>,
}

impl Phases<'_> {
    fn push(&mut self, name: PhaseName, start_ns: Nanos, end_ns: Nanos) {
        self.phases.push(Phase { name, start_ns, end_ns, host_time_ns: None });
    }

    fn time(&mut self, name: PhaseName, run: impl FnOnce() -> Result<(), NativeError>) -> Result<(), Failure> {
        let begin = self.server.now();
        run().map_err(failure)?;
        self.push(name, begin, self.server.now());
        Ok(())
    }
}

/// The log of a repetition, which is removed again if the command does not begin.
struct NewLog {
    path: PathBuf,
    /// The directory, if nothing else is in it.
    fresh: Option<PathBuf>,
    is_kept: bool,
}

impl NewLog {
    fn make(directory: &Path, index: u32) -> Result<Self, Failure> {
        let fresh = (!directory.exists()).then(|| directory.to_owned());
        runs::make(directory)?;
        Ok(NewLog { path: directory.join(stored::log_name(index)), fresh, is_kept: false })
    }

    fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }
}

impl Drop for NewLog {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.path);
            let _ = self.fresh.as_deref().map(std::fs::remove_dir);
        }
    }
}

fn cant_serve(error: std::io::Error) -> Failure {
    Failure::host(format!("can't start a server: {error}"))
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
pub fn failure(error: NativeError) -> Failure {
    match error {
        NativeError::HostLacks { what, help } => Failure::host(what).help(help),
        error => Failure::host(error),
    }
}

/// All options as they took effect, by the names of their flags.
fn all_options(arguments: &Arguments) -> BTreeMap<String, Value> {
    let reps = match arguments.reps {
        Reps::Fixed(count) => json!(count),
        Reps::Auto => json!("auto"),
    };
    let entries: [(&str, Value); 14] = [
        ("device", json!(arguments.device)),
        ("device-speed", json!(arguments.device_speed.unwrap_or_default().factor())),
        ("capacity", json!(arguments.capacity)),
        ("state", json!(arguments.state)),
        ("seed", json!(arguments.seed)),
        ("fs", json!(arguments.fs.name())),
        ("mount", json!(arguments.mount)),
        ("mkfs-options", json!(arguments.mkfs_options)),
        ("mount-options", json!(arguments.mount_options)),
        ("scheduler", json!(arguments.scheduler)),
        ("setup", json!(arguments.setup.as_ref().map(|commands| commands.to_string_lossy()))),
        ("reps", reps),
        ("ram-budget", json!(arguments.ram_budget)),
        ("json", json!(arguments.json)),
    ];
    entries.map(|(name, value)| (name.to_owned(), value)).into()
}
