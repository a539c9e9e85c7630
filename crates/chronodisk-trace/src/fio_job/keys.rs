//! Meaning of the keys in a job's section.

use chronodisk_sim::{Nanos, Priority, SECTOR_BYTES};

use super::engines::{self, ENGINES, Engine};
use super::options::{self, Treatment};
use super::quantity::{MICROSECOND_NS, SECOND_NS};
use super::section::{Section, Setting};
use super::{
    Amount, BlockSizes, Direction, Distribution, FioJob, FioJobError, Mix, Order, Rate, Strides, THREADS_MAX, shown,
};
use crate::EXPONENT_MAX;

/// Values that have a meaning only together with other keys.
#[derive(Debug)]
struct Raw {
    is_direct: bool,
    engine: &'static Engine,
    depth: u32,
    low: Option<u32>,
    is_mixed: bool,
    /// The text after the colon of `rw`.
    suffix: Option<String>,
    is_identical: bool,
    verifies: bool,
    reads_back: bool,
    is_strided: Option<bool>,
    kilo: u64,
    zone_bytes: u64,
    zone_range: u64,
    zone_skip: u64,
}

/// Builds the job of a section.
pub(super) fn job(section: &Section<'_>) -> Result<FioJob, FioJobError> {
    let kilo = match section.last(&["kb_base"]) {
        Some(setting) => one_of(setting, &[("1024", 1_024), ("1000", 1_000)])?,
        None => 1_024,
    };
    let mut raw = Raw {
        is_direct: false,
        engine: &ENGINES[0],
        depth: 1,
        low: None,
        is_mixed: false,
        suffix: None,
        is_identical: false,
        verifies: false,
        reads_back: true,
        is_strided: None,
        kilo,
        zone_bytes: 0,
        zone_range: 0,
        zone_skip: 0,
    };
    let mut job = plain(section);
    // The shares of a mixed job apply regardless of their order.
    let mut mixed_read_share = 0.5;
    for setting in &section.settings {
        let setting = &Setting { kilo, ..*setting };
        match setting.key {
            "rwmixread" => mixed_read_share = setting.number(0, 100)? as f64 / 100.0,
            "rwmixwrite" => mixed_read_share = 1.0 - setting.number(0, 100)? as f64 / 100.0,
            _ => apply(setting, &mut job, &mut raw)?,
        }
    }
    if raw.is_mixed {
        job.mix = Mix::ReadsAndWrites { read_share: mixed_read_share };
    }
    finish(section, job, &raw)
}

/// A job with fio's defaults.
fn plain(section: &Section<'_>) -> FioJob {
    FioJob {
        name: section.name.to_owned(),
        line: section.line,
        mix: Mix::Only(Direction::Read),
        order: Order::Sequential { gap_bytes: 0 },
        random_shares: [1.0; 3],
        repeats: false,
        distribution: Distribution::Uniform,
        sizes: [const { BlockSizes::One(4_096) }; 3],
        align: [None; 3],
        strides: None,
        engine: &ENGINES[0],
        depth: 1,
        is_capped: false,
        complete_min: 1,
        low: u32::MAX,
        file: None,
        directory: String::new(),
        file_format: None,
        file_size: None,
        offset: Amount::Bytes(0),
        offset_align: None,
        offset_increment: Amount::Bytes(0),
        size: None,
        io: None,
        loops: 1,
        requests_max: None,
        threads: 1,
        rates: [None; 3],
        is_poisson: false,
        think: Nanos::ZERO,
        think_every: 1,
        runtime: None,
        is_time_based: false,
        ramp: Nanos::ZERO,
        start_delay: Nanos::ZERO,
        waits: false,
        waits_for: None,
        flush_every: 0,
        flushes_at_end: false,
        waits_for_flush: true,
        forces_writes: false,
        priority: Priority::Normal,
        urgent_shares: [0.0; 3],
        urgency: Priority::High,
    }
}

/// Applies an option from the table, which tells whether it is supported.
fn apply(setting: &Setting<'_>, job: &mut FioJob, raw: &mut Raw) -> Result<(), FioJobError> {
    let Some(option) = options::find(setting.key) else {
        return Err(setting.wrong("an option of fio 3.33"));
    };
    match option.treatment {
        Treatment::Ignored(_) => Ok(()),
        Treatment::Refused(expected) => refuse(setting, expected),
        Treatment::Honoured(_) => {
            let is_done = operations(setting, job, raw)?
                || space(setting, job)?
                || time(setting, job)?
                || queue(setting, job, raw)?
                || zones(setting, raw)?;
            if is_done { Ok(()) } else { Err(setting.wrong("a key that a simulation can follow")) }
        }
    }
}

/// Refuses an option, unless it is switched off or has no value.
fn refuse(setting: &Setting<'_>, expected: &str) -> Result<(), FioJobError> {
    match setting.value {
        Some("0" | "" | "none") => Ok(()),
        _ => Err(setting.wrong(expected)),
    }
}

/// Options for the operation and its length.
fn operations(setting: &Setting<'_>, job: &mut FioJob, raw: &mut Raw) -> Result<bool, FioJobError> {
    match setting.key {
        "rw" => pattern(setting, job, raw)?,
        "rw_sequencer" => raw.is_identical = one_of(setting, &[("sequential", false), ("identical", true)])?,
        "bs" => {
            let mut sizes = job.sizes.clone();
            setting.triplet(&mut sizes, |text| block_bytes(setting, text).map(BlockSizes::One))?;
            job.sizes = sizes;
        }
        "bsrange" => {
            let mut sizes = job.sizes.clone();
            setting.triplet(&mut sizes, |text| range(setting, text))?;
            job.sizes = sizes;
        }
        "bssplit" => {
            let mut sizes = job.sizes.clone();
            setting.triplet(&mut sizes, |text| split(setting, text))?;
            job.sizes = sizes;
        }
        "ba" => setting.triplet(&mut job.align, |text| block_bytes(setting, text).map(Some))?,
        "fsync" | "fdatasync" => job.flush_every = setting.number(0, u64::MAX)?,
        "end_fsync" | "fsync_on_close" => job.flushes_at_end |= setting.flag()?,
        "sync" => {
            let values = [("0", false), ("none", false), ("", true), ("1", true), ("sync", true), ("dsync", true)];
            job.forces_writes |= one_of(setting, &values)?;
        }
        "writefua" => job.forces_writes |= setting.flag()?,
        "sg_write_mode" => one_of(setting, &[("write", ())])?,
        "verify" => {
            raw.verifies = !matches!(setting.text(), "0" | "none" | "null");
        }
        "do_verify" => raw.reads_back = setting.flag()?,
        "prioclass" => job.priority = priority(setting)?,
        "prio" => {
            setting.number(0, 7)?;
        }
        "cmdprio_class" => job.urgency = priority(setting)?,
        "cmdprio_percentage" => setting.triplet(&mut job.urgent_shares, |text| share(setting, text))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options for the addresses.
fn space(setting: &Setting<'_>, job: &mut FioJob) -> Result<bool, FioJobError> {
    const SIZE: &str = "a size such as 1g";
    match setting.key {
        // In fio, 0 means not given.
        "size" => job.size = Some(setting.amount()?).filter(|size| !size.is_zero()),
        "io_size" => job.io = Some(setting.amount()?).filter(|io| !io.is_zero()),
        "fill_device" => {
            if setting.flag()? {
                job.size = None;
            }
        }
        "filesize" => job.file_size = Some(setting.bytes("one size such as 1g")?).filter(|bytes| *bytes > 0),
        "number_ios" => job.requests_max = Some(setting.number(0, u64::MAX)?).filter(|count| *count > 0),
        "loops" => job.loops = setting.number(0, u64::from(u32::MAX))?.max(1) as u32,
        "offset" => job.offset = setting.amount()?,
        "offset_increment" => job.offset_increment = setting.amount()?,
        "offset_align" => job.offset_align = Some(setting.bytes(SIZE)?).filter(|bytes| *bytes > 0),
        "numjobs" => job.threads = setting.number(1, u64::from(THREADS_MAX))? as u32,
        "norandommap" => job.repeats = setting.flag()?,
        "random_distribution" => job.distribution = distribution(setting)?,
        "percentage_random" => setting.triplet(&mut job.random_shares, |text| share(setting, text))?,
        "filename" => {
            let name = setting.text();
            if name.is_empty() || (name.contains(':') && !name.starts_with('\\')) {
                return Err(setting.wrong("one file, which stands for the device"));
            }
            job.file = Some(name.to_owned());
        }
        "directory" => {
            if setting.text().contains(':') {
                return Err(setting.wrong("one directory"));
            }
            job.directory = format!("{}/", setting.text());
        }
        "filename_format" => {
            let format = setting.text();
            let rest =
                ["$jobname", "$jobnum", "$filenum"].iter().fold(format.to_owned(), |rest, name| rest.replace(name, ""));
            if rest.contains('$') {
                return Err(setting.wrong("$jobname, $jobnum and $filenum alone"));
            }
            job.file_format = Some(format.to_owned());
        }
        "nrfiles" => {
            setting.number(1, 1)?;
        }
        "kb_base" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options for the timing.
fn time(setting: &Setting<'_>, job: &mut FioJob) -> Result<bool, FioJobError> {
    match setting.key {
        "rate" => {
            let per_s = |text: &str| setting.bytes_of(text).ok_or_else(|| setting.wrong("bytes per second such as 1m"));
            setting.triplet(&mut job.rates, |text| per_s(text).map(|bytes| rate(bytes, Rate::Bytes)))?;
        }
        "rate_iops" => {
            let expected = "a whole number from 0 to 1000000000";
            let per_s = |text: &str| {
                setting.bytes_of(text).filter(|per_s| *per_s <= 1_000_000_000).ok_or_else(|| setting.wrong(expected))
            };
            setting.triplet(&mut job.rates, |text| per_s(text).map(|requests| rate(requests, Rate::Requests)))?;
        }
        "rate_process" => job.is_poisson = one_of(setting, &[("linear", false), ("poisson", true)])?,
        "rate_ignore_thinktime" => refuse(setting, "0: a pace that goes on during a thinktime")?,
        "thinktime" => job.think = setting.time(MICROSECOND_NS)?,
        "thinktime_blocks" => job.think_every = setting.number(0, u64::MAX)?.max(1),
        "thinktime_blocks_type" => one_of(setting, &[("complete", ()), ("issue", ())])?,
        "runtime" => job.runtime = Some(setting.time(SECOND_NS)?).filter(|time| *time > Nanos::ZERO),
        "time_based" => job.is_time_based = setting.flag()?,
        "ramp_time" => job.ramp = setting.time(SECOND_NS)?,
        "startdelay" => job.start_delay = setting.time(SECOND_NS)?,
        "stonewall" => job.waits = setting.flag()?,
        "wait_for" => job.waits_for = Some(setting.text().to_owned()).filter(|name| !name.is_empty() && name != "none"),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options for the number of outstanding requests.
fn queue(setting: &Setting<'_>, job: &mut FioJob, raw: &mut Raw) -> Result<bool, FioJobError> {
    const DEPTH_MAX: u64 = 1_000_000;
    match setting.key {
        "iodepth" => raw.depth = setting.number(1, DEPTH_MAX)? as u32,
        "iodepth_batch_complete_min" => job.complete_min = setting.number(0, DEPTH_MAX)? as u32,
        "iodepth_low" => raw.low = Some(setting.number(0, DEPTH_MAX)? as u32).filter(|low| *low > 0),
        "ioengine" => {
            let names = || ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>().join(", ");
            raw.engine = engines::engine(setting.text()).ok_or_else(|| setting.wrong(names()))?;
        }
        "direct" => raw.is_direct = setting.flag()?,
        "buffered" => raw.is_direct = !setting.flag()?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn zones(setting: &Setting<'_>, raw: &mut Raw) -> Result<bool, FioJobError> {
    const SIZE: &str = "a size such as 256m";
    match setting.key {
        "zonemode" => {
            raw.is_strided = match setting.text() {
                "none" => Some(false),
                "strided" => Some(true),
                _ => {
                    return Err(setting.wrong("none or strided; `--workload seq-write` and `zone-append` use zones"));
                }
            }
        }
        "zonesize" => raw.zone_bytes = setting.bytes(SIZE)?,
        "zonerange" => raw.zone_range = setting.bytes(SIZE)?,
        "zoneskip" => raw.zone_skip = setting.bytes(SIZE)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Checks combinations of keys.
fn finish(section: &Section<'_>, mut job: FioJob, raw: &Raw) -> Result<FioJob, FioJobError> {
    let wrong = |keys: &[&str], missing: &str, expected: &str| match section.last(keys) {
        Some(setting) => setting.wrong(expected),
        None => FioJobError::new(section.line, keys[0], missing, expected),
    };
    job.engine = raw.engine;
    if !raw.is_direct && raw.engine.uses_page_cache {
        let keys = &["direct", "buffered"];
        let expected = "direct=1, since a device model has no page cache";
        return Err(wrong(keys, "missing, so that I/O is buffered", expected));
    }
    // fio limits the depth of these engines to one, and prints a note.
    job.depth = if raw.engine.is_synchronous { 1 } else { raw.depth };
    job.is_capped = job.depth < raw.depth;
    job.low = raw.low.unwrap_or(job.depth);
    job.waits_for_flush = raw.engine.waits_for_flush;
    order(section, &mut job, raw)?;
    strides(section, &mut job, raw)?;
    if job.is_poisson && job.rates == [None; 3] {
        return Err(wrong(&["rate_process"], "", "a rate or rate_iops with it"));
    }
    if job.is_time_based && job.runtime.is_none() {
        return Err(wrong(&["time_based"], "", "a runtime with it"));
    }
    if job.loops > 1 && (job.io.is_some() || job.is_time_based) {
        return Err(wrong(&["loops"], "", "no io_size and no time_based with it"));
    }
    let is_of_zones = matches!(job.distribution, Distribution::Zoned(_) | Distribution::ZonedBytes(_));
    if job.distribution != Distribution::Uniform && (!job.is_random() || (is_of_zones && job.strides.is_some())) {
        return Err(wrong(&["random_distribution"], "", "a random rw with it, and no zonemode"));
    }
    let writes = job.directions().any(|direction| direction != Direction::Read);
    if raw.verifies && raw.reads_back && writes {
        let expected = "no verification, which reads what was written, or do_verify=0";
        return Err(wrong(&["verify"], "", expected));
    }
    Ok(job)
}

/// The meaning of the part of `rw` after the colon depends on the order.
fn order(section: &Section<'_>, job: &mut FioJob, raw: &Raw) -> Result<(), FioJobError> {
    let Some(setting) = section.last(&["rw"]) else { return Ok(()) };
    let setting = &Setting { kilo: raw.kilo, ..*setting };
    match &mut job.order {
        Order::Sequential { gap_bytes } => {
            let Some(suffix) = &raw.suffix else { return Ok(()) };
            let (sign, size) = suffix.strip_prefix('-').map_or((1, suffix.as_str()), |size| (-1, size));
            let bytes = setting.bytes_of(size).and_then(|bytes| i64::try_from(bytes).ok());
            let bytes = bytes.filter(|bytes| bytes.unsigned_abs().is_multiple_of(SECTOR_BYTES));
            let expected = "a gap of whole sectors behind the colon, such as write:8k or read:-8k";
            *gap_bytes = sign * bytes.ok_or_else(|| setting.wrong(expected))?;
        }
        Order::Random { run, is_identical } => {
            if let Some(suffix) = &raw.suffix {
                let expected = "a number of requests behind the colon, such as randread:8";
                let count = suffix.parse().ok().filter(|count| *count > 0);
                *run = count.ok_or_else(|| setting.wrong(expected))?;
            }
            *is_identical = raw.is_identical;
        }
    }
    Ok(())
}

fn strides(section: &Section<'_>, job: &mut FioJob, raw: &Raw) -> Result<(), FioJobError> {
    let given = ["zonesize", "zonerange", "zoneskip"];
    // If a zone size but no mode is given, fio uses strides.
    if !raw.is_strided.unwrap_or(raw.zone_bytes > 0) {
        return Ok(());
    }
    let setting = section.last(&given).or(section.last(&["zonemode"]));
    let length_bytes = if raw.zone_range == 0 { raw.zone_bytes } else { raw.zone_range };
    let is_whole = [raw.zone_bytes, length_bytes, raw.zone_skip].iter().all(|size| size.is_multiple_of(SECTOR_BYTES));
    if let Some(setting) = setting.filter(|_| raw.zone_bytes == 0 || !is_whole) {
        return Err(setting.wrong("a zonesize, and sizes of whole sectors"));
    }
    job.strides = Some(Strides { used_bytes: raw.zone_bytes, length_bytes, skipped_bytes: raw.zone_skip });
    Ok(())
}

fn pattern(setting: &Setting<'_>, job: &mut FioJob, raw: &mut Raw) -> Result<(), FioJobError> {
    let (name, suffix) = match setting.text().split_once(':') {
        Some((name, suffix)) => (name, Some(suffix)),
        None => (setting.text(), None),
    };
    let (kind, is_random) = match name.strip_prefix("rand") {
        Some(kind) => (kind, true),
        None => (name, false),
    };
    raw.is_mixed = matches!(kind, "rw" | "readwrite");
    job.mix = match kind {
        "read" => Mix::Only(Direction::Read),
        "write" => Mix::Only(Direction::Write),
        "trim" => Mix::Only(Direction::Trim),
        "rw" => Mix::ReadsAndWrites { read_share: 0.5 },
        "readwrite" if !is_random => Mix::ReadsAndWrites { read_share: 0.5 },
        "trimwrite" => Mix::TrimThenWrite,
        _ => {
            let expected = "read, write, trim, rw, trimwrite, or one of these with rand before it";
            return Err(setting.wrong(expected));
        }
    };
    raw.suffix = suffix.map(str::to_owned);
    job.order = match is_random {
        true => Order::Random { run: 1, is_identical: false },
        false => Order::Sequential { gap_bytes: 0 },
    };
    Ok(())
}

fn block_bytes(setting: &Setting<'_>, text: &str) -> Result<u64, FioJobError> {
    let bytes = setting.bytes_of(text);
    let fits = |bytes: &u64| *bytes > 0 && *bytes <= 1 << 30 && bytes.is_multiple_of(SECTOR_BYTES);
    bytes.filter(fits).ok_or_else(|| {
        setting.wrong("a multiple of 512 bytes up to 1g (4k is 4096 bytes, 4kib is 4000 unless kb_base says otherwise)")
    })
}

fn range(setting: &Setting<'_>, text: &str) -> Result<BlockSizes, FioJobError> {
    let Some((one, other)) = text.split_once(['-', ':']) else {
        return Err(setting.wrong("a range such as 4k-64k"));
    };
    let (one, other) = (block_bytes(setting, one.trim())?, block_bytes(setting, other.trim())?);
    let (min, max) = (one.min(other), one.max(other));
    if !max.is_multiple_of(min) {
        return Err(setting.wrong("a range whose end is a multiple of its beginning"));
    }
    Ok(if min == max { BlockSizes::One(min) } else { BlockSizes::Range { min, max } })
}

/// Parses `4k/50:64k/`: sizes without a share have equal parts of the rest.
fn split(setting: &Setting<'_>, text: &str) -> Result<BlockSizes, FioJobError> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, percent) = part.split_once('/').unwrap_or((part, ""));
        sizes.push((block_bytes(setting, size.trim())?, percent_of(setting, percent.trim())?));
    }
    Ok(BlockSizes::Split(complete(setting, sizes)?))
}

fn percent_of(setting: &Setting<'_>, text: &str) -> Result<Option<f64>, FioJobError> {
    if text.is_empty() {
        return Ok(None);
    }
    let percent = text.trim_end_matches('%').parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(Some).ok_or_else(|| setting.wrong("shares from 0 to 100"))
}

/// Divides the rest equally among sizes without a share.
fn complete<T>(setting: &Setting<'_>, parts: Vec<(T, Option<f64>)>) -> Result<Vec<(T, f64)>, FioJobError> {
    let given: f64 = parts.iter().filter_map(|(_, share)| *share).sum();
    let missing = parts.iter().filter(|(_, share)| share.is_none()).count();
    if given > 100.0 + 1e-6 {
        return Err(setting.wrong("shares of at most 100 in all"));
    }
    let part = (100.0 - given).max(0.0) / missing.max(1) as f64;
    Ok(parts.into_iter().map(|(value, share)| (value, share.unwrap_or(part))).collect())
}

fn share(setting: &Setting<'_>, text: &str) -> Result<f64, FioJobError> {
    let percent = text.parse::<u64>().ok().filter(|percent| *percent <= 100);
    percent.map(|percent| percent as f64 / 100.0).ok_or_else(|| setting.wrong("shares from 0 to 100"))
}

fn rate(per_s: u64, of: impl Fn(f64) -> Rate) -> Option<Rate> {
    // In fio, 0 means not given.
    (per_s > 0).then(|| of(per_s as f64))
}

fn priority(setting: &Setting<'_>) -> Result<Priority, FioJobError> {
    Ok(match setting.number(0, 3)? {
        1 => Priority::High,
        3 => Priority::Idle,
        _ => Priority::Normal,
    })
}

fn distribution(setting: &Setting<'_>) -> Result<Distribution, FioJobError> {
    let (name, parameter) = match setting.text().split_once(':') {
        Some((name, parameter)) => (name, Some(parameter)),
        None => (setting.text(), None),
    };
    let number = |default: f64| match parameter {
        Some(text) => text.parse::<f64>().ok(),
        None => Some(default),
    };
    // Numbers without a parameter are fio's defaults.
    let found = match name {
        "random" if parameter.is_none() => Some(Distribution::Uniform),
        // fio's generator is not defined at 1, so fio refuses it.
        "zipf" => {
            number(1.1).filter(|theta| *theta > 0.0 && *theta <= EXPONENT_MAX && *theta != 1.0).map(Distribution::Zipf)
        }
        "pareto" => number(0.2).filter(|power| *power > 0.0 && *power < 1.0).map(Distribution::Pareto),
        "normal" => number(0.0).filter(|percent| (0.0..=100.0).contains(percent)).map(Distribution::Normal),
        "zoned" => return zoned(setting, parameter.unwrap_or_default()),
        "zoned_abs" => return zoned_bytes(setting, parameter.unwrap_or_default()),
        _ => None,
    };
    found.ok_or_else(|| {
        setting.wrong(format_args!(
            "random, zipf:THETA (above 0, not 1, up to {EXPONENT_MAX}), pareto:POWER (between 0 and 1), normal:DEVIATION \
             (0 to 100), zoned:ACCESS/SIZE:... or zoned_abs:ACCESS/SIZE:..."
        ))
    })
}

const ZONES: &str = "zones for all operations, such as 60/10:30/20:10/70";

fn zoned(setting: &Setting<'_>, text: &str) -> Result<Distribution, FioJobError> {
    let mut zones = Vec::new();
    for (access, size) in zone_parts(setting, text)? {
        zones.push((access, percent_of(setting, size)?));
    }
    let shares: Vec<f64> = zones.iter().filter_map(|(share, _)| *share).collect();
    let sizes = complete(setting, zones.iter().map(|(_, size)| ((), *size)).collect())?;
    let accesses = complete(setting, zones.iter().map(|(share, _)| ((), *share)).collect())?;
    if shares.is_empty() {
        return Err(setting.wrong(ZONES));
    }
    Ok(Distribution::Zoned(accesses.iter().zip(&sizes).map(|((_, access), (_, size))| (*access, *size)).collect()))
}

fn zoned_bytes(setting: &Setting<'_>, text: &str) -> Result<Distribution, FioJobError> {
    let (mut accesses, mut sizes) = (Vec::new(), Vec::new());
    for (access, size) in zone_parts(setting, text)? {
        accesses.push(((), access));
        sizes.push(setting.bytes_of(size).filter(|bytes| *bytes > 0).ok_or_else(|| setting.wrong(ZONES))?);
    }
    let accesses = complete(setting, accesses)?;
    Ok(Distribution::ZonedBytes(accesses.iter().map(|(_, access)| *access).zip(sizes).collect()))
}

fn zone_parts<'a>(setting: &Setting<'_>, text: &'a str) -> Result<Vec<(Option<f64>, &'a str)>, FioJobError> {
    if text.is_empty() || text.contains(',') {
        return Err(setting.wrong(ZONES));
    }
    let part = |part: &'a str| {
        let (access, size) = part.split_once('/').ok_or_else(|| setting.wrong(ZONES))?;
        Ok((percent_of(setting, access.trim())?, size.trim()))
    };
    text.split(':').map(part).collect()
}

fn one_of<T: Copy>(setting: &Setting<'_>, values: &[(&str, T)]) -> Result<T, FioJobError> {
    let found = values.iter().find(|(name, _)| *name == setting.text()).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        setting.wrong(names.join(" or "))
    })
}

/// Checks combinations of options of several jobs.
pub(super) fn expect_order(sections: &[Section<'_>], jobs: &[FioJob]) -> Result<(), FioJobError> {
    let wrong = |index: usize, key: &str, expected: &str| {
        let section: &Section<'_> = &sections[index];
        let found = section.last(&[key]).map_or_else(|| "missing".to_owned(), |one| shown(one.text()));
        FioJobError::new(section.line, key, format_args!("{found} in [{}]", shown(section.name)), expected)
    };
    for (index, job) in jobs.iter().enumerate() {
        if let Some(name) = &job.waits_for {
            let is_before = index > 0 && jobs[index - 1].name == *name;
            // Other jobs that run at the same time as the previous one would be waited for, too.
            let is_alone = index == 1 || (index > 1 && (jobs[index - 1].waits || jobs[index - 1].waits_for.is_some()));
            if !is_before || !is_alone {
                return Err(wrong(index, "wait_for", "the job before it, which no other one accompanies"));
            }
        }
    }
    let first = &jobs[0];
    for (index, job) in jobs.iter().enumerate() {
        let waits = index > 0 && (job.waits || job.waits_for.is_some());
        let together = job.ramp == first.ramp && !waits && job.start_delay == Nanos::ZERO;
        if (job.ramp > Nanos::ZERO || first.ramp > Nanos::ZERO) && !together {
            return Err(wrong(index, "ramp_time", "the same for all jobs, without stonewall and startdelay"));
        }
    }
    Ok(())
}
