//! The feed of a replayer: a file of the launcher that the guest's clock passes on in parts.
//!
//! It begins with a header, room for the replayer's report, and an index of tasks; each task's steps follow. All parts
//! consist of 64-bit words in the processor's byte order. Strings end with NUL and are padded to whole words.

use core::sync::atomic::AtomicU64;

use super::layout::{FEED_REPORT_BYTES, FEED_REPORT_OFFSET};

/// "feed" and the version of its format.
pub(crate) const FEED_MAGIC: u64 = 0x6665_6564_0003;
/// Words of the header: magic, numbers of tasks, of mappings and of slots.
pub(crate) const HEADER_WORDS: usize = 4;
/// Offset of the index.
pub(crate) const INDEX_OFFSET: usize = FEED_REPORT_OFFSET + FEED_REPORT_BYTES;
/// Words of a task in the index: offset and bytes of its steps, and its id, with [`FIRST`].
pub(crate) const INDEX_WORDS: usize = 3;
/// Flag of a task that the replayer starts by itself.
pub(crate) const FIRST: u64 = 1 << 32;
/// Bytes before the steps in a part: its size.
pub(crate) const PART_HEADER_BYTES: usize = 8;

/// Words of a step's head: kind, whether it signals, number of waits, number of words.
pub(crate) mod head {
    pub const SIGNALS: u64 = 1 << 8;
    pub const WAITS_SHIFT: u32 = 16;
    pub const WORDS_SHIFT: u32 = 32;
    /// Words before the waits: this one, the CPU time, and the record's index.
    pub const WORDS: usize = 3;
}

/// Kinds of steps.
pub(crate) mod kind {
    pub const NOTHING: u64 = 0;
    /// Call number and kind of expectation; the expectation; kinds of arguments; six arguments; strings.
    pub const CALL: u64 = 1;
    /// Whether sockets; both slots.
    pub const PIPE: u64 = 2;
    /// Slot; bytes.
    pub const RECEIVE: u64 = 3;
    /// Slot; bytes.
    pub const SEND: u64 = 4;
    /// Task; flags.
    pub const SPAWN: u64 = 5;
    pub const OWN_FILES: u64 = 6;
    /// Nanoseconds.
    pub const SLEEP: u64 = 7;
    /// Slot; offset; bytes.
    pub const TOUCH: u64 = 8;
    /// Mapping; slot; offset; bytes; protection; flags.
    pub const MAP: u64 = 9;
    /// Mapping; offset; whether the access is a write.
    pub const FAULT: u64 = 10;
    /// Mapping; offset; bytes; flags.
    pub const FLUSH: u64 = 11;
    /// Mapping; bytes.
    pub const UNMAP: u64 = 12;
    /// Nanoseconds. The step polls for its waits.
    pub const POLL: u64 = 13;
    /// Mapping; offset; bytes; advice.
    pub const ADVISE: u64 = 14;
}

/// Kinds of expectations.
pub(crate) mod expectation {
    pub const OUTCOME: u64 = 0;
    pub const EXACTLY: u64 = 1;
    pub const DESCRIPTOR: u64 = 2;
}

/// Kinds of arguments, four bits each.
pub(crate) mod argument {
    pub const NUMBER: u64 = 0;
    /// The argument is an offset in bytes from the beginning of the step, to a string.
    pub const PATH: u64 = 1;
    pub const SCRATCH: u64 = 2;
    pub const DATA: u64 = 3;
    /// The argument is a slot.
    pub const DESCRIPTOR: u64 = 4;
    /// As a path, but its first word is the slot of the descriptor where the path begins.
    pub const DESCRIPTOR_PATH: u64 = 5;
    /// As a path, but consisting of words. The first gives the index of the word that is a descriptor, the second the
    /// descriptor's slot.
    pub const WORDS: u64 = 6;
}

/// Marks that no word is a descriptor.
pub(crate) const NO_WORD: u64 = u64::MAX;

/// Differences that are kept.
pub(crate) const DIFFERENCES_MAX: usize = 64;

/// A call with a different outcome.
#[repr(C)]
pub(crate) struct Difference {
    pub record: AtomicU64,
    pub got: AtomicU64,
}

/// The replayer's output in its feed.
#[repr(C)]
pub(crate) struct Report {
    pub calls_made: AtomicU64,
    pub differed: AtomicU64,
    pub ids_taken: AtomicU64,
    pub waits_abandoned: AtomicU64,
    pub is_whole: AtomicU64,
    /// The time stamp counter when the first step was about to begin.
    pub began_ticks: AtomicU64,
    /// Most resident memory of the replayer, in KiB; zero if unknown.
    pub memory_kib: AtomicU64,
    /// Most simultaneous tasks.
    pub tasks_at_once: AtomicU64,
    pub differences: [Difference; DIFFERENCES_MAX],
}
