//! The shingled disk against the contract and its expected costs.

use chronodisk_sim::{Nanos, Op, RandomStream, Request};

use crate::models::testing::{build, build_text, closed_loop, complete, counter, tangle};
use crate::{DeviceModel, Profile, advance, contract};

/// A disk of 2 ms a request and 100 MB/s with bands of 1 MiB, a cache of 8 and a scratch area of one.
fn shingled(change: &[(&str, &str)]) -> Box<dyn DeviceModel> {
    build_text(&text(change), 7)
}

fn text(change: &[(&str, &str)]) -> String {
    let keys = "logical-block = \"4 KiB\"\ncache = \"9 MiB\"\ncache-map-entries = 1000\nband = \"1 MiB\"\n\
                clean-after = \"1 s\"\nclean-step = \"256 KiB\"\nstream-after = \"2 MiB\"\n";
    over_memory(keys, "64 MiB", change)
}

/// A shingled disk with these keys over a device of 2 ms a request and 100 MB/s, with changes to its text.
pub(super) fn over_memory(keys: &str, capacity: &str, change: &[(&str, &str)]) -> String {
    let mut text = format!(
        "name = \"s\"\nkind = \"shingled-disk\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         member = \"below\"\n{keys}\
         [[member-profile]]\nname = \"below\"\nprofile = '''\nname = \"below\"\nkind = \"nvram\"\n\
         description = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\ncapacity = \"{capacity}\"\n\
         latency = \"2 ms\"\nbandwidth = \"100 MB/s\"\nchannels = 1\n'''\n",
    );
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    text
}

fn write(id: u64, mib: u64, offset_kib: u64, kib: u32) -> Request {
    Request::new(id, Op::Write, mib * 2_048 + offset_kib * 2, kib * 2)
}

fn read(id: u64, mib: u64, offset_kib: u64, kib: u32) -> Request {
    Request { op: Op::Read, ..write(id, mib, offset_kib, kib) }
}

fn idle(device: &mut dyn DeviceModel, time: Nanos) {
    let until = device.now() + time;
    advance(device, until, &mut Vec::new());
}

#[test]
fn contracts() {
    contract::check("shingled memory", contract::cases(24), &|_| shingled(&[]));
    contract::check("shingled memory without scratch, few entries", contract::cases(24), &|_| {
        shingled(&[("stream-after", "scratch = false\nstream-after"), ("entries = 1000", "entries = 16")])
    });
    contract::check("shingled disk", contract::cases(8), &|seed| {
        let text = text(&[
            ("member = \"below\"", "member = \"first-disk\""),
            ("cache = \"9 MiB\"", "cache = \"200 MiB\""),
            ("band = \"1 MiB\"", "band = \"16 MiB\""),
            ("clean-step = \"256 KiB\"", "clean-step = \"4 MiB\""),
            ("clean-after = \"1 s\"", "clean-after = \"10 ms\""),
        ]);
        build_text(text.split("[[member-profile]]").next().unwrap_or_default(), seed)
    });
}

#[test]
fn cleaning_makes_no_durable_sector_volatile() {
    // The disk below has a write cache, and cleans in steps that leave room for requests of the host.
    for (stream, cache) in [("2 MiB", "9 MiB"), ("128 KiB", "9 MiB"), ("128 KiB", "3 MiB")] {
        contract::check_durability("shingled disk with a write cache", contract::cases(4), &|seed| {
            let text = text(&[
                ("member = \"below\"", "member = \"cheetah-9lp\""),
                ("stream-after = \"2 MiB\"", &format!("stream-after = \"{stream}\"")),
                ("cache = \"9 MiB\"", &format!("cache = \"{cache}\"")),
                ("clean-after = \"1 s\"", "clean-after = \"5 ms\""),
            ]);
            build_text(text.split("[[member-profile]]").next().unwrap_or_default(), seed)
        });
    }
}

#[test]
fn queued_requests_that_overlap_all_complete() {
    for seed in 0..u64::from(contract::cases(8)) {
        tangle("nearline-20tb-smr", build("nearline-20tb-smr", seed).as_mut(), seed);
    }
}

#[test]
fn what_is_written_is_in_the_cache_until_the_disk_is_idle() {
    let mut disk = shingled(&[]);
    // A write takes one request to the disk, in the cache or in its band.
    assert_eq!(complete(disk.as_mut(), write(1, 5, 16, 4)), Nanos::from_nanos(2_000_000 + 40_960));
    assert_eq!(counter(disk.as_ref(), "cache-in-use"), 1);
    // A read over it: band, cache, band on one channel.
    let split = complete(disk.as_mut(), read(2, 5, 8, 20));
    assert!(split > Nanos::from_millis(6) && split < Nanos::from_millis(7), "{split}");
    // After a second, cleaning: 4 steps of reading, one of the cache, 4 to the scratch area, 4 home.
    idle(disk.as_mut(), Nanos::from_millis(1_000 + 13 * 5));
    assert_eq!(counter(disk.as_ref(), "cleaned-bands"), 1);
    assert_eq!(counter(disk.as_ref(), "member-0-read-requests"), 3 + 4 + 1);
    assert_eq!(counter(disk.as_ref(), "member-0-write-requests"), 1 + 4 + 4);
    assert_eq!(counter(disk.as_ref(), "cache-in-use"), 0);
    assert_eq!(complete(disk.as_mut(), read(3, 5, 8, 20)), Nanos::from_nanos(2_000_000 + 204_800));
}

#[test]
fn a_full_cache_makes_writes_wait_for_cleaning() {
    // One block in each band: 8 MiB of cache hold 2,048, the map 64 writes.
    let mut disk = shingled(&[("entries = 1000", "entries = 32")]);
    let mut slowest = Nanos::ZERO;
    for id in 0..200u64 {
        let time = complete(disk.as_mut(), write(id, id * 7 % 50, 4 * (id / 50), 4));
        slowest = slowest.max(time);
        // No write waits before the map is full.
        assert!(id > 28 || time < Nanos::from_millis(3), "{id}: {time}");
    }
    // A band costs 13 requests of at least 2 ms, each with 2.6 ms for its data.
    assert!(slowest > Nanos::from_millis(50), "{slowest}");
    assert!(counter(disk.as_ref(), "writes-that-waited") > 10);
    let cleaned = counter(disk.as_ref(), "cleaned-bands");
    assert!((40..200).contains(&cleaned), "{cleaned}");
}

#[test]
fn a_band_that_is_written_again_while_it_is_cleaned_stays_in_the_cache() {
    let mut disk = shingled(&[]);
    complete(disk.as_mut(), write(1, 5, 16, 4));
    complete(disk.as_mut(), write(2, 5, 64, 4));
    idle(disk.as_mut(), Nanos::from_millis(1_020));
    complete(disk.as_mut(), write(3, 5, 64, 4));
    assert_eq!(counter(disk.as_ref(), "cleaned-bands"), 0, "paused");
    idle(disk.as_mut(), Nanos::from_millis(1_060));
    assert_eq!(counter(disk.as_ref(), "cleaned-bands"), 1);
    assert_eq!(counter(disk.as_ref(), "cache-in-use"), 1, "the newer block");
    idle(disk.as_mut(), Nanos::from_secs(10));
    assert_eq!(counter(disk.as_ref(), "cleaned-bands"), 2);
    assert_eq!(counter(disk.as_ref(), "cache-in-use"), 0);
}

#[test]
fn a_stream_bypasses_the_cache_from_a_bands_beginning_on() {
    let mut disk = shingled(&[]);
    let stream = closed_loop(disk.as_mut(), 1, 40, |id| write(id, 10, 256 * id, 256));
    // 2 MiB in a row and on to the next band's beginning; then straight on.
    assert_eq!(counter(disk.as_ref(), "cached-blocks"), 2 * 256);
    assert_eq!(counter(disk.as_ref(), "direct-blocks"), 8 * 256);
    assert_eq!(counter(disk.as_ref(), "cleaned-bands"), 0);
    assert!(stream.last < Nanos::from_millis(40 * 5));
    // Written again in the cache, then by a stream: the stream's are the newest.
    complete(disk.as_mut(), write(100, 15, 16, 4));
    assert_eq!(counter(disk.as_ref(), "cache-in-use"), 2 * 256 + 1);
    closed_loop(disk.as_mut(), 1, 40, |id| write(id, 10, 256 * id, 256));
    assert_eq!(counter(disk.as_ref(), "cache-in-use"), 2 * 256);
}

#[test]
fn random_writes_fall_to_the_rate_of_cleaning() {
    let mut disk = shingled(&[("entries = 1000", "entries = 100")]);
    let mut stream = RandomStream::new(1, "test", "places");
    let mut anywhere = |id| write(id, stream.below(50), 4 * stream.below(256), 4);
    let fresh = closed_loop(disk.as_mut(), 1, 90, &mut anywhere);
    let start = disk.now();
    let aged = closed_loop(disk.as_mut(), 1, 500, anywhere);
    let (fresh, aged) = (fresh.last.as_nanos() / 90, (aged.last - start).as_nanos() / 500);
    assert!(aged > 5 * fresh, "{aged} ns after {fresh} ns");
}

#[test]
fn wrong_profiles_are_refused_with_their_place() {
    for (from, to, part) in [
        ("band = \"1 MiB\"", "band = \"1000 kB\"", "expected a multiple of 64 KiB"),
        ("cache = \"9 MiB\"", "cache = \"2 MiB\"", "at least three bands"),
        ("cache = \"9 MiB\"", "cache = \"64 MiB\"", "no room for a band"),
        ("entries = 1000", "entries = 3", "expected a whole number from 16"),
        ("clean-after = \"1 s\"", "clean-after = \"0 s\"", "zero"),
    ] {
        let error = Profile::parse(&text(&[(from, to)]), "wrong").unwrap_err();
        assert!(error.to_string().contains(part) && error.line.is_some(), "{error}");
    }
}
