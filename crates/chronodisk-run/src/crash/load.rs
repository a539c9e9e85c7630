//! The history of a kept recording.

use std::path::Path;

use chronodisk_crash::{DeviceFacts, Effect, History, HistoryBuilder};
use chronodisk_sim::SECTOR_BYTES;
use chronodisk_store::{Change, RecordedEntry, Recording};

use crate::failure::Failure;
use crate::memory::host_memory_bytes;

/// A history, and the capacity of its device.
pub(super) struct Loaded {
    pub history: History,
    pub capacity_bytes: u64,
}

/// Reads a recording into memory, at most a quarter of the host's.
pub(super) fn load(path: &Path, physical_block_bytes: u32, write_back: bool) -> Result<Loaded, Failure> {
    let recording = Recording::open(path).map_err(Failure::usage)?;
    let device = recording.device();
    let block_sectors = device.logical_block_bytes / SECTOR_BYTES as u32;
    let torn_sectors = (physical_block_bytes / SECTOR_BYTES as u32).max(block_sectors);
    let mut builder = HistoryBuilder::new(DeviceFacts { block_sectors, torn_sectors, write_back });
    let (mut effect, mut used_bytes) = (Effect::Nothing, 0);
    let most_bytes = host_memory_bytes() / 4;
    for entry in recording {
        match entry.map_err(Failure::usage)? {
            RecordedEntry::Change(change) => effect = effect_of(change),
            RecordedEntry::Arrival { request, at, failed } => {
                let effect = std::mem::replace(&mut effect, Effect::Nothing);
                let effect = match &effect {
                    Effect::Bytes(bytes) if bytes.len() as u64 != request.len_bytes() => Effect::Nothing,
                    _ if failed => Effect::Nothing,
                    _ => effect,
                };
                if let Effect::Bytes(bytes) = &effect {
                    used_bytes += bytes.len() as u64;
                }
                builder.arrived(request, at, effect);
            }
            RecordedEntry::Completion { id, at, status } => builder.completed(id, at, status),
        }
        if used_bytes > most_bytes {
            let what = format!("{}: the writes have more than {most_bytes} bytes", path.display());
            return Err(Failure::host(what).help("a quarter of this host's memory holds them; let CMD write less"));
        }
    }
    Ok(Loaded { history: builder.finish(), capacity_bytes: device.capacity_bytes })
}

fn effect_of(change: Change) -> Effect {
    match change {
        Change::Write(_, bytes) => Effect::Bytes(bytes),
        Change::WriteZeroes(..) | Change::ReserveZeroes(..) | Change::Discard(..) => Effect::Zeros,
        Change::Flush => Effect::Nothing,
    }
}
