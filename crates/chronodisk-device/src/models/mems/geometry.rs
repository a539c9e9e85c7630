//! Where a block is on a sled: Griffin, Schlosser, Ganger and Nagle, "Modeling and Performance of MEMS-Based Storage
//! Devices" (SIGMETRICS 2000), section 2.2.
//!
//! A block (512 bytes) is striped over several tips, and the tips that work at once read several blocks side by side: a
//! *row*. The rows that pass in one stroke of the sled in Y are a *column*; the columns that different sets of tips
//! have at one place of the sled in X are a *cylinder*. Addresses grow along the row, then the column, then the
//! cylinder, then X. Positions are in bits from the middle of the travel.

/// Order of the rows of successive columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Every column begins at the same end, so that the sled flies back between columns.
    Simple,
    /// Every other column is reversed, so that a sled that turns round goes on reading.
    Streaming,
}

/// The size of everything, in bits and in counts; none is zero.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(super) layout: Layout,
    pub(super) cylinders: u32,
    pub(super) columns: u32,
    pub(super) rows: u32,
    pub(super) blocks_per_row: u32,
    pub(super) servo_bits: i32,
    pub(super) sector_bits: i32,
}

/// The part of a row from a block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowSegment {
    /// Cylinder, as an offset from the middle.
    pub(super) x: i32,
    /// Beginning of the row's data for a sled that moves up, and their end for one that moves down.
    pub(super) low: i32,
    /// The other end of the row's data.
    pub(super) high: i32,
    /// Blocks from the given one on that one pass can take, at least one.
    pub(super) blocks: u32,
}

impl Geometry {
    /// Blocks in a sled.
    pub(super) fn blocks(&self) -> u64 {
        u64::from(self.cylinders) * self.blocks_per_cylinder()
    }

    /// Place of block `block` of a sled.
    pub(super) fn place(&self, block: u64) -> RowSegment {
        let (cylinder, within) = (block / self.blocks_per_cylinder(), (block % self.blocks_per_cylinder()) as u32);
        let (row_index, cell) = (within / self.blocks_per_row, within % self.blocks_per_row);
        let (column, row) = (row_index / self.rows, row_index % self.rows);
        let reversed = self.is_reversed(cylinder, column);
        // Where a column turns round into the next, the first row of that one lies under other tips at the same place:
        // tips that the end of this row leaves unused begin it in the same pass.
        let turns =
            row + 1 == self.rows && column + 1 < self.columns && self.is_reversed(cylinder, column + 1) != reversed;
        let blocks = if turns { self.blocks_per_row } else { self.blocks_per_row - cell };
        let row = if reversed { self.rows - 1 - row } else { row } as i32;
        let low = row * (self.servo_bits + self.sector_bits) + self.servo_bits - self.middle();
        RowSegment { x: cylinder as i32 - (self.cylinders / 2) as i32, low, high: low + self.sector_bits, blocks }
    }

    /// The block over which a parked sled rests.
    pub(super) fn middle_block(&self) -> u64 {
        u64::from(self.cylinders / 2) * self.blocks_per_cylinder() + self.blocks_per_cylinder() / 2
    }

    fn blocks_per_cylinder(&self) -> u64 {
        u64::from(self.columns) * u64::from(self.rows) * u64::from(self.blocks_per_row)
    }

    /// Half the height of the rows with a servo burst at either end.
    fn middle(&self) -> i32 {
        (self.rows as i32 * (self.servo_bits + self.sector_bits) + self.servo_bits) / 2
    }

    /// Whether a column's rows run downwards.
    ///
    /// With an odd number of columns a cylinder ends where its last column ends, so the next cylinder starts reversed.
    fn is_reversed(&self, cylinder: u64, column: u32) -> bool {
        let strokes = match self.columns % 2 {
            0 => u64::from(column),
            _ => cylinder + u64::from(column),
        };
        self.layout == Layout::Streaming && strokes % 2 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(columns: u32, layout: Layout) -> Geometry {
        Geometry { layout, cylinders: 4, columns, rows: 3, blocks_per_row: 2, servo_bits: 10, sector_bits: 80 }
    }

    #[test]
    fn addresses_follow_rows_columns_cylinders() {
        let geometry = geometry(2, Layout::Simple);
        assert_eq!(geometry.blocks(), 48);
        // Three rows of 90 bits and a servo burst are 280 bits; the middle is at 140.
        assert_eq!(geometry.place(0), RowSegment { x: -2, low: -130, high: -50, blocks: 2 });
        assert_eq!(geometry.place(3), RowSegment { x: -2, low: -40, high: 40, blocks: 1 });
        assert_eq!(geometry.place(6), RowSegment { x: -2, low: -130, high: -50, blocks: 2 });
        assert_eq!(geometry.place(5), RowSegment { x: -2, low: 50, high: 130, blocks: 1 });
        assert_eq!(geometry.place(47), RowSegment { x: 1, low: 50, high: 130, blocks: 1 });
        assert_eq!(geometry.middle_block(), 2 * 12 + 6);
    }

    #[test]
    fn a_pass_where_the_sled_turns_takes_blocks_of_both_columns() {
        let geometry = geometry(2, Layout::Streaming);
        assert_eq!(geometry.place(5), RowSegment { x: -2, low: 50, high: 130, blocks: 2 });
        assert_eq!(geometry.place(6).low, 50);
        assert_eq!(geometry.place(11).blocks, 1, "the next cylinder is elsewhere in X");
    }

    #[test]
    fn streaming_turns_round_at_every_end() {
        for columns in [2, 3] {
            let geometry = geometry(columns, Layout::Streaming);
            let rows: Vec<i32> = (0..geometry.blocks()).step_by(2).map(|block| geometry.place(block).low).collect();
            assert!(rows.windows(2).all(|pair| pair[0].abs_diff(pair[1]) <= 90), "{rows:?}");
        }
    }
}
