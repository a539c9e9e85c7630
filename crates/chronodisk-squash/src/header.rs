//! The first block of an image: the image's kind, and the last committed record of each map.
//!
//! `image-format.md` describes the format. Versions 1 and 2 have neither commits nor checksums of blocks; they
//! are read, and `image upgrade` converts them to version 3.

use chronodisk_store::image_files::IMAGE_DEVICES_MAX;
use chronodisk_store::{StoreError, StoreFile};

use super::bytes::{u32_at, u64_at};
use super::content::{Content, ContentKind};
use super::{SquashMode, UNIT_BYTES};
use crate::crc32c;

/// The header takes the first block; places count from its end.
pub(crate) const HEADER_BYTES: u64 = UNIT_BYTES;
/// Most devices that have an image together.
pub(crate) const DEVICES_MAX: usize = IMAGE_DEVICES_MAX;

const MAGIC: &[u8; 8] = b"CDSQUASH";
/// Versions of images: of one device, of several, and of either with checksums and commits.
const VERSIONS: [u32; 3] = [1, 2, 3];
/// The version of images that are made, and that can be written to.
pub(crate) const VERSION: u32 = 3;
/// Offset of the capacities.
const CAPACITIES_AT: usize = 64;
/// Offset of the commits: two for each device, written alternately, so that a power cut that tears one leaves the
/// other.
const COMMITS_AT: usize = 1024;
pub(crate) const COMMIT_BYTES: usize = 24;

/// Content of an image's header.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    /// Capacity of each device.
    pub(crate) capacities_bytes: Vec<u64>,
    pub(crate) content: Content,
    pub(crate) mode: SquashMode,
    /// Random number that identifies the image's files; chosen when the image is made.
    pub(crate) identity: u64,
}

/// The last record of a map that was completed; later ones may be there, earlier ones must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Commit {
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
}

/// The header's bytes in the file, with these commits.
pub(crate) fn encode(header: &Header, commits: &[Commit]) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    let capacity_bytes = header.capacities_bytes.iter().copied().max().unwrap_or(0);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(UNIT_BYTES as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&capacity_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.content.seed.to_le_bytes());
    bytes[32] = header.content.kind.code();
    bytes[33] = header.mode.code();
    bytes[34] = header.capacities_bytes.len() as u8;
    bytes[40..48].copy_from_slice(&header.identity.to_le_bytes());
    for (at, capacity_bytes) in (CAPACITIES_AT..).step_by(8).zip(&header.capacities_bytes) {
        bytes[at..at + 8].copy_from_slice(&capacity_bytes.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes[CAPACITIES_AT..CAPACITIES_AT + 8 * header.capacities_bytes.len()]);
    bytes[52..56].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
    for (device, commit) in commits.iter().enumerate() {
        let at = commit_at(device, 0) as usize;
        bytes[at..at + COMMIT_BYTES].copy_from_slice(&encode_commit(device, *commit));
    }
    bytes
}

/// Decodes a header, or returns the reason why it is invalid.
pub(crate) fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Header, String> {
    if &bytes[..8] != MAGIC {
        return Err("this is no squashed image".to_owned());
    }
    if u32_at(bytes, 48) != crc32c::crc32c(&bytes[..48]) {
        return Err("the header is damaged".to_owned());
    }
    let version = u32_at(bytes, 8);
    if !VERSIONS.contains(&version) {
        return Err(format!(
            "the image has version {version} of its format, and this program knows {} to {VERSION}",
            VERSIONS[0]
        ));
    }
    let content = ContentKind::from_code(bytes[32]).map(|kind| Content { kind, seed: u64_at(bytes, 24) });
    let (Some(content), Some(mode)) = (content, SquashMode::from_code(bytes[33])) else {
        return Err("the header names content or a mode that this program does not know".to_owned());
    };
    let capacities_bytes = if version == 1 { vec![u64_at(bytes, 16)] } else { decode_capacities(bytes, version)? };
    let possible = |&capacity_bytes: &u64| (1..=1 << 62).contains(&capacity_bytes);
    if u64::from(u32_at(bytes, 12)) != UNIT_BYTES || !capacities_bytes.iter().all(possible) {
        return Err("the header gives sizes that can't be".to_owned());
    }
    Ok(Header { version, capacities_bytes, content, mode, identity: u64_at(bytes, 40) })
}

fn decode_capacities(bytes: &[u8; HEADER_BYTES as usize], version: u32) -> Result<Vec<u64>, String> {
    let (count, count_min) = (usize::from(bytes[34]), if version == 2 { 2 } else { 1 });
    if !(count_min..=DEVICES_MAX).contains(&count) {
        let expected = format!("expected {count_min} to {DEVICES_MAX}");
        return Err(format!("the header says that the image is of {count} devices, {expected}"));
    }
    let capacities = &bytes[CAPACITIES_AT..CAPACITIES_AT + 8 * count];
    if u32_at(bytes, 52) != crc32c::crc32c(capacities) {
        return Err("the header is damaged where the devices' capacities are".to_owned());
    }
    Ok(capacities.chunks_exact(8).map(|capacity| u64_at(capacity, 0)).collect())
}

/// Offset of one of a device's two commits.
pub(crate) fn commit_at(device: usize, which: usize) -> u64 {
    (COMMITS_AT + (2 * device + which) * COMMIT_BYTES) as u64
}

pub(crate) fn encode_commit(device: usize, commit: Commit) -> [u8; COMMIT_BYTES] {
    let mut bytes = [0; COMMIT_BYTES];
    bytes[..8].copy_from_slice(&commit.generation.to_le_bytes());
    bytes[8..16].copy_from_slice(&commit.sequence.to_le_bytes());
    bytes[16] = device as u8;
    let checksum = crc32c::crc32c(&bytes[..20]);
    bytes[20..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// A device's last commit, and its index of the two; `None` if neither is valid.
pub(crate) fn last_commit(header: &[u8; HEADER_BYTES as usize], device: usize) -> Option<(Commit, usize)> {
    let commit = |which: usize| {
        let at = commit_at(device, which) as usize;
        let bytes = &header[at..at + COMMIT_BYTES];
        let valid = u32_at(bytes, 20) == crc32c::crc32c(&bytes[..20]) && bytes[16] == device as u8;
        let commit = Commit { generation: u64_at(bytes, 0), sequence: u64_at(bytes, 8) };
        (valid && commit.generation > 0).then_some((commit, which))
    };
    [commit(0), commit(1)].into_iter().flatten().max()
}

/// Whether a file has at most a header, possibly incomplete.
pub(crate) fn has_header_only(file: &StoreFile, header_bytes: u64, magic: &[u8; 8]) -> Result<bool, StoreError> {
    let len_bytes = file.size()?.len_bytes;
    let mut start = [0; 8];
    let start = &mut start[..len_bytes.min(8) as usize];
    file.read(0, start)?;
    Ok(len_bytes <= header_bytes && (*start == magic[..start.len()] || start.iter().all(|byte| *byte == 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_commits_counts_and_a_torn_one_does_not() {
        let content = Content { kind: ContentKind::Zeros, seed: 7 };
        let header = Header {
            version: VERSION,
            capacities_bytes: vec![1 << 20; DEVICES_MAX],
            content,
            mode: SquashMode::Exact,
            identity: 5,
        };
        let first = Commit { generation: 1, sequence: 0 };
        let mut bytes = encode(&header, &[first; DEVICES_MAX]);
        assert_eq!(decode(&bytes).unwrap().capacities_bytes, header.capacities_bytes);
        for device in [0, DEVICES_MAX - 1] {
            assert_eq!(last_commit(&bytes, device), Some((first, 0)));
            let second = Commit { generation: 1, sequence: 9 };
            let at = commit_at(device, 1) as usize;
            bytes[at..at + COMMIT_BYTES].copy_from_slice(&encode_commit(device, second));
            assert_eq!(last_commit(&bytes, device), Some((second, 1)));
            bytes[at] ^= 1;
            assert_eq!(last_commit(&bytes, device), Some((first, 0)));
        }
    }
}
