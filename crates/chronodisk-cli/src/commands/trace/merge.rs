//! `chronodisk trace merge`: block traces of one time as one.

use chronodisk_report::LogInfo;
use chronodisk_sim::{Nanos, RequestRecord};
use chronodisk_sweep::BlockTrace;
use chronodisk_trace::block::ReadCounts;
use clap::{Args, ValueEnum};

use super::written::{self, OutputOptions, Requests};
use crate::block_trace::{self, TraceOptions};
use crate::failure::{Failure, Outcome};

/// Merges block traces into one, in order of arrival
///
/// Each volume of each trace becomes a volume of the result. Volumes with equal names get the number of their trace in
/// front: 1/hm_0, 2/hm_0.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk trace merge usr_0.csv.gz usr_1.csv.gz -o usr.parquet")]
pub struct Arguments {
    /// Traces to merge
    #[arg(value_name = "TRACE", required = true, num_args = 2..)]
    traces: Vec<String>,

    /// Aligns the traces: origin, by calendar or by instant 0; first, by the arrival of their first requests
    #[arg(long, value_name = "WHAT", default_value = "origin")]
    align: Align,

    #[command(flatten)]
    output: OutputOptions,

    #[command(flatten)]
    options: TraceOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Align {
    Origin,
    First,
}

/// Merges.
pub fn execute(arguments: &Arguments) -> Outcome {
    written::write(&arguments.output, || Merged::open(arguments))
}

struct Merged {
    traces: Vec<Part>,
    origin_unix_ns: Option<u64>,
}

struct Part {
    trace: BlockTrace,
    next: Option<RequestRecord>,
    /// Added to instants; the second value is subtracted. One of them is zero.
    later: Nanos,
    earlier: Nanos,
    /// Volume of the result, by the trace's volume.
    volumes: Vec<Option<u16>>,
}

impl Merged {
    fn open(arguments: &Arguments) -> Result<Self, Failure> {
        let mut traces = Vec::new();
        for name in &arguments.traces {
            let mut trace = block_trace::open(name, &arguments.options)?;
            // The first request's instant is the origin.
            let next = trace.next_record()?;
            traces.push(Part { trace, next, later: Nanos::ZERO, earlier: Nanos::ZERO, volumes: Vec::new() });
        }
        let origins: Vec<Option<u64>> = traces.iter().map(|part| part.trace.info().origin_unix_ns).collect();
        let mut origin_unix_ns = None;
        if arguments.align == Align::First {
            for part in &mut traces {
                part.earlier = part.next.map_or(Nanos::ZERO, |record| record.arrival);
            }
        } else if origins.iter().any(Option::is_some) {
            let without = origins.iter().position(Option::is_none);
            if let Some(index) = without {
                return Err(Failure::usage(format!(
                    "{} has no calendar, but others have: their times can't be compared",
                    arguments.traces[index]
                ))
                .help("--align first lets all traces begin at once"));
            }
            let first = origins.iter().flatten().min().copied().unwrap_or(0);
            origin_unix_ns = Some(first);
            for (part, origin) in traces.iter_mut().zip(&origins) {
                part.later = Nanos::from_nanos(origin.unwrap_or(first) - first);
            }
        }
        Ok(Merged { traces, origin_unix_ns })
    }
}

impl Requests for Merged {
    fn next(&mut self) -> Result<Option<RequestRecord>, Failure> {
        let aligned = |part: &Part| part.next.map(|record| part.aligned(record.arrival));
        let pending = self.traces.iter().enumerate().filter_map(|(index, part)| Some((aligned(part)?, index)));
        // Requests with equal arrivals keep the order of the named traces.
        let Some((_, index)) = pending.min() else { return Ok(None) };
        let numbered = self.traces.iter().map(|part| part.volumes.iter().flatten().count()).sum::<usize>();
        let part = &mut self.traces[index];
        let Some(mut record) = part.next.take() else { return Ok(None) };
        part.next = part.trace.next_record()?;
        let device = usize::from(record.device);
        if part.volumes.len() <= device {
            part.volumes.resize(device + 1, None);
        }
        let volume = match part.volumes[device] {
            Some(volume) => volume,
            None => u16::try_from(numbered).map_err(|_| Failure::usage("the traces have more than 65,536 volumes"))?,
        };
        part.volumes[device] = Some(volume);
        record.device = volume;
        record.arrival = part.aligned(record.arrival);
        for at in [&mut record.due, &mut record.completed] {
            if *at != Nanos::MAX {
                *at = part.aligned(*at);
            }
        }
        Ok(Some(record))
    }

    fn info(&self) -> LogInfo {
        let infos: Vec<LogInfo> = self.traces.iter().map(|part| part.trace.info()).collect();
        let mut named: Vec<(u16, usize, String)> = Vec::new();
        for (index, (part, info)) in self.traces.iter().zip(&infos).enumerate() {
            for (device, volume) in part.volumes.iter().enumerate() {
                let Some(volume) = volume else { continue };
                let name = info.volumes.get(device).cloned().unwrap_or_else(|| device.to_string());
                named.push((*volume, index, name));
            }
        }
        named.sort();
        let is_shared = |name: &String| named.iter().filter(|(_, _, other)| other == name).count() > 1;
        let name = |(_, index, name): &(u16, usize, String)| match is_shared(name) {
            true => format!("{}/{name}", index + 1),
            false => name.clone(),
        };
        let formats: Vec<&str> = infos.iter().filter_map(|info| info.format.as_deref()).collect();
        LogInfo {
            format: formats.first().map(|first| {
                let is_one = formats.iter().all(|format| format == first) && formats.len() == infos.len();
                if is_one { (*first).to_owned() } else { "several".to_owned() }
            }),
            origin_unix_ns: self.origin_unix_ns,
            resolution_ns: infos.iter().filter_map(|info| info.resolution_ns).max(),
            volumes: named.iter().map(name).collect(),
        }
    }

    fn counts(&self) -> ReadCounts {
        self.traces.iter().map(|part| part.trace.counts()).fold(ReadCounts::default(), |sum, of| ReadCounts {
            requests: sum.requests + of.requests,
            widened: sum.widened + of.widened,
            unordered: sum.unordered + of.unordered,
            skipped: sum.skipped + of.skipped,
            bad: sum.bad + of.bad,
            unissued: sum.unissued + of.unissued,
        })
    }
}

impl Part {
    fn aligned(&self, at: Nanos) -> Nanos {
        (at + self.later).saturating_sub(self.earlier)
    }
}
