//! Signals by which one task lets another go on.
//!
//! A signal does nothing to the device, and a replay sends none. A task that waited for one waits for the step of the
//! task that sent it. If nobody did, a timer has, and the wait is a sleep.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::super::order::{Point, waits_for_signal};
use super::super::record::CallRecord;
use super::{Action, Planner};

/// What stands for all tasks: a signal to a group of processes, or to every process.
const ALL: u32 = 0;

/// When each task was last sent a signal, and by which step.
#[derive(Debug, Default)]
pub(super) struct Signals {
    sent: BTreeMap<u32, (Nanos, Point)>,
}

impl Signals {
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
    /// Plans a call that sends a signal or has waited for one; returns whether it is one.
    pub(super) fn signal(&mut self, index: usize) -> bool {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        let at = self.next(life);
        if let Some(receiver) = receiver(record) {
            self.step(index, Vec::new(), Action::Nothing);
            self.signals.sent.insert(receiver, (record.entry, at));
            return true;
        }
        // A wait for the end of a child is followed by the call that says which one it is.
        if !waits_for_signal(record) || self.next_call_awaits(index) {
            return false;
        }
        let waited = record.exit.unwrap_or(record.entry).saturating_sub(record.entry);
        match self.signals.ended(record) {
            Some(sender) => {
                let mut waits = vec![sender];
                self.stages.needed(at, &mut waits);
                self.step(index, waits, Action::Nothing);
            }
            None if waited > Nanos::ZERO => drop(self.step(index, Vec::new(), Action::Sleep(waited))),
            None => return false,
        }
        true
    }

    fn next_call_awaits(&self, index: usize) -> bool {
        let life = self.sequence.life_of[index];
        let next = (index + 1..self.records.len()).find(|&later| self.sequence.life_of[later] == life);
        next.is_some_and(|next| {
            let next = &self.records[next];
            matches!(next.call.name(), "wait4" | "waitid") && next.awaited().is_some()
        })
    }
}
