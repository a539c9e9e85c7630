//! Any text as a profile: an error with a place inside the text, or a device that serves requests and forks.
#![no_main]

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_sim::{Nanos, Op, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let profile = match Profile::parse(text, "fuzz") {
        Ok(profile) => profile,
        Err(error) => {
            assert!(error.line.is_none_or(|line| (1..=text.split('\n').count() as u32 + 1).contains(&line)), "{error}");
            assert!(error.column != Some(0));
            return;
        }
    };
    assert_eq!(profile.text(), text);
    let mut device = profile.build(&BuildOptions::default()).expect("its own capacity was checked");
    let info = device.info().clone();
    let block = u64::from(info.logical_block_bytes) / 512;
    let longest = info.capacity_sectors.min(u64::from(u32::MAX)) / block * block;
    let mut completed = Vec::new();
    for (id, op) in [Op::Read, Op::Read, Op::Write, Op::Discard, Op::WriteZeroes, Op::Flush].into_iter().enumerate() {
        let request = match op {
            Op::Flush => Request::new(id as u64, op, 0, 0),
            // The first read is the longest there is, the second lies at the end.
            Op::Read if id == 0 => Request::new(0, op, 0, longest as u32),
            _ => Request::new(id as u64, op, info.capacity_sectors - block, block as u32),
        };
        device.submit(request);
        device.fork().submit(Request::new(99, Op::Write, 0, block as u32));
        if id == 2 {
            device.step(Nanos::MAX, &mut completed);
        }
    }
    for _ in 0..6 {
        if device.outstanding() > 0 {
            device.step(Nanos::MAX, &mut completed);
        }
    }
    assert_eq!((completed.len(), device.outstanding()), (6, 0));
});
