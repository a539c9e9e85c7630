//! Results as text for people.

use std::collections::BTreeMap;

use chronodisk_sim::{Nanos, Op};

use crate::schema::{BootstrapResult, PhaseName, RepResult, RunResult, ServerResult, ShadowResult};
use crate::statistics::Estimate;
use crate::summary::{Distribution, LATENESS_UNNOTICED, Summary};
use crate::table::{Align, Table};
use crate::verdict::{Figure, Verdict};
use crate::{BackgroundScan, Simulation};

/// System calls that the host refused to a guest's kernel, each with its count.
#[must_use]
pub fn render_refused_calls(counts: &BTreeMap<String, u64>) -> String {
    let listed: Vec<String> = counts.iter().map(|(call, count)| format!("{call} {count}")).collect();
    listed.join(", ")
}

/// The summary that follows a run.
#[must_use]
pub fn render_run_summary(run: &RunResult) -> String {
    let mut text = String::new();
    let mut facts = facts_table();
    facts.row(["run", &run.run_id]);
    if !run.command.is_empty() {
        facts.row(["command", &run.command.join(" ")]);
    }
    let device = &run.device;
    let speed = device.speed.map_or(String::new(), |speed| format!(", {speed} times as fast as its profile"));
    let limits = device.limits.as_ref().map_or(String::new(), |limits| format!(", limits {limits}"));
    let faults: String = device.faults.iter().map(|fault| format!(", fault {fault}")).collect();
    let capacity = size(device.capacity_bytes);
    facts.row(["device", &format!("{}, {capacity}, seed {}{speed}{limits}{faults}", device.profile, device.seed)]);
    let served = run.reps.iter().find_map(|rep| rep.server.as_ref());
    match served {
        Some(server) => facts.row(["served at", &server.addresses.join(", ")]),
        None => {
            facts.row(["guest", &guest_line(run)]);
            facts.row(["clock", &clock_line(run)]);
        }
    }
    text.push_str(&facts.render());
    let bootstrap = run.replay.as_ref().and_then(|replay| replay.bootstrap.as_ref());
    if let Some(bootstrap) = bootstrap {
        text.push('\n');
        text.push_str(&render_bootstrap(bootstrap));
    }
    // The runs of a bootstrap are in the result: they are too many to be read.
    let shown = if bootstrap.is_some() { &[] } else { &run.reps[..] };
    for rep in shown {
        text.push('\n');
        if run.reps.len() > 1 {
            text.push_str(&format!("repetition {} of {}\n", rep.index + 1, run.reps.len()));
        }
        text.push_str(&render_rep(run, rep));
    }
    let run_times: Vec<f64> = shown.iter().map(|rep| rep.run_time_ns.as_secs_f64()).collect();
    if let Some(Estimate { mean, half_width_95: Some(half_width), count }) = Estimate::of(&run_times) {
        let decimals = decimals_of(mean);
        text.push_str(&format!(
            "\nrun time over {count} repetitions: {mean:.decimals$} s ± {half_width:.decimals$} s (95 % confidence, \
             Student's t)\n"
        ));
    }
    for warning in &run.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

/// Figures over drawn workloads.
fn render_bootstrap(bootstrap: &BootstrapResult) -> String {
    let BootstrapResult { elements, draws, seed, jitter_ns, .. } = bootstrap;
    let mut columns = vec![("figure", Align::Left)];
    columns.extend(["trace", "mean", "deviation", "95 % percentile interval"].map(|name| (name, Align::Right)));
    if bootstrap.jackknife {
        columns.push(("95 % BCa interval", Align::Right));
    }
    let mut table = Table::new(columns);
    let interval = |ends: Option<[f64; 2]>| {
        ends.map_or_else(|| "none".to_owned(), |[low, high]| format!("{} to {}", figure(low), figure(high)))
    };
    for of in &bootstrap.statistics {
        let mut cells = vec![of.name.replace('_', " "), figure(of.value), figure(of.mean), figure(of.deviation)];
        cells.push(interval(of.percentile_95));
        if bootstrap.jackknife {
            cells.push(interval(of.bca_95));
        }
        table.row(cells);
    }
    let jitter = match *jitter_ns {
        Nanos::ZERO => String::new(),
        jitter => format!(", starts shifted by less than {jitter}"),
    };
    format!("bootstrap: N = {elements} groups, B = {draws} draws, seed {seed}{jitter}\n{}", table.render())
}

/// Four digits or more.
fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 1,
        1.0.. => 3,
        _ => 6,
    };
    format!("{value:.decimals$}")
}

/// The summary that follows a simulation.
#[must_use]
pub fn render_simulation(simulation: &Simulation) -> String {
    let mut facts = facts_table();
    facts.row(["device", &simulation.device]);
    facts.row(["workload", &simulation.workload]);
    for (name, value) in &simulation.options {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        facts.row([name.as_str(), &value]);
    }
    let length = Nanos::from_nanos(simulation.summary.window_ns.as_nanos());
    facts.row(["simulated time", &length.to_string()]);
    push_rates(&mut facts, &simulation.summary);
    if let Some(scan) = &simulation.background {
        push_background(&mut facts, scan, &simulation.latency_us);
    }
    let mut text = facts.render();
    text.push('\n');
    let summary = &simulation.summary;
    let mut distributions = distribution_table();
    push_service_times(&mut distributions, "service time", summary);
    text.push_str(&distributions.render());
    text
}

fn push_background(facts: &mut Table, scan: &BackgroundScan, latency_us: &Distribution) {
    let BackgroundScan { mb_per_s, media_mb_per_s, share_of_media, bytes, share_of_device, seconds, .. } = scan;
    let percent = 100.0 * share_of_media;
    facts.row(["background", &format!("{mb_per_s:.3} MB/s, {percent:.1} % of the media's {media_mb_per_s:.3} MB/s")]);
    let (megabytes, of_device) = (*bytes as f64 / 1e6, 100.0 * share_of_device);
    facts.row(["background scan", &format!("{megabytes:.1} MB, {of_device:.2} % of the device, in {seconds:.3} s")]);
    let (alone, beside) = (scan.latency_alone_us.mean, latency_us.mean);
    let equal = if scan.foreground_is_equal { "every request is equal" } else { "requests differ" };
    facts.row(["foreground", &format!("mean {alone:.3} us without the scan, {beside:.3} us with it; {equal}")]);
}

fn render_rep(run: &RunResult, rep: &RepResult) -> String {
    if let Some(shadow) = &rep.shadow {
        return render_shadow(rep, shadow);
    }
    let mut facts = facts_table();
    push_run(&mut facts, rep);
    push_requests(&mut facts, &rep.summary);
    if let Some(line) = rep.verdict.as_ref().and_then(Verdict::issuers_line) {
        facts.row(["not the command's", &line]);
    }
    push_rate(&mut facts, &rep.summary, |rate| marked(rate, rep, Figure::Rate));
    push_files(&mut facts, rep);
    let late = format!(
        "{:.2} % of the requests by more than 1 % of their service time and {:.0} µs",
        rep.summary.late_share * 100.0,
        LATENESS_UNNOTICED.as_micros_f64()
    );
    facts.row(["late", &late]);
    let mut text = facts.render();
    text.push('\n');
    text.push_str(&distributions_of(run, rep).render());
    if !rep.summaries_by_device.is_empty() {
        text.push('\n');
        text.push_str(&render_devices(run, &rep.summaries_by_device));
    }
    text
}

/// Times and end of the run.
fn push_run(facts: &mut Table, rep: &RepResult) {
    if let Some(native) = &rep.native {
        let late = format!("{}; requests were late for at most {}", rep.run_time_ns, native.late_ns);
        facts.row(["run time", &late]);
        facts.row(["block device", &native.line()]);
    }
    match &rep.server {
        Some(server) => push_server(facts, server),
        None => {
            let host = format!("{} in the guest, {} on the host in all", rep.run_time_ns, rep.host_time_ns);
            facts.row(["run time", &marked(host, rep, Figure::RunTime)]);
        }
    }
    push_verdict(facts, rep);
    facts.row(["exit status", &rep.exit_status.to_string()]);
    let around: Vec<String> = rep
        .phases
        .iter()
        .filter(|phase| phase.name != PhaseName::Command)
        .map(|phase| format!("{} {}", phase.name.name(), phase.duration()))
        .collect();
    if !around.is_empty() {
        facts.row(["before and after", &around.join(", ")]);
    }
}

/// Files of the host, squashed bytes, and calls that the guest refused.
fn push_files(facts: &mut Table, rep: &RepResult) {
    let untimed = format!("{} read, {} written", size(rep.untimed_read_bytes), size(rep.untimed_written_bytes));
    if rep.server.is_none() {
        facts.row(["untimed host files", &untimed]);
    }
    let statistic = |name: &str| rep.model_statistics.get(name).map(|&count| size(count as u64));
    if let (Some(written), Some(stored)) = (statistic("squash-written [bytes]"), statistic("squash-stored [bytes]")) {
        facts.row(["squashed", &format!("{written} written to the device, {stored} stored")]);
    }
    if let Some(first) = &rep.dropped_files.first {
        let dropped = format!("{}, {first} first: --host-writes keeps them", rep.dropped_files.count);
        facts.row(["dropped files", &dropped]);
    }
    if let Some(refused) = rep.refused_calls.as_ref().filter(|refused| !refused.is_empty()) {
        facts.row(["refused calls", &render_refused_calls(refused)]);
    }
}

/// Service times, of each device too, and lateness.
fn distributions_of(run: &RunResult, rep: &RepResult) -> Table {
    let mut table = distribution_table();
    push_service_times(&mut table, &marked("service time".to_owned(), rep, Figure::ServiceTime), &rep.summary);
    for (index, of_device) in rep.summaries_by_device.iter().enumerate() {
        let completed = of_device.requests - of_device.unfinished;
        push_distribution(&mut table, &device_name(run, index), completed, of_device.service_time_us);
    }
    let completed = rep.summary.requests - rep.summary.unfinished;
    push_distribution(&mut table, "lateness", completed, rep.summary.lateness_us);
    if let Some(server) = &rep.server {
        let others = completed.saturating_sub(server.stolen_requests);
        push_distribution(&mut table, "lateness, CPU not stolen", others, server.lateness_unstolen_us);
    }
    table
}

/// A row for each device.
fn render_devices(run: &RunResult, summaries: &[Summary]) -> String {
    use Align::{Left, Right};
    let heads = [("device", Left), ("requests", Right), ("requests/s", Right), ("MB/s", Right), ("busy", Right)];
    let mut table = Table::new(heads);
    for (index, summary) in summaries.iter().enumerate() {
        table.row([
            device_name(run, index),
            summary.requests.to_string(),
            format!("{:.1}", summary.iops),
            format!("{:.2}", summary.mb_per_s),
            format!("{:.1} %", summary.utilisation * 100.0),
        ]);
    }
    table.render()
}

/// The guest's name for a device, and its profile.
fn device_name(run: &RunResult, index: usize) -> String {
    let used = index.checked_sub(1).map_or(Some(&run.device), |further| run.further_devices.get(further));
    let profile = used.map_or("", |used| used.profile.as_str());
    format!("vd{} {profile}", char::from(b'a' + (index % 26) as u8))
}

/// A figure with a mark if it is not to be believed.
fn marked(figure: String, rep: &RepResult, which: Figure) -> String {
    match rep.verdict.as_ref().is_some_and(|verdict| verdict.doubts(which)) {
        true => format!("{figure} (doubtful)"),
        false => figure,
    }
}

fn push_verdict(facts: &mut Table, rep: &RepResult) {
    let Some(verdict) = &rep.verdict else { return };
    facts.row(["verdict", &verdict.sentence()]);
    for doubt in &verdict.doubts {
        facts.row(["doubtful", &format!("{}: {}", doubt.figure.name(), doubt.reason)]);
    }
    if let Some(line) = verdict.kernel_line() {
        facts.row(["kernel CPU", &line]);
    }
    if let Some(line) = verdict.generic_code_line(rep.run_time_ns) {
        facts.row(["generic code", &line]);
    }
}

fn render_shadow(rep: &RepResult, shadow: &ShadowResult) -> String {
    let mut facts = facts_table();
    let way = if shadow.direct { "past the page cache" } else { "through the host's page cache" };
    facts.row(["real device", &format!("{}, {way}, up to {} at once", shadow.target, shadow.queue_depth)]);
    if let Some(server) = &rep.server {
        facts.row(["connections", &server.connections.to_string()]);
    }
    facts.row(["exit status", &rep.exit_status.to_string()]);
    push_rates(&mut facts, &rep.summary);
    let (measured, simulated) = (shadow.measured_total_ns, shadow.simulated_total_ns);
    let off = 100.0 * (crate::summary::ratio(simulated.as_secs_f64(), measured.as_secs_f64()) - 1.0);
    facts.row(["total time", &format!("{measured} measured, {simulated} simulated ({off:+.1} %)")]);
    let mut text = facts.render();
    if let Some(fidelity) = &shadow.fidelity {
        text.push('\n');
        text.push_str(&fidelity.render());
    }
    text
}

fn push_server(facts: &mut Table, server: &ServerResult) {
    facts.row(["connections", &server.connections.to_string()]);
    let priority = if server.realtime { "real-time" } else { "ordinary" };
    let waiting = server.asleep_ns.saturating_add(server.spinning_ns).as_secs_f64();
    let share = |part: Nanos| crate::summary::ratio(part.as_secs_f64(), waiting) * 100.0;
    let threads = format!(
        "{priority} priority; of their waiting {:.1} % asleep, {:.2} % stolen by the host (at most {} at once)",
        share(server.asleep_ns),
        share(server.stolen_ns),
        server.stolen_max_ns
    );
    facts.row(["threads", &threads]);
    for (name, transport) in &server.transports {
        let estimates = format!(
            "arrival skew {} asleep, {} awake; completion lead {} ({name})",
            transport.skew_woken_ns, transport.skew_polled_ns, transport.lead_ns
        );
        facts.row(["measured", &estimates]);
    }
    if server.clamped_arrivals > 0 {
        let clamped = format!("{} to the model's instant, by {} at most", server.clamped_arrivals, server.clamp_max_ns);
        facts.row(["arrivals moved", &clamped]);
    }
    if server.early_max_ns > Nanos::ZERO {
        facts.row(["early", &format!("by {} at most", server.early_max_ns)]);
    }
}

fn guest_line(run: &RunResult) -> String {
    let guest = &run.guest;
    let cpus = match guest.cpus.unwrap_or_default() {
        1 => "one CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    };
    format!(
        "Linux {}, {cpus}, {} of memory, {}, scheduler {}",
        guest.kernel.as_deref().unwrap_or_default(),
        size(guest.memory_bytes.unwrap_or_default()),
        if guest.file_system == "none" { "no file system" } else { &guest.file_system },
        guest.scheduler
    )
}

fn clock_line(run: &RunResult) -> String {
    let clock = &run.clock;
    let scale = match (&clock.kernel_costs, clock.kernel_scale) {
        (Some(_), _) if clock.calibrated == Some(false) => ", kernel time by built-in costs".to_owned(),
        (Some(_), _) => ", kernel time as calibrated".to_owned(),
        (None, scale) => scale.map_or(String::new(), |scale| format!(", kernel time × {scale}")),
    };
    let speed = clock.cpu_speed.map_or(String::new(), |speed| format!(", CPU {speed} times as fast as the host's"));
    format!("{}, CPU {}{scale}{speed}", clock.driver, clock.cpu)
}

fn push_rates(facts: &mut Table, summary: &Summary) {
    push_requests(facts, summary);
    push_rate(facts, summary, |rate| rate);
}

fn push_requests(facts: &mut Table, summary: &Summary) {
    let mut kinds = Vec::new();
    for op in Op::ALL {
        let of_op = summary.op(op);
        if of_op.requests == 0 {
            continue;
        }
        match op {
            Op::Flush => kinds.push(format!("{} flushes", of_op.requests)),
            Op::WriteZeroes => kinds.push(format!("{} {} of {}", of_op.requests, op.name(), size(of_op.bytes))),
            _ => kinds.push(format!("{} {}s of {}", of_op.requests, op.name(), size(of_op.bytes))),
        }
    }
    let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    facts.row(["requests", &format!("{}{kinds}", summary.requests)]);
    if summary.unfinished > 0 {
        facts.row(["unfinished", &format!("{} when the run ended", summary.unfinished)]);
    }
    if summary.failed > 0 {
        let by_status = summary.failed_by_status.iter().map(|(status, count)| format!("{count} {status}"));
        let by_status: Vec<String> = by_status.collect();
        let kinds = if by_status.is_empty() { String::new() } else { format!(": {}", by_status.join(", ")) };
        facts.row(["failed", &format!("{}{kinds}", summary.failed)]);
    }
}

fn push_rate(facts: &mut Table, summary: &Summary, mark: impl FnOnce(String) -> String) {
    facts.row(["rate", &mark(format!("{:.1} requests/s, {:.2} MB/s", summary.iops, summary.mb_per_s))]);
    let busy = format!(
        "{:.1} % of the time, {:.2} requests outstanding on average",
        summary.utilisation * 100.0,
        summary.mean_queue_depth
    );
    facts.row(["device busy", &busy]);
}

fn facts_table() -> Table {
    Table::new([("", Align::Left), ("", Align::Left)])
}

fn distribution_table() -> Table {
    use Align::{Left, Right};
    Table::new([
        ("microseconds", Left),
        ("requests", Right),
        ("mean", Right),
        ("p50", Right),
        ("p90", Right),
        ("p99", Right),
        ("p99.9", Right),
        ("p99.99", Right),
        ("max", Right),
    ])
}

fn push_service_times(table: &mut Table, name: &str, summary: &Summary) {
    let completed = summary.requests - summary.unfinished;
    push_distribution(table, name, completed, summary.service_time_us);
    if summary.by_op.len() > 1 {
        for (name, of_op) in &summary.by_op {
            push_distribution(table, &format!("  {name}"), of_op.requests, of_op.service_time_us);
        }
    }
}

fn push_distribution(table: &mut Table, name: &str, requests: u64, distribution: Distribution) {
    let Distribution { mean, p50, p90, p99, p999, p9999, max } = distribution;
    let figures = [mean, p50, p90, p99, p999, p9999, max].map(|micros| format!("{micros:.1}"));
    table.row([name.to_owned(), requests.to_string()].into_iter().chain(figures));
}

/// Decimals with which seconds show at least four significant digits; three for a second and more.
pub(crate) fn decimals_of(seconds: f64) -> usize {
    if seconds > 0.0 { (3.0 - seconds.log10().floor()).clamp(3.0, 9.0) as usize } else { 3 }
}

/// A number of bytes with a binary unit that leaves up to four digits before the point.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.decimals$} {}", UNITS[unit])
}
