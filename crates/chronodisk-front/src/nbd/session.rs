//! One client's connection.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::Status;
use chronodisk_store::{Store, StoreError};

use super::ending::{Reason, Violation};
use super::execute::{ExecuteError, claimed_bytes, execute};
use super::export::ServerOffer;
use super::negotiation::{Negotiation, OPTION_BYTES_MAX, Step, greet, refuse_too_big};
use super::reply;
use super::request::{Command, Header, NbdRequest, Negotiated, Refusal, RequestKey};
use super::slots::{Failure, Slots};
use super::tls::TlsTransport;
use super::wire::{
    CLIENT_FLAGS_BYTES, Fields, NbdError, OPTION_HEADER_BYTES, OPTION_MAGIC, REQUEST_HEADER_BYTES, command,
};
use crate::memory::{MemoryLimit, Shortage};
use crate::stream::{Detached, Output, RECEIVE_BYTES_BASE, ReceiveBuffer};

/// A client's connection without its socket.
///
/// The socket's owner runs this loop: received bytes go in through [`receive_room`](Self::receive_room) and
/// [`received`](Self::received). [`next_event`](Self::next_event) is called until it returns nothing. Each request from
/// it is [executed](Self::execute) at once, in order, and [completed](Self::complete) when it is due. The output of
/// [`gather`](Self::gather) is sent and [acknowledged](Self::sent). Completing and sending can both make room for
/// waiting events, so ask for events after them, too.
///
/// A session holds at most [`IN_FLIGHT_COUNT_MAX`](super::IN_FLIGHT_COUNT_MAX) requests,
/// [`IN_FLIGHT_BYTES_MAX`](super::IN_FLIGHT_BYTES_MAX) of read data (a single larger request excepted), the same amount
/// of memory for reuse, and one request's payload. Further requests of a client wait in the socket. The owner bounds
/// the number of sessions. With a stable number and size of requests no memory is allocated.
#[derive(Debug)]
pub struct NbdSession {
    offer: Arc<ServerOffer>,
    phase: Phase,
    negotiation: Negotiation,
    export: usize,
    negotiated: Negotiated,
    input: ReceiveBuffer,
    /// Size of the first message in the input, as far as it is known.
    message_bytes: usize,
    /// Place of the latest write's data.
    payload: Option<(RequestKey, Range<usize>)>,
    skip: Option<Skip>,
    /// A request waits for room, or the client does not read its replies.
    blocked: bool,
    memory: Arc<MemoryLimit>,
    /// A request waits for memory that other sessions hold.
    shortage: Option<Shortage>,
    shutting_down: bool,
    end_to_tell: Option<Reason>,
    slots: Slots,
    output: Output,
    tls: Option<Box<TlsTransport>>,
    refused_requests: u64,
    tls_error: Option<rustls::Error>,
}

/// An event caused by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Negotiation is over; requests follow.
    Negotiated {
        /// Index of the export in the offer.
        export: usize,
        /// Whether the connection is encrypted.
        tls: bool,
    },
    /// A request arrived.
    Request(NbdRequest),
    /// No further input follows. Outstanding requests are still answered unless the protocol was violated. The
    /// connection can be closed once [`NbdSession::is_finished`].
    Closing(Reason),
}

/// State of a connection, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// Number of reported requests that are not completed.
    pub outstanding: usize,
    /// Number of requests that were answered with an error before they were reported.
    pub refused_requests: u64,
    /// The session wants input, as in [`NbdSession::wants_input`].
    pub wants_input: bool,
    /// Whether a message was received in part.
    pub is_midway: bool,
    /// Whether a request waits for memory that other sessions hold.
    pub waits_for_memory: bool,
    /// Memory that the session holds for requests, and for reuse.
    pub held_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    Options,
    Transmission,
    /// No further input is read.
    Ended {
        /// Outstanding requests are not answered.
        hard: bool,
    },
}

/// Bytes to skip, and the answer after them.
#[derive(Clone, Copy, Debug)]
struct Skip {
    left_bytes: u32,
    then: AfterSkip,
}

#[derive(Clone, Copy, Debug)]
enum AfterSkip {
    RefuseOption { option: u32 },
    RefuseRequest { cookie: u64, refusal: Refusal },
}

/// Data of an option that are skipped; more of them end the connection.
const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;
/// Data of a refused write that are skipped; more of them end the connection.
const PAYLOAD_SKIP_BYTES_MAX: u32 = 64 << 20;
/// Heads of replies that wait for a client which does not read.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Result of examining the input.
enum Look {
    Event(Event),
    Again,
    /// More bytes are needed.
    Incomplete {
        message_bytes: usize,
    },
    Blocked,
}

impl NbdSession {
    /// A connection that was just accepted; the greeting is waiting to be sent.
    #[must_use]
    pub fn new(offer: Arc<ServerOffer>) -> Self {
        NbdSession::with_memory(offer, Arc::default())
    }

    /// Like [`new`](Self::new), with a limit on memory shared by sessions.
    #[must_use]
    pub fn with_memory(offer: Arc<ServerOffer>, memory: Arc<MemoryLimit>) -> Self {
        let mut output = Output::default();
        greet(&mut output);
        NbdSession {
            offer,
            phase: Phase::ClientFlags,
            negotiation: Negotiation::default(),
            export: 0,
            negotiated: Negotiated::default(),
            input: ReceiveBuffer::new(&memory),
            message_bytes: CLIENT_FLAGS_BYTES,
            payload: None,
            skip: None,
            blocked: false,
            memory: Arc::clone(&memory),
            shortage: None,
            shutting_down: false,
            end_to_tell: None,
            slots: Slots::new(&memory),
            output,
            tls: None,
            refused_requests: 0,
            tls_error: None,
        }
    }

    /// Buffer for the client's next bytes; never empty. Invalidates the data of the latest write.
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.payload = None;
        match &mut self.tls {
            Some(tls) => tls.receive_room(),
            None => self.input.room(self.message_bytes),
        }
    }

    /// Notes that `len` bytes of [`receive_room`](Self::receive_room) were filled.
    pub fn received(&mut self, len: usize) {
        match &mut self.tls {
            Some(tls) => tls.received(len),
            None => self.input.fill(len),
        }
    }

    /// Notes the end of the client's input. Call it when a receive returned nothing and no event waits.
    pub fn input_ended(&mut self) {
        let mid_message = !self.input.filled().is_empty() || self.skip.is_some();
        self.end(Reason::InputEnded { mid_message });
    }

    /// Whether to receive: false once the connection ends, and while requests wait for room that
    /// [`complete`](Self::complete) and [`sent`](Self::sent) make.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        !self.blocked && !self.has_ended()
    }

    /// The client's next event in the received bytes.
    pub fn next_event(&mut self) -> Option<Event> {
        self.payload = None;
        self.shortage = None;
        loop {
            if let Some(reason) = self.end_to_tell.take() {
                return Some(Event::Closing(reason));
            }
            self.blocked = self.output.head_bytes() > HEAD_BYTES_MAX;
            if self.blocked || self.has_ended() {
                return None;
            }
            match self.look() {
                Look::Event(event) => return Some(event),
                Look::Again => {}
                Look::Incomplete { message_bytes } => {
                    self.message_bytes = message_bytes;
                    if !self.decrypt() {
                        return None;
                    }
                }
                Look::Blocked => {
                    self.blocked = true;
                    return None;
                }
            }
        }
    }

    /// The data of a write, from its event to the next call of [`next_event`](Self::next_event) or
    /// [`receive_room`](Self::receive_room).
    #[must_use]
    pub fn payload(&self, key: RequestKey) -> Option<&[u8]> {
        let (owner, place) = self.payload.as_ref()?;
        (*owner == key).then(|| self.input.at(place.clone()))
    }

    /// Like [`payload`](Self::payload), but keeps the data until they are dropped.
    pub(crate) fn take_payload(&mut self, key: RequestKey) -> Option<Detached> {
        let (_, place) = self.payload.take_if(|(owner, _)| *owner == key)?;
        Some(self.input.detach(place))
    }

    /// Takes the room for the data of a read, to be filled elsewhere and [given back](Self::give_back).
    pub(crate) fn lend(&mut self, key: RequestKey) -> Option<Box<[u8]>> {
        let (request, _) = self.slots.get_mut(key)?;
        if request.command == Command::Read { self.slots.lend(key) } else { None }
    }

    /// Returns a lent buffer, with the length of its data if it has any.
    pub(crate) fn give_back(&mut self, key: RequestKey, buffer: Box<[u8]>, data_len: Option<usize>) {
        self.slots.give_back(key, buffer, data_len);
    }

    /// Performs a request on `store`, and keeps the data read. Call it once per request, when the event is returned.
    /// After a failure [`complete`](Self::complete) reports it to the client.
    ///
    /// [`WouldWait`](chronodisk_store::StoreError::WouldWait) is no failure of the store: the caller performs the
    /// request itself, or reports that it [failed](Self::failed).
    ///
    /// # Errors
    /// [`ExecuteError`]; the request stays outstanding.
    pub fn execute(&mut self, key: RequestKey, store: &mut dyn Store) -> Result<(), ExecuteError> {
        let (request, _) = self.slots.get_mut(key).ok_or(ExecuteError::NotOutstanding)?;
        let payload = match &self.payload {
            Some((owner, place)) if *owner == key => Some(self.input.at(place.clone())),
            _ => None,
        };
        let executed = execute(&request, self.negotiated.structured, payload, &mut self.slots, store);
        match &executed {
            Ok(()) => {}
            Err(ExecuteError::Store(StoreError::WouldWait)) => {
                // The pieces of a read may have changed by its end.
                if let Some((_, slot)) = self.slots.get_mut(key) {
                    slot.pieces.clear();
                }
            }
            Err(error) => self.set_failure(key, error.failure(&request)),
        }
        executed
    }

    /// Records the failure of a store at an outstanding request; [`complete`](Self::complete) reports it to the client.
    pub fn failed(&mut self, key: RequestKey, error: StoreError) {
        if let Some((request, _)) = self.slots.get_mut(key) {
            self.set_failure(key, ExecuteError::Store(error).failure(&request));
        }
    }

    /// Makes an outstanding request fail, regardless of its completion's status.
    pub fn fail(&mut self, key: RequestKey, error: NbdError) {
        if let Some((request, _)) = self.slots.get_mut(key) {
            let refusal = Refusal { error, message: "" };
            self.set_failure(key, Failure { refusal, offset_bytes: request.offset_bytes });
        }
    }

    /// Answers a request; returns false if it is not outstanding.
    pub fn complete(&mut self, key: RequestKey, status: Status) -> bool {
        let Some((request, slot)) = self.slots.get_mut(key) else { return false };
        let data_len = slot.data_len;
        let failure = slot.failure.or_else(|| device_failure(&request, status));
        // A read that was not executed has no data to send.
        let failure = failure.or_else(|| missing_data(&request, data_len));
        let data_wait = self.phase != (Phase::Ended { hard: true }) && self.reply(&request, data_len, failure);
        self.slots.end(key);
        if !data_wait {
            self.slots.free(key.slot);
        }
        true
    }

    /// Refuses all further requests with `ESHUTDOWN`; outstanding ones are still answered. The connection [is
    /// finished](Self::is_finished) once that is sent.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Whether output is waiting to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        match &self.tls {
            Some(tls) => tls.has_output(&self.output, self.has_answered()),
            None => !self.output.is_empty(),
        }
    }

    /// Points `slices` to the next output, until they are used up; returns the number used. Replies come in the order
    /// of [`complete`](Self::complete).
    pub fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        let answered = self.has_answered();
        let NbdSession { output, slots, tls, .. } = self;
        match tls {
            Some(tls) => {
                tls.encrypt(output, slots, answered);
                let bytes = tls.to_send();
                let Some(first) = slices.first_mut().filter(|_| !bytes.is_empty()) else { return 0 };
                *first = IoSlice::new(bytes);
                1
            }
            None => output.gather(|slot| slots.data(slot), slices),
        }
    }

    /// Acknowledges that `len` bytes of [`gather`](Self::gather)'s output were sent.
    pub fn sent(&mut self, len: usize) {
        let NbdSession { output, slots, tls, .. } = self;
        match tls {
            Some(tls) => tls.sent(len),
            None => output.sent(len, |slot| slots.free(slot)),
        }
    }

    /// Whether all output was sent, so that the connection can be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.has_answered() && !self.has_output()
    }

    /// The export that the client chose, once negotiation is over.
    #[must_use]
    pub fn export(&self) -> usize {
        self.export
    }

    /// The TLS error, if it ended the connection.
    #[must_use]
    pub fn tls_error(&self) -> Option<&rustls::Error> {
        self.tls_error.as_ref()
    }

    /// State of the connection.
    #[must_use]
    pub fn state(&self) -> SessionState {
        SessionState {
            outstanding: self.slots.outstanding(),
            refused_requests: self.refused_requests,
            wants_input: self.wants_input(),
            is_midway: self.wants_input() && !self.input.filled().is_empty(),
            waits_for_memory: self.shortage.is_some(),
            held_bytes: self.input.held_bytes() + self.slots.held_bytes(),
        }
    }

    /// Frees memory kept for reuse; for idle connections.
    pub fn release_idle_memory(&mut self) {
        self.payload = None;
        // Keeps the room claimed for a message that has begun.
        if self.message_bytes <= RECEIVE_BYTES_BASE || self.input.filled().is_empty() {
            self.input.release();
        }
        self.slots.release();
        if let Some(tls) = &mut self.tls {
            tls.release();
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended { .. })
    }

    /// Whether no further reply will be added to the output.
    fn has_answered(&self) -> bool {
        match self.phase {
            Phase::Ended { hard: true } => true,
            Phase::Ended { hard: false } => self.slots.outstanding() == 0,
            _ => self.shutting_down && self.slots.outstanding() == 0,
        }
    }

    fn end(&mut self, reason: Reason) {
        if !self.has_ended() {
            self.phase = Phase::Ended { hard: matches!(reason, Reason::Violation(_)) };
            self.end_to_tell = Some(reason);
        }
    }

    fn set_failure(&mut self, key: RequestKey, failure: Failure) {
        if let Some((_, slot)) = self.slots.get_mut(key) {
            slot.failure = Some(failure);
        }
    }

    /// Appends a reply; returns whether it waits with data in the request's slot.
    fn reply(&mut self, request: &NbdRequest, data_len: Option<usize>, failure: Option<Failure>) -> bool {
        let structured = self.negotiated.structured;
        if let Some(failure) = failure {
            reply::failure(&mut self.output, structured, request, failure);
            return false;
        }
        match (request.command, data_len) {
            (Command::Read, Some(_)) if structured => {
                reply::read(&mut self.output, request, self.slots.pieces(request.key.slot))
            }
            (Command::Read, Some(len)) => {
                reply::simple(&mut self.output, request.cookie, 0);
                self.output.data(request.key.slot, 0, len, true);
                true
            }
            (Command::BlockStatus, Some(len)) => {
                reply::block_status(&mut self.output, request, len);
                true
            }
            _ => {
                reply::simple(&mut self.output, request.cookie, 0);
                false
            }
        }
    }

    fn look(&mut self) -> Look {
        if let Some(skip) = self.skip {
            return self.skip(skip);
        }
        match self.phase {
            Phase::ClientFlags => self.look_at_client_flags(),
            Phase::Options => self.look_at_option(),
            Phase::Transmission => self.look_at_request(),
            Phase::Ended { .. } => Look::Blocked,
        }
    }

    fn skip(&mut self, mut skip: Skip) -> Look {
        let len = self.input.filled().len().min(skip.left_bytes as usize);
        self.input.consume(len);
        // At most the rest.
        skip.left_bytes -= len as u32;
        if skip.left_bytes > 0 {
            self.skip = Some(skip);
            return Look::Incomplete { message_bytes: 0 };
        }
        self.skip = None;
        match skip.then {
            AfterSkip::RefuseOption { option } => refuse_too_big(&mut self.output, option),
            AfterSkip::RefuseRequest { cookie, refusal } => {
                self.refused_requests += 1;
                reply::refusal(&mut self.output, self.negotiated.structured, cookie, refusal);
            }
        }
        Look::Again
    }

    fn look_at_client_flags(&mut self) -> Look {
        let Some(flags) = Fields(self.input.filled()).u32() else {
            return Look::Incomplete { message_bytes: CLIENT_FLAGS_BYTES };
        };
        self.input.consume(CLIENT_FLAGS_BYTES);
        self.phase = Phase::Options;
        let step = self.negotiation.client_flags(flags);
        self.follow(step)
    }

    fn look_at_option(&mut self) -> Look {
        let filled = self.input.filled();
        let mut fields = Fields(filled);
        let (Some(magic), Some(option), Some(len_bytes)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return Look::Incomplete { message_bytes: OPTION_HEADER_BYTES };
        };
        if magic != OPTION_MAGIC {
            return self.follow(Violation::OptionMagic.into());
        }
        if let Err(reason) = self.negotiation.admit(option, len_bytes) {
            return self.follow(Step::End(reason));
        }
        if len_bytes > OPTION_SKIP_BYTES_MAX {
            return self.follow(Violation::OptionTooLong.into());
        }
        if len_bytes > OPTION_BYTES_MAX {
            self.negotiation.count_option();
            self.input.consume(OPTION_HEADER_BYTES);
            self.skip = Some(Skip { left_bytes: len_bytes, then: AfterSkip::RefuseOption { option } });
            return Look::Again;
        }
        let message_bytes = OPTION_HEADER_BYTES + len_bytes as usize;
        let Some(data) = filled.get(OPTION_HEADER_BYTES..message_bytes) else {
            return Look::Incomplete { message_bytes };
        };
        self.negotiation.count_option();
        let step = self.negotiation.answer(&self.offer, option, data, self.shutting_down, &mut self.output);
        self.input.consume(message_bytes);
        self.follow(step)
    }

    fn look_at_request(&mut self) -> Look {
        let filled = self.input.filled();
        let Some(head) = filled.first_chunk() else {
            return Look::Incomplete { message_bytes: REQUEST_HEADER_BYTES };
        };
        let Some(header) = Header::decode(head) else { return self.follow(Violation::RequestMagic.into()) };
        if header.command == command::DISC {
            return self.follow(Step::End(Reason::Disconnect));
        }
        let checked = if self.shutting_down {
            Err(Refusal::SHUTDOWN)
        } else {
            header.check(&self.offer.exports()[self.export], self.negotiated, self.slots.next_key())
        };
        let request = match checked {
            Ok(request) => request,
            Err(refusal) => return self.refuse_request(&header, refusal),
        };
        let payload_bytes = header.payload_bytes() as usize;
        let message_bytes = REQUEST_HEADER_BYTES + payload_bytes;
        if filled.len() < message_bytes {
            // Claim memory for the whole message or none: two partly received messages could wait for each other.
            return match self.input.admit(message_bytes) {
                true => Look::Incomplete { message_bytes },
                false => self.wait_for_memory(),
            };
        }
        let claimed_bytes = claimed_bytes(request.command, request.len_bytes);
        if !self.slots.has_room(claimed_bytes) {
            return Look::Blocked;
        }
        if !self.slots.begin(request, claimed_bytes) {
            return self.wait_for_memory();
        }
        self.input.consume(REQUEST_HEADER_BYTES);
        let place = self.input.consume(payload_bytes);
        if request.command == Command::Write {
            self.payload = Some((request.key, place));
        }
        Look::Event(Event::Request(request))
    }

    fn wait_for_memory(&mut self) -> Look {
        self.shortage = Some(Shortage::of(&self.memory));
        Look::Blocked
    }

    fn refuse_request(&mut self, header: &Header, refusal: Refusal) -> Look {
        let left_bytes = header.payload_bytes();
        if left_bytes > PAYLOAD_SKIP_BYTES_MAX {
            return self.follow(Violation::PayloadTooLong.into());
        }
        self.input.consume(REQUEST_HEADER_BYTES);
        // Answered after the data: a client may not look for a reply while it still sends.
        self.skip = Some(Skip { left_bytes, then: AfterSkip::RefuseRequest { cookie: header.cookie, refusal } });
        Look::Again
    }

    fn follow(&mut self, step: Step) -> Look {
        match step {
            Step::Continue => {}
            Step::StartTls => self.start_tls(),
            Step::Begin { export } => {
                self.phase = Phase::Transmission;
                self.export = export;
                self.negotiated = self.negotiation.negotiated(export);
                return Look::Event(Event::Negotiated { export, tls: self.negotiation.tls() });
            }
            Step::End(reason) => self.end(reason),
        }
        Look::Again
    }

    /// Encrypts everything from here on, including bytes that the client has already sent.
    fn start_tls(&mut self) {
        let config = self.offer.tls().config().expect("TLS was refused without it");
        match TlsTransport::new(config, &self.memory) {
            Ok(mut tls) => {
                let ahead = self.input.consume(self.input.filled().len());
                tls.begin(self.input.at(ahead), &mut self.output);
                self.tls = Some(Box::new(tls));
                self.negotiation.tls_started();
            }
            Err(error) => self.end_tls(error),
        }
    }

    /// Decrypts received bytes; returns whether further input can be parsed.
    fn decrypt(&mut self) -> bool {
        let Some(tls) = &mut self.tls else { return false };
        match tls.decrypt(&mut self.input, self.message_bytes) {
            Ok(progress) => progress,
            Err(error) => {
                self.end_tls(error);
                true
            }
        }
    }

    fn end_tls(&mut self, error: rustls::Error) {
        self.tls_error = Some(error);
        self.end(Violation::Tls.into());
    }
}

fn device_failure(request: &NbdRequest, status: Status) -> Option<Failure> {
    let (error, message) = match status {
        Status::Ok => return None,
        Status::MediaError => (NbdError::Io, "the medium failed"),
        Status::Aborted => (NbdError::Io, "given up"),
        Status::Unsupported => (NbdError::NotSupported, "the device does not know this"),
        _ => (NbdError::Inval, "a zone can't be written so"),
    };
    Some(Failure { refusal: Refusal { error, message }, offset_bytes: request.offset_bytes })
}

fn missing_data(request: &NbdRequest, data_len: Option<usize>) -> Option<Failure> {
    let has_data = matches!(request.command, Command::Read | Command::BlockStatus);
    (has_data && data_len.is_none()).then_some(Failure {
        refusal: Refusal { error: NbdError::Io, message: "no data" },
        offset_bytes: request.offset_bytes,
    })
}
