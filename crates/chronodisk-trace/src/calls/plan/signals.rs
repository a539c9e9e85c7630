//! Signals by which one task resumes another.
//!
//! A signal has no effect on the device, and a replay sends none. A task that waited for a signal waits for the
//! sender's step, or for the end of the child that caused it. Without either, a timer sent the signal, and the wait is
//! a sleep.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::super::order::{Point, Sequence, waits_for_signal};
use super::super::record::CallRecord;
use super::super::table::{Effect, signature};
use super::{Action, Awaited, Planner};

/// Stands for all tasks: a signal to a group of processes, or to every process.
const ALL: u32 = 0;

/// Calls of a program's signal handling, between the end of a wait and its reaction.
const HANDLING: [&str; 3] = ["rt_sigaction", "rt_sigprocmask", "rt_sigreturn"];

/// The last signal to each task with the sender's step, and the ends of each process's children.
#[derive(Debug)]
pub(super) struct Signals {
    sent: BTreeMap<u32, (Nanos, Point)>,
    /// The lives of children by their parent's group and the instant of their end.
    ends: BTreeMap<u32, BTreeMap<Nanos, usize>>,
}

impl Signals {
    pub fn new(records: &[CallRecord], sequence: &Sequence) -> Self {
        let mut ends: BTreeMap<u32, BTreeMap<Nanos, usize>> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            let life = sequence.life_of[index];
            let Some(maker) = sequence.lives[life].maker else { continue };
            let parent = records[maker].group;
            let is_end = signature(record.call.name()).is_some_and(|known| known.effect == Effect::Exit);
            // The end of a thread is reported to no task.
            if is_end && record.group != parent {
                ends.entry(parent).or_default().entry(record.entry).or_insert(life);
            }
        }
        Signals { sent: BTreeMap::new(), ends }
    }

    /// The child whose end came first while the call waited.
    fn child(&self, record: &CallRecord) -> Option<usize> {
        let during = record.entry..=record.exit.unwrap_or(record.entry);
        self.ends.get(&record.group)?.range(during).next().map(|(_, &life)| life)
    }

    /// The step that sent a signal to the task while its call waited.
    fn ended(&self, record: &CallRecord) -> Option<Point> {
        let targets = [record.task, record.group, ALL];
        let sent = targets.iter().filter_map(|target| self.sent.get(target));
        let during = sent.filter(|(at, _)| (record.entry..=record.exit.unwrap_or(record.entry)).contains(at));
        during.max_by_key(|(at, _)| *at).map(|(_, point)| *point)
    }
}

/// The task that a call sends a signal to; [`ALL`] for several.
fn receiver(record: &CallRecord) -> Option<u32> {
    let argument = match record.call.name() {
        "kill" | "tkill" => 0,
        "tgkill" => 1,
        _ => return None,
    };
    let receiver = record.succeeded().then(|| u32::try_from(record.number(argument)).unwrap_or(ALL))?;
    (record.call.name() != "kill" || record.arguments[1] != 0).then_some(receiver)
}

impl Planner<'_> {
    /// Plans a call that sends a signal or has waited for one. Returns whether it is one.
    pub(super) fn signal(&mut self, index: usize) -> bool {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        let at = self.next(life);
        if let Some(receiver) = receiver(record) {
            self.step(index, Vec::new(), Action::Nothing);
            self.signals.sent.insert(receiver, (record.entry, at));
            return true;
        }
        // After a wait for the end of a child, the next call identifies the child.
        if !waits_for_signal(record) || self.next_call_awaits(index) {
            return false;
        }
        let waited = record.exit.unwrap_or(record.entry).saturating_sub(record.entry);
        match (self.signals.ended(record), self.signals.child(record)) {
            (Some(sender), _) => {
                let mut waits = vec![sender];
                self.stages.needed(at, &mut waits);
                self.step(index, waits, Action::Nothing);
            }
            (None, Some(child)) => {
                let (think, kernel) = (self.think(index), self.kernel(index));
                self.push(life, index, think, kernel, vec![Awaited::End(child)], Action::Nothing);
            }
            (None, None) if waited > Nanos::ZERO => drop(self.step(index, Vec::new(), Action::Sleep(waited))),
            (None, None) => return false,
        }
        true
    }

    fn next_call_awaits(&self, index: usize) -> bool {
        let life = self.sequence.life_of[index];
        let acts = |later: &usize| {
            self.sequence.life_of[*later] == life && !HANDLING.contains(&self.records[*later].call.name())
        };
        let next = (index + 1..self.records.len()).find(acts);
        next.is_some_and(|next| {
            let next = &self.records[next];
            matches!(next.call.name(), "wait4" | "waitid") && next.awaited().is_some()
        })
    }
}
