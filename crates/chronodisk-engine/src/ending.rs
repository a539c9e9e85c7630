//! The end of a program that a signal asks to end: one rule for all commands that run programs.
//!
//! The first signal is passed on to the program. A program that has not ended after [`PROGRAM_ENDS_WITHIN`] is killed.
//! A second signal ends everything at once. The rule has no clock and catches no signal: commands without threads catch
//! signals by a descriptor, commands with threads by handlers.

mod offspring;
mod starter;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub use self::offspring::{Offspring, end_family};
pub use self::starter::{kill_with_starter, tell_number};

/// Time of a program from the signal to its end.
pub const PROGRAM_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Signals within this time are one request. timeout(1) sends its signal to its child, and again to the process group
/// of that child.
const ONE_REQUEST: Duration = Duration::from_millis(100);

/// A request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndRequest {
    /// The first signal.
    pub signal: i32,
    /// Instant of the first signal.
    pub at: Instant,
    /// Whether a second signal came.
    pub insists: bool,
}

impl EndRequest {
    /// Adds a signal to the request so far.
    pub fn note(request: &mut Option<EndRequest>, signal: i32, now: Instant) {
        match request {
            None => *request = Some(EndRequest { signal, at: now, insists: false }),
            Some(request) => request.insists |= now.saturating_duration_since(request.at) >= ONE_REQUEST,
        }
    }

    /// Instant at which the program is killed.
    #[must_use]
    pub fn kills_at(&self) -> Instant {
        if self.insists { self.at } else { self.at + PROGRAM_ENDS_WITHIN }
    }

    /// The exit status of a process that the signal ended, as shells have it.
    #[must_use]
    pub fn status(&self) -> u8 {
        status_of(self.signal)
    }
}

/// The exit status of a process that this signal ended, as shells have it.
#[must_use]
pub fn status_of(signal: i32) -> u8 {
    128u8.wrapping_add(signal as u8)
}

/// The name of a signal that asks to end.
#[must_use]
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGINT => "SIGINT",
        libc::SIGTERM => "SIGTERM",
        libc::SIGHUP => "SIGHUP",
        libc::SIGQUIT => "SIGQUIT",
        _ => "a signal",
    }
}

/// Requests to end this process, for several threads.
pub trait EndRequests: Sync {
    /// The request so far.
    fn request(&self) -> Option<EndRequest>;

    /// Readable when a signal has come since the last call of [`request`](EndRequests::request).
    fn news(&self) -> BorrowedFd<'_>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_signal_that_timeout_sends_twice_is_one_request() {
        let begin = Instant::now();
        let mut request = None;
        EndRequest::note(&mut request, libc::SIGTERM, begin);
        EndRequest::note(&mut request, libc::SIGTERM, begin + MILLISECOND);
        let first = request.unwrap();
        assert_eq!((first.insists, first.kills_at()), (false, begin + PROGRAM_ENDS_WITHIN));
        EndRequest::note(&mut request, libc::SIGINT, begin + 150 * MILLISECOND);
        let second = request.unwrap();
        assert_eq!((second.insists, second.kills_at(), second.status()), (true, begin, 143));
        assert_eq!(signal_name(second.signal), "SIGTERM");
    }
}
