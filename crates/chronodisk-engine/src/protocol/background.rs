//! Background requests in messages.

use std::ops::Range;

use chronodisk_device::{BackgroundDone, BackgroundTime};
use chronodisk_sim::{Lba, Nanos};

use super::fields::{Reader, Writer};
use super::{BACKGROUND_DONE_MAX, BACKGROUND_RANGES_MAX, Command, ProtocolError};

/// A change of the sectors that background requests want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundChange {
    /// They are wanted, and all wanted sectors are read at these times from now on.
    Want(BackgroundTime),
    /// They are not wanted any more.
    Forget,
}

impl BackgroundChange {
    const ALL: [BackgroundChange; 3] = [
        BackgroundChange::Want(BackgroundTime::Gaps),
        BackgroundChange::Want(BackgroundTime::GapsAndRest),
        BackgroundChange::Forget,
    ];

    /// Appends the body of [`Command::Background`].
    pub(super) fn encode(self, at: Nanos, ranges: &[Range<u64>], to: &mut Writer<'_>) {
        to.u64(at.as_nanos());
        let code = Self::ALL.iter().position(|known| *known == self);
        to.u8(code.expect("the list is complete") as u8);
        for range in ranges {
            to.u64(range.start);
            to.u64(range.end);
        }
    }

    /// Reads [`Command::Background`].
    pub(super) fn decode(mut from: Reader<'_>) -> Result<Command, ProtocolError> {
        let at = Nanos::from_nanos(from.u64()?);
        let change = from.one_of("change", &Self::ALL, "0 to 2")?;
        let ranges = from.numbers(0..=BACKGROUND_RANGES_MAX)?.into_iter().map(|[first, end]| first..end).collect();
        Ok(Command::Background { at, change, ranges })
    }
}

/// Reads of background requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackgroundReads {
    /// Sectors that are still wanted.
    pub wanted_sectors: u64,
    /// Rate at which sectors pass a head, in bytes per second; above zero.
    pub media_bytes_per_s: f64,
    /// Reads since the last answer, in order of time. [`BACKGROUND_DONE_MAX`] of them say that there may be more.
    pub done: Vec<BackgroundDone>,
}

impl BackgroundReads {
    /// Appends the body of an answer.
    pub(super) fn encode(&self, to: &mut Writer<'_>) {
        to.u64(self.wanted_sectors);
        to.u64(self.media_bytes_per_s.to_bits());
        for done in &self.done {
            to.u64(done.lba.0);
            to.u64(done.sectors.into());
            to.u64(done.at.as_nanos());
        }
    }

    /// Reads the body of an answer.
    pub(super) fn decode(mut from: Reader<'_>) -> Result<Self, ProtocolError> {
        let (wanted_sectors, rate) = (from.u64()?, from.u64()?);
        let media_bytes_per_s = f64::from_bits(rate);
        if !(media_bytes_per_s.is_finite() && media_bytes_per_s > 0.0) {
            return Err(from.wrong("media rate", rate, "the bits of a number above zero"));
        }
        let mut done = Vec::new();
        for [lba, sectors, at] in from.numbers(0..=BACKGROUND_DONE_MAX)? {
            let Ok(sectors @ 1..) = u32::try_from(sectors) else {
                let (message, field) = ("background reads", "number of sectors");
                return Err(ProtocolError::Field { message, field, value: sectors, expected: "1 to 2^32 - 1" });
            };
            done.push(BackgroundDone { lba: Lba(lba), sectors, at: Nanos::from_nanos(at) });
        }
        Ok(BackgroundReads { wanted_sectors, media_bytes_per_s, done })
    }
}
