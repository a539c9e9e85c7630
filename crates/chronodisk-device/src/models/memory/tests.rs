//! The contract, and times worked out by hand.

use chronodisk_sim::{Nanos, Op, Request};

use super::device::{Piece, pieces};
use super::{Direction, Parameters};
use crate::models::testing::{build, build_text, closed_loop, complete};
use crate::quantity::Rate;
use crate::{DeviceModel, Profile, advance, contract};

/// Four units of 4 KiB pieces. A unit reads 4 KiB in 2 + 4.096 µs and writes them in 10 + 8.192 µs; they cross the link
/// in 2.048 µs; the controller takes 1 and 1.5 µs.
fn text(more: &str) -> String {
    format!(
        "name = \"m\"\nkind = \"memory\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         capacity = \"1 GiB\"\nunits = 4\ninterleave = \"4 KiB\"\n\
         read-overhead = \"1 us\"\nread-latency = \"2 us\"\nunit-read-bandwidth = \"1 GB/s\"\n\
         link-read-bandwidth = \"2 GB/s\"\n\
         write-overhead = \"1.5 us\"\nwrite-latency = \"10 us\"\nunit-write-bandwidth = \"500 MB/s\"\n\
         link-write-bandwidth = \"2 GB/s\"\n{more}"
    )
}

fn device(more: &str) -> Box<dyn DeviceModel> {
    build_text(&text(more), 7)
}

fn nanos(count: u64) -> Nanos {
    Nanos::from_nanos(count)
}

#[test]
fn keeps_the_contract() {
    for name in ["intel-p4800x", "onyx-pcm", "everspin-nvnitro"] {
        contract::check(name, contract::cases(8), &|seed| build(name, seed));
    }
    let varied = text("read-variation = \"2 us\"\nwrite-variation = \"300 ns\"\ncommand-interval = \"400 ns\"\n");
    contract::check("memory, varied", contract::cases(16), &|seed| build_text(&varied, seed));
    let buffered = text("write-buffer = \"12 KiB\"\nwrite-variation = \"9 us\"\n");
    contract::check("memory, buffered", contract::cases(16), &|seed| build_text(&buffered, seed));
}

#[test]
fn without_load_a_request_passes_each_station_once() {
    let mut device = device("");
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 0, 8)), nanos(1_000 + 6_096 + 2_048));
    assert_eq!(complete(device.as_mut(), Request::new(2, Op::Write, 8, 8)), nanos(1_500 + 2_048 + 18_192));
    assert_eq!(complete(device.as_mut(), Request::new(3, Op::Flush, 0, 0)), nanos(1_000));
    assert_eq!(complete(device.as_mut(), Request::new(4, Op::Discard, 0, 800)), nanos(1_000));
    assert_eq!(complete(device.as_mut(), Request::new(5, Op::WriteZeroes, 0, 800)), nanos(1_500));
    // 512 B: 2 µs and 512 ns at the unit, 256 ns on the link.
    assert_eq!(complete(device.as_mut(), Request::new(6, Op::Read, 0, 1)), nanos(1_000 + 2_512 + 256));
}

#[test]
fn a_completion_is_bounded_by_the_stations_ahead() {
    let mut device = device("");
    device.submit(Request::new(1, Op::Read, 0, 8));
    // The bound includes all times but the unit's rate.
    assert_eq!(device.completion_bound(), Some(nanos(1_000 + 2_000 + 2_048)));
    device.submit(Request::new(2, Op::Flush, 0, 0));
    assert_eq!(device.completion_bound(), Some(nanos(1_000)));
    let mut completed = Vec::new();
    advance(device.as_mut(), nanos(1_000), &mut completed);
    assert_eq!((completed.len(), device.completion_bound()), (1, Some(nanos(1_000 + 6_096 + 2_048))));
    advance(device.as_mut(), nanos(1_000 + 6_096 + 2_048), &mut completed);
    assert_eq!((completed.len(), device.completion_bound()), (2, None));
}

#[test]
fn pieces_go_to_units_in_turn_and_cross_the_link_one_after_the_other() {
    let mut device = device("");
    // 16 KiB: four units at once, then four transfers.
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 0, 32)), nanos(1_000 + 6_096 + 4 * 2_048));
    // 4 KiB that begin in the middle of a piece: half a piece on each of two units.
    assert_eq!(complete(device.as_mut(), Request::new(2, Op::Read, 4, 8)), nanos(1_000 + 4_048 + 2 * 1_024));
    // 20 KiB: the fifth piece waits for the first unit, and has come before the link has carried the four others.
    assert_eq!(complete(device.as_mut(), Request::new(3, Op::Read, 0, 40)), nanos(1_000 + 6_096 + 5 * 2_048));
}

#[test]
fn two_reads_of_one_unit_wait_for_each_other_and_of_two_units_for_the_link() {
    for (second, last) in [(0, 1_000 + 2 * 6_096 + 2_048), (8, 1_000 + 6_096 + 2 * 2_048)] {
        let mut device = device("");
        device.submit(Request::new(1, Op::Read, 0, 8));
        device.submit(Request::new(2, Op::Read, second, 8));
        let mut completed = Vec::new();
        advance(device.as_mut(), Nanos::from_millis(1), &mut completed);
        assert_eq!(completed[0].at, nanos(1_000 + 6_096 + 2_048));
        assert_eq!(completed[1].at, nanos(last));
    }
}

#[test]
fn the_controller_takes_up_one_request_per_interval() {
    let mut device = device("command-interval = \"400 ns\"\n");
    for id in 0..3 {
        device.submit(Request::new(id, Op::Flush, 0, 0));
    }
    let mut completed = Vec::new();
    advance(device.as_mut(), Nanos::from_millis(1), &mut completed);
    let at: Vec<u64> = completed.iter().map(|completion| completion.at.as_nanos()).collect();
    assert_eq!(at, [1_000, 1_400, 1_800]);
}

#[test]
fn a_write_buffer_hides_the_medium_until_it_is_full() {
    let mut device = device("write-buffer = \"8 KiB\"\n");
    // Two pieces for one unit fit into the buffer; the third waits until the unit has written the first one.
    for id in 0..3 {
        device.submit(Request::new(id, Op::Write, 32 * id, 8));
    }
    let mut completed = Vec::new();
    advance(device.as_mut(), Nanos::from_millis(1), &mut completed);
    let at: Vec<u64> = completed.iter().map(|completion| completion.at.as_nanos()).collect();
    let first = 1_500 + 2_048;
    assert_eq!(at, [first, first + 2_048, first + 18_192]);
    assert_eq!(device.next_event(), None, "the buffer has drained");
}

#[test]
fn a_request_larger_than_the_buffer_passes_through_it() {
    let mut device = device("write-buffer = \"4 KiB\"\n");
    // One piece at a time: 1.5 µs and the first transfer, then three consecutive writes of units.
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Write, 0, 32)), nanos(1_500 + 2_048 + 3 * 18_192));
}

#[test]
fn saturated_it_gives_what_its_bottleneck_gives() {
    // Large reads: the link's 2 GB/s; units could give 4 × 4,096 B per 6,096 ns, which is more.
    let outcome = closed_loop(device("").as_mut(), 8, 500, |id| Request::new(id, Op::Read, 256 * id, 256));
    let rate = 500.0 * 131_072.0 / outcome.last.as_secs_f64();
    assert!((rate / 2e9 - 1.0).abs() < 0.01, "{rate}");
    // Writes in sequence: four units at 4,096 B per 18,192 ns.
    let outcome = closed_loop(device("").as_mut(), 32, 4_000, |id| Request::new(id, Op::Write, 8 * id, 8));
    let rate = 4_000.0 / outcome.last.as_secs_f64();
    assert!((rate / (4.0 / 18.192e-6) - 1.0).abs() < 0.01, "{rate}");
    // Little's law in the middle of the run: 32 in the system.
    let time = outcome.response_times[2_000].as_secs_f64();
    assert!((time * rate / 32.0 - 1.0).abs() < 0.01, "{time}");
}

#[test]
fn variation_is_uniform_around_the_latency_and_follows_the_seed() {
    let times = |seed| {
        let mut device = build_text(&text("read-variation = \"1 us\"\n"), seed);
        (0..2_000).map(|id| complete(device.as_mut(), Request::new(id, Op::Read, 0, 8)).as_nanos()).collect::<Vec<_>>()
    };
    let first = times(1);
    let centre = 1_000 + 6_096 + 2_048;
    assert!(first.iter().all(|&time| (centre - 1_000..=centre + 1_000).contains(&time)));
    let mean = first.iter().sum::<u64>() as f64 / first.len() as f64;
    // Standard deviation of a mean of 2,000: 1000 / √3 / √2000 = 13 ns.
    assert!((mean - centre as f64).abs() < 70.0, "{mean}");
    assert_eq!(first, times(1));
    assert_ne!(first, times(2));
}

#[test]
fn long_requests_have_a_bounded_number_of_pieces_and_lose_no_byte() {
    let direction =
        Direction { overhead: nanos(1), latency: nanos(1), variation: nanos(0), bandwidth: Rate(1), link: Rate(1) };
    let parameters = Parameters {
        units: 7,
        interleave_bytes: 4_096,
        command_interval: nanos(0),
        read: direction.clone(),
        write: direction,
        buffer_bytes: None,
    };
    let of = |first, bytes| pieces(&parameters, first, bytes).collect::<Vec<Piece>>();
    assert_eq!(
        of(4_096 * 6 + 512, 4_096),
        [Piece { unit: 6, bytes: 3_584, accesses: 1 }, Piece { unit: 0, bytes: 512, accesses: 1 }]
    );
    for (first, bytes) in [(0, 4 << 20), (512, 4 << 20), (1_536, u64::from(u32::MAX) * 512), (4_096, 4_198_400)] {
        let all = of(first, bytes);
        assert!(all.len() as u64 <= 1_024, "{}", all.len());
        assert_eq!(all.iter().map(|piece| piece.bytes).sum::<u64>(), bytes);
        let accesses = (first + bytes).div_ceil(4_096) - first / 4_096;
        assert_eq!(all.iter().map(|piece| piece.accesses).sum::<u64>(), accesses);
    }
}

#[test]
fn the_published_points_of_the_phase_change_and_the_magnetoresistive_device() {
    let mut onyx = build("onyx-pcm", 0);
    let off = |time: Nanos, micros: f64| (time.as_micros_f64() / micros - 1.0).abs();
    let read = complete(onyx.as_mut(), Request::new(1, Op::Read, 0, 8));
    let write = complete(onyx.as_mut(), Request::new(2, Op::Write, 0, 8));
    assert!(off(read, 38.0) < 0.01 && off(write, 179.0) < 0.01, "{read} {write}");
    let rate = |name: &str, op, sectors: u64, depth| {
        let step = |id| Request::new(id, op, id * sectors, sectors as u32);
        let outcome = closed_loop(build(name, 0).as_mut(), depth, 1_500, step);
        1_500.0 * sectors as f64 * 512.0 / outcome.last.as_secs_f64()
    };
    assert!((rate("onyx-pcm", Op::Read, 128, 64) / 1.1e9 - 1.0).abs() < 0.03);
    assert!((rate("onyx-pcm", Op::Write, 128, 64) / 470e6 - 1.0).abs() < 0.03);
    let mut mram = build("everspin-nvnitro", 0);
    assert!(complete(mram.as_mut(), Request::new(1, Op::Read, 0, 8)) <= Nanos::from_micros(6));
    assert!((rate("everspin-nvnitro", Op::Write, 8, 32) / 4_096.0 / 1.5e6 - 1.0).abs() < 0.05);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (old, new, message) in [
        ("interleave = \"4 KiB\"", "interleave = \"700 B\"", "multiple of 512 B"),
        ("units = 4", "units = 0", "out of range"),
        ("read-latency = \"2 us\"", "read-latency = \"2 us\"\nread-variation = \"3 us\"", "more than `read-latency`"),
        ("units = 4", "units = 4\nwrite-buffer = \"512 B\"", "smaller than a piece"),
        ("link-read-bandwidth = \"2 GB/s\"", "", "`link-read-bandwidth` is missing"),
    ] {
        let error = Profile::parse(&text("").replace(old, new), "test").unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}
