//! States of a small model with a cache.

use std::ops::Range;

use chronodisk_crash::{Cut, DeviceFacts, Effect, History, HistoryBuilder, ModelError, State, of_model};
use chronodisk_device::{DeviceInfo, DeviceModel};
use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};

/// Every request takes 10 ns. A write reaches the medium after 100 ns; a flush brings all writes there.
#[derive(Clone)]
struct Cache {
    info: DeviceInfo,
    now: Nanos,
    outstanding: Vec<(Nanos, Request)>,
    dirty: Vec<(Nanos, Range<u64>)>,
    knows: bool,
    takes_ns: u64,
}

impl Cache {
    fn new() -> Self {
        let info = DeviceInfo {
            name: "cache".to_owned(),
            capacity_sectors: 1000,
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            volatile_cache: true,
            discard_unit_sectors: None,
            rotational: false,
            zones: None,
            torn_write_sectors: None,
        };
        Cache { info, now: Nanos::ZERO, outstanding: Vec::new(), dirty: Vec::new(), knows: true, takes_ns: 10 }
    }
}

impl DeviceModel for Cache {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.outstanding.len() as u32
    }

    fn submit(&mut self, request: Request) {
        if request.op == Op::Write {
            let range = request.lba.0..request.end().0;
            self.dirty.retain(|(_, old)| old.end <= range.start || range.end <= old.start);
            self.dirty.push((self.now + Nanos::from_nanos(100), range));
        }
        self.outstanding.push((self.now + Nanos::from_nanos(self.takes_ns), request));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.outstanding.first().map(|(at, _)| *at)
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.next_event()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let due = self.next_event().filter(|at| *at <= limit);
        self.now = due.unwrap_or(limit);
        if let Some(at) = due {
            let (_, request) = self.outstanding.remove(0);
            if request.op == Op::Flush {
                self.dirty.clear();
            }
            completed.push(Completion { id: request.id, at, status: Status::Ok });
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        let mut ranges: Vec<_> =
            self.dirty.iter().filter(|(at, _)| *at > self.now).map(|(_, range)| range.clone()).collect();
        ranges.sort_by_key(|range| range.start);
        self.knows.then_some(ranges)
    }
}

/// Writes of one sector: instant, sector.
fn history(writes: &[(u64, u64)], flush_at: Option<u64>) -> History {
    let mut builder = HistoryBuilder::new(DeviceFacts { block_sectors: 1, torn_sectors: 1, write_back: true });
    let flushes = flush_at.map(|at| (at, None));
    let mut requests: Vec<(u64, Option<u64>)> =
        writes.iter().map(|(at, sector)| (*at, Some(*sector))).chain(flushes).collect();
    requests.sort_unstable();
    for ((at, sector), id) in requests.into_iter().zip(0_u64..) {
        let (at, done) = (Nanos::from_nanos(at), Nanos::from_nanos(at + 10));
        match sector {
            Some(sector) => {
                let bytes = vec![id as u8 + 1; 512];
                builder.arrived(Request::new(id, Op::Write, sector, 1), at, Effect::Bytes(bytes));
            }
            None => builder.arrived(Request::new(id, Op::Flush, 0, 0), at, Effect::Nothing),
        }
        builder.completed(RequestId(id), done, Status::Ok);
    }
    builder.finish()
}

fn states(history: &History, instants: &[u64]) -> Vec<State> {
    let cut = |at: &u64| Cut { at: Nanos::from_nanos(*at), position: history.position(Nanos::from_nanos(*at)) };
    of_model(history, &mut Cache::new(), &instants.iter().map(cut).collect::<Vec<_>>()).unwrap()
}

fn lost(state: &State) -> Vec<usize> {
    state.lost.requests().map(|(request, _)| request).collect()
}

#[test]
fn writes_in_the_cache_are_lost_and_destaged_ones_are_not() {
    let history = history(&[(0, 5), (50, 6), (90, 6)], None);
    let found = states(&history, &[20, 60, 100, 120, 200]);
    let found: Vec<_> = found.iter().map(lost).collect();
    // The second write of sector 6 comes before the first one is on the medium: both are lost.
    assert_eq!(found, [vec![0], vec![0, 1], vec![1, 2], vec![1, 2], vec![]]);
}

#[test]
fn the_last_content_on_the_medium_comes_back() {
    let history = history(&[(0, 5), (150, 5), (160, 5)], None);
    let found = states(&history, &[155, 170, 300]);
    assert_eq!(found.iter().map(lost).collect::<Vec<_>>(), [vec![1], vec![1, 2], vec![]]);
    let at_155 = history.difference(0, found[0].cut.position, &found[0].lost);
    assert_eq!(history.bytes(at_155[&5]).unwrap()[0], 1);
}

#[test]
fn a_flush_makes_all_durable() {
    let history = history(&[(0, 5), (20, 6)], Some(40));
    assert_eq!(states(&history, &[45, 51]).iter().map(lost).collect::<Vec<_>>(), [vec![0, 1], vec![]]);
}

#[test]
fn another_device_and_a_model_that_does_not_know_are_refused() {
    let history = history(&[(0, 5)], None);
    let cut = [Cut { at: Nanos::from_nanos(50), position: 2 }];
    let mut slow = Cache { takes_ns: 11, ..Cache::new() };
    let error = of_model(&history, &mut slow, &cut).unwrap_err().to_string();
    assert!(error.contains("request 0 (write of 1 sectors from 5 on) completed at 10 ns"), "{error}");
    let mut silent = Cache { knows: false, ..Cache::new() };
    assert_eq!(of_model(&history, &mut silent, &cut), Err(ModelError::Unknown));
}
