//! CRC-32 of IEEE 802.3, which partition tables and gzip use.

const POLYNOMIAL: u32 = 0xEDB8_8320;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = value >> 1 ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

/// The register before the first byte; the checksum is what the register holds after the last one, inverted.
pub(crate) const REGISTER_FIRST: u32 = !0;

/// The register after `bytes`, from what it was before.
pub(crate) fn register_after(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, &byte| TABLE[usize::from(register as u8 ^ byte)] ^ register >> 8)
}

/// The checksum of `bytes`.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !register_after(REGISTER_FIRST, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn the_register_s_own_bytes_make_it_zero() {
        let register = register_after(REGISTER_FIRST, b"whatever");
        assert_eq!(register_after(register, &register.to_le_bytes()), 0);
    }
}
