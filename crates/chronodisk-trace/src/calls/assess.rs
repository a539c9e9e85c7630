//! Properties of each call for recorders, and the parts of a trace that can't be replayed.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::mappings::Mappings;
use super::order::Sequence;
use super::record::{CallRecord, CallTrace};
use super::resolve::{Object, Resolver, is_below, resolution_order};
use super::table::{Effect, PAGE_FAULT, signature};
use super::words::pointers;

/// A file of the device was mapped, and its page faults are not in the trace.
pub(super) const MAPPED_FILE: &str = "mapped-file";

/// Arguments that a recorder reads the program's memory for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedArguments {
    /// Arguments that point to paths.
    pub paths: [Option<usize>; 2],
    /// The argument that points to two new descriptors.
    pub pair: Option<usize>,
    /// Arguments that point to words, with the number of words that [`take_words`](super::take_words) takes; the second
    /// points to one.
    pub words: [Option<(usize, usize)>; 2],
    /// Whether a replay can't make the call.
    pub is_unsupported: bool,
}

/// Memory of the program that a recorder reads at this call.
#[must_use]
pub fn recorded_arguments(name: &str) -> RecordedArguments {
    let Some(known) = signature(name) else { return RecordedArguments::default() };
    let place = |which: usize| known.paths[which].map(|base| base.argument(which));
    let pair = matches!(known.effect, Effect::Pipe(_)).then_some(if name == "socketpair" { 3 } else { 0 });
    let is_unsupported = known.effect == Effect::Unsupported;
    RecordedArguments { paths: [place(0), place(1)], pair, words: pointers(name), is_unsupported }
}

/// Removes page faults except those on mapped files below the mount point. Their CPU time becomes part of the user time
/// before the task's next call.
pub fn keep_faults_of_device(trace: &mut CallTrace) {
    let Some(mount) = trace.header.mount.clone() else { return };
    let sequence = Sequence::new(&trace.records);
    let mut resolver = Resolver::new(&trace.header);
    let mut mappings = Mappings::default();
    let mut is_kept = vec![true; trace.records.len()];
    for &index in &sequence.order {
        let record = &trace.records[index];
        let life = sequence.life_of[index];
        let resolved = resolver.apply(record);
        if record.call.name() == PAGE_FAULT {
            is_kept[index] = mappings.find(life, record.arguments[0]).is_some();
            continue;
        }
        let of_device = |object: &Object| matches!(object, Object::File(path) if is_below(mount.as_bytes(), path));
        let of_device = resolved.objects.iter().any(|used| of_device(&used.object));
        mappings.follow(life, record, of_device, sequence.made.get(&index).copied());
    }
    let mut carried: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut records = Vec::with_capacity(trace.records.len());
    for (mut record, is_kept) in std::mem::take(&mut trace.records).into_iter().zip(is_kept) {
        let cpu = carried.remove(&record.task).unwrap_or(Nanos::ZERO);
        record.user_cpu = record.user_cpu.map(|user| user.saturating_add(cpu));
        if is_kept {
            records.push(record);
        } else {
            let CallRecord { task, user_cpu, kernel_cpu, .. } = record;
            let both = [user_cpu, kernel_cpu].into_iter().flatten().fold(Nanos::ZERO, Nanos::saturating_add);
            carried.insert(task, both);
        }
    }
    trace.records = records;
}

/// Counts the causes that make the trace incomplete: calls that can't be replayed, paths with an unknown directory,
/// programs on the device, which the kernel maps by itself, and, unless the recorder `sees_faults`, mapped files of the
/// device. Returns whether a call uses a file below the mount point.
pub fn assess(trace: &mut CallTrace, sees_faults: bool) -> bool {
    let mount = trace.header.mount.clone();
    let mut resolver = Resolver::new(&trace.header);
    let mut used = false;
    for index in resolution_order(&trace.records) {
        let record = &trace.records[index];
        let resolved = resolver.apply(record);
        if resolved.unresolved {
            trace.header.count_incomplete("unknown-directory");
        }
        if resolved.unsupported {
            trace.header.count_incomplete(record.call.name());
        }
        let Some(mount) = &mount else { continue };
        let below = |object: &Object| matches!(object, Object::File(path) if is_below(mount.as_bytes(), path));
        let executes = signature(record.call.name()).is_some_and(|known| known.effect == Effect::Execute);
        let on_device = resolved.objects.iter().any(|object| below(&object.object));
        used |= on_device;
        if on_device && executes && record.succeeded() {
            trace.header.count_incomplete("executed-file");
        }
        if on_device && !sees_faults && record.call.name() == "mmap" && record.succeeded() {
            trace.header.count_incomplete(MAPPED_FILE);
        }
    }
    used
}

/// [`assess`] for a recorder on the host, which sees no page faults. If a call is `expected` to use the mount point and
/// none does, the error says so.
pub(super) fn assess_on_host(mut trace: CallTrace, expected: bool) -> Result<CallTrace, String> {
    let used = assess(&mut trace, false);
    match &trace.header.mount {
        Some(mount) if !used && expected => {
            Err(format!("no call uses a file below {mount}; expected the mount point of the device"))
        }
        _ => Ok(trace),
    }
}
