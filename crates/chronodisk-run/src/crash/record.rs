//! Runs the program, and keeps the recording of its device.

use std::ffi::OsString;

use chronodisk_device::DeviceInfo;
use chronodisk_guest::{FileSystem, RunEvent, RunOptions};
use chronodisk_report::PhaseName;

use super::acknowledged::Acknowledged;
use super::arguments::{CrashArguments, StateChoice};
use super::setup::{Setup, default_check_timeout};
use crate::arguments::PROGRAM_PREFIX;
use crate::device;
use crate::executed::Executed;
use crate::failure::{Failure, status};
use crate::folder::RunDirectory;
use crate::guest::{Clock, RunPlan, RunProgress, Work, execute};
use crate::recorded::RecordedOptions;
use crate::result::Caller;

/// A recorded run.
pub struct CrashRecorded {
    /// The run.
    pub run: Executed,
    /// Directory of the run.
    pub directory: RunDirectory,
    /// Whether the states can be checked: CMD ended with status 0, and the recording is complete.
    pub is_recorded: bool,
}

/// Runs CMD in a guest, and keeps the run with its recording.
///
/// # Errors
/// Wrong options, before anything is made.
pub fn record_for_crash(
    arguments: &CrashArguments,
    mut recorded: RecordedOptions,
    caller: Caller,
    watch: &mut dyn FnMut(FileSystem, RunProgress<'_>),
) -> Result<CrashRecorded, Failure> {
    if arguments.check.as_deref().is_none_or(|check| check.trim().is_empty()) {
        return Err(Failure::usage("--check is empty; expected a shell command"));
    }
    states_fit(arguments)?;
    let guest = arguments.of_run()?;
    recorded.add_effective(&[("cpu", "cpu"), ("kernel-scale", "kernel_scale"), ("ram-budget", "ram_budget_bytes")]);
    let command: Vec<OsString> = arguments.command.clone();
    let mut plan = RunPlan::resolve(&guest, Work::Command(command, None), recorded, caller)?;
    let info = fitting_device(arguments)?;
    let directory = plan.directory.clone();
    if directory.crash_recording().exists() {
        let shown = directory.path().display();
        return Err(Failure::usage(format!("{shown} holds a recording already")).help("name another with --output"));
    }
    // A directory that stays empty is removed.
    let _fresh = directory.make_fresh()?;
    let recording = std::path::absolute(directory.crash_recording()).map_err(Failure::host)?;
    plan.options.acknowledges = true;
    plan.options.devices[0].store_recording = Some(recording);
    let mut acknowledged = Acknowledged::default();
    let file_system = plan.options.file_system;
    let run = execute(&plan, &mut |progress| match progress {
        RunProgress::Guest(RunEvent::Acknowledged { at, bytes }) => acknowledged.add(at, &bytes),
        progress => watch(file_system, progress),
    });
    let kept = run.and_then(|run| {
        let is_complete = run.is_kept && run.failure.is_none() && run.status == status::FINE;
        if is_complete {
            setup(arguments, &plan.options, &info, &run, acknowledged)?.write(&directory)?;
        }
        Ok((run, is_complete))
    });
    if !matches!(kept, Ok((_, true))) {
        // Without the facts beside it, no command can use it.
        let _ = std::fs::remove_file(directory.crash_recording());
    }
    kept.map(|(run, is_recorded)| CrashRecorded { run, directory, is_recorded })
}

/// Refuses models whose state is not in this process, before such a model is started.
fn states_fit(arguments: &CrashArguments) -> Result<(), Failure> {
    let is_program = arguments.device.as_ref().is_some_and(|device| device.starts_with(PROGRAM_PREFIX));
    match arguments.states {
        StateChoice::Model if is_program || arguments.elsewhere.server.is_some() => {
            Err(Failure::usage("--states model can't be used with exec: models or --server")
                .help("they do not tell what a loss of power would lose; use --states any"))
        }
        StateChoice::Model | StateChoice::Any => Ok(()),
    }
}

/// The device's properties, if states of it can be made.
fn fitting_device(arguments: &CrashArguments) -> Result<DeviceInfo, Failure> {
    let on = &arguments.on;
    let device = device::load_anywhere(arguments.device.as_deref(), &arguments.elsewhere, on.capacity, on.seed)?;
    let info = device.info().clone();
    if device.is_zoned() {
        return Err(Failure::usage(format!("{} is a zoned device, which crash does not support", device.name())));
    }
    if arguments.states == StateChoice::Model && on.change(device)?.model()?.volatile().is_none() {
        return Err(unknown(&info.name));
    }
    Ok(info)
}

/// The model does not implement the method.
pub(super) fn unknown(name: &str) -> Failure {
    Failure::usage(format!("the model of {name} does not know which sectors a loss of power would lose"))
        .help("use --states any")
}

fn setup(
    arguments: &CrashArguments,
    options: &RunOptions,
    info: &DeviceInfo,
    run: &Executed,
    acknowledged: Acknowledged,
) -> Result<Setup, Failure> {
    let rep = run.result.reps.first().ok_or_else(|| Failure::host("the run has no repetition"))?;
    let command = rep.phases.iter().find(|phase| phase.name == PhaseName::Command);
    let command = command.ok_or_else(|| Failure::host("the run has no phase of the command"))?;
    Ok(Setup {
        schema: Setup::schema(),
        file_system: options.file_system,
        mount_options: options.mount_options.clone(),
        mount_point: options.mount_point.clone(),
        memory_bytes: options.memory_bytes,
        // The checks run on the default clock, for which a kernel of the exact one is not made.
        kernel: options.kernel.clone().filter(|_| arguments.clock == Clock::Guest),
        modules: options.modules.clone(),
        check: arguments.check.clone().unwrap_or_default(),
        check_timeout: arguments.check_timeout.unwrap_or(default_check_timeout()),
        states: arguments.states,
        cuts: arguments.cuts,
        seed: arguments.on.seed,
        physical_block_bytes: info.physical_block_bytes,
        write_back: info.volatile_cache,
        interval_ns: (command.start_ns, command.end_ns),
        acknowledged: acknowledged.into_lines(),
    })
}
