//! The replayer's descriptors and working directory of each task: files of the device, and pipes.

use std::collections::BTreeMap;

use super::record::CallRecord;
use super::table::{Effect, F_DUPFD, F_DUPFD_CLOEXEC, F_SETFD, O_CLOEXEC, Signature};

/// Kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file of the device.
    File,
    /// A pipe, also one with a name on the device, or a pair of sockets that a task has made.
    Stream,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    kind: Kind,
    /// The open file description; duplicates share it.
    description: u64,
    close_on_execute: bool,
}

#[derive(Clone, Debug, Default)]
struct Table {
    open: BTreeMap<i32, Open>,
    /// Tasks that have it.
    users: usize,
}

/// The state of all tasks.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tables: Vec<Table>,
    /// By table of directories, whether it is on the device.
    directories: Vec<bool>,
    /// By task, its table and its directory.
    tasks: Vec<(usize, usize)>,
    descriptions: u64,
}

impl Tables {
    /// A further task, with a table and a directory of its own.
    pub fn begin(&mut self, in_device: bool) {
        self.tasks.push((self.tables.len(), self.directories.len()));
        self.tables.push(Table { open: BTreeMap::new(), users: 1 });
        self.directories.push(in_device);
    }

    /// The child gets its maker's, shared or as a copy.
    pub fn inherit(&mut self, maker: usize, child: usize, shares_files: bool, shares_directory: bool) {
        let (table, directory) = self.tasks[maker];
        let own = self.tasks[child];
        if shares_files {
            self.tasks[child].0 = table;
            self.tables[table].users += 1;
        } else {
            self.tables[own.0].open = self.tables[table].open.clone();
        }
        if shares_directory {
            self.tasks[child].1 = directory;
        } else {
            self.directories[own.1] = self.directories[directory];
        }
    }

    /// A number that stands for the task's table.
    pub fn table(&self, task: usize) -> usize {
        self.tasks[task].0
    }

    pub fn is_in_device(&self, task: usize) -> bool {
        self.directories[self.tasks[task].1]
    }

    fn open(&self, task: usize, descriptor: i32) -> Option<&Open> {
        self.tables[self.tasks[task].0].open.get(&descriptor)
    }

    pub fn kind(&self, task: usize, descriptor: i32) -> Option<Kind> {
        self.open(task, descriptor).map(|open| open.kind)
    }

    pub fn is_live(&self, task: usize, descriptor: i32) -> bool {
        self.open(task, descriptor).is_some()
    }

    pub fn description(&self, task: usize, descriptor: i32) -> Option<u64> {
        self.open(task, descriptor).map(|open| open.description)
    }

    /// A program that is executed has a table of its own; returns whether it was shared before.
    pub fn leave_shared(&mut self, task: usize) -> bool {
        let table = self.tasks[task].0;
        if self.tables[table].users < 2 {
            return false;
        }
        self.tables[table].users -= 1;
        let own = Table { open: self.tables[table].open.clone(), users: 1 };
        self.tasks[task].0 = self.tables.len();
        self.tables.push(own);
        true
    }

    /// Removes and returns the descriptors that the execution of a program closes.
    pub fn close_on_execute(&mut self, task: usize) -> Vec<i32> {
        let open = &mut self.tables[self.tasks[task].0].open;
        let closed = open.iter().filter(|(_, open)| open.close_on_execute).map(|(&descriptor, _)| descriptor);
        let closed: Vec<i32> = closed.collect();
        open.retain(|_, open| !open.close_on_execute);
        closed
    }

    /// The end of a task: returns the descriptors that it closes, since no other task has its table.
    pub fn end(&mut self, task: usize) -> Vec<i32> {
        let table = &mut self.tables[self.tasks[task].0];
        table.users = table.users.saturating_sub(1);
        match table.users {
            0 => std::mem::take(&mut table.open).into_keys().collect(),
            _ => Vec::new(),
        }
    }

    /// Effect of a successful call on the state; `below` is the kind of its path, if that is on the device.
    pub fn take_effect(&mut self, task: usize, record: &CallRecord, known: &Signature, below: Option<Kind>) {
        if !record.succeeded() {
            return;
        }
        let result = record.result.and_then(|result| i32::try_from(result).ok());
        let (table, directory) = self.tasks[task];
        let flag = |argument: Option<usize>| argument.is_some_and(|at| record.arguments[at] & O_CLOEXEC != 0);
        self.descriptions += 1;
        let description = self.descriptions;
        let on_device = |descriptor: i32| {
            let open = self.tables[table].open.get(&descriptor);
            open.is_some_and(|open| open.kind == Kind::File)
        };
        match known.effect {
            Effect::ChangeDirectory => self.directories[directory] = below.is_some(),
            Effect::ChangeDirectoryTo => self.directories[directory] = on_device(record.number(0)),
            _ => {}
        }
        let files = &mut self.tables[table].open;
        match known.effect {
            Effect::Open(flags) => {
                let Some(descriptor) = result else { return };
                // A file outside the device leaves a number that the replayer does not have.
                files.remove(&descriptor);
                if let Some(kind) = below {
                    let open = Open { kind, description, close_on_execute: flag(flags) };
                    files.insert(descriptor, open);
                }
            }
            Effect::Duplicate => duplicate(files, record.number(0), result, false),
            Effect::DuplicateTo { flags } if record.number(0) != record.number(1) => {
                duplicate(files, record.number(0), Some(record.number(1)), flags && flag(Some(2)));
            }
            Effect::Control => match record.arguments[1] {
                command @ (F_DUPFD | F_DUPFD_CLOEXEC) => {
                    duplicate(files, record.number(0), result, command == F_DUPFD_CLOEXEC);
                }
                F_SETFD => {
                    if let Some(open) = files.get_mut(&record.number(0)) {
                        open.close_on_execute = record.arguments[2] & 1 != 0;
                    }
                }
                _ => {}
            },
            Effect::Close => drop(files.remove(&record.number(0))),
            Effect::CloseRange => {
                let inside = |descriptor: &i32| {
                    u32::try_from(*descriptor)
                        .is_ok_and(|number| (record.arguments[0] as u32..=record.arguments[1] as u32).contains(&number))
                };
                if record.arguments[2] & CLOSE_RANGE_CLOEXEC != 0 {
                    let within = files.iter_mut().filter(|(descriptor, _)| inside(descriptor));
                    within.for_each(|(_, open)| open.close_on_execute = true);
                } else {
                    files.retain(|descriptor, _| !inside(descriptor));
                }
            }
            Effect::Pipe(flags) => {
                for descriptor in record.pipe.into_iter().flatten() {
                    files.insert(descriptor, Open { kind: Kind::Stream, description, close_on_execute: flag(flags) });
                }
            }
            _ => {}
        }
    }
}

/// Flag of `close_range`: close at `execve` only.
pub(super) const CLOSE_RANGE_CLOEXEC: u64 = 4;

fn duplicate(files: &mut BTreeMap<i32, Open>, from: i32, to: Option<i32>, close_on_execute: bool) {
    let Some(to) = to else { return };
    match files.get(&from).copied() {
        Some(open) => files.insert(to, Open { close_on_execute, ..open }),
        None => files.remove(&to),
    };
}
