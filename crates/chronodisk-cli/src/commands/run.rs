//! `chronodisk run`: a program in a guest, on an emulated device.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chronodisk_device::Speed;
use chronodisk_guest::{
    CPU_SPEED_DEFAULT, DEVICES_MAX, DeviceOptions, ExactCpu, FileSystem, GuestTime, IdlePace, KernelCosts, MeasuredCpu,
    ReplayOptions, RootChoice, RunError, RunOptions, RunOutcome, Stage, StoppingCpu, StoreChoice, ThinkTime,
    calibration,
};
use chronodisk_report::{EndedBy, RunResult, render_run_summary};
use chronodisk_sim::Nanos;
use chronodisk_squash::{NameRule, SquashMode, SquashOptions};
use chronodisk_store::Durability;
use chronodisk_trace::calls::Plan;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::device::{self, Device};
use crate::elsewhere::{Elsewhere, PROGRAM_PREFIX};
use crate::failure::{Failure, Outcome, status};
use crate::labels::LabelArguments;
use crate::reps::Reps;
use crate::run_result::{Setting, host_memory_bytes, own_failure, repetition, run_result};
use crate::run_stores::{self, NewFiles};
use crate::squash::SquashArguments;
use crate::stages::StageLine;
use crate::{output, quantity, runs, stored};

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

    /// Repeats the run N times, each on a fresh device and with the next seed. With auto, repeats at least 10 times
    /// and until the 95 % confidence interval of the run time is within 5 % of its mean
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

    /// Multiplies the CPU time of the guest's kernel by F under --cpu measured (default: as calibrated, else 0.1)
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

/// What a guest is to do.
pub enum Work {
    /// Runs a program.
    Command(Vec<OsString>),
    /// Replays system calls.
    Replay(Arc<Plan>),
}

/// Runs the command as often as asked, and keeps the result.
pub fn execute(arguments: Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    work(&arguments.guest, Work::Command(arguments.command), given)
}

/// Does the work as often as asked, and keeps the result.
pub fn work(arguments: &GuestArguments, work: Work, given: &dyn Fn(&str) -> bool) -> Outcome {
    let time = guest_time(arguments, matches!(work, Work::Replay(_)))?;
    if time == GuestTime::Real {
        if matches!(work, Work::Replay(_)) {
            return Err(Failure::usage("--clock real can't be used with a trace, whose CPU time is not this host's"));
        }
        real_time_is_possible(arguments)?;
    }
    let devices = load_devices(arguments)?;
    let options = run_options(arguments, time, &devices, work)?;
    let directory = runs::plan(arguments.output.as_deref(), devices[0].name())?;
    runs::expect_place(&directory)?;
    let typed_seed = given("seed").then_some(arguments.seed);
    run_stores::refuse_contradictions(&options.devices, &arguments.squash, typed_seed)?;
    let new_files = NewFiles::of(&options.devices);
    let run = repeat(arguments, given, &devices, &options, &directory);
    if !run.command_began {
        new_files.remove();
        return run.failure.map_or(Ok(run.status), Err);
    }
    if !run.result.reps.is_empty() {
        // Before anything that may fail, such as a standard output on a full disk.
        output::note(render_run_summary(&run.result).trim_end());
    }
    if run.is_kept {
        runs::remember(&directory);
        output::note(format_args!("result: {}", directory.display()));
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

/// What came of all repetitions.
struct Run {
    result: RunResult,
    /// Of the command, or of the check.
    status: u8,
    /// What went wrong, whose status goes before the other.
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
}

/// Repeats until done, interrupted, or something fails; what was done until then counts.
fn repeat(
    arguments: &GuestArguments,
    given: &dyn Fn(&str) -> bool,
    devices: &[Device],
    options: &RunOptions,
    directory: &Path,
) -> Run {
    let all = all_options(arguments, options);
    let options_given = all.iter().filter(|(name, _)| given(name)).map(|(name, value)| (name.clone(), value.clone()));
    let setting = Setting { directory, devices, options, options_given: options_given.collect(), all_options: all };
    let mut result = run_result(&setting);
    result.labels = arguments.labels.labels();
    let mut run = Run { result, status: status::FINE, failure: None, command_began: false, is_kept: false };
    for index in 0.. {
        if !arguments.reps.wants_more(&run.result) {
            break;
        }
        if arguments.reps != Reps::Fixed(1) {
            output::note(arguments.reps.of(index));
        }
        let seed = arguments.seed.wrapping_add(u64::from(index));
        let mut line = StageLine::new(options.file_system);
        // The first made the file system that the next replace.
        let overwrite = options.overwrite || index > 0;
        let options = RunOptions { seed, overwrite, ..options.clone() };
        let outcome = chronodisk_guest::run(&options, &mut |stage| {
            run.command_began |= stage == Stage::Command;
            line.ended(stage);
        });
        line.clear();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(RunError::Interrupted { signal }) => {
                output::note(format_args!("interrupted; repetitions kept: {index}"));
                run.result.ended_by = EndedBy::Signal;
                run.status = 128 + signal as u8;
                return run;
            }
            Err(error) => {
                if index > 0 {
                    output::note(format_args!("repetitions kept: {index}"));
                }
                run.fails(failure(error));
                return run;
            }
        };
        repetition(&mut run.result, index, &options, &outcome);
        run.result.warnings.extend(arguments.reps.warning(&run.result));
        if let Some(what) = own_failure(&outcome) {
            run.fails(Failure::host(what));
        }
        // After every repetition, so that whatever ends this process leaves a whole result.
        match keep(directory, index, &run.result, &outcome) {
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
        if run.status != status::FINE || run.failure.is_some() {
            return run;
        }
    }
    run
}

/// Keeps a repetition, and the result with it. On a disk that is full the repetitions before stay as they are, and
/// nothing of this one.
fn keep(directory: &Path, index: u32, result: &RunResult, outcome: &RunOutcome) -> Result<(), Failure> {
    let is_new = !directory.exists();
    runs::make(directory)?;
    let kept = stored::write_repetition(directory, index, &outcome.records)
        .and_then(|()| stored::write_run(directory, result));
    if kept.is_err() {
        let _ = std::fs::remove_file(directory.join(stored::log_name(index)));
        if is_new {
            let _ = std::fs::remove_dir(directory);
        }
    }
    kept
}

fn run_options(
    arguments: &GuestArguments,
    time: GuestTime,
    devices: &[Device],
    work: Work,
) -> Result<RunOptions, Failure> {
    if !arguments.mount.starts_with('/') || arguments.mount == "/" {
        return Err(Failure::usage(format!("--mount {}: expected an absolute path other than /", arguments.mount)));
    }
    let for_mount = arguments.mount_options.is_some() || arguments.mount_type.is_some();
    file_system_fits(arguments)?;
    if arguments.fs == FileSystem::None && (arguments.mkfs_options.is_some() || for_mount) {
        return Err(Failure::usage(
            "--mkfs-options, --mount-options and --mount-type can't be used with --fs none, which makes no file system",
        ));
    }
    let modules: Vec<PathBuf> =
        arguments.modules.iter().map(|file| existing_file("--module", file)).collect::<Result<_, _>>()?;
    let kernel = arguments.kernel.as_deref().map(|file| existing_file("--kernel", file)).transpose()?;
    let words = arguments.mkfs_options.as_deref().unwrap_or_default().split_whitespace();
    let patience = arguments.elsewhere.patience();
    let with_kernel = matches!(time, GuestTime::Exact { cpu: ExactCpu::Zero, .. });
    let think = ThinkTime { speed: arguments.cpu_speed, with_kernel };
    let (command, replay) = match work {
        Work::Command(command) => (command, None),
        Work::Replay(plan) => (Vec::new(), Some(ReplayOptions { plan, think })),
    };
    Ok(RunOptions {
        devices: device_options(arguments, devices)?,
        answer_patience: patience.answer,
        reconnect_patience: patience.reconnect,
        model_delay: arguments.model_delay.clone().unwrap_or(Nanos::ZERO..=Nanos::ZERO),
        clock_disturbance: arguments.clock_disturbance.unwrap_or(Nanos::ZERO),
        seed: arguments.seed,
        file_system: arguments.fs,
        overwrite: arguments.overwrite,
        mkfs_options: words.map(str::to_owned).collect(),
        mount_options: arguments.mount_options.clone(),
        mount_type: arguments.mount_type.clone(),
        mount_point: arguments.mount.clone(),
        scheduler: Some(value_name(arguments.scheduler)),
        memory_bytes: arguments.memory,
        time,
        kernel,
        modules,
        start_time: arguments.start_time.map(Duration::from_secs),
        host_writes: arguments.host_writes,
        root: root(arguments)?,
        drop_caches: arguments.drop_caches,
        check: arguments.check,
        command,
        replay,
        sample_every: arguments.sample_every,
        stdout_to_stderr: arguments.json,
        ends_by_signal: false,
    })
}

/// Whether what is asked for goes with a file system that is there, or with a new one.
fn file_system_fits(arguments: &GuestArguments) -> Result<(), Failure> {
    let makes = !matches!(arguments.fs, FileSystem::None | FileSystem::Existing);
    if arguments.overwrite && !makes {
        return Err(Failure::usage(format!("--fs {} makes nothing; it takes no --overwrite", arguments.fs)));
    }
    if arguments.fs != FileSystem::Existing {
        return Ok(());
    }
    if arguments.mkfs_options.is_some() {
        return Err(Failure::usage("--fs existing makes nothing; it takes no --mkfs-options"));
    }
    if arguments.root == Root::Device {
        return Err(Failure::usage("--root device wants a new file system; --fs existing makes none"));
    }
    if arguments.store == "ram" && arguments.elsewhere.server.is_none() {
        return Err(Failure::usage("--fs existing mounts what a store holds; --store ram begins empty")
            .help("name the file or image with --store FILE"));
    }
    if arguments.store != "ram" && !Path::new(&arguments.store).exists() && arguments.device.len() < 2 {
        return Err(Failure::usage(format!("--fs existing: there is no {}", arguments.store.to_string_lossy())));
    }
    Ok(())
}

/// Where the command's root is, if it can be there.
fn root(arguments: &GuestArguments) -> Result<RootChoice, Failure> {
    if arguments.root == Root::Host {
        return match arguments.root_files.is_empty() {
            true => Ok(RootChoice::Host),
            false => Err(Failure::usage("--root-files needs --root device")),
        };
    }
    if arguments.fs == FileSystem::None {
        return Err(Failure::usage("--root device needs a file system; it can't be used with --fs none"));
    }
    if arguments.host_writes {
        return Err(Failure::usage("--root device can't be used with --host-writes: CMD's writes go to the device"));
    }
    if arguments.squash.makes_up_contents() {
        return Err(Failure::usage(
            "--root device can't be used with --squash, which does not store the contents of files",
        )
        .help("--squash=exact stores everything, compressed"));
    }
    let files = arguments.root_files.iter().map(|path| {
        // Links are put there as they are, so the path is not resolved.
        let absolute = std::path::absolute(path);
        absolute
            .and_then(|absolute| std::fs::symlink_metadata(&absolute).map(|_| absolute))
            .map_err(|error| Failure::usage(format!("--root-files {}: {error}", path.display())))
    });
    Ok(RootChoice::Device { files: files.collect::<Result<_, _>>()? })
}

/// Each device with its share of the memory for bytes, or its file.
fn device_options(arguments: &GuestArguments, devices: &[Device]) -> Result<Vec<DeviceOptions>, Failure> {
    let in_memory = arguments.store == "ram";
    if !in_memory && arguments.ram_budget.is_some() {
        return Err(Failure::usage("--ram-budget needs --store ram; a file has no memory limit"));
    }
    if in_memory && arguments.durable {
        return Err(
            Failure::usage("--durable needs a file; memory does not survive anything").help("name one with --store")
        );
    }
    if !in_memory && arguments.elsewhere.server.is_some() {
        return Err(Failure::usage("--store FILE can't be used with --server, which keeps the bytes (its --store)"));
    }
    // A server decides by itself unless it is told.
    let budget_bytes = match (arguments.ram_budget, &arguments.elsewhere.server) {
        (Some(budget), _) => budget / devices.len() as u64,
        (None, Some(_)) => 0,
        (None, None) => host_memory_bytes() / 2 / devices.len() as u64,
    };
    let squashed = arguments.squash.options(arguments.seed, Durability::default());
    let path_of = |index: usize| {
        let mut path = arguments.store.clone();
        path.push(format!(".vd{}", char::from(b'a' + index as u8)));
        PathBuf::from(path)
    };
    // An image of each device by itself, as they were made before there were images of several, stays that.
    let together = devices.len() == 1 || squashed.is_some() && !path_of(0).exists();
    let store = |index: usize| match (in_memory, together) {
        (true, _) => StoreChoice::Ram { budget_bytes },
        (false, true) => StoreChoice::File { path: PathBuf::from(&arguments.store) },
        (false, false) => StoreChoice::File { path: path_of(index) },
    };
    if squashed.is_some() && arguments.elsewhere.server.is_some() {
        return Err(Failure::usage("--squash can't be used with --server, which keeps the bytes (its --store)"));
    }
    if arguments.record_store.is_some() && devices.len() > 1 {
        return Err(Failure::usage("--record-store works with one device only"));
    }
    let options = |(index, device): (usize, &Device)| DeviceOptions {
        model: device.choice(&arguments.elsewhere),
        speed: device.speed().factor(),
        capacity_bytes: arguments.capacity,
        state_file: device.state_file().map(Path::to_owned),
        store: squashed.as_ref().map_or_else(|| store(index), |options| squash(store(index), options)),
        durable: arguments.durable,
        store_recording: arguments.record_store.clone(),
        store_rate: arguments.store_rate,
    };
    Ok(devices.iter().enumerate().map(options).collect())
}

/// The guest's time, from --clock, --cpu, --idle, --kernel-scale and --cpu-speed; refuses what does not go together.
fn guest_time(arguments: &GuestArguments, replays: bool) -> Result<GuestTime, Failure> {
    let idle = match arguments.idle {
        Some(Idle::Jump) => IdlePace::Jump,
        Some(Idle::Host) => IdlePace::Host,
        None => IdlePace::JumpUntilTyping,
    };
    let measured = |costs: KernelCosts| MeasuredCpu {
        costs: arguments.kernel_scale.map_or(costs, KernelCosts::uniform),
        speed: arguments.cpu_speed,
    };
    let time = match (arguments.clock, arguments.cpu) {
        (Clock::Guest, None | Some(Cpu::Measured)) => {
            // What `chronodisk calibrate` has found for this clock on this machine.
            let costs = calibration::kept().map(|kept| kept.costs).unwrap_or_default();
            GuestTime::Stopping { cpu: StoppingCpu::Measured(measured(costs)), idle }
        }
        (Clock::Guest, Some(Cpu::Wall)) => GuestTime::Stopping { cpu: StoppingCpu::Wall, idle },
        (Clock::Guest, Some(Cpu::Zero)) => return Err(Failure::usage("--cpu zero needs --clock exact")),
        (Clock::Exact, Some(Cpu::Measured)) => {
            GuestTime::Exact { cpu: ExactCpu::Measured(measured(KernelCosts::default())), idle }
        }
        (Clock::Exact, None | Some(Cpu::Zero)) => GuestTime::Exact { cpu: ExactCpu::Zero, idle },
        (Clock::Exact, Some(Cpu::Wall)) => {
            return Err(Failure::usage(
                "--cpu wall can't be used with --clock exact, which does not read the host's time",
            ));
        }
        (Clock::Real, None | Some(Cpu::Wall)) if arguments.idle.is_some() => {
            return Err(Failure::usage("--idle can't be used with --clock real, which does not skip idle time"));
        }
        (Clock::Real, None | Some(Cpu::Wall)) => GuestTime::Real,
        (Clock::Real, Some(Cpu::Measured | Cpu::Zero)) => {
            return Err(Failure::usage("--clock real works with --cpu wall only"));
        }
    };
    let is_measured = time.measured_cpu().is_some();
    let needs_measured =
        |flag: &str| Err(Failure::usage(format!("{flag} needs --cpu measured, but --cpu is {}", time.cpu_name())));
    match (arguments.kernel_scale, arguments.cpu_speed == CPU_SPEED_DEFAULT) {
        (Some(_), _) if !is_measured => needs_measured("--kernel-scale"),
        // What is replayed has its own CPU time.
        (_, false) if !is_measured && !replays => needs_measured("--cpu-speed"),
        _ => Ok(time),
    }
}

/// Whether what else is asked for can be had in the host's time.
fn real_time_is_possible(arguments: &GuestArguments) -> Result<(), Failure> {
    if arguments.sample_every.is_some() {
        return Err(Failure::usage("--sample-every can't be used with --clock real"));
    }
    let is_program = |name: &String| name.starts_with(PROGRAM_PREFIX);
    if arguments.elsewhere.server.is_some() || arguments.device.iter().any(is_program) {
        return Err(Failure::usage("--clock real can't be used with --server or exec: models")
            .help("waiting for their answers takes time, which only --clock guest and exact hide from the guest"));
    }
    Ok(())
}

/// The file's absolute path: the guest has another working directory when it needs it.
fn existing_file(flag: &str, file: &Path) -> Result<PathBuf, Failure> {
    file.canonicalize().map_err(|error| Failure::usage(format!("{flag} {}: {error}", file.display())))
}

/// The same place, with a squashing store in it.
fn squash(store: StoreChoice, options: &SquashOptions) -> StoreChoice {
    let (image, budget_bytes) = match store {
        StoreChoice::Ram { budget_bytes } => (None, budget_bytes),
        StoreChoice::File { path } => (Some(path), 0),
        squashed @ StoreChoice::Squashed { .. } => return squashed,
    };
    StoreChoice::Squashed {
        image,
        budget_bytes,
        exact: options.mode == SquashMode::Exact,
        content: options.content.name().to_owned(),
        unclassified_bytes: options.unclassified_bytes,
        ignore_journal: options.ignore_journal,
        names: options.names.iter().map(NameRule::to_string).collect(),
        notices: options.notices,
    }
}

/// All options as they took effect, by the names of their flags.
fn all_options(arguments: &GuestArguments, options: &RunOptions) -> BTreeMap<String, Value> {
    let idle = arguments.idle.map(value_name);
    let reps = match arguments.reps {
        Reps::Fixed(count) => json!(count),
        Reps::Auto => json!("auto"),
    };
    let device = match arguments.device.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let entries: [(&str, Value); 37] = [
        ("device", device),
        ("server", json!(arguments.elsewhere.server)),
        ("no-speculation", json!(arguments.elsewhere.no_speculation)),
        ("fs", json!(arguments.fs.name())),
        ("overwrite", json!(arguments.overwrite)),
        ("capacity", json!(arguments.capacity)),
        ("state", json!(arguments.state)),
        ("device-speed", json!(arguments.device_speed.unwrap_or_default().factor())),
        ("mount", json!(arguments.mount)),
        ("root", json!(value_name(arguments.root))),
        ("root-files", json!(arguments.root_files)),
        ("memory", json!(arguments.memory)),
        ("mkfs-options", json!(arguments.mkfs_options)),
        ("mount-options", json!(arguments.mount_options)),
        ("mount-type", json!(arguments.mount_type)),
        ("scheduler", json!(options.scheduler)),
        ("reps", reps),
        ("clock", json!(value_name(arguments.clock))),
        ("cpu", json!(options.time.cpu_name())),
        ("kernel", json!(arguments.kernel)),
        ("module", json!(arguments.modules)),
        ("kernel-scale", json!(options.time.measured_cpu().map(|cpu| cpu.costs.other_scale))),
        ("cpu-speed", json!(arguments.cpu_speed)),
        ("idle", json!(idle)),
        ("seed", json!(arguments.seed)),
        ("start-time", json!(arguments.start_time)),
        ("store", json!(arguments.store.to_string_lossy())),
        ("durable", json!(arguments.durable)),
        (
            "ram-budget",
            json!(match options.devices[0].store {
                StoreChoice::Ram { budget_bytes } => Some(budget_bytes * options.devices.len() as u64),
                StoreChoice::Squashed { image: None, budget_bytes, .. } => {
                    Some(budget_bytes * options.devices.len() as u64)
                }
                StoreChoice::File { .. } | StoreChoice::Squashed { .. } => None,
            }),
        ),
        ("sample-every", json!(arguments.sample_every.map(Nanos::as_nanos))),
        ("host-writes", json!(arguments.host_writes)),
        ("drop-caches", json!(arguments.drop_caches)),
        ("check", json!(arguments.check)),
        ("model-delay", json!([options.model_delay.start().as_nanos(), options.model_delay.end().as_nanos()])),
        ("store-rate", json!(arguments.store_rate)),
        ("clock-disturbance", json!(options.clock_disturbance.as_nanos())),
        ("json", json!(arguments.json)),
    ];
    let mut all = entries.map(|(name, value)| (name.to_owned(), value)).into();
    arguments.squash.all_options(&mut all);
    all
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is skipped").get_name().to_owned()
}

/// A run's error as the user sees it.
pub fn failure(error: RunError) -> Failure {
    match error {
        RunError::HostLacks(lacks) => Failure::host(&lacks.what).help(lacks.help),
        RunError::Device(message) => Failure::usage(message),
        RunError::GuestDied { ref console, .. } if !console.is_empty() => {
            Failure::host(&error).help(format!("its last output:\n{console}"))
        }
        error => Failure::host(error),
    }
}
