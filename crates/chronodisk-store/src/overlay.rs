//! Changes in memory over a file that is only read.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::store_file::io_error;
use crate::{FileOperation, Store, StoreError, check_range};

/// Unit of the memory.
const BLOCK_BYTES: u64 = 4096;

/// A device whose contents are a file and changes in memory. The file stays as it is; beyond its end are zeros.
///
/// Several devices can share one file.
pub struct OverlayStore {
    base: File,
    path: PathBuf,
    capacity_bytes: u64,
    /// Changed blocks, by their number.
    blocks: BTreeMap<u64, Box<[u8]>>,
    budget_bytes: u64,
}

impl OverlayStore {
    /// Opens `base` as a device of `capacity_bytes`, with memory of at most `budget_bytes` for changes.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(base: impl AsRef<Path>, capacity_bytes: u64, budget_bytes: u64) -> Result<Self, StoreError> {
        let path = base.as_ref().to_owned();
        let base = File::open(&path).map_err(|source| io_error(&path, FileOperation::Open, 0, 0, source))?;
        Ok(OverlayStore { base, path, capacity_bytes, blocks: BTreeMap::new(), budget_bytes })
    }

    fn used_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    fn read_base(&self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset_bytes + done as u64;
            match self.base.read_at(&mut bytes[done..], at) {
                Ok(0) => {
                    bytes[done..].fill(0);
                    return Ok(());
                }
                Ok(got) => done += got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let len_bytes = bytes.len() as u64;
                    return Err(io_error(&self.path, FileOperation::Read, offset_bytes, len_bytes, source));
                }
            }
        }
        Ok(())
    }

    /// The block for a change, copied from the file at its first change.
    fn block_mut(&mut self, number: u64) -> Result<&mut [u8], StoreError> {
        if !self.blocks.contains_key(&number) {
            if self.used_bytes() + BLOCK_BYTES > self.budget_bytes {
                return Err(StoreError::BudgetExceeded {
                    offset_bytes: number * BLOCK_BYTES,
                    needed_bytes: BLOCK_BYTES,
                    allocated_bytes: self.used_bytes(),
                    budget_bytes: self.budget_bytes,
                });
            }
            let mut block = vec![0; BLOCK_BYTES as usize].into_boxed_slice();
            self.read_base(number * BLOCK_BYTES, &mut block)?;
            self.blocks.insert(number, block);
        }
        Ok(self.blocks.get_mut(&number).expect("inserted above"))
    }
}

/// The pieces of a range in blocks: number of the block, offset in it, and length.
fn pieces(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end_bytes = offset_bytes + len_bytes;
    let mut at = offset_bytes;
    std::iter::from_fn(move || {
        let (number, inside) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
        let len = (BLOCK_BYTES - inside).min(end_bytes - at);
        at += len;
        (len > 0).then_some((number, inside as usize, len as usize))
    })
}

impl Store for OverlayStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, bytes.len() as u64)?;
        self.read_base(offset_bytes, bytes)?;
        let mut rest = bytes;
        for (number, inside, len) in pieces(offset_bytes, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(len);
            if let Some(block) = self.blocks.get(&number) {
                now.copy_from_slice(&block[inside..inside + len]);
            }
            rest = later;
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, bytes.len() as u64)?;
        let mut rest = bytes;
        for (number, inside, len) in pieces(offset_bytes, bytes.len() as u64) {
            let (now, later) = rest.split_at(len);
            self.block_mut(number)?[inside..inside + len].copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.reserve_zeroes(offset_bytes, len_bytes)
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.used_bytes())
    }

    fn budget_bytes(&self) -> Option<u64> {
        Some(self.budget_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, RamStore};

    #[test]
    fn changes_are_in_memory_and_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base");
        let base: Vec<u8> = (0..10_000_u32).map(|at| at as u8).collect();
        std::fs::write(&path, &base).unwrap();
        let mut overlay = OverlayStore::open(&path, 64 << 10, 1 << 20).unwrap();
        let mut expected = RamStore::new(64 << 10, 1 << 20);
        expected.write(0, &base).unwrap();
        for change in
            [Change::Write(4000, vec![7; 200]), Change::Discard(9000, 9000), Change::Write(65_000, vec![1; 536])]
        {
            change.apply(&mut overlay).unwrap();
            change.apply(&mut expected).unwrap();
        }
        for (offset, len) in [(0, 64 << 10), (4095, 2), (9999, 5000)] {
            let (mut found, mut wanted) = (vec![1; len], vec![2; len]);
            overlay.read(offset, &mut found).unwrap();
            expected.read(offset, &mut wanted).unwrap();
            assert!(found == wanted, "{len} bytes from {offset} on");
        }
        assert_eq!(std::fs::read(&path).unwrap(), base);
    }

    #[test]
    fn the_budget_bounds_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("base");
        std::fs::write(&path, []).unwrap();
        let mut overlay = OverlayStore::open(&path, 64 << 10, 2 * BLOCK_BYTES).unwrap();
        overlay.write(4000, &[1; 200]).unwrap();
        assert!(matches!(overlay.write(8192, &[1]), Err(StoreError::BudgetExceeded { .. })));
        assert!(matches!(overlay.write(64 << 10, &[1]), Err(StoreError::OutOfRange { .. })));
    }
}
