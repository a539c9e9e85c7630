//! Accuracy of the latency that a program in the guest sees: fio's latencies on constant devices, compared with the
//! devices' own, with the host idle and with the host busy. `cargo bench -p chronodisk-cli --bench accuracy`; `--
//! --json` for the figures as JSON.
//!
//! The wanted figure is the difference between the latency that a program sees and the device's own. A program's
//! latency includes its kernel's time, which is no error of the device. So the null device's latency (1 ns) is
//! subtracted from each latency, for the same clock, engine and depth. The null device's latency is CPU time only: the
//! path into the driver, out of it until the CPU can see a completion, and back to the program.
//!
//! That subtracts too much if CPU time overlaps with the device's:
//!
//! - At depth 1, the way out of the driver overlaps, about 3 µs: on a slow device it passes while the device works.
//! - At depth 16 on the null device, every request waits for the CPU time of the 15 others. On a slow device these wait
//!   for their completions at the same time, so their CPU time is hidden behind the device's, and almost nothing should
//!   be subtracted.
//!
//! So two more figures are printed beside the difference: the latency minus the device's alone, and minus the *bound*
//! of a closed loop of N requests over one CPU and a device that serves all at once, max(null device at depth 1 +
//! device, null device at depth N). At light load no request waits; at heavy load the CPU is always busy (Denning and
//! Buzen, "The Operational Analysis of Queueing Network Models", 1978, asymptotic bounds). No real machine is faster
//! than that bound, except for the overlap at depth 1.
//!
//! Verdicts are printed and never change the exit status. Medians are exact: they come from fio's log of every request,
//! because fio computes its own percentiles from a histogram with bins of 1 %.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use chronodisk_report::{Align, Table};
use serde::Serialize;
use serde_json::Value;

/// Repetitions, each in a guest of its own.
const REPETITIONS: usize = 3;

/// Requests of each job. With more than 1024, fio would drain the device to enlarge its log.
const REQUESTS: usize = 1000;

/// Requests with a sleep in each call of the model; a request takes two to three calls.
const REQUESTS_DELAYED: usize = 60;

/// Tolerance: a share of the device's latency, or a time, whichever is larger.
const TOLERATED_SHARE: f64 = 0.05;
const TOLERATED_US: f64 = 5.0;

/// Tolerated effect of a slow model on a median.
const TOLERATED_DELAY_EFFECT_US: f64 = 10.0;

const NULL: &str = "null";

/// Profiles and their latency in µs.
const DEVICES: [(&str, f64); 5] = [
    (NULL, 0.001),
    ("constant-50us", 50.0),
    ("constant-100us", 100.0),
    ("constant-1ms", 1_000.0),
    ("constant-10ms", 10_000.0),
];

/// Engines of fio and depths.
const JOBS: [Job; 3] =
    [Job { engine: "psync", depth: 1 }, Job { engine: "libaio", depth: 1 }, Job { engine: "libaio", depth: 16 }];

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    for (program, package) in [("linux.uml", "user-mode-linux"), ("fio", "fio")] {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join(program).exists()) {
            println!("SKIPPED: no {program} in PATH (Debian: apt-get install {package})");
            return;
        }
    }
    let result = measure();
    if json {
        println!("{}", serde_json::to_string_pretty(&result).expect("plain data"));
    } else {
        println!("{}", render(&result));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    engine: &'static str,
    depth: u32,
}

/// All figures, with latencies in µs of the guest's clock.
#[derive(Serialize)]
struct Accuracy {
    schema: &'static str,
    repetitions: usize,
    requests: usize,
    /// The host's load before each part, from `/proc/loadavg`.
    load_before: BTreeMap<&'static str, String>,
    rows: Vec<Row>,
    model_delay: Vec<DelayRow>,
}

/// A device's figures for one job.
#[derive(Serialize)]
struct Row {
    host: &'static str,
    engine: &'static str,
    depth: u32,
    device: &'static str,
    device_us: f64,
    p50_us: f64,
    p99_us: f64,
    /// Smallest and largest median of a repetition.
    p50_of_repetitions_us: (f64, f64),
    /// `None` for the null device itself.
    against: Option<Against>,
}

/// A median, compared with its expected value.
#[derive(Serialize)]
struct Against {
    p50_minus_null_us: f64,
    error_us: f64,
    error_percent: f64,
    within: bool,
    p50_minus_device_us: f64,
    p50_minus_bound_us: f64,
}

/// Effect of a slow model.
#[derive(Serialize)]
struct DelayRow {
    host: &'static str,
    device: &'static str,
    p50_us: f64,
    p50_delayed_us: f64,
    difference_us: f64,
    within: bool,
}

fn measure() -> Accuracy {
    let mut rows = Vec::new();
    let mut model_delay = Vec::new();
    let mut load_before = BTreeMap::new();
    for host in ["idle", "busy"] {
        load_before.insert(host, load_average());
        let _load = (host == "busy").then(Load::start);
        let seen = DEVICES.map(|(device, _)| {
            let repetitions = (0..REPETITIONS).map(|repetition| {
                eprintln!("host {host}: {device}, repetition {} of {REPETITIONS}", repetition + 1);
                latencies(device, &[], &JOBS, REQUESTS)
            });
            (device, repetitions.collect::<Vec<_>>())
        });
        rows.extend(rows_of(host, &BTreeMap::from(seen)));

        let device = "constant-1ms";
        let [p50_us, p50_delayed_us] = [&[][..], &["--debug", "model-delay=50ms"]].map(|flags| {
            eprintln!("host {host}: {device} {}", flags.join(" "));
            let job = [JOBS[0]];
            let all = (0..REPETITIONS).flat_map(|_| latencies(device, flags, &job, REQUESTS_DELAYED).remove(&JOBS[0]));
            quantile(all.flatten().collect(), 0.5)
        });
        let difference_us = p50_delayed_us - p50_us;
        let within = difference_us.abs() < TOLERATED_DELAY_EFFECT_US;
        model_delay.push(DelayRow { host, device, p50_us, p50_delayed_us, difference_us, within });
    }
    Accuracy {
        schema: "chronodisk.bench.accuracy/1",
        repetitions: REPETITIONS,
        requests: REQUESTS,
        load_before,
        rows,
        model_delay,
    }
}

/// Running and runnable processes, averaged over 1, 5 and 15 minutes.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

type Seen = BTreeMap<Job, Vec<f64>>;

fn rows_of(host: &'static str, seen: &BTreeMap<&str, Vec<Seen>>) -> Vec<Row> {
    let p50_of = |device: &str, job: &Job| {
        quantile(seen[device].iter().flat_map(|repetition| repetition[job].iter().copied()).collect(), 0.5)
    };
    let mut rows = Vec::new();
    for job in JOBS {
        let alone = Job { depth: 1, ..job };
        for (device, device_us) in DEVICES {
            let repetitions = &seen[device];
            let medians = repetitions.iter().map(|repetition| quantile(repetition[&job].clone(), 0.5));
            let all = repetitions.iter().flat_map(|repetition| repetition[&job].iter().copied());
            let p50_us = p50_of(device, &job);
            let p50_minus_null_us = p50_us - p50_of(NULL, &job);
            let error_us = p50_minus_null_us - device_us;
            let bound_us = (p50_of(NULL, &alone) + device_us).max(p50_of(NULL, &job));
            let against = Against {
                p50_minus_null_us,
                error_us,
                error_percent: error_us / device_us * 100.0,
                within: error_us.abs() <= TOLERATED_US.max(TOLERATED_SHARE * device_us),
                p50_minus_device_us: p50_us - device_us,
                p50_minus_bound_us: p50_us - bound_us,
            };
            rows.push(Row {
                host,
                engine: job.engine,
                depth: job.depth,
                device,
                device_us,
                p50_us,
                p99_us: quantile(all.collect(), 0.99),
                p50_of_repetitions_us: medians
                    .fold((f64::INFINITY, 0.0), |(min, max), p50| (f64::min(min, p50), f64::max(max, p50))),
                against: (device != NULL).then_some(against),
            });
        }
    }
    rows
}

/// Runs the jobs in one guest. Returns the latency of every request in µs, from the program's call to its return or to
/// the completion.
fn latencies(device: &str, flags: &[&str], jobs: &[Job], requests: usize) -> Seen {
    let script: Vec<String> = jobs.iter().map(|job| script(*job, requests)).collect();
    let folder = tempfile::tempdir().expect("a folder for the result");
    let output = Command::new(env!("CARGO_BIN_EXE_chronodisk"))
        .args(["run", "--device", device, "--fs", "none", "--capacity", "4GiB"])
        .args(flags)
        .args(["--", "sh", "-c", &script.join(" && ")])
        .env("XDG_STATE_HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("the command starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{device}: {}\n{errors}", output.status);
    let parts: Vec<&str> = text.split(MARK).collect();
    assert_eq!(parts.len(), jobs.len() * 2 + 1, "{device}: fio printed something else: {text}");
    let of_job = |(job, parts): (&Job, &[&str])| (*job, micros(parts[0], parts[1], requests));
    jobs.iter().zip(parts.chunks_exact(2)).map(of_job).collect()
}

/// Separator of the guest's outputs.
const MARK: &str = "\n--chronodisk--\n";

/// A script for one job of fio, whose log is in the guest's memory; it prints fio's JSON and the log.
fn script(job: Job, requests: usize) -> String {
    let Job { engine, depth } = job;
    format!(
        "fio --name=seen --filename=/dev/vda --direct=1 --rw=randread --bs=4k --size=4g --number_ios={requests} \
         --ioengine={engine} --iodepth={depth} --output-format=json --output=/dev/shm/seen.json \
         --write_lat_log=/dev/shm/seen && cat /dev/shm/seen.json && printf '{mark}' && \
         cat /dev/shm/seen_lat.1.log && printf '{mark}'",
        mark = MARK.replace('\n', "\\n")
    )
}

/// Latencies from fio's log, whose lines are `time in ms, latency in ns, ...`, checked against its summary.
fn micros(summary: &str, log: &str, requests: usize) -> Vec<f64> {
    let summary: Value = serde_json::from_str(summary.trim()).unwrap_or_else(|error| panic!("{error}: {summary}"));
    let job = &summary["jobs"][0];
    assert_eq!((job["error"].as_u64(), job["read"]["total_ios"].as_u64()), (Some(0), Some(requests as u64)), "{job}");
    let nanos = log.trim().lines().map(|line| {
        let value = line.split(',').nth(1).and_then(|value| value.trim().parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no line of a latency log: {line}"))
    });
    let micros: Vec<f64> = nanos.map(|nanos| nanos / 1e3).collect();
    assert_eq!(micros.len(), requests, "fio logged another number of requests than it made");
    micros
}

/// Quantile by nearest rank.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil().max(1.0) as usize;
    values[rank - 1]
}

/// Processes that keep every CPU of the host busy; they end when this is dropped, or with this process.
struct Load(Vec<Child>);

impl Load {
    fn start() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut load = Load(Vec::new());
        for _ in 0..cpus {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            // SAFETY: one system call without pointers between fork and exec.
            unsafe {
                command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
            load.0.push(command.spawn().expect("a shell"));
        }
        load
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn render(result: &Accuracy) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("host", Left),
        ("engine", Left),
        ("depth", Right),
        ("device", Left),
        ("p50", Right),
        ("of repetitions", Right),
        ("minus null", Right),
        ("error", Right),
        ("error %", Right),
        ("within", Left),
        ("minus device", Right),
        ("minus bound", Right),
        ("p99", Right),
    ]);
    for row in &result.rows {
        let micros = |value: f64| format!("{value:.2}");
        let (min, max) = row.p50_of_repetitions_us;
        let of = |figure: fn(&Against) -> String| row.against.as_ref().map_or(String::new(), figure);
        table.row([
            row.host.to_owned(),
            row.engine.to_owned(),
            row.depth.to_string(),
            row.device.to_owned(),
            micros(row.p50_us),
            format!("{min:.2} to {max:.2}"),
            of(|against| format!("{:.2}", against.p50_minus_null_us)),
            of(|against| format!("{:+.2}", against.error_us)),
            of(|against| format!("{:+.2}", against.error_percent)),
            of(|against| if against.within { "yes" } else { "NO" }.to_owned()),
            of(|against| format!("{:+.2}", against.p50_minus_device_us)),
            of(|against| format!("{:+.2}", against.p50_minus_bound_us)),
            micros(row.p99_us),
        ]);
    }
    let mut text = format!(
        "Latency that fio sees in the guest, in µs; {} random reads of 4 KiB, {} times. Error: p50 minus the null\n\
         device's at the same depth, minus the device's own. Within: that error is at most {:.0} % or\n\
         {TOLERATED_US:.0} µs.\n\
         Bound: max(null device at depth 1 + device, null device at this depth).\n\n{}\n",
        result.requests,
        result.repetitions,
        TOLERATED_SHARE * 100.0,
        table.render()
    );
    for (host, load) in &result.load_before {
        text.push_str(&format!("host {host}: load average before it {load}\n"));
    }
    for row in &result.model_delay {
        text.push_str(&format!(
            "host {}, {}: p50 {:.2} µs, with 50 ms slept in every call of the model {:.2} µs: {:+.2} µs, {}\n",
            row.host,
            row.device,
            row.p50_us,
            row.p50_delayed_us,
            row.difference_us,
            if row.within { "within 10 µs" } else { "NOT within 10 µs" }
        ));
    }
    text
}
