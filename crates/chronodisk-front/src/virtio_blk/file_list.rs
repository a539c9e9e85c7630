//! The file list of a write: the parts of it that are contents of files, and the names of these files.
//!
//! Our own extension of the block device, for explicit notification (David, section 3.2). A guest's kernel with our
//! patch `file-data.patch` enables [`FILE_DATA_FEATURE`]. Then a list stands between the header and the data of each
//! write. All numbers are little-endian.
//!
//! | at | bytes | the list |
//! |---|---|---|
//! | 0 | 4 | length of the list in bytes, a multiple of 8, 8 to 64 KiB |
//! | 4 | 4 | zero |
//! | 8 | | the runs of the data, from its first byte on; bytes after the last run are of no file |
//!
//! | at | bytes | a run |
//! |---|---|---|
//! | 0 | 4 | length of the run in bytes |
//! | 4 | 2 | 1 for contents of a regular file, otherwise 0 |
//! | 6 | 2 | length of the path in bytes; 0 without a path |
//! | 8 | 8 | the file's inode number |
//! | 16 | | the path from the root of the file system, filled up with zeros to a multiple of 8 |

use chronodisk_store::FileData;

/// Feature bit of the extension; VIRTIO 1.2 leaves bits from 50 on to the types of devices, and none uses this one.
pub const FILE_DATA_FEATURE: u32 = 56;
/// Length of the list's own header in bytes.
pub(super) const LIST_HEADER_BYTES: usize = 8;
/// Longest list in bytes.
const LIST_BYTES_MAX: usize = 64 << 10;
const RUN_HEADER_BYTES: usize = 16;
const ALIGNMENT_BYTES: usize = 8;

/// Length of the list in bytes according to its header; `None` if no list has it.
pub(super) fn list_bytes(header: [u8; LIST_HEADER_BYTES]) -> Option<usize> {
    let (len_bytes, reserved) = (u32_at(&header, 0), u32_at(&header, 4));
    let len_bytes = usize::try_from(len_bytes).ok()?;
    let valid = (LIST_HEADER_BYTES..=LIST_BYTES_MAX).contains(&len_bytes)
        && len_bytes.is_multiple_of(ALIGNMENT_BYTES)
        && reserved == 0;
    valid.then_some(len_bytes)
}

/// Reads the runs of a list for a write of `data_bytes`; `None` if they contradict the format.
pub(super) fn parse_runs(mut runs: &[u8], data_bytes: u64) -> Option<Vec<FileData>> {
    let mut file_data = Vec::new();
    let mut at = 0;
    while !runs.is_empty() {
        let (header, rest) = runs.split_at_checked(RUN_HEADER_BYTES)?;
        let end = at + u64::from(u32_at(header, 0));
        let path_bytes = usize::from(u16_at(header, 6));
        let (padded, rest) = rest.split_at_checked(path_bytes.next_multiple_of(ALIGNMENT_BYTES))?;
        if end > data_bytes {
            return None;
        }
        match u16_at(header, 4) {
            0 => {}
            1 => file_data.push(FileData {
                bytes: at..end,
                inode: u64::from(u32_at(header, 8)) | u64::from(u32_at(header, 12)) << 32,
                path: (path_bytes > 0).then(|| padded[..path_bytes].into()),
            }),
            _ => return None,
        }
        (runs, at) = (rest, end);
    }
    Some(file_data)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(len_bytes: u32, kind: u16, inode: u64, path: &str) -> Vec<u8> {
        let mut run = len_bytes.to_le_bytes().to_vec();
        run.extend(kind.to_le_bytes());
        run.extend(u16::try_from(path.len()).unwrap().to_le_bytes());
        run.extend(inode.to_le_bytes());
        run.extend(path.bytes());
        run.resize(run.len().next_multiple_of(8), 0);
        run
    }

    #[test]
    fn runs_cover_the_data_in_order() {
        let runs = [run(4096, 1, 7, "a/b.db"), run(512, 0, 0, ""), run(1024, 1, u64::MAX, "")].concat();
        let named = FileData { bytes: 0..4096, inode: 7, path: Some(b"a/b.db".as_slice().into()) };
        let nameless = FileData { bytes: 4608..5632, inode: u64::MAX, path: None };
        assert_eq!(parse_runs(&runs, 8192), Some(vec![named, nameless]));
        assert_eq!(parse_runs(&[], 512), Some(Vec::new()));
    }

    #[test]
    fn contradictions_are_no_list() {
        assert_eq!(parse_runs(&run(4096, 1, 7, "a"), 2048), None, "more than the data");
        assert_eq!(parse_runs(&run(u32::MAX, 0, 7, "a"), 2048), None, "more than the data");
        assert_eq!(parse_runs(&run(512, 2, 7, "a"), 2048), None, "unknown kind");
        assert_eq!(parse_runs(&run(512, 1, 7, "a")[..16], 2048), None, "cut path");
        assert_eq!(parse_runs(&run(512, 1, 7, "")[..8], 2048), None, "cut run");
        let header = |len_bytes: u32, reserved: u32| {
            [len_bytes.to_le_bytes(), reserved.to_le_bytes()].concat().try_into().unwrap()
        };
        assert_eq!(list_bytes(header(8, 0)), Some(8));
        assert_eq!(list_bytes(header(64 << 10, 0)), Some(64 << 10));
        for (len_bytes, reserved) in [(0, 0), (7, 0), (12, 0), ((64 << 10) + 8, 0), (u32::MAX - 7, 0), (8, 1)] {
            assert_eq!(list_bytes(header(len_bytes, reserved)), None, "{len_bytes} {reserved}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_ordered_ranges_within_the_data(
            runs in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..300),
            data_bytes in 0..1_u64 << 33,
        ) {
            let Some(file_data) = parse_runs(&runs, data_bytes) else { return Ok(()) };
            let mut at = 0;
            for file in file_data {
                prop_assert!(at <= file.bytes.start && file.bytes.start <= file.bytes.end);
                at = file.bytes.end;
            }
            prop_assert!(at <= data_bytes);
        }
    }
}
