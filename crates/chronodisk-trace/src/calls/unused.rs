//! Descriptors of files elsewhere that are closed again before anything that stays in a folded trace needs them.
//!
//! A compiler opens and closes dozens of headers and libraries. Of such a pair nothing reaches the device, and no later
//! call finds a difference. The pair has to stay if a child inherits the descriptor, if tasks share their descriptors,
//! or if a call that stays names it.

use std::collections::{BTreeMap, BTreeSet};

use super::meaning::meaningful_arguments;
use super::record::CallRecord;
use super::table::{CLONE_FILES, Effect, signature};

/// Treatment of a record in a folded trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It opens a file that is not on the device, and stays if something needs the descriptor.
    OpensElsewhere,
    /// It stays, unless it closes a descriptor that nothing needed.
    Stays,
    /// It is left out.
    LeftOut,
}

/// Follows the records of a trace in the order in which they take effect.
#[derive(Debug, Default)]
pub(super) struct Unused {
    /// The record that opened a file elsewhere, by task and descriptor, as long as nothing needs it.
    opened: BTreeMap<u32, BTreeMap<i32, usize>>,
    /// Tasks that share their descriptors with others.
    sharing: BTreeSet<u32>,
}

impl Unused {
    /// The next record. If it closes a descriptor that nothing needed, returns the record that opened it: both can be
    /// left out.
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
            // They may pass a descriptor on, which is in memory.
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
