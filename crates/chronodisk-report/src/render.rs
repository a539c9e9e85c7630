//! Results as text for people.

use chronodisk_sim::{Nanos, Op};

use crate::Simulation;
use crate::schema::{PhaseName, RepResult, RunResult, ServerResult, ShadowResult};
use crate::statistics::Estimate;
use crate::summary::{Distribution, LATENESS_UNNOTICED, Summary};
use crate::table::{Align, Table};

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
    facts.row(["device", &format!("{}, {}, seed {}{speed}", device.profile, size(device.capacity_bytes), device.seed)]);
    let served = run.reps.iter().find_map(|rep| rep.server.as_ref());
    match served {
        Some(server) => facts.row(["served at", &server.addresses.join(", ")]),
        None => {
            facts.row(["guest", &guest_line(run)]);
            facts.row(["clock", &clock_line(run)]);
        }
    }
    text.push_str(&facts.render());
    for rep in &run.reps {
        text.push('\n');
        if run.reps.len() > 1 {
            text.push_str(&format!("repetition {} of {}\n", rep.index + 1, run.reps.len()));
        }
        text.push_str(&render_rep(rep));
    }
    let run_times: Vec<f64> = run.reps.iter().map(|rep| rep.run_time_ns.as_secs_f64()).collect();
    if let Some(Estimate { mean, half_width_95: Some(half_width), count }) = Estimate::of(&run_times) {
        text.push_str(&format!(
            "\nrun time over {count} repetitions: {mean:.3} s ± {half_width:.3} s (95 % confidence, Student's t)\n"
        ));
    }
    for warning in &run.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
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
    let mut text = facts.render();
    text.push('\n');
    let summary = &simulation.summary;
    let mut distributions = distribution_table();
    push_service_times(&mut distributions, summary);
    text.push_str(&distributions.render());
    text
}

fn render_rep(rep: &RepResult) -> String {
    if let Some(shadow) = &rep.shadow {
        return render_shadow(rep, shadow);
    }
    let mut facts = facts_table();
    if let Some(native) = &rep.native {
        let late = format!("{}, of which requests were late for {} at most", rep.run_time_ns, native.late_ns);
        facts.row(["run time", &late]);
        facts.row(["block device", &native.line()]);
    }
    match &rep.server {
        Some(server) => push_server(&mut facts, server),
        None => {
            let host = format!("{} in the guest, {} on the host in all", rep.run_time_ns, rep.host_time_ns);
            facts.row(["run time", &host]);
        }
    }
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
    push_rates(&mut facts, &rep.summary);
    let untimed = format!("{} read, {} written", size(rep.untimed_read_bytes), size(rep.untimed_written_bytes));
    if rep.server.is_none() {
        facts.row(["untimed host files", &untimed]);
    }
    let late = format!(
        "{:.2} % of the requests by more than 1 % of their service time and {:.0} µs",
        rep.summary.late_share * 100.0,
        LATENESS_UNNOTICED.as_micros_f64()
    );
    facts.row(["late", &late]);
    let mut text = facts.render();
    text.push('\n');
    let mut distributions = distribution_table();
    push_service_times(&mut distributions, &rep.summary);
    push_distribution(
        &mut distributions,
        "lateness",
        rep.summary.requests - rep.summary.unfinished,
        rep.summary.lateness_us,
    );
    if let Some(server) = &rep.server {
        let others = (rep.summary.requests - rep.summary.unfinished).saturating_sub(server.stolen_requests);
        push_distribution(&mut distributions, "lateness, CPU not stolen", others, server.lateness_unstolen_us);
    }
    text.push_str(&distributions.render());
    text
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
    let cpus = match guest.cpus {
        1 => "one CPU".to_owned(),
        cpus => format!("{cpus} CPUs"),
    };
    format!(
        "Linux {}, {cpus}, {} of memory, {}, scheduler {}",
        guest.kernel,
        size(guest.memory_bytes),
        if guest.file_system == "none" { "no file system" } else { &guest.file_system },
        guest.scheduler
    )
}

fn clock_line(run: &RunResult) -> String {
    let clock = &run.clock;
    let scale = match (&clock.kernel_costs, clock.kernel_scale) {
        (Some(_), _) => ", kernel time as calibrated".to_owned(),
        (None, scale) => scale.map_or(String::new(), |scale| format!(", kernel time × {scale}")),
    };
    let speed = clock.cpu_speed.map_or(String::new(), |speed| format!(", CPU {speed} times as fast as the host's"));
    format!("{}, CPU {}{scale}{speed}", clock.driver, clock.cpu)
}

fn push_rates(facts: &mut Table, summary: &Summary) {
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
        facts.row(["failed", &summary.failed.to_string()]);
    }
    facts.row(["rate", &format!("{:.1} requests/s, {:.2} MB/s", summary.iops, summary.mb_per_s)]);
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

fn push_service_times(table: &mut Table, summary: &Summary) {
    let completed = summary.requests - summary.unfinished;
    push_distribution(table, "service time", completed, summary.service_time_us);
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
