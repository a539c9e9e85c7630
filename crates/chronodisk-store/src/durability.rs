//! Promises of a completed request.

/// The durability contract of a store that outlives its process.
///
/// A store keeps the emulated device's promises to its user. A device without a volatile cache promises that a
/// completed write is safe, one with such a cache that a completed flush is. A store is flushed only if its device has
/// a cache, so a store of a write-through device must not wait for a flush.
///
/// | `write_through` | `power_cut` | safe | against |
/// |---|---|---|---|
/// | no | no | writes before a completed flush | the end of any process |
/// | yes | no | each completed write, zeroing and discard | the end of any process |
/// | no | yes | writes before a completed flush | a power cut or a crash of the host, too |
/// | yes | yes | each completed write, zeroing and discard | a power cut or a crash of the host, too |
///
/// A failed flush stays failed until the store is reopened: the content of the host's page cache is unknown after it.
/// Data without a promise may survive completely, partly or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durability {
    /// The device has no volatile cache.
    pub write_through: bool,
    /// Safe data survive a power cut of the host, not only the end of this process.
    pub power_cut: bool,
}
