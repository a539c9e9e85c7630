//! Models serve requests until the latest permitted arrival, and get there at a bounded cost.

use std::time::{Duration, Instant};

use chronodisk_device::{BuildOptions, LATEST_ARRIVAL, Profile};
use chronodisk_sim::{Nanos, Op, Request};

/// Far longer than any request, far shorter than the remaining time.
const LONGEST: Nanos = Nanos::from_secs(3_600);

#[test]
fn every_builtin_device_serves_the_last_arrival() {
    for builtin in Profile::builtin() {
        let profile = Profile::find(&builtin.name).unwrap();
        if profile.memory_bytes_max(&BuildOptions::default()).unwrap() > 1 << 30 {
            continue;
        }
        let begun = Instant::now();
        let mut device = profile.build(&BuildOptions::default()).unwrap();
        let mut completed = Vec::new();
        // A request before, so that background work has begun.
        device.submit(Request::new(0, Op::Read, 0, 8));
        while device.outstanding() > 0 {
            device.step(Nanos::MAX, &mut completed);
        }
        device.step(LATEST_ARRIVAL, &mut completed);
        assert_eq!(device.now(), LATEST_ARRIVAL, "{}", builtin.name);
        completed.clear();
        for id in 1..9 {
            device.submit(Request::new(id, Op::Read, id * 1_000, 8));
        }
        while device.outstanding() > 0 {
            device.step(Nanos::MAX, &mut completed);
        }
        let last = completed.iter().map(|completion| completion.at).max().unwrap();
        assert!(last > LATEST_ARRIVAL && last - LATEST_ARRIVAL < LONGEST, "{}: {last}", builtin.name);
        assert!(begun.elapsed() < Duration::from_secs(10), "{}: {:?}", builtin.name, begun.elapsed());
    }
}
