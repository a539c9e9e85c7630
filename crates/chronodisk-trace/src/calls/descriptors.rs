//! Tables of descriptors, and the effect of a call on a table.
//!
//! The resolver follows the descriptors of the recorded programs, and the planner follows the replayer's. Each user
//! gives the entries of its table values of its own type.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::record::CallRecord;
use super::table::{CLONE_FILES, Effect, F_DUPFD, F_DUPFD_CLOEXEC, F_SETFD, O_CLOEXEC, Signature};

/// Flag of `close_range`: unshare the table first.
pub(super) const CLOSE_RANGE_UNSHARE: u64 = 2;
/// Flag of `close_range`: close only at `execve`.
pub(super) const CLOSE_RANGE_CLOEXEC: u64 = 4;
/// Flag of a descriptor: close it at `execve`.
const FD_CLOEXEC: u64 = 1;

/// A table of descriptors.
#[derive(Clone, Debug)]
pub(super) struct Descriptors<T>(BTreeMap<i32, Entry<T>>);

#[derive(Clone, Debug)]
struct Entry<T> {
    value: T,
    close_on_execute: bool,
}

/// The effect of a successful call on the table of its task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The file at the call's path gets this descriptor.
    Open { descriptor: i32, close_on_execute: bool },
    /// The ends of a pipe or of a socket pair get the record's pair of descriptors.
    Pipe { close_on_execute: bool },
    /// `to` becomes a duplicate of `from`, also of a descriptor that is not in the table.
    Copy { from: i32, to: i32, close_on_execute: bool },
    /// Descriptors are closed.
    Close(RangeInclusive<i32>),
    /// Descriptors get or lose the flag `FD_CLOEXEC`.
    Mark { descriptors: RangeInclusive<i32>, close_on_execute: bool },
}

impl<T> Default for Descriptors<T> {
    fn default() -> Self {
        Descriptors(BTreeMap::new())
    }
}

impl<T> Descriptors<T> {
    /// The value of an open descriptor.
    pub fn get(&self, descriptor: i32) -> Option<&T> {
        self.0.get(&descriptor).map(|entry| &entry.value)
    }

    pub fn insert(&mut self, descriptor: i32, value: T, close_on_execute: bool) {
        self.0.insert(descriptor, Entry { value, close_on_execute });
    }

    pub fn remove(&mut self, descriptor: i32) -> Option<T> {
        self.0.remove(&descriptor).map(|entry| entry.value)
    }

    /// The numbers in the range that are open.
    pub fn within(&self, descriptors: RangeInclusive<i32>) -> Vec<i32> {
        // `range` panics on an empty range.
        if descriptors.is_empty() {
            return Vec::new();
        }
        self.0.range(descriptors).map(|(&descriptor, _)| descriptor).collect()
    }

    /// Sets or clears the flag `FD_CLOEXEC` of open descriptors.
    pub fn mark(&mut self, descriptors: RangeInclusive<i32>, close_on_execute: bool) {
        // `range_mut` panics on an empty range.
        if !descriptors.is_empty() {
            self.0.range_mut(descriptors).for_each(|(_, entry)| entry.close_on_execute = close_on_execute);
        }
    }

    /// Removes the descriptors that `execve` closes, and returns their values.
    pub fn close_on_execute(&mut self) -> Vec<T> {
        let marked = self.0.iter().filter(|(_, entry)| entry.close_on_execute).map(|(&descriptor, _)| descriptor);
        let marked: Vec<i32> = marked.collect();
        marked.into_iter().filter_map(|descriptor| self.remove(descriptor)).collect()
    }

    /// Removes all descriptors, and returns their values.
    pub fn close_all(&mut self) -> Vec<T> {
        std::mem::take(&mut self.0).into_values().map(|entry| entry.value).collect()
    }

    /// All values, in order of their descriptors.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|entry| &entry.value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut().map(|entry| &mut entry.value)
    }
}

/// The effect of a successful call on the table of its task; `None` without one.
pub(super) fn change(record: &CallRecord, known: &Signature) -> Option<Change> {
    let result = record.result.and_then(|result| i32::try_from(result).ok());
    let flag = |argument: Option<usize>| argument.is_some_and(|at| record.arguments[at] & O_CLOEXEC != 0);
    let (first, second) = (record.number(0), record.number(1));
    let copy = |to: i32, close_on_execute: bool| Change::Copy { from: first, to, close_on_execute };
    match known.effect {
        Effect::Open(flags) => Some(Change::Open { descriptor: result?, close_on_execute: flag(flags) }),
        Effect::Pipe(flags) => Some(Change::Pipe { close_on_execute: flag(flags) }),
        Effect::Duplicate => Some(copy(result?, false)),
        Effect::DuplicateTo { flags } => (first != second).then(|| copy(second, flags && flag(Some(2)))),
        Effect::Control => match record.arguments[1] {
            command @ (F_DUPFD | F_DUPFD_CLOEXEC) => Some(copy(result?, command == F_DUPFD_CLOEXEC)),
            F_SETFD => {
                let close_on_execute = record.arguments[2] & FD_CLOEXEC != 0;
                Some(Change::Mark { descriptors: first..=first, close_on_execute })
            }
            _ => None,
        },
        Effect::Close => Some(Change::Close(first..=first)),
        Effect::CloseRange => {
            let descriptors = range_of(record);
            Some(match record.arguments[2] & CLOSE_RANGE_CLOEXEC {
                0 => Change::Close(descriptors),
                _ => Change::Mark { descriptors, close_on_execute: true },
            })
        }
        _ => None,
    }
}

/// The descriptors of a call of `close_range`.
pub(super) fn range_of(record: &CallRecord) -> RangeInclusive<i32> {
    let number = |argument: usize| i32::try_from(record.arguments[argument] as u32).unwrap_or(i32::MAX);
    number(0)..=number(1)
}

/// Whether a call first gives its task a table of its own.
pub(super) fn unshares(record: &CallRecord, known: &Signature) -> bool {
    match known.effect {
        Effect::Unshare => record.arguments[0] & CLONE_FILES != 0,
        Effect::CloseRange => record.arguments[2] & CLOSE_RANGE_UNSHARE != 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_descriptors_are_closed_by_execve_alone() {
        let mut table = Descriptors::default();
        for descriptor in 3..8 {
            table.insert(descriptor, descriptor, descriptor == 5);
        }
        table.mark(6..=i32::MAX, true);
        table.mark(5..=5, false);
        assert_eq!(table.within(0..=9), [3, 4, 5, 6, 7]);
        assert_eq!(table.close_on_execute(), [6, 7]);
        assert_eq!(table.close_all(), [3, 4, 5]);
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "a trace may have any arguments")]
    fn a_reversed_range_has_no_descriptors() {
        let mut table = Descriptors::default();
        table.insert(3, (), false);
        table.mark(4..=2, true);
        assert_eq!(table.within(4..=2), []);
        assert!(table.close_on_execute().is_empty());
    }
}
