//! Replays of workloads that are drawn from a trace, and the statistics over them.

use std::path::PathBuf;
use std::sync::Arc;

use chronodisk_guest::RunOptions;
use chronodisk_report::{BootstrapResult, BootstrapStatistic, RepResult, RunResult};
use chronodisk_sim::Nanos;
use chronodisk_trace::bootstrap::{Bootstrap, caveats};
use chronodisk_trace::calls::{CallTrace, Draw, Groups, Plan, compose, draw, plan};

use crate::failure::Failure;

/// A trace whose groups are drawn with replacement.
pub struct Draws {
    /// The trace's file, for messages.
    pub file: PathBuf,
    /// The trace.
    pub trace: CallTrace,
    /// Groups of the trace.
    pub groups: Groups,
    /// The plan of the trace itself.
    pub plan: Arc<Plan>,
    /// Seeds the draws.
    pub seed: u64,
    /// Each copy of a group begins later by a random time below this.
    pub jitter: Nanos,
    /// Draws (B).
    pub count: u32,
    /// Whether the trace is replayed without each of its groups, too.
    pub jackknife: bool,
}

/// Figures of a run: the name with the unit, and the value.
type Figure = (&'static str, fn(&RepResult) -> f64);

const FIGURES: [Figure; 7] = [
    ("run_time_s", |rep| rep.run_time_ns.as_secs_f64()),
    ("requests", |rep| rep.summary.requests as f64),
    ("throughput_mb_per_s", |rep| rep.summary.mb_per_s),
    ("service_time_mean_us", |rep| rep.summary.service_time_us.mean),
    ("service_time_p50_us", |rep| rep.summary.service_time_us.p50),
    ("service_time_p90_us", |rep| rep.summary.service_time_us.p90),
    ("service_time_p99_us", |rep| rep.summary.service_time_us.p99),
];
/// Name of the figure that is a percentile of the tail.
const TAIL: &str = "service_time_p99_us";

impl Draws {
    /// Number of replays: the trace, the draws, and with the jackknife one without each group.
    pub fn replays(&self) -> u32 {
        let left_out = if self.jackknife { self.groups.groups.len() as u32 } else { 0 };
        1 + self.count + left_out
    }

    /// Sets a repetition's replay. All repetitions have one seed: they differ in their workloads only.
    pub fn prepare(&self, index: u32, options: &mut RunOptions) -> Result<(), Failure> {
        options.seed = options.seed.wrapping_sub(u64::from(index));
        if index == 0 {
            return Ok(());
        }
        let count = self.groups.groups.len();
        let failed = |message: String| Failure::usage(format!("{}: replay {index}: {message}", self.file.display()));
        let drawn = match (index - 1).checked_sub(self.count) {
            None => {
                let number = u64::from(index - 1);
                draw(&self.trace, &self.groups, Draw { seed: self.seed, number, jitter: self.jitter })
            }
            Some(left_out) => {
                let copies: Vec<u32> = (0..count).map(|group| u32::from(group != left_out as usize)).collect();
                compose(&self.trace, &self.groups, &copies)
            }
        };
        let drawn = drawn.map_err(failed)?;
        let plan = plan(&drawn).map_err(|error| failed(error.to_string()))?;
        if let Some(replay) = &mut options.replay {
            replay.plan = Arc::new(plan);
        }
        Ok(())
    }

    /// Adds the statistics over all replays to a result that has them all.
    pub fn aggregate(&self, result: &mut RunResult) {
        if result.reps.len() != self.replays() as usize {
            return;
        }
        let elements = self.groups.groups.len() as u64;
        let bootstrap = Bootstrap { draws: self.count, ..Bootstrap::new(self.seed) };
        let (drawn, left_out) = result.reps[1..].split_at(self.count as usize);
        let statistics = FIGURES.iter().map(|(name, figure)| {
            let values: Vec<f64> = drawn.iter().map(figure).collect();
            let left_out: Vec<f64> = left_out.iter().map(figure).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let value = figure(&result.reps[0]);
            let found = bootstrap.estimate_of(value, elements, values, &left_out);
            let ends = |interval: chronodisk_trace::bootstrap::Interval| [interval.low, interval.high];
            BootstrapStatistic {
                name: (*name).to_owned(),
                value,
                mean,
                deviation: (squares / f64::from(self.count.max(2) - 1)).sqrt(),
                percentile_95: found.percentile.map(ends),
                bca_95: found.bca.filter(|_| self.jackknife).map(ends),
            }
        });
        let statistics = statistics.collect();
        let mut caveats: Vec<String> =
            caveats(elements, None).iter().map(|caveat| format!("bootstrap: {caveat}")).collect();
        if elements > 1 {
            caveats.push(format!("bootstrap: {TAIL}: few values are beyond p99: its intervals are too narrow"));
        }
        if self.count < DRAWS_FEW {
            caveats.push(format!(
                "bootstrap: fewer than {DRAWS_FEW} draws: the ends of 95 % intervals are the extremes of the draws"
            ));
        }
        if self.jackknife && self.jitter > Nanos::ZERO {
            caveats.push("bootstrap: BCa intervals treat the effect of --jitter as a bias of the draws".to_owned());
        }
        result.warnings.extend(caveats);
        let bootstrap = BootstrapResult {
            seed: self.seed,
            jitter_ns: self.jitter,
            elements,
            draws: self.count,
            jackknife: self.jackknife,
            statistics,
        };
        result.replay.get_or_insert_default().bootstrap = Some(bootstrap);
    }
}

/// With fewer draws, the outer percentiles are the extreme draws.
const DRAWS_FEW: u32 = 39;
