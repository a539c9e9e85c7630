//! `chronodisk run`: a program in a guest, on an emulated device.

mod options;
mod recorded;
mod vary;

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use chronodisk_device::Speed;
use chronodisk_engine::ending::{signal_name, status_of};
use chronodisk_guest::calibration::HeldSignals;
use chronodisk_guest::{DEVICES_MAX, FileSystem, GuestTime, RunError, RunEvent, RunOptions, Stage};
use chronodisk_report::{DeviceUsed, EndedBy, RunResult, render_refused_calls};
use chronodisk_run::memory::host_memory_bytes;
use chronodisk_run::{
    NewFiles, RecordedOptions, Reps, RunDirectory, RunFolder, Runner, Setting, add_guest_repetition, ended_early,
    new_result, own_failure, quantity,
};
use chronodisk_sim::Nanos;
use chronodisk_trace::calls::Plan;
use clap::{Args, ValueEnum};

use self::options::{guest_time, real_time_is_possible, record_what_took_effect, run_options};
use self::recorded::RecordedCalls;
use self::vary::Vary;
use crate::device::{self, Device};
use crate::draws::Draws;
use crate::elsewhere::Elsewhere;
use crate::failure::{Failure, Outcome, status};
use crate::labels::LabelArguments;
use crate::squash::SquashArguments;
use crate::status_line::GuestStatus;
use crate::surroundings::Reading;
use crate::{output, version};

/// Runs a program in a Linux guest on an emulated device
///
/// Boots a Linux kernel as an ordinary process, makes and mounts a file system on the emulated device (/dev/vda), and
/// runs CMD with your directory, environment, terminal and user. The guest sees this host's files; by default its
/// changes to them are discarded. The guest's clock stops while the emulator computes and skips idle time, so the
/// device's timing does not depend on this host's speed.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: CMD's own; 127 if there is no CMD, 128+n if signal n ended it.\n\
    125 if the emulation failed after CMD had started, or the device's bytes could not be kept.\n\
    Before CMD starts: 2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk run --device first-disk --fs ext4 -- sh -c 'cp -r /usr/include /mnt && sync'\n\
    \x20        chronodisk run --device wd-zn540 --fs xfs --reps auto -- fio job.fio")]
pub struct Arguments {
    #[command(flatten)]
    guest: GuestArguments,

    /// Records the system calls of CMD and its children to this file, for `chronodisk trace`; an existing file is
    /// replaced. Recording takes no guest time
    #[arg(long, value_name = "FILE")]
    record_calls: Option<PathBuf>,

    /// Runs this program with these arguments in the guest
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
}

/// Flags of every command that runs a guest.
#[derive(Debug, Args)]
pub struct GuestArguments {
    /// Selects the device: a name from `chronodisk devices`, a profile file, or exec:COMMAND for a program that is
    /// the model. Repeat it for further devices: /dev/vdb, /dev/vdc and so on
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "server")]
    device: Vec<String>,

    #[command(flatten)]
    elsewhere: Elsewhere,

    /// Makes this file system on the first device and mounts it; existing mounts the one that --store holds, none
    /// leaves the device empty
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = file_system_parser())]
    fs: FileSystem,

    /// Makes the file system even if the store holds something
    #[arg(long)]
    overwrite: bool,

    /// Begins with the file system of this snapshot, made by `chronodisk trace snapshot`, instead of a new one. The
    /// snapshot itself stays as it is
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fs", "mkfs_options", "overwrite"])]
    pub snapshot: Option<PathBuf>,

    /// Sets the capacity of each device, such as 8GiB (default: the profile's). If it exceeds the drive's, several
    /// drives are concatenated
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Starts the device in the state in this file, made by `chronodisk age` (default: a new device)
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Sets the speed of each device relative to its profile, such as 2x or 0.5x (default: 1x)
    #[arg(long, value_name = "FACTOR", value_parser = quantity::device_speed)]
    device_speed: Option<Speed>,

    /// Mounts the file system at this absolute path in the guest
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    mount: String,

    /// Selects where CMD's files are: on this host, which takes no device time, or on the first device, to which they
    /// are copied before CMD runs
    #[arg(long, value_name = "WHERE", default_value = "host")]
    root: Root,

    /// Copies this file or directory to the device as well, under --root device; may be repeated
    #[arg(long, value_name = "PATH")]
    root_files: Vec<PathBuf>,

    /// Sets the guest's memory
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: u64,

    /// Passes these options to mkfs; several are separated by spaces and quoted together
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    mkfs_options: Option<String>,

    /// Passes these options to mount -o, such as noatime,commit=30
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,

    /// Mounts the file system as this type instead of --fs, such as a modified file system of --module
    #[arg(long, value_name = "NAME")]
    mount_type: Option<String>,

    /// Sets the guest's I/O scheduler
    #[arg(long, value_name = "NAME", default_value = "none")]
    scheduler: Scheduler,

    /// Repeats the run N times, each on a fresh device and with the next seed. With auto, a pilot of 5 decides on 10 to
    /// 100 further repetitions, for a 95 % confidence interval of the run time within 5 % of its mean
    #[arg(long, value_name = "N|auto", default_value = "1")]
    reps: Reps,

    /// Selects the guest's clock
    #[arg(long, value_name = "CLOCK", default_value = "guest")]
    clock: Clock,

    /// Selects how much time passes while the guest computes (default: measured; zero with --clock exact; wall with
    /// --clock real)
    #[arg(long, value_name = "BASE")]
    cpu: Option<Cpu>,

    /// Boots this kernel, the program `linux` of a build with ARCH=um (default: the installed one)
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,

    /// Loads this kernel module before the file system is made; may be repeated
    #[arg(long = "module", value_name = "FILE")]
    modules: Vec<PathBuf>,

    /// Multiplies all CPU time of the guest's kernel by F under --cpu measured (default: by kind of work, with
    /// calibrated or built-in costs)
    #[arg(long, value_name = "F", value_parser = quantity::kernel_scale)]
    kernel_scale: Option<f64>,

    /// Sets the speed of the guest's processor relative to this host's, such as 2x or 0.5x
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = quantity::cpu_speed)]
    cpu_speed: f64,

    /// Selects how time passes while the guest is idle (default: jump, until a user types at a terminal)
    #[arg(long, value_name = "PACE")]
    idle: Option<Idle>,

    /// Seeds all random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Sets the guest's clock at boot, in seconds since 1970, for repeatable file times (default: now)
    #[arg(long, value_name = "SECONDS")]
    start_time: Option<u64>,

    /// Keeps the device's bytes in memory, or in a file that outlives the run. Several devices use FILE.vda, FILE.vdb
    /// and so on; with --squash they share one image
    #[arg(long, value_name = "ram|FILE", default_value = "ram")]
    store: OsString,

    /// Limits the host memory for the device's bytes (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    /// Makes completed writes, or flushes if the device has a volatile cache, survive a power cut of this host
    #[arg(long)]
    durable: bool,

    #[command(flatten)]
    squash: SquashArguments,

    /// Records memory and CPU time of the emulator's components at this interval of guest time
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    sample_every: Option<Nanos>,

    /// Diagnostic: writes every operation on the device's bytes to a new file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    record_store: Option<PathBuf>,

    /// Keeps the guest's changes to this host's files instead of discarding them
    #[arg(long)]
    host_writes: bool,

    /// Runs CMD at once after the file system is mounted, instead of waiting until it has done its own work, such as
    /// reading its bitmaps ahead. The wait is in the guest's time, at most an hour
    #[arg(long)]
    no_settle: bool,

    /// Empties the guest's page cache before CMD runs
    #[arg(long)]
    drop_caches: bool,

    /// Checks the file system after it is unmounted; errors end the run with status 1
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    labels: LabelArguments,

    /// Writes the result to this directory (default: a new one in ~/.local/state/chronodisk/runs)
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Prints the result as JSON on standard output; CMD's output goes to standard error
    #[arg(long)]
    json: bool,

    /// Shows neither the status line nor the summary; warnings and errors are shown
    #[arg(long, short)]
    quiet: bool,

    /// Diagnostic: delays each call of the model by this host time, or by a random one in a range such as 0us..2ms.
    /// The guest's results must not change
    #[arg(long, value_name = "DURATION", hide_short_help = true, value_parser = quantity::duration_range)]
    model_delay: Option<RangeInclusive<Nanos>>,

    /// Diagnostic: limits transfers of device bytes per second of host time. The guest's results must not change
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = quantity::bytes)]
    store_rate: Option<u64>,

    /// Diagnostic: delays one in eight of the guest clock's entries by a random host time up to this. The guest's
    /// results must not change
    #[arg(long, value_name = "DURATION", hide_short_help = true, value_parser = quantity::duration)]
    clock_disturbance: Option<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scheduler {
    None,
    MqDeadline,
    Bfq,
    Kyber,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Clock {
    /// Virtual time on Debian's kernel: stops while the emulator computes, skips idle time
    Guest,
    /// Simulated time to the nanosecond; needs the kernel that `chronodisk kernel build` makes
    Exact,
    /// This host's time. The guest's system calls are slow in it: for devices of about 1 ms and slower
    Real,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cpu {
    /// The guest's CPU time; its kernel's part is scaled to the cost of native system calls
    Measured,
    /// The elapsed time of this host
    Wall,
    /// None: only devices and timers take time, and runs repeat to the nanosecond
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Root {
    /// This host's file tree
    Host,
    /// The first device: the program, its libraries, the files on its command line, and all that it writes
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Idle {
    /// Skips to the next event
    Jump,
    /// Passes as on this host
    Host,
}

fn file_system_parser() -> impl clap::builder::TypedValueParser<Value = FileSystem> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(FileSystem::ALL.map(FileSystem::name)).try_map(|name| name.parse::<FileSystem>())
}

fn memory(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        size if size < MEMORY_MIN_BYTES => Err("the guest's kernel needs at least 64MiB".into()),
        size if size > host_memory_bytes() => Err("expected less than this host's memory".into()),
        size => Ok(size),
    }
}

fn interval(text: &str) -> Result<Nanos, String> {
    match quantity::duration(text)? {
        Nanos::ZERO => Err("expected an interval above zero, such as 1s".into()),
        interval => Ok(interval),
    }
}

/// With less, the distribution's kernel does not get through its boot reliably.
const MEMORY_MIN_BYTES: u64 = 64 << 20;

/// Work of a guest.
pub enum Work<'a> {
    /// Runs a program, and records its system calls if there is a recording.
    Command(Vec<OsString>, Option<&'a RecordedCalls>),
    /// Replays system calls.
    Replay(Arc<Plan>),
    /// Replays other calls in each repetition.
    Draws(&'a Draws),
}

impl Work<'_> {
    fn replays(&self) -> bool {
        self.plan().is_some()
    }

    /// The replayed plan; of draws, their origin.
    fn plan(&self) -> Option<&Plan> {
        match self {
            Work::Command(..) => None,
            Work::Replay(plan) => Some(plan),
            Work::Draws(draws) => Some(&draws.plan),
        }
    }
}

/// Runs the command as often as asked, and keeps the result.
pub fn execute(arguments: Arguments, options: RecordedOptions) -> Outcome {
    let guest = &arguments.guest;
    let Some(file) = arguments.record_calls else {
        return work(guest, Work::Command(arguments.command, None), options);
    };
    let calls = RecordedCalls::prepare(file, guest)?;
    work(guest, Work::Command(arguments.command, Some(&calls)), options)
}

/// Does the work as often as asked, and keeps the result.
pub fn work(arguments: &GuestArguments, work: Work<'_>, mut recorded: RecordedOptions) -> Outcome {
    let time = guest_time(arguments, work.replays())?;
    if time == GuestTime::Real {
        if work.replays() {
            return Err(Failure::usage("--clock real can't be used with a trace, whose CPU time is not this host's"));
        }
        real_time_is_possible(arguments)?;
    }
    let devices = load_devices(arguments)?;
    if let Some(plan) = work.plan() {
        arguments.expect_room(plan, &devices)?;
    }
    let draws = if let Work::Draws(draws) = work { Some(draws) } else { None };
    let calls = if let Work::Command(_, calls) = &work { *calls } else { None };
    let mut options = run_options(arguments, time, &devices, work)?;
    let snapshot = arguments.begin_with_snapshot(&devices, &mut options)?;
    let directory = RunFolder::plan(arguments.output.as_deref(), devices[0].name())?;
    directory.expect_place()?;
    let typed_seed = recorded.is_given("seed").then_some(arguments.seed);
    arguments.squash.refuse_contradictions(&options.devices, typed_seed)?;
    let new_files = NewFiles::of(&options.devices);
    record_what_took_effect(&mut recorded, &options);
    // One that comes between two repetitions, or while the result is written, waits for the next one or for the end.
    let _held = HeldSignals::hold().map_err(Failure::host)?;
    let vary = Vary { draws, snapshot };
    let mut run = repeat(arguments, &recorded, &devices, &options, &directory, &vary);
    if let Some(Err(failure)) = calls.map(RecordedCalls::keep) {
        run.fails_too(failure, &directory);
    }
    if let Some(draws) = draws.filter(|_| run.is_kept && run.failure.is_none()) {
        draws.aggregate(&mut run.result);
        if let Err(failure) = directory.write_run(&run.result) {
            run.fails(failure);
        }
    }
    if !run.command_began {
        new_files.remove();
        return run.failure.map_or(Ok(run.status), Err);
    }
    if !run.result.reps.is_empty() {
        // Before anything that may fail, such as a standard output on a full disk.
        output::summary(&run.result, arguments.quiet);
    }
    if run.is_kept {
        RunFolder::remember(&directory);
        if !arguments.quiet {
            output::note(format_args!("result: {}", directory.path().display()));
        }
    }
    if arguments.json {
        output::data(&run.result.to_json()).map_err(Failure::after_start)?;
    }
    run.failure.map_or(Ok(run.status), |failure| Err(failure.after_start()))
}

fn load_devices(arguments: &GuestArguments) -> Result<Vec<Device>, Failure> {
    if arguments.device.len() > DEVICES_MAX {
        return Err(Failure::usage(format!("a guest has at most {DEVICES_MAX} devices")));
    }
    let load = |name| {
        device::load_anywhere(name, &arguments.elsewhere, arguments.capacity, arguments.seed)?
            .without_zones()?
            .at_speed(arguments.device_speed, &arguments.elsewhere)
    };
    let names = arguments.device.iter().map(|name| Some(name.as_str()));
    let devices: Vec<Device> = match arguments.device.is_empty() {
        true => vec![load(None)?],
        false => names.map(load).collect::<Result<_, _>>()?,
    };
    let devices = match (arguments.state.as_deref(), devices.len()) {
        (Some(_), 2..) => return Err(Failure::usage("--state works with one device only, but several were given")),
        (Some(_), _) if arguments.elsewhere.server.is_some() => {
            return Err(Failure::usage(
                "--state can't be used with --server: the server can't read files of this host",
            ));
        }
        (state, _) => devices.into_iter().map(|device| device.begin_in(state)).collect::<Result<Vec<_>, _>>()?,
    };
    if let Some(device) = devices.iter().find(|device| device.has_host_queue()) {
        return Err(Failure::usage(format_args!("{} includes a host's request queue", device.name())).help(
            "the guest's kernel has its own queue, so requests would wait twice; use a profile without a host queue",
        ));
    }
    Ok(devices)
}

impl GuestArguments {
    /// So many repetitions, if a number was given.
    pub fn repetitions(&self) -> Result<u32, Failure> {
        match self.reps {
            Reps::Fixed(count) => Ok(count),
            Reps::Auto => Err(Failure::usage("--reps auto can't be used with --bootstrap; expected a number of draws")),
        }
    }

    /// Another number of repetitions than was given.
    pub fn repeat(&mut self, count: u32) {
        self.reps = Reps::Fixed(count);
    }

    /// Whether the guest makes or mounts a file system, and the host's tree is its root.
    pub fn expect_mounted(&self) -> Result<(), Failure> {
        if self.fs == FileSystem::None {
            return Err(Failure::usage("a trace needs a file system to be replayed on; --fs none makes none"));
        }
        match self.root {
            Root::Host => Ok(()),
            Root::Device => Err(Failure::usage("--root device can't be used with a trace, which has no program")),
        }
    }

    /// Mounts the file system where it was mounted before, unless told otherwise.
    pub fn mount_at(&mut self, recorded: &str, given: bool) -> Result<(), Failure> {
        if given && self.mount != recorded {
            return Err(Failure::usage(format!(
                "--mount {}: the trace was recorded on a file system at {recorded}, to which its paths lead",
                self.mount
            ))
            .help("leave --mount out"));
        }
        recorded.clone_into(&mut self.mount);
        Ok(())
    }
}

/// Result of all repetitions.
struct Run {
    result: RunResult,
    /// Of the command, or of the check.
    status: u8,
    /// A failure, whose status precedes the other.
    failure: Option<Failure>,
    command_began: bool,
    /// Whether the result is in its directory.
    is_kept: bool,
}

impl Run {
    fn fails(&mut self, failure: Failure) {
        self.result.ended_by = EndedBy::Chronodisk;
        self.result.failure = Some(failure.to_string());
        self.failure = Some(failure);
    }

    /// Adds a further failure; the earlier one is shown.
    fn fails_too(&mut self, failure: Failure, directory: &RunDirectory) {
        if let Some(before) = self.failure.take() {
            output::failure(before);
        }
        self.fails(failure);
        self.keep_end(directory);
    }

    /// The result of the repetitions before says how it ended, too.
    fn keep_end(&mut self, directory: &RunDirectory) {
        if self.is_kept
            && let Err(failure) = directory.write_run(&self.result)
        {
            self.failure.get_or_insert(failure);
        }
    }
}

/// Repeats until done, interrupted, or failed; completed repetitions count.
fn repeat(
    arguments: &GuestArguments,
    recorded: &RecordedOptions,
    devices: &[Device],
    options: &RunOptions,
    directory: &RunDirectory,
    vary: &Vary<'_>,
) -> Run {
    let mut surroundings = None;
    let devices: Vec<DeviceUsed> = devices.iter().map(Device::used).collect();
    let result = new_result(&Setting {
        caller: &version::caller(),
        directory,
        devices: &devices,
        command: &options.command,
        recorded,
        labels: &arguments.labels.labels(),
        runner: Runner::Guest(options),
    });
    let mut run = Run { result, status: status::FINE, failure: None, command_began: false, is_kept: false };
    while arguments.reps.wants_more(&run.result) {
        if arguments.reps != Reps::Fixed(1) && !arguments.quiet {
            output::note(arguments.reps.of(&run.result));
        }
        let (index, seeds_before) = arguments.reps.next(&run.result);
        let seed = arguments.seed.wrapping_add(seeds_before);
        let mut status = GuestStatus::new(options.file_system, arguments.quiet);
        // The first made the file system that the next replace.
        let overwrite = options.overwrite || seeds_before > 0;
        let mut options = RunOptions { seed, overwrite, ..options.clone() };
        if let Err(failure) = vary.prepare(index, &mut options) {
            run.fails(failure);
            run.keep_end(directory);
            return run;
        }
        let mut notices = Vec::new();
        let outcome = chronodisk_guest::run(&options, &mut |event| {
            if event == RunEvent::Stage(Stage::Boot) {
                surroundings.get_or_insert_with(|| Reading::of_run(&options));
            }
            if event == RunEvent::Stage(Stage::Command) {
                run.command_began = true;
                crate::failure::command_began();
            }
            match event {
                RunEvent::StoreNotice(notice) => notices.push(notice),
                RunEvent::Unrecordable(call) => output::note(format_args!(
                    "warning: the command has made the call {call}, which no replay can make: the recording is incomplete"
                )),
                event => status.saw(event),
            }
        });
        status.clear();
        notices.into_iter().for_each(|notice| output::note(format_args!("warning: {notice}")));
        if let Some(read) = surroundings.as_mut().and_then(Reading::take) {
            run.result.surroundings = Some(read);
        }
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(RunError::Interrupted { signal }) => {
                let name = signal_name(signal);
                output::note(format_args!("{name} ended the run; repetitions kept: {index}"));
                run.result.ended_by = EndedBy::Signal;
                run.status = status_of(signal);
                run.keep_end(directory);
                return run;
            }
            Err(error) => {
                if index > 0 {
                    output::note(format_args!("repetitions kept: {index}"));
                }
                run.fails(failure(error));
                run.keep_end(directory);
                return run;
            }
        };
        add_guest_repetition(&mut run.result, index, &options, &outcome);
        if let Some(signal) = outcome.asked_to_end {
            run.result.ended_by = EndedBy::Signal;
            run.result.warnings.push(ended_early(signal_name(signal)));
        }
        run.result.warnings.extend(arguments.reps.warning(&run.result));
        // No program of the user's has ended a replay: the replayer has said what went wrong.
        let is_asked = outcome.asked_to_end.is_some();
        let replayer = (options.replay.is_some() && outcome.exit_status != 0 && !is_asked)
            .then(|| format!("the replayer ended with status {}", outcome.exit_status));
        if let Some(what) = own_failure(&outcome).or(replayer) {
            run.fails(Failure::host(what));
        }
        // After every repetition, so that any end of this process leaves a complete result.
        match directory.write_repetition(index, &outcome.records, &run.result) {
            Ok(()) => run.is_kept = true,
            Err(failure) => run.fails(failure),
        }
        let faults = outcome.check.as_ref().filter(|check| !check.clean);
        if let Some(check) = faults {
            output::note(format_args!("{} found faults:\n{}", check.command, check.output.trim_end()));
        }
        run.status = match u8::try_from(outcome.exit_status).unwrap_or(u8::MAX) {
            status::FINE if faults.is_some() => status::CHECK_FAILED,
            status => status,
        };
        if let Some(signal) = outcome.asked_to_end {
            // The command's own status does not report omitted calls.
            if run.status == status::FINE && arguments.reps.wants_more(&run.result) {
                run.status = status_of(signal);
            }
            return run;
        }
        if run.status != status::FINE || run.failure.is_some() {
            return run;
        }
        if let Some(count) = arguments.reps.end_pilot(&mut run.result) {
            (0..count).for_each(|index| directory.remove_repetition(index));
        }
    }
    run
}

/// A run's error as the user sees it.
pub fn failure(error: RunError) -> Failure {
    match error {
        RunError::HostLacks(lacks) => Failure::host(&lacks.what).help(lacks.help),
        RunError::Device(message) => Failure::usage(message),
        RunError::GuestDied { ref console, ref refused_calls, .. } => {
            let refused = (!refused_calls.is_empty())
                .then(|| format!("the host refused these system calls to it: {}", render_refused_calls(refused_calls)));
            let output = (!console.is_empty()).then(|| format!("its last output:\n{console}"));
            let help: Vec<String> = refused.into_iter().chain(output).collect();
            if help.is_empty() { Failure::host(&error) } else { Failure::host(&error).help(help.join("\n")) }
        }
        RunError::Stage(stage, ref message) => {
            let failure = Failure::host(&error);
            match next_step(stage, message) {
                Some(step) => failure.help(step),
                None => failure,
            }
        }
        error => Failure::host(error),
    }
}

/// Advice for a failed step of the guest. Other programs report only the error.
fn next_step(stage: Stage, message: &str) -> Option<&'static str> {
    match stage {
        Stage::Boot if message.contains("kernel module") => Some(
            "a module must be built for the guest's kernel (`uname -r` in a guest); give modules of your own that it \
             needs before it, each by --module",
        ),
        Stage::Mkfs => {
            Some("look at --mkfs-options and --capacity; the program that made the file system said the above")
        }
        Stage::Mount => {
            Some("look at --mount-options, --mount-type and --fs; `man 5 FS`, such as ext4, lists the options")
        }
        Stage::Unmount => Some("end what uses the file system before CMD ends, or run it with --fs none"),
        _ => None,
    }
}
