//! A closed loop whose records are handed on as they complete, so that its memory depends on what
//! is outstanding and not on how long it runs.
//!
//! It does what `chronodisk_engine::sim::closed_loop` does, which keeps the whole log; a test holds
//! the two to the same records.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use chronodisk_device::DeviceModel;
use chronodisk_engine::sim::{Issue, SimulationError};
use chronodisk_sim::{Completion, EventQueue, Nanos, Request, RequestId, RequestRecord, Status};

/// Keeps `depth` requests outstanding or thought about until `requests` ends or `seen` breaks, then
/// lets all complete. `seen` gets every record once, complete, in order of arrival.
///
/// # Errors
/// On a depth of zero, and on a request that leaves the device or time.
///
/// # Panics
/// If the model says that an outstanding request will never complete.
pub fn closed_loop(
    model: &mut dyn DeviceModel,
    requests: impl IntoIterator<Item = Issue>,
    depth: u32,
    mut seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    if depth == 0 {
        return Err(SimulationError::NoDepth);
    }
    let mut requests = requests.into_iter().fuse();
    let mut window = Window::default();
    let mut thinking: EventQueue<Request> = EventQueue::new();
    let mut ready: VecDeque<Request> = VecDeque::new();
    let mut completions: Vec<Completion> = Vec::with_capacity(depth as usize);
    let mut room = depth;
    let mut stopped = false;
    loop {
        let now = model.now();
        while room > 0 && !stopped {
            let Some(issue) = requests.next() else { break };
            room -= 1;
            if issue.think == Nanos::ZERO {
                ready.push_back(issue.request);
                continue;
            }
            let order = window.next_order();
            thinking.push(now.checked_add(issue.think).ok_or(SimulationError::BeyondTime { order })?, issue.request);
        }
        // What was planned earlier for this instant arrives before what was added without a pause.
        while let Some(request) = thinking.pop_until(now).map(|(_, request)| request).or_else(|| ready.pop_front()) {
            submit(model, &mut window, request)?;
        }
        let next_arrival = thinking.next_at();
        if next_arrival.is_none() && model.outstanding() == 0 {
            return Ok(());
        }
        model.step(next_arrival.unwrap_or(Nanos::MAX), &mut completions);
        assert!(
            next_arrival.is_some() || !completions.is_empty(),
            "model {}: {} requests never complete",
            model.info().name,
            model.outstanding()
        );
        finish_instant(model, &mut completions);
        for completion in completions.drain(..) {
            window.complete(completion);
            room += 1;
        }
        while let Some(record) = window.pop() {
            stopped |= seen(&record).is_break();
        }
    }
}

/// What else completes at this instant does so before anything arrives there.
fn finish_instant(model: &mut dyn DeviceModel, completions: &mut Vec<Completion>) {
    let now = model.now();
    loop {
        let before = completions.len();
        model.step(now, completions);
        if completions.len() == before {
            return;
        }
    }
}

fn submit(model: &mut dyn DeviceModel, window: &mut Window, mut request: Request) -> Result<(), SimulationError> {
    let capacity_sectors = model.info().capacity_sectors;
    let end = request.lba.0.checked_add(u64::from(request.sectors));
    if end.is_none_or(|end| end > capacity_sectors) {
        let (order, lba, sectors) = (window.next_order(), request.lba.0, request.sectors);
        return Err(SimulationError::OutOfRange { order, lba, sectors, capacity_sectors });
    }
    request.id = RequestId(window.next_order());
    window.arrive(&request, model.now());
    model.submit(request);
    Ok(())
}

/// The records from the oldest outstanding request to the newest, in order of arrival.
#[derive(Default)]
struct Window {
    records: VecDeque<RequestRecord>,
    first_order: u64,
}

impl Window {
    fn next_order(&self) -> u64 {
        self.first_order + self.records.len() as u64
    }

    fn arrive(&mut self, request: &Request, arrival: Nanos) {
        self.records.push_back(RequestRecord {
            device: 0,
            order: self.next_order(),
            op: request.op,
            fua: request.fua,
            priority: request.priority,
            lba: request.lba,
            sectors: request.sectors,
            queue: request.queue,
            issuer: request.issuer,
            arrival,
            due: Nanos::MAX,
            completed: Nanos::MAX,
            status: Status::Ok,
            store_failed: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        });
    }

    fn complete(&mut self, completion: Completion) {
        let record = &mut self.records[(completion.id.0 - self.first_order) as usize];
        record.due = completion.at;
        record.completed = completion.at;
        record.status = completion.status;
    }

    /// Takes the oldest record if its request has completed.
    fn pop(&mut self) -> Option<RequestRecord> {
        self.records.front().filter(|record| record.completed != Nanos::MAX)?;
        self.first_order += 1;
        self.records.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_device::{BuildOptions, Profile};
    use chronodisk_engine::sim;
    use chronodisk_report::Simulation;
    use chronodisk_trace::{Generator, GeneratorOptions, Workload};

    use super::*;
    use crate::streaming::StreamingSummary;

    fn model(profile: &str) -> Box<dyn DeviceModel> {
        Profile::find(profile).unwrap().build(&BuildOptions::default()).unwrap()
    }

    fn requests(workload: Workload, think_max: Nanos) -> impl Iterator<Item = Issue> {
        let options = GeneratorOptions { think_max, ..GeneratorOptions::new(workload, 1 << 19, 3, 500) };
        Generator::new(options).unwrap().map(|it| Issue { request: it.request(RequestId(0)), think: it.think })
    }

    /// Every combination of devices that overlap, queue, and reorder with depths and think times.
    fn cases() -> impl Iterator<Item = (&'static str, u32, Nanos)> {
        let devices = ["null", "constant-100us", "wu-tsai-ch2-x1", "battery-backed-ram", "first-disk"];
        let depths = [1, 7, 600];
        let thinks = [Nanos::ZERO, Nanos::from_nanos(3), Nanos::from_millis(20)];
        devices.into_iter().flat_map(move |device| {
            depths.into_iter().flat_map(move |depth| thinks.into_iter().map(move |think| (device, depth, think)))
        })
    }

    #[test]
    fn gives_the_records_of_the_engines_closed_loop() {
        for (device, depth, think) in cases() {
            let whole = sim::closed_loop(&mut *model(device), requests(Workload::MixedUniform, think), depth).unwrap();
            let mut streamed = Vec::new();
            closed_loop(&mut *model(device), requests(Workload::MixedUniform, think), depth, |record| {
                streamed.push(*record);
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(streamed.len(), 500);
            assert_eq!(streamed, whole, "{device}, depth {depth}, think {think}");
        }
    }

    #[test]
    fn streamed_figures_are_those_of_the_whole_log() {
        for (device, depth, think) in cases() {
            let records = sim::closed_loop(&mut *model(device), requests(Workload::MixedSmall, think), depth).unwrap();
            let whole = Simulation::new(device, "mixed-small", Default::default(), &records);
            let mut streaming = StreamingSummary::default();
            records.iter().for_each(|record| streaming.add(record));
            assert_eq!(streaming.finish(), whole.summary, "{device}, depth {depth}, think {think}");
        }
        assert_eq!(StreamingSummary::default().finish(), Simulation::new("", "", Default::default(), &[]).summary);
    }

    #[test]
    fn ends_when_told_with_everything_complete() {
        let mut seen = 0;
        closed_loop(&mut *model("first-disk"), requests(Workload::RandomSmall, Nanos::ZERO), 8, |record| {
            assert_eq!(record.order, seen);
            seen += 1;
            if seen == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert!((100..=108).contains(&seen), "{seen}");
    }

    #[test]
    fn refuses_what_the_device_does_not_have() {
        let mut null = model("null");
        let end = null.info().capacity_sectors;
        let beyond = Issue { request: Request::new(0, chronodisk_sim::Op::Read, end, 1), think: Nanos::ZERO };
        let go = |_: &RequestRecord| ControlFlow::Continue(());
        assert!(matches!(closed_loop(&mut *null, [beyond], 1, go), Err(SimulationError::OutOfRange { .. })));
        assert!(matches!(closed_loop(&mut *null, [beyond], 0, go), Err(SimulationError::NoDepth)));
    }
}
