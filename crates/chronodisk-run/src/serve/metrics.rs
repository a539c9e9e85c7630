//! Figures for Prometheus: its text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Write;
use std::fs;

use chronodisk_front::server::{OverflowView, ServerStatistics, ServerView};
use chronodisk_sim::Op;

use crate::recording::{Buckets, Counters, Gathered};

/// Content of the metrics page.
#[derive(Clone)]
pub struct Metrics {
    pub profile: String,
    pub server: ServerView,
    pub gathered: Gathered,
    pub overflow: Option<OverflowView>,
}

/// The format's name for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Metrics {
    /// The figures of this moment.
    pub fn render(&self) -> String {
        let counters = self.gathered.state().counters.clone();
        let statistics = self.server.statistics();
        let mut page = Page::default();
        page.family("chronodisk_device_info", "gauge", "The emulated device.");
        let profile = escaped(&self.profile);
        page.line(format_args!("chronodisk_device_info{{profile=\"{profile}\"}} 1"));
        requests(&mut page, &counters);
        server(&mut page, &statistics);
        if let Some(overflow) = &self.overflow {
            store(&mut page, overflow);
        }
        if let Some(bytes) = resident_bytes() {
            page.value("process_resident_memory_bytes", "gauge", "Memory of the server in use.", bytes);
        }
        page.0
    }
}

fn requests(page: &mut Page, counters: &Counters) {
    type Column = fn(&(u64, u64)) -> u64;
    let columns: [(&str, &str, Column); 2] = [
        ("chronodisk_requests_total", "Requests that ended, by operation.", |(requests, _)| *requests),
        ("chronodisk_request_bytes_total", "Their length in bytes.", |(_, bytes)| *bytes),
    ];
    for (name, help, column) in columns {
        page.family(name, "counter", help);
        for (op, figures) in Op::COMMON.into_iter().zip(&counters.by_op) {
            page.line(format_args!("{name}{{op=\"{}\"}} {}", op.name(), column(figures)));
        }
    }
    page.value("chronodisk_failed_requests_total", "counter", "Requests that ended in an error.", counters.failed);
    let help = "Requests whose client did not take the reply, or was gone.";
    page.value("chronodisk_unseen_requests_total", "counter", help, counters.unfinished);
    let help = "Service time by the device model: its completion minus the arrival.";
    page.histogram("chronodisk_service_time_seconds", help, &counters.service_time);
    let help = "How much later than due a completion left the server.";
    page.histogram("chronodisk_lateness_seconds", help, &counters.lateness);
}

fn server(page: &mut Page, statistics: &ServerStatistics) {
    let outstanding = statistics.engine.arrivals - statistics.engine.completions;
    page.value("chronodisk_outstanding_requests", "gauge", "Requests at the device.", outstanding);
    for (name, help, value) in [
        (
            "chronodisk_clamped_arrivals_total",
            "Arrivals that were moved to the model's instant.",
            statistics.engine.clamped_arrivals,
        ),
        (
            "chronodisk_stolen_requests_total",
            "Requests that were due while the host ran something else.",
            statistics.clock.stolen_requests,
        ),
        ("chronodisk_connections_total", "Connections accepted.", statistics.connections),
        ("chronodisk_connections_refused_total", "Connections beyond the limit.", statistics.connections_refused),
        (
            "chronodisk_handshakes_given_up_total",
            "Clients that took too long for negotiation.",
            statistics.handshakes_given_up,
        ),
        (
            "chronodisk_stalled_clients_total",
            "Clients that held memory for which others waited, and did nothing.",
            statistics.stalled,
        ),
        ("chronodisk_protocol_violations_total", "Clients that broke the protocol.", statistics.violations),
        (
            "chronodisk_refused_requests_total",
            "Requests that were answered with an error before they reached the device.",
            statistics.refused_requests,
        ),
        ("chronodisk_store_errors_total", "Requests that the store could not do.", statistics.store_errors),
        ("chronodisk_panics_total", "Connections ended by a defect of the server.", statistics.panics),
        ("chronodisk_dropped_completions_total", "Completions whose client was gone.", statistics.dropped_completions),
    ] {
        page.value(name, "counter", help, value);
    }
}

fn store(page: &mut Page, overflow: &OverflowView) {
    let statistics = overflow.statistics();
    for (name, help, value) in [
        ("hits", "Pages that were wanted and in memory.", statistics.hits),
        ("misses", "Pages that were wanted and had to be read from the file.", statistics.misses),
        ("evictions", "Pages that made room.", statistics.evictions),
        ("written_back", "Pages that were written to the file.", statistics.written_back),
        ("preloaded", "Pages that were brought in ahead of their use.", statistics.preloaded),
    ] {
        page.value(&format!("chronodisk_store_{name}_total"), "counter", help, value);
    }
    let help = "Memory of the store in use.";
    page.value("chronodisk_store_memory_bytes", "gauge", help, overflow.memory_bytes());
}

/// The page that is being written.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn value(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: &Buckets) {
        self.family(name, "histogram", help);
        for (bound_us, count) in buckets.cumulative() {
            self.line(format_args!("{name}_bucket{{le=\"{}\"}} {count}", seconds(bound_us)));
        }
        let count = buckets.count();
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {count}"));
        self.line(format_args!("{name}_sum {}", buckets.sum_seconds()));
        self.line(format_args!("{name}_count {count}"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{text}").expect("a string takes everything");
    }
}

/// Microseconds as seconds, rounded to a tenth of a microsecond, so that 0.2 µs are exactly 2e-7.
fn seconds(micros: f64) -> String {
    let text = format!("{:.7}", micros / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// "label_value can be any sequence of UTF-8 characters, but the backslash, double-quote and line feed characters have
/// to be escaped".
fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The line `VmRSS: N kB` of `/proc/self/status`, proc(5).
fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    kibibytes.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::Nanos;

    use super::*;

    #[test]
    fn a_histogram_is_written_as_the_format_asks() {
        let mut buckets = Buckets::default();
        [100, 300, 5_000_000].into_iter().for_each(|nanos| buckets.add(Nanos::from_nanos(nanos)));
        let mut page = Page::default();
        page.histogram("x_seconds", "Help.", &buckets);
        let lines: Vec<&str> = page.0.lines().collect();
        assert_eq!(lines[..2], ["# HELP x_seconds Help.", "# TYPE x_seconds histogram"]);
        assert_eq!(lines[2], "x_seconds_bucket{le=\"0.0000002\"} 1");
        assert!(lines.contains(&"x_seconds_bucket{le=\"0.0000005\"} 2"));
        assert!(lines.contains(&"x_seconds_bucket{le=\"0.005\"} 3"));
        assert_eq!(
            lines[lines.len() - 3..],
            ["x_seconds_bucket{le=\"+Inf\"} 3", "x_seconds_sum 0.0050004", "x_seconds_count 3"]
        );
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert_eq!([0.2, 1.0, 1e6].map(seconds), ["0.0000002", "0.000001", "1"]);
    }
}
