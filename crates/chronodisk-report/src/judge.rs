//! Whether runs became worse than they may.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::compare::pairs;
use crate::statistics::Estimate;
use crate::{Comparison, RepResult, RunResult};

/// A figure of a repetition that can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    RunTime,
    Requests,
    ServiceTimeMean,
    ServiceTimeP99,
    BytesWritten,
    Flushes,
}

impl Metric {
    const ALL: [(&'static str, Metric); 6] = [
        ("run_time", Metric::RunTime),
        ("requests", Metric::Requests),
        ("service_time_mean", Metric::ServiceTimeMean),
        ("service_time_p99", Metric::ServiceTimeP99),
        ("bytes_written", Metric::BytesWritten),
        ("flushes", Metric::Flushes),
    ];

    fn name(self) -> &'static str {
        Metric::ALL.iter().find(|(_, metric)| *metric == self).map_or("", |(name, _)| name)
    }

    fn of(self, rep: &RepResult) -> f64 {
        let summary = &rep.summary;
        let of_op = |name: &str| summary.by_op.get(name);
        match self {
            Metric::RunTime => rep.run_time_ns.as_secs_f64(),
            Metric::Requests => summary.requests as f64,
            Metric::ServiceTimeMean => summary.service_time_us.mean,
            Metric::ServiceTimeP99 => summary.service_time_us.p99,
            Metric::BytesWritten => of_op("write").map_or(0.0, |writes| writes.bytes as f64),
            Metric::Flushes => of_op("flush").map_or(0.0, |flushes| flushes.requests as f64),
        }
    }
}

/// A condition under which a comparison fails, such as `run_time > +5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    metric: Metric,
    /// Above the limit, or below it.
    above: bool,
    per_cent: f64,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected METRIC > +N% or METRIC < -N%, such as 'run_time > +5%'";
        let above = text.contains('>');
        let (name, limit) = text.split_once(['>', '<']).ok_or(expected)?;
        let (name, limit) = (name.trim(), limit.trim());
        let found = Metric::ALL.iter().find(|(known, _)| *known == name);
        let names = || Metric::ALL.map(|(name, _)| name).join(", ");
        let metric =
            found.map(|(_, metric)| *metric).ok_or_else(|| format!("no metric '{name}'; there are {}", names()))?;
        let number = limit.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let per_cent = number.filter(|number| number.is_finite()).ok_or(expected)?;
        Ok(Condition { metric, above, per_cent })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { metric, above, per_cent } = self;
        write!(f, "{} {} {per_cent:+}%", metric.name(), if *above { '>' } else { '<' })
    }
}

/// Result of a condition on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The run.
    pub run_id: String,
    /// The condition under which the run fails.
    pub condition: String,
    /// Paired difference to the baseline in per cent of the baseline's mean.
    pub difference_percent: Option<Estimate>,
    /// Whether the run fails.
    pub failed: bool,
    /// Why, or why not.
    pub reason: String,
}

/// Judges every run but the first, the baseline, by every condition.
///
/// The 95 % interval's end nearer to the limit decides: a run fails only if the whole interval is beyond. A single
/// repetition has no interval, and its difference decides. A run whose program failed, or that has no repetition to be
/// paired with one of the baseline, fails.
#[must_use]
pub fn judge(runs: &[RunResult], conditions: &[Condition]) -> Vec<Judgement> {
    let Some((baseline, others)) = runs.split_first() else { return Vec::new() };
    let each = others.iter().flat_map(|run| conditions.iter().map(move |condition| (run, condition)));
    each.map(|(run, condition)| judge_one(baseline, run, condition)).collect()
}

fn judge_one(baseline: &RunResult, run: &RunResult, condition: &Condition) -> Judgement {
    let difference = difference_percent(baseline, run, condition.metric);
    let (failed, reason) = verdict(run, condition, difference);
    Judgement {
        run_id: run.run_id.clone(),
        condition: condition.to_string(),
        difference_percent: difference.ok(),
        failed,
        reason,
    }
}

fn verdict(run: &RunResult, condition: &Condition, difference: Result<Estimate, &str>) -> (bool, String) {
    if let Some(rep) = run.reps.iter().find(|rep| rep.exit_status != 0) {
        return (true, format!("the program ended with status {} in repetition {}", rep.exit_status, rep.index));
    }
    let estimate = match difference {
        Ok(estimate) => estimate,
        Err(why) => return (true, why.to_owned()),
    };
    let half = estimate.half_width_95.unwrap_or(0.0);
    let (low, high) = (estimate.mean - half, estimate.mean + half);
    let failed = if condition.above { low > condition.per_cent } else { high < condition.per_cent };
    let name = condition.metric.name();
    let interval = match estimate.half_width_95 {
        Some(_) => format!("95 % interval {low:+.2} % to {high:+.2} %, {} pairs", estimate.count),
        None => "one repetition, no interval".to_owned(),
    };
    (failed, format!("{name} {:+.2} % ({interval})", estimate.mean))
}

fn difference_percent(baseline: &RunResult, run: &RunResult, metric: Metric) -> Result<Estimate, &'static str> {
    let pairs: Vec<(f64, f64)> =
        pairs(baseline, run).into_iter().map(|(base, rep)| (metric.of(base), metric.of(rep))).collect();
    let base = pairs.iter().map(|(base, _)| base).sum::<f64>() / pairs.len() as f64;
    let differences: Vec<f64> = pairs.iter().map(|(base, rep)| rep - base).collect();
    let estimate = Estimate::of(&differences).ok_or("no repetition has a seed of the baseline's")?;
    match base {
        0.0 if differences.iter().all(|difference| *difference == 0.0) => Ok(estimate),
        0.0 => Err("the baseline's value is zero, and this one is not"),
        _ => {
            let per_cent = |value: f64| 100.0 * value / base;
            Ok(Estimate {
                mean: per_cent(estimate.mean),
                half_width_95: estimate.half_width_95.map(per_cent),
                ..estimate
            })
        }
    }
}

/// A comparison with its judgements as JUnit's XML, one test case per run and condition.
#[must_use]
pub fn render_junit(comparison: &Comparison) -> String {
    let judgements = &comparison.judgements;
    let failures = judgements.iter().filter(|judgement| judgement.failed).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"chronodisk compare\" \
         tests=\"{}\" failures=\"{failures}\" errors=\"0\">\n",
        judgements.len()
    );
    for Judgement { run_id, condition, failed, reason, .. } in judgements {
        let [run_id, condition, reason] = [run_id, condition, reason].map(|text| crate::html::escaped(text));
        text.push_str(&format!("<testcase classname=\"{run_id}\" name=\"{condition}\">"));
        text.push_str(&if *failed {
            format!("<failure message=\"{reason}\"/></testcase>\n")
        } else {
            format!("<system-out>{reason}</system-out></testcase>\n")
        });
    }
    let notes = crate::html::escaped(&comparison.notes.join("\n"));
    text.push_str(&format!("<system-out>{notes}</system-out>\n</testsuite>\n</testsuites>\n"));
    text
}

/// A comparison with its judgements as a table of GitHub's Markdown.
#[must_use]
pub fn render_markdown(comparison: &Comparison) -> String {
    let judgements = &comparison.judgements;
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let estimate = |estimate: Option<Estimate>, decimals: usize| match estimate {
        None => "-".to_owned(),
        Some(Estimate { mean, half_width_95: Some(half), .. }) => format!("{mean:.decimals$} ± {half:.decimals$}"),
        Some(Estimate { mean, .. }) => format!("{mean:.decimals$}"),
    };
    let mut text =
        "| run | device | run time s | difference % | requests | p99 µs |\n|---|---|--:|--:|--:|--:|\n".to_owned();
    for (index, row) in comparison.rows.iter().enumerate() {
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            cell(&row.run_id),
            cell(&row.device),
            estimate(row.run_time_s, 3),
            estimate(row.difference_percent.filter(|_| index > 0), 2),
            estimate(row.requests, 0),
            estimate(row.service_time_p99_us, 1),
        ));
    }
    text.push('\n');
    for Judgement { run_id, condition, failed, reason, .. } in judgements {
        let verdict = if *failed { "**failed**" } else { "passed" };
        text.push_str(&format!("- {}, `{condition}`: {verdict}, {reason}\n", cell(run_id)));
    }
    text.extend(comparison.notes.iter().map(|note| format!("- note: {}\n", cell(note))));
    text
}
