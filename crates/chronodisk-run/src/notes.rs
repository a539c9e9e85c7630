//! Messages for people. The program that uses this crate shows them, or drops them.

use std::collections::BTreeMap;
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

/// Reports the device's requests that ended in an error, because a program may ignore its errors. They include those
/// before and after the program.
pub(crate) fn note_failed_requests(by_status: &BTreeMap<String, u64>) {
    let all: u64 = by_status.values().sum();
    if all > 0 {
        let counts: Vec<String> = by_status.iter().map(|(status, count)| format!("{count} {status}")).collect();
        note(format_args!("{all} of the device's requests failed: {}", counts.join(", ")));
    }
}
