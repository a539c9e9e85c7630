//! The parts of a report that are words and tables.

use chronodisk_sim::Nanos;

use super::{ReportRun, ReportSource};
use crate::compare::Comparison;
use crate::render::size;
use crate::schema::RunResult;
use crate::{render_run_summary, render_simulation};

/// A text as it stands in HTML, in attributes as well.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Colours of the lines, as in the script.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f"];

const COLUMNS: [&str; 11] = [
    "reps",
    "run time s",
    "difference %",
    "requests",
    "MB/s",
    "mean µs",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "max µs",
    "busy %",
];

pub fn summary_table(body: &mut String, runs: &[ReportRun], labels: &[String], comparison: Option<&Comparison>) {
    body.push_str(
        "<h2>Summary</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>run</th><th>device</th><th>file system</th>",
    );
    for name in COLUMNS {
        body.push_str(&format!("<th class=\"n\">{name}</th>"));
    }
    body.push_str("</tr></thead>\n<tbody>\n");
    for (index, (run, label)) in runs.iter().zip(labels).enumerate() {
        let devices: Vec<&str> = run.source.devices().iter().map(|device| device.profile.as_str()).collect();
        let file_system = run.source.run().map_or("-", |run| run.guest.file_system.as_str());
        body.push_str(&format!(
            "<tr><td><span class=\"swatch\" style=\"background: {}\"></span>{}</td><td>{}</td><td>{}</td>",
            COLOURS[index % COLOURS.len()],
            escaped(label),
            escaped(&devices.join(", ")),
            escaped(file_system)
        ));
        for cell in figures(run, index, comparison) {
            body.push_str(&format!("<td class=\"n\">{cell}</td>"));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div>\n<p class=\"dim\">Means over the repetitions, with 95 % intervals. ");
    body.push_str("Percentiles are of the service time, each repetition's own.</p>\n");
}

/// The cells of [`COLUMNS`].
fn figures(run: &ReportRun, index: usize, comparison: Option<&Comparison>) -> [String; COLUMNS.len()] {
    let summaries = run.source.summaries();
    let mean = |value: &dyn Fn(&crate::Summary) -> f64| {
        let sum: f64 = summaries.iter().map(|summary| value(summary)).sum();
        if summaries.is_empty() { 0.0 } else { sum / summaries.len() as f64 }
    };
    let row = comparison.map(|comparison| &comparison.rows[index]);
    let estimate = |estimate: Option<crate::Estimate>, decimals: usize, signed: bool| match estimate {
        None => "-".to_owned(),
        Some(estimate) => {
            let mean = estimate.mean;
            let half = estimate.half_width_95.map_or(String::new(), |half| format!(" ± {half:.decimals$}"));
            if signed { format!("{mean:+.decimals$}{half}") } else { format!("{mean:.decimals$}{half}") }
        }
    };
    let run_time = match &run.source {
        ReportSource::Run(_) => estimate(row.and_then(|row| row.run_time_s), 3, false),
        ReportSource::Simulation { simulation, .. } => format!("{:.3}", simulation.simulated_s),
    };
    [
        summaries.len().to_string(),
        run_time,
        estimate(row.and_then(|row| row.difference_percent).filter(|_| index > 0), 2, true),
        format!("{:.0}", mean(&|summary| summary.requests as f64)),
        format!("{:.2}", mean(&|summary| summary.mb_per_s)),
        format!("{:.1}", mean(&|summary| summary.service_time_us.mean)),
        format!("{:.1}", mean(&|summary| summary.service_time_us.p50)),
        format!("{:.1}", mean(&|summary| summary.service_time_us.p99)),
        format!("{:.1}", mean(&|summary| summary.service_time_us.p999)),
        format!("{:.1}", mean(&|summary| summary.service_time_us.max)),
        format!("{:.1}", mean(&|summary| summary.utilisation * 100.0)),
    ]
}

/// Everything else that is known of each run.
pub fn details(body: &mut String, runs: &[ReportRun], labels: &[String]) {
    body.push_str("<h2>Runs in detail</h2>\n");
    for (run, label) in runs.iter().zip(labels) {
        body.push_str(&format!("<h3>{}</h3>\n", escaped(label)));
        let summary = match &run.source {
            ReportSource::Run(result) => {
                facts(body, result);
                render_run_summary(result)
            }
            ReportSource::Simulation { simulation, .. } => render_simulation(simulation),
        };
        folded(body, "Summary", &summary);
        for device in run.source.devices() {
            let about = format!("Profile {} with its sources", device.profile);
            let program = device.program.as_ref().map(|program| format!("# The model was the program {program}.\n"));
            folded(body, &about, &(program.unwrap_or_default() + &device.profile_toml));
        }
        match &run.source {
            ReportSource::Run(result) => {
                if let Some(rep) = result.reps.first() {
                    statistics(body, "Statistics of the model, first repetition", &rep.model_statistics);
                }
            }
            ReportSource::Simulation { simulation, .. } => {
                statistics(body, "Statistics of the model", &simulation.model_statistics);
            }
        }
    }
    body.push_str("</main>\n");
}

fn facts(body: &mut String, run: &RunResult) {
    let commit = run.chronodisk_commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
    let host = &run.host;
    let mut facts = vec![
        ("command line", quoted(&run.command_line)),
        ("started", format!("{} (host's clock, UTC)", run.started_at)),
        ("made by", format!("chronodisk {}{commit}", run.chronodisk_version)),
        ("host", format!("{}, {} CPUs, Linux {}", host.cpu_model, host.cores, host.kernel)),
    ];
    facts.extend(run.labels.note.iter().map(|note| ("note", note.clone())));
    if !run.labels.tags.is_empty() {
        facts.push(("tags", run.labels.tags.join(", ")));
    }
    for device in std::iter::once(&run.device).chain(&run.further_devices) {
        let state = &device.initial_state_hash;
        facts.push(("device", format!("{}, {}, {state}", device.profile, size(device.capacity_bytes))));
    }
    let host_time = run.reps.iter().map(|rep| rep.host_time_ns).fold(Nanos::ZERO, Nanos::saturating_add);
    facts.push(("time on the host", host_time.to_string()));
    pairs(body, &facts);
}

/// A table of names and values.
pub fn pairs<N: AsRef<str>>(body: &mut String, pairs: &[(N, String)]) {
    body.push_str("<div class=\"scroll\"><table>\n");
    for (name, value) in pairs {
        body.push_str(&format!("<tr><th>{}</th><td>{}</td></tr>\n", escaped(name.as_ref()), escaped(value)));
    }
    body.push_str("</table></div>\n");
}

/// The model's own statistics.
fn statistics(body: &mut String, name: &str, statistics: &std::collections::BTreeMap<String, f64>) {
    if statistics.is_empty() {
        return;
    }
    body.push_str(&format!("<details><summary>{name}</summary><div class=\"scroll\"><table>\n"));
    for (name, value) in statistics {
        body.push_str(&format!("<tr><th>{}</th><td class=\"n\">{value}</td></tr>\n", escaped(name)));
    }
    body.push_str("</table></div></details>\n");
}

pub fn folded(body: &mut String, name: &str, text: &str) {
    let (name, text) = (escaped(name), escaped(text));
    body.push_str(&format!("<details><summary>{name}</summary><pre>{text}</pre></details>\n"));
}

/// A command line as a shell takes it.
pub(crate) fn quoted(words: &[String]) -> String {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|character| character.is_alphanumeric() || "-_./:=,+@%".contains(character))
    };
    let quote =
        |word: &String| if is_plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_becomes_markup() {
        assert_eq!(escaped("<a href='x\"&y'>"), "&lt;a href=&#39;x&quot;&amp;y&#39;&gt;");
    }

    #[test]
    fn a_command_line_can_be_typed_again() {
        let words = ["sh", "-c", "echo 'a b' >/mnt/x", "", "größe"].map(String::from);
        assert_eq!(quoted(&words), r"sh -c 'echo '\''a b'\'' >/mnt/x' '' größe");
    }
}
