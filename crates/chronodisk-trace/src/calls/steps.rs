//! The steps of a replay: the actions of a task, and the calls that they make.

use chronodisk_sim::Nanos;

use super::table::AT_FDCWD;

/// One step of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The record that it stands for.
    pub record: usize,
    /// CPU time before the step, or the gap that replaces it. The CPU time of omitted calls is included.
    pub think: Nanos,
    /// The recorded call's own CPU time in the kernel.
    pub kernel: Nanos,
    /// Conditions before the step.
    pub waits: Vec<Wait>,
    /// Whether the task's count of signals grows by one once the step is done.
    pub signals: bool,
    /// The action.
    pub action: Action,
}

/// A wait until a task has signalled so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Index of the task.
    pub task: u32,
    /// Count of its signals.
    pub signals: u32,
}

/// Action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Only waits and signals.
    Nothing,
    /// Makes a call.
    Call {
        /// Call number on x86-64.
        number: u32,
        /// Arguments of the call.
        arguments: [Argument; 6],
        /// Result of the recorded call.
        expected: Expected,
    },
    /// Makes a pipe, or a pair of sockets, and keeps its descriptors in these slots.
    Pipe {
        /// Whether it is a socket pair.
        sockets: bool,
        /// The reading end first.
        descriptors: [u32; 2],
    },
    /// Reads this number of bytes from a pipe; zero bytes mean its end.
    Receive {
        /// Slot of the reading end.
        descriptor: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Writes this number of bytes to a pipe.
    Send {
        /// Slot of the writing end.
        descriptor: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Lets a task begin.
    Spawn {
        /// Index of the task.
        task: u32,
        /// Whether it shares the descriptor table instead of copying it.
        shares_files: bool,
        /// Whether it shares the working directory instead of copying it.
        shares_directory: bool,
    },
    /// Gives the task its own descriptor table.
    OwnFiles,
    /// Sleeps.
    Sleep(Nanos),
    /// Sleeps for this time repeatedly until the step's conditions hold.
    Poll(Nanos),
    /// Maps a part of a file, under a number.
    Map {
        /// Number of the mapping.
        mapping: u32,
        /// Slot of the file.
        descriptor: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// `PROT_READ` and `PROT_WRITE`.
        protection: u64,
        /// `MAP_SHARED` or `MAP_PRIVATE`, and others that change which pages are read.
        flags: u64,
    },
    /// Meets a page fault.
    Fault {
        /// Number of the mapping.
        mapping: u32,
        /// A byte of the page.
        offset: u64,
        /// Whether the access is a write.
        writes: bool,
    },
    /// Writes changed pages to the file.
    Flush {
        /// Number of the mapping.
        mapping: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Flags of `msync`.
        flags: u64,
    },
    /// Advises on the use of pages: `madvise`.
    Advise {
        /// Number of the mapping.
        mapping: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Such as `MADV_RANDOM`.
        advice: u64,
    },
    /// Removes a mapping.
    Unmap {
        /// Number of the mapping.
        mapping: u32,
        /// Bytes.
        bytes: u64,
    },
    /// Maps a file and touches each page.
    Touch {
        /// Slot of the file.
        descriptor: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
    },
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number.
    Number(u64),
    /// The address of a path.
    Path(Vec<u8>),
    /// The descriptor in a slot.
    Descriptor(u32),
    /// The address of the name that the descriptor in a slot has in `/proc`, with a path from there.
    DescriptorPath(u32, Vec<u8>),
    /// The address of words.
    Words(Vec<u64>),
    /// The address of words; the one with the number is the descriptor in the slot.
    WordsOf(u32, u8, Vec<u64>),
    /// The address of memory that the call may fill.
    Scratch,
    /// The address of made-up data.
    Data,
}

/// Result of the recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Success with any result, or this error, a negative number.
    Outcome(i64),
    /// Exactly this result.
    Exactly(i64),
    /// A descriptor, which the slot keeps.
    Descriptor(u32),
}

/// The working directory as a descriptor.
pub(super) const HERE: Argument = Argument::Number(AT_FDCWD as i64 as u64);
