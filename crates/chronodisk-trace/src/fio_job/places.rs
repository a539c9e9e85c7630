//! Addresses of a thread's requests.

use chronodisk_sim::RandomStream;

use super::permutation::Permutation;
use super::{BlockSizes, Direction, FioJob, Order, Region};
use crate::addresses::{Addresses, scattered};

/// Distribution of random blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// All blocks with equal probability.
    Uniform,
    /// By Zipf's law.
    Zipf(f64),
    /// By fio's power law with this parameter, between 0 and 1.
    Pareto(f64),
    /// By fio's approximation of a normal law: the mean of twelve uniform numbers and a uniform one, within this number
    /// of hundredths.
    Normal(f64),
    /// Consecutive zones: pairs of a share of the requests and a share of the region, both in per cent.
    Zoned(Vec<(f64, f64)>),
    /// Like [`Zoned`](Self::Zoned), with sizes in bytes.
    ZonedBytes(Vec<(f64, u64)>),
}

/// A region with used and skipped stretches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Bytes that are used before the next stretch.
    pub used_bytes: u64,
    /// Length of a stretch in bytes.
    pub length_bytes: u64,
    /// Bytes skipped between two stretches.
    pub skipped_bytes: u64,
}

/// The places of a thread, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Places {
    region: Region,
    sizes: [BlockSizes; 3],
    /// Smallest room for a block of any direction.
    room_bytes: u64,
    align: [u64; 3],
    order: Order,
    random_shares: [f64; 3],
    distribution: Distribution,
    strides: Option<Strides>,
    /// First byte of the current stretch, and its used bytes.
    stretch: u64,
    stretch_used: u64,
    /// For each direction, the end and the beginning of its last request.
    next: [u64; 3],
    last: [u64; 3],
    /// Requests since the last jump.
    in_sequence: u64,
    /// Present if each block is visited once before any is visited again.
    once: Option<Permutation>,
    placed: u64,
    random: RandomStream,
}

impl Places {
    pub fn new(job: &FioJob, region: Region, random: RandomStream) -> Self {
        let align = std::array::from_fn(|index| job.align[index].unwrap_or(job.sizes[index].min()));
        let mut places = Places {
            region,
            sizes: job.sizes.clone(),
            room_bytes: job.directions().map(|direction| job.sizes[direction as usize].min()).max().unwrap_or(0),
            align,
            order: job.order,
            random_shares: job.random_shares,
            distribution: job.distribution.clone(),
            strides: job.strides,
            stretch: 0,
            stretch_used: 0,
            next: [0; 3],
            last: [0; 3],
            in_sequence: 0,
            once: None,
            placed: 0,
            random,
        };
        if job.visits_once() {
            places.shuffle();
        }
        places
    }

    /// Restarts at the beginning.
    pub fn restart(&mut self) {
        (self.next, self.last, self.stretch, self.stretch_used) = ([0; 3], [0; 3], 0, 0);
        if self.once.is_some() {
            self.shuffle();
        }
    }

    fn shuffle(&mut self) {
        self.placed = 0;
        self.once = Some(Permutation::draw(self.region.len_bytes / self.sizes[0].min(), &mut self.random));
    }

    /// Offset in the region and length of the next request, in bytes.
    pub fn choose(&mut self, direction: Direction) -> (u64, u64) {
        let index = direction as usize;
        self.stride();
        let offset = match self.order {
            Order::Sequential { gap_bytes } => self.following(index, gap_bytes),
            Order::Random { run, is_identical } => {
                let jumps = self.in_sequence == 0;
                self.in_sequence = (self.in_sequence + 1) % run;
                let share = self.random_shares[index];
                match jumps {
                    true if share >= 1.0 || self.random.chance(share) => self.jump(index),
                    false if is_identical => self.last[index],
                    _ => self.following(index, 0),
                }
            }
        };
        let size = self.sizes[index].draw(self.region.len_bytes - offset, &mut self.random);
        (self.next[index], self.last[index]) = (offset + size, offset);
        self.stretch_used += size;
        (offset, size)
    }

    /// Moves to the next stretch when the current one is used up.
    fn stride(&mut self) {
        let Some(strides) = self.strides else { return };
        if self.stretch_used >= strides.used_bytes {
            self.stretch_used = 0;
            self.stretch += strides.length_bytes + strides.skipped_bytes;
            if self.stretch.saturating_add(self.room_bytes) > self.region.len_bytes {
                self.stretch = 0;
            }
            self.next = [self.stretch; 3];
        }
    }

    /// First byte and end of the current range of requests.
    fn bounds(&self) -> (u64, u64) {
        let end = self.region.len_bytes;
        match self.strides {
            Some(strides) => (self.stretch, end.min(self.stretch.saturating_add(strides.length_bytes))),
            None => (0, end),
        }
    }

    fn following(&self, index: usize, gap_bytes: i64) -> u64 {
        let (begin, end) = self.bounds();
        let (next, least) = (self.next[index], self.sizes[index].min());
        let at = match gap_bytes {
            // fio begins at the beginning even for descending addresses.
            0 => Some(next),
            _ if next == begin => Some(next),
            _ => next.checked_add_signed(gap_bytes).or_else(|| end.checked_add_signed(gap_bytes)),
        };
        at.filter(|at| *at >= begin && at.saturating_add(least) <= end).unwrap_or(begin)
    }

    fn jump(&mut self, index: usize) -> u64 {
        let (begin, end) = self.bounds();
        let (align, least) = (self.align[index], self.sizes[index].min());
        if let Some(once) = &self.once {
            let place = once.at(self.placed);
            self.placed += 1;
            return place * least;
        }
        // A stretch at the end of the region may be shorter than a block.
        let count = end.saturating_sub(begin).saturating_sub(least) / align + 1;
        let random = &mut self.random;
        let place = match &self.distribution {
            Distribution::Uniform => random.below(count),
            Distribution::Zipf(exponent) => Addresses::Zipf { exponent: *exponent }.choose(count, random),
            Distribution::Pareto(power) => {
                let exponent = power.ln() / (1.0 - power).ln();
                scattered((((count - 1) as f64) * random.unit().powf(exponent)) as u64, count)
            }
            Distribution::Normal(percent) => {
                let mean = (0..12).map(|_| random.unit()).sum::<f64>() / 12.0;
                let at = mean + (random.unit() - 0.5) * percent / 100.0;
                scattered((at.rem_euclid(1.0) * count as f64) as u64 % count, count)
            }
            Distribution::Zoned(zones) => zoned(zones, count, random, |share| share / 100.0 * count as f64),
            Distribution::ZonedBytes(zones) => zoned(zones, count, random, |bytes| bytes as f64 / align as f64),
        };
        begin + place * align
    }
}

/// A place of `count` in a random zone; `size_of` gives the size of a zone in places.
fn zoned<T: Copy>(zones: &[(f64, T)], count: u64, random: &mut RandomStream, size_of: impl Fn(T) -> f64) -> u64 {
    let mut left = random.unit() * 100.0;
    let mut begin = 0.0;
    let (mut zone, mut size) = (0.0, count as f64);
    for (share, of_zone) in zones {
        (zone, size) = (begin, size_of(*of_zone));
        if left < *share {
            break;
        }
        left -= share;
        begin += size;
    }
    let first = (zone as u64).min(count - 1);
    let places = (size as u64).clamp(1, count - first);
    first + random.below(places)
}
