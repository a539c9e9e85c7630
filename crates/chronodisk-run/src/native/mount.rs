//! `chronodisk mount`: the options of a native program's run, and its repetitions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chronodisk_native::CommandScope;
use chronodisk_report::{EndedBy, RunResult, failed_by_status, read_log};
use clap::Args;

use super::native_run::{
    DeviceArguments, Done, Interruption, Launch, NativeRun, Ran, cant_serve, native_failure, native_own_failure,
};
use crate::arguments::{Attach, Reps, ResultOptions};
use crate::device::Device;
use crate::executed::Executed;
use crate::failure::{Failure, status};
use crate::folder::{FreshDirectory, RunDirectory, RunFolder};
use crate::notes::{note, note_failed_requests};
use crate::recorded::RecordedOptions;
use crate::recording::Gathered;
use crate::result::{
    Caller, NativeFileSystem, NativeRep, Runner, Setting, add_native_repetition, ended_early, new_result,
};
use crate::times::time_left;

/// Options of a native program's run.
#[derive(Debug, Args)]
pub struct NativeArguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    pub device: String,

    /// The block device and its file system.
    #[command(flatten)]
    pub on: DeviceArguments,

    /// Makes the block device through this driver
    #[arg(long, value_name = "WAY", default_value = "auto")]
    pub attach: Attach,

    /// Repeats the run N times, each on a fresh device and with the next seed. With auto, a pilot of 5 decides on 10 to
    /// 100 further repetitions, for a 95 % confidence interval of the run time within 5 % of its mean
    #[arg(long, value_name = "N|auto", default_value = "1")]
    pub reps: Reps,

    /// Labels and directory of the result.
    #[command(flatten)]
    pub result: ResultOptions,
}

/// A native program's run whose options are consistent and supported by this host. [`execute_native`] runs it.
pub struct NativePlan<'a> {
    /// Directory of the result, which is not made yet.
    pub directory: RunDirectory,
    arguments: &'a NativeArguments,
    command: &'a [OsString],
    device: Device,
    recorded: RecordedOptions,
    caller: Caller,
}

impl<'a> NativePlan<'a> {
    /// Checks all options.
    pub fn resolve(
        arguments: &'a NativeArguments,
        command: &'a [OsString],
        recorded: RecordedOptions,
        caller: Caller,
    ) -> Result<Self, Failure> {
        let device = arguments.on.load(&arguments.device)?;
        let directory = RunFolder::plan(arguments.result.output.as_deref(), device.name())?;
        directory.expect_place()?;
        Ok(NativePlan { directory, arguments, command, device, recorded, caller })
    }
}

/// Runs the command as often as planned, and keeps the result. No thread may exist yet.
pub fn execute_native(plan: &NativePlan<'_>) -> Result<Executed, Failure> {
    let NativePlan { arguments, device, .. } = plan;
    let interruption = Interruption::watch()?;
    // Before any thread exists: they would stay in this host's mount namespace.
    let scope = CommandScope::make("mount", &plan.caller.executable).map_err(native_failure)?;
    let result = new_result(&Setting {
        caller: &plan.caller,
        directory: &plan.directory,
        devices: &[device.used()],
        command: plan.command,
        recorded: &plan.recorded,
        labels: &arguments.result.labels.labels(),
        runner: Runner::Native(NativeFileSystem {
            kind: arguments.on.fs,
            mkfs_options: arguments.on.mkfs_options.as_deref().unwrap_or_default(),
            mount_options: arguments.on.mount_options.as_deref().unwrap_or_default(),
            scheduler: &arguments.on.scheduler,
        }),
    });
    let launch = Launch {
        command: plan.command,
        stdout_to_stderr: arguments.result.json,
        scope: &scope,
        executable: &plan.caller.executable,
        interruption: &interruption,
    };
    let run =
        Run { plan, program: NativeRun { arguments: &arguments.on, device, way: arguments.attach.choice(), launch } };
    Ok(run.repeat(result))
}

/// Common part of all repetitions.
struct Run<'a> {
    plan: &'a NativePlan<'a>,
    program: NativeRun<'a>,
}

impl Run<'_> {
    /// Repeats until done, interrupted, or failed; completed repetitions count.
    fn repeat(&self, result: RunResult) -> Executed {
        let (reps, directory) = (self.plan.arguments.reps, &self.plan.directory);
        let interruption = self.program.launch.interruption;
        let mut run = Executed::begin(result);
        while reps.wants_more(&run.result) {
            if reps != Reps::Fixed(1) {
                let done = &run.result.reps;
                let spent = done.iter().map(|rep| Duration::from_nanos(rep.host_time_ns.as_nanos())).sum();
                let left = time_left(spent, done.len() as u32, reps.left(&run.result));
                note(format_args!("{}{left}", reps.of(&run.result)));
            }
            let ran = match self.repetition(&mut run.result) {
                Ok(ran) => ran,
                Err(failure) => {
                    if interruption.came() {
                        run.status = interruption.status();
                        run.result.ended_by = EndedBy::Signal;
                        let (name, kept) = (interruption.name(), run.result.reps.len());
                        note(format_args!("{name} ended the run; repetitions kept: {kept}"));
                    } else {
                        run.fails(failure);
                    }
                    run.keep_end(directory);
                    return run;
                }
            };
            (run.status, run.command_began) = (ran.status, true);
            run.is_kept = !run.result.reps.is_empty();
            run.result.warnings.extend(reps.warning(&run.result));
            if let Some(failure) = ran.failure {
                run.fails(failure);
            }
            let is_asked = interruption.came();
            if is_asked && run.failure.is_none() {
                run.result.ended_by = EndedBy::Signal;
                run.result.warnings.push(ended_early(interruption.name()));
                // The command's own status does not report omitted calls.
                let is_cut = !ran.asked_to_end || reps.wants_more(&run.result);
                if run.status == status::FINE && is_cut {
                    run.status = interruption.status();
                }
            }
            // After every repetition, so that any end of this process leaves a complete result.
            if let Err(failure) = directory.write_run(&run.result) {
                run.fails(failure);
            }
            if run.status != status::FINE || run.failure.is_some() || is_asked {
                return run;
            }
            if let Some(count) = reps.end_pilot(&mut run.result) {
                (0..count).for_each(|index| directory.remove_repetition(index));
                // The pilot's result is not kept.
                run.is_kept = false;
            }
        }
        run
    }

    /// Runs one repetition on a fresh device. An error means that the command has not begun.
    fn repetition(&self, result: &mut RunResult) -> Result<Ran, Failure> {
        let (index, seeds_before) = self.plan.arguments.reps.next(result);
        let seed = self.plan.arguments.on.device.seed.wrapping_add(seeds_before);
        let log = NewLog::make(&self.plan.directory, index)?;
        let gathered = Gathered::new(&log.path)?;
        let host_began = Instant::now();
        let mut server = self.program.server(seed)?;
        server.record_to(gathered.recorder()).map_err(cant_serve)?;
        let done = self.program.on_device(&mut server, Vec::new());
        let outcome = server.stop();
        let logged = gathered.finish_log();
        let Done { mut ran, window, phases, native, .. } = done?;
        let path = log.keep();
        let records = match logged.and_then(|()| read_log(&path).map_err(Failure::host)) {
            Ok(records) => records,
            Err(failure) => {
                ran.failure = Some(failure);
                return Ok(ran);
            }
        };
        note_failed_requests(&failed_by_status(&records));
        if ran.failure.is_none() {
            ran.failure = native_own_failure(&outcome);
        }
        add_native_repetition(
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
}

/// The log of a repetition, which is removed again if the command does not begin.
struct NewLog {
    path: PathBuf,
    is_kept: bool,
    /// Dropped after the log.
    _directory: FreshDirectory,
}

impl NewLog {
    fn make(directory: &RunDirectory, index: u32) -> Result<Self, Failure> {
        let fresh = directory.make_fresh()?;
        Ok(NewLog { path: directory.log(index), is_kept: false, _directory: fresh })
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
        }
    }
}
