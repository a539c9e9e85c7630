//! Limits against the contract, their rates over a minute, and their refusals.

use chronodisk_sim::{Nanos, Op, Request};

use crate::models::testing::{build_text, closed_loop, complete, counter};
use crate::{BuildOptions, DeviceModel, Profile, ProfileError, contract};

fn limited(name: &str, limits: &str) -> Profile {
    Profile::find(name).unwrap().within_limits(limits).unwrap()
}

fn device(name: &str, limits: &str) -> Box<dyn DeviceModel> {
    limited(name, limits).build(&BuildOptions::default()).unwrap()
}

#[test]
fn contract_around_devices_of_every_kind() {
    for (name, limits) in [
        ("null", "iops=3000"),
        ("constant-1ms", "iops=100,iops-burst=500,iops-credits=30,request-size=64KiB"),
        ("wu-tsai-ch2-x1", "read-bandwidth=10MB/s,write-iops=50,bandwidth=20MB/s"),
        ("first-disk", "delay=normal:2ms:5ms,flush-delay=pareto:1ms:1.5"),
        ("cheetah-9lp", "bandwidth=1MB/s,bandwidth-credits=4MiB,read-delay=lognormal:2ms:1"),
        ("samsung-970-pro", "read-iops=1000,write-bandwidth=50MB/s,write-delay=1ms"),
        ("raid5-eight-disks", "iops=200,bandwidth=5MB/s"),
    ] {
        let profile = limited(name, limits);
        contract::check(&format!("{name} {limits}"), contract::cases(8), &|seed| {
            profile.build(&BuildOptions { seed, ..BuildOptions::default() }).unwrap()
        });
    }
}

#[test]
fn a_limited_zoned_device_keeps_the_contract() {
    let profile = limited("wd-zn540-zones", "write-bandwidth=20MB/s,read-delay=1ms");
    contract::check("limited zones", contract::cases(4), &|seed| {
        profile.build(&BuildOptions { seed, ..BuildOptions::default() }).unwrap()
    });
}

/// Number of requests that complete within a minute at this depth.
fn in_a_minute(device: &mut dyn DeviceModel, depth: u64, request: impl Fn(u64) -> Request) -> u64 {
    let (mut submitted, mut completed) = (0, Vec::new());
    while submitted < depth {
        device.submit(request(submitted));
        submitted += 1;
    }
    let mut count = 0;
    loop {
        completed.clear();
        device.step(Nanos::from_secs(60), &mut completed);
        if completed.is_empty() {
            return count;
        }
        count += completed.len() as u64;
        for _ in &completed {
            device.submit(request(submitted));
            submitted += 1;
        }
    }
}

fn read(id: u64) -> Request {
    Request::new(id, Op::Read, id * 8 % 1_000_000, 8)
}

/// Within one per cent.
fn near(found: u64, expected: u64) {
    assert!(found.abs_diff(expected) * 100 <= expected, "{found} {expected}");
}

#[test]
fn a_limit_holds_for_a_minute_at_every_depth() {
    for depth in [1, 32] {
        near(in_a_minute(&mut *device("null", "iops=3000"), depth, read), 180_000);
        near(in_a_minute(&mut *device("samsung-pm9a3", "iops=7321"), depth, read), 7_321 * 60);
        let long = |id| Request::new(id, Op::Write, id * 256 % 1_000_000, 256);
        near(in_a_minute(&mut *device("null", "write-bandwidth=125MiB/s"), depth, long), 60_000);
        near(in_a_minute(&mut *device("null", "iops=1000,request-size=32KiB"), depth, long), 15_000);
        // Reads and writes in turn share the limit of both.
        let mixed = |id| Request::new(id, if id % 2 == 0 { Op::Read } else { Op::Write }, id * 8 % 1_000_000, 8);
        near(in_a_minute(&mut *device("null", "iops=2000,read-iops=1900"), depth, mixed), 120_000);
    }
}

#[test]
fn credits_are_spent_at_the_burst_and_then_the_rate_holds() {
    // 60,000 credits at 3,000 a second beside a refill of 1,000 last 30 s.
    let device = &mut *device("null", "iops=1000,iops-burst=3000,iops-credits=60000");
    near(in_a_minute(device, 4, read), 90_000 + 30_000);
    assert!(counter(device, "limited-requests") > 100_000);
}

#[test]
fn a_read_does_not_wait_for_the_writes_limit_and_a_flush_for_none() {
    let device = &mut *device("constant-1ms", "write-iops=1");
    for id in 0..10 {
        device.submit(Request::new(id, Op::Write, 0, 8));
    }
    device.submit(Request::new(10, Op::Read, 0, 8));
    device.submit(Request::new(11, Op::Flush, 0, 0));
    let mut completed = Vec::new();
    device.step(Nanos::from_millis(500), &mut completed);
    let ids: Vec<u64> = completed.iter().map(|completion| completion.id.0).collect();
    assert_eq!((ids, device.now()), (vec![0, 10, 11], Nanos::from_millis(1)));
}

#[test]
fn delays_overlap_and_are_added_to_the_devices_time() {
    let device = &mut *device("constant-1ms", "read-delay=9ms");
    assert_eq!(complete(device, read(0)), Nanos::from_millis(10));
    assert_eq!(complete(device, Request::new(1, Op::Write, 0, 8)), Nanos::from_millis(1));
    let outcome = closed_loop(device, 8, 80, read);
    assert!(outcome.response_times.iter().all(|&time| time == Nanos::from_millis(10)));
    assert_eq!(counter(device, "added-delay-ns"), 81 * 9_000_000);
}

#[test]
fn limits_are_part_of_the_text_and_a_capacity_and_a_row_keep_them() {
    let profile = limited("constant-1ms", "iops=100,read-delay=1ms");
    let again = Profile::parse(profile.text(), "again").unwrap();
    let smaller = BuildOptions { capacity_bytes: Some(1 << 20), seed: 1, ..BuildOptions::default() };
    for profile in [&profile, &again] {
        let device = &mut *profile.build(&smaller).unwrap();
        assert_eq!(device.info().capacity_sectors, 2_048);
        assert_eq!(complete(device, Request::new(0, Op::Read, 0, 8)), Nanos::from_millis(2));
    }
    assert!(profile.memory_bytes_max(&smaller).unwrap() > 0);
    let elevator = profile.behind_host_queue("noop").unwrap();
    let device = &mut *elevator.build(&BuildOptions::default()).unwrap();
    assert_eq!(complete(device, read(0)), Nanos::from_millis(2));
}

#[test]
fn wrong_limits_are_refused_with_their_place() {
    let refuse = |table: &str, expected: &str| {
        let text = format!(
            "name = \"x\"\nkind = \"null\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
             capacity = \"1 MiB\"\n[limits]\n{table}\n"
        );
        let error: ProfileError = Profile::parse(&text, "x.toml").unwrap_err();
        assert!(error.to_string().contains(expected), "{table}: {error}");
    };
    refuse("", "no limit and no delay; expected `iops`");
    refuse("iops = 0", "x.toml:8:8: `iops`: out of range; expected a whole number from 1");
    refuse("iop = 3", "unknown key `iop`");
    refuse("bandwidth = \"1 B/s\"", "`bandwidth`: 1 B/s; expected at least 1 kB/s");
    refuse("iops-burst = 3", "`iops-burst`: there is no `iops`");
    refuse("iops = 5\niops-burst = 30", "`iops-burst`: a burst needs `iops-credits`");
    refuse("iops = 5\niops-credits = 30\niops-burst = 5", "`iops-burst`: expected more than `iops`");
    refuse("bandwidth-credits = \"1 GB\"", "`bandwidth-credits`: there is no `bandwidth`");
    refuse("bandwidth = \"1 MB/s\"\nrequest-size = \"4 KiB\"", "there is no limit of requests");
    refuse("[limits.read-delay]\ndistribution = \"normal\"", "`mean` is missing");
    let error = limited("null", "iops=5").within_limits("iops=6").unwrap_err();
    assert!(error.to_string().contains("has a table [limits] already"), "{error}");
    let text = "name = \"x\"\nkind = \"null\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
        capacity = \"1 MiB\"\nlimits = 3\n";
    assert!(Profile::parse(text, "x.toml").is_err());
    drop(build_text(&text.replace("limits = 3", "[limits]\niops = 3"), 1));
}
