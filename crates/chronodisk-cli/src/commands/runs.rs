//! `chronodisk runs`: lists saved runs.

use std::path::PathBuf;

use chronodisk_report::{Align, Table, counted};
use chronodisk_run::{KeptRun, RunFolder};
use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Lists the kept runs with their names, tags and sizes
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk runs --tag nightly")]
pub struct Arguments {
    /// Directory of the runs (default: ~/.local/state/chronodisk/runs)
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Lists only the runs with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,

    /// Prints the list as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON form; added fields don't change it.
const SCHEMA: &str = "chronodisk.runs/1";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    folder: PathBuf,
    bytes: u64,
    runs: Vec<KeptRun>,
}

/// Lists saved runs.
pub fn execute(arguments: Arguments) -> Outcome {
    let folder = match arguments.directory {
        Some(folder) if folder.is_dir() => RunFolder::at(folder),
        Some(folder) => return Err(Failure::usage(format!("{} is not a directory", folder.display()))),
        None => RunFolder::of_user()?,
    };
    let mut runs = folder.runs();
    if let Some(tag) = &arguments.tag {
        runs.retain(|kept| kept.labels().tags.contains(tag));
    }
    let report = Report {
        schema: SCHEMA,
        bytes: runs.iter().map(|kept| kept.bytes).sum(),
        folder: folder.path().to_owned(),
        runs,
    };
    if arguments.json {
        output::json(&report)?;
        return Ok(status::FINE);
    }
    output::data(&render(&report))?;
    let of_tag = arguments.tag.map_or(String::new(), |tag| format!(" with the tag '{tag}'"));
    let folder = report.folder.display();
    output::note(match report.runs.len() {
        0 => format!("no runs{of_tag} in {folder}"),
        count => format!("{}{of_tag}, {} in {folder}", counted(count as u64, "run"), output::size(report.bytes)),
    });
    Ok(status::FINE)
}

/// Longest command that is shown whole, in characters.
const COMMAND_MAX: usize = 40;

fn render(report: &Report) -> String {
    use Align::{Left, Right};
    if report.runs.is_empty() {
        return String::new();
    }
    let mut table = Table::new([
        ("run", Left),
        ("name", Left),
        ("device", Left),
        ("fs", Left),
        ("reps", Right),
        ("run time s", Right),
        ("size", Right),
        ("tags", Left),
        ("command", Left),
    ]);
    for kept in &report.runs {
        let size = output::size(kept.bytes);
        let Some(head) = &kept.head else {
            let problem = kept.problem.clone().unwrap_or_default();
            table.row([kept.id.as_str(), "-", "-", "-", "-", "-", &size, "-", &format!("({problem})")]);
            continue;
        };
        let labels = &head.labels;
        let tags = if labels.tags.is_empty() { "-".to_owned() } else { labels.tags.join(",") };
        let failed = head.reps.iter().any(|rep| rep.exit_status != 0);
        let checks = kept.crash.as_ref().map_or(String::new(), |checks| format!(" ({})", checks.words()));
        table.row([
            kept.id.clone(),
            labels.name.clone().unwrap_or("-".into()),
            head.device.profile.clone(),
            head.guest.file_system.clone(),
            head.reps.len().to_string(),
            kept.run_time_mean_s().map_or("-".into(), |seconds| format!("{seconds:.3}")),
            size,
            tags,
            output::shortened(&head.command.join(" "), COMMAND_MAX) + if failed { " (failed)" } else { "" } + &checks,
        ]);
    }
    table.render()
}
