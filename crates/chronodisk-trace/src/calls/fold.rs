//! Removes calls that neither touch the device nor change anything that a later call needs.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::meaning::meaningful_arguments;
use super::record::{CallRecord, CallTrace};
use super::resolve::{Object, Resolver, is_below, resolution_order};
use super::table::{Effect, PAGE_FAULT, signature};
use super::unused::{Place, Unused};

/// Calls that use, change or remove mappings of files.
const OF_MEMORY: [&str; 5] = [PAGE_FAULT, "madvise", "mremap", "msync", "munmap"];

/// Folds calls without influence on the device into CPU charges of the same task's next call.
///
/// A call remains if it uses a file below the mount point or a pipe, changes descriptors, directories or tasks, may
/// wait, can't be resolved, or is the last of its task. Opening and closing a file elsewhere remain only if a remaining
/// call needs the descriptor. A removed call's user and kernel CPU time is added to the user CPU time of the next
/// remaining call, which becomes unknown if one of them is. Without a mount point every call that uses a file remains.
/// Memory addresses, and registers that a call does not take, become zero: no replay uses them.
#[must_use]
pub fn fold(trace: &CallTrace) -> CallTrace {
    let mut resolver = Resolver::new(&trace.header);
    let mount = trace.header.mount.as_ref().map(|mount| mount.as_bytes());
    let on_device = |path: &[u8]| mount.is_none_or(|mount| path == mount || is_below(mount, path));
    // If the trace has page faults, calls that remove or change mappings remain, too.
    let has_faults = trace.records.iter().any(|record| record.call.name() == PAGE_FAULT);
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, record) in trace.records.iter().enumerate() {
        last.insert(record.task, index);
    }
    let mut kept = vec![false; trace.records.len()];
    let mut unused = Unused::default();
    for index in resolution_order(&trace.records) {
        let record = &trace.records[index];
        let resolved = resolver.apply(record);
        let uses = resolved.objects.iter().any(|used| match &used.object {
            Object::File(path) => on_device(path),
            Object::Pipe(_) => true,
        });
        let of_memory = has_faults && OF_MEMORY.contains(&record.call.name());
        let is_last = last[&record.task] == index;
        let needed = uses || of_memory || resolved.unresolved || resolved.unsupported || is_last;
        kept[index] = needed || resolved.essential;
        let opens = signature(record.call.name()).is_some_and(|known| matches!(known.effect, Effect::Open(_)));
        let place = match kept[index] {
            true if opens && !needed => Place::OpensElsewhere,
            true => Place::Stays,
            false => Place::LeftOut,
        };
        if let Some(opened) = unused.follow(index, record, place) {
            kept[index] = is_last;
            kept[opened] = is_last;
        }
    }
    let mut charges: BTreeMap<u32, Charge> = BTreeMap::new();
    let mut records = Vec::new();
    for (index, record) in trace.records.iter().enumerate() {
        if kept[index] {
            records.push(charges.remove(&record.task).unwrap_or_default().on(record));
        } else {
            charges.entry(record.task).or_default().add(record);
        }
    }
    CallTrace { header: trace.header.clone(), records }
}

/// The calls of a task that wait for one that remains.
#[derive(Default)]
struct Charge {
    cpu: Nanos,
    unknown: bool,
    calls: u32,
}

impl Charge {
    fn add(&mut self, record: &CallRecord) {
        match (record.user_cpu, record.kernel_cpu) {
            (Some(user), Some(kernel)) => self.cpu = self.cpu.saturating_add(user).saturating_add(kernel),
            _ => self.unknown = true,
        }
        self.calls = self.calls.saturating_add(1).saturating_add(record.folded);
    }

    fn on(self, record: &CallRecord) -> CallRecord {
        let user_cpu = record.user_cpu.filter(|_| !self.unknown).map(|user| user.saturating_add(self.cpu));
        let arguments = meaningful_arguments(record);
        CallRecord { arguments, user_cpu, folded: record.folded.saturating_add(self.calls), ..record.clone() }
    }
}
