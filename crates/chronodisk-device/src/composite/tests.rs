//! The helper itself: members that are left behind, and statistics that are not.

use std::sync::Arc;

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};

use super::{Composite, Context, Members, Policy};
use crate::{DeviceInfo, DeviceModel, Probe, contract};

/// A device with endless background work: 1 ms for a request, and 10 ms more in every tenth second.
#[derive(Clone)]
struct Busy {
    info: Arc<DeviceInfo>,
    now: Nanos,
    due: Vec<(Nanos, RequestId)>,
    /// Whether the time is one of its statistics.
    tells_time: bool,
}

const SECOND: u64 = 1_000_000_000;

impl DeviceModel for Busy {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.due.len() as u32
    }

    fn submit(&mut self, request: Request) {
        let seconds = self.now.as_nanos() / SECOND;
        let time = if seconds % 10 == 9 { Nanos::from_millis(11) } else { Nanos::from_millis(1) };
        self.due.push((self.now + time, request.id));
    }

    fn next_event(&self) -> Option<Nanos> {
        let tick = Nanos::from_nanos((self.now.as_nanos() / SECOND + 1) * SECOND);
        Some(self.due.iter().map(|entry| entry.0).min().map_or(tick, |at| at.min(tick)))
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.due.iter().map(|entry| entry.0).min()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        self.now = self.completion_bound().map_or(limit, |at| at.min(limit)).max(self.now);
        let now = self.now;
        completed.extend(self.due.extract_if(.., |entry| entry.0 <= now).map(|(at, id)| Completion {
            id,
            at,
            status: Status::Ok,
        }));
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        if self.tells_time {
            sink.counter("seconds", self.now.as_nanos() / SECOND);
        }
    }
}

/// Passes requests on to the members in turn; every fourth needs no member.
#[derive(Clone)]
struct InTurn {
    members: usize,
    count: u64,
    ids: Vec<(u64, RequestId)>,
}

impl Policy for InTurn {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        self.count += 1;
        if self.count.is_multiple_of(4) {
            context.complete_at_once(request.id, Status::Ok);
            return;
        }
        self.ids.push((self.count, request.id));
        context.submit(self.count as usize % self.members, self.count, request);
    }

    fn answer(&mut self, _member: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        let index = self.ids.iter().position(|entry| entry.0 == tag).expect("a tag that was given");
        context.complete(self.ids.remove(index).1, status);
    }
}

fn composite(tells_time: bool) -> Composite<InTurn> {
    let info = DeviceInfo {
        name: "busy".to_owned(),
        capacity_sectors: 1 << 20,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: None,
        rotational: false,
        zones: None,
        torn_write_sectors: None,
    };
    let busy = Busy { info: Arc::new(info.clone()), now: Nanos::ZERO, due: Vec::new(), tells_time };
    let models = (0..3).map(|_| Box::new(busy.clone()) as Box<dyn DeviceModel>).collect();
    Composite::new(info, Members::new(models, None), InTurn { members: 3, count: 0, ids: Vec::new() })
}

#[test]
fn contract_with_members_that_never_rest() {
    contract::check("composite of busy members", contract::cases(256), &|_| Box::new(composite(false)));
}

#[test]
fn idle_members_are_left_behind_and_brought_up_to_date() {
    let mut device = composite(true);
    assert_eq!(device.next_event(), None, "an idle member's own work concerns nobody");
    device.step(Nanos::from_secs(99), &mut Vec::new());
    // The member advances to the present before it gets the request: after 99 s it takes longer.
    device.submit(Request::new(1, Op::Read, 0, 8));
    assert_eq!(device.next_event(), Some(Nanos::from_secs(99) + Nanos::from_millis(11)));
    let mut told = Vec::new();
    struct Tell<'a>(&'a mut Vec<(String, u64)>);
    impl Probe for Tell<'_> {
        fn counter(&mut self, name: &str, value: u64) {
            self.0.push((name.to_owned(), value));
        }
        fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
    }
    device.probe(&mut Tell(&mut told));
    let expected: Vec<(String, u64)> = (0..3).map(|member| (format!("member-{member}-seconds"), 99)).collect();
    assert_eq!(told, expected);
}

#[test]
fn what_needs_no_member_completes_at_the_earliest_instant() {
    let mut device = composite(true);
    let mut completed = Vec::new();
    (0..4).for_each(|id| device.submit(Request::new(id, Op::Read, 0, 8)));
    device.step(Nanos::MAX, &mut completed);
    assert_eq!(completed, [Completion { id: RequestId(3), at: Nanos::from_nanos(1), status: Status::Ok }]);
}
