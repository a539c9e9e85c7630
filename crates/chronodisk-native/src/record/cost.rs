//! Cost of a stop on this host at present, measured with a process that only makes calls without effect.

use std::time::{Duration, Instant};

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::StopCosts;

use super::cpu::CpuClock;
use super::ptrace::{self, Does, NotBegun, Resume, Stop};
use super::{failures, filter};
use crate::error::NativeError;

/// Costs of a call at which a task is stopped.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Elapsed time per call.
    pub per_call: Duration,
    /// CPU time per stop.
    pub stops: StopCosts,
}

const CALLS: u32 = 400;

/// Measures the cost of stops, which also shows whether the host permits tracing.
pub fn measure() -> Result<Costs, NativeError> {
    let forked = ptrace::fork(&Does::Calls(CALLS), &filter::program()).map_err(failures::no_process)?;
    let traced = forked.trace().map_err(failures::forbidden)?;
    let cpu = CpuClock::default();
    let (mut periods, mut outside, mut inside) = (Vec::new(), Vec::new(), Vec::new());
    let (mut entered, mut before): (Option<Instant>, Option<Nanos>) = (None, None);
    while let Some((task, stop)) = ptrace::next().map_err(failures::lost_hold)? {
        let mut how = Resume::Freely;
        let now = cpu.read(task);
        let since = now.zip(before).map(|(now, before)| now.saturating_sub(before));
        match stop {
            Stop::Entry { .. } => {
                outside.extend(since);
                let instant = Instant::now();
                periods.extend(entered.replace(instant).map(|entered| instant - entered));
                (how, before) = (Resume::ToReturn, now);
            }
            Stop::Return(_) => {
                inside.extend(since);
                before = now;
            }
            Stop::Gone(_) => continue,
            _ => {}
        }
        ptrace::resume(task, how, 0).map_err(failures::lost_hold)?;
    }
    if let Some(NotBegun::Filter(source) | NotBegun::Program(source)) = traced.not_begun() {
        return Err(failures::no_filter(&source));
    }
    let stops = StopCosts { outside: median(outside), inside: median(inside) };
    Ok(Costs { per_call: median(periods), stops })
}

/// The loop itself, a few dozen nanoseconds, counts as part of the cost.
fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
