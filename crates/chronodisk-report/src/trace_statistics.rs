//! A block trace in figures, gathered request by request in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use chronodisk_sim::{Nanos, Op, RequestRecord};
use chronodisk_trace::block::Reuse;
use chronodisk_trace::bootstrap::{Bootstrap, Estimate, Sample, caveats};
use serde::{Deserialize, Serialize};

use crate::schema::to_json;
use crate::streamed::StreamedDistribution;
use crate::summary::{Distribution, bytes, ratio};
use crate::table::Align::{Left, Right};
use crate::table::Table;

/// Name and version of [`TraceStatistics`]'s form.
pub const TRACE_STATISTICS_SCHEMA: &str = "chronodisk.trace-statistics/1";

/// Statistics of a block trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceStatistics {
    /// [`TRACE_STATISTICS_SCHEMA`].
    pub schema: String,
    /// Requests.
    pub requests: u64,
    /// Volumes with requests.
    pub volumes: u64,
    /// Requests by name of the volume; by its number in a trace that names none.
    #[serde(default)]
    pub requests_by_volume: BTreeMap<String, u64>,
    /// Requests that arrive before the one that precedes them in the trace; their times count as that one's.
    pub unordered: u64,
    /// From the first arrival to the last, in seconds.
    pub duration_s: f64,
    /// Requests per second of it.
    pub requests_per_s: f64,
    /// Data of reads and writes in 10⁶ bytes per second of it.
    pub mb_per_s: f64,
    /// Statistics by name of the operation.
    pub by_op: BTreeMap<String, OpStatistics>,
    /// Share of requests with an address that begin where the previous one of the volume ended, 0 to 1.
    pub sequential_share: f64,
    /// Share of requests with an address that begin where one of the 32 previous ones of the volume ended.
    pub stream_share: f64,
    /// Distinct blocks of 4 KiB that were read or written, in bytes.
    pub footprint_bytes: u64,
    /// Bytes that were read.
    pub read_footprint_bytes: u64,
    /// Bytes that were written.
    pub written_footprint_bytes: u64,
    /// Footprints and cache hits are estimated from one block of so many; 1 if they are exact.
    pub sampled_one_in: u64,
    /// Share of accesses to blocks of 4 KiB that an LRU cache has, by its size: the distribution of reuse distances.
    pub cache_hits: Vec<CacheHits>,
    /// Between one arrival and the next.
    pub interarrival_us: Distribution,
    /// Standard deviation of it over its mean: 1 for Poisson arrivals, more for bursts.
    pub interarrival_variation: f64,
    /// Variance of the number of arrivals over its mean, in windows of several lengths: 1 for Poisson arrivals.
    pub burstiness: Vec<Burstiness>,
    /// Times in which no request was outstanding; `None` if the trace has no completions.
    pub idle_us: Option<Distribution>,
    /// Share of the duration in which no request was outstanding.
    pub idle_share: Option<f64>,
    /// Completion minus arrival of the requests that completed.
    pub response_time_us: Option<Distribution>,
    /// Intervals of the response times, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<ResponseIntervals>,
    /// Requests over time.
    pub over_time: TraceSeries,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpStatistics {
    /// Their number.
    pub requests: u64,
    /// Their length in bytes, whether data moved or not.
    pub bytes: u64,
    /// Their sizes.
    pub size_bytes: SizeDistribution,
}

/// Sizes of requests in bytes. Percentiles are by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizeDistribution {
    /// Smallest.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// Hit rates of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheHits {
    /// Size of the cache.
    pub cache_bytes: u64,
    /// Share of accesses, 0 to 1.
    pub share: f64,
}

/// How much the number of arrivals varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Burstiness {
    /// Length of a window.
    pub window_s: f64,
    /// Variance over mean.
    pub dispersion: f64,
    /// Most arrivals in a window.
    pub most: u64,
}

/// Numbers of requests in windows of one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceSeries {
    /// Length of a window.
    pub window_s: f64,
    /// Requests of each, from the first arrival.
    pub requests: Vec<u64>,
    /// Bytes of reads and writes.
    pub bytes: Vec<u64>,
}

/// Bootstrap intervals of response times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseIntervals {
    /// Length of a block of time; `None` if each request is an element.
    pub block_s: Option<f64>,
    /// Elements of the sample (N): blocks of time from the first arrival, or requests.
    pub elements: u64,
    /// Draws (B).
    pub draws: u32,
    /// Seed of the draws.
    pub seed: u64,
    /// Mean, p50, p90 and p99 in microseconds.
    pub figures: Vec<FigureEstimate>,
    /// Reservations about the intervals.
    pub warnings: Vec<String>,
}

/// A figure with its intervals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FigureEstimate {
    /// Its name.
    pub name: String,
    /// Value of the statistic in the sample.
    pub value: f64,
    /// Ends of the 95 % percentile interval.
    pub percentile_95: Option<[f64; 2]>,
    /// Ends of the 95 % BCa interval.
    pub bca_95: Option<[f64; 2]>,
}

impl FigureEstimate {
    /// Makes the statistic from an estimate.
    #[must_use]
    pub fn new(name: &str, estimate: &Estimate) -> Self {
        let ends = |interval: chronodisk_trace::bootstrap::Interval| [interval.low, interval.high];
        FigureEstimate {
            name: name.to_owned(),
            value: estimate.value,
            percentile_95: estimate.percentile.map(ends),
            bca_95: estimate.bca.map(ends),
        }
    }
}

/// Ends of earlier requests at which another may go on.
pub const STREAMS: usize = 32;
/// Windows of [`TraceSeries`] at most; then two become one.
const WINDOWS_MAX: usize = 1_000;
/// First length of these windows.
const WINDOW_NS: u64 = 1_000_000;
/// Lengths of the windows of [`Burstiness`].
const SCALES_NS: [u64; 5] = [1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000];
/// Bytes of the blocks of footprints.
const BLOCK_BYTES: u64 = 4_096;

/// Gathers [`TraceStatistics`].
#[derive(Clone, Debug, Default)]
pub struct StatisticsGatherer {
    requests: u64,
    unordered: u64,
    first: Option<Nanos>,
    last: Nanos,
    data_bytes: u64,
    by_op: BTreeMap<&'static str, BTreeMap<u64, u64>>,
    by_volume: BTreeMap<u16, u64>,
    places: BTreeMap<u16, VecDeque<u64>>,
    addressed: u64,
    sequential: u64,
    of_streams: u64,
    reuse: Reuse,
    gaps: StreamedDistribution,
    gap_squares: f64,
    scales: [Scale; SCALES_NS.len()],
    idle: StreamedDistribution,
    idle_sum: Nanos,
    busy_until: Nanos,
    response: StreamedDistribution,
    series: Windows,
    /// Response times in microseconds by block of time, or all in one.
    kept: Option<Kept>,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    block_ns: Option<u64>,
    values: Vec<Vec<f64>>,
}

/// Blocks of time at most: an element of a sample each.
const BLOCKS_MAX: u64 = 1 << 20;

impl StatisticsGatherer {
    /// Keeps the response times for intervals, by blocks of time or request by request (`None`).
    #[must_use]
    pub fn with_intervals(mut self, block: Option<Nanos>) -> Self {
        self.kept = Some(Kept { block_ns: block.map(|block| block.as_nanos().max(1)), values: Vec::new() });
        self
    }

    /// Takes the next request.
    pub fn add(&mut self, record: &RequestRecord) {
        self.unordered += u64::from(record.arrival < self.last);
        let arrival = record.arrival.max(self.last);
        let first = *self.first.get_or_insert(arrival);
        if self.requests > 0 {
            let gap = arrival - self.last;
            self.gaps.add(gap);
            self.gap_squares += (gap.as_nanos() as f64).powi(2);
            if arrival > self.busy_until {
                let idle = arrival - self.busy_until.max(first);
                self.idle.add(idle);
                self.idle_sum += idle;
            }
        }
        self.requests += 1;
        *self.by_volume.entry(record.device).or_default() += 1;
        self.last = arrival;
        let since_ns = (arrival - first).as_nanos();
        self.scales.iter_mut().zip(SCALES_NS).for_each(|(scale, window_ns)| scale.add(since_ns / window_ns));
        let moved = if record.op.moves_data() { bytes(record) } else { 0 };
        self.data_bytes += moved;
        self.series.add(since_ns, moved);
        *self.by_op.entry(record.op.name()).or_default().entry(bytes(record)).or_default() += 1;
        if record.op != Op::Flush {
            self.place(record);
        }
        self.reuse.add(record);
        self.busy_until = self.busy_until.max(arrival);
        if record.is_completed() {
            self.busy_until = self.busy_until.max(record.completed);
            let response = record.completed - record.arrival;
            self.response.add(response);
            if let Some(kept) = &mut self.kept {
                kept.add(since_ns, response);
            }
        }
    }

    fn place(&mut self, record: &RequestRecord) {
        let ends = self.places.entry(record.device).or_default();
        self.addressed += 1;
        self.sequential += u64::from(ends.back() == Some(&record.lba.0));
        let stream = ends.iter().position(|end| *end == record.lba.0);
        self.of_streams += u64::from(stream.is_some());
        if let Some(stream) = stream {
            ends.remove(stream);
        } else if ends.len() == STREAMS {
            ends.pop_front();
        }
        ends.push_back(record.lba.0 + u64::from(record.sectors));
    }

    /// The figures; `volumes` names the volumes by their numbers, and `bootstrap` computes the intervals, if they were
    /// asked for.
    #[must_use]
    pub fn finish(self, volumes: &[String], bootstrap: &Bootstrap) -> TraceStatistics {
        let named = |number: u16| volumes.get(usize::from(number)).cloned().unwrap_or_else(|| number.to_string());
        let duration = self.last - self.first.unwrap_or_default();
        let seconds = duration.as_secs_f64();
        let reuse = self.reuse.figures();
        let interarrival_us = self.gaps.finish();
        let mean_ns = interarrival_us.mean * 1e3;
        let variance = ratio(self.gap_squares, self.gaps.count() as f64) - mean_ns.powi(2);
        let has_completions = self.response.count() > 0;
        let cache_hits = reuse.hits.iter().enumerate().map(|(power, hits)| CacheHits {
            cache_bytes: BLOCK_BYTES << power,
            // A sample may count a few more accesses than there are.
            share: ratio(*hits as f64, reuse.accesses as f64).min(1.0),
        });
        let scales = self.scales.iter().zip(SCALES_NS);
        TraceStatistics {
            schema: TRACE_STATISTICS_SCHEMA.to_owned(),
            requests: self.requests,
            volumes: self.by_volume.len() as u64,
            requests_by_volume: self.by_volume.iter().map(|(number, requests)| (named(*number), *requests)).collect(),
            unordered: self.unordered,
            duration_s: seconds,
            requests_per_s: ratio(self.requests as f64, seconds),
            mb_per_s: ratio(self.data_bytes as f64 / 1e6, seconds),
            by_op: self.by_op.iter().map(|(op, sizes)| ((*op).to_owned(), op_statistics(sizes))).collect(),
            sequential_share: ratio(self.sequential as f64, self.addressed as f64),
            stream_share: ratio(self.of_streams as f64, self.addressed as f64),
            footprint_bytes: reuse.blocks * BLOCK_BYTES,
            read_footprint_bytes: reuse.read_blocks * BLOCK_BYTES,
            written_footprint_bytes: reuse.written_blocks * BLOCK_BYTES,
            sampled_one_in: reuse.sampled_one_in,
            cache_hits: cache_hits.collect(),
            interarrival_us,
            interarrival_variation: ratio(variance.max(0.0).sqrt(), mean_ns),
            // A scale needs some windows to say anything.
            burstiness: scales
                .filter(|(_, window_ns)| duration.as_nanos() / window_ns >= 10)
                .map(|(scale, window_ns)| scale.finish(window_ns, duration.as_nanos() / window_ns))
                .collect(),
            idle_us: has_completions.then(|| self.idle.finish()),
            idle_share: has_completions.then(|| ratio(self.idle_sum.as_secs_f64(), seconds)),
            response_time_us: has_completions.then(|| self.response.finish()),
            intervals: self.kept.filter(|_| has_completions).map(|kept| kept.finish(duration, bootstrap)),
            over_time: self.series.finish(),
        }
    }
}

fn op_statistics(sizes: &BTreeMap<u64, u64>) -> OpStatistics {
    let requests: u64 = sizes.values().sum();
    let total: u64 = sizes.iter().map(|(size, count)| size * count).sum();
    let quantile = |per_cent: u64| {
        let rank = (requests * per_cent).div_ceil(100);
        let mut seen = 0;
        let found = sizes.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map_or(0, |(size, _)| *size)
    };
    OpStatistics {
        requests,
        bytes: total,
        size_bytes: SizeDistribution {
            min: sizes.keys().next().copied().unwrap_or(0),
            mean: ratio(total as f64, requests as f64),
            p50: quantile(50),
            p90: quantile(90),
            p99: quantile(99),
            max: sizes.keys().next_back().copied().unwrap_or(0),
        },
    }
}

/// Numbers of arrivals in windows of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    window: u64,
    count: u64,
    sum: f64,
    squares: f64,
    most: u64,
}

impl Scale {
    fn add(&mut self, window: u64) {
        if window != self.window {
            self.close();
            self.window = window;
        }
        self.count += 1;
    }

    fn close(&mut self) {
        self.sum += self.count as f64;
        self.squares += (self.count as f64).powi(2);
        self.most = self.most.max(self.count);
        self.count = 0;
    }

    /// Over the whole windows and the one that the trace ends in.
    fn finish(mut self, window_ns: u64, whole: u64) -> Burstiness {
        self.close();
        let windows = (whole + 1) as f64;
        let mean = self.sum / windows;
        let variance = (self.squares / windows - mean.powi(2)).max(0.0);
        Burstiness { window_s: window_ns as f64 / 1e9, dispersion: ratio(variance, mean), most: self.most }
    }
}

/// Accumulates a [`TraceSeries`].
#[derive(Clone, Debug)]
struct Windows {
    window_ns: u64,
    counts: Vec<(u64, u64)>,
}

impl Default for Windows {
    fn default() -> Self {
        Windows { window_ns: WINDOW_NS, counts: Vec::new() }
    }
}

impl Windows {
    fn add(&mut self, since_ns: u64, bytes: u64) {
        while since_ns / self.window_ns >= WINDOWS_MAX as u64 {
            let pairs = self.counts.chunks(2);
            self.counts =
                pairs.map(|pair| pair.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))).collect();
            self.window_ns *= 2;
        }
        let window = (since_ns / self.window_ns) as usize;
        if self.counts.len() <= window {
            self.counts.resize(window + 1, (0, 0));
        }
        self.counts[window].0 += 1;
        self.counts[window].1 += bytes;
    }

    fn finish(self) -> TraceSeries {
        TraceSeries {
            window_s: self.window_ns as f64 / 1e9,
            requests: self.counts.iter().map(|(requests, _)| *requests).collect(),
            bytes: self.counts.iter().map(|(_, bytes)| *bytes).collect(),
        }
    }
}

impl Kept {
    fn add(&mut self, since_ns: u64, response: Nanos) {
        let block = self.block_ns.map_or(0, |block_ns| (since_ns / block_ns).min(BLOCKS_MAX - 1)) as usize;
        if self.values.len() <= block {
            self.values.resize(block + 1, Vec::new());
        }
        self.values[block].push(response.as_micros_f64());
    }

    fn finish(mut self, duration: Nanos, bootstrap: &Bootstrap) -> ResponseIntervals {
        let sample = match self.block_ns {
            None => Sample::of_values(self.values.first().map_or(&[], Vec::as_slice)),
            Some(block_ns) => {
                // The last block is cut off by the end; without it all are equally long, unless it is the only one.
                let whole = (duration.as_nanos() / block_ns) as usize;
                self.values.truncate(whole.max(1));
                Sample::of_blocks(self.values.iter().map(Vec::as_slice))
            }
        };
        let figures = [("mean", None), ("p50", Some(0.5)), ("p90", Some(0.9)), ("p99", Some(0.99))];
        let estimates = bootstrap.estimate_all(sample.count(), figures.len(), |copies, values| {
            for (value, (_, share)) in values.iter_mut().zip(figures) {
                *value = share.map_or_else(|| sample.mean(copies), |share| sample.quantile(copies, share));
            }
        });
        let elements = sample.count() as u64;
        ResponseIntervals {
            block_s: self.block_ns.map(|block_ns| block_ns as f64 / 1e9),
            elements,
            draws: bootstrap.draws,
            seed: bootstrap.seed,
            figures: figures.iter().zip(&estimates).map(|((name, _), all)| FigureEstimate::new(name, all)).collect(),
            warnings: caveats(elements, Some(0.99)).iter().map(ToString::to_string).collect(),
        }
    }
}

impl TraceStatistics {
    /// Formats the statistics as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Formats the statistics for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.whole_table().render();
        let volumes = (self.volumes > 1).then(|| self.volumes_table());
        let bursts = (!self.burstiness.is_empty()).then(|| self.bursts_table());
        let caches = (!self.cache_hits.is_empty()).then(|| self.caches_table());
        let tables = [volumes, Some(self.sizes_table()), Some(self.times_table()), bursts, caches];
        for table in tables.into_iter().flatten() {
            text.push('\n');
            text.push_str(&table.render());
        }
        if self.sampled_one_in > 1 {
            let share = self.sampled_one_in;
            text.push_str(&format!("Footprints and hits are estimated from one block of {share}.\n"));
        }
        if let Some(intervals) = &self.intervals {
            text.push('\n');
            text.push_str(&intervals.render());
        }
        text
    }

    fn whole_table(&self) -> Table {
        let mut table = Table::new([("", Left), ("", Right)]);
        let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
        line("requests", self.requests.to_string());
        line("volumes", self.volumes.to_string());
        line("duration", format!("{:.6} s", self.duration_s));
        line("rate", format!("{:.1} requests/s", self.requests_per_s));
        line("throughput", format!("{:.3} MB/s", self.mb_per_s));
        line("sequential", format!("{:.2} %", self.sequential_share * 100.0));
        line(&format!("sequential, {STREAMS} streams"), format!("{:.2} %", self.stream_share * 100.0));
        line("footprint", mib(self.footprint_bytes));
        line("footprint of reads", mib(self.read_footprint_bytes));
        line("footprint of writes", mib(self.written_footprint_bytes));
        line("interarrival, coefficient of variation", format!("{:.3}", self.interarrival_variation));
        if let Some(share) = self.idle_share {
            line("idle", format!("{:.2} %", share * 100.0));
        }
        table
    }

    fn volumes_table(&self) -> Table {
        let mut table = Table::new([("volume", Left), ("requests", Right)]);
        self.requests_by_volume.iter().for_each(|(name, requests)| table.row([name.clone(), requests.to_string()]));
        table
    }

    fn sizes_table(&self) -> Table {
        let mut table = Table::new([
            ("operation", Left),
            ("requests", Right),
            ("MB", Right),
            ("mean KiB", Right),
            ("p50", Right),
            ("p90", Right),
            ("p99", Right),
            ("max", Right),
        ]);
        for (op, of_op) in &self.by_op {
            let kib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0);
            let size = of_op.size_bytes;
            let (megabytes, mean) = (of_op.bytes as f64 / 1e6, size.mean / 1024.0);
            let [p50, p90, p99, max] = [size.p50, size.p90, size.p99, size.max].map(kib);
            let (count, megabytes, mean) =
                (of_op.requests.to_string(), format!("{megabytes:.1}"), format!("{mean:.1}"));
            table.row([op.clone(), count, megabytes, mean, p50, p90, p99, max]);
        }
        table
    }

    fn times_table(&self) -> Table {
        let mut table =
            Table::new([("µs", Left), ("mean", Right), ("p50", Right), ("p90", Right), ("p99", Right), ("max", Right)]);
        let named = [
            ("interarrival", Some(self.interarrival_us)),
            ("idle times", self.idle_us),
            ("response times", self.response_time_us),
        ];
        for (name, of) in named {
            let Some(of) = of else { continue };
            let values = [of.mean, of.p50, of.p90, of.p99, of.max].map(|value| format!("{value:.1}"));
            table.row(std::iter::once(name.to_owned()).chain(values));
        }
        table
    }

    fn bursts_table(&self) -> Table {
        let mut table = Table::new([("window s", Right), ("variance / mean of arrivals", Right), ("most", Right)]);
        for scale in &self.burstiness {
            table.row([scale.window_s.to_string(), format!("{:.2}", scale.dispersion), scale.most.to_string()]);
        }
        table
    }

    fn caches_table(&self) -> Table {
        let mut table = Table::new([("LRU cache", Right), ("hits %", Right)]);
        for hits in self.cache_hits.iter().skip(self.cache_hits.len().saturating_sub(CACHES_SHOWN)) {
            table.row([mib(hits.cache_bytes), format!("{:.2}", hits.share * 100.0)]);
        }
        table
    }
}

/// Largest caches that the table shows.
const CACHES_SHOWN: usize = 12;

impl ResponseIntervals {
    fn render(&self) -> String {
        let mut table =
            Table::new([("response time, µs", Left), ("", Right), ("95 % BCa", Right), ("95 % percentile", Right)]);
        for figure in &self.figures {
            let ends = |ends: Option<[f64; 2]>| ends.map_or("-".into(), |[low, high]| format!("{low:.1} to {high:.1}"));
            let (bca, percentile) = (ends(figure.bca_95), ends(figure.percentile_95));
            table.row([figure.name.clone(), format!("{:.1}", figure.value), bca, percentile]);
        }
        let element = self.block_s.map_or("requests".to_owned(), |seconds| format!("blocks of {seconds} s"));
        let mut text = table.render();
        text.push_str(&format!("N = {} {element}, B = {} draws\n", self.elements, self.draws));
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        text
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.3} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Lba, Priority, Status};

    use super::*;

    fn request(op: Op, lba: u64, sectors: u32, arrival_us: u64, response_us: Option<u64>) -> RequestRecord {
        RequestRecord {
            device: 0,
            order: 0,
            op,
            fua: false,
            priority: Priority::default(),
            lba: Lba(lba),
            sectors,
            queue: 0,
            issuer: 0,
            arrival: Nanos::from_micros(arrival_us),
            due: Nanos::MAX,
            completed: response_us.map_or(Nanos::MAX, |response| Nanos::from_micros(arrival_us + response)),
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        }
    }

    fn gathered(records: &[RequestRecord], gatherer: StatisticsGatherer) -> TraceStatistics {
        let mut gatherer = gatherer;
        records.iter().for_each(|record| gatherer.add(record));
        gatherer.finish(&[], &Bootstrap::new(1))
    }

    #[test]
    fn figures_of_a_small_trace() {
        let records = [
            request(Op::Read, 0, 8, 1_000_000, Some(100)),
            request(Op::Read, 8, 8, 1_000_050, Some(100)),
            request(Op::Write, 100, 16, 1_001_000, Some(500)),
            // Goes on where the second one ended.
            request(Op::Read, 16, 8, 1_001_200, None),
            request(Op::Flush, 0, 0, 1_001_300, Some(100)),
            request(Op::Read, 0, 8, 1_002_000, Some(10)),
        ];
        let found = gathered(&records, StatisticsGatherer::default());
        assert_eq!((found.requests, found.volumes, found.unordered), (6, 1, 0));
        assert!((found.duration_s - 0.002).abs() < 1e-12 && (found.requests_per_s - 3_000.0).abs() < 1e-6);
        assert_eq!(found.by_op["read"].requests, 4);
        assert_eq!(found.by_op["write"].size_bytes.p50, 8_192);
        assert!((found.sequential_share - 1.0 / 5.0).abs() < 1e-12, "{}", found.sequential_share);
        assert!((found.stream_share - 2.0 / 5.0).abs() < 1e-12, "{}", found.stream_share);
        // Blocks 0, 1, 2 are read; sectors 100 to 116 are in blocks 12, 13 and 14.
        assert_eq!((found.read_footprint_bytes, found.written_footprint_bytes), (3 * 4_096, 3 * 4_096));
        // Of 7 accesses, one comes again, after 6 distinct blocks.
        assert_eq!(found.cache_hits.len(), 4);
        assert!((found.cache_hits[3].share - 1.0 / 7.0).abs() < 1e-12 && found.cache_hits[2].share == 0.0);
        // From 150 to 1,000 µs, and from 1,500 to 2,000 µs.
        assert!((found.idle_share.unwrap() - 1_350.0 / 2_000.0).abs() < 1e-9, "{:?}", found.idle_share);
        assert_eq!(found.response_time_us.unwrap().max, 500.0);
        assert_eq!(found.over_time.requests, [2, 3, 1]);
    }

    #[test]
    fn poisson_arrivals_have_a_dispersion_of_one_and_regular_ones_of_zero() {
        let mut random = chronodisk_sim::RandomStream::new(1, "test", "arrivals");
        let mut at_us = 0;
        let poisson: Vec<_> = (0..50_000)
            .map(|_| {
                at_us += (-(1.0 - random.unit()).ln() * 1_000.0) as u64;
                request(Op::Read, 0, 8, at_us, None)
            })
            .collect();
        let found = gathered(&poisson, StatisticsGatherer::default());
        assert!((found.interarrival_variation - 1.0).abs() < 0.05, "{}", found.interarrival_variation);
        assert!(found.burstiness.iter().any(|scale| scale.window_s == 0.1 && (scale.dispersion - 1.0).abs() < 0.15));
        assert!(found.idle_us.is_none() && found.response_time_us.is_none());
        let regular: Vec<_> = (0..50_000).map(|index| request(Op::Read, 0, 8, index * 1_000, None)).collect();
        let found = gathered(&regular, StatisticsGatherer::default());
        assert!(found.interarrival_variation < 1e-6 && found.burstiness[1].dispersion < 0.01);
        assert!(found.over_time.requests.len() <= WINDOWS_MAX);
        assert_eq!(found.over_time.requests.iter().sum::<u64>(), 50_000);
    }

    #[test]
    fn intervals_are_over_whole_blocks_of_time() {
        let records: Vec<_> =
            (0..1_000).map(|index| request(Op::Read, 0, 8, index * 1_000, Some(100 + index % 7))).collect();
        let blocks = gathered(&records, StatisticsGatherer::default().with_intervals(Some(Nanos::from_millis(10))));
        let intervals = blocks.intervals.unwrap();
        assert_eq!((intervals.elements, intervals.block_s), (99, Some(0.01)));
        let mean = &intervals.figures[0];
        let [low, high] = mean.bca_95.unwrap();
        assert!(low < mean.value && mean.value < high && (102.9..103.1).contains(&mean.value), "{mean:?}");
        assert!(intervals.warnings[0].contains("p99"), "{:?}", intervals.warnings);
        let one = gathered(&records[..3], StatisticsGatherer::default().with_intervals(Some(Nanos::from_secs(9))));
        let intervals = one.intervals.unwrap();
        assert_eq!((intervals.elements, intervals.figures[0].bca_95), (1, None));
        assert!(intervals.warnings[0].contains("no interval"));
    }
}
