//! Any bytes as the two files of a squashed image: opened or refused, never a panic; what opens can be used.
//!
//! The input's first two bytes are the length of the map (little-endian, in units of 8 bytes); the rest is
//! the image. Where checksums are they are made right, so that what is behind them is reached, unless a length is odd:
//! the map's, or that of the whole input.
#![no_main]

use chronodisk_store::squash::{ImageInfo, SquashOptions, SquashStore};
use chronodisk_store::Store;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[low, high], rest)) = input.split_first_chunk() else { return };
    let (map, image) = rest.split_at((usize::from(u16::from_le_bytes([low, high])) * 8).min(rest.len()));
    let (mut map, mut image) = (map.to_vec(), image.to_vec());
    if low & 1 == 0 && input.len() & 1 == 0 {
        sign(&mut image, 0, 48);
        sign(&mut map, 0, 32);
        let mut at = MAP_HEADER_BYTES;
        while let Some(&[low, high]) = map.get(at + 4..at + 6) {
            let behind = at + RECORD_BYTES * (1 + usize::from(u16::from_le_bytes([low, high])));
            let end = behind.min(map.len());
            if let Some(entries) = map.get(at + RECORD_BYTES..end) {
                let checksum = crc32c::crc32c(entries);
                map[at + 24..at + 28].copy_from_slice(&checksum.to_le_bytes());
            }
            sign(&mut map, at, 28);
            at = behind;
        }
    }
    let path = std::env::temp_dir().join(format!("chronodisk-fuzz-{}", std::process::id()));
    let map_path = path.with_extension("map");
    std::fs::write(&path, &image).expect("a file");
    std::fs::write(&map_path, &map).expect("a file");
    if let Ok(info) = ImageInfo::read(&path) {
        if let Ok(mut store) = SquashStore::open(&path, info.capacity_bytes, &SquashOptions::default()) {
            let mut bytes = [0; 8192];
            for offset_bytes in [0, info.capacity_bytes / 2, info.capacity_bytes.saturating_sub(8192)] {
                // A compressed block may be damaged.
                let _ = store.read(offset_bytes, &mut bytes);
            }
            let _ = store.write(info.capacity_bytes / 3, &[7; 5000]);
            let _ = store.close();
        }
    }
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_file(&map_path);
});

/// Of the map's own header, and of a record's header and each of its entries.
const MAP_HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 32;

/// Writes the checksum of `len` bytes from `at` on behind them, if there is room.
fn sign(bytes: &mut [u8], at: usize, len: usize) {
    if let Some(signed) = bytes.get_mut(at..at + len + 4) {
        let checksum = crc32c::crc32c(&signed[..len]);
        signed[len..].copy_from_slice(&checksum.to_le_bytes());
    }
}
