//! Data of a report's charts, condensed so that its size does not grow with the run.

use std::collections::BTreeMap;
use std::ops::Range;

use chronodisk_sim::{Nanos, Op, RequestRecord, SECTOR_BYTES};
use serde::Serialize;

use crate::summary::bytes;

/// How finely charts are divided; see [`Resolution::for_runs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Bins of the charts over time.
    pub time_bins: usize,
    /// Bins of the heat map over time and over addresses.
    pub heat_bins: (usize, usize),
    /// Points of a distribution, without those of its tail.
    pub quantiles: usize,
}

impl Resolution {
    /// As fine as a report of so many runs can have it within its size.
    #[must_use]
    pub fn for_runs(runs: usize) -> Self {
        match runs {
            0..=6 => Resolution { time_bins: 400, heat_bins: (120, 60), quantiles: 250 },
            7..=20 => Resolution { time_bins: 200, heat_bins: (80, 40), quantiles: 120 },
            _ => Resolution { time_bins: 100, heat_bins: (48, 24), quantiles: 60 },
        }
    }
}

/// The charts' data of one run. Distributions cover all repetitions; time series the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunCharts {
    /// By operation: service time in microseconds, and the share of requests in per cent that took no longer.
    pub service_us: BTreeMap<&'static str, Vec<[f64; 2]>>,
    /// Bytes between a request and the end of the one before it, and the share of requests with no more.
    pub distance_bytes: Vec<[f64; 2]>,
    /// Time series.
    pub series: Series,
    /// Which addresses were used when.
    pub heat: Heat,
}

/// Figures of equal stretches of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Length of a stretch in seconds.
    pub bin_s: f64,
    /// Median service time in microseconds, by the request's arrival; `None` without requests.
    pub p50_us: Vec<Option<f64>>,
    /// 99th percentile of the service time.
    pub p99_us: Vec<Option<f64>>,
    /// Outstanding requests, averaged over the stretch.
    pub depth: Vec<f64>,
    /// 10⁶ bytes read per second.
    pub read_mb_s: Vec<f64>,
    /// 10⁶ bytes written per second.
    pub write_mb_s: Vec<f64>,
}

/// Requests by time and address of the first device.
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
    /// Index over time, index over addresses, and requests; cells without requests are left out.
    pub cells: Vec<[u64; 3]>,
}

/// Gathers a run's charts, repetition by repetition.
#[derive(Debug)]
pub struct ChartsBuilder {
    resolution: Resolution,
    service: BTreeMap<&'static str, Vec<u64>>,
    distances: Vec<u64>,
    first: Option<(Series, Heat)>,
}

impl ChartsBuilder {
    /// Nothing yet.
    #[must_use]
    pub fn new(resolution: Resolution) -> Self {
        ChartsBuilder { resolution, service: BTreeMap::new(), distances: Vec::new(), first: None }
    }

    /// Adds a repetition's records in order of arrival; those count that arrived in `window`.
    pub fn add(&mut self, records: &[RequestRecord], window: &Range<Nanos>) {
        let arrived: Vec<&RequestRecord> = records.iter().filter(|record| window.contains(&record.arrival)).collect();
        for record in arrived.iter().filter(|record| record.is_completed()) {
            self.service.entry(record.op.name()).or_default().push(record.service_time().as_nanos());
        }
        let mut ends: BTreeMap<u16, u64> = BTreeMap::new();
        for record in arrived.iter().filter(|record| record.op.moves_data()) {
            let end = record.lba.0.saturating_add(u64::from(record.sectors));
            if let Some(before) = ends.insert(record.device, end) {
                self.distances.push(record.lba.0.abs_diff(before).saturating_mul(SECTOR_BYTES));
            }
        }
        if self.first.is_none() {
            let series = series(records, &arrived, window, self.resolution.time_bins);
            self.first = Some((series, heat(&arrived, window, self.resolution.heat_bins)));
        }
    }

    /// The charts.
    #[must_use]
    pub fn finish(self) -> RunCharts {
        let quantiles = self.resolution.quantiles;
        let (series, heat) = self.first.unwrap_or_default();
        let service_us = self.service.into_iter().map(|(op, values)| (op, distribution(values, quantiles, 1e3)));
        // A logarithm has no zero: sequential requests are at the width of a sector.
        let distances = self.distances.into_iter().map(|distance| distance.max(SECTOR_BYTES)).collect();
        RunCharts {
            service_us: service_us.collect(),
            distance_bytes: distribution(distances, quantiles, 1.0),
            series,
            heat,
        }
    }
}

/// Quantiles of values, each divided by `unit`, with the share in per cent that does not exceed them.
fn distribution(mut values: Vec<u64>, quantiles: usize, unit: f64) -> Vec<[f64; 2]> {
    values.sort_unstable();
    let count = values.len();
    if count == 0 {
        return Vec::new();
    }
    let even = (0..=quantiles).map(|step| (count * step).div_ceil(quantiles).max(1));
    // The last hundredth matters most: three points for each factor of ten.
    let tail = (0..12).map(|step| count - ((count as f64 / 100.0) / 10f64.powf(f64::from(step) / 3.0)) as usize);
    let mut ranks: Vec<usize> = even.chain(tail).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
        .into_iter()
        .map(|rank| [rounded((values[rank - 1] as f64 / unit).max(0.001)), rounded(100.0 * rank as f64 / count as f64)])
        .collect()
}

fn series(all: &[RequestRecord], arrived: &[&RequestRecord], window: &Range<Nanos>, bins: usize) -> Series {
    let bin_ns = (window.end.saturating_sub(window.start).as_nanos() as f64 / bins as f64).max(1.0);
    let bin_s = bin_ns / 1e9;
    let place = |instant: Nanos| instant.saturating_sub(window.start).as_nanos() as f64 / bin_ns;
    let bin_of = |instant: Nanos| (place(instant) as usize).min(bins - 1);
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); bins];
    let mut moved = [vec![0.0; bins], vec![0.0; bins]];
    for record in arrived.iter().filter(|record| record.is_completed()) {
        let bin = bin_of(record.arrival);
        times[bin].push(record.service_time().as_nanos());
        match record.op {
            Op::Read => moved[0][bin] += bytes(record) as f64,
            op if op.moves_data() => moved[1][bin] += bytes(record) as f64,
            _ => {}
        }
    }
    let percentile = |times: &mut Vec<u64>, per_cent: usize| {
        times.sort_unstable();
        let rank = (times.len() * per_cent).div_ceil(100).checked_sub(1)?;
        times.get(rank).map(|nanos| rounded((*nanos as f64 / 1e3).max(0.001)))
    };
    let rates = |bytes: &[f64]| bytes.iter().map(|bytes| rounded(bytes / 1e6 / bin_s)).collect();
    Series {
        bin_s,
        p50_us: times.iter_mut().map(|times| percentile(times, 50)).collect(),
        p99_us: times.iter_mut().map(|times| percentile(times, 99)).collect(),
        depth: depth(all, window, bins, place),
        read_mb_s: rates(&moved[0]),
        write_mb_s: rates(&moved[1]),
    }
}

/// Outstanding requests in each bin, averaged over it.
fn depth(all: &[RequestRecord], window: &Range<Nanos>, bins: usize, place: impl Fn(Nanos) -> f64) -> Vec<f64> {
    // Partial contributions of the first and last bin, and changes of the number of requests that fill whole bins.
    let (mut partial, mut change) = (vec![0.0; bins + 1], vec![0i64; bins + 2]);
    for record in all {
        let (from, to) = (record.arrival.max(window.start), record.completed.min(window.end));
        if from >= to {
            continue;
        }
        let (from, to) = (place(from).min(bins as f64), place(to).min(bins as f64));
        let (first, last) = (from as usize, to as usize);
        if first == last {
            partial[first] += to - from;
        } else {
            partial[first] += first as f64 + 1.0 - from;
            partial[last] += to - last as f64;
            change[first + 1] += 1;
            change[last] -= 1;
        }
    }
    let mut whole = 0;
    let in_bin = |bin: usize| {
        whole += change[bin];
        rounded(whole as f64 + partial[bin])
    };
    (0..bins).map(in_bin).collect()
}

fn heat(arrived: &[&RequestRecord], window: &Range<Nanos>, (columns, rows): (usize, usize)) -> Heat {
    let moving = || arrived.iter().filter(|record| record.device == 0 && record.op.moves_data());
    let (Some(first), Some(last)) = (
        moving().map(|record| record.lba.0).min(),
        moving().map(|record| record.lba.0.saturating_add(u64::from(record.sectors))).max(),
    ) else {
        return Heat::default();
    };
    let bin_ns = (window.end.saturating_sub(window.start).as_nanos() as f64 / columns as f64).max(1.0);
    let bin_sectors = ((last - first) as f64 / rows as f64).max(1.0);
    let mut counts: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for record in moving() {
        let column = (record.arrival.saturating_sub(window.start).as_nanos() as f64 / bin_ns) as usize;
        let row = ((record.lba.0 - first) as f64 / bin_sectors) as usize;
        *counts.entry((column.min(columns - 1), row.min(rows - 1))).or_default() += 1;
    }
    Heat {
        bin_s: bin_ns / 1e9,
        bin_bytes: bin_sectors * SECTOR_BYTES as f64,
        first_byte: first as f64 * SECTOR_BYTES as f64,
        bins: [columns, rows],
        cells: counts.into_iter().map(|((column, row), count)| [column as u64, row as u64, count]).collect(),
    }
}

/// Five significant digits: more can't be seen, and only makes the page longer.
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
    fn a_run_without_requests_has_empty_charts() {
        let empty = charts(&[], Nanos::ZERO..Nanos::ZERO, 3);
        assert!(empty.service_us.is_empty() && empty.heat.cells.is_empty() && empty.distance_bytes.is_empty());
        assert_eq!(empty.series.depth, [0.0; 3]);
    }

    #[test]
    fn a_distribution_ends_at_its_maximum_whatever_its_size() {
        for count in [1, 2, 3, 99, 100, 101, 250, 12_345] {
            let points = distribution((1..=count).rev().collect(), 250, 1.0);
            assert_eq!(points.last(), Some(&[rounded(count as f64), 100.0]), "{count}");
            assert!(points.is_sorted_by(|a, b| a[0] <= b[0] && a[1] <= b[1]), "{count}");
            assert!(points.len() < 270);
        }
    }
}
