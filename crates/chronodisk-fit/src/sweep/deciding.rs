//! Sweeps that a measurement of a flash drive lacks, and that would decide between structures of the drive.
//!
//! Random accesses at several depths fit many structures: a slow buffer, a slow link and slow flash look alike. Each
//! sweep here separates some of them.

use std::collections::BTreeSet;

use chronodisk_report::MissingSweep;

use super::Point;

/// Least number of writes in a row on a drive in use. A run of 20,000 contains two erases; the spread of the 99th
/// percentile over seeds is 9 % with this number.
pub const WRITES_IN_USE_LEAST: u64 = 65_536;

/// Number of writes in a row that a user is asked for. The spread over seeds is 5 %.
const WRITES_ASKED: u64 = 262_144;

/// Least size of sequential reads beside which random ones of the same size decide.
const LARGE_READ_BYTES: u64 = 128 << 10;

/// Least number of sizes that show a line.
const SIZES_LEAST: usize = 3;

/// The sweeps that are missing. `in_use` tells whether a point was measured on the drive in use.
#[must_use]
pub fn missing_sweeps(points: &[Point], in_use: &dyn Fn(&Point) -> bool) -> Vec<MissingSweep> {
    let mut missing = Vec::new();
    for state in [false, true] {
        let alike: Vec<&Point> = points.iter().filter(|point| in_use(point) == state).collect();
        let drive = if state { "drive in use" } else { "erased drive" };
        missing.extend(writes_by_size(&alike, drive));
        missing.extend(mixture(&alike, drive));
        missing.extend(long_writes(&alike, drive));
    }
    missing.extend(large_random_reads(points));
    missing
}

/// Writes by size at depth 1, on the drive of the random writes.
fn writes_by_size(points: &[&Point], drive: &str) -> Option<MissingSweep> {
    points.iter().find(|point| is_write(point) && point.access.random)?;
    let alone = points.iter().filter(|point| is_write(point) && point.depth == 1);
    let sizes: BTreeSet<u64> = alone.map(|point| point.block_bytes).collect();
    let jobs = ["4k", "16k", "32k", "64k", "128k", "256k"];
    let each = jobs.map(|size| format!(" --name={size} --bs={size} --stonewall"));
    (sizes.len() < SIZES_LEAST).then(|| MissingSweep {
        name: format!("writes by size at depth 1, on the {drive}"),
        decides: "the time of a command, of the link and of the write buffer: the first does not grow with the size"
            .to_owned(),
        fio: format!(
            "{FIO} --output=writes-by-size.json --rw=randwrite --iodepth=1 --number_ios={WRITES_ASKED}{}",
            each.concat()
        ),
    })
}

/// Random reads of the size of large sequential reads.
fn large_random_reads(points: &[Point]) -> Option<MissingSweep> {
    let reads = |random: bool| {
        let large = points.iter().filter(move |point| point.access.read_share == 1.0 && point.access.random == random);
        large.map(|point| point.block_bytes).filter(|&bytes| bytes >= LARGE_READ_BYTES)
    };
    let bytes = reads(false).min()?;
    let size = format!("{}k", bytes >> 10);
    (reads(true).next().is_none()).then(|| MissingSweep {
        name: format!("random reads of {} KiB beside the sequential ones", bytes >> 10),
        decides: "reading ahead, and the order in which data lie on the dies: random reads use neither".to_owned(),
        fio: format!(
            "{FIO} --output=large-random-reads.json --rw=randread --bs={size} --time_based --runtime=60 \
             --name=1 --iodepth=1 --stonewall --name=4 --iodepth=4 --stonewall --name=16 --iodepth=16 --stonewall"
        ),
    })
}

/// A mixture of the reads and writes that were measured apart.
fn mixture(points: &[&Point], drive: &str) -> Option<MissingSweep> {
    let random =
        |share: fn(f64) -> bool| points.iter().find(|point| point.access.random && share(point.access.read_share));
    let (write, _) = (random(|share| share == 0.0)?, random(|share| share == 1.0)?);
    let is_mixed = random(|share| share > 0.0 && share < 1.0).is_some();
    (!is_mixed).then(|| MissingSweep {
        name: format!("a mixture of reads and writes, on the {drive}"),
        decides: "the suspension of programs and erases, and which commands of a die go first".to_owned(),
        fio: format!(
            "{FIO} --output=mixture.json --rw=randrw --rwmixread=70 --bs={} --number_ios={WRITES_ASKED} \
             --name=4 --iodepth=4 --stonewall --name=32 --iodepth=32 --stonewall",
            write.block_bytes
        ),
    })
}

/// Random writes of more requests, if fewer were measured in a row than show the garbage collector's stalls.
fn long_writes(points: &[&Point], drive: &str) -> Option<MissingSweep> {
    let is_short = |point: &&&Point| {
        is_write(point) && point.access.random && point.requests.is_some_and(|requests| requests < WRITES_IN_USE_LEAST)
    };
    let short = points.iter().filter(is_short).min_by_key(|point| point.requests)?;
    Some(MissingSweep {
        name: format!(
            "longer random writes at depth {}, on the {drive}: at least {WRITES_IN_USE_LEAST} in a row, found {}",
            short.depth,
            short.requests.unwrap_or_default()
        ),
        decides: "the garbage collector: erases are rare, and the 99th percentile rests on them".to_owned(),
        fio: format!(
            "{FIO} --output=long-writes.json --rw=randwrite --bs={} --number_ios={WRITES_ASKED} --name=long --iodepth={}",
            short.block_bytes, short.depth
        ),
    })
}

fn is_write(point: &Point) -> bool {
    point.access.read_share == 0.0
}

/// Beginning of each command. The engine keeps its depth, unlike fio's default.
const FIO: &str = "fio --filename=/dev/nvme0n1 --direct=1 --ioengine=io_uring --output-format=json";

#[cfg(test)]
mod tests {
    use chronodisk_trace::fio_job::FioJob;

    use super::*;
    use crate::read_sweep;

    fn missing(rows: &str) -> Vec<MissingSweep> {
        let points = read_sweep(&format!("set,bs,qd,mean_us\n{rows}"), "a.csv", &[]).unwrap();
        missing_sweeps(&points, &|point| point.set.contains("used"))
    }

    fn names(rows: &str) -> Vec<String> {
        missing(rows).into_iter().map(|sweep| sweep.name).collect()
    }

    #[test]
    fn the_sweeps_follow_from_the_measured_ones() {
        assert_eq!(names("4K randread,4096,1,80\n"), [""; 0]);
        let by_size = |drive: &str| format!("writes by size at depth 1, on the {drive}");
        let mixed = |drive: &str| format!("a mixture of reads and writes, on the {drive}");
        assert_eq!(names("randwrite used,4096,1,20\n"), [by_size("drive in use")]);
        let both = "randread used,4096,1,80\nrandwrite used,4096,1,20\n";
        assert_eq!(names(both), [by_size("drive in use"), mixed("drive in use")]);
        // Sizes on another drive do not help.
        let sizes = |drive: &str| [4_096, 16_384, 65_536].map(|size| format!("write {drive},{size},1,30\n")).concat();
        assert_eq!(names(&format!("{both}{}", sizes("erased"))), [by_size("drive in use"), mixed("drive in use")]);
        let sized = format!("{both}{}", sizes("used"));
        assert_eq!(names(&sized), [mixed("drive in use")]);
        assert_eq!(names(&format!("{sized}randrw used,4096,4,100\n")), [""; 0]);
        assert_eq!(names("randread used,4096,1,80\nrandwrite,4096,1,20\n"), [by_size("erased drive")]);
        let large = "read 128K,131072,1,200\n";
        assert_eq!(names(large), ["random reads of 128 KiB beside the sequential ones"]);
        assert_eq!(names(&format!("{large}randread,131072,1,200\n")), [""; 0]);
        assert_eq!(names("read 4K,4096,1,20\n"), [""; 0]);
    }

    #[test]
    fn short_writes_are_told_with_their_number() {
        let file = |requests: u64| {
            format!(
                "{{\"fio version\": \"fio-3.33\", \"global options\": {{\"direct\": \"1\", \"ioengine\": \"io_uring\"}}, \
                 \"jobs\": [{{\"jobname\": \"a\", \"job options\": {{\"rw\": \"randwrite\", \"bs\": \"4k\", \
                 \"iodepth\": \"8\"}}, \"write\": {{\"iops\": 1000.0, \"total_ios\": {requests}, \
                 \"clat_ns\": {{\"mean\": 90000.0}}}}}}]}}"
            )
        };
        let long = |requests: u64| {
            let points = read_sweep(&file(requests), "a.json", &[]).unwrap();
            let missing = missing_sweeps(&points, &|_| true);
            missing.into_iter().find(|sweep| sweep.name.starts_with("longer"))
        };
        let told = long(5_000).unwrap();
        assert!(told.name.contains("at depth 8, on the drive in use: at least 65536 in a row, found 5000"), "{told:?}");
        assert!(told.fio.ends_with("--bs=4096 --number_ios=262144 --name=long --iodepth=8"), "{told:?}");
        assert_eq!(long(65_536), None);
    }

    #[test]
    fn a_fit_reads_the_results_of_the_commands() {
        let all = "read 128K,131072,1,200\nrandread used,4096,1,80\nrandwrite used,4096,1,20\n";
        for sweep in missing(all) {
            let words: Vec<&str> = sweep.fio.split(' ').skip(1).map(|word| word.trim_start_matches("--")).collect();
            let options: Vec<(&str, Option<&str>)> = words
                .iter()
                .map(|word| word.split_once('=').map_or((*word, None), |(key, value)| (key, Some(value))))
                .collect();
            let first = options.iter().position(|(key, _)| *key == "name").unwrap();
            for job in options[first..].split_inclusive(|(key, _)| *key == "stonewall") {
                let global = options[..first].iter().filter(|(key, _)| !key.starts_with("output"));
                let own: Vec<_> = global.chain(&job[1..]).copied().collect();
                let read = FioJob::of_options(job[0].1.unwrap(), 1, &own);
                assert!(read.is_ok(), "{}: {read:?}", sweep.fio);
            }
        }
        assert_eq!(missing(all).len(), 3);
    }
}
