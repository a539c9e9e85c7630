//! Requests, condensed to figures.

use std::collections::BTreeMap;
use std::ops::Range;

use chronodisk_sim::{Nanos, Op, RequestRecord, SECTOR_BYTES, Status};
use serde::{Deserialize, Serialize};

/// A device's activity in a window of time.
///
/// Counts cover the requests that arrived in the window. Service time and lateness cover the completed ones among them,
/// late ones included. Utilisation and queue depth are of the window itself, with every request outstanding in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Length of the window.
    pub window_ns: Nanos,
    /// Requests that arrived in the window.
    pub requests: u64,
    /// Requests among them that never completed, because the run ended.
    pub unfinished: u64,
    /// Requests among them that ended in an error.
    pub failed: u64,
    /// Failed requests by the name of their status: media-error, aborted, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by_status: BTreeMap<String, u64>,
    /// Requests by name of the operation: reads, writes, flushes, discards, ...
    pub by_op: BTreeMap<String, OpSummary>,
    /// Model completion minus arrival.
    pub service_time_us: Distribution,
    /// Completion as seen minus model completion.
    pub lateness_us: Distribution,
    /// Share of requests with a lateness above 1 % of their service time and above [`LATENESS_UNNOTICED`], 0 to 1. The
    /// first threshold is from Griffin et al., FAST 2002, table 3.
    pub late_share: f64,
    /// Share of the window in which at least one request was outstanding, 0 to 1.
    pub utilisation: f64,
    /// Outstanding requests, averaged over the window.
    pub mean_queue_depth: f64,
    /// Requests per second of the window, without failed ones.
    pub iops: f64,
    /// Data of reads and writes that did not end in an error, in 10⁶ bytes per second of the window.
    pub mb_per_s: f64,
    /// Host time of the model's calls per request.
    pub model_time_us: Distribution,
    /// Host time of moving the bytes per request.
    pub store_time_us: Distribution,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpSummary {
    /// Their number.
    pub requests: u64,
    /// Their length in bytes, whether data moved (reads, writes) or not (discards).
    pub bytes: u64,
    /// Their service time.
    pub service_time_us: Distribution,
}

/// A distribution of durations in microseconds. Percentiles are exact, by nearest rank: the
/// smallest value that at least that share of the values does not exceed. All zero if empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile; zero in results that were written before there was one.
    #[serde(default)]
    pub p9999: f64,
    /// Largest value.
    pub max: f64,
}

/// Lateness up to this counts as punctual, at any service time.
///
/// A CPU that has just handed a request to its device must leave the driver before it can see a completion: 3 µs in a
/// guest. So every request to a device of a nanosecond is late by thousands of its service times, which is no property
/// of the emulation. Five microseconds is also the accepted error of any device's latency as seen by a program.
pub const LATENESS_UNNOTICED: Nanos = Nanos::from_micros(5);

impl Distribution {
    /// Statistics of these values, in any order.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = Nanos>) -> Self {
        let mut values: Vec<Nanos> = values.into_iter().collect();
        values.sort_unstable();
        let Some(max) = values.last() else { return Distribution::default() };
        let sum_ns: u128 = values.iter().map(|value| u128::from(value.as_nanos())).sum();
        Distribution {
            mean: sum_ns as f64 / values.len() as f64 / 1e3,
            p50: nearest_rank(&values, 5_000).as_micros_f64(),
            p90: nearest_rank(&values, 9_000).as_micros_f64(),
            p99: nearest_rank(&values, 9_900).as_micros_f64(),
            p999: nearest_rank(&values, 9_990).as_micros_f64(),
            p9999: nearest_rank(&values, 9_999).as_micros_f64(),
            max: max.as_micros_f64(),
        }
    }
}

impl Summary {
    /// Of the records (in any order) in `window`, which excludes its end. For one device of
    /// several, filter the records first.
    #[must_use]
    pub fn of(records: &[RequestRecord], window: Range<Nanos>) -> Self {
        let length = window.end.saturating_sub(window.start);
        let arrived: Vec<&RequestRecord> = records.iter().filter(|record| window.contains(&record.arrival)).collect();
        let completed: Vec<&RequestRecord> = arrived.iter().copied().filter(|record| record.is_completed()).collect();
        let late = completed.iter().filter(|record| is_late(record)).count();
        let served: Vec<&RequestRecord> =
            completed.iter().copied().filter(|record| record.status == Status::Ok).collect();
        let data_bytes: u64 = served.iter().filter(|record| record.op.moves_data()).map(|record| bytes(record)).sum();
        let (busy, request_ns) = occupation(records, &window);
        Summary {
            window_ns: length,
            requests: arrived.len() as u64,
            unfinished: (arrived.len() - completed.len()) as u64,
            failed: (completed.len() - served.len()) as u64,
            failed_by_status: failed_by_status(completed.iter().copied()),
            by_op: by_op(&arrived),
            service_time_us: Distribution::of(completed.iter().map(|record| record.service_time())),
            lateness_us: Distribution::of(completed.iter().map(|record| record.lateness())),
            late_share: ratio(late as f64, completed.len() as f64),
            utilisation: ratio(busy.as_nanos() as f64, length.as_nanos() as f64),
            mean_queue_depth: ratio(request_ns as f64, length.as_nanos() as f64),
            iops: ratio(served.len() as f64, length.as_secs_f64()),
            mb_per_s: ratio(data_bytes as f64 / 1e6, length.as_secs_f64()),
            model_time_us: Distribution::of(arrived.iter().map(|record| record.model_time)),
            store_time_us: Distribution::of(arrived.iter().map(|record| record.store_time)),
        }
    }

    /// Requests of one kind; zero if there were none.
    #[must_use]
    pub fn op(&self, op: Op) -> OpSummary {
        self.by_op.get(op.name()).cloned().unwrap_or_default()
    }
}

/// Service times of the requests that arrived in `window` and completed, in order of the records.
#[must_use]
pub fn service_times(records: &[RequestRecord], window: Range<Nanos>) -> Vec<Nanos> {
    let counted = records.iter().filter(|record| record.is_completed() && window.contains(&record.arrival));
    counted.map(RequestRecord::service_time).collect()
}

/// Smallest value that at least so many ten-thousandths of the sorted values do not exceed.
fn nearest_rank(sorted: &[Nanos], ten_thousandths: usize) -> Nanos {
    let rank = (sorted.len() * ten_thousandths).div_ceil(10_000).max(1);
    sorted[rank - 1]
}

pub(crate) fn bytes(record: &RequestRecord) -> u64 {
    u64::from(record.sectors) * SECTOR_BYTES
}

pub(crate) fn is_late(record: &RequestRecord) -> bool {
    let lateness = record.lateness();
    lateness > LATENESS_UNNOTICED
        && u128::from(lateness.as_nanos()) * 100 > u128::from(record.service_time().as_nanos())
}

/// Completed requests that ended in an error, by the name of their status.
#[must_use]
pub fn failed_by_status<'a>(records: impl IntoIterator<Item = &'a RequestRecord>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for record in records.into_iter().filter(|record| record.is_completed() && record.status != Status::Ok) {
        *counts.entry(record.status.name().to_owned()).or_default() += 1;
    }
    counts
}

fn by_op(arrived: &[&RequestRecord]) -> BTreeMap<String, OpSummary> {
    let mut summaries = BTreeMap::new();
    for op in Op::ALL {
        let of_op = || arrived.iter().filter(move |record| record.op == op);
        if of_op().next().is_none() {
            continue;
        }
        let completed = of_op().filter(|record| record.is_completed());
        let summary = OpSummary {
            requests: of_op().count() as u64,
            bytes: of_op().map(|record| bytes(record)).sum(),
            service_time_us: Distribution::of(completed.map(|record| record.service_time())),
        };
        summaries.insert(op.name().to_owned(), summary);
    }
    summaries
}

/// How long at least one request was outstanding in the window, and the sum over the requests of
/// the time (in nanoseconds) that they were outstanding in it.
fn occupation(records: &[RequestRecord], window: &Range<Nanos>) -> (Nanos, u128) {
    let mut spans: Vec<(Nanos, Nanos)> = records
        .iter()
        .map(|record| (record.arrival.max(window.start), record.completed.min(window.end)))
        .filter(|(from, to)| from < to)
        .collect();
    spans.sort_unstable();
    let request_ns = spans.iter().map(|(from, to)| u128::from((*to - *from).as_nanos())).sum();
    let mut busy = Nanos::ZERO;
    let mut covered = window.start;
    for (from, to) in spans {
        let from = from.max(covered);
        if from < to {
            busy += to - from;
            covered = to;
        }
    }
    (busy, request_ns)
}

/// Zero instead of a division by zero, because JSON knows no "not a number".
pub(crate) fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { 0.0 } else { numerator / denominator }
}
