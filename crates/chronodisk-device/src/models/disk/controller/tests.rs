//! The contract for the controller, its rates at each depth, its bound on waits, cases computed by hand.

use chronodisk_sim::{Completion, Nanos, Op, RandomStream, Request, RequestId};

use crate::models::testing::{build, build_text, complete, counter, tangle};
use crate::rates::{Load, Loop, Ops, Pattern, measure, measure_together};
use crate::{BuildOptions, DeviceModel, Profile, contract};

/// 6,000 rpm, so that a turn takes 10 ms; 100 blocks a track, 512 tracks, skews that hide the switches.
fn small(keys: &str) -> String {
    let (bus, keys): (Vec<&str>, Vec<&str>) = keys.lines().partition(|line| line.trim().starts_with("host-bus = "));
    format!(
        "name = \"small\"\nkind = \"disk\"\ndescription = \"d\"\nsource = \"round figures\"\n\
         validation = \"unvalidated\"\ncapacity = \"26214400 B\"\n{}\n\
         [geometry]\nsurfaces = 4\ncylinders = 128\n\
         [[geometry.zones]]\nfirst-cylinder = 0\nlast-cylinder = 127\nblocks-per-track = 100\n\
         track-skew = \"10 sectors\"\ncylinder-skew = \"15 sectors\"\n\
         [mechanics]\nrotation = \"6000 rpm\"\nhead-switch = \"0.8 ms\"\n\
         seek = {{ curve = \"lee\", single = \"1 ms\", average = \"5 ms\", full = \"10 ms\" }}\n\
         [controller]\ninterface-rate = \"51.2 MB/s\"\nqueue-depth = 32\nsegments = 4\nsegment-size = \"128 KiB\"\n\
         read-ahead = \"64 KiB\"\nwrite-buffer = \"256 KiB\"\n{}",
        bus.concat(),
        keys.join("\n")
    )
}

fn device(keys: &str, seed: u64) -> Box<dyn DeviceModel> {
    build_text(&small(keys), seed)
}

const VARIANTS: [&str; 9] = [
    "",
    "write-cache = true\nread-overhead = \"0.3 ms\"\nwrite-overhead = \"0.2 ms\"",
    "write-cache = true\nimmediate-read = true\nimmediate-write = true\nwrite-ranges = 4",
    "store-and-forward = true\nage-bound = \"20 ms\"\nlongest-pass = \"5 ms\"",
    "write-cache = true\nage-bound = \"0 ms\"\nlongest-pass = \"0 ms\"",
    "preseek = true\nextra-write-disconnect = { overhead = \"0 ms\", data-delay = \"0.3 ms\" }\nread-hit-after-write = \"0.2 ms\"\n\
     read-miss-after-read = \"0.3 ms\"\nwrite-completion = \"0.1 ms\"\n\
     host-bus = { read-block = \"0.15 ms\", write-block = \"0.12 ms\", connected = true }\nread-water-mark = 0.75\nreselect = \"0.1 ms\"",
    "preseek = true\nwrite-cache = true\nimmediate-write = true\nread-ahead-to = \"track-end-or-next\"\n\
     read-free-blocks = true",
    "scheduler = \"fcfs\"\nwrite-cache = true\nwrite-ranges = 1\npreseek = true\nread-free-blocks = true\n\
     read-hits-on-write-data = true",
    "scheduler = \"look\"\nwrite-cache = true\nimmediate-write = true\nage-bound = \"50 ms\"",
];

#[test]
fn it_keeps_the_contract() {
    for variant in VARIANTS {
        contract::check(variant, contract::cases(48), &|seed| device(variant, seed));
    }
    for name in ["cheetah-9lp", "cheetah-x15-zero-latency", "nearline-20tb"] {
        contract::check(name, contract::cases(16), &|seed| build(name, seed));
    }
    for name in TRACED {
        contract::check(name, contract::cases(16), &|seed| on_host_bus(name, seed));
    }
}

/// Drives with the bus of the computer that recorded their traces.
const TRACED: [&str; 4] = ["cheetah-9lp", "atlas-10k", "barracuda", "ibm-18es"];

fn on_host_bus(name: &str, seed: u64) -> Box<dyn DeviceModel> {
    let options = BuildOptions { seed, host_bus: true, ..BuildOptions::default() };
    Profile::find(name).unwrap().build(&options).unwrap()
}

/// One client and eight, with neighbours, overlaps and long requests among them.
#[test]
fn no_read_is_faster_than_the_host_bus() {
    // Of a sector, in the profile with the fastest bus.
    let least = Nanos::from_micros(99);
    for (name, depth) in TRACED.into_iter().flat_map(|name| [(name, 1), (name, 8)]) {
        let mut device = on_host_bus(name, 1);
        let mut stream = RandomStream::new(depth, "streaming", "host-bus");
        let (mut completed, mut begun, mut last) = (Vec::new(), std::collections::HashMap::new(), 0);
        for id in 0..2_000 {
            while u64::from(device.outstanding()) >= depth {
                let event = device.next_event().unwrap();
                device.step(event, &mut completed);
                for completion in completed.drain(..) {
                    let (at, op, sectors): (Nanos, Op, u32) = begun.remove(&completion.id).unwrap();
                    let bus = Nanos::from_nanos(least.as_nanos() * u64::from(sectors));
                    let taken = completion.at - at;
                    assert!(op != Op::Read || taken >= bus, "{name}, {depth}: {sectors} sectors in {taken}");
                }
            }
            let sectors = 1 + stream.below(if id % 10 == 0 { 600 } else { 32 }) as u32;
            let near = stream.below(3) > 0;
            let lba = if near { last + stream.below(200) } else { stream.below(4_000_000) };
            last = lba;
            let op = if stream.below(3) == 0 { Op::Write } else { Op::Read };
            begun.insert(RequestId(id), (device.now(), op, sectors));
            device.submit(Request::new(id, op, lba, sectors));
        }
    }
}

#[test]
fn requests_that_overlap_do_not_stand_in_each_others_way() {
    for seed in 0..u64::from(contract::cases(60)) {
        for variant in VARIANTS {
            tangle(variant, device(variant, seed).as_mut(), seed);
        }
        tangle("nearline-20tb", build("nearline-20tb", seed).as_mut(), seed);
    }
}

#[test]
fn depth_costs_no_sequential_throughput() {
    for name in ["cheetah-9lp", "atlas-10k", "barracuda", "ibm-18es", "cheetah-x15", "nearline-20tb"] {
        for write in [false, true] {
            for bytes in [4 << 10, 128 << 10, 1 << 20] {
                let [one, four, many] = [1, 4, 32].map(|depth| {
                    let load = Load { sequential: true, write, bytes, depth };
                    measure(build(name, 1).as_mut(), load, 0, 1).bytes_per_second
                });
                let least = one * 9 / 10;
                assert!(four >= least && many >= least, "{name}, {write}, {bytes} B: {one}, {four}, {many} B/s");
            }
        }
    }
}

/// The second write of the same blocks crosses the interface for 0.64 ms, before, while or after the pass for the first
/// one begins. If that pass began first, it wrote the older data.
#[test]
fn data_that_arrive_during_the_pass_over_older_ones_are_written_again() {
    let with_read_and_write = || {
        let mut device = device("write-cache = true", 0);
        // The last blocks, behind which there is nothing to read on.
        device.submit(Request::new(0, Op::Read, 51_136, 64));
        device.submit(Request::new(1, Op::Write, 0, 64));
        device
    };
    let finish = |device: &mut dyn DeviceModel| {
        let mut completed = Vec::new();
        while device.outstanding() > 0 {
            device.step(device.next_event().unwrap(), &mut completed);
        }
        completed
    };
    // The pass begins at the end of the read's run, whose last block crosses for 10 us.
    let read_first = finish(with_read_and_write().as_mut()).pop().unwrap();
    assert_eq!(read_first.id, RequestId(0));
    let pass = read_first.at - Nanos::from_micros(10);
    for fua in [false, true] {
        let mut counts = [0; 2];
        for delay in (10..300).map(|step| Nanos::from_micros(100 * step)) {
            let mut device = with_read_and_write();
            crate::model::advance(device.as_mut(), delay, &mut Vec::new());
            device.submit(Request { fua, ..Request::new(2, Op::Write, 0, 64) });
            finish(device.as_mut());
            device.submit(Request::new(3, Op::Flush, 0, 0));
            finish(device.as_mut());
            let is_one_pass = delay + Nanos::from_micros(640) <= pass;
            counts[usize::from(is_one_pass)] += 1;
            let expected = if is_one_pass { 64 } else { 128 };
            assert_eq!(counter(device.as_ref(), "blocks-written"), expected, "{fua}, {delay}, {pass}");
        }
        assert!(counts[0] > 20 && counts[1] > 20, "{counts:?}");
    }
}

#[test]
fn a_read_takes_overhead_seek_rotation_and_transfer() {
    let mut device = device("read-overhead = \"0.3 ms\"", 0);
    // Track 1 begins at 10 of 100 blocks: the head switch ends at 1.1 ms, the first block begins at 11 ms of 10 ms a
    // turn; 0.1 ms later it has passed, and its last hundredth of a millisecond is on the interface.
    let taken = complete(device.as_mut(), Request::new(0, Op::Read, 100, 1));
    assert_eq!(taken, Nanos::from_micros(11_110));
}

#[test]
fn an_old_request_is_served_while_a_stream_goes_on() {
    for write in [false, true] {
        let mut device = device("write-cache = true\nage-bound = \"100 ms\"\nlongest-pass = \"50 ms\"", 0);
        let op = if write { Op::Write } else { Op::Read };
        let (mut completed, mut next, mut lone) = (Vec::new(), 0, None);
        while lone.is_none() {
            while device.outstanding() < 24 {
                // The second request is far away from the stream.
                let (op, lba) = if next == 1 { (Op::Read, 40_000) } else { (op, next * 64 % 32_768) };
                device.submit(Request::new(next, op, lba, 64));
                next += 1;
            }
            let event = device.next_event().unwrap();
            device.step(event, &mut completed);
            lone = completed.drain(..).find(|completion| completion.id.0 == 1);
            assert!(device.now() < Nanos::from_millis(400), "it waits for ever");
        }
    }
}

#[test]
fn a_flush_waits_for_what_came_before_it_and_not_for_what_comes_after() {
    let mut device = device("write-cache = true", 0);
    let mut stream = RandomStream::new(1, "streaming", "flush");
    let mut completed = Vec::new();
    for id in 0..20 {
        device.submit(Request::new(id, Op::Write, stream.below(50_000), 8));
    }
    device.submit(Request::new(20, Op::Flush, 0, 0));
    let mut id = 21;
    while !completed.iter().any(|completion: &Completion| completion.id.0 == 20) {
        while device.outstanding() < 30 {
            device.submit(Request::new(id, Op::Write, stream.below(50_000), 8));
            id += 1;
        }
        let event = device.next_event().unwrap();
        device.step(event, &mut completed);
    }
    assert!(counter(device.as_ref(), "blocks-written") >= 20 * 8);
    assert!(device.now() > Nanos::from_millis(50), "twenty places take the arm longer than {}", device.now());
    assert!(device.now() < Nanos::from_secs(2), "{}", device.now());
}

/// Requests without a pause, so many at a time.
struct Endless {
    device: Box<dyn DeviceModel>,
    depth: u32,
    next: u64,
    request: fn(u64, &mut RandomStream) -> (Op, u64, u32),
    random: RandomStream,
    completed: Vec<Completion>,
}

/// The number of the request beside them.
const BESIDE: u64 = 1 << 40;

/// Writes of 64 blocks, one behind the other.
fn stream(number: u64, _: &mut RandomStream) -> (Op, u64, u32) {
    (Op::Write, number * 64 % 32_768, 64)
}

fn random_writes(_: u64, random: &mut RandomStream) -> (Op, u64, u32) {
    (Op::Write, random.below(30_000), 8)
}

fn mixed(number: u64, random: &mut RandomStream) -> (Op, u64, u32) {
    match number % 3 {
        0 => stream(number / 3, random),
        1 => random_writes(number, random),
        _ => (Op::Read, random.below(30_000), 8),
    }
}

impl Endless {
    fn new(depth: u32, request: fn(u64, &mut RandomStream) -> (Op, u64, u32)) -> Endless {
        let device = device("write-cache = true\nage-bound = \"200 ms\"", 0);
        let random = RandomStream::new(1, "streaming", "endless");
        let mut endless = Endless { device, depth, next: 0, request, random, completed: Vec::new() };
        while endless.device.now() < Nanos::from_millis(500) {
            endless.go_on();
        }
        endless
    }

    fn go_on(&mut self) {
        while self.device.outstanding() < self.depth {
            let (op, lba, sectors) = (self.request)(self.next, &mut self.random);
            self.device.submit(Request::new(self.next, op, lba, sectors));
            self.next += 1;
        }
        let event = self.device.next_event().unwrap();
        self.device.step(event, &mut self.completed);
    }

    /// How long a request takes beside them; it is not waited for longer than two seconds.
    fn beside(&mut self, request: Request) -> Nanos {
        let arrived = self.device.now();
        self.device.submit(Request { id: RequestId(BESIDE), ..request });
        self.depth += 1;
        while self.device.now() - arrived < Nanos::from_secs(2) {
            self.go_on();
            if self.completed.drain(..).any(|completion| completion.id.0 == BESIDE) {
                break;
            }
        }
        self.depth -= 1;
        self.device.now() - arrived
    }
}

#[test]
fn a_flush_is_bounded_beside_requests_that_never_pause() {
    // The buffer: 512 blocks take 60 ms, and 64 places 11 ms each.
    for (request, drain) in [(stream as fn(u64, &mut _) -> _, 60), (random_writes, 700), (mixed, 700)] {
        for depth in [1, 4, 24] {
            let mut endless = Endless::new(depth, request);
            for number in 0..4 {
                // Where the others do not come, as in the commit of a journal.
                let lba = 40_000 + number * 1_000;
                let written = endless.beside(Request::new(0, Op::Write, lba, 8));
                assert!(written < Nanos::from_millis(1_200), "depth {depth}: a write takes {written}");
                let flushed = endless.beside(Request::new(0, Op::Flush, 0, 0));
                // Requests that came before it, and the age bound for those that come after it.
                let before = u64::from(depth) * if drain == 60 { 7 } else { 11 };
                let bound = Nanos::from_millis(drain + before + 200 + 50);
                assert!(flushed < bound, "depth {depth}: a flush takes {flushed}, bound {bound}");
            }
        }
    }
}

#[test]
fn a_flush_beside_a_stream_does_not_wait_for_its_age() {
    let mut endless = Endless::new(1, stream);
    for number in 0..8 {
        endless.beside(Request::new(0, Op::Write, 40_000 + number * 1_000, 8));
        let flushed = endless.beside(Request::new(0, Op::Flush, 0, 0));
        assert!(flushed < Nanos::from_millis(120), "the buffer and two seeks take less than {flushed}");
    }
}

#[test]
fn a_forced_write_is_bounded_beside_requests_that_never_pause() {
    for request in [stream as fn(u64, &mut _) -> _, random_writes, mixed] {
        for depth in [1, 4, 24] {
            let mut endless = Endless::new(depth, request);
            for number in 0..4 {
                let lba = 40_000 + number * 1_000;
                let written = endless.beside(Request { fua: true, ..Request::new(0, Op::Write, lba, 8) });
                let bound = Nanos::from_millis(200 + 700 + 11 * u64::from(depth));
                assert!(written < bound, "depth {depth}: {written}, bound {bound}");
            }
        }
    }
}

#[test]
fn an_access_without_order_takes_a_turn_and_the_platter_goes_on_from_there() {
    // Track 0 is under the head at its block 2, as the overhead lasts 0.2 ms and the turn 10 ms.
    let mut device = device("immediate-read = true\nread-overhead = \"0.2 ms\"", 0);
    let first = complete(device.as_mut(), Request::new(0, Op::Read, 0, 50));
    // A turn, and the blocks from 2 on cross the interface, 0.01 ms each, after the last of those before has passed.
    assert_eq!(first, Nanos::from_micros(200 + 10_000 + 480));
    // The head is at block 2: block 50 comes 4.8 ms later, half of a turn before 100 blocks have passed.
    let second = complete(device.as_mut(), Request::new(1, Op::Read, 50, 10));
    assert_eq!(second, Nanos::from_micros(4_800 + 1_000 - 480 + 10));
}

#[test]
fn writes_that_continue_each_other_are_one_pass() {
    let mut device = device("write-cache = true", 0);
    let mut completed = Vec::new();
    for id in 0..16 {
        device.submit(Request::new(id, Op::Write, id * 6, 6));
    }
    device.submit(Request::new(16, Op::Flush, 0, 0));
    while device.outstanding() > 0 {
        let event = device.next_event().unwrap();
        device.step(event, &mut completed);
    }
    assert!(device.now() <= Nanos::from_millis(21), "a turn to the beginning and a turn over it: {}", device.now());
}

#[test]
fn a_stream_leaves_ranges_of_the_buffer_to_others() {
    let mut device = build("nearline-20tb", 1);
    let loops = [
        half(device.as_ref(), false, Pattern::Sequential, Ops::Write, 128 << 10, 32),
        half(device.as_ref(), true, Pattern::Random, Ops::Write, 4 << 10, 1),
    ];
    for (it, name) in measure_together(device.as_mut(), &loops, Nanos::from_secs(6), 1).iter().zip(["stream", "beside"])
    {
        assert!(
            it.longest_wait <= Nanos::from_millis(600),
            "{name} waits {}: its age bound is 500 ms",
            it.longest_wait
        );
    }
}

/// A loop over the first or the second half of a drive.
fn half(device: &dyn DeviceModel, second: bool, pattern: Pattern, ops: Ops, bytes: u32, depth: u32) -> Loop {
    let sectors = device.info().capacity_sectors / 2 / 4_096 * 4_096;
    Loop { pattern, ops, bytes, depth, first_sector: if second { sectors } else { 0 }, sectors }
}

#[test]
fn two_streams_share_the_arm_and_seek_seldom() {
    for (name, least) in
        [("nearline-20tb", 60_000_000), ("cheetah-9lp", 6_000_000), ("hitachi-hds721010kla330", 25_000_000)]
    {
        for (ops, depth) in [(Ops::Read, 1), (Ops::Read, 4), (Ops::Write, 1), (Ops::Write, 4)] {
            let mut device = build(name, 1);
            let loops =
                [false, true].map(|second| half(device.as_ref(), second, Pattern::Sequential, ops, 128 << 10, depth));
            let measured = measure_together(device.as_mut(), &loops, Nanos::from_secs(4), 1);
            let [one, two] = [0, 1].map(|index| measured[index].bytes_per_second);
            assert!(one + two >= least, "{name}, {ops:?} at depth {depth}: {one} and {two} B/s");
            assert!(one <= 2 * two && two <= 2 * one, "{name}, {ops:?} at depth {depth}: {one} and {two} B/s");
        }
    }
}

#[test]
fn nobody_starves_beside_a_stream() {
    let time = Nanos::from_secs(6);
    for name in ["nearline-20tb", "cheetah-9lp", "barracuda", "cheetah-x15"] {
        for (stream, other) in
            [(Ops::Read, Ops::Read), (Ops::Read, Ops::Write), (Ops::Write, Ops::Read), (Ops::Write, Ops::Write)]
        {
            for (depth, beside) in [(1, 1), (4, 8), (32, 1)] {
                let mut device = build(name, 1);
                let loops = [
                    half(device.as_ref(), false, Pattern::Sequential, stream, 128 << 10, depth),
                    half(device.as_ref(), true, Pattern::Random, other, 4 << 10, beside),
                ];
                let measured = measure_together(device.as_mut(), &loops, time, 1);
                let done: u64 = measured.iter().map(|it| it.requests_per_kilosecond * 6 / 1_000).sum();
                let each = time.as_nanos() / done.max(1);
                // A write refused by a full buffer waits for as many passes as there are ranges before it.
                let bound = Nanos::from_millis(1_500) + Nanos::from_nanos(4 * u64::from(depth + beside) * each);
                for (it, what) in measured.iter().zip(["stream", "beside"]) {
                    let case = format!("{name}, {stream:?} at {depth} beside {other:?} at {beside}, {what}: {it:?}");
                    assert!(it.longest_wait <= bound, "{case}, bound {bound}");
                    assert!(it.requests_per_kilosecond >= 1_000, "{case}");
                }
            }
        }
    }
}

const OVERHEADS: &str = "write-cache = true\nread-hit-after-read = \"0.1 ms\"\nread-hit-after-write = \"0.2 ms\"\n\
    read-miss-after-read = \"0.3 ms\"\nread-miss-after-write = \"0.4 ms\"\nwrite-after-read = \"0.5 ms\"\n\
    write-after-write = \"0.6 ms\"\nread-completion = \"0.02 ms\"\nwrite-completion = \"0.03 ms\"";

#[test]
fn a_commands_overhead_depends_on_the_one_before() {
    let mut device = device(OVERHEADS, 0);
    // A block takes 0.01 ms on the interface. The arm comes to the first one after 10 ms.
    let mut taken = |op, block| complete(device.as_mut(), Request::new(0, op, block, 1));
    assert_eq!(taken(Op::Write, 0), Nanos::from_micros(540));
    assert_eq!(taken(Op::Write, 60), Nanos::from_micros(640));
    assert_eq!(taken(Op::Read, 60), Nanos::from_micros(230));
    assert_eq!(taken(Op::Read, 60), Nanos::from_micros(130));
    assert_eq!(taken(Op::Write, 30), Nanos::from_micros(540));
}

#[test]
fn a_missed_reads_overhead_delays_the_arm() {
    let far = Request::new(0, Op::Read, 20_000, 1);
    let late = OVERHEADS.replace("read-miss-after-write = \"0.4 ms\"", "read-miss-after-write = \"20.4 ms\"");
    // The arm writes until 10.1 ms.
    for (write_first, turn) in [(false, Nanos::ZERO), (true, Nanos::from_millis(10))] {
        let [soon, later] = [OVERHEADS, &late].map(|overheads| {
            let mut device = device(overheads, 0);
            if write_first {
                complete(device.as_mut(), Request::new(0, Op::Write, 0, 1));
            }
            complete(device.as_mut(), far)
        });
        assert_eq!(later - soon, turn);
    }
}

#[test]
fn the_slower_of_interface_and_host_bus_counts() {
    let bus = "write-cache = true\nhost-bus = { read-block = \"0.2 ms\", write-block = \"0.3 ms\", connected = true }";
    let taken = |bus, op| complete(device(bus, 0).as_mut(), Request::new(0, op, 100, 4));
    // The first block begins to pass after 1 ms; 0.1 ms each on the medium.
    assert_eq!(taken("write-cache = true", Op::Read), Nanos::from_micros(1_000 + 4 * 100 + 10));
    // The first block crosses once it has passed.
    assert_eq!(taken(bus, Op::Read), Nanos::from_micros(1_000 + 100 + 4 * 200));
    assert_eq!(taken("write-cache = true", Op::Write), Nanos::from_micros(4 * 10));
    assert_eq!(taken(bus, Op::Write), Nanos::from_micros(4 * 300));
    let fast = "write-cache = true\nhost-bus = { read-block = \"0.001 ms\", connected = true }";
    assert_eq!(taken(fast, Op::Write), taken("write-cache = true", Op::Write));
}

#[test]
fn the_arm_leaves_for_a_write_as_its_data_begin_to_cross() {
    let taken = |text: &str| complete(device(text, 0).as_mut(), Request::new(0, Op::Write, 110, 50));
    // The arm is on track 1 after 0.8 ms, and the first block begins to pass after 2 ms; the data take 2.5 ms.
    let bus = "host-bus = { write-block = \"0.05 ms\", connected = true }";
    assert_eq!(taken(bus), Nanos::from_millis(12 + 5));
    assert_eq!(taken(&format!("preseek = true\n{bus}")), Nanos::from_millis(2 + 5));
    // The last data come after 10 ms, and their block passes after 6.9 ms: a turn later.
    let bus = "host-bus = { write-block = \"0.2 ms\", connected = true }";
    assert_eq!(taken(&format!("preseek = true\n{bus}")), Nanos::from_millis(12 + 5));
}

#[test]
fn a_write_that_does_not_continue_the_one_before_crosses_later() {
    let mut device =
        device("write-cache = true\nextra-write-disconnect = { overhead = \"0 ms\", data-delay = \"0.3 ms\" }", 0);
    let mut taken = |op, block| complete(device.as_mut(), Request::new(0, op, block, 1));
    assert_eq!(taken(Op::Write, 60), Nanos::from_micros(10));
    assert_eq!(taken(Op::Write, 61), Nanos::from_micros(10));
    assert_eq!(taken(Op::Write, 70), Nanos::from_micros(310));
    assert_eq!(taken(Op::Read, 70), Nanos::from_micros(10));
    assert_eq!(taken(Op::Write, 80), Nanos::from_micros(10));
}

#[test]
fn a_write_with_the_extra_disconnection_has_overheads_of_its_own() {
    let text = "preseek = true\nwrite-overhead = \"0.2 ms\"\nwrite-completion = \"0.1 ms\"\n\
                extra-write-disconnect = { overhead = \"3 ms\", data-delay = \"1 ms\", completion = \"0.5 ms\" }";
    let mut device = device(text, 0);
    let mut taken = |op, block| {
        let taken = complete(device.as_mut(), Request::new(0, op, block, 1));
        let next_turn = Nanos::from_nanos(device.now().as_nanos().next_multiple_of(10_000_000));
        device.step(next_turn, &mut Vec::new());
        taken
    };
    // The block passes from 6 ms of a turn on, and takes 0.1 ms.
    assert_eq!(taken(Op::Write, 60), Nanos::from_micros(6_000 + 100 + 100));
    assert_eq!(taken(Op::Write, 61), Nanos::from_micros(6_100 + 100 + 100));
    assert_eq!(taken(Op::Write, 60), Nanos::from_micros(6_000 + 100 + 500));
    // The data are in the buffer 4.01 ms after the command: too late for the block that passes at 4 ms.
    assert_eq!(taken(Op::Write, 40), Nanos::from_micros(14_000 + 100 + 500));
    assert_eq!(taken(Op::Write, 41), Nanos::from_micros(4_100 + 100 + 100));
}

#[test]
fn a_write_that_goes_on_without_a_gap_needs_no_seek() {
    let text = "minimum-write-seek = \"2 ms\"";
    let taken = |text: &str, block| complete(device(text, 0).as_mut(), Request::new(0, Op::Write, block, 60));
    assert_eq!(taken("", 10), Nanos::from_micros(1_000 + 6_000));
    assert_eq!(taken(text, 10), Nanos::from_micros(11_000 + 6_000));
    assert_eq!(taken(text, 30), Nanos::from_micros(3_000 + 6_000));
    // A run that fills the rest of a track, and the one on the next track, which the skew leaves 1 ms for.
    let mut two = device("minimum-write-seek = \"0.9 ms\"", 0);
    assert_eq!(complete(two.as_mut(), Request::new(0, Op::Write, 50, 60)), Nanos::from_micros(12_000));
}

#[test]
fn a_read_crosses_from_its_water_mark_on() {
    let taken = |text: &str| {
        let bus = "host-bus = { read-block = \"0.2 ms\", connected = true }";
        complete(device(&format!("{text}\n{bus}"), 0).as_mut(), Request::new(0, Op::Read, 100, 40))
    };
    assert_eq!(taken(""), Nanos::from_micros(1_000 + 100 + 8_000));
    assert_eq!(taken("read-water-mark = 0.5"), Nanos::from_millis(1 + 2 + 8));
    assert_eq!(taken("read-water-mark = 0.5\nreselect = \"0.1 ms\""), Nanos::from_micros(11_100));
    assert_eq!(taken("read-water-mark = 1"), taken("store-and-forward = true"));
}

#[test]
fn the_host_bus_counts_only_where_it_is_asked_for() {
    let bus = "host-bus = { read-block = \"0.2 ms\" }";
    let taken = |profile: &Profile, host_bus| {
        let options = BuildOptions { host_bus, ..BuildOptions::default() };
        complete(profile.build(&options).unwrap().as_mut(), Request::new(0, Op::Read, 100, 4))
    };
    let [with, without] = [bus, ""].map(|text| Profile::parse(&small(text), "small").unwrap());
    assert!(with.has_host_bus() && !without.has_host_bus());
    assert_eq!(taken(&with, false), taken(&without, true));
    assert_eq!(taken(&with, true) - taken(&with, false), Nanos::from_micros(4 * 200 + 100 - 410));
}

#[test]
fn a_slow_bus_goes_on_while_the_arm_changes_tracks() {
    let bus = "host-bus = { read-block = \"0.2 ms\", connected = true }";
    // Block 90 begins to pass after 9 ms. The rest is on track 1 from 11 ms on, and passes while the bus is busy.
    let taken = complete(device(bus, 0).as_mut(), Request::new(0, Op::Read, 90, 40));
    assert_eq!(taken, Nanos::from_micros(9_000 + 100 + 40 * 200));
    // The bus waits for the second track's first block.
    let taken = complete(device(bus, 0).as_mut(), Request::new(0, Op::Read, 98, 10));
    assert_eq!(taken, Nanos::from_micros(11_000 + 8 * 200));
}

#[test]
fn a_write_makes_the_buffer_forget_what_it_overlaps() {
    let hits = |write: Request| {
        let mut device = device("write-cache = true", 0);
        let mut completed = Vec::new();
        complete(device.as_mut(), Request::new(0, Op::Read, 100, 1));
        device.step(device.now() + Nanos::from_secs(1), &mut completed);
        complete(device.as_mut(), write);
        device.step(device.now() + Nanos::from_secs(1), &mut completed);
        // Behind the write, before it, and itself.
        [180, 110, 150].map(|block| {
            let before = counter(device.as_ref(), "buffer-hits");
            complete(device.as_mut(), Request::new(0, Op::Read, block, 1));
            device.step(device.now() + Nanos::from_secs(1), &mut completed);
            counter(device.as_ref(), "buffer-hits") > before
        })
    };
    assert_eq!(hits(Request::new(0, Op::Write, 5_000, 8)), [true; 3]);
    assert_eq!(hits(Request::new(0, Op::Write, 150, 8)), [false, false, true], "read on from block 110");
}

#[test]
fn blocks_that_pass_before_the_wanted_one_are_kept() {
    let hits = |text: &str| {
        let mut device = device(text, 0);
        complete(device.as_mut(), Request::new(0, Op::Read, 150, 1));
        let before = counter(device.as_ref(), "buffer-hits");
        // The arm is on track 1 after 0.8 ms; block 100 passes at 1 ms, and 150 at 6 ms.
        complete(device.as_mut(), Request::new(0, Op::Read, 100, 50));
        counter(device.as_ref(), "buffer-hits") - before
    };
    assert_eq!((hits(""), hits("read-free-blocks = true")), (0, 1));
    let taken = |text: &str| complete(device(text, 0).as_mut(), Request::new(0, Op::Read, 150, 1));
    assert_eq!(taken(""), taken("read-free-blocks = true"));
}

#[test]
fn reading_on_ends_where_the_profile_says() {
    let hits = |text: &str| {
        let mut device = device(text, 0);
        let mut completed = Vec::new();
        for block in [150, 199, 250] {
            complete(device.as_mut(), Request::new(0, Op::Read, block, 1));
            device.step(device.now() + Nanos::from_secs(1), &mut completed);
        }
        counter(device.as_ref(), "buffer-hits")
    };
    // A track has 100 blocks, and the read-ahead is 128.
    assert_eq!(hits(""), 2);
    assert_eq!(hits("read-ahead-to = \"track-end\""), 1);
    assert_eq!(hits("read-ahead-to = \"track-end-or-next\""), 2);
}

/// Completion instants of requests that come together, by their numbers.
fn together(device: &mut dyn DeviceModel, requests: &[Request]) -> Vec<Nanos> {
    requests.iter().for_each(|&request| device.submit(request));
    let mut completed = Vec::new();
    while completed.len() < requests.len() {
        device.step(Nanos::MAX, &mut completed);
    }
    completed.sort_by_key(|completion: &Completion| completion.id.0);
    completed.iter().map(|completion| completion.at).collect()
}

#[test]
fn in_order_of_arrival_a_read_waits_for_the_writes_before_it() {
    let far = |id, op, block| Request::new(id, op, block, 8);
    let load = [far(0, Op::Write, 40_000), far(1, Op::Read, 100), far(2, Op::Write, 20_000), far(3, Op::Read, 200)];
    let fcfs = together(device("scheduler = \"fcfs\"\nwrite-cache = true", 0).as_mut(), &load);
    let sptf = together(device("write-cache = true", 0).as_mut(), &load);
    // Writes complete in the buffer with either; behind them, a read on the first track waits for the arm's way to
    // block 40,000 and back, or does not.
    assert!(fcfs[0] < Nanos::from_millis(1) && sptf[0] < Nanos::from_millis(1), "{fcfs:?} {sptf:?}");
    assert!(sptf[1] < Nanos::from_millis(25) && fcfs[1] > sptf[1] + Nanos::from_millis(10), "{fcfs:?} {sptf:?}");
    // Between the reads comes the second write.
    assert!(fcfs[3] > fcfs[1] + Nanos::from_millis(10), "{fcfs:?}");
}

#[test]
fn an_elevator_goes_one_way_and_then_the_other() {
    let order = |scheduler: &str| {
        let mut device = device(&format!("scheduler = \"{scheduler}\""), 0);
        // The first one takes the arm to the middle while the others arrive.
        let blocks = [20_000, 19_000, 45_000, 22_000, 5_000];
        let load: Vec<_> = (0..5).map(|id| Request::new(id, Op::Read, blocks[id as usize], 8)).collect();
        let done = together(device.as_mut(), &load);
        let mut ids: Vec<usize> = (0..5).collect();
        ids.sort_by_key(|&id| done[id]);
        ids
    };
    assert_eq!(order("fcfs"), [0, 1, 2, 3, 4]);
    assert_eq!(order("sstf"), [0, 1, 3, 4, 2]);
    assert_eq!(order("look"), [0, 3, 2, 1, 4]);
    assert_eq!(order("c-look"), [0, 3, 2, 4, 1]);
}

#[test]
fn a_read_finds_the_blocks_of_a_write_where_the_profile_says() {
    let taken = |keys: &str| {
        let mut device = device(&format!("write-overhead = \"0.1 ms\"\n{keys}"), 0);
        complete(device.as_mut(), Request::new(0, Op::Write, 20_000, 16));
        complete(device.as_mut(), Request::new(1, Op::Write, 20_016, 16));
        complete(device.as_mut(), Request::new(2, Op::Read, 20_008, 16))
    };
    // From the buffer: 16 blocks of 10 us on the interface.
    assert_eq!(taken("read-hits-on-write-data = true"), Nanos::from_micros(160));
    assert!(taken("") > Nanos::from_millis(1));
}
