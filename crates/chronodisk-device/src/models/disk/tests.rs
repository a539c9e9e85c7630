//! The contract for drives of every kind, and cases computed by hand.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, RandomStream, Request};

use super::nonvolatile::NonvolatileDisk;
use super::*;
use crate::models::testing::{closed_loop, complete, tangle};
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
        controller: ControllerParameters {
            queue_depth: 1,
            scheduler: Scheduler::Fcfs,
            segments: 4,
            segment_blocks: 64,
            read_ahead_blocks: 64,
            write_buffer_blocks: 128,
            write_ranges: 2,
            age_bound: Picos::from_micros(500_000),
            longest_pass: Picos::from_micros(100_000),
            ..ControllerParameters::default()
        },
        host_bus: Some(HostBusParameters {
            read_block: Picos::from_micros(50),
            write_block: Picos::from_micros(50),
            connected: true,
        }),
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
        torn_write_sectors: None,
    };
    Disk::new(info, drive, 0)
}

/// A drive whose every option is drawn.
pub(super) fn random_parameters(seed: u64) -> DiskParameters {
    let mut stream = RandomStream::new(seed, "disk", "parameters");
    let mut parameters = small();
    let mut flag = || stream.chance(0.5);
    let control = &mut parameters.controller;
    for option in [
        &mut control.store_and_forward,
        &mut control.preseek,
        &mut control.read_free_blocks,
        &mut control.read_hits_on_write_data,
        &mut control.write_cache,
        &mut control.immediate_read,
        &mut control.immediate_write,
    ] {
        *option = flag();
    }
    let mut pick = |count: u64| stream.below(count) as usize;
    control.interface_rate = [None, Some(25_600_000)][pick(2)];
    control.segments = [1, 2, 8][pick(3)];
    control.segment_blocks = [64, 128, 300][pick(3)];
    control.read_ahead_blocks = [0, 40, 64][pick(3)];
    control.read_ahead_to = [ReadAheadTo::ReadAhead, ReadAheadTo::TrackEnd, ReadAheadTo::TrackEndOrNext][pick(3)];
    control.write_buffer_blocks = [32, 128, 600][pick(3)];
    control.write_ranges = [1, 2, 16][pick(3)];
    control.queue_depth = [1, 4, 64][pick(3)];
    control.scheduler = [
        Scheduler::Fcfs,
        Scheduler::Sstf,
        Scheduler::Look,
        Scheduler::CLook,
        Scheduler::Sptf,
        Scheduler::AgedSptf { weight: Millionths(200_000) },
    ][pick(6)];
    if !control.store_and_forward {
        control.read_water_mark = [Millionths(0), Millionths(500_000), Millionths::ONE][pick(3)];
    }
    let overhead = [Picos::ZERO, Picos::from_micros(100)][pick(2)];
    control.read_miss = After { read: overhead, write: Picos::from_micros(70) };
    control.write = After { read: Picos::from_micros(90), write: overhead };
    control.reselect = overhead;
    control.write_data_delay = [Picos::ZERO, Picos::from_micros(25)][pick(2)];
    control.read_completion = [Picos::ZERO, Picos::from_micros(20)][pick(2)];
    control.minimum_write_seek = [Picos::ZERO, Picos::from_micros(600)][pick(2)];
    control.extra_write_disconnect =
        [None, Some(ExtraDisconnect { data_delay: Picos::from_micros(300), ..ExtraDisconnect::default() })][pick(2)];
    control.age_bound = [Picos::ZERO, Picos::from_micros(30_000), Picos::from_micros(500_000)][pick(3)];
    let bus = [Picos::ZERO, Picos::from_micros(20), Picos::from_micros(300)][pick(3)];
    parameters.host_bus = Some(HostBusParameters { read_block: bus, write_block: bus, connected: pick(2) == 0 });
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

#[test]
fn requests_that_overlap_do_not_stand_in_each_others_way() {
    for seed in 0..u64::from(contract::cases(200)) {
        tangle("random", &mut disk(&random_parameters(seed)), seed);
    }
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
    let memory = parameters.nonvolatile.expect("a drive with a non-volatile cache");
    Box::new(NonvolatileDisk::new(disk(parameters), memory))
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
fn a_write_that_exceeds_the_nonvolatile_cache_completes_on_the_medium() {
    let memory = NonvolatileParameters { blocks: 16, access: Picos::from_micros(40) };
    let mut parameters = DiskParameters { nonvolatile: Some(memory), ..small() };
    parameters.controller.write_cache = true;
    let mut device = model_of(&parameters);
    device.submit(Request::new(0, Op::Write, 4_000, 17));
    device.submit(Request::new(1, Op::Write, 100, 8));
    assert_eq!(device.volatile(), Some(vec![100..108, 4_000..4_017]));
    crate::advance(device.as_mut(), Nanos::from_millis(1), &mut Vec::new());
    let at_disk = std::iter::once(4_000..4_017).collect();
    assert_eq!(device.volatile(), Some(at_disk), "the memory has the other write");
    let mut completed = Vec::new();
    while completed.is_empty() {
        device.step(Nanos::MAX, &mut completed);
    }
    // The drive's own cache would take the 17 blocks in less than a millisecond, and lose them.
    let Some((_, dirty)) =
        crate::probed(|sink| device.probe(sink)).into_iter().find(|(name, _)| name == "dirty [blocks]")
    else {
        panic!("a drive tells its dirty blocks");
    };
    assert!(completed[0].at > Nanos::from_millis(5) && dirty == 0.0, "{} {dirty}", completed[0].at);
    assert_eq!(device.volatile(), Some(Vec::new()));
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
        parameters.controller =
            ControllerParameters { read_ahead_blocks: 0, queue_depth: 16, scheduler, ..parameters.controller };
        let mut stream = RandomStream::new(1, "disk", "schedulers");
        let outcome =
            closed_loop(&mut disk(&parameters), 16, 1_000, |id| Request::new(id, Op::Read, stream.below(5_000), 8));
        outcome.response_times.iter().map(|time| time.as_nanos()).sum::<u64>() / 1_000
    };
    let [fcfs, sstf, sptf] = [Scheduler::Fcfs, Scheduler::Sstf, Scheduler::Sptf].map(mean);
    assert!(sptf < sstf && sstf < fcfs, "SPTF {sptf} ns, SSTF {sstf} ns, FCFS {fcfs} ns");
}
