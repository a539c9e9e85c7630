//! Records of an array's work: requests of the host, their parts in the members, repairs of reads.

use chronodisk_sim::{Request, Status};

use super::layout::MemberSet;

/// A request of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    pub(super) request: Request,
    /// Members' requests, jobs and stripes that are not done.
    pub(super) remaining: u32,
    pub(super) status: Status,
    /// Whether it waits for a window of a rebuild, and no member has any of it.
    pub(super) held: bool,
}

/// The part of the array that waits for a member's answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A request of the host.
    Request(u32),
    /// The stripes of the run.
    Rows,
    /// A repair that reads another copy.
    Copy(u32),
    /// Data that go back to a copy that failed to be read.
    WriteBack,
    /// The rebuild with this number.
    Rebuild(u32),
}

/// A request of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) owner: Owner,
    /// Place in the layout of the device that has it.
    pub(super) member: usize,
    pub(super) pieces: u32,
    pub(super) request: Request,
}

/// A failed read of a part of a chunk that has copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    pub(super) parent: u32,
    pub(super) chunk: u64,
    /// First sector in the chunk.
    pub(super) offset: u64,
    /// Copies that failed.
    pub(super) tried: MemberSet,
    /// The error of the first one.
    pub(super) status: Status,
}
