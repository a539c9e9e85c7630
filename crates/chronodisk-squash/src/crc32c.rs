//! CRC-32C (the polynomial of Castagnoli), as iSCSI, ext4, btrfs, XFS and images of ours use it.
//!
//! Every kept block is summed when it is written and when it is read; so vector instructions are used where the
//! processor has them. Tests compare with another implementation.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The checksum of the bytes that `sum` is of, followed by `bytes`.
pub(crate) fn crc32c_append(sum: u32, bytes: &[u8]) -> u32 {
    // The register is the checksum before its last inversion.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!sum));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn another_implementation_agrees(bytes in prop::collection::vec(any::<u8>(), 0..9000), cut: usize) {
            let (head, tail) = bytes.split_at(cut % (bytes.len() + 1));
            prop_assert_eq!(super::crc32c(&bytes), ::crc32c::crc32c(&bytes));
            prop_assert_eq!(super::crc32c_append(super::crc32c(head), tail), ::crc32c::crc32c(&bytes));
        }
    }
}
