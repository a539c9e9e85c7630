//! The contract for drives of every kind, and cases computed by hand.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, RandomStream, Request};

use super::*;
use crate::models::testing::{closed_loop, complete, counter, tangle};
use crate::{DeviceInfo, DeviceModel, contract};

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
        zones: None,
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
    for seed in 0..u64::from(contract::cases(24)) {
        let parameters = random_parameters(seed);
        contract::check(&format!("disk-{seed}"), 8, &|_| Box::new(disk(&parameters)));
    }
}

/// A write that appends to another holds the link until blocks of the other are on the medium, which the arm writes
/// only after a third write's appended blocks.
#[test]
fn a_link_that_is_held_waits_for_the_blocks_that_make_room() {
    let parameters = random_parameters(1_366);
    contract::check("disk-1366", 8, &|_| Box::new(disk(&parameters)));
}

#[test]
fn queued_requests_that_overlap_do_not_stand_in_each_others_way() {
    let mut knots = Vec::new();
    for seed in 0..u64::from(contract::cases(200)) {
        let mut device = disk(&random_parameters(seed));
        tangle("random", &mut device, seed);
        if counter(&device, "started-over") > 0 {
            knots.push(seed);
        }
    }
    // Of drives whose options no drive has together, hardly any ties a knot.
    assert!(knots.len() as u32 <= contract::cases(200).div_ceil(200), "{knots:?}");
}

#[test]
fn a_nonvolatile_cache_keeps_the_contract() {
    let memory = NonvolatileParameters { blocks: 500, access: Picos::from_micros(40) };
    for seed in 0..4 {
        let parameters = DiskParameters { nonvolatile: Some(memory), ..random_parameters(seed) };
        contract::check(&format!("nonvolatile-{seed}"), contract::cases(32), &|_| model_of(&parameters));
    }
}

fn model_of(parameters: &DiskParameters) -> Box<dyn DeviceModel> {
    let drive = Arc::new(Drive::new(parameters).expect("the parameters are valid"));
    let info = disk(parameters).info().clone();
    model(info, drive, 0)
}

#[test]
fn writes_to_a_nonvolatile_cache_do_not_wait_for_the_disk_and_reads_go_first() {
    let memory = NonvolatileParameters { blocks: 4_000, access: Picos::from_micros(40) };
    let mut device = model_of(&DiskParameters { nonvolatile: Some(memory), ..small() });
    // Eight blocks at 50 us and the memory.
    assert_eq!(complete(device.as_mut(), Request::new(0, Op::Write, 4_000, 8)), Nanos::from_micros(440));
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 4_000, 8)), Nanos::from_micros(440));
    for id in 0..100 {
        let taken = complete(device.as_mut(), Request::new(id, Op::Write, id * 40, 8));
        assert!(taken < Nanos::from_millis(1), "{taken}");
    }
    // Not behind a hundred writes: one on its way, its own positioning, a turn each.
    let taken = complete(device.as_mut(), Request::new(200, Op::Read, 5_000, 8));
    assert!(taken < Nanos::from_millis(40), "{taken}");
}

#[test]
fn a_read_takes_overhead_seek_rotation_and_transfer() {
    let mut parameters = small();
    parameters.controller.read_miss = After { read: Picos::from_micros(300), write: Picos::ZERO };
    let mut device = disk(&parameters);
    // Track 1 of cylinder 0 begins at 7 of 100 blocks: the head switch ends at 0.8 ms, the block begins at 10.7 ms of
    // 10 ms a turn; 0.1 ms later it has passed and needs the bus for 0.05 ms.
    let taken = complete(&mut device, Request::new(0, Op::Read, 100, 1));
    assert_eq!(taken, Nanos::from_micros(10_850));
}

#[test]
fn sequential_hits_come_from_the_buffer() {
    let mut device = disk(&small());
    complete(&mut device, Request::new(0, Op::Read, 0, 8));
    crate::advance(&mut device, Nanos::from_millis(50), &mut Vec::new());
    assert_eq!(complete(&mut device, Request::new(1, Op::Read, 8, 8)), Nanos::from_micros(400));
}

#[test]
fn positioning_aware_scheduling_beats_the_others() {
    let mean = |scheduler| {
        let mut parameters = small();
        parameters.cache.read_ahead = ReadAhead::None;
        parameters.queue =
            QueueParameters { depth: 16, scheduler, knowledge: GeometryKnowledge::Exact, ..QueueParameters::default() };
        let mut stream = RandomStream::new(1, "disk", "schedulers");
        let outcome =
            closed_loop(&mut disk(&parameters), 16, 1_000, |id| Request::new(id, Op::Read, stream.below(5_000), 8));
        outcome.response_times.iter().map(|time| time.as_nanos()).sum::<u64>() / 1_000
    };
    let [fcfs, sstf, sptf] = [Scheduler::Fcfs, Scheduler::Sstf, Scheduler::Sptf].map(mean);
    assert!(sptf < sstf && sstf < fcfs, "SPTF {sptf} ns, SSTF {sstf} ns, FCFS {fcfs} ns");
}
