//! Sizes of blocks.

use chronodisk_sim::RandomStream;

/// How large the blocks of an operation are.
#[derive(Clone, Debug, PartialEq)]
pub enum BlockSizes {
    /// All of this size in bytes.
    One(u64),
    /// Multiples of the least size, as fio draws them: each equally often if the largest is a multiple, too.
    Range {
        /// Least size in bytes.
        min: u64,
        /// Largest size in bytes.
        max: u64,
    },
    /// These sizes in bytes, each for so many hundredths of the blocks. The last one gets the rest.
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

    /// All that may come; of a range the ends.
    pub(super) fn all(&self) -> Vec<u64> {
        match self {
            BlockSizes::One(bytes) => vec![*bytes],
            BlockSizes::Range { min, max } => vec![*min, *max],
            BlockSizes::Split(sizes) => sizes.iter().map(|(bytes, _)| *bytes).collect(),
        }
    }

    /// The only one, if there is one only.
    #[must_use]
    pub fn only(&self) -> Option<u64> {
        let all = self.all();
        all.iter().all(|bytes| *bytes == all[0]).then_some(all[0])
    }

    /// One of at most `room` bytes, which holds the least.
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

/// At the end of a region few of the sizes may fit.
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
