//! Delays the beginning of each copy of a group in a drawn workload by a time of its own.
//!
//! Without delays, all copies of a group would begin and act at the same instants, unlike users. The first tasks of a
//! copy sleep before their first call. All later records of the copy, and those of tasks that wait for it, are shifted
//! by the same time, so that a recorder could have written the trace.

use std::collections::BTreeMap;

use chronodisk_sim::{Nanos, RandomStream};

use super::order::Sequence;
use super::record::{CallRecord, CallTrace};
use super::table::{CLONE_VFORK, Effect, signature};

/// A delay for each copy: uniform over 0 to less than `jitter`. The stream is not the one that draws the groups, so
/// that the draw is the same with and without delays.
pub(super) fn delays(copies: usize, jitter: Nanos, seed: u64, number: u64) -> Vec<Nanos> {
    let mut stream = RandomStream::new(seed, "bootstrap", &format!("jitter {number}"));
    (0..copies).map(|_| Nanos::from_nanos(stream.below(jitter.as_nanos().max(1)))).collect()
}

/// Delay of a lifetime's records.
#[derive(Clone, Copy, Default)]
struct Shift {
    now: Nanos,
    /// Delay after the sleep. If it equals `now`, no sleep is needed.
    slept: Nanos,
    /// Whether the sleep comes after the execution of a program: until then its maker stands still (vfork).
    executes_first: bool,
}

/// Delays the copies of a workload. `copy_of` gives the number of the copy to which a task belongs.
///
/// # Errors
/// If a task's id was reused for another task, which would now begin before the end of the first.
pub(super) fn delay(trace: &mut CallTrace, copy_of: &BTreeMap<u32, usize>, delays: &[Nanos]) -> Result<(), String> {
    let sequence = Sequence::new(&trace.records);
    let mut copies = Copies { copy_of, delays, begin: vec![None; delays.len()] };
    let of_life = |life: &super::order::Life| match life.maker {
        None => copies.shift_of(life.id, None, Shift::default()),
        // The shift is set when the task is made.
        Some(_) => Shift::default(),
    };
    let mut shifts: Vec<Shift> = sequence.lives.iter().map(of_life).collect();
    let mut present: BTreeMap<u32, usize> = BTreeMap::new();
    let mut sleeps = Vec::new();
    for &index in &sequence.order {
        let record = &mut trace.records[index];
        let life = sequence.life_of[index];
        present.insert(record.task, life);
        let mut own = shifts[life];
        if own.now < own.slept && !own.executes_first {
            sleeps.push(sleep(record, own));
            own.now = own.slept;
        }
        record.entry = record.entry.saturating_add(own.now);
        if let Some(&child) = record.awaited().and_then(|id| present.get(&id)) {
            own.now = own.now.max(shifts[child].slept);
            own.slept = own.slept.max(own.now);
        }
        record.exit = record.exit.map(|exit| exit.saturating_add(own.now));
        if record.succeeded() && effect(record) == Some(Effect::Execute) {
            own.executes_first = false;
        }
        shifts[life] = own;
        if let Some(&child) = sequence.made.get(&index) {
            let id = sequence.lives[child].id;
            present.insert(id, child);
            let executes_first = record.clone_flags() & CLONE_VFORK != 0;
            shifts[child] = copies.shift_of(id, Some(record.task), Shift { executes_first, ..own });
        }
    }
    if Sequence::new(&trace.records).life_of != sequence.life_of {
        return Err("a task would begin while another one has its id: some ids were used twice".to_owned());
    }
    trace.records.append(&mut sleeps);
    // Stable: the call that made a task stays before the task's sleep.
    trace.records.sort_by_key(|record| record.entry);
    Ok(())
}

/// The copies of a workload, and by how much their records are shifted.
struct Copies<'a> {
    copy_of: &'a BTreeMap<u32, usize>,
    delays: &'a [Nanos],
    /// Known once the first task of the copy has been made.
    begin: Vec<Option<Nanos>>,
}

impl Copies<'_> {
    /// Shift of a new task. The first tasks of a copy sleep until the copy begins; others are shifted like their
    /// creator.
    fn shift_of(&mut self, task: u32, maker: Option<u32>, of_maker: Shift) -> Shift {
        let copy = self.copy_of.get(&task);
        let first = copy.filter(|&copy| maker.and_then(|maker| self.copy_of.get(&maker)) != Some(copy));
        let Some(&copy) = first else { return Shift { executes_first: false, ..of_maker } };
        let begin = *self.begin[copy].get_or_insert(of_maker.now.saturating_add(self.delays[copy]));
        Shift { slept: of_maker.now.max(begin), ..of_maker }
    }
}

fn effect(record: &CallRecord) -> Option<Effect> {
    signature(record.call.name()).map(|known| known.effect)
}

/// The sleep before a record whose entry is not shifted yet.
fn sleep(before: &CallRecord, shift: Shift) -> CallRecord {
    let call = "nanosleep".parse().expect("a name of a call");
    CallRecord {
        group: before.group,
        result: Some(0),
        exit: Some(before.entry.saturating_add(shift.slept)),
        user_cpu: before.user_cpu.map(|_| Nanos::ZERO),
        kernel_cpu: before.kernel_cpu.map(|_| Nanos::ZERO),
        ..CallRecord::new(before.task, call, before.entry.saturating_add(shift.now))
    }
}
