//! The device's blocks as a volume counts them.

use std::sync::Arc;

use chronodisk_store::StoreError;

use super::UNIT_BYTES;
use super::class::Class;
use super::device_blocks::DeviceBlocks;
use super::runs::RunMap;
use super::units::{DeviceUnit, VolumeUnit};
use super::volume::Lens;
use crate::len_of;

/// The device's blocks, addressed by block number of the selected volume, or of the device if no volume is selected.
#[derive(Debug)]
pub(crate) struct Blocks {
    device: DeviceBlocks,
    /// The selected volume's address mapping; `None` if it keeps the device's numbers.
    lens: Option<Arc<Lens>>,
}

impl Blocks {
    pub(crate) fn new(device: DeviceBlocks) -> Self {
        Blocks { device, lens: None }
    }

    pub(crate) fn device(&self) -> &DeviceBlocks {
        &self.device
    }

    pub(crate) fn device_mut(&mut self) -> &mut DeviceBlocks {
        &mut self.device
    }

    /// Selects the volume of later calls; `None` for one that keeps the device's numbers. Returns the previous one.
    pub(crate) fn look_through(&mut self, lens: Option<Arc<Lens>>) -> Option<Arc<Lens>> {
        std::mem::replace(&mut self.lens, lens)
    }

    /// The ranges of the device for a range of blocks: first block and end, and the first block's number on the device.
    fn on_device(
        &self,
        start: VolumeUnit,
        end: VolumeUnit,
    ) -> impl Iterator<Item = (VolumeUnit, VolumeUnit, DeviceUnit)> + use<> {
        let lens = self.lens.clone();
        let mut next = start.0;
        std::iter::from_fn(move || {
            while next < end.0 {
                let first = next;
                let place;
                (place, next) = lens.as_ref().map_or((Some(DeviceUnit(first)), end.0), |lens| lens.at(first, end.0));
                if let Some(place) = place {
                    return Some((VolumeUnit(first), VolumeUnit(next), place));
                }
            }
            None
        })
    }

    /// The block's number on the device.
    fn unit_on_device(&self, unit: VolumeUnit) -> Option<DeviceUnit> {
        self.lens.as_ref().map_or(Some(DeviceUnit(unit.0)), |lens| lens.at(unit.0, unit.0 + 1).0)
    }

    /// Does `work` to ranges of the device's blocks.
    fn each(&mut self, start: VolumeUnit, end: VolumeUnit, work: impl Fn(&mut DeviceBlocks, DeviceUnit, DeviceUnit)) {
        for (from, to, at) in self.on_device(start, end) {
            work(&mut self.device, at, at + (to - from));
        }
    }

    /// Like [`each`](Self::each), but stops at the first error.
    fn try_each(
        &mut self,
        start: VolumeUnit,
        end: VolumeUnit,
        mut work: impl FnMut(&mut DeviceBlocks, DeviceUnit, DeviceUnit) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.on_device(start, end).try_for_each(|(from, to, at)| work(&mut self.device, at, at + (to - from)))
    }

    /// Ranges of the device's blocks, as the volume counts them.
    fn collect(
        &self,
        start: VolumeUnit,
        end: VolumeUnit,
        pieces: impl Fn(&DeviceBlocks, DeviceUnit, DeviceUnit) -> Vec<(DeviceUnit, DeviceUnit)>,
    ) -> Vec<(VolumeUnit, VolumeUnit)> {
        let mut found: RunMap<()> = RunMap::default();
        for (first, last, at) in self.on_device(start, end) {
            let in_volume = |unit: DeviceUnit| (first + (unit - at)).0;
            let pieces = pieces(&self.device, at, at + (last - first));
            pieces.into_iter().for_each(|(from, to)| found.set(in_volume(from), in_volume(to), ()));
        }
        found.all().map(|(from, to, ())| (VolumeUnit(from), VolumeUnit(to))).collect()
    }

    /// Ranges of waiting or kept blocks from `start` to `end`, in order.
    pub(crate) fn stored_pieces(&self, start: VolumeUnit, end: VolumeUnit) -> Vec<(VolumeUnit, VolumeUnit)> {
        self.collect(start, end, DeviceBlocks::stored_pieces)
    }

    /// Ranges of blocks kept with a class from `start` to `end`, in order.
    pub(crate) fn pieces_of(&self, start: VolumeUnit, end: VolumeUnit, class: Class) -> Vec<(VolumeUnit, VolumeUnit)> {
        self.collect(start, end, |device, from, to| device.pieces_of(from, to, class))
    }

    /// Ranges of generated blocks from `start` to `end`, in order.
    pub(crate) fn generated_pieces(&self, start: VolumeUnit, end: VolumeUnit) -> Vec<(VolumeUnit, VolumeUnit)> {
        self.collect(start, end, DeviceBlocks::generated_pieces)
    }

    /// Whether the block is kept as metadata, not as an unclassified one.
    pub(crate) fn is_kept_metadata(&self, unit: VolumeUnit) -> bool {
        self.unit_on_device(unit).is_some_and(|unit| self.device.is_kept_metadata(unit))
    }

    /// Whether the block is kept because of a file's name.
    pub(crate) fn is_raw(&self, unit: VolumeUnit) -> bool {
        self.class_of(unit) == Some(Class::Raw)
    }

    /// Whether the block is kept because of a program's marker.
    pub(crate) fn is_noted(&self, unit: VolumeUnit) -> bool {
        self.class_of(unit) == Some(Class::Noted)
    }

    fn class_of(&self, unit: VolumeUnit) -> Option<Class> {
        self.device.class_of(self.unit_on_device(unit)?)
    }

    /// Whether a block in the range is waiting, or kept only because its use is unknown.
    pub(crate) fn has_unclassified(&self, start: VolumeUnit, end: VolumeUnit) -> bool {
        self.on_device(start, end).any(|(from, to, at)| self.device.has_unclassified(at, at + (to - from)))
    }

    /// Fills `bytes` from `offset_bytes` on, for blocks in any state. Returns whether no part was generated.
    pub(crate) fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<bool, StoreError> {
        if self.lens.is_none() {
            return self.device.read(offset_bytes, bytes);
        }
        let end_bytes = offset_bytes + len_of(bytes);
        let end = VolumeUnit(end_bytes.div_ceil(UNIT_BYTES));
        let mut true_bytes = true;
        for (from, to, at) in self.on_device(VolumeUnit::of_byte(offset_bytes), end) {
            let (start, end) = (offset_bytes.max(from.offset_bytes()), end_bytes.min(to.offset_bytes()));
            let part = &mut bytes[(start - offset_bytes) as usize..(end - offset_bytes) as usize];
            true_bytes &= self.device.read(at.offset_bytes() + (start - from.offset_bytes()), part)?;
        }
        Ok(true_bytes)
    }

    /// Keeps `bytes`, whole blocks from `unit` on; all-zero blocks take no space.
    pub(crate) fn keep(&mut self, unit: VolumeUnit, bytes: &[u8], class: Class) -> Result<(), StoreError> {
        self.with_bytes(unit, bytes, |device, at, bytes| device.keep(at, bytes, class))
    }

    /// Lets `bytes`, whole blocks from `unit` on, wait in memory; without room there, they are kept, compressed if
    /// `packed`. Zeros need not wait.
    pub(crate) fn wait(&mut self, unit: VolumeUnit, bytes: &[u8], packed: bool) -> Result<(), StoreError> {
        self.with_bytes(unit, bytes, |device, at, bytes| device.wait(at, bytes, packed))
    }

    fn with_bytes(
        &mut self,
        unit: VolumeUnit,
        bytes: &[u8],
        work: impl Fn(&mut DeviceBlocks, DeviceUnit, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (from, to, at) in self.on_device(unit, unit + len_of(bytes) / UNIT_BYTES) {
            let range = ((from - unit) * UNIT_BYTES) as usize..((to - unit) * UNIT_BYTES) as usize;
            work(&mut self.device, at, &bytes[range])?;
        }
        Ok(())
    }

    /// Keeps the unclassified blocks between `start` and `end`, and sets the class of the kept ones.
    pub(crate) fn settle(&mut self, start: VolumeUnit, end: VolumeUnit, class: Class) -> Result<(), StoreError> {
        self.try_each(start, end, |device, from, to| device.settle(from, to, class))
    }

    /// Keeps the unclassified blocks between `start` and `end` as unclassified.
    pub(crate) fn spill(&mut self, start: VolumeUnit, end: VolumeUnit) -> Result<(), StoreError> {
        self.try_each(start, end, DeviceBlocks::spill)
    }

    /// Generates the contents between `start` and `end` from now on, including written zeros.
    pub(crate) fn squash_written(&mut self, start: VolumeUnit, end: VolumeUnit) {
        self.each(start, end, DeviceBlocks::squash_written);
    }

    /// Generates the contents of zeroed blocks in the range from now on.
    pub(crate) fn squash_zeros(&mut self, start: VolumeUnit, end: VolumeUnit) {
        self.each(start, end, DeviceBlocks::squash_zeros);
    }

    /// Generates the contents of stored blocks in the range from now on.
    pub(crate) fn squash(&mut self, start: VolumeUnit, end: VolumeUnit) {
        self.each(start, end, DeviceBlocks::squash);
    }

    /// Seed of generated contents.
    pub(crate) fn seed(&self) -> u64 {
        self.device.seed()
    }

    /// Whether half of the room for unclassified blocks is used.
    pub(crate) fn waiting_is_half_full(&self) -> bool {
        self.device.waiting_is_half_full()
    }

    /// Runs `work` and charges it to a component.
    pub(crate) fn metered<T>(&mut self, worker: super::meter::Worker, work: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.device.meter.switch(Some(worker));
        let done = work(self);
        self.device.meter.switch(outer);
        done
    }
}
