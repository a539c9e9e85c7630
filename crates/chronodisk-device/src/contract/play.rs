//! Plays arrivals to a device, with immediate checks at each call.

use std::collections::BTreeMap;

use chronodisk_sim::{Completion, Nanos, Request, RequestId};

use super::{Rule, Violation};
use crate::{DeviceModel, Probe};

/// Most events per outstanding request after the last arrival.
const EVENTS_PER_REQUEST: u64 = 10_000;

/// A request and its arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Nanos,
    pub(super) request: Request,
}

/// A device under test, with its requests and completions.
pub(super) struct Player {
    pub(super) model: Box<dyn DeviceModel>,
    pub(super) completed: Vec<Completion>,
    pending: BTreeMap<RequestId, Nanos>,
}

pub(super) fn broken<T>(rule: Rule, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { rule, what: what.into() })
}

impl Player {
    pub(super) fn new(model: Box<dyn DeviceModel>) -> Self {
        Player { model, completed: Vec::new(), pending: BTreeMap::new() }
    }

    /// A player of the device's fork that expects the same answers and has an empty record.
    pub(super) fn fork(&self) -> Player {
        Player { model: self.model.fork(), completed: Vec::new(), pending: self.pending.clone() }
    }

    /// Advances to the arrival's instant and submits the request.
    pub(super) fn arrive(&mut self, arrival: &Arrival) -> Result<(), Violation> {
        self.advance(arrival.at)?;
        self.model.submit(arrival.request);
        self.pending.insert(arrival.request.id, arrival.at);
        let now = self.model.now();
        if now != arrival.at {
            return broken(Rule::Arrival, format!("submitting at {} moved the device to {now}", arrival.at));
        }
        self.check_counts()
    }

    /// Advances to `until` as [`crate::advance`] does.
    pub(super) fn advance(&mut self, until: Nanos) -> Result<(), Violation> {
        while self.model.now() < until {
            self.step(until)?;
        }
        self.step(until)
    }

    /// Makes one step, and checks its invariants.
    pub(super) fn step(&mut self, limit: Nanos) -> Result<(), Violation> {
        let before = self.model.now();
        let next = self.model.next_event();
        let bound = self.model.completion_bound();
        if let Some(next) = next.filter(|&next| next < before) {
            return broken(Rule::Bounds, format!("at {before} the next event is at {next}, in the past"));
        }
        let already = self.completed.len();
        self.model.step(limit, &mut self.completed);
        let now = self.model.now();
        let new = self.completed.split_off(already);
        if now < before || now > limit || (new.is_empty() && now != limit) {
            let what = format!("a step from {before} to at most {limit} with {} completions led to {now}", new.len());
            return broken(Rule::Stepping, what);
        }
        for completion in &new {
            self.check_completion(completion, now, next, bound)?;
        }
        self.completed.extend(new);
        self.check_counts()?;
        self.check_settled(now)
    }

    /// Lets everything complete, event by event.
    pub(super) fn drain(&mut self) -> Result<(), Violation> {
        let most = EVENTS_PER_REQUEST * (self.pending.len() as u64 + 1);
        for _ in 0..most {
            if self.pending.is_empty() {
                return Ok(());
            }
            match self.model.next_event() {
                Some(next) => self.step(next)?,
                None => {
                    return broken(
                        Rule::Conservation,
                        format!("{} requests wait and no event comes", self.pending.len()),
                    );
                }
            }
        }
        broken(Rule::Conservation, format!("{} requests still wait after {most} events", self.pending.len()))
    }

    /// Statistics as text.
    pub(super) fn statistics(&self) -> String {
        let mut sink = Text(String::new());
        self.model.probe(&mut sink);
        sink.0
    }

    fn check_completion(
        &mut self,
        completion: &Completion,
        now: Nanos,
        next: Option<Nanos>,
        bound: Option<Nanos>,
    ) -> Result<(), Violation> {
        let (id, at) = (completion.id.0, completion.at);
        let Some(arrival) = self.pending.remove(&completion.id) else {
            return broken(Rule::Conservation, format!("request {id} completed at {at} and was not outstanding"));
        };
        if at != now {
            let what = format!("at {now} the completion of request {id} was told for {at}");
            return broken(Rule::NonAnticipation, what);
        }
        if at <= arrival {
            return broken(Rule::Conservation, format!("request {id} arrived at {arrival} and completed at {at}"));
        }
        if next.is_none_or(|next| at < next) {
            return broken(Rule::Bounds, format!("request {id} completed at {at}, the next event was {next:?}"));
        }
        if bound.is_none_or(|bound| at < bound) {
            return broken(Rule::Bounds, format!("request {id} completed at {at}, the completion bound was {bound:?}"));
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Violation> {
        let (told, counted) = (self.model.outstanding() as usize, self.pending.len());
        let bound = self.model.completion_bound();
        match counted {
            0 if told != 0 || bound.is_some() => {
                broken(Rule::Drained, format!("nothing is outstanding; the device says {told}, bound {bound:?}"))
            }
            1.. if told != counted => {
                broken(Rule::Conservation, format!("{counted} requests are outstanding; the device says {told}"))
            }
            1.. if bound.is_none() => {
                broken(Rule::Bounds, format!("{counted} requests are outstanding without a bound"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a step to `now` has processed all events due there.
    fn check_settled(&self, now: Nanos) -> Result<(), Violation> {
        for (what, instant) in
            [("next event", self.model.next_event()), ("completion bound", self.model.completion_bound())]
        {
            if let Some(instant) = instant.filter(|&instant| instant <= now) {
                return broken(Rule::Bounds, format!("after a step to {now} the {what} is {instant}, not later"));
            }
        }
        Ok(())
    }
}

struct Text(String);

impl Probe for Text {
    fn counter(&mut self, name: &str, value: u64) {
        self.0.push_str(&format!("{name}={value}\n"));
    }

    fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        self.0.push_str(&format!("{name}={:016x} {unit}\n", value.to_bits()));
    }
}
