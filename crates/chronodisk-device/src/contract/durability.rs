//! Rule 9, *Durability*: the volatile sectors of a device against its history of requests.

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};

use super::history::Plan;
use super::play::{Arrival, Player, broken};
use super::{Make, Rule, Violation};
use crate::sector_set::{SectorSet, changed};
use crate::{DeviceInfo, DeviceModel};

/// Plays the history with more flushes and FUA, as two streams in turn, and checks the volatile sectors after each
/// arrival and each step. In the end the device is drained and flushed, and no sector is volatile.
pub(super) fn durability(plan: &Plan, make: Make<'_>) -> Result<(), Violation> {
    let plan = plan.with_flushes();
    let mut player = Player::new(make(plan.seed));
    let Some(mut ledger) = Ledger::new(player.model.as_ref()) else { return Ok(()) };
    let mut pokes = plan.pokes.iter().cycle();
    let mut last: [Option<Request>; 2] = [None; 2];
    for (index, step) in plan.steps.iter().enumerate() {
        let at = step.gap.end(player.model.as_ref());
        for poke in pokes.by_ref().take(2) {
            let instant = poke.end(player.model.as_ref()).min(at);
            ledger.step(&mut player, instant)?;
        }
        while player.model.now() < at {
            ledger.step(&mut player, at)?;
        }
        ledger.step(&mut player, at)?;
        let stream = &mut last[index % 2];
        let request = step.request(index as u64, player.model.info(), stream.as_ref());
        *stream = Some(request);
        ledger.arrive(&mut player, request)?;
    }
    ledger.drain(&mut player)?;
    ledger.arrive(&mut player, Request::new(u64::MAX - 1, Op::Flush, 0, 0))?;
    ledger.drain(&mut player)
}

/// The writes that may be lost.
struct Ledger {
    info: DeviceInfo,
    /// In order of arrival.
    writes: Vec<Write>,
    flushes: Vec<Flush>,
    completions: u64,
    /// The volatile sectors at the last check.
    before: SectorSet,
}

/// A write or a discard that is not known to be durable.
struct Write {
    request: Request,
    sectors: SectorSet,
    /// Completions before it arrived.
    arrived: u64,
    /// Completions up to its own; `None` if it is outstanding.
    completed: Option<u64>,
}

/// An outstanding flush.
struct Flush {
    id: RequestId,
    /// Completions before it arrived.
    arrived: u64,
}

impl Ledger {
    /// A ledger of a device without outstanding requests; `None` if the device does not tell. Its cache may hold the
    /// writes of an earlier history, which count as one completed write.
    fn new(model: &dyn DeviceModel) -> Option<Self> {
        let before: SectorSet = model.volatile()?.into_iter().collect();
        let info = model.info().clone();
        let request = Request::new(u64::MAX, Op::Write, 0, 0);
        let earlier = Write { request, sectors: before.clone(), arrived: 0, completed: Some(0) };
        let writes = if info.volatile_cache { vec![earlier] } else { Vec::new() };
        Some(Ledger { info, writes, flushes: Vec::new(), completions: 1, before })
    }

    fn arrive(&mut self, player: &mut Player, request: Request) -> Result<(), Violation> {
        let at = player.model.now();
        player.arrive(&Arrival { at, request })?;
        let arrived = self.completions;
        let sectors: SectorSet = [self.touched(&request)].into_iter().collect();
        if request.op == Op::Flush {
            self.flushes.push(Flush { id: request.id, arrived });
        } else if !sectors.is_empty() {
            self.before = self.before.ranges().iter().chain(sectors.ranges()).cloned().collect();
            self.writes.push(Write { request, sectors, arrived, completed: None });
        }
        let told = self.check(player.model.as_ref())?;
        // A zone may refuse a write, and a request of a device with faults may fail at once.
        let may_fail = self.info.zones.is_some() || self.info.torn_write_sectors.is_some();
        if request.op == Op::Write && !may_fail && !told.covers(&changed(&request)) {
            let what = format!("at {at} the write that has just arrived, {request:?}, is not volatile: {told:?}");
            return broken(Rule::Durability, what);
        }
        Ok(())
    }

    fn step(&mut self, player: &mut Player, limit: Nanos) -> Result<(), Violation> {
        let already = player.completed.len();
        player.step(limit)?;
        for completion in &player.completed[already..] {
            self.complete(completion);
        }
        self.check(player.model.as_ref()).map(drop)
    }

    fn drain(&mut self, player: &mut Player) -> Result<(), Violation> {
        while player.model.outstanding() > 0 && player.model.now() < Nanos::MAX {
            self.step(player, Nanos::MAX)?;
        }
        player.drain()
    }

    /// The sectors that a request may change: an append, any of its zone.
    fn touched(&self, request: &Request) -> std::ops::Range<u64> {
        match (request.op, self.info.zones) {
            (Op::ZoneAppend, Some(zones)) => request.lba.0..request.lba.0 + zones.size_sectors,
            _ => changed(request),
        }
    }

    fn complete(&mut self, completion: &Completion) {
        let order = self.completions;
        self.completions += 1;
        if let Some(index) = self.flushes.iter().position(|flush| flush.id == completion.id) {
            let flush = self.flushes.swap_remove(index);
            let durable = |write: &Write| write.completed.is_some_and(|completed| completed < flush.arrived);
            self.writes.retain(|write| completion.status != Status::Ok || !durable(write));
        }
        let Some(index) = self.writes.iter().position(|write| write.request.id == completion.id) else { return };
        let is_durable = !self.info.volatile_cache || self.writes[index].request.fua;
        // A write that fails by a fault may have reached the cache.
        let may_be_cached = completion.status != Status::Ok && self.info.torn_write_sectors.is_some();
        if may_be_cached || (completion.status == Status::Ok && !is_durable) {
            self.writes[index].completed = Some(order);
            return;
        }
        let Write { request, arrived, .. } = self.writes.remove(index);
        if completion.status == Status::Ok {
            let earlier = |write: &&mut Write| write.completed.is_some_and(|completed| completed < arrived);
            self.writes.iter_mut().filter(earlier).for_each(|write| write.sectors.remove(changed(&request)));
        }
    }

    /// Checks the device's list, and returns it.
    fn check(&mut self, model: &dyn DeviceModel) -> Result<SectorSet, Violation> {
        let now = model.now();
        let Some(ranges) = model.volatile() else {
            return broken(Rule::Durability, format!("at {now} the device does not tell, and did so before"));
        };
        let told: SectorSet = ranges.iter().cloned().collect();
        if told.ranges() != ranges {
            return broken(Rule::Durability, format!("at {now} the ranges are not ascending or touch: {ranges:?}"));
        }
        let capacity = self.info.capacity_sectors;
        if let Some(range) = ranges.last().filter(|range| range.end > capacity) {
            return broken(Rule::Durability, format!("at {now} {range:?} exceeds the capacity, {capacity} sectors"));
        }
        let writes = self.writes.iter().flat_map(|write| write.sectors.ranges()).cloned();
        let may_be_lost: SectorSet = writes.collect();
        if let Some(range) = ranges.iter().find(|range| !may_be_lost.covers(range)) {
            let what = format!("at {now} {range:?} is volatile; no more than {may_be_lost:?} may be");
            return broken(Rule::Durability, what);
        }
        if let Some(range) = ranges.iter().find(|range| !self.before.covers(range)) {
            let what = format!("at {now} {range:?} is volatile, was not, and no write of it has arrived");
            return broken(Rule::Durability, what);
        }
        self.before = told.clone();
        Ok(told)
    }
}
