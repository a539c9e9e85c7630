//! Signals of the launcher as something to wait for, the end of a run that they ask for, and the user's terminal in raw
//! mode.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use chronodisk_engine::ending::EndRequest;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Signals that are passed to the command, or that end the run.
const CAUGHT: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCHLD,
];

/// Collects signals instead of letting them act, until it is dropped.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    pub fn catch() -> io::Result<Self> {
        // SAFETY: both sets are initialised before use, and the descriptor is ours alone.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in CAUGHT {
                libc::sigaddset(&mut set, signal);
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            Ok(Signals { fd, before })
        }
    }

    /// Numbers of the signals received.
    pub fn take(&self) -> Vec<libc::c_int> {
        let mut numbers = Vec::new();
        loop {
            // SAFETY: a signalfd_siginfo of zeros is valid, and read fills at most its size.
            let information = unsafe {
                let mut information: libc::signalfd_siginfo = std::mem::zeroed();
                let size = size_of_val(&information);
                if libc::read(self.fd.as_raw_fd(), (&raw mut information).cast(), size) != size as isize {
                    return numbers;
                }
                information
            };
            numbers.push(information.ssi_signo as libc::c_int);
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask is one that pthread_sigmask returned.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Before the command.
    Before,
    /// While the command runs.
    Command,
    /// From the command's end to that of the run.
    After,
}

/// The launcher's answer to a request to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    Nothing,
    /// The command gets this signal.
    PassOn(i32),
    /// The command is killed, and the guest ends in order.
    KillCommand,
    /// The guest is ended at once.
    EndGuest(i32),
}

/// The end of a run that signals ask for.
#[derive(Debug, Default)]
pub(crate) struct EndingRun {
    request: Option<EndRequest>,
    /// Whether the command got a signal.
    was_passed_on: bool,
    killed: bool,
    /// Instant at which the guest is killed, once it is known.
    give_up: Option<(Part, Instant)>,
}

/// Longest time for a killed command to end: it takes milliseconds, unless it waits for its device in the kernel.
const KILLED_GOES_WITHIN: Duration = Duration::from_secs(2);
/// Time for the unmount and for the end of the guest.
pub(super) const GUEST_ENDS_WITHIN: Duration = Duration::from_secs(5);

impl EndingRun {
    /// A signal that asks to end has come.
    pub fn signal(&mut self, signal: i32, part: Part, now: Instant) -> Demand {
        let is_first = self.request.is_none();
        EndRequest::note(&mut self.request, signal, now);
        let insists = self.request.is_some_and(|request| request.insists);
        match part {
            _ if insists => Demand::EndGuest(self.request.map_or(signal, |request| request.signal)),
            Part::Before => Demand::EndGuest(signal),
            Part::Command if is_first => {
                self.was_passed_on = true;
                Demand::PassOn(signal)
            }
            Part::Command | Part::After => self.look(part, now),
        }
    }

    /// The demand that is due at `now`.
    pub fn look(&mut self, part: Part, now: Instant) -> Demand {
        let Some(request) = self.request else { return Demand::Nothing };
        let within = match part {
            Part::Before => return Demand::EndGuest(request.signal),
            Part::Command if !self.killed => {
                if now < request.kills_at() {
                    return Demand::Nothing;
                }
                self.killed = true;
                self.give_up = Some((Part::Command, now + KILLED_GOES_WITHIN));
                return Demand::KillCommand;
            }
            Part::Command => KILLED_GOES_WITHIN,
            Part::After => GUEST_ENDS_WITHIN,
        };
        match self.give_up {
            Some((of, at)) if of == part && now >= at => Demand::EndGuest(request.signal),
            Some((of, _)) if of == part => Demand::Nothing,
            _ => {
                self.give_up = Some((part, now + within));
                Demand::Nothing
            }
        }
    }

    /// The signal of the request, if there is one.
    pub fn asked_by(&self) -> Option<i32> {
        self.request.map(|request| request.signal)
    }

    /// The exit status of a run whose command had this one: the signal's where the signal, and not the command, decided
    /// about the end.
    pub fn status(&self, of_command: i32) -> i32 {
        match self.request {
            Some(request) if self.killed || !self.was_passed_on && of_command == 0 => i32::from(request.status()),
            _ => of_command,
        }
    }
}

/// The user's terminal passes every key to the guest while this lives.
pub(crate) struct TerminalGuard(Termios);

impl TerminalGuard {
    /// `None` if standard input is no terminal after all.
    pub fn raw() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(TerminalGuard(before))
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_command_has_five_seconds_and_the_guest_as_many() {
        let (mut ending, begin) = (EndingRun::default(), Instant::now());
        assert_eq!(ending.look(Part::Command, begin), Demand::Nothing);
        assert_eq!(ending.signal(libc::SIGTERM, Part::Command, begin), Demand::PassOn(libc::SIGTERM));
        assert_eq!(ending.look(Part::Command, begin + 4 * SECOND), Demand::Nothing);
        assert_eq!(ending.look(Part::Command, begin + 5 * SECOND), Demand::KillCommand);
        assert_eq!(ending.look(Part::Command, begin + 6 * SECOND), Demand::Nothing);
        // One that waits in the kernel of the guest does not go.
        assert_eq!(ending.look(Part::Command, begin + 7 * SECOND), Demand::EndGuest(libc::SIGTERM));
        assert_eq!(ending.look(Part::After, begin + 7 * SECOND), Demand::Nothing);
        assert_eq!(ending.look(Part::After, begin + 11 * SECOND), Demand::Nothing);
        assert_eq!(ending.look(Part::After, begin + 12 * SECOND), Demand::EndGuest(libc::SIGTERM));
        assert_eq!((ending.status(137), ending.asked_by()), (143, Some(libc::SIGTERM)));
    }

    #[test]
    fn a_command_that_ends_by_itself_keeps_its_status() {
        let (mut ending, begin) = (EndingRun::default(), Instant::now());
        assert_eq!((ending.status(0), ending.status(3)), (0, 3));
        ending.signal(libc::SIGINT, Part::Command, begin);
        assert_eq!((ending.status(0), ending.status(5)), (0, 5));
    }

    #[test]
    fn a_second_signal_and_one_before_the_command_end_the_guest_at_once() {
        let (mut ending, begin) = (EndingRun::default(), Instant::now());
        assert_eq!(ending.signal(libc::SIGHUP, Part::Before, begin), Demand::EndGuest(libc::SIGHUP));
        let mut ending = EndingRun { request: ending.request.take(), ..EndingRun::default() };
        assert_eq!(ending.signal(libc::SIGTERM, Part::After, begin), Demand::Nothing);
        assert_eq!(ending.signal(libc::SIGTERM, Part::After, begin + SECOND), Demand::EndGuest(libc::SIGHUP));
        // The command had ended, and knew of no signal.
        assert_eq!((ending.status(0), ending.status(7)), (129, 7));
    }
}
