//! Translates the flags of a guest into the options of the guest crate.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chronodisk_guest::{
    CPU_SPEED_DEFAULT, DeviceOptions, ExactCpu, FileSystem, GuestTime, IdlePace, KernelCosts, MeasuredCpu,
    QUANTUM_DEFAULT, ReplayOptions, RootChoice, RunOptions, StoppingCpu, StoreChoice, ThinkTime, calibration,
};
use chronodisk_sim::Nanos;
use chronodisk_squash::{NameRule, SquashMode, SquashOptions};
use chronodisk_store::Durability;
use clap::ValueEnum;
use serde_json::json;

use super::arguments::{Clock, Cpu, GuestArguments, Idle, Root};
use super::recorded_calls::RecordedCalls;
use super::work::Work;
use crate::arguments::{DebugSettings, PROGRAM_PREFIX};
use crate::device::Device;
use crate::failure::Failure;
use crate::memory::host_memory_bytes;
use crate::recorded::RecordedOptions;

pub(super) fn run_options(
    arguments: &GuestArguments,
    time: GuestTime,
    devices: &[Device],
    work: Work<'_>,
    executable: PathBuf,
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
    let debug = arguments.debug_settings()?;
    let with_kernel = matches!(time, GuestTime::Exact { cpu: ExactCpu::Zero, .. });
    let think = ThinkTime { speed: arguments.cpu_speed, with_kernel };
    let (command, replay, recording) = match work {
        Work::Replay(_) | Work::Draws(_) | Work::Command(_, Some(_)) if arguments.cpus > 1 => {
            return Err(Failure::usage(format_args!(
                "--cpus {}: system calls are recorded and replayed with one processor only",
                arguments.cpus
            )));
        }
        Work::Command(command, calls) => (command, None, calls.map(RecordedCalls::recording)),
        Work::Replay(plan) => (Vec::new(), Some(ReplayOptions { plan, think }), None),
        Work::Draws(draws) => (Vec::new(), Some(ReplayOptions { plan: draws.plan.clone(), think }), None),
    };
    Ok(RunOptions {
        executable,
        devices: device_options(arguments, &debug, devices)?,
        answer_patience: patience.answer,
        reconnect_patience: patience.reconnect,
        model_delay: debug.model_delay.unwrap_or(Nanos::ZERO..=Nanos::ZERO),
        clock_disturbance: debug.clock_disturbance,
        seed: arguments.on.seed,
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
        settle: !arguments.no_settle && arguments.fs != FileSystem::None,
        drop_caches: arguments.drop_caches,
        check: arguments.check,
        states: None,
        heartbeat_timeout: None,
        acknowledges: false,
        command,
        replay,
        recording,
        sample_every: arguments.sample_every,
        stdout_to_stderr: arguments.result.json,
        ends_by_signal: false,
    })
}

/// Whether the other options fit an existing file system, or a new one.
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

/// Place of the command's root, if the options permit it.
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
        // Symbolic links are copied as they are, so the path is not resolved.
        let absolute = std::path::absolute(path);
        absolute
            .and_then(|absolute| std::fs::symlink_metadata(&absolute).map(|_| absolute))
            .map_err(|error| Failure::usage(format!("--root-files {}: {error}", path.display())))
    });
    Ok(RootChoice::Device { files: files.collect::<Result<_, _>>()? })
}

/// Each device with its share of the memory for bytes, or with its file.
fn device_options(
    arguments: &GuestArguments,
    debug: &DebugSettings,
    devices: &[Device],
) -> Result<Vec<DeviceOptions>, Failure> {
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
    // A server decides for itself unless the user gives a number.
    let budget_bytes = match (arguments.ram_budget, &arguments.elsewhere.server) {
        (Some(budget), _) => budget / devices.len() as u64,
        (None, Some(_)) => 0,
        (None, None) => host_memory_bytes() / 2 / devices.len() as u64,
    };
    let squashed = arguments.squash.options(arguments.on.seed, Durability::default());
    let squashed = squashed.map(|options| SquashOptions {
        ignore_journal: debug.journal_ignored,
        notified: arguments.notify_file_data,
        ..options
    });
    let path_of = |index: usize| {
        let mut path = arguments.store.clone();
        path.push(format!(".vd{}", char::from(b'a' + index as u8)));
        PathBuf::from(path)
    };
    // Separate images of each device, from versions before joint images, stay separate.
    let together = devices.len() == 1 || squashed.is_some() && !path_of(0).exists();
    let store = |index: usize| match (in_memory, together) {
        (true, _) => StoreChoice::Ram { budget_bytes },
        (false, true) => StoreChoice::File { path: PathBuf::from(&arguments.store) },
        (false, false) => StoreChoice::File { path: path_of(index) },
    };
    if squashed.is_some() && arguments.elsewhere.server.is_some() {
        return Err(Failure::usage("--squash can't be used with --server, which keeps the bytes (its --store)"));
    }
    if arguments.notify_file_data {
        notification_fits(arguments, squashed.as_ref(), devices)?;
    }
    if arguments.interface_extensions && devices.iter().any(Device::is_zoned) {
        return Err(Failure::usage("--interface-extensions can't be used with zoned devices"));
    }
    if arguments.record_store.is_some() && devices.len() > 1 {
        return Err(Failure::usage("--record-store works with one device only"));
    }
    let options = |(index, device): (usize, &Device)| DeviceOptions {
        model: device.choice(&arguments.elsewhere, debug),
        speed: device.speed().factor(),
        capacity_bytes: arguments.on.capacity,
        zoned: device.is_zoned(),
        state_file: device.state_file().map(Path::to_owned),
        store: squashed.as_ref().map_or_else(|| store(index), |options| squash(store(index), options)),
        durable: arguments.durable,
        store_recording: arguments.record_store.clone(),
        interface_extensions: arguments.interface_extensions,
        store_rate: debug.store_rate,
    };
    Ok(devices.iter().enumerate().map(options).collect())
}

/// Refuses options that --notify-file-data can't be used with.
fn notification_fits(
    arguments: &GuestArguments,
    squashed: Option<&SquashOptions>,
    devices: &[Device],
) -> Result<(), Failure> {
    let refused = |what: &str| Err(Failure::usage(format!("--notify-file-data can't be used with {what}")));
    match squashed {
        Some(options) if options.mode == SquashMode::Exact => refused("--squash=exact, which stores all bytes"),
        _ if arguments.cpus > 1 => refused("--cpus: the kernel for several processors does not have it"),
        _ if devices.iter().any(Device::is_zoned) => refused("zoned devices"),
        _ => Ok(()),
    }
}

/// The guest's time, from --clock, --cpu, --idle, --kernel-scale, --machine and --cpu-speed; refuses contradictions.
pub(super) fn guest_time(arguments: &GuestArguments, replays: bool) -> Result<GuestTime, Failure> {
    let idle = match arguments.idle {
        Some(Idle::Jump) => IdlePace::Jump,
        Some(Idle::Host) => IdlePace::Host,
        None => IdlePace::JumpUntilTyping,
    };
    let machine = arguments.machine.as_deref().map(costs_of_machine).transpose()?;
    let measured = |costs: KernelCosts| MeasuredCpu {
        costs: arguments.kernel_scale.map(KernelCosts::uniform).or(machine).unwrap_or(costs),
        speed: arguments.cpu_speed,
    };
    let time = match (arguments.clock, arguments.cpu) {
        (Clock::Guest, None | Some(Cpu::Measured)) if arguments.cpus == 1 => {
            // Costs from `chronodisk calibrate` for this clock on this machine.
            let costs = calibration::kept().map(|kept| kept.costs).unwrap_or_default();
            GuestTime::Stopping { cpu: StoppingCpu::Measured(measured(costs)), idle }
        }
        (Clock::Guest, None | Some(Cpu::Measured)) => {
            // Calibrated costs are of a kernel that traces its programs; this one does not.
            GuestTime::Several {
                cpu: measured(KernelCosts::default()),
                processors: arguments.cpus,
                quantum: QUANTUM_DEFAULT,
                idle,
            }
        }
        _ if arguments.cpus > 1 => {
            return Err(Failure::usage(format_args!(
                "--cpus {} needs --clock guest and --cpu measured",
                arguments.cpus
            )));
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
        _ if machine.is_some() && !is_measured => needs_measured("--machine"),
        // A replay uses recorded CPU time.
        (_, false) if !is_measured && !replays => needs_measured("--cpu-speed"),
        _ => Ok(time),
    }
}

fn costs_of_machine(file: &Path) -> Result<KernelCosts, Failure> {
    let read =
        calibration::read(file).map_err(|error| Failure::usage(format!("--machine {}: {error}", file.display())));
    Ok(read?.costs)
}

/// Checks that the other options are possible in the host's time.
pub(super) fn real_time_is_possible(arguments: &GuestArguments) -> Result<(), Failure> {
    if arguments.sample_every.is_some() {
        return Err(Failure::usage("--sample-every can't be used with --clock real"));
    }
    if arguments.interface_extensions {
        return Err(Failure::usage("--interface-extensions can't be used with --clock real"));
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

/// The store's place, with a squashing store in it.
fn squash(store: StoreChoice, options: &SquashOptions) -> StoreChoice {
    let (image, budget_bytes) = match store {
        StoreChoice::Ram { budget_bytes } => (None, budget_bytes),
        StoreChoice::File { path } => (Some(path), 0),
        other @ (StoreChoice::Squashed { .. } | StoreChoice::Overlay { .. }) => return other,
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
        notified: options.notified,
    }
}

/// Records effective values where a default depends on other flags or on the host.
pub(super) fn record_what_took_effect(recorded: &mut RecordedOptions, options: &RunOptions) {
    recorded.took_effect("cpu", json!(options.time.cpu_name()));
    recorded.took_effect("kernel-scale", json!(options.time.measured_cpu().map(|cpu| cpu.costs.other_scale)));
    let budget_bytes = match options.devices[0].store {
        StoreChoice::Ram { budget_bytes } | StoreChoice::Squashed { image: None, budget_bytes, .. } => {
            Some(budget_bytes * options.devices.len() as u64)
        }
        StoreChoice::File { .. } | StoreChoice::Squashed { .. } | StoreChoice::Overlay { .. } => None,
    };
    recorded.took_effect("ram-budget", json!(budget_bytes));
}

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is skipped").get_name().to_owned()
}
