//! `chronodisk trace bootstrap`: new workloads of the same population.

use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_report::write_calls;
use chronodisk_run::memory::MemoryOptions;
use chronodisk_run::quantity;
use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{CallRecord, CallTrace, Draw, Groups, draw};
use clap::Args;

use super::{GROUPING_BYTES, groups, incompleteness, read};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Draws the groups of a trace with replacement, and writes a trace for each draw
///
/// A draw has as many groups as the trace. A group that is drawn again has fresh task ids, and names of its own for the
/// files that it makes. Equal traces and seeds give equal bytes.
#[derive(Debug, Args)]
#[command(after_help = "The number of draws reduces the Monte-Carlo error only. The number of groups determines the \
    width of\nan interval.\n\nExample: chronodisk trace bootstrap users.calls --count 100 --seed 1 -o draws")]
pub struct Arguments {
    /// Trace to draw from
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Sets the number of draws
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    count: u32,

    /// Seeds the draws
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Shifts the start of each copy of a group by a random delay of at least 0 and less than T, such as 5s
    #[arg(long, value_name = "T", default_value = "0s", value_parser = quantity::duration)]
    jitter: Nanos,

    /// Writes the traces draw-0.calls, draw-1.calls and so on to this directory, which must be new or empty
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    memory: MemoryOptions,
}

/// Fewer groups make intervals that are too narrow.
const GROUPS_FEW: usize = 30;

/// Draws, and writes either all traces or none.
pub fn execute(arguments: &Arguments) -> Outcome {
    expect_new(&arguments.output)?;
    let trace = read(&arguments.trace, arguments.memory, GROUPING_BYTES + size_of::<CallRecord>() as u64)?;
    let found = groups::find(&trace, &arguments.trace)?;
    let partial = beside(&arguments.output)?;
    let written = fill(&partial, &trace, &found, arguments)
        .and_then(|()| fs::rename(&partial, &arguments.output).map_err(|error| cannot(&arguments.output, &error)));
    if let Err(failure) = written {
        // The unremoved rest has a name that marks it as partial.
        let _ = fs::remove_dir_all(&partial);
        return Err(failure);
    }
    let count = found.groups.len();
    let jitter = match arguments.jitter {
        Nanos::ZERO => String::new(),
        jitter => format!(", starts shifted by less than {jitter}"),
    };
    let (directory, draws) = (arguments.output.display(), arguments.count);
    output::note(format_args!("{directory}: B = {draws} draws of N = {count} groups{jitter}"));
    if count == 1 {
        output::note("warning: there is one group: all draws are equal, and no interval can be computed");
    } else if count < GROUPS_FEW {
        output::note(format_args!(
            "warning: there are fewer than {GROUPS_FEW} groups: intervals contain the true value less often than stated"
        ));
    }
    if let Some(warning) = incompleteness(&trace.header) {
        output::note(warning);
    }
    Ok(status::FINE)
}

fn expect_new(directory: &Path) -> Result<(), Failure> {
    output::expect_place(&directory.join("draw-0.calls"))
        .or_else(|failure| if directory.exists() { Err(failure) } else { output::expect_place(directory) })?;
    let used = directory.is_dir() && fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if used {
        return Err(Failure::usage(format!(
            "{} is not empty; expected a new or an empty directory",
            directory.display()
        )));
    }
    Ok(())
}

fn cannot(directory: &Path, error: &std::io::Error) -> Failure {
    Failure::host(format!("can't write to {}: {error}", directory.display()))
}

/// A new directory beside the one that is wanted.
fn beside(directory: &Path) -> Result<PathBuf, Failure> {
    let name = directory
        .file_name()
        .ok_or_else(|| Failure::usage(format!("{} does not name a directory that can be made", directory.display())))?;
    let partial = directory.with_file_name(format!("{}.partial-{}", name.display(), std::process::id()));
    fs::create_dir(&partial).map_err(|error| cannot(directory, &error))?;
    Ok(partial)
}

fn fill(partial: &Path, trace: &CallTrace, found: &Groups, arguments: &Arguments) -> Result<(), Failure> {
    let progress = crate::progress::Progress::new(arguments.count.into(), "draws");
    for number in 0..arguments.count {
        let which = Draw { seed: arguments.seed, number: number.into(), jitter: arguments.jitter };
        let drawn = draw(trace, found, which)
            .map_err(|message| Failure::usage(format!("{}: draw {number}: {message}", arguments.trace.display())))?;
        write_calls(&partial.join(format!("draw-{number}.calls")), &drawn).map_err(Failure::host)?;
        progress.advance(1);
    }
    progress.finish();
    Ok(())
}
