//! Reasons why the run time of a replay is uncertain.

use chronodisk_sim::Nanos;

use super::super::record::{CallTrace, Think, TracerCost};
use super::{Action, Planner};

/// From this part of the gaps on, a tracer's cost is named. Other load of the host delays the tracer as well: 20,000
/// cached reads that were traced beside a compiler took 8 times as long in their replay as in the program.
const TRACER_PART: f64 = 0.2;
/// Share of sleeps in the run time above which a warning is given.
const SLEEPS_PART: f64 = 0.1;

impl Planner<'_> {
    pub(super) fn warnings(&self, trace: &CallTrace) -> Vec<String> {
        let mount = trace.header.mount.as_deref().unwrap_or_default();
        let unused = (!self.touches_device).then(|| format!("no call of the trace uses a file below {mount}"));
        let tracer = trace.header.tracer.and_then(|cost| self.of_tracer(cost));
        [unused, tracer, self.of_sleeps()].into_iter().flatten().collect()
    }

    /// The recorder's own time in the gaps between calls.
    fn of_tracer(&self, cost: TracerCost) -> Option<String> {
        let gaps: Vec<Nanos> = self.thinks.iter().filter_map(|think| gap(*think)).collect();
        let sum = |times: &mut dyn Iterator<Item = Nanos>| times.fold(Nanos::ZERO, Nanos::saturating_add);
        let all = sum(&mut gaps.iter().copied());
        let taken_off = sum(&mut gaps.iter().map(|&gap| gap.min(cost.estimate)));
        let part = taken_off.as_nanos() as f64 / all.as_nanos().max(1) as f64;
        let uncertain = sum(&mut gaps.iter().map(|&gap| gap.min(cost.high).saturating_sub(gap.min(cost.low))));
        (part >= TRACER_PART).then(|| {
            format!(
                "strace's own time is at least {:.0} % of the time between calls: {:.1} us of each are taken off, and \
                 the rest is CPU time and delays of strace by other load, uncertain by {:.0} ms or more; `chronodisk \
                 run --record-calls` records without them",
                part * 100.0,
                cost.estimate.as_nanos() as f64 / 1e3,
                uncertain.as_nanos() as f64 / 1e6
            )
        })
    }

    /// Sleeps keep their length on each device.
    fn of_sleeps(&self) -> Option<String> {
        let slept = |index: usize| {
            let sleeps = self.lives[index].steps.iter().filter_map(|step| match step.action {
                Action::Sleep(time) => Some(time),
                _ => None,
            });
            sleeps.fold(Nanos::ZERO, Nanos::saturating_add)
        };
        let most = (0..self.lives.len()).map(slept).max()?;
        let first = self.records.first()?.entry;
        let end = self.records.iter().filter_map(|record| record.exit).max()?;
        let run = end.saturating_sub(first);
        let part = most.as_nanos() as f64 / run.as_nanos().max(1) as f64;
        (part >= SLEEPS_PART && most > Nanos::ZERO).then(|| {
            format!(
                "a task sleeps for {:.3} s of the {:.3} s of the trace: sleeps keep their length and number, but a \
                 program that retries or is ended after a time may behave otherwise on another device",
                most.as_nanos() as f64 / 1e9,
                run.as_nanos() as f64 / 1e9
            )
        })
    }
}

fn gap(think: Think) -> Option<Nanos> {
    match think {
        Think::Gap(time) => Some(time),
        Think::Cpu(_) => None,
    }
}
