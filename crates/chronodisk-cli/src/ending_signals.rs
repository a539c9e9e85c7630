//! The signals that ask a command to end.

use std::fs;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Ctrl-C, SIGTERM and the end of the terminal; not SIGHUP where the caller has it ignored, as `nohup` does.
pub fn ending_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !ignores(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether a process ignores a signal, by its `/proc/PID/status` (proc(5): a mask in hexadecimal digits, signal 1 in
/// the lowest bit).
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_found_in_the_mask() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004000\n";
        assert!(ignores(status, SIGHUP));
        assert!(!ignores(status, SIGTERM));
        assert!(!ignores("", SIGHUP));
        assert!(!ignores("SigIgn:\tnonsense\n", SIGHUP));
    }
}
