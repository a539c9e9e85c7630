//! `chronodisk show`: a kept result once more.

use std::path::PathBuf;

use chronodisk_report::{CrashResult, RunResult, render_run_summary, render_simulation};
use chronodisk_run::memory::MemoryOptions;
use chronodisk_run::{RunDirectory, RunFolder, quantity, read_crash};
use clap::Args;
use serde::Serialize;

use crate::commands::compare;
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Prints the summary of a kept run once more
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk show last --plot")]
pub struct Arguments {
    /// Run: a directory, an id, a name (the newest of that name), or `last`
    #[arg(value_name = "RUN")]
    run: String,

    /// Plots run times and distribution of service times to this file (default: plot.svg beside the result)
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file, num_args = 0..=1)]
    plot: Option<Option<PathBuf>>,

    /// Prints the whole result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,
}

/// Prints a saved run.
pub fn execute(arguments: Arguments) -> Outcome {
    let directory = RunFolder::find(&arguments.run)?;
    if directory.is_simulation() {
        return show_simulation(&arguments, &directory);
    }
    let plot = arguments.plot.map(|file| file.unwrap_or_else(|| directory.plot()));
    plot.as_deref().map_or(Ok(()), output::expect_place)?;
    let result = directory.read_run()?;
    let crash = read_crash(&directory)?;
    if arguments.json {
        match crash {
            Some(crash) => output::json(&WithCrash { run: &result, crash: crash.result.as_ref() })?,
            None => output::data(&result.to_json())?,
        }
    } else {
        let checks = crash.map_or(String::new(), |crash| format!("\n{}", crash.render()));
        output::data(&(head(&result) + &render_run_summary(&result) + &checks))?;
    }
    if let Some(file) = plot {
        let limit = arguments.memory.limit();
        compare::plot(&file, std::slice::from_ref(&directory), std::slice::from_ref(&result), limit)?;
    }
    Ok(status::FINE)
}

/// A run with power cuts as JSON: the run, and the contents of `crash.json` as a further field.
#[derive(Serialize)]
struct WithCrash<'a> {
    #[serde(flatten)]
    run: &'a RunResult,
    /// Null if the checks have not ended.
    crash: Option<&'a CrashResult>,
}

fn show_simulation(arguments: &Arguments, directory: &RunDirectory) -> Outcome {
    if arguments.plot.is_some() {
        let failure = Failure::usage(format!("{} holds a simulation; --plot draws runs", directory.path().display()));
        return Err(failure.help("`chronodisk report` draws simulations, too"));
    }
    let simulation = directory.read_simulation()?;
    output::data(&if arguments.json { simulation.to_json() } else { render_simulation(&simulation) })?;
    Ok(status::FINE)
}

/// Facts of a summary that do not follow its own run: its date and the user's labels.
fn head(result: &RunResult) -> String {
    let labels = &result.labels;
    let commit = result.chronodisk_commit.as_ref().map_or(String::new(), |commit| format!(" ({commit})"));
    let mut text = format!("started {} by chronodisk {}{commit}\n", result.started_at, result.chronodisk_version);
    text.extend(labels.name.iter().map(|name| format!("name {name}\n")));
    if !labels.tags.is_empty() {
        text.push_str(&format!("tags {}\n", labels.tags.join(", ")));
    }
    text.extend(labels.note.iter().map(|note| format!("note {note}\n")));
    text.push('\n');
    text
}
