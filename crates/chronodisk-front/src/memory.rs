//! Limit of the memory that a server's clients use together.
//!
//! A session claims memory before it receives data: the data of a write, or room for the data of a read. At the limit
//! of all sessions the request waits in its socket. A large request claims all its memory at once: two partial claims
//! could wait for each other for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Limit of the memory that a server's sessions hold together for their clients' requests.
#[derive(Debug)]
pub struct MemoryLimit {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    waiting: AtomicUsize,
}

impl MemoryLimit {
    /// A limit in bytes. Small pieces, such as a session's first buffer of 4 KiB, are counted and never refused.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        MemoryLimit { limit_bytes, used_bytes: AtomicU64::new(0), waiting: AtomicUsize::new(0) }
    }

    /// Bytes that sessions hold.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether some session waits for memory.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether sessions hold more than they may, by pieces that are never refused.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.limit_bytes
    }
}

impl Default for MemoryLimit {
    /// No limit is the default.
    fn default() -> Self {
        MemoryLimit::new(u64::MAX)
    }
}

/// Memory that is claimed until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    limit: Arc<MemoryLimit>,
    bytes: u64,
}

impl Claim {
    /// A claim of no memory yet.
    pub fn new(limit: &Arc<MemoryLimit>) -> Self {
        Claim { limit: Arc::clone(limit), bytes: 0 }
    }

    pub fn limit(&self) -> &Arc<MemoryLimit> {
        &self.limit
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Raises the claim to `bytes`; returns false if that exceeds the limit.
    pub fn try_grow_to(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let limit_bytes = self.limit.limit_bytes;
        let fits = |used: u64| used.checked_add(more).filter(|used| more == 0 || *used <= limit_bytes);
        let grown = self.limit.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if grown {
            self.bytes += more;
        }
        grown
    }

    /// Raises the claim to `bytes`, even beyond the limit.
    pub fn grow_to(&mut self, bytes: u64) {
        let more = bytes.saturating_sub(self.bytes);
        self.limit.used_bytes.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
    }

    /// Returns memory beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.limit.used_bytes.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// A session waits for memory, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Shortage(Arc<MemoryLimit>);

impl Shortage {
    pub fn of(limit: &Arc<MemoryLimit>) -> Self {
        limit.waiting.fetch_add(1, Ordering::Relaxed);
        Shortage(Arc::clone(limit))
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_end_with_their_values_and_keep_to_the_limit() {
        let limit = Arc::new(MemoryLimit::new(100));
        let (mut first, mut second) = (Claim::new(&limit), Claim::new(&limit));
        assert!(first.try_grow_to(60) && !second.try_grow_to(41) && second.try_grow_to(40));
        assert!(!limit.is_exceeded());
        second.grow_to(50);
        assert!(limit.is_exceeded() && second.try_grow_to(50), "nothing more is always there");
        second.shrink_to(10);
        assert_eq!(limit.used_bytes(), 70);
        drop(first);
        assert_eq!((limit.used_bytes(), second.bytes()), (10, 10));
        let shortage = Shortage::of(&limit);
        assert!(limit.is_short());
        drop(shortage);
        assert!(!limit.is_short());
    }
}
