//! Messages for people. The program that uses this crate shows them, or drops them.

use std::fmt::Display;
use std::sync::OnceLock;

static SHOW: OnceLock<fn(&str)> = OnceLock::new();

/// Shows all messages from now on with this function. Only the first call counts.
pub fn show_notes_with(show: fn(&str)) {
    let _ = SHOW.set(show);
}

/// A message for people, such as a warning.
pub(crate) fn note(text: impl Display) {
    if let Some(show) = SHOW.get() {
        show(&text.to_string());
    }
}
