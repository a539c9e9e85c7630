//! Runs side by side.

use serde::{Deserialize, Serialize};

use crate::differences::differences;
use crate::render::decimals_of;
use crate::schema::to_json;
use crate::statistics::Estimate;
use crate::summary::ratio;
use crate::table::{Align, Table};
use crate::{Judgement, RepResult, RunResult};

/// Name and version of [`Comparison`]'s form.
pub const COMPARISON_SCHEMA: &str = "chronodisk.compare/1";

/// Compares runs; the first is the baseline. Differences are paired: each repetition with the baseline's of the same
/// seed, so that both had the same random draws. Without known seeds, repetition i is paired with repetition i.
#[must_use]
pub fn compare(runs: &[RunResult]) -> Comparison {
    let mut notes = Vec::new();
    let Some(baseline) = runs.first() else {
        return Comparison {
            schema: COMPARISON_SCHEMA.into(),
            rows: Vec::new(),
            notes: vec!["no runs".into()],
            judgements: vec![],
        };
    };
    for run in runs {
        note_oddities(baseline, run, &mut notes);
    }
    let rows = runs.iter().map(|run| ComparisonRow::new(baseline, run)).collect();
    Comparison { schema: COMPARISON_SCHEMA.into(), rows, notes, judgements: Vec::new() }
}

/// The result of [`compare`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`].
    pub schema: String,
    /// One per run, in the order given; the first is the baseline.
    pub rows: Vec<ComparisonRow>,
    /// Differences that make the runs less comparable.
    pub notes: Vec<String>,
    /// Whether the runs are worse than they may be, by the conditions that were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judgements: Vec<Judgement>,
}

/// A run in a comparison. Means are over its repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparisonRow {
    /// The run.
    pub run_id: String,
    /// Profile of the run's device.
    pub device: String,
    /// Run time of the program in the guest's clock, in seconds.
    pub run_time_s: Option<Estimate>,
    /// Run time minus the baseline's, paired, in seconds.
    pub difference_s: Option<Estimate>,
    /// This difference in per cent of the baseline's mean run time.
    #[serde(default)]
    pub difference_percent: Option<Estimate>,
    /// Mean run time of the paired repetitions over the baseline's.
    pub ratio: Option<f64>,
    /// Requests during the program's run.
    pub requests: Option<Estimate>,
    /// Mean service time in microseconds.
    pub service_time_mean_us: Option<Estimate>,
    /// 99th percentile of service time in microseconds.
    pub service_time_p99_us: Option<Estimate>,
    /// Share of the run in which the device was busy, 0 to 1.
    pub utilisation: Option<Estimate>,
    /// Time of a repetition on the host, in seconds.
    pub host_time_s: Option<Estimate>,
}

impl ComparisonRow {
    fn new(baseline: &RunResult, run: &RunResult) -> Self {
        let estimate = |value: fn(&RepResult) -> f64| Estimate::of(&run.reps.iter().map(value).collect::<Vec<f64>>());
        let pairs: Vec<(f64, f64)> =
            pairs(baseline, run).into_iter().map(|(base, rep)| (run_time_s(base), run_time_s(rep))).collect();
        let differences: Vec<f64> = pairs.iter().map(|(base, rep)| rep - base).collect();
        let base_sum: f64 = pairs.iter().map(|(base, _)| base).sum();
        let run_sum: f64 = pairs.iter().map(|(_, rep)| rep).sum();
        ComparisonRow {
            run_id: run.run_id.clone(),
            device: run.device.profile.clone(),
            run_time_s: estimate(run_time_s),
            difference_s: Estimate::of(&differences),
            difference_percent: Estimate::of(&differences).map(|estimate| {
                let per_cent = |seconds: f64| ratio(100.0 * seconds * estimate.count as f64, base_sum);
                Estimate {
                    mean: per_cent(estimate.mean),
                    half_width_95: estimate.half_width_95.map(per_cent),
                    ..estimate
                }
            }),
            ratio: (base_sum > 0.0).then(|| ratio(run_sum, base_sum)),
            requests: estimate(|rep| rep.summary.requests as f64),
            service_time_mean_us: estimate(|rep| rep.summary.service_time_us.mean),
            service_time_p99_us: estimate(|rep| rep.summary.service_time_us.p99),
            utilisation: estimate(|rep| rep.summary.utilisation),
            host_time_s: estimate(|rep| rep.host_time_ns.as_secs_f64()),
        }
    }
}

impl Comparison {
    /// Formats the comparison as a table for people.
    #[must_use]
    pub fn render(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("run", Left),
            ("device", Left),
            ("reps", Right),
            ("run time s", Right),
            ("± 95 %", Right),
            ("difference s", Right),
            ("± 95 %", Right),
            ("ratio", Right),
            ("requests", Right),
            ("mean service µs", Right),
            ("p99 µs", Right),
            ("busy", Right),
        ]);
        // All rows have as many decimals as the shortest run needs.
        let run_times = self.rows.iter().filter_map(|row| row.run_time_s).map(|estimate| estimate.mean);
        let decimals_s = run_times.map(decimals_of).max().unwrap_or(3);
        for (index, row) in self.rows.iter().enumerate() {
            let mean = |estimate: Option<Estimate>, decimals: usize| {
                estimate.map_or("-".to_owned(), |estimate| format!("{:.decimals$}", estimate.mean))
            };
            let half_width = |estimate: Option<Estimate>| {
                let half_width = estimate.and_then(|estimate| estimate.half_width_95);
                half_width.map_or("-".to_owned(), |half_width| format!("{half_width:.decimals_s$}"))
            };
            // A baseline's difference from itself would only be noise to read.
            let difference = row.difference_s.filter(|_| index > 0);
            table.row([
                row.run_id.clone(),
                row.device.clone(),
                row.run_time_s.map_or(0, |estimate| estimate.count).to_string(),
                mean(row.run_time_s, decimals_s),
                half_width(row.run_time_s),
                difference.map_or("-".to_owned(), |estimate| format!("{:+.decimals_s$}", estimate.mean)),
                half_width(difference),
                row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                mean(row.requests, 0),
                mean(row.service_time_mean_us, 1),
                mean(row.service_time_p99_us, 1),
                row.utilisation.map_or("-".to_owned(), |share| format!("{:.1} %", share.mean * 100.0)),
            ]);
        }
        let mut text = table.render();
        if self.rows.len() > 1 {
            text.push_str("Differences and ratios are to the first run, repetition by repetition.\n");
        }
        for row in self.rows.iter().skip(1) {
            if let Some(Estimate { mean, half_width_95: Some(half_width), count }) = row.difference_percent {
                let id = &row.run_id;
                text.push_str(&format!("{id}: {mean:+.2} % ± {half_width:.2} % over {count} pairs\n"));
            }
        }
        if self.rows.iter().any(|row| row.run_time_s.is_some_and(|estimate| estimate.half_width_95.is_none())) {
            text.push_str("One repetition has no confidence interval.\n");
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        for Judgement { run_id, condition, failed, reason, .. } in &self.judgements {
            let verdict = if *failed { "FAILED" } else { "passed" };
            text.push_str(&format!("{verdict}: {run_id}: {condition}: {reason}\n"));
        }
        text
    }

    /// Formats the comparison as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

/// Pairs of a baseline's repetitions and the run's matching ones.
pub(crate) fn pairs<'a>(baseline: &'a RunResult, run: &'a RunResult) -> Vec<(&'a RepResult, &'a RepResult)> {
    let known = |run: &RunResult| run.reps.iter().all(|rep| rep.seed.is_some());
    if !known(baseline) || !known(run) {
        return baseline.reps.iter().zip(&run.reps).collect();
    }
    let partner = |base: &'a RepResult| run.reps.iter().find(|rep| rep.seed == base.seed).map(|rep| (base, rep));
    baseline.reps.iter().filter_map(partner).collect()
}

/// The clock on which equal runs take equal nanoseconds.
const EXACT: &str = "exact";

fn run_time_s(rep: &RepResult) -> f64 {
    rep.run_time_ns.as_secs_f64()
}

fn note_oddities(baseline: &RunResult, run: &RunResult, notes: &mut Vec<String>) {
    let id = &run.run_id;
    if run.reps.len() != baseline.reps.len() {
        let (reps, baseline_reps) = (run.reps.len(), baseline.reps.len());
        notes.push(format!("{id} has {reps} repetitions, the baseline {baseline_reps}; only pairs give differences"));
    }
    if pairs(baseline, run).is_empty() {
        notes.push(format!("{id} has no repetition with a seed of the baseline's; there is nothing to pair"));
    }
    for rep in run.reps.iter().filter(|rep| rep.exit_status != 0) {
        notes.push(format!("{id}: repetition {} ended with status {}", rep.index, rep.exit_status));
    }
    let differing = differences(run, baseline);
    if !differing.is_empty() {
        notes.push(format!("{id} and the baseline differ in: {}", differing.join(", ")));
    }
    let are_exact = run.clock.driver == EXACT && baseline.clock.driver == EXACT;
    if are_exact && run.surroundings.is_some() != baseline.surroundings.is_some() {
        let without = if run.surroundings.is_none() { id } else { &baseline.run_id };
        notes.push(format!("{without} does not say with which environment and packages it was run"));
    }
}
