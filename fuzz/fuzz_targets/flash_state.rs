//! Changed bytes of a saved state of a small flash drive, mapped by page or by block, with right checksums: refused, or
//! a drive that works.
#![no_main]

use std::ops::ControlFlow;
use std::sync::OnceLock;

use chronodisk_device::{AgeingOptions, BuildOptions, Profile, reseal_state};
use chronodisk_sim::{Nanos, Op, Request};
use libfuzzer_sys::fuzz_target;

const PAGES: &str = "allocation = \"dynamic\"\nmapping-cache-entries = 16\ncollector = \"greedy\"\n";
const BLOCKS: &str = "allocation = \"log-block\"\nopen-logs = 2\n";

/// A small drive of kind `ssd`, and its state after random writes; one that maps pages, or blocks with logs.
fn drive(logs: bool) -> &'static (Profile, Vec<u8>) {
    static DRIVES: [OnceLock<(Profile, Vec<u8>)>; 2] = [OnceLock::new(), OnceLock::new()];
    DRIVES[usize::from(logs)].get_or_init(|| {
        let mut text = include_str!("../small-ssd.toml").to_owned();
        if logs {
            text = text.replace(PAGES, BLOCKS);
            assert!(text.contains(BLOCKS));
        }
        let profile = Profile::parse(&text, "small-ssd.toml").expect("the profile is sound");
        let build = BuildOptions::default();
        let aged = profile.age(&build, &AgeingOptions::default(), &mut |_| ControlFlow::Continue(()));
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

fuzz_target!(|input: (bool, Vec<(u32, u8)>)| {
    let (logs, changes) = input;
    let (profile, sound) = drive(logs);
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
    let mut completed = Vec::new();
    for id in 0..200 {
        let lba = id * 2_654_435_761 % blocks * 8;
        let op = if id % 16 == 0 { Op::Discard } else { Op::Write };
        device.submit(Request::new(id, op, lba, 8));
        while device.outstanding() > 0 {
            device.step(Nanos::MAX, &mut completed);
        }
    }
    assert_eq!(completed.len(), 200);
});
