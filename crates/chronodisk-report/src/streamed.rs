//! The figures of requests that are seen once and not kept.

use chronodisk_sim::{Nanos, Op, RequestRecord, Status};
use hdrhistogram::Histogram;

use crate::summary::{Distribution, OpSummary, Summary, bytes, is_late, ratio};

/// A distribution that is gathered value by value, in memory that does not grow for ever.
///
/// Up to [`EXACT_MAX`] values are kept, and percentiles are exact. Beyond that they go into
/// a histogram whose classes are at most 0.1 % wide, and percentiles are the upper ends of classes;
/// mean and maximum stay exact.
#[derive(Clone, Debug, Default)]
pub struct StreamedDistribution {
    exact: Vec<Nanos>,
    classes: Option<Histogram<u64>>,
    count: u64,
    sum_ns: u128,
    max: Nanos,
}

/// Values that are kept one by one: half a mebibyte.
pub const EXACT_MAX: usize = 1 << 16;

/// Decimal digits by which classes differ.
const DIGITS: u8 = 3;

impl StreamedDistribution {
    /// Takes a value.
    pub fn add(&mut self, value: Nanos) {
        self.count += 1;
        self.sum_ns += u128::from(value.as_nanos());
        self.max = self.max.max(value);
        match &mut self.classes {
            Some(classes) => record(classes, value),
            None if self.exact.len() < EXACT_MAX => self.exact.push(value),
            None => {
                let mut classes = Histogram::new(DIGITS).expect("three digits are possible");
                std::mem::take(&mut self.exact).into_iter().for_each(|value| record(&mut classes, value));
                record(&mut classes, value);
                self.classes = Some(classes);
            }
        }
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The figures.
    #[must_use]
    pub fn finish(&self) -> Distribution {
        let Some(classes) = &self.classes else { return Distribution::of(self.exact.iter().copied()) };
        let quantile = |quantile| Nanos::from_nanos(classes.value_at_quantile(quantile)).min(self.max).as_micros_f64();
        Distribution {
            mean: self.sum_ns as f64 / self.count as f64 / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            p9999: quantile(0.9999),
            max: self.max.as_micros_f64(),
        }
    }
}

fn record(classes: &mut Histogram<u64>, value: Nanos) {
    // It grows as far as the largest value needs; 64 bits are never beyond it.
    classes.record(value.as_nanos()).expect("it resizes itself");
}

/// Gathers the [`Summary`] of a device that is served or simulated, request by request in order of
/// arrival. The window is the time from the first arrival to the last completion.
///
/// Its memory is bounded: some ten distributions of at most a mebibyte each.
#[derive(Clone, Debug, Default)]
pub struct StreamedSummary {
    requests: u64,
    failed: u64,
    failed_by_status: [u64; Status::ALL.len()],
    late: u64,
    data_bytes: u64,
    by_op: [StreamedOp; Op::ALL.len()],
    service_time: StreamedDistribution,
    lateness: StreamedDistribution,
    lateness_unstolen: StreamedDistribution,
    model_time: StreamedDistribution,
    store_time: StreamedDistribution,
    first_arrival: Option<Nanos>,
    last_completion: Nanos,
    /// Instant until which the completed requests seen so far cover the time since the first arrival.
    covered: Nanos,
    busy: Nanos,
    outstanding_ns: u128,
    unfinished: Unfinished,
}

#[derive(Clone, Debug, Default)]
struct StreamedOp {
    requests: u64,
    bytes: u64,
    service_time: StreamedDistribution,
}

/// Requests without a completion so far. Some may stay outstanding until the end.
#[derive(Clone, Debug, Default)]
struct Unfinished {
    count: u64,
    arrival_sum_ns: u128,
    /// The first of them arrived; from there on the device is never idle.
    since: Option<Nanos>,
}

impl StreamedSummary {
    /// Takes the next request.
    pub fn add(&mut self, record: &RequestRecord) {
        self.requests += 1;
        self.first_arrival.get_or_insert(record.arrival);
        self.model_time.add(record.model_time);
        self.store_time.add(record.store_time);
        let of_op = &mut self.by_op[record.op as usize];
        of_op.requests += 1;
        of_op.bytes += bytes(record);
        if !record.is_completed() {
            self.unfinished.count += 1;
            self.unfinished.arrival_sum_ns += u128::from(record.arrival.as_nanos());
            self.unfinished.since.get_or_insert(record.arrival);
            return;
        }
        of_op.service_time.add(record.service_time());
        self.service_time.add(record.service_time());
        self.lateness.add(record.lateness());
        if !record.stolen {
            self.lateness_unstolen.add(record.lateness());
        }
        let is_served = record.status == Status::Ok;
        self.failed += u64::from(!is_served);
        self.failed_by_status[record.status as usize] += u64::from(!is_served);
        self.late += u64::from(is_late(record));
        if is_served && record.op.moves_data() {
            self.data_bytes += bytes(record);
        }
        self.last_completion = self.last_completion.max(record.completed);
        self.outstanding_ns += u128::from((record.completed - record.arrival).as_nanos());
        if self.unfinished.since.is_none() {
            self.busy += record.completed.saturating_sub(self.covered.max(record.arrival));
            self.covered = self.covered.max(record.completed);
        }
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Lateness of the requests that were due while the host had not taken the CPU away.
    #[must_use]
    pub fn lateness_unstolen(&self) -> Distribution {
        self.lateness_unstolen.finish()
    }

    /// The figures so far.
    #[must_use]
    pub fn finish(&self) -> Summary {
        let first = self.first_arrival.unwrap_or_default();
        let end = self.last_completion.max(first);
        let window = end - first;
        let completed = self.requests - self.unfinished.count;
        let open = self.unfinished.since.map_or(Nanos::ZERO, |since| end.saturating_sub(since.max(self.covered)));
        let open_ns = (u128::from(self.unfinished.count) * u128::from(end.as_nanos()))
            .saturating_sub(self.unfinished.arrival_sum_ns);
        let of_window = |value: f64| ratio(value, window.as_nanos() as f64);
        let seen = Op::ALL.into_iter().zip(&self.by_op).filter(|(_, of_op)| of_op.requests > 0);
        let by_op = seen.map(|(op, of_op)| {
            let service_time_us = of_op.service_time.finish();
            (op.name().to_owned(), OpSummary { requests: of_op.requests, bytes: of_op.bytes, service_time_us })
        });
        let failed = Status::ALL.into_iter().zip(self.failed_by_status).filter(|&(_, count)| count > 0);
        let failed_by_status = failed.map(|(status, count)| (status.name().to_owned(), count));
        Summary {
            window_ns: window,
            requests: self.requests,
            unfinished: self.unfinished.count,
            failed: self.failed,
            failed_by_status: failed_by_status.collect(),
            by_op: by_op.collect(),
            service_time_us: self.service_time.finish(),
            lateness_us: self.lateness.finish(),
            late_share: ratio(self.late as f64, completed as f64),
            utilisation: of_window((self.busy + open).as_nanos() as f64),
            mean_queue_depth: of_window((self.outstanding_ns + open_ns) as f64),
            iops: ratio((completed - self.failed) as f64, window.as_secs_f64()),
            mb_per_s: ratio(self.data_bytes as f64 / 1e6, window.as_secs_f64()),
            model_time_us: self.model_time.finish(),
            store_time_us: self.store_time.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(order: u64, arrival: u64, took: u64, late: u64, op: Op, unfinished: bool) -> RequestRecord {
        let nanos = Nanos::from_nanos;
        RequestRecord {
            device: 0,
            order,
            op,
            fua: false,
            priority: chronodisk_sim::Priority::Normal,
            lba: chronodisk_sim::Lba(order * 8),
            sectors: 8,
            queue: 0,
            issuer: 1,
            arrival: nanos(arrival),
            due: nanos(arrival + took),
            completed: if unfinished { Nanos::MAX } else { nanos(arrival + took + late) },
            status: if took.is_multiple_of(7) { Status::MediaError } else { Status::Ok },
            store_failed: false,
            stolen: late.is_multiple_of(2),
            model_time: nanos(took / 3),
            store_time: nanos(took / 5),
        }
    }

    proptest! {
        #[test]
        fn figures_are_those_of_the_whole_log(
            requests in prop::collection::vec((0u64..300, 1u64..2_000, 0u64..9_000, 0usize..5, 0u8..12), 1..60),
        ) {
            let mut arrival = 0;
            let mut records = Vec::new();
            for (order, (gap, took, late, op, kind)) in requests.into_iter().enumerate() {
                arrival += gap;
                records.push(record(order as u64, arrival, took, late, Op::ALL[op], kind == 0));
            }
            // Long enough that every other request arrives before its end.
            records[0] = record(0, records[0].arrival.as_nanos(), 100_000, 0, Op::Read, false);
            let mut streamed = StreamedSummary::default();
            records.iter().for_each(|record| streamed.add(record));
            let seen = records.iter().filter(|record| record.is_completed());
            let end = seen.map(|record| record.completed).max().unwrap();
            prop_assert_eq!(streamed.finish(), Summary::of(&records, records[0].arrival..end));
        }
    }

    #[test]
    fn many_values_are_within_a_thousandth() {
        let mut streamed = StreamedDistribution::default();
        let values = || (0..200_000u64).map(|index| Nanos::from_nanos(index * index % 1_000_003 * 1_000 + 17));
        values().for_each(|value| streamed.add(value));
        assert_eq!(streamed.count(), 200_000);
        assert!(streamed.exact.is_empty());
        let (found, exact) = (streamed.finish(), Distribution::of(values()));
        assert_eq!((found.max, found.mean), (exact.max, exact.mean));
        for (found, exact) in
            [(found.p50, exact.p50), (found.p90, exact.p90), (found.p99, exact.p99), (found.p999, exact.p999)]
        {
            assert!(found >= exact && found <= exact * 1.001, "{found} {exact}");
        }
    }
}
