//! Arrays of members that fail reads and writes.

use std::sync::Arc;

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};

use super::balance::{Balance, ReadPolicy};
use super::jobs::BlockSize;
use super::layout::{CopyLayout, Layout, MemberSet, ParityLayout};
use super::policy::Array;
use crate::composite::{Composite, Members};
use crate::{DeviceInfo, DeviceModel, Probe, contract};

const MEMBER_SECTORS: u64 = 1 << 16;

/// A device of 1 ms per request. Some sectors cannot be read until they are written.
#[derive(Clone)]
struct Failing {
    info: Arc<DeviceInfo>,
    now: Nanos,
    due: Vec<(Nanos, RequestId, Status)>,
    bad: Vec<u64>,
    fails_writes: bool,
    /// Reads and writes so far.
    asked: [u64; 2],
}

impl DeviceModel for Failing {
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
        let inside = |sector: &u64| (request.lba.0..request.end().0).contains(sector);
        let fails = match request.op {
            Op::Read => self.bad.iter().any(inside),
            Op::Write if self.fails_writes => true,
            Op::Write => {
                self.bad.retain(|sector| !inside(sector));
                false
            }
            _ => false,
        };
        self.asked[usize::from(request.op == Op::Write)] += 1;
        let status = if fails { Status::MediaError } else { Status::Ok };
        self.due.push((self.now + Nanos::from_millis(1), request.id, status));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.iter().map(|entry| entry.0).min()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.next_event()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        self.now = self.completion_bound().map_or(limit, |at| at.min(limit)).max(self.now);
        let now = self.now;
        let due = self.due.extract_if(.., |entry| entry.0 <= now);
        completed.extend(due.map(|(at, id, status)| Completion { id, at, status }));
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("reads", self.asked[0]);
        sink.counter("writes", self.asked[1]);
    }
}

/// An array whose first members have these bad sectors, or fail every write.
fn array(layout: Layout, failed: &[usize], bad: &[&[u64]], fails_writes: &[usize]) -> Box<dyn DeviceModel> {
    let info = DeviceInfo {
        name: "failing".to_owned(),
        capacity_sectors: MEMBER_SECTORS,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: None,
        rotational: false,
        zones: None,
        torn_write_sectors: None,
    };
    let member = |number: usize| -> Box<dyn DeviceModel> {
        Box::new(Failing {
            info: Arc::new(info.clone()),
            now: Nanos::ZERO,
            due: Vec::new(),
            bad: bad.get(number).map_or(Vec::new(), |bad| bad.to_vec()),
            fails_writes: fails_writes.contains(&number),
            asked: [0; 2],
        })
    };
    let members = Members::new((0..layout.members).map(member).collect(), None);
    let mut gone = MemberSet::default();
    failed.iter().for_each(|&member| gone.insert(member));
    let info = DeviceInfo { capacity_sectors: layout.capacity_sectors, ..info.clone() };
    let balance = Balance::new(ReadPolicy::Primary, layout.members, MemberSet::default());
    let size = BlockSize::new(layout.chunk_sectors, 1);
    Box::new(Composite::new(info, members, Array::new(Arc::new(layout), gone, None, balance, (64, size))))
}

fn raid5(failed: &[usize], bad: &[&[u64]], fails_writes: &[usize]) -> Box<dyn DeviceModel> {
    array(Layout::with_parity(5, MEMBER_SECTORS, 32, 1, ParityLayout::LeftSymmetric), failed, bad, fails_writes)
}

fn raid1(members: usize, bad: &[&[u64]], fails_writes: &[usize]) -> Box<dyn DeviceModel> {
    array(Layout::mirrored(members, MEMBER_SECTORS), &[], bad, fails_writes)
}

/// Serves a request; its response time in milliseconds and its status.
fn serve(device: &mut dyn DeviceModel, op: Op, lba: u64, sectors: u32) -> (u64, Status) {
    let (arrival, mut completed) = (device.now(), Vec::new());
    device.submit(Request::new(1, op, lba, sectors));
    while completed.is_empty() {
        device.step(device.next_event().expect("an outstanding request has an event"), &mut completed);
    }
    let time = completed[0].at - arrival;
    // Data that are written back need no request that waits for them.
    device.step(device.now() + Nanos::from_millis(10), &mut completed);
    assert_eq!(completed.len(), 1);
    (time.as_nanos() / 1_000_000, completed[0].status)
}

fn counter(device: &dyn DeviceModel, name: &str) -> u64 {
    struct Find<'a>(&'a str, Option<u64>);
    impl Probe for Find<'_> {
        fn counter(&mut self, name: &str, value: u64) {
            self.1 = self.1.or((name == self.0).then_some(value));
        }
        fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
    }
    let mut find = Find(name, None);
    device.probe(&mut find);
    find.1.unwrap_or_else(|| panic!("no counter {name}"))
}

/// Repaired reads and dropped members.
fn repairs(device: &dyn DeviceModel) -> (u64, u64) {
    (counter(device, "repaired-reads"), counter(device, "dropped-members"))
}

#[test]
fn a_mirror_answers_from_the_other_copy_and_writes_back() {
    let mut device = raid1(2, &[&[100]], &[]);
    assert_eq!(serve(device.as_mut(), Op::Read, 96, 8), (2, Status::Ok), "the copy is read after the error");
    assert_eq!(repairs(device.as_ref()), (1, 0));
    assert_eq!(counter(device.as_ref(), "member-0-writes"), 1);
    assert_eq!(serve(device.as_mut(), Op::Read, 96, 8), (1, Status::Ok), "the sector was reassigned");
    assert_eq!(counter(device.as_ref(), "member-1-reads"), 1);
}

#[test]
fn a_mirror_without_a_good_copy_returns_the_error() {
    let mut device = raid1(3, &[&[100], &[101], &[102]], &[]);
    assert_eq!(serve(device.as_mut(), Op::Read, 96, 8), (3, Status::MediaError));
    assert_eq!(repairs(device.as_ref()), (0, 0));
    let mut device = raid1(3, &[&[100], &[101]], &[]);
    assert_eq!(serve(device.as_mut(), Op::Read, 96, 8), (3, Status::Ok));
    assert_eq!(repairs(device.as_ref()), (2, 0), "both copies are repaired");
}

#[test]
fn copies_of_raid_10_are_found_in_each_layout() {
    for layout in [CopyLayout::Near, CopyLayout::Far, CopyLayout::Offset] {
        for members in [4, 5] {
            let layout = Layout::striped(members, MEMBER_SECTORS, 8, 2, layout);
            for chunk in [0, 1, 7, 33, layout.capacity_sectors / 8 - 1] {
                for copy in 0..2 {
                    let place = layout.copy(chunk, copy).expect("a copy");
                    assert_eq!(layout.chunk_at(place.member, place.sector / 8), Some(chunk), "{layout:?} {copy}");
                }
            }
            let bad: Vec<u64> = (0..24).collect();
            let mut device = array(layout, &[], &[&bad], &[]);
            assert_eq!(serve(device.as_mut(), Op::Read, 0, 64).1, Status::Ok);
            assert!(repairs(device.as_ref()).0 > 0);
        }
    }
}

#[test]
fn a_row_computes_a_lost_block_and_writes_it_back() {
    // Member 0 has the first chunk of row 0. The read is repeated by way of the row, once more alone, then computed.
    let mut device = raid5(&[], &[&[3]], &[]);
    assert_eq!(serve(device.as_mut(), Op::Read, 0, 32), (4, Status::Ok));
    assert_eq!(repairs(device.as_ref()), (1, 0), "one of the four blocks of the chunk");
    assert_eq!(counter(device.as_ref(), "member-0-writes"), 1);
    assert_eq!(counter(device.as_ref(), "member-4-reads"), 1, "the parity of the block");
    assert_eq!(serve(device.as_mut(), Op::Read, 0, 32), (1, Status::Ok), "repaired");
}

#[test]
fn a_write_with_lost_old_data_reads_the_others() {
    let mut device = raid5(&[], &[&[3]], &[]);
    // Old data and parity, the old data alone, the other data; then both writes, which reassign the sector.
    assert_eq!(serve(device.as_mut(), Op::Write, 0, 8), (4, Status::Ok));
    assert_eq!(repairs(device.as_ref()), (1, 0));
}

#[test]
fn a_degraded_row_with_a_lost_block_returns_the_error() {
    let mut device = raid5(&[1], &[&[3]], &[]);
    let (_, status) = serve(device.as_mut(), Op::Read, 32, 8);
    assert_eq!(status, Status::MediaError, "the block of the failed member cannot be computed");
    assert_eq!(serve(device.as_mut(), Op::Read, 40, 8).1, Status::Ok, "another row");
    assert_eq!(serve(device.as_mut(), Op::Write, 32, 8).1, Status::MediaError);
    assert_eq!(serve(device.as_mut(), Op::Write, 0, 8).1, Status::MediaError, "the new parity needs the old block");
    assert_eq!(serve(device.as_mut(), Op::Write, 8, 8).1, Status::Ok);
    assert_eq!(repairs(device.as_ref()).1, 0);
}

#[test]
fn a_member_that_fails_a_write_is_dropped() {
    for mut device in [raid1(2, &[], &[1]), raid5(&[], &[], &[1])] {
        assert_eq!(serve(device.as_mut(), Op::Write, 0, 128).1, Status::Ok, "the array goes on");
        assert_eq!(repairs(device.as_ref()), (0, 1));
        let before = counter(device.as_ref(), "member-1-writes");
        assert_eq!(serve(device.as_mut(), Op::Write, 0, 128).1, Status::Ok);
        assert_eq!(serve(device.as_mut(), Op::Read, 0, 128).1, Status::Ok);
        assert_eq!(counter(device.as_ref(), "member-1-writes"), before, "it gets no requests any more");
        assert_eq!(counter(device.as_ref(), "member-1-reads"), 0);
    }
}

#[test]
fn a_member_that_fails_a_write_back_is_dropped() {
    for mut device in [raid1(2, &[&[3]], &[0]), raid5(&[], &[&[3]], &[0])] {
        assert_eq!(serve(device.as_mut(), Op::Read, 0, 8).1, Status::Ok);
        assert_eq!(repairs(device.as_ref()), (0, 1));
    }
}

#[test]
fn the_last_member_stays_and_its_errors_are_the_requests() {
    let mut device = raid1(2, &[], &[0, 1]);
    assert_eq!(serve(device.as_mut(), Op::Write, 0, 8).1, Status::MediaError);
    assert_eq!(repairs(device.as_ref()), (0, 1));
    let mut device = raid5(&[], &[], &[0, 1, 2]);
    assert_eq!(serve(device.as_mut(), Op::Write, 0, 128).1, Status::MediaError);
    assert_eq!(repairs(device.as_ref()), (0, 1));
    assert_eq!(serve(device.as_mut(), Op::Read, 0, 128).1, Status::Ok, "reads are still answered");
}

#[test]
fn the_contract_holds_with_failing_members() {
    let bad: Vec<u64> = (0..MEMBER_SECTORS).step_by(37).collect();
    contract::check("RAID 1 of failing members", contract::cases(24), &|_| raid1(3, &[&bad, &bad], &[2]));
    contract::check("RAID 5 of failing members", contract::cases(24), &|_| raid5(&[], &[&bad, &[8]], &[2]));
    contract::check("degraded RAID 5", contract::cases(24), &|_| raid5(&[3], &[&bad, &bad], &[2]));
}
