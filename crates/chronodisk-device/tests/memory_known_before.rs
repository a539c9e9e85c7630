//! A device's memory never exceeds its profile's bound.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_sim::{Nanos, Op, RandomStream, Request};
use proptest::prelude::*;

/// Counts the present thread's unreleased allocations.
struct Counting;

thread_local! {
    static IN_USE_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that is ending has no counter any more.
    let _ = IN_USE_BYTES.try_with(|in_use| in_use.set(in_use.get() + bytes));
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is ours.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is ours.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is ours.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Grown queues after concurrent requests, in addition to the bound.
const UNDER_WAY_BYTES: u64 = 64 << 10;

fn assert_within([built, worked, said]: [u64; 3], what: &str) {
    let within = built <= said && worked <= said + UNDER_WAY_BYTES;
    assert!(within, "{what}: {built} B built, {worked} B after work, {said} B said");
}

/// Memory of profile and device, after building and after some work, and its bound.
fn measure(text: &str, capacity_bytes: Option<u64>) -> [u64; 3] {
    let in_use = || IN_USE_BYTES.with(Cell::get);
    let before = in_use();
    let profile = Profile::parse(text, "test").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = BuildOptions { capacity_bytes, seed: 1, ..BuildOptions::default() };
    let said = profile.memory_bytes_max(&options).unwrap();
    let mut device = profile.build(&options).unwrap();
    let built = (in_use() - before) as u64;
    let mut random = RandomStream::new(1, "test", "lbas");
    let block = u64::from(device.info().logical_block_bytes) / 512;
    let blocks = device.info().capacity_sectors / block;
    let zoned = device.info().zones.is_some();
    let mut completed = Vec::new();
    for id in 0..300 {
        let len = block * (1 + random.below(4)).min(blocks);
        let lba = random.below(blocks - len / block + 1) * block;
        let op = if zoned || id % 8 == 0 { Op::Read } else { Op::Write };
        device.submit(Request::new(id, op, lba, len as u32));
        while device.outstanding() >= 4 {
            device.step(Nanos::MAX, &mut completed);
        }
        completed.clear();
    }
    while device.outstanding() > 0 {
        device.step(Nanos::MAX, &mut completed);
    }
    drop(completed);
    [built, (in_use() - before) as u64, said]
}

#[test]
fn no_builtin_profile_takes_more_than_it_says() {
    for builtin in Profile::builtin() {
        let profile = Profile::find(&builtin.name).unwrap();
        // Big tables are a matter of arithmetic, and too slow for this test.
        if profile.memory_bytes_max(&BuildOptions::default()).unwrap() > 1 << 30 {
            continue;
        }
        assert_within(measure(profile.text(), None), profile.name());
    }
}

/// Names a flash drive by its geometry.
#[derive(Clone, Debug)]
struct Flash {
    channels: u32,
    chips: u32,
    planes: u32,
    blocks: u32,
    pages: u32,
    unit_kib: u32,
    percent: u64,
    translation: &'static str,
    extra: String,
}

impl Flash {
    fn profile(&self) -> (String, u64) {
        let Flash { channels, chips, planes, blocks, pages, unit_kib, percent, translation, extra } = self;
        let raw_kib = u64::from(channels * chips * planes * blocks * pages) * 16;
        let capacity = raw_kib * percent / 100 / 64 * 64;
        let text = format!(
            r#"
name = "flash"
kind = "ssd"
description = "x"
source = "x"
validation = "unvalidated"
capacity = "{capacity} KiB"
unwritten-read = "zeros"
[flash]
channels = {channels}
chips-per-channel = {chips}
dies-per-chip = 1
planes-per-die = {planes}
blocks-per-plane = {blocks}
pages-per-block = {pages}
page-size = "16 KiB"
mapping-unit = "{unit_kib} KiB"
cells = "SLC"
read = ["50 us"]
program = ["300 us"]
erase = "3 ms"
[bus]
rate = "400 MB/s"
[front]
interface = "nvme"
queue-depth = 64
link-rate = "2 GB/s"
[buffer]
size = "16 MiB"
{extra}
[translation]
{translation}
"#
        );
        (text, capacity)
    }
}

/// The 767 bytes that took 8.7 GB: a drive of 4 TB in units of 4 KiB.
#[test]
fn a_large_drive_is_known_to_be_large_before_it_is_built() {
    let translation = "allocation = \"dynamic\"\ncollector = \"greedy\"\ncollect-below = 8";
    let flash = Flash {
        channels: 8,
        chips: 8,
        planes: 4,
        blocks: 1_000,
        pages: 1_000,
        unit_kib: 4,
        percent: 90,
        translation,
        extra: String::new(),
    };
    let profile = Profile::parse(&flash.profile().0, "test").unwrap();
    let said = profile.memory_bytes_max(&BuildOptions::default()).unwrap();
    assert!((7 << 30..10 << 30).contains(&said), "{said}");
    let small = BuildOptions { capacity_bytes: Some(1 << 30), seed: 0, ..BuildOptions::default() };
    assert!(profile.memory_bytes_max(&small).unwrap() < said);
}

#[test]
fn members_of_members_add_up_without_being_built() {
    let drive = Profile::find("first-disk").unwrap();
    let one = drive.memory_bytes_max(&BuildOptions::default()).unwrap();
    // A row of rows: 65,536 drives that would take minutes to build.
    let row = drive.reaching(drive.capacity_bytes() * chronodisk_device::MOST_IN_A_ROW).unwrap();
    let said = row.memory_bytes_max(&BuildOptions::default()).unwrap();
    assert!(said >= (one - 16 * drive.text().len() as u64) * 65_536, "{said} for 65,536 times {one}");
}

#[test]
fn every_kind_at_its_largest() {
    let head = |kind: &str| {
        format!("name = \"x\"\nkind = \"{kind}\"\ndescription = \"x\"\nsource = \"x\"\nvalidation = \"unvalidated\"\n")
    };
    let memory = format!(
        "{}capacity = \"1 GiB\"\nunits = 4096\ninterleave = \"512 B\"\nread-overhead = \"1 us\"\nread-latency = \"1 us\"\n\
         unit-read-bandwidth = \"1 GB/s\"\nlink-read-bandwidth = \"1 GB/s\"\nwrite-overhead = \"1 us\"\n\
         write-latency = \"1 us\"\nunit-write-bandwidth = \"1 GB/s\"\nlink-write-bandwidth = \"1 GB/s\"\n",
        head("memory")
    );
    let channels = format!("{}capacity = \"1 GiB\"\ntime = \"1 us\"\nchannels = 65536\n", head("constant"));
    let array = |level: &str| format!("{}level = \"{level}\"\nmember = \"first-disk\"\ncount = 64\n", head("array"));
    let eager = format!(
        "{}member = \"cheetah-x15\"\nlogical-block = \"512 B\"\ncapacity = \"64 MiB\"\n",
        head("eager-writing")
    );
    for text in [memory, channels, array("linear"), array("raid1"), array("raid6"), eager] {
        assert_within(measure(&text, None), &text);
    }
}

fn flash() -> impl Strategy<Value = Flash> {
    const TRANSLATIONS: [&str; 5] = [
        "allocation = \"dynamic\"\ncollector = \"greedy\"\ncollect-below = 8",
        "allocation = \"CWDP\"\ncollector = \"fifo\"\ncollect-below = 4",
        "allocation = \"dynamic\"\ncollector = \"choices\"\ncollect-below = 4\nmapping-cache-entries = 1024",
        "allocation = \"log-block\"\nopen-logs = 4\ncollect-below = 8",
        "allocation = \"dynamic\"\ncollector = \"cost-benefit\"\ncollect-below = 4\nlevel-wear-at-difference = 8",
    ];
    let extras = ["", "release = \"in-order\"", "[read-ahead]\nsize = \"1 MiB\"\nstreams = 64"];
    (
        (1u32..9, 1u32..9, 1u32..5, 32u32..200, 1u32..65),
        (0u32..3, 30u64..60, 0usize..TRANSLATIONS.len(), 0usize..extras.len()),
    )
        .prop_map(move |((channels, chips, planes, blocks, pages), (unit, percent, translation, extra))| Flash {
            channels,
            chips,
            planes,
            blocks,
            pages,
            unit_kib: 4 << unit,
            percent,
            translation: TRANSLATIONS[translation],
            extra: extras[extra].to_owned(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The tolerance: the bound is at most four times the built size, and 4 MiB.
    #[test]
    fn no_flash_drive_takes_more_than_it_says(flash in flash()) {
        let (text, _) = flash.profile();
        // Not every geometry has room for every translation layer.
        prop_assume!(Profile::parse(&text, "test").is_ok());
        let measured = measure(&text, None);
        assert_within(measured, &text);
        let [built, _, said] = measured;
        prop_assert!(said <= 4 * built + (4 << 20), "{built} B built, {said} B said");
    }
}
