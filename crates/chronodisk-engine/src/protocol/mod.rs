//! The protocol between an engine and a remote model: on another machine (the emulator server) or in another program
//! (an external model).
//!
//! It has the four commands of Wu and Tsai, "A Storage Device Emulator for System Performance Evaluation" (ACM TECS
//! 14(4), 2015, table II), and those that a connection needs besides:
//!
//! | the paper's | here |
//! |---|---|
//! | reset | [`Command::Reset`], answered with the device's properties |
//! | data transfer | [`Command::Read`], [`Command::Write`], [`Command::Clear`], [`Command::Flush`] |
//! | submit request | [`Command::Submit`] |
//! | get next response | [`Command::Next`] |
//! | | [`Command::Hello`] begins or resumes a session, [`Command::End`] ends it |
//! | | [`Command::Statistics`] asks for the model's counters |
//! | | [`Command::SubmitAnywhere`], [`Command::Background`], [`Command::TakeBackground`]: interface extensions |
//!
//! Both sides send frames: a header of 16 bytes, then at most [`BODY_BYTES_MAX`] bytes of body, all numbers little
//! endian:
//!
//! | bytes | header |
//! |---|---|
//! | 4 | length of the body |
//! | 2 | kind of the message; an answer has the highest bit set |
//! | 2 | in a command: how many commands before it have not been answered yet; in an answer: zero |
//! | 8 | sequence number of the command, from 1; an answer has that of its command; zero for `Hello` |
//!
//! *Order.* The client may send [`UNANSWERED_MAX`] commands ahead of their answers. The server executes and answers
//! them in order. *Repetition.* After a lost connection the client greets again with its session's id, and repeats all
//! unanswered commands. The server remembers the answers of commands that it has executed, so a repeated command has no
//! second effect. *Time.* Every instant is virtual and comes from the client; the server reads no clock. *Versions.*
//! The layout of `Hello`, of its answer and of [`Answer::Error`] never changes, so that both sides can name the version
//! that they lack. A model that does not know an interface extension refuses it, with [`ErrorCode::Unsupported`] or as
//! a violation.
//!
//! *Authentication.* A client with a [`Token`] puts a nonce into its greeting. A server with a token answers with its
//! own nonce ([`Answer::Challenge`]), verifies the client's [`Command::Prove`], proves that it has the token as well
//! ([`Answer::Proven`]) and then welcomes the client. The token itself is never sent. *Bounds.* Besides the lengths of
//! frames: a read or write has at most [`REQUEST_BYTES_MAX`], another range [`RANGE_BYTES_MAX`], outstanding requests
//! together [`OUTSTANDING_BYTES_MAX`], and no arrival is after [`LATEST_ARRIVAL`](chronodisk_device::LATEST_ARRIVAL).
//!
//! This module is sans-I/O: bytes in, messages out. Bytes from the other side are checked and bounded.

mod auth;
mod background;
mod fields;
mod frame;
mod message;
#[cfg(test)]
mod tests;

pub use auth::{Nonce, Proof, Token, TokenError, TokenErrorKind, secret_of_file};
pub use background::{BackgroundChange, BackgroundReads};
pub use frame::{Decoder, Frame, encode_frame};
pub use message::{Answer, Clear, Command, ErrorCode, Info, ModelStatistics, NextAnswer, Reset, Welcome};

/// Version of the protocol; it changes when a side that knows only the old one would misread the new one.
pub const VERSION: u16 = 1;

/// The first bytes of a greeting and of its answer.
pub const MAGIC: [u8; 8] = *b"CHRONODK";

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 16;

/// Most data of one [`Command::Read`] or [`Command::Write`].
pub const DATA_BYTES_MAX: usize = 1 << 20;

/// Longest text of a profile, as long as a profile may be.
pub const PROFILE_BYTES_MAX: usize = 1 << 20;

/// Longest name, reason or other short text.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Largest body of a frame: the data or the profile, and room for the fields around it.
pub const BODY_BYTES_MAX: usize = DATA_BYTES_MAX + 4 * TEXT_BYTES_MAX;

/// Most commands that wait for their answers.
pub const UNANSWERED_MAX: usize = 256;

/// Most outstanding requests of one model; four times the capacity of a guest's ring.
pub const OUTSTANDING_MAX: usize = 4096;

/// Most bytes of a read or write, so that the work of one command is bounded. Linux's largest requests are a few
/// mebibytes.
pub const REQUEST_BYTES_MAX: u64 = 256 << 20;

/// Longest discard or write of zeros: the largest that a virtio block device receives.
pub const RANGE_BYTES_MAX: u64 = 4 << 30;

/// Most bytes of the reads and writes that one model has outstanding.
pub const OUTSTANDING_BYTES_MAX: u64 = 1 << 30;

/// Longest range of one [`Command::Clear`].
pub const CLEAR_BYTES_MAX: u64 = 256 << 20;

/// Largest body of a frame before a client is known: a greeting and a proof are far smaller.
pub const GREETING_BYTES_MAX: usize = 1 << 10;

/// Most statistics of a model.
pub const STATISTICS_MAX: usize = 1024;

/// Most ranges of one [`Command::Background`].
pub const BACKGROUND_RANGES_MAX: usize = 1 << 15;

/// Most reads in one answer to [`Command::TakeBackground`].
pub const BACKGROUND_DONE_MAX: usize = 1 << 15;

/// Id of a session; all zero asks for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// Asks for a new session.
    pub const NEW: SessionId = SessionId([0; 16]);
}

/// Bytes that violate the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A frame announces more bytes than any message has.
    #[error("a frame announces {len_bytes} bytes; the most are {most_bytes}")]
    TooLong {
        /// The length announced.
        len_bytes: u32,
        /// The most bytes allowed in this state.
        most_bytes: usize,
    },
    /// An unknown kind of message, or one of the wrong direction.
    #[error("a message is of the unknown kind {kind:#06x}")]
    UnknownKind {
        /// The kind.
        kind: u16,
    },
    /// A message is too short or too long.
    #[error("{message}: the body has {actual_bytes} bytes, which is too {too}")]
    Length {
        /// Name of the message.
        message: &'static str,
        /// Length of the body.
        actual_bytes: usize,
        /// `few` or `many`.
        too: &'static str,
    },
    /// A field has an invalid value.
    #[error("{message}: {field} is {value}; expected {expected}")]
    Field {
        /// Name of the message.
        message: &'static str,
        /// Name of the field.
        field: &'static str,
        /// Value found.
        value: u64,
        /// Values expected.
        expected: &'static str,
    },
    /// A text is not UTF-8.
    #[error("{message}: {field} is not UTF-8")]
    Text {
        /// Name of the message.
        message: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// An invalid name of a device.
    #[error("the device's name has something in it that is no letter, digit, dash, dot or underline, or no length")]
    Name,
    /// The other side does not begin with the magic bytes.
    #[error("the other side does not speak this protocol")]
    Magic,
    /// An answer to no command, or not to the next one.
    #[error("an answer to command {actual} came where that to {expected} was due")]
    Order {
        /// Sequence number of the next command to be answered.
        expected: u64,
        /// Sequence number in the answer.
        actual: u64,
    },
    /// The kind of an answer does not match its command.
    #[error("{command} was answered with a message of kind {kind:#06x}")]
    Answer {
        /// The command.
        command: &'static str,
        /// Kind of the answer.
        kind: u16,
    },
}
