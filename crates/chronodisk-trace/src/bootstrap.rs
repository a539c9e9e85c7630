//! Confidence intervals of any statistic, by the bootstrap.
//!
//! A sample has N elements: requests, blocks of time, groups of tasks, runs. A draw takes N of them with replacement,
//! and is represented by the count of each element. The spread of the statistic over B draws estimates its distance
//! from the population's value. Draws come from a seed: equal samples, seeds and B give equal intervals.
//!
//! Two intervals are computed: percentile, and BCa (bias-corrected and accelerated; Efron, "Better Bootstrap Confidence
//! Intervals", 1987) with the acceleration from a jackknife. Elements must be independent. Consecutive requests are
//! not. Blocks of time are, if they are longer than the memory of device and program (`block` bootstrap).
//!
//! ```
//! use chronodisk_trace::bootstrap::{Bootstrap, Sample};
//!
//! let sample = Sample::of_values(&[3.0, 1.0, 4.0, 1.5, 9.0, 2.5, 6.0, 5.0, 3.5, 5.5]);
//! let mean = Bootstrap::new(7).estimate(sample.count(), |copies| sample.mean(copies));
//! let interval = mean.bca.unwrap();
//! assert!(interval.low < mean.value && mean.value < interval.high);
//! ```

mod normal;
mod sample;

use std::fmt;

use chronodisk_sim::RandomStream;

pub use sample::Sample;

/// Method of computing intervals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Draws (B). More draws reduce the error of the computation, not the sample's.
    pub draws: u32,
    /// Share of samples whose interval contains the population's value, 0 to 1.
    pub level: f64,
    /// Seeds the draws.
    pub seed: u64,
}

/// A statistic of a sample with its intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Value of the sample itself.
    pub value: f64,
    /// Elements of the sample (N).
    pub elements: u64,
    /// Draws whose statistic was defined (at most B).
    pub draws: u32,
    /// Interval between percentiles of the draws; `None` with fewer than two elements.
    pub percentile: Option<Interval>,
    /// Bias-corrected and accelerated interval. `None` with fewer than two elements, or if all draws are on one side of
    /// the sample's value.
    pub bca: Option<Interval>,
}

/// An interval from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Reason why an interval is less certain than its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// There is one element, and no interval.
    OneElement,
    /// Fewer than [`ELEMENTS_FEW`] elements.
    FewElements,
    /// A percentile of the tail, 99th and above.
    Tail,
}

/// Fewer elements make intervals that are too narrow.
pub const ELEMENTS_FEW: u64 = 30;

/// Draws unless others are asked for. With one more, the ranks of the 2.5th and 97.5th percentile are whole.
pub const DRAWS: u32 = 1_999;

/// Most statistics of the jackknife: beyond that, groups of elements are left out instead of single ones, with the same
/// expected acceleration.
const JACKKNIFE_MAX: usize = 1_000;

impl Interval {
    /// Whether a value is in it.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::OneElement => write!(f, "there is one element, and so no interval"),
            Caveat::FewElements => write!(
                f,
                "there are fewer than {ELEMENTS_FEW} elements: intervals contain the true value less often than stated"
            ),
            Caveat::Tail => {
                write!(f, "few values are beyond p99: its intervals contain the true value less often than stated")
            }
        }
    }
}

/// Caveats for a statistic over this number of elements; `quantile` is its share (0.99 for p99) if it is a quantile.
#[must_use]
pub fn caveats(elements: u64, quantile: Option<f64>) -> Vec<Caveat> {
    let mut found = Vec::new();
    match elements {
        0 | 1 => found.push(Caveat::OneElement),
        _ if elements < ELEMENTS_FEW => found.push(Caveat::FewElements),
        _ => {}
    }
    if quantile.is_some_and(|share| share >= 0.99) {
        found.push(Caveat::Tail);
    }
    found
}

/// Number of each element's copies in draw `number` of a seed.
#[must_use]
pub fn copies(count: usize, seed: u64, number: u64) -> Vec<u32> {
    let mut copies = vec![0; count];
    draw_into(&mut copies, seed, number);
    copies
}

fn draw_into(copies: &mut [u32], seed: u64, number: u64) {
    let mut stream = RandomStream::new(seed, "bootstrap", &format!("draw {number}"));
    copies.fill(0);
    for _ in 0..copies.len() {
        copies[stream.below(copies.len() as u64) as usize] += 1;
    }
}

impl Bootstrap {
    /// 95 % intervals from [`DRAWS`] draws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Bootstrap { draws: DRAWS, level: 0.95, seed }
    }

    /// Estimate of one statistic, as a function of the number of each element's copies.
    pub fn estimate(&self, elements: usize, mut statistic: impl FnMut(&[u32]) -> f64) -> Estimate {
        let mut all = self.estimate_all(elements, 1, |copies, values| values[0] = statistic(copies));
        all.remove(0)
    }

    /// Estimates of several statistics over the same draws. The function stores the value of each in its place. Draws
    /// for which a statistic is NaN are excluded from its intervals.
    pub fn estimate_all(
        &self,
        elements: usize,
        statistics: usize,
        mut statistic: impl FnMut(&[u32], &mut [f64]),
    ) -> Vec<Estimate> {
        let mut copies = vec![1; elements];
        let mut values = vec![f64::NAN; statistics];
        statistic(&copies, &mut values);
        let observed = values.clone();
        let mut replicates = vec![Vec::with_capacity(self.draws as usize); statistics];
        let mut left_out = vec![Vec::new(); statistics];
        if elements > 1 {
            for number in 0..self.draws {
                draw_into(&mut copies, self.seed, number.into());
                statistic(&copies, &mut values);
                replicates.iter_mut().zip(&values).for_each(|(all, value)| all.push(*value));
            }
            let groups = elements.min(JACKKNIFE_MAX);
            for group in 0..groups {
                copies.fill(1);
                copies[elements * group / groups..elements * (group + 1) / groups].fill(0);
                statistic(&copies, &mut values);
                left_out.iter_mut().zip(&values).for_each(|(all, value)| all.push(*value));
            }
        }
        let of_all = observed.into_iter().zip(replicates.into_iter().zip(&left_out));
        of_all
            .map(|(value, (replicates, left_out))| self.estimate_of(value, elements as u64, replicates, left_out))
            .collect()
    }

    /// Estimate of a statistic that was computed elsewhere: its value for the sample, for each draw ([`copies`]), and
    /// for the sample without each of its elements (or without each group of them).
    #[must_use]
    pub fn estimate_of(&self, value: f64, elements: u64, mut replicates: Vec<f64>, left_out: &[f64]) -> Estimate {
        replicates.retain(|replicate| replicate.is_finite());
        replicates.sort_by(f64::total_cmp);
        let defined = replicates.len() as u32;
        let has_interval = elements > 1 && defined > 1 && value.is_finite();
        let tail = (1.0 - self.level) / 2.0;
        let interval = |low: f64, high: f64| Interval { low: at(&replicates, low), high: at(&replicates, high) };
        Estimate {
            value,
            elements,
            draws: defined,
            percentile: has_interval.then(|| interval(tail, 1.0 - tail)),
            bca: bca_shares(value, &replicates, left_out, tail)
                .filter(|_| has_interval)
                .map(|(low, high)| interval(low, high)),
        }
    }
}

/// The value below which a share of a whole population of draws is, between the two nearest of the sorted ones.
fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len() - 1;
    let rank = (share * (sorted.len() + 1) as f64 - 1.0).clamp(0.0, last as f64);
    let below = rank.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64)
}

/// Positions of the BCa interval's ends, as shares of the draws: Efron and Tibshirani, "An Introduction to the
/// Bootstrap", 1993, equations 14.9 to 14.15.
fn bca_shares(value: f64, sorted: &[f64], left_out: &[f64], tail: f64) -> Option<(f64, f64)> {
    // A draw that equals the sample's value is half below it.
    let below = sorted.partition_point(|replicate| *replicate < value);
    let not_above = sorted.partition_point(|replicate| *replicate <= value);
    let share_below = (below + not_above) as f64 / 2.0 / sorted.len() as f64;
    let bias = normal::quantile(share_below).filter(|bias| bias.is_finite())?;
    let acceleration = acceleration(left_out);
    let share = |tail: f64| {
        let z = bias + normal::quantile(tail)?;
        let scale = 1.0 - acceleration * z;
        (scale > 0.0).then(|| normal::distribution(bias + z / scale))
    };
    Some((share(tail)?, share(1.0 - tail)?))
}

/// From the statistics without each element: a sixth of the skewness of their influence; 0 if all are equal.
fn acceleration(left_out: &[f64]) -> f64 {
    let defined = || left_out.iter().filter(|value| value.is_finite());
    let count = defined().count() as f64;
    let mean = defined().sum::<f64>() / count;
    let (squares, cubes) = defined().fold((0.0, 0.0), |(squares, cubes), value| {
        let difference = mean - value;
        (squares + difference.powi(2), cubes + difference.powi(3))
    });
    let spread: f64 = 6.0 * f64::powf(squares, 1.5);
    if spread > 0.0 { cubes / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_draws_of_n_elements() {
        assert_eq!(copies(40, 1, 3), copies(40, 1, 3));
        assert_ne!(copies(40, 1, 3), copies(40, 1, 4));
        assert_ne!(copies(40, 1, 3), copies(40, 2, 3));
        assert_eq!(copies(40, 1, 3).iter().sum::<u32>(), 40);
    }

    #[test]
    fn one_element_has_no_interval_and_few_have_a_warning() {
        let one = Bootstrap::new(1).estimate(1, |copies| f64::from(copies[0]) * 5.0);
        assert_eq!((one.value, one.percentile, one.bca, one.elements), (5.0, None, None, 1));
        assert_eq!(caveats(1, None), [Caveat::OneElement]);
        assert_eq!(caveats(29, Some(0.5)), [Caveat::FewElements]);
        assert_eq!(caveats(30, Some(0.5)), []);
        assert_eq!(caveats(29, Some(0.999)), [Caveat::FewElements, Caveat::Tail]);
    }

    /// The law school data of Efron and Tibshirani, 1993, table 3.1 (15 schools, correlation of LSAT and GPA 0.776).
    const LAW_SCHOOL: [(f64, f64); 15] = [
        (576.0, 3.39),
        (635.0, 3.30),
        (558.0, 2.81),
        (578.0, 3.03),
        (666.0, 3.44),
        (580.0, 3.07),
        (555.0, 3.00),
        (661.0, 3.43),
        (651.0, 3.36),
        (605.0, 3.13),
        (653.0, 3.12),
        (575.0, 2.74),
        (545.0, 2.76),
        (572.0, 2.88),
        (594.0, 2.96),
    ];

    fn correlation(copies: &[u32]) -> f64 {
        let total: f64 = copies.iter().map(|&n| f64::from(n)).sum();
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            let sum: f64 = LAW_SCHOOL.iter().zip(copies).map(|((x, y), n)| of(*x, *y) * f64::from(*n)).sum();
            sum / total
        };
        let (mean_x, mean_y) = (mean(&|x, _| x), mean(&|_, y| y));
        let covariance = mean(&|x, y| (x - mean_x) * (y - mean_y));
        covariance / (mean(&|x, _| (x - mean_x).powi(2)) * mean(&|_, y| (y - mean_y).powi(2))).sqrt()
    }

    #[test]
    fn a_published_example_comes_out() {
        let bootstrap = Bootstrap { draws: 20_000, level: 0.9, seed: 1 };
        let found = bootstrap.estimate(LAW_SCHOOL.len(), correlation);
        assert!((found.value - 0.776).abs() < 0.0005, "{found:?}");
        let mut replicates: Vec<f64> = (0..20_000).map(|number| correlation(&copies(15, 2, number))).collect();
        replicates.retain(|value| value.is_finite());
        let mean = replicates.iter().sum::<f64>() / replicates.len() as f64;
        let squares: f64 = replicates.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / replicates.len() as f64).sqrt();
        // Table 6.1: the standard error is 0.132 to 0.140 for many draws.
        assert!((0.130..0.138).contains(&error), "{error}");
        // The correlation's distribution leans to the left: BCa's interval is below the percentile's.
        let (percentile, bca) = (found.percentile.unwrap(), found.bca.unwrap());
        assert!(bca.low < percentile.low && bca.high < percentile.high, "{found:?}");
        assert!((0.50..0.56).contains(&percentile.low) && (0.94..0.96).contains(&percentile.high), "{found:?}");
    }

    #[test]
    fn undefined_draws_are_left_out() {
        // NaN if the first element is absent: in (1 - 1/n)^n of the draws.
        let found = Bootstrap { draws: 1_000, ..Bootstrap::new(1) }
            .estimate(50, |copies| if copies[0] == 0 { f64::NAN } else { f64::from(copies[1]) });
        assert!((580..690).contains(&found.draws), "{found:?}");
        assert!(found.percentile.is_some());
        let constant = Bootstrap::new(1).estimate(50, |_| 3.0);
        assert_eq!(constant.percentile, Some(Interval { low: 3.0, high: 3.0 }));
        assert_eq!(constant.bca, Some(Interval { low: 3.0, high: 3.0 }));
    }
}
