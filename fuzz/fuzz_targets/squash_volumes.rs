//! A physical volume of LVM whose metadata are the input's, with the right checksums: the classifier stays within its
//! bounds, and every sector reads as it was written, or as made up.
//!
//! The input begins with the length of the metadata (2 bytes, little-endian) and these; a list of records follows, see
//! [`squash::Twin::play`].
#![no_main]

use libfuzzer_sys::fuzz_target;

mod squash;

const SECTOR_BYTES: usize = 512;
/// The header of the ring of metadata, and what the ring takes.
const AREA: (u64, u64) = (4096, 508 << 10);
const UUID: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

fuzz_target!(|input: &[u8]| {
    let (len, rest) = input.split_at(input.len().min(2));
    let len = usize::from(u16::from_le_bytes([len.first().copied().unwrap_or(0), len.get(1).copied().unwrap_or(0)]));
    let (text, records) = rest.split_at(len.min(rest.len()));
    let mut twin = squash::Twin::new();
    let mut sectors = text.to_vec();
    sectors.resize(text.len().next_multiple_of(SECTOR_BYTES), 0);
    twin.change(3, AREA.0 + SECTOR_BYTES as u64, &sectors);
    twin.change(3, AREA.0, &header(text));
    twin.change(3, SECTOR_BYTES as u64, &label());
    twin.play(records);
    twin.check();
});

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

fn label() -> Vec<u8> {
    let mut sector = vec![0; SECTOR_BYTES];
    put(&mut sector, 0, b"LABELONE");
    put(&mut sector, 20, &32u32.to_le_bytes());
    put(&mut sector, 24, b"LVM2 001");
    put(&mut sector, 32, UUID);
    for (index, number) in [squash::CAPACITY_BYTES, 1 << 20, 0, 0, 0, AREA.0, AREA.1].into_iter().enumerate() {
        put(&mut sector, 64 + 8 * index, &number.to_le_bytes());
    }
    let sum = checksum(&sector[20..]);
    put(&mut sector, 16, &sum.to_le_bytes());
    sector
}

fn header(text: &[u8]) -> Vec<u8> {
    let mut sector = vec![0; SECTOR_BYTES];
    put(&mut sector, 4, b" LVM2 x[5A%r0N*>");
    for (at, number) in [(24, AREA.0), (32, AREA.1), (40, SECTOR_BYTES as u64), (48, text.len() as u64)] {
        put(&mut sector, at, &number.to_le_bytes());
    }
    put(&mut sector, 56, &checksum(text).to_le_bytes());
    let sum = checksum(&sector[4..]);
    put(&mut sector, 0, &sum.to_le_bytes());
    sector
}

/// CRC-32 with LVM's beginning, and not inverted at its end.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xF597_A6CF, |sum: u32, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 })
    })
}
