//! Random histories of arrivals.

use chronodisk_sim::{Lba, Nanos, Op, Priority, Request, RequestId};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::{DeviceInfo, DeviceModel, ZoneLayout};

/// A history without a device: places are relative to a capacity, some gaps to the device's next events.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) steps: Vec<Step>,
    /// The step at which a rule cuts the history in two.
    pub(super) cut: Index,
    /// Steps of the device between arrivals, used in turn.
    pub(super) pokes: Vec<Gap>,
}

impl Plan {
    /// The same history with flushes in place of half of the reads, and FUA at a quarter of the writes.
    pub(super) fn with_flushes(&self) -> Plan {
        let change = |(index, step): (usize, &Step)| Step {
            op: if step.op == Op::Read && index.is_multiple_of(2) { Op::Flush } else { step.op },
            fua: step.fua || index % 4 == 1,
            ..step.clone()
        };
        Plan { steps: self.steps.iter().enumerate().map(change).collect(), ..self.clone() }
    }
}

/// A request and the gap before it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) gap: Gap,
    op: Op,
    place: StartingPoint,
    blocks: u32,
    fua: bool,
    priority: Priority,
}

/// A duration that may depend on the device.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gap {
    /// No gap: the same instant.
    None,
    /// A gap in nanoseconds.
    Nanos(u64),
    /// Advances to the device's next event.
    ToNextEvent,
    /// Advances to the nanosecond before the device's next event.
    BeforeNextEvent,
    /// Advances to the device's bound on the next completion.
    ToBound,
}

impl Gap {
    /// The instant at which the gap after the device's present instant ends.
    pub(super) fn end(self, model: &dyn DeviceModel) -> Nanos {
        let now = model.now();
        match self {
            Gap::None => now,
            Gap::Nanos(nanos) => now + Nanos::from_nanos(nanos),
            Gap::ToNextEvent => model.next_event().unwrap_or(now).max(now),
            Gap::BeforeNextEvent => {
                model.next_event().map_or(now, |at| at.saturating_sub(Nanos::from_nanos(1))).max(now)
            }
            Gap::ToBound => model.completion_bound().unwrap_or(now).max(now),
        }
    }
}

/// First sector of a request.
#[derive(Clone, Copy, Debug)]
enum StartingPoint {
    Start,
    End,
    /// The end of the previous request.
    Sequential,
    /// The beginning of the previous request.
    Same,
    Anywhere(Index),
}

impl Step {
    /// The request on a device with these properties, after `last`.
    pub(super) fn request(&self, id: u64, info: &DeviceInfo, last: Option<&Request>) -> Request {
        let op = match (self.op, info.discard_unit_sectors) {
            (Op::Discard, None) => Op::WriteZeroes,
            (op, _) => op,
        };
        let make = |op, lba, sectors| Request {
            id: RequestId(id),
            op,
            lba: Lba(lba),
            sectors,
            fua: self.fua && op == Op::Write,
            priority: self.priority,
            queue: 0,
            issuer: 0,
        };
        let common = |lba, sectors| make(op, lba, sectors);
        if op == Op::Flush {
            return common(0, 0);
        }
        if let Some(zones) = info.zones
            && let Some(request) = self.zone_request(zones, info, make)
        {
            return request;
        }
        let block = u64::from(info.logical_block_bytes) / chronodisk_sim::SECTOR_BYTES;
        let unit = if op == Op::Discard { u64::from(info.discard_unit_sectors.unwrap_or(1)).max(block) } else { block };
        let units = (info.capacity_sectors / unit).max(1);
        let length = u64::from(self.blocks).clamp(1, units);
        let latest = units - length;
        let start = match (self.place, last) {
            (StartingPoint::Start, _) => 0,
            (StartingPoint::End, _) => latest,
            (StartingPoint::Sequential, Some(last)) => last.end().0 / unit,
            (StartingPoint::Same, Some(last)) => last.lba.0 / unit,
            (StartingPoint::Sequential | StartingPoint::Same, None) => 0,
            (StartingPoint::Anywhere(index), _) => index.index(usize::try_from(units).unwrap_or(usize::MAX)) as u64,
        };
        common(start.min(latest) * unit, u32::try_from(length * unit).unwrap_or(u32::MAX / 2))
    }
}

impl Step {
    /// With zones, half of the writes are appends, and write-zeroes become zone operations.
    fn zone_request(
        &self,
        zones: ZoneLayout,
        info: &DeviceInfo,
        make: impl Fn(Op, u64, u32) -> Request,
    ) -> Option<Request> {
        const MANAGED: [Op; 4] = [Op::ZoneReset, Op::ZoneFinish, Op::ZoneOpen, Op::ZoneClose];
        let count = (info.capacity_sectors / zones.size_sectors).max(1);
        let zone = match self.place {
            StartingPoint::Anywhere(index) => index.index(usize::try_from(count).unwrap_or(usize::MAX)) as u64,
            StartingPoint::End => count - 1,
            // A few zones often, so that they become full.
            StartingPoint::Start | StartingPoint::Sequential | StartingPoint::Same => {
                u64::from(self.blocks / 8 % 3) % count
            }
        };
        let lba = zone * zones.size_sectors;
        let block = info.logical_block_bytes / chronodisk_sim::SECTOR_BYTES as u32;
        match self.op {
            Op::Write if self.blocks.is_multiple_of(2) => {
                let most = (zones.capacity_sectors / u64::from(block)).clamp(1, 4_096) as u32;
                Some(make(Op::ZoneAppend, lba, self.blocks.min(most) * block))
            }
            Op::Discard | Op::WriteZeroes => Some(make(MANAGED[self.blocks as usize / 2 % 4], lba, block)),
            _ => None,
        }
    }
}

/// The strategy for histories.
pub(super) fn plan() -> impl Strategy<Value = Plan> {
    let steps = prop::collection::vec(step(), 1..32);
    (any::<u64>(), steps, any::<Index>(), prop::collection::vec(gap(), 1..8))
        .prop_map(|(seed, steps, cut, pokes)| Plan { seed, steps, cut, pokes })
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        8 => Just(Op::Read),
        8 => Just(Op::Write),
        2 => Just(Op::Flush),
        1 => Just(Op::Discard),
        1 => Just(Op::WriteZeroes),
    ];
    let place = prop_oneof![
        1 => Just(StartingPoint::Start),
        1 => Just(StartingPoint::End),
        3 => Just(StartingPoint::Sequential),
        1 => Just(StartingPoint::Same),
        4 => any::<Index>().prop_map(StartingPoint::Anywhere),
    ];
    let blocks = prop_oneof![4 => 1u32..=64, 2 => 65u32..=4_096, 1 => 4_097u32..=65_536];
    let priority = prop_oneof![1 => Just(Priority::Idle), 6 => Just(Priority::Normal), 1 => Just(Priority::High)];
    (gap(), op, place, blocks, prop::bool::weighted(0.1), priority)
        .prop_map(|(gap, op, place, blocks, fua, priority)| Step { gap, op, place, blocks, fua, priority })
}

fn gap() -> impl Strategy<Value = Gap> {
    const WEEKS: u64 = 30 * 24 * 3_600 * 1_000_000_000;
    prop_oneof![
        8 => Just(Gap::None),
        3 => Just(Gap::ToNextEvent),
        2 => Just(Gap::BeforeNextEvent),
        1 => Just(Gap::ToBound),
        2 => (1u64..1_000).prop_map(Gap::Nanos),
        4 => (1_000u64..1_000_000).prop_map(Gap::Nanos),
        4 => (1_000_000u64..100_000_000).prop_map(Gap::Nanos),
        1 => (1_000_000_000u64..WEEKS).prop_map(Gap::Nanos),
    ]
}
