//! Distribution of valid units over a drive's superblocks after long uniform random writes, without performing them.
//!
//! The mean-field model of Van Houdt ("A mean field model for a class of garbage collection algorithms in flash-based
//! solid state drives", SIGMETRICS 2013) for many superblocks of b units each, with a valid share ρ. Let s(i) be the
//! share of superblocks with at least i valid units. A collection takes a superblock with at least i valid units with
//! probability p(i), which is s(i)^d for the best of d random superblocks, and returns a full superblock. Between two
//! collections the host writes M = b - (mean valid units of the victim) units. Each write invalidates one of the ρ b
//! valid units of each superblock with equal probability. In the steady state,
//!
//! ```text
//!  1 - p(i) = M · i · (s(i) - s(i+1)) / (ρ b)      for i = 1 … b,  s(b+1) = 0,  Σ s(i) = ρ b
//! ```
//!
//! This is solved for s from b down, and for M by bisection. Greedy is the limit of many choices: p(i) is 1 where s(i)
//! is 1, and 0 below, so that s(i) = min(1, ρ b / M · Σ 1/k over k = i … b). That is also the finite-block greedy model
//! of Desnoyers ("Analytic modeling of SSD write performance", SYSTOR 2012) with unlimited superblocks. FIFO has a
//! closed form: a superblock of age a, from 0 to 1, has b v^a valid units, and the victim's share v solves ρ = (v - 1)
//! / ln v (Menon, "A performance comparison of RAID-5 and log-structured arrays", HPDC 1995). Cost-benefit, under
//! uniform writes between FIFO and greedy, starts from greedy's.
//!
//! The write amplification is b / M.

use super::VictimPolicy;

/// Superblocks by valid units in the steady state.
#[derive(Clone, Debug)]
pub(crate) struct FixedPoint {
    /// Share of superblocks with at least `index` valid units, from none to all.
    at_least: Vec<f64>,
    write_amplification: f64,
}

/// Bisections; more than a double has bits.
const BISECTIONS: u32 = 60;

impl FixedPoint {
    /// The steady state for superblocks of `units` units with the valid share `valid` (above 0, below 1).
    pub(crate) fn new(policy: VictimPolicy, units: u32, valid: f64) -> Self {
        assert!(valid > 0.0 && valid < 1.0, "{valid} valid: without spare nothing can be collected");
        match policy {
            VictimPolicy::Fifo => FixedPoint::fifo(units, valid),
            VictimPolicy::Greedy | VictimPolicy::CostBenefit => FixedPoint::solve(units, valid, greedy_step),
            VictimPolicy::Choices(choices) => FixedPoint::solve(units, valid, choices_step(choices)),
        }
    }

    /// Finds the M at which the mean is `valid`; `step` gives s(i) from s(i+1) and ρ b / (M i).
    fn solve(units: u32, valid: f64, step: impl Fn(f64, f64) -> f64) -> Self {
        let mean = valid * f64::from(units);
        let mut at_least = vec![1.0; units as usize + 1];
        let (mut low, mut high) = (0.0, f64::from(units));
        for _ in 0..BISECTIONS {
            let written = 0.5 * (low + high);
            let (mut above, mut sum) = (0.0, 0.0);
            for i in (1..=units).rev() {
                above = if above >= 1.0 { 1.0 } else { step(above, mean / (written * f64::from(i))) };
                at_least[i as usize] = above;
                sum += above;
            }
            // More writes between collections leave fewer units valid.
            if sum > mean { low = written } else { high = written }
        }
        FixedPoint { at_least, write_amplification: f64::from(units) / high }
    }

    fn fifo(units: u32, valid: f64) -> Self {
        let (mut low, mut high) = (0.0f64, 1.0f64);
        for _ in 0..BISECTIONS {
            let victim = 0.5 * (low + high);
            if (victim - 1.0) / victim.ln() > valid { high = victim } else { low = victim }
        }
        let victim = 0.5 * (low + high);
        // At least i units are left up to the age ln(i / b) / ln v.
        let age = |i: u32| (f64::from(i) / f64::from(units)).ln() / victim.ln();
        let at_least = (0..=units).map(|i| if i == 0 { 1.0 } else { age(i).clamp(0.0, 1.0) }).collect();
        FixedPoint { at_least, write_amplification: 1.0 / (1.0 - victim) }
    }

    /// Units programmed per unit that the host writes.
    pub(crate) fn write_amplification(&self) -> f64 {
        self.write_amplification
    }

    /// Share of superblocks with at least `units` valid units.
    pub(crate) fn at_least(&self, units: u32) -> f64 {
        self.at_least.get(units as usize).copied().unwrap_or(0.0)
    }

    /// Valid units of `superblocks` superblocks, fewest first, evenly over the distribution; their sum is `valid`.
    ///
    /// # Panics
    /// If they can't hold that many.
    pub(crate) fn draw(&self, superblocks: u32, valid: u64) -> Vec<u32> {
        let units = self.at_least.len() as u32 - 1;
        assert!(valid <= u64::from(superblocks) * u64::from(units), "{valid} units in {superblocks} superblocks");
        let mut counts = Vec::with_capacity(superblocks as usize);
        let mut count = 0;
        for superblock in 0..superblocks {
            let above = 1.0 - (f64::from(superblock) + 0.5) / f64::from(superblocks);
            while count < units && self.at_least(count + 1) > above {
                count += 1;
            }
            counts.push(count);
        }
        // The sum is slightly off after rounding: change as many counts by one unit as it takes.
        let mut sum: u64 = counts.iter().map(|&count| u64::from(count)).sum();
        while sum != valid {
            for count in &mut counts {
                if sum < valid && *count < units {
                    *count += 1;
                    sum += 1;
                } else if sum > valid && *count > 0 {
                    *count -= 1;
                    sum -= 1;
                }
            }
        }
        counts.sort_unstable();
        counts
    }
}

fn greedy_step(above: f64, flow: f64) -> f64 {
    (above + flow).min(1.0)
}

/// Solves s - flow · (1 - s^d) = above by Newton's method, from the next higher s on.
fn choices_step(choices: u32) -> impl Fn(f64, f64) -> f64 {
    move |above, flow| {
        let mut share = above;
        for _ in 0..NEWTON_STEPS {
            let lower = power(share, choices - 1);
            let error = share - flow * (1.0 - lower * share) - above;
            let next = share - error / (1.0 + flow * f64::from(choices) * lower);
            if (next - share).abs() < 1e-15 {
                break;
            }
            share = next.clamp(0.0, 1.0);
        }
        share
    }
}

/// Few are enough, because the function is convex.
const NEWTON_STEPS: u32 = 64;

/// Computed by multiplication, so that it is equal on all platforms.
fn power(base: f64, mut exponent: u32) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_what_was_asked_for_and_many_choices_are_greedy() {
        let policies = [VictimPolicy::Greedy, VictimPolicy::RANDOM, VictimPolicy::Choices(10), VictimPolicy::Fifo];
        for policy in policies {
            for valid in [0.5, 0.8, 0.93] {
                let point = FixedPoint::new(policy, 128, valid);
                let mean = (1..=128).map(|units| point.at_least(units)).sum::<f64>() / 128.0;
                // FIFO's distribution is continuous, so its sum over whole units is half a unit low.
                assert!((mean - valid).abs() < 0.005, "{policy:?} {valid}: {mean}");
                let counts = point.draw(500, (500.0 * 128.0 * valid) as u64);
                assert_eq!(counts.iter().map(|&count| u64::from(count)).sum::<u64>(), (500.0 * 128.0 * valid) as u64);
                assert!(counts.is_sorted() && *counts.last().unwrap() <= 128);
            }
        }
        let many = FixedPoint::new(VictimPolicy::Choices(1_000), 64, 0.85).write_amplification();
        let greedy = FixedPoint::new(VictimPolicy::Greedy, 64, 0.85).write_amplification();
        assert!((many / greedy - 1.0).abs() < 0.01, "{many} {greedy}");
    }

    #[test]
    fn large_blocks_come_to_the_published_limits() {
        // Greedy and FIFO with large blocks: the valid share of a victim v solves (v - 1) / ln v = ρ; random takes any
        // superblock, so its victims have the share ρ and the write amplification is 1 / (1 - ρ) (Van Houdt 2013).
        let by_policy = |policy| FixedPoint::new(policy, 20_000, 0.8).write_amplification();
        let (greedy, fifo) = (by_policy(VictimPolicy::Greedy), by_policy(VictimPolicy::Fifo));
        assert!((greedy / fifo - 1.0).abs() < 0.002, "{greedy} {fifo}");
        assert!((by_policy(VictimPolicy::RANDOM) - 5.0).abs() < 0.01);
        // The worked value of that equation: v = 0.6286 for ρ = 0.8.
        assert!((fifo - 2.692).abs() < 0.01, "{fifo}");
    }
}
