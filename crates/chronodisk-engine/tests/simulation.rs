//! Closed and open loops, and the twin.

mod common;

use std::cell::Cell;
use std::ops::ControlFlow;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::sim::{
    Issue, Issuer, SimulationError, closed_loop, closed_loop_streaming, issuers_loop_at, open_loop,
};
use chronodisk_engine::{ModelPort, Twin, VerifyError, twin, verify};
use chronodisk_sim::{Nanos, Op, Request, RequestRecord};
use common::{CAPACITY_SECTORS, Capricious, request};
use proptest::prelude::*;

fn build(profile: &str) -> Box<dyn DeviceModel> {
    Profile::find(profile).unwrap().build(&BuildOptions::default()).unwrap()
}

fn issue(number: u64, think_ns: u64) -> Issue {
    Issue { request: request(0, number), think: Nanos::from_nanos(think_ns) }
}

fn issues() -> impl Strategy<Value = Vec<Issue>> {
    let think = prop_oneof![3 => Just(0), 2 => (0u64..20).prop_map(|steps| steps * 100), 1 => 0u64..50_000];
    prop::collection::vec((any::<u64>(), think).prop_map(|(number, think_ns)| issue(number, think_ns)), 1..120)
}

#[test]
fn one_request_after_the_other_takes_the_sum_of_the_service_times() {
    let log = closed_loop(&mut *build("constant-10ms"), (0..1000).map(|number| issue(number, 0)), 1).unwrap();
    assert_eq!(log.len(), 1000);
    assert!(log.iter().all(|record| record.service_time() == Nanos::from_millis(10)));
    assert!(log.iter().all(|record| record.lateness() == Nanos::ZERO));
    assert_eq!(log.last().unwrap().completed, Nanos::from_secs(10));
}

#[test]
fn think_time_comes_between_completion_and_arrival() {
    let log = closed_loop(&mut *build("constant-100us"), (0..3).map(|number| issue(number, 7_000)), 1).unwrap();
    let arrivals: Vec<u64> = log.iter().map(|record| record.arrival.as_nanos()).collect();
    assert_eq!(arrivals, [7_000, 114_000, 221_000]);
}

/// A closed loop as one of several issuers.
struct Loop {
    depth: u32,
    issues: std::vec::IntoIter<Issue>,
    begun: Option<Nanos>,
}

impl Loop {
    fn new(depth: u32, issues: Vec<Issue>) -> Self {
        Loop { depth, issues: issues.into_iter(), begun: None }
    }
}

impl Issuer for Loop {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn begin(&mut self, now: Nanos) {
        assert_eq!(self.begun.replace(now), None);
    }

    fn next(&mut self, now: Nanos, _outstanding: u32) -> Option<(Nanos, Request)> {
        assert!(Some(now) >= self.begun);
        self.issues.next().map(|issue| (now.saturating_add(issue.think), issue.request))
    }
}

fn issuers_loop(model: Box<dyn DeviceModel>, groups: Vec<Vec<Loop>>) -> Result<Vec<RequestRecord>, SimulationError> {
    let mut records = Vec::new();
    issuers_loop_at(&mut ModelPort::from(model), groups, |record| {
        records.push(*record);
        ControlFlow::Continue(())
    })?;
    Ok(records)
}

#[test]
fn issuers_share_a_device_and_groups_wait_for_each_other() {
    let of = |issuer: u32, count: u64, think_ns: u64| -> Vec<Issue> {
        let with = |issue: Issue| Issue { request: Request { issuer, ..issue.request }, ..issue };
        (0..count).map(|number| with(issue(number, think_ns))).collect()
    };
    let first = vec![Loop::new(1, of(1, 3, 0)), Loop::new(2, of(2, 4, 50_000))];
    let second = vec![Loop::new(1, of(3, 1, 5_000))];
    let log = issuers_loop(build("constant-100us"), vec![first, second]).unwrap();
    let arrivals = |issuer: u32| -> Vec<u64> {
        log.iter().filter(|record| record.issuer == issuer).map(|record| record.arrival.as_nanos() / 1_000).collect()
    };
    assert_eq!(arrivals(1), [0, 100, 200]);
    assert_eq!(arrivals(2), [50, 50, 200, 200]);
    assert_eq!(arrivals(3), [305], "a pause after the end of all others");
    // Of requests for one instant, the one planned first arrives first.
    let at_200: Vec<u32> =
        log.iter().filter(|record| record.arrival == Nanos::from_micros(200)).map(|record| record.issuer).collect();
    assert_eq!(at_200, [2, 2, 1]);

    let depthless = issuers_loop(build("constant-100us"), vec![vec![Loop::new(0, of(1, 1, 0))]]);
    assert_eq!(depthless, Err(SimulationError::NoDepth));
    let late = issuers_loop(build("constant-100us"), vec![vec![Loop::new(1, of(1, 1, u64::MAX))]]);
    assert_eq!(late, Err(SimulationError::BeyondTime { order: 0 }));

    let mut seen = 0;
    issuers_loop_at(&mut ModelPort::from(build("constant-100us")), [vec![Loop::new(2, of(1, 100, 0))]], |_| {
        seen += 1;
        if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!(seen, 10, "both that were outstanding were handed on");
}

#[test]
fn wrong_input_is_an_error_that_says_which_request() {
    let mut model = Capricious::new(1);
    assert_eq!(closed_loop(&mut model, [issue(0, 0)], 0), Err(SimulationError::NoDepth));
    let beyond = Issue { request: Request::new(0, Op::Read, CAPACITY_SECTORS - 1, 2), think: Nanos::ZERO };
    let error = closed_loop(&mut model, [issue(0, 0), beyond], 1).unwrap_err();
    assert_eq!(error.to_string(), "request 1 asks for 2 sectors at sector 9999, but the device has 10000 sectors");
    let late = closed_loop(&mut Capricious::new(1), [issue(0, 1), issue(0, u64::MAX)], 1).unwrap_err();
    assert_eq!(late, SimulationError::BeyondTime { order: 1 });
}

#[test]
fn a_log_that_cannot_be_of_the_device_is_refused_with_its_record() {
    let good = closed_loop(&mut *build("constant-100us"), (0..4).map(|number| issue(number, 0)), 2).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<RequestRecord>)| {
        let mut records = good.clone();
        change(&mut records);
        verify(&mut [build("constant-100us")], &records, None).unwrap_err()
    };
    assert!(matches!(refused(&|r| r[2].device = 1), VerifyError::UnknownDevice { index: 2, device: 1, devices: 1 }));
    assert!(matches!(refused(&|r| r[1].lba.0 = u64::MAX), VerifyError::OutOfRange { index: 1, .. }));
    assert!(matches!(refused(&|r| r.retain(|record| record.order != 1)), VerifyError::Order { index: 1, order: 2 }));
    assert!(matches!(refused(&|r| r[3].arrival = Nanos::ZERO), VerifyError::ArrivalStepsBack { index: 3, .. }));
    let eternity = Nanos::from_nanos(u64::MAX - 1);
    let late =
        |r: &mut Vec<RequestRecord>| (r[3].arrival, r[3].due, r[3].completed) = (eternity, Nanos::MAX, Nanos::MAX);
    assert_eq!(refused(&late), VerifyError::BeyondTime { index: 3 });
    assert!(matches!(refused(&|r| r[3].due = r[3].arrival), VerifyError::InstantsOutOfOrder { index: 3, .. }));
    assert!(matches!(refused(&|r| r[0].completed = r[0].arrival), VerifyError::InstantsOutOfOrder { index: 0, .. }));
}

proptest! {
    #[test]
    fn an_issuer_alone_is_a_closed_loop(seed: u64, issues in issues(), depth in 1u32..8) {
        let alone = closed_loop(&mut Capricious::new(seed), issues.clone(), depth).unwrap();
        let log = issuers_loop(Box::new(Capricious::new(seed)), vec![vec![Loop::new(depth, issues)]]).unwrap();
        prop_assert_eq!(log, alone);
    }

    #[test]
    fn a_closed_loop_keeps_its_depth_and_can_be_replayed(
        seed in 0u64..1_000,
        issues in issues(),
        depth in 1u32..9,
    ) {
        let log = closed_loop(&mut Capricious::new(seed), issues.clone(), depth).unwrap();
        prop_assert_eq!(log.len(), issues.len());
        prop_assert!(log.iter().enumerate().all(|(index, record)| record.order == index as u64));
        prop_assert!(log.is_sorted_by_key(|record| record.arrival));
        let mut edges: Vec<(Nanos, i64)> = Vec::new();
        for record in &log {
            // A completion frees its place at its own instant.
            edges.extend([(record.completed, -1), (record.arrival, 1)]);
        }
        edges.sort_unstable();
        let mut outstanding = 0;
        for (_, change) in edges {
            outstanding += change;
            prop_assert!((0..=i64::from(depth)).contains(&outstanding));
        }
        // Without think time, every free place is filled until the requests run out.
        if issues.iter().all(|issue| issue.think == Nanos::ZERO) && log.len() > depth as usize {
            for record in &log[depth as usize..] {
                prop_assert!(log.iter().any(|earlier| earlier.completed == record.arrival));
            }
        }
        let verification = verify(&mut [Capricious::boxed(seed)], &log, None).unwrap();
        prop_assert!(verification.identical(), "{:?}", verification.first_difference);
        let request = |record: &RequestRecord| Request::new(0, record.op, record.lba.0, record.sectors);
        let arrivals = log.iter().map(|record| (record.arrival, request(record)));
        prop_assert_eq!(open_loop(&mut Capricious::new(seed), arrivals).unwrap(), log);
    }

    #[test]
    fn streaming_hands_on_the_same_records_and_stops_when_told(
        seed in 0u64..1_000,
        issues in issues(),
        depth in 1u32..9,
        stop_after in 1usize..200,
    ) {
        let log = closed_loop(&mut Capricious::new(seed), issues.clone(), depth).unwrap();
        let mut seen = Vec::new();
        let drawn = Cell::new(0);
        let mut drawn_by_the_stop = usize::MAX;
        let counted = issues.into_iter().inspect(|_| drawn.set(drawn.get() + 1));
        closed_loop_streaming(&mut Capricious::new(seed), counted, depth, |record| {
            seen.push(*record);
            if seen.len() < stop_after {
                return ControlFlow::Continue(());
            }
            drawn_by_the_stop = drawn_by_the_stop.min(drawn.get());
            ControlFlow::Break(())
        })
        .unwrap();
        // Every drawn request completes, and none is drawn after the stop.
        prop_assert_eq!(seen.len(), drawn.get());
        prop_assert_eq!(drawn.get(), drawn_by_the_stop.min(log.len()));
        for (seen, logged) in seen.iter().zip(&log).take(stop_after) {
            prop_assert_eq!(seen, logged);
        }
        if stop_after >= log.len() {
            prop_assert_eq!(seen, log);
        }
    }

    #[test]
    fn the_twin_of_a_punctual_stream_is_the_stream_itself(seed in 0u64..1_000, issues in issues()) {
        let log = closed_loop(&mut Capricious::new(seed), issues, 1).unwrap();
        let result = twin(vec![Capricious::boxed(seed)], &log).unwrap();
        prop_assert_eq!(result.punctual, result.logged);
        prop_assert_eq!(result.stretch(), 0.0);
    }
}

#[test]
fn the_twin_takes_out_lateness_and_what_it_caused() {
    // A guest that sees each 100 µs completion 25 µs late, and thinks for 10 µs.
    let mut records =
        closed_loop(&mut *build("constant-100us"), (0..100).map(|number| issue(number, 10_000)), 1).unwrap();
    for (index, record) in records.iter_mut().enumerate() {
        let shift = Nanos::from_micros(25 * index as u64);
        record.arrival += shift;
        record.due += shift;
        record.completed = record.due + Nanos::from_micros(25);
    }
    let Twin { requests, logged, punctual, logged_lateness_sum } =
        twin(vec![build("constant-100us")], &records).unwrap();
    assert_eq!(requests, 100);
    assert_eq!(logged_lateness_sum, Nanos::from_micros(2_500));
    assert_eq!(punctual, Nanos::from_micros(100 * 110 - 10));
    assert_eq!(logged, punctual + Nanos::from_micros(2_500));
}

#[test]
fn the_twin_of_nothing_is_nothing() {
    assert_eq!(twin(vec![build("null")], &[]).unwrap(), Twin::default());
}
