//! An order of all blocks of a region, without a table of them.

use chronodisk_sim::RandomStream;

/// A bijection of `0..count`: four rounds of a balanced Feistel network over the next power of four, repeated until the
/// answer is below `count` (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

const ROUNDS: usize = 4;

impl Permutation {
    /// A random permutation of `count` numbers, at least one and at most 2⁶².
    pub(super) fn draw(count: u64, random: &mut RandomStream) -> Self {
        let bits = u64::BITS - (count - 1).leading_zeros();
        Permutation { count, half_bits: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| random.next_u64()) }
    }

    /// The number at a place below `count`.
    pub(super) fn at(&self, place: u64) -> u64 {
        let mut number = place;
        // A walk along a cycle that contains `place`, which is below `count`: it ends, after four steps on average.
        loop {
            number = self.mix(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn mix(&self, number: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut high, mut low) = (number >> self.half_bits, number & mask);
        for key in self.keys {
            // The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
            let mut hash = low ^ key;
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (high, low) = (low, high ^ (hash ^ (hash >> 31)) & mask);
        }
        high << self.half_bits | low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once_and_draws_differ() {
        for count in [1, 2, 3, 4, 5, 16, 17, 1_000, 4_096, 100_003] {
            let mut random = RandomStream::new(1, "test", "permutation");
            let one = Permutation::draw(count, &mut random);
            let mut numbers: Vec<u64> = (0..count).map(|place| one.at(place)).collect();
            let order = numbers.clone();
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..count), "{count}");
            let other = Permutation::draw(count, &mut random);
            let again: Vec<u64> = (0..count).map(|place| other.at(place)).collect();
            assert!(count < 16 || order != again, "{count}");
        }
    }

    #[test]
    fn neighbours_are_far_apart() {
        let count = 1 << 20;
        let order = Permutation::draw(count, &mut RandomStream::new(7, "test", "permutation"));
        let distances: u64 = (0..10_000).map(|place| order.at(place).abs_diff(order.at(place + 1))).sum();
        // Two uniform numbers are a third of the range apart on average.
        let mean = distances as f64 / 10_000.0 / count as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }
}
