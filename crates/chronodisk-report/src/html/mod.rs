//! A report as one HTML page that needs nothing else: data, styles and the library that draws are in it.
//!
//! The page has no access to any network: its own policy forbids it. Charts are drawn by Apache ECharts, which is
//! embedded as it was published (`assets/echarts.min.js.zst`, with its licence and notice beside it). Tables, commands
//! and profiles are plain HTML, and can be read without scripts.

mod charts;
mod crash;
mod sweep;
mod text;

pub(crate) use text::escaped;

use chronodisk_sim::Nanos;
use serde::Serialize;

pub use charts::{AddressRange, ChartsBuilder, Heat, Resolution, RunCharts, Series};
pub use crash::CrashReport;
pub use sweep::{SweepCell, SweepCombination, SweepCurves, SweepEffect, SweepReport, render_sweep_report};

use crate::compare::{Comparison, compare};
use crate::crash_states::CutMarks;
use crate::schema::{DeviceUsed, PhaseName, RepResult, RunResult};
use crate::statistics::Estimate;
use crate::{Simulation, Summary};

const LIBRARY: &[u8] = include_bytes!("../../assets/echarts.min.js.zst");
const LIBRARY_NOTICE: &str = include_str!("../../assets/echarts.NOTICE");
/// Common part of all reports' scripts.
const CHARTS: &str = include_str!("../../assets/charts.js");
const SCRIPT: &str = include_str!("../../assets/report.js");
const STYLE: &str = include_str!("../../assets/report.css");

/// Contents of a report.
#[derive(Clone, Debug)]
pub struct ReportRun {
    /// The result.
    pub source: ReportSource,
    /// Its charts.
    pub charts: RunCharts,
    /// Checks of its states after power cuts.
    pub crash: Option<Box<CrashReport>>,
}

/// A result of either kind.
#[derive(Clone, Debug)]
pub enum ReportSource {
    /// A run, with its requests in logs of their own.
    Run(Box<RunResult>),
    /// A simulation without a guest.
    Simulation {
        /// Name shown to the reader.
        name: String,
        /// The result.
        simulation: Box<Simulation>,
        /// The device.
        device: Box<DeviceUsed>,
    },
}

/// Window of the requests in a repetition's charts: the command's, or all if there was none.
#[must_use]
pub fn charted_window(rep: &RepResult) -> std::ops::Range<Nanos> {
    rep.phase(PhaseName::Command).map_or(Nanos::ZERO..Nanos::MAX, |command| command.start_ns..command.end_ns)
}

impl ReportSource {
    pub(crate) fn label(&self) -> String {
        match self {
            ReportSource::Run(run) => run.labels.name.clone().unwrap_or_else(|| run.run_id.clone()),
            ReportSource::Simulation { name, .. } => name.clone(),
        }
    }

    fn run(&self) -> Option<&RunResult> {
        match self {
            ReportSource::Run(run) => Some(run),
            ReportSource::Simulation { .. } => None,
        }
    }

    fn devices(&self) -> Vec<&DeviceUsed> {
        match self {
            ReportSource::Run(run) => std::iter::once(&run.device).chain(&run.further_devices).collect(),
            ReportSource::Simulation { device, .. } => vec![device],
        }
    }

    /// The figures of each repetition.
    fn summaries(&self) -> Vec<&Summary> {
        match self {
            ReportSource::Run(run) => run.reps.iter().map(|rep| &rep.summary).collect(),
            ReportSource::Simulation { simulation, .. } => vec![&simulation.summary],
        }
    }
}

/// Input of the script.
#[derive(Serialize)]
struct Data<'a> {
    runs: Vec<DataRun<'a>>,
}

#[derive(Serialize)]
struct DataRun<'a> {
    label: String,
    run_time_s: Option<Estimate>,
    difference_percent: Option<Estimate>,
    charts: &'a RunCharts,
    #[serde(skip_serializing_if = "Option::is_none")]
    power_cuts: Option<CutMarks>,
}

/// Runs whose charts over time are open from the beginning.
const OPEN_RUNS: usize = 2;

/// The page. `made_by` names the program and its version.
#[must_use]
pub fn render_report(title: &str, runs: &[ReportRun], made_by: &str) -> String {
    let results: Vec<RunResult> = runs.iter().filter_map(|run| run.source.run()).cloned().collect();
    // Simulations take no repetitions that could be paired.
    let comparison = (results.len() == runs.len() && !runs.is_empty()).then(|| compare(&results));
    let labels = labels(runs);
    let row = |index: usize| comparison.as_ref().map(|comparison| &comparison.rows[index]);
    let data = Data {
        runs: runs
            .iter()
            .enumerate()
            .map(|(index, run)| DataRun {
                label: labels[index].clone(),
                run_time_s: row(index).and_then(|row| row.run_time_s),
                difference_percent: row(index).and_then(|row| row.difference_percent).filter(|_| index > 0),
                charts: &run.charts,
                power_cuts: run.crash.as_ref().map(|crash| crash.states.cut_marks()),
            })
            .collect(),
    };
    let json = serde_json::to_string(&data).expect("plain data with text keys has a JSON form");
    let mut body = String::new();
    head(&mut body, title, made_by, runs, &labels);
    text::summary_table(&mut body, runs, &labels, comparison.as_ref());
    comparisons(&mut body, comparison.as_ref(), runs.len());
    crash::power_cuts(&mut body, runs, &labels);
    distributions(&mut body, runs);
    over_time(&mut body, runs, &labels);
    text::details(&mut body, runs, &labels);
    page(title, &body, &json, SCRIPT)
}

/// A name for each run that no other has.
fn labels(runs: &[ReportRun]) -> Vec<String> {
    let plain: Vec<String> = runs.iter().map(|run| run.source.label()).collect();
    let label = |(index, label): (usize, &String)| {
        let twice = plain.iter().filter(|other| *other == label).count() > 1;
        match runs[index].source.run() {
            Some(run) if twice && run.run_id != *label => format!("{label} ({})", run.run_id),
            _ if twice => format!("{label} ({})", index + 1),
            _ => label.clone(),
        }
    };
    plain.iter().enumerate().map(label).collect()
}

/// A whole page whose charts `script` draws.
fn page(title: &str, body: &str, json: &str, script: &str) -> String {
    let title = escaped(title);
    let notice = LIBRARY_NOTICE.trim().replace("--", "—");
    let library = library();
    // In a script, `<` could begin its end.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\" data-theme=\"light\" data-errors=\"0\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; \
         style-src 'unsafe-inline'; img-src data:\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\
         <script type=\"application/json\" id=\"data\">{json}</script>\n\
         <!-- The library that follows: {notice} -->\n<script>{library}</script>\n<script>\n{CHARTS}</script>\n\
         <script>\n{script}</script>\n\
         </body>\n</html>\n"
    )
}

/// The library that draws.
fn library() -> String {
    let script = zstd::decode_all(LIBRARY).expect("it is a part of this program");
    String::from_utf8(script).expect("it is a script")
}

/// Opens a page, with its title and subject.
fn open_page(body: &mut String, title: &str, what: &str, made_by: &str) {
    body.push_str(&format!(
        "<header><h1>{}</h1>\n<p class=\"dim\">{} by {}. <button id=\"theme\" type=\"button\">Light or dark</button> \
         <span class=\"keys\">Charts: Tab selects one, arrow keys move, + and − zoom, 0 resets.</span></p></header>\n\
         <main>\n<noscript><p>The charts need JavaScript. The tables do not.</p></noscript>\n",
        escaped(title),
        escaped(what),
        escaped(made_by),
    ));
}

fn head(body: &mut String, title: &str, made_by: &str, runs: &[ReportRun], labels: &[String]) {
    let what = match runs.len() {
        1 => "One run".to_owned(),
        count => format!("{count} runs"),
    };
    open_page(body, title, &what, made_by);
    for (run, label) in runs.iter().zip(labels) {
        for warning in run.source.run().map_or(&[][..], |run| &run.warnings) {
            body.push_str(&format!("<p class=\"warning\">{}: {}</p>\n", escaped(label), escaped(warning)));
        }
    }
}

fn comparisons(body: &mut String, comparison: Option<&Comparison>, runs: usize) {
    let Some(comparison) = comparison else { return };
    body.push_str("<h2>Run times</h2>\n<div class=\"grid\">\n");
    // About a line per run.
    let height_rem = 6 + 2 * runs;
    let chart =
        |id: &str| format!("<div class=\"chart\" id=\"{id}\" style=\"height: {}rem\"></div>\n", height_rem.max(10));
    body.push_str(&chart("run-times"));
    if runs > 1 {
        body.push_str(&chart("differences"));
    }
    body.push_str("</div>\n");
    if runs > 1 {
        body.push_str(
            "<p class=\"dim\">Differences are repetition by repetition, between those with the same seed. \
             An interval that excludes zero is a difference at the 5 % level.</p>\n",
        );
    }
    for note in &comparison.notes {
        body.push_str(&format!("<p class=\"dim\">{}</p>\n", escaped(note)));
    }
}

fn distributions(body: &mut String, runs: &[ReportRun]) {
    let operations: std::collections::BTreeSet<&str> =
        runs.iter().flat_map(|run| run.charts.service_us.keys().copied()).collect();
    body.push_str("<h2>Distributions</h2>\n");
    if operations.is_empty() {
        body.push_str("<p>The device got no requests.</p>\n");
        return;
    }
    body.push_str("<div class=\"grid\">\n");
    for operation in operations {
        body.push_str(&format!("<div class=\"chart\" id=\"service-{operation}\"></div>\n"));
    }
    if runs.iter().any(|run| !run.charts.distance_bytes.is_empty()) {
        body.push_str("<div class=\"chart\" id=\"distance\"></div>\n");
    }
    body.push_str(
        "</div>\n<p class=\"dim\">Cumulative, over all repetitions. A service time is the model's: from a request's \
         arrival at the device to its completion. Sequential requests, at distance zero, are at 512 B.</p>\n",
    );
}

fn over_time(body: &mut String, runs: &[ReportRun], labels: &[String]) {
    body.push_str(
        "<h2>Over time</h2>\n<p class=\"dim\">The first repetition of each run. The charts of a run zoom together; \
         addresses are those of the first device.</p>\n",
    );
    for (index, (run, label)) in runs.iter().zip(labels).enumerate() {
        if run.charts.service_us.is_empty() {
            continue;
        }
        let open = if index < OPEN_RUNS { " open" } else { "" };
        body.push_str(&format!(
            "<details class=\"charts\"{open}><summary>{}</summary>\n<div class=\"grid\">\n",
            escaped(label)
        ));
        for (kind, class) in [("time", "chart low"), ("depth", "chart low"), ("rate", "chart low")] {
            body.push_str(&format!("<div class=\"{class}\" id=\"{kind}-{index}\"></div>\n"));
        }
        if !run.charts.heat.cells.is_empty() {
            body.push_str(&format!("<div class=\"chart low\" id=\"heat-{index}\"></div>\n"));
        }
        body.push_str("</div></details>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_that_was_published() {
        let readme = include_str!("../../assets/README.md");
        let hash = ring::digest::digest(&ring::digest::SHA256, library().as_bytes());
        let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(readme.contains(&hash), "{hash}");
        assert!(!library().contains("</script"), "it would end the script of a page");
    }
}
