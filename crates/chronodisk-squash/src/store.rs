//! The squashing store: blocks, and the classifiers that decide about them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use chronodisk_store::host::{Host, RealHost};
use chronodisk_store::{
    Component, CpuClock, Durability, Extent, FileData, Footprint, Store, StoreError, StoreFile, check_extent,
    check_range,
};

use super::backing::{self, Backing};
use super::block::Block;
use super::blocks::Blocks;
use super::claims::Claims;
use super::classifier::{Counts, Verdict};
use super::content::Content;
use super::device_blocks::DeviceBlocks;
use super::header::{DEVICES_MAX, Header, VERSION};
use super::image::Sizes;
use super::joint::JointMemory;
use super::kinds::holds_file_system;
use super::location::{Location, locations_of};
use super::meter::Worker;
use super::names::NameRule;
use super::new_image::is_unfinished_at;
use super::notes::{MARKS_MAX, Notes};
use super::part::{Part, PartOptions};
use super::runs::RunMap;
use super::slot_file::SlotFile;
use super::statistics::SquashStatistics;
use super::table::{Division, DivisionKind};
use super::units::DeviceUnit;
use super::volume::Volume;
use super::{Class, ContentKind, SLOT_BYTES, SquashMode, UNIT_BYTES, image_error};
use crate::len_of;

/// Options of a squashing store.
#[derive(Clone, Debug)]
pub struct SquashOptions {
    /// The mode. An existing image keeps its own.
    pub mode: SquashMode,
    /// Generated contents of dropped blocks. An existing image keeps its own.
    pub content: ContentKind,
    /// Seed of generated contents. An existing image keeps its own.
    pub seed: u64,
    /// Memory for unclassified blocks, in bytes; blocks beyond it are kept.
    pub unclassified_bytes: u64,
    /// An image's durability contract.
    pub durability: Durability,
    /// Host of the images' files.
    pub host: Arc<dyn Host>,
    /// Keeps journals without reading them, so that blocks are classified only when inodes are written to their places:
    /// the original system's reference (figure 4).
    pub ignore_journal: bool,
    /// The client's kernel flags contents of files in its writes ([`Store::write_with_file_data`]). Where no classifier
    /// knows the blocks, these are dropped, and others are kept as metadata.
    pub notified: bool,
    /// Rules by file name; the first match counts. Names are read on ext2, ext3 and ext4. On btrfs and XFS they are
    /// read for files to be kept. On other file systems, a rule keeps every block.
    pub names: Vec<NameRule>,
    /// Honours marker pages ([`super::Notice`]), with which a program flags pages to keep or discard.
    pub notices: bool,
}

impl Default for SquashOptions {
    fn default() -> Self {
        SquashOptions {
            mode: SquashMode::Classified,
            content: ContentKind::Zeros,
            seed: 1,
            unclassified_bytes: UNCLASSIFIED_BYTES_DEFAULT,
            durability: Durability::default(),
            host: Arc::new(RealHost),
            ignore_journal: false,
            notified: false,
            names: Vec::new(),
            notices: false,
        }
    }
}

const BESIDE: &str = "there is a partition table or a volume manager beside it";

/// Most unclassified bytes in the original system when it read the journal (section 3.1.2: 240 MB).
const UNCLASSIFIED_BYTES_DEFAULT: u64 = 240 << 20;

/// Keeps metadata as classified, and generates the rest.
///
/// An image keeps the promises of its [`Durability`]. Unclassified blocks while a journal is followed are contents of
/// files without a committed inode. They are generated later in any case, and neither a flush nor a write keeps them.
#[derive(Debug)]
pub struct SquashStore {
    capacity_bytes: u64,
    mode: SquashMode,
    /// Each operation must survive a death of this process, because no flush will come.
    write_through: bool,
    blocks: Blocks,
    /// The whole device, or its partitions and logical volumes.
    parts: Vec<Part>,
    /// The places of the parts, by blocks of the device.
    locations: RunMap<Location>,
    division: Division,
    /// Counters of removed parts.
    past: Counts,
    part_options: PartOptions,
    /// Programs' marker pages, if they are honoured.
    notes: Option<Notes>,
    written_bytes: u64,
    dropped_bytes: u64,
}

fn new_header(capacities_bytes: Vec<u64>, options: &SquashOptions) -> Header {
    let content = Content { kind: options.content, seed: options.seed };
    Header { version: VERSION, capacities_bytes, content, mode: options.mode, identity: 0 }
}

/// The store of an image's only device.
fn only(stores: Vec<SquashStore>) -> SquashStore {
    stores.into_iter().next().expect("an image of one device")
}

/// Fails unless the image is of devices of these capacities.
fn check_capacities(path: &Path, header: &Header, expected: &[u64]) -> Result<(), StoreError> {
    let held = &header.capacities_bytes;
    if held.len() != expected.len() {
        let of = |count: usize| if count == 1 { "one device".to_owned() } else { format!("{count} devices") };
        let reason = format!("the image is of {}, expected {}", of(held.len()), of(expected.len()));
        return Err(image_error(path, reason));
    }
    match held.iter().zip(expected).find(|(held, expected)| held != expected) {
        None => Ok(()),
        Some((held, expected)) => {
            let reason = format!("the image is of a device of {held} bytes, expected {expected}");
            Err(image_error(path, reason))
        }
    }
}

impl SquashStore {
    /// A store in memory of at most `budget_bytes`, plus unclassified blocks and tables.
    #[must_use]
    pub fn in_memory(capacity_bytes: u64, budget_bytes: u64, options: &SquashOptions) -> Self {
        let content = Content { kind: options.content, seed: options.seed };
        let backing = Backing::memory(budget_bytes);
        SquashStore::new(capacity_bytes, options.mode, RunMap::default(), backing, content, options)
    }

    /// A store in memory shared with other devices' stores: equal blocks at equal addresses are stored once.
    #[must_use]
    pub fn in_joint_memory(capacity_bytes: u64, memory: &JointMemory, options: &SquashOptions) -> Self {
        let content = Content { kind: options.content, seed: options.seed };
        let backing = memory.member();
        SquashStore::new(capacity_bytes, options.mode, RunMap::default(), backing, content, options)
    }

    /// A new image.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists; [`StoreError::Incomplete`] if only some other file of an image
    /// exists.
    pub fn create(path: impl AsRef<Path>, capacity_bytes: u64, options: &SquashOptions) -> Result<Self, StoreError> {
        SquashStore::create_joint(path, &[capacity_bytes], options).map(only)
    }

    /// A new image of devices of these capacities, with a store for each: equal blocks at equal addresses are stored
    /// once.
    ///
    /// # Errors
    /// [`StoreError::Io`], also if the file exists; [`StoreError::Image`] if there are no devices or too many.
    pub fn create_joint(
        path: impl AsRef<Path>,
        capacities_bytes: &[u64],
        options: &SquashOptions,
    ) -> Result<Vec<Self>, StoreError> {
        let path = path.as_ref();
        let count = capacities_bytes.len();
        if !(1..=DEVICES_MAX).contains(&count) {
            let reason = format!("an image of {count} devices, expected 1 to {DEVICES_MAX}");
            return Err(image_error(path, reason));
        }
        let mut header = new_header(capacities_bytes.to_vec(), options);
        let backings = backing::create(&options.host, path, &mut header, options.durability.power_cut)?;
        let store = |(backing, &capacity_bytes)| {
            SquashStore::new(capacity_bytes, header.mode, RunMap::default(), backing, header.content, options)
        };
        Ok(backings.into_iter().zip(capacities_bytes).map(store).collect())
    }

    /// Opens an image, or makes it if there is none.
    ///
    /// # Errors
    /// Like [`SquashStore::open`] and [`SquashStore::create`].
    pub fn open_or_create(
        path: impl AsRef<Path>,
        capacity_bytes: u64,
        options: &SquashOptions,
    ) -> Result<Self, StoreError> {
        SquashStore::open_or_create_joint(path, &[capacity_bytes], options).map(only)
    }

    /// Opens an image of devices of these capacities, or makes it if there is none.
    ///
    /// # Errors
    /// Like [`SquashStore::open_joint`] and [`SquashStore::create_joint`].
    pub fn open_or_create_joint(
        path: impl AsRef<Path>,
        capacities_bytes: &[u64],
        options: &SquashOptions,
    ) -> Result<Vec<Self>, StoreError> {
        match StoreFile::exists(&options.host, path.as_ref())? {
            true => SquashStore::open_joint(path, capacities_bytes, options),
            false => SquashStore::create_joint(path, capacities_bytes, options),
        }
    }

    /// Opens an image of a device of `capacity_bytes`. If a killed process left an incomplete image behind, a new one
    /// replaces it.
    ///
    /// # Errors
    /// [`StoreError::Image`] names the fault of the image; [`StoreError::InUse`], [`StoreError::Io`].
    pub fn open(path: impl AsRef<Path>, capacity_bytes: u64, options: &SquashOptions) -> Result<Self, StoreError> {
        SquashStore::open_joint(path, &[capacity_bytes], options).map(only)
    }

    /// Opens an image of devices of these capacities.
    ///
    /// # Errors
    /// Like [`SquashStore::open`].
    pub fn open_joint(
        path: impl AsRef<Path>,
        capacities_bytes: &[u64],
        options: &SquashOptions,
    ) -> Result<Vec<Self>, StoreError> {
        let path = path.as_ref();
        if is_unfinished_at(&options.host, path)? {
            return SquashStore::create_joint(path, capacities_bytes, options);
        }
        let (file, header) = SlotFile::open(&options.host, path, true, options.durability.power_cut)?;
        check_capacities(path, &header, capacities_bytes)?;
        let devices = backing::open(path, file, &header, true)?.into_iter().zip(capacities_bytes);
        let store =
            |((backing, map), &capacity_bytes)| SquashStore::with_map(capacity_bytes, &header, map, backing, options);
        devices.map(store).collect()
    }

    /// A store with the contents of a map.
    fn with_map(
        capacity_bytes: u64,
        header: &Header,
        map: RunMap<Block>,
        backing: Backing,
        options: &SquashOptions,
    ) -> Result<Self, StoreError> {
        let mut store = SquashStore::new(capacity_bytes, header.mode, map, backing, header.content, options);
        if store.mode == SquashMode::Classified {
            store.open_parts()?;
        }
        if store.blocks.device().are_in_file() {
            // Releases the space that a killed process had not released.
            store.blocks.device_mut().punch()?;
        }
        Ok(store)
    }

    /// Looks for file systems. If one is damaged, everything is kept from now on, and undamaged blocks remain readable.
    fn open_parts(&mut self) -> Result<(), StoreError> {
        let tolerate = |error| match error {
            StoreError::Damaged { what } => Ok(format!("{what} is damaged")),
            error => Err(error),
        };
        if let Err(error) = self.look_for_volumes() {
            let reason = tolerate(error)?;
            return self.parts[0].give_up(&reason, &mut self.blocks);
        }
        for index in 0..self.parts.len() {
            if let Err(error) = self.with_part(index, |part, blocks, _| part.open(blocks)) {
                let reason = tolerate(error)?;
                self.with_part(index, |part, blocks, _| part.give_up(&reason, blocks))?;
            }
        }
        Ok(())
    }

    fn new(
        capacity_bytes: u64,
        mode: SquashMode,
        map: RunMap<Block>,
        backing: Backing,
        content: Content,
        options: &SquashOptions,
    ) -> Self {
        let end = DeviceUnit(capacity_bytes.div_ceil(UNIT_BYTES));
        let write_through = options.durability.write_through && backing.is_file();
        let part_options = PartOptions {
            ignore_journal: options.ignore_journal,
            notified: options.notified,
            names: options.names.as_slice().into(),
        };
        let parts = vec![Part::new(Volume::one(0, capacity_bytes), &part_options)];
        SquashStore {
            capacity_bytes,
            mode,
            write_through,
            blocks: Blocks::new(DeviceBlocks::new(end, map, backing, content, options.unclassified_bytes)),
            locations: locations_of(&parts),
            parts,
            division: Division::none(),
            past: Counts::default(),
            part_options,
            notes: options.notices.then(|| Notes::new(MARKS_MAX)),
            written_bytes: 0,
            dropped_bytes: 0,
        }
    }

    /// Activity and content.
    #[must_use]
    pub fn squash_statistics(&self) -> SquashStatistics {
        let sizes = Sizes::of(self.blocks.device().map());
        let (shared_bytes, of_others_bytes) = self.blocks.device().shared_bytes();
        let kept_bytes = sizes.stored_bytes - of_others_bytes;
        let counts = self.counts();
        SquashStatistics {
            written_bytes: self.written_bytes,
            dropped_bytes: self.dropped_bytes,
            waiting_bytes: self.blocks.device().waiting_bytes(),
            waiting_max_bytes: self.blocks.device().waiting_max_bytes,
            spilled_bytes: self.blocks.device().spilled_bytes,
            kept_bytes: sizes.kept_bytes,
            generated_bytes: sizes.generated_bytes - self.blocks.device().waiting_bytes(),
            zeroed_bytes: sizes.zeroed_bytes,
            stored_bytes: kept_bytes
                + self.blocks.device().waiting_bytes()
                + self.blocks.device().backing().log_bytes(),
            shared_bytes,
            commits: counts.commits,
            scans: counts.scans,
            table_entries: counts.entries + self.blocks.device().map().len() as u64,
            late_bytes: self.late_bytes(),
            claimed_bytes: counts.claimed_units * UNIT_BYTES,
        }
    }

    /// Charges `work` to the classifier, except calls of other components.
    fn work<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.blocks.device_mut().meter.switch(Some(Worker::Classifier));
        let done = work(self);
        self.blocks.device_mut().meter.switch(outer);
        done
    }

    /// Gives a part access to its blocks.
    fn with_part<T>(&mut self, index: usize, work: impl FnOnce(&mut Part, &mut Blocks, Option<&mut Notes>) -> T) -> T {
        let part = &mut self.parts[index];
        let outer = self.blocks.look_through(part.lens());
        let done = work(part, &mut self.blocks, self.notes.as_mut());
        self.blocks.look_through(outer);
        done
    }

    fn each_part(&mut self, work: fn(&mut Part, &mut Blocks) -> Result<(), StoreError>) -> Result<(), StoreError> {
        (0..self.parts.len()).try_for_each(|index| self.with_part(index, |part, blocks, _| work(part, blocks)))
    }

    /// Writes a range that may begin and end inside blocks.
    fn write_bytes(&mut self, offset_bytes: u64, bytes: &[u8], claims: &Claims) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.written_bytes += len_of(bytes);
        let (unit, skip) = (DeviceUnit(offset_bytes / UNIT_BYTES), (offset_bytes % UNIT_BYTES) as usize);
        let end = DeviceUnit((offset_bytes + len_of(bytes)).div_ceil(UNIT_BYTES));
        let whole: Vec<u8>;
        let units = if skip == 0 && len_of(bytes).is_multiple_of(UNIT_BYTES) {
            bytes
        } else {
            let mut around = vec![0; ((end - unit) * UNIT_BYTES) as usize];
            self.blocks.device_mut().read(unit.offset_bytes(), &mut around)?;
            around[skip..skip + bytes.len()].copy_from_slice(bytes);
            whole = around;
            &whole
        };
        if self.mode == SquashMode::Exact {
            self.blocks.device().check_room(&[(unit, units)])?;
            self.blocks.device_mut().keep_packed(unit, units, Class::Exact)?;
            return self.complete(unit, end);
        }
        self.write_units(unit, units, (offset_bytes, len_of(bytes)), claims)
    }

    /// Writes whole blocks, with offset and length of the request in bytes.
    fn write_units(
        &mut self,
        unit: DeviceUnit,
        bytes: &[u8],
        (offset_bytes, len_bytes): (u64, u64),
        claims: &Claims,
    ) -> Result<(), StoreError> {
        let end = unit + len_of(bytes) / UNIT_BYTES;
        if let Some(notes) = &mut self.notes {
            notes.look_at(bytes);
        }
        self.check_room(unit, end, bytes, claims)?;
        for (from, to, place) in self.pieces(unit, end) {
            let piece = &bytes[((from - unit) * UNIT_BYTES) as usize..((to - unit) * UNIT_BYTES) as usize];
            let Some(place) = place else {
                self.blocks.device_mut().keep(from, piece, Class::PartitionTable)?;
                continue;
            };
            let start_bytes = offset_bytes.max(from.offset_bytes());
            let end_bytes = (offset_bytes + len_bytes).min(to.offset_bytes());
            let range = place.range(from, start_bytes, end_bytes);
            let claims = claims.in_volume(from, to, place.unit);
            self.dropped_bytes += self.with_part(place.index, |part, blocks, notes| {
                part.write(place.unit, piece, range, &claims, blocks, notes)
            })?;
        }
        if self.division.is_touched(offset_bytes, offset_bytes + len_bytes) {
            self.look_for_volumes()?;
        }
        self.complete(unit, end)
    }

    /// Keeps the durability promise at the end of an operation on a range of blocks.
    fn complete(&mut self, unit: DeviceUnit, end: DeviceUnit) -> Result<(), StoreError> {
        if !self.write_through {
            return self.blocks.device_mut().record_if_due();
        }
        for (_, _, place) in self.pieces(unit, end) {
            if let Some(Location { index, .. }) = place {
                self.with_part(index, |part, blocks, _| part.keep_doubtful(blocks))?;
            }
        }
        self.blocks.device_mut().record()
    }

    /// Splits a range of blocks by the parts of the device: first block, end, and the first block's location in its
    /// part, if any.
    fn pieces(&self, unit: DeviceUnit, end: DeviceUnit) -> Vec<(DeviceUnit, DeviceUnit, Option<Location>)> {
        let mut pieces = Vec::new();
        let mut at = unit;
        while at < end {
            let (place, piece_end) = self.locations.at(at.0, end.0);
            pieces.push((at, DeviceUnit(piece_end), place));
            at = DeviceUnit(piece_end);
        }
        pieces
    }

    /// Fails before any change if the kept blocks might not fit.
    fn check_room(&self, unit: DeviceUnit, end: DeviceUnit, bytes: &[u8], claims: &Claims) -> Result<(), StoreError> {
        if self.blocks.device().has_ample_room(end - unit) {
            return Ok(());
        }
        let bytes_of = |from: DeviceUnit, to: DeviceUnit| {
            &bytes[((from - unit) * UNIT_BYTES) as usize..((to - unit) * UNIT_BYTES) as usize]
        };
        let mut needed = Vec::new();
        for (from, to, place) in self.pieces(unit, end) {
            let Some(Location { index, unit: at }) = place else {
                needed.push((from, bytes_of(from, to)));
                continue;
            };
            let mut judged = self.parts[index].judge(at, bytes_of(from, to), &claims.in_volume(from, to, at));
            if let Some(notes) = &self.notes {
                judged = notes.overrule(at, bytes_of(from, to), &judged);
            }
            let kept = judged.into_iter().filter(|judged| judged.2 != Verdict::Drop);
            let on_device = kept.map(|(first, last, _)| (from + (first - at), from + (last - at)));
            needed.extend(on_device.map(|(from, to)| (from, bytes_of(from, to))));
        }
        self.blocks.device().check_room(&needed)
    }

    /// Divides the device according to its partition table or its volume manager, if that changed.
    fn look_for_volumes(&mut self) -> Result<(), StoreError> {
        let division = Division::read(&mut self.blocks, self.capacity_bytes)?;
        if division == self.division {
            return Ok(());
        }
        match &division.kind {
            DivisionKind::Volumes(_) if holds_file_system(&mut self.blocks, 0, self.capacity_bytes)? => {
                // One of the two is a leftover. Once it is gone, the other one counts.
                self.make_whole(false)?;
                self.parts[0].give_up(BESIDE, &mut self.blocks)?;
                let kind = DivisionKind::NotUnderstood(BESIDE.to_owned());
                self.division = Division { kind, watched: division.watched, notices: Vec::new() };
                return Ok(());
            }
            DivisionKind::Volumes(volumes) => self.divide(volumes)?,
            DivisionKind::NotUnderstood(reason) => {
                self.make_whole(false)?;
                self.parts[0].give_up(reason, &mut self.blocks)?;
            }
            DivisionKind::Whole => {
                self.make_whole(true)?;
                self.parts[0].reconsider(&mut self.blocks)?;
            }
        }
        self.division = division;
        Ok(())
    }
    /// Makes the whole device one part, if it is not, and looks for a file system there.
    fn make_whole(&mut self, look: bool) -> Result<(), StoreError> {
        let whole = Volume::one(0, self.capacity_bytes);
        if self.parts.len() == 1 && *self.parts[0].volume() == whole {
            return Ok(());
        }
        let before = std::mem::take(&mut self.parts);
        self.retire(before);
        self.set_parts(vec![Part::new(whole, &self.part_options)]);
        if look { self.parts[0].look(&mut self.blocks) } else { Ok(()) }
    }

    /// Divides the device; ranges outside all parts are kept. Knowledge of earlier volumes stays.
    fn divide(&mut self, volumes: &[Volume]) -> Result<(), StoreError> {
        let before = std::mem::take(&mut self.parts).into_iter();
        let mut before: HashMap<Volume, Part> = before.map(|part| (part.volume().clone(), part)).collect();
        let new: Vec<_> = (0..volumes.len()).filter(|&index| !before.contains_key(&volumes[index])).collect();
        let part = |volume: &Volume| Part::new(volume.clone(), &self.part_options);
        let parts = volumes.iter().map(|volume| before.remove(volume).unwrap_or_else(|| part(volume))).collect();
        self.set_parts(parts);
        self.retire(before.into_values());
        for (from, to, place) in self.pieces(DeviceUnit(0), self.blocks.device().end()) {
            if place.is_none() {
                self.blocks.device_mut().settle(from, to, Class::PartitionTable)?;
            }
        }
        new.into_iter().try_for_each(|index| self.with_part(index, |part, blocks, _| part.begin(blocks)))
    }

    /// Keeps the counters of removed parts.
    fn retire(&mut self, parts: impl IntoIterator<Item = Part>) {
        for part in parts {
            self.past = self.past.with(Counts { entries: 0, ..part.counts() });
        }
    }

    /// Counters, including removed parts'.
    fn counts(&self) -> Counts {
        self.parts.iter().fold(self.past, |sum, part| sum.with(part.counts()))
    }

    /// Bytes of files to be kept that were squashed before their names were known.
    fn late_bytes(&self) -> u64 {
        self.counts().late_units * UNIT_BYTES
    }

    fn set_parts(&mut self, parts: Vec<Part>) {
        self.locations = locations_of(&parts);
        self.parts = parts;
    }

    /// Discards or zeroes a range. Partially covered blocks at its ends are overwritten.
    fn clear(&mut self, offset_bytes: u64, len_bytes: u64, discard: bool) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_bytes)?;
        if len_bytes == 0 {
            return Ok(());
        }
        let end_bytes = offset_bytes + len_bytes;
        let first = DeviceUnit(offset_bytes.div_ceil(UNIT_BYTES));
        // The last block of the device may be cut off.
        let last = match end_bytes == self.capacity_bytes {
            true => self.blocks.device().end(),
            false => DeviceUnit(end_bytes / UNIT_BYTES),
        };
        if first >= last {
            return self.write(offset_bytes, &vec![0; len_bytes as usize]);
        }
        if offset_bytes < first.offset_bytes() {
            self.write(offset_bytes, &vec![0; (first.offset_bytes() - offset_bytes) as usize])?;
        }
        if discard {
            self.blocks.device_mut().forget(first, last);
        } else {
            self.blocks.device_mut().zero(first, last);
        }
        if last.offset_bytes() < end_bytes {
            self.write(last.offset_bytes(), &vec![0; (end_bytes - last.offset_bytes()) as usize])?;
        }
        let (unit, end) = (DeviceUnit(offset_bytes / UNIT_BYTES), DeviceUnit(end_bytes.div_ceil(UNIT_BYTES)));
        for (from, to, place) in self.pieces(unit, end) {
            let Some(place) = place else { continue };
            let start_bytes = offset_bytes.max(from.offset_bytes());
            let range = place.range(from, start_bytes, end_bytes.min(to.offset_bytes()));
            self.with_part(place.index, |part, blocks, _| part.cleared(range, discard, blocks))?;
        }
        if self.division.is_touched(offset_bytes, end_bytes) {
            self.look_for_volumes()?;
        }
        self.complete(unit, end)
    }
}

impl Store for SquashStore {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        check_range(self.capacity_bytes, offset_bytes, len_of(bytes))?;
        if self.blocks.device_mut().read(offset_bytes, bytes)? {
            return Ok(());
        }
        let end_bytes = offset_bytes + len_of(bytes);
        let (unit, end) = (DeviceUnit(offset_bytes / UNIT_BYTES), DeviceUnit(end_bytes.div_ceil(UNIT_BYTES)));
        for (from, to, place) in self.pieces(unit, end) {
            let Some(place) = place else { continue };
            let (start_bytes, stop) = (offset_bytes.max(from.offset_bytes()), end_bytes.min(to.offset_bytes()));
            let piece = &mut bytes[(start_bytes - offset_bytes) as usize..(stop - offset_bytes) as usize];
            let (units, range) = ((place.unit, place.unit + (to - from)), place.range(from, start_bytes, stop));
            self.with_part(place.index, |part, blocks, _| part.correct(units, range.offset_bytes, piece, blocks))?;
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.work(|store| store.write_bytes(offset_bytes, bytes, &Claims::default()))
    }

    fn write_with_file_data(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        file_data: &[FileData],
    ) -> Result<(), StoreError> {
        self.work(|store| {
            let blocks = store.blocks.device();
            let is_generated = |unit| !blocks.generated_pieces(unit, unit + 1).is_empty();
            let claims = Claims::new(offset_bytes, len_of(bytes), file_data, &store.part_options.names, is_generated);
            store.write_bytes(offset_bytes, bytes, &claims)
        })
    }

    fn write_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.work(|store| store.clear(offset_bytes, len_bytes, false))
    }

    /// Zeroed blocks take no space until they are overwritten; the budget may have no room for them then.
    fn reserve_zeroes(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.work(|store| store.clear(offset_bytes, len_bytes, false))
    }

    fn discard(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), StoreError> {
        self.work(|store| store.clear(offset_bytes, len_bytes, true))
    }

    /// Generated contents count as allocated, because they do not read as zeros.
    fn extent(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<Extent, StoreError> {
        check_extent(self.capacity_bytes, offset_bytes, len_bytes)?;
        let (unit, limit) = (offset_bytes / UNIT_BYTES, (offset_bytes + len_bytes).div_ceil(UNIT_BYTES));
        let (block, end) = self.blocks.device().map().at(unit, limit);
        let allocated = !matches!(block, None | Some(Block::Zeroed));
        Ok(Extent { len_bytes: (end * UNIT_BYTES - offset_bytes).min(len_bytes), allocated })
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.work(|store| {
            store.each_part(Part::flush)?;
            store.blocks.device_mut().record()
        })
    }

    fn allocated_bytes(&self) -> Result<u64, StoreError> {
        let blocks = self.blocks.device();
        let kept_bytes = match blocks.backing().is_joint() {
            true => Sizes::of(blocks.map()).stored_bytes - blocks.shared_bytes().1,
            false => blocks.backing().used() * SLOT_BYTES,
        };
        Ok(kept_bytes + blocks.waiting_bytes() + blocks.backing().log_bytes())
    }

    fn budget_bytes(&self) -> Option<u64> {
        self.blocks.device().backing().budget_bytes().map(|bytes| bytes + self.blocks.device().waiting_budget_bytes())
    }

    /// Drops blocks that a clean file system does not need, and makes the rest durable.
    fn close(&mut self) -> Result<(), StoreError> {
        self.work(|store| {
            store.each_part(Part::close)?;
            store.flush()?;
            store.blocks.device_mut().punch()
        })
    }

    fn measure_cpu(&mut self, clock: Box<dyn CpuClock>) {
        self.blocks.device_mut().meter.start(clock);
    }

    fn footprint(&self) -> Result<Footprint, StoreError> {
        let memory = || self.parts.iter().map(Part::memory);
        let journal_bytes: u64 = memory().map(|part| part.journal_bytes).sum();
        let classifier_bytes: u64 = memory().map(|part| part.classifier_bytes).sum();
        let classifier_bytes = classifier_bytes + self.notes.as_ref().map_or(0, Notes::memory_bytes);
        let (kept_bytes, tables_bytes) = self.blocks.device().kept_memory_bytes();
        let component = |name, worker: Option<Worker>, memory_bytes| Component {
            name,
            memory_bytes,
            cpu_ns: worker.map_or(0, |worker| self.blocks.device().meter.spent_ns(worker)),
        };
        let unclassified =
            self.blocks.device().map().all().filter(|run| run.2.is_unclassified()).map(|run| run.1 - run.0);
        Ok(Footprint {
            components: vec![
                component("classifier", Some(Worker::Classifier), classifier_bytes),
                component(
                    "unclassified-blocks",
                    Some(Worker::Unclassified),
                    self.blocks.device().waiting_memory_bytes(),
                ),
                component("journal-reader", Some(Worker::Journal), journal_bytes),
                component("remapping", Some(Worker::Remap), tables_bytes),
                component("generator", Some(Worker::Generator), 0),
                component("kept-blocks", None, kept_bytes),
            ],
            undecided_bytes: self.blocks.device().waiting_bytes() + unclassified.sum::<u64>() * UNIT_BYTES,
            stored_bytes: self.allocated_bytes()?,
        })
    }

    fn statistics(&self) -> Vec<(String, f64)> {
        let statistics = self.squash_statistics();
        let mut named: Vec<(String, f64)> = [
            ("written [bytes]", statistics.written_bytes),
            ("dropped-at-once [bytes]", statistics.dropped_bytes),
            ("waiting [bytes]", statistics.waiting_bytes),
            ("waiting-max [bytes]", statistics.waiting_max_bytes),
            ("spilled [bytes]", statistics.spilled_bytes),
            ("generated [bytes]", statistics.generated_bytes),
            ("zeroed [bytes]", statistics.zeroed_bytes),
            ("stored [bytes]", statistics.stored_bytes),
            ("commits", statistics.commits),
            ("scans", statistics.scans),
            ("table-entries", statistics.table_entries),
        ]
        .map(|(name, value)| (format!("squash-{name}"), value as f64))
        .into();
        let kept = statistics.kept_bytes.iter();
        named.extend(kept.map(|(class, bytes)| (format!("squash-kept-{} [bytes]", class.name()), *bytes as f64)));
        if let Some(notes) = &self.notes {
            named.push(("squash-notices".to_owned(), notes.notices as f64));
            named.push(("squash-noted-data [bytes]".to_owned(), notes.data_bytes as f64));
        }
        if self.part_options.notified {
            named.push(("squash-notified-data [bytes]".to_owned(), statistics.claimed_bytes as f64));
        }
        if self.blocks.device().backing().is_joint() {
            named.push(("squash-shared [bytes]".to_owned(), statistics.shared_bytes as f64));
        }
        if !self.part_options.names.is_empty() {
            named.push(("squash-named-too-late [bytes]".to_owned(), statistics.late_bytes as f64));
        }
        named.extend(statistics.savings().map(|share| ("squash-savings [share]".to_owned(), share)));
        named
    }

    fn notices(&self) -> Vec<String> {
        let mut notices: Vec<String> = Vec::new();
        for notice in self.division.notices.iter().chain(self.parts.iter().flat_map(Part::notices)) {
            if !notices.contains(notice) {
                notices.push(notice.clone());
            }
        }
        let nothing = self.parts.iter().any(Part::knows_nothing) && self.mode == SquashMode::Classified;
        if nothing && self.written_bytes > 0 && !self.part_options.notified {
            let of_it = if self.parts.len() > 1 { "of a partition everything" } else { "everything" };
            notices.push(format!("{of_it} is kept, because there is no file system that is known"));
        }
        let late_bytes = self.late_bytes();
        if late_bytes > 0 {
            notices.push(format!(
                "{late_bytes} bytes of files that are to be kept had been squashed before the files had their names"
            ));
        }
        notices
    }
}

impl Drop for SquashStore {
    /// Written data stay, as in any file. A caller that needs errors closes the store first.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
