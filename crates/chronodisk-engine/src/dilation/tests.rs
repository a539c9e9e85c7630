//! The rules one by one, and properties for any order of events.

use chronodisk_sim::Nanos;
use proptest::prelude::*;

use super::*;

const TWICE: f64 = 2.0;

fn micros(count: u64) -> Nanos {
    Nanos::from_micros(count)
}

fn options(factor: f64) -> DilationOptions {
    let speedup = Speedup::from_factor(factor).unwrap();
    DilationOptions {
        reads: speedup,
        writes: speedup,
        freezes: true,
        quantum_max: micros(1_000),
        ..DilationOptions::default()
    }
}

fn issued(id: u64) -> Event {
    Event::Issued { id, direction: Direction::Read }
}

fn completed(id: u64) -> Event {
    Event::Completed { id }
}

const RUNS: Event = Event::Runnable(Wake::Completion);

/// The prediction after these events, with instants in microseconds.
fn after(options: DilationOptions, events: &[(u64, Event)], end: u64) -> Prediction {
    let mut dilation = play(options, events);
    dilation.tick(micros(end));
    dilation.prediction()
}

fn play(options: DilationOptions, events: &[(u64, Event)]) -> Dilation {
    let mut dilation = Dilation::new(options, Nanos::ZERO);
    for &(at, event) in events {
        dilation.event(micros(at), event);
    }
    dilation
}

fn both(prediction: Prediction) -> [Nanos; 2] {
    [prediction.by_debt, prediction.by_request]
}

#[test]
fn time_without_the_device_counts_in_full() {
    // The program computes, and then sleeps.
    let prediction = after(options(TWICE), &[(0, RUNS), (300, Event::Blocked)], 1_000);
    assert_eq!(both(prediction), [micros(1_000); 2]);
    assert_eq!((prediction.low, prediction.high, prediction.busy), (micros(1_000), micros(1_000), Nanos::ZERO));
}

#[test]
fn a_wait_for_a_request_counts_one_over_r() {
    let events = [(0, RUNS), (100, issued(1)), (100, Event::Blocked), (500, completed(1)), (500, RUNS)];
    assert_eq!(both(after(options(4.0), &events, 600)), [micros(300); 2]);
    assert_eq!(both(after(options(1.0), &events, 600)), [micros(600); 2]);
    let infinite = after(options(f64::INFINITY), &events, 600);
    assert_eq!(both(infinite), [micros(200); 2]);
}

#[test]
fn debt_of_a_busy_device_is_paid_while_nothing_is_runnable() {
    // The program computes for 200 us during its request of 1 ms. On the faster device the request takes 500 us, so 300
    // are left.
    let events = [(0, RUNS), (0, issued(1)), (200, Event::Blocked), (1_000, completed(1)), (1_000, RUNS)];
    let prediction = after(options(TWICE), &events, 1_000);
    assert_eq!(both(prediction), [micros(500); 2]);
    assert_eq!(prediction.unpaid, Nanos::ZERO);
    // The debt is paid first: no virtual time has passed since the program blocked.
    let paying = after(options(TWICE), &events[..3], 400);
    assert_eq!(paying.by_debt, micros(200));
    assert_eq!(after(options(TWICE), &events[..3], 500).by_debt, micros(250));
}

fn woken(since: u64) -> Event {
    Event::Woken { since: micros(since) }
}

#[test]
fn what_a_thread_has_waited_too_long_beside_another_is_owed_to_it() {
    // One thread reads four times, another computes for 2 ms beside it. On a device twice as fast both take 2 ms.
    let events = [
        (0, RUNS),
        (0, issued(1)),
        (1_000, completed(1)),
        (1_000, woken(0)),
        (1_000, issued(2)),
        (2_000, completed(2)),
        (2_000, woken(1_000)),
        (2_000, issued(3)),
        (2_000, Event::Blocked),
        (3_000, completed(3)),
        (3_000, RUNS),
        (3_000, woken(2_000)),
        (3_000, issued(4)),
        (3_000, Event::Blocked),
        (4_000, completed(4)),
    ];
    let prediction = after(options(TWICE), &events, 4_000);
    assert_eq!((prediction.by_debt, prediction.unpaid), (micros(2_000), Nanos::ZERO));
    // Had it ended with the second request, the owed time would not have been paid.
    let prediction = after(options(TWICE), &events[..7], 2_000);
    assert_eq!((prediction.by_debt, prediction.unpaid), (micros(2_000), micros(1_000)));
}

#[test]
fn who_waited_for_the_end_of_a_request_only_is_owed_nothing() {
    // The program computes for 900 us during its own request of 1 ms: on a device twice as fast it would not have
    // waited.
    let events = [
        (0, RUNS),
        (0, issued(1)),
        (900, Event::Blocked),
        (1_000, completed(1)),
        (1_000, RUNS),
        (1_000, woken(900)),
        (1_000, issued(2)),
        (1_000, Event::Blocked),
        (2_000, completed(2)),
    ];
    let prediction = after(options(TWICE), &events, 2_000);
    assert_eq!((prediction.by_debt, prediction.unpaid), (micros(900 + 500), micros(400)));
}

#[test]
fn debt_left_at_the_end_of_busy_is_dropped_and_reported() {
    let events = [(0, RUNS), (0, issued(1)), (1_000, completed(1))];
    let prediction = after(options(TWICE), &events, 2_000);
    assert_eq!((prediction.by_debt, prediction.unpaid), (micros(2_000), micros(500)));
    // The device was busy beside the program for half of the time: half of 3 % of margin.
    assert_eq!((prediction.low, prediction.high), (micros(1_470), micros(2_030)));
}

#[test]
fn frozen_time_is_still_and_pays_debt() {
    let events =
        [(0, RUNS), (0, issued(1)), (200, Event::Frozen), (200, Event::Blocked), (400, Event::Thawed), (400, RUNS)];
    let dilation = play(options(TWICE), &events);
    assert_eq!(dilation.prediction().by_debt, micros(200));
    // The request has had 400 us of real time, and 200 us of virtual time: no debt is left.
    assert_eq!(dilation.account.debt, 0);
    assert_eq!((dilation.prediction().frozen, dilation.prediction().freezes), (micros(200), 1));
}

#[test]
fn credit_is_given_back_at_the_next_wait_or_at_the_end_of_busy() {
    // Frozen for 300 us more than was owed.
    let events =
        [(0, RUNS), (0, issued(1)), (100, Event::Frozen), (100, Event::Blocked), (500, Event::Thawed), (500, RUNS)];
    let end = [(500, completed(1))];
    assert_eq!(after(options(TWICE), &[&events[..], &end].concat(), 500).by_debt, micros(250));
    let wait = [(500, Event::Blocked)];
    assert_eq!(after(options(TWICE), &[&events[..], &wait].concat(), 500).by_debt, micros(250));
    // In both cases it then equals a request that took 1 ms.
    let wait = [(500, Event::Blocked), (1_000, completed(1)), (1_000, RUNS)];
    assert_eq!(after(options(TWICE), &[&events[..], &wait].concat(), 1_000).by_debt, micros(500));
}

#[test]
fn a_sleep_beside_a_buffered_writer_counts_in_full() {
    let write = |id| Event::Issued { id, direction: Direction::Write };
    let mut events = vec![(0, RUNS), (10, Event::Blocked)];
    for id in 0..9 {
        events.extend([(20 + id * 100, write(id)), (110 + id * 100, completed(id))]);
    }
    events.extend([(1_000, Event::Slept { since: micros(10) }), (1_000, Event::Runnable(Wake::Other))]);
    let prediction = after(options(8.0), &events, 1_000);
    assert_eq!(both(prediction), [micros(1_000); 2]);
    assert_eq!((prediction.other_waits, prediction.other_wait_time), (1, micros(810)));
    // The same wait, ended by a completion, is a wait for the device.
    events.truncate(events.len() - 2);
    events.push((1_000, RUNS));
    assert!(after(options(8.0), &events, 1_000).by_debt < micros(300));
}

#[test]
fn what_a_thread_of_the_kernel_computes_counts_in_full_but_ends_no_sleep() {
    let write = |id| Event::Issued { id, direction: Direction::Write };
    // Write-back computes for 400 us beside its first request, and ends with a request that takes 1 ms.
    let helped = [(0, Event::Helped), (0, write(1)), (400, write(2)), (400, Event::Unhelped)];
    let waits = [(1_000, completed(1)), (1_400, completed(2))];
    let events = [&[(0, RUNS), (0, Event::Blocked)], &helped[..], &waits].concat();
    // On a device that does both at once it is 400 us and a quarter of 1 ms.
    let woken = after(options(4.0), &[&events[..], &[(1_400, RUNS)]].concat(), 1_400);
    assert_eq!((both(woken), woken.helped), ([micros(400), micros(650)], micros(400)));
    // Had only the device been seen, it would have been a quarter of all.
    let unseen = [&events[..2], &[helped[1], helped[2]], &waits, &[(1_400, RUNS)]].concat();
    assert_eq!(after(options(4.0), &unseen, 1_400).by_debt, micros(350));
    // A sleep during the request counts as one sleep.
    let slept = [(1_400, Event::Slept { since: Nanos::ZERO }), (1_400, Event::Runnable(Wake::Other))];
    let slept = after(options(4.0), &[&events[..], &slept].concat(), 1_400);
    assert_eq!((both(slept), slept.other_waits), ([micros(1_400); 2], 1));
}

#[test]
fn a_thread_of_the_kernel_counts_for_the_upper_end_while_the_program_is_frozen() {
    let events = [(0, RUNS), (0, issued(1)), (200, Event::Frozen), (200, Event::Blocked), (200, Event::Helped)];
    let prediction = after(options(TWICE), &events, 400);
    assert_eq!(both(prediction), [micros(200); 2]);
    assert!(prediction.high >= micros(400), "{prediction:?}");
}

#[test]
fn a_socket_that_answers_while_a_request_is_in_flight_leaves_its_debt() {
    // 400 us for the answer, 600 of the request's 1 ms after it: on the faster device 100 us after it.
    let events = [
        (0, RUNS),
        (0, issued(1)),
        (0, Event::Blocked),
        (400, Event::Runnable(Wake::Other)),
        (400, Event::Blocked),
        (1_000, completed(1)),
        (1_000, RUNS),
    ];
    assert_eq!(both(after(options(TWICE), &events, 1_000)), [micros(500); 2]);
}

#[test]
fn a_sleep_in_which_another_thread_is_frozen_raises_the_upper_end() {
    let events = [
        (0, RUNS),
        (0, issued(1)),
        (100, Event::Frozen),
        (100, Event::Blocked),
        (300, Event::Thawed),
        (300, RUNS),
        (300, Event::Slept { since: Nanos::ZERO }),
    ];
    let prediction = after(options(3.0), &events, 300);
    assert_eq!(both(prediction), [micros(100); 2]);
    assert_eq!(prediction.high, micros(303));
}

#[test]
fn what_a_thaw_takes_is_not_the_programs_time() {
    let options = DilationOptions { thaw_cost: micros(50), ..options(TWICE) };
    let events = |runs| [(0, RUNS), (10, Event::Frozen), (10, Event::Blocked), (100, Event::Thawed), (runs, RUNS)];
    assert_eq!(after(options, &events(130), 130).by_debt, micros(10));
    // A longer run waits for something else.
    assert_eq!(after(options, &events(180), 180).by_debt, micros(40));
}

#[test]
fn what_the_supervisor_has_the_processor_for_pays_debt_and_is_not_the_programs_time() {
    let events = [
        (0, RUNS),
        (0, issued(1)),
        (200, Event::Preempted),
        (300, Event::Resumed),
        (500, Event::Blocked),
        (1_000, completed(1)),
        (1_000, RUNS),
    ];
    let prediction = after(options(2.0), &events, 1_000);
    assert_eq!(prediction.preempted, micros(100));
    // As if frozen for these 100 us: 1 ms of the device is 500 us, and the program computed for 400 us of them.
    assert_eq!(prediction.by_debt, micros(500));
    assert_eq!(prediction.unpaid, Nanos::ZERO);
}

#[test]
fn who_looks_while_it_has_the_processor_freezes_rather_than_looks_again() {
    let mut dilation = play(options(TWICE), &[(0, RUNS), (0, issued(1))]);
    dilation.tick(micros(900));
    assert!(matches!(dilation.wish(), Wish::Nothing(Some(_))));
    dilation.event(micros(900), Event::Preempted);
    assert_eq!(dilation.wish(), Wish::Freeze);
}

#[test]
fn it_is_frozen_at_the_quantum_and_thawed_when_debt_is_paid() {
    let mut dilation = play(options(TWICE), &[(0, RUNS), (0, issued(1))]);
    // No latency is known yet, so the quantum is the longest one.
    assert_eq!(dilation.wish(), Wish::Nothing(Some(micros(1_000))));
    dilation.tick(micros(1_000));
    assert_eq!(dilation.wish(), Wish::Freeze);
    dilation.event(micros(1_004), Event::Frozen);
    dilation.event(micros(1_004), Event::Blocked);
    assert_eq!(dilation.wish(), Wish::Nothing(Some(micros(2_008))));
    dilation.tick(micros(2_008));
    assert_eq!(dilation.wish(), Wish::Thaw);
}

#[test]
fn it_is_thawed_when_nothing_is_in_flight() {
    let events = [(0, RUNS), (0, issued(1)), (500, Event::Frozen), (500, Event::Blocked), (600, completed(1))];
    assert_eq!(play(options(3.0), &events).wish(), Wish::Thaw);
    assert!(!play(options(3.0), &events[..2]).is_frozen());
}

/// A request of 5 ms beside which something wakes after 4.5 ms, then the thread that waited for the request.
const BESIDE_A_TICK: [(u64, Event); 9] = [
    (0, RUNS),
    (0, Event::Issued { id: 1, direction: Direction::Read }),
    (0, Event::Blocked),
    (4_500, Event::Slept { since: Nanos::ZERO }),
    (4_500, Event::Runnable(Wake::Other)),
    (4_500, Event::Blocked),
    (5_000, Event::Completed { id: 1 }),
    (5_000, RUNS),
    (5_000, Event::Woken { since: Nanos::from_micros(4_500) }),
];

#[test]
fn a_tick_beside_a_request_is_taken_back_when_the_thread_kept_waiting() {
    let kept_waiting = Event::KeptWaiting { since: Nanos::ZERO, blocked: micros(4_500) };
    let prediction = after(options(TWICE), &[&BESIDE_A_TICK[..], &[(5_000, kept_waiting)]].concat(), 5_000);
    assert_eq!(both(prediction), [micros(2_500); 2]);
    assert_eq!((prediction.unpaid, prediction.other_waits), (Nanos::ZERO, 1));
    assert!(prediction.high >= micros(4_500), "it may have been a sleep: {prediction:?}");
}

#[test]
fn a_sleep_beside_a_request_is_not_taken_back() {
    // The thread, or another one, slept for 4.5 ms; then it waited for the rest.
    assert_eq!(both(after(options(TWICE), &BESIDE_A_TICK, 5_000)), [micros(4_500); 2]);
}

#[test]
fn the_quantum_follows_the_latency_until_it_is_not_worth_it() {
    let quantum = |options: DilationOptions, latency: u64| {
        let requests = (0..64).flat_map(|id| [(id * 20_000, issued(id)), (id * 20_000 + latency, completed(id))]);
        play(options, &requests.collect::<Vec<_>>()).quantum()
    };
    assert_eq!(quantum(options(TWICE), 10_000), Some(micros(1_000)));
    assert_eq!(quantum(options(8.0), 400), Some(micros(700)));
    assert_eq!(quantum(options(TWICE), 2_000), Some(micros(500)));
    assert_eq!(quantum(options(1.9), 2_000), None);
    assert_eq!(quantum(options(TWICE), 80), None);
    assert_eq!(quantum(options(f64::INFINITY), 80), Some(micros(1_000)));
    // No more than a quarter of the latency, unless that is below a millisecond.
    let longer = |factor| DilationOptions { quantum_max: micros(2_000), ..options(factor) };
    assert_eq!(quantum(longer(TWICE), 20_000), Some(micros(2_000)));
    assert_eq!(quantum(longer(8.0), 6_000), Some(micros(1_500)));
    assert_eq!(quantum(longer(8.0), 1_000), Some(micros(1_000)));
    assert_eq!(quantum(longer(TWICE), 4_400), Some(micros(1_100)));
    assert_eq!(quantum(DilationOptions { quantum_max: micros(200), ..options(TWICE) }, 10_000), Some(micros(200)));
    assert_eq!(quantum(DilationOptions { freezes: false, ..options(TWICE) }, 10_000), None);
    // A direction that is not faster does not affect the quantum.
    assert_eq!(quantum(DilationOptions { reads: Speedup::NONE, ..options(TWICE) }, 400), Some(micros(1_000)));
}

#[test]
fn an_infinite_speed_freezes_at_issue_until_nothing_is_in_flight() {
    let mut dilation = play(options(f64::INFINITY), &[(0, RUNS), (100, issued(1))]);
    assert_eq!(dilation.wish(), Wish::Freeze);
    dilation.event(micros(104), Event::Frozen);
    dilation.event(micros(104), Event::Blocked);
    assert_eq!(dilation.wish(), Wish::Nothing(None));
    dilation.event(micros(1_000), completed(1));
    assert_eq!(dilation.wish(), Wish::Thaw);
    dilation.event(micros(1_010), Event::Thawed);
    dilation.event(micros(1_010), RUNS);
    assert_eq!(dilation.prediction().by_debt, micros(104));
}

#[test]
fn directions_have_factors_of_their_own_and_share_by_the_harmonic_mean() {
    let reads_only = DilationOptions { writes: Speedup::NONE, ..options(4.0) };
    let write = |id| Event::Issued { id, direction: Direction::Write };
    let alone = |event| [(0, RUNS), (0, event), (0, Event::Blocked), (800, completed(1)), (800, RUNS)];
    assert_eq!(both(after(reads_only, &alone(issued(1)), 800)), [micros(200); 2]);
    assert_eq!(both(after(reads_only, &alone(write(1)), 800)), [micros(800); 2]);
    // One request of each direction: 2 / (1/4 + 1) = 1.6.
    let together = [(0, RUNS), (0, issued(1)), (0, write(2)), (0, Event::Blocked), (800, completed(1))];
    assert_eq!(after(reads_only, &together, 800).by_debt, micros(500));
}

#[test]
fn what_is_not_known_is_ignored_and_what_overtakes_counts_now() {
    let events = [(0, RUNS), (100, completed(9)), (100, issued(1)), (100, issued(1)), (50, Event::Blocked)];
    let dilation = play(options(TWICE), &events);
    assert_eq!((dilation.in_flight.len(), dilation.prediction().elapsed), (1, micros(100)));
    let prediction = after(options(TWICE), &[&events[..], &[(300, completed(1)), (300, completed(1))]].concat(), 300);
    assert_eq!((prediction.requests, prediction.by_debt), (1, micros(200)));
}

#[test]
fn factors_below_one_are_refused() {
    assert!([0.0, 0.999, -2.0, f64::NAN, f64::NEG_INFINITY].into_iter().all(|f| Speedup::from_factor(f).is_none()));
    assert_eq!(Speedup::from_factor(1.0), Some(Speedup::NONE));
    assert_eq!(Speedup::from_factor(f64::INFINITY), Some(Speedup::INFINITE));
    assert_eq!((Speedup::from_factor(8.0).unwrap().factor(), Speedup::INFINITE.factor()), (8.0, f64::INFINITY));
}

/// Any events, each at a distance in nanoseconds from the one before it.
fn history() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let direction = prop_oneof![Just(Direction::Read), Just(Direction::Write)];
    let event = prop_oneof![
        3 => (0u64..8, direction).prop_map(|(id, direction)| Event::Issued { id, direction }),
        3 => (0u64..8).prop_map(|id| Event::Completed { id }),
        2 => Just(Event::Runnable(Wake::Completion)),
        1 => Just(Event::Runnable(Wake::Other)),
        3 => Just(Event::Blocked),
        1 => Just(Event::Frozen),
        1 => Just(Event::Thawed),
        1 => Just(Event::Preempted),
        1 => Just(Event::Helped),
        1 => Just(Event::Unhelped),
        1 => Just(Event::Resumed),
        1 => Just(Event::Ticked),
        1 => (0u64..5_000_000).prop_map(|nanos| Event::Slept { since: Nanos::from_nanos(nanos) }),
        2 => (0u64..5_000_000).prop_map(|nanos| Event::Woken { since: Nanos::from_nanos(nanos) }),
        2 => (0u64..5_000_000, 0u64..5_000_000).prop_map(|(since, nanos)| Event::KeptWaiting {
            since: Nanos::from_nanos(since),
            blocked: Nanos::from_nanos(since + nanos),
        }),
    ];
    prop::collection::vec((0u64..2_000_000, event), 1..60)
}

fn factors() -> impl Strategy<Value = DilationOptions> {
    let factor = prop_oneof![Just(1.0), Just(f64::INFINITY), 1.0f64..20.0];
    (factor.clone(), factor, 0u64..30_000).prop_map(|(reads, writes, thaw)| DilationOptions {
        reads: Speedup::from_factor(reads).unwrap(),
        writes: Speedup::from_factor(writes).unwrap(),
        freezes: true,
        thaw_cost: Nanos::from_nanos(thaw),
        ..DilationOptions::default()
    })
}

fn near(a: Nanos, b: Nanos) -> bool {
    a.as_nanos().abs_diff(b.as_nanos()) <= 1
}

proptest! {
    #[test]
    fn virtual_time_is_within_real_time_and_the_band_is_around_it(options in factors(), history in history()) {
        let mut dilation = Dilation::new(options, Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for (gap, event) in history {
            now += Nanos::from_nanos(gap);
            let mut before = dilation.clone();
            before.tick(now);
            dilation.event(now, event);
            let (ticked, told) = (before.prediction(), dilation.prediction());
            prop_assert!(told.by_debt <= told.elapsed && told.by_request <= told.elapsed, "{told:?}");
            prop_assert!(told.low <= told.by_debt.min(told.by_request), "{told:?}");
            prop_assert!(told.high >= told.by_debt.max(told.by_request), "{told:?}");
            // Only a thread that kept waiting for a request takes time back, from waits that counted in full.
            let back = |most: Nanos| if matches!(event, Event::KeptWaiting { .. }) { most } else { Nanos::ZERO };
            let least_by_debt = ticked.by_debt.saturating_sub(back(ticked.unpaid));
            let least_by_request = ticked.by_request.saturating_sub(back(ticked.other_wait_time));
            // Rounded.
            prop_assert!(told.by_debt.as_nanos() + 1 >= least_by_debt.as_nanos(), "{ticked:?} {told:?}");
            prop_assert!(told.by_request.as_nanos() + 1 >= least_by_request.as_nanos(), "{ticked:?} {told:?}");
            // A supervisor that looks again at the given instant makes progress.
            if let Wish::Nothing(Some(at)) = dilation.wish() {
                prop_assert!(at > now);
            }
        }
    }

    #[test]
    fn looking_in_between_changes_nothing(options in factors(), history in history(), parts in 2u64..7) {
        let (mut plain, mut ticked) = (Dilation::new(options, Nanos::ZERO), Dilation::new(options, Nanos::ZERO));
        let mut now = 0;
        for (gap, event) in history {
            for part in 1..parts {
                ticked.tick(Nanos::from_nanos(now + gap * part / parts));
            }
            now += gap;
            plain.event(Nanos::from_nanos(now), event);
            ticked.event(Nanos::from_nanos(now), event);
        }
        let (plain, ticked) = (plain.prediction(), ticked.prediction());
        for (a, b) in [(plain.by_debt, ticked.by_debt), (plain.by_request, ticked.by_request)] {
            prop_assert!(near(a, b), "{plain:?} {ticked:?}");
        }
        for (a, b) in [(plain.low, ticked.low), (plain.high, ticked.high), (plain.unpaid, ticked.unpaid)] {
            prop_assert!(near(a, b), "{plain:?} {ticked:?}");
        }
    }

    #[test]
    fn at_the_same_speed_virtual_time_is_real_time_without_freezes(history in history()) {
        let mut dilation = Dilation::new(DilationOptions::default(), Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let is_held = |event: &Event| matches!(event, Event::Frozen | Event::Preempted);
        for (gap, event) in history.into_iter().filter(|(_, event)| !is_held(event)) {
            now += Nanos::from_nanos(gap);
            dilation.event(now, event);
        }
        // By request, the wait for an outstanding request does not count yet.
        prop_assert_eq!(dilation.prediction().by_debt, now);
        prop_assert_eq!(dilation.prediction().unpaid, Nanos::ZERO);
    }

    #[test]
    fn one_synchronous_stream_is_exact(
        turns in prop::collection::vec((0u64..3_000_000, 1u64..30_000, 1u64..20_000_000), 1..80),
        factor in 1.0f64..50.0,
    ) {
        // The program computes, submits (which takes a request's time only during another one), and waits.
        let mut dilation = Dilation::new(options(factor), Nanos::ZERO);
        let (mut now, mut expected) = (0, 0.0);
        dilation.event(Nanos::ZERO, RUNS);
        for (id, (compute, submit, latency)) in turns.into_iter().enumerate() {
            let latency = latency + submit * factor.ceil() as u64;
            dilation.event(Nanos::from_nanos(now + compute), issued(id as u64));
            dilation.event(Nanos::from_nanos(now + compute + submit), Event::Blocked);
            now += compute + latency;
            dilation.event(Nanos::from_nanos(now), completed(id as u64));
            dilation.event(Nanos::from_nanos(now), RUNS);
            expected += compute as f64 + latency as f64 / factor;
        }
        for predicted in both(dilation.prediction()) {
            prop_assert!((predicted.as_nanos() as f64 - expected).abs() < 2.0, "{predicted} instead of {expected}");
        }
    }
}
