//! A remote model gives the same completions as a local one, regardless of connection failures and of running ahead.

mod common;
#[path = "common/elsewhere.rs"]
mod elsewhere;

use std::ops::ControlFlow;
use std::sync::Arc;

use chronodisk_device::Probe;
use chronodisk_engine::emulator::{Session, SessionEnd};
use chronodisk_engine::protocol::{Answer, Command, Decoder, Frame, NextAnswer, Reset};
use chronodisk_engine::sim::{Issue, closed_loop_streaming, closed_loop_streaming_at};
use chronodisk_engine::{DeviceIndex, Engine, FaultKind, GuestClock, ModelPort, Transfer};
use chronodisk_sim::{Nanos, Op, RandomStream, Request, RequestRecord};
use chronodisk_store::Store;
use common::{Capricious, request};
use elsewhere::{Host, MakeCapricious, capricious_elsewhere};
use proptest::prelude::*;

/// A guest that computes, idles, is interrupted and submits in batches, as decided by a seed.
fn run_guest(ports: Vec<ModelPort>, seed: u64, kicks: u32) -> (Vec<RequestRecord>, Vec<(String, u64)>) {
    let mut engine = Engine::new();
    let devices: Vec<DeviceIndex> = ports.into_iter().map(|port| engine.attach_port(port)).collect();
    let mut clock = GuestClock::new(engine);
    let mut random = RandomStream::new(seed, "test", "guest");
    let mut now = Nanos::ZERO;
    for _ in 0..kicks {
        now += Nanos::from_nanos(random.below(900));
        clock.kick(now);
        for _ in 0..random.below(4) {
            let device = devices[random.below(devices.len() as u64) as usize];
            let id = clock.next_request_id().0;
            clock.arrive(device, request(id, random.below(1 << 20)), Transfer::MOVED);
        }
        clock.completion_bound();
        match random.below(3) {
            0 => {
                let timer = (random.below(2) == 0).then(|| now + Nanos::from_nanos(random.below(2_000)));
                now = clock.idle(now, timer).resume_at.unwrap_or(now);
            }
            1 => {
                // The guest computes until `until`, with an interrupt at each possible completion.
                let until = now + Nanos::from_nanos(random.below(2_000));
                while let Some(bound) = clock.completion_bound().filter(|bound| *bound <= until) {
                    clock.interrupted(bound);
                }
                now = until;
            }
            _ => {}
        }
    }
    while let Some(resume_at) = clock.idle(now, None).resume_at {
        now = resume_at;
    }
    assert_eq!(clock.engine().fault(), None);
    clock.fetch_statistics();
    let mut counters = Counters::default();
    for device in &devices {
        clock.engine().port(*device).probe(&mut counters);
    }
    (clock.finish(now).0.into_records(), counters.0)
}

#[derive(Default)]
struct Counters(Vec<(String, u64)>);

impl Probe for Counters {
    fn counter(&mut self, name: &str, value: u64) {
        self.0.push((name.to_owned(), value));
    }

    fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
}

fn counter(counters: &[(String, u64)], name: &str) -> u64 {
    counters.iter().filter(|(known, _)| known == name).map(|(_, value)| value).sum()
}

/// The part of the records that must not depend on the model's place.
fn timing(records: &[RequestRecord]) -> Vec<(u16, Nanos, Nanos, Nanos, chronodisk_sim::Status)> {
    let of = |record: &RequestRecord| (record.device, record.arrival, record.due, record.completed, record.status);
    records.iter().map(of).collect()
}

fn first_difference(here: &[RequestRecord], there: &[RequestRecord]) -> String {
    let pair = timing(here).into_iter().zip(timing(there)).find(|(here, there)| here != there);
    format!("{pair:?}, {} and {} requests", here.len(), there.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_model_elsewhere_is_the_same_model(seed in 0u64..1000, devices in 1u64..3, speculate: bool) {
        let local = (0..devices).map(|index| Capricious::boxed(seed + index).into()).collect();
        let remote = (0..devices).map(|index| {
            capricious_elsewhere(seed + index, speculate, &Host::new(), || usize::MAX).into()
        });
        let (here, _) = run_guest(local, seed, 60);
        let (there, counters) = run_guest(remote.collect(), seed, 60);
        prop_assert!(timing(&here) == timing(&there), "{}", first_difference(&here, &there));
        let requests = counter(&counters, "remote-requests");
        prop_assert_eq!(requests, here.len() as u64);
        prop_assert!(counter(&counters, "remote-rollbacks") <= requests);
        prop_assert_eq!(counter(&counters, "remote-predictions") > 0, speculate && requests > 0);
    }

    #[test]
    fn broken_connections_change_nothing(seed in 0u64..1000, cut_bytes in 200u64..3000) {
        let (here, _) = run_guest(vec![Capricious::boxed(seed).into()], seed, 30);
        let mut random = RandomStream::new(seed, "test", "cuts");
        // Long enough for a greeting, the reset and the waiting commands, so that every connection makes progress.
        let cuts = move || 600 + random.below(cut_bytes) as usize;
        let remote = capricious_elsewhere(seed, true, &Host::new(), cuts);
        let (there, counters) = run_guest(vec![remote.into()], seed, 30);
        prop_assert!(timing(&here) == timing(&there), "{}", first_difference(&here, &there));
        prop_assert_eq!(counter(&counters, "remote-requests"), here.len() as u64);
    }
}

#[test]
fn a_repeated_command_has_no_second_effect() {
    // The connections are so short that most executed commands lose their answers.
    let mut random = RandomStream::new(1, "test", "cuts");
    let remote = capricious_elsewhere(5, true, &Host::new(), move || 600 + random.below(150) as usize);
    let (there, counters) = run_guest(vec![remote.into()], 5, 50);
    let (here, _) = run_guest(vec![Capricious::boxed(5).into()], 5, 50);
    assert!(timing(&here) == timing(&there), "{}", first_difference(&here, &there));
    assert!(counter(&counters, "remote-repeated-commands") > 10, "{counters:?}");
    assert!(counter(&counters, "remote-reconnections") > 10, "{counters:?}");
}

#[test]
fn a_closed_loop_without_a_guest_is_the_same_elsewhere() {
    let issues = |seed: u64| {
        let mut random = RandomStream::new(seed, "test", "issues");
        (0..300).map(move |_| {
            let think = Nanos::from_nanos(random.below(3) * 250);
            Issue { request: request(0, random.below(1 << 20)), think }
        })
    };
    for (seed, speculate) in [(1, true), (2, false), (6, true), (6, false)] {
        let mut here = Vec::new();
        let mut model = Capricious::new(seed);
        let keep = |records: &mut Vec<RequestRecord>, record: &RequestRecord| {
            records.push(*record);
            ControlFlow::Continue(())
        };
        closed_loop_streaming(&mut model, issues(seed), 4, |record| keep(&mut here, record)).unwrap();
        let mut there = Vec::new();
        let mut port = capricious_elsewhere(seed, speculate, &Host::new(), || usize::MAX).into();
        closed_loop_streaming_at(&mut port, issues(seed), 4, |record| keep(&mut there, record)).unwrap();
        assert!(timing(&here) == timing(&there), "{}", first_difference(&here, &there));
    }
}

#[test]
fn a_server_that_was_restarted_ends_the_run() {
    let host = Host::new();
    let mut first = true;
    let cuts = move || if std::mem::take(&mut first) { 700 } else { usize::MAX };
    let remote = capricious_elsewhere(1, true, &host, cuts);
    host.lock().unwrap().forget();
    let mut engine = Engine::new();
    let device = engine.attach_port(remote.into());
    let mut clock = GuestClock::new(engine);
    for _ in 0..100 {
        let id = clock.next_request_id().0;
        clock.arrive(device, request(id, id), Transfer::MOVED);
        if clock.idle(clock.now(), None).resume_at.is_none() {
            break;
        }
    }
    let fault = clock.engine().fault().expect("it was lost").clone();
    assert_eq!(fault.kind, FaultKind::Restarted, "{fault}");
    assert!(fault.to_string().contains("restarted"), "{fault}");
    // After the failure, no call hangs, and no answer is accepted.
    assert_eq!(clock.idle(clock.now(), None).due, []);
}

#[test]
fn bytes_elsewhere_are_kept_and_their_limits_reported() {
    let host = Host::new();
    let mut random = RandomStream::new(1, "test", "cuts");
    let remote = capricious_elsewhere(1, true, &host, move || 10_000 + random.below(10_000_000) as usize);
    let mut store = remote.store().expect("the server keeps bytes");
    let capacity = store.capacity_bytes();
    let bytes: Vec<u8> = (0..capacity as usize).map(|index| (index / 7) as u8).collect();
    store.write(0, &bytes).unwrap();
    store.discard(4096, 8192).unwrap();
    store.flush().unwrap();
    let mut back = vec![1; capacity as usize];
    store.read(0, &mut back).unwrap();
    let expected: Vec<u8> = bytes
        .iter()
        .enumerate()
        .map(|(index, byte)| if (4096..4096 + 8192).contains(&index) { 0 } else { *byte })
        .collect();
    assert!(back == expected, "the bytes came back changed");
    let beyond = store.read(capacity - 10, &mut [0; 20]).unwrap_err();
    assert!(beyond.to_string().contains("capacity"), "{beyond}");
}

/// A session called directly, without a client.
struct Bare {
    session: Session,
    sequence: u64,
}

impl Bare {
    fn new() -> Self {
        let mut bare = Bare { session: Session::new(Arc::new(MakeCapricious)), sequence: 0 };
        let made = bare.say(Command::Reset(Reset { seed: 2, speculate: true, ..Reset::default() }));
        assert!(matches!(made, Ok(Answer::Info(_))), "{made:?}");
        bare
    }

    fn say(&mut self, command: Command) -> Result<Answer, (SessionEnd, String)> {
        self.sequence += 1;
        self.say_as(self.sequence, 0, &command)
    }

    fn say_as(&mut self, sequence: u64, unanswered: u16, command: &Command) -> Result<Answer, (SessionEnd, String)> {
        let mut bytes = Vec::new();
        command.encode(unanswered, sequence, &mut bytes);
        let frame = frame_of(&bytes);
        let mut out = Vec::new();
        let taken = self.session.take(&frame, &mut out);
        let answer = if out.is_empty() { Answer::Done } else { Answer::decode(&frame_of(&out), command).unwrap() };
        match taken {
            Ok(()) => Ok(answer),
            Err(end) => Err((end, format!("{answer:?}"))),
        }
    }
}

fn frame_of(bytes: &[u8]) -> Frame {
    let mut decoder = Decoder::default();
    decoder.feed(bytes);
    decoder.next_frame().unwrap().unwrap()
}

fn at(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

#[test]
fn a_rollback_is_counted_once_however_many_requests_come_together() {
    let mut bare = Bare::new();
    let submit = |id, when| Command::Submit { at: at(when), request: request(id, id * 97) };
    bare.say(submit(0, 0)).unwrap();
    let next = Command::Next { taken: at(0), safe_until: at(0) };
    let Ok(Answer::Next(NextAnswer::Completions(first))) = bare.say(next.clone()) else { panic!("a prediction") };
    assert!(first[0].at > at(10), "{first:?}");
    // The repeated command does not run ahead again.
    assert_eq!(bare.say(next), Ok(Answer::Next(NextAnswer::Completions(first))));
    for id in 1..4 {
        bare.say(submit(id, 10)).unwrap();
    }
    let Ok(Answer::Statistics(statistics)) = bare.say(Command::Statistics) else { panic!("statistics") };
    assert_eq!((statistics.submitted, statistics.predictions, statistics.rollbacks), (4, 1, 1));
}

#[test]
fn what_breaks_the_rules_ends_the_session_with_the_reason() {
    let submit = |id, when| Command::Submit { at: at(when), request: request(id, id) };
    let beyond = Command::Submit { at: at(0), request: Request::new(0, Op::Read, u64::MAX - 3, 8) };
    let empty = Command::Submit { at: at(0), request: Request::new(0, Op::Read, 0, 0) };
    let cases: [(&str, Vec<Command>); 7] = [
        ("outstanding already", vec![submit(0, 0), submit(0, 1)]),
        ("the device ends", vec![beyond]),
        ("is a read of 0 sectors", vec![empty]),
        ("18 years", vec![submit(0, u64::MAX)]),
        ("but the model is at", vec![submit(0, 50), submit(1, 40)]),
        ("was not asked for", vec![submit(0, 0), submit(1, 1_000_000)]),
        ("it asks for the events after", vec![Command::Next { taken: at(5), safe_until: at(4) }]),
    ];
    for (reason, commands) in cases {
        let mut bare = Bare::new();
        let (last, before) = commands.split_last().unwrap();
        for command in before {
            bare.say(command.clone()).unwrap();
        }
        let (end, answer) = bare.say(last.clone()).unwrap_err();
        assert_eq!(end, SessionEnd::Violated);
        assert!(answer.contains(reason), "'{answer}' does not say '{reason}'");
        assert_eq!(bare.say(Command::Statistics).unwrap_err().0, SessionEnd::Violated, "it goes on after {reason}");
    }
}

#[test]
fn numbers_out_of_order_end_the_session() {
    let statistics = Command::Statistics;
    assert!(Bare::new().say_as(3, 0, &statistics).unwrap_err().1.contains("where 2 was due"));
    assert!(Bare::new().say_as(2, 2, &statistics).unwrap_err().1.contains("more answers than there can be"));
    let mut bare = Bare::new();
    bare.say(statistics.clone()).unwrap();
    // Command 3 acknowledges the answer to command 2, so a repetition of command 2 is a protocol violation.
    bare.say(statistics.clone()).unwrap();
    assert!(bare.say_as(2, 0, &statistics).unwrap_err().1.contains("was answered before"));
}

#[test]
fn without_a_device_only_reset_is_understood() {
    let mut bare = Bare { session: Session::new(Arc::new(MakeCapricious)), sequence: 0 };
    let (_, answer) = bare.say(Command::Flush).unwrap_err();
    assert!(answer.contains("there is no device yet"), "{answer}");
}
