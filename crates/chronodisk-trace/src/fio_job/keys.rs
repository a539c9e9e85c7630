//! Meaning of the keys in a job's section.

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use super::quantity::{MICROSECOND_NS, SECOND_NS};
use super::section::{Section, Setting};
use super::{Amount, FioJob, FioJobError, Rate, THREADS_MAX};
use crate::{Addresses, EXPONENT_MAX};

/// Keys about fio's work on its host, its output, or the content of its data, which don't affect the device.
const WITHOUT_EFFECT: [&str; 60] = [
    "allrandrepeat",
    "buffer_compress_chunk",
    "buffer_compress_percentage",
    "buffer_pattern",
    "clat_percentiles",
    "clocksource",
    "cpumask",
    "cpus_allowed",
    "cpus_allowed_policy",
    "dedupe_percentage",
    "description",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "disk_util",
    "filename_format",
    "fixedbufs",
    "gtod_cpu",
    "gtod_reduce",
    "hipri",
    "invalidate",
    "iomem",
    "iomem_align",
    "lat_percentiles",
    "lockmem",
    "log_avg_msec",
    "log_compression",
    "log_hist_coarseness",
    "log_hist_msec",
    "log_max_value",
    "log_offset",
    "log_unix_epoch",
    "mem",
    "mem_align",
    "name",
    "nice",
    "nonvectored",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "percentile_list",
    "per_job_logs",
    "randrepeat",
    "randseed",
    "refill_buffers",
    "registerfiles",
    "scramble_buffers",
    "significant_figures",
    "slat_percentiles",
    "sqthread_poll",
    "sqthread_poll_cpu",
    "stats",
    "thread",
    "unified_rw_reporting",
    "uncached",
    "unit_base",
    "userspace_reap",
    "write_bw_log",
    "write_iops_log",
    "write_lat_log",
    "zero_buffers",
];

/// Engines with one outstanding request per thread.
const SYNCHRONOUS: [&str; 4] = ["sync", "psync", "pvsync", "pvsync2"];
/// Engines with `iodepth` outstanding requests per thread.
const ASYNCHRONOUS: [&str; 3] = ["libaio", "io_uring", "posixaio"];

/// Values that need other keys to be complete.
#[derive(Debug, Default)]
struct Raw {
    is_mixed: bool,
    is_direct: bool,
    is_synchronous: bool,
    depth: u32,
    rate_per_s: Option<u64>,
    is_poisson: bool,
}

/// The job of a section.
pub(super) fn job(section: &Section<'_>) -> Result<FioJob, FioJobError> {
    let mut job = FioJob {
        name: section.name.to_owned(),
        line: section.line,
        read_share: 1.0,
        is_random: false,
        repeats: false,
        addresses: Addresses::Uniform,
        block_bytes: 4096,
        depth: 1,
        is_capped: false,
        offset: Amount::Bytes(0),
        offset_increment_bytes: 0,
        size: None,
        io: None,
        requests_max: None,
        threads: 1,
        rate: None,
        think: Nanos::ZERO,
        think_every: 1,
        runtime: None,
        is_time_based: false,
        start_delay: Nanos::ZERO,
        waits: false,
    };
    let mut raw = Raw { is_synchronous: true, depth: 1, ..Raw::default() };
    // The first of the two shares of a mixed job counts.
    let mut mixed_read_share = 0.5;
    for setting in &section.settings {
        match setting.key {
            "rwmixread" => mixed_read_share = setting.number(0, 100)? as f64 / 100.0,
            "rwmixwrite" => mixed_read_share = 1.0 - setting.number(0, 100)? as f64 / 100.0,
            _ => apply(setting, &mut job, &mut raw)?,
        }
    }
    if raw.is_mixed {
        job.read_share = mixed_read_share;
    }
    finish(section, job, &raw)
}

fn apply(setting: &Setting<'_>, job: &mut FioJob, raw: &mut Raw) -> Result<(), FioJobError> {
    match setting.key {
        "rw" | "readwrite" => pattern(setting, job, raw)?,
        "bs" | "blocksize" => job.block_bytes = block_bytes(setting)?,
        "iodepth" => raw.depth = setting.number(1, 1_000_000)? as u32,
        "ioengine" => raw.is_synchronous = is_synchronous(setting)?,
        "direct" => raw.is_direct = setting.flag()?,
        "buffered" => raw.is_direct = !setting.flag()?,
        // fio takes 0 for not given.
        "size" => job.size = Some(setting.amount()?).filter(|size| !size.is_zero()),
        "io_size" | "io_limit" => job.io = Some(setting.amount()?).filter(|io| !io.is_zero()),
        "number_ios" => job.requests_max = Some(setting.number(1, u64::MAX)?),
        "offset" => job.offset = setting.amount()?,
        "offset_increment" => job.offset_increment_bytes = setting.bytes("a size such as 1g")?,
        "numjobs" => job.threads = setting.number(1, u64::from(THREADS_MAX))? as u32,
        "rate_iops" => raw.rate_per_s = Some(setting.number(1, 1_000_000_000)?),
        "rate_process" => raw.is_poisson = is_poisson(setting)?,
        "thinktime" => job.think = setting.time(MICROSECOND_NS)?,
        "thinktime_blocks" => job.think_every = setting.number(1, u64::MAX)?,
        "runtime" | "timeout" => job.runtime = Some(setting.time(SECOND_NS)?).filter(|time| *time > Nanos::ZERO),
        "time_based" => job.is_time_based = setting.flag()?,
        "startdelay" => job.start_delay = setting.time(SECOND_NS)?,
        "stonewall" | "wait_for_previous" => job.waits = setting.flag()?,
        "random_distribution" => job.addresses = addresses(setting)?,
        "norandommap" => job.repeats = setting.flag()?,
        "random_generator" => only(setting, &["tausworthe", "tausworthe64", "lfsr"])?,
        // Checked for all jobs together.
        "filename" => {}
        "nrfiles" | "iodepth_batch" | "iodepth_batch_submit" | "loops" => only(setting, &["1"])?,
        "group_reporting" | "new_group" => {
            setting.flag()?;
        }
        "kb_base" => only(setting, &["1024"])?,
        key if WITHOUT_EFFECT.contains(&key) => {}
        _ => return Err(unknown(setting)),
    }
    Ok(())
}

/// Checks combinations of keys.
fn finish(section: &Section<'_>, mut job: FioJob, raw: &Raw) -> Result<FioJob, FioJobError> {
    let wrong = |keys: &[&str], missing: &str, expected: &str| match section.last(keys) {
        Some(setting) => setting.wrong(expected),
        None => FioJobError::new(section.line, keys[0], missing, expected),
    };
    if !raw.is_direct {
        let keys = &["direct", "buffered"];
        return Err(wrong(
            keys,
            "missing, so that I/O is buffered",
            "direct=1, since a device model has no page cache",
        ));
    }
    // fio caps the depth of these, and says so.
    job.depth = if raw.is_synchronous { 1 } else { raw.depth };
    job.is_capped = job.depth < raw.depth;
    job.rate = raw.rate_per_s.map(|per_s| Rate { per_s: per_s as f64, is_poisson: raw.is_poisson });
    for (keys, amount) in [(&["size"][..], job.size), (&["io_size", "io_limit"], job.io)] {
        if matches!(amount, Some(Amount::Bytes(bytes)) if !bytes.is_multiple_of(job.block_bytes)) {
            return Err(wrong(keys, "", "a multiple of bs"));
        }
    }
    if raw.is_mixed && job.rate.is_some() {
        return Err(wrong(&["rate_iops"], "", "no rate for a mixed job, whose reads and writes fio paces apart"));
    }
    if raw.is_poisson && job.rate.is_none() {
        return Err(wrong(&["rate_process"], "", "a rate_iops with it"));
    }
    if job.think > Nanos::ZERO && job.depth > 1 {
        return Err(wrong(&["thinktime"], "", "an iodepth of 1 with it"));
    }
    if job.is_time_based && job.runtime.is_none() {
        return Err(wrong(&["time_based"], "", "a runtime with it"));
    }
    if job.addresses != Addresses::Uniform && !job.is_random {
        return Err(wrong(&["random_distribution"], "", "a random rw with it"));
    }
    Ok(job)
}

fn pattern(setting: &Setting<'_>, job: &mut FioJob, raw: &mut Raw) -> Result<(), FioJobError> {
    let (is_random, is_mixed, read_share) = match setting.text() {
        "read" => (false, false, 1.0),
        "write" => (false, false, 0.0),
        "rw" | "readwrite" => (false, true, 0.5),
        "randread" => (true, false, 1.0),
        "randwrite" => (true, false, 0.0),
        "randrw" => (true, true, 0.5),
        _ => return Err(setting.wrong("read, write, rw, randread, randwrite or randrw")),
    };
    (job.is_random, job.read_share, raw.is_mixed) = (is_random, read_share, is_mixed);
    Ok(())
}

fn block_bytes(setting: &Setting<'_>) -> Result<u64, FioJobError> {
    const EXPECTED: &str = "one size, a multiple of 512 bytes up to 1g (4k is 4096 bytes, 4kib is 4000)";
    let bytes = setting.bytes(EXPECTED)?;
    if bytes == 0 || bytes > 1 << 30 || !bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(setting.wrong(EXPECTED));
    }
    Ok(bytes)
}

fn is_synchronous(setting: &Setting<'_>) -> Result<bool, FioJobError> {
    let engine = setting.text();
    if SYNCHRONOUS.contains(&engine) || ASYNCHRONOUS.contains(&engine) {
        return Ok(SYNCHRONOUS.contains(&engine));
    }
    Err(setting.wrong(format_args!("{}, {}", SYNCHRONOUS.join(", "), ASYNCHRONOUS.join(", "))))
}

fn is_poisson(setting: &Setting<'_>) -> Result<bool, FioJobError> {
    match setting.text() {
        "linear" => Ok(false),
        "poisson" => Ok(true),
        _ => Err(setting.wrong("linear or poisson")),
    }
}

fn addresses(setting: &Setting<'_>) -> Result<Addresses, FioJobError> {
    let expected = format!("random, or zipf:THETA with THETA above 0, not 1, up to {EXPONENT_MAX}");
    let exponent = match setting.text() {
        "random" => return Ok(Addresses::Uniform),
        // fio's default.
        "zipf" => 1.1,
        text => {
            let theta = text.strip_prefix("zipf:").and_then(|theta| theta.parse::<f64>().ok());
            theta.ok_or_else(|| setting.wrong(&expected))?
        }
    };
    // fio's generator is not defined at 1, and refuses it.
    if exponent > 0.0 && exponent <= EXPONENT_MAX && exponent != 1.0 {
        Ok(Addresses::Zipf { exponent })
    } else {
        Err(setting.wrong(expected))
    }
}

fn only(setting: &Setting<'_>, values: &[&str]) -> Result<(), FioJobError> {
    if values.contains(&setting.text()) { Ok(()) } else { Err(setting.wrong(values.join(" or "))) }
}

fn unknown(setting: &Setting<'_>) -> FioJobError {
    let expected = match setting.key {
        "verify" | "do_verify" | "verify_fatal" => "no verification, since a simulation has no data",
        "fsync" | "fdatasync" | "end_fsync" | "sync" | "sync_file_range" => "no synchronisation",
        "bsrange" | "bssplit" | "bs_unaligned" | "blockalign" | "ba" => "one block size (bs)",
        "directory" | "opendir" | "file_service_type" | "filesize" => {
            "one file (filename), which stands for the device"
        }
        "rate" | "rate_min" | "rate_iops_min" => "rate_iops",
        "read_iolog" => "no log; `chronodisk simulate --trace` replays one",
        "ramp_time" => "no ramp_time, since the result is of all requests",
        _ => "a key that a simulation can follow",
    };
    setting.wrong(expected)
}
