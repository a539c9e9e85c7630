//! Keys and values of login and text PDUs; RFC 7143, section 6.

/// Most bytes of a request's text.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;
/// Most keys of a request.
const KEY_COUNT_MAX: usize = 64;
/// Longest key; 6.1.
const KEY_BYTES_MAX: usize = 63;

/// The keys and values of a text; `None` if it is no such text.
pub(crate) fn pairs(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let items = text.split(|byte| *byte == 0).filter(|item| !item.is_empty());
    let mut pairs = Vec::new();
    for item in items {
        let (key, value) = std::str::from_utf8(item).ok()?.split_once('=')?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX || pairs.len() == KEY_COUNT_MAX {
            return None;
        }
        pairs.push((key, value));
    }
    Some(pairs)
}

/// Appends a key and its value.
pub(crate) fn put(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend(key.as_bytes());
    text.push(b'=');
    text.extend(value.as_bytes());
    text.push(0);
}

/// A number in decimal or, after `0x`, hexadecimal notation.
pub(crate) fn number(value: &str) -> Option<u32> {
    let hex = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((value, 10), |hex| (hex, 16));
    let only_digits = digits.chars().all(|digit| digit.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|_| only_digits)
}

/// Bytes in hexadecimal notation after `0x`, or in base64 after `0b`; 6.1.
pub(crate) fn binary(value: &str) -> Option<Vec<u8>> {
    match value.get(..2)? {
        "0x" | "0X" => from_hexadecimal(&value.as_bytes()[2..]),
        "0b" | "0B" => from_base64(&value.as_bytes()[2..]),
        _ => None,
    }
}

/// Bytes in hexadecimal notation after `0x`.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

fn from_hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    // Two digits are at most 255.
    digits.chunks_exact(2).map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}

fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let is_padded = digits.iter().rev().take_while(|byte| **byte == b'=').count();
    if digits.is_empty() || !digits.len().is_multiple_of(4) || is_padded > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    let mut sum = 0u32;
    for (index, byte) in digits[..digits.len() - is_padded].iter().enumerate() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        sum = sum << 6 | u32::from(value);
        let whole_bits = (index % 4) * 2;
        if whole_bits > 0 {
            // The low bits begin the next byte.
            bytes.push((sum >> (6 - whole_bits)) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_values_are_read() {
        assert_eq!(pairs(b"a=b\0c=\0\0d=e=f"), Some(vec![("a", "b"), ("c", ""), ("d", "e=f")]));
        for wrong in [&b"a\0"[..], b"=b\0", b"\xff=b\0", &[b'k'; 100], &b"a=b\0".repeat(65)] {
            assert_eq!(pairs(wrong), None);
        }
        assert_eq!(["17", "0x1F", "-1", "", "0x", "+1", "4294967296"].map(number)[..3], [Some(17), Some(31), None]);
        assert_eq!(["", "0x", "+1", "4294967296"].map(number), [None; 4]);
        assert_eq!(binary("0x0aFf"), Some(vec![10, 255]));
        assert_eq!(binary("0bTWFu"), Some(b"Man".to_vec()));
        assert_eq!(binary("0bTWE="), Some(b"Ma".to_vec()));
        assert_eq!(binary("0bTQ=="), Some(b"M".to_vec()));
        for wrong in ["", "0", "0x", "0xabc", "0xzz", "0b", "0bTQ", "0bT===", "0b=QQQ", "12", "ü1"] {
            assert_eq!(binary(wrong), None, "{wrong}");
        }
        assert_eq!(hexadecimal(&[1, 255]), "0x01ff");
    }
}
