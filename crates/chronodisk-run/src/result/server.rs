//! Repetitions of a device that was served under the host's clock.

use std::collections::BTreeMap;

use chronodisk_front::server::ServerOutcome;
use chronodisk_report::{
    Distribution, DroppedFiles, RepResult, RunResult, ServerResult, ShadowResult, Summary, TransportResult, Verdict,
};

use crate::folder::RunDirectory;

/// The only repetition of a device that clients used.
pub struct ServedRep<'a> {
    /// Addresses of the server, and the block device of this host that was attached.
    pub addresses: Vec<String>,
    /// Exit status of the command.
    pub status: u8,
    /// The server's account.
    pub outcome: &'a ServerOutcome,
    /// Figures of all requests.
    pub summary: Summary,
    /// Lateness of the requests during which no CPU was stolen.
    pub lateness_unstolen: Distribution,
    /// The comparison with a real device, if one was served.
    pub shadow: Option<ShadowResult>,
}

/// Adds the repetition of a device that clients used.
pub fn add_served_repetition(result: &mut RunResult, rep: ServedRep<'_>) {
    let server = server_result(rep.addresses, rep.outcome, rep.lateness_unstolen);
    let mut added =
        RepResult { shadow: rep.shadow, ..server_repetition(0, rep.status, rep.outcome, server, rep.summary) };
    added.verdict = added.shadow.is_none().then(|| Verdict::of_served(&added));
    result.reps.push(added);
    result.warnings.extend(server_warnings(rep.outcome));
}

/// A repetition from the server's beginning to its end, without a verdict.
pub(super) fn server_repetition(
    index: u32,
    status: u8,
    outcome: &ServerOutcome,
    server: ServerResult,
    summary: Summary,
) -> RepResult {
    RepResult {
        index,
        seed: None,
        exit_status: i32::from(status),
        run_time_ns: outcome.end,
        host_time_ns: outcome.end,
        phases: Vec::new(),
        end_ns: outcome.end,
        untimed_read_bytes: 0,
        untimed_written_bytes: 0,
        clock_counters: BTreeMap::new(),
        model_statistics: outcome.model_statistics.iter().cloned().collect(),
        store_bytes: outcome.store_bytes,
        samples: Vec::new(),
        host_cpu: None,
        programs_host_cpu: None,
        log_file: RunDirectory::log_name(index),
        server: Some(server),
        native: None,
        shadow: None,
        summary,
        summaries_by_device: Vec::new(),
        verdict: None,
        dropped_files: DroppedFiles::default(),
        refused_calls: None,
    }
}

/// The result of serving a device at these addresses.
pub(super) fn server_result(
    addresses: Vec<String>,
    outcome: &ServerOutcome,
    lateness_unstolen_us: Distribution,
) -> ServerResult {
    let statistics = &outcome.statistics;
    let transports = statistics.clock.transports.iter().map(|transport| {
        let result = TransportResult {
            skew_woken_ns: transport.skew_woken,
            skew_polled_ns: transport.skew_polled,
            lead_ns: transport.lead,
        };
        (transport.name.clone(), result)
    });
    ServerResult {
        addresses,
        connections: statistics.connections,
        connections_refused: statistics.connections_refused,
        handshakes_given_up: statistics.handshakes_given_up,
        stalled: statistics.stalled,
        violations: statistics.violations,
        refused_requests: statistics.refused_requests,
        dropped_completions: statistics.dropped_completions,
        panics: statistics.panics,
        first_panic: statistics.first_panic.clone(),
        close_error: outcome.close_error.clone(),
        realtime: statistics.realtime,
        clamped_arrivals: statistics.engine.clamped_arrivals,
        clamp_max_ns: statistics.engine.clamp_max,
        early_max_ns: statistics.clock.early_max,
        asleep_ns: statistics.pace.asleep,
        spinning_ns: statistics.pace.spinning,
        stolen_ns: statistics.pace.stolen,
        stolen_max_ns: statistics.pace.gap_max,
        stolen_requests: statistics.clock.stolen_requests,
        lateness_unstolen_us,
        transports: transports.collect(),
    }
}

/// Warnings about the figures of a served device.
pub(super) fn server_warnings(outcome: &ServerOutcome) -> Vec<String> {
    let statistics = &outcome.statistics;
    let reason = |first: &Option<String>| first.clone().unwrap_or_else(|| "no reason was given".to_owned());
    let mut warnings = outcome.store_notices.clone();
    if let Some(error) = &outcome.close_error {
        warnings.push(format!("the store could not be closed, and bytes that clients wrote may be lost: {error}"));
    }
    if statistics.panics > 0 {
        let first = reason(&statistics.first_panic);
        warnings.push(format!("{} connections ended by a defect of chronodisk: {first}", statistics.panics));
    }
    if statistics.store_errors > 0 {
        let first = reason(&statistics.first_store_error);
        warnings.push(format!("{} requests failed because of the store: {first}", statistics.store_errors));
    }
    if statistics.violations > 0 {
        let first = reason(&statistics.first_violation);
        warnings.push(format!("{} connections broke the protocol: {first}", statistics.violations));
    }
    if statistics.clock.unseen > 0 {
        warnings.push(format!(
            "{} requests count as unfinished: their clients did not take the replies while 65,536 others passed",
            statistics.clock.unseen
        ));
    }
    if statistics.handshakes_given_up > 0 {
        warnings.push(format!("{} clients took too long for negotiation", statistics.handshakes_given_up));
    }
    if statistics.stalled > 0 {
        warnings.push(format!(
            "{} clients were disconnected: they held memory for which others waited, and went on with nothing",
            statistics.stalled
        ));
    }
    if statistics.connections_evicted > 0 {
        warnings
            .push(format!("{} idle connections were closed to make room for others", statistics.connections_evicted));
    }
    if statistics.connections_refused > 0 {
        warnings.push(format!("{} connections were too many", statistics.connections_refused));
    }
    warnings
}

/// Reason of a failure of the server itself. A request that failed in its store was answered with an error.
pub fn server_failure(outcome: &ServerOutcome) -> Option<String> {
    let close = outcome.close_error.as_ref().map(|error| format!("bytes of the device may be lost: {error}"));
    let panics = outcome.statistics.panics;
    close.or_else(|| (panics > 0).then(|| format!("{panics} connections ended by a defect of chronodisk")))
}
