//! Devices of a guest.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A device of a guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Model of the device.
    pub model: ModelChoice,
    /// Speed relative to its profile; 1 for a remote model.
    pub speed: f64,
    /// Capacity in bytes instead of the model's own.
    pub capacity_bytes: Option<u64>,
    /// It is written in zones, which the guest's kernel must know.
    pub zoned: bool,
    /// File with the state that it begins in, for a model that is here.
    pub state_file: Option<PathBuf>,
    /// Store of the device; an emulator server stores the bytes itself, and uses only the budget.
    pub store: StoreChoice,
    /// Data kept by the device survive a power cut of the host, too.
    pub durable: bool,
    /// A new file that records all changes of the store.
    pub store_recording: Option<PathBuf>,
    /// Programs of the guest may use interface extensions by request pages.
    pub interface_extensions: bool,
    /// Bytes that the store reads or writes in a second of the host's time at most; the guest must not notice.
    pub store_rate: Option<u64>,
}

impl DeviceOptions {
    /// A new device at the speed and with the capacity of its profile.
    #[must_use]
    pub fn new(model: ModelChoice, store: StoreChoice) -> Self {
        DeviceOptions {
            model,
            speed: 1.0,
            capacity_bytes: None,
            zoned: false,
            state_file: None,
            store,
            durable: false,
            store_recording: None,
            interface_extensions: false,
            store_rate: None,
        }
    }

    /// Whether the guest's kernel flags contents of files in its writes.
    #[must_use]
    pub fn notifies_file_data(&self) -> bool {
        matches!(self.store, StoreChoice::Squashed { notified: true, .. })
    }
}

/// Place of a device's model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelChoice {
    /// Here.
    Profile {
        /// Text of the profile.
        text: String,
        /// Name under which errors mention it.
        label: String,
    },
    /// A model at an emulator server.
    Server {
        /// `HOST:PORT` or `unix:PATH`.
        address: String,
        /// File with the token that the server has as well.
        token: Option<PathBuf>,
        /// Directory with certificates for TLS.
        tls_certificates: Option<PathBuf>,
        /// Text of the profile; empty for a device of the server's own.
        text: String,
        /// Name under which errors mention the profile, or of the server's device.
        label: String,
        /// Whether the server may run ahead of the guest.
        speculate: bool,
    },
    /// In another program.
    Program {
        /// Command line for a shell.
        command: String,
    },
}

/// Place of a device's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreChoice {
    /// In memory, with a limit in bytes.
    Ram {
        /// Bytes that may be kept.
        budget_bytes: u64,
    },
    /// In a file, made if it does not exist.
    File {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file that is only read, with changes in memory.
    Overlay {
        /// File with the contents.
        base: PathBuf,
        /// Recording of changes that the device begins with.
        difference: PathBuf,
        /// Bytes that may be kept in memory.
        budget_bytes: u64,
    },
    /// The metadata of file systems alone, or everything compressed.
    Squashed {
        /// The image, created if it does not exist; `None` for memory.
        image: Option<PathBuf>,
        /// Bytes that may be kept in memory.
        budget_bytes: u64,
        /// Whether all blocks are kept, compressed.
        exact: bool,
        /// Name of the kind of generated contents.
        content: String,
        /// Most bytes of unclassified blocks in memory.
        unclassified_bytes: u64,
        /// Journals are kept, but not read.
        ignore_journal: bool,
        /// Files that are treated in another way because of their names, each as `GLOB=TREATMENT`.
        names: Vec<String>,
        /// Whether programs' marker pages are honoured.
        notices: bool,
        /// Whether the guest's kernel flags contents of files in its writes.
        notified: bool,
    },
}
