//! Follows a program and all its descendants, from stop to stop.

use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Instant;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{Entry, Text, Watched, call_name, call_number, take_words, watched_calls};

use super::cost::Costs;
use super::cpu::CpuClock;
use super::ending::Ending;
use super::journal::Journal;
use super::ptrace::{self, Does, NotBegun, Resume, Stop, Traced, Waited};
use super::{Recorded, Recording, RecordingSummary, failures, filter, memory, privileges, refused};
use crate::error::NativeError;

/// A task that is traced.
#[derive(Debug)]
struct Task {
    group: u32,
    cpu: CpuClock,
    /// The number of the call that it is executing.
    inside: Option<u32>,
    /// Arguments of that call.
    arguments: [u64; 6],
    /// The task that this call has made.
    made: Option<u32>,
    ended: bool,
}

struct Tracer<'a> {
    journal: Journal,
    began: Instant,
    /// Watched calls by number.
    watched: Vec<Option<Watched>>,
    forks: [Option<u32>; 4],
    tasks: HashMap<u32, Task>,
    /// Tasks that stopped before their creator was known.
    early: HashMap<u32, Stop>,
    first: u32,
    status: Option<u8>,
    calls: u64,
    left_behind: &'a dyn Fn(usize),
}

/// Runs the program, and traces it to the end.
pub fn run(
    recording: Recording<'_>,
    program: &Path,
    costs: Costs,
    left_behind: &dyn Fn(usize),
) -> Result<Recorded, NativeError> {
    let file = c_string(program.as_os_str().as_bytes())?;
    let words = recording.command.iter().map(|word: &OsString| c_string(word.as_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let mut journal = Journal::create(recording.journal)?;
    journal.append(&Entry::Start {
        architecture: std::env::consts::ARCH.to_owned(),
        mount: recording.mount.map(str::to_owned),
        costs: costs.stops,
    })?;
    let began = Instant::now();
    let forked = ptrace::fork(
        &Does::Executes { program: &file, words: &words, stdout_to_stderr: recording.stdout_to_stderr },
        &filter::program(),
    )
    .map_err(failures::no_process)?;
    let traced = forked.trace().map_err(failures::forbidden)?;
    let first = traced.task;
    let ending = Ending::default();
    first_task(&mut journal, first)?;
    let mut tracer = Tracer {
        journal,
        began,
        watched: by_number(),
        forks: ["fork", "vfork", "clone", "clone3"].map(call_number),
        tasks: HashMap::from([(first, Task::new(first))]),
        early: HashMap::new(),
        first,
        status: None,
        calls: 0,
        left_behind,
    };
    let traced_to_the_end = ending.beside(recording.requests, first, || tracer.trace_all(&ending));
    if let Some(killed_by) = ending.killed_by() {
        tracer.status = Some(killed_by);
    }
    if let Err(failure) = traced_to_the_end {
        traced.kill();
        return Err(failure);
    }
    tracer.finish(recording, &traced, costs)
}

fn c_string(bytes: &[u8]) -> Result<CString, NativeError> {
    CString::new(bytes).map_err(|error| failures::no_process(error.into()))
}

fn by_number() -> Vec<Option<Watched>> {
    let mut all = Vec::new();
    for call in watched_calls() {
        let at = call.number as usize;
        all.resize(all.len().max(at + 1), None);
        all[at] = Some(call);
    }
    all
}

/// Directory and descriptors that the program inherits.
fn first_task(journal: &mut Journal, task: u32) -> Result<(), NativeError> {
    let target = |link: &Path| match fs::read_link(link) {
        Ok(target) => Text::Bytes(target.into_os_string().into_vec()),
        Err(_) => Text::Unreadable,
    };
    journal.append(&Entry::First { task, directory: target(Path::new(&format!("/proc/{task}/cwd"))) })?;
    // This process's own descriptors: the child has the same ones, except the pipes that hold it.
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    for entry in descriptors {
        let Some(descriptor) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if descriptor_stays(descriptor) {
            journal.append(&Entry::Descriptor { task, descriptor, path: target(&entry.path()) })?;
        }
    }
    Ok(())
}

/// Whether an executed program gets a descriptor of this process.
#[allow(unsafe_code)]
fn descriptor_stays(descriptor: i32) -> bool {
    // SAFETY: the arguments are numbers, and the call changes nothing.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

impl Task {
    fn new(group: u32) -> Self {
        Task { group, cpu: CpuClock::default(), inside: None, arguments: [0; 6], made: None, ended: false }
    }
}

impl Tracer<'_> {
    fn now(&self) -> Nanos {
        Nanos::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    fn trace_all(&mut self, ending: &Ending) -> Result<(), NativeError> {
        loop {
            let (task, stop) = match ptrace::wait().map_err(failures::lost_hold)? {
                Waited::Stopped(task, stop) => (task, stop),
                Waited::Interrupted => {
                    if ending.killed_by().is_some() {
                        self.tasks.keys().chain(self.early.keys()).for_each(|task| ptrace::kill(*task));
                    }
                    continue;
                }
                Waited::NoTask => return Ok(()),
            };
            if ending.killed_by().is_some() && !matches!(stop, Stop::Gone(_)) {
                // This also kills a task that was just made.
                ptrace::kill(task);
            }
            if self.tasks.contains_key(&task) {
                self.stopped(task, stop)?;
            } else if !matches!(self.early.get(&task), Some(Stop::Gone(_))) {
                self.early.insert(task, stop);
            }
        }
    }

    fn finish(mut self, recording: Recording<'_>, traced: &Traced, costs: Costs) -> Result<Recorded, NativeError> {
        let elapsed = self.began.elapsed();
        let nothing = |journal: Journal| {
            drop(journal);
            let _ = fs::remove_file(recording.journal);
        };
        match traced.not_begun() {
            Some(NotBegun::Filter(source)) => {
                nothing(self.journal);
                return Err(failures::no_filter(&source));
            }
            Some(NotBegun::Program(reason)) => {
                nothing(self.journal);
                return Ok(refused(reason));
            }
            None => {}
        }
        self.journal.append(&Entry::Complete)?;
        self.journal.finish()?;
        Ok(Recorded::Ended(RecordingSummary {
            status: self.status.unwrap_or(u8::MAX),
            calls: self.calls,
            cost_per_call: costs.per_call,
            elapsed,
        }))
    }

    fn stopped(&mut self, id: u32, stop: Stop) -> Result<(), NativeError> {
        let mut signal = 0;
        match stop {
            Stop::Entry { number, arguments } => self.entered(id, number, arguments)?,
            Stop::Return(result) => self.returned(id, result)?,
            Stop::Foreign => self.incomplete("foreign-architecture")?,
            Stop::Made(child) => self.made(id, child)?,
            Stop::Executed(former) => self.executed(id, former)?,
            Stop::Ending => self.ended(id)?,
            Stop::Gone(status) => return self.gone(id, status),
            Stop::Group => return ptrace::resume(id, Resume::Listening, 0).map_err(failures::lost_hold),
            Stop::Signal(number) => signal = number,
            Stop::Other => {}
        }
        self.resume(id, signal)
    }

    fn resume(&self, id: u32, signal: i32) -> Result<(), NativeError> {
        let inside = self.tasks.get(&id).is_some_and(|task| task.inside.is_some());
        let how = if inside { Resume::ToReturn } else { Resume::Freely };
        ptrace::resume(id, how, signal).map_err(failures::lost_hold)
    }

    fn incomplete(&mut self, reason: &str) -> Result<(), NativeError> {
        self.journal.append(&Entry::Incomplete(reason.to_owned()))
    }

    fn entered(&mut self, id: u32, number: u32, arguments: [u64; 6]) -> Result<(), NativeError> {
        let at = self.now();
        self.calls += 1;
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let cpu = task.cpu.read(id);
        (task.inside, task.arguments, task.made) = (Some(number), arguments, None);
        let known = self.watched.get(number as usize).and_then(Option::as_ref);
        let (mut paths, mut arguments) = ([Text::None, Text::None], arguments);
        if let Some(known) = known {
            for (path, place) in paths.iter_mut().zip(known.paths) {
                if let Some(place) = place {
                    *path = memory::path(id, arguments[place]);
                }
            }
            for (place, count) in known.words.into_iter().flatten() {
                let words = memory::words(id, arguments[place], count);
                if !words.is_empty() {
                    take_words(&call_name(number), &mut arguments, place, &words);
                }
            }
        }
        self.journal.append(&Entry::Enter { task: id, at, cpu, number, arguments, paths })
    }

    fn returned(&mut self, id: u32, result: i64) -> Result<(), NativeError> {
        let at = self.now();
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        let cpu = task.cpu.read(id);
        let (inside, arguments, made) = (task.inside.take(), task.arguments, task.made.take());
        let known = inside.and_then(|number| self.watched.get(number as usize)?.as_ref());
        let pipe = known.and_then(|known| known.pipe).filter(|_| result == 0).and_then(|place| {
            let bytes = memory::array::<8>(id, arguments[place])?;
            let end = |at: usize| i32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
            Some([end(0), end(4)])
        });
        let mut result = result;
        let mut reasons = Vec::new();
        if self.forks.contains(&inside) && result > 0 && made.is_some_and(|made| i64::from(made) != result) {
            // The program sees other ids than this host.
            reasons.push("pid-namespace");
            result = i64::from(made.unwrap_or_default());
        }
        if known.is_some_and(|known| known.message.is_some())
            && result >= 0
            && memory::brings_descriptors(id, arguments[1])
        {
            reasons.push("received-descriptor");
        }
        self.journal.append(&Entry::Leave { task: id, at, cpu, result, pipe })?;
        reasons.into_iter().try_for_each(|reason| self.incomplete(reason))
    }

    fn made(&mut self, maker: u32, child: u32) -> Result<(), NativeError> {
        let Some(task) = self.tasks.get_mut(&maker) else { return Ok(()) };
        task.made = Some(child);
        let group = group_of(child).unwrap_or(child);
        let thread = group == task.group && group != child;
        self.journal.append(&Entry::Made { maker, child, thread })?;
        let mut new = Task::new(group);
        if thread {
            task.cpu.of_several(group, maker);
            new.cpu.of_several(group, child);
        }
        self.tasks.insert(child, new);
        match self.early.remove(&child) {
            Some(Stop::Gone(status)) => self.gone(child, status),
            Some(stop) => self.stopped(child, stop),
            None => Ok(()),
        }
    }

    fn executed(&mut self, id: u32, former: u32) -> Result<(), NativeError> {
        // The group's other tasks have ended, even its first one if another one executed the program.
        if let Some(mut task) = self.tasks.remove(&former) {
            (task.cpu, task.group) = (if former == id { task.cpu } else { CpuClock::default() }, id);
            self.tasks.insert(id, task);
        }
        self.journal.append(&Entry::Executed { task: id, former })?;
        let program = fs::read_link(format!("/proc/{id}/exe"));
        if program.is_ok_and(|program| privileges::are_lost(&program)) {
            self.incomplete("setuid-program")?;
        }
        Ok(())
    }

    fn ended(&mut self, id: u32) -> Result<(), NativeError> {
        let at = self.now();
        let Some(task) = self.tasks.get_mut(&id) else { return Ok(()) };
        task.inside = None;
        if std::mem::replace(&mut task.ended, true) {
            return Ok(());
        }
        let cpu = task.cpu.read(id);
        self.journal.append(&Entry::Ended { task: id, at, cpu })
    }

    fn gone(&mut self, id: u32, status: u8) -> Result<(), NativeError> {
        self.ended(id)?;
        self.tasks.remove(&id);
        if id == self.first {
            self.status = Some(status);
            if !self.tasks.is_empty() {
                (self.left_behind)(self.tasks.len());
            }
        }
        Ok(())
    }
}

/// The thread group of a task.
fn group_of(task: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
