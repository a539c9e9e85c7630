//! The delay added to an operation: constant, or drawn for each request from a distribution.
//!
//! ```toml
//! [limits.read-delay]
//! distribution = "constant"      # time = "2 ms"
//! distribution = "normal"        # mean = "5 ms", deviation = "1 ms"; a negative value counts as zero
//! distribution = "lognormal"     # median = "2 ms", sigma = 0.5 (of the natural logarithm)
//! distribution = "pareto"        # minimum = "1 ms", shape = 2.5
//! distribution = "histogram"     # bins = [[900, "1 ms"], [100, "20 ms"]]
//! ```
//!
//! A bin is a weight and an upper bound; its values are uniform from the previous bin's bound, the first from zero on.
//! No delay is longer than an hour. Normal values are drawn by the method of Box and Muller ("A Note on the Generation
//! of Random Normal Deviates", 1958), Pareto values by inversion of the distribution function.

use chronodisk_sim::{Nanos, RandomStream};

use crate::fields::{Fields, ProfileError};
use crate::quantity::Quantity;

/// Most bins of a histogram.
pub(super) const MOST_BINS: usize = 4_096;

/// A delay's distribution.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Delay {
    Constant(Nanos),
    Normal { mean: Nanos, deviation: Nanos },
    Lognormal { median: Nanos, sigma: f64 },
    Pareto { minimum: Nanos, shape: f64 },
    Histogram(Vec<Bin>),
}

/// A part of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bin {
    /// Weights up to and including this bin.
    cumulative: u64,
    /// The longest delay in it.
    up_to: Nanos,
}

#[derive(Clone, Copy)]
enum Name {
    Constant,
    Normal,
    Lognormal,
    Pareto,
    Histogram,
}

const NAMES: &[(&str, Name)] = &[
    ("constant", Name::Constant),
    ("normal", Name::Normal),
    ("lognormal", Name::Lognormal),
    ("pareto", Name::Pareto),
    ("histogram", Name::Histogram),
];

impl Delay {
    /// The delay in the table `key`; `None` if it is absent.
    pub(super) fn parse(fields: &mut Fields<'_>, key: &'static str) -> Result<Option<Self>, ProfileError> {
        let Some(mut table) = fields.optional_table(key)? else { return Ok(None) };
        let delay = match table.choice("distribution", NAMES)? {
            Name::Constant => Delay::Constant(table.positive("time")?),
            Name::Normal => Delay::Normal { mean: table.positive("mean")?, deviation: table.positive("deviation")? },
            Name::Lognormal => Delay::Lognormal {
                median: table.positive("median")?,
                sigma: number(&mut table, "sigma", 0.001..=10.0)?,
            },
            Name::Pareto => {
                Delay::Pareto { minimum: table.positive("minimum")?, shape: number(&mut table, "shape", 0.1..=100.0)? }
            }
            Name::Histogram => Delay::Histogram(bins(&mut table)?),
        };
        table.finish()?;
        Ok(Some(delay))
    }

    /// A delay for one request.
    pub(super) fn draw(&self, stream: &mut RandomStream) -> Nanos {
        match self {
            Delay::Constant(time) => *time,
            Delay::Normal { mean, deviation } => {
                in_nanos(mean.as_nanos() as f64 + deviation.as_nanos() as f64 * standard_normal(stream))
            }
            Delay::Lognormal { median, sigma } => {
                in_nanos(median.as_nanos() as f64 * (sigma * standard_normal(stream)).exp())
            }
            Delay::Pareto { minimum, shape } => {
                in_nanos(minimum.as_nanos() as f64 * (1.0 - stream.unit()).powf(-1.0 / shape))
            }
            Delay::Histogram(bins) => {
                let drawn = stream.below(bins.last().map_or(1, |bin| bin.cumulative));
                let index = bins.partition_point(|bin| bin.cumulative <= drawn);
                let from = index.checked_sub(1).map_or(Nanos::ZERO, |before| bins[before].up_to);
                let width = bins[index].up_to.saturating_sub(from).as_nanos();
                from + Nanos::from_nanos(1 + stream.below(width))
            }
        }
    }
}

/// A number in `range`, in steps of a millionth.
fn number(
    table: &mut Fields<'_>,
    key: &'static str,
    range: std::ops::RangeInclusive<f64>,
) -> Result<f64, ProfileError> {
    let expected = format!("a number from {} to {}", range.start(), range.end());
    let millionths = table.optional_millionths(key)?;
    table.amend(|asked| asked.is_required = true);
    match millionths.map(|millionths| millionths as f64 / 1e6) {
        None => Err(table.error(format!("`{key}` is missing; expected {expected}"))),
        Some(value) if range.contains(&value) => Ok(value),
        Some(value) => Err(table.error_at(key, format!("{value}; expected {expected}"))),
    }
}

fn bins(table: &mut Fields<'_>) -> Result<Vec<Bin>, ProfileError> {
    let pairs: Vec<(u64, Nanos)> = table.quantity_pairs("bins", MOST_BINS)?;
    table.amend(|asked| asked.is_required = true);
    let mut bins: Vec<Bin> = Vec::with_capacity(pairs.len());
    let (mut cumulative, mut before) = (0u64, Nanos::ZERO);
    for (weight, up_to) in pairs {
        if up_to <= before {
            let problem = format!("the bound {} ns is not above the one before", up_to.as_nanos());
            return Err(table.error_at("bins", problem));
        }
        cumulative = cumulative
            .checked_add(weight)
            .ok_or_else(|| table.error_at("bins", "the weights add up to more than 2^64"))?;
        bins.push(Bin { cumulative, up_to });
        before = up_to;
    }
    match cumulative {
        0 => Err(table.error_at("bins", "no weight; expected an array such as [[900, \"1 ms\"], [100, \"20 ms\"]]")),
        _ => Ok(bins),
    }
}

/// A value of the standard normal distribution.
fn standard_normal(stream: &mut RandomStream) -> f64 {
    let radius = (-2.0 * (1.0 - stream.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * stream.unit()).cos()
}

/// From zero to the longest duration.
fn in_nanos(value: f64) -> Nanos {
    Nanos::from_nanos(value.round().clamp(0.0, Nanos::LARGEST as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::with_fields;

    fn delay(text: &str) -> Result<Delay, String> {
        let text = format!("[d]\n{text}\n");
        let read = with_fields(&text, |fields| Delay::parse(fields, "d"));
        read.map(Option::unwrap).map_err(|error| error.to_string())
    }

    /// Mean and the quantiles 0.5 and 0.99 of many draws, in microseconds.
    fn drawn(text: &str) -> [f64; 3] {
        let (delay, mut stream) = (delay(text).unwrap(), RandomStream::new(1, "test", text));
        let mut values: Vec<u64> = (0..100_000).map(|_| delay.draw(&mut stream).as_nanos()).collect();
        values.sort_unstable();
        let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
        [mean, values[50_000] as f64, values[99_000] as f64].map(|nanos| nanos / 1_000.0)
    }

    fn near(found: [f64; 3], expected: [f64; 3]) {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
        }
    }

    #[test]
    fn the_distributions_are_those_of_the_books() {
        near(drawn("distribution = \"constant\"\ntime = \"2 ms\""), [2_000.0; 3]);
        near(
            drawn("distribution = \"normal\"\nmean = \"5 ms\"\ndeviation = \"1 ms\""),
            [5_000.0, 5_000.0, 5_000.0 + 2_326.3],
        );
        // Mean exp(sigma² / 2), 0.99-quantile exp(2.3263 sigma) times the median.
        near(
            drawn("distribution = \"lognormal\"\nmedian = \"2 ms\"\nsigma = 0.5"),
            [2_000.0 * 0.125_f64.exp(), 2_000.0, 2_000.0 * (2.3263 * 0.5_f64).exp()],
        );
        // Mean a / (a - 1), quantile q at (1 - q)^(-1 / a).
        near(
            drawn("distribution = \"pareto\"\nminimum = \"1 ms\"\nshape = 3"),
            [1_500.0, 1_000.0 * 2.0_f64.powf(1.0 / 3.0), 1_000.0 * 100.0_f64.powf(1.0 / 3.0)],
        );
        near(
            drawn("distribution = \"histogram\"\nbins = [[900, \"1 ms\"], [0, \"10 ms\"], [100, \"20 ms\"]]"),
            [0.9 * 500.0 + 0.1 * 15_000.0, 1_000.0 * 5.0 / 9.0, 19_000.0],
        );
    }

    #[test]
    fn negative_draws_are_no_delay() {
        let mut stream = RandomStream::new(1, "test", "negative");
        let wide = delay("distribution = \"normal\"\nmean = \"1 ms\"\ndeviation = \"10 ms\"").unwrap();
        assert!((0..100).any(|_| wide.draw(&mut stream) == Nanos::ZERO));
    }

    #[test]
    fn wrong_tables_are_refused() {
        for (text, expected) in [
            ("distribution = \"normal\"\nmean = \"1 ms\"", "`deviation` is missing"),
            ("distribution = \"gamma\"", "one of \"constant\", \"normal\""),
            (
                "distribution = \"lognormal\"\nmedian = \"1 ms\"",
                "`sigma` is missing; expected a number from 0.001 to 10",
            ),
            ("distribution = \"pareto\"\nminimum = \"1 ms\"\nshape = 0.01", "0.01; expected a number from 0.1 to 100"),
            ("distribution = \"histogram\"\nbins = [[1, \"2 ms\"], [1, \"1 ms\"]]", "is not above the one before"),
            ("distribution = \"histogram\"\nbins = [[0, \"2 ms\"]]", "no weight"),
            ("distribution = \"histogram\"", "no weight"),
            ("distribution = \"constant\"\ntime = \"0 ms\"", "zero"),
            ("distribution = \"constant\"\ntime = \"1 ms\"\nmean = \"1 ms\"", "unknown key `mean`"),
        ] {
            let error = delay(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
