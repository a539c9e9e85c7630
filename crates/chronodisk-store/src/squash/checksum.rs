//! Sectors with a given CRC-32C.

/// The polynomial of Castagnoli, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Sets the last four bytes so that the CRC-32C of all bytes is `sum`.
///
/// Four bytes pass through the register as one word that is added to it and then shifted out of it; that can be
/// undone step by step, from the register as it must be at the end.
pub(crate) fn forge(bytes: &mut [u8], sum: u32) {
    let (head, tail) = bytes.split_last_chunk_mut::<4>().expect("a sector has four bytes");
    let wanted = (0..32).fold(!sum, |register, _| match register & 1 << 31 {
        0 => register << 1,
        _ => (register ^ POLYNOMIAL) << 1 | 1,
    });
    // The register is the checksum before its last inversion.
    *tail = (!crc32c::crc32c(head) ^ wanted).to_le_bytes();
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
