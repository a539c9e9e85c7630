//! Where kept blocks lie: compactly in memory, or in a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::arena::Arena;
use super::blocks::Block;
use super::content::{Content, ContentKind};
use super::joint::Member;
use super::map_log::{Entry, MapLog, append_name, u32_at, u64_at};
use super::places::Places;
use super::runs::RunMap;
use super::{SLOT_BYTES, SquashMode, UNIT_BYTES, UNIT_SLOTS, image_error, slots_of};
use crate::file::io_error;
use crate::{FileOperation, StoreError};

/// Keeps bytes at places, counted in slots.
#[derive(Debug)]
pub(crate) enum Backing {
    Memory {
        arena: Arena,
        budget_bytes: u64,
    },
    /// In memory that other devices' blocks are in, too.
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
            Backing::Joint(memory) => memory.take(len, unit),
            Backing::File(image) => image.places.take(len, unit),
        }
    }

    /// Gives slots back; in a file they are free once the record that says so is safe.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        match self {
            Backing::Memory { arena, .. } => arena.give(start, len),
            Backing::Joint(memory) => memory.give(start, len),
            Backing::File(image) => {
                image.released.push((start, len));
                image.released_slots += len;
            }
        }
    }

    /// A device's blocks between two are no longer these.
    pub(crate) fn release(&mut self, start: u64, end: u64, block: Block) {
        let Some((place, len)) = slots_of(block, end - start) else { return };
        match self {
            Backing::Joint(memory) => memory.release(start, end, block),
            Backing::Memory { .. } | Backing::File(_) => self.give(place, len),
        }
    }

    /// The memory that other devices' blocks are in, too, if it is such.
    pub(crate) fn joint(&self) -> Option<&Member> {
        match self {
            Backing::Joint(memory) => Some(memory),
            Backing::Memory { .. } | Backing::File(_) => None,
        }
    }

    pub(crate) fn read(&self, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.read(place, skip_bytes, bytes);
                Ok(())
            }
            Backing::Joint(memory) => {
                memory.read(place, skip_bytes, bytes);
                Ok(())
            }
            Backing::File(image) => image.read(place, skip_bytes, bytes),
        }
    }

    pub(crate) fn write(&mut self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        match self {
            Backing::Memory { arena, .. } => {
                arena.write(place, bytes);
                Ok(())
            }
            Backing::Joint(memory) => {
                memory.write(place, bytes);
                Ok(())
            }
            Backing::File(image) => image.write(place, bytes),
        }
    }

    /// Whether so many blocks find room that need one range of slots each, whatever lies around it.
    pub(crate) fn has_room(&self, units: u64) -> bool {
        match self {
            Backing::Memory { arena, .. } => arena.places().has_room(units, UNIT_SLOTS),
            Backing::Joint(memory) => memory.has_room(units),
            Backing::File(image) => image.places.has_room(units, UNIT_SLOTS),
        }
    }

    /// Slots behind all that are used.
    pub(crate) fn growth(&self) -> u64 {
        match self {
            Backing::Memory { arena, .. } => arena.places().growth(),
            Backing::Joint(memory) => memory.growth(),
            Backing::File(image) => image.places.growth(),
        }
    }

    /// Slots in use, by all devices that share them.
    pub(crate) fn used(&self) -> u64 {
        match self {
            Backing::Memory { arena, .. } => arena.places().used(),
            Backing::Joint(memory) => memory.sizes().0,
            Backing::File(image) => image.places.used() - image.released_slots,
        }
    }

    /// Memory in bytes: that of kept blocks, and that of the tables of places.
    pub(crate) fn memory_bytes(&self) -> (u64, u64) {
        match self {
            Backing::Memory { arena, .. } => (arena.memory_bytes(), arena.places().memory_bytes()),
            Backing::Joint(memory) => (memory.sizes().1, memory.sizes().2),
            Backing::File(image) => {
                let released_bytes = image.released.capacity() * size_of::<(u64, u64)>();
                (0, image.places.memory_bytes() + released_bytes as u64)
            }
        }
    }

    pub(crate) fn budget_bytes(&self) -> Option<u64> {
        match self {
            Backing::Memory { budget_bytes, .. } => Some(*budget_bytes),
            Backing::Joint(memory) => Some(memory.budget_bytes()),
            Backing::File(_) => None,
        }
    }

    /// Bytes that the backing takes from the host besides what is used: the map's log.
    pub(crate) fn log_bytes(&self) -> u64 {
        match self {
            Backing::Memory { .. } | Backing::Joint(_) => 0,
            Backing::File(image) => image.log.len_bytes(),
        }
    }

    /// Whether so much was given back that the record of it should not wait for a flush.
    pub(crate) fn wants_record(&self) -> bool {
        matches!(self, Backing::File(image) if image.released_slots * SLOT_BYTES > RELEASED_MAX_BYTES)
    }

    /// What changed in `map` is safe, in a file; places given back before can be taken again.
    pub(crate) fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        match self {
            Backing::Memory { .. } | Backing::Joint(_) => {
                changed.clear();
                Ok(())
            }
            Backing::File(image) => image.record(map, changed),
        }
    }
}

/// Freed places that wait for the next record take at most so much of a file.
const RELEASED_MAX_BYTES: u64 = 32 << 20;

const MAGIC: &[u8; 8] = b"CDSQUASH";
const VERSION: u32 = 1;
/// The header takes the first block; places count from its end.
const HEADER_BYTES: u64 = UNIT_BYTES;
/// Places end here, so that offsets in the file fit what the host counts with.
const PLACES_MAX: u64 = (1 << 62) / SLOT_BYTES;

/// What an image's header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) capacity_bytes: u64,
    pub(crate) content: Content,
    pub(crate) mode: SquashMode,
    identity: u64,
}

/// The files of an image: kept blocks, and the log of the map.
#[derive(Debug)]
pub(crate) struct ImageFile {
    file: File,
    path: PathBuf,
    durable: bool,
    log: MapLog,
    places: Places,
    /// Given back since the last record.
    released: Vec<(u64, u64)>,
    released_slots: u64,
}

impl ImageFile {
    /// Makes an image that must not exist.
    pub(crate) fn create(
        path: &Path,
        capacity_bytes: u64,
        content: Content,
        mode: SquashMode,
        durable: bool,
    ) -> Result<Self, StoreError> {
        let failed = |source| io_error(path, FileOperation::Create, 0, 0, source);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(failed)?;
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
        // Tells the maps of two images apart.
        let identity = file.metadata().map_err(failed)?.ino() ^ capacity_bytes.rotate_left(32) ^ content.seed;
        let header = Header { capacity_bytes, content, mode, identity };
        file.write_all_at(&encode(&header), 0).map_err(failed)?;
        let log = MapLog::create(&append_name(path, ".map"), identity)?;
        Ok(ImageFile {
            file,
            path: path.to_owned(),
            durable,
            log,
            places: Places::new(PLACES_MAX),
            released: Vec::new(),
            released_slots: 0,
        })
    }

    /// Opens an image, and reads its map.
    pub(crate) fn open(
        path: &Path,
        writable: bool,
        durable: bool,
    ) -> Result<(Self, Header, RunMap<Block>), StoreError> {
        let failed = |operation| move |source| io_error(path, operation, 0, 0, source);
        let opened = OpenOptions::new().read(true).write(writable).open(path);
        let file = opened.map_err(failed(FileOperation::Open))?;
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        lock(&file, path, if writable { exclusive } else { FlockOperation::NonBlockingLockShared })?;
        let mut bytes = [0; HEADER_BYTES as usize];
        if file.read_exact_at(&mut bytes, 0).is_err() {
            return Err(image_error(path, "this is no squashed image".to_owned()));
        }
        let header = decode(&bytes).map_err(|reason| image_error(path, reason))?;
        let units = header.capacity_bytes.div_ceil(UNIT_BYTES);
        let map_path = append_name(path, ".map");
        let (log, map) = MapLog::open(&map_path, writable, header.identity, units)?;
        let file_bytes = file.metadata().map_err(failed(FileOperation::Stat))?.len();
        let places = Places::with_used(PLACES_MAX, used_places(&map)).map_err(|(start, len)| {
            let reason =
                format!("the places from {start} to {} are used twice or do not exist", start.wrapping_add(len));
            image_error(path, reason)
        })?;
        if places.end() > file_bytes.saturating_sub(HEADER_BYTES).div_ceil(SLOT_BYTES) {
            return Err(image_error(path, "the file is shorter than its map says".to_owned()));
        }
        let path = path.to_owned();
        Ok((ImageFile { file, path, durable, log, places, released: Vec::new(), released_slots: 0 }, header, map))
    }

    pub(crate) fn generation(&self) -> u64 {
        self.log.generation()
    }

    fn read(&self, place: u64, skip_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let offset = HEADER_BYTES + place * SLOT_BYTES + skip_bytes;
        let len_bytes = bytes.len() as u64;
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|source| io_error(&self.path, FileOperation::Read, offset, len_bytes, source))
    }

    fn write(&self, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let offset = HEADER_BYTES + place * SLOT_BYTES;
        self.file
            .write_all_at(bytes, offset)
            .map_err(|source| io_error(&self.path, FileOperation::Write, offset, bytes.len() as u64, source))
    }

    /// Data first, then the record that names their places, then the places are free that it frees.
    fn record(&mut self, map: &RunMap<Block>, changed: &mut RunMap<()>) -> Result<(), StoreError> {
        let failed = |source| io_error(&self.path, FileOperation::Sync, 0, 0, source);
        if self.durable {
            self.file.sync_data().map_err(failed)?;
        }
        if !changed.is_empty() {
            self.log.append(changed.all().flat_map(|(start, end, ())| entries(map, start, end)))?;
            if self.log.wants_rewrite(map) {
                self.log.rewrite(map)?;
            }
            changed.clear();
        }
        if self.durable {
            self.log.sync()?;
        }
        let end_before = self.places.end();
        for (start, len) in self.released.drain(..) {
            self.places.give(start, len);
        }
        self.released_slots = 0;
        if self.places.end() < end_before {
            let len_bytes = HEADER_BYTES + self.places.end() * SLOT_BYTES;
            self.file
                .set_len(len_bytes)
                .map_err(|source| io_error(&self.path, FileOperation::Punch, len_bytes, 0, source))?;
        }
        Ok(())
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

fn lock(file: &File, path: &Path, how: FlockOperation) -> Result<(), StoreError> {
    match flock(file, how) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(StoreError::InUse { path: path.to_owned() }),
        Err(errno) => Err(io_error(path, FileOperation::Lock, 0, 0, errno.into())),
    }
}

fn encode(header: &Header) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&(UNIT_BYTES as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&header.capacity_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.content.seed.to_le_bytes());
    bytes[32] = header.content.kind.code();
    bytes[33] = header.mode.code();
    bytes[40..48].copy_from_slice(&header.identity.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..48]);
    bytes[48..52].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Header, String> {
    if &bytes[..8] != MAGIC {
        return Err("this is no squashed image".to_owned());
    }
    if u32_at(bytes, 48) != crc32c::crc32c(&bytes[..48]) {
        return Err("the header is damaged".to_owned());
    }
    let version = u32_at(bytes, 8);
    if version != VERSION {
        return Err(format!("the image has version {version} of its format, and this program knows {VERSION}"));
    }
    let content = ContentKind::from_code(bytes[32]).map(|kind| Content { kind, seed: u64_at(bytes, 24) });
    let (Some(content), Some(mode)) = (content, SquashMode::from_code(bytes[33])) else {
        return Err("the header names content or a mode that this program does not know".to_owned());
    };
    let capacity_bytes = u64_at(bytes, 16);
    if u64::from(u32_at(bytes, 12)) != UNIT_BYTES || capacity_bytes == 0 || capacity_bytes > 1 << 62 {
        return Err("the header gives sizes that can't be".to_owned());
    }
    Ok(Header { capacity_bytes, content, mode, identity: u64_at(bytes, 40) })
}
