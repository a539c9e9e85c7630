//! How well a model imitates a measured drive.
//!
//! The score is the *demerit* of Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling" (IEEE Computer 27(3),
//! 1994): the root mean square of the horizontal distance between the cumulative distributions of measured and
//! simulated service times. It says how well the distribution is met; the *correlation* (Pearson's) says how well each
//! request is.

use std::path::Path;

use chronodisk_sim::{Nanos, Op};
use serde::{Deserialize, Serialize};

use crate::ReportError;
use crate::schema::to_json;
use crate::table::{Align, Table};

/// Name and version of [`Fidelity`]'s form.
pub const FIDELITY_SCHEMA: &str = "chronodisk.validate/1";

/// Evenly spaced fractions at which the distributions are compared.
const FRACTIONS: usize = 10_000;

/// A request that a drive and a model served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedTwice {
    /// The operation.
    pub op: Op,
    /// Response time of the drive.
    pub measured: Nanos,
    /// Response time of the model.
    pub simulated: Nanos,
}

/// A model beside a measured drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fidelity {
    /// [`FIDELITY_SCHEMA`].
    pub schema: String,
    /// Name of the model's profile.
    pub device: String,
    /// The trace as the user named it.
    pub trace: String,
    /// All requests.
    #[serde(flatten)]
    pub all: Agreement,
    /// The reads, if there are any.
    pub reads: Option<Agreement>,
    /// The writes, if there are any.
    pub writes: Option<Agreement>,
}

/// Measured and simulated times of the same requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Number of requests.
    pub requests: u64,
    /// Root mean square of the horizontal distance between the two cumulative distributions at 10,000 evenly spaced
    /// fractions, in milliseconds.
    pub demerit_ms: f64,
    /// The demerit in per cent of the measured mean.
    pub demerit_percent: f64,
    /// Pearson's correlation of measured and simulated times; `None` if one of them never varies.
    pub correlation: Option<f64>,
    /// Mean of the measured times in milliseconds.
    pub mean_measured_ms: f64,
    /// Mean of the simulated times in milliseconds.
    pub mean_simulated_ms: f64,
    /// Some quantiles, ascending.
    pub quantiles: Vec<QuantilePair>,
}

/// A quantile of both distributions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantilePair {
    /// Share of the requests that took no longer, in per cent.
    pub percent: f64,
    /// Quantile of the measured times, in milliseconds.
    pub measured_ms: f64,
    /// Quantile of the simulated times, in milliseconds.
    pub simulated_ms: f64,
}

/// Quantiles that are told, in tenths of a per cent.
const QUANTILES: [u64; 11] = [10, 50, 100, 250, 500, 750, 900, 950, 990, 999, 1000];

impl Fidelity {
    /// Compares the requests of `trace` on `device`; `None` without requests.
    #[must_use]
    pub fn of(device: &str, trace: &str, served: &[ServedTwice]) -> Option<Fidelity> {
        let only = |op: Op| {
            let some: Vec<ServedTwice> = served.iter().filter(|request| request.op == op).copied().collect();
            Agreement::of(&some)
        };
        Some(Fidelity {
            schema: FIDELITY_SCHEMA.to_owned(),
            device: device.to_owned(),
            trace: trace.to_owned(),
            all: Agreement::of(served)?,
            reads: only(Op::Read),
            writes: only(Op::Write),
        })
    }

    /// Formats the report as tables for people.
    #[must_use]
    pub fn render(&self) -> String {
        use Align::{Left, Right};
        let columns = [
            ("", Left),
            ("requests", Right),
            ("measured mean ms", Right),
            ("simulated mean ms", Right),
            ("demerit ms", Right),
            ("demerit %", Right),
            ("correlation", Right),
        ];
        let mut table = Table::new(columns);
        let parts = [("all", Some(&self.all)), ("reads", self.reads.as_ref()), ("writes", self.writes.as_ref())];
        for (name, part) in parts {
            let Some(part) = part else { continue };
            table.row([
                name.to_owned(),
                part.requests.to_string(),
                format!("{:.3}", part.mean_measured_ms),
                format!("{:.3}", part.mean_simulated_ms),
                format!("{:.4}", part.demerit_ms),
                format!("{:.2}", part.demerit_percent),
                part.correlation.map_or("-".to_owned(), |correlation| format!("{correlation:.3}")),
            ]);
        }
        let mut quantiles = Table::new([("quantile %", Right), ("measured ms", Right), ("simulated ms", Right)]);
        for pair in &self.all.quantiles {
            let cell = |value: f64| format!("{value:.3}");
            quantiles.row([format!("{}", pair.percent), cell(pair.measured_ms), cell(pair.simulated_ms)]);
        }
        format!("{}\n{}", table.render(), quantiles.render())
    }

    /// Formats the report as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

impl Agreement {
    /// Summarises these requests; `None` if there are none.
    #[must_use]
    pub fn of(served: &[ServedTwice]) -> Option<Agreement> {
        if served.is_empty() {
            return None;
        }
        let sorted = |time: fn(&ServedTwice) -> Nanos| {
            let mut times: Vec<Nanos> = served.iter().map(time).collect();
            times.sort_unstable();
            times
        };
        let (measured, simulated) = (sorted(|request| request.measured), sorted(|request| request.simulated));
        let demerit_ms = demerit_ms(&measured, &simulated);
        let mean = |times: &[Nanos]| times.iter().map(|&time| ms(time)).sum::<f64>() / times.len() as f64;
        let mean_measured_ms = mean(&measured);
        let pair = |&tenths: &u64| QuantilePair {
            percent: tenths as f64 / 10.0,
            measured_ms: ms(quantile(&measured, tenths, 1_000)),
            simulated_ms: ms(quantile(&simulated, tenths, 1_000)),
        };
        Some(Agreement {
            requests: served.len() as u64,
            demerit_ms,
            demerit_percent: if mean_measured_ms > 0.0 { 100.0 * demerit_ms / mean_measured_ms } else { 0.0 },
            correlation: correlation(served),
            mean_measured_ms,
            mean_simulated_ms: mean(&simulated),
            quantiles: QUANTILES.iter().map(pair).collect(),
        })
    }
}

/// Draws both cumulative distributions into an SVG file, which is there whole or not at all.
///
/// # Errors
/// If there is nothing to draw, or the file can't be written.
pub fn plot_fidelity(path: &Path, fidelity: &Fidelity, served: &[ServedTwice]) -> Result<(), ReportError> {
    let measured: Vec<Nanos> = served.iter().map(|request| request.measured).collect();
    let simulated: Vec<Nanos> = served.iter().map(|request| request.simulated).collect();
    let labels = [format!("measured ({})", fidelity.trace), format!("simulated ({})", fidelity.device)];
    let title = format!(
        "{}: demerit {:.3} ms, {:.2} %",
        fidelity.device, fidelity.all.demerit_ms, fidelity.all.demerit_percent
    );
    crate::plot::plot_distributions(path, &title, &labels, &[&measured, &simulated])
}

/// The exact empirical quantile `number / of`: the smallest value that so many are not above; `sorted` is not empty.
fn quantile(sorted: &[Nanos], number: u64, of: u64) -> Nanos {
    let rank = (sorted.len() as u128 * u128::from(number)).div_ceil(u128::from(of));
    sorted[(rank.max(1) - 1) as usize]
}

/// Compared in the middle of each of the equal parts of the distributions.
fn demerit_ms(measured: &[Nanos], simulated: &[Nanos]) -> f64 {
    let parts = 2 * FRACTIONS as u64;
    let squares = (0..FRACTIONS as u64).map(|part| {
        let distance = ms(quantile(measured, 2 * part + 1, parts)) - ms(quantile(simulated, 2 * part + 1, parts));
        distance * distance
    });
    (squares.sum::<f64>() / FRACTIONS as f64).sqrt()
}

fn correlation(served: &[ServedTwice]) -> Option<f64> {
    let count = served.len() as f64;
    let mean = |time: fn(&ServedTwice) -> Nanos| served.iter().map(|request| ms(time(request))).sum::<f64>() / count;
    let (measured, simulated) = (mean(|request| request.measured), mean(|request| request.simulated));
    let (mut product, mut squares) = (0.0, (0.0, 0.0));
    for request in served {
        let (a, b) = (ms(request.measured) - measured, ms(request.simulated) - simulated);
        product += a * b;
        squares = (squares.0 + a * a, squares.1 + b * b);
    }
    let scale = (squares.0 * squares.1).sqrt();
    (scale > 0.0).then(|| product / scale)
}

fn ms(time: Nanos) -> f64 {
    time.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn served(pairs: &[(u64, u64)]) -> Vec<ServedTwice> {
        let times = |&(measured, simulated): &(u64, u64)| ServedTwice {
            op: if measured.is_multiple_of(2) { Op::Read } else { Op::Write },
            measured: Nanos::from_micros(measured),
            simulated: Nanos::from_micros(simulated),
        };
        pairs.iter().map(times).collect()
    }

    #[test]
    fn a_constant_shift_is_the_demerit() {
        let agreement = Agreement::of(&served(&[(1_000, 1_250), (3_000, 3_250), (2_000, 2_250)])).unwrap();
        assert!((agreement.demerit_ms - 0.25).abs() < 1e-9, "{agreement:?}");
        assert!((agreement.demerit_percent - 12.5).abs() < 1e-9);
        assert!((agreement.correlation.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((agreement.mean_measured_ms, agreement.mean_simulated_ms), (2.0, 2.25));
        assert_eq!(agreement.requests, 3);
    }

    #[test]
    fn order_matters_to_the_correlation_alone() {
        let agreement = Agreement::of(&served(&[(1_000, 2_000), (2_000, 1_000)])).unwrap();
        assert_eq!(agreement.demerit_ms, 0.0);
        assert!((agreement.correlation.unwrap() + 1.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_are_exact() {
        let times: Vec<Nanos> = (1..=10).map(Nanos::from_millis).collect();
        let at = |tenths| quantile(&times, tenths, 1_000).as_nanos() / 1_000_000;
        assert_eq!((at(0), at(1), at(100), at(101), at(500), at(900), at(1_000)), (1, 1, 1, 2, 5, 9, 10));
    }

    #[test]
    fn what_never_varies_has_no_correlation() {
        let constant = Agreement::of(&served(&[(1_000, 500), (2_000, 500)])).unwrap();
        assert_eq!(constant.correlation, None);
        assert!(Agreement::of(&[]).is_none() && Fidelity::of("d", "t", &[]).is_none());
    }

    #[test]
    fn json_has_its_figures_at_the_top() {
        let fidelity = Fidelity::of("drive", "a.trace", &served(&[(1_000, 1_100), (2_000, 2_100)])).unwrap();
        let json: serde_json::Value = serde_json::from_str(&fidelity.to_json()).unwrap();
        assert_eq!(json["schema"], FIDELITY_SCHEMA);
        for key in ["demerit_ms", "demerit_percent", "correlation", "mean_measured_ms", "mean_simulated_ms"] {
            assert!(json[key].is_number(), "{key} in {json}");
        }
        assert_eq!((&json["requests"], &json["reads"]["requests"]), (&2.into(), &2.into()));
        assert!(json["writes"].is_null());
        let again: Fidelity = serde_json::from_str(&fidelity.to_json()).unwrap();
        assert_eq!(again, fidelity);
        let text = fidelity.render();
        assert!(text.contains("0.1000") && text.contains("quantile"), "{text}");
    }

    #[test]
    fn a_plot_shows_both_distributions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        let served = served(&[(1_000, 1_100), (2_000, 2_100)]);
        let fidelity = Fidelity::of("drive", "a.trace", &served).unwrap();
        plot_fidelity(&path, &fidelity, &served).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["measured (a.trace)", "simulated (drive)", "demerit 0.100 ms"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(plot_fidelity(&path, &fidelity, &[]).is_err());
    }

    proptest! {
        /// The demerit is a distance: zero for equal distributions, symmetric, and at most the largest difference.
        #[test]
        fn the_demerit_is_a_distance(pairs in prop::collection::vec((1u64..1_000_000, 1u64..1_000_000), 1..200)) {
            let forth = Agreement::of(&served(&pairs)).unwrap();
            let swapped: Vec<(u64, u64)> = pairs.iter().map(|&(a, b)| (b, a)).collect();
            let back = Agreement::of(&served(&swapped)).unwrap();
            prop_assert!((forth.demerit_ms - back.demerit_ms).abs() < 1e-9);
            let same: Vec<(u64, u64)> = pairs.iter().map(|&(a, _)| (a, a)).collect();
            prop_assert_eq!(Agreement::of(&served(&same)).unwrap().demerit_ms, 0.0);
            let furthest = pairs.iter().map(|&(a, b)| a.abs_diff(b)).max().unwrap() as f64 / 1e3;
            prop_assert!(forth.demerit_ms <= furthest + 1e-9);
        }
    }
}
