//! Messages and exit statuses of failures.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use chronodisk_store::StoreError;

/// Exit statuses of the command itself; `run -- CMD` passes CMD's own.
pub mod status {
    /// Success.
    pub const FINE: u8 = 0;
    /// A check that was asked for did not hold.
    pub const CHECK_FAILED: u8 = 1;
    /// Wrong usage or configuration.
    pub const USAGE: u8 = 2;
    /// The host lacks something.
    pub const HOST_LACKS: u8 = 3;
    /// Chronodisk itself failed after CMD had started. CMD's own status can be any other.
    pub const OWN_FAILURE: u8 = 125;
}

static COMMAND_BEGAN: AtomicBool = AtomicBool::new(false);

/// After this call, a failure of Chronodisk has a status of its own.
pub(crate) fn command_began() {
    COMMAND_BEGAN.store(true, Ordering::Relaxed);
}

/// The exit status of this process after a panic.
pub fn status_of_defect() -> u8 {
    if COMMAND_BEGAN.load(Ordering::Relaxed) { status::OWN_FAILURE } else { status::HOST_LACKS }
}

/// A failure: a sentence for the user, advice, the exit status, and the place of a mistake in a file.
#[derive(Debug)]
pub struct Failure(Box<Parts>);

/// Apart, so that a result that may be a failure stays small.
#[derive(Debug)]
struct Parts {
    status: u8,
    message: String,
    help: Option<String>,
    place: Option<Place>,
}

/// The place of a mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// The file's contents.
    pub text: String,
    /// Bytes of the contents.
    pub span: Range<usize>,
    /// A remark on them.
    pub label: String,
}

impl Failure {
    /// Wrong usage or configuration.
    pub fn usage(message: impl fmt::Display) -> Self {
        Failure::new(status::USAGE, message)
    }

    /// The host lacks something, or the operating system refused a call.
    pub fn host(message: impl fmt::Display) -> Self {
        Failure::new(status::HOST_LACKS, message)
    }

    fn new(status: u8, message: impl fmt::Display) -> Self {
        Failure(Box::new(Parts { status, message: message.to_string(), help: None, place: None }))
    }

    /// Adds advice.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.0.help = Some(help.to_string());
        self
    }

    /// The failure after CMD has started: it is no longer a usage error.
    #[must_use]
    pub fn after_start(mut self) -> Self {
        self.0.status = status::OWN_FAILURE;
        self
    }

    /// Adds the place in `text`, the contents of `file`, that `span` (in bytes) names.
    #[must_use]
    pub fn at_place(mut self, file: &str, text: &str, span: Range<usize>, label: impl fmt::Display) -> Self {
        let span = span.start.min(text.len())..span.end.min(text.len());
        self.0.place = Some(Place { file: file.to_owned(), text: text.to_owned(), span, label: label.to_string() });
        self
    }

    /// The advice.
    pub fn advice(&self) -> Option<&str> {
        self.0.help.as_deref()
    }

    /// The place of the mistake.
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// The failure's exit status.
    pub fn status(&self) -> u8 {
        self.0.status
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Io { .. } => Failure::host(error),
            error => Failure::usage(error),
        }
    }
}

impl From<chronodisk_sweep::SweepError> for Failure {
    fn from(error: chronodisk_sweep::SweepError) -> Self {
        use chronodisk_sweep::SweepError;
        match error {
            SweepError::Usage(message) => Failure::usage(message),
            SweepError::Advised { message, help } => Failure::usage(message).help(help),
            SweepError::Host(message) => Failure::host(message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {}
