//! `chronodisk rm`: deletes kept runs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use chronodisk_run::{KeptRun, RunDirectory, RunFolder, quantity};
use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Deletes kept runs
///
/// Deletes the files that Chronodisk wrote, and the run's directory if nothing else is in it.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk rm --older-than 30d")]
pub struct Arguments {
    /// Runs to delete: directories, ids, names (the newest of that name), or `last`
    #[arg(required_unless_present_any = ["tags", "older_than"], value_name = "RUN")]
    runs: Vec<String>,

    /// Deletes the kept runs with this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Deletes only runs that began longer ago than this, such as 30d; alone, of all kept runs
    #[arg(long, value_name = "AGE", value_parser = quantity::age)]
    older_than: Option<Duration>,

    /// Says what would be deleted, and deletes nothing
    #[arg(long)]
    dry_run: bool,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON form; added fields don't change it.
const SCHEMA: &str = "chronodisk.rm/1";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    dry_run: bool,
    bytes: u64,
    deleted: Vec<PathBuf>,
}

/// Deletes the chosen runs; all names are resolved before the first deletion.
pub fn execute(arguments: Arguments) -> Outcome {
    let mut chosen = Vec::new();
    for name in &arguments.runs {
        let directory = RunFolder::find(name)?;
        let kept = KeptRun::read(directory.clone());
        let shown = directory.path().display();
        chosen.push(kept.ok_or_else(|| Failure::usage(format!("{shown} holds no run")))?);
        if directory.is_being_written() {
            return Err(Failure::usage(format!("{shown} is still being written")).help("wait for the run, or end it"));
        }
    }
    for tag in &arguments.tags {
        chosen.extend(RunFolder::of_user()?.find_tagged(tag)?.into_iter().filter_map(KeptRun::read));
    }
    if arguments.runs.is_empty() && arguments.tags.is_empty() {
        chosen = RunFolder::of_user()?.runs();
    }
    chosen.retain(|kept| arguments.older_than.is_none_or(|least| kept.age() > least));
    chosen.sort_by(|a, b| a.directory.cmp(&b.directory));
    chosen.dedup_by(|a, b| a.directory == b.directory);
    let (written, chosen): (Vec<KeptRun>, Vec<KeptRun>) =
        chosen.into_iter().partition(|kept| kept.directory.is_being_written());
    for kept in &written {
        output::note(format_args!("{} is kept: it is still being written", kept.directory.path().display()));
    }

    let mut report = Report { schema: SCHEMA, dry_run: arguments.dry_run, bytes: 0, deleted: Vec::new() };
    for kept in chosen {
        if !arguments.dry_run {
            delete(&kept.directory)?;
        }
        let verb = if arguments.dry_run { "would delete" } else { "deleted" };
        output::note(format_args!("{verb} {}, {}", kept.directory.path().display(), output::size(kept.bytes)));
        report.bytes += kept.bytes;
        report.deleted.push(kept.directory.path().to_owned());
    }
    if let Ok(folder) = RunFolder::of_user() {
        folder.forget_missing();
    }
    if report.deleted.is_empty() && written.is_empty() {
        output::note("no run is that old");
    } else if report.deleted.len() > 1 {
        output::note(format_args!("{} runs, {}", report.deleted.len(), output::size(report.bytes)));
    }
    if arguments.json {
        output::json(&report)?;
    }
    Ok(status::FINE)
}

/// Deletes a run's files, the result last: so an interrupted deletion still shows as a run.
fn delete(directory: &RunDirectory) -> Result<(), Failure> {
    for file in directory.files() {
        fs::remove_file(&file).map_err(|error| Failure::host(format!("{}: can't delete: {error}", file.display())))?;
    }
    if fs::remove_dir(directory.path()).is_err() {
        output::note(format_args!("{} is kept: it holds other files", directory.path().display()));
    }
    Ok(())
}
