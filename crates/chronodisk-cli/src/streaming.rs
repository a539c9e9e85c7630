//! The figures of a simulation, gathered while it runs, so that its log need not be kept.
//!
//! Percentiles stay exact: eight bytes are kept of each request, its service time. A test holds the
//! figures to those that `chronodisk_report` gets from a whole log.

use chronodisk_report::{Distribution, OpSummary, Summary};
use chronodisk_sim::{Nanos, Op, RequestRecord, SECTOR_BYTES, Status};

/// Gathers the records of a simulation, in which every request completes when it is due.
#[derive(Default)]
pub struct StreamingSummary {
    by_op: [OfOp; Op::ALL.len()],
    failed: u64,
    start: Option<Nanos>,
    end: Nanos,
    /// Until when the requests seen so far cover the time since the start, gaps left out.
    covered: Nanos,
    busy: Nanos,
    outstanding_ns: u128,
}

#[derive(Default)]
struct OfOp {
    bytes: u64,
    service_times: Vec<Nanos>,
}

impl StreamingSummary {
    /// Takes the next record in order of arrival.
    pub fn add(&mut self, record: &RequestRecord) {
        let of_op = &mut self.by_op[record.op as usize];
        of_op.bytes += u64::from(record.sectors) * SECTOR_BYTES;
        of_op.service_times.push(record.service_time());
        self.failed += u64::from(record.status != Status::Ok);
        self.start.get_or_insert(record.arrival);
        self.end = self.end.max(record.completed);
        self.outstanding_ns += u128::from((record.completed - record.arrival).as_nanos());
        self.busy += record.completed.saturating_sub(self.covered.max(record.arrival));
        self.covered = self.covered.max(record.completed);
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.by_op.iter().map(|of_op| of_op.service_times.len() as u64).sum()
    }

    /// The figures of the time from the first arrival to the last completion.
    pub fn finish(self) -> Summary {
        let requests = self.requests();
        let window = self.end.saturating_sub(self.start.unwrap_or_default());
        let per_second = |count: f64| ratio(count, window.as_secs_f64());
        let moved = Op::ALL.into_iter().zip(&self.by_op).filter(|(op, _)| op.moves_data());
        let data_bytes: u64 = moved.map(|(_, of_op)| of_op.bytes).sum();
        let all_service_times = self.by_op.iter().flat_map(|of_op| of_op.service_times.iter().copied());
        let service_time_us = Distribution::of(all_service_times);
        let seen = Op::ALL.into_iter().zip(self.by_op).filter(|(_, of_op)| !of_op.service_times.is_empty());
        let by_op = seen.map(|(op, of_op)| {
            let requests = of_op.service_times.len() as u64;
            let service_time_us = Distribution::of(of_op.service_times);
            (op.name().to_owned(), OpSummary { requests, bytes: of_op.bytes, service_time_us })
        });
        Summary {
            window_ns: window,
            requests,
            failed: self.failed,
            by_op: by_op.collect(),
            service_time_us,
            utilisation: ratio(self.busy.as_nanos() as f64, window.as_nanos() as f64),
            mean_queue_depth: ratio(self.outstanding_ns as f64, window.as_nanos() as f64),
            iops: per_second(requests as f64),
            mb_per_s: per_second(data_bytes as f64 / 1e6),
            // A simulation is never late, leaves nothing unfinished, and measures nothing of the host.
            ..Summary::default()
        }
    }
}

fn ratio(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { 0.0 } else { numerator / denominator }
}

#[cfg(test)]
mod tests {
    use chronodisk_device::{BuildOptions, DeviceModel, Profile};
    use chronodisk_engine::sim::{Issue, closed_loop};
    use chronodisk_report::Simulation;
    use chronodisk_sim::RequestId;
    use chronodisk_trace::{Generator, GeneratorOptions, Workload};

    use super::*;

    fn model(profile: &str) -> Box<dyn DeviceModel> {
        Profile::find(profile).unwrap().build(&BuildOptions::default()).unwrap()
    }

    fn requests(think_max: Nanos) -> impl Iterator<Item = Issue> {
        let options = GeneratorOptions { think_max, ..GeneratorOptions::new(Workload::MixedSmall, 1 << 19, 3, 500) };
        Generator::new(options).unwrap().map(|it| Issue { request: it.request(RequestId(0)), think: it.think })
    }

    /// Every combination of devices that overlap, queue, and reorder with depths and think times.
    fn cases() -> impl Iterator<Item = (&'static str, u32, Nanos)> {
        let devices = ["null", "constant-100us", "wu-tsai-ch2-x1", "battery-backed-ram", "first-disk"];
        let depths = [1, 7, 600];
        let thinks = [Nanos::ZERO, Nanos::from_nanos(3), Nanos::from_millis(20)];
        devices.into_iter().flat_map(move |device| {
            depths.into_iter().flat_map(move |depth| thinks.into_iter().map(move |think| (device, depth, think)))
        })
    }

    #[test]
    fn streamed_figures_are_those_of_the_whole_log() {
        for (device, depth, think) in cases() {
            let records = closed_loop(&mut *model(device), requests(think), depth).unwrap();
            let whole = Simulation::new(device, "mixed-small", Default::default(), &records);
            let mut streaming = StreamingSummary::default();
            records.iter().for_each(|record| streaming.add(record));
            assert_eq!(streaming.finish(), whole.summary, "{device}, depth {depth}, think {think}");
        }
        assert_eq!(StreamingSummary::default().finish(), Simulation::new("", "", Default::default(), &[]).summary);
    }
}
