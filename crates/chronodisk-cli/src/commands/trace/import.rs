//! `chronodisk trace import`: converts the output of strace, or the journal of a killed recorder, into a trace.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use chronodisk_report::write_calls;
use chronodisk_run::memory::MemoryOptions;
use chronodisk_sim::{MeteredRead, Nanos};
use chronodisk_trace::calls::{CallTrace, Header, TracerCost, fold, read_strace};
use clap::Args;

use super::record::{CALL_FACTOR, collided, convert};
use super::{incompleteness, tasks};
use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Converts the output of strace, or the journal of a killed recorder, into a trace of system calls
///
/// strace must have run with -f -ttt -T -yy -o FILE. It prints no CPU times: the time between two calls of a task
/// stands for them.
#[derive(Debug, Args)]
#[command(after_help = "Example: strace -f -ttt -T -yy -o make.strace make\n         \
    chronodisk trace import --strace make.strace --mount /mnt -o make.calls")]
pub struct Arguments {
    /// Reads this output of strace
    #[arg(long, value_name = "FILE", required_unless_present = "journal", conflicts_with = "journal")]
    strace: Option<PathBuf>,

    /// Reads this journal, which a recorder left when it was killed
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Sets the directory at which the file system of the device was mounted. Grouping and replay need it
    #[arg(long, value_name = "DIR")]
    mount: Option<String>,

    /// Sets the architecture of the programs in the output of strace, as `uname -m` prints it (default: this host's)
    #[arg(long, value_name = "NAME", conflicts_with = "journal")]
    architecture: Option<String>,

    /// Omits calls that neither use the mount point nor affect a later call. Their CPU time becomes think time
    #[arg(long, requires = "mount")]
    fold: bool,

    /// Writes the trace to this file; an existing file is replaced
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    #[command(flatten)]
    memory: MemoryOptions,
}

/// Converts, and reports the findings.
pub fn execute(arguments: &Arguments) -> Outcome {
    output::expect_place(&arguments.output)?;
    let (mut trace, think) = match (&arguments.strace, &arguments.journal) {
        (Some(strace), _) => {
            let trace = from_strace(arguments, strace)?;
            let think = format!("; think times include waits for a CPU{}", taken_off(&trace.header));
            (trace, think)
        }
        (None, Some(journal)) => {
            (convert(journal, arguments.mount.as_deref(), arguments.memory.limit())?, String::new())
        }
        (None, None) => return Err(Failure::usage("--strace or --journal is missing")),
    };
    if arguments.fold {
        trace = fold(&trace);
    }
    write_calls(&arguments.output, &trace).map_err(Failure::host)?;
    let (path, calls) = (arguments.output.display(), trace.records.len());
    output::note(format_args!("{path}: {calls} calls of {} tasks{think}", tasks(&trace)));
    for note in [collided(&trace), incompleteness(&trace.header)].into_iter().flatten() {
        output::note(note);
    }
    Ok(status::FINE)
}

/// The time of strace that is subtracted from think times.
fn taken_off(header: &Header) -> String {
    let Some(TracerCost { estimate, low, high, .. }) = header.tracer else {
        return ", and the time of strace itself".to_owned();
    };
    let micros = |time: Nanos| time.as_nanos() as f64 / 1e3;
    format!(
        "; {:.1} us of each are taken off for strace itself ({:.1} to {:.1} us)",
        micros(estimate),
        micros(low),
        micros(high)
    )
}

fn from_strace(arguments: &Arguments, strace: &Path) -> Result<CallTrace, Failure> {
    let name = strace.display().to_string();
    let file = File::open(strace).map_err(|error| Failure::usage(format!("{name}: can't read: {error}")))?;
    let mount = arguments.mount.as_deref();
    let architecture = arguments.architecture.as_deref().unwrap_or(std::env::consts::ARCH);
    let metered = MeteredRead::new(file, CALL_FACTOR, arguments.memory.limit());
    read_strace(BufReader::new(metered), &name, mount, architecture).map_err(|error| {
        let failure = Failure::usage(&error);
        if error.line > 0 { failure.help("expected output of strace -f -ttt -T -yy -o FILE") } else { failure }
    })
}
