//! Any bytes as the files of a squashed image: opened or refused, never a panic; what opens can be used. Of an image of
//! several devices, each has a map that ends earlier than the one before. Images of older versions are converted first,
//! and damaged ones are repaired.
//!
//! The input's first two bytes are the length of the map (little-endian, in units of 8 bytes); the rest is
//! the image. Where checksums are they are made right, so that what is behind them is reached, unless a length is odd:
//! the map's, or that of the whole input.
#![no_main]

use chronodisk_squash::{ImageInfo, SquashOptions, SquashStore};
use chronodisk_store::Store;
use chronodisk_store::host::{Host, RealHost};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|input: &[u8]| {
    let Some((&[low, high], rest)) = input.split_first_chunk() else { return };
    let (map, image) = rest.split_at((usize::from(u16::from_le_bytes([low, high])) * 8).min(rest.len()));
    let (mut map, mut image) = (map.to_vec(), image.to_vec());
    if low & 1 == 0 && input.len() & 1 == 0 {
        sign(&mut image, 0, 48);
        if let Some(&count) = image.get(34) {
            sign_apart(&mut image, 64, 8 * usize::from(count), 52);
        }
        for device in 0..DEVICES {
            let commit = 1024 + 48 * device;
            if let Some(number) = image.get_mut(commit + 16) {
                *number = device as u8;
            }
            sign(&mut image, commit, 20);
        }
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
    for device in 0..DEVICES {
        let len = map.len().saturating_sub(device * 2 * RECORD_BYTES);
        std::fs::write(path.with_extension(format!("{device}.map")), &map[..len]).expect("a file");
    }
    let host: Arc<dyn Host> = Arc::new(RealHost);
    let _ = chronodisk_squash::upgrade(&host, &path, &mut |_, _| {});
    // One of the newest version has no checksums yet.
    let _ = chronodisk_squash::repair(&host, &path, &mut |_, _| {});
    if let Ok(infos) = ImageInfo::read(&path) {
        let capacities_bytes: Vec<u64> = infos.iter().map(|info| info.capacity_bytes).collect();
        let options = SquashOptions::default();
        let mut stores = match capacities_bytes[..] {
            [capacity_bytes] => SquashStore::open(&path, capacity_bytes, &options).map(|store| vec![store]),
            _ => SquashStore::open_joint(&path, &capacities_bytes, &options),
        };
        for (store, capacity_bytes) in stores.iter_mut().flatten().zip(capacities_bytes) {
            use_store(store, capacity_bytes);
        }
    }
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_file(&map_path);
    let _ = std::fs::remove_file(path.with_extension("sums"));
    (0..DEVICES).for_each(|device| drop(std::fs::remove_file(path.with_extension(format!("{device}.map")))));
});

/// Most devices of an image that can be opened here.
const DEVICES: usize = 3;

fn use_store(store: &mut SquashStore, capacity_bytes: u64) {
    let mut bytes = [0; 8192];
    for offset_bytes in [0, capacity_bytes / 2, capacity_bytes.saturating_sub(8192)] {
        // A compressed block may be damaged.
        let _ = store.read(offset_bytes, &mut bytes);
    }
    let _ = store.write(capacity_bytes / 3, &[7; 5000]);
    let _ = store.close();
}

/// Of the map's own header, and of a record's header and each of its entries.
const MAP_HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 32;

/// Writes the checksum of `len` bytes from `at` on behind them, if there is room.
fn sign(bytes: &mut [u8], at: usize, len: usize) {
    sign_apart(bytes, at, len, at + len);
}

/// Writes it to another place.
fn sign_apart(bytes: &mut [u8], at: usize, len: usize, place: usize) {
    let checksum = bytes.get(at..at + len).map(crc32c::crc32c);
    if let (Some(checksum), Some(signature)) = (checksum, bytes.get_mut(place..place + 4)) {
        signature.copy_from_slice(&checksum.to_le_bytes());
    }
}
