//! The time that strace itself takes for a call, as far as its output shows it.
//!
//! strace stops a task twice for each call, at its entry and at its return, and prints afterwards. A call that neither
//! waits nor works lasts as long as strace's own work within a call. The time between two such consecutive calls is
//! strace's own work between calls.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use crate::calls::record::{CallRecord, TracerCost};

/// Calls that neither wait nor work.
const IDLE: [&str; 16] = [
    "arch_prctl",
    "getegid",
    "geteuid",
    "getgid",
    "getpgrp",
    "getpid",
    "getppid",
    "gettid",
    "getuid",
    "lseek",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
];
/// Minimum number of pairs of such calls for an estimate.
const GAPS_MIN: usize = 8;

/// The cost of strace per call; `None` if too few calls show it.
pub(super) fn tracer_cost(records: &[CallRecord]) -> Option<TracerCost> {
    let is_idle = |record: &CallRecord| IDLE.binary_search(&record.call.name()).is_ok();
    let mut last: BTreeMap<u32, &CallRecord> = BTreeMap::new();
    let (mut calls, mut idle_gaps, mut gaps) = (Vec::new(), Vec::new(), Vec::with_capacity(records.len()));
    for record in records {
        if is_idle(record) {
            calls.extend(record.exit.map(|exit| exit.saturating_sub(record.entry)));
        }
        let Some(before) = last.insert(record.task, record) else { continue };
        let gap = record.entry.saturating_sub(before.exit.unwrap_or(before.entry));
        gaps.push(gap);
        if is_idle(before) && is_idle(record) {
            idle_gaps.push(gap);
        }
    }
    if idle_gaps.len() < GAPS_MIN {
        return None;
    }
    let part = |times: &mut Vec<Nanos>, percent: usize| {
        times.sort_unstable();
        times[(times.len() - 1) * percent / 100]
    };
    // The median is lower if the program does not compute between calls.
    let most = part(&mut gaps, 50);
    let [low, estimate, high] = [25, 50, 75].map(|percent| part(&mut idle_gaps, percent));
    Some(TracerCost { inside: part(&mut calls, 50), estimate: estimate.min(most), low: low.min(most), high })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_neither_wait_nor_work_tell_what_strace_takes() {
        assert!(IDLE.is_sorted());
        let micros = |count: u64| Nanos::from_nanos(count * 1_000);
        let mut at = 0;
        let mut records = Vec::new();
        for number in 0..40 {
            let (name, takes, then) = match number % 4 {
                3 => ("fsync", 9_000, 700),
                _ => ("getpid", 3, 20 + number % 4),
            };
            let record = CallRecord::new(7, name.parse().unwrap(), micros(at));
            records.push(CallRecord { exit: Some(micros(at + takes)), ..record });
            at += takes + then;
        }
        let cost = tracer_cost(&records).unwrap();
        assert_eq!((cost.low, cost.estimate, cost.high), (micros(20), micros(20), micros(21)));
        assert_eq!(cost.inside, micros(3));
        assert_eq!(tracer_cost(&records[..10]), None);
    }
}
