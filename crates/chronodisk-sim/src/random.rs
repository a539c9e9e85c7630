//! Seeded random streams.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A repeatable stream of random numbers, one per component and purpose.
///
/// Components that draw from streams of their own don't disturb each other: adding a draw in one
/// place changes nothing elsewhere.
#[derive(Clone, Debug)]
pub struct RandomStream(Pcg64Mcg);

impl RandomStream {
    /// The stream of `component` for `purpose` in a run with `seed`.
    #[must_use]
    pub fn new(seed: u64, component: &str, purpose: &str) -> Self {
        let mut hash = FNV_OFFSET_BASIS ^ seed;
        for byte in component.bytes().chain([0]).chain(purpose.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
        RandomStream(Pcg64Mcg::seed_from_u64(hash))
    }

    /// Uniform over all 64-bit numbers.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform over `0..bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        // Lemire, "Fast Random Integer Generation in an Interval", 2019: rejection keeps it exactly uniform.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Uniform over `[0, 1)`, in steps of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

/// Constants of the 64-bit FNV-1a hash (Fowler, Noll, Vo).
const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_give_equal_streams_and_others_differ() {
        let mut a = RandomStream::new(1, "disk", "phase");
        let mut b = RandomStream::new(1, "disk", "phase");
        let mut c = RandomStream::new(1, "disk", "seek");
        let mut d = RandomStream::new(2, "disk", "phase");
        let first = a.next_u64();
        assert_eq!(first, b.next_u64());
        assert_ne!(first, c.next_u64());
        assert_ne!(first, d.next_u64());
    }

    #[test]
    fn the_stream_is_fixed_for_ever() {
        // Results that were published with a seed must come out again after an update of the generator's crate.
        let mut stream = RandomStream::new(42, "test", "golden");
        assert_eq!([stream.next_u64(), stream.next_u64()], GOLDEN);
    }

    #[test]
    fn below_is_uniform_enough() {
        let mut stream = RandomStream::new(7, "test", "uniform");
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[stream.below(10) as usize] += 1;
        }
        // Standard deviation of a count is 95; six of them never fail by chance.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 570), "{counts:?}");
    }

    const GOLDEN: [u64; 2] = [5_692_059_043_023_957_523, 9_790_883_522_020_472_002];
}
