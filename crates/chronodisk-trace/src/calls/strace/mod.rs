//! Reads the output of `strace -f -ttt -T -yy -o FILE`.
//!
//! strace prints no CPU times. They stay unknown, and the gaps between calls replace them. Instants are strace's,
//! relative to the first line. A call that a signal interrupts and that is restarted is one record. A clock that steps
//! back is held and counted. Values that strace could not print make the trace incomplete.

mod constants;
mod cost;
mod text;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;

use chronodisk_sim::Nanos;

use self::text::{Arguments, LineError, Parsed, parse_call};
use super::assess::assess_on_host;
use super::record::{CallRecord, CallTrace, Clock, Header, INSTANT_MAX, PATH_BYTES_MAX, StartState, TASK_MAX};
use super::table::{AT_FDCWD, CLONE_THREAD, Effect, Signature, signature};
use super::words::{request, take_words};

/// Longest line that is read, in bytes.
pub const STRACE_LINE_BYTES_MAX: u64 = 1 << 20;
/// Earliest absolute instant, in nanoseconds since 1970: smaller numbers are times between two lines, which are shorter
/// than three years.
const EARLIEST_NS: u64 = 100_000_000 * 1_000_000_000;
/// Most generations of tasks that are followed.
const ANCESTORS_MAX: usize = 4096;

/// An unreadable output of strace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StraceError {
    /// Name of the file.
    pub file: String,
    /// Line, counted from 1; 0 for the file as a whole.
    pub line: u64,
    /// Column in bytes, counted from 1.
    pub column: usize,
    /// The text found and the text expected.
    pub message: String,
}

impl fmt::Display for StraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message),
        }
    }
}

impl std::error::Error for StraceError {}

/// Reads the output of strace. `file` is its name in errors, `mount` the mount point of the device's file system,
/// `architecture` the host's on which strace ran.
///
/// # Errors
/// A line that strace does not print with these options, with its place; a file without calls; a mount point without a
/// use below it. An incomplete last line is no error: the trace is marked as cut short.
pub fn read_strace(
    mut input: impl BufRead,
    file: &str,
    mount: Option<&str>,
    architecture: &str,
) -> Result<CallTrace, StraceError> {
    let at = |line, error: LineError| StraceError {
        file: file.to_owned(),
        line,
        column: error.column + 1,
        message: error.message,
    };
    let mut reader = Reader::new(Header { mount: mount.map(str::to_owned), ..Header::new(architecture, Clock::Host) });
    reader.header.validate().map_err(|error| at(0, LineError::new(0, error.message)))?;
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let read = std::io::Read::take(&mut input, STRACE_LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| at(number, LineError::new(0, format!("can't be read: {error}"))))? == 0 {
            break;
        }
        number += 1;
        let whole = line.pop_if(|byte| *byte == b'\n').is_some();
        match reader.line(&line) {
            Err(_) if !whole && number > 1 && (line.len() as u64) < STRACE_LINE_BYTES_MAX => {
                reader.header.count_incomplete("cut-short");
            }
            Err(error) => return Err(at(number, error)),
            Ok(()) => {}
        }
    }
    let trace = reader.finish();
    if trace.records.is_empty() {
        return Err(at(0, LineError::new(0, "no system call; expected output of strace -f -ttt -T -yy -o FILE")));
    }
    assess_on_host(trace, true).map_err(|message| at(0, LineError::new(0, message)))
}

/// The memory that arguments point to.
fn words(record: &mut CallRecord, arguments: &Arguments<'_>) {
    let call = record.call.name().to_owned();
    let field = |name: &str| arguments.field(name).unwrap_or(0);
    match &*call {
        "openat2" => {
            take_words(&call, &mut record.arguments, 2, &["flags", "mode", "resolve"].map(field));
        }
        "copy_file_range" | "splice" | "sendfile" => {
            for place in [1, 2, 3] {
                if let Some(offset) = arguments.pointed(place) {
                    take_words(&call, &mut record.arguments, place, &[offset]);
                }
            }
        }
        "ioctl" => {
            record.arguments[1] = arguments.request(1).unwrap_or(record.arguments[1]);
            let range = ["src_fd", "src_offset", "src_length", "dest_offset"].map(field);
            if record.arguments[1] == request::FICLONERANGE {
                take_words(&call, &mut record.arguments, 2, &range);
            }
        }
        _ => {}
    }
}

/// A call that has entered.
struct Waiting {
    /// Index among all calls.
    order: usize,
    entry: Nanos,
    text: Vec<u8>,
}

struct Reader {
    header: Header,
    /// The first line's instant in nanoseconds.
    origin: Option<u64>,
    now: Nanos,
    /// Calls by order of entry; `None` until they have returned.
    records: Vec<Option<CallRecord>>,
    waiting: BTreeMap<u32, Waiting>,
    /// Calls that a signal interrupted and that will be restarted.
    interrupted: BTreeMap<u32, (usize, CallRecord)>,
    /// The last record of each task.
    last: BTreeMap<u32, usize>,
    /// Descriptors that strace showed before the trace made them, in order.
    seen: Vec<(u32, i32, String)>,
    known: BTreeSet<(u32, i32)>,
    directories: BTreeMap<u32, Option<String>>,
    tasks: Vec<u32>,
}

impl Reader {
    fn new(header: Header) -> Self {
        Reader {
            header,
            origin: None,
            now: Nanos::ZERO,
            records: Vec::new(),
            waiting: BTreeMap::new(),
            interrupted: BTreeMap::new(),
            last: BTreeMap::new(),
            seen: Vec::new(),
            known: BTreeSet::new(),
            directories: BTreeMap::new(),
            tasks: Vec::new(),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), LineError> {
        if line.starts_with(b"strace: ") || line.is_empty() {
            return Ok(());
        }
        let (task, column) = text::task_id(line)?;
        if task == 0 || task > TASK_MAX {
            return Err(LineError::new(0, format!("task id is {task}; expected 1 to {TASK_MAX}")));
        }
        let (instant, length) = text::instant(&line[column..]).ok_or_else(|| {
            LineError::new(column, "no time in seconds since 1970; expected output of strace with -ttt")
        })?;
        if instant < EARLIEST_NS {
            let message = "the time is not one in seconds since 1970, but one since the line before, as strace -r prints \
                it; expected output of strace with -ttt";
            return Err(LineError::new(column, message));
        }
        let begin = column + length + text::since_before(&line[column + length..]);
        let since = instant.saturating_sub(*self.origin.get_or_insert(instant));
        if Nanos::from_nanos(since) > INSTANT_MAX {
            return Err(LineError::new(column, format!("{since} ns after the first line; expected at most a year")));
        }
        if instant < self.origin.unwrap_or(0) || Nanos::from_nanos(since) < self.now {
            self.header.count_incomplete("clock-stepped-back");
        }
        self.now = self.now.max(Nanos::from_nanos(since));
        let event = &line[begin..];
        if event.starts_with(b"--- ") {
            return Ok(());
        }
        if event.starts_with(b"+++ ") {
            self.ended(task, event);
            return Ok(());
        }
        if let Some(rest) = event.strip_prefix(b"<... ") {
            return self.resumed(task, rest, begin);
        }
        if let Some(text) = event.strip_suffix(b"<unfinished ...>") {
            let waiting = self.enter(task, text);
            self.waiting.insert(task, waiting);
            return Ok(());
        }
        let waiting = self.enter(task, event);
        self.returned(task, waiting, None, begin)
    }

    fn enter(&mut self, task: u32, text: &[u8]) -> Waiting {
        // The line of an earlier call's return is missing.
        if let Some(lost) = self.waiting.remove(&task) {
            self.header.lost_events = self.header.lost_events.saturating_add(1);
            self.without_return(task, &lost);
        }
        if let Some(&last) = self.last.get(&task) {
            // Both instants were rounded to microseconds.
            if let Some(record) = &mut self.records[last] {
                record.exit = record.exit.map(|exit| exit.min(self.now));
            }
        }
        self.records.push(None);
        if let Entry::Vacant(first) = self.directories.entry(task) {
            first.insert(None);
            self.tasks.push(task);
        }
        Waiting { order: self.records.len() - 1, entry: self.now, text: text.to_vec() }
    }

    fn resumed(&mut self, task: u32, rest: &[u8], column: usize) -> Result<(), LineError> {
        let Some(end) = rest.windows(8).position(|window| window == b"resumed>") else {
            return Err(LineError::new(column, "'<...' without 'resumed>'"));
        };
        let Some(mut waiting) = self.waiting.remove(&task) else {
            self.header.lost_events = self.header.lost_events.saturating_add(1);
            return Ok(());
        };
        let entered = waiting.text.len();
        waiting.text.extend_from_slice(&rest[end + 8..]);
        // Places in the joined text are places of this line if they are in its part.
        let shift = (column + 5 + end + 8).saturating_sub(entered);
        let now = self.now;
        self.returned(task, waiting, Some(now), shift)
    }

    /// Takes a complete call; `resumed` is the instant of its second line, if it has two.
    fn returned(
        &mut self,
        task: u32,
        waiting: Waiting,
        resumed: Option<Nanos>,
        column: usize,
    ) -> Result<(), LineError> {
        let Waiting { order, entry, text } = waiting;
        let shifted = |error: LineError| LineError::new(error.column + column, error.message);
        let Some(parsed) = parse_call(&text).map_err(shifted)? else {
            // strace prints ??? for a call that it does not know.
            self.header.lost_events = self.header.lost_events.saturating_add(1);
            return Ok(());
        };
        let restarts = parsed.restarts;
        let mut record = self.record(task, entry, &parsed);
        record.exit = match (parsed.result, parsed.duration) {
            (None, _) if !restarts => None,
            (_, Some(duration)) => Some(entry.saturating_add(duration)),
            (_, None) => return Err(shifted(LineError::new(text.len(), "no duration at the end; strace lacks -T"))),
        };
        if let (Some(resumed), Some(exit)) = (resumed, &mut record.exit) {
            *exit = (*exit).min(resumed);
        }
        if record.exit.is_some_and(|exit| exit > INSTANT_MAX) {
            let message = "the call returns more than a year after the first line; expected at most a year";
            return Err(shifted(LineError::new(text.len(), message)));
        }
        let before = self.interrupted.remove(&task);
        if restarts {
            self.interrupted.insert(task, (order, record));
            return Ok(());
        }
        let mut order = order;
        if let Some((earlier, first)) = before {
            let resumes = record.call.name() == "restart_syscall";
            if resumes || record.call == first.call {
                // The task made no call in between, so its calls stay in order.
                let (exit, result) = (record.exit, record.result);
                let entry = first.entry;
                let call = if resumes { first } else { record };
                record = CallRecord { entry, exit, result, ..call };
                order = earlier;
            }
        }
        self.keep(order, record);
        Ok(())
    }

    fn keep(&mut self, order: usize, record: CallRecord) {
        self.last.insert(record.task, order);
        self.records[order] = Some(record);
    }

    fn without_return(&mut self, task: u32, waiting: &Waiting) {
        let mut text = waiting.text.clone();
        text.extend_from_slice(b") = ?");
        if let Ok(Some(parsed)) = parse_call(&text) {
            let record = CallRecord { result: None, ..self.record(task, waiting.entry, &parsed) };
            self.keep(waiting.order, record);
        }
    }

    fn ended(&mut self, task: u32, event: &[u8]) {
        if event.starts_with(b"+++ superseded") {
            self.header.count_incomplete("superseded-by-execve");
        }
        if let Some(waiting) = self.waiting.remove(&task) {
            self.without_return(task, &waiting);
        }
    }

    fn record(&mut self, task: u32, entry: Nanos, parsed: &Parsed<'_>) -> CallRecord {
        let mut record = CallRecord::new(task, parsed.call.clone(), entry);
        record.result = parsed.result;
        let arguments = &parsed.arguments;
        for (place, argument) in record.arguments.iter_mut().enumerate() {
            *argument = arguments.number(place).unwrap_or(0);
        }
        for (descriptor, path) in arguments.descriptors() {
            self.saw(task, descriptor, path);
        }
        if let Some(known) = signature(record.call.name()) {
            self.fill(&mut record, known, arguments);
        }
        if let Some(descriptor) = parsed.made.or(record.pipe.map(|pipe| pipe[0])) {
            self.known.insert((task, descriptor));
        }
        record
    }

    /// Paths and flags of a call of the table.
    fn fill(&mut self, record: &mut CallRecord, known: &Signature, arguments: &Arguments<'_>) {
        for (which, base) in known.paths.iter().enumerate() {
            let Some(base) = *base else { continue };
            let place = base.argument(which);
            let text = match known.name {
                "bind" => arguments.socket_path(place),
                _ => arguments.string(place),
            };
            let path = match text {
                Some((path, false)) if path.len() <= PATH_BYTES_MAX && !path.contains(&0) => Some(path),
                Some(_) => {
                    self.header.count_incomplete("truncated-path");
                    None
                }
                None => None,
            };
            *(if which == 0 { &mut record.path } else { &mut record.path_2 }) = path;
        }
        match known.effect {
            Effect::Pipe(_) => {
                let place = if record.call.name() == "socketpair" { 3 } else { 0 };
                record.pipe = arguments.pair(place).filter(|pair| pair[0] >= 0 && pair[1] >= 0);
                for descriptor in record.pipe.into_iter().flatten() {
                    self.known.insert((record.task, descriptor));
                }
            }
            Effect::Fork => record.arguments[0] = arguments.field("flags").unwrap_or(0),
            Effect::DuplicateTo { .. } if record.succeeded() => {
                self.known.insert((record.task, record.number(1)));
            }
            _ => {}
        }
        words(record, arguments);
    }

    fn saw(&mut self, task: u32, descriptor: i32, path: String) {
        if descriptor == AT_FDCWD {
            let directory = self.directories.entry(task).or_default();
            directory.get_or_insert(path);
        } else if descriptor >= 0
            && (path.starts_with('/') || path.starts_with("pipe:"))
            && self.known.insert((task, descriptor))
        {
            self.seen.push((task, descriptor, path));
        }
    }

    fn finish(mut self) -> CallTrace {
        for (task, waiting) in std::mem::take(&mut self.waiting) {
            self.header.count_incomplete("unfinished-call");
            self.without_return(task, &waiting);
        }
        let mut records: Vec<CallRecord> = self.records.into_iter().flatten().collect();
        let mut parents: BTreeMap<u32, (u32, bool)> = BTreeMap::new();
        for record in &records {
            if let Some(child) = record.child() {
                let thread = record.call.name().starts_with("clone") && record.arguments[0] & CLONE_THREAD != 0;
                parents.insert(child, (record.task, thread));
            }
        }
        // Bounded, since a hostile file may make a task its own ancestor.
        let ancestors = |task: u32| {
            let parent = |&at: &u32| parents.get(&at).map(|&(parent, _)| parent);
            std::iter::successors(Some(task), parent).take(ANCESTORS_MAX)
        };
        for record in &mut records {
            let thread = |task: &u32| parents.get(task).is_some_and(|&(_, thread)| thread);
            record.group = ancestors(record.task).find(|task| !thread(task)).unwrap_or(record.task);
        }
        let mut start: BTreeMap<u32, StartState> = BTreeMap::new();
        for &task in self.tasks.iter().filter(|task| !parents.contains_key(task)) {
            let directory = self.directories.get(&task).cloned().flatten();
            start.insert(task, StartState { task, directory, descriptors: BTreeMap::new() });
        }
        for (task, descriptor, path) in self.seen {
            // A child's descriptor that none of its ancestors made existed before the trace.
            let root = ancestors(task).last().unwrap_or(task);
            let made = ancestors(task).skip(1).any(|ancestor| self.known.contains(&(ancestor, descriptor)));
            if let Some(state) = start.get_mut(&root).filter(|_| !made) {
                state.descriptors.entry(descriptor).or_insert(path);
            }
        }
        self.header.start = start.into_values().collect();
        self.header.tracer = cost::tracer_cost(&records);
        CallTrace { header: self.header, records }
    }
}
