//! Means with their confidence intervals.

use serde::{Deserialize, Serialize};

/// A mean over repetitions with its 95 % confidence interval by Student's t.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval; `None` with fewer than two values.
    pub half_width_95: Option<f64>,
    /// Number of values.
    pub count: usize,
}

impl Estimate {
    /// Statistics of these values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let half_width_95 = (count >= 2).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let standard_error = (squares / (count - 1) as f64 / count as f64).sqrt();
            student_t_975(count - 1) * standard_error
        });
        Some(Estimate { mean, half_width_95, count })
    }
}

/// The 97.5 % quantile of Student's t with `degrees` of freedom: the critical value of a two-sided
/// 95 % interval.
///
/// # Panics
/// With zero degrees of freedom.
#[must_use]
pub fn student_t_975(degrees: usize) -> f64 {
    assert!(degrees > 0, "a deviation needs at least two values");
    if let Some(value) = T_975.get(degrees - 1) {
        return *value;
    }
    // Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5; off by less than 10⁻⁵ here.
    let v = degrees as f64;
    let x = Z_975;
    let g1 = (x.powi(3) + x) / 4.0;
    let g2 = (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0;
    let g3 = (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0;
    x + g1 / v + g2 / v.powi(2) + g3 / v.powi(3)
}

/// 97.5 % quantile of the normal distribution.
const Z_975: f64 = 1.959_963_985;

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom, as in NIST/SEMATECH,
/// "e-Handbook of Statistical Methods", 1.3.6.7.2, to three decimals.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
