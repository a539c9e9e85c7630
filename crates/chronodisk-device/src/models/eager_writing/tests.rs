//! Eager writing against the contract, against the disk without it, and against its bookkeeping.

use chronodisk_sim::{Nanos, Op, RandomStream, Request};

use crate::models::testing::{build, build_text, closed_loop, complete, counter};
use crate::{DeviceModel, Profile, advance, contract};

/// A layer over the Cheetah X15, 18 GB, 4 ms a turn.
fn text(change: &[(&str, &str)]) -> String {
    let mut text = String::from(
        "name = \"e\"\nkind = \"eager-writing\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         member = \"cheetah-x15\"\nlogical-block = \"4 KiB\"\n",
    );
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    text
}

fn eager(change: &[(&str, &str)]) -> Box<dyn DeviceModel> {
    build_text(&text(change), 7)
}

/// A disk of one zone with 100 cylinders of two tracks of 128 sectors: 3,200 blocks of 4 KiB.
fn small() -> String {
    let disk = Profile::find("cheetah-x15").unwrap().text().to_owned();
    let (head, rest) = disk.split_once("[geometry]").unwrap();
    let (_, tail) = rest.split_once("[mechanics]").unwrap();
    let capacity = head.lines().find(|line| line.starts_with("capacity")).unwrap();
    let head = head.replace(capacity, "capacity = \"13107200 B\"").replace("cheetah-x15", "small");
    let geometry = "[geometry]\nsurfaces = 2\ncylinders = 100\ntrack-order = \"heads-ascending\"\nsparing = \"none\"\n\
                    [[geometry.zones]]\nfirst-cylinder = 0\nlast-cylinder = 99\nblocks-per-track = 128\n\
                    track-skew = \"16 sectors\"\ncylinder-skew = \"24 sectors\"\n[mechanics]";
    format!(
        "{}capacity = \"12582912 B\"\n[[member-profile]]\nname = \"small\"\nprofile = '''\n{head}{geometry}{tail}'''\n",
        text(&[("cheetah-x15", "small")])
    )
}

fn mean_ms(device: &mut dyn DeviceModel, count: u64, mut request: impl FnMut(u64) -> Request) -> f64 {
    let start = device.now();
    let outcome = closed_loop(device, 1, count, &mut request);
    (outcome.last - start).as_millis_f64() / count as f64
}

#[test]
fn contracts() {
    contract::check("eager cheetah", contract::cases(12), &|seed| build_text(&text(&[]), seed));
    let caching = [("\"cheetah-x15\"", "\"cheetah-9lp\"")];
    contract::check_durability("eager cheetah-9lp", contract::cases(24), &|seed| build_text(&text(&caching), seed));
    contract::check("eager small disk", contract::cases(24), &|seed| build_text(&small(), seed));
}

#[test]
fn random_writes_take_little_more_than_the_command() {
    let mut stream = RandomStream::new(1, "test", "places");
    let mut anywhere = |id, op| Request::new(id, op, stream.below(4_000_000) * 8, 8);
    let plain = mean_ms(build("cheetah-x15", 0).as_mut(), 500, |id| anywhere(id, Op::Write));
    let mut device = eager(&[]);
    let eager = mean_ms(device.as_mut(), 500, |id| anywhere(id, Op::Write));
    // Without eager writing: command, 4.5 ms of seek, 2 ms of rotation. With it: the command of 0.3 ms, the margin, the
    // block, and the wait for the next block, in total well below half a turn.
    assert!(plain > 5.5, "{plain} ms");
    assert!(eager < 0.8, "{eager} ms");
    assert_eq!(counter(device.as_ref(), "written-runs"), 500);
    assert_eq!(counter(device.as_ref(), "far-runs"), 0);
}

#[test]
fn what_was_written_together_is_read_together() {
    let mut device = eager(&[]);
    // 1 MiB in blocks of 4 KiB that lie anywhere, written in order, lie next to each other.
    for id in 0..256 {
        complete(device.as_mut(), Request::new(id, Op::Write, id * 7_919 % 1_000 * 4_000, 8));
    }
    let apart = complete(device.as_mut(), Request::new(1_000, Op::Read, 7_919 % 1_000 * 4_000, 8));
    assert!(apart < Nanos::from_millis(12), "{apart}");
    assert_eq!(counter(device.as_ref(), "disk-in-use"), 256);
    // After they are written again, they need no more space.
    for id in 0..256 {
        complete(device.as_mut(), Request::new(id, Op::Write, id * 7_919 % 1_000 * 4_000, 8));
    }
    assert_eq!(counter(device.as_ref(), "disk-in-use"), 256);
    let discard = Request::new(2_000, Op::Discard, 0, 4_000_000);
    assert!(complete(device.as_mut(), discard) < Nanos::from_millis(1));
    assert_eq!(counter(device.as_ref(), "disk-in-use"), 0);
    // A block without a place is not read from the disk.
    assert!(complete(device.as_mut(), Request::new(2_001, Op::Read, 0, 2_048)) < Nanos::from_millis(1));
}

#[test]
fn large_writes_run_at_the_mediums_rate() {
    let mut device = eager(&[]);
    let mut plain = build("cheetah-x15", 0);
    let write = |id: u64| Request::new(id, Op::Write, id * 2_048, 2_048);
    let (eager, plain) = (mean_ms(device.as_mut(), 40, write), mean_ms(plain.as_mut(), 40, write));
    assert!(eager < 1.1 * plain, "{eager} ms, without it {plain} ms");
    assert_eq!(counter(device.as_ref(), "written-runs"), 40);
}

#[test]
fn an_almost_full_disk_still_takes_writes() {
    let mut device = build_text(&small(), 0);
    let blocks = device.info().capacity_sectors / 8;
    assert_eq!(blocks, 3_072);
    let all = mean_ms(device.as_mut(), blocks, |id| Request::new(id, Op::Write, id * 8, 8));
    assert_eq!(counter(device.as_ref(), "disk-in-use"), blocks);
    // 128 free blocks of 3,200; every write finds one and leaves one.
    let mut stream = RandomStream::new(1, "test", "places");
    let full = mean_ms(device.as_mut(), 2_000, |id| Request::new(id, Op::Write, stream.below(blocks) * 8, 8));
    assert_eq!(counter(device.as_ref(), "disk-in-use"), blocks);
    assert!(full > all && full < 8.0, "{full} ms after {all} ms");
    // A large write takes the free blocks, run by run.
    let runs = counter(device.as_ref(), "written-runs");
    complete(device.as_mut(), Request::new(1, Op::Write, 0, 2_048));
    assert!(counter(device.as_ref(), "written-runs") - runs > 10);
    assert_eq!(counter(device.as_ref(), "disk-in-use"), blocks);
    // Reads find all data.
    complete(device.as_mut(), Request::new(2, Op::Read, 0, 3_072 * 8));
}

#[test]
fn an_idle_disk_is_found_where_it_is() {
    let mut device = eager(&[]);
    let mut stream = RandomStream::new(1, "test", "gaps");
    let (mut total, mut missed) = (Nanos::ZERO, 0);
    for id in 0..400 {
        let time = complete(device.as_mut(), Request::new(id, Op::Write, id * 8, 8));
        total += time;
        missed += u32::from(time > Nanos::from_millis(2));
        let later = device.now() + Nanos::from_nanos(stream.below(20_000_000));
        advance(device.as_mut(), later, &mut Vec::new());
    }
    // The margin covers the uncertainty of the heads' position after a gap: a chosen place is hardly ever missed, which
    // would cost a turn.
    assert!(missed <= 8 && total < Nanos::from_millis(400), "{missed} of 400 missed, {total}");
}

#[test]
fn wrong_profiles_are_refused_with_their_place() {
    for (from, to, part) in [
        ("cheetah-x15", "first-disk", "of the kind simple-disk; expected a profile of kind disk"),
        ("logical-block", "capacity = \"18350080000 B\"\nlogical-block", "geometry ends"),
        ("logical-block", "search-tracks = 100\nlogical-block", "expected a whole number from 0 to 64"),
    ] {
        let error = Profile::parse(&text(&[(from, to)]), "wrong").unwrap_err();
        assert!(error.to_string().contains(part) && error.line.is_some(), "{error}");
    }
}
