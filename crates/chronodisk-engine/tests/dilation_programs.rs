//! The rule of `dilation` on synthetic programs in a world without noise: the prediction for a faster device, compared
//! with the running time of the same program on it.

#[path = "dilation_programs/world.rs"]
mod world;

use chronodisk_engine::dilation::{DilationOptions, Prediction, Speedup};
use chronodisk_sim::{Nanos, RandomStream};
use world::{Device, Step, World, followed, truth};

const MICRO: f64 = 1e3;

/// A sample of the exponential distribution with this mean.
fn exponential(stream: &mut RandomStream, mean: f64) -> f64 {
    let uniform = (stream.below(1 << 53) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln() * mean
}

fn options(speedup: f64, freezes: bool) -> DilationOptions {
    let factor = Speedup::from_factor(speedup).unwrap();
    DilationOptions { reads: factor, writes: factor, freezes, ..DilationOptions::default() }
}

/// A thread that computes and reads by turns.
fn reader(stream: &mut RandomStream, count: usize, compute: f64) -> Vec<Step> {
    (0..count).flat_map(|_| [Step::Compute(exponential(stream, compute)), Step::Read(4_096.0)]).collect()
}

/// A thread that computes and reads, with several reads begun ahead.
fn read_ahead(stream: &mut RandomStream, count: usize, compute: f64, bytes: f64, ahead: usize) -> Vec<Step> {
    let mut steps = vec![Step::Start(bytes); ahead];
    for number in 0..count {
        steps.extend([Step::Await(number), Step::Start(bytes), Step::Compute(exponential(stream, compute))]);
    }
    steps
}

fn stream(name: &str) -> RandomStream {
    RandomStream::new(1, "dilation", name)
}

fn error(predicted: Nanos, truth: f64) -> f64 {
    (predicted.as_nanos() as f64 / truth - 1.0) * 100.0
}

/// The prediction for a program that is frozen by the rule, and its true running time in nanoseconds.
fn predict(speedup: f64, device: Device, program: &[Vec<Step>]) -> (Prediction, f64) {
    let truth_ns = truth(World::default(), program, device, speedup);
    (followed(World::default(), program, device, options(speedup, true)).1, truth_ns)
}

const fn parallel(latency_us: f64, channels: usize, hiccup_every: usize) -> Device {
    Device { latency: latency_us * MICRO, rate: 0.0, channels, hiccup_every }
}

/// The larger error of the two estimates, in per cent.
fn worst((prediction, truth_ns): (Prediction, f64)) -> f64 {
    error(prediction.by_debt, truth_ns).abs().max(error(prediction.by_request, truth_ns).abs())
}

#[test]
fn one_synchronous_stream_is_within_a_thousandth() {
    for latency in [80.0, 1e3, 1e4] {
        for speedup in [1.98, 2.0, 8.0] {
            let program = [reader(&mut stream("depth 1"), 300, latency / 2.0 * MICRO)];
            let error = worst(predict(speedup, parallel(latency, 64, 0), &program));
            assert!(error < 0.1, "{latency} us, {speedup} times: {error} %");
        }
    }
}

#[test]
fn a_computing_thread_beside_a_reader_is_nearer_with_freezing() {
    for latency in [80.0, 1e3, 1e4] {
        for speedup in [2.0, 8.0] {
            let spinner = vec![Step::Compute(300.0 * latency * 1.2 * MICRO)];
            let program = [reader(&mut stream("reader"), 300, latency / 2.0 * MICRO), spinner];
            let device = parallel(latency, 64, 0);
            let truth_ns = truth(World::default(), &program, device, speedup);
            let frozen = worst(predict(speedup, device, &program));
            let (_, accounted) = followed(World::default(), &program, device, options(speedup, false));
            let [by_debt, by_request] =
                [accounted.by_debt, accounted.by_request].map(|time| error(time, truth_ns).abs());
            println!("{latency} us, {speedup} times: {frozen} %, accounted {by_debt} % and {by_request} %");
            // A program whose requests gain so little is not frozen.
            if (speedup - 1.0) * latency / 4.0 < 500.0 {
                assert!(by_debt < 7.0, "{latency} us, {speedup} times: {by_debt} %");
                continue;
            }
            assert!(frozen < 0.5 && by_request > 5.0, "{latency} us, {speedup} times: {frozen} %, {by_request} %");
            // A slow freeze: the debt that was not paid before a request completed is paid during the next one.
            let slow =
                World { freeze_delay: 0.1 * latency * MICRO, thaw_delay: 0.1 * latency * MICRO, ..World::default() };
            let late = followed(slow, &program, device, options(speedup, true)).1;
            let late = error(late.by_debt, truth_ns).abs();
            println!("{latency} us, {speedup} times: frozen late {late} %");
            assert!(late < 5.0, "{latency} us, {speedup} times: frozen late {late} %");
        }
    }
}

/// An event loop that reads while its timer ticks.
fn event_loop(count: usize, compute: f64, bytes: f64) -> Vec<Step> {
    [Step::Compute(compute * MICRO), Step::Poll(bytes, 4e3 * MICRO)].repeat(count)
}

#[test]
fn ticks_of_an_event_loop_do_not_make_its_waits_longer() {
    for latency in [1e3, 5e3, 1e4] {
        for speedup in [2.0, 5.0, 8.0] {
            let program = [event_loop(300, latency / 4.0, 4_096.0)];
            let error = worst(predict(speedup, parallel(latency, 64, 0), &program));
            assert!(error < 0.1, "{latency} us, {speedup} times: {error} %");
        }
    }
}

/// Each program decides whether a timer is only a tick, or delays the program.
#[test]
fn ticks_and_sleeps_in_programs_of_all_shapes_are_told_apart() {
    let device = |channels| parallel(5e3, channels, 0);
    let slow = Device { latency: 0.0, rate: 0.05, channels: 1, hiccup_every: 0 };
    let loops = |count| vec![event_loop(200, 500.0, 4_096.0); count];
    let sleeps = |count| [Step::Sleep(4e3 * MICRO), Step::Compute(50.0 * MICRO)].repeat(count);
    let reads = [Step::Compute(500.0 * MICRO), Step::Read(4_096.0)].repeat(200);
    let own = |number| [Step::Start(4_096.0), Step::Sleep(4e3 * MICRO), Step::Await(number)];
    for speedup in [2.0, 5.0] {
        let computes = vec![Step::Compute(4e6 * MICRO / speedup)];
        let shapes: [(&str, Device, Vec<Vec<Step>>); 7] = [
            ("large reads", slow, vec![event_loop(100, 500.0, 1_048_576.0)]),
            ("four loops, four channels", device(4), loops(4)),
            ("four loops, one channel", device(1), loops(4)),
            ("a loop beside a computation", device(4), [loops(1), vec![computes]].concat()),
            ("a sleeper that ends after a reader", device(4), vec![reads.clone(), sleeps(300)]),
            ("a sleeper that ends much later", device(4), vec![reads.clone(), sleeps(1_000)]),
            ("sleeps beside its own reads", device(4), vec![(0..200).flat_map(own).collect()]),
        ];
        for (name, device, program) in shapes {
            let (prediction, truth_ns) = predict(speedup, device, &program);
            let by_debt = error(prediction.by_debt, truth_ns);
            let (low, high) = (error(prediction.low, truth_ns), error(prediction.high, truth_ns));
            println!("{name}, {speedup} times: {by_debt:.1} %, band {low:.1} to {high:.1} %");
            assert!(by_debt.abs() < 1.0, "{name}, {speedup} times: {by_debt} %");
            assert!(low <= 0.01 && high >= -0.01, "{name}, {speedup} times: {low} to {high} %");
        }
    }
}

#[test]
fn reading_ahead_is_within_a_hundredth() {
    for compute in [500.0, 2_000.0, 2_800.0, 5_000.0] {
        let device = Device { latency: 0.0, rate: 0.046_7, channels: 1, hiccup_every: 0 };
        let program = [read_ahead(&mut stream("read-ahead"), 300, compute * MICRO, 131_072.0, 2)];
        let error = worst(predict(1.98, device, &program));
        assert!(error < 1.0, "{compute} us of computing: {error} %");
    }
}

#[test]
fn four_threads_are_within_a_fifth() {
    for compute in [20.0, 50.0, 200.0, 500.0] {
        for (channels, hiccup_every) in [(1, 0), (4, 0), (4, 100)] {
            for speedup in [2.0, 8.0] {
                let mut stream = stream("four threads");
                let program: Vec<_> = (0..4).map(|_| reader(&mut stream, 300, compute * MICRO)).collect();
                let error = worst(predict(speedup, parallel(1e3, channels, hiccup_every), &program));
                assert!(error < 20.0, "{compute} us, {channels} channels, {speedup} times: {error} %");
            }
        }
    }
}

/// A file system's write-back computes before each request, and waits for the last one of each batch. The program
/// computes beside it, waits for its end, and computes again.
fn written_back(stream: &mut RandomStream, requests: usize, compute: f64, batch: usize) -> Vec<Vec<Step>> {
    let program = vec![Step::Compute(exponential(stream, 1e3 * MICRO)), Step::Join(1), Step::Compute(500.0 * MICRO)];
    let mut writes = Vec::new();
    for request in 0..requests {
        writes.extend([Step::Compute(exponential(stream, compute)), Step::Start(4_096.0)]);
        if (request + 1) % batch == 0 {
            writes.push(Step::Await(request));
        }
    }
    vec![program, writes]
}

#[test]
fn the_band_holds_what_threads_of_the_kernel_compute_for_the_program() {
    let world = World { kernel_from: 1, ..World::default() };
    for latency in [300.0, 1e3, 1e4] {
        for (channels, batch) in [(1, 1), (1, 32), (64, 1), (64, 8), (64, 256)] {
            for share in [0.02, 0.1, 0.5] {
                for speedup in [2.0, 4.0] {
                    let device = parallel(latency, channels, 0);
                    let program = written_back(&mut stream("write-back"), 256, latency * share * MICRO, batch);
                    let truth_ns = truth(world, &program, device, speedup);
                    let (_, prediction) = followed(world, &program, device, options(speedup, true));
                    let [by_debt, by_request, low, high] =
                        [prediction.by_debt, prediction.by_request, prediction.low, prediction.high]
                            .map(|time| error(time, truth_ns));
                    let what =
                        format!("{latency} us, {channels} channels, batches of {batch}, {share}, {speedup} times");
                    println!("{what}: {by_debt:.1} and {by_request:.1} %, band {low:.1} to {high:.1} %");
                    assert!(low <= 0.01 && high >= -0.01, "{what}: {low} to {high} %");
                }
            }
        }
    }
}

#[test]
fn the_band_holds_the_truth_for_most_programs() {
    const PROGRAMS: u64 = 200;
    let mut widths = Vec::new();
    let mut held = 0;
    for seed in 0..PROGRAMS {
        let (speedup, device, program) = synthetic(seed);
        let (prediction, truth_ns) = predict(speedup, device, &program);
        let (low, high) = (error(prediction.low, truth_ns), error(prediction.high, truth_ns));
        // Tolerates a ten-thousandth, because instants are rounded to nanoseconds.
        held += u64::from(low <= 0.01 && high >= -0.01);
        widths.push(high - low);
    }
    widths.sort_by(f64::total_cmp);
    let median = widths[widths.len() / 2];
    println!("{held} of {PROGRAMS} held, median width {median:.1} %");
    assert!(held * 100 >= PROGRAMS * 95, "{held} of {PROGRAMS}");
    assert!(median <= 30.0, "{median} %");
}

#[test]
fn equal_programs_give_equal_predictions() {
    let (speedup, device, program) = synthetic(7);
    assert_eq!(predict(speedup, device, &program), predict(speedup, device, &program));
}

/// A program of one to four threads of all kinds, with a device and a factor of its own.
fn synthetic(seed: u64) -> (f64, Device, Vec<Vec<Step>>) {
    let mut stream = RandomStream::new(seed, "dilation", "program");
    let speedup = [1.5, 2.0, 4.0, 8.0][stream.below(4) as usize];
    let latency = [80.0, 300.0, 1_000.0, 5_000.0][stream.below(4) as usize] * MICRO;
    let device = Device {
        latency,
        rate: if stream.chance(0.3) { 4_096.0 / latency } else { 0.0 },
        channels: [1, 2, 4, 8][stream.below(4) as usize],
        hiccup_every: if stream.chance(0.2) { 100 } else { 0 },
    };
    let threads = 1 + stream.below(4);
    let program = (0..threads).map(|_| {
        let compute = latency * [0.05, 0.2, 0.5, 2.0][stream.below(4) as usize];
        match stream.below(5) {
            0 | 1 => reader(&mut stream, 300, compute),
            2 => {
                let ahead = 1 + stream.below(4) as usize;
                read_ahead(&mut stream, 300, compute, 4_096.0, ahead)
            }
            3 => sleeper(&mut stream, 200, compute, latency),
            _ => buffered(&mut stream, 100, compute, latency),
        }
    });
    (speedup, device, program.collect())
}

/// A thread that sleeps between its reads.
fn sleeper(stream: &mut RandomStream, count: usize, compute: f64, sleep: f64) -> Vec<Step> {
    let turn =
        |_| [Step::Compute(exponential(stream, compute)), Step::Read(4_096.0), Step::Sleep(exponential(stream, sleep))];
    (0..count).flat_map(turn).collect()
}

/// A thread that leaves requests behind, as a writer to the page cache does, and sleeps meanwhile.
fn buffered(stream: &mut RandomStream, count: usize, compute: f64, sleep: f64) -> Vec<Step> {
    let turn = |_| {
        [
            Step::Compute(exponential(stream, compute)),
            Step::Start(4_096.0),
            Step::Start(4_096.0),
            Step::Sleep(exponential(stream, sleep * 3.0)),
        ]
    };
    (0..count).flat_map(turn).collect()
}
