//! `chronodisk run`: a program in a guest, on an emulated device.

use std::ffi::OsString;
use std::path::PathBuf;

use chronodisk_run::{
    Executed, GuestArguments, RecordedCalls, RecordedOptions, RunDirectory, RunFolder, RunPlan, RunProgress, Work,
};
use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::status_line::GuestStatus;
use crate::{output, version};

/// Runs a program in a Linux guest on an emulated device
///
/// Boots a Linux kernel as an ordinary process, makes and mounts a file system on the emulated device (/dev/vda), and
/// runs CMD with your directory, environment, terminal and user. CMD finds the device in $CHRONODISK_DEVICE. The guest
/// sees this host's files; by default its changes to them are discarded. The guest's clock stops while the emulator
/// computes and skips idle time, so the device's timing does not depend on this host's speed.
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

    /// Program to run in the guest, with its arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
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

/// Does the work as often as asked, keeps the result, and shows it.
pub fn work(arguments: &GuestArguments, work: Work<'_>, recorded: RecordedOptions) -> Outcome {
    let plan = RunPlan::resolve(arguments, work, recorded, version::caller())?;
    let quiet = arguments.quiet;
    let mut status: Option<GuestStatus> = None;
    let run = chronodisk_run::execute(&plan, &mut |progress| match progress {
        RunProgress::Repetition(_) if quiet => {}
        RunProgress::Repetition(words) => output::note(words),
        RunProgress::Boots => status = Some(GuestStatus::new(plan.options.file_system, quiet)),
        RunProgress::Guest(event) => status.iter_mut().for_each(|status| status.saw(event.clone())),
        RunProgress::Ended => status.iter().for_each(GuestStatus::clear),
    })?;
    show(run, &plan.directory, quiet, arguments.result.json)
}

/// Shows the end of a run, and returns its exit status.
pub fn show(run: Executed, directory: &RunDirectory, quiet: bool, json: bool) -> Outcome {
    run.earlier_failures.into_iter().for_each(output::failure);
    if !run.command_began {
        return run.failure.map_or(Ok(run.status), Err);
    }
    if !run.result.reps.is_empty() {
        // Before anything that may fail, such as a standard output on a full disk.
        output::summary(&run.result, quiet);
    }
    if run.is_kept {
        RunFolder::remember(directory);
        if !quiet {
            output::note(format_args!("result: {}", directory.path().display()));
        }
    }
    if json {
        output::data(&run.result.to_json()).map_err(Failure::after_start)?;
    }
    run.failure.map_or(Ok(run.status), |failure| Err(failure.after_start()))
}
