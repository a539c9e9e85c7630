//! The keys requested by the readers of profiles, for a reference of all keys.

use std::cell::RefCell;

/// A key that a reader asked for while it read a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileKey {
    /// Path of the table that the key is in, such as `bus` or `geometry.zones`; empty for the profile itself.
    pub table: String,
    /// The key.
    pub name: &'static str,
    /// Accepted values, as named in errors; `None` if the reader only checked for the key.
    pub expected: Option<String>,
    /// Whether the profile is refused without it.
    pub is_required: bool,
    /// The value in the profile; `None` if the key is absent.
    pub value: Option<String>,
}

/// Collects keys while a profile is read.
#[derive(Debug, Default)]
pub(crate) struct KeyLog(RefCell<Vec<ProfileKey>>);

impl KeyLog {
    pub(super) fn note(&self, key: ProfileKey) {
        self.0.borrow_mut().push(key);
    }

    /// Corrects the key that was asked for last, by a reader that knows more.
    pub(super) fn amend(&self, amend: impl FnOnce(&mut ProfileKey)) {
        if let Some(last) = self.0.borrow_mut().last_mut() {
            amend(last);
        }
    }

    pub(crate) fn into_keys(self) -> Vec<ProfileKey> {
        self.0.into_inner()
    }
}
