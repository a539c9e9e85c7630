//! Layouts of arrays: the mapping from an array's sectors to its members', as in the Linux md driver.
//!
//! Sources: Linux, `drivers/md/raid5.c`, `raid5_compute_sector` (RAID 4, 5 and 6); `drivers/md/raid10.c`,
//! `__raid10_find_phys` (near, far and offset copies); `drivers/md/raid0.c` and `md-linear.c`. The layouts have their
//! names from mdadm(8).
//!
//! Members of unequal size are used up to the smallest one's size, except by `linear`, which uses them completely.

use std::ops::Range;

/// Sector `sector` of member number `member`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MemberSector {
    pub(crate) member: usize,
    pub(crate) sector: u64,
}

/// Rotation of the parity in RAID 4, 5 and 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParityLayout {
    /// Parity moves from the last member to the first; data fill the others from the first on.
    LeftAsymmetric,
    /// Parity moves from the first member to the last; data fill the others from the first on.
    RightAsymmetric,
    /// Parity moves from the last member to the first; data begin after it and wrap around.
    LeftSymmetric,
    /// Parity moves from the first member to the last; data begin after it and wrap around.
    RightSymmetric,
    /// Parity on the first member or members.
    ParityFirst,
    /// Parity on the last member or members.
    ParityLast,
}

/// Placement of further copies of a chunk in RAID 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyLayout {
    /// The copies are on the next members, at the same or nearly the same place.
    Near,
    /// The copies are on the next members, each in a separate part, so that reads stripe over all of them as in RAID 0.
    Far,
    /// The copies are on the next members, in the next row.
    Offset,
}

/// The family of an array's level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Concatenated members; the first sector of each in the array, ascending.
    Linear(Vec<u64>),
    /// Chunks with equal copies: RAID 0 (one copy), RAID 1 (a single chunk, a copy on every member), RAID 10.
    Copies {
        /// Copies of each chunk, all on different members.
        copies: usize,
        /// Placement of the copies.
        layout: CopyLayout,
        /// Rows between the copies of the far layout.
        stride_rows: u64,
    },
    /// Rows of chunks with one parity chunk or two.
    Parity {
        /// Number of parities per row: one or two.
        parities: usize,
        /// Rotation of the parity.
        layout: ParityLayout,
    },
}

/// An array's mapping.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    pub(crate) members: usize,
    pub(crate) chunk_sectors: u64,
    pub(crate) capacity_sectors: u64,
}

impl Layout {
    /// Members one after the other.
    pub(crate) fn linear(member_sectors: &[u64]) -> Layout {
        let mut starts = Vec::with_capacity(member_sectors.len());
        let mut end = 0;
        for sectors in member_sectors {
            starts.push(end);
            end += sectors;
        }
        Layout {
            shape: Shape::Linear(starts),
            members: member_sectors.len(),
            chunk_sectors: end,
            capacity_sectors: end,
        }
    }

    /// A mirror on `members` members of this size.
    pub(crate) fn mirrored(members: usize, member_sectors: u64) -> Layout {
        let shape = Shape::Copies { copies: members, layout: CopyLayout::Near, stride_rows: 0 };
        Layout { shape, members, chunk_sectors: member_sectors, capacity_sectors: member_sectors }
    }

    /// Chunks striped over `members` members with `member_sectors` each, in `copies` copies; a capacity of zero if
    /// nothing fits.
    pub(crate) fn striped(
        members: usize,
        member_sectors: u64,
        chunk_sectors: u64,
        copies: usize,
        layout: CopyLayout,
    ) -> Layout {
        let (width, many) = (members as u64, copies as u64);
        let rows = member_sectors / chunk_sectors;
        let stride_rows = if layout == CopyLayout::Far { rows / many } else { 0 };
        let chunks = match layout {
            CopyLayout::Near => rows * width / many,
            CopyLayout::Far | CopyLayout::Offset => rows / many * width,
        };
        let shape = Shape::Copies { copies, layout, stride_rows };
        Layout { shape, members, chunk_sectors, capacity_sectors: chunks * chunk_sectors }
    }

    /// Rows of chunks with parity.
    pub(crate) fn with_parity(
        members: usize,
        member_sectors: u64,
        chunk_sectors: u64,
        parities: usize,
        layout: ParityLayout,
    ) -> Layout {
        let rows = member_sectors / chunk_sectors;
        let capacity_sectors = rows * (members - parities) as u64 * chunk_sectors;
        Layout { shape: Shape::Parity { parities, layout }, members, chunk_sectors, capacity_sectors }
    }

    /// Chunks of data in a row of an array with parity.
    pub(crate) fn units(&self) -> usize {
        match self.shape {
            Shape::Parity { parities, .. } => self.members - parities,
            Shape::Linear(_) | Shape::Copies { .. } => self.members,
        }
    }

    /// Sectors of each member that are in use, of an array with copies or parity.
    pub(crate) fn used_sectors(&self) -> u64 {
        let chunks = self.capacity_sectors / self.chunk_sectors;
        let rows = match self.shape {
            Shape::Linear(_) => 1,
            Shape::Copies { copies, layout: CopyLayout::Near, .. } => {
                (chunks * copies as u64).div_ceil(self.members as u64)
            }
            Shape::Copies { copies, .. } => chunks / self.members as u64 * copies as u64,
            Shape::Parity { .. } => chunks / self.units() as u64,
        };
        rows * self.chunk_sectors
    }

    /// Sectors of data in a row.
    pub(crate) fn row_sectors(&self) -> u64 {
        self.units() as u64 * self.chunk_sectors
    }

    /// Begin of copy number `copy` of a chunk; `None` in other layouts.
    pub(crate) fn copy(&self, chunk: u64, copy: usize) -> Option<MemberSector> {
        let Shape::Copies { copies, layout, stride_rows } = self.shape else { return None };
        let (width, copy) = (self.members as u64, copy as u64);
        let (row, member) = match layout {
            CopyLayout::Near => {
                let index = chunk * copies as u64 + copy;
                (index / width, index % width)
            }
            CopyLayout::Far => (chunk / width + copy * stride_rows, (chunk % width + copy) % width),
            CopyLayout::Offset => (chunk / width * copies as u64 + copy, (chunk % width + copy) % width),
        };
        Some(MemberSector { member: member as usize, sector: row * self.chunk_sectors })
    }

    /// Copies of each chunk; one without redundancy of this kind.
    pub(crate) fn copies(&self) -> usize {
        match self.shape {
            Shape::Copies { copies, .. } => copies,
            Shape::Linear(_) | Shape::Parity { .. } => 1,
        }
    }

    /// The chunk that a member has in row `row`, the reverse of [`copy`](Self::copy); `None` in other layouts.
    pub(crate) fn chunk_at(&self, member: usize, row: u64) -> Option<u64> {
        let Shape::Copies { copies, layout, stride_rows } = self.shape else { return None };
        let (width, many, member) = (self.members as u64, copies as u64, member as u64);
        let before = |copy: u64| (member + width - copy % width) % width;
        Some(match layout {
            CopyLayout::Near => (row * width + member) / many,
            CopyLayout::Far => row % stride_rows * width + before(row / stride_rows),
            CopyLayout::Offset => row / many * width + before(row % many),
        })
    }

    /// The member with a row's parity (`which`: 0 for P, 1 for Q); `None` without that parity.
    pub(crate) fn parity(&self, row: u64, which: usize) -> Option<usize> {
        let Shape::Parity { parities, layout } = self.shape else { return None };
        let turn = (row % self.members as u64) as usize;
        let first = match layout {
            ParityLayout::LeftAsymmetric | ParityLayout::LeftSymmetric => self.members - 1 - turn,
            ParityLayout::RightAsymmetric | ParityLayout::RightSymmetric => turn,
            ParityLayout::ParityFirst => 0,
            ParityLayout::ParityLast => self.members - parities,
        };
        (which < parities).then_some((first + which) % self.members)
    }

    /// The member with data chunk number `unit` of a row of an array with parity.
    pub(crate) fn data(&self, row: u64, unit: usize) -> usize {
        let (Shape::Parity { parities, layout }, Some(first)) = (&self.shape, self.parity(row, 0)) else { return unit };
        match layout {
            ParityLayout::LeftSymmetric | ParityLayout::RightSymmetric => (first + parities + unit) % self.members,
            ParityLayout::ParityFirst => unit + parities,
            ParityLayout::ParityLast => unit,
            ParityLayout::LeftAsymmetric | ParityLayout::RightAsymmetric => {
                // The Q chunk of the last member wraps round to the first.
                let wrapped = (first + parities).saturating_sub(self.members);
                let before = first - wrapped;
                if unit < before { unit + wrapped } else { unit + parities }
            }
        }
    }

    /// The array's sector whose data, or a copy of them, a member has there. `None` for parity and for unused sectors.
    pub(crate) fn origin(&self, place: MemberSector) -> Option<u64> {
        let MemberSector { member, sector } = place;
        let (row, offset) = (sector / self.chunk_sectors, sector % self.chunk_sectors);
        let found = match &self.shape {
            Shape::Linear(starts) => starts[member] + sector,
            &Shape::Copies { copies, layout, stride_rows } => {
                let (width, copies) = (self.members as u64, copies as u64);
                let rotated = |row: u64, copy: u64| row * width + (member as u64 + width - copy % width) % width;
                let chunk = match layout {
                    CopyLayout::Near => (row * width + member as u64) / copies,
                    CopyLayout::Far => rotated(row.checked_rem(stride_rows)?, row / stride_rows),
                    CopyLayout::Offset => rotated(row / copies, row % copies),
                };
                chunk * self.chunk_sectors + offset
            }
            Shape::Parity { .. } => {
                let unit = (0..self.units()).find(|&unit| self.data(row, unit) == member)?;
                row * self.row_sectors() + unit as u64 * self.chunk_sectors + offset
            }
        };
        (found < self.capacity_sectors).then_some(found)
    }

    /// The array's sectors of a range of a member.
    pub(crate) fn origins(&self, member: usize, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut sector = range.start;
        std::iter::from_fn(move || {
            let (from, rest) = (sector, self.chunk_sectors - sector % self.chunk_sectors);
            let length = rest.min(range.end.saturating_sub(from));
            sector += length;
            let found = self.origin(MemberSector { member, sector: from });
            (length > 0).then(|| found.map_or(0..0, |first| first..first + length))
        })
    }

    /// Member and sector for a sector of a linear array; `None` in other layouts.
    pub(crate) fn linear_place(&self, sector: u64) -> Option<MemberSector> {
        let Shape::Linear(starts) = &self.shape else { return None };
        let member = starts.partition_point(|&start| start <= sector) - 1;
        Some(MemberSector { member, sector: sector - starts[member] })
    }

    /// Sectors from `sector` to the end of its member in a linear array.
    pub(crate) fn linear_rest(&self, sector: u64) -> u64 {
        let Shape::Linear(starts) = &self.shape else { return 0 };
        let member = starts.partition_point(|&start| start <= sector);
        starts.get(member).copied().unwrap_or(self.capacity_sectors) - sector
    }

    /// Whether the members hold parity.
    pub(crate) fn has_parity(&self) -> bool {
        matches!(self.shape, Shape::Parity { .. })
    }

    /// Whether everything can still be read when the members of this set are gone.
    pub(crate) fn survives(&self, failed: MemberSet) -> bool {
        match self.shape {
            Shape::Linear(_) => failed.is_empty(),
            Shape::Parity { parities, .. } => failed.count() <= parities,
            Shape::Copies { copies, .. } => (0..self.members as u64).all(|chunk| {
                let mut places = (0..copies).filter_map(|copy| self.copy(chunk, copy));
                places.any(|place| !failed.contains(place.member))
            }),
        }
    }
}

/// Most members of an array.
pub(crate) const MAX_MEMBERS: usize = 64;

/// A set of at most [`MAX_MEMBERS`] members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberSet(u64);

impl MemberSet {
    pub(crate) fn insert(&mut self, member: usize) {
        self.0 |= 1 << member;
    }

    pub(crate) fn remove(&mut self, member: usize) {
        self.0 &= !(1 << member);
    }

    pub(crate) fn contains(self, member: usize) -> bool {
        self.0 >> member & 1 == 1
    }

    /// The members from number 0 to before `count`, at most [`MAX_MEMBERS`].
    pub(crate) fn first(count: usize) -> MemberSet {
        MemberSet(u64::MAX >> (MAX_MEMBERS - count))
    }

    pub(crate) fn union(self, other: MemberSet) -> MemberSet {
        MemberSet(self.0 | other.0)
    }

    pub(crate) fn without(self, other: MemberSet) -> MemberSet {
        MemberSet(self.0 & !other.0)
    }

    pub(crate) fn and(self, other: MemberSet) -> MemberSet {
        MemberSet(self.0 & other.0)
    }

    pub(crate) fn intersects(self, other: MemberSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every member of `other` is in this set.
    pub(crate) fn includes(self, other: MemberSet) -> bool {
        other.0 & !self.0 == 0
    }

    /// The members, ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let member = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (member < MAX_MEMBERS).then_some(member)
        })
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}
