//! `chronodisk trace import`: the output of strace becomes a trace.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use chronodisk_report::write_calls;
use chronodisk_trace::calls::read_strace;
use clap::Args;

use super::incompleteness;
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Converts the output of strace into a trace of system calls
///
/// strace must have run with -f -ttt -T -yy -o FILE. It prints no CPU times: the time between two calls of a task
/// stands for them.
#[derive(Debug, Args)]
#[command(after_help = "Example: strace -f -ttt -T -yy -o make.strace make\n         \
    chronodisk trace import --strace make.strace --mount /mnt -o make.calls")]
pub struct Arguments {
    /// Reads this output of strace
    #[arg(long, value_name = "FILE")]
    strace: PathBuf,

    /// Sets the directory at which the file system of the device was mounted. Grouping and replay need it
    #[arg(long, value_name = "DIR")]
    mount: Option<String>,

    /// Sets the architecture of the recorded programs, as `uname -m` prints it (default: this host's)
    #[arg(long, value_name = "NAME")]
    architecture: Option<String>,

    /// Writes the trace to this file; an existing file is replaced
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

/// Converts, and says what was found.
pub fn execute(arguments: &Arguments) -> Outcome {
    output::expect_place(&arguments.output)?;
    let name = arguments.strace.display().to_string();
    let file = File::open(&arguments.strace).map_err(|error| Failure::usage(format!("{name}: can't read: {error}")))?;
    let mount = arguments.mount.as_deref();
    let architecture = arguments.architecture.as_deref().unwrap_or(std::env::consts::ARCH);
    let trace = read_strace(BufReader::new(file), &name, mount, architecture).map_err(|error| {
        let failure = Failure::usage(&error);
        if error.line > 0 { failure.help("expected output of strace -f -ttt -T -yy -o FILE") } else { failure }
    })?;
    write_calls(&arguments.output, &trace).map_err(Failure::host)?;
    let tasks: BTreeSet<u32> = trace.records.iter().map(|record| record.task).collect();
    let (path, calls) = (arguments.output.display(), trace.records.len());
    output::note(format_args!("{path}: {calls} calls of {} tasks; think times include waits for a CPU", tasks.len()));
    if let Some(warning) = incompleteness(&trace.header) {
        output::note(warning);
    }
    Ok(status::FINE)
}
