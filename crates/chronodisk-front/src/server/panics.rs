//! Handling of panics: a panic ends one connection, and is counted and named.
//!
//! A panic is a defect of this program. The threads of a server share one device, so a thread must never just
//! disappear: others may wait for its work.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Shared;

/// A panic's message.
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a message")
}

impl Shared {
    /// Runs `work`; returns `None` if it panicked, which is counted under `place`.
    ///
    /// The changes of `work` may be incomplete, so its caller ends the affected connection.
    pub(super) fn catch<T>(&self, place: impl FnOnce() -> String, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.note_panic(&place(), &*panic);
                None
            }
        }
    }

    /// Counts a panic that was caught.
    pub(super) fn note_panic(&self, place: &str, panic: &(dyn Any + Send)) {
        let mut totals = self.totals();
        totals.panics += 1;
        totals.first_panic.get_or_insert_with(|| format!("{place}: {}", message(panic).replace('\n', " ")));
    }
}
