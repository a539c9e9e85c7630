//! `chronodisk trace groups`: tasks that depend on each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use chronodisk_run::memory::MemoryOptions;
use chronodisk_trace::calls::{CallTrace, Groups, groups};
use clap::Args;
use serde::Serialize;

use super::{GROUPING_BYTES, incompleteness, read};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Lists the groups of dependent tasks, the elements of a bootstrap
///
/// A group joins tasks if one uses a file that another made or changed on the device, if they share a pipe, or if one
/// made the other. Reading the same files does not join. The spine consists of tasks without a group, such as a shell
/// that starts several.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk trace groups users.calls")]
pub struct Arguments {
    /// Trace to divide into groups
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    memory: MemoryOptions,
}

/// Version 1 of the result.
const SCHEMA: &str = "chronodisk.groups/1";

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// Ids of the tasks of each group.
    groups: &'a [Vec<u32>],
    /// Ids of the tasks of no group.
    spine: &'a [u32],
}

/// Finds groups, and writes them.
pub fn execute(arguments: &Arguments) -> Outcome {
    let trace = read(&arguments.trace, arguments.memory, GROUPING_BYTES)?;
    let found = find(&trace, &arguments.trace)?;
    if arguments.json {
        output::json(&Report { schema: SCHEMA, groups: &found.groups, spine: &found.spine })?;
    } else {
        output::data(&table(&trace, &found))?;
    }
    if let Some(warning) = incompleteness(&trace.header) {
        output::note(warning);
    }
    Ok(status::FINE)
}

/// The groups of a trace that the user named.
pub fn find(trace: &CallTrace, path: &std::path::Path) -> Result<Groups, Failure> {
    groups(trace).map_err(|message| Failure::usage(format!("{}: {message}", path.display())))
}

fn table(trace: &CallTrace, found: &Groups) -> String {
    let mut calls: BTreeMap<u32, u64> = BTreeMap::new();
    for record in &trace.records {
        *calls.entry(record.task).or_default() += 1;
    }
    let line = |name: &str, tasks: &[u32]| {
        let calls: u64 = tasks.iter().filter_map(|task| calls.get(task)).sum();
        let first = tasks.first().map_or("-".to_owned(), u32::to_string);
        format!("{name:>5}  {first:>10}  {:>7}  {calls:>10}\n", tasks.len())
    };
    let mut text = "group  first task    tasks       calls\n-----  ----------  -------  ----------\n".to_owned();
    for (index, tasks) in found.groups.iter().enumerate() {
        let _ = write!(text, "{}", line(&index.to_string(), tasks));
    }
    text + &line("spine", &found.spine)
}
