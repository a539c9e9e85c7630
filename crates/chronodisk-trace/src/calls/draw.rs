//! Draws groups of tasks with replacement: a new workload of the same population.

use std::collections::BTreeMap;

use super::groups::{Groups, group_of};
use super::record::{CallRecord, CallTrace, PATH_BYTES_MAX, TASK_MAX};
use super::resolve::{PathUse, walk};
use super::table::{Effect, signature};
use crate::bootstrap::copies;

/// Draws as many groups as there are, with replacement, and makes their trace.
///
/// The spine remains once. The first copy of a group is as recorded. A further copy has fresh task ids, and `+1`, `+2`
/// and so on behind the names that the group made below the mount point, in absolute and in relative paths. Draws of
/// one seed differ by `number`.
///
/// # Errors
/// If there are no task ids left for the copies, or a name becomes too long.
pub fn draw(trace: &CallTrace, groups: &Groups, seed: u64, number: u64) -> Result<CallTrace, String> {
    compose(trace, groups, &copies(groups.groups.len(), seed, number))
}

/// Makes the trace that has each group so often: once each gives the trace itself.
///
/// # Errors
/// As for [`draw`], or if there is not one number for each group.
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
                        made.result = record.result.map(|child| i64::from(ids.id(child as u32)));
                        if copy > 0 {
                            // The CPU time was used once, and the calls of a task follow each other.
                            made.user_cpu = made.user_cpu.map(|_| chronodisk_sim::Nanos::ZERO);
                            made.kernel_cpu = made.kernel_cpu.map(|_| chronodisk_sim::Nanos::ZERO);
                            made.entry = record.exit.unwrap_or(record.entry);
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

/// The child that a call returned, as its maker or its waiting parent.
fn about_child(record: &CallRecord) -> Option<u32> {
    let waits = record.call.name() == "wait4";
    let forks = signature(record.call.name()).is_some_and(|known| known.effect == Effect::Fork);
    record.result.filter(|&result| (waits || forks) && result > 0).and_then(|result| u32::try_from(result).ok())
}

/// Ids of the copies, by group, copy and recorded task.
fn fresh_ids(trace: &CallTrace, groups: &Groups, copies: &[u32]) -> Result<BTreeMap<(usize, u32, u32), u32>, String> {
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
    fresh: &'a BTreeMap<(usize, u32, u32), u32>,
}

impl Copy<'_> {
    fn id(&self, task: u32) -> u32 {
        self.fresh.get(&(self.group, self.copy, task)).copied().unwrap_or(task)
    }

    /// The text of a path with a mark behind the first name that the group made.
    fn renamed(&self, text: &[u8], path: &PathUse) -> Result<Vec<u8>, String> {
        let made = &self.groups.made[self.group];
        let mut renamed = text.to_vec();
        let mut added = 0;
        for (range, full) in walk(&path.base, text) {
            // What lies below such a name moves with it.
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
    if let Some(child) = about_child(record) {
        made.result = Some(i64::from(copy.id(child)));
    }
    for (text, path) in [&mut made.path, &mut made.path_2].into_iter().zip(paths) {
        if let (Some(text), Some(path)) = (text, path) {
            *text = copy.renamed(text, path)?;
        }
    }
    Ok(made)
}
