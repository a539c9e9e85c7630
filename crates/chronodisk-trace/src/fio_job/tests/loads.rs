//! Sequences of requests, as fio 3.33 makes them with `write_iolog`, and shares where addresses are random.

use std::collections::BTreeMap;

use chronodisk_sim::{Nanos, Op, Priority, Request};

use super::{DEVICE, one, requests};
use crate::fio_job::{Amount, FilePlace, FioJob, FioThread, Region, Surroundings, lay_out};

const KIB: u64 = 1 << 10;

/// Letter of the operation and offset in KiB of each request.
fn sequence(text: &str) -> Vec<String> {
    let letter = |op: Op| match op {
        Op::Read => 'r',
        Op::Write => 'w',
        Op::Discard => 't',
        _ => 'f',
    };
    let all = requests(&one(text), 0);
    all.iter().map(|(_, request)| format!("{}{}", letter(request.op), request.lba.0 / 2)).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn sequential_orders_are_those_of_fio() {
    for (text, expected) in [
        ("rw=read:8k\nsize=128k\nnumber_ios=13", "r0 r12 r24 r36 r48 r60 r72 r84 r96 r108 r120 r0 r12"),
        ("rw=read:-8k\nsize=32k", "r0 r24 r20 r16 r12 r8 r4 r0"),
        ("rw=read:4k\nsize=32k\noffset=8k\nio_size=20k", "r8 r16 r24 r32 r8"),
        ("bs=12k\nsize=64k", "r0 r12 r24 r36 r48"),
        ("bs=8k\nsize=64k\nio_size=20k", "r0 r8 r16"),
        ("size=16k\noffset=16k\nloops=2", "r16 r20 r24 r28 r16 r20 r24 r28"),
        ("rw=trimwrite\nsize=16k", "t0 w0 t4 w4"),
        ("rw=trim\nsize=8k", "t0 t4"),
        (
            "zonemode=strided\nzonesize=16k\nzoneskip=64k\nsize=128k\nnumber_ios=10",
            "r0 r4 r8 r12 r80 r84 r88 r92 r0 r4",
        ),
        (
            "zonemode=strided\nzonesize=16k\nzonerange=64k\nzoneskip=0\nsize=128k\nnumber_ios=9",
            "r0 r4 r8 r12 r64 r68 r72 r76 r0",
        ),
        ("zonemode=strided\nzonesize=24k\nzonerange=8k\nsize=64k\nnumber_ios=8", "r0 r4 r0 r4 r0 r4 r8 r12"),
        ("rw=write\nfsync=3\nsize=32k", "w0 w4 w8 f0 w12 w16 w20 f0 w24 w28"),
        ("rw=write\nfdatasync=2\nsize=16k\nend_fsync=1", "w0 w4 f0 w8 w12 f0"),
        ("rw=write\nsize=8k\nfsync_on_close=1", "w0 w4 f0"),
        ("rw=read\nsize=8k\nend_fsync=1\nfsync=1", "r0 r4"),
        ("rw=write\nbs=8k,4k\nsize=8k", "w0 w4"),
        ("offset=50%\nsize=1%\nnumber_ios=1", "r524288"),
    ] {
        assert_eq!(sequence(text), words(expected), "{text}");
    }
    // Reads do not end a row of writes: fio looks at the number of writes before each request.
    let mixed = sequence("rw=rw\nfsync=4\nsize=4m");
    let mut writes = 0;
    for pair in mixed.windows(2) {
        writes += u64::from(pair[0].starts_with('w'));
        let is_due = writes > 0 && writes % 4 == 0 && !pair[0].starts_with('f');
        assert_eq!(pair[1].starts_with('f'), is_due, "{pair:?} after {writes} writes");
    }
}

/// Number of requests by size in KiB.
fn sizes(text: &str) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    requests(&one(text), 0)
        .iter()
        .for_each(|(_, request)| *counts.entry(u64::from(request.sectors) / 2).or_default() += 1);
    counts
}

#[test]
fn sizes_come_as_often_as_they_are_asked_for() {
    let near = |found: u64, expected: f64| (found as f64 - expected).abs() < 5.0 * expected.sqrt() + 1.0;
    let split = sizes("rw=randread\nbssplit=4k/60:16k/30:64k/\nnumber_ios=20000\nio_size=1000g");
    assert_eq!(split.keys().copied().collect::<Vec<_>>(), [4, 16, 64]);
    assert!(near(split[&4], 12_000.0) && near(split[&16], 6_000.0) && near(split[&64], 2_000.0), "{split:?}");
    let range = sizes("rw=randwrite\nbsrange=4k-32k\nnumber_ios=16000\nio_size=1000g");
    assert_eq!(range.keys().copied().collect::<Vec<_>>(), [4, 8, 12, 16, 20, 24, 28, 32]);
    assert!(range.values().all(|count| near(*count, 2_000.0)), "{range:?}");
    // The requests cover the region, and end at most one block after it.
    let all = requests(&one("rw=randread\nbsrange=4k-32k\nsize=4m"), 0);
    let bytes: u64 = all.iter().map(|(_, request)| u64::from(request.sectors) * 512).sum();
    assert!((4 * KIB * KIB - 4 * KIB..4 * KIB * KIB + 32 * KIB).contains(&bytes), "{bytes}");
    assert!(all.iter().all(|(_, request)| request.lba.0 + u64::from(request.sectors) <= 8_192));
    let directions = requests(&one("rw=randrw\nbssplit=4k/50:8k/50,16k/100\nsize=16m"), 0);
    assert!(directions.iter().all(|(_, request)| (request.op == Op::Write) == (request.sectors == 32)));
    let aligned = requests(&one("rw=randread\nbs=4k\nblockalign=32k\nsize=1m"), 0);
    assert!(aligned.iter().all(|(_, request)| request.lba.0.is_multiple_of(64)));
}

#[test]
fn random_orders_jump_as_often_as_they_are_asked_to() {
    let follows = |text: &str| -> f64 {
        let all = requests(&one(text), 0);
        let follow = all.windows(2).filter(|pair| pair[1].1.lba.0 == pair[0].1.lba.0 + u64::from(pair[0].1.sectors));
        follow.count() as f64 / (all.len() - 1) as f64
    };
    let share = follows("rw=randread\nsize=900m\npercentage_random=30\nnumber_ios=20000");
    assert!((share - 0.7).abs() < 0.02, "{share}");
    let share = follows("rw=randread:8\nsize=900m\nnumber_ios=16001");
    assert!((share - 7.0 / 8.0).abs() < 0.001, "{share}");
    let same = requests(&one("rw=randread:4\nrw_sequencer=identical\nsize=900m\nnumber_ios=4000"), 0);
    for run in same.chunks(4) {
        assert!(run.iter().all(|(_, request)| request.lba == run[0].1.lba));
    }
    assert!(follows("rw=randread\nsize=900m\nnumber_ios=10000") < 0.001);
}

/// Share of the requests that the most wanted hundredth of the blocks gets.
fn share_of_hottest(text: &str) -> f64 {
    let all = requests(&one(&format!("{text}\nrw=randread\nsize=40m\nnumber_ios=50000\nio_size=1g\nnorandommap")), 0);
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    all.iter().for_each(|(_, request)| *counts.entry(request.lba.0).or_default() += 1);
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts.iter().take(102).sum::<u64>() as f64 / all.len() as f64
}

#[test]
fn distributions_have_their_shape() {
    // By fio's power law, a share h of the requests goes to 1 - h of the blocks, and a hundredth gets 0.01 to the power
    // of ln(1 - h) / ln(h): at 0.2 that is 0.528.
    let pareto = share_of_hottest("random_distribution=pareto:0.2");
    assert!((pareto - 0.528).abs() < 0.02, "{pareto}");
    let uniform = share_of_hottest("random_distribution=random");
    assert!(uniform < 0.03, "{uniform}");
    // The mean of twelve numbers is within 0.5 % of a half for 4.8 %; of those near it, the luckiest are counted.
    let normal = share_of_hottest("random_distribution=normal:0");
    assert!((0.045..0.08).contains(&normal), "{normal}");
    for zones in ["zoned:50/5:30/15:20/80", "zoned:50/5:30/15:20/", "zoned_abs:50/2m:30/6m:20/32m"] {
        let text = format!("rw=randread\nsize=40m\nio_size=1g\nrandom_distribution={zones}\nnumber_ios=20000");
        let all = requests(&one(&text), 0);
        let before = |mib: u64| all.iter().filter(|(_, request)| request.lba.0 < mib << 11).count() as f64 / 20_000.0;
        assert!(
            (before(2) - 0.5).abs() < 0.02 && (before(8) - 0.8).abs() < 0.02,
            "{zones}: {} {}",
            before(2),
            before(8)
        );
        assert!(before(40) == 1.0 && before(24) < 0.95);
    }
}

#[test]
fn bytes_have_a_pace_and_directions_have_their_own() {
    let all = requests(&one("rw=read\nbs=64k\nrate=1m\nsize=8m"), 0);
    assert_eq!(all[127].0 - all[0].0, Nanos::from_nanos(127 * 62_500_000));
    // 100 reads and 50 writes a second, regardless of the mixture.
    let mixed = requests(&one("rw=randrw\nrwmixread=50\nrate_iops=100,50\nruntime=20\ntime_based\nsize=900m"), 0);
    let of = |op: Op| mixed.iter().filter(|(_, request)| request.op == op).count();
    assert!(
        of(Op::Read).abs_diff(2_000) < 10 && of(Op::Write).abs_diff(1_000) < 10,
        "{} {}",
        of(Op::Read),
        of(Op::Write)
    );
    let forced = requests(&one("rw=randrw\nsync=dsync\nprioclass=1\nsize=1m"), 0);
    let is_right = |request: &Request| request.fua == (request.op == Op::Write) && request.priority == Priority::High;
    assert!(forced.iter().all(|(_, request)| is_right(request)));
    let some = requests(&one("rw=randread\nioengine=libaio\ncmdprio_percentage=20\nprioclass=3\nsize=40m"), 0);
    let urgent = some.iter().filter(|(_, request)| request.priority == Priority::High).count() as f64;
    assert!(
        (urgent / some.len() as f64 - 0.2).abs() < 0.02 && some.iter().any(|(_, one)| one.priority == Priority::Idle)
    );
}

/// A thread, and how many of its requests are outstanding.
struct Driven {
    thread: FioThread,
    outstanding: u32,
}

impl Driven {
    fn new(text: &str) -> Self {
        let job = one(text);
        let region = Region::new(&job, 0, DEVICE, 512).unwrap();
        Driven { thread: FioThread::new(&job, 0, region, DEVICE, 1, 1), outstanding: 0 }
    }

    /// Issues requests at this instant until there is no room. Returns their number.
    fn fill(&mut self, now_us: u64) -> u32 {
        let mut issued = 0;
        while self.outstanding < self.thread.depth() {
            let Some((at, _)) = self.thread.next(Nanos::from_micros(now_us), self.outstanding) else { break };
            assert_eq!(at, Nanos::from_micros(now_us));
            (issued, self.outstanding) = (issued + 1, self.outstanding + 1);
        }
        issued
    }

    /// One completes.
    fn complete(&mut self, now_us: u64) -> u32 {
        self.outstanding -= 1;
        self.fill(now_us)
    }
}

#[test]
fn a_full_queue_waits_for_as_many_completions_as_it_is_told_to() {
    let mut usual = Driven::new("ioengine=libaio\niodepth=4\nrw=randread");
    assert_eq!((usual.fill(0), usual.complete(1), usual.complete(2)), (4, 1, 1));
    let mut batched = Driven::new("ioengine=libaio\niodepth=4\niodepth_batch=2\niodepth_batch_complete=3\nrw=randread");
    assert_eq!((batched.fill(0), batched.complete(1), batched.complete(2), batched.complete(3)), (4, 0, 0, 3));
    let mut low = Driven::new("ioengine=io_uring\niodepth=4\niodepth_low=1\nrw=randread");
    assert_eq!((low.fill(0), low.complete(1), low.complete(2), low.complete(3)), (4, 0, 0, 3));
}

#[test]
fn pauses_and_flushes_wait_until_nothing_is_outstanding() {
    let mut paused = Driven::new("ioengine=libaio\niodepth=8\nthinktime=50\nthinktime_blocks=3\nrw=randread");
    assert_eq!(paused.fill(0), 3);
    assert_eq!((paused.complete(1), paused.complete(2)), (0, 0));
    paused.outstanding = 0;
    let (at, _) = paused.thread.next(Nanos::from_micros(10), 0).unwrap();
    assert_eq!(at, Nanos::from_micros(60));
    // libaio waits for a flush, io_uring does not.
    let mut waiting = Driven::new("ioengine=libaio\niodepth=8\nrw=randwrite\nfsync=4");
    assert_eq!(waiting.fill(0), 5);
    let mut going_on = Driven::new("ioengine=io_uring\niodepth=8\nrw=randwrite\nfsync=4");
    assert_eq!(going_on.fill(0), 8);
    let mut at_end = Driven::new("ioengine=io_uring\niodepth=8\nrw=write\nend_fsync=1\nsize=16k");
    assert_eq!(at_end.fill(0), 4);
    assert_eq!((at_end.complete(1), at_end.complete(2), at_end.complete(3), at_end.complete(4)), (0, 0, 0, 1));
    assert_eq!(at_end.complete(5), 0);
}

#[test]
fn files_lie_side_by_side() {
    let places = |text: &str| {
        let jobs = FioJob::parse(&format!("[global]\ndirect=1\n{text}")).unwrap();
        lay_out(&jobs, 1 << 30).map(|all| {
            all.iter().map(|job| job.iter().map(|file| file.begin_bytes >> 10).collect::<Vec<_>>()).collect::<Vec<_>>()
        })
    };
    let whole = FilePlace { begin_bytes: 0, len_bytes: 1 << 30 };
    let one = FioJob::parse("[a]\ndirect=1\nnumjobs=1\n").unwrap();
    assert_eq!(lay_out(&one, 1 << 30).unwrap(), [[whole]]);
    assert_eq!(places("filename=f\n[a]\nnumjobs=2\n[b]\n"), Ok(vec![vec![0, 0], vec![0]]));
    assert_eq!(places("size=3m\n[a]\nnumjobs=2\n[b]\n"), Ok(vec![vec![0, 3_072], vec![6_144]]));
    assert_eq!(
        places(
            "[a]\nfilename=x\nsize=1536k\n[b]\nfilename=y\nsize=1k\n[c]\nfilename=x\n\
                       filesize=10m\n"
        ),
        Ok(vec![vec![0], vec![10_240], vec![0]])
    );
    assert_eq!(places("size=1m\nfilename_format=all.$filenum\n[a]\nnumjobs=3\n[b]\n"), Ok(vec![vec![0; 3], vec![0]]));
    assert!(places("[a]\nnumjobs=2\n").unwrap_err().1.contains("[a]: size is missing"));
    assert!(places("size=50%\n[a]\n[b]\n").unwrap_err().1.contains("[a]: size is missing or a share"));
    assert!(
        places("[a]\nfilename=/dev/a\n[b]\nfilename=/dev/b\n")
            .unwrap_err()
            .1
            .contains("/dev/a and /dev/b are different")
    );
    assert_eq!(
        places("size=600m\n[a]\nnumjobs=2\n").unwrap_err().1,
        "2 files of 1258291200 bytes in all; the device \
                                                                     has 1073741824 bytes"
    );
}

/// A file `more.fio`, and the variable `SIZE`.
struct Files;

impl Surroundings for Files {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "SIZE").then(|| "8k".to_owned())
    }

    fn include(&self, name: &str) -> Result<String, String> {
        match name {
            "more.fio" => Ok("; of both\ndirect=1\n\nbs=${SIZE}\n".to_owned()),
            "wrong.fio" => Ok("direct=1\nbs=lots\n".to_owned()),
            "section.fio" => Ok("[a]\n".to_owned()),
            "itself.fio" => Ok("include itself.fio\n".to_owned()),
            _ => Err("a file".to_owned()),
        }
    }
}

#[test]
fn files_are_included_and_variables_replaced() {
    let jobs = FioJob::parse_in("[global]\ninclude more.fio\n[a]\nsize=1${SIZE}\n", &Files).unwrap();
    assert_eq!((jobs[0].block_bytes(), jobs[0].size), (Some(8_192), Some(Amount::Bytes(18 << 10))));
    let wrong = |text: &str| FioJob::parse_in(text, &Files).unwrap_err().to_string();
    assert!(wrong("[a]\ninclude wrong.fio\n").starts_with("wrong.fio:2: bs: lots; expected a multiple of 512 bytes"));
    assert!(wrong("[a]\ninclude section.fio\n").starts_with("section.fio:1: section: [a]; expected no sections"));
    assert!(wrong("[a]\ninclude itself.fio\n").contains("at most 16 files that include each other"));
    assert!(wrong("[a]\ninclude none.fio\n").starts_with("2: include: none.fio; expected a file"));
    assert!(wrong("[a]\nbs=${OTHER}\n").contains("the environment variable OTHER to be set"));
    assert!(wrong("[a]\nbs=${OTHER\n").contains("a closing brace"));
    let jobs = FioJob::parse("[a]\ndirect=1\nsize=4k\nkb_base=1000\nbs=1ki\noffset=1.5m\nio_size=0x1000\n").unwrap();
    assert_eq!((jobs[0].size, jobs[0].block_bytes()), (Some(Amount::Bytes(4_000)), Some(1_024)));
    assert_eq!((jobs[0].offset, jobs[0].io), (Amount::Bytes(1_500_000), Some(Amount::Bytes(4_096))));
}

#[test]
fn jobs_wait_and_measure_as_they_say() {
    let ok = "[global]\ndirect=1\nfilename=f\n[a]\nnumjobs=2\n[b]\nwait_for=a\n[c]\nwait_for=b\n";
    let jobs = FioJob::parse(ok).unwrap();
    assert_eq!(jobs[2].waits_for.as_deref(), Some("b"));
    let two = FioJob::parse("[global]\ndirect=1\n[a]\n[b]\n[c]\nwait_for=b\n").unwrap_err().to_string();
    assert!(two.contains("wait_for: b in [c]; expected the job before it"), "{two}");
    let ramp = "[global]\ndirect=1\nramp_time=1\nfilename=f\n[a]\n[b]\nstonewall\n";
    let told = FioJob::parse(ramp).unwrap_err().to_string();
    assert!(told.contains("ramp_time: 1 in [b]; expected the same for all jobs"), "{told}");
    // The runtime begins when the ramp is over.
    let all = requests(&one("ramp_time=1ms\nruntime=2ms\ntime_based"), 0);
    assert_eq!(all.len(), 30);
}
