//! Descriptors and working directory of each task in the replayer: descriptors of files on the device, and of pipes.
//!
//! The replayer's kernel assigns other numbers to descriptors than the recorded one, since other tasks may open some at
//! the same moment. So each descriptor has a *slot*, in which the replayer keeps its number. A copied table has the
//! same slots, because the kernel's copy has the same numbers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::descriptors::{Change, Descriptors, change, unshares};
use super::record::CallRecord;
use super::table::{CLONE_FS, Effect, Signature};

/// Kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file of the device.
    File,
    /// A pipe, also one with a name on the device, or a socket pair made by a task.
    Stream,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    kind: Kind,
    slot: u32,
    /// Whether a copy of the table may hold it, too. Its slot is then never used again.
    is_copied: bool,
    /// The open file description, which duplicates share.
    description: u64,
    /// The end of an unnamed pipe or of a socket pair.
    end: Option<StreamEnd>,
}

/// An end of a pipe or of a socket pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamEnd {
    /// The description number of both ends.
    description: u64,
    /// Whether it is the second descriptor of the call: the writing end of a pipe.
    is_second: bool,
}

impl StreamEnd {
    /// The end at which data written to this one arrive.
    pub fn opposite(self) -> Self {
        StreamEnd { is_second: !self.is_second, ..self }
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    open: Descriptors<Open>,
    /// Number of tasks that use the table.
    users: usize,
}

/// Descriptors and directories of all tasks.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tables: Vec<Table>,
    /// Whether each directory is on the device, by table of directories.
    directories: Vec<bool>,
    /// Descriptor table and directory of each task.
    tasks: Vec<(usize, usize)>,
    descriptions: u64,
    slots: u32,
    /// Number of descriptors of each end.
    ends: BTreeMap<StreamEnd, usize>,
    /// Ends whose last descriptor was closed.
    closed_ends: Vec<StreamEnd>,
    /// Free slots by task: the task has closed their descriptors, after all uses by other tasks.
    free: BTreeMap<usize, Vec<u32>>,
}

impl Table {
    fn copy(&mut self) -> Descriptors<Open> {
        self.open.values_mut().for_each(|open| open.is_copied = true);
        self.open.clone()
    }
}

impl Tables {
    /// Begins a task with a table and a directory of its own.
    pub fn begin(&mut self, in_device: bool) {
        self.tasks.push((self.tables.len(), self.directories.len()));
        self.tables.push(Table { open: Descriptors::default(), users: 1 });
        self.directories.push(in_device);
    }

    /// Gives a child its maker's table and directory, shared or as copies.
    pub fn inherit(&mut self, maker: usize, child: usize, shares_files: bool, shares_directory: bool) {
        let (table, directory) = self.tasks[maker];
        let own = self.tasks[child];
        if shares_files {
            self.tasks[child].0 = table;
            self.tables[table].users += 1;
        } else {
            let copy = self.tables[table].copy();
            self.opened(copy.values());
            self.tables[own.0].open = copy;
        }
        if shares_directory {
            self.tasks[child].1 = directory;
        } else {
            self.directories[own.1] = self.directories[directory];
        }
    }

    /// Number of the task's table.
    pub fn table(&self, task: usize) -> usize {
        self.tasks[task].0
    }

    pub fn is_in_device(&self, task: usize) -> bool {
        self.directories[self.tasks[task].1]
    }

    fn open(&self, task: usize, descriptor: i32) -> Option<&Open> {
        self.tables[self.tasks[task].0].open.get(descriptor)
    }

    pub fn kind(&self, task: usize, descriptor: i32) -> Option<Kind> {
        self.open(task, descriptor).map(|open| open.kind)
    }

    pub fn is_live(&self, task: usize, descriptor: i32) -> bool {
        self.open(task, descriptor).is_some()
    }

    /// The slot of an open descriptor.
    pub fn slot(&self, task: usize, descriptor: i32) -> Option<u32> {
        self.open(task, descriptor).map(|open| open.slot)
    }

    /// The slots of the descriptors that the task opens next.
    pub fn next_slots(&self, task: usize) -> [u32; 2] {
        let free = self.free.get(&task).map_or(&[][..], Vec::as_slice);
        let new = |taken: usize| self.slots + (taken.saturating_sub(free.len())) as u32;
        [0, 1].map(|place| free.iter().rev().nth(place).copied().unwrap_or_else(|| new(place)))
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    fn take_slot(&mut self, task: usize) -> u32 {
        self.free.get_mut(&task).and_then(Vec::pop).unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    /// Live descriptors in a range of numbers.
    pub fn within(&self, task: usize, descriptors: RangeInclusive<i32>) -> Vec<i32> {
        self.tables[self.tasks[task].0].open.within(descriptors)
    }

    pub fn description(&self, task: usize, descriptor: i32) -> Option<u64> {
        self.open(task, descriptor).map(|open| open.description)
    }

    /// Whether the task shares its table with another task.
    pub fn is_shared(&self, task: usize) -> bool {
        self.tables[self.tasks[task].0].users > 1
    }

    /// Gives a task that executes a program a table of its own. Returns whether it was shared before.
    pub fn leave_shared(&mut self, task: usize) -> bool {
        let table = self.tasks[task].0;
        if self.tables[table].users < 2 {
            return false;
        }
        self.tables[table].users -= 1;
        let own = Table { open: self.tables[table].copy(), users: 1 };
        self.opened(own.open.values());
        self.tasks[task].0 = self.tables.len();
        self.tables.push(own);
        true
    }

    /// Removes the descriptors that are closed when a program is executed, and returns their slots.
    pub fn close_on_execute(&mut self, task: usize) -> Vec<u32> {
        let closed = self.tables[self.tasks[task].0].open.close_on_execute();
        self.closed(&closed)
    }

    /// Ends a task. Returns the slots of the descriptors that are closed with its table, unless another task shares the
    /// table.
    pub fn end(&mut self, task: usize) -> Vec<u32> {
        let table = &mut self.tables[self.tasks[task].0];
        table.users = table.users.saturating_sub(1);
        if table.users > 0 {
            return Vec::new();
        }
        let closed = table.open.close_all();
        self.closed(&closed)
    }

    /// The end of a pipe or socket pair to which a descriptor refers.
    pub fn stream_end(&self, task: usize, descriptor: i32) -> Option<StreamEnd> {
        self.open(task, descriptor)?.end
    }

    /// The ends whose last descriptor was closed since the last call.
    pub fn take_closed_ends(&mut self) -> Vec<StreamEnd> {
        std::mem::take(&mut self.closed_ends)
    }

    /// Counts descriptors that were opened.
    fn opened<'a>(&mut self, descriptors: impl IntoIterator<Item = &'a Open>) {
        for end in descriptors.into_iter().filter_map(|open| open.end) {
            *self.ends.entry(end).or_default() += 1;
        }
    }

    /// Counts descriptors that were closed, and returns their slots.
    fn closed(&mut self, descriptors: &[Open]) -> Vec<u32> {
        for end in descriptors.iter().filter_map(|open| open.end) {
            let count = self.ends.entry(end).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.ends.remove(&end);
                self.closed_ends.push(end);
            }
        }
        descriptors.iter().map(|open| open.slot).collect()
    }

    fn insert(&mut self, task: usize, descriptor: i32, open: Open, close_on_execute: bool) {
        let slot = self.take_slot(task);
        self.insert_at(slot, task, descriptor, open, close_on_execute);
    }

    fn insert_at(&mut self, slot: u32, task: usize, descriptor: i32, open: Open, close_on_execute: bool) {
        self.remove(task, descriptor);
        self.opened([&open]);
        let open = Open { slot, is_copied: false, ..open };
        self.tables[self.tasks[task].0].open.insert(descriptor, open, close_on_execute);
    }

    fn remove(&mut self, task: usize, descriptor: i32) {
        let removed = self.tables[self.tasks[task].0].open.remove(descriptor);
        let Some(open) = removed else { return };
        self.closed(&[open]);
        if !open.is_copied {
            self.free.entry(task).or_default().push(open.slot);
        }
    }

    /// Applies the effect of a successful call. `below` is the kind of the object at its path, if that is on the
    /// device.
    pub fn take_effect(&mut self, task: usize, record: &CallRecord, known: &Signature, below: Option<Kind>) {
        if !record.succeeded() {
            return;
        }
        self.descriptions += 1;
        self.change_directory(task, record, known, below);
        if unshares(record, known) {
            self.leave_shared(task);
        }
        match change(record, known) {
            Some(Change::Open { descriptor, close_on_execute }) => match below {
                Some(kind) => self.insert(task, descriptor, self.made(kind), close_on_execute),
                // The number now refers to a file outside the device, which the replayer does not have.
                None => self.remove(task, descriptor),
            },
            Some(Change::Pipe { close_on_execute }) => self.make_pipe(task, record, close_on_execute),
            Some(Change::Copy { from, to, close_on_execute }) => match self.open(task, from).copied() {
                Some(open) => self.insert(task, to, open, close_on_execute),
                None => self.remove(task, to),
            },
            Some(Change::Close(descriptors)) => {
                for descriptor in self.within(task, descriptors) {
                    self.remove(task, descriptor);
                }
            }
            Some(Change::Mark { descriptors, close_on_execute }) => {
                self.tables[self.tasks[task].0].open.mark(descriptors, close_on_execute);
            }
            None => {}
        }
    }

    fn change_directory(&mut self, task: usize, record: &CallRecord, known: &Signature, below: Option<Kind>) {
        let directory = self.tasks[task].1;
        match known.effect {
            Effect::ChangeDirectory => self.directories[directory] = below.is_some(),
            Effect::ChangeDirectoryTo => {
                self.directories[directory] = self.kind(task, record.number(0)) == Some(Kind::File);
            }
            Effect::Unshare if record.arguments[0] & CLONE_FS != 0 => {
                self.tasks[task].1 = self.directories.len();
                self.directories.push(self.directories[directory]);
            }
            _ => {}
        }
    }

    /// A descriptor with a description of its own.
    fn made(&self, kind: Kind) -> Open {
        Open { kind, slot: 0, is_copied: false, description: self.descriptions, end: None }
    }

    fn make_pipe(&mut self, task: usize, record: &CallRecord, close_on_execute: bool) {
        let description = self.descriptions;
        let slots = [0, 1].map(|_| self.take_slot(task));
        let ends = [false, true].map(|is_second| StreamEnd { description, is_second });
        for ((slot, end), descriptor) in slots.into_iter().zip(ends).zip(record.pipe.into_iter().flatten()) {
            let open = Open { end: Some(end), ..self.made(Kind::Stream) };
            self.insert_at(slot, task, descriptor, open, close_on_execute);
        }
    }
}
