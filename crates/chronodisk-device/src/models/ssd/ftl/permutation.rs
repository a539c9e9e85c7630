//! A random order of many numbers that is worked out instead of kept.

use chronodisk_sim::RandomStream;

/// A bijection of `0..len` onto itself: a Feistel network of four rounds on the next larger power of two (Luby and
/// Rackoff, 1988), iterated until the result is below `len` (Black and Rogaway, 2002).
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    len: u32,
    low_bits: u32,
    high_bits: u32,
    keys: [u32; 4],
}

impl Permutation {
    pub(super) fn new(len: u32, random: &mut RandomStream) -> Self {
        let bits = (u32::BITS - len.saturating_sub(1).leading_zeros()).max(2);
        let keys = [(); 4].map(|()| random.next_u64() as u32);
        Permutation { len, low_bits: bits / 2, high_bits: bits - bits / 2, keys }
    }

    /// The number at a place.
    #[inline]
    pub(super) fn at(&self, place: u32) -> u32 {
        let mut number = place;
        loop {
            number = self.once(number);
            if number < self.len {
                return number;
            }
        }
    }

    fn once(&self, number: u32) -> u32 {
        let (mut low, mut high) = (number & ((1 << self.low_bits) - 1), number >> self.low_bits);
        for keys in self.keys.chunks_exact(2) {
            low ^= mixed(high, keys[0]) >> (u32::BITS - self.low_bits);
            high ^= mixed(low, keys[1]) >> (u32::BITS - self.high_bits);
        }
        (high << self.low_bits) | low
    }
}

/// Spreads a number over the upper bits, with the constants of MurmurHash3's finalizer.
fn mixed(number: u32, key: u32) -> u32 {
    let mixed = (number ^ key).wrapping_mul(0x85eb_ca6b);
    (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once_and_not_in_order() {
        for len in [1u32, 2, 3, 5, 64, 1_000, 70_001] {
            let permutation = Permutation::new(len, &mut RandomStream::new(u64::from(len), "test", "permutation"));
            let mut seen = vec![false; len as usize];
            let mut neighbours = 0;
            for place in 0..len {
                let number = permutation.at(place);
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} of {len} twice");
                neighbours += u32::from(place > 0 && number.abs_diff(permutation.at(place - 1)) < len / 50 + 1);
            }
            // In a random order, neighbours are within a fiftieth of each other in one case of twenty-five.
            assert!(len < 1_000 || neighbours < len / 12, "{neighbours} of {len}");
        }
    }
}
