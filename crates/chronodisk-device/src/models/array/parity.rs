//! Rows of blocks with parity: the reads before a write, and the blocks that are computed from others.
//!
//! A row has a block on every member. A write that covers a part of a row has to keep the row's parity. It can read the
//! old data and the old parity that it overwrites (*read-modify-write*) or the row's other data (*reconstruct-write*).
//! The rules are those of `handle_stripe_fill` and `handle_stripe_dirtying` in Linux's `drivers/md/raid5.c`: the method
//! with fewer reads, an unreadable block counting as two whole rows, and reconstruct-write if both are equal. md counts
//! so too if the parity itself has failed, and then reads data that no write needs.

use super::layout::{Layout, MemberSet};

/// A row of blocks, one per member, without requests under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) members: usize,
    /// The members with P and Q.
    pub(crate) parities: MemberSet,
    /// Members that cannot be read.
    pub(crate) failed: MemberSet,
    /// Blocks in the cache.
    pub(crate) present: MemberSet,
    /// Blocks that a read asks for.
    pub(crate) wanted: MemberSet,
    /// Blocks with new data, in part or completely.
    pub(crate) written: MemberSet,
    /// Blocks that new data cover completely.
    pub(crate) covered: MemberSet,
}

/// Next actions on a row, all at the same instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Blocks to read. If there are any, a write does not begin.
    pub(crate) reads: MemberSet,
    /// Blocks of failed members, computed from all others.
    pub(crate) computed: MemberSet,
    /// The write that begins.
    pub(crate) write: Option<Method>,
}

/// Computation of the new parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// From new data alone.
    Whole,
    /// From old data and old parity.
    Modify,
    /// From new data and the row's other data.
    Reconstruct,
}

/// Decides the next actions on a row. At most as many members may have failed as the row has parities.
pub(crate) fn next_step(row: &Row) -> Step {
    let mut step = Step::default();
    let all = MemberSet::first(row.members);
    let needed = needed(row, all).without(row.present);
    let missing = all.without(row.present);
    if !needed.is_empty() && row.failed.includes(missing) {
        step.computed = missing;
    } else {
        step.reads = needed.without(row.failed);
    }
    if !row.written.is_empty() {
        plan_write(row, all, &mut step);
    }
    step
}

/// Adds the reads of the cheaper method, or begins the write if it needs none.
fn plan_write(row: &Row, all: MemberSet, step: &mut Step) {
    let known = row.present.union(step.computed).union(step.reads);
    let modified = row.written.union(row.parities).without(known);
    let other = all.without(row.parities).without(row.covered).without(known);
    let cost = |blocks: MemberSet| {
        let readable = blocks.without(row.failed).count();
        readable + (blocks.count() - readable) * 2 * row.members
    };
    let (modify, reconstruct) = (cost(modified), cost(other));
    let cheaper = if modify < reconstruct { modified } else { other };
    step.reads = step.reads.union(cheaper.without(row.failed));
    if !step.reads.is_empty() {
        return;
    }
    step.write = match (modify, reconstruct) {
        (_, 0) if row.covered.includes(all.without(row.parities)) => Some(Method::Whole),
        (_, 0) => Some(Method::Reconstruct),
        (0, _) => Some(Method::Modify),
        _ => None,
    };
}

/// Blocks that must be in the cache before anything else.
fn needed(row: &Row, all: MemberSet) -> MemberSet {
    let unknown = row.failed.without(row.present);
    let partial = row.written.without(row.covered);
    // To compute a block takes all others. Writes to a row without two of its blocks need everything, except that two
    // lost blocks of data that are not written are left alone.
    let two_lost = row.failed.count() >= 2 && !row.written.is_empty();
    let computes = unknown.intersects(row.wanted.union(partial))
        || (two_lost && unknown.intersects(row.written.union(row.parities)));
    if computes { all } else { row.wanted.union(partial) }
}

/// The members with parity of a row of chunks.
pub(crate) fn parities(layout: &Layout, chunk_row: u64) -> MemberSet {
    let mut parities = MemberSet::default();
    (0..2).filter_map(|which| layout.parity(chunk_row, which)).for_each(|member| parities.insert(member));
    parities
}
