//! The launcher: boots a guest with a backend, relays the command's input and output, and collects the results. If any
//! process dies, the others are ended and nothing is left behind: the guest's files, sockets and memory have no names,
//! and every process dies with its parent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chronodisk_sim::Nanos;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, memfd_create};

use super::host::{self, CounterReading, HostCpus, is_shell, may_wait, programs_have_own_cpu, wait_for};
use super::instructions::instructions;
use super::outcome::{Doing, RunError, RunOutcome};
use super::output::{Outputs, Target};
use super::processes::{Backend, Guest, Inheritance, describe, panic_reason};
use super::progress::{PROGRESS_INTERVAL, Progress, Pulse, RunEvent, Screen};
use super::replay;
use super::run_options::RunOptions;
use super::signals::{Demand, EndingRun, GUEST_ENDS_WITHIN, Part, Signals, TerminalGuard};
use crate::kernel::installed::UserModeLinux;
use crate::kernel::programs::{HostLacks, require_program};
use crate::recording::Recording;
use crate::shared::costs::{Work, Worked};
use crate::shared::descriptors::DEVICES_MAX;
use crate::shared::device_options::DeviceOptions;
use crate::shared::filesystem::FileSystem;
use crate::shared::frames::{self, Decoder, Kind};
use crate::shared::layout::{EXIT_BACKEND_LOST, EXIT_NEVER_IDLES, EXIT_PROCESS_LOST, Launcher};
use crate::shared::page::{ClockCounters, ClockOptions, ClockPage, INTERRUPT_NANOS_DEFAULT, ProgramCpu};
use crate::shared::signals::asks_to_end;
use crate::shared::spec::{Ending, Exited, Mark, Stage};
use crate::shared::time::GuestTime;

/// Runs the command in a guest on the emulated device.
///
/// `on_event` is called at the end of each stage of the guest's life, and with the command's progress. Call this
/// function from the process's main thread: the guest dies with the thread that started it.
///
/// # Errors
/// If the host lacks something, the device can't be made, or the guest fails outside the command.
pub fn run(options: &RunOptions, on_event: &mut dyn FnMut(RunEvent)) -> Result<RunOutcome, RunError> {
    let kernel = find_kernel(options)?;
    let signals = Signals::catch().doing("catching signals")?;
    let counter = CounterReading::first();
    let mut clock = clock_options(options);
    let page = ClockPage::create(&clock).doing("making the clock's page")?;
    let (exchange_guest, exchange_backend) = UnixStream::pair().doing("making a socket pair")?;
    let (vhost_guest, vhost_backend) = connections(options.devices.len())?;
    let log = File::from(memfd_create("chronodisk-log", MemfdFlags::CLOEXEC).doing("making the request log")?);
    // The instructions are in transit; see `Run::say_what_is_owed`.
    page.set_launcher_owes(true);
    let page_fd = || page.fd().as_fd().try_clone_to_owned().doing("sharing the clock's page");

    let log_fd = log.as_fd().try_clone_to_owned().doing("sharing the request log")?;
    // A guest with one processor and its device never run at once (except in the host's time). On one CPU of the
    // host, switches between kernel and device are cheapest and have a steady cost under load. Programs with measured
    // CPU time have another CPU on hosts without process-context identifiers.
    let host_cpus = match options.time.processors() {
        1 => HostCpus::claim(options.time.measured_cpu().is_some() && programs_have_own_cpu()),
        several => HostCpus::claim_for_several(several),
    };
    page.set_program_cpu(host_cpus.programs);
    let cpu = host_cpus.kernel;
    let backend = Backend::start(options, cpu, page_fd()?, exchange_backend.into(), vhost_backend, log_fd, &signals)?;
    clock.tsc_hertz = counter.hertz_since();
    page.set_tsc_hertz(clock.tsc_hertz);
    let file_system = backend.file_system;
    let feed = options.replay.as_ref().map(|replay| replay::write_feed(&replay.plan, replay.think)).transpose();
    let feed = feed.doing("writing the calls to be replayed")?;
    let feed_again = feed.as_ref().map(|feed| feed.as_fd().try_clone_to_owned()).transpose();
    let inherited = Inheritance {
        page: page_fd()?,
        exchange: exchange_guest.into(),
        vhost: vhost_guest,
        feed: feed_again.doing("sharing the calls to be replayed")?,
        recording: options.recording.as_ref().map(Recording::share).transpose().doing("sharing the recording")?,
    };
    let guest = Guest::start(options, &host_cpus.only, &kernel, inherited)?;
    let mut run = Run {
        terminal: None,
        options,
        page,
        log,
        feed,
        guest,
        backend,
        signals,
        clock,
        relay: Relay::default(),
        outputs: Outputs::standard().doing("sharing the standard streams")?,
        output_failure: None,
        screen: Screen::default(),
        pulse: Pulse::new(),
        stages: BTreeMap::new(),
        command_began: None,
        command_ended: None,
        last_heartbeat: None,
        ending: None,
        ending_run: EndingRun::default(),
        line_ended: false,
        console_ended: false,
        backend_ended: false,
        host_cpus,
        file_system,
    };
    run.say_hello(&kernel)?;
    match run.relay_until_end(on_event) {
        Ok(()) => run.collect(),
        Err(error) => {
            let Run { terminal, guest, backend, .. } = run;
            drop(terminal);
            let is_urgent = matches!(error, RunError::Interrupted { .. });
            backend.notices_after(guest, is_urgent).into_iter().for_each(|it| on_event(RunEvent::StoreNotice(it)));
            Err(error)
        }
    }
}

/// Finds the guest's kernel, and the program that makes the file system.
fn find_kernel(options: &RunOptions) -> Result<UserModeLinux, HostLacks> {
    let kernel = match options.devices.iter().any(|device| device.zoned) {
        true => UserModeLinux::with_zones(&options.time, options.kernel.as_deref())?,
        false if options.devices.iter().any(DeviceOptions::notifies_file_data) => {
            UserModeLinux::with_notification(options.kernel.as_deref())?
        }
        false => UserModeLinux::for_clock(&options.time, options.kernel.as_deref())?,
    };
    if let Some((program, package)) = options.file_system.maker() {
        require_program(program, package)?;
    }
    Ok(kernel)
}

/// A connection for each device: the guest's ends and the backend's.
fn connections(devices: usize) -> Result<(Vec<OwnedFd>, Vec<OwnedFd>), RunError> {
    assert!((1..=DEVICES_MAX).contains(&devices), "a guest with {devices} devices");
    let (mut guest, mut backend) = (Vec::new(), Vec::new());
    for _ in 0..devices {
        let (guests, backends) = UnixStream::pair().doing("making a socket pair")?;
        guest.push(guests.into());
        backend.push(backends.into());
    }
    Ok((guest, backend))
}

fn clock_options(options: &RunOptions) -> ClockOptions {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ClockOptions {
        time: options.time,
        interrupt_nanos: INTERRUPT_NANOS_DEFAULT,
        realtime_start_nanos: options.start_time.unwrap_or_else(now).as_nanos() as u64,
        // Measured later, while the device's process starts.
        tsc_hertz: 0,
        seed: options.seed,
        memory_bytes: options.memory_bytes,
        disturbance_max: options.clock_disturbance,
    }
}

struct Run<'a> {
    /// Dropped first: the terminal must be restored before a pending signal ends this process.
    terminal: Option<TerminalGuard>,
    options: &'a RunOptions,
    page: ClockPage<Launcher>,
    log: File,
    /// The feed of a replay, which will hold its result.
    feed: Option<File>,
    /// Dropped before the backend, which then notices the closed connection and closes its stores.
    guest: Guest,
    backend: Backend,
    signals: Signals,
    clock: ClockOptions,
    relay: Relay,
    outputs: Outputs,
    /// The first error of this process's own streams.
    output_failure: Option<String>,
    screen: Screen,
    pulse: Pulse,
    stages: BTreeMap<Stage, Nanos>,
    command_began: Option<Edge>,
    command_ended: Option<Edge>,
    last_heartbeat: Option<Heartbeat>,
    ending: Option<Ending>,
    /// The ending demanded by signals.
    ending_run: EndingRun,
    /// The guest closed its end of the line. Polling would report that repeatedly.
    line_ended: bool,
    /// The guest closed its end of the console.
    console_ended: bool,
    /// The backend ended in good order.
    backend_ended: bool,
    host_cpus: HostCpus,
    /// The file system that is mounted.
    file_system: FileSystem,
}

#[derive(Clone, Copy)]
struct Edge {
    guest: Nanos,
    host: Instant,
    counters: ClockCounters,
    worked: [Worked; Work::COUNT],
}

/// Instant of the begin of the command or of its last acknowledgement.
#[derive(Clone, Copy)]
struct Heartbeat {
    guest: Nanos,
    host: Instant,
}

/// Data waiting to be relayed.
#[derive(Default)]
struct Relay {
    decoder: Decoder,
    /// Whether the guest's first process has set its line. Before, the line's terminal would echo the bytes and take
    /// some for control characters.
    guest_is_ready: bool,
    to_guest: Vec<u8>,
    /// Bytes sent to the guest and not yet read there.
    unread_bytes: usize,
    credit_bytes: usize,
    stdin_ended: bool,
    window_changed: bool,
}

impl Run<'_> {
    fn say_hello(&mut self, kernel: &UserModeLinux) -> Result<(), RunError> {
        let spec = instructions(self.options, kernel, &self.backend)?;
        let json = serde_json::to_vec(&spec).expect("plain data");
        self.tell_guest(Kind::Hello, &json);
        Ok(())
    }

    fn relay_until_end(&mut self, on_event: &mut dyn FnMut(RunEvent)) -> Result<(), RunError> {
        let status = self.relay_until_guest_ended(on_event)?;
        while self.read_guest(on_event)? {}
        self.guest.read_console();
        self.write_out_the_rest()?;
        self.terminal = None;
        match &self.ending {
            None => Err(self.why_guest_ended(status)),
            Some(Ending::Failed { .. }) => Ok(()),
            Some(Ending::Exited(_)) => {
                self.output_failure = self.outputs.take_failure().map(|error| error.to_string());
                Ok(())
            }
        }
    }

    fn relay_until_guest_ended(&mut self, on_event: &mut dyn FnMut(RunEvent)) -> Result<ExitStatus, RunError> {
        loop {
            let ready = self.wait()?;
            self.take_signals()?;
            if ready.console && !self.guest.read_console() {
                self.console_ended = true;
            }
            if ready.guest_line && !self.outputs.are_full() {
                // Must be set until the data are processed. Otherwise the guest would see its output taken and no data
                // in transit.
                self.page.set_launcher_owes(true);
                self.read_guest(on_event)?;
            }
            if ready.stdin {
                self.read_stdin();
            }
            self.write_out();
            self.write_guest()?;
            self.say_what_is_owed();
            self.check_heartbeat()?;
            if self.pulse.beats()
                && self.screen.is_free()
                && self.outputs.are_empty()
                && let Some(progress) = self.progress()
            {
                on_event(RunEvent::Progress(progress));
            }
            if let Some(call) = self.options.recording.as_ref().and_then(Recording::unrecordable) {
                on_event(RunEvent::Unrecordable(call));
            }
            if let Some(status) = self.guest.ended()? {
                return Ok(status);
            }
            if let Some(status) = self.guest.sweeper.ended().doing("waiting for the process that clears up")? {
                let what = "the process that clears up after a killed run (guest-sweeper)";
                return Err(RunError::HelperDied { what, how: describe(status) });
            }
            if let Some(status) = self.backend.ended()? {
                // A backend that ended in good order only noticed the guest's end, unless it lost a model.
                if self.ending.is_none()
                    && (self.backend.lost_its_model()
                        || !(status.success() && self.guest_ends_within(GUEST_HANGS_UP_FIRST)?))
                {
                    return Err(self.backend.why_it_ended(status));
                }
                self.backend_ended = true;
            }
        }
    }

    fn wait(&self) -> Result<Ready, RunError> {
        let mut line = PollFlags::empty();
        line.set(PollFlags::IN, !self.outputs.are_full());
        line.set(PollFlags::OUT, self.relay.may_send() > 0);
        let stdin = io::stdin();
        let takes_stdin = self.takes_stdin();
        // A closed descriptor always polls ready, so wait for the guest's end in its place, which is awaited anyway.
        let guest_end = || PollFd::new(&self.guest.pidfd, PollFlags::IN);
        let mut waits = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            if self.console_ended { guest_end() } else { PollFd::new(&self.guest.console, PollFlags::IN) },
            if self.line_ended { guest_end() } else { PollFd::new(&self.guest.line, line) },
            guest_end(),
            if self.backend_ended { guest_end() } else { PollFd::new(&self.backend.pidfd, PollFlags::IN) },
            PollFd::new(&self.guest.sweeper.pidfd, PollFlags::IN),
            PollFd::new(&stdin, if takes_stdin { PollFlags::IN } else { PollFlags::empty() }),
        ];
        if !takes_stdin {
            // Poll would still report that it is closed.
            waits.pop();
        }
        let outputs_at = waits.len();
        waits.extend(self.outputs.waits());
        // Standard input becomes available without an event when a background job moves to the foreground, and progress
        // must be reported.
        wait_for(&mut waits, PROGRESS_INTERVAL).doing("waiting for the guest")?;
        let ready = |index: usize| !waits[index].revents().is_empty();
        Ok(Ready { console: ready(1), guest_line: ready(2), stdin: outputs_at == 7 && ready(6) })
    }

    fn takes_stdin(&self) -> bool {
        self.runs() && self.relay.credit_bytes > 0 && !self.relay.stdin_ended && host::owns_terminal()
    }

    /// Whether the command is running.
    fn runs(&self) -> bool {
        self.command_began.is_some() && self.command_ended.is_none()
    }

    fn guest_ends_within(&self, most: Duration) -> Result<bool, RunError> {
        let mut waits = [PollFd::new(&self.guest.pidfd, PollFlags::IN)];
        wait_for(&mut waits, most).doing("waiting for the guest")?;
        Ok(!waits[0].revents().is_empty())
    }

    /// Tells the guest's clock whether to stand still while the guest idles, because data are in transit between
    /// launcher and guest. Their transfer takes no time on the emulated machine.
    ///
    /// Before the command, only the instructions are in transit. After it, the guest's first process reads no more
    /// data, so unread data do not count.
    fn say_what_is_owed(&self) {
        let relay = &self.relay;
        let unread = self.command_ended.is_none() && (!relay.to_guest.is_empty() || relay.unread_bytes > 0);
        let wanted = self.runs() && relay.credit_bytes > 0 && !relay.stdin_ended;
        let waits = wanted && may_wait(&io::stdin());
        let at_hand = wanted && !waits && self.takes_stdin();
        self.page.set_launcher_owes(unread || at_hand || self.outputs.are_full());
        self.page.set_input_awaited(waits);
    }

    fn tell_guest(&mut self, kind: Kind, payload: &[u8]) {
        frames::encode(kind, payload, &mut self.relay.to_guest);
        self.say_what_is_owed();
    }

    /// Takes a bounded amount of data from the guest. Returns false if there were none.
    fn read_guest(&mut self, on_event: &mut dyn FnMut(RunEvent)) -> Result<bool, RunError> {
        let mut bytes = [0; 64 << 10];
        let mut got_some = false;
        for _ in 0..4 {
            match self.guest.line.read(&mut bytes) {
                Ok(0) => {
                    self.line_ended = true;
                    break;
                }
                Ok(got) => {
                    self.relay.decoder.feed(&bytes[..got]);
                    got_some = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    self.line_ended = true;
                    break;
                }
                Err(error) => return Err(error).doing("reading from the guest"),
            }
        }
        loop {
            match self.relay.decoder.next() {
                Ok(Some((kind, payload))) => self.take_frame(kind, &payload, on_event)?,
                Ok(None) => return Ok(got_some),
                Err(error) => return Err(RunError::Stage(Stage::Command, error.to_string())),
            }
        }
    }

    fn take_frame(&mut self, kind: Kind, payload: &[u8], on_event: &mut dyn FnMut(RunEvent)) -> Result<(), RunError> {
        let unreadable = |error: serde_json::Error| RunError::Stage(Stage::Boot, error.to_string());
        match kind {
            Kind::Stdout => self.put(self.stdout_target(), payload, on_event),
            Kind::Stderr => self.put(Target::Stderr, payload, on_event),
            Kind::Terminal => self.put(Target::Terminal, payload, on_event),
            Kind::Credit => {
                let credit: [u8; 4] = payload.try_into().unwrap_or_default();
                self.relay.credit_bytes += u32::from_le_bytes(credit) as usize;
            }
            Kind::Ready => self.relay.guest_is_ready = true,
            Kind::Taken => {
                let taken: [u8; 4] = payload.try_into().unwrap_or_default();
                let taken = u32::from_le_bytes(taken) as usize;
                self.relay.unread_bytes = self.relay.unread_bytes.saturating_sub(taken);
            }
            Kind::Mark => {
                let mark: Mark = serde_json::from_slice(payload).map_err(unreadable)?;
                self.take_mark(&mark);
                on_event(RunEvent::Stage(mark.stage));
            }
            Kind::Acknowledged => {
                let Some((ticks, bytes)) = payload.split_first_chunk() else { return Ok(()) };
                let at = self.instant_of(u64::from_le_bytes(*ticks));
                self.note_heartbeat();
                on_event(RunEvent::Acknowledged { at, bytes: bytes.to_vec() });
            }
            Kind::Ending => self.ending = Some(serde_json::from_slice(payload).map_err(unreadable)?),
            Kind::Hello
            | Kind::Stdin
            | Kind::StdinEnd
            | Kind::Signal
            | Kind::WindowSize
            | Kind::StdoutClosed
            | Kind::StderrClosed => {}
        }
        Ok(())
    }

    /// Passes output of the command on.
    fn put(&mut self, target: Target, bytes: &[u8], on_event: &mut dyn FnMut(RunEvent)) {
        let [_, stdout, stderr] = host::terminals();
        if matches!(
            (target, stdout, stderr),
            (Target::Terminal, ..) | (Target::Stdout, true, _) | (Target::Stderr, _, true)
        ) {
            on_event(RunEvent::Output);
            self.screen.saw(bytes);
        }
        self.outputs.put(target, bytes);
    }

    fn progress(&self) -> Option<Progress> {
        let began = self.command_began.as_ref().filter(|_| self.runs())?;
        let host = began.host.elapsed();
        let guest = match self.options.time {
            GuestTime::Real => Nanos::from_nanos(host.as_nanos() as u64),
            _ => self.now().saturating_sub(Nanos::from_nanos(began.counters.virtual_nanos)),
        };
        Some(Progress { guest, host, traffic: self.page.traffic() })
    }

    /// The guest's present instant, unless its time is the host's.
    fn now(&self) -> Nanos {
        Nanos::from_nanos(self.page.counters().virtual_nanos)
    }

    fn note_heartbeat(&mut self) {
        self.last_heartbeat = Some(Heartbeat { guest: self.now(), host: Instant::now() });
    }

    /// Fails if a guest that owes acknowledgements has given none for too long.
    fn check_heartbeat(&self) -> Result<(), RunError> {
        let (Some(most), Some(last)) = (self.options.heartbeat_timeout, self.last_heartbeat) else { return Ok(()) };
        let host = last.host.elapsed();
        let how = match self.part() {
            Part::Command if self.now().saturating_sub(last.guest) > most => {
                format!("no progress for {most} on its clock")
            }
            // A kernel that computes for ever without interrupts has a clock that stands still.
            Part::Command if host > HOST_TIMEOUT_RATIO * Duration::from_nanos(most.as_nanos()) => {
                format!("no progress for {} min", host.as_secs() / 60)
            }
            Part::After if self.command_ended.is_some_and(|ended| ended.host.elapsed() > GUEST_ENDS_WITHIN) => {
                "it did not shut down".to_owned()
            }
            _ => return Ok(()),
        };
        Err(RunError::GuestHangs { how, console: self.guest.console_text() })
    }

    /// The guest's time at a reading of its time stamp counter.
    fn instant_of(&self, ticks: u64) -> Nanos {
        Nanos::from_nanos((u128::from(ticks) * 1_000_000_000 / u128::from(self.clock.tsc_hertz)) as u64)
    }

    fn take_mark(&mut self, mark: &Mark) {
        let guest = self.instant_of(mark.time_stamp_counter);
        self.stages.insert(mark.stage, guest);
        let edge = Edge { guest, host: Instant::now(), counters: self.page.counters(), worked: self.page.worked() };
        match (mark.stage, self.command_began) {
            (Stage::Command, None) => {
                self.command_began = Some(edge);
                self.note_heartbeat();
                if self.options.time.follows_typing() && host::terminals()[0] && is_shell(&self.options.command) {
                    self.page.follow_host();
                }
                if host::terminals()[0] && host::owns_terminal() {
                    self.terminal = TerminalGuard::raw();
                }
                if self.relay.window_changed {
                    self.send_window_size();
                }
            }
            (Stage::Command, Some(_)) => self.command_ended = Some(edge),
            _ => {}
        }
    }

    fn stdout_target(&self) -> Target {
        if self.options.stdout_to_stderr { Target::Stderr } else { Target::Stdout }
    }

    /// Writes as much as this process's streams accept, and tells the guest which of them were closed. The guest's
    /// kernel then tells the command, as the host's would.
    fn write_out(&mut self) {
        for closed in self.outputs.write() {
            if !self.runs() {
                continue;
            }
            if closed == self.stdout_target() {
                self.tell_guest(Kind::StdoutClosed, &[]);
            }
            if closed == Target::Stderr {
                self.tell_guest(Kind::StderrClosed, &[]);
            }
        }
    }

    /// Writes the remaining output once the guest has ended. The user may interrupt this.
    fn write_out_the_rest(&mut self) -> Result<(), RunError> {
        loop {
            self.outputs.write();
            if self.outputs.are_empty() {
                return Ok(());
            }
            let mut waits = vec![PollFd::new(&self.signals, PollFlags::IN)];
            waits.extend(self.outputs.waits());
            wait_for(&mut waits, Duration::from_secs(1)).doing("writing the command's output")?;
            self.take_signals()?;
        }
    }

    fn read_stdin(&mut self) {
        let mut bytes = [0; 32 << 10];
        let most = self.relay.credit_bytes.min(bytes.len());
        match rustix::io::read(io::stdin(), &mut bytes[..most]) {
            Ok(0) => {
                self.relay.stdin_ended = true;
                self.tell_guest(Kind::StdinEnd, &[]);
            }
            Ok(got) => {
                self.relay.credit_bytes -= got;
                // Keyboard input happens in the host's time, so the program must run in the host's time between keys.
                if host::terminals()[0] && self.options.time.follows_typing() {
                    self.page.follow_host();
                }
                self.tell_guest(Kind::Stdin, &bytes[..got]);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => {
                self.relay.stdin_ended = true;
                self.tell_guest(Kind::StdinEnd, &[]);
            }
        }
    }

    fn write_guest(&mut self) -> Result<(), RunError> {
        while self.relay.may_send() > 0 {
            match self.guest.line.write(&self.relay.to_guest[..self.relay.may_send()]) {
                Ok(put) => {
                    self.relay.to_guest.drain(..put);
                    self.relay.unread_bytes += put;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The guest is gone; the wait for its end returns the reason.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.relay.to_guest.clear(),
                Err(error) => return Err(error).doing("writing to the guest"),
            }
        }
        Ok(())
    }

    fn send_window_size(&mut self) {
        if let Some((rows, columns)) = host::window_size() {
            let payload = [rows.to_le_bytes(), columns.to_le_bytes()].concat();
            self.tell_guest(Kind::WindowSize, &payload);
        }
    }

    /// Handles received signals, and checks whether a demanded step is due.
    fn take_signals(&mut self) -> Result<(), RunError> {
        self.signals.take().into_iter().try_for_each(|signal| self.take_signal(signal))?;
        let demand = self.ending_run.look(self.part(), Instant::now());
        self.obey(demand)
    }

    fn part(&self) -> Part {
        match (self.command_began, self.command_ended) {
            (None, _) => Part::Before,
            (Some(_), None) => Part::Command,
            (Some(_), Some(_)) => Part::After,
        }
    }

    fn take_signal(&mut self, signal: i32) -> Result<(), RunError> {
        match signal {
            libc::SIGWINCH if self.runs() => {
                self.send_window_size();
                return Ok(());
            }
            // The command is not running yet.
            libc::SIGWINCH => {
                self.relay.window_changed = true;
                return Ok(());
            }
            libc::SIGCHLD => return Ok(()),
            _ => {}
        }
        if !asks_to_end(signal) {
            if self.runs() {
                self.tell_guest(Kind::Signal, &[signal as u8]);
            }
            return Ok(());
        }
        if self.options.ends_by_signal {
            return Err(RunError::Interrupted { signal });
        }
        let demand = self.ending_run.signal(signal, self.part(), Instant::now());
        self.obey(demand)
    }

    fn obey(&mut self, demand: Demand) -> Result<(), RunError> {
        match demand {
            Demand::Nothing => {}
            Demand::PassOn(signal) => {
                // A stopped command receives its signal only when it is continued.
                for signal in [signal, libc::SIGCONT] {
                    self.tell_guest(Kind::Signal, &[signal as u8]);
                }
            }
            Demand::KillCommand => self.tell_guest(Kind::Signal, &[libc::SIGKILL as u8]),
            Demand::EndGuest(signal) => return Err(RunError::Interrupted { signal }),
        }
        Ok(())
    }

    fn why_guest_ended(&mut self, status: ExitStatus) -> RunError {
        // The guest ends as soon as its backend does. Wait shortly for the backend's end, too.
        for _ in 0..20 {
            if status.code() != Some(EXIT_BACKEND_LOST) {
                break;
            }
            if let Ok(Some(backend)) = self.backend.ended()
                && (!backend.success() || self.backend.lost_its_model())
            {
                return self.backend.why_it_ended(backend);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        match (status.code(), self.page.lost_process()) {
            (Some(EXIT_PROCESS_LOST), Some((pid, signal))) => RunError::ProcessKilled { pid, signal },
            (Some(EXIT_NEVER_IDLES), _) => RunError::KernelUnknown,
            _ => {
                let console = self.guest.console_text();
                let how = if status.success() { "a process in it shut it down".into() } else { describe(status) };
                RunError::GuestDied {
                    how: panic_reason(&console).unwrap_or(how),
                    console,
                    refused_calls: self.guest.refused_calls().unwrap_or_default(),
                }
            }
        }
    }

    fn collect(mut self) -> Result<RunOutcome, RunError> {
        let host_total = self.guest.started.elapsed();
        let counters = self.page.counters();
        let ending = self.ending.take().expect("the relay ends without error only with an ending");
        let Exited { status, kernel_release, check, kernel_warnings, settled, dropped, generic_code } = match ending {
            Ending::Exited(exited) => exited,
            Ending::Failed { stage, message } => return Err(RunError::Stage(stage, message)),
        };
        while !self.backend.speaks_or(&self.signals)? {
            self.take_signals()?;
        }
        let backend = self.backend.report()?;
        let records = crate::shared::records::read(&mut self.log).doing("reading the request log")?;
        let replay = match (self.feed.as_mut().map(replay::read_report).transpose(), self.ending_run.asked_by()) {
            // A killed replayer leaves no report.
            (Err(_), Some(signal)) => return Err(RunError::Interrupted { signal }),
            (report, _) => report.doing("reading the replayer's report")?,
        };
        let (Some(began), Some(ended)) = (self.command_began, self.command_ended) else {
            return Err(RunError::Stage(Stage::Command, "the guest did not say when the command ran".into()));
        };
        Ok(RunOutcome {
            exit_status: self.ending_run.status(status),
            stages: self.stages.clone(),
            command: (replay.as_ref().map_or(began.guest, |replay| self.instant_of(replay.began_ticks)), ended.guest),
            host_total,
            host_command: ended.host - began.host,
            records,
            clock: self.clock,
            counters,
            counters_at: (began.counters, ended.counters),
            replay,
            worked: std::array::from_fn(|index| ended.worked[index].since(began.worked[index])),
            backend,
            kernel_release,
            check,
            kernel_warnings,
            host_cpu: self.host_cpus.kernel,
            programs_host_cpu: match self.host_cpus.programs {
                ProgramCpu::Only(cpu) => Some(cpu),
                ProgramCpu::Kernels | ProgramCpu::Another => None,
            },
            settled,
            dropped,
            generic_code,
            refused_calls: self.guest.refused_calls(),
            file_system: self.file_system,
            asked_to_end: self.ending_run.asked_by(),
            output_failure: self.output_failure.take(),
        })
    }
}

impl Relay {
    /// Number of bytes that the guest's line accepts now.
    fn may_send(&self) -> usize {
        if !self.guest_is_ready {
            return 0;
        }
        self.to_guest.len().min(frames::LINE_WINDOW_BYTES.saturating_sub(self.unread_bytes))
    }
}

struct Ready {
    console: bool,
    guest_line: bool,
    stdin: bool,
}

/// Timeout of the heartbeat on the host's clock, as a multiple of the one on the guest's.
const HOST_TIMEOUT_RATIO: u32 = 4;

/// Longest time for a guest to end after it closed the connection to its backend.
const GUEST_HANGS_UP_FIRST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_before_the_guest_has_set_its_line() {
        let mut relay = Relay { to_guest: vec![0; 5000], ..Relay::default() };
        assert_eq!(relay.may_send(), 0, "the line would echo it");
        relay.guest_is_ready = true;
        assert_eq!(relay.may_send(), frames::LINE_WINDOW_BYTES);
        relay.unread_bytes = frames::LINE_WINDOW_BYTES - 7;
        assert_eq!(relay.may_send(), 7);
    }
}
