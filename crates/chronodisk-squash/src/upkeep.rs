//! Maintenance of images: conversion of old versions, detection of damage, and repair.
//!
//! Each function takes the image's lock, so none runs while a device is in use.

use std::path::Path;
use std::sync::Arc;

use chronodisk_store::host::Host;
use chronodisk_store::image_files::{append_name, map_path, sums_path};
use chronodisk_store::{StoreError, StoreFile};

use super::block::{Block, slots_of};
use super::header::{Commit, Header, VERSION};
use super::map_log::MapLog;
use super::runs::RunMap;
use super::slot_file::SlotFile;
use super::sums::{Sums, sum_of};
use super::{Class, UNIT_BYTES, image_error};

/// Result of examining an image.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examination {
    /// Version of the format.
    pub version: u32,
    /// Reason why contents can't be checked: the image is of an older version, or its checksums are lost. `None` if
    /// they can.
    pub unchecked: Option<String>,
    /// Results for each device.
    pub devices: Vec<DeviceExamination>,
}

/// Result of examining one device of an image.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeviceExamination {
    /// Error that ended the reading of the map.
    pub map_error: Option<String>,
    /// Records that can be read, and records that were committed, of the map's generation.
    pub records: (u64, u64),
    /// Blocks that are kept.
    pub kept_blocks: u64,
    /// Unreadable kept blocks: first block, count, and class.
    pub damaged: Vec<(u64, u64, Class)>,
    /// Blocks that an earlier repair found lost.
    pub lost_blocks: u64,
}

impl Examination {
    /// Whether everything that was committed is there, and its checksums, if the image's version has them.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let has_sums = self.version < VERSION || self.unchecked.is_none();
        has_sums && self.devices.iter().all(|device| device.map_error.is_none() && device.damaged.is_empty())
    }
}

/// Called with the number of blocks read and the total.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Reads all kept blocks of an image, without changes.
///
/// # Errors
/// [`StoreError::Image`] if the image is too damaged to be read; [`StoreError::InUse`], [`StoreError::Io`].
pub fn examine(host: &Arc<dyn Host>, path: &Path, progress: Progress<'_>) -> Result<Examination, StoreError> {
    let (mut file, header) = SlotFile::open_without_sums(host, path, false, false)?;
    let (salvaged, unchecked) = salvage(host, path, &mut file, &header)?;
    examine_devices(&mut file, &header, &salvaged, unchecked, progress)
}

/// Makes a damaged image usable: returns to the last readable record, and marks blocks with changed bytes as lost. The
/// result lists the losses.
///
/// # Errors
/// Like [`examine`].
pub fn repair(host: &Arc<dyn Host>, path: &Path, progress: Progress<'_>) -> Result<Examination, StoreError> {
    let (mut file, header) = SlotFile::open_without_sums(host, path, true, true)?;
    if header.version < VERSION {
        let reason =
            format!("the image has version {} of its format; convert it with `image upgrade` first", header.version);
        return Err(image_error(path, reason));
    }
    let (salvaged, unchecked) = salvage(host, path, &mut file, &header)?;
    let found = examine_devices(&mut file, &header, &salvaged, unchecked, progress)?;
    if found.is_sound() {
        return Ok(found);
    }
    let (commits, mut maps): (Vec<Commit>, Vec<RunMap<Block>>) =
        salvaged.into_iter().map(|device| (device.commit, device.map)).unzip();
    for (map, device) in maps.iter_mut().zip(&found.devices) {
        device.damaged.iter().for_each(|&(first, count, _)| map.set(first, first + count, Block::Damaged));
    }
    if found.unchecked.is_some() {
        write_sums(host, path, &mut file, &header, &maps, &mut |_, _| {})?;
    }
    for (index, (map, commit)) in maps.iter().zip(commits).enumerate() {
        let after = file.commit_of(index).generation.max(commit.generation);
        let log =
            MapLog::replace(host, &map_path(path, header.capacities_bytes.len(), index), header.identity, after, map)?;
        file.commit(index, log.commit())?;
    }
    file.before_record()?;
    Ok(found)
}

/// Converts an image of an older version. Returns false if it has the newest one. A kill leaves the old image or the
/// converted one.
///
/// # Errors
/// Like [`examine`]; nothing is changed then.
pub fn upgrade(host: &Arc<dyn Host>, path: &Path, progress: Progress<'_>) -> Result<bool, StoreError> {
    let (mut file, mut header) = SlotFile::open_parts(host, path, true, true, true)?;
    if header.version == VERSION {
        return Ok(false);
    }
    let (mut maps, mut commits) = (Vec::new(), Vec::new());
    for (index, capacity_bytes) in header.capacities_bytes.iter().enumerate() {
        let map_path = map_path(path, header.capacities_bytes.len(), index);
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        let (mut log, map) = MapLog::open(host, &map_path, true, true, header.identity, units, Commit::default())?;
        file.check(&map)?;
        log.sync()?;
        commits.push(log.commit());
        maps.push(map);
    }
    write_sums(host, path, &mut file, &header, &maps, progress)?;
    header.version = VERSION;
    file.adopt(&header, &commits, true)?;
    Ok(true)
}

/// The readable part of a device's map.
struct Salvaged {
    commit: Commit,
    map: RunMap<Block>,
    map_error: Option<String>,
}

/// Reads maps and checksums as far as possible. Returns the reason if checksums are unreadable.
fn salvage(
    host: &Arc<dyn Host>,
    path: &Path,
    file: &mut SlotFile,
    header: &Header,
) -> Result<(Vec<Salvaged>, Option<String>), StoreError> {
    let mut salvaged = Vec::new();
    for (index, capacity_bytes) in header.capacities_bytes.iter().enumerate() {
        let map_path = map_path(path, header.capacities_bytes.len(), index);
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        let (commit, map, reason) = MapLog::salvage(host, &map_path, header.identity, units)?;
        let committed = file.commit_of(index);
        let missing = (commit < committed).then(|| "records are missing that were committed".to_owned());
        // Each place is read once, so the work is bounded by the file's size.
        file.check_apart(&map)?;
        salvaged.push(Salvaged { commit, map, map_error: reason.filter(|_| commit < committed).or(missing) });
    }
    if header.version < VERSION {
        return Ok((salvaged, Some(format!("images of version {} have no checksums", header.version))));
    }
    match Sums::open(host, &sums_path(path), false, header.identity) {
        Ok(sums) => {
            file.set_sums(sums);
            Ok((salvaged, None))
        }
        Err(error) => Ok((salvaged, Some(error.to_string()))),
    }
}

fn examine_devices(
    file: &mut SlotFile,
    header: &Header,
    salvaged: &[Salvaged],
    unchecked: Option<String>,
    progress: Progress<'_>,
) -> Result<Examination, StoreError> {
    let kept = |map: &RunMap<Block>| -> u64 {
        map.all().filter(|run| slots_of(run.2, 1).is_some()).map(|(start, end, _)| end - start).sum()
    };
    let total: u64 = salvaged.iter().map(|device| kept(&device.map)).sum();
    let mut examination = Examination { version: header.version, unchecked, devices: Vec::new() };
    let mut done = 0;
    for (index, device) in salvaged.iter().enumerate() {
        let mut found = DeviceExamination {
            map_error: device.map_error.clone(),
            records: (device.commit.sequence, file.commit_of(index).sequence.max(device.commit.sequence)),
            kept_blocks: kept(&device.map),
            ..DeviceExamination::default()
        };
        for (start, end, block) in device.map.all() {
            let class = match block {
                Block::Damaged => {
                    found.lost_blocks += end - start;
                    continue;
                }
                Block::Zeroed | Block::Generated => continue,
                Block::Kept { class, .. } | Block::Packed { class, .. } => class,
            };
            let in_file = end.min(start.saturating_add(file.blocks_from(block)?));
            for unit in start..in_file {
                if !is_readable(file, unit, block.at_offset(unit - start))? {
                    add_damaged(&mut found.damaged, unit, 1, class);
                }
                done += 1;
                progress(done, total);
            }
            if in_file < end {
                add_damaged(&mut found.damaged, in_file, end - in_file, class);
                done += end - in_file;
            }
        }
        examination.devices.push(found);
    }
    Ok(examination)
}

/// Adds blocks to the damaged ones, which are in ascending order.
fn add_damaged(damaged: &mut Vec<(u64, u64, Class)>, unit: u64, blocks: u64, class: Class) {
    match damaged.last_mut() {
        Some((first, count, of)) if *first + *count == unit && *of == class => *count += blocks,
        _ => damaged.push((unit, blocks, class)),
    }
}

/// Whether a block's bytes match their checksum.
fn is_readable(file: &mut SlotFile, unit: u64, block: Block) -> Result<bool, StoreError> {
    match read_stored(file, unit, block) {
        Ok(_) => Ok(true),
        Err(StoreError::Damaged { .. }) => Ok(false),
        // The file may be shorter than it was.
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A block's stored bytes, and their place.
fn read_stored(file: &mut SlotFile, unit: u64, block: Block) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
    match block {
        Block::Zeroed | Block::Generated | Block::Damaged => Ok(None),
        Block::Kept { place, .. } => {
            let mut stored = vec![0; UNIT_BYTES as usize];
            file.read_units(unit, place, 0, &mut stored)?;
            Ok(Some((place, stored)))
        }
        Block::Packed { place, stored_bytes, .. } => {
            let mut stored = vec![0; usize::from(stored_bytes)];
            file.read_packed(unit, place, &mut stored)?;
            Ok(Some((place, stored)))
        }
    }
}

/// Computes the checksums of all mapped blocks from the present bytes; a kill leaves the old checksums, or all new
/// ones.
fn write_sums(
    host: &Arc<dyn Host>,
    path: &Path,
    file: &mut SlotFile,
    header: &Header,
    maps: &[RunMap<Block>],
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let total: u64 = maps.iter().flat_map(|map| map.all().map(|(start, end, _)| end - start)).sum();
    let final_path = sums_path(path);
    let new = StoreFile::create_again(host, &append_name(&final_path, ".new"))?;
    let mut sums = Sums::begin(new, header.identity)?;
    let mut done = 0;
    for (start, end, block) in maps.iter().flat_map(RunMap::all) {
        for unit in start..end {
            let Some((place, stored)) = read_stored(file, unit, block.at_offset(unit - start))? else {
                done += end - start;
                break;
            };
            sums.set_from(place, 1, [sum_of(unit, &stored)])?;
            done += 1;
            progress(done, total);
        }
    }
    sums.write_back()?;
    sums.sync()?;
    sums.rename(&final_path)?;
    sums.sync_folder()?;
    file.set_sums(sums);
    Ok(())
}
