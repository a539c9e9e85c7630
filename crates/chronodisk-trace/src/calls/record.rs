//! The plain data of a trace, and the conditions that every trace meets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chronodisk_sim::Nanos;

use super::table;

/// Longest path in bytes: Linux's `PATH_MAX`.
pub const PATH_BYTES_MAX: usize = 4096;
/// Greatest id of a task: the largest `pid_max` of Linux.
pub const TASK_MAX: u32 = 1 << 22;
/// `waitid`: waits for the task in the next argument.
const P_PID: u64 = 1;

/// A trace of system calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTrace {
    /// Properties of the whole trace.
    pub header: Header,
    /// Records of the calls, in order of entry.
    pub records: Vec<CallRecord>,
}

/// Properties of a whole trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Mount point of the device's file system: an absolute path without a slash at its end. `None` if it is unknown.
    pub mount: Option<String>,
    /// UUID of the file system mounted there, if it existed before the trace. A snapshot of it can restore its initial
    /// content.
    pub file_system_uuid: Option<String>,
    /// Architecture of the recorded programs, as `uname -m` prints it.
    pub architecture: String,
    /// The clock that the instants were read from.
    pub clock: Clock,
    /// Whether computing took no time during the recording. CPU times are then that clock's constant charges, and the
    /// kernel of a replay has its own.
    pub free_computing: bool,
    /// The recorder's cost for each gap between two calls and for each call, if the instants include it.
    pub tracer: Option<TracerCost>,
    /// Calls that the recorder knows to have missed.
    pub lost_events: u64,
    /// Causes that make the trace incomplete, by name, with their numbers.
    pub incomplete: BTreeMap<String, u64>,
    /// State of tasks that existed before the first record, in order of their ids.
    pub start: Vec<StartState>,
}

impl Header {
    /// A header of a complete trace.
    #[must_use]
    pub fn new(architecture: impl Into<String>, clock: Clock) -> Self {
        Header {
            mount: None,
            file_system_uuid: None,
            architecture: architecture.into(),
            clock,
            free_computing: false,
            tracer: None,
            lost_events: 0,
            incomplete: BTreeMap::new(),
            start: Vec::new(),
        }
    }

    /// Whether every call was recorded in a form that can be replayed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.lost_events == 0 && self.incomplete.is_empty()
    }

    /// Missing parts of the trace, for people, such as `3 lost calls, unreadable-path (2)`; `None` if it is complete.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let lost = (self.lost_events > 0).then(|| format!("{} lost calls", self.lost_events));
        let reasons = self.incomplete.iter().map(|(name, count)| format!("{name} ({count})"));
        let all: Vec<String> = lost.into_iter().chain(reasons).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Counts one more occurrence of something that makes the trace incomplete.
    pub fn count_incomplete(&mut self, reason: &str) {
        let count = self.incomplete.entry(reason.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// Checks a header from anywhere.
    ///
    /// # Errors
    /// A value that no recorder writes; the error names the field as its column.
    pub fn validate(&self) -> Result<(), CallError> {
        let wrong = |column, message: String| Err(CallError { row: None, column, message });
        if let Some(mount) = &self.mount {
            let normal = mount.starts_with('/') && mount.len() > 1 && super::absolute(b"/", mount.as_bytes()).is_some();
            if !normal || super::absolute(b"/", mount.as_bytes()).as_deref() != Some(mount.as_bytes()) {
                return wrong("mount", format!("'{mount}' is not an absolute path in its shortest form below /"));
            }
        }
        let word = |text: &str| {
            (1..=64).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        };
        if !word(&self.architecture) {
            return wrong("architecture", format!("'{}' is not the name of an architecture", self.architecture));
        }
        if let Some((name, count)) = self.incomplete.iter().find(|(name, count)| !word(name) || **count == 0) {
            return wrong("incomplete", format!("'{name}' with {count} occurrences is not a reason"));
        }
        let mut before = 0;
        for state in &self.start {
            if state.task <= before || state.task > TASK_MAX {
                return wrong("start", format!("task {} is out of order or above {TASK_MAX}", state.task));
            }
            before = state.task;
            for path in state.directory.iter().chain(state.descriptors.values()) {
                if path.len() > PATH_BYTES_MAX || path.contains('\0') {
                    return wrong("start", format!("task {} has a path that is too long or contains NUL", state.task));
                }
            }
            if state.descriptors.keys().any(|&descriptor| descriptor < 0) {
                return wrong("start", format!("task {} has a negative descriptor", state.task));
            }
        }
        Ok(())
    }
}

/// The recorder's cost for a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracerCost {
    /// Between entry and return.
    pub inside: Nanos,
    /// The time subtracted between two calls.
    pub estimate: Nanos,
    /// The cost is at least this,
    pub low: Nanos,
    /// and at most this.
    pub high: Nanos,
}

/// Descriptors and directory of a task before its first record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartState {
    /// The task's id.
    pub task: u32,
    /// Its working directory, if known.
    pub directory: Option<String>,
    /// Known open descriptors with their paths. Pipes have names such as `pipe:[17]`.
    pub descriptors: BTreeMap<i32, String>,
}

/// The clock of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The guest's default clock.
    Guest,
    /// The guest's exact clock.
    Exact,
    /// The host's clock.
    Host,
}

impl Clock {
    /// The name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Clock::Guest => "guest",
            Clock::Exact => "exact",
            Clock::Host => "host",
        }
    }
}

impl FromStr for Clock {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        [Clock::Guest, Clock::Exact, Clock::Host]
            .into_iter()
            .find(|clock| clock.name() == name)
            .ok_or_else(|| format!("unknown clock '{name}'; expected guest, exact or host"))
    }
}

/// The name of a system call, as Linux spells it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call(Cow<'static, str>);

impl Call {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for Call {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(signature) = table::signature(name) {
            return Ok(Call(Cow::Borrowed(signature.name)));
        }
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !(1..=32).contains(&name.len()) || !name.bytes().all(legal) {
            return Err(format!("'{}' is not the name of a system call", name.escape_debug()));
        }
        Ok(Call(Cow::Owned(name.to_owned())))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One system call of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Id of the task (thread).
    pub task: u32,
    /// Id of its thread group (process).
    pub group: u32,
    /// The call.
    pub call: Call,
    /// Arguments as in registers; pointers have no meaning. Argument 0 of `clone3` and argument 2 of `openat2` are the
    /// flags, although the kernel reads both from structures.
    pub arguments: [u64; 6],
    /// First path of the call, as the program gave it.
    pub path: Option<Vec<u8>>,
    /// Second path of the call, as the program gave it.
    pub path_2: Option<Vec<u8>>,
    /// Both descriptors made by `pipe`, `pipe2` or `socketpair`.
    pub pipe: Option<[i32; 2]>,
    /// The result, negative for an error. `None` if the call did not return.
    pub result: Option<i64>,
    /// Instant of entry.
    pub entry: Nanos,
    /// Instant of return. `None` if the call did not return.
    pub exit: Option<Nanos>,
    /// The task's own user CPU time since its previous record. `None` if not known.
    pub user_cpu: Option<Nanos>,
    /// The task's own kernel CPU time in this call. `None` if not known.
    pub kernel_cpu: Option<Nanos>,
    /// Number of earlier calls of the task whose CPU time is part of `user_cpu`.
    pub folded: u32,
}

impl CallRecord {
    /// A call that has entered, without any further data.
    #[must_use]
    pub fn new(task: u32, call: Call, entry: Nanos) -> Self {
        CallRecord {
            task,
            group: task,
            call,
            arguments: [0; 6],
            path: None,
            path_2: None,
            pipe: None,
            result: None,
            entry,
            exit: None,
            user_cpu: None,
            kernel_cpu: None,
            folded: 0,
        }
    }

    /// Whether the call returned without an error.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.result.is_some_and(|result| result >= 0)
    }

    /// The task that this call made, if it made one.
    #[must_use]
    pub fn child(&self) -> Option<u32> {
        let forks = table::signature(self.call.name()).is_some_and(|known| known.effect == table::Effect::Fork);
        self.result.filter(|&result| forks && result > 0).and_then(|result| u32::try_from(result).ok())
    }

    /// The child whose end this call waited for, if it names one.
    #[must_use]
    pub fn awaited(&self) -> Option<u32> {
        // waitid returns zero, and its child is its second argument if it named one.
        let child = match self.call.name() {
            "wait4" => self.result,
            "waitid" => Some(self.arguments[1] as i64).filter(|_| self.arguments[0] == P_PID && self.result == Some(0)),
            _ => None,
        };
        child.filter(|&id| id > 0).and_then(|id| u32::try_from(id).ok())
    }

    /// Flags with which the call makes a task, in the form of `clone`.
    #[must_use]
    pub fn clone_flags(&self) -> u64 {
        match self.call.name() {
            "clone" | "clone3" => self.arguments[0],
            "vfork" => table::CLONE_VFORK,
            _ => 0,
        }
    }

    /// Argument `index` as a descriptor or another signed 32-bit number.
    #[must_use]
    pub fn number(&self, index: usize) -> i32 {
        self.arguments[index] as u32 as i32
    }
}

/// The time that a task let pass before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// The task's own CPU time.
    Cpu(Nanos),
    /// Elapsed time since the task's previous call returned. It includes waits for a CPU.
    Gap(Nanos),
}

/// Think time before each record. The first call of a task has a gap of zero if its CPU time is not known.
pub fn think_times(records: &[CallRecord]) -> impl Iterator<Item = Think> + '_ {
    let mut left: BTreeMap<u32, Nanos> = BTreeMap::new();
    records.iter().map(move |record| {
        let before = left.insert(record.task, record.exit.unwrap_or(record.entry)).unwrap_or(record.entry);
        record.user_cpu.map_or_else(|| Think::Gap(record.entry.saturating_sub(before)), Think::Cpu)
    })
}

/// A record that no recorder writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Row, counted from 0, or `None` for the header.
    pub row: Option<u64>,
    /// Column, or field of the header.
    pub column: &'static str,
    /// The value found and the value expected.
    pub message: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row {
            Some(row) => write!(f, "row {row}, column '{}': {}", self.column, self.message),
            None => write!(f, "header, '{}': {}", self.column, self.message),
        }
    }
}

impl std::error::Error for CallError {}

/// Checks the records of a trace one after the other.
#[derive(Debug, Default)]
pub struct Validator {
    rows: u64,
    entry: Nanos,
    tasks: BTreeMap<u32, Checked>,
}

/// The state of a task after its records so far.
#[derive(Clone, Copy, Debug, Default)]
struct Checked {
    /// Instant until which the task is in its last call.
    busy: Nanos,
    /// CPU time in all.
    cpu: Nanos,
}

/// Latest instant of a trace: a year.
pub const INSTANT_MAX: Nanos = Nanos::from_nanos(366 * 86_400 * 1_000_000_000);
/// CPU time was measured on the recording host. A guest's time may pass slower by up to this factor (`--cpu-speed`).
const CPU_PER_TIME_MAX: u64 = 1_000;
/// CPU time that a task may have besides: before the first instant, and errors of measurement.
const CPU_TOLERANCE: Nanos = Nanos::from_nanos(1_000_000_000);

impl Validator {
    /// Checks the next record.
    ///
    /// # Errors
    /// A value that no recorder writes, with its row and column.
    pub fn check(&mut self, record: &CallRecord) -> Result<(), CallError> {
        let row = self.rows;
        let wrong = |column, message: String| Err(CallError { row: Some(row), column, message });
        for (column, id) in [("task", record.task), ("group", record.group)] {
            if id == 0 || id > TASK_MAX {
                return wrong(column, format!("id is {id}; expected 1 to {TASK_MAX}"));
            }
        }
        for (column, path) in [("path", &record.path), ("path_2", &record.path_2)] {
            let Some(path) = path else { continue };
            if path.len() > PATH_BYTES_MAX {
                return wrong(column, format!("path has {} bytes; expected at most {PATH_BYTES_MAX}", path.len()));
            }
            if path.contains(&0) {
                return wrong(column, "path contains a NUL byte".to_owned());
            }
        }
        if record.pipe.is_some_and(|[read, write]| read < 0 || write < 0) {
            return wrong("pipe_read", "descriptor is negative".to_owned());
        }
        if record.result.is_some() && record.exit.is_none() {
            return wrong("exit_ns", "missing, although the call has a result".to_owned());
        }
        let forks = table::signature(record.call.name()).is_some_and(|known| known.effect == table::Effect::Fork);
        if forks && record.result.is_some_and(|result| result > i64::from(TASK_MAX)) {
            return wrong("result", format!("no task has an id above {TASK_MAX}"));
        }
        if record.entry < self.entry {
            let (entry, before) = (record.entry.as_nanos(), self.entry.as_nanos());
            return wrong("entry_ns", format!("{entry} is before the previous row's {before}"));
        }
        if let Some(exit) = record.exit.filter(|&exit| exit < record.entry) {
            let (exit, entry) = (exit.as_nanos(), record.entry.as_nanos());
            return wrong("exit_ns", format!("{exit} is before the entry at {entry}"));
        }
        let until = record.exit.unwrap_or(record.entry);
        if until > INSTANT_MAX {
            let column = if record.entry > INSTANT_MAX { "entry_ns" } else { "exit_ns" };
            return wrong(column, format!("{} is later than a year after the beginning", until.as_nanos()));
        }
        let task = self.tasks.entry(record.task).or_default();
        if record.entry < task.busy {
            let (entry, busy) = (record.entry.as_nanos(), task.busy.as_nanos());
            return wrong("entry_ns", format!("{entry} is before the task's previous call returns at {busy}"));
        }
        task.busy = until;
        let most = Nanos::from_nanos(until.as_nanos().saturating_mul(CPU_PER_TIME_MAX)).saturating_add(CPU_TOLERANCE);
        for (column, cpu) in [("user_cpu_ns", record.user_cpu), ("kernel_cpu_ns", record.kernel_cpu)] {
            task.cpu = task.cpu.saturating_add(cpu.unwrap_or(Nanos::ZERO));
            if task.cpu > most {
                let (found, most, until) = (task.cpu.as_nanos(), most.as_nanos(), until.as_nanos());
                return wrong(
                    column,
                    format!("the task's CPU time adds up to {found} at {until} ns; expected at most {most}"),
                );
            }
        }
        self.entry = record.entry;
        self.rows += 1;
        Ok(())
    }
}
