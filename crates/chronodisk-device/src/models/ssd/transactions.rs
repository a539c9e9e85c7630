//! Transactions of the flash with their durations in the arrays of the dies.

use std::sync::Arc;

use chronodisk_sim::Nanos;

use super::flash::{Class, Transaction, Work};
use super::ftl::Superpage;
use super::geometry::DieIndex;
use super::luck::{mix, vary};
use super::parameters::SsdParameters;
use super::pool::NONE;
use super::records::{Owner, RowRead};

/// Makes the transactions of a drive. Durations depend only on places and on the seed.
#[derive(Clone, Debug)]
pub(super) struct Transactions {
    parameters: Arc<SsdParameters>,
    seed: u64,
}

impl Transactions {
    pub(super) fn new(parameters: Arc<SsdParameters>, seed: u64) -> Self {
        Transactions { parameters, seed }
    }

    /// A read of a row.
    #[inline]
    pub(super) fn read(&self, read: &RowRead, class: Class, owner: Owner) -> Transaction<Owner> {
        let geometry = self.parameters.geometry();
        let (superblock, page) = (read.row / geometry.pages_per_block, read.row % geometry.pages_per_block);
        let pages = read.planes.count_ones();
        Transaction {
            work: Work::Read,
            class,
            die: geometry.die_of_superblock(superblock),
            pages,
            bytes: if self.parameters.arrays.whole_pages { pages * geometry.page_bytes } else { read.bytes },
            array: self.read_time(superblock, page, read.bytes / pages),
            row: read.row,
            planes: read.planes,
            owner,
        }
    }

    /// A program of a superpage.
    pub(super) fn program(
        &self,
        die: DieIndex,
        superpage: Superpage,
        class: Class,
        owner: Owner,
    ) -> Transaction<Owner> {
        let geometry = self.parameters.geometry();
        let one_bit = self.parameters.ftl.is_slc(superpage.superblock);
        let pages = geometry.planes_per_die * if one_bit { 1 } else { geometry.one_shot_pages };
        Transaction {
            work: Work::Program,
            class,
            die,
            pages,
            bytes: pages * geometry.page_bytes,
            array: if one_bit { self.parameters.arrays.slc.program } else { self.program_time(superpage) },
            row: NONE,
            planes: 0,
            owner,
        }
    }

    /// An erase of a superblock of the die.
    pub(super) fn erase(&self, die: DieIndex) -> Transaction<Owner> {
        Transaction {
            work: Work::Erase,
            class: Class::Erase,
            die,
            pages: self.parameters.geometry().planes_per_die,
            bytes: 0,
            array: self.parameters.arrays.erase,
            row: NONE,
            planes: 0,
            owner: Owner::Erase(die),
        }
    }

    /// Time of the array to read a page, by its place in the word line, the length read, and the word line's fixed
    /// variation.
    fn read_time(&self, superblock: u32, page: u32, bytes: u32) -> Nanos {
        let arrays = &self.parameters.arrays;
        let bits = self.parameters.geometry().cells.pages_per_word_line();
        let place = (page % bits) as usize;
        let times = if bytes <= arrays.small_bytes { &arrays.read_small } else { &arrays.read };
        let mut time = match self.parameters.ftl.is_slc(superblock) {
            true => arrays.slc.read.as_nanos(),
            false => times[place].as_nanos(),
        };
        if arrays.read_variation > Nanos::ZERO || arrays.retries_per_million > 0 {
            let luck = mix(self.seed ^ u64::from(superblock) << 20 ^ u64::from(page / bits));
            time = vary(time, arrays.read_variation.as_nanos(), luck);
            if (luck >> 32) % 1_000_000 < u64::from(arrays.retries_per_million) {
                time += arrays.retry.as_nanos();
            }
        }
        Nanos::from_nanos(time.max(1))
    }

    /// Time of the array to program a superpage, by its place in the word line and its own variation.
    fn program_time(&self, superpage: Superpage) -> Nanos {
        let (arrays, geometry) = (&self.parameters.arrays, self.parameters.geometry());
        let place = match geometry.one_shot_pages {
            1 => superpage.index % geometry.cells.pages_per_word_line(),
            _ => 0,
        };
        let time = arrays.program[place as usize].as_nanos();
        let amplitude = arrays.program_variation.as_nanos();
        if amplitude == 0 {
            return Nanos::from_nanos(time);
        }
        let number = u64::from(superpage.superblock) << 20 ^ u64::from(superpage.index);
        Nanos::from_nanos(vary(time, amplitude, mix(!self.seed ^ number)).max(1))
    }
}
