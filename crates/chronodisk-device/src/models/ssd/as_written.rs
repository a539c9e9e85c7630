//! The places that units would have if the drive had been written from beginning to end.

use std::sync::Arc;

use super::ftl::Unit;
use super::geometry::Slot;
use super::luck::shuffled;
use super::parameters::SsdParameters;

/// A drive in its `as-written` state.
#[derive(Clone, Debug)]
pub(super) struct AsWritten {
    parameters: Arc<SsdParameters>,
    seed: u64,
}

impl AsWritten {
    pub(super) fn new(parameters: Arc<SsdParameters>, seed: u64) -> Self {
        AsWritten { parameters, seed }
    }

    /// The slot of a unit.
    #[inline]
    pub(super) fn slot(&self, unit: Unit) -> Slot {
        let (geometry, ftl) = (self.parameters.geometry(), &self.parameters.ftl);
        let dies = geometry.dies();
        let per_superpage = geometry.units_per_superpage();
        let per_superblock = geometry.units_per_superblock();
        let (die, unit_of_die) = match ftl.bound_die(unit) {
            Some(die) if ftl.logical_blocks().is_some() => {
                (die, unit / per_superblock / dies * per_superblock + unit % per_superblock)
            }
            Some(die) => {
                let page = unit / geometry.units_per_page();
                (die, page / dies * geometry.units_per_page() + unit % geometry.units_per_page())
            }
            None => {
                let (die, stripe) = self.superpage(unit / per_superpage);
                (die, stripe * per_superpage + unit % per_superpage)
            }
        };
        let units_of_die = geometry.blocks_per_plane * per_superblock;
        let slc = ftl.slc_superblocks() * per_superblock;
        die * units_of_die + slc + unit_of_die % (units_of_die - slc)
    }

    /// The die and its superpage for a superpage of the host. Within `stripes_mixed` stripes of one superpage per die,
    /// each die gets as many superpages as there are stripes, in the random order in which dies were free.
    fn superpage(&self, superpage: u32) -> (u32, u32) {
        let dies = self.parameters.geometry().dies();
        let in_group = dies * self.parameters.stripes_mixed;
        let group = superpage / in_group;
        let place = shuffled(superpage % in_group, in_group, self.seed ^ u64::from(group) << 8);
        (place % dies, group * self.parameters.stripes_mixed + place / dies)
    }
}
