//! Bootstrap intervals.

use chronodisk_trace::bootstrap::{Bootstrap, Estimate, Sample, caveats, copies};
use pyo3::prelude::*;

use crate::errors;

/// Value, N, B, percentile interval, BCa interval, warnings.
type Answer = (f64, u64, u32, Option<(f64, f64)>, Option<(f64, f64)>, Vec<String>);

fn answer(estimate: &Estimate, share: Option<f64>) -> Answer {
    let ends = |interval: Option<chronodisk_trace::bootstrap::Interval>| interval.map(|ends| (ends.low, ends.high));
    let warnings = caveats(estimate.elements, share).iter().map(ToString::to_string).collect();
    (estimate.value, estimate.elements, estimate.draws, ends(estimate.percentile), ends(estimate.bca), warnings)
}

fn bootstrap_with(py: Python<'_>, draws: u32, level: f64, seed: u64) -> PyResult<Bootstrap> {
    if draws == 0 || !(level > 0.0 && level < 1.0) {
        return Err(errors::usage(py, format!("draws={draws}, level={level}; expected at least 1, and a share")));
    }
    Ok(Bootstrap { draws, level, seed })
}

/// Of the mean (`share` is `None`) or of a percentile of values in blocks.
#[pyfunction]
#[pyo3(signature = (blocks, share, draws, level, seed))]
pub(crate) fn bootstrap(
    py: Python<'_>,
    blocks: Vec<Vec<f64>>,
    share: Option<f64>,
    draws: u32,
    level: f64,
    seed: u64,
) -> PyResult<Answer> {
    let bootstrap = bootstrap_with(py, draws, level, seed)?;
    let estimate = py.detach(|| {
        let sample = Sample::of_blocks(blocks.iter().map(Vec::as_slice));
        bootstrap.estimate(sample.count(), |copies| match share {
            None => sample.mean(copies),
            Some(share) => sample.quantile(copies, share),
        })
    });
    Ok(answer(&estimate, share))
}

/// How often draw `number` has each of `count` elements.
#[pyfunction]
pub(crate) fn bootstrap_copies(py: Python<'_>, count: usize, seed: u64, number: u64) -> Vec<u32> {
    py.detach(|| copies(count, seed, number))
}

/// Of a statistic that was computed in Python: of the sample, of each draw, and without each element.
#[pyfunction]
#[pyo3(signature = (value, elements, replicates, left_out, level, seed))]
pub(crate) fn bootstrap_of(
    py: Python<'_>,
    value: f64,
    elements: u64,
    replicates: Vec<f64>,
    left_out: Vec<f64>,
    level: f64,
    seed: u64,
) -> PyResult<Answer> {
    let bootstrap = bootstrap_with(py, replicates.len().max(1) as u32, level, seed)?;
    Ok(answer(&bootstrap.estimate_of(value, elements, replicates, &left_out), None))
}
