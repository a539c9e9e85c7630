//! Reasons for the end of a connection.

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The client asked for the end of transmission.
    #[error("the client disconnected")]
    Disconnect,
    /// The client gave negotiation up.
    #[error("the client gave up during negotiation")]
    Abort,
    /// The client closed its side without a word.
    #[error("the client closed the connection{}", if *.mid_message { " in the middle of a message" } else { "" })]
    InputEnded {
        /// A message was incomplete.
        mid_message: bool,
    },
    /// The server is going away, and the protocol has no other answer.
    #[error("the server is shutting down")]
    ShutDown,
    /// The client broke the protocol where it asks for the end of the connection.
    #[error("protocol violation: {0}")]
    Violation(#[from] Violation),
}

/// A client's violation that ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// An unknown flag in the answer to the greeting.
    #[error("unknown client flags")]
    ClientFlags,
    /// An option without its magic number.
    #[error("wrong magic number of an option")]
    OptionMagic,
    /// A client without fixed newstyle sent an option that requires it.
    #[error("an option other than NBD_OPT_EXPORT_NAME without fixed newstyle")]
    NotFixedNewstyle,
    /// Endless negotiation.
    #[error("too many options")]
    TooManyOptions,
    /// An option's data are too long to be skipped.
    #[error("an option of excessive length")]
    OptionTooLong,
    /// An export's name is too long.
    #[error("an export's name of excessive length")]
    NameTooLong,
    /// No such export, asked for with an option that knows no error.
    #[error("no export of that name")]
    UnknownExport,
    /// Transmission without TLS where that is required, asked for with an option that knows no
    /// error.
    #[error("no TLS, which is required")]
    TlsRequired,
    /// TLS failed: [`NbdSession::tls_error`](super::NbdSession::tls_error).
    #[error("TLS failed")]
    Tls,
    /// A request without its magic number.
    #[error("wrong magic number of a request")]
    RequestMagic,
    /// The data of a write that is refused are too long to be skipped.
    #[error("a write of excessive length")]
    PayloadTooLong,
}
