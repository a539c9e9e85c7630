//! The share of intervals that contain the population's value.

use chronodisk_sim::RandomStream;
use chronodisk_trace::bootstrap::{Bootstrap, Interval, Sample};

/// Draws a value.
type Drawn = fn(&mut RandomStream) -> f64;

/// A population to draw from: its name, a value, and its mean, median and 90th percentile.
struct Population {
    name: &'static str,
    value: Drawn,
    truth: [f64; 3],
}

/// 90th percentile of the standard normal distribution.
const Z_90: f64 = 1.281_551_565_545;

/// Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
fn normal(random: &mut RandomStream) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

/// Whether there are as many trials as it takes to tell small differences, as in `make test-long`.
fn long() -> bool {
    std::env::var_os("CHRONODISK_LONG").is_some()
}

const ELEMENTS: usize = 200;
/// With one more, the ranks of 2.5 and 97.5 % are whole. Fewer draws than usual only make ends coarser.
const DRAWS: u32 = 199;

/// The shares of trials whose percentile and BCa intervals contain mean, median and 90th percentile.
fn coverage(population: &Population) -> [[f64; 2]; 3] {
    let mut random = RandomStream::new(1, "coverage", population.name);
    let mut hits = [[0_u32; 2]; 3];
    // A share of 0.95 varies by 0.007, and in the long form by 0.003.
    let trials = if long() { 4_000 } else { 1_000 };
    for trial in 0..trials {
        let values: Vec<f64> = (0..ELEMENTS).map(|_| (population.value)(&mut random)).collect();
        let sample = Sample::of_values(&values);
        let bootstrap = Bootstrap { draws: DRAWS, level: 0.95, seed: trial };
        let found = bootstrap.estimate_all(ELEMENTS, 3, |copies, values| {
            values[0] = sample.mean(copies);
            values[1] = sample.quantile(copies, 0.5);
            values[2] = sample.quantile(copies, 0.9);
        });
        for ((estimate, truth), hits) in found.iter().zip(population.truth).zip(&mut hits) {
            let contains = |interval: Option<Interval>| u32::from(interval.is_some_and(|all| all.contains(truth)));
            hits[0] += contains(estimate.percentile);
            hits[1] += contains(estimate.bca);
        }
    }
    hits.map(|hits| hits.map(|hits| f64::from(hits) / trials as f64))
}

fn check(population: &Population) {
    let shares = coverage(population);
    println!("{}: percentile and BCa of mean, median and p90: {shares:?}", population.name);
    for (shares, figure) in shares.into_iter().zip(["mean", "median", "p90"]) {
        for (share, interval) in shares.into_iter().zip(["percentile", "BCa"]) {
            assert!((0.905..=0.97).contains(&share), "{}: {figure}, {interval}: {share}", population.name);
        }
    }
}

#[test]
fn normal_values_are_covered() {
    check(&Population { name: "normal", value: normal, truth: [0.0, 0.0, Z_90] });
}

#[test]
fn exponential_values_are_covered() {
    let value = |random: &mut RandomStream| -(1.0 - random.unit()).ln();
    check(&Population { name: "exponential", value, truth: [1.0, std::f64::consts::LN_2, std::f64::consts::LN_10] });
}

#[test]
fn lognormal_values_are_covered() {
    let value = |random: &mut RandomStream| normal(random).exp();
    check(&Population { name: "lognormal", value, truth: [0.5_f64.exp(), 1.0, Z_90.exp()] });
}

/// Tasks of a user have the user's own level in common: half of their variance. Intervals over users hold; those that
/// take each task for an element of its own do not.
#[test]
fn groups_of_dependent_elements_are_covered_and_single_ones_are_not() {
    const GROUPS: usize = 200;
    const MEMBERS: usize = 5;
    // A share of 0.95 varies by 0.013, and in the long form by 0.007.
    let (trials, tolerance) = if long() { (1_000, 0.02) } else { (300, 0.035) };
    let levels: [(&str, Drawn); 2] = [("normal", normal), ("exponential", |random| -(1.0 - random.unit()).ln() - 1.0)];
    for (name, level) in levels {
        let mut random = RandomStream::new(1, "grouped coverage", name);
        let (mut percentile, mut bca, mut naive) = (0_u32, 0_u32, 0_u32);
        for trial in 0..trials {
            let groups: Vec<[f64; MEMBERS]> = (0..GROUPS)
                .map(|_| {
                    let common = level(&mut random);
                    std::array::from_fn(|_| common + normal(&mut random))
                })
                .collect();
            let bootstrap = Bootstrap { draws: DRAWS, level: 0.95, seed: trial };
            let grouped = Sample::of_blocks(groups.iter().map(<[f64; MEMBERS]>::as_slice));
            let found = bootstrap.estimate(GROUPS, |copies| grouped.mean(copies));
            percentile += u32::from(found.percentile.unwrap().contains(0.0));
            bca += u32::from(found.bca.unwrap().contains(0.0));
            let single = Sample::of_values(groups.as_flattened());
            let found = bootstrap.estimate(GROUPS * MEMBERS, |copies| single.mean(copies));
            naive += u32::from(found.percentile.unwrap().contains(0.0));
        }
        let share = |hits: u32| f64::from(hits) / trials as f64;
        let (percentile, bca, naive) = (share(percentile), share(bca), share(naive));
        println!("{name}: grouped {percentile} (percentile), {bca} (BCa), naive {naive}");
        let holds = |share: f64| (share - 0.95).abs() <= tolerance;
        assert!(holds(percentile) && holds(bca), "{name}: {percentile}, {bca}");
        assert!(naive < 0.8, "{name}: {naive}");
    }
}
