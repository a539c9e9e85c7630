//! For any scheduling of the server's threads by the host, requests are due when a simulation of the same arrivals
//! completes them, and replies leave when due if the host allows it.

mod common;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::{
    Departure, DeviceIndex, Engine, Found, Gap, Pace, RealClock, RealId, RealOptions, Tracked, Transfer,
    TransportIndex, Wait, verify,
};
use chronodisk_sim::{Nanos, Op, Request};
use common::{Capricious, request};
use proptest::prelude::*;

/// The thread woke from a sleep longer than any skew.
const WOKEN: Found = Found::Woken { asleep: Nanos::from_secs(1) };

/// A possible event on a server's host; times are relative to the present.
#[derive(Clone, Debug)]
enum Action {
    /// Several requests are received at one instant, `after_ns` from now.
    Receive { after_ns: u64, found: u8, requests: Vec<(bool, u64)> },
    /// The server sleeps until the next reply is due, less the time for preparing it, and gets the CPU late.
    Wake { ahead_ns: u64, late_ns: u64, sending_ns: u64 },
    /// The bytes of the oldest waiting request have moved.
    StoreDone { after_ns: u64, failed: bool },
    /// Another process used the CPU.
    Stolen { for_ns: u64 },
}

fn action() -> impl Strategy<Value = Action> {
    let requests = prop::collection::vec((any::<bool>(), any::<u64>()), 1..6);
    prop_oneof![
        4 => (0u64..3_000, 0u8..3, requests)
            .prop_map(|(after_ns, found, requests)| Action::Receive { after_ns, found, requests }),
        5 => (0u64..500, 0u64..2_000, 0u64..900)
            .prop_map(|(ahead_ns, late_ns, sending_ns)| Action::Wake { ahead_ns, late_ns, sending_ns }),
        2 => (0u64..2_000, any::<bool>()).prop_map(|(after_ns, failed)| Action::StoreDone { after_ns, failed }),
        1 => (0u64..50_000).prop_map(|for_ns| Action::Stolen { for_ns }),
    ]
}

/// A server on a simulated host.
struct Server {
    clock: RealClock,
    transport: TransportIndex,
    now: Nanos,
    next_slot: u32,
    moving: Vec<RealId>,
    left: Vec<Departure>,
}

impl Server {
    fn new(model: Box<dyn DeviceModel>, options: RealOptions) -> Self {
        let mut engine = Engine::new();
        engine.attach(model);
        let mut clock = RealClock::new(engine);
        let transport = clock.add_transport("test", options);
        Server { clock, transport, now: Nanos::ZERO, next_slot: 0, moving: Vec::new(), left: Vec::new() }
    }

    fn pass(&mut self, nanos: u64) {
        self.now += Nanos::from_nanos(nanos);
    }

    fn receive(&mut self, found: Found, number: u64, moving: bool) -> Nanos {
        let id = RealId { transport: self.transport, connection: 7, slot: self.next_slot };
        self.next_slot += 1;
        let mut request = request(0, number);
        request.id = id.pack();
        let bytes = if moving { Transfer::Moving } else { Transfer::MOVED };
        if moving {
            self.moving.push(id);
        }
        self.clock.arrive(self.now, found, DeviceIndex(0), request, bytes)
    }

    /// Sends the due replies; returns their number.
    fn send(&mut self, sending_ns: u64) -> usize {
        self.send_prepared(Nanos::ZERO, sending_ns)
    }

    /// Prepares the replies due within `ahead`, and sends them when due.
    fn send_prepared(&mut self, ahead: Nanos, sending_ns: u64) -> usize {
        let mut leaving = Vec::new();
        let begun = self.clock.take(self.now, ahead, &mut leaving);
        assert!(self.now <= begun && begun <= self.now + ahead);
        self.now = begun;
        if !leaving.is_empty() {
            self.pass(sending_ns);
        }
        self.clock.sent(&leaving, begun, self.now);
        self.left.extend(&leaving);
        leaving.len()
    }

    /// Moves all bytes and sends all replies; time advances as needed.
    fn drain(&mut self) {
        for id in std::mem::take(&mut self.moving) {
            self.clock.store_done(self.now, DeviceIndex(0), id, Transfer::MOVED);
        }
        for _ in 0..1_000_000 {
            let Some(wake_at) = self.clock.wake_at() else { break };
            self.now = self.now.max(wake_at);
            self.send(100);
        }
        assert_eq!(self.clock.outstanding(), 0, "the server does not get on");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_history_replays_to_the_same_due_times(
        seed in 0u64..60,
        lead_ns in prop::option::of(0u64..2_000),
        skew_ns in prop::option::of(0u64..2_000),
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let fixed = |nanos| Tracked::Fixed(Nanos::from_nanos(nanos));
        let tracked = |nanos: Option<u64>| nanos.map_or(Tracked::Auto, fixed);
        let options = RealOptions { arrival_skew: tracked(skew_ns), completion_lead: tracked(lead_ns) };
        let mut server = Server::new(Capricious::boxed(seed), options);
        let mut effective = Nanos::ZERO;
        for action in &actions {
            match action {
                Action::Receive { after_ns, found, requests } => {
                    server.pass(*after_ns);
                    let since = Nanos::from_nanos(*after_ns);
                    let ways = [Found::Woken { asleep: since }, Found::Polled { since }, Found::Busy];
                    let found = ways[usize::from(*found)];
                    for (moving, number) in requests {
                        let arrival = server.receive(found, *number, *moving);
                        prop_assert!(arrival >= effective, "arrivals are in order");
                        effective = arrival;
                    }
                }
                Action::Wake { ahead_ns, late_ns, sending_ns } => {
                    let ahead = Nanos::from_nanos(*ahead_ns);
                    if let Some(wake_at) = server.clock.wake_at() {
                        server.now = server.now.max(wake_at.saturating_sub(ahead));
                    }
                    server.pass(*late_ns);
                    server.send_prepared(ahead, *sending_ns);
                }
                Action::StoreDone { after_ns, failed } => {
                    server.pass(*after_ns);
                    if !server.moving.is_empty() {
                        let id = server.moving.remove(0);
                        let took = Nanos::from_nanos(*after_ns);
                        let bytes = if *failed { Transfer::Failed { took } } else { Transfer::Moved { took } };
                        server.clock.store_done(server.now, DeviceIndex(0), id, bytes);
                    }
                }
                Action::Stolen { for_ns } => {
                    let from = server.now;
                    server.pass(*for_ns);
                    server.clock.note_gap(Gap { from, to: server.now });
                }
            }
        }
        server.drain();

        let slots: std::collections::BTreeSet<u32> = server.left.iter().map(|departure| departure.id.slot).collect();
        prop_assert_eq!(slots.len(), server.left.len(), "each leaves once");
        prop_assert_eq!(server.left.len(), server.next_slot as usize, "all leave");
        let now = server.now;
        let early_max = server.clock.statistics().early_max;
        let (log, end) = server.clock.finish(now);
        for record in log.records() {
            prop_assert!(record.is_completed());
            prop_assert!(record.earliness() <= early_max);
        }
        let verification = verify(&mut [Capricious::boxed(seed)], log.records(), Some(end)).unwrap();
        prop_assert!(verification.identical(), "{:?}", verification.first_difference);
        prop_assert_eq!(verification.compared, log.records().len() as u64);
    }

    #[test]
    fn a_host_that_is_always_on_time_makes_nothing_late_or_early(
        seed in 0u64..60,
        sending_ns in 0u64..500,
        requests in prop::collection::vec((0u64..2_000, any::<u64>()), 1..40),
    ) {
        let exactly = |nanos| Tracked::Fixed(Nanos::from_nanos(nanos));
        let options = RealOptions { arrival_skew: exactly(0), completion_lead: exactly(sending_ns) };
        let mut server = Server::new(Capricious::boxed(seed), options);
        for (pause_ns, number) in requests {
            server.drain();
            server.pass(pause_ns);
            let received = server.now;
            let arrival = server.receive(WOKEN, number, false);
            // The model ran ahead by the lead at most, for the previous completion.
            prop_assert!(arrival <= received.max(arrival) && arrival >= received);
            let wake_at = server.clock.wake_at().unwrap();
            server.now = server.now.max(wake_at);
            while server.send(sending_ns) == 0 {
                let next = server.clock.wake_at().unwrap();
                prop_assert!(next > server.now, "waiting gets on");
                server.now = next;
            }
            let record = *server.clock.engine().records().last().unwrap();
            // A request that is due sooner than a reply can be sent is late by the difference.
            let possible = record.due.max(received + Nanos::from_nanos(sending_ns));
            prop_assert_eq!(record.completed, possible);
        }
    }
}

fn constant(name: &str) -> Box<dyn DeviceModel> {
    Profile::find(name).unwrap().build(&BuildOptions::default()).unwrap()
}

fn micros(count: u64) -> Nanos {
    Nanos::from_micros(count)
}

#[test]
fn skew_and_lead_are_the_medians_of_what_was_measured() {
    let mut server = Server::new(constant("constant-100us"), RealOptions::default());
    for round in 0..200 {
        server.now = micros(1_000 * (round + 1));
        server.clock.woken_late(server.transport, if round % 10 == 0 { micros(900) } else { micros(30) });
        server.receive(WOKEN, 64 * 3, false);
        server.now = server.clock.wake_at().unwrap().max(server.now);
        server.send(if round % 10 == 5 { 400_000 } else { 5_000 });
    }
    let estimates = server.clock.statistics().transports.remove(0);
    assert_eq!((estimates.skew_woken, estimates.lead), (micros(30), micros(5)));
    let last = *server.clock.engine().records().last().unwrap();
    assert_eq!(last.arrival, micros(200_000 - 30), "the skew is taken off");
    assert_eq!(last.completed, last.due, "the reply began to leave early by the lead");
    assert_eq!(last.due, last.arrival + micros(100));
}

#[test]
fn what_is_due_in_a_gap_is_marked_and_nothing_else() {
    let mut server = Server::new(constant("constant-1ms"), RealOptions::default());
    for _ in 0..3 {
        server.receive(WOKEN, 5, false);
        server.pass(400_000);
    }
    // The first two are due at about 1.0 and 1.4 ms, the third at 1.8 ms.
    let (from, to) = (micros(1_200), micros(1_600));
    server.now = micros(1_010);
    assert_eq!(server.send(0), 1);
    server.now = to;
    server.clock.note_gap(Gap { from, to });
    assert_eq!(server.send(0), 1);
    server.now = micros(1_900);
    assert_eq!(server.send(0), 1);
    let stolen: Vec<bool> = server.clock.engine().records().iter().map(|record| record.stolen).collect();
    assert_eq!(stolen, [false, true, false]);
    assert_eq!(server.clock.statistics().stolen_requests, 1);
}

#[test]
fn a_theft_while_a_reply_is_sent_marks_it_and_a_slow_reply_does_not() {
    let mut server = Server::new(constant("constant-100us"), RealOptions::default());
    let mut send = |sending_ns: u64| {
        server.receive(WOKEN, 1, false);
        server.now = server.clock.wake_at().unwrap();
        while server.send(sending_ns) == 0 {
            server.now = server.clock.wake_at().unwrap();
        }
        let record = *server.clock.engine().records().last().unwrap();
        (record.stolen, server.clock.statistics().stolen_requests)
    };
    for _ in 0..100 {
        assert_eq!(send(5_000), (false, 0));
    }
    assert_eq!(send(60_000), (false, 0), "cold caches");
    assert_eq!(send(3_000_000), (true, 1));
    assert_eq!(send(5_000), (false, 1));
}

#[test]
fn an_arrival_is_never_before_the_models_present() {
    let fixed = |count| Tracked::Fixed(micros(count));
    let options = RealOptions { arrival_skew: fixed(0), completion_lead: fixed(50) };
    let mut server = Server::new(constant("constant-100us"), options);
    server.receive(WOKEN, 5, false);
    server.now = micros(50);
    assert_eq!(server.send(1_000), 1, "it leaves early by the lead");
    // The model stays at 100 µs, where it completed the request.
    assert_eq!(server.receive(WOKEN, 5, false), micros(100));
    let statistics = server.clock.engine().statistics();
    assert_eq!((statistics.clamped_arrivals, statistics.clamp_max), (1, Nanos::from_nanos(49_000)));
}

#[test]
fn a_server_by_the_pace_keeps_a_slow_device_punctual_and_mostly_sleeps() {
    // A host whose timers are 40 µs late, whose spin loop takes 200 ns per turn and whose sends take 3 µs.
    let mut server = Server::new(constant("constant-1ms"), RealOptions::default());
    let mut pace = Pace::new(Nanos::ZERO);
    for _ in 0..300 {
        server.receive(WOKEN, 64 * 3, false);
        loop {
            match pace.plan(server.now, server.clock.wake_at()) {
                Wait::Now => {
                    pace.worked();
                    if server.send(3_000) > 0 {
                        break;
                    }
                }
                Wait::Sleep { until } => {
                    let begun = server.now;
                    server.now = until + micros(40);
                    pace.slept(begun, server.now, Some(until));
                    server.clock.woken_late(server.transport, micros(40));
                }
                Wait::Spin { .. } => {
                    server.pass(200);
                    pace.spun(server.now);
                }
                Wait::Forever => panic!("something is outstanding"),
            }
        }
        let arrival = server.now + micros(20);
        pace.slept(server.now, arrival, None);
        server.now = arrival;
    }
    let records = server.clock.engine().records();
    // Without the first records, for which the pace had guesses instead of measurements.
    assert!(records[10..].iter().all(|record| record.lateness() <= Nanos::from_nanos(200)));
    let statistics = pace.statistics();
    assert_eq!(statistics.gaps, 0);
    assert!(statistics.asleep > statistics.spinning, "{statistics:?}");
    assert!(!pace.owes_sleep(server.now));
}

#[test]
fn what_is_settled_leaves_the_log_in_order_and_a_reply_that_nobody_takes_does_not_stop_it() {
    let null = || Profile::find("null").unwrap().build(&BuildOptions::default()).unwrap();
    let mut server = Server::new(null(), RealOptions::default());
    let (mut taken, mut stuck) = (Vec::new(), None);
    for index in 0..70_000 {
        server.receive(WOKEN, index % 64, false);
        server.pass(30_000);
        let mut left = Vec::new();
        server.clock.take(server.now, Nanos::ZERO, &mut left);
        assert_eq!(left.len(), 1);
        if index == 5 {
            stuck = Some(left[0]);
        } else {
            server.clock.sent(&left, server.now, server.now + micros(1));
        }
        server.clock.take_settled(usize::MAX, &mut taken);
        if index == 1_000 {
            assert_eq!(taken.len(), 5, "the others wait for it");
        }
    }
    assert!(taken.iter().enumerate().all(|(index, record)| record.order == index as u64));
    assert_eq!(taken.len(), 70_000);
    assert!(!taken[5].is_completed() && taken[5].due != Nanos::MAX, "nobody saw it in time");
    assert!(taken.iter().all(|record| record.order == 5 || record.is_completed()));
    assert_eq!(server.clock.statistics().unseen, 1);
    // A late report about it has no effect.
    server.clock.seen(&stuck.unwrap(), server.now);
    let (log, end) = server.clock.finish(server.now);
    assert!(log.into_records().is_empty());
    assert!(verify(&mut [null()], &taken, Some(end)).unwrap().identical());
}

#[test]
fn ids_come_back_as_they_were_packed() {
    let mut clock = RealClock::new(Engine::new());
    clock.add_transport("first", RealOptions::default());
    let transport = clock.add_transport("second", RealOptions::default());
    let id = RealId { transport, connection: 0x00ab_cdef, slot: u32::MAX };
    assert_eq!(RealId::unpack(id.pack()), id);
    let flush = Request::new(id.pack().0, Op::Flush, 0, 0);
    assert_eq!(RealId::unpack(flush.id).connection, 0x00ab_cdef);
}
