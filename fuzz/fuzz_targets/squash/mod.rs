//! What the fuzzed classifiers share: a store that records are written to, beside all that was written.

use chronodisk_squash::{SquashOptions, SquashStore};
use chronodisk_store::Store;

#[allow(dead_code, reason = "one target has another one")]
pub const CAPACITY_BYTES: u64 = 8 << 20;
const SECTOR_BYTES: usize = 512;
const UNIT_BYTES: usize = 4096;

pub struct Twin {
    store: SquashStore,
    full: Vec<u8>,
}

impl Twin {
    #[allow(dead_code, reason = "some targets have other options")]
    pub fn new() -> Self {
        Twin::with(&SquashOptions::default())
    }

    /// Goes by names and paths if `choice` is odd, and keeps some files unless the next bit is there, too. What is made
    /// up by names is zeros, as without them.
    #[allow(dead_code, reason = "some targets have other options")]
    pub fn by_choice(choice: u8) -> Self {
        let rules = match choice & 3 {
            1 => &["*.db=keep", "/**/f*/*=zeros"][..],
            3 => &["*.db=zeros", "/**/f*/*=zeros"],
            _ => &[],
        };
        let names = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
        Twin::with(&SquashOptions { names, ..SquashOptions::default() })
    }

    #[allow(dead_code, reason = "one target has another capacity")]
    pub fn with(options: &SquashOptions) -> Self {
        Twin::of_capacity(CAPACITY_BYTES, options)
    }

    pub fn of_capacity(capacity_bytes: u64, options: &SquashOptions) -> Self {
        let options = SquashOptions { unclassified_bytes: 1 << 20, ..options.clone() };
        let store = SquashStore::in_memory(capacity_bytes, capacity_bytes, &options);
        Twin { store, full: vec![0; capacity_bytes as usize] }
    }

    /// Plays a list of records: a kind (1 byte), a block of 1 KiB (2 bytes, little-endian), a length (2 bytes), and
    /// as many bytes, whole sectors of which are written there.
    pub fn play(&mut self, input: &[u8]) {
        let mut rest = input;
        while let Some((&[kind, block_low, block_high, len_low, len_high], later)) = rest.split_first_chunk() {
            let len = usize::from(u16::from_le_bytes([len_low, len_high])).min(later.len());
            let (bytes, later) = later.split_at(len);
            rest = later;
            let capacity_bytes = self.full.len() as u64;
            let offset_bytes = u64::from(u16::from_le_bytes([block_low, block_high])) * 1024 % capacity_bytes;
            let len = (len / SECTOR_BYTES * SECTOR_BYTES).min((capacity_bytes - offset_bytes) as usize);
            self.change(kind, offset_bytes, &bytes[..len]);
        }
    }

    pub fn change(&mut self, kind: u8, offset_bytes: u64, bytes: &[u8]) {
        let len_bytes = bytes.len() as u64;
        let full = &mut self.full[offset_bytes as usize..][..bytes.len()];
        match kind % 8 {
            0 => {
                self.store.discard(offset_bytes, len_bytes).expect("in range");
                full.fill(0);
            }
            1 => {
                self.store.write_zeroes(offset_bytes, len_bytes).expect("in range");
                full.fill(0);
            }
            2 => self.store.flush().expect("memory"),
            // A write that finds no room changes nothing.
            _ => {
                if self.store.write(offset_bytes, bytes).is_ok() {
                    full.copy_from_slice(bytes);
                }
            }
        }
    }

    /// The tables are bounded, and every sector reads as it was written, or as made up: zeros, of which the last four
    /// bytes of a block of 4 KiB may be such that its checksum is that of what was written.
    pub fn check(mut self) {
        assert!(self.store.squash_statistics().table_entries < 1 << 22);
        let mut bytes = vec![0; self.full.len()];
        self.store.read(0, &mut bytes).expect("in range");
        for (read, written) in bytes.chunks_exact(UNIT_BYTES).zip(self.full.chunks_exact(UNIT_BYTES)) {
            let sectors = read.chunks_exact(SECTOR_BYTES).zip(written.chunks_exact(SECTOR_BYTES));
            let as_written = sectors.clone().all(|(read, written)| read == written || is_zero(read));
            assert!(as_written || is_zero(&read[..UNIT_BYTES - 4]));
        }
        self.store.close().expect("memory");
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
