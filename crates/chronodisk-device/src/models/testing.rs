//! What the models' analytic checks share.

use chronodisk_sim::{Completion, Nanos, Request};

use crate::{BuildOptions, DeviceModel, Profile, advance};

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

/// What a closed loop saw.
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
    // The model must also have come to the last completion by itself, not only said so.
    advance(device, last, &mut completed);
    Outcome { last, response_times }
}
