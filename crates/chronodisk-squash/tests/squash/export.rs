//! A store's contents as a file.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use chronodisk_store::Store;

/// Writes what a store reads as to a file, without the zeros.
pub fn export(store: &mut dyn Store, path: &Path) {
    let mut file = File::create(path).unwrap();
    file.set_len(store.capacity_bytes()).unwrap();
    let mut at = 0;
    let mut bytes = vec![0; 1 << 20];
    while at < store.capacity_bytes() {
        let extent = store.extent(at, (store.capacity_bytes() - at).min(1 << 20)).unwrap();
        if extent.allocated {
            let part = &mut bytes[..extent.len_bytes as usize];
            store.read(at, part).unwrap();
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(part).unwrap();
        }
        at += extent.len_bytes;
    }
}
