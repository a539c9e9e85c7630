//! The options of fio 3.33, and their treatment in a simulation.

use super::engines;

/// An option of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FioOption {
    /// First name of the option.
    pub name: &'static str,
    /// Other names of the option.
    pub aliases: &'static [&'static str],
    /// Treatment of the option.
    pub treatment: Treatment,
}

/// The treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The option is supported; the text describes its values.
    Honoured(&'static str),
    /// The option has no effect on the requests that reach the device; the text gives the reason.
    Ignored(&'static str),
    /// The option is refused; the text is the expected value.
    Refused(&'static str),
}

use Treatment::{Honoured, Ignored, Refused};

/// The option with this name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static FioOption> {
    let of_name = |option: &&FioOption| option.name == name || option.aliases.contains(&name);
    OPTIONS.iter().find(of_name).or_else(|| engines::OPTIONS.iter().find(of_name))
}

const fn is(name: &'static str, treatment: Treatment) -> FioOption {
    FioOption { name, aliases: &[], treatment }
}

const fn also(name: &'static str, aliases: &'static [&'static str], treatment: Treatment) -> FioOption {
    FioOption { name, aliases, treatment }
}

const REPORT: Treatment = Ignored("it is of fio's report");
const LOG: Treatment = Ignored("it is of fio's logs");
const DATA: Treatment = Ignored("it is of the data, which a model does not see");
const HOST: Treatment = Ignored("it is of fio's process on its host");
const FILE: Treatment = Ignored("it is of how files are made, opened and removed");
const SEED: Treatment = Ignored("`--seed` seeds the addresses");
const ERRORS: Treatment = Ignored("a model fails requests only where its profile says so");
const OF_VERIFY: Treatment = Ignored("it only has an effect with `verify`");
const VERIFY: Treatment = Refused("no verification, which reads what was written");
const OF_TARGET: Treatment = Ignored("it only has an effect with `latency_target`");
const OF_REPLAY: Treatment = Ignored("it only has an effect with `read_iolog`");
const OF_CGROUP: Treatment = Ignored("it only has an effect with `cgroup`");
const OF_STEADY: Treatment = Ignored("it only has an effect with `steadystate`");
const LOG_REPLAY: Treatment = Refused("no log; `chronodisk simulate --trace` replays one");
const ZONED: Treatment = Ignored("it only has an effect with `zonemode=zbd`");
const JOB_FILES: Treatment = Refused("one file (filename), which stands for the device");

/// All options in `fio --cmdhelp`, in its order.
pub const OPTIONS: &[FioOption] = &[
    is("description", REPORT),
    is("name", REPORT),
    is("wait_for", Honoured("the job before it, which then ends before this one begins")),
    is("filename", Honoured("one file or device; several files lie side by side on the device")),
    is("lockfile", Refused("no locks between jobs")),
    is("directory", Honoured("one directory; it only tells files apart")),
    is("filename_format", Honoured("with $jobname, $jobnum and $filenum; it only tells files apart")),
    is("unique_filename", HOST),
    is("opendir", JOB_FILES),
    also(
        "rw",
        &["readwrite"],
        Honoured(
            "read, write, trim, rw, readwrite, trimwrite, and these at random; :N behind a random one, :SIZE behind a \
             sequential one",
        ),
    ),
    also("bs", &["blocksize"], Honoured("a size for all operations, or reads,writes,trims; multiples of 512 bytes")),
    also("ba", &["blockalign"], Honoured("a size for all operations, or reads,writes,trims")),
    also("bsrange", &["blocksize_range"], Honoured("ranges, or reads,writes,trims")),
    is("bssplit", Honoured("SIZE/PERCENT:..., or reads,writes,trims")),
    also("bs_unaligned", &["blocksize_unaligned"], Refused("blocks of whole sectors")),
    is("randrepeat", SEED),
    is("randseed", SEED),
    is("norandommap", Honoured("lets a random block come again before all others have come")),
    is("ignore_error", ERRORS),
    is("rw_sequencer", Honoured("sequential, identical")),
    is("ioengine", Honoured("the engines of the second table")),
    is("iodepth", Honoured("any; synchronous engines keep one request outstanding, as fio says")),
    also(
        "iodepth_batch",
        &["iodepth_batch_submit"],
        Ignored("requests that fio submits together arrive at the same instant in a simulation anyway"),
    ),
    also(
        "iodepth_batch_complete_min",
        &["iodepth_batch_complete"],
        Honoured("a full queue waits for so many completions"),
    ),
    is("iodepth_batch_complete_max", Ignored("completions that are there are taken in no time")),
    is("iodepth_low", Honoured("a full queue drains to so many requests")),
    is("serialize_overlap", Refused("no waiting for overlapping requests")),
    is("io_submit_mode", Ignored("submission takes no time in a simulation")),
    is("size", Honoured("a size, or a share of the device such as 50%")),
    also("io_size", &["io_limit"], Honoured("a size, or a share of the device")),
    also("fill_device", &["fill_fs"], Honoured("writes the rest of the device")),
    is("filesize", Honoured("one size")),
    is("file_append", Refused("a place by offset")),
    also("offset", &["fileoffset"], Honoured("a size, or a share of the device")),
    is("offset_increment", Honoured("a size, or a share of the device")),
    is("offset_align", Honoured("a size")),
    is("number_ios", Honoured("any")),
    is("random_generator", Ignored("the order of random blocks comes from Chronodisk's own streams")),
    is(
        "random_distribution",
        Honoured(
            "random, zipf:THETA, pareto:POWER, normal:DEVIATION, zoned:ACCESS/SIZE:..., zoned_abs:ACCESS/SIZE:...",
        ),
    ),
    is("percentage_random", Honoured("0 to 100, or reads,writes,trims")),
    is("allrandrepeat", SEED),
    also("nrfiles", &["nr_files"], Honoured("1")),
    is("file_service_type", Ignored("a job has one file")),
    is("openfiles", FILE),
    is("fallocate", FILE),
    is("fadvise_hint", HOST),
    is("fsync", Honoured("flushes a volatile cache after so many writes")),
    is("fdatasync", Honoured("flushes a volatile cache after so many writes")),
    is("write_barrier", Refused("fsync or fdatasync")),
    is("sync_file_range", Refused("fsync or fdatasync")),
    is("direct", Honoured("1, which must be given: a device model has no page cache")),
    is("atomic", Refused("writes that are not atomic")),
    is("buffered", Honoured("0")),
    is("overwrite", FILE),
    is("loops", Honoured("any, without io_size and time_based")),
    is("numjobs", Honoured("any; 4,096 threads in all")),
    is("startdelay", Honoured("one time")),
    also("runtime", &["timeout"], Honoured("any")),
    is("time_based", Honoured("with a runtime")),
    is("verify_only", VERIFY),
    is("ramp_time", Honoured("the same for all jobs, which begin together; its requests are not in the figures")),
    is("clocksource", HOST),
    also("mem", &["iomem"], HOST),
    is("verify", Honoured("for jobs that only read, and with do_verify=0; else it is refused")),
    is("do_verify", Honoured("0 leaves out the reads of `verify`")),
    is("verify_interval", OF_VERIFY),
    is("verify_offset", OF_VERIFY),
    is("verify_pattern", OF_VERIFY),
    is("verify_fatal", OF_VERIFY),
    is("verify_dump", OF_VERIFY),
    is("verify_async", OF_VERIFY),
    is("verify_backlog", VERIFY),
    is("verify_backlog_batch", OF_VERIFY),
    is("experimental_verify", OF_VERIFY),
    is("verify_state_load", VERIFY),
    is("verify_state_save", OF_VERIFY),
    is("trim_percentage", Refused("trims by rw, such as rw=randtrim")),
    is("trim_verify_zero", OF_VERIFY),
    is("trim_backlog", Refused("trims by rw, such as rw=randtrim")),
    is("trim_backlog_batch", OF_VERIFY),
    is("write_iolog", LOG),
    is("read_iolog", LOG_REPLAY),
    is("read_iolog_chunked", OF_REPLAY),
    is("replay_no_stall", OF_REPLAY),
    is("replay_redirect", OF_REPLAY),
    is("replay_scale", OF_REPLAY),
    is("replay_align", OF_REPLAY),
    is("replay_time_scale", OF_REPLAY),
    is("replay_skip", OF_REPLAY),
    is("merge_blktrace_file", LOG_REPLAY),
    is("merge_blktrace_scalars", OF_REPLAY),
    is("merge_blktrace_iters", OF_REPLAY),
    is("exec_prerun", Refused("no program before the job; `chronodisk age` makes a used device")),
    is("exec_postrun", HOST),
    is("ioscheduler", Refused("no scheduler of the host; `--host-queue` has one")),
    is("zonemode", Honoured("none, strided")),
    is("zonesize", Honoured("with zonemode=strided")),
    is("zonecapacity", ZONED),
    is("zonerange", Honoured("with zonemode=strided")),
    is("zoneskip", Honoured("with zonemode=strided")),
    is("read_beyond_wp", ZONED),
    is("max_open_zones", ZONED),
    is("job_max_open_zones", ZONED),
    is("ignore_zone_limits", ZONED),
    is("zone_reset_threshold", ZONED),
    is("zone_reset_frequency", ZONED),
    is("lockmem", HOST),
    is("rwmixread", Honoured("0 to 100")),
    is("rwmixwrite", Honoured("0 to 100")),
    is("nice", HOST),
    is("prio", Honoured("0 to 7; only the class has an effect")),
    is("prioclass", Honoured("0 (none), 1 (real-time), 2 (best effort), 3 (idle)")),
    is("thinktime", Honoured("any; requests that are outstanding complete before a pause")),
    is("thinktime_spin", HOST),
    is("thinktime_blocks", Honoured("any")),
    is("thinktime_blocks_type", Honoured("complete, issue: a pause begins when nothing is outstanding")),
    is("thinktime_iotime", Refused("thinktime_blocks")),
    is("rate", Honoured("bytes per second, or reads,writes,trims")),
    also("rate_min", &["ratemin"], Refused("no job that ends by its own measurement")),
    is("rate_process", Honoured("linear, poisson")),
    also("rate_cycle", &["ratecycle"], Ignored("it is the window of rate_min")),
    is("rate_ignore_thinktime", Honoured("0")),
    is("rate_iops", Honoured("requests per second, or reads,writes,trims")),
    is("rate_iops_min", Refused("no job that ends by its own measurement")),
    is("max_latency", Refused("no job that ends by its own measurement")),
    is("latency_target", Refused("a fixed iodepth")),
    is("latency_window", OF_TARGET),
    is("latency_percentile", OF_TARGET),
    is("latency_run", OF_TARGET),
    is("invalidate", Ignored("it is of the page cache, which direct I/O passes")),
    is("sync", Honoured("0, none; 1, sync, dsync: each write is forced to the medium (FUA)")),
    is("write_hint", Ignored("models know no lifetimes of data")),
    is("create_serialize", FILE),
    is("create_fsync", FILE),
    is("create_on_open", FILE),
    is("create_only", Refused("a job that does I/O")),
    is("allow_file_create", FILE),
    is("allow_mounted_write", FILE),
    is("pre_read", Refused("a job of its own that reads before")),
    is("cpumask", HOST),
    is("cpus_allowed", HOST),
    is("cpus_allowed_policy", HOST),
    is("numa_cpu_nodes", HOST),
    is("numa_mem_policy", HOST),
    is("end_fsync", Honoured("flushes a volatile cache at the end of a job that writes")),
    is("fsync_on_close", Honoured("flushes a volatile cache at the end of a job that writes")),
    is("unlink", FILE),
    is("unlink_each_loop", FILE),
    is("exitall", Refused("jobs that end by themselves")),
    is("exit_what", Ignored("it only has an effect with `exitall`")),
    is("exitall_on_error", ERRORS),
    also("stonewall", &["wait_for_previous"], Honoured("the job begins when all before it have ended")),
    is("new_group", REPORT),
    also("thread", &["threads"], HOST),
    is("per_job_logs", LOG),
    is("write_bw_log", LOG),
    is("bwavgtime", LOG),
    is("write_lat_log", LOG),
    is("write_iops_log", LOG),
    is("iopsavgtime", LOG),
    is("log_entries", LOG),
    is("log_avg_msec", LOG),
    is("log_hist_msec", LOG),
    is("log_hist_coarseness", LOG),
    is("write_hist_log", LOG),
    is("log_max_value", LOG),
    is("log_offset", LOG),
    is("log_prio", LOG),
    is("log_compression", LOG),
    is("log_compression_cpus", LOG),
    is("log_store_compressed", LOG),
    is("log_unix_epoch", LOG),
    is("log_alternate_epoch", LOG),
    is("log_alternate_epoch_clock_id", LOG),
    is("block_error_percentiles", REPORT),
    is("group_reporting", REPORT),
    is("stats", REPORT),
    is("zero_buffers", DATA),
    is("refill_buffers", DATA),
    is("scramble_buffers", DATA),
    is("buffer_pattern", DATA),
    is("buffer_compress_percentage", DATA),
    is("buffer_compress_chunk", DATA),
    is("dedupe_percentage", DATA),
    is("dedupe_mode", DATA),
    is("dedupe_working_set_percentage", DATA),
    is("dedupe_global", DATA),
    is("clat_percentiles", REPORT),
    is("lat_percentiles", REPORT),
    is("slat_percentiles", REPORT),
    is("percentile_list", REPORT),
    is("significant_figures", REPORT),
    is("disk_util", REPORT),
    is("gtod_reduce", REPORT),
    is("disable_lat", REPORT),
    is("disable_clat", REPORT),
    is("disable_slat", REPORT),
    also("disable_bw_measurement", &["disable_bw"], REPORT),
    is("gtod_cpu", HOST),
    is("unified_rw_reporting", REPORT),
    is("continue_on_error", ERRORS),
    is("error_dump", ERRORS),
    is("profile", Refused("the options of the job themselves")),
    is("cgroup", Refused("no cgroup, which may limit the job's I/O")),
    is("cgroup_nodelete", OF_CGROUP),
    is("cgroup_weight", OF_CGROUP),
    is("uid", HOST),
    is("gid", HOST),
    is("kb_base", Honoured("1024, 1000")),
    is("unit_base", REPORT),
    is("hugepage-size", HOST),
    is("flow_id", Ignored("it only has an effect with `flow`")),
    is("flow", Refused("jobs that do not pace each other")),
    is("flow_sleep", Ignored("it only has an effect with `flow`")),
    also("steadystate", &["ss"], Refused("no job that ends by its own measurement")),
    also("steadystate_duration", &["ss_dur"], OF_STEADY),
    also("steadystate_ramp_time", &["ss_ramp"], OF_STEADY),
    // Deprecated: fio takes them, and does not list them.
    is("softrandommap", HOST),
    is("verifysort", OF_VERIFY),
    is("verifysort_nr", OF_VERIFY),
    is("flow_watermark", Ignored("it only has an effect with `flow`")),
];
