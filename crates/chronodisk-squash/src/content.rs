//! Generated contents of squashed blocks.

use super::UNIT_BYTES;

/// Kind of generated contents, for blocks whose bytes were not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentKind {
    /// Zeros.
    #[default]
    Zeros,
    /// Random bytes that follow from the seed and the address.
    Random,
    /// Lines of English words that follow from the seed and the address.
    Text,
}

impl ContentKind {
    /// Every kind.
    pub const ALL: [ContentKind; 3] = [ContentKind::Zeros, ContentKind::Random, ContentKind::Text];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ContentKind::Zeros => "zeros",
            ContentKind::Random => "random",
            ContentKind::Text => "text",
        }
    }

    /// Its code in an image's header.
    pub(crate) fn code(self) -> u8 {
        match self {
            ContentKind::Zeros => 0,
            ContentKind::Random => 1,
            ContentKind::Text => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        ContentKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// A kind of content and its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) kind: ContentKind,
    pub(crate) seed: u64,
}

impl Content {
    /// Fills `bytes` with the unit's generated content from `skip` bytes on; both lie in one unit.
    pub(crate) fn fill(self, unit: u64, skip: usize, bytes: &mut [u8]) {
        debug_assert!(skip + bytes.len() <= UNIT_BYTES as usize);
        match self.kind {
            ContentKind::Zeros => bytes.fill(0),
            ContentKind::Random => {
                let mut whole = [0; UNIT_BYTES as usize];
                let mut numbers = Numbers::of(self.seed, unit);
                for word in whole.chunks_exact_mut(8) {
                    word.copy_from_slice(&numbers.next().to_le_bytes());
                }
                bytes.copy_from_slice(&whole[skip..skip + bytes.len()]);
            }
            ContentKind::Text => {
                let whole = text(&mut Numbers::of(self.seed, unit));
                bytes.copy_from_slice(&whole[skip..skip + bytes.len()]);
            }
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): each
/// unit's numbers begin anywhere at once, which a stream does not allow.
struct Numbers(u64);

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Numbers {
    fn of(seed: u64, unit: u64) -> Self {
        // Mixed twice, so that neither neighbouring units nor neighbouring seeds share numbers.
        Numbers(mix(mix(seed.wrapping_add(GAMMA)) ^ unit.wrapping_mul(GAMMA)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }
}

/// The seed of one of many things that a seed is for.
pub(crate) fn seed_of(seed: u64, which: u64) -> u64 {
    mix(seed ^ mix(which.wrapping_add(GAMMA)))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Lines of at most 72 characters; the unit ends with a line's end.
fn text(numbers: &mut Numbers) -> [u8; UNIT_BYTES as usize] {
    let mut page = [b'\n'; UNIT_BYTES as usize];
    let (mut at, mut column) = (0, 0);
    let mut bits = 0u64;
    loop {
        if bits == 0 {
            bits = numbers.next() | 1 << 63;
        }
        let word = WORDS[(bits & 63) as usize];
        bits >>= 6;
        // The marker that was set above is all that is left: draw again.
        if bits <= 0b111 {
            bits = 0;
        }
        let break_line = column + word.len() + 1 > 72;
        if at + word.len() + 2 > page.len() {
            return page;
        }
        if column > 0 {
            page[at] = if break_line { b'\n' } else { b' ' };
            at += 1;
        }
        if break_line {
            column = 0;
        }
        page[at..at + word.len()].copy_from_slice(word.as_bytes());
        at += word.len();
        column += word.len() + 1;
    }
}

const WORDS: [&str; 64] = [
    "the", "of", "and", "a", "to", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with", "his", "they",
    "at", "be", "this", "from", "have", "or", "one", "had", "by", "word", "but", "not", "what", "all", "were", "we",
    "when", "your", "can", "said", "there", "use", "each", "which", "she", "how", "their", "if", "will", "up", "other",
    "about", "out", "many", "then", "them", "these", "some", "her", "would", "make", "like", "him", "into", "time",
    "has", "look",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn page(kind: ContentKind, seed: u64, unit: u64) -> Vec<u8> {
        let mut bytes = vec![1; UNIT_BYTES as usize];
        Content { kind, seed }.fill(unit, 0, &mut bytes);
        bytes
    }

    #[test]
    fn content_follows_from_seed_and_address_alone() {
        assert!(page(ContentKind::Zeros, 1, 7).iter().all(|&byte| byte == 0));
        for kind in [ContentKind::Random, ContentKind::Text] {
            let whole = page(kind, 1, 7);
            assert_eq!(whole, page(kind, 1, 7));
            assert_ne!(whole, page(kind, 2, 7));
            assert_ne!(whole, page(kind, 1, 8));
            let mut part = [0; 100];
            Content { kind, seed: 1 }.fill(7, 1000, &mut part);
            assert_eq!(part, whole[1000..1100]);
        }
    }

    #[test]
    fn text_is_lines_of_words() {
        let bytes = page(ContentKind::Text, 3, 9);
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.ends_with('\n') && text.trim_end().len() > 4080);
        assert!(text.lines().all(|line| line.len() <= 72));
        assert!(text.split_whitespace().all(|word| WORDS.contains(&word)));
    }

    #[test]
    fn random_bytes_are_evenly_spread() {
        let mut counts = [0u32; 256];
        for unit in 0..64 {
            page(ContentKind::Random, 5, unit).iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        }
        // 1024 expected of each, with a standard deviation of 32.
        assert!(counts.iter().all(|&count| (1024 - 200..1024 + 200).contains(&count)), "{counts:?}");
    }
}
