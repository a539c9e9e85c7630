//! The contract for drives of every kind, and cases computed by hand.

use std::sync::Arc;

use chronodisk_sim::RandomStream;

use super::*;
use crate::{DeviceInfo, contract};

/// A small drive: two zones, slips, a defect; 6,000 rpm, so that a turn takes 10 ms.
pub(super) fn small() -> DiskParameters {
    let zone = |first_cylinder, last_cylinder, blocks_per_track| ZoneParameters {
        first_cylinder,
        last_cylinder,
        blocks_per_track,
        track_skew: Millionths::from_whole(7),
        cylinder_skew: Millionths::from_whole(13),
        ..ZoneParameters::default()
    };
    DiskParameters {
        geometry: GeometryParameters {
            surfaces: 3,
            cylinders: 20,
            track_order: TrackOrder::HeadsAscending,
            sparing: Sparing::None,
            spare_range_cylinders: 4,
            skew_unit: SkewUnit::Blocks,
            zones: vec![zone(0, 9, 100), zone(10, 19, 80)],
        },
        mechanics: MechanicsParameters {
            access: AccessTime::Full,
            seek: SeekCurve::Extracted(vec![
                SeekPoint { cylinders: 1, time: Picos::from_micros(1_000) },
                SeekPoint { cylinders: 101, time: Picos::from_micros(6_000) },
            ]),
            head_switch: Picos::from_micros(500),
            write_settle: Picos::from_micros(200),
            rotation: Rpm { numerator: 6_000, denominator: 1 },
            initial_phase: InitialPhase::Index,
        },
        controller: ControllerParameters { overhead_scale: Millionths::ONE, ..ControllerParameters::default() },
        cache: CacheParameters {
            segments: 4,
            write_segments: 2,
            segment_blocks: 64,
            water_by_request: true,
            read_ahead: ReadAhead::UntilFull,
            combine_writes: true,
            read_directly_to_buffer: true,
            immediate_partial_hits: true,
            read_hits_on_write_data: true,
            ..CacheParameters::default()
        },
        queue: QueueParameters { depth: 1, ..QueueParameters::default() },
        bus: BusParameters { read_block: Picos::from_micros(50), write_block: Picos::from_micros(50) },
        nonvolatile: None,
    }
}

pub(super) fn disk(parameters: &DiskParameters) -> Disk {
    let drive = Arc::new(Drive::new(parameters).expect("the parameters are valid"));
    let info = DeviceInfo {
        name: "small".to_owned(),
        capacity_sectors: drive.capacity_blocks(),
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: None,
        rotational: true,
    };
    Disk::new(info, drive, 0)
}

/// A drive whose every option is drawn.
fn random_parameters(seed: u64) -> DiskParameters {
    let mut stream = RandomStream::new(seed, "disk", "parameters");
    let mut parameters = small();
    let mut flag = || stream.chance(0.5);
    let control = &mut parameters.controller;
    for option in [
        &mut control.hold_bus_for_read,
        &mut control.hold_bus_for_write,
        &mut control.sneaky_full_read_hits,
        &mut control.sneaky_partial_read_hits,
        &mut control.sneaky_intermediate_read_hits,
        &mut control.write_prebuffering,
        &mut control.disconnect_write_if_seek,
    ] {
        *option = flag();
    }
    let cache = &mut parameters.cache;
    for option in [
        &mut cache.separate_write_segment,
        &mut cache.water_by_request,
        &mut cache.read_ahead_on_idle_hit,
        &mut cache.read_free_blocks,
        &mut cache.immediate_read,
        &mut cache.immediate_write,
        &mut cache.combine_writes,
        &mut cache.stop_read_ahead_in_block,
        &mut cache.write_hit_stops_read_ahead,
        &mut cache.immediate_partial_hits,
        &mut cache.almost_read_hits,
        &mut cache.read_hits_on_write_data,
    ] {
        *option = flag();
    }
    let mut pick = |count: u64| stream.below(count) as usize;
    cache.caching = [Caching::None, Caching::All, Caching::ReadsOnly][pick(3)];
    cache.segments = [2, 3, 8][pick(3)];
    cache.write_segments = [1, 2][pick(2)];
    cache.segment_blocks = [64, 128, 300][pick(3)];
    cache.low_water = [Millionths(0), Millionths(750_000)][pick(2)];
    cache.high_water = [Millionths(0), Millionths(500_000), Millionths::ONE][pick(3)];
    cache.read_ahead = [
        ReadAhead::None,
        ReadAhead::ToTrackEnd,
        ReadAhead::ToCylinderEnd,
        ReadAhead::UntilFull,
        ReadAhead::ToTrackEndOrNext,
    ][pick(5)];
    cache.minimum_read_ahead = [0, 5][pick(2)];
    cache.maximum_read_ahead = [0, 40][pick(2)];
    cache.read_ahead_over = [ReadAheadOver::DropDelivered, ReadAheadOver::Nothing, ReadAheadOver::Delivered][pick(3)];
    cache.fast_write = [FastWrite::Never, FastWrite::Sequential, FastWrite::Always][pick(3)];
    let control = &mut parameters.controller;
    control.never_disconnect = pick(5) == 0;
    control.preseek = [Preseek::AfterAcknowledgement, Preseek::DuringCompletion, Preseek::AfterMedia][pick(3)];
    control.extra_write_disconnect =
        [None, Some(ExtraDisconnect { inter_disconnect_delay: Picos::from_micros(300), ..ExtraDisconnect::default() })]
            [pick(2)];
    let overhead = [Picos::ZERO, Picos::from_micros(100)][pick(2)];
    control.per_request_overhead = overhead;
    control.read_miss = After { read: overhead, write: Picos::from_micros(70) };
    control.write_hit = After { read: Picos::from_micros(90), write: overhead };
    control.first_reselect = overhead;
    control.read_disconnect = After { read: overhead, write: overhead };
    control.read_completion = [Picos::ZERO, Picos::from_micros(20)][pick(2)];
    let bus = [Picos::ZERO, Picos::from_micros(20), Picos::from_micros(300)][pick(3)];
    parameters.bus = BusParameters { read_block: bus, write_block: bus };
    parameters.queue.depth = [1, 4, 64][pick(3)];
    parameters.queue.knowledge =
        [GeometryKnowledge::BlockNumbers, GeometryKnowledge::Zones, GeometryKnowledge::Exact][pick(3)];
    parameters.queue.scheduler = [
        Scheduler::Fcfs,
        Scheduler::Sstf,
        Scheduler::Look,
        Scheduler::CLook,
        Scheduler::Sptf,
        Scheduler::AgedSptf { weight: Millionths(200_000) },
    ][pick(6)];
    parameters.mechanics.access = match pick(8) {
        0 => AccessTime::AverageRotation,
        1 => AccessTime::Constant(Picos::from_micros(3_000)),
        _ => AccessTime::Full,
    };
    let geometry = &mut parameters.geometry;
    geometry.track_order =
        [TrackOrder::HeadsAscending, TrackOrder::SerpentineFromZone, TrackOrder::SerpentineFromDisk][pick(3)];
    geometry.sparing = Sparing::ALL[pick(11)];
    for zone in &mut geometry.zones {
        zone.spares = if geometry.sparing == Sparing::BlocksAtDiskEnd { 0 } else { 3 };
        // In tracks where tracks are spared.
        let [slip, replacement] = if geometry.sparing == Sparing::TracksAtZoneEnd { [9, 28] } else { [90, 200] };
        zone.slips = vec![4, slip];
        zone.defects = vec![Defect { original: 7, replacement }];
    }
    parameters
}

#[test]
fn drives_of_every_kind_keep_the_contract() {
    for seed in 0..u64::from(contract::cases(48)) {
        let parameters = random_parameters(seed);
        contract::check(&format!("disk-{seed}"), 12, &|_| Box::new(disk(&parameters)));
    }
}
