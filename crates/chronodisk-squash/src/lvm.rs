//! Physical volumes of LVM2: their ranges, with the logical volume of each.
//!
//! One of its first four sectors has a label with the place of the metadata, a ring of text whose header names the
//! committed version (LVM2, `lib/format_text/layout.h` and `lib/label/label.h`; `pvck --dump` prints it). A logical
//! volume is understood if it is visible, and all its segments are linear and on this physical volume, as made by
//! `lvcreate` by default. Others (thin pools, caches, snapshots' changes, RAID, stripes, volumes on several devices)
//! are kept completely, and so are unallocated ranges.

use std::collections::HashSet;

use chronodisk_store::StoreError;

use super::bytes::{u32_at, u64_at};
use super::device_blocks::DeviceBlocks;
use super::volume::Volume;

const SECTOR_BYTES: u64 = 512;
const SECTOR: usize = SECTOR_BYTES as usize;
const LABEL_SECTORS: usize = 4;
const LABEL: &[u8; 8] = b"LABELONE";
const LABEL_TYPE: &[u8; 8] = b"LVM2 001";
/// Seed of the checksums.
const CHECKSUM_SEED: u32 = 0xF597_A6CF;
const HEADER_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
const FLAG_IGNORED: u32 = 1;
/// Largest text of metadata; by default there is room for 512 KiB.
const TEXT_MAX_BYTES: u64 = 4 << 20;
const VOLUMES_MAX: usize = 4_096;
const SEGMENTS_MAX: usize = 65_536;

/// Result of looking for a physical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is no physical volume, or it is incomplete.
    Absent,
    Volumes(Physical),
    /// A volume whose metadata can't be interpreted.
    NotUnderstood(String),
}

/// Content of a physical volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Physical {
    /// Logical volumes that are understood, by their places on the device.
    pub(crate) volumes: Vec<Volume>,
    /// Notices about other volumes.
    pub(crate) notices: Vec<String>,
}

/// Place of a physical volume's metadata.
struct Area {
    start_bytes: u64,
    len_bytes: u64,
}

/// Reads the physical volume in a range of the device. Also returns the place of its metadata, which may change later.
pub(crate) fn read(
    blocks: &mut DeviceBlocks,
    start_bytes: u64,
    end_bytes: u64,
) -> Result<(Found, Option<(u64, u64)>), StoreError> {
    let mut head = [0; LABEL_SECTORS * SECTOR];
    let available_bytes = end_bytes - start_bytes;
    if available_bytes < head.len() as u64 || !blocks.read(start_bytes, &mut head)? {
        return Ok((Found::Absent, None));
    }
    let Some((uuid, areas)) = head.chunks_exact(SECTOR).find_map(label) else { return Ok((Found::Absent, None)) };
    let fits = |area: &Area| {
        let end = area.start_bytes.checked_add(area.len_bytes);
        area.len_bytes >= 2 * SECTOR_BYTES && end.is_some_and(|end| end <= available_bytes)
    };
    let Some(area) = areas.first().filter(|area| fits(area)) else {
        return Ok((Found::NotUnderstood("a physical volume of LVM without metadata of its own".to_owned()), None));
    };
    let area_start = start_bytes + area.start_bytes;
    let found = match text(blocks, area_start, area.len_bytes)? {
        Text::Absent => Found::Absent,
        Text::None => Found::Volumes(Physical::default()),
        Text::Ignored => Found::NotUnderstood("a physical volume of LVM whose metadata are to be ignored".to_owned()),
        Text::Committed(text) => match section(&text) {
            Some(group) => volumes(&group, &uuid, start_bytes, end_bytes),
            None => Found::NotUnderstood("metadata of LVM that can't be read".to_owned()),
        },
    };
    Ok((found, Some((area_start, area_start + area.len_bytes))))
}

/// LVM's checksum: CRC-32 with another beginning, and not inverted at its end.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!CHECKSUM_SEED);
    hasher.update(bytes);
    !hasher.finalize()
}

/// The physical volume's UUID and the areas of its metadata, if the sector is a label.
fn label(sector: &[u8]) -> Option<(Vec<u8>, Vec<Area>)> {
    const UUID_BYTES: usize = 32;
    let whole = sector.starts_with(LABEL) && sector[24..32] == *LABEL_TYPE;
    if !whole || checksum(&sector[20..]) != u32_at(sector, 16) {
        return None;
    }
    let header = sector.get(u32_at(sector, 20) as usize..)?;
    let uuid = header.get(..UUID_BYTES)?.to_vec();
    // After the device's size come a list of data areas and one of metadata areas, each ended by zeros.
    let mut entries = header
        .get(UUID_BYTES + 8..)?
        .chunks_exact(16)
        .map(|entry| Area { start_bytes: u64_at(entry, 0), len_bytes: u64_at(entry, 8) });
    entries.by_ref().find(|area| area.start_bytes == 0)?;
    Some((uuid, entries.take_while(|area| area.start_bytes != 0).collect()))
}

enum Text {
    /// There is no area, or it is incomplete.
    Absent,
    /// The physical volume belongs to no group.
    None,
    Ignored,
    Committed(Vec<u8>),
}

/// The committed metadata of an area.
fn text(blocks: &mut DeviceBlocks, start_bytes: u64, len_bytes: u64) -> Result<Text, StoreError> {
    let mut header = [0; SECTOR];
    let whole = blocks.read(start_bytes, &mut header)?;
    if !whole || header[4..20] != *HEADER_MAGIC || checksum(&header[4..]) != u32_at(&header, 0) {
        return Ok(Text::Absent);
    }
    let (at, text_bytes) = (u64_at(&header, 40), u64_at(&header, 48));
    let (stored, flags) = (u32_at(&header, 56), u32_at(&header, 60));
    if at == 0 {
        return Ok(Text::None);
    }
    if flags & FLAG_IGNORED != 0 {
        return Ok(Text::Ignored);
    }
    let ring = SECTOR_BYTES..len_bytes;
    if !ring.contains(&at) || text_bytes > TEXT_MAX_BYTES.min(len_bytes - SECTOR_BYTES) {
        return Ok(Text::Absent);
    }
    let mut text = vec![0; text_bytes as usize];
    let (first, rest) = text.split_at_mut(text_bytes.min(len_bytes - at) as usize);
    let whole = blocks.read(start_bytes + at, first)? && blocks.read(start_bytes + SECTOR_BYTES, rest)?;
    Ok(if whole && checksum(&text) == stored { Text::Committed(text) } else { Text::Absent })
}

/// A value of LVM's text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

type Section = Vec<(String, Value)>;

fn get<'a>(section: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    section.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn number(section: &[(String, Value)], name: &str) -> Option<u64> {
    match get(section, name)? {
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn string<'a>(section: &'a [(String, Value)], name: &str) -> Option<&'a str> {
    match get(section, name)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn list<'a>(section: &'a [(String, Value)], name: &str) -> &'a [Value] {
    match get(section, name) {
        Some(Value::List(values)) => values,
        _ => &[],
    }
}

/// The sections in one.
fn sections(section: &[(String, Value)]) -> impl Iterator<Item = (&str, &Section)> {
    section.iter().filter_map(|(name, value)| match value {
        Value::Section(section) => Some((name.as_str(), section)),
        _ => None,
    })
}

fn sections_of<'a>(
    section: &'a [(String, Value)],
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a Section)> + use<'a> {
    let inner = match get(section, name) {
        Some(Value::Section(inner)) => &inner[..],
        _ => &[],
    };
    sections(inner)
}

/// The volume group in a text.
fn section(text: &[u8]) -> Option<Section> {
    // A text ends with a zero byte.
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let mut reader = Reader { rest: std::str::from_utf8(text).ok()? };
    let all = reader.section(DEPTH_MAX)?;
    let group = sections(&all).next().map(|(_, group)| group.clone());
    group.filter(|_| reader.rest.is_empty())
}

/// A group, its logical volumes, one of them, and its segment; lists beside.
const DEPTH_MAX: usize = 8;

/// Parses LVM's text format (`lvm.conf(5)`), reduced to the features in metadata.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn skip_space(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = self.rest.split_once('\n').map_or("", |(_, later)| later);
        }
    }

    fn take(&mut self, token: char) -> bool {
        self.skip_space();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Keys and sections up to the end, or to a closing brace.
    fn section(&mut self, depth: usize) -> Option<Section> {
        let mut section = Section::new();
        loop {
            self.skip_space();
            if self.rest.is_empty() || self.rest.starts_with('}') {
                return Some(section);
            }
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-.+/@".contains(letter);
            let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            if name.is_empty() {
                return None;
            }
            let name = name.to_owned();
            self.rest = rest;
            let value = if self.take('{') {
                let inner = self.section(depth.checked_sub(1)?)?;
                self.take('}').then_some(Value::Section(inner))?
            } else if self.take('=') {
                self.value(depth)?
            } else {
                return None;
            };
            section.push((name, value));
        }
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if self.take('"') {
            return self.quoted();
        }
        if !self.take('[') {
            let end = self.rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            self.rest = rest;
            return digits.parse().ok().map(Value::Number);
        }
        let mut values = Vec::new();
        while !self.take(']') {
            values.push(self.value(depth.checked_sub(1)?)?);
            // A comma between any two.
            if !self.take(',') {
                return self.take(']').then_some(Value::List(values));
            }
        }
        Some(Value::List(values))
    }

    /// The rest of a quoted text, which may contain escapes by backslashes.
    fn quoted(&mut self) -> Option<Value> {
        let mut text = String::new();
        let mut letters = self.rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Some(Value::Text(text));
                }
                '\\' => text.push(letters.next()?.1),
                other => text.push(other),
            }
        }
        None
    }
}

/// The logical volumes of a group on the physical volume with this UUID, in a range of the device.
fn volumes(group: &[(String, Value)], uuid: &[u8], start_bytes: u64, end_bytes: u64) -> Found {
    let wrong = |what: &str| Found::NotUnderstood(format!("metadata of LVM that can't be: {what}"));
    let is_own = |section: &Section| {
        string(section, "id").is_some_and(|id| id.bytes().filter(|&b| b != b'-').eq(uuid.iter().copied()))
    };
    let Some((own, physical)) = sections_of(group, "physical_volumes").find(|(_, section)| is_own(section)) else {
        return wrong("this physical volume is not in its group");
    };
    let sectors = |sectors: u64| sectors.checked_mul(SECTOR_BYTES);
    let (Some(first_bytes), Some(extent_bytes)) = (
        number(physical, "pe_start").and_then(sectors).filter(|&bytes| bytes >= (LABEL_SECTORS * SECTOR) as u64),
        number(group, "extent_size").and_then(sectors).filter(|&bytes| bytes > 0),
    ) else {
        return wrong("there is no place or no size of an extent");
    };
    let place = ExtentRange { own, first_bytes, extent_bytes, start_bytes, end_bytes };
    let others: HashSet<&str> = used_by_others(group);
    let (mut found, mut segments) = (Physical::default(), 0);
    for (name, logical) in sections_of(group, "logical_volumes") {
        if !list(logical, "status").contains(&Value::Text("VISIBLE".to_owned())) {
            continue;
        }
        segments += sections(logical).count();
        match place.volume(logical) {
            _ if others.contains(name) => {
                found.notices.push(format!("the logical volume {name} is kept whole: it is a part of another one"));
            }
            Ok(volume) => found.volumes.push(volume),
            Err(reason) => found.notices.push(format!("the logical volume {name} is kept whole: {reason}")),
        }
        if found.volumes.len() + found.notices.len() > VOLUMES_MAX || segments > SEGMENTS_MAX {
            return Found::NotUnderstood(format!("a group of LVM with more than {VOLUMES_MAX} volumes"));
        }
    }
    let mut extents: Vec<_> = found.volumes.iter().flat_map(Volume::extents).copied().collect();
    extents.sort_unstable();
    if extents.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return wrong("logical volumes overlap");
    }
    found.volumes.sort_unstable_by_key(|volume| volume.extents()[0]);
    Found::Volumes(found)
}

/// Names used by segments that are not linear.
fn used_by_others(group: &[(String, Value)]) -> HashSet<&str> {
    let segments = sections_of(group, "logical_volumes").flat_map(|(_, logical)| sections(logical));
    let others = segments.filter(|(_, segment)| string(segment, "type") != Some("striped"));
    others.flat_map(|(_, segment)| segment.iter().flat_map(|(_, value)| names(value))).collect()
}

fn names(value: &Value) -> Vec<&str> {
    match value {
        Value::Text(text) => vec![text],
        Value::List(values) => values.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

/// Range of a physical volume's extents.
struct ExtentRange<'a> {
    /// The volume's name in the metadata.
    own: &'a str,
    first_bytes: u64,
    extent_bytes: u64,
    start_bytes: u64,
    end_bytes: u64,
}

impl ExtentRange<'_> {
    /// The place of a logical volume, or the reason why it is not supported.
    fn volume(&self, logical: &Section) -> Result<Volume, String> {
        let mut segments: Vec<_> = sections(logical).map(|(_, segment)| segment).collect();
        segments.sort_by_key(|segment| number(segment, "start_extent"));
        let (mut ranges, mut next) = (Vec::new(), 0);
        for segment in segments {
            let kind = string(segment, "type").unwrap_or("unknown");
            let stripes = number(segment, "stripe_count").unwrap_or(1);
            let (name, first) = match list(segment, "stripes") {
                _ if kind != "striped" => return Err(format!("it is of the type {kind}")),
                [Value::Text(name), Value::Number(first)] if stripes == 1 => (name, *first),
                _ => return Err(format!("it has {stripes} stripes")),
            };
            if name != self.own {
                return Err("it lies on other devices, too".to_owned());
            }
            let count = number(segment, "extent_count").unwrap_or(0);
            if number(segment, "start_extent") != Some(next) {
                return Err("it has a gap".to_owned());
            }
            next = next.saturating_add(count);
            ranges.push(self.range(first, count).ok_or("it reaches beyond its device")?);
        }
        Volume::joined(ranges).ok_or_else(|| "it does not consist of blocks of 4 KiB".to_owned())
    }

    fn range(&self, first: u64, count: u64) -> Option<(u64, u64)> {
        let byte = |extent: u64| {
            let within = extent.checked_mul(self.extent_bytes)?.checked_add(self.first_bytes)?;
            within.checked_add(self.start_bytes).filter(|&byte| byte <= self.end_bytes)
        };
        Some((byte(first)?, byte(first.checked_add(count)?)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `vgcfgbackup` for a group with two volumes, one of them in two places, and a thin pool.
    const GROUP: &str = r#"
# Generated by LVM2
contents = "Text Format Volume Group"
version = 1
description = "with \"quotes\" and a \\"

group {
    id = "h3VuoA-RZyU-iTWz-RP65-Sd8m-qP85-Kryq6i"
    status = ["RESIZEABLE", "READ", "WRITE"]
    flags = []
    extent_size = 8192 # 4 Megabytes
    physical_volumes {
        pv0 { id = "other" pe_start = 2048 }
        pv1 { id = "o-w-n" pe_start = 2048 pe_count = 15 }
    }
    logical_volumes {
        split {
            status = ["READ", "WRITE", "VISIBLE"]
            segment_count = 2
            segment2 { start_extent = 5 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv1", 9] }
            segment1 { start_extent = 0 extent_count = 5 type = "striped" stripe_count = 1 stripes = ["pv1", 0] }
        }
        whole {
            status = ["READ", "WRITE", "VISIBLE"]
            segment1 { start_extent = 0 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv1", 5] }
            segment2 { start_extent = 2 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv1", 7] }
        }
        elsewhere {
            status = ["VISIBLE"]
            segment1 { start_extent = 0 extent_count = 2 type = "striped" stripe_count = 1 stripes = ["pv0", 5] }
        }
        striped {
            status = ["VISIBLE"]
            segment1 {
                start_extent = 0 extent_count = 2 type = "striped" stripe_count = 2 stripes = ["pv0", 5, "pv1", 5]
            }
        }
        changes {
            status = ["VISIBLE"]
            segment1 { start_extent = 0 extent_count = 1 type = "striped" stripe_count = 1 stripes = ["pv1", 11] }
        }
        snapshot0 { status = ["READ"] segment1 { type = "snapshot" origin = "whole2" cow_store = "changes" } }
        pool { status = ["VISIBLE"] segment1 { start_extent = 0 type = "thin-pool" pool = "pool_tdata" } }
        pool_tdata {
            status = ["READ", "WRITE"]
            segment1 { start_extent = 0 extent_count = 1 type = "striped" stripe_count = 1 stripes = ["pv1", 12] }
        }
    }
}
"#;

    const MIB: u64 = 1 << 20;

    fn found(text: &str) -> Found {
        volumes(&section(text.as_bytes()).unwrap(), b"own", 10 * MIB, 90 * MIB)
    }

    #[test]
    fn linear_volumes_of_this_device_are_found_and_others_are_told() {
        let Found::Volumes(physical) = found(GROUP) else { panic!("{:?}", found(GROUP)) };
        let split = Volume::joined([(11 * MIB, 31 * MIB), (47 * MIB, 55 * MIB)]).unwrap();
        assert_eq!(physical.volumes, [split, Volume::one(31 * MIB, 47 * MIB)]);
        let notices = [
            "elsewhere is kept whole: it lies on other devices, too",
            "striped is kept whole: it has 2 stripes",
            "changes is kept whole: it is a part of another one",
            "pool is kept whole: it is of the type thin-pool",
        ];
        assert_eq!(physical.notices, notices.map(|notice| format!("the logical volume {notice}")));
    }

    #[test]
    fn what_can_t_be_is_told() {
        for (from, to, reason) in [
            ("o-w-n", "n-o", "not in its group"),
            ("extent_size = 8192", "extent_size = 0", "no place or no size of an extent"),
            ("[\"pv1\", 9]", "[\"pv1\", 4]", "overlap"),
        ] {
            let text = GROUP.replace(from, to);
            assert!(matches!(found(&text), Found::NotUnderstood(said) if said.contains(reason)), "{reason}");
        }
        for (from, to, reason) in [
            ("start_extent = 5", "start_extent = 6", "split is kept whole: it has a gap"),
            ("[\"pv1\", 9]", "[\"pv1\", 18446744073709551615]", "split is kept whole: it reaches beyond its device"),
            ("8192", "9", "split is kept whole: it does not consist of blocks of 4 KiB"),
        ] {
            let Found::Volumes(physical) = found(&GROUP.replace(from, to)) else { panic!("{reason}") };
            assert!(physical.notices.iter().any(|notice| notice.contains(reason)), "{reason}: {physical:?}");
        }
    }

    #[test]
    fn a_text_that_is_none_is_refused() {
        for text in
            ["", "a", "a =", "a = [1", "a = \"b", "a { b = 1", "a }", "a = 99999999999999999999 b {}", "a = \"\\"]
        {
            assert_eq!(section(text.as_bytes()), None, "{text}");
        }
        let deep = "a {".repeat(1000);
        assert_eq!(section(deep.as_bytes()), None);
        assert_eq!(section(format!("b = {}", "[".repeat(1000)).as_bytes()), None);
    }
}
