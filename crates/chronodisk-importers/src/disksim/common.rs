//! Parts that the readers of a drive and of its controller share: times, origins of fields, and the way to the host.

use chronodisk_device::ProfileError;
use chronodisk_device::disk::{Picos, limits};

use super::lexer::SourcePosition;
use super::reader::Reader;

/// Decimals of a millisecond down to a picosecond.
pub(super) const PICOS: u32 = 9;
/// Decimals of [`Millionths`].
pub(super) const MILLIONTHS: u32 = 6;

/// Times of a block on a bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BusTimes {
    pub(super) read_block: Picos,
    pub(super) write_block: Picos,
}

/// Components between a drive and the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    /// Times of a block on the bus next to the drive.
    pub(super) bus: BusTimes,
    /// Time of a block in the controller above that bus.
    pub(super) controller_block: Picos,
    /// The driver sends one request at a time.
    pub(super) single_request: bool,
}

/// Origin of each field in the parameter files, so that an error of the model names a place in a file.
#[derive(Default)]
pub(super) struct Origins(Vec<(String, SourcePosition, String)>);

impl Origins {
    pub(super) fn add(&mut self, path: impl Into<String>, reader: &Reader<'_>, name: &str) {
        self.0.push((path.into(), reader.place_of(name), name.to_owned()));
    }

    /// Origin of `field`, or of the field that contains it.
    pub(super) fn find(&self, field: &str) -> Option<&(String, SourcePosition, String)> {
        self.0.iter().filter(|origin| field.starts_with(origin.0.as_str())).max_by_key(|origin| origin.0.len())
    }
}

/// A time in milliseconds, not negative.
pub(super) fn time(reader: &mut Reader<'_>, name: &'static str) -> Result<Picos, ProfileError> {
    let picos = reader.number(name, PICOS)?;
    if !(0..=limits::TIME_PICOS).contains(&picos) {
        return Err(reader.error_at(name, "expected 0 to 10000 milliseconds"));
    }
    Ok(Picos(picos))
}
