//! Removes calls that neither touch the device nor change anything that a later call needs.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::meaning::meaningful_arguments;
use super::record::{CallRecord, CallTrace};
use super::resolve::{Object, Resolver, is_below, resolution_order};
use super::table::PAGE_FAULT;

/// What uses, changes or removes mappings of files.
const OF_MEMORY: [&str; 5] = [PAGE_FAULT, "madvise", "mremap", "msync", "munmap"];

/// Folds calls without influence on the device into CPU charges of the same task's next call.
///
/// A call remains if it uses a file below the mount point or a pipe, changes descriptors, directories or tasks, may
/// wait, can't be resolved, or is the last of its task. A removed call's user and kernel CPU time is added to the user
/// CPU time of the next call that remains, which is not known if one of them is not. Without a mount point every call
/// that uses a file remains. Addresses of memory, and registers that a call does not take, become zero: they are a
/// third of a compressed trace, and no replay uses them.
#[must_use]
pub fn fold(trace: &CallTrace) -> CallTrace {
    let mut resolver = Resolver::new(&trace.header);
    let mut kept = vec![false; trace.records.len()];
    let mount = trace.header.mount.as_ref().map(|mount| mount.as_bytes());
    let on_device = |path: &[u8]| mount.is_none_or(|mount| path == mount || is_below(mount, path));
    // With page faults, also what removes or changes mappings.
    let has_faults = trace.records.iter().any(|record| record.call.name() == PAGE_FAULT);
    for index in resolution_order(&trace.records) {
        let resolved = resolver.apply(&trace.records[index]);
        let uses = resolved.objects.iter().any(|used| match &used.object {
            Object::File(path) => on_device(path),
            Object::Pipe(_) => true,
        });
        let of_memory = OF_MEMORY.contains(&trace.records[index].call.name());
        kept[index] =
            uses || has_faults && of_memory || resolved.essential || resolved.unresolved || resolved.unsupported;
    }
    let mut last: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, record) in trace.records.iter().enumerate() {
        last.insert(record.task, index);
    }
    let mut charges: BTreeMap<u32, Charge> = BTreeMap::new();
    let mut records = Vec::new();
    for (index, record) in trace.records.iter().enumerate() {
        if kept[index] || last[&record.task] == index {
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
