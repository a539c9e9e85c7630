//! Makes the saved result from a native program's outcome.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::time::Duration;

use chronodisk_front::server::ServerOutcome;
use chronodisk_guest::FileSystem;
use chronodisk_native::Attachment;
use chronodisk_report::{
    ClockInfo, Distribution, DroppedFiles, EndedBy, GuestInfo, Labels, NativeResult, Phase, RUN_SCHEMA, RepResult,
    RunResult, ServerResult, Summary, Verdict,
};
use chronodisk_run::{RunDirectory, now_rfc3339};
use chronodisk_sim::{Nanos, RequestRecord};

use crate::device::Device;
use crate::options::CommandOptions;
use crate::run_result::{server_result, server_warnings};
use crate::version;

/// Ingredients of a native run, before it begins.
pub struct NativeSetting<'a> {
    pub directory: &'a RunDirectory,
    pub device: &'a Device,
    pub command: &'a [OsString],
    pub recorded: &'a CommandOptions,
    pub file_system: FileSystem,
    pub mkfs_options: &'a str,
    pub mount_options: &'a str,
    pub scheduler: &'a str,
}

/// A result without repetitions.
pub fn native_result(setting: &NativeSetting<'_>) -> RunResult {
    let text = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let host = chronodisk_sweep::host_info();
    RunResult {
        schema: RUN_SCHEMA.to_owned(),
        run_id: setting.directory.id(),
        started_at: now_rfc3339(),
        chronodisk_version: env!("CARGO_PKG_VERSION").to_owned(),
        chronodisk_commit: version::commit(),
        labels: Labels::default(),
        command_line: text(&std::env::args_os().collect::<Vec<_>>()),
        command: text(setting.command),
        options_given: setting.recorded.given(),
        options: setting.recorded.all(),
        device: setting.device.used(),
        further_devices: Vec::new(),
        clock: ClockInfo {
            driver: "real".to_owned(),
            cpu: "wall".to_owned(),
            kernel_scale: None,
            kernel_costs: None,
            calibrated: None,
            cpu_speed: None,
        },
        guest: GuestInfo {
            kernel: String::new(),
            memory_bytes: 0,
            cpus: 0,
            file_system: setting.file_system.name().to_owned(),
            mkfs_options: setting.mkfs_options.to_owned(),
            mount_options: setting.mount_options.to_owned(),
            scheduler: setting.scheduler.to_owned(),
        },
        host,
        surroundings: None,
        reps: Vec::new(),
        pilot: None,
        warnings: Vec::new(),
        ended_by: EndedBy::Command,
        replay: None,
        failure: None,
    }
}

/// A repetition of a native run.
pub struct NativeRep<'a> {
    pub index: u32,
    pub seed: u64,
    pub status: u8,
    /// The command's run in the server's clock.
    pub window: Range<Nanos>,
    pub phases: Vec<Phase>,
    pub host_time: Duration,
    pub outcome: &'a ServerOutcome,
    pub records: &'a [RequestRecord],
    pub native: NativeResult,
}

/// How the block device was made, before anything is known of its requests.
pub fn settings_of(attachment: &Attachment) -> NativeResult {
    let (queue, permitted) = (attachment.settings(), attachment.permitted());
    NativeResult {
        block_device: attachment.path().display().to_string(),
        scheduler: queue.scheduler.clone(),
        read_ahead_kib: queue.read_ahead_kib,
        request_kib_max: queue.request_kib_max,
        logical_block_bytes: queue.logical_block_bytes,
        write_cache: queue.write_cache.clone(),
        rotational: queue.rotational,
        discard: queue.discard,
        memory_locked: permitted.memory_locked,
        io_flusher: permitted.io_flusher,
        processors_awake: attachment.processors_awake(),
        late_ns: Nanos::ZERO,
    }
}

/// Adds a repetition.
pub fn native_repetition(result: &mut RunResult, rep: NativeRep<'_>) {
    let outcome = rep.outcome;
    let native = NativeResult { late_ns: time_late(rep.records, &rep.window), ..rep.native };
    let addresses = vec![native.block_device.clone()];
    // The command's requests only, as in the summary: without those of mkfs and mount.
    let completed = rep.records.iter().filter(|record| record.is_completed() && rep.window.contains(&record.arrival));
    let (stolen, unstolen): (Vec<&RequestRecord>, Vec<&RequestRecord>) = completed.partition(|record| record.stolen);
    let lateness_unstolen = Distribution::of(unstolen.iter().map(|record| record.lateness()));
    let server =
        ServerResult { stolen_requests: stolen.len() as u64, ..server_result(addresses, outcome, lateness_unstolen) };
    result.reps.push(RepResult {
        index: rep.index,
        seed: Some(rep.seed),
        exit_status: i32::from(rep.status),
        run_time_ns: rep.window.end.saturating_sub(rep.window.start),
        host_time_ns: Nanos::from_nanos(u64::try_from(rep.host_time.as_nanos()).unwrap_or(u64::MAX)),
        phases: rep.phases,
        end_ns: outcome.end,
        untimed_read_bytes: 0,
        untimed_written_bytes: 0,
        clock_counters: BTreeMap::new(),
        model_statistics: outcome.model_statistics.iter().cloned().collect(),
        store_bytes: outcome.store_bytes,
        samples: Vec::new(),
        host_cpu: None,
        log_file: RunDirectory::log_name(rep.index),
        server: Some(server),
        native: Some(native),
        shadow: None,
        summary: Summary::of(rep.records, rep.window),
        summaries_by_device: Vec::new(),
        verdict: None,
        dropped_files: DroppedFiles::default(),
        refused_calls: None,
    });
    let rep = result.reps.last_mut().expect("it was just added");
    rep.verdict = Some(Verdict::of_served(rep));
    let warnings = server_warnings(outcome).into_iter();
    result.warnings.extend(warnings.map(|warning| format!("repetition {}: {warning}", rep.index)));
}

/// The part of `window` in which some request was due and not completed yet.
pub fn time_late(records: &[RequestRecord], window: &Range<Nanos>) -> Nanos {
    let late = records.iter().filter(|record| record.is_completed() && record.due < record.completed);
    let clamp = |instant: Nanos| instant.clamp(window.start, window.end);
    let mut stretches: Vec<(Nanos, Nanos)> = late.map(|record| (clamp(record.due), clamp(record.completed))).collect();
    stretches.sort_unstable();
    let mut until = window.start;
    let mut total = Nanos::ZERO;
    for (due, completed) in stretches {
        total += completed.saturating_sub(due.max(until));
        until = until.max(completed);
    }
    total
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Lba, Op, Priority, Status};

    use super::*;

    #[test]
    fn lateness_of_several_requests_counts_once_and_in_the_window_only() {
        let record = |due: u64, completed: u64| RequestRecord {
            device: 0,
            order: 0,
            op: Op::Read,
            fua: false,
            priority: Priority::Normal,
            lba: Lba(0),
            sectors: 8,
            queue: 0,
            issuer: 0,
            arrival: Nanos::ZERO,
            due: Nanos::from_nanos(due),
            completed: Nanos::from_nanos(completed),
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        };
        let records = [record(100, 200), record(150, 250), record(300, 310), record(5, 15), record(990, 2_000)];
        let window = Nanos::from_nanos(10)..Nanos::from_nanos(1_000);
        assert_eq!(time_late(&records, &window), Nanos::from_nanos(150 + 10 + 5 + 10));
    }
}
