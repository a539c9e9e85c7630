//! Explicit notification: the kernel of a client says which bytes of a write are contents of files.

use std::ops::Range;

/// A part of a write that is contents of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileData {
    /// Its bytes, counted from the beginning of the write.
    pub bytes: Range<u64>,
    /// The file's inode number.
    pub inode: u64,
    /// The file's path from the root of its file system at the time of the write, without a leading slash. None if the
    /// file has no name, or its name did not fit into the request.
    pub path: Option<Box<[u8]>>,
}

impl FileData {
    /// The file data of a part of a write, counted from the beginning of the part.
    #[must_use]
    pub fn of_part(file_data: &[FileData], part: &Range<u64>) -> Vec<FileData> {
        let inside = file_data.iter().filter(|file| file.bytes.start < part.end && file.bytes.end > part.start);
        let cut = |file: &FileData| {
            let bytes = file.bytes.start.max(part.start) - part.start..file.bytes.end.min(part.end) - part.start;
            FileData { bytes, ..file.clone() }
        };
        inside.map(cut).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_its_share() {
        let file = |bytes: Range<u64>| FileData { bytes, inode: 3, path: None };
        let all = [file(0..512), file(1024..4096), file(4096..8192)];
        assert_eq!(FileData::of_part(&all, &(512..1024)), []);
        assert_eq!(FileData::of_part(&all, &(256..2048)), [file(0..256), file(768..1792)]);
        assert_eq!(FileData::of_part(&all, &(2048..8192)), [file(0..2048), file(2048..6144)]);
    }
}
