//! `chronodisk trace record`: the system calls of a program on this host.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chronodisk_engine::ending::signal_name;
use chronodisk_native::{NativeError, Recorded, Recording, RecordingSummary, record};
use chronodisk_report::{EndedBy, write_calls};
use chronodisk_run::{EndSignals, Keyboard, native_failure, snapshot};
use chronodisk_sim::{ContentsLimit, MeteredRead};
use chronodisk_trace::calls::{CallTrace, Collisions, absolute, collisions, fold, read_journal};
use clap::Args;
use serde::Serialize;

use super::{incompleteness, tasks};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Records the system calls of a program on this host
///
/// Stops CMD and all its children at each call that a trace has, by ptrace and a seccomp filter. No privilege is
/// needed. A stop costs 5 to 30 microseconds, which is printed: programs that work from the page cache run several
/// times as long, programs that wait for a disk hardly longer. `chronodisk run --record-calls` records in a guest at
/// no cost.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: that of CMD, 125 if the recorder failed after CMD had started.\n\
    Before it starts: 2 for wrong usage, 3 if this host lacks or forbids something.\n\n\
    A recorder that is killed leaves FILE.partial, which `chronodisk trace import --journal` reads.\n\n\
    Example: chronodisk trace record --mount /mnt -o make.calls -- make -C /mnt/project")]
pub struct Arguments {
    /// Writes the trace to this file; an existing file is replaced
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,

    /// Sets the directory at which the file system of interest is mounted. Grouping and replay need it
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,

    /// Omits calls that neither use the mount point nor affect a later call. Their CPU time becomes think time
    #[arg(long, requires = "mount")]
    fold: bool,

    /// Prints the result as JSON on standard output. CMD's standard output goes to standard error
    #[arg(long)]
    json: bool,

    /// Program to record, with its arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
}

/// Version 1 of the result.
const SCHEMA: &str = "chronodisk.recording/1";

/// The result as JSON.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    ended_by: EndedBy,
    status: u8,
    calls: usize,
    tasks: usize,
    elapsed_ns: u64,
    /// Stops of tasks at calls, including calls that the kernel restarted.
    stops: u64,
    cost_per_call_ns: u64,
    slow_down: f64,
    cpu_ns: u64,
    /// CPU time that several processors spent at once.
    colliding_cpu_ns: u64,
    lost_events: u64,
    incomplete: &'a BTreeMap<String, u64>,
}

/// Records, and reports the cost.
pub fn execute(arguments: &Arguments) -> Outcome {
    output::expect_place(&arguments.output)?;
    let mount = arguments.mount.as_deref().map(mount_point).transpose()?;
    let journal = journal_of(&arguments.output);
    if journal.exists() {
        return Err(Failure::usage(format!("{} exists: a killed recorder left it", journal.display())).help(format!(
            "keep what it has with `chronodisk trace import --journal {}`, or remove it",
            journal.display()
        )));
    }
    let signals = EndSignals::catch(Keyboard::IsThePrograms)?;
    let recording = Recording {
        command: &arguments.command,
        mount: mount.as_deref(),
        journal: &journal,
        stdout_to_stderr: arguments.json,
        requests: &signals,
    };
    let left_behind =
        |count: usize| output::note(format_args!("the program has ended; waiting for {count} tasks that it left"));
    let statistics = match record(recording, &left_behind).map_err(|error| failed(error, &journal))? {
        Recorded::Ended(statistics) => statistics,
        Recorded::Refused { status, reason } => {
            let name = arguments.command.first().map(|name| name.display().to_string()).unwrap_or_default();
            output::note(format_args!("chronodisk: {name}: {reason}"));
            return Ok(status);
        }
    };
    let asked = signals.signal();
    // The conversion ends at the first signal; the journal stays.
    drop(signals);
    let mut trace = convert(&journal, None, ContentsLimit::NONE).map_err(Failure::after_start)?;
    trace.header.file_system_uuid = mount.as_deref().and_then(snapshot::uuid_of_mount);
    if arguments.fold {
        trace = fold(&trace);
    }
    write_calls(&arguments.output, &trace).map_err(|error| kept(Failure::host(error), &journal).after_start())?;
    // The content is in the trace now.
    let _ = fs::remove_file(&journal);
    report(arguments, &trace, &statistics, asked).map_err(Failure::after_start)?;
    Ok(statistics.status)
}

fn journal_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// The directory by its real path, without symbolic links, as the kernel reports a working directory.
fn mount_point(given: &Path) -> Result<String, Failure> {
    let shown = given.display();
    let real = fs::canonicalize(given).map_err(|error| Failure::usage(format!("--mount {shown}: {error}")))?;
    if !real.is_dir() {
        return Err(Failure::usage(format!("--mount {shown} is no directory")));
    }
    let text = real.to_str().filter(|text| absolute(b"/", text.as_bytes()).is_some());
    match text {
        Some("/") => Err(Failure::usage("--mount / can't be replayed: programs are on the same file system")
            .help("name the directory that the program works in")),
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::usage(format!("--mount {shown} has no name in UTF-8"))),
    }
}

fn failed(error: NativeError, journal: &Path) -> Failure {
    let failure = native_failure(error);
    if journal.exists() { kept(failure, journal).after_start() } else { failure }
}

fn kept(failure: Failure, journal: &Path) -> Failure {
    failure.help(format!("the recording is in {0}: chronodisk trace import --journal {0}", journal.display()))
}

/// Upper bound of a call's memory as a multiple of its length in the output of strace or in a journal.
pub const CALL_FACTOR: u64 = 16;

/// Reads a journal that this command or an earlier one has left.
pub fn convert(journal: &Path, mount: Option<&str>, limit: ContentsLimit) -> Result<CallTrace, Failure> {
    let shown = journal.display();
    let file = File::open(journal).map_err(|error| Failure::usage(format!("{shown}: can't read: {error}")))?;
    read_journal(BufReader::new(MeteredRead::new(file, CALL_FACTOR, limit)), mount).map_err(|error| {
        Failure::usage(format!("{shown}: {error}"))
            .help(format!("chronodisk trace import --journal {shown} --mount DIR sets another mount point"))
    })
}

fn report(
    arguments: &Arguments,
    trace: &CallTrace,
    statistics: &RecordingSummary,
    asked: Option<i32>,
) -> Result<(), Failure> {
    let Collisions { cpu, excess } = collisions(&trace.records);
    let header = &trace.header;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let slow_down = statistics.slow_down(Duration::from_nanos(cpu.as_nanos() / processors));
    if arguments.json {
        output::json(&Report {
            schema: SCHEMA,
            ended_by: if asked.is_some() { EndedBy::Signal } else { EndedBy::Command },
            status: statistics.status,
            calls: trace.records.len(),
            tasks: tasks(trace),
            elapsed_ns: statistics.elapsed.as_nanos() as u64,
            stops: statistics.calls,
            cost_per_call_ns: statistics.cost_per_call.as_nanos() as u64,
            slow_down,
            cpu_ns: cpu.as_nanos(),
            colliding_cpu_ns: excess.as_nanos(),
            lost_events: header.lost_events,
            incomplete: &header.incomplete,
        })?;
    }
    let (path, calls) = (arguments.output.display(), trace.records.len());
    output::note(format_args!("{path}: {calls} calls of {} tasks", tasks(trace)));
    output::note(format_args!(
        "recording cost {:.1} us per call: the program took about {slow_down:.1} times as long as without",
        statistics.cost_per_call.as_secs_f64() * 1e6,
    ));
    if let Some(note) = collided(trace) {
        output::note(note);
    }
    if let Some(signal) = asked {
        output::note(format_args!("{} ended the recording", signal_name(signal)));
    }
    if header.mount.is_none() {
        output::note("the trace has no mount point (--mount): it can be examined, but not grouped or replayed");
    }
    if let Some(warning) = incompleteness(header) {
        output::note(warning);
    }
    Ok(())
}

/// Think time added by the guest's single processor, for people; `None` if it is little.
pub fn collided(trace: &CallTrace) -> Option<String> {
    let Collisions { cpu, excess } = collisions(&trace.records);
    let (cpu, excess) = (cpu.as_nanos() as f64 / 1e9, excess.as_nanos() as f64 / 1e9);
    (excess > cpu / 100.0).then(|| {
        format!(
            "{excess:.3} s of {cpu:.3} s of CPU time were spent on several processors at once; a guest has one, and \
            adds them"
        )
    })
}
