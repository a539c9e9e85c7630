//! Groups of tasks that depend on each other: the elements of a bootstrap.

use std::collections::{BTreeMap, BTreeSet};

use super::record::{CallRecord, CallTrace};
use super::resolve::{Object, PathUse, Resolver, is_below, resolution_order};
use super::table::{receives, sends};

/// A trace's tasks by dependence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Tasks of each group in order; groups in the order of their first task.
    pub groups: Vec<Vec<u32>>,
    /// Ancestors without activity on the device, and tasks that serve no group.
    pub spine: Vec<u32>,
    /// New names that each group made below the mount point.
    pub(super) made: Vec<BTreeSet<Vec<u8>>>,
    /// The paths of each record.
    pub(super) paths: Vec<[Option<PathUse>; 2]>,
}

/// Finds the groups of a trace.
///
/// A group joins tasks if one uses a file below the mount point that another made or changed, if they use the same
/// pipe, or if one made the other and is active on the device itself. Reading the same files does not join. A pipe
/// older than the trace, such as the common standard output, joins only if tasks read and write it. A task without
/// activity belongs to the only group below it, or else to its nearest ancestor's. Above several groups it belongs to
/// the spine.
///
/// # Errors
/// If the trace has no mount point, or no call uses a file below it.
pub fn groups(trace: &CallTrace) -> Result<Groups, String> {
    let Some(mount) = trace.header.mount.as_ref().map(|mount| mount.as_bytes()) else {
        return Err("the trace has no mount point; import it again with --mount".to_owned());
    };
    let mut finder = Finder::default();
    let mut resolver = Resolver::new(&trace.header);
    let inherited_pipes = resolver.pipes();
    let mut paths = vec![[None, None]; trace.records.len()];
    for index in resolution_order(&trace.records) {
        let record = &trace.records[index];
        let resolved = resolver.apply(record);
        finder.sets.number(record.task);
        if let Some(child) = record.child() {
            finder.sets.number(child);
            finder.parents.insert(child, record.task);
        }
        for used in &resolved.objects {
            match &used.object {
                Object::Pipe(pipe) if *pipe <= inherited_pipes => finder.uses_inherited_pipe(record, *pipe),
                Object::Pipe(pipe) => finder.uses_pipe(record.task, *pipe),
                Object::File(path) if is_below(mount, path) => {
                    finder.active.insert(record.task);
                    if let Some(opener) = used.opener {
                        finder.sets.join(opener, record.task);
                    }
                    finder.uses_file(mount, record.task, path, used.changed);
                    if used.made {
                        finder.makes(record.task, path);
                    } else if record.succeeded() && used.opener.is_none() {
                        finder.exists(path);
                    }
                }
                Object::File(_) => {}
            }
        }
        paths[index] = resolved.paths;
    }
    finder.join_by_inherited_pipes();
    if finder.active.is_empty() {
        let mount = String::from_utf8_lossy(mount);
        return Err(format!("no call of the trace uses a file below {mount}; its mount point may be wrong"));
    }
    let (groups, spine) = finder.assign();
    let mut made = vec![BTreeSet::new(); groups.len()];
    let group_of = group_of(&groups);
    for (path, task) in finder.makers {
        if let Some(&group) = group_of.get(&task) {
            made[group].insert(path);
        }
    }
    Ok(Groups { groups, spine, made, paths })
}

/// The index of each task's group.
pub(super) fn group_of(groups: &[Vec<u32>]) -> BTreeMap<u32, usize> {
    let of = |(index, tasks): (usize, &Vec<u32>)| tasks.iter().map(move |&task| (task, index)).collect::<Vec<_>>();
    groups.iter().enumerate().flat_map(of).collect()
}

#[derive(Default)]
struct Finder {
    sets: Sets,
    parents: BTreeMap<u32, u32>,
    /// Tasks that use a file below the mount point.
    active: BTreeSet<u32>,
    /// The task that first changed each file.
    changed: BTreeMap<Vec<u8>, u32>,
    /// The task that made each new name.
    makers: BTreeMap<Vec<u8>, u32>,
    /// Names that existed before the trace.
    existed: BTreeSet<Vec<u8>>,
    pipes: BTreeMap<u64, u32>,
    inherited_pipes: BTreeMap<u64, InheritedPipe>,
}

/// A pipe that existed before the trace: its other end may be outside.
#[derive(Default)]
struct InheritedPipe {
    is_read: bool,
    is_written: bool,
    users: BTreeSet<u32>,
}

impl Finder {
    fn uses_inherited_pipe(&mut self, record: &CallRecord, pipe: u64) {
        let pipe = self.inherited_pipes.entry(pipe).or_default();
        match record.call.name() {
            name if receives(name) => pipe.is_read = true,
            name if sends(name) => pipe.is_written = true,
            // It is not known which of the descriptors is the pipe's, so both directions count.
            "sendfile" | "splice" | "tee" => (pipe.is_read, pipe.is_written) = (true, true),
            _ => return,
        }
        pipe.users.insert(record.task);
    }

    fn join_by_inherited_pipes(&mut self) {
        for pipe in std::mem::take(&mut self.inherited_pipes).into_values() {
            if let (true, true, Some(&first)) = (pipe.is_read, pipe.is_written, pipe.users.first()) {
                pipe.users.iter().for_each(|&task| self.sets.join(first, task));
            }
        }
    }

    fn uses_pipe(&mut self, task: u32, pipe: u64) {
        let first = *self.pipes.entry(pipe).or_insert(task);
        self.sets.join(first, task);
    }

    /// Joins with the tasks that changed the file or a directory above it.
    fn uses_file(&mut self, mount: &[u8], task: u32, path: &[u8], changes: bool) {
        let mut at = path;
        while is_below(mount, at) {
            if let Some(&other) = self.changed.get(at) {
                self.sets.join(other, task);
            }
            at = at.iter().rposition(|&byte| byte == b'/').map_or(b"".as_slice(), |slash| &at[..slash]);
        }
        if changes {
            self.changed.entry(path.to_vec()).or_insert(task);
        }
    }

    fn makes(&mut self, task: u32, path: &[u8]) {
        if !self.existed.contains(path) && !self.makers.contains_key(path) {
            self.makers.insert(path.to_vec(), task);
        }
    }

    fn exists(&mut self, path: &[u8]) {
        if !self.makers.contains_key(path) && !self.existed.contains(path) {
            self.existed.insert(path.to_vec());
        }
    }

    /// Groups and spine.
    fn assign(&mut self) -> (Vec<Vec<u32>>, Vec<u32>) {
        let tasks: Vec<u32> = self.sets.tasks.keys().copied().collect();
        for (&child, &parent) in &self.parents {
            if self.active.contains(&parent) {
                self.sets.join(parent, child);
            }
        }
        // Tasks that share a pipe with an active one are active too.
        let active: BTreeSet<usize> = self.active.iter().map(|&task| self.sets.root_of(task)).collect();
        let mut group: BTreeMap<u32, Below> = BTreeMap::new();
        for &task in &tasks {
            let root = self.sets.root_of(task);
            if active.contains(&root) {
                for ancestor in ancestors(&self.parents, task) {
                    let below = group.entry(ancestor).or_insert(Below::One(root));
                    if *below != Below::One(root) {
                        *below = Below::Several;
                    }
                }
            }
        }
        let mut members: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut spine = Vec::new();
        for &task in &tasks {
            let own = self.sets.root_of(task);
            let found = if active.contains(&own) {
                Some(own)
            } else {
                let nearest = ancestors(&self.parents, task).find_map(|at| {
                    let root = self.sets.root_of(at);
                    if active.contains(&root) { Some(Below::One(root)) } else { group.get(&at).copied() }
                });
                match nearest {
                    Some(Below::One(root)) => Some(root),
                    _ => None,
                }
            };
            match found {
                Some(root) => members.entry(root).or_default().push(task),
                None => spine.push(task),
            }
        }
        let mut groups: Vec<Vec<u32>> = members.into_values().collect();
        groups.sort();
        (groups, spine)
    }
}

/// Groups at or below a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    One(usize),
    Several,
}

/// A task and its ancestors; bounded, since a hostile trace may make a task its own ancestor.
fn ancestors(parents: &BTreeMap<u32, u32>, task: u32) -> impl Iterator<Item = u32> + '_ {
    std::iter::successors(Some(task), |at| parents.get(at).copied()).take(4096)
}

/// Disjoint sets of tasks.
#[derive(Default)]
struct Sets {
    tasks: BTreeMap<u32, usize>,
    above: Vec<usize>,
}

impl Sets {
    fn number(&mut self, task: u32) -> usize {
        let next = self.above.len();
        let number = *self.tasks.entry(task).or_insert(next);
        if number == next {
            self.above.push(next);
        }
        number
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.above[at] != at {
            self.above[at] = self.above[self.above[at]];
            at = self.above[at];
        }
        at
    }

    fn root_of(&mut self, task: u32) -> usize {
        let number = self.number(task);
        self.root(number)
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root_of(a), self.root_of(b));
        // The first task stays the root.
        self.above[a.max(b)] = a.min(b);
    }
}
