//! Descriptors of files outside the device that are closed before any remaining call of a folded trace needs them.
//!
//! A compiler opens and closes dozens of headers and libraries. Such a pair of calls does not affect the device or any
//! later call. The pair must stay if a child inherits the descriptor, if tasks share their descriptors, or if a
//! remaining call uses it.

use std::collections::{BTreeMap, BTreeSet};

use super::meaning::meaningful_arguments;
use super::record::CallRecord;
use super::table::{CLONE_FILES, Effect, signature};

/// Treatment of a record in a folded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The call opens a file outside the device, and stays if another call needs the descriptor.
    OpensElsewhere,
    /// The call stays, unless it closes an unused descriptor.
    Stays,
    /// The call is left out.
    LeftOut,
}

/// Follows the records of a trace in the order in which they take effect.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// The record that opened a file outside the device, by task and descriptor, until a call needs it.
    opened: BTreeMap<u32, BTreeMap<i32, usize>>,
    /// Tasks that share their descriptors with others.
    sharing: BTreeSet<u32>,
}

impl Unused {
    /// Handles the next record. If it closes an unused descriptor, returns the record that opened it: both can be left
    /// out.
    pub fn follow(&mut self, index: usize, record: &CallRecord, place: Place) -> Option<usize> {
        let effect = signature(record.call.name()).map(|known| known.effect);
        match effect {
            Some(Effect::Close) if record.succeeded() => {
                return self.opened.get_mut(&record.task)?.remove(&record.number(0));
            }
            Some(Effect::Fork) => {
                self.opened.remove(&record.task);
                if record.clone_flags() & CLONE_FILES != 0 {
                    self.sharing.extend([Some(record.task), record.child()].into_iter().flatten());
                }
            }
            Some(Effect::Execute | Effect::Exit | Effect::CloseRange | Effect::Unshare | Effect::Unsupported) => {
                self.opened.remove(&record.task);
            }
            // These calls may pass a descriptor on, in memory.
            _ if matches!(record.call.name(), "sendmsg" | "sendmmsg") => {
                self.opened.remove(&record.task);
            }
            _ if place != Place::LeftOut => {
                self.needs(record);
                if place == Place::OpensElsewhere && !self.sharing.contains(&record.task) {
                    let descriptor = record.result.and_then(|result| i32::try_from(result).ok())?;
                    self.opened.entry(record.task).or_default().insert(descriptor, index);
                }
            }
            _ => {}
        }
        None
    }

    /// A remaining record needs the descriptors that it names, also that of a path's directory.
    fn needs(&mut self, record: &CallRecord) {
        let Some(opened) = self.opened.get_mut(&record.task) else { return };
        // Any number that may be a descriptor counts as one: at worst an unneeded pair remains.
        for argument in meaningful_arguments(record) {
            opened.remove(&(argument as u32 as i32));
        }
    }
}
