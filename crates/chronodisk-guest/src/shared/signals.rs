//! Signals with the same effect on the launcher and in the guest.

/// Whether a signal asks its receiver to end.
pub(crate) fn asks_to_end(signal: libc::c_int) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
}
