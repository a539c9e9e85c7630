//! A bus shared by the members of an array.
//!
//! Modelled: a request crosses the bus twice, and one crossing at a time holds the bus. The command and a write's data
//! cross to the member, the status and a read's data cross back. A member that serves does not hold the bus
//! (disconnection and reconnection). A crossing takes `overhead` (arbitration, selection, messages) and the time of its
//! data at `rate`, together at least 1 ns. Waiting crossings get the bus in order of arrival, or the highest member
//! number first as in the arbitration of a parallel SCSI bus (SCSI-2, X3.131-1994, section 6.1.2), where the initiator
//! has the highest identifier.
//!
//! Not modelled: the part of the transfer that overlaps with the member's own work (a disk that reconnects before it
//! has read everything). A member with an interface rate of its own in its profile crosses that too: give it the rate
//! of its electronics, or a negligible one.

use std::collections::VecDeque;
use std::ops::Range;

use chronodisk_sim::{Nanos, Op, Request, RequestId, Status};

use crate::Probe;
use crate::composite::Slab;
use crate::fields::{Fields, ProfileError};
use crate::quantity::Rate;
use crate::sector_set::changed;

/// Arbitration among waiting crossings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arbitration {
    /// In order of arrival.
    FirstCome,
    /// The host, then the highest member number; equals in order of asking.
    HighestId,
}

/// The parameters, the present crossing and the waiting ones.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    rate: Rate,
    overhead: Nanos,
    arbitration: Arbitration,
    /// Requests in the members by the member's numbers, with the submitters' tags.
    inside: Slab<(u64, Request)>,
    crossing: Option<(Nanos, Crossing)>,
    waiting: VecDeque<Crossing>,
    crossings: u64,
    busy: Nanos,
    waited: Nanos,
}

/// One use of the bus.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    member: usize,
    inside: u32,
    /// The status on the way back; `None` on the way to the member.
    status: Option<Status>,
    asked: Nanos,
}

/// A completed crossing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossed {
    /// A transfer from the host to a member.
    Out {
        /// Number of the member.
        member: usize,
        /// The request as the member is to see it.
        request: Request,
    },
    /// A transfer from a member to the host.
    Back {
        /// The member's number.
        member: usize,
        /// The identity under which the request was sent.
        tag: u64,
        /// The member's answer.
        status: Status,
    },
}

impl Bus {
    /// An idle bus.
    pub(crate) fn new(rate: Rate, overhead: Nanos, arbitration: Arbitration) -> Self {
        Bus {
            rate,
            overhead,
            arbitration,
            inside: Slab::new(),
            crossing: None,
            waiting: VecDeque::new(),
            crossings: 0,
            busy: Nanos::ZERO,
            waited: Nanos::ZERO,
        }
    }

    /// The host asks for the bus at `now` to send a request to a member.
    pub(crate) fn send(&mut self, now: Nanos, member: usize, request: Request) {
        let inside = self.inside.insert((request.id.0, request));
        self.ask(now, Crossing { member, inside, status: None, asked: now });
    }

    /// A member asks for the bus at `now` to answer a request.
    pub(crate) fn send_back(&mut self, now: Nanos, member: usize, id: RequestId, status: Status) {
        let inside = u32::try_from(id.0).expect("a number that the bus gave");
        self.ask(now, Crossing { member, inside, status: Some(status), asked: now });
    }

    /// The instant at which the current crossing ends; [`Nanos::MAX`] if there is none.
    pub(crate) fn next_instant(&self) -> Nanos {
        self.crossing.map_or(Nanos::MAX, |(end, _)| end)
    }

    /// Takes the crossing that has ended by `now`, and starts the next.
    pub(crate) fn take_crossed(&mut self, now: Nanos) -> Option<Crossed> {
        let (_, crossing) = self.crossing.take_if(|(end, _)| *end <= now)?;
        if let Some(next) = self.choose().and_then(|index| self.waiting.remove(index)) {
            self.begin(now, next);
        }
        let member = crossing.member;
        Some(match crossing.status {
            None => {
                let request = self.inside.get(crossing.inside).1;
                Crossed::Out { member, request: Request { id: RequestId(u64::from(crossing.inside)), ..request } }
            }
            Some(status) => Crossed::Back { member, tag: self.inside.take(crossing.inside).0, status },
        })
    }

    /// The sectors of a member that requests on their way to it change.
    pub(crate) fn changed_on_the_way(&self, member: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        let crossings = self.waiting.iter().chain(self.crossing.as_ref().map(|(_, crossing)| crossing));
        let sent = crossings.filter(move |crossing| crossing.member == member && crossing.status.is_none());
        sent.map(|crossing| changed(&self.inside.get(crossing.inside).1))
    }

    /// Reports the use of the bus, and the waits for it.
    pub(crate) fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("bus-crossings", self.crossings);
        sink.counter("bus-busy-time-ns", self.busy.as_nanos());
        sink.counter("bus-wait-time-ns", self.waited.as_nanos());
    }

    fn ask(&mut self, now: Nanos, crossing: Crossing) {
        match self.crossing {
            None => self.begin(now, crossing),
            Some(_) => self.waiting.push_back(crossing),
        }
    }

    fn begin(&mut self, now: Nanos, crossing: Crossing) {
        let request = self.inside.get(crossing.inside).1;
        let data = match (crossing.status, request.op) {
            (None, Op::Write) | (Some(_), Op::Read) => self.rate.time_for(request.len_bytes()),
            _ => Nanos::ZERO,
        };
        let time = self.overhead.saturating_add(data).max(Nanos::from_nanos(1));
        self.crossings += 1;
        self.busy = self.busy.saturating_add(time);
        self.waited = self.waited.saturating_add(now.saturating_sub(crossing.asked));
        self.crossing = Some((now.saturating_add(time), crossing));
    }

    /// Index of the next crossing.
    fn choose(&self) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let urgency = |crossing: &Crossing| match crossing.status {
            None => usize::MAX,
            Some(_) => crossing.member,
        };
        let mut chosen = 0;
        if self.arbitration == Arbitration::HighestId {
            for (index, crossing) in self.waiting.iter().enumerate() {
                if urgency(crossing) > urgency(&self.waiting[chosen]) {
                    chosen = index;
                }
            }
        }
        Some(chosen)
    }
}

/// The keys of a bus in a profile: `bus-rate`, and optionally `bus-overhead` and `bus-arbitration`.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Option<Bus>, ProfileError> {
    let rate = fields.quantity_or("bus-rate", Rate(0))?;
    let overhead = fields.quantity_or("bus-overhead", Nanos::ZERO)?;
    let arbitration = fields.choice_or("bus-arbitration", ARBITRATIONS, Arbitration::FirstCome)?;
    if rate > Rate(0) {
        return Ok(Some(Bus::new(rate, overhead, arbitration)));
    }
    match ["bus-rate", "bus-overhead", "bus-arbitration"].into_iter().find(|key| fields.has(key)) {
        Some("bus-rate") => Err(fields.error_at("bus-rate", "zero; expected a rate such as \"160 MB/s\"")),
        Some(key) => Err(fields.error_at(key, "there is no bus without `bus-rate`")),
        None => Ok(None),
    }
}

const ARBITRATIONS: &[(&str, Arbitration)] =
    &[("first-come", Arbitration::FirstCome), ("highest-id", Arbitration::HighestId)];

#[cfg(test)]
mod tests;
