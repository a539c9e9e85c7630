//! `chronodisk run`: a program in a guest, on an emulated device.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronodisk_guest::{
    CpuBase, DEVICES_MAX, DeviceOptions, FileSystem, GuestKernel, IdlePace, KernelCosts, RootChoice, RunError,
    RunOptions, StoreChoice, calibration,
};
use chronodisk_report::{RunResult, render_run_summary};
use chronodisk_sim::Nanos;
use chronodisk_store::Durability;
use chronodisk_store::squash::{NameRule, SquashMode, SquashOptions};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::device::{self, Device};
use crate::elsewhere::{Elsewhere, PROGRAM_PREFIX};
use crate::failure::{Failure, Outcome, status};
use crate::reps::Reps;
use crate::run_result::{CPU_SPEED_DEFAULT, Setting, host_memory_bytes, repetition, run_result};
use crate::squash::SquashArguments;
use crate::stages::StageLine;
use crate::{output, quantity, runs, stored};

/// Runs a program on an emulated device
///
/// Boots a Linux kernel as an ordinary process on this host's file tree, makes and mounts a file
/// system on the emulated device (/dev/vda), and runs CMD there as you would run it here: with your
/// directory, environment, terminal and identity. Writes to the host's tree are undone afterwards.
/// The guest lives in its own time: it stands still while the emulator computes, and jumps ahead
/// when it idles. Under --clock real it lives in this host's.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: CMD's own; 127 if there is no CMD, 128+n if signal n ended it;\n\
    2 for wrong usage, 3 if this host lacks something or the emulation failed.\n\n\
    Example: chronodisk run --device first-disk --fs ext4 -- sh -c 'cp -r /usr/include /mnt && sync'")]
pub struct Arguments {
    /// Profile of the device: a name from `chronodisk devices`, or a file; or exec:COMMAND, a program that is
    /// the model. Given again it adds another device: /dev/vda, /dev/vdb and on
    #[arg(long, short, value_name = "PROFILE", required_unless_present = "server")]
    device: Vec<String>,

    #[command(flatten)]
    elsewhere: Elsewhere,

    /// File system to make and mount on the first device; none leaves it bare
    #[arg(long, value_name = "FS", default_value = "ext4", value_parser = file_system_parser())]
    fs: FileSystem,

    /// Capacity of each device, such as 8GiB, instead of the profile's; what is beyond its geometry
    /// takes several of it, one after the other
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// File with the state that the device begins in, made by `chronodisk age`; a new device if not given
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Where in the guest the file system is mounted
    #[arg(long, value_name = "DIR", default_value = "/mnt")]
    mount: String,

    /// Where CMD's root is. With device, CMD's own files are put on the first device before CMD runs: the program and
    /// others that its command line names, their libraries, and the files that it names. What is not there is read from
    /// this host's tree, untimed; what CMD writes anywhere goes to the device
    #[arg(long, value_name = "WHERE", default_value = "host")]
    root: Root,

    /// A further file that --root device puts on the device, or a folder with all that it holds; may be repeated
    #[arg(long, value_name = "PATH")]
    root_files: Vec<PathBuf>,

    /// The guest's memory
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: u64,

    /// Options for mkfs, in one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    mkfs_options: Option<String>,

    /// Options for mount -o, such as noatime,commit=30
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Option<String>,

    /// Mounts it as this type instead of what --fs says: the name of a changed file system that --module brings
    #[arg(long, value_name = "NAME")]
    mount_type: Option<String>,

    /// The guest's I/O scheduler
    #[arg(long, value_name = "NAME", default_value = "none")]
    scheduler: Scheduler,

    /// Runs that many times, each on a fresh device and with the next seed; auto repeats at least 10 times and
    /// until the 95 % confidence interval of the run time is within 5 % of its mean
    #[arg(long, value_name = "N|auto", default_value = "1")]
    reps: Reps,

    /// Which clock the guest lives by
    #[arg(long, value_name = "CLOCK", default_value = "guest")]
    clock: Clock,

    /// What the guest's clock counts while the guest computes; measured, or zero under --clock exact, or wall
    /// under --clock real
    #[arg(long, value_name = "BASE")]
    cpu: Option<Cpu>,

    /// A kernel of your own (the program `linux` of a build with ARCH=um) instead of the usual one
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,

    /// A module of that kernel, loaded before the file system is made; may be repeated
    #[arg(long = "module", value_name = "FILE")]
    modules: Vec<PathBuf>,

    /// Factor on the CPU time of the guest's kernel under --cpu measured, instead of what `chronodisk
    /// calibrate` has found, or 0.1
    #[arg(long, value_name = "F", value_parser = quantity::factor)]
    kernel_scale: Option<f64>,

    /// The guest's processor, such as 2x or 0.5x, against this host's
    #[arg(long, value_name = "FACTOR", default_value = "1x", value_parser = quantity::speed)]
    cpu_speed: f64,

    /// How time passes while the guest idles; if not given, it jumps until somebody types at a terminal
    #[arg(long, value_name = "PACE")]
    idle: Option<Idle>,

    /// Seed of everything that is random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// The guest's clock at boot, in seconds since 1970, for repeatable file times; now, if not given
    #[arg(long, value_name = "SECONDS")]
    start_time: Option<u64>,

    /// Where the device's bytes are: ram, or a file that keeps them (with several devices FILE.vda, FILE.vdb
    /// and on; with --squash one image of all)
    #[arg(long, value_name = "ram|FILE", default_value = "ram")]
    store: OsString,

    /// Host memory that the device's bytes may fill; half of this host's, if not given
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    /// Keeps through a power cut of this host, too, what the device promises: completed writes if it has no volatile
    /// cache, else completed flushes
    #[arg(long)]
    durable: bool,

    #[command(flatten)]
    squash: SquashArguments,

    /// Samples memory and CPU time of the device's components, that often in the guest's time, into the result
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    sample_every: Option<Nanos>,

    /// Diagnostic: writes everything that is done to the device's bytes to a new file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    record_store: Option<PathBuf>,

    /// Lets the guest's writes to this host's file tree stay
    #[arg(long)]
    host_writes: bool,

    /// Empties the guest's caches before CMD runs
    #[arg(long)]
    drop_caches: bool,

    /// Checks the file system after it was unmounted; a fault ends with status 1
    #[arg(long)]
    check: bool,

    /// Directory for the result, instead of a new one in the folder of runs
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Writes the result as JSON to standard output; CMD's own output then goes to standard error
    #[arg(long)]
    json: bool,

    /// Diagnostic: waits that long in every call of the model, or at random in a range such as
    /// 0us..2ms; the guest must not notice
    #[arg(long, value_name = "DURATION", hide_short_help = true, value_parser = quantity::duration_range)]
    model_delay: Option<RangeInclusive<Nanos>>,

    /// Diagnostic: bytes of a device that are read or written in a second of this host's time at most; the guest must
    /// not notice
    #[arg(long, value_name = "SIZE", hide_short_help = true, value_parser = quantity::bytes)]
    store_rate: Option<u64>,

    /// Diagnostic: the guest's clock sleeps up to that long, at random, at one in eight of its entries; the guest must
    /// not notice
    #[arg(long, value_name = "DURATION", hide_short_help = true, value_parser = quantity::duration)]
    clock_disturbance: Option<Nanos>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
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
    /// The distribution's kernel, whose clock stops and jumps
    Guest,
    /// A kernel that keeps simulated time itself, to the nanosecond; `chronodisk kernel build` makes it
    Exact,
    /// This host's time, in which the guest's slow system calls show: credible for devices of about 1 ms and more
    Real,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cpu {
    /// The guest's own CPU time, with the cost of its slow system calls scaled to a native kernel's
    Measured,
    /// The host's time while the guest runs
    Wall,
    /// Nothing: only devices and timers take time, and runs repeat to the nanosecond
    Zero,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Root {
    /// This host's tree
    Host,
    /// The first device
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Idle {
    /// To the next thing that happens
    Jump,
    /// As this host's
    Host,
}

fn file_system_parser() -> impl clap::builder::TypedValueParser<Value = FileSystem> {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    PossibleValuesParser::new(FileSystem::ALL.map(FileSystem::name)).try_map(|name| name.parse::<FileSystem>())
}

fn memory(text: &str) -> Result<u64, String> {
    match quantity::bytes(text)? {
        size if size < MEMORY_MIN_BYTES => Err("the guest's kernel needs at least 64MiB".into()),
        size if size > host_memory_bytes() => Err("this host has less memory than that".into()),
        size => Ok(size),
    }
}

fn interval(text: &str) -> Result<Nanos, String> {
    match quantity::duration(text)? {
        Nanos::ZERO => Err("expected an interval longer than nothing, such as 1s".into()),
        interval => Ok(interval),
    }
}

/// With less, the distribution's kernel does not get through its boot reliably.
const MEMORY_MIN_BYTES: u64 = 64 << 20;

/// Runs the command as often as asked, and keeps the result.
pub fn execute(arguments: Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    if arguments.clock == Clock::Real {
        real_time_is_possible(&arguments)?;
    }
    let devices = load_devices(&arguments)?;
    let options = run_options(&arguments, &devices)?;
    let directory = runs::plan(arguments.output.as_deref(), devices[0].name())?;
    let run = repeat(&arguments, given, &devices, &options, &directory)?;
    if run.result.reps.is_empty() {
        return Ok(run.status);
    }
    runs::remember(&directory);
    output::note(render_run_summary(&run.result).trim_end());
    output::note(format_args!("result: {}", directory.display()));
    if arguments.json {
        output::data(&run.result.to_json())?;
    }
    Ok(run.status)
}

fn load_devices(arguments: &Arguments) -> Result<Vec<Device>, Failure> {
    if arguments.device.len() > DEVICES_MAX {
        return Err(Failure::usage(format!("a guest has at most {DEVICES_MAX} devices")));
    }
    let load =
        |name| device::load_anywhere(name, &arguments.elsewhere, arguments.capacity, arguments.seed)?.without_zones();
    let names = arguments.device.iter().map(|name| Some(name.as_str()));
    let devices: Vec<Device> = match arguments.device.is_empty() {
        true => vec![load(None)?],
        false => names.map(load).collect::<Result<_, _>>()?,
    };
    let devices = match (arguments.state.as_deref(), devices.len()) {
        (Some(_), 2..) => return Err(Failure::usage("--state is of one device, and there are several")),
        (Some(_), _) if arguments.elsewhere.server.is_some() => {
            return Err(Failure::usage("a server has no state files of its guests; take --state without --server"));
        }
        (state, _) => devices.into_iter().map(|device| device.begin_in(state)).collect::<Result<Vec<_>, _>>()?,
    };
    if let Some(device) = devices.iter().find(|device| device.has_host_queue()) {
        return Err(Failure::usage(format_args!("{} has a host's request queue in it", device.name())).help(
            "the guest's kernel has a queue of its own, and requests would wait twice; take the device without it",
        ));
    }
    Ok(devices)
}

struct Run {
    result: RunResult,
    status: u8,
}

/// Repeats until done, interrupted, or something fails; what was done until then counts.
fn repeat(
    arguments: &Arguments,
    given: &dyn Fn(&str) -> bool,
    devices: &[Device],
    options: &RunOptions,
    directory: &Path,
) -> Result<Run, Failure> {
    let all = all_options(arguments, options);
    let options_given = all.iter().filter(|(name, _)| given(name)).map(|(name, value)| (name.clone(), value.clone()));
    let setting = Setting { directory, devices, options, options_given: options_given.collect(), all_options: all };
    let mut result = run_result(&setting);
    for index in 0.. {
        if !arguments.reps.wants_more(&result) {
            break;
        }
        if arguments.reps != Reps::Fixed(1) {
            output::note(arguments.reps.of(index));
        }
        let seed = arguments.seed.wrapping_add(u64::from(index));
        let mut line = StageLine::new(options.file_system);
        let outcome = chronodisk_guest::run(&RunOptions { seed, ..options.clone() }, &mut |stage| line.ended(stage));
        line.clear();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(RunError::Interrupted { signal }) => {
                output::note(format_args!("interrupted; repetitions kept: {index}"));
                return Ok(Run { result, status: 128 + signal as u8 });
            }
            Err(error) if index == 0 => return Err(failure(error)),
            Err(error) => {
                output::failure(failure(error));
                output::note(format_args!("repetitions kept: {index}"));
                return Ok(Run { result, status: status::HOST_LACKS });
            }
        };
        runs::make(directory)?;
        stored::write_repetition(directory, index, &outcome.records)?;
        repetition(&mut result, index, seed, &outcome);
        result.warnings.extend(arguments.reps.warning(&result));
        // After every repetition, so that whatever ends this process leaves a whole result.
        stored::write_run(directory, &result)?;
        let faults = outcome.check.as_ref().filter(|check| !check.clean);
        if let Some(check) = faults {
            output::note(format_args!("{} found faults:\n{}", check.command, check.output.trim_end()));
        }
        if outcome.backend.store_close_error.is_some() {
            return Ok(Run { result, status: status::OWN_FAILURE });
        }
        let status = u8::try_from(outcome.exit_status).unwrap_or(u8::MAX);
        match (status, faults) {
            (status::FINE, None) => {}
            (status::FINE, Some(_)) => return Ok(Run { result, status: status::CHECK_FAILED }),
            (status, _) => return Ok(Run { result, status }),
        }
    }
    Ok(Run { result, status: status::FINE })
}

fn run_options(arguments: &Arguments, devices: &[Device]) -> Result<RunOptions, Failure> {
    if !arguments.mount.starts_with('/') || arguments.mount == "/" {
        return Err(Failure::usage(format!("--mount {}: expected an absolute path other than /", arguments.mount)));
    }
    let for_mount = arguments.mount_options.is_some() || arguments.mount_type.is_some();
    if arguments.fs == FileSystem::None && (arguments.mkfs_options.is_some() || for_mount) {
        return Err(Failure::usage(
            "--fs none makes and mounts nothing; it takes no --mkfs-options, --mount-options or --mount-type",
        ));
    }
    let cpu = cpu_of(arguments);
    match (arguments.clock, cpu) {
        (Clock::Guest, Cpu::Zero) => {
            return Err(Failure::usage(
                "--cpu zero is of --clock exact: only a kernel with simulated time can do that",
            ));
        }
        (Clock::Exact, Cpu::Wall) => {
            return Err(Failure::usage(
                "--cpu wall is of --clock guest; under --clock exact the host's time is unknown",
            ));
        }
        (Clock::Real, Cpu::Measured | Cpu::Zero) => {
            return Err(Failure::usage("--clock real is this host's time, which is --cpu wall"));
        }
        _ => {}
    }
    if arguments.kernel_scale.is_some() && cpu != Cpu::Measured {
        return Err(Failure::usage(format!(
            "--kernel-scale is of --cpu measured; --cpu {} scales nothing",
            value_name(cpu)
        )));
    }
    if arguments.cpu_speed != CPU_SPEED_DEFAULT && cpu != Cpu::Measured {
        return Err(Failure::usage(format!(
            "--cpu-speed is of --cpu measured; --cpu {} measures no CPU time",
            value_name(cpu)
        )));
    }
    let modules: Vec<PathBuf> =
        arguments.modules.iter().map(|file| existing_file("--module", file)).collect::<Result<_, _>>()?;
    let kernel = arguments.kernel.as_deref().map(|file| existing_file("--kernel", file)).transpose()?;
    let words = arguments.mkfs_options.as_deref().unwrap_or_default().split_whitespace();
    let patience = arguments.elsewhere.patience();
    Ok(RunOptions {
        devices: device_options(arguments, devices)?,
        answer_patience: patience.answer,
        reconnect_patience: patience.reconnect,
        model_delay: arguments.model_delay.clone().unwrap_or(Nanos::ZERO..=Nanos::ZERO),
        clock_disturbance: arguments.clock_disturbance.unwrap_or(Nanos::ZERO),
        seed: arguments.seed,
        file_system: arguments.fs,
        mkfs_options: words.map(str::to_owned).collect(),
        mount_options: arguments.mount_options.clone(),
        mount_type: arguments.mount_type.clone(),
        mount_point: arguments.mount.clone(),
        scheduler: Some(value_name(arguments.scheduler)),
        memory_bytes: arguments.memory,
        kernel: match arguments.clock {
            Clock::Guest | Clock::Real => GuestKernel::Distribution { file: kernel },
            Clock::Exact => GuestKernel::Exact { file: kernel },
        },
        modules,
        cpu_base: match cpu {
            Cpu::Measured => CpuBase::Measured,
            Cpu::Wall => CpuBase::Wall,
            Cpu::Zero => CpuBase::Zero,
        },
        costs: kernel_costs(arguments),
        cpu_speed: arguments.cpu_speed,
        idle_pace: match (arguments.clock, arguments.idle) {
            (Clock::Real, _) => Some(IdlePace::Real),
            (_, Some(Idle::Jump)) => Some(IdlePace::Jump),
            (_, Some(Idle::Host)) => Some(IdlePace::Host),
            (_, None) => None,
        },
        start_time: arguments.start_time.map(Duration::from_secs),
        host_writes: arguments.host_writes,
        root: root(arguments)?,
        drop_caches: arguments.drop_caches,
        check: arguments.check,
        command: arguments.command.clone(),
        sample_every: arguments.sample_every,
        stdout_to_stderr: arguments.json,
        ends_by_signal: false,
    })
}

/// Where the command's root is, if it can be there.
fn root(arguments: &Arguments) -> Result<RootChoice, Failure> {
    if arguments.root == Root::Host {
        return match arguments.root_files.is_empty() {
            true => Ok(RootChoice::Host),
            false => Err(Failure::usage("--root-files is of --root device")),
        };
    }
    if arguments.fs == FileSystem::None {
        return Err(Failure::usage("--root device wants a file system on the device; --fs none makes none"));
    }
    if arguments.host_writes {
        return Err(Failure::usage("--root device takes all that CMD writes; --host-writes wants it here"));
    }
    if arguments.squash.makes_up_contents() {
        return Err(Failure::usage("--root device wants the bytes of programs, and --squash makes up what files hold")
            .help("--squash=exact keeps everything, compressed"));
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
fn device_options(arguments: &Arguments, devices: &[Device]) -> Result<Vec<DeviceOptions>, Failure> {
    let in_memory = arguments.store == "ram";
    if !in_memory && arguments.ram_budget.is_some() {
        return Err(Failure::usage("--ram-budget is of --store ram; a file takes what it needs"));
    }
    if in_memory && arguments.durable {
        return Err(
            Failure::usage("--durable needs a file; memory does not survive anything").help("name one with --store")
        );
    }
    if !in_memory && arguments.elsewhere.server.is_some() {
        return Err(Failure::usage(
            "--store FILE is on this machine; with --server the bytes are in the server's memory",
        ));
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
        return Err(Failure::usage(
            "--squash is of bytes on this machine; with --server they are in the server's memory",
        ));
    }
    if arguments.record_store.is_some() && devices.len() > 1 {
        return Err(Failure::usage("--record-store is of one device"));
    }
    let options = |(index, device): (usize, &Device)| DeviceOptions {
        model: device.choice(&arguments.elsewhere),
        capacity_bytes: arguments.capacity,
        state_file: device.state_file().map(Path::to_owned),
        store: squashed.as_ref().map_or_else(|| store(index), |options| squash(store(index), options)),
        durable: arguments.durable,
        store_recording: arguments.record_store.clone(),
        store_rate: arguments.store_rate,
    };
    Ok(devices.iter().enumerate().map(options).collect())
}

/// The base that was asked for, or what is usual under the clock.
fn cpu_of(arguments: &Arguments) -> Cpu {
    arguments.cpu.unwrap_or(match arguments.clock {
        Clock::Guest => Cpu::Measured,
        Clock::Exact => Cpu::Zero,
        Clock::Real => Cpu::Wall,
    })
}

/// One factor if it was given; else what `chronodisk calibrate` has found for the guest's clock on this machine.
fn kernel_costs(arguments: &Arguments) -> KernelCosts {
    match (arguments.kernel_scale, arguments.clock) {
        (Some(scale), _) => KernelCosts::uniform(scale),
        (None, Clock::Guest) => calibration::kept().map(|kept| kept.costs).unwrap_or_default(),
        (None, Clock::Exact | Clock::Real) => KernelCosts::default(),
    }
}

/// Whether what is asked for can be had in the host's time.
fn real_time_is_possible(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.idle.is_some() {
        return Err(Failure::usage("--idle is of the guest's own time; under --clock real all time is this host's"));
    }
    if arguments.sample_every.is_some() {
        return Err(Failure::usage("--sample-every is of the guest's own time; under --clock real it would be late"));
    }
    let is_program = |name: &String| name.starts_with(PROGRAM_PREFIX);
    if arguments.elsewhere.server.is_some() || arguments.device.iter().any(is_program) {
        return Err(Failure::usage("--clock real wants its models on this host, not at a server or in a program")
            .help("waiting for an answer takes time, which only the guest's own clock leaves out"));
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
fn all_options(arguments: &Arguments, options: &RunOptions) -> BTreeMap<String, Value> {
    let idle = arguments.idle.map(value_name);
    let reps = match arguments.reps {
        Reps::Fixed(count) => json!(count),
        Reps::Auto => json!("auto"),
    };
    let device = match arguments.device.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let entries: [(&str, Value); 35] = [
        ("device", device),
        ("server", json!(arguments.elsewhere.server)),
        ("no-speculation", json!(arguments.elsewhere.no_speculation)),
        ("fs", json!(arguments.fs.name())),
        ("capacity", json!(arguments.capacity)),
        ("state", json!(arguments.state)),
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
        ("cpu", json!(value_name(cpu_of(arguments)))),
        ("kernel", json!(arguments.kernel)),
        ("module", json!(arguments.modules)),
        ("kernel-scale", json!((options.cpu_base == CpuBase::Measured).then_some(options.costs.other_scale))),
        ("cpu-speed", json!(options.cpu_speed)),
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
            Failure::host(&error).help(format!("the last that it printed:\n{console}"))
        }
        error => Failure::host(error),
    }
}
