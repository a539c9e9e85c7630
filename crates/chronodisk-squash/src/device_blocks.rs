//! The blocks of the device in their states, with their bytes as far as these are kept.
//!
//! Nothing in here knows why a block is kept: [`super::SquashStore`] decides with a classifier's help.

use chronodisk_store::{StoreError, is_zero};

use super::arena::Arena;
use super::backing::Backing;
use super::block::{Block, slots_of};
use super::class::Class;
use super::content::Content;
use super::meter::{Meter, Worker};
use super::runs::{RunMap, RunValue};
use super::units::DeviceUnit;
use super::{SLOT_BYTES, UNIT_BYTES, UNIT_SLOTS};

/// Memory location of a block that is not classified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame(u64);

impl RunValue for Frame {
    fn advanced(self, by: u64) -> Self {
        Frame(self.0 + by * UNIT_SLOTS)
    }
}

/// DeviceBlocks by their numbers on the device, counted in units of [`UNIT_BYTES`].
#[derive(Debug)]
pub(crate) struct DeviceBlocks {
    end: DeviceUnit,
    map: RunMap<Block>,
    /// Blocks not classified yet. Once one is dropped, its entry in `map` applies.
    waiting: RunMap<Frame>,
    arena: Arena,
    backing: Backing,
    content: Content,
    changed: RunMap<()>,
    buffer: Vec<u8>,
    pub(crate) meter: Meter,
    pub(crate) waiting_max_bytes: u64,
    pub(crate) spilled_bytes: u64,
}

impl DeviceBlocks {
    pub(crate) fn new(
        end: DeviceUnit,
        map: RunMap<Block>,
        backing: Backing,
        content: Content,
        waiting_bytes: u64,
    ) -> Self {
        DeviceBlocks {
            end,
            map,
            waiting: RunMap::default(),
            arena: Arena::new(waiting_bytes).with_spare(SPARE_BYTES),
            backing,
            content,
            changed: RunMap::default(),
            buffer: Vec::new(),
            meter: Meter::default(),
            waiting_max_bytes: 0,
            spilled_bytes: 0,
        }
    }

    /// The end of the device, in blocks.
    pub(crate) fn end(&self) -> DeviceUnit {
        self.end
    }

    /// Seed of generated contents.
    pub(crate) fn seed(&self) -> u64 {
        self.content.seed
    }

    pub(crate) fn map(&self) -> &RunMap<Block> {
        &self.map
    }

    pub(crate) fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Bytes of kept blocks shared with other devices, and the part of these bytes charged to the other devices when
    /// each device is charged an equal share.
    pub(crate) fn shared_bytes(&self) -> (u64, u64) {
        self.backing.shared_bytes(&self.map)
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.arena.places().used() * SLOT_BYTES
    }

    /// Memory of unclassified blocks, in bytes, with its table.
    pub(crate) fn waiting_memory_bytes(&self) -> u64 {
        self.arena.memory_bytes() + self.waiting.memory_bytes() + self.arena.places().memory_bytes()
    }

    /// Memory in bytes: of kept blocks, and of the tables with their places.
    pub(crate) fn kept_memory_bytes(&self) -> (u64, u64) {
        let (kept, places) = self.backing.memory_bytes();
        let tables = self.map.memory_bytes() + self.changed.memory_bytes() + self.buffer.capacity() as u64;
        (kept, places + tables)
    }

    /// Runs `work` and charges it to a component.
    fn work<T>(&mut self, worker: Worker, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.meter.switch(Some(worker));
        let done = work(self);
        self.meter.switch(outer);
        done
    }

    /// Whether half of the room for unclassified blocks is used.
    pub(crate) fn waiting_is_half_full(&self) -> bool {
        self.arena.places().used() > self.arena.places().available()
    }

    /// Ranges of waiting or kept blocks from `start` to `end`, in order.
    pub(crate) fn stored_pieces(&self, start: DeviceUnit, end: DeviceUnit) -> Vec<(DeviceUnit, DeviceUnit)> {
        let mut stored: RunMap<()> = RunMap::default();
        self.waiting.pieces(start.0, end.0).for_each(|(from, to, _)| stored.set(from, to, ()));
        let kept = self.map.pieces(start.0, end.0).filter(|piece| slots_of(piece.2, 1).is_some());
        kept.for_each(|(from, to, _)| stored.set(from, to, ()));
        ranges(&stored)
    }

    /// Ranges of blocks kept with a class from `start` to `end`, in order.
    pub(crate) fn pieces_of(&self, start: DeviceUnit, end: DeviceUnit, class: Class) -> Vec<(DeviceUnit, DeviceUnit)> {
        let is_of = |block: Block| match block {
            Block::Kept { class: of, .. } | Block::Packed { class: of, .. } => of == class,
            Block::Zeroed | Block::Generated | Block::Damaged => false,
        };
        let mut found: RunMap<()> = RunMap::default();
        let pieces = self.map.pieces(start.0, end.0).filter(|piece| is_of(piece.2));
        pieces.for_each(|(from, to, _)| found.set(from, to, ()));
        ranges(&found)
    }

    /// Ranges of generated blocks from `start` to `end`, in order.
    pub(crate) fn generated_pieces(&self, start: DeviceUnit, end: DeviceUnit) -> Vec<(DeviceUnit, DeviceUnit)> {
        let mut generated: RunMap<()> = RunMap::default();
        let made_up = self.map.pieces(start.0, end.0).filter(|piece| piece.2 == Block::Generated);
        made_up.for_each(|(from, to, _)| generated.set(from, to, ()));
        self.waiting.pieces(start.0, end.0).for_each(|(from, to, _)| generated.remove(from, to));
        ranges(&generated)
    }

    /// Whether the block is kept as metadata, not as an unclassified one.
    pub(crate) fn is_kept_metadata(&self, unit: DeviceUnit) -> bool {
        let waits = self.waiting.at(unit.0, unit.0 + 1).0.is_some();
        !waits && self.class_of(unit).is_some_and(|class| class != Class::Unclassified)
    }

    /// The class of a kept block.
    pub(crate) fn class_of(&self, unit: DeviceUnit) -> Option<Class> {
        match self.map.at(unit.0, unit.0 + 1).0 {
            Some(Block::Kept { class, .. } | Block::Packed { class, .. }) => Some(class),
            _ => None,
        }
    }

    /// Whether a block in the range is waiting, or kept only because its use is unknown.
    pub(crate) fn has_unclassified(&self, start: DeviceUnit, end: DeviceUnit) -> bool {
        self.waiting.pieces(start.0, end.0).next().is_some()
            || self.map.pieces(start.0, end.0).any(|(_, _, block)| block.is_unclassified())
    }

    /// Fills `bytes` from `offset_bytes` on, for blocks in any state. Returns whether no part was generated.
    pub(crate) fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<bool, StoreError> {
        self.work(Worker::Remap, |blocks| blocks.read_pieces(offset_bytes, bytes))
    }

    fn read_pieces(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<bool, StoreError> {
        let mut true_bytes = true;
        let mut done = 0;
        while done < bytes.len() {
            let position = offset_bytes + done as u64;
            let (unit, skip) = (position / UNIT_BYTES, position % UNIT_BYTES);
            let limit = (offset_bytes + bytes.len() as u64).div_ceil(UNIT_BYTES);
            let (frame, waiting_end) = self.waiting.at(unit, limit);
            let (block, block_end) = self.map.at(unit, limit);
            let end = if frame.is_some() { waiting_end } else { waiting_end.min(block_end) };
            let len = ((end - unit) * UNIT_BYTES - skip).min((bytes.len() - done) as u64) as usize;
            let target = &mut bytes[done..done + len];
            match (frame, block) {
                (Some(Frame(place)), _) => self.arena.read(place, skip, target),
                (None, Some(Block::Kept { place, .. })) => self.backing.read(unit, place, skip, target)?,
                (None, Some(Block::Packed { place, stored_bytes, .. })) => {
                    self.unpack(unit, place, stored_bytes, skip as usize, target)?;
                }
                (None, Some(Block::Damaged)) => {
                    return Err(StoreError::Damaged { what: format!("block {unit} of a repaired image") });
                }
                (None, Some(Block::Generated)) => {
                    true_bytes = false;
                    self.work(Worker::Generator, |blocks| blocks.generate(unit, skip as usize, target));
                }
                (None, Some(Block::Zeroed) | None) => target.fill(0),
            }
            done += len;
        }
        Ok(true_bytes)
    }

    fn generate(&self, unit: u64, skip: usize, bytes: &mut [u8]) {
        let (head, rest) = bytes.split_at_mut((UNIT_BYTES as usize - skip).min(bytes.len()));
        self.content.fill(unit, skip, head);
        for (part, unit) in rest.chunks_mut(UNIT_BYTES as usize).zip(unit + 1..) {
            self.content.fill(unit, 0, part);
        }
    }

    fn unpack(
        &mut self,
        unit: u64,
        place: u64,
        stored_bytes: u16,
        skip: usize,
        target: &mut [u8],
    ) -> Result<(), StoreError> {
        let mut packed = [0; UNIT_BYTES as usize];
        let packed = &mut packed[..usize::from(stored_bytes)];
        self.backing.read_packed(unit, place, packed)?;
        let mut whole = [0; UNIT_BYTES as usize];
        match lz4_flex::block::decompress_into(packed, &mut whole) {
            Ok(len) if len == whole.len() => {
                target.copy_from_slice(&whole[skip..skip + target.len()]);
                Ok(())
            }
            _ => Err(StoreError::Damaged { what: format!("the compressed block {unit}") }),
        }
    }

    /// Keeps `bytes`, whole blocks from `unit` on; all-zero blocks take no space.
    pub(crate) fn keep(&mut self, unit: DeviceUnit, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        self.work(Worker::Remap, |blocks| blocks.keep_as(unit.0, bytes, class))
    }

    /// Keeps whole blocks of the device, compressed if their class is.
    fn keep_as(&mut self, unit: u64, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        if class.is_compressed() { self.pack(unit, bytes, class) } else { self.keep_runs(unit, bytes, class) }
    }

    fn keep_runs(&mut self, unit: u64, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        for run in runs_by(bytes, is_zero) {
            let (start, end) = (unit + run.start, unit + run.end);
            if run.is {
                self.set(start, end, Some(Block::Zeroed));
                continue;
            }
            self.keep_run(start, &bytes[(run.start * UNIT_BYTES) as usize..(run.end * UNIT_BYTES) as usize], class)?;
        }
        Ok(())
    }

    /// Keeps blocks that are not known to be zero.
    fn keep_run(&mut self, unit: u64, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        if self.backing.is_joint() {
            return self.keep_jointly(unit, bytes, class);
        }
        let overwrites = self.backing.overwrites();
        let in_place = |block: Option<Block>| match block {
            Some(Block::Kept { place, .. }) if overwrites => Some(place),
            _ => None,
        };
        let end = unit + bytes.len() as u64 / UNIT_BYTES;
        let mut at = unit;
        while at < end {
            let (block, block_end) = self.map.at(at, end);
            let from = ((at - unit) * UNIT_BYTES) as usize;
            if let Some(place) = in_place(block) {
                // Only its bytes changed, and perhaps its class.
                let to = ((block_end - unit) * UNIT_BYTES) as usize;
                self.backing.write(at, place, &bytes[from..to])?;
                self.stop_waiting(at, block_end);
                self.relabel(at, block_end, class);
                at = block_end;
                continue;
            }
            let mut gap_end = block_end;
            while gap_end < end && in_place(self.map.at(gap_end, end).0).is_none() {
                gap_end = self.map.at(gap_end, end).1;
            }
            let Some((place, len)) = self.backing.take((gap_end - at) * UNIT_SLOTS, UNIT_SLOTS) else {
                return Err(self.no_room(at * UNIT_BYTES, (end - at) * UNIT_BYTES));
            };
            let taken_end = at + len / UNIT_SLOTS;
            let to = ((taken_end - unit) * UNIT_BYTES) as usize;
            if let Err(error) = self.backing.write(at, place, &bytes[from..to]) {
                self.backing.give(place, len);
                return Err(error);
            }
            self.set(at, taken_end, Some(Block::Kept { place, class }));
            at = taken_end;
        }
        Ok(())
    }

    /// Keeps blocks that are not known to be zero, in a backing shared with other devices.
    fn keep_jointly(&mut self, unit: u64, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        for (bytes, unit) in bytes.chunks_exact(UNIT_BYTES as usize).zip(unit..) {
            let own = self.map.at(unit, unit + 1).0;
            let joint = &self.backing;
            let block = match (joint.join(unit, bytes)?, own) {
                (Some(Block::Kept { place, .. }), _) => Block::Kept { place, class },
                // No other device shares the overwritten block.
                (_, Some(Block::Kept { place, .. })) if joint.overwrites() && !joint.is_shared(place) => {
                    joint.write(unit, place, bytes)?;
                    Block::Kept { place, class }
                }
                _ => {
                    let taken = joint.take(UNIT_SLOTS, UNIT_SLOTS);
                    let (place, _) = taken.ok_or_else(|| self.no_room(unit * UNIT_BYTES, UNIT_BYTES))?;
                    if let Err(error) = joint.write(unit, place, bytes) {
                        joint.give(place, UNIT_SLOTS);
                        return Err(error);
                    }
                    Block::Kept { place, class }
                }
            };
            self.put(unit, own, block);
        }
        Ok(())
    }

    /// Replaces a block by another one, at its place or at a new one.
    fn put(&mut self, unit: u64, own: Option<Block>, block: Block) {
        let place_of = |block: Block| slots_of(block, 1).map(|slots| slots.0);
        if own.and_then(place_of) != place_of(block) {
            self.set(unit, unit + 1, Some(block));
        } else if own != Some(block) {
            self.stop_waiting(unit, unit + 1);
            self.map.set(unit, unit + 1, block);
            self.changed.set(unit, unit + 1, ());
        } else {
            self.stop_waiting(unit, unit + 1);
        }
        self.backing.note(unit, block);
    }

    /// Keeps `bytes` exactly, compressed where that saves a slot.
    pub(crate) fn keep_packed(&mut self, unit: DeviceUnit, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        self.work(Worker::Remap, |blocks| blocks.pack(unit.0, bytes, class))
    }

    fn pack(&mut self, unit: u64, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        let mut packed = vec![0; lz4_flex::block::get_maximum_output_size(UNIT_BYTES as usize)];
        for (bytes, unit) in bytes.chunks_exact(UNIT_BYTES as usize).zip(unit..) {
            if is_zero(bytes) {
                self.set(unit, unit + 1, Some(Block::Zeroed));
                continue;
            }
            let len = lz4_flex::block::compress_into(bytes, &mut packed).unwrap_or(packed.len());
            if len as u64 > UNIT_BYTES - SLOT_BYTES {
                self.keep_run(unit, bytes, class)?;
                continue;
            }
            let own = self.map.at(unit, unit + 1).0;
            if let Some(Block::Packed { place, stored_bytes, .. }) = self.backing.join(unit, &packed[..len])? {
                // Another device may keep it for a different reason.
                self.put(unit, own, Block::Packed { place, stored_bytes, class });
                continue;
            }
            let slots = (len as u64).div_ceil(SLOT_BYTES);
            let Some((place, _)) = self.backing.take(slots, slots) else {
                if matches!(own, Some(Block::Kept { .. })) {
                    // There is room for it at its own place.
                    self.keep_run(unit, bytes, class)?;
                    continue;
                }
                return Err(self.no_room(unit * UNIT_BYTES, UNIT_BYTES));
            };
            if let Err(error) = self.backing.write(unit, place, &packed[..len]) {
                self.backing.give(place, slots);
                return Err(error);
            }
            let block = Block::Packed { place, stored_bytes: len as u16, class };
            self.set(unit, unit + 1, Some(block));
            self.backing.note(unit, block);
        }
        Ok(())
    }

    /// Whether that many blocks fit, regardless of the existing ones.
    pub(crate) fn has_ample_room(&self, len: u64) -> bool {
        self.backing.growth() >= 2 * len * UNIT_SLOTS
    }

    /// An error if parts, whole blocks from a unit on, might not find room; asked before anything changes.
    pub(crate) fn check_room(&self, parts: &[(DeviceUnit, &[u8])]) -> Result<(), StoreError> {
        let Some(&(first, _)) = parts.first() else { return Ok(()) };
        let units = parts.iter().flat_map(|(unit, bytes)| bytes.chunks_exact(UNIT_BYTES as usize).zip(unit.0..));
        let new = |unit: u64| match self.map.at(unit, unit + 1).0 {
            Some(Block::Kept { place, .. }) => !self.backing.overwrites() || self.backing.is_shared(place),
            _ => true,
        };
        let needed = units.filter(|&(bytes, unit)| new(unit) && !is_zero(bytes)).count() as u64;
        if self.backing.has_room(needed) {
            Ok(())
        } else {
            Err(self.no_room(first.offset_bytes(), needed * UNIT_BYTES))
        }
    }

    fn no_room(&self, offset_bytes: u64, needed_bytes: u64) -> StoreError {
        StoreError::BudgetExceeded {
            offset_bytes,
            needed_bytes,
            allocated_bytes: self.backing.used() * SLOT_BYTES,
            budget_bytes: self.backing.budget_bytes().unwrap_or(u64::MAX),
        }
    }

    /// Lets `bytes`, whole blocks from `unit` on, wait in memory; without room there, they are kept, compressed if
    /// `packed`. Zeros need not wait.
    pub(crate) fn wait(&mut self, unit: DeviceUnit, bytes: &[u8], packed: bool) -> Result<(), StoreError> {
        self.work(Worker::Unclassified, |blocks| blocks.wait_runs(unit.0, bytes, packed))
    }

    fn wait_runs(&mut self, unit: u64, bytes: &[u8], packed: bool) -> Result<(), StoreError> {
        for run in runs_by(bytes, is_zero) {
            let (start, end) = (unit + run.start, unit + run.end);
            if run.is {
                self.set(start, end, Some(Block::Zeroed));
            } else {
                let run = &bytes[(run.start * UNIT_BYTES) as usize..(run.end * UNIT_BYTES) as usize];
                self.wait_run(start, end, run, packed)?;
            }
        }
        self.waiting_max_bytes = self.waiting_max_bytes.max(self.waiting_bytes());
        Ok(())
    }

    fn wait_run(&mut self, unit: u64, end: u64, bytes: &[u8], packed: bool) -> Result<(), StoreError> {
        let mut at = unit;
        while at < end {
            let from = ((at - unit) * UNIT_BYTES) as usize;
            let (frame, frame_end) = self.waiting.at(at, end);
            if let Some(Frame(place)) = frame {
                self.arena.write(place, &bytes[from..((frame_end - unit) * UNIT_BYTES) as usize]);
                at = frame_end;
                continue;
            }
            let Some((place, len)) = self.arena.take((frame_end - at) * UNIT_SLOTS, UNIT_SLOTS) else {
                let rest = &bytes[from..];
                self.spilled_bytes += rest.len() as u64;
                let keep = if packed { DeviceBlocks::pack } else { DeviceBlocks::keep_runs };
                return self.work(Worker::Remap, |blocks| keep(blocks, at, rest, Class::Unclassified));
            };
            let taken_end = at + len / UNIT_SLOTS;
            self.arena.write(place, &bytes[from..((taken_end - unit) * UNIT_BYTES) as usize]);
            // A block that never leaves the waiting state is generated.
            self.set(at, taken_end, Some(Block::Generated));
            self.waiting.set(at, taken_end, Frame(place));
            at = taken_end;
        }
        Ok(())
    }

    /// Keeps the unclassified blocks between `start` and `end`, and sets the class of the kept ones.
    pub(crate) fn settle(&mut self, start: DeviceUnit, end: DeviceUnit, class: Class) -> Result<(), StoreError> {
        self.work(Worker::Unclassified, |blocks| blocks.settle_pieces(start.0, end.0, class))
    }

    fn settle_pieces(&mut self, start: u64, end: u64, class: Class) -> Result<(), StoreError> {
        if class.is_compressed() {
            self.pack_kept(start, end, class)?;
        }
        self.relabel(start, end, class);
        for (from, to, Frame(place)) in self.waiting.pieces(start, end).collect::<Vec<_>>() {
            let read = |blocks: &mut DeviceBlocks, at: u64, bytes: &mut [u8]| {
                blocks.arena.read(place + (at - from) * UNIT_SLOTS, 0, bytes);
                Ok(())
            };
            self.keep_again(from, to, class, read)?;
        }
        Ok(())
    }

    /// Compresses kept blocks that were kept without a verdict: at the limit of unclassified blocks, or at a flush.
    fn pack_kept(&mut self, start: u64, end: u64, class: Class) -> Result<(), StoreError> {
        for (from, to, block) in self.map.pieces(start, end).collect::<Vec<_>>() {
            let Block::Kept { place, class: Class::Unclassified } = block else { continue };
            let read = |blocks: &mut DeviceBlocks, at: u64, bytes: &mut [u8]| {
                blocks.backing.read(at, place + (at - from) * UNIT_SLOTS, 0, bytes)
            };
            match self.keep_again(from, to, class, read) {
                // A damaged block keeps its state, and reads of it fail.
                Ok(()) | Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Stores kept blocks of the device again from the bytes that `read` returns, in parts, so that little additional
    /// memory is needed.
    fn keep_again(
        &mut self,
        from: u64,
        to: u64,
        class: Class,
        mut read: impl FnMut(&mut Self, u64, &mut [u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut at = from;
        while at < to {
            let part_end = to.min(at + SETTLED_UNITS);
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            buffer.resize(((part_end - at) * UNIT_BYTES) as usize, 0);
            let kept = read(self, at, &mut buffer)
                .and_then(|()| self.work(Worker::Remap, |blocks| blocks.keep_as(at, &buffer, class)));
            self.buffer = buffer;
            kept?;
            at = part_end;
        }
        Ok(())
    }

    /// Keeps the unclassified blocks between `start` and `end` as unclassified.
    pub(crate) fn spill(&mut self, start: DeviceUnit, end: DeviceUnit) -> Result<(), StoreError> {
        for (from, to, _) in self.waiting.pieces(start.0, end.0).collect::<Vec<_>>() {
            self.spilled_bytes += (to - from) * UNIT_BYTES;
            self.work(Worker::Unclassified, |blocks| blocks.settle_pieces(from, to, Class::Unclassified))?;
        }
        Ok(())
    }

    pub(crate) fn waiting_budget_bytes(&self) -> u64 {
        let places = self.arena.places();
        (places.used() + places.available()) * SLOT_BYTES
    }

    /// Generates the contents between `start` and `end` from now on, including written zeros.
    pub(crate) fn squash_written(&mut self, start: DeviceUnit, end: DeviceUnit) {
        let asked_for = |block: Block| matches!(block, Block::Kept { class: Class::Noted, .. });
        self.squash_where(start, end, |block| block != Block::Generated && !asked_for(block));
    }

    /// Generates the contents of zeroed blocks in the range from now on.
    pub(crate) fn squash_zeros(&mut self, start: DeviceUnit, end: DeviceUnit) {
        self.squash_where(start, end, |block| block == Block::Zeroed);
    }

    fn squash_where(&mut self, start: DeviceUnit, end: DeviceUnit, is_meant: impl Fn(Block) -> bool) {
        let pieces = self.map.pieces(start.0, end.0);
        let meant: Vec<_> = pieces.filter(|piece| is_meant(piece.2)).map(|piece| (piece.0, piece.1)).collect();
        self.work(Worker::Remap, |blocks| {
            meant.into_iter().for_each(|(from, to)| blocks.set(from, to, Some(Block::Generated)));
        });
    }

    /// Generates the contents of stored blocks in the range from now on.
    pub(crate) fn squash(&mut self, start: DeviceUnit, end: DeviceUnit) {
        self.give(start, end, Some(Block::Generated));
    }

    /// Zeros from now on, which take no space.
    pub(crate) fn zero(&mut self, start: DeviceUnit, end: DeviceUnit) {
        self.give(start, end, Some(Block::Zeroed));
    }

    /// Makes blocks as if they were never written.
    pub(crate) fn forget(&mut self, start: DeviceUnit, end: DeviceUnit) {
        self.give(start, end, None);
    }

    /// Sets the state of blocks in a range.
    fn give(&mut self, start: DeviceUnit, end: DeviceUnit, block: Option<Block>) {
        self.work(Worker::Remap, |blocks| blocks.set(start.0, end.0, block));
    }

    /// Makes kept blocks survive this process, in an image.
    pub(crate) fn record(&mut self) -> Result<(), StoreError> {
        self.work(Worker::Remap, |blocks| blocks.backing.record(&blocks.map, &mut blocks.changed))
    }

    /// Whether the bytes outlive this process.
    pub(crate) fn are_in_file(&self) -> bool {
        self.backing.is_file()
    }

    /// Returns all unused space to the host.
    pub(crate) fn punch(&mut self) -> Result<(), StoreError> {
        self.backing.punch()
    }

    /// Makes a record if much was given back.
    pub(crate) fn record_if_due(&mut self) -> Result<(), StoreError> {
        if self.backing.wants_record() { self.record() } else { Ok(()) }
    }

    fn set(&mut self, start: u64, end: u64, block: Option<Block>) {
        self.stop_waiting(start, end);
        if block == Some(Block::Generated)
            && let (Some(Block::Generated), run_end) = self.map.at(start, end)
            && run_end == end
        {
            return;
        }
        for (from, to, old) in self.map.pieces(start, end).collect::<Vec<_>>() {
            self.backing.release(from, to, old);
        }
        match block {
            Some(block) => self.map.set(start, end, block),
            None => self.map.remove(start, end),
        }
        self.changed.set(start, end, ());
    }

    fn stop_waiting(&mut self, start: u64, end: u64) {
        if self.waiting.is_empty() {
            return;
        }
        for (from, to, Frame(place)) in self.waiting.pieces(start, end).collect::<Vec<_>>() {
            self.arena.give(place, (to - from) * UNIT_SLOTS);
        }
        self.waiting.remove(start, end);
    }

    /// Sets the class of the kept blocks between `start` and `end`.
    fn relabel(&mut self, start: u64, end: u64, class: Class) {
        for (from, to, block) in self.map.pieces(start, end).collect::<Vec<_>>() {
            let relabelled = match block {
                Block::Kept { place, .. } => Block::Kept { place, class },
                Block::Packed { place, stored_bytes, .. } => Block::Packed { place, stored_bytes, class },
                other => other,
            };
            if relabelled != block {
                self.map.set(from, to, relabelled);
                self.changed.set(from, to, ());
            }
        }
    }
}

/// The ranges of a set of the device's blocks.
fn ranges(set: &RunMap<()>) -> Vec<(DeviceUnit, DeviceUnit)> {
    set.all().map(|(from, to, ())| (DeviceUnit(from), DeviceUnit(to))).collect()
}

/// Memory that is held on to from one commit to the next for blocks that wait: as much as a guest of 512 MiB lets wait.
const SPARE_BYTES: u64 = 192 << 20;

/// Most blocks that are moved at a time.
const SETTLED_UNITS: u64 = 256;

/// A range of blocks in a buffer that satisfy a condition, or don't.
struct Run {
    start: u64,
    end: u64,
    is: bool,
}

fn runs_by(bytes: &[u8], is: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = Run> {
    let mut units = bytes.chunks_exact(UNIT_BYTES as usize).map(is).enumerate().peekable();
    std::iter::from_fn(move || {
        let (start, is) = units.next()?;
        let mut end = start + 1;
        while units.next_if(|&(_, other)| other == is).is_some() {
            end += 1;
        }
        Some(Run { start: start as u64, end: end as u64, is })
    })
}
