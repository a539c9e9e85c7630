//! The messages and their bodies.

use std::ops::Range;

use chronodisk_device::{DeviceInfo, PLACES_MAX};
use chronodisk_sim::{Completion, Lba, Nanos, Op, Priority, Request, RequestId, Status};

use super::background::{BackgroundChange, BackgroundReads};
use super::fields::{Reader, Writer};
use super::{
    CLEAR_BYTES_MAX, DATA_BYTES_MAX, Frame, MAGIC, Nonce, OUTSTANDING_MAX, PROFILE_BYTES_MAX, Proof, ProtocolError,
    STATISTICS_MAX, SessionId, TEXT_BYTES_MAX, VERSION, encode_frame,
};

/// A message of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begins or resumes a session.
    Hello {
        /// Version of the protocol that the client speaks.
        version: u16,
        /// The session, or [`SessionId::NEW`].
        session: SessionId,
        /// Nonce of a client with a token; the server then asks for its proof.
        nonce: Option<Nonce>,
    },
    /// Shows that the client has the token: the answer to a challenge.
    Prove {
        /// Result of [`Token::client_proof`](super::Token::client_proof).
        proof: Proof,
    },
    /// Makes a new device.
    Reset(Reset),
    /// Data transfer: bytes of the device.
    Read {
        /// First byte.
        offset_bytes: u64,
        /// Length, at most [`DATA_BYTES_MAX`].
        len_bytes: u32,
    },
    /// Data transfer: bytes for the device.
    Write {
        /// First byte.
        offset_bytes: u64,
        /// At most [`DATA_BYTES_MAX`] bytes.
        data: Vec<u8>,
    },
    /// Data transfer: a range that reads as zeros from now on.
    Clear {
        /// Treatment of the range's space.
        how: Clear,
        /// First byte.
        offset_bytes: u64,
        /// Length, at most [`CLEAR_BYTES_MAX`].
        len_bytes: u64,
    },
    /// Data transfer: makes written bytes durable.
    Flush,
    /// A request arrives.
    Submit {
        /// Virtual time of the arrival; not before any instant in earlier commands or answers.
        at: Nanos,
        /// The request; its id differs from those of outstanding ones.
        request: Request,
    },
    /// A write arrives that may go to any of several places.
    SubmitAnywhere {
        /// Virtual time of the arrival, as in [`Command::Submit`].
        at: Nanos,
        /// The request; its own address does not count.
        request: Request,
        /// First sectors of the places, 1 to [`PLACES_MAX`].
        places: Vec<Lba>,
    },
    /// A background request arrives, or is withdrawn.
    Background {
        /// Virtual time of the arrival, as in [`Command::Submit`].
        at: Nanos,
        /// Whether the sectors are wanted from now on.
        change: BackgroundChange,
        /// Sectors, at most [`BACKGROUND_RANGES_MAX`](super::BACKGROUND_RANGES_MAX) ranges.
        ranges: Vec<Range<u64>>,
    },
    /// Asks for the reads of background requests.
    TakeBackground {
        /// Virtual time up to which reads are asked for; no request arrives before it.
        until: Nanos,
    },
    /// Asks for the next completions, given that no request arrives.
    Next {
        /// All completions up to this instant were received and delivered.
        taken: Nanos,
        /// No request arrives before this instant, which is not before `taken`.
        safe_until: Nanos,
    },
    /// Asks for counters.
    Statistics,
    /// Ends the session.
    End,
}

/// Description of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// Seed of the model's random streams.
    pub seed: u64,
    /// Capacity in bytes; the profile's if zero.
    pub capacity_bytes: u64,
    /// Memory that the bytes may take, in bytes; the server's own bound if zero.
    pub store_budget_bytes: u64,
    /// Whether the model may run ahead on a fork.
    pub speculate: bool,
    /// Name of the profile in errors. Without a profile, the name of one of the server's devices; empty for its first
    /// one.
    pub label: String,
    /// Text of the profile; empty for a device of the server's own.
    pub profile: String,
}

/// Treatment of the space of a cleared range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// Zeroes the range and frees its space.
    WriteZeroes,
    /// Zeroes the range and reserves space for later writes.
    Reserve,
    /// Frees the space of the range, whose contents are no longer needed.
    Discard,
}

impl Clear {
    const ALL: [Clear; 3] = [Clear::WriteZeroes, Clear::Reserve, Clear::Discard];
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Answers [`Command::Hello`], and [`Command::Prove`] after the server's own proof.
    Welcome(Welcome),
    /// Answers [`Command::Hello`] of a client with a token, which must prove that it has it.
    Challenge(Nonce),
    /// Answers [`Command::Prove`] with the server's proof. The welcome follows.
    Proven(Proof),
    /// Answers [`Command::Reset`].
    Info(Info),
    /// Answers [`Command::Read`].
    Data(Vec<u8>),
    /// Answers commands without a result.
    Done,
    /// Answers [`Command::SubmitAnywhere`] with the chosen place.
    Place(Lba),
    /// Answers [`Command::TakeBackground`].
    Background(BackgroundReads),
    /// Answers [`Command::Next`].
    Next(NextAnswer),
    /// Answers [`Command::Statistics`].
    Statistics(ModelStatistics),
    /// Answers any command that could not be executed.
    Error {
        /// Why, for the program.
        code: ErrorCode,
        /// Why, for people.
        reason: String,
    },
}

/// A new or resumed session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Version of the protocol that the server speaks.
    pub version: u16,
    /// The session.
    pub session: SessionId,
    /// Number of the last command that was executed.
    pub executed: u64,
}

/// The device that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Properties of the device.
    pub device: DeviceInfo,
    /// Whether the model runs ahead on a fork, so that completions are reported before they are certain.
    pub speculates: bool,
    /// Whether the server keeps bytes.
    pub keeps_bytes: bool,
    /// Text of the profile; empty for a model without one.
    pub profile: String,
}

/// The next completions, if no request arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAnswer {
    /// No request is outstanding.
    Nothing,
    /// These completions, all at one instant.
    Completions(Vec<Completion>),
    /// No completion comes before this instant, which is after `safe_until`; from a model that does not run ahead.
    NotBefore(Nanos),
}

/// Counters of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelStatistics {
    /// Requests submitted.
    pub submitted: u64,
    /// Times that the model ran ahead to its next completion.
    pub predictions: u64,
    /// Predictions that were dropped because something arrived before them; at most one per request.
    pub rollbacks: u64,
    /// Commands that were repeated after a lost connection although they had been executed.
    pub repeated_commands: u64,
    /// The model's own, by name.
    pub model: Vec<(String, f64)>,
}

/// Reason why a command could not be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The server does not speak the client's version.
    Version,
    /// The server does not know the session; it was restarted, or has given the session up.
    UnknownSession,
    /// The command breaks the protocol; the session has ended.
    Violation,
    /// The device can't be made with these options.
    Device,
    /// The bytes could not be moved; the session continues.
    Store,
    /// The server has as many sessions as it may.
    Busy,
    /// The model failed; the session has ended.
    Model,
    /// The client has not proved that it has the server's token.
    Denied,
    /// The command takes more work than one client may use; the session has ended.
    Limit,
    /// The model can't serve this kind of request; the session continues.
    Unsupported,
}

impl ErrorCode {
    const ALL: [ErrorCode; 10] = [
        ErrorCode::Version,
        ErrorCode::UnknownSession,
        ErrorCode::Violation,
        ErrorCode::Device,
        ErrorCode::Store,
        ErrorCode::Busy,
        ErrorCode::Model,
        ErrorCode::Denied,
        ErrorCode::Limit,
        ErrorCode::Unsupported,
    ];
}

/// Kinds of messages.
mod kind {
    pub const HELLO: u16 = 1;
    pub const RESET: u16 = 2;
    pub const READ: u16 = 3;
    pub const WRITE: u16 = 4;
    pub const CLEAR: u16 = 5;
    pub const FLUSH: u16 = 6;
    pub const SUBMIT: u16 = 7;
    pub const NEXT: u16 = 8;
    pub const STATISTICS: u16 = 9;
    pub const END: u16 = 10;
    pub const PROVE: u16 = 11;
    pub const SUBMIT_ANYWHERE: u16 = 12;
    pub const BACKGROUND: u16 = 13;
    pub const TAKE_BACKGROUND: u16 = 14;
    /// Set in answers.
    pub const ANSWER: u16 = 0x8000;
    pub const CHALLENGE: u16 = ANSWER | 0x7ffd;
    pub const DONE: u16 = ANSWER | 0x7ffe;
    pub const ERROR: u16 = ANSWER | 0x7fff;
}

impl Command {
    /// The command's name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Command::Hello { .. } => "hello",
            Command::Prove { .. } => "proof",
            Command::Reset(_) => "reset",
            Command::Read { .. } => "read",
            Command::Write { .. } => "write",
            Command::Clear { .. } => "clear",
            Command::Flush => "flush",
            Command::Submit { .. } => "submit",
            Command::SubmitAnywhere { .. } => "submit anywhere",
            Command::Background { .. } => "background",
            Command::TakeBackground { .. } => "take background",
            Command::Next { .. } => "next",
            Command::Statistics => "statistics",
            Command::End => "end",
        }
    }

    fn kind(&self) -> u16 {
        match self {
            Command::Hello { .. } => kind::HELLO,
            Command::Prove { .. } => kind::PROVE,
            Command::Reset(_) => kind::RESET,
            Command::Read { .. } => kind::READ,
            Command::Write { .. } => kind::WRITE,
            Command::Clear { .. } => kind::CLEAR,
            Command::Flush => kind::FLUSH,
            Command::Submit { .. } => kind::SUBMIT,
            Command::SubmitAnywhere { .. } => kind::SUBMIT_ANYWHERE,
            Command::Background { .. } => kind::BACKGROUND,
            Command::TakeBackground { .. } => kind::TAKE_BACKGROUND,
            Command::Next { .. } => kind::NEXT,
            Command::Statistics => kind::STATISTICS,
            Command::End => kind::END,
        }
    }

    /// Appends the command as a frame.
    pub fn encode(&self, unanswered: u16, sequence: u64, out: &mut Vec<u8>) {
        encode_frame(out, self.kind(), unanswered, sequence, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        let mut to = Writer(out);
        match self {
            Command::Hello { version, session, nonce } => {
                to.0.extend_from_slice(&MAGIC);
                to.u16(*version);
                to.0.extend_from_slice(&session.0);
                to.0.extend(nonce.iter().flat_map(|nonce| nonce.0));
            }
            Command::Prove { proof } => to.0.extend_from_slice(&proof.0),
            Command::Reset(reset) => {
                to.u64(reset.seed);
                to.u64(reset.capacity_bytes);
                to.u64(reset.store_budget_bytes);
                to.u8(u8::from(reset.speculate));
                to.text(&reset.label, TEXT_BYTES_MAX);
                to.text(&reset.profile, PROFILE_BYTES_MAX);
            }
            Command::Read { offset_bytes, len_bytes } => {
                to.u64(*offset_bytes);
                to.u32(*len_bytes);
            }
            Command::Write { offset_bytes, data } => {
                to.u64(*offset_bytes);
                to.0.extend_from_slice(data);
            }
            Command::Clear { how, offset_bytes, len_bytes } => {
                to.u8(Clear::ALL.iter().position(|known| known == how).expect("the list is complete") as u8);
                to.u64(*offset_bytes);
                to.u64(*len_bytes);
            }
            Command::Submit { at, request } => {
                to.u64(at.as_nanos());
                encode_request(request, &mut to);
            }
            Command::SubmitAnywhere { at, request, places } => {
                to.u64(at.as_nanos());
                encode_request(request, &mut to);
                places.iter().for_each(|place| to.u64(place.0));
            }
            Command::Background { at, change, ranges } => change.encode(*at, ranges, &mut to),
            Command::TakeBackground { until } => to.u64(until.as_nanos()),
            Command::Next { taken, safe_until } => {
                to.u64(taken.as_nanos());
                to.u64(safe_until.as_nanos());
            }
            Command::Flush | Command::Statistics | Command::End => {}
        }
    }

    /// Reads a command.
    ///
    /// # Errors
    /// If the frame holds no valid command.
    pub fn decode(frame: &Frame) -> Result<Command, ProtocolError> {
        let body = &frame.body;
        match frame.kind {
            kind::HELLO => {
                let mut from = Reader::new("hello", body);
                if from.array()? != MAGIC {
                    return Err(ProtocolError::Magic);
                }
                // Additions of later versions are ignored: the answer names the version spoken here.
                let (version, session) = (from.u16()?, SessionId(from.array()?));
                let nonce = from.rest().first_chunk().copied().map(Nonce);
                Ok(Command::Hello { version, session, nonce })
            }
            kind::PROVE => {
                let mut from = Reader::new("proof", body);
                let proof = Proof(from.array()?);
                from.end().map(|()| Command::Prove { proof })
            }
            kind::RESET => decode_reset(Reader::new("reset", body)),
            kind::READ => {
                let mut from = Reader::new("read", body);
                let command = Command::Read { offset_bytes: from.u64()?, len_bytes: from.u32()? };
                if let Command::Read { len_bytes, .. } = command
                    && len_bytes as usize > DATA_BYTES_MAX
                {
                    return Err(from.wrong("length", u64::from(len_bytes), "at most 1 MiB"));
                }
                from.end().map(|()| command)
            }
            kind::WRITE => {
                let mut from = Reader::new("write", body);
                let offset_bytes = from.u64()?;
                let data = from.rest();
                if data.len() > DATA_BYTES_MAX {
                    let actual_bytes = body.len();
                    return Err(ProtocolError::Length { message: "write", actual_bytes, too: "many" });
                }
                Ok(Command::Write { offset_bytes, data: data.to_vec() })
            }
            kind::CLEAR => {
                let mut from = Reader::new("clear", body);
                let how = from.one_of("kind", &Clear::ALL, "0 to 2")?;
                let (offset_bytes, len_bytes) = (from.u64()?, from.u64()?);
                if len_bytes > CLEAR_BYTES_MAX {
                    return Err(from.wrong("length", len_bytes, "at most 256 MiB"));
                }
                from.end().map(|()| Command::Clear { how, offset_bytes, len_bytes })
            }
            kind::FLUSH => Reader::new("flush", body).end().map(|()| Command::Flush),
            kind::SUBMIT => {
                let mut from = Reader::new("submit", body);
                let at = Nanos::from_nanos(from.u64()?);
                let request = decode_request(&mut from)?;
                from.end().map(|()| Command::Submit { at, request })
            }
            kind::SUBMIT_ANYWHERE => decode_submit_anywhere(Reader::new("submit anywhere", body)),
            kind::BACKGROUND => BackgroundChange::decode(Reader::new("background", body)),
            kind::TAKE_BACKGROUND => {
                let mut from = Reader::new("take background", body);
                let until = Nanos::from_nanos(from.u64()?);
                from.end().map(|()| Command::TakeBackground { until })
            }
            kind::NEXT => {
                let mut from = Reader::new("next", body);
                let (taken, safe_until) = (Nanos::from_nanos(from.u64()?), Nanos::from_nanos(from.u64()?));
                from.end().map(|()| Command::Next { taken, safe_until })
            }
            kind::STATISTICS => Reader::new("statistics", body).end().map(|()| Command::Statistics),
            kind::END => Reader::new("end", body).end().map(|()| Command::End),
            kind => Err(ProtocolError::UnknownKind { kind }),
        }
    }
}

fn decode_reset(mut from: Reader<'_>) -> Result<Command, ProtocolError> {
    let reset = Reset {
        seed: from.u64()?,
        capacity_bytes: from.u64()?,
        store_budget_bytes: from.u64()?,
        speculate: from.flag("speculation")?,
        label: from.text("label", TEXT_BYTES_MAX)?,
        profile: from.text("profile", PROFILE_BYTES_MAX)?,
    };
    from.end().map(|()| Command::Reset(reset))
}

fn decode_submit_anywhere(mut from: Reader<'_>) -> Result<Command, ProtocolError> {
    let at = Nanos::from_nanos(from.u64()?);
    let request = decode_request(&mut from)?;
    let places = from.numbers(1..=PLACES_MAX)?.into_iter().map(|[place]| Lba(place)).collect();
    Ok(Command::SubmitAnywhere { at, request, places })
}

fn encode_request(request: &Request, to: &mut Writer<'_>) {
    let position = |found: Option<usize>| found.expect("the list is complete") as u8;
    to.u64(request.id.0);
    to.u64(request.lba.0);
    to.u32(request.sectors);
    to.u8(position(Op::ALL.iter().position(|op| *op == request.op)));
    to.u8(position(Priority::ALL.iter().position(|priority| *priority == request.priority)));
    to.u8(u8::from(request.fua));
    to.u8(0);
    to.u16(request.queue);
    to.u16(0);
    to.u32(request.issuer);
}

fn decode_request(from: &mut Reader<'_>) -> Result<Request, ProtocolError> {
    let (id, lba, sectors) = (RequestId(from.u64()?), Lba(from.u64()?), from.u32()?);
    let op = from.one_of("operation", &Op::COMMON, "0 to 4")?;
    let priority = from.one_of("priority", &Priority::ALL, "0 to 2")?;
    let fua = from.flag("force unit access")?;
    from.one_of("reserved", &[()], "0")?;
    let queue = from.u16()?;
    let reserved = from.u16()?;
    if reserved != 0 {
        return Err(from.wrong("reserved", u64::from(reserved), "0"));
    }
    Ok(Request { id, op, lba, sectors, fua, priority, queue, issuer: from.u32()? })
}

impl Answer {
    /// Makes the answer that a command broke the rules.
    #[must_use]
    pub fn error(code: ErrorCode, reason: impl std::fmt::Display) -> Answer {
        Answer::Error { code, reason: reason.to_string() }
    }

    fn kind(&self) -> u16 {
        match self {
            Answer::Welcome(_) => kind::ANSWER | kind::HELLO,
            Answer::Challenge(_) => kind::CHALLENGE,
            Answer::Proven(_) => kind::ANSWER | kind::PROVE,
            Answer::Info(_) => kind::ANSWER | kind::RESET,
            Answer::Data(_) => kind::ANSWER | kind::READ,
            Answer::Done => kind::DONE,
            Answer::Place(_) => kind::ANSWER | kind::SUBMIT_ANYWHERE,
            Answer::Background(_) => kind::ANSWER | kind::TAKE_BACKGROUND,
            Answer::Next(_) => kind::ANSWER | kind::NEXT,
            Answer::Statistics(_) => kind::ANSWER | kind::STATISTICS,
            Answer::Error { .. } => kind::ERROR,
        }
    }

    /// Appends the answer to command `sequence` as a frame.
    pub fn encode(&self, sequence: u64, out: &mut Vec<u8>) {
        encode_frame(out, self.kind(), 0, sequence, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        let mut to = Writer(out);
        match self {
            Answer::Welcome(welcome) => {
                to.0.extend_from_slice(&MAGIC);
                to.u16(welcome.version);
                to.0.extend_from_slice(&welcome.session.0);
                to.u64(welcome.executed);
            }
            Answer::Challenge(nonce) => to.0.extend_from_slice(&nonce.0),
            Answer::Proven(proof) => to.0.extend_from_slice(&proof.0),
            Answer::Info(info) => encode_info(info, &mut to),
            Answer::Data(data) => to.0.extend_from_slice(data),
            Answer::Done => {}
            Answer::Place(place) => to.u64(place.0),
            Answer::Background(answer) => answer.encode(&mut to),
            Answer::Next(NextAnswer::Nothing) => to.u8(0),
            Answer::Next(NextAnswer::Completions(completions)) => {
                to.u8(1);
                to.u64(completions.first().map_or(0, |completion| completion.at.as_nanos()));
                for completion in completions {
                    to.u64(completion.id.0);
                    let code = Status::COMMON.iter().position(|status| *status == completion.status);
                    to.u8(code.expect("a device with zones is not served") as u8);
                }
            }
            Answer::Next(NextAnswer::NotBefore(at)) => {
                to.u8(2);
                to.u64(at.as_nanos());
            }
            Answer::Statistics(statistics) => {
                to.u64(statistics.submitted);
                to.u64(statistics.predictions);
                to.u64(statistics.rollbacks);
                to.u64(statistics.repeated_commands);
                let model = &statistics.model[..statistics.model.len().min(STATISTICS_MAX)];
                to.u32(model.len() as u32);
                for (name, value) in model {
                    to.text(name, STATISTIC_NAME_BYTES_MAX);
                    to.u64(value.to_bits());
                }
            }
            Answer::Error { code, reason } => {
                to.u8(ErrorCode::ALL.iter().position(|known| known == code).expect("the list is complete") as u8);
                to.text(reason, TEXT_BYTES_MAX);
            }
        }
    }

    /// Reads the answer to `command`.
    ///
    /// # Errors
    /// If the frame holds no valid answer to it.
    pub fn decode(frame: &Frame, command: &Command) -> Result<Answer, ProtocolError> {
        let body = &frame.body;
        if frame.kind == kind::ERROR {
            let mut from = Reader::new("error", body);
            let code = from.one_of("code", &ErrorCode::ALL, "0 to 9")?;
            return Ok(Answer::Error { code, reason: from.text("reason", TEXT_BYTES_MAX)? });
        }
        let wrong_kind = Err(ProtocolError::Answer { command: command.name(), kind: frame.kind });
        match command {
            Command::Write { .. }
            | Command::Clear { .. }
            | Command::Flush
            | Command::Submit { .. }
            | Command::Background { .. }
            | Command::End => {
                if frame.kind != kind::DONE {
                    return wrong_kind;
                }
                Reader::new("done", body).end().map(|()| Answer::Done)
            }
            Command::Hello { .. } if frame.kind == kind::CHALLENGE => {
                let mut from = Reader::new("challenge", body);
                let nonce = Nonce(from.array()?);
                from.end().map(|()| Answer::Challenge(nonce))
            }
            _ if frame.kind != kind::ANSWER | command.kind() => wrong_kind,
            Command::Prove { .. } => {
                let mut from = Reader::new("proof", body);
                let proof = Proof(from.array()?);
                from.end().map(|()| Answer::Proven(proof))
            }
            Command::Hello { .. } => decode_welcome(Reader::new("welcome", body)),
            Command::Reset(_) => decode_info(Reader::new("info", body)),
            Command::Read { len_bytes, .. } => {
                if body.len() != *len_bytes as usize {
                    let too = if body.len() < *len_bytes as usize { "few" } else { "many" };
                    return Err(ProtocolError::Length { message: "data", actual_bytes: body.len(), too });
                }
                Ok(Answer::Data(body.clone()))
            }
            Command::SubmitAnywhere { .. } => {
                let mut from = Reader::new("place", body);
                let place = Lba(from.u64()?);
                from.end().map(|()| Answer::Place(place))
            }
            Command::TakeBackground { .. } => {
                BackgroundReads::decode(Reader::new("background reads", body)).map(Answer::Background)
            }
            Command::Next { .. } => decode_next(Reader::new("next response", body)),
            Command::Statistics => decode_statistics(Reader::new("statistics", body)),
        }
    }
}

const STATISTIC_NAME_BYTES_MAX: usize = 256;
const DEVICE_NAME_BYTES_MAX: usize = 128;

fn decode_welcome(mut from: Reader<'_>) -> Result<Answer, ProtocolError> {
    if from.array()? != MAGIC {
        return Err(ProtocolError::Magic);
    }
    let version = from.u16()?;
    let welcome = Welcome { version, session: SessionId(from.array()?), executed: from.u64()? };
    if version == VERSION {
        from.end()?;
    }
    Ok(Answer::Welcome(welcome))
}

fn encode_info(info: &Info, to: &mut Writer<'_>) {
    let device = &info.device;
    to.u64(device.capacity_sectors);
    to.u32(device.logical_block_bytes);
    to.u32(device.physical_block_bytes);
    to.u32(device.discard_unit_sectors.unwrap_or(0));
    to.u8(u8::from(device.volatile_cache));
    to.u8(u8::from(device.rotational));
    to.u8(u8::from(info.speculates));
    to.u8(u8::from(info.keeps_bytes));
    to.text(&device.name, DEVICE_NAME_BYTES_MAX);
    to.text(&info.profile, PROFILE_BYTES_MAX);
}

fn decode_info(mut from: Reader<'_>) -> Result<Answer, ProtocolError> {
    let capacity_sectors = from.u64()?;
    // Byte offsets fit 64 bits with room to spare.
    if !(1..=1 << 50).contains(&capacity_sectors) {
        return Err(from.wrong("capacity in sectors", capacity_sectors, "1 to 2^50"));
    }
    let logical_block_bytes = from.u32()?;
    if !logical_block_bytes.is_power_of_two() || !(512..=65_536).contains(&logical_block_bytes) {
        return Err(from.wrong("logical block", u64::from(logical_block_bytes), "a power of two from 512 to 65536"));
    }
    let physical_block_bytes = from.u32()?;
    if !physical_block_bytes.is_power_of_two() || physical_block_bytes < logical_block_bytes {
        let expected = "a power of two from the logical block on";
        return Err(from.wrong("physical block", u64::from(physical_block_bytes), expected));
    }
    if !capacity_sectors.is_multiple_of(u64::from(logical_block_bytes) / chronodisk_sim::SECTOR_BYTES) {
        return Err(from.wrong("capacity in sectors", capacity_sectors, "a multiple of the logical block"));
    }
    let discard = from.u32()?;
    let volatile_cache = from.flag("volatile cache")?;
    let rotational = from.flag("rotational")?;
    let speculates = from.flag("speculation")?;
    let keeps_bytes = from.flag("keeping bytes")?;
    let name = from.text("name", DEVICE_NAME_BYTES_MAX)?;
    // The name will be part of file names.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(fits) {
        return Err(ProtocolError::Name);
    }
    let device = DeviceInfo {
        name,
        capacity_sectors,
        logical_block_bytes,
        physical_block_bytes,
        volatile_cache,
        discard_unit_sectors: (discard != 0).then_some(discard),
        rotational,
        zones: None,
        torn_write_sectors: None,
    };
    let profile = from.text("profile", PROFILE_BYTES_MAX)?;
    from.end().map(|()| Answer::Info(Info { device, speculates, keeps_bytes, profile }))
}

fn decode_next(mut from: Reader<'_>) -> Result<Answer, ProtocolError> {
    let next = match from.u8()? {
        0 => NextAnswer::Nothing,
        1 => {
            let at = Nanos::from_nanos(from.u64()?);
            return decode_completions(at, from).map(|completions| Answer::Next(NextAnswer::Completions(completions)));
        }
        2 => NextAnswer::NotBefore(Nanos::from_nanos(from.u64()?)),
        tag => return Err(from.wrong("tag", u64::from(tag), "0 to 2")),
    };
    from.end().map(|()| Answer::Next(next))
}

fn decode_completions(at: Nanos, from: Reader<'_>) -> Result<Vec<Completion>, ProtocolError> {
    /// An id and a status.
    const COMPLETION_BYTES: usize = 9;
    let bytes = from.rest();
    let (entries, rest) = bytes.as_chunks::<COMPLETION_BYTES>();
    if entries.is_empty() || entries.len() > OUTSTANDING_MAX || !rest.is_empty() {
        let too = if entries.len() > OUTSTANDING_MAX { "many" } else { "few" };
        return Err(ProtocolError::Length { message: "next response", actual_bytes: bytes.len(), too });
    }
    let completion = |entry: &[u8; COMPLETION_BYTES]| {
        let mut from = Reader::new("next response", entry);
        let id = RequestId(from.u64()?);
        Ok(Completion { id, at, status: from.one_of("status", &Status::COMMON, "0 to 3")? })
    };
    entries.iter().map(completion).collect()
}

fn decode_statistics(mut from: Reader<'_>) -> Result<Answer, ProtocolError> {
    let mut statistics = ModelStatistics {
        submitted: from.u64()?,
        predictions: from.u64()?,
        rollbacks: from.u64()?,
        repeated_commands: from.u64()?,
        model: Vec::new(),
    };
    let count = from.u32()?;
    if count as usize > STATISTICS_MAX {
        return Err(from.wrong("count", u64::from(count), "at most 1024"));
    }
    for _ in 0..count {
        let name = from.text("name", STATISTIC_NAME_BYTES_MAX)?;
        statistics.model.push((name, f64::from_bits(from.u64()?)));
    }
    from.end().map(|()| Answer::Statistics(statistics))
}
