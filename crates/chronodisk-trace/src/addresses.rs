//! Addresses of random requests.

use std::fmt;
use std::str::FromStr;

use chronodisk_sim::RandomStream;

/// Distribution of random addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Addresses {
    /// All places with equal probability.
    #[default]
    Uniform,
    /// The place of rank k in proportion to k to the power of minus the exponent. Ranks are scattered over the device.
    Zipf {
        /// Above 0, at most [`EXPONENT_MAX`].
        exponent: f64,
    },
    /// A share of the requests goes to a part at the beginning of the device, the rest to the rest; uniform in either
    /// part.
    HotCold {
        /// Share of the requests, 0 to 1.
        requests: f64,
        /// Share of the places, above 0 and below 1.
        space: f64,
    },
}

/// Largest exponent of [`Addresses::Zipf`]: beyond, nearly all requests have one address.
pub const EXPONENT_MAX: f64 = 10.0;

impl Addresses {
    /// A random place of `count`, counted from 0.
    pub(crate) fn choose(self, count: u64, random: &mut RandomStream) -> u64 {
        match self {
            Addresses::Uniform => random.below(count),
            Addresses::Zipf { exponent } => scattered(zipf_rank(count, exponent, random), count),
            Addresses::HotCold { requests, space } => {
                let hot = ((count as f64 * space).ceil() as u64).clamp(1, count);
                let is_hot = random.chance(requests);
                if is_hot || hot == count { random.below(hot) } else { hot + random.below(count - hot) }
            }
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addresses::Uniform => f.write_str("uniform"),
            Addresses::Zipf { exponent } => write!(f, "zipf={exponent}"),
            Addresses::HotCold { requests, space } => write!(f, "hot-cold={requests}:{space}"),
        }
    }
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let parsed = match text.split_once('=') {
            None if text == "uniform" => Some(Addresses::Uniform),
            Some(("zipf", exponent)) => number(exponent)
                .filter(|exponent| *exponent > 0.0 && *exponent <= EXPONENT_MAX)
                .map(|exponent| Addresses::Zipf { exponent }),
            Some(("hot-cold", shares)) => shares.split_once(':').and_then(|(requests, space)| {
                let requests = number(requests).filter(|share| (0.0..=1.0).contains(share))?;
                let space = number(space).filter(|share| *share > 0.0 && *share < 1.0)?;
                Some(Addresses::HotCold { requests, space })
            }),
            _ => None,
        };
        parsed.ok_or_else(|| {
            format!(
                "expected uniform, zipf=EXPONENT (up to {EXPONENT_MAX}), or hot-cold=REQUESTS:SPACE such as \
                     hot-cold=0.9:0.1"
            )
        })
    }
}

/// A rank from 0 to `count` - 1: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", 1996. Its cost does not depend on `count`.
fn zipf_rank(count: u64, exponent: f64, random: &mut RandomStream) -> u64 {
    // Both are near 1 at 0, where the quotient is not defined.
    let relative = |x: f64, value: f64| if x.abs() > 1e-8 { value / x } else { 1.0 };
    let integral = |x: f64| {
        let log = x.ln();
        let at = (1.0 - exponent) * log;
        relative(at, at.exp_m1()) * log
    };
    let inverse = |y: f64| {
        let at = (y * (1.0 - exponent)).max(-1.0);
        (relative(at, at.ln_1p()) * y).exp()
    };
    let weight = |x: f64| (-exponent * x.ln()).exp();
    let first = integral(1.5) - 1.0;
    let last = integral(count as f64 + 0.5);
    let shortcut = 2.0 - inverse(integral(2.5) - weight(2.0));
    loop {
        let height = last + random.unit() * (first - last);
        let x = inverse(height);
        let rank = x.round().clamp(1.0, count as f64);
        if rank - x <= shortcut || height >= integral(rank + 0.5) - weight(rank) {
            return (rank as u64).min(count) - 1;
        }
    }
}

/// The place of a rank: neighbouring ranks are far from each other, and each place has one rank.
pub(crate) fn scattered(rank: u64, count: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    // The golden ratio's part of all places, or the next number without a common divisor.
    let golden = (count as f64 * 0.618_033_988_749_895) as u64;
    let step = (golden.max(1)..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (u128::from(rank) * u128::from(step) % u128::from(count)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(addresses: Addresses, count: u64, draws: u64) -> Vec<u64> {
        let mut random = RandomStream::new(1, "test", "addresses");
        let mut counts = vec![0; count as usize];
        for _ in 0..draws {
            counts[addresses.choose(count, &mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn ranks_have_the_frequencies_of_zipf() {
        for exponent in [0.5, 0.99, 1.0, 1.2, 3.0] {
            let mut found = counts(Addresses::Zipf { exponent }, 1_000, 400_000);
            found.sort_unstable_by(|one, other| other.cmp(one));
            let total: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1_u32, 2, 5, 20] {
                let expected = f64::from(rank).powf(-exponent) / total * 400_000.0;
                let deviation = (found[rank as usize - 1] as f64 - expected).abs();
                // Seven standard deviations, and the excess from sorting by count.
                assert!(deviation < 7.0 * expected.sqrt() + 30.0, "{exponent}, {rank}: {} {expected}", found[0]);
            }
        }
    }

    #[test]
    fn each_place_has_one_rank() {
        for count in [1, 2, 3, 10, 64, 97, 1_000, 4_096] {
            let mut places: Vec<u64> = (0..count).map(|rank| scattered(rank, count)).collect();
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..count), "{count}");
        }
        let largest = 1 << 50;
        assert!((0..1_000).all(|rank| scattered(rank, largest) < largest));
    }

    #[test]
    fn hot_places_get_their_share() {
        let found = counts(Addresses::HotCold { requests: 0.9, space: 0.1 }, 1_000, 100_000);
        let hot: u64 = found[..100].iter().sum();
        assert!(hot.abs_diff(90_000) < 600, "{hot}");
        assert!(found[100..].iter().all(|count| *count < 60) && found[..100].iter().all(|count| *count > 700));
        // One place is hot, for any shares.
        assert_eq!(counts(Addresses::HotCold { requests: 0.0, space: 0.5 }, 1, 10), [10]);
    }

    #[test]
    fn names_are_read_again() {
        for text in ["uniform", "zipf=1.2", "hot-cold=0.9:0.1"] {
            assert_eq!(text.parse::<Addresses>().unwrap().to_string(), text);
        }
        for text in ["zipf", "zipf=0", "zipf=11", "zipf=NaN", "hot-cold=1", "hot-cold=2:0.1", "hot-cold=1:0", "hot"] {
            assert!(text.parse::<Addresses>().unwrap_err().contains("expected uniform, zipf=EXPONENT"), "{text}");
        }
    }
}
