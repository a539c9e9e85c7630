//! A shingled disk, kind `shingled-disk`, which the drive manages unless `management` is "host" (see
//! `host_managed`): tracks overlap like shingles, so that data can't be changed in
//! place. The drive hides this from the host.
//!
//! After the behaviour of two drives, measured by Aghayev and Desnoyers ("Skylight: A Window on Shingled Disk
//! Operation", FAST 2015):
//! - The medium is divided into *bands* with a fixed place for every address (static mapping), and a *persistent cache*
//!   at its beginning, the outer diameter.
//! - Writes are appended to the cache, a log, in order of arrival, and complete once they are in the cache.
//! - Reads are assembled from bands and cache.
//! - *Cleaning* takes the oldest data in the cache, reads their whole band and all cached data of that band, writes the
//!   result to a scratch area of the cache (so that no crash loses it), and then writes it over the band. A drive
//!   cleans band after band in two cases: once it has been idle for `clean-after` (the drives' aggressive cleaning,
//!   first in, first out), and while its cache has no room for a write, which then waits.
//! - The cache's capacity is limited in blocks and in entries of its map, one entry per write.
//! - A sequential stream bypasses the cache: once a host has written `stream-after` in sequence, its writes go straight
//!   to the bands, from the beginning of the next band, until it seeks.
//!
//! The disk below may be of any kind, with a cache and a queue of its own. Cleaning proceeds in steps of `clean-step`,
//! one at a time. An idle-time cleaning pauses when the host submits a request.
//!
//! Not modelled: the guard of a stream that breaks off in the middle of a band (the track behind it), the writes of the
//! cache's map, and defects. Discards are not supported; a write of zeros is a write.
//!
//! ```toml
//! kind = "shingled-disk"
//! member = "first-disk"         # the disk whose tracks are shingled
//! logical-block = "4 KiB"       # unit of the cache's map
//! cache = "20 GB"
//! cache-map-entries = 200000
//! band = "30 MiB"
//! clean-after = "1 s"
//! clean-step = "2 MiB"          # the default
//! stream-after = "8 MiB"        # the default
//! scratch = true                # the default: cleaning writes a band twice
//! ```

mod cleaning;
mod host_managed;
mod log;
mod policy;

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use crate::composite::{Composite, Members};
use crate::fields::{Fields, ProfileError};
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::quantity::Bytes;
use crate::{BuildOptions, DeviceInfo, DeviceModel, footprint};
use log::Log;
use policy::Shingled;

/// Layout on the disk below, in logical blocks of the device.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Sectors of 512 bytes in a block.
    block_sectors: u32,
    /// Blocks of the cache's log, from the disk's beginning.
    cache_blocks: u64,
    /// Most extents of the log.
    entries: u64,
    /// Blocks of the scratch area behind the log; zero without one.
    scratch_blocks: u64,
    band_blocks: u64,
    bands: u64,
    /// Blocks of a step of cleaning.
    step_blocks: u64,
    /// Consecutive blocks after which writes count as a stream.
    stream_blocks: u64,
    clean_after: Nanos,
}

impl Layout {
    /// The disk's block at a position of the log.
    fn cache_place(&self, position: u64) -> u64 {
        position % self.cache_blocks
    }

    /// The sectors of blocks.
    fn sectors(&self, block: u64, blocks: u64) -> Range<u64> {
        let sectors = u64::from(self.block_sectors);
        block * sectors..(block + blocks) * sectors
    }

    /// The disk's block at the fixed place of an address.
    fn band_place(&self, block: u64) -> u64 {
        self.cache_blocks + self.scratch_blocks + block
    }
}

/// Sizes in the profile.
struct Sizes {
    cache: u64,
    entries: u32,
    band: u64,
    step: u64,
    stream: u64,
    clean_after: Nanos,
    scratch: bool,
    disk: u64,
}

impl Sizes {
    /// The layout in blocks of `block` bytes; `None` if a size is not a multiple of it.
    fn layout(&self, block: u64) -> Option<Layout> {
        let whole = |bytes: u64| (bytes > 0 && bytes.is_multiple_of(block)).then_some(bytes / block);
        let (cache, band) = (whole(self.cache)?, whole(self.band)?);
        let scratch_blocks = if self.scratch { band } else { 0 };
        let bands = (self.disk / block).checked_sub(cache)? / band;
        Some(Layout {
            block_sectors: (block / SECTOR_BYTES) as u32,
            cache_blocks: cache.checked_sub(scratch_blocks)?,
            entries: self.entries.into(),
            scratch_blocks,
            band_blocks: band,
            bands,
            step_blocks: whole(self.step)?,
            stream_blocks: whole(self.stream)?,
            clean_after: self.clean_after,
        })
    }
}

/// Kind `shingled-disk`: the keys of this module, or the keys of a host-managed disk.
pub(crate) fn parse(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    match fields.choice_or("management", &[("drive", false), ("host", true)], false)? {
        true => host_managed::parse(fields, members),
        false => parse_drive_managed(fields, members),
    }
}

fn parse_drive_managed(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    let member = members.one(fields, "member")?;
    let Bytes(cache) = fields.positive("cache")?;
    let entries = fields.count("cache-map-entries", 16..=MOST_ENTRIES)?;
    let Bytes(band) = fields.positive("band")?;
    let clean_after = fields.positive("clean-after")?;
    let Bytes(step) = fields.quantity_or("clean-step", Bytes(2 << 20))?;
    let Bytes(stream) = fields.quantity_or("stream-after", Bytes(8 << 20))?;
    let scratch = fields.flag_or("scratch", true)?;
    let sizes = Sizes { cache, entries, band, step, stream, clean_after, scratch, disk: member.capacity_bytes() };
    for (key, bytes) in [("cache", cache), ("band", band), ("clean-step", step), ("stream-after", stream)] {
        if bytes == 0 || !bytes.is_multiple_of(LARGEST_BLOCK_BYTES) {
            return Err(fields.error_at(key, format!("expected a multiple of {}", Bytes(LARGEST_BLOCK_BYTES))));
        }
    }
    if band > LARGEST_BAND_BYTES {
        return Err(fields.error_at("band", format!("expected at most {}", Bytes(LARGEST_BAND_BYTES))));
    }
    if cache / band < 3 {
        return Err(fields.error_at("cache", format!("expected at least three bands, {}", Bytes(3 * band))));
    }
    if cache > LARGEST_CACHE_BYTES {
        return Err(fields.error_at("cache", format!("expected at most {}", Bytes(LARGEST_CACHE_BYTES))));
    }
    // Counted in the largest blocks, so that the capacity is valid for any logical block.
    let capacity_bytes = sizes.layout(LARGEST_BLOCK_BYTES).map_or(0, |layout| layout.bands) * band;
    if capacity_bytes == 0 {
        let disk = Bytes(sizes.disk);
        return Err(fields.error_at("cache", format!("with it there is no room for a band on a disk of {disk}")));
    }
    let below = Arc::clone(&member);
    let sizes = Arc::new(sizes);
    let (measured, disk_memory_bytes) = (Arc::clone(&sizes), member.memory_bytes_max());
    let memory = move |info: &DeviceInfo| {
        let layout = measured.layout(info.logical_block_bytes.into());
        let log_bytes = layout.map_or(u64::MAX, |layout| Log::bytes_max(&layout));
        footprint::sum([footprint::DEVICE_BYTES, disk_memory_bytes, log_bytes])
    };
    let make = move |info: DeviceInfo, seed: u64| -> Box<dyn DeviceModel> {
        let disk = below.build(&BuildOptions { seed, ..BuildOptions::default() }).expect("its own capacity fits");
        let layout =
            sizes.layout(info.logical_block_bytes.into()).expect("all sizes are multiples of the largest block");
        let info = DeviceInfo { volatile_cache: disk.info().volatile_cache, discard_unit_sectors: None, ..info };
        let log = Log::new(layout);
        Box::new(Composite::new(info, Members::new(vec![disk], None), Shingled::new(Arc::new(layout), log)))
    };
    Ok(Blueprint::new(memory, make).sized(capacity_bytes).over(&[member]))
}

/// The largest logical block that a profile can have.
const LARGEST_BLOCK_BYTES: u64 = 64 << 10;
/// Bounds the work of cleaning, which visits each block of a band.
const LARGEST_BAND_BYTES: u64 = 1 << 30;
/// Positions in the cache are counted in 32 bits.
const LARGEST_CACHE_BYTES: u64 = 1 << 40;
const MOST_ENTRIES: u32 = 100_000_000;

#[cfg(test)]
mod tests;
