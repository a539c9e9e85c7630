//! Footprint and LRU reuse distances of blocks, in bounded memory.

use std::collections::BTreeMap;

use chronodisk_sim::{Op, RequestRecord};

/// Sectors of a block of 4 KiB.
const BLOCK_SECTORS: u64 = 8;
/// Blocks that are followed at most. Beyond that, half of them are dropped by a hash of their address, and each of the
/// others stands for twice as many: Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015.
const FOLLOWED_MAX: usize = 1 << 20;
/// Places in the order of use, most of them empty.
const PLACES: usize = 2 * FOLLOWED_MAX;

/// Footprint and reuse distances of the requests that were added.
///
/// The reuse distance of an access is the number of distinct blocks of 4 KiB that were accessed since the same block
/// was accessed last, itself included: an LRU cache of at least so many blocks has it. Discards and flushes access
/// nothing.
#[derive(Clone, Debug)]
pub struct Reuse {
    followed: BTreeMap<(u16, u64), Followed>,
    /// Followed blocks by the place of their last use, as a Fenwick tree.
    places: Vec<u32>,
    next_place: usize,
    /// One block of 2 to this power is followed.
    halvings: u32,
    followed_max: usize,
    accesses: u64,
    /// Accesses with a distance above 2 to the power of (index - 1), and at most 2 to the power of the index.
    distances: [u64; 64],
    first: u64,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    place: u32,
    is_read: bool,
    is_written: bool,
}

/// Result of [`Reuse`]. Blocks have 4 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReuseFigures {
    /// Accesses to blocks.
    pub accesses: u64,
    /// Distinct blocks that were accessed.
    pub blocks: u64,
    /// Blocks that were read.
    pub read_blocks: u64,
    /// Blocks that were written.
    pub written_blocks: u64,
    /// One block of this number was followed; 1 if the figures are exact.
    pub sampled_one_in: u64,
    /// Hits of an LRU cache of 2 to the power of the index blocks; the last entry is an unlimited cache's.
    pub hits: Vec<u64>,
}

impl Default for Reuse {
    fn default() -> Self {
        Reuse::following(FOLLOWED_MAX)
    }
}

impl Reuse {
    fn following(followed_max: usize) -> Self {
        Reuse {
            followed: BTreeMap::new(),
            places: vec![0; PLACES + 1],
            next_place: 1,
            halvings: 0,
            followed_max,
            accesses: 0,
            distances: [0; 64],
            first: 0,
        }
    }

    /// Takes the next request.
    pub fn add(&mut self, record: &RequestRecord) {
        if !record.op.moves_data() || record.sectors == 0 {
            return;
        }
        let (first, end) = (record.lba.0, record.lba.0 + u64::from(record.sectors));
        for block in first / BLOCK_SECTORS..end.div_ceil(BLOCK_SECTORS) {
            self.accesses += 1;
            if hash(record.device, block).trailing_zeros() >= self.halvings {
                self.access((record.device, block), record.op);
            }
        }
    }

    fn access(&mut self, key: (u16, u64), op: Op) {
        if self.next_place > PLACES {
            self.compact();
        }
        let place = self.next_place;
        self.next_place += 1;
        let weight = 1 << self.halvings;
        let seen = self.followed.get(&key).map(|seen| seen.place);
        match seen {
            Some(last) => {
                let since = self.followed.len() as u64 - self.up_to(last as usize - 1);
                let distance = since << self.halvings;
                self.distances[distance.next_power_of_two().trailing_zeros() as usize] += weight;
                self.change(last as usize, false);
            }
            None => self.first += weight,
        }
        self.change(place, true);
        let entry = self.followed.entry(key).or_insert(Followed { place: 0, is_read: false, is_written: false });
        entry.place = place as u32;
        entry.is_read |= op == Op::Read;
        entry.is_written |= op == Op::Write;
        if self.followed.len() > self.followed_max {
            self.halvings += 1;
            let halvings = self.halvings;
            self.followed.retain(|(device, block), _| hash(*device, *block).trailing_zeros() >= halvings);
            self.compact();
        }
    }

    /// Closes the gaps between places.
    fn compact(&mut self) {
        let mut order: Vec<(u32, (u16, u64))> = self.followed.iter().map(|(key, seen)| (seen.place, *key)).collect();
        order.sort_unstable();
        self.places.fill(0);
        self.next_place = 1;
        for (_, key) in order {
            let place = self.next_place;
            self.next_place += 1;
            self.change(place, true);
            if let Some(seen) = self.followed.get_mut(&key) {
                seen.place = place as u32;
            }
        }
    }

    fn change(&mut self, mut place: usize, is_used: bool) {
        while place < self.places.len() {
            self.places[place] = if is_used { self.places[place] + 1 } else { self.places[place] - 1 };
            place += place & place.wrapping_neg();
        }
    }

    /// Number of blocks whose last use is at this place or an earlier one.
    fn up_to(&self, mut place: usize) -> u64 {
        let mut sum = 0;
        while place > 0 {
            sum += u64::from(self.places[place]);
            place -= place & place.wrapping_neg();
        }
        sum
    }

    /// Figures so far.
    #[must_use]
    pub fn figures(&self) -> ReuseFigures {
        let scaled = |count: usize| (count as u64) << self.halvings;
        let last = self.distances.iter().rposition(|count| *count > 0);
        let mut so_far = 0;
        let hits = self.distances[..last.map_or(0, |last| last + 1)].iter().map(|count| {
            so_far += count;
            so_far
        });
        ReuseFigures {
            accesses: self.accesses,
            blocks: scaled(self.followed.len()),
            read_blocks: scaled(self.followed.values().filter(|seen| seen.is_read).count()),
            written_blocks: scaled(self.followed.values().filter(|seen| seen.is_written).count()),
            sampled_one_in: 1 << self.halvings,
            hits: hits.collect(),
        }
    }
}

/// Mixes an address so that its low bits are as random as any: the finaliser of `SplitMix64` (Steele et al., "Fast
/// Splittable Pseudorandom Number Generators", OOPSLA 2014).
fn hash(device: u16, block: u64) -> u64 {
    let mut mixed = block.wrapping_add(u64::from(device) << 48).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Lba, Nanos, Priority, RandomStream, Status};

    use super::*;

    fn request(op: Op, lba: u64, sectors: u32) -> RequestRecord {
        RequestRecord {
            device: 0,
            order: 0,
            op,
            fua: false,
            priority: Priority::default(),
            lba: Lba(lba),
            sectors,
            queue: 0,
            issuer: 0,
            arrival: Nanos::ZERO,
            due: Nanos::MAX,
            completed: Nanos::MAX,
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        }
    }

    fn naive(blocks: &[u64]) -> Vec<Option<usize>> {
        let mut stack: Vec<u64> = Vec::new();
        let distance = |block: &u64| {
            let found = stack.iter().rev().position(|other| other == block).map(|index| index + 1);
            stack.retain(|other| other != block);
            stack.push(*block);
            found
        };
        blocks.iter().map(distance).collect()
    }

    fn random_blocks(count: usize, span: u64) -> Vec<u64> {
        let mut random = RandomStream::new(1, "test", "reuse");
        (0..count).map(|_| random.below(span).min(random.below(span))).collect()
    }

    fn figures(reuse: &mut Reuse, blocks: &[u64]) -> ReuseFigures {
        for (index, block) in blocks.iter().enumerate() {
            let op = if index % 3 == 0 { Op::Write } else { Op::Read };
            reuse.add(&request(op, block * 8, 8));
        }
        reuse.figures()
    }

    #[test]
    fn distances_are_those_of_an_lru_stack() {
        let blocks = random_blocks(5_000, 700);
        let found = figures(&mut Reuse::default(), &blocks);
        let distances = naive(&blocks);
        for (power, hits) in found.hits.iter().enumerate() {
            let expected = distances.iter().flatten().filter(|distance| **distance <= 1 << power).count();
            assert_eq!(*hits, expected as u64, "a cache of 2^{power}");
        }
        let first = distances.iter().filter(|distance| distance.is_none()).count() as u64;
        assert_eq!((found.accesses, found.blocks, found.sampled_one_in), (5_000, first, 1));
        assert_eq!(found.hits.last(), Some(&(5_000 - first)));
        assert!(found.read_blocks < first && found.written_blocks < first);
        assert!(found.read_blocks + found.written_blocks > first);
    }

    #[test]
    fn a_sample_estimates_what_all_blocks_give() {
        let blocks = random_blocks(60_000, 20_000);
        let exact = figures(&mut Reuse::default(), &blocks);
        let sampled = figures(&mut Reuse::following(4_000), &blocks);
        assert!(sampled.sampled_one_in >= 4, "{}", sampled.sampled_one_in);
        let near = |found: u64, expected: u64| (found as f64 / expected as f64 - 1.0).abs() < 0.1;
        assert!(near(sampled.blocks, exact.blocks), "{} {}", sampled.blocks, exact.blocks);
        for power in 11..14 {
            assert!(near(sampled.hits[power], exact.hits[power]), "{sampled:?} {exact:?}");
        }
    }

    #[test]
    fn places_are_used_again() {
        let mut reuse = Reuse::default();
        // Accesses to two blocks, more than there are places.
        for index in 0..PLACES as u64 + 10 {
            reuse.add(&request(Op::Read, index % 2 * 8, 8));
        }
        let found = reuse.figures();
        assert_eq!((found.blocks, found.hits), (2, vec![0, PLACES as u64 + 8]));
    }

    #[test]
    fn partial_blocks_count_whole() {
        let mut reuse = Reuse::default();
        reuse.add(&request(Op::Read, 7, 2));
        reuse.add(&request(Op::Discard, 0, 800));
        reuse.add(&request(Op::Flush, 0, 0));
        assert_eq!((reuse.figures().accesses, reuse.figures().blocks), (2, 2));
    }
}
