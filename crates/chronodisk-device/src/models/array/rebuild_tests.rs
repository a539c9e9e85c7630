//! Rebuilds onto spares: the contract beside other requests, closed forms, losses during a rebuild, and locking.

use std::sync::{Arc, Mutex};

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId, SECTOR_BYTES, Status};
use proptest::prelude::*;

use super::balance::{Balance, ReadPolicy};
use super::jobs::BlockSize;
use super::layout::{CopyLayout, Layout, MemberSet, ParityLayout};
use super::policy::Array;
use super::rebuild::Pace;
use super::tests::text;
use crate::composite::{Composite, Members};
use crate::models::testing::build_text;
use crate::quantity::Rate;
use crate::{DeviceInfo, DeviceModel, Profile, advance, contract, probed};

/// Members to carry in a profile: name, built-in profile, capacity, faults.
type Carried<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

/// A profile of an array with these keys and members.
fn array(keys: &str, members: &[Carried<'_>]) -> String {
    let mut all = text(keys);
    for &(name, of, capacity, faults) in members.iter().filter(|member| keys.contains(&format!("\"{}\"", member.0))) {
        let whole = Profile::find(of).expect("a built-in profile").text().to_owned();
        let line = |line: &str| if line.starts_with("capacity = ") { capacity_key(capacity) } else { line.to_owned() };
        let small: Vec<String> = whole.lines().map(line).collect();
        let profile = Profile::parse(&small.join("\n"), "small").expect("a smaller capacity fits");
        let faulty = faults.iter().fold(profile, |profile, fault| profile.with_fault(fault).expect("a fault"));
        all += &format!("[[member-profile]]\nname = \"{name}\"\nprofile = '''\n{}\n'''\n", faulty.text());
    }
    all
}

fn capacity_key(capacity: &str) -> String {
    format!("capacity = \"{capacity}\"")
}

fn statistic(device: &dyn DeviceModel, name: &str) -> f64 {
    let all = probed(|sink| device.probe(sink));
    all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}: {all:?}")).1
}

fn statistics<const COUNT: usize>(device: &dyn DeviceModel, names: [&str; COUNT]) -> [f64; COUNT] {
    names.map(|name| statistic(device, name))
}

/// Rebuilds done, rebuilds given up, dropped spares, lost members.
fn outcome(device: &dyn DeviceModel) -> [f64; 4] {
    statistics(device, ["rebuilds", "rebuilds-given-up", "dropped-spares", "lost-members [members]"])
}

fn done_at(device: &dyn DeviceModel) -> f64 {
    statistic(device, "last-rebuild-done [s]")
}

/// The device at this instant, with nothing outstanding.
fn idle_until(device: &mut dyn DeviceModel, until: Nanos) {
    advance(device, until, &mut Vec::new());
}

/// Serves a request: the response time, and the status.
fn serve(device: &mut dyn DeviceModel, op: Op, lba: u64, sectors: u32) -> (Nanos, Status) {
    let (arrival, mut completed) = (device.now(), Vec::<Completion>::new());
    device.submit(Request::new(1, op, lba, sectors));
    while completed.is_empty() {
        device.step(Nanos::MAX, &mut completed);
    }
    (completed[0].at - arrival, completed[0].status)
}

const SMALL: Carried<'_> = ("small", "constant-1ms", "8 MiB", &[]);
const CACHED: Carried<'_> = ("cached", "cheetah-9lp", "6 MiB", &[]);

fn check(keys: &str, members: &[Carried<'_>]) {
    let text = array(keys, members);
    contract::check(keys, contract::cases(12), &|seed| build_text(&text, seed));
}

#[test]
fn contract_of_rebuilt_parity() {
    let sync = "sync-speed-max = \"400 MB/s\"\nsync-speed-min = \"20 MB/s\"\nsync-window = \"64 KiB\"";
    for level in ["level = \"raid5\"\nfailed = [1]", "level = \"raid4\"\nfailed = [3]\nfail-at = \"12 ms\""] {
        let keys =
            format!("{level}\nmember = \"cached\"\ncount = 4\nchunk = \"16 KiB\"\nspares = [\"cached\"]\n{sync}");
        check(&keys, &[CACHED]);
    }
    let keys = "level = \"raid6\"\nmember = \"small\"\ncount = 5\nchunk = \"64 KiB\"\nfailed = [0, 3]\n\
        spares = [\"small\", \"cached\"]\nbus-rate = \"80 MB/s\"\nbus-overhead = \"20 us\"\n";
    check(&format!("{keys}{sync}"), &[SMALL, ("cached", "cheetah-9lp", "8 MiB", &[])]);
}

#[test]
fn contract_of_rebuilt_copies() {
    let sync = "sync-speed-max = \"300 MB/s\"\nsync-speed-min = \"30 MB/s\"\nsync-window = \"64 KiB\"";
    for keys in [
        "level = \"raid1\"\ncount = 2\nfailed = [0]",
        "level = \"raid10\"\ncount = 3\nchunk = \"20 KiB\"\nfailed = [1]",
        "level = \"raid10\"\ncount = 4\nchunk = \"64 KiB\"\nlayout = \"far\"\nfailed = [2]\nfail-at = \"8 ms\"",
        "level = \"raid10\"\ncount = 3\nchunk = \"32 KiB\"\nlayout = \"offset\"\nfailed = [2]",
    ] {
        check(&format!("{keys}\nmember = \"cached\"\nspares = [\"cached\"]\n{sync}"), &[CACHED]);
    }
}

#[test]
fn contract_of_rebuilds_with_losses() {
    let dying: Carried<'_> = ("dying", "cheetah-9lp", "6 MiB", &["kind=death,after-requests=25"]);
    let worn: Carried<'_> = ("worn", "constant-1ms", "6 MiB", &["kind=transient,rate=0.02", "kind=death,at=40ms"]);
    let sync = "sync-speed-max = \"400 MB/s\"\nsync-speed-min = \"20 MB/s\"\nsync-window = \"64 KiB\"";
    for keys in [
        "level = \"raid5\"\nmembers = [\"dying\", \"cached\", \"cached\"]\nspares = [\"dying\", \"cached\"]",
        "level = \"raid6\"\nmembers = [\"cached\", \"dying\", \"worn\", \"cached\"]\nspares = [\"cached\", \"worn\"]",
        "level = \"raid5\"\nmembers = [\"worn\", \"dying\", \"cached\", \"cached\"]\nspares = [\"cached\"]",
    ] {
        check(&format!("{keys}\nchunk = \"32 KiB\"\n{sync}"), &[CACHED, dying, worn]);
    }
    for keys in [
        "level = \"raid1\"\nmembers = [\"dying\", \"worn\", \"cached\"]\nspares = [\"worn\", \"cached\"]",
        "level = \"raid10\"\nmembers = [\"dying\", \"cached\", \"cached\"]\nspares = [\"dying\", \"worn\"]",
    ] {
        check(&format!("{keys}\n{sync}"), &[CACHED, dying, worn]);
    }
}

#[test]
fn an_idle_array_is_rebuilt_at_the_most_speed() {
    let keys =
        "level = \"raid5\"\nmember = \"small\"\ncount = 4\nchunk = \"64 KiB\"\nfailed = [2]\nspares = [\"small\"]";
    // Eight windows begin a second apart; the last takes a read and a write.
    let slow = array(&format!("{keys}\nsync-speed-max = \"1 MiB/s\""), &[SMALL]);
    let mut device = build_text(&slow, 1);
    idle_until(device.as_mut(), Nanos::from_millis(3_500));
    assert_eq!(statistics(device.as_ref(), ["rebuilding-members [members]", "rebuilt [%]"]), [1.0, 50.0]);
    assert_eq!(outcome(device.as_ref()), [0.0, 0.0, 0.0, 1.0]);
    idle_until(device.as_mut(), Nanos::from_secs(20));
    assert_eq!(done_at(device.as_ref()), 7.002_000_001);
    assert_eq!(outcome(device.as_ref()), [1.0, 0.0, 0.0, 0.0]);
    assert_eq!(statistic(device.as_ref(), "rebuilt-bytes"), f64::from(8 << 20));
    // A window is read while the one before is written: nine times 1 ms.
    let mut device = build_text(&array(&format!("{keys}\nsync-speed-max = \"100 GB/s\""), &[SMALL]), 1);
    idle_until(device.as_mut(), Nanos::from_secs(1));
    assert_eq!(done_at(device.as_ref()), 0.009_000_001);
}

#[test]
fn a_used_array_is_rebuilt_at_the_least_speed() {
    let keys = "level = \"raid1\"\nmember = \"small\"\ncount = 2\nfailed = [0]\nfail-at = \"100 ms\"\n\
        spares = [\"small\"]\nsync-speed-max = \"100 MiB/s\"\nsync-speed-min = \"1 MiB/s\"";
    let mut device = build_text(&array(keys, &[SMALL]), 1);
    // A request every 100 ms until 3.2 s, of a range that is rebuilt last.
    for request in 0..32 {
        idle_until(device.as_mut(), Nanos::from_millis(100 * (request + 1)));
        assert_eq!(serve(device.as_mut(), Op::Write, 16_000, 8).1, Status::Ok);
    }
    // Windows began at 0.1, 1.1, 2.1 and 3.1 s.
    assert_eq!(statistic(device.as_ref(), "rebuilt [%]"), 50.0);
    idle_until(device.as_mut(), Nanos::from_secs(20));
    // The array counts as idle 500 ms after 3.201 s. Four windows at 10 ms follow.
    assert_eq!(done_at(device.as_ref()), 3.733);
    assert_eq!(outcome(device.as_ref()), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_rebuilt_array_survives_the_next_loss() {
    let dying = |name, at| -> (&str, &str, &str, [String; 1]) {
        (name, "constant-1ms", "8 MiB", [format!("kind=death,at={at}")])
    };
    let (first, second) = (dying("first", "1s"), dying("second", "30s"));
    let members = [
        SMALL,
        (first.0, first.1, first.2, &[first.3[0].as_str()][..]),
        (second.0, second.1, second.2, &[second.3[0].as_str()][..]),
    ];
    let all = "[\"small\", \"first\", \"second\", \"small\"]";
    for level in
        ["level = \"raid5\"\nchunk = \"64 KiB\"", "level = \"raid10\"\nlayout = \"offset\"\nchunk = \"64 KiB\""]
    {
        let keys = |spares: &str| format!("{level}\nmembers = {all}\n{spares}");
        let run = |spares: &str| {
            let mut device = build_text(&array(&keys(spares), &members), 1);
            let mut errors = 0;
            for second in [0, 2, 20, 31, 60, 61, 62] {
                idle_until(device.as_mut(), Nanos::from_secs(second));
                for lba in (0..8_192).step_by(256) {
                    errors += u32::from(serve(device.as_mut(), Op::Write, lba, 256).1 != Status::Ok);
                    errors += u32::from(serve(device.as_mut(), Op::Read, lba, 256).1 != Status::Ok);
                }
            }
            (errors, device)
        };
        let (errors, device) = run("spares = [\"small\"]");
        assert_eq!((errors, outcome(device.as_ref())), (0, [1.0, 0.0, 0.0, 1.0]), "{level}");
        assert!((2.0..4.0).contains(&done_at(device.as_ref())), "{level}: {}", done_at(device.as_ref()));
        let (errors, device) = run("spares = [\"small\", \"small\"]");
        assert_eq!((errors, outcome(device.as_ref())), (0, [2.0, 0.0, 0.0, 0.0]), "{level}");
        let (errors, _) = run("");
        assert!(errors > 0, "{level}: without a spare, the second loss loses data");
    }
}

#[test]
fn a_spare_that_dies_is_replaced_and_the_next_begins_anew() {
    let bad: Carried<'_> = ("bad", "constant-1ms", "8 MiB", &["kind=death,after-written=3MiB"]);
    for level in
        ["level = \"raid5\"\nchunk = \"64 KiB\"", "level = \"raid1\"", "level = \"raid10\"\nchunk = \"64 KiB\""]
    {
        let keys = format!("{level}\nmember = \"small\"\ncount = 4\nfailed = [1]\nspares = [\"bad\", \"small\"]");
        let mut device = build_text(&array(&keys, &[SMALL, bad]), 1);
        idle_until(device.as_mut(), Nanos::from_secs(9));
        assert_eq!(outcome(device.as_ref()), [1.0, 0.0, 1.0, 0.0], "{level}");
        assert_eq!(statistic(device.as_ref(), "rebuilt-bytes"), f64::from(11 << 20), "{level}");
        let keys = keys.replace(", \"small\"]", "]");
        let mut device = build_text(&array(&keys, &[SMALL, bad]), 1);
        idle_until(device.as_mut(), Nanos::from_secs(9));
        assert_eq!(outcome(device.as_ref()), [0.0, 0.0, 1.0, 1.0], "{level}: no spare is left");
        assert_eq!(serve(device.as_mut(), Op::Read, 0, 1024).1, Status::Ok);
    }
}

#[test]
fn a_window_that_cannot_be_read_ends_the_rebuild() {
    // A bad sector in the fifth of eight windows.
    let bad: Carried<'_> = ("bad", "constant-1ms", "8 MiB", &["kind=latent,offset=4196KiB,length=4KiB"]);
    let run = |keys: &str| {
        let keys = format!("{keys}\nspares = [\"small\", \"small\"]");
        let mut device = build_text(&array(&keys, &[SMALL, bad]), 1);
        idle_until(device.as_mut(), Nanos::from_secs(9));
        outcome(device.as_ref())
    };
    let raid5 = "level = \"raid5\"\nchunk = \"64 KiB\"\nmembers = [\"small\", \"small\", \"bad\"]\nfailed = [0]";
    assert_eq!(run(raid5), [0.0, 1.0, 0.0, 1.0]);
    assert_eq!(run("level = \"raid1\"\nmembers = [\"small\", \"bad\"]\nfailed = [0]"), [0.0, 1.0, 0.0, 1.0]);
    // Another copy, or another parity, has the data.
    assert_eq!(run("level = \"raid1\"\nmembers = [\"bad\", \"small\", \"small\"]\nfailed = [1]"), [1.0, 0.0, 0.0, 0.0]);
    let raid6 =
        "level = \"raid6\"\nchunk = \"64 KiB\"\nmembers = [\"small\", \"small\", \"bad\", \"small\"]\nfailed = [0]";
    assert_eq!(run(raid6), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn lost_members_are_rebuilt_one_after_the_other() {
    let keys = "level = \"raid6\"\nmember = \"small\"\ncount = 5\nchunk = \"64 KiB\"\nfailed = [1, 4]\n\
        spares = [\"small\", \"small\"]\nsync-speed-max = \"100 GB/s\"";
    let mut device = build_text(&array(keys, &[SMALL]), 1);
    idle_until(device.as_mut(), Nanos::from_secs(1));
    assert_eq!(outcome(device.as_ref()), [2.0, 0.0, 0.0, 0.0]);
    assert_eq!(done_at(device.as_ref()), 0.018_000_001);
}

#[test]
fn refusals() {
    let refused = |keys: &str, expected: &str| {
        let error = Profile::parse(&array(keys, &[SMALL]), "test").expect_err(keys).to_string();
        assert!(error.contains(expected), "{keys}: {error}");
    };
    refused("level = \"raid0\"\nmember = \"small\"\ncount = 2\nspares = [\"small\"]", "no redundancy");
    refused("level = \"raid1\"\nmember = \"small\"\ncount = 2\nsync-window = \"1 MiB\"", "no `spares`");
    let mirror = "level = \"raid1\"\nmember = \"first-disk\"\ncount = 2\nspares = [\"first-disk\"]\n";
    let refused = |keys: &str, expected: &str| {
        let error = Profile::parse(&text(&format!("{mirror}{keys}")), "test").expect_err(keys).to_string();
        assert!(error.contains(expected), "{keys}: {error}");
    };
    refused("sync-window = \"1 kB\"", "multiple of 4 KiB");
    refused("sync-speed-min = \"300 MB/s\"", "up to `sync-speed-max`, 200000 KiB/s");
    refused("sync-speed-min = \"0 MB/s\"", "sync-speed-min");
    let small = mirror.replace("spares = [\"first-disk\"]", "spares = [\"small\"]");
    let error = Profile::parse(&array(&small, &[SMALL]), "test").expect_err("too small").to_string();
    assert!(error.contains("a spare of 8 MiB"), "{error}");
}

/// A request of a member.
#[derive(Clone, Copy, Debug)]
struct Entry {
    device: usize,
    op: Op,
    span: (u64, u64),
    begin: Nanos,
    end: Nanos,
}

/// A device that takes 0.1 to 1 ms for a request, depending on its place, and logs it.
#[derive(Clone)]
struct Logged {
    info: Arc<DeviceInfo>,
    device: usize,
    now: Nanos,
    due: Vec<(Nanos, RequestId)>,
    log: Arc<Mutex<Vec<Entry>>>,
}

impl DeviceModel for Logged {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.due.len() as u32
    }

    fn submit(&mut self, request: Request) {
        let time = Nanos::from_micros(100 + (request.lba.0 + self.device as u64 * 131) * 7_919 % 900);
        let entry = Entry {
            device: self.device,
            op: request.op,
            span: (request.lba.0, request.end().0),
            begin: self.now,
            end: self.now + time,
        };
        self.log.lock().expect("no panic").push(entry);
        self.due.push((entry.end, request.id));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.due.iter().map(|entry| entry.0).min()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.next_event()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        self.now = self.completion_bound().map_or(limit, |at| at.min(limit)).max(self.now);
        let now = self.now;
        let due = self.due.extract_if(.., |entry| entry.0 <= now);
        completed.extend(due.map(|(at, id)| Completion { id, at, status: Status::Ok }));
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }
}

const MEMBER_SECTORS: u64 = 1_024;
const WINDOW_SECTORS: u64 = 32;

/// An array without member 0, with a spare, of devices that log.
fn logged(layout: Layout, log: &Arc<Mutex<Vec<Entry>>>) -> Box<dyn DeviceModel> {
    let info = DeviceInfo {
        name: "logged".to_owned(),
        capacity_sectors: layout.capacity_sectors,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: Some(8),
        rotational: false,
        zones: None,
        torn_write_sectors: None,
    };
    let member = |device: usize| -> Box<dyn DeviceModel> {
        let info = Arc::new(DeviceInfo { capacity_sectors: MEMBER_SECTORS, ..info.clone() });
        Box::new(Logged { info, device, now: Nanos::ZERO, due: Vec::new(), log: Arc::clone(log) })
    };
    let members = Members::new((0..=layout.members).map(member).collect(), None);
    let mut gone = MemberSet::default();
    gone.insert(0);
    let balance = Balance::new(ReadPolicy::Primary, layout.members, MemberSet::default());
    let size = BlockSize::new(layout.chunk_sectors, 1);
    // A window in 0.4 to 2 ms.
    let bytes = WINDOW_SECTORS * SECTOR_BYTES;
    let pace = Pace { min: Rate(bytes * 500), max: Rate(bytes * 2_500), window_sectors: WINDOW_SECTORS };
    let array = Array::new(Arc::new(layout), gone, None, balance, (16, size)).with_spares(1, pace);
    Box::new(Composite::new(info, members, array))
}

/// Whether two requests share sectors.
fn share(a: &Entry, b: &Entry) -> bool {
    a.span.0 < b.span.1 && b.span.0 < a.span.1
}

/// The last write of a sector on a device.
fn last_write(log: &[Entry], device: usize, sector: u64) -> Option<&Entry> {
    let there = |entry: &&Entry| entry.device == device && (entry.span.0..entry.span.1).contains(&sector);
    log.iter().rfind(|entry| entry.op != Op::Read && there(entry))
}

/// The window's write, and the begin of its read.
fn windows(log: &[Entry], spare: usize, source: impl Fn(u64) -> u64) -> Vec<(Entry, Nanos)> {
    let mut mark = 0;
    let mut found = Vec::new();
    for entry in log.iter().filter(|entry| entry.device == spare && entry.op == Op::Write) {
        // Nothing else is written at the mark before the window there is.
        if entry.span.0 == mark {
            let from = source(mark);
            let of_window = |read: &&Entry| {
                read.op == Op::Read && (read.span.0..read.span.1).contains(&from) && read.end <= entry.begin
            };
            let read = log.iter().rfind(of_window).expect("a window is read before it is written");
            found.push((*entry, read.begin));
            mark = entry.span.1;
        }
    }
    assert_eq!(mark, MEMBER_SECTORS, "everything is rebuilt");
    found
}

type Load = Vec<(u64, u64, u64, u8)>;

/// Serves requests, each with the time in microseconds since the one before, a place, a length, and an operation.
fn play(device: &mut dyn DeviceModel, load: &Load) -> usize {
    let mut completed = Vec::new();
    for (number, &(gap, place, length, op)) in load.iter().enumerate() {
        let until = device.now() + Nanos::from_micros(gap);
        advance(device, until, &mut completed);
        let op = [Op::Read, Op::Write, Op::Write, Op::WriteZeroes, Op::Discard][usize::from(op)];
        let lba = place % (device.info().capacity_sectors - length);
        device.submit(Request::new(number as u64, op, lba, length as u32));
    }
    advance(device, Nanos::from_secs(60), &mut completed);
    assert!(completed.iter().all(|completion| completion.status == Status::Ok));
    completed.len()
}

fn load() -> impl Strategy<Value = Load> {
    prop::collection::vec((0u64..2_000, 0u64..4_096, 1u64..150, 0u8..5), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: contract::cases(128), failure_persistence: None, ..Default::default() })]

    /// Nothing writes to the rows of a window from the begin of its reads to the end of its write. A row of an array
    /// with parity that is rebuilt has all its members.
    #[test]
    fn windows_are_exclusive(load in load(), which in 0usize..4) {
        let layout = match which {
            0 => Layout::with_parity(4, MEMBER_SECTORS, 16, 1, ParityLayout::LeftSymmetric),
            1 => Layout::with_parity(5, MEMBER_SECTORS, 64, 2, ParityLayout::RightAsymmetric),
            2 => Layout::mirrored(2, MEMBER_SECTORS),
            _ => Layout::with_parity(3, MEMBER_SECTORS, 5 * 8, 1, ParityLayout::ParityFirst),
        };
        prop_assume!(layout.used_sectors() == MEMBER_SECTORS);
        let (log, spare) = (Arc::default(), layout.members);
        let mut device = logged(layout, &log);
        prop_assert_eq!(play(device.as_mut(), &load), load.len());
        prop_assert_eq!(outcome(device.as_ref()), [1.0, 0.0, 0.0, 0.0]);
        let log = log.lock().expect("no panic");
        for (window, read) in windows(&log, spare, |sector| sector) {
            let inside = |entry: &&Entry| entry.op != Op::Read && share(entry, &window) && entry.begin < window.end
                && read < entry.end && (entry.device, entry.begin) != (spare, window.begin);
            prop_assert!(!log.iter().any(|entry| inside(&entry)), "{:?} {:?}", window, log.iter().find(inside));
        }
    }

    /// After the rebuild of a mirror, both copies of each sector are equal: the last writes are the same, or the spare
    /// was written from a later read.
    #[test]
    fn copies_are_equal_after_a_rebuild(load in load(), far in any::<bool>()) {
        let layout = match far {
            false => Layout::mirrored(2, MEMBER_SECTORS),
            // Two members in two halves: the copy of a member's first half is the other's second.
            true => Layout::striped(2, MEMBER_SECTORS, 16, 2, CopyLayout::Far),
        };
        let log = Arc::default();
        let mut device = logged(layout, &log);
        prop_assert_eq!(play(device.as_mut(), &load), load.len());
        prop_assert_eq!(outcome(device.as_ref()), [1.0, 0.0, 0.0, 0.0]);
        let log = log.lock().expect("no panic");
        let source = |sector| if far { (sector + MEMBER_SECTORS / 2) % MEMBER_SECTORS } else { sector };
        let windows = windows(&log, 2, source);
        for sector in 0..MEMBER_SECTORS {
            let Some(source) = last_write(&log, 1, source(sector)) else { continue };
            let spare = last_write(&log, 2, sector).expect("the whole spare is written");
            let window = windows.iter().find(|(window, _)| window.begin == spare.begin && share(window, spare));
            let equal = match window {
                Some(&(_, read)) => source.end <= read || source.begin == spare.begin,
                None => source.begin == spare.begin,
            };
            prop_assert!(equal, "sector {}: {:?} {:?}", sector, source, spare);
        }
    }
}
