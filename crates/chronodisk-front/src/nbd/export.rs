//! Exports of a server.

use std::sync::Arc;

use chronodisk_sim::SECTOR_BYTES;

use super::wire::{PAYLOAD_BYTES_DEFAULT, STRING_BYTES_MAX, UNFRAGMENTED_BYTES_MIN, transmission_flag as flag};

/// A device as seen by clients.
///
/// Flush, FUA and cache are always offered, allocation information to clients that negotiate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name that a client requests; the empty name is the first export.
    pub name: String,
    /// Description for people; may be empty.
    pub description: String,
    /// Size in bytes, a multiple of `block_bytes_min`.
    pub size_bytes: u64,
    /// Smallest unit of offsets and lengths in bytes: a power of two from 512 to 65,536. Requests
    /// that do not keep to it fail with `EINVAL`.
    pub block_bytes_min: u32,
    /// Unit that is served best, in bytes: a power of two from `block_bytes_min` to 32 MiB.
    pub block_bytes_preferred: u32,
    /// Longest read or write in bytes: at least 65,536 and a multiple of `block_bytes_min`.
    /// Clients that do not ask assume 32 MiB.
    pub payload_bytes_max: u32,
    /// Refuse operations that would change the contents.
    pub read_only: bool,
    /// A rotating disk.
    pub rotational: bool,
    /// Several connections see one another's writes, and a flush on one covers all of them.
    pub multi_conn: bool,
    /// Whether the export offers trim.
    pub trim: bool,
    /// Offer write-zeroes, also in its fast form.
    pub write_zeroes: bool,
}

impl Export {
    /// An export that offers everything, in sectors of 512 bytes, with 4 KiB preferred.
    #[must_use]
    pub fn new(name: impl Into<String>, size_bytes: u64) -> Self {
        Export {
            name: name.into(),
            description: String::new(),
            size_bytes,
            block_bytes_min: SECTOR_BYTES as u32,
            block_bytes_preferred: 4096,
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            read_only: false,
            rotational: false,
            multi_conn: true,
            trim: true,
            write_zeroes: true,
        }
    }

    /// The transmission flags; `SEND_DF` is sent only with structured replies.
    pub(crate) fn transmission_flags(&self, structured: bool) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_CACHE;
        for (set, bits) in [
            (self.read_only, flag::READ_ONLY),
            (self.rotational, flag::ROTATIONAL),
            (self.multi_conn, flag::CAN_MULTI_CONN),
            (self.trim && !self.read_only, flag::SEND_TRIM),
            (self.write_zeroes && !self.read_only, flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO),
            (structured, flag::SEND_DF),
        ] {
            if set {
                flags |= bits;
            }
        }
        flags
    }

    fn check(&self) -> Result<(), ExportErrorKind> {
        use ExportErrorKind as Kind;
        if self.name.len() > STRING_BYTES_MAX || self.description.len() > STRING_BYTES_MAX {
            return Err(Kind::StringTooLong);
        }
        if !self.block_bytes_min.is_power_of_two()
            || !(SECTOR_BYTES as u32..=UNFRAGMENTED_BYTES_MIN).contains(&self.block_bytes_min)
        {
            return Err(Kind::BlockMin);
        }
        if !self.block_bytes_preferred.is_power_of_two()
            || !(self.block_bytes_min..=PAYLOAD_BYTES_DEFAULT).contains(&self.block_bytes_preferred)
        {
            return Err(Kind::BlockPreferred);
        }
        // The largest payload is a multiple of the preferred block or at least not below it: clients cut there.
        if !(UNFRAGMENTED_BYTES_MIN.max(self.block_bytes_preferred)..=PAYLOAD_BYTES_DEFAULT)
            .contains(&self.payload_bytes_max)
            || !self.payload_bytes_max.is_multiple_of(self.block_bytes_min)
        {
            return Err(Kind::PayloadMax);
        }
        if self.size_bytes == 0 || !self.size_bytes.is_multiple_of(self.block_bytes_min.into()) {
            return Err(Kind::Size);
        }
        Ok(())
    }
}

/// An export that the protocol can't express.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {name:?}: {kind}")]
pub struct ExportError {
    /// The export's name, possibly shortened.
    pub name: String,
    /// The problem.
    pub kind: ExportErrorKind,
}

/// Problems of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportErrorKind {
    /// There is no export.
    #[error("expected at least one export")]
    None,
    /// There are more exports than a client can list.
    #[error("expected at most {EXPORT_COUNT_MAX} exports")]
    TooMany,
    /// Two of one name.
    #[error("the name is taken by an earlier export")]
    NameTaken,
    /// A name or description is too long.
    #[error("a name or description has more than {STRING_BYTES_MAX} bytes")]
    StringTooLong,
    /// The smallest block.
    #[error("block_bytes_min: expected a power of two from 512 to 65536")]
    BlockMin,
    /// The preferred block.
    #[error("block_bytes_preferred: expected a power of two from block_bytes_min to 32 MiB")]
    BlockPreferred,
    /// The largest payload.
    #[error(
        "payload_bytes_max: expected a multiple of block_bytes_min from 65536 and block_bytes_preferred up to 32 MiB"
    )]
    PayloadMax,
    /// The size.
    #[error("size_bytes: expected a multiple of block_bytes_min, and not zero")]
    Size,
}

/// Most exports of a server, so that a list of them stays short.
pub const EXPORT_COUNT_MAX: usize = 64;

/// Whether clients may, or must, encrypt.
#[derive(Clone, Debug, Default)]
pub enum Tls {
    /// `NBD_OPT_STARTTLS` is refused.
    #[default]
    Off,
    /// Clients choose whether to use TLS.
    Allowed(Arc<rustls::ServerConfig>),
    /// Only TLS is accepted; no export is listed or served before.
    Required(Arc<rustls::ServerConfig>),
}

impl Tls {
    pub(crate) fn config(&self) -> Option<&Arc<rustls::ServerConfig>> {
        match self {
            Tls::Off => None,
            Tls::Allowed(config) | Tls::Required(config) => Some(config),
        }
    }
}

/// Common part of a server's connections: the exports and their protection.
#[derive(Clone, Debug)]
pub struct ServerOffer {
    exports: Vec<Export>,
    tls: Tls,
}

impl ServerOffer {
    /// Offers `exports`, the first of them also under the empty name.
    ///
    /// # Errors
    /// [`ExportError`] if one of them can't be offered.
    pub fn new(exports: Vec<Export>, tls: Tls) -> Result<Self, ExportError> {
        let fail = |name: &str, kind| Err(ExportError { name: name.chars().take(64).collect(), kind });
        if exports.is_empty() {
            return fail("", ExportErrorKind::None);
        }
        if exports.len() > EXPORT_COUNT_MAX {
            return fail(&exports[EXPORT_COUNT_MAX].name, ExportErrorKind::TooMany);
        }
        for (index, export) in exports.iter().enumerate() {
            if let Err(kind) = export.check() {
                return fail(&export.name, kind);
            }
            if exports[..index].iter().any(|earlier| earlier.name == export.name) {
                return fail(&export.name, ExportErrorKind::NameTaken);
            }
        }
        Ok(ServerOffer { exports, tls })
    }

    /// The exports, in the order given.
    #[must_use]
    pub fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// Whether clients may, or must, encrypt.
    #[must_use]
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Index of the export that a client names.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.exports.iter().position(|export| export.name.as_bytes() == name).or_else(|| name.is_empty().then_some(0))
    }
}
