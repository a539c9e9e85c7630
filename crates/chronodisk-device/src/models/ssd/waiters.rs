//! Commands that wait for data which others of the drive's commands wait for, too.

use super::pool::{NONE, Pool};

/// Lists of waiting commands, in one pool.
#[derive(Clone, Debug)]
pub(super) struct Waiters(Pool<Waiter>);

/// Commands that wait for the same data; the latest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingList(u32);

/// A command, and the bytes that it waits for.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    command: u32,
    bytes: u32,
    next: u32,
}

impl WaitingList {
    pub(super) const EMPTY: WaitingList = WaitingList(NONE);
}

impl Waiters {
    pub(super) fn new() -> Self {
        Waiters(Pool::new())
    }

    /// A command waits for further bytes. Returns whether it did not wait for any before: all units of a command are
    /// added one after the other.
    #[inline]
    pub(super) fn add(&mut self, list: &mut WaitingList, command: u32, bytes: u32) -> bool {
        if list.0 != NONE && self.0[list.0].command == command {
            self.0[list.0].bytes += bytes;
            return false;
        }
        list.0 = self.0.insert(Waiter { command, bytes, next: list.0 });
        true
    }

    /// Takes a command and its bytes off the list.
    pub(super) fn take(&mut self, list: &mut WaitingList) -> Option<(u32, u32)> {
        if list.0 == NONE {
            return None;
        }
        let Waiter { command, bytes, next } = self.0.remove(list.0);
        list.0 = next;
        Some((command, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_once_for_all_of_its_bytes() {
        let mut waiters = Waiters::new();
        let [mut one, mut two] = [WaitingList::EMPTY; 2];
        let added = [(7, 1), (7, 2), (9, 4)].map(|(command, bytes)| waiters.add(&mut one, command, bytes));
        assert_eq!(added, [true, false, true]);
        assert!(waiters.add(&mut two, 9, 8));
        assert_eq!([(); 3].map(|()| waiters.take(&mut one)), [Some((9, 4)), Some((7, 3)), None]);
        assert_eq!(waiters.take(&mut two), Some((9, 8)));
        assert_eq!((one, two), (WaitingList::EMPTY, WaitingList::EMPTY));
    }
}
