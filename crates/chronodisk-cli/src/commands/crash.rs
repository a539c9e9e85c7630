//! `chronodisk crash`: power cuts of a device that a program uses.

use chronodisk_report::CrashResult;
use chronodisk_run::{
    CrashArguments, CrashProgress, RecordedOptions, RunDirectory, RunFolder, RunProgress, check_states,
    record_for_crash,
};
use clap::Args;

use crate::commands::run;
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::status_line::GuestStatus;
use crate::{output, version};

/// Checks the states in which power cuts may leave a device
///
/// Runs CMD once in a guest, and records the requests of the device. Then it makes states that the device may be in
/// when the power fails at an instant of the run. For each one a guest mounts the file system, which recovers,
/// unmounts it, runs the file system's checker, mounts it again, and runs CHECK. CMD may write lines to the pipe
/// $CHRONODISK_ACK; CHECK gets the lines acknowledged before the cut in the file $CHRONODISK_ACK.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 1 if a state failed, CMD's own status if CMD failed, 128+n if signal n ended the checks.\n\n\
    Example: chronodisk crash -d samsung-970-pro --capacity 64MiB \\\n           \
    --check 'test -s file || test ! -s $CHRONODISK_ACK' \\\n           \
    -- sh -c 'echo data >/mnt/file; sync; echo saved >$CHRONODISK_ACK'"
)]
pub struct Arguments {
    #[command(flatten)]
    crash: CrashArguments,
}

/// Records a run unless one is given, and checks its states.
pub fn execute(arguments: &Arguments, options: RecordedOptions) -> Outcome {
    let arguments = &arguments.crash;
    if let Some(run) = arguments.from.as_ref().or(arguments.resume.as_ref()) {
        return check(arguments, &RunFolder::find(run)?);
    }
    let mut line: Option<GuestStatus> = None;
    let recorded =
        record_for_crash(arguments, options, version::caller(), &mut |file_system, progress| match progress {
            RunProgress::Repetition(_) => {}
            RunProgress::Boots => line = Some(GuestStatus::new(file_system, arguments.quiet)),
            RunProgress::Guest(event) => line.iter_mut().for_each(|line| line.saw(event.clone())),
            RunProgress::Ended => line.iter().for_each(GuestStatus::clear),
        })?;
    let ended = run::show(recorded.run, &recorded.directory, true, false)?;
    match recorded.is_recorded {
        true => check(arguments, &recorded.directory).map_err(Failure::after_start),
        false => Ok(ended),
    }
}

fn check(arguments: &CrashArguments, directory: &RunDirectory) -> Outcome {
    let executable = version::caller().executable;
    let mut progress: Option<Progress> = None;
    let quiet = arguments.quiet;
    let checked = check_states(arguments, directory, executable, &mut |event| match event {
        CrashProgress::Made(count) if !quiet => progress = Some(Progress::new(count as u64, "states")),
        CrashProgress::Checked => progress.iter().for_each(|progress| progress.advance(1)),
        CrashProgress::Shrinks => {
            if let Some(progress) = progress.take() {
                progress.finish();
                output::note("shrinking the failures");
            }
        }
        CrashProgress::Made(_) => {}
    });
    if let Some(progress) = progress {
        progress.finish();
    }
    let checked = checked?;
    show(arguments, &checked.result, directory)?;
    Ok(checked.status())
}

fn show(arguments: &CrashArguments, result: &CrashResult, directory: &RunDirectory) -> Result<(), Failure> {
    if let Some(signal) = &result.ended_by_signal {
        output::note(format_args!("{signal} ended the checks after {} states", result.states_checked));
        if arguments.only.is_empty() {
            let run = directory.path().display();
            output::note(format_args!("`chronodisk crash --resume {run}` continues them"));
        }
    }
    if arguments.result.json {
        return output::data(&result.to_json());
    }
    output::data(&result.render())?;
    if !arguments.quiet && arguments.only.is_empty() {
        output::note(format_args!("result: {}", directory.path().display()));
    }
    Ok(())
}
