//! One initiator's connection.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Priority, Status};
use chronodisk_store::{Store, StoreError};

use super::login::{Login, Parameters};
use super::sender::{Counted, Sender};
use super::target::IscsiTarget;
use super::tasks::{Management, State, Task, Tasks};
use super::text::{self, TEXT_BYTES_MAX};
use super::wire::{
    DIGEST_BYTES, HEADER_BYTES, Header, NO_TAG, attribute, digest, flag, login_status, opcode, padding_bytes, reject,
};
use super::{RECEIVE_DATA_BYTES_MAX, WINDOW_COUNT};
use crate::memory::MemoryLimit;
use crate::scsi::{MediumWork, Nexus, Sense, StoreWork};
use crate::stream::{Output, ReceiveBuffer};

/// An initiator's connection without its socket.
///
/// The socket's owner runs this loop: received bytes go in through [`receive_room`](Self::receive_room) and
/// [`received`](Self::received). [`next_event`](Self::next_event) is called until it returns nothing. Each request from
/// it is [executed](Self::execute) at once, in order, and [completed](Self::complete) when it is due. The output of
/// [`gather`](Self::gather) is sent and [acknowledged](Self::sent). Completing and sending can both make room for
/// waiting events, so ask for events after them, too.
#[derive(Debug)]
pub struct IscsiSession {
    pub(super) target: Arc<IscsiTarget>,
    /// The address of the target, for discovery.
    address: String,
    pub(super) phase: Phase,
    pub(super) parameters: Parameters,
    pub(super) nexus: Nexus,
    input: ReceiveBuffer,
    /// Size of the first message in the input, as far as it is known.
    message_bytes: usize,
    pub(super) sender: Sender,
    pub(super) tasks: Tasks,
    pub(super) managements: Vec<Management>,
    pub(super) next_tag: u32,
    /// Requests wait for others, or the initiator does not read its answers.
    blocked: bool,
    end_to_tell: Option<Reason>,
    refused_commands: u64,
}

/// Stage of a connection.
#[derive(Debug)]
pub(super) enum Phase {
    Login(Box<Login>),
    FullFeature {
        is_discovery: bool,
    },
    /// No further input is read.
    Ended {
        /// Outstanding commands are not answered.
        hard: bool,
    },
}

/// An event caused by the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The login is over; commands follow.
    LoggedIn {
        /// The session is for discovery only.
        is_discovery: bool,
    },
    /// A command needs the device.
    Request(IscsiRequest),
    /// No further input follows. The connection can be closed once [`IscsiSession::is_finished`].
    Closing(Reason),
}

/// A command for the device. Its range lies within the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IscsiRequest {
    /// Unique among the outstanding requests of the session.
    pub slot: u32,
    /// The command's use of the medium.
    pub work: MediumWork,
    /// High for a command at the head of the queue.
    pub priority: Priority,
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The initiator logged out.
    #[error("the initiator logged out")]
    Logout,
    /// The login was refused with this status class and detail.
    #[error("the login was refused with status {0:#06x}")]
    LoginRefused(u16),
    /// The initiator closed its side.
    #[error("the initiator closed the connection")]
    InputEnded,
    /// The initiator broke the protocol.
    #[error("protocol violation: {0}")]
    Violation(#[from] Violation),
}

/// An initiator's violation that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Another PDU before the login, or a login after it.
    #[error("an iSCSI PDU that the phase of the connection does not permit")]
    Phase,
    /// The data segment is longer than the target accepts.
    #[error("an iSCSI PDU of excessive length")]
    TooLong,
    /// A header digest that does not fit.
    #[error("an iSCSI header with a wrong digest")]
    HeaderDigest,
    /// A data digest that does not fit.
    #[error("iSCSI data with a wrong digest")]
    DataDigest,
}

/// State of a connection, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// Number of reported requests that are not completed.
    pub outstanding: usize,
    /// Number of commands in all stages, including unsent answers.
    pub tasks: usize,
    /// Number of commands that were refused before they were reported.
    pub refused_commands: u64,
    /// The session wants input, as in [`IscsiSession::wants_input`].
    pub wants_input: bool,
    /// Whether a PDU was received in part.
    pub is_midway: bool,
    /// Memory that the session holds for commands, and for reuse.
    pub held_bytes: u64,
}

/// Data of a write, lent to a helper.
#[derive(Debug)]
pub(crate) struct Outgoing {
    bytes: Box<[u8]>,
    len: usize,
}

impl AsRef<[u8]> for Outgoing {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Heads of answers that wait for an initiator which does not read.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Result of examining the input.
pub(super) enum Look {
    Event(Event),
    Again,
    /// More bytes are needed.
    Incomplete {
        message_bytes: usize,
    },
}

impl IscsiSession {
    /// A connection that was just accepted. `address` is the target's, for discovery; sessions share `memory`.
    #[must_use]
    pub fn new(target: Arc<IscsiTarget>, address: String, memory: Arc<MemoryLimit>) -> Self {
        IscsiSession {
            nexus: target.unit.nexus(""),
            target,
            address,
            phase: Phase::Login(Box::new(Login::new())),
            parameters: Parameters::default(),
            input: ReceiveBuffer::new(&memory),
            message_bytes: HEADER_BYTES,
            sender: Sender::default(),
            tasks: Tasks::new(&memory),
            managements: Vec::new(),
            next_tag: 0,
            blocked: false,
            end_to_tell: None,
            refused_commands: 0,
        }
    }

    /// Buffer for the initiator's next bytes; never empty.
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.input.room(self.message_bytes)
    }

    /// Notes that `len` bytes of [`receive_room`](Self::receive_room) were filled.
    pub fn received(&mut self, len: usize) {
        self.input.fill(len);
    }

    /// Notes the end of the initiator's input.
    pub fn input_ended(&mut self) {
        self.end(Reason::InputEnded);
    }

    /// Whether to receive: false once the connection ends, and while requests wait for room that
    /// [`complete`](Self::complete) and [`sent`](Self::sent) make.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.blocked && !self.has_ended()
    }

    /// The initiator's next event in the received bytes.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(reason) = self.end_to_tell.take() {
                return Some(Event::Closing(reason));
            }
            if matches!(self.phase, Phase::Ended { hard: true }) {
                return None;
            }
            if let Some(slot) = self.tasks.next_ready() {
                if let Some(request) = self.dispatch(slot) {
                    return Some(Event::Request(request));
                }
                continue;
            }
            // A completion lets waiting tasks go on, unless they wait for the initiator's data.
            let waits = self.tasks.count_in(State::Ready) > 0 && self.tasks.count_in(State::Receiving) == 0;
            self.blocked = waits || self.sender.output.head_bytes() > HEAD_BYTES_MAX;
            if self.blocked || self.has_ended() {
                return None;
            }
            match self.look() {
                Look::Event(event) => return Some(event),
                Look::Again => {}
                Look::Incomplete { message_bytes } => {
                    self.message_bytes = message_bytes;
                    return None;
                }
            }
        }
    }

    /// Performs a request on `store`, and keeps the data read. Call it once per request, when the event is returned.
    /// After a failure [`complete`](Self::complete) reports it to the initiator.
    ///
    /// # Errors
    /// The store's error. [`WouldWait`](StoreError::WouldWait) is no failure of the request.
    pub fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), StoreError> {
        let Some(task) = self.tasks.at_device(slot) else { return Ok(()) };
        let Some(work) = task.work else { return Ok(()) };
        let (offset_bytes, len) = (work.offset_bytes, work.len_bytes as usize);
        let done = match work.store {
            StoreWork::Nothing => Ok(()),
            StoreWork::Read => store.read(offset_bytes, &mut task.room[..len]),
            StoreWork::Write | StoreWork::WriteRepeatedly => store.write(offset_bytes, &task.data[..len]),
            StoreWork::Discard => store.discard(offset_bytes, len as u64),
            StoreWork::WriteZeroes => store.write_zeroes(offset_bytes, len as u64),
            StoreWork::Flush => store.flush(),
        };
        let done = done.and_then(|()| if work.fua { store.flush() } else { Ok(()) });
        if let Err(error) = &done
            && !matches!(error, StoreError::WouldWait)
        {
            task.failure = Some(failure(error));
        }
        done
    }

    /// Records the failure of a store at an outstanding request.
    pub fn failed(&mut self, slot: u32, error: &StoreError) {
        if let Some(task) = self.tasks.at_device(slot) {
            task.failure = Some(failure(error));
        }
    }

    /// Takes the room for the data of a read, to be filled elsewhere and [given back](Self::give_room).
    pub(crate) fn lend_room(&mut self, slot: u32) -> Option<Box<[u8]>> {
        let task = self.tasks.at_device(slot)?;
        let reads = task.work.is_some_and(|work| work.store == StoreWork::Read);
        reads.then(|| std::mem::take(&mut task.room))
    }

    /// Takes the data of a write, to be written elsewhere and [given back](Self::give_data).
    pub(crate) fn lend_data(&mut self, slot: u32) -> Option<Outgoing> {
        let task = self.tasks.at_device(slot)?;
        let work = task.work?;
        let writes = matches!(work.store, StoreWork::Write | StoreWork::WriteRepeatedly);
        writes.then(|| Outgoing { bytes: std::mem::take(&mut task.data), len: work.len_bytes as usize })
    }

    pub(crate) fn give_room(&mut self, slot: u32, room: Box<[u8]>) {
        match self.tasks.at_device(slot) {
            Some(task) => task.room = room,
            None => self.tasks.give(room),
        }
    }

    pub(crate) fn give_data(&mut self, slot: u32, data: Outgoing) {
        match self.tasks.at_device(slot) {
            Some(task) => task.data = data.bytes,
            None => self.tasks.give(data.bytes),
        }
    }

    /// Answers a request; returns false if it is not outstanding.
    pub fn complete(&mut self, slot: u32, status: Status) -> bool {
        let Some(task) = self.tasks.at_device(slot) else { return false };
        let aborted_by = task.aborted_by;
        if aborted_by.is_some() || matches!(self.phase, Phase::Ended { hard: true }) {
            self.tasks.free(slot);
        } else {
            self.finish_at_device(slot, status);
        }
        if let Some(number) = aborted_by {
            self.one_aborted(number);
        }
        true
    }

    /// Whether output is waiting to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.sender.output.is_empty()
    }

    /// Points `slices` to the next output, until they are used up; returns the number used.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.sender.output.gather(|slot| &self.tasks.get(slot).room, slices)
    }

    /// Acknowledges that `len` bytes of [`gather`](Self::gather)'s output were sent.
    pub fn sent(&mut self, len: usize) {
        let IscsiSession { sender: Sender { output, .. }, tasks, .. } = self;
        Output::sent(output, len, |slot| tasks.free(slot));
        self.open_window();
    }

    /// Whether all output was sent, so that the connection can be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let is_answered = match self.phase {
            Phase::Ended { hard: true } => true,
            Phase::Ended { hard: false } => {
                self.tasks.count_in(State::AtDevice) + self.tasks.count_in(State::Ready) == 0
            }
            _ => false,
        };
        is_answered && !self.has_output()
    }

    /// State of the connection.
    #[must_use]
    pub fn state(&self) -> SessionState {
        SessionState {
            outstanding: self.tasks.count_in(State::AtDevice),
            tasks: self.tasks.count(),
            refused_commands: self.refused_commands,
            wants_input: self.wants_input(),
            is_midway: self.wants_input() && !self.input.filled().is_empty(),
            held_bytes: self.input.held_bytes() + self.tasks.held_bytes(),
        }
    }

    /// Frees memory kept for reuse; for idle connections.
    pub fn release_idle_memory(&mut self) {
        self.input.release();
        self.tasks.release();
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    pub(super) fn end(&mut self, reason: Reason) {
        if self.has_ended() {
            return;
        }
        self.phase = Phase::Ended { hard: !matches!(reason, Reason::InputEnded) };
        self.end_to_tell = Some(reason);
        self.target.unit.end_session(&self.nexus);
        // Their data can't come any more.
        for slot in self.tasks.slots() {
            if self.tasks.get(slot).state == State::Receiving {
                self.tasks.free(slot);
            }
        }
    }

    /// Refuses a command before it reaches the device.
    pub(super) fn note_refusal(&mut self) {
        self.refused_commands += 1;
    }

    /// Copies received data into a task's data.
    pub(super) fn take_data(&mut self, slot: u32, offset: usize, place: Range<usize>) {
        let data = self.input.at(place);
        let task = self.tasks.get_mut(slot);
        let wanted = (task.incoming.wanted_bytes as usize).min(task.data.len());
        if offset < wanted {
            let len = data.len().min(wanted - offset);
            task.data[offset..offset + len].copy_from_slice(&data[..len]);
        }
    }

    /// Lets the initiator send as many commands as there are free slots.
    pub(super) fn open_window(&mut self) {
        // At most the number of slots.
        let free = WINDOW_COUNT.saturating_sub(self.tasks.count() as u32);
        let last = self.sender.next_command.wrapping_add(free).wrapping_sub(1);
        // The number never decreases; serial numbers are compared by their difference (RFC 1982).
        if last.wrapping_sub(self.sender.last_command) < 1 << 31 {
            self.sender.last_command = last;
        }
    }

    fn dispatch(&mut self, slot: u32) -> Option<IscsiRequest> {
        let aborts = self.target.unit.aborts(&self.nexus);
        let task: &mut Task = self.tasks.get_mut(slot);
        if task.aborts != aborts {
            self.finish_by_reset(slot);
            return None;
        }
        task.state = State::AtDevice;
        let priority = if task.attribute == attribute::HEAD_OF_QUEUE { Priority::High } else { Priority::Normal };
        task.work.map(|work| IscsiRequest { slot, work, priority })
    }

    fn look(&mut self) -> Look {
        let filled = self.input.filled();
        let Some(head) = filled.first_chunk() else { return Look::Incomplete { message_bytes: HEADER_BYTES } };
        let header = Header(*head);
        let is_login = matches!(self.phase, Phase::Login(_));
        if is_login != (header.opcode() == opcode::LOGIN) {
            return self.violate(Violation::Phase);
        }
        let (data_bytes_max, header_digest, data_digest) = match is_login {
            true => (TEXT_BYTES_MAX, false, false),
            false => (RECEIVE_DATA_BYTES_MAX as usize, self.sender.header_digest, self.sender.data_digest),
        };
        let data_bytes = header.data_bytes();
        if data_bytes > data_bytes_max {
            return self.violate(Violation::TooLong);
        }
        let header_end = HEADER_BYTES + header.additional_bytes();
        let data_start = header_end + if header_digest { DIGEST_BYTES } else { 0 };
        let data_end = data_start + data_bytes + padding_bytes(data_bytes);
        let end = data_end + if data_digest && data_bytes > 0 { DIGEST_BYTES } else { 0 };
        let Some(pdu) = filled.get(..end) else { return Look::Incomplete { message_bytes: end } };
        if header_digest && pdu[header_end..data_start] != digest(&[&pdu[..header_end]]) {
            return self.violate(Violation::HeaderDigest);
        }
        if !pdu[data_end..].is_empty() && pdu[data_end..] != digest(&[&pdu[data_start..data_end]]) {
            self.reject(&header, reject::DATA_DIGEST);
            return self.violate(Violation::DataDigest);
        }
        let place = self.input.consume(end);
        let data = place.start + data_start..place.start + data_start + data_bytes;
        self.obey(&header, data)
    }

    fn obey(&mut self, header: &Header, data: Range<usize>) -> Look {
        let is_command = matches!(header.opcode(), opcode::SCSI_COMMAND | opcode::TASK_MANAGEMENT);
        if matches!(self.phase, Phase::FullFeature { is_discovery: true }) && is_command {
            self.reject(header, reject::PROTOCOL_ERROR);
            return Look::Again;
        }
        let takes_number = !matches!(header.opcode(), opcode::LOGIN | opcode::DATA_OUT) && !header.is_immediate();
        // A command of another number is ignored; RFC 7143, 4.2.2.1.
        if takes_number {
            if header.command_number() != self.sender.next_command || self.is_window_closed() {
                return Look::Again;
            }
            self.sender.next_command = self.sender.next_command.wrapping_add(1);
        }
        match header.opcode() {
            opcode::LOGIN => return self.log_in(header, data),
            opcode::SCSI_COMMAND => self.command(header, data),
            opcode::DATA_OUT => self.data_out(header, data),
            opcode::TASK_MANAGEMENT => self.manage(header),
            opcode::NOP_OUT => self.ping(header, data),
            opcode::TEXT => self.text(header, data),
            opcode::LOGOUT => self.log_out(header),
            _ => self.reject(header, reject::NOT_SUPPORTED),
        }
        // Without a new task, the next command has room.
        self.open_window();
        Look::Again
    }

    fn is_window_closed(&self) -> bool {
        self.sender.last_command.wrapping_sub(self.sender.next_command) >= 1 << 31
    }

    fn violate(&mut self, violation: Violation) -> Look {
        self.end(violation.into());
        Look::Again
    }

    fn log_in(&mut self, header: &Header, data: Range<usize>) -> Look {
        let Phase::Login(login) = &mut self.phase else { return self.violate(Violation::Phase) };
        let answer = login.request(header, self.input.at(data), &self.target);
        (self.parameters, self.sender.next_command) = (login.parameters, header.command_number());
        let is_discovery = login.is_discovery;
        if answer.is_complete && !is_discovery {
            let name = format!("{},i,0x{}", login.initiator, session_number(header));
            self.nexus = self.target.unit.nexus(&name);
        }
        self.sender.last_command = self.sender.next_command.wrapping_add(WINDOW_COUNT - 1);
        let mut response = Header::new(opcode::LOGIN_RESPONSE, answer.flags);
        // The initiator's number of the session, and its tag.
        response.0[8..14].copy_from_slice(&header.0[8..14]);
        if answer.is_complete {
            response.0[14..16].copy_from_slice(&self.target.next_session().to_be_bytes());
        }
        response.set_u32(16, header.task_tag());
        response.0[36..38].copy_from_slice(&answer.status.to_be_bytes());
        self.sender.send(response, &answer.text, Counted::Yes);
        if answer.status != login_status::SUCCESS {
            self.end(Reason::LoginRefused(answer.status));
            return Look::Again;
        }
        if !answer.is_complete {
            return Look::Again;
        }
        self.phase = Phase::FullFeature { is_discovery };
        (self.sender.header_digest, self.sender.data_digest) =
            (self.parameters.header_digest, self.parameters.data_digest);
        Look::Event(Event::LoggedIn { is_discovery })
    }

    fn ping(&mut self, header: &Header, data: Range<usize>) {
        if header.task_tag() == NO_TAG {
            return;
        }
        let mut answer = Header::new(opcode::NOP_IN, flag::FINAL);
        answer.set_u32(16, header.task_tag());
        answer.set_u32(20, NO_TAG);
        let data = self.input.at(data);
        let len = data.len().min(self.parameters.send_data_bytes as usize);
        self.sender.send(answer, &data[..len], Counted::Yes);
    }

    fn text(&mut self, header: &Header, data: Range<usize>) {
        // Texts in several PDUs are not needed for the known keys.
        if !header.is_final() || header.flags() & flag::CONTINUE != 0 || header.u32(20) != NO_TAG {
            return self.reject(header, reject::PROTOCOL_ERROR);
        }
        let text = self.input.at(data);
        let Some(pairs) = text::pairs(text).filter(|_| text.len() <= TEXT_BYTES_MAX) else {
            return self.reject(header, reject::INVALID_FIELD);
        };
        let mut answer = Vec::new();
        for (key, value) in pairs {
            match key {
                "SendTargets" if matches!(value, "" | "All") || value.eq_ignore_ascii_case(&self.target.name) => {
                    text::put(&mut answer, "TargetName", &self.target.name);
                    text::put(&mut answer, "TargetAddress", &format!("{},1", self.address));
                }
                // An unknown name has no records.
                "SendTargets" => {}
                "MaxRecvDataSegmentLength" if self.parameters.declare(value) => {}
                "MaxRecvDataSegmentLength" => text::put(&mut answer, key, "Reject"),
                _ => text::put(&mut answer, key, "NotUnderstood"),
            }
        }
        let mut response = Header::new(opcode::TEXT_RESPONSE, flag::FINAL);
        response.set_u32(16, header.task_tag());
        response.set_u32(20, NO_TAG);
        answer.truncate(self.parameters.send_data_bytes as usize);
        self.sender.send(response, &answer, Counted::Yes);
    }

    fn log_out(&mut self, header: &Header) {
        /// Closes the session, or its only connection.
        const MOST_REASON: u8 = 1;
        /// "Connection recovery is not supported".
        const NO_RECOVERY: u8 = 2;
        let is_close = header.flags() & 0x7F <= MOST_REASON;
        let mut response = Header::new(opcode::LOGOUT_RESPONSE, flag::FINAL);
        response.0[2] = if is_close { 0 } else { NO_RECOVERY };
        response.set_u32(16, header.task_tag());
        self.sender.send(response, &[], Counted::Yes);
        if is_close {
            self.end(Reason::Logout);
        }
    }

    pub(super) fn reject(&mut self, header: &Header, reason: u8) {
        let mut response = Header::new(opcode::REJECT, flag::FINAL);
        response.0[2] = reason;
        response.set_u32(16, NO_TAG);
        self.sender.send(response, &header.0, Counted::Yes);
    }
}

/// The initiator's number of its session (`ISID`), in hexadecimal.
fn session_number(header: &Header) -> String {
    header.0[8..14].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The sense data of a store's failure.
fn failure(error: &StoreError) -> Sense {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match error {
        StoreError::BudgetExceeded { .. } => Sense::NO_SPACE,
        StoreError::OutOfRange { .. } => Sense::OUT_OF_RANGE,
        StoreError::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge) => {
            Sense::NO_SPACE
        }
        _ => Sense::INTERNAL,
    }
}
