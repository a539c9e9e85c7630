//! The file of kept blocks, in slots, with the checksums of these blocks.

use std::path::Path;
use std::sync::Arc;

use chronodisk_store::host::{Allocation, Host, OpenMode};
use chronodisk_store::image_files::{map_path, sums_path, taken_beside};
use chronodisk_store::{FileOperation, StoreError, StoreFile};

use super::block::{Block, slots_of};
use super::header::{self, Commit, HEADER_BYTES, Header};
use super::places::Places;
use super::runs::RunMap;
use super::sums::{Sums, sum_of};
use super::{SLOT_BYTES, UNIT_BYTES, UNIT_SLOTS, image_error};

/// End of places, so that offsets in the file fit the host's type.
pub(crate) const PLACES_MAX: u64 = (1 << 62) / SLOT_BYTES;
/// Freed space that is returned to the host while the image is in use.
const PUNCHED_AFTER_BYTES: u64 = 64 << 20;
/// The host's unit of space.
const HOST_BLOCK_BYTES: u64 = 4096;

/// The file of kept blocks.
#[derive(Debug)]
pub(crate) struct SlotFile {
    file: StoreFile,
    /// `None` for images of versions 1 and 2.
    sums: Option<Sums>,
    pub(crate) power_cut: bool,
    pub(crate) places: Places,
    /// The last commit of each device's map, and its index of the two places in the header.
    commits: Vec<(Commit, usize)>,
    /// Slots that were given back since the host got theirs back.
    unpunched: u64,
}

impl SlotFile {
    /// Begins an image in two files that were made for it, with an identity of its own. The image is one when its
    /// header is [written](Self::write_header).
    pub(crate) fn begin(
        file: StoreFile,
        sums: StoreFile,
        header: &mut Header,
        power_cut: bool,
    ) -> Result<Self, StoreError> {
        let capacity_bytes = header.capacities_bytes.iter().fold(0, |sum: u64, bytes| sum.wrapping_add(*bytes));
        header.identity = file.identity()? ^ capacity_bytes.rotate_left(32) ^ header.content.seed;
        let sums = Sums::begin(sums, header.identity)?;
        let commits = vec![(Commit { generation: 1, sequence: 0 }, 0); header.capacities_bytes.len()];
        Ok(SlotFile { file, sums: Some(sums), power_cut, places: Places::new(PLACES_MAX), commits, unpunched: 0 })
    }

    /// Makes the file an image, when all its other files exist.
    pub(crate) fn write_header(&mut self, header: &Header) -> Result<(), StoreError> {
        let commits: Vec<Commit> = self.commits.iter().map(|commit| commit.0).collect();
        if self.power_cut {
            self.sums.iter().try_for_each(Sums::sync)?;
            self.file.sync_folder()?;
        }
        self.adopt(header, &commits, self.power_cut)
    }

    /// Opens a file, and reads its header. Which places are used the maps say.
    pub(crate) fn open(
        host: &Arc<dyn Host>,
        path: &Path,
        writable: bool,
        power_cut: bool,
    ) -> Result<(Self, Header), StoreError> {
        let (mut file, header) = SlotFile::open_parts(host, path, writable, power_cut, true)?;
        if header.version < header::VERSION {
            if writable {
                let reason = format!(
                    "the image has version {} of its format, which has no checksums; convert it with `chronodisk image \
                     upgrade {}`",
                    header.version,
                    path.display()
                );
                return Err(image_error(path, reason));
            }
            return Ok((file, header));
        }
        file.sums = Some(Sums::open(host, &sums_path(path), writable, header.identity)?);
        Ok((file, header))
    }

    /// Like [`SlotFile::open`], but without checksums: reads are not verified.
    pub(crate) fn open_without_sums(
        host: &Arc<dyn Host>,
        path: &Path,
        writable: bool,
        power_cut: bool,
    ) -> Result<(Self, Header), StoreError> {
        SlotFile::open_parts(host, path, writable, power_cut, false)
    }

    /// Opens a file whose image is otherwise complete; checksums are only required with `needs_sums`.
    pub(crate) fn open_parts(
        host: &Arc<dyn Host>,
        path: &Path,
        writable: bool,
        power_cut: bool,
        needs_sums: bool,
    ) -> Result<(Self, Header), StoreError> {
        let file = open_image(host, path, if writable { OpenMode::ReadWrite } else { OpenMode::Read })?;
        file.lock(writable)?;
        let mut bytes = [0; HEADER_BYTES as usize];
        if file.read(0, &mut bytes).is_err() {
            return Err(image_error(path, "this is no squashed image".to_owned()));
        }
        let header = header::decode(&bytes).map_err(|reason| image_error(path, reason))?;
        check_whole(host, path, header.capacities_bytes.len(), needs_sums && header.version == header::VERSION)?;
        // Without a valid commit any map is accepted, unless the image's version has commits.
        let commits = (0..header.capacities_bytes.len()).map(|device| match header::last_commit(&bytes, device) {
            Some(commit) => Ok(commit),
            None if header.version < header::VERSION => Ok((Commit::default(), 0)),
            None => Err(image_error(path, format!("both commits of device {device} in the header are damaged"))),
        });
        let commits = commits.collect::<Result<_, _>>()?;
        let file = SlotFile { file, sums: None, power_cut, places: Places::new(PLACES_MAX), commits, unpunched: 0 };
        Ok((file, header))
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn host(&self) -> &Arc<dyn Host> {
        self.file.host()
    }

    /// The commit that a device's map must have reached.
    pub(crate) fn commit_of(&self, device: usize) -> Commit {
        self.commits[device].0
    }

    pub(crate) fn set_sums(&mut self, sums: Sums) {
        self.sums = Some(sums);
    }

    /// Converts the image to the version of this header, in one step: the version is in the first sector, which is
    /// written last. With `power_cut`, all else is durable before.
    pub(crate) fn adopt(&mut self, header: &Header, commits: &[Commit], power_cut: bool) -> Result<(), StoreError> {
        const SECTOR_BYTES: usize = 512;
        let bytes = header::encode(header, commits);
        self.file.write(SECTOR_BYTES as u64, &bytes[SECTOR_BYTES..])?;
        if power_cut {
            self.file.sync()?;
        }
        self.file.write(0, &bytes[..SECTOR_BYTES])?;
        if power_cut {
            self.file.sync()?;
        }
        self.commits = commits.iter().map(|&commit| (commit, 0)).collect();
        Ok(())
    }

    /// An error if one map names a place twice, or one that is not in the file.
    pub(crate) fn check(&self, map: &RunMap<Block>) -> Result<(), StoreError> {
        self.places_of(used_places(map)).map(|_| ())
    }

    /// An error if a map names a place twice, whether the file reaches so far or not.
    pub(crate) fn check_apart(&self, map: &RunMap<Block>) -> Result<(), StoreError> {
        self.apart(used_places(map)).map(|_| ())
    }

    /// Count of blocks from a kept one on that begin in the file.
    pub(crate) fn blocks_from(&self, block: Block) -> Result<u64, StoreError> {
        let slots = self.slots()?;
        Ok(slots_of(block, 1).map_or(0, |(place, _)| slots.saturating_sub(place).div_ceil(UNIT_SLOTS)))
    }

    /// Slots that begin in the file.
    fn slots(&self) -> Result<u64, StoreError> {
        Ok(self.file.size()?.len_bytes.saturating_sub(HEADER_BYTES).div_ceil(SLOT_BYTES))
    }

    /// Marks exactly these places as used, in ascending order.
    pub(crate) fn use_places(&mut self, used: impl IntoIterator<Item = (u64, u64)>) -> Result<(), StoreError> {
        self.places = self.places_of(used)?;
        Ok(())
    }

    fn places_of(&self, used: impl IntoIterator<Item = (u64, u64)>) -> Result<Places, StoreError> {
        let places = self.apart(used)?;
        if places.end() > self.slots()? {
            return Err(image_error(self.path(), "the file is shorter than its map says".to_owned()));
        }
        Ok(places)
    }

    fn apart(&self, used: impl IntoIterator<Item = (u64, u64)>) -> Result<Places, StoreError> {
        Places::with_used(PLACES_MAX, used).map_err(|(start, len)| {
            let reason =
                format!("the places from {start} to {} are used twice or do not exist", start.saturating_add(len));
            image_error(self.path(), reason)
        })
    }

    /// Fills `bytes` with blocks from `unit` on, the first one at `place`, without its first `skip_bytes`.
    pub(crate) fn read_units(
        &mut self,
        unit: u64,
        place: u64,
        skip_bytes: u64,
        bytes: &mut [u8],
    ) -> Result<(), StoreError> {
        let mut skip = skip_bytes as usize;
        let (mut unit, mut place, mut done) = (unit, place, 0);
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            let units = if skip == 0 { rest.len() / UNIT_BYTES as usize } else { 0 };
            if units > 0 {
                let whole = &mut rest[..units.min(PIECE_UNITS) * UNIT_BYTES as usize];
                self.file.read(offset_of(place), whole)?;
                self.verify(unit, place, whole)?;
                done += whole.len();
            } else {
                let mut block = [0; UNIT_BYTES as usize];
                self.file.read(offset_of(place), &mut block)?;
                self.verify(unit, place, &block)?;
                let len = rest.len().min(block.len() - skip);
                rest[..len].copy_from_slice(&block[skip..skip + len]);
                done += len;
                skip = 0;
            }
            let advanced = units.clamp(1, PIECE_UNITS) as u64;
            (unit, place) = (unit + advanced, place + advanced * UNIT_SLOTS);
        }
        Ok(())
    }

    /// Fills `stored` with a compressed block.
    pub(crate) fn read_packed(&mut self, unit: u64, place: u64, stored: &mut [u8]) -> Result<(), StoreError> {
        self.file.read(offset_of(place), stored)?;
        self.verify(unit, place, stored)
    }

    /// Returns whether these bytes are at a place, for any block.
    pub(crate) fn holds(&self, place: u64, bytes: &[u8]) -> Result<bool, StoreError> {
        let mut there = [0; UNIT_BYTES as usize];
        let there = &mut there[..bytes.len()];
        self.file.read(offset_of(place), there)?;
        Ok(there == bytes)
    }

    /// Writes blocks from `unit` on, or one compressed block, to places that no map names which survives a kill.
    pub(crate) fn write(&mut self, unit: u64, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (mut unit, mut place) = (unit, place);
        for piece in bytes.chunks(PIECE_UNITS * UNIT_BYTES as usize) {
            self.file.write(offset_of(place), piece)?;
            if let Some(sums) = &mut self.sums {
                let blocks = piece.chunks(UNIT_BYTES as usize).zip(unit..);
                sums.set_from(place, UNIT_SLOTS, blocks.map(|(stored, unit)| sum_of(unit, stored)))?;
            }
            (unit, place) = (unit + PIECE_UNITS as u64, place + PIECE_UNITS as u64 * UNIT_SLOTS);
        }
        Ok(())
    }

    /// Writes all blocks and their checksums to the files, so that a record may name their places.
    pub(crate) fn before_record(&mut self) -> Result<(), StoreError> {
        if let Some(sums) = &mut self.sums {
            sums.write_back()?;
        }
        if self.power_cut {
            self.file.sync()?;
            self.sums.iter().try_for_each(Sums::sync)?;
        }
        Ok(())
    }

    /// Records the end of a device's map.
    pub(crate) fn commit(&mut self, device: usize, commit: Commit) -> Result<(), StoreError> {
        let (last, which) = &mut self.commits[device];
        if *last != commit {
            let next = 1 - *which;
            self.file.write(header::commit_at(device, next), &header::encode_commit(device, commit))?;
            (*last, *which) = (commit, next);
        }
        Ok(())
    }

    /// Frees slots that no durable map refers to.
    pub(crate) fn give(&mut self, start: u64, len: u64) {
        self.places.give(start, len);
        self.unpunched += len;
    }

    /// Truncates the file after the last used slot. Punches holes once the freed space between slots exceeds
    /// `PUNCHED_AFTER_BYTES`.
    pub(crate) fn shrink(&mut self, end_before: u64) -> Result<(), StoreError> {
        if self.places.end() < end_before {
            self.file.set_len(offset_of(self.places.end()), FileOperation::Punch)?;
        }
        if self.unpunched * SLOT_BYTES > PUNCHED_AFTER_BYTES { self.punch() } else { Ok(()) }
    }

    /// Returns all unused space to the host.
    pub(crate) fn punch(&mut self) -> Result<(), StoreError> {
        let file_bytes = self.file.size()?.len_bytes;
        for (start, len) in self.places.free_ranges() {
            let from = offset_of(start).next_multiple_of(HOST_BLOCK_BYTES);
            let to = offset_of(start + len) / HOST_BLOCK_BYTES * HOST_BLOCK_BYTES;
            if from < to.min(file_bytes) && !self.file.allocate(Allocation::Punch, from, to.min(file_bytes) - from)? {
                // The host's file system does not support holes.
                break;
            }
            if let Some(sums) = &mut self.sums {
                sums.forget(start, start + len)?;
            }
        }
        self.unpunched = 0;
        Ok(())
    }

    /// Bytes on the host, of blocks and checksums.
    pub(crate) fn host_bytes(&self) -> Result<u64, StoreError> {
        let sums_bytes = self.sums.as_ref().map_or(Ok(0), Sums::host_bytes)?;
        Ok(self.file.size()?.allocated_bytes + sums_bytes)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes() + self.sums.as_ref().map_or(0, Sums::memory_bytes)
    }

    /// Verifies the checksums of blocks from `unit` on, or of one compressed block.
    fn verify(&mut self, unit: u64, place: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(sums) = &mut self.sums else { return Ok(()) };
        let mut blocks = (unit..).zip(bytes.chunks(UNIT_BYTES as usize)).peekable();
        while let Some((first, _)) = blocks.peek() {
            let place = place + (first - unit) * UNIT_SLOTS;
            for (sum, (unit, stored)) in sums.from(place)?.iter().step_by(UNIT_SLOTS as usize).zip(&mut blocks) {
                if *sum != sum_of(unit, stored) {
                    return Err(StoreError::Damaged { what: format!("{}: block {unit}", self.file.path().display()) });
                }
            }
        }
        Ok(())
    }
}

/// Blocks that are read or written in one call: their checksums are computed while a processor's second-level cache has
/// them.
const PIECE_UNITS: usize = 32;

/// Offset of a slot in the file.
fn offset_of(place: u64) -> u64 {
    HEADER_BYTES + place * SLOT_BYTES
}

/// Fails if files of an image of this number of devices are missing; checksums only count with `needs_sums`.
fn check_whole(host: &Arc<dyn Host>, image: &Path, devices: usize, needs_sums: bool) -> Result<(), StoreError> {
    let maps = (0..devices).map(|index| map_path(image, devices, index));
    let sums = needs_sums.then(|| sums_path(image));
    let (mut missing, mut there) = (Vec::new(), vec![image.to_owned()]);
    for path in sums.into_iter().chain(maps) {
        match StoreFile::exists(host, &path)? {
            true => there.push(path),
            false => missing.push(path),
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Incomplete { image: image.to_owned(), missing, there }),
    }
}

/// Opens the file of an image. If it is missing, the error names existing files of the image.
pub(crate) fn open_image(host: &Arc<dyn Host>, path: &Path, how: OpenMode) -> Result<StoreFile, StoreError> {
    if !StoreFile::exists(host, path)? {
        let there = taken_beside(host, path)?;
        if !there.is_empty() {
            return Err(StoreError::Incomplete { image: path.to_owned(), missing: vec![path.to_owned()], there });
        }
    }
    StoreFile::open(host, path, how)
}

/// The places that a map names, in ascending order.
pub(crate) fn used_places(map: &RunMap<Block>) -> Vec<(u64, u64)> {
    let mut used: Vec<(u64, u64)> = map.all().filter_map(|(start, end, block)| slots_of(block, end - start)).collect();
    used.sort_unstable();
    used
}
