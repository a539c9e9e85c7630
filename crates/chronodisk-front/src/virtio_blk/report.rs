//! Answers about zones: reports, and the sector at which an append was written.
//!
//! VIRTIO 1.3, section 5.2.6.

use chronodisk_device::{ZoneCondition, ZoneMap, ZoneReport};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ZS_CLOSED, VIRTIO_BLK_ZS_EMPTY, VIRTIO_BLK_ZS_EOPEN, VIRTIO_BLK_ZS_FULL, VIRTIO_BLK_ZS_IOPEN,
    VIRTIO_BLK_ZS_NOT_WP, VIRTIO_BLK_ZT_CONV, VIRTIO_BLK_ZT_SWR,
};
use vm_memory::GuestMemory;

use super::execute::{ExecuteError, scatter};
use super::{BlkRequest, Segment};

/// Size of `struct virtio_blk_zone_report` without its zones, and of `struct virtio_blk_zone_descriptor`.
const ENTRY_BYTES: usize = 64;

/// Writes the zones from the one with the request's sector on, as far as the request has room for them; returns the
/// bytes written. The request has room for a header.
pub(crate) fn answer_report(
    request: &BlkRequest,
    zones: &ZoneMap,
    memory: &impl GuestMemory,
) -> Result<u32, ExecuteError> {
    let room_bytes: u64 = request.segments.iter().map(|segment| u64::from(segment.len_bytes)).sum();
    let first = zones.zone_of(request.sector);
    let room = (room_bytes / ENTRY_BYTES as u64).saturating_sub(1).min(u64::from(zones.count()));
    let end = first.saturating_add(room as u32).min(zones.count());
    let mut bytes = vec![0; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&u64::from(end.saturating_sub(first)).to_le_bytes());
    for report in (first..end).filter_map(|zone| zones.report(zone)) {
        bytes.extend(descriptor(&report, zones.layout().size_sectors));
    }
    scatter(&bytes, &request.segments, memory)
}

fn descriptor(report: &ZoneReport, size_sectors: u64) -> [u8; ENTRY_BYTES] {
    let state = match report.condition {
        ZoneCondition::Empty => VIRTIO_BLK_ZS_EMPTY,
        ZoneCondition::ImplicitlyOpen => VIRTIO_BLK_ZS_IOPEN,
        ZoneCondition::ExplicitlyOpen => VIRTIO_BLK_ZS_EOPEN,
        ZoneCondition::Closed => VIRTIO_BLK_ZS_CLOSED,
        ZoneCondition::Full => VIRTIO_BLK_ZS_FULL,
        ZoneCondition::NoPointer => VIRTIO_BLK_ZS_NOT_WP,
    };
    let kind = match report.condition {
        ZoneCondition::NoPointer => VIRTIO_BLK_ZT_CONV,
        _ => VIRTIO_BLK_ZT_SWR,
    };
    // Drivers expect the pointer of a full zone behind it.
    let pointer = match report.condition {
        ZoneCondition::Full => report.start + size_sectors,
        _ => report.start + report.written_sectors,
    };
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&report.capacity_sectors.to_le_bytes());
    bytes[8..16].copy_from_slice(&report.start.to_le_bytes());
    bytes[16..24].copy_from_slice(&pointer.to_le_bytes());
    bytes[24] = kind as u8;
    bytes[25] = state as u8;
    bytes
}

/// Writes the sector at which an append was written.
pub(crate) fn write_sector(
    sector: u64,
    written_at: &[Segment],
    memory: &impl GuestMemory,
) -> Result<u32, ExecuteError> {
    scatter(&sector.to_le_bytes(), written_at, memory)
}
