//! Sizes of blocks.

use chronodisk_sim::RandomStream;

/// Sizes of an operation's blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockSizes {
    /// All blocks have this size in bytes.
    One(u64),
    /// Multiples of the least size, as fio draws them: each equally often if the largest is a multiple, too.
    Range {
        /// Least size in bytes.
        min: u64,
        /// Largest size in bytes.
        max: u64,
    },
    /// These sizes in bytes, each for a share of the blocks in per cent. The last one gets the rest.
    Split(Vec<(u64, f64)>),
}

impl BlockSizes {
    /// The least of them.
    #[must_use]
    pub fn min(&self) -> u64 {
        match self {
            BlockSizes::One(bytes) => *bytes,
            BlockSizes::Range { min, .. } => *min,
            BlockSizes::Split(sizes) => sizes.iter().map(|(bytes, _)| *bytes).min().unwrap_or_default(),
        }
    }

    /// All possible sizes; for a range its ends.
    pub(super) fn all(&self) -> Vec<u64> {
        match self {
            BlockSizes::One(bytes) => vec![*bytes],
            BlockSizes::Range { min, max } => vec![*min, *max],
            BlockSizes::Split(sizes) => sizes.iter().map(|(bytes, _)| *bytes).collect(),
        }
    }

    /// The single size; `None` if there are several.
    #[must_use]
    pub fn only(&self) -> Option<u64> {
        let all = self.all();
        all.iter().all(|bytes| *bytes == all[0]).then_some(all[0])
    }

    /// A random size of at most `room` bytes, which is enough for the smallest.
    pub(super) fn draw(&self, room: u64, random: &mut RandomStream) -> u64 {
        match self {
            BlockSizes::One(bytes) => *bytes,
            BlockSizes::Range { min, max } if min == max => *min,
            BlockSizes::Range { min, max } => {
                for _ in 0..DRAWS_MAX {
                    let bytes = min + (*max as f64 * random.unit()) as u64;
                    let bytes = (bytes / min * min).min(*max);
                    if bytes <= room {
                        return bytes;
                    }
                }
                *min
            }
            BlockSizes::Split(sizes) => {
                for _ in 0..DRAWS_MAX {
                    let bytes = drawn(sizes, random);
                    if bytes <= room {
                        return bytes;
                    }
                }
                self.min()
            }
        }
    }
}

/// Most draws: at the end of a region few of the sizes may fit.
const DRAWS_MAX: u32 = 1_000;

fn drawn(sizes: &[(u64, f64)], random: &mut RandomStream) -> u64 {
    let mut left = random.unit() * 100.0;
    for (bytes, percent) in sizes {
        if left < *percent {
            return *bytes;
        }
        left -= percent;
    }
    sizes.last().map_or(0, |(bytes, _)| *bytes)
}
