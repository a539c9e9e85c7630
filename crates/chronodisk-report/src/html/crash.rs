//! The section of a report on power cuts.

use super::ReportRun;
use super::text::{escaped, folded, pairs};
use crate::crash::{CrashFailure, CrashRequest, CrashResult};
use crate::crash_states::{CrashStates, DRAWS, STEPS};
use crate::table::counted;

/// Failures that the page lists.
const FAILURES_MAX: usize = 50;
/// Lost requests of each that the page lists.
const LOST_MAX: usize = 10;
/// Files of a lost request that the page lists.
const FILES_MAX: usize = 8;
/// Characters of a failure's output.
const OUTPUT_MAX: usize = 4096;

/// The checks of a run with power cuts.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// The result; `None` if the checks have not ended, or were killed.
    pub result: Option<CrashResult>,
    /// The verdicts.
    pub states: CrashStates,
    /// Whether passed states are among the verdicts. An older run has failures alone.
    pub has_passed: bool,
    /// Directory of the run, for `crash --resume`.
    pub directory: String,
}

impl CrashReport {
    /// The command that continues checks; `None` if they are complete.
    #[must_use]
    pub fn to_resume(&self) -> Option<String> {
        let is_complete = self.result.as_ref().is_some_and(CrashResult::is_complete);
        (!is_complete).then(|| format!("chronodisk crash --resume {}", self.directory))
    }

    /// The checks for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = self.result.as_ref().map(CrashResult::render).unwrap_or_default();
        text.extend(self.to_resume().map(|command| format!("{} `{command}` continues them.\n", self.ended())));
        text
    }

    fn ended(&self) -> String {
        let count = counted(self.states.checked(), "state");
        match self.result.as_ref().and_then(|result| result.ended_by_signal.as_ref()) {
            Some(signal) => format!("{signal} ended the checks after {count}."),
            None => format!("The checks have not ended, or were killed, after {count}."),
        }
    }
}

pub fn power_cuts(body: &mut String, runs: &[ReportRun], labels: &[String]) {
    if runs.iter().all(|run| run.crash.is_none()) {
        return;
    }
    body.push_str(
        "<h2>Power cuts</h2>\n<p class=\"dim\">States of the device after power cuts. The other sections of this page \
         are of the run that was recorded. Findings of several runs are not compared.</p>\n",
    );
    for (index, (run, label)) in runs.iter().zip(labels).enumerate() {
        let Some(crash) = &run.crash else { continue };
        body.push_str(&format!("<h3>{}</h3>\n", escaped(label)));
        if let Some(command) = crash.to_resume() {
            let (ended, command) = (escaped(&crash.ended()), escaped(&command));
            body.push_str(&format!("<p class=\"warning\">{ended} <code>{command}</code> continues them.</p>\n"));
        }
        crash.result.iter().for_each(|result| facts(body, result));
        if !crash.has_passed {
            body.push_str(
                "<p class=\"dim\">This run has no file of verdicts: passed states are not in table and chart. \
                 <code>chronodisk crash --from</code> checks it again.</p>\n",
            );
        }
        states(body, &crash.states);
        body.push_str(&format!("<div class=\"chart\" id=\"cuts-{index}\"></div>\n"));
        crash.result.iter().for_each(|result| failures(body, result));
    }
}

fn facts(body: &mut String, result: &CrashResult) {
    let states = counted(result.states_distinct as u64, "distinct state");
    let drawn = format!("{states} of {} at {}", result.states_drawn, counted(result.cuts as u64, "cut"));
    let list = [
        ("check", result.check.clone()),
        ("states", format!("{drawn}, by the rule {} and the seed {}", result.states, result.seed)),
        ("verdicts", format!("{} checked, {} failed", result.states_checked, result.states_failed)),
        ("file system", result.file_system.clone()),
        ("recording", format!("{}, torn at {} bytes", counted(result.requests as u64, "request"), result.torn_bytes)),
        ("acknowledged", counted(result.acknowledged_lines as u64, "line")),
    ];
    pairs(body, &list);
}

/// States by draw and verdict.
fn states(body: &mut String, states: &CrashStates) {
    let draws = states.draws();
    let steps: Vec<usize> =
        (0..STEPS.len()).filter(|step| draws.iter().any(|draw| states.failed[*draw][*step] > 0)).collect();
    body.push_str("<p class=\"dim\">States by draw and verdict.</p>\n");
    body.push_str("<div class=\"scroll\"><table>\n<thead><tr><th>draw</th>");
    let failed = steps.iter().map(|step| format!("failed: {}", STEPS[*step]));
    for name in ["states".to_owned(), "passed".to_owned()].into_iter().chain(failed) {
        body.push_str(&format!("<th class=\"n\">{name}</th>"));
    }
    body.push_str("</tr></thead>\n<tbody>\n");
    for draw in draws {
        let all = states.passed[draw] + states.failed[draw].iter().sum::<u64>();
        body.push_str(&format!("<tr><td>{}</td>", DRAWS[draw]));
        for count in [all, states.passed[draw]].into_iter().chain(steps.iter().map(|step| states.failed[draw][*step])) {
            body.push_str(&format!("<td class=\"n\">{count}</td>"));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div>\n");
}

fn failures(body: &mut String, result: &CrashResult) {
    if result.failures.is_empty() {
        return;
    }
    body.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th class=\"n\">state</th><th>failed step</th>\
         <th class=\"n\">cut at s</th><th>draw</th><th class=\"n\">acknowledged lines</th>\
         <th>fewest lost requests</th><th>repeat</th></tr></thead>\n<tbody>\n",
    );
    for failure in result.failures.iter().take(FAILURES_MAX) {
        row(body, failure);
    }
    body.push_str("</tbody></table></div>\n");
    if result.failures.len() > FAILURES_MAX {
        let more = result.failures.len() - FAILURES_MAX;
        body.push_str(&format!("<p class=\"dim\">{more} more are in <code>crash.json</code>.</p>\n"));
    }
}

fn row(body: &mut String, failure: &CrashFailure) {
    let at_s = failure.cut_ns.as_nanos() as f64 / 1e9;
    body.push_str(&format!("<tr><td class=\"n\">{}</td><td>{}", failure.state, escaped(&failure.failed)));
    let output: String = failure.output.chars().take(OUTPUT_MAX).collect();
    if !output.is_empty() {
        folded(body, "Output", &output);
    }
    body.push_str(&format!(
        "</td><td class=\"n\">{at_s:.6}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td><code>{}</code></td></tr>\n",
        escaped(&failure.draw),
        failure.acknowledged_lines,
        lost(failure),
        escaped(&failure.repeat)
    ));
}

/// The fewest lost requests, or the lost ones of a state that was not shrunk.
fn lost(failure: &CrashFailure) -> String {
    let (count, list, note) = match &failure.fewest {
        Some(fewest) => (fewest.requests, &fewest.lost, ""),
        None => (failure.lost_requests, &failure.lost, " (not shrunk)"),
    };
    let mut text = format!("{count}{note}");
    for request in list.iter().take(LOST_MAX) {
        text.push_str(&format!("<br>{}", escaped(&words(request))));
    }
    if count > list.len().min(LOST_MAX) {
        text.push_str("<br>…");
    }
    text
}

fn words(request: &CrashRequest) -> String {
    let mut files = request.files.iter().take(FILES_MAX).cloned().collect::<Vec<_>>().join(", ");
    if request.files.len() > FILES_MAX {
        files.push_str(", …");
    }
    let of = if files.is_empty() { "" } else { " of " };
    format!("{}: {}, {} sectors from {} on{of}{files}", request.request, request.op, request.sectors, request.lba)
}
