//! Common parts of the models' analytic checks.

use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request};

use crate::{BuildOptions, DeviceModel, Probe, Profile, advance};

/// The device of a built-in profile.
pub(crate) fn build(name: &str, seed: u64) -> Box<dyn DeviceModel> {
    let profile = Profile::find(name).expect("a built-in profile");
    profile.build(&BuildOptions { seed, ..BuildOptions::default() }).expect("its own capacity fits")
}

/// The device of a profile's text.
pub(crate) fn build_text(text: &str, seed: u64) -> Box<dyn DeviceModel> {
    let profile = Profile::parse(text, "test").expect("a valid profile");
    profile.build(&BuildOptions { seed, ..BuildOptions::default() }).expect("its own capacity fits")
}

/// Submits one request to an idle device and returns the time until it completes.
pub(crate) fn complete(device: &mut dyn DeviceModel, request: Request) -> Nanos {
    let (arrival, mut completed) = (device.now(), Vec::new());
    device.submit(request);
    while completed.is_empty() {
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, &mut completed);
    }
    assert_eq!(completed.len(), 1);
    completed[0].at - arrival
}

/// Results of a closed loop.
pub(crate) struct Outcome {
    /// The last completion.
    pub(crate) last: Nanos,
    /// Completion minus arrival by request.
    pub(crate) response_times: Vec<Nanos>,
}

/// Keeps `depth` requests outstanding from instant zero on until `count` have been submitted, then drains.
pub(crate) fn closed_loop(
    device: &mut dyn DeviceModel,
    depth: u64,
    count: u64,
    mut request: impl FnMut(u64) -> Request,
) -> Outcome {
    let mut arrivals = Vec::new();
    let mut response_times = vec![Nanos::ZERO; count as usize];
    let mut completed: Vec<Completion> = Vec::new();
    while arrivals.len() < depth as usize {
        device.submit(request(arrivals.len() as u64));
        arrivals.push(device.now());
    }
    let mut last = Nanos::ZERO;
    while device.outstanding() > 0 {
        completed.clear();
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, &mut completed);
        for completion in &completed {
            last = completion.at;
            response_times[completion.id.0 as usize] = completion.at - arrivals[completion.id.0 as usize];
            if (arrivals.len() as u64) < count {
                device.submit(request(arrivals.len() as u64));
                arrivals.push(device.now());
            }
        }
    }
    // The model must have advanced to the last completion by itself.
    advance(device, last, &mut completed);
    Outcome { last, response_times }
}

/// Serves bursts of requests that overlap, follow and repeat each other, more than a drive queues, with idle times
/// between.
/// # Panics
/// If no request completes although some are outstanding.
pub(crate) fn tangle(name: &str, device: &mut dyn DeviceModel, seed: u64) {
    let mut stream = RandomStream::new(seed, "testing", "tangle");
    let capacity = device.info().capacity_sectors;
    let unit = u64::from(device.info().logical_block_bytes) / chronodisk_sim::SECTOR_BYTES;
    let span = [capacity, capacity.min(100_000), capacity.min(2_000)][stream.below(3) as usize] / unit;
    let writes = [0.1, 0.5, 0.9][stream.below(3) as usize];
    let longest = [8, 64, 512, 4_096, 65_536][stream.below(5) as usize].min(span);
    let (mut completed, mut id) = (Vec::new(), 0);
    for _ in 0..6 {
        let gap = [0, 1_000_000, 30_000_000, 10_000_000_000][stream.below(4) as usize];
        let until = device.now() + Nanos::from_nanos(stream.below(gap + 1));
        advance(device, until, &mut completed);
        let mut next = stream.below(span);
        for _ in 0..=stream.below(60) {
            let op = if stream.chance(writes) { Op::Write } else { Op::Read };
            let blocks = 1 + stream.below(longest);
            let first = if stream.chance(0.25) { stream.below(span) } else { next }.min(capacity / unit - blocks);
            next = first + if stream.chance(0.8) { blocks } else { 0 };
            let fua = op == Op::Write && stream.chance(0.1);
            device.submit(Request { fua, ..Request::new(id, op, first * unit, (blocks * unit) as u32) });
            id += 1;
            if stream.chance(0.3) {
                let until = device.now() + Nanos::from_nanos(stream.below(2_000_000));
                advance(device, until, &mut completed);
            }
        }
        // Every other burst meets the rest of the previous one.
        if stream.chance(0.5) {
            drain(name, device, seed, &mut completed);
        }
    }
    drain(name, device, seed, &mut completed);
    assert_eq!(completed.len() as u64, id, "{name}, seed {seed}");
}

fn drain(name: &str, device: &mut dyn DeviceModel, seed: u64, completed: &mut Vec<Completion>) {
    /// Far more than the tracks of the longest request.
    const MOST_EVENTS: u32 = 50_000;
    let mut events = 0;
    while device.outstanding() > 0 {
        let already = completed.len();
        let next = device.next_event().unwrap_or_else(|| panic!("{name}, seed {seed}: requests wait for nothing"));
        device.step(next, completed);
        events = if completed.len() > already { 0 } else { events + 1 };
        assert!(events < MOST_EVENTS, "{name}, seed {seed}: nothing completes in {events} events");
    }
}

/// A statistic of a device.
///
/// # Panics
/// If it has no statistic of that name.
pub(crate) fn counter(device: &dyn DeviceModel, name: &str) -> u64 {
    struct One<'a>(&'a str, Option<u64>);
    impl Probe for One<'_> {
        fn counter(&mut self, name: &str, value: u64) {
            if name == self.0 {
                self.1 = Some(value);
            }
        }
        fn gauge(&mut self, name: &str, _unit: &str, value: f64) {
            self.counter(name, value as u64);
        }
    }
    let mut one = One(name, None);
    device.probe(&mut one);
    one.1.expect("a statistic of that name")
}
