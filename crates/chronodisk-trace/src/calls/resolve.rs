//! Follows descriptors and directories, and names the objects of each call.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::descriptors::{Change, Descriptors, change, unshares};
use super::namespace::{Namespace, Node};
use super::record::{CallRecord, Header, PATH_BYTES_MAX};
use super::table::{
    AT_FDCWD, Base, CLONE_FILES, CLONE_FS, CLONE_SYSVSEM, Changes, Effect, O_CREAT, O_TRUNC, Signature, signature,
};
use super::words::{READ, request};

/// A file or a pipe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A file by its absolute path in shortest form.
    File(Vec<u8>),
    /// A pipe or a pair of sockets by a number that is unique in the trace.
    Pipe(u64),
}

/// A call's use of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectUse {
    /// The object.
    pub object: Object,
    /// Whether the call changed it, made it, renamed or removed it.
    pub changed: bool,
    /// Whether the call may have made it.
    pub made: bool,
    /// The task that opened it, for uses of a descriptor.
    pub opener: Option<u32>,
}

/// A path of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathUse {
    /// The absolute path in shortest form.
    pub full: Vec<u8>,
    /// The directory to which it is relative.
    pub base: Vec<u8>,
}

/// Objects named by a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Paths of the call.
    pub paths: [Option<PathUse>; 2],
    /// All objects used by the call, by path or by descriptor.
    pub objects: Vec<ObjectUse>,
    /// Whether one of its relative paths begins at a directory that is not known.
    pub unresolved: bool,
    /// Whether the call is of a kind that can't be replayed.
    pub unsupported: bool,
    /// Whether the call changes the state of its task, or may wait.
    pub essential: bool,
}

#[derive(Clone, Debug)]
enum Target {
    File(Node),
    Pipe(u64),
}

#[derive(Clone, Debug)]
struct Open {
    target: Target,
    opener: u32,
}

#[derive(Clone, Debug)]
struct Task {
    files: Rc<RefCell<Descriptors<Open>>>,
    directory: Rc<RefCell<Option<Node>>>,
}

impl Task {
    /// A task with this one's descriptors and directory, shared or as copies.
    fn child(&self, shares_files: bool, shares_directory: bool) -> Self {
        Task {
            files: if shares_files { self.files.clone() } else { copy(&self.files) },
            directory: if shares_directory { self.directory.clone() } else { copy(&self.directory) },
        }
    }
}

fn copy<T: Clone>(shared: &Rc<RefCell<T>>) -> Rc<RefCell<T>> {
    Rc::new(RefCell::clone(shared))
}

/// The order in which calls take effect. Most do so when they return; `close`, `exit` and the creation of a task do so
/// when they enter, since other tasks may act on the effect before they return.
#[must_use]
pub fn resolution_order(records: &[CallRecord]) -> Vec<usize> {
    let instant = |record: &CallRecord| match signature(record.call.name()).map(|known| known.effect) {
        Some(Effect::Close | Effect::CloseRange | Effect::Exit | Effect::Fork) => record.entry,
        _ => record.exit.unwrap_or(record.entry),
    };
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|&index| (instant(&records[index]), index));
    order
}

/// State of all tasks of a trace.
#[derive(Debug)]
pub struct Resolver {
    names: Namespace,
    tasks: BTreeMap<u32, Task>,
    pipes: u64,
    /// Pipes that a header or a recorder named.
    named_pipes: BTreeMap<String, u64>,
}

impl Resolver {
    /// The state before the first record.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let mut resolver =
            Resolver { names: Namespace::new(), tasks: BTreeMap::new(), pipes: 0, named_pipes: BTreeMap::new() };
        for state in &header.start {
            let directory = state.directory.as_ref().and_then(|path| absolute(b"/", path.as_bytes()));
            let directory = directory.map(|path| resolver.names.node(&path));
            let mut files = Descriptors::default();
            for (&descriptor, path) in &state.descriptors {
                let target = if path.starts_with('/') {
                    let Some(path) = absolute(b"/", path.as_bytes()) else { continue };
                    Target::File(resolver.names.node(&path))
                } else {
                    let next = resolver.pipes + 1;
                    let pipe = *resolver.named_pipes.entry(path.clone()).or_insert(next);
                    resolver.pipes = resolver.pipes.max(pipe);
                    Target::Pipe(pipe)
                };
                files.insert(descriptor, Open { target, opener: state.task }, false);
            }
            let task = Task { files: Rc::new(RefCell::new(files)), directory: Rc::new(RefCell::new(directory)) };
            resolver.tasks.insert(state.task, task);
        }
        resolver
    }

    /// Number of pipes so far, which is also the number of the next one.
    pub(super) fn pipes(&self) -> u64 {
        self.pipes
    }

    /// Applies the next record in [`resolution_order`] and returns the objects that it used.
    pub fn apply(&mut self, record: &CallRecord) -> Resolved {
        let Some(known) = signature(record.call.name()) else { return Resolved::default() };
        let task = self.task(record.task);
        let mut resolved = Resolved {
            // A program that only tests whether the kernel has such a call continues without it.
            unsupported: is_unsupported(record, known) && record.result.is_none_or(|result| result >= 0),
            // An open that fails makes no descriptor. A wait that fails has waited all the same.
            essential: match known.effect {
                Effect::Nothing => false,
                Effect::Open(_) => record.result.is_none_or(|result| result >= 0),
                _ => true,
            },
            ..Resolved::default()
        };
        // The contents of a symbolic link begin at the directory of the link.
        for which in [1, 0] {
            self.resolve_path(&task, record, known, which, &mut resolved);
        }
        self.name_objects(&task, record, known, &mut resolved);
        if record.succeeded() || known.effect == Effect::Exit {
            self.take_effect(&task, record, known, &resolved);
        }
        resolved
    }

    fn task(&mut self, id: u32) -> Task {
        let unknown = || Task { files: Rc::default(), directory: Rc::default() };
        self.tasks.entry(id).or_insert_with(unknown).clone()
    }

    fn base(&self, task: &Task, record: &CallRecord, argument: usize) -> Option<Vec<u8>> {
        let descriptor = record.number(argument);
        if descriptor == AT_FDCWD {
            return (*task.directory.borrow()).and_then(|node| self.names.path(node));
        }
        match task.files.borrow().get(descriptor)?.target {
            Target::File(node) => self.names.path(node),
            Target::Pipe(_) => None,
        }
    }

    fn resolve_path(&self, task: &Task, record: &CallRecord, known: &Signature, which: usize, resolved: &mut Resolved) {
        let Some(base) = known.paths[which].filter(|base| *base != Base::Name) else { return };
        let text = if which == 0 { &record.path } else { &record.path_2 };
        if names_descriptor(record, base, text.as_deref()) {
            return;
        }
        let Some(text) = text else {
            // The path was unreadable; but most socket addresses have none.
            resolved.unresolved |= record.succeeded() && record.call.name() != "bind";
            return;
        };
        if let Some((descriptor, rest)) = descriptor_in(text)
            && let Some(Target::File(node)) = task.files.borrow().get(descriptor).map(|open| open.target.clone())
            && let Some(full) = self.names.path(node).and_then(|directory| absolute(&directory, rest))
        {
            resolved.paths[which] = Some(PathUse { full, base: b"/".to_vec() });
            return;
        }
        let in_root = resolves_in_root(record);
        let text = if in_root { without_slashes(text) } else { text };
        let directory = match base {
            Base::Name => None,
            Base::Directory => (*task.directory.borrow()).and_then(|node| self.names.path(node)),
            Base::At(argument) => self.base(task, record, argument),
            Base::Target => resolved.paths[1].as_ref().map(|link| parent(&link.full).to_vec()),
        };
        let directory = match directory {
            Some(directory) => directory,
            None if text.starts_with(b"/") => b"/".to_vec(),
            None => {
                resolved.unresolved = true;
                return;
            }
        };
        match absolute(&directory, text) {
            Some(full) => resolved.paths[which] = Some(PathUse { full, base: directory }),
            None => resolved.unresolved = true,
        }
    }

    fn name_objects(&self, task: &Task, record: &CallRecord, known: &Signature, resolved: &mut Resolved) {
        let succeeded = record.succeeded();
        let renames = matches!(known.effect, Effect::Rename(_));
        let last = usize::from(known.paths[1].is_some());
        for (which, base) in known.paths.iter().enumerate() {
            // The contents of a symbolic link are no use of the file that they name.
            let Some(path) = resolved.paths[which].as_ref().filter(|_| *base != Some(Base::Target)) else { continue };
            let (changed, made) = match known.changes {
                Changes::All => (true, false),
                Changes::Makes => (which == last || renames, which == last),
                Changes::Flags(argument) => {
                    let flags = record.arguments[argument];
                    (flags & (O_CREAT | O_TRUNC) != 0, flags & O_CREAT != 0)
                }
                _ => (false, false),
            };
            let object = Object::File(path.full.clone());
            let (changed, made) = (changed && succeeded, made && succeeded);
            resolved.objects.push(ObjectUse { object, changed, made, opener: None });
        }
        let files = task.files.borrow();
        let texts = [record.path.as_deref(), record.path_2.as_deref()];
        let alone = known.paths.iter().zip(texts).filter_map(|(base, text)| match base {
            Some(base @ Base::At(argument)) if names_descriptor(record, *base, text) => Some(argument),
            _ => None,
        });
        let (own, changes) = operands(record, known);
        for (place, &argument) in own.iter().chain(alone).enumerate() {
            let Some(open) = files.get(record.number(argument)) else { continue };
            let changed = match changes {
                Changes::All => true,
                Changes::Listed(listed) => listed == place,
                // PROT_WRITE and MAP_SHARED.
                Changes::Mapping => record.arguments[2] & 2 != 0 && record.arguments[3] & 3 == 1,
                _ => false,
            };
            let object = match open.target {
                Target::Pipe(pipe) => Object::Pipe(pipe),
                Target::File(node) => match self.names.path(node) {
                    Some(path) => Object::File(path),
                    None => {
                        resolved.unresolved = true;
                        continue;
                    }
                },
            };
            let changed = changed && succeeded;
            resolved.objects.push(ObjectUse { object, changed, made: false, opener: Some(open.opener) });
        }
    }

    fn take_effect(&mut self, task: &Task, record: &CallRecord, known: &Signature, resolved: &Resolved) {
        match known.effect {
            Effect::ChangeDirectory => {
                let path = resolved.paths[0].as_ref();
                *task.directory.borrow_mut() = path.map(|path| self.names.node(&path.full));
            }
            Effect::ChangeDirectoryTo => {
                let target = task.files.borrow().get(record.number(0)).map(|open| open.target.clone());
                *task.directory.borrow_mut() = match target {
                    Some(Target::File(node)) => Some(node),
                    _ => None,
                };
            }
            Effect::Fork => self.fork(task, record),
            Effect::Execute => {
                self.own(record.task, true, false);
                self.task(record.task).files.borrow_mut().close_on_execute();
            }
            Effect::Exit => drop(self.tasks.remove(&record.task)),
            Effect::Rename(flags) => {
                if let [Some(from), Some(to)] = &resolved.paths {
                    let exchange = flags.is_some_and(|at| record.arguments[at] & 2 != 0);
                    self.names.rename(&from.full, &to.full, exchange);
                }
            }
            Effect::Unshare => {
                self.own(record.task, unshares(record, known), record.arguments[0] & CLONE_FS != 0);
            }
            _ => self.change_descriptors(record, known, resolved),
        }
    }

    fn change_descriptors(&mut self, record: &CallRecord, known: &Signature, resolved: &Resolved) {
        let Some(change) = change(record, known) else { return };
        if unshares(record, known) {
            self.own(record.task, true, false);
        }
        let files = self.task(record.task).files;
        let mut files = files.borrow_mut();
        match change {
            Change::Open { descriptor, close_on_execute } => {
                let Some(path) = &resolved.paths[0] else { return };
                let target = Target::File(self.names.node(&path.full));
                files.insert(descriptor, Open { target, opener: record.task }, close_on_execute);
            }
            Change::Pipe { close_on_execute } => {
                self.pipes += 1;
                for descriptor in record.pipe.into_iter().flatten() {
                    let target = Target::Pipe(self.pipes);
                    files.insert(descriptor, Open { target, opener: record.task }, close_on_execute);
                }
            }
            Change::Copy { from, to, close_on_execute } => match files.get(from).cloned() {
                Some(open) => files.insert(to, open, close_on_execute),
                // The copy of something unknown is unknown.
                None => drop(files.remove(to)),
            },
            Change::Close(descriptors) => {
                for descriptor in files.within(descriptors) {
                    files.remove(descriptor);
                }
            }
            Change::Mark { descriptors, close_on_execute } => files.mark(descriptors, close_on_execute),
        }
    }

    fn fork(&mut self, task: &Task, record: &CallRecord) {
        let Some(child) = record.child() else { return };
        let flags = if record.call.name().starts_with("clone") { record.arguments[0] } else { 0 };
        let child_task = task.child(flags & CLONE_FILES != 0, flags & CLONE_FS != 0);
        self.tasks.insert(child, child_task);
    }

    /// Gives a task its own descriptors or directory.
    fn own(&mut self, id: u32, files: bool, directory: bool) {
        let own = self.task(id).child(!files, !directory);
        self.tasks.insert(id, own);
    }
}

fn is_unsupported(record: &CallRecord, known: &Signature) -> bool {
    match known.effect {
        Effect::Unsupported => true,
        Effect::Unshare => record.arguments[0] & !(CLONE_FILES | CLONE_FS | CLONE_SYSVSEM) != 0,
        _ => false,
    }
}

/// The descriptors that a call names by themselves, and which of them it changes.
pub(super) fn operands(record: &CallRecord, known: &Signature) -> (&'static [usize], Changes) {
    match (record.call.name(), record.arguments[1]) {
        ("ioctl", request::FICLONE | request::FICLONERANGE) => (&[0, 2], Changes::Listed(0)),
        ("ioctl", request::FIDEDUPERANGE) => (&[0, 4], Changes::Listed(1)),
        ("ioctl", request::FS_IOC_SETFLAGS | request::FS_IOC_FSSETXATTR) => (&[0], Changes::All),
        _ => (known.descriptors, known.changes),
    }
}

/// `RESOLVE_IN_ROOT` of `openat2`: the directory stands for the root.
const RESOLVE_IN_ROOT: u64 = 0x10;

/// Whether an absolute path of the call begins at its directory.
pub(super) fn resolves_in_root(record: &CallRecord) -> bool {
    let [.., mode, limits] = record.arguments;
    record.call.name() == "openat2" && mode & READ != 0 && limits & RESOLVE_IN_ROOT != 0
}

fn without_slashes(path: &[u8]) -> &[u8] {
    &path[path.iter().position(|&byte| byte != b'/').unwrap_or(path.len())..]
}

/// Names of a process's own descriptors.
const DESCRIPTORS: [&[u8]; 3] = [b"/proc/self/fd/", b"/proc/thread-self/fd/", b"/dev/fd/"];

/// The descriptor that a path leads to or through by its name in `/proc` or `/dev`, and the path from there.
pub(super) fn descriptor_in(text: &[u8]) -> Option<(i32, &[u8])> {
    let rest = DESCRIPTORS.iter().find_map(|prefix| text.strip_prefix(*prefix))?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(digits);
    let descriptor = std::str::from_utf8(number).ok()?.parse().ok()?;
    (rest.is_empty() || rest.starts_with(b"/")).then(|| (descriptor, without_slashes(rest)))
}

/// Whether a call names a descriptor in place of a path: the path is empty or a null pointer.
fn names_descriptor(record: &CallRecord, base: Base, text: Option<&[u8]>) -> bool {
    matches!(base, Base::At(argument) if record.number(argument) >= 0) && text.is_none_or(<[u8]>::is_empty)
}

fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) | None => b"/",
        Some(slash) => &path[..slash],
    }
}

/// Whether `path` is strictly below `folder`; both are absolute and in shortest form.
#[must_use]
pub fn is_below(folder: &[u8], path: &[u8]) -> bool {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    path.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
}

/// Whether an absolute path is the mount point or below it.
pub(super) fn on_device(mount: &[u8], path: &[u8]) -> bool {
    path == mount || is_below(mount, path)
}

/// The absolute path, in shortest form, of a text relative to a directory; `None` if it is longer than a path may be.
#[must_use]
pub fn absolute(base: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let walked = walk(base, text);
    let full = walked.last().map_or_else(|| if text.starts_with(b"/") { b"/" } else { base }, |(_, full)| full);
    (full.len() <= PATH_BYTES_MAX).then(|| full.to_vec())
}

/// The components of a path's text, each with the absolute path that it leads to.
#[must_use]
pub fn walk(base: &[u8], text: &[u8]) -> Vec<(Range<usize>, Vec<u8>)> {
    let mut at: Vec<u8> = if text.starts_with(b"/") { Vec::new() } else { base.to_vec() };
    if at == b"/" {
        at.clear();
    }
    let mut walked = Vec::new();
    let mut begin = 0;
    for component in text.split(|&byte| byte == b'/') {
        let range = begin..begin + component.len();
        begin = range.end + 1;
        match component {
            b"" | b"." => continue,
            b".." => at.truncate(at.iter().rposition(|&byte| byte == b'/').unwrap_or(0)),
            name => {
                at.push(b'/');
                at.extend_from_slice(name);
            }
        }
        walked.push((range, if at.is_empty() { b"/".to_vec() } else { at.clone() }));
    }
    walked
}
