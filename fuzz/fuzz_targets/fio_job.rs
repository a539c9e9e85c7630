//! Any text as a job file of fio: an error with a line of the file, or jobs whose requests lie in their regions.
#![no_main]

use chronodisk_sim::{Nanos, Op, SECTOR_BYTES};
use chronodisk_trace::fio_job::{FioJob, FioThread, Region, THREADS_MAX, lay_out};
use libfuzzer_sys::fuzz_target;

const DEVICE_BYTES: u64 = 1 << 32;

fuzz_target!(|text: &str| {
    let jobs = match FioJob::parse(text) {
        Ok(jobs) => jobs,
        Err(error) => {
            let lines = text.lines().count().max(1);
            assert!((1..=lines).contains(&(error.line as usize)), "{error}");
            return;
        }
    };
    assert!(!jobs.is_empty());
    let Ok(files) = lay_out(&jobs, DEVICE_BYTES) else { return };
    for (job, files) in jobs.iter().zip(files) {
        assert!((1..=THREADS_MAX).contains(&job.threads) && job.depth > 0);
        let number = job.threads - 1;
        let file = files[number as usize];
        let Ok(region) = Region::new(job, number, file, 512) else { continue };
        let mut thread = FioThread::new(job, number, region, file, 1, 1);
        thread.begin(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        for _ in 0..64 {
            let Some((at, request)) = thread.next(now, 0) else { break };
            assert!(at >= now && (request.sectors > 0 || request.op == Op::Flush));
            assert!((request.lba.0 + u64::from(request.sectors)) * SECTOR_BYTES <= DEVICE_BYTES);
            now = at;
        }
    }
});
