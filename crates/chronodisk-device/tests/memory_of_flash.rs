//! What a flash drive's tables take, by its spare space.

mod counting;

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_sim::{Op, Request};
use counting::bytes;

const UNIT_BYTES: u64 = 4_096;

/// A terabyte in 64 dies, with so many slots for a hundred units.
fn terabyte(slots_percent: u64) -> Profile {
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
    Profile::parse(&text, "terabyte").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn tables_take_at_most_8_25_bytes_a_unit_and_16_mb_a_terabyte_at_any_spare() {
    // Spare of 7, 12, 20 and 28 % of what the host sees, and of 28 % of the flash.
    for slots_percent in [107, 112, 120, 128, 139] {
        let profile = terabyte(slots_percent);
        let before = bytes();
        let mut drive = profile.build(&BuildOptions::default()).expect("it fits");
        let info = drive.info();
        let units = info.capacity_sectors * 512 / UNIT_BYTES;
        let limit = units * 33 / 4 + 16_000_000;
        drive.submit(Request::new(0, Op::Write, 0, 8));
        let taken = bytes() - before;
        assert!(taken <= limit, "{slots_percent} slots for 100 units: {taken} bytes; expected at most {limit}");
        // Were it much less, the tables would not have been counted.
        assert!(taken > units * 7, "{slots_percent} slots for 100 units: {taken} bytes");
    }
}
