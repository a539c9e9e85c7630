//! The core by itself: order, clamped arrivals, bytes that move later, measured host time, broken models.

mod common;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chronodisk_device::{BuildOptions, DeviceInfo, DeviceModel, Profile, contract};
use chronodisk_engine::sim::{Issue, closed_loop};
use chronodisk_engine::{DeviceIndex, Due, Engine, HostClock, Transfer, verify};
use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, Status};
use common::{CAPACITY_SECTORS, Capricious};

fn build(profile: &str) -> Box<dyn DeviceModel> {
    Profile::find(profile).unwrap().build(&BuildOptions::default()).unwrap()
}

fn read(id: u64) -> Request {
    Request::new(id, Op::Read, 8 * id, 8)
}

fn take(engine: &mut Engine, now: Nanos) -> Vec<Due> {
    let mut due = Vec::new();
    engine.time(now);
    engine.take_due(now, &mut due);
    due
}

fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

#[test]
fn completions_of_one_instant_leave_by_device_then_by_sequence() {
    let mut engine = Engine::new();
    let devices = [(); 3].map(|()| engine.attach(build("null")));
    for (device, id) in [(2, 0), (0, 1), (1, 2), (0, 3), (2, 4)] {
        engine.arrive(us(5), devices[device], read(id), Transfer::MOVED);
    }
    let order: Vec<(u16, u64)> = take(&mut engine, us(1_000)).iter().map(|due| (due.device.0, due.id.0)).collect();
    assert_eq!(order, [(0, 1), (0, 3), (1, 2), (2, 0), (2, 4)]);
    assert_eq!(engine.outstanding(), 0);
}

#[test]
fn the_same_id_may_be_outstanding_on_two_devices_and_again_later() {
    let mut engine = Engine::new();
    let devices = [(); 2].map(|()| engine.attach(build("constant-100us")));
    for device in devices {
        engine.arrive(Nanos::ZERO, device, read(9), Transfer::MOVED);
    }
    assert_eq!(take(&mut engine, us(100)).len(), 2);
    engine.arrive(us(100), devices[0], read(9), Transfer::MOVED);
    assert_eq!(take(&mut engine, us(200)).len(), 1);
}

#[test]
fn an_arrival_in_the_past_is_moved_to_the_models_present_and_counted() {
    let mut engine = Engine::new();
    let device = engine.attach(build("constant-100us"));
    engine.arrive(us(50), device, read(0), Transfer::MOVED);
    assert_eq!(engine.arrive(us(20), device, read(1), Transfer::MOVED), us(50));
    assert_eq!(engine.statistics().clamped_arrivals, 1);
    assert_eq!(engine.statistics().clamp_max, us(30));
    assert_eq!(engine.records()[1].arrival, us(50), "the log has the effective arrival");
    take(&mut engine, Nanos::from_secs(1));
    assert!(verify(&mut [build("constant-100us")], engine.records(), None).unwrap().identical());
}

#[test]
fn a_completion_waits_for_its_bytes_whichever_comes_last() {
    // The bytes finish after the model, before it, and at arrival.
    for (store_done_us, expected_us) in [(Some(250), 250), (Some(30), 100), (None, 100)] {
        let mut engine = Engine::new();
        let device = engine.attach(build("constant-100us"));
        let bytes = if store_done_us.is_some() { Transfer::Moving } else { Transfer::MOVED };
        engine.arrive(Nanos::ZERO, device, read(0), bytes);
        let mut seen_at = None;
        for now_us in (0..400).step_by(10) {
            if store_done_us == Some(now_us) {
                engine.store_done(us(now_us), device, RequestId(0), Transfer::Moved { took: us(3) });
            }
            if let [due] = take(&mut engine, us(now_us))[..] {
                assert_eq!(due.due, us(100), "due is the model's word");
                assert_eq!(seen_at.replace(now_us), None);
            }
        }
        assert_eq!(seen_at, Some(expected_us));
        assert_eq!(engine.records()[0].lateness(), us(expected_us - 100));
        assert_eq!(engine.completion_bound(), None);
    }
}

#[test]
fn a_request_that_waits_for_its_bytes_alone_has_no_bound() {
    let mut engine = Engine::new();
    let device = engine.attach(build("constant-100us"));
    engine.arrive(Nanos::ZERO, device, read(0), Transfer::Moving);
    assert_eq!(engine.completion_bound(), Some(us(100)));
    assert_eq!(take(&mut engine, us(150)), []);
    assert_eq!(engine.completion_bound(), None);
    assert_eq!(engine.run_to_first_due(Nanos::MAX), None);
    assert_eq!(engine.outstanding(), 1);
    engine.store_done(us(160), device, RequestId(0), Transfer::MOVED);
    assert_eq!(engine.completion_bound(), Some(us(160)));
}

#[test]
fn bytes_that_could_not_be_moved_end_as_a_media_error_in_the_models_own_time() {
    let mut engine = Engine::new();
    let device = engine.attach(build("constant-100us"));
    engine.arrive(Nanos::ZERO, device, read(0), Transfer::Failed { took: us(7) });
    engine.arrive(Nanos::ZERO, device, read(1), Transfer::Moving);
    engine.store_done(us(1), device, RequestId(1), Transfer::Failed { took: us(8) });
    for due in take(&mut engine, Nanos::from_secs(1)) {
        assert_eq!(due.status, Status::MediaError);
    }
    let records = engine.records();
    assert!(records.iter().all(|record| record.store_failed && record.status == Status::MediaError));
    assert_eq!([records[0].store_time, records[1].store_time], [us(7), us(8)]);
    assert_eq!(records[0].due, us(100));
    assert!(verify(&mut [build("constant-100us")], records, None).unwrap().identical());
}

/// A host whose clock advances by 1 µs at each reading, and whose sleep is exact.
#[derive(Clone, Default)]
struct CountingHost(Arc<AtomicU64>);

impl HostClock for CountingHost {
    fn now(&self) -> Nanos {
        us(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn sleep(&self, duration: Nanos) {
        self.0.fetch_add(duration.as_nanos() / 1_000, Ordering::Relaxed);
    }
}

#[test]
fn the_hosts_time_is_measured_per_request_and_changes_nothing() {
    let run = |delay: Option<RangeInclusive<Nanos>>| {
        let mut engine = Engine::new();
        let device = engine.attach(Capricious::boxed(5));
        if let Some(delay) = delay {
            engine.set_host_clock(Box::new(CountingHost::default()));
            engine.set_model_delay(delay, 9);
        }
        for id in 0..20 {
            engine.arrive(Nanos::from_nanos(id * 130), device, common::request(id, id * 7_919), Transfer::MOVED);
            take(&mut engine, Nanos::from_nanos(id * 130));
        }
        take(&mut engine, us(100));
        engine
    };
    let (plain, measured, delayed) =
        (run(None), run(Some(Nanos::ZERO..=Nanos::ZERO)), run(Some(us(50_000)..=us(50_000))));
    let random = || run(Some(us(10)..=us(2_000)));
    let dues =
        |engine: &Engine| engine.records().iter().map(|record| (record.due, record.completed)).collect::<Vec<_>>();
    assert_eq!(dues(&plain), dues(&measured));
    assert_eq!(dues(&plain), dues(&delayed));
    assert_eq!(dues(&plain), dues(&random()));

    assert!(plain.records().iter().all(|record| record.model_time == Nanos::ZERO));
    // The records account for all host time: each call took 1 µs, or 50,001 µs.
    for (engine, each_us) in [(&measured, 1), (&delayed, 50_001)] {
        let sum: u64 = engine.records().iter().map(|record| record.model_time.as_nanos()).sum();
        assert_eq!(sum, engine.statistics().model_time.as_nanos());
        assert_eq!(sum, us(each_us * engine.statistics().model_calls).as_nanos());
        assert!(engine.records().iter().all(|record| record.model_time >= us(each_us)));
    }

    // The host's clock ticks in µs, so the mean of uniform delays is half a µs below the middle.
    let statistics = random().statistics();
    assert_eq!(statistics, random().statistics());
    let mean_us = statistics.model_time.as_nanos() as f64 / 1e3 / statistics.model_calls as f64;
    assert!((700.0..1_300.0).contains(&mean_us), "{mean_us} µs over {} calls", statistics.model_calls);
}

#[test]
#[should_panic(expected = "has no values")]
fn a_delay_has_its_bounds_in_order() {
    let mut engine = Engine::new();
    engine.set_host_clock(Box::new(CountingHost::default()));
    #[allow(clippy::reversed_empty_ranges, reason = "this is the mistake")]
    engine.set_model_delay(us(2)..=us(1), 0);
}

#[test]
#[should_panic(expected = "arrived at device 0 while outstanding there")]
fn a_second_use_of_an_outstanding_id_is_a_bug_of_the_front_end() {
    let mut engine = Engine::new();
    let device = engine.attach(build("constant-100us"));
    engine.arrive(Nanos::ZERO, device, read(0), Transfer::MOVED);
    engine.arrive(Nanos::ZERO, device, read(0), Transfer::MOVED);
}

#[test]
#[should_panic(expected = "the device ends at sector")]
fn a_request_beyond_the_device_is_a_bug_of_the_front_end() {
    let mut engine = Engine::new();
    let device = engine.attach(Capricious::boxed(0));
    engine.arrive(Nanos::ZERO, device, Request::new(0, Op::Read, u64::MAX - 1, 8), Transfer::MOVED);
}

/// Ways in which a model can break its contract.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Vice {
    /// Stops short of the limit without a completion.
    Stalls,
    /// Completes a request again and again.
    Repeats,
    /// Completes a request at its arrival.
    Instant,
    /// Reports a completion at another instant than the present.
    Misdates,
    /// Has outstanding requests, but announces no event.
    Forgets,
    /// Runs to the end of time without completing anything.
    NeverCompletes,
}

#[derive(Clone)]
struct Broken {
    vice: Vice,
    honest: Capricious,
    outstanding: u32,
}

impl Broken {
    fn new(vice: Vice) -> Self {
        Broken { vice, honest: Capricious::new(0), outstanding: 0 }
    }
}

impl DeviceModel for Broken {
    fn info(&self) -> &DeviceInfo {
        self.honest.info()
    }
    fn now(&self) -> Nanos {
        self.honest.now()
    }
    fn outstanding(&self) -> u32 {
        self.outstanding
    }
    fn submit(&mut self, _request: Request) {
        self.outstanding += 1;
    }
    fn next_event(&self) -> Option<Nanos> {
        (self.vice != Vice::Forgets).then(|| self.now() + Nanos::from_nanos(1))
    }
    fn completion_bound(&self) -> Option<Nanos> {
        Some(self.now())
    }
    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let completes = self.outstanding > 0 && !matches!(self.vice, Vice::Forgets | Vice::NeverCompletes);
        let to = match self.vice {
            Vice::Stalls => return,
            Vice::Instant if completes => self.now(),
            Vice::Repeats | Vice::Misdates if completes => limit.min(self.now() + Nanos::from_nanos(1)),
            _ => limit,
        };
        self.honest.step(to, &mut Vec::new());
        if completes {
            let at = if self.vice == Vice::Misdates { to + Nanos::from_nanos(1) } else { to };
            completed.push(Completion { id: RequestId(0), at, status: Status::Ok });
            self.outstanding -= u32::from(self.vice != Vice::Repeats);
        }
    }
    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }
}

#[test]
fn a_broken_model_is_named_and_told_what_it_did_in_every_driver() {
    for (vice, message) in [
        (Vice::Stalls, "but completed nothing"),
        (Vice::Repeats, "completions by"),
        (Vice::Instant, "not after its arrival"),
        (Vice::Misdates, "during a step that ended at"),
        (Vice::NeverCompletes, "never complete"),
    ] {
        let simulated = panic_message(|| {
            let issue = Issue { request: read(0), think: Nanos::ZERO };
            let _ = closed_loop(&mut Broken::new(vice), [issue], 1);
        });
        assert!(simulated.contains(message) && simulated.contains("capricious-0"), "{vice:?} said: {simulated}");
    }
    for (vice, message) in [
        (Vice::Stalls, "but completed nothing"),
        (Vice::Repeats, "completions by"),
        (Vice::Instant, "not after its arrival"),
        (Vice::Misdates, "during a step that ended at"),
        (Vice::Forgets, "no event ahead"),
    ] {
        let driven = panic_message(|| {
            let mut engine = Engine::new();
            let device = engine.attach(Box::new(Broken::new(vice)));
            engine.arrive(Nanos::ZERO, device, read(0), Transfer::MOVED);
            engine.run_to_first_due(us(1));
        });
        assert!(driven.contains(message) && driven.contains("capricious-0"), "{vice:?} said: {driven}");
    }
}

fn panic_message(run: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(run).expect_err("the model is broken");
    panic.downcast_ref::<String>().cloned().expect("the engine's assertions have messages")
}

#[test]
fn capacity_is_inclusive_of_the_last_sector() {
    let mut engine = Engine::new();
    let device = engine.attach(Capricious::boxed(0));
    engine.arrive(Nanos::ZERO, device, Request::new(0, Op::Read, CAPACITY_SECTORS - 8, 8), Transfer::MOVED);
    assert_eq!(engine.outstanding(), 1);
    assert_eq!(engine.info(DeviceIndex(0)).capacity_sectors, CAPACITY_SECTORS);
}

#[test]
fn the_capricious_device_keeps_the_contract() {
    for seed in 0..6 {
        contract::check(&format!("capricious-{seed}"), contract::cases(8), &|_| Capricious::boxed(seed));
    }
}
