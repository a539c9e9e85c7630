//! Results of `whatif`.

use std::ffi::OsString;
use std::fmt::Write;

use chronodisk_device::Speed;
use chronodisk_engine::dilation::Prediction;
use chronodisk_native::Observation;
use chronodisk_report::{Curve, CurvePoint, EndedBy};
use chronodisk_sim::Nanos;
use serde::Serialize;

use super::factors::{Factor, Factors};
use crate::times::now_rfc3339;

const SCHEMA: &str = "chronodisk.whatif/1";

/// The whole result.
#[derive(Debug, Serialize)]
pub struct WhatIf {
    /// `chronodisk.whatif/1`.
    schema: &'static str,
    /// Version of the program that made it.
    chronodisk_version: &'static str,
    /// The host's date and time at the start, as in RFC 3339.
    started_at: String,
    /// CMD with its arguments.
    command: Vec<String>,
    /// The profile, or the disk of this host.
    device: String,
    /// Speed of the emulated device relative to its profile.
    device_speed: f64,
    /// Run time of the undisturbed runs.
    pub elapsed_s: Spread,
    /// Part of these run times in which the emulated device had no request. A prediction takes it to be the same on the
    /// faster device.
    pub without_request_s: Option<Spread>,
    /// Part of these run times in which some request was due and not completed yet, because the host was late.
    pub late_s: Option<Spread>,
    /// Whether several writes were in flight in one of these runs on a device whose write-back the kernel throttles,
    /// which goes by time and not by the device's speed.
    pub throttled_writes: bool,
    /// Total time of requests in the undisturbed runs, by the kernel's account.
    pub request_time_s: Option<Spread>,
    /// Run time if requests took no time; of the runs for R = inf.
    limit_s: Option<f64>,
    /// Load of the host (1 min) at the beginning and the end.
    load: [Option<f64>; 2],
    /// A prediction for each R.
    pub results: Vec<WhatIfResult>,
    /// Reservations about the figures.
    pub warnings: Vec<String>,
    /// Cause of the runs' end. Unless it is the command, with status 0, there are no predictions.
    pub ended_by: EndedBy,
    /// Exit status of the command, or the one that tells which signal asked for the end.
    pub exit_status: u8,
    /// Chronodisk's failure, if there was one.
    pub failure: Option<String>,
}

/// The prediction for one R.
#[derive(Debug, Serialize)]
pub struct WhatIfResult {
    /// R, if it is the same for reads and writes.
    speedup: Option<FactorText>,
    /// R of reads.
    read_speedup: FactorText,
    /// R of writes.
    write_speedup: FactorText,
    /// Predicted run time.
    predicted_s: Spread,
    /// Run time by the second estimate, which knows of waits only.
    by_request_s: Spread,
    /// Run time on the emulated device at this speed, with --validate.
    pub measured_s: Option<Spread>,
    /// Part of `measured_s` in which the device had no request.
    pub measured_without_request_s: Option<Spread>,
    /// Part of `measured_s` in which some request was due and not completed yet.
    pub measured_late_s: Option<Spread>,
    /// Predicted median less the measured one, as a share of the latter.
    error: Option<f64>,
    /// Decrease of the time without requests on the faster device, as a share of the measured run time.
    error_without_request: Option<f64>,
    /// Whether CMD's requests were long enough to freeze it; otherwise time was only accounted for.
    suspends: bool,
    /// Medians over the runs.
    #[serde(flatten)]
    medians: Figures,
    /// Freezes that were cut short since they had lasted for half a second, in all runs.
    cut_freezes: u64,
    /// Events of the kernel that were lost, in all runs.
    lost_events: u64,
    #[serde(skip)]
    runs: Vec<Figures>,
}

/// Figures of one run, or the medians of several.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Figures {
    /// The low end of the band that contains the run time.
    low_s: f64,
    /// The high end of that band.
    high_s: f64,
    /// Number of freezes of CMD.
    freezes: f64,
    /// Total time of the freezes.
    frozen_s: f64,
    /// Time for which the thread that freezes and thaws had the processors of all threads that would have run.
    preempted_s: f64,
    /// Time for which threads of the kernel computed for CMD while it waited and the device was busy.
    helped_s: f64,
    /// Debt that was left when the device became idle.
    unpaid_s: f64,
    /// Run time of the observed run by the host's clock.
    observed_s: f64,
    /// Part of `observed_s` in which the emulated device had no request.
    observed_without_request_s: Option<f64>,
    /// Total time of its requests, by the kernel's account.
    observed_request_time_s: Option<f64>,
    /// Time in which the device had requests of CMD.
    device_busy_s: f64,
    /// Requests of CMD.
    requests: f64,
    /// Requests of other processes.
    other_requests: f64,
    /// System calls that a freeze interrupted.
    interrupted_calls: f64,
    /// Waits that no request ended while the device was busy.
    other_waits: f64,
    /// Total time of these waits.
    other_wait_s: f64,
    /// CPU time of the thread that freezes and thaws.
    supervisor_cpu_s: f64,
}

/// A program that was frozen for less than this share of its run went through the same as an undisturbed one.
const UNFROZEN_SHARE: f64 = 0.01;

impl Figures {
    /// Run time of the observed run without the supervisor's part, which is not in the prediction.
    fn own_s(&self) -> f64 {
        self.observed_s - self.preempted_s
    }

    /// Part of that time in which the device had no request of CMD's.
    fn without_request_s(&self) -> f64 {
        self.own_s() - self.device_busy_s
    }

    fn medians(runs: &[Figures]) -> Figures {
        let median = |figure: fn(&Figures) -> f64| Spread::of(runs.iter().map(figure)).median;
        Figures {
            low_s: median(|run| run.low_s),
            high_s: median(|run| run.high_s),
            freezes: median(|run| run.freezes),
            frozen_s: median(|run| run.frozen_s),
            preempted_s: median(|run| run.preempted_s),
            helped_s: median(|run| run.helped_s),
            unpaid_s: median(|run| run.unpaid_s),
            observed_s: median(|run| run.observed_s),
            observed_without_request_s: median_of_all(runs, |run| run.observed_without_request_s),
            observed_request_time_s: median_of_all(runs, |run| run.observed_request_time_s),
            device_busy_s: median(|run| run.device_busy_s),
            requests: median(|run| run.requests),
            other_requests: median(|run| run.other_requests),
            interrupted_calls: median(|run| run.interrupted_calls),
            other_waits: median(|run| run.other_waits),
            other_wait_s: median(|run| run.other_wait_s),
            supervisor_cpu_s: median(|run| run.supervisor_cpu_s),
        }
    }
}

/// Median of a figure that all runs have.
fn median_of_all(runs: &[Figures], figure: fn(&Figures) -> Option<f64>) -> Option<f64> {
    let known: Option<Vec<f64>> = runs.iter().map(figure).collect();
    known.map(|known| Spread::of(known.into_iter()).median)
}

/// Conversion of an observed run's prediction to that of an undisturbed run.
///
/// Observation takes some microseconds at each request and each switch between threads, on any device. Runs also vary,
/// in both directions: a correction in one direction only would make predictions of noisy programs too short. For a
/// frozen program the cost is unknown.
#[derive(Clone, Copy, Debug)]
enum Correction {
    /// The program was frozen.
    Nothing,
    /// It is a share of all time: of a disk of this host it is not known when an undisturbed run had no request.
    Evenly(f64),
    /// The observed run's additional time without requests is computing, which no device shortens. The rest is a share
    /// of the time with requests.
    InParts { without_request_s: f64, with_request: f64 },
}

/// Undisturbed runs, medians in seconds.
struct Undisturbed {
    /// Run time.
    elapsed_s: f64,
    /// For how long the emulated device had no request.
    without_request_s: Option<f64>,
    /// Total time of requests, by the kernel's account.
    request_time_s: Option<f64>,
}

impl Correction {
    fn of(runs: &[Figures], undisturbed: &Undisturbed) -> Correction {
        let is_comparable = |run: &Figures| run.frozen_s <= UNFROZEN_SHARE * run.observed_s && run.observed_s > 0.0;
        if runs.is_empty() || !runs.iter().all(is_comparable) {
            return Correction::Nothing;
        }
        let median = |figure: fn(&Figures) -> f64| Spread::of(runs.iter().map(figure)).median;
        let own_s = median(Figures::own_s);
        let waits_s = undisturbed.without_request_s.zip(median_of_all(runs, |run| run.observed_without_request_s));
        let requests_s = undisturbed.request_time_s.zip(median_of_all(runs, |run| run.observed_request_time_s));
        let (Some(waits_s), Some(requests_s)) = (waits_s, requests_s) else {
            return Correction::Evenly(undisturbed.elapsed_s / own_s);
        };
        // For the kernel, and so for the prediction, a request begins before the emulated device has it and ends after.
        // The cost of observation there is in the time with requests. It is the requests' additional time, but at most
        // all of the time between: overlapping requests make the sum uncertain.
        let kernel_s = median(|run| run.device_busy_s);
        let (device_s, observed_device_s) = (undisturbed.elapsed_s - waits_s.0, own_s - waits_s.1);
        let hidden_s = (requests_s.1 - requests_s.0).clamp(0.0, (kernel_s - observed_device_s).max(0.0));
        let undisturbed_kernel_s = (kernel_s - hidden_s + device_s - observed_device_s).max(0.0);
        Correction::InParts {
            without_request_s: (own_s - kernel_s) - (undisturbed.elapsed_s - undisturbed_kernel_s),
            with_request: if kernel_s > 0.0 { undisturbed_kernel_s / kernel_s } else { 1.0 },
        }
    }

    /// Corrects a prediction by this run.
    fn apply(self, predicted_s: f64, run: &Figures) -> f64 {
        match self {
            Correction::Nothing => predicted_s,
            Correction::Evenly(factor) => predicted_s * factor,
            Correction::InParts { without_request_s, with_request } => {
                let computing_s = run.without_request_s();
                ((predicted_s - computing_s) * with_request + computing_s - without_request_s).max(0.0)
            }
        }
    }
}

/// A factor: one of these.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
enum FactorText {
    /// A number.
    Number(f64),
    /// `"inf"`.
    Word(&'static str),
}

impl From<Factor> for FactorText {
    fn from(factor: Factor) -> Self {
        if factor.is_infinite() { FactorText::Word("inf") } else { FactorText::Number(factor.value()) }
    }
}

/// Several values of the same thing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Spread {
    /// Median of the values.
    pub median: f64,
    /// The least.
    min: f64,
    /// The largest.
    max: f64,
    /// All, in the order of the runs.
    values: Vec<f64>,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut spread = Spread::default();
        values.for_each(|value| spread.add(value));
        spread
    }

    /// Corrects the values of these runs.
    fn correct(&mut self, correction: Correction, runs: &[Figures]) {
        *self = Spread::of(self.values.iter().zip(runs).map(|(value, run)| correction.apply(*value, run)));
    }

    pub fn add(&mut self, value: f64) {
        self.values.push(value);
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        (self.min, self.max) = (sorted[0], sorted[sorted.len() - 1]);
        self.median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
    }

    /// Width of the range, as a share of the median.
    fn width(&self) -> f64 {
        if self.median > 0.0 { (self.max - self.min) / self.median } else { 0.0 }
    }
}

/// An observed run, for one R.
pub struct Observed<'a> {
    pub prediction: &'a Prediction,
    pub observation: &'a Observation,
    pub elapsed_s: f64,
    /// Part of `elapsed_s` in which the emulated device had no request.
    pub without_request_s: Option<f64>,
    /// Total time of requests, by the kernel's account.
    pub request_time_s: Option<f64>,
}

/// Why the figures of a run should not be believed.
pub fn expect_believable(observation: &Observation) -> Option<String> {
    (observation.lost_events > 0).then(|| {
        format!(
            "{} events of the kernel were lost in one run: its prediction is not to be believed",
            observation.lost_events
        )
    })
}

impl WhatIf {
    pub(super) fn new(device: &str, speed: Speed, command: &[OsString], factors: &[Factors]) -> Self {
        WhatIf {
            schema: SCHEMA,
            chronodisk_version: env!("CARGO_PKG_VERSION"),
            started_at: now_rfc3339(),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            device: device.to_owned(),
            device_speed: speed.factor(),
            elapsed_s: Spread::default(),
            without_request_s: None,
            late_s: None,
            throttled_writes: false,
            request_time_s: None,
            limit_s: None,
            load: [host_load(), None],
            results: factors.iter().map(|factors| WhatIfResult::new(*factors)).collect(),
            warnings: Vec::new(),
            ended_by: EndedBy::Command,
            exit_status: 0,
            failure: None,
        }
    }

    /// Adds an observed run.
    pub fn add(&mut self, index: usize, observed: &Observed<'_>) {
        let Observed { prediction, observation, elapsed_s, without_request_s, request_time_s } = observed;
        let result = &mut self.results[index];
        result.predicted_s.add(prediction.by_debt.as_secs_f64());
        result.by_request_s.add(prediction.by_request.as_secs_f64());
        result.suspends |= observation.freezes;
        result.cut_freezes += observation.cut_freezes;
        result.lost_events += observation.lost_events;
        let seconds = Nanos::as_secs_f64;
        result.runs.push(Figures {
            low_s: seconds(prediction.low),
            high_s: seconds(prediction.high),
            freezes: prediction.freezes as f64,
            frozen_s: seconds(prediction.frozen),
            preempted_s: seconds(prediction.preempted),
            helped_s: seconds(prediction.helped),
            unpaid_s: seconds(prediction.unpaid),
            observed_s: *elapsed_s,
            observed_without_request_s: *without_request_s,
            observed_request_time_s: *request_time_s,
            device_busy_s: seconds(prediction.busy),
            requests: prediction.requests as f64,
            other_requests: observation.other_requests as f64,
            interrupted_calls: observation.interrupted_waits as f64,
            other_waits: prediction.other_waits as f64,
            other_wait_s: seconds(prediction.other_wait_time),
            supervisor_cpu_s: observation.supervisor_cpu.as_secs_f64(),
        });
    }

    /// Computes the figures once all runs are there.
    pub fn finish(&mut self) {
        self.load[1] = host_load();
        let median = |spread: &Option<Spread>| spread.as_ref().map(|spread| spread.median);
        let undisturbed = Undisturbed {
            elapsed_s: self.elapsed_s.median,
            without_request_s: median(&self.without_request_s),
            request_time_s: median(&self.request_time_s),
        };
        for result in &mut self.results {
            result.finish(&undisturbed);
            if matches!(result.speedup, Some(FactorText::Word(_))) {
                self.limit_s = Some(result.predicted_s.median);
            }
        }
        let warnings: Vec<String> = self.results.iter().flat_map(WhatIfResult::warnings).collect();
        self.warnings.extend(warnings);
        if let Some(share) = late_share(&self.elapsed_s, self.late_s.as_ref()) {
            self.warnings
                .push(format!("the undisturbed runs are too long by up to {:.1} %: {LATE_SINCE}", share * 100.0));
        }
        if self.throttled_writes {
            self.warnings.push(
                "several writes were in flight, and the kernel throttles write-back by time and not by the device's \
                 speed: a faster device can gain more or less than predicted. To see by how much, add to --setup \
                 'echo 0 > /sys/block/$(basename $CHRONODISK_DEVICE)/queue/wbt_lat_usec'"
                    .to_owned(),
            );
        }
        if self.elapsed_s.width() > SPREAD_MAX {
            self.warnings.push(format!(
                "the undisturbed runs differ by {:.0} %: this host is busy, or the program does not repeat",
                self.elapsed_s.width() * 100.0
            ));
        }
    }

    /// Predictions with their bands, and measurements with their ranges, against R.
    pub fn curves(&self) -> Vec<Curve> {
        let point = |result: &WhatIfResult, spread: &Spread, ends| match result.speedup {
            Some(FactorText::Number(factor)) => Some((factor, spread.median, Some(ends))),
            _ => None,
        };
        let predicted = self.results.iter();
        let predicted =
            predicted.filter_map(|one| point(one, &one.predicted_s, [one.medians.low_s, one.medians.high_s]));
        let measured = self.results.iter().filter_map(|one| Some((one, one.measured_s.as_ref()?)));
        let measured = measured.filter_map(|(one, spread)| point(one, spread, [spread.min, spread.max]));
        let as_it_is = (1.0, self.elapsed_s.median, Some([self.elapsed_s.min, self.elapsed_s.max]));
        let curves =
            [("predicted", predicted.collect()), ("measured", measured.collect()), ("as it is", vec![as_it_is])];
        let mut curves: Vec<Curve> =
            curves.into_iter().map(|(name, points): (&str, Vec<CurvePoint>)| (name.to_owned(), points)).collect();
        curves.retain(|(_, points)| !points.is_empty());
        curves.iter_mut().for_each(|(_, points)| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        curves
    }

    /// Formats the result for people.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "elapsed {:.4} s (as it is; {})", self.elapsed_s.median, range(&self.elapsed_s));
        for result in &self.results {
            let _ = writeln!(text, "{}", result.line());
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }
}

/// Undisturbed runs that differ by more than this make a prediction doubtful.
const SPREAD_MAX: f64 = 0.1;
/// A band wider than this is worth a word.
const BAND_MAX: f64 = 0.2;
/// An error larger than this is worth a reason, if there is one.
const ERROR_NOTED: f64 = 0.03;

/// The share of a run in which the device was late from which on that is said.
const LATE_NOTED: f64 = 0.02;

impl WhatIfResult {
    fn new(factors: Factors) -> Self {
        WhatIfResult {
            speedup: (factors.reads == factors.writes).then(|| factors.reads.into()),
            read_speedup: factors.reads.into(),
            write_speedup: factors.writes.into(),
            predicted_s: Spread::default(),
            by_request_s: Spread::default(),
            measured_s: None,
            measured_without_request_s: None,
            measured_late_s: None,
            error: None,
            error_without_request: None,
            suspends: false,
            medians: Figures::default(),
            cut_freezes: 0,
            lost_events: 0,
            runs: Vec::new(),
        }
    }

    /// Computes the figures once all runs are there.
    fn finish(&mut self, undisturbed: &Undisturbed) {
        let correction = Correction::of(&self.runs, undisturbed);
        for spread in [&mut self.predicted_s, &mut self.by_request_s] {
            spread.correct(correction, &self.runs);
        }
        for run in &mut self.runs {
            run.low_s = correction.apply(run.low_s, run);
            run.high_s = correction.apply(run.high_s, run);
        }
        self.medians = Figures::medians(&self.runs);
        let Some(measured) = &self.measured_s else { return };
        self.error = Some(self.predicted_s.median / measured.median - 1.0);
        let pair = undisturbed.without_request_s.zip(self.measured_without_request_s.as_ref());
        self.error_without_request = pair.map(|(as_it_is_s, on_twin)| (as_it_is_s - on_twin.median) / measured.median);
    }

    fn name(&self) -> String {
        match (self.speedup, self.read_speedup, self.write_speedup) {
            (Some(factor), ..) => format!("R = {factor}"),
            (None, reads, writes) => format!("R = {reads} for reads, {writes} for writes"),
        }
    }

    fn line(&self) -> String {
        let mut line = format!(
            "{}: {:.4} s predicted ({}), from {:.4} to {:.4} s",
            self.name(),
            self.predicted_s.median,
            range(&self.predicted_s),
            self.medians.low_s,
            self.medians.high_s
        );
        if let (Some(measured), Some(error)) = (&self.measured_s, self.error) {
            let _ = write!(line, "; {:.4} s measured, error {:+.2} %", measured.median, error * 100.0);
            if let Some(part) = self.part_of_program() {
                let _ = write!(line, " ({:+.2} % in the time without requests)", part * 100.0);
            }
        }
        let how = match self.suspends {
            true => format!("{} freezes, {:.4} s frozen", self.medians.freezes, self.medians.frozen_s),
            false => "accounted for, never frozen".to_owned(),
        };
        let _ = write!(
            line,
            "\n  {how}; device busy for {:.4} s, {} requests",
            self.medians.device_busy_s, self.medians.requests
        );
        let counts = [
            (self.medians.other_requests, "requests of other processes"),
            (self.medians.other_waits, "waits that no request ended"),
            (self.medians.interrupted_calls, "waits that freezing interrupted"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0.0) {
            let _ = write!(line, ", {count} {what}");
        }
        line
    }

    /// The part of the error in the time without requests, if it explains most of an error that is worth a reason.
    /// Where a program computes while the device is busy, it explains nothing.
    fn part_of_program(&self) -> Option<f64> {
        let (error, part) = (self.error?, self.error_without_request?);
        let explains = part.signum() == error.signum() && (0.5..2.0).contains(&(part / error));
        (error.abs() > ERROR_NOTED && explains).then_some(part)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let name = self.name();
        if self.medians.requests == 0.0 {
            warnings.push(format!("{name}: the command made no request; is its file cached, or on another device?"));
        }
        if self.predicted_s.median > 0.0
            && (self.medians.high_s - self.medians.low_s) / self.predicted_s.median > BAND_MAX
        {
            warnings.push(format!(
                "{name}: read it as a band from {:.4} to {:.4} s",
                self.medians.low_s, self.medians.high_s
            ));
        }
        if let Some(share) = self.measured_s.as_ref().and_then(|runs| late_share(runs, self.measured_late_s.as_ref())) {
            warnings
                .push(format!("{name}: the measured time is too long by up to {:.1} %: {LATE_SINCE}", share * 100.0));
        }
        if let Some(part) = self.part_of_program() {
            let change = if part > 0.0 { "less" } else { "more" };
            warnings.push(format!(
                "{name}: between its requests the program took {change} time on the faster device; a prediction can't \
                 know that. Processors of some hosts compute slower after longer waits"
            ));
        }
        if self.cut_freezes > 0 {
            warnings
                .push(format!("{name}: {} freezes were cut after 0.5 s, since requests took longer", self.cut_freezes));
        }
        warnings
    }
}

impl std::fmt::Display for FactorText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FactorText::Number(number) => write!(f, "{number}"),
            FactorText::Word(word) => f.write_str(word),
        }
    }
}

/// Message for a share of a run in which its device was late.
const LATE_SINCE: &str = "for so much of it the emulated device was late, since this host did not serve it in time";

/// The share of these runs in which their device was late, if it is worth saying.
fn late_share(runs: &Spread, late: Option<&Spread>) -> Option<f64> {
    let share = late?.median / runs.median;
    (share > LATE_NOTED).then_some(share)
}

fn range(spread: &Spread) -> String {
    format!("{:.4} to {:.4}", spread.min, spread.max)
}

/// Load of the host (1 min).
pub fn host_load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(prediction: Prediction) -> Observation {
        Observation {
            predictions: vec![prediction],
            freezes: true,
            other_requests: 2,
            interrupted_waits: 1,
            cut_freezes: 0,
            lost_events: 0,
            supervisor_cpu: std::time::Duration::from_millis(5),
        }
    }

    fn factors(text: &str) -> Factors {
        let factor: Factor = text.parse().unwrap();
        Factors { reads: factor, writes: factor }
    }

    fn result<const N: usize>(predicted: [u64; N]) -> WhatIf {
        let mut result = WhatIf::new("first-disk", Speed::AS_IT_IS, &["dd".into()], &[factors("2")]);
        for millis in predicted {
            let by_debt = Nanos::from_millis(millis);
            let prediction = Prediction { by_debt, low: by_debt, high: by_debt, requests: 7, ..Prediction::default() };
            result.elapsed_s.add(1.0);
            let observation = observation(prediction);
            result.add(
                0,
                &Observed {
                    prediction: &prediction,
                    observation: &observation,
                    elapsed_s: 1.0,
                    without_request_s: None,
                    request_time_s: None,
                },
            );
        }
        result
    }

    #[test]
    fn medians_and_errors_are_those_of_the_runs() {
        let mut result = result([500, 520, 400]);
        result.results[0].measured_s.get_or_insert_with(Spread::default).add(0.4);
        result.finish();
        let json = serde_json::to_value(&result).unwrap();
        assert_eq!(json["schema"], "chronodisk.whatif/1");
        let first = &json["results"][0];
        assert_eq!(first["speedup"], 2.0);
        assert_eq!(first["predicted_s"]["median"], 0.5);
        assert!((first["error"].as_f64().unwrap() - 0.25).abs() < 1e-9);
        assert_eq!(first["interrupted_calls"], 1.0);
        assert_eq!(json["limit_s"], serde_json::Value::Null);
        assert!(result.render().contains("error +25.00 %"), "{}", result.render());
        assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    }

    #[test]
    fn runs_whose_device_was_late_say_so() {
        let with = |late: f64, measured_late: f64| {
            let mut result = result([500, 500, 500]);
            result.late_s.get_or_insert_with(Spread::default).add(late);
            result.results[0].measured_s.get_or_insert_with(Spread::default).add(0.5);
            result.results[0].measured_late_s.get_or_insert_with(Spread::default).add(measured_late);
            result.finish();
            result.warnings
        };
        assert_eq!(with(0.02, 0.01), Vec::<String>::new());
        let warnings = with(0.1, 0.02);
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].contains("R = 2: the measured time is too long by up to 4.0 %"), "{}", warnings[0]);
        assert!(warnings[1].contains("the undisturbed runs are too long by up to 10.0 %"), "{}", warnings[1]);
    }

    #[test]
    fn an_error_that_is_the_programs_says_so() {
        let with = |as_it_is: f64, on_twin: f64, measured: f64| {
            let mut result = result([500, 500, 500]);
            result.without_request_s.get_or_insert_with(Spread::default).add(as_it_is);
            result.results[0].measured_s.get_or_insert_with(Spread::default).add(measured);
            result.results[0].measured_without_request_s.get_or_insert_with(Spread::default).add(on_twin);
            result.finish();
            result
        };
        let less = with(0.2, 0.12, 0.4);
        assert!((less.results[0].error_without_request.unwrap() - 0.2).abs() < 1e-9);
        assert!(less.render().contains("error +25.00 % (+20.00 % in the time without requests)"), "{}", less.render());
        assert!(less.warnings.iter().any(|warning| warning.contains("took less time")), "{:?}", less.warnings);
        let more = with(0.1, 0.15, 0.54);
        assert!(more.warnings.iter().any(|warning| warning.contains("took more time")), "{:?}", more.warnings);
        // The device's part is the larger one, or there is hardly an error, or the device's part is the opposite.
        for fine in [with(0.2, 0.18, 0.4), with(0.2, 0.19, 0.49), with(0.4, 0.1, 0.52), with(0.4, 0.1, 0.45)] {
            assert!(fine.warnings.is_empty(), "{:?}", fine.warnings);
            assert!(!fine.render().contains("without requests"), "{}", fine.render());
        }
    }

    #[test]
    fn what_observing_takes_is_taken_off_a_program_that_was_not_frozen() {
        let mut result = result([500, 500, 500]);
        // A quarter longer than undisturbed.
        for (run, observed_s) in result.results[0].runs.iter_mut().zip([1.25, 1.1, 1.4]) {
            (run.observed_s, run.frozen_s) = (observed_s, 0.001);
        }
        result.finish();
        assert_eq!(result.results[0].predicted_s.values, [0.4; 3]);
        assert_eq!(result.results[0].medians.low_s, 0.4);
        // One that was frozen is left as it is.
        let mut result = self::result([500, 500, 500]);
        result.results[0].runs.iter_mut().for_each(|run| (run.observed_s, run.frozen_s) = (1.25, 0.25));
        result.finish();
        assert_eq!(result.results[0].predicted_s.median, 0.5);
    }

    #[test]
    fn what_observing_takes_between_requests_no_device_shortens() {
        // Undisturbed 1 s, with a request in the device for 0.55 s and in the kernel for 0.6 s. On a device twice as
        // fast 0.7 s. Observed, the program computes for 0.1 s more.
        let predicted = |observed_s, kernel_s, request_time_s: Option<f64>, predicted_ms| {
            let mut result = result([predicted_ms; 3]);
            result.without_request_s.get_or_insert_with(Spread::default).add(0.45);
            result.request_time_s.get_or_insert_with(Spread::default).add(0.6);
            for run in &mut result.results[0].runs {
                (run.observed_s, run.device_busy_s) = (observed_s, kernel_s);
                run.observed_without_request_s = Some(observed_s - 0.55);
                run.observed_request_time_s = request_time_s;
            }
            result.finish();
            assert_eq!(result.results[0].predicted_s.median, result.results[0].medians.low_s);
            result.results[0].predicted_s.median
        };
        let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        close(predicted(1.1, 0.6, Some(0.6), 800), 0.7);
        // Also for 0.06 s more between the kernel's and the device's beginning and end of requests.
        close(predicted(1.16, 0.66, Some(0.66), 830), 0.7);
        // Requests overlapped more than in the undisturbed runs. The device has had them no longer.
        close(predicted(1.1, 0.55, Some(0.8), 825), 0.725);
        // Never a time below zero.
        close(predicted(1.6, 0.6, Some(0.6), 100), 0.0);
        // A disk of this host.
        close(predicted(1.25, 0.6, None, 800), 0.64);
    }

    #[test]
    fn a_plot_has_the_bands_and_what_was_measured() {
        let mut result = result([500, 500, 500]);
        result.results[0].measured_s.get_or_insert_with(Spread::default).add(0.4);
        result.finish();
        let expected = [
            ("predicted".to_owned(), vec![(2.0, 0.5, Some([0.5, 0.5]))]),
            ("measured".to_owned(), vec![(2.0, 0.4, Some([0.4, 0.4]))]),
            ("as it is".to_owned(), vec![(1.0, 1.0, Some([1.0, 1.0]))]),
        ];
        assert_eq!(result.curves(), expected);
    }

    #[test]
    fn a_figure_that_should_not_be_believed_says_so() {
        let mut result = result([500, 500, 500]);
        result.elapsed_s.add(2.0);
        result.results[0].runs.iter_mut().for_each(|run| (run.low_s, run.requests) = (0.1, 0.0));
        result.finish();
        let all = result.warnings.join("\n");
        for expected in ["no request", "read it as a band", "differ by 100 %"] {
            assert!(all.contains(expected), "{all}");
        }
        let lost = Observation { lost_events: 3, ..observation(Prediction::default()) };
        assert!(expect_believable(&lost).unwrap().contains("3 events"));
    }
}
