//! The order of a disk's schedulers that Worthington, Ganger and Patt found ("Scheduling Algorithms for Modern Disk
//! Drives", SIGMETRICS 1994): for random requests under load, who knows the rotational position (SPTF) beats who knows
//! the seek (SSTF, C-LOOK), who beats the order of arrival; greed makes some requests wait long, ageing mends that.

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_sim::{Nanos, Op, RandomStream, Request};

/// A drive of the kind that the paper studies (HP C2247A: 5,400 rpm, 2,051 cylinders, 13 surfaces), with round figures.
fn drive(scheduler: &str) -> String {
    format!(
        "name = \"drive\"\nkind = \"disk\"\ndescription = \"a drive of 1994\"\nsource = \"round figures\"\n\
         validation = \"unvalidated\"\ncapacity = \"1 GB\"\n\
         [geometry]\nsurfaces = 13\ncylinders = 2051\n\
         [[geometry.zones]]\nfirst-cylinder = 0\nlast-cylinder = 2050\nblocks-per-track = 80\n\
         track-skew = \"8 sectors\"\ncylinder-skew = \"18 sectors\"\n\
         [mechanics]\nrotation = \"5400 rpm\"\nhead-switch = \"0.9 ms\"\n\
         seek = {{ curve = \"lee\", single = \"2.5 ms\", average = \"10 ms\", full = \"22 ms\" }}\n\
         [controller]\nsegments = 2\nsegment-size = \"64 KiB\"\nwrite-buffer = \"64 KiB\"\nqueue-depth = 128\n\
         age-bound = \"10 s\"\nlongest-pass = \"10 s\"\n{scheduler}\n"
    )
}

/// Response times of random reads of 4 KiB in a closed loop, in order of size.
fn response_times(scheduler: &str, depth: u64) -> Vec<Nanos> {
    const REQUESTS: u64 = 6_000;
    let profile = Profile::parse(&drive(scheduler), "drive").unwrap();
    let mut device = profile.build(&BuildOptions { seed: 1, ..BuildOptions::default() }).unwrap();
    let places = device.info().capacity_sectors / 8;
    let mut stream = RandomStream::new(1, "schedulers", "positions");
    let mut arrivals = Vec::new();
    let (mut times, mut completed) = (Vec::new(), Vec::new());
    while (times.len() as u64) < REQUESTS {
        while u64::from(device.outstanding()) < depth && (arrivals.len() as u64) < REQUESTS {
            device.submit(Request::new(arrivals.len() as u64, Op::Read, stream.below(places) * 8, 8));
            arrivals.push(device.now());
        }
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, &mut completed);
        times.extend(completed.drain(..).map(|completion| completion.at - arrivals[completion.id.0 as usize]));
    }
    times.sort();
    times
}

fn mean(times: &[Nanos]) -> f64 {
    times.iter().map(|time| time.as_millis_f64()).sum::<f64>() / times.len() as f64
}

fn p99(times: &[Nanos]) -> f64 {
    times[times.len() * 99 / 100].as_millis_f64()
}

#[test]
fn under_load_the_order_is_that_of_the_literature() {
    let [fcfs, sstf, c_look, sptf, aged] = [
        "scheduler = \"fcfs\"",
        "scheduler = \"sstf\"",
        "scheduler = \"c-look\"",
        "scheduler = \"sptf\"",
        "scheduler = \"aged-sptf\"\nweight = 0.006",
    ]
    .map(|scheduler| response_times(scheduler, 32));
    let means = [&sptf, &aged, &sstf, &c_look, &fcfs].map(|times| mean(times));
    assert!(means[0] <= means[1] * 1.02, "SPTF is the fastest: {means:?}");
    assert!(means[1] * 1.05 < means[2] && means[1] * 1.05 < means[3], "who knows the rotation is faster: {means:?}");
    assert!(means[2] * 1.2 < means[4] && means[3] * 1.2 < means[4], "who knows the seek beats arrival: {means:?}");
    // Starvation: the greedy ones have long tails, C-LOOK and ageing shorter ones.
    let tails = [&sstf, &c_look, &sptf, &aged].map(|times| p99(times) / mean(times));
    assert!(tails[1] < tails[0], "C-LOOK starves fewer than SSTF: {tails:?}");
    assert!(tails[3] < tails[2], "ageing mends SPTF: {tails:?}");
    assert!(p99(&fcfs) / mean(&fcfs) < tails[2].min(tails[0]), "the order of arrival starves nobody");
}

#[test]
fn without_a_queue_all_are_one() {
    let one = response_times("scheduler = \"fcfs\"", 1);
    for scheduler in ["scheduler = \"sptf\"", "scheduler = \"c-look\"", "scheduler = \"sstf\""] {
        assert_eq!(response_times(scheduler, 1), one, "{scheduler}");
    }
}
