//! Memory of a flash drive's tables, by its spare space and its options.

mod counting;

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_sim::{Nanos, Op, Request};
use counting::bytes;

const UNIT_BYTES: u64 = 4_096;

/// Limit of a terabyte drive: per unit, and in addition.
fn limit_of(units: u64) -> u64 {
    units * 33 / 4 + 16_000_000
}

/// A terabyte in 64 dies, with this number of slots per hundred units, and with other lines of the profile changed.
fn terabyte(slots_percent: u64, changes: &[(&str, &str)]) -> Profile {
    const DIES: u64 = 64;
    const UNITS_PER_SUPERBLOCK: u64 = 2 * 1_152 * 4;
    let units = 1_000_000_000_000 / UNIT_BYTES;
    let blocks = units * slots_percent / 100 / DIES / UNITS_PER_SUPERBLOCK;
    let mut text = Profile::find("wd-zn540").expect("a built-in profile").text().to_owned();
    for (from, to) in [
        ("\nchips-per-channel = 4", "\nchips-per-channel = 8".to_owned()),
        ("\nblocks-per-plane = 912", format!("\nblocks-per-plane = {blocks}")),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, &to, 1);
    }
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    Profile::parse(&text, "terabyte").unwrap_or_else(|error| panic!("{error}"))
}

/// Bytes that a drive holds after some requests, and its units.
fn taken_by(profile: &Profile) -> (u64, u64) {
    let before = bytes();
    let mut drive = profile.build(&BuildOptions::default()).expect("it fits");
    let units = drive.info().capacity_sectors * 512 / UNIT_BYTES;
    let mut completed = Vec::new();
    for id in 0..2_000 {
        let op = if id % 2 == 0 { Op::Write } else { Op::Read };
        drive.submit(Request::new(id, op, id * 2_654_435_761 % (units - 8) * 8, 64));
        if drive.outstanding() == 64 {
            drive.step(Nanos::MAX, &mut completed);
        }
    }
    drop(completed);
    (bytes() - before, units)
}

/// One test, because memory of concurrent tests would be counted too.
#[test]
fn tables_take_at_most_8_25_bytes_a_unit_and_16_mb_a_terabyte() {
    any_spare_does();
    no_option_takes_more();
    zones_take_no_memory_for_units();
}

fn any_spare_does() {
    // Spare of 7, 12, 20 and 28 % of the host's capacity, and of 28 % of the flash.
    for slots_percent in [107, 112, 120, 128, 139] {
        let profile = terabyte(slots_percent, &[]);
        let (taken, units) = taken_by(&profile);
        let limit = limit_of(units);
        assert!(taken <= limit, "{slots_percent} slots for 100 units: {taken} bytes; expected at most {limit}");
        // Were it much less, the tables would not have been counted.
        assert!(taken > units * 7, "{slots_percent} slots for 100 units: {taken} bytes");
    }
}

fn no_option_takes_more() {
    const TRANSLATION: &str = "allocation = \"dynamic\"\ncollector = \"greedy\"\ncollect-below = 8\n";
    // Only dynamic allocation has stripes in any order.
    const IN_ORDER: (&str, &str) = ("\nstripes-mixed", "\n# stripes-mixed");
    const GREEDY: &str = "collector = \"greedy\"";
    const SUSPEND: &str = "[flash.program-suspend]";
    const SLC: &str =
        "[flash.slc-cache]\nblocks-per-plane = 32\nread = \"25 us\"\nprogram = \"200 us\"\n\n[flash.program-suspend]";
    let options: [(&str, &[(&str, &str)]); 13] = [
        ("commands before data", &[("command-after-data = true", "command-after-data = false")]),
        ("slc-cache", &[(SUSPEND, SLC)]),
        ("log-block", &[(TRANSLATION, "allocation = \"log-block\"\nopen-logs = 8\ncollect-below = 4\n"), IN_ORDER]),
        ("a cached map", &[(GREEDY, "mapping-cache-entries = 1048576\ncollector = \"greedy\"")]),
        ("static", &[("\"dynamic\"", "\"CWDP\""), IN_ORDER]),
        ("stripes in order", &[IN_ORDER]),
        ("wear levelling", &[(GREEDY, "level-wear-at-difference = 50\ncollector = \"greedy\"")]),
        ("fifo", &[(GREEDY, "collector = \"fifo\"")]),
        ("cost-benefit", &[(GREEDY, "collector = \"cost-benefit\"")]),
        ("choices", &[(GREEDY, "collector = \"choices\"")]),
        ("random", &[(GREEDY, "collector = \"random\"")]),
        (
            "a queue of one",
            &[("interface = \"nvme\"\nqueue-depth = 1024", "interface = \"single-queue\"\nqueue-depth = 1")],
        ),
        ("any order", &[("release = \"in-order\"", "release = \"any-order\"")]),
    ];
    for (name, changes) in options {
        // An SLC region needs additional room.
        let slots_percent = if name == "slc-cache" { 128 } else { 112 };
        let (taken, units) = taken_by(&terabyte(slots_percent, changes));
        let limit = limit_of(units);
        assert!(taken <= limit, "{name}: {taken} bytes; expected at most {limit}");
        assert!(taken > units * 7, "{name}: {taken} bytes");
    }
}

fn zones_take_no_memory_for_units() {
    let profile = Profile::find("wd-zn540-zones").expect("a built-in profile");
    let (taken, _) = taken_by(&profile);
    assert!(taken <= 16_000_000, "{taken} bytes");
}
