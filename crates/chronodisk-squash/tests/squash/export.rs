//! Exports a store's contents to a file, and chooses the folder of such files.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use chronodisk_store::Store;
use tempfile::TempDir;

/// Space in memory below which image files are put on a disk.
const ROOM_BYTES: u64 = 4 << 30;

/// A folder for images, in memory if there is room: on a disk, writing and deleting them takes most of the tests' time.
pub fn image_folder() -> TempDir {
    let room_bytes = rustix::fs::statvfs("/dev/shm").map_or(0, |it| it.f_bavail * it.f_frsize);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let available_kib: u64 = available.and_then(|number| number.parse().ok()).unwrap_or(0);
    if room_bytes.min(available_kib << 10) > ROOM_BYTES {
        return tempfile::tempdir_in("/dev/shm").unwrap();
    }
    tempfile::tempdir().unwrap()
}

/// Writes a store's contents to a sparse file.
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
