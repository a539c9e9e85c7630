//! The repetitions of a run.

use chronodisk_engine::ending::{signal_name, status_of};
use chronodisk_guest::calibration::HeldSignals;
use chronodisk_guest::{RunError, RunEvent, RunOptions, RunOutcome, Stage};
use chronodisk_report::{EndedBy, failed_by_status};

use super::failure::guest_failure;
use super::plan::RunPlan;
use super::recorded_calls::RecordedCalls;
use super::surroundings::Reading;
use crate::arguments::Reps;
use crate::executed::Executed;
use crate::failure::{Failure, command_began, status};
use crate::notes::{note, note_failed_requests};
use crate::result::{Runner, Setting, add_guest_repetition, ended_early, new_result, own_failure};
use crate::zones;

/// RunProgress of a run.
#[derive(Clone, Debug)]
pub enum RunProgress<'a> {
    /// The number of the next repetition, in words; not of a single one.
    Repetition(&'a str),
    /// The guest of a repetition begins to boot.
    Boots,
    /// An event of the guest.
    Guest(RunEvent),
    /// The guest has ended.
    Ended,
}

/// Runs the guest as often as planned, and keeps the result.
pub fn execute(plan: &RunPlan<'_>, watch: &mut dyn FnMut(RunProgress<'_>)) -> Result<Executed, Failure> {
    // A signal between two repetitions, or while the result is written, is held until the next one or the end.
    let _held = HeldSignals::hold().map_err(Failure::host)?;
    let directory = &plan.directory;
    let mut run = repeat(plan, watch);
    if let Some(Err(failure)) = plan.calls.map(RecordedCalls::keep) {
        run.fails_too(failure, directory);
    }
    if let Some(draws) = plan.vary.draws.filter(|_| run.is_kept && run.failure.is_none()) {
        draws.aggregate(&mut run.result);
        if let Err(failure) = directory.write_run(&run.result) {
            run.fails(failure);
        }
    }
    if !run.command_began {
        plan.new_files.remove();
    }
    Ok(run)
}

/// Repeats until done, interrupted, or failed; completed repetitions count.
fn repeat(plan: &RunPlan<'_>, watch: &mut dyn FnMut(RunProgress<'_>)) -> Executed {
    let RunPlan { options, directory, reps, .. } = plan;
    let mut surroundings = None;
    let result = new_result(&Setting {
        caller: &plan.caller,
        directory,
        devices: &plan.devices,
        command: &options.command,
        recorded: &plan.recorded,
        labels: &plan.labels,
        runner: Runner::Guest(options),
    });
    let mut run = Executed::begin(result);
    while reps.wants_more(&run.result) {
        if *reps != Reps::Fixed(1) {
            watch(RunProgress::Repetition(&reps.of(&run.result)));
        }
        let (index, seeds_before) = reps.next(&run.result);
        let seed = options.seed.wrapping_add(seeds_before);
        watch(RunProgress::Boots);
        // The first made the file system that the next replace.
        let overwrite = options.overwrite || seeds_before > 0;
        let mut options = RunOptions { seed, overwrite, ..options.clone() };
        if let Err(failure) = plan.vary.prepare(index, &mut options) {
            watch(RunProgress::Ended);
            run.fails(failure);
            run.keep_end(directory);
            return run;
        }
        let outcome = match run_guest(&options, &mut surroundings, &mut run, watch) {
            Ok(outcome) => outcome,
            Err(RunError::Interrupted { signal }) => {
                let name = signal_name(signal);
                note(format_args!("{name} ended the run; repetitions kept: {index}"));
                run.result.ended_by = EndedBy::Signal;
                run.status = status_of(signal);
                run.keep_end(directory);
                return run;
            }
            Err(error) => {
                if index > 0 {
                    note(format_args!("repetitions kept: {index}"));
                }
                run.fails(guest_failure(error));
                run.keep_end(directory);
                return run;
            }
        };
        keep(plan, &mut run, index, &options, &outcome);
        if let Some(signal) = outcome.asked_to_end {
            // The command's own status does not report omitted calls.
            if run.status == status::FINE && reps.wants_more(&run.result) {
                run.status = status_of(signal);
            }
            return run;
        }
        if run.status != status::FINE || run.failure.is_some() {
            return run;
        }
        if let Some(count) = reps.end_pilot(&mut run.result) {
            (0..count).for_each(|index| directory.remove_repetition(index));
        }
    }
    run
}

/// Runs the guest of a repetition.
fn run_guest(
    options: &RunOptions,
    surroundings: &mut Option<Reading>,
    run: &mut Executed,
    watch: &mut dyn FnMut(RunProgress<'_>),
) -> Result<RunOutcome, RunError> {
    let mut notices = Vec::new();
    let outcome = chronodisk_guest::run(options, &mut |event| {
        if event == RunEvent::Stage(Stage::Boot) {
            surroundings.get_or_insert_with(|| Reading::of_run(options));
        }
        if event == RunEvent::Stage(Stage::Command) {
            run.command_began = true;
            command_began();
        }
        match event {
            RunEvent::StoreNotice(notice) => notices.push(notice),
            RunEvent::Unrecordable(call) => note(format_args!(
                "warning: the command has made the call {call}, which no replay can make: the recording is incomplete"
            )),
            event => watch(RunProgress::Guest(event)),
        }
    });
    watch(RunProgress::Ended);
    notices.into_iter().for_each(|notice| note(format_args!("warning: {notice}")));
    if let Some(read) = surroundings.as_mut().and_then(Reading::take) {
        run.result.surroundings = Some(read);
    }
    outcome
}

/// Adds a repetition to the result and writes it to the run's directory. The run gets its status and its failure.
fn keep(plan: &RunPlan<'_>, run: &mut Executed, index: u32, options: &RunOptions, outcome: &RunOutcome) {
    let RunPlan { directory, reps, .. } = plan;
    add_guest_repetition(&mut run.result, index, options, outcome);
    note_failed_requests(&failed_by_status(&outcome.records));
    let zones = zones::name_began(&mut run.result, options, &outcome.backend.zones_began);
    if let Some(signal) = outcome.asked_to_end {
        run.result.ended_by = EndedBy::Signal;
        run.result.warnings.push(ended_early(signal_name(signal)));
    }
    run.result.warnings.extend(reps.warning(&run.result));
    // No program of the user's ends in a replay, so the replayer has reported the error.
    let is_asked = outcome.asked_to_end.is_some();
    let replayer = (options.replay.is_some() && outcome.exit_status != 0 && !is_asked)
        .then(|| format!("the replayer ended with status {}", outcome.exit_status));
    if let Some(what) = own_failure(outcome).or(replayer) {
        run.fails(Failure::host(what));
    }
    // After every repetition, so that any end of this process leaves a complete result.
    match directory.write_repetition(index, &outcome.records, &zones, &run.result) {
        Ok(()) => run.is_kept = true,
        Err(failure) => run.fails(failure),
    }
    let faults = outcome.check.as_ref().filter(|check| !check.clean);
    if let Some(check) = faults {
        note(format_args!("{} found faults:\n{}", check.command, check.output.trim_end()));
    }
    run.status = match u8::try_from(outcome.exit_status).unwrap_or(u8::MAX) {
        status::FINE if faults.is_some() => status::CHECK_FAILED,
        status => status,
    };
}
