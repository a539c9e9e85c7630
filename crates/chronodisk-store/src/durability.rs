//! Promises of a completed request.

/// The durability contract of a store that outlives its process.
///
/// What the emulated device promises its user, the store keeps. A device without a volatile cache promises that a
/// completed write is safe, one with such a cache that a completed flush is. A store is asked to flush only if its
/// device has a cache, so a store of a write-through device must not wait for that.
///
/// | `write_through` | `power_cut` | safe | against |
/// |---|---|---|---|
/// | no | no | what was written before a completed flush | the end of any process |
/// | yes | no | each completed write, zeroing and discard | the end of any process |
/// | no | yes | what was written before a completed flush | a power cut or a crash of the host, too |
/// | yes | yes | each completed write, zeroing and discard | a power cut or a crash of the host, too |
///
/// A flush that failed stays failed until the store is opened anew: afterwards nobody knows what the host's page cache
/// still holds. What was not promised may be there afterwards, in part or in whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// The device has no volatile cache.
    pub write_through: bool,
    /// What is safe survives a power cut of the host, not only the end of this process.
    pub power_cut: bool,
}
