//! Sectors with a given CRC-32C.

use crate::crc32c;

/// The polynomial of Castagnoli, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Sets the last four bytes so that the CRC-32C of all bytes is `sum`.
///
/// The last four bytes are XORed into the register as one word, which is then shifted out. These steps can be undone
/// one by one, from the register's required final state.
pub(crate) fn forge(bytes: &mut [u8], sum: u32) {
    let (head, tail) = bytes.split_last_chunk_mut::<4>().expect("a sector has four bytes");
    let wanted = (0..32).fold(!sum, |register, _| match register & 1 << 31 {
        0 => register << 1,
        _ => (register ^ POLYNOMIAL) << 1 | 1,
    });
    // The register is the checksum before its last inversion.
    *tail = (!crc32c::crc32c(head) ^ wanted).to_le_bytes();
}

/// Finds bits for which `crc` is `sum`. As CRCs are, `crc` is an affine function of the bits. `None` if no choice of
/// `count` (at most 64) bits gives `sum`.
pub(crate) fn solve(count: u32, crc: impl Fn(u64) -> u32, sum: u32) -> Option<u64> {
    let without = crc(0);
    // By highest bit: a change of the checksum with this highest bit, and the bits that cause it.
    let mut basis = [(0, 0); 32];
    for bit in (0..count).map(|index| 1 << index) {
        let reduced = reduce((crc(bit) ^ without, bit), &basis);
        if reduced.0 != 0 {
            basis[reduced.0.ilog2() as usize] = reduced;
        }
    }
    let (rest, bits) = reduce((sum ^ without, 0), &basis);
    (rest == 0).then_some(bits)
}

/// Rest of a change after reduction by a basis.
fn reduce((mut change, mut bits): (u32, u64), basis: &[(u32, u64); 32]) -> (u32, u64) {
    while let Some(&(other, other_bits)) = change.checked_ilog2().map(|highest| &basis[highest as usize]) {
        if other == 0 {
            break;
        }
        change ^= other;
        bits ^= other_bits;
    }
    (change, bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_right_stays_as_it_is() {
        let mut bytes = *b"123456789";
        forge(&mut bytes, 0xE306_9283);
        assert_eq!(&bytes, b"123456789");
    }

    #[test]
    fn bits_that_change_nothing_don_t_solve_anything() {
        assert_eq!(solve(8, |bits| bits as u32 & 6 ^ 1, 3), Some(2));
        assert_eq!(solve(8, |bits| bits as u32 & 6 ^ 1, 8), None);
    }

    proptest! {
        #[test]
        fn any_bytes_get_any_checksum(bytes in prop::collection::vec(any::<u8>(), 4..5000), sum: u32) {
            let mut forged = bytes.clone();
            forge(&mut forged, sum);
            prop_assert_eq!(crc32c::crc32c(&forged), sum);
            prop_assert_eq!(&forged[..bytes.len() - 4], &bytes[..bytes.len() - 4]);
        }
    }
}
