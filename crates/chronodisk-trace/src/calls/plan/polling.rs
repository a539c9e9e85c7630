//! Sleeps with which a task polls for the end of another one.
//!
//! A program that waits for its threads or children in a loop of sleeps makes as many of them as the device needs time.
//! On another device it makes more or fewer, so a replay must not keep the recorded number.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;

use super::{Action, Awaited, Draft, Planner};

/// Fewer equal sleeps in a row may be pauses of a program that does not wait for another.
const LOOKS_MIN: usize = 4;
/// Further sleeps after the other task's end, by loops that check at their end: fio's sleeps once more.
const SLEEPS_AFTER_MAX: usize = 2;
/// Sleeps are equal that differ by less than this part.
const EQUAL_PART: u64 = 16;

impl Planner<'_> {
    /// Makes one poll of equal sleeps in a row if a thread of the same process, or the child that the next step waits
    /// for, ended during the last of them or shortly before.
    pub(super) fn find_polls(&mut self) {
        let ends = self.ends_of_groups();
        for life in 0..self.lives.len() {
            let mut begin = 0;
            while begin < self.lives[life].steps.len() {
                let end = begin + sleeps_in_a_row(&self.lives[life], begin);
                let looks = (begin + LOOKS_MIN - 1..end).rev().take(1 + SLEEPS_AFTER_MAX);
                let found = looks.map(|last| (last, self.ended_during(&ends, life, last)));
                if let Some((last, Some(ended))) = found.into_iter().find(|(_, ended)| ended.is_some()) {
                    self.make_poll(life, begin..last + 1, ended);
                }
                begin = end.max(begin + 1);
            }
        }
    }

    /// Ends of the lifetimes in each thread group, in order.
    fn ends_of_groups(&self) -> BTreeMap<u32, Vec<(Nanos, usize)>> {
        let mut ends: BTreeMap<u32, Vec<(Nanos, usize)>> = BTreeMap::new();
        for (life, draft) in self.lives.iter().enumerate() {
            if let Some(ended) = draft.ended {
                ends.entry(self.records[draft.last_record].group).or_default().push((ended, life));
            }
        }
        ends.values_mut().for_each(|ends| ends.sort_unstable());
        ends
    }

    /// The last lifetime to end during the step, among those for which the task may have polled.
    fn ended_during(&self, ends: &BTreeMap<u32, Vec<(Nanos, usize)>>, life: usize, step: usize) -> Option<usize> {
        let draft = &self.lives[life];
        let record = &self.records[draft.steps[step].record];
        let during = record.entry..=record.exit.unwrap_or(record.entry);
        let threads = ends.get(&record.group).map_or(&[][..], |ends| {
            let after = ends.partition_point(|(ended, _)| ended <= during.end());
            // The task's own end is not among them.
            &ends[after.saturating_sub(2)..after]
        });
        let awaited =
            draft.steps.get(step + 1).into_iter().flat_map(|next| &next.waits).filter_map(|wait| match wait {
                Awaited::End(other) => self.lives[*other].ended.map(|ended| (ended, *other)),
                _ => None,
            });
        let candidates = threads.iter().copied().chain(awaited);
        candidates.filter(|(ended, other)| *other != life && during.contains(ended)).max().map(|(_, other)| other)
    }

    /// Later sleeps become steps without effect, since other steps are known by their numbers.
    fn make_poll(&mut self, life: usize, sleeps: std::ops::Range<usize>, ended: usize) {
        let steps = &mut self.lives[life].steps[sleeps];
        let between = steps[1].think;
        let Some((first, others)) = steps.split_first_mut() else { return };
        let Action::Sleep(slept) = first.action else { return };
        first.action = Action::Poll(slept.saturating_add(between));
        first.waits.push(Awaited::End(ended));
        for step in others {
            (step.think, step.kernel, step.action) = (Nanos::ZERO, Nanos::ZERO, Action::Nothing);
        }
    }
}

/// Number of consecutive sleeps of equal length from a step on.
fn sleeps_in_a_row(draft: &Draft, begin: usize) -> usize {
    let lengths = draft.steps[begin..].iter().map_while(|step| match step.action {
        Action::Sleep(slept) if step.waits.is_empty() => Some(slept.as_nanos()),
        _ => None,
    });
    let mut first = None;
    lengths.take_while(|&length| length.abs_diff(*first.get_or_insert(length)) <= length / EQUAL_PART).count()
}
