//! Data of a report's charts, condensed to a size that does not grow with the run.

use std::collections::BTreeMap;
use std::ops::Range;

use chronodisk_sim::{Nanos, Op, RequestRecord, SECTOR_BYTES};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::summary::bytes;

/// Resolution of charts; see [`Resolution::for_runs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Bins of the charts over time.
    pub time_bins: usize,
    /// Bins of the heat map over time and over addresses.
    pub heat_bins: (usize, usize),
    /// Points of a distribution, besides its tail's.
    pub quantiles: usize,
}

impl Resolution {
    /// The finest resolution at which a report of this number of runs stays within its size.
    #[must_use]
    pub fn for_runs(runs: usize) -> Self {
        match runs {
            0..=6 => Resolution { time_bins: 400, heat_bins: (120, 60), quantiles: 250 },
            7..=20 => Resolution { time_bins: 200, heat_bins: (80, 40), quantiles: 120 },
            _ => Resolution { time_bins: 100, heat_bins: (48, 24), quantiles: 60 },
        }
    }
}

/// Chart data of one run. Distributions cover all repetitions; time series cover the first one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCharts {
    /// By operation: pairs of a service time in microseconds and the share of requests, in per cent, that took at most
    /// as long.
    pub service_us: BTreeMap<&'static str, Vec<[f64; 2]>>,
    /// Pairs of a distance in bytes, from the end of one request to the beginning of the next, and the share of
    /// requests with at most this distance.
    pub distance_bytes: Vec<[f64; 2]>,
    /// Time series.
    pub series: Series,
    /// Requests by address and time.
    pub heat: Heat,
}

/// Figures of successive intervals of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Length of an interval in seconds.
    pub bin_s: f64,
    /// Median service time in microseconds, by the request's arrival; `None` without requests.
    pub p50_us: Vec<Option<f64>>,
    /// 99th percentile of the service time.
    pub p99_us: Vec<Option<f64>>,
    /// Outstanding requests, averaged over the interval.
    pub depth: Vec<f64>,
    /// 10⁶ bytes read per second.
    pub read_mb_s: Vec<f64>,
    /// 10⁶ bytes written per second.
    pub write_mb_s: Vec<f64>,
}

/// Requests of the first device by time and address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Heat {
    /// Width of a cell in seconds.
    pub bin_s: f64,
    /// Height of a cell in bytes.
    pub bin_bytes: f64,
    /// Address of the lowest cell in bytes.
    pub first_byte: f64,
    /// Numbers of cells over time and over addresses.
    pub bins: [usize; 2],
    /// Triples of an index over time, an index over addresses, and the number of requests; cells without requests are
    /// omitted.
    pub cells: Vec<[u64; 3]>,
}

/// Collects a run's charts, repetition by repetition, in memory that does not grow with the run.
#[derive(Debug)]
pub struct ChartsBuilder {
    resolution: Resolution,
    service: BTreeMap<&'static str, Values>,
    distances: Values,
    /// End of the last request of this repetition on each device.
    ends: BTreeMap<u16, u64>,
    window: Range<Nanos>,
    /// Charts over time, for the first repetition.
    first: Option<OverTime>,
    repetitions: u64,
}

/// Range of the addresses used by requests of the first device in a window of time: bounds of the heat map.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressRange {
    /// First sector and end.
    found: Option<(u64, u64)>,
}

impl AddressRange {
    /// Includes a request, if it arrived in the window.
    pub fn add(&mut self, record: &RequestRecord, window: &Range<Nanos>) {
        if record.device == 0 && record.op.moves_data() && window.contains(&record.arrival) {
            let (first, end) = (record.lba.0, record.lba.0.saturating_add(u64::from(record.sectors)));
            self.found = Some(self.found.map_or((first, end), |(least, most)| (least.min(first), most.max(end))));
        }
    }
}

impl ChartsBuilder {
    /// Charts without data.
    #[must_use]
    pub fn new(resolution: Resolution) -> Self {
        ChartsBuilder {
            resolution,
            service: BTreeMap::new(),
            distances: Values::new(EXACT_OF_RUN),
            ends: BTreeMap::new(),
            window: Nanos::ZERO..Nanos::ZERO,
            first: None,
            repetitions: 0,
        }
    }

    /// Whether the next repetition is the first, for which [`begin`](Self::begin) needs the addresses.
    #[must_use]
    pub fn needs_addresses(&self) -> bool {
        self.repetitions == 0
    }

    /// Begins a repetition; only requests that arrived in `window` count.
    pub fn begin(&mut self, window: Range<Nanos>, addresses: AddressRange) {
        self.repetitions += 1;
        self.ends.clear();
        if self.repetitions == 1 {
            self.first = Some(OverTime::new(&window, self.resolution, addresses));
        }
        self.window = window;
    }

    /// Adds the next record of the repetition, in order of arrival.
    pub fn record(&mut self, record: &RequestRecord) {
        let has_arrived = self.window.contains(&record.arrival);
        if let Some(first) = self.first.as_mut().filter(|_| self.repetitions == 1) {
            first.record(record, has_arrived);
        }
        if !has_arrived {
            return;
        }
        if record.is_completed() {
            let of_op = self.service.entry(record.op.name()).or_insert_with(|| Values::new(EXACT_OF_RUN));
            of_op.add(record.service_time().as_nanos());
        }
        if record.op.moves_data() {
            let end = record.lba.0.saturating_add(u64::from(record.sectors));
            if let Some(before) = self.ends.insert(record.device, end) {
                // The chart's scale is logarithmic and has no zero, so sequential requests count as one sector apart.
                let distance = record.lba.0.abs_diff(before).saturating_mul(SECTOR_BYTES);
                self.distances.add(distance.max(SECTOR_BYTES));
            }
        }
    }

    /// Adds a repetition whose records are in memory.
    pub fn add(&mut self, records: &[RequestRecord], window: &Range<Nanos>) {
        let mut addresses = AddressRange::default();
        records.iter().for_each(|record| addresses.add(record, window));
        self.begin(window.clone(), addresses);
        records.iter().for_each(|record| self.record(record));
    }

    /// The charts.
    #[must_use]
    pub fn finish(mut self) -> RunCharts {
        let quantiles = self.resolution.quantiles;
        let (series, heat) = self.first.map(OverTime::finish).unwrap_or_default();
        let service_us =
            self.service.into_iter().map(|(op, mut values)| (op, distribution(&mut values, quantiles, 1e3)));
        RunCharts {
            service_us: service_us.collect(),
            distance_bytes: distribution(&mut self.distances, quantiles, 1.0),
            series,
            heat,
        }
    }
}

/// Most values of a run that are kept individually: 8 MiB.
const EXACT_OF_RUN: usize = 1 << 20;
/// Most values of an interval that are kept individually.
const EXACT_OF_BIN: usize = 1 << 12;
/// Significant decimal digits of a class of values.
const DIGITS: u8 = 3;

/// A collection of values. Large numbers of values are counted in classes of 0.1 %, represented by the upper end of
/// each class.
#[derive(Clone, Debug)]
struct Values {
    exact_max: usize,
    exact: Vec<u64>,
    classes: Option<Histogram<u64>>,
    most: u64,
}

impl Values {
    fn new(exact_max: usize) -> Self {
        Values { exact_max, exact: Vec::new(), classes: None, most: 0 }
    }

    fn add(&mut self, value: u64) {
        self.most = self.most.max(value);
        if self.classes.is_none() && self.exact.len() < self.exact_max {
            self.exact.push(value);
            return;
        }
        let exact = &mut self.exact;
        let classes = self.classes.get_or_insert_with(|| {
            let mut classes = Histogram::new(DIGITS).expect("three digits are possible");
            std::mem::take(exact).into_iter().for_each(|value| count(&mut classes, value));
            classes
        });
        count(classes, value);
    }

    fn len(&self) -> usize {
        self.classes.as_ref().map_or(self.exact.len(), |classes| classes.len() as usize)
    }

    /// The values at some ranks, counted from 1 and ascending.
    fn at_ranks(&mut self, ranks: &[usize]) -> Vec<u64> {
        match &self.classes {
            None => {
                self.exact.sort_unstable();
                ranks.iter().map(|rank| self.exact[rank - 1]).collect()
            }
            Some(classes) => {
                let of_len = |rank: &usize| (*rank as f64 / classes.len() as f64).min(1.0);
                ranks.iter().map(|rank| classes.value_at_quantile(of_len(rank)).min(self.most)).collect()
            }
        }
    }
}

fn count(classes: &mut Histogram<u64>, value: u64) {
    // The classes grow up to the largest value, which 64 bits always hold.
    classes.record(value).expect("it resizes itself");
}

/// Quantiles of values, each divided by `unit`, with the share of values, in per cent, that do not exceed them.
fn distribution(values: &mut Values, quantiles: usize, unit: f64) -> Vec<[f64; 2]> {
    let count = values.len();
    if count == 0 {
        return Vec::new();
    }
    let even = (0..=quantiles).map(|step| (count * step).div_ceil(quantiles).max(1));
    // The last hundredth has more points: three for each factor of ten.
    let tail = (0..12).map(|step| count - ((count as f64 / 100.0) / 10f64.powf(f64::from(step) / 3.0)) as usize);
    let mut ranks: Vec<usize> = even.chain(tail).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let found = values.at_ranks(&ranks);
    let point = |(rank, value): (&usize, u64)| {
        [rounded((value as f64 / unit).max(0.001)), rounded(100.0 * *rank as f64 / count as f64)]
    };
    ranks.iter().zip(found).map(point).collect()
}

/// The charts over time during collection.
#[derive(Debug)]
struct OverTime {
    window: Range<Nanos>,
    bin_ns: f64,
    /// Service times by interval.
    times: Vec<Values>,
    /// Bytes read and written by interval.
    moved: [Vec<f64>; 2],
    /// Contributions to the depth by interval: of requests that cover it in part (`partial`), and the change at its
    /// start in the number of requests that cover whole intervals (`change`).
    partial: Vec<f64>,
    change: Vec<i64>,
    map: Option<HeatMap>,
}

impl OverTime {
    fn new(window: &Range<Nanos>, resolution: Resolution, addresses: AddressRange) -> Self {
        let bins = resolution.time_bins;
        OverTime {
            window: window.clone(),
            bin_ns: bin_ns(window, bins),
            times: vec![Values::new(EXACT_OF_BIN); bins],
            moved: [vec![0.0; bins], vec![0.0; bins]],
            partial: vec![0.0; bins + 1],
            change: vec![0; bins + 2],
            map: addresses.found.map(|(first, end)| HeatMap::new(window, first..end, resolution.heat_bins)),
        }
    }

    fn bins(&self) -> usize {
        self.times.len()
    }

    fn place(&self, instant: Nanos) -> f64 {
        instant.saturating_sub(self.window.start).as_nanos() as f64 / self.bin_ns
    }

    fn record(&mut self, record: &RequestRecord, has_arrived: bool) {
        self.outstanding(record);
        if !has_arrived {
            return;
        }
        if let Some(map) = &mut self.map {
            map.record(record);
        }
        if record.is_completed() {
            let bin = (self.place(record.arrival) as usize).min(self.bins() - 1);
            self.times[bin].add(record.service_time().as_nanos());
            match record.op {
                Op::Read => self.moved[0][bin] += bytes(record) as f64,
                op if op.moves_data() => self.moved[1][bin] += bytes(record) as f64,
                _ => {}
            }
        }
    }

    /// Adds the time in the window during which the request was outstanding.
    fn outstanding(&mut self, record: &RequestRecord) {
        let (from, to) = (record.arrival.max(self.window.start), record.completed.min(self.window.end));
        if from >= to {
            return;
        }
        let bins = self.bins() as f64;
        let (from, to) = (self.place(from).min(bins), self.place(to).min(bins));
        let (first, last) = (from as usize, to as usize);
        if first == last {
            self.partial[first] += to - from;
        } else {
            self.partial[first] += first as f64 + 1.0 - from;
            self.partial[last] += to - last as f64;
            self.change[first + 1] += 1;
            self.change[last] -= 1;
        }
    }

    fn finish(mut self) -> (Series, Heat) {
        let bin_s = self.bin_ns / 1e9;
        let percentile = |times: &mut Values, per_cent: usize| {
            let rank = (times.len() * per_cent).div_ceil(100);
            let found = if rank == 0 { Vec::new() } else { times.at_ranks(&[rank]) };
            found.first().map(|nanos| rounded((*nanos as f64 / 1e3).max(0.001)))
        };
        let rates = |bytes: &[f64]| bytes.iter().map(|bytes| rounded(bytes / 1e6 / bin_s)).collect();
        let mut whole = 0;
        let in_bin = |bin: usize| {
            whole += self.change[bin];
            rounded(whole as f64 + self.partial[bin])
        };
        let depth = (0..self.times.len()).map(in_bin).collect();
        let series = Series {
            bin_s,
            p50_us: self.times.iter_mut().map(|times| percentile(times, 50)).collect(),
            p99_us: self.times.iter_mut().map(|times| percentile(times, 99)).collect(),
            depth,
            read_mb_s: rates(&self.moved[0]),
            write_mb_s: rates(&self.moved[1]),
        };
        (series, self.map.map(HeatMap::finish).unwrap_or_default())
    }
}

/// Length of an interval in nanoseconds.
fn bin_ns(window: &Range<Nanos>, bins: usize) -> f64 {
    (window.end.saturating_sub(window.start).as_nanos() as f64 / bins as f64).max(1.0)
}

/// The heat map of addresses over time during collection.
#[derive(Debug)]
struct HeatMap {
    start: Nanos,
    first: u64,
    bin_ns: f64,
    bin_sectors: f64,
    bins: (usize, usize),
    counts: BTreeMap<(usize, usize), u64>,
}

impl HeatMap {
    fn new(window: &Range<Nanos>, sectors: Range<u64>, bins: (usize, usize)) -> Self {
        HeatMap {
            start: window.start,
            first: sectors.start,
            bin_ns: bin_ns(window, bins.0),
            bin_sectors: ((sectors.end - sectors.start) as f64 / bins.1 as f64).max(1.0),
            bins,
            counts: BTreeMap::new(),
        }
    }

    fn record(&mut self, record: &RequestRecord) {
        if record.device != 0 || !record.op.moves_data() {
            return;
        }
        let column = (record.arrival.saturating_sub(self.start).as_nanos() as f64 / self.bin_ns) as usize;
        let row = (record.lba.0.saturating_sub(self.first) as f64 / self.bin_sectors) as usize;
        *self.counts.entry((column.min(self.bins.0 - 1), row.min(self.bins.1 - 1))).or_default() += 1;
    }

    fn finish(self) -> Heat {
        let cell = |((column, row), count): ((usize, usize), u64)| [column as u64, row as u64, count];
        Heat {
            bin_s: self.bin_ns / 1e9,
            bin_bytes: self.bin_sectors * SECTOR_BYTES as f64,
            first_byte: self.first as f64 * SECTOR_BYTES as f64,
            bins: [self.bins.0, self.bins.1],
            cells: self.counts.into_iter().map(cell).collect(),
        }
    }
}

/// Rounds to five significant digits; more would only make the page longer.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(4.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Lba, Priority, Status};

    use super::*;

    fn record(order: u64, op: Op, lba: u64, arrival_us: u64, took_us: u64) -> RequestRecord {
        let micros = Nanos::from_micros;
        RequestRecord {
            device: 0,
            order,
            op,
            fua: false,
            priority: Priority::Normal,
            lba: Lba(lba),
            sectors: 8,
            queue: 0,
            issuer: 0,
            arrival: micros(arrival_us),
            due: micros(arrival_us + took_us),
            completed: micros(arrival_us + took_us),
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        }
    }

    fn charts(records: &[RequestRecord], window: Range<Nanos>, time_bins: usize) -> RunCharts {
        let mut builder = ChartsBuilder::new(Resolution { time_bins, heat_bins: (4, 2), quantiles: 10 });
        builder.add(records, &window);
        builder.finish()
    }

    #[test]
    fn the_depth_is_that_of_the_summary() {
        let mut records: Vec<RequestRecord> =
            (0..500).map(|order| record(order, Op::Read, order * 8, order * 7, 1 + order % 97 * 31)).collect();
        records[3].completed = Nanos::MAX;
        let window = Nanos::from_micros(100)..Nanos::from_micros(3_100);
        let summary = crate::Summary::of(&records, window.clone());
        for bins in [1, 7, 300] {
            let depth = charts(&records, window.clone(), bins).series.depth;
            let mean = depth.iter().sum::<f64>() / bins as f64;
            assert!((mean / summary.mean_queue_depth - 1.0).abs() < 1e-4, "{mean} {}", summary.mean_queue_depth);
        }
    }

    #[test]
    fn bins_hold_what_happened_in_them() {
        let records =
            [record(0, Op::Read, 0, 0, 10), record(1, Op::Write, 8, 40, 20), record(2, Op::Write, 1_000, 90, 5)];
        let RunCharts { service_us, distance_bytes, series, heat } =
            charts(&records, Nanos::ZERO..Nanos::from_micros(100), 2);
        assert_eq!(series.p50_us, [Some(10.0), Some(5.0)]);
        assert_eq!(series.p99_us, [Some(20.0), Some(5.0)]);
        assert_eq!(series.depth, [0.4, 0.3]);
        // 4,096 bytes in 50 µs.
        assert_eq!((series.read_mb_s[0], series.write_mb_s[0], series.write_mb_s[1]), (81.92, 81.92, 81.92));
        assert_eq!(service_us["write"].last(), Some(&[20.0, 100.0]));
        // 984 sectors, in five digits.
        assert_eq!(distance_bytes, [[512.0, 50.0], [503_810.0, 100.0]]);
        assert_eq!(heat.cells, [[0, 0, 1], [1, 0, 1], [3, 1, 1]]);
    }

    #[test]
    fn classes_are_within_a_thousandth_of_the_values() {
        let (mut exact, mut classes) = (Values::new(usize::MAX), Values::new(100));
        for value in (0..50_000u64).map(|index| index * index % 1_000_003 * 1_000 + 17) {
            exact.add(value);
            classes.add(value);
        }
        assert!(classes.exact.is_empty());
        let [exact, classes] = [&mut exact, &mut classes].map(|values| distribution(values, 250, 1.0));
        assert_eq!(exact.last(), classes.last());
        for (exact, class) in exact.iter().zip(&classes) {
            assert_eq!(exact[1], class[1]);
            assert!(class[0] >= exact[0] && class[0] <= exact[0] * 1.0011, "{exact:?} {class:?}");
        }
    }

    #[test]
    fn a_run_without_requests_has_empty_charts() {
        let empty = charts(&[], Nanos::ZERO..Nanos::ZERO, 3);
        assert!(empty.service_us.is_empty() && empty.heat.cells.is_empty() && empty.distance_bytes.is_empty());
        assert_eq!(empty.series.depth, [0.0; 3]);
    }

    #[test]
    fn a_distribution_ends_at_its_maximum_whatever_its_size() {
        for count in [1, 2, 3, 99, 100, 101, 250, 12_345] {
            let mut values = Values::new(EXACT_OF_RUN);
            (1..=count).rev().for_each(|value| values.add(value));
            let points = distribution(&mut values, 250, 1.0);
            assert_eq!(points.last(), Some(&[rounded(count as f64), 100.0]), "{count}");
            assert!(points.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1]), "{count}");
            assert!(points.len() < 270);
        }
    }
}
