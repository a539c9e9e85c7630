//! Where kept blocks lie: compactly in memory, or in a file.

use std::path::Path;
use std::sync::Arc;

use super::arena::Arena;
use super::blocks::Block;
use super::content::{Content, ContentKind};
use super::joint::Member;
use super::map_log::{Entry, MapLog, append_name, u32_at, u64_at};
use super::places::Places;
use super::runs::RunMap;
use super::{SLOT_BYTES, SquashMode, UNIT_BYTES, UNIT_SLOTS, image_error, slots_of};
use crate::host::{Host, OpenMode};
use crate::store_file::StoreFile;
use crate::{FileOperation, StoreError};

/// Keeps bytes at places, counted in slots.
#[derive(Debug)]
pub(crate) enum Backing {
    Memory {
        arena: Arena,
        budget_bytes: u64,
    },
    /// Where other devices' blocks are, too, in memory or in a file.
    Joint(Member),
    File(Box<ImageFile>),
}

impl Backing {
    pub(crate) fn memory(budget_bytes: u64) -> Self {
        Backing::Memory { arena: Arena::new(budget_bytes), budget_bytes }
    }

    /// Takes up to `len` slots in one range, a multiple of `unit`.
    pub(crate) fn take(&mut self, len: u64, unit: u64) -> Option<(u64, u64)> {
        match self {
            Backing::Memory { arena, .. } => arena.take(len, unit),
            Backing::Joint(joint) => joint.take(len, unit),
            Backing::File(image) => image.file.places.take(len, unit),
        }
    }

    /// Gives slots back; in a file they are free once the record that says so is safe.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        match self {
            Backing::Memory { arena, .. } => arena.give(start, len),
            Backing::Joint(joint) => joint.give(start, len),
            Backing::File(image) => image.released.push(start, len),
        }
    }

    /// A device's blocks between two are no longer these.
    pub(crate) fn release(&mut self, start: u64, end: u64, block: Block) {
        let Some((place, len)) = slots_of(block, end - start) else { return };
        match self {
            Backing::Joint(joint) => joint.release(start, end, block),
            Backing::Memory { .. } | Backing::File(_) => self.give(place, len),
        }
    }

    /// The place where other devices' blocks are, too, if it is such.
    pub(crate) fn joint(&self) -> Option<&Member> {
        match self {
            Backing::Joint(joint) => Some(joint),
            Backing::Memory { .. } | Backing::File(_) => None,
        }
    }

    pub(crate) fn read(&self, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.read(place, skip_bytes, bytes);
                Ok(())
            }
            Backing::Joint(joint) => joint.read(place, skip_bytes, bytes),
            Backing::File(image) => image.file.read(place, skip_bytes, bytes),
        }
    }

    pub(crate) fn write(&mut self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.write(place, bytes);
                Ok(())
            }
            Backing::Joint(joint) => joint.write(place, bytes),
            Backing::File(image) => image.file.write(place, bytes),
        }
    }

    /// Whether so many blocks find room that need one range of slots each, whatever lies around it.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        match self {
            Backing::Memory { arena, .. } => arena.places().has_room(units, UNIT_SLOTS),
            Backing::Joint(joint) => joint.has_room(units),
            Backing::File(image) => image.file.places.has_room(units, UNIT_SLOTS),
        }
    }

    /// Slots behind all that are used.
    pub(crate) fn growth(&self) -> u64 {
        match self {
            Backing::Memory { arena, .. } => arena.places().growth(),
            Backing::Joint(joint) => joint.growth(),
            Backing::File(image) => image.file.places.growth(),
        }
    }

    /// Slots in use, by all devices that share them.
    pub(crate) fn used(&self) -> u64 {
        match self {
            Backing::Memory { arena, .. } => arena.places().used(),
            Backing::Joint(joint) => joint.used(),
            Backing::File(image) => image.file.places.used() - image.released.slots,
        }
    }

    /// Memory in bytes: that of kept blocks, and that of the tables of places.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        match self {
            Backing::Memory { arena, .. } => (arena.memory_bytes(), arena.places().memory_bytes()),
            Backing::Joint(joint) => joint.memory_bytes(),
            Backing::File(image) => (0, image.file.places.memory_bytes() + image.released.memory_bytes()),
        }
    }

    pub(crate) fn budget_bytes(&self) -> Option<u64> {
        match self {
            Backing::Memory { budget_bytes, .. } => Some(*budget_bytes),
            Backing::Joint(joint) => joint.budget_bytes(),
            Backing::File(_) => None,
        }
    }

    /// Bytes that the backing takes from the host besides what is used: the map's log.
    pub(crate) fn log_bytes(&self) -> u64 {
        match self {
            Backing::Memory { .. } => 0,
            Backing::Joint(joint) => joint.log_bytes(),
            Backing::File(image) => image.log_bytes(),
        }
    }

    /// Whether so much was given back that the record of it should not wait for a flush.
    pub(crate) fn wants_record(&self) -> bool {
        match self {
            Backing::Memory { .. } => false,
            Backing::Joint(joint) => joint.wants_record(),
            Backing::File(image) => image.released.are_many(),
        }
    }

    /// What changed in `map` is safe, in a file; places given back before can be taken again.
    pub(crate) fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        match self {
            Backing::Memory { .. } => {
                changed.clear();
                Ok(())
            }
            Backing::Joint(joint) => joint.record(map, changed),
            Backing::File(image) => image.record(map, changed),
        }
    }
}

/// Freed places that wait for the next record take at most so much of a file.
const RELEASED_MAX_BYTES: u64 = 32 << 20;

/// Places that were given back since the last record of a map, and are free after the next.
#[derive(Debug, Default)]
pub(crate) struct Released {
    places: Vec<(u64, u64)>,
    slots: u64,
}

impl Released {
    pub(crate) fn push(&mut self, start: u64, len: u64) {
        self.places.push((start, len));
        self.slots += len;
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.slots = 0;
        self.places.drain(..)
    }

    /// Whether they take so much that their record should not wait for a flush.
    pub(crate) fn are_many(&self) -> bool {
        self.slots * SLOT_BYTES > RELEASED_MAX_BYTES
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.places.capacity() * size_of::<(u64, u64)>()) as u64
    }
}

const MAGIC: &[u8; 8] = b"CDSQUASH";
/// Of an image of one device, and of one of several.
const VERSIONS: [u32; 2] = [1, 2];
/// The header takes the first block; places count from its end.
const HEADER_BYTES: u64 = UNIT_BYTES;
/// Places end here, so that offsets in the file fit what the host counts with.
const PLACES_MAX: u64 = (1 << 62) / SLOT_BYTES;
/// Most devices that have an image together.
pub(crate) const DEVICES_MAX: usize = 64;

/// What an image's header says.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    /// Of each device.
    pub(crate) capacities_bytes: Vec<u64>,
    pub(crate) content: Content,
    pub(crate) mode: SquashMode,
    /// Tells the maps of two images apart; chosen when the file is made.
    pub(crate) identity: u64,
}

/// The file of kept blocks.
#[derive(Debug)]
pub(crate) struct SlotFile {
    file: StoreFile,
    pub(crate) durable: bool,
    pub(crate) places: Places,
}

impl SlotFile {
    /// Makes a file that must not exist; its identity is put into the header.
    pub(crate) fn create(
        host: &Arc<dyn Host>,
        path: &Path,
        header: &mut Header,
        durable: bool,
    ) -> Result<Self, StoreError> {
        let file = StoreFile::open(host, path, OpenMode::CreateNew)?;
        file.lock(true)?;
        let capacity_bytes = header.capacities_bytes.iter().fold(0, |sum: u64, bytes| sum.wrapping_add(*bytes));
        header.identity = file.identity()? ^ capacity_bytes.rotate_left(32) ^ header.content.seed;
        file.write(0, &encode(header))?;
        Ok(SlotFile { file, durable, places: Places::new(PLACES_MAX) })
    }

    /// Opens a file, and reads its header. Which places are used the maps say.
    pub(crate) fn open(
        host: &Arc<dyn Host>,
        path: &Path,
        writable: bool,
        durable: bool,
    ) -> Result<(Self, Header), StoreError> {
        let file = StoreFile::open(host, path, if writable { OpenMode::ReadWrite } else { OpenMode::Read })?;
        file.lock(writable)?;
        let mut bytes = [0; HEADER_BYTES as usize];
        if file.read(0, &mut bytes).is_err() {
            return Err(image_error(path, "this is no squashed image".to_owned()));
        }
        let header = decode(&bytes).map_err(|reason| image_error(path, reason))?;
        Ok((SlotFile { file, durable, places: Places::new(PLACES_MAX) }, header))
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        self.file.host()
    }

    /// An error if one map names a place twice, or one that is not in the file.
    pub(crate) fn check(&self, map: &RunMap<Block>) -> Result<(), StoreError> {
        self.places_of(used_places(map)).map(|_| ())
    }

    /// These places are used, in ascending order, and no others.
    pub(crate) fn use_places(&mut self, used: impl IntoIterator<Item = (u64, u64)>) -> Result<(), StoreError> {
        self.places = self.places_of(used)?;
        Ok(())
    }

    fn places_of(&self, used: impl IntoIterator<Item = (u64, u64)>) -> Result<Places, StoreError> {
        let file_bytes = self.file.size()?.len_bytes;
        let places = Places::with_used(PLACES_MAX, used).map_err(|(start, len)| {
            let reason =
                format!("the places from {start} to {} are used twice or do not exist", start.wrapping_add(len));
            image_error(self.path(), reason)
        })?;
        if places.end() > file_bytes.saturating_sub(HEADER_BYTES).div_ceil(SLOT_BYTES) {
            return Err(image_error(self.path(), "the file is shorter than its map says".to_owned()));
        }
        Ok(places)
    }

    pub(crate) fn read(&self, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        self.file.read(HEADER_BYTES + place * SLOT_BYTES + skip_bytes, bytes)
    }

    pub(crate) fn write(&self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write(HEADER_BYTES + place * SLOT_BYTES, bytes)
    }

    pub(crate) fn sync_if_durable(&self) -> Result<(), StoreError> {
        if self.durable { self.file.sync() } else { Ok(()) }
    }

    /// Gives the host back what lies behind all places that are used, if these ended there before.
    pub(crate) fn shrink(&self, end_before: u64) -> Result<(), StoreError> {
        if self.places.end() >= end_before {
            return Ok(());
        }
        self.file.set_len(HEADER_BYTES + self.places.end() * SLOT_BYTES, FileOperation::Punch)
    }
}

/// What changed is in the log of a map.
pub(crate) fn append_changes(
    log: &mut MapLog,
    map: &RunMap<Block>,
    changed: &mut RunMap<()>,
    durable: bool,
) -> Result<(), StoreError> {
    if !changed.is_empty() {
        log.append(changed.all().flat_map(|(start, end, ())| entries(map, start, end)))?;
        if log.wants_rewrite(map) {
            log.rewrite(map)?;
        }
        changed.clear();
    }
    if durable { log.sync() } else { Ok(()) }
}

/// The files of an image of one device: kept blocks, and the log of the map.
#[derive(Debug)]
pub(crate) struct ImageFile {
    file: SlotFile,
    log: MapLog,
    released: Released,
}

impl ImageFile {
    /// Makes an image that must not exist.
    pub(crate) fn create(
        host: &Arc<dyn Host>,
        path: &Path,
        header: &mut Header,
        durable: bool,
    ) -> Result<Self, StoreError> {
        let file = SlotFile::create(host, path, header, durable)?;
        let log = MapLog::create(host, &append_name(path, ".map"), header.identity)?;
        Ok(ImageFile { file, log, released: Released::default() })
    }

    /// Reads the map of an image that was opened.
    pub(crate) fn open(
        mut file: SlotFile,
        header: &Header,
        capacity_bytes: u64,
        writable: bool,
    ) -> Result<(Self, RunMap<Block>), StoreError> {
        let map_path = append_name(file.path(), ".map");
        let units = capacity_bytes.div_ceil(UNIT_BYTES);
        let (log, map) = MapLog::open(file.host(), &map_path, writable, header.identity, units)?;
        file.use_places(used_places(&map))?;
        Ok((ImageFile { file, log, released: Released::default() }, map))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.log.generation()
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.len_bytes()
    }

    /// Data first, then the record that names their places, then the places are free that it frees.
    fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        self.file.sync_if_durable()?;
        append_changes(&mut self.log, map, changed, self.file.durable)?;
        let end_before = self.file.places.end();
        for (start, len) in self.released.take() {
            self.file.places.give(start, len);
        }
        self.file.shrink(end_before)
    }
}

/// What the map says between two blocks, holes included.
fn entries(map: &RunMap<Block>, start: u64, end: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut at = start;
    for (from, to, block) in map.pieces(start, end) {
        if at < from {
            entries.push(Entry { start: at, end: from, block: None });
        }
        entries.push(Entry { start: from, end: to, block: Some(block) });
        at = to;
    }
    if at < end {
        entries.push(Entry { start: at, end, block: None });
    }
    entries
}

/// The places that a map names, in ascending order.
fn used_places(map: &RunMap<Block>) -> Vec<(u64, u64)> {
    let mut used: Vec<(u64, u64)> = map.all().filter_map(|(start, end, block)| slots_of(block, end - start)).collect();
    used.sort_unstable();
    used
}

fn encode(header: &Header) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    let several = header.capacities_bytes.len() > 1;
    let capacity_bytes = header.capacities_bytes.iter().copied().max().unwrap_or(0);
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSIONS[usize::from(several)].to_le_bytes());
    bytes[12..16].copy_from_slice(&(UNIT_BYTES as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&capacity_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.content.seed.to_le_bytes());
    bytes[32] = header.content.kind.code();
    bytes[33] = header.mode.code();
    bytes[40..48].copy_from_slice(&header.identity.to_le_bytes());
    if several {
        bytes[34] = header.capacities_bytes.len() as u8;
        let places = (CAPACITIES_AT..).step_by(8);
        for (at, capacity_bytes) in places.zip(&header.capacities_bytes) {
            bytes[at..at + 8].copy_from_slice(&capacity_bytes.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&bytes[CAPACITIES_AT..CAPACITIES_AT + 8 * header.capacities_bytes.len()]);
        bytes[52..56].copy_from_slice(&checksum.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Where version 2 has the capacity of each device.
const CAPACITIES_AT: usize = 64;

fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Header, String> {
    if &bytes[..8] != MAGIC {
        return Err("this is no squashed image".to_owned());
    }
    if u32_at(bytes, 48) != crc32c::crc32c(&bytes[..48]) {
        return Err("the header is damaged".to_owned());
    }
    let version = u32_at(bytes, 8);
    if !VERSIONS.contains(&version) {
        return Err(format!(
            "the image has version {version} of its format, and this program knows {} and {}",
            VERSIONS[0], VERSIONS[1]
        ));
    }
    let content = ContentKind::from_code(bytes[32]).map(|kind| Content { kind, seed: u64_at(bytes, 24) });
    let (Some(content), Some(mode)) = (content, SquashMode::from_code(bytes[33])) else {
        return Err("the header names content or a mode that this program does not know".to_owned());
    };
    let capacities_bytes = if version == VERSIONS[0] { vec![u64_at(bytes, 16)] } else { decode_capacities(bytes)? };
    let possible = |&capacity_bytes: &u64| (1..=1 << 62).contains(&capacity_bytes);
    if u64::from(u32_at(bytes, 12)) != UNIT_BYTES || !capacities_bytes.iter().all(possible) {
        return Err("the header gives sizes that can't be".to_owned());
    }
    Ok(Header { capacities_bytes, content, mode, identity: u64_at(bytes, 40) })
}

/// The capacity of each of several devices.
fn decode_capacities(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Vec<u64>, String> {
    let count = usize::from(bytes[34]);
    if !(2..=DEVICES_MAX).contains(&count) {
        return Err(format!("the header says that the image is of {count} devices, expected 2 to {DEVICES_MAX}"));
    }
    let capacities = &bytes[CAPACITIES_AT..CAPACITIES_AT + 8 * count];
    if u32_at(bytes, 52) != crc32c::crc32c(capacities) {
        return Err("the header is damaged where the devices' capacities are".to_owned());
    }
    Ok(capacities.chunks_exact(8).map(|capacity| u64_at(capacity, 0)).collect())
}
