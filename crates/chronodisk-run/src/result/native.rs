//! Repetitions of a native program.

use std::ops::Range;
use std::time::Duration;

use chronodisk_front::server::ServerOutcome;
use chronodisk_native::{Attachment, Way};
use chronodisk_report::{Distribution, NativeResult, Phase, RepResult, RunResult, ServerResult, Summary, Verdict};
use chronodisk_sim::{Nanos, RequestRecord};

use super::nanos;
use super::server::{server_repetition, server_result, server_warnings};

/// A repetition of a native run.
pub struct NativeRep<'a> {
    /// Counted from 0.
    pub index: u32,
    /// Seed of the device.
    pub seed: u64,
    /// Exit status of the command.
    pub status: u8,
    /// The command's run in the server's clock.
    pub window: Range<Nanos>,
    /// Phases by the server's clock.
    pub phases: Vec<Phase>,
    /// Time that the repetition took on the host.
    pub host_time: Duration,
    /// The server's account.
    pub outcome: &'a ServerOutcome,
    /// All requests of the repetition.
    pub records: &'a [RequestRecord],
    /// Settings of the block device.
    pub native: NativeResult,
}

/// Settings of the block device, before any requests.
pub fn settings_of(attachment: &Attachment) -> NativeResult {
    let (queue, permitted) = (attachment.settings(), attachment.permitted());
    NativeResult {
        block_device: attachment.path().display().to_string(),
        attached_by: match attachment.way() {
            Way::Ublk => "ublk".to_owned(),
            Way::Fuse => "fuse".to_owned(),
            Way::FuseUring => "fuse-uring".to_owned(),
        },
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

/// Adds a repetition of a native program.
pub fn add_native_repetition(result: &mut RunResult, rep: NativeRep<'_>) {
    let outcome = rep.outcome;
    let native = NativeResult { late_ns: time_late(rep.records, &rep.window), ..rep.native };
    let addresses = vec![native.block_device.clone()];
    // The command's requests only, as in the summary: without those of mkfs and mount.
    let completed = rep.records.iter().filter(|record| record.is_completed() && rep.window.contains(&record.arrival));
    let (stolen, unstolen): (Vec<&RequestRecord>, Vec<&RequestRecord>) = completed.partition(|record| record.stolen);
    let lateness_unstolen = Distribution::of(unstolen.iter().map(|record| record.lateness()));
    let server =
        ServerResult { stolen_requests: stolen.len() as u64, ..server_result(addresses, outcome, lateness_unstolen) };
    let summary = Summary::of(rep.records, rep.window.clone());
    let mut added = RepResult {
        seed: Some(rep.seed),
        run_time_ns: rep.window.end.saturating_sub(rep.window.start),
        host_time_ns: nanos(rep.host_time),
        phases: rep.phases,
        native: Some(native),
        ..server_repetition(rep.index, rep.status, outcome, server, summary)
    };
    added.verdict = Some(Verdict::of_served(&added));
    result.reps.push(added);
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
