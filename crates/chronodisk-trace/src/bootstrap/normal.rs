//! The standard normal distribution.

/// The share of the distribution below `x`.
///
/// Hart's rational approximation, as in West, "Better approximations to cumulative normal functions", 2005; good to 14
/// digits in the range that intervals need.
pub(super) fn distribution(x: f64) -> f64 {
    /// Beyond this the approximation is another; its tail is below 10⁻¹².
    const APPROXIMATED: f64 = 7.071_067_811_865_47;
    const NUMERATOR: [f64; 7] = [
        0.035_262_496_599_891_1,
        0.700_383_064_443_688,
        6.373_962_203_531_65,
        33.912_866_078_383,
        112.079_291_497_871,
        221.213_596_169_931,
        220.206_867_912_376,
    ];
    const DENOMINATOR: [f64; 8] = [
        0.088_388_347_648_318_4,
        1.755_667_163_182_64,
        16.064_177_579_207,
        86.780_732_202_946_1,
        296.564_248_779_674,
        637.333_633_378_831,
        793.826_512_519_948,
        440.413_735_824_752,
    ];
    let from_zero = x.abs();
    let tail = if from_zero < APPROXIMATED {
        let polynomial =
            |coefficients: &[f64]| coefficients.iter().fold(0.0, |sum, coefficient| sum * from_zero + coefficient);
        (-from_zero * from_zero / 2.0).exp() * polynomial(&NUMERATOR) / polynomial(&DENOMINATOR)
    } else {
        0.0
    };
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// The quantile of a share of the distribution; `None` if it is not within seven standard deviations.
pub(super) fn quantile(share: f64) -> Option<f64> {
    const FARTHEST: f64 = 7.0;
    if !(distribution(-FARTHEST)..=distribution(FARTHEST)).contains(&share) {
        return None;
    }
    let (mut low, mut high) = (-FARTHEST, FARTHEST);
    // Halving 14 so often leaves less than the distance of two numbers.
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if distribution(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_come_out() {
        // Abramowitz and Stegun, "Handbook of Mathematical Functions", table 26.1 and 26.2.
        for (x, expected) in [
            (0.0, 0.5),
            (0.5, 0.691_462_461_274_013),
            (1.0, 0.841_344_746_068_543),
            (1.96, 0.975_002_104_851_780),
            (3.0, 0.998_650_101_968_370),
            (-2.0, 0.022_750_131_948_179),
        ] {
            assert!((distribution(x) - expected).abs() < 1e-13, "{x}: {}", distribution(x));
        }
        for (share, expected) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.025, -1.959_963_985), (0.9, 1.281_551_566)] {
            assert!((quantile(share).unwrap() - expected).abs() < 1e-8, "{share}");
        }
        assert_eq!((quantile(0.0), quantile(1.0)), (None, None));
    }
}
