//! Division of a drive's flash, and the numbering of its parts.
//!
//! ```text
//!  channel ─┬─ chip ─┬─ die ─┬─ plane ─┬─ block ─┬─ page ─┬─ unit (the mapping's grain, usually 4 KiB)
//!           └─ chip  └─ die  └─ plane  └─ block  └─ page  └─ unit
//! ```
//!
//! A *slot* is a place for one unit. The planes of a die work together: a *superblock* consists of the blocks with one
//! number in all planes of a die. A *superpage* is the amount written by one program command, `one_shot_pages` pages in
//! every plane. Both are ranges of slots, because slots are numbered by die, then block, page, plane and unit:
//!
//! ```text
//!  row  = (die · blocks_per_plane + block) · pages_per_block + page
//!  slot = (row · planes_per_die + plane) · units_per_page + unit
//! ```
//!
//! Within a superpage of more than one page per plane, the units of the first page of all planes come first.
//! Dies are numbered with the channel first, so that dies with consecutive numbers share no bus:
//!
//! ```text
//!  die = channel + channels · (chip + chips_per_channel · die in chip)
//! ```

/// Bits in a cell of the flash. It is also the number of pages that share a word line; each has its own read time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellKind {
    /// One bit.
    Slc,
    /// Two bits.
    Mlc,
    /// Three bits.
    Tlc,
    /// Four bits.
    Qlc,
}

impl CellKind {
    /// Pages that share a word line.
    pub(crate) const fn pages_per_word_line(self) -> u32 {
        match self {
            CellKind::Slc => 1,
            CellKind::Mlc => 2,
            CellKind::Tlc => 3,
            CellKind::Qlc => 4,
        }
    }
}

/// The sizes; [`Geometry::check`] validates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Buses between controller and flash.
    pub(crate) channels: u32,
    /// Packages on a bus.
    pub(crate) chips_per_channel: u32,
    /// Dies (logical units) in a package: each works on one command at a time.
    pub(crate) dies_per_chip: u32,
    /// Planes of a die, which work together.
    pub(crate) planes_per_die: u32,
    /// Blocks of a plane, including spare blocks.
    pub(crate) blocks_per_plane: u32,
    /// Pages of a block.
    pub(crate) pages_per_block: u32,
    /// Data bytes of a page.
    pub(crate) page_bytes: u32,
    /// Bytes of a unit, the grain of the mapping.
    pub(crate) unit_bytes: u32,
    /// Bits per cell.
    pub(crate) cells: CellKind,
    /// Pages of a plane that one program command writes: all pages of a word line, or one.
    pub(crate) one_shot_pages: u32,
}

/// Number of a place for a unit; never all ones.
pub(crate) type Slot = u32;

/// Number of a die in the drive.
pub(crate) type DieIndex = u32;

/// A [`Slot`], split into its coordinates.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAddress {
    pub(crate) die: DieIndex,
    pub(crate) block: u32,
    pub(crate) page: u32,
    pub(crate) plane: u32,
    pub(crate) unit: u32,
}

impl Geometry {
    /// Checks that the sizes are consistent.
    ///
    /// # Errors
    /// The inconsistent key of the profile, and a sentence that gives the reason.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, count, most) in [
            ("channels", self.channels, 256),
            ("chips-per-channel", self.chips_per_channel, 256),
            ("dies-per-chip", self.dies_per_chip, 64),
            ("planes-per-die", self.planes_per_die, 16),
            ("blocks-per-plane", self.blocks_per_plane, 1 << 20),
            ("pages-per-block", self.pages_per_block, 1 << 14),
            ("page-size", self.page_bytes, 1 << 20),
            ("mapping-unit", self.unit_bytes, 1 << 20),
            ("one-shot-pages", self.one_shot_pages, 16),
        ] {
            if count == 0 || count > most {
                return Err((key, format!("{count}; expected 1 to {most}")));
            }
        }
        if self.dies() > MOST_DIES {
            return Err(("dies-per-chip", format!("the drive has {} dies; expected at most {MOST_DIES}", self.dies())));
        }
        if !self.unit_bytes.is_multiple_of(512) || !self.unit_bytes.is_power_of_two() {
            return Err(("mapping-unit", format!("{} B; expected a power of two from 512 B", self.unit_bytes)));
        }
        if !self.page_bytes.is_multiple_of(self.unit_bytes) {
            return Err(("page-size", format!("not a multiple of the mapping unit of {} B", self.unit_bytes)));
        }
        if !self.pages_per_block.is_multiple_of(self.one_shot_pages) {
            return Err(("pages-per-block", format!("not a multiple of {} one-shot pages", self.one_shot_pages)));
        }
        if self.blocks_per_plane < 4 {
            return Err(("blocks-per-plane", format!("{}; expected at least 4", self.blocks_per_plane)));
        }
        let slots = [self.blocks_per_plane, self.pages_per_block, self.planes_per_die, self.units_per_page()]
            .into_iter()
            .try_fold(u64::from(self.dies()), |product, count| product.checked_mul(u64::from(count)));
        match slots {
            Some(slots) if slots < u64::from(u32::MAX) => Ok(()),
            _ => Err(("blocks-per-plane", "the drive has 2^32 or more mapping units; expected fewer".to_owned())),
        }
    }

    /// Dies of the drive.
    pub(crate) const fn dies(&self) -> u32 {
        self.channels * self.chips_per_channel * self.dies_per_chip
    }

    /// Units of a page.
    pub(crate) const fn units_per_page(&self) -> u32 {
        self.page_bytes / self.unit_bytes
    }

    /// Units that one program command writes.
    pub(crate) const fn units_per_superpage(&self) -> u32 {
        self.planes_per_die * self.one_shot_pages * self.units_per_page()
    }

    /// Units that one program command writes in cells with one bit: a page in every plane.
    pub(crate) const fn slc_units_per_superpage(&self) -> u32 {
        self.planes_per_die * self.units_per_page()
    }

    /// Units of a superblock whose cells hold one bit; they use its first rows.
    pub(crate) const fn slc_units_per_superblock(&self) -> u32 {
        self.units_per_superblock() / self.cells.pages_per_word_line()
    }

    /// Units of a superblock.
    pub(crate) const fn units_per_superblock(&self) -> u32 {
        self.units_per_page() * self.planes_per_die * self.pages_per_block
    }

    /// Program commands that fill a superblock.
    pub(crate) const fn superpages_per_superblock(&self) -> u32 {
        self.pages_per_block / self.one_shot_pages
    }

    /// Superblocks of the drive; they are numbered by die, then block.
    pub(crate) const fn superblocks(&self) -> u32 {
        self.dies() * self.blocks_per_plane
    }

    /// Places for units in the drive.
    pub(crate) const fn slots(&self) -> u32 {
        self.superblocks() * self.units_per_superblock()
    }

    /// The number of a die.
    pub(crate) const fn die(&self, channel: u32, chip: u32, die_in_chip: u32) -> DieIndex {
        channel + self.channels * (chip + self.chips_per_channel * die_in_chip)
    }

    /// The bus of a die.
    #[cfg(test)]
    pub(crate) const fn channel_of(&self, die: DieIndex) -> u32 {
        die % self.channels
    }

    /// The superblock of a slot.
    pub(crate) const fn superblock_of(&self, slot: Slot) -> u32 {
        slot / self.units_per_superblock()
    }

    /// The die of a superblock.
    pub(crate) const fn die_of_superblock(&self, superblock: u32) -> DieIndex {
        superblock / self.blocks_per_plane
    }

    /// The first slot of a superblock.
    pub(crate) const fn first_slot(&self, superblock: u32) -> Slot {
        superblock * self.units_per_superblock()
    }

    /// The slot at an address.
    #[cfg(test)]
    pub(crate) const fn slot(&self, address: SlotAddress) -> Slot {
        let SlotAddress { die, block, page, plane, unit } = address;
        (((die * self.blocks_per_plane + block) * self.pages_per_block + page) * self.planes_per_die + plane)
            * self.units_per_page()
            + unit
    }

    /// The address of a slot.
    #[cfg(test)]
    pub(crate) const fn address(&self, slot: Slot) -> SlotAddress {
        let (rest, unit) = (slot / self.units_per_page(), slot % self.units_per_page());
        let (rest, plane) = (rest / self.planes_per_die, rest % self.planes_per_die);
        let (rest, page) = (rest / self.pages_per_block, rest % self.pages_per_block);
        SlotAddress { die: rest / self.blocks_per_plane, block: rest % self.blocks_per_plane, page, plane, unit }
    }
}

/// More dies than any drive has; each costs memory in every fork.
const MOST_DIES: u32 = 4_096;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMALL: Geometry = Geometry {
        channels: 2,
        chips_per_channel: 3,
        dies_per_chip: 2,
        planes_per_die: 2,
        blocks_per_plane: 5,
        pages_per_block: 6,
        page_bytes: 16_384,
        unit_bytes: 4_096,
        cells: CellKind::Tlc,
        one_shot_pages: 3,
    };

    #[test]
    fn a_superpage_is_a_range_of_slots() {
        SMALL.check().unwrap();
        let first = SMALL.slot(SlotAddress { die: 7, block: 4, page: 3, plane: 0, unit: 0 });
        assert_eq!(SMALL.units_per_superpage(), 2 * 3 * 4);
        for slot in first..first + SMALL.units_per_superpage() {
            let address = SMALL.address(slot);
            assert_eq!((address.die, address.block, address.page / 3), (7, 4, 1));
        }
        assert_eq!(SMALL.address(first + SMALL.units_per_superpage()).die, 8, "the last of its die");
    }

    #[test]
    fn neighbouring_dies_share_no_bus() {
        assert_eq!(SMALL.dies(), 12);
        assert_eq!(SMALL.die(1, 0, 0), 1);
        assert_eq!(SMALL.die(0, 1, 0), 2);
        assert_eq!(SMALL.die(0, 0, 1), 6);
        assert!((0..11).all(|die| SMALL.channel_of(die) != SMALL.channel_of(die + 1)));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let key = |geometry: Geometry| geometry.check().unwrap_err().0;
        assert_eq!(key(Geometry { channels: 0, ..SMALL }), "channels");
        assert_eq!(key(Geometry { unit_bytes: 3_072, ..SMALL }), "mapping-unit");
        assert_eq!(key(Geometry { page_bytes: 6_144, ..SMALL }), "page-size");
        assert_eq!(key(Geometry { pages_per_block: 7, ..SMALL }), "pages-per-block");
        assert_eq!(key(Geometry { blocks_per_plane: 3, ..SMALL }), "blocks-per-plane");
        assert_eq!(
            key(Geometry { channels: 256, chips_per_channel: 256, dies_per_chip: 64, ..SMALL }),
            "dies-per-chip"
        );
        let huge = Geometry { blocks_per_plane: 1 << 20, pages_per_block: 3 << 12, ..SMALL };
        assert_eq!(key(huge), "blocks-per-plane");
    }

    proptest! {
        #[test]
        fn an_address_and_its_slot_are_the_same(slot in 0..SMALL.slots()) {
            let address = SMALL.address(slot);
            prop_assert_eq!(SMALL.slot(address), slot);
            let superblock = SMALL.superblock_of(slot);
            prop_assert_eq!(SMALL.die_of_superblock(superblock), address.die);
            prop_assert_eq!(superblock % SMALL.blocks_per_plane, address.block);
            prop_assert!((SMALL.first_slot(superblock)..=slot).contains(&slot));
        }
    }
}
