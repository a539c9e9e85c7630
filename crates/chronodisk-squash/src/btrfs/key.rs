//! Keys of the items in trees.

use crate::bytes::u64_at;

/// Length of a key on the device.
pub(crate) const KEY_BYTES: usize = 17;
/// The greatest key.
pub(crate) const KEY_LAST: Key = Key::new(u64::MAX, u8::MAX, u64::MAX);

/// A key of an item. Items of a tree are sorted by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) object: u64,
    pub(crate) kind: u8,
    pub(crate) offset: u64,
}

impl Key {
    pub(crate) const fn new(object: u64, kind: u8, offset: u64) -> Self {
        Key { object, kind, offset }
    }

    /// The key at a place that has room for one.
    pub(crate) fn at(bytes: &[u8], at: usize) -> Self {
        Key::new(u64_at(bytes, at), bytes[at + 8], u64_at(bytes, at + 9))
    }
}
