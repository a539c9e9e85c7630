//! Changed bytes of a saved state of a small flash drive, mapped by page, by block or by zone, with right checksums:
//! refused, or a drive that works.
#![no_main]

use std::ops::ControlFlow;
use std::sync::OnceLock;

use chronodisk_device::{AgeingOptions, BuildOptions, Profile, reseal_state};
use chronodisk_sim::{Nanos, Op, Request};
use libfuzzer_sys::fuzz_target;

const PAGES: &str = "allocation = \"dynamic\"\nmapping-cache-entries = 16\ncollector = \"greedy\"\n";
const BLOCKS: &str = "allocation = \"log-block\"\nopen-logs = 2\n";

const ZONES: &str = "allocation = \"zones\"\nzone-size = \"128 KiB\"\nzone-capacity = \"96 KiB\"\nactive-zones = 4\n";
/// What else is other where there are zones.
const FOR_ZONES: [(&str, &str); 2] =
    [("[buffer]\n", "[buffer]\npower-loss-protection = true\n"), ("collect-below = 3\n", "")];

/// What maps pages, blocks with logs, and zones.
const TRANSLATIONS: [&str; 3] = [PAGES, BLOCKS, ZONES];

/// A small drive of kind `ssd`, and its state after random writes.
fn drive(translation: usize) -> &'static (Profile, Vec<u8>) {
    static DRIVES: [OnceLock<(Profile, Vec<u8>)>; 3] = [const { OnceLock::new() }; 3];
    DRIVES[translation].get_or_init(|| {
        let translation = TRANSLATIONS[translation];
        let mut text = include_str!("../small-ssd.toml").replace(PAGES, translation);
        assert!(text.contains(translation));
        if translation == ZONES {
            FOR_ZONES.iter().for_each(|(from, to)| text = text.replace(from, to));
        }
        let profile = Profile::parse(&text, "small-ssd.toml").expect("the profile is sound");
        let build = BuildOptions::default();
        // Of zones some stay empty.
        let ageing =
            AgeingOptions { occupied: if translation == ZONES { 0.5 } else { 1.0 }, ..AgeingOptions::default() };
        let aged = profile.age(&build, &ageing, &mut |_| ControlFlow::Continue(()));
        let (state, _) = aged.expect("it is a flash drive").expect("nobody ended it");
        let mut bytes = Vec::new();
        let written: Result<(), ()> = state.write(&mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        written.expect("nothing refuses a piece");
        (profile, bytes)
    })
}

fuzz_target!(|input: (u8, Vec<(u32, u8)>)| {
    let (translation, changes) = input;
    let translation = usize::from(translation) % TRANSLATIONS.len();
    let (profile, sound) = drive(translation);
    let mut bytes = sound.clone();
    for (place, byte) in changes {
        // Half of the changes go where the small sections are.
        let within = if place % 2 == 0 { bytes.len() } else { 16_384 };
        bytes[(place / 2) as usize % within] = byte;
    }
    reseal_state(&mut bytes);
    let build = BuildOptions::default();
    let Ok(state) = profile.read_state(&build, bytes.as_slice()) else { return };
    let mut device = profile.build_from_state(&build, state).expect("it is of this profile");
    let blocks = device.info().capacity_sectors / 8;
    let zones = device.info().zones;
    let mut completed = Vec::new();
    for id in 0..200 {
        let lba = id * 2_654_435_761 % blocks * 8;
        let request = match (zones, id % 16) {
            (None, 0) => Request::new(id, Op::Discard, lba, 8),
            (None, _) => Request::new(id, Op::Write, lba, 8),
            (Some(zones), rest) => {
                let op =
                    [Op::ZoneReset, Op::ZoneFinish, Op::Read].get(rest as usize).copied().unwrap_or(Op::ZoneAppend);
                Request::new(id, op, lba / zones.size_sectors * zones.size_sectors, 8 * (1 + rest as u32 / 4))
            }
        };
        device.submit(request);
        while device.outstanding() > 0 {
            device.step(Nanos::MAX, &mut completed);
        }
    }
    assert_eq!(completed.len(), 200);
});
