//! Arrays, buses and host queues allocate no memory once they have reached their largest number of requests.
//!
//! There are two exceptions. An array with parity asks a member for its volatile sectors when it writes a part of a
//! page, so these requests have whole pages. And after a thousand writes without a flush it asks all members.

mod counting;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_sim::{Completion, Op, RandomStream, Request};
use counting::allocations;

fn profile(kind: &str, keys: &str) -> String {
    format!(
        "name = \"p\"\nkind = \"{kind}\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n{keys}\n"
    )
}

/// Serves `count` requests with 24 outstanding.
fn serve(device: &mut dyn DeviceModel, stream: &mut RandomStream, count: u64, completed: &mut Vec<Completion>) {
    let capacity = device.info().capacity_sectors;
    let mut submitted = 0;
    while submitted < count || device.outstanding() > 0 {
        while submitted < count && device.outstanding() < 24 {
            let sectors = 8 * (1 + stream.below(75) as u32);
            let op = [Op::Read, Op::Write, Op::WriteZeroes][stream.below(3) as usize];
            let request = Request::new(submitted, op, 8 * stream.below((capacity - 600) / 8), sectors);
            device.submit(Request { issuer: stream.below(4) as u32, ..request });
            submitted += 1;
        }
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, completed);
        completed.clear();
    }
}

#[test]
fn the_steady_state_allocates_nothing() {
    let member = "member = \"first-disk\"\n";
    for text in [
        profile("array", &format!("{member}count = 8\nlevel = \"raid5\"\nfailed = [2]\nchunk = \"64 KiB\"")),
        profile("array", &format!("{member}count = 6\nlevel = \"raid6\"\nchunk = \"16 KiB\"\nstripe-cache = 4")),
        profile("array", &format!("{member}count = 4\nlevel = \"raid10\"\nbus-rate = \"40 MB/s\"")),
        profile("host-queue", &format!("{member}elevator = \"noop\"")),
        profile("host-queue", &format!("{member}elevator = \"cfq\"\nqueue-limit = 4\nmax-request = \"64 KiB\"")),
        profile("host-queue", &format!("{member}elevator = \"deadline\"")),
    ] {
        let profile = Profile::parse(&text, "test").unwrap();
        let mut device = profile.build(&BuildOptions::default()).unwrap();
        let mut stream = RandomStream::new(1, "allocations", "requests");
        let mut completed = Vec::with_capacity(64);
        serve(device.as_mut(), &mut stream, 5_000, &mut completed);
        // A new maximum of memory may come late and rarely; a cost per request would be in every round.
        let mut round = || {
            let before = allocations();
            serve(device.as_mut(), &mut stream, 1_000, &mut completed);
            allocations() - before
        };
        let rounds: Vec<u64> = (0..10).map(|_| round()).collect();
        let asks_members = text.contains("raid5") || text.contains("raid6") || text.contains("raid10");
        let most = if asks_members { 500 } else { 20 };
        assert!(rounds.contains(&0) && rounds.iter().sum::<u64>() < most, "{rounds:?} allocations:\n{text}");
    }
}
