//! Canaries of rule 9: devices with a write cache that tell wrong sectors, and a sound one.

use std::ops::Range;

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId};

use super::{Rule, find_violation};
use crate::sector_set::{SectorSet, changed};
use crate::{DeviceInfo, DeviceModel, QueuedDevice, Service};

/// Fault of a [`Cached`].
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// No fault.
    Sound,
    /// No sector is ever volatile.
    TellsNothing,
    /// An outstanding write is not volatile.
    TellsCompletedWrites,
    /// A flush leaves the cache as it is.
    FlushesNothing,
    /// A flush writes only half of the cache.
    FlushesHalf,
    /// A write with FUA completes in the cache.
    IgnoresFua,
    /// The device denies its cache.
    DeniesItsCache,
    /// Volatile sectors are durable for a while, and volatile again.
    Wavers,
    /// The whole device is volatile while a write is outstanding.
    TellsTooMuch,
    /// The ranges descend.
    Descends,
    /// Ranges touch.
    Touches,
    /// The last range ends beyond the capacity.
    ExceedsTheCapacity,
    /// The device stops telling.
    FallsSilent,
}

/// Ten microseconds a request.
#[derive(Clone)]
struct Steady;

impl Service for Steady {
    fn end(&mut self, _request: &Request, start: Nanos, _others: u32) -> Nanos {
        start + Nanos::from_micros(10)
    }
}

/// A device that serves in order of arrival, with a write cache that only flushes empty.
#[derive(Clone)]
struct Cached {
    fault: Fault,
    info: DeviceInfo,
    inner: QueuedDevice<Steady>,
    cache: SectorSet,
    outstanding: Vec<Request>,
}

impl Cached {
    fn new(fault: Fault) -> Self {
        let info = DeviceInfo {
            name: "cached".to_owned(),
            capacity_sectors: 1 << 20,
            logical_block_bytes: 4_096,
            physical_block_bytes: 4_096,
            volatile_cache: fault != Fault::DeniesItsCache,
            discard_unit_sectors: Some(8),
            rotational: false,
            zones: None,
        };
        let inner = QueuedDevice::new(info.clone(), Some(1), Steady);
        Cached { fault, info, inner, cache: SectorSet::EMPTY, outstanding: Vec::new() }
    }

    fn complete(&mut self, id: RequestId) {
        let index = self.outstanding.iter().position(|request| request.id == id).expect("an outstanding request");
        let request = self.outstanding.remove(index);
        match (request.op, self.fault) {
            (Op::Flush, Fault::FlushesNothing) => {}
            (Op::Flush, Fault::FlushesHalf) => self.cache.remove(0..1 << 19),
            (Op::Flush, _) => self.cache = SectorSet::EMPTY,
            (_, fault) if request.fua && fault != Fault::IgnoresFua => self.cache.remove(changed(&request)),
            _ => self.cache.insert(changed(&request)),
        }
    }
}

impl DeviceModel for Cached {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding()
    }

    fn submit(&mut self, request: Request) {
        self.outstanding.push(request);
        self.inner.submit(request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.inner.next_event()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.inner.completion_bound()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let already = completed.len();
        self.inner.step(limit, completed);
        completed[already..].iter().for_each(|completion| self.complete(completion.id));
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let outstanding = self.outstanding.iter().map(changed);
        let sound: SectorSet = self.cache.ranges().iter().cloned().chain(outstanding).collect();
        let is_writing = self.outstanding.iter().any(|request| request.op == Op::Write);
        let mut ranges = sound.into_ranges();
        match self.fault {
            Fault::TellsNothing => ranges.clear(),
            Fault::TellsCompletedWrites => ranges = self.cache.clone().into_ranges(),
            Fault::Wavers if self.outstanding.is_empty() && (self.now().as_nanos() / 1_000).is_multiple_of(2) => {
                ranges.clear();
            }
            Fault::TellsTooMuch if is_writing => ranges = std::iter::once(0..1 << 20).collect(),
            Fault::Descends => ranges.reverse(),
            Fault::Touches => {
                let halves = |range: Range<u64>| [range.start..range.start + 1, range.start + 1..range.end];
                ranges = ranges.into_iter().flat_map(halves).collect();
            }
            Fault::ExceedsTheCapacity => ranges.iter_mut().for_each(|range| range.end += 8),
            Fault::FallsSilent if !self.cache.is_empty() => return None,
            _ => {}
        }
        Some(ranges)
    }
}

#[test]
fn a_sound_cache_passes() {
    assert_eq!(find_violation("sound", 256, &|_| Box::new(Cached::new(Fault::Sound))), None);
}

#[test]
fn each_wrong_list_is_seen() {
    for fault in [
        Fault::TellsNothing,
        Fault::TellsCompletedWrites,
        Fault::FlushesNothing,
        Fault::FlushesHalf,
        Fault::IgnoresFua,
        Fault::DeniesItsCache,
        Fault::Wavers,
        Fault::TellsTooMuch,
        Fault::Descends,
        Fault::Touches,
        Fault::ExceedsTheCapacity,
        Fault::FallsSilent,
    ] {
        let (violation, _) = find_violation("canary", 256, &|_| Box::new(Cached::new(fault)))
            .unwrap_or_else(|| panic!("{fault:?} was not seen"));
        assert_eq!(violation.rule, Rule::Durability, "{fault:?}: {violation}");
    }
}
