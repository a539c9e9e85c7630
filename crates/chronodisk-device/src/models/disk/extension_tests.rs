//! Interface extensions of drives: background reads in gaps, and writes to the soonest of several places.

use std::collections::BTreeSet;

use chronodisk_sim::{Completion, Lba, Nanos, Op, RandomStream, Request};

use super::mechanics::ticks;
use super::tests::{disk, random_parameters, small};
use super::*;
use crate::models::testing::build;
use crate::{BackgroundDone, BackgroundRead, BackgroundTime, DeviceModel, contract};

/// A load of foreground requests.
#[derive(Clone, Copy, Debug)]
enum Load {
    RandomReads,
    /// Two reads of 8 KiB for each write.
    Oltp,
    Sequential,
    /// All operations, of 1 to 300 sectors.
    Mixed,
}

const LOADS: [(Load, usize); 6] = [
    (Load::RandomReads, 1),
    (Load::Oltp, 1),
    (Load::Oltp, 10),
    (Load::Sequential, 2),
    (Load::Mixed, 4),
    (Load::Mixed, 64),
];

fn request(load: Load, id: u64, capacity: u64, stream: &mut RandomStream) -> Request {
    let (op, sectors) = match load {
        Load::RandomReads => (Op::Read, 8),
        Load::Oltp => (if stream.below(3) == 0 { Op::Write } else { Op::Read }, 16),
        Load::Sequential => (if id % 200 < 150 { Op::Read } else { Op::Write }, 64),
        Load::Mixed => {
            let op = [Op::Read, Op::Read, Op::Write, Op::Write, Op::WriteZeroes, Op::Flush][stream.below(6) as usize];
            (op, if op == Op::Flush { 0 } else { 1 + stream.below(300) as u32 })
        }
    };
    let lba = match load {
        Load::Sequential => id * 64 % (capacity - 64),
        _ if op == Op::Flush => 0,
        _ => stream.below(capacity - u64::from(sectors)),
    };
    Request { fua: op == Op::Write && stream.below(4) == 0, ..Request::new(id, op, lba, sectors) }
}

/// Foreground completions of a closed loop with pauses, and the sectors of the background.
fn play(
    model: &mut dyn DeviceModel,
    (load, depth): (Load, usize),
    seed: u64,
    take_often: bool,
) -> (Vec<Completion>, Vec<BackgroundDone>) {
    const REQUESTS: u64 = 300;
    let capacity = model.info().capacity_sectors;
    let mut stream = RandomStream::new(seed, "test", "load");
    let (mut completed, mut done, mut submitted, mut seen) = (Vec::new(), Vec::new(), 0, 0);
    while seen < REQUESTS as usize {
        while submitted < REQUESTS && submitted < (seen + depth) as u64 {
            model.submit(request(load, submitted, capacity, &mut stream));
            submitted += 1;
        }
        model.step(Nanos::MAX, &mut completed);
        if completed.len() > seen && stream.below(8) == 0 {
            let pause = Nanos::from_micros(stream.below(30_000));
            let until = model.now() + pause;
            crate::advance(model, until, &mut completed);
        }
        seen = completed.len();
        if take_often && let Some(background) = model.background() {
            background.take(&mut done);
        }
    }
    let until = model.now() + Nanos::from_millis(50);
    crate::advance(model, until, &mut completed);
    if let Some(background) = model.background() {
        background.take(&mut done);
    }
    (completed, done)
}

fn scan(model: &mut dyn DeviceModel, when: BackgroundTime) {
    let capacity = model.info().capacity_sectors;
    model.background().expect("a disk").want(&BackgroundRead::whole(capacity, when));
}

/// Foreground completions are equal with and without background reads; each sector is read once, in order of time, and
/// instants do not depend on how often they are taken. Returns the sectors read by load.
fn check(make: &dyn Fn() -> Box<dyn DeviceModel>, name: &str, seed: u64) -> [usize; LOADS.len()] {
    LOADS.map(|load| {
        let (alone, none) = play(make().as_mut(), load, seed, true);
        assert!(none.is_empty(), "{name}: nothing was wanted");
        let runs = [BackgroundTime::Gaps, BackgroundTime::GapsAndRest].map(|when| {
            let mut model = make();
            scan(model.as_mut(), when);
            let (completed, done) = play(model.as_mut(), load, seed, true);
            assert_eq!(completed, alone, "{name}, {load:?}, {when:?}");
            let mut again = make();
            scan(again.as_mut(), when);
            assert_eq!(
                play(again.as_mut(), load, seed, false),
                (completed, done.clone()),
                "{name}, {load:?}: taken late"
            );
            assert!(done.is_sorted_by_key(|done| done.at), "{name}, {load:?}");
            let sectors = |done: &BackgroundDone| done.lba.0..done.lba.0 + u64::from(done.sectors);
            let read: BTreeSet<u64> = done.iter().flat_map(sectors).collect();
            let count: usize = done.iter().map(|done| done.sectors as usize).sum();
            assert_eq!(read.len(), count, "{name}, {load:?}: a sector is read once");
            let (capacity, left) = (model.info().capacity_sectors, model.background().expect("a disk").wanted());
            // The end of the last gap may be in the future.
            assert!(left + count as u64 <= capacity && read.last().is_none_or(|&last| last < capacity));
            count
        });
        assert!(runs[0] <= runs[1] + 2_000, "{name}, {load:?}: {runs:?}");
        runs[1]
    })
}

#[test]
fn background_reads_delay_no_request_of_any_drive() {
    let mut read = 0;
    for seed in 0..u64::from(contract::cases(40)) {
        let parameters = random_parameters(seed);
        read += check(&|| Box::new(disk(&parameters)), &format!("drive {seed}"), seed).iter().sum::<usize>();
    }
    assert!(read > 10_000, "{read} sectors");
}

#[test]
fn background_reads_delay_no_request_of_built_in_disks() {
    for (seed, name) in
        ["atlas-10k", "cheetah-x15", "hp-c2490a", "dec-rz26", "hitachi-hds721010kla330"].iter().enumerate()
    {
        let read = check(&|| build(name, 7), name, seed as u64);
        assert!(read[1] > 10_000, "{name} reads beside OLTP: {read:?}");
    }
}

#[test]
fn drives_with_background_reads_keep_the_contract() {
    for seed in 0..u64::from(contract::cases(8)) {
        let parameters = random_parameters(seed);
        contract::check(&format!("scan-{seed}"), 8, &|_| {
            let mut model = disk(&parameters);
            scan(&mut model, BackgroundTime::GapsAndRest);
            Box::new(model)
        });
    }
}

/// Each sector is under a head of its track when it is read, and the arm has time for every seek between.
#[test]
fn background_reads_are_possible_for_the_arm() {
    for (read_ahead, seed) in [(0, 1), (64, 2)] {
        let mut parameters = small();
        parameters.controller.read_ahead_blocks = read_ahead;
        let drive = Drive::new(&parameters).unwrap();
        let mut model = disk(&parameters);
        scan(&mut model, BackgroundTime::GapsAndRest);
        let (completed, done) = play(&mut model, (Load::Oltp, 3), seed, true);
        assert!(done.len() > 300 && completed.len() == 300, "{} ranges", done.len());
        let spindle = drive.mechanics.spindle();
        let mut last: Option<(geometry::Track, u64)> = None;
        for BackgroundDone { lba, sectors, at } in done {
            let place = drive.geometry.locate(lba.0);
            assert!(lba.0 + u64::from(sectors) <= place.track_end, "ranges end with their track");
            let passing = spindle.blocks(sectors.into(), place.blocks_per_track);
            let begins = ticks(at) - passing;
            // Instants are rounded up to whole nanoseconds of 16 ticks.
            let late = spindle.time_between(place.angle, drive.angle(0, begins));
            assert!(late <= 20, "block {} begins to pass {late} ticks before", lba.0);
            if let Some((track, ended)) = last {
                let moved = drive.mechanics.positioning(track, place.track, false);
                assert!(begins + 20 >= ended + moved, "a seek of {moved} in {} ticks", begins as i64 - ended as i64);
            }
            last = Some((place.track, ticks(at)));
        }
    }
}

#[test]
fn an_arm_at_rest_reads_its_track_and_no_other() {
    let mut parameters = small();
    parameters.controller.read_ahead_blocks = 0;
    let mut model = disk(&parameters);
    scan(&mut model, BackgroundTime::GapsAndRest);
    crate::advance(&mut model, Nanos::from_millis(4), &mut Vec::new());
    let mut done = Vec::new();
    // A run of blocks counts when all have passed: the whole track.
    model.background().unwrap().take(&mut done);
    assert_eq!(done, []);
    crate::advance(&mut model, Nanos::from_millis(100), &mut Vec::new());
    model.background().unwrap().take(&mut done);
    let read: u64 = done.iter().map(|done| u64::from(done.sectors)).sum();
    // The block under the head at the beginning passes first again a turn later.
    assert!((99..=100).contains(&read) && done.iter().all(|done| done.lba.0 < 100), "{done:?}");
    assert_eq!(model.background().unwrap().wanted(), 5_400 - read);
    assert_eq!(model.next_event(), None, "rest has no events");
}

#[test]
fn withdrawn_sectors_are_not_read() {
    let mut model = disk(&small());
    let background: &mut dyn crate::Background = model.background().unwrap();
    background.want(&BackgroundRead { ranges: vec![0..100, 50..300, 5_390..u64::MAX], when: BackgroundTime::Gaps });
    assert_eq!(background.wanted(), 310);
    background.forget(&[0..100, 200..5_399]);
    assert_eq!(background.wanted(), 101);
    let (_, done) = play(&mut model, (Load::RandomReads, 1), 3, true);
    assert!(done.iter().all(|done| done.lba.0 == 5_399 || (100..200).contains(&done.lba.0)), "{done:?}");
    assert!(!done.is_empty());
}

/// On an idle drive, the chosen place completes no later than any other.
fn check_places(make: &dyn Fn() -> Box<dyn DeviceModel>, name: &str, seed: u64) -> (Nanos, Nanos) {
    let mut model = make();
    let capacity = model.info().capacity_sectors;
    let mut stream = RandomStream::new(seed, "test", "places");
    let (mut chosen, mut first) = (Nanos::ZERO, Nanos::ZERO);
    for id in 0..30 {
        let pause = Nanos::from_micros(stream.below(20_000));
        let until = model.now() + Nanos::from_secs(2) + pause;
        crate::advance(model.as_mut(), until, &mut Vec::new());
        let sectors = [1, 8, 16, 32][stream.below(4) as usize];
        let near = stream.below(capacity - sectors);
        let places: Vec<Lba> = (0..1 + stream.below(20))
            .map(|_| match stream.below(2) {
                0 => Lba(stream.below(capacity - sectors)),
                _ => Lba((near + stream.below(2_000)).min(capacity - sectors)),
            })
            .collect();
        let write = Request { fua: true, ..Request::new(id, Op::Write, 0, sectors as u32) };
        let times: Vec<Nanos> = places
            .iter()
            .map(|&lba| crate::models::testing::complete(model.fork().as_mut(), Request { lba, ..write }))
            .collect();
        let index = model.soonest(&write, &places);
        assert_eq!(Some(&times[index]), times.iter().min(), "{name}: {index} of {places:?} takes {times:?}");
        (chosen, first) = (chosen + times[index], first + times[0]);
        let mut completed = Vec::new();
        assert_eq!(model.submit_anywhere(write, &places), places[index]);
        while completed.is_empty() {
            model.step(Nanos::MAX, &mut completed);
        }
    }
    (chosen, first)
}

#[test]
fn a_write_goes_to_the_soonest_place_of_an_idle_drive() {
    for seed in 0..u64::from(contract::cases(60)) {
        let parameters = random_parameters(seed);
        check_places(&|| Box::new(disk(&parameters)), &format!("drive {seed}"), seed);
    }
    for name in ["atlas-10k", "cheetah-x15", "hp-c2490a", "dec-rz26"] {
        let (chosen, first) = check_places(&|| build(name, 7), name, 5);
        assert!(chosen.as_nanos() * 6 < first.as_nanos() * 5, "{name}: {chosen} instead of {first}");
    }
}

#[test]
fn a_model_without_places_of_its_own_takes_the_first() {
    let mut model = build("constant-1ms", 0);
    let write = Request::new(0, Op::Write, 77, 8);
    assert_eq!(model.submit_anywhere(write, &[Lba(400), Lba(8)]), Lba(400));
    assert!(model.background().is_none());
    assert_eq!(model.outstanding(), 1);
}
