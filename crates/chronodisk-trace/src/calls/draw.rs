//! Draws groups of tasks with replacement: a new workload of the same population.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::delays::{delay, delays};
use super::groups::{Groups, group_of};
use super::record::{CallRecord, CallTrace, PATH_BYTES_MAX, TASK_MAX};
use super::resolve::{PathUse, walk};
use crate::bootstrap::copies;

/// Parameters of a draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Seeds the draws.
    pub seed: u64,
    /// Draws of one seed differ by it.
    pub number: u64,
    /// Each copy begins later by a random time below this; zero for no delay.
    pub jitter: Nanos,
}

/// Draws as many groups as there are, with replacement, and makes their trace.
///
/// The spine remains once. The first copy of a group is as recorded. A further copy has fresh task ids, and `+1`, `+2`
/// and so on behind the names that the group made below the mount point, in absolute and in relative paths. The jitter
/// does not change which groups are drawn.
///
/// # Errors
/// If there are no task ids left for the copies, a name becomes too long, or delayed tasks would have the same id.
pub fn draw(trace: &CallTrace, groups: &Groups, draw: Draw) -> Result<CallTrace, String> {
    let Draw { seed, number, jitter } = draw;
    let copies = copies(groups.groups.len(), seed, number);
    let mut drawn = compose(trace, groups, &copies)?;
    if jitter > Nanos::ZERO {
        let copy_of = copy_of(groups, &copies, &fresh_ids(trace, groups, &copies)?);
        delay(&mut drawn, &copy_of, &delays(groups.groups.len(), jitter, seed, number))?;
    }
    Ok(drawn)
}

/// For each task of a draw, the number of its copy.
fn copy_of(groups: &Groups, copies: &[u32], fresh: &FreshIds) -> BTreeMap<u32, usize> {
    let all = (0..copies.len()).flat_map(|group| (0..copies[group]).map(move |copy| (group, copy)));
    let tasks = all.enumerate().flat_map(|(number, (group, copy))| {
        let ids = Copy { groups, group, copy, fresh };
        groups.groups[group].iter().map(move |&task| (ids.id(task), number))
    });
    tasks.collect()
}

/// Makes a trace with this number of copies of each group; one of each is the trace itself.
///
/// # Errors
/// As for [`draw`], or if the number of copies does not match the number of groups.
pub fn compose(trace: &CallTrace, groups: &Groups, copies: &[u32]) -> Result<CallTrace, String> {
    if copies.len() != groups.groups.len() {
        return Err(format!("there are {} groups, and numbers of copies for {}", groups.groups.len(), copies.len()));
    }
    let fresh = fresh_ids(trace, groups, copies)?;
    let group_of = group_of(&groups.groups);
    let mut records = Vec::new();
    for (index, record) in trace.records.iter().enumerate() {
        let paths = &groups.paths[index];
        match group_of.get(&record.task) {
            Some(&group) => {
                for copy in 0..copies[group] {
                    records.push(copied(record, paths, &Copy { groups, group, copy, fresh: &fresh })?);
                }
            }
            // A task of the spine makes and awaits every copy.
            None => match about_child(record).and_then(|child| group_of.get(&child)) {
                Some(&group) => {
                    for copy in 0..copies[group] {
                        let ids = Copy { groups, group, copy, fresh: &fresh };
                        let mut made = record.clone();
                        name_child(&mut made, |child| ids.id(child));
                        // The CPU time was used once, and the calls of a task follow each other.
                        if copy > 0 {
                            made.user_cpu = made.user_cpu.map(|_| Nanos::ZERO);
                            made.kernel_cpu = made.kernel_cpu.map(|_| Nanos::ZERO);
                        }
                        if record.child().is_none() && copy > 0 {
                            made.entry = record.exit.unwrap_or(record.entry);
                        }
                        // All copies are made at the entry: a child may make its first call before its maker continues.
                        if record.child().is_some() && copy + 1 < copies[group] {
                            made.exit = record.exit.map(|_| record.entry);
                        }
                        records.push(made);
                    }
                }
                None => records.push(record.clone()),
            },
        }
    }
    // Stable: calls of one instant stay in order.
    records.sort_by_key(|record| record.entry);
    let mut header = trace.header.clone();
    for state in &trace.header.start {
        let Some(&group) = group_of.get(&state.task) else { continue };
        if copies[group] == 0 {
            header.start.retain(|kept| kept.task != state.task);
        }
        for copy in 1..copies[group] {
            let ids = Copy { groups, group, copy, fresh: &fresh };
            let mut made = state.clone();
            made.task = ids.id(state.task);
            header.start.push(made);
        }
    }
    header.start.sort_by_key(|state| state.task);
    Ok(CallTrace { header, records })
}

/// The child that a call made or waited for.
fn about_child(record: &CallRecord) -> Option<u32> {
    record.child().or_else(|| record.awaited())
}

/// Replaces the id of the child to which a call refers.
fn name_child(record: &mut CallRecord, id: impl Fn(u32) -> u32) {
    let Some(child) = about_child(record).map(id) else { return };
    if record.result == Some(0) {
        record.arguments[1] = child.into();
    } else {
        record.result = Some(child.into());
    }
}

/// Ids of the copies, by group, copy and recorded task.
type FreshIds = BTreeMap<(usize, u32, u32), u32>;

fn fresh_ids(trace: &CallTrace, groups: &Groups, copies: &[u32]) -> Result<FreshIds, String> {
    let recorded = trace.records.iter().flat_map(|record| [record.task, record.group, record.child().unwrap_or(0)]);
    let mut next = recorded.chain(trace.header.start.iter().map(|state| state.task)).max().unwrap_or(0);
    let mut fresh = BTreeMap::new();
    for (group, tasks) in groups.groups.iter().enumerate() {
        for copy in 1..copies[group] {
            for &task in tasks {
                next += 1;
                if next > TASK_MAX {
                    return Err(format!("the copies need task ids above {TASK_MAX}"));
                }
                fresh.insert((group, copy, task), next);
            }
        }
    }
    Ok(fresh)
}

/// One copy of one group.
struct Copy<'a> {
    groups: &'a Groups,
    group: usize,
    copy: u32,
    fresh: &'a FreshIds,
}

impl Copy<'_> {
    fn id(&self, task: u32) -> u32 {
        self.fresh.get(&(self.group, self.copy, task)).copied().unwrap_or(task)
    }

    /// The text of a path with a suffix after the first name that the group made.
    fn renamed(&self, text: &[u8], path: &PathUse) -> Result<Vec<u8>, String> {
        let made = &self.groups.made[self.group];
        let mut renamed = text.to_vec();
        let mut added = 0;
        for (range, full) in walk(&path.base, text) {
            // A name below a suffixed name moves with it.
            let above = (1..full.len()).any(|end| full[end] == b'/' && made.contains(&full[..end]));
            let named = &text[range.clone()] != b"..";
            if !above && named && made.contains(&full) {
                let mark = format!("+{}", self.copy);
                renamed.splice(range.end + added..range.end + added, mark.bytes());
                added += mark.len();
            }
        }
        if renamed.len() > PATH_BYTES_MAX {
            return Err(format!("a renamed path has {} bytes; expected at most {PATH_BYTES_MAX}", renamed.len()));
        }
        Ok(renamed)
    }
}

fn copied(record: &CallRecord, paths: &[Option<PathUse>; 2], copy: &Copy<'_>) -> Result<CallRecord, String> {
    let mut made = record.clone();
    if copy.copy == 0 {
        return Ok(made);
    }
    made.task = copy.id(record.task);
    made.group = copy.id(record.group);
    name_child(&mut made, |child| copy.id(child));
    for (text, path) in [&mut made.path, &mut made.path_2].into_iter().zip(paths) {
        if let (Some(text), Some(path)) = (text, path) {
            *text = copy.renamed(text, path)?;
        }
    }
    Ok(made)
}
