//! Hashes of a run's inputs in its result.

/// The 64-bit FNV-1a hash (Fowler, Noll, Vo), after its name: it finds mistakes, not forgeries.
pub(crate) fn hash_of(bytes: impl Iterator<Item = u8>) -> String {
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("fnv1a64:{hash:016x}")
}
