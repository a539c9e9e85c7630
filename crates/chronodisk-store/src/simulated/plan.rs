//! The plan of faults: which calls fail, and how.

use std::collections::BTreeMap;
use std::io;

/// A kind of call, as faults are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Call {
    /// Every call.
    Any,
    /// A call that needs space that it does not have yet.
    TakesSpace,
    /// Opening or creating.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// `fdatasync`.
    Sync,
    /// Asking for the size.
    Size,
    /// Changing the length.
    SetLen,
    /// Reserving, zeroing, punching.
    Allocate,
    /// Looking for data or a hole.
    Seek,
    /// Locking.
    Lock,
    /// Asking for the file's number.
    Identity,
    /// Another descriptor.
    Duplicate,
    /// Renaming.
    Rename,
    /// Removing a name.
    Remove,
    /// `fsync` of a folder.
    SyncFolder,
}

/// Effect on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call fails with `EIO`.
    Error,
    /// The call and all later ones of its kind fail with `EIO`.
    ErrorsFromNowOn,
    /// The disk is full: it and all later ones that need space fail with `ENOSPC`.
    FullFromNowOn,
    /// The call transfers less than requested.
    Short,
    /// The call fails with `EINTR`.
    Interrupted,
    /// The process ends during it.
    Kill,
    /// The power is cut during it.
    PowerCut,
}

/// A simulated host's spontaneous behaviour.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedOptions {
    /// Seed of all random decisions.
    pub seed: u64,
    /// Capacity of the disk in bytes; `None` for unlimited.
    pub capacity_bytes: Option<u64>,
    /// Share of reads and writes, in thousandths, that transfer less than requested.
    pub short_per_mille: u32,
    /// Share of interruptible calls, in thousandths, that are interrupted.
    pub interrupted_per_mille: u32,
    /// Share of calls, in thousandths, before which the host writes back some dirty sectors.
    pub write_back_per_mille: u32,
}

impl SimulatedOptions {
    /// A disk with space, that is used as hosts are: now and then something is short or interrupted.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SimulatedOptions {
            seed,
            capacity_bytes: None,
            short_per_mille: 20,
            interrupted_per_mille: 20,
            write_back_per_mille: 50,
        }
    }
}

/// Extent to which a call is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Whole,
    /// At most this number of bytes.
    Partial(usize),
}

impl Outcome {
    pub(super) fn len(self, asked: usize) -> usize {
        match self {
            Outcome::Whole => asked,
            Outcome::Partial(len) => len.min(asked),
        }
    }
}

/// The faults that wait, and the calls that were counted.
#[derive(Debug, Default)]
pub(super) struct Plan {
    counts: BTreeMap<Call, u64>,
    waiting: Vec<(Call, u64, Fault)>,
    failing: Vec<Call>,
    full: bool,
    /// Number of effects of each kind of fault.
    pub(super) effects: BTreeMap<&'static str, u64>,
}

impl Plan {
    pub(super) fn inject(&mut self, call: Call, nth: u64, fault: Fault) {
        let at = self.calls(call) + nth.max(1);
        self.waiting.push((call, at, fault));
    }

    pub(super) fn repair(&mut self) {
        self.waiting.clear();
        self.failing.clear();
        self.full = false;
    }

    pub(super) fn calls(&self, call: Call) -> u64 {
        self.counts.get(&call).copied().unwrap_or(0)
    }

    /// Counts a call, and returns its fault.
    pub(super) fn count(&mut self, call: Call, takes_space: bool) -> Option<Fault> {
        let kinds = [Some(call), Some(Call::Any), takes_space.then_some(Call::TakesSpace)];
        for kind in kinds.into_iter().flatten() {
            *self.counts.entry(kind).or_default() += 1;
        }
        let is_due = |(kind, at, _): &(Call, u64, Fault)| kinds.contains(&Some(*kind)) && self.calls(*kind) == *at;
        let due = self.waiting.iter().position(is_due).map(|index| self.waiting.remove(index));
        if let Some((kind, _, fault)) = due {
            match fault {
                Fault::ErrorsFromNowOn => self.failing.push(kind),
                Fault::FullFromNowOn => self.full = true,
                _ => {}
            }
        }
        let lasting = match self.failing.iter().any(|kind| kinds.contains(&Some(*kind))) {
            true => Some(Fault::Error),
            false => (self.full && takes_space).then_some(Fault::FullFromNowOn),
        };
        let fault = match due {
            Some((.., Fault::ErrorsFromNowOn | Fault::FullFromNowOn)) | None => lasting,
            Some((.., fault)) => Some(fault),
        };
        match fault {
            Some(Fault::Error | Fault::ErrorsFromNowOn) if call == Call::Sync => self.note("EIO of a synchronisation"),
            Some(Fault::Error | Fault::ErrorsFromNowOn) => self.note("EIO of another call"),
            Some(Fault::Short) => self.note("short transfer"),
            Some(Fault::Interrupted) => self.note("interruption"),
            // These are counted when they take effect, since they have other causes, too.
            Some(Fault::FullFromNowOn | Fault::Kill | Fault::PowerCut) | None => {}
        }
        fault
    }

    /// Counts a fault that took effect.
    pub(super) fn note(&mut self, kind: &'static str) {
        *self.effects.entry(kind).or_default() += 1;
    }
}

pub(super) fn io_error() -> io::Error {
    rustix::io::Errno::IO.into()
}

pub(super) fn no_space() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

pub(super) fn interrupted() -> io::Error {
    rustix::io::Errno::INTR.into()
}

pub(super) fn dead() -> io::Error {
    io::Error::other("the process has ended")
}
