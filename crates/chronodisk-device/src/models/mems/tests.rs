//! The MEMS device against the contract and against manual computations.

use chronodisk_sim::{Nanos, Op, Request};

use crate::models::testing::{build, build_text, closed_loop, complete};
use crate::{DeviceModel, Probe, Profile, advance, contract};

/// 1,000 bits of 100 nm each way, 100 rows of 10 bits without servo bursts, 2 blocks to a row, 3 columns; 1 µs to a
/// bit.
fn plain(change: &[(&str, &str)]) -> Box<dyn DeviceModel> {
    let mut text = String::from(
        "name = \"m\"\nkind = \"mems\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         capacity = \"307200 kB\"\nsled-travel-x = \"100 um\"\nsled-travel-y = \"100 um\"\nbit-length = \"100 nm\"\n\
         tip-sector-bits = 10\nservo-burst-bits = 0\ntips-per-block = 4\nusable-tips = 24\nactive-tips = 8\n\
         layout = \"streaming\"\naccess = \"bidirectional\"\nacceleration-x = \"1000 m/s2\"\n\
         acceleration-y = \"1000 m/s2\"\ntip-rate = \"1 Mbit/s\"\nresonant-frequency = \"1 kHz\"\n\
         settling = \"0 time constants\"\nsprings = \"0 %\"\ncommand-overhead = \"0 us\"\n\
         bus-time-per-block = \"0 us\"\n\
         park-after = \"1 s\"\nstartup = \"0 us\"\nidle-sweep = \"end-to-end\"\n",
    );
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    build_text(&text, 7)
}

fn read(id: u64, lba: u64, sectors: u32) -> Request {
    Request::new(id, Op::Read, lba, sectors)
}

/// Equal but for the rounding of instants.
#[track_caller]
fn about(seen: Nanos, expected_ns: u64) {
    assert!(seen.as_nanos().abs_diff(expected_ns) <= 2, "{seen:?} instead of {expected_ns} ns");
}

#[test]
fn contracts() {
    for name in ["mems-g1", "mems-g2", "mems-g3"] {
        contract::check(name, contract::cases(16), &|seed| build(name, seed));
    }
    contract::check("plain sled", contract::cases(16), &|_| plain(&[]));
    contract::check("four sleds and a buffer", contract::cases(16), &|_| {
        plain(&[
            ("capacity = \"307200 kB\"", "capacity = \"1228800 kB\""),
            ("sled-travel-x", "sleds = 4\nbuffer-segments = 3\nbuffer-segment = \"8 KiB\"\nsled-travel-x"),
            ("block = \"0 us\"", "block = \"3 us\"\nwrite-acknowledgement = \"1 us\""),
            ("springs = \"0 %\"", "springs = \"60 %\""),
            ("park-after = \"1 s\"", "park-after = \"1 ms\""),
            ("startup = \"0 us\"", "startup = \"500 us\""),
            ("overhead = \"0 us\"", "overhead = \"7 us\""),
        ])
    });
}

#[test]
fn without_load_a_read_costs_the_longer_seek_and_its_rows() {
    // The sled rests at cylinder 500 in the middle; the middle block is the second column's first in reverse.
    let mut sled = plain(&[]);
    let middle = 500 * 600 + 300;
    about(complete(sled.as_mut(), read(1, middle, 1)), 10_000);
    // The row that follows in that direction needs no seek; a hundred of them pass in 1 ms.
    about(complete(sled.as_mut(), read(2, middle - 2, 1)), 10_000);
    // 25 µm in X: t = 2·√(d/a) = 316.2 µs, longer than the movement in Y.
    let mut sled = plain(&[]);
    about(complete(sled.as_mut(), read(3, middle + 250 * 600, 1)), 316_228 + 10_000);
    // The seek with settling: 1/(2π·1 kHz) = 159.155 µs per time constant.
    let mut sled = plain(&[("settling = \"0 time constants\"", "settling = \"2 time constants\"")]);
    about(complete(sled.as_mut(), read(4, middle + 250 * 600, 1)), 316_228 + 318_310 + 10_000);
}

#[test]
fn springs_brake_what_moves_outwards() {
    let middle = 500 * 600 + 300;
    let outwards = |springs: &str| {
        let mut sled = plain(&[("springs = \"0 %\"", springs)]);
        complete(sled.as_mut(), read(1, middle + 400 * 600, 1))
    };
    let (without, with) = (outwards("springs = \"0 %\""), outwards("springs = \"75 %\""));
    // Springs slow the start and help the stop, which takes the longer part of the way without them. The exact solution
    // of x'' = ±a − k·x: the energies meet at s = d/2 + k·d²/(4a), with phases by arc cosines. The eight tries of the
    // model come within 2 % of it.
    let (a, d) = (1_000.0_f64, 40e-6_f64);
    let k = 0.75 * a / 50e-6;
    let switch = d / 2.0 + k * d * d / (4.0 * a);
    let omega = k.sqrt();
    let centre = a / k;
    let first = ((centre - switch) / centre).acos() / omega;
    let second = ((switch + centre) / (d + centre)).acos() / omega;
    let exact = (first + second) * 1e9 + 10_000.0;
    assert!(with < without, "{with} {without}");
    assert!((with.as_nanos() as f64 / exact - 1.0).abs() < 0.02, "{with} instead of {exact} ns");
}

#[test]
fn a_stroke_streams_at_the_tips_rate() {
    // 600 blocks of a cylinder: three strokes of 1 ms and two turns of 2·v/a = 200 µs; the column changes in place.
    let mut sled = plain(&[]);
    let first = 500 * 600;
    // After two rows, the sled moves up.
    complete(sled.as_mut(), read(1, first, 4));
    let time = complete(sled.as_mut(), read(2, first + 4, 596));
    about(time, 980_000 + 2 * 1_000_000 + 2 * 200_000);
}

#[test]
fn a_write_follows_its_data() {
    // Two blocks share a row; a block takes 3 µs to come, so the first pass takes one of them and the next the other.
    let mut sled = plain(&[("block = \"0 us\"", "block = \"3 us\"")]);
    let middle = 500 * 600 + 300;
    complete(sled.as_mut(), read(1, middle, 1));
    let seen = complete(sled.as_mut(), Request::new(2, Op::Write, middle - 2, 2));
    let mut counters = Counters::default();
    sled.probe(&mut counters);
    assert_eq!(counters.value("vain-passes"), 0);
    assert_eq!(counters.value("row-seeks"), 3);
    // A second pass means to turn round.
    assert!(seen >= Nanos::from_micros(20 + 200), "{seen}");
    // Zeroes need no data and take both blocks in one pass.
    let mut sled = plain(&[("block = \"0 us\"", "block = \"3 us\"")]);
    complete(sled.as_mut(), read(1, middle, 2));
    let time = complete(sled.as_mut(), Request::new(2, Op::WriteZeroes, middle - 2, 2));
    assert!(time < Nanos::from_micros(420), "{time}");
}

#[test]
fn a_parked_sled_starts_again() {
    let mut sled = plain(&[("startup = \"0 us\"", "startup = \"500 us\"")]);
    let middle = 500 * 600 + 300;
    about(complete(sled.as_mut(), read(1, middle, 1)), 510_000);
    let mut idle = Vec::new();
    let later = sled.now() + Nanos::from_secs(2);
    advance(sled.as_mut(), later, &mut idle);
    about(complete(sled.as_mut(), read(2, middle, 1)), 510_000);
}

#[test]
fn an_idle_sled_sweeps_from_end_to_end() {
    let middle = 500 * 600 + 300;
    let mut sled = plain(&[]);
    complete(sled.as_mut(), read(1, middle, 1));
    // The sled needs 500 − 10 µs to the end and a turn. After the whole stroke and another turn it is back at the row's
    // end.
    let round = Nanos::from_micros(2 * 1_000 + 2 * 200 - 10);
    let mut none = Vec::new();
    let later = sled.now() + round;
    advance(sled.as_mut(), later, &mut none);
    about(complete(sled.as_mut(), read(2, middle, 1)), 10_000);
}

#[test]
fn a_buffered_read_crosses_the_bus_only() {
    let mut sled = plain(&[
        ("sled-travel-x", "buffer-segments = 2\nbuffer-segment = \"8 KiB\"\nsled-travel-x"),
        ("block = \"0 us\"", "block = \"3 us\""),
    ]);
    complete(sled.as_mut(), read(1, 1_000, 8));
    about(complete(sled.as_mut(), read(2, 1_000, 8)), 24_000);
    about(complete(sled.as_mut(), read(3, 1_003, 2)), 6_000);
    assert!(complete(sled.as_mut(), read(4, 1_007, 2)) > Nanos::from_micros(10));
    let mut counters = Counters::default();
    sled.probe(&mut counters);
    assert_eq!(counters.value("buffer-hits"), 2);
}

#[test]
fn load_hides_the_command_overhead() {
    // Sequential single blocks: without load each pays the overhead, under load only the first.
    let overhead = [("overhead = \"0 us\"", "overhead = \"100 us\"")];
    let rows = |id: u64| read(id, 300_000 + 2 * id, 1);
    let loaded = closed_loop(plain(&overhead).as_mut(), 32, 90, rows);
    let idle = closed_loop(plain(&overhead).as_mut(), 1, 90, rows);
    assert!(loaded.last < Nanos::from_micros(2_000), "{}", loaded.last);
    assert!(idle.last > Nanos::from_millis(9), "{}", idle.last);
    // Little's law: 32 in the system at one row of 10 µs each.
    about(loaded.response_times[60], 320_000);
}

#[test]
fn sleds_work_side_by_side() {
    let four =
        [("capacity = \"307200 kB\"", "capacity = \"1228800 kB\""), ("sled-travel-x", "sleds = 4\nsled-travel-x")];
    let anywhere = |id: u64| read(id, (id % 4) * 600_000 + (id * 7_919 % 1_000) * 600, 1);
    let together = closed_loop(plain(&four).as_mut(), 16, 400, anywhere);
    let alone = closed_loop(plain(&four).as_mut(), 16, 400, |id| read(id, (id * 7_919 % 1_000) * 600, 1));
    assert!(together.last.as_nanos() * 3 < alone.last.as_nanos(), "{} {}", together.last, alone.last);
}

#[test]
fn wrong_profiles_are_refused_with_their_place() {
    let text = Profile::find("mems-g1").unwrap().text().to_owned();
    for (from, to, part) in [
        ("springs = \"75 %\"", "springs = \"100 %\"", "as strong as the actuators"),
        ("active-tips = 640", "active-tips = 6401", "more than there are usable"),
        ("active-tips = 640", "active-tips = 63", "fewer than one block"),
        ("bit-length = \"50 nm\"", "bit-length = \"90 um\"", "the travel in X has 1 bits"),
        ("tip-sector-bits = 80", "tip-sector-bits = 2000", "room for a row"),
        ("access = \"one-way\"", "access = \"both\"", "bidirectional"),
        ("tip-rate = \"400 kbit/s\"", "tip-rate = 400", "a number without a unit"),
        ("capacity = \"2252800000 B\"", "capacity = \"2252800512 B\"", "geometry ends"),
        ("startup", "buffer-segments = 2\nstartup", "together with"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Profile::parse(&text.replace(from, to), "wrong").unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.line.is_some(), "{error}");
    }
}

#[derive(Default)]
struct Counters(Vec<(String, u64)>);

impl Counters {
    fn value(&self, name: &str) -> u64 {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, value)| value).expect("a counter of that name")
    }
}

impl Probe for Counters {
    fn counter(&mut self, name: &str, value: u64) {
        self.0.push((name.to_owned(), value));
    }

    fn gauge(&mut self, _name: &str, _unit: &str, _value: f64) {}
}
