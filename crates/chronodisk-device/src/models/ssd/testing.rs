//! Parts for tests.

use std::sync::Arc;

use chronodisk_sim::Nanos;

use super::ftl::{Allocation, CollectorParameters, Ftl, FtlParameters, Mapping, VictimPolicy, WearLevelling};
use super::geometry::{CellKind, Geometry};
use super::parameters::FrontParameters;

/// Two dies with few small superblocks: 24 units in a superpage, 96 in a superblock.
pub(super) fn small_parameters() -> FtlParameters {
    let geometry = Geometry {
        channels: 2,
        chips_per_channel: 1,
        dies_per_chip: 1,
        planes_per_die: 2,
        blocks_per_plane: 24,
        pages_per_block: 12,
        page_bytes: 16_384,
        unit_bytes: 4_096,
        cells: CellKind::Tlc,
        one_shot_pages: 3,
    };
    FtlParameters {
        geometry,
        logical_units: geometry.slots() / 100 * 66,
        allocation: Allocation::Dynamic,
        collector: CollectorParameters {
            policy: VictimPolicy::Greedy,
            start_below: 3,
            urgent_below: 2,
            preemptible: true,
        },
        wear: WearLevelling { dynamic: true, move_at_difference: None },
        mapping: Mapping::Ideal,
        slc_cache: None,
    }
}

/// An erased drive.
pub(super) fn small_ftl() -> Ftl {
    Ftl::new(Arc::new(small_parameters()), 1)
}

/// A link of 1 byte per nanosecond, commands of one queue at a time, and 10 ns of the output stage for each unit.
pub(super) const SLOW_LINK: FrontParameters = FrontParameters {
    queues: 2,
    fetch_limit: 1,
    burst: 1,
    submission: Nanos::ZERO,
    completion: Nanos::from_nanos(7),
    link_rate: 1_000_000_000,
    half_duplex: false,
    packet_bytes: 4_096,
    packet_overhead_bytes: 0,
    whole_reads: false,
    processors: 1,
    read_processing: Nanos::from_nanos(100),
    write_processing: Nanos::ZERO,
    unit_processing: Nanos::ZERO,
    output_command: Nanos::ZERO,
    output_unit: Nanos::from_nanos(10),
    output_memory: false,
    read_latency: Nanos::from_nanos(50),
    write_latency: Nanos::ZERO,
    write_jitter: Nanos::ZERO,
};
