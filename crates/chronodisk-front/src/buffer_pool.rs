//! Buffers that are used again.

use std::sync::Arc;

use crate::memory::{Claim, MemoryLimit};

/// Memory for read data, kept for reuse: a buffer of each power of two serves lengths up to it.
#[derive(Debug)]
pub(crate) struct BufferPool {
    free: [Vec<Box<[u8]>>; CLASSES],
    kept_bytes: usize,
    /// Most memory kept for reuse; the rest is freed at once.
    kept_bytes_max: usize,
    /// Covers lent and pooled buffers.
    claim: Claim,
}

/// Buffers from 4 KiB to 32 MiB.
const CLASSES: usize = 14;
const CLASS_BYTES_MIN: usize = 4096;

impl BufferPool {
    pub fn new(limit: &Arc<MemoryLimit>, kept_bytes_max: usize) -> Self {
        BufferPool { free: Default::default(), kept_bytes: 0, kept_bytes_max, claim: Claim::new(limit) }
    }

    /// A buffer of at least `len` bytes, with contents of an earlier use. `None` without memory for it.
    pub fn take(&mut self, len: usize) -> Option<Box<[u8]>> {
        let class = class_of(len);
        if let Some(buffer) = self.free[class].pop() {
            self.kept_bytes -= buffer.len();
            return Some(buffer);
        }
        let bytes = CLASS_BYTES_MIN << class;
        if !self.claim.try_grow_to(self.claim.bytes() + bytes as u64) {
            self.release();
            if !self.claim.try_grow_to(self.claim.bytes() + bytes as u64) {
                return None;
            }
        }
        Some(vec![0; bytes].into_boxed_slice())
    }

    /// Takes a buffer back for reuse; an empty one is ignored.
    pub fn give(&mut self, buffer: Box<[u8]>) {
        if buffer.is_empty() {
            return;
        }
        if self.kept_bytes + buffer.len() > self.kept_bytes_max {
            self.claim.shrink_to(self.claim.bytes() - buffer.len() as u64);
            return;
        }
        self.kept_bytes += buffer.len();
        self.free[class_of(buffer.len())].push(buffer);
    }

    /// Frees all memory kept for reuse.
    pub fn release(&mut self) {
        self.free = Default::default();
        self.claim.shrink_to(self.claim.bytes() - self.kept_bytes as u64);
        self.kept_bytes = 0;
    }

    /// Memory that is claimed.
    pub fn held_bytes(&self) -> u64 {
        self.claim.bytes()
    }
}

fn class_of(len: usize) -> usize {
    let bytes = len.max(CLASS_BYTES_MIN).next_power_of_two();
    let class = (bytes / CLASS_BYTES_MIN).trailing_zeros() as usize;
    assert!(class < CLASSES, "a request's length is bounded");
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT_BYTES_MAX: usize = 64 << 20;

    #[test]
    fn buffers_come_back_until_enough_wait() {
        let limit = Arc::new(MemoryLimit::new(128 << 20));
        let mut pool = BufferPool::new(&limit, KEPT_BYTES_MAX);
        let buffer = pool.take(5000).unwrap();
        assert_eq!(buffer.len(), 8192);
        let address = buffer.as_ptr();
        pool.give(buffer);
        let again = pool.take(8192).unwrap();
        assert_eq!(again.as_ptr(), address);
        for _ in 0..3 {
            let buffers: Vec<_> = (0..3).map(|_| pool.take(32 << 20).unwrap()).collect();
            buffers.into_iter().for_each(|buffer| pool.give(buffer));
            assert_eq!(pool.kept_bytes, KEPT_BYTES_MAX);
        }
        pool.give(Box::default());
        pool.give(again);
        pool.release();
        assert_eq!((pool.kept_bytes, limit.used_bytes()), (0, 0));
        let taken: Vec<_> = (0..5).map(|_| pool.take(32 << 20)).collect();
        assert_eq!(taken.iter().flatten().count(), 4, "no more than the limit");
    }
}
