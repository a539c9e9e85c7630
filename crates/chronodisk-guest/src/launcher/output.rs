//! The command's output, queued for the launcher's own streams: bounded queues and non-blocking writes, so that a
//! stalled reader blocks nothing else in the launcher.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Length of a queue at which no more output is taken from the guest.
const QUEUE_BYTES_MAX: usize = 256 << 10;
/// Bytes of one write: the amount that a pipe accepts without blocking once it polls writable (pipe(7), PIPE_BUF).
const WRITE_BYTES_MAX: usize = 4096;
/// Most writes to one stream before the others get a turn.
const WRITES_AT_ONCE: usize = 64;

/// Destination of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The launcher's standard output.
    Stdout,
    /// The launcher's standard error.
    Stderr,
    /// The user's terminal, through any of the standard streams.
    Terminal,
}

/// The queues of all targets.
pub(crate) struct Outputs {
    stdout: Outlet,
    stderr: Outlet,
    terminal: Outlet,
}

impl Outputs {
    /// Queues for this process's standard streams.
    pub fn standard() -> io::Result<Self> {
        Ok(Outputs {
            stdout: Outlet::new(Some(io::stdout().as_fd().try_clone_to_owned()?)),
            stderr: Outlet::new(Some(io::stderr().as_fd().try_clone_to_owned()?)),
            terminal: Outlet::new(terminal()?),
        })
    }

    /// Queues bytes; a target that is closed drops them.
    pub fn put(&mut self, target: Target, bytes: &[u8]) {
        let outlet = self.outlet(target);
        if outlet.fd.is_some() {
            outlet.waiting.extend(bytes);
        }
    }

    /// Whether the guest should be read no further for now.
    pub fn are_full(&self) -> bool {
        self.outlets().iter().any(|outlet| outlet.waiting.len() > QUEUE_BYTES_MAX)
    }

    /// Whether all queues are empty.
    pub fn are_empty(&self) -> bool {
        self.outlets().iter().all(|outlet| outlet.waiting.is_empty())
    }

    /// Descriptors to wait for before more is written.
    pub fn waits(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.outlets().into_iter().filter(|outlet| !outlet.waiting.is_empty()).filter_map(|outlet| {
            let fd = outlet.fd.as_ref()?;
            Some(PollFd::new(fd, PollFlags::OUT))
        })
    }

    /// Writes as much as the streams accept now. Returns those that were closed since the last call.
    pub fn write(&mut self) -> Vec<Target> {
        let mut closed = Vec::new();
        for target in [Target::Stdout, Target::Stderr, Target::Terminal] {
            let outlet = self.outlet(target);
            let was_open = outlet.fd.is_some();
            outlet.write();
            if was_open && outlet.fd.is_none() {
                closed.push(target);
            }
        }
        closed
    }

    /// The first error other than a closed reader.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        [Target::Stdout, Target::Stderr, Target::Terminal]
            .into_iter()
            .find_map(|target| self.outlet(target).failure.take())
    }

    fn outlet(&mut self, target: Target) -> &mut Outlet {
        match target {
            Target::Stdout => &mut self.stdout,
            Target::Stderr => &mut self.stderr,
            Target::Terminal => &mut self.terminal,
        }
    }

    fn outlets(&self) -> [&Outlet; 3] {
        [&self.stdout, &self.stderr, &self.terminal]
    }
}

/// The user's terminal, to write to.
fn terminal() -> io::Result<Option<OwnedFd>> {
    if io::stdout().is_terminal() {
        return io::stdout().as_fd().try_clone_to_owned().map(Some);
    }
    if io::stderr().is_terminal() {
        return io::stderr().as_fd().try_clone_to_owned().map(Some);
    }
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    // A shell's `< /dev/tty` opens it for reading only.
    match std::fs::OpenOptions::new().write(true).open("/proc/self/fd/0") {
        Ok(file) => Ok(Some(file.into())),
        Err(_) => io::stdin().as_fd().try_clone_to_owned().map(Some),
    }
}

/// One stream; closed if it has no descriptor.
struct Outlet {
    fd: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    failure: Option<io::Error>,
}

impl Outlet {
    fn new(fd: Option<OwnedFd>) -> Self {
        Outlet { fd, waiting: VecDeque::new(), failure: None }
    }

    fn write(&mut self) {
        for _ in 0..WRITES_AT_ONCE {
            let Some(fd) = &self.fd else { return };
            let (front, _) = self.waiting.as_slices();
            if front.is_empty() || !is_writable(fd) {
                return;
            }
            match rustix::io::write(fd, &front[..front.len().min(WRITE_BYTES_MAX)]) {
                Ok(put) => drop(self.waiting.drain(..put)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => {
                    // A terminal that has hung up sends a signal besides.
                    if !matches!(error, Errno::PIPE | Errno::IO) {
                        self.failure = Some(error.into());
                    }
                    self.fd = None;
                    self.waiting = VecDeque::new();
                }
            }
        }
    }
}

fn is_writable(fd: &OwnedFd) -> bool {
    let mut descriptor = [PollFd::new(fd, PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut descriptor, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn outputs(stdout: impl Into<OwnedFd>) -> Outputs {
        Outputs { stdout: Outlet::new(Some(stdout.into())), stderr: Outlet::new(None), terminal: Outlet::new(None) }
    }

    #[test]
    fn a_reader_who_waits_blocks_nothing_and_gets_all() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut outputs = outputs(writer);
        let sent: Vec<u8> = (0..600_000u32).map(|index| (index % 251) as u8).collect();
        outputs.put(Target::Stdout, &sent);
        assert_eq!(outputs.write(), []);
        assert!(outputs.are_full() && !outputs.are_empty());
        let mut got = vec![0; sent.len()];
        let mut filled = 0;
        while filled < got.len() {
            outputs.write();
            filled += reader.read(&mut got[filled..]).unwrap();
        }
        assert!(got == sent);
        assert!(outputs.are_empty() && outputs.waits().next().is_none());
    }

    #[test]
    fn a_reader_who_left_closes_the_stream_and_is_no_failure() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut outputs = outputs(writer);
        outputs.put(Target::Stdout, b"lost");
        assert_eq!(outputs.write(), [Target::Stdout]);
        outputs.put(Target::Stdout, b"also lost");
        assert!(outputs.are_empty() && outputs.take_failure().is_none());
    }

    #[test]
    fn a_full_device_is_a_failure() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut outputs = outputs(full);
        outputs.put(Target::Stdout, b"lost");
        assert_eq!(outputs.write(), [Target::Stdout]);
        assert_eq!(outputs.take_failure().unwrap().raw_os_error(), Some(libc::ENOSPC));
    }
}
