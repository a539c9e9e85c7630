//! Requests to a zoned device.

mod common;

use chronodisk_device::ZoneLayout;
use chronodisk_front::BlkConfig;
use chronodisk_front::mock::{Descriptor, Layout, MockRequest, TestBench, UsedEntry, WRITE, blk_header};
use chronodisk_front::virtio_blk::BadRequestKind;
use chronodisk_sim::{Op, Status};
use common::{OK, UNSUPPORTED, bench, config, pattern, store};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES, VIRTIO_BLK_T_ZONE_CLOSE,
    VIRTIO_BLK_T_ZONE_FINISH, VIRTIO_BLK_T_ZONE_OPEN, VIRTIO_BLK_T_ZONE_REPORT, VIRTIO_BLK_T_ZONE_RESET,
    VIRTIO_BLK_T_ZONE_RESET_ALL,
};

const INVALID_COMMAND: u8 = 3;
const UNALIGNED_WRITE_POINTER: u8 = 4;
const OPEN_RESOURCE: u8 = 5;
const ACTIVE_RESOURCE: u8 = 6;

/// Eight zones of 1,024 sectors each; the first 800 can be written.
fn zoned() -> BlkConfig {
    BlkConfig {
        logical_block_bytes: 4096,
        discard_unit_sectors: None,
        write_zeroes: false,
        zones: Some(ZoneLayout {
            size_sectors: 1024,
            capacity_sectors: 800,
            most_open: 2,
            most_active: 3,
            conventional: 0,
        }),
        ..config()
    }
}

fn zoned_bench() -> TestBench {
    let mut bench = TestBench::new(zoned(), store());
    bench.set_up();
    bench
}

/// Submits one request, completes all that arrived, and returns the status byte.
fn status_of(bench: &mut TestBench, kind: u32, sector: u64, data: Option<&[u8]>) -> u8 {
    let lengths: Vec<u32> = data.iter().map(|data| data.len() as u32).collect();
    let request = bench.driver.submit(kind, sector, &lengths, data, Layout::Direct);
    finish(bench, &request)
}

fn finish(bench: &mut TestBench, request: &MockRequest) -> u8 {
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    bench.driver.take_used();
    bench.driver.status(request)
}

fn write(bench: &mut TestBench, sector: u64, blocks: usize) -> u8 {
    status_of(bench, VIRTIO_BLK_T_OUT, sector, Some(&pattern(3, blocks * 4096)))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Capacity, start, pointer, type and state of each reported zone.
fn report(bench: &mut TestBench, sector: u64, room: u32) -> Vec<(u64, u64, u64, u8, u8)> {
    let request = bench.driver.submit(VIRTIO_BLK_T_ZONE_REPORT, sector, &[room], None, Layout::Direct);
    assert!(bench.kick());
    assert_eq!(bench.driver.status(&request), OK);
    let bytes = bench.driver.data(&request);
    let count = number(&bytes);
    let used = bench.driver.take_used();
    assert_eq!(used, [UsedEntry { head: request.head.into(), len_bytes: 64 + 64 * count as u32 + 1 }]);
    let entries = bytes[64..].chunks_exact(64).take(count as usize);
    entries.map(|zone| (number(zone), number(&zone[8..]), number(&zone[16..]), zone[24], zone[25])).collect()
}

#[test]
fn a_report_shows_every_state() {
    let mut bench = zoned_bench();
    assert_eq!(write(&mut bench, 0, 2), OK);
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_OPEN, 1024, None), OK);
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_FINISH, 2048, None), OK);
    assert_eq!(write(&mut bench, 4096, 1), OK);
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_CLOSE, 4096, None), OK);
    let sequential = 2;
    let zone = |index: u64, written: u64, state: u8| (800, index * 1024, index * 1024 + written, sequential, state);
    let expected = [zone(0, 16, 4), zone(1, 0, 3), zone(2, 1024, 14), zone(3, 0, 1), zone(4, 8, 4)];
    assert_eq!(report(&mut bench, 0, 64 + 5 * 64), expected);
    assert_eq!(write(&mut bench, 16, 1), OK);
    assert_eq!(report(&mut bench, 5, 64 + 64 + 63), [zone(0, 24, 2)]);
    assert_eq!(report(&mut bench, 6 * 1024, 4096), [zone(6, 0, 1), zone(7, 0, 1)]);
    assert_eq!(report(&mut bench, 0, 64), []);
    assert!(bench.recorder.arrivals.is_empty());
    assert_eq!(bench.session.stats().zone_reports, 4);
}

#[test]
fn an_append_tells_where_it_was_written() {
    let mut bench = zoned_bench();
    let first = pattern(1, 8192);
    let second = pattern(2, 4096);
    let (one, at_one) = bench.driver.append(1024, &first, 9);
    let (two, at_two) = bench.driver.append(1024, &second, 16);
    assert!(bench.kick());
    let arrived: Vec<_> = bench.recorder.arrivals.iter().map(|arrival| arrival.request).collect();
    assert_eq!(
        arrived.iter().map(|it| (it.op, it.lba.0, it.sectors)).collect::<Vec<_>>(),
        [(Op::ZoneAppend, 1024, 16), (Op::ZoneAppend, 1024, 8)]
    );
    assert_eq!(bench.driver.read(at_two, 16), [0xff; 16], "told before it is complete");
    bench.complete_all(Status::Ok);
    assert_eq!((bench.driver.status(&one), bench.driver.status(&two)), (OK, OK));
    assert_eq!((number(&bench.driver.read(at_one, 8)), number(&bench.driver.read(at_two, 8))), (1024, 1040));
    let lengths: Vec<_> = bench.driver.take_used().iter().map(|entry| entry.len_bytes).collect();
    assert_eq!(lengths, [9, 9]);
    let read = bench.driver.submit(VIRTIO_BLK_T_IN, 1024, &[12288], None, Layout::Direct);
    assert_eq!(finish(&mut bench, &read), OK);
    assert!(bench.driver.data(&read) == [first, second].concat());
    assert_eq!(bench.session.stats().written_bytes, 12288);

    let (inside, _) = bench.driver.append(1032, &pattern(3, 4096), 9);
    assert_eq!(finish(&mut bench, &inside), INVALID_COMMAND);
}

#[test]
fn requests_against_the_zones_get_their_status_and_change_nothing() {
    let mut bench = zoned_bench();
    assert_eq!(write(&mut bench, 8, 1), UNALIGNED_WRITE_POINTER);
    assert_eq!(write(&mut bench, 0, 101), INVALID_COMMAND);
    assert_eq!(bench.session.store().allocated_bytes().unwrap(), 0);
    assert_eq!(write(&mut bench, 0, 100), OK);
    assert_eq!(write(&mut bench, 0, 1), INVALID_COMMAND);
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_OPEN, 0, None), INVALID_COMMAND);
    for zone in [1, 2] {
        assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_OPEN, zone * 1024, None), OK);
    }
    assert_eq!(write(&mut bench, 3 * 1024, 1), OPEN_RESOURCE);
    for zone in [1, 2] {
        assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_CLOSE, zone * 1024, None), OK);
    }
    assert_eq!(write(&mut bench, 3 * 1024, 1), OK);
    assert_eq!(write(&mut bench, 4 * 1024, 1), ACTIVE_RESOURCE);
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_RESET, 8, None), INVALID_COMMAND);
    let refusals: Vec<_> =
        bench.session.stats().zone_refusals.iter().map(|(status, count)| (*status, *count)).collect();
    assert_eq!(
        refusals,
        [
            (Status::InvalidField, 1),
            (Status::ZoneBoundary, 1),
            (Status::ZoneFull, 1),
            (Status::ZoneInvalidWrite, 1),
            (Status::TooManyActiveZones, 1),
            (Status::TooManyOpenZones, 1),
            (Status::ZoneInvalidTransition, 1),
        ]
    );
    assert!(bench.session.stats().bad_requests.is_empty());
    // The driver was offered neither, and tries them nevertheless.
    for kind in [VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES] {
        assert_eq!(status_of(&mut bench, kind, 0, Some(&[0; 16])), UNSUPPORTED);
    }
}

#[test]
fn a_reset_empties_the_zone() {
    let mut bench = zoned_bench();
    assert_eq!(write(&mut bench, 1024, 100), OK);
    assert_eq!(write(&mut bench, 2048, 1), OK);
    let held = bench.session.store().allocated_bytes().unwrap();
    let reset = bench.driver.submit(VIRTIO_BLK_T_ZONE_RESET, 1024, &[], None, Layout::Indirect);
    assert!(bench.kick());
    let request = bench.recorder.arrivals[0].request;
    assert_eq!((request.op, request.lba.0, request.sectors), (Op::ZoneReset, 1024, 8));
    // Until it is complete, the drive may still have the old data.
    let early = bench.driver.submit(VIRTIO_BLK_T_OUT, 1024, &[4096], Some(&[1; 4096]), Layout::Direct);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    assert_eq!((bench.driver.status(&reset), bench.driver.status(&early)), (OK, UNALIGNED_WRITE_POINTER));
    assert!(bench.session.store().allocated_bytes().unwrap() < held);
    let read = bench.driver.submit(VIRTIO_BLK_T_IN, 1024, &[4096], None, Layout::Direct);
    assert_eq!(finish(&mut bench, &read), OK);
    assert_eq!(bench.driver.data(&read), [0; 4096]);
    assert_eq!(write(&mut bench, 1024, 1), OK);
}

#[test]
fn a_reset_of_all_zones_is_one_for_each_that_is_not_empty() {
    let mut bench = zoned_bench();
    for zone in [1, 2, 5] {
        assert_eq!(write(&mut bench, zone * 1024, 100), OK);
    }
    let reset = bench.driver.submit(VIRTIO_BLK_T_ZONE_RESET_ALL, 0, &[], None, Layout::Direct);
    assert!(bench.kick());
    let sectors: Vec<_> = bench.recorder.arrivals.iter().map(|arrival| arrival.request.lba.0).collect();
    assert_eq!(sectors, [1024, 2048, 5 * 1024]);
    let last = bench.recorder.arrivals.pop().unwrap();
    bench.complete_all(Status::Ok);
    assert!(bench.driver.take_used().is_empty(), "complete before its last part");
    bench.session.complete(last.request.id, Status::MediaError);
    assert_eq!(bench.driver.status(&reset), 1);
    assert_eq!(bench.driver.take_used().len(), 1);
    assert!(report(&mut bench, 0, 1024).iter().all(|zone| zone.4 == 1));
    // Nothing is left to reset; the drive looks all the same.
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_RESET_ALL, 0, None), OK);
    assert_eq!(bench.session.stats().requests[6], 4);
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn resets_in_flight_take_no_room_from_other_requests() {
    let config = BlkConfig { capacity_sectors: 8 * 2048, ..zoned() };
    let small = ZoneLayout { size_sectors: 8, capacity_sectors: 8, most_open: 2, most_active: 3, conventional: 0 };
    let config = BlkConfig { zones: Some(small), ..config };
    let store = chronodisk_store::RamStore::new(config.capacity_sectors * 512, 64 << 20);
    let mut bench = TestBench::new(config, Box::new(store));
    bench.set_up();
    for zone in 0..1_500 {
        assert_eq!(write(&mut bench, zone * 8, 1), OK, "zone {zone}");
    }
    let reset = bench.driver.submit(VIRTIO_BLK_T_ZONE_RESET_ALL, 0, &[], None, Layout::Direct);
    let read = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[4096], None, Layout::Direct);
    assert!(bench.kick());
    assert_eq!(bench.recorder.arrivals.len(), 1_501);
    bench.complete_all(Status::Ok);
    assert_eq!((bench.driver.status(&reset), bench.driver.status(&read)), (OK, OK));
}

#[test]
fn malformed_requests_for_zones_are_answered() {
    let mut bench = zoned_bench();
    let no_room = bench.driver.submit(VIRTIO_BLK_T_ZONE_REPORT, 0, &[63], None, Layout::Direct);
    let beyond = bench.driver.submit(VIRTIO_BLK_T_ZONE_REPORT, 8192, &[128], None, Layout::Direct);
    let far = bench.driver.submit(VIRTIO_BLK_T_ZONE_RESET, u64::MAX - 7, &[], None, Layout::Direct);
    // An append with room for the status only.
    let short = bench.driver.submit(15, 0, &[4096], Some(&[0; 4096]), Layout::Direct);
    let header = bench.driver.allocate(16);
    bench.driver.write(header, &blk_header(15, 0, 0));
    let answer = bench.driver.allocate(16);
    let empty = bench.driver.add_chain(&[
        Descriptor { address: header, len_bytes: 16, flags: 0, next: 0 },
        Descriptor { address: answer, len_bytes: 9, flags: WRITE, next: 0 },
    ]);
    bench.driver.make_available(empty);
    assert!(bench.kick());
    assert!(bench.recorder.arrivals.is_empty());
    for request in [no_room, beyond, far, short] {
        assert_eq!(bench.driver.status(&request), 1);
    }
    assert_eq!(bench.driver.read(answer + 8, 1), [1]);
    let kinds: Vec<_> = bench.session.stats().bad_requests.iter().map(|(kind, count)| (*kind, *count)).collect();
    assert_eq!(
        kinds,
        [(BadRequestKind::NotWholeBlocks, 1), (BadRequestKind::OutOfRange, 2), (BadRequestKind::AnswerRoom, 2)]
    );
}

#[test]
fn an_ordinary_device_knows_no_zones() {
    let mut bench = bench();
    for kind in [
        VIRTIO_BLK_T_ZONE_REPORT,
        VIRTIO_BLK_T_ZONE_OPEN,
        VIRTIO_BLK_T_ZONE_CLOSE,
        VIRTIO_BLK_T_ZONE_FINISH,
        VIRTIO_BLK_T_ZONE_RESET,
        VIRTIO_BLK_T_ZONE_RESET_ALL,
    ] {
        assert_eq!(status_of(&mut bench, kind, 0, None), UNSUPPORTED, "type {kind}");
    }
    let (append, _) = bench.driver.append(0, &[1; 4096], 16);
    assert_eq!(finish(&mut bench, &append), UNSUPPORTED);
    assert_eq!(bench.session.stats().bad_requests[&BadRequestKind::NotNegotiated], 7);
}

#[test]
fn the_configuration_shows_the_zones() {
    let mut bench = zoned_bench();
    let space = bench.config(0, 96);
    let field = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
    assert_eq!([72, 76, 80, 84, 88].map(field), [1024, 2, 3, 800, 4096]);
    assert_eq!(space[92], 1);
}

#[test]
fn conventional_zones_are_reported_and_written_anywhere() {
    let config = BlkConfig { zones: zoned().zones.map(|zones| ZoneLayout { conventional: 2, ..zones }), ..zoned() };
    let mut bench = TestBench::new(config, store());
    bench.set_up();
    let data = pattern(5, 2 * 4096);
    for sector in [1016, 16, 16, 2032] {
        assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_OUT, sector, Some(&data)), OK, "{sector}");
    }
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_OUT, 2040, Some(&data)), INVALID_COMMAND);
    for kind in [VIRTIO_BLK_T_ZONE_OPEN, VIRTIO_BLK_T_ZONE_CLOSE, VIRTIO_BLK_T_ZONE_FINISH, VIRTIO_BLK_T_ZONE_RESET] {
        assert_eq!(status_of(&mut bench, kind, 1024, None), INVALID_COMMAND, "{kind}");
    }
    assert_eq!(write(&mut bench, 2048, 1), OK);
    // A reset of all zones leaves the data of conventional ones.
    assert_eq!(status_of(&mut bench, VIRTIO_BLK_T_ZONE_RESET_ALL, 0, None), OK);
    let request = bench.driver.submit(VIRTIO_BLK_T_IN, 16, &[4096, 4096], None, Layout::Direct);
    assert_eq!(finish(&mut bench, &request), OK);
    assert_eq!(bench.driver.data(&request), data);
    let expected = [(1024, 0, 0, 1, 0), (1024, 1024, 1024, 1, 0), (800, 2048, 2048, 2, 1)];
    assert_eq!(report(&mut bench, 0, 64 + 3 * 64), expected);
}
