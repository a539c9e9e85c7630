use chronodisk_sim::{Nanos, Op, Request};
use proptest::prelude::*;

use super::*;

mod loads;
mod options;

const GIB: u64 = 1 << 30;
const DEVICE: FilePlace = FilePlace { begin_bytes: 0, len_bytes: GIB };

fn one(text: &str) -> FioJob {
    let jobs = FioJob::parse(&format!("[global]\ndirect=1\n[job]\n{text}\n")).unwrap();
    assert_eq!(jobs.len(), 1);
    jobs[0].clone()
}

fn error(text: &str) -> String {
    FioJob::parse(text).unwrap_err().to_string()
}

/// The message for the settings of a job that begin on line 4.
fn error_in_job(text: &str) -> String {
    error(&format!("[global]\ndirect=1\n[job]\n{text}\n"))
}

/// The requests of one thread on a device of 1 GiB that takes 100 us for each, one after the other.
fn requests(job: &FioJob, thread: u32) -> Vec<(Nanos, Request)> {
    let region = Region::new(job, thread, DEVICE, 512).unwrap();
    let mut thread = FioThread::new(job, thread, region, DEVICE, 1, 7);
    thread.begin(Nanos::ZERO);
    let mut now = Nanos::ZERO;
    std::iter::from_fn(|| {
        let (at, request) = thread.next(now, 0)?;
        now = at.saturating_add(Nanos::from_micros(100));
        Some((at, request))
    })
    .take(200_000)
    .collect()
}

fn blocks(job: &FioJob) -> Vec<u64> {
    let block_bytes = job.block_bytes().unwrap();
    requests(job, 0).iter().map(|(_, request)| request.lba.0 * 512 / block_bytes).collect()
}

#[test]
fn a_job_has_the_settings_of_the_global_sections_before_it() {
    let text = "; of fio's examples\n[global]\nrw = randread ; not read\ndirect=1\nioengine=libaio\nfilename=/dev/x\n\n\
                [first]\niodepth=4\nbs=4k\n[global]\nbs=16k\n[ second ]\niodepth=8\nstonewall\n\
                rw=randrw\nrwmixread=70\n";
    let jobs = FioJob::parse(text).unwrap();
    assert_eq!(
        (jobs[0].name.as_str(), jobs[0].line, jobs[0].depth, jobs[0].block_bytes()),
        ("first", 8, 4, Some(4096))
    );
    assert_eq!(
        (jobs[1].name.as_str(), jobs[1].line, jobs[1].depth, jobs[1].block_bytes()),
        ("second", 13, 8, Some(16384))
    );
    assert_eq!((jobs[0].mix, jobs[1].mix), (Mix::Only(Direction::Read), Mix::ReadsAndWrites { read_share: 0.7 }));
    assert_eq!((jobs[0].waits, jobs[1].waits), (false, true));
    assert!(jobs[0].is_random() && jobs[1].is_random());
}

#[test]
fn units_are_fios() {
    // fio 3.33 reads 4kib as 4000 at its default kb_base.
    for (text, bytes) in [("4096", 4096), ("4k", 4096), ("4KB", 4096), ("1M", 1 << 20), ("2kib", 2_000)] {
        assert_eq!(one(&format!("offset={text}")).offset, Amount::Bytes(bytes), "{text}");
    }
    assert_eq!(one("size=50%").size.unwrap().bytes(GIB), GIB / 2);
    for (text, ns) in [("10", 10_000_000_000), ("10ms", 10_000_000), ("2m", 120_000_000_000), ("5us", 5_000)] {
        assert_eq!(one(&format!("runtime={text}")).runtime, Some(Nanos::from_nanos(ns)), "{text}");
    }
    assert_eq!(one("thinktime=10").think, Nanos::from_micros(10));
    let job = one("size=0\nio_size=0%\nruntime=0");
    assert_eq!((job.size, job.io, job.runtime), (None, None, None));
}

#[test]
fn a_synchronous_engine_has_one_request_outstanding() {
    let job = one("iodepth=8");
    assert_eq!((job.depth, job.is_capped), (1, true), "fio's default engine is psync");
    let job = one("iodepth=8\nioengine=io_uring");
    assert_eq!((job.depth, job.is_capped), (8, false));
}

#[test]
fn what_can_not_be_followed_is_refused_with_its_place() {
    for (text, message) in [
        ("rw=write\nverify=crc32c", "5: verify: crc32c; expected no verification, which reads what was written"),
        ("filename=/a:/b", "4: filename: /a:/b; expected one file, which stands for the device"),
        ("rw=trimread", "4: rw: trimread; expected read, write, trim, rw, trimwrite, or one of these with rand before"),
        ("rw=randread:x", "4: rw: randread:x; expected a number of requests behind the colon, such as randread:8"),
        (
            "rw=write:1",
            "4: rw: write:1; expected a gap of whole sectors behind the colon, such as write:8k or read:-8k",
        ),
        ("direct=0", "4: direct: 0; expected direct=1, since a device model has no page cache"),
        ("buffered", "4: buffered: no value; expected direct=1, since a device model has no page cache"),
        ("ioengine=mmap", "4: ioengine: mmap; expected psync, sync, pvsync, pvsync2, libaio, io_uring, posixaio"),
        ("bssplit=4k/50:8k/60", "4: bssplit: 4k/50:8k/60; expected shares of at most 100 in all"),
        ("bsrange=4k-6k", "4: bsrange: 4k-6k; expected a range whose end is a multiple of its beginning"),
        ("sync_file_range=write:8", "4: sync_file_range: write:8; expected fsync or fdatasync"),
        ("latency_target=1ms", "4: latency_target: 1ms; expected a fixed iodepth"),
        ("zonemode=zbd", "4: zonemode: zbd; expected none or strided"),
        ("zonemode=strided", "4: zonemode: strided; expected a zonesize"),
        ("ss=iops:1%", "4: ss: iops:1%; expected no job that ends by its own measurement"),
        ("nrfiles=4", "4: nrfiles: 4; expected a whole number from 1 to 1"),
        ("loops=2\nio_size=4k", "4: loops: 2; expected no io_size and no time_based with it"),
        ("cmdprio_bssplit=4k/10", "4: cmdprio_bssplit: 4k/10; expected cmdprio_percentage"),
        ("wait_for=other", "3: wait_for: other in [job]; expected the job before it"),
        ("size=lots", "4: size: lots; expected a size such as 1g, or a share of the device such as 50%"),
        ("size=101%", "4: size: 101%; expected a size such as 1g, or a share of the device such as 50%"),
        ("offset=-4k", "4: offset: -4k; expected a size such as 1g, or a share of the device such as 50%"),
        ("iodepth=0", "4: iodepth: 0; expected a whole number from 1 to 1000000"),
        ("numjobs=5000", "4: numjobs: 5000; expected a whole number from 1 to 4096"),
        ("rate_process=poisson", "4: rate_process: poisson; expected a rate or rate_iops with it"),
        ("time_based", "4: time_based: no value; expected a runtime with it"),
        ("random_distribution=zipf", "4: random_distribution: zipf; expected a random rw with it"),
        ("rw=randread\nrandom_distribution=zipf:1.0", "5: random_distribution: zipf:1.0; expected random, zipf:THETA"),
        ("rw=randread\nrandom_distribution=pareto:1", "5: random_distribution: pareto:1; expected random, zipf:THETA"),
        ("rw=randread\nrandom_distribution=zoned", "5: random_distribution: zoned; expected zones for all operations"),
        ("runtime=1y", "4: runtime: 1y; expected a number with a unit such as s, ms or us, up to 18 years"),
        ("size=${SIZE}", "4: variable: ${SIZE}; expected the environment variable SIZE to be set"),
        ("include more.fio", "4: include: more.fio; expected all settings in this file"),
        ("no_such_key=1", "4: no_such_key: 1; expected an option of fio 3.33"),
        ("[ ]", "4: section: [ ]; expected a name in brackets, such as [job]"),
    ] {
        let found = error_in_job(text);
        assert!(found.starts_with(message), "{text}: {found}");
    }
    let missing = error("[job]\nrw=read\n");
    assert!(missing.starts_with("1: direct: missing, so that I/O is buffered; expected direct=1"), "{missing}");
    assert_eq!(error("rw=read\n"), "1: rw: no section; expected [global] or a job's name before it");
    assert_eq!(error("[global]\ndirect=1\n"), "1: section: none; expected a job, such as [reads]");
    // Keys without an effect on the device, and a block size that is none.
    let fine = "group_reporting\nname=x\nrandseed=4\nwrite_lat_log=l\ninvalidate=1\nnorandommap";
    assert!(one(fine).repeats);
    let kib = error_in_job("bs=4kib");
    assert_eq!(
        kib,
        "4: bs: 4kib; expected a multiple of 512 bytes up to 1g (4k is 4096 bytes, 4kib is 4000 unless kb_base says \
         otherwise)"
    );
}

#[test]
fn random_blocks_come_once_and_then_again() {
    let job = one("rw=randread\nbs=4k\nsize=1m\noffset=8k\nio_size=2m");
    let found = blocks(&job);
    assert_eq!(found.len(), 512);
    for pass in found.chunks(256) {
        let mut pass = pass.to_vec();
        assert!(!pass.is_sorted());
        pass.sort_unstable();
        assert!(pass.iter().copied().eq(2..258));
    }
    assert_ne!(found[..256], found[256..]);
    let mut repeated = blocks(&FioJob { repeats: true, ..job.clone() });
    repeated.sort_unstable();
    repeated.dedup();
    // Of 512 draws from 256 places 1 - exp(-2) are seen.
    assert!((205..=238).contains(&repeated.len()), "{}", repeated.len());
    let zipf = blocks(&one("rw=randread\nbs=4k\nsize=64m\nio_size=64m\nrandom_distribution=zipf:1.2"));
    let mut counts = std::collections::BTreeMap::new();
    zipf.iter().for_each(|block| *counts.entry(block).or_insert(0_u32) += 1);
    // 16,384 draws; the sum of k to the power of -1.2 up to there is 4.87.
    let most = *counts.values().max().unwrap();
    assert!((3_200..=3_550).contains(&most), "{most}");
}

#[test]
fn sequential_reads_and_writes_have_a_position_each() {
    let job = one("rw=write\nbs=128k\nsize=1m\nio_size=1280k");
    assert_eq!(blocks(&job), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
    // Both begin anew after 16 requests of either.
    let again = requests(&one("rw=rw\nsize=64k\nio_size=1m"), 0);
    assert_eq!(again.len(), 256);
    for pass in again.chunks(16) {
        let of_op = |op: Op| pass.iter().filter(move |(_, request)| request.op == op);
        let end = |op: Op| of_op(op).map(|(_, request)| request.lba.0 / 8 + 1).max().unwrap_or(0);
        assert_eq!(end(Op::Read) + end(Op::Write), 16);
    }
    let mixed = requests(&one("rw=rw\nrwmixwrite=25\nbs=4k\nsize=400m"), 0);
    for (op, share) in [(Op::Read, 0.75), (Op::Write, 0.25)] {
        let of_op: Vec<u64> =
            mixed.iter().filter(|(_, request)| request.op == op).map(|(_, request)| request.lba.0 / 8).collect();
        assert!(of_op.iter().copied().eq(0..of_op.len() as u64), "{op}");
        let found = of_op.len() as f64 / mixed.len() as f64;
        assert!((found - share).abs() < 0.01, "{op}: {found}");
    }
}

#[test]
fn requests_come_at_their_pace_and_end_in_time() {
    let arrivals =
        |text: &str| -> Vec<u64> { requests(&one(text), 0).iter().map(|(at, _)| at.as_nanos() / 1_000).collect() };
    assert_eq!(arrivals("number_ios=3"), [0, 100, 200]);
    assert_eq!(arrivals("rate_iops=1000\nnumber_ios=4"), [0, 1_000, 2_000, 3_000]);
    // A thread that is late catches up: the third request is due at 200 us.
    assert_eq!(
        arrivals("rate_iops=10000\nthinktime=350\nthinktime_blocks=2\nnumber_ios=6"),
        [0, 100, 550, 650, 1_100, 1_200]
    );
    assert_eq!(arrivals("runtime=350us\ntime_based"), [0, 100, 200, 300]);
    assert_eq!(arrivals("runtime=300us\nstartdelay=1ms\ntime_based\nsize=4k"), [1_000, 1_100, 1_200]);
    // Without time_based the shorter of both counts.
    assert_eq!(arrivals("runtime=1s\nsize=8k"), [0, 100]);
    let poisson = arrivals("rate_iops=100\nrate_process=poisson\nnumber_ios=20000");
    let mean_us = *poisson.last().unwrap() as f64 / 19_999.0;
    assert!((mean_us / 10_000.0 - 1.0).abs() < 0.03, "{mean_us}");
    let gaps: Vec<u64> = poisson.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let short = gaps.iter().filter(|gap| **gap < 6_931).count() as f64 / gaps.len() as f64;
    assert!((short - 0.5).abs() < 0.02, "{short}");
}

#[test]
fn threads_have_their_regions_and_differ() {
    let job = one("rw=randwrite\nfilename=x\nnumjobs=2\noffset=1m\noffset_increment=256m");
    let size = FioJob { size: Some(Amount::Bytes(1 << 20)), ..job.clone() };
    let first = requests(&size, 0);
    let second = requests(&size, 1);
    assert!(first.iter().all(|(_, request)| (2_048..4_096).contains(&request.lba.0) && request.issuer == 7));
    assert!(second.iter().all(|(_, request)| (526_336..528_384).contains(&request.lba.0)));
    assert!(first.iter().zip(&second).any(|(one, other)| one.1.lba.0 + 524_288 != other.1.lba.0));
    assert_eq!(first, requests(&size, 0), "equal seeds give equal requests");

    let wrong = |text: &str, len_bytes: u64, align: u64| {
        Region::new(&one(text), 0, FilePlace { begin_bytes: 0, len_bytes }, align).unwrap_err()
    };
    assert_eq!(
        wrong("bs=1k", GIB, 4096),
        "[job]: bs is 1024 bytes; expected a multiple of the device's blocks of 4096 bytes"
    );
    assert_eq!(
        wrong("size=2g", GIB, 512),
        "[job]: offset and size reach to byte 2147483648, but the device has 1073741824 bytes"
    );
    assert_eq!(wrong("bs=8k", 4096, 512), "[job]: a size of 4096 bytes holds no block of 8192 bytes");
    assert!(wrong("offset=2g", GIB, 512).contains("holds no block"));
}

#[test]
fn any_text_is_an_error_or_jobs() {
    for text in ["", "[", "]", "[]", "[a]b", "=", "[a]\n=", "[a]\ndirect\n=1", "\0", "[a]\nsize=99999999999999999999"] {
        let _ = FioJob::parse(text);
    }
}

/// Values of many kinds for any option: an error, or jobs whose threads stay on the device.
fn any_value() -> impl Strategy<Value = String> {
    let size = (0u64..70, prop::sample::select(vec!["", "k", "m", "g", "t", "%", "ki", "z"]));
    prop_oneof![
        Just(String::new()),
        size.prop_map(|(number, unit)| format!("{number}{unit}")),
        (1u64..9, 1u64..65).prop_map(|(one, other)| format!("{one}k-{other}k")),
        (1u64..9, 0u64..101).prop_map(|(size, share)| format!("{size}k/{share}:512/,64k/")),
        (0u64..101, 0u64..101).prop_map(|(access, size)| format!("zoned:{access}/{size}:50/")),
        prop::sample::select(vec!["strided", "libaio", "io_uring", "poisson", "zipf:0.9", "pareto:0.3", "normal:9"])
            .prop_map(str::to_owned),
        prop::sample::select(vec!["randrw:3", "read:-12k", "write:8k", "trimwrite", "randtrimwrite", "randtrim", "rw"])
            .prop_map(str::to_owned),
        "[ -~]{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn any_options_are_an_error_or_requests_on_the_device(
        settings in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 0..6),
    ) {
        let mut text = "[global]\ndirect=1\nsize=3m\n[a]\n".to_owned();
        for (option, value) in &settings {
            let name = option.get(super::options::OPTIONS).name;
            text.push_str(&format!("{name}={value}\n"));
        }
        let Ok(jobs) = FioJob::parse(&text) else { return Ok(()) };
        for (job, files) in jobs.iter().zip(lay_out(&jobs, GIB).into_iter().flatten()) {
            let Ok(region) = Region::new(job, 0, files[0], 512) else { continue };
            let mut thread = FioThread::new(job, 0, region, files[0], 1, 1);
            thread.begin(Nanos::ZERO);
            let mut now = Nanos::ZERO;
            for _ in 0..200 {
                let Some((at, request)) = thread.next(now, 0) else { break };
                prop_assert!(request.lba.0 + u64::from(request.sectors) <= GIB / 512, "{request:?} {text}");
                prop_assert!(request.sectors > 0 || request.op == Op::Flush, "{text}");
                now = at;
            }
        }
    }
}
