//! Parts for tests.

use std::sync::Arc;

use super::ftl::{Allocation, CollectorParameters, Ftl, FtlParameters, Mapping, VictimPolicy, WearLevelling};
use super::geometry::{CellKind, Geometry};

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
