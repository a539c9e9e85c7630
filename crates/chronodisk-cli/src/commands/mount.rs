//! `chronodisk mount`: a program on this host itself, on an emulated block device.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chronodisk_native::CommandScope;
use chronodisk_report::{EndedBy, RunResult, read_log, render_run_summary};
use chronodisk_run::{
    LabelArguments, NativeFileSystem, NativeRep, RecordedOptions, Reps, RunDirectory, RunFolder, Runner, Setting,
    add_native_repetition, ended_early, new_result,
};
use clap::Args;

use super::serve::recording::Gathered;
use crate::failure::{Failure, Outcome, status};
use crate::native_run::{
    DeviceArguments, Done, Interruption, Launch, NativeRun, Ran, cant_serve, failure, own_failure,
};
use crate::progress::time_left;
use crate::{output, version};

/// Runs a program natively on an emulated device
///
/// Makes a block device of this host from the emulated device, makes and mounts a file system on it, and runs CMD on
/// this host's kernel with all processors. The device works in real time: each request takes the time that the model
/// says. CMD finds the block device in $CHRONODISK_DEVICE. Only CMD sees the mount. It needs root.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: CMD's own; 127 if there is no CMD, 128+n if signal n ended it.\n\
    125 if the emulation failed after CMD had started.\n\
    Before CMD starts: 2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk mount --device first-disk --setup 'cp -r /usr/include /mnt' -- grep -rc main /mnt")]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    device: String,

    #[command(flatten)]
    on: DeviceArguments,

    /// Repeats the run N times, each on a fresh device and with the next seed. With auto, a pilot of 5 decides on 10 to
    /// 100 further repetitions, for a 95 % confidence interval of the run time within 5 % of its mean
    #[arg(long, value_name = "N|auto", default_value = "1")]
    reps: Reps,

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

/// Runs the command as often as asked, and keeps the result.
pub fn execute(arguments: Arguments, options: RecordedOptions) -> Outcome {
    let device = arguments.on.load(&arguments.device, arguments.on.device_speed)?;
    let directory = RunFolder::plan(arguments.output.as_deref(), device.name())?;
    directory.expect_place()?;
    let interruption = Interruption::watch()?;
    // Before any thread exists: they would stay in this host's mount namespace.
    let scope = CommandScope::make("mount").map_err(failure)?;
    let mut result = new_result(&Setting {
        caller: &version::caller(),
        directory: &directory,
        devices: &[device.used()],
        command: &arguments.command,
        recorded: &options,
        labels: &arguments.labels.labels(),
        runner: Runner::Native(NativeFileSystem {
            kind: arguments.on.fs,
            mkfs_options: arguments.on.mkfs_options.as_deref().unwrap_or_default(),
            mount_options: arguments.on.mount_options.as_deref().unwrap_or_default(),
            scheduler: &arguments.on.scheduler,
        }),
    });
    let program = NativeRun {
        arguments: &arguments.on,
        device: &device,
        launch: Launch {
            command: &arguments.command,
            stdout_to_stderr: arguments.json,
            scope: &scope,
            interruption: &interruption,
        },
    };
    let run = Run { arguments: &arguments, directory: &directory, program };
    let Repeated { status, failure, command_began } = run.repeat(&mut result);
    if !command_began {
        return failure.map_or(Ok(status), Err);
    }
    if !result.reps.is_empty() {
        output::note(render_run_summary(&result).trim_end());
        RunFolder::remember(&directory);
        output::note(format_args!("result: {}", directory.path().display()));
    }
    if arguments.json {
        output::data(&result.to_json()).map_err(Failure::after_start)?;
    }
    failure.map_or(Ok(status), |failure| Err(failure.after_start()))
}

/// Common part of all repetitions.
struct Run<'a> {
    arguments: &'a Arguments,
    directory: &'a RunDirectory,
    program: NativeRun<'a>,
}

/// How the repetitions ended.
struct Repeated {
    status: u8,
    failure: Option<Failure>,
    command_began: bool,
}

impl Run<'_> {
    /// Repeats until done, interrupted, or failed; completed repetitions count.
    fn repeat(&self, result: &mut RunResult) -> Repeated {
        let mut end = Repeated { status: status::FINE, failure: None, command_began: false };
        let fails = |result: &mut RunResult, failure: Failure| {
            result.ended_by = EndedBy::Chronodisk;
            result.failure = Some(failure.to_string());
            Some(failure)
        };
        while self.arguments.reps.wants_more(result) {
            if self.arguments.reps != Reps::Fixed(1) {
                let spent = result.reps.iter().map(|rep| Duration::from_nanos(rep.host_time_ns.as_nanos())).sum();
                let left = time_left(spent, result.reps.len() as u32, self.arguments.reps.left(result));
                output::note(format_args!("{}{left}", self.arguments.reps.of(result)));
            }
            match self.repetition(result) {
                Ok(ran) => {
                    (end.status, end.command_began) = (ran.status, true);
                    result.warnings.extend(self.arguments.reps.warning(result));
                    end.failure = ran.failure.and_then(|failure| fails(result, failure));
                    let interruption = self.program.launch.interruption;
                    let is_asked = interruption.came();
                    if is_asked && end.failure.is_none() {
                        result.ended_by = EndedBy::Signal;
                        result.warnings.push(ended_early(interruption.name()));
                        // The command's own status does not report omitted calls.
                        let is_cut = !ran.asked_to_end || self.arguments.reps.wants_more(result);
                        if end.status == status::FINE && is_cut {
                            end.status = interruption.status();
                        }
                    }
                    // After every repetition, so that any end of this process leaves a complete result.
                    if let Err(error) = self.directory.write_run(result) {
                        end.failure = fails(result, error);
                    }
                    if end.status != status::FINE || end.failure.is_some() || is_asked {
                        return end;
                    }
                    if let Some(count) = self.arguments.reps.end_pilot(result) {
                        (0..count).for_each(|index| self.directory.remove_repetition(index));
                    }
                }
                Err(failure) => {
                    if self.program.launch.interruption.came() {
                        end.status = self.program.launch.interruption.status();
                        result.ended_by = EndedBy::Signal;
                        let name = self.program.launch.interruption.name();
                        output::note(format_args!("{name} ended the run; repetitions kept: {}", result.reps.len()));
                    } else {
                        end.failure = fails(result, failure);
                    }
                    // The result of the repetitions before says how it ended, too.
                    if !result.reps.is_empty()
                        && let Err(error) = self.directory.write_run(result)
                    {
                        end.failure.get_or_insert(error);
                    }
                    return end;
                }
            }
        }
        end
    }

    /// One repetition, on a fresh device. An error means that the command has not begun.
    fn repetition(&self, result: &mut RunResult) -> Result<Ran, Failure> {
        let (index, seeds_before) = self.arguments.reps.next(result);
        let seed = self.arguments.on.seed.wrapping_add(seeds_before);
        let log = NewLog::make(self.directory, index)?;
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
        if ran.failure.is_none() {
            ran.failure = own_failure(&outcome);
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
    /// The directory, if nothing else is in it.
    fresh: Option<PathBuf>,
    is_kept: bool,
}

impl NewLog {
    fn make(directory: &RunDirectory, index: u32) -> Result<Self, Failure> {
        let fresh = (!directory.path().exists()).then(|| directory.path().to_owned());
        directory.make()?;
        Ok(NewLog { path: directory.log(index), fresh, is_kept: false })
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
