//! Statistics of native and guest runs in turn: the median of their ratios, its interval, and stolen time.

use std::time::Instant;

/// Median of the values, the least and the greatest.
pub(super) fn median_and_range(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [median(&values), values[0], values[values.len() - 1]]
}

/// Median of sorted values.
fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// Median of the values and an interval that covers the median of their distribution with the confidence that follows.
///
/// The interval is between two order statistics: it misses with twice the probability of fewer than `k` heads in `n`
/// throws of a coin (W. J. Conover, "Practical Nonparametric Statistics", on confidence intervals of quantiles). It is
/// the narrowest one with 95 %, or the whole range where even that has less.
pub(super) fn median_and_interval(mut values: Vec<f64>) -> (f64, [f64; 2], f64) {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    // Probability of fewer than `below` of `count` values on one side of the median.
    let tail =
        |below: usize| -> f64 { (0..below).map(|heads| choose(count, heads)).sum::<f64>() / 2f64.powi(count as i32) };
    let skipped = (0..count.div_ceil(2)).rev().find(|&skipped| 2.0 * tail(skipped + 1) <= 0.05).unwrap_or(0);
    let interval = [values[skipped], values[count - 1 - skipped]];
    (median(&values), interval, 1.0 - 2.0 * tail(skipped + 1).min(0.5))
}

/// Binomial coefficient.
fn choose(count: usize, chosen: usize) -> f64 {
    (0..chosen).map(|index| (count - index) as f64 / (index + 1) as f64).product()
}

/// Time that the host's hypervisor gave to others while a processor of this host had work.
pub(super) struct Stolen {
    begun: Instant,
    ticks: Option<u64>,
}

/// A pair with more stolen time than this share of its time is run again.
pub(super) const STOLEN_SHARE_MAX: f64 = 0.02;

impl Stolen {
    pub fn since_now() -> Self {
        Stolen { begun: Instant::now(), ticks: stolen_ticks() }
    }

    /// Stolen time of all processors as a share of the elapsed time; zero where the host does not count it.
    pub fn share(&self) -> f64 {
        let (Some(before), Some(now)) = (self.ticks, stolen_ticks()) else { return 0.0 };
        let seconds = now.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64;
        seconds / self.begun.elapsed().as_secs_f64()
    }
}

fn stolen_ticks() -> Option<u64> {
    stolen_in(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The eighth number of the line of all processors, as proc_stat(5) has it.
fn stolen_in(stat: &str) -> Option<u64> {
    stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median_and_range(vec![3.0, 1.0, 2.0]), [2.0, 1.0, 3.0]);
        assert_eq!(median_and_range(vec![4.0, 1.0, 2.0, 3.0]), [2.5, 1.0, 4.0]);
    }

    #[test]
    fn intervals_of_medians_are_those_of_the_binomial_distribution() {
        let of = |count: u32| median_and_interval((1..=count).map(f64::from).collect());
        let (median, interval, confidence) = of(10);
        assert_eq!((median, interval), (5.5, [2.0, 9.0]));
        assert!((confidence - 0.978_515_625).abs() < 1e-12, "{confidence}");
        let (_, interval, confidence) = of(6);
        assert_eq!(interval, [1.0, 6.0]);
        assert!((confidence - 0.968_75).abs() < 1e-12, "{confidence}");
        // Three values can't say more.
        let (_, interval, confidence) = of(3);
        assert_eq!((interval, confidence), ([1.0, 3.0], 0.75));
        assert_eq!(of(1), (1.0, [1.0, 1.0], 0.0));
        let (_, interval, _) = of(25);
        assert_eq!(interval, [8.0, 18.0], "the table of the sign test has 7 for 25 values");
    }

    #[test]
    fn stolen_time_is_the_eighth_number() {
        assert_eq!(stolen_in("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"), Some(88));
        assert_eq!(stolen_in("cpu  1 2 3\n"), None);
        assert_eq!(stolen_in(""), None);
        let share = Stolen::since_now().share();
        assert!(share.is_finite() && share >= 0.0, "{share}");
    }
}
