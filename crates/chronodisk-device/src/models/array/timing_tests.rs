//! Arrays against closed forms, and the requests of their members.

use chronodisk_sim::{Nanos, Op, RandomStream, Request};

use super::tests::text;
use crate::models::testing::{build_text, closed_loop, complete};
use crate::{DeviceModel, Probe, Profile};

fn array(keys: &str) -> Box<dyn DeviceModel> {
    build_text(&text(keys), 7)
}

/// An array of members of 1 ms per request, in chunks of 4 KiB.
fn constant(level: &str, count: usize, keys: &str) -> Box<dyn DeviceModel> {
    array(&format!("level = \"{level}\"\nmember = \"constant-1ms\"\ncount = {count}\nchunk = \"4 KiB\"\n{keys}"))
}

/// A statistic by name; zero if it does not exist.
fn counter(device: &dyn DeviceModel, name: &str) -> u64 {
    struct Find<'a>(&'a str, u64);
    impl Probe for Find<'_> {
        fn counter(&mut self, name: &str, value: u64) {
            if name == self.0 {
                self.1 = value;
            }
        }
        fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
    }
    let mut find = Find(name, 0);
    device.probe(&mut find);
    find.1
}

/// Requests that a member has got.
fn asked(device: &dyn DeviceModel, member: usize, op: Op) -> u64 {
    counter(device, &format!("member-{member}-{op}-requests"))
}

fn read(id: u64, lba: u64, sectors: u32) -> Request {
    Request::new(id, Op::Read, lba, sectors)
}

fn write(id: u64, lba: u64, sectors: u32) -> Request {
    Request::new(id, Op::Write, lba, sectors)
}

const MILLIS: fn(u64) -> Nanos = Nanos::from_millis;

#[test]
fn a_striped_request_goes_to_all_members_at_once() {
    let mut raid0 = array("level = \"raid0\"\nmember = \"wu-tsai-baseline\"\ncount = 4\nchunk = \"4 KiB\"");
    // Two rows: 8 KiB on each member, random: 6.3 µs (Wu and Tsai, table III) and not four times as long.
    assert_eq!(complete(raid0.as_mut(), read(1, 0, 64)), Nanos::from_nanos(6_300));
    assert!((0..4).all(|member| asked(raid0.as_ref(), member, Op::Read) == 1), "pieces that follow each other are one");
}

#[test]
fn parity_writes_cost_what_they_read_first() {
    let small = |level, count, keys| complete(constant(level, count, keys).as_mut(), write(1, 0, 8));
    assert_eq!(small("raid5", 5, ""), MILLIS(2), "old data and parity are read, then both are written");
    assert_eq!(small("raid6", 8, ""), MILLIS(2));
    assert_eq!(
        small("raid5", 5, "failed = [4]"),
        MILLIS(2),
        "row 0 has its parity on the last member: md reads the other data although no parity is left"
    );
    assert_eq!(small("raid5", 5, "failed = [0]"), MILLIS(2), "the other data give the parity");
    let mut whole = constant("raid5", 5, "");
    assert_eq!(complete(whole.as_mut(), write(1, 0, 32)), MILLIS(1), "a whole row needs no read");
    assert_eq!(counter(whole.as_ref(), "full-row-writes"), 1);
    // Read-modify-write of one of seven units: two reads; of six: the one unit left is read.
    let mut eight = constant("raid5", 8, "");
    complete(eight.as_mut(), write(1, 0, 8));
    complete(eight.as_mut(), write(2, 0, 48));
    let reads: u64 = (0..8).map(|member| asked(eight.as_ref(), member, Op::Read)).sum();
    let writes: u64 = (0..8).map(|member| asked(eight.as_ref(), member, Op::Write)).sum();
    assert_eq!((reads, writes), (2 + 1, 2 + 7));
    assert_eq!(counter(eight.as_ref(), "read-modify-writes"), 1);
    assert_eq!(counter(eight.as_ref(), "reconstruct-writes"), 1);
}

#[test]
fn writes_to_one_row_follow_each_other() {
    let both = |lba| {
        let mut device = constant("raid5", 5, "");
        device.submit(write(1, 0, 8));
        complete_all(device.as_mut(), write(2, lba, 8))
    };
    assert_eq!(both(32), MILLIS(2), "another row");
    assert_eq!(both(8), MILLIS(3), "the same parity: the second joins while the first reads; both are written at once");
    assert_eq!(both(0), MILLIS(3), "the same block: the second waits for the write of the first, and reads nothing");
    let parallel = |keys: &str| {
        let outcome = closed_loop(constant("raid5", 5, keys).as_mut(), 4, 4, |id| write(id, id * 32, 8));
        outcome.last
    };
    assert_eq!(parallel(""), MILLIS(2));
    assert_eq!(parallel("stripe-cache = 2"), MILLIS(4), "two have a place at a time");
}

/// Requests of the members per write of 4 KiB: reads and writes.
fn requests_per_write(keys: &str, count: u64, lba: impl FnMut(u64) -> u64) -> (f64, f64) {
    let member = "member = \"constant-1ms\"\ncount = 8\nchunk = \"64 KiB\"";
    let mut device = array(&format!("level = \"raid5\"\n{member}\n{keys}"));
    let mut lba = lba;
    closed_loop(device.as_mut(), 1, count, |id| write(id, lba(id), 8));
    let requests = |op| (0..8).map(|member| asked(device.as_ref(), member, op)).sum::<u64>() as f64 / count as f64;
    (requests(Op::Read), requests(Op::Write))
}

#[test]
fn small_writes_read_as_much_as_md_reads() {
    let random = |keys| {
        let mut stream = RandomStream::new(5, "small writes", "positions");
        requests_per_write(keys, 4_000, |_| stream.below(1 << 20) * 8)
    };
    let (reads, writes) = random("");
    assert!((1.99..=2.0).contains(&reads) && writes == 2.0, "{reads} reads of old data and parity, {writes} writes");
    // One write in eight is to the failed member and one has its parity there: six reads each, and one write.
    let (reads, writes) = random("failed = [2]");
    assert!((2.9..3.1).contains(&reads) && (1.7..1.8).contains(&writes), "{reads} reads, {writes} writes");
    // Sixteen stripes keep the parity and the other data of a row of chunks while it is written.
    let rows = 50 * 7 * 16;
    assert_eq!(requests_per_write("", rows, |id| id * 8), (1.0, 2.0));
}

#[test]
fn sequential_writes_at_depth_join_rows_before_their_reads_are_done() {
    let reads = |depth: u64| {
        let mut device = array("level = \"raid5\"\nmember = \"constant-1ms\"\ncount = 8\nchunk = \"64 KiB\"");
        closed_loop(device.as_mut(), depth, 700, |id| write(id, id * 2_048, 2_048));
        (0..8).map(|member| asked(device.as_ref(), member, Op::Read)).sum::<u64>()
    };
    // At depth 1, each write reads the other data of its last row, which the next write finds in the cache.
    assert!(reads(16) <= reads(1), "{} reads at depth 16, {} at depth 1", reads(16), reads(1));
}

#[test]
fn a_full_stripe_cache_takes_writes_again_when_a_quarter_is_free() {
    let mut device = constant("raid5", 5, "stripe-cache = 8");
    // Eight rows are written whole; the ninth write waits until at most five stripes are active.
    (0..8).for_each(|row| device.submit(write(row, row * 32, 32)));
    assert_eq!(complete_all(device.as_mut(), write(8, 8 * 32, 32)), MILLIS(2));
    assert_eq!(counter(device.as_ref(), "parity-writes-delayed"), 1);
}

#[test]
fn a_waiting_write_is_handled_before_the_next_one_completes_its_row() {
    let mut device = constant("raid5", 5, "stripe-cache = 4");
    (0..4).for_each(|row| device.submit(write(row, row * 32, 32)));
    device.submit(write(4, 4 * 32, 16));
    let last = complete_all(device.as_mut(), write(5, 4 * 32 + 16, 16));
    assert_eq!(last, MILLIS(3), "the first half reads the rest of the row; the second half joins meanwhile");
    assert_eq!(counter(device.as_ref(), "full-row-writes"), 5);
}

#[test]
fn a_degraded_array_keeps_the_blocks_that_it_has_read() {
    let mut device = constant("raid5", 5, "failed = [0]");
    assert_eq!(complete(device.as_mut(), read(1, 0, 8)), MILLIS(1), "computed from the row");
    let again = complete(device.as_mut(), read(2, 0, 32));
    assert_eq!(again, Nanos::from_nanos(1), "the whole row is in the cache");
    assert_eq!((0..5).map(|member| asked(device.as_ref(), member, Op::Read)).sum::<u64>(), 4);
}

/// Submits one more request and returns the instant at which the last outstanding one completes.
fn complete_all(device: &mut dyn DeviceModel, request: Request) -> Nanos {
    device.submit(request);
    let mut completed = Vec::new();
    while device.outstanding() > 0 {
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, &mut completed);
    }
    device.now()
}

#[test]
fn with_any_member_failed_each_level_serves_and_does_not_touch_it() {
    for (level, count) in [("raid1", 2), ("raid10", 4), ("raid4", 4), ("raid5", 5), ("raid6", 6)] {
        for failed in 0..count {
            let chunk = if level == "raid1" { "" } else { "chunk = \"16 KiB\"\n" };
            let mut device = array(&format!(
                "level = \"{level}\"\nmember = \"wu-tsai-ch4-x1\"\ncount = {count}\n{chunk}failed = [{failed}]"
            ));
            let mut stream = RandomStream::new(1, level, "requests");
            let outcome = closed_loop(device.as_mut(), 16, 500, |id| {
                let op = [Op::Read, Op::Write, Op::Flush, Op::WriteZeroes, Op::Discard][stream.below(5) as usize];
                let sectors = if op == Op::Flush { 0 } else { 1 + stream.below(400) as u32 };
                let lba = if op == Op::Flush { 0 } else { stream.below(100_000) };
                Request::new(id, op, lba, sectors)
            });
            assert!(outcome.response_times.iter().all(|&time| time > Nanos::ZERO));
            for op in Op::COMMON {
                assert_eq!(asked(device.as_ref(), failed, op), 0, "{level}: {op} at the failed member {failed}");
                let others = (0..count).filter(|&member| member != failed);
                assert!(others.map(|member| asked(device.as_ref(), member, op)).sum::<u64>() > 0, "{level}: {op}");
            }
        }
    }
}

#[test]
fn a_member_fails_at_its_instant() {
    let mut device = constant("raid5", 4, "failed = [0]\nfail-at = \"10 ms\"");
    assert_eq!(complete(device.as_mut(), read(1, 0, 8)), MILLIS(1));
    assert_eq!(asked(device.as_ref(), 0, Op::Read), 1);
    device.step(MILLIS(10), &mut Vec::new());
    complete(device.as_mut(), read(2, 0, 8));
    assert_eq!(asked(device.as_ref(), 0, Op::Read), 1, "gone");
    assert_eq!(counter(device.as_ref(), "reconstructed-reads"), 1);
    assert_eq!((1..4).map(|member| asked(device.as_ref(), member, Op::Read)).sum::<u64>(), 3);
}

#[test]
fn members_carry_equal_loads() {
    let random = |keys: &str, op: Op| {
        let mut device = array(&format!("member = \"wu-tsai-ch4-x1\"\nchunk = \"64 KiB\"\n{keys}"));
        let capacity = device.info().capacity_sectors;
        let mut stream = RandomStream::new(3, "loads", "positions");
        closed_loop(device.as_mut(), 8, 4_000, |id| Request::new(id, op, stream.below(capacity / 8) * 8, 8));
        let members = 0..if keys.contains("count = 8") { 8 } else { 4 };
        members.map(|member| asked(device.as_ref(), member, op)).collect::<Vec<_>>()
    };
    for (keys, op, share) in [
        ("level = \"raid0\"\ncount = 8", Op::Read, 500),
        ("level = \"raid5\"\ncount = 8", Op::Read, 500),
        ("level = \"raid5\"\ncount = 8", Op::Write, 1_000),
        ("level = \"raid6\"\ncount = 8\nlayout = \"right-asymmetric\"", Op::Write, 1_500),
        ("level = \"raid10\"\ncount = 4\nread-policy = \"round-robin\"", Op::Read, 1_000),
        ("level = \"raid10\"\ncount = 4\nlayout = \"far\"\nread-policy = \"primary\"", Op::Read, 1_000),
        ("level = \"raid10\"\ncount = 4\nread-policy = \"fewest-outstanding\"", Op::Read, 1_000),
    ] {
        let loads = random(keys, op);
        // Six standard deviations of a count of 4,000 are less than a fifth of the smallest share.
        let fair = |&load: &u64| load.abs_diff(share) < share / 5;
        assert!(loads.iter().all(fair), "{keys}: {loads:?}");
    }
}

#[test]
fn mirrors_are_read_as_the_policy_says() {
    let four = |policy: &str| {
        let mut device =
            array(&format!("level = \"raid1\"\nmember = \"first-disk\"\ncount = 2\nread-policy = \"{policy}\""));
        // Two reads at once far from each other, then one that continues the second, then one near the first.
        device.submit(read(1, 1_000_000, 8));
        complete_all(device.as_mut(), read(2, 90_000_000, 8));
        complete(device.as_mut(), read(3, 90_000_008, 8));
        complete(device.as_mut(), read(4, 1_000_008, 8));
        [asked(device.as_ref(), 0, Op::Read), asked(device.as_ref(), 1, Op::Read)]
    };
    assert_eq!(four("primary"), [4, 0]);
    assert_eq!(four("round-robin"), [2, 2]);
    assert_eq!(four("fewest-outstanding"), [3, 1], "idle, it is the first one");
    assert_eq!(four("nearest"), [2, 2], "who is there goes on");
    // Both members are busy, so the nearest by address serves.
    let mut device = array("level = \"raid1\"\nmember = \"first-disk\"\ncount = 2");
    device.submit(read(1, 1_000_000, 8));
    complete_all(device.as_mut(), read(2, 90_000_000, 8));
    for (id, lba) in [(3, 2_000_000), (4, 80_000_000), (5, 3_000_000), (6, 70_000_000), (7, 4_000_000)] {
        device.submit(read(id, lba, 8));
    }
    assert_eq!([asked(device.as_ref(), 0, Op::Read), asked(device.as_ref(), 1, Op::Read)], [4, 3]);
}

#[test]
fn flushes_writes_and_discards_reach_whom_they_must() {
    let mut device = array("level = \"raid10\"\nmember = \"wu-tsai-ch4-x1\"\ncount = 4\nchunk = \"4 KiB\"");
    complete(device.as_mut(), Request::new(1, Op::Flush, 0, 0));
    complete(device.as_mut(), write(2, 0, 8));
    complete(device.as_mut(), Request::new(3, Op::Discard, 0, 16));
    let seen = |op| (0..4).map(|member| asked(device.as_ref(), member, op)).collect::<Vec<_>>();
    assert_eq!(seen(Op::Flush), [1, 1, 1, 1]);
    assert_eq!(seen(Op::Write), [1, 1, 0, 0]);
    assert_eq!(seen(Op::Discard), [1, 1, 1, 1]);

    let mut device = constant("raid5", 5, "");
    assert_eq!(device.info().discard_unit_sectors, Some(32), "a row");
    // From the middle of a row to the middle of the one after the next: one row is covered whole.
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Discard, 16, 64)), MILLIS(1));
    assert!((0..5).all(|member| asked(device.as_ref(), member, Op::Discard) == 1));
    assert_eq!(complete(device.as_mut(), Request::new(2, Op::Discard, 16, 8)), Nanos::from_nanos(1), "nothing to do");
    // Zeros over a whole row go to all members; over a part of a row they are data like others.
    complete(device.as_mut(), Request::new(3, Op::WriteZeroes, 32, 40));
    assert!((0..5).all(|member| asked(device.as_ref(), member, Op::WriteZeroes) == 1));
    assert_eq!((0..5).map(|member| asked(device.as_ref(), member, Op::Write)).sum::<u64>(), 2);
}

#[test]
fn capacities_follow_from_the_members() {
    let bytes = |keys: &str| Profile::parse(&text(keys), "test").unwrap().capacity_bytes();
    let one = Profile::find("first-disk").unwrap().capacity_bytes();
    let smaller = Profile::find("battery-backed-ram").unwrap().capacity_bytes();
    let mixed = "members = [\"first-disk\", \"battery-backed-ram\", \"first-disk\", \"first-disk\"]";
    let chunks = |bytes: u64| bytes / (512 << 10) * (512 << 10);
    assert_eq!(bytes("level = \"raid0\"\nmember = \"first-disk\"\ncount = 3"), 3 * chunks(one));
    assert_eq!(bytes(&format!("level = \"linear\"\n{mixed}")), 3 * one + smaller);
    assert_eq!(bytes(&format!("level = \"raid1\"\n{mixed}")), smaller);
    assert_eq!(bytes(&format!("level = \"raid5\"\n{mixed}")), 3 * chunks(smaller));
    assert_eq!(bytes(&format!("level = \"raid6\"\n{mixed}")), 2 * chunks(smaller));
    assert_eq!(bytes(&format!("level = \"raid10\"\n{mixed}")), 2 * chunks(smaller));
    let device = array(&format!("level = \"raid1\"\n{mixed}"));
    assert!(device.info().rotational && !device.info().volatile_cache);
    assert_eq!(device.info().discard_unit_sectors, None, "the disks take none");
}

#[test]
fn spindles_are_not_in_phase() {
    let mut device = array("level = \"linear\"\nmember = \"first-disk\"\ncount = 2");
    let half = device.info().capacity_sectors / 2;
    let first = complete(device.as_mut(), read(1, 0, 8));
    let mut device = array("level = \"linear\"\nmember = \"first-disk\"\ncount = 2");
    let second = complete(device.as_mut(), read(1, half, 8));
    assert_ne!(first, second);
}

#[test]
fn wrong_values_are_refused() {
    for (keys, part) in [
        ("level = \"raid7\"\nmember = \"null\"\ncount = 3", "\"raid6\""),
        ("level = \"raid5\"\nmember = \"null\"\ncount = 2", "at least 3"),
        ("level = \"raid0\"\nmember = \"null\"\ncount = 65", "out of range"),
        ("level = \"raid0\"\nmembers = []", "`members = [..]`"),
        ("level = \"raid0\"\nmember = \"null\"\ncount = 2\nchunk = \"1000 B\"", "multiple"),
        ("level = \"raid0\"\nmember = \"null\"\ncount = 2\nfailed = [0]", "does not survive"),
        ("level = \"raid5\"\nmember = \"null\"\ncount = 4\nfailed = [0, 1]", "does not survive"),
        ("level = \"raid10\"\nmember = \"null\"\ncount = 4\nfailed = [0, 1]", "does not survive"),
        ("level = \"raid5\"\nmember = \"null\"\ncount = 4\nfailed = [4]", "0 to 3"),
        ("level = \"raid5\"\nmember = \"null\"\ncount = 4\nfail-at = \"1 s\"", "no `failed`"),
        ("level = \"raid5\"\nmember = \"null\"\ncount = 4\nread-policy = \"primary\"", "unknown key"),
        ("level = \"raid1\"\nmember = \"null\"\ncount = 2\nchunk = \"4 KiB\"", "unknown key"),
        ("level = \"raid10\"\nmember = \"null\"\ncount = 2\ncopies = 3", "out of range"),
        ("level = \"raid1\"\nmember = \"null\"\ncount = 2\nbus-overhead = \"1 us\"", "without `bus-rate`"),
        ("level = \"raid1\"\nmember = \"null\"\ncount = 2\ncapacity = \"1 PiB\"", "ends at"),
    ] {
        let error = Profile::parse(&text(keys), "test").unwrap_err().to_string();
        assert!(error.contains(part), "{keys}: {error}");
    }
    assert!(Profile::parse(&text("level = \"raid10\"\nmember = \"null\"\ncount = 4\nfailed = [0, 2]"), "test").is_ok());
}
