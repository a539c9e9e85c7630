//! Simple models and the disk allocate no memory once they have reached their largest number of requests.

mod counting;

use std::sync::Arc;

use chronodisk_device::disk::*;
use chronodisk_device::{BuildOptions, DeviceInfo, DeviceModel, Profile};
use chronodisk_sim::{Completion, Op, RandomStream, Request};
use counting::allocations;

/// Serves `count` requests at a constant depth.
fn serve(
    device: &mut dyn DeviceModel,
    stream: &mut RandomStream,
    depth: u32,
    count: u64,
    completed: &mut Vec<Completion>,
) {
    let capacity = device.info().capacity_sectors;
    let mut submitted = 0;
    while submitted < count || device.outstanding() > 0 {
        while submitted < count && device.outstanding() < depth {
            let sectors = 8 * (1 + stream.below(30));
            let op = [Op::Read, Op::Write, Op::WriteZeroes, Op::Flush][stream.below(4) as usize];
            let (lba, sectors) =
                if op == Op::Flush { (0, 0) } else { (8 * stream.below((capacity - 400) / 8), sectors) };
            device.submit(Request::new(submitted, op, lba, sectors as u32));
            submitted += 1;
        }
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, completed);
        completed.clear();
    }
}

/// A drive with a queue, read-ahead and a write cache.
fn disk(scheduler: Scheduler) -> Box<dyn DeviceModel> {
    let zone = ZoneParameters { last_cylinder: 999, blocks_per_track: 200, ..ZoneParameters::default() };
    let seek = [1, 1_000].map(|n| SeekPoint { cylinders: n, time: Picos::from_micros(1_000 + 8 * i64::from(n)) });
    let parameters = DiskParameters {
        geometry: GeometryParameters {
            surfaces: 4,
            cylinders: 1_000,
            track_order: TrackOrder::HeadsAscending,
            sparing: Sparing::None,
            spare_range_cylinders: 0,
            skew_unit: SkewUnit::Blocks,
            zones: vec![zone],
        },
        mechanics: MechanicsParameters {
            access: AccessTime::Full,
            seek: SeekCurve::Extracted(seek.to_vec()),
            head_switch: Picos::from_micros(500),
            write_settle: Picos::from_micros(200),
            rotation: Rpm { numerator: 10_000, denominator: 1 },
            initial_phase: InitialPhase::Index,
        },
        controller: ControllerParameters {
            interface_rate: Some(102_400_000),
            queue_depth: 16,
            scheduler,
            segments: 8,
            segment_blocks: 500,
            read_ahead_blocks: 500,
            write_buffer_blocks: 2_000,
            write_ranges: 16,
            write_cache: true,
            age_bound: Picos::from_micros(500_000),
            longest_pass: Picos::from_micros(100_000),
            ..ControllerParameters::default()
        },
        host_bus: None,
        nonvolatile: None,
    };
    let drive = Arc::new(Drive::new(&parameters).expect("the parameters are valid"));
    let info = DeviceInfo {
        name: "disk".to_owned(),
        capacity_sectors: drive.capacity_blocks(),
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: true,
        discard_unit_sectors: None,
        rotational: true,
        zones: None,
        torn_write_sectors: None,
    };
    Box::new(Disk::new(info, drive, 0))
}

/// One test, because the counter belongs to the whole process.
#[test]
fn nothing_is_allocated_in_the_steady_state() {
    let built = |name: &str| Profile::find(name).unwrap().build(&BuildOptions::default()).unwrap();
    let devices = [
        ("null", built("null")),
        ("constant", built("constant-1ms")),
        ("table", built("wu-tsai-baseline")),
        ("ssd", built("samsung-970-pro")),
        ("disk, FCFS", disk(Scheduler::Fcfs)),
        ("disk, SPTF", disk(Scheduler::Sptf)),
    ];
    for (name, mut device) in devices {
        let mut stream = RandomStream::new(1, name, "allocations");
        let mut completed = Vec::with_capacity(64);
        serve(device.as_mut(), &mut stream, 24, 5_000, &mut completed);
        let before = allocations();
        serve(device.as_mut(), &mut stream, 24, 5_000, &mut completed);
        let after = allocations();
        assert_eq!(after - before, 0, "{name} allocates while it serves");
    }
    // The counter must be able to see something.
    let before = allocations();
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert!(allocations() > before);
}
