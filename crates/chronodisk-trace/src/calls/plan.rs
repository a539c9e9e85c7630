//! A replayer's actions for each record of a trace, their order, and the CPU time before each.
//!
//! All decisions are made here: the calls that touch the device, the open descriptors, the steps of other tasks that a
//! step waits for. The replayer makes the calls and does not interpret traces. Calls that neither touch the device nor
//! affect a later call are omitted; their CPU time is charged before the task's next step. Data are generated.
//!
//! Range locks, futexes and waits for other tasks are not repeated: they become waits for the step that resumed the
//! recorded call. Pipes and socket pairs are real, so they wait by themselves.

mod data;
mod fifos;
mod memory;
mod ordering;
mod polling;
mod signals;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};

use chronodisk_sim::Nanos;

use super::assess::MAPPED_FILE;
use super::mappings::Mappings;
use super::order::{Life, Point, Resource, Sequence, Stages, ran_out, users_of_word, wakes, was_woken};
use super::record::{CallRecord, CallTrace, Clock, Think, TracerCost, think_times};
use super::resolve::{Object, ObjectUse, Resolved, Resolver, on_device};
use super::steps::{Action, Step, Wait};
use super::table::{CLONE_FILES, CLONE_FS, CLONE_VFORK, Effect, Signature, signature};

use self::data::{Data, Written};
use self::fifos::Fifos;
use self::memory::Mapped;
use self::signals::Signals;
use super::actions::{self, Translated};
use super::tables::{Kind, Tables};

/// A replayer's actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Planned tasks; each creator precedes the tasks that it makes.
    pub tasks: Vec<PlannedTask>,
    /// Number of mappings.
    pub mappings: u32,
    /// Number of slots for descriptors.
    pub slots: u32,
    /// Calls that touch the device and can't be replayed: their numbers by name.
    pub skipped: BTreeMap<String, u64>,
    /// Notes for readers of the replay's figures.
    pub warnings: Vec<String>,
    /// Bytes of files that the device must hold at once, at least.
    pub data_bytes: u64,
}

/// Actions of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    /// Recorded id of the task.
    pub id: u32,
    /// Whether the replayer makes it, and not another task.
    pub is_first: bool,
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// Reason why a trace can't be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The programs' architecture differs.
    Architecture(String),
    /// The mount point of the file system is unknown.
    NoMountPoint,
    /// No call uses a file below the mount point given to the recorder.
    NoDeviceCalls(String),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PlanError::Architecture(found) => {
                write!(f, "the trace is of programs for {found}; expected {ARCHITECTURE}")
            }
            PlanError::NoMountPoint => f.write_str("the trace has no mount point"),
            PlanError::NoDeviceCalls(mount) => write!(f, "no call of the trace uses a file below {mount}"),
        }
    }
}

impl std::error::Error for PlanError {}

/// The only architecture with known call numbers.
const ARCHITECTURE: &str = "x86_64";

/// Plans the replay of a trace.
///
/// # Errors
/// If the trace is of another architecture, has no mount point, or was recorded on the host and does not touch the
/// device.
pub fn plan(trace: &CallTrace) -> Result<Plan, PlanError> {
    if trace.header.architecture != ARCHITECTURE {
        return Err(PlanError::Architecture(trace.header.architecture.clone()));
    }
    let Some(mount) = trace.header.mount.as_ref() else { return Err(PlanError::NoMountPoint) };
    let sequence = Sequence::new(&trace.records);
    let mut planner = Planner::new(trace, mount.as_bytes(), &sequence);
    for &index in &sequence.order {
        planner.take(index);
    }
    for life in 0..sequence.lives.len() {
        planner.end(life, None);
    }
    // A recorder in the guest knows the mount point; others are given it.
    if !planner.touches_device && trace.header.clock == Clock::Host {
        return Err(PlanError::NoDeviceCalls(mount.clone()));
    }
    planner.find_polls();
    let warnings = planner.warnings(trace);
    Ok(Plan { warnings, ..planner.finish() })
}

struct Planner<'a> {
    records: &'a [CallRecord],
    mount: &'a [u8],
    sequence: &'a Sequence,
    thinks: Vec<Think>,
    resolver: Resolver,
    tables: Tables,
    stages: Stages,
    lives: Vec<Draft>,
    /// The present life of each id.
    present: BTreeMap<u32, usize>,
    /// Lives of each thread group that have made a call and not ended.
    members: BTreeMap<u32, BTreeSet<usize>>,
    /// Length that each file is known to have.
    lengths: BTreeMap<Vec<u8>, u64>,
    skipped: BTreeMap<String, u64>,
    data: Data,
    fifos: Fifos,
    signals: Signals,
    touches_device: bool,
    /// Whether the trace has page faults.
    has_faults: bool,
    /// The recorder's cost per call.
    tracer: TracerCost,
    /// Whether calls that are made again take their kernel's time by themselves.
    free_computing: bool,
    mappings: Mappings,
    /// Mappings by number.
    mapped: Vec<Mapped>,
}

/// A lifetime whose steps are being planned.
#[derive(Default)]
struct Draft {
    steps: Vec<DraftStep>,
    /// CPU time of calls that were left out.
    left_out: Nanos,
    /// The step of a child that must be done before the next step: the order of vfork.
    vfork: Option<Awaited>,
    /// The step in which it first executed a program.
    executed: Option<usize>,
    has_ended: bool,
    /// Instant of its exit call.
    ended: Option<Nanos>,
    last_record: usize,
}

struct DraftStep {
    record: usize,
    think: Nanos,
    kernel: Nanos,
    waits: Vec<Awaited>,
    action: Action,
}

#[derive(Clone, Copy)]
enum Awaited {
    Step(Point),
    /// The last step of a life.
    End(usize),
    /// The step in which a lifetime executes a program, or its last one.
    Execution(usize),
}

impl<'a> Planner<'a> {
    fn new(trace: &'a CallTrace, mount: &'a [u8], sequence: &'a Sequence) -> Self {
        let mut tables = Tables::default();
        let directory_of = |life: &Life| {
            let start = trace.header.start.iter().find(|state| state.task == life.id && life.maker.is_none());
            start.and_then(|state| state.directory.as_ref())
        };
        for life in &sequence.lives {
            let directory = directory_of(life);
            tables.begin(directory.is_some_and(|path| on_device(mount, path.as_bytes())));
        }
        let mut planner = Planner {
            records: &trace.records,
            mount,
            sequence,
            thinks: think_times(&trace.records).collect(),
            resolver: Resolver::new(&trace.header),
            tables,
            stages: Stages::default(),
            lives: sequence.lives.iter().map(|_| Draft::default()).collect(),
            present: BTreeMap::new(),
            members: BTreeMap::new(),
            lengths: BTreeMap::new(),
            skipped: BTreeMap::new(),
            data: Data::default(),
            fifos: Fifos::default(),
            signals: Signals::new(&trace.records, sequence),
            touches_device: false,
            has_faults: trace.header.clock != Clock::Host && !trace.header.incomplete.contains_key(MAPPED_FILE),
            tracer: trace.header.tracer.unwrap_or_default(),
            free_computing: trace.header.free_computing,
            mappings: Mappings::default(),
            mapped: Vec::new(),
        };
        for (life, known) in sequence.lives.iter().enumerate() {
            if let (None, Some(path)) = (known.maker, directory_of(known))
                && on_device(mount, path.as_bytes())
            {
                planner.push(life, 0, Nanos::ZERO, Nanos::ZERO, Vec::new(), actions::change_directory(path.as_bytes()));
            }
        }
        planner
    }

    /// Plans one record.
    fn take(&mut self, index: usize) {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        if self.present.insert(record.task, life) != Some(life) || self.lives[life].steps.is_empty() {
            self.members.entry(record.group).or_default().insert(life);
        }
        self.lives[life].last_record = index;
        let resolved = self.resolver.apply(record);
        if self.has_faults && self.memory(index, &resolved) {
            return;
        }
        let known = signature(record.call.name());
        match known.map(|known| known.effect) {
            _ if resolved.unsupported => self.skip(index),
            Some(Effect::Unsupported) => self.leave_out(index),
            Some(Effect::Exit) => {
                if record.call.name() == "exit_group" {
                    self.end_others(index);
                }
                self.end(life, Some(index));
            }
            Some(Effect::Fork) => self.fork(index),
            Some(Effect::Execute) if record.succeeded() => self.execute(index),
            Some(Effect::Wait) if !resolved.objects.iter().any(|used| self.is_on_device(&used.object)) => {
                self.wait(index, &resolved);
            }
            _ => self.call(index, &resolved),
        }
        if self.has_faults {
            self.mappings.follow(life, record, false, self.sequence.made.get(&index).copied());
            self.unmap(index);
        }
    }

    fn is_on_device(&self, object: &Object) -> bool {
        matches!(object, Object::File(path) if on_device(self.mount, path))
    }

    fn is_fifo(&self, object: &Object) -> bool {
        matches!(object, Object::File(path) if self.fifos.has(path))
    }

    fn think(&self, index: usize) -> Nanos {
        match self.thinks[index] {
            Think::Cpu(time) => time,
            Think::Gap(time) => time.saturating_sub(self.tracer.estimate),
        }
    }

    /// CPU time in the kernel of a call that is made again.
    fn kernel(&self, index: usize) -> Nanos {
        self.records[index].kernel_cpu.filter(|_| !self.free_computing).unwrap_or(Nanos::ZERO)
    }

    /// Adds a step, with the CPU time before it.
    fn step(&mut self, index: usize, waits: Vec<Point>, action: Action) -> usize {
        let kernel = self.kernel(index);
        let think = self.think(index);
        let waits = waits.into_iter().map(Awaited::Step).collect();
        self.push(self.sequence.life_of[index], index, think, kernel, waits, action)
    }

    fn push(
        &mut self,
        life: usize,
        record: usize,
        think: Nanos,
        kernel: Nanos,
        mut waits: Vec<Awaited>,
        action: Action,
    ) -> usize {
        let draft = &mut self.lives[life];
        waits.extend(draft.vfork.take());
        let think = think.saturating_add(std::mem::take(&mut draft.left_out));
        draft.steps.push(DraftStep { record, think, kernel, waits, action });
        draft.steps.len() - 1
    }

    /// A step without a time of its own.
    fn also(&mut self, life: usize, record: usize, action: Action) {
        self.push(life, record, Nanos::ZERO, Nanos::ZERO, Vec::new(), action);
    }

    /// Leaves the record's call out; the CPU time remains.
    fn leave_out(&mut self, index: usize) {
        let record = &self.records[index];
        let waits = signature(record.call.name()).is_some_and(|known| known.effect == Effect::Wait);
        let elapsed = record.exit.unwrap_or(record.entry).saturating_sub(record.entry);
        let kernel = match (record.kernel_cpu, record.user_cpu) {
            (Some(kernel), _) => kernel,
            // Neither is known: the time that has passed stands for it.
            (None, None) if !waits => elapsed.saturating_sub(self.tracer.inside),
            (None, _) => Nanos::ZERO,
        };
        let think = self.think(index).saturating_add(kernel);
        let draft = &mut self.lives[self.sequence.life_of[index]];
        draft.left_out = draft.left_out.saturating_add(think);
    }

    fn skip(&mut self, index: usize) {
        let record = &self.records[index];
        let name = match record.call.name() {
            "ioctl" => format!("ioctl {:#x}", record.arguments[1]),
            name => name.to_owned(),
        };
        *self.skipped.entry(name).or_default() += 1;
        self.leave_out(index);
    }

    fn next(&self, life: usize) -> Point {
        Point { life, step: self.lives[life].steps.len() }
    }

    fn fork(&mut self, index: usize) {
        let record = &self.records[index];
        let Some(&child) = self.sequence.made.get(&index) else { return self.leave_out(index) };
        let life = self.sequence.life_of[index];
        let flags = record.clone_flags();
        let (shares_files, shares_directory) = (flags & CLONE_FILES != 0, flags & CLONE_FS != 0);
        self.present.insert(self.sequence.lives[child].id, child);
        let waits = if shares_files { Vec::new() } else { self.copies_table(life) };
        self.tables.inherit(life, child, shares_files, shares_directory);
        self.step(index, waits, Action::Spawn { task: child as u32, shares_files, shares_directory });
        if flags & CLONE_VFORK != 0 {
            self.lives[life].vfork = Some(Awaited::Execution(child));
        }
    }

    /// The next step copies the task's table: after all that has opened or closed a descriptor there, and before others
    /// do.
    fn copies_table(&mut self, life: usize) -> Vec<Point> {
        let (at, mut waits) = (self.next(life), Vec::new());
        self.stages.changes(Resource::Table(self.tables.table(life)), at, &mut waits);
        self.stages.needed(at, &mut waits);
        waits
    }

    fn execute(&mut self, index: usize) {
        let life = self.sequence.life_of[index];
        let waits = if self.tables.is_shared(life) { self.copies_table(life) } else { Vec::new() };
        let at = self.step(index, waits, Action::Nothing);
        if self.tables.leave_shared(life) {
            self.also(life, index, Action::OwnFiles);
        }
        for slot in self.tables.close_on_execute(life) {
            self.also(life, index, actions::close(slot));
        }
        self.order_closed_ends(Point { life, step: at });
        let draft = &mut self.lives[life];
        if draft.executed.is_none() {
            draft.executed = Some(draft.steps.len() - 1).max(Some(at));
        }
    }

    /// The end of a process ends its other threads, which call no end of their own.
    fn end_others(&mut self, index: usize) {
        let life = self.sequence.life_of[index];
        let end = Awaited::Step(self.next(life));
        for other in self.members.remove(&self.records[index].group).unwrap_or_default() {
            if other != life && !self.lives[other].has_ended {
                let record = self.lives[other].last_record;
                self.push(other, record, Nanos::ZERO, Nanos::ZERO, vec![end], Action::Nothing);
                self.end(other, None);
            }
        }
    }

    /// Plans the end of a task, which closes the descriptors that only it has. Its last step is [`Awaited::End`].
    fn end(&mut self, life: usize, index: Option<usize>) {
        if std::mem::replace(&mut self.lives[life].has_ended, true) {
            return;
        }
        let record = index.unwrap_or(self.lives[life].last_record);
        let at = self.next(life);
        if let Some(index) = index {
            self.lives[life].ended = Some(self.records[index].entry);
            self.step(index, Vec::new(), Action::Nothing);
        }
        // Without a recorded exit, the time of the closes is unknown. The replayer's kernel closes the descriptors with
        // their last thread.
        for slot in self.tables.end(life).into_iter().filter(|_| index.is_some()) {
            self.also(life, record, actions::close(slot));
        }
        self.also(life, record, Action::Nothing);
        self.order_closed_ends(at);
    }

    /// A call that may wait, but not for the device.
    fn wait(&mut self, index: usize, resolved: &Resolved) {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        let name = record.call.name();
        let at = self.next(life);
        let mut waits = Vec::new();
        if name == "sync" {
            self.step(index, waits, actions::sync());
            self.touches_device = true;
            return;
        }
        if let Some(stream) = actions::stream(record, &self.tables, life) {
            self.order_descriptors(record, life, at, &mut waits);
            self.stages.needed(at, &mut waits);
            self.step(index, waits, stream);
            return;
        }
        if name == "futex" && (wakes(record) || was_woken(record)) {
            let word = Resource::Word(users_of_word(record), record.arguments[0]);
            self.stages.changes(word, at, &mut waits);
            self.stages.needed(at, &mut waits);
            self.step(index, waits, Action::Nothing);
            return;
        }
        if self.signal(index) {
            return;
        }
        if matches!(name, "wait4" | "waitid") {
            let child = record.awaited().and_then(|id| self.present.get(&id).copied());
            if let Some(child) = child.filter(|&child| child != life) {
                let (think, kernel) = (self.think(index), self.kernel(index));
                self.push(life, index, think, kernel, vec![Awaited::End(child)], Action::Nothing);
                return;
            }
            return self.leave_out(index);
        }
        let slept = record.exit.unwrap_or(record.entry).saturating_sub(record.entry);
        if (actions::sleeps(record) || ran_out(record)) && slept > Nanos::ZERO {
            self.step(index, waits, Action::Sleep(slept));
            return;
        }
        debug_assert!(resolved.objects.iter().all(|used| !self.is_on_device(&used.object)));
        self.leave_out(index);
    }

    /// Any other call.
    fn call(&mut self, index: usize, resolved: &Resolved) {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        let mut waits = Vec::new();
        let at = self.next(life);
        let Some(known) = signature(record.call.name()) else {
            match actions::of_process(record) {
                Some(action) => drop(self.step(index, waits, action)),
                None => self.leave_out(index),
            }
            return;
        };
        // The table of descriptors is as the call found it.
        let in_device = self.tables.is_in_device(life);
        let place = actions::CallContext { mount: self.mount, in_device, tables: &self.tables, task: life };
        let translated = actions::translate(record, resolved, &place);
        let touched = resolved.objects.iter().any(|used| self.is_on_device(&used.object));
        self.order(index, resolved, at, &mut waits);
        self.stages.needed(at, &mut waits);
        match translated {
            Translated::Actions(actions) => {
                self.touches_device |= touched;
                let mut actions = actions.into_iter();
                if let Some(action) = actions.next() {
                    self.step(index, waits, action);
                }
                for action in actions {
                    self.also(life, index, action);
                }
            }
            Translated::Nothing if waits.is_empty() => self.leave_out(index),
            Translated::Nothing => drop(self.step(index, waits, Action::Nothing)),
            Translated::Impossible => self.skip(index),
        }
        let below = resolved.paths[0].as_ref().is_some_and(|path| on_device(self.mount, &path.full));
        self.follow_data(at, record, known, resolved, below);
    }

    /// Lets the call take effect, and counts the data that it writes.
    fn follow_data(&mut self, at: Point, record: &CallRecord, known: &Signature, resolved: &Resolved, below: bool) {
        let life = at.life;
        let description = |tables: &Tables, descriptor: Option<i32>| {
            descriptor.and_then(|descriptor| tables.description(life, descriptor))
        };
        let of_device = |used: &ObjectUse| match &used.object {
            Object::File(path) if on_device(self.mount, path) => Some(path.clone()),
            _ => None,
        };
        let path = resolved.objects.first().and_then(of_device).filter(|_| record.succeeded());
        // Calls by a descriptor have it first.
        let before = description(&self.tables, known.descriptors.first().map(|&at| record.number(at)));
        self.fifos.called(record, resolved);
        let is_fifo = resolved.objects.iter().any(|used| self.is_fifo(&used.object));
        let kind = if is_fifo { Kind::Stream } else { Kind::File };
        self.tables.take_effect(life, record, known, below.then_some(kind));
        self.order_closed_ends(at);
        let Some(path) = path.filter(|_| !is_fifo) else { return };
        match (known.effect, &resolved.paths) {
            (Effect::Open(_), _) => {
                let made = record.result.and_then(|result| i32::try_from(result).ok());
                self.data.opened(record, known, &path, description(&self.tables, made));
            }
            (Effect::Rename(flags), [Some(from), Some(to)]) => {
                let exchanged = flags.is_some_and(|at| record.arguments[at] & 2 != 0);
                self.data.renamed(&from.full, &to.full, exchanged);
            }
            _ => self.data.called(&Written { record, path: &path, description: before }),
        }
    }

    /// Turns waits for steps into counts of signals.
    fn finish(self) -> Plan {
        let data_bytes = self.data.peak_bytes();
        let lives = self.lives;
        let point = |awaited: Awaited| match awaited {
            Awaited::Step(point) => point,
            Awaited::End(life) => Point { life, step: lives[life].steps.len() - 1 },
            Awaited::Execution(life) => {
                Point { life, step: lives[life].executed.unwrap_or(lives[life].steps.len() - 1) }
            }
        };
        let mut signals: Vec<Vec<u32>> = lives.iter().map(|draft| vec![0; draft.steps.len()]).collect();
        for awaited in lives.iter().flat_map(|draft| draft.steps.iter().flat_map(|step| &step.waits)) {
            let point = point(*awaited);
            signals[point.life][point.step] = 1;
        }
        // A step that signals holds the count after it.
        for counts in &mut signals {
            let mut count = 0;
            for signal in counts.iter_mut().filter(|signal| **signal > 0) {
                count += 1;
                *signal = count;
            }
        }
        let mut tasks = Vec::with_capacity(lives.len());
        for (life, draft) in lives.iter().enumerate() {
            let step = |(index, step): (usize, &DraftStep)| {
                let wait = |&awaited: &Awaited| {
                    let point = point(awaited);
                    Wait { task: point.life as u32, signals: signals[point.life][point.step] }
                };
                Step {
                    record: step.record,
                    think: step.think,
                    kernel: step.kernel,
                    waits: step.waits.iter().map(wait).filter(|wait| wait.task as usize != life).collect(),
                    signals: signals[life][index] > 0,
                    action: step.action.clone(),
                }
            };
            let known = self.sequence.lives[life];
            let steps = draft.steps.iter().enumerate().map(step).collect();
            tasks.push(PlannedTask { id: known.id, is_first: known.maker.is_none(), steps });
        }
        let (mappings, slots) = (self.mapped.len() as u32, self.tables.slots());
        Plan { tasks, mappings, slots, skipped: self.skipped, warnings: Vec::new(), data_bytes }
    }
}
