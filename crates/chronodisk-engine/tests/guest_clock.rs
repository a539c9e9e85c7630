//! For any behaviour of a guest, its requests are due when a simulation of the same arrivals completes them.

mod common;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{DeviceIndex, Due, Engine, GuestClock, Transfer, sim, verify};
use chronodisk_sim::{Nanos, Op, Request, RequestRecord};
use common::{Capricious, request};
use proptest::prelude::*;

/// A possible step of a guest; times are relative to the latest virtual time.
#[derive(Clone, Debug)]
enum Action {
    Kick {
        after_ns: u64,
        requests: Vec<(u16, u64)>,
    },
    Idle {
        after_ns: u64,
        timer_ns: Option<u64>,
    },
    Interrupt {
        after_ns: u64,
    },
    /// The host's timer fires at the completion bound, or later by `late_ns`.
    Bound {
        late_ns: u64,
    },
    /// A second processor reads an older time.
    StepBack {
        by_ns: u64,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let requests = prop::collection::vec((0u16..3, any::<u64>()), 1..6);
    prop_oneof![
        4 => (0u64..800, requests).prop_map(|(after_ns, requests)| Action::Kick { after_ns, requests }),
        3 => (0u64..300, prop::option::of(0u64..2_000))
            .prop_map(|(after_ns, timer_ns)| Action::Idle { after_ns, timer_ns }),
        2 => (0u64..500).prop_map(|after_ns| Action::Interrupt { after_ns }),
        3 => (0u64..150).prop_map(|late_ns| Action::Bound { late_ns }),
        1 => (0u64..1_000).prop_map(|by_ns| Action::StepBack { by_ns }),
    ]
}

fn models(seed: u64) -> Vec<Box<dyn DeviceModel>> {
    (0..3).map(|index| Capricious::boxed(seed + index)).collect()
}

fn clock_over(models: Vec<Box<dyn DeviceModel>>) -> GuestClock {
    let mut engine = Engine::new();
    for model in models {
        engine.attach(model);
    }
    GuestClock::new(engine)
}

fn after(instant: Nanos, nanos: u64) -> Nanos {
    instant + Nanos::from_nanos(nanos)
}

/// Plays the actions, and checks the completions that the guest sees at each.
fn play(clock: &mut GuestClock, actions: &[Action]) -> Result<(), TestCaseError> {
    for action in actions {
        let before = clock.now();
        let bound = clock.completion_bound();
        let outstanding = clock.engine().outstanding();
        match action {
            Action::Kick { after_ns, requests } => {
                let at = clock.kick(after(before, *after_ns));
                for (device, number) in requests {
                    let id = clock.next_request_id().0;
                    let arrival = clock.arrive(DeviceIndex(*device), request(id, *number), Transfer::MOVED);
                    prop_assert_eq!(arrival, at, "a model was ahead of its guest");
                }
            }
            Action::Idle { after_ns, timer_ns } => {
                let v = after(before, *after_ns);
                let timer = timer_ns.map(|timer_ns| after(before, timer_ns));
                let idle = clock.idle(v, timer);
                match idle.resume_at {
                    None => prop_assert!(timer.is_none() && outstanding == 0),
                    Some(resume_at) => {
                        prop_assert!(resume_at >= v);
                        prop_assert!(timer.is_none_or(|timer| resume_at <= timer.max(v)));
                        if idle.due.is_empty() {
                            prop_assert_eq!(Some(resume_at), timer.map(|timer| timer.max(v)));
                        }
                        // An idle guest sees each completion on time; completions that were due while it ran were due
                        // by `v`.
                        prop_assert!(idle.due.iter().all(|due| due.due == resume_at || due.due <= v));
                        check_due(&idle.due, resume_at, bound)?;
                    }
                }
            }
            Action::Interrupt { after_ns } => {
                let v = after(before, *after_ns);
                let due = clock.interrupted(v);
                check_due(&due, v, bound)?;
                prop_assert!(clock.completion_bound().is_none_or(|bound| bound > v), "an interrupt makes no progress");
            }
            Action::Bound { late_ns } => {
                let Some(bound) = bound else { continue };
                let v = after(bound, *late_ns).max(before);
                let due = clock.interrupted(v);
                check_due(&due, v, Some(bound))?;
                prop_assert!(clock.completion_bound().is_none_or(|bound| bound > v));
            }
            Action::StepBack { by_ns } => {
                let backward_steps = clock.backward_steps();
                let stale = before.saturating_sub(Nanos::from_nanos(*by_ns));
                let due = clock.interrupted(stale);
                check_due(&due, before, bound)?;
                prop_assert_eq!(clock.now(), before);
                prop_assert_eq!(clock.backward_steps(), backward_steps + u64::from(stale < before));
            }
        }
        prop_assert!(clock.now() >= before);
    }
    Ok(())
}

/// Completions are in order, none is early, and none is before the announced bound.
fn check_due(due: &[Due], now: Nanos, bound: Option<Nanos>) -> Result<(), TestCaseError> {
    prop_assert!(due.is_sorted_by_key(|due| (due.due, due.device)));
    prop_assert!(due.iter().all(|due| due.due <= now));
    prop_assert!(due.iter().all(|due| bound.is_some_and(|bound| bound <= due.due)));
    Ok(())
}

fn of_device(records: &[RequestRecord], device: u16) -> impl Iterator<Item = &RequestRecord> {
    records.iter().filter(move |record| record.device == device)
}

proptest! {
    #[test]
    fn a_guest_sees_what_a_simulation_of_its_arrivals_says(
        seed in 0u64..1_000,
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut clock = clock_over(models(seed));
        play(&mut clock, &actions)?;
        prop_assert_eq!(clock.engine().statistics().clamped_arrivals, 0);
        let v = after(clock.now(), 50);
        let (log, end) = clock.finish(v);
        let records = log.records();

        let verification = verify(&mut models(seed), records, Some(end)).unwrap();
        prop_assert!(verification.identical(), "{:?}", verification.first_difference);
        prop_assert_eq!(verification.compared, records.len() as u64);

        // The same replay through a second driver, which shares only its checks with `verify`.
        for (device, model) in models(seed).iter_mut().enumerate() {
            let arrivals = of_device(records, device as u16)
                .enumerate()
                .map(|(id, record)| (record.arrival, Request::new(id as u64, record.op, record.lba.0, record.sectors)));
            let replayed = sim::open_loop(&mut **model, arrivals).unwrap();
            for (record, replayed) in of_device(records, device as u16).zip(&replayed) {
                if record.due != Nanos::MAX {
                    prop_assert_eq!((record.due, record.status), (replayed.due, replayed.status));
                } else {
                    prop_assert!(replayed.due > end);
                }
                prop_assert!(record.completed >= record.due);
            }
        }
    }

    #[test]
    fn a_change_anywhere_in_the_log_is_found(
        seed in 0u64..1_000,
        actions in prop::collection::vec(action(), 20..40),
        victim in any::<prop::sample::Index>(),
    ) {
        let mut clock = clock_over(models(seed));
        play(&mut clock, &actions)?;
        let v = after(clock.now(), 100_000);
        let (log, end) = clock.finish(v);
        let mut records = log.into_records();
        prop_assume!(!records.is_empty());
        let victim = victim.index(records.len());
        records[victim].due += Nanos::from_nanos(1);
        records[victim].completed = records[victim].completed.max(records[victim].due);
        let verification = verify(&mut models(seed), &records, Some(end)).unwrap();
        prop_assert_eq!(verification.differences, 1);
        prop_assert_eq!(verification.first_difference.unwrap().order, victim as u64);
    }

    #[test]
    fn equal_runs_give_equal_logs(seed in 0u64..1_000, actions in prop::collection::vec(action(), 1..40)) {
        let logs = [(); 2].map(|()| {
            let mut clock = clock_over(models(seed));
            play(&mut clock, &actions).unwrap();
            let v = clock.now();
            clock.finish(v)
        });
        prop_assert_eq!(&logs[0], &logs[1]);
    }
}

#[test]
fn an_idle_guest_jumps_to_the_earlier_of_its_timer_and_the_first_completion() {
    let model = Profile::find("constant-10ms").unwrap().build(&BuildOptions::default()).unwrap();
    let mut clock = clock_over(vec![model]);
    clock.kick(Nanos::from_millis(1));
    clock.arrive(DeviceIndex(0), Request::new(7, Op::Read, 0, 8), Transfer::MOVED);

    let at_timer = clock.idle(Nanos::from_millis(1), Some(Nanos::from_millis(4)));
    assert_eq!((at_timer.resume_at, at_timer.due.len()), (Some(Nanos::from_millis(4)), 0));
    let at_completion = clock.idle(Nanos::from_millis(4), Some(Nanos::from_secs(1000)));
    assert_eq!(at_completion.resume_at, Some(Nanos::from_millis(11)));
    assert_eq!(at_completion.due[0].id.0, 7);
    let at_long_timer = clock.idle(Nanos::from_millis(11), Some(Nanos::from_secs(1000)));
    assert_eq!(at_long_timer.resume_at, Some(Nanos::from_secs(1000)));
    assert_eq!(clock.idle(Nanos::from_secs(1000), None).resume_at, None, "nobody here can wake it");
}

#[test]
fn a_computing_guest_sees_its_completion_late_and_the_log_says_so() {
    let model = Profile::find("constant-10ms").unwrap().build(&BuildOptions::default()).unwrap();
    let mut clock = clock_over(vec![model]);
    clock.kick(Nanos::ZERO);
    clock.arrive(DeviceIndex(0), Request::new(0, Op::Read, 0, 8), Transfer::MOVED);
    assert_eq!(clock.completion_bound(), Some(Nanos::from_millis(10)));
    assert_eq!(clock.interrupted(Nanos::from_millis(9)), []);
    assert_eq!(clock.interrupted(Nanos::from_millis(12)).len(), 1);
    let record = clock.engine().records()[0];
    assert_eq!(record.lateness(), Nanos::from_millis(2));
    assert_eq!(record.service_time(), Nanos::from_millis(10));
}

#[test]
fn a_timer_in_the_past_resumes_at_once() {
    let mut clock = clock_over(models(1));
    let idle = clock.idle(Nanos::from_micros(5), Some(Nanos::from_micros(2)));
    assert_eq!(idle.resume_at, Some(Nanos::from_micros(5)));
}

#[test]
fn a_request_that_the_end_cut_off_stays_in_the_log_and_is_verified() {
    let build = || Profile::find("constant-10ms").unwrap().build(&BuildOptions::default()).unwrap();
    let mut clock = clock_over(vec![build()]);
    clock.kick(Nanos::ZERO);
    clock.arrive(DeviceIndex(0), Request::new(0, Op::Write, 0, 8), Transfer::MOVED);
    let (log, end) = clock.finish(Nanos::from_millis(3));
    assert!(!log.records()[0].is_completed());
    let verified = verify(&mut [build()], log.records(), Some(end)).unwrap();
    assert!(verified.identical() && verified.compared == 1);
    let impossible = verify(&mut [build()], log.records(), Some(Nanos::from_millis(20))).unwrap();
    assert_eq!(impossible.differences, 1, "it would have completed by 20 ms");
    let unknown = verify(&mut [build()], log.records(), None).unwrap();
    assert_eq!((unknown.compared, unknown.not_compared), (0, 1));
}

#[test]
fn a_guest_that_claims_the_end_of_time_breaks_nothing() {
    let mut clock = clock_over(models(1));
    for (id, v) in [(0, Nanos::MAX), (1, Nanos::ZERO)] {
        let at = clock.kick(v);
        assert!(at < Nanos::MAX);
        clock.arrive(DeviceIndex(1), request(id, 5), Transfer::MOVED);
        let idle = clock.idle(Nanos::MAX, None);
        assert_eq!(idle.due.len(), 1);
    }
    assert_eq!(clock.idle(Nanos::MAX, Some(Nanos::MAX)).resume_at, Some(clock.now()));
}
