//! Any bytes as the two files of a squashed image: opened or refused, never a panic; what opens can be used.
//!
//! The input's first two bytes are the length of the map (little-endian, in units of 8 bytes); the rest is
//! the image.
#![no_main]

use chronodisk_store::squash::{ImageInfo, SquashOptions, SquashStore};
use chronodisk_store::Store;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[low, high], rest)) = input.split_first_chunk() else { return };
    let (map, image) = rest.split_at((usize::from(u16::from_le_bytes([low, high])) * 8).min(rest.len()));
    let path = std::env::temp_dir().join(format!("chronodisk-fuzz-{}", std::process::id()));
    let map_path = path.with_extension("map");
    std::fs::write(&path, image).expect("a file");
    std::fs::write(&map_path, map).expect("a file");
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
