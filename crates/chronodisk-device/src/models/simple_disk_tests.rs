//! The simple disk against closed forms and against published figures.

use chronodisk_sim::{Nanos, Op, RandomStream, Request};

use crate::models::testing::{build, build_text, closed_loop, complete};
use crate::{DeviceModel, Probe, contract};

/// 6,000 rpm: a turn lasts 10 ms, a sector of 100 to the turn 100 µs; other times are zero unless a test sets them.
fn plain_disk(change: &[(&str, &str)]) -> Box<dyn DeviceModel> {
    let mut text = String::from(
        "name = \"d\"\nkind = \"simple-disk\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         capacity = \"100 KiB\"\nrotation = \"6000 rpm\"\nheads = 2\nsingle-track-seek = \"1 ms\"\n\
         average-seek = \"5 ms\"\nfull-stroke-seek = \"10 ms\"\nhead-switch = \"0 ms\"\ncylinder-switch = \"1 ms\"\n\
         write-settle = \"0 ms\"\ncontroller-overhead = \"0 ms\"\ninterface-rate = \"1000 GB/s\"\n\
         [[zone]]\ncylinders = 1000\nsectors-per-track = 100\n",
    );
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    build_text(&text, 7)
}

/// Time from an idle disk to the end of a read, independent of the platter's phase: `from` is read before, so that the
/// heads are at its end when the second read arrives.
fn read_after(disk: &mut dyn DeviceModel, from: Request, then: Request) -> Nanos {
    complete(disk, from);
    complete(disk, then)
}

/// Equal but for the rounding of instants and for the crossing of a sector, 1 ns at 1,000 GB/s.
#[track_caller]
fn about(seen: Nanos, expected: Nanos) {
    assert!(seen.as_nanos().abs_diff(expected.as_nanos()) <= 3, "{seen:?} instead of {expected:?}");
}

#[test]
fn contracts() {
    contract::check("first-disk", contract::cases(256), &|seed| build("first-disk", seed));
    contract::check("plain disk", contract::cases(256), &|_| plain_disk(&[]));
    contract::check("small buffer", contract::cases(256), &|_| {
        plain_disk(&[("heads = 2", "heads = 3\nread-ahead = \"64 KiB\""), ("6000 rpm", "10045 rpm")])
    });
    contract::check("4 KiB blocks", contract::cases(256), &|_| {
        plain_disk(&[("capacity = \"100 KiB\"", "capacity = \"90 MiB\"\nlogical-block = \"4 KiB\"")])
    });
}

#[test]
fn without_load_a_request_costs_seek_wait_and_transfer() {
    let read = |id, lba, sectors| Request::new(id, Op::Read, lba, sectors);
    // The sector just read comes round again after a turn.
    let mut disk = plain_disk(&[]);
    about(read_after(disk.as_mut(), read(1, 0, 1), read(2, 0, 1)), Nanos::from_millis(10));
    // The sector opposite: half a turn to it, its own length.
    about(read_after(disk.as_mut(), read(3, 0, 1), read(4, 50, 1)), Nanos::from_micros(4_900 + 100));
    // One long read: 250 sectors, a head change without cost, and a cylinder change of 1 ms.
    about(read_after(disk.as_mut(), read(5, 0, 1), read(6, 50, 250)), Nanos::from_micros(4_900 + 25_000 + 1_000));
    // To the next cylinder: the seek of 1 ms ends before the skew of 1.2 ms brings the first sector.
    let mut disk = plain_disk(&[("cylinder-switch = \"1 ms\"", "cylinder-switch = \"1.2 ms\"")]);
    about(read_after(disk.as_mut(), read(7, 150, 50), read(8, 200, 1)), Nanos::from_micros(1_200 + 100));
    // With an overhead the next sector has just passed: a turn is lost.
    let mut disk = plain_disk(&[("overhead = \"0 ms\"", "overhead = \"0.2 ms\"")]);
    about(read_after(disk.as_mut(), read(1, 0, 10), read(2, 10, 1)), Nanos::from_micros(10_000 + 100));
    assert_eq!(complete(disk.as_mut(), Request::new(3, Op::Flush, 0, 0)), Nanos::from_micros(200));
}

#[test]
fn the_interface_is_passed_beside_the_medium() {
    // 1 MB/s: a sector takes 512 µs to cross, five times its time under the head.
    let slow = [("1000 GB/s", "1 MB/s")];
    let read = |id, lba, sectors| Request::new(id, Op::Read, lba, sectors);
    let mut disk = plain_disk(&slow);
    complete(disk.as_mut(), read(1, 0, 1));
    // 512 µs of crossing passed since the head left sector 0; sector 50 begins 4.9 ms after sector 0 ended.
    about(complete(disk.as_mut(), read(2, 50, 10)), Nanos::from_nanos(4_900_000 - 512_000 + 10 * 512_000));
    // A write's medium follows its data: they take 5,120 µs, the medium 1,000, a start 4,120 µs on is the earliest.
    let mut disk = plain_disk(&slow);
    complete(disk.as_mut(), Request::new(1, Op::Write, 0, 1));
    about(complete(disk.as_mut(), Request::new(2, Op::Write, 60, 10)), Nanos::from_micros(5_900 + 1_000));
    complete(disk.as_mut(), Request::new(3, Op::Write, 0, 1));
    about(complete(disk.as_mut(), Request::new(4, Op::Write, 30, 10)), Nanos::from_micros(2_900 + 10_000 + 1_000));
    // Zeroing needs no data.
    complete(disk.as_mut(), Request::new(5, Op::WriteZeroes, 0, 1));
    about(complete(disk.as_mut(), Request::new(6, Op::WriteZeroes, 30, 10)), Nanos::from_micros(2_900 + 1_000));
}

#[test]
fn writes_settle_after_a_move() {
    let mut disk = plain_disk(&[
        ("write-settle = \"0 ms\"", "write-settle = \"0.3 ms\""),
        ("cylinder-switch = \"1 ms\"", "cylinder-switch = \"1.2 ms\""),
    ]);
    let write = |id, lba| Request::new(id, Op::Write, lba, 1);
    // The same track without a move: sector 2 comes 0.1 ms after sector 0, without settling.
    about(read_after(disk.as_mut(), write(1, 0), write(2, 2)), Nanos::from_micros(100 + 100));
    // Next cylinder: the skew covers the seek but not the settling too, and sector 200 has passed.
    about(read_after(disk.as_mut(), write(3, 199), write(4, 200)), Nanos::from_micros(1_200 + 10_000 + 100));
    // A read does not settle.
    let read = |id, lba| Request::new(id, Op::Read, lba, 1);
    about(read_after(disk.as_mut(), read(5, 199), read(6, 200)), Nanos::from_micros(1_200 + 100));
}

#[test]
fn the_seek_curve_passes_through_its_three_figures() {
    let (single, average, full) = (Nanos::from_micros(1_000), Nanos::from_micros(8_500), Nanos::from_micros(16_000));
    let longest = 100_000;
    let curve = super::SeekCurve::new(single, average, full, longest).unwrap();
    assert_eq!(curve.time(1), single);
    about(curve.time(longest), full);
    // The mean over random pairs: distance d has weight 2(N − d)/N².
    let cylinders = (longest + 1) as f64;
    let mean: f64 = (1..=longest)
        .map(|distance| curve.time(distance).as_millis_f64() * 2.0 * (cylinders - distance as f64) / cylinders.powi(2))
        .sum();
    assert!((mean - 8.5).abs() < 0.001, "{mean}");
    assert!((1..longest).all(|distance| curve.time(distance) <= curve.time(distance + 1)));
    // A full stroke shorter than the average needs a curve that falls.
    assert!(super::SeekCurve::new(single, average, Nanos::from_micros(8_000), longest).is_err());
}

#[test]
fn random_reads_take_as_long_as_a_data_sheet_says() {
    // Hitachi, Deskstar 7K80 specification, section 4.5.5.2: T = 4096(A + B + C + ..) is 55.9 s / 1.05 with A the
    // overhead, B the average seek, C half a turn: 13.0 ms a read. The formula with this profile's figures gives 0.5 +
    // 8.5 + 4.17 ms; 3 % is four standard errors of 4,000 reads.
    let mut disk = build("first-disk", 1);
    let sectors = disk.info().capacity_sectors;
    let mut stream = RandomStream::new(1, "test", "places");
    let outcome = closed_loop(disk.as_mut(), 1, 4_000, |id| Request::new(id, Op::Read, stream.below(sectors), 1));
    let mean = outcome.last.as_millis_f64() / 4_000.0;
    assert!((mean - 13.17).abs() < 0.03 * 13.17, "{mean} ms");
    assert!((mean - 13.0).abs() < 0.03 * 13.0, "{mean} ms");
}

#[test]
fn sequential_reads_reach_the_sustained_rate() {
    // Hitachi, Deskstar 7K500 specification, table 10: 64.8 MB/s sustained on the outermost tracks, 31.0 on the
    // innermost, for ten heads; two heads change cylinder more often, but all changes take as long.
    let mut disk = build("first-disk", 1);
    let sectors = disk.info().capacity_sectors;
    for (first, rate) in [(0, 64.8e6), (sectors - (1 << 20), 31.0e6)] {
        let start = disk.now();
        let count = 4_096;
        for index in 0..count {
            complete(disk.as_mut(), Request::new(index, Op::Read, first + index * 256, 256));
        }
        let seen = (count * 256 * 512) as f64 / (disk.now() - start).as_secs_f64();
        assert!((seen / rate - 1.0).abs() < 0.02, "{seen} instead of {rate}");
    }
}

#[test]
fn a_buffer_serves_what_has_passed_and_forgets_what_it_left() {
    let mut disk = plain_disk(&[("heads = 2", "heads = 2\nread-ahead = \"10 KiB\"")]);
    let read = |id, lba, sectors| Request::new(id, Op::Read, lba, sectors);
    complete(disk.as_mut(), read(1, 0, 10));
    let mut idle = Vec::new();
    let later = disk.now() + Nanos::from_millis(50);
    crate::advance(disk.as_mut(), later, &mut idle);
    // Twenty sectors fit and have been read since.
    assert_eq!(complete(disk.as_mut(), read(2, 10, 20)), Nanos::from_nanos(11), "10,240 bytes at 1,000 GB/s");
    assert_eq!(counter(disk.as_ref(), "buffer-hits"), 1);
    // Sector 0 precedes the kept range and sector 500 is beyond the reached one: both need a seek and a turn.
    assert!(complete(disk.as_mut(), read(3, 0, 1)) > Nanos::from_micros(100));
    assert!(complete(disk.as_mut(), read(4, 500, 1)) > Nanos::from_micros(100));
    assert_eq!(counter(disk.as_ref(), "buffer-hits"), 1);
}

#[test]
fn saturation_and_littles_law() {
    // 16 outstanding at one server: a request stays as long as 16 requests take.
    let mut stream = RandomStream::new(3, "test", "places");
    let mut disk = plain_disk(&[]);
    let outcome = closed_loop(disk.as_mut(), 16, 4_000, |id| Request::new(id, Op::Write, stream.below(200), 1));
    let throughput = 4_000.0 / outcome.last.as_secs_f64();
    let mean: f64 = outcome.response_times.iter().map(|time| time.as_secs_f64()).sum::<f64>() / 4_000.0;
    assert!((throughput * mean / 16.0 - 1.0).abs() < 0.01, "{throughput} × {mean}");
    assert_eq!(counter(disk.as_ref(), "busy-time-ns"), outcome.last.as_nanos());
}

#[test]
fn the_seed_turns_the_platter() {
    let first = |seed| complete(build("first-disk", seed).as_mut(), Request::new(1, Op::Read, 1_000, 8));
    assert_eq!(first(1), first(1));
    assert_ne!(first(1), first(2));
}

fn counter(disk: &dyn DeviceModel, wanted: &str) -> u64 {
    struct Find<'a>(&'a str, Option<u64>);
    impl Probe for Find<'_> {
        fn counter(&mut self, name: &str, value: u64) {
            if name == self.0 {
                self.1 = Some(value);
            }
        }
        fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
    }
    let mut find = Find(wanted, None);
    disk.probe(&mut find);
    find.1.expect("a known counter")
}
