//! Moves a band from the cache to its place, one disk request after the other.

use std::ops::Range;

use super::Layout;
use super::log::Log;

/// A band that is being cleaned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cleaning {
    /// First address of the band.
    first: u64,
    /// Data appended from here on stay in the cache.
    head: u64,
    stage: Stage,
    /// The next block of the stage, counted from the band's first.
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Reads the band at its place.
    ReadBand,
    /// Reading the band's blocks in the cache.
    ReadCache,
    /// Writing the whole to the scratch area.
    WriteScratch,
    /// Writing it to its place.
    WriteBand,
}

/// The disk's request for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) write: bool,
    /// Blocks of the disk.
    pub(super) place: u64,
    pub(super) blocks: u64,
}

impl Cleaning {
    /// Begins to clean the band with this address, including the data that `log` has of it now.
    pub(super) fn new(layout: &Layout, log: &Log, block: u64) -> Self {
        let first = block / layout.band_blocks * layout.band_blocks;
        Cleaning { first, head: log.head(), stage: Stage::ReadBand, next: 0 }
    }

    /// Blocks of the band.
    pub(super) fn band(&self, layout: &Layout) -> Range<u64> {
        self.first..self.first + layout.band_blocks
    }

    /// Data appended from this position of the log on were not cleaned.
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    /// The next request to the disk. `None` when the band is at its place.
    pub(super) fn step(&mut self, layout: &Layout, log: &Log) -> Option<Step> {
        loop {
            let left = layout.band_blocks - self.next;
            let blocks = left.min(layout.step_blocks);
            match self.stage {
                _ if left == 0 => {
                    self.next = 0;
                    self.stage = match self.stage {
                        Stage::ReadBand => Stage::ReadCache,
                        Stage::ReadCache if layout.scratch_blocks > 0 => Stage::WriteScratch,
                        Stage::ReadCache | Stage::WriteScratch => Stage::WriteBand,
                        Stage::WriteBand => return None,
                    };
                }
                Stage::ReadBand => return Some(self.advance(false, layout.band_place(self.first), blocks)),
                Stage::WriteScratch => return Some(self.advance(true, layout.cache_blocks, blocks)),
                Stage::WriteBand => return Some(self.advance(true, layout.band_place(self.first), blocks)),
                Stage::ReadCache => {
                    let block = self.first + self.next;
                    let (place, run) = log.run(block, block + blocks);
                    self.next += run;
                    if let Some(place) = place {
                        return Some(Step { write: false, place, blocks: run });
                    }
                }
            }
        }
    }

    fn advance(&mut self, write: bool, place: u64, blocks: u64) -> Step {
        let step = Step { write, place: place + self.next, blocks };
        self.next += blocks;
        step
    }
}
