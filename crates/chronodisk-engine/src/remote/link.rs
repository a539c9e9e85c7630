//! The connection to a remote model. It blocks, because its caller must wait anyway, and reconnects when it is lost.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::client::{Client, Heard};
use crate::fault::{FaultKind, ModelFault};
use crate::protocol::{Answer, Command, ErrorCode, Token, VERSION};

/// A stream of bytes in both directions.
pub trait Wire: Send {
    /// Sends all bytes.
    ///
    /// # Errors
    /// If the other end is gone, or takes no bytes within the timeout.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Waits for bytes; zero means that the other end has closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if none come within `timeout`, or the host's error.
    fn receive(&mut self, bytes: &mut [u8], timeout: Duration) -> io::Result<usize>;
}

/// Makes connections to one model.
pub trait Connector: Send {
    /// Name of the other end, for messages.
    fn who(&self) -> &str;

    /// Connects.
    ///
    /// # Errors
    /// The host's error.
    fn connect(&mut self) -> io::Result<Box<dyn Wire>>;

    /// Whether a session can go on over a new connection. A program's ends with the program.
    fn resumes(&self) -> bool;

    /// The reason why the connection ended, if it is known.
    fn how_it_ended(&mut self) -> Option<String> {
        None
    }
}

/// Timeouts of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For an answer, before the connection counts as lost.
    pub answer: Duration,
    /// For a lost connection to come back, before the model counts as lost.
    pub reconnect: Duration,
}

impl Default for Patience {
    /// A minute for each.
    fn default() -> Self {
        Patience { answer: Duration::from_secs(60), reconnect: Duration::from_secs(60) }
    }
}

/// Reports events to the user.
pub type Tell = Box<dyn FnMut(&str) + Send>;

/// A session with a remote model. After a failure, every call returns the same fault.
pub struct Link {
    client: Client,
    connector: Box<dyn Connector>,
    wire: Option<Box<dyn Wire>>,
    patience: Patience,
    tell: Tell,
    fault: Option<ModelFault>,
    /// Begin of the silence, over all connections; `None` if the last message was in time.
    silent_since: Option<Instant>,
    statistics: LinkStatistics,
    buffer: Vec<u8>,
    to_send: Vec<u8>,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Times that an answer was waited for.
    pub round_trips: u64,
    /// Connections that were lost and made again.
    pub reconnections: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// A link that a model and its bytes share.
pub type SharedLink = Arc<Mutex<Link>>;

/// Locks a link; one user's panic does not make it useless to the other.
pub(super) fn lock(link: &SharedLink) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

const RECEIVE_BYTES: usize = 64 << 10;
/// Time for a program to answer to the end of its session.
const GOODBYE: Duration = Duration::from_secs(1);
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// Commands that are held back for company are sent at the latest when they are this many bytes.
const HELD_BACK_BYTES_MAX: usize = 16 << 10;

impl Link {
    /// Connects and begins a session.
    ///
    /// # Errors
    /// If no server answers, or none with this version of the protocol.
    pub fn open(connector: Box<dyn Connector>, patience: Patience, tell: Tell) -> Result<Link, ModelFault> {
        Link::open_with_token(connector, None, patience, tell)
    }

    /// Connects to a server that has the same token, and begins a session.
    ///
    /// # Errors
    /// If no server answers, or none with this version of the protocol and this token.
    pub fn open_with_token(
        connector: Box<dyn Connector>,
        token: Option<Token>,
        patience: Patience,
        tell: Tell,
    ) -> Result<Link, ModelFault> {
        let mut link = Link {
            client: Client::with_token(token),
            connector,
            wire: None,
            patience,
            tell,
            fault: None,
            silent_since: None,
            statistics: LinkStatistics::default(),
            buffer: vec![0; RECEIVE_BYTES],
            to_send: Vec::new(),
        };
        match link.connect() {
            Ok(()) => Ok(link),
            Err(Attempt::Failed(fault)) => Err(fault),
            Err(Attempt::Lost(reason)) if link.connector.resumes() => {
                Err(link.new_fault(FaultKind::Unreachable, reason))
            }
            Err(Attempt::Lost(reason)) => Err(link.ended_or_silent(&reason)),
        }
    }

    /// Counters so far.
    #[must_use]
    pub fn statistics(&self) -> LinkStatistics {
        self.statistics
    }

    /// Name of the other end.
    #[must_use]
    pub fn who(&self) -> &str {
        self.connector.who()
    }

    /// Queues a command without waiting for its answer, which must be [`Answer::Done`]. It is sent with the next
    /// command.
    ///
    /// # Errors
    /// If the link fails.
    pub fn post(&mut self, command: Command) -> Result<(), ModelFault> {
        self.check()?;
        if !self.client.may_send() {
            self.await_all()?;
        }
        let (_sequence, frame) = self.client.send(command);
        self.to_send.extend_from_slice(frame);
        if self.to_send.len() >= HELD_BACK_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    /// Sends a command and waits for its answer.
    ///
    /// # Errors
    /// If the link fails, or an earlier command was refused. A refusal of this command is an answer.
    pub fn call(&mut self, command: Command) -> Result<Answer, ModelFault> {
        self.check()?;
        if !self.client.may_send() {
            self.await_all()?;
        }
        let (sequence, frame) = self.client.send(command);
        self.to_send.extend_from_slice(frame);
        self.statistics.round_trips += 1;
        self.flush()?;
        loop {
            let (answered, answer) = self.next_answer()?;
            if answered == sequence {
                return Ok(answer);
            }
            self.expect_done(answer)?;
        }
    }

    /// Fails the link because of an impossible message of the other side.
    pub(super) fn nonsense(&mut self, what: impl std::fmt::Display) -> ModelFault {
        self.fail(FaultKind::Nonsense, what)
    }

    /// Turns a refusal into a fault of the model.
    pub(super) fn refused(&mut self, answer: &Answer) -> ModelFault {
        match answer {
            Answer::Error { code, reason } => {
                let kind = match code {
                    ErrorCode::Version => FaultKind::Version,
                    ErrorCode::UnknownSession => FaultKind::Restarted,
                    ErrorCode::Violation | ErrorCode::Model => FaultKind::Nonsense,
                    ErrorCode::Device
                    | ErrorCode::Store
                    | ErrorCode::Busy
                    | ErrorCode::Denied
                    | ErrorCode::Limit
                    | ErrorCode::Unsupported => FaultKind::Refused,
                };
                self.fail(kind, reason)
            }
            other => self.nonsense(format_args!("unexpected answer {other:?}")),
        }
    }

    fn check(&self) -> Result<(), ModelFault> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn await_all(&mut self) -> Result<(), ModelFault> {
        self.flush()?;
        while self.client.unanswered() > 0 {
            let (_, answer) = self.next_answer()?;
            self.expect_done(answer)?;
        }
        Ok(())
    }

    fn expect_done(&mut self, answer: Answer) -> Result<(), ModelFault> {
        if answer == Answer::Done { Ok(()) } else { Err(self.refused(&answer)) }
    }

    fn flush(&mut self) -> Result<(), ModelFault> {
        let bytes = std::mem::take(&mut self.to_send);
        self.statistics.sent_bytes += bytes.len() as u64;
        let sent = self.wire.as_mut().expect("a link that has not failed is connected").send(&bytes);
        self.to_send = bytes;
        self.to_send.clear();
        match sent {
            Ok(()) => Ok(()),
            // All unanswered commands are sent again, including this one.
            Err(error) => self.lost(&error.to_string()),
        }
    }

    fn next_answer(&mut self) -> Result<(u64, Answer), ModelFault> {
        loop {
            match self.client.hear() {
                Ok(Some(Heard::Answer { sequence, answer })) => {
                    self.silent_since = None;
                    return Ok((sequence, answer));
                }
                Ok(Some(heard)) => return Err(self.nonsense(format_args!("unexpected message {heard:?}"))),
                Ok(None) => {}
                Err(error) => return Err(self.nonsense(error)),
            }
            let wire = self.wire.as_mut().expect("a link that has not failed is connected");
            match wire.receive(&mut self.buffer, self.patience.answer) {
                Ok(0) => self.lost("it closed the connection")?,
                Ok(len) => {
                    self.statistics.received_bytes += len as u64;
                    self.client.received(&self.buffer[..len]);
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    self.lost(&format!("no answer within {:?}", self.patience.answer))?;
                }
                Err(error) => self.lost(&error.to_string())?,
            }
        }
    }

    /// The connection is gone: makes another one, or fails.
    fn lost(&mut self, reason: &str) -> Result<(), ModelFault> {
        if !self.connector.resumes() {
            // Before its input is closed, which ends a program that was only slow.
            let fault = self.ended_or_silent(reason);
            self.wire = None;
            return Err(self.fault.get_or_insert(fault).clone());
        }
        self.wire = None;
        let patience = self.patience.reconnect;
        let first_loss = self.silent_since.is_none();
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        if first_loss {
            let message =
                format!("{}: {reason}; the guest stands still, trying again for {patience:?}", self.connector.who());
            (self.tell)(&message);
        }
        let mut reason = reason.to_owned();
        while since.elapsed() < patience {
            match self.connect() {
                Ok(()) => {
                    self.statistics.reconnections += 1;
                    (self.tell)(&format!("{}: connected again, the guest goes on", self.connector.who()));
                    return Ok(());
                }
                Err(Attempt::Failed(fault)) => {
                    self.fault = Some(fault.clone());
                    return Err(fault);
                }
                Err(Attempt::Lost(why)) => reason = why,
            }
            std::thread::sleep(RETRY_EVERY);
        }
        Err(self.fail(FaultKind::Unreachable, format_args!("not reached again within {patience:?}: {reason}")))
    }

    /// Connects, greets, and repeats the unanswered commands.
    fn connect(&mut self) -> Result<(), Attempt> {
        let lost = |error: io::Error| Attempt::Lost(error.to_string());
        let mut wire = self.connector.connect().map_err(lost)?;
        wire.send(&self.client.greet()).map_err(lost)?;
        loop {
            match self.client.hear() {
                Ok(None) => {}
                Ok(Some(Heard::Welcome(welcome))) if welcome.version == VERSION => break,
                Ok(Some(Heard::Welcome(welcome))) => return Err(self.wrong_version(welcome.version)),
                Ok(Some(Heard::Refused(answer))) => return Err(self.turned_away(&answer)),
                Ok(Some(Heard::Challenge(proof))) => {
                    wire.send(&proof).map_err(lost)?;
                    continue;
                }
                Ok(Some(Heard::Impostor(why))) => {
                    return Err(Attempt::Failed(self.new_fault(FaultKind::Refused, why)));
                }
                Ok(Some(Heard::Answer { .. })) => unreachable!("before the welcome nothing else is heard"),
                Err(error) => return Err(Attempt::Failed(self.new_fault(FaultKind::Nonsense, error))),
            }
            match wire.receive(&mut self.buffer, self.patience.answer) {
                Ok(0) => return Err(Attempt::Lost("it closed the connection".into())),
                Ok(len) => self.client.received(&self.buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Err(Attempt::Lost(format!("no answer within {:?}", self.patience.answer)));
                }
                Err(error) => return Err(lost(error)),
            }
        }
        wire.send(&self.client.unanswered_bytes()).map_err(lost)?;
        self.wire = Some(wire);
        Ok(())
    }

    fn wrong_version(&self, theirs: u16) -> Attempt {
        let what =
            format_args!("it speaks version {theirs} of the protocol, and this side version {VERSION}").to_string();
        Attempt::Failed(self.new_fault(FaultKind::Version, what))
    }

    fn turned_away(&self, answer: &Answer) -> Attempt {
        let Answer::Error { code, reason } = answer else {
            return Attempt::Failed(self.new_fault(FaultKind::Nonsense, format_args!("unexpected answer {answer:?}")));
        };
        let (kind, what) = match code {
            ErrorCode::UnknownSession => {
                (FaultKind::Restarted, format!("it was restarted and has lost this run's device and bytes ({reason})"))
            }
            ErrorCode::Version => (FaultKind::Version, reason.clone()),
            _ => (FaultKind::Refused, reason.clone()),
        };
        Attempt::Failed(self.new_fault(kind, what))
    }

    /// The fault of a connection that can't be restored.
    fn ended_or_silent(&mut self, reason: &str) -> ModelFault {
        match self.connector.how_it_ended() {
            Some(how) => self.new_fault(FaultKind::Ended, how),
            None => self.new_fault(FaultKind::Silent, reason),
        }
    }

    fn new_fault(&self, kind: FaultKind, what: impl std::fmt::Display) -> ModelFault {
        ModelFault::new(kind, self.connector.who(), what)
    }

    fn fail(&mut self, kind: FaultKind, what: impl std::fmt::Display) -> ModelFault {
        let fault = self.new_fault(kind, what);
        self.wire = None;
        self.fault.get_or_insert(fault).clone()
    }
}

/// Reason why a connection could not be made.
enum Attempt {
    /// Another attempt may succeed.
    Lost(String),
    /// No further attempt can succeed.
    Failed(ModelFault),
}

impl Drop for Link {
    fn drop(&mut self) {
        // The server would keep an unended session for a client that reconnects. The answer is not awaited.
        if self.fault.is_none() && self.client.may_send() {
            let (_sequence, frame) = self.client.send(Command::End);
            self.to_send.extend_from_slice(frame);
            if let Some(wire) = &mut self.wire {
                let sent = wire.send(&self.to_send);
                // A program would fail to write its answer to a closed pipe, and complain.
                if sent.is_ok() && !self.connector.resumes() {
                    let _ = wire.receive(&mut self.buffer, GOODBYE);
                }
            }
        }
        // Before the connector, which may wait for the other end to go.
        self.wire = None;
    }
}
