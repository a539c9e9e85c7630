//! Repetitions of a guest.

use std::collections::BTreeMap;
use std::ops::Range;

use chronodisk_guest::calibration;
use chronodisk_guest::{
    CPU_SPEED_DEFAULT, ClockCounters, GuestTime, KernelCosts, ReplayOutcome, RunOptions, RunOutcome, Sample, Settled,
    Stage, Work, WorkCost,
};
use chronodisk_report::{
    ClockInfo, ComponentSample, DroppedFiles, GenericCode, GuestInfo, HostSample, KernelCost, Phase, PhaseName,
    RepResult, RequestIssuers, RunResult, Seen, Summary, Verdict,
};
use chronodisk_sim::{Nanos, RequestRecord};
use chronodisk_trace::calls::Plan;

use super::nanos;
use crate::folder::RunDirectory;

/// Description of the guest's clock in a result.
pub(super) fn clock_info(time: &GuestTime) -> ClockInfo {
    let cpu = time.measured_cpu();
    let costs = cpu.map(|cpu| cpu.costs);
    ClockInfo {
        driver: time.clock_name().to_owned(),
        cpu: time.cpu_name().to_owned(),
        kernel_scale: costs.map(|costs| costs.other_scale),
        kernel_costs: costs.filter(|costs| costs.uniform_scale().is_none()).map(|costs| by_name(&costs)),
        calibrated: costs.filter(|costs| costs.uniform_scale().is_none()).map(|costs| is_this_machines(&costs)),
        cpu_speed: cpu.map(|cpu| cpu.speed).filter(|speed| *speed != CPU_SPEED_DEFAULT),
    }
}

/// Whether the costs were measured on this machine; others are built in, or of the machine that was asked for.
fn is_this_machines(costs: &KernelCosts) -> bool {
    calibration::kept().is_some_and(|kept| kept.costs == *costs)
}

/// Description of the guest and its file system. The first repetition adds the kernel's version.
pub(super) fn guest_info(options: &RunOptions) -> GuestInfo {
    GuestInfo {
        kernel: Some(String::new()),
        memory_bytes: Some(options.memory_bytes),
        cpus: u32::try_from(options.time.processors()).ok(),
        file_system: options.file_system.name().to_owned(),
        mkfs_options: options.mkfs_options.join(" "),
        mount_options: options.mount_options.clone().unwrap_or_default(),
        scheduler: options.scheduler.clone().unwrap_or_default(),
    }
}

/// Adds a repetition of a guest.
pub fn add_guest_repetition(result: &mut RunResult, index: u32, options: &RunOptions, outcome: &RunOutcome) {
    let seed = options.seed;
    result.guest.kernel = Some(outcome.kernel_release.clone());
    outcome.file_system.name().clone_into(&mut result.guest.file_system);
    let (begun, ended) = outcome.command;
    let (before, after) = &outcome.counters_at;
    result.reps.push(RepResult {
        index,
        seed: Some(seed),
        exit_status: outcome.exit_status,
        run_time_ns: ended.saturating_sub(begun),
        host_time_ns: nanos(outcome.host_total),
        phases: phases(outcome),
        end_ns: outcome.backend.end,
        untimed_read_bytes: after.host_tree_read_bytes.saturating_sub(before.host_tree_read_bytes),
        untimed_written_bytes: after.host_tree_written_bytes.saturating_sub(before.host_tree_written_bytes),
        clock_counters: counted_between(before, after),
        model_statistics: outcome.backend.statistics.iter().cloned().collect(),
        store_bytes: Some(outcome.backend.store_bytes),
        samples: outcome.backend.samples.iter().map(host_sample).collect(),
        host_cpu: u32::try_from(outcome.host_cpu).ok(),
        programs_host_cpu: outcome.programs_host_cpu.and_then(|cpu| u32::try_from(cpu).ok()),
        log_file: RunDirectory::log_name(index),
        server: None,
        native: None,
        shadow: None,
        summary: Summary::of(&outcome.records, begun..ended),
        summaries_by_device: summaries_by_device(&outcome.records, options.devices.len(), begun..ended),
        verdict: None,
        dropped_files: DroppedFiles { count: outcome.dropped.count, first: outcome.dropped.first.clone() },
        refused_calls: outcome.refused_calls.clone(),
    });
    let rep = result.reps.last_mut().expect("it was just added");
    let seen = Seen {
        issuers: RequestIssuers::of(&outcome.records, begun..ended),
        settled: outcome.settled != Settled::StillBusy,
        generic_code: outcome.generic_code.iter().map(generic_code).collect(),
    };
    rep.verdict = Some(Verdict::of_guest(rep, &result.clock, seen));
    if let (Some(counts), Some(replay)) = (&outcome.replay, &options.replay) {
        add_replay(result, counts, &replay.plan);
    }
    let rep = result.reps.last().expect("it was just added");
    let too_fast = too_fast_for_real_time(rep).filter(|_| result.clock.driver == "real");
    for warning in warnings(outcome).into_iter().chain(too_fast) {
        result.warnings.push(format!("repetition {index}: {warning}"));
    }
}

fn generic_code(held: &chronodisk_guest::GenericCode) -> GenericCode {
    GenericCode { algorithm: held.algorithm.clone(), holders: held.holders.clone() }
}

/// Summaries of each device's requests, if there are several devices.
fn summaries_by_device(records: &[RequestRecord], devices: usize, window: Range<Nanos>) -> Vec<Summary> {
    let of_device = |device: usize| {
        let own: Vec<RequestRecord> =
            records.iter().filter(|record| usize::from(record.device) == device).cloned().collect();
        Summary::of(&own, window.clone())
    };
    if devices > 1 { (0..devices).map(of_device).collect() } else { Vec::new() }
}

/// Adds the result of a repetition's replay.
fn add_replay(result: &mut RunResult, counts: &ReplayOutcome, plan: &Plan) {
    let sum = result.replay.get_or_insert_default();
    sum.calls_made += counts.calls_made;
    sum.skipped += plan.skipped.values().sum::<u64>();
    sum.differed += counts.differed;
    sum.tasks += plan.tasks.len() as u64;
    sum.ids_taken += counts.ids_taken;
    sum.waits_abandoned += counts.waits_abandoned;
    sum.tasks_at_once = sum.tasks_at_once.max(counts.tasks_at_once);
    sum.memory_bytes = sum.memory_bytes.max(counts.memory_bytes);
    for warning in &plan.warnings {
        if !result.warnings.contains(warning) {
            result.warnings.push(warning.clone());
        }
    }
}

/// A sample in the form of a result.
fn host_sample(sample: &Sample) -> HostSample {
    let components = sample.components.iter().map(|component| {
        let of_host = ComponentSample { memory_bytes: component.memory_bytes, cpu_ns: component.cpu };
        (component.name.clone(), of_host)
    });
    HostSample {
        at_ns: sample.at,
        components: components.collect(),
        undecided_bytes: sample.undecided_bytes,
        stored_bytes: sample.stored_bytes,
        process_memory_bytes: sample.process_memory_bytes,
        process_cpu_ns: sample.process_cpu,
    }
}

/// The costs of each kind of work as a result has them.
fn by_name(costs: &KernelCosts) -> BTreeMap<String, KernelCost> {
    let cost = |cost: &WorkCost| KernelCost {
        taken_off_ns: Nanos::from_nanos(cost.taken_off_nanos),
        added_ns: Nanos::from_nanos(cost.added_nanos),
        scale: cost.scale,
        bound_ns: cost.bound_nanos.map(Nanos::from_nanos),
    };
    let price = |name: &str, added_nanos: u64, bound_nanos: u64| {
        let bound_nanos = Some(bound_nanos);
        (name.to_owned(), cost(&WorkCost { taken_off_nanos: 0, added_nanos, scale: 0.0, bound_nanos }))
    };
    let works = Work::ALL.into_iter().zip(&costs.works).map(|(work, of_work)| (work.name().to_owned(), cost(of_work)));
    let requests = costs.requests.into_iter().flat_map(|requests| {
        [
            price("submission", requests.submission_nanos, requests.bound_nanos),
            price("completion", requests.completion_nanos, requests.bound_nanos),
            price("wake-up", requests.wake_up_nanos, requests.bound_nanos),
        ]
    });
    works.chain(requests).collect()
}

/// Increase of each of the clock's counters, under the names of its fields.
fn counted_between(before: &ClockCounters, after: &ClockCounters) -> BTreeMap<String, u64> {
    let by_name = |counters: &ClockCounters| -> BTreeMap<String, u64> {
        let value = serde_json::to_value(counters).expect("plain data");
        serde_json::from_value(value).expect("every counter is a whole number")
    };
    let (before, mut grown) = (by_name(before), by_name(after));
    for (name, count) in &mut grown {
        *count = count.saturating_sub(before[name]);
    }
    grown
}

/// Each stage begins at the end of the previous one.
fn phases(outcome: &RunOutcome) -> Vec<Phase> {
    let mut start_ns = Nanos::ZERO;
    let mut phases = Vec::new();
    for (&stage, &ended) in &outcome.stages {
        let name = match stage {
            Stage::Boot => PhaseName::Boot,
            Stage::Mkfs => PhaseName::Mkfs,
            Stage::Mount => PhaseName::Mount,
            Stage::Settle => PhaseName::Settle,
            Stage::Command => PhaseName::Command,
            Stage::Unmount => PhaseName::Unmount,
            // A check is ours, not the program's.
            Stage::Check => continue,
        };
        let command = stage == Stage::Command;
        let (start, end_ns) = if command { outcome.command } else { (start_ns, ended) };
        let host_time_ns = command.then(|| nanos(outcome.host_command));
        phases.push(Phase { name, start_ns: start, end_ns, host_time_ns });
        start_ns = end_ns;
    }
    phases
}

/// A request is a system call at least, and one that costs a twentieth of the device's time makes
/// it 5 % longer.
const SYSTEM_CALLS_PER_REQUEST_MIN: f64 = 20.0;

/// A warning for a device that is too fast for this guest in the host's time, with the measurement.
fn too_fast_for_real_time(rep: &RepResult) -> Option<String> {
    let counted = |name: &str| rep.clock_counters.get(name).copied().unwrap_or(0) as f64;
    let (calls, kernel_us) = (counted("traps"), counted("kernel_cpu_nanos") / 1e3);
    if rep.summary.requests == 0 || calls == 0.0 {
        return None;
    }
    let (device_us, call_us) = (rep.summary.service_time_us.p50, kernel_us / calls);
    (device_us < SYSTEM_CALLS_PER_REQUEST_MIN * call_us).then(|| {
        format!(
            "this device is too fast for a guest in this host's time: half of the requests took it {device_us:.0} µs or \
             less, while each system call took the guest's kernel {call_us:.0} µs (mean of {calls:.0}), where a native \
             one takes less than 1; without --clock real the guest's time leaves that out, and a virtual machine can \
             use the device through `chronodisk serve`"
        )
    })
}

/// Reason why a repetition whose command has ended is a failure of Chronodisk itself; `None` if it is none.
pub fn own_failure(outcome: &RunOutcome) -> Option<String> {
    let backend = &outcome.backend;
    let first = backend.first_store_error.as_deref().unwrap_or("no reason was given");
    let close = backend.close_errors.first().map(|error| format!("bytes of the device may be lost: {error}"));
    let store = (backend.store_errors > 0)
        .then(|| format!("the store failed {} requests of the device: {first}", backend.store_errors));
    let output = outcome.output_failure.as_ref().map(|error| format!("writing the command's output: {error}"));
    close.or(store).or(output)
}

/// Warnings about the figures of this repetition.
fn warnings(outcome: &RunOutcome) -> Vec<String> {
    let backend = &outcome.backend;
    let mut warnings = backend.store_notices.clone();
    if backend.store_errors > 0 {
        let first = backend.first_store_error.as_deref().unwrap_or("no reason was given");
        warnings.push(format!("{} requests got an I/O error because of the store: {first}", backend.store_errors));
    }
    let lost =
        |error: &String| format!("the device's bytes could not be kept at its end, and some may be lost: {error}");
    warnings.extend(backend.close_errors.iter().map(lost));
    if backend.malformed_requests > 0 {
        warnings.push(format!("{} malformed requests were refused", backend.malformed_requests));
    }
    if backend.clamped_arrivals > 0 {
        warnings.push(format!("{} arrivals were moved to the model's present instant", backend.clamped_arrivals));
    }
    if backend.backward_steps > 0 {
        warnings.push(format!("the guest's clock stepped back {} times", backend.backward_steps));
    }
    warnings.extend(outcome.kernel_warnings.iter().map(|warning| of_kernel(warning)));
    if let Some(check) = outcome.check.as_ref().filter(|check| !check.clean) {
        warnings.push(format!("{} found faults", check.command));
    }
    warnings.extend(outcome.replay.iter().flat_map(replay_warnings));
    warnings
}

/// A warning of the guest's kernel, with the next step where there is one.
fn of_kernel(warning: &str) -> String {
    let is_out_of_memory = warning.starts_with("Out of memory: ");
    let next_step = if is_out_of_memory { "; --memory gives the guest more" } else { "" };
    format!("the guest's kernel logged: {warning}{next_step}")
}

/// Differences of a replay from the recorded programs.
fn replay_warnings(replay: &ReplayOutcome) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (differed @ 1.., Some((record, got))) = (replay.differed, replay.differences.first()) {
        let what = match i32::try_from(-got) {
            Ok(error @ 1..) => std::io::Error::from_raw_os_error(error).to_string(),
            _ => got.to_string(),
        };
        warnings.push(format!(
            "{differed} calls of the replay had another outcome than in the trace; the first is that of row {}: {what}",
            record + 1
        ));
    }
    if replay.waits_abandoned > 0 {
        warnings.push(format!(
            "{} waits of the replay for another task were given up, so the run time is too long",
            replay.waits_abandoned
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_of_the_time_between() {
        let before = ClockCounters { kicks: 5, jumps: 7, ..ClockCounters::default() };
        let after = ClockCounters { kicks: 12, jumps: 7, alarms: 3, ..ClockCounters::default() };
        let grown = counted_between(&before, &after);
        assert_eq!((grown["kicks"], grown["jumps"], grown["alarms"]), (7, 0, 3));
        assert_eq!(grown.values().sum::<u64>(), 10);
    }
}
