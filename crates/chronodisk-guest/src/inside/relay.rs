//! In the guest: runs the command with pipes or a pseudo-terminal, and relays its input and output
//! over the serial line.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Gid, Pid, Signal, Uid, WaitOptions};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use serde::Serialize;

use super::acknowledge;
use super::command::command_of;
use super::root::ROOT;
use super::{learning, recording};
use crate::shared::frames::{self, Decoder, Kind};
use crate::shared::signals::asks_to_end;
use crate::shared::spec::{Ending, GuestSpec, Mark, RootChoice};

/// Standard input that the guest takes ahead of the command's reading it.
const STDIN_WINDOW_BYTES: u32 = 64 << 10;
const READ_BYTES: usize = 32 << 10;
/// End of input for a terminal's line discipline.
const END_OF_TRANSMISSION: u8 = 4;

/// The guest's end of the serial line.
pub(crate) struct Serial {
    line: File,
    decoder: Decoder,
    /// Bytes that the line has not accepted yet: meanwhile signals must still be read from it.
    unsent: Vec<u8>,
}

impl Serial {
    /// Opens the line, makes it carry bytes as they are, and tells the launcher so.
    pub fn open(path: &str) -> io::Result<Self> {
        let line = OpenOptions::new().read(true).write(true).open(path)?;
        let mut attributes = tcgetattr(&line)?;
        attributes.make_raw();
        tcsetattr(&line, OptionalActions::Now, &attributes)?;
        rustix::io::ioctl_fionbio(&line, true)?;
        let mut serial = Serial { line, decoder: Decoder::default(), unsent: Vec::new() };
        serial.send(Kind::Ready, &[]);
        Ok(serial)
    }

    /// Waits for the launcher's instructions.
    pub fn receive_hello(&mut self) -> io::Result<GuestSpec> {
        loop {
            match self.next_frame()? {
                Some((Kind::Hello, json)) => return serde_json::from_slice(&json).map_err(io::Error::from),
                Some(_) => {}
                None => {
                    self.wait_until(PollFlags::IN);
                    self.fill()?;
                }
            }
        }
    }

    pub fn send_mark(&mut self, mark: &Mark) {
        self.send_json(Kind::Mark, mark);
    }

    /// Sends the last frame and waits until it has left the guest.
    pub fn send_ending(&mut self, ending: &Ending) {
        self.send_json(Kind::Ending, ending);
        let _ = tcdrain(&self.line);
    }

    fn send_json(&mut self, kind: Kind, value: &impl Serialize) {
        let json = serde_json::to_vec(value).expect("plain data");
        self.send(kind, &json);
    }

    /// Sends a frame and waits until the line has taken it.
    fn send(&mut self, kind: Kind, payload: &[u8]) {
        self.queue(kind, payload);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            self.wait_until(PollFlags::OUT);
            self.push();
        }
    }

    /// Queues a frame, and sends as much as the line accepts now; [`Self::push`] sends the rest.
    fn queue(&mut self, kind: Kind, payload: &[u8]) {
        frames::encode(kind, payload, &mut self.unsent);
        self.push();
    }

    fn push(&mut self) {
        while !self.unsent.is_empty() {
            match self.line.write(&self.unsent) {
                Ok(put @ 1..) => drop(self.unsent.drain(..put)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The line has no reader: the launcher is gone, and the guest will be.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    fn wait_until(&self, flags: PollFlags) {
        // An error here recurs, and is reported, where the line is used.
        let _ = poll(&mut [PollFd::new(&self.line, flags)], None);
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        match self.line.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                self.decoder.feed(&bytes[..got]);
                self.queue(Kind::Taken, &(got as u32).to_le_bytes());
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn next_frame(&mut self) -> io::Result<Option<(Kind, Vec<u8>)>> {
        self.decoder.next().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
    }
}

/// End of a command.
pub(crate) struct CommandEnd {
    /// Exit status as in a shell.
    pub status: i32,
    /// Whether a signal to the launcher asked for it: the guest is then to end soon.
    pub was_asked_for: bool,
}

/// Runs the command to its end; `at_edge` is called right before it starts and right after it ended.
pub(crate) fn run_command(
    serial: &mut Serial,
    spec: &GuestSpec,
    mut at_edge: impl FnMut(&mut Serial),
) -> io::Result<CommandEnd> {
    let mut streams = Streams::new(spec)?;
    let mut command = command_of(spec);
    streams.attach(&mut command)?;
    as_caller(&mut command, spec, streams.terminal.is_some());
    let child_signals = ChildSignals::new()?;

    at_edge(serial);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let name = String::from_utf8_lossy(&spec.command[0]);
            serial.send(Kind::Stderr, format!("chronodisk: {name}: {error}\n").as_bytes());
            at_edge(serial);
            let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            return Ok(CommandEnd { status, was_asked_for: false });
        }
    };
    drop(command);
    serial.send(Kind::Credit, &STDIN_WINDOW_BYTES.to_le_bytes());
    let pid = Pid::from_child(&child);
    let status = relay(serial, &mut streams, &child_signals, pid)?;
    // Before the mark of the command's end, so that no acknowledgement is later.
    streams.drain_acknowledged(serial);
    if spec.records {
        recording::end();
    }
    at_edge(serial);
    streams.drain(serial);
    let was_asked_for = streams.asked_to_end;
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(CommandEnd { status, was_asked_for })
}

/// Rights, folder and session of the calling user.
fn as_caller(command: &mut std::process::Command, spec: &GuestSpec, has_terminal: bool) {
    let GuestSpec { uid, gid, umask, records, .. } = *spec;
    let stays_root = spec.replays || spec.checks_states.is_some();
    let groups = spec.groups.clone();
    let folder = std::ffi::CString::new(&*spec.working_directory).unwrap_or_default();
    let root = match spec.root {
        RootChoice::Host => c"/".to_owned(),
        RootChoice::Device { .. } => std::ffi::CString::new(ROOT).expect("no zero byte"),
    };
    // SAFETY: only system calls that are safe between fork and exec; the data were made before.
    unsafe {
        command.pre_exec(move || {
            let check = |result: libc::c_int| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
            check(libc::setsid())?;
            if has_terminal {
                // Standard input may be a pipe; the first stream that is a terminal takes control.
                for fd in 0..3 {
                    if libc::isatty(fd) == 1 {
                        libc::ioctl(fd, libc::TIOCSCTTY, 0);
                        break;
                    }
                }
            }
            // This process waits for its children through a descriptor, with a signal mask that the command must not
            // inherit.
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            libc::umask(umask);
            check(libc::chroot(root.as_ptr()))?;
            if !stays_root {
                check(libc::setgroups(groups.len(), groups.as_ptr()))?;
                check(libc::setgid(gid))?;
                check(libc::setuid(uid))?;
            }
            // After the change of user, as the caller could enter it.
            check(libc::chdir(folder.as_ptr()))?;
            learning::reveal_ids();
            learning::reveal_page_tables();
            if records {
                recording::begin();
            }
            Ok(())
        });
    }
}

/// The command's standard streams: a pseudo-terminal for those that are terminals on the host, pipes for the others.
struct Streams {
    terminal: Option<Terminal>,
    terminals: [bool; 3],
    owner: (Uid, Gid),
    input: Option<File>,
    output: Option<File>,
    error: Option<File>,
    waiting_input: VecDeque<u8>,
    input_ended: bool,
    /// Pipe for acknowledgements.
    acknowledged: Option<File>,
    /// Whether the command got a signal that asks to end.
    asked_to_end: bool,
}

struct Terminal {
    controller: File,
    user: OwnedFd,
}

impl Streams {
    fn new(spec: &GuestSpec) -> io::Result<Self> {
        let owner = (Uid::from_raw(spec.uid), Gid::from_raw(spec.gid));
        let terminal = spec.terminals.contains(&true).then(|| Terminal::new(spec.window_size, owner.0)).transpose()?;
        Ok(Streams {
            terminal,
            terminals: spec.terminals,
            owner,
            input: None,
            output: None,
            error: None,
            waiting_input: VecDeque::new(),
            input_ended: false,
            acknowledged: spec.acknowledges.then(|| acknowledge::make(owner)).transpose()?,
            asked_to_end: false,
        })
    }

    /// Gives the command its ends and keeps the others.
    fn attach(&mut self, command: &mut std::process::Command) -> io::Result<()> {
        let user_end = |terminal: &Option<Terminal>| -> io::Result<Stdio> {
            Ok(terminal.as_ref().expect("made for it").user.try_clone()?.into())
        };
        if self.terminals[0] {
            command.stdin(user_end(&self.terminal)?);
        } else {
            let (reader, writer) = self.pipe()?;
            rustix::io::ioctl_fionbio(&writer, true)?;
            command.stdin(reader);
            self.input = Some(OwnedFd::from(writer).into());
        }
        if self.terminals[1] {
            command.stdout(user_end(&self.terminal)?);
        } else {
            let (reader, writer) = self.pipe()?;
            command.stdout(writer);
            self.output = Some(OwnedFd::from(reader).into());
        }
        if self.terminals[2] {
            command.stderr(user_end(&self.terminal)?);
        } else {
            let (reader, writer) = self.pipe()?;
            command.stderr(writer);
            self.error = Some(OwnedFd::from(reader).into());
        }
        Ok(())
    }

    /// A pipe that the caller may open again by its name in /dev.
    fn pipe(&self) -> io::Result<(io::PipeReader, io::PipeWriter)> {
        let (reader, writer) = io::pipe()?;
        // Both ends are one inode.
        rustix::fs::fchown(&writer, Some(self.owner.0), Some(self.owner.1))?;
        Ok((reader, writer))
    }

    fn input_target(&self) -> Option<BorrowedFd<'_>> {
        match &self.terminal {
            Some(terminal) if self.terminals[0] => Some(terminal.controller.as_fd()),
            _ => self.input.as_ref().map(AsFd::as_fd),
        }
    }

    /// Hands waiting input to the command; returns how much it took.
    fn push_input(&mut self) -> u32 {
        let (front, _) = self.waiting_input.as_slices();
        if front.is_empty() {
            if self.input_ended {
                self.input = None;
            }
            return 0;
        }
        let result = match self.input_target() {
            Some(target) => rustix::io::write(target, front),
            None => Ok(front.len()),
        };
        let taken = match result {
            Ok(taken) => taken,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => 0,
            // The command closed its standard input: further input is dropped, as a pipe's writer would notice.
            Err(_) => {
                self.input = None;
                front.len()
            }
        };
        self.waiting_input.drain(..taken);
        if self.waiting_input.is_empty() && self.input_ended {
            self.input = None;
        }
        taken as u32
    }

    fn end_input(&mut self) {
        if self.terminals[0] {
            self.waiting_input.push_back(END_OF_TRANSMISSION);
        }
        self.input_ended = true;
        if self.waiting_input.is_empty() {
            self.input = None;
        }
    }

    /// Relays the rest of the acknowledgements.
    fn drain_acknowledged(&self, serial: &mut Serial) {
        let Some(pipe) = &self.acknowledged else { return };
        while is_readable(pipe.as_fd()) && acknowledge(pipe, serial) {
            serial.flush();
        }
    }

    /// Relays the rest of the command's output in its pipes, without waiting for a surviving writer.
    fn drain(&mut self, serial: &mut Serial) {
        for (stream, kind) in [(self.output.take(), Kind::Stdout), (self.error.take(), Kind::Stderr)] {
            let Some(stream) = stream else { continue };
            while is_readable(stream.as_fd()) && forward(&stream, serial, kind) {
                serial.flush();
            }
        }
        if let Some(terminal) = self.terminal.take() {
            drop(terminal.user);
            while is_readable(terminal.controller.as_fd()) && forward(&terminal.controller, serial, Kind::Terminal) {
                serial.flush();
            }
        }
    }
}

impl Terminal {
    fn new(window_size: Option<(u16, u16)>, owner: Uid) -> io::Result<Self> {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let name = ptsname(&controller, Vec::new())?;
        let user = rustix::fs::open(
            name,
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        rustix::fs::fchown(&user, Some(owner), None)?;
        rustix::fs::fchmod(&user, rustix::fs::Mode::from_raw_mode(0o620))?;
        // A program that does not read its input must not block its output.
        rustix::io::ioctl_fionbio(&controller, true)?;
        let terminal = Terminal { controller: controller.into(), user };
        if let Some((rows, columns)) = window_size {
            terminal.resize(rows, columns);
        }
        Ok(terminal)
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let _ = rustix::termios::tcsetwinsize(&self.controller, size);
    }
}

/// Relays until the command has exited, and reaps every process that ends meanwhile.
fn relay(serial: &mut Serial, streams: &mut Streams, signals: &ChildSignals, command: Pid) -> io::Result<ExitStatus> {
    loop {
        while let Some((kind, payload)) = serial.next_frame()? {
            take_frame(kind, &payload, streams, command);
        }
        let taken = streams.push_input();
        if taken > 0 {
            serial.queue(Kind::Credit, &taken.to_le_bytes());
        }
        for source in wait_for_any(serial, streams, signals)? {
            if let Some(status) = relay_from(source, serial, streams, signals, command)? {
                return Ok(status);
            }
        }
    }
}

/// Waits until something can be relayed. Returns the sources that are ready.
fn wait_for_any(serial: &Serial, streams: &Streams, signals: &ChildSignals) -> io::Result<Vec<Source>> {
    let mut waits: Vec<(Source, PollFd<'_>)> = vec![
        (Source::Serial, PollFd::new(&serial.line, PollFlags::IN)),
        (Source::Child, PollFd::new(&signals.0, PollFlags::IN)),
    ];
    if serial.unsent.is_empty() {
        if let Some(pipe) = &streams.acknowledged {
            waits.push((Source::Acknowledged, PollFd::new(pipe, PollFlags::IN)));
        }
        if let Some(output) = &streams.output {
            waits.push((Source::Output, PollFd::new(output, PollFlags::IN)));
        }
        if let Some(error) = &streams.error {
            waits.push((Source::Error, PollFd::new(error, PollFlags::IN)));
        }
        if let Some(terminal) = &streams.terminal {
            waits.push((Source::Terminal, PollFd::new(&terminal.controller, PollFlags::IN)));
        }
    } else {
        waits.push((Source::Unsent, PollFd::new(&serial.line, PollFlags::OUT)));
    }
    if let Some(target) = streams.input_target().filter(|_| !streams.waiting_input.is_empty()) {
        waits.push((Source::Input, PollFd::from_borrowed_fd(target, PollFlags::OUT)));
    }
    let mut descriptors: Vec<PollFd<'_>> = waits.iter().map(|(_, descriptor)| descriptor.clone()).collect();
    match poll(&mut descriptors, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = waits
        .iter()
        .zip(&descriptors)
        .filter(|(_, descriptor)| !descriptor.revents().is_empty())
        .map(|((source, _), _)| *source);
    Ok(ready.collect())
}

/// Relays from a source that is ready. Returns the command's status once it has exited.
fn relay_from(
    source: Source,
    serial: &mut Serial,
    streams: &mut Streams,
    signals: &ChildSignals,
    command: Pid,
) -> io::Result<Option<ExitStatus>> {
    match source {
        Source::Serial => serial.fill()?,
        Source::Child => return signals.reap(command),
        Source::Output => {
            let open = streams.output.as_ref().is_some_and(|output| forward(output, serial, Kind::Stdout));
            if !open {
                streams.output = None;
            }
        }
        Source::Error => {
            let open = streams.error.as_ref().is_some_and(|error| forward(error, serial, Kind::Stderr));
            if !open {
                streams.error = None;
            }
        }
        Source::Terminal => {
            if let Some(terminal) = &streams.terminal {
                forward(&terminal.controller, serial, Kind::Terminal);
            }
        }
        Source::Acknowledged => {
            if let Some(pipe) = &streams.acknowledged {
                acknowledge(pipe, serial);
            }
        }
        Source::Unsent => serial.push(),
        Source::Input => {}
    }
    Ok(None)
}

#[derive(Clone, Copy)]
enum Source {
    Serial,
    Unsent,
    Child,
    Output,
    Error,
    Terminal,
    Acknowledged,
    Input,
}

fn take_frame(kind: Kind, payload: &[u8], streams: &mut Streams, command: Pid) {
    match (kind, payload) {
        (Kind::Stdin, bytes) => streams.waiting_input.extend(bytes),
        (Kind::StdinEnd, _) => streams.end_input(),
        // Writers notice it from their own kernel.
        (Kind::StdoutClosed, _) => streams.output = None,
        (Kind::StderrClosed, _) => streams.error = None,
        (Kind::Signal, &[number]) => {
            if let Some(signal) = Signal::from_named_raw(i32::from(number)) {
                streams.asked_to_end |= asks_to_end(i32::from(number));
                let _ = rustix::process::kill_process_group(command, signal);
            }
        }
        (Kind::WindowSize, &[r0, r1, c0, c1]) => {
            if let Some(terminal) = &streams.terminal {
                terminal.resize(u16::from_le_bytes([r0, r1]), u16::from_le_bytes([c0, c1]));
            }
        }
        _ => {}
    }
}

/// Sends available bytes; false when the other end is closed.
fn forward(stream: &File, serial: &mut Serial, kind: Kind) -> bool {
    let mut bytes = [0; READ_BYTES];
    match { stream }.read(&mut bytes) {
        Ok(0) => false,
        Ok(got) => {
            serial.queue(kind, &bytes[..got]);
            true
        }
        Err(error) => matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
    }
}

/// Sends available acknowledgements with their instant; false if there are none.
fn acknowledge(pipe: &File, serial: &mut Serial) -> bool {
    let mut bytes = [0; READ_BYTES];
    let Ok(got @ 1..) = { pipe }.read(&mut bytes) else { return false };
    // SAFETY: the instruction only returns a value. Under the guest's clock it is trapped and answered in virtual time.
    let time_stamp_counter = unsafe { core::arch::x86_64::_rdtsc() };
    serial.queue(Kind::Acknowledged, &[&time_stamp_counter.to_le_bytes(), &bytes[..got]].concat());
    true
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut descriptor = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut descriptor, Some(&now)), Ok(1)) && descriptor[0].revents().contains(PollFlags::IN)
}

/// A descriptor that becomes readable when a child has ended.
struct ChildSignals(OwnedFd);

impl ChildSignals {
    fn new() -> io::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: the set is initialised by sigemptyset before use, and the descriptor is ours alone.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(ChildSignals(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Reaps all that have ended; returns the command's status if it was among them.
    fn reap(&self, command: Pid) -> io::Result<Option<ExitStatus>> {
        let mut information = [0; 1024];
        let _ = rustix::io::read(&self.0, &mut information);
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == command => {
                    return Ok(Some(ExitStatus::from_raw(status.as_raw())));
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
