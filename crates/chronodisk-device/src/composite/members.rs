//! The members of a composite: their stepping, and the bus between.

use std::collections::VecDeque;
use std::fmt::Write;

use chronodisk_sim::{Completion, Nanos, Request, Status};

use crate::models::bus::{Bus, Crossed};
use crate::sector_set::SectorSet;
use crate::{DeviceModel, Probe, ZoneReport};

/// A member's answer to the request that it got under `tag`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) member: usize,
    pub(crate) tag: u64,
    pub(crate) status: Status,
}

/// The members of a composite, by number, each with the instant of its next possible completion.
pub(crate) struct Members {
    models: Vec<Box<dyn DeviceModel>>,
    /// [`Nanos::MAX`] if no request is outstanding.
    wakes: Vec<Nanos>,
    bus: Option<Bus>,
    has_volatile_cache: bool,
    answers: VecDeque<Answer>,
    /// Empty between calls; kept for its capacity.
    completed: Vec<Completion>,
}

impl Members {
    /// New members, behind a bus if there is one.
    pub(crate) fn new(models: Vec<Box<dyn DeviceModel>>, bus: Option<Bus>) -> Self {
        let wakes = vec![Nanos::MAX; models.len()];
        let has_volatile_cache = models.iter().any(|model| model.info().volatile_cache);
        Members { models, wakes, bus, has_volatile_cache, answers: VecDeque::new(), completed: Vec::new() }
    }

    /// The only member begins with these zones; see [`DeviceModel::begin_with_zones`].
    pub(super) fn begin_with_zones(&mut self, zones: &[ZoneReport]) -> bool {
        match &mut self.models[..] {
            [only] => only.begin_with_zones(zones),
            _ => false,
        }
    }

    /// Submits a request at `now`, over the bus if there is one.
    pub(super) fn submit(&mut self, now: Nanos, member: usize, request: Request) {
        match &mut self.bus {
            Some(bus) => bus.send(now, member, request),
            None => self.deliver(now, member, request),
        }
    }

    /// The next instant at which a member may complete something or the bus is free, [`Nanos::MAX`] if never.
    pub(super) fn next_instant(&self) -> Nanos {
        let bus = self.bus.as_ref().map_or(Nanos::MAX, Bus::next_instant);
        self.wakes.iter().fold(bus, |first, &wake| first.min(wake))
    }

    /// Steps the members that may complete a request at `now`, and advances the bus. Answers wait to be taken.
    pub(super) fn run(&mut self, now: Nanos) {
        for member in 0..self.models.len() {
            if self.wakes[member] <= now {
                self.step(now, member);
            }
        }
        let Some(mut bus) = self.bus.take() else { return };
        while let Some(crossed) = bus.take_crossed(now) {
            match crossed {
                Crossed::Out { member, request } => self.deliver(now, member, request),
                Crossed::Back { member, tag, status } => self.answers.push_back(Answer { member, tag, status }),
            }
        }
        self.bus = Some(bus);
    }

    /// The next answer in order of arrival.
    pub(super) fn take_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    pub(super) fn fork(&self) -> Members {
        Members {
            models: self.models.iter().map(|model| model.fork()).collect(),
            wakes: self.wakes.clone(),
            bus: self.bus.clone(),
            has_volatile_cache: self.has_volatile_cache,
            answers: self.answers.clone(),
            completed: Vec::with_capacity(self.completed.capacity()),
        }
    }

    /// Reports the statistics of the bus and of each member as of `now`. Members' names get their number as a prefix.
    pub(super) fn probe(&self, now: Nanos, sink: &mut dyn Probe) {
        if let Some(bus) = &self.bus {
            bus.probe(sink);
        }
        let mut prefix = String::new();
        for (number, model) in self.models.iter().enumerate() {
            prefix.clear();
            write!(prefix, "member-{number}-").expect("a String takes everything");
            let mut sink = Prefixed { prefix: &prefix, name: String::new(), sink: &mut *sink };
            if model.now() == now {
                model.probe(&mut sink);
            } else {
                let mut present = model.fork();
                present.step(now, &mut Vec::new());
                present.probe(&mut sink);
            }
        }
    }

    /// Whether a member may lose writes that have completed.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.has_volatile_cache
    }

    /// The volatile sectors of a member at `now`, with those of requests on their way to it; `None` if it does not
    /// know.
    pub(crate) fn volatile(&self, now: Nanos, member: usize) -> Option<SectorSet> {
        let model = &self.models[member];
        let known = match model.now() == now {
            true => model.volatile()?,
            false => {
                let mut present = model.fork();
                present.step(now, &mut Vec::new());
                present.volatile()?
            }
        };
        let crossing = self.bus.iter().flat_map(|bus| bus.changed_on_the_way(member));
        Some(known.into_iter().chain(crossing).collect())
    }

    /// As [`volatile`](Self::volatile), with the member stepped to `now` instead of a fork.
    pub(super) fn volatile_after_step(&mut self, now: Nanos, member: usize) -> Option<SectorSet> {
        if self.models[member].now() < now {
            self.step(now, member);
        }
        self.volatile(now, member)
    }

    /// Submits to the member itself, after everything that is due in it.
    fn deliver(&mut self, now: Nanos, member: usize, request: Request) {
        if self.models[member].now() < now {
            self.step(now, member);
        }
        let model = &mut self.models[member];
        model.submit(request);
        self.wakes[member] = wake(model.as_ref());
    }

    fn step(&mut self, now: Nanos, member: usize) {
        let model = &mut self.models[member];
        model.step(now, &mut self.completed);
        self.wakes[member] = wake(model.as_ref());
        assert!(self.wakes[member] > now, "model {}: stepped to {now}, still has something there", model.info().name);
        for completion in self.completed.drain(..) {
            match &mut self.bus {
                Some(bus) => bus.send_back(now, member, completion.id, completion.status),
                None => self.answers.push_back(Answer { member, tag: completion.id.0, status: completion.status }),
            }
        }
    }
}

/// The earliest instant at which the model may complete something: a completion is an event too.
fn wake(model: &dyn DeviceModel) -> Nanos {
    if model.outstanding() == 0 {
        return Nanos::MAX;
    }
    let bound = model.completion_bound().unwrap_or(Nanos::ZERO);
    model.next_event().map_or(Nanos::MAX, |next| next.max(bound))
}

/// Puts a prefix in front of the names.
struct Prefixed<'a> {
    prefix: &'a str,
    name: String,
    sink: &'a mut dyn Probe,
}

impl Prefixed<'_> {
    fn set(&mut self, name: &str) {
        self.name.clear();
        self.name.push_str(self.prefix);
        self.name.push_str(name);
    }
}

impl Probe for Prefixed<'_> {
    fn counter(&mut self, name: &str, value: u64) {
        self.set(name);
        self.sink.counter(&self.name, value);
    }

    fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        self.set(name);
        self.sink.gauge(&self.name, unit, value);
    }
}
