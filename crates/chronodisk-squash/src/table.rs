//! Partition tables: the MBR, and the GPT of the UEFI Specification 2.10, section 5. Also mirrors of md, and [volumes
//! of LVM](lvm) on the device or in one of these.
//!
//! Only the primary GPT is read. Its copy at the end of the device lies outside all partitions and is kept like
//! everything there. The logical partitions of an extended one are not separated: they form one part with unknown
//! contents.

use chronodisk_store::StoreError;

use super::blocks::Blocks;
use super::bytes::{u32_at, u64_at};
use super::kinds::holds_file_system;
use super::lvm;
use super::volume::Volume;

/// The beginning of the device that a table may take: the MBR, the header and 128 entries of 128 bytes, in
/// sectors of 512 or 4,096 bytes.
const TABLE_BYTES: u64 = 24 << 10;

/// Division of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) kind: DivisionKind,
    /// Ranges of bytes that say so; when one of them is written, it may be divided in another way.
    pub(crate) watched: Vec<(u64, u64)>,
    /// Notices about parts that are kept completely.
    pub(crate) notices: Vec<String>,
}

/// Division of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DivisionKind {
    /// A single file system, as far as known.
    Whole,
    /// These volumes, by their places on the device; everything outside is kept.
    Volumes(Vec<Volume>),
    /// Contradictory or not supported.
    NotUnderstood(String),
}

impl Division {
    /// Division of a device without known content.
    pub(crate) fn none() -> Self {
        Division { kind: DivisionKind::Whole, watched: vec![(0, TABLE_BYTES)], notices: Vec::new() }
    }

    /// Whether a write to these bytes may change it.
    pub(crate) fn is_touched(&self, offset_bytes: u64, end_bytes: u64) -> bool {
        self.watched.iter().any(|&(start, end)| offset_bytes < end && end_bytes > start)
    }

    /// Reads the division of a device of `capacity_bytes`.
    pub(crate) fn read(blocks: &mut Blocks, capacity_bytes: u64) -> Result<Division, StoreError> {
        let mut division = Division::none();
        let bounds = match Table::read(blocks, capacity_bytes)? {
            Table::Found(bounds) => bounds,
            Table::Absent => {
                let found = division.physical(blocks, 0, capacity_bytes)?;
                division.kind = match found {
                    lvm::Found::Absent => DivisionKind::Whole,
                    lvm::Found::NotUnderstood(reason) => DivisionKind::NotUnderstood(reason),
                    lvm::Found::Volumes(physical) => {
                        division.notices = physical.notices;
                        DivisionKind::Volumes(physical.volumes)
                    }
                };
                return Ok(division);
            }
            Table::NotUnderstood(reason) => {
                division.kind = DivisionKind::NotUnderstood(reason);
                return Ok(division);
            }
        };
        let mut volumes = Vec::new();
        for (start, end) in bounds {
            division.watched.push((start, end.min(start + TABLE_BYTES)));
            match division.physical(blocks, start, end)? {
                lvm::Found::Absent => volumes.push(Volume::one(start, end)),
                lvm::Found::NotUnderstood(reason) => division.notices.push(format!("a part is kept whole: {reason}")),
                lvm::Found::Volumes(_) if holds_file_system(blocks, start, end)? => {
                    let notice = "a part is kept whole: it is a file system and a physical volume of LVM at once";
                    division.notices.push(notice.to_owned());
                }
                lvm::Found::Volumes(physical) => {
                    volumes.extend(physical.volumes);
                    division.notices.extend(physical.notices);
                }
            }
        }
        division.kind = DivisionKind::Volumes(volumes);
        Ok(division)
    }

    /// Reads a physical volume of LVM, and watches its metadata.
    fn physical(&mut self, blocks: &mut Blocks, start: u64, end: u64) -> Result<lvm::Found, StoreError> {
        let (found, area) = lvm::read(blocks.device_mut(), start, end)?;
        self.watched.extend(area);
        Ok(found)
    }
}

/// Result of looking for a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Table {
    /// There is no table, or it is incomplete.
    Absent,
    /// The partitions without overlaps, in ascending order: first byte and end.
    Found(Vec<(u64, u64)>),
    /// A contradictory table.
    NotUnderstood(String),
}

const MBR_SIGNATURE: [u8; 2] = [0x55, 0xAA];
const MBR_ENTRIES: std::ops::Range<usize> = 446..510;
const MBR_ENTRY_BYTES: usize = 16;
const MBR_SECTOR_BYTES: u64 = 512;
/// The type of an entry that stands for a GPT.
const TYPE_PROTECTIVE: u8 = 0xEE;
const MD_MAGIC: u32 = 0xA92B_4EFC;
const MD_OFFSETS_BYTES: [usize; 2] = [4096, 0];
const GPT_SIGNATURE: &[u8; 8] = b"EFI PART";
const GPT_HEADER_BYTES: usize = 92;

impl Table {
    /// Reads the table of a device of `capacity_bytes`.
    fn read(blocks: &mut Blocks, capacity_bytes: u64) -> Result<Table, StoreError> {
        let mut bytes = vec![0; TABLE_BYTES as usize];
        if capacity_bytes < TABLE_BYTES || !blocks.device_mut().read(0, &mut bytes[..512])? {
            return Ok(Table::Absent);
        }
        if bytes[510..512] != MBR_SIGNATURE {
            return Table::read_array_member(blocks, &mut bytes, capacity_bytes);
        }
        let entries: Vec<[u8; MBR_ENTRY_BYTES]> = bytes[MBR_ENTRIES]
            .chunks_exact(MBR_ENTRY_BYTES)
            .map(|entry| entry.try_into().expect("whole entries"))
            .filter(|entry: &[u8; MBR_ENTRY_BYTES]| entry[4] != 0)
            .collect();
        // The boot sectors of other things end like an MBR.
        if entries.is_empty() || entries.iter().any(|entry| entry[0] & 0x7F != 0) {
            return Ok(Table::Absent);
        }
        if entries.iter().any(|entry| entry[4] == TYPE_PROTECTIVE) {
            if !blocks.device_mut().read(0, &mut bytes)? {
                return Ok(Table::Absent);
            }
            let sizes = [512, 4096];
            return Ok(sizes.into_iter().find_map(|size| gpt(&bytes, size, capacity_bytes)).unwrap_or(Table::Absent));
        }
        let sectors = entries.iter().map(|entry| (u64::from(u32_at(entry, 8)), u64::from(u32_at(entry, 12))));
        let bounds = sectors.map(|(start, len)| (start * MBR_SECTOR_BYTES, (start + len) * MBR_SECTOR_BYTES));
        Ok(partitions(bounds.collect(), capacity_bytes))
    }
}

impl Table {
    /// Reads the superblock of a Linux md array, at the beginning of its member (version 1.1) or 4 KiB after it (1.2,
    /// mdadm's default). Other versions have it at the end, and the content of such a mirror begins at the member's
    /// beginning.
    fn read_array_member(blocks: &mut Blocks, bytes: &mut [u8], capacity_bytes: u64) -> Result<Table, StoreError> {
        if !blocks.device_mut().read(0, bytes)? {
            return Ok(Table::Absent);
        }
        let found = MD_OFFSETS_BYTES.into_iter().find_map(|at| array_member(&bytes[at..], capacity_bytes));
        Ok(found.unwrap_or(Table::Absent))
    }
}

/// Content of an array's member with this superblock (the kernel's `include/uapi/linux/raid/md_p.h`), if it is
/// complete.
fn array_member(superblock: &[u8], capacity_bytes: u64) -> Option<Table> {
    if u32_at(superblock, 0) != MD_MAGIC || u32_at(superblock, 4) != 1 {
        return None;
    }
    let roles = u32_at(superblock, 220) as usize;
    let signed = superblock.get(..roles.checked_mul(2)?.checked_add(256)?)?;
    let words = signed.chunks_exact(4).map(|word| u64::from(u32_at(word, 0)));
    // Two bytes are left of an odd count of roles.
    let rest = signed.chunks_exact(4).remainder();
    let rest = if rest.len() == 2 { u64::from(u16::from_le_bytes([rest[0], rest[1]])) } else { 0 };
    let stored = u32_at(superblock, 216);
    let sum = words.sum::<u64>() + rest - u64::from(stored);
    if (sum as u32).wrapping_add((sum >> 32) as u32) != stored {
        return None;
    }
    let level = u32_at(superblock, 72) as i32;
    if level != 1 {
        return Some(Table::NotUnderstood(format!("it is a member of an array that is no mirror (level {level})")));
    }
    let (start, sectors) = (u64_at(superblock, 128), u64_at(superblock, 80));
    let byte = |sector: u64| sector.saturating_mul(MBR_SECTOR_BYTES);
    Some(partitions(vec![(byte(start), byte(start.saturating_add(sectors)))], capacity_bytes))
}

/// The GPT after a protective MBR; `None` if it is incomplete.
fn gpt(bytes: &[u8], sector_bytes: usize, capacity_bytes: u64) -> Option<Table> {
    let header = &bytes[sector_bytes..sector_bytes + GPT_HEADER_BYTES];
    if !header.starts_with(GPT_SIGNATURE) || u32_at(header, 12) as usize != GPT_HEADER_BYTES {
        return None;
    }
    let mut unsigned = header.to_vec();
    unsigned[16..20].fill(0);
    if crc32fast::hash(&unsigned) != u32_at(header, 16) {
        return None;
    }
    let (count, entry_bytes) = (u32_at(header, 80) as usize, u32_at(header, 84) as usize);
    let start = usize::try_from(u64_at(header, 72)).ok()?.checked_mul(sector_bytes)?;
    let end = count.checked_mul(entry_bytes).and_then(|len| start.checked_add(len));
    let entries = end.and_then(|end| bytes.get(start..end));
    let Some(entries) = entries.filter(|_| entry_bytes >= 128) else {
        return Some(Table::NotUnderstood("the entries of its partition table lie elsewhere".to_owned()));
    };
    if crc32fast::hash(entries) != u32_at(header, 88) {
        return None;
    }
    let used = entries.chunks_exact(entry_bytes).filter(|entry| entry[..16].iter().any(|&byte| byte != 0));
    let bounds = used.map(|entry| {
        let byte = |sector: u64| sector.saturating_mul(sector_bytes as u64);
        (byte(u64_at(entry, 32)), byte(u64_at(entry, 40).saturating_add(1)))
    });
    Some(partitions(bounds.collect(), capacity_bytes))
}

fn partitions(mut bounds: Vec<(u64, u64)>, capacity_bytes: u64) -> Table {
    bounds.sort_unstable();
    let outside = bounds.iter().any(|&(start, end)| start == 0 || start >= end || end > capacity_bytes);
    let overlap = bounds.windows(2).any(|pair| pair[0].1 > pair[1].0);
    match (outside, overlap) {
        (true, _) => Table::NotUnderstood("a partition reaches beyond the device".to_owned()),
        (_, true) => Table::NotUnderstood("partitions overlap".to_owned()),
        _ => Table::Found(bounds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_can_t_be_are_told() {
        assert_eq!(partitions(vec![(8192, 9000), (4096, 8192)], 9000), Table::Found(vec![(4096, 8192), (8192, 9000)]));
        for (bounds, reason) in [
            (vec![(4096, 9001)], "beyond"),
            (vec![(0, 512)], "beyond"),
            (vec![(4096, 4096)], "beyond"),
            (vec![(4096, 8192), (8191, 9000)], "overlap"),
        ] {
            assert!(matches!(partitions(bounds, 9000), Table::NotUnderstood(text) if text.contains(reason)));
        }
    }
}
