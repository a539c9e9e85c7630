//! Canaries: devices that break one rule each, and sound ones, so that the harness is known to see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronodisk_sim::{Completion, EventQueue, Nanos, Request, RequestId, Status};

use super::{Rule, find_violation};
use crate::{DeviceInfo, DeviceModel, Probe};

/// Fault of a [`Line`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// No fault; background events never end and the bound is early.
    Sound,
    /// The service time depends on the request's identity.
    ServesByIdentity,
    /// A submission moves the device on.
    MovesOnArrival,
    /// Completions are returned as soon as they are predicted.
    TellsTheFuture,
    /// Each step delays later arrivals.
    CountsSteps,
    /// A step stops before its limit without a completion.
    StopsShort,
    /// Every fifth request is forgotten.
    Forgets,
    /// Every fifth request is answered twice.
    AnswersTwice,
    /// A request completes when it arrives.
    TakesNoTime,
    /// The bound on completions is late.
    BoundsLate,
    /// The bound on completions stays where it was.
    BoundStandsStill,
    /// `next_event` is too late.
    EventsLate,
    /// Background work counts as outstanding.
    NeverDrained,
    /// Service times depend on devices made before.
    SharesTheWorld,
    /// Statistics do not belong to the device.
    CountsTheWorld,
    /// A fork shares its original's state.
    SharesItsState,
    /// A fork loses the outstanding requests.
    ForksEmpty,
}

/// A device that serves one request at a time, 10 µs each, and ticks every 7 µs.
#[derive(Clone)]
struct Line {
    fault: Fault,
    info: DeviceInfo,
    now: Nanos,
    busy_until: Nanos,
    due: EventQueue<RequestId>,
    forgotten: u32,
    submitted: u64,
    steps: u64,
    shared: Arc<AtomicU64>,
}

static WORLD: AtomicU64 = AtomicU64::new(0);

impl Line {
    fn new(fault: Fault) -> Self {
        let info = DeviceInfo {
            name: "line".to_owned(),
            capacity_sectors: 1 << 20,
            logical_block_bytes: 4_096,
            physical_block_bytes: 4_096,
            volatile_cache: false,
            discard_unit_sectors: None,
            rotational: false,
            zones: None,
            torn_write_sectors: None,
        };
        Line {
            fault,
            info,
            now: Nanos::ZERO,
            busy_until: Nanos::ZERO,
            due: EventQueue::new(),
            forgotten: 0,
            submitted: 0,
            steps: 0,
            shared: Arc::default(),
        }
    }

    fn service_nanos(&self, request: &Request) -> u64 {
        10_000
            + match self.fault {
                Fault::ServesByIdentity => request.id.0 % 7,
                Fault::CountsSteps => self.steps,
                Fault::SharesTheWorld => WORLD.fetch_add(1, Ordering::Relaxed),
                Fault::SharesItsState => self.shared.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            }
    }

    /// The next background tick, which has no effect.
    fn next_tick(&self) -> Nanos {
        Nanos::from_nanos((self.now.as_nanos() / 7_000 + 1) * 7_000)
    }

    fn stop(&self, limit: Nanos) -> Nanos {
        match self.fault {
            Fault::StopsShort if self.due.is_empty() => limit.saturating_sub(Nanos::from_nanos(1)).max(self.now),
            _ => self.due.next_at().map_or(limit, |at| at.min(limit)),
        }
    }
}

impl DeviceModel for Line {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.due.len() as u32 + self.forgotten + u32::from(self.fault == Fault::NeverDrained && self.due.is_empty())
    }

    fn submit(&mut self, request: Request) {
        self.submitted += 1;
        WORLD.fetch_add(u64::from(self.fault == Fault::CountsTheWorld), Ordering::Relaxed);
        let end = self.busy_until.max(self.now) + Nanos::from_nanos(self.service_nanos(&request));
        self.busy_until = end;
        match self.fault {
            Fault::MovesOnArrival => self.now += Nanos::from_nanos(1),
            Fault::Forgets if self.submitted.is_multiple_of(5) => {
                self.forgotten += 1;
                return;
            }
            Fault::AnswersTwice if self.submitted.is_multiple_of(5) => self.due.push(end, request.id),
            Fault::TakesNoTime => return self.due.push(self.now, request.id),
            _ => {}
        }
        self.due.push(end, request.id);
    }

    fn next_event(&self) -> Option<Nanos> {
        let next = self.due.next_at().map_or(self.next_tick(), |at| at.min(self.next_tick()));
        match self.fault {
            Fault::EventsLate => Some(self.due.next_at()?.saturating_add(Nanos::from_nanos(1))),
            // Only completions: otherwise the drained device would need endless steps.
            Fault::Forgets => self.due.next_at(),
            _ => Some(next),
        }
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.forgotten > 0 {
            return Some(self.due.next_at().unwrap_or(self.now + Nanos::from_nanos(1)));
        }
        let due = self.due.next_at()?;
        match self.fault {
            Fault::BoundsLate => Some(due + Nanos::from_nanos(1)),
            Fault::BoundStandsStill => Some(Nanos::from_nanos(1)),
            _ => Some(due.min(self.now + Nanos::from_nanos(1))),
        }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        self.steps += 1;
        let until = match self.fault {
            Fault::TellsTheFuture => Nanos::MAX,
            _ => self.stop(limit),
        };
        self.now = self.now.max(self.stop(limit));
        while let Some((at, id)) = self.due.pop_until(until) {
            completed.push(Completion { id, at, status: Status::Ok });
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        let mut fork = self.clone();
        match self.fault {
            Fault::SharesItsState => {}
            Fault::ForksEmpty => fork.due = EventQueue::new(),
            _ => fork.shared = Arc::new(AtomicU64::new(self.shared.load(Ordering::Relaxed))),
        }
        Box::new(fork)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        let counted = if self.fault == Fault::CountsTheWorld { WORLD.load(Ordering::Relaxed) } else { self.submitted };
        sink.counter("requests", counted);
        sink.gauge("busy-until", "s", self.busy_until.as_secs_f64());
    }
}

#[test]
fn a_sound_device_passes() {
    assert_eq!(find_violation("sound", 256, &|_| Box::new(Line::new(Fault::Sound))), None);
}

#[test]
fn each_fault_is_seen_as_what_it_is() {
    for (fault, rule) in [
        (Fault::ServesByIdentity, Rule::Arrival),
        (Fault::MovesOnArrival, Rule::Arrival),
        (Fault::TellsTheFuture, Rule::NonAnticipation),
        (Fault::CountsSteps, Rule::Stepping),
        (Fault::StopsShort, Rule::Stepping),
        (Fault::Forgets, Rule::Conservation),
        (Fault::AnswersTwice, Rule::Conservation),
        (Fault::TakesNoTime, Rule::Conservation),
        (Fault::BoundsLate, Rule::Bounds),
        (Fault::BoundStandsStill, Rule::Bounds),
        (Fault::EventsLate, Rule::Bounds),
        (Fault::NeverDrained, Rule::Drained),
        (Fault::SharesTheWorld, Rule::Determinism),
        (Fault::CountsTheWorld, Rule::Determinism),
        (Fault::SharesItsState, Rule::Fork),
        (Fault::ForksEmpty, Rule::Fork),
    ] {
        let (violation, _) = find_violation("canary", 256, &|_| Box::new(Line::new(fault)))
            .unwrap_or_else(|| panic!("{fault:?} was not seen"));
        assert_eq!(violation.rule, rule, "{fault:?}: {violation}");
    }
}

#[test]
#[should_panic(expected = "rule Conservation is broken")]
fn check_panics_with_the_rule() {
    super::check("canary", 64, &|_| Box::new(Line::new(Fault::Forgets)));
}
