//! Faults against the contract, their effects, and their refusals.

use std::ops::Range;

use chronodisk_sim::{Completion, Nanos, Op, Request, Status};

use super::device::Faulty;
use super::parameters::{Effect, Fault, Operation, Period, Selection};
use crate::models::testing::{build, closed_loop, complete, counter};
use crate::{BuildOptions, DeviceInfo, DeviceModel, Profile, Speed, advance, contract};

const SECTORS: u64 = 8;

fn faulty(name: &str, faults: &[&str]) -> Profile {
    faults.iter().fold(Profile::find(name).unwrap(), |profile, fault| profile.with_fault(fault).unwrap())
}

fn device(name: &str, faults: &[&str]) -> Box<dyn DeviceModel> {
    faulty(name, faults).build(&BuildOptions::default()).unwrap()
}

/// Instants and statuses of requests to `constant-1ms`, one after the other.
fn served(faults: &[&str], requests: &[Request]) -> Vec<(u64, Status)> {
    let device = &mut *device("constant-1ms", faults);
    requests.iter().map(|&request| serve(device, request)).collect()
}

/// The instant in microseconds, and the status.
fn serve(device: &mut dyn DeviceModel, request: Request) -> (u64, Status) {
    let mut completed: Vec<Completion> = Vec::new();
    device.submit(request);
    while completed.is_empty() {
        device.step(Nanos::MAX, &mut completed);
    }
    assert_eq!(completed[0].at, device.now());
    (completed[0].at.as_nanos() / 1_000, completed[0].status)
}

fn request(op: Op, block: u64) -> Request {
    Request::new(1, op, block * SECTORS, SECTORS as u32)
}

fn read(block: u64) -> Request {
    request(Op::Read, block)
}

fn write(block: u64) -> Request {
    request(Op::Write, block)
}

use Status::{Aborted, MediaError, Ok as Fine};

/// Each kind of fault, with every way to begin and to choose.
const EACH: [&str; 16] = [
    "kind=latent,offset=4KiB,length=1MiB,retry-time=3ms",
    "kind=latent,rate=0.01,from=5ms,for=1s",
    "kind=transient,every=3,operation=write,retry-time=10us",
    "kind=transient,rate=0.3,after-requests=4",
    "kind=recovered,every=2,retry-time=1s",
    "kind=recovered,rate=0.5,operation=read,retry-time=1us,length=1GiB",
    "kind=slow,factor=10",
    "kind=slow,factor=2.345,from=1ms,for=50ms",
    "kind=slow,factor=7.7,length=10MiB",
    "kind=hang,at=2ms,for=30ms",
    "kind=hang,after-requests=5,for=1min",
    "kind=death,at=20ms",
    "kind=death,after-requests=9,for=10ms",
    "kind=wear-out,after-written=1MiB",
    "kind=lying-flush",
    "kind=torn-write,every=2,sectors=3",
];

#[test]
fn each_kind_keeps_the_contract_around_devices_of_each_kind() {
    let names = ["constant-100us", "battery-backed-ram", "first-disk", "mems-g2", "wu-tsai-ch2-x1"];
    for (index, fault) in EACH.iter().enumerate() {
        for name in [names[index % names.len()], names[(index + 1) % names.len()]] {
            let profile = faulty(name, &[fault]);
            contract::check(&format!("{name} {fault}"), contract::cases(12), &|seed| {
                profile.build(&BuildOptions { seed, ..BuildOptions::default() }).unwrap()
            });
        }
    }
}

#[test]
fn faults_together_keep_the_contract() {
    for (name, faults) in [
        ("constant-1ms", EACH.as_slice()),
        ("cheetah-9lp", &[EACH[0], EACH[4], EACH[7], EACH[8], EACH[9]]),
        ("raid5-eight-disks", &[EACH[3], EACH[5], EACH[10], EACH[11]]),
        // A flush that lies breaks rule 9 on a device with a cache, by intention.
        ("samsung-970-pro", &[EACH[1], EACH[6], EACH[13], EACH[15]]),
        ("wd-zn540-zones", &[EACH[4], EACH[7], EACH[9]]),
    ] {
        let profile = faulty(name, faults).within_limits("iops=2000,delay=1ms").unwrap();
        contract::check(&format!("{name} with faults"), contract::cases(8), &|seed| {
            let options = BuildOptions { seed, ..BuildOptions::default() };
            let speed = if seed.is_multiple_of(2) { 1.0 } else { 3.3 };
            Speed::from_factor(speed).unwrap().apply(profile.build(&options).unwrap())
        });
    }
}

#[test]
fn a_bad_sector_fails_reads_until_it_is_rewritten() {
    let fault = ["kind=latent,offset=8KiB,length=8KiB,retry-time=5ms"];
    let found = served(&fault, &[read(1), read(2), write(3), read(3), read(2), request(Op::Discard, 2), read(2)]);
    let expected = [(1_000, Fine), (7_000, MediaError), (8_000, Fine), (9_000, Fine)];
    assert_eq!(found[..4], expected);
    assert_eq!(found[4..], [(15_000, MediaError), (16_000, Fine), (17_000, Fine)]);
    // A part of a bad range is healed; a read of the rest fails.
    let half = Request::new(1, Op::Write, 16, 4);
    assert_eq!(served(&fault, &[half, read(2)])[1].1, MediaError);
}

#[test]
fn drawn_bad_sectors_are_as_many_as_the_rate_says_and_follow_the_seed() {
    let profile = faulty("constant-1ms", &["kind=latent,rate=0.001,offset=1MiB,length=64MiB"]);
    let bad = |seed| -> Vec<u64> {
        let device = &mut *profile.build(&BuildOptions { seed, ..BuildOptions::default() }).unwrap();
        let sectors = 0..(66 << 20) / 512;
        sectors.filter(|&lba| serve(device, Request::new(1, Op::Read, lba, 1)).1 == MediaError).collect()
    };
    let first = bad(1);
    // A thousandth of 131,072 sectors, rounded up.
    assert_eq!(first.len(), 132);
    assert!(first.iter().all(|&sector| (2_048..133_120).contains(&sector)));
    assert!(first == bad(1) && first != bad(2));
}

#[test]
fn transient_errors_and_retries_hit_each_nth_request_of_their_operation() {
    let requests = [read(1), write(1), read(1), read(1), read(1)];
    let found = served(&["kind=transient,every=2,operation=read"], &requests);
    assert_eq!(found.map_status(), [Fine, Fine, MediaError, Fine, MediaError].to_vec());
    let found = served(&["kind=recovered,every=2,operation=read,retry-time=100ms"], &requests);
    assert_eq!(found.iter().map(|end| end.0).collect::<Vec<_>>(), [1_000, 2_000, 103_000, 104_000, 205_000]);
    assert_eq!(found.map_status(), [Fine; 5].to_vec());
}

trait Statuses {
    fn map_status(&self) -> Vec<Status>;
}

impl Statuses for Vec<(u64, Status)> {
    fn map_status(&self) -> Vec<Status> {
        self.iter().map(|end| end.1).collect()
    }
}

#[test]
fn a_rate_is_a_probability() {
    let device = &mut *device("constant-1ms", &["kind=transient,rate=0.1"]);
    let failed = (0..10_000).filter(|_| serve(device, read(0)).1 == MediaError).count();
    // Six standard deviations of 30.
    assert!(failed.abs_diff(1_000) < 180, "{failed}");
    assert_eq!(counter(device, "fault-0-transient-errors"), failed as u64);
}

#[test]
fn requests_wait_behind_retries() {
    let device = &mut *device("first-disk", &["kind=recovered,every=1000,retry-time=1s"]);
    let outcome = closed_loop(device, 4, 1_010, |id| Request::new(id, Op::Read, id * 7_919 % 100_000, 8));
    // The request with the retries, and the three behind it.
    assert_eq!(outcome.response_times.iter().filter(|&&time| time > Nanos::from_secs(1)).count(), 4);
    assert_eq!(counter(device, "fault-retry-time-ns"), 1_000_000_000);
}

#[test]
fn a_slow_drive_takes_a_multiple_while_it_is_slow() {
    let found = served(&["kind=slow,factor=10,from=2ms,for=20ms"], &[read(0); 5]);
    assert_eq!(found.iter().map(|end| end.0).collect::<Vec<_>>(), [1_000, 2_000, 12_000, 22_000, 23_000]);
    // Two such faults multiply, and a request that is in the drive at the end is slow for a part.
    let twice = served(&["kind=slow,factor=2", "kind=slow,factor=5,for=5ms"], &[read(0); 2]);
    assert_eq!(twice.iter().map(|end| end.0).collect::<Vec<_>>(), [6_000, 8_000]);
}

#[test]
fn a_slow_region_takes_a_multiple_with_and_without_a_queue() {
    let fault = ["kind=slow,factor=10,offset=1MiB,length=1MiB"];
    let found = served(&fault, &[read(0), read(256), read(511), read(512)]);
    assert_eq!(found.iter().map(|end| end.0).collect::<Vec<_>>(), [1_000, 11_000, 21_000, 22_000]);
    // In a queue each slow request takes ten times its own service, and not ten times its wait.
    let load = |fault: &str| {
        let device = &mut *device("first-disk", &[fault]);
        let place = |id: u64| Request::new(id, Op::Read, 2_048 + id * 7_919 % 2_000, 8);
        closed_loop(device, 8, 400, place).last.as_secs_f64()
    };
    let ratio = load("kind=slow,factor=10,offset=1MiB,length=2MiB") / load("kind=slow,factor=10,offset=1TiB");
    assert!((ratio - 10.0).abs() < 1.5, "{ratio}");
}

#[test]
fn nothing_completes_in_a_hang() {
    let found = served(&["kind=hang,at=1500us,for=10ms"], &[read(0); 3]);
    assert_eq!(found.iter().map(|end| end.0).collect::<Vec<_>>(), [1_000, 12_000, 13_000]);
    let found = served(&["kind=hang,after-requests=2,for=10ms"], &[read(0); 4]);
    assert_eq!(found.iter().map(|end| end.0).collect::<Vec<_>>(), [1_000, 2_000, 13_000, 14_000]);
    // Not even a request whose retries end in it.
    let faults = ["kind=hang,at=2ms,for=10ms", "kind=recovered,every=1,retry-time=5ms"];
    assert_eq!(served(&faults, &[read(0)]), [(12_000, Fine)]);
}

#[test]
fn a_dead_drive_fails_everything_and_a_worn_out_one_writes() {
    let found =
        served(&["kind=death,after-requests=2"], &[read(0), write(0), read(0), Request::new(1, Op::Flush, 0, 0)]);
    assert_eq!(found.map_status(), [Fine, Fine, Aborted, Aborted].to_vec());
    // A request that is in the drive at its death fails.
    assert_eq!(served(&["kind=death,at=1500us"], &[read(0), read(0)]), [(1_000, Fine), (2_000, Aborted)]);
    let found = served(&["kind=wear-out,after-written=8KiB"], &[write(0), read(0), write(0), write(0), read(0)]);
    assert_eq!(found.map_status(), [Fine, Fine, Fine, Aborted, Fine].to_vec());
}

#[test]
fn a_flush_that_lies_takes_no_time_and_does_not_reach_the_cache() {
    let flush = Request::new(1, Op::Flush, 0, 0);
    let took = |faults: &[&str]| {
        let device = &mut *device("samsung-970-pro", faults);
        serve(device, Request::new(1, Op::Write, 5_000_000, 64));
        complete(device, flush)
    };
    assert!(took(&[]) > Nanos::from_micros(100), "{}", took(&[]));
    assert_eq!(took(&["kind=lying-flush"]), Nanos::from_nanos(1));
    assert!(took(&["kind=lying-flush,every=2"]) > Nanos::from_micros(100));
    assert!(took(&["kind=lying-flush,after-requests=2"]) > Nanos::from_micros(100));
}

/// A device with a volatile cache that only a flush writes back.
struct Cached {
    inner: Box<dyn DeviceModel>,
    volatile: Vec<Range<u64>>,
}

impl DeviceModel for Cached {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn outstanding(&self) -> u32 {
        self.inner.outstanding()
    }

    fn submit(&mut self, request: Request) {
        match request.op {
            Op::Flush => self.volatile.clear(),
            Op::Write if !request.fua => self.volatile.push(request.lba.0..request.end().0),
            _ => {}
        }
        self.inner.submit(request);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.inner.next_event()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        self.inner.completion_bound()
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        self.inner.step(limit, completed);
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(Cached { inner: self.inner.fork(), volatile: self.volatile.clone() })
    }

    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        Some(self.volatile.clone())
    }
}

#[test]
fn sectors_stay_volatile_after_a_flush_that_lies() {
    let flush = Request::new(1, Op::Flush, 0, 0);
    let forced = Request { fua: true, ..write(3) };
    let left = |effects: &[Effect]| {
        let cached = Cached { inner: build("constant-1ms", 1), volatile: Vec::new() };
        let (selection, operation, region) = (Selection::All, Operation::Any, 0..u64::MAX);
        let period = Period { from: Nanos::ZERO, duration: Nanos::MAX, after_requests: 0, after_written: 0 };
        let fault =
            |effect: &Effect| Fault { effect: effect.clone(), period, region: region.clone(), operation, selection };
        let device = &mut Faulty::new(Box::new(cached), effects.iter().map(fault).collect(), 1);
        for request in [write(1), flush, forced] {
            serve(device, request);
        }
        device.volatile()
    };
    assert_eq!(left(&[]), Some(vec![]));
    assert_eq!(left(&[Effect::LyingFlush]), Some(vec![8..16, 24..32]));
}

#[test]
fn a_torn_write_fails_and_the_device_says_which_part_is_written() {
    let info = |faults: &[&str]| device("constant-1ms", faults).info().torn_write_sectors;
    assert_eq!(info(&["kind=recovered,every=9,retry-time=1s", "kind=slow,factor=2"]), None);
    assert_eq!(info(&["kind=transient,every=9"]), Some(0));
    assert_eq!(info(&["kind=death,at=1s", "kind=torn-write,every=1,sectors=5"]), Some(5));
    let found = served(&["kind=torn-write,every=2"], &[write(0), read(0), write(0), write(0)]);
    assert_eq!(found.map_status(), [Fine, Fine, MediaError, Fine].to_vec());
    // An array fails requests if a member can.
    let text = "name = \"x\"\nkind = \"array\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
        level = \"linear\"\nmember = \"m\"\ncount = 2\n[[member-profile]]\nname = \"m\"\nprofile = '''\n";
    let array = format!("{text}{}'''\n", faulty("constant-1ms", &["kind=transient,every=2"]).text());
    assert_eq!(Profile::parse(&array, "array").unwrap().torn_write_sectors(), Some(0));
}

#[test]
fn faults_are_part_of_the_text() {
    let profile = faulty("constant-1ms", &["kind=death,after-requests=1", "kind=slow,factor=3"]);
    let again = Profile::parse(profile.text(), "again").unwrap();
    let limited = again.within_limits("delay=1ms").unwrap();
    assert!(limited.has_faults() && limited.has_limits() && !Profile::find("null").unwrap().has_faults());
    let device = &mut *limited.build(&BuildOptions::default()).unwrap();
    assert_eq!([serve(device, read(0)), serve(device, read(0))], [(4_000, Fine), (5_000, Aborted)]);
    let mut completed = Vec::new();
    advance(device, Nanos::from_secs(1), &mut completed);
    assert!(completed.is_empty());
}

#[test]
fn wrong_faults_are_refused_with_their_place() {
    let refuse = |table: &str, expected: &str| {
        let text = format!(
            "name = \"x\"\nkind = \"null\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
             capacity = \"1 MiB\"\n[[faults]]\n{table}\n"
        );
        let error = Profile::parse(&text, "x.toml").unwrap_err();
        assert!(error.to_string().contains(expected), "{table}: {error}");
    };
    refuse("", "`kind` is missing");
    refuse("kind = \"broken\"", "x.toml:8:8: `kind`: expected one of \"latent\"");
    refuse("kind = \"latent\"", "neither `length` nor `rate`; expected one of them");
    refuse("kind = \"latent\"\nlength = \"2 GiB\"", "`length`: expected at most 1 GiB, or a `rate`");
    refuse("kind = \"latent\"\nlength = \"100 B\"", "`length`: 100 B; expected a multiple of 512 B");
    refuse("kind = \"latent\"\nrate = 0", "`rate`: zero; expected a number from 0.000001 to 1");
    refuse("kind = \"transient\"", "neither `every` nor `rate`; expected one of them");
    refuse("kind = \"transient\"\nevery = 2\nrate = 0.5", "`rate`: there is `every` already");
    refuse("kind = \"transient\"\nrate = 1.5", "`rate`: above 1");
    refuse("kind = \"recovered\"\nevery = 2", "`retry-time` is missing");
    refuse("kind = \"slow\"", "`factor` is missing; expected a number above 1");
    refuse("kind = \"slow\"\nfactor = 1", "`factor`: out of range; expected a number above 1 and up to 1000");
    refuse("kind = \"hang\"\nat = \"1 s\"", "`for` is missing");
    refuse("kind = \"hang\"\nfor = \"1 s\"", "no beginning; expected `at`, `after-requests` or `after-written`");
    refuse("kind = \"death\"", "no beginning; expected `at`");
    refuse("kind = \"death\"\nfrom = \"1 s\"\nafter-requests = 2", "unknown key `from`");
    refuse("kind = \"lying-flush\"\nfor = \"0 s\"", "`for`: zero");
    let torn = "kind = \"torn-write\"\nevery = 2";
    refuse(&format!("{torn}\n[[faults]]\n{torn}"), "x.toml:11:8: `kind`: a second torn-write");
    let many = vec!["kind = \"slow\"\nfactor = 2"; 17].join("\n[[faults]]\n");
    refuse(&many, "17 entries; expected one to 16 tables [[faults]]");
    let zoned = Profile::find("wd-zn540-zones").unwrap().with_fault("kind=transient,every=2").unwrap_err();
    assert!(zoned.to_string().contains("requests to a zoned device can't fail"), "{zoned}");
    let error = Profile::find("null").unwrap().with_fault("kind=slow,factor=0.5").unwrap_err();
    assert!(error.to_string().starts_with("kind=slow,factor=0.5: "), "{error}");
}
